//! How the revision of a pod compares with those that a set has.

use crate::shared::health::LabelFacts;
use crate::shared::origin::{self, Origin};
use crate::shared::revision::RevisionIndex;
use flotilla_api::names;
use flotilla_model::{Labels, PodRecord, RevisionRecord, Selector, SetKind, SetRecord};

/// Answers [`LabelFacts`] for pods of one set.
pub(super) struct LabelReader<'a> {
    pub(super) set: &'a SetRecord,
    pub(super) update: Option<&'a RevisionRecord>,
    pub(super) current: &'a str,
    pub(super) special: &'a [Selector],
    pub(super) revisions: &'a RevisionIndex,
    pub(super) last: Option<(Labels, LabelFacts)>,
}

impl LabelReader<'_> {
    pub(super) fn read(&mut self, pod: &PodRecord) -> LabelFacts {
        if let Some((labels, facts)) = &self.last
            && labels.is_same(&pod.meta.labels)
        {
            return *facts;
        }
        let Origin {
            revision,
            rests_on_labels,
        } = origin::of(pod, self.set, self.revisions, &[]);
        let advanced = self.set.kind == SetKind::Advanced;
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
        if self.special.is_empty() && rests_on_labels {
            self.last = Some((pod.meta.labels.clone(), facts));
        }
        facts
    }

    /// A special pod whose revision differs from the update revision in container resources only counts as updated.
    fn is_special_and_same(&self, pod: &PodRecord, update: &RevisionRecord) -> bool {
        self.special
            .iter()
            .any(|selector| selector.matches(|key| pod.label(key)))
            && pod
                .revision()
                .and_then(|label| self.revisions.exactly(label))
                .is_some_and(|r| r.digest_without_resources == update.digest_without_resources)
    }
}
