//! STS-7.4: what may change, and what not.

use crate::cases::{put, updates};
use crate::world::{World, refusal, request, set, unlike, with};
use flotilla_admission::{Nothing, StorageAsked, validate};
use flotilla_api::names;
use serde_json::{Value, json};

fn able() -> World {
    World {
        default_class: Some(true),
        classes: [("fast", true), ("fixed", false)].into(),
        ..World::default()
    }
}

#[test]
fn sts_7_4_admission_and_definition_agree() {
    let mut wrong = Vec::new();
    for (before, after, words) in updates() {
        let changed = |changes: &[(&'static str, Value)]| {
            let mut object = set();
            for (pointer, value) in changes {
                put(&mut object["spec"], pointer, value.clone());
            }
            object
        };
        let (old, new) = (changed(&before), changed(&after));
        let reply = validate(&request(Some(&new), Some(&old)), &able());
        wrong.extend(unlike(&reply, words).map(|why| format!("{before:?} -> {after:?}: {why}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn sts_7_4_everything_else_can_be_changed() {
    for (pointer, value) in [
        ("/spec/replicas", json!(9)),
        ("/spec/ordinals", json!({"start": 3})),
        ("/spec/template/spec/containers/0/image", json!("web:2")),
        ("/spec/updateStrategy", json!({"type": "OnDelete"})),
        ("/spec/scaleStrategy", json!({"maxUnavailable": 1})),
        ("/spec/reserveOrdinals", json!([1])),
        (
            "/spec/lifecycle",
            json!({"preDelete": {"finalizersHandler": ["example.com/a"]}}),
        ),
        ("/spec/revisionHistoryLimit", json!(0)),
        (
            "/spec/persistentVolumeClaimRetentionPolicy",
            json!({"whenScaled": "Delete"}),
        ),
        ("/spec/volumeClaimTemplates", json!([claim("2Gi", &json!({}))])),
        ("/spec/volumeClaimUpdateStrategy", json!({"type": "OnPodRollingUpdate"})),
        ("/spec/specialPodsSelectors", json!([{"matchLabels": {"a": "b"}}])),
    ] {
        let new = with(set(), &[(pointer, value)]);
        let reply = validate(&request(Some(&new), Some(&set())), &able());
        assert_eq!(refusal(&reply), None, "{pointer}");
    }
}

#[test]
fn sts_7_4_forbidden_changes_have_their_own_code() {
    let new = with(set(), &[("/spec/serviceName", json!("other"))]);
    let reply = validate(&request(Some(&new), Some(&set())), &able());
    let expected = "spec.serviceName: Invalid value: \"other\": serviceName cannot be changed";
    assert_eq!(refusal(&reply), Some((403, expected)));
    let both = with(new, &[("/spec/replicas", json!(-1))]);
    let reply = validate(&request(Some(&both), Some(&set())), &able());
    assert_eq!(refusal(&reply).map(|(code, _)| code), Some(422));
}

#[test]
fn sts_7_4_spelling_out_a_selector_is_no_change() {
    let new = with(set(), &[("/spec/selector/matchExpressions", json!([]))]);
    let reply = validate(&request(Some(&new), Some(&set())), &able());
    assert_eq!(refusal(&reply), None);
}

fn claim(storage: &str, more: &Value) -> Value {
    let mut claim = json!({"metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}}});
    for (field, value) in more.as_object().into_iter().flatten() {
        claim["spec"][field] = value.clone();
    }
    claim
}

fn with_claim(claim: Value) -> Value {
    with(
        set(),
        &[
            ("/spec/volumeClaimUpdateStrategy/type", json!("OnPodRollingUpdate")),
            ("/spec/volumeClaimTemplates", json!([claim])),
        ],
    )
}

#[test]
fn sts_7_4_claims_grow_only_where_their_class_lets_them() {
    let fast = json!({"storageClassName": "fast"});
    let class = |name: &str| json!({"storageClassName": name});
    for (before, after, words) in [
        (claim("1Gi", &fast), claim("2Gi", &fast), &[][..]),
        (
            claim("1Gi", &class("fixed")),
            claim("2Gi", &class("fixed")),
            &["\"fixed\"", "allowVolumeExpansion: true"],
        ),
        (claim("1Gi", &class("fixed")), claim("1024Mi", &class("fixed")), &[]),
        (
            claim("1Gi", &class("none")),
            claim("2Gi", &class("none")),
            &["storageClassName", "Not found", "\"none\""],
        ),
        (claim("1Gi", &class("")), claim("2Gi", &class("")), &[]),
        (claim("1Gi", &json!({})), claim("2Gi", &json!({})), &[]),
        (
            claim("2Gi", &fast),
            claim("lots", &fast),
            &["requests.storage", "lots", "10Gi"],
        ),
        (
            claim("1Gi", &fast),
            claim("1Gi", &class("fixed")),
            &["only the requested storage"],
        ),
        (
            claim("1Gi", &fast),
            claim("1Gi", &json!({"storageClassName": "fast", "volumeMode": "Block"})),
            &["only the requested"],
        ),
        (
            claim("1Gi", &fast),
            claim("1Gi", &json!({"storageClassName": "fast", "volumeMode": "Filesystem"})),
            &[],
        ),
        (
            claim("1Gi", &fast),
            claim(
                "1Gi",
                &json!({"storageClassName": "fast", "dataSource": {"kind": "VolumeSnapshot", "name": "s"}}),
            ),
            &["only the requested storage"],
        ),
        (
            claim("1Gi", &fast),
            claim(
                "2Gi",
                &json!({"storageClassName": "fast", "resources": {"requests": {"storage": "2Gi"}, "limits": {"storage": "3Gi"}}}),
            ),
            &[],
        ),
    ] {
        let (old, new) = (with_claim(before.clone()), with_claim(after.clone()));
        let reply = validate(&request(Some(&new), Some(&old)), &able());
        assert_eq!(unlike(&reply, words), None, "{before} -> {after}");
    }
}

#[test]
fn r_35_templates_shrink_back_to_what_was_asked_for_before() {
    const GI: u64 = 1 << 30;
    let asked = |recorded: &[u64], smallest_claim| {
        Some(StorageAsked {
            recorded: recorded.to_vec(),
            smallest_claim,
        })
    };
    let back = "goes back to \"1Gi\"; claims never shrink";
    for (what, storage, refusal_words, warning) in [
        ("by a revision", asked(&[3 * GI, GI], None), &[][..], Some(back)),
        ("by the smallest claim", asked(&[2 * GI], Some(GI)), &[], Some(back)),
        (
            "by nobody",
            asked(&[], None),
            &["requests.storage", "1Gi", "smaller"],
            None,
        ),
        ("all ask for more", asked(&[2 * GI], Some(2 * GI)), &["smaller"], None),
        ("some ask for less", asked(&[2 * GI], Some(GI / 2)), &[], Some(back)),
        ("nobody knows", None, &[], Some("not known yet; claims never shrink")),
    ] {
        let world = World { storage, ..able() };
        // Also where its class cannot expand anything: that may be why it goes back.
        for class in ["fast", "fixed"] {
            let class = json!({"storageClassName": class});
            let (old, new) = (with_claim(claim("2Gi", &class)), with_claim(claim("1Gi", &class)));
            let reply = validate(&request(Some(&new), Some(&old)), &world);
            assert_eq!(unlike(&reply, refusal_words), None, "{what}");
            assert_eq!(
                reply.warnings.len(),
                usize::from(warning.is_some()),
                "{what}: {:?}",
                reply.warnings
            );
            assert!(
                reply
                    .warnings
                    .iter()
                    .zip(warning)
                    .all(|(got, words)| got.contains(words)),
                "{what}: {:?}",
                reply.warnings
            );
        }
    }
    let (old, new) = (
        with_claim(claim("2Gi", &json!({}))),
        with_claim(claim("2Gi", &json!({"resources": {}}))),
    );
    let reply = validate(&request(Some(&new), Some(&old)), &able());
    assert_eq!(
        unlike(&reply, &["requests.storage", "smaller"]),
        None,
        "a request is not taken away"
    );
}

#[test]
fn sts_7_4_an_unset_or_absent_default_class() {
    let (old, new) = (
        with_claim(claim("1Gi", &json!({}))),
        with_claim(claim("2Gi", &json!({}))),
    );
    for (default_class, words) in [
        (Some(true), &[][..]),
        (Some(false), &["default storage class"]),
        (None, &[]),
    ] {
        let world = World {
            default_class,
            ..World::default()
        };
        let reply = validate(&request(Some(&new), Some(&old)), &world);
        assert_eq!(unlike(&reply, words), None, "{default_class:?}");
    }
    let reply = validate(&request(Some(&new), Some(&old)), &Nothing);
    assert_eq!(refusal(&reply), None, "what is not known yet is left to the controller");
    assert!(reply.warnings[0].contains("not known yet"), "{:?}", reply.warnings);
}

#[test]
fn sts_7_4_labels_of_claims_change_only_where_they_follow() {
    let old = with_claim(claim("1Gi", &json!({})));
    let new = with(
        old.clone(),
        &[("/spec/volumeClaimTemplates/0/metadata/labels", json!({"a": "b"}))],
    );
    let reply = validate(&request(Some(&new), Some(&old)), &able());
    assert_eq!(unlike(&reply, &["only the requested storage"]), None);
    let new = with(
        new,
        &[("/metadata/annotations", json!({names::CLAIM_LABELS: "propagate"}))],
    );
    let reply = validate(&request(Some(&new), Some(&old)), &able());
    assert_eq!(refusal(&reply), None);
}

/// A claim template that no pod can have would keep every pod of its set from coming back, and so would one that is gone and used.
#[test]
fn r_31_claim_templates_have_names_of_volumes_and_those_in_use_stay() {
    let templates =
        |names: &[&str]| -> Value { names.iter().map(|name| json!({"metadata": {"name": name}})).collect() };
    let long = "x".repeat(64);
    let mut clones = set();
    clones["kind"] = json!("CloneSet");
    clones["spec"].as_object_mut().expect("a map").remove("serviceName");
    for plain in [set(), clones] {
        let kind = plain["kind"].clone();
        let having = |names: &[&str]| with(plain.clone(), &[("/spec/volumeClaimTemplates", templates(names))]);
        let told = |new: &Value, old: &Value| {
            let reply = validate(&request(Some(new), Some(old)), &able());
            refusal(&reply).map_or_else(String::new, |(_, words)| words.to_owned())
        };
        for bad in ["logs.v1", "Logs", &long] {
            let (before, after) = (having(&["data"]), having(&["data", bad]));
            let words = told(&after, &before);
            let is_named = words.contains("volumeClaimTemplates[1].metadata.name")
                && words.contains("a name that a volume can have");
            assert!(is_named, "{kind} {bad}: {words:?}");
            let elsewhere = with(after.clone(), &[("/spec/replicas", json!(7))]);
            assert_eq!(
                told(&elsewhere, &after),
                "",
                "{kind} {bad}: it was stored before the rule"
            );
            assert_ne!(
                told(&having(&["data", bad, "no.more"]), &after),
                "",
                "{kind} {bad}: it excuses no other"
            );
        }
        for (list, place) in [("volumeMounts", "mountPath"), ("volumeDevices", "devicePath")] {
            let uses = format!("/spec/template/spec/containers/0/{list}");
            let used = |names: &[&str]| with(having(names), &[(&uses, json!([{"name": "data", place: "/x"}]))]);
            assert_eq!(told(&used(&["data", "logs"]), &used(&["data"])), "", "{kind} {list}");
            let words = told(&used(&[]), &used(&["data"]));
            assert!(
                words.contains(&format!("{list}[0].name: Not found: \"data\"")),
                "{kind}: {words:?}"
            );
        }
    }
}
