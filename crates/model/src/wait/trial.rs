//! What the refusal of a pod on trial says of its revision.

use super::WaitCause;
use crate::hints::Failure;
use crate::set::{SetRecord, UpdateKind};
use crate::template::quantity_in_billionths;
use crate::time::Timestamp;
use std::collections::BTreeMap;

impl WaitCause {
    /// What is waited for once the API server has refused a pod of a revision on trial. A quota that is full says nothing against a pod
    /// that takes the room of the one it replaces, and a webhook that is not asked on trial says nothing at all: then it is unproven
    /// whether such pods are accepted.
    pub fn of_refused_trial(reason: String, message: String, retry_at: Option<Timestamp>) -> WaitCause {
        let is_unproven = match reason.as_str() {
            Failure::QUOTA_EXCEEDED => !is_beyond_any_room(&message),
            Failure::NO_DRY_RUN => true,
            _ => false,
        };
        if is_unproven {
            WaitCause::RevisionUnproven {
                reason,
                message,
                retry_at,
                all_at_once: false,
            }
        } else {
            WaitCause::RevisionRefused {
                reason,
                message,
                retry_at,
            }
        }
    }

    /// The same, where it is a set like this one that waits for it: some take all pods at once.
    #[must_use]
    pub fn for_set(mut self, set: &SetRecord) -> WaitCause {
        if let WaitCause::RevisionUnproven { all_at_once, .. } = &mut self {
            *all_at_once = set.spec.update == UpdateKind::Recreate && !set.spec.is_paused();
        }
        self
    }

    /// Why no pod goes for a revision that is unproven, or which may all the same.
    pub fn why_unproven(reason: &str, all_at_once: bool) -> &'static str {
        match (all_at_once, reason == Failure::QUOTA_EXCEEDED) {
            (false, _) => {
                "one pod is replaced at first, and no other before its successor is there: a pod on trial was refused"
            }
            (true, true) => "all pods are replaced at once, and only while none is missing: a pod on trial was refused",
            (true, false) => {
                "no pod is replaced, as all would go before a new one shows whether such pods are accepted: a pod on trial was refused"
            }
        }
    }
}

/// Whether a whole quota is smaller than what was requested, by its words: `exceeded quota: NAME, requested: cpu=2, used: cpu=7, limited:
/// cpu=1`.
fn is_beyond_any_room(message: &str) -> bool {
    let amounts = |field: &str| -> BTreeMap<&str, i128> {
        let rest = message.split_once(field).map_or("", |(_, rest)| rest);
        let list = rest.split_once(": ").map_or(rest, |(list, _)| list);
        let pairs = list.split(',').filter_map(|pair| pair.trim().split_once('='));
        pairs
            .filter_map(|(name, amount)| Some((name, quantity_in_billionths(amount)?)))
            .collect()
    };
    let (requested, limited) = (amounts("requested: "), amounts("limited: "));
    requested
        .iter()
        .any(|(name, amount)| limited.get(name).is_some_and(|limit| amount > limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_31_what_is_more_than_the_whole_quota_is_refused_and_a_full_one_proves_nothing() {
        let (memory, cpu) = ("limits.memory=2000Mi,pods=1", "limits.memory=1Gi,requests.cpu=1");
        for (requested, used, limited, is_refused) in [
            ("pods=1", "pods=4", "pods=4", false),
            ("pods=1", "pods=0", "pods=0", true),
            ("limits.memory=2Gi,pods=1", memory, "limits.memory=1Gi,pods=8", true),
            (
                "limits.memory=512Mi,requests.cpu=1500m",
                cpu,
                "limits.memory=1Gi,requests.cpu=2",
                false,
            ),
        ] {
            let words = format!(
                "pods \"web-0\" is forbidden: exceeded quota: small, requested: {requested}, used: {used}, limited: {limited}"
            );
            let cause = WaitCause::of_refused_trial("QuotaExceeded".to_owned(), words, None);
            assert_eq!(
                matches!(cause, WaitCause::RevisionRefused { .. }),
                is_refused,
                "{cause:?}"
            );
        }
    }
}
