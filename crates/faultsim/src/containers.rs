//! Pods of several containers that are updated in place, of both kinds: users edit images, resources and environment of one or of several
//! of them at once.
//!
//! By luck of its own: everything else of a seed is the same with and without it.

use crate::asks::{by_users, comes};
use crate::clones::older::{full, revision_of};
use crate::environment::set_variable;
use crate::in_place::{InPlace, new_revision, noted, places_of_new_images, runs};
use crate::judge::{Verdict, require};
use crate::run::World;
use crate::schedule::{FaultKind, Item, SetPlan, UserAct, Wanted, What};
use fastrand::Rng;
use flotilla_model::records::{ContainerSpec, ContainerStatus};
use flotilla_model::{PodRecord, SetKind};
use serde_json::{Value, json};

/// Containers beside the first.
const NAMES: [&str; 2] = ["side", "log"];

/// What users change of containers in one edit: which, and what.
pub type Act = Vec<(usize, Edit)>;

/// What is changed of one container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Another image; `good` says whether it can be pulled.
    Image(u32, bool),
    /// Another request for cpu, in thousandths of a core.
    Cpu(u32),
    /// Another limit of memory, in mebibytes; of the first container, which has none, as much cpu.
    Memory(u32),
    /// Another variable of the environment, for which pods have to be made again.
    Env(u32),
}

impl Edit {
    fn by_chance(rng: &mut Rng, in_place: InPlace) -> Self {
        match rng.u8(0..10) {
            0..=3 => Edit::Image(rng.u32(1..4), rng.u8(0..6) > 0),
            4 | 5 => Edit::Cpu(100 * rng.u32(1..4)),
            // Under InPlaceOnly no user asks for what cannot be done.
            9 if !in_place.only => Edit::Env(rng.u32(1..3)),
            _ => Edit::Memory(128 * rng.u32(1..5)),
        }
    }

    fn apply(self, container: &mut Value) {
        match self {
            Edit::Image(number, good) => {
                container["image"] = json!(format!("{}:v{number}", if good { "app" } else { "bad" }));
            }
            Edit::Memory(mebibytes) if container["resources"]["limits"].is_object() => {
                container["resources"]["limits"]["memory"] = json!(format!("{mebibytes}Mi"));
            }
            Edit::Cpu(millis) | Edit::Memory(millis) => {
                container["resources"]["requests"]["cpu"] = json!(format!("{millis}m"));
            }
            Edit::Env(number) => set_variable(container, "NUMBER", &number.to_string()),
        }
    }
}

/// How many containers pods have beside the first, and what users do to them.
pub(crate) fn by_chance(seed: u64, wanted: &Wanted, has_webhook: bool, set: &mut SetPlan) -> Vec<Item> {
    let mut rng = Rng::with_seed(seed ^ 0xc047_a14e);
    let is_asked_for = [FaultKind::Containers, FaultKind::Resizes]
        .iter()
        .any(|kind| wanted.faults.contains(kind));
    let comes = comes(&mut rng, wanted, FaultKind::Containers, 3);
    if !(comes || is_asked_for) || set.kind == SetKind::Native {
        return Vec::new();
    }
    if is_asked_for && set.in_place.is_none() {
        let plan = match set.kind {
            SetKind::Clone => InPlace::of_clones(&mut rng),
            SetKind::Native | SetKind::Advanced => InPlace::by_chance(&mut rng),
        };
        (set.in_place, set.on_delete) = (Some(plan), false);
        set.clones = set.clones.take().map(|clones| clones.fitting(plan, &mut rng));
    }
    let Some(in_place) = set.in_place else {
        return Vec::new();
    };
    set.more_containers = rng.usize(1..=NAMES.len());
    // Made anew with webhooks or without, it may be another by what they fill in, and resources are not filled in alike.
    let may_be_unlike = has_webhook && in_place.only;
    let count = set.more_containers;
    let act = |rng: &mut Rng| {
        let edits = (0..rng.usize(1..4)).map(|_| (rng.usize(0..=count), Edit::by_chance(rng, in_place)));
        edits.collect::<Act>()
    };
    let acts: Vec<Act> = (0..rng.usize(1..6)).map(|_| act(&mut rng)).collect();
    let acts = acts.into_iter().filter(|_| !may_be_unlike);
    acts.map(|act| by_users(&mut rng, UserAct::Containers(act))).collect()
}

/// An edit of one container that can be done in place.
pub(crate) fn edit_by_chance(rng: &mut Rng, count: usize) -> (usize, Edit) {
    let edit = match rng.u8(0..3) {
        0 => Edit::Image(rng.u32(1..4), true),
        1 => Edit::Memory(128 * rng.u32(1..5)),
        _ => Edit::Cpu(100 * rng.u32(1..4)),
    };
    (rng.usize(0..=count), edit)
}

/// What the nth container is called.
pub(crate) fn name_of(place: usize) -> &'static str {
    place.checked_sub(1).map_or("main", |place| NAMES[place])
}

/// What a manifest says of them.
pub(crate) fn complete(count: usize, set: &mut Value) {
    let Some(containers) = set["spec"]["template"]["spec"]["containers"].as_array_mut() else {
        return;
    };
    for name in &NAMES[..count] {
        let resources = json!({"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}});
        containers.push(json!({"name": name, "image": "app:v1", "resources": resources}));
    }
}

/// Whether an act asks for an image that cannot be pulled.
pub(crate) fn is_bad(what: &What) -> bool {
    let is_bad = |(_, edit): &(usize, Edit)| matches!(edit, Edit::Image(_, false));
    matches!(what, What::User(UserAct::Containers(edits)) if edits.iter().any(is_bad))
}

impl World {
    /// The containers of the template with the first as somebody changes it, and everything else as it is.
    pub(crate) fn changed_containers(&self, change: impl Fn(&mut Value)) -> Vec<Value> {
        self.changed_container(0, change)
    }

    /// The same with the one in this place, if there is one.
    pub(crate) fn changed_container(&self, place: usize, change: impl Fn(&mut Value)) -> Vec<Value> {
        let mut containers = self.containers_of_template();
        containers.get_mut(place).into_iter().for_each(change);
        containers
    }

    fn containers_of_template(&self) -> Vec<Value> {
        let set = self
            .cluster
            .server
            .get(self.schedule.set.kind.resource(), &Self::set_key());
        let known = set.and_then(|s| s.value().pointer("/spec/template/spec/containers").cloned());
        match known {
            Some(Value::Array(containers)) if !containers.is_empty() => containers,
            _ => vec![json!({"name": "main", "image": "app:v1"})],
        }
    }

    /// Users edit containers.
    pub(crate) fn edit_containers(&mut self, edits: &Act) {
        let mut containers = self.containers_of_template();
        for (place, edit) in edits {
            if let Some(container) = containers.get_mut(*place) {
                edit.apply(container);
            }
        }
        self.store_containers(&containers);
    }

    /// At the end users ask for images that there are.
    pub(crate) fn users_mend_containers(&mut self) {
        let mut containers = self.containers_of_template();
        let is_broken = |container: &Value| {
            container["image"]
                .as_str()
                .is_some_and(|image| image.starts_with("bad:"))
        };
        if containers.iter().any(is_broken) {
            for container in containers.iter_mut().filter(|container| is_broken(container)) {
                container["image"] = json!("app:v9");
            }
            self.store_containers(&containers);
        }
    }

    pub(crate) fn store_containers(&mut self, containers: &[Value]) {
        let template = json!({"spec": {"containers": containers}});
        let set = self.schedule.set.kind.resource();
        self.edit(set, &Self::set_key(), &json!({"spec": {"template": template}}));
    }
}

/// Whether the kubelet has given a container the resources that its pod asks for. What does not run gets them when it starts.
fn has_its_resources((spec, status): (&ContainerSpec, Option<&ContainerStatus>)) -> bool {
    let running = status.filter(|status| status.started_at.is_some());
    let given = running.and_then(|status| status.resources.as_ref());
    given.is_none_or(|given| *given == spec.resources)
}

/// Whether the kubelet has given all containers of a pod the resources that they ask for.
pub(crate) fn has_all_its_resources(pod: &PodRecord) -> bool {
    let mut containers = pod.detail.iter().flat_map(|detail| detail.containers());
    containers.all(has_its_resources)
}

/// A patch changes images only after the resources that the same update brings, and only of containers that were seen with all resources
/// that they are to have, whatever update asked for these. What others wait for since an update before does not hold it up, and
/// a container that does not run restarts from nothing, and may need the image to run at all.
pub(crate) fn comes_after_resources(pod: &PodRecord, body: &Value) -> Verdict {
    let mut changed = places_of_new_images(body);
    let statuses = pod.detail.iter().flat_map(|detail| detail.statuses.iter());
    let running: Vec<bool> = statuses
        .map(|status| status.as_ref().is_some_and(|s| s.started_at.is_some()))
        .collect();
    changed.retain(|place| running.get(*place) == Some(&true));
    let asks_for_more = noted(body).is_some_and(|note| note.contains("nextContainerResources"));
    let is_same_update = new_revision(body).is_none_or(|revision| revision_of(pod) == Some(full(revision)));
    let containers = pod.detail.iter().flat_map(|detail| detail.containers()).enumerate();
    let mut awaited = containers.filter(|(place, _)| is_same_update || changed.contains(place));
    let is_early = !awaited.all(|(_, container)| has_its_resources(container)) || asks_for_more && runs(pod);
    require(changed.is_empty() || !is_early, "R-37", || {
        format!(
            "the images of {} are changed before it has its new resources",
            pod.name()
        )
    })
}
