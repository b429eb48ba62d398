//! Sets of pods, as decisions see them: StatefulSets of both kinds, and CloneSets.
//!
//! One record serves them all: the native kind is the Advanced one without its additions, and what only a CloneSet has stands beside
//! what it shares with the others ([`CloneSpec`]). What is
//! read is defaulted on reading, because an object may have been stored while no webhook was there (STS-7.2), and a field that
//! cannot be read never stops the rest: it becomes a [`FieldProblem`] which says what may no longer be done.

mod clone;
mod ordinals;
mod read;
mod spec;

pub use clone::{CloneSpec, CloneSwitches};
pub use ordinals::{IntervalSet, Ordinals, parse_reserved};
pub use read::{TEMPLATE_BYTES_MAX, read_set, read_set_text, unfit_for_hooks};
pub use spec::{
    Area, ClaimTemplate, FieldProblem, Hook, Lifecycle, MOST_PODS, PodManagement, PodUpdatePolicy, PreDownload,
    PriorityStrategy, PriorityTerm, Retention, RollingUpdate, SetSpec, Switches, UpdateKind,
};

use crate::meta::{Meta, Owner};
use crate::packed::Packed;
use crate::resource::Resource;
use serde_json::Value;
use std::sync::Arc;

/// Which API a set belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetKind {
    /// apps/v1.
    Native,
    /// apps.kruise.io/v1beta1.
    Advanced,
    /// CloneSet of apps.kruise.io/v1beta1.
    Clone,
}

impl SetKind {
    /// The resource of this kind.
    pub const fn resource(self) -> Resource {
        match self {
            SetKind::Native => Resource::NativeSets,
            SetKind::Advanced => Resource::AdvancedSets,
            SetKind::Clone => Resource::CloneSets,
        }
    }

    /// The kind of a set that owns something, if it is one.
    pub fn of_owner(owner: &crate::OwnerRef) -> Option<SetKind> {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        match (group, &*owner.kind) {
            ("apps", "StatefulSet") => Some(SetKind::Native),
            ("apps.kruise.io", "StatefulSet") => Some(SetKind::Advanced),
            ("apps.kruise.io", "CloneSet") => Some(SetKind::Clone),
            _ => None,
        }
    }

    /// A set of this kind in the words of kubectl.
    pub fn describe(self, name: &str) -> String {
        match self {
            SetKind::Native => format!("statefulset.apps/{name}"),
            SetKind::Advanced => format!("statefulset.apps.kruise.io/{name}"),
            SetKind::Clone => format!("cloneset.apps.kruise.io/{name}"),
        }
    }
}

/// One set of any kind.
#[derive(Clone, Debug, PartialEq)]
pub struct SetRecord {
    /// Who it is.
    pub meta: Meta,
    /// `metadata.generation`: counts changes of the spec.
    pub generation: i64,
    /// Which API it belongs to.
    pub kind: SetKind,
    /// What is asked for, with defaults applied.
    pub spec: Arc<SetSpec>,
    /// The stored status, whole: what it says and we do not know is kept.
    pub status: Arc<Value>,
    /// The set's annotations; revisions carry a copy (STS-1.1.3).
    pub annotations: Packed,
    /// Field managers that wrote the status subresource, in order of name. Who is not us is another controller.
    pub status_writers: Arc<[Arc<str>]>,
}

impl SetRecord {
    /// The set's name.
    pub fn name(&self) -> &str {
        &self.meta.key.name
    }

    /// Whether a pod that somebody deletes takes its claims along, and the data in them (CS-15.5).
    pub fn loses_claims(&self) -> bool {
        let reuses = self.spec.clones.as_ref().is_none_or(|clones| clones.reuses_claims);
        !reuses && !self.spec.claim_templates.is_empty()
    }

    /// Whether a pod that an update makes again takes its claims along, and the data in them (CS-15.5).
    pub fn loses_claims_on_recreate(&self) -> bool {
        let clones = self.spec.clones.as_ref();
        let keeps = clones.is_none_or(|clones| clones.switches.keep_claims_on_recreate);
        !keeps && !self.spec.claim_templates.is_empty()
    }

    /// The set as the owner of its pods, claims and revisions.
    pub fn as_owner(&self) -> Owner<'_> {
        self.meta.as_owner(self.kind.resource().kind())
    }

    /// Whether the set is being deleted.
    pub fn is_deleted(&self) -> bool {
        self.meta.deleted.is_some()
    }

    /// A number of the stored status, 0 if it is absent.
    pub fn status_count(&self, field: &str) -> i32 {
        self.status
            .get(field)
            .and_then(Value::as_i64)
            .and_then(|n| i32::try_from(n).ok())
            .unwrap_or(0)
    }

    /// A text of the stored status, empty if it is absent.
    pub fn status_text(&self, field: &str) -> &str {
        self.status.get(field).and_then(Value::as_str).unwrap_or_default()
    }
}
