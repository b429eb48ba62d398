//! The claim templates that pods of a revision use, which an old revision tells by our record on it.

use crate::shared::pass::Pass;
use flotilla_model::RevisionRecord;
use flotilla_model::set::ClaimTemplate;
use std::ops::Deref;
use std::sync::Arc;

/// Claim templates that pods of a revision use.
#[derive(Clone, Debug)]
pub(crate) enum Templates<'t> {
    /// Those of the set.
    Today(&'t [ClaimTemplate]),
    /// Those of the time of the revision.
    Recorded(Arc<[ClaimTemplate]>),
}

impl Deref for Templates<'_> {
    type Target = [ClaimTemplate];

    fn deref(&self) -> &[ClaimTemplate] {
        match self {
            Templates::Today(templates) => templates,
            Templates::Recorded(templates) => templates,
        }
    }
}

impl<'v> Pass<'v> {
    /// The claim templates that pods of a revision use: those of today, for the update revision and for an old one of which nothing was
    /// recorded, as after a takeover; else those of our record of its time. Native sets have no such record.
    pub(crate) fn claim_templates_of(&self, revision: &RevisionRecord) -> Templates<'v> {
        match &revision.claim_templates {
            Some(record) if revision.meta.uid != self.update.meta.uid => {
                Templates::Recorded(record.templates().clone())
            }
            _ => Templates::Today(&self.moment.set.spec.claim_templates),
        }
    }
}
