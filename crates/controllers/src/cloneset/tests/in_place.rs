//! Updates in place of CloneSets: what other managers left behind, updates that are given up, and hooks (rules 12.6, 16.7 and 19, and 4 of
//! StatefulSets).

use super::{name, one, said};
use crate::shared::inplace::state::{Before, State as InPlaceState};
use crate::testing::{Cluster, NOW, PodFixture, at, clones, container_status, folded};
use flotilla_api::names;
use flotilla_model::decision::{Command, Subresource};
use flotilla_model::{Decision, WaitCause};
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
fn rule_12_6_a_grace_period_that_was_begun_under_either_gate_ends_with_the_change() {
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
fn rule_12_6_an_update_that_was_begun_under_either_gate_is_waited_for() {
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
fn rule_12_6_further_batches_of_an_update_under_either_gate_follow() {
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
