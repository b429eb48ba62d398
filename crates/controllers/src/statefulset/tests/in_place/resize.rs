//! Changes of cpu and memory (STS-4.3, STS-4.4, STS-4.6 and STS-8.18).

use super::super::refused;
use super::{GRACE, STATE, in_place, note, out, patches, policy, seen, state_of, told};
use crate::shared::inplace::state::State as InPlaceState;
use crate::testing::{Cluster, NOW, PodFixture, advanced, at, brief, container_status, detail, pod, template};
use flotilla_api::names;
use flotilla_model::decision::Command;
use flotilla_model::records::{ResizePending, Resources};
use flotilla_model::{Decision, Failure, Report, Scope, WaitCause};
use serde_json::{Value, json};
use std::sync::Arc;

fn sized(name: &str, revision: &str, cpu: i64, actual: i64) -> PodFixture {
    let of = |millis| Resources {
        cpu_request_millis: Some(millis),
        ..Resources::default()
    };
    seen(name, revision, "v1").detailed(|d| {
        Arc::make_mut(&mut d.spec).containers[0].resources = of(cpu);
        let mut status = container_status("v1");
        status.resources = Some(of(actual));
        d.statuses = Box::new([Some(status)]);
    })
}

fn resizing(replicas: i32, name: &str) -> Cluster {
    let with = |cpu: &str| {
        let mut t = template("v1");
        t["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
        t
    };
    policy(advanced(replicas), name)
        .spec("/template", with("2"))
        .no_revisions()
        .revision_of("old", 1, &with("1"))
        .revision_of("new", 2, &with("2"))
}

#[test]
fn sts_4_4_and_8_18_a_pure_resize_keeps_readiness_and_uses_no_budget() {
    let cluster = resizing(3, "InPlaceIfPossible");
    let cluster = (0..3).fold(cluster, |c, i| c.pod(sized(&format!("web-{i}"), "old", 1000, 1000)));
    let found = patches(&cluster.decide());
    let stages: Vec<_> = found.iter().map(|(stage, _, part, _)| (*stage, *part)).collect();
    assert_eq!(
        stages,
        [("in-place", ""); 3]
            .into_iter()
            .chain([("resize", "resize"); 3])
            .collect::<Vec<_>>()
    );
    assert_eq!(
        found[3].3,
        json!({"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}})
    );
    assert!(found[0].3.get("spec").is_none() && state_of(&found[0].3).resources);
    // On its way it is available all the same.
    let state = InPlaceState {
        resources: true,
        images: false,
        before: std::collections::BTreeMap::default(),
        ..note("new", 5)
    };
    let going =
        resizing(1, "InPlaceIfPossible").pod(sized("web-0", "new", 2000, 1000).annotated(STATE, &state.to_text()));
    let decision = going.decide();
    assert_eq!(brief(&decision), [] as [&str; 0]);
    assert_eq!(
        decision.status.as_ref().map(|s| s.desired["availableReplicas"].clone()),
        Some(json!(1))
    );
    assert!(
        decision
            .waits
            .iter()
            .any(|w| matches!(w.cause, WaitCause::InPlaceResize { .. }))
    );
}

/// Its kubelet gives it the resources when it starts, and it cannot start with the image that it has.
#[test]
fn r_37_a_container_that_cannot_start_waits_with_its_image_for_no_resources() {
    let state = InPlaceState {
        resources: true,
        before: std::collections::BTreeMap::default(),
        ..note("new", 5)
    };
    let next = state
        .to_text()
        .replacen('{', r#"{"nextContainerImages":{"main":"v2"},"#, 1);
    let stopped = sized("web-0", "new", 2000, 1000).detailed(|d| {
        for status in d.statuses.iter_mut().flatten() {
            status.started_at = None;
        }
    });
    let runs = sized("web-0", "new", 2000, 1000);
    let images = |pod: PodFixture| {
        let cluster = resizing(1, "InPlaceIfPossible").pod(out(pod).annotated(STATE, &next));
        let found = patches(&cluster.decide());
        found.iter().any(|(stage, ..)| *stage == "in-place")
    };
    assert_eq!((images(stopped), images(runs)), (true, false));
}

/// Its node cannot give it what it is to have, and the policy lets it not be made again.
#[test]
fn sts_4_6_and_8_12_what_stays_infeasible_is_overdue_too() {
    let state = InPlaceState {
        resources: true,
        images: false,
        before: std::collections::BTreeMap::default(),
        ..note("new", 61)
    };
    let stuck = sized("web-0", "new", 2000, 1000)
        .annotated(STATE, &state.to_text())
        .detailed(|d| {
            d.resize_pending = Some(ResizePending {
                is_infeasible: true,
                message: "too big".into(),
                since: Some(at(NOW - 60)),
            });
        });
    let decision = resizing(1, "InPlaceOnly")
        .annotation("flotilla.rs/in-place-deadline-seconds", "60")
        .pod(stuck)
        .decide();
    for condition in ["InPlaceUpdateStuck", "FailedUpdatePod"] {
        let status = told(&decision, condition).map(|c| c["status"].clone());
        assert_eq!(status, Some(json!("True")), "{condition}");
    }
}

/// Its next step, which takes it out of service, waits for the empty slot: so that must not wait for it.
#[test]
fn sts_3_5_a_pod_that_serves_in_the_midst_of_an_update_keeps_no_slot_empty() {
    let state = InPlaceState {
        resources: true,
        before: std::collections::BTreeMap::default(),
        ..note("old", 5)
    };
    let next = state
        .to_text()
        .replacen('{', r#"{"nextContainerImages":{"main":"v2"},"#, 1);
    let serving = |since| {
        sized("web-0", "old", 1000, 1000)
            .annotated(STATE, &next)
            .ready_since(since)
    };
    let created = |since| {
        let set = resizing(2, "InPlaceOnly")
            .spec("/scaleStrategy/maxUnavailable", json!(1))
            .spec("/updateStrategy/rollingUpdate/minReadySeconds", json!(10));
        brief(&set.pod(serving(since)).decide())
    };
    assert_eq!(created(NOW - 60), ["+web-1@new"]);
    assert_eq!(created(NOW - 5), [] as [&str; 0], "it has not come up yet");
}

#[test]
fn sts_4_4_a_resize_that_restarts_leaves_service() {
    let mut fixture = sized("web-0", "old", 1000, 1000);
    fixture = fixture.detailed(|d| Arc::make_mut(&mut d.spec).containers[0].restarts_for_cpu = true);
    let found = patches(&resizing(1, "InPlaceIfPossible").pod(fixture).decide());
    assert_eq!(
        found.iter().map(|(stage, ..)| *stage).collect::<Vec<_>>(),
        ["unready", "in-place", "resize"]
    );
}

#[test]
fn sts_4_6_a_resize_that_does_not_fit() {
    let state = InPlaceState {
        resources: true,
        images: false,
        before: std::collections::BTreeMap::default(),
        ..note("new", 5)
    };
    let pending = |is_infeasible, since| {
        sized("web-0", "new", 2000, 1000)
            .annotated(STATE, &state.to_text())
            .detailed(|d| {
                d.resize_pending = Some(ResizePending {
                    is_infeasible,
                    message: "too big".into(),
                    since: Some(at(since)),
                });
            })
    };
    let given_up = resizing(1, "InPlaceIfPossible").pod(pending(true, NOW - 5)).decide();
    assert_eq!(brief(&given_up), ["-web-0"], "made again within the budget");
    let only = resizing(1, "InPlaceOnly").pod(pending(true, NOW - 5)).decide();
    assert_eq!(brief(&only), [] as [&str; 0]);
    assert!(only.events.iter().any(|e| e.warning && e.message.contains("too big")));
    assert_eq!(
        told(&only, "FailedUpdatePod").map(|c| c["reason"].clone()),
        Some(json!("ResizeInfeasible"))
    );
    let soon = resizing(1, "InPlaceIfPossible").pod(pending(false, NOW - 5)).decide();
    assert_eq!((brief(&soon).len(), told(&soon, "InPlaceUpdateStuck")), (0, None));
    let late = resizing(1, "InPlaceIfPossible").pod(pending(false, NOW - 400)).decide();
    assert_eq!(
        told(&late, "InPlaceUpdateStuck").map(|c| c["reason"].clone()),
        Some(json!("ResizeDeferred"))
    );
    let under_way = sized("web-0", "new", 2000, 1000)
        .annotated(
            STATE,
            &InPlaceState {
                updated_at: at(NOW - 400),
                ..state.clone()
            }
            .to_text(),
        )
        .detailed(|d| d.resize_in_progress = Some("".into()));
    let under_way = resizing(1, "InPlaceIfPossible").pod(under_way).decide();
    assert_eq!(told(&under_way, "InPlaceUpdateStuck"), None, "nobody has put it off");
    let told_before = json!([{"type": "InPlaceUpdateStuck", "status": "True", "reason": "ResizeDeferred"}]);
    let mut led_anew = resizing(1, "InPlaceIfPossible").status("/conditions", told_before);
    led_anew.observing_since = at(NOW - 10);
    let status = |ago: i64| {
        let decision = led_anew.clone().pod(pending(false, NOW - ago)).decide();
        told(&decision, "InPlaceUpdateStuck").map(|c| c["status"].clone())
    };
    assert_ne!(status(400), Some(json!("False")), "it is put off as before");
    assert_eq!(status(5), Some(json!("False")), "this one for the first time");
}

#[test]
fn sts_4_6_a_resize_that_the_api_server_refuses_for_the_node() {
    let text = first_note(resizing(1, "InPlaceOnly"), sized("web-0", "old", 1000, 1000));
    let beside = |policy: &str, other: PodFixture| {
        let noted = sized("web-1", "new", 1000, 1000).annotated(STATE, &text);
        let cluster = resizing(2, policy).pod(other).pod(noted);
        refused(cluster, Scope::Slot(1), Report::InPlace, Failure::NODE_TOO_SMALL)
    };
    let refused = |policy: &str| beside(policy, sized("web-0", "old", 1000, 1000));
    let other = [("in-place", "web-0"), ("resize", "web-0")];
    let given_up = refused("InPlaceIfPossible").decide();
    assert!(brief(&given_up).contains(&"-web-1".to_owned()), "made again");
    assert!(patches(&given_up).iter().all(|(_, pod, ..)| pod != "web-1"));
    let mut waiting = beside("InPlaceIfPossible", sized("web-0", "new", 2000, 2000).unready());
    for now in [NOW, NOW + 3_600] {
        waiting.now = at(now);
        let decision = waiting.decide();
        assert_eq!(brief(&decision), [] as [&str; 0], "within the budget");
        assert!(patches(&decision).is_empty(), "and not tried again meanwhile");
        // None if nothing is to be remembered that was not.
        if let Some(hints) = decision.hints {
            waiting = waiting.hints(hints);
        }
    }

    let cluster = refused("InPlaceOnly");
    let only = cluster.decide();
    let touched: Vec<_> = patches(&only)
        .into_iter()
        .map(|(stage, pod, ..)| (stage, pod))
        .collect();
    assert_eq!(
        touched,
        other.map(|(stage, pod)| (stage, pod.to_owned())),
        "it stays, others go on"
    );
    assert!(only.events.iter().any(|e| e.warning && e.message.contains("web-1")));
    assert_eq!(
        told(&only, "FailedUpdatePod").map(|c| c["reason"].clone()),
        Some(json!("ResizeInfeasible"))
    );
    let infeasible = |d: &Decision| {
        d.waits
            .iter()
            .any(|w| matches!(w.cause, WaitCause::ResizeInfeasible { .. }))
    };
    assert!(infeasible(&only));
    let mut later = cluster.hints(only.hints.clone().expect("hints"));
    later.now = at(NOW + 3_600);
    let later = later.decide();
    assert!(
        infeasible(&later) && later.events.is_empty(),
        "waited for no more, told once"
    );
    assert!(patches(&later).iter().all(|(_, pod, ..)| pod != "web-1"));

    // Another pod of the name may be on a node that can.
    let mut cluster = refused("InPlaceOnly");
    for failure in cluster.hints.failures.values_mut() {
        failure.since = at(0);
    }
    let again = cluster.decide();
    assert!(
        patches(&again)
            .iter()
            .any(|(stage, pod, ..)| (*stage, pod.as_str()) == ("resize", "web-1"))
    );
}

#[test]
fn sts_4_6_a_refused_resize_that_was_noted_is_given_up() {
    let begun = patches(
        &resizing(1, "InPlaceOnly")
            .pod(sized("web-0", "old", 1000, 1000))
            .decide(),
    );
    let text = begun[0].3["metadata"]["annotations"][STATE]
        .as_str()
        .expect("a note")
        .to_owned();
    for (policy, expected) in [("InPlaceIfPossible", vec!["-web-0"]), ("InPlaceOnly", vec![])] {
        let noted = sized("web-0", "new", 1000, 1000).annotated(STATE, &text);
        let cluster = refused(
            resizing(1, policy).pod(noted),
            Scope::Slot(0),
            Report::Silent,
            Failure::NODE_TOO_SMALL,
        );
        let decision = cluster.decide();
        assert_eq!(brief(&decision), expected, "{policy}: made again, or left alone");
        assert_eq!(
            told(&decision, "FailedUpdatePod").map(|c| c["reason"].clone()),
            Some(json!("ResizeInfeasible")),
            "{policy}"
        );
        let mut later = cluster.hints(decision.hints.clone().expect("hints"));
        later.now = at(NOW + 3_600);
        let later = later.decide();
        assert_eq!(brief(&later), expected, "{policy}: also later, and not asked for again");
    }
}

#[test]
fn r_18_a_special_pod_keeps_its_resources_also_those_that_could_not_change_in_place() {
    let with = |image: &str, resources: Value| {
        let mut t = template(image);
        t["spec"]["containers"][0]["resources"] = resources;
        t
    };
    let old = with("v1", json!({"requests": {"cpu": "1"}}));
    let guaranteed = json!({"cpu": "2", "memory": "1Gi"});
    for (what, resources) in [
        ("more", json!({"requests": {"cpu": "2"}})),
        ("added", json!({"requests": {"cpu": "1", "memory": "1Gi"}})),
        ("another class", json!({"requests": guaranteed, "limits": guaranteed})),
        (
            "of another kind",
            json!({"requests": {"cpu": "1"}, "limits": {"ephemeral-storage": "1Gi"}}),
        ),
        ("removed", json!({})),
    ] {
        for policy_name in ["InPlaceIfPossible", "InPlaceOnly"] {
            let new = with("v2", resources.clone());
            let cluster = policy(advanced(1), policy_name)
                .spec("/template", new.clone())
                .spec("/specialPodsSelectors", json!([{"matchLabels": {"special": "1"}}]))
                .no_revisions()
                .revision_of("old", 1, &old)
                .revision_of("new", 2, &new)
                .pod(seen("web-0", "old", "v1").label("special", "1"));
            let decision = cluster.decide();
            let (found, told) = (patches(&decision), brief(&decision));
            assert_eq!(
                found.iter().map(|(stage, ..)| *stage).collect::<Vec<_>>(),
                ["unready", "in-place"],
                "{what}, {policy_name}: the image alone, and no resize: {told:?}"
            );
            assert!(!state_of(&found[1].3).resources, "{what}, {policy_name}");
        }
    }
}

#[test]
fn r_18_other_pods_of_the_revision_are_made_again_for_their_resources() {
    let with = |image: &str, resources: Value| {
        let mut t = template(image);
        t["spec"]["containers"][0]["resources"] = resources;
        t
    };
    let (old, new) = (
        with("v1", json!({"requests": {"cpu": "1"}})),
        with("v2", json!({"requests": {"cpu": "1", "memory": "1Gi"}})),
    );
    let cluster = policy(advanced(2), "InPlaceIfPossible")
        .rolling(json!({"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 2}))
        .spec("/template", new.clone())
        .spec("/specialPodsSelectors", json!([{"matchLabels": {"special": "1"}}]))
        .no_revisions()
        .revision_of("old", 1, &old)
        .revision_of("new", 2, &new)
        .pod(seen("web-0", "old", "v1"))
        .pod(seen("web-1", "old", "v1").label("special", "1"));
    let said = brief(&cluster.decide());
    assert!(
        said.contains(&"-web-0".to_owned()) && !said.contains(&"-web-1".to_owned()),
        "{said:?}"
    );
}

#[test]
fn sts_4_3_an_old_server_gets_resources_in_the_pod_itself() {
    use crate::shared::inplace::apply::Target;
    use crate::shared::inplace::{Changes, UpdateSpec};
    let pod = seen("web-0", "old", "v1").build("web");
    let detail = pod.detail.clone().expect("a detail");
    let spec = UpdateSpec {
        changes: Changes {
            resources: [("main".to_owned(), json!({"limits": {"cpu": "2"}}))].into(),
            ..Changes::default()
        },
        ..UpdateSpec::default()
    };
    for supports_resize in [true, false] {
        let target = Target {
            pod: &pod,
            detail: &detail,
            now: at(NOW),
            supports_resize,
            is_out_of_service: false,
        };
        let writes = target.begin(note("new", 0), &spec, json!({}));
        let Some(Command::Patch { body, .. }) = &writes.pod else {
            panic!("{:?}", writes.pod)
        };
        assert_eq!(writes.resize.is_some(), supports_resize);
        let set = crate::testing::folded(body);
        assert_eq!(set.pointer("/spec/containers/0/resources").is_some(), !supports_resize);
    }
}

#[test]
fn sts_8_18_a_pod_that_has_its_new_resources_is_available_before_its_state_says_so() {
    let state = InPlaceState {
        resources: true,
        images: false,
        before: std::collections::BTreeMap::default(),
        ..note("old", 5)
    };
    // The next update must not take it for free.
    let pods = (0..2).map(|i| {
        let fixture = sized(&format!("web-{i}"), "old", 1000, 1000).annotated(STATE, &state.to_text());
        fixture.label(names::LIFECYCLE_STATE_LABEL, "Updating")
    });
    let decision = pods.fold(in_place(2), Cluster::pod).decide();
    let status = decision.status.as_ref().expect("a status");
    assert_eq!(status.desired["availableReplicas"], 2);
    let taken_out = patches(&decision)
        .iter()
        .filter(|(stage, ..)| *stage == "unready")
        .count();
    assert_eq!(taken_out, 1, "the budget");
}

#[test]
fn sts_4_3_a_resize_is_noted_before_and_made_until_it_is_there() {
    let found = patches(
        &resizing(1, "InPlaceIfPossible")
            .pod(sized("web-0", "old", 1000, 1000))
            .decide(),
    );
    let text = found[0].3["metadata"]["annotations"][STATE]
        .as_str()
        .expect("a note")
        .to_owned();
    assert_eq!(
        state_of(&found[0].3).next.resources["main"],
        json!({"requests": {"cpu": "2"}})
    );
    let noted = |wanted, actual| sized("web-0", "new", wanted, actual).annotated(STATE, &text);
    let stages =
        |found: &[(&'static str, String, &str, Value)]| found.iter().map(|(stage, ..)| *stage).collect::<Vec<_>>();
    // STS-4.7: as a Go manager writes it, which waits for ever for what is still to come.
    let fulfilled = text.replace(r#""nextContainerResources":{"main":{"requests":{"cpu":"2"}}},"#, "");
    assert_ne!(fulfilled, text);
    for (what, actual) in [("its kubelet is at it", 1000), ("it is there", 2000)] {
        let found = patches(&resizing(1, "InPlaceIfPossible").pod(noted(2000, actual)).decide());
        assert_eq!(stages(&found), ["in-place"], "{what}");
        assert_eq!(
            found[0].3,
            json!({"metadata": {"annotations": {STATE: fulfilled}}}),
            "{what}"
        );
        let settled = sized("web-0", "new", 2000, actual).annotated(STATE, &fulfilled);
        let found = patches(&resizing(1, "InPlaceIfPossible").pod(settled).decide());
        assert_eq!(stages(&found), [] as [&str; 0], "{what}, and noted");
    }
    // One write for what is noted and where the pod's life stands; what puts it back rests on what is written before.
    let updating = super::out(noted(2000, 2000).label(names::LIFECYCLE_STATE_LABEL, "Updating"));
    let found = patches(&resizing(1, "InPlaceIfPossible").pod(updating).decide());
    assert_eq!(stages(&found), ["in-place", "ready"]);
    assert_eq!(found[0].3["metadata"]["annotations"][STATE], fulfilled.as_str());
    assert_eq!(found[0].3["metadata"]["labels"][names::LIFECYCLE_STATE_LABEL], "Normal");
    let path = format!("/metadata/annotations/{}", STATE.replace('/', "~1"));
    let tested = json!({"op": "test", "path": path, "value": fulfilled});
    assert!(
        found[1].3.as_array().is_some_and(|all| all.contains(&tested)),
        "{}",
        found[1].3
    );

    let mut lost = resizing(1, "InPlaceIfPossible").pod(noted(1000, 1000));
    lost.now = at(NOW + 60);
    let lost = lost.decide();
    let found = patches(&lost);
    assert_eq!(stages(&found), ["resize"], "the resize never came; it is noted already");
    let said: Vec<_> = lost
        .waits
        .iter()
        .map(|w| (w.subject.as_str(), w.cause.to_string(), w.since))
        .collect();
    let text = "its resources have not changed yet: the API server has not taken them; \
                condition FailedUpdatePod says why, if it refuses them";
    assert_eq!(
        said,
        [("web-0", text.to_owned(), Some(at(NOW)))],
        "also by whoever has seen no refusal"
    );

    // Taken back before it came, or after: the old amount is asked for again.
    let mut former = template("v1");
    former["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    for wanted in [1000, 2000] {
        let back = resizing(1, "InPlaceIfPossible").pod(noted(wanted, 1000));
        let back = back.spec("/template", former.clone());
        let found = patches(&back.decide());
        let resize = found.iter().find(|(stage, ..)| *stage == "resize").expect("a resize");
        assert_eq!(resize.3["spec"]["containers"][0]["resources"]["requests"]["cpu"], "1");
    }
}

/// A resize of a VPA after ours: that of a pod that has what we asked for, or had it until then.
#[test]
fn sts_4_6_what_others_ask_for_after_an_update_is_not_waited_for() {
    let text = first_note(resizing(1, "InPlaceIfPossible"), sized("web-0", "old", 1000, 1000));
    let text = text.replace(r#""nextContainerResources":{"main":{"requests":{"cpu":"2"}}},"#, "");
    let infeasible = |is_infeasible| ResizePending {
        is_infeasible,
        message: "Node didn't have enough resource".into(),
        since: Some(at(NOW - 1000)),
    };
    for (what, wanted, actual, pending, ours) in [
        ("nobody has asked", 2000, 1000, None, true),
        (
            "nobody has asked, and it is put off",
            2000,
            1000,
            Some(infeasible(false)),
            true,
        ),
        ("it is on its way", 3000, 2000, None, false),
        ("it is put off", 3000, 2000, Some(infeasible(false)), false),
        ("it will never be", 3000, 2000, Some(infeasible(true)), false),
        ("ours had not come", 3000, 1000, None, false),
        ("of another container", 2000, 2000, Some(infeasible(true)), false),
    ] {
        let pod = sized("web-0", "new", wanted, actual).annotated(STATE, &text);
        let mut cluster = resizing(1, "InPlaceIfPossible").pod(pod.detailed(|d| d.resize_pending = pending));
        cluster.now = at(NOW + 1000);
        let decision = cluster.decide();
        let waits: Vec<_> = decision.waits.iter().map(|w| &w.cause).collect();
        let is_waited_for = waits
            .iter()
            .any(|cause| matches!(cause, WaitCause::InPlaceResize { .. }));
        assert_eq!(is_waited_for, ours, "{what}: {waits:?}");
        assert_eq!(brief(&decision), [] as [&str; 0], "{what}");
    }
}

/// From image v1 with `from` of cpu to image v2 with `to`.
fn image_and_cpu(replicas: i32, name: &str, from: &str, to: &str) -> Cluster {
    let with = |image: &str, cpu: &str| {
        let mut t = template(image);
        t["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
        t
    };
    policy(advanced(replicas), name)
        .spec("/template", with("v2", to))
        .no_revisions()
        .revision_of("old", 1, &with("v1", from))
        .revision_of("new", 2, &with("v2", to))
}

/// The note that a first pass leaves on the pod.
fn first_note(cluster: Cluster, fixture: PodFixture) -> String {
    let found = patches(&cluster.pod(fixture).decide());
    let mut notes = found
        .iter()
        .filter_map(|(.., set)| set["metadata"]["annotations"][STATE].as_str());
    notes.next().expect("a note").to_owned()
}

/// A kubelet refuses for ever to lower the memory of a container that is just restarting.
#[test]
fn r_37_resources_are_changed_and_confirmed_before_images() {
    for (from, to, millis) in [("1", "2", (1000, 2000)), ("2", "1", (2000, 1000))] {
        let set = || image_and_cpu(1, "InPlaceIfPossible", from, to);
        let (was, will) = millis;
        let begun = patches(&set().pod(sized("web-0", "old", was, was)).decide());
        let stages = |found: &[(&'static str, String, &'static str, Value)]| {
            let all = found.iter().map(|(stage, ..)| *stage);
            all.collect::<Vec<_>>()
        };
        assert_eq!(stages(&begun), ["in-place", "resize"], "in service meanwhile");
        assert!(begun[0].3.get("spec").is_none(), "{}", begun[0].3);
        let main = json!([{"name": "main", "resources": {"requests": {"cpu": to}}}]);
        assert_eq!(begun[1].3["spec"]["containers"], main);
        assert_eq!(state_of(&begun[0].3).next.images["main"], "v2");

        let text = first_note(set(), sized("web-0", "old", was, was));
        let noted = |asked, given| sized("web-0", "new", asked, given).annotated(STATE, &text);
        assert_eq!(stages(&patches(&set().pod(noted(will, was)).decide())), [] as [&str; 0]);
        let unseen = noted(will, will).detailed(|d| (d.generation, d.observed_generation) = (3, 2));
        assert_eq!(
            stages(&patches(&set().pod(unseen).decide())),
            [] as [&str; 0],
            "nor before its kubelet has heard of it"
        );
        let hindered = noted(will, was).detailed(|d| d.resize_in_progress = Some("memory is in use".into()));
        let waits = set().pod(hindered).decide().waits;
        assert!(
            waits.iter().any(|w| w.cause.to_string().ends_with("memory is in use")),
            "{waits:?}"
        );
        let given = patches(&set().pod(noted(will, will)).decide());
        assert_eq!(stages(&given), ["unready", "in-place"], "out of service for the image");
        assert_eq!(
            given[1].3["spec"]["containers"],
            json!([{"name": "main", "image": "v2"}])
        );
    }
}

#[test]
fn r_37_a_resize_that_is_put_off_or_infeasible_changes_no_image() {
    for (policy, is_infeasible, expected) in [
        ("InPlaceIfPossible", true, vec!["-web-0"]),
        ("InPlaceOnly", true, vec![]),
        ("InPlaceIfPossible", false, vec![]),
        ("InPlaceOnly", false, vec![]),
    ] {
        let set = || image_and_cpu(1, policy, "1", "2");
        let text = first_note(set(), sized("web-0", "old", 1000, 1000));
        let pending = sized("web-0", "new", 2000, 1000).annotated(STATE, &text).detailed(|d| {
            d.resize_pending = Some(ResizePending {
                is_infeasible,
                message: "too big".into(),
                since: Some(at(NOW - 5)),
            });
        });
        let mut cluster = set().pod(pending);
        for now in [NOW, NOW + 3_600] {
            cluster.now = at(now);
            let decision = cluster.decide();
            assert_eq!(brief(&decision), expected, "{policy} {is_infeasible}");
            assert!(
                patches(&decision).is_empty(),
                "{policy} {is_infeasible}: nothing is written"
            );
            let says = |w: &flotilla_model::Wait| w.cause.to_string().contains("too big");
            assert!(decision.waits.iter().any(says), "{:?}", decision.waits);
        }
    }
}

#[test]
fn r_37_a_refused_resize_is_not_asked_for_again() {
    for (policy, reason, expected) in [
        ("InPlaceIfPossible", Failure::NODE_TOO_SMALL, vec!["-web-0"]),
        ("InPlaceIfPossible", Failure::INVALID, vec!["-web-0"]),
        ("InPlaceIfPossible", Failure::FORBIDDEN, vec!["-web-0"]),
        ("InPlaceOnly", Failure::NODE_TOO_SMALL, vec![]),
    ] {
        let set = || image_and_cpu(1, policy, "1", "2");
        let text = first_note(set(), sized("web-0", "old", 1000, 1000));
        let noted = sized("web-0", "new", 1000, 1000).annotated(STATE, &text);
        let mut cluster = refused(set().pod(noted), Scope::Slot(0), Report::InPlace, reason);
        for now in [NOW, NOW + 5, NOW + 3_600] {
            cluster.now = at(now);
            let decision = cluster.decide();
            let what = format!("{policy} {reason} {}", now - NOW);
            assert_eq!(brief(&decision), expected, "{what}");
            assert!(patches(&decision).is_empty(), "{what}: nothing else is written");
            let why: Vec<_> = decision.waits.iter().map(|w| w.cause.to_string()).collect();
            assert!(why.iter().any(|w| w.contains("it says why")), "{what}: {why:?}");
            cluster.hints = decision.hints.unwrap_or(cluster.hints);
        }
    }
}

/// Whoever refuses may change his mind, and tells nobody. Where the pod may be made again, it need not wait for that.
#[test]
fn r_37_a_refused_resize_of_a_pod_that_has_to_stay_is_asked_for_again_later() {
    for reason in [Failure::INVALID, Failure::FORBIDDEN] {
        let set = || image_and_cpu(1, "InPlaceOnly", "1", "2");
        let text = first_note(set(), sized("web-0", "old", 1000, 1000));
        let noted = sized("web-0", "new", 1000, 1000).annotated(STATE, &text);
        let mut cluster = refused(set().pod(noted), Scope::Slot(0), Report::InPlace, reason);
        let soon = cluster.decide();
        assert!(soon.commands().next().is_none(), "{reason}: {soon:?}");
        assert!(soon.wake_after.is_some(), "{reason}: it looks again");
        let says = |w: &flotilla_model::Wait| w.cause.to_string().contains("it says why");
        assert!(soon.waits.iter().any(says), "{reason}: {:?}", soon.waits);
        cluster.hints = soon.hints.unwrap_or(cluster.hints);
        cluster.now = at(NOW + 5);
        let later = cluster.decide();
        let found: Vec<_> = patches(&later).into_iter().map(|(stage, ..)| stage).collect();
        assert_eq!(found, ["resize"], "{reason}: which is noted already");
    }
}

/// Room in a quota may come, and would be lacking for a new pod, too.
#[test]
fn r_37_a_resize_beyond_a_quota_is_asked_for_again_later() {
    let set = || image_and_cpu(1, "InPlaceIfPossible", "1", "2");
    let text = first_note(set(), sized("web-0", "old", 1000, 1000));
    let noted = sized("web-0", "new", 1000, 1000).annotated(STATE, &text);
    let mut cluster = refused(set().pod(noted), Scope::Slot(0), Report::InPlace, "QuotaExceeded");
    let soon = cluster.decide();
    assert!(soon.commands().next().is_none(), "{soon:?}");
    cluster.now = at(NOW + 3_600);
    let later = cluster.decide();
    let found: Vec<_> = patches(&later).into_iter().map(|(stage, ..)| stage).collect();
    assert_eq!(found, ["resize"], "which is noted already");
}

/// That a pod carries the label proves nothing while what makes it a pod of the revision has been refused.
#[test]
fn r_31_and_37_a_pod_whose_resize_is_refused_goes_only_for_one_that_is_accepted() {
    let set = || image_and_cpu(1, "InPlaceIfPossible", "1", "2");
    let text = first_note(set(), sized("web-0", "old", 1000, 1000));
    let noted = sized("web-0", "new", 1000, 1000).annotated(STATE, &text);
    let mut cluster = refused(set().pod(noted), Scope::Slot(0), Report::InPlace, Failure::INVALID);
    cluster.hints.accepted.clear();
    assert_eq!(brief(&cluster.decide()), ["(web-0)"], "asked first");
    let cluster = refused(cluster, Scope::Acceptance("new".to_owned()), Report::Try, "Invalid");
    assert_eq!(brief(&cluster.decide()), [] as [&str; 0], "it serves, and stays");
}

/// "Nothing is sent twice without something having changed": what users ask for instead is something else.
#[test]
fn r_37_whoever_was_refused_goes_on_when_less_is_asked_for() {
    for policy in ["InPlaceIfPossible", "InPlaceOnly"] {
        let text = first_note(image_and_cpu(1, policy, "1", "2"), sized("web-0", "old", 1000, 1000));
        let noted = sized("web-0", "new", 1000, 1000).annotated(STATE, &text);
        let set = image_and_cpu(1, policy, "1", "2").pod(noted);
        let mut set = refused(set, Scope::Slot(0), Report::InPlace, Failure::NODE_TOO_SMALL);
        let mut former = template("v1");
        former["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
        set = set.spec("/template", former);
        set.now = at(NOW + 3_600);
        let decision = set.decide();
        let found = patches(&decision);
        assert!(
            found.iter().any(|(stage, ..)| *stage == "in-place"),
            "{policy}: {decision:?}"
        );
        let brief = brief(&decision);
        assert!(!brief.contains(&"-web-0".to_owned()), "{policy}: {brief:?}");
    }
}

/// "A newer revision arrived" (STS-4.2): no pod that serves goes for what nobody asks for any more.
#[test]
fn sts_4_2_and_4_6_a_resize_that_leads_nowhere_and_is_overtaken_is_taken_back_in_place() {
    let text = first_note(resizing(1, "InPlaceIfPossible"), sized("web-0", "old", 1000, 1000));
    let with = |cpu: &str| {
        let mut t = template("v1");
        t["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
        t
    };
    for (what, is_infeasible, cpu) in [
        ("infeasible, rolled back", true, "1"),
        ("infeasible, and less is asked for", true, "1500m"),
        ("overdue, rolled back", false, "1"),
        ("overdue, and less is asked for", false, "1500m"),
    ] {
        let pod = |n: usize| {
            let pod = sized(&format!("web-{n}"), "new", 2000, 1000).annotated(STATE, &text);
            pod.detailed(|d| {
                d.resize_pending = Some(ResizePending {
                    is_infeasible,
                    message: "too big".into(),
                    since: Some(at(NOW - 5)),
                });
            })
        };
        let set = resizing(3, "InPlaceIfPossible").spec("/template", with(cpu));
        let set = set.revision_of("less", 3, &with("1500m"));
        let set = set.annotation(names::IN_PLACE_DEADLINE_SECONDS, "30");
        let set = set.annotation(names::IN_PLACE_DEADLINE_ACTION, "recreate");
        let mut set = (0..3).fold(set, |set, n| set.pod(pod(n)));
        set.now = at(NOW + 3_600);
        let decision = set.decide();
        assert_eq!(deleted(&decision), [""; 0], "{what}");
        let resizes: Vec<_> = patches(&decision).into_iter().filter(|p| p.2 == "resize").collect();
        assert_eq!(resizes.len(), 3, "{what}: without using the budget");
        for (.., body) in resizes {
            let asked = &body["spec"]["containers"][0]["resources"]["requests"]["cpu"];
            assert_eq!(*asked, json!(cpu), "{what}");
        }
    }
}

/// What is made again for another reason than its resources is so also where it is overtaken.
#[test]
fn sts_8_19_a_pod_of_which_nobody_knows_what_it_lacks_is_made_again_though_it_is_overtaken() {
    let lost = out(seen("web-0", "new", "v1")).annotated(super::GRACE, "{");
    let set = in_place(1).revision("newer", 3, "v3").spec("/template", template("v3"));
    let mut set = set.pod(lost);
    set.hints.accepted.insert("newer".to_owned());
    assert_eq!(deleted(&set.decide()), ["-web-0"]);
}

fn deleted(decision: &Decision) -> Vec<String> {
    brief(decision)
        .into_iter()
        .filter(|said| said.starts_with('-'))
        .collect()
}

/// An update that overtakes a resize waits for it as if it had asked for it itself.
#[test]
fn r_37_images_wait_also_for_what_an_update_before_has_asked_for() {
    let state = InPlaceState {
        resources: true,
        images: false,
        before: std::collections::BTreeMap::default(),
        ..note("mid", 5)
    };
    let with = |image: &str, cpu: &str| {
        let mut t = template(image);
        t["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
        t
    };
    let set = || {
        policy(advanced(1), "InPlaceIfPossible")
            .spec("/template", with("v2", "2"))
            .no_revisions()
            .revision_of("old", 1, &with("v1", "1"))
            .revision_of("mid", 2, &with("v1", "2"))
            .revision_of("new", 3, &with("v2", "2"))
    };
    let pod = |given| sized("web-0", "mid", 2000, given).annotated(STATE, &state.to_text());
    let begun = patches(&set().pod(pod(1000)).decide());
    let stages: Vec<_> = begun.iter().map(|(stage, ..)| *stage).collect();
    assert_eq!(stages, ["in-place"], "noted, and in service");
    assert!(begun[0].3.get("spec").is_none(), "{}", begun[0].3);
    let noted = state_of(&begun[0].3);
    assert_eq!(noted.next.images["main"], "v2");
    let of_new = |given| sized("web-0", "new", 2000, given).annotated(STATE, &noted.to_text());
    assert!(patches(&set().pod(of_new(1000)).decide()).is_empty());
    let then = patches(&set().pod(of_new(2000)).decide());
    let stages: Vec<_> = then.iter().map(|(stage, ..)| *stage).collect();
    assert_eq!(stages, ["unready", "in-place"]);
}

/// It gets its resources when it starts, for which it may need the new image.
#[test]
fn r_37_the_image_of_a_container_that_does_not_run_waits_for_nothing() {
    let set = || image_and_cpu(1, "InPlaceIfPossible", "1", "2");
    let stuck = sized("web-0", "old", 1000, 1000).unready().detailed(|d| {
        let mut status = d.statuses[0].clone().expect("a status");
        (status.started_at, status.is_ready) = (None, false);
        d.statuses = Box::new([Some(status)]);
    });
    let begun = patches(&set().pod(stuck).decide());
    let stages: Vec<_> = begun.iter().map(|(stage, ..)| *stage).collect();
    assert_eq!(stages, ["unready", "in-place", "resize"]);
    assert_eq!(
        begun[1].3["spec"]["containers"],
        json!([{"name": "main", "image": "v2"}])
    );
}

/// Two containers; `main` runs, and is to have another image and less memory.
#[test]
fn r_37_the_resize_of_a_container_that_runs_comes_first_though_another_is_down() {
    let with = |main: &str, side: &str, memory: &str| {
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [
            {"name": "main", "image": main, "resources": {"limits": {"memory": memory}, "requests": {"memory": "64Mi"}}},
            {"name": "side", "image": side},
        ]}})
    };
    let (old, new) = (with("v1", "s1", "512Mi"), with("v2", "s2", "256Mi"));
    for side_runs in [true, false] {
        let fixture = pod("web-0").revision("old").detailed(|d| {
            *d = detail(&[("main", None), ("side", None)]);
            let spec = Arc::make_mut(&mut d.spec);
            spec.containers[1].image = "s1".into();
            spec.containers[0].resources = of_memory(512);
            let (mut main, mut side) = (container_status("v1"), container_status("s1"));
            main.resources = Some(of_memory(512));
            if !side_runs {
                (side.started_at, side.is_ready, side.restart_count) = (None, false, 12);
            }
            d.statuses = Box::new([Some(main), Some(side)]);
        });
        let cluster = in_place(1)
            .spec("/template", new.clone())
            .no_revisions()
            .revision_of("old", 1, &old)
            .revision_of("new", 2, &new)
            .pod(if side_runs {
                fixture
            } else {
                fixture.unready_since(NOW - 3600)
            });
        let found = patches(&cluster.decide());
        let images = found.iter().filter(|(_, _, part, _)| part.is_empty());
        let images: Vec<_> = images
            .flat_map(|(.., body)| body["spec"]["containers"].as_array().cloned().unwrap_or_default())
            .collect();
        let side = [json!({"name": "side", "image": "s2"})];
        let expected = if side_runs { &[][..] } else { &side };
        assert_eq!(images, expected, "side runs: {side_runs}; the image of main waits");
        assert!(asks_for_resources(&found), "side runs: {side_runs}");
    }
}

/// The image of an update is on its way when the next lowers memory: its container is about to restart.
#[test]
fn r_37_memory_is_not_lowered_while_a_container_is_about_to_restart() {
    let with = |memory: &str| {
        let mut t = template("v2");
        t["spec"]["containers"][0]["resources"] = json!({"limits": {"memory": memory}, "requests": {"memory": "64Mi"}});
        t
    };
    let going = |revision: &str, note: &InPlaceState, runs: Option<&str>| {
        let fixture = out(seen("web-0", revision, "v2")).annotated(STATE, &note.to_text());
        fixture.detailed(|d| {
            Arc::make_mut(&mut d.spec).containers[0].resources = of_memory(512);
            let mut status = container_status(runs.unwrap_or("v1"));
            status.resources = Some(of_memory(512));
            status.started_at = status.started_at.filter(|_| runs.is_some());
            d.statuses = Box::new([Some(status)]);
        })
    };
    for (what, memory, runs, resizes) in [
        ("less", "256Mi", Some("v1"), false),
        ("more", "1Gi", Some("v1"), true),
        ("less, once it has restarted", "256Mi", Some("v2"), true),
        ("less, and it is down", "256Mi", None, true),
    ] {
        let set = |pod: PodFixture| {
            let set = in_place(1).spec("/template", with(memory)).no_revisions();
            let set = set.revision_of("new", 2, &with("512Mi"));
            set.revision_of("newer", 3, &with(memory)).pod(pod)
        };
        let found = patches(&set(going("new", &note("new", 2), runs)).decide());
        assert_eq!(asks_for_resources(&found), resizes, "{what}: {found:#?}");
        if resizes {
            continue;
        }
        let noted = state_of(&found[0].3);
        let waiting = set(going("newer", &noted, runs)).decide();
        assert!(patches(&waiting).is_empty(), "{what}");
        let is_told = |w: &flotilla_model::Wait| matches!(w.cause, WaitCause::InPlaceRestart { .. });
        assert!(waiting.waits.iter().any(is_told), "{what}: {:?}", waiting.waits);
        let then = patches(&set(going("newer", &noted, Some("v2"))).decide());
        assert!(asks_for_resources(&then), "{what}, and has restarted: {then:#?}");
    }
}

/// Taken back in the grace period of another revision: what the node has yet to give is not asked for again when the period ends, and the image
/// waits for it.
#[test]
fn r_37_what_was_asked_for_before_a_grace_period_is_not_asked_for_again_after_it() {
    let grace = json!({
        "revision": "new", "graceSeconds": 5,
        "containerImages": {"main": "v2"}, "containerResources": {"main": {"requests": {"cpu": "2"}}},
    });
    let begun = InPlaceState {
        resources: true,
        asked: [("main".to_owned(), json!({"requests": {"cpu": "2"}}))].into(),
        before: [].into(),
        ..note("new", 60)
    };
    for (cpu, is_asked) in [(2000, false), (1500, true)] {
        let pod = out(sized("web-0", "new", cpu, 1000))
            .annotated(STATE, &begun.to_text())
            .annotated(GRACE, &grace.to_string())
            .detailed(|d| {
                d.resize_pending = Some(ResizePending {
                    is_infeasible: false,
                    message: "no room now".into(),
                    since: Some(at(NOW - 5)),
                });
            });
        let found = patches(&image_and_cpu(1, "InPlaceIfPossible", "1", "2").pod(pod).decide());
        assert_eq!(asks_for_resources(&found), is_asked, "{cpu}: {found:#?}");
        assert!(
            !found
                .iter()
                .any(|(.., body)| body["spec"]["containers"][0]["image"] == "v2"),
            "{found:#?}"
        );
        assert!(!found.is_empty(), "the period is over");
    }
}

fn asks_for_resources(found: &[(&'static str, String, &'static str, Value)]) -> bool {
    found.iter().any(|(_, _, part, _)| *part == "resize")
}

fn of_memory(mebibytes: i64) -> Resources {
    Resources {
        memory_request_bytes: Some(64 << 20),
        memory_limit_bytes: Some(mebibytes << 20),
        ..Resources::default()
    }
}
