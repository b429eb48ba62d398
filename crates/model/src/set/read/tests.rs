//! What is read from a set, well written or not.

use super::*;
use crate::set::{PodUpdatePolicy, PreDownload};
use serde_json::json;
use std::collections::BTreeSet;

fn read(kind: SetKind, spec: &Value) -> SetSpec {
    let mut spec = spec.clone();
    spec["selector"] = json!({"matchLabels": {"app": "web"}});
    spec["template"] = json!({"metadata": {"labels": {"app": "web"}}, "spec": {}});
    let object = json!({"metadata": {"name": "web", "uid": "u", "resourceVersion": "1"}, "spec": spec});
    (*read_set(kind, &object, &mut Interner::new()).unwrap().spec).clone()
}

#[test]
fn sts_7_2_and_8_17_what_is_absent_is_defaulted_on_reading() {
    for absent in [
        json!({}),
        json!({"replicas": null, "updateStrategy": {"rollingUpdate": {"partition": null}}}),
    ] {
        let spec = read(SetKind::Advanced, &absent);
        assert_eq!((spec.replicas, spec.start, spec.history_limit), (1, 0, Some(10)));
        let rolling = spec.rolling.unwrap();
        assert_eq!(
            (rolling.partition, rolling.max_unavailable),
            (0, Some(IntOrPercent::Int(1)))
        );
        assert_eq!(
            spec.update,
            UpdateKind::RollingUpdate,
            "the block counts although the type is absent"
        );
        assert_eq!((spec.retention, spec.problems.len()), (Retention::default(), 0));
    }
    assert_eq!(
        read(SetKind::Native, &json!({})).rolling,
        None,
        "a bare native strategy is not the same as an empty block"
    );
}

#[test]
fn sts_3_4_and_8_19_nonsense_is_a_problem_that_stops_what_rests_on_it() {
    for (spec, path, stops) in [
        (json!({"replicas": -1}), "spec.replicas", Area::Scale),
        (json!({"replicas": 99_999_999_999_i64}), "spec.replicas", Area::Scale),
        (json!({"ordinals": {"start": -1}}), "spec.ordinals.start", Area::Scale),
        (
            json!({"reserveOrdinals": [1, "x"]}),
            "spec.reserveOrdinals[1]",
            Area::ScaleDown,
        ),
        (
            json!({"revisionHistoryLimit": -1}),
            "spec.revisionHistoryLimit",
            Area::Nothing,
        ),
        (
            json!({"podManagementPolicy": "Both"}),
            "spec.podManagementPolicy",
            Area::Nothing,
        ),
        (
            json!({"updateStrategy": {"type": "Magic"}}),
            "spec.updateStrategy.type",
            Area::Update,
        ),
        (
            json!({"updateStrategy": {"rollingUpdate": {"maxUnavailable": "3"}}}),
            "spec.updateStrategy.rollingUpdate.maxUnavailable",
            Area::Update,
        ),
        (
            json!({"volumeClaimTemplates": [{"metadata": {"name": "a"}}, {"metadata": {"name": "a"}}]}),
            "spec.volumeClaimTemplates[1]",
            Area::Everything,
        ),
        (
            json!({"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Maybe"}}),
            "spec.persistentVolumeClaimRetentionPolicy.whenScaled",
            Area::Nothing,
        ),
    ] {
        let read = read(SetKind::Advanced, &spec);
        let found: Vec<_> = read.problems.iter().map(|p| (p.path.as_str(), p.stops)).collect();
        assert_eq!(found, [(path, stops)], "{spec}");
    }
}

#[test]
fn sts_3_4_unknown_ordinals_stop_scaling_and_updates() {
    let spec = read(SetKind::Advanced, &json!({"replicas": "many"}));
    for (work, expected) in [
        (Area::Scale, true),
        (Area::ScaleDown, true),
        (Area::Update, true),
        (Area::Everything, false),
    ] {
        assert_eq!(spec.is_stopped(work), expected, "{work:?}");
    }
}

#[test]
fn sts_3_2_and_4_8_policy_grace_and_hooks_are_read() {
    let spec = read(
        SetKind::Advanced,
        &json!({
            "updateStrategy": {"rollingUpdate": {
                "podUpdatePolicy": "InPlaceIfPossible", "inPlaceUpdateStrategy": {"gracePeriodSeconds": 7},
            }},
            "lifecycle": {
                "preDelete": {"labelsHandler": {"hold": "yes"}, "markPodNotReady": true},
                "inPlaceUpdate": {"finalizersHandler": ["example.com/hold"]},
                "preNormal": null,
            },
        }),
    );
    let rolling = spec.rolling.unwrap();
    assert_eq!(rolling.pod_update_policy, PodUpdatePolicy::InPlaceIfPossible);
    assert_eq!(rolling.in_place_grace, Duration::from_secs(7));
    let pre_delete = spec.lifecycle.pre_delete.unwrap();
    assert_eq!(
        (pre_delete.labels, pre_delete.mark_not_ready),
        (vec![("hold".to_owned(), "yes".to_owned())], true)
    );
    let in_place = spec.lifecycle.in_place_update.unwrap();
    assert_eq!(
        (in_place.finalizers, in_place.mark_not_ready),
        (vec!["example.com/hold".to_owned()], false)
    );
    assert_eq!((spec.lifecycle.pre_normal, spec.problems), (None, vec![]));
    let native = read(
        SetKind::Native,
        &json!({"lifecycle": {"preDelete": {"labelsHandler": {"hold": "yes"}}}}),
    );
    assert!(native.lifecycle.is_empty(), "native sets have no hooks");
}

#[test]
fn sts_8_19_a_hook_or_policy_that_cannot_be_read_stops_what_it_would_hold() {
    for (spec, path, stops) in [
        (
            json!({"lifecycle": {"preDelete": "yes"}}),
            "spec.lifecycle.preDelete",
            Area::Scale,
        ),
        (
            json!({"lifecycle": {"preDelete": {"labelsHandler": {"hold": 1}}}}),
            "spec.lifecycle.preDelete.labelsHandler",
            Area::Scale,
        ),
        (
            json!({"lifecycle": {"inPlaceUpdate": {"finalizersHandler": "x"}}}),
            "spec.lifecycle.inPlaceUpdate.finalizersHandler",
            Area::Scale,
        ),
        (
            json!({"updateStrategy": {"rollingUpdate": {"podUpdatePolicy": "Recreate"}}}),
            "spec.updateStrategy.rollingUpdate.podUpdatePolicy",
            Area::Update,
        ),
        (
            json!({"updateStrategy": {"rollingUpdate": {"inPlaceUpdateStrategy": {"gracePeriodSeconds": -1}}}}),
            "spec.updateStrategy.rollingUpdate.inPlaceUpdateStrategy.gracePeriodSeconds",
            Area::Nothing,
        ),
    ] {
        let read = read(SetKind::Advanced, &spec);
        let found: Vec<_> = read.problems.iter().map(|p| (p.path.as_str(), p.stops)).collect();
        assert_eq!(found, [(path, stops)], "{spec}");
    }
}

/// Labels by which a pod is told to be its set's, or that are written for it: as a hook's they would take it out of its set, or say what is
/// not so.
#[test]
fn sts_4_8_and_7_3_a_hook_has_no_label_of_the_selector_and_none_that_is_written_for_pods() {
    let selector = json!({
        "matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["x"]}],
    });
    let read = |kind, hook: &str, key: &str| {
        let markers = json!({"labelsHandler": {key: "held", "hold": "yes"}, "finalizersHandler": ["example.com/hold"]});
        let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {}});
        let object = json!({
            "metadata": {"name": "web", "uid": "u", "resourceVersion": "1"},
            "spec": {"selector": selector, "template": template, "lifecycle": {hook: markers}},
        });
        read_set(kind, &object, &mut Interner::new()).unwrap().spec
    };
    for kind in [SetKind::Advanced, SetKind::Clone] {
        for key in names::POD_LABELS.into_iter().chain(["app", "tier", "flotilla.rs/any"]) {
            for hook in ["preDelete", "inPlaceUpdate", "preNormal"] {
                let what = format!("{kind:?} {hook} {key}");
                let spec = read(kind, hook, key);
                let lifecycle = spec.lifecycle.clone();
                let all = [lifecycle.pre_delete, lifecycle.in_place_update, lifecycle.pre_normal];
                let found = all.into_iter().flatten().next().expect("a hook");
                assert_eq!(found.labels, [("hold".to_owned(), "yes".to_owned())], "{what}");
                assert_eq!(found.finalizers, ["example.com/hold"], "{what}");
                let problems: Vec<_> = spec
                    .problems
                    .iter()
                    .map(|p| (p.path.clone(), p.found.clone()))
                    .collect();
                let path = format!("spec.lifecycle.{hook}.labelsHandler");
                assert_eq!(problems, [(path, format!("{key:?}"))], "{what}");
                for (work, is_stopped) in [
                    (Area::Scale, false),
                    (Area::ScaleDown, true),
                    (Area::Update, true),
                    (Area::Everything, false),
                ] {
                    assert_eq!(spec.is_stopped(work), is_stopped, "{what}, {work:?}");
                }
            }
        }
    }
}

#[test]
fn switches_of_updates_in_place_are_read_with_their_defaults() {
    let switches = |annotations: Value| {
        let object = json!({
            "metadata": {"name": "web", "uid": "u", "resourceVersion": "1", "annotations": annotations},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}}, "spec": {}}},
        });
        let spec = read_set(SetKind::Advanced, &object, &mut Interner::new()).unwrap().spec;
        (spec.switches.clone(), spec.problems.len())
    };
    let (absent, problems) = switches(json!({}));
    assert_eq!(
        (absent.in_place_deadline, absent.deadline_recreates, problems),
        (None, false, 0)
    );
    assert_eq!(
        (absent.resize_wait, absent.keep_ready),
        (Duration::from_secs(300), BTreeSet::new())
    );
    let (set, problems) = switches(json!({
        "flotilla.rs/in-place-deadline-seconds": "90", "flotilla.rs/in-place-deadline-action": "recreate",
        "flotilla.rs/keep-ready-containers": "log, proxy,log", "flotilla.rs/resize-wait-seconds": "10",
    }));
    assert_eq!(
        (set.in_place_deadline, set.deadline_recreates),
        (Some(Duration::from_secs(90)), true)
    );
    assert_eq!(
        (set.keep_ready, set.resize_wait, problems),
        (
            BTreeSet::from(["log".into(), "proxy".into()]),
            Duration::from_secs(10),
            0
        )
    );
    let (bad, problems) = switches(json!({
        "flotilla.rs/in-place-deadline-seconds": "0", "flotilla.rs/in-place-deadline-action": "shrug",
        "flotilla.rs/resize-wait-seconds": "soon",
    }));
    assert_eq!(
        (bad.in_place_deadline, bad.resize_wait, problems),
        (None, Duration::from_secs(300), 3)
    );
    for unnamed in ["log proxy", "log,Proxy", "log,", ""] {
        let (bad, problems) = switches(json!({"flotilla.rs/keep-ready-containers": unnamed}));
        assert_eq!((bad.keep_ready.len(), problems), (0, 1), "{unnamed:?}");
    }
}

#[test]
fn cs_3_and_13_2_are_read_with_their_defaults() {
    use crate::int_or_percent::Share;
    let spec = read(SetKind::Clone, &json!({}));
    let clones = spec.clones.clone().expect("a CloneSet");
    assert_eq!(
        (spec.replicas, spec.history_limit, spec.update),
        (1, Some(10), UpdateKind::RollingUpdate)
    );
    assert_eq!(
        (clones.partition, clones.max_unavailable, clones.max_surge),
        (Share::Int(0), Share::Percent(20_000_000), Share::Int(0))
    );
    assert!(!clones.reuses_claims && clones.scale_max_unavailable.is_none() && clones.progress_deadline.is_none());
    assert_eq!(spec.problems, []);
    let never = read(SetKind::Clone, &json!({"progressDeadlineSeconds": i32::MAX}));
    assert_eq!(
        never.clones.expect("a CloneSet").progress_deadline,
        None,
        "the largest number means never"
    );
    assert_eq!(read(SetKind::Advanced, &json!({})).clones, None);
}

#[test]
fn cs_13_2_what_cannot_be_read_is_a_problem() {
    let rolling = |field: &str, value: Value| json!({"updateStrategy": {"rollingUpdate": {field: value}}});
    for (spec, path, stops) in [
        (
            rolling("partition", json!("5")),
            "spec.updateStrategy.rollingUpdate.partition",
            Area::Update,
        ),
        (
            rolling("maxUnavailable", json!("x")),
            "spec.updateStrategy.rollingUpdate.maxUnavailable",
            Area::Update,
        ),
        (
            rolling("maxSurge", json!(-1)),
            "spec.updateStrategy.rollingUpdate.maxSurge",
            Area::Nothing,
        ),
        (
            rolling("scatterStrategy", json!([{}])),
            "spec.updateStrategy.rollingUpdate.scatterStrategy[0]",
            Area::Nothing,
        ),
        (
            json!({"updateStrategy": {"type": "Recreate"}}),
            "spec.updateStrategy.type",
            Area::Update,
        ),
        (
            json!({"scaleStrategy": {"maxUnavailable": {}}}),
            "spec.scaleStrategy.maxUnavailable",
            Area::Nothing,
        ),
    ] {
        let problems = read(SetKind::Clone, &spec).problems;
        assert_eq!(problems.len(), 1, "{spec}");
        assert_eq!((problems[0].path.as_str(), problems[0].stops), (path, stops));
    }
}

#[test]
fn sts_5_2_how_images_are_pulled_ahead_field_annotation_default() {
    let read = |fields: Value, annotations: Value| {
        let strategy = json!({"rollingUpdate": {"inPlaceUpdateStrategy": fields}});
        let object = json!({
            "metadata": {"name": "web", "uid": "u", "resourceVersion": "1", "annotations": annotations},
            "spec": {"updateStrategy": strategy},
        });
        let set = read_set(SetKind::Clone, &object, &mut Interner::new()).expect("it has metadata");
        let PreDownload {
            parallelism,
            timeout_seconds,
            min_updated_ready,
            also_for_recreation,
        } = set.spec.pre_download;
        let problems = set.spec.problems.iter().filter(|p| p.path.contains("PreDownload"));
        assert!(problems.clone().all(|p| p.stops == Area::Nothing));
        let said = format!("{parallelism} {timeout_seconds} {min_updated_ready} {also_for_recreation}");
        (said, problems.count())
    };
    let annotated = json!({
        names::PRE_DOWNLOAD_PARALLELISM: "20%", names::PRE_DOWNLOAD_TIMEOUT: "60", names::PRE_DOWNLOAD_MIN_UPDATED_READY: "10%",
        names::PRE_DOWNLOAD_RECREATE: "true",
    });
    let fields = json!({
        "imagePreDownloadParallelism": 3, "imagePreDownloadTimeoutSeconds": 90, "imagePreDownloadMinUpdatedReadyPods": 2,
    });
    let nonsense = json!({names::PRE_DOWNLOAD_PARALLELISM: "-1", names::PRE_DOWNLOAD_TIMEOUT: "1h", names::PRE_DOWNLOAD_MIN_UPDATED_READY: ""});
    for (fields, annotations, said, problems) in [
        (json!({}), json!({}), "1 300 0 false", 0),
        (json!({}), annotated.clone(), "20% 60 10% true", 0),
        (fields, annotated, "3 90 2 true", 0),
        (
            json!({"imagePreDownloadParallelism": "5"}),
            nonsense,
            "5 300 0 false",
            0,
        ),
        (
            json!({"imagePreDownloadParallelism": "25%"}),
            json!({}),
            "25% 300 0 false",
            0,
        ),
        (
            json!({"imagePreDownloadParallelism": "few"}),
            json!({}),
            "1 300 0 false",
            1,
        ),
    ] {
        assert_eq!(read(fields, annotations), (said.to_owned(), problems));
    }
}

/// Each pod would be let go of as soon as it is made, and the next be made.
#[test]
fn sts_7_3_a_set_that_would_not_know_the_pods_that_it_makes_makes_none() {
    use SetKind::{Advanced, Clone, Native};
    let by_value = |key: &str, value: &str| json!({"matchLabels": {"app": "web", key: value}});
    let by = |key: &str, operator: &str| json!({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": key, "operator": operator}]});
    let (state, name) = (names::LIFECYCLE_STATE_LABEL, names::POD_NAME_LABEL);
    for (kinds, selector, stops) in [
        (
            &[Native, Advanced, Clone][..],
            by_value(names::REVISION_LABEL, "web-abc"),
            true,
        ),
        (
            &[Native, Advanced, Clone],
            by(names::MADE_AS_LABEL, "DoesNotExist"),
            true,
        ),
        (&[Clone], by_value(names::TEMPLATE_HASH_LABEL, "5d4f8c7b9"), true),
        (&[Clone], by(names::INSTANCE_ID_LABEL, "DoesNotExist"), true),
        (&[Clone], by(names::INSTANCE_ID_LABEL, "Exists"), false),
        (&[Clone], by_value(state, "Updated"), true),
        (&[Native, Advanced, Clone], by_value(state, "Normal"), false),
        (
            &[Native, Advanced],
            by_value(names::TEMPLATE_HASH_LABEL, "5d4f8c7b9"),
            false,
        ),
        // With one pod it works.
        (&[Native, Advanced], by_value(name, "web-0"), false),
        (&[Native, Advanced, Clone], by_value("tier", "a"), false),
    ] {
        let mut labels = selector["matchLabels"].clone();
        if selector["matchExpressions"][0]["operator"] == "Exists" {
            labels[names::INSTANCE_ID_LABEL] = json!("x");
        }
        for kind in kinds {
            let object = json!({
                "metadata": {"name": "web", "uid": "u", "resourceVersion": "1"},
                "spec": {"selector": selector, "template": {"metadata": {"labels": labels}, "spec": {}}},
            });
            let spec = read_set(*kind, &object, &mut Interner::new()).unwrap().spec;
            let found = spec.problems.iter().map(|problem| (&*problem.path, problem.stops));
            let expected = stops.then_some(("spec.selector", Area::Everything));
            assert!(found.eq(expected), "{kind:?} {selector}: {:?}", spec.problems);
        }
    }
}
