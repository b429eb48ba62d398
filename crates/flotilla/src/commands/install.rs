//! `flotilla install`: what an installation consists of, applied to a cluster, until managers and agents are ready.
//!
//! What is applied comes from [`flotilla_install`]. Everything is tried as a dry run first, so that a conflict or a missing right is told
//! before anything has been done.

mod apply;
mod checks;
mod ready;

use crate::args::{ClusterArgs, InstallArgs, PullPolicy};
use crate::cluster::Cluster;
use crate::error::{Error, Exit};
pub(in crate::commands) use apply::MANAGERS;
use flotilla_install::{Condition, NAMESPACE, Options};
use std::io::Write as _;
use std::time::Duration;

/// Installs, or prints what would be applied.
pub async fn run(cluster_args: &ClusterArgs, args: InstallArgs) -> Result<Exit, Error> {
    let options = options(cluster_args, &args);
    let mut out = std::io::stdout().lock();
    if args.dry_run {
        write!(out, "{}", flotilla_install::manifests(&options))?;
        return Ok(Exit::Done);
    }
    if !args.yes {
        let why = "installing changes the whole cluster: definitions, rights, and a manager that acts on sets at once. \
                   Look at what would be applied with --dry-run, then say --yes";
        return Err(Error::NotPossible(why.to_owned()));
    }
    let cluster = Cluster::connect(cluster_args).await?;
    checks::server_is_new_enough(&cluster).await?;
    checks::nobody_else_controls_our_kinds(&cluster).await?;
    let applying = apply::Applying {
        cluster: &cluster,
        force: args.force_conflicts,
    };
    let mut objects = flotilla_install::objects(&options);
    if args.only_crds {
        objects.retain(|object| object["kind"] == "CustomResourceDefinition");
    }
    let prepared = applying.prepare(objects).await?;
    applying.try_all(&prepared, &options.namespace).await?;
    for step in &prepared {
        let done = applying.apply(step).await?;
        writeln!(out, "{} {done}", step.place.name)?;
        for note in &step.notes {
            writeln!(out, "  note: {note}")?;
        }
    }
    if options.holds(Condition::Crds) {
        ready::definitions_are_served(&cluster).await?;
    }
    if args.only_crds {
        return Ok(Exit::Done);
    }
    for gone in applying.prune(&options).await? {
        writeln!(out, "{gone} deleted: no longer chosen")?;
    }
    if args.timeout_seconds == 0 {
        return Ok(Exit::Done);
    }
    let within = Duration::from_secs(args.timeout_seconds);
    let namespace = options.namespace.as_str();
    // Both at once, so that the time holds for all of it.
    let agents = async {
        let is_there = options.holds(Condition::Agent);
        let ready = is_there.then(|| ready::agents_are_ready(&cluster, namespace, within));
        match ready {
            Some(ready) => ready.await.map(Some),
            None => Ok(None),
        }
    };
    let (managers, agents) = tokio::join!(ready::managers_are_ready(&cluster, namespace, within), agents);
    // What is ready is told before what is not.
    for ready in [managers.as_ref().ok(), agents.as_ref().ok().and_then(Option::as_ref)]
        .into_iter()
        .flatten()
    {
        writeln!(out, "{ready}")?;
    }
    managers?;
    agents?;
    Ok(Exit::Done)
}

fn options(cluster: &ClusterArgs, args: &InstallArgs) -> Options {
    let default = Options::default();
    let policy = match args.image_pull_policy {
        PullPolicy::Always => "Always",
        PullPolicy::IfNotPresent => "IfNotPresent",
        PullPolicy::Never => "Never",
    };
    Options {
        namespace: place(cluster),
        image: args.image.clone().unwrap_or(default.image),
        image_pull_policy: policy.to_owned(),
        image_pull_secrets: args.image_pull_secret.clone(),
        replicas: args.replicas,
        log: args.log.clone(),
        chosen: default.chosen,
    }
    .with(Condition::NativeStatefulSet, args.native_statefulset)
    .with(Condition::PreDownload, args.pre_download)
    .with(Condition::Webhooks, !args.without_webhooks)
    .with(Condition::NetworkPolicy, !args.without_network_policy)
    .with(Condition::ServiceMonitor, args.service_monitor)
    .with(Condition::Crds, !args.without_crds)
    .with(Condition::Agent, args.agent)
}

/// Where the managers are: the namespace of the command line, never that of the kubeconfig's context.
pub(super) fn place(cluster: &ClusterArgs) -> String {
    cluster.namespace.clone().unwrap_or_else(|| NAMESPACE.to_owned())
}
