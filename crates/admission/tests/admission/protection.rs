//! Rule 7.5, and the rows of admission's section 1 about deletions.

use crate::world::{World, refusal, request, set, with};
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

#[test]
fn rule_7_5_table() {
    let none = World::default;
    let namespace = || object("v1", "Namespace", &[]);
    let crd = || {
        let spec = json!({"group": "example.com", "names": {"plural": "things"}});
        object(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            &[("/spec", spec)],
        )
    };
    let scaled = |kind: &str, replicas: Value| object("apps/v1", kind, &[("/spec", json!({"replicas": replicas}))]);
    let daemons = |n: i64| object("apps/v1", "DaemonSet", &[("/status/currentNumberScheduled", json!(n))]);
    for (object, value, world, words) in [
        (
            set(),
            "Always",
            none(),
            &["StatefulSet shop/web", "=Always", "remove the label"][..],
        ),
        (set(), "Cascading", none(), &["=Cascading", "spec.replicas is 3"]),
        (with(set(), &[("/spec/replicas", json!(0))]), "Cascading", none(), &[]),
        (
            with(set(), &[("/spec/replicas", json!(0))]),
            "Always",
            none(),
            &["may not be deleted"],
        ),
        (
            scaled("StatefulSet", json!(1)),
            "Cascading",
            none(),
            &["spec.replicas is 1"],
        ),
        (
            scaled("StatefulSet", Value::Null),
            "Cascading",
            none(),
            &["spec.replicas is 1"],
        ),
        (
            scaled("Deployment", json!(2)),
            "Cascading",
            none(),
            &["spec.replicas is 2"],
        ),
        (scaled("Deployment", json!(0)), "Cascading", none(), &[]),
        (daemons(2), "Cascading", none(), &["2 nodes run a pod"]),
        (daemons(0), "Cascading", none(), &[]),
        (namespace(), "Always", none(), &["Namespace it", "=Always"]),
        (namespace(), "Cascading", none(), &[]),
        (
            namespace(),
            "Cascading",
            World { pods: 2, ..none() },
            &["2 pods and 0 volume claims"],
        ),
        (
            namespace(),
            "Cascading",
            World { claims: 1, ..none() },
            &["0 pods and 1 volume claims"],
        ),
        (crd(), "Always", none(), &["CustomResourceDefinition it"]),
        (crd(), "Cascading", none(), &[]),
        (
            crd(),
            "Cascading",
            World { objects: 4, ..none() },
            &["4 objects", "kubectl get things -A"],
        ),
    ] {
        let object = labelled(object, value);
        let reply = protect(&request(None, Some(&object)), &world);
        match (refusal(&reply), words) {
            (None, []) => {}
            (Some((403, message)), [_, ..]) => {
                assert!(words.iter().all(|word| message.contains(word)), "{words:?}: {message}");
            }
            (other, _) => panic!("{object}: {other:?}"),
        }
    }
}

#[test]
fn rule_7_5_sets_of_both_kinds_are_asked_about_by_validate() {
    for object in [set(), with(set(), &[("/apiVersion", json!("apps/v1"))])] {
        let object = labelled(object, "Always");
        let reply = validate(&request(None, Some(&object)), &World::default());
        assert_eq!(refusal(&reply).map(|(code, _)| code), Some(403));
    }
}

#[test]
fn rule_7_5_what_is_not_protected_goes() {
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
fn rule_7_5_what_is_not_known_is_not_deleted_and_may_be_tried_again() {
    for (kind, api_version) in [
        ("Namespace", "v1"),
        ("CustomResourceDefinition", "apiextensions.k8s.io/v1"),
    ] {
        let object = labelled(object(api_version, kind, &[]), "Cascading");
        let reply = protect(&request(None, Some(&object)), &Nothing);
        let (code, message) = refusal(&reply).unwrap();
        assert_eq!(code, 409);
        assert!(message.contains("try again"), "{message}");
    }
}
