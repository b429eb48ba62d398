//! Which changes of a template can be made in running pods (STS-4.1).
//!
//! Templates are compared in their normal form, so that spelling and defaults force no pod to be made again. Images, cpu and memory, and
//! metadata may change; anything else, fields that are newer than we are included, may not.

use super::normal::{default_pull_policy, normal_form};
use serde_json::{Value, json};
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fmt;

/// A template to be compared, perhaps with several others: its normal form is worked out once, and only if it is needed.
#[derive(Debug)]
pub struct Comparable<'t> {
    written: &'t Value,
    normal: OnceCell<Value>,
}

impl<'t> Comparable<'t> {
    /// Of a template as it was written.
    pub fn new(written: &'t Value) -> Self {
        Comparable {
            written,
            normal: OnceCell::new(),
        }
    }

    fn normal(&self) -> &Value {
        self.normal.get_or_init(|| normal_form(self.written))
    }
}

/// One thing that changes in a running container.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerChange {
    /// The container.
    pub container: String,
    /// What of it.
    pub what: Changed,
}

/// What can change in a running container.
#[derive(Clone, Debug, PartialEq)]
pub enum Changed {
    /// The image, to this one.
    Image(String),
    /// An amount of cpu or memory.
    Resource {
        /// `limits` or `requests`.
        list: &'static str,
        /// `cpu` or `memory`.
        resource: &'static str,
        /// What it becomes.
        value: Value,
    },
}

/// Why a change cannot be made in running pods.
#[derive(Clone, Debug, PartialEq)]
pub enum Obstacle {
    /// A field came that was not there.
    Added(String, Value),
    /// A field went.
    Removed(String),
    /// A field became this, which only a new pod can have.
    Changed(String, Value),
    /// Pods would be of another quality of service class than the former.
    Class(&'static str, &'static str),
}

impl Obstacle {
    /// The field as users write it, from the template down: `spec.containers[0].env`.
    pub fn field(&self) -> &str {
        match self {
            Obstacle::Added(field, _) | Obstacle::Removed(field) | Obstacle::Changed(field, _) => field,
            Obstacle::Class(..) => "spec.containers[*].resources (quality of service class)",
        }
    }

    /// What the field should become; null if it should go.
    pub fn value(&self) -> Value {
        match self {
            Obstacle::Added(_, value) | Obstacle::Changed(_, value) => value.clone(),
            Obstacle::Removed(_) => Value::Null,
            Obstacle::Class(_, class) => (*class).into(),
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Added(field, _) => write!(f, "{field} was added"),
            Obstacle::Removed(field) => write!(f, "{field} was removed"),
            Obstacle::Changed(field, _) => write!(f, "{field} changed"),
            Obstacle::Class(from, to) => write!(f, "the quality of service class would change from {from} to {to}"),
        }
    }
}

/// What changes in the containers of a pod of template `old` when it comes to template `new`.
///
/// # Errors
///
/// The first difference that cannot be made in a running pod.
pub fn container_changes(old: &Comparable<'_>, new: &Comparable<'_>) -> Result<Vec<ContainerChange>, Obstacle> {
    if let Some(images) = images_alone(old.written, new.written) {
        return Ok(images);
    }
    let mut changes = Vec::new();
    for difference in differences(old.normal(), new.normal()) {
        if !is_pull_policy(&difference.path) {
            changes.push(take(&difference, old.written, new.written)?);
        }
    }
    pull_policies(old.written, new.written)?;
    let resizes = changes.iter().any(|c| matches!(c.what, Changed::Resource { .. }));
    let (before, after) = (quality(old.normal()), quality(new.normal()));
    if resizes && before != after {
        return Err(Obstacle::Class(before, after));
    }
    Ok(changes)
}

/// The changes, if templates differ in images only, as they were written: most updates need no normal form.
fn images_alone(old: &Value, new: &Value) -> Option<Vec<ContainerChange>> {
    let change = |difference: Difference<'_>| match steps(&difference.path)[..] {
        ["spec", "containers", _, "image"] => take(&difference, old, new).ok(),
        _ => None,
    };
    differences(old, new).into_iter().map(change).collect()
}

/// One difference between two documents.
struct Difference<'a> {
    path: Vec<String>,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
}

fn steps(path: &[String]) -> Vec<&str> {
    path.iter().map(String::as_str).collect()
}

/// Where the specs of two templates differ.
fn differences<'a>(old: &'a Value, new: &'a Value) -> Vec<Difference<'a>> {
    const NONE: &Value = &Value::Null;
    let mut found = Vec::new();
    let of = |template: &'a Value| template.get("spec").unwrap_or(NONE);
    differ(of(old), of(new), &mut vec!["spec".to_owned()], &mut found);
    found
}

/// Collects where two documents differ: lists by index.
fn differ<'a>(old: &'a Value, new: &'a Value, path: &mut Vec<String>, found: &mut Vec<Difference<'a>>) {
    let mut enter = |step: String, old: Option<&'a Value>, new: Option<&'a Value>| {
        path.push(step);
        match (old, new) {
            (Some(old), Some(new)) => differ(old, new, path, found),
            _ => found.push(Difference {
                path: path.clone(),
                old,
                new,
            }),
        }
        path.pop();
    };
    match (old, new) {
        _ if old == new => {}
        (Value::Object(a), Value::Object(b)) => {
            let fields: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for field in fields {
                enter(field.clone(), a.get(field), b.get(field));
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            for i in 0..a.len().max(b.len()) {
                enter(i.to_string(), a.get(i), b.get(i));
            }
        }
        _ => found.push(Difference {
            path: path.clone(),
            old: Some(old),
            new: Some(new),
        }),
    }
}

/// What a difference is for a container, or why it cannot be made in place. `old` and `new` are the templates as written.
fn take(difference: &Difference<'_>, old: &Value, new: &Value) -> Result<ContainerChange, Obstacle> {
    let path = steps(&difference.path);
    let is_replaced = difference.old.is_some() && difference.new.is_some();
    let of_container = |index: &str, what: Changed| {
        let name = old.pointer(&format!("/spec/containers/{index}/name"))?.as_str()?;
        Some(ContainerChange {
            container: name.to_owned(),
            what,
        })
    };
    let change = match path[..] {
        ["spec", "containers", index, "image"] if is_replaced => {
            let image = difference.new.and_then(Value::as_str).filter(|image| !image.is_empty());
            image.and_then(|image| of_container(index, Changed::Image(image.to_owned())))
        }
        ["spec", "containers", index, "resources", list, resource] if is_replaced => {
            amount(index, (list, resource), new).and_then(|what| of_container(index, what))
        }
        _ => None,
    };
    change.ok_or_else(|| {
        let field = field_name(&path);
        match (difference.old, difference.new) {
            (None, Some(new)) => Obstacle::Added(field, new.clone()),
            (_, None) => Obstacle::Removed(field),
            (Some(_), Some(new)) => Obstacle::Changed(field, new.clone()),
        }
    })
}

/// An amount of cpu or memory as it was written.
fn amount(index: &str, (list, resource): (&str, &str), new: &Value) -> Option<Changed> {
    let list = ["limits", "requests"].into_iter().find(|known| *known == list)?;
    let resource = ["cpu", "memory"].into_iter().find(|known| *known == resource)?;
    let in_list = |list: &str| new.pointer(&format!("/spec/containers/{index}/resources/{list}/{resource}"));
    // A request that is not stated follows the limit.
    let stated = in_list(list).filter(|v| !v.is_null()).or_else(|| in_list("limits"));
    stated.map(|value| Changed::Resource {
        list,
        resource,
        value: value.clone(),
    })
}

fn is_pull_policy(path: &[String]) -> bool {
    matches!(steps(path)[..], ["spec", "containers", _, "imagePullPolicy"])
}

/// A pull policy that is not stated depends on the image's tag, and the change of the image alone must not look like one of the policy.
fn pull_policies(old: &Value, new: &Value) -> Result<(), Obstacle> {
    let containers = |template: &Value| -> Vec<Value> {
        let list = template.pointer("/spec/containers").and_then(Value::as_array);
        list.cloned().unwrap_or_default()
    };
    let text = |container: &Value, field: &str| {
        let text = container.get(field).and_then(Value::as_str);
        text.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    for (index, (before, after)) in containers(old).iter().zip(&containers(new)).enumerate() {
        let stated = |container| text(container, "imagePullPolicy");
        if stated(before).is_none() && stated(after).is_none() {
            continue;
        }
        let effective = |container| {
            stated(container)
                .unwrap_or_else(|| default_pull_policy(&text(container, "image").unwrap_or_default()).to_owned())
        };
        if effective(before) != effective(after) {
            let field = format!("spec.containers[{index}].imagePullPolicy");
            return Err(Obstacle::Changed(field, json!(effective(after))));
        }
    }
    Ok(())
}

/// A path in the way users write it.
fn field_name(path: &[&str]) -> String {
    let mut name = String::new();
    for step in path {
        if !name.is_empty() && !step.is_empty() && step.bytes().all(|b| b.is_ascii_digit()) {
            name.extend(["[", step, "]"]);
        } else {
            if !name.is_empty() {
                name.push('.');
            }
            name.push_str(step);
        }
    }
    name
}

/// The quality of service class of pods of a template in normal form.
fn quality(template: &Value) -> &'static str {
    let lists = ["/spec/containers", "/spec/initContainers"];
    let containers = lists
        .iter()
        .filter_map(|list| template.pointer(list).and_then(Value::as_array))
        .flatten();
    let amount = |c: &Value, list: &str, resource: &str| {
        let value = c.pointer(&format!("/resources/{list}/{resource}"));
        value.filter(|v| v.as_str() != Some("0n")).cloned()
    };
    let (mut states_any, mut guaranteed) = (false, true);
    for container in containers {
        for resource in ["cpu", "memory"] {
            let (limit, request) = (
                amount(container, "limits", resource),
                amount(container, "requests", resource),
            );
            states_any |= limit.is_some() || request.is_some();
            guaranteed &= limit.is_some() && limit == request;
        }
    }
    match (states_any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}
