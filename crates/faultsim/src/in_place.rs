//! Sets whose pods are updated in place, and users who mind their hooks.

use crate::clones::older::{full, revision_of};
use crate::containers::has_all_its_resources;
use crate::environment;
use crate::judge::{Verdict, require};
use crate::notes::is_unreadable;
use crate::run::World;
use crate::tenants;
use fastrand::Rng;
use flotilla_engine::wire::Object;
use flotilla_model::records::PodDetail;
use flotilla_model::set as model;
use flotilla_model::{PatchKind, PodRecord, Resource, SetKind, SetRecord, Timestamp, Uid};
use flotilla_sim::server::{Actor, Server, Stored};
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(crate) const STATE: &str = "lifecycle.apps.kruise.io/state";
/// Where a JSON patch finds it.
pub(crate) const STATE_PATH: &str = "/metadata/labels/lifecycle.apps.kruise.io~1state";
pub(crate) const GATE: &str = "InPlaceUpdateReady";
pub(crate) const HOOK_GATE: &str = "KruisePodReady";
const STATE_NOTE: &str = "apps.kruise.io/inplace-update-state";
pub(crate) const GRACE_NOTE: &str = "apps.kruise.io/inplace-update-grace";
/// What users hold a pod by: a label with its value, or a finalizer.
const LABEL: (&str, &str) = ("hook.example.com/serves", "true");
const FINALIZER: &str = "hook.example.com/serves";

/// How pods are updated in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InPlace {
    /// Never by recreation.
    pub only: bool,
    /// Seconds between leaving service and the change.
    pub grace_s: i64,
    /// What holds pods up, if anything.
    pub hook: Option<Hook>,
}

/// What holds a pod up before it is updated or deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Independent draws, not a state.
#[allow(clippy::struct_excessive_bools)]
pub struct Hook {
    /// A finalizer; otherwise a label.
    pub is_finalizer: bool,
    /// Before deletions.
    pub before_delete: bool,
    /// Before updates.
    pub before_update: bool,
    /// Before a new pod counts (CloneSets only).
    pub before_service: bool,
    /// The pod leaves service while it is held up.
    pub leaves_service: bool,
}

impl InPlace {
    pub(crate) fn by_chance(rng: &mut Rng) -> Self {
        let hook = Hook {
            is_finalizer: rng.u8(0..3) == 0,
            before_delete: rng.bool(),
            before_update: rng.bool(),
            before_service: false,
            leaves_service: rng.bool(),
        };
        InPlace {
            only: rng.u8(0..3) == 0,
            grace_s: if rng.u8(0..3) == 0 { 5 } else { 0 },
            hook: (rng.bool() && (hook.before_delete || hook.before_update)).then_some(hook),
        }
    }

    /// With hooks for new pods, too.
    pub(crate) fn of_clones(rng: &mut Rng) -> Self {
        let mut plan = InPlace::by_chance(rng);
        let before_service = rng.u8(0..3) == 0;
        if let Some(hook) = &mut plan.hook {
            hook.before_service = before_service;
        }
        plan
    }

    /// What a manifest says of it.
    pub(crate) fn complete(self, set: &mut Value, kind: SetKind) {
        let rolling = &mut set["spec"]["updateStrategy"]["rollingUpdate"];
        rolling["podUpdatePolicy"] = json!(if self.only { "InPlaceOnly" } else { "InPlaceIfPossible" });
        if self.grace_s > 0 {
            rolling["inPlaceUpdateStrategy"] = json!({"gracePeriodSeconds": self.grace_s});
        }
        let template = &mut set["spec"]["template"];
        // The gate of hooks is put in by controllers: there is no webhook here. Those of CloneSets put in both.
        if kind != SetKind::Clone {
            template["spec"]["readinessGates"] = json!([{"conditionType": GATE}]);
        }
        template["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
        if let Some(hook) = self.hook {
            hook.complete(set);
        }
    }
}

impl Hook {
    fn complete(self, set: &mut Value) {
        let mut handler = json!({"markPodNotReady": self.leaves_service});
        let metadata = &mut set["spec"]["template"]["metadata"];
        if self.is_finalizer {
            handler["finalizersHandler"] = json!([FINALIZER]);
        } else {
            handler["labelsHandler"] = json!({LABEL.0: LABEL.1});
        }
        // Before service it is users who put it on.
        match (self.before_service, self.is_finalizer) {
            (true, _) => {}
            (false, true) => metadata["finalizers"] = json!([FINALIZER]),
            (false, false) => metadata["labels"][LABEL.0] = json!(LABEL.1),
        }
        for (field, is_set) in [
            ("preDelete", self.before_delete),
            ("inPlaceUpdate", self.before_update),
            ("preNormal", self.before_service),
        ] {
            if is_set {
                set["spec"]["lifecycle"][field] = handler.clone();
            }
        }
    }

    /// Whether it holds a pod with these finalizers up.
    fn holds(self, pod: &PodRecord, finalizers: &[&str]) -> bool {
        if self.is_finalizer {
            finalizers.contains(&FINALIZER)
        } else {
            pod.label(LABEL.0) == Some(LABEL.1)
        }
    }

    /// The JSON patch by which a user lets a pod with these finalizers go, or holds it again.
    fn patch(self, finalizers: &[&str], holds: bool) -> Value {
        if !self.is_finalizer {
            let value = holds.then_some(LABEL.1);
            return json!({"metadata": {"labels": {LABEL.0: value}}});
        }
        let mut all: Vec<&str> = finalizers.iter().copied().filter(|f| *f != FINALIZER).collect();
        if holds {
            all.push(FINALIZER);
        }
        json!({"metadata": {"finalizers": all}})
    }
}

/// A pod's finalizers as they are stored: its record does not tell them while it belongs to nobody.
fn finalizers_of(stored: &Stored) -> Vec<String> {
    let all = stored.value().pointer("/metadata/finalizers").cloned();
    let all = all.and_then(|all| serde_json::from_value(all).ok());
    all.unwrap_or_default()
}

/// A pod's place in its lifecycle.
pub(crate) fn state(pod: &PodRecord) -> &str {
    pod.label(STATE).unwrap_or("Normal")
}

impl World {
    /// Users look at pods that are held up: they let go those that are to be changed or deleted, and take back those that are done.
    pub(crate) fn users_mind_hooks(&mut self) {
        let Some(hook) = self.schedule.set.in_place.and_then(|in_place| in_place.hook) else {
            return;
        };
        let mut patches = Vec::new();
        for stored in tenants::all(&self.cluster.server, Resource::Pods) {
            let Some(Object::Pod(pod)) = &stored.object else {
                continue;
            };
            let finalizers = finalizers_of(stored);
            let finalizers: Vec<&str> = finalizers.iter().map(String::as_str).collect();
            let holds = hook.holds(pod, &finalizers);
            let wanted = match state(pod) {
                _ if pod.is_terminating() => false,
                "PreparingUpdate" | "PreparingDelete" => false,
                "Updated" | "PreparingNormal" => true,
                _ => continue,
            };
            if holds != wanted {
                patches.push((pod.meta.key.clone(), hook.patch(&finalizers, wanted)));
            }
        }
        for (key, patch) in patches {
            // It was there a moment ago.
            let _ = self
                .cluster
                .server
                .patch(Actor::User, Resource::Pods, &key, (PatchKind::Merge, &patch));
        }
    }
}

/// The text that a JSON patch puts at a path, if it is not empty.
pub(crate) fn adds<'b>(body: &'b Value, path: &str) -> Option<&'b str> {
    let mut operations = body.as_array().into_iter().flatten();
    let found = operations.find(|o| o["op"] == "add" && o["path"] == path);
    found?["value"].as_str().filter(|text| !text.is_empty())
}

/// The revision to which a JSON patch brings a pod.
pub(crate) fn new_revision(body: &Value) -> Option<&str> {
    adds(body, "/metadata/labels/controller-revision-hash")
}

/// The state of its lifecycle to which a JSON patch brings a pod.
pub(crate) fn new_state(body: &Value) -> Option<&str> {
    adds(body, STATE_PATH)
}

/// Whether an operation of a JSON patch gives a container of a pod an image; with which.
fn image_in(operation: &Value) -> Option<&str> {
    let path = operation["path"].as_str()?.strip_prefix("/spec/containers/")?;
    let is_image = operation["op"] != "test" && path.ends_with("/image");
    operation["value"].as_str().filter(|_| is_image)
}

/// Which containers a JSON patch gives an image.
pub(crate) fn places_of_new_images(body: &Value) -> BTreeSet<usize> {
    let given = body.as_array().into_iter().flatten().filter(|o| image_in(o).is_some());
    let paths = given.filter_map(|o| o["path"].as_str()?.split('/').nth(3)?.parse().ok());
    paths.collect()
}

/// An image that a JSON patch gives to a pod.
pub(crate) fn new_image(body: &Value) -> Option<&str> {
    body.as_array().into_iter().flatten().find_map(image_in)
}

/// Whether a JSON patch of a pod brings it to another revision, or prepares it for that or for its deletion.
pub(crate) fn begins_update(body: &Value) -> bool {
    new_revision(body).is_some() || matches!(new_state(body), Some("PreparingUpdate" | "PreparingDelete"))
}

/// How many of the markers of a hook a pod carries, and how many there are.
fn markers(hook: &model::Hook, pod: &PodRecord) -> (usize, usize) {
    let labels = hook.labels.iter().filter(|(key, value)| pod.label(key) == Some(value));
    let has = |name: &&String| {
        pod.detail
            .iter()
            .flat_map(|d| d.finalizers.iter())
            .any(|f| **f == ***name)
    };
    let found = labels.count() + hook.finalizers.iter().filter(has).count();
    (found, hook.labels.len() + hook.finalizers.len())
}

/// Whether a hook holds a pod: by any of its markers (STS-4.8).
pub(crate) fn holds(hook: Option<&model::Hook>, pod: &PodRecord) -> bool {
    hook.is_some_and(|hook| markers(hook, pod).0 > 0)
}

/// Whether a pod lacks any of the markers of a hook (STS-4.8).
pub(crate) fn lacks(hook: Option<&model::Hook>, pod: &PodRecord) -> bool {
    hook.is_some_and(|hook| {
        let (found, all) = markers(hook, pod);
        found < all
    })
}

/// A note of an update in place; older ones have no prefix (STS-4.7).
pub(crate) fn note_in<'d>(detail: &'d PodDetail, key: &str) -> Option<&'d str> {
    let plain = key.strip_prefix("apps.kruise.io/").unwrap_or(key);
    let annotations = &detail.annotations;
    annotations.get(key).or_else(|| annotations.get(plain))
}

/// What a pod has noted of its grace period.
pub(crate) fn grace_note(pod: &PodRecord) -> Option<&str> {
    note_in(pod.detail.as_ref()?, GRACE_NOTE)
}

/// Whether a pod is in the grace period of the revision that it has.
pub(crate) fn is_in_grace(pod: &PodRecord) -> bool {
    let note = grace_note(pod).filter(|_| !is_unreadable(pod));
    let note = note.and_then(|note| serde_json::from_str::<Value>(note).ok());
    note.is_some_and(|note| note["revision"].as_str().map(full) == revision_of(pod))
}

/// Whether a pod can come from one template to another in place (STS-4.1): images, resources and metadata alone differ.
pub(crate) fn can_go_in_place(from: &Value, to: &Value) -> bool {
    let rest = |template: &Value| {
        let mut rest = template.clone();
        rest["metadata"] = Value::Null;
        for container in rest["spec"]["containers"].as_array_mut().into_iter().flatten() {
            (container["image"], container["resources"]) = (Value::Null, Value::Null);
        }
        rest
    };
    rest(from) == rest(to)
}

/// Pods whose images a manager has changed, with the generation of the set that was seen.
#[derive(Debug, Default)]
pub(crate) struct Restarts {
    changed: BTreeSet<(Uid, Uid, i64)>,
}

impl Restarts {
    /// The images of a pod are changed for a set: once for what it asks for (STS-4.3).
    pub(crate) fn note(&mut self, pod: &PodRecord, set: &SetRecord) -> Verdict {
        let cause = (pod.meta.uid.clone(), set.meta.uid.clone(), set.generation);
        let is_first = self.changed.insert(cause);
        require(is_first, "STS-4.3 one restart", || {
            let (name, generation) = (pod.name(), set.generation);
            format!("the images of {name} are changed twice for generation {generation}")
        })
    }
}

/// Whether a patch of a pod changes what its containers are made from, or takes it out of service.
// Independent facts, not a state.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// An image is another.
    pub(crate) image: bool,
    /// Metadata to which the environment of a container refers is other.
    pub(crate) environment: bool,
    /// The gate of updates goes down.
    pub(crate) leaves_service: bool,
    /// The gate of hooks goes down.
    pub(crate) is_held: bool,
    /// The gate of updates goes up.
    pub(crate) comes_back: bool,
    /// Its restart is decided, and put off until it has its new resources.
    pub(crate) puts_off: bool,
    /// The revision is another.
    pub(crate) revision: bool,
    /// It is prepared for its update, or for its deletion, and not available from then on.
    pub(crate) prepares: bool,
}

impl Change {
    pub(crate) fn of(before: &PodRecord, after: &PodRecord) -> Self {
        let images = |pod: &PodRecord| -> Vec<String> {
            let containers = pod.detail.iter().flat_map(|d| &d.spec.containers);
            containers.map(|c| c.image.to_string()).collect()
        };
        // Of a pod that is adopted or let go, only one of them says what its containers are.
        let is_known = before.detail.is_some() && after.detail.is_some();
        Change {
            image: is_known && images(before) != images(after),
            environment: is_known && environment::differs(before, after),
            leaves_service: is_known && is_in_service(before) && !is_in_service(after),
            is_held: is_known && is_let_serve(before) && !is_let_serve(after),
            comes_back: is_known && !is_in_service(before) && is_in_service(after),
            puts_off: is_known && !awaits_restart(before) && awaits_restart(after),
            revision: revision_of(before) != revision_of(after),
            prepares: state(before) != state(after) && ["PreparingUpdate", "PreparingDelete"].contains(&state(after)),
        }
    }
}

/// Whether the gate of hooks lets a pod serve.
pub(crate) fn is_let_serve(pod: &PodRecord) -> bool {
    let gate = pod.detail.as_ref().and_then(|d| d.kruise_ready.as_ref());
    gate.is_some_and(|gate| gate.is_true)
}

/// Whether the gate of updates lets a pod serve.
pub(crate) fn is_in_service(pod: &PodRecord) -> bool {
    let gate = pod.detail.as_ref().and_then(|d| d.in_place_ready.as_ref());
    gate.is_some_and(|gate| gate.is_true)
}

/// When the update in place began that a pod has noted last.
pub(crate) fn began(pod: &PodRecord) -> Option<Timestamp> {
    let note: Value = serde_json::from_str(note_in(pod.detail.as_ref()?, STATE_NOTE)?).ok()?;
    note["updateTimestamp"].as_str()?.parse().ok()
}

/// What a pod has noted of its update in place; null if nothing, or nothing that can be read.
pub(crate) fn note_of(pod: &PodRecord) -> Value {
    let note = pod.detail.as_ref().and_then(|d| note_in(d, STATE_NOTE));
    note.and_then(|note| serde_json::from_str(note).ok())
        .unwrap_or_default()
}

/// Whether a pod says of itself that it was updated in place.
pub(crate) fn has_note(pod: &PodRecord) -> bool {
    pod.detail.as_ref().is_some_and(|d| note_in(d, STATE_NOTE).is_some())
}

/// Whether the update that a pod has noted changes resources and nothing else.
pub(crate) fn changes_resources_alone(pod: &PodRecord) -> bool {
    let note = pod.detail.as_ref().and_then(|d| note_in(d, STATE_NOTE));
    let note: Option<Value> = note.and_then(|text| serde_json::from_str(text).ok());
    note.is_some_and(|note| {
        let says = |flag: &str| note[flag] == true;
        says("updateResources") && !says("updateImages") && !says("updateEnvFromMetadata")
    })
}

/// Whether a note of an update in place says that containers are still to restart: their new resources come first.
pub(crate) fn puts_off_restart(note: &str) -> bool {
    ["nextContainerImages", "nextContainerRefMetadata"]
        .iter()
        .any(|field| note.contains(field))
}

/// Whether containers of a pod are still to restart for an update that has begun. It serves, and uses the budget.
pub(crate) fn awaits_restart(pod: &PodRecord) -> bool {
    let note = pod.detail.as_ref().and_then(|d| note_in(d, STATE_NOTE));
    let Some(note) = note.filter(|note| puts_off_restart(note)) else {
        return false;
    };
    // The label may hold the hash alone.
    let hash = |name: &str| name.rsplit('-').next().map(str::to_owned);
    let own: Option<Value> = serde_json::from_str(note).ok();
    own.is_some_and(|own| own["revision"].as_str().and_then(hash) == pod.revision().and_then(hash))
}

/// Whether other resources are still to be asked for, for the revision that a pod's label names already.
pub(crate) fn lacks_resources(pod: &PodRecord) -> bool {
    let note = pod.detail.as_ref().and_then(|d| note_in(d, STATE_NOTE));
    note.is_some_and(|note| note.contains("nextContainerResources"))
}

/// Whether a JSON patch of a pod notes that its containers are to restart later.
pub(crate) fn notes_restart(body: &Value) -> bool {
    noted(body).is_some_and(puts_off_restart)
}

/// What a JSON patch notes of a pod's update in place.
pub(crate) fn noted(body: &Value) -> Option<&str> {
    adds(body, "/metadata/annotations/apps.kruise.io~1inplace-update-state")
}

/// Whether all containers of a pod run, as far as is known.
pub(crate) fn runs(pod: &PodRecord) -> bool {
    let mut statuses = pod.detail.iter().flat_map(|detail| detail.statuses.iter());
    statuses.all(|status| status.as_ref().is_some_and(|status| status.started_at.is_some()))
}

/// Whether all containers that the kubelet has told of run what is asked for. That the image is another than before, which is all that
/// STS-4.6 names, is not enough after two updates in a row: it may be the image between.
pub(crate) fn runs_what_is_asked(pod: &PodRecord) -> bool {
    let Some(detail) = &pod.detail else { return true };
    let mut known = detail.containers().filter_map(|(spec, status)| Some((spec, status?)));
    known.all(|(spec, status)| spec.image == status.image)
}

/// A pod that is held up is neither deleted nor changed (STS-3.8 and STS-4.2).
pub(crate) fn unheld(in_place: Option<InPlace>, pod: &PodRecord, is_delete: bool) -> Verdict {
    let Some(hook) = in_place.and_then(|in_place| in_place.hook) else {
        return Ok(());
    };
    let minds = if is_delete {
        hook.before_delete
    } else {
        hook.before_update
    };
    let detail = pod.detail.iter().flat_map(|d| d.finalizers.iter());
    let finalizers: Vec<&str> = detail.map(|f| &**f).collect();
    let is_under_way = !is_delete && state(pod) == "Updating";
    let rule = if is_delete { "STS-3.8 hooks" } else { "STS-4.2 hooks" };
    require(!minds || is_under_way || !hook.holds(pod, &finalizers), rule, || {
        let what = if is_delete { "deleted" } else { "updated" };
        format!(
            "{} is {what} while its users hold it, in state {}",
            pod.name(),
            state(pod)
        )
    })
}

/// At the end no pod is left on the way (STS-I9).
pub(crate) fn at_rest(server: &Server) -> Result<(), String> {
    for stored in tenants::all(server, Resource::Pods) {
        let Some(Object::Pod(pod)) = &stored.object else {
            continue;
        };
        // One that has ended stays as it is.
        let Some(detail) = pod.detail.as_ref().filter(|_| !pod.is_terminal()) else {
            continue;
        };
        let name = pod.name();
        let value = stored.value();
        if let Some(what) = another_container(server, pod, &value).or_else(|| another_note(server, pod, &value)) {
            return Err(what);
        }
        if let Some(container) = environment::another_environment(&value, true) {
            return Err(format!(
                "container {container} of {name} has not the environment that its metadata asks for"
            ));
        }
        if !has_all_its_resources(pod) {
            return Err(format!("{name} has not the resources that it asks for"));
        }
        if state(pod) != "Normal" {
            return Err(format!("{name} is in state {}", state(pod)));
        }
        if note_in(detail, GRACE_NOTE).is_some() {
            return Err(format!("{name} has a grace period that never ends"));
        }
        for (gate, condition) in [(GATE, &detail.in_place_ready), (HOOK_GATE, &detail.kruise_ready)] {
            if detail.spec.has_gate(gate) && !condition.as_ref().is_some_and(|c| c.is_true) {
                return Err(format!("{name} is kept out of service by {gate}"));
            }
        }
    }
    Ok(())
}

/// Which annotation of its revision's template, or label to which containers may refer, a pod does not have.
fn another_note(server: &Server, pod: &PodRecord, value: &Value) -> Option<String> {
    let revision = server
        .get(Resource::Revisions, &pod.meta.key.sibling(revision_of(pod)?))?
        .value();
    let wanted = &revision["data"]["spec"]["template"]["metadata"];
    let all = |map: &'static str| {
        let entries = wanted[map].as_object().into_iter().flatten();
        entries.map(move |(key, text)| (map, key, text))
    };
    let labels = all("labels").filter(|(_, key, _)| environment::KEYS.contains(&key.as_str()));
    let (map, key, text) = all("annotations")
        .chain(labels)
        .find(|(map, key, text)| value["metadata"][*map][*key] != **text)?;
    Some(format!(
        "{} has not {key}: {text} among the {map} of its revision",
        pod.name()
    ))
}

/// In what a container of a pod is not that of its revision, whatever the pod's label says.
fn another_container(server: &Server, pod: &PodRecord, value: &Value) -> Option<String> {
    let revision = pod.meta.key.sibling(revision_of(pod)?);
    let revision = server.get(Resource::Revisions, &revision)?.value();
    let templates = revision.pointer("/data/spec/template/spec/containers")?.as_array()?;
    for (place, template) in templates.iter().enumerate() {
        let container = &value["spec"]["containers"][place];
        for field in [
            "/image",
            "/resources/requests/cpu",
            "/resources/requests/memory",
            "/resources/limits/memory",
            "/env/0/value",
        ] {
            let (wanted, found) = (template.pointer(field), container.pointer(field));
            if wanted != found {
                let name = pod.name();
                let container = &template["name"];
                return Some(format!(
                    "container {container} of {name} has {field} {found:?}, and its revision {wanted:?}"
                ));
            }
        }
    }
    None
}
