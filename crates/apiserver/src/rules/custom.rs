//! Objects of kinds that definitions add: their schema and its rules.

use super::Errors;
use crate::store::Server;
use crate::types::TypeInfo;
use flotilla_apimachinery::schema;
use serde_json::Value;

pub(super) fn defaults(server: &Server, info: &TypeInfo, object: &mut Value) {
    if let Some(schema) = server.known_schemas().kind(&info.group, &info.version, &info.kind) {
        schema::fill_defaults(object, schema);
    }
}

/// Holds an object to its schema and the rules in it.
pub(super) fn validate(server: &Server, info: &TypeInfo, old: Option<&Value>, new: &Value, errors: &mut Errors) {
    if let Some(schema) = server.known_schemas().kind(&info.group, &info.version, &info.kind) {
        errors.extend(schema::validate(new, old, schema));
    }
}
