//! One pass over one key: read what is unsettled, carry out the stages, write the status.
//!
//! A pass says which request it wants sent next and is told what became of it; when nothing is on its way and nothing is left, a
//! step is over. What the requests are is decided elsewhere: the owner of the passes asks the controller between two steps.
//!
//! A stage with slow start may have sent at most one command more than `SLOW_START_FACTOR` times those that went well, so that a thousand
//! commands that cannot work are not all tried. What is refused about one object says little of the next one: each of the first few
//! refusals lets one more go.

use super::outcome::{Intent, Outcome};
use super::refusals::Tried;
use flotilla_model::{
    Command, Failure, Guard, ObjectKey, Report, Resource, Scope, ScopedCommand, Stage, StatusWrite, Timestamp, Uid,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Commands of one stage in flight at most, however many went well.
const STAGE_IN_FLIGHT_MAX: usize = 500;

/// With slow start: how many commands may be sent for each that went well. Kubernetes' own controllers send batches of 1, 2, 4 and so
/// on, and wait for the whole batch. With four, a thousand pods are through the start after some eighty answers; what a quota refuses
/// in between is bounded by the window of writes.
const SLOW_START_FACTOR: usize = 4;

/// With slow start: how many commands may be sent, one after the other, each for one that was refused.
const SLOW_START_REFUSALS: usize = 8;

/// Reads of one pass in flight at most.
const READS_IN_FLIGHT_MAX: usize = 32;

/// What a pass wants sent.
#[derive(Debug, PartialEq)]
pub enum Task {
    /// Read an object: it is unsettled, or the controller asked for it.
    Read(Resource, ObjectKey),
    /// Read the object of a guard.
    Guard(Guard),
    /// Carry out a command.
    Command(ScopedCommand),
    /// Write the status.
    Status(Box<StatusWrite>),
}

/// Identifies what an answer is about. Keeps what is needed of the task once the request has it.
#[derive(Clone, Debug, PartialEq)]
pub enum Ticket {
    /// A [`Task::Read`].
    Read(Resource, ObjectKey),
    /// A [`Task::Guard`].
    Guard(Guard),
    /// A [`Task::Command`].
    Command {
        /// Its scope.
        scope: Scope,
        /// What it acts on.
        resource: Resource,
        /// The object.
        key: ObjectKey,
        /// What a refusal would mean.
        intent: Intent,
        /// The events that tell of it.
        report: Report,
    },
    /// A [`Task::Status`], of this incarnation.
    Status(Resource, ObjectKey, Uid),
}

impl Task {
    /// The ticket of this task.
    pub fn ticket(&self) -> Ticket {
        match self {
            Task::Read(resource, key)
            | Task::Command(ScopedCommand {
                command: Command::Read { resource, key },
                ..
            }) => Ticket::Read(*resource, key.clone()),
            Task::Guard(guard) => Ticket::Guard(guard.clone()),
            Task::Status(write) => Ticket::Status(write.resource, write.key.clone(), write.uid.clone()),
            Task::Command(ScopedCommand { scope, command }) => Ticket::Command {
                scope: scope.clone(),
                resource: command.resource(),
                key: command.key().clone(),
                intent: Intent::of(command),
                report: command.report(),
            },
        }
    }
}

impl Task {
    /// Whether it changes something.
    fn is_write(&self) -> bool {
        match self {
            Task::Read(..) | Task::Guard(_) => false,
            Task::Command(scoped) => !matches!(scoped.command, Command::Read { .. }),
            Task::Status(_) => true,
        }
    }
}

/// Which step a pass is in, or has just ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reading what is unsettled.
    Settling,
    /// Carrying out stages.
    Acting,
    /// Writing the status.
    Reporting,
}

/// A command that failed: it was refused, or did not arrive, or nobody knows what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// What was tried.
    pub attempt: Report,
    /// A word for programs.
    pub reason: String,
    /// What the server said, or why it said nothing.
    pub message: String,
    /// Not to be tried again before, if the server said so.
    pub not_before: Option<Timestamp>,
    /// Whether its scope waits before the next try, while others go on. One that would change or delete a pod does not, unless it was
    /// refused: it may yet take effect, and another pod that went in its place would be one too many, and out of order.
    pub holds_back: bool,
}

/// What kept a pass from ending well, other than failed commands, which belong to scopes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The request that went wrong; none where the lease is lost, or nobody could decide.
    pub request: Option<TroubledRequest>,
    /// What happened.
    pub message: String,
    /// Not to be tried again before, if the server said so.
    pub retry_at: Option<Timestamp>,
}

/// A request other than a command that went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TroubledRequest {
    /// What was tried.
    pub tried: Tried,
    /// On what.
    pub subject: String,
    /// Why the API server refused it, as a word for programs, if it did: it will again, and is counted instead of being told each time.
    pub refused: Option<String>,
}

impl Trouble {
    /// The lease is not held any more.
    pub fn fenced() -> Trouble {
        Trouble {
            request: None,
            message: "the lease is not held".into(),
            retry_at: None,
        }
    }

    /// For people: what was tried on what, and what came of it.
    pub fn sentence(&self) -> String {
        match &self.request {
            None => self.message.clone(),
            Some(TroubledRequest { tried, subject, .. }) => {
                let verb = match tried {
                    Tried::Write => "writing",
                    Tried::Status => "writing the status of",
                    Tried::Read => "reading",
                };
                format!("{verb} {subject}: {}", self.message)
            }
        }
    }
}

#[derive(Debug, Default)]
struct Running {
    commands: VecDeque<ScopedCommand>,
    all_or_stop: bool,
    slow_start: bool,
    started: usize,
    went_well: usize,
    was_refused: bool,
    /// How many were refused for reasons that need not hold for others.
    refused_alone: usize,
}

impl Running {
    /// Whether slow start lets no further command go before another one is answered.
    fn holds_back(&self) -> bool {
        let allowed = SLOW_START_FACTOR * self.went_well + self.refused_alone.min(SLOW_START_REFUSALS);
        self.slow_start && self.started > allowed
    }
}

/// Whether what is refused to one object of a set for this reason may be allowed to another: rights and policies may look at names and labels.
/// Templates, quotas, and webhooks that are away, are the same for all.
fn concerns_it_alone(reason: &str) -> bool {
    matches!(reason, Failure::FORBIDDEN | Failure::DENIED)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GuardState {
    Asked,
    Holds,
    Broken,
}

/// One pass; see the module's description.
// What has happened in a pass so far: facts that are independent of each other.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug)]
pub struct Pass {
    step: Step,
    in_flight: usize,
    /// Those of them that write something.
    writes_in_flight: usize,
    reads: VecDeque<(Resource, ObjectKey)>,
    stages: VecDeque<Stage>,
    running: Running,
    guards: Vec<(Guard, GuardState)>,
    status: Option<Box<StatusWrite>>,
    /// No further command is started: a failure under `all_or_stop`, the end of the time slice, or the end of our lease.
    stopped: bool,
    /// Scopes whose later commands are cancelled.
    cancelled: BTreeSet<Scope>,
    /// Commands of this pass that failed.
    rejected: BTreeMap<Scope, Rejection>,
    /// Scopes in which something went well.
    went_well: BTreeSet<Scope>,
    wrote: bool,
    was_cut: bool,
    stale: bool,
    /// A command failed that nobody refused, or slow start kept others from being tried beside one that failed.
    unfinished: bool,
    /// The latter, and what failed was refused.
    gave_up_after_refusals: bool,
    trouble: Option<Trouble>,
}

impl Pass {
    /// A pass that begins by reading these objects.
    pub fn new(unsettled: impl IntoIterator<Item = (Resource, ObjectKey)>) -> Self {
        Pass {
            step: Step::Settling,
            in_flight: 0,
            writes_in_flight: 0,
            reads: unsettled.into_iter().collect(),
            stages: VecDeque::new(),
            running: Running::default(),
            guards: Vec::new(),
            status: None,
            stopped: false,
            cancelled: BTreeSet::new(),
            rejected: BTreeMap::new(),
            went_well: BTreeSet::new(),
            wrote: false,
            was_cut: false,
            stale: false,
            unfinished: false,
            gave_up_after_refusals: false,
            trouble: None,
        }
    }

    /// Goes on to carrying out these stages.
    pub fn act(&mut self, stages: Vec<Stage>) {
        self.step = Step::Acting;
        self.stages = stages.into();
    }

    /// Goes on to writing this status.
    pub fn report(&mut self, status: Option<StatusWrite>) {
        self.step = Step::Reporting;
        self.stopped = false;
        self.status = status.map(Box::new);
    }

    /// The next request to send, if one may be sent now.
    pub fn next_task(&mut self) -> Option<Task> {
        let task = match self.step {
            Step::Settling if self.in_flight >= READS_IN_FLIGHT_MAX => None,
            Step::Settling => self.reads.pop_front().map(|(resource, key)| Task::Read(resource, key)),
            Step::Acting => self.next_in_stages(),
            Step::Reporting => self.status.take().map(Task::Status),
        }?;
        self.in_flight += 1;
        self.writes_in_flight += usize::from(task.is_write());
        Some(task)
    }

    /// Whether it has sent writes of which it does not know what became.
    pub fn awaits_write(&self) -> bool {
        self.writes_in_flight > 0
    }

    /// Puts back a write that may not be sent now.
    pub fn put_back(&mut self, task: Task) {
        self.in_flight -= 1;
        self.writes_in_flight -= usize::from(task.is_write());
        match task {
            Task::Read(resource, key) => self.reads.push_front((resource, key)),
            Task::Guard(guard) => self.guards.retain(|(known, _)| *known != guard),
            Task::Status(write) => self.status = Some(write),
            Task::Command(command) => {
                self.running.started -= 1;
                self.running.commands.push_front(command);
            }
        }
    }

    /// A write is not sent now, since it would be a repetition: its scope waits, and whatever else there is to do goes on.
    pub fn hold_back(&mut self, ticket: &Ticket) {
        self.in_flight -= 1;
        self.writes_in_flight -= 1;
        if let Ticket::Command { scope, .. } = ticket {
            self.running.started -= 1;
            self.cancel(scope.clone());
        }
    }

    /// The end of the pass's time slice: starts no further commands, and wants another pass if there were any.
    pub fn cut(&mut self) {
        if self.step == Step::Acting && (!self.running.commands.is_empty() || !self.stages.is_empty()) {
            self.stopped = true;
            self.was_cut = true;
        }
    }

    /// Its commands may not go for some time: starts no further ones, and wants another pass.
    pub fn give_up(&mut self) {
        self.stopped = true;
        self.was_cut = true;
    }

    /// Whether commands were left undone for lack of time.
    pub fn was_cut(&self) -> bool {
        self.was_cut
    }

    fn next_in_stages(&mut self) -> Option<Task> {
        loop {
            if let Some(task) = self.next_in_stage() {
                return Some(task);
            }
            if self.in_flight > 0 || !self.running.commands.is_empty() {
                return None;
            }
            let stage = self.stages.pop_front()?;
            self.running = Running {
                commands: stage.commands.into(),
                all_or_stop: stage.all_or_stop,
                slow_start: stage.slow_start,
                ..Running::default()
            };
        }
    }

    fn next_in_stage(&mut self) -> Option<Task> {
        loop {
            self.drop_cancelled();
            let command = self.running.commands.front()?;
            if self.running.holds_back() || self.in_flight >= STAGE_IN_FLIGHT_MAX {
                return None;
            }
            match command.command.guard().map(|guard| self.guard_state(guard)) {
                None | Some(Some(GuardState::Holds)) => {
                    self.running.started += 1;
                    return self.running.commands.pop_front().map(Task::Command);
                }
                Some(Some(GuardState::Asked)) => return None,
                Some(Some(GuardState::Broken)) => {
                    self.stale = true;
                    let scope = command.scope.clone();
                    self.cancel(scope);
                }
                Some(None) => {
                    let guard = command.command.guard().cloned()?;
                    self.guards.push((guard.clone(), GuardState::Asked));
                    return Some(Task::Guard(guard));
                }
            }
        }
    }

    fn drop_cancelled(&mut self) {
        let nothing_goes_well = self.in_flight == 0 && self.running.holds_back();
        if self.stopped {
            self.stages.clear();
        }
        if self.stopped || nothing_goes_well {
            // What was to follow in these scopes rests on what is not done: no pod without its claims.
            let gives_up = nothing_goes_well && !self.running.commands.is_empty();
            self.unfinished |= gives_up;
            self.gave_up_after_refusals |= gives_up && self.running.was_refused;
            let dropped = self.running.commands.drain(..).map(|c| c.scope);
            self.cancelled.extend(dropped);
        }
        while self
            .running
            .commands
            .front()
            .is_some_and(|c| self.cancelled.contains(&c.scope))
        {
            self.running.commands.pop_front();
        }
    }

    fn guard_state(&self, guard: &Guard) -> Option<GuardState> {
        self.guards
            .iter()
            .find(|(known, _)| known == guard)
            .map(|(_, state)| *state)
    }

    fn cancel(&mut self, scope: Scope) {
        self.cancelled.insert(scope);
        if self.running.all_or_stop {
            self.stopped = true;
        }
    }

    /// Starts no further commands; what is on its way ends.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// A read or a guard was answered: whether the object is as it should be, or why nobody knows.
    pub fn read_done(&mut self, ticket: &Ticket, answered: Result<bool, Trouble>) {
        self.in_flight -= 1;
        if let Ticket::Guard(guard) = ticket {
            let state = if answered == Ok(true) {
                GuardState::Holds
            } else {
                GuardState::Broken
            };
            for (_, known) in self.guards.iter_mut().filter(|(known, _)| known == guard) {
                *known = state;
            }
        }
        if let Err(trouble) = answered {
            self.note(trouble);
            self.stop();
        }
    }

    /// A command or status write had this outcome at `now`.
    pub fn write_done(&mut self, ticket: &Ticket, outcome: &Outcome, now: Timestamp) {
        self.in_flight -= 1;
        self.writes_in_flight -= 1;
        let scope = match ticket {
            Ticket::Command { scope, .. } => Some(scope.clone()),
            Ticket::Status(..) | Ticket::Read(..) | Ticket::Guard(_) => None,
        };
        // A stale view says nothing against the next command, which is about another object.
        if matches!(outcome, Outcome::Done | Outcome::Stale) {
            self.running.went_well += 1;
        }
        match outcome {
            Outcome::Done => {
                self.wrote = true;
                self.went_well.extend(scope);
                return;
            }
            Outcome::Stale => self.stale = true,
            Outcome::Fenced => self.note(Trouble::fenced()),
            Outcome::Rejected { reason, .. } => {
                self.running.was_refused = true;
                self.running.refused_alone += usize::from(concerns_it_alone(reason));
            }
            Outcome::Unknown(_) | Outcome::Throttled(_) | Outcome::NotSent(_) => {}
        }
        self.fail(ticket, outcome, now);
        if let Some(scope) = scope {
            self.cancel(scope);
        }
    }

    fn fail(&mut self, ticket: &Ticket, outcome: &Outcome, now: Timestamp) {
        let Some((reason, message)) = outcome.failure() else {
            return;
        };
        let not_before = outcome.retry_after().map(|after| now + after);
        match ticket {
            Ticket::Command {
                scope, report, intent, ..
            } => {
                let is_refused = matches!(outcome, Outcome::Rejected { .. });
                self.unfinished |= !is_refused;
                let rejection = Rejection {
                    attempt: *report,
                    reason: reason.into(),
                    message: message.into(),
                    not_before,
                    holds_back: is_refused || matches!(intent, Intent::Create { .. } | Intent::Try),
                };
                self.rejected.insert(scope.clone(), rejection);
            }
            Ticket::Status(resource, key, _) => {
                let is_refused = matches!(outcome, Outcome::Rejected { .. });
                let request = TroubledRequest {
                    tried: Tried::Status,
                    subject: format!("{resource} {key}"),
                    refused: is_refused.then(|| reason.into()),
                };
                self.note(Trouble {
                    request: Some(request),
                    message: message.into(),
                    retry_at: not_before,
                });
            }
            // Their answers are taken by `read_done`.
            Ticket::Read(..) | Ticket::Guard(_) => {}
        }
    }

    fn note(&mut self, trouble: Trouble) {
        let retry_at = self.trouble.as_ref().and_then(|t| t.retry_at).max(trouble.retry_at);
        self.trouble = Some(Trouble { retry_at, ..trouble });
    }

    /// The step that has just ended; `None` while requests are on their way or left to send.
    pub fn ended(&self) -> Option<Step> {
        let left = match self.step {
            Step::Settling => !self.reads.is_empty() && !self.stopped,
            Step::Acting => (!self.running.commands.is_empty() || !self.stages.is_empty()) && !self.stopped,
            Step::Reporting => self.status.is_some() && !self.stopped,
        };
        (self.in_flight == 0 && !left).then_some(self.step)
    }

    /// Whether a write took effect.
    pub fn wrote(&self) -> bool {
        self.wrote
    }

    /// Whether an answer showed that the view was stale.
    pub fn is_stale(&self) -> bool {
        self.stale
    }

    /// Whether the set must be looked at again soon: for what became of a command, or for what was not done.
    pub fn is_unfinished(&self) -> bool {
        self.unfinished
    }

    /// Whether slow start has kept commands from being tried after others were refused.
    pub fn gave_up_after_refusals(&self) -> bool {
        self.gave_up_after_refusals
    }

    /// What went wrong, other than commands that failed.
    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// Commands that failed, by scope.
    pub fn rejected(&self) -> &BTreeMap<Scope, Rejection> {
        &self.rejected
    }

    /// Scopes in which everything that was tried went well.
    pub fn went_well(&self) -> impl Iterator<Item = &Scope> {
        self.went_well.iter().filter(|scope| !self.cancelled.contains(*scope))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::testing::{at, key};
    use flotilla_model::Body;
    use serde_json::json;
    use std::sync::Arc;

    fn create(resource: Resource, ordinal: i64) -> ScopedCommand {
        ScopedCommand {
            scope: Scope::Slot(ordinal),
            command: Command::Create {
                resource,
                key: key(&format!("web-{ordinal}")),
                body: Body::Json(Arc::new(json!({}))),
                exists_is_fine: false,
                guard: None,
                report: Report::Create,
            },
        }
    }

    #[test]
    fn what_slow_start_gives_up_cancels_its_scope() {
        let stage = |name, resource| Stage {
            name,
            commands: (0..3).map(|ordinal| create(resource, ordinal)).collect(),
            all_or_stop: false,
            slow_start: true,
        };
        let mut pass = Pass::new([]);
        pass.act(vec![stage("claims", Resource::Claims), stage("create", Resource::Pods)]);
        let first = pass.next_task().expect("one claim, to see whether it works");
        assert_eq!(pass.next_task(), None);
        pass.write_done(&first.ticket(), &Outcome::Unknown("no answer".into()), at(0));
        assert_eq!(pass.next_task(), None, "no pod is created whose claim was not");
        assert_eq!(pass.ended(), Some(Step::Acting));
    }

    #[test]
    fn a_guard_is_no_write() {
        let guarded = ScopedCommand {
            scope: Scope::Slot(0),
            command: Command::Create {
                resource: Resource::Pods,
                key: key("web-0"),
                body: Body::Json(Arc::new(json!({}))),
                exists_is_fine: false,
                guard: Some(Guard {
                    resource: Resource::AdvancedSets,
                    key: key("web"),
                    uid: flotilla_model::Uid::new("u"),
                }),
                report: Report::Create,
            },
        };
        let mut pass = Pass::new([]);
        pass.act(vec![Stage {
            name: "x",
            commands: vec![guarded],
            all_or_stop: false,
            slow_start: false,
        }]);
        assert!(matches!(pass.next_task(), Some(Task::Guard(_))));
        assert!(!pass.awaits_write(), "it has sent a read only");
    }
}
