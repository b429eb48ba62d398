//! What a revision records of claim templates.

use crate::packed::Packed;
use crate::set::ClaimTemplate;
use flotilla_api::names;
use serde_json::Value;
use std::sync::Arc;

/// The claim templates of the time of a revision: annotation `flotilla.rs/claim-templates`, read once. Whatever its author wrote there takes
/// memory in proportion to its text.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedClaims {
    packed: Packed,
    templates: Arc<[ClaimTemplate]>,
    /// Those that its set had no more.
    former: Box<[ClaimTemplate]>,
}

impl RecordedClaims {
    /// From its JSON form.
    pub fn new(record: &Value) -> Self {
        let all = record.as_array().into_iter().flatten();
        let (former, templates): (Vec<&Value>, Vec<&Value>) = all.partition(|recorded| is_former(recorded));
        RecordedClaims {
            packed: Packed::new(record),
            templates: templates.into_iter().filter_map(ClaimTemplate::from_json).collect(),
            former: former.into_iter().filter_map(ClaimTemplate::from_json).collect(),
        }
    }

    /// The record, whole.
    pub fn tree(&self) -> Arc<Value> {
        self.packed.tree()
    }

    /// The claim templates of that time, without those that the set had no more.
    pub fn templates(&self) -> &Arc<[ClaimTemplate]> {
        &self.templates
    }

    fn all(&self) -> impl Iterator<Item = &ClaimTemplate> {
        self.templates.iter().chain(&self.former)
    }

    /// Names of the claim templates, also of those that the set had no more.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.all().map(|template| &*template.name)
    }

    /// How much storage, in bytes, the claim template of this name is recorded to ask for.
    pub fn sizes_asked<'a>(&'a self, template: &'a str) -> impl Iterator<Item = u64> + 'a {
        let of_it = self.all().filter(move |t| *t.name == *template);
        of_it.filter_map(|t| t.requested_bytes)
    }
}

/// Whether a record of a claim template is of one that its set has no more.
fn is_former(recorded: &Value) -> bool {
    let annotations = recorded.pointer("/metadata/annotations");
    annotations.is_some_and(|a| a.get(names::FORMER_CLAIM_TEMPLATE).is_some())
}
