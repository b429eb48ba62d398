//! What is to be told of a set as a whole, and a pass of the manager does not wait for.

use super::facts::time;
use super::trial::condition;
use flotilla_api::names;
use flotilla_model::{ObjectKey, SetKind, SetRecord, Wait, WaitCause};
use serde_json::Value;

/// The partition by which a native set, which knows no pause, is paused: above every ordinal.
pub const PARTITION_OF_ALL: i32 = i32::MAX;

/// A set as the API server has it.
#[derive(Clone, Debug)]
pub struct LiveSet {
    /// Which kind it is.
    pub kind: SetKind,
    /// Where it is.
    pub key: ObjectKey,
    /// The object.
    pub object: Value,
}

impl LiveSet {
    /// The set in the words of kubectl.
    pub fn display(&self) -> String {
        self.kind.describe(&self.key.name)
    }

    /// Its claim templates.
    pub fn claim_templates(&self) -> &[Value] {
        let list = self.object.pointer("/spec/volumeClaimTemplates");
        list.and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// The partition, as a number; 0 where there is none, or it is a percentage.
    pub fn partition(&self) -> i64 {
        let partition = self.object.pointer("/spec/updateStrategy/rollingUpdate/partition");
        partition.and_then(Value::as_i64).unwrap_or(0)
    }

    /// The partition that a native set had when it was paused. Where somebody has set another since, it is not paused any more.
    pub fn paused_at(&self) -> Option<i64> {
        if self.partition() < i64::from(PARTITION_OF_ALL) {
            return None;
        }
        let annotations = self.object.pointer("/metadata/annotations")?;
        annotations.get(names::PARTITION_BEFORE_PAUSE)?.as_str()?.parse().ok()
    }
}

/// That the set is being deleted, and fields that cannot be read: those stop nothing that the manager does, but do not do what was asked.
pub(super) fn waits(live: &LiveSet, set: Option<&SetRecord>, known: &[Wait]) -> Vec<Wait> {
    let wait = |cause: WaitCause| Wait {
        subject: live.key.name.to_string(),
        cause,
        since: None,
    };
    let metadata = &live.object["metadata"];
    let deleted = time(&metadata["deletionTimestamp"]).map(|at| Wait {
        since: Some(at),
        ..wait(WaitCause::SetTerminating {
            finalizers: finalizers(metadata),
        })
    });
    let problems = set.into_iter().flat_map(|set| &set.spec.problems).map(|problem| {
        wait(WaitCause::FieldUnreadable {
            path: problem.path.clone(),
            found: problem.found.clone(),
            rule: problem.rule.to_owned(),
        })
    });
    let is_known = |wait: &Wait| known.iter().any(|other| other.cause == wait.cause);
    deleted
        .into_iter()
        .chain(problems)
        .filter(|wait| !is_known(wait))
        .collect()
}

/// That the API server refuses resizes for good is said by the set alone: its manager asks for such a one once, and no pod tells of it.
pub(super) fn add_refused_resizes(live: &LiveSet, waits: &mut [Wait]) {
    let Some(refusal) = condition(&live.object, flotilla_controllers::failed_update(live.kind)) else {
        return;
    };
    let said = refusal["message"].as_str().unwrap_or_default();
    for wait in waits {
        let is_named = || said.contains(&format!("{}: ", wait.subject));
        if matches!(wait.cause, WaitCause::InPlaceResize { .. })
            && refusal["reason"] == "ResizeInfeasible"
            && is_named()
        {
            wait.cause = WaitCause::ResizeInfeasible {
                message: said.to_owned(),
            };
        }
    }
}

/// The finalizers of an object.
pub(super) fn finalizers(metadata: &Value) -> Vec<String> {
    let list = metadata["finalizers"].as_array().into_iter().flatten();
    list.filter_map(|finalizer| finalizer.as_str().map(str::to_owned))
        .collect()
}

/// That the namespace is being deleted, if it is, and what is in the way of that.
pub fn terminating_namespace(name: &str, namespace: &Value) -> Option<Wait> {
    let since = time(&namespace["metadata"]["deletionTimestamp"])?;
    let conditions = namespace["status"]["conditions"].as_array().into_iter().flatten();
    let in_the_way = conditions.filter(|condition| condition["status"] == "True");
    let messages: Vec<&str> = in_the_way
        .filter_map(|condition| condition["message"].as_str())
        .collect();
    Some(Wait {
        subject: format!("namespace {name}"),
        cause: WaitCause::NamespaceTerminating {
            message: messages.join("; "),
        },
        since: Some(since),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flotilla_model::Whom;
    use serde_json::json;

    #[test]
    fn r_37_a_resize_that_was_refused_for_good_is_not_told_as_one_that_comes() {
        let told = |reason: &str, said: &str| {
            let condition = json!({"type": "FailedUpdatePod", "status": "True", "reason": reason, "message": said});
            let live = LiveSet {
                kind: SetKind::Advanced,
                key: ObjectKey::new("shop", "web"),
                object: json!({"status": {"conditions": [condition]}}),
            };
            let cause = WaitCause::InPlaceResize { message: String::new() };
            let mut waits = [Wait {
                subject: "web-0".to_owned(),
                cause,
                since: None,
            }];
            add_refused_resizes(&live, &mut waits);
            let whom = Whom::of("statefulset.apps.kruise.io/web", "shop");
            waits[0].cause.advice("web-0", &whom).expect("advice")
        };
        let refused = "web-0: NodeTooSmall: node does not have enough allocatable cpu";
        let advice = told("ResizeInfeasible", refused);
        assert!(
            advice.ends_with("kubectl edit statefulset.apps.kruise.io/web -n shop"),
            "{advice}"
        );
        for (reason, said) in [
            ("ResizeInfeasible", "web-1: NodeTooSmall: too much"),
            ("Forbidden", refused),
        ] {
            let advice = told(reason, said);
            assert!(advice.ends_with("kubectl describe pod web-0 -n shop"), "{advice}");
        }
    }

    #[test]
    fn a_namespace_that_is_being_deleted_says_what_is_in_its_way() {
        let deleted = |conditions: Value| {
            let metadata = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
            let wait = terminating_namespace(
                "shop",
                &json!({"metadata": metadata, "status": {"conditions": conditions}}),
            );
            let wait = wait.expect("a wait");
            format!("{}: {}", wait.subject, wait.cause)
        };
        let remaining = json!([
            {"type": "NamespaceContentRemaining", "status": "True", "message": "Some resources are remaining"},
            {"type": "NamespaceDeletionContentFailure", "status": "False", "message": "All content successfully deleted"},
        ]);
        assert_eq!(
            deleted(remaining),
            "namespace shop: is being deleted: Some resources are remaining"
        );
        assert_eq!(deleted(Value::Null), "namespace shop: is being deleted");
        assert_eq!(terminating_namespace("shop", &json!({"metadata": {}})), None);
    }

    #[test]
    fn a_native_set_is_paused_only_as_long_as_it_has_the_partition_of_the_pause() {
        let paused_at = |annotations: Value, partition: Value| {
            let object = json!({
                "metadata": {"annotations": annotations},
                "spec": {"updateStrategy": {"rollingUpdate": {"partition": partition}}},
            });
            let key = ObjectKey::new("ns", "web");
            let kind = SetKind::Native;
            LiveSet { kind, key, object }.paused_at()
        };
        let before = json!({"flotilla.rs/partition-before-pause": "1"});
        assert_eq!(paused_at(before.clone(), json!(i32::MAX)), Some(1));
        // Somebody has applied another since.
        for partition in [json!(0), json!(2), Value::Null] {
            assert_eq!(paused_at(before.clone(), partition), None);
        }
        assert_eq!(paused_at(json!({}), json!(i32::MAX)), None, "no pause of ours");
    }
}
