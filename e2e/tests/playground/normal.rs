//! What kubectl prints, without what differs from run to run.

use std::net::IpAddr;

/// Words that differ from run to run become the same; how columns are filled up is of no concern.
pub(crate) fn normal(text: &str) -> String {
    let line = |line: &str| line.split_whitespace().map(word).collect::<Vec<_>>().join(" ");
    let lines = text.lines().map(line).filter(|line| {
        // How far a rollout was when it was asked, and when something was made, is a matter of chance.
        const BY_CHANCE: [&str; 3] = ["Waiting for", "partitioned roll out complete", "CreationTimestamp:"];
        !BY_CHANCE.iter().any(|start| line.starts_with(start))
    });
    lines
        .map(|line| version(&uncounted(&line)))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The same for what comes in any order.
pub(crate) fn sorted(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// The same for what a watch prints: each line once, as long as nothing else comes between.
pub(crate) fn changes(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.dedup();
    lines.join("\n")
}

/// A version, in YAML or JSON.
fn version(line: &str) -> String {
    match line.split_once("resourceVersion") {
        Some((before, _)) => format!("{before}resourceVersion"),
        None => line.to_owned(),
    }
}

/// An event without how often it has been seen: that is written some time after it was.
fn uncounted(line: &str) -> String {
    match (line.find("(x"), line.find(" over <age>)")) {
        (Some(begin), Some(end)) if begin < end => {
            let rest = line[end..].trim_start_matches(" over <age>)").trim_start();
            format!("{}{rest}", &line[..begin])
        }
        _ => line.to_owned(),
    }
}

fn word(word: &str) -> String {
    let bare = word.trim_matches(|c: char| "\"',()[]".contains(c));
    let symbol = if is_age(bare) {
        "<age>"
    } else if bare.starts_with("pvc-") || bare.strip_prefix("pv-").is_some_and(is_uid) {
        "<volume>"
    } else if is_uid(bare) {
        "<uid>"
    } else if is_time(bare) {
        "<time>"
    } else if bare.parse::<IpAddr>().is_ok() {
        "<address>"
    } else if bare.strip_prefix("node-").is_some_and(|n| n.parse::<u32>().is_ok()) {
        // The real scheduler breaks ties by chance.
        "<node>"
    } else {
        return word.to_owned();
    };
    word.replace(bare, symbol)
}

/// Such as `5s`, `2m10s` or `0s`.
fn is_age(word: &str) -> bool {
    word.ends_with(['s', 'm', 'h']) && word.chars().next().is_some_and(|c| c.is_ascii_digit())
}

fn is_uid(word: &str) -> bool {
    let dashes: Vec<usize> = word.match_indices('-').map(|(at, _)| at).collect();
    word.len() == 36 && dashes == [8, 13, 18, 23]
}

fn is_time(word: &str) -> bool {
    word.len() >= 20 && word.ends_with('Z') && word.get(10..11) == Some("T")
}
