//! The run: the state is loaded, looked at, changed, and followed until nothing happens any more.

use crate::change::{self, Change};
use crate::manager::Manager;
use crate::refers;
use crate::report::Refusal;
use crate::state::{self, State};
use crate::trace::{Traced, has_new_spec, set_of};
use flotilla_engine::wire::Object;
use flotilla_model::{ObjectKey, Resource, SetKind, Timestamp, Uid};
use flotilla_sim::Cluster;
use flotilla_sim::nodes::Ailment;
use flotilla_sim::server::{Absent, Actor, Entry, Stored};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What becomes of the pods that the change makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NewPods {
    /// They start, unless their image is known to fail.
    BecomeReady,
    /// They run, and are never ready, or are refused.
    StayUnready(Doubts),
}

/// Which of the pods that the change makes do not become ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Doubts {
    /// Sets of which only pods of a revision are in doubt that no ready pod has. Of others, all new pods are.
    pub(crate) with_new_revisions: BTreeSet<(SetKind, ObjectKey)>,
    /// What is not there, and without which pods that name it are not even made.
    pub(crate) absent: Vec<Absent>,
}

impl NewPods {
    fn doubts(self) -> Option<Doubts> {
        match self {
            NewPods::BecomeReady => None,
            NewPods::StayUnready(doubts) => Some(doubts),
        }
    }
}

/// How far a change is followed, counted in pods that are looked at: a number and not a time, so that the same question gets the same
/// answer on each machine. What is not reached is said to be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach(pub usize);

impl Reach {
    /// As far as some seconds of computing go.
    pub const SECONDS: Reach = Reach(20_000_000);
    /// Until nothing happens any more, however many pods there are.
    pub const THE_END: Reach = Reach(usize::MAX);
    /// What a step costs however few pods there are.
    const STEP: usize = 100;
    /// What a change of an object costs: it is written, told, and decided about.
    const CHANGE: usize = 400;
}

/// Whether a change shows that what began with the user's is still under way. Before each attempt to make a pod that is refused, its claim is
/// noted as in use: that alone, which goes on for ever, leads nowhere.
fn goes_on(entry: &Entry) -> bool {
    match entry.resource.watched() {
        Some(Resource::Pods | Resource::Revisions) => true,
        Some(Resource::Claims) => {
            let more = |stored: &Option<Stored>| {
                let object = stored.as_ref().map(Stored::value)?;
                let stays = object["metadata"]["deletionTimestamp"].is_null();
                Some((object["spec"].clone(), object["status"].clone(), stays))
            };
            more(&entry.before) != more(&entry.after)
        }
        _ => false,
    }
}

/// Why a change is not followed any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Nothing happens any more.
    Quiet,
    /// It still goes on after [`BOUND`].
    OutOfTime,
    /// It still goes on after as much work as it may cost.
    OutOfWork,
}

impl End {
    fn warning(self, followed: Duration) -> Option<String> {
        match self {
            End::Quiet => None,
            End::OutOfTime => Some(format!(
                "it was followed for {} h of simulated time and still went on then; what comes later is left out",
                BOUND.as_secs() / 3600
            )),
            End::OutOfWork => Some(format!(
                "the change is large, and was followed for {} s of simulated time only; what comes later is left out \
                 (--to-the-end follows it to its end, which may take minutes)",
                followed.as_secs()
            )),
        }
    }
}

/// Pods by their sets, which are named in the words of kubectl, with their namespaces.
pub(crate) type Others = BTreeMap<(String, String), BTreeSet<String>>;

/// What came of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) sets: Vec<Traced>,
    pub(crate) others: Others,
    pub(crate) refused: Vec<Refusal>,
    pub(crate) warnings: Vec<String>,
    /// What could touch pods, and is not known.
    pub(crate) unknowns: Vec<String>,
    /// Whether it was followed until nothing happened any more.
    pub(crate) is_over: bool,
}

/// How long the manager may look at the live state before the change.
const LOOK: Duration = Duration::from_secs(1);
/// When nothing has happened for so long, nothing will; times that the sets themselves name come on top.
const QUIET: Duration = Duration::from_secs(120);
/// The end, whatever still happens.
const BOUND: Duration = Duration::from_secs(24 * 3600);

/// A run.
struct Run {
    cluster: Cluster,
    manager: Manager,
    sets: Vec<Traced>,
    /// Pods of sets that nobody changes, and that managers touch all the same.
    others: Others,
    last_change: Timestamp,
    /// What was done so far, as [`Reach`] counts.
    work: usize,
    reach: Reach,
    /// Pods that are ready in the live state, by UID, with their revisions.
    proven: BTreeSet<(Uid, Option<String>)>,
    /// Which others do not become ready; `None` if all do.
    doubts: Option<Doubts>,
    /// Pods that are not ready, and stay so until they are made again or their containers are others.
    stuck: BTreeSet<ObjectKey>,
}

/// Runs the changes.
pub(crate) fn simulate(state: &State, changes: &[Change], new_pods: NewPods, reach: Reach) -> Result<Outcome, String> {
    let before = state.before();
    let mut cluster = before.load()?;
    let mut warnings = warnings(&before, &cluster);
    let doubts = new_pods.doubts();
    // What holds up others holds them up, and what the change asks for is followed as if it were there: without it no pod comes up is told.
    cluster.server.admission.absent = refers::absent(&before, &[]);
    let proven = state::pods(&cluster)
        .filter(|pod| pod.is_healthy())
        .map(|pod| (pod.meta.uid.clone(), pod.revision().map(str::to_owned)))
        .collect();
    let stuck = before.stuck(&cluster).into_iter().filter(|pod| !pod.is_terminating());
    let stuck: BTreeSet<ObjectKey> = stuck.map(|pod| pod.meta.key.clone()).collect();
    for key in &stuck {
        cluster.ail(key, Ailment::NeverReady, Timestamp::MAX);
    }
    let mut run = Run {
        manager: Manager::new(cluster.now(), state.clones),
        last_change: cluster.now(),
        proven,
        doubts,
        stuck,
        cluster,
        sets: Vec::new(),
        others: BTreeMap::new(),
        work: 0,
        reach,
    };
    warnings.extend(run.look_at_the_live_state());
    let absent = &mut run.cluster.server.admission.absent;
    *absent = refers::absent(state, changes);
    absent.extend(run.doubts.iter().flat_map(|doubts| doubts.absent.iter().cloned()));
    state.bring_into(&mut run.cluster)?;
    let (refused, unknowns) = run.change(changes, &before.going(), &mut warnings);
    let began = run.cluster.now();
    let end = run.follow();
    warnings.extend(end.warning(run.cluster.now().since(began)));
    let is_over = end == End::Quiet;
    for index in 0..run.sets.len() {
        let set = &mut run.sets[index];
        // What is waited for half-way tells nothing about the end.
        let waits = is_over.then(|| run.manager.waits(set.kind, &set.key));
        set.end(&run.cluster, waits);
    }
    Ok(Outcome {
        sets: run.sets,
        others: run.others,
        refused,
        warnings,
        unknowns,
        is_over,
    })
}

fn warnings(state: &State, cluster: &Cluster) -> Vec<String> {
    let mut warnings = Vec::new();
    let cut_off: BTreeMap<Uid, String> = state
        .cut_off(cluster)
        .into_iter()
        .map(|(pod, node)| (pod.meta.uid.clone(), node))
        .collect();
    for pod in state.stuck(cluster) {
        if let Some(node) = cut_off.get(&pod.meta.uid) {
            warnings.push(format!(
                "pod {} is on node {node}, which is silent: its deletion does not end before the node comes back, or its Node object is deleted",
                pod.name()
            ));
            continue;
        }
        let words = if pod.is_terminating() {
            "should have ended by now and is taken to stay"
        } else {
            "is not ready, and is taken to stay so until it is replaced"
        };
        warnings.push(format!("pod {} {words}", pod.name()));
    }
    for (image, failing) in &cluster.nodes.failing_images {
        warnings.push(format!(
            "image {image} fails in the cluster now ({}), and so it does here",
            failing.reason
        ));
    }
    if state.nodes == Some(0) {
        warnings.push("the cluster has no node; pods are taken to start all the same".to_owned());
    }
    warnings
}

impl Run {
    /// What the manager would do anyway is under way before the change. Returns what is to be told of it.
    fn look_at_the_live_state(&mut self) -> Option<String> {
        let until = self.cluster.now() + LOOK;
        let mut touched = BTreeSet::new();
        while self.step(until) {
            let changes = self.cluster.take_changes();
            let own = changes.iter().filter(|e| matches!(e.actor, Actor::Manager(_)));
            touched.extend(
                own.filter(|e| e.resource == Resource::Pods)
                    .map(|e| e.key.name.to_string()),
            );
        }
        self.cluster.take_changes();
        let names = touched.into_iter().collect::<Vec<_>>().join(", ");
        (!names.is_empty()).then(|| format!("under way already, without this change: {names}"))
    }

    /// Makes the changes that the server does not refuse: those that it does, and what is not known of the others.
    fn change(
        &mut self,
        changes: &[Change],
        going: &change::Going,
        warnings: &mut Vec<String>,
    ) -> (Vec<Refusal>, Vec<String>) {
        let (mut refused, mut unknowns) = (Vec::new(), Vec::new());
        for change in changes {
            let (kind, key) = change.target();
            let known = self.sets.iter().position(|set| set.kind == kind && set.key == key);
            let mut traced = Traced::new(&self.cluster, kind, key);
            let made = match change::make(&mut self.cluster.server, change, going) {
                Ok(made) => made,
                Err(refusal) => {
                    refused.push(*refusal);
                    continue;
                }
            };
            unknowns.extend(made.unknowns);
            warnings.extend(made.warnings.iter().map(|w| format!("{}: {w}", traced.key.name)));
            if let Some(place) = known {
                self.sets[place].verb = self.sets[place].verb.then(made.verb);
            } else {
                traced.verb = made.verb;
                self.sets.push(traced);
            }
        }
        for set in &mut self.sets {
            set.begin(&self.cluster);
        }
        self.cluster.react();
        self.note();
        self.last_change = self.cluster.now();
        (refused, unknowns)
    }

    /// Follows until nothing happens any more, or as far as it may.
    fn follow(&mut self) -> End {
        let bound = self.cluster.now() + BOUND;
        let own_times = self
            .sets
            .iter()
            .filter_map(|set| set_of(&self.cluster, set.kind, &set.key));
        let own_times = own_times.map(|set| set.spec.min_ready + set.spec.switches.unblock_after.unwrap_or_default());
        let quiet = QUIET + own_times.max().unwrap_or_default();
        while self.work < self.reach.0 {
            let until = self.last_change + quiet;
            if !self.step(until.min(bound)) {
                return if until <= bound { End::Quiet } else { End::OutOfTime };
            }
            self.note();
        }
        End::OutOfWork
    }

    /// Lets the manager act, and the time pass to when something happens next; false if nothing does before `until`.
    fn step(&mut self, until: Timestamp) -> bool {
        self.work += Reach::STEP + self.sets.iter().map(Traced::size).sum::<usize>();
        let now = self.cluster.now();
        self.manager.drive(&mut self.cluster);
        self.note_if_begun();
        let next = [self.cluster.next_due(), self.manager.next_wake(now)]
            .into_iter()
            .flatten()
            .min();
        // A wake-up that is due already would not let the time pass.
        let next = next.map(|next| next.max(now + Duration::from_millis(1)));
        match next {
            Some(next) if next <= until => {
                self.cluster.advance(next);
                true
            }
            _ => false,
        }
    }

    fn note_if_begun(&mut self) {
        if !self.sets.is_empty() {
            self.note();
        }
    }

    /// Takes note of what has changed.
    fn note(&mut self) {
        let changes = self.cluster.take_changes();
        self.work += Reach::CHANGE * changes.len();
        for entry in &changes {
            if goes_on(entry) {
                self.last_change = self.cluster.now();
            }
            self.sets.iter_mut().for_each(|set| set.note(entry));
            self.note_other(entry);
            self.free(entry);
            self.doubt(entry);
        }
        self.sets.iter_mut().for_each(|set| set.look(&self.cluster));
    }

    /// A manager makes, changes or takes away a pod of a set that nobody changes.
    fn note_other(&mut self, entry: &Entry) {
        let (Actor::Manager(_), Some(Resource::Pods)) = (entry.actor, entry.resource.watched()) else {
            return;
        };
        let stored = entry.after.as_ref().or(entry.before.as_ref());
        let Some(Object::Pod(pod)) = stored.and_then(|stored| stored.object.as_ref()) else {
            return;
        };
        let Some(owner) = pod.meta.controller() else { return };
        let Some(kind) = SetKind::of_owner(owner) else { return };
        let key = pod.meta.key.sibling(&*owner.name);
        if self.sets.iter().all(|set| (set.kind, &set.key) != (kind, &key)) {
            let set = (kind.describe(&key.name), key.namespace.to_string());
            self.others.entry(set).or_default().insert(pod.name().to_owned());
        }
    }

    /// What has kept a pod from being ready is gone with the pod, or with its containers as they were.
    fn free(&mut self, entry: &Entry) {
        let is_stuck = entry.resource == Resource::Pods && self.stuck.contains(&entry.key);
        if is_stuck && (entry.after.is_none() || has_new_spec(entry)) {
            self.stuck.remove(&entry.key);
            self.cluster.ail(&entry.key, Ailment::NeverReady, self.cluster.now());
        }
    }

    /// A pod that is new, or at a revision that is new to it, is never ready if that is what is asked.
    fn doubt(&mut self, entry: &Entry) {
        let Some(doubts) = &self.doubts else { return };
        let mut renewed = self.sets.iter().filter_map(|set| Some((set, set.renewed_pod(entry)?)));
        let Some((set, pod)) = renewed.next() else {
            return;
        };
        let only_new = doubts.with_new_revisions.contains(&(set.kind, set.key.clone()));
        if only_new && set.is_proven(pod.revision()) {
            return;
        }
        let revision = pod.revision().map(str::to_owned);
        if !self.proven.contains(&(pod.meta.uid.clone(), revision)) {
            self.cluster.ail(&entry.key, Ailment::NeverReady, Timestamp::MAX);
        }
    }
}
