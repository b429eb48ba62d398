//! Whether a custom resource is as its definition says, in the API server's words.
//!
//! Three steps, as in `apiextensions-apiserver/pkg/registry/customresource`: types and bounds; keys of lists; CEL rules. An update is
//! judged mildly: what was stored already may stay, so an error about a value that the update does not change is none.

use super::{Bounds, Kind, ListType, Schema, rules};
use crate::field::{self, Error, Fault};
use serde_json::{Value, json};

/// All that is wrong with an object; `old` is the stored one if this is an update.
pub fn validate(object: &Value, old: Option<&Value>, schema: Schema<'_>) -> Vec<Error> {
    let mut errors = check(object, old, schema, "");
    errors.extend(schema.counts().iter().filter_map(|path| count_error(object, path)));
    let stored_lists_are_wrong = old.is_some_and(|old| !list_errors(old, schema, "").is_empty());
    if !stored_lists_are_wrong {
        errors.extend(list_errors(object, schema, ""));
    }
    if errors.iter().any(|e| is_blocking(e.fault)) {
        if rules::are_anywhere(schema) {
            let words = "some validation rules were not checked because the object was invalid; correct the existing errors to \
                         complete validation";
            errors.push(Error::invalid("<nil>", Value::Null, words));
        }
    } else {
        errors.extend(rules::check(object, old, schema));
    }
    errors
}

/// What the scale subresource could not show.
fn count_error(object: &Value, path: &str) -> Option<Error> {
    let count = object.pointer(&path.replace('.', "/"))?.as_i64()?;
    let words = if count < 0 {
        "should be a non-negative integer".to_owned()
    } else if count > i64::from(i32::MAX) {
        format!("should be less than or equal to {}", i32::MAX)
    } else {
        return None;
    };
    Some(Error::invalid(path, json!(count), words))
}

/// Rules are not evaluated on objects that are wrong in such a way.
fn is_blocking(fault: Fault) -> bool {
    matches!(
        fault,
        Fault::NotSupported | Fault::Required | Fault::TooLong | Fault::TooMany | Fault::TypeInvalid
    )
}

/// Types and bounds of a value and everything in it.
fn check(value: &Value, old: Option<&Value>, schema: Schema<'_>, path: &str) -> Vec<Error> {
    let mut errors = Vec::new();
    errors.extend(type_error(value, schema, path));
    if !value.is_null() {
        if let Some(bounds) = schema.bounds() {
            errors.extend(combined(value, schema, bounds, path));
            errors.extend(bound_errors(value, bounds, path));
        }
        errors.extend(format_error(value, schema, path));
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(of) = schema.field(name) {
                    errors.extend(check(
                        value,
                        old.and_then(|o| o.get(name)),
                        of,
                        &field::child(path, name),
                    ));
                }
            }
        }
        Value::Array(items) => {
            if let Some(of) = schema.items() {
                for (index, item) in items.iter().enumerate() {
                    let old = old.and_then(|old| counterpart(item, old, schema));
                    errors.extend(check(item, old, of, &field::entry(path, index)));
                }
            }
        }
        _ => {}
    }
    if old == Some(value) {
        errors.clear();
    }
    errors
}

/// The item of the stored list that is the same by the keys of the list.
pub(super) fn counterpart<'o>(item: &Value, old: &'o Value, schema: Schema<'_>) -> Option<&'o Value> {
    let ListType::Map(keys) = schema.list_type() else {
        return None;
    };
    old.as_array()?
        .iter()
        .find(|other| keys.iter().all(|key| item.get(key) == other.get(key)))
}

/// What a value is, in the words of schemas.
fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn type_error(value: &Value, schema: Schema<'_>, path: &str) -> Option<Error> {
    let (kind, found) = (schema.kind(), type_name(value));
    let is_whole = value.as_f64().is_some_and(|number| number.fract() == 0.0);
    let is_right = match (kind, found) {
        (_, "null") => schema.is_nullable() || kind == Kind::Any,
        (Kind::Any, _) | (Kind::IntOrString, "string") | (Kind::Number, "integer") => true,
        (Kind::IntOrString | Kind::Integer, "integer" | "number") => is_whole,
        (kind, found) => kind.name() == found,
    };
    let detail = format!("{path} in body must be of type {}: \"{found}\"", kind.name());
    (!is_right).then(|| Error::new(Fault::TypeInvalid, named(path), json!(found), detail))
}

/// The object itself has no path.
fn named(path: &str) -> &str {
    if path.is_empty() { "<nil>" } else { path }
}

fn bound_errors(value: &Value, bounds: &Bounds, path: &str) -> Vec<Error> {
    let mut errors = Vec::new();
    match value {
        Value::String(text) => errors.extend(text_error(text, bounds, path)),
        Value::Number(_) => errors.extend(number_errors(value, bounds, path)),
        Value::Array(items) => {
            let (size, (least, most)) = (items.len() as u64, bounds.items);
            if let Some(least) = least.filter(|least| size < *least) {
                let words = format!("{path} in body should have at least {least} items");
                errors.push(Error::invalid(named(path), json!(size), words));
            }
            errors.extend(most.filter(|most| size > *most).map(|most| too_many(size, most, path)));
        }
        Value::Object(fields) => {
            let (size, (least, most)) = (fields.len() as u64, bounds.properties);
            if let Some(least) = least.filter(|least| size < *least) {
                let words = format!("{path} in body should have at least {least} properties");
                errors.push(Error::invalid(named(path), json!(size), words));
            }
            errors.extend(most.filter(|most| size > *most).map(|most| too_many(size, most, path)));
            let missing = bounds.required.iter().filter(|name| !fields.contains_key(*name));
            errors.extend(missing.map(|name| Error::required(field::child(path, name), "")));
        }
        _ => {}
    }
    if !bounds.allowed.is_empty() && !bounds.allowed.contains(value) {
        let texts: Vec<_> = bounds
            .allowed
            .iter()
            .map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned))
            .collect();
        errors.push(Error::not_supported(
            named(path),
            value.clone(),
            texts.iter().map(String::as_str),
        ));
    }
    errors
}

fn too_many(size: u64, most: u64, path: &str) -> Error {
    let items = if most == 1 { "item" } else { "items" };
    Error::new(
        Fault::TooMany,
        named(path),
        json!(size),
        format!("must have at most {most} {items}"),
    )
}

/// The first thing that is wrong with a text.
fn text_error(text: &str, bounds: &Bounds, path: &str) -> Option<Error> {
    let (size, (least, most)) = (text.chars().count() as u64, bounds.length);
    if let Some(most) = most.filter(|most| size > *most) {
        let bytes = if most == 1 { "byte" } else { "bytes" };
        let words = format!("may not be more than {most} {bytes}");
        return Some(Error::without_value(Fault::TooLong, named(path), words));
    }
    if let Some(least) = least.filter(|least| size < *least) {
        let words = format!("{path} in body should be at least {least} chars long");
        return Some(Error::invalid(named(path), json!(text), words));
    }
    let pattern = bounds.pattern.as_ref()?;
    let words = match &pattern.regex {
        Ok(regex) if regex.is_match(text) => return None,
        Ok(_) => format!("{path} in body should match '{}'", pattern.text),
        Err(why) => format!(
            "{path} in body should match '{}, but pattern is invalid: {why}'",
            pattern.text
        ),
    };
    Some(Error::invalid(named(path), json!(text), words))
}

fn number_errors(value: &Value, bounds: &Bounds, path: &str) -> Vec<Error> {
    let number = value.as_f64().unwrap_or_default();
    let mut words = Vec::new();
    let mut errors: Vec<Error> = multiple_error(value, bounds, path).into_iter().collect();
    if let Some((most, is_exclusive)) = bounds.maximum {
        if is_exclusive && number >= most {
            words.push(format!("should be less than {most}"));
        } else if number > most {
            words.push(format!("should be less than or equal to {most}"));
        }
    }
    if let Some((least, is_exclusive)) = bounds.minimum {
        if is_exclusive && number <= least {
            words.push(format!("should be greater than {least}"));
        } else if number < least {
            words.push(format!("should be greater than or equal to {least}"));
        }
    }
    let error = |words: &String| Error::invalid(named(path), value.clone(), format!("{path} in body {words}"));
    errors.extend(words.iter().map(error));
    errors
}

/// Whole numbers are divided as such, for which the API server cuts the factor down to a whole number as well.
fn multiple_error(value: &Value, bounds: &Bounds, path: &str) -> Option<Error> {
    let factor = bounds.multiple_of?;
    let number = value.as_f64()?;
    if value.is_f64() {
        let words = format!("{path} in body should be a multiple of {factor}");
        return ((number / factor).fract() != 0.0).then(|| Error::invalid(named(path), value.clone(), words));
    }
    let whole = factor.trunc();
    if whole < 1.0 {
        let words = format!("factor MultipleOf declared for {path} must be positive: {whole}");
        return Some(Error::invalid(named(path), json!(whole as i64), words));
    }
    let words = format!("{path} in body should be a multiple of {whole}");
    ((number / whole).fract() != 0.0).then(|| Error::invalid(named(path), value.clone(), words))
}

/// Numbers must fit into their format. Formats of texts are checked as far as custom resources commonly use them.
fn format_error(value: &Value, schema: Schema<'_>, path: &str) -> Option<Error> {
    let format = schema.format();
    match value {
        Value::Number(number) if matches!(schema.kind(), Kind::Integer) => {
            let is_whole = number.as_f64().is_none_or(|n| n.fract() == 0.0);
            let fits = is_whole && (format != "int32" || number.as_i64().is_none_or(|n| i32::try_from(n).is_ok()));
            let format = match format {
                "" => "(default format)".to_owned(),
                format => format!("with format {format}"),
            };
            let words = format!("Checked value must be of type integer {format} in {path}");
            (!fits).then(|| Error::invalid("<nil>", json!(""), words))
        }
        Value::String(text) if schema.kind() == Kind::String && !is_of_format(text, format) => {
            let words = format!("{path} in body must be of type {format}: {}", field::quote(text));
            Some(Error::new(Fault::TypeInvalid, named(path), json!(text), words))
        }
        _ => None,
    }
}

fn is_of_format(text: &str, format: &str) -> bool {
    let is_digits = |part: &str, count: usize| part.len() == count && part.bytes().all(|b| b.is_ascii_digit());
    let is_date = |text: &str| {
        let parts: Vec<_> = text.split('-').collect();
        matches!(parts[..], [y, m, d] if is_digits(y, 4) && is_digits(m, 2) && is_digits(d, 2))
    };
    match format {
        "date" => is_date(text),
        "date-time" | "datetime" => text.split_once(['T', 't', ' ']).is_some_and(|(date, time)| {
            let time = time.trim_end_matches(['Z', 'z']);
            is_date(date) && time.len() >= 8 && time.split(':').take(2).all(|part| is_digits(part, 2))
        }),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        _ => true,
    }
}

/// `allOf`, `anyOf`, `oneOf` and `not`.
fn combined(value: &Value, schema: Schema<'_>, bounds: &Bounds, path: &str) -> Vec<Error> {
    let judge = |places: &[usize]| -> Vec<Vec<Error>> {
        places
            .iter()
            .map(|place| check(value, None, schema.other(*place), path))
            .collect()
    };
    let whole = |words: String| Error::invalid("<nil>", json!(""), words);
    let (mut errors, quoted) = (Vec::new(), field::quote(path));
    let any = judge(&bounds.any_of);
    if !any.is_empty() && any.iter().all(|e| !e.is_empty()) {
        errors.push(whole(format!("{quoted} must validate at least one schema (anyOf)")));
        errors.extend(any.into_iter().min_by_key(Vec::len).unwrap_or_default());
    }
    let one = judge(&bounds.one_of);
    let valid = one.iter().filter(|e| e.is_empty()).count();
    if !one.is_empty() && valid != 1 {
        let found = if valid == 0 {
            "Found none valid".to_owned()
        } else {
            format!("Found {valid} valid alternatives")
        };
        errors.push(whole(format!(
            "{quoted} must validate one and only one schema (oneOf). {found}"
        )));
        if valid == 0 {
            errors.extend(one.into_iter().min_by_key(Vec::len).unwrap_or_default());
        }
    }
    let all = judge(&bounds.all_of);
    let valid = all.iter().filter(|e| e.is_empty()).count();
    if valid != all.len() {
        let none = if valid == 0 { ". None validated" } else { "" };
        errors.extend(all.into_iter().flatten());
        errors.push(whole(format!("{quoted} must validate all the schemas (allOf){none}")));
    }
    if bounds
        .not
        .is_some_and(|place| check(value, None, schema.other(place), path).is_empty())
    {
        errors.push(whole(format!("{quoted} must not validate the schema (not)")));
    }
    errors
}

/// Items that are the same by what tells them apart.
fn list_errors(value: &Value, schema: Schema<'_>, path: &str) -> Vec<Error> {
    let mut errors = Vec::new();
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(of) = schema.field(name) {
                    errors.extend(list_errors(value, of, &field::child(path, name)));
                }
            }
        }
        Value::Array(items) => {
            errors.extend(duplicates(items, schema.list_type(), path));
            if let Some(of) = schema.items() {
                for (index, item) in items.iter().enumerate() {
                    errors.extend(list_errors(item, of, &field::entry(path, index)));
                }
            }
        }
        _ => {}
    }
    errors
}

fn duplicates(items: &[Value], list_type: &ListType, path: &str) -> Vec<Error> {
    let identity = |item: &Value| match list_type {
        ListType::Map(keys) => {
            let present = keys
                .iter()
                .filter_map(|key| item.get(key).map(|value| (key.clone(), value.clone())));
            Value::Object(present.collect())
        }
        _ => item.clone(),
    };
    let identities: Vec<_> = match list_type {
        ListType::Atomic => return Vec::new(),
        _ => items.iter().map(identity).collect(),
    };
    let mut errors: Vec<Error> = Vec::new();
    for (index, found) in identities.iter().enumerate() {
        // Each is reported once, at its second place.
        if identities[..index].iter().filter(|other| *other == found).count() == 1 {
            errors.push(Error::new(
                Fault::Duplicate,
                field::entry(path, index),
                found.clone(),
                "",
            ));
        }
    }
    errors
}
