//! Comparing, merging and cutting values along fields that can have different managers (`structured-merge-diff/v6/typed`).

use super::set::{Set, field};
use super::shape::{Shape, field_schema, is_empty, of, step};
use crate::schema::Schema;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// How two values differ.
#[derive(Clone, Debug, Default)]
pub(super) struct Comparison {
    pub(super) added: Set,
    pub(super) removed: Set,
    pub(super) modified: Set,
}

impl Comparison {
    /// Without fields that do not count.
    pub(super) fn excluding(&self, ignored: &Set) -> Self {
        Comparison {
            added: self.added.recursive_difference(ignored),
            removed: self.removed.recursive_difference(ignored),
            modified: self.modified.recursive_difference(ignored),
        }
    }
}

/// How `new` differs from `old`.
pub(super) fn compare(old: &Value, new: &Value, schema: Schema<'_>) -> Comparison {
    let mut comparison = Comparison::default();
    compare_at(Some(old), Some(new), Some(schema), &mut Vec::new(), &mut comparison);
    comparison
}

fn compare_at(
    old: Option<&Value>,
    new: Option<&Value>,
    schema: Option<Schema<'_>>,
    path: &mut Vec<String>,
    out: &mut Comparison,
) {
    let Some(judged) = new.filter(|n| !n.is_null()).or(old).or(new) else {
        return;
    };
    let shape = if is_empty(old) && is_empty(new) {
        Shape::Leaf
    } else {
        of(schema, judged)
    };
    match shape {
        Shape::Leaf => match (old, new) {
            (None, _) => out.added.insert(path),
            (_, None) => out.removed.insert(path),
            (Some(old), Some(new)) if old != new => out.modified.insert(path),
            _ => {}
        },
        Shape::Fields => {
            for (name, (old, new)) in zip_fields(old, new) {
                path.push(field(name));
                compare_at(old, new, field_schema(schema, name).0, path, out);
                path.pop();
            }
            note_whole(old, new, path, out);
        }
        Shape::Items(list_type, of_items) => {
            let mut pairs: BTreeMap<String, (Option<&Value>, Option<&Value>)> = BTreeMap::new();
            for item in items(old) {
                if let Ok(step) = step(item, list_type, of_items) {
                    pairs.entry(step).or_default().0 = Some(item);
                }
            }
            for item in items(new) {
                if let Ok(step) = step(item, list_type, of_items) {
                    pairs.entry(step).or_default().1 = Some(item);
                }
            }
            for (step, (old, new)) in pairs {
                path.push(step);
                compare_at(old, new, of_items, path, out);
                path.pop();
            }
            note_whole(old, new, path, out);
        }
    }
}

/// A whole that came or went counts itself, besides its parts.
fn note_whole(old: Option<&Value>, new: Option<&Value>, path: &[String], out: &mut Comparison) {
    if old.is_none() {
        out.added.insert(path);
    } else if new.is_none() {
        out.removed.insert(path);
    }
}

type Pair<'v> = (Option<&'v Value>, Option<&'v Value>);

fn zip_fields<'v>(old: Option<&'v Value>, new: Option<&'v Value>) -> BTreeMap<&'v str, Pair<'v>> {
    let mut pairs: BTreeMap<&str, Pair<'_>> = BTreeMap::new();
    for (name, value) in old.and_then(Value::as_object).into_iter().flatten() {
        pairs.entry(name).or_default().0 = Some(value);
    }
    for (name, value) in new.and_then(Value::as_object).into_iter().flatten() {
        pairs.entry(name).or_default().1 = Some(value);
    }
    pairs
}

fn items(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    list.and_then(Value::as_array).into_iter().flatten()
}

/// The live value with everything that a configuration says.
pub(super) fn merge(live: Option<&Value>, config: Option<&Value>, schema: Option<Schema<'_>>) -> Option<Value> {
    let judged = config.filter(|c| !c.is_null()).or(live).or(config)?;
    let shape = if is_empty(live) && is_empty(config) {
        Shape::Leaf
    } else {
        of(schema, judged)
    };
    match shape {
        Shape::Leaf => config.or(live).cloned(),
        Shape::Fields => {
            let pairs = zip_fields(live, config).into_iter();
            let merged: Map<_, _> = pairs
                .filter_map(|(name, (live, config))| {
                    merge(live, config, field_schema(schema, name).0).map(|value| (name.to_owned(), value))
                })
                .collect();
            (!merged.is_empty()).then_some(Value::Object(merged))
        }
        Shape::Items(list_type, of_items) => {
            let keyed = |list| -> Vec<(String, &Value)> {
                items(list)
                    .filter_map(|item| step(item, list_type, of_items).ok().map(|step| (step, item)))
                    .collect()
            };
            let merged = merge_items(&keyed(live), &keyed(config), of_items);
            (!merged.is_empty()).then_some(Value::Array(merged))
        }
    }
}

/// Items of both lists: those of the configuration in its order, and those of the live list where they were relative to shared ones.
fn merge_items(live: &[(String, &Value)], config: &[(String, &Value)], schema: Option<Schema<'_>>) -> Vec<Value> {
    let find = |list: &[(String, &Value)], step: &str| list.iter().position(|(s, _)| s == step);
    let mut shared = config
        .iter()
        .map(|(step, _)| step)
        .filter(|step| find(live, step).is_some());
    let mut next_shared = shared.next();
    let (mut merged, mut left, mut right) = (Vec::new(), 0, 0);
    let mut taken: Vec<&str> = Vec::new();
    while left < live.len() || right < config.len() {
        if let (Some((step, old)), Some((wanted, new))) = (live.get(left), config.get(right)) {
            if step == wanted {
                taken.push(step);
                merged.extend(merge(Some(old), Some(new), schema));
                (left, right) = (left + 1, right + 1);
                next_shared = shared.next();
                continue;
            }
            if find(config, step).is_some() && next_shared.is_some_and(|next| next != step) {
                // Shared, but its turn comes later.
                left += 1;
                continue;
            }
        }
        if let Some((step, old)) = live.get(left) {
            if find(config, step).is_none() {
                merged.push((*old).clone());
                left += 1;
                continue;
            }
            if taken.contains(&step.as_str()) {
                left += 1;
            }
        }
        if let Some((step, new)) = config.get(right) {
            taken.push(step);
            merged.extend(merge(find(live, step).map(|at| live[at].1), Some(new), schema));
            right += 1;
            if next_shared == Some(step) {
                next_shared = shared.next();
            }
        }
    }
    merged
}

/// The value without the fields and items of a set; `None` if nothing is left.
pub(super) fn cut(value: &Value, set: &Set, schema: Option<Schema<'_>>) -> Option<Value> {
    match (of(schema, value), value) {
        (Shape::Fields, Value::Object(fields)) if !fields.is_empty() => {
            let kept = fields.iter().filter_map(|(name, value)| {
                let step = field(name);
                if set.members.contains(&step) {
                    return None;
                }
                let value = match set.below(&step) {
                    Some(below) => cut(value, below, field_schema(schema, name).0).unwrap_or_default(),
                    None => value.clone(),
                };
                Some((name.clone(), value))
            });
            let kept: Map<_, _> = kept.collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        (Shape::Items(list_type, of_items), Value::Array(items)) if !items.is_empty() => {
            let kept = items.iter().filter_map(|item| {
                let Ok(step) = step(item, list_type, of_items) else {
                    return Some(item.clone());
                };
                if set.members.contains(&step) {
                    return None;
                }
                Some(match set.below(&step) {
                    Some(below) => cut(item, below, of_items).unwrap_or_default(),
                    None => item.clone(),
                })
            });
            let kept: Vec<_> = kept.collect();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        // Atomic values are cut as a whole, by whoever holds them.
        (Shape::Leaf, Value::Object(_) | Value::Array(_)) | (Shape::Fields | Shape::Items(..), _) => None,
        (Shape::Leaf, scalar) => Some(scalar.clone()),
    }
}
