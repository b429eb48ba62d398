//! Claims of pods: what they are named, what they are made of, who owns them (STS-1.4).

mod templates;

pub(crate) use templates::Templates;

use crate::shared::{inplace, revision};
use flotilla_api::names;
use flotilla_model::decision::{Body, PatchKind};
use flotilla_model::records::Phase;
use flotilla_model::set::ClaimTemplate;
use flotilla_model::{
    ClaimRecord, Command, Labels, ObjectKey, OwnerRef, PodRecord, Report, Resource, RevisionRecord, Selector, Uid,
    WaitCause, containers_meta,
};
use serde_json::{Value, json};
use std::sync::Arc;

/// The name of the claim that a template gives a pod.
pub fn claim_name(template: &ClaimTemplate, pod: &str) -> String {
    format!("{}-{pod}", template.name)
}

/// What the label of a new pod says of how it is made: the last part of its revision's name, and the names of its claim templates.
pub fn made_as(revision: &str, templates: &[ClaimTemplate]) -> String {
    const MOST: usize = 63;
    let hash = revision.rsplit_once('-').map_or(revision, |(_, hash)| hash);
    let claims = in_words(templates);
    let text = format!("{hash}{claims}");
    if text.len() <= MOST {
        return text;
    }
    format!("{hash}_{}", containers_meta::hash_of(&claims))
}

/// Names of claim templates, each behind an underscore, which no name has; their order does not matter.
pub fn in_words(templates: &[ClaimTemplate]) -> String {
    let mut names: Vec<&str> = templates.iter().map(|t| &*t.name).collect();
    names.sort_unstable();
    names.iter().flat_map(|name| ["_", *name]).collect()
}

/// The hash of the revision that a pod was made from, by its label, if it has not been updated in place since.
pub fn made_from(pod: &PodRecord) -> Option<&str> {
    let label = pod.label(names::MADE_AS_LABEL).filter(|_| !was_updated_in_place(pod))?;
    label.split('_').next()
}

/// Whether a pod was made from the revision of this name, by its label, and has not been updated in place since.
pub fn was_made_from(pod: &PodRecord, revision: &str) -> bool {
    made_from(pod) == Some(revision::short(revision))
}

/// The same, also of pods that do not say from what they were made: somebody else made them.
pub fn may_be_made_from(pod: &PodRecord, revision: &str) -> bool {
    let says_nothing = pod.label(names::MADE_AS_LABEL).is_none() && !was_updated_in_place(pod);
    says_nothing || was_made_from(pod, revision)
}

fn was_updated_in_place(pod: &PodRecord) -> bool {
    let annotation = |detail| inplace::annotation(detail, names::IN_PLACE_STATE, names::IN_PLACE_STATE_LEGACY);
    pod.detail.as_deref().is_some_and(|detail| annotation(detail).is_some())
}

/// Whether a pod was made with the claims of these templates, by its label; `None` if it has no label: somebody else made it.
pub fn was_made_with(pod: &PodRecord, templates: &[ClaimTemplate]) -> Option<bool> {
    let label = pod.label(names::MADE_AS_LABEL)?;
    let made_from = label.split('_').next().unwrap_or_default();
    Some(made_as(made_from, templates) == label)
}

/// The first of `templates` whose claim a pod does not mount.
pub fn not_mounted<'t>(pod: &PodRecord, templates: &'t [ClaimTemplate]) -> Option<&'t ClaimTemplate> {
    let mut templates = templates.iter();
    templates.find(|t| !pod.mounts(&t.name, &claim_name(t, pod.name())))
}

/// What a new claim gets beside what its template says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Additions<'a> {
    /// Keys and values.
    pub labels: &'a [(&'a str, &'a str)],
    /// Keys and values.
    pub annotations: &'a [(&'a str, &'a str)],
}

/// Creates the claim of a template for a pod: the template with its annotations and finalizers, with the name, the set's namespace, and the
/// selector's labels over its own (STS-1.4.1), and `additions` over these.
pub fn create(
    template: &ClaimTemplate,
    key: ObjectKey,
    selector: &Selector,
    additions: Additions<'_>,
    owner: Option<&OwnerRef>,
) -> Command {
    let mut labels = labels(template, selector);
    for (key, value) in additions.labels {
        labels[*key] = json!(value);
    }
    let mut body = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {
        "name": key.name.as_str(), "namespace": &*key.namespace, "labels": labels,
    }});
    let tree = template.body.tree();
    for field in ["annotations", "finalizers"] {
        let found = tree.pointer(&format!("/metadata/{field}"));
        if let Some(value) = found.filter(|value| !value.is_null()) {
            body["metadata"][field] = value.clone();
        }
    }
    for (key, value) in additions.annotations {
        body["metadata"]["annotations"][*key] = json!(value);
    }
    if let Some(spec) = tree.get("spec") {
        body["spec"] = spec.clone();
    }
    if let Some(owner) = owner {
        body["metadata"]["ownerReferences"] = json!([owner.to_json()]);
    }
    Command::Create {
        resource: Resource::Claims,
        key,
        body: Body::Json(Arc::new(body)),
        exists_is_fine: true,
        guard: None,
        report: Report::Create,
    }
}

/// Whether a pod has yet to start, and so may be given claims that it lacks (STS-1.4.3).
pub fn has_to_start(pod: &PodRecord) -> bool {
    pod.phase == Phase::Pending && !pod.is_terminating()
}

/// Of `templates`, those whose claims a pod that has not started mounts and that are not there, with the names of these (STS-1.4.3).
pub fn missing<'t>(
    pod: &PodRecord,
    templates: &'t [ClaimTemplate],
    is_there: impl Fn(&str) -> bool,
) -> Vec<(&'t ClaimTemplate, String)> {
    if !has_to_start(pod) {
        return Vec::new();
    }
    let named = templates.iter().map(|t| (t, claim_name(t, pod.name())));
    let missing = named.filter(|(t, claim)| pod.mounts(&t.name, claim) && !is_there(claim));
    missing.collect()
}

/// Names of the claim templates in our record on a revision, also of those that its set has no more.
pub fn recorded_names(of: &RevisionRecord) -> impl Iterator<Item = &str> {
    of.claim_templates.iter().flat_map(|record| record.names())
}

/// Names of the volumes that containers of a template use.
pub fn mounts(template: &Value) -> Vec<&str> {
    let mut names = Vec::new();
    for list in ["containers", "initContainers"] {
        let containers = template.pointer(&format!("/spec/{list}")).and_then(Value::as_array);
        for container in containers.into_iter().flatten() {
            for uses in ["volumeMounts", "volumeDevices"] {
                let used = container.get(uses).and_then(Value::as_array).into_iter().flatten();
                names.extend(used.filter_map(|m| m.get("name").and_then(Value::as_str)));
            }
        }
    }
    names
}

/// Labels of a claim made from a template.
pub fn labels(template: &ClaimTemplate, selector: &Selector) -> Value {
    let tree = template.body.tree();
    let mut labels = tree
        .pointer("/metadata/labels")
        .filter(|l| l.is_object())
        .cloned()
        .unwrap_or_else(|| json!({}));
    for (key, value) in selector.match_labels() {
        labels[key] = json!(value);
    }
    labels
}

/// Who a claim should belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// Nobody of ours: it stays.
    Nobody,
    /// This owner: it goes with it.
    Owner(OwnerRef),
}

/// An owner that we may ever put on a claim: its set, or its pod.
#[derive(Clone, Debug)]
pub struct Claimant {
    /// The reference to it; its UID is empty if there is none of that name.
    pub reference: OwnerRef,
    /// The policy lets claims go with such an owner.
    pub takes_claims: bool,
}

impl Claimant {
    /// Whether a reference names it as it was before: an object of the same name, with another UID, that is gone.
    fn was(&self, reference: &OwnerRef) -> bool {
        same_object(&self.reference, reference) && self.reference.uid != reference.uid
    }
}

/// The former pod or set to which a claim still belongs, if there is any.
pub fn former_owner<'c>(claim: &'c ClaimRecord, ours: &[Claimant]) -> Option<&'c OwnerRef> {
    let mut owners = claim.meta.owners().iter();
    owners.find(|r| ours.iter().any(|c| c.was(r)))
}

/// Whether a claim goes with a former pod or set: the policy lets claims go with such, and the garbage collector takes it away.
pub fn goes_with_former(claim: &ClaimRecord, ours: &[Claimant]) -> bool {
    let goes = |r: &OwnerRef| ours.iter().any(|c| c.takes_claims && c.was(r));
    claim.meta.owners().iter().any(goes)
}

/// The owner references that `claim` should have, or `None` if they are as they should be or must not be touched.
///
/// `ours` are the two owners that we may ever put there: the set and the pod. Native rules (STS-1.4.4): our reference is the controller
/// reference; a claim with another controller keeps none of ours; a reference that names one of ours with another UID belongs to a former
/// incarnation, and then nothing is touched where claims go with such. Where they are to outlive it the reference goes: the garbage
/// collector would take the claim away, however late, and from whoever mounts it by then.
pub fn owners_to_set(claim: &ClaimRecord, keeper: &Keeper, ours: &[Claimant]) -> Option<Vec<OwnerRef>> {
    if goes_with_former(claim, ours) {
        return None;
    }
    let present = claim.meta.owners();
    let is_ours = |r: &OwnerRef| ours.iter().any(|c| c.reference.uid == r.uid || c.was(r));
    let mut wanted: Vec<OwnerRef> = present.iter().filter(|r| !is_ours(r)).cloned().collect();
    if let Keeper::Owner(owner) = keeper
        && !wanted.iter().any(|r| r.controller)
    {
        wanted.push(owner.clone());
    }
    let unchanged = wanted.len() == present.len() && wanted.iter().all(|w| present.contains(w));
    (!unchanged).then_some(wanted)
}

/// Whether two references name the same object, whatever version of its group they were written with.
fn same_object(a: &OwnerRef, b: &OwnerRef) -> bool {
    let group = |r: &OwnerRef| r.api_version.split_once('/').map(|(group, _)| group.to_owned());
    a.kind == b.kind && a.name == b.name && group(a) == group(b)
}

/// Replaces the owner references of a claim, provided nobody changed the claim since it was seen.
pub fn set_owners(claim: &ClaimRecord, owners: &[OwnerRef]) -> Command {
    let list: Vec<Value> = owners.iter().map(OwnerRef::to_json).collect();
    patch(claim, json!({"metadata": {"ownerReferences": list}}), Report::Update)
}

/// Gives a claim of `from` to another controller, as the claim was seen. References to other owners stay: they are not ours to remove.
pub fn hand_to(claim: &ClaimRecord, from: &Uid, to: &OwnerRef) -> Command {
    let stays = |owner: &&OwnerRef| owner.uid != *from && owner.uid != to.uid;
    let others = claim.meta.owners().iter().filter(stays).cloned();
    let owners: Vec<OwnerRef> = others.chain([to.clone()]).collect();
    set_owners(claim, &owners)
}

/// So many pods with claims are made at first, and later twice as many as there are.
const MOST_AT_FIRST: usize = 16;

/// How many new pods one pass may make claims for, or take them for, where so many pods are there already. Claims come before their pods, and a
/// quota, or a webhook, says only of the pods that there is no room: nobody makes a thousand volumes to find that out.
pub fn most_new(there: usize) -> usize {
    MOST_AT_FIRST.max(there.saturating_mul(2))
}

/// Takes a claim that is there for a new pod. Who deletes claims, or gives them to pods that go, does so as they were seen: what of that is
/// still on its way fails from now on, as the claim has another version.
pub fn take(claim: &ClaimRecord, report: Report) -> Command {
    let seen = claim.meta.resource_version.to_string();
    annotate(claim, &[(names::CLAIM_TAKEN_AT, Some(&seen))], report)
}

/// Writes annotations of a claim, or takes them off, provided nobody changed the claim since it was seen.
pub fn annotate(claim: &ClaimRecord, annotations: &[(&str, Option<&str>)], report: Report) -> Command {
    let annotations: Value = annotations.iter().map(|(key, value)| (*key, *value)).collect();
    patch(claim, json!({"metadata": {"annotations": annotations}}), report)
}

/// Asks for more storage. Only the storage request is touched, never limits or other requests (STS-3.9).
pub fn expand(claim: &ClaimRecord, template: &ClaimTemplate, set: &str) -> Command {
    let tree = template.body.tree();
    let request = tree
        .pointer("/spec/resources/requests/storage")
        .cloned()
        .unwrap_or(Value::Null);
    let body = json!({
        "metadata": {"annotations": {names::CLAIM_EXPANDED_BY: set}},
        "spec": {"resources": {"requests": {"storage": request}}},
    });
    patch(claim, body, Report::Resize)
}

/// Carries labels and annotations of the template to the claim, if any is missing or differs.
pub fn relabel(claim: &ClaimRecord, template: &ClaimTemplate, selector: &Selector) -> Option<Command> {
    let missing = |wanted: &Value, has: &Labels| -> serde_json::Map<String, Value> {
        let is_there =
            |key: &str, value: &Value| has.get(key) == value.as_str().map(ClaimRecord::kept_value).as_deref();
        let pairs = wanted.as_object().into_iter().flatten();
        pairs
            .filter(|(key, value)| !is_there(key, value))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    };
    let labels = missing(&labels(template, selector), &claim.meta.labels);
    let tree = template.body.tree();
    let annotations = tree.pointer("/metadata/annotations").unwrap_or(&Value::Null);
    let annotations = missing(annotations, &claim.annotations);
    if labels.is_empty() && annotations.is_empty() {
        return None;
    }
    let mut metadata = json!({});
    if !labels.is_empty() {
        metadata["labels"] = Value::Object(labels);
    }
    if !annotations.is_empty() {
        metadata["annotations"] = Value::Object(annotations);
    }
    Some(patch(claim, json!({"metadata": metadata}), Report::Update))
}

fn patch(claim: &ClaimRecord, body: Value, report: Report) -> Command {
    Command::Patch {
        resource: Resource::Claims,
        key: claim.meta.key.clone(),
        uid: claim.meta.uid.clone(),
        subresource: None,
        kind: PatchKind::Merge,
        body,
        resource_version: Some(claim.meta.resource_version),
        guard: None,
        report,
    }
}

/// The former pod to which a claim still belongs, given that no pod `pod` exists now: any reference to a pod of that name is a
/// leftover, and the garbage collector will take the claim away (STS-1.4.4, stale).
pub fn stale_owner<'a>(claim: &'a ClaimRecord, pod: &str) -> Option<&'a Uid> {
    claim
        .meta
        .owners()
        .iter()
        .find(|o| &*o.kind == "Pod" && &*o.name == pod)
        .map(|o| &o.uid)
}

/// What a new pod of this name waits for where a claim of it is about to go: under deletion, or with a former pod.
pub fn about_to_go(claim: &ClaimRecord, pod: &str) -> Option<WaitCause> {
    if claim.meta.deleted.is_some() {
        return Some(WaitCause::CLAIM_TERMINATING);
    }
    stale_owner(claim, pod).map(|_| WaitCause::ClaimStale {
        owner: format!("Pod {pod}"),
        stays: false,
    })
}

/// How a claim compares with its template (STS-3.9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Large enough and alike.
    Compatible,
    /// Smaller than the template, otherwise alike.
    TooSmall,
    /// Different in something that cannot be changed; the text says in what.
    Different(String),
}

/// Compares a claim with its template.
pub fn fit(claim: &ClaimRecord, template: &ClaimTemplate) -> Fit {
    if let (Some(has), Some(wants)) = (&claim.storage_class, &template.storage_class)
        && has != wants
    {
        return Fit::Different(format!("its storage class is {has}, the template's is {wants}"));
    }
    if let Some(wants) = &template.access_modes
        && claim.access_modes.as_ref() != Some(wants)
    {
        let has = claim.access_modes.as_deref().unwrap_or("none");
        return Fit::Different(format!("its access modes are {has}, the template's are {wants}"));
    }
    match template.requested_bytes {
        Some(wants) if claim.requested_bytes < wants => Fit::TooSmall,
        _ => Fit::Compatible,
    }
}

/// Whether the volume behind a claim, with its file system, is as large as its template asks. A claim that asks for more, because the
/// template was set back meanwhile, counts as grown.
pub fn is_expanded(claim: &ClaimRecord, template: &ClaimTemplate) -> bool {
    let wants = template.requested_bytes.unwrap_or(claim.requested_bytes);
    claim.capacity_bytes >= wants.min(claim.requested_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::adoption::controller_ref;
    use crate::testing::{claim, owner};
    use flotilla_model::Packed;

    fn set_ref() -> OwnerRef {
        controller_ref(Resource::AdvancedSets, "web", &Uid::new("set-uid"))
    }

    fn pod_ref(uid: &str) -> OwnerRef {
        controller_ref(Resource::Pods, "web-0", &Uid::new(uid))
    }

    /// What it shows, owners that are there, the keeper, owners that should be written.
    type Row = (&'static str, Vec<OwnerRef>, Keeper, Option<Vec<OwnerRef>>);

    #[test]
    fn sts_1_4_4_owners_follow_the_native_rules() {
        let foreign = OwnerRef {
            controller: true,
            ..owner("v1", "Backup", "b", "b-uid")
        };
        let plain = owner("v1", "Note", "n", "n-uid");
        let former_set = OwnerRef {
            controller: false,
            ..controller_ref(Resource::AdvancedSets, "web", &Uid::new("old"))
        };
        let by_alpha = OwnerRef {
            api_version: "apps.kruise.io/v1alpha1".into(),
            controller: false,
            ..set_ref()
        };
        let claimant = |reference: OwnerRef, takes_claims| Claimant {
            reference,
            takes_claims,
        };
        let ours = [claimant(set_ref(), true), claimant(pod_ref("pod-uid"), true)];
        let keep = |o: &OwnerRef| Keeper::Owner(o.clone());
        let cases: Vec<Row> = vec![
            ("nothing to do", vec![], Keeper::Nobody, None),
            ("added", vec![], keep(&set_ref()), Some(vec![set_ref()])),
            ("there already", vec![set_ref()], keep(&set_ref()), None),
            ("removed", vec![set_ref()], Keeper::Nobody, Some(vec![])),
            (
                "moved to the pod",
                vec![set_ref()],
                keep(&pod_ref("pod-uid")),
                Some(vec![pod_ref("pod-uid")]),
            ),
            (
                "upgraded to controller",
                vec![by_alpha],
                keep(&set_ref()),
                Some(vec![set_ref()]),
            ),
            (
                "another controller: nothing added",
                vec![foreign.clone()],
                keep(&set_ref()),
                None,
            ),
            (
                "another controller: ours removed",
                vec![foreign.clone(), set_ref()],
                keep(&set_ref()),
                Some(vec![foreign]),
            ),
            (
                "other owners stay",
                vec![plain.clone()],
                keep(&set_ref()),
                Some(vec![plain.clone(), set_ref()]),
            ),
            (
                "former incarnation: hands off",
                vec![former_set],
                keep(&set_ref()),
                None,
            ),
            (
                "former pod: hands off",
                vec![pod_ref("old-pod")],
                keep(&set_ref()),
                None,
            ),
        ];
        for (what, present, keeper, expected) in cases {
            assert_eq!(
                owners_to_set(&claim("data-web-0").owners(present).build(), &keeper, &ours),
                expected,
                "{what}"
            );
        }
        let former = || vec![pod_ref("old-pod"), plain.clone()];
        for (what, pods_take, keeper, expected) in [
            (
                "kept from a former pod",
                false,
                Keeper::Nobody,
                Some(vec![plain.clone()]),
            ),
            (
                "kept from a former pod, for the set",
                false,
                keep(&set_ref()),
                Some(vec![plain.clone(), set_ref()]),
            ),
            ("it goes with the former pod", true, Keeper::Nobody, None),
        ] {
            let ours = [claimant(set_ref(), true), claimant(pod_ref(""), pods_take)];
            let claim = claim("data-web-0").owners(former()).build();
            assert_eq!(owners_to_set(&claim, &keeper, &ours), expected, "{what}");
        }
    }

    #[test]
    fn sts_1_4_1_a_claim_has_what_its_template_says_of_its_metadata() {
        let body = json!({
            "metadata": {"name": "data", "annotations": {"a": "b"}, "labels": {"app": "mine", "l": "m"}, "finalizers": ["example.com/keep"]},
            "spec": {},
        });
        let template = ClaimTemplate::from_json(&body).expect("it has a name");
        let selector = Selector::from_json(&json!({"matchLabels": {"app": "web"}})).expect("a selector");
        let key = ObjectKey::new("ns", "data-web-0");
        let additions = Additions {
            labels: &[("id", "x")],
            annotations: &[("note", "y")],
        };
        let Command::Create { body, .. } = create(&template, key, &selector, additions, None) else {
            panic!("it creates");
        };
        assert_eq!(
            body.render()["metadata"],
            json!({
                "name": "data-web-0", "namespace": "ns", "annotations": {"a": "b", "note": "y"}, "finalizers": ["example.com/keep"],
                "labels": {"app": "web", "l": "m", "id": "x"},
            })
        );
    }

    #[test]
    fn sts_1_4_4_other_owners_stay_when_a_claim_is_handed_over() {
        let note = owner("v1", "Note", "n", "n-uid");
        let has = claim("data-web-0").owners(vec![note.clone(), set_ref()]).build();
        let Command::Patch {
            body, resource_version, ..
        } = hand_to(&has, &Uid::new("set-uid"), &pod_ref("pod-uid"))
        else {
            panic!("it patches");
        };
        assert_eq!(
            body["metadata"]["ownerReferences"],
            json!([note.to_json(), pod_ref("pod-uid").to_json()])
        );
        assert!(
            resource_version.is_some(),
            "a list is replaced as it was seen, or not at all"
        );
    }

    #[test]
    fn sts_3_9_compatibility() {
        let template = |spec: Value| ClaimTemplate {
            name: "data".into(),
            requested_bytes: Some(100),
            storage_class: spec.get("class").and_then(Value::as_str).map(Into::into),
            access_modes: spec.get("modes").and_then(Value::as_str).map(Into::into),
            body: Packed::new(&json!({})),
        };
        let has = claim("data-web-0")
            .size(100)
            .class("fast")
            .modes("ReadWriteOnce")
            .build();
        assert_eq!(
            fit(&has, &template(json!({"class": "fast", "modes": "ReadWriteOnce"}))),
            Fit::Compatible
        );
        assert_eq!(
            fit(&has, &template(json!({}))),
            Fit::Compatible,
            "class compared only if both are set"
        );
        assert!(matches!(
            fit(&has, &template(json!({"class": "slow"}))),
            Fit::Different(_)
        ));
        assert!(matches!(
            fit(&has, &template(json!({"modes": "ReadWriteMany"}))),
            Fit::Different(_)
        ));
        let small = claim("data-web-0").size(50).build();
        assert_eq!(fit(&small, &template(json!({}))), Fit::TooSmall);
    }
}
