//! A rollout of three pods through cache, router, queue, `decide` and the executor, with every event and every answer fed by hand:
//! one thread, no async runtime, no clock.

mod support;

use flotilla_controllers::statefulset::StatefulSetController;
use flotilla_engine::core::request::{Answer, Call, Request};
use flotilla_engine::core::{Core, Effect};
use flotilla_model::{Command, Resource, SetKind};
use support::{World, at, key, options_with_lease};

fn core() -> Core {
    let options = options_with_lease("hand");
    Core::new(
        options,
        vec![Box::new(StatefulSetController::new(SetKind::Native))],
        at(0),
    )
}

/// The writes among the effects; everything else is answered by the world at once.
fn writes(world: &mut World, core: &mut Core) -> Vec<Request> {
    let mut found = Vec::new();
    loop {
        core.advance(at(world.now));
        let effects = core.take_effects();
        if effects.is_empty() {
            return found;
        }
        for effect in effects {
            match effect {
                Effect::List(resource) => world.list(core, resource),
                Effect::Send(request) if request.call.needs_lease() => found.push(request),
                Effect::Send(request) => {
                    let answer = world.call(&request.call);
                    core.answer(request.id, answer, at(world.now));
                }
            }
        }
    }
}

fn words(requests: &[Request]) -> Vec<String> {
    let word = |request: &Request| match &request.call {
        Call::Write(Command::Create {
            resource: Resource::Revisions,
            ..
        }) => "create revision".to_owned(),
        Call::Write(command) => format!("{} {}", request.call.verb(), command.key().name),
        Call::Status(_) => "status".to_owned(),
        Call::Get { .. } | Call::Lease(_) | Call::Event(_) => unreachable!("not a write"),
    };
    requests.iter().map(word).collect()
}

/// Lets a second pass in which the watches stay silent: the core hears the answers to its own requests and nothing else. Returns the
/// writes that took effect, in order.
fn a_second(world: &mut World, core: &mut Core) -> Vec<String> {
    let (before, end) = (world.log.len(), world.now + 1000);
    loop {
        core.advance(at(world.now));
        let effects = core.take_effects();
        if effects.is_empty() {
            match core.next_wake(at(world.now)).filter(|wake| *wake < at(end)) {
                Some(wake) => {
                    assert!(
                        wake > at(world.now),
                        "a wake-up in the past, with nothing to do: the shell would spin"
                    );
                    world.now = wake.as_millis() - at(0).as_millis();
                }
                None => break,
            }
        }
        for effect in effects {
            match effect {
                Effect::List(resource) => world.list(core, resource),
                Effect::Send(request) => {
                    let answer = world.call(&request.call);
                    core.answer(request.id, answer, at(world.now));
                }
            }
        }
    }
    world.now = end;
    let short = |line: &String| {
        let is_revision = line.starts_with("create controllerrevisions");
        if is_revision {
            "create revision".to_owned()
        } else {
            line.replace("pods ", "")
        }
    };
    world.log[before..].iter().map(short).collect()
}

#[test]
fn three_pods_come_up_in_order_and_roll_in_reverse() {
    let (mut world, mut core) = (World::default(), core());
    world.put_set("web", 3, "app:v1");

    // Nothing is written before the lease is held and everything is listed. The overlay alone carries the work on: no watch event
    // arrives between the revision, the pod that is made from it, and the status that counts the pod.
    assert_eq!(
        a_second(&mut world, &mut core),
        ["create revision", "status", "create web-0", "status"]
    );
    assert_eq!(a_second(&mut world, &mut core), [""; 0]);
    world.deliver_news(&mut core);
    assert_eq!(
        a_second(&mut world, &mut core),
        [""; 0],
        "the watch tells nothing that was not known"
    );

    for (ready, next) in [("web-0", "create web-1"), ("web-1", "create web-2")] {
        world.make_ready(ready);
        world.deliver_news(&mut core);
        assert_eq!(a_second(&mut world, &mut core), [next, "status"]);
    }
    world.make_ready("web-2");
    world.deliver_news(&mut core);
    assert_eq!(a_second(&mut world, &mut core), ["status"]);
    assert_eq!(a_second(&mut world, &mut core), [""; 0]);

    // A new image: once the server would accept a pod of it, the highest ordinal goes first, and each replacement is awaited.
    world.put_set("web", 3, "app:v2");
    world.deliver_news(&mut core);
    assert_eq!(
        a_second(&mut world, &mut core),
        ["create revision", "status", "try web-2", "delete web-2", "status"]
    );
    for (pod, next) in [("web-2", "delete web-1"), ("web-1", "delete web-0"), ("web-0", "")] {
        world.finish_deletion(pod);
        world.deliver_news(&mut core);
        assert_eq!(a_second(&mut world, &mut core), [&format!("create {pod}"), "status"]);
        world.make_ready(pod);
        world.deliver_news(&mut core);
        let expected: Vec<&str> = [next, "status"].into_iter().filter(|word| !word.is_empty()).collect();
        assert_eq!(a_second(&mut world, &mut core), expected);
    }
    assert_eq!(a_second(&mut world, &mut core), [""; 0]);
    assert_eq!(world.pod_names(), ["web-0", "web-1", "web-2"]);
    let status = &world.sets[&key("web")]["status"];
    assert_eq!(status["updatedReplicas"], 3);
    assert_eq!(status["currentRevision"], status["updateRevision"]);
}

#[test]
fn an_answer_that_never_comes_is_looked_up_before_the_next_decision() {
    let (mut world, mut core) = (World::default(), core());
    world.put_set("web", 1, "app:v1");
    let requests = loop {
        let requests = writes(&mut world, &mut core);
        if words(&requests) == ["create web-0"] {
            break requests;
        }
        for request in requests {
            let answer = world.call(&request.call);
            core.answer(request.id, answer, at(world.now));
        }
        world.now += 20;
        assert!(world.now < 10_000, "the pod is never created: {:?}", world.log);
    };
    // It takes effect, and the answer is lost.
    world.call(&requests[0].call);
    core.answer(requests[0].id, Answer::Lost("connection reset".into()), at(world.now));
    assert_eq!(core.unsettled_len(), 1);
    assert_eq!(
        a_second(&mut world, &mut core),
        ["status", "status"],
        "it was found by reading it, not made again: what was not known is told, and then that it is known"
    );
    let status = &world.sets[&key("web")]["status"];
    assert_eq!(
        (&status["replicas"], &status["conditions"][0]["status"]),
        (&1.into(), &"False".into())
    );
    assert_eq!(core.unsettled_len(), 0);
    assert_eq!(world.pod_names(), ["web-0"]);
}

#[test]
fn without_a_lease_nothing_is_written() {
    let (mut world, mut core) = (World::default(), core());
    world.put_set("web", 1, "app:v1");
    let first = writes(&mut world, &mut core);
    assert_eq!(words(&first), ["create revision"]);
    // The process is stopped here and continues a minute later; the request has not gone out yet.
    world.now += 60_000;
    assert!(!core.may_send(&first[0].call, at(world.now)));
    core.answer(first[0].id, Answer::Fenced, at(world.now));
    let mut rival = world.lease.clone().expect("the lease was taken");
    rival.spec.holder = "rival".into();
    rival.resource_version += 1000;
    world.lease = Some(rival);
    assert_eq!(a_second(&mut world, &mut core), [""; 0]);
    assert!(!core.holds_lease(at(world.now)));
}

#[test]
fn a_settled_set_gets_no_writes() {
    let (mut world, mut core) = (World::default(), core());
    world.put_set("web", 3, "app:v1");
    for pod in ["web-0", "web-1", "web-2"] {
        world.run_for(&mut core, 1000);
        world.make_ready(pod);
    }
    world.run_for(&mut core, 5000);
    let writes = world.log.len();
    world.run_for(&mut core, 600_000);
    assert_eq!(world.log.len(), writes, "{:?}", &world.log[writes..]);
}
