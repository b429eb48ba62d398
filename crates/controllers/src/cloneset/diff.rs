//! How many pods to make, to delete and to update: arithmetic on counts (CS-13). Nothing of an earlier pass enters.

use flotilla_model::set::{CloneSpec, SetSpec, UpdateKind};

/// What is asked for, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Replicas.
    pub replicas: i32,
    /// Pods that stay old.
    pub partition: i32,
    /// Pods beyond the replicas.
    pub surge: i32,
    /// Pods that may be unavailable for our doing.
    pub unavailable: i32,
    /// No pod is made while this many are unavailable.
    pub creation: Option<i32>,
    /// Pods that wait for their deletion do not count as replicas.
    pub excludes_leaving: bool,
    /// Updates are ours to make (not under OnDelete).
    pub updates: bool,
    /// New pods may have to go back: it was opted in to, and there is a revision to go back to.
    pub goes_back: bool,
}

impl Asked {
    /// Of a set (CS-13.2).
    pub fn of(spec: &SetSpec, clones: &CloneSpec, is_between_revisions: bool) -> Self {
        let replicas = spec.replicas;
        let surge = clones.max_surge.ceil_of(replicas);
        let surge = if spec.is_paused() { 0 } else { surge };
        let unavailable = if surge > 0 {
            clones.max_unavailable.floor_of(replicas)
        } else {
            clones.max_unavailable.ceil_of(replicas)
        };
        Asked {
            replicas,
            partition: clones.partition.kept_of(replicas),
            surge,
            unavailable,
            creation: clones.scale_max_unavailable.map(|share| share.ceil_of(replicas)),
            excludes_leaving: clones.excludes_preparing_delete,
            updates: spec.update != UpdateKind::OnDelete,
            goes_back: clones.switches.partition_rollback && is_between_revisions,
        }
    }

    /// How many pods have to stay available.
    pub fn keep(&self) -> i32 {
        (self.replicas - self.unavailable).max(0)
    }
}

/// What there is (CS-13.4). Specified pods are those that were asked to be deleted; leaving ones wait for their preDelete hook; the others
/// are plain. Pods that were made as surge are among all of these, and are no replicas (CS-13.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All.
    pub all: i32,
    /// Leaving.
    pub leaving: i32,
    /// Leaving and old.
    pub leaving_old: i32,
    /// Old and not leaving.
    pub old: i32,
    /// New and not leaving.
    pub new: i32,
    /// Old and plain, and prepared for the update, where such pods count as updated when others are made.
    pub preparing: i32,
    /// Old and specified, and no surge: for that nobody is made.
    pub specified_old: i32,
    /// The same of new ones.
    pub specified_new: i32,
    /// Available.
    pub available: i32,
    /// Ready.
    pub ready: i32,
    /// Available and specified.
    pub available_specified: i32,
    /// Ready and specified.
    pub ready_specified: i32,
    /// Made as surge, and not leaving.
    pub surge: i32,
    /// Made as surge, and leaving.
    pub surge_leaving: i32,
    /// Made as surge, old, and not leaving.
    pub surge_old_all: i32,
    /// Made as surge, old and leaving.
    pub surge_old_leaving: i32,
    /// Made as surge, old and plain.
    pub surge_old: i32,
    /// Of these, at the revision from which the update goes.
    pub surge_current: i32,
    /// Made as surge, new and plain.
    pub surge_new: i32,
    /// Leaving, or plain and not available.
    pub unavailable: i32,
    /// Old and plain, and can be updated in place.
    pub in_place: i32,
    /// New and plain, and can go back in place, where pods are to.
    pub in_place_back: i32,
    /// At the revision to which the update goes, not available, and not about to be made again.
    pub unavailable_new: i32,
    /// The same at the revision from which the update goes back.
    pub unavailable_old: i32,
    /// At the revision to which the update goes, plain, in service, and to be made again, since their own update leads nowhere, or to leave
    /// service for the next step of it, for which there is no budget.
    pub astray_new: i32,
    /// The same at the revision from which the update goes back.
    pub astray_old: i32,
}

impl Counts {
    /// How many are counted when others are made.
    fn counted(&self, excludes_leaving: bool) -> Counted {
        if excludes_leaving {
            return Counted {
                all: self.all - self.leaving,
                old: self.old,
                surge: self.surge,
                surge_old: self.surge_old_all,
            };
        }
        Counted {
            all: self.all,
            old: self.old + self.leaving_old,
            surge: self.surge + self.surge_leaving,
            surge_old: self.surge_old_all + self.surge_old_leaving,
        }
    }

    /// Old ones, and new ones, that are plain and no surge.
    fn plain(&self) -> (i32, i32) {
        let surge_new = self.surge - self.surge_old_all;
        let old = self.old - self.specified_old - self.surge_old_all;
        (old, self.new - self.specified_new - surge_new)
    }
}

/// What counts when others are made.
struct Counted {
    all: i32,
    /// Old ones.
    old: i32,
    /// Made as surge.
    surge: i32,
    /// Made as surge, and old.
    surge_old: i32,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// Pods still to move to the update revision.
    pub forward: i32,
    /// Pods to move back to the current revision.
    pub back: i32,
    /// Pods beyond the replicas that may be there now.
    pub surge: i32,
    /// Whether it is there so that pods can be updated, and not for those that were asked to be deleted.
    pub surge_is_for_update: bool,
    /// Pods that are missing.
    pub missing: i32,
    /// How many of these are replicas, and no surge.
    pub missing_replicas: i32,
    /// Pods to make.
    pub create: i32,
    /// How many of these at the current revision.
    pub create_old: i32,
    /// Pods that are too many.
    pub surplus: i32,
    /// How many of these were made as surge for the revision to which the update goes: beyond what it needs.
    pub surplus_surge: i32,
    /// How many were made as surge for another.
    pub surplus_stale: i32,
    /// How many go first if they are not ready, of whatever revision: nothing but an edit makes so many too many.
    pub surplus_unready: i32,
    /// How many of these have to be old.
    pub surplus_old: i32,
    /// How many have to be new: those for which pods of the current revision were made, where new ones go back.
    pub surplus_new: i32,
    /// How many updates may begin.
    pub brake: i32,
    /// How many available pods may become unavailable by updates.
    pub spare: i32,
    /// How many pods may stop to be ready by updates.
    pub spare_ready: i32,
}

impl Diff {
    /// CS-13.5 to CS-13.9 and CS-13.11.
    pub fn of(asked: &Asked, counts: &Counts) -> Self {
        let Asked {
            replicas, partition, ..
        } = *asked;
        let (plain_old, plain_new) = counts.plain();
        let forward = (plain_old - partition)
            .max(0)
            .min((replicas - partition - plain_new).max(0));
        let back = if asked.goes_back {
            (partition - plain_old)
                .max(0)
                .min((plain_new - (replicas - partition)).max(0))
        } else {
            0
        };
        let needed = Surge::of(asked, counts, forward, back);
        let want = replicas + needed.pods;
        let counted = counts.counted(asked.excludes_leaving);
        // Should a webhook write on all pods that they are surge, making replicas would have no end.
        let most = replicas + replicas.max(asked.surge);
        // Also while the surge is there in their place: what they have stored is waited for, and not made up for by empty volumes.
        let there = counted.all - counted.surge;
        let missing_replicas = (replicas - there).min(most - (counts.all - counts.leaving)).max(0);
        let missing = (want - counted.all).max(missing_replicas);
        let create = asked
            .creation
            .map_or(missing, |limit| missing.min((limit - counts.unavailable).max(0)));
        let old = counted.old - counted.surge_old;
        let surplus = Surplus::of(asked, counts, &needed, back, partition + needed.old - old);
        // Where pods go back the surge is old as well, and it may be where it is for pods that users want deleted.
        let may_be_old = back > 0 || !needed.is_for_update;
        let old = old + if may_be_old { counts.surge_current } else { 0 };
        let unavailable_target = if back > 0 {
            counts.unavailable_old
        } else {
            counts.unavailable_new
        };
        Diff {
            forward,
            back,
            surge: needed.pods,
            surge_is_for_update: needed.is_for_update,
            missing,
            missing_replicas,
            create,
            create_old: if asked.updates {
                create.min((partition + needed.old - (old - counts.preparing)).max(0))
            } else {
                0
            },
            surplus: surplus.pods,
            surplus_surge: surplus.surge,
            surplus_stale: surplus.stale,
            surplus_unready: surplus.unready,
            surplus_old: surplus.old,
            surplus_new: surplus.new,
            brake: asked.unavailable.max(1) + (counts.all - replicas).max(0) - unavailable_target,
            spare: counts.available - counts.available_specified - asked.keep(),
            spare_ready: counts.ready - counts.ready_specified - asked.keep(),
        }
    }
}

/// Pods beyond the replicas (CS-13.6).
struct Surge {
    /// How many.
    pods: i32,
    /// How many of these at the current revision.
    old: i32,
    is_for_update: bool,
}

impl Surge {
    fn of(asked: &Asked, counts: &Counts, forward: i32, back: i32) -> Self {
        let (plain_old, plain_new) = counts.plain();
        let specified = counts.specified_old + counts.specified_new;
        let to_move = match (forward > 0, back > 0) {
            (false, false) => 0,
            // Without a budget, pods that can go in place need the surge too.
            (true, _) => (plain_old - asked.partition - counts.in_place).max(0),
            (false, true) => (plain_new - (asked.replicas - asked.partition) - counts.in_place_back).max(0),
        };
        // At the target already, they serve until others are there for them.
        let astray = if back > 0 { counts.astray_old } else { counts.astray_new };
        let for_update = if asked.updates {
            (to_move + astray).min(asked.surge)
        } else {
            0
        };
        let for_deletion = (counts.unavailable + specified - asked.unavailable)
            .max(0)
            .min(specified)
            .min(asked.surge);
        if for_deletion > 0 && for_deletion >= for_update {
            return Surge {
                pods: for_deletion,
                old: (for_deletion - counts.specified_new).max(0),
                is_for_update: false,
            };
        }
        Surge {
            pods: for_update,
            old: if back > 0 { for_update } else { 0 },
            is_for_update: true,
        }
    }
}

/// Pods that are too many (CS-13.9).
struct Surplus {
    /// How many.
    pods: i32,
    /// How many of these were made as surge, for the revision to which the update goes.
    surge: i32,
    /// How many were made as surge for another revision: whatever they serve, they are in the way of those that are needed.
    stale: i32,
    unready: i32,
    old: i32,
    new: i32,
}

impl Surplus {
    fn of(asked: &Asked, counts: &Counts, needed: &Surge, back: i32, lacking_old: i32) -> Self {
        let Asked {
            replicas, partition, ..
        } = *asked;
        let (plain_old, plain_new) = counts.plain();
        let fitting = if back > 0 {
            counts.surge_current
        } else if needed.is_for_update {
            counts.surge_new
        } else {
            // What is old only as long as the partition asks for it: the revision may be one that never comes up.
            counts.surge_new + counts.surge_current.min(lacking_old.max(0))
        };
        let stale = counts.surge_new + counts.surge_old - fitting;
        let plain = plain_old + plain_new + fitting + stale;
        let over = (plain - replicas - needed.pods).max(0);
        // The rest of the surge is made of pods like any other: of sets without claims, or for those that users want deleted.
        let left = (needed.pods - fitting).max(0);
        let surge = (fitting - needed.pods).max(0).min(over);
        let others = (plain_old + plain_new - replicas - left).max(0);
        let want_old = partition + needed.old.min(left);
        let old = others.min((plain_old - want_old).max(0));
        // Otherwise the pod that was made for it, which is not ready yet, would be the first to go, and be made again for ever.
        let new = if asked.goes_back {
            (others - old).min((plain_new - (replicas + left - want_old).max(0)).max(0))
        } else {
            0
        };
        Surplus {
            pods: stale + surge + others,
            surge,
            stale,
            unready: others.min((plain - replicas - asked.surge).max(0)),
            old,
            new,
        }
    }
}
