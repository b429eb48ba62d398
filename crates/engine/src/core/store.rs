//! The cache of one kind: what the watch said, overlaid with the answers to our own writes.
//!
//! Every fact carries the object's version, and versions of one kind may be compared, so facts may arrive in any order: an older
//! one never replaces a newer one. That alone makes the answer of a write an overlay which the watch retires by catching up.
//! What versions cannot express is absence, and there are two ways to know of it. A watch delivers a kind in order of versions, so
//! an answer, or an event that is delivered again, that is not newer than what the watch has reached, about an object that is not
//! stored, is about one that is gone.
//! And an object that we know to be gone before the watch says so leaves a *tombstone*, by UID, until it does.

use flotilla_model::{
    ClaimRecord, ConfigMapRecord, ImagePullJobRecord, Meta, NodeRecord, ObjectKey, Owner, OwnerRef, PodRecord, Record,
    RevisionRecord, SetRecord, StorageClassRecord, Uid,
};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

/// Tombstones kept at most. One lives for the time between a deletion's answer and its watch event, usually milliseconds.
const TOMBSTONES_MAX: usize = 16_384;

/// A hasher without random keys, so that a simulated run can be repeated exactly.
type FixedHasher = BuildHasherDefault<DefaultHasher>;

/// Under which heading a record is found beside its key.
#[derive(Clone, Copy, Debug)]
pub enum Index<'a> {
    /// Under the UID of an owner, with what else tells it from others.
    Owner(&'a OwnerRef),
    /// Under its namespace.
    Namespace(&'a Arc<str>),
    /// Under its key only.
    None,
}

/// A record that a [`Store`] can hold.
pub trait Stored: Record + Clone + PartialEq {
    /// Where else it is found.
    fn index(&self) -> Index<'_>;
    /// Whether `other` says the same, its version aside. Such a change wakes nobody.
    fn says_the_same(&self, other: &Self) -> bool;
    /// Names of the claims that it mounts.
    fn claims(&self) -> Vec<String> {
        Vec::new()
    }
}

fn owner_or_namespace(meta: &Meta) -> Index<'_> {
    meta.controller()
        .map_or(Index::Namespace(&meta.key.namespace), Index::Owner)
}

macro_rules! stored {
    ($($record:ident, $this:ident => $index:expr;)*) => { $(
        impl Stored for $record {
            fn index(&self) -> Index<'_> {
                let $this = self;
                $index
            }
            fn says_the_same(&self, other: &Self) -> bool {
                let meta = Meta { resource_version: other.meta.resource_version, ..self.meta.clone() };
                $record { meta, ..self.clone() } == *other
            }
        }
    )* };
}
impl Stored for PodRecord {
    fn index(&self) -> Index<'_> {
        owner_or_namespace(&self.meta)
    }
    fn says_the_same(&self, other: &Self) -> bool {
        let resource_version = other.meta.resource_version;
        let meta = Meta {
            resource_version,
            ..self.meta.clone()
        };
        PodRecord { meta, ..self.clone() } == *other
    }
    fn claims(&self) -> Vec<String> {
        PodRecord::claims(self).map(|(_, claim)| claim).collect()
    }
}

stored! {
    RevisionRecord, record => owner_or_namespace(&record.meta);
    SetRecord, record => Index::Namespace(&record.meta.key.namespace);
    ClaimRecord, record => record.owner().map_or(Index::None, Index::Owner);
    ConfigMapRecord, _record => Index::None;
    StorageClassRecord, _record => Index::None;
}

/// Records of nothing but metadata.
macro_rules! stored_meta {
    ($($record:ident, $meta:ident => $index:expr;)*) => { $(
        impl Stored for $record {
            fn index(&self) -> Index<'_> {
                let $meta = &self.meta;
                $index
            }
            fn says_the_same(&self, other: &Self) -> bool {
                let resource_version = other.meta.resource_version;
                Meta { resource_version, ..self.meta.clone() } == other.meta
            }
        }
    )* };
}
stored_meta! {
    NodeRecord, _meta => Index::None;
    ImagePullJobRecord, meta => meta.controller().map_or(Index::None, Index::Owner);
}

/// Where a fact comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A watch event.
    Watch,
    /// An item of a list.
    List,
    /// The answer to a request of ours: ahead of the watch.
    Answer,
}

/// An object before and after; at least one side is there.
#[derive(Clone, Debug)]
pub struct Changed<R> {
    /// Before.
    pub old: Option<Arc<R>>,
    /// After.
    pub new: Option<Arc<R>>,
}

/// That a record mounts a claim: by the hash of the claim's namespace and name, which are in the record.
#[derive(Debug)]
struct Mount<R> {
    hash: u64,
    record: Arc<R>,
}

/// The cache of one kind; see the module's description.
#[derive(Debug)]
pub struct Store<R> {
    table: HashTable<Arc<R>>,
    /// For each claim that a record mounts, the record.
    mounts: HashTable<Mount<R>>,
    by_owner: HashMap<Uid, Vec<Arc<R>>, FixedHasher>,
    by_namespace: HashMap<Arc<str>, Vec<Arc<R>>, FixedHasher>,
    hasher: FixedHasher,
    /// Up to which version the watch, or the last list, has told everything.
    caught_up: u64,
    /// Incarnations known to be gone ahead of the watch, with the number of lists begun when that became known.
    tombstones: HashMap<Uid, u64, FixedHasher>,
    tombstone_order: VecDeque<Uid>,
    /// Keys whose stored version is ahead of the watch.
    overlay: HashMap<ObjectKey, u64, FixedHasher>,
    lists_begun: u64,
    /// UIDs that the list under way has named.
    listed: Option<HashSet<Uid, FixedHasher>>,
}

impl<R> Default for Store<R> {
    fn default() -> Self {
        Store {
            table: HashTable::new(),
            mounts: HashTable::new(),
            by_owner: HashMap::default(),
            by_namespace: HashMap::default(),
            hasher: FixedHasher::default(),
            caught_up: 0,
            tombstones: HashMap::default(),
            tombstone_order: VecDeque::new(),
            overlay: HashMap::default(),
            lists_begun: 0,
            listed: None,
        }
    }
}

impl<R: Stored> Store<R> {
    /// The object with this key.
    pub fn get(&self, key: &ObjectKey) -> Option<&Arc<R>> {
        self.table.find(self.hasher.hash_one(key), |r| r.meta().key == *key)
    }

    /// Objects that this owner manages, sorted by name. Whoever names its UID in another namespace, or with another kind or name, is
    /// none of them.
    pub fn of_owner(&self, owner: Owner<'_>) -> &[Arc<R>] {
        let rows = self.by_owner.get(owner.uid).map_or(&[][..], Vec::as_slice);
        let wanted = (owner.namespace, owner.kind, owner.name);
        let is_wanted = |row: Option<&Arc<R>>| row.is_some_and(|row| owner_of(&**row) == wanted);
        if is_wanted(rows.first()) && is_wanted(rows.last()) {
            // As good as always: a UID has one name.
            return rows;
        }
        let start = rows.partition_point(|row| owner_of(&**row) < wanted);
        let end = start + rows[start..].partition_point(|row| owner_of(&**row) == wanted);
        &rows[start..end]
    }

    /// Objects found under their namespace, sorted by name: those without a managing owner, or all where owners do not matter.
    pub fn in_namespace(&self, namespace: &str) -> &[Arc<R>] {
        self.by_namespace.get(namespace).map_or(&[], Vec::as_slice)
    }

    /// Objects that mount this claim, whoever manages them, sorted by name.
    pub fn mounting(&self, claim: &ObjectKey) -> Vec<&Arc<R>> {
        let hash = self.hash_of_mount(&claim.namespace, &claim.name);
        let found = self.mounts.iter_hash(hash).map(|mount| &mount.record);
        let mounts = |record: &&Arc<R>| {
            let is_there = *record.meta().key.namespace == *claim.namespace;
            is_there && record.claims().iter().any(|name| *name == *claim.name)
        };
        let mut found: Vec<_> = found.filter(mounts).collect();
        found.sort_by_key(|record| &record.meta().key.name);
        // One that mounts it twice is there twice.
        found.dedup_by_key(|record| &record.meta().key.name);
        found
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// All objects, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<R>> {
        self.table.iter()
    }

    /// Takes in that the object exists and is like this. `None` if that was known, or nothing that anybody reads has changed.
    pub fn apply(&mut self, new: Arc<R>, source: Source) -> Option<Changed<R>> {
        let meta = new.meta();
        let reached = self.caught_up;
        match (source, &mut self.listed) {
            (Source::List, Some(listed)) => {
                listed.insert(meta.uid.clone());
            }
            (Source::Watch, _) => self.caught_up = self.caught_up.max(meta.resource_version),
            (Source::List, None) | (Source::Answer, _) => {}
        }
        if source != Source::Answer {
            self.retire_overlay(&meta.key, meta.resource_version);
        }
        if self.tombstones.contains_key(&meta.uid) {
            return None;
        }
        let old = self.get(&meta.key).cloned();
        let known_up_to = match &old {
            Some(old) => old.meta().resource_version,
            None if source == Source::List => 0,
            None => reached,
        };
        if meta.resource_version <= known_up_to {
            return None;
        }
        if source == Source::Answer {
            self.overlay.insert(meta.key.clone(), meta.resource_version);
        }
        self.insert(new.clone());
        if old.as_ref().is_some_and(|old| old.says_the_same(&new)) {
            return None;
        }
        Some(Changed { old, new: Some(new) })
    }

    /// The watch saw this incarnation deleted at `version`.
    pub fn apply_deleted(&mut self, key: &ObjectKey, uid: &Uid, version: u64) -> Option<Changed<R>> {
        self.tombstones.remove(uid);
        self.caught_up = self.caught_up.max(version);
        self.retire_overlay(key, version);
        self.remove_if(key, |meta| meta.uid == *uid || meta.resource_version < version)
    }

    /// An answer of the server shows that this incarnation is gone. If it is still stored, the watch has not said so yet and may
    /// deliver older news of it, which the tombstone keeps out.
    pub fn apply_gone(&mut self, key: &ObjectKey, uid: &Uid) -> Option<Changed<R>> {
        let changed = self.remove_if(key, |meta| meta.uid == *uid)?;
        self.bury(uid);
        Some(changed)
    }

    /// A list begins; what it does not name will be gone when it ends. Beginning again forgets an unfinished one.
    pub fn begin_list(&mut self) {
        self.lists_begun += 1;
        self.listed = Some(HashSet::default());
    }

    /// The list names an object that cannot be read: what was known of it stays.
    pub fn names(&mut self, key: &ObjectKey) {
        let known = self.get(key).map(|record| record.meta().uid.clone());
        if let (Some(listed), Some(uid)) = (&mut self.listed, known) {
            listed.insert(uid);
        }
    }

    /// The list has ended and shows the collection at `version`. Removes what it did not name, unless that is newer.
    pub fn end_list(&mut self, version: u64) -> Vec<Changed<R>> {
        let Some(listed) = self.listed.take() else {
            return Vec::new();
        };
        let absent = |meta: &Meta| meta.resource_version <= version && !listed.contains(&meta.uid);
        let gone: Vec<Arc<R>> = self.table.iter().filter(|r| absent(r.meta())).cloned().collect();
        for record in &gone {
            self.remove_if(&record.meta().key, |_| true);
        }
        self.bookmark(version);
        // A list that began after a deletion does not name the object, and the watch that follows starts after it.
        let begun = self.lists_begun;
        self.tombstones.retain(|_, buried| *buried >= begun);
        gone.into_iter()
            .map(|record| Changed {
                old: Some(record),
                new: None,
            })
            .collect()
    }

    /// There are no objects any more.
    pub fn empty(&mut self) -> Vec<Changed<R>> {
        let gone: Vec<Arc<R>> = self.table.iter().cloned().collect();
        for record in &gone {
            self.remove_if(&record.meta().key, |_| true);
        }
        let changed = |record| Changed {
            old: Some(record),
            new: None,
        };
        gone.into_iter().map(changed).collect()
    }

    /// Nothing older than `version` will come from the watch.
    pub fn bookmark(&mut self, version: u64) {
        self.caught_up = self.caught_up.max(version);
        self.overlay.retain(|_, ahead| *ahead > version);
    }

    /// How many objects are ahead of the watch.
    pub fn overlay_len(&self) -> usize {
        self.overlay.len()
    }

    /// How many incarnations are known to be gone ahead of the watch.
    pub fn tombstones_len(&self) -> usize {
        self.tombstones.len()
    }

    fn bury(&mut self, uid: &Uid) {
        while self.tombstone_order.len() >= TOMBSTONES_MAX {
            // Most of the order is of tombstones long retired; the oldest living one goes only if all are in use.
            self.tombstone_order.retain(|uid| self.tombstones.contains_key(uid));
            if self.tombstone_order.len() >= TOMBSTONES_MAX
                && let Some(oldest) = self.tombstone_order.pop_front()
            {
                self.tombstones.remove(&oldest);
            }
        }
        if self.tombstones.insert(uid.clone(), self.lists_begun).is_none() {
            self.tombstone_order.push_back(uid.clone());
        }
    }

    fn retire_overlay(&mut self, key: &ObjectKey, version: u64) {
        if self.overlay.get(key).is_some_and(|ahead| *ahead <= version) {
            self.overlay.remove(key);
        }
    }

    fn hash_of_mount(&self, namespace: &str, claim: &str) -> u64 {
        self.hasher.hash_one((namespace, claim))
    }

    fn note_mounts(&mut self, record: &Arc<R>) {
        for claim in record.claims() {
            let hash = self.hash_of_mount(&record.meta().key.namespace, &claim);
            let record = record.clone();
            self.mounts
                .insert_unique(hash, Mount { hash, record }, |mount| mount.hash);
        }
    }

    fn forget_mounts(&mut self, record: &Arc<R>) {
        for claim in record.claims() {
            let hash = self.hash_of_mount(&record.meta().key.namespace, &claim);
            if let Ok(found) = self.mounts.find_entry(hash, |mount| Arc::ptr_eq(&mount.record, record)) {
                found.remove();
            }
        }
    }

    fn insert(&mut self, new: Arc<R>) {
        self.note_mounts(&new);
        let hasher = &self.hasher;
        let hash = hasher.hash_one(&new.meta().key);
        let same_key = |r: &Arc<R>| r.meta().key == new.meta().key;
        let old = match self.table.entry(hash, same_key, |r| hasher.hash_one(&r.meta().key)) {
            Entry::Occupied(mut slot) => Some(std::mem::replace(slot.get_mut(), new.clone())),
            Entry::Vacant(slot) => {
                slot.insert(new.clone());
                None
            }
        };
        if let Some(old) = old {
            self.forget_mounts(&old);
            if self.replace_row(&old, &new) {
                return;
            }
            self.unindex(&old);
        }
        self.index(new);
    }

    fn remove_if(&mut self, key: &ObjectKey, condition: impl Fn(&Meta) -> bool) -> Option<Changed<R>> {
        let hash = self.hasher.hash_one(key);
        let found = self
            .table
            .find_entry(hash, |r| r.meta().key == *key && condition(r.meta()))
            .ok()?;
        let (old, _) = found.remove();
        self.unindex(&old);
        self.forget_mounts(&old);
        self.overlay.remove(key);
        Some(Changed {
            old: Some(old),
            new: None,
        })
    }

    /// Puts a record where an earlier version of it stands, if it belongs there too, as nearly every one does.
    fn replace_row(&mut self, old: &Arc<R>, new: &Arc<R>) -> bool {
        let rows = match (old.index(), new.index()) {
            (Index::Owner(before), Index::Owner(now)) if before.uid == now.uid => self.by_owner.get_mut(&now.uid),
            (Index::Namespace(before), Index::Namespace(now)) if before == now => self.by_namespace.get_mut(now),
            _ => None,
        };
        let place = place_of(&**new);
        let Some(rows) = rows.filter(|_| place_of(&**old) == place) else {
            return false;
        };
        let start = rows.partition_point(|row| place_of(&**row) < place);
        match rows.get_mut(start) {
            Some(row) if Arc::ptr_eq(row, old) => *row = new.clone(),
            _ => return false,
        }
        true
    }

    fn index(&mut self, record: Arc<R>) {
        let rows = match record.index() {
            Index::Owner(owner) => self.by_owner.entry(owner.uid.clone()).or_default(),
            Index::Namespace(namespace) => self.by_namespace.entry(namespace.clone()).or_default(),
            Index::None => return,
        };
        // Lists come sorted, so this is nearly always the end.
        let place = rows.partition_point(|row| place_of(&**row) < place_of(&*record));
        rows.insert(place, record);
    }

    fn unindex(&mut self, record: &Arc<R>) {
        match record.index() {
            Index::Owner(owner) => take_row(&mut self.by_owner, &owner.uid, record),
            Index::Namespace(namespace) => take_row(&mut self.by_namespace, namespace, record),
            Index::None => {}
        }
    }
}

/// Namespace, kind and name of the owner under which a record is found; nothing where owners do not matter.
fn owner_of<R: Stored>(record: &R) -> (&str, &str, &str) {
    match record.index() {
        Index::Owner(owner) => (&record.meta().key.namespace, &owner.kind, &owner.name),
        Index::Namespace(_) | Index::None => ("", "", ""),
    }
}

/// Where a record stands under its heading: those of one owner beside each other, by name.
fn place_of<R: Stored>(record: &R) -> ((&str, &str, &str), &str) {
    (owner_of(record), &record.meta().key.name)
}

fn take_row<K: Eq + std::hash::Hash, R: Stored>(
    index: &mut HashMap<K, Vec<Arc<R>>, FixedHasher>,
    heading: &K,
    record: &Arc<R>,
) {
    let Some(rows) = index.get_mut(heading) else { return };
    let start = rows.partition_point(|row| place_of(&**row) < place_of(&**record));
    if let Some(offset) = rows[start..].iter().position(|row| Arc::ptr_eq(row, record)) {
        rows.remove(start + offset);
    }
    if rows.is_empty() {
        index.remove(heading);
    }
}

#[cfg(test)]
mod tests;
