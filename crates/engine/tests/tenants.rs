//! What fails one object, or is asked of one namespace: it is told, and holds up no other.

mod support;

use flotilla_controllers::statefulset::StatefulSetController;
use flotilla_engine::core::events::EventCall;
use flotilla_engine::core::request::{Answer, Call};
use flotilla_engine::core::{Core, Effect};
use flotilla_engine::wire::Object;
use flotilla_model::template::Template;
use flotilla_model::{Command, ObjectKey, Resource, SetKind};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use support::{World, at, key, options, refuse_with};

fn core() -> Core {
    let options = options("one");
    let controller = StatefulSetController::new(SetKind::Native);
    Core::new(options, vec![Box::new(controller)], at(0))
}

/// Runs for some time; `judge` may answer a request instead of the world.
fn run(world: &mut World, core: &mut Core, millis: i64, mut judge: impl FnMut(&Call) -> Option<Answer>) {
    let end = world.now + millis;
    world.deliver_news(core);
    loop {
        core.advance(at(world.now));
        let effects = core.take_effects();
        if effects.is_empty() {
            let wake = core.next_wake(at(world.now)).filter(|wake| *wake < at(end));
            let Some(wake) = wake else { break };
            assert!(wake > at(world.now), "a wake-up in the past");
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
        world.deliver_news(core);
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

/// What an admission webhook's refusal looks like.
fn denied(code: i32, retry_after: Option<u64>) -> Answer {
    let answer = refuse_with(
        code,
        "",
        "admission webhook \"x.example.com\" denied the request: not now",
    );
    after(answer, retry_after)
}

fn after(answer: Answer, seconds: Option<u64>) -> Answer {
    match answer {
        Answer::Refused(mut refusal) => {
            refusal.retry_after = seconds.map(Duration::from_secs);
            Answer::Refused(refusal)
        }
        other => other,
    }
}

fn creates(call: &Call, pod: &str) -> bool {
    matches!(call, Call::Write(Command::Create { resource: Resource::Pods, key, .. }) if key.name == pod)
}

fn condition(world: &World, set: &str) -> serde_json::Value {
    let status = &world.sets[&key(set)]["status"];
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let failed = conditions.into_iter().find(|c| c["type"] == "FailedCreatePod");
    failed.unwrap_or_default()
}

#[test]
fn whatever_fails_one_pod_is_told_and_holds_up_no_other() {
    let cases = [
        (denied(500, None), "AdmissionDenied"),
        (denied(401, None), "AdmissionDenied"),
        (denied(503, None), "AdmissionDenied"),
        (denied(409, None), "AdmissionDenied"),
        (denied(429, Some(5)), "AdmissionDenied"),
        (
            refuse_with(500, "InternalError", "resource quota evaluation timed out"),
            "OutcomeUnknown",
        ),
        (refuse_with(503, "ServiceUnavailable", "later"), "OutcomeUnknown"),
        (refuse_with(429, "TooManyRequests", "slowly"), "TooManyRequests"),
        (Answer::Lost("no answer within 30 s".into()), "OutcomeUnknown"),
        (Answer::NotSent("connection refused".into()), "NotSent"),
    ];
    for (answer, reason) in cases {
        let (mut world, mut core) = (World::default(), core());
        world.put_parallel_set("web", 4, "app:v1");
        let (mut tries, mut told) = (0, 0);
        run(&mut world, &mut core, 60_000, |call| {
            if let Call::Event(EventCall::Create(event)) = call {
                told += i32::from(event.note.reason == "FailedCreate" && event.note.message.contains("web-0"));
            }
            creates(call, "web-0").then(|| {
                tries += 1;
                answer.clone()
            })
        });
        let status = &world.sets[&key("web")]["status"];
        assert_eq!(world.pod_names(), ["web-1", "web-2", "web-3"], "{answer:?}");
        assert_eq!(status["observedGeneration"], 1, "{answer:?}");
        assert_eq!(status["replicas"], 3, "{answer:?}");
        let condition = condition(&world, "web");
        assert_eq!(
            (&condition["status"], &condition["reason"]),
            (&"True".into(), &reason.into()),
            "{answer:?}"
        );
        assert_eq!(told, 1, "by an event, {answer:?}");
        assert!((3..=8).contains(&tries), "{tries} tries in a minute, {answer:?}");
        run(&mut world, &mut core, 65_000, |_| None);
        assert_eq!(world.pods.len(), 4, "{answer:?}");
        assert_eq!(self::condition(&world, "web")["status"], "False", "{answer:?}");
    }
}

#[test]
fn a_webhook_that_asks_for_a_pause_pauses_its_namespace_and_no_other() {
    let (mut world, mut core) = (World::default(), core());
    for n in 0..20 {
        world.put_parallel_set(&format!("web{n}"), 3, "app:v1");
    }
    let mut asked = 0;
    run(&mut world, &mut core, 2_000, |call| {
        is_pod_create(call).then(|| {
            asked += 1;
            denied(429, Some(40))
        })
    });
    assert!((1..=30).contains(&asked), "{asked} requests while it asks for none");
    // Another namespace goes on, although there are more sets than workers.
    world.put_set_of("Parallel", &ObjectKey::new("other", "db"), 2, "app:v1");
    run(&mut world, &mut core, 5_000, |call| {
        is_pod_create(call)
            .then(|| {
                let Call::Write(command) = call else { return None };
                (&*command.key().namespace == "ns").then(|| denied(429, Some(40)))
            })
            .flatten()
    });
    assert!(
        world.pods.contains_key(&ObjectKey::new("other", "db-0")),
        "{:?}",
        world.log
    );
    assert_eq!(condition(&world, "web0")["reason"], "AdmissionDenied");
    // And then this one, too.
    run(&mut world, &mut core, 120_000, |_| None);
    assert_eq!(world.pods.len(), 62);
}

/// B names the set of A as the owner of a pod and of a revision: by its UID, which is all that it needs to know.
#[test]
fn who_names_the_owner_of_another_namespace_is_none_of_its_own() {
    let (mut world, mut core) = (World::quick(), core());
    world.put_parallel_set("web", 2, "app:v1");
    run(&mut world, &mut core, 60_000, |_| None);
    let before = world.pods.clone();
    assert_eq!(before.len(), 2);

    let mut pod = before[&key("web-0")].clone();
    pod.meta.key = ObjectKey::new("b", "web-0");
    let (_, revision) = world.revisions.first_key_value().expect("of the set");
    let mut revision = revision.clone();
    revision.meta.key = ObjectKey::new("b", "web-evil");
    revision.number += 1;
    revision.template = Some(Template::new(
        &json!({"spec": {"containers": [{"name": "main", "image": "evil"}]}}),
    ));
    world.store(Object::Pod(Arc::new(pod)));
    world.store(Object::Revision(Arc::new(revision)));
    let writes = world.log.len();
    run(&mut world, &mut core, 60_000, |_| None);
    assert_eq!(world.log.len(), writes, "{:?}", &world.log[writes..]);

    // Its own pod is made again when it goes, from its own revision.
    world.finish_deletion("web-0");
    run(&mut world, &mut core, 60_000, |_| None);
    let new = &world.pods[&key("web-0")];
    assert_ne!(new.meta.uid, before[&key("web-0")].meta.uid);
    assert_eq!(new.revision(), before[&key("web-0")].revision());
    assert!(
        world.pods.contains_key(&ObjectKey::new("b", "web-0")),
        "it is not ours to delete"
    );
}

/// In its own namespace, too: kind, name and UID have to fit.
#[test]
fn who_names_a_set_wrongly_is_none_of_its_own() {
    for (kind, name) in [("Job", "web"), ("StatefulSet", "db")] {
        let (mut world, mut core) = (World::quick(), core());
        world.put_parallel_set("web", 1, "app:v1");
        run(&mut world, &mut core, 60_000, |_| None);
        let mut pod = world.pods[&key("web-0")].clone();
        pod.meta.key = key("web-7");
        let mut owner = pod.meta.owners()[0].clone();
        (owner.kind, owner.name) = (kind.into(), name.into());
        pod.meta.owners = Some(Arc::new(vec![owner]));
        world.store(Object::Pod(Arc::new(pod)));
        run(&mut world, &mut core, 60_000, |_| None);
        assert!(world.pods.contains_key(&key("web-7")), "{kind} {name}: {:?}", world.log);
    }
}
