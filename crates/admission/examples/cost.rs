//! What one request costs: `cargo run --release -p flotilla-admission --example cost`.

use flotilla_admission::{Nothing, Operation, Reply, Request, mutate, mutate_pod, validate};
use serde_json::{Value, json};
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: u32 = 2000;
const OURS: &str = "apps.kruise.io";

fn request<'a>(object: &'a Value, old: Option<&'a Value>, group: &'a str, kind: &'a str) -> Request<'a> {
    Request {
        uid: "6b4b3fd8-7b2a-4d5c-9a3e-0d0f3a1c2b4d",
        operation: if old.is_some() {
            Operation::Update
        } else {
            Operation::Create
        },
        group,
        version: "v1beta1",
        kind,
        namespace: "shop",
        name: "web",
        object: Some(object),
        old_object: old,
        dry_run: false,
    }
}

// What is measured here is time itself.
#[allow(clippy::disallowed_methods)]
fn measure(what: &str, ask: impl Fn() -> Reply) {
    let begin = Instant::now();
    for _ in 0..ROUNDS {
        black_box(ask());
    }
    println!(
        "{what:<40} {:>7.1} µs",
        begin.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS)
    );
}

fn pod_spec() -> Value {
    let container = |name: &str| {
        let env: Vec<Value> = (0..20)
            .map(|i| json!({"name": format!("NAME_{i}"), "value": "some value"}))
            .collect();
        json!({"name": name, "image": "registry.example.com/web:1.2.3", "env": env, "ports": [{"containerPort": 8080}],
            "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
            "readinessProbe": {"httpGet": {"port": 8080, "path": "/ready"}},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "config", "mountPath": "/config"}]})
    };
    json!({"containers": [container("main"), container("proxy"), container("log")],
        "readinessGates": [{"conditionType": "InPlaceUpdateReady"}],
        "volumes": [{"name": "data", "emptyDir": {}}, {"name": "config", "configMap": {"name": "config"}}]})
}

fn main() {
    let owner = json!([{"apiVersion": "apps.kruise.io/v1beta1", "kind": "StatefulSet", "name": "web", "uid": "u", "controller": true}]);
    let pod = json!({"metadata": {"name": "web-0", "ownerReferences": owner}, "spec": pod_spec()});
    let mut ordered = pod.clone();
    ordered["metadata"]["annotations"] = json!({"apps.kruise.io/container-launch-priority": "Ordered"});
    let set = json!({"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}, "serviceName": "web",
        "updateStrategy": {"rollingUpdate": {"podUpdatePolicy": "InPlaceOnly"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod_spec()}}});
    let mut changed = set.clone();
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = json!("registry.example.com/web:1.2.4");
    measure("mutate_pod: gate", || {
        mutate_pod(&request(&pod, None, "", "Pod"), &Nothing)
    });
    measure("mutate_pod: gate and launch priority", || {
        mutate_pod(&request(&ordered, None, "", "Pod"), &Nothing)
    });
    measure("mutate: new set", || {
        mutate(&request(&set, None, OURS, "StatefulSet"), &Nothing)
    });
    measure("mutate: changed template", || {
        mutate(&request(&changed, Some(&set), OURS, "StatefulSet"), &Nothing)
    });
    measure("validate: new set", || {
        validate(&request(&set, None, OURS, "StatefulSet"), &Nothing)
    });
    measure("validate: InPlaceOnly, changed template", || {
        validate(&request(&changed, Some(&set), OURS, "StatefulSet"), &Nothing)
    });
}
