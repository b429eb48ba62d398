//! The end of one container (AGT-9.6), after a last look at whether it is still wanted.

use crate::cri::Runtime;
use crate::events::{Teller, Type};
use crate::http_hook;
use crate::look::{Tools, containers};
use flotilla_agent::stopping::{Hook, Stopping, stopping};
use flotilla_agent::{Memory, Pod, Restart, Told, View, decide};
use std::time::Duration;
use tokio::time::Instant;

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was asked to end, and has ended.
    Stopped,
    /// Right before, it was no longer wanted.
    NotWanted,
    /// It could not be asked, or did not end.
    Failed(String),
}

/// Stops a container, so that the kubelet starts it anew.
pub(crate) async fn restart(
    tools: &Tools,
    teller: &Teller,
    runtime: &Runtime,
    pod: &Pod,
    memory: &Memory,
    restart: &Restart,
) -> Outcome {
    let (live, told) = match still_wanted(tools, runtime, pod, memory, restart).await {
        Ok(Some(found)) => found,
        Ok(None) => return Outcome::NotWanted,
        Err(why) => return Outcome::Failed(why),
    };
    let note = format!(
        "Container {} is stopped, so that it starts again with the labels and annotations that its environment refers to",
        restart.container
    );
    teller.of_container(&live, &restart.container, Type::Normal, "Killing", &note);
    let stopping = stopping(&told.annotations, &live.ip);
    let took = run_hook(teller, runtime, &live, restart, &stopping).await;
    match runtime.stop(&restart.id, stopping.grace_behind(took)).await {
        Ok(()) => Outcome::Stopped,
        // Somebody else has removed it.
        Err(error) if error.is_not_found() => Outcome::Stopped,
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

/// The pod as it is now, and the container, if that is still to be stopped (AGT-8.5): the watch and the first look may be old.
async fn still_wanted(
    tools: &Tools,
    runtime: &Runtime,
    pod: &Pod,
    memory: &Memory,
    restart: &Restart,
) -> Result<Option<(Pod, Told)>, String> {
    let live = match tools.api.pod(pod).await {
        Ok(live) => live,
        Err(crate::api::ApiError::Gone(_)) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let told = containers(runtime, &live).await.map_err(|e| e.to_string())?;
    let decision = decide(View {
        pod: &live,
        told: &told,
        memory,
        now: tools.clock.now(),
    });
    let container = told.into_iter().find(|told| told.id == restart.id);
    let is_wanted = decision.restart.contains(restart);
    Ok(container.filter(|_| is_wanted).map(|told| (live, told)))
}

/// Runs the hook, if there is one and time for it, and says how long that took. A hook that fails does not save the container.
async fn run_hook(teller: &Teller, runtime: &Runtime, pod: &Pod, restart: &Restart, stopping: &Stopping) -> Duration {
    let Some(within) = stopping.hook_within() else {
        return Duration::ZERO;
    };
    let begun = Instant::now();
    let outcome = match &stopping.hook {
        Ok(None) => return Duration::ZERO,
        Ok(Some(hook)) => match tokio::time::timeout(within, run(runtime, &restart.id, hook, within)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(format!("it did not end within {} s", within.as_secs())),
        },
        Err(why) => Err(why.clone()),
    };
    if let Err(why) = outcome {
        let note = format!("preStop hook of container {}: {why}", restart.container);
        teller.of_container(pod, &restart.container, Type::Warning, "FailedPreStopHook", &note);
    }
    begun.elapsed()
}

async fn run(runtime: &Runtime, id: &str, hook: &Hook, within: Duration) -> Result<(), String> {
    match hook {
        Hook::Exec(command) => {
            let command: Vec<&str> = command.iter().map(String::as_str).collect();
            let output = runtime.exec(id, &command, within).await.map_err(|e| e.to_string())?;
            // What it printed may be anything, so it is not passed on.
            if output.code != 0 {
                return Err(format!("the command ended with {}", output.code));
            }
            Ok(())
        }
        Hook::Http(hook) => http_hook::send(hook).await,
        Hook::Sleep(duration) => {
            tokio::time::sleep(*duration).await;
            Ok(())
        }
    }
}
