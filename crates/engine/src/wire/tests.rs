//! Bytes of all kinds: good ones become records, bad ones become an error that names what could be read.

mod detail;

use super::*;
use flotilla_api::names;
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
    let mut bytes = varint(usize::from(number) << 3 | 2);
    bytes.extend(varint(content.len()));
    bytes.extend_from_slice(content);
    bytes
}

fn varint(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(u8::try_from(value & 0x7f).expect("seven bits") | 0x80);
        value >>= 7;
    }
    bytes.push(u8::try_from(value).expect("seven bits"));
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

/// A protobuf field of wire type 0.
fn number(tag: u8, value: usize) -> Vec<u8> {
    [varint(usize::from(tag) << 3), varint(value)].concat()
}

#[test]
fn a_pod_in_json_is_the_pod_in_protobuf() {
    let (text, parts) = (
        |tag, text: &str| field(tag, text.as_bytes()),
        |parts: &[Vec<u8>]| parts.concat(),
    );
    let time = number(1, 60);
    let label = |k: &str, v: &str| field(11, &parts(&[text(1, k), text(2, v)]));
    let owner = parts(&[
        text(1, "StatefulSet"),
        text(3, "web"),
        text(4, "s"),
        text(5, "apps/v1"),
        number(6, 1),
    ]);
    let metadata = parts(&[
        object_meta("web-0"),
        number(7, 3),
        field(8, &time),
        field(9, &number(1, 90)),
        label("app", "web"),
        label("statefulset.kubernetes.io/pod-name", "web-0"),
        field(13, &owner),
    ]);
    let volume = parts(&[text(1, "data"), field(2, &field(10, &text(1, "data-web-0")))]);
    let spec = parts(&[field(1, &volume), text(10, "node-1")]);
    let ready = parts(&[text(1, "Ready"), text(2, "True"), field(4, &time)]);
    let waiting = parts(&[text(1, "CrashLoopBackOff"), text(2, "again")]);
    let container = parts(&[text(1, "main"), field(2, &field(1, &waiting))]);
    let status = parts(&[
        text(1, "Running"),
        field(2, &ready),
        field(7, &time),
        field(8, &container),
    ]);
    let bare = parts(&[field(1, &metadata), field(2, &spec), field(3, &status)]);
    let json = json!({
        "metadata": {
            "name": "web-0", "namespace": "ns", "uid": "uid", "resourceVersion": "42", "generation": 3,
            "creationTimestamp": "1970-01-01T00:01:00Z", "deletionTimestamp": "1970-01-01T00:01:30Z",
            "labels": {"app": "web", "statefulset.kubernetes.io/pod-name": "web-0"},
            "ownerReferences": [
                {"kind": "StatefulSet", "name": "web", "uid": "s", "apiVersion": "apps/v1", "controller": true},
            ],
        },
        "spec": {
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}}],
            "nodeName": "node-1",
        },
        "status": {
            "phase": "Running", "startTime": "1970-01-01T00:01:00Z",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:01:00Z"}],
            "containerStatuses": [
                {"name": "main", "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "again"}}},
            ],
        },
    });
    assert_same(Resource::Pods, &json, bare);
}

#[test]
fn a_claim_a_revision_and_a_class_in_json_are_those_in_protobuf() {
    let (text, parts) = (
        |tag, text: &str| field(tag, text.as_bytes()),
        |parts: &[Vec<u8>]| parts.concat(),
    );
    let annotation = |k: &str, v: &str| field(12, &parts(&[text(1, k), text(2, v)]));
    let meta = |name: &str| json!({"name": name, "namespace": "ns", "uid": "uid", "resourceVersion": "42"});
    let quantity = |tag, size: &str| field(tag, &parts(&[text(1, "storage"), field(2, &text(1, size))]));

    let spec = parts(&[text(1, "ReadWriteOnce"), field(2, &quantity(2, "1Gi")), text(5, "fast")]);
    let pending = parts(&[
        text(1, "FileSystemResizePending"),
        text(2, "True"),
        field(4, &number(1, 60)),
    ]);
    let status = parts(&[text(1, "Bound"), quantity(3, "1Gi"), field(4, &pending)]);
    let bare = parts(&[field(1, &object_meta("data")), field(2, &spec), field(3, &status)]);
    let json = json!({
        "metadata": meta("data"),
        "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "fast",
        },
        "status": {
            "phase": "Bound", "capacity": {"storage": "1Gi"},
            "conditions": [
                {"type": "FileSystemResizePending", "status": "True", "lastTransitionTime": "1970-01-01T00:01:00Z"},
            ],
        },
    });
    assert_same(Resource::Claims, &json, bare);

    // The annotation that named the class before the field did still comes first.
    let annotated = parts(&[
        object_meta("data"),
        annotation("volume.beta.kubernetes.io/storage-class", "slow"),
    ]);
    let bare = parts(&[field(1, &annotated), field(2, &spec), field(3, &status)]);
    let mut json = json;
    json["metadata"]["annotations"] = json!({"volume.beta.kubernetes.io/storage-class": "slow"});
    assert_same(Resource::Claims, &json, bare);
    let claim = decode(
        Resource::Claims,
        Encoding::Json,
        &json_bytes(&json),
        &mut Interner::default(),
    );
    assert!(matches!(claim, Ok(Object::Claim(claim)) if claim.storage_class.as_deref() == Some("slow")));

    let data = json!({"spec": {"template": {"$patch": "replace", "spec": {}}}});
    let bare = parts(&[
        field(1, &object_meta("r")),
        field(2, &field(1, data.to_string().as_bytes())),
        number(3, 7),
    ]);
    assert_same(
        Resource::Revisions,
        &json!({"metadata": meta("r"), "data": data, "revision": 7}),
        bare,
    );

    let annotated = parts(&[
        object_meta("fast"),
        annotation("storageclass.kubernetes.io/is-default-class", "true"),
    ]);
    let mut metadata = meta("fast");
    metadata["annotations"] = json!({"storageclass.kubernetes.io/is-default-class": "true"});
    let json = json!({"metadata": metadata, "allowVolumeExpansion": true});
    assert_same(
        Resource::StorageClasses,
        &json,
        parts(&[field(1, &annotated), number(6, 1)]),
    );
}

fn assert_same(resource: Resource, json: &serde_json::Value, protobuf: Vec<u8>) {
    let mut interner = Interner::default();
    let of_json = decode(resource, Encoding::Json, &json_bytes(json), &mut interner).unwrap();
    let of_protobuf = decode(resource, Encoding::Protobuf, &protobuf.into(), &mut interner).unwrap();
    assert_eq!(format!("{of_json:#?}"), format!("{of_protobuf:#?}"));
}

#[test]
fn labels_that_repeat_the_name_of_a_clone_are_not_kept_twice() {
    let pod = |id: &str| {
        let labels = json!({"app": "web", names::INSTANCE_ID_LABEL: id});
        let metadata =
            json!({"name": "web-bcdfg", "namespace": "ns", "uid": "u", "resourceVersion": "7", "labels": labels});
        let bytes = json_bytes(&json!({"metadata": metadata}));
        match decode(Resource::Pods, Encoding::Json, &bytes, &mut Interner::new()) {
            Ok(Object::Pod(pod)) => pod,
            other => panic!("{other:?}"),
        }
    };
    for (id, is_short) in [("bcdfg", true), ("other", false)] {
        let pod = pod(id);
        assert_eq!(
            (pod.has_instance_label, pod.label(names::INSTANCE_ID_LABEL)),
            (is_short, Some(id))
        );
        assert_eq!(pod.meta.labels.get(names::INSTANCE_ID_LABEL).is_none(), is_short);
    }
}

#[test]
fn of_a_node_nothing_is_kept_but_who_it_is() {
    let label = [field(1, b"zone"), field(2, b"a")].concat();
    let meta = [
        field(1, b"node-1"),
        field(5, b"uid"),
        field(6, b"42"),
        field(11, &label),
    ]
    .concat();
    let body = [field(1, &meta), field(2, &field(1, b"10.0.0.0/24"))].concat();
    let envelope = [b"k8s\0".to_vec(), field(2, &body)].concat();
    let json = json!({"metadata": {"name": "node-1", "uid": "uid", "resourceVersion": "42", "labels": {"zone": "a"}}, "spec": {}});
    for (encoding, bytes) in [
        (Encoding::Protobuf, Bytes::from(envelope)),
        (Encoding::Json, json_bytes(&json)),
    ] {
        match decode(Resource::Nodes, encoding, &bytes, &mut Interner::new()) {
            Ok(Object::Node(node)) => {
                assert_eq!((&*node.meta.key.namespace, node.meta.key.name.as_str()), ("", "node-1"));
                assert_eq!(node.meta.labels.get("zone"), Some("a"));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_list_of_nothing_but_metadata_may_say_null_for_no_items() {
    let metadata = json!({"resourceVersion": "7"});
    for list in [
        json!({"kind": "PartialObjectMetadataList", "metadata": metadata, "items": null}),
        json!({"metadata": metadata, "items": []}),
        json!({"metadata": metadata}),
    ] {
        let list = split_list(Encoding::Json, &json_bytes(&list)).expect("a list");
        assert_eq!((list.resource_version, list.items.len()), (7, 0));
    }
}

#[test]
fn of_a_job_nothing_is_kept_but_who_it_is() {
    let metadata =
        json!({"name": "web-1-main", "namespace": "ns", "uid": "u", "resourceVersion": "5", "labels": {"a": "b"}});
    let mut interner = Interner::new();
    let mut read_in = |object: serde_json::Value| {
        let bytes = json_bytes(&object);
        match decode(Resource::ImagePullJobs, Encoding::Json, &bytes, &mut interner) {
            Ok(Object::ImagePullJob(job)) => job,
            other => panic!("{other:?}"),
        }
    };
    let alone = read_in(json!({"kind": "PartialObjectMetadata", "metadata": metadata}));
    let whole = read_in(
        json!({"kind": "ImagePullJob", "metadata": metadata, "spec": {"image": "v2"}, "status": {"desired": 3}}),
    );
    assert_eq!(alone, whole);
    assert_eq!(alone.meta.labels.get("a"), Some("b"));
}

/// Anyone may write a config map of a megabyte and give it the label: of its keys no more are kept than containers can wait for.
#[test]
fn of_a_config_map_nothing_is_kept_but_the_keys_of_a_barrier() {
    let keys = |data: &serde_json::Value| {
        let map = json!({"metadata": {"name": "web-0-barrier", "namespace": "ns", "uid": "u", "resourceVersion": "7"}, "data": data});
        match decode(
            Resource::ConfigMaps,
            Encoding::Json,
            &json_bytes(&map),
            &mut Interner::new(),
        )
        .unwrap()
        {
            Object::ConfigMap(map) => map.keys.to_vec(),
            other => panic!("{other:?}"),
        }
    };
    let kept: Vec<&str> = vec!["p_-1", "p_1000"];
    let read = keys(&json!({"p_1000": "", "ca.crt": "x", "p_-1": "", "P_1": ""}));
    assert_eq!(read.iter().map(|key| &**key).collect::<Vec<_>>(), kept);
    let many: serde_json::Map<_, _> = (0..50_000).map(|key| (format!("p_{key}"), json!(""))).collect();
    assert_eq!(keys(&many.into()).len(), 1000);
}

/// Of a deletion and of what cannot be decoded: a decoder that panics costs what it would have read, and nothing else.
#[test]
fn a_decoder_that_panics_has_read_nothing() {
    assert_eq!(unless_it_panics(|| Some(1)), Some(1));
    assert_eq!(unless_it_panics::<u8>(|| None), None);
    assert_eq!(unless_it_panics::<u8>(|| panic!("hostile bytes")), None);
}
