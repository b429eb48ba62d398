//! On which line of a file a field stands.

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use std::fmt;

/// The lines of a document, and of what is in it.
#[derive(Clone, Debug, Default)]
pub(super) enum Lines {
    /// A value that has no fields.
    #[default]
    Leaf,
    /// Fields: name, line, and what is in them.
    Map(Vec<(String, u64, Lines)>),
    /// Items.
    List(Vec<Lines>),
}

impl Lines {
    /// The documents of a text that can be parsed; of another there is nothing to know.
    pub(super) fn of(text: &str) -> Vec<Lines> {
        serde_saphyr::from_multiple(text).unwrap_or_default()
    }

    /// Where it begins.
    pub(super) fn first(&self) -> Option<u64> {
        match self {
            Lines::Leaf => None,
            Lines::Map(fields) => fields.first().map(|(_, line, _)| *line),
            Lines::List(items) => items.first().and_then(Lines::first),
        }
    }

    /// What is in a field, such as the items of a list.
    pub(super) fn field(&self, name: &str) -> Option<&Lines> {
        let Lines::Map(fields) = self else { return None };
        fields.iter().find(|(own, ..)| own == name).map(|(.., within)| within)
    }

    /// One item.
    pub(super) fn item(&self, index: usize) -> Option<&Lines> {
        let Lines::List(items) = self else { return None };
        items.get(index)
    }

    /// The line of the field at a path such as `spec.containers[0].image`, or of the nearest that is there and holds it.
    pub(super) fn line(&self, path: &str) -> Option<u64> {
        let mut rest = path.trim_start_matches('.');
        match self {
            Lines::Leaf => None,
            Lines::List(_) => {
                let (index, after) = rest.strip_prefix('[')?.split_once(']')?;
                let item = self.item(index.parse().ok()?)?;
                item.line(after).or_else(|| item.first())
            }
            Lines::Map(fields) => {
                rest = rest.strip_prefix('[').unwrap_or(rest);
                // Names of labels and annotations hold dots: the longest that fits is meant.
                let fits = |name: &str| {
                    let after = rest.trim_start_matches('"').strip_prefix(name)?;
                    let after = after.trim_start_matches(['"', ']']);
                    (after.is_empty() || after.starts_with(['.', '['])).then_some(after)
                };
                let found = fields.iter().filter_map(|field| Some((field, fits(&field.0)?)));
                let ((_, line, within), after) = found.max_by_key(|((name, ..), _)| name.len())?;
                within.line(after).or(Some(*line))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Lines {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Lines;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Lines, A::Error> {
        let mut fields = Vec::new();
        while let Some(name) = map.next_key::<Spanned<String>>()? {
            let line = name.referenced.line();
            fields.push((name.value, line, map.next_value()?));
        }
        Ok(Lines::Map(fields))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Lines, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Lines::List(items))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Lines, E> {
        Ok(Lines::Leaf)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Lines, E> {
        Ok(Lines::Leaf)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Lines, E> {
        Ok(Lines::Leaf)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Lines, E> {
        Ok(Lines::Leaf)
    }

    fn visit_str<E>(self, _: &str) -> Result<Lines, E> {
        Ok(Lines::Leaf)
    }

    fn visit_bytes<E>(self, _: &[u8]) -> Result<Lines, E> {
        Ok(Lines::Leaf)
    }

    fn visit_unit<E>(self) -> Result<Lines, E> {
        Ok(Lines::Leaf)
    }

    fn visit_none<E>(self) -> Result<Lines, E> {
        Ok(Lines::Leaf)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Lines, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Lines, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_enum<A: serde::de::EnumAccess<'de>>(self, data: A) -> Result<Lines, A::Error> {
        data.variant::<IgnoredAny>().map(|_| Lines::Leaf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_path() {
        let text =
            "a: 1\nmeta:\n  notes:\n    x.y/z: b\nlist:\n  - c: 1\n    d: {e: 2}\n---\n{\"f\":\n  {\"g\": null}}\n";
        let documents = Lines::of(text);
        let [first, second] = documents.as_slice() else {
            panic!("two documents: {documents:?}")
        };
        for (path, line) in [
            ("a", 1),
            ("meta.notes", 3),
            ("meta.notes.x.y/z", 4),
            ("meta.notes[x.y/z]", 4),
            ("meta.notes[\"x.y/z\"]", 4),
            ("meta.missing", 2),
            ("list[0].d.e", 7),
            ("list[0].missing", 6),
        ] {
            assert_eq!(first.line(path), Some(line), "{path}");
        }
        assert_eq!((first.first(), second.first()), (Some(1), Some(9)));
        assert_eq!(second.line("f.g"), Some(10));
        assert_eq!(first.line("nothing"), None);
    }
}
