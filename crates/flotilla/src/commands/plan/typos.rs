//! Switches that nobody knows: annotations that were probably meant to be one of ours.

use flotilla_api::names;
use serde_json::Value;

/// So many letters may be wrong, missing or too many.
const TYPOS_MAX: usize = 2;
/// Whatever stands before the slash here is ours alone.
const OURS: &str = "flotilla.rs/";

/// Annotations of a manifest that are no switch of ours and look like one, each with the switch that may be meant.
pub(super) fn of(manifest: &Value) -> impl Iterator<Item = (&str, Option<&'static str>)> {
    let annotations = manifest["metadata"]["annotations"].as_object();
    let keys = annotations.into_iter().flat_map(serde_json::Map::keys);
    keys.filter(|key| !names::ANNOTATIONS.contains(&key.as_str()))
        .filter_map(|key| {
            let near = names::ANNOTATIONS
                .iter()
                .map(|known| (distance(key, known), *known))
                .filter(|(distance, _)| *distance <= TYPOS_MAX)
                .min();
            let meant = near.map(|(_, known)| known);
            (meant.is_some() || key.starts_with(OURS)).then_some((key.as_str(), meant))
        })
}

/// How many letters have to be put in, taken out or changed to make one of the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (count, letter) in one.chars().enumerate() {
        let mut before = row[0];
        row[0] = count + 1;
        for (place, wanted) in other.iter().enumerate() {
            let change = before + usize::from(letter != *wanted);
            before = row[place + 1];
            row[place + 1] = change.min(before + 1).min(row[place] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_counted() {
        for (one, other, count) in [
            ("", "ab", 2),
            ("abc", "abc", 0),
            ("abd", "abc", 1),
            ("bc", "abc", 1),
            ("acb", "abc", 2),
        ] {
            assert_eq!(distance(one, other), count, "{one} {other}");
        }
    }
}
