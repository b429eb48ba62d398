//! Pods that are not as the template says: those of old revisions, and those whose image was corrected a moment ago. What is advised to do about
//! their failures depends on it.

use crate::facts::Facts;
use crate::set::LiveSet;
use flotilla_api::names;
use flotilla_model::set::{SetSpec, UpdateKind};
use flotilla_model::{Keeper, SetKind, SetRecord};
use serde_json::Value;
use std::collections::BTreeMap;

/// The registry of images that name none.
const DOCKER: &str = "docker.io";

/// Pods that carry another revision than that of the template, as far as the manager has told which that is, each with what keeps it so, if
/// anything does.
pub(super) fn pods(live: &LiveSet, facts: &Facts, set: Option<&SetRecord>) -> BTreeMap<String, Option<Keeper>> {
    let number = |pointer: &str| live.object.pointer(pointer).and_then(Value::as_i64);
    let is_observed = number("/status/observedGeneration") >= number("/metadata/generation");
    let uid = &live.object["metadata"]["uid"];
    let template = &live.object["spec"]["template"];
    let own = || facts.pods.iter().flatten().filter(|pod| is_owned_by(pod, uid));
    let named = |pod: &Value, keeper| Some((pod["metadata"]["name"].as_str()?.to_owned(), keeper));
    let changed = own().filter(|pod| {
        fails_with_a_former_image(pod) || is_observed && is_about_to_change(pod) && has_other_images(pod, template)
    });
    let changed = changed.filter_map(|pod| named(pod, Some(Keeper::Change)));
    if !is_observed {
        let other = own().filter(|pod| has_other_images(pod, template));
        return other
            .filter_map(|pod| named(pod, Some(Keeper::Edit)))
            .chain(changed)
            .collect();
    }
    let wanted = live.object["status"]["updateRevision"].as_str();
    let wanted = wanted.filter(|wanted| !wanted.is_empty());
    let (Some(wanted), Some(set)) = (wanted, set) else {
        return BTreeMap::new();
    };
    let is_old = |pod: &&Value| {
        let label = pod["metadata"]["labels"][names::REVISION_LABEL].as_str();
        // Some pods of CloneSets carry the hash alone.
        label.is_some_and(|label| label != wanted && !wanted.ends_with(&format!("-{label}")))
    };
    // Nobody is told to let a pod go for a revision whose pods do not serve either.
    let mut new = own().filter(|pod| !is_old(pod)).peekable();
    let has_its_turn_later = new.peek().is_some() && !new.any(is_ready);
    let old = own().filter(is_old);
    let old = old.filter_map(|pod| {
        let later = has_its_turn_later.then_some(Keeper::Order);
        named(pod, keeper(pod, live, &set.spec).or(later))
    });
    let patched = own().filter(|pod| !is_old(pod) && is_patched(pod, template));
    let patched = patched.filter_map(|pod| named(pod, Some(Keeper::Patch)));
    old.chain(patched).chain(changed).collect()
}

/// Whether the node of a pod that cannot pull an image has yet to look at how the pod was changed in place. Nodes say up to which generation they
/// have looked (<https://kubernetes.io/docs/concepts/workloads/pods/#pod-generation>). Until the new image is pulled, kubelets repeat what they said
/// of the one before, at the new generation, too: that is known by the image which they name in quotes.
fn fails_with_a_former_image(pod: &Value) -> bool {
    let each = |list: &'_ Value| list.as_array().cloned().unwrap_or_default();
    let statuses = each(&pod["status"]["containerStatuses"]);
    let mut messages = statuses.iter().filter_map(|status| {
        let waiting = &status["state"]["waiting"];
        let is_about_images = waiting["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("Image"));
        is_about_images.then(|| waiting["message"].as_str().unwrap_or_default())
    });
    let generation = pod["metadata"]["generation"].as_i64();
    let seen = pod["status"]["observedGeneration"].as_i64();
    if generation == Some(1) {
        // Nobody has changed it.
        return false;
    }
    if let (Some(generation), Some(seen)) = (generation, seen)
        && seen < generation
    {
        return messages.next().is_some();
    }
    let containers = each(&pod["spec"]["containers"]);
    let volumes = each(&pod["spec"]["volumes"]);
    let of_containers = containers.iter().map(|container| &container["image"]);
    let images = of_containers.chain(volumes.iter().map(|volume| &volume["image"]["reference"]));
    let images: Vec<String> = images.filter_map(Value::as_str).map(full_name).collect();
    messages.any(|message| {
        let named = message.split_once("image \"");
        let named = named.and_then(|(_, rest)| Some(rest.split_once('"')?.0));
        named.is_some_and(|named| !images.contains(&full_name(named)))
    })
}

/// An image by its full name, as container runtimes complete it: with registry, and its digest, or else its tag
/// (<https://kubernetes.io/docs/concepts/containers/images/#image-names>).
fn full_name(image: &str) -> String {
    let names_registry = |first: &str| first.contains(['.', ':']) || first == "localhost";
    let (registry, path) = match image.split_once('/') {
        Some((first, path)) if names_registry(first) => (first, path),
        _ => (DOCKER, image),
    };
    let registry = if registry == "index.docker.io" {
        DOCKER
    } else {
        registry
    };
    let library = if registry == DOCKER && !path.contains('/') {
        "library/"
    } else {
        ""
    };
    let (path, digest) = path
        .split_once('@')
        .map_or((path, None), |(path, digest)| (path, Some(digest)));
    let (folder, last) = path
        .rsplit_once('/')
        .map_or(("", path), |(folder, last)| (folder, last));
    let separator = if folder.is_empty() { "" } else { "/" };
    let (name, tag) = last.split_once(':').unwrap_or((last, "latest"));
    // By the digest alone, where there are both.
    let version = digest.map_or_else(|| format!(":{tag}"), |digest| format!("@{digest}"));
    format!("{registry}/{library}{folder}{separator}{name}{version}")
}

/// Whether a pod is in the grace period of an update in place.
fn is_about_to_change(pod: &Value) -> bool {
    let annotations = &pod["metadata"]["annotations"];
    [names::IN_PLACE_GRACE, names::IN_PLACE_GRACE_LEGACY]
        .iter()
        .any(|key| annotations[*key].is_string())
}

/// Whether a container of a pod runs, or was to run, another image than a template names for it.
fn has_other_images(pod: &Value, template: &Value) -> bool {
    !with_other_images(pod, template).is_empty()
}

/// The containers of a pod that run, or were to run, another image than a template names for them.
fn with_other_images(pod: &Value, template: &Value) -> Vec<String> {
    let containers = |object: &Value| {
        let all = object["spec"]["containers"].as_array().into_iter().flatten();
        all.filter_map(|c| Some((c["name"].as_str()?.to_owned(), c["image"].as_str()?.to_owned())))
            .collect::<BTreeMap<_, _>>()
    };
    let wanted = containers(template);
    let is_other = |(name, image): &(String, String)| wanted.get(name).is_some_and(|wanted| wanted != image);
    let others = containers(pod).into_iter().filter(is_other);
    others.map(|(name, _)| name).collect()
}

/// Whether somebody has given a pod of the template's revision another image, and a container of that is not ready. What is changed as pods are
/// made, such as the registry by a webhook, is not meant: the next one would have it, too.
fn is_patched(pod: &Value, template: &Value) -> bool {
    if pod["metadata"]["generation"] == 1 || is_about_to_change(pod) || has_more_to_change(pod) {
        return false;
    }
    let others = with_other_images(pod, template);
    let mut statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    statuses.any(|status| status["ready"] != true && others.iter().any(|name| status["name"] == name.as_str()))
}

/// Whether a pod is in an update in place that has yet to change further containers.
fn has_more_to_change(pod: &Value) -> bool {
    let annotations = &pod["metadata"]["annotations"];
    let states = [names::IN_PLACE_STATE, names::IN_PLACE_STATE_LEGACY];
    let mut states = states.iter().filter_map(|key| annotations[*key].as_str());
    states.any(|state| match serde_json::from_str::<Value>(state) {
        Ok(state) => state["nextContainerImages"]
            .as_object()
            .is_some_and(|next| !next.is_empty()),
        Err(_) => true,
    })
}

pub(super) fn is_owned_by(object: &Value, uid: &Value) -> bool {
    let mut owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.any(|owner| owner["uid"] == *uid)
}

fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// What keeps a pod at an old revision. With OnDelete nothing does: users delete it.
fn keeper(pod: &Value, live: &LiveSet, spec: &SetSpec) -> Option<Keeper> {
    if spec.update == UpdateKind::OnDelete {
        return None;
    }
    if spec.is_paused() || live.kind == SetKind::Native && live.paused_at().is_some() {
        return Some(Keeper::Pause);
    }
    let is_kept = match live.kind {
        // Which it keeps is not known by the name: the partition of a CloneSet, or one that counts pods, keeps any.
        SetKind::Clone => spec
            .clones
            .as_deref()
            .is_none_or(|clones| clones.partition.kept_of(spec.replicas) > 0),
        SetKind::Native | SetKind::Advanced => {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let ordinal = name.rsplit_once('-').and_then(|(_, digits)| digits.parse::<i64>().ok());
            let partition = i64::from(spec.partition());
            let counts_pods = spec.rolling.as_ref().is_some_and(|rolling| rolling.unordered.is_some());
            partition > 0 && counts_pods || ordinal.is_none_or(|ordinal| spec.ordinals().rank(ordinal) < partition)
        }
    };
    is_kept.then_some(Keeper::Partition)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flotilla_model::set::read_set;
    use flotilla_model::{Interner, ObjectKey, WaitCause, Whom};
    use serde_json::json;

    /// Whoever has just corrected an image is not told to correct it, nor what to do about pods that the manager has yet to look at.
    #[test]
    fn an_edit_that_no_manager_has_seen_is_no_advice_any_more() {
        let advice = |(template, pod): (&str, &str), generation: i64| {
            let object = json!({
                "metadata": {"name": "web", "namespace": "ns", "uid": "u", "generation": generation, "resourceVersion": "1",
                    "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}},
                    "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": template}]}}},
                "status": {"observedGeneration": 1, "updateRevision": "web-a"},
            });
            let pod = json!({
                "metadata": {"name": "web-0", "labels": {"controller-revision-hash": "web-a"}, "ownerReferences": [{"uid": "u"}]},
                "spec": {"containers": [{"name": "main", "image": pod}]},
                "status": {"containerStatuses": [{"name": "main", "state": {"waiting": {
                    "reason": "ImagePullBackOff", "message": "Back-off pulling image \"app:broken\": ErrImagePull: not found"}}}]},
            });
            let facts = Facts {
                pods: Some(vec![pod]),
                ..Facts::default()
            };
            let record = read_set(SetKind::Advanced, &object, &mut Interner::default()).unwrap();
            let key = ObjectKey::new("ns", "web");
            let live = LiveSet {
                kind: SetKind::Advanced,
                key,
                object,
            };
            let kept_by = pods(&live, &facts, Some(&record)).get("web-0").copied().flatten();
            let cause = WaitCause::ContainerCannotStart {
                container: "main".to_owned(),
                reason: "ImagePullBackOff".to_owned(),
                message: "not found".to_owned(),
            };
            let whom = Whom {
                kept_by,
                ..Whom::of("statefulset.apps.kruise.io/web", "ns")
            };
            cause.advice("web-0", &whom).unwrap()
        };
        let broken = ("app:broken", "app:broken");
        let seen = advice(broken, 1);
        assert!(seen.starts_with("correct the image in the set's template"), "{seen}");
        let scaled = advice(broken, 2);
        assert_eq!(scaled, seen, "the edit was of something else");
        let corrected = advice(("app:v2", "app:broken"), 2);
        let words = "the set was edited since, and its manager has yet to look at it; ask again: flotilla why statefulset.apps.kruise.io/web -n ns";
        assert_eq!(corrected, words);
        // The manager has changed the pod in place, and its node still speaks of the former image.
        let changed = advice(("app:v2", "app:v2"), 1);
        let words = "it has, or gets, another image by now, which its node has yet to look at; see what it says then: kubectl describe pod web-0 -n ns";
        assert_eq!(changed, words);
        let is_former = |generation: i64, seen: Value, message: &str| {
            fails_with_a_former_image(&json!({
                "metadata": {"generation": generation},
                "spec": {"containers": [{"name": "main", "image": "app:v1"}], "volumes": [{"name": "model", "image": {"reference": "models:v9"}}]},
                "status": {"observedGeneration": seen, "containerStatuses": [{"name": "main", "state": {"waiting": {
                    "reason": "ErrImagePull", "message": message}}}]},
            }))
        };
        let unpacked = "failed to pull and unpack image \"docker.io/library/app:broken\": not found";
        for (generation, seen, message, expected) in [
            (2, json!(1), unpacked, true),
            (2, json!(1), "Back-off pulling image \"app:v10\"", true),
            // Its node repeats what it said before, until the new image is pulled.
            (2, json!(2), unpacked, true),
            (2, json!(2), "Back-off pulling image \"app:v10\"", true),
            (
                2,
                json!(2),
                "failed to pull and unpack image \"docker.io/library/app:v1\": not found",
                false,
            ),
            (2, json!(2), "no such host", false),
            (1, json!(1), "Back-off pulling image \"models:v9\"", false),
            // Whatever a mirror calls it.
            (1, json!(1), "Back-off pulling image \"mirror/app\"", false),
            (1, json!(null), "Back-off pulling image \"models:v9\"", false),
            (2, json!(null), "Back-off pulling image \"app:broken\"", true),
        ] {
            assert_eq!(
                is_former(generation, seen.clone(), message),
                expected,
                "{generation} {seen} {message}"
            );
        }
    }

    /// The template is not to blame for what somebody has given a pod by hand, and no update takes it back.
    #[test]
    fn a_pod_with_an_image_of_its_own_is_to_be_deleted() {
        let object = json!({
            "metadata": {"name": "web", "namespace": "ns", "uid": "u", "generation": 1, "resourceVersion": "1",
                "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [
                    {"name": "main", "image": "app:1"}, {"name": "side", "image": "side:1"}]}}},
            "status": {"observedGeneration": 1, "updateRevision": "web-a"},
        });
        let record = read_set(SetKind::Advanced, &object, &mut Interner::default()).unwrap();
        let live = LiveSet {
            kind: SetKind::Advanced,
            key: ObjectKey::new("ns", "web"),
            object,
        };
        let advice = |generation: Value, annotations: Value, images: (&str, &str)| {
            let pod = json!({
                "metadata": {"name": "web-0", "generation": generation, "annotations": annotations,
                    "labels": {"controller-revision-hash": "web-a"}, "ownerReferences": [{"uid": "u"}]},
                "spec": {"containers": [{"name": "main", "image": images.0}, {"name": "side", "image": images.1}]},
                "status": {"containerStatuses": [
                    {"name": "main", "ready": false, "state": {"waiting": {"reason": "ImagePullBackOff", "message": ""}}},
                    {"name": "side", "ready": true}]},
            });
            let facts = Facts {
                pods: Some(vec![pod]),
                ..Facts::default()
            };
            let old = pods(&live, &facts, Some(&record));
            let whom = Whom {
                kept_by: old.get("web-0").copied().flatten(),
                ..Whom::of("statefulset.apps.kruise.io/web", "ns")
            };
            let cause = WaitCause::ContainerCannotStart {
                container: "main".to_owned(),
                reason: "ImagePullBackOff".to_owned(),
                message: String::new(),
            };
            cause.advice("web-0", &whom).unwrap()
        };
        let patched = ("app:broken", "side:1");
        for generation in [json!(2), Value::Null] {
            let delete = advice(generation, Value::Null, patched);
            assert!(
                delete.starts_with("delete it: somebody gave it another image"),
                "{delete}"
            );
            assert!(delete.ends_with(": kubectl delete pod web-0 -n ns"), "{delete}");
        }
        let state = |next: Value| json!({names::IN_PLACE_STATE: json!({"nextContainerImages": next}).to_string()});
        let done = advice(json!(3), state(json!({})), patched);
        assert!(done.starts_with("delete it: "), "{done}");
        for (what, generation, annotations, images) in [
            (
                "it has what the template names",
                json!(2),
                Value::Null,
                ("app:1", "side:1"),
            ),
            ("a webhook made it so", json!(1), Value::Null, patched),
            (
                "another container was changed",
                json!(2),
                Value::Null,
                ("app:1", "side:2"),
            ),
            (
                "the update has yet to change it",
                json!(2),
                state(json!({"main": "app:1"})),
                patched,
            ),
            (
                "nobody knows what was changed",
                json!(2),
                json!({names::IN_PLACE_STATE: "?"}),
                patched,
            ),
        ] {
            let advice = advice(generation, annotations, images);
            assert!(
                advice.starts_with("correct the image in the set's template"),
                "{what}: {advice}"
            );
        }
    }

    #[test]
    fn images_are_completed_as_container_runtimes_do_it() {
        for (image, expected) in [
            ("app", "docker.io/library/app:latest"),
            ("app:v1", "docker.io/library/app:v1"),
            ("team/app@sha256:00", "docker.io/team/app@sha256:00"),
            ("app:v1@sha256:00", "docker.io/library/app@sha256:00"),
            ("docker.io/app:v1", "docker.io/library/app:v1"),
            ("index.docker.io/team/app", "docker.io/team/app:latest"),
            (
                "registry:5000/team/app:v1@sha256:00",
                "registry:5000/team/app@sha256:00",
            ),
            ("registry.example.com/app", "registry.example.com/app:latest"),
            ("registry:5000/app:v1", "registry:5000/app:v1"),
            ("localhost/app", "localhost/app:latest"),
        ] {
            assert_eq!(full_name(image), expected);
        }
    }

    /// A pod that the set keeps as it is, is not to be deleted for its revision.
    #[test]
    fn what_the_set_keeps_is_not_called_former() {
        let old_among = |kind: SetKind, spec: Value, all: Vec<Value>| {
            let meta = json!({"name": "web", "namespace": "ns", "uid": "u", "generation": 1, "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"});
            let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "v2"}]}});
            let mut object = json!({
                "metadata": meta, "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template},
                "status": {"observedGeneration": 1, "updateRevision": "web-b"},
            });
            for (field, value) in spec.as_object().unwrap() {
                object["spec"][field] = value.clone();
            }
            let facts = Facts {
                pods: Some(all),
                ..Facts::default()
            };
            let record = read_set(kind, &object, &mut Interner::default()).unwrap();
            let key = ObjectKey::new("ns", "web");
            let live = LiveSet { kind, key, object };
            let old = pods(&live, &facts, Some(&record)).into_iter();
            let word = |keeper: Option<Keeper>| match keeper {
                None => "",
                Some(Keeper::Pause) => " kept by the pause",
                Some(Keeper::Partition) => " kept",
                Some(Keeper::Order) => " later",
                Some(Keeper::Edit | Keeper::Change) => " not looked at",
                Some(Keeper::Patch) => " patched",
            };
            old.map(|(name, keeper)| format!("{name}{}", word(keeper)))
                .collect::<Vec<_>>()
        };
        let old_of = |kind: SetKind, spec: Value, pods: &[&str]| {
            let pod = |name: &&str| {
                json!({"metadata": {
                    "name": name, "labels": {"controller-revision-hash": "web-a"}, "ownerReferences": [{"uid": "u"}],
                }})
            };
            old_among(kind, spec, pods.iter().map(pod).collect())
        };
        let old_with = |spec: Value, pods: &[&str]| old_of(SetKind::Advanced, spec, pods);
        let rolling = |value: Value| json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": value}});
        let with = |mut spec: Value, field: &str, value: Value| {
            spec[field] = value;
            spec
        };
        let all = ["web-0", "web-1", "web-2"];
        let kept = |name: &str| format!("{name} kept");
        assert_eq!(old_with(json!({}), &all), all);
        assert_eq!(
            old_with(rolling(json!({"partition": 2})), &all),
            [kept("web-0"), kept("web-1"), "web-2".to_owned()]
        );
        assert_eq!(
            old_with(rolling(json!({"paused": true})), &["web-0"]),
            ["web-0 kept by the pause"]
        );
        // They are updated when somebody deletes them.
        assert_eq!(old_with(json!({"updateStrategy": {"type": "OnDelete"}}), &all), all);
        let start = with(rolling(json!({"partition": 2})), "ordinals", json!({"start": 5}));
        assert_eq!(
            old_with(start, &["web-5", "web-6", "web-7"]),
            [kept("web-5"), kept("web-6"), "web-7".to_owned()]
        );
        let reserved = with(rolling(json!({"partition": 1})), "reserveOrdinals", json!([0, 1]));
        assert_eq!(
            old_with(reserved, &["web-2", "web-3", "web-4"]),
            [kept("web-2"), "web-3".to_owned(), "web-4".to_owned()]
        );
        let unordered = rolling(json!({"partition": 1, "unorderedUpdate": {}}));
        assert_eq!(
            old_with(unordered, &all),
            all.map(kept),
            "which it keeps is not known by the name"
        );
        // Nobody lets a pod go for a revision of which none serves, nor goes back for a pod of an old one.
        let facts_with = |status: &str| {
            let pod = |name: &str, revision: &str| {
                json!({"metadata": {"name": name, "labels": {"controller-revision-hash": revision}, "ownerReferences": [{"uid": "u"}]},
                    "status": {"conditions": [{"type": "Ready", "status": status}]}})
            };
            old_among(
                SetKind::Advanced,
                json!({}),
                vec![pod("web-2", "web-b"), pod("web-0", "web-a")],
            )
        };
        assert_eq!(facts_with("False"), ["web-0 later"]);
        assert_eq!(facts_with("True"), ["web-0"]);
        // That of a CloneSet keeps any, and one of nothing keeps none.
        for (partition, expected) in [(json!(1), "web-a kept"), (json!(0), "web-a"), (json!("0%"), "web-a")] {
            assert_eq!(
                old_of(SetKind::Clone, rolling(json!({"partition": partition})), &["web-a"]),
                [expected]
            );
        }
    }
}
