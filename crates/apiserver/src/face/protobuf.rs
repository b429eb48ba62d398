//! Bodies in protobuf, which typed clients such as `kubectl create namespace` send: those few kinds are read, any other is refused by
//! name.

use super::not_supported;
use flotilla_apimachinery::status::Status;
use serde_json::{Map, Value, json};

/// What stands before every protobuf object of Kubernetes.
const MAGIC: &[u8] = b"k8s\0";

/// What a field holds.
#[derive(Clone, Copy)]
enum Part {
    Text,
    Bytes,
    Number,
    Truth,
    Message(&'static [Field]),
    Texts,
    Messages(&'static [Field]),
    TextMap,
    ByteMap,
}

/// Number, name, and what it holds.
type Field = (u64, &'static str, Part);

const OWNER: &[Field] = &[
    (1, "kind", Part::Text),
    (3, "name", Part::Text),
    (4, "uid", Part::Text),
    (5, "apiVersion", Part::Text),
    (6, "controller", Part::Truth),
    (7, "blockOwnerDeletion", Part::Truth),
];
/// What the server sets itself is left out.
const META: Part = Part::Message(&[
    (1, "name", Part::Text),
    (2, "generateName", Part::Text),
    (3, "namespace", Part::Text),
    (5, "uid", Part::Text),
    (6, "resourceVersion", Part::Text),
    (11, "labels", Part::TextMap),
    (12, "annotations", Part::TextMap),
    (13, "ownerReferences", Part::Messages(OWNER)),
    (14, "finalizers", Part::Texts),
]);
const DELETE_OPTIONS: &[Field] = &[
    (1, "gracePeriodSeconds", Part::Number),
    (
        2,
        "preconditions",
        Part::Message(&[(1, "uid", Part::Text), (2, "resourceVersion", Part::Text)]),
    ),
    (3, "orphanDependents", Part::Truth),
    (4, "propagationPolicy", Part::Text),
    (5, "dryRun", Part::Texts),
];
const RESOURCE_ATTRIBUTES: &[Field] = &[
    (1, "namespace", Part::Text),
    (2, "verb", Part::Text),
    (3, "group", Part::Text),
    (4, "version", Part::Text),
    (5, "resource", Part::Text),
    (6, "subresource", Part::Text),
    (7, "name", Part::Text),
];
const KINDS: &[(&str, &[Field])] = &[
    ("DeleteOptions", DELETE_OPTIONS),
    ("Namespace", &[(1, "metadata", META)]),
    (
        "ServiceAccount",
        &[(1, "metadata", META), (4, "automountServiceAccountToken", Part::Truth)],
    ),
    (
        "ConfigMap",
        &[
            (1, "metadata", META),
            (2, "data", Part::TextMap),
            (3, "binaryData", Part::ByteMap),
            (4, "immutable", Part::Truth),
        ],
    ),
    (
        "Secret",
        &[
            (1, "metadata", META),
            (2, "data", Part::ByteMap),
            (3, "type", Part::Text),
            (4, "stringData", Part::TextMap),
            (5, "immutable", Part::Truth),
        ],
    ),
    (
        "Eviction",
        &[
            (1, "metadata", META),
            (2, "deleteOptions", Part::Message(DELETE_OPTIONS)),
        ],
    ),
    ("SelfSubjectReview", &[(1, "metadata", META)]),
    (
        "SelfSubjectAccessReview",
        &[
            (1, "metadata", META),
            (
                2,
                "spec",
                Part::Message(&[
                    (1, "resourceAttributes", Part::Message(RESOURCE_ATTRIBUTES)),
                    (
                        2,
                        "nonResourceAttributes",
                        Part::Message(&[(1, "path", Part::Text), (2, "verb", Part::Text)]),
                    ),
                ]),
            ),
        ],
    ),
    (
        "SelfSubjectRulesReview",
        &[
            (1, "metadata", META),
            (2, "spec", Part::Message(&[(1, "namespace", Part::Text)])),
        ],
    ),
];

const ENVELOPE: &[Field] = &[
    (
        1,
        "type",
        Part::Message(&[(1, "apiVersion", Part::Text), (2, "kind", Part::Text)]),
    ),
    (2, "raw", Part::Bytes),
];

/// An object in its envelope, as JSON.
pub(super) fn read(body: &[u8]) -> Result<Value, Status> {
    let broken = || Status::bad_request("the body is not a Kubernetes object in protobuf");
    let inner = body.strip_prefix(MAGIC).ok_or_else(broken)?;
    let mut raw: &[u8] = &[];
    let envelope = message(inner, ENVELOPE, &mut |bytes| raw = bytes).ok_or_else(broken)?;
    let text = |field: &str| envelope["type"][field].as_str().unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let fields = KINDS.iter().find(|(name, _)| *name == kind).map(|(_, fields)| *fields);
    let fields = fields.ok_or_else(|| not_supported(&format!("bodies of the kind {kind} in protobuf; send JSON")))?;
    let mut object = message(raw, fields, &mut |_| {}).ok_or_else(broken)?;
    object["apiVersion"] = json!(version);
    object["kind"] = json!(kind);
    Ok(object)
}

/// Reads the fields that are known; `None` if the bytes make no sense.
fn message<'b>(mut bytes: &'b [u8], fields: &[Field], on_bytes: &mut dyn FnMut(&'b [u8])) -> Option<Value> {
    let mut object = Map::new();
    while !bytes.is_empty() {
        let tag = number(&mut bytes)?;
        let field = fields.iter().find(|(number, ..)| *number == tag >> 3);
        let (value, content) = match tag & 7 {
            0 => (number(&mut bytes)?, &bytes[..0]),
            1 => (0, take(&mut bytes, 8)?),
            2 => {
                let length = usize::try_from(number(&mut bytes)?).ok()?;
                (0, take(&mut bytes, length)?)
            }
            5 => (0, take(&mut bytes, 4)?),
            _ => return None,
        };
        if let Some((_, name, part)) = field {
            put(&mut object, name, *part, value, content, on_bytes)?;
        }
    }
    Some(Value::Object(object))
}

fn put<'b>(
    object: &mut Map<String, Value>,
    name: &str,
    part: Part,
    number: u64,
    content: &'b [u8],
    on_bytes: &mut dyn FnMut(&'b [u8]),
) -> Option<()> {
    let text = || std::str::from_utf8(content).ok();
    match part {
        // Texts are always there; empty ones say nothing.
        Part::Text if content.is_empty() => {}
        Part::Text => drop(object.insert(name.to_owned(), json!(text()?))),
        Part::Bytes => on_bytes(content),
        Part::Number => drop(object.insert(name.to_owned(), json!(number as i64))),
        Part::Truth => drop(object.insert(name.to_owned(), json!(number != 0))),
        Part::Message(fields) => drop(object.insert(name.to_owned(), message(content, fields, &mut |_| {})?)),
        Part::Texts => list(object, name).push(json!(text()?)),
        Part::Messages(fields) => {
            let item = message(content, fields, &mut |_| {})?;
            list(object, name).push(item);
        }
        Part::TextMap => {
            let entry = message(
                content,
                &[(1, "key", Part::Text), (2, "value", Part::Text)],
                &mut |_| {},
            )?;
            let value = entry.get("value").cloned().unwrap_or_else(|| json!(""));
            map(object, name).insert(entry["key"].as_str().unwrap_or_default().to_owned(), value);
        }
        Part::ByteMap => {
            let mut bytes: &[u8] = &[];
            let entry = message(
                content,
                &[(1, "key", Part::Text), (2, "value", Part::Bytes)],
                &mut |b| bytes = b,
            )?;
            let value = json!(crate::rules::base64(bytes));
            map(object, name).insert(entry["key"].as_str().unwrap_or_default().to_owned(), value);
        }
    }
    Some(())
}

fn list<'o>(object: &'o mut Map<String, Value>, name: &str) -> &'o mut Vec<Value> {
    let place = object.entry(name).or_insert_with(|| json!([]));
    place.as_array_mut().expect("a list was put there")
}

fn map<'o>(object: &'o mut Map<String, Value>, name: &str) -> &'o mut Map<String, Value> {
    let place = object.entry(name).or_insert_with(|| json!({}));
    place.as_object_mut().expect("a map was put there")
}

/// A number of variable length.
fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn take<'b>(bytes: &mut &'b [u8], length: usize) -> Option<&'b [u8]> {
    let (content, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![number << 3 | 2, content.len() as u8];
        bytes.extend(content);
        bytes
    }

    fn enveloped(kind: &[u8], raw: &[u8]) -> Vec<u8> {
        let kind = [field(1, b"v1"), field(2, kind)].concat();
        [MAGIC.to_vec(), field(1, &kind), field(2, raw)].concat()
    }

    #[test]
    fn known_kinds_are_read_and_others_refused_by_name() {
        let label = [field(1, b"app"), field(2, b"web")].concat();
        let meta = [field(1, b"a"), field(3, b""), field(11, &label)].concat();
        let read_it = read(&enveloped(b"Namespace", &field(1, &meta))).unwrap();
        assert_eq!(
            read_it,
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "labels": {"app": "web"}}})
        );
        let why = read(&enveloped(b"Pod", b"")).unwrap_err();
        assert!(why.code == 501 && why.message.contains("Pod"), "{why}");
        assert_eq!(read(b"nonsense").unwrap_err().code, 400);
        assert_eq!(read(&[MAGIC, &[0x0a, 0x7f]].concat()).unwrap_err().code, 400);
    }
}
