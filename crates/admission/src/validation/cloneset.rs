//! What a CloneSet must be, and what may change in it (CS-3 and CS-6). Objects are read as v1beta1; what only one version's
//! webhook refused upstream is refused in that version and warned of in the other.

use super::strategy::{number, word};
use super::{Problems, claims, in_place, lifecycle, statefulset, strategy, template, update};
use crate::json::{at, list, text};
use crate::{Found, Memory, NamedPod, Nothing, Operation, Request, switches};
use flotilla_api::messages;
use flotilla_api::names;
use flotilla_api::statefulset::v1alpha1;
use flotilla_model::Share;
use serde_json::Value;
use std::collections::BTreeSet;

const ROLLING: &str = "spec.updateStrategy.rollingUpdate";
/// A dash and the id of a pod follow, and a host name has at most 63 characters.
const NAME_LENGTH_OF_WHOLE_HOST_NAMES: usize = 57;
const POD_NAMES: [&str; 3] = ["spec", "scaleStrategy", "podsToDelete"];

/// All rules, in the order of the specification, on a set read as v1beta1; `received` is what it was read from.
pub(super) fn check(received: &Value, set: &Value, version: &str) -> Problems {
    let mut problems = Problems::default();
    let found = &mut problems;
    let most = i64::from(i32::MAX);
    for field in [
        "replicas",
        "revisionHistoryLimit",
        "minReadySeconds",
        "progressDeadlineSeconds",
    ] {
        number(set, &["spec", field], (0, most), found);
    }
    statefulset::own_selector(set, &names::WRITTEN_ON_PODS_OF_A_CLONESET, found);
    template::check(set, found);
    lifecycle::labels(set, found);
    claims::check(set, found);
    let scale = ["spec", "scaleStrategy", "maxUnavailable"];
    share(set, &scale, messages::CLONE_SCALE_BUDGET, found);
    pods_to_delete(set, found);
    let path = ["spec", "updateStrategy", "type"];
    if version == v1alpha1::VERSION {
        // What v1alpha1 does not know is read as ReCreate.
        let kinds = ["ReCreate", "InPlaceIfPossible", "InPlaceOnly", "OnDelete"];
        word(received, &path, &kinds, messages::CLONE_UPDATE_TYPE, found);
    } else {
        word(set, &path, &["RollingUpdate", "OnDelete"], messages::UPDATE_TYPE, found);
    }
    rolling(set, found);
    if let Some((path, value)) = late_deadline(set).filter(|_| version == v1alpha1::VERSION) {
        found.unfit(path, value, messages::PROGRESS_DEADLINE);
    }
    switches::check_cloneset(set, found);
    problems
}

fn share(set: &Value, path: &[&str], rule: &'static str, problems: &mut Problems) {
    if let Some(value) = at(set, path).filter(|value| Share::from_json(value).is_none()) {
        problems.invalid(path.join("."), value, rule);
    }
}

fn rolling(set: &Value, problems: &mut Problems) {
    let path = |field| ["spec", "updateStrategy", "rollingUpdate", field];
    share(set, &path("partition"), messages::PARTITION, problems);
    share(set, &path("maxUnavailable"), messages::MAX_UNAVAILABLE, problems);
    share(set, &path("maxSurge"), messages::MAX_SURGE, problems);
    let policies = ["ReCreate", "InPlaceIfPossible", "InPlaceOnly"];
    let policy = path("podUpdatePolicy");
    word(set, &policy, &policies, messages::POD_UPDATE_POLICY, problems);
    let is_zero = |field: &'static str, default: Share| {
        let value = at(set, &path(field)).map_or(Some(default), Share::from_json);
        value.is_some_and(|share| matches!(share, Share::Int(0) | Share::Percent(0)))
    };
    let surge = at(set, &path("maxSurge")).unwrap_or(&Value::Null);
    let surges = !is_zero("maxSurge", Share::Int(0));
    if text(set, &policy) == "InPlaceOnly" && surges {
        problems.unfit(format!("{ROLLING}.maxSurge"), surge, messages::SURGE_IN_PLACE_ONLY);
    }
    let wants_none = at(set, &["spec", "replicas"]).and_then(Value::as_i64) == Some(0);
    if !wants_none && !surges && is_zero("maxUnavailable", Share::Int(1)) {
        let found = at(set, &path("maxUnavailable")).unwrap_or(&Value::Null);
        problems.unfit(ROLLING, found, messages::NOTHING_MOVES);
    }
    if let Some(priority) = at(set, &path("priorityStrategy")) {
        strategy::priority(&format!("{ROLLING}.priorityStrategy"), priority, problems);
    }
    let mut seen = BTreeSet::new();
    for term in list(set, &path("scatterStrategy")) {
        let pair = (text(term, &["key"]), text(term, &["value"]));
        if pair.0.is_empty() || !seen.insert(pair) {
            problems.invalid(format!("{ROLLING}.scatterStrategy"), term, messages::SCATTER);
        }
    }
    strategy::in_place(set, is_parallelism, messages::CLONE_PRE_DOWNLOAD, problems);
}

/// A number, also in quotes, or a percentage.
fn is_parallelism(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_i64().is_some_and(|n| n >= 0),
        Value::String(text) => {
            let digits = text.strip_suffix('%').unwrap_or(text);
            !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
        }
        _ => false,
    }
}

fn pods_to_delete(set: &Value, problems: &mut Problems) {
    let mut seen = BTreeSet::new();
    for (index, name) in list(set, &POD_NAMES).iter().enumerate() {
        if !seen.insert(name.as_str()) {
            let path = format!("spec.scaleStrategy.podsToDelete[{index}]");
            problems.invalid(path, name, messages::PODS_TO_DELETE_ONCE);
        }
    }
}

/// A progress deadline that is over before a pod can be available.
fn late_deadline(set: &Value) -> Option<(&'static str, &Value)> {
    let value = at(set, &["spec", "progressDeadlineSeconds"])?;
    let seconds = |field| at(set, &["spec", field]).and_then(Value::as_i64);
    let (deadline, ready) = (
        seconds("progressDeadlineSeconds")?,
        seconds("minReadySeconds").unwrap_or(0),
    );
    // The largest number says that there is no deadline, or that no pod is ever available.
    let is_never = [deadline, ready].contains(&i64::from(i32::MAX));
    (!is_never && deadline <= ready).then_some(("spec.progressDeadlineSeconds", value))
}

/// Everything may change but the selector; with InPlaceOnly, the template only in what can change in running pods.
pub(super) fn check_change(
    request: &Request<'_>,
    old: &Value,
    new: &Value,
    memory: &dyn Memory,
    problems: &mut Problems,
    warnings: &mut Vec<String>,
) {
    if update::selector(old, "selector") != update::selector(new, "selector") {
        let value = at(new, &["spec", "selector"]).unwrap_or(&Value::Null);
        problems.changed("spec.selector", value, messages::SELECTOR_FIXED);
    }
    // The stored template is what is compared with (CS-6): which revisions pods of a CloneSet are at is not remembered.
    let mut found = Problems::default();
    in_place::check(request, old, new, &Nothing, &mut found);
    new_names(request, old, new, memory, &mut found, warnings);
    of_version(request, found, problems, warnings);
}

/// A set that is only being created manages no pod, so that each name is new, and none of a pod of it (CS-6).
pub(super) fn check_creation(request: &Request<'_>, new: &Value, problems: &mut Problems, warnings: &mut Vec<String>) {
    let mut found = Problems::default();
    for (index, name) in list(new, &POD_NAMES).iter().enumerate() {
        let path = format!("spec.scaleStrategy.podsToDelete[{index}]");
        found.unfit(path, name, messages::POD_TO_DELETE_FOREIGN);
    }
    of_version(request, found, problems, warnings);
}

/// What only one version's webhook refused upstream is a warning in the other.
fn of_version(request: &Request<'_>, found: Problems, problems: &mut Problems, warnings: &mut Vec<String>) {
    if request.version == v1alpha1::VERSION {
        problems.append(found);
    } else {
        warnings.extend(found.refusal().map(|refusal| refusal.message));
    }
}

/// Names that are new in `podsToDelete` are those of pods that the set manages and that stay (CS-6).
fn new_names(
    request: &Request<'_>,
    old: &Value,
    new: &Value,
    memory: &dyn Memory,
    problems: &mut Problems,
    warnings: &mut Vec<String>,
) {
    let names = |set| list(set, &POD_NAMES).iter().filter_map(Value::as_str);
    let known: BTreeSet<&str> = names(old).collect();
    let uid = text(old, &["metadata", "uid"]);
    for (index, value) in list(new, &POD_NAMES).iter().enumerate() {
        let Some(name) = value.as_str().filter(|name| !known.contains(name)) else {
            continue;
        };
        let path = format!("spec.scaleStrategy.podsToDelete[{index}]");
        match memory.named_pod(request.namespace, name, uid) {
            Found::Is(NamedPod::Managed) => {}
            Found::Is(NamedPod::Terminating) => problems.unfit(path, value, messages::POD_TO_DELETE_GOING),
            Found::Is(NamedPod::Foreign) => problems.unfit(path, value, messages::POD_TO_DELETE_FOREIGN),
            Found::Missing => problems.unfit(path, value, messages::POD_TO_DELETE_MISSING),
            Found::Unknown => warnings.push(format!(
                "{path}: {name} is not known yet; {}",
                messages::POD_TO_DELETE_MISSING
            )),
        }
    }
}

/// What is accepted but probably not meant.
pub(super) fn warn(request: &Request<'_>, set: &Value, memory: &dyn Memory, warnings: &mut Vec<String>) {
    let (name, length) = statefulset::name(request, set);
    if memory.labels_with_hashes() {
        if length > NAME_LENGTH_OF_WHOLE_HOST_NAMES {
            warnings.push(format!(
                "metadata.name {name}: host names of its pods are cut to 63 characters, and pods may share one; with at most \
                 {NAME_LENGTH_OF_WHOLE_HOST_NAMES} characters they are whole"
            ));
        }
    } else if request.operation == Operation::Update && statefulset::is_too_long(length) {
        warnings.push(format!(
            "metadata.name {name}: {}; pods of this set are labelled with the hash of their revision alone",
            messages::NAME_LENGTH
        ));
    }
    if let Some((path, _)) = late_deadline(set).filter(|_| request.version != v1alpha1::VERSION) {
        warnings.push(format!("{path}: {}", messages::PROGRESS_DEADLINE));
    }
    statefulset::warn_of_any(set, warnings);
}
