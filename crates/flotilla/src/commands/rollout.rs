//! `flotilla rollout`: follow and steer rollouts, with the verbs of kubectl, for both kinds of set.

mod history;
mod status;
mod steer;

use crate::args::{ClusterArgs, Output, RolloutCommand, RolloutTarget};
use crate::cluster::Cluster;
use crate::error::{Error, Exit};
use crate::target;
use flotilla_model::Lines;
use flotilla_model::lines::visible_json;
use flotilla_why::LiveSet;
use serde_json::{Value, json};
use std::io::Write;

/// Performs one verb.
pub async fn run(cluster_args: &ClusterArgs, command: RolloutCommand) -> Result<Exit, Error> {
    let cluster = Cluster::connect(cluster_args).await?;
    match command {
        RolloutCommand::Status(args) => status::run(&cluster, args).await,
        RolloutCommand::Pause(of) => steer::pause(&cluster, &of).await,
        RolloutCommand::Resume(of) => steer::resume(&cluster, &of).await,
        RolloutCommand::Restart(of) => steer::restart(&cluster, &of).await,
        RolloutCommand::Undo(args) => history::undo(&cluster, args).await,
        RolloutCommand::History(of) => history::list(&cluster, &of).await,
    }
}

async fn find(cluster: &Cluster, of: &RolloutTarget) -> Result<LiveSet, Error> {
    target::find(cluster, &of.target).await
}

/// Tells what was done to a set. Of the details people read the note.
fn tell(of: &RolloutTarget, found: &LiveSet, done: &str, details: Value) -> Result<Exit, Error> {
    let mut out = std::io::stdout().lock();
    match of.output {
        Output::Text => {
            let note = details["note"].as_str();
            let note = note.map_or_else(String::new, |note| format!("; {note}"));
            let mut line = Lines::default();
            line.put(format_args!("{} {done}{note}", found.display()));
            write!(out, "{line}")?;
        }
        Output::Json => {
            let mut json = json!({"set": found.display(), "namespace": &*found.key.namespace, "done": done});
            if let (Some(json), Value::Object(details)) = (json.as_object_mut(), details) {
                json.extend(details);
            }
            writeln!(out, "{}", visible_json(&json.to_string()))?;
        }
    }
    Ok(Exit::Done)
}
