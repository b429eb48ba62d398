//! What a manager makes of a wall clock that is set: its own time never goes back, and what objects say of time is compared with the wall
//! clock.

mod support;

use flotilla_controllers::statefulset::StatefulSetController;
use flotilla_engine::core::events::EventCall;
use flotilla_engine::core::lease::{LeaseCall, LeaseRecord, LeaseSpec};
use flotilla_engine::core::request::{Call, RequestId};
use flotilla_engine::core::{ClockSteps, Core, CoreOptions, Effect};
use flotilla_model::{SetKind, Timestamp};
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{Overheard, World, at, key, options, options_with_lease, refuse};

const HOUR: Duration = Duration::from_secs(3600);

fn core(options: CoreOptions) -> Core {
    let controller = StatefulSetController::new(SetKind::Native);
    Core::new(options, vec![Box::new(controller)], at(0))
}

/// The clock is an hour ahead for a moment too short to look, and is set right.
fn set_back(world: &mut World, core: &mut Core) {
    world.cores_ahead += i64::try_from(HOUR.as_millis()).expect("an hour is short");
    let sum = Duration::from_millis(world.cores_ahead.unsigned_abs());
    core.note_clock_steps(ClockSteps { ahead: sum, back: sum }, world.time_of_cores());
}

fn put_set(world: &mut World, min_ready_seconds: i64) {
    world.put_set("web", 2, "app:v1");
    let set = world.sets.get_mut(&key("web")).expect("it was just stored");
    set["spec"]["minReadySeconds"] = json!(min_ready_seconds);
    world.news.clear();
}

#[test]
fn sts_1_5_a_pod_is_available_by_the_true_time_once_the_clock_was_set_back() {
    for (before_it_is_ready, what) in [(true, "before"), (false, "while it waits")] {
        let (mut world, mut core) = (World::default(), core(options("a")));
        put_set(&mut world, 30);
        world.run_for(&mut core, 1_000);
        if before_it_is_ready {
            set_back(&mut world, &mut core);
        }
        world.make_ready("web-0");
        world.run_for(&mut core, 5_000);
        if !before_it_is_ready {
            set_back(&mut world, &mut core);
        }
        world.run_for(&mut core, 20_000);
        assert_eq!(world.pod_names(), ["web-0"], "{what}: it has been ready for 25 s");
        world.run_for(&mut core, 6_000);
        assert_eq!(world.pod_names(), ["web-0", "web-1"], "{what}");
    }
}

/// Sends nothing but what `judge` lets through, and answers the rest with its refusal.
fn run(world: &mut World, core: &mut Core, millis: i64, mut judge: impl FnMut(&Call) -> bool) {
    let end = world.now + millis;
    while world.now < end {
        core.advance(world.time_of_cores());
        for effect in core.take_effects() {
            match effect {
                Effect::List(resource) => world.list(core, resource),
                Effect::Send(request) => {
                    let answer = if judge(&request.call) {
                        world.call(&request.call)
                    } else {
                        refuse(403, "Forbidden")
                    };
                    core.answer(request.id, answer, world.time_of_cores());
                }
            }
        }
        world.deliver_news(core);
        world.now += 10;
    }
}

fn is_pod(call: &Call) -> bool {
    call.verb() == "create" && call.resource() == flotilla_model::Resource::Pods
}

/// What was refused is tried again as it would have been, and what is told bears the time of the wall clock.
#[test]
fn sts_1_7_what_waits_for_its_next_attempt_waits_as_long_as_it_would_have() {
    let (mut world, mut core) = (World::default(), core(options("a")));
    put_set(&mut world, 0);
    let (mut attempts, mut told) = (Vec::new(), Vec::new());
    for second in 0..130 {
        let begun = world.now;
        // Whatever is sent within a second is of that time.
        run(&mut world, &mut core, 1_000, |call| {
            if let Call::Event(EventCall::Create(event)) = call {
                told.push((begun, event.at));
            }
            attempts.extend(is_pod(call).then_some(second));
            second >= 40 || !is_pod(call)
        });
        if second == 19 {
            set_back(&mut world, &mut core);
        }
    }
    assert!(!world.pods.is_empty(), "a refused pod is tried again within a minute");
    assert_eq!(attempts, [0, 1, 3, 7, 15, 31, 63], "further apart each time");
    for (begun, said) in told {
        let part = at(begun)..=at(begun + 1_000);
        assert!(
            part.contains(&said),
            "told at {said}, not in the second from {begun} ms on"
        );
    }
}

/// What a deadline is counted from is the time in which somebody could have done something.
#[test]
fn r_21_nobody_has_been_watching_for_longer_because_the_clock_was_set() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let (told, inner) = (heard.clone(), StatefulSetController::new(SetKind::Native));
    let controller = Overheard(Box::new(inner), move |since, _: Option<&_>| {
        told.lock().expect("not poisoned").push(since);
    });
    let mut world = World::default();
    let mut core = Core::new(options("a"), vec![Box::new(controller)], at(0));
    put_set(&mut world, 0);
    world.run_for(&mut core, 5_000);
    set_back(&mut world, &mut core);
    world.run_for(&mut core, 5_000);
    world.make_ready("web-0");
    world.run_for(&mut core, 5_000);
    let heard = heard.lock().expect("not poisoned");
    assert!(heard.len() > 2, "{heard:?}");
    assert!(heard.iter().all(|since| *since == at(0)), "{heard:?}");
}

fn lease_calls(core: &mut Core, now: Timestamp) -> Vec<(RequestId, LeaseCall)> {
    core.advance(now);
    let effects = core.take_effects().into_iter();
    let calls = effects.filter_map(|effect| match effect {
        Effect::Send(request) => match request.call {
            Call::Lease(call) => Some((request.id, call)),
            _ => None,
        },
        Effect::List(_) => None,
    });
    calls.collect()
}

/// A standby whose clock jumps ahead, or whose machine slept, knows nothing of how long the holder has not renewed.
#[test]
fn r_6_no_lease_runs_out_because_the_clock_of_a_standby_is_set_ahead() {
    let (mut world, mut core) = (World::default(), core(options_with_lease("standby")));
    let held = LeaseSpec {
        holder: "leader".into(),
        duration_seconds: 15,
        ..LeaseSpec::default()
    };
    world.lease = Some(LeaseRecord {
        resource_version: 1,
        spec: held,
    });
    world.run_for(&mut core, 5_000);
    world.cores_ahead = 3_600_000;
    let steps = ClockSteps {
        ahead: HOUR,
        back: Duration::ZERO,
    };
    core.note_clock_steps(steps, world.time_of_cores());
    let holder = |world: &World| world.lease.as_ref().map(|lease| lease.spec.holder.clone());
    world.run_for(&mut core, 9_000);
    assert_eq!(
        holder(&world).as_deref(),
        Some("leader"),
        "it was last renewed 14 s ago at most"
    );
    world.run_for(&mut core, 3_000);
    assert_eq!(
        holder(&world).as_deref(),
        Some("standby"),
        "15 s without a renewal are over"
    );
}

/// A holder whose clock jumps ahead writes nothing more: it may have slept for so long.
#[test]
fn r_6_a_holder_whose_clock_is_set_ahead_does_not_hold_the_lease_any_more() {
    let (mut world, mut core) = (World::default(), core(options_with_lease("a")));
    world.run_for(&mut core, 5_000);
    assert!(core.holds_lease(world.time_of_cores()));
    set_back(&mut world, &mut core);
    assert!(!core.holds_lease(world.time_of_cores()));
    // It looks first, and what it then writes bears the time of the wall clock.
    let mut renewed = Vec::new();
    for _ in 0..3 {
        for (id, call) in lease_calls(&mut core, world.time_of_cores()) {
            if let LeaseCall::Update { spec, .. } = &call {
                renewed.push(spec.renewed);
            }
            let answer = world.call(&Call::Lease(call));
            core.answer(id, answer, world.time_of_cores());
        }
    }
    assert_eq!(renewed, [at(world.now)]);
    assert!(core.holds_lease(world.time_of_cores()));
}
