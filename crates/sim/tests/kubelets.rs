//! Kubelets of the simulated cluster: images and resources changed in place, gates of readiness, barriers, the node agent's part.

use flotilla_model::{ObjectKey, PatchKind, Resource, Subresource, Timestamp};
use flotilla_sim::Cluster;
use flotilla_sim::server::{Actor, StoreId};
use serde_json::{Value, json};
use std::time::Duration;

fn cluster() -> Cluster {
    let mut cluster = Cluster::new(7, Timestamp::from_seconds(1_000_000));
    cluster.nodes.broken_images.push("bad:".to_owned());
    cluster
}

fn key() -> ObjectKey {
    ObjectKey::new("ns", "web-0")
}

fn manifest() -> Value {
    let resources = json!({"requests": {"cpu": "100m", "memory": "64Mi"}});
    json!({
        "metadata": {"namespace": "ns", "name": "web-0", "annotations": {}},
        "spec": {
            "readinessGates": [{"conditionType": "InPlaceUpdateReady"}],
            "containers": [
                {"name": "main", "image": "app:1", "resources": resources,
                    "resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]},
                {"name": "side", "image": "log:1"},
            ],
        },
    })
}

fn pod(cluster: &Cluster) -> Value {
    cluster.server.get(Resource::Pods, &key()).expect("a pod").to_value()
}

fn wait(cluster: &mut Cluster, seconds: u64) {
    let until = cluster.now() + Duration::from_secs(seconds);
    cluster.advance(until);
}

fn create(cluster: &mut Cluster, resource: impl Into<StoreId>, value: Value) {
    cluster
        .server
        .create(Actor::User, resource, value)
        .expect("it is admitted");
    cluster.react();
    wait(cluster, 10);
}

fn patch(cluster: &mut Cluster, part: Option<Subresource>, body: &Value) {
    let (body, pods) = ((PatchKind::Strategic, body), Resource::Pods);
    let done = match part {
        None => cluster.server.patch(Actor::User, pods, &key(), body),
        Some(part) => cluster
            .server
            .patch_subresource(Actor::User, (pods.into(), &key()), part, body),
    };
    done.expect("it is taken");
    cluster.react();
}

fn set_gate(cluster: &mut Cluster, status: &str) {
    let gate = json!({"type": "InPlaceUpdateReady", "status": status});
    patch(
        cluster,
        Some(Subresource::Status),
        &json!({"status": {"conditions": [gate]}}),
    );
}

fn set_image(cluster: &mut Cluster, image: &str) {
    patch(
        cluster,
        None,
        &json!({"spec": {"containers": [{"name": "main", "image": image}]}}),
    );
}

fn condition<'p>(pod: &'p Value, kind: &str) -> &'p Value {
    let mut all = pod["status"]["conditions"].as_array().expect("conditions").iter();
    all.find(|c| c["type"] == kind).unwrap_or(&Value::Null)
}

fn is_true(cluster: &Cluster, kind: &str) -> bool {
    condition(&pod(cluster), kind)["status"] == "True"
}

fn main_status(cluster: &Cluster) -> Value {
    pod(cluster)["status"]["containerStatuses"][0].clone()
}

/// A pod that is ready.
fn ready_pod(cluster: &mut Cluster, manifest: Value) {
    create(cluster, Resource::Pods, manifest);
    set_gate(cluster, "True");
    wait(cluster, 2);
    assert!(is_true(cluster, "Ready"));
}

#[test]
fn a_pod_with_a_gate_is_ready_only_while_somebody_says_so() {
    let mut cluster = cluster();
    create(&mut cluster, Resource::Pods, manifest());
    assert!(is_true(&cluster, "ContainersReady") && !is_true(&cluster, "Ready"));
    assert_eq!(condition(&pod(&cluster), "Ready")["reason"], "ReadinessGatesNotReady");
    assert!(is_true(&cluster, "PodScheduled"), "other conditions are kept");
    for (gate, ready) in [("True", true), ("False", false), ("True", true)] {
        set_gate(&mut cluster, gate);
        wait(&mut cluster, 2);
        assert_eq!(is_true(&cluster, "Ready"), ready, "{gate}");
        assert!(is_true(&cluster, "ContainersReady"));
    }
}

#[test]
fn sts_4_6_a_changed_image_restarts_that_container_alone() {
    let mut cluster = cluster();
    ready_pod(&mut cluster, manifest());
    let before = pod(&cluster);
    cluster.take_changes();
    set_image(&mut cluster, "app:2");
    assert_eq!(pod(&cluster)["metadata"]["generation"], 2);
    wait(&mut cluster, 10);
    let after = pod(&cluster);
    assert_eq!(after["status"]["observedGeneration"], 2);
    let (old, new) = (&before["status"]["containerStatuses"][0], main_status(&cluster));
    assert_eq!((&new["restartCount"], &new["image"]), (&json!(1), &json!("app:2")));
    assert!(new["imageID"] != old["imageID"] && new["containerID"] != old["containerID"]);
    assert_eq!(
        after["status"]["containerStatuses"][1], before["status"]["containerStatuses"][1],
        "the other one runs on"
    );
    let readiness: Vec<bool> = cluster
        .take_changes()
        .iter()
        .filter_map(|entry| Some(condition(&entry.after.as_ref()?.to_value(), "Ready")["status"] == "True"))
        .collect();
    assert_eq!(
        readiness,
        [true, true, false, true],
        "seen, ended and begun, ready again"
    );

    // A new tag of the same content.
    set_image(&mut cluster, "app:2-same");
    wait(&mut cluster, 10);
    let same = main_status(&cluster);
    assert_eq!((&same["imageID"], &same["restartCount"]), (&new["imageID"], &json!(2)));
    assert_ne!(same["containerID"], new["containerID"]);
}

#[test]
fn an_image_that_cannot_be_pulled_leaves_a_dead_container_until_it_is_replaced() {
    let mut cluster = cluster();
    ready_pod(&mut cluster, manifest());
    let before = main_status(&cluster);
    set_image(&mut cluster, "bad:1");
    wait(&mut cluster, 10);
    let broken = main_status(&cluster);
    assert_eq!(broken["state"]["waiting"]["reason"], "ImagePullBackOff");
    for field in ["image", "imageID", "containerID", "restartCount"] {
        assert_eq!(broken[field], before[field], "{field} stays");
    }
    assert!(!is_true(&cluster, "Ready"));
    set_image(&mut cluster, "app:1");
    wait(&mut cluster, 10);
    assert!(is_true(&cluster, "Ready"));
    assert_eq!(main_status(&cluster)["restartCount"], 1);
}

fn resize(cluster: &mut Cluster, requests: &Value) {
    let body = json!({"spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]}});
    patch(cluster, Some(Subresource::Resize), &body);
}

#[test]
fn resources_change_without_a_restart_unless_the_policy_asks_for_one() {
    let mut cluster = cluster();
    ready_pod(&mut cluster, manifest());
    for (requests, restarts) in [(json!({"cpu": "200m"}), 0), (json!({"memory": "128Mi"}), 1)] {
        resize(&mut cluster, &requests);
        wait(&mut cluster, 10);
        let status = main_status(&cluster);
        assert_eq!(status["resources"], pod(&cluster)["spec"]["containers"][0]["resources"]);
        assert_eq!(status["restartCount"], restarts);
        assert!(is_true(&cluster, "Ready") && !is_true(&cluster, "PodResizeInProgress"));
    }
}

#[test]
fn a_resize_is_deferred_or_infeasible_on_demand() {
    let mut cluster = cluster();
    ready_pod(&mut cluster, manifest());
    let wish = |wish: Value| json!({"metadata": {"annotations": {"sim.flotilla.rs/resize": wish}}});
    for (asked, reason) in [("deferred", "Deferred"), ("infeasible", "Infeasible")] {
        patch(&mut cluster, None, &wish(json!(asked)));
        resize(&mut cluster, &json!({"cpu": "300m"}));
        wait(&mut cluster, 10);
        assert_eq!(condition(&pod(&cluster), "PodResizePending")["reason"], reason);
        assert_eq!(main_status(&cluster)["resources"]["requests"]["cpu"], "100m");
    }
    patch(&mut cluster, None, &wish(Value::Null));
    wait(&mut cluster, 10);
    assert_eq!(condition(&pod(&cluster), "PodResizePending"), &Value::Null);
    assert_eq!(main_status(&cluster)["resources"]["requests"]["cpu"], "300m");
}

#[test]
fn a_resize_of_one_container_is_refused_while_another_goes_through() {
    let mut cluster = cluster();
    ready_pod(&mut cluster, manifest());
    let names: Vec<String> = pod(&cluster)["spec"]["containers"]
        .as_array()
        .expect("containers")
        .iter()
        .map(|c| c["name"].as_str().expect("a name").to_owned())
        .collect();
    let wish = |wish: Value| json!({"metadata": {"annotations": {"sim.flotilla.rs/resize": wish}}});
    patch(&mut cluster, None, &wish(json!(format!("infeasible {}", names[1]))));
    resize(&mut cluster, &json!({"cpu": "300m"}));
    wait(&mut cluster, 10);
    assert_eq!(
        main_status(&cluster)["resources"]["requests"]["cpu"],
        "300m",
        "another container is refused"
    );
    assert_eq!(condition(&pod(&cluster), "PodResizePending"), &Value::Null);
    patch(&mut cluster, None, &wish(json!(format!("infeasible {}", names[0]))));
    resize(&mut cluster, &json!({"cpu": "400m"}));
    wait(&mut cluster, 10);
    assert_eq!(main_status(&cluster)["resources"]["requests"]["cpu"], "300m");
    assert_eq!(condition(&pod(&cluster), "PodResizePending")["reason"], "Infeasible");
    assert_eq!(condition(&pod(&cluster), "PodResizeInProgress"), &Value::Null);
}

#[test]
fn adm_3_2_a_container_waits_for_the_key_of_its_barrier() {
    let mut cluster = cluster();
    let mut manifest = manifest();
    let reference = json!({"name": "web-0-barrier", "key": "p_1"});
    manifest["spec"]["containers"][1]["env"] =
        json!([{"name": "KRUISE_CONTAINER_BARRIER", "valueFrom": {"configMapKeyRef": reference}}]);
    create(&mut cluster, Resource::Pods, manifest);
    let seen = pod(&cluster);
    assert_eq!(seen["status"]["phase"], "Pending");
    let statuses = &seen["status"]["containerStatuses"];
    assert_eq!(statuses[0]["ready"], true);
    assert_eq!(statuses[1]["state"]["waiting"]["reason"], "CreateContainerConfigError");
    let maps = cluster.server.types.store_of_kind("", "ConfigMap").expect("a kind");
    let map = json!({"metadata": {"namespace": "ns", "name": "web-0-barrier"}, "data": {"p_1": "true"}});
    create(&mut cluster, maps, map);
    let seen = pod(&cluster);
    assert_eq!(seen["status"]["phase"], "Running");
    assert!(is_true(&cluster, "ContainersReady"));
    assert_eq!(seen["status"]["containerStatuses"][0]["restartCount"], 0);
}

#[test]
fn sts_4_6_the_node_agent_restarts_a_container_whose_environment_is_old() {
    let mut cluster = cluster();
    let mut manifest = manifest();
    manifest["metadata"]["annotations"] = json!({"sim.flotilla.rs/agent": "true", "role": "follower"});
    let reference = json!({"fieldPath": "metadata.annotations['role']"});
    manifest["spec"]["containers"][0]["env"] = json!([{"name": "ROLE", "valueFrom": {"fieldRef": reference}}]);
    ready_pod(&mut cluster, manifest);
    let report = |cluster: &Cluster| -> Value {
        let text = pod(cluster)["metadata"]["annotations"]["apps.kruise.io/runtime-containers-meta"].clone();
        serde_json::from_str(text.as_str().expect("a report")).expect("JSON")
    };
    let before = report(&cluster);
    assert_eq!(
        before["containers"][0]["containerID"],
        main_status(&cluster)["containerID"]
    );
    let leader = json!({"metadata": {"annotations": {"role": "leader"}}});
    patch(&mut cluster, None, &leader);
    wait(&mut cluster, 10);
    assert_eq!(main_status(&cluster)["restartCount"], 0, "the pod is in service");
    set_gate(&mut cluster, "False");
    wait(&mut cluster, 10);
    let after = report(&cluster);
    assert_eq!(main_status(&cluster)["restartCount"], 1);
    let hash = |report: &Value| report["containers"][0]["hashes"]["extractedEnvFromMetadataHash"].clone();
    assert_ne!(hash(&before), hash(&after));
    assert_eq!(
        before["containers"][1], after["containers"][1],
        "the other one has no such environment"
    );
}
