//! The managers: the engine's core and the real controllers, started, driven, stopped and killed.

use crate::clones::prepared::is_gate_on;
use crate::defect::Defect;
use crate::event::{Event, Life};
use crate::judge::Violation;
use crate::judge::repetition::Sent;
use crate::run::World;
use crate::spy::{Decisions, Spy};
use flotilla_controllers::cloneset::{CloneSetController, Defaults};
use flotilla_controllers::statefulset::StatefulSetController;
use flotilla_engine::core::lease::LeaseOptions;
use flotilla_engine::core::request::{Call, Request};
use flotilla_engine::core::{ClockSteps, Core, CoreOptions, Effect};
use flotilla_model::{Resource, SetKind, Timestamp};
use std::collections::BTreeMap;
use std::time::Duration;

/// A manager that has not left in order by then leaves as it is, and keeps the lease: as long as the real one waits.
pub(crate) const LEAVES_WITHIN_MS: u64 = 15_000;

/// One watch of a manager.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Names the stream; what belongs to an earlier one is ignored.
    pub(crate) stream: u32,
    pub(crate) state: WatchState,
    /// Everything up to this version was brought.
    pub(crate) cursor: u64,
    /// The next delivery is planned.
    pub(crate) is_due: bool,
    /// Nothing is brought before.
    pub(crate) lags_until_ms: u64,
    /// Until then, only the last of several events about one object is brought.
    pub(crate) coalesces_until_ms: u64,
}

/// What a watch does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WatchState {
    /// Nothing yet.
    #[default]
    Off,
    /// A list is on its way.
    Listing,
    /// A list is on its way, and another is wanted after it.
    ListingTwice,
    /// It brings events.
    Open,
    /// It has broken.
    Broken,
}

/// One manager.
pub(crate) struct Manager {
    pub(crate) life: u32,
    /// `None` while it is dead.
    pub(crate) core: Option<Core>,
    pub(crate) decisions: Decisions,
    /// What it has sent in this life.
    pub(crate) sent: Sent,
    /// How far its clock is ahead.
    pub(crate) skew_ms: i64,
    /// How far its clock has been set back, all times together.
    pub(crate) set_back: Duration,
    /// It stands still until then.
    pub(crate) stopped_until_ms: u64,
    pub(crate) watches: BTreeMap<Resource, Watch>,
    /// Dies when this many more of its writes have reached the server, and comes back after so long.
    pub(crate) dies_after: Option<(u32, u64)>,
    /// It has been asked to leave, and comes back so long after it did.
    pub(crate) leaves: Option<u64>,
    /// Stands still when this many more of its writes are about to leave, for so long.
    pub(crate) stops_before: Option<(u32, u64)>,
    /// When it is next advanced, unless something comes before.
    pub(crate) wakes_at_ms: Option<u64>,
}

impl Manager {
    pub(crate) fn new(skew_ms: i64) -> Self {
        Manager {
            life: 0,
            core: None,
            decisions: Decisions::default(),
            sent: Sent::default(),
            skew_ms,
            set_back: Duration::ZERO,
            stopped_until_ms: 0,
            watches: BTreeMap::new(),
            dies_after: None,
            leaves: None,
            stops_before: None,
            wakes_at_ms: None,
        }
    }

    /// What the core is told of how the clock was set.
    fn clock_steps(&self, defect: Option<Defect>) -> ClockSteps {
        let told = |but_for| {
            if defect == Some(but_for) {
                Duration::ZERO
            } else {
                self.set_back
            }
        };
        ClockSteps {
            ahead: told(Defect::LeaseByClock),
            back: told(Defect::FollowClock),
        }
    }
}

/// Who a manager is in the election.
pub(crate) fn identity(life: Life) -> String {
    format!("manager-{}-{}", life.manager, life.life)
}

impl World {
    /// The time that drives a manager: what its clock shows, had it not been set back.
    pub(crate) fn clock_of(&self, manager: usize) -> Timestamp {
        let Manager { skew_ms, set_back, .. } = &self.managers[manager];
        Timestamp::from_millis(self.time().as_millis() + skew_ms) + *set_back
    }

    /// What a manager's clock shows.
    fn wall_clock_of(&self, manager: usize) -> Timestamp {
        self.clock_of(manager) - self.managers[manager].set_back
    }

    /// A manager's clock was ahead by so much, too shortly for it to look.
    pub(crate) fn set_clock_back(&mut self, index: usize, by: Duration) {
        let manager = &mut self.managers[index];
        manager.set_back += by;
        manager.sent.was_long_ago();
        let (now, steps) = (self.clock_of(index), self.managers[index].clock_steps(self.defect));
        if let Some(core) = &mut self.managers[index].core {
            core.note_clock_steps(steps, now);
        }
    }

    /// What time it really was when a manager's clock showed this.
    pub(crate) fn true_time(&self, manager: usize, shown: Timestamp) -> Timestamp {
        Timestamp::from_millis(shown.as_millis() - self.managers[manager].skew_ms)
    }

    /// The life of a manager, if it lives and is the one that is meant.
    pub(crate) fn is_alive(&self, life: Life) -> bool {
        let manager = &self.managers[life.manager];
        manager.core.is_some() && manager.life == life.life
    }

    /// Starts a manager from nothing.
    pub(crate) fn start_manager(&mut self, index: usize) {
        let (now, wall_clock) = (self.clock_of(index), self.wall_clock_of(index));
        let kind = self.schedule.set.kind;
        let seed = self.schedule.seed;
        let (defect, clone_defect, is_told) = (self.defect, self.clone_defect, self.trace.is_on());
        let holds_repetitions = self.keeps_guard || !defect.is_some_and(Defect::turns_guard_off);
        let calm_in_ms = self.schedule.calm_at_ms().saturating_sub(self.now_ms);
        let manager = &mut self.managers[index];
        if manager.core.is_some() {
            return;
        }
        manager.life += 1;
        let life = Life {
            manager: index,
            life: manager.life,
        };
        manager.decisions = Decisions::default();
        manager.sent = Sent::default();
        manager.watches.clear();
        (manager.dies_after, manager.stops_before) = (None, None);
        manager.wakes_at_ms = None;
        let options = CoreOptions {
            holds_repetitions,
            ..core_options(&identity(life), kind, seed)
        };
        let clones = self.schedule.set.clones.as_ref();
        let prepared_as_updated = clones.is_some_and(|clones| clones.prepared_as_updated);
        let gates = Defaults {
            short_hash: clones.is_some_and(|clones| clones.short_hash),
            preparing_as_updated: is_gate_on(prepared_as_updated, clone_defect),
            ..Defaults::default()
        };
        let spy = Spy {
            inner: match kind {
                SetKind::Clone => Box::new(CloneSetController::new(gates)),
                SetKind::Native | SetKind::Advanced => Box::new(StatefulSetController::new(kind)),
            },
            kind,
            is_on_delete: self.schedule.set.on_delete,
            prepared_as_updated,
            decisions: manager.decisions.clone(),
            defect,
            clone_defect,
            is_told,
            forgets_until: wall_clock + Duration::from_millis(calm_in_ms),
        };
        let mut core = Core::new(options, vec![Box::new(spy)], now);
        core.note_clock_steps(manager.clock_steps(defect), now);
        manager.core = Some(core);
        self.say(|| format!("manager {index} starts as {}", identity(life)));
        self.drive(life);
    }

    /// A manager dies. What it has sent goes on; nothing reaches it any more.
    pub(crate) fn kill_manager(&mut self, index: usize, back_after_ms: u64) {
        let manager = &mut self.managers[index];
        if manager.core.take().is_none() {
            return;
        }
        (manager.dies_after, manager.stops_before) = (None, None);
        manager.stopped_until_ms = 0;
        let word = if manager.leaves.take().is_some() {
            "is gone"
        } else {
            "dies"
        };
        self.say(|| format!("manager {index} {word}"));
        self.plan(back_after_ms, Event::Start(index));
    }

    /// Somebody wants a manager to end: it finishes what is on its way, and gives up the lease.
    pub(crate) fn ask_to_leave(&mut self, index: usize, back_after_ms: u64) {
        let manager = &mut self.managers[index];
        let life = Life {
            manager: index,
            life: manager.life,
        };
        let Some(core) = manager.core.as_mut().filter(|_| manager.leaves.is_none()) else {
            return;
        };
        core.begin_shutdown();
        manager.leaves = Some(back_after_ms);
        self.plan(LEAVES_WITHIN_MS, Event::Left(life));
        // When it is not standing still.
        self.plan(0, Event::Advance(life));
    }

    /// A manager that is to leave does so, whatever is on its way.
    pub(crate) fn time_to_leave_is_over(&mut self, life: Life) {
        if self.is_alive(life)
            && let Some(back_after_ms) = self.managers[life.manager].leaves
        {
            self.kill_manager(life.manager, back_after_ms);
        }
    }

    /// Lets a manager do what is due, and plans when it is next looked at.
    pub(crate) fn drive(&mut self, life: Life) {
        if !self.is_alive(life) {
            return;
        }
        let now = self.clock_of(life.manager);
        let Some(core) = self.managers[life.manager].core.as_mut() else {
            return;
        };
        core.advance(now);
        let effects = core.take_effects();
        let wake = core.next_wake(now);
        let (panics, has_left) = (core.metrics().panics, core.is_stopped());
        self.hear_decisions(life.manager);
        if panics > 0 {
            let trouble = "a controller panicked; the core has caught it".to_owned();
            self.fail(Err(Violation::new("no panic", trouble)));
        }
        for effect in effects {
            match effect {
                Effect::List(resource) => self.begin_list(life, resource),
                Effect::Send(request) => self.send(life, request),
            }
        }
        if has_left {
            self.time_to_leave_is_over(life);
        } else {
            self.plan_wake(life, wake, now);
        }
    }

    /// Takes note of what a manager has decided.
    fn hear_decisions(&mut self, manager: usize) {
        for (line, verdict) in self.managers[manager].decisions.take_news() {
            self.say(|| format!("manager {manager} {line}"));
            self.fail(verdict);
        }
    }

    fn plan_wake(&mut self, life: Life, wake: Option<Timestamp>, now: Timestamp) {
        let Some(wake) = wake else { return };
        // A wake-up that is due already would make the shell spin; a millisecond later it is seen again, and the bound on events
        // of a run finds it.
        let delay_ms = u64::try_from(wake.since(now).as_millis()).unwrap_or(u64::MAX).max(1);
        let at_ms = self.now_ms.saturating_add(delay_ms);
        let known = &mut self.managers[life.manager].wakes_at_ms;
        if known.is_none_or(|known| at_ms < known) {
            *known = Some(at_ms);
            self.plan_at(at_ms, Event::Advance(life));
        }
    }

    pub(crate) fn advance_manager(&mut self, life: Life) {
        let now_ms = self.now_ms;
        let known = &mut self.managers[life.manager].wakes_at_ms;
        if known.is_some_and(|at| at <= now_ms) {
            *known = None;
        }
        self.drive(life);
    }

    fn send(&mut self, life: Life, request: Request) {
        let basis = match &request.call {
            Call::Write(command) => self.managers[life.manager].decisions.that_asked_for(command),
            _ => None,
        };
        if self.trace.is_on() && !matches!(request.call, Call::Lease(_) | Call::Event(_)) {
            let text = crate::words::call(&request.call);
            self.say(|| format!("manager {} sends {text}", life.manager));
        }
        if request.call.needs_lease() {
            let generation = basis.as_ref().map(|decided| decided.set.generation);
            let sent = &mut self.managers[life.manager].sent;
            let verdict = sent.note(&request.call, generation, self.now_ms);
            self.fail(verdict);
            self.count_departure(life);
        }
        let delay_ms = self.rng.u64(0..3);
        let event = Event::Depart(life, Box::new(request), basis);
        self.plan(delay_ms, event);
    }

    /// Counts a write of a manager that is about to leave; with it the manager may stand still.
    fn count_departure(&mut self, life: Life) {
        match self.managers[life.manager].stops_before {
            Some((0 | 1, for_ms)) => {
                self.managers[life.manager].stops_before = None;
                self.stop_manager(life.manager, for_ms);
            }
            Some((left, for_ms)) => self.managers[life.manager].stops_before = Some((left - 1, for_ms)),
            None => {}
        }
    }

    /// A manager stands still, at the longest until all faults end.
    pub(crate) fn stop_manager(&mut self, manager: usize, for_ms: u64) {
        let until_ms = (self.now_ms + for_ms).min(self.schedule.calm_at_ms());
        let known = &mut self.managers[manager].stopped_until_ms;
        *known = until_ms.max(*known);
    }

    /// Counts a write of a manager that has reached the server; it may have been the last of its life.
    pub(crate) fn count_write(&mut self, life: Life) {
        if !self.is_alive(life) {
            return;
        }
        let Some((left, back_after_ms)) = self.managers[life.manager].dies_after else {
            return;
        };
        if left <= 1 {
            self.kill_manager(life.manager, back_after_ms);
        } else {
            self.managers[life.manager].dies_after = Some((left - 1, back_after_ms));
        }
    }
}

fn core_options(identity: &str, kind: SetKind, seed: u64) -> CoreOptions {
    let mut resources = vec![
        kind.resource(),
        Resource::Pods,
        Resource::Claims,
        Resource::Revisions,
        Resource::StorageClasses,
    ];
    if kind == SetKind::Clone {
        resources.push(Resource::Nodes);
    }
    CoreOptions {
        lease: Some(LeaseOptions::new("flotilla-system", "flotilla-manager")),
        resources,
        // Shorter than in a real cluster, since there is no other controller whose habits have to be observed.
        observation_period: Duration::from_secs(1),
        foreign_pause: Duration::from_secs(60),
        seed,
        ..CoreOptions::new(identity)
    }
}

/// Whether the shell of a manager with this defect sends what the core would not send any more.
pub(crate) fn ignores_fence(defect: Option<Defect>) -> bool {
    defect == Some(Defect::NoFence)
}
