//! Agents: one on every node, waited for, held to events of its node, and gone again with their rights.

use super::{flotilla, says};
use flotilla_e2e::api::{Objects, text};
use flotilla_e2e::sets::{SOON, pods};
use flotilla_e2e::suite::kubeconfig_with;
use flotilla_e2e::{Api, clock};
use flotilla_install::{AGENT, AGENT_EVENT_POLICY, AGENT_POD_POLICY, Condition, Options, objects, place};
use flotilla_localcluster::Cluster;
use http::Method;
use serde_json::{Value, json};
use std::path::Path;

const SYSTEM: &str = "flotilla-system";

/// AGT-11.1 and AGT-12.
pub(crate) async fn are_waited_for_and_held_to_their_node() {
    let cluster = Cluster::disposable("e2e-install-agents")
        .nodes(2)
        .without_statefulset_controller()
        .start()
        .expect("a cluster");
    let kubeconfig = cluster.kubeconfig_path();
    let api = Api::connect(kubeconfig).await;
    let told = flotilla(kubeconfig, &["install", "--yes", "--agent"]).done();
    says(
        &told,
        &[
            "networkpolicy.networking.k8s.io/flotilla-agent created",
            "validatingadmissionpolicy.admissionregistration.k8s.io/flotilla-agent-event created",
            "the managers are ready",
            "the agents are ready, on nodes: 2",
        ],
    );
    let path = format!("/apis/apps/v1/namespaces/{SYSTEM}/daemonsets/{AGENT}");
    assert_eq!(
        api.read(&path).await["status"]["numberAvailable"],
        2,
        "they were waited for"
    );
    let again = flotilla(kubeconfig, &["install", "--yes", "--agent"]).done();
    assert!(!again.contains("created") && !again.contains("deleted"), "{again}");

    let (node, agent) = one_of_them(&api, kubeconfig).await;
    events_are_held_to_the_node(&agent, &node).await;

    let told = flotilla(kubeconfig, &["install", "--yes"]).done();
    let gone = |name: &str| {
        let line = format!("{name} deleted: no longer chosen");
        told.find(&line).unwrap_or_else(|| panic!("{line} is not in: {told}"))
    };
    let rights = gone("clusterrole.rbac.authorization.k8s.io/flotilla-agent");
    assert!(gone("daemonset.apps/flotilla-agent") < rights, "{told}");
    for policy in [AGENT_POD_POLICY, AGENT_EVENT_POLICY] {
        let limit = gone(&format!(
            "validatingadmissionpolicybinding.admissionregistration.k8s.io/{policy}"
        ));
        assert!(rights < limit, "no rights without limits: {told}");
    }
    for object in of_agents() {
        let place = place(&object);
        assert!(api.get(&place.path).await.is_none(), "{} is left", place.name);
    }
}

/// What an installation with agents has and one without has not.
fn of_agents() -> Vec<Value> {
    let with = objects(&Options::default().with(Condition::Agent, true));
    let ours = with
        .into_iter()
        .filter(|object| text(object, "/metadata/name").starts_with(AGENT));
    let ours: Vec<Value> = ours.collect();
    assert!(ours.len() > 7, "{}", ours.len());
    ours
}

/// The node of an agent, and the API as that agent sees it.
async fn one_of_them(api: &Api, admin: &Path) -> (String, Api) {
    let is_agent = |pod: &&Value| pod["metadata"]["labels"]["app.kubernetes.io/name"] == AGENT;
    let all: Objects = api.list(&pods(SYSTEM)).await;
    let pod = all.values().find(is_agent).expect("there are agents");
    let spec = json!({"expirationSeconds": 3600, "boundObjectRef": {
        "apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"],
    }});
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let path = format!("/api/v1/namespaces/{SYSTEM}/serviceaccounts/{AGENT}/token");
    let token = api.create(&path, &request).await["status"]["token"].take();
    let kubeconfig = kubeconfig_with(admin, "agent", &token, None);
    (text(pod, "/spec/nodeName").to_owned(), Api::connect(&kubeconfig).await)
}

async fn events_are_held_to_the_node(agent: &Api, node: &str) {
    let about =
        |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "name": name, "namespace": "default"});
    let own = json!({"apiVersion": "v1", "kind": "Node", "name": node, "uid": node});
    let other = json!({"apiVersion": "v1", "kind": "Node", "name": "another", "uid": "another"});
    let wrong = [
        ("the name of its own node", "another", about("Pod", "web-0")),
        ("pods and its own node", node, other),
        ("pods and its own node", node, about("Secret", "web")),
    ];
    // The API server takes in a new policy after a moment, of which nothing tells.
    let begun = clock::now();
    while refused(agent, "another", &about("Pod", "web-0")).await.is_none() {
        assert!(begun.elapsed() < SOON, "an event in the name of another node is taken");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    for (why, instance, regarding) in wrong {
        let message = refused(agent, instance, &regarding).await;
        let message = message.unwrap_or_else(|| panic!("{instance:?} {regarding} was taken"));
        says(&message, &[AGENT_EVENT_POLICY, why]);
    }
    for regarding in [about("Pod", "web-0"), own] {
        assert_eq!(refused(agent, node, &regarding).await, None, "{regarding}");
    }
}

/// Tries to make an event as an agent does; says why not, if not.
async fn refused(api: &Api, instance: &str, regarding: &Value) -> Option<String> {
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"namespace": "default", "generateName": "try-"},
        "regarding": regarding, "type": "Normal", "reason": "Killing", "action": "Killing", "note": "a try",
        "eventTime": "2026-07-01T10:00:00.000000Z", "reportingController": "flotilla.rs/agent", "reportingInstance": instance,
    });
    let path = "/apis/events.k8s.io/v1/namespaces/default/events";
    match api.send(Method::POST, path, Some(("application/json", &event))).await {
        Ok(_) => None,
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 422) => Some(status.message),
        Err(error) => panic!("POST {path} {event}: {error}"),
    }
}
