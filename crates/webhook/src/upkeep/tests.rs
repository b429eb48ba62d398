use super::*;
use crate::certificates::Lifetimes;
use crate::registrations::{NAME, Place, SETS};
use crate::review;
use crate::serve::Server;
use flotilla_admission::Nothing;
use flotilla_model::Timestamp;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::json;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Mutex;

const SECRET: &str = "/api/v1/namespaces/ns/secrets/flotilla-webhook-certificates";

/// Objects by path, and what was written, in order.
#[derive(Clone, Default)]
struct Api(Arc<Mutex<State>>);

type State = (BTreeMap<String, Value>, Vec<String>);

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

impl Api {
    fn put(&self, path: &str, object: Value) {
        self.0.lock().unwrap().0.insert(path.to_owned(), object);
    }

    fn get(&self, path: &str) -> Option<Value> {
        self.0.lock().unwrap().0.get(path).cloned()
    }

    fn remove(&self, path: &str) {
        self.0.lock().unwrap().0.remove(path);
    }

    /// Names of what has been written since this was asked last.
    fn writes(&self) -> Vec<String> {
        let written = std::mem::take(&mut self.0.lock().unwrap().1);
        written
            .iter()
            .map(|path| path.split('/').rev().nth(1).unwrap().to_owned())
            .collect()
    }

    fn client(&self) -> kube::Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.answer(request).await) }
        });
        kube::Client::new(service, "default")
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let path = head.uri.path().to_owned();
        let body = body.collect().await.unwrap().to_bytes();
        let mut state = self.0.lock().unwrap();
        if head.method == Method::PATCH {
            let patch: Value = serde_json::from_slice(&body).unwrap();
            let known = state.0.get(&path).map(|o| o["metadata"]["resourceVersion"].clone());
            if patch
                .pointer("/metadata/resourceVersion")
                .is_some_and(|v| Some(v) != known.as_ref())
            {
                return answer(StatusCode::CONFLICT, &json!({"code": 409, "message": "stale"}));
            }
            state.1.push(path.clone());
            let version = state.1.len().to_string();
            let object = state.0.entry(path.clone()).or_insert_with(|| json!({}));
            if let Some(operations) = patch.as_array() {
                for operation in operations.iter().filter(|operation| operation["op"] == "replace") {
                    *object.pointer_mut(operation["path"].as_str().unwrap()).unwrap() = operation["value"].clone();
                }
            } else {
                merge(object, &patch);
            }
            object["metadata"]["resourceVersion"] = json!(version);
        }
        match state.0.get(&path) {
            Some(object) => answer(StatusCode::OK, object),
            None => answer(StatusCode::NOT_FOUND, &json!({"code": 404, "message": "not found"})),
        }
    }
}

fn answer(code: StatusCode, object: &Value) -> Response<Body> {
    let mut object = object.clone();
    if !code.is_success() {
        merge(
            &mut object,
            &json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": ""}),
        );
    }
    let mut response = Response::new(Body::from(object.to_string().into_bytes()));
    *response.status_mut() = code;
    response
}

struct Room {
    upkeep: Upkeep,
    fence: Fence,
    server: Option<Server>,
}

impl Room {
    /// A replica whose endpoint is served at its place, on an API server with the definition of sets.
    fn new(api: &Api) -> Self {
        let shared = Arc::new(Shared::new(Arc::new(Nothing), review::answer));
        let (server, address) = Server::start((Ipv4Addr::LOCALHOST, 0).into(), shared.clone()).unwrap();
        let options = Options {
            address,
            place: Place::Url {
                host: "127.0.0.1".to_owned(),
                port: address.port(),
            },
            namespace: "ns".to_owned(),
            only_namespace: None,
            tls_directory: None,
            lifetimes: Lifetimes::default(),
            labels_with_hashes: false,
        };
        let fence = Fence::default();
        let upkeep = Upkeep::new(options, api.client(), fence.clone(), shared);
        Room {
            upkeep,
            fence,
            server: Some(server),
        }
    }

    fn leading(api: &Api) -> Self {
        let room = Room::new(api);
        room.fence.set(Some(Timestamp::MAX));
        room
    }
}

fn api() -> Api {
    let api = Api::default();
    let versions = json!([{"name": "v1beta1", "served": true, "storage": true}, {"name": "v1alpha1", "served": false, "storage": false}]);
    let definition =
        json!({"metadata": {"name": SETS}, "spec": {"versions": versions, "conversion": {"strategy": "None"}}});
    api.put(&calls::definition_path(SETS), definition);
    api
}

fn mutating() -> String {
    format!("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{NAME}")
}

/// ADM-1, ADM-4: whoever leads makes certificates, shows them, and registers what answers; then it is silent.
#[tokio::test]
async fn the_leader_makes_what_is_missing_and_then_is_silent() {
    let api = api();
    let mut room = Room::leading(&api);
    room.upkeep.look().await.unwrap();
    assert_eq!(
        api.writes(),
        [
            "secrets",
            "mutatingwebhookconfigurations",
            "validatingwebhookconfigurations",
            "customresourcedefinitions",
            "customresourcedefinitions"
        ]
    );
    let definition = api.get(&calls::definition_path(SETS)).unwrap();
    assert_eq!(definition["spec"]["conversion"]["strategy"], "Webhook");
    assert_eq!(definition["spec"]["versions"][1]["served"], true);
    for _ in 0..3 {
        room.upkeep.look().await.unwrap();
    }
    assert_eq!(api.writes(), Vec::<String>::new());
}

/// ADM-1: what somebody changes or deletes is put back, and nothing else is written.
#[tokio::test]
async fn what_others_change_is_put_back() {
    let api = api();
    let mut room = Room::leading(&api);
    room.upkeep.look().await.unwrap();
    api.writes();
    let wanted = api.get(&mutating()).unwrap();
    api.remove(&mutating());
    room.upkeep.look().await.unwrap();
    assert_eq!(api.writes(), ["mutatingwebhookconfigurations"]);
    let mut changed = wanted.clone();
    changed["webhooks"][0]["clientConfig"]["caBundle"] = json!("");
    api.put(&mutating(), changed);
    room.upkeep.look().await.unwrap();
    assert_eq!(api.writes(), ["mutatingwebhookconfigurations"]);
    assert_eq!(api.get(&mutating()).unwrap()["webhooks"], wanted["webhooks"]);
}

/// ADM-1: nothing is registered that does not answer.
#[tokio::test]
async fn an_endpoint_that_does_not_answer_is_not_registered() {
    let api = api();
    let mut room = Room::leading(&api);
    let server = room.server.take().unwrap();
    tokio::task::spawn_blocking(move || server.stop()).await.unwrap();
    let why = room.upkeep.look().await.unwrap_err();
    assert!(why.contains("does not answer"), "{why}");
    assert_eq!(api.writes(), ["secrets"]);
    assert_eq!(api.get(&mutating()), None);
}

/// ADM-4: a replica without the lease writes nothing, waits for certificates, and shows what the Secret says.
#[tokio::test]
async fn a_standby_shows_what_the_leader_has_made() {
    let api = api();
    let mut standby = Room::new(&api);
    let why = standby.upkeep.look().await.unwrap_err();
    assert!(why.contains("no certificates yet"), "{why}");
    let mut leader = Room::leading(&api);
    leader.upkeep.look().await.unwrap();
    api.writes();
    standby.upkeep.look().await.unwrap();
    assert_eq!(standby.upkeep.shown, leader.upkeep.shown);
    assert!(standby.upkeep.shared.shows());
    assert_eq!(api.writes(), Vec::<String>::new());
    // Something broken is left to the leader; what is shown stays.
    let mut broken = api.get(SECRET).unwrap();
    broken["data"]["tls.crt"] = json!("AAAA");
    api.put(SECRET, broken);
    let why = standby.upkeep.look().await.unwrap_err();
    assert!(why.contains("tls.crt"), "{why}");
    assert!(standby.upkeep.shared.shows());
    leader.upkeep.look().await.unwrap();
    assert_eq!(
        api.writes(),
        ["secrets"],
        "signed by the same authority, so that nothing is registered anew"
    );
    standby.upkeep.look().await.unwrap();
}

/// ADM-4: a Secret that somebody else has made is replaced, and the registrations follow.
#[tokio::test]
async fn a_foreign_secret_is_replaced() {
    let api = api();
    let mut room = Room::leading(&api);
    room.upkeep.look().await.unwrap();
    api.writes();
    let mut foreign = api.get(SECRET).unwrap();
    foreign["metadata"]["labels"] = json!({});
    api.put(SECRET, foreign);
    room.upkeep.look().await.unwrap();
    assert_eq!(
        api.writes(),
        [
            "secrets",
            "mutatingwebhookconfigurations",
            "validatingwebhookconfigurations",
            "customresourcedefinitions"
        ]
    );
}

/// ADM-4: a lease that is lost between deciding and writing stops the write.
#[tokio::test]
async fn nothing_is_written_behind_the_fence() {
    let api = api();
    let room = Room::leading(&api);
    room.fence.close();
    let why = room.upkeep.calls.apply("/a/b", &json!({})).await.unwrap_err();
    assert!(why.contains("lease"), "{why}");
    assert_eq!(api.writes(), Vec::<String>::new());
}

/// ADM-4: files from outside are read at each look; while they do not belong together, what is shown stays.
#[tokio::test]
async fn files_from_outside_are_read_again() {
    let api = api();
    let mut maker = Room::leading(&api);
    maker.upkeep.look().await.unwrap();
    let first = maker.upkeep.shown.clone().unwrap();
    api.remove(SECRET);
    maker.upkeep.look().await.unwrap();
    let second = maker.upkeep.shown.clone().unwrap();
    api.remove(SECRET);
    api.writes();

    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    let mut room = Room::new(&api);
    room.upkeep.options.tls_directory = Some(directory.path().to_owned());
    let why = room.upkeep.look().await.unwrap_err();
    assert!(why.contains("ca.crt of --tls-dir"), "{why}");
    for (name, text) in [
        ("ca.crt", &first.authorities),
        ("tls.crt", &first.serving),
        ("tls.key", &first.serving_key),
    ] {
        write(name, text);
    }
    room.upkeep.look().await.unwrap();
    write("tls.crt", &second.serving);
    let why = room.upkeep.look().await.unwrap_err();
    assert!(why.contains("tls.key is not the key of tls.crt"), "{why}");
    assert_eq!(room.upkeep.shown.as_ref().unwrap().serving, first.serving);
    write("tls.key", &second.serving_key);
    write("ca.crt", &second.authorities);
    room.upkeep.look().await.unwrap();
    assert_eq!(room.upkeep.shown.as_ref().unwrap().serving, second.serving);
    assert_eq!(api.writes(), Vec::<String>::new(), "nothing is stored");
}
