//! How much memory and time `flotilla playground` takes for many pods: the figures are printed, and the bar is held.

use flotilla_e2e::api::{Objects, number};
use flotilla_e2e::{Api, Kind, Playground, clock};
use flotilla_localcluster::{cpu_seconds_of, peak_rss_bytes_of};
use serde_json::json;
use std::path::Path;
use std::time::Duration;

/// Most memory that the process may ever have held with a thousand pods, in megabytes.
const BAR_MB: u64 = 100;
/// How long it may take until all pods are ready.
const WITHIN: Duration = Duration::from_secs(600);

/// What it took.
struct Taken {
    seconds: f64,
    cpu: f64,
    peak_mb: u64,
}

/// Fills a playground with sets of both kinds, all pods at once, and waits until every pod is ready and has been listed.
async fn fill(name: &str, sets: usize, pods_each: i64) -> Taken {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).expect("a directory can be made");
    let playground = Playground::start(&directory, &["--nodes", "100"]);
    let api = Api::connect(playground.kubeconfig()).await;
    let begun = clock::now();
    for number in 0..sets {
        let kind = Kind::BOTH[number % 2].0;
        let mut set = kind.manifest(&format!("set-{number}"), pods_each);
        set["spec"]["podManagementPolicy"] = json!("Parallel");
        api.create(&kind.sets("default"), &set).await;
    }
    for (kind, _) in Kind::BOTH {
        let done = |sets: &Objects| {
            sets.values()
                .all(|set| number(set, "/status/readyReplicas") == pods_each)
        };
        api.until(&kind.sets("default"), WITHIN, "all pods ready", done).await;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let pods = api.list("/api/v1/pods").await;
    assert_eq!(pods.len(), sets * usize::try_from(pods_each).expect("small"));
    Taken {
        seconds,
        cpu: cpu_seconds_of(playground.pid()).expect("it runs"),
        peak_mb: peak_rss_bytes_of(playground.pid())
            .expect("it runs")
            .div_ceil(1_000_000),
    }
}

fn tell(pods: usize, taken: &Taken) {
    let Taken { seconds, cpu, peak_mb } = taken;
    println!("{pods:6} pods ready in {seconds:.1} s ({cpu:.1} s of processor time); at most {peak_mb} MB resident");
}

#[tokio::test]
async fn a_thousand_pods_fit_into_little_memory_and_ten_thousand_are_possible() {
    let thousand = fill("room-1000", 10, 100).await;
    tell(1000, &thousand);
    let ten_thousand = fill("room-10000", 20, 500).await;
    tell(10_000, &ten_thousand);
    assert!(thousand.peak_mb < BAR_MB, "the bar is {BAR_MB} MB");
}

/// numbers in a spec are claims, not sizes. As one slot each, these would take more memory than most machines have.
#[tokio::test]
async fn two_thousand_million_replicas_take_no_room() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("room-claimed");
    std::fs::create_dir_all(&directory).expect("a directory can be made");
    let playground = Playground::start(&directory, &["--nodes", "10"]);
    let api = Api::connect(playground.kubeconfig()).await;
    let claims = |kind: Kind, replicas: i64| kind.manifest("web", replicas);
    let collection = Kind::Advanced.sets("default");
    let refusal = api
        .create_refused(&collection, &claims(Kind::Advanced, 2_000_000_000))
        .await;
    assert!(refusal.contains("spec.replicas"), "{refusal}");
    api.create(&collection, &claims(Kind::Advanced, 1_000_000)).await;
    let (native, other) = (Kind::Native.sets("default"), "other");
    api.create(&native, &Kind::Native.manifest(other, 3)).await;
    api.create(&native, &Kind::Native.manifest("huge", 2_000_000_000)).await;
    for name in ["web", "huge"] {
        let some = |pods: &Objects| pods.contains_key(&format!("{name}-3"));
        api.until("/api/v1/namespaces/default/pods", WITHIN, name, some).await;
    }
    let is_up = |sets: &Objects| number(&sets[other], "/status/readyReplicas") == 3;
    api.until(&native, WITHIN, "the other set is ready", is_up).await;
    let told = |sets: &Objects| {
        sets["huge"]["status"]["conditions"]
            .to_string()
            .contains("spec.replicas")
    };
    api.until(&native, WITHIN, "the set says what counts", told).await;
    let peak_mb = peak_rss_bytes_of(playground.pid())
        .expect("it runs")
        .div_ceil(1_000_000);
    println!("2,000,000,000 and 1,000,000 replicas: at most {peak_mb} MB resident");
    assert!(peak_mb < BAR_MB, "the bar is {BAR_MB} MB");
}
