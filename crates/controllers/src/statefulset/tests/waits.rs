//! What `flotilla why` has to answer: each cause of a wait, with its subject, its time and the advice.

use crate::testing::{Cluster, NOW, advanced, at, brief, claim, container_status, native, owner, pod};
use flotilla_model::records::Phase;
use flotilla_model::{Report, Scope, Wait, WaitCause, Whom};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// The waits on one subject.
fn on(cluster: &Cluster, subject: &str) -> Vec<Wait> {
    cluster
        .decide()
        .waits
        .into_iter()
        .filter(|w| w.subject == subject)
        .collect()
}

/// The one wait on a subject.
fn only(cluster: &Cluster, subject: &str) -> Wait {
    let mut found = on(cluster, subject);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

fn rolled_out(cluster: Cluster) -> Cluster {
    cluster.status("/currentRevision", json!("new"))
}

#[test]
fn why_a_pod_is_not_ready() {
    let set = rolled_out(native(1)).pod(
        pod("web-0")
            .revision("new")
            .unready_since(NOW - 7)
            .trouble("", "Unschedulable"),
    );
    let wait = only(&set, "web-0");
    assert_eq!(
        wait.cause,
        WaitCause::PodNotReady {
            reason: "Unschedulable".into(),
            message: "it says so".into()
        }
    );
    assert_eq!(wait.since, Some(at(NOW - 7)));
    assert!(
        wait.cause
            .advice("web-0", &Whom::of("statefulset.apps/web", "ns"))
            .is_some()
    );
}

#[test]
fn why_an_image_cannot_start() {
    for reason in [
        "ImagePullBackOff",
        "ErrImagePull",
        "InvalidImageName",
        "CrashLoopBackOff",
    ] {
        let set = rolled_out(advanced(1)).pod(
            pod("web-0")
                .revision("new")
                .phase(Phase::Pending)
                .trouble("main", reason),
        );
        let wait = only(&set, "web-0");
        let expected = WaitCause::ContainerCannotStart {
            container: "main".into(),
            reason: reason.into(),
            message: "it says so".into(),
        };
        assert_eq!(wait.cause, expected);
        assert!(
            wait.cause
                .advice("web-0", &Whom::of("statefulset.apps/web", "ns"))
                .is_some_and(|a| a.contains("rollout undo"))
        );
    }
}

/// A pod whose containers start one after the other, of which `side` has not been let go.
fn behind_a_barrier(message: &str, main_is_ready: bool) -> Cluster {
    let mut fixture = pod("web-0").revision("new").unready().detailed(|d| {
        let containers = &mut Arc::make_mut(&mut d.spec).containers;
        let mut side = containers[0].clone();
        (side.name, side.priority) = ("side".into(), Some(0));
        containers[0].priority = Some(5);
        containers.insert(0, side);
        let mut main = container_status("v1");
        main.is_ready = main_is_ready;
        d.statuses = Box::new([None, Some(main)]);
    });
    fixture = fixture.trouble("side", "CreateContainerConfigError");
    let mut record = fixture.build("web");
    let mut trouble = record.trouble.as_deref().cloned().expect("it has one");
    message.clone_into(&mut trouble.message);
    record.trouble = Some(Arc::new(trouble));
    rolled_out(advanced(1)).pod_record(record)
}

#[test]
fn why_a_container_waits_at_its_launch_barrier() {
    for (message, main_is_ready, behind) in [
        (
            "couldn't find key p_0 in ConfigMap ns/web-0-barrier",
            false,
            vec!["main"],
        ),
        ("configmap \"web-0-barrier\" not found", true, vec![]),
    ] {
        let wait = only(&behind_a_barrier(message, main_is_ready), "web-0");
        let expected = WaitCause::LaunchBarrier {
            container: "side".into(),
            barrier: "web-0-barrier".into(),
            key: "p_0".into(),
            behind: behind.iter().map(|name| (*name).to_owned()).collect(),
        };
        assert_eq!(wait.cause, expected, "{message}");
        let text = wait.cause.to_string();
        assert!(text.contains("key p_0") && text.contains("web-0-barrier"), "{text}");
        assert!(behind.iter().all(|name| text.contains(name)), "{text}");
        assert!(
            wait.cause
                .advice("web-0", &Whom::of("statefulset.apps/web", "ns"))
                .is_some()
        );
    }
    let other = only(&behind_a_barrier("configmap \"settings\" not found", false), "web-0");
    assert!(
        matches!(other.cause, WaitCause::ContainerCannotStart { .. }),
        "{other:?}"
    );
}

#[test]
fn why_a_name_is_not_free_yet() {
    for fixture in [
        pod("web-0").orphan().terminating(),
        pod("web-0").orphan().unlabelled().terminating(),
        pod("web-0")
            .owned_by(owner("batch/v1", "Job", "nightly", "job-uid"))
            .terminating(),
    ] {
        let wait = only(&rolled_out(advanced(1)).pod(fixture), "web-0");
        assert!(matches!(wait.cause, WaitCause::PodTerminating { .. }), "{wait:?}");
        assert!(wait.since.is_some() && wait.cause.to_string().contains("terminating"));
    }
}

#[test]
fn why_a_pod_is_not_available_yet_with_the_remaining_time() {
    let set = rolled_out(native(1))
        .spec("/minReadySeconds", json!(30))
        .pod(pod("web-0").revision("new").ready_since(NOW - 12));
    let wait = only(&set, "web-0");
    assert_eq!(
        wait.cause,
        WaitCause::PodNotAvailable {
            remaining: Duration::from_secs(18)
        }
    );
    assert_eq!(wait.cause.rule(), "minReadySeconds");
    assert_eq!(set.decide().wake_after, Some(Duration::from_secs(18)));
}

#[test]
fn why_a_pod_is_terminating_or_starting() {
    let set = rolled_out(advanced(2)).pod(pod("web-0").revision("new").terminating());
    let set = set.pod(pod("web-1").revision("new").phase(Phase::None));
    assert_eq!(
        only(&set, "web-0").cause,
        WaitCause::PodTerminating {
            node: Some("node-0".into()),
            finalizers: Vec::new(),
        }
    );
    assert_eq!(only(&set, "web-1").cause, WaitCause::PodStarting);
}

#[test]
fn why_the_update_budget_is_used_up_and_by_whom() {
    let rolling = json!({"maxUnavailable": 2});
    let set = advanced(4)
        .rolling(rolling)
        .pods([0, 1], "old")
        .pod(pod("web-2").revision("new").unready());
    let set = set.pod(pod("web-3").revision("old").terminating());
    let wait = only(&set, "web-1");
    assert_eq!(
        wait.cause,
        WaitCause::UpdateBudget {
            budget: 2,
            used_by: vec!["web-2".into(), "web-3".into()]
        }
    );
    let classic = native(2).pods([0], "old").pod(pod("web-1").revision("new").unready());
    assert_eq!(
        only(&classic, "web-0").cause,
        WaitCause::UpdateBudget {
            budget: 1,
            used_by: vec!["web-1".into()]
        }
    );
}

#[test]
fn why_the_scaling_budget_is_used_up_and_by_whom() {
    let set = rolled_out(advanced(3)).spec("/scaleStrategy/maxUnavailable", json!(1));
    let set = set.pod(pod("web-0").revision("new").never_ready());
    for subject in ["web-1", "web-2"] {
        assert_eq!(
            only(&set, subject).cause,
            WaitCause::ScaleBudget {
                budget: 1,
                used_by: vec!["web-0".into()]
            }
        );
    }
}

#[test]
fn why_the_partition_keeps_pods() {
    for set in [advanced(3), native(3)] {
        let set = set
            .rolling(json!({"partition": 2}))
            .pods([0, 1], "old")
            .pods([2], "new");
        let wait = only(&set, "web");
        assert_eq!(wait.cause, WaitCause::Partition { kept: 2 });
        assert!(wait.cause.is_intended());
    }
}

#[test]
fn why_a_paused_or_manual_update_stands_still() {
    let paused = advanced(2).rolling(json!({"paused": true})).pods(0..2, "old");
    assert_eq!(only(&paused, "web").cause, WaitCause::Paused);
    let by_hand = advanced(2)
        .spec("/updateStrategy/type", json!("OnDelete"))
        .pods([0], "old")
        .pods([1], "new");
    assert_eq!(only(&by_hand, "web").cause, WaitCause::OnDelete { old: 1 });
    // Also while all wait for one that does not go.
    for (set, expected) in [
        (
            advanced(2).spec("/updateStrategy/type", json!("OnDelete")),
            WaitCause::OnDelete { old: 1 },
        ),
        (advanced(2).rolling(json!({"paused": true})), WaitCause::Paused),
        (
            advanced(2).rolling(json!({"partition": 1})),
            WaitCause::Partition { kept: 1 },
        ),
    ] {
        let set = set
            .ordered()
            .pods([0], "old")
            .pod(pod("web-1").revision("old").terminating());
        assert_eq!(only(&set, "web").cause, expected);
        assert_ne!(on(&set, "web-1"), [], "it is in the way");
    }
    assert_eq!(
        on(
            &rolled_out(advanced(1))
                .rolling(json!({"paused": true}))
                .pods([0], "new"),
            "web"
        ),
        [],
        "nothing to wait for"
    );
}

#[test]
fn why_a_claim_holds_up_its_pod() {
    let set = rolled_out(advanced(1))
        .claim_templates(&["data"])
        .claim(claim("data-web-0").terminating());
    let wait = only(&set, "data-web-0");
    assert_eq!(wait.cause, WaitCause::CLAIM_TERMINATING);
    assert_eq!(wait.since, Some(at(NOW - 5)));
}

#[test]
fn why_the_api_server_refuses_quota_and_service_account() {
    for reason in ["QuotaExceeded", "ServiceAccountMissing"] {
        let set = super::refused(rolled_out(advanced(1)), Scope::Slot(0), Report::Create, reason);
        let wait = only(&set, "web-0");
        let WaitCause::Refused {
            reason: told,
            message,
            retry_at,
        } = &wait.cause
        else {
            panic!("{wait:?}")
        };
        assert_eq!(
            (told.as_str(), message.as_str(), *retry_at),
            (reason, "it says why", Some(at(NOW + 1)))
        );
        assert_eq!(wait.since, Some(at(NOW)));
        assert!(
            wait.cause
                .advice("web-0", &Whom::of("statefulset.apps/web", "ns"))
                .is_some()
        );
        assert_eq!(set.decide().wake_after, Some(Duration::from_secs(1)));
        assert_eq!(brief(&set.decide()), [] as [&str; 0]);
        let mut later = set;
        later.now = at(NOW + 1);
        assert_eq!(
            brief(&later.decide()),
            ["+web-0@new"],
            "tried again when the time has come"
        );
    }
}

#[test]
fn why_a_claim_that_is_refused_is_not_asked_for_in_a_loop() {
    let set = rolled_out(advanced(1)).claim_templates(&["data"]);
    let set = set.pod(pod("web-0").revision("new").mounts(&["data"]).phase(Phase::Pending));
    assert_eq!(brief(&set.decide()), ["+claim data-web-0"]);
    let set = super::refused(set, Scope::Slot(0), Report::Create, "QuotaExceeded");
    assert_eq!(brief(&set.decide()), [] as [&str; 0]);
    assert!(
        on(&set, "web-0")
            .iter()
            .any(|w| matches!(w.cause, WaitCause::Refused { .. }))
    );
}

#[test]
fn why_a_reserved_ordinal_cannot_be_read() {
    let set = rolled_out(advanced(1))
        .spec("/reserveOrdinals", json!([3, "5-2"]))
        .pods([0, 1], "new");
    let wait = only(&set, "web");
    let WaitCause::FieldUnreadable { path, found, .. } = &wait.cause else {
        panic!("{wait:?}")
    };
    assert_eq!((path.as_str(), found.as_str()), ("spec.reserveOrdinals[1]", "\"5-2\""));
    assert_eq!(
        wait.cause.advice("web", &Whom::of("statefulset.apps/web", "ns")),
        Some("correct spec.reserveOrdinals[1]: kubectl edit statefulset.apps/web -n ns".to_owned())
    );
}

#[test]
fn why_the_order_waits() {
    let set = rolled_out(native(3).ordered()).pod(pod("web-0").revision("new").unready());
    assert_eq!(only(&set, "web-1").cause, WaitCause::Order { behind: "web-0".into() });
    // Pods that have ended are made again in their turn, too.
    let set = set
        .pod(pod("web-1").revision("new").phase(Phase::Failed))
        .pod(pod("web-2").revision("new").phase(Phase::Succeeded));
    assert_eq!(only(&set, "web-1").cause, WaitCause::Order { behind: "web-0".into() });
    assert_eq!(on(&set, "web-2"), [], "one of them stands for all");
    let down = rolled_out(native(1).ordered())
        .pod(pod("web-0").revision("new").unready())
        .pods([1], "new");
    assert_eq!(
        only(&down, "web-1").cause,
        WaitCause::ScaleDownBehindUnhealthy { pod: "web-0".into() }
    );
}

/// A label that somebody put on, or a controller of theirs: the pod serves, and its logs say nothing of it.
#[test]
fn why_a_ready_pod_does_not_count_is_the_state_that_its_label_names() {
    use flotilla_api::names::LIFECYCLE_STATE_LABEL as STATE;
    let drained = || pod("web-2").revision("old").label(STATE, "Draining");
    let advanced = rolled_out(advanced(3)).pods([0, 1], "old").pod(drained());
    let clones = ["web-0", "web-1"]
        .into_iter()
        .fold(crate::testing::clones(3), |set, name| {
            set.pod(pod(name).revision("web-old"))
        });
    let clones = clones.pod(drained().revision("web-old"));
    for set in [advanced, clones] {
        let waits = on(&set, "web-2");
        let [wait] = &waits[..] else { panic!("{waits:?}") };
        let state = "Draining".to_owned();
        assert_eq!(wait.cause, WaitCause::LifecycleState { state });
        let text = wait.cause.to_string();
        assert!(text.contains("lifecycle.apps.kruise.io/state=Draining"), "{text}");
        let advice = wait
            .cause
            .advice("web-2", &Whom::of("statefulset.apps/web", "ns"))
            .expect("advice");
        assert!(
            advice.contains("kubectl label pod web-2 lifecycle.apps.kruise.io/state-"),
            "{advice}"
        );
    }
    // Neither what does not serve, nor what a hook explains.
    let broken = rolled_out(crate::testing::advanced(1)).pod(pod("web-0").label(STATE, "Draining").unready());
    assert!(matches!(only(&broken, "web-0").cause, WaitCause::PodNotReady { .. }));
}
