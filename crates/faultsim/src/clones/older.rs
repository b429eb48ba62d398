//! Pods and revisions of a CloneSet as an older manager wrote them: from one moment on, before or in the middle of a rollout, they have the
//! forms in which OpenKruise records the same, and are taken over.
//!
//! By luck of its own: everything else of a seed is the same with and without it.

use super::by_user;
use super::labels::made_as;
use crate::asks::comes;
use crate::run::World;
use crate::schedule::{BUSY_MS, FaultKind, Item, SetPlan, UserAct, Wanted};
use crate::tenants;
use fastrand::Rng;
use flotilla_model::{PodRecord, Resource};
use serde_json::{Value, json};

const REVISION: &str = "controller-revision-hash";
const TEMPLATE: &str = "pod-template-hash";
/// What a set is called, and revisions begin with.
const SET: &str = "web";

/// Which of their forms objects get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Independent draws, not a state.
#[allow(clippy::struct_excessive_bools)]
pub struct Forms {
    /// Of every so many pods one keeps the full name of its revision as label; the others have the hash alone.
    one_full_of: usize,
    /// Pods lack the label with the hash of their template, which older ones did not have.
    no_template_hash: bool,
    /// Notes of updates in place stand under the keys without prefix.
    plain_keys: bool,
    /// Owner references say v1alpha1.
    alpha_owner: bool,
    /// Revisions lack what only Flotilla records.
    bare_revisions: bool,
    /// Notes of updates in place name their revision by its hash alone, as its pods do under gate `CloneSetShortHash`.
    hash_in_notes: bool,
}

/// When that is.
pub(super) fn by_chance(seed: u64, wanted: &Wanted, set: &mut SetPlan) -> Vec<Item> {
    let mut rng = Rng::with_seed(seed ^ 0x001d_e125);
    if !comes(&mut rng, wanted, FaultKind::Older, 5) {
        return Vec::new();
    }
    let mut forms = || Forms {
        one_full_of: rng.usize(1..5),
        no_template_hash: rng.bool(),
        plain_keys: rng.bool(),
        alpha_owner: rng.bool(),
        bare_revisions: rng.bool(),
        hash_in_notes: false,
    };
    let mut both = [forms(), forms()];
    let mut gates = Rng::with_seed(seed ^ 0x5047_4a54);
    for forms in &mut both {
        forms.hash_in_notes = gates.bool();
    }
    if let Some(clones) = &mut set.clones {
        clones.short_hash = gates.bool();
    }
    let mut items = vec![by_user(older(both[0]), rng.u64(3_000..35_000))];
    if rng.u8(0..3) == 0 {
        // Given back, and taken over once more.
        items.push(by_user(older(both[1]), rng.u64(3_000..BUSY_MS)));
    }
    items
}

fn older(forms: Forms) -> UserAct {
    UserAct::Clone(super::Act::Older(forms))
}

/// The full name of the revision that a pod's label names, which may hold the hash alone (CS-12.6); where a webhook of others has changed
/// that, of the one from which the pod was made.
pub(crate) fn revision_of(pod: &PodRecord) -> Option<String> {
    made_as(pod).or_else(|| pod.revision()).map(full)
}

/// The full name for a label of either form.
pub(crate) fn full(label: &str) -> String {
    if label.starts_with(SET) {
        label.to_owned()
    } else {
        format!("{SET}-{label}")
    }
}

/// A note with the hash alone of its revision.
fn with_hash(note: &Value) -> Value {
    let read = note.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let Some(mut read) = read else { return note.clone() };
    let hash = read["revision"].as_str().and_then(|name| name.rsplit_once('-'));
    if let Some(hash) = hash.map(|(_, hash)| json!(hash)) {
        read["revision"] = hash;
    }
    json!(read.to_string())
}

impl Forms {
    /// The metadata of a pod, the nth, that are others than before.
    fn of_pod(self, place: usize, pod: &Value) -> Value {
        let metadata = &pod["metadata"];
        let mut changed = json!({});
        let label = metadata["labels"][REVISION].as_str();
        if let Some((_, hash)) = label.and_then(|label| label.rsplit_once('-'))
            && !place.is_multiple_of(self.one_full_of + 1)
        {
            changed["labels"][REVISION] = json!(hash);
        }
        if self.no_template_hash {
            changed["labels"][TEMPLATE] = Value::Null;
        }
        for key in ["inplace-update-state", "inplace-update-grace"] {
            let prefixed = format!("apps.kruise.io/{key}");
            let Some(note) = metadata["annotations"].get(&prefixed) else {
                continue;
            };
            let note = if self.hash_in_notes {
                with_hash(note)
            } else {
                note.clone()
            };
            if self.plain_keys {
                changed["annotations"][key] = note;
                changed["annotations"][prefixed] = Value::Null;
            } else if self.hash_in_notes {
                changed["annotations"][prefixed] = note;
            }
        }
        let owner = &metadata["ownerReferences"][0];
        if self.alpha_owner && owner["kind"] == "CloneSet" {
            let mut owners = metadata["ownerReferences"].clone();
            owners[0]["apiVersion"] = json!("apps.kruise.io/v1alpha1");
            changed["ownerReferences"] = owners;
        }
        json!({"metadata": changed})
    }
}

impl World {
    /// Objects get older forms.
    pub(super) fn give_older_forms(&mut self, forms: Forms) {
        let all = |world: &World, resource| -> Vec<_> {
            let all = tenants::all(&world.cluster.server, resource);
            let stored = all.filter_map(|s| Some((s.object.as_ref()?.meta().key.clone(), (*s.value()).clone())));
            stored.collect()
        };
        for (place, (key, pod)) in all(self, Resource::Pods).into_iter().enumerate() {
            if pod["metadata"]["deletionTimestamp"].is_null() {
                self.edit(Resource::Pods, &key, &forms.of_pod(place, &pod));
            }
        }
        if !forms.bare_revisions {
            return;
        }
        for (key, revision) in all(self, Resource::Revisions) {
            let annotations = revision["metadata"]["annotations"]
                .as_object()
                .cloned()
                .unwrap_or_default();
            let ours = annotations.keys().filter(|name| name.starts_with("flotilla.rs/"));
            let without: serde_json::Map<String, Value> = ours.map(|name| (name.clone(), Value::Null)).collect();
            self.edit(
                Resource::Revisions,
                &key,
                &json!({"metadata": {"annotations": without}}),
            );
        }
    }
}
