use super::*;
use crate::core::request::Refusal;
use crate::core::testing::pod;
use crate::wire::status::Status;
use crate::wire::{Object, Unreadable};
use flotilla_model::Uid;

const ON_ITS_WAY: Duration = Duration::from_secs(5);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_seconds(seconds)
}

fn object(version: u64) -> Answer {
    Answer::Object(Object::Pod(pod("a", version).record()))
}

fn lost() -> Answer {
    Answer::Lost("no answer".into())
}

fn unreadable() -> Answer {
    Answer::Unreadable(Unreadable {
        resource: Resource::Pods,
        key: None,
        reason: "not a pod".into(),
    })
}

fn refused(code: i32) -> Answer {
    let status = Status {
        code,
        ..Status::default()
    };
    Answer::Refused(Refusal {
        status,
        retry_after: None,
    })
}

fn change() -> Intent {
    Intent::Change(Uid::new("u"))
}

/// One that has found everything at version 10.
fn leader() -> LastWrites {
    let mut writes = LastWrites::default();
    writes.begin(None);
    writes.found(Resource::Pods, 10);
    writes
}

/// A write that is sent and answered at the same moment.
fn answered(writes: &mut LastWrites, intent: &Intent, answer: &Answer, at: Timestamp) {
    writes.answered(Resource::Pods, (intent, answer), (at, at), ON_ITS_WAY);
}

fn noted(writes: &LastWrites) -> Option<u64> {
    writes.note([Resource::Pods].into_iter())?.version(Resource::Pods)
}

#[test]
fn what_was_found_counts_until_something_later_is_written() {
    let mut writes = leader();
    assert_eq!(noted(&writes), Some(10));
    answered(&mut writes, &change(), &object(7), at(0));
    assert_eq!(noted(&writes), Some(10));
    answered(&mut writes, &change(), &object(12), at(0));
    answered(&mut writes, &Intent::Read, &object(99), at(0));
    answered(&mut writes, &Intent::Try, &Answer::Success, at(0));
    answered(&mut writes, &change(), &refused(409), at(0));
    assert_eq!(noted(&writes), Some(12));
    writes.told(Resource::Pods, 15);
    assert_eq!(noted(&writes), Some(15));
    let note = writes.note([Resource::Pods, Resource::Claims].into_iter());
    assert_eq!(note, None, "claims have not been found yet");
}

#[test]
fn nothing_is_noted_after_a_write_of_unknown_outcome_until_something_later_tells_a_version() {
    for (answer, until) in [(lost(), 5), (refused(504), 5), (Answer::Success, 0)] {
        for later in [until - 1, until] {
            let mut writes = leader();
            answered(&mut writes, &change(), &answer, at(0));
            assert_eq!(noted(&writes), None, "{answer:?}");
            answered(&mut writes, &change(), &object(20), at(later));
            let expected = (later == until).then_some(20);
            assert_eq!(noted(&writes), expected, "{answer:?}, another after {later} s");

            let mut writes = leader();
            answered(&mut writes, &change(), &answer, at(0));
            writes.listed(Resource::Pods, at(later), 20);
            assert_eq!(noted(&writes), expected, "{answer:?}, a list after {later} s");
        }
    }
}

#[test]
fn only_what_was_lost_may_yet_take_effect() {
    let mut writes = leader();
    for (intent, answer) in [
        (Intent::Read, lost()),
        (Intent::Try, Answer::Success),
        (change(), Answer::Success),
        (change(), unreadable()),
        (change(), Answer::Fenced),
        (change(), Answer::NotSent("no connection".into())),
        (change(), refused(409)),
        (Intent::Delete(Uid::new("u")), Answer::Success),
    ] {
        answered(&mut writes, &intent, &answer, at(0));
        assert_eq!(writes.lost_until(at(0)), None, "{intent:?} {answer:?}");
    }
    for (intent, noted_then) in [(Intent::Try, Some(10)), (change(), None)] {
        let mut writes = leader();
        answered(&mut writes, &intent, &lost(), at(0));
        assert_eq!(writes.lost_until(at(4)), Some(at(5)), "{intent:?}");
        assert_eq!(writes.lost_until(at(5)), None, "{intent:?}");
        assert_eq!(noted(&writes), noted_then, "{intent:?}");
    }
}

#[test]
fn a_note_is_carried_on() {
    let note = Note::read("3;pods=40,nodes=7", 3).expect("a note");
    let mut writes = LastWrites::default();
    writes.begin(Some(&note));
    answered(&mut writes, &change(), &object(30), at(0));
    assert_eq!(writes.note([Resource::Pods].into_iter()), Some(note));
    writes.begin(None);
    assert_eq!(noted(&writes), None, "it was that of another life");
}

#[test]
fn a_note_is_read_as_it_was_written_or_not_at_all() {
    let mut writes = leader();
    writes.found(Resource::NativeSets, 3);
    writes.found(Resource::AdvancedSets, u64::MAX);
    let note = writes.note([Resource::Pods].into_iter()).expect("a note");
    let text = "7;pods=10,statefulsets.apps=3,statefulsets.apps.kruise.io=18446744073709551615";
    assert_eq!(note.text(7), text);
    assert_eq!(Note::read(text, 7), Some(note));
    assert_eq!(Note::read(text, 8), None, "somebody has held the lease since");
    for text in [
        "",
        "7;",
        "pods=10",
        "7,pods=10",
        " 7;pods=10",
        "07;pods=10",
        "7;pods=10,",
        "7;pods=",
        "7;pods",
        "7;pods=-1",
        "7;pods=+1",
        "7;pods=01",
        "7;pods=1 ",
        "7;pods=18446744073709551616",
        "7;pods=1,pods=2",
        "7;statefulsets.apps=1,pods=2",
        "7;statefulsets=1",
        "7;ships=1",
        "7;pods=1;claims=2",
    ] {
        assert_eq!(Note::read(text, 7), None, "{text:?}");
    }
}

/// A clock that jumps brings no request to its end.
#[test]
fn what_may_take_effect_may_as_long_as_it_might_have_when_the_clock_is_set_ahead() {
    let mut writes = leader();
    answered(&mut writes, &change(), &lost(), at(0));
    writes.clock_was_set_ahead(Duration::from_secs(3600));
    assert_eq!(writes.lost_until(at(3604)), Some(at(3605)));
    writes.listed(Resource::Pods, at(3604), 20);
    assert_eq!(noted(&writes), None);
    writes.listed(Resource::Pods, at(3605), 20);
    assert_eq!((writes.lost_until(at(3605)), noted(&writes)), (None, Some(20)));
}
