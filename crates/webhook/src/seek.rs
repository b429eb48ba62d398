//! What is asked of the API server when admission's memory does not know an answer: one pod, or one list, a request, and no more.

use crate::metrics::Metrics;
use flotilla_admission::{Counted, CustomResource, Found, Memory, NamedPod, RevisionInUse, StorageAsked};
use futures::future::BoxFuture;
use http::{Method, Request, header};
use serde_json::Value;
use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long the answer may take; then it stays unknown.
const PATIENCE: Duration = Duration::from_secs(2);
/// Of the objects of a definition only metadata is asked for.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// How many objects are looked at; of what is beyond these, the API server tells the number.
const OBJECTS_MAX: usize = 500;

/// How many questions there may be at once, after a while without any.
const QUESTIONS_MAX: u32 = 50;
/// How often one more is allowed.
const QUESTION_EVERY: Duration = Duration::from_millis(100);

/// How many questions may still be asked. Whoever reaches the port can have us ask the API server with our credentials, and waits for nothing:
/// so many that admission needs them, and not so many that the API server, or the share that it gives us, is used up by strangers. What is not
/// asked stays unknown, as when there is no answer.
#[derive(Debug)]
struct Ration(Mutex<Account>);

#[derive(Debug)]
struct Account {
    /// The moment up to which questions were paid for; those that were saved up are before now.
    paid_until: Instant,
    /// Whether it was told that there are too many; not again until one is allowed.
    is_told: bool,
}

/// Whether a question may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    /// It may, and counts.
    Granted,
    /// There were too many; `is_news` for the first of these.
    UsedUp { is_news: bool },
}

impl Ration {
    fn new() -> Self {
        Ration(Mutex::new(Account {
            paid_until: Instant::now() - QUESTION_EVERY * QUESTIONS_MAX,
            is_told: false,
        }))
    }

    fn take(&self) -> Share {
        let now = Instant::now();
        // A moment is whole whatever panicked while it was held.
        let mut account = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = account.paid_until.max(now - QUESTION_EVERY * QUESTIONS_MAX) + QUESTION_EVERY;
        if next <= now {
            (account.paid_until, account.is_told) = (next, false);
            return Share::Granted;
        }
        let is_news = !std::mem::replace(&mut account.is_told, true);
        Share::UsedUp { is_news }
    }
}

/// What nobody remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sought {
    /// A pod that a set names.
    Pod {
        namespace: String,
        pod: String,
        /// UID of the set.
        set: String,
    },
    /// How many objects of a custom resource there are.
    Objects {
        group: String,
        version: String,
        plural: String,
    },
}

impl Sought {
    /// A word for metrics.
    fn word(&self) -> &'static str {
        match self {
            Sought::Pod { .. } => "pod",
            Sought::Objects { .. } => "objects",
        }
    }

    /// That nobody could tell.
    fn unknown(&self) -> Answer {
        match self {
            Sought::Pod { .. } => Answer::Pod(Found::Unknown),
            Sought::Objects { .. } => Answer::Objects(Counted::Unknown),
        }
    }
}

/// What the API server says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Pod(Found<NamedPod>),
    Objects(Counted),
}

impl Answer {
    /// A word for metrics.
    fn word(self) -> &'static str {
        match self {
            Answer::Pod(Found::Missing) => "missing",
            Answer::Objects(Counted::Forbidden) => "forbidden",
            Answer::Pod(_) | Answer::Objects(_) => "found",
        }
    }
}

/// Asks the API server.
pub(crate) type Lookup = Arc<dyn Fn(Sought) -> BoxFuture<'static, Answer> + Send + Sync>;

/// Memory that notes what it was first asked for in vain, or that was given the answer to that.
pub(crate) struct Seeking<'m> {
    memory: &'m dyn Memory,
    answered: Option<(Sought, Answer)>,
    sought: RefCell<Option<Sought>>,
}

impl<'m> Seeking<'m> {
    pub(crate) fn new(memory: &'m dyn Memory, answered: Option<(Sought, Answer)>) -> Self {
        Seeking {
            memory,
            answered,
            sought: RefCell::default(),
        }
    }

    /// What was first asked for in vain.
    pub(crate) fn into_sought(self) -> Option<Sought> {
        self.sought.into_inner()
    }

    /// The API server's answer, if it has been asked for this; else it is noted, if nothing was before.
    fn answer(&self, asked: Sought) -> Option<Answer> {
        match &self.answered {
            Some((sought, answer)) => (*sought == asked).then_some(*answer),
            None => {
                self.sought.borrow_mut().get_or_insert(asked);
                None
            }
        }
    }
}

impl Memory for Seeking<'_> {
    fn storage_class_expands(&self, name: &str) -> Found<bool> {
        self.memory.storage_class_expands(name)
    }

    fn default_class_expands(&self) -> Found<bool> {
        self.memory.default_class_expands()
    }

    fn active_pods_in(&self, namespace: &str) -> Option<usize> {
        self.memory.active_pods_in(namespace)
    }

    fn bound_claims_in(&self, namespace: &str) -> Option<usize> {
        self.memory.bound_claims_in(namespace)
    }

    fn active_objects(&self, resource: &CustomResource<'_>) -> Counted {
        let known = self.memory.active_objects(resource);
        let parts = [resource.group, resource.version, resource.plural];
        if known != Counted::Unknown || !parts.into_iter().all(could_be_a_name) {
            return known;
        }
        let asked = Sought::Objects {
            group: resource.group.to_owned(),
            version: resource.version.to_owned(),
            plural: resource.plural.to_owned(),
        };
        match self.answer(asked) {
            Some(Answer::Objects(counted)) => counted,
            _ => Counted::Unknown,
        }
    }

    fn revisions_in_use(&self, namespace: &str, set: &str) -> Option<Vec<RevisionInUse>> {
        self.memory.revisions_in_use(namespace, set)
    }

    fn storage_asked(&self, namespace: &str, set: &str, template: &str) -> Option<StorageAsked> {
        self.memory.storage_asked(namespace, set, template)
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
        let asked = Sought::Pod {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            set: set.to_owned(),
        };
        match self.answer(asked) {
            Some(Answer::Pod(found)) => found,
            _ => Found::Unknown,
        }
    }

    fn labels_with_hashes(&self) -> bool {
        self.memory.labels_with_hashes()
    }
}

/// How long the name of an object may be (RFC 1123, as Kubernetes has it for names that are part of a path).
const NAME_BYTES_MAX: usize = 253;

/// Whether there could be an object of this name: it begins with a letter or digit, is no longer than a name may be, and neither separates nor
/// climbs nor asks.
fn could_be_a_name(text: &str) -> bool {
    if text.len() > NAME_BYTES_MAX {
        return false;
    }
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.bytes().next().is_some_and(is_plain) && text.bytes().all(|byte| is_plain(byte) || matches!(byte, b'-' | b'.'))
}

/// Asks with this client, within a ration. What became of each question is counted.
pub(crate) fn lookup(client: kube::Client, metrics: Metrics) -> Lookup {
    let ration = Arc::new(Ration::new());
    Arc::new(move |sought| {
        let (client, ration, metrics) = (client.clone(), ration.clone(), metrics.clone());
        Box::pin(async move {
            let (outcome, answered) = ask(&client, &ration, &sought).await;
            metrics.looked_up(sought.word(), outcome);
            match answered {
                Ok(answer) => return answer,
                Err(None) => {}
                Err(Some(why)) => tracing::warn!(%why, ?sought, "failed to look up what admission was asked about"),
            }
            sought.unknown()
        })
    })
}

/// What became of a question, as a word for metrics, and the answer; or why there is none, if that is news.
async fn ask(
    client: &kube::Client,
    ration: &Ration,
    sought: &Sought,
) -> (&'static str, Result<Answer, Option<String>>) {
    if let Share::UsedUp { is_news } = ration.take() {
        let why = "too many such questions; those that follow are not asked, and not told";
        return ("rationed", Err(is_news.then(|| why.to_owned())));
    }
    match tokio::time::timeout(PATIENCE, read(client, sought)).await {
        Ok(Ok(answer)) => (answer.word(), Ok(answer)),
        Ok(Err(why)) => ("failed", Err(Some(why.to_string()))),
        Err(_) => ("late", Err(Some(format!("no answer within {PATIENCE:?}")))),
    }
}

async fn read(client: &kube::Client, sought: &Sought) -> Result<Answer, kube::Error> {
    let path = match sought {
        Sought::Pod { namespace, pod, .. } => format!("/api/v1/namespaces/{namespace}/pods/{pod}"),
        Sought::Objects { group, version, plural } => format!("/apis/{group}/{version}/{plural}?limit={OBJECTS_MAX}"),
    };
    let mut request = Request::builder().method(Method::GET).uri(path);
    if matches!(sought, Sought::Objects { .. }) {
        request = request.header(header::ACCEPT, METADATA);
    }
    let request = request.body(Vec::new()).map_err(kube::Error::HttpError)?;
    match (client.request::<Value>(request).await, sought) {
        (Ok(pod), Sought::Pod { set, .. }) => Ok(Answer::Pod(Found::Is(kept(&pod, set)))),
        (Ok(objects), Sought::Objects { .. }) => Ok(Answer::Objects(Counted::Is(active(&objects)))),
        (Err(kube::Error::Api(status)), Sought::Pod { .. }) if status.code == 404 => Ok(Answer::Pod(Found::Missing)),
        (Err(kube::Error::Api(status)), Sought::Objects { .. }) if status.code == 403 => {
            Ok(Answer::Objects(Counted::Forbidden))
        }
        (Err(why), _) => Err(why),
    }
}

/// How many objects of a list are not being deleted; those beyond its first page all count.
fn active(objects: &Value) -> usize {
    let items = objects["items"].as_array().into_iter().flatten();
    let stays = |object: &&Value| object.pointer("/metadata/deletionTimestamp").is_none();
    let beyond = &objects["metadata"]["remainingItemCount"];
    items.filter(stays).count() + beyond.as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0)
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

    #[tokio::test(start_paused = true)]
    async fn strangers_cannot_have_us_ask_without_end() {
        let ration = Ration::new();
        let asked = || (0..1000).filter(|_| ration.take() == Share::Granted).count();
        assert_eq!(asked(), QUESTIONS_MAX as usize, "a burst");
        assert_eq!(asked(), 0);
        assert_eq!(ration.take(), Share::UsedUp { is_news: false }, "told once");
        tokio::time::advance(QUESTION_EVERY * 7).await;
        assert_eq!(asked(), 7, "one at a time after that");
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(asked(), QUESTIONS_MAX as usize, "no more than a burst is saved up");
    }

    /// CS-6: one name is looked up; others that nobody remembers stay unknown.
    #[test]
    fn one_name_is_sought() {
        let first = Seeking::new(&Nothing, None);
        for pod in ["web-aaaaa", "web-bbbbb"] {
            assert_eq!(first.named_pod("shop", pod, "u"), Found::Unknown);
        }
        let sought = first.into_sought().expect("a name nobody remembers");
        assert!(
            matches!(&sought, Sought::Pod { pod, .. } if pod == "web-aaaaa"),
            "{sought:?}"
        );
        let second = Seeking::new(&Nothing, Some((sought, Answer::Pod(Found::Missing))));
        assert_eq!(second.named_pod("shop", "web-aaaaa", "u"), Found::Missing);
        assert_eq!(second.named_pod("shop", "web-bbbbb", "u"), Found::Unknown);
        assert_eq!(second.into_sought(), None);
    }

    /// The manager may read what those who name pods may not: nothing but a name leads to a request.
    #[test]
    fn cs_6_what_is_no_name_is_never_asked_for() {
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
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        assert_eq!(seeking.named_pod("shop", &long, "u"), Found::Missing);
        assert_eq!(seeking.into_sought(), None, "nor is it logged that it was sought");
        let seeking = Seeking::new(&Nothing, None);
        assert_eq!(seeking.named_pod("shop", "web.a-1", "u"), Found::Unknown);
        assert!(seeking.into_sought().is_some());
    }

    #[test]
    fn cs_6_a_pod_is_managed_by_uid() {
        let owned = |uid: &str| json!({"metadata": {"ownerReferences": [{"uid": uid, "controller": true}]}});
        assert_eq!(kept(&owned("u"), "u"), NamedPod::Managed);
        assert_eq!(kept(&owned("other"), "u"), NamedPod::Foreign);
        assert_eq!(kept(&json!({"metadata": {}}), "u"), NamedPod::Foreign);
        let mut going = owned("u");
        going["metadata"]["deletionTimestamp"] = json!("2026-07-01T09:00:00Z");
        assert_eq!(kept(&going, "u"), NamedPod::Terminating);
    }

    /// what a definition defines is counted by the API server, unless memory knows it.
    #[test]
    fn r_38_objects_of_a_definition_are_counted_once() {
        let things = |group| CustomResource {
            group,
            version: "v1",
            plural: "things",
        };
        let first = Seeking::new(&Nothing, None);
        assert_eq!(first.active_objects(&things("example.com")), Counted::Unknown);
        let sought = first.into_sought().expect("nobody knows");
        for counted in [Counted::Is(0), Counted::Is(3), Counted::Forbidden] {
            let second = Seeking::new(&Nothing, Some((sought.clone(), Answer::Objects(counted))));
            assert_eq!(second.active_objects(&things("example.com")), counted);
            assert_eq!(second.active_objects(&things("example.net")), Counted::Unknown);
        }
        let sly = Seeking::new(&Nothing, None);
        assert_eq!(sly.active_objects(&things("example.com/../..")), Counted::Unknown);
        assert_eq!(sly.into_sought(), None);
    }

    #[test]
    fn r_38_objects_that_are_being_deleted_do_not_count() {
        let list = |remaining: Value| {
            json!({
                "metadata": {"remainingItemCount": remaining},
                "items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b", "deletionTimestamp": "2026-07-01T09:00:00Z"}}],
            })
        };
        assert_eq!(active(&list(Value::Null)), 1);
        assert_eq!(active(&list(json!(40))), 41);
        assert_eq!(active(&json!({"metadata": {}, "items": []})), 0);
    }

    /// An API server that knows the pod web-aaaaa, fails at web-bbbbb, and has nothing to say about web-ccccc.
    fn client() -> kube::Client {
        let service = tower::service_fn(|request: Request<kube::client::Body>| async move {
            let path = request.uri().path();
            let (code, body) = match path.rsplit('/').next() {
                Some("web-aaaaa") => (200, json!({"metadata": {}})),
                Some("web-bbbbb") => (500, json!({"code": 500, "message": "no"})),
                Some("web-ccccc") => std::future::pending().await,
                Some("widgets") => (403, json!({"code": 403, "reason": "Forbidden", "message": "no"})),
                Some("gadgets") => (200, json!({"metadata": {}, "items": []})),
                _ => (404, json!({"code": 404, "reason": "NotFound", "message": "no"})),
            };
            let body = kube::client::Body::from(serde_json::to_vec(&body).unwrap());
            let response = http::Response::builder().status(code).body(body).unwrap();
            Ok::<_, std::convert::Infallible>(response)
        });
        kube::Client::new(service, "default")
    }

    /// each question of admission is counted, by what became of it.
    #[tokio::test(start_paused = true)]
    async fn r_3_lookups_are_counted_by_outcome() {
        let metrics = Metrics::default();
        let lookup = lookup(client(), metrics.clone());
        let pod = |pod: &str| Sought::Pod {
            namespace: "shop".to_owned(),
            pod: pod.to_owned(),
            set: "u".to_owned(),
        };
        let objects = |plural: &str| Sought::Objects {
            group: "example.com".to_owned(),
            version: "v1".to_owned(),
            plural: plural.to_owned(),
        };
        let table = [
            (
                pod("web-aaaaa"),
                Answer::Pod(Found::Is(NamedPod::Foreign)),
                "pod",
                "found",
            ),
            (pod("web-zzzzz"), Answer::Pod(Found::Missing), "pod", "missing"),
            (pod("web-bbbbb"), Answer::Pod(Found::Unknown), "pod", "failed"),
            (pod("web-ccccc"), Answer::Pod(Found::Unknown), "pod", "late"),
            (objects("gadgets"), Answer::Objects(Counted::Is(0)), "objects", "found"),
            (
                objects("widgets"),
                Answer::Objects(Counted::Forbidden),
                "objects",
                "forbidden",
            ),
            (
                objects("others"),
                Answer::Objects(Counted::Unknown),
                "objects",
                "failed",
            ),
        ];
        for (sought, answer, about, outcome) in table {
            assert_eq!(lookup(sought.clone()).await, answer, "{sought:?}");
            assert_eq!(metrics.lookups(about, outcome), 1, "{sought:?}");
        }
        for _ in 0..QUESTIONS_MAX {
            lookup(pod("web-aaaaa")).await;
        }
        let before = metrics.lookups("pod", "rationed");
        for _ in 0..20 {
            lookup(pod("web-aaaaa")).await;
        }
        assert_eq!(metrics.lookups("pod", "rationed") - before, 20);
    }
}
