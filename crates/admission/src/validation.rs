//! What is refused when an object is created or changed (STS-7.3 and STS-7.4), and what is accepted with a warning.
//!
//! Where the definition checks the same in CEL, the words are the same (`flotilla_api::messages`). As there, an object that
//! broke a rule when it was stored can still be edited: a problem that the stored object has too, is not held against a change that leaves
//! it as it is.

mod claims;
mod cloneset;
mod in_place;
mod lifecycle;
mod problems;
mod selector;
mod statefulset;
mod strategy;
mod template;
mod update;

pub(crate) use problems::{Problems, Reach};

use crate::convert::Kind;
use crate::{Memory, Operation, Reply, Request, Verdict, convert};
use flotilla_api::statefulset::v1alpha1;
use serde_json::Value;
use std::borrow::Cow;

/// The verdict on a new or changed set.
pub(crate) fn workload(request: &Request<'_>, kind: Kind, memory: &dyn Memory) -> Reply {
    let Some(object) = request.object else {
        return Reply::allow();
    };
    if kind == Kind::StatefulSet && request.version == v1alpha1::VERSION {
        // The stored object counts, too: whoever drops the label would drop the fields.
        let left_out = [Some(object), request.old_object]
            .into_iter()
            .flatten()
            .find(|set| convert::fit::is_left_out(set));
        if let Some(set) = left_out {
            return Verdict::deny(422, convert::fit::refusal(set)).into();
        }
    }
    let in_hub = |object| in_hub(kind, request.version, object);
    let new = in_hub(object);
    let old = request
        .old_object
        .filter(|_| request.operation == Operation::Update)
        .map(in_hub);
    let check = |received: &Value, set: &Value| match kind {
        Kind::StatefulSet => statefulset::check(set),
        Kind::CloneSet => cloneset::check(received, set, request.version),
    };
    let mut warnings = Vec::new();
    let mut problems = check(object, &new);
    if let Some(old) = &old {
        // What was stored is looked at only if there is something to excuse.
        if !problems.is_empty() {
            problems.excuse(&check(request.old_object.unwrap_or(&Value::Null), old));
        }
        match kind {
            Kind::StatefulSet => update::check(request, old, &new, memory, &mut problems, &mut warnings),
            Kind::CloneSet => cloneset::check_change(request, old, &new, memory, &mut problems, &mut warnings),
        }
    } else {
        statefulset::check_name(request, &new, kind, memory, &mut problems);
        if kind == Kind::CloneSet {
            cloneset::check_creation(request, &new, &mut problems, &mut warnings);
        }
    }
    match kind {
        Kind::StatefulSet => statefulset::warn(request, &new, &mut warnings),
        Kind::CloneSet => cloneset::warn(request, &new, memory, &mut warnings),
    }
    let verdict = problems.refusal().map_or(Verdict::Allow, Verdict::Deny);
    Reply { verdict, warnings }
}

/// An object as the stored version has it, so that there is one set of rules.
fn in_hub<'v>(kind: Kind, version: &str, object: &'v Value) -> Cow<'v, Value> {
    if version != v1alpha1::VERSION {
        return Cow::Borrowed(object);
    }
    let mut converted = object.clone();
    convert::up(kind, &mut converted);
    Cow::Owned(converted)
}
