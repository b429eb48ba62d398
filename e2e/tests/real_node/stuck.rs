//! Sets that are stuck in ways that only a kubelet knows: `flotilla why` puts the root cause first, and what it advises helps, typed as it
//! stands.

use crate::Lab;
use flotilla_e2e::api::{Objects, is_ready, name, text};
use flotilla_e2e::real::{self, pod, pod_until};
use flotilla_e2e::sets::{SOON, pods};
use flotilla_e2e::stuck::{Sort, Stories, Stuck, cause, container, template};
use libtest_mimic::Trial;
use serde_json::{Value, json};

pub(crate) fn trials(lab: &Lab) -> Vec<Trial> {
    let mut trials = Stories::of("real_node");
    macro_rules! stories {
        ($($name:ident: $sort:ident),* $(,)?) => {$({
            let own = lab.clone();
            let word = Sort::$sort.word();
            trials.add(&format!("stuck::{}_{word}", stringify!($name)), move || async move {
                let ns = format!("stuck-{}", stringify!($name).replace('_', "-"));
                let api = own.enter(&ns).await;
                let s = Stuck::new(api.clone(), ns, Sort::$sort, &own.kubeconfig, &own.kubectl);
                let set = s.set();
                $name(s).await;
                // The node has room for 50 pods, and other scenarios keep theirs.
                api.delete(&set, false).await;
            });
        })*};
    }
    stories!(
        secret_and_key_missing: Native,
        config_map_missing: Clone,
        port_taken: Advanced,
        probe_fails: Clone,
        image_missing: Native,
        resize_refused: Advanced,
        secret_and_quota: Native,
        secret_and_config_map: Clone,
        secret_with_a_name_like_words: Advanced,
    );
    trials.into_trials()
}

/// Pods of the test program.
fn on_the_node(set: &mut Value) {
    template(set)["spec"] = pod("web", "app:v1")["spec"].take();
}

/// The pod that is not ready.
async fn not_ready(s: &Stuck) -> String {
    let is_there = |pods: &Objects| pods.values().any(|pod| !is_ready(pod));
    let pods = s
        .api
        .until(&pods(&s.ns), SOON, "a pod that is not ready", is_there)
        .await;
    let found = pods.values().find(|pod| !is_ready(pod));
    name(found.expect("it was there a moment ago"))
}

/// First there is no Secret, and then there is nothing in it.
async fn secret_and_key_missing(s: Stuck) {
    s.create(1, |set| {
        on_the_node(set);
        let user = json!({"secretKeyRef": {"name": "login", "key": "user"}});
        container(set)["env"] = json!([{"name": "LOGIN", "valueFrom": user}]);
    })
    .await;
    let words = ["CreateContainerConfigError", "secret \"login\" not found"];
    let first = s.first("web-0", &words, "kubectl create secret generic login ").await;
    s.type_in(&first);
    // A kubelet looks again after some seconds.
    let has_looked = |pod: &Value| text(pod, "/status/containerStatuses/0/state/waiting/message").contains("key user");
    pod_until(&s.api, &s.ns, "web-0", "its kubelet looks again", has_looked).await;
    let first = s
        .first("web-0", &["couldn't find key user"], "kubectl edit secret login ")
        .await;
    s.edit(
        &first,
        "user",
        "s/^kind: Secret$/kind: Secret\\nstringData:\\n  user: root/",
    );
    s.mended().await;
}

/// A volume is of a ConfigMap that is not there.
async fn config_map_missing(s: Stuck) {
    s.create(1, |set| {
        on_the_node(set);
        template(set)["spec"]["volumes"] = json!([{"name": "conf", "configMap": {"name": "conf"}}]);
        container(set)["volumeMounts"] = json!([{"name": "conf", "mountPath": "/conf"}]);
    })
    .await;
    let words = ["FailedMount", "configmap \"conf\" not found"];
    let first = s
        .first(&not_ready(&s).await, &words, "kubectl create configmap conf ")
        .await;
    s.type_in(&first);
    s.mended().await;
}

/// Both containers of an update listen at one port; the log of the second tells so.
async fn port_taken(s: Stuck) {
    s.start(2, on_the_node).await;
    s.change(|set| {
        let side = &mut template(set)["spec"]["containers"][1];
        side["image"] = json!("app:v1");
        // Without a probe it would be ready for a moment with each start, and the update would go on.
        side["readinessProbe"] = json!({"tcpSocket": {"port": 8081}});
    })
    .await;
    let words = ["side", "CrashLoopBackOff"];
    let logs = s.first("web-1", &words, "kubectl logs web-1 -c side ").await;
    let said = s.type_in(&logs);
    assert!(said.contains("address already in use"), "{said}");
    let first = s.first("web-1", &words, "flotilla rollout undo ").await;
    s.type_in(&first);
    let first = s.first("web-1", &words, "kubectl delete pod web-1 ").await;
    s.type_in(&first);
    s.mended().await;
}

/// An update is asked at a path that the program does not have.
async fn probe_fails(s: Stuck) {
    s.start(2, on_the_node).await;
    let asked_at = |set: &mut Value, path: &str| container(set)["readinessProbe"]["httpGet"]["path"] = json!(path);
    s.change(|set| asked_at(set, "/nothing")).await;
    let pod = not_ready(&s).await;
    let words = ["Unhealthy", "Readiness probe failed", "404"];
    let first = s.first(&pod, &words, "kubectl describe pod ").await;
    let said = s.type_in(&first);
    assert!(said.contains("http-get http://:8080/nothing"), "{said}");
    s.change(|set| asked_at(set, "/version")).await;
    s.mended().await;
}

/// A tag that is in no registry.
async fn image_missing(s: Stuck) {
    s.start(2, on_the_node).await;
    s.set_image("app:v9").await;
    let words = ["main", "Pull"];
    let first = s.first("web-1", &words, "flotilla rollout undo ").await;
    s.type_in(&first);
    let first = s.first("web-1", &words, "kubectl delete pod web-1 ").await;
    s.type_in(&first);
    s.mended().await;
}

/// More than the node has, for pods that stay: it is never asked for again.
async fn resize_refused(s: Stuck) {
    let sized = |cpu: &str| json!({"requests": {"cpu": cpu, "memory": "16Mi"}});
    s.start(1, |set| {
        on_the_node(set);
        container(set)["resources"] = sized("20m");
        set["spec"]["updateStrategy"] =
            json!({"type": "RollingUpdate", "rollingUpdate": {"podUpdatePolicy": "InPlaceOnly"}});
        template(set)["spec"]["readinessGates"] = json!([{"conditionType": "InPlaceUpdateReady"}]);
    })
    .await;
    s.change(|set| container(set)["resources"] = sized("1000")).await;
    let first = s
        .first(
            "web-0",
            &["its node cannot give", "enough allocatable"],
            "kubectl edit ",
        )
        .await;
    s.edit(&first, "cpu", "s/cpu: \"1000\"|cpu: 1k/cpu: 20m/");
    s.mended().await;
}

/// Has the container that serves read what there is in a Secret.
fn with_secret(set: &mut Value, name: &str) {
    container(set)["envFrom"] = json!([{"secretRef": {"name": name}}]);
}

/// One pod misses a Secret, and for the other there is no room.
async fn secret_and_quota(s: Stuck) {
    let quotas = s.core("resourcequotas");
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"}, "spec": {"hard": {"pods": "1"}}});
    s.api.create(&quotas, &quota).await;
    let counts = |quotas: &Objects| quotas["small"].pointer("/status/hard/pods").is_some();
    s.api.until(&quotas, SOON, "the quota counts", counts).await;
    s.create(2, |set| {
        on_the_node(set);
        with_secret(set, "login");
        set["spec"]["podManagementPolicy"] = json!("Parallel");
    })
    .await;
    let words = ["CreateContainerConfigError", "secret \"login\" not found"];
    let secret = cause("web-0", &words, "kubectl create secret generic login ");
    let quota = cause("web-1", &["QuotaExceeded", "small"], "kubectl describe resourcequota ");
    let told = s.told_beside(&[secret, quota]).await;
    s.type_in(&told[0]);
    let is_up = |pods: &Objects| pods.values().any(is_ready);
    s.api.until(&pods(&s.ns), SOON, "the one pod is ready", is_up).await;
    let told = s.told(&[quota]).await;
    let said = s.type_in(&told[0]);
    assert!(said.contains("small") && said.contains("pods"), "{said}");
    let more = json!({"spec": {"hard": {"pods": "9"}}});
    s.api.patch(&format!("{quotas}/small"), &more).await;
    s.mended().await;
}

/// Each container of a pod misses something else.
async fn secret_and_config_map(s: Stuck) {
    s.create(1, |set| {
        on_the_node(set);
        with_secret(set, "login");
        template(set)["spec"]["containers"][1]["envFrom"] = json!([{"configMapRef": {"name": "conf"}}]);
    })
    .await;
    let pod = not_ready(&s).await;
    let misses = |pod: &Value, name: &str| {
        text(real::container(pod, name), "/state/waiting/reason") == "CreateContainerConfigError"
    };
    let miss = |pod: &Value| misses(pod, "main") && misses(pod, "side");
    pod_until(&s.api, &s.ns, &pod, "both miss something", miss).await;
    let words = ["container main", "secret \"login\" not found"];
    let secret = cause(&pod, &words, "kubectl create secret generic login ");
    let words = ["container side", "configmap \"conf\" not found"];
    let config_map = cause(&pod, &words, "kubectl create configmap conf ");
    let told = s.told_beside(&[secret, config_map]).await;
    s.type_in(&told[0]);
    let starts = |pods: &Objects| pods.values().any(|pod| real::container(pod, "main")["started"] == true);
    s.api.until(&pods(&s.ns), SOON, "one container starts", starts).await;
    let told = s.told(&[config_map]).await;
    s.type_in(&told[0]);
    s.mended().await;
}

/// What the pod misses has a name like what a quota says, and somebody else says of the pod that it misses something else.
async fn secret_with_a_name_like_words(s: Stuck) {
    s.create(1, |set| {
        on_the_node(set);
        with_secret(set, "exceeded.quota");
    })
    .await;
    let pod = s.api.read(&s.pod(&not_ready(&s).await)).await;
    let now = flotilla_e2e::clock::wall().to_string();
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "forged"}, "type": "Warning",
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "namespace": s.ns, "name": "web-0", "uid": pod["metadata"]["uid"],
        },
        "reason": "Failed", "message": "Error: secret \"admin\" not found", "count": 1,
        "firstTimestamp": now, "lastTimestamp": now, "source": {"component": "kubelet"},
    });
    s.api.create(&s.core("events"), &event).await;
    let words = ["CreateContainerConfigError", "secret \"exceeded.quota\" not found"];
    let first = s
        .first("web-0", &words, "kubectl create secret generic exceeded.quota ")
        .await;
    s.type_in(&first);
    s.mended().await;
}
