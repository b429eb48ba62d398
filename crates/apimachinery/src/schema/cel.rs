//! The dialect of CEL that Kubernetes speaks, on top of the `cel` crate and `kube-cel`.
//!
//! `cel` 0.13 has no `type()`, and its `a.?b` fails where `b` is missing instead of giving `optional.none()`. Expressions are therefore
//! rewritten after parsing, to functions of this module.

use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::{EntryExpr, Expr, operators};
use kube_cel::cel::objects::{KeyRef, OptionalValue};
use kube_cel::cel::parser::{Expression, Parser};
use kube_cel::cel::{Context, ResolveResult, Value};
use std::sync::Arc;

const OPTIONAL_SELECT: &str = "flotilla_optional_select";

/// Names of types, which `type()` gives and expressions compare it with.
const TYPES: &[&str] = &[
    "bool",
    "bytes",
    "double",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "uint",
];

/// Parses an expression.
pub(super) fn compile(text: &str) -> Result<Arc<Expression>, String> {
    let parser = Parser::default().enable_optional_syntax(true);
    let mut expression = parser.parse(text).map_err(|e| e.to_string())?;
    rewrite(&mut expression);
    Ok(Arc::new(expression))
}

/// A context with all functions, and without variables.
pub(super) fn context() -> Context<'static> {
    let mut context = Context::default().with_all();
    context.add_function(OPTIONAL_SELECT, |operand: Value, field: Arc<String>| -> ResolveResult {
        Ok(optional_select(&operand, &field))
    });
    context.add_function("type", |value: Value| -> ResolveResult { Ok(type_of(&value)) });
    for name in TYPES {
        context.add_variable_from_value(*name, type_value(name));
    }
    context
}

fn rewrite(expression: &mut Expression) {
    match &mut expression.expr {
        Expr::Call(call) => {
            if call.func_name == operators::OPT_SELECT {
                OPTIONAL_SELECT.clone_into(&mut call.func_name);
            }
            call.target.iter_mut().for_each(|target| rewrite(target));
            call.args.iter_mut().for_each(rewrite);
        }
        Expr::Comprehension(loops) => {
            for part in [
                &mut loops.iter_range,
                &mut loops.accu_init,
                &mut loops.loop_cond,
                &mut loops.loop_step,
                &mut loops.result,
            ] {
                rewrite(part);
            }
        }
        Expr::List(list) => list.elements.iter_mut().for_each(rewrite),
        Expr::Map(map) => map.entries.iter_mut().for_each(|entry| rewrite_entry(&mut entry.expr)),
        Expr::Struct(fields) => fields
            .entries
            .iter_mut()
            .for_each(|entry| rewrite_entry(&mut entry.expr)),
        Expr::Select(select) => rewrite(&mut select.operand),
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
    }
}

fn rewrite_entry(entry: &mut EntryExpr) {
    match entry {
        EntryExpr::StructField(field) => rewrite(&mut field.value),
        EntryExpr::MapEntry(entry) => {
            rewrite(&mut entry.key);
            rewrite(&mut entry.value);
        }
    }
}

/// `operand.?field`, where the operand is an object or an optional one.
fn optional_select(operand: &Value, field: &str) -> Value {
    let found = match operand {
        Value::Opaque(_) => {
            let optional = <&OptionalValue>::try_from(operand).ok();
            optional.and_then(|o| o.value()).and_then(|v| select(v, field))
        }
        other => select(other, field),
    };
    Value::Opaque(Arc::new(found.map_or_else(OptionalValue::none, OptionalValue::of)))
}

fn select(object: &Value, field: &str) -> Option<Value> {
    match object {
        Value::Map(map) => map.get(&KeyRef::String(field)).cloned(),
        _ => None,
    }
}

fn type_of(value: &Value) -> Value {
    type_value(match value {
        Value::Bool(_) => "bool",
        Value::Bytes(_) => "bytes",
        Value::Float(_) => "double",
        Value::Int(_) => "int",
        Value::List(_) => "list",
        Value::Map(_) => "map",
        Value::Null => "null_type",
        Value::String(_) => "string",
        Value::UInt(_) => "uint",
        _ => "other",
    })
}

/// A type as a value: a text that no object holds.
fn type_value(name: &str) -> Value {
    Value::String(Arc::new(format!("\u{0}type {name}")))
}
