//! Defaults of pods, and of templates of pods.

use super::pod::amount;
use super::{default, each, items, text};
use serde_json::{Value, json};

/// What an API server fills in where a pod says nothing.
pub(super) fn pod(pod: &mut Value) {
    if pod["spec"].is_object() {
        spec(&mut pod["spec"]);
        default(&mut pod["spec"], "enableServiceLinks", true);
    }
}

/// The same for the spec of a template.
pub(super) fn spec(spec: &mut Value) {
    for (field, value) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("securityContext", json!({})),
        ("schedulerName", json!("default-scheduler")),
    ] {
        default(spec, field, value);
    }
    if !text(spec, "serviceAccountName").is_empty() {
        spec["serviceAccount"] = spec["serviceAccountName"].clone();
    }
    for list in ["initContainers", "containers"] {
        items(spec, list).for_each(container);
    }
    items(spec, "volumes").for_each(volume);
}

fn container(container: &mut Value) {
    let image = text(container, "image").to_owned();
    default(
        container,
        "imagePullPolicy",
        if is_latest(&image) { "Always" } else { "IfNotPresent" },
    );
    default(container, "terminationMessagePath", "/dev/termination-log");
    default(container, "terminationMessagePolicy", "File");
    default(container, "resources", json!({}));
    items(container, "ports").for_each(|port| default(port, "protocol", "TCP"));
    for entry in items(container, "env") {
        if let Some(source) = entry.pointer_mut("/valueFrom/fieldRef") {
            default(source, "apiVersion", "v1");
        }
    }
    limits_become_requests(&mut container["resources"]);
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if container[kind].is_object() {
            probe(&mut container[kind]);
        }
    }
    for hook in ["/lifecycle/preStop", "/lifecycle/postStart"] {
        if let Some(hook) = container.pointer_mut(hook) {
            http_get(hook);
        }
    }
    // Looking at a field of an object makes an empty one of it.
    if let Some(fields) = container.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
}

/// Whether an image is named by the tag `latest`, or by none.
fn is_latest(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let name = image.rsplit('/').next().unwrap_or_default();
    name.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

fn limits_become_requests(resources: &mut Value) {
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else {
        return;
    };
    for (name, limit) in limits {
        if !resources["requests"].is_object() {
            resources["requests"] = json!({});
        }
        default(&mut resources["requests"], &name, limit);
    }
}

fn probe(probe: &mut Value) {
    for (field, value) in [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ] {
        default(probe, field, value);
    }
    http_get(probe);
    if let Some(grpc) = probe.get_mut("grpc") {
        default(grpc, "service", "");
    }
}

fn http_get(action: &mut Value) {
    if let Some(get) = action.get_mut("httpGet") {
        default(get, "path", "/");
        default(get, "scheme", "HTTP");
    }
}

fn volume(volume: &mut Value) {
    const MODE: i64 = 0o644;
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(source) {
            default(source, "defaultMode", MODE);
            field_references(source);
        }
    }
    if let Some(projected) = volume.get_mut("projected") {
        for source in items(projected, "sources") {
            if let Some(token) = source.get_mut("serviceAccountToken") {
                default(token, "expirationSeconds", 3600);
            }
            if let Some(downward) = source.get_mut("downwardAPI") {
                field_references(downward);
            }
        }
    }
    if let Some(path) = volume.get_mut("hostPath") {
        default(path, "type", "");
    }
    let has_source = volume.as_object().is_some_and(|fields| fields.len() > 1);
    if !has_source {
        volume["emptyDir"] = json!({});
    }
}

fn field_references(source: &mut Value) {
    for item in items(source, "items") {
        if let Some(reference) = item.get_mut("fieldRef") {
            default(reference, "apiVersion", "v1");
        }
    }
}

/// The class of service that a pod's requests and limits earn it.
pub(super) fn quality(pod: &Value) -> &'static str {
    let (mut is_guaranteed, mut has_any) = (true, false);
    let spec = &pod["spec"];
    for container in each(spec, "containers").chain(each(spec, "initContainers")) {
        let (requests, limits) = (&container["resources"]["requests"], &container["resources"]["limits"]);
        for name in ["cpu", "memory"] {
            has_any |= requests.get(name).is_some() || limits.get(name).is_some();
            let is_equal = amount(name, &limits[name]) == amount(name, &requests[name]);
            is_guaranteed &= limits.get(name).is_some() && is_equal;
        }
    }
    match (has_any, is_guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_without_a_tag_are_pulled_always() {
        for (image, latest) in [
            ("web", true),
            ("web:latest", true),
            ("web:1.0", false),
            ("registry:5000/web", true),
            ("registry:5000/web:1.0", false),
            ("web@sha256:abc", false),
        ] {
            assert_eq!(is_latest(image), latest, "{image}");
        }
    }
}
