//! Label selectors (`k8s.io/apimachinery/pkg/labels`).

use super::parse;
use crate::field;
use crate::names;
use serde_json::{Value, json};
use std::fmt;

/// How a requirement compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `=` and `==`.
    Equals,
    /// `!=`.
    NotEquals,
    /// `in (…)`.
    In,
    /// `notin (…)`.
    NotIn,
    /// The key alone.
    Exists,
    /// `!key`.
    DoesNotExist,
    /// `>`, between integers.
    GreaterThan,
    /// `<`, between integers.
    LessThan,
}

/// One requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// How its value is compared.
    pub operator: Operator,
    /// With what, sorted.
    pub values: Vec<String>,
}

impl Requirement {
    /// A requirement, or everything that is wrong with it.
    pub fn new(key: &str, operator: Operator, mut values: Vec<String>) -> Result<Self, String> {
        let mut errors = Vec::new();
        if let Some(error) = key_error("key", key) {
            errors.push(error);
        }
        errors.extend(count_errors(operator, &values));
        for (index, value) in values.iter().enumerate() {
            let wrong = names::label_value(value);
            if !wrong.is_empty() {
                let path = field::entry(&field::entry("values", index), key);
                errors.push(field::Error::invalid(path, json!(value), wrong.join("; ")));
            }
        }
        if !errors.is_empty() {
            return Err(field::join(&errors));
        }
        values.sort();
        values.dedup();
        Ok(Requirement {
            key: key.to_owned(),
            operator,
            values,
        })
    }

    /// Whether a label with this value, or without if `None`, meets it.
    pub fn matches(&self, value: Option<&str>) -> bool {
        let is_listed = |value: &str| self.values.iter().any(|v| v == value);
        match self.operator {
            Operator::Equals | Operator::In => value.is_some_and(is_listed),
            Operator::NotEquals | Operator::NotIn => !value.is_some_and(is_listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => self.compare(value, |label, bound| label > bound),
            Operator::LessThan => self.compare(value, |label, bound| label < bound),
        }
    }

    fn compare(&self, value: Option<&str>, holds: fn(i64, i64) -> bool) -> bool {
        let bound = self.values.first().and_then(|v| v.parse().ok());
        let label = value.and_then(|v| v.parse().ok());
        matches!((label, bound), (Some(label), Some(bound)) if holds(label, bound))
    }
}

/// What is wrong with a key.
pub(super) fn key_error(path: &str, key: &str) -> Option<field::Error> {
    let wrong = names::label_key(key);
    (!wrong.is_empty()).then(|| field::Error::invalid(path, json!(key), wrong.join("; ")))
}

fn count_errors(operator: Operator, values: &[String]) -> Vec<field::Error> {
    let (is_wrong, words) = match operator {
        Operator::In | Operator::NotIn => (
            values.is_empty(),
            "for 'in', 'notin' operators, values set can't be empty",
        ),
        Operator::Equals | Operator::NotEquals => {
            (values.len() != 1, "exact-match compatibility requires one single value")
        }
        Operator::Exists | Operator::DoesNotExist => (
            !values.is_empty(),
            "values set must be empty for exists and does not exist",
        ),
        Operator::GreaterThan | Operator::LessThan => (
            values.len() != 1,
            "for 'Gt', 'Lt' operators, exactly one value is required",
        ),
    };
    let mut errors = Vec::new();
    if is_wrong {
        errors.push(field::Error::invalid("values", json!(values), words));
    }
    if matches!(operator, Operator::GreaterThan | Operator::LessThan) {
        for (index, value) in values.iter().enumerate().filter(|(_, v)| v.parse::<i64>().is_err()) {
            let words = "for 'Gt', 'Lt' operators, the value must be an integer";
            errors.push(field::Error::invalid(
                field::entry("values", index),
                json!(value),
                words,
            ));
        }
    }
    errors
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, values) = (&self.key, self.values.join(","));
        match self.operator {
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

/// A label selector. All its requirements must be met; one without any selects everything.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

impl LabelSelector {
    /// Reads the text of `?labelSelector=` and `kubectl -l`.
    pub fn parse(text: &str) -> Result<Self, String> {
        parse::requirements(text).map(LabelSelector::of)
    }

    /// Reads `{matchLabels, matchExpressions}`. Absent or null (`None`) selects nothing, which no value of this type says.
    pub fn from_json(selector: &Value) -> Result<Option<Self>, String> {
        if selector.is_null() {
            return Ok(None);
        }
        let object = selector.as_object().ok_or("a label selector must be an object")?;
        let mut requirements = Vec::new();
        for (key, value) in object
            .get("matchLabels")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let value = value.as_str().ok_or("values of matchLabels must be strings")?;
            requirements.push(Requirement::new(key, Operator::Equals, vec![value.to_owned()])?);
        }
        for expression in object
            .get("matchExpressions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            requirements.push(from_expression(expression)?);
        }
        Ok(Some(LabelSelector::of(requirements)))
    }

    fn of(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        LabelSelector { requirements }
    }

    /// Its requirements, by key.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether an object with these labels (`metadata.labels`, may be absent) is selected.
    pub fn matches(&self, labels: Option<&Value>) -> bool {
        self.requirements
            .iter()
            .all(|r| r.matches(labels.and_then(|l| l.get(&r.key)).and_then(Value::as_str)))
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            write!(f, "{requirement}")?;
        }
        Ok(())
    }
}

fn from_expression(expression: &Value) -> Result<Requirement, String> {
    let text = |name: &str| expression.get(name).and_then(Value::as_str).unwrap_or_default();
    let operator = match text("operator") {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        other => {
            return Err(format!(
                "{} is not a valid label selector operator",
                field::quote(other)
            ));
        }
    };
    let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
    let values: Option<Vec<_>> = values.map(|v| v.as_str().map(str::to_owned)).collect();
    Requirement::new(
        text("key"),
        operator,
        values.ok_or("values of a label selector must be strings")?,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_select_as_kubectl_does() {
        let labels = json!({"app": "web", "tier": "front", "size": "7", "empty": "", "in": "x"});
        let rows = [
            ("", true, ""),
            ("app=web", true, "app=web"),
            ("app==web", true, "app=web"),
            (" app = web , tier!=back", true, "app=web,tier!=back"),
            ("app!=web", false, "app!=web"),
            ("other!=x", true, "other!=x"),
            ("tier in (front, back)", true, "tier in (back,front)"),
            ("tier notin (front)", false, "tier notin (front)"),
            ("other notin (a,b)", true, "other notin (a,b)"),
            ("app", true, "app"),
            ("!app", false, "!app"),
            ("!other,app", true, "app,!other"),
            ("size>6", true, "size>6"),
            ("size<7", false, "size<7"),
            ("app>6", false, "app>6"),
            ("empty=", true, "empty="),
            ("empty in ()", true, "empty in ()"),
            ("empty in (,a)", true, "empty in (,a)"),
            ("in=x", true, "in=x"),
            ("in in (in,x)", true, "in in (in,x)"),
            ("app=,tier", false, "app=,tier"),
        ];
        for (text, expected, printed) in rows {
            let selector = LabelSelector::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(selector.matches(Some(&labels)), expected, "{text}");
            assert_eq!(selector.to_string(), printed);
        }
    }

    #[test]
    fn objects_select_like_texts() {
        let selector = json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "NotIn", "values": ["b", "a"]}, {"key": "x", "operator": "Exists"},
                {"key": "y", "operator": "DoesNotExist"}, {"key": "z", "operator": "In", "values": ["1"]},
            ],
        });
        let selector = LabelSelector::from_json(&selector).unwrap().unwrap();
        assert_eq!(selector.to_string(), "app=web,tier notin (a,b),x,!y,z in (1)");
        assert!(selector.matches(Some(&json!({"app": "web", "x": "", "z": "1"}))));
        assert!(!selector.matches(None));
        assert!(LabelSelector::from_json(&json!({})).unwrap().unwrap().is_empty());
        assert_eq!(LabelSelector::from_json(&Value::Null), Ok(None));
        for (bad, words) in [
            (
                json!({"key": "a", "operator": "Like"}),
                "\"Like\" is not a valid label selector operator",
            ),
            (
                json!({"key": "a", "operator": "In"}),
                "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty",
            ),
            (
                json!({"key": "a", "operator": "Exists", "values": ["b"]}),
                "values: Invalid value: [\"b\"]: values set must be empty for exists and does not exist",
            ),
        ] {
            let error = LabelSelector::from_json(&json!({"matchExpressions": [bad]})).unwrap_err();
            assert_eq!(error, words);
        }
    }
}
