//! Sets with what nobody expects: whatever others have made of them, they come to rest, and say what they wait for.

use super::cases::{Case, settled_case};
use super::properties::config;
use super::world::World;
use crate::shared::adoption::controller_ref;
use crate::shared::identity::{Membership, membership};
use crate::testing::{Cluster, brief, claim, owner, pod};
use flotilla_model::records::VolumeClaim;
use flotilla_model::{Resource, Uid, Wait, WaitCause};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

/// Something odd that somebody has done.
#[derive(Clone, Copy, Debug)]
enum Odd {
    /// A pod of the set with an ordinal that no slot has, old or new.
    NoSlot(i64, bool),
    /// A pod of the set whose name is no canonical one.
    Zeros(i64),
    /// A pod of the set on its way out, with an ordinal that no slot has.
    NoSlotGoing,
    /// A claim for a slot that belongs to a former pod, or a former set.
    Former(i64, bool),
    /// A claim for a slot that is on its way out, and never goes.
    Going(i64),
    /// A claim that others control.
    Theirs(i64),
    /// The older revision has the highest number that there is, or one less.
    Highest(bool),
    /// A label that the selector forbids, on the newer revision or the older one.
    Forbidden(bool),
    /// Labels of revisions are gone.
    Unlabelled,
}

fn any_odd() -> impl Strategy<Value = Odd> {
    prop_oneof![
        (0..3_i64, any::<bool>()).prop_map(|(n, new)| Odd::NoSlot(n, new)),
        (0..9_i64).prop_map(Odd::Zeros),
        Just(Odd::NoSlotGoing),
        (0..9_i64, any::<bool>()).prop_map(|(ordinal, set)| Odd::Former(ordinal, set)),
        (0..9_i64).prop_map(Odd::Going),
        (0..9_i64).prop_map(Odd::Theirs),
        any::<bool>().prop_map(Odd::Highest),
        any::<bool>().prop_map(Odd::Forbidden),
        Just(Odd::Unlabelled),
    ]
}

impl Odd {
    fn add_to(self, cluster: Cluster) -> Cluster {
        let kind = cluster.kind.resource();
        match self {
            Odd::NoSlot(n, is_new) => {
                let fixture = pod(&format!("web-{}", 4_000_000_000 + n));
                cluster.pod(fixture.revision(if is_new { "new" } else { "old" }))
            }
            Odd::Zeros(ordinal) => cluster.pod(pod(&format!("web-00{ordinal}")).revision("old")),
            Odd::NoSlotGoing => cluster.pod(pod("web-5000000000").revision("old").terminating()),
            Odd::Former(ordinal, is_set) => {
                let name = format!("web-{ordinal}");
                let gone = Uid::new("gone");
                let former = if is_set {
                    controller_ref(kind, "web", &gone)
                } else {
                    controller_ref(Resource::Pods, &name, &gone)
                };
                cluster.claim(claim(&format!("data-{name}")).owners(vec![former]))
            }
            Odd::Going(ordinal) => cluster.claim(claim(&format!("data-web-{ordinal}")).terminating()),
            Odd::Theirs(ordinal) => {
                let mut theirs = owner("example.com/v1", "Backup", "b", "b-uid");
                theirs.controller = true;
                cluster.claim(claim(&format!("data-web-{ordinal}")).owners(vec![theirs]))
            }
            Odd::Highest(is_equal) => {
                let most = if is_equal { i64::MAX } else { i64::MAX - 1 };
                let cluster = cluster
                    .no_revisions()
                    .revision("new", if is_equal { most } else { 2 }, "v2");
                cluster.revision("old", most, "v1")
            }
            Odd::Forbidden(is_new) => {
                let selector = json!({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "canary", "operator": "DoesNotExist"}]});
                let cluster = cluster.spec("/selector", selector);
                cluster.labelled(if is_new { "new" } else { "old" }, "canary")
            }
            Odd::Unlabelled => cluster.unlabelled_revisions(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..config() })]

    /// STS-I8 and STS-I12, R-19: no write is decided for ever, and whatever is left to do or to know is said.
    #[test]
    fn sts_i8_and_i12_odd_sets_come_to_rest_and_are_never_silent(
        case in settled_case(false), missing in prop::collection::vec(0..8_usize, 0..3), has_claims: bool,
        policy in (any::<bool>(), any::<bool>()), odds in prop::collection::vec(any_odd(), 1..4), collects: bool,
    ) {
        let mut case = case;
        for place in missing {
            if place < case.pods.len() {
                case.pods.remove(place);
            }
        }
        let cluster = prepared(&case, has_claims, policy);
        let mut world = World::new(odds.iter().fold(cluster, |cluster, odd| odd.add_to(cluster)), case.seed);
        for _ in 0..80 {
            world.pass().map_err(TestCaseError::fail)?;
            world.go_on();
            if collects {
                world.collect_garbage();
            }
        }
        world.let_a_minute_pass();
        world.pass().map_err(TestCaseError::fail)?;
        world.let_a_minute_pass();
        let decision = world.pass().map_err(TestCaseError::fail)?;
        prop_assert_eq!(brief(&decision), [] as [&str; 0], "it comes to rest");
        is_not_silent(&world, &case, &decision.waits)?;
    }
}

fn prepared(case: &Case, has_claims: bool, (with_pod, with_set): (bool, bool)) -> Cluster {
    let word = |delete: bool| if delete { "Delete" } else { "Retain" };
    let policy = json!({"whenScaled": word(with_pod), "whenDeleted": word(with_set)});
    let cluster = case.cluster().spec("/persistentVolumeClaimRetentionPolicy", policy);
    if !has_claims {
        return cluster;
    }
    let ordinals: Vec<i64> = case.pods.iter().map(|(ordinal, ..)| *ordinal).collect();
    let mut cluster = ordinals
        .into_iter()
        .fold(cluster.claim_templates(&["data"]), |cluster, ordinal| {
            cluster.claim(claim(&format!("data-web-{ordinal}")))
        });
    // They mount them already.
    let pods = std::mem::take(&mut cluster.own_pods);
    pods.iter().fold(cluster, |cluster, pod| {
        let mut pod = (**pod).clone();
        let volume = VolumeClaim {
            volume: "data".into(),
            claim: None,
        };
        pod.volumes = Some(Arc::new([volume].into()));
        cluster.pod_record(pod)
    })
}

/// A pod that fills no slot is named; and a rollout that is not over says why, or that it is as far as it was asked to go.
fn is_not_silent(world: &World, case: &Case, waits: &[Wait]) -> Result<(), TestCaseError> {
    let fills_no_slot = |name: &str| membership("web", name) == Membership::Unusable;
    let pods = world.cluster.own_pods.iter().filter(|pod| !pod.is_terminating());
    let too_high = pods.filter(|pod| fills_no_slot(pod.name()));
    for pod in too_high {
        let names = |wait: &Wait| matches!(&wait.cause, WaitCause::OrdinalTooLarge { pods } if pods.iter().any(|p| p == pod.name()));
        prop_assert!(waits.iter().any(names), "{} is not named: {:?}", pod.name(), waits);
    }
    let text = |field: &str| world.set().status_text(field).to_owned();
    let is_over = text("currentRevision") == text("updateRevision");
    let is_all_there = world.unavailable() == 0;
    if is_over && is_all_there || case.replicas == 0 {
        return Ok(());
    }
    let conditions = world.set().status.get("conditions").and_then(Value::as_array);
    let told = conditions.into_iter().flatten().find(|c| c["type"] == "Progressing");
    let Some(told) = told else {
        return Err(TestCaseError::fail(format!(
            "silent, with {waits:?} and {:?}",
            world.set().status
        )));
    };
    prop_assert_ne!(&told["reason"], "RolloutInProgress", "{:?}", waits);
    prop_assert_ne!(&told["reason"], "RolloutComplete", "{:?}", waits);
    prop_assert!(told["message"].as_str().is_some_and(|m| !m.is_empty()));
    Ok(())
}
