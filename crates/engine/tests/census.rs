//! What is counted for those who answer questions beside the core.

use flotilla_engine::core::census::Census;
use flotilla_engine::core::{Core, CoreOptions, WatchEvent};
use flotilla_engine::wire;
use flotilla_model::{Interner, ObjectKey, Resource, Timestamp};
use serde_json::{Value, json};

fn meta(name: &str, kind: &str) -> Value {
    json!({
        "name": name, "namespace": "shop", "uid": format!("{kind}-{name}"), "resourceVersion": "1",
        "labels": {"app": "web"},
    })
}

fn owned(name: &str, kind: &str, set: &str) -> Value {
    let mut meta = meta(name, kind);
    meta["ownerReferences"] = json!([{
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "StatefulSet", "name": set, "uid": format!("set-{set}"),
        "controller": true,
    }]);
    meta
}

fn set(name: &str) -> (Resource, Value) {
    let spec = json!({"selector": {"matchLabels": {"app": "web"}}, "template": {"spec": {}}});
    (
        Resource::AdvancedSets,
        json!({"metadata": meta(name, "set"), "spec": spec}),
    )
}

fn revision(name: &str) -> (Resource, Value) {
    let data = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": name}]}}}});
    let object = json!({"metadata": owned(name, "revision", "web"), "revision": 1, "data": data});
    (Resource::Revisions, object)
}

fn pod(name: &str, revision: &str, is_going: bool) -> (Resource, Value) {
    let mut metadata = owned(name, "pod", "web");
    metadata["labels"]["controller-revision-hash"] = json!(revision);
    if is_going {
        metadata["deletionTimestamp"] = json!("2026-07-01T09:00:00Z");
    }
    (Resource::Pods, json!({"metadata": metadata, "spec": {}, "status": {}}))
}

fn census(objects: &[(Resource, Value)], listed: &[Resource]) -> Census {
    let now = Timestamp::from_seconds(1_000_000);
    let options = CoreOptions {
        resources: vec![
            Resource::AdvancedSets,
            Resource::CloneSets,
            Resource::Pods,
            Resource::Revisions,
            Resource::Claims,
        ],
        ..CoreOptions::new("census")
    };
    let mut core = Core::new(options, Vec::new(), now);
    for resource in listed {
        core.watch(WatchEvent::ListBegan(*resource, now), now);
        for (_, object) in objects.iter().filter(|(of, _)| of == resource) {
            let object = wire::read(*resource, object, &mut Interner::new()).expect("well written");
            core.watch(WatchEvent::Listed(object), now);
        }
        core.watch(WatchEvent::ListEnded(*resource, 1), now);
    }
    core.census()
}

#[test]
fn sts_7_4_the_revisions_that_pods_are_at() {
    let objects = [
        set("web"),
        set("empty"),
        revision("web-1"),
        revision("web-2"),
        revision("web-3"),
        pod("web-0", "web-1", false),
        pod("web-1", "web-2", false),
        pod("web-2", "web-1", false),
        pod("web-3", "web-3", true),
        pod("web-4", "web-gone", false),
    ];
    let all = [Resource::AdvancedSets, Resource::Pods, Resource::Revisions];
    let found = census(&objects, &all).revisions_in_use.expect("everything is known");
    let names: Vec<(String, Vec<&str>)> = found
        .iter()
        .map(|(key, revisions)| (key.to_string(), revisions.iter().map(|r| r.name()).collect()))
        .collect();
    let web = ObjectKey::new("shop", "web").to_string();
    assert_eq!(
        names,
        [(web, vec!["web-1", "web-2"])],
        "each once; not of pods that are going"
    );
    for missing in all {
        let listed: Vec<Resource> = all.into_iter().filter(|r| *r != missing).collect();
        let found = census(&objects, &listed).revisions_in_use;
        assert_eq!(found, None, "nobody knows without {missing}");
    }
}

/// with an object go pods that are active, claims that are bound and objects that stay; what is going already counts for nothing.
#[test]
fn r_38_what_is_going_or_has_ended_is_not_counted() {
    let going = |(resource, mut object): (Resource, Value)| {
        object["metadata"]["deletionTimestamp"] = json!("2026-07-01T09:00:00Z");
        (resource, object)
    };
    let ended = |name, phase| {
        let (resource, mut object) = pod(name, "web-1", false);
        object["status"]["phase"] = json!(phase);
        (resource, object)
    };
    let claim = |name, phase| {
        let object = json!({"metadata": meta(name, "claim"), "spec": {}, "status": {"phase": phase}});
        (Resource::Claims, object)
    };
    let clone = |name| {
        let (_, object) = set(name);
        (Resource::CloneSets, object)
    };
    let objects = [
        set("web"),
        going(set("old")),
        clone("a"),
        clone("b"),
        going(clone("c")),
        ended("web-0", "Running"),
        ended("web-1", "Pending"),
        ended("web-2", "Succeeded"),
        ended("web-3", "Failed"),
        pod("web-4", "web-1", true),
        claim("data-0", "Bound"),
        claim("data-1", "Pending"),
        claim("data-2", "Lost"),
        going(claim("data-3", "Bound")),
    ];
    let census = census(
        &objects,
        &[
            Resource::AdvancedSets,
            Resource::CloneSets,
            Resource::Pods,
            Resource::Claims,
        ],
    );
    let in_shop =
        |counts: Option<std::collections::BTreeMap<std::sync::Arc<str>, usize>>| counts.expect("known")["shop"];
    assert_eq!((in_shop(census.active_pods), in_shop(census.bound_claims)), (2, 1));
    assert_eq!((census.advanced_sets, census.clone_sets), (Some(1), Some(2)));
}

#[test]
fn r_35_what_was_asked_for_of_storage() {
    let template =
        |size: &str| json!([{"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": size}}}}]);
    let mut web = set("web");
    web.1["spec"]["volumeClaimTemplates"] = template("3Ki");
    let recorded = |name: &str, size: &str| {
        let mut revision = revision(name);
        revision.1["metadata"]["annotations"] = json!({"flotilla.rs/claim-templates": template(size).to_string()});
        revision
    };
    let mut since = revision("web-3");
    since.1["metadata"]["annotations"] = json!({"flotilla.rs/claim-sizes": "{\"data\":[512,256],\"other\":[1]}"});
    let claim = |name: &str, size: &str| {
        let spec = json!({"resources": {"requests": {"storage": size}}});
        (Resource::Claims, json!({"metadata": meta(name, "claim"), "spec": spec}))
    };
    let objects = [
        web,
        set("empty"),
        since,
        recorded("web-1", "1Ki"),
        revision("web-2"),
        claim("data-web-0", "3Ki"),
        claim("data-web-1", "2Ki"),
        claim("data-web-x", "1"),
        claim("data-web-a-0", "1"),
    ];
    let all = [Resource::AdvancedSets, Resource::Claims, Resource::Revisions];
    let found = census(&objects, &all).storage_asked.expect("everything is known");
    let asked = &found[&ObjectKey::new("shop", "web")]["data"];
    let mut known = asked.recorded.clone();
    known.sort_unstable();
    assert_eq!((&known[..], asked.smallest_claim), (&[256, 512, 1024][..], Some(2048)));
    assert_eq!(found.len(), 1, "a set without claim templates asks for none");
    for missing in all {
        let listed: Vec<Resource> = all.into_iter().filter(|r| *r != missing).collect();
        assert_eq!(
            census(&objects, &listed).storage_asked,
            None,
            "nobody knows without {missing}"
        );
    }
}
