//! What is said of claims, refusals, hooks, updates in place and CloneSets, and how lists and durations are said.

use super::WaitCause;
use crate::hints::Failure;
use flotilla_api::names;
use std::fmt;
use std::time::Duration;

/// What became of a request that failed for this reason.
fn what_became_of_it(reason: &str) -> &'static str {
    if reason == Failure::OUTCOME_UNKNOWN {
        "the request failed"
    } else {
        "the API server refused"
    }
}

impl WaitCause {
    /// What is said of a claim, or of what was refused or changed.
    pub(super) fn fmt_of_claims(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitCause::ClaimTerminating { used_by, finalizers } => claim_that_goes(f, used_by, finalizers),
            WaitCause::ClaimStale { owner, stays: false } => {
                write!(f, "the claim still belongs to the former {owner}, and goes with it")
            }
            WaitCause::ClaimStale { owner, stays: true } => {
                write!(
                    f,
                    "the claim still belongs to the former {owner}, and is taken from it first"
                )
            }
            WaitCause::ClaimsLeftBehind { pods } => {
                write!(
                    f,
                    "{pods} with claims that follow their templates only in a rolling update"
                )
            }
            WaitCause::ClaimExpanding => f.write_str("the claim is being expanded"),
            WaitCause::FileSystemPending { restart_at } => {
                f.write_str("its volume has grown, and its file system has yet to")?;
                match restart_at {
                    Some(at) => write!(f, "; if it does not by itself, its pod is made again at {at}"),
                    None => f.write_str("; its pod is not made again for that"),
                }
            }
            WaitCause::ClaimIncompatible { difference } => {
                write!(f, "the claim cannot follow its template: {difference}")
            }
            WaitCause::Refused {
                reason,
                message,
                retry_at,
            } => {
                labelled(f, what_became_of_it(reason), reason, message)?;
                next_try(f, *retry_at)
            }
            WaitCause::HeldBack { message } => write!(f, "is held back: {message}"),
            WaitCause::Repeated { message, retry_at } => write!(f, "held back: {message}; next try {retry_at}"),
            WaitCause::RevisionUntried => {
                f.write_str("the API server is asked whether it accepts pods of this revision")
            }
            WaitCause::RevisionUnproven {
                reason,
                message,
                retry_at,
                all_at_once,
            } => {
                labelled(f, WaitCause::why_unproven(reason, *all_at_once), reason, message)?;
                next_try(f, *retry_at)
            }
            WaitCause::RevisionRefused {
                reason,
                message,
                retry_at,
            } => {
                let what = "no pod is replaced: the API server does not accept pods of this revision";
                labelled(f, what, reason, message)?;
                next_try(f, *retry_at)
            }
            WaitCause::ChangedByOthers { difference } => {
                write!(f, "somebody changed it as it was made, and it is left so: {difference}")
            }
            other => other.fmt_in_place(f),
        }
    }

    /// What is said of a hook, a launch barrier or an update in place.
    fn fmt_in_place(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitCause::LifecycleState { state } => {
                let label = names::LIFECYCLE_STATE_LABEL;
                write!(
                    f,
                    "is ready, and does not count as available because of its label {label}={state}"
                )
            }
            WaitCause::HookLacks { hook, markers } => write!(f, "hook {hook} waits for {}", short_list(markers)),
            WaitCause::HookHolds {
                hook,
                markers,
                stays_ready,
            } => {
                write!(f, "hook {hook} holds it by {}", short_list(markers))?;
                if *stays_ready {
                    f.write_str(
                        ", and it is not marked not ready, as it was made without readiness gate KruisePodReady",
                    )?;
                }
                Ok(())
            }
            WaitCause::LaunchBarrier {
                container,
                barrier,
                key,
                behind,
            } => {
                write!(
                    f,
                    "container {container} waits for key {key} of its launch barrier, config map {barrier}"
                )?;
                match behind.as_slice() {
                    [] => Ok(()),
                    names => write!(f, ", which comes when {} can be used", short_list(names)),
                }
            }
            WaitCause::InPlaceGrace { remaining } => {
                write!(f, "out of service, and changed in place in {}", seconds(*remaining))
            }
            WaitCause::InPlaceBatch { containers } => {
                write!(f, "further containers change when {} are ready", short_list(containers))
            }
            WaitCause::InPlaceRestart { container, stays_ready } => {
                write!(f, "container {container} has not restarted with its new image")?;
                if *stays_ready {
                    f.write_str(", and it is not taken out of service for that, as it was made without readiness gate InPlaceUpdateReady")?;
                }
                Ok(())
            }
            WaitCause::InPlaceEnvironment { container } => {
                write!(f, "container {container} is not known to have its new environment")
            }
            WaitCause::InPlaceResize { message } => labelled(f, "its resources have not changed yet", "", message),
            WaitCause::ResizeInfeasible { message } => {
                labelled(f, "its node cannot give it its resources", "", message)
            }
            WaitCause::InPlaceNotPossible { reason } => labelled(f, "cannot be updated in place", "", reason),
            WaitCause::InPlaceUnreadable => f.write_str("its record of an update in place cannot be read"),
            WaitCause::InPlaceAbandoned { reason } => labelled(f, "has to be made again", "", reason),
            other => other.fmt_of_clones(f),
        }
    }

    /// What is said of CloneSets alone.
    fn fmt_of_clones(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitCause::KeepsAvailable { keep, available } => {
                write!(f, "is kept, since {available} pods are available and {keep} have to be")
            }
            WaitCause::Brake { unavailable } => {
                write!(f, "waits for {unavailable} updated pods to become available")
            }
            WaitCause::ClaimTemplateMissing { volume } => {
                write!(
                    f,
                    "its old template mounts {volume}, for which there is no claim template"
                )
            }
            WaitCause::SetTerminating { finalizers } => {
                f.write_str("is being deleted")?;
                held_by(f, finalizers)
            }
            WaitCause::NamespaceTerminating { message } => labelled(f, "is being deleted", "", message),
            // All others are said above.
            other => f.write_str(other.rule()),
        }
    }
}

fn claim_that_goes(f: &mut fmt::Formatter<'_>, used_by: &[String], finalizers: &[String]) -> fmt::Result {
    f.write_str("the claim is being deleted")?;
    if !used_by.is_empty() {
        write!(f, ", and used by pod {}", short_list(used_by))?;
    }
    held_by(f, finalizers)
}

/// What keeps an object that is being deleted, if anything does.
pub(super) fn held_by(f: &mut fmt::Formatter<'_>, finalizers: &[String]) -> fmt::Result {
    match finalizers {
        [] => Ok(()),
        [only] => write!(f, ", and held by finalizer {only}"),
        many => write!(f, ", and held by finalizers {}", short_list(many)),
    }
}

pub(super) fn labelled(f: &mut fmt::Formatter<'_>, what: &str, reason: &str, message: &str) -> fmt::Result {
    match (reason.is_empty(), message.is_empty()) {
        (true, true) => f.write_str(what),
        (true, false) => write!(f, "{what}: {message}"),
        (false, true) => write!(f, "{what}: {reason}"),
        (false, false) => write!(f, "{what}: {reason}: {message}"),
    }
}

/// When something refused is tried again, if that is known.
fn next_try(f: &mut fmt::Formatter<'_>, retry_at: Option<crate::Timestamp>) -> fmt::Result {
    retry_at.map_or(Ok(()), |at| write!(f, "; next try {at}"))
}

/// A duration in seconds with at most one decimal.
pub(super) fn seconds(duration: Duration) -> String {
    let tenths = duration.as_millis().div_ceil(100);
    if tenths.is_multiple_of(10) {
        format!("{} s", tenths / 10)
    } else {
        format!("{}.{} s", tenths / 10, tenths % 10)
    }
}

/// Who uses up a budget: these pods, or such as are yet to be made and have no name.
pub(super) fn takers(names: &[String]) -> String {
    if names.is_empty() {
        "pods that are not there yet".to_owned()
    } else {
        short_list(names)
    }
}

/// The first five names, and how many more.
pub(super) fn short_list(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let head = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => head,
        more => format!("{head} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use crate::wait::WaitCause;

    /// Every replica is yet to be made, and the API server refuses: no pod can be named.
    #[test]
    fn a_budget_that_no_pod_there_uses_is_said_whole() {
        let (budget, used_by) = (2, Vec::new());
        let words = WaitCause::ScaleBudget { budget, used_by }.to_string();
        assert_eq!(
            words,
            "scaling budget of 2 unavailable used up by pods that are not there yet"
        );
    }
}
