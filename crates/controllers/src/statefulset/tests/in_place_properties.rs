//! Invariants of updates in place over time: a kubelet, a user with hooks, new revisions and rollbacks at any moment.

use super::properties::config;
use super::world::World;
use crate::shared::lifecycle::State;
use crate::testing::{Cluster, advanced, brief, container_status, pod, template};
use flotilla_api::names;
use flotilla_model::Command;
use flotilla_model::records::PodDetail;
use proptest::prelude::*;
use proptest::test_runner::Config;
use serde_json::json;
use std::sync::Arc;

/// Everything that differs between the sets.
// Independent switches of a cluster, not a state.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Debug)]
struct Case {
    ordered: bool,
    replicas: i32,
    budget: usize,
    partition: usize,
    unordered: bool,
    grace: i32,
    hooks: [bool; 3],
    marks: bool,
    only: bool,
    keep_ready: bool,
    forgetful: bool,
    /// Before which passes the template gets which image.
    edits: Vec<(usize, u8)>,
    seed: u64,
}

prop_compose! {
    fn any_case()(
        shape in (any::<bool>(), 1..5_i32, 1..3_usize, prop_oneof![3 => Just(0_usize), 1 => 1..3_usize], any::<bool>()),
        grace in prop_oneof![2 => Just(0), 1 => Just(10)],
        hooks in any::<[bool; 3]>(),
        flags in any::<[bool; 4]>(),
        edits in prop::collection::vec((0..24_usize, 1..4_u8), 0..4),
        seed in any::<u64>(),
    ) -> Case {
        Case {
            ordered: shape.0, replicas: shape.1, budget: shape.2, partition: shape.3, unordered: shape.4 && !shape.0, grace, hooks,
            marks: flags[0], only: flags[1], keep_ready: flags[2], forgetful: flags[3], edits, seed,
        }
    }
}

impl Case {
    fn max_unavailable(&self) -> usize {
        if self.ordered { 1 } else { self.budget }
    }

    /// All pods are at the old revision, available, and held by whatever hooks there are.
    fn world(&self) -> World {
        let hook =
            json!({"labelsHandler": {"hold": "yes"}, "finalizersHandler": ["f/hold"], "markPodNotReady": self.marks});
        let mut lifecycle = json!({});
        for (on, name) in self.hooks.iter().zip(["preDelete", "inPlaceUpdate", "preNormal"]) {
            if *on {
                lifecycle[name] = hook.clone();
            }
        }
        let mut rolling = json!({
            "podUpdatePolicy": if self.only { "InPlaceOnly" } else { "InPlaceIfPossible" }, "maxUnavailable": self.budget,
            "partition": self.partition, "inPlaceUpdateStrategy": {"gracePeriodSeconds": self.grace},
        });
        if self.unordered {
            rolling["unorderedUpdate"] = json!({});
        }
        let mut cluster: Cluster = advanced(self.replicas).rolling(rolling).spec("/lifecycle", lifecycle);
        if self.ordered {
            cluster = cluster.ordered();
        }
        if self.keep_ready {
            cluster = cluster.annotation(names::KEEP_READY_CONTAINERS, "main");
        }
        for ordinal in 0..self.replicas {
            let fixture = pod(&format!("web-{ordinal}")).revision("old").detailed(|d| {
                d.statuses = Box::new([Some(container_status("v1"))]);
                d.finalizers = Arc::new(["other/f".into(), "f/hold".into()]);
            });
            cluster = cluster.pod(fixture.label("hold", "yes"));
        }
        let mut world = World::new(cluster, self.seed);
        world.manners.forgetful = self.forgetful;
        world
    }
}

fn unavailable(world: &World) -> usize {
    let is_up = |pod: &flotilla_model::PodRecord| world.is_available(pod) && State::of(pod).is_normal();
    world
        .slots()
        .iter()
        .filter(|(_, pod)| !pod.as_ref().is_some_and(|p| is_up(p)))
        .count()
}

/// Whether the kubelet has nothing left to do. A pod that stays in service meanwhile does not show that otherwise.
fn runs_as_asked(world: &World) -> bool {
    let runs = |pod: &PodDetail| {
        pod.statuses[0]
            .as_ref()
            .is_some_and(|s| s.image == pod.spec.containers[0].image)
    };
    world
        .slots()
        .iter()
        .all(|(_, pod)| pod.as_ref().is_some_and(|p| runs(detail(p))))
}

fn detail(pod: &flotilla_model::PodRecord) -> &PodDetail {
    pod.detail.as_deref().expect("every pod of this world is seen whole")
}

proptest! {
    #![proptest_config(Config { cases: 1_000, ..config() })]

    /// STS-I2, STS-I4, STS-I8 and STS-I9, and: one change of the image restarts a container once, no pod is deleted, and whatever was begun comes
    /// to its end, with the engine's memory lost at random and the engine stopped between any two writes.
    #[test]
    fn sts_i2_and_i4_and_i8_and_i9_hold_for_updates_in_place(case in any_case()) {
        let mut world = case.world();
        world.manners.crashing = case.forgetful;
        let pods: Vec<_> = world.slots().into_iter().filter_map(|(_, p)| p.map(|p| p.meta.uid.clone())).collect();
        let mut edits: u32 = 1;
        for round in 0..30 {
            for (_, image) in case.edits.iter().filter(|(at, _)| *at == round) {
                world.edit("/template", template(&format!("v{image}")));
                edits += 1;
            }
            let decision = world.pass().map_err(TestCaseError::fail)?;
            let deleted = decision.commands().filter(|c| matches!(c.command, Command::Delete { .. }));
            prop_assert_eq!(deleted.count(), 0, "nothing has to be made again: {:?}", brief(&decision));
            prop_assert!(unavailable(&world) <= case.max_unavailable(), "{:?}", brief(&decision));
            world.go_on();
            prop_assert!(unavailable(&world) <= case.max_unavailable());
        }
        let mut quiet = 0;
        for _ in 0..300 {
            let decision = world.pass().map_err(TestCaseError::fail)?;
            let is_quiet = decision.commands().next().is_none() && unavailable(&world) == 0 && runs_as_asked(&world);
            quiet = if is_quiet { quiet + 1 } else { 0 };
            if quiet > 2 {
                break;
            }
            world.go_on();
        }
        let last = world.pass().map_err(TestCaseError::fail)?;
        prop_assert!(quiet > 2, "it does not come to rest: {:?} {:?}", brief(&last), last.waits);
        let slots = world.slots();
        let update = world.set().status_text("updateRevision").to_owned();
        let mut old = 0;
        for (ordinal, pod) in &slots {
            let pod = pod.as_ref().expect("no pod is lost");
            prop_assert!(pods.contains(&pod.meta.uid), "web-{} is another one", ordinal);
            let seen = detail(pod);
            let gates = [&seen.in_place_ready, &seen.kruise_ready];
            prop_assert!(gates.iter().all(|g| g.as_ref().is_some_and(|g| g.is_true && g.message.is_empty())), "{seen:?}");
            prop_assert!(seen.finalizers.iter().any(|f| **f == *"other/f"), "finalizers of others stay");
            let runs = seen.statuses[0].as_ref().map(|s| s.image.clone());
            prop_assert_eq!(runs.as_ref(), Some(&seen.spec.containers[0].image));
            if pod.revision() == Some(update.as_str()) {
                let template = world.set().spec.template.tree();
                let wanted = template.pointer("/spec/containers/0/image").and_then(serde_json::Value::as_str);
                prop_assert_eq!(Some(&*seen.spec.containers[0].image), wanted);
            } else {
                old += 1;
            }
            let restarts = world.restarts.get(&pod.meta.uid.to_string()).copied().unwrap_or(0);
            prop_assert!(restarts <= edits, "web-{} restarted {} times for {} changes", ordinal, restarts, edits);
        }
        prop_assert!(old <= case.partition, "{} stay old, {} may", old, case.partition);
        world.let_a_minute_pass();
        let decision = world.pass().map_err(TestCaseError::fail)?;
        prop_assert_eq!(brief(&decision), [] as [&str; 0]);
    }

    /// A change that cannot be made in place, pods to be scaled away, and hooks: every pod comes back whole or goes in the end.
    #[test]
    fn sts_i9_hooked_deletions_and_creations_come_to_an_end(case in any_case(), fewer in 0..3_i32, port in any::<bool>()) {
        let case = Case { only: false, edits: Vec::new(), partition: 0, ..case };
        let mut world = case.world();
        for round in 0..120 {
            if round == 3 {
                world.edit("/replicas", json!((case.replicas - fewer).max(0)));
            }
            if round == 5 && port {
                let mut other = template("v3");
                other["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80}]);
                world.edit("/template", other);
            }
            if round == 9 {
                world.edit("/replicas", json!(case.replicas));
            }
            world.pass().map_err(TestCaseError::fail)?;
            world.go_on();
        }
        let last = world.pass().map_err(TestCaseError::fail)?;
        prop_assert_eq!(brief(&last), [] as [&str; 0]);
        prop_assert_eq!(unavailable(&world), 0, "{:?}", last.waits);
        let update = world.set().status_text("updateRevision").to_owned();
        prop_assert!(world.slots().iter().all(|(_, p)| p.as_ref().is_some_and(|p| p.revision() == Some(update.as_str()))));
    }
}
