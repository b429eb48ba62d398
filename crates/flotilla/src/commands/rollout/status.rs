//! `rollout status`: progress as it happens, by a watch on the one set.

use super::find;
use crate::args::{Output, RolloutStatusArgs};
use crate::cluster::Cluster;
use crate::error::{Error, Exit};
use crate::follow::{self, Followed};
use crate::patience::Silence;
use crate::target::kind_name;
use flotilla_api::names;
use flotilla_controllers::{failed_creation, failed_update};
use flotilla_model::lines::visible_json;
use flotilla_model::{Lines, SetKind, Share};
use flotilla_why::{LiveSet, PARTITION_OF_ALL};
use serde_json::{Value, json};
use std::io::Write;
use std::time::Duration;
use tokio::time::Instant;

/// Follows the rollout of one set.
pub async fn run(cluster: &Cluster, args: RolloutStatusArgs) -> Result<Exit, Error> {
    let bound = Some(Duration::from_secs(args.timeout_seconds)).filter(|bound| args.watch && !bound.is_zero());
    let within = bound.unwrap_or(Duration::MAX);
    let began = Instant::now();
    let found = match tokio::time::timeout(within, find(cluster, &args.of)).await {
        Ok(found) => found?,
        // Nothing is known of the rollout: that it is not complete would be saying too much.
        Err(_elapsed) => {
            return Err(Error::Unreachable {
                what: format!("read {}", args.of.target),
                cause: Silence(within).to_string(),
            });
        }
    };
    let progress = Progress::of(&found);
    progress.print(args.of.output)?;
    if progress.is_complete() {
        return Ok(Exit::Done);
    }
    if !args.watch {
        return Ok(Exit::Waiting);
    }
    follow(
        cluster,
        found,
        progress,
        within.saturating_sub(began.elapsed()),
        args.of.output,
    )
    .await
}

/// Prints each further step until the rollout is complete.
async fn follow(
    cluster: &Cluster,
    mut found: LiveSet,
    mut last: Progress,
    within: Duration,
    output: Output,
) -> Result<Exit, Error> {
    let name = found.key.name.to_string();
    let path = format!(
        "{}?fieldSelector=metadata.name%3D{name}",
        found.kind.resource().collection_path(Some(&found.key.namespace))
    );
    let mut printed = Ok(());
    let mut is_gone = false;
    let take_a_look = |objects: &follow::Objects| {
        let Some(object) = objects.get(&name) else {
            is_gone = true;
            return true;
        };
        found.object.clone_from(object);
        let progress = Progress::of(&found);
        if progress != last {
            printed = progress.print(output);
            last = progress;
        }
        printed.is_err() || last.is_complete()
    };
    let followed = follow::further(cluster, &path, within, take_a_look).await?;
    printed?;
    match followed {
        Some(Followed::Done) if is_gone => Err(Error::NotPossible(format!(
            "{} was deleted while its rollout was watched",
            found.display()
        ))),
        Some(Followed::Done) => Ok(Exit::Done),
        Some(Followed::TimeUp(_)) | None => Ok(Exit::Waiting),
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
    /// What is left to be done although the counts say nothing of it.
    left: Option<String>,
}

impl Progress {
    fn of(found: &LiveSet) -> Self {
        let number = |pointer: &str| found.object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
        let mut blocked = conditions(found).filter(|c| c["type"] == "Progressing" && c["status"] == "False");
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
            SetKind::Clone => kept(found, wanted),
            SetKind::Native if is_paused_native => remembered.as_str().and_then(|p| p.parse().ok()).unwrap_or(0),
            SetKind::Native | SetKind::Advanced => asked,
        };
        let observed = found
            .object
            .pointer("/status/observedGeneration")
            .and_then(Value::as_i64);
        let mut progress = Progress {
            name: kind_name(found.kind, &found.key.name),
            observed: observed.is_some_and(|observed| observed >= number("/metadata/generation")),
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
                .map(|c| c["message"].as_str().unwrap_or_default().to_owned()),
            left: None,
        };
        progress.left = progress.left(found);
        progress
    }

    /// What the status says is still to be done beside its counts: what failed or is stuck, claims that have yet to grow, a rollout that the
    /// manager has not ended, such as one in which a node puts off a resize.
    fn left(&self, found: &LiveSet) -> Option<String> {
        let text = |pointer: &str| {
            found
                .object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let told = [
            failed_update(found.kind),
            failed_creation(found.kind),
            "InPlaceUpdateStuck",
        ];
        let is_told = |c: &&Value| c["status"] == "True" && told.iter().any(|kind| c["type"] == *kind);
        if let Some(condition) = conditions(found).find(is_told) {
            let field = |field: &str| condition[field].as_str().unwrap_or_default();
            return Some(format!("{} ({}): {}", field("type"), field("reason"), field("message")));
        }
        // They are counted where the set lets claims grow; the partition keeps those of its pods.
        let claims = found.object.pointer("/status/volumeClaims").and_then(Value::as_array);
        let ready = |row: &Value| row["compatibleReadyReplicas"].as_i64().unwrap_or(0);
        let of = self.target();
        if let Some(row) = claims.into_iter().flatten().find(|row| ready(row) < of) {
            let template = row["volumeClaimName"].as_str().unwrap_or_default();
            let count = ready(row);
            return Some(format!(
                "claims of template {template}: {count} of {of} are as large as it asks"
            ));
        }
        // Of a CloneSet it is the current one as soon as all pods have it; and the built-in controller does not say so under OnDelete.
        let (current, update) = (text("/status/currentRevision"), text("/status/updateRevision"));
        let says_so = found.kind != SetKind::Clone && !self.on_delete && self.partition <= 0 && self.wanted > 0;
        let differ = !current.is_empty() && !update.is_empty() && current != update;
        (says_so && differ).then(|| format!("{update} is not the current revision yet"))
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
        let counts = self.updated >= self.target() && self.available >= self.wanted && self.total == self.wanted;
        self.observed && counts && self.blocked.is_none() && self.left.is_none()
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
            (None, false) => match &self.left {
                Some(left) => format!("{}: {counts}, waiting: {left}", self.name),
                None => format!("{}: {counts}", self.name),
            },
        }
    }

    fn print(&self, output: Output) -> Result<(), Error> {
        let mut out = std::io::stdout().lock();
        match output {
            Output::Text => {
                let mut line = Lines::default();
                line.put(self.text());
                write!(out, "{line}")?;
            }
            Output::Json => {
                let json = json!({
                    "set": self.name, "complete": self.is_complete(), "observed": self.observed, "replicas": self.wanted,
                    "toUpdate": self.target(), "updated": self.updated, "available": self.available, "paused": self.paused,
                    "blocked": self.blocked, "waitingFor": self.left,
                });
                writeln!(out, "{}", visible_json(&json.to_string()))?;
            }
        }
        Ok(out.flush()?)
    }
}

fn conditions(found: &LiveSet) -> impl DoubleEndedIterator<Item = &Value> {
    let all = found.object.pointer("/status/conditions").and_then(Value::as_array);
    all.into_iter().flatten()
}

/// How many pods the partition of a CloneSet keeps, which may be a percentage: as the manager says, and as it would say where a zero was left
/// out.
fn kept(found: &LiveSet, wanted: i64) -> i64 {
    let told = found
        .object
        .pointer("/status/expectedUpdatedReplicas")
        .and_then(Value::as_i64);
    let asked = || {
        let share = Share::from_json(found.object.pointer("/spec/updateStrategy/rollingUpdate/partition")?)?;
        Some(i64::from(share.kept_of(i32::try_from(wanted).ok()?)))
    };
    told.map_or_else(|| asked().unwrap_or(0), |expected| wanted - expected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::RolloutTarget;
    use flotilla_model::{ObjectKey, SetKind};
    use http::Request;
    use kube::client::Body;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn progress(spec: Value, status: Value) -> Progress {
        let object = json!({"metadata": {"generation": 2}, "spec": spec, "status": status});
        Progress::of(&LiveSet {
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
            Progress::of(&LiveSet {
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
            Progress::of(&LiveSet {
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

    fn advanced(spec: Value, status: Value) -> Progress {
        let object = json!({"metadata": {"generation": 2}, "spec": spec, "status": status});
        Progress::of(&LiveSet {
            kind: SetKind::Advanced,
            key: ObjectKey::new("ns", "web"),
            object,
        })
    }

    fn clones(spec: Value, mut status: Value) -> Progress {
        for field in ["replicas", "availableReplicas"] {
            status[field] = json!(10);
        }
        let mut object = json!({"metadata": {"generation": 2}, "spec": spec, "status": status});
        object["spec"]["replicas"] = json!(10);
        Progress::of(&LiveSet {
            kind: SetKind::Clone,
            key: ObjectKey::new("ns", "web"),
            object,
        })
    }

    #[test]
    fn a_cloneset_of_which_nobody_has_said_anything_is_not_complete() {
        // OpenKruise's own manager leaves a zero out.
        let of = |partition: Value, updated: i64| {
            let spec = json!({"updateStrategy": {"rollingUpdate": {"partition": partition}}});
            let progress = clones(spec, json!({"observedGeneration": 2, "updatedReplicas": updated}));
            (progress.target(), progress.is_complete())
        };
        assert_eq!(of(Value::Null, 0), (10, false));
        assert_eq!(of(Value::Null, 10), (10, true));
        assert_eq!(of(json!(10), 0), (0, true));
        assert_eq!(of(json!("100%"), 0), (0, true));
        // Anything less updates one at least.
        assert_eq!(of(json!("99%"), 0), (1, false));
        assert_eq!(of(json!("30%"), 6), (7, false));
        assert_eq!(of(json!("30%"), 7), (7, true));
        let unseen = clones(json!({}), json!({"expectedUpdatedReplicas": 10, "updatedReplicas": 10}));
        assert!(!unseen.is_complete(), "no generation was ever observed");
        assert!(
            unseen.text().contains("waiting for the manager to see"),
            "{}",
            unseen.text()
        );
        let mut object = json!({"metadata": {}, "spec": {"replicas": 0}, "status": {}});
        let mut of = |status: Value| {
            object["status"] = status;
            Progress::of(&LiveSet {
                kind: SetKind::Clone,
                key: ObjectKey::new("ns", "web"),
                object: object.clone(),
            })
        };
        assert!(!of(json!({})).is_complete(), "nor is there one to observe");
    }

    #[test]
    fn claims_that_have_yet_to_grow_keep_a_rollout_from_being_complete() {
        let of = |partition: i64, compatible: i64, ready: i64| {
            let rolling = json!({"partition": partition});
            let spec = json!({"replicas": 3, "updateStrategy": {"rollingUpdate": rolling}});
            advanced(
                spec,
                json!({
                    "observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "availableReplicas": 3,
                    "volumeClaims": [
                        {"volumeClaimName": "logs", "compatibleReplicas": 3, "compatibleReadyReplicas": 3},
                        {"volumeClaimName": "data", "compatibleReplicas": compatible, "compatibleReadyReplicas": ready},
                    ],
                }),
            )
        };
        assert!(of(0, 3, 3).is_complete());
        let growing = of(0, 3, 2);
        assert!(!growing.is_complete());
        assert_eq!(
            growing.text(),
            "statefulset.apps.kruise.io/web: 3 of 3 updated, 3 of 3 available, waiting: claims of template data: 2 of 3 are as large as it asks"
        );
        assert!(!of(0, 1, 1).is_complete());
        // The partition keeps claims as they are, too.
        assert!(of(2, 1, 1).is_complete());
        assert!(!of(1, 2, 1).is_complete());
    }

    #[test]
    fn what_the_manager_says_is_in_the_way_keeps_a_rollout_from_being_complete() {
        let full = |condition: Value| {
            json!({
                "observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "availableReplicas": 3, "conditions": [condition],
            })
        };
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "ResizeDeferred", "message": "web-1: resize put off: no room"});
        let plain = json!({"replicas": 3});
        for kind in ["InPlaceUpdateStuck", "FailedUpdatePod", "FailedCreatePod"] {
            let stuck = advanced(plain.clone(), full(condition(kind, "True")));
            assert!(!stuck.is_complete(), "{kind}");
            let said = format!("waiting: {kind} (ResizeDeferred): web-1: resize put off: no room");
            assert!(stuck.text().ends_with(&said), "{}", stuck.text());
            assert!(
                advanced(plain.clone(), full(condition(kind, "False"))).is_complete(),
                "{kind}"
            );
        }
        let blocked = advanced(plain.clone(), full(condition("Progressing", "False")));
        assert!(!blocked.is_complete());
        assert!(
            blocked.text().ends_with("blocked: web-1: resize put off: no room"),
            "{}",
            blocked.text()
        );
        for kind in ["FailedUpdate", "FailedScale", "InPlaceUpdateStuck", "Progressing"] {
            let status = if kind == "Progressing" { "False" } else { "True" };
            let full = json!({"observedGeneration": 2, "expectedUpdatedReplicas": 10, "updatedReplicas": 10,
                "conditions": [condition(kind, status)]});
            assert!(!clones(json!({}), full).is_complete(), "{kind}");
        }
        // Of a field that cannot be read the manager does without it.
        assert!(advanced(plain, full(condition("InvalidSpec", "True"))).is_complete());
    }

    /// A resize that the node has put off changes no count: the revision becomes the current one only when it is done (STS-3.10).
    #[test]
    fn a_rollout_that_the_manager_has_not_ended_is_not_complete() {
        let status = |current: &str| {
            json!({
                "observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "availableReplicas": 3,
                "currentRevision": current, "updateRevision": "web-b",
            })
        };
        let begun = advanced(json!({"replicas": 3}), status("web-a"));
        assert!(!begun.is_complete());
        assert!(
            begun.text().ends_with("waiting: web-b is not the current revision yet"),
            "{}",
            begun.text()
        );
        assert!(advanced(json!({"replicas": 3}), status("web-b")).is_complete());
        // With a partition it never is, and under OnDelete the built-in controller leaves it.
        let held = json!({"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 1}}});
        assert!(advanced(held, status("web-a")).is_complete());
        let by_hand = json!({"replicas": 3, "updateStrategy": {"type": "OnDelete"}});
        assert!(progress(by_hand, status("web-a")).is_complete());
    }

    /// A cluster that lists this set, and whose every watch answers that the version is too old. It breaks down after `most` requests.
    fn forgetful(set: &Value, most: usize) -> (Cluster, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let (set, counted) = (set.clone(), asked.clone());
        let answer = move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default();
            let (status, body) = if counted.fetch_add(1, Ordering::SeqCst) >= most {
                (500, json!({"message": "asked too often"}))
            } else if query.contains("watch=true") {
                (
                    200,
                    json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}),
                )
            } else if request.uri().path().ends_with("/web") {
                (200, set.clone())
            } else {
                (200, json!({"metadata": {"resourceVersion": "9"}, "items": [set]}))
            };
            let body = Body::from(format!("{body}\n").into_bytes());
            let answer = http::Response::builder().status(status).body(body);
            std::future::ready(answer)
        };
        let client = kube::Client::new(tower::service_fn(answer), "ns");
        let namespace = "ns".to_owned();
        (Cluster { client, namespace }, asked)
    }

    #[tokio::test]
    async fn a_server_that_forgets_its_versions_at_once_is_not_asked_without_pause() {
        let set = json!({
            "metadata": {"name": "web", "namespace": "ns", "generation": 2, "resourceVersion": "5"},
            "spec": {"replicas": 3}, "status": {"observedGeneration": 1},
        });
        let (cluster, asked) = forgetful(&set, 100);
        let of = RolloutTarget {
            target: "sts.apps/web".parse().unwrap(),
            output: Output::Text,
        };
        let args = RolloutStatusArgs {
            of,
            watch: true,
            timeout_seconds: 2,
        };
        assert!(matches!(run(&cluster, args).await, Ok(Exit::Waiting)));
        let asked = asked.load(Ordering::SeqCst);
        assert!(asked <= 10, "{asked} requests in 2 s");
    }
}
