//! The pod chain (ADM-2 and ADM-3).

use crate::world::{World, patched, refusal, request, with};
use flotilla_admission::{Reply, mutate_pod};
use serde_json::{Value, json};

fn pod(changes: &[(&str, Value)]) -> Value {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0", "namespace": "shop"},
        "spec": {"containers": [{"name": "a", "image": "a"}, {"name": "b", "image": "b", "env": [{"name": "X", "value": "x"}]}]},
    });
    with(pod, changes)
}

fn owner(api_version: &str, kind: &str, controller: bool) -> (&'static str, Value) {
    let owner = json!({"apiVersion": api_version, "kind": kind, "name": "web", "uid": "u", "controller": controller});
    ("/metadata/ownerReferences", json!([owner]))
}

fn admitted(pod: &Value) -> (Value, Vec<String>) {
    let reply = mutate_pod(&request(Some(pod), None), &World::default());
    (patched(pod, &reply), reply.warnings)
}

#[test]
fn adm_2_readiness_gates_of_our_kinds() {
    for (api_version, kind, controller, is_gated) in [
        ("apps.kruise.io/v1alpha1", "CloneSet", true, true),
        ("apps.kruise.io/v1beta1", "StatefulSet", true, true),
        ("apps.kruise.io/v1alpha1", "DaemonSet", true, true),
        ("apps.kruise.io/v1beta1", "StatefulSet", false, false),
        ("apps.kruise.io/v1alpha1", "BroadcastJob", true, false),
        ("apps/v1", "StatefulSet", true, false),
        ("apps", "StatefulSet", true, false),
    ] {
        let (after, _) = admitted(&pod(&[owner(api_version, kind, controller)]));
        let expected = is_gated.then(|| json!([{"conditionType": "KruisePodReady"}]));
        assert_eq!(
            after["spec"].get("readinessGates"),
            expected.as_ref(),
            "{api_version} {kind} {controller}"
        );
    }
    let other = json!({"conditionType": "example.com/other"});
    let gated = pod(&[
        owner("apps.kruise.io/v1beta1", "StatefulSet", true),
        ("/spec/readinessGates", json!([other])),
    ]);
    let (after, _) = admitted(&gated);
    assert_eq!(
        after["spec"]["readinessGates"],
        json!([other, {"conditionType": "KruisePodReady"}])
    );
    assert_eq!(admitted(&after).0, after);
}

/// Another gate would keep them from getting ready while no manager runs.
#[test]
fn r_27_pods_that_our_controllers_make_have_the_gates_they_need() {
    for (kind, mark) in [
        (
            "StatefulSet",
            ("/metadata/labels", json!({"flotilla.rs/made-as": "web-1"})),
        ),
        (
            "CloneSet",
            (
                "/metadata/annotations",
                json!({"lifecycle.apps.kruise.io/timestamp": "2026-01-01T00:00:00Z"}),
            ),
        ),
    ] {
        let made = pod(&[owner("apps.kruise.io/v1beta1", kind, true), mark]);
        assert_eq!(admitted(&made).0, made, "{kind}");
    }
}

const ORDERED: &str = "/metadata/annotations/apps.kruise.io~1container-launch-priority";

fn barrier(pod: &str, key: &str) -> Value {
    json!({"name": "KRUISE_CONTAINER_BARRIER", "valueFrom": {"configMapKeyRef": {"name": format!("{pod}-barrier"), "key": key}}})
}

fn priority(value: &str) -> Value {
    json!([{"name": "KRUISE_CONTAINER_PRIORITY", "value": value}])
}

/// The keys that each container waits for.
fn keys(pod: &Value) -> Vec<Option<&str>> {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    containers
        .map(|c| {
            c["env"]
                .as_array()?
                .last()?
                .pointer("/valueFrom/configMapKeyRef/key")?
                .as_str()
        })
        .collect()
}

#[test]
fn adm_3_1_priorities() {
    let (first, second) = ("/spec/containers/0/env", "/spec/containers/1/env");
    for (changes, expected) in [
        (vec![], vec![None, None]),
        (vec![(ORDERED, json!("Ordered"))], vec![Some("p_0"), Some("p_-1")]),
        (vec![(first, priority("5"))], vec![Some("p_5"), Some("p_0")]),
        (
            vec![(first, priority("-2")), (second, priority("1"))],
            vec![Some("p_-2"), Some("p_1")],
        ),
        // Both together: the environment wins for the containers that have it.
        (
            vec![(ORDERED, json!("Ordered")), (first, priority("7"))],
            vec![Some("p_7"), Some("p_-1")],
        ),
        // All equal: nothing is done.
        (vec![(first, priority("3")), (second, priority("3"))], vec![None, None]),
        (vec![(first, priority("0"))], vec![None, None]),
        (
            vec![(ORDERED, json!("Ordered")), (second, priority("0"))],
            vec![None, None],
        ),
        (
            vec![
                (ORDERED, json!("Ordered")),
                ("/spec/containers", json!([{"name": "a"}])),
            ],
            vec![None],
        ),
    ] {
        let (after, warnings) = admitted(&pod(&changes));
        assert_eq!(keys(&after), expected, "{changes:?}");
        assert!(warnings.is_empty(), "{warnings:?}");
    }
}

#[test]
fn adm_3_2_the_barrier_stands_last_and_once() {
    let (after, _) = admitted(&pod(&[(ORDERED, json!("Ordered"))]));
    assert_eq!(after["spec"]["containers"][0]["env"], json!([barrier("web-0", "p_0")]));
    assert_eq!(
        after["spec"]["containers"][1]["env"],
        json!([{"name": "X", "value": "x"}, barrier("web-0", "p_-1")])
    );
    assert_eq!(admitted(&after).0, after, "asked again, nothing changes");
    // Another webhook has put a container before those that have barriers.
    let mut injected = after.clone();
    injected["spec"]["containers"]
        .as_array_mut()
        .unwrap()
        .insert(0, json!({"name": "sidecar"}));
    let (again, _) = admitted(&injected);
    assert_eq!(keys(&again), [Some("p_0"), Some("p_-1"), Some("p_-2")]);
    assert_eq!(again["spec"]["containers"][2]["env"].as_array().unwrap().len(), 2);
    // One that stands elsewhere, as others than us may have put it there, is moved.
    let mut first = after.clone();
    first["spec"]["containers"][1]["env"].as_array_mut().unwrap().reverse();
    assert_eq!(admitted(&first).0, after);
    // STS-8.19: a barrier that makes no sense is replaced.
    let broken = pod(&[
        (ORDERED, json!("Ordered")),
        (
            "/spec/containers/0/env",
            json!([{"name": "KRUISE_CONTAINER_BARRIER", "value": 5}]),
        ),
    ]);
    assert_eq!(
        admitted(&broken).0["spec"]["containers"][0]["env"],
        json!([barrier("web-0", "p_0")])
    );
}

#[test]
fn adm_3_1_a_priority_that_is_no_integer_is_refused() {
    for env in [
        priority("high"),
        priority("1.5"),
        priority(""),
        json!([{"name": "KRUISE_CONTAINER_PRIORITY", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
        json!([{"name": "KRUISE_CONTAINER_PRIORITY", "value": 5}]),
    ] {
        let pod = pod(&[("/spec/containers/1/env", env.clone())]);
        let reply = mutate_pod(&request(Some(&pod), None), &World::default());
        let (code, message) = refusal(&reply).unwrap_or_else(|| panic!("{env} is accepted"));
        assert_eq!(code, 422);
        assert!(
            message.contains("spec.containers[1].env") && message.contains("must be an integer"),
            "{message}"
        );
    }
    let pod = pod(&[(ORDERED, json!("ordered"))]);
    let (after, warnings) = admitted(&pod);
    assert_eq!(after, pod);
    assert!(warnings[0].contains("only Ordered does"), "{warnings:?}");
}

#[test]
fn adm_3_2_generated_names_are_made_final_first() {
    let nameless = |prefix: &str| {
        pod(&[
            ("/metadata/name", Value::Null),
            ("/metadata/generateName", json!(prefix)),
            (ORDERED, json!("Ordered")),
        ])
    };
    let pod = nameless("web-");
    let (after, _) = admitted(&pod);
    let name = after["metadata"]["name"].as_str().unwrap();
    let suffix = name.strip_prefix("web-").unwrap();
    assert!(
        suffix.len() == 5 && suffix.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c)),
        "{name}"
    );
    assert_eq!(after["spec"]["containers"][0]["env"], json!([barrier(name, "p_0")]));
    assert_eq!(admitted(&pod).0, after, "the same request gives the same name");
    let mut other = request(Some(&pod), None);
    other.uid = "another";
    let other = patched(&pod, &mutate_pod(&other, &World::default()));
    assert_ne!(other["metadata"]["name"], after["metadata"]["name"]);
    // As the API server cuts it.
    let (long, _) = admitted(&nameless(&"n".repeat(70)));
    assert_eq!(long["metadata"]["name"].as_str().unwrap().len(), 63);
    // Without a mark the API server names the pod.
    let plain = with(nameless("web-"), &[(ORDERED, Value::Null)]);
    assert_eq!(admitted(&plain).0, plain);
}

#[test]
fn adm_3_2_generated_names_differ() {
    let pod = pod(&[
        ("/metadata/name", Value::Null),
        ("/metadata/generateName", json!("a-")),
        (ORDERED, json!("Ordered")),
    ]);
    let mut names = std::collections::BTreeSet::new();
    for index in 0..1000 {
        let uid = format!("6b4b3fd8-7b2a-4d5c-9a3e-0d0f3a1c{index:04x}");
        let mut request = request(Some(&pod), None);
        request.uid = &uid;
        let after = patched(&pod, &mutate_pod(&request, &World::default()));
        names.insert(after["metadata"]["name"].as_str().unwrap().to_owned());
    }
    assert!(names.len() >= 998, "{} names for 1000 requests", names.len());
}

#[test]
fn adm_3_3_pods_that_do_not_restart() {
    const STARTED: &str = "/metadata/annotations/flotilla.rs~1launch-on";
    let never = || ("/spec/restartPolicy", json!("Never"));
    let ordered = || (ORDERED, json!("Ordered"));
    let probe = json!({"tcpSocket": {"port": 80}});
    for (changes, holder) in [
        (vec![ordered(), never()], Some("for a to be")),
        (vec![ordered(), never(), (STARTED, json!("started"))], None),
        (
            vec![
                ordered(),
                never(),
                (STARTED, json!("started")),
                ("/spec/containers/0/readinessProbe", probe.clone()),
            ],
            Some("for a to be"),
        ),
        // Nobody waits for the last one.
        (
            vec![
                ordered(),
                never(),
                (STARTED, json!("started")),
                ("/spec/containers/1/readinessProbe", probe),
            ],
            None,
        ),
        (vec![ordered(), ("/spec/restartPolicy", json!("OnFailure"))], None),
    ] {
        let pod = pod(&changes);
        let (after, warnings) = admitted(&pod);
        match holder {
            Some(words) => {
                assert_eq!(after, pod);
                assert!(
                    warnings[0].contains(words) && warnings[0].contains("restartPolicy Never"),
                    "{warnings:?}"
                );
            }
            None => {
                assert_eq!(keys(&after), [Some("p_0"), Some("p_-1")]);
                assert!(warnings.is_empty());
            }
        }
    }
}

#[test]
fn adm_1_never_in_scope() {
    let marked = || {
        vec![
            (ORDERED, json!("Ordered")),
            owner("apps.kruise.io/v1beta1", "StatefulSet", true),
        ]
    };
    for change in [
        ("/metadata/namespace", json!("kube-system")),
        ("/metadata/namespace", json!("flotilla-system")),
        ("/metadata/labels", json!({"flotilla.rs/webhooks": "ignore"})),
        ("/kind", json!("Node")),
    ] {
        let mut changes = marked();
        changes.push(change.clone());
        let pod = pod(&changes);
        assert_eq!(
            mutate_pod(&request(Some(&pod), None), &World::default()),
            Reply::allow(),
            "{change:?}"
        );
    }
    let pod = pod(&marked());
    assert_eq!(
        mutate_pod(&request(Some(&pod), Some(&pod)), &World::default()),
        Reply::allow(),
        "only new pods"
    );
}
