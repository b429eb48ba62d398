//! Updates in place of CloneSets: what other managers left behind, updates that are given up, and hooks (CS-12.6, CS-16.7 and CS-19, and
//! STS-4).

use super::{name, one, said};
use crate::shared::inplace::state::{Before, State as InPlaceState};
use crate::testing::{Cluster, NOW, PodFixture, at, clones, container_status, folded, template};
use flotilla_api::names;
use flotilla_model::decision::{Command, Report, Scope, Subresource};
use flotilla_model::records::{ResizePending, Resources};
use flotilla_model::{Decision, Failure, WaitCause};
use serde_json::{Value, json};
use std::sync::Arc;

fn policy(replicas: i32, policy: &str) -> Cluster {
    let rolling = json!({"podUpdatePolicy": policy, "maxUnavailable": 1});
    clones(replicas).spec("/updateStrategy/rollingUpdate", rolling)
}

fn in_place(replicas: i32) -> Cluster {
    policy(replicas, "InPlaceIfPossible")
}

/// Runs this image and has it in its spec.
fn running(fixture: PodFixture, image: &str) -> PodFixture {
    fixture.detailed(|d| {
        Arc::make_mut(&mut d.spec).containers[0].image = image.into();
        d.statuses = Box::new([Some(container_status(image))]);
    })
}

/// Out of service, as the first write of an update leaves it.
fn out(fixture: PodFixture) -> PodFixture {
    fixture.unready().detailed(|d| {
        let gate = d.in_place_ready.as_mut().expect("the gate");
        (gate.is_true, gate.since) = (false, Some(at(NOW - 60)));
    })
}

/// The note of an update to `revision` that began a minute ago, from image `v1`.
fn note(revision: &str) -> InPlaceState {
    let before = Before::of(Some(&container_status("v1")));
    InPlaceState {
        revision: revision.to_owned(),
        updated_at: at(NOW - 60),
        before: [("main".to_owned(), before)].into(),
        images: true,
        ..InPlaceState::default()
    }
}

/// Patches of pods: subresource, what tests hold, and the body; JSON patches by what they set.
fn patches(decision: &Decision) -> Vec<(&'static str, Value, Value)> {
    let all = decision.commands().filter_map(|c| match &c.command {
        Command::Patch { subresource, body, .. } => {
            let part = subresource.map_or("", Subresource::name);
            let is_json = body.is_array();
            let set = if is_json { folded(body) } else { body.clone() };
            Some((part, body.clone(), set))
        }
        _ => None,
    });
    all.collect()
}

/// What a JSON patch tests of the revision label.
fn tested_label(body: &Value) -> Option<&str> {
    let mut operations = body.as_array().into_iter().flatten();
    let found = operations.find(|o| o["op"] == "test" && o["path"] == "/metadata/labels/controller-revision-hash");
    found?["value"].as_str()
}

/// With gate `CloneSetShortHash`, OpenKruise labels pods with the hash alone, and notes the revision's name; without it, and on both, names.
const LABELS_AND_NOTES: [(&str, &str); 4] = [
    ("new", "web-new"),
    ("new", "new"),
    ("web-new", "new"),
    ("web-new", "web-new"),
];

#[test]
fn cs_12_6_a_grace_period_that_was_begun_under_either_gate_ends_with_the_change() {
    for (label, noted) in LABELS_AND_NOTES {
        let grace = json!({"revision": noted, "containerImages": {"main": "v2"}, "graceSeconds": 30}).to_string();
        let waiting = out(running(one(&name(0), "o").revision(label), "v1"))
            .annotated(names::IN_PLACE_STATE, &note(noted).to_text())
            .annotated(names::IN_PLACE_GRACE, &grace);
        let found = patches(&in_place(1).pod(waiting).decide());
        let changed = found.iter().find(|(part, ..)| part.is_empty());
        let (_, body, set) = changed.expect("the change");
        assert_eq!(
            set["spec"]["containers"],
            json!([{"name": "main", "image": "v2"}]),
            "{label} {noted}"
        );
        assert_eq!(tested_label(body), Some(label), "{label} {noted}");
    }
}

#[test]
fn cs_12_6_an_update_that_was_begun_under_either_gate_is_waited_for() {
    for (label, noted) in LABELS_AND_NOTES {
        // Its spec has the new image, and the old one runs.
        let begun = out(one(&name(0), "n").revision(label))
            .detailed(|d| d.statuses = Box::new([Some(container_status("v1"))]))
            .annotated(names::IN_PLACE_STATE, &note(noted).to_text());
        let decision = in_place(1).pod(begun).decide();
        assert_eq!(said(&decision), [] as [&str; 0], "{label} {noted}");
        let is_said = |w: &flotilla_model::Wait| matches!(w.cause, WaitCause::InPlaceRestart { .. });
        assert!(decision.waits.iter().any(is_said), "{label} {noted}");
    }
}

#[test]
fn cs_12_6_further_batches_of_an_update_under_either_gate_follow() {
    for (label, noted) in LABELS_AND_NOTES {
        let mut state = note(noted);
        state.resources = true;
        let resources = json!({"requests": {"cpu": "2"}});
        state.next.resources.insert("main".to_owned(), resources.clone());
        let begun = out(one(&name(0), "n").revision(label)).annotated(names::IN_PLACE_STATE, &state.to_text());
        let found = patches(&in_place(1).pod(begun).decide());
        let (_, body, set) = found.iter().find(|(part, ..)| *part == "resize").expect("a resize");
        assert_eq!(set["spec"]["containers"][0]["resources"], resources, "{label} {noted}");
        assert_eq!(tested_label(body), Some(label), "{label} {noted}: as it is stored");
    }
}

/// The names of pods that are marked to be made again.
fn marked(decision: &Decision) -> Vec<String> {
    let all = decision.commands().filter_map(|c| match &c.command {
        Command::Patch { key, report, .. } if *report == Report::ReCreate => Some(key.name.to_string()),
        _ => None,
    });
    all.collect()
}

/// In the middle of an update whose image never comes up.
fn hanging(n: usize) -> PodFixture {
    let begun = out(one(&name(n), "n")).label(names::LIFECYCLE_STATE_LABEL, "Updating");
    begun
        .detailed(|d| d.statuses = Box::new([Some(container_status("v1"))]))
        .annotated(names::IN_PLACE_STATE, &note("web-new").to_text())
}

/// In a grace period for which nobody can read any more.
fn lost(n: usize) -> PodFixture {
    out(running(one(&name(n), "n"), "v1"))
        .annotated(names::IN_PLACE_STATE, &note("web-new").to_text())
        .annotated(names::IN_PLACE_GRACE, "{")
}

fn with_deadline(cluster: Cluster) -> Cluster {
    cluster
        .annotation(names::IN_PLACE_DEADLINE_SECONDS, "30")
        .annotation(names::IN_PLACE_DEADLINE_ACTION, "recreate")
}

/// It is unavailable already, so nothing else goes down for it; those that are being made again count, and one goes at a time.
#[test]
fn sts_4_6_and_8_12_a_pod_that_is_given_up_does_not_use_the_budget_for_itself() {
    for (what, given_up) in [("deadline", hanging as fn(usize) -> PodFixture), ("grace", lost)] {
        let set = || with_deadline(in_place(3));
        let decision = set()
            .pod(given_up(0))
            .pod(one(&name(1), "n"))
            .pod(one(&name(2), "n"))
            .decide();
        assert_eq!(marked(&decision), [name(0)], "{what}");
        let two = set().pod(given_up(0)).pod(given_up(1)).pod(one(&name(2), "n")).decide();
        assert_eq!(marked(&two).len(), 1, "{what}: one at a time");
        let waits = set().pod(given_up(0).label(names::SPECIFIED_DELETE_LABEL, "true"));
        let waits = waits.pod(given_up(1)).pod(one(&name(2), "n")).decide();
        assert_eq!(marked(&waits), [] as [&str; 0], "{what}: the first is on its way");
        let broken = set()
            .pod(given_up(0))
            .pod(one(&name(1), "nx"))
            .pod(one(&name(2), "n"))
            .decide();
        assert_eq!(marked(&broken), [] as [&str; 0], "{what}: another new pod is down");
    }
}

/// R-21: a manager that has just begun to watch does not know that it is over.
#[test]
fn what_is_stuck_is_not_called_recovered_by_another_manager() {
    let told_before = json!([{"type": "InPlaceUpdateStuck", "status": "True", "reason": "DeadlineExceeded"}]);
    let mut cluster = with_deadline(policy(2, "InPlaceOnly")).status("/conditions", told_before);
    cluster.observing_since = cluster.now;
    let status = |cluster: Cluster| {
        let status = cluster.decide().status.expect("a status").desired;
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        conditions
            .find(|c| c["type"] == "InPlaceUpdateStuck")
            .map(|c| c["status"].clone())
    };
    let stays = cluster.clone().pod(hanging(0)).pod(one(&name(1), "n"));
    assert_ne!(status(stays), Some(json!("False")), "it is as stuck as before");
    let over = cluster.pod(one(&name(0), "n")).pod(one(&name(1), "n"));
    assert_eq!(status(over), Some(json!("False")));
}

#[test]
fn sts_4_1_in_place_only_makes_no_pod_again() {
    for given_up in [hanging(0), lost(0)] {
        let set = with_deadline(policy(2, "InPlaceOnly"));
        let cluster = set.pod(given_up).pod(one(&name(1), "n"));
        let decision = cluster.decide();
        assert_eq!(said(&decision), [] as [&str; 0]);
        let status = decision.status.expect("a status").desired;
        let conditions = status["conditions"].as_array().expect("conditions");
        let told = |kind: &str| conditions.iter().any(|c| c["type"] == kind && c["status"] == "True");
        assert!(told("FailedUpdate") || told("InPlaceUpdateStuck"), "{conditions:?}");
    }
    // What is not known is not claimed to be done by the next revision either.
    let cluster = policy(2, "InPlaceOnly")
        .revision("web-newest", 3, "v3")
        .spec("/template", template("v3"));
    let decision = cluster.pod(lost(0)).pod(one(&name(1), "nx")).decide();
    let touched: Vec<String> = said(&decision).into_iter().filter(|s| s.contains(&name(0))).collect();
    assert_eq!(touched, [] as [&str; 0]);
}

/// A container's environment takes label `role`; from `a` to `b`.
fn from_metadata(replicas: i32, policy_name: &str) -> Cluster {
    let with = |role: &str| {
        let mut t = template("v2");
        t["metadata"]["labels"]["role"] = json!(role);
        let field = json!({"fieldRef": {"fieldPath": "metadata.labels['role']"}});
        t["spec"]["containers"][0]["env"] = json!([{"name": "ROLE", "valueFrom": field}]);
        t
    };
    policy(replicas, policy_name)
        .spec("/template", with("b"))
        .no_revisions()
        .revision_of("web-old", 1, &with("a"))
        .revision_of("web-new", 2, &with("b"))
}

fn without_gate(fixture: PodFixture) -> PodFixture {
    fixture.detailed(|d| {
        let spec = Arc::make_mut(&mut d.spec);
        spec.gates.retain(|gate| &**gate != names::IN_PLACE_UPDATE_READY);
        d.in_place_ready = None;
    })
}

/// The agent restarts a container only out of service.
#[test]
fn cs_16_7_environment_from_metadata_changes_in_place_only_with_the_gate() {
    let old = || running(one(&name(0), "o"), "v2").label("role", "a");
    let gated = from_metadata(1, "InPlaceIfPossible").pod(old()).decide();
    assert_eq!(marked(&gated), [] as [&str; 0]);
    assert_eq!(patches(&gated).len(), 2, "out of service, and the change");
    let bare = from_metadata(1, "InPlaceIfPossible").pod(without_gate(old())).decide();
    assert_eq!(said(&bare).len(), 1);
    assert_eq!(marked(&bare), [name(0)], "made again");
    let only = from_metadata(1, "InPlaceOnly").pod(without_gate(old())).decide();
    assert_eq!(said(&only), [] as [&str; 0]);
    let is_told = |w: &flotilla_model::Wait| matches!(&w.cause, WaitCause::InPlaceNotPossible { reason } if reason.contains("InPlaceUpdateReady"));
    assert!(only.waits.iter().any(is_told), "{:?}", only.waits);
}

/// As an earlier release left it: changed, and nobody restarts it.
#[test]
fn cs_16_7_an_environment_that_nobody_will_change_is_not_waited_for() {
    let state = InPlaceState {
        revision: "web-new".to_owned(),
        updated_at: at(NOW - 60),
        env_from_metadata: true,
        ..InPlaceState::default()
    };
    let begun =
        || without_gate(one(&name(0), "n").label("role", "b")).annotated(names::IN_PLACE_STATE, &state.to_text());
    let decision = from_metadata(1, "InPlaceIfPossible").pod(begun()).decide();
    assert_eq!(marked(&decision), [name(0)]);
    let only = from_metadata(1, "InPlaceOnly").pod(begun()).decide();
    assert_eq!(said(&only), [] as [&str; 0]);
    let is_told = |w: &flotilla_model::Wait| matches!(w.cause, WaitCause::InPlaceNotPossible { .. });
    assert!(only.waits.iter().any(is_told), "{:?}", only.waits);
}

/// The state of its lifecycle that the first pod gets.
fn next_state(decision: &Decision) -> Option<String> {
    patches(decision).into_iter().find_map(|(_, _, set)| {
        let labels = set.pointer("/metadata/labels")?.as_object()?.clone();
        labels.get(names::LIFECYCLE_STATE_LABEL)?.as_str().map(str::to_owned)
    })
}

/// Whoever drained it has to say that it serves again.
#[test]
fn r_28_what_was_prepared_and_is_let_go_waits_for_its_markers() {
    let hook = json!({"labelsHandler": {"serves": "yes"}});
    let hooked = |cluster: Cluster| {
        cluster
            .spec("/lifecycle/inPlaceUpdate", hook.clone())
            .spec("/lifecycle/preDelete", hook.clone())
    };
    let kept = || hooked(in_place(1).spec("/updateStrategy/rollingUpdate/partition", json!(1)));
    let paused = || hooked(in_place(1).spec("/updateStrategy/rollingUpdate/paused", json!(true)));
    let prepared = |marks: &str, state: &str, drained: bool| {
        let fixture = one(&name(0), marks).label(names::LIFECYCLE_STATE_LABEL, state);
        if drained {
            fixture
        } else {
            fixture.label("serves", "yes")
        }
    };
    for (what, cluster, marks, state) in [
        ("rolled back", hooked(in_place(1)), "n", "PreparingUpdate"),
        ("kept by the partition", kept(), "o", "PreparingUpdate"),
        ("kept by a pause", paused(), "o", "PreparingUpdate"),
        ("wanted again", hooked(in_place(1)), "n", "PreparingDelete"),
    ] {
        for (drained, expected) in [(true, "Updated"), (false, "Normal")] {
            if state == "PreparingDelete" && !drained {
                continue;
            }
            let decision = cluster.clone().pod(prepared(marks, state, drained)).decide();
            assert_eq!(
                next_state(&decision).as_deref(),
                Some(expected),
                "{what}, drained: {drained}"
            );
        }
    }
    // Without a hook for updates nobody would say it.
    let plain = in_place(1).spec("/lifecycle/preDelete", hook.clone());
    let decision = plain.pod(prepared("n", "PreparingDelete", true)).decide();
    assert_ne!(next_state(&decision).as_deref(), Some("Updated"));
    // Back in service when the markers are back.
    for (serves, expected) in [(false, None), (true, Some("Normal"))] {
        let decision = kept().pod(prepared("o", "Updated", !serves)).decide();
        assert_eq!(next_state(&decision).as_deref(), expected);
    }
}

/// From image v1 with 1 of cpu to image v2 with twice as much.
fn image_and_cpu(replicas: i32, policy_name: &str) -> Cluster {
    image_and_cpu_of(replicas, policy_name, ("1", "2"))
}

/// From image v1 to image v2, and from one amount of cpu to another.
fn image_and_cpu_of(replicas: i32, policy_name: &str, (from, to): (&str, &str)) -> Cluster {
    let with = |image: &str, cpu: &str| {
        let mut t = template(image);
        t["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
        t
    };
    policy(replicas, policy_name)
        .spec("/template", with("v2", to))
        .no_revisions()
        .revision_of("web-old", 1, &with("v1", from))
        .revision_of("web-new", 2, &with("v2", to))
}

/// With this much cpu in its spec, and this much as the kubelet says.
fn sized(fixture: PodFixture, asked: i64, given: i64) -> PodFixture {
    let of = |millis| Resources {
        cpu_request_millis: Some(millis),
        ..Resources::default()
    };
    fixture.detailed(|d| {
        Arc::make_mut(&mut d.spec).containers[0].resources = of(asked);
        let mut status = d.statuses[0].clone().expect("a status");
        status.resources = Some(of(given));
        d.statuses = Box::new([Some(status)]);
    })
}

/// Stages, parts and pods of what is patched.
fn places(decision: &Decision) -> Vec<(&'static str, &'static str, Report)> {
    let mut found = Vec::new();
    for stage in &decision.stages {
        for command in &stage.commands {
            if let Command::Patch {
                subresource, report, ..
            } = &command.command
            {
                found.push((stage.name, subresource.map_or("", Subresource::name), *report));
            }
        }
    }
    found
}

/// The note that a first pass leaves on the pod.
fn first_note(cluster: Cluster, fixture: PodFixture) -> String {
    let found = patches(&cluster.pod(fixture).decide());
    let noted = found
        .iter()
        .find_map(|(_, _, set)| set["metadata"]["annotations"][names::IN_PLACE_STATE].as_str());
    noted.expect("a note").to_owned()
}

/// It has its new resources, serves, and has to leave service for its image: with no budget, since the set has changed meanwhile, the surge is
/// the only way.
#[test]
fn cs_13_6_and_r_37_a_pod_in_the_midst_of_its_update_gets_the_surge_where_there_is_no_budget() {
    let set = |unavailable: i32| {
        let set = image_and_cpu_of(2, "InPlaceIfPossible", ("1", "2"));
        set.spec("/updateStrategy/rollingUpdate/maxUnavailable", json!(unavailable))
            .spec("/updateStrategy/rollingUpdate/maxSurge", json!(1))
            .status("/currentRevision", json!("web-new"))
    };
    let old = sized(running(one(&name(0), "o"), "v1"), 1000, 1000);
    let text = first_note(image_and_cpu_of(1, "InPlaceIfPossible", ("1", "2")), old);
    let midst = || sized(running(one(&name(0), "n"), "v1"), 2000, 2000).annotated(names::IN_PLACE_STATE, &text);
    let other = |n: usize| sized(one(&name(n), "n"), 2000, 2000);
    let waiting = set(0).pod(midst()).pod(other(1)).decide();
    let made = |d: &Decision| said(d).iter().filter(|s| s.starts_with("create")).count();
    assert_eq!(made(&waiting), 1, "{:?}", said(&waiting));
    let there = set(0).pod(midst()).pod(other(1)).pod(other(2)).decide();
    assert_eq!(
        (made(&there), patches(&there).is_empty()),
        (0, false),
        "{:?}",
        said(&there)
    );
    // It has stored something, and what is made for it has not.
    let with_claims = set(0).claim_templates(&["data"]).pod(midst()).pod(other(1)).decide();
    let is_noted = |command: &Command| match command {
        Command::Create {
            resource: flotilla_model::Resource::Pods,
            body,
            ..
        } => !body.render()["metadata"]["annotations"][names::MADE_AS_SURGE].is_null(),
        _ => false,
    };
    assert!(
        with_claims.commands().any(|c| is_noted(&c.command)),
        "{:?}",
        said(&with_claims)
    );
    let budget = set(1).pod(midst()).pod(other(1)).decide();
    assert_eq!(
        (made(&budget), patches(&budget).is_empty()),
        (0, false),
        "{:?}",
        said(&budget)
    );
}

/// A kubelet refuses for ever to lower the memory of a container that is just restarting.
#[test]
fn r_37_resources_are_changed_and_confirmed_before_images() {
    resources_come_first(("1", 1000), ("2", 2000));
    resources_come_first(("2", 2000), ("1", 1000));
}

fn resources_come_first((from, was): (&str, i64), (to, will): (&str, i64)) {
    let set = || image_and_cpu_of(1, "InPlaceIfPossible", (from, to));
    let old = || sized(running(one(&name(0), "o"), "v1"), was, was);
    let begun = set().pod(old()).decide();
    assert_eq!(
        places(&begun),
        [("in-place", "", Report::Silent), ("resize", "resize", Report::InPlace)],
        "noted, asked for, and in service meanwhile"
    );
    let found = patches(&begun);
    assert!(found[0].2.get("spec").is_none(), "{}", found[0].2);
    let main = &found[1].2["spec"]["containers"][0];
    assert_eq!(main, &json!({"name": "main", "resources": {"requests": {"cpu": to}}}));
    let text = first_note(set(), old());
    let noted = |asked, given| {
        let new = running(one(&name(0), "n"), "v1");
        sized(new, asked, given).annotated(names::IN_PLACE_STATE, &text)
    };
    let asked = set().pod(noted(will, was)).decide();
    assert_eq!(said(&asked), [] as [&str; 0], "not confirmed yet");
    let refusing = noted(will, was).detailed(|d| d.resize_in_progress = Some("it is just restarting".into()));
    let waits = set().pod(refusing).decide().waits;
    let shows = |w: &flotilla_model::Wait| matches!(&w.cause, WaitCause::InPlaceResize { message } if message == "it is just restarting");
    assert!(waits.iter().any(shows), "the kubelet's words: {waits:?}");
    let given = set().pod(noted(will, will)).decide();
    assert_eq!(
        places(&given),
        [("unready", "status", Report::Silent), ("in-place", "", Report::InPlace)],
        "out of service for the image"
    );
    let changed = &patches(&given)[1].2;
    assert_eq!(changed["spec"]["containers"], json!([{"name": "main", "image": "v2"}]));
    let after = changed["metadata"]["annotations"][names::IN_PLACE_STATE]
        .as_str()
        .expect("a note");
    let after = InPlaceState::parse(after).expect("it can be read");
    assert!(after.next.is_empty() && after.before.contains_key("main"), "{after:?}");
}

/// Who was down before may have come up meanwhile, and nobody paid for it.
#[test]
fn r_37_who_is_down_leaves_service_first() {
    let down = sized(running(one(&name(0), "ox"), "v1"), 1000, 1000);
    let decision = image_and_cpu(1, "InPlaceIfPossible").pod(down).decide();
    let stages: Vec<_> = places(&decision).into_iter().map(|(stage, ..)| stage).collect();
    assert_eq!(stages, ["unready", "in-place", "resize"]);
    assert!(patches(&decision)[1].2.get("spec").is_none());
}

#[test]
fn r_37_an_infeasible_resize_changes_no_image() {
    for (policy_name, expected) in [("InPlaceIfPossible", vec![name(0)]), ("InPlaceOnly", vec![])] {
        let set = || image_and_cpu(1, policy_name);
        let text = first_note(set(), sized(running(one(&name(0), "o"), "v1"), 1000, 1000));
        let infeasible = sized(running(one(&name(0), "n"), "v1"), 2000, 1000)
            .annotated(names::IN_PLACE_STATE, &text)
            .detailed(|d| {
                d.resize_pending = Some(ResizePending {
                    is_infeasible: true,
                    message: "too big".into(),
                    since: Some(at(NOW - 5)),
                });
            });
        let decision = set().pod(infeasible).decide();
        assert_eq!(marked(&decision), expected, "{policy_name}");
        assert_eq!(said(&decision).len(), expected.len(), "{policy_name}");
    }
}

/// Asked again and again, it was refused 85 times a second, with as many empty patches, and told as a success.
#[test]
fn r_37_a_refused_resize_is_not_asked_for_again() {
    for (reason, policy_name, busy) in [
        (Failure::NODE_TOO_SMALL, "InPlaceIfPossible", false),
        (Failure::INVALID, "InPlaceIfPossible", false),
        (Failure::NODE_TOO_SMALL, "InPlaceIfPossible", true),
        (Failure::INVALID, "InPlaceIfPossible", true),
        (Failure::NODE_TOO_SMALL, "InPlaceOnly", false),
    ] {
        let set = || image_and_cpu(2, policy_name);
        let text = first_note(
            image_and_cpu(1, policy_name),
            sized(running(one(&name(0), "o"), "v1"), 1000, 1000),
        );
        let noted = sized(running(one(&name(0), "n"), "v1"), 1000, 1000).annotated(names::IN_PLACE_STATE, &text);
        let other = if busy { "nx" } else { "n" };
        let mut cluster = set().pod(noted).pod(sized(one(&name(1), other), 2000, 2000));
        let failure = Failure::follow(None, Report::InPlace, reason.to_owned(), "no".to_owned(), at(NOW));
        cluster.hints.failures.insert(Scope::Named(name(0)), failure);
        let is_recreated = policy_name == "InPlaceIfPossible" && !busy;
        let expected = if is_recreated { vec![name(0)] } else { vec![] };
        for now in [NOW, NOW + 5, NOW + 3_600] {
            cluster.now = at(now);
            let decision = cluster.decide();
            let what = format!("{reason} {policy_name} {busy} {}", now - NOW);
            assert_eq!(marked(&decision), expected, "{what}");
            assert_eq!(said(&decision).len(), expected.len(), "{what}: nothing else is written");
            assert!(
                decision.waits.iter().any(|w| w.subject == name(0)),
                "{what}: it is said"
            );
            cluster.hints = decision.hints.unwrap_or(cluster.hints);
        }
    }
}

/// A pod at the update revision whose resize was refused, so that it has to be made again, and old ones beside it; which others begin.
fn begun_beside_a_refused_resize(partition: i32, is_accepted: bool) -> usize {
    let set = |replicas| {
        let cpu = |cpu: &str| {
            let mut t = template("v1");
            t["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
            t
        };
        policy(replicas, "InPlaceIfPossible")
            .spec("/template", cpu("2"))
            .no_revisions()
            .revision_of("web-old", 1, &cpu("1"))
            .revision_of("web-new", 2, &cpu("2"))
            .spec("/updateStrategy/rollingUpdate/maxUnavailable", json!(3))
    };
    let text = first_note(set(1), sized(running(one(&name(0), "o"), "v1"), 1000, 1000));
    let old = |n: usize| sized(running(one(&name(n), "o"), "v1"), 1000, 1000);
    let again = sized(running(one(&name(0), "n"), "v1"), 1000, 1000).annotated(names::IN_PLACE_STATE, &text);
    let again = again.unready();
    let set = set(6).spec("/updateStrategy/rollingUpdate/partition", json!(partition));
    let mut cluster = (1..6).fold(set.pod(again), |cluster, n| cluster.pod(old(n)));
    let failure = Failure::follow(
        None,
        Report::InPlace,
        Failure::INVALID.to_owned(),
        "no".to_owned(),
        at(NOW),
    );
    cluster.hints.failures.insert(Scope::Named(name(0)), failure);
    if !is_accepted {
        cluster.hints.accepted.clear();
    }
    let decision = cluster.decide();
    let patched = decision.commands().filter_map(|c| match &c.command {
        Command::Patch { key, .. } => Some(&key.name),
        _ => None,
    });
    let begun: std::collections::BTreeSet<_> = patched.filter(|pod| **pod != *name(0)).collect();
    begun.len()
}

/// It counts as updated by its label, and waits for a trial: the others took its turn, and one more than the partition lets go.
#[test]
fn cs_13_5_a_pod_whose_resize_was_refused_takes_no_turn_of_another() {
    for is_accepted in [true, false] {
        assert_eq!(begun_beside_a_refused_resize(4, is_accepted), 1, "{is_accepted}");
    }
}

/// Of three that may be down it is one, also while nobody knows yet whether a pod that is made of its revision would be accepted.
#[test]
fn cs_13_11_a_pod_whose_resize_was_refused_brakes_before_it_goes() {
    for is_accepted in [true, false] {
        assert_eq!(begun_beside_a_refused_resize(0, is_accepted), 2, "{is_accepted}");
    }
}

/// The answer was lost, say: what is noted already is not written again, nor told.
#[test]
fn r_37_a_resize_that_is_asked_for_again_is_one_request() {
    let set = || image_and_cpu(1, "InPlaceIfPossible");
    let text = first_note(set(), sized(running(one(&name(0), "o"), "v1"), 1000, 1000));
    let noted = sized(running(one(&name(0), "n"), "v1"), 1000, 1000).annotated(names::IN_PLACE_STATE, &text);
    let decision = set().pod(noted).decide();
    assert_eq!(places(&decision), [("resize", "resize", Report::InPlace)]);
}

/// Nobody has taken it out of service: that somebody has written on it what nobody can read makes it no pod that may go for nothing.
#[test]
fn cs_13_12_and_sts_8_19_a_pod_that_serves_with_a_note_that_cannot_be_read_goes_within_the_budget() {
    let noted = || one(&name(0), "n").annotated(names::IN_PLACE_GRACE, "{broken");
    for (what, other, noted, marked) in [
        ("the other serves", "n", noted(), 1),
        ("the other is down", "ox", noted(), 0),
        ("it is down itself", "n", out(noted()), 1),
    ] {
        let decision = in_place(2).pod(noted).pod(one(&name(1), other)).decide();
        let marks = decision.commands().filter(|c| c.command.report() == Report::ReCreate);
        assert_eq!(marks.count(), marked, "{what}");
    }
}

/// Notes that can be read, and that this manager did not write: whoever may write to the pods of a set may write them. What they take out of service costs
/// what an update costs.
#[test]
fn cs_13_12_notes_of_others_take_no_more_pods_out_of_service_than_the_budget_has() {
    let grace = r#"{"revision":"web-new","graceSeconds":5}"#.to_owned();
    let batch = json!({
        "revision": "web-new",
        "updateTimestamp": "1970-01-02T03:00:00Z",
        "updateImages": true,
        "lastContainerStatuses": {"main": {"imageID": "id-of-v2"}},
        "nextContainerImages": {"main": "v3"},
    });
    for policy_name in ["InPlaceIfPossible", "ReCreate"] {
        for (what, key, text) in [
            ("a grace period", names::IN_PLACE_GRACE, grace.clone()),
            ("a batch", names::IN_PLACE_STATE, batch.to_string()),
        ] {
            let leaving = |budget: i32, down: usize| {
                let mut set = policy(5, policy_name).status("/currentRevision", json!("web-new"));
                set = set.spec("/updateStrategy/rollingUpdate/maxUnavailable", json!(budget));
                for n in 0..5 {
                    let serving = || one(&name(n), "n").annotated(key, &text);
                    set = set.pod(if n < down { one(&name(n), "nx") } else { serving() });
                }
                let decision = set.decide();
                let out = said(&decision)
                    .iter()
                    .filter(|word| word.starts_with("unready:"))
                    .count();
                let told = decision
                    .waits
                    .iter()
                    .filter(|w| matches!(w.cause, WaitCause::KeepsAvailable { .. }));
                (out, told.count())
            };
            assert_eq!(leaving(1, 0), (1, 4), "{what} {policy_name}");
            assert_eq!(leaving(2, 0), (2, 3), "{what} {policy_name}");
            assert_eq!(leaving(1, 1), (0, 4), "{what} {policy_name}: one is down already");
            assert_eq!(leaving(2, 1), (1, 3), "{what} {policy_name}");
        }
    }
}

fn of_cpu(cpu: &str) -> Value {
    let mut t = template("v1");
    t["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    t
}

/// A pod whose resize from 1 of cpu to 64 its kubelet puts off, or refuses for good.
fn pending(n: usize, revision: &str, is_infeasible: bool) -> PodFixture {
    let forward = policy(1, "InPlaceIfPossible")
        .spec("/template", of_cpu("64"))
        .no_revisions()
        .revision_of("web-old", 1, &of_cpu("1"))
        .revision_of("web-new", 2, &of_cpu("64"));
    let text = first_note(forward, sized(running(one(&name(0), "o"), "v1"), 1000, 1000)).replace("web-new", revision);
    let pod = sized(running(one(&name(n), "n").revision(revision), "v1"), 64_000, 1000);
    pod.annotated(names::IN_PLACE_STATE, &text).detailed(|d| {
        d.resize_pending = Some(ResizePending {
            is_infeasible,
            message: "too big".into(),
            since: Some(at(NOW - 5)),
        });
    })
}

/// Three pods at a revision that asks for too much, and a set that asks for so much.
fn overtaken(cpu: &str, pod: impl Fn(usize) -> PodFixture) -> Cluster {
    let set = policy(3, "InPlaceIfPossible")
        .spec("/template", of_cpu(cpu))
        .no_revisions()
        .revision_of("web-new", 1, &of_cpu("64"))
        .revision_of("web-less", 2, &of_cpu(cpu))
        .status("/currentRevision", json!("web-less"));
    let mut set = (0..3).fold(with_deadline(set), |set, n| set.pod(pod(n)));
    set.now = at(NOW + 3_600);
    set
}

/// How many pods get other resources.
fn resized(decision: &Decision) -> usize {
    places(decision).iter().filter(|(_, part, _)| *part == "resize").count()
}

/// All are at the target, by their labels, and one serves with resources that it will never get: another comes first.
#[test]
fn cs_13_6_and_13_11_a_pod_that_serves_and_leads_nowhere_gets_the_surge() {
    let set = |policy: &str, pods: usize| {
        let rolling = json!({"podUpdatePolicy": policy, "maxUnavailable": 0, "maxSurge": 1});
        let set = clones(3)
            .spec("/updateStrategy/rollingUpdate", rolling)
            .spec("/template", of_cpu("64"))
            .no_revisions()
            .revision_of("web-old", 1, &of_cpu("1"))
            .revision_of("web-new", 2, &of_cpu("64"))
            .status("/currentRevision", json!("web-new"))
            .pod(pending(0, "web-new", true));
        let others = (1..pods).map(|n| sized(running(one(&name(n), "n").revision("web-new"), "v1"), 64_000, 64_000));
        others.fold(set, Cluster::pod).decide()
    };
    let made = |decision: &Decision| {
        decision
            .commands()
            .filter(|c| matches!(c.command, Command::Create { .. }))
            .count()
    };
    let before = set("InPlaceIfPossible", 3);
    assert_eq!((made(&before), marked(&before).len()), (1, 0), "{:?}", said(&before));
    let after = set("InPlaceIfPossible", 4);
    assert_eq!((made(&after), marked(&after)), (0, vec![name(0)]), "{:?}", said(&after));
    let only = set("InPlaceOnly", 3);
    assert_eq!((made(&only), marked(&only).len()), (0, 0), "{:?}", said(&only));
}

/// "A newer revision arrived" (STS-4.2): no pod that serves goes for what nobody asks for any more.
#[test]
fn sts_4_2_and_4_6_a_resize_that_leads_nowhere_and_is_overtaken_is_taken_back_in_place() {
    for is_infeasible in [true, false] {
        for cpu in ["1", "2"] {
            let decision = overtaken(cpu, |n| pending(n, "web-new", is_infeasible)).decide();
            let what = format!("infeasible: {is_infeasible}, to {cpu}: {:?}", said(&decision));
            assert_eq!(marked(&decision), [""; 0], "{what}");
            assert_eq!(resized(&decision), 1, "{what}: as many as may begin");
        }
    }
}

/// It was marked while what it cannot get was asked for, and has waited for its turn since.
#[test]
fn sts_4_6_the_mark_of_a_pod_that_can_go_in_place_since_it_is_overtaken_is_taken_off() {
    let mark = |pod: PodFixture| {
        let pod = pod.label(names::SPECIFIED_DELETE_LABEL, "true");
        pod.annotated(names::REPLACED_BY_UPDATE, "true")
    };
    let decision = overtaken("1", |n| mark(pending(n, "web-new", true))).decide();
    assert_eq!(
        said(&decision),
        [0, 1, 2].map(|n| format!("repair: ~Pod {}", name(n))),
        "none goes"
    );
    for (_, _, set) in patches(&decision) {
        let labels = set["metadata"]["labels"].as_object().expect("labels");
        assert_eq!(labels.get(names::SPECIFIED_DELETE_LABEL), Some(&Value::Null));
    }
}

/// Where a raised partition brings pods back, the current revision is where they are to be.
#[test]
fn sts_4_6_and_cs_13_5_pods_that_go_back_are_overtaken_and_those_that_have_come_back_are_not() {
    let set = |old: &str, new: &str| {
        policy(3, "InPlaceIfPossible")
            .spec("/template", of_cpu(new))
            .annotation(names::PARTITION_ROLLBACK, "true")
            .spec("/updateStrategy/rollingUpdate/partition", json!(3))
            .spec("/updateStrategy/rollingUpdate/maxUnavailable", json!(3))
            .no_revisions()
            .revision_of("web-old", 1, &of_cpu(old))
            .revision_of("web-new", 2, &of_cpu(new))
            .status("/currentRevision", json!("web-old"))
    };
    let goes = |n| pending(n, "web-new", true);
    let old = sized(running(one(&name(2), "o"), "v1"), 1000, 1000);
    let decision = set("1", "64").pod(goes(0)).pod(goes(1)).pod(old).decide();
    assert_eq!(
        (marked(&decision).len(), resized(&decision)),
        (0, 2),
        "{:?}",
        said(&decision)
    );
    let new = sized(running(one(&name(1), "n"), "v1"), 1000, 1000);
    let old = sized(running(one(&name(2), "o"), "v1"), 64_000, 64_000);
    let decision = set("64", "1")
        .pod(pending(0, "web-old", true))
        .pod(new)
        .pod(old)
        .decide();
    assert_eq!(marked(&decision), [name(0)], "{:?}", said(&decision));
}

#[test]
fn cs_16_7_that_a_pod_without_the_gate_serves_while_it_is_updated_in_place_is_said() {
    for (gated, expected) in [(true, false), (false, true)] {
        let begun = running(one(&name(0), "n"), "v2")
            .detailed(|d| d.statuses = Box::new([Some(container_status("v1"))]))
            .annotated(names::IN_PLACE_STATE, &note("web-new").to_text());
        let begun = if gated { out(begun) } else { without_gate(begun) };
        let decision = in_place(1).pod(begun).decide();
        let of_pod = decision.waits.iter().filter(|w| w.subject == name(0));
        let words: Vec<String> = of_pod.map(|w| w.cause.to_string()).collect();
        let is_said = words
            .iter()
            .any(|words| words.contains("without readiness gate InPlaceUpdateReady"));
        assert_eq!(is_said, expected, "{words:?}");
    }
}

/// What only admission can check is left out where nobody checked it. Seen: a pod got the label of the hook in place of the selector's, left
/// its set, and another was made, again and again.
#[test]
fn r_29_no_pod_gets_a_label_of_a_hook_that_the_selector_names_or_that_is_written_for_it() {
    for key in names::POD_LABELS.into_iter().chain(["app", "flotilla.rs/any"]) {
        let hook = json!({"labelsHandler": {key: "held"}});
        let set = in_place(1).spec(
            "/lifecycle",
            json!({"inPlaceUpdate": hook, "preDelete": hook, "preNormal": hook}),
        );
        let pods = [
            one(&name(0), "o").label(names::LIFECYCLE_STATE_LABEL, "Updated"),
            one(&name(0), "n").label(names::LIFECYCLE_STATE_LABEL, "Updated"),
            one(&name(0), "n").label(names::LIFECYCLE_STATE_LABEL, "PreparingDelete"),
        ];
        for pod in pods {
            let decision = set.clone().pod(pod).decide();
            for command in decision.commands() {
                let Command::Patch { body, .. } = &command.command else {
                    continue;
                };
                let label = crate::testing::folded(body)["metadata"]["labels"][key].clone();
                assert_ne!(label, json!("held"), "{key}: {:?}", said(&decision));
            }
            let is_told = |cause: &WaitCause| matches!(cause, WaitCause::FieldUnreadable { .. });
            assert!(
                decision.waits.iter().any(|w| is_told(&w.cause)),
                "{key}: {:?}",
                decision.waits
            );
        }
    }
}
