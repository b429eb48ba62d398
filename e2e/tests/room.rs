//! How much memory and time `flotilla playground` takes for many pods, and `flotilla plan` for what it has saved: the figures are printed, and
//! the bars are held.

use flotilla_e2e::api::{Objects, number};
use flotilla_e2e::manager::binary;
use flotilla_e2e::{Api, Kind, Playground, clock};
use flotilla_localcluster::{cpu_seconds_of, peak_rss_bytes_of};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;
use tokio::sync::Mutex;

/// Most memory that the process may ever have held with a thousand pods, in megabytes.
const BAR_MB: u64 = 100;
/// How long it may take until all pods are ready.
const WITHIN: Duration = Duration::from_secs(600);

/// Most memory that a plan may ever have held which looks at a thousand pods, in megabytes.
const PLAN_BAR_MB: u64 = 200;
/// How long such a plan may take, and one of a change that is too large to be followed to its end.
const PLAN_WITHIN: Duration = Duration::from_secs(5);
const LARGE_PLAN_WITHIN: Duration = Duration::from_secs(20);
/// Where a playground is saved, in its directory.
const SAVED: &str = "state.json";

/// Held by each test while it runs: beside another one its times would say little.
static ALONE: Mutex<()> = Mutex::const_new(());

/// What it took.
struct Taken {
    seconds: f64,
    cpu: f64,
    peak_mb: u64,
}

/// A directory for a playground.
fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).expect("a directory can be made");
    directory
}

/// Fills a playground with sets of both kinds, all pods at once, and waits until every pod is ready and has been listed.
async fn fill(playground: &Playground, sets: usize, pods_each: i64) -> Taken {
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
    let _alone = ALONE.lock().await;
    let filled = async |name: &str, sets: usize, pods_each: i64| {
        let playground = Playground::start(&directory(name), &["--nodes", "100"]);
        fill(&playground, sets, pods_each).await
    };
    let thousand = filled("room-1000", 10, 100).await;
    tell(1000, &thousand);
    let ten_thousand = filled("room-10000", 20, 500).await;
    tell(10_000, &ten_thousand);
    assert!(thousand.peak_mb < BAR_MB, "the bar is {BAR_MB} MB");
}

/// What a plan said, and what it took.
struct Planned {
    code: Option<i32>,
    said: String,
    elapsed: Duration,
    peak_mb: u64,
}

/// Runs `flotilla plan` on what was saved in a directory.
fn plan(directory: &Path, args: &[&str]) -> Planned {
    let begun = clock::now();
    let child = Command::new(binary())
        .arg("plan")
        .args(args)
        .args(["--from", SAVED])
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("flotilla runs");
    let pid = child.id();
    let (tell, ended) = sync_channel(1);
    std::thread::spawn(move || {
        // Whoever waits for it has given up if it cannot be told.
        let _ = tell.send(child.wait_with_output());
    });
    let mut peak = 0_u64;
    let output = loop {
        // The kernel keeps the most that it ever held until it ends, so only what comes in its last moment is missed.
        match ended.recv_timeout(Duration::from_millis(1)) {
            Ok(output) => break output.expect("its output can be read"),
            Err(RecvTimeoutError::Timeout) => peak = peak.max(peak_rss_bytes_of(pid).unwrap_or_default()),
            Err(RecvTimeoutError::Disconnected) => panic!("nobody waits for the plan"),
        }
    };
    let planned = Planned {
        code: output.status.code(),
        said: [output.stdout, output.stderr]
            .map(|text| String::from_utf8_lossy(&text).into_owned())
            .concat(),
        elapsed: begun.elapsed(),
        peak_mb: peak.div_ceil(1_000_000),
    };
    let (seconds, peak_mb) = (planned.elapsed.as_secs_f64(), planned.peak_mb);
    println!("plan {args:?}: {seconds:.1} s; at most {peak_mb} MB resident");
    planned
}

/// Whether the binary is a release build, which alone has no symbols: how long another one takes says nothing.
fn is_release() -> bool {
    const SYMBOLS: usize = 2;
    let elf = std::fs::read(binary()).expect("the binary can be read");
    let number = |at: usize, bytes: usize| {
        let low_first = elf[at..at + bytes].iter().rev();
        low_first.fold(0_usize, |number, byte| (number << 8) | usize::from(*byte))
    };
    // An ELF file of 64 bits: where its sections are listed, how long an entry is, and how many there are; each begins with name and kind.
    let (list, entry, count) = (number(0x28, 8), number(0x3a, 2), number(0x3c, 2));
    !(0..count).any(|section| number(list + section * entry + 4, 4) == SYMBOLS)
}

#[tokio::test]
async fn a_plan_among_a_thousand_pods_takes_seconds_and_little_memory() {
    let _alone = ALONE.lock().await;
    let directory = directory("room-plan");
    let playground = Playground::start(&directory, &["--nodes", "100", "--save", SAVED]);
    fill(&playground, 10, 100).await;
    assert!(playground.interrupt().success(), "it saves");
    let are_times_held = is_release();
    let holds = |planned: &Planned, code: i32, within: Duration| {
        assert_eq!(planned.code, Some(code), "{}", planned.said);
        let elapsed = planned.elapsed;
        assert!(!are_times_held || elapsed < within, "{elapsed:?}, and not {within:?}");
    };
    for set in ["sts.apps/set-0", "asts/set-1"] {
        let planned = plan(&directory, &[set, "--set", "image=app:v2"]);
        // It disrupts pods.
        holds(&planned, 2, PLAN_WITHIN);
        assert!(
            (1..PLAN_BAR_MB).contains(&planned.peak_mb),
            "the bar is {PLAN_BAR_MB} MB"
        );
    }
    let planned = plan(&directory, &["sts.apps/set-0", "--replicas", "100000"]);
    holds(&planned, 1, LARGE_PLAN_WITHIN);
    for words in ["that is not all", "--to-the-end"] {
        assert!(planned.said.contains(words), "{words:?} is not in: {}", planned.said);
    }
}

/// numbers in a spec are claims, not sizes. As one slot each, these would take more memory than most machines have.
#[tokio::test]
async fn two_thousand_million_replicas_take_no_room() {
    let _alone = ALONE.lock().await;
    let playground = Playground::start(&directory("room-claimed"), &["--nodes", "10"]);
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
