//! Cells of the built-in kinds, pods aside.

use super::age::{age, of_object};
use super::pod;
use jiff::Timestamp;
use serde_json::{Value, json};

type Cells = fn(&Value, Timestamp) -> Vec<Value>;

/// How the cells of a kind are made; `None` if it has no columns of its own.
pub(super) fn of(group: &str, kind: &str) -> Option<Cells> {
    let cells: Cells = match (group, kind) {
        ("", "Pod") => pod::cells,
        ("", "Node") => node,
        ("", "Namespace") => |o, now| vec![name(o), text(&o["status"]["phase"]), of_object(o, now)],
        ("" | "events.k8s.io", "Event") => event,
        ("", "Service") => service,
        ("", "ConfigMap") => |o, now| {
            vec![
                name(o),
                json!(size(&o["data"]) + size(&o["binaryData"])),
                of_object(o, now),
            ]
        },
        ("", "Secret") => |o, now| vec![name(o), text(&o["type"]), json!(size(&o["data"])), of_object(o, now)],
        ("", "ServiceAccount") => |o, now| vec![name(o), of_object(o, now)],
        ("", "PersistentVolume") => volume,
        ("", "PersistentVolumeClaim") => claim,
        ("storage.k8s.io", "StorageClass") => storage_class,
        ("apps", "StatefulSet") => stateful_set,
        ("apps", "ControllerRevision") => revision,
        ("coordination.k8s.io", "Lease") => {
            |o, now| vec![name(o), text(&o["spec"]["holderIdentity"]), of_object(o, now)]
        }
        ("policy", "PodDisruptionBudget") => budget,
        ("scheduling.k8s.io", "PriorityClass") => priority_class,
        _ => return None,
    };
    Some(cells)
}

/// Cells of kinds that have no columns of their own.
pub(super) fn name_and_creation(object: &Value, _: Timestamp) -> Vec<Value> {
    vec![name(object), text(&object["metadata"]["creationTimestamp"])]
}

pub(super) fn name(object: &Value) -> Value {
    text(&object["metadata"]["name"])
}

/// A text; an absent one is empty.
fn text(value: &Value) -> Value {
    json!(value.as_str().unwrap_or_default())
}

/// A text, or `<none>` and the like where there is none.
pub(super) fn text_or(value: &Value, none: &str) -> Value {
    json!(value.as_str().filter(|t| !t.is_empty()).unwrap_or(none))
}

fn size(value: &Value) -> usize {
    value.as_object().map_or(0, serde_json::Map::len)
}

pub(super) fn list(value: &Value) -> impl DoubleEndedIterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn node(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let ready = list(&status["conditions"]).find(|c| c["type"] == "Ready");
    let mut states = vec![match ready {
        Some(condition) if condition["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }];
    if spec["unschedulable"] == true {
        states.push("SchedulingDisabled");
    }
    let info = &status["nodeInfo"];
    let mut kernel = info["kernelVersion"]
        .as_str()
        .filter(|k| !k.is_empty())
        .unwrap_or("<unknown>")
        .to_owned();
    if let Some(architecture) = info["architecture"].as_str().filter(|a| !a.is_empty()) {
        kernel = format!("{kernel} ({architecture})");
    }
    let address = |kind: &str| {
        let found = list(&status["addresses"]).find(|a| a["type"] == kind);
        json!(found.and_then(|a| a["address"].as_str()).unwrap_or("<none>"))
    };
    vec![
        name(object),
        json!(states.join(",")),
        roles(object),
        of_object(object, now),
        text(&info["kubeletVersion"]),
        address("InternalIP"),
        address("ExternalIP"),
        text_or(&info["osImage"], "<unknown>"),
        json!(kernel),
        text_or(&info["containerRuntimeVersion"], "<unknown>"),
    ]
}

fn roles(node: &Value) -> Value {
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    let mut roles: Vec<_> = labels
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() {
        json!("<none>")
    } else {
        json!(roles.join(","))
    }
}

/// Events of both groups; the newer one has other names for the same.
fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let of = |old: &str, new: &str| object.get(old).or_else(|| object.get(new)).unwrap_or(&Value::Null);
    let since = |time: &Value| time.as_str().map(|time| age(Some(time), now));
    let first = since(of("firstTimestamp", "deprecatedFirstTimestamp")).or_else(|| since(&object["eventTime"]));
    let first = first.unwrap_or_else(|| "<unknown>".to_owned());
    let mut last = since(of("lastTimestamp", "deprecatedLastTimestamp")).unwrap_or_else(|| first.clone());
    let mut count = of("count", "deprecatedCount").as_i64().unwrap_or_default();
    if let Some(series) = object.get("series").filter(|s| s.is_object()) {
        last = age(series["lastObservedTime"].as_str(), now);
        count = series["count"].as_i64().unwrap_or_default();
    } else if count == 0 {
        count = 1;
    }
    let regarding = of("involvedObject", "regarding");
    let mut target = regarding["kind"].as_str().unwrap_or_default().to_lowercase();
    if let Some(name) = regarding["name"].as_str().filter(|n| !n.is_empty()) {
        target = format!("{target}/{name}");
    }
    let source = of("source", "deprecatedSource");
    let first_text = |values: [&Value; 2]| {
        values
            .into_iter()
            .filter_map(Value::as_str)
            .find(|t| !t.is_empty())
            .unwrap_or_default()
            .to_owned()
    };
    let component = first_text([&source["component"], of("reportingComponent", "reportingController")]);
    let instance = first_text([&source["host"], &object["reportingInstance"]]);
    let source = if instance.is_empty() {
        component
    } else {
        format!("{component}, {instance}")
    };
    vec![
        json!(last),
        text(&object["type"]),
        text(&object["reason"]),
        json!(target),
        text(&regarding["fieldPath"]),
        json!(source),
        json!(of("message", "note").as_str().unwrap_or_default().trim()),
        json!(first),
        json!(count),
        name(object),
    ]
}

fn service(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    let ports: Vec<_> = list(&spec["ports"]).map(port).collect();
    let ports = if ports.is_empty() {
        "<none>".to_owned()
    } else {
        ports.join(",")
    };
    let selector = spec["selector"].as_object().into_iter().flatten();
    let selector: Vec<_> = selector
        .map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default()))
        .collect();
    vec![
        name(object),
        text(&spec["type"]),
        text_or(&spec["clusterIPs"][0], "<none>"),
        json!(external_address(object)),
        json!(ports),
        of_object(object, now),
        if selector.is_empty() {
            json!("<none>")
        } else {
            json!(selector.join(","))
        },
    ]
}

fn port(port: &Value) -> String {
    let (number, protocol) = (
        port["port"].as_i64().unwrap_or_default(),
        port["protocol"].as_str().unwrap_or_default(),
    );
    match port["nodePort"].as_i64().filter(|p| *p > 0) {
        Some(node_port) => format!("{number}:{node_port}/{protocol}"),
        None => format!("{number}/{protocol}"),
    }
}

fn external_address(service: &Value) -> String {
    let spec = &service["spec"];
    let external: Vec<_> = list(&spec["externalIPs"]).filter_map(Value::as_str).collect();
    match spec["type"].as_str() {
        Some("ClusterIP" | "NodePort") if external.is_empty() => "<none>".to_owned(),
        Some("ClusterIP" | "NodePort") => external.join(","),
        Some("LoadBalancer") => {
            let ingress = list(&service["status"]["loadBalancer"]["ingress"]);
            let mut all: Vec<_> = ingress
                .filter_map(|i| i["ip"].as_str().or(i["hostname"].as_str()))
                .collect();
            all.sort_unstable();
            all.dedup();
            all.extend(external);
            if all.is_empty() {
                "<pending>".to_owned()
            } else {
                all.join(",")
            }
        }
        Some("ExternalName") => spec["externalName"].as_str().unwrap_or_default().to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

fn access_modes(modes: &Value) -> Value {
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let found = short
        .iter()
        .filter(|(mode, _)| list(modes).any(|m| m == mode))
        .map(|(_, short)| *short);
    json!(found.collect::<Vec<_>>().join(","))
}

/// The storage class of a volume or claim; an old annotation comes first.
fn class(object: &Value) -> Value {
    let annotation = &object["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
    text(if annotation.is_string() {
        annotation
    } else {
        &object["spec"]["storageClassName"]
    })
}

fn phase(object: &Value) -> Value {
    if object["metadata"]["deletionTimestamp"].is_string() {
        json!("Terminating")
    } else {
        text(&object["status"]["phase"])
    }
}

fn volume(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    let claim = match &spec["claimRef"] {
        Value::Object(claim) => {
            let of = |field: &str| claim.get(field).and_then(Value::as_str).unwrap_or_default();
            format!("{}/{}", of("namespace"), of("name"))
        }
        _ => String::new(),
    };
    vec![
        name(object),
        text_or(&spec["capacity"]["storage"], "0"),
        access_modes(&spec["accessModes"]),
        text(&spec["persistentVolumeReclaimPolicy"]),
        phase(object),
        json!(claim),
        class(object),
        text_or(&spec["volumeAttributesClassName"], "<unset>"),
        text(&object["status"]["reason"]),
        of_object(object, now),
        text_or(&spec["volumeMode"], "<unset>"),
    ]
}

fn claim(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let is_bound = spec["volumeName"].as_str().is_some_and(|v| !v.is_empty());
    let (capacity, modes) = if is_bound {
        (
            text_or(&status["capacity"]["storage"], "0"),
            access_modes(&status["accessModes"]),
        )
    } else {
        (json!(""), json!(""))
    };
    vec![
        name(object),
        phase(object),
        text(&spec["volumeName"]),
        capacity,
        modes,
        class(object),
        text_or(&spec["volumeAttributesClassName"], "<unset>"),
        of_object(object, now),
        text_or(&spec["volumeMode"], "<unset>"),
    ]
}

fn storage_class(object: &Value, now: Timestamp) -> Vec<Value> {
    let annotations = &object["metadata"]["annotations"];
    let is_default = [
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    ]
    .iter()
    .any(|key| annotations[*key] == "true");
    let mark = if is_default { " (default)" } else { "" };
    vec![
        json!(format!(
            "{}{mark}",
            object["metadata"]["name"].as_str().unwrap_or_default()
        )),
        text(&object["provisioner"]),
        text_or(&object["reclaimPolicy"], "Delete"),
        text_or(&object["volumeBindingMode"], "Immediate"),
        json!(object["allowVolumeExpansion"] == true),
        of_object(object, now),
    ]
}

fn stateful_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let (wanted, ready) = (&object["spec"]["replicas"], &object["status"]["readyReplicas"]);
    let containers = &object["spec"]["template"]["spec"]["containers"];
    let join = |field: &str| {
        json!(
            list(containers)
                .filter_map(|c| c[field].as_str())
                .collect::<Vec<_>>()
                .join(",")
        )
    };
    vec![
        name(object),
        json!(format!(
            "{}/{}",
            ready.as_i64().unwrap_or_default(),
            wanted.as_i64().unwrap_or_default()
        )),
        of_object(object, now),
        join("name"),
        join("image"),
    ]
}

fn revision(object: &Value, now: Timestamp) -> Vec<Value> {
    let owner = list(&object["metadata"]["ownerReferences"]).find(|o| o["controller"] == true);
    let owner = owner.map_or_else(
        || "<none>".to_owned(),
        |owner| {
            let of = |field: &str| owner[field].as_str().unwrap_or_default();
            let group = of("apiVersion").split_once('/').map_or("", |(group, _)| group);
            let dot = if group.is_empty() { "" } else { "." };
            format!(
                "{}/{}",
                format!("{}{dot}{group}", of("kind")).to_lowercase(),
                of("name")
            )
        },
    );
    vec![
        name(object),
        json!(owner),
        json!(object["revision"].as_i64().unwrap_or_default()),
        of_object(object, now),
    ]
}

fn budget(object: &Value, now: Timestamp) -> Vec<Value> {
    let bound = |value: &Value| match value {
        Value::Null => json!("N/A"),
        Value::String(text) => json!(text),
        other => json!(other.to_string()),
    };
    vec![
        name(object),
        bound(&object["spec"]["minAvailable"]),
        bound(&object["spec"]["maxUnavailable"]),
        json!(object["status"]["disruptionsAllowed"].as_i64().unwrap_or_default()),
        of_object(object, now),
    ]
}

fn priority_class(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        json!(object["value"].as_i64().unwrap_or_default()),
        json!(object["globalDefault"] == true),
        of_object(object, now),
        text(&object["preemptionPolicy"]),
    ]
}
