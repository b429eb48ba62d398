//! Sets that users edit at random, several times, in the midst of each other: what one edit has begun, the next one finds half done. Hooks
//! hold pods meanwhile, what the engine remembers is lost, pods are evicted, and the API server may be unable to say whether it would
//! accept a new pod. However the edits meet, the budget holds in every pass, no pass is silent, and the set comes to what is asked for in
//! the end. Advanced sets alone, as native ones have few of these fields; claims come and go, and do not grow.

use super::kubelet::merged;
use super::properties::{config, rests};
use super::world::World;
use crate::shared::lifecycle::State;
use crate::testing::{NOW, advanced, brief, container_status, pod, template, templates_of_claims};
use flotilla_api::names;
use flotilla_model::{Decision, PodRecord, Wait};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseResult};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Passes in which users edit.
const EDITED: usize = 30;
/// Passes that a set is given to come to rest after the last edit.
const SETTLING: usize = 400;
/// Claim templates that come and go, in this order.
const CLAIMS: [&str; 2] = ["data", "logs"];
const IN_PLACE: &str = "InPlaceIfPossible";
const IN_PLACE_ONLY: &str = "InPlaceOnly";
const RE_CREATE: &str = "ReCreate";

/// What a user does to the set or to a pod of it.
#[derive(Clone, Debug)]
enum Edit {
    Partition(i32),
    Paused(bool),
    OnDelete(bool),
    Recreate(bool),
    Replicas(i32),
    Start(i32),
    Reserved(Vec<i32>),
    /// The budget of scaling; 0 takes it away.
    ScaleBudget(i32),
    Budget(usize),
    Unordered(bool),
    MinReady(i32),
    Grace(i32),
    Policy(&'static str),
    Image(u8),
    /// A change that cannot be made in place, or back.
    Port(bool),
    /// How many of the claim templates there are.
    Claims(usize),
    /// A pod is asked to be made again, by label.
    Specify(i32),
    /// No pod is asked to be made again any more.
    TakeBack,
    Evict(i32),
}

fn any_edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        (0..4).prop_map(Edit::Partition),
        any::<bool>().prop_map(Edit::Paused),
        any::<bool>().prop_map(Edit::OnDelete),
        any::<bool>().prop_map(Edit::Recreate),
        (0..5).prop_map(Edit::Replicas),
        (0..3).prop_map(Edit::Start),
        prop::collection::vec(0..6, 0..3).prop_map(Edit::Reserved),
        (0..3).prop_map(Edit::ScaleBudget),
        (1..4_usize).prop_map(Edit::Budget),
        any::<bool>().prop_map(Edit::Unordered),
        prop_oneof![Just(0), Just(10)].prop_map(Edit::MinReady),
        prop_oneof![Just(0), Just(10)].prop_map(Edit::Grace),
        prop::sample::select(&[IN_PLACE, IN_PLACE_ONLY, RE_CREATE][..]).prop_map(Edit::Policy),
        (1..4_u8).prop_map(Edit::Image),
        any::<bool>().prop_map(Edit::Port),
        (0..=CLAIMS.len()).prop_map(Edit::Claims),
        (0..6).prop_map(Edit::Specify),
        Just(Edit::TakeBack),
        (0..6).prop_map(Edit::Evict),
    ]
}

/// What the API server says to pods on trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Accepted,
    /// A quota leaves room for a trial only while the set lacks a pod.
    FullQuota,
    /// A webhook takes no dry runs: nothing is known before the first pod is made.
    Unproven,
}

const ANSWERS: [Answer; 3] = [Answer::Accepted, Answer::FullQuota, Answer::Unproven];

/// Everything that differs between the sets.
// Independent switches of a cluster, not a state.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Debug)]
struct Case {
    ordered: bool,
    /// preDelete, inPlaceUpdate and preNormal.
    hooks: [bool; 3],
    marks: bool,
    /// Pods have what updates in place look at; without it there are no hooks either.
    seen_whole: bool,
    /// One pod of the old revision is broken, and so is whatever is made of that. The set opts in to what helps under ordered management.
    has_broken: bool,
    forgetful: bool,
    crashing: bool,
    answer: Answer,
    /// Before which passes who does what.
    edits: Vec<(usize, Edit)>,
    seed: u64,
}

prop_compose! {
    /// Three old pods of an update that is about to begin.
    fn any_case(has_broken: bool)(
        ordered in any::<bool>(),
        hooks in any::<[bool; 3]>(),
        marks in any::<bool>(),
        seen_whole in prop::bool::weighted(0.7),
        (forgetful, crashing) in any::<(bool, bool)>(),
        answer in prop::sample::select(&ANSWERS[..]),
        edits in prop::collection::vec((0..EDITED, any_edit()), 0..7),
        seed in any::<u64>(),
    ) -> Case {
        Case { ordered, hooks, marks, seen_whole: seen_whole && !has_broken, has_broken, forgetful, crashing, answer, edits, seed }
    }
}

impl Case {
    fn world(&self) -> World {
        let hook =
            json!({"labelsHandler": {"hold": "yes"}, "finalizersHandler": ["f/hold"], "markPodNotReady": self.marks});
        let mut lifecycle = json!({});
        for (on, name) in self.hooks.iter().zip(["preDelete", "inPlaceUpdate", "preNormal"]) {
            if *on && self.seen_whole {
                lifecycle[name] = hook.clone();
            }
        }
        let mut cluster = advanced(3).spec("/lifecycle", lifecycle);
        if self.ordered {
            cluster = cluster.ordered();
        }
        cluster.hints.accepted.clear();
        for ordinal in 0..3 {
            let mut fixture = pod(&format!("web-{ordinal}")).revision("old");
            if self.seen_whole {
                fixture = fixture.label("hold", "yes").detailed(|d| {
                    d.statuses = Box::new([Some(container_status("v1"))]);
                    d.finalizers = Arc::new(["f/hold".into()]);
                });
            }
            if self.has_broken && ordinal == 1 {
                fixture = fixture.unready_since(NOW - 100);
            }
            cluster = cluster.pod(fixture);
        }
        let mut world = World::new(cluster, self.seed);
        world.manners.forgetful = self.forgetful;
        world.manners.crashing = self.crashing;
        world.manners.broken_old = self.has_broken;
        world.manners.full_quota = self.answer == Answer::FullQuota;
        world.manners.no_dry_runs = self.answer == Answer::Unproven;
        world
    }
}

/// What the set asks for, as far as it is edited.
// Independent switches of a set, not a state.
#[allow(clippy::struct_excessive_bools)]
struct Asked {
    partition: i32,
    paused: bool,
    on_delete: bool,
    recreate: bool,
    replicas: i32,
    start: i32,
    reserved: Vec<i32>,
    scale_budget: i32,
    budget: usize,
    unordered: bool,
    min_ready: i32,
    grace: i32,
    policy: &'static str,
    image: u8,
    port: bool,
    claims: usize,
}

impl Asked {
    /// A plain rolling update.
    fn at_first() -> Asked {
        Asked {
            partition: 0,
            paused: false,
            on_delete: false,
            recreate: false,
            replicas: 3,
            start: 0,
            reserved: Vec::new(),
            scale_budget: 0,
            budget: 1,
            unordered: false,
            min_ready: 0,
            grace: 0,
            policy: IN_PLACE,
            image: 2,
            port: false,
            claims: 0,
        }
    }

    fn take(&mut self, edit: &Edit) {
        match edit {
            Edit::Partition(kept) => self.partition = *kept,
            Edit::Paused(is_on) => self.paused = *is_on,
            Edit::OnDelete(is_on) => self.on_delete = *is_on,
            Edit::Recreate(is_on) => self.recreate = *is_on,
            Edit::Replicas(count) => self.replicas = *count,
            Edit::Start(ordinal) => self.start = *ordinal,
            Edit::Reserved(ordinals) => self.reserved.clone_from(ordinals),
            Edit::ScaleBudget(pods) => self.scale_budget = *pods,
            Edit::Budget(pods) => self.budget = *pods,
            Edit::Unordered(is_on) => self.unordered = *is_on,
            Edit::MinReady(seconds) => self.min_ready = *seconds,
            Edit::Grace(seconds) => self.grace = *seconds,
            Edit::Policy(name) => self.policy = name,
            Edit::Image(version) => self.image = *version,
            Edit::Port(is_there) => self.port = *is_there,
            Edit::Claims(count) => self.claims = *count,
            Edit::Specify(_) | Edit::TakeBack | Edit::Evict(_) => {}
        }
    }

    /// The last edit: nothing keeps the update back any more.
    fn let_through(&mut self, case: &Case) {
        self.partition = 0;
        self.paused = false;
        self.on_delete = false;
        if self.policy == IN_PLACE_ONLY {
            self.policy = IN_PLACE;
        }
        if case.answer == Answer::Unproven {
            // Recreate takes nothing for what nobody can prove.
            self.recreate = false;
        }
        if case.has_broken {
            // Not the template that is broken.
            self.image = 3;
        }
    }

    /// How many pods may be unavailable; `None` where all go at once.
    fn max_unavailable(&self, case: &Case) -> Option<usize> {
        match self {
            Asked { on_delete: true, .. } => Some(1),
            Asked {
                recreate: true,
                paused: false,
                ..
            } => None,
            _ => Some(if case.ordered { 1 } else { self.budget }),
        }
    }

    /// Writes it into the set.
    fn put(&self, world: &mut World, case: &Case) {
        let strategy = if self.on_delete {
            json!({"type": "OnDelete"})
        } else {
            json!({"type": "RollingUpdate", "rollingUpdate": self.rolling(case)})
        };
        let mut template = template(&format!("v{}", self.image));
        if self.port {
            template["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80}]);
        }
        let scale = match self.scale_budget {
            0 => json!({}),
            pods => json!({"maxUnavailable": pods}),
        };
        world.change(|mut cluster| {
            let meta = &mut cluster.set["metadata"];
            meta["generation"] = json!(meta["generation"].as_i64().unwrap_or(0) + 1);
            meta["annotations"] = self.annotations(case);
            let cluster = cluster.spec("/updateStrategy", strategy).spec("/template", template);
            let cluster = cluster.spec("/replicas", json!(self.replicas));
            let cluster = cluster.spec("/ordinals/start", json!(self.start));
            let cluster = cluster.spec("/reserveOrdinals", json!(self.reserved));
            let cluster = cluster.spec("/scaleStrategy", scale);
            cluster.spec("/volumeClaimTemplates", templates_of_claims(&CLAIMS[..self.claims]))
        });
    }

    fn rolling(&self, case: &Case) -> Value {
        let mut rolling = json!({
            "partition": self.partition, "paused": self.paused, "minReadySeconds": self.min_ready,
            "podUpdatePolicy": if case.seen_whole { self.policy } else { RE_CREATE },
            "maxUnavailable": if case.ordered { 1 } else { self.budget },
            "inPlaceUpdateStrategy": {"gracePeriodSeconds": self.grace},
        });
        if self.unordered && !case.ordered {
            rolling["unorderedUpdate"] = json!({});
        }
        rolling
    }

    fn annotations(&self, case: &Case) -> Value {
        let mut annotations = json!({});
        if self.recreate {
            annotations[names::UPDATE_TYPE] = json!("Recreate");
        }
        if case.has_broken {
            annotations[names::UNBLOCK] = json!("broken-first");
            annotations[names::UNBLOCK_AFTER_SECONDS] = json!("0");
            annotations[names::SCALE_DOWN] = json!("ignore-unhealthy");
        }
        annotations
    }
}

/// The part of an edit that concerns pods.
fn edit_pods(world: &mut World, edit: &Edit) {
    match edit {
        Edit::Specify(ordinal) => specify(world, &format!("web-{ordinal}"), &json!("")),
        Edit::TakeBack => {
            for name in world.cluster.pods.keys().cloned().collect::<Vec<_>>() {
                specify(world, &name, &Value::Null);
            }
        }
        Edit::Evict(ordinal) => {
            let found = world.cluster.pods.get(&format!("web-{ordinal}")).cloned();
            if let Some(pod) = found.filter(|pod| !pod.is_terminating()) {
                world.delete_pod(&pod.meta.key, &pod.meta.uid).expect("it is there");
            }
        }
        _ => {}
    }
}

/// Puts the label on a pod that asks for it to be made again, or takes it off.
fn specify(world: &mut World, name: &str, value: &Value) {
    if let Some(pod) = world.cluster.pods.get(name) {
        let mut pod = (**pod).clone();
        pod.meta.labels = merged(&pod.meta.labels, Some(&json!({names::SPECIFIED_DELETE_LABEL: value})));
        world.put_pod(pod);
    }
}

/// Whether a pod is in service, as budgets count it.
fn is_up(world: &World, pod: &PodRecord) -> bool {
    world.is_available(pod) && State::of(pod).is_normal()
}

/// How many wanted slots have no pod in service.
fn down(world: &World) -> usize {
    let is_down = |pod: &Option<Arc<PodRecord>>| !pod.as_ref().is_some_and(|pod| is_up(world, pod));
    world.slots().iter().filter(|(_, pod)| is_down(pod)).count()
}

/// All there is to see of a case that fails.
fn told(world: &World, decision: &Decision) -> String {
    let waits = decision.waits.iter().map(|w| format!("{}: {}", w.subject, w.cause));
    let pods = world.cluster.pods.values().map(|pod| {
        let (name, revision, state) = (pod.name(), pod.revision(), State::of(pod));
        let (ready, going) = (pod.ready.is_true, pod.is_terminating());
        format!("{name}@{revision:?} ready {ready} going {going} {state:?}")
    });
    let (waits, pods): (Vec<_>, Vec<_>) = (waits.collect(), pods.collect());
    let update = world.set().status_text("updateRevision");
    format!(
        "{:?} waits {waits:?} pods {pods:?} update {update} claims {:?}",
        brief(decision),
        world.cluster.claims.keys()
    )
}

/// STS-I2, for one pass: pods in service that it takes down fit into what the budget leaves.
fn keeps_budget(seen: &World, world: &World, decision: &Decision, budget: usize) -> TestCaseResult {
    let stays_up = |pod: &PodRecord| {
        let now = world.cluster.pods.get(pod.name());
        now.is_some_and(|now| now.meta.uid == pod.meta.uid && is_up(world, now))
    };
    let slots = seen.slots();
    let pods = slots.iter().filter_map(|(_, pod)| pod.as_deref());
    let taken = pods.filter(|pod| is_up(seen, pod) && !stays_up(pod)).count();
    let left = budget.saturating_sub(down(seen));
    prop_assert!(
        taken <= left,
        "{taken} taken down, {left} left: {}",
        told(seen, decision)
    );
    Ok(())
}

/// STS-I12, for one pass: while anything is missing, something is done, or a wait says what for. That the user wants it so explains why old
/// pods stay, and no pod that is down or too many.
fn is_not_silent(world: &World, decision: &Decision) -> TestCaseResult {
    if decision.commands().next().is_some() {
        return Ok(());
    }
    let slots = world.slots();
    let update = world.set().status_text("updateRevision");
    let is_old = |pod: &Option<Arc<PodRecord>>| pod.as_ref().is_some_and(|pod| pod.revision() != Some(update));
    let is_old = slots.iter().any(|(_, pod)| is_old(pod));
    let is_lacking = down(world) > 0;
    let filled = slots.iter().filter(|(_, pod)| pod.is_some()).count();
    let are_too_many = world.cluster.members().count() > filled;
    let explains = |wait: &Wait| !(is_lacking || are_too_many) || !wait.cause.is_intended();
    prop_assert!(
        !(is_old || is_lacking || are_too_many) || decision.waits.iter().any(explains),
        "nothing is done, and nothing said: {}",
        told(world, decision)
    );
    if world.set().spec.is_monotonic() {
        // What comes first speaks for those that come after it.
        return Ok(());
    }
    for (ordinal, pod) in slots {
        let name = format!("web-{ordinal}");
        let is_about_it = |wait: &Wait| wait.subject == name || wait.subject == world.set().name();
        let explains = |wait: &Wait| !wait.cause.is_intended() && is_about_it(wait);
        prop_assert!(
            pod.is_some_and(|pod| is_up(world, &pod)) || decision.waits.iter().any(explains),
            "nothing is done, and nothing said of {name}: {}",
            told(world, decision)
        );
    }
    Ok(())
}

/// Passes until nothing is left to do and nothing is waited for.
fn settle(world: &mut World) -> TestCaseResult {
    let mut quiet = 0;
    for _ in 0..SETTLING {
        let decision = world.pass().map_err(TestCaseError::fail)?;
        is_not_silent(world, &decision)?;
        let is_quiet = decision.commands().next().is_none() && decision.waits.is_empty() && down(world) == 0;
        quiet = if is_quiet { quiet + 1 } else { 0 };
        if quiet > 2 {
            return Ok(());
        }
        world.go_on();
    }
    let last = world.pass().map_err(TestCaseError::fail)?;
    Err(TestCaseError::fail(format!(
        "it does not come to rest: {}",
        told(world, &last)
    )))
}

/// Whether the set is what is asked for: all pods, and no others, made of the update revision and today's claim templates; promoted; and
/// counted right.
fn is_what_is_asked_for(world: &World, asked: &Asked) -> TestCaseResult {
    let decision = world.cluster.pass();
    let update = world.set().status_text("updateRevision");
    let claims: BTreeSet<&str> = CLAIMS[..asked.claims].iter().copied().collect();
    let slots = world.slots();
    for pod in slots.iter().filter_map(|(_, pod)| pod.as_ref()) {
        prop_assert_eq!(pod.revision(), Some(update), "old: {}", told(world, &decision));
        let volumes = pod.volumes.iter().flat_map(|volumes| volumes.iter());
        let mounted: BTreeSet<&str> = volumes.map(|mounted| &*mounted.volume).collect();
        prop_assert_eq!(&mounted, &claims, "volumes: {}", told(world, &decision));
    }
    prop_assert_eq!(
        world.cluster.members().count(),
        slots.len(),
        "{}",
        told(world, &decision)
    );
    let current = world.set().status_text("currentRevision");
    prop_assert_eq!(current, update, "not promoted: {}", told(world, &decision));
    for field in [
        "replicas",
        "readyReplicas",
        "availableReplicas",
        "updatedReplicas",
        "currentReplicas",
    ] {
        let counted = world.set().status_count(field);
        prop_assert_eq!(counted, asked.replicas, "{}: {}", field, told(world, &decision));
    }
    Ok(())
}

/// All of it, for one case.
fn holds(case: &Case) -> TestCaseResult {
    let mut world = case.world();
    let mut asked = Asked::at_first();
    asked.put(&mut world, case);
    for round in 0..EDITED {
        for (_, edit) in case.edits.iter().filter(|(at, _)| *at == round) {
            asked.take(edit);
            edit_pods(&mut world, edit);
            asked.put(&mut world, case);
        }
        let seen = world.clone();
        let decision = world.pass().map_err(TestCaseError::fail)?;
        if let Some(budget) = asked.max_unavailable(case) {
            keeps_budget(&seen, &world, &decision, budget)?;
        }
        is_not_silent(&world, &decision)?;
        world.go_on();
    }
    asked.let_through(case);
    asked.put(&mut world, case);
    settle(&mut world)?;
    is_what_is_asked_for(&world, &asked)?;
    world.manners.forgetful = false;
    world.manners.crashing = false;
    // That a trial failed is remembered until it might be tried again.
    world.let_a_minute_pass();
    rests(&mut world)
}

proptest! {
    #![proptest_config(Config { cases: 800, ..config() })]

    /// STS-I2, STS-I8 and STS-I12, and that edits are not lost: with healthy pods, those with hooks and those that are changed in place
    /// among them.
    #[test]
    fn sts_i2_and_i8_and_i12_hold_whatever_is_edited_meanwhile(case in any_case(false)) {
        holds(&case)?;
    }

    /// The same where an old pod is broken and the template it was made of makes no other, with what the set opts in to against that.
    #[test]
    fn sts_i2_and_i8_and_i12_hold_with_a_broken_old_pod(case in any_case(true)) {
        holds(&case)?;
    }
}
