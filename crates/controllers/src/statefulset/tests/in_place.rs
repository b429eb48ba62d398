//! Updates in place: which writes, in which stages, and in every state (STS-4.1 to STS-4.7, STS-8.12, STS-8.18, STS-8.19).

mod completion;
mod containers;
mod grace;
mod late;
mod notes;
mod resize;

use crate::shared::inplace::state::State as InPlaceState;
use crate::testing::{Cluster, NOW, PodFixture, advanced, at, brief, container_status, owner, pod, template};
use flotilla_api::names;
use flotilla_model::decision::{Command, Report, Scope, Subresource};
use flotilla_model::records::{ContainerSpec, DetailSpec, GateCondition};
use flotilla_model::{Decision, OwnerRef, WaitCause};
use serde_json::{Value, json};
use std::sync::Arc;

const STATE: &str = names::IN_PLACE_STATE;
const GRACE: &str = names::IN_PLACE_GRACE;

fn policy(cluster: Cluster, policy: &str) -> Cluster {
    cluster.rolling(json!({"podUpdatePolicy": policy, "maxUnavailable": 1}))
}

fn in_place(replicas: i32) -> Cluster {
    policy(advanced(replicas), "InPlaceIfPossible")
}

/// A pod of a revision with one container that runs an image.
fn seen(name: &str, revision: &str, image: &str) -> PodFixture {
    pod(name).revision(revision).detailed(|d| {
        set_image(d, image);
        d.statuses = Box::new([Some(container_status(image))]);
    })
}

fn set_image(detail: &mut flotilla_model::records::PodDetail, image: &str) {
    let spec: &mut DetailSpec = Arc::make_mut(&mut detail.spec);
    spec.containers[0].image = image.into();
}

/// Out of service, as the first write of an update leaves it.
fn out(fixture: PodFixture) -> PodFixture {
    fixture.unready().detailed(|d| {
        d.in_place_ready = Some(GateCondition {
            index: 0,
            is_true: false,
            message: "".into(),
            since: Some(at(NOW - 10)),
        });
    })
}

/// The note of an update to `revision` that began `ago` seconds ago, from image `v1`.
fn note(revision: &str, ago: i64) -> InPlaceState {
    let before = crate::shared::inplace::state::Before::of(Some(&container_status("v1")));
    InPlaceState {
        revision: revision.to_owned(),
        updated_at: at(NOW - ago),
        before: [("main".to_owned(), before)].into(),
        images: true,
        ..InPlaceState::default()
    }
}

/// Patches of a decision: stage, pod, what of it, and the body; JSON patches of the pod itself by what they set.
fn patches(decision: &Decision) -> Vec<(&'static str, String, &'static str, Value)> {
    let mut found = Vec::new();
    for stage in &decision.stages {
        for command in &stage.commands {
            if let Command::Patch {
                key, subresource, body, ..
            } = &command.command
            {
                let part = subresource.map_or("", Subresource::name);
                let body = match subresource {
                    Some(Subresource::Status) => body.clone(),
                    _ => crate::testing::folded(body),
                };
                found.push((stage.name, key.name.to_string(), part, body));
            }
        }
    }
    found
}

fn condition<'a>(body: &'a Value, kind: &str) -> &'a Value {
    let list = body
        .pointer("/status/conditions")
        .and_then(Value::as_array)
        .expect("conditions");
    list.iter().find(|c| c["type"] == kind).unwrap_or(&Value::Null)
}

fn state_of(body: &Value) -> InPlaceState {
    let text = body["metadata"]["annotations"][STATE].as_str().expect("a state");
    InPlaceState::parse(text).expect("it can be read")
}

fn told<'d>(decision: &'d Decision, kind: &str) -> Option<&'d Value> {
    let conditions = decision.status.as_ref()?.desired.get("conditions")?.as_array()?;
    conditions.iter().find(|c| c["type"] == kind)
}

/// A set was deleted with `--cascade=orphan` and made anew with another template, and what is seen of revisions lags behind.
#[test]
fn sts_4_1_a_pod_whose_revision_still_names_a_former_set_goes_in_place() {
    let of = |kind: &str| OwnerRef {
        controller: true,
        ..owner("apps.kruise.io/v1beta1", kind, "web", "a former web")
    };
    let renewed = |owner: OwnerRef| {
        let set = in_place(1).revision_record("web-former", 1, &template("v1"), Some(owner));
        set.pod(seen("web-0", "web-former", "v1")).decide()
    };
    let stages = |decision: &Decision| -> Vec<_> { decision.stages.iter().map(|stage| stage.name).collect() };
    assert_eq!(stages(&renewed(of("StatefulSet"))), ["unready", "in-place"]);
    assert_eq!(
        stages(&renewed(of("CloneSet"))),
        ["delete"],
        "it is of another controller"
    );
}

#[test]
fn sts_4_3_one_pass_writes_out_of_service_and_then_the_pod() {
    let cluster = in_place(2)
        .pod(seen("web-0", "old", "v1"))
        .pod(seen("web-1", "old", "v1"));
    let decision = cluster.decide();
    let found = patches(&decision);
    let places: Vec<_> = found
        .iter()
        .map(|(stage, pod, part, _)| (*stage, pod.as_str(), *part))
        .collect();
    assert_eq!(places, [("unready", "web-1", "status"), ("in-place", "web-1", "")]);
    let unready = &found[0].3;
    assert_eq!(condition(unready, "InPlaceUpdateReady")["reason"], "StartInPlaceUpdate");
    assert_eq!(condition(unready, "InPlaceUpdateReady")["status"], "False");
    assert_eq!(condition(unready, "Ready")["reason"], "ReadinessGatesNotReady");
    let written = &found[1].3;
    assert_eq!(
        written["metadata"]["labels"],
        json!({"controller-revision-hash": "new"})
    );
    assert_eq!(written["spec"]["containers"], json!([{"name": "main", "image": "v2"}]));
    let state = state_of(written);
    assert_eq!(
        (state.revision.as_str(), state.images, state.resources),
        ("new", true, false)
    );
    assert_eq!(state.before["main"].image_id, "id-of-v1");
    assert_eq!(state.before["main"].restart_count, Some(0));
    assert!(
        decision
            .commands()
            .all(|c| matches!(&c.scope, flotilla_model::Scope::Slot(1)))
    );
}

#[test]
fn sts_4_2_a_change_that_cannot_be_made_in_place() {
    let mut wanted = template("v2");
    wanted["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": "b"}]);
    let cluster = |of: &str| {
        policy(advanced(2), of)
            .spec("/template", wanted.clone())
            .no_revisions()
            .revision("old", 1, "v1")
            .revision_of("new", 2, &wanted)
            .pod(seen("web-0", "old", "v1"))
            .pod(seen("web-1", "old", "v1"))
    };
    assert_eq!(brief(&cluster("InPlaceIfPossible").decide()), ["-web-1"]);
    let barred = cluster("InPlaceOnly").decide();
    assert_eq!(brief(&barred), [] as [&str; 0]);
    let said = barred
        .waits
        .iter()
        .filter(|w| matches!(w.cause, WaitCause::InPlaceNotPossible { .. }));
    assert_eq!(said.count(), 2, "it goes on with the others");
    let condition = told(&barred, "FailedUpdatePod").expect("a condition");
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("True"), &json!("InPlaceNotPossible"))
    );
    assert!(
        condition["message"]
            .as_str()
            .is_some_and(|m| m.contains("spec.containers[0].env was added"))
    );
    assert_eq!(brief(&cluster("ReCreate").decide()), ["-web-1"]);
}

#[test]
fn sts_4_1_a_revision_that_is_gone_is_made_again() {
    assert_eq!(
        brief(&in_place(1).pod(seen("web-0", "forgotten", "v1")).decide()),
        ["-web-0"]
    );
}

#[test]
fn sts_3_5_new_pods_get_their_conditions_at_once_in_every_strategy() {
    let fresh = |name: &str| {
        pod(name).revision("new").never_ready().detailed(|d| {
            d.in_place_ready = None;
            d.kruise_ready = None;
        })
    };
    for cluster in [
        advanced(1).spec("/updateStrategy/type", json!("OnDelete")),
        advanced(1).rolling(json!({"paused": true})),
        in_place(1).ordered(),
    ] {
        let found = patches(&cluster.pod(fresh("web-0")).decide());
        assert_eq!(found.len(), 1);
        for kind in ["InPlaceUpdateReady", "KruisePodReady"] {
            assert_eq!(condition(&found[0].3, kind)["status"], "True");
        }
        assert!(
            condition(&found[0].3, "Ready").is_null(),
            "that it is ready says the kubelet (STS-8.12)"
        );
    }
}

#[test]
fn sts_3_5_without_hooks_a_new_pod_has_no_state() {
    let decision = advanced(1).decide();
    let create = decision.commands().find_map(|c| match &c.command {
        Command::Create { body, .. } => Some(body.render()),
        _ => None,
    });
    let pod = create.expect("a pod is created");
    assert_eq!(pod["metadata"]["labels"].get(names::LIFECYCLE_STATE_LABEL), None);
}

#[test]
fn sts_4_5_batches_follow_when_containers_are_ready() {
    let two = |c: &str, s: &str| {
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [
            {"name": "main", "image": c}, {"name": "side", "image": s},
        ]}})
    };
    let cluster = || {
        in_place(1)
            .spec("/template", two("v2", "v2"))
            .no_revisions()
            .revision_of("old", 1, &two("v1", "v1"))
            .revision_of("new", 2, &two("v2", "v2"))
    };
    let fixture = |revision: &str, images: [&str; 2], ready: bool| {
        pod("web-0").revision(revision).detailed(|d| {
            let spec = |name: &str, image: &str, priority| ContainerSpec {
                name: name.into(),
                image: image.into(),
                priority: Some(priority),
                ..ContainerSpec::default()
            };
            Arc::make_mut(&mut d.spec).containers = vec![spec("main", images[0], 0), spec("side", images[1], 1)];
            let mut side = container_status(images[1]);
            side.is_ready = ready;
            d.statuses = Box::new([Some(container_status(images[0])), Some(side)]);
        })
    };
    let found = patches(&cluster().pod(fixture("old", ["v1", "v1"], true)).decide());
    let body = &found[1].3;
    assert_eq!(
        body["spec"]["containers"],
        json!([{"name": "side", "image": "v2"}]),
        "the highest priority first"
    );
    let text = state_of(body).to_text();
    assert_eq!(state_of(body).next.images["main"], "v2");
    let waiting = cluster()
        .pod(out(fixture("new", ["v1", "v2"], false)).annotated(STATE, &text))
        .decide();
    assert_eq!(brief(&waiting), [] as [&str; 0]);
    assert!(
        waiting
            .waits
            .iter()
            .any(|w| matches!(&w.cause, WaitCause::InPlaceBatch { containers } if containers == &["side"]))
    );
    let next = patches(
        &cluster()
            .pod(out(fixture("new", ["v1", "v2"], true)).annotated(STATE, &text))
            .decide(),
    );
    assert_eq!(next.len(), 1);
    assert_eq!(
        next[0].3["spec"]["containers"],
        json!([{"name": "main", "image": "v2"}])
    );
    assert!(state_of(&next[0].3).next.is_empty());
}

#[test]
fn keep_ready_containers_change_without_leaving_service_and_count_as_unavailable() {
    let cluster = in_place(2).annotation("flotilla.rs/keep-ready-containers", "main");
    let found = patches(
        &cluster
            .clone()
            .pod(seen("web-0", "old", "v1"))
            .pod(seen("web-1", "old", "v1"))
            .decide(),
    );
    assert_eq!(
        found
            .iter()
            .map(|(stage, pod, ..)| (*stage, pod.as_str()))
            .collect::<Vec<_>>(),
        [("in-place", "web-1")]
    );
    let text = state_of(&found[0].3).to_text();
    let going = seen("web-1", "new", "v2").detailed(|d| d.statuses = Box::new([Some(container_status("v1"))]));
    let decision = cluster
        .pod(seen("web-0", "old", "v1"))
        .pod(going.annotated(STATE, &text))
        .decide();
    assert_eq!(brief(&decision), [] as [&str; 0], "the budget is used");
}

/// From v2 to v0 and back, in service: the kubelet may still be about to end the container of v2.
#[test]
fn sts_4_4_and_4_6_a_container_kept_ready_counts_as_unavailable_until_what_was_overtaken_is_off_the_table() {
    let mut overtook = note("new", 5);
    overtook.kept_ready = true;
    overtook.before.get_mut("main").expect("it is noted").superseded = vec!["v0".to_owned()];
    let hashes = json!({"plainHash": flotilla_model::containers_meta::plain_hash("main", "v2")});
    let meta = json!({"containers": [{"name": "main", "containerID": "containerd://1", "hashes": hashes}]}).to_string();
    for (observed, agent, expected) in [
        (2, "", &[][..]),
        (2, &*meta, &[]),
        (3, "", &["~pod web-0"]),
        (3, &meta, &["~pod web-0"]),
    ] {
        let returned = seen("web-1", "new", "v2")
            .annotated(STATE, &overtook.to_text())
            .annotated(names::RUNTIME_CONTAINERS_META, agent)
            .detailed(|d| (d.observed_generation, d.generation) = (observed, 3));
        let cluster = in_place(2).annotation("flotilla.rs/keep-ready-containers", "main");
        let decision = cluster.pod(seen("web-0", "old", "v1")).pod(returned).decide();
        assert_eq!(brief(&decision), expected, "it has seen generation {observed}");
    }
}

#[test]
fn sts_i8_a_settled_pod_with_a_state_is_left_alone() {
    let settled = seen("web-0", "new", "v2").annotated(STATE, &note("new", 300).to_text());
    let decision = in_place(1)
        .status("/currentRevision", json!("new"))
        .pod(settled)
        .decide();
    assert_eq!((brief(&decision).len(), decision.waits.len()), (0, 0));
}

/// What takes a pod out of service for an update is refused only once it is out: so it is tried before.
#[test]
fn r_31_no_pod_leaves_service_in_place_for_a_revision_of_which_none_was_accepted() {
    let set = |fixture: PodFixture| {
        let mut set = in_place(2).pod(seen("web-0", "old", "v1")).pod(fixture);
        set.hints.accepted.clear();
        set
    };
    let serves = || set(seen("web-1", "old", "v1"));
    assert_eq!(brief(&serves().decide()), ["(web-1)"]);
    let told = |reason: &str| {
        let scope = Scope::Acceptance("new".to_owned());
        patches(&super::refused(serves(), scope, Report::Try, reason).decide()).len()
    };
    assert_eq!(told("Invalid"), 0);
    assert!(told("QuotaExceeded") > 0, "it keeps its room");
    let broken = set(seen("web-1", "old", "v1").unready()).decide();
    assert!(!patches(&broken).is_empty(), "it serves nobody: {:?}", brief(&broken));
}

/// Copied from a pod into the template: the Service of one pod would select another, too.
#[test]
fn sts_1_3_2_what_a_pod_is_known_by_reaches_no_other_from_the_template() {
    let mut new = template("v2");
    for key in [
        names::POD_NAME_LABEL,
        names::POD_INDEX_LABEL,
        names::REVISION_LABEL,
        names::MADE_AS_LABEL,
    ] {
        new["metadata"]["labels"][key] = json!("zero");
    }
    // It means nothing to a StatefulSet.
    new["metadata"]["labels"][names::INSTANCE_ID_LABEL] = json!("abcde");
    new["metadata"]["annotations"] = json!({names::RUNTIME_CONTAINERS_META: "{}"});
    let set = |from: &Value, to: &Value| {
        policy(advanced(1), "InPlaceIfPossible")
            .spec("/template", to.clone())
            .no_revisions()
            .revision_of("old", 1, from)
            .revision_of("new", 2, to)
            .pod(seen("web-0", "old", "v1"))
    };
    let changed = |from: &Value, to: &Value| {
        let found = patches(&set(from, to).decide());
        let of_pod = found.into_iter().find(|(stage, ..)| *stage == "in-place");
        of_pod.expect("the change").3["metadata"].clone()
    };
    let plain = template("v1");
    let metadata = changed(&plain, &new);
    assert_eq!(metadata["labels"][names::REVISION_LABEL], "new");
    assert_eq!(metadata["labels"][names::INSTANCE_ID_LABEL], "abcde");
    for metadata in [metadata, changed(&new, &plain)] {
        for key in [names::POD_NAME_LABEL, names::POD_INDEX_LABEL, names::MADE_AS_LABEL] {
            assert!(metadata["labels"].get(key).is_none(), "{key}: {metadata}");
        }
        assert!(
            metadata["annotations"].get(names::RUNTIME_CONTAINERS_META).is_none(),
            "{metadata}"
        );
    }
}
