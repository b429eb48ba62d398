//! `flotilla why`, as users run it.

use crate::api::{Api, text};
use crate::manager::binary;
use crate::sets::{SOON, pods};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// Runs the command line tool.
pub fn flotilla(kubeconfig: &Path, ns: &str, args: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command
        .args(args)
        .args(["--kubeconfig".as_ref(), kubeconfig.as_os_str()])
        .args(["--namespace", ns]);
    command.output().expect("flotilla runs")
}

/// Asks again with each change of a pod, until set `web` waits for something of which `is_it` holds; returns all that it waits for.
///
/// # Panics
/// When it does not within the time of a scenario, with what it waits for.
pub async fn waits_until(
    api: &Api,
    kubeconfig: &Path,
    ns: &str,
    what: &str,
    is_it: impl Fn(&Value) -> bool,
) -> Vec<Value> {
    waits_of_until(api, kubeconfig, ns, "statefulset/web", what, is_it).await
}

/// The same of any set, as command lines name it.
///
/// # Panics
/// As that.
pub async fn waits_of_until(
    api: &Api,
    kubeconfig: &Path,
    ns: &str,
    set: &str,
    what: &str,
    is_it: impl Fn(&Value) -> bool,
) -> Vec<Value> {
    let mut told = Vec::new();
    let pods = pods(ns);
    let follow = api.follow(&pods, |_, _| {
        let output = flotilla(kubeconfig, ns, &["why", set, "-o", "json"]);
        // While it runs, the set may be done with one thing and not have begun the next.
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        told = answer["waits"].as_array().cloned().unwrap_or_default();
        told.iter().any(&is_it)
    });
    let ended = tokio::time::timeout(SOON, follow).await;
    assert!(ended.is_ok(), "why did not name {what}, but {told:?}");
    told
}

/// Waits until `why` names this cause for this subject, with a sentence and a rule.
///
/// # Panics
/// When it does not within the time of a scenario.
pub async fn wait_named(api: &Api, kubeconfig: &Path, ns: &str, cause: &str, subject: &str) -> Value {
    let is_it = |wait: &Value| wait["cause"] == cause && wait["subject"] == subject;
    let waits = waits_until(api, kubeconfig, ns, &format!("{cause} of {subject}"), is_it).await;
    let found = waits
        .into_iter()
        .find(|wait| is_it(wait))
        .expect("it was there a moment ago");
    for field in ["message", "rule"] {
        assert!(!text(&found, &format!("/{field}")).is_empty(), "{field} of {found}");
    }
    found
}
