//! What is kept of a ControllerRevision.

use crate::intern::{Form, Interner};
use crate::meta::{Meta, ObjectKey};
use crate::records::RecordedClaims;
use crate::template::{Digest, Template};
use crate::weight::weight;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What was asked for of storage, in bytes, by the names of claim templates.
pub type ClaimSizes = BTreeMap<String, Vec<u64>>;

/// One ControllerRevision, as decisions see it.
#[derive(Clone, Debug, PartialEq)]
pub struct RevisionRecord {
    /// Who it is.
    pub meta: Meta,
    /// `revision`: higher is newer.
    pub number: i64,
    /// The pod template in `data`, without the patch directive. `None` if `data` has none (a revision of another kind of owner), or one
    /// that is too large to be read.
    pub template: Option<Template>,
    /// Digest of the template's normal form: equal digests mean templates that make the same pods.
    pub digest: Digest,
    /// The same with container resources left out (special pods).
    pub digest_without_resources: Digest,
    /// Annotation `flotilla.rs/claim-templates`: the claim templates of that time.
    pub claim_templates: Option<Arc<RecordedClaims>>,
    /// Annotation `kruise.io/cloneset-volumeclaimtemplate-hash`: the hash of the claim templates of that time (CloneSets).
    pub claim_hash: Option<Arc<str>>,
    /// Annotation `flotilla.rs/claim-sizes`, parsed: what claim templates have asked for besides (Advanced sets).
    pub claim_sizes: Option<Arc<ClaimSizes>>,
}

/// What `data` of a revision may take in memory while it is read. What we write must be read again, or the set would be given one
/// revision after the other: the defaults that we fill in make up to eight times as much of a
/// [template](crate::set::TEMPLATE_BYTES_MAX), where it is a list of empty containers.
const DATA_BYTES_MAX: usize = 16 * crate::set::TEMPLATE_BYTES_MAX;
/// The same for the record of claim templates, to which nothing is added.
const CLAIMS_BYTES_MAX: usize = crate::set::TEMPLATE_BYTES_MAX;
/// The same for the sizes of claims, of which we write a few for each template.
const SIZES_BYTES_MAX: usize = 64 * 1024;
/// How many levels it may have, for the same reason.
const DEEPEST: usize = 110;

impl RevisionRecord {
    /// Builds the record from the object's metadata and fields.
    pub fn new(meta: Meta, number: i64, data: &Value, claim_templates: Option<&str>) -> Self {
        let template = template_of(data).map(|template| Template::new(&template));
        RevisionRecord::of(meta, number, template, claim_templates)
    }

    /// The same, with the copy of the template that others share.
    pub fn shared(meta: Meta, number: i64, data: &Value, claims: Option<&str>, interner: &mut Interner) -> Self {
        let template = template_of(data).map(|template| interner.template(&owner_of(&meta), &template));
        RevisionRecord::of(meta, number, template, claims)
    }

    /// The same from the text of `data`, which is read only if it is not known. Empty text is no data.
    ///
    /// # Errors
    ///
    /// If it is no JSON.
    pub fn from_text(
        meta: Meta,
        number: i64,
        data: &[u8],
        claims: Option<&str>,
        interner: &mut Interner,
    ) -> Result<Self, serde_json::Error> {
        let read = |text: &[u8]| {
            if text.is_empty() || weight(text, DEEPEST) > DATA_BYTES_MAX {
                return Ok(None);
            }
            serde_json::from_slice(text).map(|data| template_of(&data))
        };
        let found = interner.template_in(&owner_of(&meta), Form::RevisionData, data, read)?;
        Ok(RevisionRecord::of(
            meta,
            number,
            found.map(|meant| meant.template),
            claims,
        ))
    }

    fn of(meta: Meta, number: i64, template: Option<Template>, claims: Option<&str>) -> Self {
        let nothing = || Digest::of(&Value::Null);
        let claims = claims.filter(|text| weight(text.as_bytes(), DEEPEST) <= CLAIMS_BYTES_MAX);
        let claims = claims.and_then(|text| serde_json::from_str(text).ok());
        RevisionRecord {
            meta,
            number,
            digest: template.as_ref().map_or_else(nothing, Template::digest),
            digest_without_resources: template
                .as_ref()
                .map_or_else(nothing, Template::digest_without_resources),
            template,
            claim_templates: claims.map(|record| Arc::new(RecordedClaims::new(&record))),
            claim_hash: None,
            claim_sizes: None,
        }
    }

    /// Reads what claim templates have asked for; nothing if nobody can read it.
    pub fn claim_sizes_of(text: &str) -> Option<Arc<ClaimSizes>> {
        let text = Some(text).filter(|text| text.len() <= SIZES_BYTES_MAX)?;
        serde_json::from_str(text).ok().map(Arc::new)
    }

    /// How much storage, in bytes, the claim template of this name is recorded to have asked for: in the record of templates, and besides.
    pub fn sizes_asked<'a>(&'a self, template: &'a str) -> impl Iterator<Item = u64> + 'a {
        let recorded = self.claim_templates.as_deref();
        let in_record = recorded
            .into_iter()
            .flat_map(move |record| record.sizes_asked(template));
        let besides = self.claim_sizes.as_deref().and_then(|sizes| sizes.get(template));
        in_record.chain(besides.into_iter().flatten().copied())
    }

    /// The revision's name.
    pub fn name(&self) -> &str {
        &self.meta.key.name
    }
}

/// Whose templates it is like: its owner's, or else those of its own name.
fn owner_of(meta: &Meta) -> ObjectKey {
    let name = meta.controller().map_or(&*meta.key.name, |owner| &*owner.name);
    meta.key.sibling(name)
}

/// The template in the `data` of a revision, without the patch directive.
fn template_of(data: &Value) -> Option<Value> {
    let mut template = data.pointer("/spec/template")?.clone();
    if let Some(object) = template.as_object_mut() {
        object.remove("$patch");
    }
    Some(template)
}
