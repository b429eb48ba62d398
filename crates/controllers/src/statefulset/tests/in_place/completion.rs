//! When an update in place is over, and when it is given up (STS-4.6 and STS-8.12).

use super::{GRACE, STATE, in_place, note, out, patches, seen, state_of, told};
use crate::shared::inplace::state::{State as InPlaceState, whole_seconds};
use crate::testing::{Cluster, NOW, advanced, at, brief, container_status};
use flotilla_api::names;
use flotilla_model::WaitCause;
use flotilla_model::decision::{Command, PatchKind};
use serde_json::json;
use std::sync::Arc;

#[test]
fn sts_4_6_a_complete_update_is_put_back_by_one_tested_write() {
    let text = note("new", 30).to_text();
    let cluster = in_place(1).pod(out(seen("web-0", "new", "v2")).annotated(STATE, &text));
    let decision = cluster.decide();
    let found = patches(&decision);
    assert_eq!(found.len(), 1, "{:?}", brief(&decision));
    let (stage, _, part, body) = &found[0];
    assert_eq!((*stage, *part), ("ready", "status"));
    let operations = body.as_array().expect("a JSON patch");
    assert_eq!(
        operations[0],
        json!({"op": "test", "path": "/metadata/labels/controller-revision-hash", "value": "new"})
    );
    assert_eq!(
        operations[1],
        json!({"op": "test", "path": "/metadata/annotations/apps.kruise.io~1inplace-update-state", "value": text})
    );
    assert_eq!(
        operations[2],
        json!({"op": "test", "path": "/status/conditions/0/type", "value": "InPlaceUpdateReady"})
    );
    assert_eq!(
        operations[3],
        json!({"op": "test", "path": "/status/conditions/0/lastTransitionTime", "value": whole_seconds(at(NOW - 10))})
    );
    assert_eq!(operations[4]["value"]["status"], "True");
    let all = decision.commands().map(|c| &c.command);
    let versions = all.filter(|c| {
        matches!(
            c,
            Command::Patch {
                resource_version: Some(_),
                ..
            } | Command::Patch {
                kind: PatchKind::Merge,
                ..
            }
        )
    });
    assert_eq!(
        versions.count(),
        0,
        "nothing that loses races with the kubelet, or wipes conditions"
    );
}

#[test]
fn sts_4_6_nothing_is_written_while_the_container_has_not_restarted() {
    let waiting = out(seen("web-0", "new", "v2"))
        .detailed(|d| d.statuses = Box::new([Some(container_status("v1"))]))
        .annotated(STATE, &note("new", 30).to_text());
    let decision = in_place(1).pod(waiting).decide();
    assert_eq!(brief(&decision), [] as [&str; 0]);
    let restart = |w: &&flotilla_model::Wait| matches!(&w.cause, WaitCause::InPlaceRestart { container, .. } if container == "main");
    assert_eq!(
        decision.waits.iter().find(restart).and_then(|w| w.since),
        Some(at(NOW - 30))
    );
}

#[test]
fn sts_4_6_traps_of_completion() {
    type Change = fn(&mut flotilla_model::records::ContainerStatus);
    let rows: [(&str, Change, bool); 7] = [
        ("another image id", |s| s.image_id = "other".into(), true),
        (
            "the spec's image in another spelling",
            |s| s.image = "docker.io/library/v2:latest".into(),
            true,
        ),
        ("nothing has happened", |_| {}, false),
        (
            "an image that cannot be pulled has no id",
            |s| {
                s.image = "v2".into();
                s.image_id = "".into();
            },
            false,
        ),
        (
            "same content, restarted since, spec seen",
            |s| {
                s.restart_count = 1;
                s.started_at = Some(at(NOW - 5));
            },
            true,
        ),
        (
            "same content, restarted before",
            |s| {
                s.restart_count = 1;
                s.started_at = Some(at(NOW - 500));
            },
            false,
        ),
        (
            "same content in a new container",
            |s| {
                s.container_id = "containerd://2".into();
                s.started_at = Some(at(NOW - 5));
            },
            true,
        ),
    ];
    for (what, change, complete) in rows {
        let fixture = out(seen("web-0", "new", "v2"))
            .annotated(STATE, &note("new", 30).to_text())
            .detailed(|d| {
                let mut status = container_status("v1");
                change(&mut status);
                d.statuses = Box::new([Some(status)]);
                d.observed_generation = d.generation;
            });
        let decision = in_place(1).pod(fixture).decide();
        assert_eq!(patches(&decision).len() == 1, complete, "{what}");
    }
}

/// From v2 to v0 and back: the container of v2 may still be about to go for v0, or have gone.
#[test]
fn sts_4_6_a_kubelet_that_may_still_carry_out_what_was_overtaken_has_to_see_the_spec() {
    let mut overtook = note("new", 30);
    overtook.before.get_mut("main").expect("it is noted").superseded = vec!["v0".to_owned()];
    for (what, noted, (observed, generation), (runs, restarts), complete) in [
        ("has not seen it", &overtook, (2, 3), (true, 0), false),
        ("has seen it", &overtook, (3, 3), (true, 0), true),
        ("has seen it, and ended it before", &overtook, (3, 3), (false, 0), false),
        ("has ended it, and its successor", &overtook, (3, 3), (false, 1), true),
        ("does not tell what it has seen", &overtook, (0, 3), (true, 0), true),
        ("nothing was overtaken", &note("new", 30), (2, 3), (false, 0), true),
    ] {
        let fixture = out(seen("web-0", "new", "v2"))
            .annotated(STATE, &noted.to_text())
            .detailed(|d| {
                let mut status = container_status("v2");
                status.restart_count = restarts;
                status.started_at = status.started_at.filter(|_| runs);
                d.statuses = Box::new([Some(status)]);
                (d.observed_generation, d.generation) = (observed, generation);
            });
        let decision = in_place(1).pod(fixture).decide();
        assert_eq!(patches(&decision).len() == 1, complete, "{what}");
    }
}

#[test]
fn sts_4_6_a_container_of_an_update_that_was_overtaken_is_not_what_is_waited_for() {
    // From v1 to v0, and to v2 before the container of v0 was there.
    let mut noted = note("new", 30);
    noted.before.get_mut("main").expect("it is noted").superseded = vec!["v0".to_owned()];
    for (what, image, id, restarts, complete) in [
        ("the old one still", "v1", "id-of-v1", 0, false),
        ("the one between", "v0", "id-of-v0", 1, false),
        ("the one asked for", "v2", "id-of-v2", 2, true),
        (
            "the one asked for, and the one between never came up",
            "v2",
            "id-of-v2",
            1,
            true,
        ),
        (
            "content of the one between under the new name",
            "v0",
            "id-of-v0",
            2,
            true,
        ),
    ] {
        let fixture = out(seen("web-0", "new", "v2"))
            .annotated(STATE, &noted.to_text())
            .detailed(|d| {
                let mut status = container_status(image);
                status.image_id = id.into();
                status.restart_count = restarts;
                status.started_at = Some(at(NOW - 5));
                d.statuses = Box::new([Some(status)]);
                d.observed_generation = d.generation;
            });
        let decision = in_place(1).pod(fixture).decide();
        assert_eq!(patches(&decision).len() == 1, complete, "{what}");
    }
}

#[test]
fn sts_4_6_an_update_that_is_overtaken_is_remembered_also_through_a_grace_period() {
    // Asked for v0, which has not come up, from v1; now the set wants v2.
    let stored = |grace: Option<&str>| {
        let fixture = out(seen("web-0", "old", "v0"))
            .detailed(|d| d.statuses = Box::new([Some(container_status("v1"))]))
            .annotated(STATE, &note("old", 30).to_text());
        grace.map_or_else(|| fixture.clone(), |text| fixture.clone().annotated(GRACE, text))
    };
    let grace = json!({"revision": "old", "containerImages": {"main": "v9"}, "graceSeconds": 30}).to_string();
    for (what, fixture) in [("at once", stored(None)), ("in a grace period", stored(Some(&grace)))] {
        let decision = in_place(1).pod(fixture).decide();
        let found = patches(&decision);
        let (_, _, _, body) = found.iter().find(|(stage, ..)| *stage == "in-place").expect(what);
        assert_eq!(body["spec"]["containers"][0]["image"], "v2", "{what}");
        assert_eq!(state_of(body).before["main"].superseded, ["v0"], "{what}");
    }
}

/// The image that was asked for first cannot be pulled; the one that replaces it was put off while a resize was under way.
#[test]
fn sts_4_6_an_image_that_is_replaced_before_it_started_is_not_waited_for() {
    let overtook = || {
        let mut noted = note("new", 30);
        let before = noted.before.get_mut("main").expect("it is noted");
        before.superseded = vec!["bad".to_owned()];
        noted.resources = true;
        noted.next.images.insert("main".to_owned(), "v2".to_owned());
        noted
    };
    let pod = |revision: &str| {
        out(seen("web-0", revision, "bad"))
            .annotated(STATE, &overtook().to_text())
            .detailed(|d| {
                let mut status = container_status("v1");
                (status.started_at, status.is_ready) = (None, false);
                d.statuses = Box::new([Some(status)]);
                d.observed_generation = d.generation;
            })
    };
    let decision = in_place(1).pod(pod("new")).decide();
    let found = patches(&decision);
    let (_, _, _, body) = found.iter().find(|(stage, ..)| *stage == "in-place").expect("goes on");
    assert_eq!(body["spec"]["containers"][0]["image"], "v2");
    assert_eq!(
        state_of(body).before["main"].superseded,
        ["bad"],
        "it may still come up"
    );
    assert!(state_of(body).next.is_empty());

    // A third image, before that is sent.
    let mut of_old = overtook();
    of_old.revision = "old".to_owned();
    let decision = in_place(1).pod(pod("old").annotated(STATE, &of_old.to_text())).decide();
    let found = patches(&decision);
    let (_, _, _, body) = found.iter().find(|(stage, ..)| *stage == "in-place").expect("is taken");
    assert_eq!(state_of(body).before["main"].superseded, ["bad"]);
}

#[test]
fn sts_4_6_the_node_agent_knows_better() {
    let meta = |id: &str, hash: u64| {
        json!({"containers": [{"name": "main", "containerID": id, "hashes": {"plainHash": hash}}]}).to_string()
    };
    let of = |image: &str| flotilla_model::containers_meta::plain_hash("main", image);
    for (id, hash, complete) in [
        ("containerd://1", of("v2"), true),
        ("containerd://1", of("docker.io/library/v2:latest"), true),
        ("containerd://1", of("v1"), false),
        ("containerd://0", of("v2"), false),
    ] {
        let fixture = out(seen("web-0", "new", "v2"))
            .detailed(|d| d.statuses = Box::new([Some(container_status("v1"))]))
            .annotated(STATE, &note("new", 30).to_text())
            .annotated(names::RUNTIME_CONTAINERS_META, &meta(id, hash));
        assert_eq!(
            patches(&in_place(1).pod(fixture).decide()).len() == 1,
            complete,
            "{id} {hash}"
        );
    }
}

#[test]
fn sts_8_12_the_deadline_reports_and_may_recreate() {
    let stuck = |action: &str, ago: i64| {
        let fixture = out(seen("web-0", "new", "v2"))
            .detailed(|d| d.statuses = Box::new([Some(container_status("v1"))]))
            .annotated(STATE, &note("new", ago).to_text());
        in_place(1)
            .annotation("flotilla.rs/in-place-deadline-seconds", "60")
            .annotation("flotilla.rs/in-place-deadline-action", action)
            .pod(fixture)
    };
    let reported = stuck("report", 61).decide();
    assert_eq!(brief(&reported), [] as [&str; 0]);
    assert_eq!(
        told(&reported, "InPlaceUpdateStuck").map(|c| c["status"].clone()),
        Some(json!("True"))
    );
    assert_eq!(brief(&stuck("recreate", 61).decide()), ["-web-0"]);
    assert_eq!(
        brief(&stuck("recreate", 61).ordered().decide()),
        ["-web-0"],
        "also where it holds up the order itself"
    );
    let early = stuck("recreate", 40).decide();
    assert_eq!(
        (brief(&early).len(), early.wake_after),
        (0, Some(std::time::Duration::from_secs(20)))
    );
    let mut restarted = stuck("recreate", 61);
    restarted.observing_since = at(NOW - 10);
    assert_eq!(
        brief(&restarted.decide()),
        [] as [&str; 0],
        "deadlines do not run while nobody watched"
    );
}

/// a manager that has just begun to watch does not know that it is over.
#[test]
fn sts_8_12_what_is_stuck_is_not_called_recovered_by_another_manager() {
    let fixture = |ago: i64| {
        out(seen("web-0", "new", "v2"))
            .detailed(|d| d.statuses = Box::new([Some(container_status("v1"))]))
            .annotated(STATE, &note("new", ago).to_text())
    };
    let told_before = json!([{
        "type": "InPlaceUpdateStuck", "status": "True", "reason": "DeadlineExceeded",
        "message": "web-0: not complete 60 s after it began", "lastTransitionTime": at(NOW - 400).to_string(),
    }]);
    let word = |cluster: &Cluster| told(&cluster.decide(), "InPlaceUpdateStuck").map(|c| c["status"].clone());
    let mut cluster = in_place(1)
        .annotation("flotilla.rs/in-place-deadline-seconds", "60")
        .status("/conditions", told_before);
    cluster.observing_since = at(NOW - 10);
    let stays = cluster.clone().pod(fixture(500));
    assert_ne!(word(&stays), Some(json!("False")), "it is as stuck as before");
    assert_eq!(
        stays.decide().wake_after,
        Some(std::time::Duration::from_secs(50)),
        "and is looked at again when it has been watched for as long"
    );
    let another = cluster.clone().pod(fixture(20));
    assert_eq!(
        word(&another),
        Some(json!("False")),
        "that one ended, and another began"
    );
    let over = cluster.pod(seen("web-0", "new", "v2"));
    assert_eq!(word(&over), Some(json!("False")));
}

#[test]
fn sts_4_6_environments_are_complete_when_the_agent_says_so() {
    use flotilla_model::records::MetadataEnv;
    let expected = flotilla_model::containers_meta::env_hash([("ROLE", "leader")]);
    let state = InPlaceState {
        env_from_metadata: true,
        images: false,
        before: std::collections::BTreeMap::default(),
        ..note("new", 5)
    };
    let fixture = |meta: Option<(&str, u64)>| {
        let fixture = out(seen("web-0", "new", "v2").label("role", "leader")).annotated(STATE, &state.to_text());
        let fixture = fixture.detailed(|d| {
            Arc::make_mut(&mut d.spec).containers[0].metadata_env = vec![MetadataEnv {
                name: "ROLE".into(),
                is_label: true,
                key: "role".into(),
            }];
        });
        match meta {
            None => fixture,
            Some((id, hash)) => {
                let hashes = json!({"plainHash": 1, "extractedEnvFromMetadataHash": hash});
                let meta = json!({"containers": [{"name": "main", "containerID": id, "hashes": hashes}]});
                fixture.annotated(names::RUNTIME_CONTAINERS_META, &meta.to_string())
            }
        }
    };
    for (what, meta, complete) in [
        ("no agent", None, false),
        ("another environment", Some(("containerd://1", expected ^ 1)), false),
        ("another container", Some(("containerd://0", expected)), false),
        ("as expected", Some(("containerd://1", expected)), true),
    ] {
        let decision = in_place(1).pod(fixture(meta)).decide();
        assert_eq!(patches(&decision).len() == 1, complete, "{what}");
        let said = decision
            .waits
            .iter()
            .any(|w| matches!(w.cause, WaitCause::InPlaceEnvironment { .. }));
        assert_eq!(said, !complete, "{what}");
    }
}

/// Another image was asked for while the agent restarted the container for its environment, and the kubelet has seen that.
#[test]
fn sts_4_6_a_restart_for_an_environment_says_nothing_of_the_image() {
    use flotilla_model::containers_meta;
    use flotilla_model::records::MetadataEnv;
    let state = InPlaceState {
        env_from_metadata: true,
        ..note("new", 30)
    };
    for (image, complete) in [("v1", false), ("v2", true)] {
        let hashes = json!({
            "plainHash": containers_meta::plain_hash("main", image),
            "extractedEnvFromMetadataHash": containers_meta::env_hash([("ROLE", "leader")]),
        });
        let meta = json!({"containers": [{"name": "main", "containerID": "containerd://2", "hashes": hashes}]});
        let fixture = out(seen("web-0", "new", "v2").label("role", "leader"))
            .annotated(STATE, &state.to_text())
            .annotated(names::RUNTIME_CONTAINERS_META, &meta.to_string())
            .detailed(|d| {
                Arc::make_mut(&mut d.spec).containers[0].metadata_env = vec![MetadataEnv {
                    name: "ROLE".into(),
                    is_label: true,
                    key: "role".into(),
                }];
                let mut status = container_status("v1");
                (status.container_id, status.restart_count) = ("containerd://2".into(), 1);
                status.started_at = Some(at(NOW - 20));
                d.statuses = Box::new([Some(status)]);
                (d.observed_generation, d.generation) = (3, 3);
            });
        let decision = in_place(1).pod(fixture).decide();
        assert_eq!(patches(&decision).len() == 1, complete, "started from {image}");
    }
}

#[test]
fn sts_4_6_a_state_of_another_revision_concludes_nothing() {
    // The label is what the pod is; the note about another revision is not used, and the pod serves.
    let fixture = out(seen("web-0", "new", "v2")).annotated(STATE, &note("old", 30).to_text());
    let decision = in_place(1).pod(fixture).decide();
    assert_eq!(
        patches(&decision).iter().map(|(stage, ..)| *stage).collect::<Vec<_>>(),
        ["ready"]
    );
    assert!(decision.events.iter().any(|e| e.message.contains("revision old")));
}

#[test]
fn sts_3_7_a_complete_update_is_put_back_beside_what_leaves_and_before_what_changes() {
    let text = note("new", 30).to_text();
    let cluster = advanced(3)
        .rolling(json!({"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 2}))
        .pod(seen("web-0", "old", "v1"))
        .pod(seen("web-1", "old", "v1"))
        .pod(out(seen("web-2", "new", "v2")).annotated(STATE, &text));
    let found = patches(&cluster.decide());
    let places: Vec<_> = found.iter().map(|(stage, pod, ..)| (*stage, pod.as_str())).collect();
    assert_eq!(
        places,
        [("unready", "web-2"), ("unready", "web-1"), ("in-place", "web-1")]
    );
}

/// The begin is noted by the clock of a manager, the start by that of a node. Where they differ, a restart seems to be older than the update;
/// a kubelet that has seen the spec has long ended what ran before.
#[test]
fn sts_4_6_a_restart_that_clocks_put_before_the_update_is_believed_after_a_while() {
    type Change = fn(&mut flotilla_model::records::ContainerStatus);
    let counted: Change = |s| s.restart_count = 1;
    let other: Change = |s| s.container_id = "containerd://2".into();
    let nothing: Change = |_| {};
    let down: Change = |s| {
        s.restart_count = 1;
        s.started_at = None;
    };
    for (what, change, ago, has_seen, complete) in [
        ("counted", counted, 120, true, true),
        ("another container", other, 120, true, true),
        ("it may still be about to go", counted, 119, true, false),
        ("nothing has happened", nothing, 3_600, true, false),
        ("the kubelet has not seen the spec", counted, 3_600, false, false),
        ("it does not run", down, 3_600, true, false),
    ] {
        let pod = out(seen("web-0", "new", "v2"))
            .annotated(STATE, &note("new", ago).to_text())
            .detailed(|d| {
                let mut status = container_status("v1");
                status.image = "sha256:abc".into();
                status.started_at = Some(at(NOW - ago - 5));
                change(&mut status);
                d.statuses = Box::new([Some(status)]);
                (d.observed_generation, d.generation) = if has_seen { (2, 2) } else { (1, 2) };
            });
        let decision = in_place(1).pod(pod).decide();
        assert_eq!(patches(&decision).len() == 1, complete, "{what}");
        if ago == 119 {
            assert_eq!(decision.wake_after, Some(std::time::Duration::from_secs(1)), "{what}");
        }
    }
}
