//! Refusals: `metav1.Status` objects in the API server's words (`k8s.io/apimachinery/pkg/api/errors`).

use crate::field;
use serde_json::{Map, Value, json};
use std::fmt;

/// A group and a kind or resource in it; the core group is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Qualified {
    /// The API group.
    pub group: String,
    /// The kind (`StatefulSet`) or the resource (`statefulsets`).
    pub name: String,
}

impl Qualified {
    /// A kind or resource of a group.
    pub fn new(group: impl Into<String>, name: impl Into<String>) -> Self {
        Qualified {
            group: group.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for Qualified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

/// A refusal.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// The HTTP status code.
    pub code: u16,
    /// The word for programs, such as `NotFound`; empty if there is none.
    pub reason: &'static str,
    /// The words for people.
    pub message: String,
    /// What it is about, as an object.
    pub details: Option<Map<String, Value>>,
}

impl Status {
    /// A refusal without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Status {
            code,
            reason,
            message: message.into(),
            details: None,
        }
    }

    /// 400: the request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Status::new(400, "BadRequest", message)
    }

    /// 404: there is no such object.
    pub fn not_found(resource: &Qualified, name: &str) -> Self {
        Status::about(
            404,
            "NotFound",
            format!("{resource} {} not found", field::quote(name)),
            resource,
            name,
        )
    }

    /// 409: there is one already.
    pub fn already_exists(resource: &Qualified, name: &str) -> Self {
        let message = format!("{resource} {} already exists", field::quote(name));
        Status::about(409, "AlreadyExists", message, resource, name)
    }

    /// 409: the object is not as the request supposed.
    pub fn conflict(resource: &Qualified, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {resource} {}: {why}",
            field::quote(name)
        );
        Status::about(409, "Conflict", message, resource, name)
    }

    /// 403: it may not be done.
    pub fn forbidden(resource: &Qualified, name: &str, why: &str) -> Self {
        let message = match (resource.name.is_empty(), name.is_empty()) {
            (true, _) => format!("forbidden: {why}"),
            (false, true) => format!("{resource} is forbidden: {why}"),
            (false, false) => format!("{resource} {} is forbidden: {why}", field::quote(name)),
        };
        Status::about(403, "Forbidden", message, resource, name)
    }

    /// 422: fields of the object are wrong.
    pub fn invalid(kind: &Qualified, name: &str, errors: &[field::Error]) -> Self {
        let mut message = format!("{kind} {} is invalid", field::quote(name));
        if !errors.is_empty() {
            message = format!("{message}: {}", field::join(errors));
        }
        let mut status = Status::about(422, "Invalid", message, kind, name);
        let causes = errors.iter().map(field::Error::cause).collect();
        status.details_mut().insert("causes".to_owned(), Value::Array(causes));
        status
    }

    fn about(code: u16, reason: &'static str, message: String, what: &Qualified, name: &str) -> Self {
        let mut status = Status::new(code, reason, message);
        let details = status.details_mut();
        for (key, value) in [("name", name), ("group", &what.group), ("kind", &what.name)] {
            if !value.is_empty() {
                details.insert(key.to_owned(), json!(value));
            }
        }
        status
    }

    /// 422: a patch that cannot be carried out. The API server does not say why.
    pub fn unprocessable() -> Self {
        let message = "the server rejected our request due to an error in our request";
        let mut status = Status::new(422, "Invalid", message);
        status.details_mut();
        status
    }

    /// 500: something went wrong that the API server has no word for.
    pub fn internal(message: impl Into<String>) -> Self {
        Status::new(500, "", message)
    }

    fn details_mut(&mut self) -> &mut Map<String, Value> {
        self.details.get_or_insert_default()
    }

    /// The body of the answer.
    pub fn to_json(&self) -> Value {
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            body["reason"] = json!(self.reason);
        }
        if let Some(details) = &self.details {
            body["details"] = Value::Object(details.clone());
        }
        body
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bodies recorded from kube-apiserver 1.36.
    #[test]
    fn bodies_are_those_of_the_api_server() {
        let pods = Qualified::new("", "pods");
        assert_eq!(
            Status::not_found(&pods, "web").to_json(),
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "pods \"web\" not found",
                "reason": "NotFound", "details": {"name": "web", "kind": "pods"}, "code": 404,
            })
        );
        let why = crate::names::dns_subdomain("Bad").join("; ");
        let error = field::Error::invalid("metadata.name", json!("Bad"), why);
        let words = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and \
                     end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
        assert_eq!(
            Status::invalid(&Qualified::new("", "ConfigMap"), "Bad", &[error]).to_json(),
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": format!("ConfigMap \"Bad\" is invalid: metadata.name: Invalid value: \"Bad\": {words}"), "reason": "Invalid",
                "details": {"name": "Bad", "kind": "ConfigMap", "causes": [{
                    "reason": "FieldValueInvalid", "message": format!("Invalid value: \"Bad\": {words}"), "field": "metadata.name",
                }]},
                "code": 422,
            })
        );
        assert_eq!(
            Status::unprocessable().to_json(),
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "the server rejected our request due to an error in our request", "reason": "Invalid", "details": {},
                "code": 422,
            })
        );
    }
}
