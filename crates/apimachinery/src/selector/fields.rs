//! Field selectors (`k8s.io/apimachinery/pkg/fields`), and the fields by which objects can be selected.

use crate::status::Status;
use serde_json::Value;

/// One comparison.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Term {
    field: String,
    value: String,
    is_equal: bool,
}

/// A field selector. All its terms must hold; one without any selects everything.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

/// Fields of built-in kinds that can be selected by besides `metadata.name` and `metadata.namespace`.
const FIELDS: &[(&str, &str, &[&str])] = &[
    (
        "",
        "Pod",
        &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
    ),
    (
        "",
        "Event",
        &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
    ),
    (
        "events.k8s.io",
        "Event",
        &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
    ),
    ("", "Node", &["spec.unschedulable"]),
    ("", "Namespace", &["status.phase"]),
    ("", "Secret", &["type"]),
    ("", "Service", &["spec.clusterIP", "spec.type"]),
    ("", "ReplicationController", &["status.replicas"]),
    ("apps", "ReplicaSet", &["status.replicas"]),
];

impl FieldSelector {
    /// Reads the text of `?fieldSelector=`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let terms = parts.into_iter().filter(|p| !p.is_empty()).map(|part| {
            let (field, operator, value) =
                split_term(part).ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{part}'"))?;
            Ok(Term {
                field: field.to_owned(),
                value: unescape(value)?,
                is_equal: operator != "!=",
            })
        });
        Ok(FieldSelector {
            terms: terms.collect::<Result<_, String>>()?,
        })
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The value that the field must have, if it must have a certain one. `metadata.name` makes a list the list of one object.
    pub fn required(&self, field: &str) -> Option<&str> {
        self.terms
            .iter()
            .find(|t| t.is_equal && t.field == field)
            .map(|t| t.value.as_str())
    }

    /// Refuses fields by which objects of this kind cannot be selected. `more` are selectable fields that a custom resource definition
    /// adds.
    pub fn check(&self, group: &str, kind: &str, is_custom: bool, more: &[&str]) -> Result<(), Status> {
        let known = FIELDS
            .iter()
            .find(|(g, k, _)| *g == group && *k == kind)
            .map_or(&[][..], |(_, _, f)| f);
        for term in &self.terms {
            let field = term.field.as_str();
            let is_cluster_wide = group.is_empty() && matches!(kind, "Node" | "Namespace");
            let is_known = field == "metadata.name"
                || field == "metadata.namespace" && !is_cluster_wide
                || known.contains(&field)
                || more.contains(&field);
            if !is_known {
                return Err(Status::bad_request(not_supported(field, group, kind, is_custom)));
            }
        }
        Ok(())
    }

    /// Whether an object is selected.
    pub fn matches(&self, object: &Value) -> bool {
        self.terms
            .iter()
            .all(|term| (text_of(object, &term.field) == term.value) == term.is_equal)
    }
}

/// Each group has its own words for it.
fn not_supported(field: &str, group: &str, kind: &str, is_custom: bool) -> String {
    if is_custom {
        return format!("field label not supported: {field}");
    }
    match (group, kind) {
        ("", "Pod" | "Event" | "Node" | "Namespace" | "Secret" | "Service") | ("events.k8s.io", "Event") => {
            format!("field label not supported: {field}")
        }
        _ => format!(
            "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            crate::field::quote(field)
        ),
    }
}

/// A selectable field as text; an absent one is the empty text, or what its default means.
fn text_of(object: &Value, path: &str) -> String {
    let (place, default) = match path {
        "status.podIP" | "status.podIPs" => ("/status/podIP".to_owned(), ""),
        "spec.hostNetwork" | "spec.unschedulable" => (format!("/{}", path.replace('.', "/")), "false"),
        "source" => ("/source/component".to_owned(), ""),
        _ => (format!("/{}", path.replace('.', "/")), ""),
    };
    match object.pointer(&place) {
        None | Some(Value::Null) => default.to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// The text between commas that no backslash precedes.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut is_escaped) = (0, false);
    for (index, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            ',' => {
                terms.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn split_term(term: &str) -> Option<(&str, &str, &str)> {
    term.char_indices().find_map(|(index, _)| {
        let operator = ["!=", "==", "="].into_iter().find(|o| term[index..].starts_with(o))?;
        Some((&term[..index], operator, &term[index + operator.len()..]))
    })
}

fn unescape(text: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => plain.push(escaped),
                other => {
                    let sequence = other.map(String::from).unwrap_or_default();
                    return Err(format!("invalid field selector: invalid escape sequence: \\{sequence}"));
                }
            },
            ',' | '=' => {
                return Err(format!(
                    "invalid field selector: unescaped character in value: {}",
                    c as u32
                ));
            }
            other => plain.push(other),
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_select_as_kubectl_does() {
        let pod = json!({
            "metadata": {"name": "web-0", "namespace": "default"},
            "spec": {"nodeName": "node-1"}, "status": {"phase": "Running", "podIP": "10.0.0.1"},
        });
        for (text, expected) in [
            ("", true),
            ("metadata.name=web-0", true),
            ("metadata.name==web-0,status.phase!=Failed", true),
            ("metadata.name!=web-0", false),
            ("spec.nodeName=", false),
            ("status.nominatedNodeName=", true),
            ("spec.hostNetwork=false", true),
            ("status.podIP=10.0.0.1", true),
            ("metadata.name=web\\,0", false),
        ] {
            let selector = FieldSelector::parse(text).unwrap();
            assert_eq!(selector.matches(&pod), expected, "{text}");
            assert!(selector.check("", "Pod", false, &[]).is_ok());
        }
        let selector = FieldSelector::parse("metadata.name=a,metadata.namespace!=b").unwrap();
        assert_eq!(selector.required("metadata.name"), Some("a"));
        assert_eq!(selector.required("metadata.namespace"), None);
    }

    /// Messages recorded from kube-apiserver 1.36.
    #[test]
    fn fields_that_cannot_be_selected_by_are_refused() {
        let selector = FieldSelector::parse("foo=bar").unwrap();
        for (group, kind, is_custom, words) in [
            ("", "Pod", false, "field label not supported: foo"),
            ("events.k8s.io", "Event", false, "field label not supported: foo"),
            ("apps.kruise.io", "StatefulSet", true, "field label not supported: foo"),
            (
                "apps",
                "StatefulSet",
                false,
                "\"foo\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            ),
        ] {
            assert_eq!(selector.check(group, kind, is_custom, &[]).unwrap_err().message, words);
        }
        assert!(selector.check("g", "K", true, &["foo"]).is_ok());
        let selector = FieldSelector::parse("metadata.namespace=a").unwrap();
        assert!(selector.check("", "Namespace", false, &[]).is_err());
        assert!(selector.check("", "Pod", false, &[]).is_ok());
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for (text, words) in [
            ("name", "invalid selector: 'name'; can't understand 'name'"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
            ("a=b\\c", "invalid field selector: invalid escape sequence: \\c"),
            ("a=b\\", "invalid field selector: invalid escape sequence: \\"),
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap_err(), words);
        }
    }
}
