//! Decisions about sets that are paused, or whose switches are on or off: each does what its rule says, and nothing where it is off, or
//! cannot be read.

use super::view::Sight;
use super::{Places, Verdict, is_available, is_classic, ordinal_in, partition_of, place_of, require};
use crate::asks::is_to_be_made_again;
use crate::defect::says;
use crate::in_place::{GATE, has_note, is_in_grace, new_revision, new_state, state};
use crate::switches::{Switch, unblock_after};
use flotilla_model::{Command, Decision, ObjectKey, PodRecord, Reader, Resource, SetRecord, Uid, WaitCause};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const RULE_PAUSED: &str = "STS-3.7 paused";
const RULE_KEPT: &str = "STS-3.6 revision while paused";
const RULE_UNBLOCK: &str = "STS-8.1 unblocking";
const RULE_SCALE_DOWN: &str = "STS-8.4 scale-down";
const RULE_TOLD: &str = "switches that cannot be read";

/// The revision that the pod of a slot had when it was seen last.
#[derive(Clone, Debug)]
struct Last {
    revision: String,
    /// Whether it was to be remembered then.
    is_noted: bool,
}

/// The revisions that pods had when a manager saw them last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    set: Option<Uid>,
    slots: BTreeMap<i64, Last>,
}

impl Seen {
    /// A manager may forget at any time, and may also remember what it knew before a pass that came to nothing.
    pub(crate) fn forget(&mut self) {
        for last in self.slots.values_mut() {
            last.is_noted = false;
        }
    }

    /// A pass has seen this.
    pub(crate) fn note(&mut self, set: &SetRecord, reader: &dyn Reader) {
        if self.set.as_ref() != Some(&set.meta.uid) {
            self.slots.clear();
            self.set = Some(set.meta.uid.clone());
        }
        self.slots.retain(|ordinal, _| place_of(*ordinal, set).is_some());
        let is_noted = Switch::KeepRevision.is_on(set);
        for pod in reader.pods_of(set.as_owner()) {
            let ordinal = ordinal_in(pod.name(), set.name()).filter(|ordinal| place_of(*ordinal, set).is_some());
            let fits = set.spec.selector.matches(|label| pod.label(label));
            if let (Some(ordinal), Some(revision), true) = (ordinal, pod.revision(), fits) {
                let revision = revision.to_owned();
                self.slots.insert(ordinal, Last { revision, is_noted });
            }
        }
    }
}

/// Pods that a decision changes, in ways that begin something.
fn patches(decision: &Decision) -> impl Iterator<Item = (&ObjectKey, &Value)> {
    decision.commands().filter_map(|c| match &c.command {
        Command::Patch {
            resource: Resource::Pods,
            key,
            body,
            ..
        } => Some((key, body)),
        _ => None,
    })
}

impl Sight<'_> {
    /// What pauses and switches have to do with a decision.
    pub(super) fn heeds_switches(
        &self,
        decision: &Decision,
        deleted: &[&Arc<PodRecord>],
        begun: &BTreeSet<&ObjectKey>,
    ) -> Verdict {
        self.rests_while_paused(decision, deleted)?;
        self.goes_on_while_paused(decision)?;
        self.lets_go_while_paused(decision)?;
        self.waits_for_its_turn(deleted, begun)?;
        self.recreates_all_at_once(decision, deleted)?;
        self.scales_down_heedlessly(decision, deleted)?;
        self.minds_the_deadline(decision)?;
        self.tells_of_deferrals(decision)?;
        self.tells_what_cannot_be_read(decision)
    }

    pub(super) fn place_of_pod(&self, pod: &PodRecord) -> Option<usize> {
        ordinal_in(pod.name(), self.set.name()).and_then(|ordinal| place_of(ordinal, self.set))
    }

    /// Whether a pod that goes does so for the update: neither because it has ended, nor because it is not wanted, nor because users asked
    /// for another.
    pub(super) fn is_for_update(&self, pod: &PodRecord) -> bool {
        !pod.is_terminal() && self.place_of_pod(pod).is_some() && !is_to_be_made_again(pod, self.set)
    }

    /// While it is paused, the whole update phase rests (STS-3.7). What was begun in place is finished.
    fn rests_while_paused(&self, decision: &Decision, deleted: &[&Arc<PodRecord>]) -> Verdict {
        if !self.set.spec.is_paused() {
            return Ok(());
        }
        let goes = deleted.iter().find(|pod| self.is_for_update(pod));
        require(goes.is_none(), RULE_PAUSED, || {
            format!("{} goes for an update", goes.map_or("", |pod| pod.name()))
        })?;
        for (key, body) in patches(decision) {
            let Some(pod) = self.reader.pod(key).filter(|pod| self.is_for_update(pod)) else {
                continue;
            };
            let brings = new_revision(body).is_some_and(|revision| Some(revision) != pod.revision());
            let prepares = matches!(new_state(body), Some("PreparingUpdate" | "PreparingDelete"));
            let has_begun = is_in_grace(pod) || has_note(pod);
            let leaves = says(body, GATE, "False") && !has_begun && self.is_old(pod);
            require(!(brings || prepares || leaves), RULE_PAUSED, || {
                format!("{} is updated", pod.name())
            })?;
        }
        Ok(())
    }

    /// Pods that are missing are made whether or not the update is paused.
    fn goes_on_while_paused(&self, decision: &Decision) -> Verdict {
        let set = self.set;
        let knows_template = || {
            let own = self.reader.revisions_of(set.as_owner()).iter();
            own.clone().any(|revision| revision.digest == set.spec.template_digest)
        };
        if !set.spec.is_paused() || set.is_deleted() || !knows_template() {
            return Ok(());
        }
        let key = |ordinal: i64| set.meta.key.sibling(format!("{}-{ordinal}", set.name()));
        let missing = Places::of(set)
            .iter()
            .find(|ordinal| self.reader.pod(&key(*ordinal)).is_none());
        let Some(missing) = missing else { return Ok(()) };
        let key = key(missing);
        let is_made = decision.commands().any(|c| *c.command.key() == key);
        let mut lower = Places::of(set).iter().take_while(|ordinal| *ordinal < missing);
        let waits_in_order = set.spec.is_monotonic() && lower.any(|ordinal| !self.is_up(ordinal));
        // Its claims, the budget of scaling, what was refused: all that is said.
        let of_it = |subject: &str| subject == key.name || subject.ends_with(&format!("-{}", key.name));
        let is_explained = decision.waits.iter().any(|wait| of_it(&wait.subject));
        require(is_made || waits_in_order || is_explained, RULE_PAUSED, || {
            format!(
                "{} is missing, is not made, and nothing that it waits for is said",
                key.name
            )
        })
    }

    /// Of a set that is paused a pod comes at the revision that it had, where users ask for that; where nobody knows it any more, the rule
    /// decides. Whether that is settled by this.
    pub(super) fn comes_as_it_was(&self, pod: &str, revision: &str) -> Result<bool, super::Violation> {
        let set = self.set;
        if !(set.spec.is_paused() && Switch::KeepRevision.is_on(set)) {
            return Ok(false);
        }
        let last = ordinal_in(pod, set.name()).and_then(|ordinal| self.seen.slots.get(&ordinal));
        let Some(last) = last.filter(|last| self.digest_of(&last.revision).is_some()) else {
            return Ok(false);
        };
        let is_same = last.revision == revision;
        require(is_same || !last.is_noted, RULE_KEPT, || {
            format!("{pod} had {}, and comes at {revision}", last.revision)
        })?;
        Ok(is_same)
    }

    /// Why the order lets a pod that is to be updated wait, if it does: under OrderedReady for all that are wanted to be available, and
    /// all others gone; a native set without a budget walks from the top to the first that is neither.
    fn held_up_by(&self, pod: &PodRecord) -> Option<String> {
        let set = self.set;
        let own = self.place_of_pod(pod)?;
        if set.spec.is_monotonic() {
            let down = Places::of(set).iter().find(|ordinal| !self.is_up(*ordinal));
            let own_pods = self.reader.pods_of(set.as_owner()).iter();
            let mut matching = own_pods.filter(|pod| set.spec.selector.matches(|label| pod.label(label)));
            let unwanted = || {
                let other = matching
                    .find(|other| ordinal_in(other.name(), set.name()).is_some() && self.place_of_pod(other).is_none());
                other.map(|other| other.name().to_owned())
            };
            return down
                .map(|ordinal| format!("{}-{ordinal}", set.name()))
                .or_else(unwanted);
        }
        if !is_classic(set) {
            return None;
        }
        let mut above = Places::of(set).from(own + 1);
        let is_unwell = |ordinal: &i64| !self.is_up(*ordinal) || self.pod(*ordinal).is_none_or(|pod| self.is_old(pod));
        above.find(is_unwell).map(|ordinal| format!("{}-{ordinal}", set.name()))
    }

    /// The order is kept, unless users ask that broken old pods go first: those of the partition window that have been bad for long enough,
    /// one at a time (STS-2.3, STS-2.5 and STS-8.1). What was prepared, or leads nowhere, is unavailable already, and goes on (STS-3.7).
    fn waits_for_its_turn(&self, deleted: &[&Arc<PodRecord>], begun: &BTreeSet<&ObjectKey>) -> Verdict {
        let set = self.set;
        if self.is_on_delete || self.recreates() {
            return Ok(());
        }
        let begun = begun.iter().filter_map(|key| self.reader.pod(key));
        // What leads nowhere may be the very one that holds up the others (STS-8.12).
        let leads_nowhere = |pod: &PodRecord| self.is_given_up(pod) && !is_available(pod, set, self.now);
        let taken: BTreeMap<&str, &Arc<PodRecord>> = deleted
            .iter()
            .copied()
            .chain(begun)
            .filter(|pod| self.is_for_update(pod) && !is_under_way(pod) && !leads_nowhere(pod))
            .map(|pod| (pod.name(), pod))
            .collect();
        let held_up = |pod: &&Arc<PodRecord>| self.held_up_by(pod).map(|by| ((*pod).clone(), by));
        let early: Vec<(Arc<PodRecord>, String)> = taken.values().filter_map(held_up).collect();
        let Some((pod, by)) = early.first() else { return Ok(()) };
        let (name, is_on) = (pod.name(), Switch::Unblock.is_on(set));
        require(is_on, RULE_UNBLOCK, || {
            format!("{name} is updated while {by} holds up the update, and nobody asked for that")
        })?;
        let is_broken = self.is_old(pod) && !pod.is_terminating() && !is_available(pod, set, self.now);
        let is_in_window = self.place_of_pod(pod) >= Some(partition_of(set));
        let since = pod.ready.since.unwrap_or(pod.meta.created).max(pod.meta.created);
        let is_due = !pod.has_been_ready || self.now.since(since) >= unblock_after(set);
        require(is_broken && is_in_window && is_due, RULE_UNBLOCK, || {
            format!(
                "{name} is updated while {by} holds up the update: is old and broken {is_broken}, \
                 is in the window {is_in_window}, has been so for long {is_due}"
            )
        })?;
        let others = self.wanted_pods().into_iter();
        let going = others
            .filter(|(_, other)| other.is_terminating() && other.name() != name)
            .count();
        require(early.len() == 1 && going == 0, RULE_UNBLOCK, || {
            format!("{} go at once, while {going} are on their way out", early.len())
        })
    }

    /// Where users ask for it, scaling down waits for nothing but higher pods (STS-8.4).
    fn scales_down_heedlessly(&self, decision: &Decision, deleted: &[&Arc<PodRecord>]) -> Verdict {
        let set = self.set;
        let is_on = set.spec.is_monotonic() && Switch::IgnoreUnhealthy.is_on(set) && !set.is_deleted();
        if !is_on || !set.spec.problems.iter().all(|p| p.path.starts_with("metadata.")) {
            return Ok(());
        }
        let waits = decision.waits.iter();
        let unwell = waits.clone().find_map(|wait| match &wait.cause {
            WaitCause::ScaleDownBehindUnhealthy { pod } => Some((wait.subject.clone(), pod)),
            _ => None,
        });
        require(unwell.is_none(), RULE_SCALE_DOWN, || {
            format!("{unwell:?}: one is not wanted, and waits for the other to be well, which is not to be waited for")
        })?;
        let all = self.reader.pods_of(set.as_owner()).iter();
        let own = all.filter(|pod| set.spec.selector.matches(|label| pod.label(label)));
        let unwanted = own.filter_map(|pod| {
            let ordinal = ordinal_in(pod.name(), set.name())?;
            place_of(ordinal, set).is_none().then_some((ordinal, pod))
        });
        let knows = self.reader.revisions_of(set.as_owner()).iter();
        let knows_template = knows.clone().any(|r| r.digest == set.spec.template_digest);
        let Some((_, highest)) = unwanted.max_by_key(|(ordinal, _)| *ordinal).filter(|_| knows_template) else {
            return Ok(());
        };
        let is_going = highest.is_terminating()
            || deleted.iter().any(|pod| pod.meta.uid == highest.meta.uid)
            || patches(decision).any(|(key, _)| *key == highest.meta.key)
            || decision.waits.iter().any(|wait| wait.subject == highest.name());
        require(is_going, RULE_SCALE_DOWN, || {
            format!("{} is not wanted, and stays for no reason that is said", highest.name())
        })
    }

    pub(super) fn has_failed(&self, ordinal: i64) -> bool {
        let scope = flotilla_model::decision::Scope::Slot(ordinal);
        self.hints.failures.contains_key(&scope) || self.hints.repeated.contains_key(&scope)
    }

    /// A switch that cannot be read counts as absent, and a condition names it.
    fn tells_what_cannot_be_read(&self, decision: &Decision) -> Verdict {
        let said = decision
            .status
            .as_ref()
            .and_then(|status| status.desired.get("conditions"));
        // What is not named stays as it is stored.
        let conditions = said
            .or_else(|| self.set.status.get("conditions"))
            .and_then(Value::as_array);
        let names = |switch: &Switch| {
            let mut all = conditions.into_iter().flatten();
            all.any(|c| c["status"] == "True" && c["message"].as_str().is_some_and(|text| text.contains(switch.key())))
        };
        let silent = Switch::unreadable(self.set).find(|switch| !names(switch));
        require(silent.is_none(), RULE_TOLD, || {
            format!("no condition names {}", silent.map_or("", Switch::key))
        })
    }
}

/// Whether an update of a pod was begun: it was prepared, or changes in place, or leads nowhere by now.
fn is_under_way(pod: &PodRecord) -> bool {
    matches!(
        state(pod),
        "PreparingUpdate" | "PreparingDelete" | "Updating" | "Updated"
    ) || has_note(pod)
}
