//! That rules are named by ids of the rule book (`docs/spec`), and that it has them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The pages of the rule book, and how the ids begin that each of them defines.
const PAGES: &[(&str, &str)] = &[
    ("docs/spec/README.md", "R"),
    ("docs/spec/statefulset.md", "STS"),
    ("docs/spec/cloneset.md", "CS"),
    ("docs/spec/admission.md", "ADM"),
    ("docs/spec/agent.md", "AGT"),
    ("docs/spec/takeover.md", "TKO"),
];

/// Words before a number that name a rule in a way that nobody can look up. In names of tests an underscore follows.
const WORDS: &[&str] = &[
    "rule",
    "ruling",
    "problem",
    "invariant",
    "section",
    "admission",
    "takeover",
];

/// A text, and where it stands.
struct Text {
    name: String,
    text: String,
}

impl Text {
    /// Whether rules that it names are shown by it, and not only explained: all of it, or what follows the line.
    fn shows_from(&self) -> Option<usize> {
        let name = &self.name;
        let all = name.contains("/tests/") || name.ends_with("tests.rs") || name.starts_with("crates/faultsim/src/");
        if all {
            return Some(0);
        }
        self.text
            .lines()
            .position(|line| line.trim_start().starts_with("#[cfg(test)]"))
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the workspace")
        .to_owned()
}

/// All texts of these kinds that git knows, or is to know; not this one, which has wrong ids in it.
fn texts(kinds: &[&str]) -> Vec<Text> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .args(kinds)
        .current_dir(root())
        .output()
        .expect("git runs");
    let names = String::from_utf8(listed.stdout).expect("names are UTF-8");
    names
        .lines()
        .filter(|name| *name != "xtask/tests/rules.rs")
        .filter_map(|name| {
            let text = fs::read_to_string(root().join(name)).ok()?;
            let name = name.to_owned();
            Some(Text { name, text })
        })
        .collect()
}

/// The number at the beginning of a text, whose parts a sign separates: `3.6`, `I12`, or in a name `3_6`, `i12`.
fn number(text: &str, sign: char, is_invariant: bool) -> Option<(String, usize)> {
    let first = usize::from(is_invariant);
    let mut end = first;
    loop {
        let digits = text[end..].bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            break;
        }
        end += digits;
        let more = text[end..].strip_prefix(sign);
        if more.is_none_or(|more| !more.starts_with(|c: char| c.is_ascii_digit())) {
            break;
        }
        end += 1;
    }
    let number = text[..end].to_uppercase().replace('_', ".");
    (end > first).then_some((number, end))
}

/// Places where a text goes on with this, and no word or number before it does.
fn places<'t>(text: &'t str, what: &'t str) -> impl Iterator<Item = usize> + 't {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let found = text.match_indices(what).map(|(at, _)| at);
    found.filter(move |at| !text[..*at].ends_with(is_part))
}

/// The ids in a line, with where each begins and ends.
fn ids(line: &str) -> Vec<(String, usize, usize)> {
    let mut found = Vec::new();
    for (_, book) in PAGES {
        let head = format!("{book}-");
        for at in places(line, &head) {
            let rest = &line[at + head.len()..];
            let Some((number, length)) = number(rest, '.', *book == "STS" && rest.starts_with('I')) else {
                continue;
            };
            if !rest[length..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-') {
                found.push((head.clone() + &number, at, at + head.len() + length));
            }
        }
    }
    found
}

/// The ids at the beginning of a name of a test: `sts_3_6_…`, `cs_13_6_and_13_11_…`, `sts_i1_to_i4_…`, `cs_13_5_and_r_28_…`.
fn ids_of_name(name: &str) -> Vec<String> {
    let (mut found, mut book, mut rest) = (Vec::new(), None, name);
    loop {
        let named = PAGES.iter().find_map(|(_, book)| {
            let more = rest.strip_prefix(&format!("{}_", book.to_lowercase()))?;
            Some((*book, more))
        });
        if let Some((named, more)) = named {
            (book, rest) = (Some(named), more);
        }
        let Some(book) = book else { return found };
        let Some((number, length)) = number(rest, '_', book == "STS" && rest.starts_with('i')) else {
            return found;
        };
        found.push(format!("{book}-{number}"));
        rest = &rest[length..];
        let Some(more) = ["_and_", "_to_"].iter().find_map(|word| rest.strip_prefix(word)) else {
            return found;
        };
        rest = more;
    }
}

/// The ids in names of tests, in a line of code or where a text quotes them.
fn ids_of_names(line: &str) -> Vec<String> {
    let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.flat_map(ids_of_name).collect()
}

/// What the rule book defines: what stands in a heading or in bold, with where.
fn defined() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for text in texts(&["docs/spec/*.md"]) {
        for (at, line) in text.text.lines().enumerate() {
            let defines = |start: usize, end: usize| {
                let heads = line.starts_with('#') && line[..start].trim_matches('#').trim().is_empty();
                heads || line[..start].ends_with("**") && line[end..].starts_with("**")
            };
            let ids = ids(line).into_iter().filter(|(_, start, end)| defines(*start, *end));
            found.extend(ids.map(|(id, ..)| (id, format!("{}:{}", text.name, at + 1))));
        }
    }
    found
}

/// What a line of code says of a rule without the id that tells which.
fn bare(line: &str) -> Option<&str> {
    let lower = line.to_ascii_lowercase();
    for word in WORDS {
        for at in places(&lower, word) {
            let rest = &lower[at + word.len()..];
            let rest = rest.strip_prefix('s').unwrap_or(rest);
            let begins = rest.strip_prefix([' ', '_']);
            let begins = begins.map(|number| number.strip_prefix('r').unwrap_or(number));
            if begins.is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit())) {
                return line.get(at..);
            }
        }
    }
    let goes_on = |end: usize| {
        let more = [" and ", " to ", " or ", ", "];
        let number = more.iter().find_map(|word| line[end..].strip_prefix(word))?;
        is_dotted(number).then_some(&line[end..])
    };
    if let Some(found) = ids(line).into_iter().find_map(|(.., end)| goes_on(end)) {
        return Some(found);
    }
    let comment = line.find("//").map(|at| &line[at..])?;
    let mut bracketed = comment.split('(').skip(1);
    bracketed.find(|text| {
        text.split(')')
            .next()
            .is_some_and(|number| is_dotted(number) && !number.contains(' '))
    })
}

/// Whether a text begins with a number of two parts or more, as those of rules are.
fn is_dotted(text: &str) -> bool {
    number(text, '.', false).is_some_and(|(number, length)| {
        number.contains('.') && !text[length..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '%')
    })
}

#[test]
fn ids_are_found() {
    assert_eq!(number("3.6).", '.', false), Some(("3.6".to_owned(), 3)));
    assert_eq!(number("13.", '.', false), Some(("13".to_owned(), 2)));
    assert_eq!(number("I12:", '.', true), Some(("I12".to_owned(), 3)));
    assert_eq!(number("i", '_', true), None);
    let found = |line: &str| ids(line).into_iter().map(|(id, ..)| id).collect::<Vec<_>>();
    assert_eq!(found("(CS-13.6, STS-I2). See R-4."), ["R-4", "STS-I2", "CS-13.6"]);
    assert_eq!(found("PATHS-1, [x](README.md#r-4), CS-8-conversion, ABC-R-1"), [""; 0]);
    assert_eq!(ids_of_name("sts_3_6_three_of_5_stay"), ["STS-3.6"]);
    assert_eq!(
        ids_of_name("cs_13_5_and_13_9_and_r_28_x"),
        ["CS-13.5", "CS-13.9", "R-28"]
    );
    assert_eq!(
        ids_of_name("sts_i1_to_i4_and_8_5_hold"),
        ["STS-I1", "STS-I4", "STS-8.5"]
    );
    assert_eq!(ids_of_name("r_value"), [""; 0]);
    assert_eq!(ids_of_names("fn agt_8_4_x() { cs_15() }"), ["AGT-8.4", "CS-15"]);
}

#[test]
fn what_names_no_book_is_found() {
    for line in [
        "/// As it was (rule 3.6).",
        "fn rule_3_6_x() {",
        "// Rulings 36 and 37.",
        "\"problem 8.1\"",
        "// Only names (rule R3).",
        "fn admission_3_x() {",
        "/// By STS-3.6 and 4.1.",
        "// That may be later (8.18).",
    ] {
        assert!(bare(line).is_some(), "{line}");
    }
    for line in [
        "/// As it was (STS-3.6 and CS-13.6, 3 times).",
        "fn sts_3_6_x() {",
        "let rules = 5;",
        "// A rule of 3 parts (since 1.34 it has).",
        "value(1.5)",
    ] {
        assert_eq!(bare(line), None, "{line}");
    }
}

#[test]
fn each_id_is_defined_once_and_on_its_page() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (id, place) in defined() {
        places.entry(id).or_default().push(place);
    }
    assert!(places.len() > 200, "{}", places.len());
    let mut wrong = Vec::new();
    for (id, places) in places {
        let page = PAGES.iter().find(|(_, book)| id.split('-').next() == Some(book));
        let is_there = page.is_some_and(|(page, _)| places.iter().all(|place| place.starts_with(page)));
        if places.len() > 1 || !is_there {
            wrong.push(format!("{id}: {}", places.join(", ")));
        }
    }
    assert!(
        wrong.is_empty(),
        "defined twice, or on another page:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn rules_that_are_named_are_in_the_rule_book() {
    let defined: BTreeSet<String> = defined().into_iter().map(|(id, _)| id).collect();
    let mut wrong = Vec::new();
    for text in texts(&["*.rs", "*.md", "*.yaml"]) {
        for (at, line) in text.text.lines().enumerate() {
            let named = ids(line).into_iter().map(|(id, ..)| id).chain(ids_of_names(line));
            let unknown = named.filter(|id| !defined.contains(id));
            wrong.extend(unknown.map(|id| format!("{}:{}: {id}", text.name, at + 1)));
        }
    }
    assert!(wrong.is_empty(), "not defined in docs/spec:\n{}", wrong.join("\n"));
}

#[test]
fn rules_are_named_by_their_ids() {
    let mut wrong = Vec::new();
    for text in texts(&["*.rs"]) {
        for (at, line) in text.text.lines().enumerate() {
            wrong.extend(bare(line).map(|what| format!("{}:{}: {what}", text.name, at + 1)));
        }
    }
    assert!(wrong.is_empty(), "say of which page (docs/spec):\n{}", wrong.join("\n"));
}

/// No failure: what holds by the way in which something is built needs no test of its own.
#[test]
fn rules_that_no_test_names_are_listed() {
    let mut named = BTreeSet::new();
    for text in texts(&["*.rs"]) {
        let Some(from) = text.shows_from() else { continue };
        for line in text.text.lines().skip(from) {
            named.extend(ids(line).into_iter().map(|(id, ..)| id));
            named.extend(ids_of_names(line));
        }
    }
    let defined: BTreeSet<String> = defined().into_iter().map(|(id, _)| id).collect();
    let is_section = |id: &String| {
        let head = format!("{id}.");
        defined.iter().any(|other| other.starts_with(&head))
    };
    let bare: Vec<&str> = defined
        .iter()
        .filter(|id| !named.contains(*id) && !is_section(id))
        .map(String::as_str)
        .collect();
    println!(
        "{} of {} rules are named by no test: {}",
        bare.len(),
        defined.len(),
        bare.join(" ")
    );
}
