//! Containers whose environment refers to metadata of their pod, which users change in the template: the node agent restarts them, out of
//! service (STS-4.1, STS-4.6 and CS-16.7).
//!
//! By luck of its own: everything else of a seed is the same with and without it.

use crate::asks::by_users;
use crate::in_place::GATE;
use crate::run::World;
use crate::schedule::{FaultKind, Item, SetPlan, UserAct, Wanted};
use fastrand::Rng;
use flotilla_model::{PodRecord, SetKind};
use flotilla_sim::containers::agent_report;
use serde_json::{Value, json};

/// By which a simulated node is told that the agent runs there.
const AGENT: &str = "sim.flotilla.rs/agent";
/// What the agent reports.
pub(crate) const REPORT: &str = "apps.kruise.io/runtime-containers-meta";
/// The label and the annotation to which variables refer.
pub(crate) const KEYS: [&str; 2] = ["example.com/role", "example.com/tier"];
const MAPS: [&str; 2] = ["labels", "annotations"];
const VARIABLES: [&str; 2] = ["ROLE", "TIER"];

/// Which containers refer to the label, and which to the annotation, by their places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    refer: [Vec<usize>; 2],
}

/// What users change in one edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Act {
    /// The label, or the annotation.
    values: [Option<u32>; 2],
    /// The image of a container, too.
    image: Option<(usize, u32)>,
}

/// What of a seed sets and users ask for of this, where pods are updated in place.
pub(crate) fn by_chance(seed: u64, wanted: &Wanted, has_webhook: bool, set: &mut SetPlan) -> Vec<Item> {
    let mut rng = Rng::with_seed(seed ^ 0x0e4f_2a3d);
    let comes = wanted.faults.contains(&FaultKind::Environment);
    // Made anew with webhooks or without, it may be another by what they fill in: then no pod can be changed in place.
    let may_be_unlike = has_webhook && set.in_place.is_some_and(|in_place| in_place.only);
    if !comes || set.kind == SetKind::Native || set.in_place.is_none() || may_be_unlike {
        return Vec::new();
    }
    let count = set.more_containers;
    let places = |rng: &mut Rng| (0..=count).filter(|_| rng.bool()).collect::<Vec<_>>();
    let mut refer = [places(&mut rng), places(&mut rng)];
    if refer.iter().all(Vec::is_empty) {
        refer[rng.usize(0..2)].push(rng.usize(0..=count));
    }
    set.environment = Environment { refer };
    let act = |rng: &mut Rng| {
        let value = |rng: &mut Rng| (rng.u8(0..3) > 0).then(|| rng.u32(1..4));
        let values = [value(rng), value(rng)];
        let image = (rng.u8(0..3) == 0).then(|| (rng.usize(0..=count), rng.u32(1..4)));
        UserAct::Environment(Act { values, image })
    };
    let acts: Vec<UserAct> = (0..rng.usize(1..5)).map(|_| act(&mut rng)).collect();
    acts.into_iter().map(|act| by_users(&mut rng, act)).collect()
}

impl Environment {
    /// What a manifest says of it.
    pub(crate) fn complete(&self, set: &mut Value) {
        if *self == Environment::default() {
            return;
        }
        let template = &mut set["spec"]["template"];
        template["metadata"]["annotations"][AGENT] = json!("true");
        for which in 0..2 {
            template["metadata"][MAPS[which]][KEYS[which]] = json!("v1");
            for place in &self.refer[which] {
                let path = format!("metadata.{}['{}']", MAPS[which], KEYS[which]);
                let entry = json!({"name": VARIABLES[which], "valueFrom": {"fieldRef": {"fieldPath": path}}});
                let env = &mut template["spec"]["containers"][*place]["env"];
                match env.as_array_mut() {
                    Some(entries) => entries.push(entry),
                    None => *env = json!([entry]),
                }
            }
        }
    }
}

fn refers(entry: &Value) -> bool {
    entry["valueFrom"]["fieldRef"].is_object()
}

/// A container gets this variable as the only one with a value of its own; what refers to metadata stays.
pub(crate) fn set_variable(container: &mut Value, name: &str, value: &str) {
    let kept = container["env"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|entry| refers(entry));
    let entries: Vec<Value> = [json!({"name": name, "value": value})]
        .into_iter()
        .chain(kept.cloned())
        .collect();
    container["env"] = json!(entries);
}

/// A container has no variable of this name any more.
pub(crate) fn drop_variable(container: &mut Value, name: &str) {
    let Some(fields) = container.as_object_mut() else {
        return;
    };
    if let Some(entries) = fields.get_mut("env").and_then(Value::as_array_mut) {
        entries.retain(|entry| entry["name"] != name);
        if entries.is_empty() {
            fields.remove("env");
        }
    }
}

/// The labels and annotations to which containers of a pod refer, with their values.
fn referred(pod: &PodRecord) -> Vec<Option<String>> {
    let detail = pod.detail.iter();
    let entries = detail.flat_map(|d| {
        d.spec
            .containers
            .iter()
            .flat_map(move |c| c.metadata_env.iter().map(move |e| (d, e)))
    });
    let value = |(detail, entry): (
        &std::sync::Arc<flotilla_model::records::PodDetail>,
        &flotilla_model::records::MetadataEnv,
    )| {
        let value = if entry.is_label {
            pod.label(&entry.key)
        } else {
            detail.annotations.get(&entry.key)
        };
        value.map(str::to_owned)
    };
    entries.map(value).collect()
}

/// Whether the environment that the metadata of a pod asks for is another after a change.
pub(crate) fn differs(before: &PodRecord, after: &PodRecord) -> bool {
    referred(before) != referred(after)
}

/// Whether a JSON patch of a pod changes metadata to which a container refers, or notes that it is to come.
pub(crate) fn changes_environment(pod: &PodRecord, body: &Value) -> bool {
    let containers = pod.detail.iter().flat_map(|detail| &detail.spec.containers);
    let mut entries = containers.flat_map(|container| &container.metadata_env);
    let is_touched = entries.any(|entry| {
        let map = if entry.is_label { "labels" } else { "annotations" };
        let path = format!("/metadata/{map}/{}", entry.key.replace('~', "~0").replace('/', "~1"));
        let mut operations = body.as_array().into_iter().flatten();
        operations.any(|operation| operation["op"] != "test" && operation["path"] == *path)
    });
    let note = crate::in_place::noted(body);
    is_touched || note.is_some_and(|note| note.contains("nextContainerRefMetadata"))
}

/// Whether a pod without the gate cannot come from one template to another in place, since variables refer to metadata that is set or
/// changed (CS-16.7).
pub(crate) fn needs_the_gate(pod: &PodRecord, from: &Value, to: &Value) -> bool {
    let lacks_gate = pod.detail.as_ref().is_none_or(|detail| !detail.spec.has_gate(GATE));
    let containers = to["spec"]["containers"].as_array().into_iter().flatten();
    let entries = containers.filter_map(|container| container["env"].as_array()).flatten();
    let mut paths = entries.filter_map(|entry| entry["valueFrom"]["fieldRef"]["fieldPath"].as_str());
    lacks_gate
        && paths.any(|path| {
            (0..2).any(|which| {
                let value = |template: &Value| template["metadata"][MAPS[which]][KEYS[which]].clone();
                path == format!("metadata.{}['{}']", MAPS[which], KEYS[which]) && value(from) != value(to)
            })
        })
}

/// A container of a pod of which the node agent knows that it has not the environment that the pod's metadata asks for, or of which it
/// knows nothing, if that counts.
pub(crate) fn another_environment(pod: &Value, is_all_known: bool) -> Option<String> {
    let annotations = &pod["metadata"]["annotations"];
    if annotations[AGENT] != "true" {
        return None;
    }
    let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let known = annotations[REPORT].as_str().map(parse).unwrap_or_default();
    // As it would report had it started all of them now.
    let mut anew = pod.clone();
    if let Some(annotations) = anew["metadata"]["annotations"].as_object_mut() {
        annotations.remove(REPORT);
    }
    let wanted = parse(&agent_report(&anew, &pod["status"]));
    let wanted = wanted["containers"].as_array().cloned().unwrap_or_default();
    let hash = |entry: &Value| entry["hashes"]["extractedEnvFromMetadataHash"].clone();
    let is_other = |wanted: &&Value| {
        let mut entries = known["containers"].as_array().into_iter().flatten();
        let entry = entries.find(|entry| entry["containerID"] == wanted["containerID"]);
        entry.map_or(is_all_known, |entry| hash(entry) != hash(wanted))
    };
    wanted
        .iter()
        .find(is_other)
        .map(|container| container["name"].to_string())
}

impl World {
    /// Users change metadata to which containers refer.
    pub(crate) fn change_environment(&mut self, act: Act) {
        let mut metadata = json!({});
        for which in 0..2 {
            if let Some(number) = act.values[which] {
                metadata[MAPS[which]][KEYS[which]] = json!(format!("v{number}"));
            }
        }
        let mut template = json!({"metadata": metadata});
        if let Some((place, number)) = act.image {
            let image = json!(format!("app:v{number}"));
            template["spec"]["containers"] =
                json!(self.changed_container(place, |container| container["image"] = image.clone()));
        }
        let set = self.schedule.set.kind.resource();
        self.edit(set, &Self::set_key(), &json!({"spec": {"template": template}}));
    }
}
