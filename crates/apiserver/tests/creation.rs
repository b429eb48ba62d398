//! What is refused as an object is made: the same, in the same words, whoever asks, and whether it is done or only tried.

use bytes::Bytes;
use flotilla_apiserver::{Actor, Caretaker, Reply, Server, handle};
use flotilla_model::Resource;
use http::Request;
use serde_json::{Value, json};

/// How the server refuses an object of a kind: made, tried, and posted to a path; empty where it does not.
fn refusals(server: &mut Server, resource: Resource, path: &str, object: &Value) -> [String; 3] {
    let words =
        |answer: Result<_, flotilla_apiserver::Status>| answer.map_or_else(|status| status.message, |_| String::new());
    let tried = words(server.would_create(Actor::Manager(0), resource, object.clone()));
    let posted = post(server, path, object);
    let made = words(server.create(Actor::Manager(0), resource, object.clone()));
    [made, tried, posted]
}

fn post(server: &mut Server, path: &str, object: &Value) -> String {
    let request = Request::post(format!("{path}?dryRun=All")).body(Bytes::from(object.to_string()));
    let Reply::Answer(answer) = handle(server, &request.expect("a request")) else {
        return "a watch".to_owned();
    };
    let body: Value = serde_json::from_slice(answer.body()).expect("JSON");
    match body["kind"].as_str() {
        Some("Status") => body["message"].as_str().unwrap_or_default().to_owned(),
        _ => String::new(),
    }
}

/// A server with the namespace `ns` and its service account.
fn server() -> Server {
    let mut server = Server::new();
    post_for_good(&mut server, "/api/v1/namespaces", &json!({"metadata": {"name": "ns"}}));
    let account = json!({"metadata": {"name": "default"}});
    post_for_good(&mut server, "/api/v1/namespaces/ns/serviceaccounts", &account);
    server
}

fn post_for_good(server: &mut Server, path: &str, object: &Value) {
    let request = Request::post(path).body(Bytes::from(object.to_string()));
    let Reply::Answer(answer) = handle(server, &request.expect("a request")) else {
        panic!("{path}: a watch");
    };
    assert_eq!(answer.status(), 201, "{path}: {:?}", answer.body());
}

const PODS: &str = "/api/v1/namespaces/ns/pods";
const REVISIONS: &str = "/apis/apps/v1/namespaces/ns/controllerrevisions";
const CLAIMS: &str = "/api/v1/namespaces/ns/persistentvolumeclaims";

#[test]
fn values_of_the_wrong_type_are_refused_before_anything_else() {
    let container = |value: Value| {
        let mut container = json!({"name": "main", "image": "app:v1"});
        container
            .as_object_mut()
            .expect("an object")
            .extend(value.as_object().expect("an object").clone());
        json!({"metadata": {"name": "p", "namespace": "ns"}, "spec": {"containers": [container]}})
    };
    let spec = |value: Value| {
        let mut pod = container(json!({}));
        pod["spec"]
            .as_object_mut()
            .expect("an object")
            .extend(value.as_object().expect("an object").clone());
        pod
    };
    let claim = json!({"metadata": {"name": "c", "namespace": "ns"}, "spec": {"accessModes": "ReadWriteOnce", "resources": {"requests": {"storage": "1Gi"}}}});
    let mut server = server();
    for (resource, path, object, why) in [
        (
            Resource::Pods,
            PODS,
            container(json!({"args": ["--port", 8080]})),
            "number into Go struct field Container.spec.containers.args of type string",
        ),
        (
            Resource::Pods,
            PODS,
            container(json!({"env": [{"name": "A", "value": 1}]})),
            "number into Go struct field EnvVar.spec.containers.env.value of type string",
        ),
        (
            Resource::Pods,
            PODS,
            container(json!({"readinessProbe": {"tcpSocket": {"port": 80}, "initialDelaySeconds": "5"}})),
            "string into Go struct field Probe.spec.containers.readinessProbe.initialDelaySeconds of type int32",
        ),
        (
            Resource::Pods,
            PODS,
            container(json!({"securityContext": {"runAsUser": "root"}})),
            "string into Go struct field SecurityContext.spec.containers.securityContext.runAsUser of type int64",
        ),
        (
            Resource::Pods,
            PODS,
            spec(json!({"terminationGracePeriodSeconds": "30"})),
            "string into Go struct field PodSpec.spec.terminationGracePeriodSeconds of type int64",
        ),
        (
            Resource::Claims,
            CLAIMS,
            claim,
            "string into Go struct field PersistentVolumeClaimSpec.spec.accessModes of type []v1.PersistentVolumeAccessMode",
        ),
    ] {
        let kind = resource.kind();
        let words = format!("{kind} in version \"v1\" cannot be handled as a {kind}: json: cannot unmarshal {why}");
        let expected = [words.as_str(); 3];
        assert_eq!(refusals(&mut server, resource, path, &object), expected);
    }
    assert_eq!(server.count(Resource::Pods, None), 0);
    let good = container(json!({"args": ["--port", "8080"], "resources": {"limits": {"cpu": 1}}}));
    assert_eq!(refusals(&mut server, Resource::Pods, PODS, &good), ["", "", ""]);
}

#[test]
fn quotas_count_every_kind_but_events() {
    let mut server = server();
    let named = |name: &str| json!({"metadata": {"name": name, "namespace": "ns"}, "revision": 1});
    let hard = json!({"count/controllerrevisions.apps": "1", "count/statefulsets.apps.kruise.io": "0", "count/events": "0", "pods": "3"});
    let quota = json!({"metadata": {"name": "small"}, "spec": {"hard": hard}});
    post_for_good(&mut server, "/api/v1/namespaces/ns/resourcequotas", &quota);

    let first = refusals(&mut server, Resource::Revisions, REVISIONS, &named("web-1"));
    assert_eq!(first, ["", "", ""], "there is room for one");
    let words = "controllerrevisions.apps \"web-2\" is forbidden: exceeded quota: small, requested: count/controllerrevisions.apps=1, used: count/controllerrevisions.apps=1, limited: count/controllerrevisions.apps=1";
    let second = refusals(&mut server, Resource::Revisions, REVISIONS, &named("web-2"));
    assert_eq!(second, [words; 3]);

    let set = server.would_create(Actor::Manager(0), Resource::AdvancedSets, named("web"));
    let words = set.expect_err("there is room for none").message;
    assert!(
        words.starts_with("statefulsets.apps.kruise.io \"web\" is forbidden: exceeded quota: small"),
        "{words}"
    );
    let event = json!({"metadata": {"name": "e", "namespace": "ns"}, "involvedObject": {"namespace": "ns", "name": "web"}, "type": "Normal"});
    let answer = server.create(Actor::Manager(0), Resource::Events, event);
    assert!(answer.is_ok(), "{answer:?}");

    let news = server.take_journal();
    Caretaker::default().tend(&mut server, &news);
    let quotas = server
        .types
        .store_of_kind("", "ResourceQuota")
        .expect("a built-in kind");
    let quota = server.all(quotas).next().expect("the quota").value();
    let used = &quota["status"]["used"];
    assert_eq!(
        (&used["count/controllerrevisions.apps"], &used["pods"]),
        (&json!("1"), &json!("0"))
    );
}

#[test]
fn pods_are_held_to_the_rules_of_pods_and_of_admission() {
    let spec = |fields: Value| {
        let mut spec = json!({"containers": [{"name": "main", "image": "app:v1"}]});
        let fields = fields.as_object().expect("an object").clone();
        spec.as_object_mut().expect("an object").extend(fields);
        json!({"metadata": {"name": "p", "namespace": "ns"}, "spec": spec})
    };
    let invalid = |why: &str| format!("Pod \"p\" is invalid: {why}");
    let priority = |own: i64, computed: i64| {
        format!(
            "pods \"p\" is forbidden: the integer value of priority ({own}) must not be provided in pod spec; priority admission controller computed {computed} from the given PriorityClass name"
        )
    };
    let mut server = server();
    for (fields, words) in [
        (
            json!({"hostname": "a.b"}),
            invalid("spec.hostname: Invalid value: \"a.b\": must not contain dots"),
        ),
        (
            json!({"dnsPolicy": "None"}),
            invalid("spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"),
        ),
        (
            json!({"ephemeralContainers": [{"name": "debug", "image": "i"}]}),
            invalid("spec.ephemeralContainers: Forbidden: cannot be set on create"),
        ),
        (json!({"priority": 5}), priority(5, 0)),
        (
            json!({"priorityClassName": "system-node-critical", "priority": 5}),
            priority(5, 2_000_001_000),
        ),
    ] {
        let said = refusals(&mut server, Resource::Pods, PODS, &spec(fields));
        assert_eq!(said, [words.as_str(); 3]);
    }
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let class = json!({"metadata": {"name": "usual"}, "value": 7, "globalDefault": true});
    post_for_good(&mut server, classes, &class);
    let said = refusals(&mut server, Resource::Pods, PODS, &spec(json!({"priority": 5})));
    assert_eq!(said, [priority(5, 7).as_str(); 3], "a class may be for all");
    let own = spec(json!({"priority": 7, "dnsPolicy": "None", "dnsConfig": {"nameservers": ["10.0.0.1"]}}));
    assert_eq!(refusals(&mut server, Resource::Pods, PODS, &own), ["", "", ""]);
}
