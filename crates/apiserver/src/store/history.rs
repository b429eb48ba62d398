//! What has happened to a kind, so that watches can go on from any version that is not too old.

use super::stored::Stored;
use flotilla_engine::wire::Object;
use flotilla_model::{ObjectKey, Uid};
use std::collections::VecDeque;

/// One change of one object.
#[derive(Clone, Debug)]
pub struct Change {
    /// The version that the change made.
    pub version: u64,
    /// Which object.
    pub key: ObjectKey,
    /// The object before.
    pub before: Option<Stored>,
    /// The object after; `None` if it is gone.
    pub after: Option<Stored>,
}

/// A change, as managers are told of it.
#[derive(Clone, Debug)]
pub enum Told {
    /// The object exists, as it is at this version.
    Upsert(u64, Object),
    /// The object is gone since this version.
    Deleted(u64, ObjectKey, Uid),
}

impl Change {
    /// What managers are told; `None` for kinds that they do not watch.
    pub fn told(&self) -> Option<Told> {
        match (&self.after, &self.before) {
            (Some(after), _) => Some(Told::Upsert(self.version, after.object.clone()?)),
            (None, Some(before)) => {
                let uid = before.object.as_ref()?.meta().uid.clone();
                Some(Told::Deleted(self.version, self.key.clone(), uid))
            }
            (None, None) => None,
        }
    }

    /// The version of the change.
    pub fn version(&self) -> u64 {
        self.version
    }
}

impl Told {
    /// The version of the event.
    pub fn version(&self) -> u64 {
        match self {
            Told::Upsert(version, _) | Told::Deleted(version, ..) => *version,
        }
    }

    /// The incarnation that it is about.
    pub fn uid(&self) -> &Uid {
        match self {
            Told::Upsert(_, object) => &object.meta().uid,
            Told::Deleted(_, _, uid) => uid,
        }
    }
}

/// The version is too old: list again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone {
    /// The oldest version from which a watch can go on.
    pub oldest: u64,
}

/// The changes of one kind.
#[derive(Debug)]
pub(super) struct History {
    changes: VecDeque<Change>,
    /// Changes up to this version are forgotten.
    compacted: u64,
    changes_max: usize,
}

impl History {
    pub(super) fn new(changes_max: usize) -> Self {
        History {
            changes: VecDeque::new(),
            compacted: 0,
            changes_max,
        }
    }

    /// Keeps so many changes from now on.
    pub(super) fn keep(&mut self, changes_max: usize) {
        self.changes_max = changes_max;
        while self.changes.len() > changes_max
            && let Some(oldest) = self.changes.pop_front()
        {
            self.compacted = oldest.version;
        }
    }

    pub(super) fn push(&mut self, change: Change) {
        if self.changes.len() >= self.changes_max
            && let Some(oldest) = self.changes.pop_front()
        {
            self.compacted = oldest.version;
        }
        self.changes.push_back(change);
    }

    pub(super) fn since(
        &self,
        version: u64,
    ) -> Result<impl DoubleEndedIterator<Item = &Change> + ExactSizeIterator + Clone, Gone> {
        if version < self.compacted {
            return Err(Gone { oldest: self.compacted });
        }
        let first = self.changes.partition_point(|change| change.version <= version);
        Ok(self.changes.range(first..))
    }

    pub(super) fn compact(&mut self, version: u64) {
        self.changes.clear();
        self.compacted = version;
    }
}
