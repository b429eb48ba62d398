//! Lifecycle hooks: every state and what leads out of it (STS-3.5, STS-3.8, STS-4.2, STS-4.8, STS-8.4).

use crate::testing::{Cluster, NOW, PodFixture, advanced, at, brief, container_status, pod};
use flotilla_api::names;
use flotilla_model::decision::{Command, Report, Scope, ScopedCommand, Subresource};
use flotilla_model::records::GateCondition;
use flotilla_model::{Decision, WaitCause};
use serde_json::{Value, json};
use std::sync::Arc;

const STATE: &str = names::LIFECYCLE_STATE_LABEL;

fn hooked(replicas: i32) -> Cluster {
    let hook = json!({"labelsHandler": {"hold": "yes"}, "finalizersHandler": ["f/hold"], "markPodNotReady": true});
    advanced(replicas)
        .spec("/lifecycle", json!({"preDelete": hook, "inPlaceUpdate": hook}))
        .rolling(json!({"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 1}))
}

fn seen(name: &str, revision: &str, state: &str) -> PodFixture {
    let image = if revision == "new" { "v2" } else { "v1" };
    let fixture = pod(name).revision(revision).detailed(|d| {
        Arc::make_mut(&mut d.spec).containers[0].image = image.into();
        d.statuses = Box::new([Some(container_status(image))]);
    });
    if state.is_empty() {
        fixture
    } else {
        fixture.label(STATE, state)
    }
}

/// Held by one marker of two.
fn held(fixture: PodFixture) -> PodFixture {
    fixture.label("hold", "yes")
}

fn fully(fixture: PodFixture) -> PodFixture {
    held(fixture).detailed(|d| d.finalizers = Arc::new(["other/f".into(), "f/hold".into()]))
}

/// Held down under a key of ours.
fn down(fixture: PodFixture, key: &str) -> PodFixture {
    let message = format!(r#"[{{"userAgent":"Lifecycle","key":"{key}"}}]"#);
    fixture.unready().detailed(|d| {
        d.kruise_ready = Some(GateCondition {
            index: 1,
            is_true: false,
            message: message.into(),
            since: Some(at(NOW - 10)),
        });
    })
}

/// What is done, in short: `-pod`, `pod=State`, `pod!` out of service, `pod^` back in service, `pod@revision` updated in place.
fn steps(decision: &Decision) -> Vec<String> {
    let mut steps = Vec::new();
    for command in decision.commands() {
        match &command.command {
            Command::Delete { key, .. } => steps.push(format!("-{}", key.name)),
            Command::Patch {
                key,
                subresource: Some(Subresource::Status),
                body,
                ..
            } => {
                steps.push(format!(
                    "{}{}",
                    key.name,
                    if body.to_string().contains("\"True\"") {
                        "^"
                    } else {
                        "!"
                    }
                ));
            }
            Command::Patch { key, body, .. } => {
                let body = crate::testing::folded(body);
                let label = |key: &str| body["metadata"]["labels"].get(key).and_then(Value::as_str);
                if let Some(state) = label(STATE) {
                    steps.push(format!("{}={state}", key.name));
                }
                if let Some(revision) = label(names::REVISION_LABEL) {
                    steps.push(format!("{}@{revision}", key.name));
                }
            }
            _ => steps.push("?".to_owned()),
        }
    }
    steps
}

fn holds(decision: &Decision, which: &str) -> Vec<String> {
    let found = decision.waits.iter().find_map(|w| match &w.cause {
        WaitCause::HookHolds { hook, markers, .. } | WaitCause::HookLacks { hook, markers } if *hook == which => {
            Some(markers.clone())
        }
        _ => None,
    });
    found.unwrap_or_default()
}

#[test]
fn sts_4_2_what_is_done_in_each_state() {
    let rows: [(&str, PodFixture, &[&str]); 10] = [
        ("no label, not held", seen("web-0", "old", ""), &["web-0!", "web-0@new"]),
        (
            "Normal, not held",
            seen("web-0", "old", "Normal"),
            &["web-0!", "web-0=Updating", "web-0@new"],
        ),
        (
            "Normal, held",
            held(seen("web-0", "old", "Normal")),
            &["web-0!", "web-0=PreparingUpdate"],
        ),
        (
            "no label, held",
            held(seen("web-0", "old", "")),
            &["web-0!", "web-0=PreparingUpdate"],
        ),
        (
            "PreparingNormal",
            seen("web-0", "old", "PreparingNormal"),
            &["web-0!", "web-0=Updating", "web-0@new"],
        ),
        (
            "PreparingUpdate, held",
            held(down(seen("web-0", "old", "PreparingUpdate"), "preUpdateHook")),
            &[],
        ),
        (
            "PreparingUpdate, free",
            down(seen("web-0", "old", "PreparingUpdate"), "preUpdateHook"),
            &["web-0!", "web-0=Updating", "web-0@new"],
        ),
        ("Updating", seen("web-0", "old", "Updating"), &["web-0!", "web-0@new"]),
        (
            "Updated",
            seen("web-0", "old", "Updated"),
            &["web-0!", "web-0=PreparingUpdate"],
        ),
        ("a word nobody knows", seen("web-0", "old", "Napping"), &[]),
    ];
    for (what, fixture, expected) in rows {
        let decision = hooked(1).pod(fixture).decide();
        let mut found = steps(&decision);
        found.retain(|s| !s.ends_with('^'));
        assert_eq!(found, expected, "{what}");
    }
    let waiting = hooked(1).pod(held(seen("web-0", "old", "PreparingUpdate"))).decide();
    assert_eq!(
        holds(&waiting, "inPlaceUpdate"),
        ["label hold=yes"],
        "every wait is said"
    );
}

#[test]
fn sts_4_8_updated_goes_back_with_all_markers_by_a_patch_that_keeps_foreign_finalizers() {
    let updated = seen("web-0", "old", "Updated").detailed(|d| d.finalizers = Arc::new(["f/other".into()]));
    let decision = hooked(1).pod(updated).decide();
    let patch = decision.commands().find_map(|c| match &c.command {
        Command::Patch {
            subresource: None,
            kind,
            body,
            ..
        } => Some((*kind, body.clone())),
        _ => None,
    });
    let (kind, body) = patch.expect("the pod is patched");
    assert_eq!(kind, flotilla_model::PatchKind::Json);
    let seen = json!({"op": "test", "path": "/metadata/finalizers", "value": ["f/other"]});
    assert!(body.as_array().is_some_and(|all| all.contains(&seen)), "{body}");
    let set = crate::testing::folded(&body);
    assert_eq!(set["metadata"]["finalizers"], json!(["f/other", "f/hold"]));
    assert_eq!(set["metadata"]["labels"]["hold"], "yes");
}

#[test]
fn sts_4_8_states_are_left_when_their_condition_is_met() {
    let rows: [(&str, PodFixture, &[&str]); 10] = [
        (
            "rolled back while preparing",
            down(held(seen("web-0", "new", "PreparingUpdate")), "preUpdateHook"),
            &["web-0=Updated", "web-0^"],
        ),
        (
            "rolled back, all markers",
            down(fully(seen("web-0", "new", "PreparingUpdate")), "preUpdateHook"),
            &["web-0=Normal", "web-0^"],
        ),
        (
            "complete, markers missing",
            down(seen("web-0", "new", "Updating"), "preUpdateHook"),
            &["web-0=Updated", "web-0^"],
        ),
        (
            "complete, all markers",
            down(fully(seen("web-0", "new", "Updating")), "preUpdateHook"),
            &["web-0=Normal", "web-0^"],
        ),
        (
            "markers back",
            fully(seen("web-0", "new", "Updated")),
            &["web-0=Normal"],
        ),
        ("markers missing", held(seen("web-0", "new", "Updated")), &[]),
        (
            "wanted again, markers missing",
            down(held(seen("web-0", "new", "PreparingDelete")), "preDeleteHook"),
            &["web-0=Updated", "web-0^"],
        ),
        (
            "wanted again, all markers",
            down(fully(seen("web-0", "new", "PreparingDelete")), "preDeleteHook"),
            &["web-0=Normal", "web-0^"],
        ),
        (
            "a key that outlived its state",
            down(seen("web-0", "new", "Normal"), "preUpdateHook"),
            &["web-0^"],
        ),
        (
            "the key of somebody else",
            down(seen("web-0", "new", "Normal"), "theirs"),
            &[],
        ),
    ];
    for (what, fixture, expected) in rows {
        assert_eq!(steps(&hooked(1).pod(fixture).decide()), expected, "{what}");
    }
    let waiting = hooked(1).pod(held(seen("web-0", "new", "Updated"))).decide();
    assert_eq!(holds(&waiting, "inPlaceUpdate"), ["finalizer f/hold"]);
}

#[test]
fn sts_3_5_pre_normal_holds_new_pods_until_all_markers_are_there() {
    let cluster = || {
        let hook = json!({"labelsHandler": {"hold": "yes"}, "finalizersHandler": ["f/hold"]});
        advanced(1).spec("/lifecycle", json!({"preNormal": hook}))
    };
    let decision = cluster().decide();
    let body = decision.commands().find_map(|c| match &c.command {
        Command::Create { body, .. } => Some(body.render()),
        _ => None,
    });
    let body = body.expect("a pod is created");
    assert_eq!(body["metadata"]["labels"][STATE], "PreparingNormal");
    assert!(body["metadata"]["annotations"][names::LIFECYCLE_TIMESTAMP].is_string());
    let half = cluster().pod(held(seen("web-0", "new", "PreparingNormal"))).decide();
    assert_eq!(
        (steps(&half).len(), holds(&half, "preNormal")),
        (0, vec!["finalizer f/hold".to_owned()])
    );
    assert_eq!(
        half.status.as_ref().map(|s| s.desired["availableReplicas"].clone()),
        Some(json!(0))
    );
    assert_eq!(
        steps(&cluster().pod(fully(seen("web-0", "new", "PreparingNormal"))).decide()),
        ["web-0=Normal"]
    );
}

#[test]
fn sts_3_8_every_deletion_of_ours_asks_the_hook() {
    let ask = ["web-0!", "web-0=PreparingDelete"];
    let recreate = |c: Cluster| c.rolling(json!({"podUpdatePolicy": "ReCreate"}));
    for (what, cluster) in [
        ("scale down", hooked(0).pod(held(seen("web-0", "new", "Normal")))),
        (
            "ordered scale down",
            hooked(0).ordered().pod(held(seen("web-0", "new", "Normal"))),
        ),
        ("recreate", recreate(hooked(1)).pod(held(seen("web-0", "old", "")))),
        (
            "ordered recreate",
            recreate(hooked(1)).ordered().pod(held(seen("web-0", "old", ""))),
        ),
        (
            "asked for by label",
            hooked(1).pod(held(seen("web-0", "new", "").label(names::SPECIFIED_DELETE_LABEL, "1"))),
        ),
    ] {
        assert_eq!(steps(&cluster.decide()), ask, "{what}");
    }
    let ended = held(seen("web-0", "new", "")).phase(flotilla_model::records::Phase::Failed);
    assert_eq!(steps(&hooked(1).pod(ended).decide()), ask, "a pod that has ended");
}

#[test]
fn sts_3_8_a_hook_that_was_released_lets_the_deletion_through_in_every_policy() {
    let free = || seen("web-0", "old", "PreparingDelete");
    let holding = || held(down(free(), "preDeleteHook"));
    let recreate = |c: Cluster| c.rolling(json!({"podUpdatePolicy": "ReCreate"}));
    for (what, cluster) in [
        ("scale down", hooked(0)),
        ("ordered scale down", hooked(0).ordered()),
        ("recreate", recreate(hooked(1))),
        (
            "ordered recreate, which it holds up itself",
            recreate(hooked(1)).ordered(),
        ),
    ] {
        assert_eq!(steps(&cluster.clone().pod(free()).decide()), ["-web-0"], "{what}");
        let waiting = cluster.pod(holding()).decide();
        assert_eq!(
            (steps(&waiting).len(), holds(&waiting, "preDelete")),
            (0, vec!["label hold=yes".to_owned()]),
            "{what}"
        );
    }
}

#[test]
fn sts_8_4_two_pods_that_wait_for_their_hooks_do_not_block_each_other() {
    let waiting = |name: &str| down(held(seen(name, "new", "PreparingDelete")), "preDeleteHook");
    let both = hooked(0).ordered().pod(waiting("web-0")).pod(waiting("web-1"));
    assert_eq!(steps(&both.decide()), [] as [&str; 0], "it waits at the highest");
    let higher_free = hooked(0)
        .ordered()
        .pod(waiting("web-0"))
        .pod(down(seen("web-1", "new", "PreparingDelete"), "preDeleteHook"));
    assert_eq!(steps(&higher_free.decide()), ["-web-1"]);
    let broken = hooked(0)
        .ordered()
        .pod(waiting("web-0"))
        .pod(held(seen("web-1", "new", "")).unready());
    assert_eq!(
        steps(&broken.decide()),
        ["web-1!", "web-1=PreparingDelete"],
        "nor does one hold up a broken one above"
    );
}

#[test]
fn sts_3_5_a_pod_that_is_wanted_again_returns_unless_it_was_asked_for_by_label() {
    let back = |fixture: PodFixture| steps(&hooked(1).status("/currentRevision", json!("new")).pod(fixture).decide());
    assert_eq!(
        back(down(fully(seen("web-0", "new", "PreparingDelete")), "preDeleteHook")),
        ["web-0=Normal", "web-0^"]
    );
    let asked = held(seen("web-0", "new", "PreparingDelete")).label(names::SPECIFIED_DELETE_LABEL, "1");
    assert_eq!(back(down(asked, "preDeleteHook")), [] as [&str; 0]);
}

#[test]
fn sts_3_5_a_pod_that_is_wanted_again_in_the_middle_of_its_update_goes_on_with_it() {
    // The image of its revision cannot be pulled: that update never ends, and the next one would wait for the pod to return.
    let before = crate::shared::inplace::state::Before::of(Some(&container_status("v0")));
    let note = |revision: &str| {
        let note = crate::shared::inplace::state::State {
            revision: revision.to_owned(),
            updated_at: at(NOW - 30),
            before: [("main".to_owned(), before.clone())].into(),
            images: true,
            ..Default::default()
        };
        note.to_text()
    };
    let in_flight = |revision: &str, state: &str| {
        let fixture =
            down(seen("web-0", revision, state), "preDeleteHook").annotated(names::IN_PLACE_STATE, &note(revision));
        fixture.detailed(|d| {
            d.statuses = Box::new([Some(container_status("v0"))]);
            d.in_place_ready = Some(GateCondition {
                index: 0,
                is_true: false,
                message: "".into(),
                since: Some(at(NOW - 30)),
            });
        })
    };
    let found = |fixture: PodFixture| steps(&hooked(1).pod(fixture).decide());
    for (what, fixture, expected) in [
        (
            "overtaken by another update",
            in_flight("old", "PreparingDelete"),
            vec!["web-0=Updating", "web-0^"],
        ),
        (
            "to the update revision",
            in_flight("new", "PreparingDelete"),
            vec!["web-0=Updating", "web-0^"],
        ),
        ("and then", in_flight("old", "Updating"), vec!["web-0!", "web-0@new"]),
        (
            "asked for by label, and not held any more",
            in_flight("old", "PreparingDelete").label(names::SPECIFIED_DELETE_LABEL, "1"),
            vec!["-web-0"],
        ),
    ] {
        assert_eq!(found(fixture), expected, "{what}");
    }
    let condemned = held(in_flight("old", "PreparingDelete"));
    assert_eq!(steps(&hooked(0).pod(condemned).decide()), [] as [&str; 0], "not wanted");
}

#[test]
fn sts_3_7_a_partition_that_was_raised_frees_a_pod_that_was_prepared() {
    let cluster = hooked(1).rolling(json!({"podUpdatePolicy": "InPlaceIfPossible", "partition": 1}));
    let found = steps(
        &cluster
            .pod(held(down(seen("web-0", "old", "PreparingUpdate"), "preUpdateHook")))
            .decide(),
    );
    assert_eq!(found, ["web-0=Updated", "web-0^"], "R-28");
}

/// A pause may last for weeks: nobody is to be out of service for as long.
#[test]
fn r_28_a_pause_frees_a_pod_that_was_prepared() {
    let paused = json!({"podUpdatePolicy": "InPlaceIfPossible", "paused": true});
    let prepared = || down(seen("web-0", "old", "PreparingUpdate"), "preUpdateHook");
    let rows: [(&str, PodFixture, &[&str]); 5] = [
        ("held", held(prepared()), &["web-0=Updated", "web-0^"]),
        ("drained", prepared(), &["web-0=Updated", "web-0^"]),
        (
            "nobody has begun to drain it",
            fully(prepared()),
            &["web-0=Normal", "web-0^"],
        ),
        ("waits for its markers", seen("web-0", "old", "Updated"), &[]),
        (
            "its markers are back",
            fully(seen("web-0", "old", "Updated")),
            &["web-0=Normal"],
        ),
    ];
    for (what, fixture, expected) in rows {
        for set in [hooked(1), hooked(1).ordered()] {
            let decision = set.rolling(paused.clone()).pod(fixture.clone()).decide();
            assert_eq!(steps(&decision), expected, "{what}");
        }
    }
    let waits = hooked(1).rolling(paused).pod(seen("web-0", "old", "Updated")).decide();
    assert_eq!(
        holds(&waits, "inPlaceUpdate"),
        ["label hold=yes", "finalizer f/hold"],
        "what it waits for is said"
    );
}

#[test]
fn sts_4_2_ordered_sets_go_on_with_a_pod_whose_hook_was_released() {
    let free = down(seen("web-1", "old", "PreparingUpdate"), "preUpdateHook");
    let decision = hooked(2)
        .ordered()
        .pod(seen("web-0", "old", "Normal"))
        .pod(free)
        .decide();
    assert_eq!(steps(&decision), ["web-1!", "web-1=Updating", "web-1@new"]);
}

#[test]
fn sts_8_1_what_unblocks_leaves_alone_what_the_same_pass_goes_on_with() {
    let free = down(seen("web-0", "old", "PreparingUpdate"), "preUpdateHook");
    let set = hooked(1).ordered().pod(free);
    let alone = steps(&set.clone().decide());
    assert!(!alone.is_empty(), "it is prepared, and nothing holds it");
    let unblocked = set.annotation("flotilla.rs/unblock", "broken-first");
    assert_eq!(steps(&unblocked.decide()), alone, "once, and not twice");
}

#[test]
fn sts_3_6_in_unordered_mode_a_pod_that_is_prepared_counts_as_updated() {
    let cluster = hooked(3).rolling(json!({
        "podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 2, "partition": 2, "unorderedUpdate": {},
    }));
    let cluster = cluster
        .pod(held(down(seen("web-0", "old", "PreparingUpdate"), "preUpdateHook")))
        .pod(seen("web-1", "old", "Normal"))
        .pod(seen("web-2", "old", "Normal"));
    assert_eq!(
        steps(&cluster.decide()),
        [] as [&str; 0],
        "the one that may be updated is chosen"
    );
}

#[test]
fn sts_4_8_a_settled_hooked_set_gets_no_writes() {
    let cluster = hooked(2).status("/currentRevision", json!("new"));
    let cluster = cluster
        .pod(fully(seen("web-0", "new", "Normal")))
        .pod(seen("web-1", "new", "Normal"));
    assert_eq!(brief(&cluster.decide()), [] as [&str; 0]);
}

/// Seen: while a revision was tried, pods that a hook had taken out of service were put back, to be prepared anew by the next pass.
#[test]
fn r_28_and_31_a_prepared_pod_stays_as_it_is_while_its_revision_is_tried() {
    let prepared = |name: &str| down(held(seen(name, "old", "PreparingDelete")), "preDeleteHook");
    let hook = json!({"preDelete": {"labelsHandler": {"hold": "yes"}, "markPodNotReady": true}});
    let set = || {
        advanced(3)
            .spec("/lifecycle", hook.clone())
            .rolling(json!({"maxUnavailable": 2, "podUpdatePolicy": "ReCreate"}))
    };
    let of = |set: Cluster| {
        let mut set = set
            .pod(held(seen("web-0", "old", "Normal")))
            .pod(prepared("web-1"))
            .pod(prepared("web-2"));
        set.hints.accepted.clear();
        set
    };
    let in_order = json!({"podUpdatePolicy": "ReCreate"});
    for (what, set) in [
        ("rolling update", set()),
        (
            "recreated at once",
            set().annotation("flotilla.rs/update-type", "Recreate"),
        ),
        (
            "in order",
            set()
                .spec("/podManagementPolicy", json!("OrderedReady"))
                .rolling(in_order),
        ),
    ] {
        let decision = of(set.clone()).decide();
        let tries = |c: &ScopedCommand| matches!(c.command, Command::Try { .. });
        assert!(
            decision.commands().all(tries) && decision.commands().count() == 1,
            "{what}: {:?}",
            steps(&decision)
        );
        let scope = Scope::Acceptance("new".to_owned());
        let bad = super::refused(of(set), scope, Report::Try, "Invalid");
        let back = ["web-1=Normal", "web-2=Normal", "web-1^", "web-2^"];
        assert_eq!(steps(&bad.decide()), back, "{what}, refused: they serve again");
    }
}

/// What only admission can check is left out where nobody checked it: the pod would leave its set.
#[test]
fn r_29_no_pod_gets_a_label_of_a_hook_that_the_selector_names_or_that_is_written_for_it() {
    for key in names::POD_LABELS.into_iter().chain(["app", "flotilla.rs/any"]) {
        let hook = json!({"labelsHandler": {key: "held"}});
        let set = hooked(1).spec(
            "/lifecycle",
            json!({"inPlaceUpdate": hook, "preDelete": hook, "preNormal": hook}),
        );
        for pod in [
            seen("web-0", "old", "Updated"),
            seen("web-0", "new", "Updated"),
            seen("web-0", "new", "PreparingDelete"),
        ] {
            let decision = set.clone().pod(pod).decide();
            for command in decision.commands() {
                let Command::Patch { body, .. } = &command.command else {
                    continue;
                };
                let label = crate::testing::folded(body)["metadata"]["labels"][key].clone();
                assert_ne!(label, json!("held"), "{key}: {:?}", steps(&decision));
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
