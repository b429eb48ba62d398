//! One kind of set in the words of the other, or why that cannot be said.

use flotilla_api::names::{IN_PLACE_UPDATE_READY, KRUISE_POD_READY};
use flotilla_model::SetKind;
use serde_json::{Map, Value, json};
use std::fmt;

/// Annotation of kubectl: the manifest as it was applied, of the old kind. Kept, it would mislead the next `kubectl apply`.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The longest that Advanced sets can wait until a pod counts as available.
const MIN_READY_SECONDS_MAX: i64 = 300;
/// Fields that both kinds have in the same place.
const ALIKE: [&str; 9] = [
    "replicas",
    "selector",
    "template",
    "volumeClaimTemplates",
    "serviceName",
    "podManagementPolicy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "ordinals",
];

/// A field that the other kind cannot express.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Inexpressible {
    pub(super) field: String,
    pub(super) why: String,
}

impl fmt::Display for Inexpressible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.why)
    }
}

fn no(field: &str, why: &str) -> Inexpressible {
    Inexpressible {
        field: field.to_owned(),
        why: why.to_owned(),
    }
}

/// The kind that a set does not have.
pub(super) const fn other(kind: SetKind) -> SetKind {
    match kind {
        SetKind::Native => SetKind::Advanced,
        SetKind::Advanced => SetKind::Native,
        // Nothing else becomes one, nor one anything else.
        SetKind::Clone => SetKind::Clone,
    }
}

/// The same set as an object of the other kind.
pub(super) fn convert(set: &Value, from: SetKind) -> Result<Value, Vec<Inexpressible>> {
    let empty = Map::new();
    let spec = set["spec"].as_object().unwrap_or(&empty);
    let mut problems = of_metadata(set);
    let mut converted = Map::new();
    for field in ALIKE {
        if let Some(value) = spec.get(field).filter(|value| !is_empty(value)) {
            converted.insert(field.to_owned(), value.clone());
        }
    }
    for template in converted
        .get_mut("volumeClaimTemplates")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        // Filled in by the API server, which does not take it back.
        template.as_object_mut().map(|template| template.remove("status"));
    }
    let strategy = match from {
        SetKind::Native => to_advanced(spec, &mut problems),
        SetKind::Advanced => to_native(spec, &mut converted, &mut problems),
        SetKind::Clone => Map::new(),
    };
    if !strategy.is_empty() {
        converted.insert("updateStrategy".to_owned(), Value::Object(strategy));
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok(json!({
        "apiVersion": other(from).resource().api_version(), "kind": "StatefulSet", "metadata": metadata(set), "spec": converted,
    }))
}

fn metadata(set: &Value) -> Value {
    let mut metadata = json!({"name": set["metadata"]["name"], "namespace": set["metadata"]["namespace"]});
    for field in ["labels", "annotations"] {
        if let Some(map) = set["metadata"][field].as_object() {
            let kept: Map<_, _> = map
                .iter()
                .filter(|(k, _)| *k != LAST_APPLIED)
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
            metadata[field] = Value::Object(kept);
        }
    }
    metadata
}

fn of_metadata(set: &Value) -> Vec<Inexpressible> {
    let mut problems = Vec::new();
    let owners = set.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    for owner in owners.into_iter().flatten() {
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        let why = format!(
            "{} {} owns it, and would make the old kind again; migrate it there",
            text("kind"),
            text("name")
        );
        problems.push(no("metadata.ownerReferences", &why));
    }
    let finalizers = set.pointer("/metadata/finalizers").and_then(Value::as_array);
    // The API server's own stand there while a migration that was interrupted goes on.
    for finalizer in finalizers
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .filter(|f| f.contains('/'))
    {
        let why = format!("{finalizer} would hold the old object up, with its pods without a controller");
        problems.push(no("metadata.finalizers", &why));
    }
    problems
}

/// The update strategy of an Advanced set.
fn to_advanced(spec: &Map<String, Value>, problems: &mut Vec<Inexpressible>) -> Map<String, Value> {
    const OWN: [&str; 2] = ["updateStrategy", "minReadySeconds"];
    refuse_unknown(spec, &OWN, "spec", problems);
    let strategy = spec
        .get("updateStrategy")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    refuse_among(&strategy, &["type", "rollingUpdate"], "spec.updateStrategy", problems);
    let mut rolling = strategy
        .get("rollingUpdate")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    refuse_among(
        &rolling,
        &["partition", "maxUnavailable"],
        "spec.updateStrategy.rollingUpdate",
        problems,
    );
    let is_rolling = kind_of(&strategy) == "RollingUpdate";
    if !["RollingUpdate", "OnDelete"].contains(&kind_of(&strategy)) {
        problems.push(no(
            "spec.updateStrategy.type",
            "an Advanced StatefulSet knows RollingUpdate and OnDelete",
        ));
    }
    let is_parallel = spec
        .get("podManagementPolicy")
        .is_some_and(|policy| policy == "Parallel");
    if !is_parallel && rolling.get("maxUnavailable").is_some_and(|max| *max != json!(1)) {
        problems.push(no(
            "spec.updateStrategy.rollingUpdate.maxUnavailable",
            "an Advanced StatefulSet takes more than 1 only with podManagementPolicy Parallel",
        ));
    }
    let min_ready = spec.get("minReadySeconds").and_then(Value::as_i64).unwrap_or(0);
    if min_ready > MIN_READY_SECONDS_MAX {
        problems.push(no("spec.minReadySeconds", "an Advanced StatefulSet takes at most 300"));
    } else if min_ready > 0 && !is_rolling {
        problems.push(no(
            "spec.minReadySeconds",
            "an Advanced StatefulSet has it only with updateStrategy RollingUpdate",
        ));
    } else if min_ready > 0 {
        rolling.insert("minReadySeconds".to_owned(), json!(min_ready));
    }
    strategy_of(&strategy, rolling)
}

/// The update strategy of a native set, and its `minReadySeconds`.
fn to_native(
    spec: &Map<String, Value>,
    converted: &mut Map<String, Value>,
    problems: &mut Vec<Inexpressible>,
) -> Map<String, Value> {
    refuse_fields_of_advanced(spec, problems);
    let strategy = object(spec, "updateStrategy");
    let mut rolling = object(&strategy, "rollingUpdate");
    refuse_rolling_of_advanced(&mut rolling, problems);
    let min_ready = rolling.remove("minReadySeconds");
    if let Some(seconds) = min_ready.filter(|s| s.as_i64().unwrap_or(0) > 0) {
        converted.insert("minReadySeconds".to_owned(), seconds);
    }
    // The default. Clusters in which the field is not enabled drop it, and then nothing is lost.
    if rolling.get("maxUnavailable") == Some(&json!(1)) {
        rolling.remove("maxUnavailable");
    }
    let known = ["partition", "maxUnavailable"];
    refuse_among(&rolling, &known, "spec.updateStrategy.rollingUpdate", problems);
    strategy_of(&strategy, rolling)
}

/// What a native set does not have at all.
fn refuse_fields_of_advanced(spec: &Map<String, Value>, problems: &mut Vec<Inexpressible>) {
    const ABSENT: [&str; 4] = ["reserveOrdinals", "lifecycle", "scaleStrategy", "specialPodsSelectors"];
    let own = [&ABSENT[..], &["updateStrategy", "volumeClaimUpdateStrategy"]].concat();
    refuse_unknown(spec, &own, "spec", problems);
    for field in ABSENT {
        if spec.get(field).is_some_and(|value| !is_empty(value)) {
            problems.push(no(&format!("spec.{field}"), "a native StatefulSet has no such field"));
        }
    }
    let expands = spec.get("volumeClaimUpdateStrategy").and_then(|s| s["type"].as_str());
    if expands.is_some_and(|kind| kind != "OnDelete" && !kind.is_empty()) {
        let why = "a native StatefulSet never changes claims";
        problems.push(no("spec.volumeClaimUpdateStrategy", why));
    }
    let gates = spec.get("template").and_then(|t| t.pointer("/spec/readinessGates"));
    let gates = gates.and_then(Value::as_array).into_iter().flatten();
    for gate in gates.filter_map(|gate| gate["conditionType"].as_str()) {
        if [IN_PLACE_UPDATE_READY, KRUISE_POD_READY].contains(&gate) {
            let why =
                format!("nobody sets {gate} on pods of a native StatefulSet, so that new ones would never be ready");
            problems.push(no("spec.template.spec.readinessGates", &why));
        }
    }
}

/// What a native set does not have of rolling updates; it is taken out.
fn refuse_rolling_of_advanced(rolling: &mut Map<String, Value>, problems: &mut Vec<Inexpressible>) {
    let mut refuse = |field: &str, why: &str| {
        problems.push(no(&format!("spec.updateStrategy.rollingUpdate.{field}"), why));
    };
    let policy = rolling.remove("podUpdatePolicy");
    if policy.is_some_and(|policy| !is_empty(&policy) && policy != "ReCreate") {
        let why = "a native StatefulSet does not update in place; set it to ReCreate first";
        refuse("podUpdatePolicy", why);
    }
    if rolling.remove("paused") == Some(json!(true)) {
        let why = "a native StatefulSet cannot be paused; resume it, or hold it by its partition";
        refuse("paused", why);
    }
    // An empty one changes the order already.
    if rolling.remove("unorderedUpdate").is_some_and(|value| !value.is_null()) {
        refuse("unorderedUpdate", "a native StatefulSet has no such field");
    }
    if rolling
        .remove("inPlaceUpdateStrategy")
        .is_some_and(|value| !is_empty(&value))
    {
        refuse("inPlaceUpdateStrategy", "a native StatefulSet has no such field");
    }
}

fn object(map: &Map<String, Value>, field: &str) -> Map<String, Value> {
    map.get(field).and_then(Value::as_object).cloned().unwrap_or_default()
}

fn strategy_of(strategy: &Map<String, Value>, rolling: Map<String, Value>) -> Map<String, Value> {
    let mut converted = Map::new();
    if let Some(kind) = strategy.get("type").filter(|kind| !is_empty(kind)) {
        converted.insert("type".to_owned(), kind.clone());
    }
    if kind_of(strategy) == "RollingUpdate" && !rolling.is_empty() {
        converted.insert("rollingUpdate".to_owned(), Value::Object(rolling));
    }
    converted
}

fn kind_of(strategy: &Map<String, Value>) -> &str {
    let kind = strategy
        .get("type")
        .and_then(Value::as_str)
        .filter(|kind| !kind.is_empty());
    kind.unwrap_or("RollingUpdate")
}

fn refuse_unknown(spec: &Map<String, Value>, own: &[&str], path: &str, problems: &mut Vec<Inexpressible>) {
    let known: Vec<&str> = ALIKE.iter().chain(own).copied().collect();
    refuse_among(spec, &known, path, problems);
}

fn refuse_among(map: &Map<String, Value>, known: &[&str], path: &str, problems: &mut Vec<Inexpressible>) {
    let unknown = map
        .iter()
        .filter(|(key, value)| !known.contains(&key.as_str()) && !is_empty(value));
    problems.extend(unknown.map(|(key, _)| {
        no(
            &format!("{path}.{key}"),
            "this version of Flotilla does not know the field",
        )
    }));
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// Fields of `sent` that the API server would not keep, by path.
pub(super) fn lost(sent: &Value, kept: &Value, path: &str) -> Vec<String> {
    match (sent, kept) {
        (Value::Object(sent), Value::Object(kept)) => sent
            .iter()
            .filter(|(_, value)| !is_empty(value))
            .flat_map(|(key, value)| lost(value, kept.get(key).unwrap_or(&Value::Null), &format!("{path}.{key}")))
            .collect(),
        (Value::Array(sent), Value::Array(kept)) if sent.len() == kept.len() => {
            let pairs = sent.iter().zip(kept).enumerate();
            pairs
                .flat_map(|(i, (sent, kept))| lost(sent, kept, &format!("{path}[{i}]")))
                .collect()
        }
        // Of single values only that they are there: quantities come back in another form.
        (_, Value::Null) | (Value::Array(_), _) => vec![path.to_owned()],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
