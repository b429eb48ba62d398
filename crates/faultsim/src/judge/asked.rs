//! What was asked for of storage, as managers must know.

use super::truth::Scene;
use crate::tenants;
use flotilla_engine::wire::Object;
use flotilla_model::template::Digest;
use flotilla_model::{Resource, SetRecord, Uid};
use flotilla_sim::server::{Entry, Server};

/// Sizes in bytes, each with the set and the template whose revision has recorded it.
#[derive(Debug, Default)]
pub(crate) struct Asked(Vec<(Uid, Digest, u64)>);

impl Asked {
    /// Nothing of that is recorded any more.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// A manager has made a revision: it records what the set asks for.
    pub(super) fn see_revision(&mut self, scene: &Scene<'_>) {
        let Some(writing) = scene.writing else { return };
        let set = &writing.decided.set;
        let asked = set.spec.claim_templates.first().and_then(|t| t.requested_bytes);
        self.note(set, asked);
    }

    /// A manager lets a claim grow: what it asked for until then is not told by the claim any more.
    pub(super) fn see_claim(&mut self, entry: &Entry, scene: &Scene<'_>) {
        let size = |stored: &Option<flotilla_sim::server::Stored>| match stored.as_ref()?.object.as_ref()? {
            Object::Claim(claim) => Some(claim.requested_bytes),
            _ => None,
        };
        let (before, after) = (size(&entry.before), size(&entry.after));
        let Some(writing) = scene.writing else { return };
        if entry.key.name.starts_with("data-") && before < after {
            self.note(&writing.decided.set, before);
        }
    }

    fn note(&mut self, set: &SetRecord, bytes: Option<u64>) {
        let Some(bytes) = bytes else { return };
        let asked = (set.meta.uid.clone(), set.spec.template_digest, bytes);
        if !self.0.contains(&asked) {
            self.0.push(asked);
        }
    }

    /// Whether a revision of the set that is still there has recorded so much.
    pub(crate) fn has(&self, server: &Server, set: &SetRecord, bytes: u64) -> bool {
        let mut revisions = tenants::all(server, Resource::Revisions).filter_map(|s| match &s.object {
            Some(Object::Revision(revision)) if revision.meta.is_controlled_by(&set.meta.uid) => Some(revision),
            _ => None,
        });
        revisions.any(|revision| self.0.contains(&(set.meta.uid.clone(), revision.digest, bytes)))
    }
}
