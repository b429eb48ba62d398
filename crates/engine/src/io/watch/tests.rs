//! A watch task against a server whose answers are written down here: what it asks for, and what it brings.

use super::*;
use http_body_util::{Either, Full};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Mutex;

/// What the server says to one request: a status and a body.
type Said = (u16, String);

/// The reading of this body panics.
const PANIC: &str = "panic";

/// Panics as soon as it is read, as a decoder may.
struct Panicking;

impl http_body::Body for Panicking {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        panic!("hostile bytes")
    }
}

/// Answers in this order, writes down what was asked, and is silent when it has no more to say.
fn server(answers: Vec<Said>) -> (kube::Client, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (seen, left) = (asked.clone(), Arc::new(Mutex::new(VecDeque::from(answers))));
    let service = tower::service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        let path = request.uri().path();
        let said = if path.ends_with("/imagepulljobs") {
            let accept = request.headers()[ACCEPT].to_str().unwrap();
            format!("{path} {}", accept.split(';').nth(1).unwrap_or_default())
        } else {
            query.to_owned()
        };
        seen.lock().unwrap().push(said);
        let answer = left.lock().unwrap().pop_front();
        async move {
            let Some((status, body)) = answer else {
                return std::future::pending().await;
            };
            let response = Response::builder()
                .status(status)
                .header("content-type", "application/json");
            let body = match body.as_str() {
                PANIC => Either::Right(Panicking),
                _ => Either::Left(Full::new(Bytes::from(body))),
            };
            Ok::<_, Infallible>(response.body(body).unwrap())
        }
    });
    (kube::Client::new(service, "default"), asked)
}

fn set(name: &str, version: u64) -> Value {
    json!({"metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": version.to_string()}})
}

fn list(version: u64, more: &str, names: &[&str]) -> Said {
    let items: Vec<_> = names.iter().map(|name| set(name, version)).collect();
    (
        200,
        json!({"metadata": {"resourceVersion": version.to_string(), "continue": more}, "items": items}).to_string(),
    )
}

fn events(events: &[Value]) -> Said {
    let lines: Vec<_> = events.iter().map(Value::to_string).collect();
    (200, lines.join("\n") + "\n")
}

fn gone() -> Value {
    json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}})
}

/// Runs the task until it has brought this many feeds, and tells them in words, and what was asked.
async fn run(answers: Vec<Said>, count: usize) -> (Vec<String>, Vec<String>) {
    run_for(Resource::AdvancedSets, answers, count).await
}

async fn run_for(resource: Resource, answers: Vec<Said>, count: usize) -> (Vec<String>, Vec<String>) {
    let (client, asked) = server(answers);
    let (feed, mut feeds) = mpsc::channel(8);
    let (want, wanted) = watch::channel(0);
    let watcher = Watcher {
        client,
        clock: Arc::new(Clock::new()),
        resource,
        namespace: None,
        fields: None,
        versions: Versions::default(),
        feed,
        wanted,
    };
    let task = tokio::spawn(watcher.run());
    want.send(1).unwrap();
    let mut told = Vec::new();
    while told.len() < count {
        let next = timeout(Duration::from_secs(20), feeds.recv()).await;
        let (_, feed) = next.unwrap_or_else(|_| panic!("nothing came after {told:?}")).unwrap();
        told.push(match feed {
            Feed::Began(_) => "began".to_owned(),
            Feed::Page(_, items) => format!("{} items", items.len()),
            Feed::Ended(version) => format!("listed at {version}"),
            Feed::Frames(_, frames) => format!("{} events", frames.len()),
            Feed::Missing => "missing".to_owned(),
            Feed::Failing(why) => why,
        });
    }
    task.abort();
    let asked = asked.lock().unwrap().clone();
    (told, asked)
}

/// A page of objects of this size.
fn large_list(more: &str, names: &[&str], bytes: usize) -> Said {
    let (code, text) = list(10, more, names);
    let padded = format!(r#""status":{{"text":"{}"}},"metadata":{{"name""#, "x".repeat(bytes));
    (code, text.replace(r#""metadata":{"name""#, &padded))
}

#[tokio::test]
async fn pages_of_small_objects_grow_and_pages_of_large_ones_shrink() {
    let small = ["a", "b", "c", "d"];
    let mut answers = vec![list(10, "2", &small); 4];
    answers.extend([
        large_list("2", &small, 350_000),
        large_list("2", &["e", "f"], 750_000),
        list(10, "", &["g"]),
    ]);
    let (told, asked) = run(answers, 9).await;
    assert_eq!(told[8], "listed at 10");
    let limits = asked.iter().take(7).filter_map(|query| query.split(['=', '&']).nth(1));
    assert_eq!(limits.collect::<Vec<_>>(), ["20", "80", "320", "500", "500", "2", "1"]);
}

#[tokio::test]
async fn a_page_that_is_too_large_is_asked_for_again_with_fewer_objects() {
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    let answers = vec![large_list("", &names, 700_000), list(10, "", &["a"])];
    let (told, asked) = run(answers, 3).await;
    assert_eq!(told, ["began", "1 items", "listed at 10"]);
    assert_eq!(asked[..2], ["limit=20", "limit=2"]);
}

#[tokio::test]
async fn pages_then_a_watch_that_goes_on_where_it_ended() {
    let bookmark = json!({"type": "BOOKMARK", "object": set("", 15)});
    let answers = vec![
        list(10, "to/ken", &["a", "b"]),
        list(10, "", &["c"]),
        events(&[json!({"type": "ADDED", "object": set("d", 12)}), bookmark]),
        events(&[json!({"type": "DELETED", "object": set("d", 16)})]),
    ];
    let (told, asked) = run(answers, 6).await;
    assert_eq!(
        told,
        ["began", "2 items", "1 items", "listed at 10", "2 events", "1 events"]
    );
    assert_eq!(asked[0], "limit=20");
    assert_eq!(asked[1], "limit=80&continue=to%2Fken");
    assert!(
        asked[2].contains("watch=1") && asked[2].contains("resourceVersion=10&"),
        "{}",
        asked[2]
    );
    assert!(
        asked[3].contains("resourceVersion=15&"),
        "after the bookmark: {}",
        asked[3]
    );
}

#[tokio::test]
async fn a_version_that_is_too_old_leads_to_a_new_list() {
    for expired in [events(&[gone()]), (410, gone()["object"].to_string())] {
        let (told, asked) = run(vec![list(10, "", &["a"]), expired, list(30, "", &[])], 6).await;
        assert_eq!(
            told,
            ["began", "1 items", "listed at 10", "began", "0 items", "listed at 30"]
        );
        assert_eq!(asked[2], "limit=20", "a fresh list, not one at the old version");
    }
}

#[tokio::test]
async fn events_before_an_error_are_not_lost() {
    let added = json!({"type": "ADDED", "object": set("a", 11)});
    let (told, _) = run(
        vec![list(10, "", &[]), events(&[added, gone()]), list(30, "", &["a"])],
        5,
    )
    .await;
    assert_eq!(told, ["began", "0 items", "listed at 10", "1 events", "began"]);
}

#[tokio::test]
async fn refusals_are_told_and_tried_again() {
    let forbidden = json!({"kind": "Status", "code": 403, "message": "may not list"}).to_string();
    let (told, _) = run(
        vec![
            (403, forbidden),
            (404, "{}".into()),
            (200, "no list".into()),
            list(10, "", &[]),
        ],
        8,
    )
    .await;
    assert!(told[1].contains("403") && told[1].contains("may not list"), "{told:?}");
    assert_eq!(told[3], "missing");
    assert_eq!(told[7], "0 items", "{told:?}");
}

#[tokio::test]
async fn a_panic_over_what_came_ends_in_a_new_list() {
    let panics = || (200, PANIC.to_owned());
    let answers = vec![panics(), list(10, "", &["a"]), panics(), list(12, "", &["a", "b"])];
    let (told, asked) = run(answers, 9).await;
    let why = "reading what came panicked; this is a defect of Flotilla";
    let listed = |items, version| [format!("{items} items"), format!("listed at {version}")];
    let expected = [
        vec!["began".to_owned(), why.to_owned(), "began".to_owned()],
        listed(1, 10).to_vec(),
        vec![why.to_owned(), "began".to_owned()],
        listed(2, 12).to_vec(),
    ];
    assert_eq!(told, expected.concat());
    assert!(asked[2].starts_with("watch=1"), "{asked:?}");
}

#[tokio::test]
async fn sts_5_1_jobs_are_found_in_the_version_that_is_served_and_only_their_metadata() {
    let missing = || (404, "{}".to_owned());
    let answers = vec![
        missing(),
        missing(),
        missing(),
        list(10, "", &["a"]),
        events(&[json!({"type": "ADDED", "object": set("b", 12)})]),
    ];
    let (told, asked) = run_for(Resource::ImagePullJobs, answers, 6).await;
    assert_eq!(
        told,
        ["began", "missing", "began", "1 items", "listed at 10", "1 events"]
    );
    let (ours, older) = (
        "/apis/apps.kruise.io/v1beta1/imagepulljobs as=",
        "/apis/apps.kruise.io/v1alpha1/imagepulljobs as=",
    );
    let list = |path: &str| format!("{path}PartialObjectMetadataList");
    let expected = [
        list(ours),
        list(older),
        list(ours),
        list(older),
        format!("{older}PartialObjectMetadata"),
    ];
    assert_eq!(asked[..5], expected);
}

#[test]
fn delays_double_up_to_the_cap_and_begin_again() {
    let mut backoff = Backoff::default();
    let delays: Vec<Duration> = (0..12).map(|_| backoff.next_delay()).collect();
    assert!(delays[0] <= BACKOFF_BASE && delays[0] >= BACKOFF_BASE / 2);
    assert!(delays.iter().all(|d| *d <= BACKOFF_CAP));
    assert!(delays[11] >= BACKOFF_CAP / 2);
    backoff.reset();
    assert!(backoff.next_delay() <= BACKOFF_BASE);
}
