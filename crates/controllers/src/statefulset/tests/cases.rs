//! Random clusters as plain data: every kind, policy and strategy, and pods in every state and revision.

use crate::testing::{Cluster, NOW, advanced, native, owner, pod};
use flotilla_model::records::Phase;
use proptest::prelude::*;
use serde_json::json;

/// A pod that is there at the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Available,
    /// Ready a moment ago: not available yet where `minReadySeconds` is set.
    JustReady,
    NotReady,
    NeverReady,
    Pending,
    NotCreated,
    Failed,
    Succeeded,
    Terminating,
    /// Available, and somebody asked for it to be made again.
    Specified,
    /// Nobody's, but with the name and labels of a member.
    Orphan,
    /// Under a member's name, and another's.
    Foreign,
    /// Ours, with labels that the selector does not want.
    Released,
}

const STATES: [State; 13] = [
    State::Available,
    State::JustReady,
    State::NotReady,
    State::NeverReady,
    State::Pending,
    State::NotCreated,
    State::Failed,
    State::Succeeded,
    State::Terminating,
    State::Specified,
    State::Orphan,
    State::Foreign,
    State::Released,
];

/// How old pods are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Rolling,
    /// Native: type RollingUpdate without its block.
    Bare,
    Unordered,
    Paused,
    OnDelete,
    Recreate,
}

const STRATEGIES: [Style; 6] = [
    Style::Rolling,
    Style::Bare,
    Style::Unordered,
    Style::Paused,
    Style::OnDelete,
    Style::Recreate,
];

/// One random cluster.
// Independent switches of a cluster, not a state.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) advanced: bool,
    pub(super) ordered: bool,
    pub(super) strategy: Style,
    pub(super) replicas: i32,
    pub(super) start: i64,
    pub(super) reserved: Vec<i64>,
    pub(super) partition: usize,
    /// 0 means: none is named.
    pub(super) budget: i32,
    pub(super) scale_budget: i32,
    pub(super) min_ready: i32,
    pub(super) unblock: bool,
    pub(super) heedless: bool,
    pub(super) keeps_revision: bool,
    pub(super) rolled_out: bool,
    pub(super) pods: Vec<(i64, u8, State)>,
    pub(super) seed: u64,
}

prop_compose! {
    /// Any cluster.
    pub(super) fn any_case()(
        kind in any::<(bool, bool)>(),
        strategy in prop::sample::select(&STRATEGIES[..]),
        wanted in (0..8_i32, 0..3_i64, prop::collection::vec(0..10_i64, 0..3)),
        partition in prop_oneof![2 => Just(0_usize), 1 => 0..9_usize],
        budgets in (0..4_i32, 0..3_i32, prop_oneof![Just(0), Just(10)]),
        switches in any::<(bool, bool, bool, bool)>(),
        pods in prop::collection::vec((0..11_i64, 0..3_u8, prop_oneof![
            2 => Just(State::Available),
            1 => prop::sample::select(&STATES[..]),
        ]), 0..10),
        seed in any::<u64>(),
    ) -> Case {
        Case {
            advanced: kind.0, ordered: kind.1, strategy,
            replicas: wanted.0, start: wanted.1, reserved: wanted.2,
            partition, budget: budgets.0, scale_budget: budgets.1, min_ready: budgets.2,
            unblock: switches.0, heedless: switches.1, keeps_revision: switches.2, rolled_out: switches.3,
            pods, seed,
        }
    }
}

prop_compose! {
    /// A cluster whose wanted pods are all there and available, most of them old.
    pub(super) fn settled_case(specified: bool)(
        case in any_case(),
        revisions in prop::collection::vec(prop_oneof![3 => Just(0_u8), 1 => Just(1), 1 => Just(2)], 12),
        asked in prop::collection::vec(prop::bool::weighted(0.2), 12),
    ) -> Case {
        let mut case = case;
        let state = |i: usize| if specified && asked[i] { State::Specified } else { State::Available };
        case.pods = case.ordinals().into_iter().enumerate().map(|(i, o)| (o, revisions[i], state(i))).collect();
        case
    }
}

impl Case {
    /// What the set asks for, as it was read: partition and the like apply only where the API has them.
    pub(super) fn is_unordered(&self) -> bool {
        self.strategy == Style::Unordered && self.advanced && !self.ordered
    }

    /// Pods that the partition keeps.
    pub(super) fn kept(&self) -> usize {
        match self.strategy {
            Style::Rolling | Style::Paused | Style::Unordered => self.partition.min(self.ordinals().len()),
            Style::Bare | Style::OnDelete | Style::Recreate => 0,
        }
    }

    /// Whether the set has a partition, whatever it keeps.
    pub(super) fn has_partition(&self) -> bool {
        self.partition > 0 && matches!(self.strategy, Style::Rolling | Style::Paused | Style::Unordered)
    }

    /// Whether the update phase is at rest by the user's will.
    pub(super) fn is_paused(&self) -> bool {
        self.strategy == Style::Paused && self.advanced
    }

    /// Native without a budget of its own.
    pub(super) fn is_classic(&self) -> bool {
        let names_one = self.budget > 0 && !matches!(self.strategy, Style::Bare | Style::OnDelete);
        !self.advanced && !names_one
    }

    /// The same with a strategy that replaces pods one after the other.
    pub(super) fn rolling(self) -> Case {
        match self.strategy {
            Style::Rolling | Style::Unordered => self,
            _ if self.seed.is_multiple_of(2) => Case {
                strategy: Style::Rolling,
                ..self
            },
            _ => Case {
                strategy: Style::Unordered,
                ..self
            },
        }
    }

    /// The same with a strategy that has a budget.
    pub(super) fn not_recreate(self) -> Case {
        match self.strategy {
            Style::Recreate => self.rolling(),
            _ => self,
        }
    }

    /// The wanted ordinals, worked out the slow way.
    pub(super) fn ordinals(&self) -> Vec<i64> {
        let count = usize::try_from(self.replicas).unwrap_or(0);
        let reserved = |o: &i64| self.advanced && self.reserved.contains(o);
        (self.start..).filter(|o| !reserved(o)).take(count).collect()
    }

    /// How many pods may be unavailable.
    pub(super) fn max_unavailable(&self) -> usize {
        let named = matches!(self.strategy, Style::Rolling | Style::Paused | Style::Unordered);
        let applies = named && !(self.advanced && self.ordered);
        if applies {
            usize::try_from(self.budget.max(1)).unwrap_or(1)
        } else {
            1
        }
    }

    pub(super) fn cluster(&self) -> Cluster {
        let mut cluster = if self.advanced {
            advanced(self.replicas)
        } else {
            native(self.replicas)
        };
        if self.ordered {
            cluster = cluster.ordered();
        }
        cluster = cluster.spec("/ordinals/start", json!(self.start));
        cluster = self.with_strategy(cluster);
        if self.advanced {
            cluster = cluster.spec("/reserveOrdinals", json!(self.reserved));
            if self.scale_budget > 0 {
                cluster = cluster.spec("/scaleStrategy/maxUnavailable", json!(self.scale_budget));
            }
        } else {
            cluster = cluster.spec("/minReadySeconds", json!(self.min_ready));
        }
        for (on, key, value) in [
            (self.unblock, "flotilla.rs/unblock", "broken-first"),
            (self.heedless, "flotilla.rs/scale-down", "ignore-unhealthy"),
            (self.keeps_revision, "flotilla.rs/paused-keeps-revision", "true"),
        ] {
            if on {
                cluster = cluster.annotation(key, value);
            }
        }
        if self.rolled_out {
            cluster = cluster.status("/currentRevision", json!("new"));
        }
        self.with_pods(cluster)
    }

    fn with_strategy(&self, cluster: Cluster) -> Cluster {
        let mut block = json!({"partition": self.partition});
        if self.budget > 0 {
            block["maxUnavailable"] = json!(self.budget);
        }
        if self.advanced {
            block["minReadySeconds"] = json!(self.min_ready);
        }
        match self.strategy {
            Style::OnDelete => return cluster.spec("/updateStrategy/type", json!("OnDelete")),
            Style::Bare => return cluster.spec("/updateStrategy/type", json!("RollingUpdate")),
            Style::Recreate => return cluster.annotation("flotilla.rs/update-type", "Recreate"),
            Style::Unordered if self.advanced => block["unorderedUpdate"] = json!({}),
            Style::Paused if self.advanced => block["paused"] = json!(true),
            Style::Rolling | Style::Unordered | Style::Paused => {}
        }
        cluster.rolling(block)
    }

    fn with_pods(&self, mut cluster: Cluster) -> Cluster {
        for (i, (ordinal, revision, state)) in self.pods.iter().enumerate() {
            if self.pods[..i].iter().any(|(o, ..)| o == ordinal) {
                continue;
            }
            let revision = ["old", "new", "forgotten"][usize::from(*revision)];
            let fixture = pod(&format!("web-{ordinal}")).revision(revision);
            cluster = cluster.pod(match state {
                State::Available => fixture,
                State::JustReady => fixture.ready_since(NOW - 2),
                State::NotReady => fixture.unready_since(NOW - 30),
                State::NeverReady => fixture.never_ready(),
                State::Pending => fixture.phase(Phase::Pending),
                State::NotCreated => fixture.phase(Phase::None),
                State::Failed => fixture.phase(Phase::Failed),
                State::Succeeded => fixture.phase(Phase::Succeeded),
                State::Terminating => fixture.terminating(),
                State::Specified => fixture.label("apps.kruise.io/specified-delete", "true"),
                State::Orphan => fixture.orphan(),
                State::Foreign => fixture.owned_by(owner("apps/v1", "ReplicaSet", "other", "another")),
                State::Released => fixture.unlabelled(),
            });
        }
        cluster
    }
}
