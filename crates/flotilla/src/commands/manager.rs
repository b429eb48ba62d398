//! `flotilla manager`: the controllers, until told to stop.

use crate::args::{ClusterArgs, HttpAddress, ManagerArgs};
use crate::cluster;
use crate::error::{Error, Exit};
use crate::logging;
use flotilla_controllers::cloneset::CloneSetController;
use flotilla_controllers::launch::LaunchController;
use flotilla_controllers::predownload::PreDownloadController;
use flotilla_controllers::statefulset::StatefulSetController;
use flotilla_engine::core::CoreOptions;
use flotilla_engine::core::lease::LeaseOptions;
use flotilla_engine::io::connection;
use flotilla_engine::io::fence::Fence;
use flotilla_engine::io::manager::{Beside, ManagerOptions, run as run_manager};
use flotilla_model::{Controller, Resource, SetKind};
use flotilla_webhook::certificates::Lifetimes;
use flotilla_webhook::{Options, Place, Webhooks};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// The gate of OpenKruise behind which images are pulled ahead of updates in place. Off unless it is turned on.
const PRE_DOWNLOAD_GATE: &str = "PreDownloadImageForInPlaceUpdate";
/// The gate of everything that needs an agent on nodes, pulling images included.
const DAEMON_GATE: &str = "KruiseDaemon";

/// Gates of OpenKruise whose feature is part of this program, whatever they say.
const KNOWN_GATES: &[&str] = &[
    "StatefulSetAutoDeletePVC",
    "StatefulSetStartOrdinal",
    "StatefulSetAutoResizePVCGate",
    "PodIndexLabel",
    "InPlaceUpdateEnvFromMetadata",
    "InPlaceWorkloadVerticalScaling",
    "PreparingUpdateAsUpdate",
    "TemplateNoDefaults",
    "ResourcesDeletionProtection",
    "PodWebhook",
    "SidecarTerminator",
    "EnableSortSidecarContainerByName",
];

/// Where webhooks are served inside a pod, and the service that leads there.
const WEBHOOK_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 9443);
const WEBHOOK_SERVICE: &str = "flotilla-webhook";

/// Runs until SIGTERM, or until something fails that cannot heal.
pub async fn run(cluster_args: &ClusterArgs, args: ManagerArgs) -> Result<Exit, Error> {
    logging::start(&args.log, args.log_format)?;
    let gates = Gates::read(&args.feature_gates)?;
    let config = cluster::config(cluster_args).await?;
    let client = connection::connect(config).map_err(Error::Config)?;
    let fence = Fence::default();
    let webhooks = match webhook_options(&args, cluster_args.namespace.as_deref(), is_in_pod())? {
        Some(options) => {
            let started = Webhooks::start(options, client.clone(), fence.clone());
            Some(Arc::new(started.map_err(|e| Error::Manager(e.to_string()))?))
        }
        None => {
            tracing::info!("serving no webhooks; what is registered for them in the cluster, if anything, stays");
            None
        }
    };
    let options = ManagerOptions {
        core: core_options(&args, gates),
        namespace: cluster_args.namespace.clone(),
        http_address: args.http_address.0,
        fence,
        beside: webhooks.clone().map(|webhooks| webhooks as Arc<dyn Beside>),
    };
    let ended = run_manager(options, controllers(&args, gates), client).await;
    // Last, since the API server asks until it hears that another replica is the one to ask.
    if let Some(webhooks) = webhooks {
        webhooks.stop();
    }
    ended.map_err(|e| Error::Manager(e.to_string()))?;
    Ok(Exit::Done)
}

/// Every pod is told where the API server is.
fn is_in_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

/// How webhooks are served; `None` if they are not.
fn webhook_options(
    args: &ManagerArgs,
    only_namespace: Option<&str>,
    is_in_pod: bool,
) -> Result<Option<Options>, Error> {
    let default = || HttpAddress(is_in_pod.then_some(WEBHOOK_ADDRESS));
    let Some(address) = args.webhook_address.unwrap_or_else(default).0 else {
        if args.webhook_url.is_some() || args.webhook_service.is_some() || args.tls_dir.is_some() {
            return Err(Error::NotPossible(
                "--webhook-url, --webhook-service and --tls-dir need webhooks: name an address with --webhook-address"
                    .to_owned(),
            ));
        }
        return Ok(None);
    };
    let place = match (&args.webhook_url, &args.webhook_service) {
        (Some(url), _) => Place::Url {
            host: url.host.clone(),
            port: url.port,
        },
        (None, Some(service)) => Place::Service {
            namespace: service.namespace.clone(),
            name: service.name.clone(),
        },
        (None, None) if is_in_pod => Place::Service {
            namespace: args.lease_namespace.clone(),
            name: WEBHOOK_SERVICE.to_owned(),
        },
        (None, None) => {
            return Err(Error::NotPossible(
                "outside of a cluster the API server must be told where webhooks are served: add --webhook-url https://HOST:PORT, or \
                 --webhook-service NAMESPACE/NAME if a service leads here"
                    .to_owned(),
            ));
        }
    };
    Ok(Some(Options {
        address,
        place,
        namespace: args.lease_namespace.clone(),
        only_namespace: only_namespace.map(str::to_owned),
        tls_directory: args.tls_dir.clone(),
        lifetimes: args
            .certificate_seconds
            .map_or_else(Lifetimes::default, Lifetimes::short),
    }))
}

/// The table of controllers: one line a kind.
pub(super) fn controllers(args: &ManagerArgs, gates: Gates) -> Vec<Box<dyn Controller>> {
    let mut table: Vec<Box<dyn Controller>> = vec![
        Box::new(StatefulSetController::new(SetKind::Advanced)),
        Box::new(CloneSetController),
        Box::new(LaunchController),
    ];
    if args.native_statefulset {
        table.push(Box::new(StatefulSetController::new(SetKind::Native)));
    }
    if gates.pre_download {
        table.push(Box::new(PreDownloadController::new(SetKind::Clone)));
        table.push(Box::new(PreDownloadController::new(SetKind::Advanced)));
    }
    table
}

pub(super) fn core_options(args: &ManagerArgs, gates: Gates) -> CoreOptions {
    let mut resources = vec![
        Resource::AdvancedSets,
        Resource::CloneSets,
        Resource::Nodes,
        Resource::Pods,
        Resource::Claims,
        Resource::ConfigMaps,
        Resource::Revisions,
        Resource::StorageClasses,
    ];
    if args.native_statefulset {
        resources.push(Resource::NativeSets);
    }
    if gates.pre_download {
        resources.push(Resource::ImagePullJobs);
    }
    let identity = args.identity.clone().unwrap_or_else(default_identity);
    CoreOptions {
        lease: args
            .leader_elect
            .then(|| LeaseOptions::new(&args.lease_namespace, &args.lease_name)),
        workers: usize::from(args.workers),
        writes_in_flight_max: usize::from(args.max_writes_in_flight),
        observation_period: Duration::from_secs(args.observation_seconds),
        resources,
        seed: u64::from(std::process::id()),
        ..CoreOptions::new(&identity)
    }
}

/// Host name and process id: unique among processes that are alive.
fn default_identity() -> String {
    let host = std::env::var("HOSTNAME")
        .ok()
        .or_else(|| std::fs::read_to_string("/etc/hostname").ok());
    let host = host
        .map(|h| h.trim().to_owned())
        .filter(|h| !h.is_empty())
        .unwrap_or_else(|| "localhost".to_owned());
    format!("{host}_{}", std::process::id())
}

/// What feature gates turn on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Gates {
    /// Images are pulled ahead of updates in place.
    pre_download: bool,
}

impl Gates {
    /// Reads `--feature-gates`. Gates of what is always on are named in the log and ignored; nonsense is refused.
    fn read(gates: &[String]) -> Result<Self, Error> {
        let (mut pre_download, mut daemon) = (false, true);
        for gate in gates.iter().filter(|g| !g.is_empty()) {
            match gate.split_once('=') {
                Some((PRE_DOWNLOAD_GATE, value @ ("true" | "false"))) => pre_download = value == "true",
                Some((DAEMON_GATE, value @ ("true" | "false"))) => daemon = value == "true",
                Some((name, "true" | "false")) if KNOWN_GATES.contains(&name) => {
                    tracing::info!(
                        gate = name,
                        "feature gate ignored: its corrected behaviour is always on, or comes with its feature"
                    );
                }
                Some((name, "true" | "false")) => tracing::warn!(gate = name, "unknown feature gate ignored"),
                _ => {
                    return Err(Error::NotPossible(format!(
                        "failed to read --feature-gates: {gate:?} must be NAME=true or NAME=false"
                    )));
                }
            }
        }
        if pre_download && !daemon {
            tracing::warn!("{PRE_DOWNLOAD_GATE} has no effect, since {DAEMON_GATE} is off");
        }
        Ok(Gates {
            pre_download: pre_download && daemon,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser;

    fn parsed(words: &[&str]) -> ManagerArgs {
        let all = ["flotilla", "manager"].iter().chain(words);
        match Args::try_parse_from(all).unwrap().command {
            Command::Manager(args) => args,
            other => panic!("{other:?}"),
        }
    }

    /// A manager on somebody's machine serves no webhooks; one in a pod does.
    #[test]
    fn webhooks_are_served_inside_a_pod_unless_told_otherwise() {
        let options = |words: &[&str], is_in_pod| webhook_options(&parsed(words), None, is_in_pod);
        assert!(options(&[], false).unwrap().is_none());
        let inside = options(&["--lease-namespace=ns"], true).unwrap().unwrap();
        assert_eq!(inside.address.to_string(), "0.0.0.0:9443");
        assert_eq!(inside.place.host(), "flotilla-webhook.ns.svc");
        assert!(options(&["--webhook-address=none"], true).unwrap().is_none());
        let url = ["--webhook-address=127.0.0.1:0", "--webhook-url=https://127.0.0.1:9443"];
        assert_eq!(options(&url, false).unwrap().unwrap().place.port(), 9443);
        for wrong in [
            &["--webhook-address=127.0.0.1:1"][..],
            &["--tls-dir=/tmp"],
            &["--webhook-url=https://a"],
        ] {
            assert!(
                options(wrong, false).unwrap_err().to_string().contains("--webhook-"),
                "{wrong:?}"
            );
        }
    }

    fn gates(text: &str) -> Vec<String> {
        parsed(&[&format!("--feature-gates={text}")]).feature_gates
    }

    #[test]
    fn gates_are_read_or_refused() {
        for (text, is_fine) in [
            ("", true),
            ("PodWebhook=true,Nonsense=false", true),
            ("PodWebhook", false),
            ("PodWebhook=yes", false),
            ("PreDownloadImageForInPlaceUpdate=yes", false),
        ] {
            assert_eq!(Gates::read(&gates(text)).is_ok(), is_fine, "{text}");
        }
    }

    #[test]
    fn rule_5_1_images_are_pulled_ahead_only_where_that_is_asked_for() {
        for (text, is_on) in [
            ("", false),
            ("PreDownloadImageForInPlaceUpdate=true", true),
            ("KruiseDaemon=true,PreDownloadImageForInPlaceUpdate=true", true),
            ("PreDownloadImageForInPlaceUpdate=true,KruiseDaemon=false", false),
            ("PreDownloadImageForInPlaceUpdate=false", false),
        ] {
            let (gates, args) = (Gates::read(&gates(text)).unwrap(), parsed(&[]));
            let names: Vec<&str> = controllers(&args, gates).iter().map(|c| c.name()).collect();
            assert_eq!(names.iter().any(|name| name.contains("predownload")), is_on, "{text}");
            let watched = core_options(&args, gates).resources;
            assert_eq!(watched.contains(&Resource::ImagePullJobs), is_on, "{text}");
        }
    }
}
