//! Switches that nobody knows: annotations that were probably meant to be one of ours.

use flotilla_api::names;
use serde_json::Value;

/// So many letters may be wrong, missing or too many.
const TYPOS_MAX: usize = 2;
/// Whatever stands before the slash here is ours alone.
const OURS: &str = "flotilla.rs/";

/// Switches that pods have of their template.
const OF_PODS: [&str; 1] = [names::LAUNCH_PRIORITY];

/// Annotations of a manifest, or of its pods, that are no switch of ours and look like one: where they stand, the key, and the switch that
/// may be meant.
pub(super) fn of(manifest: &Value) -> impl Iterator<Item = (String, &str, Option<&'static str>)> {
    let of_set = ("metadata", &manifest["metadata"]);
    let of_pods = ("spec.template.metadata", &manifest["spec"]["template"]["metadata"]);
    [of_set, of_pods].into_iter().flat_map(|(place, metadata)| {
        let found = among(metadata);
        found.map(move |(key, meant)| (format!("{place}.annotations[{key}]"), key, meant))
    })
}

fn among(metadata: &Value) -> impl Iterator<Item = (&str, Option<&'static str>)> {
    let annotations = metadata["annotations"].as_object();
    let keys = annotations.into_iter().flat_map(serde_json::Map::keys);
    let known = || names::ANNOTATIONS.iter().chain(&OF_PODS);
    keys.filter(move |key| known().all(|known| known != key))
        .filter_map(move |key| {
            let near = known()
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
