//! Random changes of random sets: what the plan said, and what then happened.
//!
//! A change holds if waves, lowest availability and the end are those of the plan; where the new template cannot come up, those that the
//! plan gives for new pods that do not. What new pods refer to and is not there it must name, and then they do not come up.
//!
//! A plan may say of two things only that it does not know them, and each excuses what it is about and nothing else: what a policy refuses
//! (pods are not made that it takes to be made), and a field that no pod has (nothing at all, since it is left out). All else is there to
//! be read, and whoever says that it is not known, or follows it to no end, has not looked.

#[path = "random/draw.rs"]
mod draw;
#[path = "random/round.rs"]
mod round;
#[path = "random/troubles.rs"]
mod troubles;

use self::draw::{Case, Change, DENIED, Kind, MISSPELT, Trouble};
use crate::Lab;
use crate::changes::{QUIET, Story, waves};
use crate::watcher::Watcher;
use flotilla_e2e::api::{Objects, is_ready, is_terminating, number, revision, text};
use flotilla_e2e::sets::{SOON, ready};
use flotilla_e2e::suite::{self, trial};
use http::Method;
use libtest_mimic::Trial;
use serde_json::Value;
use std::collections::BTreeSet;
use std::env;

/// How many changes, unless `FLOTILLA_PLAN_CHANGES` says another number.
const CHANGES: u64 = 50;
/// The first seed, unless `FLOTILLA_PLAN_SEED` says another one. `FLOTILLA_PLAN_TROUBLE` leaves those out that do not have this trouble.
const SEED: u64 = 20_260_000;
/// Whichever of so many seeds is the first one, the changes from there on leave nothing out that matters.
const FIRST_SEEDS: u64 = 300;

pub(crate) fn trials(lab: &Lab) -> Vec<Trial> {
    let number = |name: &str, default| env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let first = number("FLOTILLA_PLAN_SEED", SEED);
    let seeds = first..first + number("FLOTILLA_PLAN_CHANGES", CHANGES);
    let wanted = env::var("FLOTILLA_PLAN_TROUBLE").unwrap_or_default();
    let seeds = seeds
        .filter(|seed| format!("{:?}", Case::draw(*seed).trouble).starts_with(&wanted))
        .map(|seed| {
            let lab = lab.clone();
            trial(format!("plan::random::{seed}"), move || async move {
                let ns = format!("plan-random-{seed}");
                let api = suite::enter(&lab.admin, &ns).await;
                let story = Story {
                    api,
                    lab,
                    ns,
                    name: "random",
                };
                Case::draw(seed).holds(&story).await;
            })
        });
    let mut trials: Vec<Trial> = seeds.collect();
    trials.push(Trial::test("plan::random::all_that_matters_is_drawn", || {
        for first in SEED..SEED + FIRST_SEEDS {
            round::hold_all(&(first..first + CHANGES));
        }
        round::hold_pairs(&(SEED..SEED + CHANGES));
        Ok(())
    }));
    trials
}

impl Case {
    async fn holds(&self, story: &Story) {
        println!("[{}] {self:?}", self.seed);
        let set = format!("{}/web", self.sets(&story.ns));
        self.prepare(&story.api).await;
        story.api.create(&self.sets(&story.ns), &self.manifest(false)).await;
        let count = usize::try_from(self.replicas).expect("a few");
        let all = ready(&story.api, &story.ns, count).await;
        let is_told = |sets: &Objects| {
            let set = &sets["web"];
            number(set, "/status/observedGeneration") == number(set, "/metadata/generation")
                && number(set, "/status/readyReplicas") == self.replicas
        };
        story
            .api
            .until(&self.sets(&story.ns), SOON, "the set knows of its pods", is_told)
            .await;
        self.befall(story, &all).await;

        let (args, input) = match self.changes.as_slice() {
            [Change::Delete] => (
                vec![format!("{}/web", self.kind.short()), "--delete".to_owned()],
                String::new(),
            ),
            _ => (vec!["-f".to_owned(), "-".to_owned()], self.manifest(true).to_string()),
        };
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let (plan, code) = story.planned(&args, &input);
        if plan["refused"].as_array().is_some_and(|refused| !refused.is_empty()) {
            assert_eq!(code, Some(1), "[{}] {plan:#}", self.seed);
            let body = self.manifest(true);
            let sent = story
                .api
                .send(Method::PATCH, &set, Some(("application/merge-patch+json", &body)))
                .await;
            let refused = sent.expect_err("the plan says that the API server refuses it");
            println!("[{}] refused, as planned: {refused}", self.seed);
            return;
        }
        let change = async {
            if self.changes == [Change::Delete] {
                story.api.delete(&set, false).await;
            } else {
                story.api.patch(&set, &self.manifest(true)).await;
            }
        };
        // The garbage collector learns of custom kinds every half a minute.
        let quiet = match self.changes.as_slice() {
            [Change::Delete] => 5 * QUIET,
            _ => QUIET,
        };
        let (watcher, at_end) = story.watched(quiet, change).await;
        Outcome {
            case: self,
            plan: &plan,
            watcher: &watcher,
            at_end: &at_end,
        }
        .compare();
    }
}

/// What was planned, and what was seen.
struct Outcome<'o> {
    case: &'o Case,
    plan: &'o Value,
    watcher: &'o Watcher,
    at_end: &'o Objects,
}

impl Outcome<'_> {
    fn compare(&self) {
        let (seed, set) = (self.case.seed, &self.plan["sets"][0]);
        let doubt = &set["ifNewPodsAreNotReady"];
        let is_in_doubt = !self.case.can_come_up() && !doubt.is_null();
        let (promise, end) = if is_in_doubt {
            (doubt, &doubt["available"])
        } else {
            (set, &set["availableAtEnd"])
        };
        let planned = (
            self.nameless(waves(promise)),
            promise["lowestAvailable"]["pods"].as_u64(),
            end.as_u64(),
        );
        let seen = (
            self.nameless(self.watcher.waves()),
            count(self.watcher.lowest()),
            count(self.watcher.available()),
        );
        println!("[{seed}] planned waves, lowest, end: {planned:?}, seen {seen:?}");
        let is_denied = self.knows();
        self.misses();
        if planned == seen {
            let whom = if is_in_doubt {
                " for pods that do not come up"
            } else {
                ""
            };
            println!("[{seed}] as planned{whom}");
            return;
        }
        assert!(
            is_denied,
            "[{seed}] planned {planned:?}, seen {seen:?}: {:#}",
            self.plan
        );
        self.as_denied();
    }

    /// What the plan says that it does not know is nothing that it could know. Returns whether that is what refuses pods.
    fn knows(&self) -> bool {
        let (seed, allowed) = (self.case.seed, self.case.unknowns());
        let unknowns = self.plan["unknowns"].as_array().into_iter().flatten();
        let unknowns: Vec<&str> = unknowns.filter_map(Value::as_str).collect();
        for unknown in &unknowns {
            assert!(
                allowed.iter().any(|words| unknown.contains(words)),
                "[{seed}] all of that is there to be read: {unknown}"
            );
        }
        let names = |words: &str| unknowns.iter().any(|unknown| unknown.contains(words));
        assert!(
            !allowed.contains(&MISSPELT) || names(MISSPELT),
            "[{seed}] nothing is said of the misspelt field: {unknowns:?}"
        );
        assert_eq!(self.plan["isCutShort"], false, "[{seed}] {:#}", self.plan);
        names(DENIED)
    }

    /// Whether the plan lists something under this name.
    fn names(&self, list: &str) -> bool {
        self.plan[list].as_array().is_some_and(|all| !all.is_empty())
    }

    /// What is missing or lost is named, and pods that need what is missing do not come up.
    fn misses(&self) {
        let (seed, set) = (self.case.seed, &self.plan["sets"][0]);
        let warnings = self.plan["warnings"].to_string();
        assert!(
            !matches!(self.case.trouble, Trouble::NodeLost(_))
                || warnings.contains("which is silent: its deletion does not end"),
            "[{seed}] nothing is said of the lost node: {warnings}"
        );
        let newest = text(set, "/updateRevision");
        let steps = set["waves"].as_array().into_iter().flatten();
        let makes_new = steps
            .flat_map(|wave| wave["steps"].as_array().into_iter().flatten())
            .any(|step| matches!(text(step, "/action"), "create" | "replace") && text(step, "/toRevision") == newest);
        let missing = self.plan["missing"].to_string();
        for words in self.case.changes.iter().filter_map(|change| change.misses()) {
            assert!(
                !makes_new || missing.contains(&words),
                "[{seed}] {words:?} is not among what is missing: {:#}",
                self.plan
            );
        }
        // Where others leave room for some pods, these come up.
        if !self.names("missing") || matches!(self.case.trouble, Trouble::RoomTaken(_)) {
            return;
        }
        let is_new = |pod: &&Value| !self.watcher.had(pod) && newest.ends_with(revision(pod));
        for pod in self.at_end.values().filter(is_new) {
            assert!(
                !is_ready(pod),
                "[{seed}] {} came up without what is missing: {missing}",
                text(pod, "/metadata/name")
            );
        }
    }

    /// No pod was made, and none was touched that the plan does not touch even where new pods do not become ready.
    fn as_denied(&self) {
        let (seed, set) = (self.case.seed, &self.plan["sets"][0]);
        let doubt = &set["ifNewPodsAreNotReady"];
        let promised: BTreeSet<String> = waves(if doubt.is_null() { set } else { doubt })
            .into_iter()
            .flatten()
            .collect();
        let doubtful: BTreeSet<&str> = promised
            .iter()
            .filter_map(|step| Some(step.split_once(' ')?.1))
            .collect();
        for step in self.watcher.waves().iter().flatten() {
            let (action, pod) = step.split_once(' ').expect("what is done, and to whom");
            assert!(
                !matches!(action, "create" | "replace") && doubtful.contains(pod),
                "[{seed}] {step}, where pods are refused: {:#}",
                self.plan
            );
        }
        println!(
            "[{seed}] the plan had said what it does not know: {}",
            self.plan["unknowns"]
        );
    }

    /// Whether a pod has a name that was drawn.
    fn is_nameless(&self, pod: &str) -> bool {
        self.case.kind == Kind::Clone && !self.watcher.known().contains(pod)
    }

    /// Waves whose names can be compared: those of new clones are drawn, and of what has not gone yet nobody can see whether it comes back.
    fn nameless(&self, waves: Vec<BTreeSet<String>>) -> Vec<Vec<String>> {
        let is_going = |pod: &str| self.at_end.get(pod).is_some_and(is_terminating);
        let step = |step: &String| match step.split_once(' ') {
            Some((action, pod)) if self.is_nameless(pod) => format!("{action} *"),
            Some((_, pod)) if is_going(pod) => format!("end {pod}"),
            _ => step.clone(),
        };
        let sorted = |wave: &BTreeSet<String>| {
            let mut steps: Vec<String> = wave.iter().map(step).collect();
            steps.sort();
            steps
        };
        waves.iter().map(sorted).collect()
    }
}

fn count(n: usize) -> Option<u64> {
    u64::try_from(n).ok()
}
