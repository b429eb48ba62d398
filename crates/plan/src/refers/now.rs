//! What pods of a set fail at now, and new ones may fail at, too.

use super::makes_pods;
use crate::report::{Action, SetPlan};
use crate::state::{State, list};
use crate::trace::Traced;
use flotilla_controllers::{failed_creation, failed_update};
use flotilla_model::Failure;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What the API server refuses the set's pods now, by the set's own word. Nobody here knows what refuses them (a webhook, a policy), and so
/// they are taken to be made.
pub(crate) fn refused_now(state: &State, set: &SetPlan, traced: &Traced) -> Vec<String> {
    let (kind, key) = (traced.kind, &traced.key);
    let live: BTreeSet<&str> = state
        .all("", "pods")
        .filter_map(|pod| pod["metadata"]["uid"].as_str())
        .collect();
    // Those that are missing anyway are taken to be made before the change.
    let changes_pods = set.steps().any(|step| matches!(step.action, Action::Update));
    if !makes_pods(set)
        && !changes_pods
        && traced
            .began_with
            .iter()
            .all(|uid| live.contains(uid.to_string().as_str()))
    {
        return Vec::new();
    }
    let live = state.set(kind, key);
    let conditions = list(&live.unwrap_or(&Value::Null)["status"]["conditions"]);
    // What a quota refuses, the simulated API server refuses, too; what is no refusal, others see.
    let of_others = [
        Failure::FORBIDDEN,
        Failure::DENIED,
        "AdmissionUnavailable",
        "APIServerRefused",
    ];
    // What is wrong with the template goes with it.
    let of_the_template = [Failure::INVALID, "BadRequest", "TooLarge"];
    let stays_the_same = set.revisions_made.is_empty();
    let told = conditions.filter(|c| {
        let is_of_pods = [failed_creation(kind), failed_update(kind)]
            .iter()
            .any(|name| c["type"] == *name);
        let is_one_of = |reasons: &[&str]| reasons.iter().any(|reason| c["reason"] == *reason);
        // Policies refuse with the code of what is invalid, unless they say another; whether they would refuse other templates, nobody knows.
        let goes_on = || stays_the_same || is_denial(c["message"].as_str().unwrap_or_default());
        is_of_pods && c["status"] == "True" && (is_one_of(&of_others) || is_one_of(&of_the_template) && goes_on())
    });
    let sentence = |c: &Value| {
        format!(
            "{} in namespace {}: the API server refuses its pods now, and what refuses them is not looked at: {}: {}",
            set.set,
            set.namespace,
            c["reason"].as_str().unwrap_or_default(),
            c["message"].as_str().unwrap_or_default()
        )
    };
    told.map(sentence).collect()
}

/// Words of kubelets for a container that cannot be made, for what it reads, runs, or may.
const NOT_CREATED: [&str; 3] = [
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
];

/// What containers of the set's pods fail at before they run, where new ones are like them.
pub(crate) fn not_created_now(state: &State, set: &SetPlan, traced: &Traced) -> Vec<String> {
    // What they lack may come with the change.
    let is_read = |resource: &str| matches!(resource, "configmaps" | "secrets");
    if !makes_pods(set) || state.brings(&set.namespace, is_read) {
        return Vec::new();
    }
    let own: BTreeSet<String> = traced.began_with.iter().map(ToString::to_string).collect();
    let is_own = |pod: &&Value| pod["metadata"]["uid"].as_str().is_some_and(|uid| own.contains(uid));
    let new = &traced.spec["template"]["spec"];
    let (mut failing, mut running) = (BTreeMap::new(), BTreeSet::new());
    for pod in state.all("", "pods").filter(is_own) {
        for (containers, statuses) in [
            ("containers", "containerStatuses"),
            ("initContainers", "initContainerStatuses"),
        ] {
            for status in list(&pod["status"][statuses]) {
                let name = status["name"].as_str().unwrap_or_default();
                let waiting = &status["state"]["waiting"];
                let text = |field: &str| waiting[field].as_str().unwrap_or_default();
                let what = what_counts(text("reason"), text("message"));
                if what_it_needs(&pod["spec"], containers, name, what) != what_it_needs(new, containers, name, what) {
                    continue;
                }
                if NOT_CREATED.contains(&text("reason")) {
                    failing.entry(name).or_insert((text("reason"), text("message")));
                } else if status["ready"] == true {
                    running.insert(name);
                }
            }
        }
    }
    // What it reads may have gone since others were made; whether it can be run is up to the node, too.
    failing.retain(|name, (reason, _)| *reason == NOT_CREATED[0] || !running.contains(name));
    let sentence = |(name, (reason, message)): (&str, (&str, &str))| {
        format!(
            "{} in namespace {}: container {name} of its pods cannot be created now, and is the same in new ones: {reason}: {message}",
            set.set, set.namespace
        )
    };
    failing.into_iter().map(sentence).collect()
}

/// The fields of a container that decide whether it fails in these words of a kubelet, beside what it reads.
fn what_counts(reason: &str, message: &str) -> &'static [&'static str] {
    let of_its_user = message.contains("image") || message.contains("user");
    match reason == NOT_CREATED[0] {
        // A key that is missing is so for whatever image.
        true if !of_its_user => &[],
        true => &["image", "securityContext"],
        false => &["image", "command", "args", "securityContext", "workingDir"],
    }
}

/// What decides whether the container of this name can be created, as far as no API server fills it in: these fields of it, and what it reads.
fn what_it_needs<'v>(
    pod: &'v Value,
    containers: &str,
    name: &str,
    fields: &'static [&'static str],
) -> Option<Vec<(&'static str, &'v Value)>> {
    let container = list(&pod[containers]).find(|container| container["name"] == name)?;
    let sources = list(&container["envFrom"]).flat_map(|source| [&source["configMapRef"], &source["secretRef"]]);
    let variables = list(&container["env"]).map(|variable| &variable["valueFrom"]);
    let keys = variables.flat_map(|from| [&from["configMapKeyRef"], &from["secretKeyRef"]]);
    let needed = fields.iter().map(|field| (*field, &container[*field]));
    let of_pod = ("pod", &pod["securityContext"]);
    let needed = needed
        .chain([of_pod])
        .chain(sources.chain(keys).map(|source| ("from", source)));
    // An empty one says no more than none.
    let is_said =
        |(_, value): &(&str, &Value)| !value.is_null() && value.as_object().is_none_or(|object| !object.is_empty());
    Some(needed.filter(is_said).collect())
}

/// Whether a webhook or a policy refused it, in the words that the API server puts around theirs.
fn is_denial(message: &str) -> bool {
    let by_policy = message.contains("ValidatingAdmissionPolicy '") && message.contains(" denied request: ");
    let by_webhook = message.contains("admission webhook \"") && message.contains(" denied the request");
    by_policy || by_webhook
}
