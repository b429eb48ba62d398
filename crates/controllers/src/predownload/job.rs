//! The jobs: which images, under which names, and what they say (STS-5.4).

use crate::shared::revision;
use flotilla_api::names;
use flotilla_model::decision::Body;
use flotilla_model::int_or_percent::Share;
use flotilla_model::template::{Template, revision_hash};
use flotilla_model::{Command, ObjectKey, OwnerRef, Report, Resource, RevisionRecord, SetRecord};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Longest name of an object.
const LONGEST_NAME: usize = 253;
const BACKOFF_LIMIT: i32 = 1;
/// How long a job stays after it has ended.
const TTL_SECONDS: i32 = 600;

/// Where a template names images: the list, the image in an entry, and what tells its entries from those of other lists in names of jobs.
/// Names of containers, sidecars and init containers included, differ from each other already.
const PLACES: [(&str, &str, &str); 3] = [
    ("/spec/containers", "/image", ""),
    ("/spec/initContainers", "/image", ""),
    ("/spec/volumes", "/image/reference", "volume-"),
];

/// An image that is to be pulled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Name of the job.
    pub(super) name: String,
    /// The image.
    pub(super) image: String,
}

/// The images that are new in the template of `update`: for each container, and each volume that is an image, whose image is not that of
/// the same name in the template of `current`.
pub(super) fn wanted(current: &Value, update: &RevisionRecord) -> Vec<Wanted> {
    let mut taken = BTreeSet::new();
    let mut jobs = Vec::new();
    let Some(template) = update.template.as_ref().map(Template::tree) else {
        return jobs;
    };
    for (list, at, mark) in PLACES {
        let known = entries(current, list, at);
        for (entry, image) in entries(&template, list, at) {
            if known.contains(&(entry, image)) {
                continue;
            }
            let name = name(update.name(), &format!("{mark}{entry}"), &taken);
            taken.insert(name.clone());
            let image = image.to_owned();
            jobs.push(Wanted { name, image });
        }
    }
    jobs
}

/// Entries of a list by their names, with the text that each has there.
fn entries<'t>(template: &'t Value, list: &str, at: &str) -> Vec<(&'t str, &'t str)> {
    let entries = template.pointer(list).and_then(Value::as_array);
    let named = |entry: &'t Value| {
        let text = entry.pointer(at)?.as_str().filter(|text| !text.is_empty())?;
        Some((entry.get("name")?.as_str()?, text))
    };
    entries.into_iter().flatten().filter_map(named).collect()
}

/// `REVISION-ENTRY`; what is too long, or another's already, ends in a hash instead.
fn name(revision: &str, entry: &str, taken: &BTreeSet<String>) -> String {
    let plain = format!("{revision}-{entry}");
    if plain.len() <= LONGEST_NAME && !taken.contains(&plain) {
        return plain;
    }
    let mut hashed = plain.clone();
    let mut count = 0;
    while hashed == plain || taken.contains(&hashed) {
        let hash = revision_hash(&plain, count);
        let kept: String = plain.chars().take(LONGEST_NAME - 1 - hash.len()).collect();
        hashed = format!("{}-{hash}", kept.trim_end_matches(['-', '.']));
        count += 1;
    }
    hashed
}

/// What makes a job.
pub(super) fn create(set: &SetRecord, owner: &OwnerRef, update: &RevisionRecord, job: &Wanted) -> Command {
    let key = set.meta.key.sibling(&*job.name);
    Command::Create {
        resource: Resource::ImagePullJobs,
        body: Body::Json(Arc::new(body(set, owner, update, (&key, &job.image)))),
        key,
        // It may be of a former set of that name, or of another manager: the image is pulled all the same.
        exists_is_fine: true,
        guard: None,
        report: Report::PullImage,
    }
}

fn body(set: &SetRecord, owner: &OwnerRef, update: &RevisionRecord, (key, image): (&ObjectKey, &str)) -> Value {
    let template = update.template.as_ref().map(Template::tree);
    let template = template.as_deref().unwrap_or(&Value::Null);
    let hash = revision::short(update.name());
    let mut labels = texts(template, "/metadata/labels");
    labels.insert(names::REVISION_HASH_LABEL.to_owned(), json!(hash));
    let mut selector = set.spec.selector.to_json();
    // Only nodes of pods that are not updated yet; their label may be the hash alone (CS-12.6).
    let forms = [update.name(), hash]
        .into_iter()
        .filter(|form| revision::fits_into_a_label(form));
    let forms: Vec<&str> = forms.collect();
    let not_updated = json!({"key": names::REVISION_LABEL, "operator": "NotIn", "values": forms});
    match selector.get_mut("matchExpressions").and_then(Value::as_array_mut) {
        Some(expressions) => expressions.push(not_updated),
        None => selector["matchExpressions"] = json!([not_updated]),
    }
    let mut sandbox = json!({"labels": labels});
    let annotations = texts(template, "/metadata/annotations");
    if !annotations.is_empty() {
        sandbox["annotations"] = Value::Object(annotations);
    }
    let mut spec = json!({
        "image": image,
        "podSelector": selector,
        "parallelism": parallelism(set),
        "pullPolicy": {"timeoutSeconds": set.spec.pre_download.timeout_seconds, "backoffLimit": BACKOFF_LIMIT},
        "completionPolicy": {"type": "Always", "ttlSecondsAfterFinished": TTL_SECONDS},
        "sandboxConfig": sandbox,
    });
    let secrets = entries(template, "/spec/imagePullSecrets", "/name");
    if !secrets.is_empty() {
        spec["pullSecrets"] = secrets.into_iter().map(|(name, _)| name).collect();
    }
    json!({
        "apiVersion": Resource::ImagePullJobs.api_version(),
        "kind": Resource::ImagePullJobs.kind(),
        "metadata": {
            "name": key.name.as_str(), "namespace": &*key.namespace, "labels": labels, "ownerReferences": [owner.to_json()],
        },
        "spec": spec,
    })
}

/// A number: not everybody who carries jobs out knows percentages. There are at most as many nodes as pods.
fn parallelism(set: &SetRecord) -> i32 {
    match set.spec.pre_download.parallelism {
        Share::Int(nodes) => nodes,
        share @ Share::Percent(_) => share.ceil_of(set.spec.replicas).max(1),
    }
}

fn texts(template: &Value, at: &str) -> Map<String, Value> {
    let entries = template.pointer(at).and_then(Value::as_object).into_iter().flatten();
    let texts = entries.filter(|(_, value)| value.is_string());
    texts.map(|(key, value)| (key.clone(), value.clone())).collect()
}
