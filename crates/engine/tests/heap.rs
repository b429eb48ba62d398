//! What sets and revisions cost in memory, counted by the allocator: while they are kept, and while they are read.

use bytes::Bytes;
use flotilla_engine::core::cache::Cache;
use flotilla_engine::core::store::Source;
use flotilla_engine::wire::{Encoding, Object};
use flotilla_model::{Reader as _, Resource, SetKind};
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// The largest object that etcd keeps by default, roughly.
const LARGEST_OBJECT_BYTES: usize = 1_400_000;

/// One test at a time, in a thread of its own: they share what is counted, and a thread remembers trees for as long as it lives.
fn alone(test: impl FnOnce() + Send + 'static) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(why) = std::thread::spawn(test).join() {
        std::panic::resume_unwind(why);
    }
}

/// Hexadecimal digits that look random and are the same in each run: nothing of them repeats.
fn noise(seed: usize, digits: usize) -> String {
    let mut state = u64::try_from(seed)
        .expect("a small number")
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        | 1;
    let mut text = String::new();
    while text.len() < digits {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        write!(text, "{state:016x}").expect("a text grows");
    }
    text.truncate(digits);
    text
}

/// A template of 4.6 KB as people write them: three containers with environment, probes and volumes. Of its environment a third is as
/// random as keys are, and each set has its own.
fn template(set: usize, revision: usize) -> Value {
    let container = |name: &str| {
        let seed = set * 16 + name.len();
        json!({
            "name": name,
            "image": format!("registry.example.com/shop/{name}@sha256:{}", noise(seed + 1_000_000 * revision, 64)),
            "imagePullPolicy": "IfNotPresent",
            "args": ["--listen=:8080", format!("--shard={set}"), "--log-format=json"],
            "env": [
                {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
                {"name": "DATABASE_URL", "value": format!("postgres://shop-{set}.db.svc.cluster.local:5432/{name}")},
                {"name": "API_KEY", "value": noise(seed + 7, 168)},
                {"name": "SIGNING_KEY", "value": noise(seed + 8, 168)},
                {"name": "CACHE_SIZE", "value": "512Mi"},
            ],
            "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"}, "periodSeconds": 10, "failureThreshold": 3},
            "readinessProbe": {"httpGet": {"path": "/ready", "port": "http", "scheme": "HTTP"}, "periodSeconds": 5, "failureThreshold": 3},
            "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
            "volumeMounts": [{"name": "config", "mountPath": "/etc/shop"}, {"name": "cache", "mountPath": "/var/cache/shop"}],
            "securityContext": {"allowPrivilegeEscalation": false, "runAsNonRoot": true, "capabilities": {"drop": ["ALL"]}},
        })
    };
    json!({
        "metadata": {"labels": {"app": format!("shop-{set}"), "tier": "web"}, "annotations": {"prometheus.io/scrape": "true"}},
        "spec": {
            "containers": [container("main"), container("sidecar"), container("exporter")],
            "volumes": [{"name": "config", "configMap": {"name": format!("shop-{set}")}}, {"name": "cache", "emptyDir": {}}],
            "terminationGracePeriodSeconds": 30,
            "serviceAccountName": "shop",
        },
    })
}

fn uid(kind: usize, number: usize) -> String {
    format!("0c9d7f6a-{kind:04x}-4222-8333-{number:012x}")
}

fn clone_set(number: usize) -> Value {
    json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet",
        "metadata": {
            "name": format!("shop-{number}"), "namespace": "shop", "uid": uid(1, number), "resourceVersion": "7", "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": format!("shop-{number}")},
            "managedFields": [
                {"manager": "kubectl", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:template": {}}}},
                {"manager": "flotilla", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {"f:replicas": {}}}},
            ],
        },
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": format!("shop-{number}")}}, "template": template(number, 3)},
        "status": {
            "observedGeneration": 3, "replicas": 0, "readyReplicas": 0, "availableReplicas": 0, "updatedReplicas": 0,
            "updatedReadyReplicas": 0, "updatedAvailableReplicas": 0, "expectedUpdatedReplicas": 0,
            "currentRevision": format!("shop-{number}-3"), "updateRevision": format!("shop-{number}-3"), "labelSelector": "app=shop",
        },
    })
}

/// A revision of an object of this kind, in JSON.
fn revision(kind: &str, set: usize, number: usize) -> Value {
    let mut template = template(set, number);
    template["$patch"] = json!("replace");
    let group = if kind == "CloneSet" {
        "apps.kruise.io/v1beta1"
    } else {
        "apps/v1"
    };
    json!({
        "metadata": {
            "name": format!("shop-{set}-{number}"), "namespace": "shop", "uid": uid(10 + number, set), "resourceVersion": "5",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": format!("shop-{set}"), "tier": "web", "controller.kubernetes.io/hash": format!("hash-{set}-{number}")},
            "ownerReferences": [{
                "apiVersion": group, "kind": kind, "name": format!("shop-{set}"), "uid": uid(1, set), "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "data": {"spec": {"template": template}},
        "revision": number,
    })
}

fn take_in(cache: &mut Cache, resource: Resource, object: &Value) {
    let bytes = Bytes::from(object.to_string().into_bytes());
    let object = cache.read(resource, Encoding::Json, &bytes).expect("an object");
    cache.apply(object, Source::List);
}

/// Bytes that stay after this.
fn kept(cache: &mut Cache, fill: impl FnOnce(&mut Cache)) -> usize {
    let before = HEAP.current_usage();
    fill(cache);
    HEAP.current_usage().saturating_sub(before)
}

#[test]
fn a_set_and_its_revisions_cost_little_more_than_two_copies_of_their_template() {
    alone(|| {
        const SETS: usize = 1000;
        let mut cache = Cache::default();
        let length = template(0, 1).to_string().len();
        assert!((4_500..4_700).contains(&length), "{length}");
        let sets = kept(&mut cache, |cache| {
            for number in 0..SETS {
                take_in(cache, Resource::CloneSets, &clone_set(number));
            }
        });
        let revisions = kept(&mut cache, |cache| {
            for number in 1..=3 {
                for set in 0..SETS {
                    take_in(cache, Resource::Revisions, &revision("CloneSet", set, number));
                }
            }
        });
        let (set, revision) = (sets / SETS, revisions / SETS / 3);
        println!("{set} bytes a set, {revision} bytes a revision");
        assert!(set < 6 * 1024, "{set} bytes a set");
        assert!(revision < 1024, "{revision} bytes a revision");
    });
}

#[test]
fn revisions_of_others_cost_next_to_nothing_and_are_known_by_name() {
    alone(|| {
        const OWNERS: usize = 200;
        let mut cache = Cache::default();
        let bytes = kept(&mut cache, |cache| {
            for set in 0..OWNERS {
                take_in(cache, Resource::Revisions, &revision("DaemonSet", set, 1));
            }
        });
        let each = bytes / OWNERS;
        println!("{each} bytes a revision");
        let key = flotilla_model::ObjectKey::new("shop", "shop-7-1");
        assert!(cache.revision(&key).is_some(), "its name is taken");
        assert!(each < 1024, "{each} bytes a revision");
    });
}

/// Sets as large as they can be: so many percent of a part are pieces of what becomes largest in memory, and the rest is one long text.
fn hostile() -> Vec<(String, String)> {
    let metadata = r#""metadata":{"name":"web","namespace":"ns","uid":"u","resourceVersion":"9","generation":2"#;
    let rest = r#""selector":{"matchLabels":{"app":"web"}}"#;
    let labelled = r#""metadata":{"labels":{"app":"web"}}"#;
    let places = [
        (
            "template",
            format!(r#"{{{metadata}}},"spec":{{{rest},"template":{{{labelled},"spec":{{"x":["#),
            "]}}}}",
        ),
        (
            "claims",
            format!(r#"{{{metadata}}},"spec":{{{rest},"volumeClaimTemplates":["#),
            "]}}",
        ),
        ("spec", format!(r#"{{{metadata}}},"spec":["#), "]}"),
        ("fields", format!(r#"{{{metadata}}},"spec":{{{rest},"y":["#), "]}}"),
        (
            "status",
            format!(r#"{{{metadata}}},"spec":{{{rest}}},"status":{{"x":["#),
            "]}}",
        ),
        ("annotations", format!(r#"{{{metadata},"annotations":{{"x":["#), "]}}}"),
        (
            "managers",
            format!(r#"{{{metadata},"managedFields":[{{"manager":"m","fieldsV1":["#),
            "]}]}}",
        ),
    ];
    let pieces = [
        r#"{"":{"":{"":{"":{"":{"":{"":{"":0}}}}}}}}"#,
        r#"{"":0}"#,
        "[[[[0]]]]",
        "0",
        r#""""#,
        r#"{"name":"A","value":"b"}"#,
    ];
    let mut sets = Vec::new();
    for (place, head, tail) in &places {
        for (open, close) in [("[", "]"), (r#"{"":"#, "}")] {
            let levels = (LARGEST_OBJECT_BYTES - head.len() - tail.len() - 1) / (open.len() + 1);
            let text = format!("{head}{}0{}{tail}", open.repeat(levels), close.repeat(levels));
            sets.push((format!("{open} without end in {place}"), text));
        }
        for piece in pieces {
            for percent in [100, 20, 10, 6, 5, 4, 3, 2] {
                let room = LARGEST_OBJECT_BYTES - head.len() - tail.len() - 2;
                let mut part = format!("{piece},").repeat(room * percent / 100 / (piece.len() + 1));
                if *place == "fields" {
                    // Spread over many fields, none of which is too large by itself.
                    let fifty = part.len() / 50 / (piece.len() + 1) * (piece.len() + 1);
                    part = part
                        .as_bytes()
                        .chunks(fifty.max(piece.len() + 1))
                        .fold(String::new(), |all, chunk| {
                            let field = all.len();
                            all + str::from_utf8(chunk).expect("whole pieces") + &format!(r#"0],"f{field}":["#)
                        });
                }
                let text = "x".repeat(room.saturating_sub(part.len()));
                sets.push((
                    format!("{percent} % {piece} in {place}"),
                    format!(r#"{head}{part}"{text}"{tail}"#),
                ));
            }
        }
    }
    sets
}

#[test]
fn no_set_costs_more_than_ten_times_its_bytes_whatever_it_holds() {
    alone(|| {
        let (mut told, mut read) = (0, 0);
        let mut worst = (0, 0, String::new());
        for (what, text) in hostile() {
            let mut cache = Cache::default();
            let bytes = Bytes::from(text.into_bytes());
            let before = HEAP.current_usage();
            HEAP.reset_peak_usage();
            let outcome = cache.read(Resource::CloneSets, Encoding::Json, &bytes);
            let peak = HEAP.peak_usage().saturating_sub(before);
            let kept = HEAP.current_usage().saturating_sub(before);
            worst = worst.max((peak / 1024, kept / 1024, what.clone()));
            assert!(peak <= 10 * bytes.len(), "{what}: {peak} bytes at the peak");
            match outcome {
                Ok(Object::Set(set)) => {
                    assert_eq!(set.kind, SetKind::Clone);
                    let is_told = set.spec.problems.iter().any(|p| p.rule.starts_with("must be smaller"));
                    told += usize::from(is_told);
                    read += usize::from(!is_told);
                }
                other => panic!("{what}: {other:?}"),
            }
        }
        let (peak, kept, what) = worst;
        println!("{what}: {peak} KiB at the peak, {kept} KiB kept; {told} are told, {read} are read");
        assert!(told > 20 && read > 20, "{told} are told, {read} are read");
    });
}

/// Small texts that are large as trees, in claim templates and in records of these: many of them are kept.
#[test]
fn claim_templates_and_their_records_cost_no_more_than_ten_times_their_bytes() {
    const EACH: usize = 40;
    alone(|| {
        for (what, piece) in [
            ("objects", r#"{"":0}"#),
            ("requirements", r#"{"key":""}"#),
            ("arrays", "[]"),
            ("nested", r#"[{"":0}]"#),
            ("named", r#"{"metadata":{"name":"a"}}"#),
        ] {
            let dense = |bytes: usize| format!("[{}]", vec![piece; bytes / (piece.len() + 1)].join(","));
            for (resource, version, kind) in [
                (Resource::CloneSets, "apps.kruise.io/v1beta1", "CloneSet"),
                (Resource::AdvancedSets, "apps.kruise.io/v1beta1", "StatefulSet"),
                (Resource::NativeSets, "apps/v1", "StatefulSet"),
            ] {
                let set = |number: usize| {
                    let mut set = clone_set(number);
                    (set["apiVersion"], set["kind"]) = (json!(version), json!(kind));
                    let list: Value = serde_json::from_str(&dense(24_000)).expect("a list");
                    let spec = json!({"selector": {"matchExpressions": list}});
                    set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": spec}]);
                    set
                };
                let text = set(0).to_string().len();
                let mut cache = Cache::default();
                // What a thread remembers is not what sets keep.
                take_in(&mut cache, resource, &set(EACH));
                let sets = kept(&mut cache, |cache| {
                    (0..EACH).for_each(|number| take_in(cache, resource, &set(number)));
                });
                assert!(
                    sets / EACH <= 10 * text,
                    "{what}, {kind}: {} bytes for {text}",
                    sets / EACH
                );
            }
            let record = |number: usize| {
                let mut revision = revision("CloneSet", number, 1);
                let meta = revision["metadata"].as_object_mut().expect("metadata");
                meta.remove("ownerReferences");
                let mut record = dense(38_000);
                record.insert_str(1, &format!(r#"{{"metadata":{{"name":"of-{number}"}}}},"#));
                meta.insert("annotations".to_owned(), json!({"flotilla.rs/claim-templates": record}));
                revision
            };
            let text = record(0).to_string().len();
            let mut cache = Cache::default();
            take_in(&mut cache, Resource::Revisions, &record(EACH));
            let records = kept(&mut cache, |cache| {
                (0..EACH).for_each(|number| take_in(cache, Resource::Revisions, &record(number)));
            });
            let key = flotilla_model::ObjectKey::new("shop", "shop-0-1");
            let found = cache
                .revision(&key)
                .and_then(|revision| revision.claim_templates.clone());
            let names: Vec<String> = found.iter().flat_map(|r| r.names().map(str::to_owned)).collect();
            assert_eq!(names.first().map(String::as_str), Some("of-0"), "{what}: it is read");
            assert!(
                records / EACH <= 10 * text,
                "{what}: {} bytes for {text}",
                records / EACH
            );
        }
    });
}

/// One claim that somebody annotates again and again, in a cluster with many pods.
#[test]
fn what_others_note_on_a_claim_costs_little_however_often_it_changes() {
    alone(|| {
        let mut cache = Cache::default();
        let claim = |edit: usize| {
            json!({
                "metadata": {
                    "name": "data-0", "namespace": "shop", "uid": uid(2, 0), "resourceVersion": (5 + edit).to_string(),
                    "creationTimestamp": "2026-01-01T00:00:00Z",
                    "annotations": {"flotilla.rs/kept-from": "web-0", "note": format!("{edit:010}").repeat(25_000)},
                },
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
                "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
            })
        };
        let bytes = kept(&mut cache, |cache| {
            (0..200).for_each(|edit| take_in(cache, Resource::Claims, &claim(edit)));
        });
        let key = flotilla_model::ObjectKey::new("shop", "data-0");
        let annotations = cache
            .claim(&key)
            .map(|claim| claim.annotations.clone())
            .expect("a claim");
        assert_eq!(annotations.get("flotilla.rs/kept-from"), Some("web-0"));
        assert!(
            annotations.get("note").is_some_and(|note| note.len() < 100),
            "{:?}",
            annotations.get("note")
        );
        assert!(bytes < 200_000, "{bytes} bytes");
    });
}
