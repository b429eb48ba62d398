//! Whether to go back to an earlier revision, and to which.

use crate::set::LiveSet;
use flotilla_controllers::shared::revision::label_names;
use flotilla_controllers::wait_of_pod;
use flotilla_engine::core::cache::Cache;
use flotilla_model::{GoBack, PodRecord, Reader as _, RevisionRecord, WaitCause};
use std::sync::Arc;

/// How to go back from the present revision. Whoever went back from one that serves would take its pods down, after a roll-back for what was left as
/// broken. And whoever goes from one broken revision to the next had better go to one that serves, or is not known to fail.
pub(super) fn go_back(cache: &Cache, live: &LiveSet) -> GoBack {
    let Some(set) = cache.set(live.kind, &live.key) else {
        return GoBack::No;
    };
    let newest = set.status_text("updateRevision");
    let pods = cache.pods_of(set.as_owner());
    let is_any = |name: &str, test: fn(&PodRecord) -> bool| pods.iter().any(|pod| label_names(pod, name) && test(pod));
    if !newest.is_empty() && is_any(newest, PodRecord::is_healthy) {
        return GoBack::No;
    }
    let revisions = cache.revisions_of(set.as_owner());
    let present = revisions.iter().find(|revision| revision.name() == newest);
    let is_another = |revision: &&Arc<RevisionRecord>| {
        revision.name() != newest && present.is_none_or(|present| present.digest != revision.digest)
    };
    let mut others: Vec<&Arc<RevisionRecord>> = revisions.iter().filter(is_another).collect();
    others.sort_by_key(|revision| std::cmp::Reverse(revision.number));
    if present.is_none() && others.len() < 2 {
        // The only one is the present one.
        return GoBack::No;
    }
    if let Some(serves) = others.iter().find(|other| is_any(other.name(), PodRecord::is_healthy)) {
        return GoBack::To(serves.number);
    }
    match others.iter().position(|other| !is_any(other.name(), cannot_start)) {
        None => GoBack::No,
        Some(0) => GoBack::ToTheOneBefore,
        Some(place) => GoBack::To(others[place].number),
    }
}

/// Whether its pods are known to fail by this one.
fn cannot_start(pod: &PodRecord) -> bool {
    matches!(wait_of_pod(pod), Some(wait) if matches!(wait.cause, WaitCause::ContainerCannotStart { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flotilla_engine::core::store::Source;
    use flotilla_engine::wire::Encoding;
    use flotilla_model::{ObjectKey, Resource, SetKind};
    use serde_json::{Value, json};

    /// A set whose newest revision is the last of so many, with pods of these revisions that serve or cannot start.
    fn asked(revisions: i64, pods: &[(i64, bool)]) -> GoBack {
        let owner = json!([{"apiVersion": "apps.kruise.io/v1beta1", "kind": "StatefulSet", "name": "web", "uid": "u", "controller": true}]);
        let meta = |name: String, more: Value| {
            let mut meta = json!({"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1",
                "creationTimestamp": "2026-01-01T00:00:00Z"});
            for (field, value) in more.as_object().into_iter().flatten() {
                meta[field] = value.clone();
            }
            meta
        };
        let template = |number: i64| json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": format!("app:{number}")}]}});
        let set = json!({
            "metadata": meta("web".to_owned(), json!({"uid": "u", "generation": 1})),
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template(revisions)},
            "status": {"observedGeneration": 1, "updateRevision": format!("web-{revisions}")},
        });
        let revision = |number: i64| {
            json!({"metadata": meta(format!("web-{number}"), json!({"ownerReferences": owner, "labels": {"app": "web"}})),
                "revision": number, "data": {"spec": {"template": template(number)}}})
        };
        let pod = |(index, (number, serves)): (usize, &(i64, bool))| {
            let labels = json!({"app": "web", "controller-revision-hash": format!("web-{number}")});
            let status = if *serves {
                json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})
            } else {
                let waiting = json!({"reason": "ImagePullBackOff", "message": "not found"});
                json!({"phase": "Pending", "conditions": [{"type": "Ready", "status": "False"}],
                    "containerStatuses": [{"name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"waiting": waiting}}]})
            };
            let meta = meta(
                format!("web-p{index}"),
                json!({"ownerReferences": owner, "labels": labels}),
            );
            json!({"metadata": meta, "spec": template(*number)["spec"], "status": status})
        };
        let objects = std::iter::once((Resource::AdvancedSets, set.clone()))
            .chain((1..=revisions).map(|number| (Resource::Revisions, revision(number))))
            .chain(pods.iter().enumerate().map(|all| (Resource::Pods, pod(all))));
        let mut cache = Cache::default();
        for (resource, object) in objects {
            let bytes = object.to_string().into();
            let read = cache.read(resource, Encoding::Json, &bytes);
            let object = read.unwrap_or_else(|_| panic!("{resource}: {object}"));
            drop(cache.apply(object, Source::List));
        }
        let live = LiveSet {
            kind: SetKind::Advanced,
            key: ObjectKey::new("ns", "web"),
            object: set,
        };
        go_back(&cache, &live)
    }

    /// From one broken image to the next and back again, for ever, while pods of an older revision serve.
    #[test]
    fn nobody_is_told_to_go_back_to_what_is_broken_while_something_else_serves() {
        let (serves, fails) = (true, false);
        for (what, revisions, pods, expected) in [
            ("the first", 1, &[(1, fails)][..], GoBack::No),
            ("serves", 2, &[(2, serves), (1, serves)], GoBack::No),
            ("nothing is known of others", 3, &[(3, fails)], GoBack::ToTheOneBefore),
            ("the one before serves", 2, &[(2, fails), (1, serves)], GoBack::To(1)),
            ("an older one serves", 5, &[(5, fails), (3, serves)], GoBack::To(3)),
            (
                "an older one serves, and the one before fails",
                5,
                &[(5, fails), (4, fails), (3, serves), (2, serves)],
                GoBack::To(3),
            ),
            ("the one before fails", 3, &[(3, fails), (2, fails)], GoBack::To(1)),
            ("all that there are fail", 2, &[(2, fails), (1, fails)], GoBack::No),
            ("no pod is there", 2, &[], GoBack::ToTheOneBefore),
        ] {
            assert_eq!(asked(revisions, pods), expected, "{what}");
        }
    }
}
