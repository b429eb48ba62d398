//! The marks in objects, and filling them.

use crate::settings::{Condition, Options};
use serde_json::{Map, Value};

/// Key of a comment: why what follows is as it is.
pub(crate) const WHY: &str = "$why";
/// Key of what is there only if a condition holds, followed by the condition's name; by an exclamation mark before it, if it does not hold.
/// In a map its value is a map that is merged into the
/// one around it; in a list, an item that has only this key stands for its value.
pub(crate) const IF: &str = "$if:";

/// A piece of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// As it stands.
    Plain(&'a str),
    /// The value of a setting.
    Setting(&'a str),
}

/// The pieces of a text: `a ${b} c`.
pub(crate) fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, name, after)) = first_mark(rest) {
        if !before.is_empty() {
            pieces.push(Piece::Plain(before));
        }
        pieces.push(Piece::Setting(name));
        rest = after;
    }
    if !rest.is_empty() || pieces.is_empty() {
        pieces.push(Piece::Plain(rest));
    }
    pieces
}

fn first_mark(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once("${")?;
    let (name, after) = rest.split_once('}')?;
    Some((before, name, after))
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Test {
    condition: Condition,
    /// Whether it is to hold, or not to.
    holds: bool,
}

impl Test {
    /// Whether that is so.
    pub(crate) fn passes(self, options: &Options) -> bool {
        options.holds(self.condition) == self.holds
    }

    /// In the words of Helm.
    pub(crate) fn expression(self) -> String {
        let not = if self.holds { "" } else { "not " };
        format!("{not}.Values.{}", self.condition.name())
    }
}

/// What a key asks for, if it does.
///
/// # Panics
/// If there is no such condition: the tests render everything.
pub(crate) fn test(key: &str) -> Option<Test> {
    let text = key.strip_prefix(IF)?;
    let name = text.trim_start_matches('!');
    let condition = Condition::named(name).unwrap_or_else(|| panic!("no condition {name}"));
    Some(Test {
        condition,
        holds: text == name,
    })
}

/// What an item of a list stands for, if it is there only under a condition.
pub(crate) fn conditional_item(item: &Value) -> Option<(Test, &Value)> {
    let map = item.as_object().filter(|map| map.len() == 1)?;
    let (key, value) = map.iter().next()?;
    Some((test(key)?, value))
}

/// Whether comments stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comments {
    Kept,
    Dropped,
}

/// An object as it is to be sent to an API server.
pub fn resolve(marked: &Value, options: &Options) -> Value {
    fill(marked, options, Comments::Dropped)
}

/// Fills all marks.
pub(crate) fn fill(marked: &Value, options: &Options, comments: Comments) -> Value {
    match marked {
        Value::Object(map) => Value::Object(fill_map(map, options, comments)),
        Value::Array(items) => {
            let kept = items.iter().filter_map(|item| match conditional_item(item) {
                Some((test, value)) => test.passes(options).then_some(value),
                None => Some(item),
            });
            let filled = kept.flat_map(|item| match (item.as_str().map(pieces).as_deref(), item) {
                // A setting that is a list, alone as an item of a list, stands for its items.
                (Some([Piece::Setting(name)]), _) => match setting(options, name) {
                    Value::Array(items) => items,
                    other => vec![other],
                },
                (_, item) => vec![fill(item, options, comments)],
            });
            Value::Array(filled.collect())
        }
        Value::String(text) => fill_text(text, options),
        other => other.clone(),
    }
}

fn fill_map(map: &Map<String, Value>, options: &Options, comments: Comments) -> Map<String, Value> {
    let mut filled = Map::new();
    for (key, value) in map {
        if key == WHY && comments == Comments::Dropped {
            continue;
        }
        match (test(key), value) {
            (Some(test), Value::Object(inner)) => {
                if test.passes(options) {
                    filled.extend(fill_map(inner, options, comments));
                }
            }
            _ => {
                filled.insert(key.clone(), fill(value, options, comments));
            }
        }
    }
    filled
}

fn fill_text(text: &str, options: &Options) -> Value {
    let pieces = pieces(text);
    if let [Piece::Setting(name)] = pieces.as_slice() {
        return setting(options, name);
    }
    let texts = pieces.iter().map(|piece| match piece {
        Piece::Plain(text) => (*text).to_owned(),
        Piece::Setting(name) => match setting(options, name) {
            Value::String(text) => text,
            other => other.to_string(),
        },
    });
    Value::String(texts.collect())
}

fn setting(options: &Options, name: &str) -> Value {
    options.value(name).unwrap_or_else(|| panic!("no setting {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn marks_are_filled() {
        let options = Options {
            replicas: 3,
            ..Options::default().with(Condition::Webhooks, false)
        };
        let marked = json!({
            "$why": "because", "n": "${replicas}", "t": "in ${namespace}, ${replicas} of them",
            "$if:webhooks": {"w": 1}, "$if:crds": {"c": 1},
            "list": ["a", {"$if:webhooks": "b"}, {"$if:!webhooks": "B"}, {"$if:crds": {"$why": "d", "c": "${image}"}}],
            "arguments": ["x", "${extraArguments}"],
        });
        assert_eq!(
            resolve(&marked, &options),
            json!({"n": 3, "t": "in flotilla-system, 3 of them", "c": 1, "list": ["a", "B", {"c": options.image}], "arguments": ["x"]})
        );
    }

    #[test]
    fn texts_fall_into_pieces() {
        assert_eq!(pieces(""), [Piece::Plain("")]);
        assert_eq!(pieces("${a}"), [Piece::Setting("a")]);
        assert_eq!(
            pieces("x ${a}${b} $c"),
            [
                Piece::Plain("x "),
                Piece::Setting("a"),
                Piece::Setting("b"),
                Piece::Plain(" $c")
            ]
        );
    }
}
