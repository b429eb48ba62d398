use super::*;
use crate::memory::{INITIAL_DELAY, RESTARTS_MAX};
use crate::{Decision, Memory, Reason, View, decide};
use std::time::Duration;

fn decided(pod: &Pod, told: &[Told], memory: &Memory, now: Timestamp) -> Decision {
    decide(View { pod, told, memory, now })
}

/// A memory in which this container was found to have the environment with `ROLE` as it is here.
fn has_read(id: &str, role: &str) -> Memory {
    let mut memory = Memory::default();
    memory.has_read(id, containers_meta::env_hash([("ROLE", role)]));
    memory
}

fn reasons(decision: &Decision) -> Vec<Reason> {
    decision.holds.iter().map(|hold| hold.reason).collect()
}

fn note(decision: &Decision) -> Vec<ContainerMeta> {
    containers_meta::parse(decision.note.as_deref().expect("a note"))
}

#[test]
fn agt_8_3_environments_are_read_before_anything_is_noted() {
    let (pod, told) = (pod("a"), [told("containerd://1", "app:v1")]);
    let first = decided(&pod, &told, &Memory::default(), at(0));
    assert_eq!(
        (first.read.as_slice(), &first.note),
        (&["containerd://1".to_owned()][..], &None)
    );
    let second = decided(&pod, &told, &has_read("containerd://1", "a"), at(0));
    assert!(second.read.is_empty() && second.restart.is_empty());
    assert_eq!(note(&second), [entry("containerd://1", Some("a"))]);
}

#[test]
fn agt_8_3_the_newest_container_of_a_name_counts() {
    let old = Told {
        created_at: 1,
        state: State::Exited,
        ..told("containerd://0", "app:v1")
    };
    let all = [old.clone(), told("containerd://1", "app:v1"), old];
    let decision = decided(&pod("a"), &all, &has_read("containerd://1", "a"), at(0));
    assert_eq!(note(&decision)[0].container_id, "containerd://1");
}

#[test]
fn agt_8_3_what_is_noted_of_the_same_container_stays() {
    // Also if an agent of another make read it otherwise.
    let pod = noted(pod("a"), &[entry("containerd://1", Some("a"))]);
    let decision = decided(&pod, &[told("containerd://1", "app:v1")], &Memory::default(), at(0));
    assert_eq!(decision.note, None);
    assert!(decision.read.is_empty() && decision.restart.is_empty() && decision.holds.is_empty());
}

#[test]
fn agt_8_3_a_status_that_lags_behind_changes_nothing_yet() {
    let pod = noted(pod("b"), &[entry("containerd://1", Some("a"))]);
    let decision = decided(&pod, &[told("containerd://2", "app:v1")], &Memory::default(), at(0));
    assert_eq!(reasons(&decision), [Reason::StatusIsOld]);
    assert!(decision.note.is_none() && decision.read.is_empty() && decision.restart.is_empty());
}

#[test]
fn agt_8_3_a_runtime_that_knows_nothing_changes_nothing() {
    let pod = noted(pod("a"), &[entry("containerd://1", Some("a"))]);
    assert_eq!(decided(&pod, &[], &Memory::default(), at(0)), Decision::default());
}

#[test]
fn agt_8_2_pods_that_are_not_concerned_are_left_alone() {
    for change in [
        |pod: &mut Pod| pod.is_concerned = false,
        |pod: &mut Pod| pod.containers[0].id.clear(),
    ] {
        let mut pod = pod("b");
        change(&mut pod);
        let told = [told("containerd://1", "app:v1")];
        let decision = decided(&pod, &told, &has_read("containerd://1", "a"), at(99));
        assert_eq!(decision, Decision::default());
    }
}

#[test]
fn agt_8_4_no_variables_need_no_look() {
    let mut pod = pod("a");
    pod.containers[0].environment.clear();
    let decision = decided(&pod, &[told("containerd://1", "app:v1")], &Memory::default(), at(0));
    assert!(decision.read.is_empty());
    assert_eq!(note(&decision)[0].env_hash, Some(86_995_377));
}

#[test]
fn agt_8_4_what_cannot_be_read_is_noted_without_and_tried_again_later_and_later() {
    let (pod, told) = (pod("a"), [told("containerd://1", "app:v1")]);
    let mut memory = Memory::default();
    let mut now = at(0);
    for delay in [3, 6, 12, 24, 48, 60, 60] {
        memory.could_not_read("containerd://1", now);
        let decision = decided(&pod, &told, &memory, now);
        assert_eq!(note(&decision)[0].env_hash, None);
        assert_eq!(reasons(&decision), [Reason::Unread]);
        assert_eq!(decision.again_at(), Some(now + Duration::from_secs(delay)));
        now = now + Duration::from_secs(delay);
        assert_eq!(decided(&pod, &told, &memory, now).read.len(), 1);
    }
}

#[test]
fn agt_8_4_only_a_container_that_runs_is_read() {
    let ended = Told {
        state: State::Exited,
        ..told("containerd://1", "app:v1")
    };
    let decision = decided(&pod("a"), &[ended], &Memory::default(), at(0));
    assert!(decision.read.is_empty());
    assert_eq!(note(&decision)[0].env_hash, None);
}

/// What stands in the way of a restart at a moment; nothing if it happens.
struct Row {
    what: &'static str,
    change: fn(&mut Pod, &mut Told, &mut Memory),
    after: i64,
    held: Option<Reason>,
}

#[test]
fn agt_8_5_guards() {
    let same: fn(&mut Pod, &mut Told, &mut Memory) = |_, _, _| ();
    let other_image: fn(&mut Pod, &mut Told, &mut Memory) = |pod, _, _| pod.containers[0].image = "app:v2".to_owned();
    let rows = [
        Row {
            what: "the kubelet has a moment",
            change: same,
            after: 2,
            held: Some(Reason::Delay),
        },
        Row {
            what: "then it is restarted",
            change: same,
            after: 3,
            held: None,
        },
        Row {
            what: "the kubelet restarts it for its image",
            change: other_image,
            after: 59,
            held: Some(Reason::ImageFirst),
        },
        Row {
            what: "which does not take forever",
            change: other_image,
            after: 60,
            held: None,
        },
        Row {
            what: "in service",
            change: |pod, _, _| pod.is_out_of_service = false,
            after: 3,
            held: Some(Reason::InService),
        },
        Row {
            what: "it would stay down",
            change: |pod, _, _| pod.containers[0].always_restarts = false,
            after: 3,
            held: Some(Reason::WouldNotRestart),
        },
        Row {
            what: "it is down already",
            change: |_, told, _| told.state = State::Exited,
            after: 3,
            held: Some(Reason::NotRunning),
        },
        Row {
            what: "restarted too often for this revision",
            change: |_, _, memory| {
                (0..RESTARTS_MAX).for_each(|_| memory.is_stopping("main", "containerd://0", "new", at(0)));
            },
            after: 3,
            held: Some(Reason::GivenUp),
        },
        Row {
            what: "as often for another revision",
            change: |_, _, memory| {
                (0..RESTARTS_MAX).for_each(|_| memory.is_stopping("main", "containerd://0", "old", at(0)));
            },
            after: 3,
            held: None,
        },
    ];
    for row in rows {
        let mut pod = noted(pod("b"), &[entry("containerd://1", Some("a"))]);
        let mut told = told("containerd://1", "app:v1");
        let mut memory = Memory::default();
        (row.change)(&mut pod, &mut told, &mut memory);
        let first = decided(&pod, std::slice::from_ref(&told), &memory, at(0));
        assert!(first.restart.is_empty(), "{}: never at once", row.what);
        memory.take(&first, at(0));
        let then = decided(&pod, &[told], &memory, at(row.after));
        assert_eq!(then.restart.is_empty(), row.held.is_some(), "{}", row.what);
        assert_eq!(reasons(&then), Vec::from_iter(row.held), "{}", row.what);
        assert!(then.note.is_none(), "{}", row.what);
    }
}

#[test]
fn agt_8_5_delays_count_from_when_it_matters() {
    // Somebody changed the label long before the update, which begins with another image.
    let told = [told("containerd://1", "app:v1")];
    let mut pod = noted(pod("b"), &[entry("containerd://1", Some("a"))]);
    pod.is_out_of_service = false;
    let mut memory = Memory::default();
    memory.take(&decided(&pod, &told, &memory, at(0)), at(0));
    pod.is_out_of_service = true;
    pod.containers[0].image = "app:v2".to_owned();
    let begun = decided(&pod, &told, &memory, at(100));
    assert_eq!(reasons(&begun), [Reason::ImageFirst]);
    memory.take(&begun, at(100));
    // It is overtaken by a further one.
    pod.containers[0].image = "app:v3".to_owned();
    let overtaken = decided(&pod, &told, &memory, at(159));
    memory.take(&overtaken, at(159));
    assert_eq!(reasons(&decided(&pod, &told, &memory, at(161))), [Reason::ImageFirst]);
}

#[test]
fn agt_8_5_restarts_get_rarer_and_end() {
    let pod = noted(pod("b"), &[entry("containerd://1", Some("a"))]);
    let told = [told("containerd://1", "app:v1")];
    let mut memory = Memory::default();
    memory.take(&decided(&pod, &told, &memory, at(0)), at(0));
    let mut now = at(0) + INITIAL_DELAY;
    for delay in [6, 12, 24] {
        let decision = decided(&pod, &told, &memory, now);
        assert_eq!(decision.restart.len(), 1);
        assert_eq!(memory.take(&decision, now), Vec::<String>::new());
        memory.is_stopping("main", "containerd://1", "new", now);
        let held = decided(&pod, &told, &memory, now + Duration::from_secs(delay - 1));
        assert!(held.restart.is_empty());
        now = now + Duration::from_secs(delay);
    }
    let given_up = decided(&pod, &told, &memory, now);
    assert_eq!(reasons(&given_up), [Reason::GivenUp]);
    assert_eq!(memory.take(&given_up, now), ["main"], "told");
    assert_eq!(memory.take(&given_up, now), Vec::<String>::new(), "once");
}

#[test]
fn agt_8_5_a_container_that_came_up_as_asked_is_forgotten() {
    let old = noted(pod("b"), &[entry("containerd://1", Some("a"))]);
    let mut memory = Memory::default();
    memory.take(
        &decided(&old, &[told("containerd://1", "app:v1")], &memory, at(0)),
        at(0),
    );
    let mut new = old.clone();
    new.containers[0].id = "containerd://2".to_owned();
    let all = [told("containerd://2", "app:v1")];
    memory.has_read("containerd://2", containers_meta::env_hash([("ROLE", "b")]));
    let decision = decided(&new, &all, &memory, at(4));
    assert_eq!(note(&decision), [entry("containerd://2", Some("b"))]);
    assert!(decision.restart.is_empty() && decision.holds.is_empty());
    memory.take(&decision, at(4));
    assert_eq!(memory.mismatch("containerd://1"), None);
}

#[test]
fn agt_8_2_containers_are_matched_by_name() {
    let mut pod = pod("a");
    let side = Container {
        name: "aside".to_owned(),
        image: "pause:1".to_owned(),
        id: "containerd://9".to_owned(),
        always_restarts: true,
        environment: Vec::new(),
    };
    pod.containers.push(side);
    let other = Told {
        name: "aside".to_owned(),
        ..told("containerd://9", "x")
    };
    let all = [other, told("containerd://1", "app:v1")];
    let noted_first = note(&decided(&pod, &all, &has_read("containerd://1", "a"), at(0)));
    let ids: Vec<_> = noted_first
        .iter()
        .map(|c| (c.name.as_str(), c.container_id.as_str()))
        .collect();
    assert_eq!(ids, [("main", "containerd://1"), ("aside", "containerd://9")]);
    pod.containers[0].id.clear();
    assert_eq!(pod.runtime(), Some("containerd"), "the first ID that is not empty");
}
