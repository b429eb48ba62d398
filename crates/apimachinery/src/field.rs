//! Errors about a field of an object, in the API server's words (`k8s.io/apimachinery/pkg/util/validation/field`).

use serde_json::{Value, json};
use std::fmt;

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// It refers to something that is not there.
    NotFound,
    /// It must have a value.
    Required,
    /// It must be unique and is not.
    Duplicate,
    /// Its value is malformed or out of bounds.
    Invalid,
    /// Its value is none of the allowed ones.
    NotSupported,
    /// It may not have a value here.
    Forbidden,
    /// Its value is too long.
    TooLong,
    /// It has too many items.
    TooMany,
    /// Its value is of another type than the schema says.
    TypeInvalid,
}

impl Fault {
    /// The word by which `Status.details.causes` names it.
    pub const fn reason(self) -> &'static str {
        match self {
            Fault::NotFound => "FieldValueNotFound",
            Fault::Required => "FieldValueRequired",
            Fault::Duplicate => "FieldValueDuplicate",
            Fault::Invalid => "FieldValueInvalid",
            Fault::NotSupported => "FieldValueNotSupported",
            Fault::Forbidden => "FieldValueForbidden",
            Fault::TooLong => "FieldValueTooLong",
            Fault::TooMany => "FieldValueTooMany",
            Fault::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Fault::NotFound => "Not found",
            Fault::Required => "Required value",
            Fault::Duplicate => "Duplicate value",
            Fault::Invalid | Fault::TypeInvalid => "Invalid value",
            Fault::NotSupported => "Unsupported value",
            Fault::Forbidden => "Forbidden",
            Fault::TooLong => "Too long",
            Fault::TooMany => "Too many",
        }
    }

    /// Whether the message shows the value.
    const fn shows_value(self) -> bool {
        !matches!(self, Fault::Required | Fault::Forbidden | Fault::TooLong)
    }
}

/// Something wrong with one field.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    /// What.
    pub fault: Fault,
    /// Which field, as Kubernetes writes paths: `spec.containers[0].name`, and `<nil>` for none.
    pub path: String,
    /// The value, if the message is to show it.
    pub value: Option<Value>,
    /// Why; may be empty.
    pub detail: String,
}

impl Error {
    /// An error that shows the value.
    pub fn new(fault: Fault, path: impl Into<String>, value: Value, detail: impl Into<String>) -> Self {
        Error {
            fault,
            path: path.into(),
            value: Some(value),
            detail: detail.into(),
        }
    }

    /// A malformed value.
    pub fn invalid(path: impl Into<String>, value: Value, detail: impl Into<String>) -> Self {
        Error::new(Fault::Invalid, path, value, detail)
    }

    /// An error that does not show the value.
    pub fn without_value(fault: Fault, path: impl Into<String>, detail: impl Into<String>) -> Self {
        Error {
            fault,
            path: path.into(),
            value: None,
            detail: detail.into(),
        }
    }

    /// A missing value.
    pub fn required(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Error::without_value(Fault::Required, path, detail)
    }

    /// The value is none of `allowed`.
    pub fn not_supported<'a>(
        path: impl Into<String>,
        value: Value,
        allowed: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let quoted: Vec<_> = allowed.into_iter().map(quote).collect();
        let detail = if quoted.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", quoted.join(", "))
        };
        Error::new(Fault::NotSupported, path, value, detail)
    }

    /// The message without the path.
    pub fn body(&self) -> String {
        let mut body = self.fault.words().to_owned();
        if let Some(value) = self.value.as_ref().filter(|_| self.fault.shows_value()) {
            body.push_str(": ");
            body.push_str(&match value {
                Value::String(text) => quote(text),
                other => other.to_string(),
            });
        }
        if !self.detail.is_empty() {
            body.push_str(": ");
            body.push_str(&self.detail);
        }
        body
    }

    /// The entry of `Status.details.causes`.
    pub fn cause(&self) -> Value {
        json!({"reason": self.fault.reason(), "message": self.body(), "field": self.path})
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.body())
    }
}

impl std::error::Error for Error {}

/// Several errors in one message, each text once, as the API server joins them.
pub fn join(errors: &[Error]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for text in errors.iter().map(Error::to_string) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.len() {
        1 => texts.remove(0),
        _ => format!("[{}]", texts.join(", ")),
    }
}

/// The path of a field below another.
pub fn child(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// The path of an entry of a list or map.
pub fn entry(path: &str, key: impl fmt::Display) -> String {
    format!("{path}[{key}]")
}

/// A text in double quotes, as Go's `%q` prints it.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_ascii_control() => quoted.extend(format!("\\x{:02x}", c as u32).chars()),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_as_kubernetes_writes_them() {
        let rows = [
            (
                Error::invalid("spec.replicas", json!(-1), "must be greater than or equal to 0"),
                "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                Error::invalid("a", json!("say \"x\""), ""),
                "a: Invalid value: \"say \\\"x\\\"\"",
            ),
            (
                Error::not_supported("a.b", json!("c"), ["x", "y"]),
                "a.b: Unsupported value: \"c\": supported values: \"x\", \"y\"",
            ),
            (Error::required("a", ""), "a: Required value"),
            (
                Error::new(Fault::Duplicate, "a[1]", json!({"name": "b"}), ""),
                "a[1]: Duplicate value: {\"name\":\"b\"}",
            ),
            (
                Error::without_value(Fault::Invalid, "a", "must be so"),
                "a: Invalid value: must be so",
            ),
        ];
        for (error, text) in rows {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn several_errors_are_listed_once_each() {
        let error = Error::required("a", "");
        assert_eq!(join(std::slice::from_ref(&error)), "a: Required value");
        let other = Error::required("b", "");
        assert_eq!(
            join(&[error.clone(), other, error]),
            "[a: Required value, b: Required value]"
        );
    }
}
