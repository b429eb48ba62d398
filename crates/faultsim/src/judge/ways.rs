//! In which way a pod comes to another revision: in place where that can be done, and made again where it cannot (STS-4.1, STS-4.2, CS-16.5).

use super::view::Sight;
use super::{Verdict, overdue, require};
use crate::asks::is_to_be_made_again;
use crate::claim_templates::has_others;
use crate::clones::older::revision_of;
use crate::environment::needs_the_gate;
use crate::in_place::{can_go_in_place, state};
use crate::notes::is_unreadable;
use crate::resizes::is_infeasible;
use flotilla_model::PodRecord;
use flotilla_model::set::PodUpdatePolicy;
use std::sync::Arc;

impl Sight<'_> {
    /// Whether a pod can be brought in place to the revision of this name, or to that of the template. Where its node cannot give it what its
    /// own revision asks for, it still goes in place to another, which may ask for less.
    pub(crate) fn can_go_in_place(&self, pod: &PodRecord, target: Option<&str>) -> bool {
        let spec = &self.set.spec;
        let revision = |name: &str| self.reader.revision(&self.set.meta.key.sibling(name));
        let Some(own) = revision_of(pod).and_then(|name| revision(&name)) else {
            return false;
        };
        let Some(own_template) = own.template.as_ref() else {
            return false;
        };
        let is_there = target.map_or(own.digest == spec.template_digest, |target| own.name() == target);
        let wanted = target.and_then(revision).and_then(|r| r.template.as_ref());
        let (from, to) = (own_template.tree(), wanted.unwrap_or(&spec.template).tree());
        spec.pod_update_policy() != PodUpdatePolicy::ReCreate
            && pod.detail.is_some()
            && !(is_there && is_infeasible(pod))
            && !is_unreadable(pod)
            && can_go_in_place(&from, &to)
            && !needs_the_gate(pod, &from, &to)
    }

    /// No pod of a StatefulSet is made again for an update that can be made in place. Whom users ask to have made again, who lacks claims, whose
    /// file system waits for a restart, or who was prepared for its deletion, goes for that.
    pub(super) fn goes_in_place_where_it_can(&self, deleted: &[&Arc<PodRecord>]) -> Verdict {
        let set = self.set;
        let is_bound = |pod: &PodRecord| {
            !pod.is_terminal()
                && self.place_of_pod(pod).is_some()
                && self.is_of_old_revision(pod)
                && !is_to_be_made_again(pod, set)
                && !has_others(pod, set)
                && !set.spec.expand_claims
                && state(pod) != "PreparingDelete"
                && !overdue::may_be_made_again(pod, set, self.now)
        };
        if self.recreates() {
            return Ok(());
        }
        let mut found = deleted.iter().filter(|pod| is_bound(pod));
        let early = found.find(|pod| self.can_go_in_place(pod, None));
        require(early.is_none(), "STS-4.1 in place", || {
            let name = early.map_or("", |pod| pod.name());
            format!("{name} is made again, and could be updated in place")
        })
    }
}
