//! Pods on simulated nodes, changed while they run: what the kubelet does on a real node, the stages do here.

use flotilla_localcluster::Cluster;
use serde_json::{Deserializer, Value, json};
use std::io::Write;
use std::process::{Child, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// How long a wait may take before the test fails.
const SOON: Duration = Duration::from_secs(60);

/// One cluster for all cases, each with a pod of its own, and everything that a watch has seen of all pods, in order.
struct Lab {
    cluster: Cluster,
    watch: Child,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    pods: Mutex<Vec<Value>>,
    more: Condvar,
}

impl Lab {
    fn new(cluster: Cluster) -> Self {
        let mut watch = cluster
            .kubectl_command(&["get", "pods", "--watch", "-o", "json"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("kubectl runs");
        let seen = Arc::<Seen>::default();
        let (told, output) = (Arc::clone(&seen), watch.stdout.take().expect("a pipe"));
        std::thread::spawn(move || {
            // It ends with kubectl.
            for pod in Deserializer::from_reader(output).into_iter().map_while(Result::ok) {
                told.pods.lock().expect("nobody panics with it").push(pod);
                told.more.notify_all();
            }
        });
        Lab { cluster, watch, seen }
    }

    fn kubectl(&self, arguments: &[&str]) {
        let output = self.cluster.kubectl(arguments).expect("kubectl runs");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "kubectl {arguments:?}: {told}");
    }

    /// Makes a pod of two containers, `a` and `b`, and waits until it runs.
    fn pod(&self, name: &str, annotations: &Value, change: impl FnOnce(&mut Value)) -> (Pod<'_>, Value) {
        let container = |name: &str| json!({"name": name, "image": "app:v1", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}});
        let mut object = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"containers": [container("a"), container("b")]},
        });
        change(&mut object);
        let mut child = self
            .cluster
            .kubectl_command(&["create", "-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("kubectl runs");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(object.to_string().as_bytes()).expect("kubectl reads");
        drop(stdin);
        assert!(child.wait().expect("kubectl ends").success(), "{name} was not made");
        let mut pod = Pod {
            lab: self,
            name: name.to_owned(),
            next: 0,
        };
        let before = pod.until("running", |pod| pod["status"]["phase"] == "Running");
        (pod, before)
    }
}

/// A pod, with what a case has seen of it so far.
struct Pod<'l> {
    lab: &'l Lab,
    name: String,
    /// What the watch has seen from here on is news to the case.
    next: usize,
}

impl Pod<'_> {
    /// Waits until the pod is as `is` says, and returns it as it was then: no state in between is missed, however slow this test is.
    fn until(&mut self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let mut pods = self.lab.seen.pods.lock().expect("nobody panics with it");
        loop {
            while self.next < pods.len() {
                let pod = &pods[self.next];
                self.next += 1;
                if pod["metadata"]["name"] == *self.name && is(pod) {
                    return pod.clone();
                }
            }
            let (more, waited) = self
                .lab
                .seen
                .more
                .wait_timeout(pods, SOON)
                .expect("nobody panics with it");
            pods = more;
            let last = pods.iter().rfind(|pod| pod["metadata"]["name"] == *self.name);
            let last = last.map(|pod| pod["status"].to_string());
            // Dropped first: the other cases go on.
            if waited.timed_out() {
                drop(pods);
                panic!("{}: not within {SOON:?}: {what}; there was: {last:?}", self.name);
            }
        }
    }

    fn until_condition(&mut self, kind: &str, status: &str) -> Value {
        self.until(&format!("{kind} {status}"), |pod| {
            condition(pod, kind)["status"] == *status
        })
    }

    fn until_ready(&mut self, status: &str) -> Value {
        self.until_condition("Ready", status)
    }

    fn until_restarted(&mut self, container: usize, count: i64) -> Value {
        self.until(&format!("{count} restarts"), |pod| {
            status(pod, container)["restartCount"] == count
        })
    }

    fn until_waiting(&mut self, reason: &str) -> Value {
        self.until(reason, |pod| status(pod, 0)["state"]["waiting"]["reason"] == *reason)
    }

    fn until_requests(&mut self, container: usize, resource: &str, quantity: &str) -> Value {
        let pointer = format!("/resources/requests/{resource}");
        self.until(&format!("{resource} {quantity}"), |pod| {
            status(pod, container)
                .pointer(&pointer)
                .is_some_and(|found| *found == *quantity)
        })
    }

    fn patch(&self, subresource: Option<&str>, patch: &Value) {
        let (name, patch) = (format!("pod/{}", self.name), format!("--patch={patch}"));
        let mut arguments = vec!["patch", &name, &patch];
        let subresource = subresource.map(|s| format!("--subresource={s}"));
        arguments.extend(subresource.as_deref());
        self.lab.kubectl(&arguments);
    }

    /// Puts an annotation on it; `None` takes it away.
    fn shape(&self, key: &str, value: Option<&str>) {
        let key = format!("sim.flotilla.rs/{key}");
        self.patch(None, &json!({"metadata": {"annotations": {key: value}}}));
    }

    fn set_image(&self, container: &str, image: &str) {
        self.patch(
            None,
            &json!({"spec": {"containers": [{"name": container, "image": image}]}}),
        );
    }

    fn resize(&self, container: &str, resources: &Value) {
        let patch = json!({"spec": {"containers": [{"name": container, "resources": resources}]}});
        self.patch(Some("resize"), &patch);
    }
}

/// The status of a container by its place; null while there is none.
fn status(pod: &Value, container: usize) -> &Value {
    &pod["status"]["containerStatuses"][container]
}

/// The status of a container.
fn container<'p>(pod: &'p Value, name: &str) -> &'p Value {
    let statuses = pod["status"]["containerStatuses"].as_array().expect("statuses");
    assert_eq!(statuses.len(), 2, "every stage writes both: {statuses:?}");
    statuses.iter().find(|s| s["name"] == name).expect("of this container")
}

/// A condition; null while there is none.
fn condition<'p>(pod: &'p Value, kind: &str) -> &'p Value {
    let conditions = pod["status"]["conditions"].as_array();
    conditions
        .and_then(|all| all.iter().find(|c| c["type"] == kind))
        .unwrap_or(&Value::Null)
}

/// The kubelet has seen the spec.
fn is_observed(pod: &Value) -> bool {
    pod["metadata"]["generation"].is_i64() && pod["metadata"]["generation"] == pod["status"]["observedGeneration"]
}

fn an_image_change_restarts_that_container(lab: &Lab) {
    let (mut pod, before) = lab.pod("image", &json!({"sim.flotilla.rs/restart": "2s"}), |_| ());
    assert!(is_observed(&before), "{before}");
    pod.set_image("a", "app:v2");
    let during = pod.until_restarted(0, 1);
    let (old, new) = (container(&before, "a"), container(&during, "a"));
    assert_eq!(new["image"], "app:v2");
    assert_ne!(new["imageID"], old["imageID"]);
    assert_ne!(new["containerID"], old["containerID"]);
    assert_eq!(new["ready"], false);
    assert_eq!(new["lastState"]["terminated"]["containerID"], old["containerID"]);
    assert_eq!(container(&during, "b"), container(&before, "b"), "the other one stays");
    for kind in ["ContainersReady", "Ready"] {
        assert_eq!(condition(&during, kind)["status"], "False", "{kind}");
        assert_eq!(condition(&during, kind)["reason"], "ContainersNotReady", "{kind}");
    }
    assert!(is_observed(&during), "{during}");
    let after = pod.until_ready("True");
    assert_eq!(condition(&after, "ContainersReady")["status"], "True");
    assert_eq!(
        container(&after, "a")["state"],
        new["state"],
        "it became ready without another restart"
    );
    assert_eq!(container(&after, "b"), container(&before, "b"), "the other one stays");
    for same in ["/metadata/uid", "/status/podIP", "/spec/nodeName", "/status/startTime"] {
        assert_eq!(after.pointer(same), before.pointer(same), "{same}");
    }
}

fn another_tag_of_the_same_digest_restarts_and_keeps_the_image_id(lab: &Lab) {
    let (mut pod, before) = lab.pod("same", &json!({}), |_| ());
    pod.set_image("a", "app:v1-same");
    let after = pod.until_restarted(0, 1);
    let (old, new) = (container(&before, "a"), container(&after, "a"));
    assert_eq!(new["imageID"], old["imageID"]);
    assert_eq!(new["image"], "app:v1", "a runtime shows the first name of an image");
    assert_ne!(new["containerID"], old["containerID"]);
    // A change that concerns no image restarts nothing.
    pod.resize("a", &json!({"requests": {"cpu": "200m"}}));
    let resized = pod.until_requests(0, "cpu", "200m");
    assert_eq!(container(&resized, "a")["containerID"], new["containerID"]);
}

fn ready_follows_the_gates_both_ways(lab: &Lab) {
    let gate = "example.com/gate";
    let set = |pod: &Pod, status: &str| {
        pod.patch(
            Some("status"),
            &json!({"status": {"conditions": [{"type": gate, "status": status}]}}),
        );
    };
    let (mut pod, before) = lab.pod("gates", &json!({}), |pod| {
        pod["spec"]["readinessGates"] = json!([{"conditionType": gate}]);
    });
    assert_eq!(condition(&before, "ContainersReady")["status"], "True");
    assert_eq!(condition(&before, "Ready")["status"], "False");
    assert_eq!(condition(&before, "Ready")["reason"], "ReadinessGatesNotReady");
    set(&pod, "True");
    pod.until_ready("True");
    set(&pod, "False");
    let closed = pod.until_ready("False");
    assert_eq!(condition(&closed, "Ready")["reason"], "ReadinessGatesNotReady");
    assert_eq!(condition(&closed, "ContainersReady")["status"], "True");
    // A restart while the gate is closed leaves the pod not ready, for the other reason.
    pod.set_image("a", "app:v2");
    pod.until_condition("ContainersReady", "False");
    let restarted = pod.until_condition("ContainersReady", "True");
    assert_eq!(condition(&restarted, "Ready")["reason"], "ReadinessGatesNotReady");
    set(&pod, "True");
    pod.until_ready("True");
}

fn a_resize_is_taken_up_without_a_restart(lab: &Lab) {
    let (mut pod, before) = lab.pod("resize", &json!({}), |_| ());
    assert_eq!(container(&before, "a")["resources"]["requests"]["cpu"], "100m");
    pod.resize("a", &json!({"requests": {"cpu": "300m"}}));
    let after = pod.until_requests(0, "cpu", "300m");
    assert_eq!(container(&after, "a")["allocatedResources"]["cpu"], "300m");
    assert_eq!(
        container(&after, "a")["containerID"],
        container(&before, "a")["containerID"]
    );
    assert_eq!(container(&after, "b"), container(&before, "b"));
    assert_eq!(
        condition(&after, "Ready"),
        condition(&before, "Ready"),
        "it stayed ready"
    );
    assert_eq!(condition(&after, "PodResizeInProgress"), &Value::Null);
    assert!(is_observed(&after), "{after}");
}

fn a_resize_restarts_the_container_whose_policy_says_so(lab: &Lab) {
    let policy = json!([
        {"resourceName": "cpu", "restartPolicy": "NotRequired"}, {"resourceName": "memory", "restartPolicy": "RestartContainer"},
    ]);
    let (mut pod, before) = lab.pod("policy", &json!({"sim.flotilla.rs/restart": "2s"}), |pod| {
        pod["spec"]["containers"][0]["resizePolicy"] = policy;
    });
    pod.resize("a", &json!({"requests": {"cpu": "200m"}}));
    let cheap = pod.until_requests(0, "cpu", "200m");
    assert_eq!(container(&cheap, "a")["restartCount"], 0, "cpu asks for none");
    pod.resize("a", &json!({"requests": {"memory": "128Mi"}}));
    let during = pod.until_restarted(0, 1);
    let new = container(&during, "a");
    assert_eq!(new["resources"]["requests"]["memory"], "128Mi");
    assert_ne!(new["containerID"], container(&before, "a")["containerID"]);
    assert_eq!(new["imageID"], container(&before, "a")["imageID"]);
    assert_eq!(condition(&during, "Ready")["status"], "False");
    pod.until_ready("True");
}

fn a_resize_can_be_held(lab: &Lab) {
    for (name, reason) in [("deferred", "Deferred"), ("infeasible", "Infeasible")] {
        let (mut pod, _) = lab.pod(name, &json!({"sim.flotilla.rs/resize": name}), |_| ());
        pod.resize("b", &json!({"requests": {"cpu": "2"}}));
        let held = pod.until(reason, |pod| condition(pod, "PodResizePending")["reason"] == *reason);
        assert_eq!(condition(&held, "PodResizePending")["status"], "True");
        assert_eq!(container(&held, "b")["resources"]["requests"]["cpu"], "100m");
        assert!(is_observed(&held), "the kubelet has seen it: {held}");
        pod.shape("resize", None);
        let done = pod.until_requests(1, "cpu", "2");
        assert_eq!(condition(&done, "PodResizePending"), &Value::Null);
    }
}

fn an_image_that_cannot_be_pulled_ends_the_old_container(lab: &Lab) {
    let (mut pod, before) = lab.pod("broken", &json!({}), |_| ());
    pod.set_image("a", "app:broken");
    let during = pod.until_waiting("ImagePullBackOff");
    let (old, new) = (container(&before, "a"), container(&during, "a"));
    for same in ["image", "imageID", "containerID", "restartCount"] {
        assert_eq!(new[same], old[same], "{same} is still that of the old container");
    }
    assert_eq!(new["ready"], false);
    assert_eq!(new["lastState"]["terminated"]["containerID"], old["containerID"]);
    assert_eq!(container(&during, "b"), container(&before, "b"), "the other one stays");
    assert_eq!(condition(&during, "Ready")["status"], "False");
    assert!(is_observed(&during), "{during}");
    // The other container restarts and is ready again; this one waits, and the pod with it.
    pod.set_image("b", "app:v2");
    let other = pod.until_restarted(1, 1);
    assert_eq!(
        container(&other, "a")["state"]["waiting"]["reason"]
            .as_str()
            .map(|r| r.contains("Pull")),
        Some(true)
    );
    let other = pod.until("b is ready", |pod| status(pod, 1)["ready"] == true);
    assert_eq!(condition(&other, "ContainersReady")["status"], "False");
    // Back to what it was: the old container is gone, so it starts anew.
    pod.set_image("a", "app:v1");
    let healed = pod.until_ready("True");
    assert_eq!(container(&healed, "a")["restartCount"], 1);
    assert_ne!(container(&healed, "a")["containerID"], old["containerID"]);
    assert_eq!(container(&healed, "a")["imageID"], old["imageID"]);
}

fn a_crash_and_a_failing_probe_leave_what_they_do_not_concern(lab: &Lab) {
    let (mut pod, before) = lab.pod("shaped", &json!({}), |_| ());
    pod.shape("unready", Some("true"));
    pod.until_ready("False");
    pod.shape("unready", None);
    let again = pod.until_ready("True");
    assert_eq!(
        container(&again, "a"),
        container(&before, "a"),
        "a probe restarts nothing"
    );
    pod.shape("crash", Some("true"));
    let crashed = pod.until_waiting("CrashLoopBackOff");
    assert_eq!(container(&crashed, "b")["restartCount"], 1);
    assert_ne!(
        container(&crashed, "b")["containerID"],
        container(&before, "b")["containerID"]
    );
    pod.shape("crash", None);
    let healed = pod.until_ready("True");
    pod.resize("a", &json!({"requests": {"cpu": "200m"}}));
    let resized = pod.until_requests(0, "cpu", "200m");
    for name in ["a", "b"] {
        assert_eq!(
            container(&resized, name)["containerID"],
            container(&healed, name)["containerID"]
        );
    }
}

#[test]
fn simulated_pods_change_in_place_as_real_ones_do() {
    let cluster = Cluster::disposable("it-pods").nodes(1).start().expect("a cluster");
    let mut lab = Lab::new(cluster);
    let cases: [fn(&Lab); 8] = [
        an_image_change_restarts_that_container,
        another_tag_of_the_same_digest_restarts_and_keeps_the_image_id,
        ready_follows_the_gates_both_ways,
        a_resize_is_taken_up_without_a_restart,
        a_resize_restarts_the_container_whose_policy_says_so,
        a_resize_can_be_held,
        an_image_that_cannot_be_pulled_ends_the_old_container,
        a_crash_and_a_failing_probe_leave_what_they_do_not_concern,
    ];
    // They mostly wait.
    std::thread::scope(|scope| {
        for case in cases {
            let lab = &lab;
            scope.spawn(move || case(lab));
        }
    });
    lab.watch.kill().expect("kubectl can be ended");
    lab.watch.wait().expect("kubectl has ended");
    lab.cluster.down().expect("it goes");
}
