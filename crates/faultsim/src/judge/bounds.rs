//! Numbers in a spec are claims, not sizes: whatever a set asks for, a pass begins only so much.

use super::view::Sight;
use super::{Verdict, require};
use flotilla_model::{Command, Decision, Resource};
use std::collections::BTreeSet;

/// How many pods a pass and set may make at most.
const MOST_MADE: usize = 1_000;
/// How much a pass may say that it waits for. Each of the pods that it might make may wait for a few things, and sets of these schedules
/// have few others.
const MOST_WAITS: usize = 3 * MOST_MADE;

/// So many pods with claims a pass may make at least, however few are there.
const MOST_AT_FIRST: usize = 16;

fn is_creation(command: &Command, of: Resource) -> bool {
    matches!(command, Command::Create { resource, .. } if *resource == of)
}

/// What is decided is bounded by what may be done now, and not by what is asked for. Claims are made before it is known whether there is room for
/// their pods: of those that a pass makes there may be twice as many as there are pods of the set, or a few.
pub(crate) fn are_kept(decision: &Decision, sight: &Sight<'_>) -> Verdict {
    let made = |of: Resource| decision.commands().filter(move |c| is_creation(&c.command, of));
    let pods = made(Resource::Pods).count();
    let waits = decision.waits.len();
    require(pods <= MOST_MADE && waits <= MOST_WAITS, "R-26", || {
        format!("one pass makes {pods} pods, and waits for {waits} things")
    })?;
    // Of one pod each: those of pods that are there already, and lack theirs, are others.
    let makes_pod: BTreeSet<_> = made(Resource::Pods).map(|c| &c.scope).collect();
    let with_claims: BTreeSet<_> = made(Resource::Claims)
        .map(|c| &c.scope)
        .filter(|scope| makes_pod.contains(scope))
        .collect();
    let there = sight.reader.pods_of(sight.set.as_owner()).len();
    require(with_claims.len() <= MOST_AT_FIRST.max(2 * there), "R-26", || {
        let new = with_claims.len();
        format!("one pass makes claims for {new} new pods, and nobody knows whether there is room: {there} are there")
    })
}
