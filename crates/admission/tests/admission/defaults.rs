//! STS-7.2: what is filled in.

use crate::world::{World, patched, request, set, with};
use flotilla_admission::{Verdict, mutate};
use flotilla_api::names;
use serde_json::{Value, json};

fn filled(object: &Value, old: Option<&Value>) -> Value {
    patched(object, &mutate(&request(Some(object), old), &World::default()))
}

#[test]
fn sts_7_2_every_default_of_a_set() {
    let object = with(set(), &[("/spec/replicas", Value::Null)]);
    let filled = filled(&object, None);
    for (pointer, value) in [
        ("/spec/podManagementPolicy", json!("OrderedReady")),
        (
            "/spec/updateStrategy",
            json!({"type": "RollingUpdate", "rollingUpdate": {
                "partition": 0, "maxUnavailable": 1, "podUpdatePolicy": "ReCreate", "minReadySeconds": 0}}),
        ),
        (
            "/spec/persistentVolumeClaimRetentionPolicy",
            json!({"whenDeleted": "Retain", "whenScaled": "Retain"}),
        ),
        ("/spec/volumeClaimUpdateStrategy", json!({"type": "OnDelete"})),
        ("/spec/replicas", json!(1)),
        ("/spec/revisionHistoryLimit", json!(10)),
    ] {
        assert_eq!(filled.pointer(pointer), Some(&value), "{pointer}");
    }
}

#[test]
fn sts_7_2_what_is_said_stays() {
    let said = json!({
        "podManagementPolicy": "Parallel", "replicas": 0, "revisionHistoryLimit": 0,
        "updateStrategy": {"rollingUpdate": {"partition": 2, "maxUnavailable": "20%", "podUpdatePolicy": "InPlaceIfPossible", "minReadySeconds": 5}},
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": ""},
        "volumeClaimUpdateStrategy": {"type": "OnPodRollingUpdate"},
    });
    let mut object = set();
    for (field, value) in said.as_object().unwrap() {
        object["spec"][field] = value.clone();
    }
    let mut expected = said;
    // STS-8.17: a strategy whose type was left out is filled in, so that edits of rollingUpdate count.
    expected["updateStrategy"]["type"] = json!("RollingUpdate");
    expected["persistentVolumeClaimRetentionPolicy"]["whenScaled"] = json!("Retain");
    let filled = filled(&object, None);
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&filled["spec"][field], value, "{field}");
    }
}

#[test]
fn sts_7_2_no_details_of_an_update_that_does_not_roll() {
    for kind in ["OnDelete", "Sometimes"] {
        let object = with(set(), &[("/spec/updateStrategy", json!({"type": kind}))]);
        assert_eq!(filled(&object, None)["spec"]["updateStrategy"], json!({"type": kind}));
    }
}

#[test]
fn sts_7_2_templates() {
    let container = json!({
        "name": "main", "image": "web:1", "fieldOfTheFuture": 1, "ports": [{"containerPort": 80}, {"containerPort": 81, "protocol": "UDP"}],
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "B", "value": "b"}],
        "readinessProbe": {"httpGet": {"port": 80}, "timeoutSeconds": 0, "periodSeconds": 3},
        "livenessProbe": {"grpc": {"port": 80}},
        "lifecycle": {"preStop": {"httpGet": {"port": 80, "path": "/bye"}}},
    });
    let volumes = json!([
        {"name": "a"}, {"name": "b", "secret": {"secretName": "s"}}, {"name": "c", "configMap": {"name": "c", "defaultMode": 256}},
        {"name": "d", "hostPath": {"path": "/d"}}, {"name": "e", "volumeOfTheFuture": {}},
        {"name": "f", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}},
            {"downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.uid"}}]}}]}},
        {"name": "g", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        {"name": "h", "rbd": {"image": "i", "pool": "p"}},
    ]);
    let object = with(
        set(),
        &[
            ("/spec/template/spec/containers", json!([container])),
            (
                "/spec/template/spec/initContainers",
                json!([{"name": "init", "image": "init"}]),
            ),
            ("/spec/template/spec/volumes", volumes),
            ("/spec/template/spec/securityContext", Value::Null),
            (
                "/spec/volumeClaimTemplates",
                json!([{"metadata": {"name": "data"}, "spec": {}}]),
            ),
        ],
    );
    let filled = filled(&object, None);
    let spec = &filled["spec"]["template"]["spec"];
    for (pointer, value) in [
        ("/restartPolicy", json!("Always")),
        ("/dnsPolicy", json!("ClusterFirst")),
        ("/schedulerName", json!("default-scheduler")),
        ("/terminationGracePeriodSeconds", json!(30)),
        ("/securityContext", json!({})),
        // The deviation: also with a tag.
        ("/containers/0/imagePullPolicy", json!("Always")),
        ("/containers/0/terminationMessagePath", json!("/dev/termination-log")),
        ("/containers/0/terminationMessagePolicy", json!("File")),
        ("/containers/0/fieldOfTheFuture", json!(1)),
        ("/containers/0/ports/0/protocol", json!("TCP")),
        ("/containers/0/ports/1/protocol", json!("UDP")),
        ("/containers/0/env/0/valueFrom/fieldRef/apiVersion", json!("v1")),
        ("/containers/0/env/1", json!({"name": "B", "value": "b"})),
        (
            "/containers/0/readinessProbe",
            json!({"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 3,
                "successThreshold": 1, "failureThreshold": 3}),
        ),
        ("/containers/0/livenessProbe/grpc/service", json!("")),
        (
            "/containers/0/lifecycle/preStop/httpGet",
            json!({"port": 80, "path": "/bye", "scheme": "HTTP"}),
        ),
        ("/initContainers/0/imagePullPolicy", json!("Always")),
        ("/volumes/0/emptyDir", json!({})),
        ("/volumes/1/secret/defaultMode", json!(0o644)),
        ("/volumes/2/configMap/defaultMode", json!(256)),
        ("/volumes/3/hostPath/type", json!("")),
        ("/volumes/4", json!({"name": "e", "volumeOfTheFuture": {}})),
        (
            "/volumes/5/projected/sources/0/serviceAccountToken/expirationSeconds",
            json!(3600),
        ),
        (
            "/volumes/5/projected/sources/1/downwardAPI/items/0/fieldRef/apiVersion",
            json!("v1"),
        ),
        (
            "/volumes/6/ephemeral/volumeClaimTemplate/spec/volumeMode",
            json!("Filesystem"),
        ),
        (
            "/volumes/7/rbd",
            json!({"image": "i", "pool": "p", "user": "admin", "keyring": "/etc/ceph/keyring"}),
        ),
    ] {
        assert_eq!(spec.pointer(pointer), Some(&value), "{pointer}");
    }
    assert_eq!(
        filled["spec"]["volumeClaimTemplates"][0]["spec"]["volumeMode"],
        "Filesystem"
    );
}

#[test]
fn sts_7_2_an_untouched_template_is_left_alone() {
    let policy = "/spec/template/spec/containers/0/imagePullPolicy";
    let stored = set();
    // Stored while nobody filled it in: a change elsewhere, or defaults spelled out, start no rollout.
    let scaled = with(stored.clone(), &[("/spec/replicas", json!(5))]);
    assert_eq!(filled(&scaled, Some(&stored)).pointer(policy), None);
    let spelled = with(
        stored.clone(),
        &[("/spec/template/spec/restartPolicy", json!("Always"))],
    );
    assert_eq!(filled(&spelled, Some(&stored)).pointer(policy), None);
    let changed = with(
        stored.clone(),
        &[("/spec/template/spec/containers/0/image", json!("web:2"))],
    );
    assert_eq!(filled(&changed, Some(&stored)).pointer(policy), Some(&json!("Always")));
    // Applying the manifest anew over what was filled in changes nothing.
    let complete = filled(&stored, None);
    assert_eq!(filled(&stored, Some(&complete)), complete);
}

#[test]
fn sts_7_2_the_status_is_not_written_here() {
    let object = with(set(), &[("/status", json!({"replicas": "wrong"}))]);
    assert_eq!(filled(&object, None).get("status"), None);
}

#[test]
fn sts_7_2_only_what_changes_is_in_the_patch() {
    let object = with(
        filled(&set(), None),
        &[("/spec/replicas", Value::Null), ("/metadata/x~1y", json!(1))],
    );
    let reply = mutate(&request(Some(&object), None), &World::default());
    let patch = json!([{"op": "replace", "path": "/spec/replicas", "value": 1}]);
    assert_eq!(reply.verdict, Verdict::Mutate(patch.as_array().unwrap().clone()));
    assert_eq!(
        mutate(&request(Some(&filled(&set(), None)), None), &World::default()).verdict,
        Verdict::Allow
    );
}

fn alpha(changes: &[(&str, Value)]) -> Value {
    with(
        with(set(), &[("/apiVersion", json!("apps.kruise.io/v1alpha1"))]),
        changes,
    )
}

const HUB: &str = "/metadata/annotations/flotilla.rs~1hub-fields";

#[test]
fn r_13_defaults_of_fields_that_the_older_version_lacks() {
    let filled = filled(&alpha(&[]), None);
    assert_eq!(filled["spec"]["podManagementPolicy"], "OrderedReady");
    assert_eq!(filled["spec"].get("volumeClaimUpdateStrategy"), None);
    let kept: Value = serde_json::from_str(filled.pointer(HUB).unwrap().as_str().unwrap()).unwrap();
    let expected = json!({
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        "volumeClaimUpdateStrategy": {"type": "OnDelete"},
    });
    assert_eq!(kept, expected);
}

#[test]
fn r_13_an_annotation_that_is_taken_away_or_broken_comes_back_with_a_warning() {
    let fields = r#"{"reserveOrdinals":[1]}"#;
    let stored = alpha(&[(HUB, json!(fields))]);
    let kept =
        |object: &Value| -> Value { serde_json::from_str(object.pointer(HUB).unwrap().as_str().unwrap()).unwrap() };
    for (sent, word) in [
        (alpha(&[]), Some("was missing and has been put back")),
        (
            alpha(&[(HUB, json!("{broken"))]),
            Some("was broken and has been put back"),
        ),
        (alpha(&[(HUB, json!("[1]"))]), Some("was broken and has been put back")),
        (alpha(&[(HUB, json!(fields))]), None),
    ] {
        let reply = mutate(&request(Some(&sent), Some(&stored)), &World::default());
        assert_eq!(kept(&patched(&sent, &reply))["reserveOrdinals"], json!([1]), "{sent}");
        assert_eq!(
            reply.warnings.len(),
            usize::from(word.is_some()),
            "{:?}",
            reply.warnings
        );
        assert!(
            word.is_none_or(|word| reply.warnings[0].contains(word)),
            "{:?}",
            reply.warnings
        );
    }
    // Nothing to go back to: ignored, and said.
    let sent = alpha(&[(HUB, json!("{broken"))]);
    let reply = mutate(&request(Some(&sent), Some(&alpha(&[]))), &World::default());
    assert!(reply.warnings[0].contains("is ignored"), "{:?}", reply.warnings);
    assert_eq!(kept(&patched(&sent, &reply)).get("reserveOrdinals"), None);
    // In the stored version the annotation means nothing.
    let mut object = set();
    object["metadata"]["annotations"][names::HUB_FIELDS] = json!(fields);
    let reply = mutate(&request(Some(&object), None), &World::default());
    assert!(
        reply.warnings[0].contains("write its fields into spec"),
        "{:?}",
        reply.warnings
    );
}

/// What has no room for the defaults of such fields is stored as it was sent.
#[test]
fn r_13_defaults_that_do_not_fit_are_not_filled_in() {
    let sent = alpha(&[("/metadata/annotations", json!({"note": "x".repeat(262_140)}))]);
    let reply = mutate(&request(Some(&sent), None), &World::default());
    assert_eq!(reply.verdict, Verdict::Allow);
}

#[test]
fn sts_7_4_a_pull_policy_that_was_left_out_is_not_filled_in_where_pods_are_changed_in_place() {
    // Stored while no webhook ran: with the policy filled in, the new image could not be changed in place (STS-7.4).
    let image = |object: Value, image: &str| with(object, &[("/spec/template/spec/containers/0/image", json!(image))]);
    let policy = |filled: &Value| {
        filled
            .pointer("/spec/template/spec/containers/0/imagePullPolicy")
            .cloned()
    };
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"podUpdatePolicy": "InPlaceOnly"}});
    let unfilled = with(set(), &[("/spec/updateStrategy", rolling)]);
    let edited = filled(&image(unfilled.clone(), "other:2"), Some(&unfilled));
    assert_eq!(policy(&edited), None);
    assert_eq!(
        edited.pointer("/spec/template/spec/containers/0/terminationMessagePolicy"),
        Some(&json!("File")),
        "what changes nothing is filled in"
    );
    let first = filled(&unfilled, None);
    assert_eq!(policy(&first), Some(json!("Always")));
    assert_eq!(
        policy(&filled(&image(unfilled.clone(), "other:2"), Some(&first))),
        Some(json!("Always"))
    );
    let renamed = with(
        image(unfilled.clone(), "other:2"),
        &[("/spec/template/spec/containers/0/name", json!("new"))],
    );
    assert_eq!(
        policy(&filled(&renamed, Some(&unfilled))),
        Some(json!("Always")),
        "another container"
    );
}
