//! STS-7.3: what an Advanced StatefulSet must be, whenever it is written. Objects are read as v1beta1.

use super::strategy::{number, word};
use super::{Problems, Reach, claims, lifecycle, selector, strategy, template};
use crate::convert::{Kind, fit};
use crate::json::{at, list, text};
use crate::{Memory, Operation, Request, switches};
use flotilla_api::messages;
use flotilla_api::names;
use flotilla_api::statefulset::v1alpha1;
use flotilla_apimachinery::field::Fault;
use flotilla_model::set::{IntervalSet, Ordinals, parse_reserved};
use serde_json::Value;

/// Longest value of a label, and with it of a pod's name and a revision's name.
const LABEL_LENGTH_MAX: usize = 63;
/// A dash and the longest hash (STS-1.1.9).
const HASH_LENGTH: usize = 11;
/// What the API server appends to `generateName`, and the most that it keeps of it.
const GENERATED: (usize, usize) = (5, 58);

/// All rows, in the order of the specification.
pub(super) fn check(set: &Value) -> Problems {
    let mut problems = Problems::default();
    let found = &mut problems;
    let most = i64::from(i32::MAX);
    let policy = ["spec", "podManagementPolicy"];
    word(
        set,
        &policy,
        &["OrderedReady", "Parallel"],
        messages::POD_MANAGEMENT_POLICY,
        found,
    );
    reserved(set, found);
    strategy::check(set, found);
    for (field, rule) in [
        ("whenDeleted", messages::WHEN_DELETED),
        ("whenScaled", messages::WHEN_SCALED),
    ] {
        let path = ["spec", "persistentVolumeClaimRetentionPolicy", field];
        word(set, &path, &["Retain", "Delete"], rule, found);
    }
    number(set, &["spec", "replicas"], (0, most), found);
    own_selector(set, &names::WRITTEN_ON_PODS_OF_A_STATEFULSET, found);
    template::check(set, found);
    lifecycle::markers(set, found);
    lifecycle::labels(set, found);
    number(set, &["spec", "revisionHistoryLimit"], (0, most), found);
    number(set, &["spec", "ordinals", "start"], (0, most), found);
    let path = ["spec", "volumeClaimUpdateStrategy", "type"];
    let kinds = ["OnDelete", "OnPodRollingUpdate"];
    word(set, &path, &kinds, messages::CLAIM_UPDATE_TYPE, found);
    claims::check(set, found);
    for (index, special) in list(set, &["spec", "specialPodsSelectors"]).iter().enumerate() {
        let path = format!("spec.specialPodsSelectors[{index}]");
        selector::check(&path, special, messages::SPECIAL_SELECTOR_EMPTY, found);
    }
    switches::check_statefulset(set, found);
    problems
}

/// STS-3.4: numbers, or ranges that do not run backwards. As CEL reads them: a number is not written as text.
fn reserved(set: &Value, problems: &mut Problems) {
    for (index, entry) in list(set, &["spec", "reserveOrdinals"]).iter().enumerate() {
        let is_range = entry.as_str().is_none_or(|text| text.contains('-'));
        if !is_range || parse_reserved(entry).is_none() {
            let path = format!("spec.reserveOrdinals[{index}]");
            problems.invalid(path, entry, messages::RESERVED_ORDINAL);
        }
    }
}

/// The selector by which a set knows its pods, with the labels that are written on these one by one.
pub(super) fn own_selector(set: &Value, written: &[&str], problems: &mut Problems) {
    let Some(own) = at(set, &["spec", "selector"]) else {
        problems.required("spec.selector", messages::SELECTOR_EMPTY);
        return;
    };
    selector::check("spec.selector", own, messages::SELECTOR_EMPTY, problems);
    let labels = at(set, &["spec", "template", "metadata", "labels"]);
    // One that cannot be read has been told already.
    let Some(parsed) = flotilla_model::Selector::from_json(own) else {
        return;
    };
    if !selector::matches(own, labels) {
        problems.unfit("spec.selector", own, messages::SELECTOR_MATCHES);
    }
    for key in written.iter().filter(|key| parsed.mentions(key)) {
        problems.unfit(
            "spec.selector",
            own,
            format!("label {key} {}", messages::SELECTOR_WRITTEN),
        );
    }
}

/// STS-1.1.9, on creation: names of revisions and pods are values of labels; not those of CloneSets whose pods are labelled with hashes alone.
pub(super) fn check_name(request: &Request<'_>, set: &Value, kind: Kind, memory: &dyn Memory, problems: &mut Problems) {
    let (name, length) = name(request, set);
    let path = if request.name.is_empty() {
        "metadata.generateName"
    } else {
        "metadata.name"
    };
    if !request.name.is_empty() {
        for why in flotilla_apimachinery::names::dns_subdomain(name) {
            problems.invalid(path, &Value::from(name), why);
        }
    }
    let is_free = kind == Kind::CloneSet && memory.labels_with_hashes();
    if is_too_long(length) && !is_free {
        let too_long = Value::from(name);
        problems.add(
            Reach::Field,
            Fault::Invalid,
            path.to_owned(),
            &too_long,
            messages::NAME_LENGTH,
        );
    } else if kind == Kind::CloneSet {
        // Its pods have names of one length.
    } else if let Some(highest) = highest_ordinal(set).filter(|n| length + 1 + n.to_string().len() > LABEL_LENGTH_MAX) {
        let rule = format!(
            "the pod with ordinal {highest} would have a name of more than {LABEL_LENGTH_MAX} characters; use a shorter name, or lower \
             ordinals"
        );
        problems.add(Reach::Field, Fault::Invalid, path.to_owned(), &Value::from(name), rule);
    }
}

/// The name, and how long it will be.
pub(super) fn name<'v>(request: &'v Request<'_>, set: &'v Value) -> (&'v str, usize) {
    if !request.name.is_empty() {
        return (request.name, request.name.len());
    }
    let prefix = text(set, &["metadata", "generateName"]);
    (prefix, prefix.len().min(GENERATED.1) + GENERATED.0)
}

/// `None` if the set wants no pods, or does not say how many.
fn highest_ordinal(set: &Value) -> Option<i64> {
    let count = |path: &[&str], default| match at(set, path) {
        None => Some(default),
        Some(value) => value.as_i64().and_then(|n| i32::try_from(n).ok()).filter(|n| *n >= 0),
    };
    let start = count(&["spec", "ordinals", "start"], 0)?;
    let replicas = count(&["spec", "replicas"], 1).filter(|n| *n > 0)?;
    let reserved = list(set, &["spec", "reserveOrdinals"])
        .iter()
        .filter_map(parse_reserved);
    let ordinals = Ordinals::new(i64::from(start), replicas, &IntervalSet::new(reserved));
    Some(ordinals.end - 1)
}

/// Whether the names of revisions do not fit into a label.
pub(super) const fn is_too_long(length: usize) -> bool {
    length + HASH_LENGTH > LABEL_LENGTH_MAX
}

/// What is accepted but probably not meant.
pub(super) fn warn(request: &Request<'_>, set: &Value, warnings: &mut Vec<String>) {
    const UNORDERED: [&str; 4] = ["spec", "updateStrategy", "rollingUpdate", "unorderedUpdate"];
    let (name, length) = name(request, set);
    if request.operation == Operation::Update && is_too_long(length) {
        warnings.push(format!(
            "metadata.name {name}: {}; pods of this set cannot be created: make a set with a shorter name",
            messages::NAME_LENGTH
        ));
    }
    if let Some(unordered) = at(set, &UNORDERED)
        && at(unordered, &["priorityStrategy"]).is_none()
    {
        warnings.push(format!(
            "{} is empty: pods are updated from the highest ordinal down, as without it, but partition counts pods and not ordinals; \
             priorityStrategy says which come first",
            UNORDERED.join(".")
        ));
    }
    let is_on_delete = text(set, &["spec", "updateStrategy", "type"]) == "OnDelete";
    if is_on_delete && crate::json::annotation(set, names::UPDATE_TYPE).is_some() {
        let (key, what) = names::WITH_ON_DELETE;
        warnings.push(format!("metadata.annotations[{key}] {what}"));
    }
    if request.version == v1alpha1::HUB {
        warnings.extend(fit::warning(set));
    }
    warn_of_any(set, warnings);
}

/// The same for every kind that owns pods.
pub(super) fn warn_of_any(set: &Value, warnings: &mut Vec<String>) {
    if let Some(value) = crate::json::label(set, names::DELETE_PROTECTION_LABEL)
        && !matches!(value, "Always" | "Cascading")
    {
        warnings.push(format!(
            "metadata.labels[{}]: {value:?} protects nothing: only Always and Cascading do",
            names::DELETE_PROTECTION_LABEL
        ));
    }
    for (key, what) in names::NOT_YET {
        if crate::json::annotation(set, key).is_some() {
            warnings.push(format!("metadata.annotations[{key}] {what}"));
        }
    }
    for container in template::without_image(set) {
        warnings.push(format!(
            "spec.template.spec: container {container:?} has no image; pods can only be created if a webhook for pods fills it in"
        ));
    }
    for container in switches::unknown_containers(set) {
        warnings.push(format!(
            "metadata.annotations[{}]: there is no container {container:?} in spec.template",
            names::KEEP_READY_CONTAINERS
        ));
    }
}
