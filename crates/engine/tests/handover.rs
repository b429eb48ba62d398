//! from one leader to the next. Who leaves in order notes how far its writes went, and whoever has seen that much begins at once.

mod support;

use flotilla_api::names::{LAST_WRITES, LOOKS_AFTER};
use flotilla_controllers::statefulset::StatefulSetController;
use flotilla_engine::core::lease::LeaseCall;
use flotilla_engine::core::queue::Queue;
use flotilla_engine::core::request::{Answer, Call};
use flotilla_engine::core::{Core, Effect, WatchEvent};
use flotilla_engine::wire::lease::update_body;
use flotilla_model::{Resource, SetKind};
use serde_json::json;
use std::collections::BTreeSet;
use support::{World, at, kind_of, options_with_lease};

/// One of several managers.
struct Member {
    core: Core,
    /// What its watches have not told yet.
    news: Vec<WatchEvent>,
    /// Kinds whose watches tell nothing.
    lags: BTreeSet<Resource>,
    /// Kinds that it has asked to list, and when.
    lists: Vec<(i64, Resource)>,
    /// When it wrote.
    writes: Vec<i64>,
    /// The next so many writes take effect, and their answers are lost.
    loses: usize,
    is_dead: bool,
    /// It does nothing, and its watches go on.
    is_asleep: bool,
}

impl Member {
    /// When it has listed since then.
    fn lists_since(&self, moment: i64) -> Vec<(i64, Resource)> {
        let lists = self.lists.iter().filter(|(listed, _)| *listed >= moment);
        lists.copied().collect()
    }
}

/// Managers over one API server.
struct Lab {
    world: World,
    members: Vec<Member>,
}

const KINDS: usize = 5;

impl Lab {
    /// One leader, which has made two pods.
    fn new() -> Lab {
        let mut lab = Lab {
            world: World::quick(),
            members: Vec::new(),
        };
        lab.world.put_set("web", 2, "app:v1");
        lab.start("a");
        lab.go(3_000);
        assert_eq!(lab.world.pod_names(), ["web-0", "web-1"]);
        lab
    }

    /// The same with others that have watched for a while.
    fn with_standbys(names: &[&str]) -> Lab {
        let mut lab = Lab::new();
        for name in names {
            lab.start(name);
            lab.go(100);
        }
        lab.go(2_000);
        lab
    }

    fn start(&mut self, name: &str) {
        let controller = Box::new(StatefulSetController::new(SetKind::Native));
        self.members.push(Member {
            core: Core::new(options_with_lease(name), vec![controller], at(self.world.now)),
            news: Vec::new(),
            lags: BTreeSet::new(),
            lists: Vec::new(),
            writes: Vec::new(),
            loses: 0,
            is_dead: false,
            is_asleep: false,
        });
    }

    /// Everybody does what is due, and hears what comes of it, until nobody has anything to do at this moment.
    fn settle(&mut self) {
        let now = at(self.world.now);
        loop {
            let mut is_idle = true;
            self.spread();
            for member in self.members.iter_mut().filter(|member| !member.is_dead) {
                if !member.is_asleep {
                    member.core.advance(now);
                }
                let told = member
                    .news
                    .iter()
                    .filter(|event| !member.lags.contains(&kind_of(event)));
                let told: Vec<WatchEvent> = told.cloned().collect();
                member.news.retain(|event| member.lags.contains(&kind_of(event)));
                let effects = member.core.take_effects();
                is_idle &= told.is_empty() && effects.is_empty();
                for event in told {
                    member.core.watch(event, now);
                }
                for effect in effects {
                    carry_out(&mut self.world, member, effect);
                }
            }
            if is_idle && self.world.news.is_empty() {
                return;
            }
        }
    }

    /// What happens is told to everybody.
    fn spread(&mut self) {
        for event in std::mem::take(&mut self.world.news) {
            for member in &mut self.members {
                member.news.push(event.clone());
            }
        }
    }

    fn go(&mut self, millis: i64) {
        let end = self.world.now + millis;
        loop {
            self.settle();
            if self.world.now >= end {
                return;
            }
            let awake = self.members.iter().filter(|m| !m.is_dead && !m.is_asleep);
            let wakes = awake.filter_map(|m| m.core.next_wake(at(self.world.now)));
            let wake = wakes.map(|wake| wake.as_millis() - at(0).as_millis()).min();
            self.world.now = wake.unwrap_or(end).clamp(self.world.now + 1, end);
        }
    }

    fn leads(&self, member: usize) -> bool {
        self.members[member].core.holds_lease(at(self.world.now))
    }

    /// Goes on until this one leads; says when that began.
    fn until_it_leads(&mut self, member: usize) -> i64 {
        let latest = self.world.now + 30_000;
        self.settle();
        while !self.leads(member) {
            assert!(self.world.now < latest, "the lease is not taken over");
            self.go(1);
        }
        self.world.now
    }

    /// A manager ends in order. What it noted.
    fn leaves(&mut self, member: usize) -> String {
        self.members[member].core.begin_shutdown();
        self.settle();
        assert!(self.members[member].core.is_stopped());
        let lease = &self.world.lease.as_ref().expect("a lease").spec;
        assert_eq!(lease.holder, "");
        lease.last_writes.clone()
    }

    /// Somebody takes a pod away, and the leader makes it again.
    fn lose_a_pod(&mut self) {
        self.world.finish_deletion("web-1");
        self.go(1_000);
        assert!(self.world.pod_names().contains(&"web-1"));
    }

    /// This one leads since then: nothing was listed but this kind, after a second, and no pass began before.
    fn assert_waited_for(&self, member: usize, since: i64, kind: Resource) {
        let member = &self.members[member];
        assert_eq!(member.lists_since(since), [(since + 1_000, kind)]);
        let first = member.writes.iter().find(|at| **at >= since);
        assert!(first.is_some_and(|at| *at >= since + 1_000), "{first:?} since {since}");
    }
}

fn carry_out(world: &mut World, member: &mut Member, effect: Effect) {
    match effect {
        Effect::List(resource) => {
            member.lists.push((world.now, resource));
            member.news.retain(|event| kind_of(event) != resource);
            world.list(&mut member.core, resource);
        }
        Effect::Send(request) => {
            let is_write = request.call.needs_lease();
            if is_write {
                member.writes.push(world.now);
            }
            let is_lost = is_write && matches!(request.call, Call::Write(_)) && member.loses > 0;
            let mut answer = world.call(&request.call);
            if is_lost {
                member.loses -= 1;
                answer = Answer::Lost("no answer".into());
            }
            member.core.answer(request.id, answer, at(world.now));
        }
    }
}

#[test]
fn r_6_a_successor_that_has_seen_everything_lists_nothing_and_begins_within_a_second() {
    let mut lab = Lab::with_standbys(&["b"]);
    lab.lose_a_pod();
    let note = lab.leaves(0);
    for kind in [
        "pods=",
        "statefulsets.apps=",
        "controllerrevisions.apps=",
        "storageclasses",
    ] {
        assert!(note.contains(kind), "{note}");
    }
    let left = lab.world.now;
    lab.world.finish_deletion("web-0");
    let since = lab.until_it_leads(1);
    assert!(since <= left + 1_000, "taken over after {} ms", since - left);
    lab.go(10);
    assert_eq!(lab.members[1].lists_since(left), []);
    let first = lab.members[1].writes.first().copied();
    assert!(first.is_some_and(|at| at <= left + 1_000), "{first:?}");
    assert_eq!(lab.world.pod_names(), ["web-0", "web-1"]);
    assert_eq!(lab.world.lease.as_ref().expect("a lease").spec.last_writes, "");
}

#[test]
fn r_6_a_kind_whose_watch_has_not_come_so_far_is_listed_after_a_second_and_nothing_begins_before() {
    let mut lab = Lab::with_standbys(&["b"]);
    lab.members[1].lags.insert(Resource::Pods);
    lab.lose_a_pod();
    lab.leaves(0);
    lab.world.finish_deletion("web-0");
    let since = lab.until_it_leads(1);
    lab.go(2_000);
    lab.assert_waited_for(1, since, Resource::Pods);
    assert_eq!(lab.world.pod_names(), ["web-0", "web-1"]);
}

/// Else it would undo what its predecessor did because of an edit.
#[test]
fn r_6_a_successor_decides_by_no_less_than_its_predecessor() {
    let mut lab = Lab::with_standbys(&["b"]);
    lab.members[1].lags.insert(Resource::NativeSets);
    lab.world.put_set("other", 0, "app:v1");
    lab.spread();
    let now = at(lab.world.now);
    let leader = &mut lab.members[0];
    for event in std::mem::take(&mut leader.news) {
        leader.core.watch(event, now);
    }
    // It writes nothing about it.
    let note = lab.leaves(0);
    assert!(
        note.contains(&format!("statefulsets.apps={}", lab.world.version - 1)),
        "{note}"
    );
    let since = lab.until_it_leads(1);
    lab.go(2_000);
    lab.assert_waited_for(1, since, Resource::NativeSets);
}

#[test]
fn r_6_a_watch_that_comes_so_far_in_time_is_enough() {
    let mut lab = Lab::with_standbys(&["b"]);
    lab.members[1].lags.insert(Resource::Pods);
    lab.lose_a_pod();
    lab.leaves(0);
    lab.world.finish_deletion("web-0");
    let since = lab.until_it_leads(1);
    lab.go(500);
    assert!(lab.members[1].writes.is_empty(), "what web-1 is like is not known");
    lab.members[1].lags.clear();
    lab.go(100);
    assert!(!lab.members[1].writes.is_empty());
    assert_eq!(lab.members[1].lists_since(since), []);
}

#[test]
fn r_6_after_a_leader_that_does_not_leave_in_order_everything_is_listed() {
    let mut lab = Lab::with_standbys(&["b"]);
    lab.members[0].is_dead = true;
    let left = lab.world.now;
    let since = lab.until_it_leads(1);
    assert!(since > left + 10_000);
    lab.go(1);
    assert_eq!(lab.members[1].lists_since(since).len(), KINDS);
}

/// What the one before it wrote may be all that there is to see.
#[test]
fn r_6_a_leader_that_writes_nothing_notes_what_it_found() {
    for in_order in [true, false] {
        let mut lab = Lab::with_standbys(&["b", "c"]);
        lab.members[2].lags.insert(Resource::Pods);
        lab.lose_a_pod();
        let first = if in_order { lab.leaves(0) } else { String::new() };
        lab.members[0].is_dead = true;
        // The third one looks at the lease later.
        lab.members[2].is_asleep = true;
        lab.until_it_leads(1);
        lab.go(3_000);
        assert!(lab.members[1].writes.is_empty());
        // Of kinds that do not change, watches tell nothing else.
        let (now, version) = (at(lab.world.now), lab.world.version);
        for kind in options_with_lease("c").resources {
            if kind != Resource::Pods {
                lab.members[2].core.watch(WatchEvent::Bookmark(kind, version), now);
            }
        }
        let second = lab.leaves(1);
        let kinds = |note: &str| note.split_once(';').map(|(_, kinds)| kinds.to_owned());
        if in_order {
            assert_eq!(kinds(&second), kinds(&first));
        }
        assert!(second.contains("pods="), "{second}");
        lab.world.finish_deletion("web-0");
        lab.members[2].is_asleep = false;
        let since = lab.until_it_leads(2);
        lab.go(2_000);
        lab.assert_waited_for(2, since, Resource::Pods);
        assert_eq!(lab.world.pod_names(), ["web-0", "web-1"]);
    }
}

/// Seen: the successor had begun when the write took effect.
#[test]
fn r_6_the_lease_is_kept_while_a_lost_write_may_take_effect_and_then_nothing_is_noted() {
    let mut lab = Lab::with_standbys(&["b"]);
    lab.members[0].loses = 1;
    lab.world.finish_deletion("web-1");
    lab.settle();
    while lab.members[0].loses > 0 {
        lab.go(1);
    }
    let lost = lab.world.now;
    let lease = |lab: &Lab| lab.world.lease.as_ref().expect("a lease").spec.clone();
    lab.members[0].core.begin_shutdown();
    let renewed = lease(&lab).renewed;
    lab.go(4_990);
    assert!(!lab.members[0].core.is_stopped());
    assert!(lab.leads(0) && !lab.leads(1));
    assert_eq!(lease(&lab).holder, "a");
    assert!(
        lease(&lab).renewed.since(renewed).as_secs() >= 4,
        "renewals go on meanwhile"
    );
    while !lab.members[0].core.is_stopped() {
        lab.go(1);
    }
    assert_eq!(lab.world.now, lost + 5_000);
    assert_eq!(
        (lease(&lab).holder.as_str(), lease(&lab).last_writes.as_str()),
        ("", "")
    );
    let since = lab.until_it_leads(1);
    lab.go(1);
    assert_eq!(lab.members[1].lists_since(since).len(), KINDS);
}

#[test]
fn r_6_a_lost_write_is_forgotten_when_a_later_one_tells_a_version() {
    let mut lab = Lab::with_standbys(&["b"]);
    lab.members[0].loses = 1;
    lab.lose_a_pod();
    assert_eq!(lab.members[0].loses, 0);
    lab.go(5_000);
    lab.lose_a_pod();
    let note = lab.leaves(0);
    assert!(note.contains("pods="), "{note}");
}

/// The answer to a deletion that takes effect at once tells no version.
#[test]
fn r_6_what_was_deleted_is_noted_once_the_watch_has_told_of_it() {
    for lags in [false, true] {
        let mut lab = Lab::with_standbys(&["b"]);
        for image in 2..16 {
            lab.world.put_set("web", 2, &format!("app:v{image}"));
            if lags && image == 15 {
                lab.members[0].lags.insert(Resource::Revisions);
            }
            for _ in 0..10 {
                lab.go(500);
                let going = lab.world.pods.values().filter(|pod| pod.meta.deleted.is_some());
                for name in going.map(|pod| pod.name().to_owned()).collect::<Vec<_>>() {
                    lab.world.finish_deletion(&name);
                }
            }
        }
        assert_eq!(lab.world.revisions.len(), 11, "some were deleted");
        assert_eq!(lab.leaves(0).is_empty(), lags);
    }
}

/// A patch changes what it names and nothing else.
#[test]
fn r_6_a_renewal_takes_away_what_stands_on_the_lease() {
    let mut lab = Lab::new();
    lab.world.now += 2_000;
    let core = &mut lab.members[0].core;
    core.advance(at(lab.world.now));
    let renewals = core.take_effects().into_iter().filter_map(|effect| match effect {
        Effect::Send(request) => match request.call {
            Call::Lease(LeaseCall::Update { resource_version, spec }) => Some(update_body(resource_version, &spec)),
            _ => None,
        },
        Effect::List(_) => None,
    });
    let renewals: Vec<_> = renewals.collect();
    assert_eq!(renewals.len(), 1);
    assert_eq!(
        renewals[0]["metadata"]["annotations"],
        json!({LAST_WRITES: null, LOOKS_AFTER: "0;statefulsets.apps"})
    );
}

#[test]
fn r_6_a_note_that_nobody_can_read_or_that_is_old_is_none() {
    for old in [false, true] {
        let mut lab = Lab::with_standbys(&["b"]);
        lab.leaves(0);
        let lease = &mut lab.world.lease.as_mut().expect("a lease").spec;
        if old {
            // Somebody who does not know of notes has held the lease, and left it.
            lease.transitions += 1;
        } else {
            lease.last_writes.push('x');
        }
        let since = lab.until_it_leads(1);
        lab.go(1);
        assert_eq!(lab.members[1].lists_since(since).len(), KINDS, "{old}");
    }
}

/// Nobody takes keys from its queues: of what comes and goes meanwhile, none is to be left.
#[test]
fn a_standby_keeps_no_keys_of_what_has_come_and_gone() {
    let mut lab = Lab::with_standbys(&["b"]);
    let waiting = |lab: &Lab| lab.members[1].core.turns().queues().map(Queue::waiting).sum::<usize>();
    let before = waiting(&lab);
    assert!(before > 0, "sets that are there");
    for n in 0..50 {
        let name = format!("gone-{n}");
        lab.world.put_set(&name, 1, "app:v1");
        lab.go(1_000);
        assert!(waiting(&lab) > before, "{name} is there");
        let pod = format!("{name}-0");
        lab.world.finish_deletion(&pod);
        lab.world.lose_set(&name);
        lab.go(1_000);
    }
    assert_eq!(waiting(&lab), before);
    lab.leaves(0);
    lab.world.finish_deletion("web-0");
    lab.until_it_leads(1);
    lab.go(2_000);
    assert_eq!(lab.world.pod_names(), ["web-0", "web-1"]);
}

#[test]
fn r_6_a_standby_leaves_at_once() {
    let mut lab = Lab::with_standbys(&["b"]);
    lab.members[1].core.begin_shutdown();
    lab.settle();
    assert!(lab.members[1].core.is_stopped());
    assert!(lab.leads(0));
}
