//! What updates in place look at in a pod: the same from both encodings, and for the pods that it concerns only.

use super::*;
use flotilla_model::Timestamp;
use flotilla_model::records::{ContainerStatus, PodDetail, Resources};

fn text(tag: u8, text: &str) -> Vec<u8> {
    field(tag, text.as_bytes())
}

/// A map entry from a text to a text.
fn entry(tag: u8, key: &str, value: &str) -> Vec<u8> {
    field(tag, &[text(1, key), text(2, value)].concat())
}

/// A map entry from a text to a quantity.
fn quantity(tag: u8, resource: &str, amount: &str) -> Vec<u8> {
    field(tag, &[text(1, resource), field(2, &text(1, amount))].concat())
}

fn metadata() -> Vec<u8> {
    let owner = [
        text(1, "StatefulSet"),
        text(3, "web"),
        text(4, "s"),
        text(5, "apps.kruise.io/v1beta1"),
        number(6, 1),
    ];
    [
        object_meta("web-0"),
        number(7, 5),
        entry(12, "apps.kruise.io/inplace-update-state", "{}"),
        entry(12, "role", "leader"),
        entry(12, "not-asked-for", "x"),
        field(13, &owner.concat()),
        text(14, "hook/a"),
        text(14, "hook/b"),
    ]
    .concat()
}

fn spec() -> Vec<u8> {
    let from_field = |name, path| {
        let reference = field(1, &[text(1, "v1"), text(2, path)].concat());
        field(7, &[text(1, name), field(3, &reference)].concat())
    };
    let barrier = field(
        3,
        &field(3, &[field(1, &text(1, "web-0-barrier")), text(2, "p_7")].concat()),
    );
    let resources = [
        quantity(1, "cpu", "1"),
        quantity(1, "memory", "1Gi"),
        quantity(2, "cpu", "250m"),
        quantity(2, "memory", "512Mi"),
    ];
    let main = [
        text(1, "main"),
        text(2, "app:2"),
        field(7, &[text(1, "PLAIN"), text(2, "x")].concat()),
        from_field("ROLE", "metadata.annotations['role']"),
        from_field("ZONE", "metadata.labels['zone']"),
        from_field("NODE", "spec.nodeName"),
        field(7, &[text(1, "KRUISE_CONTAINER_BARRIER"), barrier].concat()),
        field(8, &resources.concat()),
        field(11, &number(4, 10)),
        field(23, &[text(1, "cpu"), text(2, "NotRequired")].concat()),
        field(23, &[text(1, "memory"), text(2, "RestartContainer")].concat()),
    ];
    [
        field(2, &main.concat()),
        field(2, &[text(1, "aside"), text(2, "log:1")].concat()),
        text(3, "Never"),
        field(28, &text(1, "InPlaceUpdateReady")),
        field(28, &text(1, "KruisePodReady")),
    ]
    .concat()
}

fn status() -> Vec<u8> {
    let condition = |parts: &[Vec<u8>]| field(2, &parts.concat());
    let since = || field(4, &number(1, 60));
    let resources = [quantity(1, "cpu", "1"), quantity(2, "cpu", "0.25")].concat();
    let main = [
        text(1, "main"),
        field(2, &field(2, &field(1, &number(1, 100)))),
        number(4, 1),
        number(5, 3),
        text(6, "docker.io/library/app:2"),
        text(7, "app@sha256:1"),
        text(8, "containerd://1"),
        number(9, 1),
        field(11, &resources),
    ];
    [
        text(1, "Running"),
        condition(&[text(1, "ContainersReady"), text(2, "True")]),
        condition(&[text(1, "InPlaceUpdateReady"), text(2, "False"), since()]),
        condition(&[text(1, "KruisePodReady"), text(2, "True"), text(6, "[]")]),
        condition(&[
            text(1, "PodResizePending"),
            text(2, "True"),
            since(),
            text(5, "Infeasible"),
            text(6, "too big"),
        ]),
        condition(&[text(1, "PodResizeInProgress"), text(2, "True")]),
        field(8, &main.concat()),
        number(17, 4),
    ]
    .concat()
}

/// The same pod in JSON.
fn pod() -> serde_json::Value {
    let since = "1970-01-01T00:01:00Z";
    let from_field =
        |name, path| json!({"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}});
    let barrier = json!({"configMapKeyRef": {"name": "web-0-barrier", "key": "p_7"}});
    json!({
        "metadata": {
            "name": "web-0", "namespace": "ns", "uid": "uid", "resourceVersion": "42", "generation": 5,
            "annotations": {"apps.kruise.io/inplace-update-state": "{}", "role": "leader", "not-asked-for": "x"},
            "finalizers": ["hook/a", "hook/b"],
            "ownerReferences": [
                {"kind": "StatefulSet", "name": "web", "uid": "s", "apiVersion": "apps.kruise.io/v1beta1", "controller": true},
            ],
        },
        "spec": {
            "containers": [
                {
                    "name": "main", "image": "app:2",
                    "env": [
                        {"name": "PLAIN", "value": "x"},
                        from_field("ROLE", "metadata.annotations['role']"),
                        from_field("ZONE", "metadata.labels['zone']"),
                        from_field("NODE", "spec.nodeName"),
                        {"name": "KRUISE_CONTAINER_BARRIER", "valueFrom": barrier},
                    ],
                    "resources": {
                        "limits": {"cpu": 1, "memory": "1Gi"}, "requests": {"cpu": "250m", "memory": "512Mi"},
                    },
                    "readinessProbe": {"periodSeconds": 10},
                    "resizePolicy": [
                        {"resourceName": "cpu", "restartPolicy": "NotRequired"},
                        {"resourceName": "memory", "restartPolicy": "RestartContainer"},
                    ],
                },
                {"name": "aside", "image": "log:1"},
            ],
            "restartPolicy": "Never",
            "readinessGates": [{"conditionType": "InPlaceUpdateReady"}, {"conditionType": "KruisePodReady"}],
        },
        "status": {
            "phase": "Running", "observedGeneration": 4,
            "conditions": [
                {"type": "ContainersReady", "status": "True"},
                {"type": "InPlaceUpdateReady", "status": "False", "lastTransitionTime": since},
                {"type": "KruisePodReady", "status": "True", "message": "[]"},
                {
                    "type": "PodResizePending", "status": "True", "lastTransitionTime": since,
                    "reason": "Infeasible", "message": "too big",
                },
                {"type": "PodResizeInProgress", "status": "True"},
            ],
            "containerStatuses": [
                {
                    "name": "main", "state": {"running": {"startedAt": "1970-01-01T00:01:40Z"}}, "ready": true,
                    "restartCount": 3, "image": "docker.io/library/app:2", "imageID": "app@sha256:1",
                    "containerID": "containerd://1", "started": true,
                    "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "250m"}},
                },
            ],
        },
    })
}

fn bare() -> Vec<u8> {
    [field(1, &metadata()), field(2, &spec()), field(3, &status())].concat()
}

fn detail_of(pod: &serde_json::Value, interner: &mut Interner) -> Option<Arc<PodDetail>> {
    match read(Resource::Pods, pod, interner).expect("a pod") {
        Object::Pod(record) => record.detail.clone(),
        other => panic!("{other:?} is no pod"),
    }
}

#[test]
fn a_detail_in_json_is_the_detail_in_protobuf() {
    assert_same(Resource::Pods, &pod(), bare());
}

#[test]
fn every_field_of_a_detail_is_read() {
    let detail = detail_of(&pod(), &mut Interner::default()).expect("a detail");
    let (spec, main_status) = detail.container("main").expect("a container");
    assert_eq!((&*spec.image, spec.priority), ("app:2", Some(7)));
    assert!(spec.restarts_for_memory && !spec.restarts_for_cpu && spec.has_readiness_probe);
    let env: Vec<_> = spec
        .metadata_env
        .iter()
        .map(|e| (&*e.name, e.is_label, &*e.key))
        .collect();
    assert_eq!(env, [("ROLE", false, "role"), ("ZONE", true, "zone")]);
    let asked = Resources {
        cpu_request_millis: Some(250),
        cpu_limit_millis: Some(1000),
        memory_request_bytes: Some(512 << 20),
        memory_limit_bytes: Some(1 << 30),
    };
    assert_eq!(spec.resources, asked);
    let expected = ContainerStatus {
        image: "docker.io/library/app:2".into(),
        image_id: "app@sha256:1".into(),
        container_id: "containerd://1".into(),
        restart_count: 3,
        started_at: Some(Timestamp::from_seconds(100)),
        is_ready: true,
        is_started: true,
        resources: Some(Resources {
            cpu_request_millis: Some(250),
            cpu_limit_millis: Some(1000),
            ..Resources::default()
        }),
    };
    assert_eq!(main_status, Some(&expected));
    let (aside, unknown) = detail.container("aside").expect("a container");
    assert_eq!(
        (&*aside.image, unknown),
        ("log:1", None),
        "nothing has been said of it yet"
    );

    assert!(detail.spec.has_gate("KruisePodReady") && detail.spec.never_restarts);
    assert_eq!((detail.generation, detail.observed_generation), (5, 4));
    assert!(detail.containers_ready && detail.resize_in_progress.is_some());
    let gate = detail.in_place_ready.as_ref().expect("a condition");
    let since = Some(Timestamp::from_seconds(60));
    assert_eq!((gate.index, gate.is_true, gate.since), (1, false, since));
    assert_eq!(detail.kruise_ready.as_ref().map(|c| &*c.message), Some("[]"));
    let pending = detail.resize_pending.as_ref().expect("a condition");
    assert_eq!((pending.is_infeasible, &*pending.message), (true, "too big"));
    let kept: Vec<_> = detail.annotations.iter().collect();
    assert_eq!(
        kept,
        [("apps.kruise.io/inplace-update-state", "{}"), ("role", "leader")]
    );
    assert_eq!(
        detail.finalizers.iter().map(|f| &**f).collect::<Vec<_>>(),
        ["hook/a", "hook/b"]
    );
}

#[test]
fn only_pods_that_it_concerns_have_a_detail() {
    let with = |change: fn(&mut serde_json::Value)| {
        let mut pod = pod();
        pod["metadata"]["ownerReferences"][0]["apiVersion"] = json!("apps/v1");
        pod["spec"]["containers"][0]["env"] = json!([]);
        change(&mut pod);
        detail_of(&pod, &mut Interner::default()).is_some()
    };
    assert!(!with(|_| ()), "a pod of a native set");
    assert!(!with(|pod| {
        pod["metadata"]["ownerReferences"] =
            json!([{"kind": "X", "name": "x", "uid": "x", "apiVersion": "apps.kruise.io/v1alpha1"}]);
    }));
    assert!(with(
        |pod| pod["metadata"]["annotations"]["apps.kruise.io/container-launch-priority"] = json!("Ordered")
    ));
    for name in ["KRUISE_CONTAINER_PRIORITY", "KRUISE_CONTAINER_BARRIER"] {
        let mut pod = pod();
        pod["metadata"]["ownerReferences"] = json!([]);
        pod["spec"]["containers"][1]["env"] = json!([{"name": name, "value": "3"}]);
        assert!(detail_of(&pod, &mut Interner::default()).is_some(), "{name}");
    }

    // In protobuf the words may stand elsewhere than where they count.
    let idle = |words: &str| {
        let spec = field(2, &[text(1, "main"), text(2, words)].concat());
        let bare: Bytes = [field(1, &object_meta("web-0")), field(2, &spec)].concat().into();
        let object = decode(Resource::Pods, Encoding::Protobuf, &bare, &mut Interner::default());
        matches!(object.expect("a pod"), Object::Pod(pod) if pod.detail.is_none())
    };
    assert!(idle("apps.kruise.io/app:1") && idle("KRUISE_CONTAINER_BARRIER:1"));
}

#[test]
fn pods_of_one_revision_share_what_is_equal() {
    let mut interner = Interner::new();
    let first = detail_of(&pod(), &mut interner).expect("a detail");
    let mut other = pod();
    other["metadata"]["name"] = json!("web-1");
    other["status"]["containerStatuses"][0]["containerID"] = json!("containerd://2");
    let second = detail_of(&other, &mut interner).expect("a detail");
    assert!(Arc::ptr_eq(&first.spec, &second.spec));
    assert!(Arc::ptr_eq(&first.finalizers, &second.finalizers));
    // Annotations are not: what an update notes is like no other pod's, and would only fill the interner.
    assert!(!first.annotations.is_same(&second.annotations));
}

/// A pod that is read again says what it would say if nothing were known of it, and shares with what is known no more than is equal.
#[test]
fn a_spec_that_is_the_same_in_the_bytes_is_not_read_again() {
    let volume = [text(1, "data"), field(2, &field(10, &text(1, "data-web-0")))];
    let placed = |image: &str| [spec(), field(1, &volume.concat()), text(10, image)].concat();
    let bytes = |metadata: &[u8], spec: &[u8], status: &[u8]| -> Bytes {
        [field(1, metadata), field(2, spec), field(3, status)].concat().into()
    };
    let orphan = [object_meta("web-0"), number(7, 5)].concat();
    let bare = text(10, "node-1");
    let read = |bytes: &Bytes, known: Option<&PodRecord>| {
        let interner = &mut Interner::new();
        let object = match known {
            Some(known) => decode_again(Encoding::Protobuf, bytes, known, interner),
            None => decode(Resource::Pods, Encoding::Protobuf, bytes, interner),
        };
        let Object::Pod(pod) = object.expect("a pod") else {
            panic!("not a pod");
        };
        pod
    };
    let first = read(&bytes(&metadata(), &placed("node-1"), &status()), None);
    for (what, next, is_shared) in [
        ("nothing", bytes(&metadata(), &placed("node-1"), &status()), true),
        (
            "the status",
            bytes(&metadata(), &placed("node-1"), &text(1, "Failed")),
            true,
        ),
        ("the spec", bytes(&metadata(), &placed("node-2"), &status()), false),
        (
            "no owner, but a mark in the spec",
            bytes(&orphan, &placed("node-1"), &status()),
            false,
        ),
        ("nothing marks it", bytes(&orphan, &bare, &status()), false),
    ] {
        let (again, afresh) = (read(&next, Some(&first)), read(&next, None));
        assert_eq!(again, afresh, "{what}");
        let spec = |pod: &PodRecord| pod.detail.as_ref().map(|detail| detail.spec.clone());
        let shares = spec(&first).zip(spec(&again)).is_some_and(|(a, b)| Arc::ptr_eq(&a, &b));
        assert_eq!(shares, is_shared, "{what}");
        // What was shared goes on being known.
        let third = read(&next, Some(&again));
        assert_eq!(third, afresh, "{what}");
    }
    assert!(first.node.is_some() && first.volumes.is_some());
}
