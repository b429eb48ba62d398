//! What is asked of the API server when admission's memory does not know a name: one pod a request, and no more (rule R3).

use flotilla_admission::{Found, Memory, NamedPod, RevisionInUse};
use futures::future::BoxFuture;
use http::{Method, Request};
use serde_json::Value;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

/// How long the answer may take; then the name stays unknown.
const PATIENCE: Duration = Duration::from_secs(2);

/// A pod that a set names, and that nobody remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sought {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    /// UID of the set.
    pub(crate) set: String,
}

/// Asks the API server for a pod.
pub(crate) type Lookup = Arc<dyn Fn(Sought) -> BoxFuture<'static, Found<NamedPod>> + Send + Sync>;

/// Memory that notes the first name it was asked for in vain, or that was told of one.
pub(crate) struct Seeking<'m> {
    memory: &'m dyn Memory,
    told: Option<(Sought, Found<NamedPod>)>,
    sought: RefCell<Option<Sought>>,
}

impl<'m> Seeking<'m> {
    pub(crate) fn new(memory: &'m dyn Memory, told: Option<(Sought, Found<NamedPod>)>) -> Self {
        Seeking {
            memory,
            told,
            sought: RefCell::default(),
        }
    }

    /// The first name that was asked for in vain.
    pub(crate) fn into_sought(self) -> Option<Sought> {
        self.sought.into_inner()
    }
}

impl Memory for Seeking<'_> {
    fn storage_class_expands(&self, name: &str) -> Found<bool> {
        self.memory.storage_class_expands(name)
    }

    fn default_class_expands(&self) -> Found<bool> {
        self.memory.default_class_expands()
    }

    fn pods_in(&self, namespace: &str) -> Option<usize> {
        self.memory.pods_in(namespace)
    }

    fn claims_in(&self, namespace: &str) -> Option<usize> {
        self.memory.claims_in(namespace)
    }

    fn custom_objects(&self, group: &str, plural: &str) -> Option<usize> {
        self.memory.custom_objects(group, plural)
    }

    fn revisions_in_use(&self, namespace: &str, set: &str) -> Option<Vec<RevisionInUse>> {
        self.memory.revisions_in_use(namespace, set)
    }

    fn named_pod(&self, namespace: &str, pod: &str, set: &str) -> Found<NamedPod> {
        let found = self.memory.named_pod(namespace, pod, set);
        if found != Found::Unknown {
            return found;
        }
        // It becomes part of a path, and may be anything that somebody wrote.
        if !could_be_a_name(namespace) || !could_be_a_name(pod) {
            return Found::Missing;
        }
        let asked = Sought {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            set: set.to_owned(),
        };
        match &self.told {
            Some((sought, found)) if *sought == asked => *found,
            Some(_) => Found::Unknown,
            None => {
                self.sought.borrow_mut().get_or_insert(asked);
                Found::Unknown
            }
        }
    }
}

/// Whether there could be an object of this name: it begins with a letter or digit, and neither separates nor climbs nor asks.
fn could_be_a_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.bytes().next().is_some_and(is_plain) && text.bytes().all(|byte| is_plain(byte) || matches!(byte, b'-' | b'.'))
}

/// Asks with this client.
pub(crate) fn lookup(client: kube::Client) -> Lookup {
    Arc::new(move |sought| {
        let client = client.clone();
        Box::pin(async move {
            let asked = tokio::time::timeout(PATIENCE, read(&client, &sought)).await;
            match asked {
                Ok(Ok(found)) => found,
                Ok(Err(why)) => {
                    tracing::warn!(%why, namespace = sought.namespace, pod = sought.pod, "failed to look up a pod that a set names");
                    Found::Unknown
                }
                Err(_) => Found::Unknown,
            }
        })
    })
}

async fn read(client: &kube::Client, sought: &Sought) -> Result<Found<NamedPod>, kube::Error> {
    let path = format!("/api/v1/namespaces/{}/pods/{}", sought.namespace, sought.pod);
    let request = Request::builder().method(Method::GET).uri(path).body(Vec::new());
    match client.request::<Value>(request.map_err(kube::Error::HttpError)?).await {
        Ok(pod) => Ok(Found::Is(kept(&pod, &sought.set))),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Found::Missing),
        Err(why) => Err(why),
    }
}

/// What a pod is to the set with this UID.
fn kept(pod: &Value, set: &str) -> NamedPod {
    let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let mut owners = owners.into_iter().flatten();
    if !owners.any(|owner| owner["controller"] == true && owner["uid"] == set) {
        return NamedPod::Foreign;
    }
    match pod.pointer("/metadata/deletionTimestamp") {
        Some(_) => NamedPod::Terminating,
        None => NamedPod::Managed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flotilla_admission::Nothing;
    use serde_json::json;

    /// Rule 6: one name is looked up; others that nobody remembers stay unknown.
    #[test]
    fn one_name_is_sought() {
        let first = Seeking::new(&Nothing, None);
        for pod in ["web-aaaaa", "web-bbbbb"] {
            assert_eq!(first.named_pod("shop", pod, "u"), Found::Unknown);
        }
        let sought = first.into_sought().expect("a name nobody remembers");
        assert_eq!(sought.pod, "web-aaaaa");
        let second = Seeking::new(&Nothing, Some((sought, Found::Missing)));
        assert_eq!(second.named_pod("shop", "web-aaaaa", "u"), Found::Missing);
        assert_eq!(second.named_pod("shop", "web-bbbbb", "u"), Found::Unknown);
        assert_eq!(second.into_sought(), None);
    }

    /// The manager may read what those who name pods may not: nothing but a name leads to a request.
    #[test]
    fn rule_6_what_is_no_name_is_never_asked_for() {
        for (namespace, pod) in [
            ("shop", "../secrets/key"),
            ("shop", "web?watch=1"),
            ("shop", ".."),
            ("shop", ""),
            ("shop", "web%2F..%2Fx"),
            ("../kube-system", "web-aaaaa"),
        ] {
            let seeking = Seeking::new(&Nothing, None);
            assert_eq!(
                seeking.named_pod(namespace, pod, "u"),
                Found::Missing,
                "{namespace} {pod}"
            );
            assert_eq!(seeking.into_sought(), None, "{namespace} {pod}");
        }
        let seeking = Seeking::new(&Nothing, None);
        assert_eq!(seeking.named_pod("shop", "web.a-1", "u"), Found::Unknown);
        assert!(seeking.into_sought().is_some());
    }

    #[test]
    fn rule_6_a_pod_is_managed_by_uid() {
        let owned = |uid: &str| json!({"metadata": {"ownerReferences": [{"uid": uid, "controller": true}]}});
        assert_eq!(kept(&owned("u"), "u"), NamedPod::Managed);
        assert_eq!(kept(&owned("other"), "u"), NamedPod::Foreign);
        assert_eq!(kept(&json!({"metadata": {}}), "u"), NamedPod::Foreign);
        let mut going = owned("u");
        going["metadata"]["deletionTimestamp"] = json!("2026-07-01T09:00:00Z");
        assert_eq!(kept(&going, "u"), NamedPod::Terminating);
    }
}
