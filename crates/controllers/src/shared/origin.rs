//! Of which revision a pod is: that which its label names, or that from which its set made it.
//!
//! Webhooks of others change or strip the label on the way, and do so to the next pod, too: a set that took such a pod for one of another
//! revision would make it again without end (STS-1.4.2). What a label says that names a revision of the set counts, whoever wrote it.

use crate::shared::pass::Pass;
use crate::shared::revision::RevisionIndex;
use crate::shared::{claim, revision};
use flotilla_api::names;
use flotilla_model::{PodRecord, RevisionRecord, SetKind, SetRecord, WaitCause};
use std::sync::Arc;

/// The first of these revisions that the label of a pod of this set names; that of a CloneSet's pod may hold the hash alone.
pub(crate) fn named_by<'r>(
    set: &SetRecord,
    revisions: &'r RevisionIndex,
    label: &str,
) -> Option<&'r Arc<RevisionRecord>> {
    match set.kind {
        SetKind::Clone => revisions.named(set.name(), label),
        SetKind::Native | SetKind::Advanced => revisions.exactly(label),
    }
}

/// Of which revision a pod is.
pub(crate) struct Origin<'p> {
    /// Its name, as the pod's label says it, which may be the hash alone.
    pub(crate) revision: &'p str,
    /// Every pod with the same labels is of the same.
    pub(crate) rests_on_labels: bool,
}

/// The revision of a pod: that of its label; or, where the label names none of the set's, that from which its set made it. Should several have
/// that hash, `preferred` ones go before the others.
pub(crate) fn of<'p>(
    pod: &'p PodRecord,
    set: &SetRecord,
    revisions: &'p RevisionIndex,
    preferred: &[&'p RevisionRecord],
) -> Origin<'p> {
    let label = pod.revision().unwrap_or_default();
    if pod.label(names::MADE_AS_LABEL).is_none() || named_by(set, revisions, label).is_some() {
        return Origin {
            revision: label,
            rests_on_labels: true,
        };
    }
    let made_from = claim::made_from(pod).and_then(|hash| {
        let preferred = preferred.iter().map(|r| r.name());
        let mut preferred = preferred.filter(|name| revision::short(name) == hash);
        preferred.next().or_else(|| revisions.with_hash(hash).map(|r| r.name()))
    });
    Origin {
        revision: made_from.unwrap_or(label),
        // On its notes, too.
        rests_on_labels: false,
    }
}

impl Pass<'_> {
    /// Tells of pods whose revision label somebody changed as they were made.
    pub(crate) fn tell_of_changed_labels<'p>(&mut self, pods: impl Iterator<Item = &'p Arc<PodRecord>>) {
        let set = self.moment.set;
        let (update, current) = (self.update.clone(), self.current.clone());
        let names = self.revisions.names.clone();
        let is_changed = |pod: &&Arc<PodRecord>| {
            let label = pod.revision().unwrap_or_default();
            let made_from = |r: &&Arc<RevisionRecord>| claim::was_made_from(pod, r.name());
            [&update, &current].iter().any(made_from) && named_by(set, &names, label).is_none()
        };
        for pod in pods.filter(is_changed) {
            let label = pod
                .revision()
                .map_or("is missing".to_owned(), |label| format!("is {label:?}"));
            self.changed_on_the_way(pod, format!("label {} {label}", names::REVISION_LABEL));
        }
    }

    /// Says that somebody changed a pod as it was made: it is left so.
    pub(crate) fn changed_on_the_way(&mut self, pod: &PodRecord, difference: String) {
        let is_told = |w: &flotilla_model::Wait| matches!(w.cause, WaitCause::ChangedByOthers { .. });
        if !self.waits.iter().any(is_told) {
            let message = format!(
                "pod {} was changed as it was made, and is left so: {difference}",
                pod.name()
            );
            self.event_once(true, "PodChangedByOthers", message);
        }
        let cause = WaitCause::ChangedByOthers { difference };
        self.wait(pod.name().to_owned(), cause, Some(pod.meta.created));
    }
}
