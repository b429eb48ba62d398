//! Labels and annotations of claim templates that users change, and that reach the claims that are there where a switch says so (STS-3.9).
//!
//! By luck of its own: everything else of a seed is the same with and without it.

use crate::asks::{self, by_users};
use crate::judge::view::Sight;
use crate::judge::{Places, Verdict, require};
use crate::run::World;
use crate::schedule::{FaultKind, Item, SetPlan, UserAct, Wanted};
use crate::switches::Switch;
use fastrand::Rng;
use flotilla_model::set::ClaimTemplate;
use flotilla_model::{Command, Decision, Resource, SetKind, SetRecord};
use flotilla_sim::server::{Server, Stored};
use serde_json::{Value, json};

const RULE: &str = "STS-3.9 labels of claims";
/// What users put on claim templates.
const LABEL: &str = "example.com/disk";
const NOTE: &str = "example.com/disk-note";

/// Another label, or another annotation, of all claim templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Act {
    label: Option<u32>,
    note: Option<u32>,
}

/// What of a seed sets and users ask for of this, where there are claims. Those that grow have rules of their own.
pub(crate) fn by_chance(seed: u64, wanted: &Wanted, set: &mut SetPlan) -> Vec<Item> {
    let mut rng = Rng::with_seed(seed ^ 0x01ab_e15a);
    let comes = wanted.faults.contains(&FaultKind::ClaimLabels);
    set.claims |= wanted.faults.contains(&FaultKind::ClaimLabels);
    if !comes || set.kind != SetKind::Advanced || !set.claims || set.storage.is_some() {
        return Vec::new();
    }
    let mut items = asks::with_switch(&mut rng, Switch::ClaimLabels, 3, set);
    for _ in 0..rng.usize(1..5) {
        let value = |rng: &mut Rng| rng.bool().then(|| rng.u32(1..4));
        let act = Act {
            label: value(&mut rng),
            note: value(&mut rng),
        };
        items.push(by_users(&mut rng, UserAct::ClaimLabels(act)));
    }
    items
}

/// The labels, or the annotations, of a claim template.
fn wanted<'t>(template: &'t Value, map: &str) -> impl Iterator<Item = (&'t String, &'t Value)> {
    template["metadata"][map].as_object().into_iter().flatten()
}

fn name_of(template: &ClaimTemplate, set: &SetRecord, ordinal: i64) -> String {
    format!("{}-{}-{ordinal}", template.name, set.name())
}

impl World {
    /// Users change labels and annotations of claim templates.
    pub(crate) fn label_claim_templates(&mut self, act: Act) {
        let resource = self.schedule.set.kind.resource();
        let set = self.cluster.server.get(resource, &Self::set_key());
        let Some(set) = set.map(Stored::value) else { return };
        let templates = set.pointer("/spec/volumeClaimTemplates").and_then(Value::as_array);
        let mut templates = templates.cloned().unwrap_or_default();
        for template in &mut templates {
            if let Some(number) = act.label {
                template["metadata"]["labels"][LABEL] = json!(format!("v{number}"));
            }
            if let Some(number) = act.note {
                template["metadata"]["annotations"][NOTE] = json!(format!("v{number}"));
            }
        }
        self.edit(
            resource,
            &Self::set_key(),
            &json!({"spec": {"volumeClaimTemplates": templates}}),
        );
    }
}

impl Sight<'_> {
    /// What users have on claim templates is written on a claim that is there only where the switch says so, and as its template says it.
    pub(crate) fn labels_claims_where_asked(&self, decision: &Decision) -> Verdict {
        for scoped in decision.commands() {
            let Command::Patch {
                resource: Resource::Claims,
                key,
                body,
                ..
            } = &scoped.command
            else {
                continue;
            };
            let mut templates = self.set.spec.claim_templates.iter();
            let template = templates.find(|t| key.name.starts_with(&format!("{}-{}-", t.name, self.set.name())));
            let tree = template.map(|t| t.body.tree());
            for (map, own) in [("labels", LABEL), ("annotations", NOTE)] {
                let Some(written) = body["metadata"][map].get(own) else {
                    continue;
                };
                let fits = tree.as_ref().is_some_and(|tree| tree["metadata"][map][own] == *written);
                require(Switch::ClaimLabels.is_on(self.set) && fits, RULE, || {
                    format!("{} gets {own}: {written}, and should not", key.name)
                })?;
            }
        }
        Ok(())
    }
}

/// At the end claims of pods that are wanted carry what their templates say, where the switch says so.
pub(crate) fn have_arrived(server: &Server, set: &SetRecord) -> Result<(), String> {
    if !Switch::ClaimLabels.is_on(set) {
        return Ok(());
    }
    for template in &set.spec.claim_templates {
        let tree = template.body.tree();
        for ordinal in Places::of(set).iter() {
            let name = name_of(template, set, ordinal);
            let Some(claim) = server
                .get(Resource::Claims, &set.meta.key.sibling(name.as_str()))
                .map(Stored::value)
            else {
                continue;
            };
            if !claim["metadata"]["deletionTimestamp"].is_null() {
                continue;
            }
            for map in ["labels", "annotations"] {
                let missing = wanted(&tree, map).find(|(key, value)| claim["metadata"][map][*key] != **value);
                if let Some((key, value)) = missing {
                    return Err(format!("claim {name} has not {key}: {value} among its {map}"));
                }
            }
        }
    }
    Ok(())
}
