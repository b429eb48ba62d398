//! Waiting for something to come about, by a watch and with a bound.

use crate::cluster::{Cluster, describe};
use crate::error::Error;
use crate::patience::Silence;
use futures::StreamExt;
use http::{Method, Request};
use kube::core::WatchEvent;
use serde_json::Value;
use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;
use tokio::time::Instant;

/// Objects of a collection by name.
pub type Objects = BTreeMap<String, Value>;

/// How long one watch request lasts, in seconds. The next begins with a list.
const WATCH_SECONDS: u32 = 290;
/// A watch is begun at most so often: a server that ends each at once is not to be asked without pause.
const PAUSE: Duration = Duration::from_secs(1);

/// What became of waiting.
#[derive(Clone, Debug, PartialEq)]
pub enum Followed {
    /// It has come about.
    Done,
    /// The time is up; this was there then.
    TimeUp(Objects),
}

/// Follows a collection (its path may carry a selector) until `done` says so of what is there, for `within` at most.
pub async fn until(
    cluster: &Cluster,
    collection: &str,
    within: Duration,
    done: impl FnMut(&Objects) -> bool,
) -> Result<Followed, Error> {
    let followed = further(cluster, collection, within, done).await?;
    followed.ok_or_else(|| Error::Unreachable {
        what: format!("list {collection}"),
        cause: Silence(within).to_string(),
    })
}

/// The same for whoever has looked before: `None` if the time is up before the server has told anything.
pub async fn further(
    cluster: &Cluster,
    collection: &str,
    within: Duration,
    mut done: impl FnMut(&Objects) -> bool,
) -> Result<Option<Followed>, Error> {
    let (mut last, mut is_listed) = (Objects::new(), false);
    let follow = async {
        loop {
            let began = Instant::now();
            let version = list(cluster, collection, &mut last).await?;
            is_listed = true;
            if done(&last) || watch(cluster, collection, &version, &mut last, &mut done).await? {
                return Ok(());
            }
            tokio::time::sleep_until(began + PAUSE).await;
        }
    };
    match tokio::time::timeout(within, follow).await {
        Ok(ended) => ended.map(|()| Some(Followed::Done)),
        Err(_elapsed) => Ok(is_listed.then_some(Followed::TimeUp(last))),
    }
}

async fn list(cluster: &Cluster, collection: &str, objects: &mut Objects) -> Result<String, Error> {
    let sent = cluster.send(Method::GET, collection, None).await;
    let mut list = sent.map_err(|e| describe(format!("list {collection}"), &e))?;
    let items = list.get_mut("items").map(Value::take);
    objects.clear();
    for object in items.iter().filter_map(Value::as_array).flatten() {
        objects.insert(name(object), object.clone());
    }
    Ok(list["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default()
        .to_owned())
}

/// One watch. True when `done` is content, false when it has to be begun anew.
async fn watch(
    cluster: &Cluster,
    collection: &str,
    version: &str,
    objects: &mut Objects,
    done: &mut impl FnMut(&Objects) -> bool,
) -> Result<bool, Error> {
    let what = || format!("watch {collection}");
    let join = if collection.contains('?') { '&' } else { '?' };
    let path = format!("{collection}{join}watch=true&resourceVersion={version}&timeoutSeconds={WATCH_SECONDS}");
    let request = Request::get(path).body(Vec::new());
    let request = request.map_err(|e| describe(what(), &kube::Error::HttpError(e)))?;
    let events = cluster.client.request_events::<Value>(request).await;
    let mut events = pin!(events.map_err(|e| describe(what(), &e))?);
    // A connection that breaks, and a version that is too old, are followed by a new list.
    while let Some(Ok(event)) = events.next().await {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                objects.insert(name(&object), object);
            }
            WatchEvent::Deleted(object) => {
                objects.remove(&name(&object));
            }
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(_) => return Ok(false),
        }
        if done(objects) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}
