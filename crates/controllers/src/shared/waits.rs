//! What a pass waits for, each once.

use flotilla_model::{Wait, WaitCause};

/// Leaves out what two steps of a pass have said alike, as whoever updates a pod and whoever goes on with it wait for the same hook; and
/// that a pod is not ready, or in which state it is, where another wait says what keeps it out of service.
pub(crate) fn merge(waits: &mut Vec<Wait>) {
    let mut order: Vec<usize> = (0..waits.len()).collect();
    order.sort_by(|&a, &b| waits[a].subject.cmp(&waits[b].subject));
    let mut is_kept = vec![true; waits.len()];
    let groups = order.chunk_by(|&a, &b| waits[a].subject == waits[b].subject);
    for group in groups.filter(|group| group.len() > 1) {
        for (place, &index) in group.iter().enumerate() {
            let cause = &waits[index].cause;
            let is_repeated = group[..place].iter().any(|&other| waits[other].cause == *cause);
            let is_explained = is_bare(cause) && group.iter().any(|&other| keeps_out_of_service(&waits[other].cause));
            is_kept[index] = !is_repeated && !is_explained;
        }
    }
    let mut is_kept = is_kept.into_iter();
    waits.retain(|_| is_kept.next().unwrap_or(true));
}

/// Whether it says that a pod is not ready or does not count, and nothing of what for.
fn is_bare(cause: &WaitCause) -> bool {
    match cause {
        WaitCause::PodNotReady { reason, message } => reason.is_empty() && message.is_empty(),
        WaitCause::LifecycleState { .. } => true,
        _ => false,
    }
}

/// Whether it says for what a pod has been taken out of service.
fn keeps_out_of_service(cause: &WaitCause) -> bool {
    matches!(
        cause,
        WaitCause::HookHolds { .. }
            | WaitCause::HookLacks { .. }
            | WaitCause::InPlaceGrace { .. }
            | WaitCause::InPlaceBatch { .. }
            | WaitCause::InPlaceRestart { .. }
            | WaitCause::InPlaceEnvironment { .. }
            | WaitCause::InPlaceResize { .. }
            | WaitCause::InPlaceUnreadable
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use flotilla_model::Timestamp;

    #[test]
    fn each_is_told_once_and_what_explains_it_alone() {
        let bare = || WaitCause::PodNotReady {
            reason: String::new(),
            message: String::new(),
        };
        let unscheduled = || WaitCause::PodNotReady {
            reason: "Unschedulable".to_owned(),
            message: "no node".to_owned(),
        };
        let restart = || WaitCause::InPlaceRestart {
            container: "main".to_owned(),
            stays_ready: false,
        };
        let updating = || WaitCause::LifecycleState {
            state: "Updating".to_owned(),
        };
        let wait = |(subject, cause): (&str, WaitCause)| Wait {
            subject: subject.to_owned(),
            cause,
            since: Some(Timestamp::from_seconds(1)),
        };
        let mut waits: Vec<Wait> = [
            ("web-0", bare()),
            ("web-0", restart()),
            ("web-1", bare()),
            ("web-2", unscheduled()),
            ("web-2", restart()),
            ("web-3", updating()),
            ("web-3", restart()),
            ("web-4", updating()),
            ("web-0", restart()),
            ("web-1", bare()),
        ]
        .map(wait)
        .into();
        merge(&mut waits);
        let expected = [
            ("web-0", restart()),
            ("web-1", bare()),
            ("web-2", unscheduled()),
            ("web-2", restart()),
            ("web-3", restart()),
            ("web-4", updating()),
        ];
        assert_eq!(waits, expected.map(wait));
    }
}
