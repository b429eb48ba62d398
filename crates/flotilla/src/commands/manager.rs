//! `flotilla manager`: the controllers, until told to stop.

use crate::args::{ClusterArgs, HttpAddress, ManagerArgs};
use crate::cluster;
use crate::error::{Error, Exit};
use crate::gates::{Gates, Remark};
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
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Where webhooks are served inside a pod, and the service that leads there.
const WEBHOOK_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 9443);
const WEBHOOK_SERVICE: &str = "flotilla-webhook";
/// How long the news of a replica that ends takes, through endpoints and whatever routes by them, to who asks.
const LINGER: Duration = Duration::from_secs(5);

/// Runs until SIGTERM, or until something fails that cannot heal.
pub async fn run(cluster_args: &ClusterArgs, args: ManagerArgs) -> Result<Exit, Error> {
    logging::start(&args.log, args.log_format)?;
    let gates = gates(&args)?;
    let config = cluster::config(cluster_args).await?;
    let client = connection::connect(config).map_err(Error::Config)?;
    let fence = Fence::default();
    let webhooks = match webhook_options(&args, gates, cluster_args.namespace.as_deref(), is_in_pod())? {
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
        health_address: args.health_address.0,
        fence,
        beside: webhooks.clone().map(|webhooks| webhooks as Arc<dyn Beside>),
    };
    let ended = run_manager(options, controllers(&args, gates), client).await;
    // Last, since the API server asks until it hears that another replica is the one to ask.
    if let Some(webhooks) = webhooks {
        if ended.is_ok() {
            let is_behind_service = args.webhook_url.is_none();
            let default = if is_behind_service { LINGER } else { Duration::ZERO };
            linger(args.webhook_linger_seconds.map_or(default, Duration::from_secs)).await;
        }
        webhooks.stop();
    }
    ended.map_err(|e| Error::Manager(e.to_string()))?;
    Ok(Exit::Done)
}

/// Waits so long, or until we are asked to end once more.
async fn linger(time: Duration) {
    if time.is_zero() {
        return;
    }
    tracing::info!(
        seconds = time.as_secs(),
        "going on to serve webhooks, until the API server asks another replica"
    );
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signal) => signal.recv().await,
            // Then only time ends it.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = tokio::time::sleep(time) => {}
        _ = terminated => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

/// What gates and flags of OpenKruise's manager ask for; those that change nothing are named in the log.
fn gates(args: &ManagerArgs) -> Result<Gates, Error> {
    let (mut gates, remarks) = Gates::read(&args.feature_gates)?;
    gates.clones.exclude_preparing_delete = args.cloneset_scaling_exclude_preparing_delete;
    for remark in remarks {
        match remark {
            Remark::Ignored(gate, reason) => tracing::info!(gate, reason, "feature gate ignored"),
            Remark::Unknown(gate) => tracing::warn!(gate, "unknown feature gate ignored"),
        }
    }
    for (flag, reason) in &args.openkruise.ignored {
        tracing::info!(flag, reason, "flag ignored");
    }
    Ok(gates)
}

/// Every pod is told where the API server is.
fn is_in_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

/// How webhooks are served; `None` if they are not.
fn webhook_options(
    args: &ManagerArgs,
    gates: Gates,
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
        labels_with_hashes: gates.clones.short_hash,
    }))
}

/// The table of controllers: one line a kind.
pub(super) fn controllers(args: &ManagerArgs, gates: Gates) -> Vec<Box<dyn Controller>> {
    let mut table: Vec<Box<dyn Controller>> = vec![
        Box::new(StatefulSetController::new(SetKind::Advanced)),
        Box::new(CloneSetController::new(gates.clones)),
        Box::new(LaunchController),
    ];
    if args.native_statefulset {
        table.push(Box::new(StatefulSetController::new(SetKind::Native)));
    }
    if gates.pre_download {
        table.push(Box::new(PreDownloadController::new(SetKind::Clone).with(gates.clones)));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser;

    fn parsed(words: &[&str]) -> ManagerArgs {
        let all = ["flotilla", "manager"].iter().chain(words);
        match Args::try_parse_from(all).unwrap().command {
            Command::Manager(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    /// A manager on somebody's machine serves no webhooks; one in a pod does.
    #[test]
    fn webhooks_are_served_inside_a_pod_unless_told_otherwise() {
        let options = |words: &[&str], is_in_pod| webhook_options(&parsed(words), Gates::default(), None, is_in_pod);
        assert!(options(&[], false).unwrap().is_none());
        let inside = options(&["--lease-namespace=ns"], true).unwrap().unwrap();
        assert_eq!(inside.address.to_string(), "[::]:9443");
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

    /// names that do not fit into the labels of others are accepted then.
    #[test]
    fn admission_knows_whether_pods_are_labelled_with_hashes() {
        for (text, is_on) in [("", false), ("CloneSetShortHash=true", true)] {
            let args = parsed(&[&format!("--feature-gates={text}")]);
            let options = webhook_options(&args, gates(&args).unwrap(), None, true)
                .unwrap()
                .unwrap();
            assert_eq!(options.labels_with_hashes, is_on, "{text}");
        }
    }

    #[test]
    fn sts_5_1_images_are_pulled_ahead_only_where_that_is_asked_for() {
        for (text, is_on) in [("", false), ("PreDownloadImageForInPlaceUpdate=true", true)] {
            let args = parsed(&[&format!("--feature-gates={text}")]);
            let gates = gates(&args).unwrap();
            let names: Vec<&str> = controllers(&args, gates).iter().map(|c| c.name()).collect();
            assert_eq!(names.iter().any(|name| name.contains("predownload")), is_on, "{text}");
            let watched = core_options(&args, gates).resources;
            assert_eq!(watched.contains(&Resource::ImagePullJobs), is_on, "{text}");
        }
    }

    /// a command line of OpenKruise's manager is taken as it is.
    #[test]
    fn flags_of_openkruise_are_honoured_or_named() {
        let args = parsed(&[]);
        assert_eq!(gates(&args).unwrap(), Gates::default());
        assert_eq!(args.openkruise.ignored, []);
        let args = parsed(&[
            "--cloneset-workers=20",
            "--statefulset-workers",
            "10",
            "--expectation-timeout=5m0s",
            "--cloneset-scaling-exclude-preparing-delete=true",
            "--feature-gates=CloneSetShortHash=true",
        ]);
        let names: Vec<&str> = args.openkruise.ignored.iter().map(|(name, _)| *name).collect();
        assert_eq!(
            names,
            ["cloneset-workers", "statefulset-workers", "expectation-timeout"]
        );
        let clones = gates(&args).unwrap().clones;
        assert!(clones.exclude_preparing_delete && clones.short_hash);
        let bare = parsed(&["--cloneset-scaling-exclude-preparing-delete"]);
        assert!(gates(&bare).unwrap().clones.exclude_preparing_delete);
    }
}
