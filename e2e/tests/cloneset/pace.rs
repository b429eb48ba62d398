//! A rollout of five hundred pods goes on to its end as quickly as it began (CS-13.6; #1741, #1442).

use crate::Lab;
use flotilla_e2e::api::{Api, Objects, is_ready, is_terminating, text};
use flotilla_e2e::clones::{manifest, sets, settled, web};
use flotilla_e2e::sets::{pods, set_image};
use flotilla_e2e::{Manager, clock};
use serde_json::{Value, json};
use std::time::Duration;

const NS: &str = "pace";
const PODS: usize = 500;
const TENTH: usize = PODS / 10;
/// Hundreds of pods on a machine that others use too.
const LONG: Duration = Duration::from_secs(300);
/// By how much the last tenth may be slower than the first: what one wave more or less of pods makes.
const SLACK: f64 = 1.25;

/// When each tenth of the pods was new and available, from the change on; the last when nothing else is left besides.
async fn tenths(api: &Api, image: &str) -> Vec<Duration> {
    set_image(api, &web(NS), image).await;
    let begun = clock::now();
    let mut ends = Vec::new();
    let is_new = |pod: &Value| text(pod, "/spec/containers/0/image") == image;
    let is_done = |pod: &&Value| is_new(pod) && is_ready(pod) && !is_terminating(pod);
    // Without a copy of all pods for each event, as `until` makes: the watch would lag behind.
    let pods = pods(NS);
    let follow = api.follow(&pods, |pods, _| {
        let done = pods.values().filter(is_done).count().min(PODS);
        let is_over = done == PODS && pods.values().all(|pod| is_new(pod) || is_terminating(pod));
        let full = if is_over { 10 } else { (done / TENTH).min(9) };
        ends.resize(full.max(ends.len()), begun.elapsed());
        is_over
    });
    let ended = tokio::time::timeout(LONG, follow).await;
    assert!(ended.is_ok(), "not all updated within {LONG:?}: {ends:?}");
    ends
}

/// How often a rollout is measured at most. What else the machine does slows down one part of a rollout or another; a rollout that slackens
/// by itself does so each time.
const ROUNDS: usize = 3;

/// Prints what a pod took in each tenth, and says whether the last was as quick as the first.
fn is_steady(way: &str, ends: &[Duration]) -> bool {
    assert_eq!(ends.len(), 10, "{ends:?}");
    let begins = std::iter::once(&Duration::ZERO).chain(ends);
    let pods = f64::from(u32::try_from(TENTH).expect("a few"));
    let each: Vec<f64> = begins
        .zip(ends)
        .map(|(begin, end)| end.saturating_sub(*begin).as_secs_f64() * 1e3 / pods)
        .collect();
    println!(
        "{way}: {:.1} s for {PODS} pods; ms a pod, tenth by tenth: {each:.1?}",
        ends[9].as_secs_f64()
    );
    each[9] <= each[0] * SLACK
}

pub(crate) async fn does_not_slacken(lab: &Lab) {
    let api = lab.enter(NS).await;
    let _manager = Manager::alone(&lab.kubeconfig);
    let mut set = manifest(i64::try_from(PODS).expect("a few"));
    set["spec"]["template"]["metadata"]["annotations"] = json!({"sim.flotilla.rs/start": "500ms"});
    api.create(&sets(NS), &set).await;
    settled(&api, NS, LONG).await;
    let ways = [
        ("surge of 5 %", json!({"maxSurge": "5%", "maxUnavailable": 0})),
        ("5 % unavailable", json!({"maxSurge": 0, "maxUnavailable": "5%"})),
    ];
    let mut images = (2..).map(|number| format!("app:v{number}"));
    for (way, budget) in ways {
        let strategy = json!({"spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": budget}}});
        api.patch(&web(NS), &strategy).await;
        let mut was_steady = false;
        for image in images.by_ref().take(ROUNDS) {
            was_steady = is_steady(way, &tenths(&api, &image).await);
            let set = settled(&api, NS, LONG).await;
            assert_eq!(set["status"]["currentRevision"], set["status"]["updateRevision"]);
            if was_steady {
                break;
            }
        }
        assert!(was_steady, "{way}: the last tenth was slower each time");
    }
    api.delete(&web(NS), false).await;
    api.until(&pods(NS), LONG, "pods go with their set", Objects::is_empty)
        .await;
}
