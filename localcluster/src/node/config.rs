//! Configuration of kubelet, containerd and the network of the pods.

use super::Node;
use crate::error::Error;
use crate::pki::Pki;
use serde_json::{Value, json};

/// Longest path of a socket that the kernel takes.
const SOCKET_PATH_MAX: usize = 107;
/// What containerd must not look for on this machine: other ways to keep layers, and other ways to be watched.
const DISABLED: &[&str] = &[
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.zfs",
    "io.containerd.snapshotter.v1.erofs",
    "io.containerd.snapshotter.v1.blockfile",
    "io.containerd.differ.v1.erofs",
    "io.containerd.nri.v1.nri",
    "io.containerd.tracing.processor.v1.otlp",
    "io.containerd.internal.v1.tracing",
];

impl Node<'_> {
    /// Every registry is ours: a name that it does not hold is asked nowhere else.
    pub(super) fn hosts(&self) -> String {
        let url = format!("http://{}", self.registry());
        format!("server = \"{url}\"\n[host.\"{url}\"]\n  capabilities = [\"pull\", \"resolve\"]\n")
    }

    pub(super) fn containerd(&self) -> Result<String, Error> {
        let socket = self.socket().display().to_string();
        let longest = format!("{socket}.ttrpc");
        if longest.len() > SOCKET_PATH_MAX {
            return Err(Error::RealNode(format!(
                "the socket {longest} has a path of more than {SOCKET_PATH_MAX} characters; set FLOTILLA_CACHE_DIR to a shorter directory"
            )));
        }
        let path = |name: &str| self.path(name).display().to_string();
        let binary = |name: &str| self.binaries.path(name).display().to_string();
        Ok(format!(
            "version = 3
root = '{root}'
state = '{state}'
disabled_plugins = {disabled}
[grpc]
  address = '{socket}'
[ttrpc]
  address = '{longest}'
[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'overlayfs'
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = 'registry.test/pause:1'
  [plugins.'io.containerd.cri.v1.images'.registry]
    config_path = '{certs}'
[plugins.'io.containerd.cri.v1.runtime']
  enable_cdi = false
  # Namespaces of the network lie below the cluster's directory, where they are found when it goes.
  netns_mounts_under_state_dir = true
  # A score below that of containerd itself takes a capability that root need not have.
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = 'runc'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = 'io.containerd.runc.v2'
      runtime_path = '{shim}'
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        BinaryName = '{runtime}'
        Root = '{runc}'
        SystemdCgroup = false
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['{cni}']
    conf_dir = '{networks}'
    use_internal_loopback = true
",
            root = path("containerd/root"),
            state = path("containerd/state"),
            disabled = json!(DISABLED),
            certs = path("containerd/certs.d"),
            shim = binary("containerd-shim-runc-v2"),
            runtime = binary("runtime"),
            runc = path("containerd/runc"),
            cni = binary("cni"),
            networks = path("containerd/cni"),
        ))
    }

    /// Pods hang on the bridge: they reach each other and the node, and nothing else.
    pub(super) fn network(&self) -> Value {
        let subnet = format!("10.251.{}.0/24", self.state.network);
        let range = json!({
            "subnet": subnet, "rangeStart": format!("10.251.{}.10", self.state.network), "gateway": self.address(),
        });
        json!({
            "cniVersion": "1.0.0",
            "name": "flotilla",
            "plugins": [{
                "type": "bridge", "bridge": self.bridge(), "isGateway": false, "ipMasq": false, "hairpinMode": true,
                "ipam": {
                    "type": "host-local", "dataDir": self.path("containerd/addresses"), "ranges": [[range]], "routes": [],
                },
            }],
        })
    }

    pub(super) fn kubelet(&self, pki: &Pki) -> Value {
        json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": format!("unix://{}", self.socket().display()),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": format!("/{}", self.cgroup()),
            "failCgroupV1": false,
            "address": self.address(),
            "port": 10250,
            "readOnlyPort": 0,
            "healthzPort": 0,
            "tlsCertFile": pki.path("kubelet.crt"),
            "tlsPrivateKeyFile": pki.path("kubelet.key"),
            "authentication": {
                "anonymous": {"enabled": false}, "webhook": {"enabled": true}, "x509": {"clientCAFile": pki.path("ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "clusterDomain": "cluster.local",
            "clusterDNS": [],
            "resolvConf": self.path("kubelet/resolv.conf"),
            "failSwapOn": false,
            "makeIPTablesUtilChains": false,
            "maxPods": 50,
            "podLogsDir": self.path("logs"),
            "volumePluginDir": self.path("kubelet/volumeplugins"),
            "serializeImagePulls": false,
            "imageGCHighThresholdPercent": 100,
            "imageMinimumGCAge": "24h",
            "evictionHard": {
                "memory.available": "100Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%", "imagefs.available": "1%",
            },
            "enforceNodeAllocatable": ["pods"],
            "shutdownGracePeriod": "0s",
        })
    }
}
