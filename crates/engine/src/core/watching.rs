//! What the watches tell, and how fresh it is.

use super::events::Regarding;
use super::foreign::{controller_status_differs, foreign_manager};
use super::queue::Priority;
use super::store::Source;
use super::{Core, Origin, QueueKey};
use crate::wire::{Object, Unreadable};
use flotilla_model::{Change, EventNote, ObjectKey, Reader, Record, Resource, SetKind, SetRecord, Timestamp, Uid};
use std::sync::Arc;

/// The field manager under which all our writes are recorded.
pub const FIELD_MANAGER: &str = "flotilla";

/// What a watch tells.
#[derive(Clone, Debug)]
pub enum WatchEvent {
    /// A list of the kind was begun at this moment. What it does not name will be gone.
    ListBegan(Resource, Timestamp),
    /// An item of the list.
    Listed(Object),
    /// The list has ended and shows the collection at this version.
    ListEnded(Resource, u64),
    /// The object exists, as it is now.
    Upsert(Object),
    /// The incarnation was deleted, at this version.
    Deleted(Resource, ObjectKey, Uid, u64),
    /// Nothing older than this version will come.
    Bookmark(Resource, u64),
    /// An object could not be read. What was known of it before stays, and a set is not acted on until it can be read again.
    Unreadable(Unreadable),
    /// The server does not know the kind.
    Missing(Resource),
}

/// How much of a kind is known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Freshness {
    /// When the list under way was begun.
    listing: Option<Timestamp>,
    /// When the last complete list was begun.
    listed: Option<Timestamp>,
    /// Up to which version the watch, or the last list, has told everything.
    seen: u64,
    /// The server does not know the kind.
    missing: bool,
    /// And there are no objects of it.
    has_none: bool,
}

impl Freshness {
    /// Whether what is known is at least as new as `since`.
    pub(super) fn covers(self, since: Timestamp) -> bool {
        self.has_none || self.listed.is_some_and(|listed| listed >= since)
    }

    /// Whether a list that will make it so is under way.
    pub(super) fn will_cover(self, since: Timestamp) -> bool {
        self.covers(since) || self.listing.is_some_and(|began| began >= since)
    }

    /// Whether everything is known up to this version.
    pub(super) fn shows(self, version: u64) -> bool {
        self.listed.is_some() && self.seen >= version
    }

    /// Up to which version everything is known, if it is known since then.
    pub(super) fn seen_since(self, since: Timestamp) -> Option<u64> {
        self.listed.filter(|listed| *listed >= since).map(|_| self.seen)
    }

    pub(super) fn is_missing(self) -> bool {
        self.missing
    }

    pub(super) fn is_known(self) -> bool {
        !self.missing && self.listed.is_some()
    }
}

impl Core {
    /// Takes in what a watch tells.
    pub fn watch(&mut self, event: WatchEvent, now: Timestamp) {
        match event {
            WatchEvent::ListBegan(resource, began) => {
                *self.metrics.lists.entry(resource).or_default() += 1;
                self.kind(resource).listing = Some(began);
                self.cache.begin_list(resource);
            }
            WatchEvent::Listed(object) => {
                self.can_read(object.resource(), &object.meta().key);
                let change = self.cache.apply(object, Source::List);
                self.route(change, Origin::List, now);
            }
            WatchEvent::ListEnded(resource, version) => {
                self.list_ended(resource, version);
                for change in self.cache.end_list(resource, version) {
                    if let Some((resource, key)) = change.object() {
                        self.can_read(resource, key);
                    }
                    self.route(Some(change), Origin::Others, now);
                }
            }
            WatchEvent::Upsert(object) => self.upserted(object, now),
            WatchEvent::Deleted(resource, key, uid, version) => {
                self.saw_change(resource, version);
                self.can_read(resource, &key);
                let origin = self.origin_of(resource, &key);
                let change = self.cache.apply_deleted(resource, &key, &uid, version);
                self.route(change, origin, now);
            }
            WatchEvent::Bookmark(resource, version) => {
                self.saw(resource, version);
                self.cache.bookmark(resource, version);
            }
            WatchEvent::Unreadable(what) => self.cannot_read(what, now),
            WatchEvent::Missing(resource) => self.is_missing_now(resource, now),
        }
    }

    fn kind(&mut self, resource: Resource) -> &mut Freshness {
        self.kinds.entry(resource).or_default()
    }

    /// The watch has told everything up to this version.
    fn saw(&mut self, resource: Resource, version: u64) {
        let kind = self.kind(resource);
        kind.seen = kind.seen.max(version);
    }

    /// The watch has told of a change at this version.
    fn saw_change(&mut self, resource: Resource, version: u64) {
        self.saw(resource, version);
        self.last_writes.told(resource, version);
    }

    fn list_ended(&mut self, resource: Resource, version: u64) {
        self.saw(resource, version);
        let kind = self.kind(resource);
        (kind.listed, kind.listing) = (kind.listing.or(kind.listed), None);
        (kind.missing, kind.has_none) = (false, false);
        let (kind, since) = (*kind, self.leading_since);
        if let Some(began) = kind.listed {
            self.last_writes.listed(resource, began, version);
        }
        if let Some(seen) = since.and_then(|since| kind.seen_since(since)) {
            self.last_writes.found(resource, seen);
        }
    }

    /// A custom kind that the server does not know has no objects. What a manager that is about to lead remembers of some is of another time, and
    /// nothing is decided by it; a leader goes on with what it knows, as the definition may be back in a moment.
    fn is_missing_now(&mut self, resource: Resource, now: Timestamp) {
        self.kind(resource).missing = true;
        if resource.is_custom() && !self.caught_up {
            self.kind(resource).has_none = true;
            for change in self.cache.empty(resource) {
                self.route(Some(change), Origin::Others, now);
            }
        }
    }

    /// A set of which only an older version is known is left as it is: its users may have stopped what that one asks for.
    fn cannot_read(&mut self, what: Unreadable, now: Timestamp) {
        let resource = what.resource;
        *self.metrics.unreadable.entry(resource).or_default() += 1;
        let Some(key) = what.key else { return };
        self.cache.names(resource, &key);
        if crate::wire::set_kind(resource).is_none() {
            return;
        }
        self.unreadable.insert((resource, key.clone()), what.reason);
        for index in 0..self.controllers.len() {
            if self.controllers[index].resource() == resource {
                self.stop_pass(&QueueKey::new(index, &key));
                self.enqueue(index, key.clone(), Priority::Live, now);
            }
        }
    }

    fn can_read(&mut self, resource: Resource, key: &ObjectKey) {
        if !self.unreadable.is_empty() {
            self.unreadable.remove(&(resource, key.clone()));
        }
    }

    /// Why nothing is done for a set that is there: its latest version cannot be read.
    pub(super) fn unreadable(&self, key: &QueueKey) -> Option<&str> {
        if self.unreadable.is_empty() {
            return None;
        }
        let resource = self.controllers[key.controller].resource();
        let why = self.unreadable.get(&(resource, key.key.clone()))?;
        self.cache.uid_of(resource, &key.key).map(|_| why.as_str())
    }

    fn upserted(&mut self, object: Object, now: Timestamp) {
        self.saw_change(object.resource(), object.meta().resource_version);
        self.can_read(object.resource(), &object.meta().key);
        let origin = self.origin_of(object.resource(), &object.meta().key);
        let change = self.cache.apply(object, Source::Watch);
        if origin == Origin::Others
            && let Some(change) = &change
        {
            self.look_for_foreign_writers(change, now);
        }
        self.route(change, origin, now);
    }

    /// Whose doing news of an object are. They may be the effect of a write of ours whose answer has not come, or never will.
    fn origin_of(&self, resource: Resource, key: &ObjectKey) -> Origin {
        let object = (resource, key.clone());
        let may_be_ours =
            self.in_flight.contains_key(&object) || self.unsettled.values().any(|objects| objects.contains(&object));
        if may_be_ours { Origin::Ours } else { Origin::Others }
    }

    /// A change that the watch brings, and that is not in the cache already, was not made by us.
    fn look_for_foreign_writers(&mut self, change: &Change, now: Timestamp) {
        if !self.leads() {
            return;
        }
        let found = match change {
            Change::Set(Some(old), Some(new)) if new.kind == SetKind::Native && old.meta.uid == new.meta.uid => {
                let manager = foreign_manager(new, FIELD_MANAGER).unwrap_or("another writer");
                controller_status_differs(old, new).then(|| (new.clone(), format!("{manager} wrote its status")))
            }
            Change::Pod(None, Some(pod)) => self
                .native_owner(pod)
                .map(|set| (set, format!("another writer created pod {}", pod.name()))),
            Change::Set(..)
            | Change::Pod(..)
            | Change::Claim(..)
            | Change::ConfigMap(..)
            | Change::Revision(..)
            | Change::ImagePullJob(..)
            | Change::StorageClass(..) => None,
        };
        if let Some((set, what)) = found {
            self.leave_alone(&set, &what, now);
        }
    }

    /// The native set that a pod names as its controller, if the pod was created after we began to look.
    fn native_owner(&self, pod: &flotilla_model::PodRecord) -> Option<Arc<SetRecord>> {
        let owner = pod.meta.controller()?;
        let key = pod.meta.key.sibling(&*owner.name);
        let set = self.cache.set(SetKind::Native, &key)?;
        // Creation times are cut to seconds.
        let is_new = pod.meta.created + std::time::Duration::from_secs(1) > self.wall(self.observing_since);
        (set.meta.uid == owner.uid && is_new).then(|| set.clone())
    }

    fn leave_alone(&mut self, set: &SetRecord, what: &str, now: Timestamp) {
        let Some(until) = self.foreign.notice(&set.meta().uid, now) else {
            return;
        };
        let regarding = Regarding {
            resource: set.kind.resource(),
            key: set.meta.key.clone(),
            uid: set.meta.uid.clone(),
        };
        let until = self.wall(until);
        let message = format!("{what}; this set is left alone until {until}. Stop the other controller.");
        self.events.note(
            &regarding,
            EventNote {
                warning: true,
                reason: "ForeignWriter",
                message,
            },
            now,
        );
    }
}
