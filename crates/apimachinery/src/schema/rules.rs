//! CEL rules of custom resource definitions (`x-kubernetes-validations`).
//!
//! Expressions are compiled once, when the definition is read, by the `cel` crate with Kubernetes' functions from `kube-cel`. This module
//! decides which rules are evaluated on which values, with which `oldSelf`, and words what is broken. Unlike the API server it does not
//! reckon with costs.

use super::cel::{self, compile};
use super::{Kind, Schema, validate};
use crate::field::{self, Error, Fault};
use kube_cel::cel::objects::{Key, Map, OptionalValue};
use kube_cel::cel::parser::Expression;
use kube_cel::cel::{Context, Value as Cel};
use serde_json::{Value, json};
use std::sync::Arc;

/// Longest message that a message expression may give.
const MESSAGE_LENGTH_MAX: usize = 5120;

/// A rule.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    text: String,
    program: Result<Arc<Expression>, String>,
    uses_old: bool,
    message: String,
    message_program: Option<Result<Arc<Expression>, String>>,
    reason: String,
    field_path: String,
    is_old_optional: bool,
}

impl Rule {
    /// Reads an entry of `x-kubernetes-validations`.
    pub(crate) fn read(rule: &Value) -> Self {
        let text = |name: &str| rule[name].as_str().unwrap_or_default().trim().to_owned();
        let program = compile(&text("rule"));
        let message_expression = text("messageExpression");
        Rule {
            uses_old: program.as_ref().is_ok_and(|p| p.references().has_variable("oldSelf")),
            program,
            text: text("rule"),
            message: text("message"),
            message_program: (!message_expression.is_empty()).then(|| compile(&message_expression)),
            reason: text("reason"),
            field_path: text("fieldPath"),
            is_old_optional: rule["optionalOldSelf"] == true,
        }
    }

    /// What is said if nothing better is.
    fn words(&self) -> String {
        if self.message.is_empty() {
            format!("failed rule: {}", self.text)
        } else {
            self.message.clone()
        }
    }

    /// The rule as it is named in errors about itself.
    fn name(&self) -> &str {
        if self.message.is_empty() {
            &self.text
        } else {
            &self.message
        }
    }
}

/// Whether a schema has rules at any depth.
pub(super) fn are_anywhere(schema: Schema<'_>) -> bool {
    !schema.rules().is_empty()
        || schema.properties().any(|(_, of)| are_anywhere(of))
        || schema.items().is_some_and(are_anywhere)
        || schema.values().is_some_and(are_anywhere)
}

/// What rules an object breaks; `old` is the stored one if this is an update.
pub(super) fn check(object: &Value, old: Option<&Value>, schema: Schema<'_>) -> Vec<Error> {
    if !are_anywhere(schema) {
        return Vec::new();
    }
    let context = cel::context();
    let mut errors = Vec::new();
    let place = Place {
        schema,
        path: String::new(),
        is_unchanged: old == Some(object),
    };
    walk(object, old, &place, &context, &mut errors);
    errors
}

/// Where in an object.
struct Place<'s> {
    schema: Schema<'s>,
    path: String,
    /// Whether the value, or the nearest one around it that has a stored counterpart, is as stored.
    is_unchanged: bool,
}

fn walk(value: &Value, old: Option<&Value>, place: &Place<'_>, context: &Context<'_>, errors: &mut Vec<Error>) {
    if value.is_null() {
        return;
    }
    evaluate(value, old, place, context, errors);
    let mut enter = |value: &Value, old: Option<&Value>, schema: Schema<'_>, path: String| {
        let is_unchanged = old.map_or(place.is_unchanged, |old| old == value);
        let inner = Place {
            schema,
            path,
            is_unchanged,
        };
        walk(value, old, &inner, context, errors);
    };
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let old = old.and_then(|old| old.get(name));
                if let Some(of) = place.schema.property(name) {
                    enter(value, old, of, field::child(&place.path, name));
                } else if let Some(of) = place.schema.values() {
                    enter(value, old, of, field::entry(&place.path, name));
                }
            }
        }
        Value::Array(items) => {
            let Some(of) = place.schema.items() else { return };
            for (index, item) in items.iter().enumerate() {
                let old = old.and_then(|old| validate::counterpart(item, old, place.schema));
                enter(item, old, of, field::entry(&place.path, index));
            }
        }
        _ => {}
    }
}

/// Evaluates the rules of one value.
fn evaluate(value: &Value, old: Option<&Value>, place: &Place<'_>, context: &Context<'_>, errors: &mut Vec<Error>) {
    if place.schema.rules().is_empty() {
        return;
    }
    let is_root = place.path.is_empty();
    let this = to_cel(value, Some(place.schema), is_root);
    let before = old.map(|old| to_cel(old, Some(place.schema), is_root));
    for rule in place.schema.rules() {
        if rule.uses_old && before.is_none() && !rule.is_old_optional {
            continue;
        }
        let mut scope = context.new_inner_scope();
        scope.add_variable_from_value("self", this.clone());
        if let Some(before) = &before {
            scope.add_variable_from_value("oldSelf", before.clone());
        }
        let is_kept = if rule.is_old_optional {
            let optional = before.clone().map_or_else(OptionalValue::none, OptionalValue::of);
            let mut inner = scope.new_inner_scope();
            inner.add_variable_from_value("oldSelf", Cel::Opaque(Arc::new(optional)));
            holds(rule, place, &inner)
        } else {
            holds(rule, place, &scope)
        };
        // Message expressions see a plain `oldSelf` in any case, as on the API server.
        let error = match is_kept {
            Ok(true) => continue,
            Ok(false) => broken(rule, value, place, &scope),
            Err(error) => error,
        };
        if rule.uses_old || !place.is_unchanged {
            errors.push(error);
        }
    }
}

/// Whether a rule holds; an error if it cannot be evaluated.
fn holds(rule: &Rule, place: &Place<'_>, scope: &Context<'_>) -> Result<bool, Error> {
    let path = if place.path.is_empty() { "<nil>" } else { &place.path };
    let error = |words: String| Error::invalid(path, json!(place.schema.kind().name()), words);
    let program = rule
        .program
        .as_ref()
        .map_err(|why| error(format!("rule compile error: {why}")))?;
    match scope.resolve(program) {
        Ok(result) => Ok(result == Cel::Bool(true)),
        Err(why) => {
            let words = format!("{} evaluating rule: {}", go_words(&why.to_string()), rule.name());
            Err(error(words))
        }
    }
}

/// The errors that rules meet most often, as the API server words them.
fn go_words(error: &str) -> String {
    if let Some(key) = error.strip_prefix("No such key: ") {
        return format!("no such key: {key}");
    }
    let index = error
        .strip_prefix("Index out of bounds: Int(")
        .and_then(|rest| rest.strip_suffix(')'));
    index.map_or_else(|| error.to_owned(), |index| format!("index out of bounds: {index}"))
}

/// The error for a rule that does not hold.
fn broken(rule: &Rule, value: &Value, place: &Place<'_>, scope: &Context<'_>) -> Error {
    let path = match (place.path.as_str(), rule.field_path.trim_start_matches('.')) {
        ("", "") => "<nil>".to_owned(),
        (path, "") => path.to_owned(),
        (path, below) => field::child(path, below),
    };
    let words = rule
        .message_program
        .as_ref()
        .and_then(|p| message(p.as_ref().ok()?, scope))
        .unwrap_or_else(|| rule.words());
    let fault = match rule.reason.as_str() {
        "FieldValueForbidden" => Fault::Forbidden,
        "FieldValueRequired" => Fault::Required,
        "FieldValueDuplicate" => Fault::Duplicate,
        _ => Fault::Invalid,
    };
    // The API server shows no words with this one.
    let words = if fault == Fault::Duplicate {
        String::new()
    } else {
        words
    };
    Error {
        fault,
        path,
        value: (!matches!(place.schema.kind(), Kind::Object | Kind::Array)).then(|| value.clone()),
        detail: words,
    }
}

/// What a message expression gives, if it is fit to be shown.
fn message(program: &Expression, scope: &Context<'_>) -> Option<String> {
    let Ok(Cel::String(text)) = scope.resolve(program) else {
        return None;
    };
    let text = text.trim();
    let is_fit = !text.is_empty() && text.len() <= MESSAGE_LENGTH_MAX && !text.contains('\n');
    is_fit.then(|| text.to_owned())
}

/// A value as expressions see it: fields that a schema does not declare are not there, names are escaped.
fn to_cel(value: &Value, schema: Option<Schema<'_>>, is_root: bool) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => {
            let is_float = schema.is_some_and(|s| s.kind() == Kind::Number);
            let whole = number
                .as_i64()
                .or_else(|| number.as_f64().filter(|n| n.fract() == 0.0).map(|n| n as i64));
            match whole {
                Some(whole) if !is_float => Cel::Int(whole),
                _ => Cel::Float(number.as_f64().unwrap_or(f64::NAN)),
            }
        }
        Value::String(text) => text_to_cel(text, schema.map_or("", Schema::format)),
        Value::Array(items) => {
            let of = schema.and_then(Schema::items);
            Cel::List(Arc::new(items.iter().map(|item| to_cel(item, of, false)).collect()))
        }
        Value::Object(fields) => object_to_cel(fields, schema, is_root),
    }
}

fn object_to_cel(fields: &serde_json::Map<String, Value>, schema: Option<Schema<'_>>, is_root: bool) -> Cel {
    let is_map = schema.is_none_or(|s| s.values().is_some());
    let is_resource = is_root || schema.is_some_and(Schema::is_embedded);
    let seen = fields.iter().filter_map(|(name, value)| {
        let of = schema.and_then(|s| s.field(name));
        let value = match name.as_str() {
            "metadata" if is_resource => visible_metadata(value),
            "apiVersion" | "kind" if is_resource => to_cel(value, None, false),
            _ if is_map || of.is_some() => to_cel(value, of, false),
            _ => return None,
        };
        let name = if is_map { name.clone() } else { escape(name) };
        Some((Key::String(Arc::new(name)), value))
    });
    Cel::Map(Map {
        map: Arc::new(seen.collect()),
    })
}

/// Of metadata, rules see the name only.
fn visible_metadata(metadata: &Value) -> Cel {
    let seen = ["name", "generateName"].into_iter().filter_map(|field| {
        let text = metadata.get(field)?.as_str()?;
        Some((
            Key::String(Arc::new(field.to_owned())),
            Cel::String(Arc::new(text.to_owned())),
        ))
    });
    Cel::Map(Map {
        map: Arc::new(seen.collect()),
    })
}

fn text_to_cel(text: &str, format: &str) -> Cel {
    let parse = match format {
        "date-time" => "timestamp(t)",
        "duration" => "duration(t)",
        _ => return Cel::String(Arc::new(text.to_owned())),
    };
    let mut context = Context::default();
    context.add_variable_from_value("t", Cel::String(Arc::new(text.to_owned())));
    let parsed = compile(parse).ok().and_then(|program| context.resolve(&program).ok());
    parsed.unwrap_or_else(|| Cel::String(Arc::new(text.to_owned())))
}

/// A field's name as expressions write it (`k8s.io/apiserver/pkg/cel/escaping.go`).
fn escape(name: &str) -> String {
    const RESERVED: &[&str] = &[
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ];
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}
