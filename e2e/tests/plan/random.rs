//! Random changes of random sets: what the plan said, and what then happened.
//!
//! A change holds if waves, lowest availability and the end are those of the plan. Where new pods cannot come up, which no plan can know,
//! they may be those that it gives for that. What new pods refer to and is not there it must name; then they do not come up, and no more
//! pods are touched than it says of new pods that do not. Only where it named something that it does not know, it made no promise.

#[path = "random/draw.rs"]
mod draw;
#[path = "random/troubles.rs"]
mod troubles;

use self::draw::{Case, Change, Kind, Trouble};
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
const CHANGES: u64 = 16;
/// The first seed, unless `FLOTILLA_PLAN_SEED` says another one.
const SEED: u64 = 20_260_000;

pub(crate) fn trials(lab: &Lab) -> Vec<Trial> {
    let number = |name: &str, default| env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let first = number("FLOTILLA_PLAN_SEED", SEED);
    let seeds = first..first + number("FLOTILLA_PLAN_CHANGES", CHANGES);
    seeds
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
        })
        .collect()
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
        let (planned, seen) = (self.nameless(waves(set)), self.nameless(self.watcher.waves()));
        let lowest = set["lowestAvailable"]["pods"].as_u64();
        let end = set["availableAtEnd"].as_u64();
        let (low, available) = (self.watcher.lowest(), self.watcher.available());
        println!("[{seed}] planned {planned:?}, lowest {lowest:?}, end {end:?}");
        println!("[{seed}] seen {seen:?}, lowest {low}, end {available}");
        self.misses();
        if planned == seen && lowest == count(low) && end == count(available) {
            println!("[{seed}] as planned");
            return;
        }
        if self.names("unknowns") || self.plan["isCutShort"] == true {
            println!("[{seed}] the plan made no promise: {}", self.plan["unknowns"]);
            return;
        }
        assert!(
            !self.case.can_come_up(),
            "[{seed}] planned {planned:?}, seen {seen:?}: {:#}",
            self.plan
        );
        self.as_in_doubt();
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
        if !self.names("missing") {
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

    /// What happened is what the plan gives for new pods that do not come up, or less where the API server or the trial refuses them.
    fn as_in_doubt(&self) {
        let (seed, doubt) = (self.case.seed, &self.plan["sets"][0]["ifNewPodsAreNotReady"]);
        let pods = doubt["pods"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let doubtful: BTreeSet<&str> = pods.map(|pod| if self.is_nameless(pod) { "*" } else { pod }).collect();
        let touched: BTreeSet<String> = self.watcher.waves().into_iter().flatten().collect();
        let touched = self.nameless(vec![touched]).concat();
        let touched: BTreeSet<&str> = touched
            .iter()
            .filter_map(|step| Some(step.split_once(' ')?.1))
            .collect();
        let (available, at_least) = (count(self.watcher.available()), doubt["available"].as_u64());
        if self.names("missing") {
            assert!(
                touched.is_subset(&doubtful) && available >= at_least,
                "[{seed}] more was touched ({touched:?}) than where new pods do not come up: {:#}",
                self.plan
            );
            println!("[{seed}] no worse than planned, of what is missing");
            return;
        }
        assert_eq!(
            touched, doubtful,
            "[{seed}] of pods that do not come up: {:#}",
            self.plan
        );
        assert_eq!(
            available, at_least,
            "[{seed}] available where pods do not come up: {:#}",
            self.plan
        );
        println!("[{seed}] as planned for pods that do not come up");
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
