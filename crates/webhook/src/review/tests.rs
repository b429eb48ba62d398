use super::*;
use flotilla_admission::Nothing;
use std::time::Duration;

fn pod(owner: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0", "ownerReferences": [
            {"apiVersion": owner, "kind": "StatefulSet", "name": "web", "uid": "u", "controller": true}]},
        "spec": {"containers": [{"name": "main", "image": "app:v1"}]}})
}

fn review(operation: &str, kind: (&str, &str, &str), object: &Value, old: &Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u-1", "kind": {"group": kind.0, "version": kind.1, "kind": kind.2}, "operation": operation,
        "namespace": "default", "name": "web-0", "object": object, "oldObject": old, "dryRun": false}})
}

fn ask(hook: Hook, body: &Value) -> Result<(Value, &'static str), String> {
    let answer = answer(hook, body.to_string().as_bytes(), &Nothing).map_err(|why| why.to_string())?;
    Ok((serde_json::from_slice(&answer.body).unwrap(), answer.verdict))
}

const POD: (&str, &str, &str) = ("", "v1", "Pod");

/// ADM-5: the answer carries version and uid of the question, and a patch that only adds.
#[test]
fn a_pod_of_ours_gets_its_gate() {
    let (answer, verdict) = ask(
        Hook::MutatePods,
        &review("CREATE", POD, &pod("apps.kruise.io/v1beta1"), &Value::Null),
    )
    .unwrap();
    assert_eq!(verdict, "mutated");
    assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(answer["response"]["uid"], "u-1");
    assert_eq!(answer["response"]["allowed"], true);
    let patch = STANDARD.decode(answer["response"]["patch"].as_str().unwrap()).unwrap();
    let patch: Value = serde_json::from_slice(&patch).unwrap();
    assert!(patch.to_string().contains("KruisePodReady"), "{patch}");
    let (answer, verdict) = ask(Hook::MutatePods, &review("CREATE", POD, &pod("apps/v1"), &Value::Null)).unwrap();
    assert_eq!((verdict, &answer["response"]["patch"]), ("allowed", &Value::Null));
}

/// ADM-5: what is no question of the API server is told so, and never taken for a refusal.
#[test]
fn malformed_reviews_are_answered_with_a_sentence() {
    let good = review("CREATE", POD, &pod("apps/v1"), &Value::Null);
    let with = |pointer: &str, value: Value| {
        let mut changed = good.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        changed
    };
    for (body, expected) in [
        (json!([]), "the body is no AdmissionReview that can be read"),
        (
            json!({}),
            "a AdmissionReview of admission.k8s.io/v1 is answered here, and not a \"\" of \"\"",
        ),
        (
            with("/apiVersion", json!("admission.k8s.io/v1beta1")),
            "not a \"AdmissionReview\" of \"admission.k8s.io/v1beta1\"",
        ),
        (with("/request", Value::Null), "the AdmissionReview holds no request"),
        (with("/request/uid", Value::Null), "invalid type: null"),
        (
            with("/request/operation", json!("CONNECT")),
            "the operation \"CONNECT\" is not looked at here",
        ),
        (
            with("/request/object", Value::Null),
            "the request to CREATE holds no object",
        ),
        (
            with("/request/object", json!("text")),
            "invalid type: string \"text\", expected a JSON object",
        ),
        (
            with("/request/object/metadata", json!([])),
            "invalid type: sequence, expected a JSON object",
        ),
    ] {
        let why = ask(Hook::MutatePods, &body).unwrap_err();
        assert!(why.contains(expected), "{why}");
    }
    assert!(answer(Hook::Protect, b"\xff\xfe", &Nothing).is_err());
    assert!(answer(Hook::Protect, b"", &Nothing).is_err());
}

/// ADM-5: who manages which field is passed over, whatever it is, and nothing else of the metadata.
#[test]
fn managed_fields_are_not_read() {
    let plain = pod("apps.kruise.io/v1beta1");
    let (expected, _) = ask(Hook::MutatePods, &review("CREATE", POD, &plain, &Value::Null)).unwrap();
    for managed in [
        json!([{"manager": "m", "fieldsV1": {"f:metadata": {}}}]),
        json!(null),
        json!("x"),
    ] {
        let mut with = plain.clone();
        with["metadata"]["managedFields"] = managed;
        let (answer, verdict) = ask(Hook::MutatePods, &review("CREATE", POD, &with, &Value::Null)).unwrap();
        assert_eq!((&answer, verdict), (&expected, "mutated"));
    }
    let text = json!({"managedFields": [{"a": 1}], "metadata": {"managedFields": [1], "name": "x"}}).to_string();
    let raw: Box<RawValue> = serde_json::from_str(&text).unwrap();
    let read = Object::read(&raw).unwrap();
    assert_eq!(
        read.tree,
        json!({"managedFields": [{"a": 1}], "metadata": {"name": "x"}})
    );
}

/// ADM-5: an object as large as etcd takes is read like any other.
#[test]
fn a_large_object_is_answered() {
    let mut large = pod("apps.kruise.io/v1beta1");
    large["metadata"]["annotations"] = json!({"example.test/large": "x".repeat(1_400_000)});
    let (answer, verdict) = ask(Hook::MutatePods, &review("CREATE", POD, &large, &Value::Null)).unwrap();
    assert_eq!(verdict, "mutated");
    assert!(
        answer.to_string().len() < 2000,
        "a patch holds what changes and nothing else"
    );
}

/// A body with what is nested so many levels in place of every `"DEEP"`, answered with little stack: nothing may go down with the depth.
fn ask_deep(hook: Hook, body: &Value, levels: usize) -> Result<(Value, &'static str), String> {
    let deep = format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
    let body = body.to_string().replace(r#""DEEP""#, &deep);
    let small = std::thread::Builder::new().stack_size(512 << 10);
    let answered = small.spawn(move || {
        let answer = answer(hook, body.as_bytes(), &Nothing).map_err(|why| why.to_string())?;
        Ok((serde_json::from_slice(&answer.body).unwrap(), answer.verdict))
    });
    answered.unwrap().join().unwrap()
}

/// ADM-5.7: what is too deep to be looked at is refused by name, and never let through as a webhook that failed.
#[test]
fn an_object_that_is_too_deep_is_refused() {
    const SET: (&str, &str, &str) = ("apps.kruise.io", "v1beta1", "StatefulSet");
    let set = |replicas: i32, extra: &Value| {
        json!({"apiVersion": "apps.kruise.io/v1beta1", "kind": "StatefulSet",
            "metadata": {"name": "web", "namespace": "default", "managedFields": "DEEP"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "app:v1"}], "x": extra}}}})
    };
    let (deep, flat) = (json!("DEEP"), json!(1));
    for hook in [Hook::MutateSets, Hook::ValidateSets] {
        for (levels, is_refused) in [
            (100, false),
            (118, false),
            (119, true),
            (125, true),
            (140, true),
            (60_000, true),
        ] {
            let (answer, _) = ask_deep(hook, &review("CREATE", SET, &set(1, &deep), &Value::Null), levels).unwrap();
            let response = &answer["response"];
            assert_eq!(response["allowed"], !is_refused, "{hook:?} {levels}: {response}");
            if is_refused {
                assert_eq!(response["status"]["code"], 422);
                let message = response["status"]["message"].as_str().unwrap();
                assert!(
                    message.starts_with("spec.template: Invalid value: it is nested more than 120"),
                    "{message}"
                );
            }
        }
        // What is stored can be edited elsewhere, be made flatter, and go; it is not made deep.
        for (operation, new, old, is_allowed) in [
            ("UPDATE", set(2, &deep), set(1, &deep), true),
            ("UPDATE", set(1, &flat), set(1, &deep), true),
            ("UPDATE", set(1, &deep), set(1, &flat), false),
            ("DELETE", Value::Null, set(1, &deep), true),
        ] {
            let (answer, _) = ask_deep(hook, &review(operation, SET, &new, &old), 9_000).unwrap();
            assert_eq!(
                answer["response"]["allowed"], is_allowed,
                "{hook:?} {operation}: {answer}"
            );
        }
    }
    let protected = json!({"metadata": {"labels": {"policy.kruise.io/delete-protection": "Always"}}, "status": "DEEP"});
    let (answer, _) = ask_deep(Hook::Protect, &review("DELETE", SET, &Value::Null, &protected), 9_000).unwrap();
    assert_eq!(answer["response"]["allowed"], false);
}

/// STS-7.5: while caches are being filled, what cannot be known is not deleted, and the answer asks for another try.
#[test]
fn a_protected_object_waits_for_the_caches() {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop",
        "labels": {"policy.kruise.io/delete-protection": "Cascading"}}});
    let (answer, verdict) = ask(
        Hook::Protect,
        &review("DELETE", ("", "v1", "Namespace"), &Value::Null, &namespace),
    )
    .unwrap();
    assert_eq!(verdict, "denied");
    let status = &answer["response"]["status"];
    assert_eq!((&status["code"], &status["reason"]), (&json!(409), &json!("Conflict")));
    assert_eq!(status["details"]["retryAfterSeconds"], 1);
}

/// STS-7.1: a conversion answers with all objects or with the reason why not.
#[test]
fn conversions_succeed_or_say_which_object_is_in_the_way() {
    let asked = |objects: Value| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "request": {"uid": "u-2", "desiredAPIVersion": "apps.kruise.io/v1beta1", "objects": objects}})
    };
    let set = json!({"apiVersion": "apps.kruise.io/v1alpha1", "kind": "StatefulSet", "metadata": {"name": "web"}, "spec": {}});
    let (answer, verdict) = ask(Hook::Convert, &asked(json!([set]))).unwrap();
    assert_eq!((verdict, &answer["response"]["uid"]), ("converted", &json!("u-2")));
    assert_eq!(
        answer["response"]["convertedObjects"][0]["apiVersion"],
        "apps.kruise.io/v1beta1"
    );
    for bad in [json!("text"), json!({"apiVersion": "v1", "kind": "Pod"})] {
        let (answer, verdict) = ask(Hook::Convert, &asked(json!([bad]))).unwrap();
        assert_eq!(
            (verdict, &answer["response"]["result"]["status"]),
            ("unconverted", &json!("Failure"))
        );
        assert_eq!(answer["response"]["uid"], "u-2");
        assert!(!answer["response"]["result"]["message"].as_str().unwrap().is_empty());
    }
    assert!(ask(Hook::Convert, &json!({"kind": "ConversionReview", "apiVersion": "v1"})).is_err());
}

/// ADM-1: the probe is answered without an object, by our endpoint and no other.
#[test]
fn the_probe_knows_its_answer() {
    let body = answer(Hook::Convert, &probe("p-1"), &Nothing).unwrap().body;
    assert!(is_answer_to_probe("p-1", &body));
    assert!(!is_answer_to_probe("p-2", &body));
    assert!(!is_answer_to_probe("p-1", b"<html>"));
}

/// ADM-5: the deadline is the API server's.
#[test]
fn the_timeout_is_read_as_go_writes_it() {
    for (query, millis) in [
        ("timeout=5s", Some(5000)),
        ("a=b&timeout=1m30s", Some(90_000)),
        ("timeout=500ms", Some(500)),
        ("timeout=0s", None),
        ("timeout=5", None),
        ("timeout=s", None),
        ("timeout=5h", None),
        ("timeout=99999999999999999999s", None),
        ("", None),
    ] {
        assert_eq!(timeout(query), millis.map(Duration::from_millis), "{query}");
    }
}

#[test]
fn paths_and_names_are_unique() {
    for hook in Hook::ALL {
        assert_eq!(Hook::at(hook.path()), Some(hook));
    }
    assert_eq!(Hook::at("/mutate"), None);
}
