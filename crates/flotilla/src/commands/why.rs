//! `flotilla why`: what a set waits for.
//!
//! The cluster is read once and given to [`flotilla_why`], which decides as the manager does. What would come next is tried as a dry run.

mod look;
mod read;

use self::look::{Seen, look};
use crate::args::{ClusterArgs, Output, WhyArgs};
use crate::clock;
use crate::cluster::Cluster;
use crate::error::{Error, Exit};
use crate::leader::leader;
use crate::target;
use flotilla_controllers::cloneset::Defaults;
use flotilla_model::lines::visible_json;
use flotilla_why::{Beside, Facts, Question, Report, Tried};
use std::io::Write as _;

/// Explains one set.
pub async fn run(cluster_args: &ClusterArgs, args: WhyArgs) -> Result<Exit, Error> {
    let clones = args.gates.clones()?;
    let cluster = Cluster::connect(cluster_args).await?;
    let report = explain(&cluster, &args, clones).await?;
    let mut out = std::io::stdout().lock();
    match args.output {
        Output::Text => write!(out, "{}", report.text())?,
        Output::Json => writeln!(out, "{}", visible_json(&format!("{:#}", report.json())))?,
    }
    Ok(if report.is_idle() { Exit::Done } else { Exit::Waiting })
}

/// What is told of the set.
async fn explain(cluster: &Cluster, args: &WhyArgs, clones: Defaults) -> Result<Report, Error> {
    let set = target::find(cluster, &args.target).await?;
    let now = clock::now();
    let Seen {
        cache,
        left_out: mut unreadable,
        knows_classes,
    } = look(cluster, &set).await?;
    let question = Question {
        set: &set,
        cache: &cache,
        clones,
        now,
    };
    let mut tried = Tried::default();
    let decision = read::try_next(cluster, &question, &mut tried).await?;
    let decision = decision.ok_or_else(|| Error::NotFound {
        target: set.display(),
        namespace: cluster.namespace.clone(),
    })?;
    unreadable.extend(tried.untold.clone());
    let held = question.held(decision, &tried);
    let facts = if held.is_nothing() {
        Facts::default()
    } else {
        read::facts(cluster, knows_classes).await?
    };
    let beside = Beside {
        namespace: read::namespace(cluster, &mut unreadable).await?,
        leader: leader(cluster, &args.lease, now).await,
        unreadable,
    };
    Ok(Report::of(&question, held, facts, beside))
}
