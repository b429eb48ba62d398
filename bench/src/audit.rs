//! The API server's audit log: who asked for what, and when.

use flotilla_localcluster::Cluster;
use serde_json::Value;

/// One answered request.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) user: String,
    pub(crate) verb: String,
    /// Plural, with the subresource behind a slash if there is one.
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Status of the answer.
    pub(crate) code: i64,
    /// When it arrived, in microseconds since the epoch.
    pub(crate) received: i64,
    /// When it was answered.
    pub(crate) done: i64,
}

/// Everything that is in the log so far, save watches: they are answered for as long as they last.
pub(crate) fn read(cluster: &Cluster) -> Vec<Entry> {
    let text = std::fs::read_to_string(cluster.audit_log_path()).expect("the audit log is there");
    let entries = text.lines().map(|line| {
        let entry: Value = serde_json::from_str(line).expect("the audit log is JSON");
        Entry::of(&entry)
    });
    entries.filter(|entry| entry.verb != "watch").collect()
}

impl Entry {
    fn of(entry: &Value) -> Self {
        let (object, text) = (&entry["objectRef"], |value: &Value| {
            value.as_str().unwrap_or_default().to_owned()
        });
        let resource = text(&object["resource"]);
        Entry {
            user: text(&entry["user"]["username"]),
            verb: text(&entry["verb"]),
            resource: match object["subresource"].as_str() {
                Some(subresource) => format!("{resource}/{subresource}"),
                None => resource,
            },
            namespace: text(&object["namespace"]),
            name: text(&object["name"]),
            code: entry["responseStatus"]["code"].as_i64().unwrap_or_default(),
            received: microseconds(&entry["requestReceivedTimestamp"]),
            done: microseconds(&entry["stageTimestamp"]),
        }
    }

    /// Whether it was answered well.
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

fn microseconds(time: &Value) -> i64 {
    let time: jiff::Timestamp = time.as_str().and_then(|t| t.parse().ok()).expect("a time");
    time.as_microsecond()
}
