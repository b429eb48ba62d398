//! No request is repeated at the speed of the network, whatever a controller decides: here by controllers that cannot leave it.

mod support;

use flotilla_engine::core::events::EventCall;
use flotilla_engine::core::request::{Answer, Call};
use flotilla_engine::core::{Core, CoreOptions, Effect};
use flotilla_model::decision::{Scope, ScopedCommand, Stage};
use flotilla_model::{
    Change, Command, Controller, Decision, Failure, Hints, ObjectKey, PassContext, PatchKind, Reader, Report, Resource,
    SetKind, StatusWrite, Uid,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{World, at, key, refuse_with};

/// What is held back, as passes were shown it.
type Seen = Arc<Mutex<BTreeMap<Scope, Failure>>>;

/// A controller that decides by the number of the pass alone, and wants the next one at once.
struct Obstinate {
    passes: AtomicU32,
    decide: fn(u32, &ObjectKey) -> Vec<Stage>,
    status: Option<fn(u32) -> Value>,
    /// Whether it wants the next pass at once; else it forgets what was refused, and asks for none.
    wakes: bool,
    seen: Seen,
}

impl Controller for Obstinate {
    fn name(&self) -> &'static str {
        "obstinate"
    }

    fn resource(&self) -> Resource {
        Resource::NativeSets
    }

    fn route(&self, change: &Change, _: &dyn Reader, keys: &mut Vec<ObjectKey>) {
        keys.extend(change.object().map(|(_, key)| key.clone()));
    }

    fn reconcile(&self, reader: &dyn Reader, key: &ObjectKey, context: PassContext<'_>) -> Option<Decision> {
        let set = reader.set(SetKind::Native, key)?;
        let pass = self.passes.fetch_add(1, Ordering::Relaxed);
        let held = context.hints.repeated.clone();
        self.seen.lock().expect("not poisoned").extend(held);
        let status = self.status.map(|status| StatusWrite {
            resource: Resource::NativeSets,
            key: key.clone(),
            uid: set.meta.uid.clone(),
            resource_version: set.meta.resource_version,
            observed: set.status.clone(),
            desired: status(pass),
        });
        Some(Decision {
            stages: (self.decide)(pass, key),
            status,
            wake_after: self.wakes.then_some(Duration::from_millis(1)),
            hints: (!self.wakes).then(Hints::default),
            ..Decision::default()
        })
    }
}

fn obstinate(decide: fn(u32, &ObjectKey) -> Vec<Stage>, status: Option<fn(u32) -> Value>) -> (Core, Seen) {
    controlled(decide, status, true)
}

fn controlled(
    decide: fn(u32, &ObjectKey) -> Vec<Stage>,
    status: Option<fn(u32) -> Value>,
    wakes: bool,
) -> (Core, Seen) {
    let seen = Seen::default();
    let options = CoreOptions {
        resources: vec![Resource::NativeSets],
        observation_period: Duration::ZERO,
        ..CoreOptions::new("one")
    };
    let controller = Obstinate {
        passes: AtomicU32::new(0),
        decide,
        status,
        wakes,
        seen: seen.clone(),
    };
    (Core::new(options, vec![Box::new(controller)], at(0)), seen)
}

fn patch(name: &str, body: Value) -> ScopedCommand {
    ScopedCommand {
        scope: Scope::Named(name.to_owned()),
        command: Command::Patch {
            resource: Resource::Pods,
            key: key(name),
            uid: Uid::new(name),
            subresource: None,
            kind: PatchKind::Merge,
            body,
            resource_version: None,
            guard: None,
            report: Report::Update,
        },
    }
}

fn stage(commands: Vec<ScopedCommand>) -> Vec<Stage> {
    vec![Stage {
        name: "again",
        commands,
        all_or_stop: false,
        slow_start: true,
    }]
}

/// Runs for a minute in which every answer takes two milliseconds. What was sent, and when.
fn a_minute(world: &mut World, core: &mut Core, answer: impl FnMut(&Call) -> Option<Answer>) -> Vec<(i64, Call)> {
    until(60_000, world, core, answer)
}

/// The same until this moment.
fn until(
    end_ms: i64,
    world: &mut World,
    core: &mut Core,
    mut answer: impl FnMut(&Call) -> Option<Answer>,
) -> Vec<(i64, Call)> {
    let mut sent = Vec::new();
    while world.now < end_ms {
        core.advance(at(world.now));
        let effects = core.take_effects();
        let wake = core
            .next_wake(at(world.now))
            .map(|wake| wake.as_millis() - at(0).as_millis());
        world.now = match wake {
            Some(wake) if effects.is_empty() => wake.max(world.now + 1),
            _ => world.now + 2,
        };
        for effect in effects {
            match effect {
                Effect::List(resource) => world.list(core, resource),
                Effect::Send(request) => {
                    sent.push((world.now, request.call.clone()));
                    let answer = answer(&request.call).unwrap_or_else(|| world.call(&request.call));
                    core.answer(request.id, answer, at(world.now));
                }
            }
        }
        world.deliver_news(core);
    }
    sent
}

fn writes(sent: &[(i64, Call)]) -> Vec<i64> {
    let is_write = |call: &Call| matches!(call, Call::Write(_) | Call::Status(_));
    sent.iter()
        .filter(|(_, call)| is_write(call))
        .map(|(at, _)| *at)
        .collect()
}

fn assert_rare(moments: &[i64], at_most: usize) {
    assert!(
        moments.len() <= at_most,
        "{} times in a minute: {moments:?}",
        moments.len()
    );
    assert!(moments.len() > 5, "it is tried again: {moments:?}");
}

#[test]
fn a_refused_command_that_its_controller_repeats_at_once_is_held_back() {
    let (mut world, (mut core, seen)) = (
        World::default(),
        obstinate(|_, _| stage(vec![patch("web-0", json!({"cpu": "1"}))]), None),
    );
    world.put_set("web", 1, "app:v1");
    let sent = a_minute(&mut world, &mut core, |call| {
        matches!(call, Call::Write(_)).then(|| refuse_with(403, "Forbidden", "not this pod"))
    });
    assert_rare(&writes(&sent), 10);
    assert!(core.repeats().held() > 5, "{}", core.repeats().held());
    let held = seen.lock().expect("not poisoned").clone();
    let failure = &held[&Scope::Named("web-0".into())];
    assert_eq!(
        (failure.reason.as_str(), failure.message.as_str()),
        ("Forbidden", "not this pod")
    );
    assert!(failure.retry_at > at(30_000), "{failure:?}");
}

#[test]
fn two_commands_that_undo_each_other_are_held_back_and_it_is_said() {
    let (mut world, (mut core, seen)) = (
        World::default(),
        obstinate(|pass, _| stage(vec![patch("web-0", json!({"on": pass % 4 < 2}))]), None),
    );
    world.put_set("web", 1, "app:v1");
    let sent = a_minute(&mut world, &mut core, |call| {
        matches!(call, Call::Write(_)).then_some(Answer::Success)
    });
    assert_rare(&writes(&sent), 20);
    let held = seen.lock().expect("not poisoned").clone();
    assert!(held[&Scope::Named("web-0".into())].is_repetition(), "{held:?}");
    let told = sent.iter().filter_map(|(_, call)| match call {
        Call::Event(EventCall::Create(event)) => Some(&event.note),
        _ => None,
    });
    let told: Vec<_> = told.filter(|note| note.reason == Failure::REPEATED).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].message.starts_with("patch Pod web-0: the same request"),
        "{told:?}"
    );
}

#[test]
fn a_status_that_changes_to_and_fro_is_held_back() {
    let (mut world, (mut core, _)) = (
        World::default(),
        obstinate(
            |_, _| Vec::new(),
            Some(|pass| json!({"updateRevision": if pass % 2 == 0 { "a" } else { "b" }})),
        ),
    );
    world.put_set("web", 1, "app:v1");
    let sent = a_minute(&mut world, &mut core, |_| None);
    assert_rare(&writes(&sent), 20);
}

#[test]
fn what_is_held_back_does_not_hold_up_the_others() {
    let decide = |pass, _: &ObjectKey| {
        stage(vec![
            patch("web-0", json!({"cpu": "1"})),
            patch("web-1", json!({"pass": pass})),
        ])
    };
    let (mut world, (mut core, _)) = (World::default(), obstinate(decide, None));
    world.put_set("web", 1, "app:v1");
    let sent = a_minute(&mut world, &mut core, |call| {
        matches!(call, Call::Write(_)).then_some(Answer::Success)
    });
    let of = |name: &str| -> Vec<i64> {
        let is_of = |call: &Call| matches!(call, Call::Write(command) if command.key().name == name);
        sent.iter().filter(|(_, call)| is_of(call)).map(|(at, _)| *at).collect()
    };
    assert_rare(&of("web-0"), 10);
    assert!(of("web-1").len() > 1000, "{}", of("web-1").len());
}

#[test]
fn a_command_whose_answers_are_lost_is_repeated_ever_more_rarely() {
    let (mut world, (mut core, _)) = (
        World::default(),
        obstinate(|_, _| stage(vec![patch("web-0", json!({"cpu": "1"}))]), None),
    );
    world.put_set("web", 1, "app:v1");
    let sent = a_minute(&mut world, &mut core, |call| match call {
        Call::Write(_) => Some(Answer::Lost("no answer".into())),
        Call::Get { .. } => Some(Answer::Success),
        _ => None,
    });
    assert_rare(&writes(&sent), 12);
}

#[test]
fn a_retry_does_not_begin_with_what_failed_the_last_time() {
    let decide = |_, _: &ObjectKey| {
        let pods = ["web-0", "web-1", "web-2"];
        stage(pods.map(|pod| patch(pod, json!({"cpu": "1"}))).into())
    };
    let (mut world, (mut core, _)) = (World::default(), obstinate(decide, None));
    world.put_set("web", 1, "app:v1");
    let sent = a_minute(&mut world, &mut core, |call| match call {
        Call::Write(command) if command.key().name == "web-0" => Some(refuse_with(
            403,
            "Forbidden",
            "pods \"web-0\" is forbidden: exceeded quota: small",
        )),
        Call::Write(_) => Some(Answer::Success),
        _ => None,
    });
    let pods = sent.iter().filter_map(|(_, call)| match call {
        Call::Write(command) => Some(command.key().name.as_str()),
        _ => None,
    });
    let first: Vec<_> = pods.take(4).collect();
    assert_eq!(first, ["web-0", "web-1", "web-2", "web-0"]);
}

/// Asks for a change of each of so many pods, unless it was refused and is to wait, as controllers do.
struct Heedful {
    pods: usize,
}

impl Controller for Heedful {
    fn name(&self) -> &'static str {
        "heedful"
    }

    fn resource(&self) -> Resource {
        Resource::NativeSets
    }

    fn route(&self, change: &Change, _: &dyn Reader, keys: &mut Vec<ObjectKey>) {
        keys.extend(change.object().map(|(_, key)| key.clone()));
    }

    fn reconcile(&self, reader: &dyn Reader, key: &ObjectKey, context: PassContext<'_>) -> Option<Decision> {
        reader.set(SetKind::Native, key)?;
        let pods = (0..self.pods).map(|pod| patch(&format!("web-{pod}"), json!({"cpu": "1"})));
        let waits = |scope: &Scope| {
            context
                .hints
                .failures
                .get(scope)
                .is_some_and(|f| f.retry_at > context.now)
        };
        Some(Decision {
            stages: stage(pods.filter(|pod| !waits(&pod.scope)).collect()),
            ..Decision::default()
        })
    }
}

/// What is sent for so many pods of which the first ones are refused a change, with this code and message: when, and for which.
fn refused_ones(end_ms: i64, pods: usize, refused: usize, (code, message): (i32, &str)) -> Vec<(i64, usize)> {
    let options = CoreOptions {
        resources: vec![Resource::NativeSets],
        observation_period: Duration::ZERO,
        ..CoreOptions::new("one")
    };
    let (mut world, mut core) = (
        World::default(),
        Core::new(options, vec![Box::new(Heedful { pods })], at(0)),
    );
    world.put_set("web", 1, "app:v1");
    let pod = |call: &Call| match call {
        Call::Write(command) => command.key().name.strip_prefix("web-")?.parse::<usize>().ok(),
        _ => None,
    };
    let sent = until(end_ms, &mut world, &mut core, |call| {
        let is_refused = pod(call)? < refused;
        Some(if is_refused {
            refuse_with(code, if code == 403 { "Forbidden" } else { "InternalError" }, message)
        } else {
            Answer::Success
        })
    });
    sent.iter().filter_map(|(at, call)| Some((*at, pod(call)?))).collect()
}

/// a policy refuses most of what a set asks for. What it would allow is found, however far behind it stands; and where all is
/// refused, a few requests a second are enough to see it, and less once it is known.
#[test]
fn r_2_what_is_refused_does_not_keep_the_others_from_being_tried() {
    let policy = (403, "not this pod");
    for (pods, refused, soon_ms) in [(40, 30, 5_000), (400, 360, 45_000)] {
        let sent = refused_ones(60_000, pods, refused, policy);
        let allowed_at = sent.iter().find(|(_, pod)| *pod >= refused).map(|(at, _)| *at);
        assert!(
            allowed_at.is_some_and(|at| at < soon_ms),
            "of {refused} refused ones: {allowed_at:?}"
        );
    }
    let sent = refused_ones(400_000, 600, 600, policy);
    let in_second = |second: i64| sent.iter().filter(|(at, _)| at / 1_000 == second).count();
    let most = (0..60).map(in_second).max();
    assert!(most <= Some(10), "{most:?} in a second, {} in all", sent.len());
    // When all have been tried, the back-off of the set begins, which is short at first.
    let most = (60..400).map(in_second).max();
    assert!(most <= Some(90), "{most:?} in a second, {} in all", sent.len());
    let late = sent.iter().filter(|(at, _)| *at >= 200_000).count();
    assert!(late < 100, "{late} in the last 200 s");
    assert!(late > 9, "and they are tried again");
}

/// Of a quota, or a webhook that is away, the first refusal says all.
#[test]
fn r_2_what_is_refused_to_all_is_tried_with_one() {
    let away = "failed calling webhook \"pods.example.com\": connection refused";
    for refusal in [(403, "pods \"web-0\" is forbidden: exceeded quota: small"), (500, away)] {
        let sent = refused_ones(60_000, 400, 400, refusal);
        let most = (0..60).map(|second| sent.iter().filter(|(at, _)| at / 1_000 == second).count());
        let most = most.max().unwrap_or_default();
        // At first the back-off is short.
        assert!(
            most <= 9 && sent.len() <= 70,
            "{refusal:?}: {most} in a second, {} in a minute",
            sent.len()
        );
        assert!(sent.len() > 5, "{refusal:?}: {sent:?}");
    }
}

/// A trial is refused, and the look that follows knows already that it was accepted: nothing else would have brought up the next pass.
#[test]
fn what_the_last_look_finds_elsewhere_is_done_in_a_next_pass() {
    let decide = |pass, _: &ObjectKey| match pass {
        0 => stage(vec![patch("web-0", json!({"cpu": "1"}))]),
        1 | 2 => stage(vec![patch("web-1", json!({"cpu": "1"}))]),
        _ => Vec::new(),
    };
    let (mut world, (mut core, _)) = (World::default(), controlled(decide, None, false));
    world.put_set("web", 1, "app:v1");
    let sent = a_minute(&mut world, &mut core, |call| match call {
        Call::Write(command) if command.key().name == "web-0" => Some(refuse_with(403, "Forbidden", "not this pod")),
        Call::Write(_) => Some(Answer::Success),
        _ => None,
    });
    let pods = sent.iter().filter_map(|(_, call)| match call {
        Call::Write(command) => Some(command.key().name.as_str()),
        _ => None,
    });
    assert_eq!(pods.collect::<Vec<_>>(), ["web-0", "web-1"]);
}
