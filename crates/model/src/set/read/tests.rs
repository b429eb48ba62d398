//! What is read from a set, well written or not.

use super::*;
use serde_json::json;

fn read(kind: SetKind, spec: &Value) -> SetSpec {
    let mut spec = spec.clone();
    spec["selector"] = json!({"matchLabels": {"app": "web"}});
    spec["template"] = json!({"metadata": {"labels": {"app": "web"}}, "spec": {}});
    let object = json!({"metadata": {"name": "web", "uid": "u", "resourceVersion": "1"}, "spec": spec});
    (*read_set(kind, &object, &mut Interner::new()).unwrap().spec).clone()
}

#[test]
fn rules_7_2_and_8_17_what_is_absent_is_defaulted_on_reading() {
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
fn rules_3_4_and_8_19_nonsense_is_a_problem_that_stops_what_rests_on_it() {
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
fn rule_3_4_unknown_ordinals_stop_scaling_and_updates() {
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
