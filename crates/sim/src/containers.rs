//! What a kubelet does to containers, and what it says of them in a pod's status: functions of the pod as it stands.

use flotilla_model::template::{parse_bytes, parse_millis};
use serde_json::{Map, Value, json};

/// What an annotation `sim.flotilla.rs/NAME` of a pod asks for.
pub fn wish<'v>(pod: &'v Value, name: &str) -> Option<&'v str> {
    pod["metadata"]["annotations"][format!("sim.flotilla.rs/{name}")].as_str()
}

/// The items of a list, none if it is absent.
pub fn each(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// What is known of a container; null if nothing is.
pub fn status_of<'v>(status: &'v Value, name: &Value) -> &'v Value {
    each(&status["containerStatuses"])
        .find(|c| c["name"] == *name)
        .unwrap_or(&Value::Null)
}

/// Puts in what is known of a container now, in its place in the list.
pub fn put_status(status: &mut Value, container: Value) {
    match status["containerStatuses"].as_array_mut() {
        Some(list) => match list.iter_mut().find(|c| c["name"] == container["name"]) {
            Some(place) => *place = container,
            None => list.push(container),
        },
        None => status["containerStatuses"] = json!([container]),
    }
}

/// A container that has just been started.
pub fn started(pod: &Value, container: &Value, known: &Value, wall: &Value) -> Value {
    let (name, image) = (&container["name"], container["image"].as_str().unwrap_or_default());
    let restarts = match known["containerID"].as_str() {
        Some(_) => known["restartCount"].as_i64().unwrap_or(0) + 1,
        None => 0,
    };
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
    // What its node does not give it has not got by a restart either.
    let given = if known["resources"].is_object() && refusal_of(pod, container).is_some() {
        known["resources"].clone()
    } else {
        resources(container)
    };
    let mut status = json!({
        "name": name, "image": image, "imageID": image_id(image), "ready": false, "started": true, "restartCount": restarts,
        "containerID": format!("sim://{uid}/{}/{restarts}", name.as_str().unwrap_or_default()),
        "state": {"running": {"startedAt": wall}}, "resources": given,
    });
    if known["state"]["running"].is_object() {
        let ended =
            json!({"exitCode": 0, "reason": "Completed", "finishedAt": wall, "containerID": known["containerID"]});
        status["lastState"] = json!({"terminated": ended});
    } else if known["lastState"].is_object() {
        status["lastState"] = known["lastState"].clone();
    }
    status
}

/// A container that does not run. What it was before is still told, as a kubelet does.
pub fn waiting(container: &Value, known: &Value, reason: &str, message: &str) -> Value {
    let mut status = if known.is_object() {
        known.clone()
    } else {
        json!({"name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0})
    };
    status["state"] = json!({"waiting": {"reason": reason, "message": message}});
    status["ready"] = json!(false);
    status["started"] = json!(false);
    status
}

/// The ID of an image: that of the same image without the suffix `-same` of its tag, which stands for a new tag of old content.
pub fn image_id(image: &str) -> String {
    format!("sim.local/{}", image.strip_suffix("-same").unwrap_or(image))
}

/// Whether two references name the same image, however much of them is left to defaults.
fn is_same_image(a: &str, b: &str) -> bool {
    let full = |image: &str| {
        let image = image.strip_prefix("docker.io/").unwrap_or(image);
        let image = image.strip_prefix("library/").unwrap_or(image);
        let name = image.rsplit('/').next().unwrap_or_default();
        if name.contains([':', '@']) {
            image.to_owned()
        } else {
            format!("{image}:latest")
        }
    };
    full(a) == full(b)
}

/// Whether a container is to be started anew: its image is another, or it does not run.
pub fn needs_start(container: &Value, known: &Value) -> bool {
    let image = |of: &Value| of["image"].as_str().unwrap_or_default().to_owned();
    known["state"]["waiting"].is_object() || !is_same_image(&image(container), &image(known))
}

/// A container's resources as a kubelet reports them.
fn resources(container: &Value) -> Value {
    match &container["resources"] {
        Value::Object(resources) => Value::Object(resources.clone()),
        _ => json!({}),
    }
}

/// Resources of a running container that are not what the spec asks for; with whether such a change restarts it. `None` if all are.
pub fn resized(container: &Value, known: &Value) -> Option<bool> {
    if !known["state"]["running"].is_object() || !known["resources"].is_object() {
        return None;
    }
    let changed: Vec<&str> = ["cpu", "memory"]
        .into_iter()
        .filter(|name| {
            ["requests", "limits"].iter().any(|kind| {
                let amount = |of: &Value| amount(name, &of["resources"][kind][name]);
                amount(container) != amount(known)
            })
        })
        .collect();
    let restarts = |name: &&str| {
        each(&container["resizePolicy"])
            .any(|p| p["resourceName"] == **name && p["restartPolicy"] == "RestartContainer")
    };
    (!changed.is_empty()).then(|| changed.iter().any(restarts))
}

fn amount(name: &str, quantity: &Value) -> Option<u64> {
    let text = quantity.as_str()?;
    if name == "cpu" {
        parse_millis(text)
    } else {
        parse_bytes(text)
    }
}

/// A running container after its resources were changed without a restart.
pub fn with_resources(container: &Value, known: &Value) -> Value {
    let mut status = known.clone();
    status["resources"] = resources(container);
    status
}

/// Containers that wait for a key of a config map, with the complaint. `has_key` says whether a config map has a key.
pub fn missing_key(container: &Value, has_key: &dyn Fn(&str, &str) -> bool) -> Option<String> {
    each(&container["env"]).find_map(|entry| {
        let reference = &entry["valueFrom"]["configMapKeyRef"];
        let (map, key) = (reference["name"].as_str()?, reference["key"].as_str()?);
        let is_missing = reference["optional"] != true && !has_key(map, key);
        is_missing.then(|| format!("couldn't find key {key} in ConfigMap {map}"))
    })
}

/// Sets a condition; its time changes only with its status.
pub fn set_condition(status: &mut Value, kind: &str, is_true: bool, wall: &Value, reason: Option<(&str, &str)>) {
    let text = if is_true { "True" } else { "False" };
    let known = each(&status["conditions"]).find(|c| c["type"] == kind && c["status"] == text);
    let since = known.map_or(wall, |c| &c["lastTransitionTime"]).clone();
    let mut condition = json!({"type": kind, "status": text, "lastProbeTime": null, "lastTransitionTime": since});
    if let Some((reason, message)) = reason {
        condition["reason"] = json!(reason);
        if !message.is_empty() {
            condition["message"] = json!(message);
        }
    }
    put_condition(status, condition);
}

/// Puts in a condition in its place, or at the end.
pub fn put_condition(status: &mut Value, condition: Value) {
    match status["conditions"].as_array_mut() {
        Some(list) => match list.iter_mut().find(|c| c["type"] == condition["type"]) {
            Some(place) => *place = condition,
            None => list.push(condition),
        },
        None => status["conditions"] = json!([condition]),
    }
}

/// Takes a condition away.
pub fn drop_condition(status: &mut Value, kind: &str) {
    if let Some(list) = status["conditions"].as_array_mut() {
        list.retain(|c| c["type"] != kind);
    }
}

/// Whether all readiness gates of a pod are True.
pub fn has_open_gates(pod: &Value, status: &Value) -> bool {
    each(&pod["spec"]["readinessGates"])
        .all(|gate| each(&status["conditions"]).any(|c| c["type"] == gate["conditionType"] && c["status"] == "True"))
}

/// Conditions ContainersReady and Ready, as the containers and the gates are.
pub fn set_readiness(pod: &Value, status: &mut Value, wall: &Value) {
    let is_ready = each(&pod["spec"]["containers"]).all(|c| status_of(status, &c["name"])["ready"] == true);
    let reason = (!is_ready).then_some(("ContainersNotReady", ""));
    set_condition(status, "ContainersReady", is_ready, wall, reason);
    let has_open_gates = has_open_gates(pod, status);
    let reason = match (is_ready, has_open_gates) {
        (true, true) => None,
        (true, false) => Some(("ReadinessGatesNotReady", "")),
        (false, _) => Some(("ContainersNotReady", "")),
    };
    set_condition(status, "Ready", is_ready && has_open_gates, wall, reason);
}

/// Why other resources are not given to a container: the annotation `sim.flotilla.rs/resize` says `deferred` or `infeasible`, for all of
/// them, or for those that it names after that.
fn refusal_of(pod: &Value, container: &Value) -> Option<(&'static str, &'static str)> {
    let mut words = wish(pod, "resize")?.split_whitespace();
    let refusal = match words.next()? {
        "deferred" => ("Deferred", "Node didn't have enough resource: cpu"),
        "infeasible" => ("Infeasible", "Node didn't have enough capacity: cpu"),
        _ => return None,
    };
    let named: Vec<&str> = words.collect();
    let is_named = named.iter().any(|name| container["name"] == *name);
    (named.is_empty() || is_named).then_some(refusal)
}

/// What has become of a change of resources: conditions, and whether any of it is to be carried out.
pub fn begin_resize(pod: &Value, status: &mut Value, wall: &Value) -> bool {
    let changed = || {
        let all = each(&pod["spec"]["containers"]);
        all.filter(|c| resized(c, status_of(status, &c["name"])).is_some())
    };
    let refusal = changed().find_map(|container| refusal_of(pod, container));
    let goes_on = changed().any(|container| refusal_of(pod, container).is_none());
    match refusal {
        Some(refusal) => set_condition(status, "PodResizePending", true, wall, Some(refusal)),
        None => drop_condition(status, "PodResizePending"),
    }
    if goes_on {
        set_condition(status, "PodResizeInProgress", true, wall, None);
    } else {
        drop_condition(status, "PodResizeInProgress");
    }
    goes_on
}

/// Carries a change of resources out. Says whether a container was restarted.
pub fn finish_resize(pod: &Value, status: &mut Value, wall: &Value) -> bool {
    let mut is_restarted = false;
    for container in each(&pod["spec"]["containers"]) {
        let known = status_of(status, &container["name"]).clone();
        let now = match resized(container, &known) {
            None => continue,
            Some(_) if refusal_of(pod, container).is_some() => continue,
            Some(true) => {
                is_restarted = true;
                started(pod, container, &known, wall)
            }
            Some(false) => with_resources(container, &known),
        };
        put_status(status, now);
    }
    drop_condition(status, "PodResizeInProgress");
    is_restarted
}

/// The annotation in which the node agent reports.
const RUNTIME_META: &str = "apps.kruise.io/runtime-containers-meta";

/// Whether somebody runs the node agent's part for this pod.
pub fn has_agent(pod: &Value) -> bool {
    wish(pod, "agent") == Some("true")
}

/// What the node agent reports of the containers of `status`: of those that it knows already, what it said when they were started.
pub fn agent_report(pod: &Value, status: &Value) -> String {
    let said = reported(pod);
    let containers: Vec<Value> = each(&pod["spec"]["containers"])
        .filter_map(|container| {
            let known = status_of(status, &container["name"]);
            let id = known["containerID"].as_str()?;
            let before = each(&said["containers"]).find(|c| c["containerID"] == id);
            let hashes = before.map_or_else(|| hashes(pod, container), |c| c["hashes"].clone());
            Some(json!({
                "name": container["name"], "containerID": id, "restartCount": known["restartCount"], "hashes": hashes,
            }))
        })
        .collect();
    json!({"containers": containers}).to_string()
}

fn reported(pod: &Value) -> Value {
    let text = pod["metadata"]["annotations"][RUNTIME_META].as_str();
    text.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

/// The patch of a pod that reports, if there is news.
pub fn agent_patch(pod: &Value, status: &Value) -> Option<Value> {
    let report = agent_report(pod, status);
    let is_news = has_agent(pod) && pod["metadata"]["annotations"][RUNTIME_META] != report;
    is_news.then(|| json!({"metadata": {"annotations": {RUNTIME_META: report}}}))
}

/// Whether the node agent restarts a container: the pod is held out of service for an update, and the container's environment is not
/// what the pod's metadata says.
pub fn agent_restarts(pod: &Value, container: &Value, known: &Value) -> bool {
    let is_held =
        each(&pod["status"]["conditions"]).any(|c| c["type"] == "InPlaceUpdateReady" && c["status"] == "False");
    let said = reported(pod);
    let entry = each(&said["containers"]).find(|c| c["containerID"] == known["containerID"]);
    let key = "extractedEnvFromMetadataHash";
    has_agent(pod) && is_held && entry.is_some_and(|e| e["hashes"][key] != hashes(pod, container)[key])
}

fn hashes(pod: &Value, container: &Value) -> Value {
    let identity = json!({"image": container["image"], "name": container["name"]});
    json!({"plainHash": hash(&identity), "extractedEnvFromMetadataHash": hash(&environment(pod, container))})
}

/// The entries of a container's environment that refer to metadata of its pod, as the kubelet would resolve them; null if none do.
fn environment(pod: &Value, container: &Value) -> Value {
    let mut entries: Vec<(String, String)> = each(&container["env"])
        .filter(|entry| !entry["value"].is_string())
        .filter_map(|entry| {
            let path = entry["valueFrom"]["fieldRef"]["fieldPath"].as_str()?;
            let (map, rest) = path.strip_prefix("metadata.")?.split_once("['")?;
            let value = pod["metadata"][map][rest.strip_suffix("']")?]
                .as_str()
                .unwrap_or_default();
            Some((entry["name"].as_str()?.to_owned(), value.to_owned()))
        })
        .collect();
    entries.sort();
    if entries.is_empty() {
        return Value::Null;
    }
    let entry = |(name, value): (String, String)| {
        let mut fields = Map::from_iter([("name".to_owned(), json!(name))]);
        if !value.is_empty() {
            fields.insert("value".to_owned(), json!(value));
        }
        Value::Object(fields)
    };
    entries.into_iter().map(entry).collect()
}

/// The kubelet's hash: FNV-1a of the text that Go prints for the bytes of the JSON document.
fn hash(document: &Value) -> u32 {
    let bytes: Vec<String> = document.to_string().bytes().map(|b| b.to_string()).collect();
    let text = format!("([]uint8)[{}]", bytes.join(" "));
    text.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sts_4_6_hashes_are_those_of_the_kubelet() {
        assert_eq!(
            hash(&json!({"image": "registry.local/web:2", "name": "main"})),
            3_868_682_977
        );
        assert_eq!(hash(&json!([{"name": "ROLE", "value": "leader"}])), 3_087_624_770);
        assert_eq!(hash(&Value::Null), 86_995_377);
    }

    #[test]
    fn images_are_compared_with_their_defaults() {
        assert!(is_same_image("docker.io/library/web:1", "web:1") && is_same_image("web", "web:latest"));
        assert!(!is_same_image("web:1", "web:2") && !is_same_image("r:5000/web", "web"));
        assert_eq!(image_id("web:2-same"), image_id("web:2"));
    }

    #[test]
    fn sts_4_6_the_environment_is_what_the_metadata_says() {
        let from = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
        let pod = json!({"metadata": {"labels": {"z": "1"}, "annotations": {"role": "leader"}}});
        let container = json!({"env": [
            from("Z", "metadata.labels['z']"), from("ROLE", "metadata.annotations['role']"),
            from("NAME", "metadata.name"), {"name": "PLAIN", "value": "x"}, from("GONE", "metadata.labels['gone']"),
        ]});
        let expected = json!([{"name": "GONE"}, {"name": "ROLE", "value": "leader"}, {"name": "Z", "value": "1"}]);
        assert_eq!(environment(&pod, &container), expected);
        assert_eq!(environment(&pod, &json!({})), Value::Null);
    }
}
