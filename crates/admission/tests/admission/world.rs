//! Requests, and a process that knows what a test tells it.

use flotilla_admission::{
    Counted, CustomResource, Found, Memory, NamedPod, Operation, Reply, Request, RevisionInUse, StorageAsked, Verdict,
    apply,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A process that knows what is written here; what is absent from a map does not exist.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) classes: BTreeMap<&'static str, bool>,
    pub(crate) default_class: Option<bool>,
    pub(crate) pods: usize,
    pub(crate) claims: usize,
    pub(crate) objects: usize,
    pub(crate) revisions: Vec<RevisionInUse>,
    pub(crate) storage: Option<StorageAsked>,
    pub(crate) named: BTreeMap<&'static str, NamedPod>,
    pub(crate) labels_with_hashes: bool,
}

impl Memory for World {
    fn storage_class_expands(&self, name: &str) -> Found<bool> {
        self.classes
            .get(name)
            .map_or(Found::Missing, |expands| Found::Is(*expands))
    }

    fn default_class_expands(&self) -> Found<bool> {
        self.default_class.map_or(Found::Missing, Found::Is)
    }

    fn active_pods_in(&self, _: &str) -> Option<usize> {
        Some(self.pods)
    }

    fn bound_claims_in(&self, _: &str) -> Option<usize> {
        Some(self.claims)
    }

    fn active_objects(&self, resource: &CustomResource<'_>) -> Counted {
        match *resource {
            CustomResource {
                group: "example.com",
                version: "v2",
                plural: "things",
            } => Counted::Is(self.objects),
            _ => Counted::Forbidden,
        }
    }

    fn revisions_in_use(&self, _: &str, _: &str) -> Option<Vec<RevisionInUse>> {
        Some(self.revisions.clone())
    }

    fn storage_asked(&self, _: &str, _: &str, _: &str) -> Option<StorageAsked> {
        self.storage.clone()
    }

    fn named_pod(&self, _: &str, pod: &str, _: &str) -> Found<NamedPod> {
        match self.named.get(pod) {
            Some(found) => Found::Is(*found),
            None if pod.starts_with("young") => Found::Unknown,
            None => Found::Missing,
        }
    }

    fn labels_with_hashes(&self) -> bool {
        self.labels_with_hashes
    }
}

/// A request about an object, by default a creation of an Advanced StatefulSet.
pub(crate) fn request<'a>(object: Option<&'a Value>, old: Option<&'a Value>) -> Request<'a> {
    let any = object.or(old).expect("a request is about something");
    let text = |pointer: &str| any.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("/apiVersion").split_once('/').unwrap_or(("", text("/apiVersion")));
    Request {
        uid: "6b4b3fd8-7b2a-4d5c-9a3e-0d0f3a1c2b4d",
        operation: match (object, old) {
            (Some(_), None) => Operation::Create,
            (Some(_), Some(_)) => Operation::Update,
            (None, _) => Operation::Delete,
        },
        group,
        version,
        kind: text("/kind"),
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name"),
        object,
        old_object: old,
        dry_run: false,
    }
}

/// A set that breaks no rule, with a pod of one container.
pub(crate) fn set() -> Value {
    json!({
        "apiVersion": "apps.kruise.io/v1beta1",
        "kind": "StatefulSet",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "replicas": 3,
            "serviceName": "web",
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "web:1"}]},
            },
        },
    })
}

/// The set with changes at JSON pointers; `null` takes a field away.
pub(crate) fn with(mut object: Value, changes: &[(&str, Value)]) -> Value {
    for (pointer, value) in changes {
        put(&mut object, pointer, value.clone());
    }
    object
}

fn put(mut place: &mut Value, pointer: &str, value: Value) {
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        place = match step.parse::<usize>() {
            Ok(index) => &mut place[index],
            Err(_) => &mut place[step],
        };
    }
    *place = value;
}

/// What a reply refuses, with its code.
pub(crate) fn refusal(reply: &Reply) -> Option<(u16, &str)> {
    match &reply.verdict {
        Verdict::Deny(refusal) => Some((refusal.code, refusal.message.as_str())),
        _ => None,
    }
}

/// The object after the reply's patch.
pub(crate) fn patched(object: &Value, reply: &Reply) -> Value {
    match &reply.verdict {
        Verdict::Allow => object.clone(),
        Verdict::Mutate(operations) => apply(object, operations).expect("the patch fits the object"),
        Verdict::Deny(refusal) => panic!("refused: {}", refusal.message),
    }
}

/// How an answer is not what was expected; no words means that it is accepted.
pub(crate) fn unlike(reply: &Reply, words: &[&str]) -> Option<String> {
    match refusal(reply) {
        None if words.is_empty() => None,
        None => Some(format!("was accepted, but should be refused with {words:?}")),
        Some((_, message)) => {
            let is_told = !words.is_empty() && words.iter().all(|word| message.contains(word));
            (!is_told).then(|| format!("expected {words:?}, got: {message}"))
        }
    }
}
