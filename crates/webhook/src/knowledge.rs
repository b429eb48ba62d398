//! What admission is answered from: a copy of what the manager's caches say in numbers, a few seconds old at most.

use flotilla_admission::{Counted, CustomResource, Found, Memory, NamedPod, RevisionInUse, StorageAsked};
use flotilla_engine::core::census::{ByNamespace, Census};
use flotilla_model::{ObjectKey, RevisionRecord, StorageClassRecord, Uid};
use std::sync::Arc;

/// A census as admission asks it.
#[derive(Clone, Debug, Default)]
pub struct Knowledge {
    census: Census,
    /// The only namespace that the caches know of.
    only_namespace: Option<String>,
    /// The manager runs with gate `CloneSetShortHash`.
    labels_with_hashes: bool,
}

impl Knowledge {
    /// From a census of one namespace, or all.
    pub fn new(census: Census, only_namespace: Option<String>) -> Self {
        Knowledge {
            census,
            only_namespace,
            labels_with_hashes: false,
        }
    }

    /// The same of a manager that labels pods of CloneSets with the hash of their revision alone, or does not.
    #[must_use]
    pub fn labelling_with_hashes(self, labels_with_hashes: bool) -> Self {
        Knowledge {
            labels_with_hashes,
            ..self
        }
    }

    /// The same of the same manager, which knows more by now.
    #[must_use]
    pub fn after(&self, census: Census) -> Self {
        Knowledge {
            census,
            only_namespace: self.only_namespace.clone(),
            labels_with_hashes: self.labels_with_hashes,
        }
    }

    /// Whether the caches do not reach as far as this namespace.
    fn is_elsewhere(&self, namespace: &str) -> bool {
        self.only_namespace.as_deref().is_some_and(|only| only != namespace)
    }

    fn count(&self, numbers: Option<&ByNamespace>, namespace: &str) -> Option<usize> {
        if self.is_elsewhere(namespace) {
            return None;
        }
        numbers.map(|numbers| numbers.get(namespace).copied().unwrap_or(0))
    }

    fn class(&self, pick: impl Fn(&StorageClassRecord) -> bool) -> Found<bool> {
        let Some(classes) = &self.census.storage_classes else {
            return Found::Unknown;
        };
        let newest = classes
            .iter()
            .filter(|class| pick(class))
            .max_by_key(|class| class.meta.created);
        newest.map_or(Found::Missing, |class| Found::Is(class.allows_expansion))
    }
}

impl Memory for Knowledge {
    fn storage_class_expands(&self, name: &str) -> Found<bool> {
        self.class(|class| &*class.meta.key.name == name)
    }

    fn default_class_expands(&self) -> Found<bool> {
        self.class(|class| class.is_default)
    }

    fn active_pods_in(&self, namespace: &str) -> Option<usize> {
        self.count(self.census.active_pods.as_ref(), namespace)
    }

    fn bound_claims_in(&self, namespace: &str) -> Option<usize> {
        self.count(self.census.bound_claims.as_ref(), namespace)
    }

    fn active_objects(&self, resource: &CustomResource<'_>) -> Counted {
        let known = match (resource.group, resource.plural) {
            _ if self.only_namespace.is_some() => None,
            ("apps.kruise.io", "statefulsets") => self.census.advanced_sets,
            ("apps.kruise.io", "clonesets") => self.census.clone_sets,
            _ => None,
        };
        known.map_or(Counted::Unknown, Counted::Is)
    }

    fn revisions_in_use(&self, namespace: &str, set: &str) -> Option<Vec<RevisionInUse>> {
        if self.is_elsewhere(namespace) {
            return None;
        }
        let known = self
            .census
            .revisions_in_use
            .as_ref()?
            .get(&ObjectKey::new(namespace, set));
        let in_use = |revision: &Arc<RevisionRecord>| {
            Some(RevisionInUse {
                name: revision.name().into(),
                template: revision.template.as_ref()?.tree(),
            })
        };
        Some(known.into_iter().flatten().filter_map(in_use).collect())
    }

    fn storage_asked(&self, namespace: &str, set: &str, template: &str) -> Option<StorageAsked> {
        if self.is_elsewhere(namespace) {
            return None;
        }
        let known = self.census.storage_asked.as_ref()?;
        let asked = known.get(&ObjectKey::new(namespace, set))?.get(template)?;
        Some(StorageAsked {
            recorded: asked.recorded.clone(),
            smallest_claim: asked.smallest_claim,
        })
    }

    fn named_pod(&self, _: &str, pod: &str, set: &str) -> Found<NamedPod> {
        let pods = self.census.clone_pods.as_ref().and_then(|all| all.get(&Uid::new(set)));
        let found = pods.and_then(|pods| {
            let place = pods.binary_search_by(|known| known.name().cmp(pod)).ok()?;
            pods.get(place)
        });
        match found {
            // It may be too young to be remembered, or somebody else's.
            None => Found::Unknown,
            Some(pod) if pod.is_terminating() => Found::Is(NamedPod::Terminating),
            Some(_) => Found::Is(NamedPod::Managed),
        }
    }

    fn labels_with_hashes(&self) -> bool {
        self.labels_with_hashes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flotilla_engine::core::census::Asked;
    use flotilla_model::{Labels, Meta, Timestamp, Uid};
    use serde_json::json;
    use std::collections::BTreeMap;

    fn meta(namespace: &str, name: &str, created: i64) -> Meta {
        Meta {
            key: ObjectKey::new(namespace, name),
            uid: Uid::new(name),
            resource_version: 1,
            created: Timestamp::from_seconds(created),
            deleted: None,
            labels: Labels::default(),
            owners: None,
        }
    }

    fn class(name: &str, created: i64, allows_expansion: bool) -> Arc<StorageClassRecord> {
        Arc::new(StorageClassRecord {
            meta: meta("", name, created),
            allows_expansion,
            is_default: true,
        })
    }

    fn resource(group: &'static str, plural: &'static str) -> CustomResource<'static> {
        CustomResource {
            group,
            version: "v1beta1",
            plural,
        }
    }

    /// ADM-5: a webhook called while caches are not ready says that it does not know.
    #[test]
    fn nothing_is_known_before_the_first_census() {
        let nothing = Knowledge::default();
        assert_eq!(nothing.active_pods_in("shop"), None);
        assert_eq!(nothing.bound_claims_in("shop"), None);
        assert_eq!(
            nothing.active_objects(&resource("apps.kruise.io", "statefulsets")),
            Counted::Unknown
        );
        assert_eq!(nothing.storage_class_expands("fast"), Found::Unknown);
        assert_eq!(nothing.default_class_expands(), Found::Unknown);
        assert_eq!(nothing.revisions_in_use("shop", "web"), None);
    }

    #[test]
    fn a_census_answers() {
        let census = Census {
            active_pods: Some(ByNamespace::from([("shop".into(), 3)])),
            bound_claims: Some(ByNamespace::new()),
            advanced_sets: Some(2),
            clone_sets: Some(3),
            clone_pods: None,
            revisions_in_use: Some(BTreeMap::from([(ObjectKey::new("shop", "web"), vec![revision()])])),
            storage_asked: Some(BTreeMap::from([(
                ObjectKey::new("shop", "web"),
                BTreeMap::from([(
                    "data".into(),
                    Asked {
                        recorded: vec![10],
                        smallest_claim: Some(20),
                    },
                )]),
            )])),
            storage_classes: Some(vec![class("old", 1, true), class("new", 2, false)]),
        };
        let all = Knowledge::new(census.clone(), None);
        assert_eq!(
            (
                all.active_pods_in("shop"),
                all.active_pods_in("other"),
                all.bound_claims_in("shop")
            ),
            (Some(3), Some(0), Some(0))
        );
        assert_eq!(
            all.active_objects(&resource("apps.kruise.io", "statefulsets")),
            Counted::Is(2)
        );
        assert_eq!(
            all.active_objects(&resource("apps.kruise.io", "clonesets")),
            Counted::Is(3)
        );
        assert_eq!(
            all.active_objects(&resource("example.test", "statefulsets")),
            Counted::Unknown
        );
        assert_eq!(all.storage_class_expands("old"), Found::Is(true));
        assert_eq!(all.storage_class_expands("none"), Found::Missing);
        assert_eq!(
            all.default_class_expands(),
            Found::Is(false),
            "the newest default counts"
        );
        let in_use = all.revisions_in_use("shop", "web").expect("known");
        assert_eq!(in_use.iter().map(|r| &*r.name).collect::<Vec<_>>(), ["web-1"]);
        assert_eq!(*in_use[0].template, json!({"spec": {"containers": []}}));
        assert_eq!(all.revisions_in_use("shop", "db"), Some(Vec::new()), "it has no pods");
        let asked = all.storage_asked("shop", "web", "data").expect("known");
        assert_eq!((asked.recorded, asked.smallest_claim), (vec![10], Some(20)));
        assert_eq!(
            all.storage_asked("shop", "web", "new"),
            None,
            "its template is too young"
        );
        let one = Knowledge::new(census, Some("shop".to_owned()));
        assert_eq!(
            (one.active_pods_in("shop"), one.active_pods_in("other")),
            (Some(3), None)
        );
        assert_eq!(
            one.active_objects(&resource("apps.kruise.io", "statefulsets")),
            Counted::Unknown
        );
        assert_eq!(one.revisions_in_use("other", "web"), None);
        assert!(!one.labels_with_hashes());
        let hashes = one.labelling_with_hashes(true).after(Census::default());
        assert!(hashes.labels_with_hashes() && hashes.is_elsewhere("other"));
        assert_eq!(hashes.active_pods_in("shop"), None, "what it knew is forgotten");
    }

    fn revision() -> Arc<RevisionRecord> {
        let data = json!({"spec": {"template": {"$patch": "replace", "spec": {"containers": []}}}});
        Arc::new(RevisionRecord::new(meta("shop", "web-1", 1), 1, &data, None))
    }
}
