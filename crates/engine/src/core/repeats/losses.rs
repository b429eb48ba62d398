//! New pods that do not last, whoever sees to it.
//!
//! A pod that was made for a set, under whatever name, lasts if the set still has it ten seconds later: it is there, not on its way out,
//! controlled by the set, and matched by its selector. A webhook that changes labels, somebody who takes pods away and whoever deletes them
//! are all the same: the set makes another, and that goes the same way. Where the set's own controller asked for the deletion, what it
//! decides is to blame, and that is counted elsewhere.
//!
//! A loss counts once most of what was made in the last seconds is lost. So a few among many hold up nothing: while half of the pods last,
//! what has to be made again becomes less and less by itself. Pods that were made before a loss that counted do not count any more,
//! however many they are: somebody who deletes fifty pods does that once. The first few losses that count delay nothing.
//!
//! When most of what was made is still there ten seconds later, it is over. An edit of the set lets pods be made at once, too, and the next
//! loss holds them back again.

use super::{Aging, Fingerprint, Hold, ObjectDigest, QUIET, SHORT_LIVED, wait_after};
use flotilla_model::{ObjectKey, PodRecord, Reader, Resource, SetRecord, Timestamp, Uid};

/// Losses in a row that delay nothing: somebody deletes a pod, or drains a node.
const FREE: u32 = 3;

/// What became of the pods that were made lately.
#[derive(Debug, Default)]
pub(super) struct Losses {
    born: Aging<ObjectDigest, Birth>,
    /// By their sets.
    accounts: Aging<ObjectDigest, Account>,
}

/// A pod that was made a moment ago.
#[derive(Debug)]
struct Birth {
    set: (Resource, ObjectKey),
    sent_at: Timestamp,
    /// Which incarnation it is, and since when it is known.
    seen: Option<(Uid, Timestamp)>,
    /// Nothing that happens to it counts: we asked for its deletion, it was never made, or it is lost already.
    is_settled: bool,
}

/// Pods that were made at about the same time.
#[derive(Debug, Default)]
struct Cohort {
    began: Timestamp,
    made: u32,
    lost: u32,
}

impl Cohort {
    fn mostly_lasted(&self) -> bool {
        self.made > 0 && self.lost <= self.made / 2
    }
}

/// What became of the pods of one set.
#[derive(Debug)]
struct Account {
    generation: i64,
    /// How often in a row most of what had been made was lost.
    times: u32,
    since: Timestamp,
    last: Option<Timestamp>,
    /// Those that were made in the last seconds, and those that were made before them, since the last loss that counted.
    young: Cohort,
    old: Cohort,
}

impl Account {
    fn new(generation: i64) -> Self {
        Account {
            generation,
            times: 0,
            since: Timestamp::default(),
            last: None,
            young: Cohort::default(),
            old: Cohort::default(),
        }
    }

    fn wait(&self) -> std::time::Duration {
        wait_after(self.times.saturating_sub(FREE - 1))
    }

    fn hold(&self, now: Timestamp) -> Option<Hold> {
        let until = self.last? + self.wait();
        (now < until).then_some(Hold {
            until,
            times: self.times,
            since: self.since,
            refusal: None,
        })
    }

    /// Whether something that was sent then belongs to what was lost with the last loss that counted.
    fn has_counted(&self, sent_at: Timestamp) -> bool {
        self.last.is_some_and(|last| sent_at <= last)
    }

    fn made(&mut self, now: Timestamp) {
        self.turn(now);
        self.young.made = self.young.made.saturating_add(1);
    }

    fn lost(&mut self, seen_at: Timestamp, now: Timestamp) {
        self.turn(now);
        let cohort = if seen_at >= self.young.began {
            &mut self.young
        } else {
            &mut self.old
        };
        cohort.lost = cohort.lost.saturating_add(1);
        let made = self.young.made.saturating_add(self.old.made);
        let lost = self.young.lost.saturating_add(self.old.lost);
        if lost > made / 2 {
            self.count(now);
        }
    }

    fn count(&mut self, now: Timestamp) {
        let is_new = self
            .last
            .is_none_or(|last| self.times == 0 || now >= last + QUIET.max(2 * self.wait()));
        if is_new {
            (self.times, self.since) = (0, now);
        }
        self.times = self.times.saturating_add(1);
        self.last = Some(now);
        (self.young, self.old) = (Cohort::default(), Cohort::default());
    }

    /// What is old enough has lasted, or not.
    fn turn(&mut self, now: Timestamp) {
        if now < self.young.began + SHORT_LIVED {
            return;
        }
        // Whatever was made before the young ones began is older than they.
        let young = std::mem::take(&mut self.young);
        let over = std::mem::take(&mut self.old);
        let are_all_over = now >= young.began + 2 * SHORT_LIVED;
        if over.mostly_lasted() || are_all_over && young.mostly_lasted() {
            self.times = 0;
        }
        if !are_all_over {
            self.old = young;
        }
        self.young.began = now;
    }
}

impl Losses {
    /// Until when nothing is made for the set of a request, if pods made for it are lost all the time.
    pub(super) fn hold(&mut self, request: Fingerprint, now: Timestamp) -> Option<Hold> {
        let account = self.accounts.get_mut(&request.set)?;
        if account.generation != request.generation {
            account.generation = request.generation;
            account.times = account.times.min(FREE);
        }
        account.hold(now)
    }

    /// A pod is being made for this set.
    pub(super) fn sent(&mut self, request: Fingerprint, set: (Resource, ObjectKey), now: Timestamp) {
        let account = self
            .accounts
            .entry_or(request.set, now, Account::new(request.generation));
        account.turn(now);
        let birth = || Birth {
            set: set.clone(),
            sent_at: now,
            seen: None,
            is_settled: false,
        };
        *self.born.entry_or(request.target, now, birth()) = birth();
    }

    /// Whatever becomes of this pod does not count, or does again.
    pub(super) fn settle(&mut self, pod: ObjectDigest, is_settled: bool) {
        if let Some(birth) = self.born.get_mut(&pod) {
            birth.is_settled = is_settled;
        }
    }

    /// How many pods and sets are remembered.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.born.len(), self.accounts.len())
    }

    /// A pod changed, which may be one that was made a moment ago.
    pub(super) fn changed(
        &mut self,
        (old, new): (Option<&PodRecord>, Option<&PodRecord>),
        reader: &dyn Reader,
        now: Timestamp,
    ) {
        let Some(key) = new.or(old).map(|pod| &pod.meta.key) else {
            return;
        };
        let born = self.born.get_mut(&ObjectDigest::of(Resource::Pods, key));
        let Some(birth) = born.filter(|birth| !birth.is_settled) else {
            return;
        };
        let kind = crate::wire::set_kind(birth.set.0);
        let set = kind.and_then(|kind| reader.set(kind, &birth.set.1));
        // Those of a set that goes are to go.
        let set = set.filter(|set| set.meta.deleted.is_none());
        let account = self.accounts.get_mut(&ObjectDigest::of(birth.set.0, &birth.set.1));
        let (Some(set), Some(account)) = (set, account) else {
            birth.is_settled = true;
            return;
        };
        let counts = !account.has_counted(birth.sent_at);
        if birth.seen.is_none()
            && let Some(pod) = new.filter(|new| old.is_none_or(|old| old.meta.uid != new.meta.uid))
        {
            birth.seen = Some((pod.meta.uid.clone(), now));
            if counts {
                account.made(now);
            }
        }
        let Some((uid, seen_at)) = &birth.seen else { return };
        // Late news of a pod that had the name before are none of this one.
        if [old, new].into_iter().flatten().all(|pod| pod.meta.uid != *uid) {
            return;
        }
        let is_over = now >= *seen_at + SHORT_LIVED;
        let is_lost = !new.is_some_and(|pod| pod.meta.uid == *uid && lasts(pod, set));
        birth.is_settled = is_over || is_lost;
        if is_lost && !is_over && counts {
            account.lost(*seen_at, now);
        }
    }
}

/// Whether the set still has a pod.
fn lasts(pod: &PodRecord, set: &SetRecord) -> bool {
    let is_controlled = pod.meta.controller().is_some_and(|owner| owner.uid == set.meta.uid);
    pod.meta.deleted.is_none() && is_controlled && set.spec.selector.matches(|key| pod.label(key))
}
