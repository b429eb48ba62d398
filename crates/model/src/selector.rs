//! Label selectors, parsed once and matched against records.

use serde_json::{Map, Value, json};
use std::fmt;

/// One requirement on one label key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    In(String, Values),
    NotIn(String, Values),
    Exists(String),
    DoesNotExist(String),
}

/// Values of a requirement. Users may write thousands, and passes ask of each pod: they are looked up, not walked.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Values {
    written: Vec<String>,
    /// Places in `written`, in the order of the values there.
    sorted: Vec<usize>,
}

impl Values {
    fn new(written: Vec<String>) -> Self {
        let mut sorted: Vec<usize> = (0..written.len()).collect();
        sorted.sort_unstable_by_key(|place| &written[*place]);
        Values { written, sorted }
    }

    fn contain(&self, value: &str) -> bool {
        let found = self
            .sorted
            .binary_search_by(|place| self.written[*place].as_str().cmp(value));
        found.is_ok()
    }

    fn in_order(&self) -> impl Iterator<Item = &str> {
        self.sorted.iter().map(|place| self.written[*place].as_str())
    }
}

/// A `metav1.LabelSelector` that parsed. All its requirements must hold; a selector without any matches everything.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Selector {
    match_labels: Vec<(String, String)>,
    requirements: Vec<Requirement>,
}

impl Selector {
    /// Reads `{matchLabels, matchExpressions}`. `None` if it is not an object or an expression does not parse.
    pub fn from_json(value: &Value) -> Option<Self> {
        let object = value.as_object()?;
        let mut selector = Selector::default();
        match object.get("matchLabels") {
            None | Some(Value::Null) => {}
            Some(labels) => {
                for (key, value) in labels.as_object()? {
                    selector.match_labels.push((key.clone(), value.as_str()?.to_owned()));
                }
            }
        }
        match object.get("matchExpressions") {
            None | Some(Value::Null) => {}
            Some(list) => {
                for expression in list.as_array()? {
                    selector.requirements.push(requirement(expression)?);
                }
            }
        }
        Some(selector)
    }

    /// Whether it has no requirement, and so matches everything.
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.requirements.is_empty()
    }

    /// Whether labels, looked up by `label`, satisfy all requirements.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.match_labels.iter().all(|(key, value)| label(key) == Some(value))
            && self.requirements.iter().all(|requirement| match requirement {
                Requirement::In(key, values) => label(key).is_some_and(|v| values.contain(v)),
                Requirement::NotIn(key, values) => label(key).is_none_or(|v| !values.contain(v)),
                Requirement::Exists(key) => label(key).is_some(),
                Requirement::DoesNotExist(key) => label(key).is_none(),
            })
    }

    /// Whether any requirement is about this label.
    pub fn mentions(&self, key: &str) -> bool {
        self.match_labels.iter().any(|(k, _)| k == key)
            || self.requirements.iter().any(|r| match r {
                Requirement::In(k, _)
                | Requirement::NotIn(k, _)
                | Requirement::Exists(k)
                | Requirement::DoesNotExist(k) => k == key,
            })
    }

    /// As a `metav1.LabelSelector` in JSON.
    pub fn to_json(&self) -> Value {
        let expression = |key: &str, operator: &str, values: &[String]| match values {
            [] => json!({"key": key, "operator": operator}),
            values => json!({"key": key, "operator": operator, "values": values}),
        };
        let labels: Map<String, Value> = self.match_labels.iter().map(|(k, v)| (k.clone(), json!(v))).collect();
        let expressions = self.requirements.iter().map(|requirement| match requirement {
            Requirement::In(key, values) => expression(key, "In", &values.written),
            Requirement::NotIn(key, values) => expression(key, "NotIn", &values.written),
            Requirement::Exists(key) => expression(key, "Exists", &[]),
            Requirement::DoesNotExist(key) => expression(key, "DoesNotExist", &[]),
        });
        let mut selector = json!({});
        if !labels.is_empty() {
            selector["matchLabels"] = Value::Object(labels);
        }
        if !self.requirements.is_empty() {
            selector["matchExpressions"] = expressions.collect();
        }
        selector
    }

    /// The plain `key: value` requirements, sorted by key. Claims carry these as labels (STS-1.4.1).
    pub fn match_labels(&self) -> &[(String, String)] {
        &self.match_labels
    }
}

fn requirement(expression: &Value) -> Option<Requirement> {
    let key = expression.get("key")?.as_str()?.to_owned();
    let values = match expression.get("values") {
        None | Some(Value::Null) => Vec::new(),
        Some(list) => list
            .as_array()?
            .iter()
            .map(|v| v.as_str().map(str::to_owned))
            .collect::<Option<_>>()?,
    };
    match (expression.get("operator")?.as_str()?, values.is_empty()) {
        ("In", false) => Some(Requirement::In(key, Values::new(values))),
        ("NotIn", false) => Some(Requirement::NotIn(key, Values::new(values))),
        ("Exists", true) => Some(Requirement::Exists(key)),
        ("DoesNotExist", true) => Some(Requirement::DoesNotExist(key)),
        _ => None,
    }
}

impl fmt::Display for Selector {
    /// The form of `kubectl -l`, which `status.labelSelector` carries for autoscalers: requirements sorted by key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = |values: &Values| values.in_order().collect::<Vec<_>>().join(",");
        let mut parts: Vec<(&str, String)> = Vec::new();
        parts.extend(self.match_labels.iter().map(|(k, v)| (k.as_str(), format!("{k}={v}"))));
        parts.extend(self.requirements.iter().map(|r| match r {
            Requirement::In(k, v) => (k.as_str(), format!("{k} in ({})", set(v))),
            Requirement::NotIn(k, v) => (k.as_str(), format!("{k} notin ({})", set(v))),
            Requirement::Exists(k) => (k.as_str(), k.clone()),
            Requirement::DoesNotExist(k) => (k.as_str(), format!("!{k}")),
        }));
        parts.sort_by(|a, b| a.0.cmp(b.0));
        f.write_str(&parts.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sts_3_2_selectors_match_and_print_as_kubernetes_does() {
        let selector = Selector::from_json(&json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["b", "a"]}, {"key": "x", "operator": "Exists"}],
        }))
        .unwrap();
        let check = |pairs: &[(&str, &'static str)]| {
            selector.matches(|key| pairs.iter().find(|(k, _)| *k == key).map(|(_, v)| *v))
        };
        assert!(check(&[("app", "web"), ("x", "")]));
        assert!(!check(&[("app", "web"), ("x", ""), ("tier", "a")]));
        assert!(!check(&[("app", "web")]));
        assert!(!check(&[("x", "")]));
        assert_eq!(selector.to_string(), "app=web,tier notin (a,b),x");
    }

    #[test]
    fn sts_5_4_a_selector_is_written_as_it_was_read() {
        for written in [
            json!({}),
            json!({"matchLabels": {"app": "web", "tier": "a"}}),
            json!({"matchExpressions": [
                {"key": "tier", "operator": "NotIn", "values": ["b", "a"]}, {"key": "y", "operator": "In", "values": ["c"]},
                {"key": "x", "operator": "Exists"}, {"key": "z", "operator": "DoesNotExist"},
            ]}),
        ] {
            assert_eq!(Selector::from_json(&written).unwrap().to_json(), written);
        }
    }

    #[test]
    fn sts_3_4_a_selector_that_makes_no_sense_does_not_parse() {
        for bad in [
            json!("app=web"),
            json!({"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}),
            json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}),
            json!({"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]}),
            json!({"matchLabels": {"a": 1}}),
        ] {
            assert_eq!(Selector::from_json(&bad), None, "{bad}");
        }
        assert!(Selector::from_json(&json!({})).unwrap().is_empty());
    }
}
