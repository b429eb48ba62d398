//! Kinds with few rules.

use super::{Errors, default, each, items, text};
use crate::types::TypeInfo;
use flotilla_apimachinery::field;
use serde_json::{Value, json};

pub(super) fn defaults(info: &TypeInfo, object: &mut Value) {
    match (info.group.as_str(), info.kind.as_str()) {
        ("", "Service") => service(object),
        ("", "Secret") => secret(object),
        ("", "Namespace") => {
            default(object, "spec", json!({}));
            let name = object["metadata"]["name"].clone();
            if !object["metadata"]["labels"].is_object() {
                object["metadata"]["labels"] = json!({});
            }
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
        }
        ("storage.k8s.io", _) => {
            default(object, "reclaimPolicy", "Delete");
            default(object, "volumeBindingMode", "Immediate");
        }
        ("scheduling.k8s.io", _) => default(object, "preemptionPolicy", "PreemptLowerPriority"),
        ("", "Node") => default(object, "spec", json!({})),
        _ => {}
    }
}

/// What the server adds to new objects.
pub(super) fn prepare(info: &TypeInfo, object: &mut Value) {
    match (info.group.as_str(), info.kind.as_str()) {
        ("", "Service") => addresses(object),
        ("", "Event") | ("events.k8s.io", _) => crate::face::fill_event(object),
        ("", "Namespace") => default(&mut object["spec"], "finalizers", json!(["kubernetes"])),
        ("", "Node") => taint(object),
        _ => {}
    }
}

/// The admission plugin TaintNodesByCondition: nothing is put on a node that has not yet said that it is ready.
fn taint(node: &mut Value) {
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let has = each(&node["spec"], "taints").any(|t| t["key"] == taint["key"]);
    let is_ready = each(&node["status"], "conditions").any(|c| c["type"] == "Ready" && c["status"] == "True");
    if has || is_ready {
        return;
    }
    match node["spec"]["taints"].as_array_mut() {
        Some(taints) => taints.push(taint),
        None => node["spec"]["taints"] = json!([taint]),
    }
}

fn service(service: &mut Value) {
    default(service, "spec", json!({}));
    let spec = &mut service["spec"];
    default(spec, "type", "ClusterIP");
    default(spec, "sessionAffinity", "None");
    default(spec, "internalTrafficPolicy", "Cluster");
    for port in items(spec, "ports") {
        default(port, "protocol", "TCP");
        let number = port["port"].clone();
        default(port, "targetPort", number);
    }
}

/// Addresses and their families, as the server gives them out.
fn addresses(service: &mut Value) {
    let spec = &mut service["spec"];
    // Without a selector, a headless service may have addresses of both families.
    let is_dual = text(spec, "clusterIP") == "None" && spec.get("selector").is_none_or(Value::is_null);
    default(
        spec,
        "ipFamilies",
        if is_dual {
            json!(["IPv4", "IPv6"])
        } else {
            json!(["IPv4"])
        },
    );
    default(
        spec,
        "ipFamilyPolicy",
        if is_dual { "RequireDualStack" } else { "SingleStack" },
    );
    if spec["clusterIP"].is_string() {
        let address = spec["clusterIP"].clone();
        default(spec, "clusterIPs", json!([address]));
    }
}

fn secret(secret: &mut Value) {
    default(secret, "type", "Opaque");
    let Some(plain) = secret.as_object_mut().and_then(|s| s.remove("stringData")) else {
        return;
    };
    for (key, value) in plain.as_object().into_iter().flatten() {
        if !secret["data"].is_object() {
            secret["data"] = json!({});
        }
        secret["data"][key] = json!(base64(value.as_str().unwrap_or_default().as_bytes()));
    }
}

/// Bytes as JSON has them.
pub fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for index in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * index) & 63) as usize];
            text.push(if index <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

pub(super) fn validate(info: &TypeInfo, old: Option<&Value>, new: &Value, errors: &mut Errors) {
    match (info.group.as_str(), info.kind.as_str()) {
        ("", "ConfigMap" | "Secret") => immutable(old, new, errors),
        ("", "Service") => ports(new, errors),
        ("apps", "ControllerRevision") => revision(old, new, errors),
        _ => {}
    }
}

fn immutable(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let Some(old) = old.filter(|old| old["immutable"] == true) else {
        return;
    };
    if new["immutable"] != true {
        let why = "field is immutable when `immutable` is set";
        errors.push(field::Error::without_value(field::Fault::Forbidden, "immutable", why));
    }
    for name in ["data", "binaryData"] {
        if old[name] != new[name] {
            let why = "field is immutable when `immutable` is set";
            errors.push(field::Error::without_value(field::Fault::Forbidden, name, why));
        }
    }
}

fn ports(service: &Value, errors: &mut Errors) {
    let spec = &service["spec"];
    if each(spec, "ports").next().is_none() && text(spec, "clusterIP") != "None" && text(spec, "type") != "ExternalName"
    {
        errors.push(field::Error::required("spec.ports", ""));
    }
    for (index, port) in each(spec, "ports").enumerate() {
        let number = port["port"].as_i64().unwrap_or(0);
        if !(1..=65535).contains(&number) {
            let why = "must be between 1 and 65535, inclusive";
            errors.push(field::Error::invalid(
                format!("spec.ports[{index}].port"),
                json!(number),
                why,
            ));
            let target = &port["targetPort"];
            if target.as_i64() == Some(number) {
                errors.push(field::Error::invalid(
                    format!("spec.ports[{index}].targetPort"),
                    target.clone(),
                    why,
                ));
            }
        }
    }
}

fn revision(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let number = new["revision"].as_i64().unwrap_or(0);
    if number < 0 {
        errors.push(field::Error::invalid(
            "revision",
            json!(number),
            "must be greater than or equal to 0",
        ));
    }
    if old.is_some_and(|old| old["data"] != new["data"]) {
        errors.push(field::Error::invalid("data", new["data"].clone(), "field is immutable"));
    }
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn bytes_are_encoded() {
        for (plain, encoded) in [
            ("", ""),
            ("v", "dg=="),
            ("va", "dmE="),
            ("val", "dmFs"),
            ("value", "dmFsdWU="),
        ] {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }
}
