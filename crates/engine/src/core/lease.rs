//! Leader election on one `coordination.k8s.io/v1` Lease, and the fence that rests on it.
//!
//! Another holder's lease is over when *we* have seen its record unchanged for as long as it says it lasts; two machines' clocks
//! are never compared. Our own hold counts from the start of the last renewal that succeeded, because that is the earliest
//! moment at which a rival can have begun to count. Writes are allowed only until the renew deadline after that moment, which
//! leaves the rest of the lease's duration for requests on their way. A process that was stopped and continued finds the
//! deadline passed and writes nothing.
//!
//! Whoever gives the lease up notes on it how far its writes went; whoever takes it or renews it takes the note away. A note counts for
//! the one who takes the lease from nobody, and only as long as the lease has not changed hands in between.

use super::last_write::Note;
use flotilla_model::{ObjectKey, Timestamp};
use std::time::Duration;

/// The four times of an election. `duration > renew_deadline > retry_period` must hold.
#[derive(Clone, Copy, Debug)]
pub struct LeaseTimes {
    /// For how long a renewal keeps rivals away.
    pub duration: Duration,
    /// How long after a renewal we may still write, and try to renew before stepping down.
    pub renew_deadline: Duration,
    /// Between renewals.
    pub retry_period: Duration,
    /// Between looks at another holder's lease.
    pub poll_period: Duration,
}

impl Default for LeaseTimes {
    fn default() -> Self {
        LeaseTimes {
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            poll_period: Duration::from_secs(1),
        }
    }
}

impl LeaseTimes {
    /// How long a request may be on its way: what is left of the lease when nothing may be sent any more. What was not answered
    /// takes effect within this time, or never.
    pub fn on_its_way(&self) -> Duration {
        self.duration.saturating_sub(self.renew_deadline)
    }
}

/// The lease to hold before anything is written.
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    /// Namespace and name of the Lease object. The namespace must exist.
    pub key: ObjectKey,
    /// The election's times.
    pub times: LeaseTimes,
}

impl LeaseOptions {
    /// The lease of this name, with the usual times.
    pub fn new(namespace: &str, name: &str) -> Self {
        LeaseOptions {
            key: ObjectKey::new(namespace, name),
            times: LeaseTimes::default(),
        }
    }
}

/// What the Lease object says.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LeaseSpec {
    /// Identity of the holder; empty if it was released.
    pub holder: String,
    /// For how long after a change the holder may count on it.
    pub duration_seconds: i32,
    /// When this holder took it.
    pub acquired: Timestamp,
    /// When it was last renewed, by the holder's clock. Informational.
    pub renewed: Timestamp,
    /// How often it has changed hands.
    pub transitions: i32,
    /// What its last holder noted when it gave it up, see [`Note`]; empty if nothing.
    pub last_writes: String,
    /// The kinds of sets that its holder looks after, joined by commas, behind how often the lease had changed hands and a semicolon; empty if it
    /// does not say. For people: nothing here depends on it.
    pub looks_after: String,
}

impl LeaseSpec {
    /// What the one noted who gave it up; `None` if somebody holds it, or has held it since.
    fn note(&self) -> Option<Note> {
        let is_free = self.holder.is_empty();
        is_free
            .then(|| Note::read(&self.last_writes, self.transitions))
            .flatten()
    }
}

/// A Lease object as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Its version, the precondition of the next update.
    pub resource_version: u64,
    /// What it says.
    pub spec: LeaseSpec,
}

/// A request of the election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseCall {
    /// Read the lease.
    Get,
    /// Create it.
    Create(LeaseSpec),
    /// Change it, if it still has this version.
    Update {
        /// The version that must not have changed.
        resource_version: u64,
        /// What it is to say.
        spec: LeaseSpec,
    },
}

impl LeaseCall {
    /// As told by a clock that has been set back by this much; what an earlier renewal said stays.
    #[must_use]
    pub fn set_back(mut self, by: Duration) -> Self {
        match &mut self {
            LeaseCall::Get => {}
            LeaseCall::Create(spec) | LeaseCall::Update { spec, .. } => {
                if spec.acquired == spec.renewed {
                    spec.acquired = spec.acquired - by;
                }
                spec.renewed = spec.renewed - by;
            }
        }
        self
    }
}

/// The answer to a [`LeaseCall`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseReply {
    /// The object as it is now: read, created or updated.
    Found(LeaseRecord),
    /// There is no such object.
    Missing,
    /// Somebody else changed or created it first.
    Conflict,
    /// No usable answer.
    Failed,
}

/// Where the election stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Nothing has been read yet.
    Unknown,
    /// Another holds the lease, or nobody yet.
    Standby,
    /// We hold it.
    Leader,
}

#[derive(Debug)]
enum State {
    Unknown,
    /// The record seen last and when it was seen to change.
    Standby {
        seen: Option<(LeaseRecord, Timestamp)>,
    },
    Leading {
        record: LeaseRecord,
        renewed_at: Timestamp,
    },
    Released,
}

/// One participant of the election.
#[derive(Debug)]
pub struct Elector {
    identity: String,
    looks_after: String,
    times: LeaseTimes,
    state: State,
    /// The call on its way and when it was started.
    outstanding: Option<(LeaseCall, Timestamp)>,
    next_call_at: Timestamp,
    /// After a conflict the record must be read before it is written again.
    must_read: bool,
    /// The write that the last read called for.
    takeover: Option<LeaseCall>,
    /// What was noted on the record that the takeover replaces.
    offered: Option<Note>,
    /// What our predecessor noted, until it is asked for.
    inherited: Option<Note>,
    /// No longer interested: what is held is given up.
    releasing: bool,
    /// What is noted then.
    parting: Option<Note>,
}

impl Elector {
    /// A participant that has not looked yet. `identity` must differ between processes.
    pub fn new(identity: String, times: LeaseTimes, now: Timestamp) -> Self {
        Elector {
            identity,
            looks_after: String::new(),
            times,
            state: State::Unknown,
            outstanding: None,
            next_call_at: now,
            must_read: true,
            takeover: None,
            offered: None,
            inherited: None,
            releasing: false,
            parting: None,
        }
    }

    /// The same, which says on the lease what kinds of sets it looks after.
    #[must_use]
    pub fn looking_after(self, looks_after: String) -> Self {
        Elector { looks_after, ..self }
    }

    /// Where the election stands at `now`: a leader whose renewals have failed until the deadline is none any more.
    pub fn role(&self, now: Timestamp) -> Role {
        match &self.state {
            State::Unknown => Role::Unknown,
            State::Leading { renewed_at, .. } if !self.releasing && now < *renewed_at + self.times.renew_deadline => {
                Role::Leader
            }
            State::Leading { .. } | State::Standby { .. } | State::Released => Role::Standby,
        }
    }

    /// Until when writes are allowed; `None` if they are not.
    pub fn fence(&self) -> Option<Timestamp> {
        match &self.state {
            State::Leading { renewed_at, .. } if !self.releasing => Some(*renewed_at + self.times.renew_deadline),
            State::Leading { .. } | State::Unknown | State::Standby { .. } | State::Released => None,
        }
    }

    /// The holder seen last, for people.
    pub fn holder(&self) -> Option<&str> {
        match &self.state {
            State::Standby {
                seen: Some((record, _)),
            } => Some(&record.spec.holder),
            State::Leading { .. } => Some(&self.identity),
            State::Unknown | State::Standby { seen: None } | State::Released => None,
        }
    }

    /// When [`Elector::poll`] next has something to do; `None` while a call is on its way.
    pub fn next_wake(&self) -> Option<Timestamp> {
        match self.state {
            State::Released => None,
            State::Unknown | State::Standby { .. } | State::Leading { .. } => {
                self.outstanding.is_none().then_some(self.next_call_at)
            }
        }
    }

    /// The call to send now, if one is due. At most one is on its way at a time.
    pub fn poll(&mut self, now: Timestamp) -> Option<LeaseCall> {
        if self.outstanding.is_some() || now < self.next_call_at || self.is_released() {
            return None;
        }
        if self.role(now) != Role::Leader && matches!(self.state, State::Leading { .. }) && !self.releasing {
            self.step_down(None);
        }
        let call = match (self.takeover.take(), &self.state) {
            (Some(call), _) => call,
            (None, State::Leading { record, .. }) if !self.must_read && self.releasing => self.release_of(record, now),
            (None, State::Leading { record, .. }) if !self.must_read => self.renewal(record, now),
            (None, _) => LeaseCall::Get,
        };
        self.outstanding = Some((call.clone(), now));
        Some(call)
    }

    fn renewal(&self, record: &LeaseRecord, now: Timestamp) -> LeaseCall {
        let spec = LeaseSpec {
            renewed: now,
            duration_seconds: self.duration_seconds(),
            last_writes: String::new(),
            ..record.spec.clone()
        };
        LeaseCall::Update {
            resource_version: record.resource_version,
            spec,
        }
    }

    fn duration_seconds(&self) -> i32 {
        i32::try_from(self.times.duration.as_secs()).unwrap_or(i32::MAX)
    }

    /// Takes the answer to the call on its way. May make us leader, or end that; ask [`Elector::role`].
    pub fn answer(&mut self, reply: LeaseReply, now: Timestamp) {
        let Some((call, started)) = self.outstanding.take() else {
            return;
        };
        match (call, reply) {
            (LeaseCall::Get, LeaseReply::Found(record)) => self.read(record, now),
            (LeaseCall::Get, LeaseReply::Missing) => self.acquire(None, now),
            (LeaseCall::Create(_) | LeaseCall::Update { .. }, LeaseReply::Found(record)) => {
                self.inherited = self.offered.take().or(self.inherited.take());
                self.hold(record, started, now);
            }
            (LeaseCall::Create(_) | LeaseCall::Update { .. }, LeaseReply::Conflict | LeaseReply::Missing) => {
                (self.must_read, self.next_call_at) = (true, now);
            }
            (LeaseCall::Get, LeaseReply::Conflict) | (_, LeaseReply::Failed) => self.retry(now),
        }
    }

    /// A call that was not answered may have had its effect, so the record is read before it is written again.
    fn retry(&mut self, now: Timestamp) {
        self.must_read = true;
        self.next_call_at = now + self.times.poll_period.min(self.times.retry_period);
        if self.role(now) != Role::Leader && matches!(self.state, State::Leading { .. }) {
            self.step_down(None);
        }
    }

    fn read(&mut self, record: LeaseRecord, now: Timestamp) {
        self.must_read = false;
        let ours = record.spec.holder == self.identity;
        if self.releasing {
            self.state = if ours {
                State::Leading {
                    record,
                    renewed_at: now,
                }
            } else {
                State::Released
            };
            return;
        }
        if ours || record.spec.holder.is_empty() {
            return self.acquire(Some(record), now);
        }
        let changed_at = match &self.state {
            State::Standby { seen: Some((old, at)) } if *old == record => *at,
            State::Unknown | State::Standby { .. } | State::Leading { .. } | State::Released => now,
        };
        let lasts =
            Duration::from_secs(u64::try_from(record.spec.duration_seconds).unwrap_or(0)).max(self.times.retry_period);
        if now >= changed_at + lasts {
            return self.acquire(Some(record), now);
        }
        self.step_down(Some((record, changed_at)));
        self.next_call_at = (now + self.times.poll_period).min(changed_at + lasts);
    }

    fn step_down(&mut self, seen: Option<(LeaseRecord, Timestamp)>) {
        self.state = State::Standby { seen };
        self.must_read = true;
    }

    /// The clock has been set ahead by so much, or its machine slept, which another holder knows nothing of: what it has left counts from its
    /// last renewal on. What we hold ourselves may be gone.
    pub fn clock_was_set_ahead(&mut self, by: Duration) {
        if let State::Standby {
            seen: Some((_, changed_at)),
        } = &mut self.state
        {
            *changed_at = *changed_at + by;
        }
    }

    /// Sends the write that makes the lease ours; it goes out with the next poll, which is at once.
    fn acquire(&mut self, record: Option<LeaseRecord>, now: Timestamp) {
        let ours = record.as_ref().is_some_and(|r| r.spec.holder == self.identity);
        let old = record.as_ref().map(|r| r.spec.clone()).unwrap_or_default();
        let transitions = old.transitions.saturating_add(i32::from(!ours && record.is_some()));
        // Whoever does not know of it leaves it where it is: by how often the lease changed hands it is known to be old.
        let looks_after = match self.looks_after.as_str() {
            "" => String::new(),
            kinds => format!("{transitions};{kinds}"),
        };
        let spec = LeaseSpec {
            holder: self.identity.clone(),
            duration_seconds: self.duration_seconds(),
            acquired: if ours { old.acquired } else { now },
            renewed: now,
            transitions,
            last_writes: String::new(),
            looks_after,
        };
        (self.offered, self.inherited) = (old.note(), None);
        let call = match record {
            Some(record) => LeaseCall::Update {
                resource_version: record.resource_version,
                spec,
            },
            None => LeaseCall::Create(spec),
        };
        self.takeover = Some(call);
        self.next_call_at = now;
    }

    fn hold(&mut self, record: LeaseRecord, started: Timestamp, now: Timestamp) {
        self.must_read = false;
        if record.spec.holder.is_empty() {
            self.state = State::Released;
            return;
        }
        self.next_call_at = if self.releasing {
            now
        } else {
            started + self.times.retry_period
        };
        self.state = State::Leading {
            record,
            renewed_at: started,
        };
    }

    /// What the one noted who gave the lease up before we took it. Told once.
    pub fn take_note(&mut self) -> Option<Note> {
        self.inherited.take()
    }

    /// From now on nothing may be written, and the next call gives the lease up, if we hold it, with this note. Poll until
    /// [`Elector::is_released`].
    pub fn release(&mut self, note: Option<Note>, now: Timestamp) {
        (self.releasing, self.parting) = (true, note);
        self.takeover = None;
        self.next_call_at = now;
        let write_on_its_way = matches!(
            self.outstanding,
            Some((LeaseCall::Create(_) | LeaseCall::Update { .. }, _))
        );
        if !matches!(self.state, State::Leading { .. }) && !write_on_its_way {
            self.state = State::Released;
        }
    }

    /// Whether a release has ended: nobody waits for us any more.
    pub fn is_released(&self) -> bool {
        matches!(self.state, State::Released)
    }

    fn release_of(&self, record: &LeaseRecord, now: Timestamp) -> LeaseCall {
        let note = self.parting.as_ref();
        // One second, as client-go writes it, so that rivals of other makes need not wait either.
        let spec = LeaseSpec {
            holder: String::new(),
            duration_seconds: 1,
            renewed: now,
            last_writes: note.map(|note| note.text(record.spec.transitions)).unwrap_or_default(),
            ..record.spec.clone()
        };
        LeaseCall::Update {
            resource_version: record.resource_version,
            spec,
        }
    }
}

#[cfg(test)]
mod tests;
