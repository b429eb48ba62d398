//! STS-7.5, and the rows of ADM-1 about deletions.

use crate::world::{World, refusal, request, set, unlike, with};
use flotilla_admission::{Nothing, Operation, Reply, protect, validate};
use flotilla_api::names;
use serde_json::{Value, json};

fn labelled(object: Value, value: &str) -> Value {
    with(
        object,
        &[("/metadata/labels", json!({names::DELETE_PROTECTION_LABEL: value}))],
    )
}

fn object(api_version: &str, kind: &str, more: &[(&str, Value)]) -> Value {
    let namespace = if matches!(kind, "Namespace" | "CustomResourceDefinition") {
        Value::Null
    } else {
        json!("shop")
    };
    let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "it", "namespace": namespace}});
    with(object, more)
}

/// A definition whose objects can be made, and with these versions, each served or not.
fn definition(versions: &[(&str, bool)]) -> Value {
    let versions: Vec<_> = versions
        .iter()
        .map(|(name, served)| json!({"name": name, "served": served}))
        .collect();
    let spec = json!({"group": "example.com", "names": {"plural": "things"}, "versions": versions});
    let established = json!([{"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "True"}]);
    object(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &[("/spec", spec), ("/status/conditions", established)],
    )
}

#[test]
fn sts_7_5_and_r_32_and_38_table() {
    let none = World::default;
    let namespace = || object("v1", "Namespace", &[]);
    let crd = || definition(&[("v1", false), ("v2", true)]);
    let young = || with(crd(), &[("/status", Value::Null)]);
    let scaled = |kind: &str, replicas: Value| object("apps/v1", kind, &[("/spec", json!({"replicas": replicas}))]);
    let daemons = |n: i64| object("apps/v1", "DaemonSet", &[("/status/currentNumberScheduled", json!(n))]);
    let service = || object("v1", "Service", &[]);
    let ingress = || object("networking.k8s.io/v1", "Ingress", &[]);
    let no_pods = || with(set(), &[("/spec/replicas", json!(0))]);
    let full = || World {
        pods: 2,
        claims: 1,
        objects: 4,
        ..none()
    };
    let pods = World { pods: 2, ..none() };
    let claims = World { claims: 1, ..none() };
    for (object, value, world, way) in [
        (set(), "Always", none(), Some("")),
        (set(), "Cascading", none(), Some(" and replicas 3>0")),
        (no_pods(), "Cascading", none(), None),
        (no_pods(), "Always", none(), Some("")),
        (
            scaled("StatefulSet", json!(1)),
            "Cascading",
            none(),
            Some(" and replicas 1>0"),
        ),
        (
            scaled("StatefulSet", Value::Null),
            "Cascading",
            none(),
            Some(" and replicas 1>0"),
        ),
        (
            scaled("Deployment", json!(2)),
            "Cascading",
            none(),
            Some(" and replicas 2>0"),
        ),
        (scaled("Deployment", json!(0)), "Cascading", none(), None),
        (
            scaled("ReplicaSet", json!(2)),
            "Cascading",
            none(),
            Some(" and replicas 2>0"),
        ),
        (daemons(2), "Cascading", none(), Some(" and nodes that run a pod 2>0")),
        (daemons(0), "Cascading", none(), None),
        (namespace(), "Always", none(), Some("")),
        (namespace(), "Cascading", none(), None),
        (namespace(), "Cascading", pods, Some(" and active pods 2>0")),
        (namespace(), "Cascading", claims, Some(" and \"Bound\" status pvc 1>0")),
        (
            namespace(),
            "Cascading",
            full(),
            Some(" and active pods 2>0 and \"Bound\" status pvc 1>0"),
        ),
        (service(), "Always", none(), Some("")),
        (service(), "Cascading", full(), None),
        (ingress(), "Always", none(), Some("")),
        (ingress(), "Cascading", full(), None),
        (crd(), "Always", none(), Some("")),
        (crd(), "Cascading", none(), None),
        (crd(), "Cascading", full(), Some(" and active CRs 4>0")),
        (young(), "Cascading", full(), None),
        (
            definition(&[("v1", false)]),
            "Cascading",
            none(),
            Some(" and no version of it that is served"),
        ),
        (
            definition(&[("v1", true)]),
            "Cascading",
            none(),
            Some(
                " and objects that cannot be counted, since Flotilla's account lacks the right to list things.example.com",
            ),
        ),
    ] {
        let object = labelled(object, value);
        let reply = protect(&request(None, Some(&object)), &world);
        match (refusal(&reply), way) {
            (None, None) => {}
            (Some((403, message)), Some(way)) => {
                let begin = format!(
                    "forbidden by ResourcesProtectionDeletion for policy.kruise.io/delete-protection={value}{way}"
                );
                assert!(message.starts_with(&begin), "{begin}: {message}");
                assert!(
                    message.contains(object["kind"].as_str().unwrap()) && message.contains("remove the label"),
                    "{message}"
                );
            }
            (other, _) => panic!("{object}: {other:?}"),
        }
    }
}

/// Trying again does not help: the refusal names what does.
#[test]
fn r_38_what_cannot_be_counted_is_refused_with_what_to_do() {
    for (versions, words) in [
        (
            [("v1", true)],
            &[
                "list things.example.com:",
                "ServiceAccount flotilla-manager",
                "ClusterRoleBinding",
                "SECURITY.md",
            ][..],
        ),
        ([("v1", false)], &["may not be deleted; serve one, or remove the label"]),
    ] {
        let definition = labelled(definition(&versions), "Cascading");
        let reply = protect(&request(None, Some(&definition)), &World::default());
        assert_eq!(unlike(&reply, words), None);
    }
}

#[test]
fn sts_7_5_sets_of_both_kinds_are_asked_about_by_validate() {
    for object in [set(), with(set(), &[("/apiVersion", json!("apps/v1"))])] {
        let object = labelled(object, "Always");
        let reply = validate(&request(None, Some(&object)), &World::default());
        assert_eq!(refusal(&reply).map(|(code, _)| code), Some(403));
    }
}

#[test]
fn sts_7_5_what_is_not_protected_goes() {
    let going = with(
        labelled(set(), "Always"),
        &[("/metadata/deletionTimestamp", json!("2026-11-22T00:00:00Z"))],
    );
    let ignored = with(
        labelled(set(), "Always"),
        &[("/metadata/labels/flotilla.rs~1webhooks", json!("ignore"))],
    );
    let system = with(
        labelled(set(), "Always"),
        &[("/metadata/namespace", json!("kube-system"))],
    );
    for object in [set(), going, ignored, system] {
        assert_eq!(
            protect(&request(None, Some(&object)), &World::default()),
            Reply::allow(),
            "{object}"
        );
    }
    let unknown = labelled(set(), "always");
    let reply = protect(&request(None, Some(&unknown)), &World::default());
    assert_eq!(refusal(&reply), None);
    assert!(reply.warnings[0].contains("only Always and Cascading"));
    // Only deletions are asked about.
    let protected = labelled(set(), "Always");
    let mut update = request(Some(&protected), Some(&protected));
    update.operation = Operation::Update;
    assert_eq!(protect(&update, &World::default()), Reply::allow());
}

#[test]
fn sts_7_5_what_is_not_known_is_not_deleted_and_may_be_tried_again() {
    for object in [object("v1", "Namespace", &[]), definition(&[("v2", true)])] {
        let object = labelled(object, "Cascading");
        let reply = protect(&request(None, Some(&object)), &Nothing);
        let (code, message) = refusal(&reply).unwrap();
        assert_eq!(code, 409);
        assert!(message.contains("try again"), "{message}");
    }
}
