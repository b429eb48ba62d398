//! Users ask `flotilla why`, and do what it advises, as it stands.
//!
//! It is asked from some moment of each schedule on for more than a minute, whatever goes on meanwhile: each pod that was held back all that time
//! has a cause then, or its turn. It is asked whenever nothing has changed for more than a minute though not all is as it should be: then whoever
//! does what is advised comes to the end.

mod held;
mod told;

pub(crate) use told::comes;

use self::held::{HeldBack, held_back, tells_of};
use crate::defect::Defect;
use crate::event::Event;
use crate::judge::{Verdict, Violation, require};
use crate::notes::is_unreadable;
use crate::run::World;
use crate::schedule::BUSY_MS;
use crate::tenants;
use fastrand::Rng;
use flotilla_controllers::cloneset::Defaults;
use flotilla_engine::core::cache::Cache;
use flotilla_engine::core::store::Source;
use flotilla_engine::wire::Object;
use flotilla_model::{ObjectKey, PodRecord, Resource};
use flotilla_sim::server::{Actor, DeleteOptions, Stored, wire_status};
use flotilla_why::{Beside, Cause, Facts, LiveSet, Question, ROUNDS, Report, Tried, trials};
use serde_json::{Value, json};

/// Whoever asks does so up to so long after the last fault.
const ASKED_LATER_MS: u64 = 200_000;
/// So many things are done at once, at most.
const ADVICE_MAX: usize = 16;
/// So often somebody asks.
const ASKED_TIMES: u64 = 3;
/// What has been in the way for so long is explained.
const A_MINUTE_MS: u64 = 60_000;
/// The rule that is judged (STS-I12).
const RULE: &str = "STS-I12 every wait is explained";
/// How that advice begins that names further ways before the deletion of a pod.
const CHANGE_IN_PLACE: &str = "change only what can be changed in place";
/// What is said of a pod that managers make again.
const MADE_AGAIN: &str = "has to be made again";
/// How advice begins for an image that cannot be pulled.
const CORRECT_IMAGE: &str = "correct the image";
/// The rule for what is advised.
const ADVICE: &str = "STS-I12 advice helps";

impl World {
    /// What `flotilla why` says now. Asking leaves nothing behind.
    fn why(&mut self) -> Option<Report> {
        let kind = self.schedule.set.kind;
        let stored = self.cluster.server.get(kind.resource(), &Self::set_key())?;
        let set = LiveSet {
            kind,
            key: Self::set_key(),
            object: stored.value().as_ref().clone(),
        };
        let cache = self.as_cached();
        let short_hash = self
            .schedule
            .set
            .clones
            .as_ref()
            .is_some_and(|clones| clones.short_hash);
        let question = Question {
            set: &set,
            cache: &cache,
            clones: Defaults {
                short_hash,
                ..Defaults::default()
            },
            now: self.time(),
        };
        let mut tried = Tried::default();
        let mut decision = question.decide(&tried)?;
        for _ in 0..ROUNDS {
            for trial in trials(&decision) {
                let body = trial.body.clone();
                if !tried.begin(&trial) {
                    continue;
                }
                match self.cluster.server.would_create(Actor::User, trial.resource(), body) {
                    Ok(_) => tried.accept(&trial, &set),
                    Err(status) => tried.refuse(&trial, &set, wire_status(&status)),
                }
            }
            decision = question.decide(&tried)?;
        }
        let held = question.held(decision, &tried);
        let beside = Beside {
            leader: self.leader(),
            ..Beside::default()
        };
        Some(Report::of(&question, held, self.facts(), beside))
    }

    /// What there is, as a manager would know it that has just listed it.
    fn as_cached(&self) -> Cache {
        let mut cache = Cache::default();
        let kinds = [
            self.schedule.set.kind.resource(),
            Resource::Pods,
            Resource::Claims,
            Resource::Revisions,
            Resource::StorageClasses,
        ];
        for stored in kinds.into_iter().flat_map(|kind| self.cluster.server.all(kind)) {
            if let Some(object) = &stored.object {
                drop(cache.apply(object.clone(), Source::List));
            }
        }
        cache
    }

    fn facts(&self) -> Facts {
        let all = |resource| {
            let stored = tenants::all(&self.cluster.server, resource);
            Some(stored.map(|stored| stored.value().as_ref().clone()).collect())
        };
        Facts {
            pods: all(Resource::Pods),
            nodes: Some(self.cluster.nodes.as_objects(self.time())),
            claims: all(Resource::Claims),
            classes: all(Resource::StorageClasses),
            events: Some(Vec::new()),
            pod_events: Some(Vec::new()),
            unread: Vec::new(),
        }
    }

    /// Somebody asks at any moment, by luck of its own, and again until a minute has passed.
    pub(crate) fn plan_to_ask_why(&mut self) {
        let mut rng = Rng::with_seed(self.schedule.seed ^ 0x0a5c_0b11);
        let first_ms = rng.u64(0..BUSY_MS + ASKED_LATER_MS);
        for nth in 0..ASKED_TIMES {
            self.plan_at(first_ms + nth * (A_MINUTE_MS / 2 + 500), Event::AskWhy);
        }
    }

    /// Whatever has been held back for more than a minute, and has not changed since, is explained, whatever else goes on.
    pub(crate) fn somebody_asks_why(&mut self) {
        let now = self.held_back();
        let mut before = std::mem::take(&mut self.held_since);
        // A set that was made anew holds back nobody for longer than it has been there.
        let kind = self.schedule.set.kind.resource();
        let set = self.cluster.server.get(kind, &Self::set_key());
        let uid = set.and_then(|s| s.object.as_ref()).map(|o| o.meta().uid.clone());
        if self.held_by != uid {
            before.clear();
            self.held_by = uid;
        }
        let since = |(name, version): (&String, &Option<u64>)| {
            let same = before.get(name).filter(|(known, _)| known == version);
            let since_ms = same.map_or(self.now_ms, |(_, since_ms)| *since_ms);
            (name.clone(), (*version, since_ms))
        };
        self.held_since = now.iter().map(since).collect();
        let Some(report) = self.why() else { return };
        self.say(|| format!("---- why: {}", shown(&report)));
        let is_long = |since_ms: u64| since_ms + A_MINUTE_MS < self.now_ms;
        let long = self.held_since.iter().filter(|(_, (_, since_ms))| is_long(*since_ms));
        let long: HeldBack = long.map(|(name, (version, _))| (name.clone(), *version)).collect();
        if let Some(name) = long.keys().next() {
            self.fail(self.says_something(&report, &format!("{name:?} is held back")));
        }
        self.fail(self.explains(&report, &long));
    }

    fn held_back(&self) -> HeldBack {
        held_back(&self.cluster.server, self.schedule.set.kind, self.time())
    }

    /// Users are told what is in the way of the end, and do what is advised: one thing after the other, and each time they ask again, as what was
    /// done may have helped others, too.
    ///
    /// If something (`what`) is in the way and nothing has changed for long, they are told of it.
    pub(crate) fn users_do_what_is_advised(&mut self, what: Option<&str>) {
        for nth in 0..ADVICE_MAX {
            let Some(report) = self.why() else { return };
            self.say(|| format!("---- why: {}", shown(&report)));
            if let Some(what) = what {
                self.fail(self.says_something(&report, what));
            }
            if nth == 0 && what.is_some() {
                // What is held back later is so since something was done about it just now.
                self.fail(self.explains(&report, &self.held_back()));
            }
            let version = self.cluster.server.version();
            for cause in self.causes_in(&report) {
                let verdict = self.follow(&cause);
                self.fail(verdict);
                if self.cluster.server.version() > version {
                    break;
                }
            }
            if self.cluster.server.version() == version {
                return;
            }
        }
    }

    /// Something is in the way, or is done next.
    fn says_something(&self, report: &Report, what: &str) -> Verdict {
        let is_told = !self.next_in(report).is_empty() || !self.causes_in(report).is_empty();
        require(is_told, RULE, || {
            format!("{what}; nothing has changed for more than a minute, and `why` says nothing")
        })
    }

    /// Each of these is told of.
    fn explains(&self, report: &Report, held: &HeldBack) -> Verdict {
        let causes = self.causes_in(report);
        let next = self.next_in(report);
        let key = Self::set_key();
        let is_revision = |name: &str| {
            self.cluster
                .server
                .get(Resource::Revisions, &key.sibling(name))
                .is_some()
        };
        let untold = held
            .keys()
            .find(|name| !tells_of(name, (&causes, next, &report.waits), is_revision));
        require(untold.is_none(), RULE, || {
            let name = untold.map_or("", String::as_str);
            let name = if name.is_empty() { "a pod that is missing" } else { name };
            format!("{name} has been held back for more than a minute, and `why` does not say by what")
        })
    }

    /// What is told to come next.
    fn next_in<'r>(&self, report: &'r Report) -> &'r [String] {
        if self.defect == Some(Defect::SilentWhy) {
            return &[];
        }
        &report.next
    }

    /// The causes that are told.
    fn causes_in(&self, report: &Report) -> Vec<Cause> {
        let mut causes = report.causes();
        match self.defect {
            Some(Defect::SilentWhy) => causes.clear(),
            Some(Defect::ForgetHeldUp) => causes.iter_mut().for_each(|cause| cause.holds_up.clear()),
            _ => {}
        }
        if self.defect == Some(Defect::StaleAdvice) {
            for advice in causes.iter_mut().filter_map(|cause| cause.advice.as_mut()) {
                if advice.starts_with("delete it: ") {
                    *advice = format!("{CORRECT_IMAGE} in the set's template");
                }
            }
        }
        causes
    }

    /// Follows one advice. What it asks for outside of the cluster, such as looking at logs, changes nothing here.
    fn follow(&mut self, cause: &Cause) -> Verdict {
        let Some(advice) = &cause.advice else { return Ok(()) };
        self.is_about_what_is_so(cause, advice)?;
        self.mend_as_told(cause, advice);
        if advice.starts_with(CHANGE_IN_PLACE) && !self.is_of_an_unreadable_pod(cause) {
            self.users_make_anew_what_cannot_change();
            return Ok(());
        }
        // Its turn comes by managers.
        if cause.message.starts_with(MADE_AGAIN) && !self.is_of_an_unreadable_pod(cause) {
            return Ok(());
        }
        let command = command_of(advice);
        let words: Vec<&str> = command.split_whitespace().collect();
        match words.as_slice() {
            ["kubectl", "delete", "pod", name, "-n", namespace, options @ ..] => {
                let grace_seconds = options.contains(&"--grace-period=0").then_some(0);
                self.delete_as_advised(&ObjectKey::new(*namespace, *name), grace_seconds)
            }
            ["kubectl", "label", "pod", name, label, "-n", namespace] => {
                let label = label.trim_end_matches('-');
                let key = ObjectKey::new(*namespace, *name);
                self.edit(Resource::Pods, &key, &json!({"metadata": {"labels": {label: null}}}));
                Ok(())
            }
            // Whoever put a finalizer there takes it away.
            ["kubectl", "edit", "pvc", name, "-n", namespace] => {
                self.others_let_go(&ObjectKey::new(*namespace, *name));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// To correct the image, or to roll back, is no help where the template names none that cannot be pulled.
    fn is_about_what_is_so(&self, cause: &Cause, advice: &str) -> Verdict {
        let set = self
            .cluster
            .server
            .get(self.schedule.set.kind.resource(), &Self::set_key());
        let set = set.map(Stored::value).unwrap_or_default();
        let containers = set.pointer("/spec/template/spec/containers").and_then(Value::as_array);
        let mut images = containers.into_iter().flatten().filter_map(|c| c["image"].as_str());
        let is_broken = images.any(|image| image.starts_with("bad:"));
        require(is_broken || !advice.starts_with(CORRECT_IMAGE), ADVICE, || {
            let (subject, message) = (&cause.subject, &cause.message);
            format!("{subject} {message}: told to {advice}, and the template's images are good")
        })
    }

    fn delete_as_advised(&mut self, key: &ObjectKey, grace_seconds: Option<i64>) -> Verdict {
        let pod = self
            .cluster
            .server
            .get(Resource::Pods, key)
            .and_then(|s| s.object.as_ref());
        let Some(Object::Pod(pod)) = pod else {
            let what = format!("pod {key} is to be deleted, and is not there");
            return Err(Violation::new(ADVICE, what));
        };
        if self.is_seen_to(pod) {
            return Ok(());
        }
        let options = DeleteOptions {
            grace_seconds,
            ..DeleteOptions::default()
        };
        let deleted = self.cluster.server.delete(Actor::User, Resource::Pods, key, &options);
        deleted.map(drop).map_err(|refused| {
            let what = format!("pod {key} is to be deleted, which is refused: {}", refused.message);
            Violation::new(ADVICE, what)
        })
    }

    fn is_of_an_unreadable_pod(&self, cause: &Cause) -> bool {
        let first = cause.subject.split(", ").next().unwrap_or_default();
        let pod = self.cluster.server.get(Resource::Pods, &Self::set_key().sibling(first));
        matches!(pod.and_then(|s| s.object.as_ref()), Some(Object::Pod(pod)) if is_unreadable(pod))
    }

    /// Whether managers have to see to it that a pod goes: then users do not help, so that it shows if these do not.
    fn is_seen_to(&self, pod: &PodRecord) -> bool {
        let set = &self.schedule.set;
        let cannot_start = pod.trouble.as_ref().is_some_and(|t| t.reason == "ImagePullBackOff");
        let is_of_the_set = pod.meta.controller().is_some();
        let is_free = !set.ordered && !set.on_delete;
        if is_unreadable(pod) {
            return !self.is_left_unread(pod);
        }
        is_of_the_set && cannot_start && (is_free || self.is_left_to_the_manager(pod.name()))
    }
}

/// What a shell takes from an advice: what follows the last colon.
fn command_of(advice: &str) -> &str {
    let command = advice.rsplit_once(": ").map_or("", |(_, command)| command);
    command.split_once("  #").map_or(command, |(command, _)| command)
}

/// The answer in one line.
fn shown(report: &Report) -> String {
    let causes = report.causes().into_iter();
    let causes = causes.map(|cause| {
        let advice = cause.advice.as_deref().unwrap_or("-");
        format!(
            "{} {} [{advice}] <- {}",
            cause.subject,
            cause.message,
            cause.holds_up.join(", ")
        )
    });
    let causes: Vec<String> = causes.collect();
    format!("{}; next: {}", causes.join("; "), report.next.join(", "))
}
