//! Webhooks that hang for one namespace: others are served as if nothing had happened, but for the second in which it becomes known.

mod support;

use flotilla_controllers::statefulset::StatefulSetController;
use flotilla_engine::core::request::{Answer, Call, Request};
use flotilla_engine::core::{Core, CoreOptions, Effect};
use flotilla_model::{Command, ObjectKey, Resource, SetKind};
use std::collections::BTreeMap;
use support::{World, at, options, refuse_with};

/// For how long a webhook may hang: the API server does not wait longer.
const HANGS_MS: i64 = 30_000;
/// What a request takes that nobody holds up.
const QUICK_MS: i64 = 5;

/// An API server that takes its time.
struct Slow {
    world: World,
    core: Core,
    /// By when they are answered.
    pending: BTreeMap<(i64, u64), Request>,
    sent: u64,
    /// Most writes of one namespace that hung at the same time.
    most_hanging: usize,
}

impl Slow {
    fn new() -> Self {
        let options = CoreOptions {
            workers: 8,
            ..options("one")
        };
        let controller = StatefulSetController::new(SetKind::Native);
        Slow {
            world: World::quick(),
            core: Core::new(options, vec![Box::new(controller)], at(0)),
            pending: BTreeMap::new(),
            sent: 0,
            most_hanging: 0,
        }
    }

    fn run_for(&mut self, millis: i64, hangs: impl Fn(&Call) -> bool) {
        let end = self.world.now + millis;
        loop {
            self.world.deliver_news(&mut self.core);
            self.core.advance(at(self.world.now));
            let effects = self.core.take_effects();
            let is_idle = effects.is_empty();
            for effect in effects {
                match effect {
                    Effect::List(resource) => self.world.list(&mut self.core, resource),
                    Effect::Send(request) => {
                        let takes = if hangs(&request.call) { HANGS_MS } else { QUICK_MS };
                        self.sent += 1;
                        self.pending.insert((self.world.now + takes, self.sent), request);
                    }
                }
            }
            let hanging = self.pending.values().filter(|request| hangs(&request.call)).count();
            self.most_hanging = self.most_hanging.max(hanging);
            if !is_idle {
                continue;
            }
            let wake = self.core.next_wake(at(self.world.now));
            let wake = wake.map(|wake| wake.as_millis() - at(0).as_millis());
            let answer = self.pending.first_key_value().map(|((due, _), _)| *due);
            let next = wake.into_iter().chain(answer).min().unwrap_or(end).min(end);
            assert!(next >= self.world.now, "a wake-up in the past");
            if next == end {
                break;
            }
            self.world.now = next;
            while let Some(due) = self
                .pending
                .first_entry()
                .filter(|first| first.key().0 <= self.world.now)
            {
                let request = due.remove();
                let answer = if hangs(&request.call) {
                    timed_out()
                } else {
                    self.world.call(&request.call)
                };
                self.core.answer(request.id, answer, at(self.world.now));
            }
        }
        self.world.now = end;
    }

    /// Scales a set up, and says how long it takes until the new pod is there.
    fn growth_takes(&mut self, key: &ObjectKey, replicas: i32, hangs: impl Fn(&Call) -> bool + Copy) -> i64 {
        let begin = self.world.now;
        self.world.put_set_of("Parallel", key, replicas, "app:v1");
        let newest = ObjectKey::new(&*key.namespace, format!("{}-{}", key.name, replicas - 1));
        while !self.world.pods.contains_key(&newest) {
            assert!(self.world.now < begin + 20_000, "{newest} is not made");
            self.run_for(5, hangs);
        }
        self.world.now - begin
    }
}

/// What the API server answers when a webhook did not.
fn timed_out() -> Answer {
    let text = "Internal error occurred: failed calling webhook \"x.example.com\": context deadline exceeded";
    refuse_with(500, "InternalError", text)
}

fn creates_pods_of(namespace: &'static str) -> impl Fn(&Call) -> bool + Copy {
    move |call| {
        let is_pod = |resource: &Resource| *resource == Resource::Pods;
        matches!(call, Call::Write(Command::Create { resource, key, .. }) if is_pod(resource) && *key.namespace == *namespace)
    }
}

#[test]
fn a_webhook_that_hangs_for_one_namespace_holds_up_others_for_a_second_once() {
    let mut slow = Slow::new();
    let hangs = creates_pods_of("bad");
    let good = ObjectKey::new("good", "web");
    slow.world.put_set_of("Parallel", &good, 1, "app:v1");
    slow.run_for(5_000, hangs);
    for n in 0..64 {
        let key = ObjectKey::new("bad", format!("bad-{n}"));
        slow.world.put_set_of("Parallel", &key, 20, "app:v1");
    }
    let first: i64 = (2..5).map(|replicas| slow.growth_takes(&good, replicas, hangs)).sum();
    assert!(first < 1_500, "{first} ms");
    let mut worst = 0;
    for replicas in 5..120 {
        worst = worst.max(slow.growth_takes(&good, replicas, hangs));
        slow.run_for(2_500, hangs);
    }
    assert!(worst <= 50, "{worst} ms");
    assert!(slow.most_hanging <= 128, "{}", slow.most_hanging);
}

#[test]
fn when_it_answers_again_its_namespace_catches_up() {
    let mut slow = Slow::new();
    for n in 0..16 {
        let key = ObjectKey::new("bad", format!("bad-{n}"));
        slow.world.put_set_of("Parallel", &key, 20, "app:v1");
    }
    slow.run_for(100_000, creates_pods_of("bad"));
    assert_eq!(slow.world.pods.len(), 0);
    // The last that hang are answered, and the longest back-off is a minute.
    slow.run_for(HANGS_MS + 62_000, creates_pods_of("nowhere"));
    assert_eq!(slow.world.pods.len(), 16 * 20);
}

#[test]
fn many_namespaces_that_hang_leave_room_for_others_too() {
    let mut slow = Slow::new();
    let hangs = |call: &Call| match call {
        Call::Write(Command::Create { resource, key, .. }) => *resource == Resource::Pods && &*key.namespace != "good",
        _ => false,
    };
    let good = ObjectKey::new("good", "web");
    slow.world.put_set_of("Parallel", &good, 1, "app:v1");
    slow.run_for(5_000, hangs);
    for n in 0..60 {
        let key = ObjectKey::new(format!("bad-{n}"), format!("bad-{n}"));
        slow.world.put_set_of("Parallel", &key, 20, "app:v1");
    }
    // Each of them is found out once, some at a time.
    slow.run_for(15_000, hangs);
    let mut worst = 0;
    for replicas in 2..60 {
        worst = worst.max(slow.growth_takes(&good, replicas, hangs));
        slow.run_for(2_500, hangs);
    }
    assert!(worst <= 50, "{worst} ms");
}

#[test]
fn a_namespace_that_is_no_longer_slow_waits_for_no_other() {
    let mut slow = Slow::new();
    let hangs = creates_pods_of("bad");
    let good = ObjectKey::new("good", "web");
    slow.world.put_set_of("Parallel", &good, 1, "app:v1");
    slow.run_for(5_000, hangs);
    for n in 0..300 {
        let key = ObjectKey::new("bad", format!("bad-{n}"));
        slow.world.put_set_of("Parallel", &key, 20, "app:v1");
    }
    slow.run_for(5_000, hangs);
    // One write to the good namespace takes long, once.
    slow.world.put_set_of("Parallel", &good, 2, "app:v1");
    slow.run_for(1_500, |call| hangs(call) || creates_pods_of("good")(call));
    println!(
        "{} depth {} passes {} pod {}",
        slow.world.now,
        slow.core.turns().depth(),
        slow.core.passes_in_progress(),
        slow.world.pods.contains_key(&ObjectKey::new("good", "web-1"))
    );
    slow.run_for(30_000, hangs);
    println!(
        "{} depth {} passes {}",
        slow.world.now,
        slow.core.turns().depth(),
        slow.core.passes_in_progress()
    );
    assert!(slow.world.pods.contains_key(&ObjectKey::new("good", "web-1")));
    let begin = slow.world.now;
    slow.world.put_set_of("Parallel", &good, 3, "app:v1");
    let newest = ObjectKey::new("good", "web-2");
    let mut long = None;
    for _ in 0..120 {
        slow.run_for(5_000, hangs);
        println!(
            "{} depth {} passes {}",
            slow.world.now,
            slow.core.turns().depth(),
            slow.core.passes_in_progress()
        );
        if slow.world.pods.contains_key(&newest) {
            long = Some(slow.world.now - begin);
            break;
        }
    }
    println!("made after {long:?} ms");
    assert!(long.is_some_and(|ms| ms < 120_000), "{long:?}");
}

#[test]
fn reads_that_hang_take_no_more_than_the_workers() {
    use flotilla_engine::wire::Object;
    use flotilla_model::{Meta, RevisionRecord, Uid};
    let mut slow = Slow::new();
    let hangs = |call: &Call| matches!(call, Call::Get { .. });
    for n in 0..400 {
        let name = format!("s{n}");
        let key = ObjectKey::new(format!("n{n}"), &*name);
        let meta = Meta {
            key: key.sibling(format!("{name}-orphan")),
            uid: Uid::new(&name),
            resource_version: 1,
            created: at(0),
            deleted: None,
            labels: [("app", &*name)].into_iter().collect(),
            owners: None,
        };
        let data = serde_json::json!({"spec": {"template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": "app:v1"}]}}}});
        slow.world
            .store(Object::Revision(std::sync::Arc::new(RevisionRecord::new(
                meta, 1, &data, None,
            ))));
        slow.world.put_set_of("Parallel", &key, 1, "app:v1");
    }
    let mut most = (0, 0);
    for _ in 0..60 {
        slow.run_for(500, hangs);
        most = most.max((slow.core.passes_in_progress(), slow.pending.len()));
    }
    println!("passes and requests in flight: {most:?}");
    assert!(most.0 <= 16, "{most:?}");
}
