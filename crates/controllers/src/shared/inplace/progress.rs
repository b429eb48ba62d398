//! Where a pod stands in its update in place, from what is noted on it and what the kubelet says.

use super::complete::{self, Missing};
use super::grace::Grace;
use super::state::State;
use super::{annotation, complete::is_plainly_done};
use crate::shared::revision;
use flotilla_api::names;
use flotilla_model::records::PodDetail;
use flotilla_model::{PodRecord, Timestamp};
use std::collections::BTreeMap;

/// What is next.
#[derive(Clone, Debug, PartialEq)]
pub enum Stage {
    /// Nothing: there is no update, or it has ended.
    Done,
    /// What is noted cannot be read, or belongs to another revision: as if it were not there, and it is told once.
    Void(String),
    /// The grace period runs, or has ended.
    Grace(Grace),
    /// A grace period of another revision: to be forgotten.
    StaleGrace,
    /// What the grace period was for cannot be read, so that nobody knows what the pod still lacks.
    Lost(String),
    /// Containers have not changed yet.
    Missing(Missing),
    /// Containers of the next batch come when these are ready, those that are not yet.
    NextBatch(Vec<String>),
}

/// A pod that is, or may be, in an update in place.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// What is noted, if it can be read.
    pub state: Option<State>,
    /// What is next.
    pub stage: Stage,
    /// Resources are noted as still to come and have come: the note is to be put right, as a Go manager would wait for them for ever.
    pub outdates_note: bool,
}

impl Progress {
    /// Of a pod; `None` if it plainly is in none, which costs no reading of annotations.
    pub fn of(pod: &PodRecord, detail: &PodDetail, now: Timestamp) -> Option<Progress> {
        if is_plainly_done(detail) {
            return None;
        }
        let noted = annotation(detail, names::IN_PLACE_STATE, names::IN_PLACE_STATE_LEGACY);
        let mut outdates_note = false;
        let state = noted.map(|(_, text)| {
            let mut state = State::parse(text)?.seen_at(now);
            let is_more_to_come = !state.next.is_empty();
            // Noted before they are changed.
            state.next.leave_out_resources_that_are_there(detail);
            outdates_note = is_more_to_come && state.next.is_empty();
            Ok(state)
        });
        if let Some((_, text)) = annotation(detail, names::IN_PLACE_GRACE, names::IN_PLACE_GRACE_LEGACY) {
            let stage = match Grace::parse(text) {
                Err(error) => Stage::Lost(error),
                Ok(grace) if !revision::label_names(pod, &grace.revision) => Stage::StaleGrace,
                Ok(grace) => Stage::Grace(grace),
            };
            return Some(Progress {
                state: state.and_then(Result::ok),
                stage,
                // Written anew when the period ends.
                outdates_note: false,
            });
        }
        let (state, stage) = match state {
            None => (None, Stage::Done),
            Some(Err(error)) => (None, Stage::Void(error)),
            Some(Ok(state)) => match complete::batch(pod, detail, &state) {
                Err(Missing::OtherRevision) => {
                    let text = format!("it is about revision {}", state.revision);
                    (None, Stage::Void(text))
                }
                Err(missing) => (Some(state), Stage::Missing(missing)),
                Ok(()) if state.next.is_empty() => (Some(state), Stage::Done),
                Ok(()) => {
                    let unready = unready(detail, &state.required_ready);
                    (Some(state), Stage::NextBatch(unready))
                }
            },
        };
        Some(Progress {
            outdates_note: outdates_note && state.is_some(),
            state,
            stage,
        })
    }

    /// Whether the update is on its way.
    pub fn is_in_flight(&self) -> bool {
        !matches!(self.stage, Stage::Done | Stage::Void(_))
    }

    /// Whether the pod counts as unavailable for it: not if only its resources change, without leaving service (STS-8.18), or if it serves with
    /// a note that nobody can read.
    pub fn disrupts(&self, detail: &PodDetail) -> bool {
        let serves_unread = matches!(self.stage, Stage::Lost(_)) && !is_out_of_service(detail);
        self.is_in_flight() && !self.is_gentle(detail) && !serves_unread
    }

    /// Whether only resources change, without a restart.
    pub fn is_gentle(&self, detail: &PodDetail) -> bool {
        let resources_only = |s: &State| {
            s.resources
                && !s.images
                && !s.env_from_metadata
                && s.next.images.is_empty()
                && s.next.ref_metadata.is_empty()
        };
        let is_begun = matches!(self.stage, Stage::Missing(_) | Stage::NextBatch(_) | Stage::Done);
        !is_out_of_service(detail) && is_begun && self.state.as_ref().is_some_and(resources_only)
    }

    /// The note of a further update, which carries on what of this one has not arrived yet.
    pub fn carried_on(&self, detail: &PodDetail) -> State {
        // In a grace period, too: what the update before it changed may still be on its way.
        let is_missing = matches!(self.stage, Stage::Missing(_) | Stage::Grace(_));
        let is_open = is_missing || matches!(self.stage, Stage::NextBatch(_));
        let Some(state) = self.state.as_ref().filter(|_| is_open) else {
            return State::default();
        };
        let carried = |name: &String| {
            let mut before = state.before.get(name)?.clone();
            let asked_for = detail.container(name)?.0.image.to_string();
            if !before.superseded.contains(&asked_for) {
                before.superseded.push(asked_for);
            }
            Some((name.clone(), before))
        };
        let before: BTreeMap<_, _> = complete::not_arrived(detail, state).filter_map(carried).collect();
        State {
            env_from_metadata: state.env_from_metadata && is_missing,
            resources: state.resources && is_missing,
            asked: if is_missing {
                state.asked.clone()
            } else {
                BTreeMap::default()
            },
            // An image that was only to come restarts nothing once it is taken back.
            images: !before.is_empty(),
            before,
            ..State::default()
        }
    }

    /// What was decided for the pod's present revision and has not been done yet.
    pub fn left_to_do(&self) -> Option<super::UpdateSpec> {
        match (&self.stage, &self.state) {
            (Stage::Grace(grace), _) => Some(grace.spec.clone()),
            (Stage::Missing(_) | Stage::NextBatch(_), Some(state)) if !state.next.is_empty() => {
                Some(super::UpdateSpec {
                    changes: state.next.clone(),
                    env_from_metadata: state.env_from_metadata,
                    ..super::UpdateSpec::default()
                })
            }
            _ => None,
        }
    }
}

/// Those of these containers that are not ready.
/// Whether the gate of updates keeps a pod from service.
fn is_out_of_service(detail: &PodDetail) -> bool {
    let is_open = detail.in_place_ready.as_ref().is_some_and(|c| c.is_true);
    detail.spec.has_gate(names::IN_PLACE_UPDATE_READY) && !is_open
}

fn unready(detail: &PodDetail, required: &[String]) -> Vec<String> {
    let is_ready = |name: &String| match detail.container(name) {
        Some((_, status)) => status.is_some_and(|s| s.is_ready),
        None => true,
    };
    required.iter().filter(|name| !is_ready(name)).cloned().collect()
}
