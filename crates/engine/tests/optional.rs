//! A kind that others define, and that the manager does its work without: images pulled ahead of a CloneSet's update (STS-5.1,
//! CS-20). Every event and every answer by hand.

mod support;

use flotilla_controllers::predownload::PreDownloadController;
use flotilla_engine::core::events::EventCall;
use flotilla_engine::core::request::{Answer, Call, Request};
use flotilla_engine::core::{Core, CoreOptions, Effect, WatchEvent};
use flotilla_engine::wire;
use flotilla_model::{Body, Command, Interner, Reader, Resource, SetKind};
use serde_json::{Value, json};
use support::{at, refuse};

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": image}]}})
}

fn set() -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": "web", "resourceVersion": "1", "generation": 1},
        "spec": {
            "replicas": 10, "selector": {"matchLabels": {"app": "web"}}, "template": template("v2"),
            "updateStrategy": {"rollingUpdate": {"podUpdatePolicy": "InPlaceIfPossible"}},
        },
        "status": {"currentRevision": "web-old", "updateRevision": "web-new"},
    })
}

fn revision(name: &str, number: i64, image: &str, labels: &Value) -> Value {
    let mut meta = meta(name, number);
    meta["labels"] = json!({"app": "web"});
    for (key, value) in labels.as_object().into_iter().flatten() {
        meta["labels"][key] = value.clone();
    }
    json!({"metadata": meta, "revision": number, "data": {"spec": {"template": template(image)}}})
}

fn meta(name: &str, version: i64) -> Value {
    let owner = json!({"apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "name": "web", "uid": "web", "controller": true});
    json!({"name": name, "namespace": "ns", "uid": name, "resourceVersion": version.to_string(), "ownerReferences": [owner]})
}

fn object(resource: Resource, object: &Value) -> wire::Object {
    wire::read(resource, object, &mut Interner::new()).expect("well written")
}

fn list(core: &mut Core, resource: Resource, objects: &[Value], now: i64) {
    core.watch(WatchEvent::ListBegan(resource, at(now)), at(now));
    for listed in objects {
        core.watch(WatchEvent::Listed(object(resource, listed)), at(now));
    }
    core.watch(WatchEvent::ListEnded(resource, 5), at(now));
}

/// A manager that leads and knows everything but jobs.
fn manager(watches_jobs: bool) -> Core {
    let mut resources = vec![Resource::CloneSets, Resource::Revisions];
    resources.extend(watches_jobs.then_some(Resource::ImagePullJobs));
    let options = CoreOptions {
        resources,
        ..CoreOptions::new("optional")
    };
    let controller = PreDownloadController::new(SetKind::Clone);
    let mut core = Core::new(options, vec![Box::new(controller)], at(0));
    assert_eq!(requests(&mut core, 0).len(), 0);
    list(&mut core, Resource::CloneSets, &[set()], 1);
    let revisions = [
        revision("web-old", 1, "v1", &Value::Null),
        revision("web-new", 2, "v2", &Value::Null),
    ];
    list(&mut core, Resource::Revisions, &revisions, 1);
    core
}

fn requests(core: &mut Core, now: i64) -> Vec<Request> {
    core.advance(at(now));
    let sent = core.take_effects().into_iter().filter_map(|effect| match effect {
        Effect::Send(request) => Some(request),
        Effect::List(_) => None,
    });
    sent.collect()
}

/// The creation among what is sent, and the reasons of events, which are answered.
fn creation(core: &mut Core, now: i64) -> (Option<Request>, Vec<String>) {
    let (mut found, mut reasons) = (None, Vec::new());
    for request in requests(core, now) {
        match &request.call {
            Call::Write(Command::Create {
                resource: Resource::ImagePullJobs,
                ..
            }) => found = Some(request),
            Call::Event(EventCall::Create(event)) => {
                reasons.push(format!("{} {}", event.note.warning, event.note.reason));
                core.answer(request.id, Answer::Success, at(now));
            }
            other => panic!("{other:?}"),
        }
    }
    (found, reasons)
}

#[test]
fn sts_5_1_a_kind_that_is_not_there_holds_nothing_up() {
    for watches_jobs in [false, true] {
        let mut core = manager(watches_jobs);
        assert_eq!(core.not_ready(), [""; 0]);
        assert_eq!(requests(&mut core, 2).len(), 0);
        assert_eq!(core.metrics().lists.get(&Resource::ImagePullJobs), None);
        core.watch(WatchEvent::Missing(Resource::ImagePullJobs), at(3));
        assert_eq!((requests(&mut core, 3).len(), core.not_ready().len()), (0, 0));
        assert!(!core.cache.knows_image_pull_jobs());
    }
}

#[test]
fn cs_20_jobs_are_made_once_they_are_known_and_while_they_are() {
    let mut core = manager(true);
    core.watch(WatchEvent::Missing(Resource::ImagePullJobs), at(2));
    assert_eq!(requests(&mut core, 2).len(), 0);
    assert!(core.is_missing(Resource::ImagePullJobs));
    list(&mut core, Resource::ImagePullJobs, &[], 100);
    let (Some(create), _) = creation(&mut core, 100) else {
        panic!("a job is made");
    };
    let Call::Write(Command::Create {
        body: Body::Json(body), ..
    }) = &create.call
    else {
        panic!("{create:?}");
    };
    let mut made = (**body).clone();
    for (field, value) in [("uid", "job"), ("resourceVersion", "9")] {
        made["metadata"][field] = json!(value);
    }
    let made = Answer::Object(object(Resource::ImagePullJobs, &made));
    core.answer(create.id, made, at(101));
    let sent = requests(&mut core, 200);
    let labels = |request: &Request| match &request.call {
        Call::Write(Command::Patch {
            resource: Resource::Revisions,
            key,
            body,
            ..
        }) => Some((key.name.to_string(), body["metadata"]["labels"].clone())),
        _ => None,
    };
    let created = json!({"apps.kruise.io/pre-predownload-created": "true"});
    assert_eq!(
        sent.iter().find_map(labels),
        Some(("web-new".to_owned(), created.clone()))
    );
    let reason = |request: &Request| match &request.call {
        Call::Event(EventCall::Create(event)) => Some((event.note.warning, event.note.reason)),
        _ => None,
    };
    assert_eq!(sent.iter().find_map(reason), Some((false, "CreatedImagePullJob")));
    for request in sent {
        let answer = match &request.call {
            Call::Event(_) => Answer::Success,
            _ => Answer::Object(object(Resource::Revisions, &revision("web-new", 10, "v2", &created))),
        };
        core.answer(request.id, answer, at(201));
    }
    assert_eq!(requests(&mut core, 5_000).len(), 0, "and then there is silence");

    // The definition is taken away, and a stale list of a set that has come to its end asks for nothing.
    core.watch(WatchEvent::Missing(Resource::ImagePullJobs), at(6_000));
    assert_eq!(requests(&mut core, 6_000).len(), 0);
    let mut done = set();
    done["metadata"]["resourceVersion"] = json!("20");
    done["status"]["currentRevision"] = json!("web-new");
    core.watch(WatchEvent::Upsert(object(Resource::CloneSets, &done)), at(6_001));
    assert_eq!(requests(&mut core, 7_000).len(), 0);
    list(
        &mut core,
        Resource::ImagePullJobs,
        &[json!({"metadata": meta("web-new-main", 9)})],
        8_000,
    );
    let sent = requests(&mut core, 8_000);
    assert!(
        matches!(&sent[..], [Request { call: Call::Write(Command::Delete { key, .. }), .. }] if key.name == "web-new-main")
    );
}

#[test]
fn sts_5_4_a_refused_job_is_told_once_and_tried_again() {
    let mut core = manager(true);
    list(&mut core, Resource::ImagePullJobs, &[], 2);
    let mut told = Vec::new();
    let mut tries = Vec::new();
    for now in (100..8_000).step_by(100) {
        let (create, reasons) = creation(&mut core, now);
        told.extend(reasons);
        if let Some(create) = create {
            tries.push(now);
            core.answer(create.id, refuse(403, "Forbidden"), at(now));
        }
    }
    assert_eq!(told, ["true FailedCreateImagePullJob"]);
    let pauses: Vec<i64> = tries.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000).collect();
    assert_eq!(pauses, [1, 2, 4], "{tries:?}");
}
