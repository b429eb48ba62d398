//! One run: the cluster, the managers and the network between them, in virtual time, from one schedule.

use crate::clones;
use crate::clones::defect::CloneDefect;
use crate::defect::Defect;
use crate::event::{Event, Life};
use crate::huge::with_policy;
use crate::in_place;
use crate::judge::{Judge, Scene, Verdict, Violation, Writing, settled};
use crate::managers::{Manager, identity};
use crate::network::Window;
use crate::schedule::{Schedule, What};
use crate::spy::Decided;
use crate::stubborn::Stubborn;
use crate::takers::Taker;
use crate::tenants;
use crate::trace::Trace;
use crate::words;
use fastrand::Rng;
use flotilla_engine::core::request::{Answer, Call};
use flotilla_model::{ObjectKey, PodDraft, SetKind, Timestamp, Uid};
use flotilla_sim::server::Admission;
use flotilla_sim::{Agenda, Cluster};
use std::collections::BTreeMap;
use std::time::Duration;

/// When the simulated world begins, in seconds since 1970.
const BEGINNING_S: i64 = 1_767_225_600;
/// After the last fault, the set must be as it should be within this time. It includes the longest pause of the engine (a set with
/// a foreign writer is left alone for a minute) and the back-off of a slot whose pods have ended a few times.
const LIVELY_WITHIN_MS: u64 = 600_000;
/// The same where users mend one thing after the other, each once nothing has changed for a while.
const LIVELY_WITHIN_AS_TOLD_MS: u64 = 3 * LIVELY_WITHIN_MS;
/// What is left to write when the set is as it should be has this much time.
const LAST_WORDS_MS: u64 = 5_000;
/// For so long nothing may be written afterwards. Longer than a minute, after which conditions tell of what blocks.
const SILENT_MS: u64 = 70_000;
/// When nothing has changed for so long, what is in the way must be told, and users begin to help. It is the minute that rules allow,
/// and as much as clocks may differ.
pub(crate) const STUCK_MS: u64 = 100_000;
/// More writes than this in one run are an endless loop.
const WRITES_MAX: u32 = 3_000;
/// And so many more in huge sets: a pass may make a thousand claims before their pods are refused, and those of no pod go.
const WRITES_OF_HUGE_SETS: u32 = 12_000;
/// More events than this in one run are an endless loop.
const EVENTS_MAX: u32 = 400_000;

/// How to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A defect to plant.
    pub defect: Option<Defect>,
    /// A defect of CloneSets to plant.
    pub clone_defect: Option<CloneDefect>,
    /// With a defect that repeats requests: the core holds them back all the same.
    pub keeps_guard: bool,
    /// Keep what happens.
    pub trace: bool,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What was wrong, if anything.
    pub violation: Option<Violation>,
    /// What happened, if it was kept.
    pub trace: Vec<String>,
    /// Writes of managers that reached the server.
    pub writes: u32,
    /// Virtual time that passed.
    pub lasted: Duration,
    /// When the set was as it should be, after the last fault.
    pub settled_after: Duration,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Faults strike.
    Busy,
    /// They have ended then.
    Calm { since_ms: u64 },
    /// All is as it should be since then; there had been so many writes when last words were over.
    Settled { since_ms: u64, writes: Option<u32> },
    /// Nothing is left to see.
    Over,
}

/// Everything there is in a run.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) schedule: Schedule,
    pub(crate) managers: Vec<Manager>,
    pub(crate) windows: Vec<Window>,
    pub(crate) rng: Rng,
    pub(crate) trace: Trace,
    pub(crate) defect: Option<Defect>,
    pub(crate) clone_defect: Option<CloneDefect>,
    pub(crate) keeps_guard: bool,
    pub(crate) now_ms: u64,
    /// Requests about one pod that are refused.
    pub(crate) stubborn: Vec<Stubborn>,
    /// Somebody who takes new pods away.
    pub(crate) taker: Option<Taker>,
    /// What the write that is being carried out rests on.
    pub(crate) writing: Option<Writing>,
    pub(crate) writes: u32,
    /// Until when Flotilla's own webhooks are away.
    pub(crate) webhook_away_until_ms: u64,
    pub(crate) admissions: Vec<(u64, Admission)>,
    /// The admission that came last, and the node that was lost last.
    pub(crate) last_admission: Option<Admission>,
    pub(crate) last_lost: Option<usize>,
    /// When users asked last what to do.
    pub(crate) told_at_ms: u64,
    agenda: Agenda<Event>,
    pub(crate) judge: Judge,
    stage: Stage,
    settled_after_ms: u64,
    /// When anything but a lease or an event changed last.
    changed_at_ms: u64,
    /// What was held back when somebody asked why: at which version, and since when.
    pub(crate) held_since: BTreeMap<String, (Option<u64>, u64)>,
    /// The set of which that is said.
    pub(crate) held_by: Option<Uid>,
    /// When all was looked at last.
    looked_at_ms: u64,
    violation: Option<Violation>,
}

/// Runs a schedule to its end, or to the first violation.
pub fn run(schedule: &Schedule, options: Options) -> Outcome {
    let mut world = World::new(schedule, options);
    let mut events = 0;
    let writes_max = WRITES_MAX + schedule.set.room.map_or(0, |_| WRITES_OF_HUGE_SETS);
    while world.violation.is_none() && world.stage != Stage::Over && world.step() {
        events += 1;
        if events > EVENTS_MAX || world.writes > writes_max {
            let what = format!("{events} events and {} writes, and no end", world.writes);
            world.fail(Err(Violation::new("STS-I8 quiescence", what)));
        }
    }
    Outcome {
        violation: world.violation,
        trace: world.trace.into_lines(),
        writes: world.writes,
        lasted: Duration::from_millis(world.now_ms),
        settled_after: Duration::from_millis(world.settled_after_ms),
    }
}

fn moment(at_ms: u64) -> Timestamp {
    Timestamp::from_seconds(BEGINNING_S) + Duration::from_millis(at_ms)
}

impl World {
    fn new(schedule: &Schedule, options: Options) -> Self {
        let mut cluster = Cluster::new(schedule.seed, moment(0));
        cluster.server.admission = with_policy(Admission::default(), schedule.set.room, &schedule.set);
        cluster.nodes.broken_images.push("bad:".to_owned());
        let managers = schedule.skews_ms.iter().take(schedule.managers);
        let mut world = World {
            cluster,
            managers: managers.map(|skew| Manager::new(*skew)).collect(),
            windows: Vec::new(),
            rng: Rng::with_seed(schedule.seed ^ 0x5eed),
            trace: Trace::new(options.trace),
            defect: options.defect,
            clone_defect: options.clone_defect,
            keeps_guard: options.keeps_guard,
            now_ms: 0,
            stubborn: Vec::new(),
            taker: None,
            writing: None,
            writes: 0,
            webhook_away_until_ms: 0,
            admissions: Vec::new(),
            last_admission: None,
            last_lost: None,
            told_at_ms: 0,
            agenda: Agenda::default(),
            judge: Judge::new(schedule),
            stage: Stage::Busy,
            settled_after_ms: 0,
            changed_at_ms: 0,
            held_since: BTreeMap::new(),
            held_by: None,
            looked_at_ms: 0,
            violation: None,
            schedule: schedule.clone(),
        };
        world.prepare_storage();
        for index in 0..world.managers.len() {
            world.plan_at(100 * index as u64, Event::Start(index));
        }
        world.plan_at(50, Event::CreateSet);
        for (index, item) in schedule.items.iter().enumerate() {
            world.plan_at(item.at_ms, Event::Item(index));
        }
        world.plan_at(schedule.calm_at_ms(), Event::Calm);
        world.plan_to_ask_why();
        world
    }

    /// Plans an event.
    pub(crate) fn plan(&mut self, delay_ms: u64, event: Event) {
        self.plan_at(self.now_ms + delay_ms, event);
    }

    pub(crate) fn plan_at(&mut self, at_ms: u64, event: Event) {
        self.agenda.plan(moment(at_ms), event);
    }

    /// The moment `delay_ms` from now.
    pub(crate) fn later(&self, delay_ms: u64) -> Timestamp {
        moment(self.now_ms + delay_ms)
    }

    /// The moment.
    pub(crate) fn time(&self) -> Timestamp {
        moment(self.now_ms)
    }

    pub(crate) fn say(&mut self, text: impl FnOnce() -> String) {
        self.trace.say(self.now_ms, text);
    }

    /// Goes to the next moment at which something happens. `false` if nothing ever does.
    fn step(&mut self) -> bool {
        let dues = [self.agenda.next_due(), self.cluster.next_due()];
        let Some(next) = dues.into_iter().flatten().min() else {
            return false;
        };
        self.now_ms = u64::try_from(next.since(moment(0)).as_millis()).unwrap_or(u64::MAX);
        self.cluster.advance(next);
        self.settle();
        while self.violation.is_none()
            && let Some((_, event)) = self.agenda.pop(next)
        {
            if let Some(until_ms) = self.stands_still(&event) {
                self.plan_at(until_ms, event);
                continue;
            }
            self.happen(event);
            self.settle();
        }
        true
    }

    /// Until when the manager that an event reaches stands still.
    fn stands_still(&self, event: &Event) -> Option<u64> {
        let (Event::Advance(life)
        | Event::Depart(life, ..)
        | Event::Answer(life, ..)
        | Event::Left(life)
        | Event::Listed(life, ..)
        | Event::Watch(life, ..)
        | Event::Again(life, ..)) = event
        else {
            return None;
        };
        let until_ms = self.managers[life.manager].stopped_until_ms;
        (until_ms > self.now_ms).then_some(until_ms)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Item(index) => self.item(index),
            Event::Advance(life) => self.advance_manager(life),
            Event::Depart(life, request, basis) => self.depart(life, request, basis),
            Event::Arrive(life, request, basis, reply) => self.arrive(life, &request, basis, reply),
            Event::Answer(life, id, answer) => self.answered(life, id, *answer),
            Event::List(life, resource, stream) => self.list(life, resource, stream),
            Event::Listed(life, resource, stream, objects, version) => {
                self.listed(life, (resource, stream), objects, version);
            }
            Event::Watch(life, resource, stream) => self.deliver(life, resource, stream),
            Event::Again(life, resource, stream) => self.again(life, resource, stream),
            Event::Left(life) => self.time_to_leave_is_over(life),
            Event::Start(index) => self.start_manager(index),
            Event::CreateSet => self.create_set(),
            Event::AdmissionEnds => self.admission_changes(),
            Event::Resizes(key) => self.refuse_resizes(&key, None),
            Event::Take(key, uid) => self.take_pod(&key, &uid),
            Event::AskWhy => self.somebody_asks_why(),
            Event::Calm => self.calm(),
            Event::Look => self.look(),
        }
    }

    fn item(&mut self, index: usize) {
        let item = self.schedule.items[index].clone();
        self.say(|| format!("---- {item}"));
        match item.what {
            What::User(act) => self.act(&act),
            What::Fault(fault) => self.strike(fault, item.seed),
        }
    }

    /// Where the pod of an ordinal is; of a CloneSet, the pod in that place.
    pub(crate) fn pod_key(&self, ordinal: i64) -> ObjectKey {
        let by_number = ObjectKey::new("ns", format!("web-{ordinal}"));
        if self.schedule.set.kind != SetKind::Clone {
            return by_number;
        }
        let pods = tenants::all(&self.cluster.server, flotilla_model::Resource::Pods);
        let mut keys = pods.filter_map(|s| s.object.as_ref().map(|o| o.meta().key.clone()));
        keys.nth(usize::try_from(ordinal).unwrap_or(0)).unwrap_or(by_number)
    }

    fn calm(&mut self) {
        self.say(|| "---- all faults end".to_owned());
        self.cluster.nodes.heal();
        self.windows.clear();
        self.stubborn.clear();
        for manager in &mut self.managers {
            (manager.dies_after, manager.stops_before) = (None, None);
        }
        self.users_calm_down();
        self.last_troubles_stay();
        self.stage = Stage::Calm { since_ms: self.now_ms };
        self.plan(1_000, Event::Look);
    }

    /// Whether all is as it should be, and stays so in silence.
    fn look(&mut self) {
        let seen_at_ms = std::mem::replace(&mut self.looked_at_ms, self.now_ms);
        // What was as it should be, and has not changed since, is so: half of a schedule is this silence.
        if let Stage::Settled { since_ms, writes } = self.stage
            && self.changed_at_ms < seen_at_ms
        {
            self.keep_silent(since_ms, writes);
            self.plan(1_000, Event::Look);
            return;
        }
        // By the slowest clock, to which pods are available last.
        let behind_ms = self.schedule.skews_ms.iter().copied().min().unwrap_or(0).min(0);
        let now = Timestamp::from_millis(self.time().as_millis() + behind_ms);
        if matches!(self.stage, Stage::Calm { .. }) {
            self.users_mind_hooks();
            if self.schedule.set.storage.is_some() {
                // They have been told after minutes: they need no more time.
                self.users_make_anew_what_cannot_change();
            }
        }
        let state = match self.schedule.set.kind {
            SetKind::Clone => clones::settled::look(
                &self.cluster.server,
                now,
                |claim, set| self.judge.may_be_left(claim, set),
                |set| settled::conditions(set).and_then(|()| settled::is_said_to_rest(set)),
            ),
            kind => settled::look(&self.cluster.server, kind, now),
        };
        let state = state.and_then(|()| self.volumes_are_at_rest());
        let state = state.and_then(|()| match self.schedule.set.in_place {
            Some(_) => in_place::at_rest(&self.cluster.server),
            None => Ok(()),
        });
        let state = state.and_then(|()| match self.stage {
            Stage::Calm { .. } => self.somebody_acts(),
            Stage::Busy | Stage::Settled { .. } | Stage::Over => Ok(()),
        });
        match (self.stage, state) {
            (Stage::Calm { since_ms }, Ok(())) => {
                self.say(|| "---- all is as it should be".to_owned());
                self.settled_after_ms = self.now_ms - since_ms;
                let since_ms = self.now_ms;
                self.stage = Stage::Settled { since_ms, writes: None };
            }
            (Stage::Calm { since_ms }, Err(what)) => self.users_wait_for(&what, since_ms),
            (Stage::Settled { .. }, Err(what)) => {
                let what = format!("all was as it should be, and now {what}");
                self.fail(Err(Violation::new("STS-I8 quiescence", what)));
            }
            (Stage::Settled { since_ms, writes }, Ok(())) => self.keep_silent(since_ms, writes),
            (Stage::Busy | Stage::Over, _) => {}
        }
        self.plan(1_000, Event::Look);
    }

    /// Something is not as it should be, and faults have ended then.
    fn users_wait_for(&mut self, what: &str, since_ms: u64) {
        if self.now_ms > since_ms + self.lively_within_ms() {
            let minutes = self.lively_within_ms() / 60_000;
            let what = format!("{what}, {minutes} minutes after the last fault");
            self.fail(Err(Violation::new("STS-I10 it converges", what)));
        } else if self.now_ms > self.changed_at_ms.max(since_ms) + STUCK_MS {
            let verdict = match self.schedule.set.kind {
                // What becomes of nodes no set tells.
                _ if self.is_a_node_lost() => Ok(()),
                SetKind::Clone => self.explained_by_waits(what),
                kind => settled::explained(&self.cluster.server, kind, what),
            };
            self.fail(verdict);
            self.users_do_what_is_advised(Some(what));
        } else if self.is_time_to_be_told(since_ms) {
            // Whoever waits for long asks even though managers try again and again.
            self.told_at_ms = self.now_ms;
            self.users_do_what_is_advised(None);
        }
    }

    fn lively_within_ms(&self) -> u64 {
        if self.schedule.mends_as_told {
            LIVELY_WITHIN_AS_TOLD_MS
        } else {
            LIVELY_WITHIN_MS
        }
    }

    /// Nothing is settled while no manager could have done anything about the last change: annotations change no generation, so that a status
    /// may look as if it had been seen.
    fn somebody_acts(&self) -> Result<(), String> {
        let somebody = self.managers.iter().enumerate().any(|(index, manager)| {
            let core = manager
                .core
                .as_ref()
                .filter(|_| manager.stopped_until_ms <= self.now_ms);
            core.is_some_and(|core| core.holds_lease(self.clock_of(index)) && core.not_ready().is_empty())
        });
        somebody
            .then_some(())
            .ok_or_else(|| "no manager leads that has listed everything".to_owned())
    }

    fn keep_silent(&mut self, since_ms: u64, writes: Option<u32>) {
        let Some(writes) = writes else {
            let is_over = self.now_ms >= since_ms + LAST_WORDS_MS;
            let writes = is_over.then_some(self.writes);
            self.stage = Stage::Settled { since_ms, writes };
            return;
        };
        if self.writes > writes {
            self.fail(Err(Violation::new("STS-I8 quiescence", "a settled set was written to")));
        } else if self.now_ms >= since_ms + LAST_WORDS_MS + SILENT_MS {
            self.stage = Stage::Over;
        }
    }

    /// Lets cluster, judge and watches take notice of what was written.
    pub(crate) fn settle(&mut self) {
        self.cluster.react();
        for entry in self.cluster.take_changes() {
            let Some(resource) = entry.resource.watched() else {
                continue;
            };
            if words::is_told(resource) {
                self.changed_at_ms = self.now_ms;
                self.say(|| words::entry(&entry));
            }
            let scene = Scene {
                server: &self.cluster.server,
                now: moment(self.now_ms),
                writing: self.writing.as_ref(),
            };
            let verdict = self.judge.note(&entry, &scene);
            self.fail(verdict);
            self.takers_see(&entry);
            for manager in 0..self.managers.len() {
                self.plan_delivery(manager, resource);
            }
        }
    }

    /// A pod was tried: the judge knows of which revision, with which claim templates, one is accepted.
    pub(crate) fn tried(&mut self, pod: &PodDraft, answer: &Answer) {
        let mut labels = pod.labels.iter().filter(|(key, _)| *key == "controller-revision-hash");
        let Some((_, revision)) = labels.next() else { return };
        let claims = pod.claims.iter().map(|(template, _)| template.to_string()).collect();
        match answer {
            Answer::Refused(refusal) if refusal.status.message.contains("exceeded quota") => {
                self.judge.left_unproven(revision, &claims);
            }
            Answer::Refused(refusal) if refusal.status.reason != "AlreadyExists" => {}
            _ => self.judge.accepted(revision, &claims),
        }
    }

    /// A write of a manager is about to be carried out.
    pub(crate) fn judge_write(&mut self, life: Life, call: &Call, basis: Option<&Decided>) {
        let holder = self.lease_holder();
        let us = identity(life);
        if holder.as_ref().and_then(|h| h.as_str()) != Some(&us) {
            let what = format!(
                "{us} writes ({}) while the lease is held by {holder:?}",
                words::call(call)
            );
            self.fail(Err(Violation::new("lease", what)));
        }
        if matches!(call, Call::Write(_)) && basis.is_none() {
            let what = format!("no decision asked for this: {}", words::call(call));
            self.fail(Err(Violation::new("one way of data", what)));
        }
        if let Call::Write(command) = call {
            self.fail(Judge::command(command, self.schedule.set.kind));
        }
    }

    /// The first violation ends the run.
    pub(crate) fn fail(&mut self, verdict: Verdict) {
        if let Err(violation) = verdict
            && self.violation.is_none()
        {
            self.say(|| format!("==== VIOLATION {violation}"));
            self.violation = Some(violation);
        }
    }
}
