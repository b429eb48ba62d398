//! Pods: what admission adds, and what may not be.

use super::pod_defaults::quality;
use super::{Errors, each, items, text};
use crate::store::Server;
use flotilla_apimachinery::field;
use flotilla_apimachinery::pod::{self, Subject};
use flotilla_apimachinery::status::{Qualified, Status};
use flotilla_model::ObjectKey;
use flotilla_model::template::{parse_bytes, parse_millis};
use serde_json::{Value, json};

/// Where a service account's credentials are mounted.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// What pods do to others of less priority, unless their class says otherwise.
const PREEMPTS: &str = "PreemptLowerPriority";
/// How long a pod stays on a node that is in trouble.
const TOLERATION_SECONDS: i64 = 300;

/// Adds what every pod gets: service account, credentials, priority, tolerations.
pub(super) fn admit(server: &Server, pod: &mut Value) -> Result<(), Status> {
    let namespace = text(&pod["metadata"], "namespace").to_owned();
    let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let forbidden = |why: String| Status::forbidden(&Qualified::new("", "pods"), &name, &why);
    if !pod["spec"].is_object() {
        pod["spec"] = json!({});
        super::pod_defaults::spec(&mut pod["spec"]);
    }
    let spec = &mut pod["spec"];
    if text(spec, "serviceAccountName").is_empty() {
        spec["serviceAccountName"] = json!("default");
    }
    let account = text(spec, "serviceAccountName").to_owned();
    spec["serviceAccount"] = json!(account);
    let accounts = server.types.builtin("", "serviceaccounts");
    if server
        .get(accounts, &ObjectKey::new(namespace.as_str(), account.as_str()))
        .is_none()
    {
        return Err(forbidden(format!(
            "error looking up service account {namespace}/{account}: serviceaccount \"{account}\" not found"
        )));
    }
    priority(server, spec).map_err(forbidden)?;
    tolerations(spec);
    if spec["automountServiceAccountToken"] != false {
        mount_token(spec, server);
    }
    if let Some(fields) = spec.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    Ok(())
}

fn priority(server: &Server, spec: &mut Value) -> Result<(), String> {
    let class = priority_class(server, text(spec, "priorityClassName"))?;
    check_priority(&class, spec)?;
    if !class.name.is_empty() {
        spec["priorityClassName"] = json!(class.name);
    }
    spec["priority"] = json!(class.value);
    spec["preemptionPolicy"] = json!(class.policy);
    Ok(())
}

/// Whether a pod in the process has no other priority than admission would give it. A class that is not here is left alone: simulations
/// say apart from the objects what there is none of.
pub(crate) fn check_own_priority(server: &Server, spec: &Value) -> Result<(), String> {
    if spec["priority"].is_null() && spec["preemptionPolicy"].is_null() {
        return Ok(());
    }
    let class = priority_class(server, text(spec, "priorityClassName"));
    class.map_or(Ok(()), |class| check_priority(&class, spec))
}

/// What a pod gets from its class.
struct Priority {
    name: String,
    value: i64,
    policy: String,
}

/// Admission alone says what priority a pod has; whoever writes another one is refused.
fn check_priority(class: &Priority, spec: &Value) -> Result<(), String> {
    if let Some(own) = spec["priority"].as_i64().filter(|own| *own != class.value) {
        return Err(format!(
            "the integer value of priority ({own}) must not be provided in pod spec; priority admission controller computed {} from the given PriorityClass name",
            class.value
        ));
    }
    if let Some(own) = spec["preemptionPolicy"].as_str().filter(|own| *own != class.policy) {
        return Err(format!(
            "the string value of PreemptionPolicy ({own}) must not be provided in pod spec; priority admission controller computed {} from the given PriorityClass name",
            class.policy
        ));
    }
    Ok(())
}

/// The class of this name; without one, that which is for all, if there is any.
fn priority_class(server: &Server, name: &str) -> Result<Priority, String> {
    let made = |name: &str, value: i64| Priority {
        name: name.to_owned(),
        value,
        policy: PREEMPTS.to_owned(),
    };
    let read = |class: &Value| Priority {
        name: text(&class["metadata"], "name").to_owned(),
        value: class["value"].as_i64().unwrap_or(0),
        policy: class["preemptionPolicy"].as_str().unwrap_or(PREEMPTS).to_owned(),
    };
    let classes = server.types.builtin("scheduling.k8s.io", "priorityclasses");
    match name {
        "" => {
            let all = server.all(classes).map(|class| read(&class.value()));
            let for_all = server.all(classes).map(|class| class.value()["globalDefault"] == true);
            let least = all.zip(for_all).filter(|(_, is_for_all)| *is_for_all);
            let least = least.map(|(class, _)| class).min_by_key(|class| class.value);
            Ok(least.unwrap_or_else(|| made("", 0)))
        }
        "system-node-critical" => Ok(made(name, 2_000_001_000)),
        "system-cluster-critical" => Ok(made(name, 2_000_000_000)),
        name => {
            let found = server.get(classes, &ObjectKey::new("", name));
            let missing = || format!("no PriorityClass with name {name} was found");
            found.map(|class| read(&class.value())).ok_or_else(missing)
        }
    }
}

pub(super) fn tolerations(spec: &mut Value) {
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let has = each(spec, "tolerations").any(|t| {
            let (own, effect) = (text(t, "key"), text(t, "effect"));
            (own == key || own.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        });
        if !has {
            let toleration = json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS});
            match spec["tolerations"].as_array_mut() {
                Some(list) => list.push(toleration),
                None => spec["tolerations"] = json!([toleration]),
            }
        }
    }
}

/// Mounts the credentials of the service account into every container that has none.
fn mount_token(spec: &mut Value, server: &Server) {
    let name = format!("kube-api-access-{}", server.suffix());
    let mut is_used = false;
    for list in ["initContainers", "containers"] {
        for container in items(spec, list) {
            if each(container, "volumeMounts").any(|m| m["mountPath"] == TOKEN_PATH) {
                continue;
            }
            is_used = true;
            let mount = json!({"name": name, "readOnly": true, "mountPath": TOKEN_PATH});
            match container["volumeMounts"].as_array_mut() {
                Some(mounts) => mounts.push(mount),
                None => container["volumeMounts"] = json!([mount]),
            }
        }
    }
    if !is_used {
        return;
    }
    let namespace = json!([{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]);
    let volume = json!({"name": name, "projected": {"defaultMode": 0o644, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": namespace}},
    ]}});
    match spec["volumes"].as_array_mut() {
        Some(volumes) => volumes.push(volume),
        None => spec["volumes"] = json!([volume]),
    }
}

/// The status of a pod that nobody has looked at yet.
pub(super) fn first_status(pod: &Value) -> Value {
    json!({"phase": "Pending", "qosClass": quality(pod)})
}

/// Whoever writes the status need not repeat the class of the pod's service.
pub(super) fn keep_class(old: Option<&Value>, new: &mut Value) {
    let known = old
        .map(|old| &old["status"]["qosClass"])
        .filter(|class| class.is_string());
    if let (Some(known), Value::Null) = (known, &new["status"]["qosClass"]) {
        new["status"]["qosClass"] = known.clone();
    }
}

const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];

/// A pod's spec.
pub(super) fn validate_spec(spec: &Value, path: &str, errors: &mut Errors) {
    pod::check_all(spec, path, std::iter::empty(), Subject::Pod, errors);
    restart_policy(spec, path, errors);
}

/// The spec of a template whose pods get these volumes besides those that it names.
pub(super) fn validate_template<'v>(
    spec: &'v Value,
    path: &str,
    claims: impl Iterator<Item = &'v str>,
    errors: &mut Errors,
) {
    pod::check_all(spec, path, claims, Subject::Template, errors);
    restart_policy(spec, path, errors);
}

fn restart_policy(spec: &Value, path: &str, errors: &mut Errors) {
    let policy = text(spec, "restartPolicy");
    if !RESTART_POLICIES.contains(&policy) {
        let error = if policy.is_empty() {
            field::Error::required(format!("{path}.restartPolicy"), "")
        } else {
            field::Error::not_supported(format!("{path}.restartPolicy"), json!(policy), RESTART_POLICIES)
        };
        errors.push(error);
    }
}

/// A quantity as a number, in thousandths of a core or in bytes.
pub(super) fn amount(name: &str, quantity: &Value) -> Option<u64> {
    if quantity.is_null() {
        return None;
    }
    let text = spelled(quantity);
    if name == "cpu" {
        parse_millis(&text)
    } else {
        parse_bytes(&text)
    }
}

/// A quantity may stand as a bare number.
fn spelled(quantity: &Value) -> String {
    quantity.as_str().map_or_else(|| quantity.to_string(), str::to_owned)
}
