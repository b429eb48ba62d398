//! Which revisions of its template a set has, and which two matter now (STS-1.1).

mod index;

pub(crate) use index::{Index, RevisionIndex};

use crate::shared::adoption;
use flotilla_api::names;
use flotilla_model::decision::{Body, PatchKind};
use flotilla_model::set::ClaimTemplate;
use flotilla_model::template::{Digest, Template, canonical, encoded, payload, revision_hash, revision_name};
use flotilla_model::{
    ClaimSizes, Command, Labels, ObjectKey, OwnerRef, Packed, PodRecord, Reader, Report, Resource, RevisionRecord,
    Selector, SetKind, SetRecord, Uid,
};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Longest value of a label.
const LONGEST_LABEL: usize = 63;
/// How many colliding names are tried in one pass.
const MOST_COLLISIONS: i32 = 64;
/// Kubernetes refuses an object whose annotations hold more bytes than this; our own record is left out rather.
const MOST_ANNOTATION_BYTES: usize = 256 * 1024;
/// So many sizes of the claims of one template are recorded.
const MOST_SIZES: usize = 16;

/// The owner of the revisions, as far as they concern.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// Namespace and name.
    pub key: &'a ObjectKey,
    /// The reference that revisions carry.
    pub reference: &'a OwnerRef,
    /// Resource of the owner.
    pub resource: Resource,
    /// Which revisions Kubernetes' own controllers and OpenKruise would find.
    pub selector: &'a Selector,
    /// The live template.
    pub template: &'a Template,
    /// Digest of its normal form.
    pub digest: Digest,
    /// Annotations of the owner, copied to new revisions.
    pub annotations: &'a Packed,
    /// Claim templates to record beside the template, if there are any.
    pub claim_templates: &'a [ClaimTemplate],
    /// The hash of these, for kinds that record it beside them (CS-12.4).
    pub claim_hash: Option<&'a str>,
    /// `status.currentRevision`.
    pub current: &'a str,
    /// `status.updateRevision`.
    pub updated: &'a str,
    /// `status.collisionCount`.
    pub collision_count: i32,
    /// It was made a moment ago, and may have been of the other group before ([`MOVES_WITHIN`]).
    pub is_young: bool,
}

/// For how long a new set waits for revisions that still name a set of its name in another group: it may have been moved from there, and
/// what we see of revisions may lag behind. After that the other is a set of its own.
pub const MOVES_WITHIN: Duration = Duration::from_secs(60);

/// What is known about an owner's revisions in this pass.
#[derive(Clone, Debug)]
pub struct Revisions {
    /// All that are or may become the owner's, oldest first.
    pub history: Vec<Arc<RevisionRecord>>,
    /// The revision that pods should come to. `None` until it has been created.
    pub update: Option<Arc<RevisionRecord>>,
    /// The revision that pods come from; equals `update` when nothing is being rolled out.
    pub current: Option<Arc<RevisionRecord>>,
    /// The history, by what labels of pods say.
    pub(crate) names: Arc<RevisionIndex>,
    /// Never lower than what the status says.
    pub collision_count: i32,
    /// Those that pods name, and that still name a former incarnation of the owner: what watches tell of revisions may lag behind. From them
    /// its pods were made.
    pub of_former: Vec<Arc<RevisionRecord>>,
    /// These, by what labels of pods say.
    pub(crate) former_names: RevisionIndex,
    /// A revision of the same template that still names a former incarnation of the owner. It is about to be let go, or to be removed:
    /// until then there is no update revision.
    pub leaving: Option<Arc<RevisionRecord>>,
    /// The update revision is a former one, and is yet to be raised above the others.
    pub is_to_rise: bool,
    /// Adoption, renumbering or creation, to be done before anything that needs the update revision.
    pub commands: Vec<Command>,
}

/// Revisions that are the set's, and those that may become so: orphans that match its selector (STS-1.1.5 step 1). Kubernetes asks for
/// that of the set's own as well; but labels are changed by whoever likes, and a second revision of the same template would restart every
/// pod.
pub fn candidates(set: &SetRecord, reader: &dyn Reader) -> Vec<Arc<RevisionRecord>> {
    let own = reader.revisions_of(set.as_owner()).iter();
    let orphans = reader
        .orphan_revisions(&set.meta.key.namespace)
        .iter()
        .filter(|r| !set.is_deleted() && selects(&set.spec.selector, &r.meta.labels));
    own.chain(orphans).cloned().collect()
}

/// Finds the update and the current revision among `candidates` (those of the owner, and orphans that match its selector), and says
/// what has to be written. `labels` are the revisions that pods name which are the owner's or may become so; `named` looks a revision up
/// by name, whoever owns it.
pub fn resolve<'p>(
    owner: Owner<'_>,
    mut candidates: Vec<Arc<RevisionRecord>>,
    labels: impl IntoIterator<Item = &'p str>,
    named: impl Fn(&str) -> Option<Arc<RevisionRecord>>,
) -> Revisions {
    let labels = distinct(labels);
    candidates.retain(|r| r.meta.controller().is_some() || may_be_taken(&owner, r, &labels));
    candidates.sort_by(|a, b| age(a).cmp(&age(b)));
    let orphans = candidates.iter().filter(|r| r.meta.controller().is_none());
    let mut commands: Vec<Command> = orphans
        .map(|r| adoption::adopt(Resource::Revisions, &r.meta, owner.reference, owner.resource))
        .collect();
    let next = candidates.last().map_or(1, |newest| newest.number.saturating_add(1));
    let mut collision_count = owner.collision_count;
    let equal = equal_to(&owner, &candidates, &labels).cloned();
    let names: BTreeSet<&str> = candidates.iter().map(|r| r.name()).collect();
    let worn = labels.iter().filter(|label| !names.contains(*label));
    let of_former = worn.filter_map(|label| named(label));
    let of_former: Vec<_> = of_former.filter(|r| is_of_former(&owner, r)).collect();
    let mut leaving = None;
    let mut is_to_rise = false;
    let update = match equal {
        Some(found) => {
            let is_newest = candidates
                .last()
                .is_some_and(|newest| newest.meta.uid == found.meta.uid);
            // Above the highest number there is none.
            if !is_newest && next > found.number {
                commands.push(renumber(&found, next));
                is_to_rise = true;
            }
            Some(found)
        }
        None => {
            // What pods of a former incarnation name may have another name than we would give it: it was hashed with other defaults.
            let former = of_former.iter().find(|r| r.digest == owner.digest).cloned();
            match former.map_or_else(|| free_name(&owner, collision_count, &named), Name::Leaving) {
                Name::Free { count, name, hash } => {
                    collision_count = count;
                    commands.push(create(&owner, &name, &hash, next));
                }
                Name::Leaving(former) => leaving = Some(former),
            }
            None
        }
    };
    let current = candidates
        .iter()
        .find(|r| r.name() == owner.current)
        .cloned()
        .or_else(|| update.clone());
    Revisions {
        names: Arc::new(RevisionIndex::of(candidates.iter().cloned())),
        history: candidates,
        update,
        current,
        collision_count,
        former_names: RevisionIndex::of(of_former.iter().cloned()),
        of_former,
        leaving,
        is_to_rise,
        commands,
    }
}

/// Each label once.
fn distinct<'p>(labels: impl IntoIterator<Item = &'p str>) -> BTreeSet<&'p str> {
    let (mut found, mut before) = (BTreeSet::new(), None);
    for label in labels {
        // Most pods have the label of the one before.
        if before != Some(label) {
            found.insert(label);
        }
        before = Some(label);
    }
    found
}

/// Whether an orphan that the selector selects is the owner's to adopt: by its name, which is made of the name of its set, or because the
/// owner's pods, or its status, name it. Any other is one that another set with such a selector has left, and will look for when it is made
/// again: without it that set would count a collision, and restart its pods.
fn may_be_taken(owner: &Owner<'_>, orphan: &RevisionRecord, labels: &BTreeSet<&str>) -> bool {
    let name = orphan.name();
    name == revision_name(&owner.key.name, short(name)) || labels.contains(name) || name == owner.current
}

/// The candidate that is equal to the template (STS-1.1.5 steps 2 to 4). Should several be, then those go before the others that pods name,
/// and those that the owner controls before orphans: one that another set with such labels has left is no reason to restart a pod. Nor is one
/// that was adopted with pods that name it: the one to which pods were brought last goes before it.
fn equal_to<'r>(
    owner: &Owner<'_>,
    candidates: &'r [Arc<RevisionRecord>],
    labels: &BTreeSet<&str>,
) -> Option<&'r Arc<RevisionRecord>> {
    let is_equal = |r: &&Arc<RevisionRecord>| r.digest == owner.digest && r.template.is_some();
    let by_pods = Index::of(labels.iter().copied());
    let is_named_by_pods = |r: &RevisionRecord| by_pods.named(&owner.key.name, r.name()).is_some();
    let equal = candidates.iter().filter(is_equal);
    // Of equal keys the last, which is the newest.
    equal.max_by_key(|r| {
        (
            is_named_by_pods(r),
            r.meta.controller().is_some(),
            r.name() == owner.updated,
        )
    })
}

/// Older revisions sort first: by number, then by time, then by name (STS-1.1.4).
fn age(revision: &RevisionRecord) -> (i64, flotilla_model::Timestamp, &str) {
    (revision.number, revision.meta.created, revision.name())
}

/// What there is under the names that a new revision may have.
enum Name {
    /// Nothing under this one.
    Free { count: i32, name: String, hash: String },
    /// A revision of the same template, of a former incarnation of the owner.
    Leaving(Arc<RevisionRecord>),
}

/// The first name that is not taken by another revision. Whoever has it, it is not one that we could use: those are among the
/// candidates already (STS-1.1.5 step 6). One of the same template that names a former incarnation will be an orphan or gone in a
/// moment, since its owner is gone; a second revision beside it would make all pods old, and restart them for nothing.
fn free_name(owner: &Owner<'_>, first: i32, named: impl Fn(&str) -> Option<Arc<RevisionRecord>>) -> Name {
    let text = canonical(&data(owner));
    let mut count = first;
    // What the status counts others may have written: after the last number comes the first.
    let next = |count: i32| count.checked_add(1).unwrap_or(0);
    for _ in 0..MOST_COLLISIONS {
        let name = revision_name(&owner.key.name, &revision_hash(&text, count));
        match named(&name) {
            Some(found) if found.digest == owner.digest && is_of_former(owner, &found) => {
                return Name::Leaving(found);
            }
            Some(_) => count = next(count),
            None => break,
        }
    }
    // Or the last that was looked at: that it is taken the API server says, and the next pass goes on from there.
    let hash = revision_hash(&text, count);
    let name = revision_name(&owner.key.name, &hash);
    Name::Free { count, name, hash }
}

/// Whether a revision names an object of the owner's kind and name, but another incarnation, as its controller. For a young owner the
/// group does not count: a native set may have become an Advanced one, or the other way round.
fn is_of_former(owner: &Owner<'_>, revision: &RevisionRecord) -> bool {
    let reference = owner.reference;
    let group = |o: &OwnerRef| o.api_version.split_once('/').map(|(group, _)| group.to_owned());
    revision.meta.controller().is_some_and(|o| {
        let same_name = o.kind == reference.kind && o.name == reference.name;
        same_name && (owner.is_young || group(o) == group(reference)) && o.uid != reference.uid
    })
}

/// Raises a revision to be the newest. What was decided about pulling its images ahead, when it was the newest before, goes: nodes may
/// have dropped them since (STS-5.5; OpenKruise #1419).
fn renumber(revision: &RevisionRecord, number: i64) -> Command {
    let mut body = json!({"revision": number});
    for label in [names::PRE_DOWNLOAD_CREATED_LABEL, names::PRE_DOWNLOAD_IGNORED_LABEL] {
        if revision.meta.labels.get(label).is_some() {
            body["metadata"]["labels"][label] = Value::Null;
        }
    }
    patch(revision, body)
}

fn patch(revision: &RevisionRecord, body: Value) -> Command {
    Command::Patch {
        resource: Resource::Revisions,
        key: revision.meta.key.clone(),
        uid: revision.meta.uid.clone(),
        subresource: None,
        kind: PatchKind::Merge,
        body,
        resource_version: None,
        guard: None,
        report: Report::Silent,
    }
}

/// Puts labels back without which the managers before and after us would not find a revision of the owner. `None` if they would not with them
/// either: what the selector forbids is somebody's, and stays.
pub fn relabel(owner: &Owner<'_>, revision: &RevisionRecord) -> Option<Command> {
    let has = &revision.meta.labels;
    if revision.meta.controller().is_none() || selects(owner.selector, has) {
        return None;
    }
    let put_back = template_labels(owner);
    let with_them = |key: &str| put_back.get(key).and_then(Value::as_str).or_else(|| has.get(key));
    let helps = owner.selector.matches(with_them);
    helps.then(|| patch(revision, json!({"metadata": {"labels": put_back}})))
}

fn template_labels(owner: &Owner<'_>) -> Value {
    let template = owner.template.tree();
    let labels = template.pointer("/metadata/labels");
    labels.filter(|l| l.is_object()).cloned().unwrap_or_else(|| json!({}))
}

fn create(owner: &Owner<'_>, name: &str, hash: &str, number: i64) -> Command {
    let mut labels = template_labels(owner);
    labels[names::REVISION_HASH_LABEL] = json!(hash);
    let body = json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": name,
            "namespace": &*owner.key.namespace,
            "labels": labels,
            "annotations": annotations(owner),
            "ownerReferences": [owner.reference.to_json()],
        },
        "data": data(owner),
        "revision": number,
    });
    Command::Create {
        resource: Resource::Revisions,
        key: owner.key.sibling(name),
        body: Body::Json(Arc::new(body)),
        exists_is_fine: false,
        guard: None,
        report: Report::Silent,
    }
}

/// What a new revision holds, in the spelling of the Go manager of the owner's kind. The API server gives native kinds that spelling
/// itself; templates of custom resources it stores as they were written.
fn data(owner: &Owner<'_>) -> Value {
    if owner.resource == Resource::NativeSets {
        payload(&owner.template.tree())
    } else {
        payload(&encoded(&owner.template.tree()))
    }
}

/// What the record of claim templates on a revision says.
fn claims_recorded(templates: &[ClaimTemplate]) -> Value {
    templates.iter().map(|t| (*t.body.tree()).clone()).collect()
}

/// Writes anew which claim templates there are while this is the update revision, if that has changed. A revision without a record is left
/// as its author made it.
pub fn refresh_claims(owner: &Owner<'_>, update: &RevisionRecord) -> Option<Command> {
    match owner.resource {
        // Their claim templates do not change.
        Resource::NativeSets => None,
        Resource::AdvancedSets => refresh_with_former(owner, update),
        _ => refresh_with_hash(owner, update),
    }
}

/// For Advanced sets. What the set has no more is marked as former, since its claims are still there. Sizes that the
/// record told of, and tells no more, are noted in the same write: templates may go back to them.
fn refresh_with_former(owner: &Owner<'_>, update: &RevisionRecord) -> Option<Command> {
    let known = update.claim_templates.as_ref()?.tree();
    let known = known.as_array()?;
    let today = owner.claim_templates;
    let mut record: Vec<Value> = today.iter().map(|t| (*t.body.tree()).clone()).collect();
    record.extend(known.iter().filter_map(|k| {
        let name = recorded_name(k)?;
        let is_gone = today.iter().all(|t| *t.name != *name);
        is_gone.then(|| former(name, k.get("spec")))
    }));
    if record.len() == known.len() && record.iter().all(|t| known.contains(t)) {
        return None;
    }
    let text = canonical(&Value::Array(record));
    if text.len() > MOST_ANNOTATION_BYTES / 2 {
        return None;
    }
    let mut annotations = json!({names::CLAIM_TEMPLATES: text});
    let sizes = sizes_to_keep(today, update);
    if !sizes.is_empty() && update.claim_sizes.as_deref() != Some(&sizes) {
        annotations[names::CLAIM_SIZES] = json!(canonical(&json!(sizes)));
    }
    Some(annotate(update, &annotations))
}

/// What is noted of sizes, and those besides that only a record of a claim template tells of which is not that of today any more. The newest
/// 16 of each.
fn sizes_to_keep(today: &[ClaimTemplate], update: &RevisionRecord) -> ClaimSizes {
    let mut sizes = update.claim_sizes.as_deref().cloned().unwrap_or_default();
    for template in today {
        let told = update.sizes_asked(&template.name);
        let replaced = told.filter(|size| Some(*size) != template.requested_bytes);
        let mut list = sizes.remove(&*template.name).unwrap_or_default();
        for size in replaced {
            if !list.contains(&size) {
                list.push(size);
            }
        }
        list.drain(..list.len().saturating_sub(MOST_SIZES));
        if !list.is_empty() {
            sizes.insert(template.name.to_string(), list);
        }
    }
    sizes
}

/// Notes on the update revision what claim templates of an Advanced set ask for `today`, and what its claims still ask for, in bytes by the
/// names of the templates, unless all that is on record: templates may go back to it. Of each template the newest 16 stay. The record
/// of templates may be renewed by the same pass, so that what it tells no more is noted here, too.
pub fn record_sizes(
    today: &[ClaimTemplate],
    update: &RevisionRecord,
    asked: &BTreeMap<&str, BTreeSet<u64>>,
) -> Option<Command> {
    let kept = sizes_to_keep(today, update);
    let mut record = ClaimSizes::new();
    let mut is_new = false;
    for (&name, sizes) in asked {
        // If there are more, then the smallest of all are the ones to go back to.
        let needed: BTreeSet<u64> = sizes.iter().copied().take(MOST_SIZES).collect();
        let mut list = kept.get(name).cloned().unwrap_or_default();
        let of_today = today.iter().find(|t| *t.name == *name).and_then(|t| t.requested_bytes);
        let told = update.sizes_asked(name);
        let known: BTreeSet<u64> = told.filter(|s| list.contains(s) || Some(*s) == of_today).collect();
        list.extend(needed.difference(&known));
        is_new |= !needed.is_subset(&known);
        while list.len() > MOST_SIZES {
            let oldest = list.iter().position(|size| !needed.contains(size));
            list.remove(oldest.unwrap_or(0));
        }
        record.insert(name.to_owned(), list);
    }
    record.retain(|_, list| !list.is_empty());
    let text = || canonical(&json!(record));
    is_new.then(|| annotate(update, &json!({names::CLAIM_SIZES: text()})))
}

/// The name of a recorded claim template.
fn recorded_name(recorded: &Value) -> Option<&str> {
    recorded.pointer("/metadata/name").and_then(Value::as_str)
}

/// What stays recorded of a claim template that its set has no more.
fn former(name: &str, spec: Option<&Value>) -> Value {
    let mut record = json!({"metadata": {"name": name, "annotations": {names::FORMER_CLAIM_TEMPLATE: "true"}}});
    if let Some(spec) = spec {
        record["spec"] = spec.clone();
    }
    record
}

/// For CloneSets, whose record has a hash (CS-12.4 and CS-12.5); what says the same by its hash alone stays.
fn refresh_with_hash(owner: &Owner<'_>, update: &RevisionRecord) -> Option<Command> {
    let (known, hash) = (update.claim_hash.as_deref()?, owner.claim_hash?);
    let record = claims_recorded(owner.claim_templates);
    let is_recorded = update
        .claim_templates
        .as_ref()
        .is_none_or(|known| *known.tree() == record);
    if known == hash && is_recorded {
        return None;
    }
    let mut annotations = json!({names::CLAIM_TEMPLATES_HASH: hash});
    let text = canonical(&record);
    if text.len() <= MOST_ANNOTATION_BYTES / 2 {
        annotations[names::CLAIM_TEMPLATES] = json!(text);
    } else if update.claim_templates.is_some() {
        // Where there is no room for today's, those of before would pass for them.
        annotations[names::CLAIM_TEMPLATES] = Value::Null;
    }
    Some(annotate(update, &annotations))
}

fn annotate(revision: &RevisionRecord, annotations: &Value) -> Command {
    patch(revision, json!({"metadata": {"annotations": annotations}}))
}

/// The owner's annotations, and our record of the claim templates where there is room for it.
fn annotations(owner: &Owner<'_>) -> Value {
    let mut annotations = owner.annotations.tree().as_object().cloned().unwrap_or_else(Map::new);
    if let Some(hash) = owner.claim_hash {
        annotations.insert(names::CLAIM_TEMPLATES_HASH.to_owned(), json!(hash));
    }
    if !owner.claim_templates.is_empty() {
        let record = canonical(&claims_recorded(owner.claim_templates));
        let used: usize = annotations
            .iter()
            .map(|(k, v)| k.len() + v.as_str().map_or(0, str::len))
            .sum();
        if used + record.len() + names::CLAIM_TEMPLATES.len() <= MOST_ANNOTATION_BYTES {
            annotations.insert(names::CLAIM_TEMPLATES.to_owned(), json!(record));
        }
    }
    Value::Object(annotations)
}

/// Deletes the oldest revisions beyond `limit` that neither the set nor any of its pods uses (STS-1.1.8).
pub fn truncate<'a>(
    revisions: &Revisions,
    limit: Option<usize>,
    owner: &Uid,
    in_use: impl Iterator<Item = &'a str>,
) -> Vec<Command> {
    let Some(limit) = limit else { return Vec::new() };
    if revisions.history.len() <= limit {
        return Vec::new();
    }
    let mut live: BTreeSet<&str> = in_use.collect();
    live.extend(revisions.current.iter().chain(&revisions.update).map(|r| r.name()));
    let unused: Vec<_> = revisions
        .history
        .iter()
        .filter(|r| r.meta.is_controlled_by(owner) && !live.contains(r.name()))
        .collect();
    let excess = unused.len().saturating_sub(limit);
    unused.into_iter().take(excess).map(|r| delete(r)).collect()
}

/// Deletes a revision as it was seen: meanwhile the set may have been deleted without it, and another may have adopted it.
fn delete(revision: &RevisionRecord) -> Command {
    Command::Delete {
        resource: Resource::Revisions,
        key: revision.meta.key.clone(),
        uid: revision.meta.uid.clone(),
        resource_version: Some(revision.meta.resource_version),
        report: Report::Silent,
    }
}

/// The part of a revision's name that tells it from others of its set: what stands behind the last dash.
pub fn short(name: &str) -> &str {
    name.rsplit_once('-').map_or(name, |(_, hash)| hash)
}

/// Whether the label of a pod of this set names a revision.
pub fn is_named(set: &str, revision: &RevisionRecord, label: &str) -> bool {
    names_it(set, revision.name(), label)
}

/// Whether the label of a pod of this set names the revision of this name: in full, or by its hash alone (STS-3.6, and CS-12.6).
/// A hash alone is that of a revision with the set's own name: one that was taken over from another set may have the same.
pub fn names_it(set: &str, revision: &str, label: &str) -> bool {
    if revision == label {
        return true;
    }
    let is_hash = |text: &str| !text.contains('-');
    let is_of_set =
        |name: &str, hash: &str| name == revision_name(set, hash) || !fits_into_a_label(name) && short(name) == hash;
    match (is_hash(revision), is_hash(label)) {
        (_, true) if label.is_empty() => false,
        (false, true) => is_of_set(revision, label),
        (true, false) => is_of_set(label, revision),
        (true, true) => false,
        (false, false) => short(revision) == short(label),
    }
}

/// Whether the label of a pod names the revision of this name.
pub fn label_names(pod: &PodRecord, revision: &str) -> bool {
    let set = pod.meta.controller().map_or("", |owner| &*owner.name);
    pod.revision().is_some_and(|label| names_it(set, revision, label))
}

/// Whether a label can have this value, as far as its length goes.
pub fn fits_into_a_label(text: &str) -> bool {
    text.len() <= LONGEST_LABEL
}

/// What the label of a pod of this revision says, and all labels of it that depend on the revision. A name that is too long for a label is
/// cut to its hash in a CloneSet, whose readers accept that; a StatefulSet has no such readers (STS-1.1.9, and CS-6).
pub fn labels(kind: SetKind, revision: &RevisionRecord) -> (String, Value) {
    let name = match kind {
        SetKind::Clone if !fits_into_a_label(revision.name()) => short(revision.name()),
        _ => revision.name(),
    };
    let mut labels = json!({names::REVISION_LABEL: name});
    if kind == SetKind::Clone {
        labels[names::TEMPLATE_HASH_LABEL] = json!(short(name));
    }
    (name.to_owned(), labels)
}

/// Whether labels of a revision satisfy a selector.
pub fn selects(selector: &flotilla_model::Selector, labels: &Labels) -> bool {
    selector.matches(|key| labels.get(key))
}
