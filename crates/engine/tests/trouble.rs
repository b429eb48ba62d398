//! What the manager's logic does about refusals, lost events, a busy server, and its own end; every event and every answer by hand.

mod support;

use flotilla_controllers::cloneset::{CloneSetController, Defaults};
use flotilla_controllers::statefulset::StatefulSetController;
use flotilla_engine::core::events::EventCall;
use flotilla_engine::core::refusals::Tried;
use flotilla_engine::core::request::{Answer, Call};
use flotilla_engine::core::{Core, CoreOptions, Effect, WatchEvent};
use flotilla_engine::wire::Unreadable;
use flotilla_model::{Change, Command, Controller, Decision, ObjectKey, PassContext, Reader, Resource, SetKind, Uid};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{Overheard, World, at, clone_options, key, options, options_with_lease, refuse, refuse_with};

fn core(identity: &str, now: i64) -> Core {
    let options = options_with_lease(identity);
    let controller = StatefulSetController::new(SetKind::Native);
    Core::new(options, vec![Box::new(controller)], at(now))
}

/// Runs for some time; `judge` may answer a request instead of the world. News reach the core only if `watching`.
fn run(
    world: &mut World,
    core: &mut Core,
    millis: i64,
    watching: bool,
    mut judge: impl FnMut(&Call) -> Option<Answer>,
) {
    let end = world.now + millis;
    loop {
        core.advance(at(world.now));
        let effects = core.take_effects();
        if core.is_stopped() {
            return;
        }
        if effects.is_empty() {
            let wake = core.next_wake(at(world.now)).filter(|wake| *wake < at(end));
            let Some(wake) = wake else { break };
            assert!(
                wake > at(world.now),
                "a wake-up in the past, with nothing to do: the shell would spin"
            );
            world.now = wake.as_millis() - at(0).as_millis();
        }
        for effect in effects {
            match effect {
                Effect::List(resource) => world.list(core, resource),
                Effect::Send(request) => {
                    let answer = judge(&request.call).unwrap_or_else(|| world.call(&request.call));
                    core.answer(request.id, answer, at(world.now));
                }
            }
        }
        if watching {
            world.deliver_news(core);
        }
    }
    world.now = end;
}

fn is_pod_create(call: &Call) -> bool {
    matches!(
        call,
        Call::Write(Command::Create {
            resource: Resource::Pods,
            ..
        })
    )
}

#[test]
fn a_refusal_becomes_a_condition_and_is_tried_again_ever_more_rarely() {
    let (mut world, mut core) = (World::default(), core("one", 0));
    world.put_set("web", 1, "app:v1");
    let mut tries = Vec::new();
    run(&mut world, &mut core, 120_000, true, |call| {
        is_pod_create(call).then(|| {
            tries.push(());
            refuse_with(403, "Forbidden", "pods \"web-0\" is forbidden: exceeded quota: small")
        })
    });
    assert!((4..=10).contains(&tries.len()), "{} tries in two minutes", tries.len());
    let told = core.take_refusals();
    assert_eq!(told.len(), 1, "once, and then with its count: {told:?}");
    assert_eq!(
        (&*told[0].key.key.name, &*told[0].subject, &*told[0].reason),
        ("web", "web-0", "QuotaExceeded")
    );
    assert!(told[0].message.contains("exceeded quota: small"), "{told:?}");
    let status = world.sets[&key("web")]["status"].clone();
    let condition = &status["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["status"]),
        (&"FailedCreatePod".into(), &"True".into()),
        "{status}"
    );
    assert!(
        condition["message"]
            .as_str()
            .unwrap_or_default()
            .contains("exceeded quota"),
        "{status}"
    );

    // The cause heals; nobody has to touch the set.
    run(&mut world, &mut core, 70_000, true, |_| None);
    assert_eq!(world.pod_names(), ["web-0"]);
    let conditions = &world.sets[&key("web")]["status"]["conditions"];
    assert_eq!(conditions[0]["status"], "False", "{conditions}");
}

/// The first event with this reason that this request creates.
fn told(call: &Call, reason: &str) -> Option<String> {
    match call {
        Call::Event(EventCall::Create(event)) if event.note.reason == reason && event.note.warning => {
            assert_eq!(&*event.regarding.key.name, "web", "{event:?}");
            Some(event.note.message.clone())
        }
        _ => None,
    }
}

/// A role without the right to write statuses: its log has a line, and not one for each try, and an event says it to the set's users,
/// whom no condition can tell.
#[test]
fn a_status_that_is_refused_is_counted_and_not_told_each_time() {
    let (mut world, mut core) = (World::default(), core("one", 0));
    world.put_set("web", 1, "app:v1");
    let (mut tries, mut troubles, mut told, mut events) = (0, 0, Vec::new(), Vec::new());
    for _ in 0..240 {
        run(&mut world, &mut core, 500, true, |call| {
            events.extend(self::told(call, "FailedUpdateStatus"));
            matches!(call, Call::Status(_)).then(|| {
                tries += 1;
                refuse_with(403, "Forbidden", "statefulsets.apps \"web\" is forbidden: cannot patch")
            })
        });
        troubles += usize::from(core.take_trouble().is_some());
        told.extend(core.take_refusals());
    }
    assert!(tries > 2, "{tries} tries in two minutes");
    assert_eq!(troubles, 0, "of {tries} tries");
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        (told[0].tried, &*told[0].subject, &*told[0].reason),
        (Tried::Status, "statefulsets.apps ns/web", "Forbidden")
    );
    assert!(told[0].message.contains("cannot patch"), "{told:?}");
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(
        events[0].starts_with("writing the status of statefulsets.apps ns/web: ") && events[0].contains("cannot patch"),
        "{events:?}"
    );
}

/// What nobody answers is told once it goes on; that the API server restarts is not told by each set.
#[test]
fn what_is_not_answered_for_some_time_is_told_as_an_event() {
    for (what, silent_ms) in [
        ("statuses", 3_000),
        ("statuses", 60_000),
        ("reads", 3_000),
        ("reads", 60_000),
    ] {
        let (mut world, mut core) = (World::default(), core("one", 0));
        world.put_set("web", 1, "app:v1");
        let end = world.now + silent_ms;
        let mut events = Vec::new();
        for _ in 0..240 {
            let is_silent = world.now < end;
            run(&mut world, &mut core, 500, true, |call| {
                events.extend(told(call, "FailedUpdateStatus").or_else(|| told(call, "FailedRead")));
                let is_meant = match (what, call) {
                    ("statuses", Call::Status(_)) => true,
                    // The pod is read since nobody knows whether it was created.
                    ("reads", Call::Get { resource, .. }) => *resource == Resource::Pods,
                    ("reads", call) => is_pod_create(call),
                    _ => false,
                };
                (is_silent && is_meant).then(|| Answer::Lost("no answer within 30 s".into()))
            });
        }
        let is_told = silent_ms > 10_000;
        assert_eq!(events.len(), usize::from(is_told), "{what}, {silent_ms}: {events:?}");
        assert!(
            events.iter().all(|told| told.contains("no answer within 30 s")),
            "{events:?}"
        );
        assert_eq!(world.pod_names(), ["web-0"], "{what}, {silent_ms}");
    }
}

#[test]
fn a_busy_server_is_given_the_time_it_asks_for() {
    let (mut world, mut core) = (World::default(), core("one", 0));
    world.put_set("web", 1, "app:v1");
    let mut tried_at = Vec::new();
    let begun = world.now;
    for _ in 0..1000 {
        let now = world.now;
        run(&mut world, &mut core, 10, true, |call| {
            if !is_pod_create(call) || !tried_at.is_empty() {
                return None;
            }
            tried_at.push(now);
            let Answer::Refused(mut refusal) = refuse(429, "TooManyRequests") else {
                return None;
            };
            refusal.retry_after = Some(Duration::from_secs(3));
            Some(Answer::Refused(refusal))
        });
        if !world.pods.is_empty() {
            break;
        }
    }
    assert_eq!(world.pod_names(), ["web-0"]);
    let waited = world.now - tried_at[0];
    assert!(
        (3_000..4_500).contains(&waited),
        "waited {waited} ms of {} ms",
        world.now - begun
    );
}

#[test]
fn a_read_that_finds_nothing_buries_only_whom_it_knew() {
    let (mut world, mut core) = (World::default(), core("one", 0));
    world.put_set("web", 1, "app:v1");
    // The connection of the creation breaks, so the pod is read, and the server does not find it.
    let (mut creation, mut read) = (None, None);
    while read.is_none() {
        core.advance(at(world.now));
        for effect in core.take_effects() {
            match effect {
                Effect::List(resource) => world.list(&mut core, resource),
                Effect::Send(request) if creation.is_none() && is_pod_create(&request.call) => {
                    core.answer(request.id, Answer::Lost("connection reset".into()), at(world.now));
                    creation = Some(request.call);
                }
                Effect::Send(request) => {
                    let answer = world.call(&request.call);
                    if creation.is_some()
                        && matches!(
                            &request.call,
                            Call::Get {
                                resource: Resource::Pods,
                                ..
                            }
                        )
                    {
                        read = Some((request.id, answer));
                    } else {
                        core.answer(request.id, answer, at(world.now));
                    }
                }
            }
        }
        world.deliver_news(&mut core);
        world.now += 10;
        assert!(world.now < 10_000, "the pod is never read");
    }
    // Only then the creation takes effect, and the watch tells so before the read is answered.
    world.call(&creation.expect("the pod was to be created"));
    world.deliver_news(&mut core);
    let (id, answer) = read.expect("the pod was read");
    core.answer(id, answer, at(world.now));
    run(&mut world, &mut core, 60_000, true, |call| {
        assert!(!is_pod_create(call), "the pod is there, and was seen");
        None
    });
    assert_eq!(world.sets[&key("web")]["status"]["replicas"], 1);
}

#[test]
fn what_was_deleted_while_nobody_watched_is_noticed_by_the_next_list() {
    let (mut world, mut core) = (World::default(), core("one", 0));
    world.put_set("web", 1, "app:v1");
    run(&mut world, &mut core, 1000, true, |_| None);
    world.make_ready("web-0");
    run(&mut world, &mut core, 1000, true, |_| None);
    // The pod is deleted, and the event that tells of it is lost with its watch.
    world.finish_deletion("web-0");
    world.news.clear();
    run(&mut world, &mut core, 1000, true, |_| None);
    assert_eq!(world.pod_names(), [""; 0], "nobody knows yet");
    world.list(&mut core, Resource::Pods);
    run(&mut world, &mut core, 1000, true, |_| None);
    assert_eq!(world.pod_names(), ["web-0"]);
}

#[test]
fn a_manager_that_starts_from_nothing_goes_on_where_the_last_one_died() {
    let mut world = World::default();
    world.put_set("web", 3, "app:v1");
    let mut generation = 0;
    // Each manager dies after a tenth of a second of virtual time, wherever it is; the lease of the dead has to run out.
    for _ in 0..40 {
        generation += 1;
        let mut core = core(&format!("manager-{generation}"), world.now);
        run(&mut world, &mut core, 20_100, true, |_| None);
        for pod in world.pod_names().into_iter().map(str::to_owned).collect::<Vec<_>>() {
            if !world.pods[&key(&pod)].ready.is_true {
                world.make_ready(&pod);
            }
        }
        if world.pods.len() == 3 {
            break;
        }
    }
    assert_eq!(world.pod_names(), ["web-0", "web-1", "web-2"]);
    let created = world.log.iter().filter(|line| line.starts_with("create pods")).count();
    assert_eq!(created, 3, "{:?}", world.log);
    assert_eq!(world.revisions.len(), 1);
}

#[test]
fn the_end_finishes_what_is_on_its_way_and_gives_the_lease_back() {
    let (mut world, mut core) = (World::default(), core("one", 0));
    world.put_set("web", 1, "app:v1");
    // Stop at the moment when the pod's creation is on its way.
    let mut held = None;
    while held.is_none() {
        core.advance(at(world.now));
        for effect in core.take_effects() {
            match effect {
                Effect::List(resource) => world.list(&mut core, resource),
                Effect::Send(request) if is_pod_create(&request.call) => held = Some(request),
                Effect::Send(request) => {
                    let answer = world.call(&request.call);
                    core.answer(request.id, answer, at(world.now));
                }
            }
        }
        world.now += 10;
        assert!(world.now < 10_000, "the pod is never created");
    }
    core.begin_shutdown();
    run(&mut world, &mut core, 1000, true, |_| None);
    assert!(!core.is_stopped(), "a request is on its way");
    assert_eq!(
        world.lease.as_ref().map(|l| l.spec.holder.as_str()),
        Some("one"),
        "the lease is kept until then"
    );
    let request = held.expect("it was held back");
    let answer = world.call(&request.call);
    core.answer(request.id, answer, at(world.now));
    run(&mut world, &mut core, 1000, true, |_| None);
    assert!(core.is_stopped());
    assert_eq!(
        world.lease.as_ref().map(|l| l.spec.holder.as_str()),
        Some(""),
        "the lease is free"
    );
}

/// The controller, which panics when it is told of a pod of this name.
struct Panics(StatefulSetController, &'static str);

impl Controller for Panics {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn resource(&self) -> Resource {
        self.0.resource()
    }

    fn route(&self, change: &Change, reader: &dyn Reader, keys: &mut Vec<ObjectKey>) {
        let is_about = |pod: &Option<std::sync::Arc<flotilla_model::PodRecord>>| {
            pod.as_ref().is_some_and(|pod| pod.name() == self.1)
        };
        assert!(
            !matches!(change, Change::Pod(old, new) if is_about(old) || is_about(new)),
            "a defect"
        );
        self.0.route(change, reader, keys);
    }

    fn reconcile(&self, reader: &dyn Reader, key: &ObjectKey, context: PassContext<'_>) -> Option<Decision> {
        self.0.reconcile(reader, key, context)
    }
}

#[test]
fn a_panic_over_whom_a_change_concerns_costs_some_seconds_and_nobody_else_anything() {
    let options = options("one");
    let controller = Panics(StatefulSetController::new(SetKind::Native), "web-1");
    let mut core = Core::new(options, vec![Box::new(controller)], at(0));
    let mut world = World::quick();
    world.put_set("web", 4, "app:v1");
    world.put_set("other", 4, "app:v1");
    run(&mut world, &mut core, 5_000, true, |_| None);
    let names: Vec<String> = world.pod_names().iter().map(ToString::to_string).collect();
    assert_eq!(
        names.iter().filter(|name| name.starts_with("other")).count(),
        4,
        "{names:?}"
    );
    run(&mut world, &mut core, 60_000, true, |_| None);
    assert_eq!(world.pod_names().len(), 8);
    assert!(core.metrics().panics > 0);
}

/// A standby knows everything and may do nothing: what a deadline waits for could not go on either.
#[test]
fn r_21_deadlines_do_not_run_while_nobody_leads() {
    let (mut world, mut first) = (World::quick(), core("one", 0));
    world.put_set("web", 1, "app:v1");
    run(&mut world, &mut first, 5_000, true, |_| None);
    drop(first);
    let died = world.now;
    let noted = Arc::new(Mutex::new(Vec::new()));
    let (heard, inner) = (noted.clone(), StatefulSetController::new(SetKind::Native));
    let controller = Overheard(Box::new(inner), move |since, _: Option<&_>| {
        heard.lock().expect("nobody panicked").push(since);
    });
    let mut standby = Core::new(options_with_lease("two"), vec![Box::new(controller)], at(died));
    run(&mut world, &mut standby, 5_000, true, |_| None);
    assert!(!standby.holds_lease(at(world.now)) && noted.lock().unwrap().is_empty());
    let mut took_over = None;
    while took_over.is_none() {
        run(&mut world, &mut standby, 100, true, |_| None);
        took_over = standby.holds_lease(at(world.now)).then_some(world.now);
        assert!(world.now < died + 60_000, "it never leads");
    }
    run(&mut world, &mut standby, 5_000, true, |_| None);
    let noted = noted.lock().unwrap();
    let since = noted.first().expect("it looks at the set");
    assert!(*since > at(took_over.unwrap_or_default() - 200), "{since:?}");
    assert!(noted.iter().all(|other| other == since), "{noted:?}");
}

/// Whatever stands between the manager and the API server may answer 404 for a kind that is always there. Then nothing is known of it, and a
/// manager that took that for "there are none" would make every pod a second time. Where a definition is missing there are none.
#[test]
fn r_6_a_built_in_kind_that_is_not_found_is_waited_for() {
    let resources = [
        Resource::NativeSets,
        Resource::CloneSets,
        Resource::Pods,
        Resource::Claims,
        Resource::Revisions,
    ];
    for missing in resources {
        let mut world = World::quick();
        let options = CoreOptions {
            resources: resources.to_vec(),
            ..options("a")
        };
        let controller = StatefulSetController::new(SetKind::Native);
        let mut core = Core::new(options, vec![Box::new(controller)], at(0));
        world.put_parallel_set("web", 3, "app:v1");
        core.advance(at(0));
        core.take_effects();
        for resource in resources {
            if resource == missing {
                core.watch(WatchEvent::Missing(resource), at(0));
            } else {
                world.list(&mut core, resource);
            }
        }
        world.run_for(&mut core, 20_000);
        assert_eq!(core.not_ready().len(), 1, "{missing}: {:?}", core.not_ready());
        let pods_made = if missing == Resource::CloneSets { 3 } else { 0 };
        assert_eq!(world.pods.len(), pods_made, "{missing}");

        world.list(&mut core, missing);
        world.run_for(&mut core, 20_000);
        assert_eq!((world.pods.len(), core.not_ready().len()), (3, 0), "{missing}");
    }
}

/// The controller, which cannot decide about sets of this name.
struct CannotDecide(StatefulSetController, &'static str);

impl Controller for CannotDecide {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn resource(&self) -> Resource {
        self.0.resource()
    }

    fn route(&self, change: &Change, reader: &dyn Reader, keys: &mut Vec<ObjectKey>) {
        self.0.route(change, reader, keys);
    }

    fn reconcile(&self, reader: &dyn Reader, key: &ObjectKey, context: PassContext<'_>) -> Option<Decision> {
        assert!(*key.name != *self.1, "a defect");
        self.0.reconcile(reader, key, context)
    }
}

#[test]
fn r_2_a_panic_in_a_decision_is_told_on_its_object_and_concerns_no_other() {
    let controller = CannotDecide(StatefulSetController::new(SetKind::Native), "bad");
    let mut core = Core::new(options("a"), vec![Box::new(controller)], at(0));
    let mut world = World::default();
    world.put_set("bad", 1, "app:v1");
    world.put_set("web", 1, "app:v1");
    let mut told = Vec::new();
    run(&mut world, &mut core, 60_000, true, |call| {
        if let Call::Event(EventCall::Create(event)) = call
            && &*event.regarding.key.name == "bad"
        {
            told.push((event.note.warning, event.note.reason, event.note.message.clone()));
        }
        None
    });
    assert_eq!(world.pod_names(), ["web-0"]);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((told[0].0, told[0].1), (true, "InternalError"));
    assert!(told[0].2.contains("a defect"), "{told:?}");
}

/// The users of a set of which nothing newer can be read may have stopped what the older version asks for.
#[test]
fn a_set_whose_latest_version_cannot_be_read_is_left_as_it_is() {
    let (mut world, mut core) = (World::quick(), core("one", 0));
    world.put_parallel_set("web", 1, "app:v1");
    world.put_parallel_set("other", 1, "app:v1");
    run(&mut world, &mut core, 30_000, true, |_| None);
    let unreadable = || Unreadable {
        resource: Resource::NativeSets,
        key: Some(key("web")),
        reason: "spec.replicas: not a number".into(),
    };
    core.watch(WatchEvent::Unreadable(unreadable()), at(world.now));
    world.finish_deletion("web-0");
    world.finish_deletion("other-0");
    let mut told = Vec::new();
    run(&mut world, &mut core, 120_000, true, |call| {
        if let Call::Event(EventCall::Create(event)) = call {
            told.push((event.regarding.key.name.to_string(), event.note.reason));
        }
        None
    });
    assert_eq!(world.pod_names(), ["other-0"]);
    assert!(told.contains(&("web".to_owned(), "Unreadable")), "{told:?}");
    world.put_parallel_set("web", 2, "app:v1");
    run(&mut world, &mut core, 1_000, true, |_| None);
    assert_eq!(world.pod_names(), ["other-0", "web-0", "web-1"]);
    // One that is gone is no longer unreadable: another may have its name.
    core.watch(WatchEvent::Unreadable(unreadable()), at(world.now));
    let uid = Uid::new("uid-of-web");
    core.watch(
        WatchEvent::Deleted(Resource::NativeSets, key("web"), uid, world.version + 1),
        at(world.now),
    );
    world.version += 1;
    world.finish_deletion("web-0");
    world.finish_deletion("web-1");
    world.put_parallel_set("web", 1, "app:v1");
    run(&mut world, &mut core, 5_000, true, |_| None);
    assert_eq!(world.pod_names(), ["other-0", "web-0"]);
}

/// A standby remembers a CloneSet of another time, and the definition, or who stands before the API server, answers 404 when it begins to lead.
#[test]
fn r_6_nothing_is_decided_by_what_is_remembered_of_a_kind_that_is_not_found() {
    let mut world = World::quick_clones();
    let mut core = Core::new(
        clone_options("a"),
        vec![Box::new(CloneSetController::new(Defaults::default()))],
        at(0),
    );
    world.put_parallel_set("web", 3, "app:v1");
    core.advance(at(0));
    core.take_effects();
    world.list(&mut core, Resource::CloneSets);
    core.watch(WatchEvent::Missing(Resource::CloneSets), at(0));
    for resource in [
        Resource::Pods,
        Resource::Claims,
        Resource::Revisions,
        Resource::StorageClasses,
    ] {
        world.list(&mut core, resource);
    }
    world.run_for(&mut core, 20_000);
    assert_eq!(world.log, [""; 0]);
    world.list(&mut core, Resource::CloneSets);
    world.run_for(&mut core, 20_000);
    assert_eq!(world.pods.len(), 3);
    // A leader goes on with what it knows.
    core.watch(WatchEvent::Missing(Resource::CloneSets), at(world.now));
    let pod = world.pod_names()[0].to_owned();
    world.finish_deletion(&pod);
    world.run_for(&mut core, 20_000);
    assert_eq!(world.pods.len(), 3);
}

#[test]
fn a_pass_that_is_under_way_ends_when_its_set_cannot_be_read_any_more() {
    let (mut world, mut core) = (World::quick(), core("one", 0));
    world.put_parallel_set("web", 300, "app:v1");
    while world.pods.len() < 5 {
        core.advance(at(world.now));
        for effect in core.take_effects() {
            match effect {
                Effect::List(resource) => world.list(&mut core, resource),
                Effect::Send(request) => {
                    let answer = world.call(&request.call);
                    core.answer(request.id, answer, at(world.now));
                }
            }
        }
        world.deliver_news(&mut core);
        world.now += 1;
        assert!(world.now < 60_000, "no pods are made");
    }
    let unreadable = Unreadable {
        resource: Resource::NativeSets,
        key: Some(key("web")),
        reason: "spec.replicas: not a number".into(),
    };
    core.watch(WatchEvent::Unreadable(unreadable), at(world.now));
    let made = world.pods.len();
    let mut told = 0;
    run(&mut world, &mut core, 120_000, true, |call| {
        told += u32::from(matches!(call, Call::Event(_)));
        None
    });
    assert_eq!(world.pods.len(), made);
    assert!(told > 1, "first, and again while it goes on");

    // It went while nobody watched.
    world.sets.clear();
    world.list(&mut core, Resource::NativeSets);
    run(&mut world, &mut core, 10_000, true, |_| None);
    let mut told = 0;
    run(&mut world, &mut core, 300_000, true, |call| {
        told += u32::from(matches!(call, Call::Event(_)));
        None
    });
    assert_eq!(told, 0, "nobody speaks of a set that is gone");
}
