//! Objects as they are stored, and what names a kind of them.

use flotilla_engine::wire::Object;
use flotilla_model::Resource;
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// Where the objects of a kind are stored. The kinds that managers watch have fixed places, so that simulations need no registry;
/// several API versions of a kind share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreId(pub(crate) u16);

/// The kinds that managers read or write, in the order of their places.
const WATCHED: [Resource; 12] = [
    Resource::Pods,
    Resource::Claims,
    Resource::Revisions,
    Resource::NativeSets,
    Resource::AdvancedSets,
    Resource::StorageClasses,
    Resource::Leases,
    Resource::Events,
    Resource::ConfigMaps,
    Resource::CloneSets,
    Resource::Nodes,
    Resource::ImagePullJobs,
];

impl StoreId {
    /// The first place that is given to kinds that managers do not know.
    pub(crate) const FIRST_FREE: u16 = WATCHED.len() as u16;

    /// The kind, if managers know it.
    pub fn watched(self) -> Option<Resource> {
        WATCHED.get(usize::from(self.0)).copied()
    }
}

impl From<Resource> for StoreId {
    fn from(resource: Resource) -> Self {
        StoreId(match resource {
            Resource::Pods => 0,
            Resource::Claims => 1,
            Resource::Revisions => 2,
            Resource::NativeSets => 3,
            Resource::AdvancedSets => 4,
            Resource::StorageClasses => 5,
            Resource::Leases => 6,
            Resource::Events => 7,
            Resource::ConfigMaps => 8,
            Resource::CloneSets => 9,
            Resource::Nodes => 10,
            Resource::ImagePullJobs => 11,
        })
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.watched() {
            Some(resource) => resource.fmt(f),
            None => write!(f, "store {}", self.0),
        }
    }
}

impl PartialEq<Resource> for StoreId {
    fn eq(&self, other: &Resource) -> bool {
        *self == StoreId::from(*other)
    }
}

/// An object as it is stored.
#[derive(Clone, Debug)]
pub struct Stored {
    form: Form,
    /// What managers read of it; `None` for kinds that they do not watch.
    pub object: Option<Object>,
    /// Its version.
    pub version: u64,
}

/// A tree is quick to change; a text takes a tenth of the memory, and a list or watch is made of texts as they are.
#[derive(Clone, Debug)]
enum Form {
    Tree(Arc<Value>),
    Text(Arc<str>),
}

impl Stored {
    pub(super) fn new(value: Value, object: Option<Object>, version: u64, is_compact: bool) -> Self {
        let form = if is_compact {
            Form::Text(value.to_string().into())
        } else {
            Form::Tree(Arc::new(value))
        };
        Stored { form, object, version }
    }

    /// The whole object.
    pub fn value(&self) -> Arc<Value> {
        match &self.form {
            Form::Tree(value) => value.clone(),
            // It was written by ourselves.
            Form::Text(text) => Arc::new(serde_json::from_str(text).unwrap_or_default()),
        }
    }

    /// A copy of the object, to be changed.
    pub fn to_value(&self) -> Value {
        match &self.form {
            Form::Tree(value) => (**value).clone(),
            Form::Text(text) => serde_json::from_str(text).unwrap_or_default(),
        }
    }

    /// The whole object as text.
    pub fn text(&self) -> Cow<'_, str> {
        match &self.form {
            Form::Tree(value) => Cow::Owned(value.to_string()),
            Form::Text(text) => Cow::Borrowed(text),
        }
    }
}
