//! What a tenant's objects may not do to their own set: what we write for it can be read, and what is large in it costs nothing else.

use bytes::Bytes;
use flotilla_controllers::cloneset::CloneSetController;
use flotilla_engine::core::cache::Cache;
use flotilla_engine::core::store::Source;
use flotilla_engine::core::{Core, CoreOptions, WatchEvent};
use flotilla_engine::wire::{Encoding, Object, Unreadable};
use flotilla_model::decision::Body;
use flotilla_model::{
    Command, Controller, Hints, Meta, ObjectKey, OwnerRef, PassContext, Reader, Resource, RevisionRecord, SetKind,
    SetRecord, Timestamp, Uid,
};
use serde_json::{Value, json};
use std::sync::Arc;

fn key() -> ObjectKey {
    ObjectKey::new("ns", "web")
}

fn read(cache: &mut Cache, template: &Value, more: &Value) -> Object {
    let mut set = json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": "u", "resourceVersion": "9", "generation": 2},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        match set.pointer_mut(field) {
            Some(place) => *place = value.clone(),
            None => set[field.as_str()] = value.clone(),
        }
    }
    let text = Bytes::from(set.to_string());
    cache.read(Resource::CloneSets, Encoding::Json, &text).expect("a set")
}

fn record(object: &Object) -> Arc<SetRecord> {
    match object {
        Object::Set(set) => set.clone(),
        other => panic!("{other:?}"),
    }
}

fn template(spec: &Value) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": spec})
}

/// A revision as it comes from the server, its data as text.
fn stored(cache: &mut Cache, name: &str, body: &Value) -> RevisionRecord {
    let owner = OwnerRef {
        api_version: "apps.kruise.io/v1beta1".into(),
        kind: "CloneSet".into(),
        name: "web".into(),
        uid: Uid::new("u"),
        controller: true,
        block_owner_deletion: true,
    };
    let number = body["revision"].as_i64().expect("a number");
    let meta = Meta {
        key: ObjectKey::new("ns", name),
        uid: Uid::new(name),
        resource_version: 10 + u64::try_from(number).expect("positive"),
        created: Timestamp::default(),
        deleted: None,
        labels: cache.interner.labels([("app", "web")]),
        owners: cache.interner.owners(vec![owner]),
    };
    let data = body["data"].to_string();
    RevisionRecord::from_text(meta, number, data.as_bytes(), None, &mut cache.interner).expect("JSON")
}

/// Defaults make more of a template than its set has; a revision that could not be read would be followed by another one, for ever.
#[test]
fn a_revision_that_we_write_is_one_that_we_read() {
    let empty = vec![json!({}); 40_000];
    let fields = vec![json!({"resourceFieldRef": {}}); 5_400];
    for (what, spec) in [
        ("empty containers", json!({"containers": empty})),
        (
            "a field that nobody knows",
            json!({"containers": [{"name": "a", "image": "b"}], "later": fields}),
        ),
    ] {
        let mut cache = Cache::default();
        let set = read(&mut cache, &template(&spec), &json!({}));
        assert_eq!(record(&set).spec.problems, [], "{what}");
        cache.apply(set, Source::List);
        let (controller, hints, mut made) = (CloneSetController::default(), Hints::default(), Vec::new());
        for pass in 0..3 {
            let now = Timestamp::from_millis(1_800_000_000_000 + pass * 60_000);
            let context = PassContext {
                now,
                observing_since: now,
                entropy: 1,
                hints: &hints,
            };
            let decision = controller.reconcile(&cache, &key(), context).expect("the set is there");
            for scoped in decision.commands() {
                let Command::Create {
                    resource: Resource::Revisions,
                    key,
                    body: Body::Json(body),
                    ..
                } = &scoped.command
                else {
                    continue;
                };
                let revision = stored(&mut cache, &key.name, body);
                assert!(revision.template.is_some(), "{what}");
                cache.apply(Object::Revision(Arc::new(revision)), Source::Answer);
                made.push(key.name.to_string());
            }
        }
        assert_eq!(made.len(), 1, "{what}: {made:?}");
    }
}

/// It would be written anew without what others say there.
#[test]
fn a_status_is_read_whatever_else_is_large() {
    let mut cache = Cache::default();
    let empty = |count: usize| vec![json!({}); count];
    let status = json!({"conditions": [{"type": "OfOthers", "status": "True"}]});
    let more = json!({"status": status});
    let large = template(&json!({"containers": empty(40_000), "volumes": empty(2_000)}));
    let mut with_claims = more.clone();
    with_claims["/spec"] = json!({
        "replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": large, "volumeClaimTemplates": empty(20_000),
    });
    let set = record(&read(&mut cache, &large, &with_claims));
    assert_eq!(*set.status, status);
    let told: Vec<&str> = set.spec.problems.iter().map(|problem| &*problem.path).collect();
    assert!(!told.contains(&"status"), "{told:?}");
}

#[test]
fn what_cannot_be_read_in_a_list_is_not_gone() {
    let now = Timestamp::from_millis(1_800_000_000_000);
    let options = CoreOptions {
        resources: vec![Resource::CloneSets],
        ..CoreOptions::new("one")
    };
    let mut core = Core::new(options, vec![Box::new(CloneSetController::default())], now);
    let set = read(&mut core.cache, &template(&json!({"containers": []})), &json!({}));
    let unreadable = Unreadable {
        resource: Resource::CloneSets,
        key: Some(key()),
        reason: "whatever".into(),
    };
    for listed in [WatchEvent::Listed(set), WatchEvent::Unreadable(unreadable)] {
        core.watch(WatchEvent::ListBegan(Resource::CloneSets, now), now);
        core.watch(listed, now);
        core.watch(WatchEvent::ListEnded(Resource::CloneSets, 100), now);
        assert!(core.cache.set(SetKind::Clone, &key()).is_some());
    }
    core.watch(WatchEvent::ListBegan(Resource::CloneSets, now), now);
    core.watch(WatchEvent::ListEnded(Resource::CloneSets, 101), now);
    assert!(core.cache.set(SetKind::Clone, &key()).is_none(), "it is named no more");
}
