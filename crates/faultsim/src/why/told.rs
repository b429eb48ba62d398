//! What stays wrong at the end of all faults until whoever asks why is told of it: users mend nothing else then.

use crate::asks;
use crate::run::{STUCK_MS, World};
use crate::schedule::{FaultKind, UserAct, Wanted};
use fastrand::Rng;
use flotilla_model::Timestamp;
use flotilla_sim::placement;
use flotilla_why::Cause;

/// What whoever is told has to see to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mend {
    Image,
    Template,
    /// What the message asks for: a policy of the template, a webhook of others.
    Message,
    Admission,
    Node,
}

/// How advice begins that is about a template which cannot be.
const TEMPLATE: [&str; 4] = [
    "add a claim template ",
    "correct the template",
    "add the claim template, or the volume",
    "change only what can be changed in place",
];

impl Mend {
    /// What an advice asks for, by its words: users read them.
    fn of(advice: &str) -> Option<Mend> {
        let speaks_of = |words: &[&str]| words.iter().any(|word| advice.contains(word));
        if advice.starts_with("correct the image") {
            Some(Mend::Image)
        } else if TEMPLATE.iter().any(|words| advice.starts_with(words)) {
            Some(Mend::Template)
        } else if advice.starts_with("see what the message asks for") {
            Some(Mend::Message)
        } else if speaks_of(&["ResourceQuota", "webhook"]) {
            Some(Mend::Admission)
        } else {
            speaks_of(&["node"]).then_some(Mend::Node)
        }
    }
}

/// Whether it comes, by luck of its own, so that everything else of a seed is the same with and without it.
pub(crate) fn comes(seed: u64, wanted: &Wanted) -> bool {
    let mut rng = Rng::with_seed(seed ^ 0x070_1d0f);
    asks::comes(&mut rng, wanted, FaultKind::Told, 4)
}

/// What the policy says of pods that their template makes so.
const BY_THE_POLICY: &str = "policy \"variables\" denied request";

impl World {
    /// The quota or the webhook that came last stays in force, and the node that was lost last stays so.
    pub(crate) fn last_troubles_stay(&mut self) {
        if !self.schedule.mends_as_told {
            return;
        }
        let mut rng = Rng::with_seed(self.schedule.seed ^ 0x70_1d);
        if let Some(admission) = self.last_admission.take().filter(|_| rng.bool()) {
            self.admissions.push((u64::MAX, admission));
            self.admission_changes();
        }
        if let Some(node) = self.last_lost.take().filter(|_| rng.bool()) {
            self.cluster.lose_node(node, Timestamp::MAX);
            // What the control plane does not know yet is no trouble yet.
            self.cluster.node_down(node);
        }
    }

    /// Whether a node stays lost.
    pub(crate) fn is_a_node_lost(&self) -> bool {
        let nodes = self.cluster.nodes.as_objects(self.time());
        nodes.iter().any(placement::is_silent)
    }

    /// Whether users who mend nothing else ask again, whatever has changed.
    pub(crate) fn is_time_to_be_told(&self, since_ms: u64) -> bool {
        self.schedule.mends_as_told && self.now_ms > self.told_at_ms.max(since_ms) + STUCK_MS
    }

    /// Users see to what they are told to see to.
    pub(super) fn mend_as_told(&mut self, cause: &Cause, advice: &str) {
        if !self.schedule.mends_as_told {
            return;
        }
        if advice.contains("lower the partition") {
            self.act(&UserAct::Partition(0));
        }
        match Mend::of(advice) {
            Some(Mend::Image) => self.users_mend_images(),
            Some(Mend::Template) => self.users_mend_what_is_refused(),
            Some(Mend::Message) if cause.message.contains(BY_THE_POLICY) => self.users_mend_what_is_refused(),
            Some(Mend::Message | Mend::Admission) => {
                self.admissions.clear();
                self.admission_changes();
            }
            Some(Mend::Node) => self.cluster.nodes.heal(),
            None => return,
        }
        self.say(|| format!("---- told of {}: {advice}", cause.subject));
    }
}
