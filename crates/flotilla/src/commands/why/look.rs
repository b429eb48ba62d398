//! What a manager would know of the set: what is listed of the cluster, as far as whoever asks may list it.

use crate::cluster::{Cluster, describe};
use crate::error::Error;
use flotilla_engine::core::cache::Cache;
use flotilla_engine::core::store::Source;
use flotilla_engine::io::snapshot::{SnapshotError, snapshot};
use flotilla_engine::wire::{Encoding, Object};
use flotilla_model::records::storage_class_of;
use flotilla_model::{ObjectKey, Reader as _, Resource, SetRecord};
use flotilla_why::LiveSet;
use http::StatusCode;
use serde_json::json;
use std::collections::BTreeSet;

/// What was seen.
pub(super) struct Seen {
    /// As a manager holds it.
    pub(super) cache: Cache,
    /// What is not in it, in sentences.
    pub(super) left_out: Vec<String>,
    /// Whoever asks may list storage classes.
    pub(super) knows_classes: bool,
}

/// Looks. Who may read all of a namespace may often read nothing beside it: what decides little is left out then, and said.
pub(super) async fn look(cluster: &Cluster, found: &LiveSet) -> Result<Seen, Error> {
    let has_claims = !found.claim_templates().is_empty();
    // Those first that may be refused, since all is listed anew without them.
    let mut resources = vec![
        Resource::StorageClasses,
        Resource::Claims,
        found.kind.resource(),
        Resource::Pods,
        Resource::Revisions,
    ];
    let mut left_out = Vec::new();
    let (mut cache, unreadable) = loop {
        match snapshot(cluster.client.clone(), &resources, Some(&cluster.namespace)).await {
            Ok(seen) => break seen,
            Err(SnapshotError::Refused(resource, StatusCode::FORBIDDEN, said)) => {
                let Some(missing) = what_may_be_missing(resource, has_claims) else {
                    return Err(Error::NotPossible(
                        SnapshotError::Refused(resource, StatusCode::FORBIDDEN, said).to_string(),
                    ));
                };
                left_out.push(format!("{resource} could not be looked at, and {missing}: {said}"));
                resources.retain(|known| *known != resource);
            }
            Err(SnapshotError::Transport(resource, error)) => {
                return Err(describe(format!("list {resource}"), &error));
            }
            Err(other) => return Err(Error::NotPossible(other.to_string())),
        }
    };
    let knows_classes = resources.contains(&Resource::StorageClasses);
    if !knows_classes {
        assume_classes(&mut cache, found);
    }
    left_out.extend(unreadable.iter().map(|why| format!("{why}; it is left out here")));
    Ok(Seen {
        cache,
        left_out,
        knows_classes,
    })
}

/// What the answer lacks without these, if there is one without them.
fn what_may_be_missing(resource: Resource, has_claims: bool) -> Option<&'static str> {
    match resource {
        Resource::StorageClasses if has_claims => {
            Some("claims whose class is missing, or cannot be expanded, are not told")
        }
        Resource::StorageClasses => Some("nothing of this set rests on them"),
        // A set without claim templates may have had some.
        Resource::Claims if !has_claims => Some("claims that were left behind are not told"),
        _ => None,
    }
}

/// Classes that nobody could look at count as there, and as what can be expanded: that one is missing would be made up.
fn assume_classes(cache: &mut Cache, found: &LiveSet) {
    let set = cache.set(found.kind, &found.key).cloned();
    let templates = found.claim_templates().iter();
    let mut names: BTreeSet<String> = templates.filter_map(storage_class_of).map(str::to_owned).collect();
    names.extend(set.iter().flat_map(|set| classes_in_use(cache, set)));
    for name in names {
        let class = json!({
            "metadata": {"name": name, "uid": name, "resourceVersion": "1", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "provisioner": "", "allowVolumeExpansion": true,
        });
        let class = class.to_string().into();
        // What cannot be read is as good as not assumed.
        if let Ok(class @ Object::StorageClass(_)) = cache.read(Resource::StorageClasses, Encoding::Json, &class) {
            drop(cache.apply(class, Source::List));
        }
    }
}

/// The classes of the claims that the set's pods mount.
fn classes_in_use(cache: &Cache, set: &SetRecord) -> Vec<String> {
    let pods = cache.pods_of(set.as_owner()).iter();
    let claims = pods.flat_map(|pod| pod.claims().map(|(_, name)| name).collect::<Vec<_>>());
    let claims = claims.filter_map(|name| cache.claim(&ObjectKey::new(&*set.meta.key.namespace, name.as_str())));
    claims
        .filter_map(|claim| claim.storage_class.as_deref().map(str::to_owned))
        .collect()
}
