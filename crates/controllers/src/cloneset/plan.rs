//! The plan that the steps of a pass fill in: pods with what they are to the set, beside what every kind writes down.

use super::claims::{Deleted, Sharing};
use super::diff::{Asked, Counts};
use super::surge::is_surge;
use super::view::View;
use crate::shared::course::Course;
use crate::shared::health::{Health, LabelFacts};
use crate::shared::inplace::progress::Stage;
use crate::shared::lifecycle::State;
use crate::shared::occupant::Occupant;
use crate::shared::origin::{self, Origin};
use crate::shared::pass::Pass;
use crate::shared::renewal::Way;
use crate::shared::revision::{self, Revisions};
use flotilla_api::names;
use flotilla_model::decision::Scope;
use flotilla_model::set::{Area, PodUpdatePolicy};
use flotilla_model::{ClaimRecord, Labels, ObjectKey, PodRecord, RevisionRecord};
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

/// An active pod: it has neither ended, nor has its deletion been asked for.
// Independent facts, not a state.
#[allow(clippy::struct_excessive_bools)]
pub(super) struct Member {
    pub(super) occupant: Occupant,
    /// It waits for its preDelete hook.
    pub(super) is_leaving: bool,
    /// It was asked to be deleted, by label or by name (CS-14.1), and does not wait for its hook yet.
    pub(super) is_specified: bool,
    /// It was asked to be deleted, wherever it is on its way.
    pub(super) was_asked_for: bool,
    /// The set's spec names it among those to be deleted.
    pub(super) is_named: bool,
    /// The update asked for that, and does not want it any more.
    pub(super) is_spared: bool,
    /// It was made as surge (CS-13.8): no replica, and gone when the update needs it no more.
    pub(super) is_surge: bool,
}

impl Member {
    pub(super) fn pod(&self) -> &PodRecord {
        &self.occupant.pod
    }

    pub(super) fn name(&self) -> &str {
        self.occupant.pod.name()
    }

    pub(super) fn scope(&self) -> Scope {
        Scope::Named(self.name().to_owned())
    }

    pub(super) fn is_new(&self) -> bool {
        self.occupant.labels.is_updated
    }

    pub(super) fn is_plain(&self) -> bool {
        !self.is_leaving && !self.is_specified
    }

    pub(super) fn is_available(&self) -> bool {
        self.occupant.health.is_available()
    }

    /// Whether it is down and holds up the update. Not where it [waits to be made again][Self::awaits_renewal], which would wait for
    /// itself; once that has begun, it counts until its replacement is there.
    pub(super) fn brakes(&self) -> bool {
        !self.is_leaving && !self.is_available() && !self.awaits_renewal()
    }

    /// Whether it is down, its own update is given up, and nobody has begun to make it again.
    pub(super) fn awaits_renewal(&self) -> bool {
        self.is_plain() && !self.is_available() && self.occupant.abandoned.is_some()
    }

    /// Whether it serves, and its own update is given up: another has to be there before it is made again.
    fn is_astray(&self) -> bool {
        self.is_plain() && self.is_available() && self.occupant.abandoned.is_some()
    }

    pub(super) fn is_ready(&self) -> bool {
        self.occupant.health.is_ready()
    }

    /// Whether it is in the grace period of an update in place.
    pub(super) fn is_in_grace(&self) -> bool {
        let progress = self.occupant.progress.as_ref();
        progress.is_some_and(|p| matches!(p.stage, Stage::Grace(_)))
    }
}

/// Claims by the id that they share with their pod.
pub(super) type ClaimsById<'v> = BTreeMap<&'v str, Vec<&'v Arc<ClaimRecord>>>;

/// Everything that the steps of one pass read and write.
pub(super) struct Plan<'v> {
    pub(super) view: &'v View<'v>,
    pub(super) pass: Pass<'v>,
    /// Active pods, in order of name.
    pub(super) members: Vec<Member>,
    /// What was made as surge counts as replicas: somebody else has let it stay.
    pub(super) is_settled: bool,
    /// Which of them this pass wants to be deleted, whether or not that waits for a hook, for the budget, or for another try.
    pub(super) to_go: BTreeSet<usize>,
    pub(super) asked: Asked,
    /// Looked through once, where somebody asks.
    pub(super) claims_by_id: OnceCell<ClaimsById<'v>>,
    /// Pods by their id, looked through once, where somebody asks.
    pub(super) pods_by_id: OnceCell<BTreeMap<&'v str, Sharing<'v>>>,
    /// Pods by the claim that they mount, looked through once for each that somebody asks for: it may be the same for all of them.
    pub(super) mounting: RefCell<BTreeMap<ObjectKey, Rc<Sharing<'v>>>>,
    /// Pods whose deletion is one of the commands of this plan.
    pub(super) deleted: Deleted,
    /// Pods were made or deleted, so that the update waits for the next pass (CS-14.8).
    pub(super) has_scaled: bool,
}

impl<'v> Plan<'v> {
    pub(super) fn new(view: &'v View<'v>, revisions: Revisions, update: Arc<RevisionRecord>) -> Self {
        let pass = Pass::new(view.moment(), revisions, update);
        let members = members(view, &pass);
        // When all are updated the update is over (CS-21.2), whether or not the status says so already: they go back to nothing.
        let all_are_new = members.iter().all(|m| m.is_new() && !m.is_surge);
        let is_over = all_are_new && super::scale::count(members.len()) == view.set.spec.replicas;
        let is_between = pass.current.meta.uid != pass.update.meta.uid && !is_over;
        let asked = Asked::of(&view.set.spec, &view.clones, is_between);
        let mut plan = Plan {
            view,
            pass,
            members,
            is_settled: false,
            to_go: BTreeSet::new(),
            asked,
            claims_by_id: OnceCell::new(),
            pods_by_id: OnceCell::new(),
            mounting: RefCell::default(),
            deleted: Deleted::default(),
            has_scaled: false,
        };
        if plan.settles_with_surge() {
            plan.is_settled = true;
            for member in &mut plan.members {
                member.is_surge = false;
            }
        }
        plan
    }

    /// What there is, as numbers (CS-13.4).
    pub(super) fn counts(&mut self) -> Counts {
        let mut counts = Counts::default();
        let may_be_made_again = self.view.set.spec.pod_update_policy() != PodUpdatePolicy::InPlaceOnly;
        for member in &self.members {
            let (available, plain) = (member.is_available(), member.is_plain());
            let needs_surge = may_be_made_again && member.is_astray() || self.needs_surge_to_go_on(member);
            let is_astray = needs_surge && !member.is_surge;
            counts.all += 1;
            counts.available += i32::from(available);
            counts.ready += i32::from(member.is_ready());
            counts.unavailable += i32::from(member.is_leaving || plain && !available);
            counts.available_specified += i32::from(available && member.is_specified);
            counts.ready_specified += i32::from(member.is_ready() && member.is_specified);
            if member.is_surge {
                let is_old = !member.is_new();
                counts.surge += i32::from(!member.is_leaving);
                counts.surge_leaving += i32::from(member.is_leaving);
                counts.surge_old += i32::from(plain && is_old);
                counts.surge_current += i32::from(plain && is_old && self.is_current(member));
                counts.surge_new += i32::from(plain && !is_old);
                counts.surge_old_all += i32::from(is_old && !member.is_leaving);
                counts.surge_old_leaving += i32::from(is_old && member.is_leaving);
            }
            match (member.is_leaving, member.is_new()) {
                (true, is_new) => {
                    counts.leaving += 1;
                    counts.leaving_old += i32::from(!is_new);
                }
                (false, true) => {
                    counts.new += 1;
                    counts.specified_new += i32::from(member.is_specified && !member.is_surge);
                    counts.unavailable_new += i32::from(member.brakes());
                    counts.astray_new += i32::from(is_astray);
                }
                (false, false) => {
                    counts.old += 1;
                    let is_preparing = plain && State::of(member.pod()) == State::PreparingUpdate;
                    counts.preparing += i32::from(is_preparing && self.view.defaults.preparing_as_updated);
                    counts.specified_old += i32::from(member.is_specified && !member.is_surge);
                    counts.unavailable_old += i32::from(member.brakes());
                    counts.astray_old += i32::from(is_astray);
                }
            }
        }
        counts.in_place = self.can_go_in_place(false);
        if self.asked.goes_back {
            let target = std::mem::replace(&mut self.pass.target, self.pass.current.clone());
            counts.in_place_back = self.can_go_in_place(true);
            self.pass.target = target;
        }
        counts
    }

    /// Whether a pod is of the revision from which the update goes.
    pub(super) fn is_current(&self, member: &Member) -> bool {
        revision::label_names(member.pod(), self.pass.current.name())
    }

    /// Whether a pod serves in the midst of its update, has to leave service for the next step of it, and no budget but that of a surge would
    /// ever let it.
    fn needs_surge_to_go_on(&self, member: &Member) -> bool {
        let has_no_budget = self.asked.unavailable == 0 && self.asked.surge > 0;
        let leaves = || Course::of(&member.occupant, true).is_some_and(|course| course.leaves_service(&self.pass));
        has_no_budget && member.is_plain() && !member.occupant.is_stuck && leaves()
    }

    /// How many plain pods, old or new ones, can come to the target in place, and need no surge for it.
    fn can_go_in_place(&mut self, new_ones: bool) -> i32 {
        if self.asked.surge == 0 || self.asked.unavailable == 0 || self.view.clones.switches.surge_in_place {
            // Nobody asks.
            return 0;
        }
        let may_move = |m: &Member| m.is_new() == new_ones && m.is_plain() && !m.is_surge;
        let in_place = (0..self.members.len())
            .filter(|index| may_move(&self.members[*index]) && matches!(self.way(*index), Way::InPlace(_)));
        i32::try_from(in_place.count()).unwrap_or(i32::MAX)
    }

    /// Whether a field that cannot be read stops work of this kind.
    pub(super) fn is_stopped(&self, work: Area) -> bool {
        self.view.set.spec.is_stopped(work)
    }
}

fn members(view: &View<'_>, pass: &Pass<'_>) -> Vec<Member> {
    let mut reader = FactReader { pass, last: None };
    let moment = view.moment();
    let active = view
        .pods
        .iter()
        .filter(|pod| !pod.is_terminal() && !pod.is_terminating());
    let named: BTreeSet<&str> = view.clones.pods_to_delete.iter().map(String::as_str).collect();
    let member = |pod: &Arc<PodRecord>| {
        let mut labels = reader.read(pod);
        let in_place = pod.detail.as_ref().and_then(|d| d.in_place_ready.as_ref());
        // Whatever Ready still says: who was taken out of service for an update is not available (CS-13.3).
        let is_out_of_service = in_place.is_some_and(|condition| !condition.is_true);
        labels.lifecycle_allows &= !is_out_of_service;
        let is_leaving = State::of(pod) == State::PreparingDelete;
        let is_named = named.contains(pod.name());
        let was_asked_for = labels.is_specified || is_named;
        let mut occupant = Occupant::of(pod, labels, true, moment);
        if is_out_of_service {
            occupant.health = Health::NotReady;
        }
        Member {
            is_leaving,
            is_specified: !is_leaving && was_asked_for,
            was_asked_for,
            is_named,
            is_spared: false,
            is_surge: is_surge(view.set.name(), pod),
            occupant,
        }
    };
    active.map(member).collect()
}

/// Answers [`LabelFacts`]; pods of one revision share their labels, so this is worked out once for many.
struct FactReader<'p> {
    pass: &'p Pass<'p>,
    last: Option<(Labels, LabelFacts)>,
}

impl FactReader<'_> {
    fn read(&mut self, pod: &PodRecord) -> LabelFacts {
        if let Some((labels, facts)) = &self.last
            && labels.is_same(&pod.meta.labels)
        {
            return *facts;
        }
        let set = self.pass.moment.set;
        let (update, current) = (&self.pass.update, &self.pass.current);
        let Origin {
            revision,
            rests_on_labels,
        } = origin::of(pod, set, &self.pass.revisions.names, &[update, current]);
        let facts = LabelFacts {
            is_updated: revision::is_named(set.name(), update, revision),
            is_current: revision::is_named(set.name(), current, revision),
            is_specified: pod.label(names::SPECIFIED_DELETE_LABEL).is_some(),
            lifecycle_allows: State::of(pod).is_normal(),
        };
        if rests_on_labels {
            self.last = Some((pod.meta.labels.clone(), facts));
        }
        facts
    }
}
