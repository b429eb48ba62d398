use super::*;
use crate::core::cache::Cache;
use crate::core::request::{Call, StatusPatch};
use crate::core::store::Source;
use crate::core::testing::{at, key};
use crate::wire::{Encoding, Object};
use bytes::Bytes;
use flotilla_model::decision::PodDraft;
use flotilla_model::{Body, Command, OwnerRef, PatchKind, Report, Resource, Uid};
use serde_json::{Value, json};
use std::sync::Arc;

fn patch(name: &str, uid: &str, body: Value) -> Call {
    Call::Write(Command::Patch {
        resource: Resource::Pods,
        key: key(name),
        uid: Uid::new(uid),
        subresource: None,
        kind: PatchKind::Merge,
        body,
        resource_version: None,
        guard: None,
        report: Report::Update,
    })
}

fn refused() -> Outcome {
    Outcome::Rejected {
        reason: "Forbidden".into(),
        message: "no".into(),
        retry_after: None,
    }
}

fn author(generation: i64) -> Fingerprint {
    digest(&patch("web-0", "u", json!({"a": 1})), generation)
}

fn digest(call: &Call, generation: i64) -> Fingerprint {
    let set = key("web");
    let author = Author {
        resource: Resource::AdvancedSets,
        key: &set,
        generation,
    };
    Fingerprint::of(call, author).expect("a write")
}

/// When a request is sent that is wanted every ten milliseconds of so many seconds, in milliseconds.
fn sent_at(repeats: &mut Repeats, requests: &[Fingerprint], from: i64, seconds: i64) -> Vec<i64> {
    let mut turn = 0;
    let mut moments = Vec::new();
    for now in (from..from + seconds * 1000).step_by(10) {
        if repeats.send(requests[turn % requests.len()], at(now)).is_ok() {
            moments.push(now);
            turn += 1;
        }
    }
    moments
}

#[test]
fn the_first_repetition_goes_at_once_and_further_ones_back_off_to_a_minute() {
    let mut repeats = Repeats::default();
    let moments = sent_at(&mut repeats, &[author(1)], 0, 300);
    assert_eq!(
        moments,
        [
            0, 10, 510, 1510, 3510, 7510, 15_510, 31_510, 63_510, 123_510, 183_510, 243_510
        ]
    );
}

/// Half a minute of a busy server would have become another half of silence after it.
#[test]
fn what_the_server_was_too_busy_for_is_sent_again_when_it_says() {
    let second = Some(Duration::from_secs(1));
    for (after, times) in [(second, 30), (None, 30), (Some(Duration::ZERO), 7)] {
        let mut repeats = Repeats::default();
        let mut sent = 0;
        for now in (0..30_000).step_by(1_000) {
            if repeats.send(author(1), at(now)).is_ok() {
                repeats.answered(author(1), &Outcome::Throttled(after), 1, at(now));
                sent += 1;
            }
        }
        assert_eq!(sent, times, "{after:?}");
    }
}

#[test]
fn two_requests_that_undo_each_other_are_both_held() {
    let mut repeats = Repeats::default();
    let there = digest(&patch("web-0", "u", json!({"state": "PreparingDelete"})), 1);
    let back = digest(&patch("web-0", "u", json!({"state": "Normal"})), 1);
    let moments = sent_at(&mut repeats, &[there, back], 0, 60);
    assert!(moments.len() <= 20, "{moments:?}");
    assert!(
        moments.windows(5).all(|five| five[4] - five[0] >= 500),
        "never three of each within half a second: {moments:?}"
    );
}

#[test]
fn what_others_do_makes_a_repetition_legitimate_but_not_quick() {
    let mut repeats = Repeats::default();
    let request = author(1);
    let object = request.object;
    let mut moments = Vec::new();
    for now in (0..10_000).step_by(10) {
        repeats.changed_by_others(object, at(now));
        if repeats.send(request, at(now)).is_ok() {
            moments.push(now);
        }
    }
    assert_eq!(moments.len(), 21, "{moments:?}");
    assert!(moments[1..].windows(2).all(|two| two[1] - two[0] == 500), "{moments:?}");
}

#[test]
fn a_change_of_another_object_changes_nothing() {
    let mut repeats = Repeats::default();
    let request = author(1);
    for now in [0, 10, 510] {
        repeats.send(request, at(now)).expect("not held yet");
        repeats.changed_by_others(ObjectDigest::of(Resource::Pods, &key("web-1")), at(now + 1));
    }
    let hold = repeats.send(request, at(1000)).expect_err("held");
    assert_eq!((hold.until, hold.times, hold.since), (at(1510), 3, at(0)));
    assert_eq!(repeats.held(), 1);
}

#[test]
fn an_edit_of_the_set_lets_everything_go_at_once() {
    let mut repeats = Repeats::default();
    for generation in 1..50 {
        assert_eq!(repeats.send(author(generation), at(generation)), Ok(()));
    }
}

#[test]
fn what_was_not_sent_for_a_while_counts_as_new() {
    let mut repeats = Repeats::default();
    sent_at(&mut repeats, &[author(1)], 0, 5);
    let moments = sent_at(&mut repeats, &[author(1)], 70_000, 2);
    assert_eq!(moments, [70_000, 70_010, 70_510, 71_510]);
}

#[test]
fn a_refusal_is_remembered_until_the_request_is_answered_otherwise() {
    let mut repeats = Repeats::default();
    let request = author(1);
    for now in [0, 10] {
        repeats.send(request, at(now)).expect("not held yet");
        repeats.answered(request, &refused(), 1, at(now));
    }
    let hold = repeats.send(request, at(20)).expect_err("held");
    assert_eq!(hold.refusal, Some(("Forbidden".into(), "no".into())));
    repeats.answered(request, &Outcome::Done, 2, at(20));
    assert_eq!(repeats.send(request, at(20)).expect_err("held").refusal, None);
}

#[test]
fn requests_are_the_same_whatever_time_it_is_and_whichever_version_was_seen() {
    let note = |moment: &str| patch("web-0", "u", json!({"note": format!("to web-1, begun at {moment}")}));
    let delete = |version| {
        Call::Write(Command::Delete {
            resource: Resource::Pods,
            key: key("web-0"),
            uid: Uid::new("u"),
            resource_version: version,
            report: Report::Delete,
        })
    };
    let take = |version: &str| {
        patch(
            "web-0",
            "u",
            json!({"metadata": {"annotations": {"flotilla.rs/taken-at-version": version}}}),
        )
    };
    for (one, other) in [
        (take("7"), take("8")),
        (note("2026-01-01T00:00:46.926Z"), note("2026-01-01T00:00:47Z")),
        (delete(Some(7)), delete(Some(8))),
    ] {
        assert_eq!(digest(&one, 1), digest(&other, 1), "{one:?} {other:?}");
    }
}

#[test]
fn requests_differ_by_object_incarnation_verb_and_content() {
    let create = |name: &str| {
        Call::Write(Command::Create {
            resource: Resource::Claims,
            key: key(name),
            body: Body::Json(Arc::new(json!({"a": 1}))),
            exists_is_fine: true,
            guard: None,
            report: Report::Create,
        })
    };
    let calls = [
        patch("web-0", "u", json!({"a": 1})),
        patch("web-0", "u", json!({"a": "1"})),
        patch("web-0", "u", json!({"a": [1]})),
        patch("web-0", "u", json!({"a": 2})),
        patch("web-0", "u", json!({"b": 1})),
        patch("web-0", "u", json!({"image": "app:v1"})),
        patch("web-0", "u", json!({"image": "app:v2"})),
        patch("web-0", "v", json!({"a": 1})),
        patch("web-1", "u", json!({"a": 1})),
        create("data-web-0"),
        create("data-web-1"),
    ];
    let digests: Vec<_> = calls.iter().map(|call| digest(call, 1)).collect();
    for (i, digest) in digests.iter().enumerate() {
        assert!(!digests[..i].contains(digest), "{:?}", calls[i]);
    }
}

#[test]
fn a_status_counts_whatever_the_generation_since_that_may_be_of_our_own_making() {
    let status = |replicas| {
        Call::Status(StatusPatch {
            resource: Resource::AdvancedSets,
            key: key("web"),
            uid: Uid::new("u"),
            resource_version: 1,
            status: json!({"readyReplicas": replicas}),
        })
    };
    assert_eq!(digest(&status(1), 1), digest(&status(1), 2));
    assert_ne!(digest(&status(1), 1), digest(&status(2), 1));
}

#[test]
fn memory_is_bounded_and_forgotten() {
    let mut repeats = Repeats::default();
    let request = |i: usize| digest(&patch(&format!("web-{i}"), "u", json!({})), 1);
    for i in 0..3 * REMEMBERED_MAX {
        repeats.send(request(i), at(0)).expect("each is new");
    }
    assert!(repeats.len() <= 2 * REMEMBERED_MAX, "{}", repeats.len());
    repeats.send(request(0), at(400_000)).expect("new");
    repeats.send(request(1), at(800_000)).expect("new");
    assert!(repeats.len() <= 2, "{}", repeats.len());
}

fn clone_pod(id: &str, hash: &str) -> PodDraft {
    PodDraft {
        key: key(&format!("web-{id}")),
        generate_name: "web-".into(),
        withheld: Vec::new(),
        template: Arc::new(json!({})),
        labels: vec![
            ("apps.kruise.io/cloneset-instance-id", id.to_owned()),
            ("pod-template-hash", hash.to_owned()),
        ],
        annotations: vec![("lifecycle.apps.kruise.io/timestamp", "2026-01-01T00:00:46Z".to_owned())],
        gates: &[],
        owner: Arc::new(OwnerRef {
            api_version: "apps.kruise.io/v1alpha1".into(),
            kind: "CloneSet".into(),
            name: "web".into(),
            uid: Uid::new("u"),
            controller: true,
            block_owner_deletion: true,
        }),
        host: None,
        claims: vec![("data".into(), format!("data-web-{id}"))],
    }
}

fn make(id: &str, hash: &str) -> Call {
    Call::Write(clone_pod(id, hash).into_command())
}

fn make_claim(id: &str) -> Call {
    let labels = json!({"apps.kruise.io/cloneset-instance-id": id});
    Call::Write(Command::Create {
        resource: Resource::Claims,
        key: key(&format!("data-web-{id}")),
        body: Body::Json(Arc::new(
            json!({"metadata": {"name": format!("data-web-{id}"), "labels": labels}}),
        )),
        exists_is_fine: true,
        guard: None,
        report: Report::Create,
    })
}

#[test]
fn a_name_that_is_made_up_makes_no_other_request() {
    let attempt = |id| {
        let pod = Box::new(clone_pod(id, "one"));
        Call::Write(Command::Try { pod })
    };
    for (one, other) in [
        (make("b2c4d", "one"), make("x5z7k", "one")),
        (make_claim("b2c4d"), make_claim("x5z7k")),
        (attempt("b2c4d"), attempt("x5z7k")),
    ] {
        assert_eq!(digest(&one, 1), digest(&other, 1), "{one:?} {other:?}");
        assert_ne!(digest(&one, 1), digest(&other, 2));
    }
    let one = make("b2c4d", "one");
    for other in [make("b2c4d", "two"), make_claim("b2c4d"), attempt("b2c4d")] {
        assert_ne!(digest(&one, 1), digest(&other, 1), "{other:?}");
    }
}

#[test]
fn a_thousand_equal_pods_are_no_repetition() {
    let mut repeats = Repeats::default();
    for n in 0..1000 {
        let pod = digest(&make(&format!("id{n}"), "one"), 1);
        assert_eq!(repeats.send(pod, at(n)), Ok(()));
        repeats.answered(pod, &Outcome::Done, 1, at(n));
    }
}

#[test]
fn what_is_refused_under_ever_new_names_is_a_repetition() {
    let mut repeats = Repeats::default();
    let mut moments = Vec::new();
    // Each pass asks for five at a time.
    for now in (0..120_000).step_by(10) {
        let pods = (0..5).map(|n| digest(&make(&format!("id{n}at{now}"), "one"), 1));
        let sent: Vec<_> = pods.filter(|pod| repeats.send(*pod, at(now)).is_ok()).collect();
        for pod in &sent {
            let pass = u64::try_from(now).expect("positive");
            repeats.answered(*pod, &refused(), pass, at(now));
        }
        if !sent.is_empty() {
            assert_eq!(sent.len(), 5, "a pass is not repeated by itself");
            moments.push(now);
        }
    }
    assert_eq!(moments, [0, 10, 510, 1510, 3510, 7510, 15_510, 31_510, 63_510]);
    let next = digest(&make("next", "one"), 1);
    let hold = repeats.send(next, at(120_000)).expect_err("held");
    assert_eq!(hold.refusal, Some(("Forbidden".into(), "no".into())));
    // Someone edits the set, or deletes one of its pods.
    let set = ObjectDigest::of(Resource::AdvancedSets, &key("web"));
    repeats.changed_by_others(set, at(120_001));
    assert_eq!(repeats.send(next, at(120_001)), Ok(()));
}

fn unmake(id: &str) -> Call {
    Call::Write(Command::Delete {
        resource: Resource::Pods,
        key: key(&format!("web-{id}")),
        uid: Uid::new(id),
        resource_version: Some(1),
        report: Report::Delete,
    })
}

/// A set whose controller makes two pods under new names and deletes them, as soon as it may: how often it made some, and the longest wait.
fn churn(repeats: &mut Repeats, seconds: i64, lives_ms: i64, generation: impl Fn(u64) -> i64) -> (usize, u32) {
    let (mut made, mut most, mut pass, mut now) = (0, 0, 0, 0);
    while now < seconds * 1000 {
        pass += 1;
        let ids = [format!("a{pass}"), format!("b{pass}")];
        let decided = |call: &Call| digest(call, generation(pass));
        // Others act on each new pod: a scheduler and a node.
        repeats.changed_by_others(ObjectDigest::of(Resource::AdvancedSets, &key("web")), at(now));
        let mut lived = Vec::new();
        for id in &ids {
            let request = decided(&make(id, "v1"));
            match repeats.send(request, at(now)) {
                Ok(()) => {
                    repeats.answered(request, &Outcome::Done, pass, at(now));
                    lived.push(id);
                }
                Err(hold) => most = most.max(hold.times),
            }
        }
        made += usize::from(!lived.is_empty());
        now += lives_ms;
        pass += 1;
        for id in lived {
            let request = digest(&unmake(id), generation(pass));
            repeats
                .send(request, at(now))
                .expect("nothing keeps a pod from being deleted");
            repeats.answered(request, &Outcome::Done, pass, at(now));
        }
        now += 10;
    }
    (made, most)
}

/// Seen: a template with the label that asks for a pod's deletion. Each pod was accepted, and deleted at once: 1,532 writes a second.
#[test]
fn pods_under_made_up_names_that_are_deleted_at_once_are_made_ever_more_slowly() {
    for lives_ms in [10, 1_000, 5_000] {
        let (made, most) = churn(&mut Repeats::default(), 600, lives_ms, |_| 1);
        assert!(
            (12..=20).contains(&made),
            "{made} times in ten minutes, each for {lives_ms} ms"
        );
        assert!(most >= 9, "{most}");
    }
    // Those that live for a while are made at the pace at which they go.
    let (made, most) = churn(&mut Repeats::default(), 600, 15_000, |_| 1);
    assert_eq!((made, most), (40, 0));
}

/// Scaled up and down, again and again: each time somebody asked for it.
#[test]
fn pods_that_an_edit_of_their_set_made_too_many_do_not_slow_down_others() {
    let (made, most) = churn(&mut Repeats::default(), 10, 10, |pass| {
        i64::try_from(pass).expect("few")
    });
    assert_eq!((made, most), (500, 0));
}

#[test]
fn thousands_of_new_pods_and_the_deletion_of_old_ones_are_no_churn() {
    let mut repeats = Repeats::default();
    let old: Vec<String> = (0..1_500).map(|n| format!("old{n}")).collect();
    for id in &old {
        repeats.send(digest(&make(id, "v1"), 1), at(0)).expect("a new pod");
    }
    // An update: as many new ones, and the old ones go.
    for (n, id) in old.iter().enumerate() {
        let now = at(1_000 + i64::try_from(n).expect("few"));
        let pass = u64::try_from(n).expect("few");
        for call in [make(&format!("new{n}"), "v2"), unmake(id)] {
            let request = digest(&call, 2);
            repeats.send(request, now).expect("wanted");
            repeats.answered(request, &Outcome::Done, pass, now);
        }
    }
}

/// A cache with a CloneSet whose pods have label app=web.
fn with_set() -> Cache {
    let mut cache = Cache::default();
    let set = json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": "u", "resourceVersion": "1", "generation": 1},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "app:v1"}]},
            },
        },
    });
    let bytes = Bytes::from(set.to_string());
    let set = cache.read(Resource::CloneSets, Encoding::Json, &bytes).expect("a set");
    cache.apply(set, Source::Watch);
    cache
}

fn new_pod(cache: &mut Cache, name: &str) -> Arc<PodRecord> {
    let owner = json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "name": "web", "uid": "u", "controller": true,
    });
    let metadata = json!({
        "name": name, "namespace": "ns", "uid": format!("uid of {name}"), "resourceVersion": "2",
        "labels": {"app": "web"}, "ownerReferences": [owner],
    });
    let bytes = Bytes::from(json!({"metadata": metadata, "spec": {}}).to_string());
    match cache.read(Resource::Pods, Encoding::Json, &bytes) {
        Ok(Object::Pod(pod)) => pod,
        other => panic!("{other:?}"),
    }
}

/// A set of which each pod goes ten milliseconds after it was made, and what we ask for before.
fn lost(repeats: &mut Repeats, seconds: i64, before: impl Fn(&mut Repeats, &str, Timestamp)) -> usize {
    let (mut cache, mut made) = (with_set(), 0);
    let set = key("web");
    let author = Author {
        resource: Resource::CloneSets,
        key: &set,
        generation: 1,
    };
    for now in (0..seconds * 1_000).step_by(10) {
        let id = format!("id{now}");
        let request = Fingerprint::of(&make(&id, "v1"), author).expect("a write");
        if repeats.send(request, at(now)).is_ok() {
            repeats.makes(request, author, at(now));
            repeats.answered(request, &Outcome::Done, 1, at(now));
            let pod = new_pod(&mut cache, &format!("web-{id}"));
            repeats.pod_changed(None, Some(&pod), &cache, at(now));
            before(repeats, &id, at(now));
            repeats.pod_changed(Some(&pod), None, &cache, at(now + 5));
            made += 1;
        }
    }
    made
}

#[test]
fn pods_that_are_lost_back_off_to_a_minute_and_take_no_more_memory_the_more_they_are() {
    let mut repeats = Repeats::default();
    let made = lost(&mut repeats, 3_600, |_, _, _| {});
    assert!((60..80).contains(&made), "{made} in an hour");
    assert_eq!(repeats.losses.sizes().1, 1, "one set");
    assert!(repeats.losses.sizes().0 < 10, "{:?}", repeats.losses.sizes());
}

/// What the same set decides is to blame then, and is held back as a repetition where it repeats itself.
#[test]
fn a_pod_of_which_we_asked_the_deletion_is_not_lost_unless_that_was_refused() {
    let delete = |repeats: &mut Repeats, id: &str, now: Timestamp, outcome: &Outcome| {
        let set = key("web");
        let author = Author {
            resource: Resource::CloneSets,
            key: &set,
            generation: 2,
        };
        let request = Fingerprint::of(&unmake(id), author).expect("a write");
        repeats
            .send(request, now)
            .expect("nothing keeps a pod from being deleted");
        repeats.answered(request, outcome, 1, now);
    };
    for outcome in [Outcome::Done, Outcome::Unknown("no answer".into())] {
        let made = lost(&mut Repeats::default(), 60, |repeats, id, now| {
            delete(repeats, id, now, &outcome);
        });
        assert_eq!(made, 6_000, "{outcome:?}");
    }
    let made = lost(&mut Repeats::default(), 60, |repeats, id, now| {
        delete(repeats, id, now, &refused());
    });
    assert!((10..14).contains(&made), "{made} in a minute");
}
