//! The claim templates that pods of a revision use, which an old revision tells by our record on it.

use crate::shared::pass::Pass;
use crate::shared::revision;
use flotilla_model::set::ClaimTemplate;
use flotilla_model::{RevisionRecord, Uid};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;
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

/// Records of claim templates that were read in a pass, by their revisions. A record may be as large as an object has room for, and is asked
/// for once for each pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records(RefCell<BTreeMap<Uid, Arc<[ClaimTemplate]>>>);

impl Records {
    fn of(&self, revision: &RevisionRecord, record: &Value) -> Arc<[ClaimTemplate]> {
        let mut known = self.0.borrow_mut();
        let read = || recorded(record).into();
        known.entry(revision.meta.uid.clone()).or_insert_with(read).clone()
    }
}

impl<'v> Pass<'v> {
    /// The claim templates that pods of a revision use: those of today, for the update revision and for an old one of which nothing was
    /// recorded, as after a takeover; else those of our record of its time. Native sets have no such record.
    pub(crate) fn claim_templates_of(&self, revision: &RevisionRecord) -> Templates<'v> {
        match &revision.claim_templates {
            Some(record) if revision.meta.uid != self.update.meta.uid => {
                Templates::Recorded(self.revisions.records.of(revision, record))
            }
            _ => Templates::Today(&self.moment.set.spec.claim_templates),
        }
    }
}

/// Claim templates from our record on a revision.
fn recorded(record: &Value) -> Vec<ClaimTemplate> {
    record
        .as_array()
        .into_iter()
        .flatten()
        .filter(|recorded| !revision::is_former(recorded))
        .filter_map(ClaimTemplate::from_json)
        .collect()
}
