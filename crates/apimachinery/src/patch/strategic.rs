//! Strategic merge patch: a merge patch that knows which lists are keyed (`k8s.io/apimachinery/pkg/util/strategicpatch`).
//!
//! Directives are honoured as the API server does: `$patch` (replace, delete, merge), `$deleteFromPrimitiveList/…`,
//! `$setElementOrder/…` and `$retainKeys`. The order of a merged list follows the order directive, then the patch, then the object.

use crate::schema::{PatchStrategy, Schema};
use crate::status::Status;
use serde_json::{Map, Value};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

type Object = Map<String, Value>;

/// Applies a strategic merge patch to an object of the type that `schema` describes.
///
/// Fields of the patch that the type does not have stay, directives among them that mean nothing where they are: whoever stores the
/// result drops unknown fields, as from any other object.
pub fn strategic_merge_patch(object: &Value, patch: &Value, schema: Schema<'_>) -> Result<Value, Status> {
    let Some(patch) = patch.as_object() else {
        let kind = super::go_kind(patch);
        let message = format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}");
        return Err(Status::bad_request(message));
    };
    let original = object
        .as_object()
        .ok_or_else(|| Status::bad_request("invalid JSON document"))?;
    merge_objects(original.clone(), patch.clone(), Some(schema)).map(Value::Object)
}

/// Takes null fields away, at any depth.
pub(super) fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, v| !v.is_null());
            fields.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

/// What a patch brings along has no nulls: where they would take nothing away, they mean nothing.
fn without_nulls(mut value: Value) -> Value {
    discard_nulls(&mut value);
    value
}

fn merge_objects(mut original: Object, mut patch: Object, schema: Option<Schema<'_>>) -> Result<Object, Status> {
    if let Some(directive) = patch.get(DIRECTIVE).cloned() {
        return whole_object(&directive, patch);
    }
    retain_keys(&mut original, &mut patch)?;
    ordered_lists(&mut original, &mut patch, schema)?;
    for (key, value) in patch {
        match strip_prefix(&key, DELETE_FROM_LIST)? {
            Some(list) => delete_from_list(&mut original, list, &value),
            None => merge_field(&mut original, key, value, schema)?,
        }
    }
    Ok(original)
}

/// What `$patch` makes of an object.
fn whole_object(directive: &Value, mut patch: Object) -> Result<Object, Status> {
    match directive.as_str() {
        Some("replace") => {
            patch.remove(DIRECTIVE);
            Ok(patch)
        }
        Some("delete") => Ok(Object::new()),
        _ => Err(unknown_directive(directive, &patch)),
    }
}

fn merge_field(original: &mut Object, key: String, value: Value, schema: Option<Schema<'_>>) -> Result<(), Status> {
    if value.is_null() {
        original.remove(&key);
        return Ok(());
    }
    let field = schema.and_then(|s| s.field(&key));
    let merged = match (original.remove(&key), value) {
        (Some(Value::Object(old)), Value::Object(new)) => {
            if strategy(field) == PatchStrategy::Replace {
                Some(without_nulls(Value::Object(new)))
            } else {
                Some(Value::Object(merge_objects(old, new, field)?))
            }
        }
        (Some(Value::Array(old)), Value::Array(new)) => {
            if strategy(field) == PatchStrategy::Merge {
                Some(Value::Array(merge_lists(old, new, field)?))
            } else {
                Some(without_nulls(Value::Array(new)))
            }
        }
        (_, new) => without_directives(without_nulls(new)),
    };
    if let Some(merged) = merged {
        original.insert(key, merged);
    }
    Ok(())
}

fn strategy(field: Option<Schema<'_>>) -> PatchStrategy {
    field.map_or(PatchStrategy::Default, Schema::patch_strategy)
}

fn merge_key(field: Option<Schema<'_>>) -> Option<&str> {
    field.and_then(Schema::patch_merge_key)
}

/// The value without directives, which mean nothing where there is nothing to merge with; `None` if it is one itself.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => {
            let kept = fields
                .into_iter()
                .filter_map(|(k, v)| without_directives(v).map(|v| (k, v)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        other => Some(other),
    }
}

/// `$retainKeys`: fields of the object that are not listed go.
fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), Status> {
    let bad = || Status::bad_request("invalid patch format of retainKeys");
    let Some(retained) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let retained = retained.as_array().ok_or_else(bad)?;
    let is_retained = |key: &str| retained.iter().any(|r| r == key);
    let is_plain = |key: &str| !key.starts_with(DELETE_FROM_LIST) && !key.starts_with(SET_ORDER);
    if patch
        .iter()
        .any(|(k, v)| !v.is_null() && is_plain(k) && !is_retained(k))
    {
        return Err(bad());
    }
    original.retain(|key, _| is_retained(key));
    Ok(())
}

/// `$deleteFromPrimitiveList/…`: values that go from a list.
fn delete_from_list(original: &mut Object, list: &str, values: &Value) {
    if values.is_null() {
        original.remove(list);
        return;
    }
    let (Some(Value::Array(items)), Some(values)) = (original.get_mut(list), values.as_array()) else {
        return;
    };
    items.retain(|item| !values.contains(item));
}

/// `$setElementOrder/…`: lists are merged, and then put into this order. Takes directive and list out of the patch.
fn ordered_lists(original: &mut Object, patch: &mut Object, schema: Option<Schema<'_>>) -> Result<(), Status> {
    let directives: Vec<String> = patch.keys().filter(|k| k.starts_with(SET_ORDER)).cloned().collect();
    for directive in directives {
        let order = list_of(patch.remove(&directive).unwrap_or_default())?;
        let key = strip_prefix(&directive, SET_ORDER)?.unwrap_or_default().to_owned();
        let field = schema.and_then(|s| s.field(&key));
        let old = original.get(&key).cloned().map(list_of).transpose()?;
        let new = patch.get(&key).cloned().map(list_of).transpose()?;
        agree_on_order(new.as_deref().unwrap_or_default(), &order, merge_key(field))?;
        let merged = match (&old, new) {
            (None, None) => continue,
            (Some(old), None) => old.clone(),
            (None, Some(new)) => new
                .into_iter()
                .map(without_nulls)
                .filter_map(without_directives)
                .collect(),
            (Some(old), Some(new)) if strategy(field) == PatchStrategy::Merge => merge_lists(old.clone(), new, field)?,
            (Some(_), Some(new)) => new.into_iter().map(without_nulls).collect(),
        };
        let sorted = sort(merged, &order, &old.unwrap_or_default(), merge_key(field))?;
        original.insert(key.clone(), Value::Array(sorted));
        patch.remove(&key);
    }
    Ok(())
}

fn list_of(value: Value) -> Result<Vec<Value>, Status> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(Status::internal(format!(
            "expected a []interface {{}}, but received a {}",
            go_type(&other)
        ))),
    }
}

/// Items of the patch must come in the order that the directive says, and none may be missing there.
fn agree_on_order(patch: &[Value], order: &[Value], key: Option<&str>) -> Result<(), Status> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut places = order.iter();
    for item in patch.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        let identity = identity(item, key)?;
        let mut is_found = false;
        for place in places.by_ref() {
            if self::identity(place, key)? == identity {
                is_found = true;
                break;
            }
        }
        if !is_found {
            let (patch, order) = (go_list(patch), go_list(order));
            let message = format!("The order in patch list:\n{patch}\n doesn't match {SET_ORDER} list:\n{order}\n");
            return Err(Status::internal(message));
        }
    }
    Ok(())
}

fn merge_lists(original: Vec<Value>, patch: Vec<Value>, field: Option<Schema<'_>>) -> Result<Vec<Value>, Status> {
    let Some(first) = original.first().or(patch.first()) else {
        return Ok(original);
    };
    let kind = go_type(first);
    if first.is_array() {
        return Err(Status::unprocessable());
    }
    if original.iter().chain(&patch).any(|item| go_type(item) != kind) {
        let lists = format!("[{} {}]", go_list(&original), go_list(&patch));
        return Err(Status::internal(format!(
            "list element types are not identical: {lists}"
        )));
    }
    if !first.is_object() {
        let mut merged = original.clone();
        merged.extend(patch.iter().cloned());
        let mut seen: Vec<Value> = Vec::new();
        merged.retain(|item| {
            !seen.contains(item) && {
                seen.push(item.clone());
                true
            }
        });
        return sort(merged, &patch, &original, None);
    }
    let Some(key) = merge_key(field) else {
        return Err(Status::internal("cannot merge lists without merge key for"));
    };
    let (original, patch) = special_items(original, patch, key)?;
    let merged = merge_items(original.clone(), patch.clone(), key, field.and_then(Schema::items))?;
    sort(merged, &patch, &original, Some(key))
}

/// Carries out the items with `$patch`, and gives the object's list and the patch's list without them.
fn special_items(mut original: Vec<Value>, patch: Vec<Value>, key: &str) -> Result<(Vec<Value>, Vec<Value>), Status> {
    let mut plain = Vec::new();
    let mut is_replaced = false;
    for item in patch {
        match item.get(DIRECTIVE).map(|d| d.as_str()) {
            None => plain.push(item),
            Some(Some("delete")) => {
                let gone = identity(&item, Some(key))?;
                original.retain(|old| old.get(key) != Some(gone));
            }
            Some(Some("replace")) => is_replaced = true,
            Some(Some("merge")) => return Err(Status::internal("merging lists cannot yet be specified in the patch")),
            Some(_) => {
                return Err(unknown_directive(
                    &item[DIRECTIVE],
                    item.as_object().unwrap_or(&Object::new()),
                ));
            }
        }
    }
    Ok(if is_replaced {
        (plain, Vec::new())
    } else {
        (original, plain)
    })
}

fn merge_items(
    mut merged: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
    item_schema: Option<Schema<'_>>,
) -> Result<Vec<Value>, Status> {
    for item in patch {
        let wanted = identity(&item, Some(key))?;
        match merged.iter_mut().find(|old| old.get(key) == Some(wanted)) {
            Some(place) => {
                let (Value::Object(old), Value::Object(new)) = (place.take(), item) else {
                    return Err(Status::internal("merged lists hold objects only"));
                };
                *place = Value::Object(merge_objects(old, new, item_schema)?);
            }
            None => merged.push(without_nulls(item)),
        }
    }
    Ok(merged)
}

/// What tells items of a list apart: the item itself, or the value of the merge key.
fn identity<'v>(item: &'v Value, key: Option<&str>) -> Result<&'v Value, Status> {
    let Some(key) = key else { return Ok(item) };
    let fields = item.as_object().ok_or_else(|| {
        Status::internal(format!(
            "expected a map[string]interface {{}}, but received a {}",
            go_type(item)
        ))
    })?;
    fields.get(key).ok_or_else(|| {
        Status::internal(format!(
            "map: {} does not contain declared merge key: {key}",
            go_value(item)
        ))
    })
}

/// Puts a merged list into order: what the patch names as it says, the rest as in the object, the two interleaved by the object's order.
fn sort(merged: Vec<Value>, order: &[Value], live: &[Value], key: Option<&str>) -> Result<Vec<Value>, Status> {
    let index = |list: &[Value], item: &Value| -> Result<Option<usize>, Status> {
        let wanted = identity(item, key)?;
        for (index, other) in list.iter().enumerate() {
            if identity(other, key)? == wanted {
                return Ok(Some(index));
            }
        }
        Ok(None)
    };
    let (mut named, mut rest) = (Vec::new(), Vec::new());
    for item in merged {
        let place = index(live, &item)?;
        match index(order, &item)? {
            Some(rank) => named.push((rank, place, item)),
            None => rest.push((place.unwrap_or(usize::MAX), place, item)),
        }
    }
    named.sort_by_key(|(rank, ..)| *rank);
    rest.sort_by_key(|(rank, ..)| *rank);
    let (mut named, mut rest) = (named.into_iter().peekable(), rest.into_iter().peekable());
    let mut sorted = Vec::new();
    while let (Some((_, theirs, _)), Some((_, ours, _))) = (rest.peek(), named.peek()) {
        let is_before = matches!((theirs, ours), (Some(theirs), Some(ours)) if theirs < ours);
        sorted.extend(if is_before { rest.next() } else { named.next() });
    }
    sorted.extend(rest.chain(named));
    Ok(sorted.into_iter().map(|(.., item)| item).collect())
}

/// The name behind `prefix/`, if the key is such a directive.
fn strip_prefix<'k>(key: &'k str, prefix: &str) -> Result<Option<&'k str>, Status> {
    match key.strip_prefix(prefix) {
        None => Ok(None),
        Some(rest) => match rest.strip_prefix('/') {
            Some(name) => Ok(Some(name)),
            None if prefix == SET_ORDER => Err(Status::bad_request("invalid patch format of setElementOrder list")),
            None => Err(Status::bad_request("invalid patch format of primitive list")),
        },
    }
}

fn unknown_directive(directive: &Value, patch: &Object) -> Status {
    let (directive, patch) = (go_value(directive), go_value(&Value::Object(patch.clone())));
    Status::internal(format!("unknown patch type: {directive} in map: {patch}"))
}

/// A value as Go's `%v` prints it, which some messages show.
fn go_value(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => go_list(items),
        Value::Object(fields) => {
            let fields: Vec<_> = fields.iter().map(|(k, v)| format!("{k}:{}", go_value(v))).collect();
            format!("map[{}]", fields.join(" "))
        }
        other => other.to_string(),
    }
}

fn go_list(items: &[Value]) -> String {
    format!("[{}]", items.iter().map(go_value).collect::<Vec<_>>().join(" "))
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_i64() || n.is_u64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
