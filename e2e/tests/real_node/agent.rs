//! The agent of a node: environment from labels and annotations changes in place. The image of the tests holds one static program and no
//! `env`, so that only the runtime can tell what environment a container has (AGT-8.4).

use crate::sets::{assert_same_pods, assert_started_anew, start};
use crate::{Lab, rights};
use flotilla_e2e::api::{Objects, is_ready, revision, text};
use flotilla_e2e::real::{container, environment, incarnation, pod_until, version};
use flotilla_e2e::sets::{SOON, pods, ready, rolled_out};
use flotilla_e2e::suite::trial;
use flotilla_e2e::webhooks::Ports;
use flotilla_e2e::why::wait_named;
use flotilla_e2e::{Api, Kind, Manager};
use http::Method;
use libtest_mimic::Trial;
use serde_json::{Value, json};

/// The annotation in which the agent notes what it finds.
pub(crate) const NOTE: &str = "apps.kruise.io/runtime-containers-meta";

pub(crate) fn trials(lab: &Lab) -> Vec<Trial> {
    let mut trials = Vec::new();
    macro_rules! stories {
        ($($name:ident),* $(,)?) => {$({
            let own = lab.clone();
            trials.push(trial(concat!("agent::", stringify!($name)), move || async move {
                let ns = format!("agent-{}", stringify!($name).replace('_', "-"));
                $name(&own, &own.enter(&ns).await, &ns).await;
            }));
        })*};
    }
    stories!(
        changes_of_metadata_reach_the_environment,
        an_image_and_its_environment_change_with_one_restart,
        a_hook_runs_before_a_container_is_stopped,
        without_it_an_update_waits_and_says_for_what,
        without_a_runtime_it_runs_and_is_not_ready,
    );
    trials
}

/// An entry of the environment that refers to the pod's metadata.
pub(crate) fn field(name: &str, path: &str) -> Value {
    json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}})
}

/// Gives the pods of a set a label and an annotation that the environment of `main` refers to.
fn with_environment(set: &mut Value) {
    let template = &mut set["spec"]["template"];
    template["metadata"]["annotations"] = json!({"colour": "green"});
    template["metadata"]["labels"]["role"] = json!("follower");
    template["spec"]["containers"][0]["env"] = json!([
        field("ROLE", "metadata.labels['role']"),
        field("COLOUR", "metadata.annotations['colour']"),
    ]);
}

/// Changes the template of the set.
async fn patch(api: &Api, ns: &str, body: Value) {
    let content = Some(("application/json-patch+json", &body));
    let sent = api.send(Method::PATCH, &Kind::Advanced.set(ns, "web"), content).await;
    sent.unwrap_or_else(|e| panic!("PATCH {body}: {e}"));
}

fn replace(path: &str, value: &str) -> Value {
    json!({"op": "replace", "path": format!("/spec/template/{path}"), "value": value})
}

/// What the agent noted of a container of a pod; null while there is nothing.
fn noted(pod: &Value, name: &str) -> Value {
    let annotations = &pod["metadata"]["annotations"];
    let note: Value = serde_json::from_str(annotations[NOTE].as_str().unwrap_or("{}")).expect("the note is JSON");
    let mut containers = note["containers"].as_array().into_iter().flatten();
    containers.find(|c| c["name"] == name).cloned().unwrap_or_default()
}

/// Waits until the agent has noted every container of these pods.
async fn all_noted(api: &Api, ns: &str) -> Objects {
    api.until(&pods(ns), SOON, "what runs is noted", |pods| {
        let as_shown = |pod: &Value, name| {
            let id = noted(pod, name)["containerID"].clone();
            !id.is_null() && id == container(pod, name)["containerID"]
        };
        pods.values().all(|pod| as_shown(pod, "main") && as_shown(pod, "side"))
    })
    .await
}

/// Events about pods that carry this reason and come from the agent, once there are as many; an event may be written after what it tells of.
async fn told(api: &Api, ns: &str, reason: &str, count: usize) -> Vec<Value> {
    let path = format!("/apis/events.k8s.io/v1/namespaces/{ns}/events");
    let ours = |event: &&Value| event["reportingController"] == "flotilla.rs/agent" && event["reason"] == reason;
    let what = format!("{count} times {reason}");
    let events = api
        .until(&path, SOON, &what, |events| {
            events.values().filter(ours).count() >= count
        })
        .await;
    events.values().filter(ours).cloned().collect()
}

/// STS-4.1, STS-4.6, AGT-8.1, AGT-8.4 and AGT-8.5.
async fn changes_of_metadata_reach_the_environment(lab: &Lab, api: &Api, ns: &str) {
    let agent = lab.with_agent().await;
    start(api, ns, 2, with_environment).await;
    let before = all_noted(api, ns).await;
    for (name, pod) in &before {
        let main = noted(pod, "main");
        assert_eq!(main["restartCount"], 0, "{name}: {main}");
        let hash = main.pointer("/hashes/extractedEnvFromMetadataHash");
        assert!(hash.is_some_and(Value::is_u64), "{name}: {main}");
        let side = noted(pod, "side");
        // Nothing of its environment refers to metadata.
        assert_eq!(side["hashes"]["extractedEnvFromMetadataHash"], 86_995_377, "{name}");
    }
    // What JSON as Go writes it escapes, and white space at both ends.
    let colour = " <red> & \"blue\" ";
    patch(
        api,
        ns,
        json!([
            replace("metadata/annotations/colour", colour),
            replace("metadata/labels/role", "leader"),
        ]),
    )
    .await;
    let done = rolled_out(api, Kind::Advanced, ns, "web").await;
    let after = ready(api, ns, 2).await;
    assert_same_pods(&before, &after);
    for (name, pod) in &after {
        assert_started_anew(&before[name], pod, "main");
        let environment = environment(api, ns, name).await;
        assert_eq!(environment["COLOUR"], colour, "{name}");
        assert_eq!(environment["ROLE"], "leader", "{name}");
        assert_eq!(revision(pod), text(&done, "/status/updateRevision"), "{name}");
        assert_eq!(
            noted(pod, "main")["containerID"],
            container(pod, "main")["containerID"],
            "{name}"
        );
        assert_eq!(noted(pod, "main")["restartCount"], 1, "{name}");
    }
    let killing = told(api, ns, "Killing", 2).await;
    assert_eq!(killing.len(), 2, "one for each pod: {killing:?}");
    assert!(
        killing
            .iter()
            .all(|e| e["regarding"]["fieldPath"] == "spec.containers{main}" && e["reportingInstance"] == "real-0"),
        "{killing:?}"
    );
    rights::are_used_and_none_is_missing(&lab.audit_log, ns);
    drop(agent);
}

/// AGT-8.5: the kubelet restarts the container for its image, and that is all it takes.
async fn an_image_and_its_environment_change_with_one_restart(lab: &Lab, api: &Api, ns: &str) {
    let agent = lab.with_agent().await;
    start(api, ns, 1, with_environment).await;
    let before = all_noted(api, ns).await;
    patch(
        api,
        ns,
        json!([
            replace("metadata/annotations/colour", "red"),
            replace("spec/containers/0/image", "app:v2"),
        ]),
    )
    .await;
    rolled_out(api, Kind::Advanced, ns, "web").await;
    let after = ready(api, ns, 1).await;
    assert_same_pods(&before, &after);
    assert_started_anew(&before["web-0"], &after["web-0"], "main");
    assert_eq!(version(api, ns, "web-0").await.as_deref(), Some("v2"));
    assert_eq!(environment(api, ns, "web-0").await["COLOUR"], "red");
    // In service nothing is restarted, so that it stays at one.
    assert!(
        told(api, ns, "Killing", 0).await.is_empty(),
        "the agent had nothing to do"
    );
    drop(agent);
}

/// AGT-9.6: the hook is a request to a port by its name, at the pod's address. The program knows no such path, which is told.
async fn a_hook_runs_before_a_container_is_stopped(lab: &Lab, api: &Api, ns: &str) {
    let agent = lab.with_agent().await;
    start(api, ns, 1, |set| {
        with_environment(set);
        let main = &mut set["spec"]["template"]["spec"]["containers"][0];
        main["ports"][0]["name"] = json!("web");
        main["lifecycle"] = json!({"preStop": {"httpGet": {"path": "/bye", "port": "web"}}});
    })
    .await;
    let before = all_noted(api, ns).await;
    patch(api, ns, json!([replace("metadata/annotations/colour", "red")])).await;
    rolled_out(api, Kind::Advanced, ns, "web").await;
    let after = ready(api, ns, 1).await;
    assert_started_anew(&before["web-0"], &after["web-0"], "main");
    assert_eq!(environment(api, ns, "web-0").await["COLOUR"], "red");
    let failed = told(api, ns, "FailedPreStopHook", 1).await;
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(text(&failed[0], "/note").contains("404"), "{failed:?}");
    drop(agent);
}

/// STS-4.6, and AGT-8.2: an agent that comes up finds a pod that waits for it.
async fn without_it_an_update_waits_and_says_for_what(lab: &Lab, api: &Api, ns: &str) {
    let mut place = lab.without_agent().await;
    let before = start(api, ns, 1, with_environment).await;
    assert_eq!(noted(&before["web-0"], "main"), Value::Null);
    patch(api, ns, json!([replace("metadata/annotations/colour", "red")])).await;
    let wait = wait_named(api, &lab.kubeconfig, ns, "InPlaceEnvironment", "web-0").await;
    assert!(text(&wait, "/message").contains("main"), "{wait}");
    assert!(text(&wait, "/advice").contains("node agent"), "{wait}");
    // The kubelet sees the closed gate after the manager has said what it waits for.
    let during = pod_until(api, ns, "web-0", "out of service", |pod| !is_ready(pod)).await;
    assert_eq!(
        incarnation(&during, "main"),
        incarnation(&before["web-0"], "main"),
        "nobody restarts it"
    );
    *place = Some(lab.start_agent());
    rolled_out(api, Kind::Advanced, ns, "web").await;
    let after = pod_until(api, ns, "web-0", "ready again", is_ready).await;
    assert_started_anew(&before["web-0"], &after, "main");
    assert_eq!(environment(api, ns, "web-0").await["COLOUR"], "red");
}

/// AGT-1 and AGT-12.
async fn without_a_runtime_it_runs_and_is_not_ready(lab: &Lab, api: &Api, _: &str) {
    let ports = Ports::free();
    let address = format!("--addr=127.0.0.1:{}", ports.http);
    let socket = lab.socket.with_file_name("nobody.sock");
    let mut agent = Manager::agent(&lab.agents_kubeconfig, "alone-agent", "real-0", &socket, &[&address]);
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    api.until(events, SOON, "the missing runtime is told of", |events| {
        events.values().any(|event| {
            event["reason"] == "RuntimeUnavailable"
                && event["regarding"]["kind"] == "Node"
                && event["regarding"]["name"] == "real-0"
                && text(event, "/note").contains("nobody.sock")
        })
    })
    .await;
    assert_eq!(ports.http("/healthz").0, 200);
    let (code, answer) = ports.http("/readyz");
    assert!(
        code == 503 && answer.contains("no container runtime"),
        "{code}: {answer}"
    );
    assert!(ports.metric("flotilla_agent_resident_bytes") > 0.0);
    assert!(agent.is_running());
    agent.signal("TERM");
    let ended = agent.ended(SOON).await;
    assert!(ended.success(), "{ended}");
}
