//! The cluster as it is now, once: for commands that explain and run no manager.

use super::requests::encoding_of;
use crate::core::cache::Cache;
use crate::core::store::Source;
use crate::wire::{self, Encoding, Unreadable, split_list};
use flotilla_model::Resource;
use http::{Request, StatusCode};
use kube::client::Body;

/// Why the cluster could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The API server did not answer.
    #[error("cannot list {0}: {1}")]
    Transport(Resource, #[source] Box<kube::Error>),
    /// It refused.
    #[error("cannot list {0}: the API server answered {1}: {2}")]
    Refused(Resource, StatusCode, String),
    /// What it sent makes no sense.
    #[error("cannot list {0}: {1}")]
    Unreadable(Resource, String),
}

/// Lists the given kinds, in one namespace or all, into a cache. A kind that the server does not know has no objects; an object
/// that cannot be read is left out, and comes beside it.
pub async fn snapshot(
    client: kube::Client,
    resources: &[Resource],
    namespace: Option<&str>,
) -> Result<(Cache, Vec<Unreadable>), SnapshotError> {
    let (mut cache, mut unreadable) = (Cache::default(), Vec::new());
    for resource in resources {
        unreadable.extend(list(&client, namespace, *resource, &mut cache).await?);
    }
    Ok((cache, unreadable))
}

async fn list(
    client: &kube::Client,
    namespace: Option<&str>,
    resource: Resource,
    cache: &mut Cache,
) -> Result<Vec<Unreadable>, SnapshotError> {
    let transport = |e: kube::Error| SnapshotError::Transport(resource, Box::new(e));
    let request = Request::get(resource.collection_path(namespace))
        .header(http::header::ACCEPT, Encoding::preferred(resource).media_type())
        .body(Body::empty())
        .map_err(|e| SnapshotError::Unreadable(resource, e.to_string()))?;
    let response = client.send(request).await.map_err(transport)?;
    let (status, encoding) = (response.status(), encoding_of(response.headers()));
    let body = response.into_body().collect_bytes().await.map_err(transport)?;
    if status == StatusCode::NOT_FOUND {
        return Ok(Vec::new());
    }
    if !status.is_success() {
        let said = wire::status::Status::read(status.as_u16(), encoding, &body).message;
        return Err(SnapshotError::Refused(resource, status, said));
    }
    let list = split_list(encoding, &body).map_err(|why| SnapshotError::Unreadable(resource, why))?;
    let mut unreadable = Vec::new();
    for item in &list.items {
        match cache.read(resource, encoding, item) {
            Ok(object) => drop(cache.apply(object, Source::List)),
            Err(why) => unreadable.push(why),
        }
    }
    Ok(unreadable)
}
