//! STS-3.3 and R-13: conversion loses nothing.

use crate::cloneset::clones;
use crate::generate;
use crate::world::{set, with};
use flotilla_admission::convert;
use flotilla_api::names;
use flotilla_api::statefulset::v1alpha1::SPEC_FIELDS;
use proptest::prelude::*;
use serde_json::{Value, json};

const ALPHA: &str = "apps.kruise.io/v1alpha1";
const BETA: &str = "apps.kruise.io/v1beta1";
const HUB: &str = "/metadata/annotations/flotilla.rs~1hub-fields";

fn to(object: &Value, version: &str) -> Value {
    let mut converted = convert(vec![object.clone()], version).expect("a StatefulSet");
    assert_eq!(converted.len(), 1);
    converted.remove(0)
}

fn rich() -> Value {
    with(
        set(),
        &[
            ("/spec/reserveOrdinals", json!([1, "3-5"])),
            ("/spec/scaleStrategy", json!({"maxUnavailable": 1})),
            ("/spec/ordinals", json!({"start": 2})),
        ],
    )
}

#[test]
fn sts_3_3_fields_that_the_older_version_lacks_travel_in_the_annotation() {
    let down = to(&rich(), ALPHA);
    assert_eq!(down["apiVersion"], ALPHA);
    for field in ["reserveOrdinals", "scaleStrategy", "ordinals"] {
        assert_eq!(down["spec"].get(field), None);
    }
    let kept: Value = serde_json::from_str(down.pointer(HUB).unwrap().as_str().unwrap()).unwrap();
    assert_eq!(
        kept,
        json!({"reserveOrdinals": [1, "3-5"], "scaleStrategy": {"maxUnavailable": 1}, "ordinals": {"start": 2}})
    );
    assert_eq!(
        to(&down, BETA),
        rich(),
        "the annotation is gone again, and the map that held only it"
    );
}

#[test]
fn sts_3_3_a_set_without_such_fields_has_no_annotation() {
    let down = to(&set(), ALPHA);
    assert_eq!(down, with(set(), &[("/apiVersion", json!(ALPHA))]));
}

#[test]
fn r_13_a_change_made_in_the_older_version_wins() {
    let down = to(&rich(), ALPHA);
    let changed = with(
        down,
        &[("/spec/replicas", json!(9)), ("/spec/serviceName", Value::Null)],
    );
    let up = to(&changed, BETA);
    assert_eq!(up["spec"]["replicas"], 9);
    assert_eq!(up["spec"]["serviceName"], Value::Null);
    assert_eq!(up["spec"]["reserveOrdinals"], json!([1, "3-5"]));
    // The annotation restores nothing that the older version has.
    let sly = with(
        to(&set(), ALPHA),
        &[(HUB, json!(r#"{"replicas":77,"template":{},"reserveOrdinals":[4]}"#))],
    );
    let up = to(&sly, BETA);
    assert_eq!(up["spec"]["replicas"], 3);
    assert_eq!(up["spec"]["reserveOrdinals"], json!([4]));
    assert_eq!(up["spec"]["template"], set()["spec"]["template"]);
}

#[test]
fn r_13_a_broken_annotation_is_ignored() {
    for text in [json!("{"), json!("[]"), json!("null"), json!(""), json!(5)] {
        let broken = with(
            to(&set(), ALPHA),
            &[(HUB, text.clone()), ("/metadata/annotations/own", json!("stays"))],
        );
        let up = to(&broken, BETA);
        assert_eq!(up["spec"], set()["spec"], "{text}");
        assert_eq!(up["metadata"]["annotations"], json!({"own": "stays"}), "{text}");
    }
}

#[test]
fn r_13_an_annotation_in_the_hub_does_not_become_fields() {
    let mut stale = set();
    stale["metadata"]["annotations"][names::HUB_FIELDS] = json!(r#"{"reserveOrdinals":[7]}"#);
    let down = to(&stale, ALPHA);
    assert_eq!(down.pointer(HUB), None);
    assert_eq!(to(&down, BETA)["spec"], set()["spec"]);
}

#[test]
fn conversion_is_all_or_nothing_and_keeps_the_order() {
    let named = |name: &str, version: &str| {
        with(
            set(),
            &[("/metadata/name", json!(name)), ("/apiVersion", json!(version))],
        )
    };
    let objects = [named("c", BETA), named("a", ALPHA), named("b", BETA)];
    let converted = convert(objects.to_vec(), ALPHA).unwrap();
    let names: Vec<_> = converted
        .iter()
        .map(|o| o["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["c", "a", "b"]);
    assert!(converted.iter().all(|o| o["apiVersion"] == ALPHA));
    assert_eq!(convert(Vec::new(), BETA), Ok(vec![]));
    for (bad, desired) in [
        (with(set(), &[("/kind", json!("DaemonSet"))]), ALPHA),
        (named("x", "apps/v1"), ALPHA),
        (named("x", "apps.kruise.io/v2"), ALPHA),
        (set(), "apps.kruise.io/v2"),
        (set(), "example.com/v1beta1"),
        (json!(5), ALPHA),
    ] {
        let message = convert(vec![set(), bad.clone()], desired).unwrap_err();
        assert!(
            message.contains("failed to convert") && message.contains(desired),
            "{message}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    /// STS-I11, with every field of the types filled in at times, and fields that nobody knows.
    #[test]
    fn sts_i11_round_trip_is_the_identity_on_spec(object in generate::set()) {
        let down = to(&object, ALPHA);
        let spec = down["spec"].as_object().unwrap();
        prop_assert!(spec.keys().all(|field| SPEC_FIELDS.contains(&field.as_str())));
        let up = to(&down, BETA);
        prop_assert_eq!(&up["spec"], &object["spec"]);
        prop_assert_eq!(&up["status"], &object["status"]);
        prop_assert_eq!(to(&up, ALPHA), down);
    }
}

proptest! {
    #[test]
    fn r_13_shared_fields_are_those_of_the_older_client(object in generate::set(), other in generate::set()) {
        let mut down = to(&object, ALPHA);
        for field in SPEC_FIELDS {
            down["spec"][field] = other["spec"][field].clone();
        }
        let up = to(&down, BETA);
        for (field, value) in object["spec"].as_object().unwrap() {
            let expected = if SPEC_FIELDS.contains(&field.as_str()) { &other["spec"][field] } else { value };
            prop_assert_eq!(&up["spec"][field], expected, "{}", field);
        }
    }
}

/// Sets whose fields do not fit into annotations, of which all together may take 262,144 bytes.
fn too_large() -> Vec<Value> {
    let reserved: Vec<i32> = (100..200).collect();
    let selectors: Vec<Value> = (0..60)
        .map(|n| json!({"matchLabels": {"a": format!("{n}{}", "x".repeat(7000))}}))
        .collect();
    let note = |bytes: usize| json!({"note": "x".repeat(bytes - "note".len())});
    vec![
        with(
            set(),
            &[
                ("/metadata/annotations", note(262_004)),
                ("/spec/reserveOrdinals", json!(reserved)),
            ],
        ),
        with(set(), &[("/spec/specialPodsSelectors", json!(selectors))]),
        with(
            set(),
            &[
                ("/metadata/annotations", note(262_144)),
                ("/spec/ordinals", json!({"start": 1})),
            ],
        ),
    ]
}

fn annotation_bytes(object: &Value) -> usize {
    let annotations = object["metadata"]["annotations"].as_object();
    annotations
        .into_iter()
        .flatten()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum()
}

#[test]
fn r_13_fields_that_do_not_fit_are_left_out_and_never_lost() {
    for object in too_large() {
        let converted = convert(vec![rich(), object.clone(), set()], ALPHA).unwrap();
        assert_eq!(converted[0], to(&rich(), ALPHA));
        assert_eq!(converted[2], to(&set(), ALPHA));
        let down = &converted[1];
        assert!(annotation_bytes(down) <= 262_144);
        assert_eq!(down["metadata"]["annotations"], object["metadata"]["annotations"]);
        assert_eq!(down["metadata"]["labels"][names::HUB_FIELDS], "left-out");
        assert!(
            down["spec"]
                .as_object()
                .unwrap()
                .keys()
                .all(|f| SPEC_FIELDS.contains(&f.as_str()))
        );
        let why = convert(vec![down.clone()], BETA).unwrap_err();
        for part in ["StatefulSet shop/web", "hub-fields=left-out", "write it as v1beta1"] {
            assert!(why.contains(part), "{why}");
        }
    }
}

#[test]
fn r_13_the_room_for_annotations_is_used_to_the_last_byte() {
    let with_note = |bytes: usize| with(rich(), &[("/metadata/annotations", json!({"note": "x".repeat(bytes)}))]);
    let most = 262_144 - annotation_bytes(&to(&with_note(0), ALPHA));
    let down = to(&with_note(most), ALPHA);
    assert_eq!(annotation_bytes(&down), 262_144);
    assert_eq!(to(&down, BETA), with_note(most));
    assert_eq!(to(&with_note(most + 1), ALPHA).pointer(HUB), None);
}

#[test]
fn r_13_the_label_in_the_hub_holds_up_no_writes() {
    let mut labelled = rich();
    labelled["metadata"]["labels"][names::HUB_FIELDS] = json!("left-out");
    let down = to(&labelled, ALPHA);
    assert_eq!(down["metadata"]["labels"].get(names::HUB_FIELDS), None);
    assert_eq!(to(&down, BETA)["spec"], rich()["spec"]);
}

/// What a CloneSet's older version lacks is small: where annotations are full, it travels otherwise, and no set is held up.
#[test]
fn r_13_nothing_of_a_cloneset_is_left_out_where_annotations_are_full() {
    for policy in ["ReCreate", "InPlaceIfPossible", "InPlaceOnly"] {
        for free in 0..300 {
            let note = "x".repeat(262_144 - "note".len() - free);
            let ahead = json!({"imagePreDownloadParallelism": "20%", "imagePreDownloadTimeoutSeconds": 60,
                "imagePreDownloadMinUpdatedReadyPods": 3, "gracePeriodSeconds": 5});
            let rolling = json!({"podUpdatePolicy": policy, "inPlaceUpdateStrategy": ahead});
            let hub = with(
                clones(),
                &[
                    ("/metadata/annotations", json!({"note": note})),
                    (
                        "/spec/updateStrategy",
                        json!({"type": "OnDelete", "rollingUpdate": rolling}),
                    ),
                    ("/spec/scaleStrategy", json!({"enablePVCReuse": true})),
                ],
            );
            let down = to(&hub, ALPHA);
            assert!(annotation_bytes(&down) <= 262_144, "{free}");
            assert!(to(&down, BETA) == hub, "{policy} {free}");
        }
    }
}

/// A label that says what a StatefulSet's would say holds up no CloneSet: it may have been stored as v1alpha1 by anybody.
#[test]
fn r_13_no_label_holds_up_a_cloneset() {
    for word in ["left-out", "InPlaceOnly", "x"] {
        let mut set = with(clones(), &[("/apiVersion", json!(ALPHA))]);
        set["metadata"]["labels"] = json!({names::HUB_FIELDS: word});
        assert_eq!(to(&set, BETA)["metadata"].get("labels"), None);
    }
}
