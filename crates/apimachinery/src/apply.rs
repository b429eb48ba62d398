//! Server-side apply and `metadata.managedFields` (`structured-merge-diff/v6/merge`, `k8s.io/apimachinery/pkg/util/managedfields`).
//!
//! [`track`] keeps the managed fields of objects that are created, updated or patched; [`apply`] merges a configuration into an object,
//! refuses where it would change what others manage, and takes away what the applier no longer lists. What the caller has to do himself
//! is what every write needs: dropping unknown fields, defaults, validation, versions.

mod managers;
mod merge;
mod set;
mod shape;

use crate::schema::{Kind, Schema};
use crate::status::Status;
use managers::{Entry, Managers, Who};
use merge::{Comparison, compare, cut, merge};
use serde_json::{Map, Value, json};
use set::Set;
use shape::{fields, mistakes, with_declared};

/// Fields that nobody manages.
const UNMANAGED: &[&str] = &[
    "apiVersion",
    "kind",
    "metadata",
    "metadata.name",
    "metadata.namespace",
    "metadata.creationTimestamp",
    "metadata.selfLink",
    "metadata.uid",
    "metadata.clusterName",
    "metadata.generation",
    "metadata.managedFields",
    "metadata.resourceVersion",
];

/// Where `kubectl apply` keeps what was applied last.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Who writes, how and when.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'w> {
    /// The field manager.
    pub manager: &'w str,
    /// The version of the object that is written, such as `apps/v1`.
    pub version: &'w str,
    /// The subresource that is written through; empty for the object itself.
    pub subresource: &'w str,
    /// Fields that cannot be written this way, such as `status`: dotted paths.
    pub ignored: &'w [&'w str],
    /// Now, in RFC 3339 and whole seconds.
    pub now: &'w str,
}

impl Writer<'_> {
    fn who(&self, is_apply: bool) -> Who {
        Who {
            manager: self.manager.to_owned(),
            is_apply,
            subresource: self.subresource.to_owned(),
            version: if is_apply {
                String::new()
            } else {
                self.version.to_owned()
            },
        }
    }
}

/// Sets the managed fields of an object that is about to be created (`live` is `None`) or changed by other means than apply.
pub fn track(live: Option<&Value>, new: &mut Value, schema: Schema<'_>, writer: &Writer<'_>) {
    let mut managers = sent_managers(live, new, writer);
    if live.is_some() && managers.0.is_empty() {
        // Objects that never had managed fields get none before somebody applies.
        without_managers(new);
        return;
    }
    without_managers(new);
    let old = live.map_or_else(|| nothing(new, schema), bare);
    note_update(&mut managers, &old, new, schema, writer);
    managers.cap();
    managers.write_to(new);
    if live.is_some_and(|live| differs_in_times_only(live, new)) {
        let stored = live.and_then(|live| live["metadata"].get("managedFields")).cloned();
        if let Some((metadata, stored)) = new.get_mut("metadata").and_then(Value::as_object_mut).zip(stored) {
            metadata.insert("managedFields".to_owned(), stored);
        }
    }
}

/// The entries to go by: those that were sent, if any; a list of one empty entry resets them.
fn sent_managers(live: Option<&Value>, new: &Value, writer: &Writer<'_>) -> Managers {
    let stored = || live.map(Managers::of).unwrap_or_default();
    if !writer.subresource.is_empty() {
        return stored();
    }
    match new["metadata"]
        .get("managedFields")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
    {
        Some([]) => Managers::default(),
        Some([only]) if only.as_object().is_some_and(Map::is_empty) => Managers::default(),
        _ => {
            let sent = Managers::of(new);
            if sent.0.is_empty() { stored() } else { sent }
        }
    }
}

fn note_update(managers: &mut Managers, old: &Value, new: &Value, schema: Schema<'_>, writer: &Writer<'_>) {
    let comparison = compare(old, new, schema).excluding(&Set::of_fields(writer.ignored));
    take_from_others(managers, &comparison, None);
    let own = comparison
        .modified
        .union(&comparison.added)
        .difference(&Set::of_fields(UNMANAGED));
    if own.is_empty() {
        return;
    }
    let who = writer.who(false);
    let before = managers.get(&who).map(|entry| entry.fields.clone()).unwrap_or_default();
    managers.put(Entry {
        who,
        version: writer.version.to_owned(),
        time: Some(writer.now.to_owned()),
        fields: own.union(&before),
    });
}

/// Whoever had fields that changed or went has them no more.
fn take_from_others(managers: &mut Managers, comparison: &Comparison, except: Option<&Who>) {
    let changed = comparison.modified.union(&comparison.added).union(&comparison.removed);
    for entry in managers.0.iter_mut().filter(|entry| Some(&entry.who) != except) {
        entry.fields = entry.fields.difference(&changed);
    }
    managers.0.retain(|entry| !entry.fields.is_empty());
}

/// Applies a configuration. Without `live` it makes the object.
pub fn apply(
    live: Option<&Value>,
    config: &Value,
    schema: Schema<'_>,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, Status> {
    check_config(config, schema, writer)?;
    let mut managers = live.map(Managers::of).unwrap_or_default();
    let old = live.map_or_else(|| nothing(config, schema), bare);
    if managers.0.is_empty() && live.is_some() {
        let before = Writer {
            manager: "before-first-apply",
            subresource: "",
            ..*writer
        };
        note_update(&mut managers, &nothing(config, schema), &old, schema, &before);
    }
    let (mut new, managers) = merge_config(&old, config, managers, schema, writer, force)?;
    keep_last_applied(&mut new, config, writer);
    managers.write_to(&mut new);
    Ok(new)
}

fn check_config(config: &Value, schema: Schema<'_>, writer: &Writer<'_>) -> Result<(), Status> {
    let version = config["apiVersion"].as_str().unwrap_or_default();
    if version != writer.version {
        let kind = config["kind"].as_str().unwrap_or_default();
        return Err(Status::bad_request(format!(
            "invalid object type: {version}, Kind={kind}"
        )));
    }
    if config["metadata"].get("managedFields").is_some_and(|m| !m.is_null()) {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    let found = mistakes(config, Some(schema), "");
    if found.is_empty() {
        return Ok(());
    }
    let text = |name: &str| config["metadata"][name].as_str().unwrap_or_default();
    let kind = config["kind"].as_str().unwrap_or_default();
    let words = match &found[..] {
        [only] => only.clone(),
        many => format!("errors:\n  {}", many.join("\n  ")),
    };
    let (namespace, name) = (text("namespace"), text("name"));
    Err(Status::internal(format!(
        "failed to create typed patch object ({namespace}/{name}; {version}, Kind={kind}): {words}"
    )))
}

/// The merged object and its managers, or who is in the way.
fn merge_config(
    old: &Value,
    config: &Value,
    mut managers: Managers,
    schema: Schema<'_>,
    writer: &Writer<'_>,
    force: bool,
) -> Result<(Value, Managers), Status> {
    let who = writer.who(true);
    let ignored = Set::of_fields(writer.ignored);
    let last = managers.get(&who).cloned();
    let mut new = merge(Some(old), Some(config), Some(schema)).unwrap_or_default();
    let set = fields(config, Some(schema)).recursive_difference(&ignored);
    managers.put(Entry {
        who: who.clone(),
        version: writer.version.to_owned(),
        time: last.as_ref().and_then(|entry| entry.time.clone()),
        fields: set,
    });
    if let Some(last) = last.as_ref().filter(|last| !last.fields.is_empty()) {
        new = prune(&new, &managers, &last.fields, schema);
    }
    let comparison = compare(old, &new, schema).excluding(&ignored);
    let changed = comparison.modified.union(&comparison.added);
    let mut conflicts: Vec<(Who, Set)> = Vec::new();
    for entry in managers.0.iter().filter(|entry| entry.who != who) {
        let set = entry.fields.intersection(&changed);
        if !set.is_empty() {
            conflicts.push((entry.who.clone(), set));
        }
    }
    if !force && !conflicts.is_empty() {
        refuse_conflicts(conflicts, old, schema, writer)?;
    }
    take_from_others(&mut managers, &comparison, Some(&who));
    let unmanaged = Set::of_fields(UNMANAGED);
    for entry in managers.0.iter_mut().filter(|entry| entry.who == who) {
        entry.fields = entry.fields.difference(&unmanaged);
        if *old != new {
            entry.time = Some(writer.now.to_owned());
        }
    }
    Ok((new, managers))
}

/// Takes away what the applier listed before, lists no more, and nobody else manages.
fn prune(merged: &Value, managers: &Managers, last: &Set, schema: Schema<'_>) -> Value {
    let schema = Some(schema);
    let declared = |set: &Set| with_declared(set, schema);
    let all = declared(&fields(merged, schema));
    let without = |set: &Set| cut(merged, set, schema).unwrap_or_else(|| json!({}));
    let pruned = without(&declared(last));
    // What others, or the applier now, manage comes back.
    let managed = managers
        .0
        .iter()
        .fold(Set::default(), |all, entry| all.union(&entry.fields));
    let kept = declared(&fields(&pruned, schema)).union(&declared(&managed));
    let pruned = without(&all.difference(&kept));
    // What the applier did not have before comes back as well.
    let gone = all.difference(&declared(&fields(&pruned, schema)));
    without(&gone.intersection(&declared(last)))
}

/// Says who is in the way. What `kubectl apply` itself applied before it used server-side apply is not.
fn refuse_conflicts(
    mut conflicts: Vec<(Who, Set)>,
    old: &Value,
    schema: Schema<'_>,
    writer: &Writer<'_>,
) -> Result<(), Status> {
    if writer.manager == "kubectl"
        && let Some(allowed) = allowed_by_last_applied(old, schema, writer)
    {
        for (_, set) in &mut conflicts {
            *set = set.difference(&allowed);
        }
        conflicts.retain(|(_, set)| !set.is_empty());
    }
    if conflicts.is_empty() {
        return Ok(());
    }
    conflicts.sort_by_key(|(who, _)| who.words());
    let paths: Vec<(String, String)> = conflicts
        .iter()
        .flat_map(|(who, set)| set.paths().into_iter().map(|path| (who.words(), path)))
        .collect();
    let message = match &paths[..] {
        [(who, path)] => format!("Apply failed with 1 conflict: conflict with {who}: {path}"),
        _ => {
            let mut lines = Vec::new();
            for (who, set) in &conflicts {
                lines.push(format!("conflicts with {}:", who.words()));
                lines.extend(set.paths().iter().map(|path| format!("- {path}")));
            }
            format!("Apply failed with {} conflicts: {}", paths.len(), lines.join("\n"))
        }
    };
    let cause = |(who, path): &(String, String)| json!({"reason": "FieldManagerConflict", "message": format!("conflict with {who}"), "field": path});
    let mut status = Status::new(409, "Conflict", message);
    let causes: Vec<_> = paths.iter().map(cause).collect();
    status.details = json!({"causes": causes}).as_object().cloned();
    Err(status)
}

/// Fields that `kubectl apply` applied last on the client's side, and that still are as it left them.
fn allowed_by_last_applied(live: &Value, schema: Schema<'_>, writer: &Writer<'_>) -> Option<Set> {
    let text = live["metadata"]["annotations"][LAST_APPLIED].as_str()?;
    let last: Value = serde_json::from_str(text).ok()?;
    if last["apiVersion"] != writer.version {
        return None;
    }
    let comparison = compare(&last, live, schema);
    let still = fields(&last, Some(schema))
        .difference(&comparison.modified)
        .difference(&comparison.added);
    Some(still.difference(&comparison.removed))
}

/// kubectl goes on to find what was applied last, whichever way it was.
fn keep_last_applied(new: &mut Value, config: &Value, writer: &Writer<'_>) {
    let annotations = new.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    let Some(annotation) = annotations
        .and_then(|a| a.get_mut(LAST_APPLIED))
        .filter(|_| writer.manager == "kubectl")
    else {
        return;
    };
    let mut config = config.clone();
    if let Some(annotations) = config
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.remove(LAST_APPLIED);
    }
    *annotation = json!(format!("{config}\n"));
}

/// The object without its managed fields.
fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    without_managers(&mut object);
    object
}

fn without_managers(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

/// An object of the kind before anything is in it. Built-in types have parts that are always there, as their Go structs have.
fn nothing(object: &Value, schema: Schema<'_>) -> Value {
    let mut nothing = json!({});
    if !schema.is_embedded() {
        nothing = zero(schema);
    }
    for name in ["apiVersion", "kind"] {
        nothing[name] = object[name].clone();
    }
    nothing
}

fn zero(schema: Schema<'_>) -> Value {
    let required = schema.bounds().map_or(&[][..], |bounds| bounds.required.as_slice());
    let parts = schema.properties().filter_map(|(name, property)| {
        let value = match property.default() {
            Some(Value::Object(fields)) if fields.is_empty() && property.kind() == Kind::Object => zero(property),
            Some(default) => default.clone(),
            None if required.iter().any(|r| r == name) => Value::Null,
            None => return None,
        };
        Some((name.to_owned(), value))
    });
    Value::Object(parts.collect())
}

/// Whether two objects are the same but for times of managed fields.
fn differs_in_times_only(old: &Value, new: &Value) -> bool {
    let timeless = |object: &Value| {
        let mut managers = Managers::of(object);
        managers.0.iter_mut().for_each(|entry| entry.time = None);
        managers.0.sort_by_key(|entry| (entry.who.words(), entry.who.is_apply));
        managers
    };
    bare(old) == bare(new) && timeless(old) == timeless(new)
}
