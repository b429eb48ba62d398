//! Numbers in a spec are claims, not sizes (ruling 26): whatever a set asks for, a pass begins only so much.

use super::{Verdict, require};
use flotilla_model::{Command, Decision, Resource};

/// How many pods a pass and set may make at most.
const MOST_MADE: usize = 1_000;
/// How much a pass may say that it waits for. Each of the pods that it might make may wait for a few things, and sets of these schedules
/// have few others.
const MOST_WAITS: usize = 3 * MOST_MADE;

/// What is decided is bounded by what may be done now, and not by what is asked for.
pub(crate) fn are_kept(decision: &Decision) -> Verdict {
    let makes_pod = |command: &Command| {
        matches!(
            command,
            Command::Create {
                resource: Resource::Pods,
                ..
            }
        )
    };
    let made = decision.commands().filter(|c| makes_pod(&c.command)).count();
    let waits = decision.waits.len();
    require(made <= MOST_MADE && waits <= MOST_WAITS, "ruling 26", || {
        format!("one pass makes {made} pods, and waits for {waits} things")
    })
}
