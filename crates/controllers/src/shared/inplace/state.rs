//! The annotation that tells how far a pod's update in place has come (STS-4.7). Written so that the Go manager can go on with it,
//! read so that whatever it wrote is understood.

use super::{Changes, UpdateSpec, complete, other_fields, ref_metadata_json, ref_metadata_of, texts, values};
use flotilla_model::Timestamp;
use flotilla_model::records::{ContainerStatus, PodDetail};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// The fields that are read.
const FIELDS: [&str; 13] = [
    "revision",
    "updateTimestamp",
    "lastContainerStatuses",
    "updateEnvFromMetadata",
    "updateResources",
    "updateImages",
    "askedResources",
    "keptReady",
    "nextContainerImages",
    "nextContainerRefMetadata",
    "nextContainerResources",
    "preCheckBeforeNext",
    "containerBatchesRecord",
];

/// For so long after a change a container that seems to have started before it may have done so: a manager notes the one time, a node the
/// other. What ran before is long gone then, by a kubelet that has seen the change.
const CLOCKS_MAY_DIFFER_FOR: Duration = Duration::from_secs(120);

/// What a container was before its image changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Before {
    /// `imageID`; empty if it had not started.
    pub image_id: String,
    /// `containerID`, where it was recorded: older records do not have it.
    pub container_id: Option<String>,
    /// `restartCount`, where it was recorded.
    pub restart_count: Option<i32>,
    /// Images that were asked for since, and are not any more: a container of one of these is not what is waited for (an addition of ours).
    pub superseded: Vec<String>,
}

impl Before {
    /// Of a container as the kubelet reports it, or has not reported it yet.
    pub fn of(status: Option<&ContainerStatus>) -> Self {
        status.map_or_else(Before::default, |status| Before {
            image_id: status.image_id.to_string(),
            container_id: Some(status.container_id.to_string()),
            restart_count: Some(status.restart_count),
            superseded: Vec::new(),
        })
    }
}

/// How far an update in place has come.
// Independent facts that the annotation has as such.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// The revision it goes to.
    pub revision: String,
    /// When it began.
    pub updated_at: Timestamp,
    /// Containers whose image changed, as they were.
    pub before: BTreeMap<String, Before>,
    /// Environments that refer to metadata change.
    pub env_from_metadata: bool,
    /// Resources change.
    pub resources: bool,
    /// Images change.
    pub images: bool,
    /// Resources that were asked for so far, by container (an addition of ours): others that the pod's spec has are of others.
    pub asked: BTreeMap<String, Value>,
    /// The pod stays in service meanwhile, as the set's owner asked for (an addition of ours).
    pub kept_ready: bool,
    /// What later batches change.
    pub next: Changes,
    /// Containers that must be ready before the next batch.
    pub required_ready: Vec<String>,
    /// Batches so far.
    pub batches: Vec<(Timestamp, Vec<String>)>,
    /// Fields that another release wrote and we do not know, kept for as long as this update lasts.
    pub others: BTreeMap<String, Value>,
    /// Its last change is so long ago that times of two clocks need not be compared. Not noted.
    pub is_long_ago: bool,
}

impl State {
    /// Reads the annotation.
    pub fn parse(text: &str) -> Result<State, String> {
        let json: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let revision = json.get("revision").and_then(Value::as_str);
        let flag = |field: &str| json.get(field).and_then(Value::as_bool).unwrap_or(false);
        let before = json.get("lastContainerStatuses").and_then(Value::as_object);
        let batches = json.get("containerBatchesRecord").and_then(Value::as_array);
        Ok(State {
            revision: revision.ok_or("it names no revision")?.to_owned(),
            updated_at: time(json.get("updateTimestamp")),
            before: before
                .into_iter()
                .flatten()
                .map(|(name, value)| (name.clone(), read_before(value)))
                .collect(),
            env_from_metadata: flag("updateEnvFromMetadata"),
            resources: flag("updateResources"),
            images: flag("updateImages"),
            asked: values(json.get("askedResources")),
            kept_ready: flag("keptReady"),
            next: Changes {
                images: texts(json.get("nextContainerImages")),
                ref_metadata: ref_metadata_of(json.get("nextContainerRefMetadata")),
                resources: values(json.get("nextContainerResources")),
            },
            required_ready: strings(json.pointer("/preCheckBeforeNext/containersRequiredReady")),
            batches: batches
                .into_iter()
                .flatten()
                .map(|batch| (time(batch.get("timestamp")), strings(batch.get("containers"))))
                .collect(),
            others: other_fields(&json, &FIELDS),
            is_long_ago: false,
        })
    }

    /// The same, as it is looked at now.
    pub fn seen_at(mut self, now: Timestamp) -> State {
        self.is_long_ago = self.clocks_may_differ_for(now).is_zero();
        self
    }

    /// For how long from now on times of two clocks are compared.
    pub fn clocks_may_differ_for(&self, now: Timestamp) -> Duration {
        CLOCKS_MAY_DIFFER_FOR.saturating_sub(now.since(self.last_change()))
    }

    /// Notes what kinds of change are to come: Go managers wait at the end only for what is noted here.
    pub fn will_change(&mut self, spec: &UpdateSpec) {
        self.env_from_metadata |= spec.env_from_metadata;
        self.resources |= !spec.changes.resources.is_empty();
        self.images |= !spec.changes.images.is_empty();
    }

    /// The annotation's text; what is false or empty is left out, as Go does.
    pub fn to_text(&self) -> String {
        let mut json = Map::new();
        let mut put = |field: &str, value: Value, is_there: bool| {
            if is_there {
                json.insert(field.to_owned(), value);
            }
        };
        put("revision", json!(self.revision), true);
        put("updateTimestamp", json!(whole_seconds(self.updated_at)), true);
        let before = self.before.iter().map(|(name, b)| (name.clone(), before_json(b)));
        let before = if self.before.is_empty() {
            Value::Null
        } else {
            Value::Object(before.collect())
        };
        put("lastContainerStatuses", before, true);
        put("updateEnvFromMetadata", json!(true), self.env_from_metadata);
        put("updateResources", json!(true), self.resources);
        put("updateImages", json!(true), self.images);
        put("askedResources", json!(self.asked), !self.asked.is_empty());
        put("keptReady", json!(true), self.kept_ready);
        let next = &self.next;
        put("nextContainerImages", json!(next.images), !next.images.is_empty());
        let refs = ref_metadata_json(&next.ref_metadata);
        put("nextContainerRefMetadata", refs, !next.ref_metadata.is_empty());
        put(
            "nextContainerResources",
            json!(next.resources),
            !next.resources.is_empty(),
        );
        let required = json!({"containersRequiredReady": self.required_ready});
        put("preCheckBeforeNext", required, !self.required_ready.is_empty());
        let batch =
            |(at, names): &(Timestamp, Vec<String>)| json!({"timestamp": whole_seconds(*at), "containers": names});
        let batches: Vec<Value> = self.batches.iter().map(batch).collect();
        put("containerBatchesRecord", json!(batches), !self.batches.is_empty());
        json.extend(self.others.clone());
        Value::Object(json).to_string()
    }

    /// The same when nothing is to come any more.
    pub fn without_next(mut self) -> State {
        self.next = Changes::default();
        self.required_ready.clear();
        self
    }

    /// Whether resources that the last batch asks for are not in the pod's spec: the request is on its way, was lost, or refused.
    pub fn awaits_resize(&self) -> bool {
        let asked = self.batches.last();
        asked.is_some_and(|(_, names)| names.iter().any(|name| self.next.resources.contains_key(name)))
    }

    /// Whether resources that were asked for are still on their way.
    pub fn is_resizing(&self, detail: &PodDetail) -> bool {
        self.resources && complete::resources(detail, &self.asked).is_err()
    }

    /// Whether a container runs that is about to restart with another image.
    pub fn is_restarting(&self, name: &str, detail: &PodDetail) -> bool {
        let runs = detail.container(name).and_then(|(_, status)| status?.started_at);
        runs.is_some() && complete::restarting(detail, self).any(|other| other == name)
    }

    /// A container whose restart has to come before its resources can change any further.
    pub fn restarts_first(&self, detail: &PodDetail) -> Option<&String> {
        self.next.resources.keys().find(|name| self.is_restarting(name, detail))
    }

    /// When its last batch began.
    pub fn last_change(&self) -> Timestamp {
        self.batches
            .last()
            .map_or(self.updated_at, |(at, _)| (*at).max(self.updated_at))
    }
}

/// A list of texts; entries that are not texts are left out.
fn strings(value: Option<&Value>) -> Vec<String> {
    let list = value.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn read_before(value: &Value) -> Before {
    let text = |field: &str| value.get(field).and_then(Value::as_str).map(str::to_owned);
    let count = value.get("restartCount").and_then(Value::as_i64);
    Before {
        image_id: text("imageID").unwrap_or_default(),
        container_id: text("containerID"),
        restart_count: count.and_then(|n| i32::try_from(n).ok()),
        superseded: strings(value.get("superseded")),
    }
}

fn before_json(before: &Before) -> Value {
    let mut json = json!({"imageID": before.image_id});
    if let Some(id) = &before.container_id {
        json["containerID"] = json!(id);
    }
    if let Some(count) = before.restart_count {
        json["restartCount"] = json!(count);
    }
    if !before.superseded.is_empty() {
        json["superseded"] = json!(before.superseded);
    }
    json
}

/// A time as Go writes it; one that is missing or cannot be read was long ago.
fn time(value: Option<&Value>) -> Timestamp {
    value
        .and_then(Value::as_str)
        .and_then(|text| text.parse().ok())
        .unwrap_or_default()
}

/// RFC 3339 without fractions, which is all that Kubernetes' own times have.
pub fn whole_seconds(at: Timestamp) -> String {
    Timestamp::from_seconds(at.as_millis().div_euclid(1000)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sts_4_7_what_the_go_manager_wrote_is_read() {
        let text = r#"{"revision":"web-5f","updateTimestamp":"2026-07-01T10:00:00Z","lastContainerStatuses":{"main":{"imageID":"i1"}},
            "updateEnvFromMetadata":true,"updateImages":true,"nextContainerImages":{"side":"s:2"},
            "nextContainerRefMetadata":{"side":{"creationTimestamp":null,"labels":{"role":"b"}}},
            "nextContainerResources":{"side":{"limits":{"cpu":"2"}}},
            "preCheckBeforeNext":{"containersRequiredReady":["main"]},
            "containerBatchesRecord":[{"timestamp":"2026-07-01T10:00:00Z","containers":["main"]}]}"#;
        let state = State::parse(text).expect("it is well written");
        assert_eq!(state.revision, "web-5f");
        assert_eq!(state.before["main"].image_id, "i1");
        assert_eq!(
            (state.env_from_metadata, state.images, state.resources),
            (true, true, false)
        );
        assert_eq!(state.next.images["side"], "s:2");
        assert_eq!(state.next.ref_metadata["side"].labels["role"], "b");
        assert_eq!(state.required_ready, ["main"]);
        assert_eq!(State::parse(&state.to_text()), Ok(state), "written and read again");
    }

    #[test]
    fn sts_4_7_fields_of_another_release_are_kept() {
        let text = r#"{"revision":"r","keptFor":{"a":[1]},"nextContainerVolumes":null,"updateTimestamp":"1970-01-01T00:00:01Z"}"#;
        let state = State::parse(text).expect("it is well written");
        assert_eq!(
            state.to_text(),
            r#"{"keptFor":{"a":[1]},"lastContainerStatuses":null,"nextContainerVolumes":null,"revision":"r","updateTimestamp":"1970-01-01T00:00:01Z"}"#
        );
    }

    #[test]
    fn sts_4_7_what_is_empty_is_left_out_and_no_statuses_are_null() {
        let state = State {
            revision: "r".into(),
            updated_at: Timestamp::from_millis(1_500),
            ..State::default()
        };
        assert_eq!(
            state.to_text(),
            r#"{"lastContainerStatuses":null,"revision":"r","updateTimestamp":"1970-01-01T00:00:01Z"}"#
        );
    }

    #[test]
    fn sts_8_19_what_cannot_be_read_is_an_error_and_what_is_missing_is_not() {
        for bad in ["", "{", "[]", "{}", r#"{"revision":7}"#] {
            assert!(State::parse(bad).is_err(), "{bad}");
        }
        let bare = State::parse(r#"{"revision":"r","updateTimestamp":null}"#).expect("enough");
        assert_eq!(bare.updated_at, Timestamp::default());
    }
}
