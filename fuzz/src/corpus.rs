//! The inputs that are kept: read, chosen, written.

use flotilla_fuzz::Target;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// All inputs in a folder.
///
/// # Errors
///
/// The folder cannot be read, or holds nothing.
pub(crate) fn read(folder: &Path) -> Result<Vec<Vec<u8>>, String> {
    let failed = |error: std::io::Error| format!("failed to read the corpus {}: {error}", folder.display());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        paths.push(entry.map_err(failed)?.path());
    }
    // As the seed, the order must be the same everywhere.
    paths.sort();
    let inputs: Result<Vec<_>, _> = paths.iter().map(std::fs::read).collect();
    match inputs {
        Ok(inputs) if inputs.is_empty() => Err(format!("the corpus {} is empty", folder.display())),
        other => other.map_err(failed),
    }
}

/// Writes an input into a folder, under a name without an ending.
///
/// # Errors
///
/// It cannot be written.
pub(crate) fn write(folder: &Path, name: &str, input: &[u8]) -> Result<PathBuf, String> {
    let ending = match input.first() {
        Some(b'{' | b'[') => "json",
        _ => "bin",
    };
    let path = folder.join(format!("{name}.{ending}"));
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&path, input))
        .map_err(|error| format!("failed to keep an input as {}: {error}", path.display()))?;
    Ok(path)
}

/// Of `found`, at most `count` inputs that together reach much that `kept` do not: the one that reaches most comes first, then the one
/// that adds most to it, and so on. Of equals the shorter one.
pub(crate) fn choose<'f>(target: &Target, kept: &[Vec<u8>], found: &'f [Vec<u8>], count: usize) -> Vec<&'f [u8]> {
    let things = |input: &Vec<u8>| -> BTreeSet<u64> { (target.run)(input).things().iter().copied().collect() };
    let mut reached: BTreeSet<u64> = kept.iter().flat_map(things).collect();
    let mut candidates: Vec<(&Vec<u8>, BTreeSet<u64>)> = found.iter().map(|input| (input, things(input))).collect();
    let mut chosen = Vec::new();
    while chosen.len() < count {
        for (_, things) in &mut candidates {
            things.retain(|thing| !reached.contains(thing));
        }
        candidates.retain(|(_, things)| !things.is_empty());
        let best = candidates
            .iter()
            .max_by_key(|(input, things)| (things.len(), std::cmp::Reverse(input.len())));
        let Some((input, things)) = best else {
            break;
        };
        reached.extend(things);
        chosen.push(input.as_slice());
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use flotilla_fuzz::Reached;

    /// Reaches each of its letters.
    fn letters(input: &[u8]) -> Reached {
        let mut reached = Reached::default();
        for letter in input {
            reached.note(&char::from(*letter).to_string());
        }
        reached
    }

    #[test]
    fn what_adds_most_is_chosen_first_and_nothing_that_adds_nothing() {
        let target = Target {
            name: "letters",
            run: letters,
            change: |_, _| Vec::new(),
        };
        let inputs = |texts: &[&str]| -> Vec<Vec<u8>> { texts.iter().map(|t| t.as_bytes().to_vec()).collect() };
        let (kept, found) = (inputs(&["ab"]), inputs(&["abc", "cdea", "cde", "f", "ba", "fc"]));
        let chosen = |count| choose(&target, &kept, &found, count);
        assert_eq!(chosen(9), [&b"cde"[..], b"f"]);
        assert_eq!(chosen(1), [b"cde"]);
    }
}
