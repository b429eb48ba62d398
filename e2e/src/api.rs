//! The API server as JSON, with waiting by watch.

use crate::clock;
use futures::StreamExt;
use http::{Method, Request};
use kube::core::WatchEvent;
use kube::{Client, Config};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

/// Objects of a collection by name.
pub type Objects = BTreeMap<String, Value>;

/// A connection to an API server. Requests that a scenario expects to work panic with what was attempted if they do not.
#[derive(Clone)]
pub struct Api {
    client: Client,
}

/// What a watch has seen, in order: what happened and to which object.
#[derive(Clone, Debug)]
pub struct Seen {
    /// ADDED, MODIFIED or DELETED.
    pub event: &'static str,
    /// The object as it was then.
    pub object: Value,
}

impl Api {
    /// Connects with a kubeconfig.
    pub async fn connect(kubeconfig: &Path) -> Self {
        let kubeconfig = kube::config::Kubeconfig::read_from(kubeconfig).expect("the harness wrote a kubeconfig");
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default())
            .await
            .expect("the kubeconfig is complete");
        config.default_retry = false;
        Api {
            client: Client::try_from(config).expect("the kubeconfig can be used"),
        }
    }

    /// The client underneath, for requests that are not JSON.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Sends a request and returns the answer, or the refusal.
    pub async fn send(&self, method: Method, path: &str, body: Option<(&str, &Value)>) -> Result<Value, kube::Error> {
        let mut request = Request::builder().method(method).uri(path);
        let mut bytes = Vec::new();
        if let Some((content_type, body)) = body {
            request = request.header("Content-Type", content_type);
            bytes = body.to_string().into_bytes();
        }
        self.client
            .request(request.body(bytes).map_err(kube::Error::HttpError)?)
            .await
    }

    /// Reads an object; `None` if it is not there.
    pub async fn get(&self, path: &str) -> Option<Value> {
        match self.send(Method::GET, path, None).await {
            Ok(object) => Some(object),
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => panic!("GET {path}: {}", chain(&error)),
        }
    }

    /// Reads an object that is there.
    pub async fn read(&self, path: &str) -> Value {
        self.get(path).await.unwrap_or_else(|| panic!("GET {path}: not found"))
    }

    /// Creates an object.
    pub async fn create(&self, collection: &str, object: &Value) -> Value {
        let sent = self
            .send(Method::POST, collection, Some(("application/json", object)))
            .await;
        sent.unwrap_or_else(|e| panic!("POST {collection}: {}", chain(&e)))
    }

    /// Creates an object that the server refuses, and returns the message.
    pub async fn create_refused(&self, collection: &str, object: &Value) -> String {
        match self
            .send(Method::POST, collection, Some(("application/json", object)))
            .await
        {
            Err(kube::Error::Api(status)) => status.message,
            Err(error) => panic!("POST {collection}: {}", chain(&error)),
            Ok(_) => panic!("POST {collection}: was accepted"),
        }
    }

    /// Changes an object by a merge patch.
    pub async fn patch(&self, path: &str, body: &Value) -> Value {
        let sent = self
            .send(Method::PATCH, path, Some(("application/merge-patch+json", body)))
            .await;
        sent.unwrap_or_else(|e| panic!("PATCH {path}: {}", chain(&e)))
    }

    /// Replaces an object.
    pub async fn put(&self, path: &str, body: &Value) -> Value {
        let sent = self.send(Method::PUT, path, Some(("application/json", body))).await;
        sent.unwrap_or_else(|e| panic!("PUT {path}: {}", chain(&e)))
    }

    /// Deletes an object or a collection; `orphan` leaves what it owns.
    pub async fn delete(&self, path: &str, orphan: bool) {
        self.delete_by(path, if orphan { "Orphan" } else { "Background" }).await;
    }

    /// Deletes an object; what it owns goes, or stays, by this policy.
    pub async fn delete_by(&self, path: &str, policy: &str) {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy});
        let sent = self
            .send(Method::DELETE, path, Some(("application/json", &options)))
            .await;
        sent.unwrap_or_else(|e| panic!("DELETE {path}: {}", chain(&e)));
    }

    /// All objects of a collection (its path may carry a query).
    pub async fn list(&self, collection: &str) -> Objects {
        self.list_at(collection).await.0
    }

    async fn list_at(&self, collection: &str) -> (Objects, String) {
        let list = self.read(collection).await;
        let version = list
            .pointer("/metadata/resourceVersion")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let items = list["items"].as_array().cloned().unwrap_or_default();
        (
            items.into_iter().map(|object| (name(&object), object)).collect(),
            version,
        )
    }

    /// Follows a collection until `done` says so, and returns it as it was then.
    ///
    /// # Panics
    /// When `within` has passed, with what was waited for and what there was.
    pub async fn until(
        &self,
        collection: &str,
        within: Duration,
        what: &str,
        mut done: impl FnMut(&Objects) -> bool,
    ) -> Objects {
        let mut last = Objects::new();
        let follow = self.follow(collection, |objects, _| {
            last.clone_from(objects);
            done(objects)
        });
        let ended = tokio::time::timeout(within, follow).await;
        assert!(
            ended.is_ok(),
            "not within {within:?}: {what}; there was: {}",
            summary(&last)
        );
        last
    }

    /// Follows a collection for a time in which `holds` must be true after every change.
    ///
    /// # Panics
    /// When it is not, with what there was.
    pub async fn throughout(
        &self,
        collection: &str,
        time: Duration,
        what: &str,
        mut holds: impl FnMut(&Objects) -> bool,
    ) {
        let follow = self.follow(collection, |objects, _| {
            assert!(holds(objects), "did not hold: {what}; there was: {}", summary(objects));
            false
        });
        // Running out of time is how this ends well.
        let _elapsed = tokio::time::timeout(time, follow).await;
    }

    /// Follows a collection through dropped connections and restarted servers, telling `look` the whole collection and what has just
    /// been seen, until it says enough.
    pub async fn follow(&self, collection: &str, mut look: impl FnMut(&Objects, Option<&Seen>) -> bool) {
        let begun = clock::now();
        loop {
            let Ok(list) = self.send(Method::GET, collection, None).await else {
                assert!(
                    begun.elapsed() < Duration::from_secs(600),
                    "GET {collection}: no answer for ten minutes"
                );
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let version = list
                .pointer("/metadata/resourceVersion")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned();
            let items = list["items"].as_array().cloned().unwrap_or_default();
            let mut objects: Objects = items.into_iter().map(|object| (name(&object), object)).collect();
            if look(&objects, None) || self.watch(collection, &version, &mut objects, &mut look).await {
                return;
            }
        }
    }

    /// One watch. True when `look` has seen enough, false when the connection has ended.
    async fn watch(
        &self,
        collection: &str,
        version: &str,
        objects: &mut Objects,
        look: &mut impl FnMut(&Objects, Option<&Seen>) -> bool,
    ) -> bool {
        let join = if collection.contains('?') { '&' } else { '?' };
        let path = format!("{collection}{join}watch=true&resourceVersion={version}");
        let request = Request::get(path).body(Vec::new()).expect("the path is valid");
        let Ok(events) = self.client.request_events::<Value>(request).await else {
            return false;
        };
        let mut events = pin!(events);
        while let Some(Ok(event)) = events.next().await {
            let seen = match event {
                WatchEvent::Added(object) => Seen { event: "ADDED", object },
                WatchEvent::Modified(object) => Seen {
                    event: "MODIFIED",
                    object,
                },
                WatchEvent::Deleted(object) => Seen {
                    event: "DELETED",
                    object,
                },
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(_) => return false,
            };
            if seen.event == "DELETED" {
                objects.remove(&name(&seen.object));
            } else {
                objects.insert(name(&seen.object), seen.object.clone());
            }
            if look(objects, Some(&seen)) {
                return true;
            }
        }
        false
    }
}

/// An error with what caused it: that of a client says only which of its layers gave up.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// An object's name.
pub fn name(object: &Value) -> String {
    text(object, "/metadata/name").to_owned()
}

/// A text in an object, empty if it is absent.
pub fn text<'o>(object: &'o Value, pointer: &str) -> &'o str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A number in an object, 0 if it is absent.
pub fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

/// Whether a pod's condition Ready is True.
pub fn is_ready(pod: &Value) -> bool {
    let conditions = pod
        .pointer("/status/conditions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    conditions
        .into_iter()
        .any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// Whether an object's deletion has been asked for.
pub fn is_terminating(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

/// The revision that a pod was made from.
pub fn revision(pod: &Value) -> &str {
    text(pod, "/metadata/labels/controller-revision-hash")
}

/// Names with what matters of each object, for messages.
fn summary(objects: &Objects) -> String {
    let line = |(name, object): (&String, &Value)| {
        let phase = text(object, "/status/phase");
        let ready = if is_ready(object) { " ready" } else { "" };
        let leaving = if is_terminating(object) { " terminating" } else { "" };
        let status = if phase.is_empty() {
            object["status"].to_string()
        } else {
            String::new()
        };
        format!("{name} {phase}{ready}{leaving} {}{status}", revision(object))
    };
    objects.iter().map(line).collect::<Vec<_>>().join("; ")
}
