//! RFC 6902 patches: what changed between the JSON received and what it should be.

use serde_json::{Map, Value, json};

/// The operations that make `new` of `old`: as few and as deep as the two allow. None if they are equal.
pub fn difference(old: &Value, new: &Value) -> Vec<Value> {
    let mut operations = Vec::new();
    compare(&mut String::new(), old, new, &mut operations);
    operations
}

fn compare(path: &mut String, old: &Value, new: &Value, operations: &mut Vec<Value>) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => objects(path, old, new, operations),
        (Value::Array(old), Value::Array(new)) => lists(path, old, new, operations),
        (old, new) if old == new => {}
        (_, new) => operations.push(json!({"op": "replace", "path": path, "value": new})),
    }
}

fn objects(path: &mut String, old: &Map<String, Value>, new: &Map<String, Value>, operations: &mut Vec<Value>) {
    for (field, before) in old {
        within(path, field, |path| match new.get(field) {
            Some(after) => compare(path, before, after, operations),
            None => operations.push(json!({"op": "remove", "path": path})),
        });
    }
    for (field, added) in new {
        if !old.contains_key(field) {
            within(path, field, |path| {
                operations.push(json!({"op": "add", "path": path, "value": added}));
            });
        }
    }
}

/// Lists that grew or shrank at one place are changed there; others of unequal length are replaced.
fn lists(path: &mut String, old: &[Value], new: &[Value], operations: &mut Vec<Value>) {
    if old.len() == new.len() {
        for (index, (before, after)) in old.iter().zip(new).enumerate() {
            within(path, &index.to_string(), |path| {
                compare(path, before, after, operations);
            });
        }
        return;
    }
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let tails = old[head..].iter().rev().zip(new[head..].iter().rev());
    let tail = tails.take_while(|(a, b)| a == b).count();
    let (gone, come) = (&old[head..old.len() - tail], &new[head..new.len() - tail]);
    if !gone.is_empty() && !come.is_empty() {
        operations.push(json!({"op": "replace", "path": path, "value": new}));
        return;
    }
    for _ in gone {
        within(path, &head.to_string(), |path| {
            operations.push(json!({"op": "remove", "path": path}));
        });
    }
    for (offset, added) in come.iter().enumerate() {
        within(path, &(head + offset).to_string(), |path| {
            operations.push(json!({"op": "add", "path": path, "value": added}));
        });
    }
}

/// Runs `step` with one more field on the path (RFC 6901).
fn within(path: &mut String, field: &str, step: impl FnOnce(&mut String)) {
    let length = path.len();
    path.push('/');
    for c in field.chars() {
        match c {
            '~' => path.push_str("~0"),
            '/' => path.push_str("~1"),
            other => path.push(other),
        }
    }
    step(path);
    path.truncate(length);
}

/// The object after the operations of [`difference`]; `None` if one of them does not fit.
pub fn apply(object: &Value, operations: &[Value]) -> Option<Value> {
    flotilla_apimachinery::patch::json_patch(object, &Value::from(operations)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_what_changed_is_in_the_patch() {
        for (old, new, patch) in [
            (json!({"a": 1}), json!({"a": 1}), json!([])),
            (
                json!({"a": {"b": 1, "c": 2}}),
                json!({"a": {"b": 1, "c": 3}}),
                json!([{"op": "replace", "path": "/a/c", "value": 3}]),
            ),
            (
                json!({"a": 1}),
                json!({"x/y~z": 2}),
                json!([{"op": "remove", "path": "/a"}, {"op": "add", "path": "/x~1y~0z", "value": 2}]),
            ),
            (
                json!([2, 3]),
                json!([1, 2, 3]),
                json!([{"op": "add", "path": "/0", "value": 1}]),
            ),
            (json!([1, 2, 3]), json!([1, 3]), json!([{"op": "remove", "path": "/1"}])),
            (
                json!([{"a": 1}, {"b": 2}]),
                json!([{"a": 1}, {"b": 3}]),
                json!([{"op": "replace", "path": "/1/b", "value": 3}]),
            ),
            (
                json!({"a": [1, 2]}),
                json!({"a": [3]}),
                json!([{"op": "replace", "path": "/a", "value": [3]}]),
            ),
        ] {
            assert_eq!(Value::from(difference(&old, &new)), patch, "{old} -> {new}");
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..4).prop_map(Value::from),
            "[a~/]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[ab~/]{1,2}", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_patch_makes_the_one_of_the_other(old in any_json(), new in any_json()) {
            let operations = difference(&old, &new);
            let mut patched = old.clone();
            let patch: json_patch::Patch = serde_json::from_value(Value::from(operations)).unwrap();
            json_patch::patch(&mut patched, &patch).unwrap();
            prop_assert_eq!(patched, new);
        }
    }
}
