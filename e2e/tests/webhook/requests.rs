//! What becomes of requests while a manager serves.

use crate::Lab;
use flotilla_e2e::api::{Objects, name, text};
use flotilla_e2e::{Api, Kind, clock, sets, webhooks};
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;

/// STS-7.2 to STS-7.4: a refusal names field, value and rule; what is left out is filled in, and nothing else is touched.
pub(crate) async fn are_refused_with_the_rule_or_filled_in(lab: &Lab) {
    const NS: &str = "refusals";
    let api = lab.enter(NS).await;
    let (_manager, ports) = webhooks::start(&api, &lab.kubeconfig, "refusals", &[]).await;
    let sets = Kind::Advanced.sets(NS);

    let mut twice = Kind::Advanced.manifest("twice", 1);
    twice["spec"]["template"]["spec"]["containers"] =
        json!([{"name": "main", "image": "a"}, {"name": "main", "image": "b"}]);
    let message = api.create_refused(&sets, &twice).await;
    assert!(
        message.contains("admission webhook \"validate-statefulsets.flotilla.rs\" denied"),
        "{message}"
    );
    assert!(message.contains("spec.template.spec.containers[1].name"), "{message}");
    assert!(message.contains("Duplicate value: \"main\""), "{message}");

    let mut plain = Kind::Advanced.manifest("plain", 1);
    plain["spec"]["template"]["spec"]["containers"][0]["fieldOfTheFuture"] = json!({"a": 1});
    let stored = api.create(&sets, &plain).await;
    assert_eq!(stored["spec"]["podManagementPolicy"], "OrderedReady");
    assert_eq!(stored["spec"]["updateStrategy"]["type"], "RollingUpdate");
    assert_eq!(
        stored["spec"]["template"]["spec"]["containers"][0]["fieldOfTheFuture"],
        json!({"a": 1})
    );

    let path = Kind::Advanced.set(NS, "plain");
    let change = json!({"spec": {"template": {"spec": {"restartPolicy": "Never"}}}});
    let refused = api
        .send(Method::PATCH, &path, Some(("application/merge-patch+json", &change)))
        .await;
    let message = refused.expect_err("a set restarts its pods").to_string();
    assert!(message.contains("restartPolicy"), "{message}");

    let counted = |verdict: &str| {
        ports.metric(&format!(
            "flotilla_webhook_requests_total{{webhook=\"validate-statefulsets\",verdict=\"{verdict}\"}}"
        ))
    };
    assert!(counted("denied") >= 1.0 && counted("allowed") >= 1.0);
    assert_eq!(ports.http("/readyz").0, 200);
}

/// STS-3.3: sets written in the older version and read in the newer one, changed there, and read in the older one again.
pub(crate) async fn convert_a_hundred_sets_there_and_back(lab: &Lab) {
    const NS: &str = "conversion";
    const SETS: usize = 100;
    let api = lab.enter(NS).await;
    let (_manager, _) = webhooks::start(&api, &lab.kubeconfig, "conversion", &[]).await;
    let (old, new) = (webhooks::old_sets(NS), Kind::Advanced.sets(NS));
    for index in 0..SETS {
        let mut set = Kind::Advanced.manifest(&format!("web-{index:03}"), 0);
        set["apiVersion"] = json!("apps.kruise.io/v1alpha1");
        set["spec"]["revisionHistoryLimit"] = json!(index);
        set["metadata"]["annotations"] = json!({"example.test/index": index.to_string()});
        api.create(&old, &set).await;
    }
    let listed = api.list(&new).await;
    assert_eq!(listed.len(), SETS);
    for (index, set) in listed.values().enumerate() {
        assert_eq!(set["apiVersion"], "apps.kruise.io/v1beta1");
        assert_eq!(set["spec"]["revisionHistoryLimit"], json!(index));
        // A field that the older version lacks.
        api.patch(
            &format!("{new}/{}", name(set)),
            &json!({"spec": {"reserveOrdinals": [index]}}),
        )
        .await;
    }
    for set in api.list(&old).await.values() {
        assert_eq!(set["apiVersion"], "apps.kruise.io/v1alpha1");
        write_back(&api, &format!("{old}/{}", name(set))).await;
    }
    for (index, set) in api.list(&new).await.values().enumerate() {
        assert_eq!(
            set["spec"]["reserveOrdinals"],
            json!([index]),
            "nothing is lost on the way: {set}"
        );
        assert_eq!(text(set, "/metadata/labels/seen"), "yes");
        assert!(
            set["metadata"]["annotations"]["flotilla.rs/hub-fields"].is_null(),
            "{set}"
        );
    }
}

/// Reads and writes a set as a client of the older version does, again if somebody writes its status meanwhile.
async fn write_back(api: &Api, path: &str) {
    loop {
        let mut set = api.read(path).await;
        set["metadata"]["labels"] = json!({"seen": "yes"});
        match api.send(Method::PUT, path, Some(("application/json", &set))).await {
            Ok(_) => return,
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(why) => panic!("PUT {path}: {why}"),
        }
    }
}

/// a client of the older version that writes a set from its own manifest leaves out the annotation with what that version
/// lacks, and loses nothing of what is stored; what both versions have is as it wrote it.
pub(crate) async fn old_clients_lose_nothing_that_they_have_never_heard_of(lab: &Lab) {
    const NS: &str = "old-clients";
    let api = lab.enter(NS).await;
    let (_manager, _) = webhooks::start(&api, &lab.kubeconfig, "old-clients", &[]).await;
    let mut set = Kind::Advanced.manifest("web", 0);
    set["spec"]["reserveOrdinals"] = json!([1, "3-5"]);
    set["spec"]["scaleStrategy"] = json!({"maxUnavailable": 1});
    set["spec"]["podManagementPolicy"] = json!("Parallel");
    api.create(&Kind::Advanced.sets(NS), &set).await;
    let path = format!("{}/web", webhooks::old_sets(NS));
    for (round, annotation) in [Value::Null, json!("{broken")].into_iter().enumerate() {
        let limit = json!(5 + round);
        loop {
            let mut old = api.read(&path).await;
            assert_eq!(old["apiVersion"], "apps.kruise.io/v1alpha1");
            assert!(old["spec"]["reserveOrdinals"].is_null(), "{old}");
            old["metadata"]["annotations"] = json!({"flotilla.rs/hub-fields": annotation});
            if annotation.is_null() {
                old["metadata"]["annotations"] = Value::Null;
            }
            old["spec"]["revisionHistoryLimit"] = limit.clone();
            match api.send(Method::PUT, &path, Some(("application/json", &old))).await {
                Ok(_) => break,
                // Somebody wrote the status meanwhile.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(why) => panic!("PUT {path}: {why}"),
            }
        }
        let stored = api.read(&Kind::Advanced.set(NS, "web")).await;
        assert_eq!(stored["spec"]["reserveOrdinals"], json!([1, "3-5"]), "{stored}");
        assert_eq!(
            stored["spec"]["scaleStrategy"],
            json!({"maxUnavailable": 1}),
            "{stored}"
        );
        assert_eq!(stored["spec"]["revisionHistoryLimit"], limit, "{stored}");
        assert!(
            stored["metadata"]["annotations"]["flotilla.rs/hub-fields"].is_null(),
            "{stored}"
        );
    }
    // The rules that only admission checks hold for that version, too: names of containers are used once.
    let mut twice = Kind::Advanced.manifest("twice", 0);
    twice["apiVersion"] = json!("apps.kruise.io/v1alpha1");
    twice["spec"]["template"]["spec"]["containers"] =
        json!([{"name": "main", "image": "a"}, {"name": "main", "image": "b"}]);
    let message = api.create_refused(&webhooks::old_sets(NS), &twice).await;
    assert!(message.contains("spec.template.spec.containers[1].name"), "{message}");
}

/// ADM-1, ADM-2: pods under our kinds get their gate; pods of others, and those in kube-system, are not even asked about.
pub(crate) async fn leave_pods_of_others_alone(lab: &Lab) {
    const NS: &str = "pods";
    let api = lab.enter(NS).await;
    let (_manager, ports) = webhooks::start(&api, &lab.kubeconfig, "pods", &[]).await;
    let asked = || -> f64 {
        let count = |verdict| {
            ports.metric(&format!(
                "flotilla_webhook_requests_total{{webhook=\"mutate-pods\",verdict=\"{verdict}\"}}"
            ))
        };
        ["allowed", "mutated", "denied", "unreadable"]
            .into_iter()
            .map(count)
            .sum()
    };
    let before = asked();
    let pods = sets::pods(NS);
    for (name, owner) in [
        ("alone", None),
        ("native", Some("apps/v1")),
        ("similar", Some("apps.kruise.io.example.test/v1")),
    ] {
        let made = api.create(&pods, &webhooks::pod(name, owner)).await;
        assert!(!webhooks::has_gate(&made), "{made}");
    }
    let system = api
        .create(
            &sets::pods("kube-system"),
            &webhooks::pod("ours", Some("apps.kruise.io/v1beta1")),
        )
        .await;
    assert!(!webhooks::has_gate(&system), "{system}");
    let mut out = webhooks::pod("out", Some("apps.kruise.io/v1beta1"));
    out["metadata"]["labels"] = json!({"flotilla.rs/webhooks": "ignore"});
    assert!(!webhooks::has_gate(&api.create(&pods, &out).await));
    let mut gated = webhooks::pod("gated", Some("apps.kruise.io/v1beta1"));
    gated["spec"]["readinessGates"] = json!([{"conditionType": "KruisePodReady"}]);
    api.create(&pods, &gated).await;
    assert!(
        (asked() - before).abs() < f64::EPSILON,
        "the webhook was asked about pods of others"
    );

    let ours = api
        .create(&pods, &webhooks::pod("ours", Some("apps.kruise.io/v1alpha1")))
        .await;
    assert!(webhooks::has_gate(&ours), "{ours}");
    let mut first = webhooks::pod("first", None);
    first["metadata"]["annotations"] = json!({"apps.kruise.io/container-launch-priority": "Ordered"});
    first["spec"]["containers"] = json!([{"name": "a", "image": "a"}, {"name": "b", "image": "b"}]);
    let first = api.create(&pods, &first).await;
    assert_eq!(
        first["spec"]["containers"][0]["env"][0]["name"],
        "KRUISE_CONTAINER_BARRIER"
    );
    assert!((asked() - before - 2.0).abs() < f64::EPSILON);
}

/// STS-7.5: what is labelled cannot be deleted, and the answer says what to do.
pub(crate) async fn protect_what_is_labelled(lab: &Lab) {
    const NS: &str = "protection";
    let api = lab.enter(NS).await;
    let (_manager, _) = webhooks::start(&api, &lab.kubeconfig, "protection", &[]).await;
    let labelled = |value: Option<&str>| json!({"metadata": {"labels": {"policy.kruise.io/delete-protection": value}}});
    let namespace = format!("/api/v1/namespaces/{NS}");
    api.create(&sets::pods(NS), &webhooks::pod("alone", None)).await;
    api.patch(&namespace, &labelled(Some("Cascading"))).await;
    // The manager's caches may be two seconds behind: tried without effect until it knows of the pod, or of the label.
    let refused = async |path: &str| -> Value {
        let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]});
        let begun = clock::now();
        loop {
            match api.send(Method::DELETE, path, Some(("application/json", &body))).await {
                Err(kube::Error::Api(status)) if status.code != 409 => {
                    return json!({"code": status.code, "message": status.message});
                }
                // Not known yet; or known as it was before.
                Err(kube::Error::Api(_)) | Ok(_) => {}
                Err(why) => panic!("DELETE {path}: {why}"),
            }
            assert!(begun.elapsed() < sets::SOON, "DELETE {path} is not refused");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let words = |value: &str, way: &str| {
        format!("forbidden by ResourcesProtectionDeletion for policy.kruise.io/delete-protection={value}{way}")
    };
    let answer = refused(&namespace).await;
    assert_eq!(answer["code"], 403, "{answer}");
    assert!(
        text(&answer, "/message").contains(&words("Cascading", " and active pods 1>0")),
        "{answer}"
    );
    api.create(&Kind::Advanced.sets(NS), &Kind::Advanced.manifest("web", 0))
        .await;
    let set = Kind::Advanced.set(NS, "web");
    api.patch(&set, &labelled(Some("Always"))).await;
    assert_eq!(refused(&set).await["code"], 403);
    api.patch(&set, &labelled(Some("Cascading"))).await;
    api.delete(&set, false).await;

    let ports = json!({"selector": {"app": "web"}, "ports": [{"port": 80}]});
    let ingress = json!({"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}});
    for (path, api_version, kind, spec) in [
        (format!("/api/v1/namespaces/{NS}/services"), "v1", "Service", ports),
        (
            format!("/apis/networking.k8s.io/v1/namespaces/{NS}/ingresses"),
            "networking.k8s.io/v1",
            "Ingress",
            ingress,
        ),
    ] {
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "web"}, "spec": spec});
        api.create(&path, &object).await;
        let path = format!("{path}/web");
        api.patch(&path, &labelled(Some("Always"))).await;
        let answer = refused(&path).await;
        assert!(text(&answer, "/message").contains(&words("Always", "")), "{answer}");
        api.patch(&path, &labelled(None)).await;
        api.delete(&path, false).await;
    }
    api.patch(&namespace, &labelled(None)).await;
    api.delete(&namespace, false).await;
}

/// a labelled definition goes once nothing is defined by it any more, and while there is something, it stays.
pub(crate) async fn protect_definitions_while_there_are_objects_of_them(lab: &Lab) {
    const NS: &str = "definitions";
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let api = lab.enter(NS).await;
    let (_manager, _) = webhooks::start(&api, &lab.kubeconfig, "definitions", &[]).await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.test", "labels": {"policy.kruise.io/delete-protection": "Cascading"}},
        "spec": {
            "group": "example.test",
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    api.create(DEFINITIONS, &definition).await;
    let is_established = |definitions: &Objects| {
        let conditions = definitions["things.example.test"]["status"]["conditions"].as_array();
        let is_established = |c: &Value| c["type"] == "Established" && c["status"] == "True";
        conditions.is_some_and(|conditions| conditions.iter().any(is_established))
    };
    api.until(DEFINITIONS, sets::SOON, "the definition is established", is_established)
        .await;
    let things = format!("/apis/example.test/v1/namespaces/{NS}/things");
    let thing = json!({"apiVersion": "example.test/v1", "kind": "Thing", "metadata": {"name": "one"}});
    // Served a moment after it was established.
    let begun = clock::now();
    while api
        .send(Method::POST, &things, Some(("application/json", &thing)))
        .await
        .is_err()
    {
        assert!(begun.elapsed() < sets::SOON, "things are not served");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let path = format!("{DEFINITIONS}/things.example.test");
    let body = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
    match api.send(Method::DELETE, &path, Some(("application/json", &body))).await {
        Err(kube::Error::Api(status)) => {
            assert_eq!(status.code, 403, "{status:?}");
            assert!(
                status
                    .message
                    .contains("delete-protection=Cascading and active CRs 1>0"),
                "{status:?}"
            );
        }
        other => panic!("a definition with an object was deleted: {other:?}"),
    }
    api.delete(&format!("{things}/one"), false).await;
    api.delete(&path, false).await;
}
