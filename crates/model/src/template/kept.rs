//! A template as records keep it.

use super::{Digest, normal_form, without_resources};
use crate::packed::{Packed, text_of};
use flotilla_api::names;
use serde_json::Value;
use std::fmt;
use std::sync::{Arc, Weak};

/// A pod template with what decisions ask of it all the time; the rest is [read](Template::tree) when it is needed. Copies share it, and
/// those that come out of one [`crate::Interner`] and say the same are copies.
#[derive(Clone, PartialEq)]
pub struct Template(Arc<Kept>);

/// A template that may be forgotten.
#[derive(Clone, Debug)]
pub(crate) struct Remembered(Weak<Kept>);

#[derive(PartialEq)]
struct Kept {
    packed: Packed,
    digest: Digest,
    digest_without_resources: Digest,
    asks_what_is_of_one_pod: bool,
}

impl Template {
    /// From its JSON form. Digests are computed once, here.
    pub fn new(template: &Value) -> Self {
        Template::of(template, text_of(template).as_bytes(), None)
    }

    /// The same, where the text is known, and perhaps a template that is like it.
    pub(crate) fn of(template: &Value, text: &[u8], like: Option<&Template>) -> Self {
        let normal = normal_form(template);
        Template(Arc::new(Kept {
            packed: Packed::of_text(text, like.map(|like| &like.0.packed)),
            digest: Digest::of(&normal),
            digest_without_resources: Digest::of(&without_resources(normal)),
            asks_what_is_of_one_pod: asks_what_is_of_one_pod(template),
        }))
    }

    /// The template, whole.
    pub fn tree(&self) -> Arc<Value> {
        self.0.packed.tree()
    }

    /// Digest of the normal form: equal digests mean templates that make the same pods.
    pub fn digest(&self) -> Digest {
        self.0.digest
    }

    /// The same with container resources left out (special pods).
    pub fn digest_without_resources(&self) -> Digest {
        self.0.digest_without_resources
    }

    /// Whether one of its labels or annotations is one of [`names::OF_ONE_POD`], or of those of one kind.
    pub fn asks_what_is_of_one_pod(&self) -> bool {
        self.0.asks_what_is_of_one_pod
    }

    /// The tree is at hand and will soon be asked for.
    pub(crate) fn remember(&self, tree: &Arc<Value>, text: &[u8]) {
        self.0.packed.remember(tree, text);
    }

    pub(crate) fn weak(&self) -> Remembered {
        Remembered(Arc::downgrade(&self.0))
    }
}

impl Remembered {
    pub(crate) fn get(&self) -> Option<Template> {
        self.0.upgrade().map(Template)
    }

    pub(crate) fn is_held(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Template({:?})", self.0.digest)
    }
}

fn asks_what_is_of_one_pod(template: &Value) -> bool {
    ["labels", "annotations"].into_iter().any(|field| {
        let map = template
            .get("metadata")
            .and_then(|m| m.get(field))
            .and_then(Value::as_object);
        let of_kinds = names::OF_ONE_POD_OF_A_STATEFULSET
            .iter()
            .chain(&names::OF_ONE_POD_OF_A_CLONESET);
        let mut keys = names::OF_ONE_POD.iter().chain(of_kinds);
        map.is_some_and(|map| keys.any(|key| map.contains_key(*key)))
    })
}
