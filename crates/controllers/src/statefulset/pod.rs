//! How the revision of a pod compares with those that a set has.

use super::plan::Plan;
use crate::shared::claim;
use crate::shared::health::LabelFacts;
use flotilla_api::names;
use flotilla_model::{Labels, PodRecord, RevisionRecord, Selector, SetKind};
use std::sync::Arc;

/// Answers [`LabelFacts`] for pods of one set.
pub(super) struct LabelReader<'a> {
    pub(super) kind: SetKind,
    pub(super) update: Option<&'a RevisionRecord>,
    pub(super) current: &'a str,
    pub(super) special: &'a [Selector],
    pub(super) revisions: &'a [Arc<RevisionRecord>],
    pub(super) last: Option<(Labels, LabelFacts)>,
}

impl Plan<'_> {
    /// Pods whose revision label somebody changed as they were made.
    pub(super) fn tell_of_changed_labels(&mut self) {
        let (update, current) = (self.pass.update.clone(), self.pass.current.clone());
        let history = self.pass.revisions.history.clone();
        let is_named =
            |label: &str| [update.name(), current.name()].contains(&label) || history.iter().any(|r| r.name() == label);
        let occupants = self.slots.iter().filter_map(|s| s.occupant.as_ref());
        let changed = |pod: &&Arc<PodRecord>| {
            !is_named(pod.revision().unwrap_or_default())
                && [&update, &current].iter().any(|r| claim::was_made_from(pod, r.name()))
        };
        let changed: Vec<_> = occupants.map(|o| &o.pod).filter(changed).cloned().collect();
        for pod in changed {
            let label = pod
                .revision()
                .map_or("is missing".to_owned(), |label| format!("is {label:?}"));
            self.changed_on_the_way(&pod, format!("label {} {label}", names::REVISION_LABEL));
        }
    }
}

impl LabelReader<'_> {
    pub(super) fn read(&mut self, pod: &PodRecord) -> LabelFacts {
        if let Some((labels, facts)) = &self.last
            && labels.is_same(&pod.meta.labels)
        {
            return *facts;
        }
        let revision = self.revision_of(pod);
        let advanced = self.kind == SetKind::Advanced;
        let facts = LabelFacts {
            is_updated: self
                .update
                .is_some_and(|update| update.name() == revision || self.is_special_and_same(pod, update)),
            is_current: !revision.is_empty() && revision == self.current,
            is_specified: advanced && pod.label(names::SPECIFIED_DELETE_LABEL).is_some(),
            lifecycle_allows: !advanced
                || pod
                    .label(names::LIFECYCLE_STATE_LABEL)
                    .is_none_or(|state| state == "Normal"),
        };
        // The answer for special pods rests on labels alone unless a selector names the pod; such a set is too small to care.
        // So does what is made of a label that names no revision: it rests on the pod's notes, too.
        if self.special.is_empty() && pod.revision().unwrap_or_default() == revision {
            self.last = Some((pod.meta.labels.clone(), facts));
        }
        facts
    }

    /// The revision of a pod: that of its label; or, where the label names none of the set's, that from which its set made it. A webhook that
    /// changes the label does so to the next pod, too.
    fn revision_of<'p>(&'p self, pod: &'p PodRecord) -> &'p str {
        let label = pod.revision().unwrap_or_default();
        let is_known = |name: &str| {
            self.update.is_some_and(|u| u.name() == name) || self.revisions.iter().any(|r| r.name() == name)
        };
        if is_known(label) {
            return label;
        }
        let all = self.revisions.iter().map(|r| &**r).chain(self.update);
        let made_from = all
            .map(RevisionRecord::name)
            .find(|name| claim::was_made_from(pod, name));
        made_from.unwrap_or(label)
    }

    /// A special pod whose revision differs from the update revision in container resources only counts as updated.
    fn is_special_and_same(&self, pod: &PodRecord, update: &RevisionRecord) -> bool {
        self.special
            .iter()
            .any(|selector| selector.matches(|key| pod.label(key)))
            && self
                .revisions
                .iter()
                .find(|r| Some(r.name()) == pod.revision())
                .is_some_and(|r| r.digest_without_resources == update.digest_without_resources)
    }
}
