use super::*;

fn native(spec: Value) -> Value {
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {
            "name": "web", "namespace": "n", "uid": "u", "resourceVersion": "1", "labels": {"l": "1"},
            "annotations": {LAST_APPLIED: "{}", "note": "x"},
        },
        "spec": {
            "replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "serviceName": "web", "podManagementPolicy": "OrderedReady",
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}, "status": {"phase": "Pending"}}],
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}},
        },
        "status": {"replicas": 3},
    });
    set["spec"]
        .as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    set
}

fn advanced(spec: Value) -> Value {
    let mut set = native(spec);
    set["apiVersion"] = json!("apps.kruise.io/v1beta1");
    set
}

fn rolling(fields: Value) -> Value {
    json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": fields}})
}

fn refusals(set: &Value, from: SetKind) -> Vec<String> {
    convert(set, from)
        .err()
        .unwrap_or_default()
        .into_iter()
        .map(|p| p.field)
        .collect()
}

#[test]
fn what_both_kinds_have_stays_as_it_is() {
    let there = convert(&native(json!({"minReadySeconds": 7})), SetKind::Native).unwrap();
    assert_eq!(
        there,
        json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "StatefulSet",
            "metadata": {"name": "web", "namespace": "n", "labels": {"l": "1"}, "annotations": {"note": "x"}},
            "spec": {
                "replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "serviceName": "web", "podManagementPolicy": "OrderedReady",
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}},
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}],
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2, "minReadySeconds": 7}},
            },
        })
    );
    let back = convert(&there, SetKind::Advanced).unwrap();
    assert_eq!(back["spec"]["minReadySeconds"], 7);
    assert_eq!(
        back["spec"]["updateStrategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}})
    );
    assert_eq!(convert(&back, SetKind::Native).unwrap(), there, "there and back again");
}

#[test]
fn what_an_advanced_set_cannot_say_is_refused_by_field() {
    for (spec, field) in [
        (json!({"minReadySeconds": 301}), "spec.minReadySeconds"),
        (
            json!({"minReadySeconds": 5, "updateStrategy": {"type": "OnDelete"}}),
            "spec.minReadySeconds",
        ),
        (
            rolling(json!({"maxUnavailable": 2})),
            "spec.updateStrategy.rollingUpdate.maxUnavailable",
        ),
        (rolling(json!({"newer": 2})), "spec.updateStrategy.rollingUpdate.newer"),
        (
            json!({"updateStrategy": {"type": "Recreate"}}),
            "spec.updateStrategy.type",
        ),
        (json!({"newer": true}), "spec.newer"),
    ] {
        assert_eq!(refusals(&native(spec.clone()), SetKind::Native), [field], "{spec}");
    }
    let parallel =
        json!({"podManagementPolicy": "Parallel", "updateStrategy": {"rollingUpdate": {"maxUnavailable": "50%"}}});
    assert!(refusals(&native(parallel), SetKind::Native).is_empty());
}

#[test]
fn what_a_native_set_cannot_say_is_refused_by_field() {
    let gates = json!([{"conditionType": "InPlaceUpdateReady"}]);
    for (spec, field) in [
        (json!({"reserveOrdinals": [1]}), "spec.reserveOrdinals"),
        (json!({"lifecycle": {"preDelete": {}}}), "spec.lifecycle"),
        (json!({"scaleStrategy": {"maxUnavailable": 1}}), "spec.scaleStrategy"),
        (json!({"specialPodsSelectors": [{}]}), "spec.specialPodsSelectors"),
        (
            json!({"volumeClaimUpdateStrategy": {"type": "OnPodRollingUpdate"}}),
            "spec.volumeClaimUpdateStrategy",
        ),
        (
            json!({"template": {"spec": {"readinessGates": gates}}}),
            "spec.template.spec.readinessGates",
        ),
        (
            rolling(json!({"podUpdatePolicy": "InPlaceIfPossible"})),
            "spec.updateStrategy.rollingUpdate.podUpdatePolicy",
        ),
        (
            rolling(json!({"paused": true})),
            "spec.updateStrategy.rollingUpdate.paused",
        ),
        (
            rolling(json!({"unorderedUpdate": {}})),
            "spec.updateStrategy.rollingUpdate.unorderedUpdate",
        ),
        (
            rolling(json!({"inPlaceUpdateStrategy": {"gracePeriodSeconds": 1}})),
            "spec.updateStrategy.rollingUpdate.inPlaceUpdateStrategy",
        ),
    ] {
        assert_eq!(refusals(&advanced(spec.clone()), SetKind::Advanced), [field], "{spec}");
    }
    let harmless = json!({
        "reserveOrdinals": [], "volumeClaimUpdateStrategy": {"type": "OnDelete"}, "scaleStrategy": {},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"podUpdatePolicy": "ReCreate", "paused": false, "maxUnavailable": 1}},
    });
    let converted = convert(&advanced(harmless), SetKind::Advanced).unwrap();
    assert_eq!(converted["spec"]["updateStrategy"], json!({"type": "RollingUpdate"}));
}

#[test]
fn sets_of_others_and_with_finalizers_are_refused() {
    let mut set = native(json!({}));
    set["metadata"]["ownerReferences"] = json!([{"kind": "Database", "name": "db"}]);
    set["metadata"]["finalizers"] = json!(["orphan", "example.com/backup"]);
    assert_eq!(
        refusals(&set, SetKind::Native),
        ["metadata.ownerReferences", "metadata.finalizers"]
    );
}

#[test]
fn what_the_server_drops_is_found() {
    let sent = json!({"a": 1, "b": {"c": "x", "d": []}, "l": [{"e": "1000m"}], "m": [1]});
    let kept = json!({"a": 1, "b": {}, "l": [{"e": "1", "default": true}], "m": []});
    assert_eq!(lost(&sent, &kept, "spec"), ["spec.b.c", "spec.m"]);
    assert!(lost(&sent, &sent, "spec").is_empty());
}
