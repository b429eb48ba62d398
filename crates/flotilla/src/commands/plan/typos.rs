//! Switches that nobody knows: annotations that were probably meant to be one of ours.

use flotilla_api::names;
use serde_json::Value;

/// So many letters may be wrong, missing or too many.
const TYPOS_MAX: usize = 2;
/// Whatever stands before the slash here is ours alone.
const OURS: &str = "flotilla.rs/";

/// Switches that pods have of their template.
const OF_PODS: [&str; 1] = [names::LAUNCH_PRIORITY];

/// Annotations of a manifest, or of its pods, that do nothing where they stand and look like a switch of ours: where that is, and what is to be
/// said of it.
pub(super) fn of(manifest: &Value) -> impl Iterator<Item = (String, String)> {
    let of_set = ("metadata", &manifest["metadata"]);
    let of_pods = ("spec.template.metadata", &manifest["spec"]["template"]["metadata"]);
    let path = |place: &str, key: &str| format!("{place}.annotations[{key}]");
    let misplaced = keys(of_pods.1).filter(|key| names::ANNOTATIONS.contains(key) && !OF_PODS.contains(key));
    let misplaced = misplaced.map(move |key| {
        let words = format!("the annotation {key} does nothing on pods; it belongs to the set's own metadata");
        (path(of_pods.0, key), words)
    });
    let misspelt = [of_set, of_pods].into_iter().flat_map(move |(place, metadata)| {
        let found = among(metadata);
        found.map(move |(key, meant)| {
            let meant = meant.map_or_else(|| "it does nothing".to_owned(), |meant| format!("is {meant} meant?"));
            (path(place, key), format!("nobody knows the annotation {key}; {meant}"))
        })
    });
    misspelt.chain(misplaced)
}

fn keys(metadata: &Value) -> impl Iterator<Item = &str> {
    let annotations = metadata["annotations"].as_object();
    annotations
        .into_iter()
        .flat_map(serde_json::Map::keys)
        .map(String::as_str)
}

fn among(metadata: &Value) -> impl Iterator<Item = (&str, Option<&'static str>)> {
    let keys = keys(metadata);
    let known = || names::ANNOTATIONS.iter().chain(&OF_PODS);
    keys.filter(move |key| known().all(|known| *known != *key))
        .filter_map(move |key| {
            let near = known()
                .map(|known| (distance(key, known), *known))
                .filter(|(distance, _)| *distance <= TYPOS_MAX)
                .min();
            let meant = near.map(|(_, known)| known);
            (meant.is_some() || key.starts_with(OURS)).then_some((key, meant))
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
    fn a_switch_of_the_set_does_nothing_on_pods() {
        let on_pods = |key: &str| serde_json::json!({"spec": {"template": {"metadata": {"annotations": {key: "x"}}}}});
        let words = |key: &str| of(&on_pods(key)).map(|(_, words)| words).collect::<Vec<_>>();
        assert_eq!(
            words(names::UPDATE_TYPE),
            ["the annotation flotilla.rs/update-type does nothing on pods; it belongs to the set's own metadata"]
        );
        assert_eq!(words(names::LAUNCH_PRIORITY), Vec::<String>::new());
    }

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
