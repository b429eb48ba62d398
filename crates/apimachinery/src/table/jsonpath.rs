//! The part of Kubernetes' JSONPath that custom resource definitions may use: fields, indexes, `[*]` and filters by equality.

use serde_json::Value;

/// A path.
#[derive(Clone, Debug, PartialEq)]
pub struct Path(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    All,
    /// Items whose value at the path compares so.
    Where(Path, Comparison, Value),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Comparison {
    Equal,
    Different,
}

impl Path {
    /// Reads a path such as `.status.conditions[?(@.type=="Ready")].status`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut steps = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (step, behind) = step(rest).ok_or_else(|| format!("cannot read {rest:?} in the JSONPath {text:?}"))?;
            steps.extend(step);
            rest = behind;
        }
        Ok(Path(steps))
    }

    /// What it leads to, in order; nothing if a field is missing.
    pub fn find<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        self.0.iter().fold(vec![value], |values, step| {
            values.into_iter().flat_map(|value| step.apply(value)).collect()
        })
    }
}

impl Step {
    fn apply<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        let items = || value.as_array().into_iter().flatten();
        match self {
            Step::Field(name) => value.get(name).into_iter().collect(),
            Step::Index(index) => {
                let length = value.as_array().map_or(0, Vec::len) as i64;
                let index = if *index < 0 { index + length } else { *index };
                usize::try_from(index)
                    .ok()
                    .and_then(|index| value.get(index))
                    .into_iter()
                    .collect()
            }
            Step::All => match value {
                Value::Object(fields) => fields.values().collect(),
                _ => items().collect(),
            },
            Step::Where(path, comparison, wanted) => items()
                .filter(|item| {
                    let found = path.find(item);
                    let is_equal = found.first().is_some_and(|found| *found == wanted);
                    match comparison {
                        Comparison::Equal => is_equal,
                        Comparison::Different => !is_equal && !found.is_empty(),
                    }
                })
                .collect(),
        }
    }
}

/// The first step of a path and what is behind it. A dot alone is no step.
fn step(text: &str) -> Option<(Option<Step>, &str)> {
    if let Some(rest) = text.strip_prefix("[?(") {
        let (filter, rest) = rest.split_once(")]")?;
        return Some((Some(filter_step(filter)?), rest));
    }
    for quote in ["'", "\""] {
        if let Some(rest) = text.strip_prefix(&format!("[{quote}")) {
            let (name, rest) = rest.split_once(&format!("{quote}]"))?;
            return Some((Some(Step::Field(name.replace('\\', ""))), rest));
        }
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (index, rest) = rest.split_once(']')?;
        let step = if index == "*" {
            Step::All
        } else {
            Step::Index(index.parse().ok()?)
        };
        return Some((Some(step), rest));
    }
    let name = text.strip_prefix('.').unwrap_or(text);
    let (field, rest) = field(name);
    match field.as_str() {
        "" if text.starts_with('.') => Some((None, rest)),
        "" => None,
        "*" => Some((Some(Step::All), rest)),
        _ => Some((Some(Step::Field(field)), rest)),
    }
}

/// A field's name, up to the next dot or bracket that no backslash precedes.
fn field(text: &str) -> (String, &str) {
    let (mut name, mut is_escaped) = (String::new(), false);
    for (index, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => {
                is_escaped = true;
                continue;
            }
            '.' | '[' => return (name, &text[index..]),
            _ => {}
        }
        name.push(c);
    }
    (name, "")
}

fn filter_step(text: &str) -> Option<Step> {
    let (comparison, (path, wanted)) = match text.split_once("==") {
        Some(parts) => (Comparison::Equal, parts),
        None => (Comparison::Different, text.split_once("!=")?),
    };
    let path = Path::parse(path.trim().strip_prefix('@')?).ok()?;
    let wanted = wanted.trim();
    let wanted = match wanted.strip_prefix('\'').and_then(|w| w.strip_suffix('\'')) {
        Some(quoted) => Value::String(quoted.to_owned()),
        None => serde_json::from_str(wanted).ok()?,
    };
    Some(Step::Where(path, comparison, wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_lead_where_kubernetes_follows_them() {
        let value = json!({"a": {"b.c": 1, "l": [{"k": "x", "v": 1}, {"k": "y", "v": 2}], "e": []}});
        for (path, expected) in [
            (".a['b.c']", json!([1])),
            (".a.b\\.c", json!([1])),
            ("a.l[0].v", json!([1])),
            (".a.l[-1].v", json!([2])),
            (".a.l[*].v", json!([1, 2])),
            (".a.l[?(@.k==\"y\")].v", json!([2])),
            (".a.l[?(@.k == 'x')].v", json!([1])),
            (".a.l[?(@.v!=1)].k", json!(["y"])),
            (".a.l[7]", json!([])),
            (".a.e[-1]", json!([])),
            (".none.b", json!([])),
        ] {
            assert_eq!(json!(Path::parse(path).unwrap().find(&value)), expected, "{path}");
        }
        assert!(Path::parse(".a[b]").is_err());
        assert!(Path::parse(".a[").is_err());
    }
}
