//! `flotilla manager`: the controllers, until told to stop.

use crate::args::{ClusterArgs, LogFormat, ManagerArgs};
use crate::cluster;
use crate::error::{Error, Exit};
use flotilla_controllers::launch::LaunchController;
use flotilla_controllers::statefulset::StatefulSetController;
use flotilla_engine::core::CoreOptions;
use flotilla_engine::core::lease::LeaseOptions;
use flotilla_engine::io::connection;
use flotilla_engine::io::manager::{ManagerOptions, run as run_manager};
use flotilla_model::{Controller, Resource, SetKind};
use std::io::IsTerminal;
use std::time::Duration;
use tracing_subscriber::EnvFilter;

/// Gates of OpenKruise that choose a feature of this program, and how they must stand for it to behave as built.
const KNOWN_GATES: &[&str] = &[
    "StatefulSetAutoDeletePVC",
    "StatefulSetStartOrdinal",
    "StatefulSetAutoResizePVCGate",
    "PodIndexLabel",
    "InPlaceUpdateEnvFromMetadata",
    "InPlaceWorkloadVerticalScaling",
    "PreDownloadImageForInPlaceUpdate",
    "PreparingUpdateAsUpdate",
    "TemplateNoDefaults",
    "ResourcesDeletionProtection",
    "KruiseDaemon",
    "PodWebhook",
    "SidecarTerminator",
    "EnableSortSidecarContainerByName",
];

/// Runs until SIGTERM, or until something fails that cannot heal.
pub async fn run(cluster_args: &ClusterArgs, args: ManagerArgs) -> Result<Exit, Error> {
    start_logging(&args)?;
    tell_gates(&args.feature_gates)?;
    let config = cluster::config(cluster_args).await?;
    let client = connection::connect(config).map_err(Error::Config)?;
    let options = ManagerOptions {
        core: core_options(&args),
        namespace: cluster_args.namespace.clone(),
        http_address: args.http_address.0,
    };
    run_manager(options, controllers(&args), client)
        .await
        .map_err(|e| Error::Manager(e.to_string()))?;
    Ok(Exit::Done)
}

/// The table of controllers: one line a kind.
pub(super) fn controllers(args: &ManagerArgs) -> Vec<Box<dyn Controller>> {
    let mut table: Vec<Box<dyn Controller>> = vec![
        Box::new(StatefulSetController::new(SetKind::Advanced)),
        Box::new(LaunchController),
    ];
    if args.native_statefulset {
        table.push(Box::new(StatefulSetController::new(SetKind::Native)));
    }
    table
}

pub(super) fn core_options(args: &ManagerArgs) -> CoreOptions {
    let mut resources = vec![
        Resource::AdvancedSets,
        Resource::Pods,
        Resource::Claims,
        Resource::ConfigMaps,
        Resource::Revisions,
        Resource::StorageClasses,
    ];
    if args.native_statefulset {
        resources.push(Resource::NativeSets);
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

fn start_logging(args: &ManagerArgs) -> Result<(), Error> {
    let filter = EnvFilter::try_new(&args.log).map_err(|e| {
        Error::NotPossible(format!(
            "failed to read --log {:?}: {e}; use a level such as info",
            args.log
        ))
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let done = match args.log_format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    done.map_err(|e| Error::NotPossible(format!("failed to start logging: {e}")))
}

/// Known gates are named in the log and ignored: the corrected behaviour is simply on. Nonsense is refused.
fn tell_gates(gates: &str) -> Result<(), Error> {
    for gate in gates.split(',').filter(|g| !g.is_empty()) {
        match gate.split_once('=') {
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
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_read_or_refused() {
        assert!(tell_gates("").is_ok());
        assert!(tell_gates("PodWebhook=true,Nonsense=false").is_ok());
        assert!(tell_gates("PodWebhook").is_err());
        assert!(tell_gates("PodWebhook=yes").is_err());
    }
}
