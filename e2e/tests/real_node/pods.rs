//! Facts about pods that in-place updates rest on: what a kubelet does when a running pod is changed, and what it tells.

use crate::Lab;
use flotilla_e2e::Api;
use flotilla_e2e::api::{is_ready, text};
use flotilla_e2e::real::{
    condition, container, incarnation, pod, pod_until, resize, service, serving, set_condition, set_image, slices,
    version,
};
use flotilla_e2e::sets::{SOON, pods};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

pub(crate) fn trials(lab: &Lab) -> Vec<Trial> {
    crate::scenarios!(
        lab,
        "pods",
        [
            another_image_restarts_one_container,
            another_tag_of_the_same_digest_is_not_shown,
            a_tag_that_does_not_exist_ends_the_old_container,
            a_gate_takes_the_pod_out_of_service,
            cpu_is_resized_without_a_restart,
            memory_is_resized_by_a_restart_where_the_policy_says_so,
            a_resize_beyond_the_node_is_refused,
            a_resize_without_room_is_deferred,
        ]
    )
}

/// A gate of nobody's but the test.
const GATE: &str = "flotilla.test/gate";

/// Runs a pod and returns it once it is ready.
async fn run(api: &Api, ns: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut object = pod("web", "app:v1");
    change(&mut object);
    api.create(&pods(ns), &object).await;
    pod_until(api, ns, "web", "containers ready", |pod| {
        condition(pod, "ContainersReady")["status"] == "True"
    })
    .await
}

/// What an in-place change leaves as it is.
fn assert_same_pod(before: &Value, after: &Value) {
    for pointer in ["/metadata/uid", "/status/podIP", "/spec/nodeName", "/status/startTime"] {
        assert!(!text(before, pointer).is_empty(), "{pointer}");
        assert_eq!(text(before, pointer), text(after, pointer), "{pointer}");
    }
    assert_eq!(
        incarnation(before, "side"),
        incarnation(after, "side"),
        "the other container stays"
    );
}

async fn another_image_restarts_one_container(api: &Api, ns: &str) {
    let before = run(api, ns, |_| ()).await;
    assert_eq!(version(api, ns, "web").await.as_deref(), Some("v1"));
    set_image(api, ns, "web", "main", "app:v2").await;
    // A container that ends and starts quickly is replaced between two reports of the kubelet: the pod need not be seen not ready.
    let restarted = |pod: &Value| incarnation(pod, "main").0 == 1 && is_ready(pod);
    let after = pod_until(api, ns, "web", "restarted", restarted).await;
    assert_same_pod(&before, &after);
    let (old, new) = (container(&before, "main"), container(&after, "main"));
    assert_ne!(new["containerID"], old["containerID"]);
    assert_ne!(new["imageID"], old["imageID"]);
    assert_eq!(
        new["image"], "docker.io/library/app:v2",
        "as the runtime names it, not as the spec does"
    );
    assert_eq!(new["lastState"]["terminated"]["containerID"], old["containerID"]);
    assert_eq!(after["status"]["observedGeneration"], after["metadata"]["generation"]);
    assert_eq!(
        version(api, ns, "web").await.as_deref(),
        Some("v2"),
        "the same address serves the new one"
    );
}

/// The trap of STS-4.6: neither the image ID nor the image in the status tells that the update is over.
async fn another_tag_of_the_same_digest_is_not_shown(api: &Api, ns: &str) {
    let before = run(api, ns, |_| ()).await;
    set_image(api, ns, "web", "main", "app:v1-same").await;
    let restarted = |pod: &Value| incarnation(pod, "main").0 == 1 && is_ready(pod);
    let after = pod_until(api, ns, "web", "restarted", restarted).await;
    assert_same_pod(&before, &after);
    let (old, new) = (container(&before, "main"), container(&after, "main"));
    assert_ne!(new["containerID"], old["containerID"]);
    assert_eq!(new["imageID"], old["imageID"]);
    assert_eq!(new["image"], "docker.io/library/app:v1");
}

async fn a_tag_that_does_not_exist_ends_the_old_container(api: &Api, ns: &str) {
    let before = run(api, ns, |_| ()).await;
    set_image(api, ns, "web", "main", "app:v9").await;
    let backs_off = |pod: &Value| text(container(pod, "main"), "/state/waiting/reason") == "ImagePullBackOff";
    let during = pod_until(api, ns, "web", "the image cannot be pulled", backs_off).await;
    let (old, new) = (container(&before, "main"), container(&during, "main"));
    for same in ["image", "imageID", "restartCount"] {
        assert_eq!(new[same], old[same], "{same} is still that of the old container");
    }
    assert!(!is_ready(&during));
    assert_eq!(version(api, ns, "web").await, None, "the old container has ended");
    set_image(api, ns, "web", "main", "app:v3").await;
    let after = pod_until(api, ns, "web", "healed", |pod| {
        is_ready(pod) && incarnation(pod, "main").0 == 1
    })
    .await;
    assert_same_pod(&before, &after);
    assert_eq!(version(api, ns, "web").await.as_deref(), Some("v3"));
}

async fn a_gate_takes_the_pod_out_of_service(api: &Api, ns: &str) {
    api.create(&format!("/api/v1/namespaces/{ns}/services"), &service("web"))
        .await;
    let gated = |pod: &mut Value| {
        pod["spec"]["readinessGates"] = json!([{"conditionType": GATE}]);
    };
    let closed = run(api, ns, gated).await;
    assert!(!is_ready(&closed));
    assert_eq!(condition(&closed, "Ready")["reason"], "ReadinessGatesNotReady");
    let serves = |expected: bool| move |slices: &_| serving(slices).get("web") == Some(&expected);
    api.until(&slices(ns, "web"), SOON, "not in service", serves(false))
        .await;
    set_condition(api, ns, "web", GATE, "True").await;
    pod_until(api, ns, "web", "ready", is_ready).await;
    api.until(&slices(ns, "web"), SOON, "in service", serves(true)).await;
    set_condition(api, ns, "web", GATE, "False").await;
    api.until(&slices(ns, "web"), SOON, "out of service", serves(false))
        .await;
    let closed = pod_until(api, ns, "web", "not ready", |pod| !is_ready(pod)).await;
    assert_eq!(
        condition(&closed, "ContainersReady")["status"],
        "True",
        "its container runs on"
    );
    assert_eq!(incarnation(&closed, "main").0, 0);
    assert_eq!(version(api, ns, "web").await.as_deref(), Some("v1"));
}

/// Resources for a pod that may be resized, with a limit on cpu that its cgroup shows.
fn resources(cpu: &str, memory: &str) -> Value {
    json!({"requests": {"cpu": "50m", "memory": "32Mi"}, "limits": {"cpu": cpu, "memory": memory}})
}

async fn cpu_is_resized_without_a_restart(api: &Api, ns: &str) {
    let before = run(api, ns, |pod| {
        pod["spec"]["containers"][0]["resources"] = resources("100m", "64Mi");
    })
    .await;
    let id = incarnation(&before, "main").1;
    assert_eq!(cpu_quota(&id), Some(10), "percent of a processor");
    resize(api, ns, "web", "main", &json!({"limits": {"cpu": "200m"}})).await;
    let resized = |pod: &Value| text(container(pod, "main"), "/resources/limits/cpu") == "200m";
    let after = pod_until(api, ns, "web", "resized", resized).await;
    assert_same_pod(&before, &after);
    assert_eq!(incarnation(&after, "main"), (0, id.clone()), "nothing restarted");
    assert_eq!(cpu_quota(&id), Some(20), "percent of a processor");
    assert!(is_ready(&after));
}

async fn memory_is_resized_by_a_restart_where_the_policy_says_so(api: &Api, ns: &str) {
    let before = run(api, ns, |pod| {
        pod["spec"]["containers"][0]["resources"] = resources("100m", "64Mi");
        pod["spec"]["containers"][0]["resizePolicy"] =
            json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    })
    .await;
    resize(api, ns, "web", "main", &json!({"limits": {"memory": "96Mi"}})).await;
    let resized = |pod: &Value| {
        text(container(pod, "main"), "/resources/limits/memory") == "96Mi"
            && incarnation(pod, "main").0 == 1
            && is_ready(pod)
    };
    let after = pod_until(api, ns, "web", "resized by a restart", resized).await;
    assert_same_pod(&before, &after);
    assert_eq!(
        container(&after, "main")["imageID"],
        container(&before, "main")["imageID"]
    );
}

async fn a_resize_beyond_the_node_is_refused(api: &Api, ns: &str) {
    let requests = json!({"requests": {"cpu": "50m"}});
    run(api, ns, |pod| {
        pod["spec"]["containers"][0]["resources"] = requests;
    })
    .await;
    let body = json!({"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1000"}}}]}});
    let path = format!("{}/web/resize", pods(ns));
    let content = Some(("application/strategic-merge-patch+json", &body));
    // The API server knows the node: nothing is left to the kubelet to call infeasible.
    match api.send(http::Method::PATCH, &path, content).await {
        Err(kube::Error::Api(status)) => {
            assert_eq!(status.code, 403);
            assert!(status.message.contains("enough allocatable"), "{}", status.message);
        }
        other => panic!("PATCH {path}: {other:?}"),
    }
}

async fn a_resize_without_room_is_deferred(api: &Api, ns: &str) {
    let requests = || json!({"requests": {"cpu": "50m"}});
    let mut other = pod("other", "app:v1");
    other["spec"]["containers"][0]["resources"] = requests();
    api.create(&pods(ns), &other).await;
    let before = run(api, ns, |pod| {
        pod["spec"]["containers"][0]["resources"] = requests();
    })
    .await;
    // All of the node for this pod: it could have it if there were no other.
    let node = api.read("/api/v1/nodes/real-0").await;
    let all = &node["status"]["allocatable"]["cpu"];
    resize(api, ns, "web", "main", &json!({"requests": {"cpu": all}})).await;
    let told = |pod: &Value| condition(pod, "PodResizePending")["reason"] == "Deferred";
    let during = pod_until(api, ns, "web", "deferred", told).await;
    assert_eq!(
        container(&during, "main")["resources"],
        container(&before, "main")["resources"]
    );
    assert_eq!(incarnation(&during, "main"), incarnation(&before, "main"));
    assert!(is_ready(&during), "it runs on");
    resize(api, ns, "web", "main", &requests()).await;
    let settled = |pod: &Value| condition(pod, "PodResizePending").is_null();
    pod_until(api, ns, "web", "no longer deferred", settled).await;
}

/// The limit on cpu that the kernel holds a container to, in percent of one processor, from its cgroup.
fn cpu_quota(container_id: &str) -> Option<u64> {
    let id = container_id.strip_prefix("containerd://")?;
    // With one hierarchy the nodes lie in the first, otherwise in that of the controller.
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"].into_iter();
    let node = |root: &str| fs::read_dir(root).into_iter().flatten().flatten();
    let mut nodes = roots.flat_map(node).map(|entry| entry.path()).filter(|path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("flotilla-node-"))
    });
    nodes.find_map(|node| quota_below(&node, id))
}

fn quota_below(directory: &Path, id: &str) -> Option<u64> {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    if directory.file_name()?.to_string_lossy() == id {
        if let Ok(both) = fs::read_to_string(directory.join("cpu.max")) {
            let (quota, period) = both.split_once(' ')?;
            return Some(number(quota)? * 100 / number(period)?);
        }
        let read = |name: &str| number(&fs::read_to_string(directory.join(name)).ok()?);
        return Some(read("cpu.cfs_quota_us")? * 100 / read("cpu.cfs_period_us")?);
    }
    let mut below = fs::read_dir(directory)
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir());
    below.find_map(|path| quota_below(&path, id))
}
