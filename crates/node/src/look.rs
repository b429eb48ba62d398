//! One look at one pod (AGT-8.3): its containers are listed, environments that nobody knows are read, and what is new is noted.

use crate::api::{Api, ApiError};
use crate::cri::{CallError, Output, Runtime};
use crate::metrics::Metrics;
use flotilla_agent::{Decision, Memory, Pod, Told, View, decide, environment};
use flotilla_engine::io::clock::Clock;
use std::sync::Arc;
use std::time::Duration;

/// The program `env` in a container may take this long.
const ENV_WITHIN: Duration = Duration::from_secs(3);

/// What looks share.
#[derive(Clone)]
pub(crate) struct Tools {
    pub(crate) api: Api,
    pub(crate) clock: Arc<Clock>,
    pub(crate) metrics: Arc<Metrics>,
}

/// What came of a look.
pub(crate) struct Looked {
    /// Environments that were read, by the ID of their container; `None` where it could not be.
    pub(crate) readings: Vec<(String, Option<u64>)>,
    /// What was decided last.
    pub(crate) decision: Decision,
    /// The pod with its new note, if one was written.
    pub(crate) written: Option<Pod>,
    /// What went wrong; it is tried again.
    pub(crate) failed: Option<String>,
}

/// Looks at a pod. `memory` is a copy: what was found is in what comes back.
pub(crate) async fn look(tools: &Tools, runtime: &Runtime, pod: &Pod, mut memory: Memory) -> Result<Looked, CallError> {
    let told = containers(runtime, pod).await?;
    let decide = |memory: &Memory| {
        decide(View {
            pod,
            told: &told,
            memory,
            now: tools.clock.now(),
        })
    };
    let mut decision = decide(&memory);
    let mut readings = Vec::new();
    for id in std::mem::take(&mut decision.read) {
        let container = told.iter().find(|t| t.id == id).and_then(|t| pod.container(&t.name));
        let Some(container) = container else { continue };
        let hash = match read(runtime, &id).await {
            Ok(process) => Some(environment::hash_of(container, &process)),
            Err(why) => {
                tools.metrics.env_failures.inc();
                tracing::warn!(pod = %pod.key, container = container.name, %why, "cannot tell the environment of a container");
                None
            }
        };
        match hash {
            Some(hash) => memory.has_read(&id, hash),
            None => memory.could_not_read(&id, tools.clock.now()),
        }
        readings.push((id, hash));
    }
    if !readings.is_empty() {
        decision = decide(&memory);
    }
    let (mut written, mut failed) = (None, None);
    if let Some(text) = &decision.note {
        match tools.api.note(pod, text).await {
            Ok(pod) => {
                tools.metrics.patched("written");
                written = Some(pod);
            }
            Err(error) => {
                tools.metrics.patched(match &error {
                    ApiError::Gone(_) => "gone",
                    ApiError::Refused { .. } => "refused",
                    ApiError::Unknown { .. } => "unknown",
                });
                failed = Some(error.to_string());
            }
        }
    }
    Ok(Looked {
        readings,
        decision,
        written,
        failed,
    })
}

/// What the runtime tells of a pod's containers.
pub(crate) async fn containers(runtime: &Runtime, pod: &Pod) -> Result<Vec<Told>, CallError> {
    let name = pod.runtime().unwrap_or_default();
    runtime.containers(name, &pod.uid.to_string()).await
}

/// The variables of a container's process (AGT-8.4): from the runtime where it tells, else from the program `env` in the container.
/// Values are never logged.
async fn read(runtime: &Runtime, id: &str) -> Result<Vec<String>, String> {
    match runtime.verbose(id).await {
        Ok(Some(info)) => {
            if let Some(process) = environment::of_verbose(&info) {
                return Ok(process);
            }
        }
        Ok(None) => {}
        Err(error) if error.is_unimplemented() => {}
        Err(error) => return Err(error.to_string()),
    }
    let mut why = String::new();
    for command in [&["env", "-0"][..], &["env"]] {
        match runtime.exec(id, command, ENV_WITHIN).await {
            Ok(Output { code: 0, stdout, .. }) => {
                return Ok(environment::of_printed(&String::from_utf8_lossy(&stdout)));
            }
            Ok(Output { code, .. }) => why = format!("{} ended with {code}", command.join(" ")),
            Err(error) => why = error.to_string(),
        }
    }
    Err(format!("the runtime does not tell it, and {why}"))
}
