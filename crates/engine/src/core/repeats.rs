//! No request is repeated at the speed of the network, whatever a controller decides.
//!
//! Each write is known by a digest of what it does: verb, object, body, and the generation of the set for which it was decided. The
//! first repetition may go at once: the view may have been stale, or the answer lost. The next waits half a second after the one
//! before, then one second, two, and so on to a minute. Two requests that undo each other are two digests, and each is held.
//!
//! Where names are made up, as those of a CloneSet's pods, the made-up part is left out, and requests count when they are refused: a
//! thousand equal pods are no repetition, one that is refused under ever new names is. One pass counts once, however many it asks for.
//!
//! Such an object may also be accepted each time, and deleted as soon as it is there. One that we delete within seconds of its creation,
//! decided for the same generation of the set, did not last: that counts for the set, once a pass, and all that it makes under made-up
//! names waits as a repetition does. What others do to new objects, as schedulers and nodes always do, changes nothing about it.
//!
//! Nor do pods last that others take away or delete, or that a webhook changes so that they are not the set's: see `losses.rs`.
//!
//! What the server was too busy for does not count, where it says how long to wait (429): then that is the pace.
//!
//! What others do to the object makes repetitions legitimate again, but no quicker than twice a second; so does an edit of the set,
//! for a new generation is another digest. What we do ourselves does not. After a quiet time a request counts as new.
//!
//! All of it is a hint: bounded, and forgotten without harm.

mod fingerprint;
mod losses;

pub use fingerprint::{Author, Fingerprint, ObjectDigest};

use super::outcome::Outcome;
use flotilla_model::{PodRecord, Reader, Timestamp};
use losses::Losses;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash};
use std::time::Duration;

/// The second repetition waits so long after the first.
const BASE: Duration = Duration::from_millis(500);
/// The longest wait between two equal requests.
const CAP: Duration = Duration::from_secs(60);
/// A request that was not sent for so long counts as new; also one that was not sent for twice the wait that it had reached.
const QUIET: Duration = Duration::from_secs(60);
/// Requests remembered at most are twice as many.
const REMEMBERED_MAX: usize = 16_384;
/// What was not used for this long may be forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(180);

/// What we delete so soon after we made it did not last.
const SHORT_LIVED: Duration = Duration::from_secs(10);

/// A repetition that may not be sent yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// When it may.
    pub until: Timestamp,
    /// How often it was sent in a row.
    pub times: u32,
    /// When for the first time.
    pub since: Timestamp,
    /// What the API server said the last time, if it refused: a word for programs, and the message.
    pub refusal: Option<(String, String)>,
}

#[derive(Clone, Debug)]
struct Sent {
    since: Timestamp,
    last: Timestamp,
    times: u32,
    refusal: Option<Box<(String, String)>>,
    /// The last pass in which one of many was refused, or did not last.
    counted_in: Option<u64>,
}

impl Sent {
    fn new(now: Timestamp) -> Self {
        Sent {
            since: now,
            last: now,
            times: 0,
            refusal: None,
            counted_in: None,
        }
    }

    /// One of many came to nothing in a pass, however many there were.
    fn count_in(&mut self, pass: u64, now: Timestamp) {
        if self.counted_in != Some(pass) {
            self.counted_in = Some(pass);
            self.times = self.times.saturating_add(1);
            self.last = now;
        }
    }

    /// Whether the next one counts as new.
    fn is_long_ago(&self, now: Timestamp) -> bool {
        now >= self.last + QUIET.max(2 * wait_after(self.times))
    }

    /// Why the next one has to wait, if it has.
    fn hold(&self, now: Timestamp) -> Option<Hold> {
        let until = self.last + wait_after(self.times);
        (now < until).then(|| Hold {
            until,
            times: self.times,
            since: self.since,
            refusal: self.refusal.as_deref().cloned(),
        })
    }
}

/// The writes that were sent lately; see the module's description.
#[derive(Debug, Default)]
pub struct Repeats {
    sent: Aging<u64, Sent>,
    /// When others last changed an object that we wrote to, if they did.
    changed: Aging<ObjectDigest, Option<Timestamp>>,
    /// Objects under made-up names that were made a moment ago: for whom, and when.
    born: Aging<ObjectDigest, (u64, Timestamp)>,
    /// For whom such objects did not last.
    undone: Aging<u64, Sent>,
    /// Pods that did not last, whoever saw to it.
    losses: Losses,
    held: u64,
}

impl Repeats {
    /// Notes that this request is sent now, unless it has to wait.
    ///
    /// # Errors
    ///
    /// Until when, and what became of it so far.
    pub fn send(&mut self, request: Fingerprint, now: Timestamp) -> Result<(), Hold> {
        let changed_at = *self.changed.entry(request.object, now);
        let sent = self.sent.entry_or(request.request, now, Sent::new(now));
        let others_acted = changed_at.is_some_and(|at| at >= sent.last);
        if others_acted {
            sent.times = sent.times.min(2);
        }
        if sent.is_long_ago(now) {
            *sent = Sent::new(now);
        }
        let undone = self.undone.get_mut(&request.author).filter(|_| request.is_one_of_many);
        let hold = sent.hold(now).or_else(|| undone.and_then(|undone| undone.hold(now)));
        let makes_more = request.is_one_of_many || request.is_new_pod;
        let lost = makes_more.then(|| self.losses.hold(request, now)).flatten();
        if let Some(hold) = hold.into_iter().chain(lost).max_by_key(|hold| hold.until) {
            self.held += 1;
            return Err(hold);
        }
        if request.is_deletion {
            self.losses.settle(request.target, true);
        }
        if request.is_one_of_many {
            *self.born.entry_or(request.target, now, (request.author, now)) = (request.author, now);
        } else {
            sent.times = sent.times.saturating_add(1);
            sent.last = now;
        }
        Ok(())
    }

    /// A request that was sent makes a pod for this author.
    pub fn makes(&mut self, request: Fingerprint, author: Author<'_>, now: Timestamp) {
        if request.is_new_pod {
            self.losses.sent(request, (author.resource, author.key.clone()), now);
        }
    }

    /// A pod changed, appeared or is gone.
    pub fn pod_changed(
        &mut self,
        old: Option<&PodRecord>,
        new: Option<&PodRecord>,
        reader: &dyn Reader,
        now: Timestamp,
    ) {
        self.losses.changed((old, new), reader, now);
    }

    /// What became of a request of this pass.
    pub fn answered(&mut self, request: Fingerprint, outcome: &Outcome, pass: u64, now: Timestamp) {
        if !matches!(outcome, Outcome::Done | Outcome::Unknown(_)) && (request.is_new_pod || request.is_deletion) {
            // No pod was made of it; and one that we do not delete may be lost yet.
            self.losses.settle(request.target, request.is_new_pod);
        }
        if request.is_deletion && *outcome == Outcome::Done {
            self.deleted(request, pass, now);
        }
        let Some(sent) = self.sent.get_mut(&request.request) else {
            return;
        };
        match outcome {
            Outcome::Rejected { reason, message, .. } => {
                sent.refusal = Some(Box::new((reason.clone(), message.clone())));
                if request.is_one_of_many {
                    sent.count_in(pass, now);
                }
            }
            // The server was too busy for it and says when to try again: the limiter keeps to that pace.
            Outcome::Throttled(after) if !request.is_one_of_many && after.is_none_or(|after| !after.is_zero()) => {
                sent.times = sent.times.saturating_sub(1);
            }
            // One of many went well: others may, too.
            Outcome::Done if request.is_one_of_many => sent.times = sent.times.min(2),
            _ if request.is_one_of_many => {}
            _ => sent.refusal = None,
        }
    }

    /// An object is deleted, which may be one that was made a moment ago for the same set, as it still is.
    fn deleted(&mut self, request: Fingerprint, pass: u64, now: Timestamp) {
        let born = self.born.get_mut(&request.target).copied();
        let did_not_last =
            born.is_some_and(|(author, made_at)| author == request.author && now < made_at + SHORT_LIVED);
        if did_not_last {
            let undone = self.undone.entry_or(request.author, now, Sent::new(now));
            if undone.is_long_ago(now) {
                *undone = Sent::new(now);
            }
            undone.count_in(pass, now);
        }
    }

    /// Somebody else changed an object, or something on which what we write to it depends.
    pub fn changed_by_others(&mut self, object: ObjectDigest, now: Timestamp) {
        if let Some(known) = self.changed.get_mut(&object) {
            *known = Some(now);
        }
    }

    /// How many repetitions were held back so far.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// How many requests are remembered.
    pub fn len(&self) -> usize {
        self.sent.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How long a request that was sent so often in a row waits after the last time.
fn wait_after(times: u32) -> Duration {
    match times.checked_sub(2) {
        None => Duration::ZERO,
        Some(doublings) => BASE
            .saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX))
            .min(CAP),
    }
}

/// A bounded map that forgets what has not been used for long. Two halves: what is used moves to the young one, and when that is full
/// or its time has come the old one is dropped whole.
#[derive(Debug)]
struct Aging<K, V> {
    young: HashMap<K, V, BuildHasherDefault<DefaultHasher>>,
    old: HashMap<K, V, BuildHasherDefault<DefaultHasher>>,
    began: Timestamp,
}

impl<K, V> Default for Aging<K, V> {
    fn default() -> Self {
        Aging {
            young: HashMap::default(),
            old: HashMap::default(),
            began: Timestamp::default(),
        }
    }
}

impl<K: Copy + Eq + Hash, V> Aging<K, V> {
    fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.young.get_mut(key).or_else(|| self.old.get_mut(key))
    }

    fn entry(&mut self, key: K, now: Timestamp) -> &mut V
    where
        V: Default,
    {
        self.entry_or(key, now, V::default())
    }

    fn entry_or(&mut self, key: K, now: Timestamp, fresh: V) -> &mut V {
        if self.young.len() >= REMEMBERED_MAX || now >= self.began + FORGOTTEN_AFTER {
            self.old = std::mem::take(&mut self.young);
            self.began = now;
        }
        let known = self.old.remove(&key);
        self.young.entry(key).or_insert_with(|| known.unwrap_or(fresh))
    }

    fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests;
