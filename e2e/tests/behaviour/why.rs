//! `flotilla why` and `flotilla rollout` against sets that wait for something.

use crate::Lab;
use crate::crd::{STORED, UNREADABLE};
use flotilla_e2e::api::{Objects, is_ready, number, text};
use flotilla_e2e::manager::binary;
use flotilla_e2e::sets::{SOON, image, pods, ready, rolled_out};
use flotilla_e2e::suite::trial;
use flotilla_e2e::why::{flotilla, wait_named};
use flotilla_e2e::{Api, Kind};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

pub(crate) fn trials(lab: &Lab) -> Vec<Trial> {
    let mut trials = Vec::new();
    macro_rules! story {
        ($name:ident) => {
            let own = lab.clone();
            let namespace = format!("why-{}", stringify!($name).replace('_', "-"));
            trials.push(trial(format!("why::{}", stringify!($name)), move || async move {
                $name(Story::enter(&own, namespace).await).await;
            }));
        };
    }
    story!(pod_not_ready);
    story!(pod_not_yet_available);
    story!(budget_used_up);
    story!(partition_and_paused);
    story!(quota_exceeded);
    story!(reserved_ordinal_unreadable);
    story!(rollout_verbs);
    story!(errors_say_what_to_do);
    trials
}

/// A scenario with a namespace of its own, and the command line tool at hand.
pub(crate) struct Story {
    pub(crate) api: Api,
    kubeconfig: Arc<PathBuf>,
    pub(crate) ns: String,
}

impl Story {
    /// Makes the namespace.
    pub(crate) async fn enter(lab: &Lab, ns: String) -> Self {
        Story {
            api: lab.enter(&ns).await,
            kubeconfig: lab.kubeconfig.clone(),
            ns,
        }
    }

    /// Waits until `why` names this cause for this subject.
    pub(crate) async fn eventually(&self, cause: &str, subject: &str) -> Value {
        wait_named(&self.api, &self.kubeconfig, &self.ns, cause, subject).await
    }

    /// Waits until the set carries a condition with this reason, and says of which pod.
    pub(crate) async fn told(&self, (kind, reason): (&str, &str), subject: &str) {
        let says = |sets: &Objects| {
            let conditions = sets["web"]["status"]["conditions"].as_array();
            conditions.into_iter().flatten().any(|c| {
                c["type"] == kind
                    && c["status"] == "True"
                    && c["reason"] == reason
                    && text(c, "/message").contains(subject)
            })
        };
        let sets = Kind::Advanced.sets(&self.ns);
        self.api
            .until(&sets, SOON, &format!("{kind} {reason} {subject}"), says)
            .await;
    }

    /// Waits until the set no longer says so.
    pub(crate) async fn untold(&self, kind: &str) {
        let is_silent = |sets: &Objects| condition(&sets["web"], kind) != "True";
        let sets = Kind::Advanced.sets(&self.ns);
        self.api.until(&sets, SOON, &format!("no {kind}"), is_silent).await;
    }

    async fn create(&self, kind: Kind, change: impl FnOnce(&mut Value)) {
        let mut set = kind.manifest("web", 2);
        change(&mut set);
        self.api.create(&kind.sets(&self.ns), &set).await;
    }

    /// Asks `why` for JSON; the set has to wait for something.
    fn waits(&self) -> Vec<Value> {
        self.waits_of("statefulset/web")
    }

    fn waits_of(&self, target: &str) -> Vec<Value> {
        let output = flotilla(&self.kubeconfig, &self.ns, &["why", target, "-o", "json"]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(
            output.status.code(),
            Some(3),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let answer: Value = serde_json::from_str(&text).expect("JSON");
        answer["waits"].as_array().cloned().unwrap_or_default()
    }

    /// The wait with this cause; it has a sentence, a rule and a subject.
    fn wait(&self, cause: &str) -> Value {
        let waits = self.waits();
        let found = waits.iter().find(|w| w["cause"] == cause);
        let found = found.unwrap_or_else(|| panic!("no wait {cause} in {waits:?}")).clone();
        for field in ["message", "rule", "subject"] {
            assert!(!text(&found, &format!("/{field}")).is_empty(), "{field} of {found}");
        }
        found
    }
}

async fn pod_not_ready(s: Story) {
    s.create(Kind::Native, |set| {
        set["spec"]["template"]["metadata"]["annotations"] = json!({"sim.flotilla.rs/never-ready": "true"});
    })
    .await;
    s.api
        .until(&pods(&s.ns), SOON, "web-0 running", |p| {
            p.values().any(|p| text(p, "/status/phase") == "Running")
        })
        .await;
    let wait = s.wait("PodNotReady");
    assert_eq!(wait["subject"], "web-0");
    assert!(wait["since"].is_string());
    assert!(text(&wait, "/advice").contains("kubectl describe pod web-0"));
    assert_eq!(s.wait("Order")["behind"], "web-0", "the next one waits for it");
}

async fn pod_not_yet_available(s: Story) {
    s.create(Kind::Native, |set| set["spec"]["minReadySeconds"] = json!(600))
        .await;
    s.api
        .until(&pods(&s.ns), SOON, "web-0 ready", |p| p.values().any(is_ready))
        .await;
    let left = s.wait("PodNotAvailable")["remainingMilliseconds"]
        .as_u64()
        .expect("a number");
    assert!((500_000..=600_000).contains(&left), "{left}");
}

async fn budget_used_up(s: Story) {
    s.create(Kind::Advanced, |set| {
        set["spec"]["replicas"] = json!(3);
        set["spec"]["podManagementPolicy"] = json!("Parallel");
        set["spec"]["updateStrategy"] = json!({"rollingUpdate": {"maxUnavailable": 1}});
    })
    .await;
    ready(&s.api, &s.ns, 3).await;
    rolled_out(&s.api, Kind::Advanced, &s.ns, "web").await;
    let mut update = image("app:v2");
    update["spec"]["template"]["metadata"]["annotations"] = json!({"sim.flotilla.rs/never-ready": "true"});
    s.api.patch(&Kind::Advanced.set(&s.ns, "web"), &update).await;
    let is_new = |p: &Value| text(p, "/spec/containers/0/image") == "app:v2";
    s.api
        .until(&pods(&s.ns), SOON, "web-2 is new", |p| {
            p.get("web-2").is_some_and(is_new)
        })
        .await;
    let wait = s.wait("UpdateBudget");
    assert_eq!((&wait["usedBy"], &wait["budget"]), (&json!(["web-2"]), &json!(1)));
}

async fn partition_and_paused(s: Story) {
    s.create(Kind::Advanced, |set| {
        set["spec"]["updateStrategy"] = json!({"rollingUpdate": {"partition": 2}});
    })
    .await;
    ready(&s.api, &s.ns, 2).await;
    rolled_out(&s.api, Kind::Advanced, &s.ns, "web").await;
    let path = Kind::Advanced.set(&s.ns, "web");
    let first = text(&s.api.read(&path).await, "/status/updateRevision").to_owned();
    s.api.patch(&path, &image("app:v2")).await;
    let moved = |sets: &Objects| text(&sets["web"], "/status/updateRevision") != first;
    s.api
        .until(&Kind::Advanced.sets(&s.ns), SOON, "a new update revision", moved)
        .await;
    assert_eq!(s.wait("Partition")["kept"], 2);
    s.api
        .patch(
            &path,
            &json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0, "paused": true}}}}),
        )
        .await;
    assert!(text(&s.wait("Paused"), "/advice").contains("flotilla rollout resume"));
}

async fn quota_exceeded(s: Story) {
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"}, "spec": {"hard": {"pods": "1"}}});
    let quotas = format!("/api/v1/namespaces/{}/resourcequotas", s.ns);
    s.api.create(&quotas, &quota).await;
    s.api
        .until(&quotas, SOON, "the quota counts", |q| {
            q["small"].pointer("/status/hard/pods").is_some()
        })
        .await;
    s.create(Kind::Advanced, |set| {
        set["spec"]["podManagementPolicy"] = json!("Parallel");
    })
    .await;
    ready(&s.api, &s.ns, 1).await;
    let failed = |sets: &Objects| condition(&sets["web"], "FailedCreatePod") == "True";
    s.api
        .until(&Kind::Advanced.sets(&s.ns), SOON, "condition FailedCreatePod", failed)
        .await;
    let wait = s.wait("Refused");
    assert_eq!(wait["reason"], "QuotaExceeded", "{wait}");
    assert!(text(&wait, "/advice").contains("ResourceQuota"));
    s.api.delete(&format!("{quotas}/small"), false).await;
    ready(&s.api, &s.ns, 2).await;
    let recovered = |sets: &Objects| condition(&sets["web"], "FailedCreatePod") == "False";
    s.api
        .until(&Kind::Advanced.sets(&s.ns), SOON, "the condition recovers", recovered)
        .await;
}

async fn reserved_ordinal_unreadable(s: Story) {
    // Such a set cannot be stored any more: it was there before the rule.
    let stored = Story {
        ns: STORED.to_owned(),
        ..s
    };
    let path = Kind::Advanced.set(STORED, UNREADABLE);
    let two = |p: &Objects| {
        p.values()
            .filter(|p| text(p, "/metadata/labels/app") == UNREADABLE && is_ready(p))
            .count()
            == 2
    };
    stored.api.until(&pods(STORED), SOON, "two pods", two).await;
    stored.api.patch(&path, &json!({"spec": {"replicas": 1}})).await;
    let seen = |sets: &Objects| {
        number(&sets[UNREADABLE], "/status/observedGeneration") == number(&sets[UNREADABLE], "/metadata/generation")
    };
    stored
        .api
        .until(&Kind::Advanced.sets(STORED), SOON, "the controller has looked", seen)
        .await;
    let waits = stored.waits_of(&format!("asts/{UNREADABLE}"));
    let wait = waits
        .iter()
        .find(|w| w["cause"] == "FieldUnreadable")
        .unwrap_or_else(|| panic!("no such wait in {waits:?}"));
    assert!(text(wait, "/path").contains("reserveOrdinals[0]"), "{wait}");
}

async fn rollout_verbs(s: Story) {
    for (kind, target) in [(Kind::Native, "statefulset.apps/web"), (Kind::Advanced, "asts/web")] {
        s.create(kind, |_| {}).await;
        rolled_out(&s.api, kind, &s.ns, "web").await;
        let run = |args: &[&str]| flotilla(&s.kubeconfig, &s.ns, args);
        let ok = |args: &[&str]| {
            let output = run(args);
            let told = format!(
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
            assert!(output.status.success(), "{args:?}: {told}");
            told
        };
        assert!(ok(&["rollout", "pause", target]).contains("paused"));
        s.api.patch(&kind.set(&s.ns, "web"), &image("app:v2")).await;
        let status = run(&["rollout", "status", target, "--watch=false"]);
        assert_eq!(
            status.status.code(),
            Some(3),
            "{}",
            String::from_utf8_lossy(&status.stdout)
        );
        assert!(ok(&["rollout", "resume", target]).contains("resumed"));
        assert!(ok(&["rollout", "status", target, "--timeout-seconds", "60"]).contains("complete"));
        assert!(ok(&["rollout", "undo", target]).contains("rolled back"));
        let done = rolled_out(&s.api, kind, &s.ns, "web").await;
        assert_eq!(text(&done, "/spec/template/spec/containers/0/image"), "app:v1");
        assert!(ok(&["rollout", "restart", target]).contains("restarted"));
        ok(&["rollout", "status", target, "--timeout-seconds", "60"]);
        let history = ok(&["rollout", "history", target]);
        assert_eq!(history.lines().count(), 4, "a heading and three revisions: {history}");
        let why = run(&["why", target]);
        assert_eq!(why.status.code(), Some(0), "{}", String::from_utf8_lossy(&why.stdout));
        left_to_delete(&s, kind, target).await;
        s.api.delete(&kind.set(&s.ns, "web"), false).await;
        s.api.until(&pods(&s.ns), SOON, "no pods", Objects::is_empty).await;
    }
}

/// Under OnDelete a rollout waits for somebody who deletes the pods, and `rollout status` says so until all are new.
async fn left_to_delete(s: &Story, kind: Kind, target: &str) {
    let mut update = image("app:v3");
    // A patch leaves what it does not name, and OnDelete takes no partition beside it.
    update["spec"]["updateStrategy"] = json!({"type": "OnDelete", "rollingUpdate": null});
    s.api.patch(&kind.set(&s.ns, "web"), &update).await;
    let is_seen = |sets: &Objects| {
        let set = &sets["web"];
        number(set, "/status/observedGeneration") == number(set, "/metadata/generation")
            && number(set, "/status/updatedReplicas") == 0
    };
    s.api
        .until(&kind.sets(&s.ns), SOON, "no pod is of the new revision", is_seen)
        .await;
    let status = |args: &[&str], code: i32, words: &str| {
        let output = flotilla(
            &s.kubeconfig,
            &s.ns,
            &[&["rollout", "status", target][..], args].concat(),
        );
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let failed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{target}: {told}{failed}");
        assert!(told.contains(words), "{target}: {words:?} is not in: {told}");
    };
    let left = "0 of 2 updated, 2 of 2 available, OnDelete: the others are updated when you delete them";
    status(&["--watch=false"], 3, left);
    for pod in ["web-0", "web-1"] {
        s.api.delete(&format!("{}/{pod}", pods(&s.ns)), false).await;
    }
    status(&["--timeout-seconds", "60"], 0, "complete: 2 of 2 updated");
}

async fn errors_say_what_to_do(s: Story) {
    let output = flotilla(&s.kubeconfig, &s.ns, &["why", "statefulset/missing"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        told.contains("missing was not found in namespace") && told.contains("--namespace"),
        "{told}"
    );
    let output = Command::new(binary())
        .args(["why", "statefulset/web", "--kubeconfig", "/nonexistent"])
        .output()
        .expect("runs");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(1) && told.contains("--kubeconfig"),
        "{told}"
    );
    s.create(Kind::Native, |_| {}).await;
    s.create(Kind::Advanced, |set| set["spec"]["replicas"] = json!(0)).await;
    let output = flotilla(&s.kubeconfig, &s.ns, &["why", "statefulset/web"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(1) && told.contains("statefulset.apps.kruise.io"),
        "{told}"
    );
}

/// The status of a condition, empty if the set does not carry it.
fn condition<'s>(set: &'s Value, kind: &str) -> &'s str {
    let conditions = set.pointer("/status/conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .find(|c| c["type"] == kind)
        .map_or("", |c| text(c, "/status"))
}
