//! Bytes of all kinds: good ones become records, bad ones become an error that names what could be read.

use super::*;
use proptest::prelude::*;
use serde_json::json;

const CORE: [Resource; 4] = [
    Resource::Pods,
    Resource::Claims,
    Resource::Revisions,
    Resource::StorageClasses,
];

fn json_bytes(value: &serde_json::Value) -> Bytes {
    serde_json::to_vec(value).unwrap().into()
}

fn set(name: &str) -> serde_json::Value {
    json!({
        "metadata": {"name": name, "namespace": "ns", "uid": "u", "resourceVersion": "7"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {}}},
    })
}

/// A protobuf field of wire type 2.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2, u8::try_from(content.len()).expect("short")];
    bytes.extend_from_slice(content);
    bytes
}

/// `ObjectMeta` with name, namespace, UID and version.
fn object_meta(name: &str) -> Vec<u8> {
    [
        field(1, name.as_bytes()),
        field(3, b"ns"),
        field(5, b"uid"),
        field(6, b"42"),
    ]
    .concat()
}

#[test]
fn a_set_is_read_from_json() {
    let object = decode(
        Resource::NativeSets,
        Encoding::Json,
        &json_bytes(&set("web")),
        &mut Interner::default(),
    )
    .unwrap();
    assert_eq!(object.meta().key, ObjectKey::new("ns", "web"));
    assert_eq!(object.meta().resource_version, 7);
    assert_eq!(object.resource(), Resource::NativeSets);
}

#[test]
fn a_pod_is_read_from_protobuf_with_unknown_fields_in_it() {
    // Field 15 of Pod does not exist; a newer server may send such.
    let bare = [field(1, &object_meta("web-0")), field(15, b"from the future")].concat();
    let object = decode(
        Resource::Pods,
        Encoding::Protobuf,
        &bare.into(),
        &mut Interner::default(),
    )
    .unwrap();
    assert_eq!(object.meta().key, ObjectKey::new("ns", "web-0"));
    assert_eq!(object.meta().resource_version, 42);
}

#[test]
fn one_bad_item_does_not_hide_its_neighbours() {
    let mut bad = set("bad");
    bad["metadata"]["resourceVersion"] = json!("not a number");
    let list = json!({"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [set("a"), bad, set("c")]});
    let list = split_list(Encoding::Json, &json_bytes(&list)).unwrap();
    assert_eq!(
        (list.resource_version, list.continue_token.as_str(), list.items.len()),
        (9, "more", 3)
    );
    let mut interner = Interner::default();
    let read: Vec<_> = list
        .items
        .iter()
        .map(|item| decode(Resource::NativeSets, Encoding::Json, item, &mut interner))
        .collect();
    assert!(read[0].is_ok() && read[2].is_ok());
    let told = read[1].as_ref().unwrap_err();
    assert_eq!(told.key, Some(ObjectKey::new("ns", "bad")), "{told}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), prefix in any::<bool>()) {
        let bytes: Bytes = if prefix { [b"k8s\0".as_slice(), &bytes].concat().into() } else { bytes.into() };
        let mut interner = Interner::default();
        for resource in CORE {
            // Random bytes are rarely an object; whatever comes out, it comes out.
            let _ = decode(resource, Encoding::Protobuf, &bytes, &mut interner);
        }
        let _ = decode(Resource::AdvancedSets, Encoding::Json, &bytes, &mut interner);
        let _ = (split_list(Encoding::Protobuf, &bytes), split_list(Encoding::Json, &bytes));
        let _ = (identity(Encoding::Protobuf, &bytes), identity(Encoding::Json, &bytes));
    }

    #[test]
    fn a_cut_or_changed_pod_never_panics(at in 0_usize..60, with in any::<u8>(), cut in 0_usize..60) {
        let mut bytes = [field(1, &object_meta("web-0")), field(3, &field(1, b"Running"))].concat();
        let end = bytes.len().min(cut.max(1));
        if let Some(byte) = bytes.get_mut(at) {
            *byte = with;
        }
        bytes.truncate(end);
        let _ = decode(Resource::Pods, Encoding::Protobuf, &bytes.into(), &mut Interner::default());
    }

    #[test]
    fn frames_come_out_whole_however_the_stream_is_cut(cuts in proptest::collection::vec(1_usize..50, 0..20)) {
        let lines: Vec<u8> = ["a", "b", "c"]
            .iter()
            .flat_map(|name| format!("{}\n", json!({"type": "ADDED", "object": set(name)})).into_bytes())
            .collect();
        let (mut frames, mut found, mut rest) = (watch::Frames::new(Encoding::Json), 0, lines.as_slice());
        for cut in cuts.into_iter().chain([lines.len()]) {
            let (piece, after) = rest.split_at(cut.min(rest.len()));
            frames.push(piece);
            rest = after;
            while let Some(frame) = frames.next_frame().unwrap() {
                prop_assert!(matches!(frame, watch::Frame::Upsert(_)));
                found += 1;
            }
        }
        prop_assert_eq!(found, 3);
    }
}
