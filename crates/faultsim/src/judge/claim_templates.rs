//! Claim templates that come and go: with which claims pods are made, what is recorded of them, and what is left (STS-3.9, STS-8.6, CS-12.5 and
//! CS-15.6, R-11).

use super::view::Sight;
use super::{Places, Verdict, require};
use crate::claim_templates::{
    NAMES, bodies_in_record, bodies_of_set, has_others, in_record, of_pod, of_revision, of_set,
};
use flotilla_model::set::{PodUpdatePolicy, UpdateKind};
use flotilla_model::{Body, Command, Decision, PodDraft, PodRecord, Resource, RevisionRecord, SetKind, SetRecord};
use flotilla_sim::server::Server;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const RULE: &str = "R-11";

impl Sight<'_> {
    /// The revision that a label of a pod names, in full or by its hash alone.
    fn revision_named(&self, label: &str) -> Option<&Arc<RevisionRecord>> {
        let full = crate::clones::older::full(label);
        self.reader.revision(&self.set.meta.key.sibling(full.as_str()))
    }

    /// The claim templates of the revision of which a new pod is, and what its label says.
    fn templates_for<'d>(&self, draft: &'d PodDraft) -> (BTreeMap<String, Value>, &'d str) {
        let label = draft.labels.iter().find(|(key, _)| *key == "controller-revision-hash");
        let label = label.map_or("", |(_, label)| label);
        let revision = self.revision_named(label).map(|r| &**r);
        // Native sets cannot change theirs, and keep no record.
        let templates = match self.set.kind {
            SetKind::Native => bodies_of_set(self.set),
            SetKind::Advanced | SetKind::Clone => of_revision(revision, self.set),
        };
        (templates, label)
    }

    /// Claims that are made for new pods ask for what those of their revision's time do, whole.
    pub(crate) fn claims_are_of_their_time(&self, decision: &Decision) -> Verdict {
        let mut expected = BTreeMap::new();
        for scoped in decision.commands() {
            let Command::Create {
                body: Body::Pod(draft), ..
            } = &scoped.command
            else {
                continue;
            };
            let (mut templates, label) = self.templates_for(draft);
            for (volume, claim) in &draft.claims {
                let asked = templates
                    .remove(&**volume)
                    .map(|template| (template["spec"].clone(), label));
                expected.extend(asked.map(|asked| (claim.as_str(), asked)));
            }
        }
        for scoped in decision.commands() {
            let Command::Create {
                resource: Resource::Claims,
                key,
                body: Body::Json(body),
                ..
            } = &scoped.command
            else {
                continue;
            };
            let wrong = expected
                .get(key.name.as_str())
                .filter(|(spec, _)| *spec != body["spec"]);
            require(wrong.is_none(), RULE, || {
                let (spec, label) = wrong.cloned().unwrap_or_default();
                format!("{} is made as {}, and {label} has {spec}", key.name, body["spec"])
            })?;
        }
        Ok(())
    }

    /// A new pod mounts the claims of its revision's time.
    pub(crate) fn mounts_its_claims(&self, draft: &PodDraft) -> Verdict {
        let (templates, label) = self.templates_for(draft);
        let expected: BTreeSet<String> = templates.into_keys().collect();
        let mounted: BTreeSet<String> = draft.claims.iter().map(|(volume, _)| volume.to_string()).collect();
        let is_named = |(volume, claim): &(Arc<str>, String)| *claim == format!("{volume}-{}", draft.key.name);
        let is_right = mounted == expected && draft.claims.iter().all(is_named);
        require(is_right, RULE, || {
            format!(
                "{} is made at {label} with claims {:?}, and those of its revision are {expected:?}",
                draft.key.name, draft.claims
            )
        })
    }

    /// What is recorded on a revision are the templates of the set, and only on that of its template.
    pub(crate) fn records_what_there_is(&self, decision: &Decision) -> Verdict {
        let path = "/metadata/annotations/flotilla.rs~1claim-templates";
        for scoped in decision.commands() {
            let (key, text) = match &scoped.command {
                Command::Create {
                    resource: Resource::Revisions,
                    key,
                    body: Body::Json(body),
                    ..
                } => (key, body.pointer(path)),
                Command::Patch {
                    resource: Resource::Revisions,
                    key,
                    body,
                    ..
                } => (key, body.pointer(path)),
                _ => continue,
            };
            let Some(record) = text.and_then(Value::as_str) else {
                continue;
            };
            let record: Value = serde_json::from_str(record).unwrap_or_default();
            let difference = difference(&record, self.set);
            require(difference.is_none(), RULE, || {
                format!("{} records {}", key.name, difference.unwrap_or_default())
            })?;
            let is_of_template = |r: &Arc<RevisionRecord>| r.digest == self.set.spec.template_digest;
            require(self.reader.revision(key).is_none_or(is_of_template), RULE, || {
                format!("what is recorded on {}, which is old, changes", key.name)
            })?;
        }
        Ok(())
    }

    /// Whether, by the hashes that are recorded, a pod of a CloneSet is of other claim templates than its target, and its users have opted in to
    /// making it again for that (CS-15.6).
    pub(crate) fn is_made_again_for_claims(&self, pod: &PodRecord, target: Option<&str>) -> bool {
        let spec = &self.set.spec;
        let is_on = spec
            .clones
            .as_ref()
            .is_some_and(|c| c.switches.recreate_on_claim_change);
        let hash = |name: &str| self.revision_named(name).and_then(|r| r.claim_hash.clone());
        let own = pod.revision().and_then(hash);
        let differs = own
            .zip(target.and_then(hash))
            .is_some_and(|(own, target)| own != target);
        is_on && differs && spec.pod_update_policy() != PodUpdatePolicy::InPlaceOnly
    }
}

/// How a record differs from the templates of today, if it does: in their names, or in anything that one says.
fn difference(record: &Value, set: &SetRecord) -> Option<String> {
    let (there, today) = (bodies_in_record(record), bodies_of_set(set));
    let names = |templates: &BTreeMap<String, Value>| templates.keys().cloned().collect::<BTreeSet<_>>();
    if names(&there) != names(&today) {
        return Some(format!(
            "claim templates {:?}, and the set has {:?}",
            names(&there),
            names(&today)
        ));
    }
    let mut pairs = there.iter().zip(today.values());
    let ((name, there), today) = pairs.find(|((_, there), today)| there != today)?;
    let (there, today) = (&there["spec"], &today["spec"]);
    Some(format!("of claim template {name} {there}, and the set has {today}"))
}

/// In the end the newest revision records the templates of today, whole, if it has a record; and where it has but a hash, which is empty for none
/// (CS-12.4), that says whether there are any.
pub(crate) fn recorded(updated: &RevisionRecord, set: &SetRecord) -> Result<(), String> {
    let has_none = set.spec.claim_templates.is_empty();
    let says_none = updated.claim_hash.as_deref().map(str::is_empty);
    if says_none.is_some_and(|says_none| says_none != has_none) {
        return Err(format!(
            "the hash that {} records is not that of the claim templates",
            updated.name()
        ));
    }
    let Some(record) = updated
        .claim_templates
        .as_deref()
        .filter(|_| set.kind != SetKind::Native)
    else {
        return Ok(());
    };
    match difference(&record.tree(), set) {
        Some(difference) => Err(format!("{} records {difference}", updated.name())),
        None => Ok(()),
    }
}

/// In the end pods that are to be updated have the claims of today's templates (STS-8.6).
pub(super) fn followed(
    set: &SetRecord,
    pods: &[&Arc<PodRecord>],
    is_target: impl Fn(i64) -> bool,
) -> Result<(), String> {
    if set.spec.update == UpdateKind::OnDelete {
        return Ok(());
    }
    let named = |ordinal: &i64| {
        let name = format!("{}-{ordinal}", set.name());
        pods.iter().find(|pod| pod.name() == name)
    };
    let targets = Places::of(set).iter().filter(|ordinal| is_target(*ordinal));
    match targets
        .filter_map(|ordinal| named(&ordinal))
        .find(|pod| has_others(pod, set))
    {
        Some(pod) => Err(format!(
            "{} has claims of {:?}, and not of today's templates",
            pod.name(),
            of_pod(pod)
        )),
        None => Ok(()),
    }
}

/// In the end the status names the claims of templates that the set has no more, as far as a revision records them, and that no pod mounts
/// (STS-8.6): they are there.
pub(super) fn left_over(server: &Server, set: &SetRecord, revisions: &[&Arc<RevisionRecord>]) -> Result<(), String> {
    let own = revisions.iter().filter(|r| r.meta.is_controlled_by(&set.meta.uid));
    let records = own.filter_map(|r| r.claim_templates.as_deref());
    let today = of_set(set);
    let known: BTreeSet<String> = records.flat_map(|record| in_record(&record.tree())).flatten().collect();
    let former = known
        .into_iter()
        .filter(|name| !today.contains(name) && NAMES.contains(&name.as_str()));
    let mut expected = BTreeSet::new();
    for template in former {
        for ordinal in Places::of(set).iter() {
            let pod = set.meta.key.sibling(format!("{}-{ordinal}", set.name()));
            let claim = format!("{template}-{}", pod.name);
            let pod = super::truth::pod_of(server.get(Resource::Pods, &pod));
            let is_there = server
                .get(Resource::Claims, &set.meta.key.sibling(claim.as_str()))
                .is_some();
            if is_there && !pod.is_some_and(|pod| pod.mounts(&template, &claim)) {
                expected.insert(claim);
            }
        }
    }
    let stored = server.get(set.kind.resource(), &set.meta.key);
    let said = stored.map_or(Value::Null, |s| s.value()["status"]["unusedVolumeClaims"].clone());
    let said = said.as_array().into_iter().flatten().filter_map(Value::as_str);
    let said: BTreeSet<String> = said.map(str::to_owned).collect();
    if said == expected || set.kind == SetKind::Native {
        return Ok(());
    }
    Err(format!(
        "the status says that nobody uses {said:?}, and these are {expected:?}"
    ))
}
