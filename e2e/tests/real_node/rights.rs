//! What an agent may do: the account of an installation, and the policy that holds it to its node (AGT-11.1).

use crate::Lab;
use crate::agent::NOTE;
use flotilla_e2e::api::text;
use flotilla_e2e::real::{GATE, advanced_set};
use flotilla_e2e::sets::{SOON, pods, ready};
use flotilla_e2e::suite::{kubeconfig_with, trial};
use flotilla_e2e::{Api, Kind, audit};
use flotilla_install::{AGENT, AGENT_PERMISSIONS, Condition, Options, objects, place};
use http::Method;
use libtest_mimic::Trial;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Where agents are installed.
const SYSTEM: &str = "flotilla-system";
/// Their account.
const USER: &str = "system:serviceaccount:flotilla-system:flotilla-agent";

pub(crate) fn trials(lab: &Lab) -> Vec<Trial> {
    let own = lab.clone();
    vec![trial("rights::an_agent_is_held_to_its_node", move || async move {
        an_agent_is_held_to_its_node(&own, "rights-of-an-agent").await;
    })]
}

/// Applies what an installation consists of for its agents, their pods aside, and returns a kubeconfig of the agent of the real node.
pub(crate) async fn account(api: &Api, admin: &Path) -> PathBuf {
    let all = objects(&Options::default().with(Condition::Agent, true));
    let ours = |object: &&Value| text(object, "/metadata/name").starts_with(AGENT) && object["kind"] != "DaemonSet";
    for object in all.iter().filter(ours) {
        let path = place(object).path;
        let (collection, _) = path.rsplit_once('/').expect("a path");
        api.create(collection, object).await;
    }
    // As the agent's own pod, this one says on which node it is.
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "agent"},
        "spec": {"serviceAccountName": AGENT, "nodeSelector": {"type": "real"}, "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "agent", "image": "pause:1"}]},
    });
    api.create(&pods(SYSTEM), &pod).await;
    let bound = api
        .until(&pods(SYSTEM), SOON, "the agent's pod has a node", |pods| {
            pods.get("agent").is_some_and(|pod| pod["spec"]["nodeName"] == "real-0")
        })
        .await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "name": "agent", "uid": bound["agent"]["metadata"]["uid"]});
    let token = token(api, Some(pod)).await;
    kubeconfig_with(admin, "agent", &token, None)
}

/// A token of the account, for a pod or for nobody in particular.
async fn token(api: &Api, pod: Option<Value>) -> Value {
    let mut spec = json!({"expirationSeconds": 3600});
    if let Some(pod) = pod {
        spec["boundObjectRef"] = pod;
    }
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let path = format!("/api/v1/namespaces/{SYSTEM}/serviceaccounts/{AGENT}/token");
    api.create(&path, &request).await["status"]["token"].take()
}

/// Each right of the agent is used, and none is missing: by what the agent of the node did for one namespace.
pub(crate) fn are_used_and_none_is_missing(log: &Path, namespace: &str) {
    let granted = AGENT_PERMISSIONS
        .iter()
        .flat_map(|p| p.verbs.iter().map(|verb| (p.group, p.resource, *verb)));
    audit::assert_same(&audit::set(granted), &audit::uses_in(log, USER, namespace));
}

/// Tries to change the status subresource of a pod; says why not, if not.
async fn refused(api: &Api, namespace: &str, pod: &str, body: &Value) -> Option<String> {
    let path = format!("{}/{pod}/status", pods(namespace));
    let content = Some(("application/strategic-merge-patch+json", body));
    match api.send(Method::PATCH, &path, content).await {
        Ok(_) => None,
        Err(kube::Error::Api(status)) if status.code == 403 => Some(status.message),
        Err(error) => panic!("PATCH {path} {body}: {error}"),
    }
}

async fn an_agent_is_held_to_its_node(lab: &Lab, ns: &str) {
    let admin = lab.enter(ns).await;
    let agent = Api::connect(&lab.agents_kubeconfig).await;
    let mut set = advanced_set("web", 1, "app:v1");
    set["spec"]["template"]["metadata"]["annotations"] = json!({"theirs": "x"});
    admin.create(&Kind::Advanced.sets(ns), &set).await;
    ready(&admin, ns, 1).await;
    let note = json!({"metadata": {"annotations": {NOTE: "{\"containers\":[]}"}}});
    assert_eq!(refused(&agent, ns, "web-0", &note).await, None, "its own annotation");
    for (what, body) in [
        ("no annotation", json!({"metadata": {"annotations": {"theirs": "y"}}})),
        ("no annotation", json!({"metadata": {"annotations": {"theirs": null}}})),
        ("no annotation", json!({"metadata": {"annotations": {"new": ""}}})),
        ("labels, finalizers", json!({"metadata": {"labels": {"app": "y"}}})),
        (
            "labels, finalizers",
            json!({"metadata": {"finalizers": ["example.test/held"]}}),
        ),
        (
            "status",
            json!({"status": {"conditions": [{"type": GATE, "status": "False"}]}}),
        ),
    ] {
        let message = refused(&agent, ns, "web-0", &body).await;
        let message = message.unwrap_or_else(|| panic!("{body} was accepted"));
        assert!(
            message.contains("flotilla-agent-pod") && message.contains(what),
            "{body}: {message}"
        );
    }
    // A pod of another node, and a token that tells of no node.
    let elsewhere = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "elsewhere"},
        "spec": {"nodeName": "another", "containers": [{"name": "main", "image": "pause:1"}]},
    });
    admin.create(&pods(ns), &elsewhere).await;
    let message = refused(&agent, ns, "elsewhere", &note).await;
    assert!(
        message.is_some_and(|m| m.contains("its own node")),
        "a pod of another node"
    );
    let nobody = kubeconfig_with(&lab.kubeconfig, "nobody", &token(&admin, None).await, None);
    let message = refused(&Api::connect(&nobody).await, ns, "web-0", &note).await;
    assert!(
        message.is_some_and(|m| m.contains("its own node")),
        "a token of no node"
    );
    // Beyond that it has no right at all.
    let path = format!("{}/web-0", pods(ns));
    let content = Some(("application/merge-patch+json", &note));
    let sent = agent.send(Method::PATCH, &path, content).await;
    assert!(sent.is_err_and(|e| e.to_string().contains("cannot patch resource")));
    // It has no kubelet that would confirm its end.
    let now = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
    let content = Some(("application/json", &now));
    let gone = admin
        .send(Method::DELETE, &format!("{}/elsewhere", pods(ns)), content)
        .await;
    gone.expect("the pod of another node goes");
}
