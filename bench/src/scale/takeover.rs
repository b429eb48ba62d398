//! Leaders that go away: how long until a standby that knows everything writes for the first time.

use super::process::Process;
use super::stage::Stage;
use flotilla_e2e::clock;
use std::time::Duration;

/// Longest wait for a standby.
const PATIENCE: Duration = Duration::from_secs(120);

/// How a leader goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Going {
    /// Without a word: its lease has to run out.
    Killed,
    /// By SIGTERM: it gives the lease back.
    Gracefully,
}

/// Ends the leader, takes a pod of the set `index` away, and waits until the standby has made another. Returns the seconds from the signal
/// to that, and the standby, which leads now.
///
/// # Panics
/// When the one that was ended did not lead, or the other did.
pub(super) async fn take_over(
    stage: &Stage,
    (mut leader, standby): (Process, Process),
    going: Going,
    index: usize,
) -> (f64, Process) {
    let holds = async |process: &Process| process.numbers().await.sum("flotilla_lease_held") > 0.5;
    standby.ready().await;
    assert!(
        holds(&leader).await,
        "{} holds the lease before it is ended",
        leader.manager.name()
    );
    assert!(!holds(&standby).await, "{} is a standby", standby.manager.name());
    let set = &stage.sets[index];
    let begun = clock::now();
    match going {
        Going::Killed => leader.manager.kill(),
        Going::Gracefully => leader.manager.signal("TERM"),
    }
    if going == Going::Gracefully {
        // What it does until it has given the lease back is part of the figure; the pod must not be one that it still cares for.
        let status = leader.manager.ended(PATIENCE).await;
        assert!(
            status.success(),
            "the leader ended with {status}: {}",
            leader.manager.log()
        );
    }
    let lost_at = stage.lose(&set.pods[0]);
    let made_at = stage.until_created(set, lost_at, PATIENCE).await;
    assert!(holds(&standby).await, "{} leads now", standby.manager.name());
    (made_at.duration_since(begun).as_secs_f64(), standby)
}
