//! Which revisions that nobody needs are dropped, and in which order.

use super::view::Sight;
use super::{Verdict, require};
use crate::clones::older::revision_of;
use crate::switches::Switch;
use flotilla_model::{Command, Decision, PodRecord, Resource, RevisionRecord, Scope};
use std::sync::Arc;

/// The oldest that nobody uses goes first (STS-1.1.8; of CloneSets CS-12.7).
///
/// Judged by what the controller saw: the last user of an older one may go between the decision and its writes, by the very same
/// decision, too. One that the API server would not let go does not hold up those after it.
pub(crate) fn in_order(sight: &Sight<'_>, decision: &Decision) -> Verdict {
    let set = sight.set;
    let goes = |revision: &RevisionRecord| {
        decision
            .commands()
            .any(|c| matches!(&c.command, Command::Delete { resource: Resource::Revisions, uid, .. } if *uid == revision.meta.uid))
    };
    let names = |label: &str, revision: &str| {
        revision == label || revision.strip_suffix(label).is_some_and(|front| front.ends_with('-'))
    };
    let pods = || {
        let orphans = sight.reader.orphan_pods(&set.meta.key.namespace);
        sight.reader.pods_of(set.as_owner()).iter().chain(orphans)
    };
    let is_used = |revision: &RevisionRecord| {
        let is_named = |field| set.status_text(field) == revision.name();
        revision.digest == set.spec.template_digest
            || is_named("currentRevision")
            || is_named("updateRevision")
            // At these, pods come back while the update is paused, where users ask for it (STS-3.6).
            || Switch::KeepRevision.is_on(set)
                && sight.hints.last_revision.values().any(|last| *last == *revision.name())
            || pods()
                .filter_map(|pod| pod.revision())
                .any(|label| names(label, revision.name()))
    };
    let was_refused = |revision: &RevisionRecord| {
        sight
            .hints
            .failures
            .contains_key(&Scope::Named(revision.name().to_owned()))
    };
    let all = sight.reader.revisions_of(set.as_owner());
    let Some(newest) = all.iter().filter(|r| goes(r)).max_by_key(|r| r.number) else {
        return Ok(());
    };
    enough_are_left(sight, &goes)?;
    let passed_over = all
        .iter()
        .find(|r| r.number < newest.number && !goes(r) && !is_used(r) && !was_refused(r));
    require(passed_over.is_none(), "STS-1.1.8 history", || {
        format!(
            "revision {} is dropped before {}",
            newest.name(),
            passed_over.map_or("", |r| r.name())
        )
    })
}

/// As many as the limit says stay beside those that are in use, by what was seen: a write that was given up may come late, and a pod have
/// another revision by now, or be there although nobody knows of it.
fn enough_are_left(sight: &Sight<'_>, goes: &impl Fn(&RevisionRecord) -> bool) -> Verdict {
    let set = sight.set;
    let all = sight.reader.revisions_of(set.as_owner());
    let is_own = |pod: &&Arc<PodRecord>| set.spec.selector.matches(|key| pod.label(key));
    let own = || sight.reader.pods_of(set.as_owner()).iter().filter(is_own);
    let has_twin = |revision: &RevisionRecord| {
        let mut others = all.iter().filter(|r| r.digest == revision.digest);
        others.any(|r| r.number > revision.number)
    };
    let is_used = |revision: &RevisionRecord| {
        let is_newest = revision.digest == set.spec.template_digest && !has_twin(revision);
        let mut labels = own().filter_map(|pod| revision_of(pod));
        is_newest
            || set.status_text("currentRevision") == revision.name()
            || labels.any(|label| label == revision.name())
    };
    let left = all.iter().filter(|r| !goes(r) && !is_used(r)).count();
    let limit = set.spec.history_limit.unwrap_or(usize::MAX);
    require(left >= limit, "STS-1.1.8 history", || {
        format!("revisions are dropped, and {left} are left of {limit} that are to be kept")
    })
}
