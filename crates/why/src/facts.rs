//! What is read of the cluster to get from a pod that waits to the cause: its node, its claims, their classes, and what was said of them.

use flotilla_model::Timestamp;
use serde_json::Value;

/// What was found. A list that may not be read is `None`.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Pods of the namespace.
    pub pods: Option<Vec<Value>>,
    /// Nodes.
    pub nodes: Option<Vec<Value>>,
    /// Claims of the namespace.
    pub claims: Option<Vec<Value>>,
    /// Storage classes.
    pub classes: Option<Vec<Value>>,
    /// Events about claims of the namespace.
    pub events: Option<Vec<Value>>,
    /// Warnings about pods of the namespace.
    pub pod_events: Option<Vec<Value>>,
    /// What could not be looked at, in sentences.
    pub unread: Vec<String>,
}

impl Facts {
    /// A pod.
    pub(super) fn pod(&self, name: &str) -> Option<&Value> {
        named(self.pods.as_deref()?, name)
    }
}

/// The object of this name.
pub(super) fn named<'v>(objects: &'v [Value], name: &str) -> Option<&'v Value> {
    objects.iter().find(|object| object["metadata"]["name"] == name)
}

/// What was said last against an object, of these events.
pub(super) fn last_warning<'f>(events: impl Iterator<Item = &'f Value>, object: &Value) -> Option<&'f Value> {
    let metadata = &object["metadata"];
    let is_of_it = |event: &&Value| {
        let involved = &event["involvedObject"];
        // One of that name that was there before may have been told of, too.
        involved["name"] == metadata["name"] && (involved["uid"].is_null() || involved["uid"] == metadata["uid"])
    };
    let warnings = events.filter(is_of_it);
    let warnings = warnings.filter(|event| event["type"] == "Warning" && event["message"].is_string());
    warnings.max_by_key(|event| (happened(event), event["message"].as_str()))
}

/// When an event happened last. Lists are in the order of names, which tells nothing.
pub(super) fn happened(event: &Value) -> Option<Timestamp> {
    let times = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["metadata"]["creationTimestamp"],
    ];
    times.into_iter().filter_map(time).max()
}

/// A time as objects have it.
pub(super) fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}
