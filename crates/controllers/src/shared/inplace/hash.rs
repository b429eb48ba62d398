//! The kubelet's hash of a container, and the node agent's hash of an environment (rule 4.6).

use flotilla_model::template::canonical;
use serde_json::{Map, Value, json};

/// FNV-1a over the text in which Go prints a list of bytes, `([]uint8)[123 34]`, of a JSON document.
pub fn of_text(document: &str) -> u32 {
    let mut text = String::with_capacity(document.len() * 4 + 12);
    text.push_str("([]uint8)[");
    for (place, byte) in document.bytes().enumerate() {
        if place > 0 {
            text.push(' ');
        }
        text.push_str(&byte.to_string());
    }
    text.push(']');
    text.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// The hash that a kubelet of 1.31 or newer gives a container: it rests on name and image only.
pub fn container(name: &str, image: &str) -> u32 {
    of_text(&canonical(&json!({"image": image, "name": name})))
}

/// The hash of the environment that refers to metadata: entries sorted by name, `null` for none.
pub fn environment<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> u32 {
    let mut entries: Vec<_> = entries.into_iter().collect();
    entries.sort_unstable();
    if entries.is_empty() {
        return of_text("null");
    }
    let entry = |(name, value): (&str, &str)| {
        let mut object = Map::from_iter([("name".to_owned(), json!(name))]);
        if !value.is_empty() {
            object.insert("value".to_owned(), json!(value));
        }
        Value::Object(object)
    };
    of_text(&canonical(&Value::Array(entries.into_iter().map(entry).collect())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_4_6_vectors() {
        assert_eq!(container("main", "registry.local/web:2"), 3_868_682_977);
        assert_eq!(environment([("ROLE", "leader")]), 3_087_624_770);
        assert_eq!(environment([]), 86_995_377);
    }

    #[test]
    fn the_order_of_entries_does_not_tell() {
        assert_eq!(
            environment([("B", "2"), ("A", "")]),
            environment([("A", ""), ("B", "2")])
        );
        assert_ne!(environment([("A", "1")]), environment([("A", "")]));
    }
}
