//! Defaults of pod templates and claim templates, as Kubernetes fills them in for its own workloads
//! (<https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/>), with one deviation, which is OpenKruise's:
//! images are pulled `Always`, also those with a tag.

use super::table::{Literal, fill_in};
use crate::json::{list, list_mut, text};
use serde_json::{Map, Value, json};

const INT_MODE: Literal = Literal::Int(0o644);

type Row = (&'static str, Literal);

const SPEC: &[Row] = &[
    ("restartPolicy", Literal::Text("Always")),
    ("dnsPolicy", Literal::Text("ClusterFirst")),
    ("schedulerName", Literal::Text("default-scheduler")),
    ("terminationGracePeriodSeconds", Literal::Int(30)),
];
const CONTAINER: &[Row] = &[
    ("terminationMessagePath", Literal::Text("/dev/termination-log")),
    ("terminationMessagePolicy", Literal::Text("File")),
];
const PULL_POLICY: &[Row] = &[("imagePullPolicy", Literal::Text("Always"))];
const PORT: &[Row] = &[("protocol", Literal::Text("TCP"))];
/// Zero is no value of these: the API takes it for absent.
const PROBE: &[Row] = &[
    ("timeoutSeconds", Literal::Int(1)),
    ("periodSeconds", Literal::Int(10)),
    ("successThreshold", Literal::Int(1)),
    ("failureThreshold", Literal::Int(3)),
];
const HTTP_GET: &[Row] = &[("path", Literal::Text("/")), ("scheme", Literal::Text("HTTP"))];
const FIELD_REFERENCE: &[Row] = &[("apiVersion", Literal::Text("v1"))];
const MODE: &[Row] = &[("defaultMode", INT_MODE)];
/// Sources of volumes with scalar defaults.
const SOURCES: &[(&str, &[Row])] = &[
    ("secret", MODE),
    ("configMap", MODE),
    ("downwardAPI", MODE),
    ("projected", MODE),
    ("iscsi", &[("iscsiInterface", Literal::Text("default"))]),
    (
        "rbd",
        &[
            ("pool", Literal::Text("rbd")),
            ("user", Literal::Text("admin")),
            ("keyring", Literal::Text("/etc/ceph/keyring")),
        ],
    ),
    (
        "azureDisk",
        &[
            ("cachingMode", Literal::Text("ReadWrite")),
            ("kind", Literal::Text("Shared")),
            ("fsType", Literal::Text("ext4")),
        ],
    ),
    (
        "scaleIO",
        &[
            ("storageMode", Literal::Text("ThinProvisioned")),
            ("fsType", Literal::Text("xfs")),
        ],
    ),
];
const CLAIM: &[Row] = &[("volumeMode", Literal::Text("Filesystem"))];

fn rows(value: &mut Value, rows: &[Row]) {
    if let Some(fields) = value.as_object_mut() {
        for (field, default) in rows {
            fill_in(fields, field, *default);
        }
    }
}

/// The rows for the object in a field, if there is one.
fn rows_of(fields: &mut Value, field: &str, table: &[Row]) {
    if let Some(inner) = fields.get_mut(field) {
        rows(inner, table);
    }
}

/// Whether the container of the same name left its pull policy to the API server in the template `before`.
pub(super) fn leaves_policy_out(before: Option<&Value>, field: &str, container: &Value) -> bool {
    let name = text(container, &["name"]);
    let known = before.map_or(&[][..], |before| list(before, &["spec", field]));
    let same = known.iter().find(|known| text(known, &["name"]) == name);
    same.is_some_and(|same| text(same, &["imagePullPolicy"]).is_empty())
}

/// Fills in a pod template. `before` is the one whose place it takes in running pods.
///
/// A container that left its pull policy to the API server there, as in a set that was stored while no webhook ran, goes on doing so:
/// another one is a change that cannot be made in place, and nobody asked for it.
pub(crate) fn fill(template: &mut Value, before: Option<&Value>) {
    let Some(spec) = template.get_mut("spec").filter(|s| s.is_object()) else {
        return;
    };
    rows(spec, SPEC);
    if let Some(fields) = spec.as_object_mut() {
        empty_object(fields, "securityContext");
    }
    for field in ["initContainers", "containers"] {
        for container in list_mut(spec, field) {
            self::container(container);
            if !leaves_policy_out(before, field, container) {
                rows(container, PULL_POLICY);
            }
        }
    }
    list_mut(spec, "volumes").iter_mut().for_each(volume);
}

/// Fills in a claim template.
pub(crate) fn fill_claim(template: &mut Value) {
    rows_of(template, "spec", CLAIM);
}

fn empty_object(fields: &mut Map<String, Value>, field: &str) {
    let place = fields.entry(field).or_insert(Value::Null);
    if place.is_null() {
        *place = json!({});
    }
}

fn container(container: &mut Value) {
    rows(container, CONTAINER);
    for port in list_mut(container, "ports") {
        rows(port, PORT);
    }
    for entry in list_mut(container, "env") {
        if let Some(source) = entry.get_mut("valueFrom") {
            rows_of(source, "fieldRef", FIELD_REFERENCE);
        }
    }
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(field).filter(|p| p.is_object()) {
            self::probe(probe);
        }
    }
    for pointer in ["/lifecycle/preStop", "/lifecycle/postStart"] {
        if let Some(hook) = container.pointer_mut(pointer) {
            rows_of(hook, "httpGet", HTTP_GET);
        }
    }
}

fn probe(probe: &mut Value) {
    if let Some(fields) = probe.as_object_mut() {
        fields.retain(|field, value| !(value == &json!(0) && PROBE.iter().any(|(f, _)| f == field)));
    }
    rows(probe, PROBE);
    rows_of(probe, "httpGet", HTTP_GET);
    // An empty service is the default, and the API tells it from an absent one.
    if let Some(grpc) = probe.get_mut("grpc").and_then(Value::as_object_mut)
        && grpc.get("service").is_none_or(Value::is_null)
    {
        grpc.insert("service".to_owned(), json!(""));
    }
}

fn volume(volume: &mut Value) {
    let Some(fields) = volume.as_object_mut() else { return };
    let has_source = fields.iter().any(|(field, value)| field != "name" && !value.is_null());
    if !has_source {
        fields.insert("emptyDir".to_owned(), json!({}));
        return;
    }
    for (source, table) in SOURCES {
        rows_of(volume, source, table);
    }
    if let Some(path) = volume.get_mut("hostPath").and_then(Value::as_object_mut)
        && path.get("type").is_none_or(Value::is_null)
    {
        path.insert("type".to_owned(), json!(""));
    }
    if let Some(claim) = volume.pointer_mut("/ephemeral/volumeClaimTemplate") {
        rows_of(claim, "spec", CLAIM);
    }
    downward(volume.get_mut("downwardAPI"));
    if let Some(projected) = volume.get_mut("projected") {
        for source in list_mut(projected, "sources") {
            rows_of(
                source,
                "serviceAccountToken",
                &[("expirationSeconds", Literal::Int(3600))],
            );
            downward(source.get_mut("downwardAPI"));
        }
    }
}

/// Fields of the pod that files show.
fn downward(source: Option<&mut Value>) {
    if let Some(source) = source {
        for item in list_mut(source, "items") {
            rows_of(item, "fieldRef", FIELD_REFERENCE);
        }
    }
}
