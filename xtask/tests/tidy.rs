//! What neither compiler nor clippy checks: the direction of dependencies, the purity of the deciding crates, that no suite is left out,
//! and the shape of the source text.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Which crates of the workspace each crate builds on, tests aside. Every crate is listed, after those that it builds on.
const ARROWS: &[(&str, &[&str])] = &[
    ("flotilla-api", &[]),
    ("flotilla-apimachinery", &[]),
    ("flotilla-install", &["flotilla-api"]),
    ("flotilla-model", &["flotilla-api"]),
    ("flotilla-controllers", &["flotilla-api", "flotilla-model"]),
    ("flotilla-agent", &["flotilla-api", "flotilla-model"]),
    (
        "flotilla-admission",
        &["flotilla-api", "flotilla-apimachinery", "flotilla-model"],
    ),
    ("flotilla-engine", &["flotilla-api", "flotilla-model"]),
    (
        "flotilla-webhook",
        &[
            "flotilla-api",
            "flotilla-model",
            "flotilla-admission",
            "flotilla-engine",
        ],
    ),
    (
        "flotilla-node",
        &["flotilla-api", "flotilla-model", "flotilla-agent", "flotilla-engine"],
    ),
    (
        "flotilla-apiserver",
        &["flotilla-apimachinery", "flotilla-model", "flotilla-engine"],
    ),
    (
        "flotilla-sim",
        &["flotilla-model", "flotilla-engine", "flotilla-apiserver"],
    ),
    (
        "flotilla-why",
        &[
            "flotilla-api",
            "flotilla-model",
            "flotilla-controllers",
            "flotilla-engine",
        ],
    ),
    (
        "flotilla-faultsim",
        &[
            "flotilla-apimachinery",
            "flotilla-model",
            "flotilla-admission",
            "flotilla-controllers",
            "flotilla-engine",
            "flotilla-sim",
            "flotilla-why",
        ],
    ),
    (
        "flotilla-fuzz",
        &[
            "flotilla-api",
            "flotilla-model",
            "flotilla-controllers",
            "flotilla-admission",
            "flotilla-engine",
        ],
    ),
    ("flotilla-conformance", &["flotilla-api"]),
    ("flotilla-simserver", &["flotilla-model", "flotilla-apiserver"]),
    (
        "flotilla-playground",
        &[
            "flotilla-api",
            "flotilla-model",
            "flotilla-engine",
            "flotilla-apiserver",
            "flotilla-sim",
            "flotilla-simserver",
        ],
    ),
    (
        "flotilla-plan",
        &[
            "flotilla-api",
            "flotilla-apimachinery",
            "flotilla-model",
            "flotilla-controllers",
            "flotilla-engine",
            "flotilla-sim",
        ],
    ),
    (
        "flotilla",
        &[
            "flotilla-api",
            "flotilla-model",
            "flotilla-controllers",
            "flotilla-engine",
            "flotilla-install",
            "flotilla-apiserver",
            "flotilla-plan",
            "flotilla-why",
            "flotilla-simserver",
            "flotilla-playground",
            "flotilla-webhook",
            "flotilla-node",
        ],
    ),
    ("flotilla-localcluster", &[]),
    ("xtask", &["flotilla-localcluster", "flotilla-install"]),
    (
        "flotilla-e2e",
        &["flotilla-localcluster", "flotilla-conformance", "flotilla-install"],
    ),
    (
        "flotilla-bench",
        &[
            "flotilla-localcluster",
            "flotilla-e2e",
            "flotilla-model",
            "flotilla-controllers",
            "flotilla-engine",
            "flotilla-apiserver",
            "flotilla-sim",
            "flotilla-simserver",
            "flotilla-playground",
        ],
    ),
];

/// Crates in which no client, clock, async, randomness or logging may be reachable.
const PURE: &[&str] = &[
    "flotilla-apimachinery",
    "flotilla-api",
    "flotilla-install",
    "flotilla-model",
    "flotilla-controllers",
    "flotilla-admission",
    "flotilla-agent",
];

/// Crates that bring one of these.
const IMPURE: &[&str] = &[
    "tokio",
    "async-std",
    "smol",
    "futures-util",
    "futures-executor",
    "hyper",
    "hyper-util",
    "reqwest",
    "ureq",
    "tower",
    "kube-client",
    "kube-runtime",
    "rand",
    "rand_core",
    "fastrand",
    "getrandom",
    "tracing",
    "log",
    "slog",
    "env_logger",
];

/// Words that no source file may hold, with the reason.
const BANNED: &[(&str, &str)] = &[
    ("FIXME", "mend it, or open an issue"),
    ("XXX", "mend it, or open an issue"),
    ("todo!", "a stub is a defect"),
    ("unimplemented!", "a stub is a defect"),
    (
        "HashMap::new()",
        "iteration order is random: BTreeMap, or a map with a fixed hasher",
    ),
    (
        "HashSet::new()",
        "iteration order is random: BTreeSet, or a set with a fixed hasher",
    ),
    ("thread::sleep", "wait for what you wait for"),
];

/// Longest function outside tests, in lines from signature to closing brace.
const LONGEST_FUNCTION: usize = 70;
/// Longest file outside its tests, in lines.
const LONGEST_FILE: usize = 600;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the workspace")
        .to_owned()
}

fn cargo(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(args)
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "cargo {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("cargo prints UTF-8")
}

/// Names of all crates reachable from `package` in a build, itself included.
fn reachable(package: &str) -> Vec<String> {
    let tree = cargo(&[
        "tree",
        "--offline",
        "-p",
        package,
        "-e",
        "normal,no-proc-macro",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ]);
    tree.lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn dependencies_point_one_way() {
    let metadata = cargo(&["metadata", "--offline", "--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&metadata).expect("cargo prints JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let rooms: Vec<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    let mut wrong = Vec::new();
    for package in packages {
        let name = package["name"].as_str().expect("a name");
        let Some(place) = ARROWS.iter().position(|(room, _)| *room == name) else {
            wrong.push(format!("{name} is not listed"));
            continue;
        };
        let allowed = ARROWS[place].1;
        let is_before = |used: &str| ARROWS[..place].iter().any(|(room, _)| *room == used);
        wrong.extend(
            allowed
                .iter()
                .filter(|used| !is_before(used))
                .map(|used| format!("{name} is listed before {used}")),
        );
        let dependencies = package["dependencies"].as_array().expect("dependencies");
        let built = dependencies.iter().filter(|d| d["kind"].is_null());
        let used = built.filter_map(|d| d["name"].as_str());
        wrong.extend(
            used.filter(|used| rooms.contains(used) && !allowed.contains(used))
                .map(|used| format!("{name} uses {used}")),
        );
    }
    assert!(wrong.is_empty(), "arrows against the direction: {wrong:?}");
}

#[test]
fn deciding_is_pure() {
    let mut wrong = Vec::new();
    for package in PURE {
        wrong.extend(
            reachable(package)
                .into_iter()
                .filter(|c| IMPURE.contains(&c.as_str()))
                .map(|c| format!("{package}: {c}")),
        );
    }
    assert!(wrong.is_empty(), "reachable from a deciding crate: {wrong:?}");
}

/// All Rust sources of the workspace that git knows, with their text.
fn sources() -> Vec<(String, String)> {
    let listed = Command::new("git")
        .args(["ls-files", "*.rs"])
        .current_dir(root())
        .output()
        .expect("git runs");
    let names = String::from_utf8(listed.stdout).expect("names are UTF-8");
    names
        .lines()
        .filter(|name| !name.ends_with("tests/tidy.rs"))
        .filter_map(|name| {
            fs::read_to_string(root().join(name))
                .ok()
                .map(|text| (name.to_owned(), text))
        })
        .collect()
}

fn is_test(name: &str) -> bool {
    name.contains("/tests/") || name.ends_with("tests.rs") || name.ends_with("testing.rs") || name.starts_with("e2e/")
}

/// The lines before the tests at the end of a file.
fn body(text: &str) -> Vec<&str> {
    text.lines()
        .take_while(|line| !line.trim_start().starts_with("#[cfg(test)]"))
        .collect()
}

#[test]
fn every_suite_is_run() {
    let manifest = fs::read_to_string(root().join("e2e/Cargo.toml")).expect("a manifest");
    let run = fs::read_to_string(root().join("xtask/src/test.rs")).expect("the list of suites");
    let tests = manifest.split("[[test]]").skip(1);
    let names: Vec<&str> = tests.filter_map(|test| test.split('"').nth(1)).collect();
    assert!(names.len() > 10, "{names:?}");
    let idle: Vec<_> = names
        .iter()
        .filter(|name| !run.contains(&format!("\"{name}\",")))
        .collect();
    assert!(idle.is_empty(), "`cargo xtask test` leaves out {idle:?}");
}

#[test]
fn sources_hold_no_banned_words() {
    let mut found = Vec::new();
    for (name, text) in sources() {
        for (number, line) in text.lines().enumerate() {
            for (word, reason) in BANNED.iter().filter(|(word, _)| line.contains(word)) {
                found.push(format!("{name}:{}: {word}: {reason}", number + 1));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn files_and_functions_stay_short() {
    let mut long = Vec::new();
    for (name, text) in sources().into_iter().filter(|(name, _)| !is_test(name)) {
        let lines = body(&text);
        if lines.len() > LONGEST_FILE {
            long.push(format!("{name}: {} lines", lines.len()));
        }
        for (function, length) in functions(&lines) {
            if length > LONGEST_FUNCTION {
                long.push(format!("{name}: {function}: {length} lines"));
            }
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

/// Functions with their length. rustfmt puts the closing brace under the signature.
fn functions(lines: &[&str]) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let trimmed = line.trim_start();
        let is_function = [
            "fn ",
            "pub fn ",
            "pub(super) fn ",
            "pub(crate) fn ",
            "async fn ",
            "pub async fn ",
            "const fn ",
            "pub const fn ",
        ]
        .iter()
        .any(|head| trimmed.starts_with(head));
        if !is_function || trimmed.ends_with(';') {
            continue;
        }
        let closing = format!("{}}}", &line[..line.len() - trimmed.len()]);
        if let Some(end) = lines[start..].iter().position(|l| *l == closing) {
            let name = trimmed.split(['(', '<']).next().unwrap_or_default();
            found.push((name.rsplit(' ').next().unwrap_or_default().to_owned(), end + 1));
        }
    }
    found
}

#[test]
fn doc_comments_hold_no_code() {
    let fence = ["```", "```rust"];
    let is_code = |line: &str| {
        let comment = line
            .trim_start()
            .strip_prefix("///")
            .or_else(|| line.trim_start().strip_prefix("//!"));
        comment.is_some_and(|text| fence.contains(&text.trim()))
    };
    let mut found = Vec::new();
    for (name, text) in sources() {
        found.extend(text.lines().filter(|line| is_code(line)).map(|_| name.clone()));
    }
    assert!(
        found.is_empty(),
        "`cargo xtask test` does not run code in comments; make it a test: {found:?}"
    );
}

#[test]
fn texts_are_self_sufficient() {
    // Assembled, so that this file does not hold what it forbids.
    let forbidden = [
        ["/work", "/"].concat(),
        ["shared", "/spec"].concat(),
        ["../", "shared"].concat(),
    ];
    let listed = Command::new("git")
        .args(["ls-files"])
        .current_dir(root())
        .output()
        .expect("git runs");
    let names = String::from_utf8(listed.stdout).expect("names are UTF-8");
    let mut found = Vec::new();
    for name in names.lines().filter(|n| !n.ends_with("go.sum") && *n != "Cargo.lock") {
        let Ok(text) = fs::read_to_string(root().join(name)) else {
            continue;
        };
        found.extend(
            forbidden
                .iter()
                .filter(|f| text.contains(f.as_str()))
                .map(|f| format!("{name} mentions {f}")),
        );
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
