//! Target `protobuf`: what the API server sends becomes records, whatever it is.
//!
//! An input in JSON, `{"resource", "object"}`, is an object that is encoded here as the API server would: both encodings give the same
//! record, as do other orders of its fields, the envelope, a list and a watch. Any other input is protobuf from nowhere; its first byte
//! says what it is read as.

mod schema;
mod tree;

use crate::reached::Reached;
use crate::{Random, mutate};
use bytes::Bytes;
use flotilla_engine::wire::status::Status;
use flotilla_engine::wire::watch::{Frame, Frames};
use flotilla_engine::wire::{Encoding, Object, Unreadable, decode, decode_again, identity, read, split_list};
use flotilla_model::{Interner, Resource};
use serde_json::Value;
use tree::{Content, Field};

/// What comes in protobuf.
const BUILT_IN: [(&str, Resource); 5] = [
    ("pods", Resource::Pods),
    ("persistentvolumeclaims", Resource::Claims),
    ("configmaps", Resource::ConfigMaps),
    ("controllerrevisions", Resource::Revisions),
    ("storageclasses", Resource::StorageClasses),
];

/// What comes in JSON.
const SETS: [(&str, Resource); 3] = [
    ("clonesets", Resource::CloneSets),
    ("statefulsets", Resource::NativeSets),
    ("advancedstatefulsets", Resource::AdvancedSets),
];

/// Tries one input.
pub fn run(input: &[u8]) -> Reached {
    let mut reached = Reached::default();
    match serde_json::from_slice::<Value>(input) {
        Ok(document) => one_object(&document, &mut reached),
        Err(_) => anything(input, &mut reached),
    }
    reached
}

/// An input made of those in JSON: changed as JSON, or encoded and changed as protobuf.
pub fn changed(inputs: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let input = mutate::changed(inputs, random);
    if random.below(2) == 0 {
        return input;
    }
    let encoded = |bytes: &[u8]| {
        let document: Value = serde_json::from_slice(bytes).ok()?;
        let name = document["resource"].as_str()?;
        let fields = schema::encode(name, &document["object"])?;
        let index = BUILT_IN.iter().position(|(known, _)| *known == name)?;
        Some((index, fields))
    };
    let other = inputs[random.below(inputs.len())].as_slice();
    let Some((index, mut fields)) = encoded(&input) else {
        return input;
    };
    let kind = if random.below(4) == 0 { random.below(9) } else { index };
    let version = vec![Field::text(2, "7")];
    match kind {
        // A list, an event of a watch, and a refusal begin with something else.
        5 => {
            fields = vec![
                Field::of(1, Content::Message(version)),
                Field::of(2, Content::Message(fields)),
            ];
        }
        6 => {
            let object = Content::Message(vec![Field::of(1, Content::Message(fields))]);
            fields = vec![Field::text(1, "MODIFIED"), Field::of(2, object)];
        }
        _ => {}
    }
    let other = encoded(other).map_or_else(Vec::new, |(_, fields)| fields);
    let mut bytes = vec![kind as u8];
    bytes.extend(tree::change(fields, &other, random));
    bytes
}

/// One object in JSON, and in every form of protobuf.
fn one_object(document: &Value, reached: &mut Reached) {
    let name = document["resource"].as_str().unwrap_or_default();
    let object = &document["object"];
    if let Some((_, resource)) = SETS.iter().find(|(known, _)| *known == name) {
        let found = read(*resource, object, &mut Interner::new());
        assert_eq!(outcome(&found), outcome(&read(*resource, object, &mut Interner::new())));
        note(found.as_ref(), reached);
        return;
    }
    let Some((_, resource)) = BUILT_IN.iter().find(|(known, _)| *known == name) else {
        return;
    };
    let resource = *resource;
    let text = Bytes::from(object.to_string());
    let in_json = decode(resource, Encoding::Json, &text, &mut Interner::new());
    note(in_json.as_ref().map_err(|e| &e.reason), reached);
    let Some(fields) = schema::encode(name, object) else {
        return;
    };
    let bare = Bytes::from(tree::write(&fields));
    let same = |bytes: &Bytes| {
        let found = decode(resource, Encoding::Protobuf, bytes, &mut Interner::new());
        assert_eq!(outcome(&found), outcome(&in_json), "as in JSON");
    };
    same(&bare);
    if let Ok(Object::Pod(known)) = decode(resource, Encoding::Protobuf, &bare, &mut Interner::new()) {
        let again = decode_again(Encoding::Protobuf, &bare, &known, &mut Interner::new());
        assert_eq!(outcome(&again), outcome(&in_json), "read again");
    }
    same(&tree::write(&tree::shuffled(&fields)).into());
    same(&enveloped(&fields));
    assert_eq!(
        identity(Encoding::Protobuf, &bare),
        identity(Encoding::Json, &text),
        "also what a deletion is read for"
    );
    if let Ok(record) = &in_json {
        let meta = record.meta();
        let expected = Some((meta.key.clone(), meta.uid.clone(), meta.resource_version));
        assert_eq!(identity(Encoding::Json, &text), expected);
        in_lists_and_watches(&fields, &bare, meta.resource_version);
    }
}

/// What is around an object does not change it.
fn in_lists_and_watches(fields: &[Field], bare: &Bytes, version: u64) {
    let item = || Field::of(2, Content::Message(fields.to_vec()));
    let meta = Field::of(1, Content::Message(vec![Field::text(2, "7"), Field::text(3, "more")]));
    let list = split_list(Encoding::Protobuf, &enveloped(&[meta, item(), item()])).expect("a list");
    assert_eq!((list.resource_version, list.continue_token.as_str()), (7, "more"));
    assert_eq!(list.items, [bare.clone(), bare.clone()]);

    let enveloped = enveloped(fields);
    let object = Content::Message(vec![Field::of(1, Content::Bytes(enveloped.to_vec()))]);
    let event = tree::write(&[Field::text(1, "ADDED"), Field::of(2, object)]);
    let mut stream = u32::try_from(event.len())
        .expect("no input is that long")
        .to_be_bytes()
        .to_vec();
    stream.extend(event);
    let mut frames = Frames::new(Encoding::Protobuf);
    let (head, tail) = stream.split_at(stream.len() / 2);
    frames.push(head);
    assert!(
        frames.next_frame().expect("nothing wrong yet").is_none(),
        "half of a frame"
    );
    frames.push(tail);
    let frame = frames.next_frame().expect("a frame").expect("all of it");
    assert_eq!(frame.version(Encoding::Protobuf), Some(version));
    assert!(matches!(frame, Frame::Upsert(found) if found == enveloped));
}

/// An object in the envelope in which the API server sends single ones.
fn enveloped(fields: &[Field]) -> Bytes {
    let kind = Content::Message(vec![Field::text(1, "v1"), Field::text(2, "Any")]);
    let raw = Content::Message(fields.to_vec());
    let mut bytes = b"k8s\0".to_vec();
    bytes.extend(tree::write(&[Field::of(1, kind), Field::of(2, raw)]));
    bytes.into()
}

/// Bytes from nowhere.
fn anything(input: &[u8], reached: &mut Reached) {
    let Some((kind, rest)) = input.split_first() else {
        return;
    };
    let bytes = Bytes::copy_from_slice(rest);
    match kind % 9 {
        5 => match split_list(Encoding::Protobuf, &bytes) {
            Ok(list) => assert!(list.items.iter().map(Bytes::len).sum::<usize>() <= rest.len()),
            Err(error) => reached.note(&error),
        },
        6 => frames(rest, reached),
        7 => reached.note_value(&Status::read(500, Encoding::Protobuf, &bytes)),
        8 => reached.note_value(&Status::of_success(Encoding::Protobuf, &bytes)),
        index => {
            let (_, resource) = BUILT_IN[usize::from(index)];
            let found = decode(resource, Encoding::Protobuf, &bytes, &mut Interner::new());
            let again = decode(resource, Encoding::Protobuf, &bytes, &mut Interner::new());
            assert_eq!(outcome(&found), outcome(&again), "decoding depends on nothing else");
            note(found.as_ref().map_err(|e| &e.reason), reached);
            bounded(found.as_ref(), rest.len());
        }
    }
}

/// A stream of frames in pieces of seven bytes.
fn frames(bytes: &[u8], reached: &mut Reached) {
    let mut stream = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes().to_vec();
    stream.extend_from_slice(bytes);
    // What follows is the stream's own bytes again, as lengths from nowhere.
    stream.extend_from_slice(bytes);
    let mut frames = Frames::new(Encoding::Protobuf);
    for piece in stream.chunks(7) {
        frames.push(piece);
        match frames.next_frame() {
            Ok(None) => {}
            Ok(Some(frame)) => {
                let version = frame.version(Encoding::Protobuf);
                reached.note(match (frame, version.is_some()) {
                    (Frame::Upsert(_), true) => "upsert",
                    (Frame::Upsert(_), false) => "upsert without version",
                    (Frame::Delete(_), _) => "delete",
                    (Frame::Bookmark(_), _) => "bookmark",
                    (Frame::Error(_), _) => "error",
                });
            }
            // Nobody reads on.
            Err(error) => return reached.note(&error),
        }
    }
}

/// A record is not larger than what it was read from allows: each byte makes a field at most.
fn bounded(found: Result<&Object, &Unreadable>, input_bytes: usize) {
    if let Ok(object) = found {
        let printed = format!("{object:?}").len();
        assert!(
            printed <= 4096 + 2048 * input_bytes,
            "{printed} characters of {input_bytes} bytes"
        );
    }
}

/// What was read, to be compared.
#[derive(Debug, PartialEq)]
enum Outcome<'a> {
    Pod(&'a flotilla_model::PodRecord),
    Claim(&'a flotilla_model::ClaimRecord),
    ConfigMap(&'a flotilla_model::ConfigMapRecord),
    Revision(&'a flotilla_model::RevisionRecord),
    Set(&'a flotilla_model::SetRecord),
    StorageClass(&'a flotilla_model::StorageClassRecord),
    Node(&'a flotilla_model::NodeRecord),
    ImagePullJob(&'a flotilla_model::ImagePullJobRecord),
    /// Encodings word their complaints differently.
    Unreadable,
}

fn outcome<E>(found: &Result<Object, E>) -> Outcome<'_> {
    match found {
        Ok(Object::Pod(record)) => Outcome::Pod(record),
        Ok(Object::Claim(record)) => Outcome::Claim(record),
        Ok(Object::ConfigMap(record)) => Outcome::ConfigMap(record),
        Ok(Object::Revision(record)) => Outcome::Revision(record),
        Ok(Object::Set(record)) => Outcome::Set(record),
        Ok(Object::StorageClass(record)) => Outcome::StorageClass(record),
        Ok(Object::Node(record)) => Outcome::Node(record),
        Ok(Object::ImagePullJob(record)) => Outcome::ImagePullJob(record),
        Err(_) => Outcome::Unreadable,
    }
}

/// Whether a name that is printed without quotes would look like fields.
fn is_named_in_lines(object: &Object) -> bool {
    let meta = object.meta();
    let owners = meta.owners().iter().map(|owner| owner.uid.to_string());
    let mut names = owners.chain([meta.key.to_string(), meta.uid.to_string()]);
    names.any(|name| name.lines().count() > 1)
}

fn note(found: Result<&Object, &String>, reached: &mut Reached) {
    match found {
        // What is in a template is the user's.
        Ok(Object::Revision(record)) => reached.note(if record.template.is_some() {
            "template"
        } else {
            "no template"
        }),
        Ok(Object::Set(record)) => reached.note_value(&(&record.spec.problems, record.spec.update)),
        Ok(object) if is_named_in_lines(object) => reached.note("a name of several lines"),
        Ok(object) => reached.note_value(object),
        Err(error) => reached.note(error),
    }
}
