//! Pods that do not last, whoever sees to it: a set makes them again ever more slowly, says so, and is quick again once they last.

mod support;

use flotilla_controllers::cloneset::CloneSetController;
use flotilla_controllers::statefulset::StatefulSetController;
use flotilla_engine::core::events::EventCall;
use flotilla_engine::core::request::Call;
use flotilla_engine::core::{Core, Effect};
use flotilla_model::{Controller, Decision, Failure, PodRecord, SetKind, WaitCause};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use support::{Overheard, World, at, clone_options, options};

/// What others do to a new pod.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Taking {
    Relabel,
    Disown,
    Delete,
    /// With a grace period that does not end.
    Terminate,
}

const WAYS: [Taking; 4] = [Taking::Relabel, Taking::Disown, Taking::Delete, Taking::Terminate];

struct Run {
    world: World,
    core: Core,
    waits: Arc<Mutex<Vec<String>>>,
    warnings: Vec<String>,
}

impl Run {
    fn clones(replicas: i32) -> Run {
        Run::of(World::quick_clones(), replicas)
    }

    fn native(replicas: i32) -> Run {
        Run::of(World::quick(), replicas)
    }

    fn of(mut world: World, replicas: i32) -> Run {
        world.put_parallel_set("web", replicas, "app:v1");
        let (options, controller): (_, Box<dyn Controller>) = if world.has_clones {
            (clone_options("one"), Box::new(CloneSetController::default()))
        } else {
            (options("one"), Box::new(StatefulSetController::new(SetKind::Native)))
        };
        let waits: Arc<Mutex<Vec<String>>> = Arc::default();
        let heard = Arc::clone(&waits);
        let controller = Overheard(controller, move |_, decision: Option<&Decision>| {
            let waits = decision.into_iter().flat_map(|decision| &decision.waits);
            let held = waits.filter(|wait| matches!(wait.cause, WaitCause::Repeated { .. }));
            let held = held.map(|wait| format!("{}: {}", wait.subject, wait.cause));
            heard.lock().expect("not poisoned").extend(held);
        });
        Run {
            world,
            core: Core::new(options, vec![Box::new(controller)], at(0)),
            waits,
            warnings: Vec::new(),
        }
    }

    /// Goes on for so long, with answers after two milliseconds. What `others` do after each step they do at once.
    fn go(&mut self, millis: i64, mut others: impl FnMut(&mut World)) {
        let end = self.world.now + millis;
        while self.world.now < end {
            let now = at(self.world.now);
            self.core.advance(now);
            let effects = self.core.take_effects();
            let wake = self
                .core
                .next_wake(now)
                .map(|wake| wake.as_millis() - at(0).as_millis());
            let quiet = wake.map_or(end, |wake| wake.clamp(self.world.now + 1, self.world.now + 100));
            self.world.now = if effects.is_empty() { quiet } else { self.world.now + 2 };
            for effect in effects {
                match effect {
                    Effect::List(resource) => self.world.list(&mut self.core, resource),
                    Effect::Send(request) => {
                        self.note(&request.call);
                        let answer = self.world.call(&request.call);
                        self.core.answer(request.id, answer, at(self.world.now));
                    }
                }
            }
            self.world.deliver_news(&mut self.core);
            others(&mut self.world);
            self.world.deliver_news(&mut self.core);
        }
    }

    fn note(&mut self, call: &Call) {
        if let Call::Event(EventCall::Create(event)) = call
            && event.note.reason == Failure::REPEATED
            && event.note.warning
        {
            self.warnings.push(event.note.message.clone());
        }
    }

    fn made(&self) -> usize {
        let log = self.world.log.iter();
        log.filter(|line| line.starts_with("create pods")).count()
    }

    fn held(&self) -> u64 {
        self.core.repeats().held()
    }

    fn pods(&self) -> usize {
        self.world.pods.values().filter(|pod| is_of_set(pod)).count()
    }
}

fn is_of_set(pod: &PodRecord) -> bool {
    pod.meta.owners.is_some() && pod.meta.deleted.is_none() && pod.label("app") == Some("web")
}

/// Takes away each pod of the set that is at least so old.
fn take(way: Taking, age: i64) -> impl FnMut(&mut World) {
    move |world| {
        let now = at(world.now);
        let is_due = |pod: &&PodRecord| is_of_set(pod) && now.as_millis() - pod.meta.created.as_millis() >= age;
        let due = world.pods.values().filter(is_due);
        for name in due.map(|pod| pod.name().to_owned()).collect::<Vec<_>>() {
            take_one(world, way, &name);
        }
    }
}

fn take_one(world: &mut World, way: Taking, name: &str) {
    let now = at(world.now);
    match way {
        Taking::Relabel => world.change_pod(name, |pod| pod.meta.labels = [("app", "other")].into_iter().collect()),
        Taking::Disown => world.change_pod(name, |pod| pod.meta.owners = None),
        Taking::Delete => world.finish_deletion(name),
        Taking::Terminate => world.change_pod(name, |pod| pod.meta.deleted = Some(now)),
    }
}

/// What is deleted goes a second later.
fn kubelets(world: &mut World) {
    let now = at(world.now);
    let is_over = |pod: &&PodRecord| {
        pod.meta
            .deleted
            .is_some_and(|deleted| now.as_millis() - deleted.as_millis() >= 1_000)
    };
    let over = world.pods.values().filter(is_over);
    for name in over.map(|pod| pod.name().to_owned()).collect::<Vec<_>>() {
        world.finish_deletion(&name);
    }
}

fn assert_held_back(run: &Run, what: &str) {
    let made = run.made();
    assert!((15..=60).contains(&made), "{what}: {made} pods in a minute");
    assert!(run.held() > 0, "{what}");
    assert!(!run.warnings.is_empty(), "{what}");
    assert!(run.warnings.len() <= 11, "{what}: {:?}", run.warnings);
    assert!(run.warnings[0].starts_with("create Pod web-"), "{:?}", run.warnings);
    assert!(run.warnings[0].contains("did not last"), "{:?}", run.warnings);
    let waits = run.waits.lock().expect("not poisoned");
    let told = waits
        .iter()
        .filter(|wait| wait.starts_with("web-") && wait.contains("did not last"));
    assert!(told.count() > 0, "{what}: {waits:?}");
}

/// Seen: 19,998 pods of nobody in forty seconds. Each was let go in the pass that made the next ones.
#[test]
fn pods_whose_label_a_webhook_changes_at_their_creation_are_made_ever_more_slowly() {
    let mut run = Run::clones(3);
    run.world.webhook = Some(("app", "other"));
    run.go(60_000, |_| {});
    assert_held_back(&run, "webhook");
}

/// A set of three whose pods go this way, at once and after a second.
fn taken(way: Taking) {
    for age in [0, 1_000] {
        let mut run = Run::clones(3);
        run.go(60_000, take(way, age));
        assert_held_back(&run, &format!("{way:?} after {age} ms"));
    }
}

/// Seen: 44,995 in a minute, all of which still ran.
#[test]
fn pods_that_others_disown_are_made_ever_more_slowly() {
    taken(Taking::Disown);
}

#[test]
fn pods_that_others_take_out_of_the_selector_are_made_ever_more_slowly() {
    taken(Taking::Relabel);
}

/// Seen: 44,995 in a minute, as where a taint with NoExecute is on the node that pods name.
#[test]
fn pods_that_others_delete_are_made_ever_more_slowly() {
    taken(Taking::Delete);
}

#[test]
fn pods_that_others_have_on_their_way_out_at_once_are_made_ever_more_slowly() {
    taken(Taking::Terminate);
}

#[test]
fn a_set_of_many_pods_that_are_all_taken_away_makes_few_of_them_at_once() {
    for way in WAYS {
        let mut run = Run::clones(300);
        run.go(120_000, take(way, 5_000));
        let made = run.made();
        assert!((900..=4_000).contains(&made), "{way:?}: {made} pods in two minutes");
        let before = run.made();
        run.go(120_000, take(way, 5_000));
        assert!(run.made() - before <= 900, "{way:?}: {} more", run.made() - before);
    }
}

#[test]
fn pods_whose_names_are_known_are_held_back_for_their_set_too() {
    for way in [Taking::Delete, Taking::Relabel] {
        let mut run = Run::native(30);
        run.go(10_000, take(way, 0));
        let before = run.made();
        run.go(110_000, |world| {
            take(way, 0)(world);
            // What has the name of a pod of the set is in its way.
            let names = world.pods.keys().map(|key| key.name.to_string());
            for name in names.collect::<Vec<_>>() {
                world.finish_deletion(&name);
            }
        });
        let made = run.made() - before;
        assert!(made <= 300, "{way:?}: {made} pods");
        assert!(way == Taking::Relabel || !run.warnings.is_empty(), "{way:?}");
    }
}

#[test]
fn it_ends_when_pods_last() {
    for way in WAYS {
        let mut run = Run::clones(3);
        run.go(20_000, take(way, 0));
        run.go(35_000, |_| {});
        assert_eq!(run.pods(), 3, "{way:?}: what waited came");
        let (made, held) = (run.made(), run.held());
        // Somebody deletes one, and another, as people do.
        for _ in 0..3 {
            let name = run
                .world
                .pods
                .values()
                .find(|pod| is_of_set(pod))
                .expect("a pod")
                .name()
                .to_owned();
            run.world.finish_deletion(&name);
            run.go(300, |_| {});
            assert_eq!(run.pods(), 3, "{way:?}: a replacement comes at once");
        }
        assert_eq!((run.made(), run.held()), (made + 3, held), "{way:?}");
    }
}

#[test]
fn an_edit_of_the_set_lets_pods_be_made_at_once() {
    let mut run = Run::clones(3);
    run.go(40_000, take(Taking::Delete, 0));
    let made = run.made();
    run.go(1_000, |_| {});
    assert_eq!(run.made(), made, "held back");
    run.world.put_parallel_set("web", 4, "app:v1");
    run.go(200, |_| {});
    assert_eq!((run.made(), run.pods()), (made + 4, 4));
}

/// Nothing of it is a churn: each happens once, or somebody asked for it.
#[test]
fn a_pod_that_somebody_deletes_is_made_again_at_once() {
    let mut run = Run::clones(3);
    run.go(2_000, |_| {});
    // Each time the youngest.
    for n in 1..=3 {
        let youngest = run.world.pods.values().max_by_key(|pod| pod.meta.resource_version);
        let name = youngest.expect("a pod").name().to_owned();
        run.world.finish_deletion(&name);
        run.go(300, |_| {});
        assert_eq!((run.made(), run.held()), (3 + n, 0));
    }
}

#[test]
fn fifty_young_pods_that_are_deleted_by_hand_come_back_at_once() {
    for way in [Taking::Delete, Taking::Terminate] {
        let mut run = Run::clones(50);
        run.go(3_000, |_| {});
        let mut victims: Vec<String> = run.world.pods.values().map(|pod| pod.name().to_owned()).collect();
        assert_eq!(victims.len(), 50);
        // One request after the other, as kubectl sends them, in a second.
        run.go(1_000, |world| {
            kubelets(world);
            if let Some(name) = victims.pop() {
                take_one(world, way, &name);
            }
        });
        run.go(500, kubelets);
        assert_eq!(
            (victims.len(), run.made(), run.pods(), run.held()),
            (0, 100, 50, 0),
            "{way:?}"
        );
    }
}

#[test]
fn a_set_that_is_scaled_to_nothing_and_up_again_is_there_at_once() {
    for _ in 0..2 {
        let mut run = Run::clones(100);
        run.go(2_000, kubelets);
        for replicas in [0, 100, 0, 100] {
            run.world.put_parallel_set("web", replicas, "app:v1");
            run.go(2_500, kubelets);
            assert_eq!(run.pods(), usize::try_from(replicas).expect("few"));
        }
        assert_eq!((run.made(), run.held()), (300, 0));
    }
}

#[test]
fn a_rollout_that_makes_a_thousand_pods_again_is_held_back_by_nothing() {
    let mut run = Run::clones(1_000);
    run.go(5_000, kubelets);
    assert_eq!(run.pods(), 1_000);
    run.world.put_parallel_set("web", 1_000, "app:v2");
    let began = run.world.now;
    while (run.made(), run.pods()) != (2_000, 1_000) {
        run.go(100, kubelets);
        let (made, pods) = (run.made(), run.pods());
        assert!(run.world.now < began + 60_000, "{made} made, {pods} there");
    }
    assert_eq!(run.held(), 0);
    println!("a thousand pods within {} ms", run.world.now - began);
}

/// Among many that last, a few that go are made again at once: here each tenth.
#[test]
fn a_few_that_do_not_last_among_many_hold_up_nothing() {
    let mut run = Run::clones(200);
    let mut looked_at = BTreeSet::new();
    run.go(20_000, |world| {
        let new = world.pods.keys().filter(|key| !looked_at.contains(*key)).cloned();
        for key in new.collect::<Vec<_>>() {
            looked_at.insert(key.clone());
            if looked_at.len() % 10 == 0 {
                world.finish_deletion(&key.name);
            }
        }
    });
    assert_eq!((run.pods(), run.held()), (200, 0));
    assert_eq!(run.made(), 222);
}
