//! Invariants of `decide` over random clusters: at least ten thousand each, the same ones in every run.

use super::cases::{Case, State, Style, any_case, settled_case};
use super::world::World;
use crate::testing::brief;
use flotilla_model::decision::{Body, Command};
use flotilla_model::{Decision, Resource};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, RngSeed};
use serde_json::Value;
use std::collections::BTreeSet;

/// The same cases on every machine; what fails is printed, small, and becomes a row of a table.
pub(super) fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 10_000,
        failure_persistence: None,
        rng_algorithm: RngAlgorithm::ChaCha,
        rng_seed: RngSeed::Fixed(0x0F10_7111_A000),
        ..ProptestConfig::default()
    }
}

/// Ordinals of pods that a decision creates, with their revisions.
fn created(decision: &Decision) -> Vec<(i64, String)> {
    let of = |command: &Command| match command {
        Command::Create {
            body: Body::Pod(draft), ..
        } => {
            let label = |key: &str| draft.labels.iter().find(|(k, _)| *k == key).map(|(_, v)| v.clone());
            Some((
                label("apps.kubernetes.io/pod-index")?.parse().ok()?,
                label("controller-revision-hash")?,
            ))
        }
        _ => None,
    };
    decision.commands().filter_map(|c| of(&c.command)).collect()
}

/// Ordinals of pods that a decision deletes.
fn deleted(decision: &Decision) -> Vec<i64> {
    let of = |command: &Command| match command {
        Command::Delete {
            resource: Resource::Pods,
            key,
            ..
        } => key.name.rsplit_once('-')?.1.parse().ok(),
        _ => None,
    };
    decision.commands().filter_map(|c| of(&c.command)).collect()
}

/// Whether a pod of an ordinal fulfils a condition.
fn is_at(world: &World, ordinal: i64, holds: impl Fn(&flotilla_model::PodRecord) -> bool) -> bool {
    world.cluster.members().any(|(o, pod)| o == ordinal && holds(pod))
}

/// Passes until nothing is left to do; the world goes on between them. Hands back the last decision.
fn settle(world: &mut World, passes: usize) -> Result<Decision, TestCaseError> {
    for _ in 0..passes {
        let decision = world.pass().map_err(TestCaseError::fail)?;
        let quiet = decision.commands().next().is_none();
        let all_up = world.cluster.pods.values().all(|pod| world.is_available(pod));
        if quiet && all_up && decision.wake_after.is_none() {
            return Ok(decision);
        }
        world.go_on();
    }
    let last = world.pass().map_err(TestCaseError::fail)?;
    let (waits, wake) = (&last.waits, last.wake_after);
    Err(TestCaseError::fail(format!(
        "it does not come to rest: {:?} {waits:?} {wake:?}",
        brief(&last)
    )))
}

/// STS-I3, for one pass.
fn keeps_order(world: &World, decision: &Decision, case: &Case) -> Result<(), TestCaseError> {
    if !case.ordered {
        return Ok(());
    }
    let created = created(decision);
    prop_assert!(created.len() <= 1, "one at a time: {:?}", brief(decision));
    for (ordinal, _) in &created {
        let lower = world.slots().into_iter().filter(|(o, _)| o < ordinal);
        for (o, pod) in lower {
            prop_assert!(
                pod.is_some_and(|p| world.is_available(&p)),
                "{ordinal} is created before {o} is available"
            );
        }
    }
    let wanted: BTreeSet<i64> = case.ordinals().into_iter().collect();
    let condemned = |o: &i64| !wanted.contains(o);
    let gone: Vec<i64> = deleted(decision).into_iter().filter(condemned).collect();
    if case.strategy != Style::Recreate {
        let highest = world.cluster.members().map(|(o, _)| o).filter(condemned).max();
        prop_assert!(
            gone.len() <= 1 && gone.iter().all(|o| Some(*o) == highest),
            "highest first: {gone:?}"
        );
        let unwell = world.unavailable();
        prop_assert!(
            gone.is_empty() || case.heedless || unwell == 0,
            "scaled down while {unwell} are not available"
        );
    }
    Ok(())
}

/// STS-I2, for one pass: available pods that are taken down fit into what the budget leaves.
fn keeps_budget(world: &World, decision: &Decision, case: &Case) -> Result<(), TestCaseError> {
    if case.strategy == Style::Recreate {
        return Ok(());
    }
    let wanted: BTreeSet<i64> = case.ordinals().into_iter().collect();
    let was_up = |o: &i64| wanted.contains(o) && is_at(world, *o, |pod| world.is_available(pod));
    let taken: Vec<i64> = deleted(decision).into_iter().filter(was_up).collect();
    let down = taken.len();
    if case.is_classic() {
        // No budget, but the order of the walk: low pods that are down do not hold it up (STS-2.5).
        let above = world
            .slots()
            .into_iter()
            .filter(|(o, _)| taken.first().is_some_and(|l| o > l));
        let down_above = above
            .filter(|(_, p)| !p.as_ref().is_some_and(|p| world.is_available(p)))
            .count();
        prop_assert!(down == 0 || down == 1 && down_above == 0, "{:?}", brief(decision));
        return Ok(());
    }
    let left = case.max_unavailable().saturating_sub(world.unavailable());
    prop_assert!(down <= left, "{down} taken down, {left} left: {:?}", brief(decision));
    Ok(())
}

/// STS-I4, for one pass in unordered mode: as many old pods as the partition keeps are left alone, however many are on their way.
fn keeps_count(world: &World, decision: &Decision, case: &Case) -> Result<(), TestCaseError> {
    let wanted: BTreeSet<i64> = case.ordinals().into_iter().collect();
    let gone = deleted(decision);
    let stays = |pod: &flotilla_model::PodRecord| {
        let specified = pod.label("apps.kruise.io/specified-delete").is_some();
        !pod.is_terminating() && !pod.is_terminal() && !specified && pod.revision() != Some("new")
    };
    let members = world
        .cluster
        .members()
        .filter(|(o, pod)| wanted.contains(o) && stays(pod));
    let old: Vec<i64> = members.map(|(o, _)| o).collect();
    let left = old.iter().filter(|o| !gone.contains(o)).count();
    prop_assert!(
        left >= case.kept().min(old.len()),
        "{left} of {old:?} left: {:?}",
        brief(decision)
    );
    Ok(())
}

/// STS-I4, for one pass in ordered mode.
fn keeps_partition(world: &World, decision: &Decision, case: &Case) -> Result<(), TestCaseError> {
    if case.is_unordered() {
        return keeps_count(world, decision, case);
    }
    if case.kept() == 0 {
        return Ok(());
    }
    let below: BTreeSet<i64> = case.ordinals().into_iter().take(case.kept()).collect();
    for ordinal in deleted(decision).into_iter().filter(|o| below.contains(o)) {
        let excused = |pod: &flotilla_model::PodRecord| {
            pod.is_terminal() || case.advanced && pod.label("apps.kruise.io/specified-delete").is_some()
        };
        prop_assert!(is_at(world, ordinal, excused), "{ordinal} is below the partition");
    }
    let current = if case.rolled_out { "new" } else { "old" };
    for (ordinal, revision) in created(decision) {
        let stays = !case.keeps_revision && below.contains(&ordinal);
        prop_assert!(!stays || revision == current, "{ordinal} comes back at {revision}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    /// Whatever happens, and with its memory lost at random: one pod a name, nobody deleted twice (the world refuses both), no claim
    /// ever deleted, order, budget and partition kept in every single pass.
    #[test]
    fn sts_i1_to_i4_and_i6_hold_in_every_pass_of_a_rough_world(case in any_case()) {
        let mut world = World::new(case.cluster(), case.seed);
        world.manners.rough = true;
        world.manners.forgetful = true;
        for _ in 0..6 {
            let seen = world.clone();
            let decision = world.pass().map_err(TestCaseError::fail)?;
            let names: BTreeSet<_> = decision.commands().map(|c| (c.command.resource(), c.command.key())).collect();
            let pods = |r: Resource| r == Resource::Pods;
            let about_pods = decision.commands().filter(|c| pods(c.command.resource())).count();
            prop_assert_eq!(names.iter().filter(|(r, _)| pods(*r)).count(), about_pods, "one command a pod");
            let claims = decision.commands().filter(|c| c.command.resource() == Resource::Claims);
            prop_assert_eq!(claims.count(), 0, "no templates, no claims");
            keeps_order(&seen, &decision, &case)?;
            keeps_budget(&seen, &decision, &case)?;
            keeps_partition(&seen, &decision, &case)?;
            world.go_on();
        }
    }

    /// STS-I1: created are exactly wanted ordinals whose name is free, each once.
    #[test]
    fn sts_i1_only_free_names_are_filled_and_each_once(case in any_case()) {
        let world = World::new(case.cluster(), case.seed);
        let decision = world.cluster.pass();
        let made: Vec<i64> = created(&decision).into_iter().map(|(o, _)| o).collect();
        let once: BTreeSet<i64> = made.iter().copied().collect();
        prop_assert_eq!(once.len(), made.len());
        let free = |o: &i64| !world.cluster.pods.contains_key(&format!("web-{o}"));
        prop_assert!(made.iter().all(|o| case.ordinals().contains(o) && free(o)), "{:?}", brief(&decision));
        let nothing_old = world.cluster.members().all(|(_, p)| p.revision() == Some("new"));
        if !case.ordered && (case.scale_budget == 0 || !case.advanced) && (case.strategy != Style::Recreate || nothing_old) {
            prop_assert_eq!(made.len(), case.ordinals().iter().filter(|o| free(o)).count(), "burst leaves none out");
        }
    }

    /// STS-I2 over time: starting from all available, with deletions asked for by label, never more than the budget are down.
    #[test]
    fn sts_i2_a_rollout_never_takes_more_down_than_the_budget(case in settled_case(true).prop_map(Case::not_recreate)) {
        let mut world = World::new(case.cluster(), case.seed);
        let pods = world.cluster.pods.len();
        for _ in 0..(4 * pods + 4) {
            let decision = world.pass().map_err(TestCaseError::fail)?;
            prop_assert!(world.unavailable() <= case.max_unavailable().max(1), "{:?}", brief(&decision));
            world.go_on();
            prop_assert!(world.unavailable() <= case.max_unavailable().max(1));
        }
    }

    /// STS-I2, the second half: under Parallel an old pod of the window that is unavailable already is replaced at once. One that is
    /// ready, if not for long enough, serves, and waits for its turn.
    #[test]
    fn sts_i2_replacing_what_is_down_costs_nothing(case in any_case()) {
        let mut case = Case { ordered: false, advanced: true, ..case.rolling() };
        if case.strategy == Style::Unordered {
            // Where the partition counts pods, which ones are in its window is another question.
            case.partition = 0;
        }
        let world = World::new(case.cluster(), case.seed);
        let gone: BTreeSet<i64> = deleted(&world.cluster.pass()).into_iter().collect();
        for (ordinal, pod) in world.slots().into_iter().skip(case.kept()) {
            let Some(pod) = pod else { continue };
            let serves = pod.is_available(std::time::Duration::ZERO, world.cluster.now);
            let broken = !world.is_available(&pod) && !pod.is_terminating() && !serves;
            prop_assert!(!broken || pod.revision() == Some("new") && !pod.is_terminal() || gone.contains(&ordinal), "{ordinal}");
        }
    }

    /// STS-I3 over time, from random beginnings, in a world where nothing fails.
    #[test]
    fn sts_i3_order_holds_on_the_way(case in any_case()) {
        let mut case = case;
        case.ordered = true;
        let mut world = World::new(case.cluster(), case.seed);
        for _ in 0..8 {
            let seen = world.clone();
            let decision = world.pass().map_err(TestCaseError::fail)?;
            keeps_order(&seen, &decision, &case)?;
            world.go_on();
        }
    }

    /// STS-I4: a rollout from all old ends with exactly the partition's pods not updated, although pods are deleted on the way.
    #[test]
    fn sts_i4_the_partition_keeps_its_pods(case in settled_case(false), evicted in prop::collection::vec(0..10_i64, 0..4)) {
        let mut case = case.rolling();
        case.rolled_out = false;
        case.pods.iter_mut().for_each(|(_, revision, _)| *revision = 0);
        let mut world = World::new(case.cluster(), case.seed);
        for ordinal in evicted {
            let seen = world.clone();
            let decision = world.pass().map_err(TestCaseError::fail)?;
            keeps_partition(&seen, &decision, &case)?;
            world.take_pod(&format!("web-{ordinal}"));
            world.go_on();
        }
        settle(&mut world, 120)?;
        let old: BTreeSet<i64> =
            world.cluster.members().filter(|(_, p)| p.revision() == Some("old")).map(|(o, _)| o).collect();
        let below: BTreeSet<i64> = case.ordinals().into_iter().take(case.kept()).collect();
        if case.is_unordered() {
            prop_assert_eq!(old.len(), below.len(), "{:?}", old);
        } else {
            prop_assert_eq!(old, below);
        }
    }

    /// STS-I5: what a set comes to is as many pods as replicas, on the lowest ordinals from the start that are not reserved.
    #[test]
    fn sts_i5_and_i8_it_comes_to_what_is_asked_for_and_then_rests(case in any_case(), rough in 1..6_usize) {
        let mut world = World::new(case.cluster(), case.seed);
        world.manners.rough = true;
        for _ in 0..rough {
            world.pass().map_err(TestCaseError::fail)?;
            world.go_on();
        }
        world.calm_down();
        settle(&mut world, 240)?;
        let members: Vec<i64> = { let mut m: Vec<i64> = world.cluster.members().map(|(o, _)| o).collect(); m.sort_unstable(); m };
        prop_assert_eq!(&members, &case.ordinals());
        let old = world.slots().iter().filter(|(_, p)| p.as_ref().is_some_and(|p| p.revision() != Some("new"))).count();
        if case.strategy != Style::OnDelete && !case.is_paused() {
            prop_assert!(old <= case.kept(), "{} of {} stay old", old, case.kept());
        }
        rests(&mut world)?;
        let text = |field: &str| world.set().status_text(field).to_owned();
        prop_assert_eq!(world.set().status_count("replicas"), case.replicas);
        if case.replicas == 0 && case.has_partition() {
            let first = &case.cluster().set["status"]["currentRevision"];
            prop_assert_eq!(text("currentRevision"), first.as_str().unwrap_or_default(), "nothing is promoted");
        } else if old == 0 {
            prop_assert_eq!(text("currentRevision"), "new");
            prop_assert_eq!(world.set().status_count("updatedReplicas"), case.replicas);
        }
    }

    /// STS-I12: where nothing moves although something is left to do, the status says within a minute what it is.
    #[test]
    fn sts_i12_nothing_waits_in_silence(case in any_case()) {
        let mut world = World::new(case.cluster(), case.seed);
        world.manners.stuck = true;
        for _ in 0..16 {
            world.pass().map_err(TestCaseError::fail)?;
            world.go_on();
        }
        world.let_a_minute_pass();
        let decision = world.pass().map_err(TestCaseError::fail)?;
        if decision.commands().next().is_none() {
            explains_itself(&world, &case, &decision)?;
        }
    }
}

/// STS-I8: with everything available, pass after pass writes nothing, not even a hint.
pub(super) fn rests(world: &mut World) -> Result<(), TestCaseError> {
    world.pass().map_err(TestCaseError::fail)?;
    for _ in 0..2 {
        world.let_a_minute_pass();
        let decision = world.pass().map_err(TestCaseError::fail)?;
        prop_assert_eq!(brief(&decision), [] as [&str; 0]);
        prop_assert_eq!(decision.status.and_then(|s| s.diff()), None);
        prop_assert_eq!(decision.hints, None);
    }
    Ok(())
}

/// Whether the status has a condition that names what is waited for, if anything is left to do.
fn explains_itself(world: &World, case: &Case, decision: &Decision) -> Result<(), TestCaseError> {
    let members: Vec<i64> = world.cluster.members().map(|(o, _)| o).collect();
    let wanted = case.ordinals();
    let is_done = |p: &flotilla_model::PodRecord| world.is_available(p) && p.revision() == Some("new");
    let all_done = world
        .slots()
        .iter()
        .all(|(_, p)| p.as_ref().is_some_and(|p| is_done(p)));
    if all_done && members.iter().all(|o| wanted.contains(o)) {
        return Ok(());
    }
    let conditions = world
        .set()
        .status
        .get("conditions")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let progressing = conditions.iter().find(|c| c["type"] == "Progressing");
    let Some(told) = progressing else {
        return Err(TestCaseError::fail(format!(
            "silent, with {:?} and {:?}",
            decision.waits,
            world.set().status
        )));
    };
    prop_assert_ne!(&told["reason"], "RolloutInProgress", "{:?}", decision.waits);
    prop_assert_ne!(&told["reason"], "RolloutComplete", "{:?}", decision.waits);
    prop_assert!(told["message"].as_str().is_some_and(|m| !m.is_empty()));
    Ok(())
}

/// The generators reach every state and every strategy, or the invariants would say little.
#[test]
fn the_generators_reach_everything() {
    use proptest::strategy::{Strategy as _, ValueTree};
    let mut runner = proptest::test_runner::TestRunner::new(config());
    let (mut states, mut strategies) = (Vec::<State>::new(), Vec::<Style>::new());
    for _ in 0..500 {
        let case = any_case().new_tree(&mut runner).expect("a case").current();
        states.extend(case.pods.iter().map(|(.., state)| *state));
        strategies.push(case.strategy);
    }
    states.dedup();
    assert!(states.contains(&State::Released) && states.contains(&State::Foreign) && states.contains(&State::Orphan));
    assert!(strategies.contains(&Style::Recreate) && strategies.contains(&Style::Unordered));
}
