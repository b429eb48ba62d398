//! Decisions about a CloneSet, judged by what their controller saw: the arithmetic of CS-13 and the order of CS-14, written down once
//! more from the rule book.

use super::course::Patch;
use super::older::revision_of;
use super::surge::was_made_as_surge;
use super::truth::is_marked;
use crate::clones::{LIFECYCLE_STATE, SPECIFIED_DELETE};
use crate::in_place::{has_note, lacks_resources};
use crate::judge::view::Sight;
use crate::judge::{Verdict, needs, overdue, require};
use crate::notes::is_unreadable;
use crate::resizes::is_infeasible;
use crate::tenants;
use flotilla_model::decision::Scope;
use flotilla_model::set::{CloneSpec, UpdateKind};
use flotilla_model::{Body, Command, Decision, ObjectKey, PodRecord, Report, Resource};
use std::collections::BTreeSet;
use std::sync::Arc;

const RULE_OVER: &str = "CS-13.12 never more than replicas and surge";
const RULE_KEEP: &str = "CS-13.12 keeps pods available";
const RULE_SERVES: &str = "CS-13.11 keeps pods in service";
const RULE_REASON: &str = "CS-14.5 deletes for a reason";
const RULE_PARTITION: &str = "CS-13.5 partition";
const RULE_SURGE: &str = "CS-13.6 surge";
pub(super) const RULE_CLAIMS: &str = "CS-15.5 claims that are used again";
const RULE_BRAKE: &str = "CS-13.11 brake";

/// What is asked for, as numbers (CS-13.2); schedules know no percentages.
pub(super) struct Asked {
    pub(super) replicas: i32,
    pub(super) partition: i32,
    pub(super) surge: i32,
    unavailable: i32,
}

/// A decision about a CloneSet, with what it was made from.
pub(super) struct Clones<'a> {
    pub(super) sight: &'a Sight<'a>,
    pub(super) spec: &'a CloneSpec,
    pub(super) asked: Asked,
    /// Neither ended nor going.
    pub(super) active: Vec<&'a Arc<PodRecord>>,
    /// Where the template's revision stands in the status or among revisions.
    pub(super) update: Option<String>,
    /// How many updated pods are to go back to the current revision (CS-13.5).
    pub(super) back: i32,
}

/// Judges a decision.
pub(crate) fn judge(sight: &Sight<'_>, decision: &Decision) -> Verdict {
    let set = sight.set;
    let Some(spec) = set.spec.clones.as_deref() else {
        return Ok(());
    };
    let acts = decision.commands().any(|c| !matches!(c.command, Command::Read { .. }));
    require(!(acts && set.is_deleted()), "CS-10 set under deletion", || {
        format!("commands for set {} which is being deleted", set.name())
    })?;
    let replicas = set.spec.replicas;
    let surge = if set.spec.is_paused() {
        0
    } else {
        spec.max_surge.ceil_of(replicas)
    };
    let unavailable = if surge > 0 {
        spec.max_unavailable.floor_of(replicas)
    } else {
        spec.max_unavailable.ceil_of(replicas)
    };
    let all = sight.reader.pods_of(set.as_owner()).iter();
    let is_ours = |pod: &&Arc<PodRecord>| {
        !pod.is_terminal() && !pod.is_terminating() && set.spec.selector.matches(|key| pod.label(key))
    };
    // Those that nobody owns are taken in the same pass, save what another set has left.
    let orphans = sight.reader.orphan_revisions(&set.meta.key.namespace);
    let own = sight.reader.revisions_of(set.as_owner()).iter().chain(orphans);
    let mut own: Vec<_> = own.filter(|r| !tenants::is_neighbours(&r.meta)).collect();
    own.sort_by_key(|r| (r.number, r.meta.created, r.name()));
    let update = own.iter().rev().find(|r| r.digest == set.spec.template_digest);
    let mut clones = Clones {
        sight,
        spec,
        asked: Asked {
            replicas,
            partition: spec.partition.kept_of(replicas),
            surge,
            unavailable,
        },
        active: all.filter(is_ours).collect(),
        update: update.map(|r| r.name().to_owned()),
        back: 0,
    };
    clones.back = clones.going_back(decision);
    clones.creations(decision)?;
    clones.makes_old_ones_for_the_partition(decision)?;
    sight.records_what_there_is(decision)?;
    sight.claims_are_of_their_time(decision)?;
    sight.heeds_refused_resizes(decision)?;
    sight.heeds_unreadable_notes(decision)?;
    sight.minds_the_deadline(decision)?;
    sight.tells_of_deferrals(decision)?;
    clones.claims(decision)?;
    clones.deletions(decision)?;
    clones.updates(decision)?;
    clones.makes_overdue_pods_again(decision)?;
    clones.availability(decision)?;
    clones.courses(decision)
}

pub(super) fn count(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

impl Clones<'_> {
    pub(super) fn is_new(&self, pod: &PodRecord) -> bool {
        revision_of(pod).is_some() && revision_of(pod) == self.update
    }

    /// Whether a pod's label says already what its resources will never be: the API server has refused them. Or its update takes too
    /// long (STS-8.12).
    pub(super) fn is_given_up(&self, pod: &PodRecord) -> bool {
        let failures = &self.sight.hints.failures;
        let failure = failures.get(&Scope::Named(pod.name().to_owned()));
        let is_late = overdue::may_be_made_again(pod, self.sight.set, self.sight.now);
        is_infeasible(pod) || is_unreadable(pod) || is_late || lacks_resources(pod) && failure.is_some()
    }

    pub(super) fn is_asked_for(&self, pod: &PodRecord) -> bool {
        pod.label(SPECIFIED_DELETE).is_some() || self.spec.pods_to_delete.iter().any(|name| *name == *pod.name())
    }

    /// Whether its deletion was asked for, and not by an update, which may be taken back.
    pub(super) fn is_asked_for_by_users(&self, pod: &PodRecord) -> bool {
        let is_named = self.spec.pods_to_delete.iter().any(|name| *name == *pod.name());
        is_named || self.is_asked_for(pod) && !is_marked(pod)
    }

    pub(super) fn is_leaving(pod: &PodRecord) -> bool {
        pod.label(LIFECYCLE_STATE) == Some("PreparingDelete")
    }

    /// CS-13.5, the opt-in: a partition that was raised, in the middle of an update.
    fn going_back(&self, decision: &Decision) -> i32 {
        let current = self.sight.set.status_text("currentRevision");
        let is_between = !current.is_empty() && Some(current) != self.update.as_deref();
        if !self.spec.switches.partition_rollback || !is_between {
            return 0;
        }
        let Asked {
            replicas, partition, ..
        } = self.asked;
        let back = self.taken_back_by(decision);
        let stays = |pod: &PodRecord| !Self::is_leaving(pod) || back.contains(pod.name());
        let number = |is_new| {
            let is_asked_for = |pod: &PodRecord| self.is_asked_for(pod) && !back.contains(pod.name());
            let is_replica = |pod: &PodRecord| !was_made_as_surge(pod) && !is_asked_for(pod) && stays(pod);
            let of = |pod: &&&Arc<PodRecord>| is_replica(pod) && self.is_new(pod) == is_new;
            count(self.active.iter().filter(of).count())
        };
        (partition - number(false))
            .max(0)
            .min((number(true) - (replicas - partition)).max(0))
    }

    /// Who is taken back by this decision (CS-14.2), and so does not leave any more.
    pub(super) fn taken_back_by<'b>(&'b self, decision: &'b Decision) -> BTreeSet<&'b str> {
        let back = self.patches(decision).filter(Patch::takes_back);
        back.map(|patch| patch.pod.name()).collect()
    }

    /// The revision to which pods are brought.
    pub(super) fn target(&self) -> Option<&str> {
        if self.back > 0 {
            Some(self.sight.set.status_text("currentRevision"))
        } else {
            self.update.as_deref()
        }
    }

    /// CS-13.8, CS-13.12 and CS-15: not too many, under names of their own, claims first.
    fn creations(&self, decision: &Decision) -> Verdict {
        let set = self.sight.set;
        let mut made: BTreeSet<&ObjectKey> = BTreeSet::new();
        let mut claims: BTreeSet<&ObjectKey> = BTreeSet::new();
        for scoped in decision.commands() {
            let Command::Create {
                resource, key, body, ..
            } = &scoped.command
            else {
                continue;
            };
            if *resource == Resource::Claims {
                claims.insert(key);
            }
            if *resource != Resource::Pods {
                continue;
            }
            let is_free = self.sight.reader.pod(key).is_none() && made.insert(key);
            require(is_free, "CS-15.1 a name of its own", || {
                format!("{} is there already", key.name)
            })?;
            let Body::Pod(draft) = body else {
                return require(false, "CS-14.3 pods", || format!("{} is no pod", key.name));
            };
            require(draft.owner.uid == set.meta.uid, "CS-11 ownership", || {
                format!("{} is made for somebody else", key.name)
            })?;
            needs::new_pod(set, draft)?;
            self.sight.mounts_its_claims(draft)?;
            self.is_of_its_own(draft)?;
            for (volume, claim) in &draft.claims {
                let key = set.meta.key.sibling(claim.as_str());
                let is_there = claims.contains(&key) || self.sight.reader.claim(&key).is_some();
                require(is_there, "CS-15.1 claims before pods", || {
                    format!("{} mounts {volume} from {claim}, which nobody has made", draft.key.name)
                })?;
            }
        }
        self.room(decision, count(made.len()))
    }

    /// CS-13.6, CS-13.8 and CS-13.12: no more pods than there may be.
    fn room(&self, decision: &Decision, made: i32) -> Verdict {
        let counted = self
            .active
            .iter()
            .filter(|pod| !(self.spec.excludes_preparing_delete && Self::is_leaving(pod)));
        let there = count(counted.clone().count());
        let made_as_surge = count(counted.filter(|pod| was_made_as_surge(pod)).count());
        self.notes_its_surge(decision)?;
        // Replicas are made whatever there is of the surge, which goes when they are there.
        let most = self.asked.replicas + self.asked.surge.max(made_as_surge);
        require(made == 0 || there + made <= most, RULE_OVER, || {
            format!("{there} pods, {made} more, and {most} are the most")
        })?;
        let now = self.asked.replicas + self.surge(decision).max(made_as_surge);
        require(made == 0 || there + made <= now, RULE_SURGE, || {
            format!("{there} pods, {made} more, and {now} are needed")
        })?;
        // As many as are missing: surge and growth take other ids meanwhile.
        let lacking = self.asked.replicas - (there - made_as_surge);
        let handing_over = self.handing_over().min(lacking.max(0));
        require(made == 0 || there + made + handing_over <= now, RULE_CLAIMS, || {
            format!(
                "{there} pods, {made} more, {handing_over} on their way out with claims for their replacements, and {now} are needed"
            )
        })?;
        let Some(limit) = self
            .spec
            .scale_max_unavailable
            .map(|share| share.ceil_of(self.asked.replicas))
        else {
            return Ok(());
        };
        let down = self
            .active
            .iter()
            .filter(|pod| Self::is_leaving(pod) || !self.is_asked_for(pod) && !self.seems_available(pod));
        let down = count(down.count());
        require(
            made == 0 || down + made <= limit.max(down),
            "CS-13.8 scale budget",
            || format!("{made} are made while {down} are unavailable, of {limit}"),
        )
    }

    /// How many pods beyond the replicas are needed, at most (CS-13.4 to CS-13.6): none for those that can be updated in place, unless
    /// nothing may be unavailable.
    fn surge(&self, decision: &Decision) -> i32 {
        let Asked {
            replicas,
            partition,
            surge,
            unavailable,
        } = self.asked;
        let back = self.taken_back_by(decision);
        let leaves = |pod: &PodRecord| Self::is_leaving(pod) && !back.contains(pod.name());
        let is_asked_for = |pod: &PodRecord| self.is_asked_for(pod) && !back.contains(pod.name());
        let stays = |pod: &PodRecord| !is_asked_for(pod) && !leaves(pod) && !was_made_as_surge(pod);
        let number = |of: &dyn Fn(&PodRecord) -> bool| count(self.active.iter().filter(|pod| of(pod)).count());
        let old = number(&|pod| stays(pod) && !self.is_new(pod));
        let new = number(&|pod| stays(pod) && self.is_new(pod));
        let uses_it = unavailable == 0 || self.spec.switches.surge_in_place;
        let in_place = number(&|pod| !uses_it && stays(pod) && !self.is_new(pod) && self.can_go_in_place(pod));
        let forward = (old - partition).max(0).min((replicas - partition - new).max(0));
        let is_ours = self.sight.set.spec.update != UpdateKind::OnDelete;
        // CS-13.11: whose own update leads nowhere is made again, also at the target, and serves until others are there.
        let is_on_target = |pod: &PodRecord| self.is_new(pod) == (self.back == 0);
        // And one in the midst of its update, where nothing may be unavailable, for the step that takes it out of service.
        let may_wait = |pod: &PodRecord| unavailable == 0 && has_note(pod);
        let leads_nowhere = |pod: &PodRecord| self.is_given_up(pod) || may_wait(pod);
        let astray = number(&|pod| is_ours && stays(pod) && is_on_target(pod) && leads_nowhere(pod));
        let for_update = if is_ours && forward > 0 {
            (old - partition - in_place).max(0)
        } else if is_ours && self.back > 0 {
            let in_place = number(&|pod| !uses_it && stays(pod) && self.is_new(pod) && self.can_go_in_place(pod));
            (new - (replicas - partition) - in_place).max(0)
        } else {
            0
        };
        let for_update = (for_update + astray).min(surge);
        let wished = number(&|pod| is_asked_for(pod) && !leaves(pod));
        let down = number(&|pod| leaves(pod) || !is_asked_for(pod) && !self.is_surely_available(pod));
        let for_deletion = (down + wished - unavailable).max(0).min(wished).min(surge);
        for_update.max(for_deletion)
    }

    /// CS-14.5, CS-14.6 and CS-14.7: as they were seen, and only who was asked for or is too many.
    fn deletions(&self, decision: &Decision) -> Verdict {
        let mut plain = 0;
        for scoped in decision.commands() {
            let Command::Delete {
                resource: Resource::Pods,
                key,
                uid,
                ..
            } = &scoped.command
            else {
                continue;
            };
            let seen = self.sight.reader.pod(key).filter(|pod| pod.meta.uid == *uid);
            let Some(pod) = seen else {
                return require(false, "CS-14.7 preconditions", || {
                    format!("{} is deleted as it was not seen", key.name)
                });
            };
            require(
                pod.meta.is_controlled_by(&self.sight.set.meta.uid),
                "CS-11 ownership",
                || format!("{} is not the set's", key.name),
            )?;
            self.is_released(pod)?;
            let is_active = self.active.iter().any(|other| other.name() == pod.name());
            plain += i32::from(is_active && self.is_plain_replica(pod));
        }
        let prepared = self.patches(decision).filter(Patch::prepares_deletion);
        plain += count(prepared.filter(|patch| self.is_plain_replica(patch.pod)).count());
        let staying = count(self.active.iter().filter(|pod| self.is_plain_replica(pod)).count());
        require(
            plain == 0 || staying - plain >= self.asked.replicas,
            RULE_REASON,
            || {
                format!(
                    "{plain} of {staying} pods are deleted that nobody asked for, of {}",
                    self.asked.replicas
                )
            },
        )
    }

    /// CS-13.5, CS-13.11 and CS-16: only old pods, no more than the partition lets through, and not while new ones are down.
    fn updates(&self, decision: &Decision) -> Verdict {
        let unseen = decision.commands().find(|scoped| {
            let key = scoped.command.key();
            scoped.command.report() == Report::ReCreate && !self.active.iter().any(|pod| pod.meta.key == *key)
        });
        require(unseen.is_none(), "CS-16.3 candidates", || {
            let name = unseen.map_or("", |scoped| &scoped.command.key().name);
            format!("{name} is updated and was not seen")
        })?;
        let begun: Vec<Patch<'_>> = self.patches(decision).filter(Patch::begins).collect();
        for patch in &begun {
            let is_candidate = self.is_new(patch.pod) == (self.back > 0) || self.is_given_up(patch.pod);
            require(is_candidate, "CS-16.3 candidates", || {
                format!("{} is there already", patch.pod.name())
            })?;
        }
        // Its label, by which the partition counts, says so already.
        let again: Vec<&PodRecord> = self
            .active
            .iter()
            .map(|pod| &***pod)
            .filter(|pod| self.is_given_up(pod) && begun.iter().any(|patch| patch.pod.meta.key == pod.meta.key))
            .collect();
        let down_already = count(again.iter().filter(|pod| !self.seems_available(pod)).count());
        // One that is prepared and let go at once has several patches.
        let begun: BTreeSet<&str> = begun.iter().map(|patch| patch.pod.name()).collect();
        // At the target already, they take no other's place (CS-13.11).
        let beside = again.iter().filter(|pod| self.is_new(pod) != (self.back > 0));
        let beside = count(beside.count());
        let (again, begun) = (count(again.len()), count(begun.len()));
        if begun == 0 {
            return Ok(());
        }
        let set = self.sight.set;
        let rests = set.spec.is_paused() || set.spec.update == UpdateKind::OnDelete;
        require(!rests, "CS-16.2 paused or OnDelete", || {
            format!("{begun} updates begin")
        })?;
        let old = self
            .active
            .iter()
            .filter(|pod| self.is_plain_replica(pod) && !self.is_new(pod));
        let old = count(old.count());
        let goes_back = self.back > 0;
        require(!goes_back || begun - beside <= self.back, RULE_PARTITION, || {
            format!("{begun} pods go back, and {} are to", self.back)
        })?;
        require(
            // Users may have raised the partition since; what is done again makes no old pod new.
            goes_back || begun == again || old - (begun - again) >= self.asked.partition,
            RULE_PARTITION,
            || {
                format!(
                    "{begun} of {old} old pods are updated, and {} are to stay",
                    self.asked.partition
                )
            },
        )?;
        let down = self
            .active
            .iter()
            .filter(|pod| !Self::is_leaving(pod) && self.is_new(pod) != goes_back && !self.seems_available(pod));
        let down: Vec<&str> = down.map(|pod| pod.name()).collect();
        let over = (count(self.active.len()) - self.asked.replicas).max(0);
        let brake = self.asked.unavailable.max(1) + over - count(down.len());
        require(begun - down_already <= brake.max(0), RULE_BRAKE, || {
            format!("{begun} updates begin, and {brake} may; down are {}", down.join(", "))
        })
    }

    /// CS-13.10 and CS-13.12: own acts leave enough pods available.
    fn availability(&self, decision: &Decision) -> Verdict {
        let keep = (self.asked.replicas - self.asked.unavailable).max(0);
        let deleted = decision.commands().filter_map(|c| match &c.command {
            Command::Delete {
                resource: Resource::Pods,
                key,
                ..
            } => self.active.iter().map(|pod| &***pod).find(|pod| pod.meta.key == *key),
            _ => None,
        });
        let taken_down = self.patches(decision).filter(Patch::takes_down).map(|patch| patch.pod);
        let taken: Vec<&PodRecord> = deleted.chain(taken_down).collect();
        self.service(&taken, keep)?;
        let taken = taken.iter().filter(|pod| self.is_surely_available(pod));
        let taken: BTreeSet<&str> = taken.map(|pod| pod.name()).collect();
        let up = count(self.active.iter().filter(|pod| self.seems_available(pod)).count());
        let taken = count(taken.len());
        require(taken == 0 || up - taken >= keep, RULE_KEEP, || {
            format!("{taken} of {up} available pods are taken down, and {keep} are to stay")
        })
    }

    /// CS-13.10 and CS-13.11: pods that serve and are not available for long enough yet are no fewer of those that are to stay.
    fn service(&self, taken: &[&PodRecord], keep: i32) -> Verdict {
        let taken = taken.iter().filter(|pod| self.surely_serves(pod));
        let taken: BTreeSet<&str> = taken.map(|pod| pod.name()).collect();
        let up = count(self.active.iter().filter(|pod| self.serves(pod)).count());
        let taken = count(taken.len());
        require(taken == 0 || up - taken >= keep, RULE_SERVES, || {
            format!("{taken} of {up} pods that serve are taken down, and {keep} are to stay")
        })
    }
}
