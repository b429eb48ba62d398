//! What an account has done and was refused, from the API server's audit log.

use crate::api::{number, text};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// What was done, or tried: group, resource with its subresource, verb.
pub type Use = (String, String, String);

/// Uses from their words.
pub fn set<'a>(uses: impl IntoIterator<Item = (&'a str, &'a str, &'a str)>) -> BTreeSet<Use> {
    let owned = |(group, resource, verb): (&str, &str, &str)| (group.to_owned(), resource.to_owned(), verb.to_owned());
    uses.into_iter().map(owned).collect()
}

/// What the account has done.
pub fn uses(log: &Path, user: &str) -> BTreeSet<Use> {
    uses_of(&entries(log, user))
}

/// What the account has done in one namespace, or in none.
pub fn uses_in(log: &Path, user: &str, namespace: &str) -> BTreeSet<Use> {
    let mut entries = entries(log, user);
    entries.retain(|entry| ["", namespace].contains(&text(entry, "/objectRef/namespace")));
    uses_of(&entries)
}

/// With what each change of this subresource in a namespace was answered, whoever asked for it, in order.
pub fn answers(log: &Path, namespace: &str, resource: &str, subresource: &str) -> Vec<i64> {
    let is_it = |entry: &Value| {
        let of = |field: &str| text(entry, &format!("/objectRef/{field}"));
        (of("namespace"), of("resource"), of("subresource")) == (namespace, resource, subresource)
    };
    let found = all(log).into_iter().filter(is_it);
    found.map(|entry| number(&entry, "/responseStatus/code")).collect()
}

fn uses_of(entries: &[Value]) -> BTreeSet<Use> {
    let mut uses = BTreeSet::new();
    for entry in entries {
        let (group, resource, verb) = key(entry);
        if entry["responseStatus"]["code"] == 201 && verb == "patch" {
            // Server-side apply of what is not there yet: the API server asks for both rights, and logs one.
            uses.insert((group.clone(), resource.clone(), "create".to_owned()));
        }
        uses.insert((group, resource, verb));
    }
    uses
}

/// What it was refused for lack of rights.
pub fn refusals(log: &Path, user: &str) -> BTreeSet<Use> {
    let entries = entries(log, user);
    let refused = entries
        .iter()
        .filter(|e| e["responseStatus"]["code"] == 403 && !is_quota(e));
    refused.map(key).collect()
}

/// That all that is granted is used, and nothing else.
///
/// # Panics
/// When it is not, with the differences.
pub fn assert_same(granted: &BTreeSet<Use>, uses: &BTreeSet<Use>) {
    let idle: Vec<_> = granted.difference(uses).collect();
    assert!(idle.is_empty(), "granted and never used: {idle:#?}");
    let unknown: Vec<_> = uses.difference(granted).collect();
    assert!(unknown.is_empty(), "used and not in the table: {unknown:#?}");
    println!("{} rights of {} are used: {uses:?}", uses.len(), granted.len());
}

/// Quotas refuse with the same code, and say so.
fn is_quota(entry: &Value) -> bool {
    text(entry, "/responseStatus/message").contains("exceeded quota")
}

fn key(entry: &Value) -> Use {
    let of = |field: &str| text(entry, &format!("/objectRef/{field}")).to_owned();
    let resource = match of("subresource").as_str() {
        "" => of("resource"),
        subresource => format!("{}/{subresource}", of("resource")),
    };
    (of("apiGroup"), resource, text(entry, "/verb").to_owned())
}

fn entries(log: &Path, user: &str) -> Vec<Value> {
    let mut entries = all(log);
    entries.retain(|e| text(e, "/user/username") == user && e["objectRef"].is_object());
    entries
}

fn all(log: &Path) -> Vec<Value> {
    let text_of_log = std::fs::read_to_string(log).expect("the audit log is there");
    let lines = text_of_log.lines();
    lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
}
