//! The kinds that the server serves: built-in ones, and those that stored definitions add.

mod builtin;
mod definition;

pub use definition::Definition;

use crate::store::StoreId;
use flotilla_apimachinery::status::Qualified;
use flotilla_model::Resource;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One resource of one API version.
// Each is a fact of its own, as discovery tells it.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Debug)]
pub struct TypeInfo {
    /// The API group; empty for the core.
    pub group: String,
    /// The version.
    pub version: String,
    /// The name in URLs.
    pub plural: String,
    /// The name of one.
    pub singular: String,
    /// The kind, as in manifests.
    pub kind: String,
    /// The kind of a list of them.
    pub list_kind: String,
    /// Whether objects live in namespaces.
    pub is_namespaced: bool,
    /// Short names, for people.
    pub short_names: Vec<String>,
    /// Groups of kinds that it belongs to, such as `all`.
    pub categories: Vec<String>,
    /// Whether it has the subresource `status`.
    pub has_status: bool,
    /// Whether it has the subresource `scale`.
    pub has_scale: bool,
    /// Whether changes of the spec are counted.
    pub has_generation: bool,
    /// Where objects are stored.
    pub store: StoreId,
    /// The definition, for kinds that are not built in.
    pub custom: Option<Arc<Definition>>,
}

impl TypeInfo {
    /// Group and version, as in manifests.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Group and plural, as messages name it.
    pub fn resource(&self) -> Qualified {
        Qualified::new(&self.group, &self.plural)
    }

    /// Group and kind, as messages name it.
    pub fn qualified_kind(&self) -> Qualified {
        Qualified::new(&self.group, &self.kind)
    }

    /// Whether objects can be stored at all, or only asked about.
    pub fn is_stored(&self) -> bool {
        self.store != NOT_STORED
    }
}

/// The place of kinds of which nothing is stored, such as reviews.
pub(crate) const NOT_STORED: StoreId = StoreId(u16::MAX);

/// All kinds.
#[derive(Debug)]
pub struct Types {
    all: Vec<Arc<TypeInfo>>,
    next_store: u16,
    /// Stores that definitions were given, so that one that comes back finds its objects.
    given: BTreeMap<(String, String), StoreId>,
}

impl Default for Types {
    fn default() -> Self {
        let mut types = Types {
            all: Vec::new(),
            next_store: StoreId::FIRST_FREE,
            given: BTreeMap::new(),
        };
        for row in builtin::TABLE {
            let store = if row.is_review {
                NOT_STORED
            } else {
                // Versions and views of one kind share a store.
                types.store_for(row.storage_group(), row.plural)
            };
            types.all.push(Arc::new(row.info(store)));
        }
        types
    }
}

impl Types {
    fn store_for(&mut self, group: &str, plural: &str) -> StoreId {
        let watched = [
            ("", "pods", Resource::Pods),
            ("", "persistentvolumeclaims", Resource::Claims),
            ("apps", "controllerrevisions", Resource::Revisions),
            ("apps", "statefulsets", Resource::NativeSets),
            ("apps.kruise.io", "statefulsets", Resource::AdvancedSets),
            ("storage.k8s.io", "storageclasses", Resource::StorageClasses),
            ("coordination.k8s.io", "leases", Resource::Leases),
            ("", "events", Resource::Events),
            ("", "configmaps", Resource::ConfigMaps),
            ("apps.kruise.io", "clonesets", Resource::CloneSets),
            ("", "nodes", Resource::Nodes),
            ("apps.kruise.io", "imagepulljobs", Resource::ImagePullJobs),
        ];
        if let Some((_, _, resource)) = watched.iter().find(|(g, p, _)| *g == group && *p == plural) {
            return (*resource).into();
        }
        let next = &mut self.next_store;
        *self
            .given
            .entry((group.to_owned(), plural.to_owned()))
            .or_insert_with(|| {
                *next += 1;
                StoreId(*next - 1)
            })
    }

    /// All kinds, in the order in which they are shown.
    pub fn all(&self) -> &[Arc<TypeInfo>] {
        &self.all
    }

    /// The kind behind a URL.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<TypeInfo>> {
        self.all
            .iter()
            .find(|t| t.plural == plural && t.group == group && t.version == version)
    }

    /// Whether a group has this version.
    pub fn has_version(&self, group: &str, version: &str) -> bool {
        self.all.iter().any(|t| t.group == group && t.version == version)
    }

    /// The kind whose objects are stored there, in the version that comes first.
    pub fn of_store(&self, store: StoreId) -> Option<&Arc<TypeInfo>> {
        self.all.iter().find(|t| t.store == store)
    }

    /// The store of a kind in a group, whatever its version.
    pub fn store_of_kind(&self, group: &str, kind: &str) -> Option<StoreId> {
        self.all
            .iter()
            .find(|t| t.group == group && t.kind == kind)
            .map(|t| t.store)
    }

    /// The store of a built-in kind.
    ///
    /// # Panics
    /// If there is none: the names are this crate's own.
    pub(crate) fn builtin(&self, group: &str, plural: &str) -> StoreId {
        let found = self.all.iter().find(|t| t.group == group && t.plural == plural);
        found.map(|t| t.store).expect("a built-in kind")
    }

    /// Serves what a definition says, instead of what it said before.
    pub fn define(&mut self, crd: &serde_json::Value) {
        let group = crd["spec"]["group"].as_str().unwrap_or_default();
        let plural = crd["spec"]["names"]["plural"].as_str().unwrap_or_default();
        self.undefine(group, plural);
        let store = self.store_for(group, plural);
        self.all.extend(definition::read(crd, store).into_iter().map(Arc::new));
    }

    /// Where objects of a definition are stored.
    pub(crate) fn stores_of(&self, crd: &serde_json::Value) -> Vec<StoreId> {
        let (group, plural) = (&crd["spec"]["group"], &crd["spec"]["names"]["plural"]);
        let is_meant = |t: &&Arc<TypeInfo>| t.custom.is_some() && *group == *t.group && *plural == *t.plural;
        self.all.iter().filter(is_meant).map(|t| t.store).collect()
    }

    /// Serves a kind no more.
    pub fn undefine(&mut self, group: &str, plural: &str) {
        self.all
            .retain(|t| t.custom.is_none() || t.group != group || t.plural != plural);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_managers_know_have_fixed_places() {
        let types = Types::default();
        for resource in [Resource::Pods, Resource::NativeSets, Resource::Leases, Resource::Events] {
            let store = types.builtin(
                if resource == Resource::Events {
                    ""
                } else {
                    resource.group()
                },
                resource.plural(),
            );
            assert_eq!(store, StoreId::from(resource));
            assert_eq!(store.watched(), Some(resource));
        }
        let views: Vec<_> = types
            .all()
            .iter()
            .filter(|t| t.kind == "Event")
            .map(|t| t.store)
            .collect();
        assert_eq!(views, [StoreId::from(Resource::Events); 2]);
    }
}
