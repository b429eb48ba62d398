//! Config maps: the fields of `core/v1` that a [`ConfigMapRecord`] keeps.

use super::meta::{Metadata, ObjectMeta};
use flotilla_api::names::LAUNCH_BARRIER_KEY_PREFIX;
use flotilla_model::{ConfigMapRecord, Interner};
use prost::Message;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Keys of one config map that are kept. No pod has as many containers.
const BARRIER_KEYS_MAX: usize = 1000;

/// `core/v1` ConfigMap.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ConfigMap {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(btree_map = "string, string", tag = "2")]
    data: BTreeMap<String, String>,
}

impl ConfigMap {
    pub(crate) fn into_record(self, interner: &mut Interner) -> Result<ConfigMapRecord, String> {
        let metadata = self.metadata.ok_or("no metadata")?;
        record(metadata, self.data.keys(), interner)
    }
}

/// The record of a config map in JSON.
pub(super) fn from_json(value: &Value, interner: &mut Interner) -> Result<ConfigMapRecord, String> {
    let data = value.get("data").and_then(Value::as_object);
    record(
        Metadata::from_json(value)?.object,
        data.into_iter().flatten().map(|(key, _)| key),
        interner,
    )
}

fn record<'k>(
    metadata: ObjectMeta,
    keys: impl Iterator<Item = &'k String>,
    interner: &mut Interner,
) -> Result<ConfigMapRecord, String> {
    // Anyone may give the label to a map of a megabyte; a barrier's keys are one for each container of a pod.
    let of_barrier = |key: &&String| {
        let priority = key.strip_prefix(LAUNCH_BARRIER_KEY_PREFIX);
        priority.is_some_and(|priority| priority.parse::<i64>().is_ok())
    };
    let of_barriers = keys.filter(of_barrier).take(BARRIER_KEYS_MAX);
    let mut keys: Vec<Arc<str>> = of_barriers.map(|key| interner.string(key)).collect();
    keys.sort_unstable();
    Ok(ConfigMapRecord {
        meta: metadata.into_meta(interner, |_, _| true)?,
        keys: keys.into(),
    })
}
