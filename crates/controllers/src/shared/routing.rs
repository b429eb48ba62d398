//! Which sets a change concerns.

use flotilla_model::{Meta, ObjectKey, Reader, RevisionRecord, SetKind, SetRecord};

/// The key of the set that manages an object, if it is of our kind and still that incarnation. An owner that is not in the cache
/// (deleted, or not seen yet) has nothing to be told.
pub fn owner_key(kind: SetKind, meta: &Meta, reader: &dyn Reader) -> Option<ObjectKey> {
    let owner = meta.controller()?;
    let key = ObjectKey::new(meta.key.namespace.clone(), &*owner.name);
    reader
        .set(kind, &key)
        .filter(|set| set.meta.uid == owner.uid)
        .map(|set| set.meta.key.clone())
}

/// The sets that a revision concerns.
pub fn route_revision(kind: SetKind, revision: &RevisionRecord, reader: &dyn Reader, keys: &mut Vec<ObjectKey>) {
    if let Some(owner) = revision.meta.controller() {
        // Whatever incarnation it names: the set of today may wait for what a former one leaves behind.
        let key = revision.meta.key.sibling(&*owner.name);
        keys.extend(reader.set(kind, &key).map(|set| set.meta.key.clone()));
        return;
    }
    let sets = reader.sets_in(kind, &revision.meta.key.namespace);
    let matching = sets
        .iter()
        .filter(|set| set.spec.selector.matches(|key| revision.meta.labels.get(key)));
    keys.extend(matching.map(|set| set.meta.key.clone()));
}

/// The key of a set that changed, if it is of this kind and anything but its version differs: our own no-op writes and heartbeats of
/// others wake nobody.
pub fn of_set(kind: SetKind, old: Option<&SetRecord>, new: Option<&SetRecord>) -> Option<ObjectKey> {
    let set = new.or(old).filter(|set| set.kind == kind)?;
    let matters = match (old, new) {
        (Some(old), Some(new)) => differs_in_more_than_version(old, new),
        _ => true,
    };
    matters.then(|| set.meta.key.clone())
}

fn differs_in_more_than_version(old: &SetRecord, new: &SetRecord) -> bool {
    old.meta.uid != new.meta.uid
        || old.generation != new.generation
        || old.meta.deleted != new.meta.deleted
        || old.annotations != new.annotations
        || old.status != new.status
}
