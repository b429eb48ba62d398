//! Notes of grace periods that somebody has written by hand, or with another program, so that nobody can read what they are for (STS-8.19).
//!
//! By luck of its own: everything else of a seed is the same with and without it, but for a grace period, without which there are no notes.

use crate::asks::{self, by_users};
use crate::defect::says;
use crate::in_place::{GATE, GRACE_NOTE, grace_note, state};
use crate::judge::view::Sight;
use crate::judge::{Verdict, require};
use crate::run::World;
use crate::schedule::{BUSY_MS, FaultKind, Item, SetPlan, UserAct, Wanted, What};
use crate::tenants;
use fastrand::Rng;
use flotilla_engine::wire::Object;
use flotilla_model::{Command, Decision, ObjectKey, PodRecord, Resource, SetKind, WaitCause};
use serde_json::{Value, json};

const RULE: &str = "STS-8.19 unreadable notes";

/// What becomes of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Garbling {
    /// Its end is lost.
    Cut,
    /// It names no revision.
    Nameless,
    /// What it would do to metadata is in no code that anybody knows.
    Encoded,
    /// Nothing is left of it.
    Emptied,
}

/// Somebody writes notes by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Act {
    garbling: Garbling,
    /// On the pod in this place, though it may be in no grace period; on all that are in one if there is none.
    place: Option<i64>,
}

/// When that is.
pub(crate) fn by_chance(seed: u64, wanted: &Wanted, set: &mut SetPlan) -> Vec<Item> {
    let mut rng = Rng::with_seed(seed ^ 0x6a6b_1ed0);
    // How a pod with such a note counts, for budgets and deadlines, is not decided in every respect: they come if they are asked for.
    let Some(in_place) = set
        .in_place
        .as_mut()
        .filter(|_| wanted.faults.contains(&FaultKind::Notes))
    else {
        return Vec::new();
    };
    in_place.grace_s = in_place.grace_s.max(5);
    let mut items = Vec::new();
    for _ in 0..rng.usize(1..4) {
        let garbling = [Garbling::Cut, Garbling::Nameless, Garbling::Encoded, Garbling::Emptied][rng.usize(0..4)];
        let place = (rng.u8(0..4) == 0).then(|| rng.i64(0..6));
        // Not yet on pods of a CloneSet that serve: with maxUnavailable 0 one that is up to date waits for ever for a budget that surge does not give.
        let place = place.filter(|_| set.kind != SetKind::Clone);
        let act = |place| UserAct::Ask(asks::Act::WriteNotes(Act { garbling, place }));
        if place.is_some() {
            items.push(by_users(&mut rng, act(place)));
            continue;
        }
        // Into grace periods: they begin soon after another image was asked for.
        let at_ms = rng.u64(3_000..BUSY_MS - 10_000);
        let image = UserAct::Image(rng.u32(1..4), true);
        items.extend(
            [(at_ms, image), (at_ms + rng.u64(300..7_000), act(place))].map(|(at_ms, act)| Item {
                at_ms,
                what: What::User(act),
                seed: 0,
            }),
        );
    }
    items
}

impl Garbling {
    /// What becomes of a note, or what is written where there is none.
    fn of(self, note: Option<&str>) -> String {
        let whole = note.unwrap_or(r#"{"revision":"web-0","containerImages":{"main":"app:v1"}}"#);
        let mut read: Value = serde_json::from_str(whole).unwrap_or_else(|_| json!({}));
        match self {
            Garbling::Cut => whole.chars().take(whole.len() / 2).collect(),
            Garbling::Emptied => String::new(),
            Garbling::Nameless => {
                read["revision"] = Value::Null;
                read.to_string()
            }
            Garbling::Encoded => {
                read["metaDataPatch"] = json!("{}");
                read.to_string()
            }
        }
    }
}

/// Whether a pod has a note of a grace period that nobody can read: no JSON, without a revision, or with a patch of metadata that is not
/// base64 (STS-4.7).
pub(crate) fn is_unreadable(pod: &PodRecord) -> bool {
    let Some(text) = grace_note(pod) else { return false };
    let note: Value = serde_json::from_str(text).unwrap_or_default();
    let patch = note["metaDataPatch"].as_str().unwrap_or_default();
    let is_code = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    !note["revision"].is_string() || !patch.bytes().all(is_code)
}

impl World {
    /// Somebody writes notes.
    pub(crate) fn write_notes(&mut self, act: Act) {
        let slot = act.place.map(|place| self.pod_key(place));
        let pods = tenants::all(&self.cluster.server, Resource::Pods).filter_map(|s| match &s.object {
            Some(Object::Pod(pod)) => Some(pod),
            _ => None,
        });
        let written: Vec<(ObjectKey, String)> = pods
            .filter(|pod| {
                slot.as_ref()
                    .map_or(grace_note(pod).is_some(), |slot| *slot == pod.meta.key)
            })
            .map(|pod| (pod.meta.key.clone(), act.garbling.of(grace_note(pod))))
            .collect();
        for (key, text) in written {
            let body = json!({"metadata": {"annotations": {GRACE_NOTE: text}}});
            self.edit(Resource::Pods, &key, &body);
        }
    }

    /// Whether nobody makes a pod again whose note cannot be read, as its users are told: they may not under InPlaceOnly, and the partition may
    /// keep it.
    pub(crate) fn is_left_unread(&self, pod: &PodRecord) -> bool {
        let plan = &self.schedule.set;
        let moves = |item: &Item| matches!(item.what, What::User(UserAct::Partition(_)));
        let is_kept = plan.partition > 0 || self.schedule.items.iter().any(moves);
        let is_only = plan.in_place.is_some_and(|in_place| in_place.only);
        (is_only || is_kept) && is_unreadable(pod)
    }
}

impl Sight<'_> {
    /// Who has a note that nobody can read does not serve by what managers do, and that is told unless the pod goes for it.
    pub(crate) fn heeds_unreadable_notes(&self, decision: &Decision) -> Verdict {
        let set = self.set;
        let mut own = self.reader.revisions_of(set.as_owner()).iter();
        let knows_template = own.any(|revision| revision.digest == set.spec.template_digest);
        for pod in self
            .reader
            .pods_of(set.as_owner())
            .iter()
            .filter(|pod| is_unreadable(pod))
        {
            let of_it = || decision.commands().filter(|c| *c.command.key() == pod.meta.key);
            let puts_back =
                |command: &Command| matches!(command, Command::Patch { body, .. } if says(body, GATE, "True"));
            require(!of_it().any(|c| puts_back(&c.command)), RULE, || {
                format!("{} is put into service, and nobody knows what it lacks", pod.name())
            })?;
            let is_idle = set.is_deleted() || !knows_template || !set.spec.problems.is_empty();
            let is_left = !self.is_there_to_stay(pod) || state(pod) == "PreparingDelete" || self.was_refused(pod);
            let is_of_revision = |cause: &WaitCause| {
                matches!(
                    cause,
                    WaitCause::RevisionUntried | WaitCause::RevisionUnproven { .. } | WaitCause::RevisionRefused { .. }
                )
            };
            let mut waits = decision.waits.iter();
            let is_told = waits.any(|wait| wait.subject == pod.name() || is_of_revision(&wait.cause));
            require(is_idle || is_left || is_told || of_it().next().is_some(), RULE, || {
                format!("nobody can read what {} lacks, and nobody says so", pod.name())
            })?;
        }
        Ok(())
    }
}
