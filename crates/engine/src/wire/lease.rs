//! `coordination.k8s.io/v1` Lease, in JSON.

use crate::core::lease::{LeaseRecord, LeaseSpec};
use flotilla_api::names::{LAST_WRITES, LOOKS_AFTER};
use flotilla_model::{ObjectKey, Resource, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Lease {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<i32>,
    acquire_time: Option<String>,
    renew_time: Option<String>,
    lease_transitions: Option<i32>,
}

/// Reads a Lease object.
pub fn read(body: &[u8]) -> Result<LeaseRecord, String> {
    let lease: Lease = serde_json::from_slice(body).map_err(|e| format!("cannot read the lease: {e}"))?;
    let mut annotations = lease.metadata.annotations.unwrap_or_default();
    let time = |text: Option<String>| text.and_then(|t| t.parse().ok()).unwrap_or_default();
    Ok(LeaseRecord {
        resource_version: super::envelope::parse_version(&lease.metadata.resource_version)?,
        spec: LeaseSpec {
            holder: lease.spec.holder_identity.unwrap_or_default(),
            duration_seconds: lease.spec.lease_duration_seconds.unwrap_or(0),
            acquired: time(lease.spec.acquire_time),
            renewed: time(lease.spec.renew_time),
            transitions: lease.spec.lease_transitions.unwrap_or(0),
            last_writes: annotations.remove(LAST_WRITES).unwrap_or_default(),
            looks_after: annotations.remove(LOOKS_AFTER).unwrap_or_default(),
        },
    })
}

/// The body that creates the lease.
pub fn create_body(key: &ObjectKey, spec: &LeaseSpec) -> Value {
    let annotations = said(&spec.looks_after).map(|kinds| json!({ LOOKS_AFTER: kinds }));
    json!({
        "apiVersion": Resource::Leases.api_version(),
        "kind": Resource::Leases.kind(),
        "metadata": { "name": key.name.as_str(), "namespace": &*key.namespace, "annotations": annotations },
        "spec": spec_json(spec),
    })
}

/// The merge patch that changes the lease if it still has this version. A patch, so that labels of the user's survive.
/// What an earlier holder noted does not.
pub fn update_body(resource_version: u64, spec: &LeaseSpec) -> Value {
    let annotations = json!({ LAST_WRITES: said(&spec.last_writes), LOOKS_AFTER: said(&spec.looks_after) });
    json!({
        "metadata": { "resourceVersion": resource_version.to_string(), "annotations": annotations },
        "spec": spec_json(spec),
    })
}

/// What is empty is not written, and taken away if it was.
fn said(words: &str) -> Option<&str> {
    Some(words).filter(|words| !words.is_empty())
}

fn spec_json(spec: &LeaseSpec) -> Value {
    json!({
        "holderIdentity": spec.holder,
        "leaseDurationSeconds": spec.duration_seconds,
        "acquireTime": micro_time(spec.acquired),
        "renewTime": micro_time(spec.renewed),
        "leaseTransitions": spec.transitions,
    })
}

/// RFC 3339 with exactly six digits, without which the API server refuses a `metav1.MicroTime`.
pub(crate) fn micro_time(time: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(time.as_millis())
        .unwrap_or_default()
        .strftime("%Y-%m-%dT%H:%M:%S%.6fZ")
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_read_and_goes_with_the_next_change() {
        let stored = json!({
            "metadata": {"resourceVersion": "7", "annotations": {"other": "stays", LAST_WRITES: "3;pods=5"}},
            "spec": {"leaseTransitions": 3},
        });
        let record = read(stored.to_string().as_bytes()).expect("a lease");
        assert_eq!(record.spec.last_writes, "3;pods=5");
        let note = |spec: &LeaseSpec| update_body(7, spec)["metadata"]["annotations"].clone();
        assert_eq!(note(&record.spec), json!({LAST_WRITES: "3;pods=5", LOOKS_AFTER: null}));
        assert_eq!(
            note(&LeaseSpec::default()),
            json!({LAST_WRITES: null, LOOKS_AFTER: null})
        );
        let bare = json!({"metadata": {"resourceVersion": "7"}});
        let record = read(bare.to_string().as_bytes()).expect("a lease");
        assert_eq!(record.spec.last_writes, "");
    }

    #[test]
    fn the_holder_says_what_it_looks_after() {
        let spec = LeaseSpec {
            looks_after: "statefulsets.apps.kruise.io".to_owned(),
            ..LeaseSpec::default()
        };
        let mut stored = create_body(&ObjectKey::new("ns", "lease"), &spec);
        assert_eq!(
            stored["metadata"]["annotations"],
            json!({LOOKS_AFTER: "statefulsets.apps.kruise.io"})
        );
        assert_eq!(
            update_body(7, &spec)["metadata"]["annotations"][LOOKS_AFTER],
            "statefulsets.apps.kruise.io"
        );
        stored["metadata"]["resourceVersion"] = json!("7");
        let record = read(stored.to_string().as_bytes()).expect("a lease");
        assert_eq!(record.spec.looks_after, "statefulsets.apps.kruise.io");
        let silent = create_body(&ObjectKey::new("ns", "lease"), &LeaseSpec::default());
        assert_eq!(silent["metadata"]["annotations"], json!(null));
    }
}
