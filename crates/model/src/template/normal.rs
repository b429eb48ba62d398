//! The normal form of a pod template (STS-1.1.6).
//!
//! Removed: nulls; empty strings, lists and objects where the API does not tell them from absent ones; values that equal the
//! API's default; zero and false where the API type cannot hold "set to zero". Rewritten: quantities. What remains compares by
//! value. Defaults: <https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/>.

use super::quantity::quantity_in_billionths;
use serde_json::{Map, Value, json};

/// Objects that say something by being empty: an empty label selector matches everything, an absent one nothing; an empty
/// volume source still chooses the kind of volume.
const MEANINGFUL_WHEN_EMPTY: &[&str] = &[
    "labelSelector",
    "namespaceSelector",
    "selector",
    "downwardAPI",
    "projected",
    "tcpSocket",
    "podSelector",
];

/// Strings that say something by being empty: an empty storage class means "no dynamic provisioning".
const MEANINGFUL_EMPTY_STRINGS: &[&str] = &["storageClassName", "key", "operator"];

/// Booleans and numbers of which the API cannot store "explicitly false" or "explicitly zero".
pub(super) const ZERO_IS_ABSENT: &[&str] = &[
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "stdin",
    "stdinOnce",
    "tty",
    "readOnly",
    "initialDelaySeconds",
    "hostPort",
    "partition",
];

/// Maps whose values are quantities.
pub(super) const QUANTITIES: &[&str] = &["limits", "requests", "overhead", "capacity"];

/// Scalar defaults: (field, its parent field or `*`, default).
const DEFAULTS: &[(&str, &str, &str)] = &[
    ("restartPolicy", "spec", "\"Always\""),
    ("dnsPolicy", "spec", "\"ClusterFirst\""),
    ("schedulerName", "spec", "\"default-scheduler\""),
    ("terminationGracePeriodSeconds", "spec", "30"),
    ("enableServiceLinks", "spec", "true"),
    ("terminationMessagePath", "*", "\"/dev/termination-log\""),
    ("terminationMessagePolicy", "*", "\"File\""),
    ("protocol", "ports", "\"TCP\""),
    ("apiVersion", "fieldRef", "\"v1\""),
    ("scheme", "httpGet", "\"HTTP\""),
    ("path", "httpGet", "\"/\""),
    ("defaultMode", "secret", "420"),
    ("defaultMode", "configMap", "420"),
    ("defaultMode", "downwardAPI", "420"),
    ("defaultMode", "projected", "420"),
    ("expirationSeconds", "serviceAccountToken", "3600"),
    ("volumeMode", "spec", "\"Filesystem\""),
    ("procMount", "securityContext", "\"Default\""),
    ("iscsiInterface", "iscsi", "\"default\""),
    ("pool", "rbd", "\"rbd\""),
    ("user", "rbd", "\"admin\""),
    ("keyring", "rbd", "\"/etc/ceph/keyring\""),
    ("cachingMode", "azureDisk", "\"ReadWrite\""),
    ("fsType", "azureDisk", "\"ext4\""),
    ("kind", "azureDisk", "\"Shared\""),
    ("fsType", "scaleIO", "\"xfs\""),
    ("storageMode", "scaleIO", "\"ThinProvisioned\""),
];

/// Defaults inside the three probes.
const PROBE_DEFAULTS: &[(&str, i64)] = &[
    ("timeoutSeconds", 1),
    ("periodSeconds", 10),
    ("successThreshold", 1),
    ("failureThreshold", 3),
];

/// The normal form of a pod template. Order of lists is kept: the order of containers and of env entries is observable.
pub fn normal_form(template: &Value) -> Value {
    let mut normal = template.clone();
    if let Some(object) = normal.as_object_mut() {
        object.remove("$patch");
    }
    before_pruning(&mut normal);
    prune(&mut normal, "");
    normal
}

/// A template, in normal form or as it was written, with the resources of all containers left out.
pub fn without_resources(mut template: Value) -> Value {
    for list in ["containers", "initContainers"] {
        let containers = template
            .pointer_mut(&format!("/spec/{list}"))
            .and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            if let Some(object) = container.as_object_mut() {
                object.remove("resources");
            }
        }
    }
    template
}

/// Defaults that depend on another field.
fn before_pruning(template: &mut Value) {
    let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    service_account(spec);
    let host_network = spec.get("hostNetwork") == Some(&json!(true));
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(container) = container.as_object_mut() {
                image_pull_policy(container);
                requests_follow_limits(container);
                if host_network {
                    host_ports(container);
                }
            }
        }
    }
    for volume in spec
        .get_mut("volumes")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Some(volume) = volume.as_object_mut()
            && volume.iter().all(|(field, source)| field == "name" || source.is_null())
        {
            // A volume with a name and no source is an emptyDir.
            volume.insert("emptyDir".to_owned(), json!({}));
        }
    }
}

/// `serviceAccount` is the deprecated spelling of `serviceAccountName`; the API keeps both in step.
fn service_account(spec: &mut Map<String, Value>) {
    if let Some(old) = spec.remove("serviceAccount")
        && spec.get("serviceAccountName").is_none_or(|name| name == "")
    {
        spec.insert("serviceAccountName".to_owned(), old);
    }
}

/// The default is Always for `:latest` and untagged images, IfNotPresent for others.
pub(super) fn default_pull_policy(image: &str) -> &'static str {
    let last = image.rsplit('/').next().unwrap_or_default();
    let is_moving = !last.contains('@') && last.split_once(':').is_none_or(|(_, tag)| tag == "latest");
    if is_moving { "Always" } else { "IfNotPresent" }
}

fn image_pull_policy(container: &mut Map<String, Value>) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let default = default_pull_policy(image);
    if container.get("imagePullPolicy").and_then(Value::as_str) == Some(default) {
        container.remove("imagePullPolicy");
    }
}

/// A request that is not given equals the limit.
fn requests_follow_limits(container: &mut Map<String, Value>) {
    let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) else {
        return;
    };
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else {
        return;
    };
    let requests = resources.entry("requests").or_insert_with(|| json!({}));
    if requests.is_null() {
        *requests = json!({});
    }
    if let Some(requests) = requests.as_object_mut() {
        for (name, limit) in limits {
            requests.entry(name).or_insert(limit);
        }
    }
}

/// With the host's network, a port is the host's port.
fn host_ports(container: &mut Map<String, Value>) {
    for port in container
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Some(port) = port.as_object_mut()
            && let Some(number) = port.get("containerPort").cloned()
        {
            port.entry("hostPort").or_insert(number);
        }
    }
}

/// Removes from `value`, found under the field `parent`, everything that does not tell.
fn prune(value: &mut Value, parent: &str) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| prune(item, parent)),
        Value::Object(object) => {
            for (field, child) in object.iter_mut() {
                prune(child, field);
            }
            // Names in these maps are the user's: "" there is a value like any other.
            let free_form = matches!(parent, "labels" | "annotations" | "matchLabels" | "nodeSelector");
            object.retain(|field, child| {
                if free_form {
                    !child.is_null()
                } else {
                    tells(field, child, parent)
                }
            });
            if QUANTITIES.contains(&parent) {
                object.values_mut().for_each(quantity);
            }
            if parent == "emptyDir" || parent == "resourceFieldRef" {
                for field in ["sizeLimit", "divisor"] {
                    if let Some(child) = object.get_mut(field) {
                        quantity(child);
                    }
                }
                if object.get("divisor") == Some(&json!("0n")) {
                    object.remove("divisor");
                }
            }
        }
        _ => {}
    }
}

/// Whether a field says anything that its absence would not.
fn tells(field: &str, value: &Value, parent: &str) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) if text.is_empty() => MEANINGFUL_EMPTY_STRINGS.contains(&field),
        Value::Array(items) if items.is_empty() => false,
        Value::Object(map) if map.is_empty() => MEANINGFUL_WHEN_EMPTY.contains(&field) || field == "emptyDir",
        _ => !is_default(field, value, parent),
    }
}

fn is_default(field: &str, value: &Value, parent: &str) -> bool {
    if ZERO_IS_ABSENT.contains(&field) && (value == &json!(false) || value == &json!(0)) {
        return true;
    }
    // Of these fields, the API takes zero for absent.
    let is_probe_default = |(f, default): &(&str, i64)| *f == field && (value == &json!(default) || value == &json!(0));
    if parent.ends_with("Probe") && PROBE_DEFAULTS.iter().any(is_probe_default) {
        return true;
    }
    DEFAULTS
        .iter()
        .any(|(f, p, default)| *f == field && (*p == "*" || *p == parent) && matches_literal(value, default))
}

/// Whether a scalar is the one that `literal` writes.
fn matches_literal(value: &Value, literal: &str) -> bool {
    match value {
        Value::String(text) => literal.strip_prefix('"').and_then(|l| l.strip_suffix('"')) == Some(text),
        Value::Bool(flag) => literal == if *flag { "true" } else { "false" },
        Value::Number(number) => literal.parse::<i64>().ok().is_some_and(|l| number.as_i64() == Some(l)),
        _ => false,
    }
}

/// Rewrites a quantity to billionths; what does not parse stays as it is.
fn quantity(value: &mut Value) {
    let text = match &*value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return,
    };
    if let Some(nano) = quantity_in_billionths(&text) {
        *value = Value::String(format!("{nano}n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(container: &Value, spec: &Value) -> Value {
        let mut spec = spec.clone();
        spec["containers"] = json!([container]);
        json!({"metadata": {"labels": {"app": "web"}}, "spec": spec})
    }

    fn same(a: &Value, b: &Value) -> bool {
        normal_form(a) == normal_form(b)
    }

    #[test]
    fn sts_1_1_6_defaults_and_spelling_do_not_tell() {
        let plain = template(
            &json!({"name": "main", "image": "web:1", "resources": {"limits": {"cpu": "1"}}}),
            &json!({}),
        );
        let full = template(
            &json!({
                "name": "main", "image": "web:1", "imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File", "resources": {"limits": {"cpu": "1000m"}, "requests": {"cpu": 1}},
                "env": [], "command": null,
            }),
            &json!({
                "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
                "terminationGracePeriodSeconds": 30, "securityContext": {}, "hostNetwork": false,
            }),
        );
        assert!(same(&plain, &full));
        let mut go = full.clone();
        go["metadata"]["creationTimestamp"] = Value::Null;
        go["$patch"] = json!("replace");
        assert!(same(&plain, &go), "creationTimestamp: null of libraries before 1.34");
    }

    #[test]
    fn sts_1_1_6_real_differences_tell() {
        let base = template(&json!({"name": "main", "image": "web:1"}), &json!({}));
        for (what, other) in [
            (
                "image",
                template(&json!({"name": "main", "image": "web:2"}), &json!({})),
            ),
            (
                "pull policy",
                template(
                    &json!({"name": "main", "image": "web:1", "imagePullPolicy": "Always"}),
                    &json!({}),
                ),
            ),
            (
                "unknown field",
                template(
                    &json!({"name": "main", "image": "web:1", "hyperdrive": true}),
                    &json!({}),
                ),
            ),
            (
                "explicit false of a pointer",
                template(
                    &json!({"name": "main", "image": "web:1"}),
                    &json!({"automountServiceAccountToken": false}),
                ),
            ),
            (
                "grace period",
                template(
                    &json!({"name": "main", "image": "web:1"}),
                    &json!({"terminationGracePeriodSeconds": 0}),
                ),
            ),
        ] {
            assert!(!same(&base, &other), "{what}");
        }
        let reordered = |a: &str, b: &str| json!({"spec": {"containers": [{"name": a}, {"name": b}]}});
        assert!(
            !same(&reordered("a", "b"), &reordered("b", "a")),
            "order of containers is observable"
        );
    }

    #[test]
    fn sts_1_1_6_empty_selectors_and_sources_tell() {
        let spread = |selector: Value| {
            template(
                &json!({"name": "m"}),
                &json!({"topologySpreadConstraints": [{"maxSkew": 1, "labelSelector": selector}]}),
            )
        };
        assert!(!same(&spread(json!({})), &spread(Value::Null)));
        let volume = |v: Value| template(&json!({"name": "m"}), &json!({"volumes": [v]}));
        assert!(same(
            &volume(json!({"name": "tmp"})),
            &volume(json!({"name": "tmp", "emptyDir": {}}))
        ));
        assert!(same(
            &volume(json!({"name": "tmp", "secret": null})),
            &volume(json!({"name": "tmp", "emptyDir": {}}))
        ));
        assert!(!same(
            &volume(json!({"name": "tmp", "emptyDir": {}})),
            &volume(json!({"name": "tmp", "emptyDir": {"medium": "Memory"}}))
        ));
    }

    #[test]
    fn sts_1_1_6_user_keyed_maps_keep_empty_values() {
        let labelled = |labels: Value| json!({"metadata": {"labels": labels}});
        assert!(!same(&labelled(json!({"a": ""})), &labelled(json!({}))));
    }

    #[test]
    fn sts_1_1_6_ports_and_probes_default() {
        let container = |c: Value| template(&c, &json!({}));
        assert!(same(
            &container(
                json!({"name": "m", "ports": [{"containerPort": 80}], "readinessProbe": {"httpGet": {"port": 80}}})
            ),
            &container(json!({"name": "m", "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "readinessProbe": {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10,
                "successThreshold": 1, "failureThreshold": 3, "initialDelaySeconds": 0}})),
        ));
        let timeout = |seconds: i64| container(json!({"name": "m", "livenessProbe": {"timeoutSeconds": seconds}}));
        assert!(same(&timeout(0), &timeout(1)) && !same(&timeout(0), &timeout(2)));
    }

    #[test]
    fn r_18_resources_can_be_left_out() {
        let with = template(&json!({"name": "m", "resources": {"limits": {"cpu": "2"}}}), &json!({}));
        let bare = template(&json!({"name": "m"}), &json!({}));
        assert_ne!(normal_form(&with), normal_form(&bare));
        assert_eq!(without_resources(normal_form(&with)), normal_form(&bare));
    }
}
