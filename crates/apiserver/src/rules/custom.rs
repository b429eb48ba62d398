//! Objects of kinds that definitions add: their schema and its rules.

use super::Errors;
use crate::store::Server;
use crate::types::TypeInfo;
use flotilla_apimachinery::{field, schema};
use serde_json::{Value, json};

pub(super) fn defaults(server: &Server, info: &TypeInfo, object: &mut Value) {
    if let Some(schema) = server.known_schemas().kind(&info.group, &info.version, &info.kind) {
        schema::fill_defaults(object, schema);
    }
}

/// The subresource scale cannot read a count that is no number, and says so after the schema.
fn unreadable_count(info: &TypeInfo, object: &Value) -> Option<field::Error> {
    let path = info.custom.as_ref()?.scale["specReplicasPath"].as_str()?;
    let (text, kind) = match object.pointer(&path.replace('.', "/"))? {
        Value::String(text) => (text.clone(), "string"),
        Value::Bool(truth) => (truth.to_string(), "bool"),
        _ => return None,
    };
    let why = format!("{path} accessor error: {text} is of the type {kind}, expected int64");
    Some(field::Error::invalid(path, json!(0), why))
}

/// Holds an object to its schema and the rules in it.
pub(super) fn validate(server: &Server, info: &TypeInfo, old: Option<&Value>, new: &Value, errors: &mut Errors) {
    if let Some(schema) = server.known_schemas().kind(&info.group, &info.version, &info.kind) {
        let found = schema::validate(new, old, schema);
        // What is said last is that rules were not looked at.
        let rest = found.iter().take_while(|error| error.path != "<nil>").count();
        let mut found = found.into_iter();
        errors.extend(found.by_ref().take(rest));
        errors.extend(unreadable_count(info, new));
        errors.extend(found);
    }
}
