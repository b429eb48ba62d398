//! What comes back, and what it changes: cache, limiter, the pass that asked, and what users are told.

use super::events::Regarding;
use super::outcome::{Intent, Outcome, is_not_served, load, meaning};
use super::pass::{Ticket, Trouble, TroubledRequest};
use super::refusals::Tried;
use super::repeats::Fingerprint;
use super::request::{Answer, RequestId};
use super::store::Source;
use super::{Core, Origin, Pending, Purpose, QueueKey};
use crate::core::lease::LeaseReply;
use flotilla_model::{EventNote, Guard, ObjectKey, Report, Resource, Timestamp, Uid};

impl Core {
    /// Takes in the answer to a request. Every request sent must be answered once, if only with [`Answer::Lost`].
    pub fn answer(&mut self, id: RequestId, answer: Answer, now: Timestamp) {
        let Some(Pending {
            purpose,
            verb,
            resource,
            known,
            sent_at,
        }) = self.pending.remove(&id)
        else {
            return;
        };
        let word = match &answer {
            Answer::Lease(LeaseReply::Failed) => "lost",
            other => meaning(Intent::Read, other).word(),
        };
        self.metrics.request(verb, resource, word, now.since(sent_at));
        match purpose {
            Purpose::Lease => {
                if let (Answer::Lease(reply), Some(elector)) = (answer, &mut self.elector) {
                    elector.answer(reply, now);
                } else if let Some(elector) = &mut self.elector {
                    elector.answer(LeaseReply::Failed, now);
                }
            }
            Purpose::Event(call) => self
                .events
                .answered(&call, matches!(answer, Answer::Success | Answer::Object(_))),
            Purpose::Pass {
                id,
                key,
                ticket,
                permit,
                fingerprint,
            } => {
                if let Some(permit) = permit {
                    self.limiter.finish(permit, load(&answer), now);
                }
                match &ticket {
                    Ticket::Read(resource, object) => {
                        let read = self.absorb_read(*resource, object, answer, known, now);
                        self.read_answered((id, &key), &ticket, (*resource, object), read, now);
                    }
                    Ticket::Guard(guard) => self.guard_answered(id, guard, answer, known, now),
                    Ticket::Command { .. } | Ticket::Status(..) => {
                        self.note_repeatable(fingerprint, (id, &ticket), &answer, now);
                        self.note_version(&ticket, &answer, (sent_at, now));
                        self.write_answered(id, &key, &ticket, &answer, now);
                    }
                }
            }
        }
    }

    fn read_answered(
        &mut self,
        (pass, key): (u64, &QueueKey),
        ticket: &Ticket,
        (resource, object): (Resource, &ObjectKey),
        read: Result<bool, Trouble>,
        now: Timestamp,
    ) {
        if read.is_ok() {
            self.settled(key, resource, object);
        }
        if let Some(active) = self.passes.get_mut(&pass) {
            active.progresses(now);
            active.pass.read_done(ticket, read.map(|_| true));
        }
    }

    fn guard_answered(&mut self, pass: u64, guard: &Guard, answer: Answer, known: Option<Uid>, now: Timestamp) {
        let holds = match &answer {
            Answer::Object(object) => object.meta().uid == guard.uid && object.meta().deleted.is_none(),
            _ => false,
        };
        let read = self.absorb_read(guard.resource, &guard.key, answer, known, now);
        if let Some(active) = self.passes.get_mut(&pass) {
            active.progresses(now);
            active
                .pass
                .read_done(&Ticket::Guard(guard.clone()), read.map(|_| holds));
        }
    }

    /// Puts what a read showed into the cache. Says whether the object is there.
    ///
    /// That it is not there has no version. Since the read was sent it may have been created, and the watch may have told so before
    /// the answer came; so it speaks only of the incarnation that was known then.
    fn absorb_read(
        &mut self,
        resource: Resource,
        key: &ObjectKey,
        answer: Answer,
        known: Option<Uid>,
        now: Timestamp,
    ) -> Result<bool, Trouble> {
        let trouble = |refused, message, retry_at| {
            let request = TroubledRequest {
                tried: Tried::Read,
                subject: format!("{resource} {key}"),
                refused,
            };
            Err(Trouble {
                request: Some(request),
                message,
                retry_at,
            })
        };
        match meaning(Intent::Read, &answer) {
            Outcome::Done => {
                if let Answer::Object(object) = answer {
                    let change = self.cache.apply(object, Source::Answer);
                    self.route(change, Origin::Ours, now);
                }
                Ok(true)
            }
            Outcome::Stale => {
                if let Some(uid) = known {
                    let change = self.cache.apply_gone(resource, key, &uid);
                    self.route(change, Origin::Ours, now);
                }
                Ok(false)
            }
            Outcome::Throttled(after) => trouble(None, "too many requests".into(), after.map(|after| now + after)),
            Outcome::Rejected { reason, message, .. } => trouble(Some(reason), message, None),
            Outcome::Unknown(message) | Outcome::NotSent(message) => trouble(None, message, None),
            Outcome::Fenced => Err(Trouble::fenced()),
        }
    }

    fn write_answered(&mut self, pass: u64, key: &QueueKey, ticket: &Ticket, answer: &Answer, now: Timestamp) {
        let Some((resource, object, intent)) = written(ticket) else {
            return;
        };
        self.landed(resource, object);
        self.absorb_write(resource, object, &intent, answer, now);
        let outcome = meaning(intent.clone(), answer);
        if self.must_be_read(&intent, &outcome, resource, object) {
            self.unsettled
                .entry(key.clone())
                .or_default()
                .insert((resource, object.clone()));
        }
        if let Some(active) = self.passes.get(&pass)
            && let Some(note) = note_of(ticket, &outcome, answer, &active.regarding)
        {
            self.events.note(&active.regarding, note, now);
        }
        if let Some(active) = self.passes.get_mut(&pass) {
            active.progresses(now);
            active.pass.write_done(ticket, &outcome, now);
        }
    }

    /// Remembers how far our writes went, for whoever leads after us.
    fn note_version(&mut self, ticket: &Ticket, answer: &Answer, times: (Timestamp, Timestamp)) {
        if let Some((resource, _, intent)) = written(ticket) {
            let on_its_way = self.options.lease.as_ref().map(|lease| lease.times.on_its_way());
            let on_its_way = on_its_way.unwrap_or_default();
            self.last_writes
                .answered(resource, (&intent, answer), times, on_its_way);
        }
    }

    /// Remembers what became of a write, in case that it is to be repeated. A conflict shows that others act, too.
    fn note_repeatable(
        &mut self,
        sent: Option<Fingerprint>,
        (pass, ticket): (u64, &Ticket),
        answer: &Answer,
        now: Timestamp,
    ) {
        let (Some(sent), Some((_, _, intent))) = (sent, written(ticket)) else {
            return;
        };
        if matches!(answer, Answer::Refused(refusal) if refusal.status.code == 409) {
            self.repeats.changed_by_others(sent.object(), now);
        }
        self.repeats.answered(sent, &meaning(intent, answer), pass, now);
    }

    fn landed(&mut self, resource: Resource, object: &ObjectKey) {
        let object = (resource, object.clone());
        if let Some(count) = self.in_flight.get_mut(&object) {
            *count -= 1;
            if *count == 0 {
                self.in_flight.remove(&object);
            }
        }
    }

    fn absorb_write(&mut self, resource: Resource, key: &ObjectKey, intent: &Intent, answer: &Answer, now: Timestamp) {
        let change = match (intent, answer) {
            // Nothing has come of it, whatever it looks like.
            (Intent::Try, _) => None,
            // A pod that is left without a deletion time was not given any grace: it is gone.
            (Intent::Delete(uid), Answer::Object(left)) if left.meta().deleted.is_none() => {
                self.cache.apply_gone(resource, key, uid)
            }
            (Intent::Delete(uid), Answer::Success) => self.cache.apply_gone(resource, key, uid),
            (_, Answer::Object(object)) => self.cache.apply(object.clone(), Source::Answer),
            (Intent::Delete(uid) | Intent::Change(uid), Answer::Refused(refusal))
                if refusal.status.code == 404 && !is_not_served(&refusal.status) =>
            {
                self.cache.apply_gone(resource, key, uid)
            }
            _ => None,
        };
        self.route(change, Origin::Ours, now);
    }

    /// Whether the object must be read before it is decided about again: nobody knows what became of it, or it is not what it was
    /// thought to be. One that is known to be gone need not be.
    fn must_be_read(&self, intent: &Intent, outcome: &Outcome, resource: Resource, key: &ObjectKey) -> bool {
        let is_cached = self.cache.uid_of(resource, key).is_some();
        if *intent == Intent::Try {
            // Nothing was to come of it.
            return false;
        }
        match (outcome, intent) {
            (Outcome::Unknown(_), _) | (Outcome::Stale, Intent::Create { .. }) => true,
            (Outcome::Done, Intent::Create { exists_is_fine }) => *exists_is_fine && !is_cached,
            (Outcome::Stale, Intent::Change(_) | Intent::Delete(_)) => is_cached,
            (Outcome::Stale, Intent::Read | Intent::Try)
            | (Outcome::Done, Intent::Change(_) | Intent::Delete(_) | Intent::Read | Intent::Try)
            | (Outcome::Throttled(_) | Outcome::Rejected { .. } | Outcome::NotSent(_) | Outcome::Fenced, _) => false,
        }
    }

    fn settled(&mut self, key: &QueueKey, resource: Resource, object: &ObjectKey) {
        if let Some(objects) = self.unsettled.get_mut(key) {
            objects.remove(&(resource, object.clone()));
            if objects.is_empty() {
                self.unsettled.remove(key);
            }
        }
    }
}

/// What a write is about, and what it wants.
fn written(ticket: &Ticket) -> Option<(Resource, &ObjectKey, Intent)> {
    match ticket {
        Ticket::Command {
            resource, key, intent, ..
        } => Some((*resource, key, intent.clone())),
        Ticket::Status(resource, key, uid) => Some((*resource, key, Intent::Change(uid.clone()))),
        Ticket::Read(..) | Ticket::Guard(_) => None,
    }
}

/// The event that tells of a command, if one does (STS-1.8).
fn note_of(ticket: &Ticket, outcome: &Outcome, answer: &Answer, regarding: &Regarding) -> Option<EventNote> {
    let Ticket::Command {
        resource, key, report, ..
    } = ticket
    else {
        return None;
    };
    let (kind, name, set) = (resource.kind(), &key.name, &regarding.key.name);
    let (verb, success, failure) = words(*report)?;
    let owner = regarding.resource.kind();
    match outcome {
        // That it existed already is nothing to tell, nor that it would be accepted.
        Outcome::Done if matches!(answer, Answer::Refused(_)) || matches!(report, Report::Try | Report::Take) => None,
        Outcome::Done => Some(EventNote {
            warning: *report == Report::RecreateFailed,
            reason: success,
            message: format!("{verb} {kind} {name} in {owner} {set} successful"),
        }),
        Outcome::Stale | Outcome::Fenced => None,
        failed => failed.failure().map(|(_, message)| EventNote {
            warning: true,
            reason: failure,
            message: format!("{verb} {kind} {name} in {owner} {set} failed error: {message}"),
        }),
    }
}

/// Verb and reasons of a report.
fn words(report: Report) -> Option<(&'static str, &'static str, &'static str)> {
    match report {
        Report::Silent => None,
        Report::Create => Some(("create", "SuccessfulCreate", "FailedCreate")),
        Report::Try => Some(("try", "SuccessfulCreate", "FailedCreate")),
        Report::Take => Some(("take", "SuccessfulCreate", "FailedCreate")),
        Report::Delete => Some(("delete", "SuccessfulDelete", "FailedDelete")),
        Report::Update => Some(("update", "SuccessfulUpdate", "FailedUpdate")),
        Report::Resize => Some(("resize", "SuccessfulResize", "FailedResize")),
        Report::InPlace => Some((
            "update in place",
            "SuccessfulUpdatePodInPlace",
            "FailedUpdatePodInPlace",
        )),
        Report::ReCreate => Some((
            "mark for making anew",
            "SuccessfulUpdatePodReCreate",
            "FailedUpdatePodReCreate",
        )),
        Report::PullImage => Some(("create", "CreatedImagePullJob", "FailedCreateImagePullJob")),
        Report::RecreateFailed => Some(("recreate failed", "RecreatingFailedPod", "FailedDelete")),
        Report::RecreateTerminated => Some(("recreate terminated", "RecreatingTerminatedPod", "FailedDelete")),
    }
}
