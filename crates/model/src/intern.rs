//! Sharing of strings and label sets between records.
//!
//! Ten thousand pods of one set repeat the same namespace, node names, labels and owner. An [`Interner`] hands out one copy
//! of each. It keeps only what somebody still uses: when it has doubled since the last sweep, in entries or in bytes, those that nobody holds go.

use crate::meta::{Labels, ObjectKey, OwnerRef, Uid};
use crate::packed::text_of;
use crate::records::{DetailSpec, VolumeClaim};
use crate::template::{Digest, Remembered, Template};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

/// Smallest number of entries at which a sweep is worth its time.
const SWEEP_AT_LEAST: usize = 1024;
/// Smallest number of new bytes at which one is: a few long texts take more memory than many entries.
const SWEEP_AT_LEAST_BYTES: usize = 16 << 20;

/// The template that a text means.
pub(crate) struct Meant {
    pub(crate) template: Template,
    /// Its tree, if that had to be made.
    pub(crate) tree: Option<Arc<Value>>,
}

/// What a text is in which a template stands: the same text means another template as another thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// The template itself.
    Bare,
    /// The `data` of a revision.
    RevisionData,
}

/// One copy of every string and of every list that records share.
#[derive(Debug, Default)]
pub struct Interner {
    /// Looked up a dozen times for each object read. Without random keys, as all that decisions rest on.
    strings: HashSet<Arc<str>, BuildHasherDefault<DefaultHasher>>,
    labels: BTreeSet<Labels>,
    owners: BTreeSet<Arc<Vec<OwnerRef>>>,
    volumes: BTreeSet<Arc<Vec<VolumeClaim>>>,
    specs: BTreeSet<Arc<DetailSpec>>,
    lists: BTreeSet<Arc<[Arc<str>]>>,
    /// By digests of texts that mean them: several texts may mean the same one.
    templates: HashMap<(Form, Digest), Remembered, BuildHasherDefault<DefaultHasher>>,
    /// By who owns them: the template that its others are like.
    typical: HashMap<ObjectKey, Remembered, BuildHasherDefault<DefaultHasher>>,
    sweep_at: usize,
    /// Bytes of the texts that were taken in since the last sweep.
    new_bytes: usize,
    /// At so many of these the next sweep is due: as many as were left by the last, or more.
    sweep_at_bytes: usize,
}

impl Interner {
    /// An empty one.
    pub fn new() -> Self {
        Interner {
            sweep_at: SWEEP_AT_LEAST,
            sweep_at_bytes: SWEEP_AT_LEAST_BYTES,
            ..Interner::default()
        }
    }

    /// The shared copy of `text`.
    pub fn string(&mut self, text: &str) -> Arc<str> {
        if let Some(found) = self.strings.get(text) {
            return found.clone();
        }
        self.sweep_if_due();
        self.new_bytes += text.len();
        let shared: Arc<str> = text.into();
        self.strings.insert(shared.clone());
        shared
    }

    /// The shared copy of a label set.
    pub fn labels<'a>(&mut self, pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Labels {
        let pairs: Vec<_> = pairs
            .into_iter()
            .map(|(k, v)| (self.string(k), self.string(v)))
            .collect();
        let labels = Labels::new(pairs);
        match self.labels.get(&labels) {
            Some(found) => found.clone(),
            None => {
                self.labels.insert(labels.clone());
                labels
            }
        }
    }

    /// The shared copy of one owner reference, strings included. `flags` are `controller` and `blockOwnerDeletion`.
    pub fn owner(&mut self, api_version: &str, kind: &str, name: &str, uid: &str, flags: (bool, bool)) -> OwnerRef {
        OwnerRef {
            api_version: self.string(api_version),
            kind: self.string(kind),
            name: self.string(name),
            uid: Uid::new(uid),
            controller: flags.0,
            block_owner_deletion: flags.1,
        }
    }

    /// The shared copy of an owner list; `None` for an empty one.
    pub fn owners(&mut self, owners: Vec<OwnerRef>) -> Option<Arc<Vec<OwnerRef>>> {
        (!owners.is_empty()).then(|| share(&mut self.owners, owners))
    }

    /// The shared copy of a list of claim volumes; `None` for an empty one.
    pub fn volumes(&mut self, volumes: Vec<VolumeClaim>) -> Option<Arc<Vec<VolumeClaim>>> {
        (!volumes.is_empty()).then(|| share(&mut self.volumes, volumes))
    }

    /// The shared copy of parts of a pod's spec.
    pub fn detail_spec(&mut self, spec: DetailSpec) -> Arc<DetailSpec> {
        share(&mut self.specs, spec)
    }

    /// The shared copy of a list of strings, such as finalizers.
    pub fn list<'a>(&mut self, texts: impl IntoIterator<Item = &'a str>) -> Arc<[Arc<str>]> {
        let list: Vec<_> = texts.into_iter().map(|text| self.string(text)).collect();
        if let Some(found) = self.lists.get(list.as_slice()) {
            return found.clone();
        }
        let shared: Arc<[Arc<str>]> = list.into();
        self.lists.insert(shared.clone());
        shared
    }

    /// The shared copy of a template. Those of one owner have most in common, and are kept so.
    pub fn template(&mut self, owner: &ObjectKey, template: &Value) -> Template {
        let text = text_of(template);
        let meant = (Form::Bare, Digest::of_bytes(text.as_bytes()));
        if let Some(known) = self.known_template(&meant) {
            return known;
        }
        let typical = self.typical.get(owner).and_then(Remembered::get);
        let template = Template::of(template, text.as_bytes(), typical.as_ref());
        if typical.is_none() {
            self.typical.insert(owner.clone(), template.weak());
        }
        self.keep_template(meant, template)
    }

    /// The shared copy of the template that a text means, with its tree if that had to be made. A text that is known is not read again;
    /// `None` if there is no template in it.
    pub(crate) fn template_in<E>(
        &mut self,
        owner: &ObjectKey,
        form: Form,
        text: &[u8],
        read: impl FnOnce(&[u8]) -> Result<Option<Value>, E>,
    ) -> Result<Option<Meant>, E> {
        let said = (form, Digest::of_bytes(text));
        if let Some(known) = self.known_template(&said) {
            return Ok(Some(Meant {
                template: known,
                tree: None,
            }));
        }
        let Some(tree) = read(text)? else { return Ok(None) };
        let template = self.template(owner, &tree);
        Ok(Some(Meant {
            template: self.keep_template(said, template),
            tree: Some(Arc::new(tree)),
        }))
    }

    fn known_template(&self, key: &(Form, Digest)) -> Option<Template> {
        self.templates.get(key).and_then(Remembered::get)
    }

    fn keep_template(&mut self, key: (Form, Digest), template: Template) -> Template {
        self.sweep_if_due();
        self.templates.insert(key, template.weak());
        template
    }

    /// How many entries are held.
    pub fn len(&self) -> usize {
        let lists = self.owners.len()
            + self.volumes.len()
            + self.specs.len()
            + self.lists.len()
            + self.templates.len()
            + self.typical.len();
        self.strings.len() + self.labels.len() + lists
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets what nobody holds any more. Lists go before the strings that they hold.
    pub fn sweep(&mut self) {
        self.owners.retain(|o| Arc::strong_count(o) > 1);
        self.volumes.retain(|v| Arc::strong_count(v) > 1);
        self.specs.retain(|s| Arc::strong_count(s) > 1);
        self.lists.retain(|l| Arc::strong_count(l) > 1);
        self.templates.retain(|_, t| t.is_held());
        self.typical.retain(|_, t| t.is_held());
        self.labels.retain(|l| !l.is_unshared());
        self.strings.retain(|s| Arc::strong_count(s) > 1);
        self.sweep_at = (self.len() * 2).max(SWEEP_AT_LEAST);
        self.sweep_at_bytes = self.bytes().max(SWEEP_AT_LEAST_BYTES);
        self.new_bytes = 0;
    }

    /// Bytes of all texts that are held.
    fn bytes(&self) -> usize {
        self.strings.iter().map(|text| text.len()).sum()
    }

    fn sweep_if_due(&mut self) {
        if self.len() >= self.sweep_at || self.new_bytes >= self.sweep_at_bytes {
            self.sweep();
        }
    }
}

fn share<T: Ord>(pool: &mut BTreeSet<Arc<T>>, value: T) -> Arc<T> {
    if let Some(found) = pool.get(&value) {
        return found.clone();
    }
    let shared = Arc::new(value);
    pool.insert(shared.clone());
    shared
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_are_one() {
        let mut interner = Interner::new();
        let (a, b) = (interner.string("x"), interner.string("x"));
        assert!(Arc::ptr_eq(&a, &b));
    }

    #[test]
    fn equal_lists_and_specs_are_one() {
        let mut interner = Interner::new();
        let (a, b) = (interner.list(["x", "y"]), interner.list(["x", "y"]));
        assert!(Arc::ptr_eq(&a, &b));
        let (c, d) = (
            interner.detail_spec(DetailSpec::default()),
            interner.detail_spec(DetailSpec::default()),
        );
        assert!(Arc::ptr_eq(&c, &d));
        drop((a, b, c, d));
        interner.sweep();
        assert!(interner.is_empty(), "nobody holds them any more");
    }

    /// One object that changes again and again in a cluster with many: entries alone would not double for long.
    #[test]
    fn long_texts_that_nobody_holds_any_more_do_not_gather() {
        let mut interner = Interner::new();
        let one_of_many = |n: usize| interner.labels([("app", "web"), ("id", format!("{n}").as_str())]);
        let live: Vec<Labels> = (0..10_000).map(one_of_many).collect();
        interner.sweep();
        let (entries, mut last) = (interner.len(), None);
        for edit in 0..1_000 {
            let text = format!("{edit:010}").repeat(10_000);
            last = Some(interner.labels([("note", text.as_str())]));
            assert!(interner.bytes() < SWEEP_AT_LEAST_BYTES + 500_000, "after {edit} edits");
        }
        assert!(
            interner.len() < 2 * entries,
            "it was not the entries that were too many"
        );
        drop((live, last));
    }

    /// Sweeping costs what is alive, and so is not done for less than that.
    #[test]
    fn where_much_is_alive_as_much_is_taken_in_between_two_sweeps() {
        let mut interner = Interner::new();
        let text = |n: usize| format!("{n:010}").repeat(10_000);
        let live: Vec<_> = (0..400).map(|n| interner.string(&text(n))).collect();
        interner.sweep();
        let alive = interner.bytes();
        assert!(alive > 2 * SWEEP_AT_LEAST_BYTES);
        for n in 0..live.len() {
            interner.string(&text(live.len() + n));
        }
        assert_eq!(interner.bytes(), 2 * alive, "not swept before as much has come");
        interner.string("the next");
        assert_eq!(interner.bytes(), alive + "the next".len());
    }

    #[test]
    fn a_sweep_forgets_only_what_nobody_holds() {
        let mut interner = Interner::new();
        let kept = interner.labels([("app", "web")]);
        for i in 0..5000 {
            interner.labels([("app", format!("gone-{i}").as_str())]);
        }
        assert!(
            interner.len() <= SWEEP_AT_LEAST + 3,
            "swept on the way: {}",
            interner.len()
        );
        interner.sweep();
        assert_eq!(interner.len(), 3, "label set, key and value");
        assert_eq!(kept.get("app"), Some("web"));
    }
}
