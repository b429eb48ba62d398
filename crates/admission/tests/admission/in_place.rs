//! `InPlaceOnly` (STS-7.4 and STS-4.1).

use crate::world::{World, refusal, request, set, unlike, with};
use flotilla_admission::{Nothing, RevisionInUse, validate};
use serde_json::{Value, json};
use std::sync::Arc;

const POLICY: &str = "/spec/updateStrategy/rollingUpdate/podUpdatePolicy";

fn in_place(changes: &[(&str, Value)]) -> Value {
    let resources = json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}});
    let base = with(
        set(),
        &[
            (POLICY, json!("InPlaceOnly")),
            (
                "/spec/template/spec/readinessGates",
                json!([{"conditionType": "InPlaceUpdateReady"}]),
            ),
            ("/spec/template/spec/containers/0/resources", resources),
        ],
    );
    with(base, changes)
}

#[test]
fn sts_4_1_what_can_change_in_a_running_pod() {
    const MAIN: &str = "/spec/template/spec/containers/0";
    let at = |field: &str| format!("{MAIN}/{field}");
    for (pointer, value, words) in [
        (at("image"), json!("web:2"), &[][..]),
        ("/spec/template/metadata/labels/tier".to_owned(), json!("a"), &[]),
        ("/spec/template/metadata/annotations".to_owned(), json!({"a": "b"}), &[]),
        (at("resources/requests/cpu"), json!("2"), &[]),
        (at("resources/limits/memory"), json!("3Gi"), &[]),
        (
            at("resources/limits/cpu"),
            json!("2"),
            &["containers[0].resources.limits.cpu", "InPlaceOnly"],
        ),
        (
            at("resources/requests/memory"),
            Value::Null,
            &["containers[0].resources.requests.memory"],
        ),
        (
            at("resources/requests/ephemeral-storage"),
            json!("1Gi"),
            &["ephemeral-storage"],
        ),
        (
            at("resources"),
            Value::Null,
            &["containers[0].resources", "cpu and memory"],
        ),
        (
            at("env"),
            json!([{"name": "A", "value": "b"}]),
            &["containers[0].env", "InPlaceIfPossible or ReCreate"],
        ),
        (at("name"), json!("other"), &["containers[0].name"]),
        (at("imagePullPolicy"), json!("IfNotPresent"), &[]),
        (at("imagePullPolicy"), json!("Always"), &["imagePullPolicy"]),
        (
            "/spec/template/spec/initContainers".to_owned(),
            json!([{"name": "i", "image": "i"}]),
            &["initContainers"],
        ),
        (
            "/spec/template/spec/nodeSelector".to_owned(),
            json!({"a": "b"}),
            &["nodeSelector"],
        ),
        ("/spec/template/spec/dnsPolicy".to_owned(), json!("ClusterFirst"), &[]),
        ("/spec/replicas".to_owned(), json!(9), &[]),
    ] {
        let new = in_place(&[(&pointer, value.clone())]);
        let reply = validate(&request(Some(&new), Some(&in_place(&[]))), &Nothing);
        assert_eq!(unlike(&reply, words), None, "{pointer} = {value}");
    }
}

#[test]
fn sts_4_1_the_class_of_service_must_stay() {
    let resources = "/spec/template/spec/containers/0/resources";
    let old = in_place(&[(
        resources,
        json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}),
    )]);
    let new = in_place(&[(
        resources,
        json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}),
    )]);
    let reply = validate(&request(Some(&new), Some(&old)), &Nothing);
    assert_eq!(unlike(&reply, &["quality of service"]), None);
    let both = in_place(&[(
        resources,
        json!({"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}),
    )]);
    let reply = validate(&request(Some(&both), Some(&old)), &Nothing);
    assert_eq!(refusal(&reply), None);
}

#[test]
fn sts_4_1_a_new_tag_is_no_new_pull_policy() {
    let stated = |image: &str| {
        let main = "/spec/template/spec/containers/0";
        in_place(&[
            (&format!("{main}/image"), json!(image)),
            (&format!("{main}/imagePullPolicy"), json!("IfNotPresent")),
        ])
    };
    let reply = validate(&request(Some(&stated("web:latest")), Some(&stated("web:1"))), &Nothing);
    assert_eq!(refusal(&reply), None);
}

fn pods_at(set: &Value) -> World {
    World {
        revisions: vec![RevisionInUse {
            name: "web-1".into(),
            template: Arc::new(set["spec"]["template"].clone()),
        }],
        ..World::default()
    }
}

#[test]
fn sts_7_4_the_revisions_of_pods_count() {
    let env = || {
        (
            "/spec/template/spec/containers/0/env",
            json!([{"name": "A", "value": "b"}]),
        )
    };
    let image = || ("/spec/template/spec/containers/0/image", json!("web:2"));
    let recreate = || (POLICY, json!("ReCreate"));
    let (first, second, third) = (in_place(&[]), in_place(&[env()]), in_place(&[env(), image()]));
    // Half way from the first template to the second, the policy is switched and the image changed in one step.
    let stored = with(second.clone(), &[recreate()]);
    let reply = validate(&request(Some(&third), Some(&stored)), &pods_at(&first));
    assert_eq!(unlike(&reply, &["containers[0].env", "revision web-1"]), None);
    let reply = validate(&request(Some(&third), Some(&stored)), &pods_at(&second));
    assert_eq!(refusal(&reply), None);
    // A change that no pod has followed can be taken back.
    let reply = validate(&request(Some(&first), Some(&second)), &pods_at(&first));
    assert_eq!(refusal(&reply), None);
    // Without pods, the template before stands for them.
    let reply = validate(&request(Some(&first), Some(&second)), &World::default());
    assert_eq!(unlike(&reply, &["containers[0].env"]), None);
    // Other policies do not ask.
    let reply = validate(&request(Some(&stored), Some(&first)), &pods_at(&first));
    assert_eq!(refusal(&reply), None);
}
