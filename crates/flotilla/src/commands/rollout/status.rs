//! `rollout status`: progress as it happens, by a watch on the one set.

use super::find;
use super::steer::PARTITION_OF_ALL;
use crate::args::{Output, RolloutStatusArgs};
use crate::cluster::{Cluster, describe};
use crate::error::{Error, Exit};
use crate::target::{Found, kind_name};
use flotilla_api::names;
use flotilla_model::SetKind;
use futures::StreamExt;
use http::Request;
use kube::core::WatchEvent;
use serde_json::{Value, json};
use std::io::Write;
use std::pin::pin;
use std::time::Duration;

/// How long one watch request lasts, in seconds. The next begins where it ended.
const WATCH_SECONDS: u32 = 290;

/// Follows the rollout of one set.
pub async fn run(cluster: &Cluster, args: RolloutStatusArgs) -> Result<Exit, Error> {
    let found = find(cluster, &args.of).await?;
    if !args.watch {
        let progress = Progress::of(&found);
        progress.print(args.of.output)?;
        return Ok(if progress.is_complete() {
            Exit::Done
        } else {
            Exit::Waiting
        });
    }
    let follow = follow(cluster, found, args.of.output);
    if args.timeout_seconds == 0 {
        return follow.await;
    }
    tokio::time::timeout(Duration::from_secs(args.timeout_seconds), follow)
        .await
        .unwrap_or(Ok(Exit::Waiting))
}

/// Prints each step until the rollout is complete.
async fn follow(cluster: &Cluster, mut found: Found, output: Output) -> Result<Exit, Error> {
    let mut last = None;
    loop {
        let progress = Progress::of(&found);
        if last.as_ref() != Some(&progress) {
            progress.print(output)?;
        }
        if progress.is_complete() {
            return Ok(Exit::Done);
        }
        last = Some(progress);
        found = next_version(cluster, found).await?;
    }
}

/// Waits for the next version of the set.
async fn next_version(cluster: &Cluster, mut found: Found) -> Result<Found, Error> {
    let what = format!("watch {}", found.display());
    loop {
        let resource = found.kind.resource();
        let version = found.object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let path = format!(
            "{}?watch=true&fieldSelector=metadata.name%3D{}&resourceVersion={version}&timeoutSeconds={WATCH_SECONDS}",
            resource.collection_path(Some(&found.key.namespace)),
            found.key.name
        );
        let request = Request::get(path)
            .body(Vec::new())
            .map_err(|e| describe(what.clone(), &kube::Error::HttpError(e)))?;
        let events = cluster
            .client
            .request_events::<Value>(request)
            .await
            .map_err(|e| describe(what.clone(), &e))?;
        let mut events = pin!(events);
        while let Some(event) = events.next().await {
            match event.map_err(|e| describe(what.clone(), &e))? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    found.object = object;
                    return Ok(found);
                }
                WatchEvent::Deleted(_) => {
                    let message = format!("{} was deleted while its rollout was watched", found.display());
                    return Err(Error::NotPossible(message));
                }
                WatchEvent::Bookmark(_) => {}
                // The version is too old to resume from: look afresh.
                WatchEvent::Error(_) => break,
            }
        }
        let fresh = cluster.get(resource, &found.key).await?;
        let fresh = fresh.ok_or_else(|| {
            Error::NotPossible(format!("{} was deleted while its rollout was watched", found.display()))
        })?;
        if fresh["metadata"]["resourceVersion"] != found.object["metadata"]["resourceVersion"] {
            found.object = fresh;
            return Ok(found);
        }
    }
}

/// How far a rollout is.
#[derive(Debug, PartialEq)]
struct Progress {
    name: String,
    observed: bool,
    wanted: i64,
    updated: i64,
    available: i64,
    total: i64,
    partition: i64,
    on_delete: bool,
    paused: bool,
    blocked: Option<String>,
}

impl Progress {
    fn of(found: &Found) -> Self {
        let number = |pointer: &str| found.object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
        let conditions = found
            .object
            .pointer("/status/conditions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let mut blocked = conditions.filter(|c| c["type"] == "Progressing" && c["status"] == "False");
        let wanted = found
            .object
            .pointer("/spec/replicas")
            .and_then(Value::as_i64)
            .unwrap_or(1);
        let asked = number("/spec/updateStrategy/rollingUpdate/partition");
        let remembered = &found.object["metadata"]["annotations"][names::PARTITION_BEFORE_PAUSE];
        // A native set has no switch for it: `rollout pause` raises the partition above all ordinals, and so may people. Where somebody has
        // applied a lower one since, that is what counts, and what was remembered is a leftover.
        let is_paused_native = found.kind == SetKind::Native && asked >= i64::from(PARTITION_OF_ALL);
        // A CloneSet's may be a percentage; how many pods that are says its status.
        let partition = match found.kind {
            SetKind::Clone => wanted - number("/status/expectedUpdatedReplicas"),
            SetKind::Native if is_paused_native => remembered.as_str().and_then(|p| p.parse().ok()).unwrap_or(0),
            SetKind::Native | SetKind::Advanced => asked,
        };
        Progress {
            name: kind_name(found.kind, &found.key.name),
            observed: number("/status/observedGeneration") >= number("/metadata/generation"),
            wanted,
            updated: number("/status/updatedReplicas"),
            available: number("/status/availableReplicas"),
            total: number("/status/replicas"),
            partition,
            on_delete: found.object.pointer("/spec/updateStrategy/type") == Some(&json!("OnDelete")),
            paused: is_paused_native
                || found.object.pointer("/spec/updateStrategy/rollingUpdate/paused") == Some(&json!(true)),
            blocked: blocked
                .next_back()
                .and_then(|c| c["message"].as_str())
                .map(str::to_owned),
        }
    }

    /// How many pods this rollout brings to the update revision.
    fn target(&self) -> i64 {
        if self.on_delete {
            self.wanted
        } else {
            (self.wanted - self.partition).max(0)
        }
    }

    fn is_complete(&self) -> bool {
        self.observed && self.updated >= self.target() && self.available >= self.wanted && self.total == self.wanted
    }

    fn text(&self) -> String {
        let of = self.target();
        if !self.observed {
            return format!("{}: waiting for the manager to see the change", self.name);
        }
        let counts = format!(
            "{} of {of} updated, {} of {} available",
            self.updated.min(of),
            self.available,
            self.wanted
        );
        match (&self.blocked, self.is_complete()) {
            (_, true) if self.partition > 0 => {
                format!("{}: complete as far as the partition allows: {counts}", self.name)
            }
            (_, true) => format!("{}: complete: {counts}", self.name),
            (_, false) if self.paused => format!("{}: {counts}, paused", self.name),
            (_, false) if self.on_delete && self.updated < of => {
                format!(
                    "{}: {counts}, OnDelete: the others are updated when you delete them",
                    self.name
                )
            }
            (Some(why), false) => format!("{}: {counts}, blocked: {why}", self.name),
            (None, false) => format!("{}: {counts}", self.name),
        }
    }

    fn print(&self, output: Output) -> Result<(), Error> {
        let mut out = std::io::stdout().lock();
        match output {
            Output::Text => writeln!(out, "{}", self.text())?,
            Output::Json => writeln!(
                out,
                "{}",
                json!({
                    "set": self.name, "complete": self.is_complete(), "observed": self.observed, "replicas": self.wanted,
                    "toUpdate": self.target(), "updated": self.updated, "available": self.available, "paused": self.paused,
                    "blocked": self.blocked,
                })
            )?,
        }
        Ok(out.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flotilla_model::{ObjectKey, SetKind};

    fn progress(spec: Value, status: Value) -> Progress {
        let object = json!({"metadata": {"generation": 2}, "spec": spec, "status": status});
        Progress::of(&Found {
            kind: SetKind::Native,
            key: ObjectKey::new("ns", "web"),
            object,
        })
    }

    #[test]
    fn complete_means_updated_as_far_as_asked_and_available() {
        let status = |updated: i64, available: i64| json!({"observedGeneration": 2, "replicas": 3, "updatedReplicas": updated, "availableReplicas": available});
        let plain = json!({"replicas": 3});
        assert!(progress(plain.clone(), status(3, 3)).is_complete());
        assert!(!progress(plain.clone(), status(3, 2)).is_complete());
        assert!(!progress(plain.clone(), status(2, 3)).is_complete());
        let partitioned = json!({"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 2}}});
        assert!(progress(partitioned, status(1, 3)).is_complete());
        let mut unseen = status(3, 3);
        unseen["observedGeneration"] = json!(1);
        assert!(!progress(plain, unseen).is_complete());
    }

    #[test]
    fn a_paused_set_is_complete_only_when_all_its_pods_are_new() {
        let status = |updated: i64| json!({"observedGeneration": 2, "replicas": 3, "updatedReplicas": updated, "availableReplicas": 3});
        // A native set is paused by a partition above all ordinals.
        let mut object = json!({
            "metadata": {"generation": 2, "annotations": {"flotilla.rs/partition-before-pause": "0"}},
            "spec": {"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": i32::MAX}}},
            "status": status(0),
        });
        let of = |object: &Value| {
            Progress::of(&Found {
                kind: SetKind::Native,
                key: ObjectKey::new("ns", "web"),
                object: object.clone(),
            })
        };
        assert!(!of(&object).is_complete());
        assert_eq!(
            of(&object).text(),
            "statefulset.apps/web: 0 of 3 updated, 3 of 3 available, paused"
        );
        object["metadata"]["annotations"]["flotilla.rs/partition-before-pause"] = json!("2");
        object["status"] = status(1);
        assert!(
            of(&object).is_complete(),
            "as far as the partition allows that it goes back to"
        );
        object["status"] = status(0);
        assert!(!of(&object).is_complete());
        let paused = json!({"replicas": 3, "updateStrategy": {"rollingUpdate": {"paused": true}}});
        assert!(!progress(paused, status(0)).is_complete());
        // Whoever sets such a partition by hand pauses it as well.
        let by_hand = json!({"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": i32::MAX}}});
        assert!(!progress(by_hand, status(0)).is_complete());
    }

    #[test]
    fn a_partition_that_was_applied_after_the_pause_is_what_counts() {
        let of = |partition: Value, updated: i64| {
            let object = json!({
                "metadata": {"generation": 2, "annotations": {"flotilla.rs/partition-before-pause": "3"}},
                "spec": {"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": partition}}},
                "status": {"observedGeneration": 2, "replicas": 3, "updatedReplicas": updated, "availableReplicas": 3},
            });
            Progress::of(&Found {
                kind: SetKind::Native,
                key: ObjectKey::new("ns", "web"),
                object,
            })
        };
        for (partition, target) in [(json!(0), 3), (Value::Null, 3), (json!(1), 2)] {
            let begun = of(partition.clone(), 1);
            assert!(!begun.is_complete() && !begun.paused, "{}", begun.text());
            assert_eq!(begun.target(), target);
            assert!(of(partition, target).is_complete());
        }
    }

    #[test]
    fn with_on_delete_it_is_complete_when_all_pods_are_new() {
        let status = |updated: i64| json!({"observedGeneration": 2, "replicas": 3, "updatedReplicas": updated, "availableReplicas": 3});
        let spec = json!({"replicas": 3, "updateStrategy": {"type": "OnDelete"}});
        assert!(!progress(spec.clone(), status(0)).is_complete());
        assert_eq!(
            progress(spec.clone(), status(1)).text(),
            "statefulset.apps/web: 1 of 3 updated, 3 of 3 available, OnDelete: the others are updated when you delete them"
        );
        assert!(progress(spec, status(3)).is_complete());
    }
}
