//! ControllerRevisions: the fields of `apps/v1` that a [`RevisionRecord`] keeps.

use super::meta::Metadata;
use bytes::Bytes;
use flotilla_api::names;
use flotilla_model::{ClaimSizes, Interner, Meta, RevisionRecord, SetKind};
use prost::Message;
use serde_json::Value;
use std::sync::Arc;

/// `apps/v1` ControllerRevision.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Revision {
    /// Decoded twice; see the claim's message.
    #[prost(bytes = "bytes", tag = "1")]
    metadata: Bytes,
    #[prost(message, optional, tag = "2")]
    data: Option<RawExtension>,
    #[prost(int64, tag = "3")]
    number: i64,
}

/// `runtime.RawExtension`: JSON in protobuf.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RawExtension {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) raw: Bytes,
}

impl Revision {
    pub(crate) fn into_record(self, interner: &mut Interner) -> Result<RevisionRecord, String> {
        let parts = Parts::of(Metadata::from_protobuf(self.metadata)?, interner)?;
        let data = self.data.map(|data| data.raw).filter(|_| !parts.is_of_others());
        let (claim_hash, claim_sizes) = (parts.claim_hash.clone(), parts.sizes());
        let Parts { meta, claims, .. } = parts;
        let record = RevisionRecord::from_text(
            meta,
            self.number,
            &data.unwrap_or_default(),
            claims.as_deref(),
            interner,
        );
        record
            .map(|record| RevisionRecord {
                claim_hash,
                claim_sizes,
                ..record
            })
            .map_err(|e| format!("data is not JSON: {e}"))
    }
}

/// The record of a revision in JSON.
pub(super) fn from_json(value: &Value, interner: &mut Interner) -> Result<RevisionRecord, String> {
    let parts = Parts::of(Metadata::from_json(value)?, interner)?;
    let data = value
        .get("data")
        .filter(|_| !parts.is_of_others())
        .unwrap_or(&Value::Null);
    let number = value.get("revision").and_then(Value::as_i64).unwrap_or(0);
    let claim_sizes = parts.sizes();
    let Parts {
        meta,
        claims,
        claim_hash,
        ..
    } = parts;
    let record = RevisionRecord::shared(meta, number, data, claims.as_deref(), interner);
    Ok(RevisionRecord {
        claim_hash,
        claim_sizes,
        ..record
    })
}

/// What a revision says besides its data.
struct Parts {
    meta: Meta,
    claims: Option<String>,
    claim_hash: Option<Arc<str>>,
    claim_sizes: Option<String>,
}

impl Parts {
    /// Of a revision of others its name is what matters, which nobody else can have, and whose it is; once it is nobody's, it is read anew.
    fn of(mut metadata: Metadata, interner: &mut Interner) -> Result<Self, String> {
        let claims = metadata.annotations.remove(names::CLAIM_TEMPLATES);
        let claim_sizes = metadata.annotations.remove(names::CLAIM_SIZES);
        let claim_hash = metadata.annotations.get(names::CLAIM_TEMPLATES_HASH);
        let claim_hash = claim_hash.map(|hash| interner.string(hash));
        let is_of_others = metadata.object.controller_kind().is_some_and(is_other_kind);
        let meta = metadata.object.into_meta(interner, |_, _| !is_of_others)?;
        Ok(Parts {
            meta,
            claims: claims.filter(|_| !is_of_others),
            claim_hash: claim_hash.filter(|_| !is_of_others),
            claim_sizes: claim_sizes.filter(|_| !is_of_others),
        })
    }

    fn sizes(&self) -> Option<Arc<ClaimSizes>> {
        self.claim_sizes.as_deref().and_then(RevisionRecord::claim_sizes_of)
    }

    fn is_of_others(&self) -> bool {
        self.meta.controller().is_some_and(|owner| is_other_kind(&owner.kind))
    }
}

/// Whether no controller of ours looks into revisions of an owner of this kind, whatever its group: DaemonSets, and kinds that are not
/// Kubernetes'.
fn is_other_kind(kind: &str) -> bool {
    let kinds = [SetKind::Native, SetKind::Advanced, SetKind::Clone].map(|kind| kind.resource().kind());
    !kinds.contains(&kind)
}
