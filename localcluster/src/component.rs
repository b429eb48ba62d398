//! The processes of a cluster, and how each is started.

use crate::build::Binaries;
use crate::cluster::{Audit, Settings};
use crate::node::Node;
use crate::pki::Pki;
use crate::state::Ports;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;

/// One process of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Component {
    /// etcd.
    Etcd,
    /// kube-apiserver.
    Apiserver,
    /// kube-controller-manager.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
    /// The provisioner of claims.
    Provisioner,
    /// kwok, which plays the nodes.
    Kwok,
    /// The registry of the real node.
    Registry,
    /// containerd of the real node.
    Containerd,
    /// kubelet of the real node.
    Kubelet,
}

impl Component {
    /// All, in the order in which they start.
    pub const ALL: [Component; 9] = [
        Component::Etcd,
        Component::Apiserver,
        Component::ControllerManager,
        Component::Scheduler,
        Component::Provisioner,
        Component::Kwok,
        Component::Registry,
        Component::Containerd,
        Component::Kubelet,
    ];
    /// Those of a real node.
    pub(crate) const REAL: [Component; 3] = [Component::Registry, Component::Containerd, Component::Kubelet];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Component::Etcd => "etcd",
            Component::Apiserver => "kube-apiserver",
            Component::ControllerManager => "kube-controller-manager",
            Component::Scheduler => "kube-scheduler",
            Component::Provisioner => "provisioner",
            Component::Kwok => "kwok",
            Component::Registry => "registry",
            Component::Containerd => "containerd",
            Component::Kubelet => "kubelet",
        }
    }
}

/// What a component needs to know to start.
pub(crate) struct Context<'a> {
    pub(crate) binaries: &'a Binaries,
    pub(crate) pki: &'a Pki,
    pub(crate) ports: &'a Ports,
    pub(crate) settings: &'a Settings,
    pub(crate) directory: &'a Path,
    pub(crate) node: Option<Node<'a>>,
}

impl Context<'_> {
    pub(crate) fn command(&self, component: Component) -> Command {
        let control_plane = |arguments: Vec<String>| {
            let mut command = Command::new(self.binaries.path(component.name()));
            command.args(arguments);
            command
        };
        let node = || {
            self.node
                .as_ref()
                .expect("only clusters with a real node start its components")
        };
        let mut command = match component {
            Component::Etcd => control_plane(self.etcd()),
            Component::Apiserver => control_plane(self.apiserver()),
            Component::ControllerManager => control_plane(self.controller_manager()),
            Component::Scheduler => control_plane(self.scheduler()),
            Component::Provisioner => control_plane(vec![format!("--kubeconfig={}", self.kubeconfig("provisioner"))]),
            Component::Kwok => control_plane(self.kwok()),
            Component::Registry => node().registry_command(),
            Component::Containerd => node().containerd_command(),
            Component::Kubelet => node().kubelet_command(self.pki),
        };
        command.current_dir(self.directory);
        command
    }

    fn file(&self, name: &str) -> String {
        self.pki.path(name).display().to_string()
    }

    fn kubeconfig(&self, user: &str) -> String {
        self.file(&format!("{user}.kubeconfig"))
    }

    fn in_directory(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn etcd(&self) -> Vec<String> {
        let client = format!("https://127.0.0.1:{}", self.ports.etcd);
        let peer = format!("http://127.0.0.1:{}", self.ports.etcd_peer);
        flags(&[
            ("name", "e0"),
            ("data-dir", &self.in_directory("etcd").display().to_string()),
            ("listen-client-urls", &client),
            ("advertise-client-urls", &client),
            ("listen-peer-urls", &peer),
            ("initial-advertise-peer-urls", &peer),
            ("initial-cluster", &format!("e0={peer}")),
            ("cert-file", &self.file("etcd.crt")),
            ("key-file", &self.file("etcd.key")),
            ("trusted-ca-file", &self.file("ca.crt")),
            ("client-cert-auth", "true"),
            // A test cluster may lose its last writes with the machine, not with the process.
            ("unsafe-no-fsync", "true"),
            ("quota-backend-bytes", "4294967296"),
            ("log-level", "warn"),
        ])
    }

    fn apiserver(&self) -> Vec<String> {
        let mut arguments = flags(&[
            ("etcd-servers", &format!("https://127.0.0.1:{}", self.ports.etcd)),
            ("etcd-cafile", &self.file("ca.crt")),
            ("etcd-certfile", &self.file("apiserver.crt")),
            ("etcd-keyfile", &self.file("apiserver.key")),
            ("bind-address", "127.0.0.1"),
            ("secure-port", &self.ports.apiserver.to_string()),
            // Only the endpoints of the `kubernetes` Service show it, and they may not be loopback.
            ("advertise-address", "10.244.0.1"),
            ("tls-cert-file", &self.file("apiserver.crt")),
            ("tls-private-key-file", &self.file("apiserver.key")),
            ("client-ca-file", &self.file("ca.crt")),
            ("authorization-mode", "Node,RBAC"),
            ("enable-admission-plugins", &self.admission_plugins()),
            ("allow-privileged", "true"),
            ("service-account-issuer", "https://kubernetes.default.svc.cluster.local"),
            ("service-account-key-file", &self.file("sa.pub")),
            ("service-account-signing-key-file", &self.file("sa.key")),
            ("service-cluster-ip-range", "10.96.0.0/24"),
            // For logs and exec on a real node.
            ("kubelet-client-certificate", &self.file("apiserver.crt")),
            ("kubelet-client-key", &self.file("apiserver.key")),
            ("kubelet-certificate-authority", &self.file("ca.crt")),
            ("kubelet-preferred-address-types", "InternalIP"),
        ]);
        if !self.settings.stock_limits {
            arguments.extend(flags(&[
                ("enable-priority-and-fairness", "false"),
                ("max-requests-inflight", "0"),
                ("max-mutating-requests-inflight", "0"),
            ]));
        }
        if self.settings.audit != Audit::Nothing {
            arguments.extend(flags(&[
                ("audit-log-path", &self.in_directory("audit.log").display().to_string()),
                (
                    "audit-policy-file",
                    &self.in_directory("audit-policy.json").display().to_string(),
                ),
                ("audit-log-mode", "blocking"),
            ]));
        }
        arguments
    }

    fn admission_plugins(&self) -> String {
        let more = self.settings.admission_plugins.iter().map(String::as_str);
        std::iter::once("NodeRestriction")
            .chain(more)
            .collect::<Vec<_>>()
            .join(",")
    }

    fn controller_manager(&self) -> Vec<String> {
        let kubeconfig = self.kubeconfig("controller-manager");
        let controllers = if self.settings.statefulset_controller {
            "*"
        } else {
            "*,-statefulset-controller"
        };
        let mut arguments = flags(&[
            ("kubeconfig", &kubeconfig),
            ("authentication-kubeconfig", &kubeconfig),
            ("authorization-kubeconfig", &kubeconfig),
            ("bind-address", "127.0.0.1"),
            ("secure-port", &self.ports.controller_manager.to_string()),
            ("tls-cert-file", &self.file("controller-manager.crt")),
            ("tls-private-key-file", &self.file("controller-manager.key")),
            ("client-ca-file", &self.file("ca.crt")),
            ("leader-elect", "false"),
            ("use-service-account-credentials", "true"),
            ("service-account-private-key-file", &self.file("sa.key")),
            ("root-ca-file", &self.file("ca.crt")),
            ("cluster-signing-cert-file", &self.file("ca.crt")),
            ("cluster-signing-key-file", &self.file("ca.key")),
            ("controllers", controllers),
        ]);
        if !self.settings.stock_limits {
            arguments.extend(flags(&[
                ("kube-api-qps", "5000"),
                ("kube-api-burst", "10000"),
                // Nobody waits fifteen seconds for an autoscaler to look again.
                ("horizontal-pod-autoscaler-sync-period", "1s"),
            ]));
        }
        arguments
    }

    fn scheduler(&self) -> Vec<String> {
        let kubeconfig = self.kubeconfig("scheduler");
        flags(&[
            ("config", &self.in_directory("scheduler.json").display().to_string()),
            ("authentication-kubeconfig", &kubeconfig),
            ("authorization-kubeconfig", &kubeconfig),
            ("bind-address", "127.0.0.1"),
            ("secure-port", &self.ports.scheduler.to_string()),
            ("tls-cert-file", &self.file("scheduler.crt")),
            ("tls-private-key-file", &self.file("scheduler.key")),
            ("client-ca-file", &self.file("ca.crt")),
        ])
    }

    fn kwok(&self) -> Vec<String> {
        let stages = Path::new(env!("CARGO_MANIFEST_DIR")).join("kwok-stages.yaml");
        flags(&[
            ("config", &stages.display().to_string()),
            ("kubeconfig", &self.kubeconfig("kwok")),
            ("manage-nodes-with-annotation-selector", "kwok.x-k8s.io/node=fake"),
            ("node-ip", "10.244.0.1"),
            ("cidr", "10.200.0.0/16"),
            ("server-address", &format!("127.0.0.1:{}", self.ports.kwok)),
        ])
    }
}

fn flags(pairs: &[(&str, &str)]) -> Vec<String> {
    pairs.iter().map(|(name, value)| format!("--{name}={value}")).collect()
}
