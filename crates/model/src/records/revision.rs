//! What is kept of a ControllerRevision.

use crate::meta::Meta;
use crate::template::Digest;
use serde_json::Value;
use std::sync::Arc;

/// One ControllerRevision, as decisions see it.
#[derive(Clone, Debug, PartialEq)]
pub struct RevisionRecord {
    /// Who it is.
    pub meta: Meta,
    /// `revision`: higher is newer.
    pub number: i64,
    /// The pod template in `data`, without the patch directive. `None` if `data` has none (a revision of another kind of owner).
    pub template: Option<Arc<Value>>,
    /// Digest of the template's normal form: equal digests mean templates that make the same pods.
    pub digest: Digest,
    /// The same with container resources left out (special pods).
    pub digest_without_resources: Digest,
    /// Annotation `flotilla.rs/claim-templates`, parsed: the claim templates of that time.
    pub claim_templates: Option<Arc<Value>>,
    /// Annotation `kruise.io/cloneset-volumeclaimtemplate-hash`: the hash of the claim templates of that time (CloneSets).
    pub claim_hash: Option<Arc<str>>,
}

impl RevisionRecord {
    /// Builds the record from the object's metadata and fields; digests are computed once, here.
    pub fn new(meta: Meta, number: i64, data: &Value, claim_templates: Option<&str>) -> Self {
        let template = data.pointer("/spec/template").map(|template| {
            let mut template = template.clone();
            if let Some(object) = template.as_object_mut() {
                object.remove("$patch");
            }
            Arc::new(template)
        });
        let normal = template.as_deref().map_or(Value::Null, crate::template::normal_form);
        RevisionRecord {
            meta,
            number,
            digest: Digest::of(&normal),
            digest_without_resources: Digest::of(&crate::template::without_resources(normal)),
            template,
            claim_templates: claim_templates
                .and_then(|text| serde_json::from_str(text).ok())
                .map(Arc::new),
            claim_hash: None,
        }
    }

    /// The revision's name.
    pub fn name(&self) -> &str {
        &self.meta.key.name
    }
}
