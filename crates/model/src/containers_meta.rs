//! What the agent of a node notes on a pod about its containers: annotation `apps.kruise.io/runtime-containers-meta`, and the hashes in
//! it (STS-4.6, AGT-8.1 and AGT-8.4).
//!
//! Agent and controllers compute the same hashes, each from what it sees: the agent from the environment that a container really has, the
//! controllers from the pod's labels and annotations. So both are here, and so is the form of the annotation.

use crate::template::canonical;
use flotilla_api::names;
use serde_json::{Map, Value, json};

/// What is noted about one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerMeta {
    /// Its name.
    pub name: String,
    /// Its ID, with the name of the runtime before it: `containerd://…`.
    pub container_id: String,
    /// How often it was restarted before.
    pub restart_count: i32,
    /// The hash of the spec that the kubelet started it from; `None` if the runtime does not know it.
    pub plain_hash: Option<u64>,
    /// The hash of those variables of its environment that refer to metadata; `None` as long as nobody has looked.
    pub env_hash: Option<u64>,
}

/// Where a variable takes its value from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source<'p> {
    /// The label of this key.
    Label(&'p str),
    /// The annotation of this key.
    Annotation(&'p str),
}

/// The label or annotation that a variable of a container refers to by `field_path`, if it counts: a literal value goes before, and
/// what SidecarSets put in never makes a container restart (STS-4.1 and AGT-8.4).
pub fn source_of<'p>(name: &str, value: &str, field_path: &'p str) -> Option<Source<'p>> {
    if !value.is_empty() || names::ENV_NOT_COUNTED.contains(&name) {
        return None;
    }
    let key = |prefix: &str| field_path.strip_prefix(prefix)?.strip_suffix("']");
    let label = key("metadata.labels['").map(Source::Label);
    label.or_else(|| key("metadata.annotations['").map(Source::Annotation))
}

/// Reads the annotation. What cannot be read says nothing of any container.
pub fn parse(text: &str) -> Vec<ContainerMeta> {
    let json: Value = serde_json::from_str(text).unwrap_or(Value::Null);
    let list = json.get("containers").and_then(Value::as_array);
    let read = |c: &Value| {
        let text = |field: &str| c.get(field).and_then(Value::as_str).map(str::to_owned);
        let hash = |field: &str| {
            let hash = c.get("hashes").and_then(|hashes| hashes.get(field))?.as_u64();
            // Nothing hashes to zero that anybody looks for; it is how Go writes "not known".
            hash.filter(|hash| *hash != 0)
        };
        let restarts = c.get("restartCount").and_then(Value::as_i64);
        Some(ContainerMeta {
            name: text("name")?,
            container_id: text("containerID")?,
            restart_count: restarts.and_then(|n| i32::try_from(n).ok()).unwrap_or_default(),
            plain_hash: hash("plainHash"),
            env_hash: hash("extractedEnvFromMetadataHash"),
        })
    };
    list.into_iter().flatten().filter_map(read).collect()
}

/// The annotation.
pub fn to_text(containers: &[ContainerMeta]) -> String {
    let entry = |c: &ContainerMeta| {
        let mut hashes = Map::from_iter([("plainHash".to_owned(), json!(c.plain_hash.unwrap_or(0)))]);
        if let Some(hash) = c.env_hash {
            hashes.insert("extractedEnvFromMetadataHash".to_owned(), json!(hash));
        }
        json!({"name": c.name, "containerID": c.container_id, "restartCount": c.restart_count, "hashes": hashes})
    };
    let containers: Vec<Value> = containers.iter().map(entry).collect();
    json!({ "containers": containers }).to_string()
}

/// FNV-1a over the text in which Go prints a list of bytes, `([]uint8)[123 34]`, of a JSON document.
pub fn hash_of(document: &str) -> u32 {
    let mut hash = Fnv(0x811c_9dc5);
    hash.add(b"([]uint8)[");
    for (place, byte) in document.bytes().enumerate() {
        if place > 0 {
            hash.add(b" ");
        }
        let digits = [byte / 100, byte / 10 % 10, byte % 10].map(|digit| b'0' + digit);
        let leading = usize::from(byte < 100) + usize::from(byte < 10);
        hash.add(&digits[leading..]);
    }
    hash.add(b"]");
    hash.0
}

/// FNV-1a of 32 bits, as far as it has come.
struct Fnv(u32);

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        self.0 = bytes
            .iter()
            .fold(self.0, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    }
}

/// The hash that a kubelet of 1.31 or newer gives a container: it rests on name and image only.
pub fn plain_hash(name: &str, image: &str) -> u64 {
    u64::from(hash_of(&canonical(&json!({"image": image, "name": name}))))
}

/// The hash of the environment that refers to metadata: entries sorted by name, those of one name in their order; `null` for none.
pub fn env_hash<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> u64 {
    let mut entries: Vec<_> = entries.into_iter().collect();
    entries.sort_by_key(|(name, _)| *name);
    if entries.is_empty() {
        return u64::from(hash_of("null"));
    }
    let entry = |(name, value): (&str, &str)| {
        let mut object = Map::from_iter([("name".to_owned(), json!(name))]);
        if !value.is_empty() {
            object.insert("value".to_owned(), json!(value));
        }
        Value::Object(object)
    };
    let list = Value::Array(entries.into_iter().map(entry).collect());
    u64::from(hash_of(&canonical(&list)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sts_4_6_vectors() {
        assert_eq!(plain_hash("main", "registry.local/web:2"), 3_868_682_977);
        assert_eq!(env_hash([("ROLE", "leader")]), 3_087_624_770);
        assert_eq!(env_hash([]), 86_995_377);
    }

    #[test]
    fn agt_8_4_vectors() {
        assert_eq!(plain_hash("test_container", "foo/image:v1"), 0x8e45_cbd0);
        assert_eq!(env_hash([("A", "x")]), 496_662_434);
        assert_eq!(env_hash([("A", "1"), ("B", "2")]), 3_678_609_251);
        assert_eq!(env_hash([("A", "")]), 3_524_302_846);
    }

    #[test]
    fn agt_8_4_names_are_sorted_and_entries_of_one_name_stay_in_order() {
        assert_eq!(env_hash([("B", "2"), ("A", "")]), env_hash([("A", ""), ("B", "2")]));
        assert_ne!(env_hash([("A", "1")]), env_hash([("A", "")]));
        assert_ne!(env_hash([("A", "2"), ("A", "1")]), env_hash([("A", "1"), ("A", "2")]));
        // White space and lines count as they are.
        assert_ne!(env_hash([("A", "x ")]), env_hash([("A", "x")]));
        assert_ne!(env_hash([("A", "x\ny")]), env_hash([("A", "x")]));
    }

    #[test]
    fn agt_8_1_the_annotation_reads_as_it_was_written() {
        let all = [
            ContainerMeta {
                name: "main".to_owned(),
                container_id: "containerd://1".to_owned(),
                restart_count: 2,
                plain_hash: Some(3_868_682_977),
                env_hash: Some(86_995_377),
            },
            ContainerMeta {
                name: "side".to_owned(),
                container_id: "containerd://2".to_owned(),
                restart_count: 0,
                plain_hash: None,
                env_hash: None,
            },
        ];
        let text = to_text(&all);
        assert_eq!(
            serde_json::from_str::<Value>(&text).unwrap(),
            json!({"containers": [
                {"name": "main", "containerID": "containerd://1", "restartCount": 2,
                 "hashes": {"plainHash": 3_868_682_977_u64, "extractedEnvFromMetadataHash": 86_995_377}},
                {"name": "side", "containerID": "containerd://2", "restartCount": 0, "hashes": {"plainHash": 0}},
            ]})
        );
        assert_eq!(parse(&text), all);
        assert_eq!(parse("{"), []);
    }

    #[test]
    fn agt_8_4_which_variables_refer_to_metadata() {
        for (name, value, path, expected) in [
            ("ROLE", "", "metadata.labels['role']", Some(Source::Label("role"))),
            (
                "NOTE",
                "",
                "metadata.annotations['a/b']",
                Some(Source::Annotation("a/b")),
            ),
            ("ROLE", "leader", "metadata.labels['role']", None),
            ("SIDECARSET_VERSION", "", "metadata.annotations['v']", None),
            ("NAME", "", "metadata.name", None),
            ("ROLE", "", "metadata.labels['role", None),
        ] {
            assert_eq!(source_of(name, value, path), expected, "{name} {value} {path}");
        }
    }
}
