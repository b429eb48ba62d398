//! Problems of an object, and which of them count.

use crate::Refusal;
use flotilla_apimachinery::field::{Error, Fault};
use serde_json::Value;

/// What a rule looks at, which decides when an old mistake is excused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// One field: excused while its value stays.
    Field,
    /// Several fields: excused if the stored object broke the rule too.
    Across,
    /// The change itself: never excused.
    Change,
}

/// Problems found in an object, in the order in which the rules stand.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<(Reach, Error)>);

impl Problems {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a problem that shows the value.
    pub(crate) fn add(&mut self, reach: Reach, fault: Fault, path: String, value: &Value, rule: impl Into<String>) {
        self.0.push((reach, Error::new(fault, path, value.clone(), rule)));
    }

    /// A value of one field that is malformed.
    pub(crate) fn invalid(&mut self, path: impl Into<String>, value: &Value, rule: impl Into<String>) {
        self.add(Reach::Field, Fault::Invalid, path.into(), value, rule);
    }

    /// A value that does not fit to other fields.
    pub(crate) fn unfit(&mut self, path: impl Into<String>, value: &Value, rule: impl Into<String>) {
        self.add(Reach::Across, Fault::Invalid, path.into(), value, rule);
    }

    /// A field that is not there.
    pub(crate) fn required(&mut self, path: impl Into<String>, rule: impl Into<String>) {
        self.0.push((Reach::Field, Error::required(path, rule)));
    }

    /// Errors of single fields, in the words of the API server.
    pub(crate) fn take_in(&mut self, errors: Vec<Error>) {
        self.0.extend(errors.into_iter().map(|error| (Reach::Field, error)));
    }

    /// A change that may not be made, to this value.
    pub(crate) fn changed(&mut self, path: impl Into<String>, value: &Value, rule: impl Into<String>) {
        self.add(Reach::Change, Fault::Invalid, path.into(), value, rule);
    }

    /// Takes these in, too.
    pub(crate) fn append(&mut self, more: Problems) {
        self.0.extend(more.0);
    }

    /// Drops the problems that the stored object has too.
    pub(crate) fn excuse(&mut self, stored: &Problems) {
        self.0.retain(|(reach, problem)| {
            let is_same = |(_, old): &(Reach, Error)| {
                old.detail == problem.detail
                    && without_indices(&old.path) == without_indices(&problem.path)
                    && (*reach == Reach::Across || old.value == problem.value)
            };
            *reach == Reach::Change || !stored.0.iter().any(is_same)
        });
    }

    /// The answer, if anything is left: one problem a line.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        if self.0.is_empty() {
            return None;
        }
        let is_bad = self.0.iter().any(|(reach, _)| *reach != Reach::Change);
        let mut lines: Vec<String> = Vec::with_capacity(self.0.len());
        for line in self.0.iter().map(|(_, problem)| problem.to_string()) {
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        Some(Refusal {
            code: if is_bad { 422 } else { 403 },
            message: lines.join("\n"),
        })
    }
}

/// A path without the numbers of entries, since entries move within lists.
fn without_indices(path: &str) -> String {
    let mut plain = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('[') {
        plain.push_str(before);
        match after.split_once(']') {
            Some((index, tail)) if index.bytes().all(|b| b.is_ascii_digit()) => rest = tail,
            _ => {
                plain.push('[');
                rest = after;
            }
        }
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_old_mistake_is_excused_where_it_is_left_as_it_was() {
        let mut stored = Problems::default();
        stored.invalid("spec.list[3]", &json!("bad"), "rule");
        stored.unfit("spec.budget", &json!(3), "needs Parallel");
        for (reach, path, value, rule, is_excused) in [
            (Reach::Field, "spec.list[0]", json!("bad"), "rule", true),
            (Reach::Field, "spec.list[3]", json!("worse"), "rule", false),
            (Reach::Field, "spec.list[3]", json!("bad"), "other rule", false),
            (Reach::Field, "spec.other[3]", json!("bad"), "rule", false),
            (Reach::Across, "spec.budget", json!(4), "needs Parallel", true),
            (Reach::Change, "spec.budget", json!(3), "needs Parallel", false),
        ] {
            let mut problems = Problems::default();
            problems.add(reach, Fault::Invalid, path.to_owned(), &value, rule);
            problems.excuse(&stored);
            assert_eq!(problems.is_empty(), is_excused, "{path} {value} {rule}");
        }
    }

    #[test]
    fn only_numbers_of_entries_are_left_out_of_paths() {
        for (path, plain) in [
            ("a[1].b[22].c", "a.b.c"),
            ("a[b/c].d", "a[b/c].d"),
            ("a[", "a["),
            ("a", "a"),
        ] {
            assert_eq!(without_indices(path), plain);
        }
    }
}
