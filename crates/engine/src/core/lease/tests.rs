use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_seconds(seconds)
}

/// The Lease object of a pretended server.
#[derive(Default)]
struct Server {
    record: Option<LeaseRecord>,
    version: u64,
}

impl Server {
    fn call(&mut self, call: LeaseCall) -> LeaseReply {
        match call {
            LeaseCall::Get => self.record.clone().map_or(LeaseReply::Missing, LeaseReply::Found),
            LeaseCall::Create(_) if self.record.is_some() => LeaseReply::Conflict,
            LeaseCall::Create(spec) => self.store(spec),
            LeaseCall::Update { resource_version, spec } => match &self.record {
                None => LeaseReply::Missing,
                Some(r) if r.resource_version != resource_version => LeaseReply::Conflict,
                Some(_) => self.store(spec),
            },
        }
    }

    fn store(&mut self, spec: LeaseSpec) -> LeaseReply {
        self.version += 1;
        let record = LeaseRecord {
            resource_version: self.version,
            spec,
        };
        self.record = Some(record.clone());
        LeaseReply::Found(record)
    }
}

/// Polls and answers at `now` until the elector has nothing more to do then.
fn run(elector: &mut Elector, server: &mut Server, now: Timestamp) {
    while let Some(call) = elector.poll(now) {
        elector.answer(server.call(call), now);
    }
}

fn elector(name: &str) -> Elector {
    Elector::new(name.into(), LeaseTimes::default(), at(0))
}

#[test]
fn a_free_lease_is_taken_and_renewed() {
    let (mut a, mut server) = (elector("a"), Server::default());
    run(&mut a, &mut server, at(0));
    assert_eq!(a.role(at(0)), Role::Leader);
    assert_eq!(a.next_wake(), Some(at(2)));
    run(&mut a, &mut server, at(2));
    assert_eq!(a.fence(), Some(at(12)));
    assert_eq!(server.record.unwrap().spec.acquired, at(0));
}

#[test]
fn a_rival_waits_until_it_has_seen_the_record_unchanged_for_its_duration() {
    let (mut a, mut b, mut server) = (elector("a"), elector("b"), Server::default());
    run(&mut a, &mut server, at(0));
    run(&mut b, &mut server, at(5));
    for second in 6..20 {
        run(&mut b, &mut server, at(second));
        assert_eq!(
            b.role(at(second)),
            Role::Standby,
            "second {second}: first seen at 5, lasts 15"
        );
    }
    run(&mut b, &mut server, at(20));
    assert_eq!(b.role(at(20)), Role::Leader);
    assert_eq!(server.record.as_ref().unwrap().spec.transitions, 1);
    assert_eq!(a.role(at(20)), Role::Standby, "its deadline passed long before");
    run(&mut a, &mut server, at(20));
    assert_eq!(a.holder(), Some("b"));
}

#[test]
fn a_stopped_process_may_not_write_when_it_continues() {
    let (mut a, mut server) = (elector("a"), Server::default());
    run(&mut a, &mut server, at(0));
    assert!(a.fence().is_some_and(|fence| at(9) < fence));
    assert!(
        a.fence().is_some_and(|fence| at(60) >= fence),
        "no poll happened in between"
    );
    assert_eq!(a.role(at(60)), Role::Standby);
}

#[test]
fn the_hold_counts_from_the_start_of_the_renewal() {
    let (mut a, mut server) = (elector("a"), Server::default());
    run(&mut a, &mut server, at(0));
    let call = a.poll(at(2)).unwrap();
    let reply = server.call(call);
    a.answer(reply, at(6));
    assert_eq!(a.fence(), Some(at(12)));
}

#[test]
fn an_unanswered_renewal_is_read_before_it_is_repeated() {
    let (mut a, mut server) = (elector("a"), Server::default());
    run(&mut a, &mut server, at(0));
    let call = a.poll(at(2)).unwrap();
    server.call(call);
    a.answer(LeaseReply::Failed, at(3));
    assert_eq!(a.role(at(3)), Role::Leader);
    assert_eq!(a.poll(at(4)), Some(LeaseCall::Get));
    a.answer(server.call(LeaseCall::Get), at(4));
    run(&mut a, &mut server, at(4));
    assert_eq!(a.fence(), Some(at(14)));
}

#[test]
fn renewals_that_fail_until_the_deadline_end_the_leadership() {
    let (mut a, mut server) = (elector("a"), Server::default());
    run(&mut a, &mut server, at(0));
    for second in 2..=10 {
        if a.poll(at(second)).is_some() {
            a.answer(LeaseReply::Failed, at(second));
        }
    }
    assert_eq!(a.role(at(10)), Role::Standby);
    assert_eq!(a.fence(), None);
}

#[test]
fn of_two_that_start_together_one_wins() {
    let (mut a, mut b, mut server) = (elector("a"), elector("b"), Server::default());
    for elector in [&mut a, &mut b] {
        let call = elector.poll(at(0)).unwrap();
        elector.answer(server.call(call), at(0));
    }
    run(&mut a, &mut server, at(0));
    run(&mut b, &mut server, at(0));
    assert_eq!((a.role(at(0)), b.role(at(0))), (Role::Leader, Role::Standby));
}

#[test]
fn a_released_lease_is_taken_at_the_next_look() {
    let (mut a, mut b, mut server) = (elector("a"), elector("b"), Server::default());
    run(&mut a, &mut server, at(0));
    run(&mut b, &mut server, at(0));
    a.release(None, at(1));
    assert_eq!(a.fence(), None);
    run(&mut a, &mut server, at(1));
    assert!(a.is_released());
    run(&mut b, &mut server, at(1));
    assert_eq!(b.role(at(1)), Role::Leader);
}

#[test]
fn a_release_waits_for_the_renewal_on_its_way() {
    let (mut a, mut server) = (elector("a"), Server::default());
    run(&mut a, &mut server, at(0));
    let renewal = a.poll(at(2)).unwrap();
    a.release(None, at(2));
    assert_eq!(a.poll(at(2)), None);
    a.answer(server.call(renewal), at(2));
    run(&mut a, &mut server, at(2));
    assert!(a.is_released());
    assert_eq!(server.record.unwrap().spec.holder, "");
}

#[test]
fn a_standby_releases_at_once() {
    let mut b = elector("b");
    b.release(None, at(0));
    assert!(b.is_released());
}

fn note(text: &str, transitions: i32) -> Note {
    Note::read(text, transitions).expect("a note")
}

fn noted(server: &Server) -> &str {
    &server.record.as_ref().expect("a lease").spec.last_writes
}

#[test]
fn what_is_noted_on_the_release_is_told_to_the_next_holder_and_taken_away() {
    let (mut a, mut b, mut server) = (elector("a"), elector("b"), Server::default());
    run(&mut a, &mut server, at(0));
    run(&mut b, &mut server, at(0));
    assert_eq!(a.take_note(), None);
    a.release(Some(note("0;pods=5", 0)), at(1));
    run(&mut a, &mut server, at(1));
    assert_eq!(noted(&server), "0;pods=5");
    run(&mut b, &mut server, at(1));
    assert_eq!((b.role(at(1)), noted(&server)), (Role::Leader, ""));
    assert_eq!(b.take_note(), Some(note("1;pods=5", 1)));
    assert_eq!(b.take_note(), None, "once");
}

/// Whoever does not know of notes leaves them where they are: by how often the lease changed hands they are known to be old.
#[test]
fn a_note_counts_for_the_record_on_which_it_was_left() {
    let free = LeaseSpec {
        transitions: 4,
        last_writes: "4;pods=5".into(),
        ..LeaseSpec::default()
    };
    let stored = |change: fn(&mut LeaseSpec)| {
        let mut spec = free.clone();
        change(&mut spec);
        let mut server = Server::default();
        server.store(spec);
        let mut b = elector("b");
        for second in [0, 60] {
            run(&mut b, &mut server, at(second));
            if b.role(at(second)) == Role::Leader {
                assert_eq!(noted(&server), "");
                return b.take_note();
            }
        }
        panic!("the lease is not taken")
    };
    assert!(stored(|_| {}).is_some());
    assert_eq!(stored(|spec| spec.holder = "a".into()), None, "it was not released");
    assert_eq!(stored(|spec| spec.holder = "b".into()), None, "we held it before");
    assert_eq!(stored(|spec| spec.transitions = 5), None, "another held it since");
    assert_eq!(stored(|spec| spec.last_writes = "4;pods=x".into()), None);
}

#[test]
fn a_takeover_that_is_not_answered_inherits_nothing() {
    let (mut b, mut server) = (elector("b"), Server::default());
    server.store(LeaseSpec {
        last_writes: "0;pods=5".into(),
        ..LeaseSpec::default()
    });
    b.poll(at(0));
    b.answer(server.call(LeaseCall::Get), at(0));
    let takeover = b.poll(at(0)).expect("the lease is free");
    server.call(takeover);
    b.answer(LeaseReply::Failed, at(4));
    run(&mut b, &mut server, at(5));
    assert_eq!((b.role(at(5)), b.take_note()), (Role::Leader, None));
}

#[test]
fn a_renewal_takes_away_what_somebody_noted() {
    let (mut a, mut server) = (elector("a"), Server::default());
    run(&mut a, &mut server, at(0));
    let renewal = a.poll(at(2)).expect("a renewal");
    server.call(renewal);
    // Somebody sees to it that it is stored with a note.
    let record = server.record.as_mut().expect("a lease");
    record.spec.last_writes = "0;pods=5".into();
    a.answer(LeaseReply::Found(record.clone()), at(2));
    run(&mut a, &mut server, at(4));
    assert_eq!((noted(&server), a.fence()), ("", Some(at(14))));
    assert_eq!(a.take_note(), None);
}
