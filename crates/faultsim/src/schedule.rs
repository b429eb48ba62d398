//! From a seed to a schedule: one set, what users do to it and when, and which faults strike when.
//!
//! A schedule is plain data: it can be printed, and it can be made smaller by leaving items out. Each item that needs chance while
//! it runs carries its own seed, so that leaving one out does not change the luck of the others.

mod chance;
mod kind;
mod words;

pub(crate) use chance::{item, rollout};
pub use kind::FaultKind;

use crate::asks::{self, Asks};
use crate::claim_labels;
use crate::claim_templates;
use crate::clocks;
use crate::clones::{self, ClonePlan};
use crate::containers;
use crate::deferrals;
use crate::environment::{self, Environment};
use crate::huge;
use crate::in_place::InPlace;
use crate::kept_ready;
use crate::managers::LEAVES_WITHIN_MS;
pub use crate::refusals::Refusal;
use crate::refusals::refusals;
use crate::resizes;
use crate::storage::{self, Storage};
use crate::stubborn::{self, Refused};
use crate::takers::{self, Taking};
use crate::webhook::absences;
use crate::why;
use crate::{tenants, theirs};
use fastrand::Rng;
use flotilla_model::{Resource, SetKind};
use flotilla_sim::nodes::Ailment;
use serde_json::{Value, json};

/// When the last item of a schedule may begin, in milliseconds.
pub(crate) const BUSY_MS: u64 = 60_000;

/// Kinds for which pods have to be updated in place.
pub(crate) const NEED_IN_PLACE: [FaultKind; 7] = [
    FaultKind::Prepared,
    FaultKind::Deferrals,
    FaultKind::InPlace,
    FaultKind::Deadline,
    FaultKind::Notes,
    FaultKind::KeptReady,
    FaultKind::Environment,
];

/// Something that users do.
#[derive(Clone, Debug, PartialEq)]
pub enum UserAct {
    /// Another image for all pods; `good` says whether it can be pulled.
    Image(u32, bool),
    /// Another request for cpu, in thousandths of a core.
    Cpu(u32),
    /// A template of which the API server refuses every pod, or one mended.
    Template(Refusal),
    /// Users look at what their hooks hold up.
    MindHooks,
    /// Another number of pods.
    Scale(i64),
    /// Another partition.
    Partition(i64),
    /// Delete a pod; at once and without asking the kubelet, or not.
    DeletePod(i64, bool),
    /// Take a pod out of the selector, or back.
    Relabel(i64, bool),
    /// Take the owner away from a pod.
    Disown(i64),
    /// Delete the set, and make it anew some time later.
    DeleteSet(Orphaning),
    /// Something else is asked for.
    Ask(asks::Act),
    /// What only users of CloneSets do.
    Clone(clones::Act),
    /// Edit several containers.
    Containers(containers::Act),
    /// Other labels and annotations of claim templates.
    ClaimLabels(claim_labels::Act),
    /// Other metadata, to which containers refer.
    Environment(environment::Act),
    /// What others do to claims.
    Claim(theirs::Act),
    /// A claim template comes or goes.
    ClaimTemplate(claim_templates::Act),
    /// So many Gi of storage for each pod.
    Storage(u64),
    /// Take from revisions what is recorded of claims.
    ForgetClaims,
    /// Put a label and an annotation on the claim of a pod.
    MarkClaim(i64),
    /// Store a pod of this ordinal, a revision and a claim in another namespace, and name the set as their owner.
    NameOwner(i64),
    /// Write a huge number, or take it back.
    Huge(huge::Act),
    /// Add a label to a pod, which changes nothing but its version.
    Touch(Resource, i64),
}

/// What becomes of pods when their set is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orphaning {
    /// They go afterwards.
    Background,
    /// They go first.
    Foreground,
    /// They stay.
    Orphan,
}

/// A fault that strikes.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// Watches of this kind tell nothing for so long.
    Lag(Resource, u64),
    /// A watch breaks; `gone`: its version is no longer known when it comes back.
    Break(Resource, bool),
    /// A watch tells the last so many events again.
    Repeat(Resource, usize),
    /// For so long, a watch tells only the last of several events about one object.
    Coalesce(Resource, u64),
    /// For so long, so many of a hundred requests suffer this.
    Requests(Loss, u64, u32),
    /// A manager dies when so many of its writes from now on have reached the server, and comes back after so long.
    Crash(usize, u32, u64),
    /// A manager is asked to leave, does so in order, and comes back so long after.
    Leave(usize, u64),
    /// A manager stands still for so long: at once, or when so many of its writes from now on are about to leave.
    Stop(usize, u32, u64),
    /// What the pods of a slot do next, for so long.
    Pod(i64, Ailment, u64),
    /// A node is lost for so long.
    Node(usize, u64),
    /// Quota of so many pods, for so long.
    Quota(usize, u64),
    /// Webhooks of others: refuse pods, or change them, for so long.
    Webhook(bool, u64),
    /// Flotilla's own webhooks are away for so long.
    Away(u64),
    /// Webhooks of others add a claim to what new pods mount, or swap their claims, for so long.
    Volumes(bool, u64),
    /// Requests to change the pod of a slot, or claims, are refused with this code, for so long.
    Refuse(i64, Refused, u16, u64),
    /// The kubelet of a slot's pod gives this container no other resources, for good or for the time being, for so long.
    Resizes(i64, usize, bool, u64),
    /// Others take each new pod away so long after it was made, for so long.
    Takers(Taking, u64, u64),
    /// A manager's clock is ahead by so much, and is set back before it looks.
    SetBack(usize, u64),
}

/// What happens to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It never arrives, and nobody says so.
    Request,
    /// It takes effect, and its answer is lost.
    Answer,
    /// The connection breaks first, and it takes effect afterwards.
    Late,
    /// There is no connection.
    Unsent,
    /// 429, with the seconds to wait.
    Throttle,
    /// 500 without effect.
    Error,
    /// 503, 504: with effect, or without.
    Timeout,
}

/// What happens at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// When, in milliseconds since the start.
    pub at_ms: u64,
    /// What.
    pub what: What,
    /// For what is left to chance.
    pub seed: u64,
}

/// An item's content.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// By a user.
    User(UserAct),
    /// By fate.
    Fault(Fault),
}

impl Item {
    /// When it has had its effect.
    fn ends_at_ms(&self) -> u64 {
        // A set that is deleted is made anew some time later.
        const MADE_ANEW_MS: u64 = 9_000;
        self.at_ms
            + match &self.what {
                What::User(UserAct::DeleteSet(_)) => MADE_ANEW_MS,
                What::User(_) => 0,
                What::Fault(fault) => fault.lasts_ms(),
            }
    }
}

impl Fault {
    fn lasts_ms(&self) -> u64 {
        match self {
            Fault::Break(..) | Fault::Repeat(..) | Fault::SetBack(..) => 3_000,
            Fault::Leave(_, back_after_ms) => LEAVES_WITHIN_MS + back_after_ms,
            Fault::Lag(_, for_ms)
            | Fault::Coalesce(_, for_ms)
            | Fault::Requests(_, for_ms, _)
            | Fault::Crash(_, _, for_ms)
            | Fault::Stop(_, _, for_ms)
            | Fault::Pod(_, _, for_ms)
            | Fault::Node(_, for_ms)
            | Fault::Quota(_, for_ms)
            | Fault::Webhook(_, for_ms)
            | Fault::Volumes(_, for_ms)
            | Fault::Refuse(_, _, _, for_ms)
            | Fault::Resizes(_, _, _, for_ms)
            | Fault::Takers(_, _, for_ms)
            | Fault::Away(for_ms) => *for_ms,
        }
    }
}

/// The set at the beginning.
#[derive(Clone, Debug, PartialEq)]
pub struct SetPlan {
    /// Of which kind.
    pub kind: SetKind,
    /// How many pods.
    pub replicas: i64,
    /// First ordinal.
    pub start: i64,
    /// Whether pods come one after the other.
    pub ordered: bool,
    /// Updated only when users delete pods.
    pub on_delete: bool,
    /// Budget of the update, if it names one.
    pub max_unavailable: Option<i64>,
    /// The partition at first.
    pub partition: i64,
    /// How long pods must be ready.
    pub min_ready_s: i64,
    /// Whether pods have a claim.
    pub claims: bool,
    /// Claims go with the set; with the pod.
    pub retention: (bool, bool),
    /// How pods are updated in place, if they are.
    pub in_place: Option<InPlace>,
    /// How many containers there are beside the first.
    pub more_containers: usize,
    /// What the driver of its volumes can do, if they grow.
    pub storage: Option<Storage>,
    /// What else it asks for.
    pub asks: Asks,
    /// For how many pods its namespace has room, if a quota says so.
    pub room: Option<usize>,
    /// Which containers refer to metadata of their pod.
    pub environment: Environment,
    /// What only a CloneSet asks for.
    pub clones: Option<ClonePlan>,
}

impl SetPlan {
    /// The manifest.
    pub fn manifest(&self) -> Value {
        let mut rolling = json!({"partition": self.partition});
        if let Some(max) = self.max_unavailable {
            rolling["maxUnavailable"] = json!(max);
        }
        let mut strategy = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
        if self.on_delete {
            strategy = json!({"type": "OnDelete"});
        }
        let word = |delete| if delete { "Delete" } else { "Retain" };
        let resource = self.kind.resource();
        let mut set = json!({
            "apiVersion": resource.api_version(),
            "kind": resource.kind(),
            "metadata": {"name": "web", "namespace": "ns"},
            "spec": {
                "replicas": self.replicas,
                "serviceName": "web",
                "podManagementPolicy": if self.ordered { "OrderedReady" } else { "Parallel" },
                "updateStrategy": strategy,
                "revisionHistoryLimit": 2,
                "ordinals": {"start": self.start},
                "selector": {"matchLabels": {"app": "web"}},
                "persistentVolumeClaimRetentionPolicy":
                    {"whenDeleted": word(self.retention.0), "whenScaled": word(self.retention.1)},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "main", "image": "app:v1"}], "terminationGracePeriodSeconds": 10},
                },
            },
        });
        match self.kind {
            SetKind::Native => set["spec"]["minReadySeconds"] = json!(self.min_ready_s),
            SetKind::Advanced if !self.on_delete => {
                set["spec"]["updateStrategy"]["rollingUpdate"]["minReadySeconds"] = json!(self.min_ready_s);
            }
            SetKind::Advanced | SetKind::Clone => {}
        }
        if self.claims {
            set["spec"]["volumeClaimTemplates"] = json!([{
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            }]);
        }
        if self.storage.is_some() {
            Storage::complete(&mut set);
        }
        self.asks.complete(&mut set);
        if let Some(clones) = &self.clones {
            clones.complete(&mut set, self);
        }
        if let Some(in_place) = self.in_place {
            in_place.complete(&mut set, self.kind);
        }
        containers::complete(self.more_containers, &mut set);
        self.environment.complete(&mut set);
        set
    }
}

/// Everything that a run depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// Where it comes from.
    pub seed: u64,
    /// What is wrong at the end of all faults stays so until whoever asks why is told of it.
    pub mends_as_told: bool,
    /// The set.
    pub set: SetPlan,
    /// Whether there are webhooks of Flotilla.
    pub has_webhook: bool,
    /// How many managers there are.
    pub managers: usize,
    /// How much each manager's clock is ahead, in milliseconds.
    pub skews_ms: [i64; 2],
    /// What happens, in order of time.
    pub items: Vec<Item>,
}

/// Which schedules are wanted.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Only these faults; all if empty.
    pub faults: Vec<FaultKind>,
    /// Only sets of this kind.
    pub kind: Option<SetKind>,
    /// Only sets of so many pods.
    pub pods: Option<i64>,
}

impl Schedule {
    /// The schedule of a seed.
    pub fn of_seed(seed: u64, wanted: &Wanted) -> Self {
        let is_of_clones = wanted.kind.is_none() && wanted.faults.iter().any(|kind| kind.is_of_clone_sets());
        if wanted.kind == Some(SetKind::Clone) || is_of_clones {
            return clones::schedule(seed, wanted);
        }
        let mut rng = Rng::with_seed(seed);
        let is_asked_for = wanted.faults.iter().any(|kind| kind.is_of_advanced_sets());
        let kind = if is_asked_for {
            Some(SetKind::Advanced)
        } else {
            wanted.kind
        };
        let mut set = set_plan(&mut rng, kind);
        set.replicas = wanted.pods.unwrap_or(set.replicas);
        let mut kinds: Vec<FaultKind> = if wanted.faults.is_empty() {
            // Few kinds at a time: each gets far, and all pairs come.
            let chance = rng.f32();
            let all = FaultKind::ALL.into_iter().filter(|kind| !kind.has_own_luck());
            all.filter(|_| rng.f32() < chance).collect()
        } else {
            wanted.faults.clone()
        };
        kinds.retain(|kind| !kind.has_own_luck());
        kinds.retain(|kind| !kind.is_of_advanced_sets() || set.kind == SetKind::Advanced);
        if kinds.contains(&FaultKind::InPlace) || NEED_IN_PLACE.iter().any(|kind| wanted.faults.contains(kind)) {
            set.in_place = Some(InPlace::by_chance(&mut rng));
            set.on_delete = false;
        }
        kinds.sort();
        let two = kinds.contains(&FaultKind::Failover);
        let skew = |rng: &mut Rng| if two { rng.i64(-20_000..20_000) } else { 0 };
        let skews_ms = [skew(&mut rng), skew(&mut rng)];
        let managers = if two { 2 } else { 1 };
        let mut items = vec![rollout(&mut rng)];
        for kind in kinds {
            for _ in 0..rng.usize(1..5) {
                items.extend(item(&mut rng, kind, managers, set.kind));
            }
        }
        items.extend(refusals(seed, wanted));
        let absences = absences(seed, wanted, set.kind);
        let has_webhook = absences.is_some();
        items.extend(absences.into_iter().flatten());
        items.extend(by_luck_of_their_own((seed, wanted), &mut set, has_webhook, managers));
        if has_webhook && set.in_place.is_some_and(|in_place| in_place.only) {
            // Made anew with webhooks or without, it may be another by what they fill in: then no pod can be changed in place.
            items.retain(|item| !matches!(item.what, What::User(UserAct::DeleteSet(_) | UserAct::Template(_))));
        }
        items.sort_by_key(|item| item.at_ms);
        Schedule {
            seed,
            mends_as_told: why::comes(seed, wanted),
            set,
            has_webhook,
            managers,
            skews_ms,
            items,
        }
    }

    /// When the last fault has ended.
    pub fn calm_at_ms(&self) -> u64 {
        self.items.iter().map(Item::ends_at_ms).max().unwrap_or(0) + 1_000
    }

    /// The same without all but these items.
    pub fn with_items(&self, kept: &[usize]) -> Self {
        let items = kept.iter().filter_map(|index| self.items.get(*index)).cloned();
        Schedule {
            items: items.collect(),
            ..self.clone()
        }
    }

    /// Whether it ever asks for an image that cannot be pulled.
    pub fn has_bad_images(&self) -> bool {
        let is_bad =
            |item: &Item| matches!(item.what, What::User(UserAct::Image(_, false))) || containers::is_bad(&item.what);
        self.items.iter().any(is_bad)
    }
}

/// What is drawn by luck of its own, so that everything else of a seed is the same with and without it.
fn by_luck_of_their_own(
    (seed, wanted): (u64, &Wanted),
    set: &mut SetPlan,
    has_webhook: bool,
    managers: usize,
) -> Vec<Item> {
    let mut items = Vec::new();
    items.extend(storage::by_chance(seed, wanted, set));
    items.extend(containers::by_chance(seed, wanted, has_webhook, set));
    items.extend(resizes::by_chance(seed, wanted, has_webhook, set));
    items.extend(asks::by_chance(seed, wanted, has_webhook, set));
    items.extend(stubborn::by_chance(seed, wanted));
    items.extend(stubborn::of_claims(seed, wanted));
    items.extend(tenants::by_chance(seed, wanted));
    items.extend(takers::by_chance(seed, wanted));
    items.extend(clocks::by_chance(seed, wanted, managers));
    items.extend(claim_templates::by_chance(seed, wanted, has_webhook, set));
    items.extend(theirs::by_chance(seed, wanted, set));
    items.extend(huge::by_chance(seed, wanted, has_webhook, set));
    items.extend(kept_ready::by_chance(seed, wanted, set));
    items.extend(environment::by_chance(seed, wanted, has_webhook, set));
    items.extend(deferrals::by_chance(seed, wanted, has_webhook, set));
    items.extend(claim_labels::by_chance(seed, wanted, set));
    items
}

fn set_plan(rng: &mut Rng, kind: Option<SetKind>) -> SetPlan {
    let kind = kind.unwrap_or_else(|| if rng.bool() { SetKind::Native } else { SetKind::Advanced });
    let ordered = rng.bool();
    // An Advanced set may name a budget above one under Parallel only.
    let max_unavailable = (rng.bool() && !(ordered && kind == SetKind::Advanced)).then(|| rng.i64(1..4));
    SetPlan {
        kind,
        replicas: rng.i64(1..7),
        start: if rng.u8(0..5) == 0 { 3 } else { 0 },
        ordered,
        on_delete: rng.u8(0..10) == 0,
        max_unavailable,
        partition: if rng.u8(0..4) == 0 { rng.i64(1..4) } else { 0 },
        min_ready_s: if rng.u8(0..3) == 0 { 3 } else { 0 },
        claims: rng.u8(0..3) == 0,
        retention: (rng.bool(), rng.bool()),
        in_place: None,
        more_containers: 0,
        storage: None,
        asks: Asks::default(),
        room: None,
        environment: Environment::default(),
        clones: None,
    }
}
