//! A set from nothing to five hundred pods and back to a hundred, updated, taken back in the middle, its claims used again, and updated in
//! place, while the manager is killed ten times and a watcher beside it notes the extremes.

use crate::Lab;
use flotilla_e2e::api::{Api, Objects, is_ready, is_terminating, text};
use flotilla_e2e::clones::{manifest, sets, settled, uids, web, with_claims};
use flotilla_e2e::sets::{claims, pods, set_image};
use flotilla_e2e::{Manager, clock};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

const NS: &str = "life";
/// Hundreds of pods on a machine that others use too.
const LONG: Duration = Duration::from_secs(300);

/// Pods at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    /// Neither ended nor going.
    active: usize,
    /// Of these, ready.
    available: usize,
}

/// What a part of the story allows, and how near it came to that.
#[derive(Clone, Copy, Debug)]
struct Extremes {
    may: Count,
    least_available: usize,
    most_active: usize,
}

/// Follows all pods.
struct Watcher {
    extremes: Arc<Mutex<Extremes>>,
    count: watch::Receiver<Count>,
    task: tokio::task::JoinHandle<()>,
}

impl Watcher {
    fn start(api: Api) -> Self {
        let extremes = Arc::new(Mutex::new(fresh(Count::default())));
        let (told, count) = watch::channel(Count::default());
        let own = extremes.clone();
        let task = tokio::spawn(async move {
            api.follow(&pods(NS), |pods, _| {
                let now = count_of(pods);
                let mut known = own.lock().expect("nobody panics with it");
                known.least_available = known.least_available.min(now.available);
                known.most_active = known.most_active.max(now.active);
                told.send_replace(now);
                false
            })
            .await;
        });
        Watcher { extremes, count, task }
    }

    /// Begins a part of the story, in which so many may be there at most and so many have to be available.
    fn allow(&self, most: usize, available: usize) {
        let may = Count {
            active: most,
            available,
        };
        let mut known = self.extremes.lock().expect("nobody panics with it");
        *known = fresh(may);
        let now = *self.count.borrow();
        known.least_available = now.available;
        known.most_active = now.active;
    }

    /// Ends it: waits until the watcher has seen so many pods, all available.
    async fn ends_with(&mut self, pods: usize, part: &str) {
        let rest = Count {
            active: pods,
            available: pods,
        };
        let seen = tokio::time::timeout(LONG, self.count.wait_for(|count| *count == rest)).await;
        seen.expect("the watcher sees what others see").expect("it goes on");
        let known = *self.extremes.lock().expect("nobody panics with it");
        println!(
            "{part}: at least {} available of {} asked for, at most {} pods of {} allowed",
            known.least_available, known.may.available, known.most_active, known.may.active
        );
        assert!(known.least_available >= known.may.available, "{part}: {known:?}");
        assert!(known.most_active <= known.may.active, "{part}: {known:?}");
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn fresh(may: Count) -> Extremes {
    Extremes {
        may,
        least_available: usize::MAX,
        most_active: 0,
    }
}

fn count_of(pods: &Objects) -> Count {
    let active = |pod: &&Value| !is_terminating(pod) && !matches!(text(pod, "/status/phase"), "Failed" | "Succeeded");
    let active: Vec<&Value> = pods.values().filter(active).collect();
    Count {
        active: active.len(),
        available: active.iter().filter(|pod| is_ready(pod)).count(),
    }
}

/// The manager, and how often it was killed.
struct Victim<'k> {
    kubeconfig: &'k Path,
    manager: Option<Manager>,
    kills: usize,
}

impl Victim<'_> {
    fn kill(&mut self) {
        if let Some(mut manager) = self.manager.take() {
            manager.kill();
            self.kills += 1;
        }
    }

    fn start(&mut self) {
        self.manager = Some(Manager::alone(self.kubeconfig));
    }

    /// Kills it as soon as the pods are so far, and starts another.
    async fn dies_when(&mut self, api: &Api, what: &str, done: impl FnMut(&Objects) -> bool) {
        api.until(&pods(NS), LONG, what, done).await;
        self.kill();
        self.start();
    }
}

pub(crate) async fn with_ten_kills(lab: &Lab) {
    let api = lab.enter(NS).await;
    let begun = clock::now();
    let mut victim = Victim {
        kubeconfig: &lab.kubeconfig,
        manager: None,
        kills: 0,
    };
    victim.start();
    let mut set = with_claims(manifest(0));
    set["spec"]["scaleStrategy"] = json!({"enablePVCReuse": true});
    set["spec"]["updateStrategy"] = json!({"rollingUpdate": {"maxSurge": "10%", "maxUnavailable": "10%"}});
    api.create(&sets(NS), &set).await;
    settled(&api, NS, LONG).await;
    let mut watcher = Watcher::start(api.clone());
    grows(&api, &mut victim, &mut watcher).await;
    shrinks(&api, &mut victim, &mut watcher).await;
    is_updated_and_taken_back(&api, &mut victim, &mut watcher).await;
    uses_claims_again(&api, &mut victim, &mut watcher).await;
    is_updated_in_place(&api, &mut victim, &mut watcher).await;
    assert_eq!(victim.kills, 10);
    println!("{} kills in {} s", victim.kills, begun.elapsed().as_secs());
}

/// From nothing to five hundred, by the scale subresource.
async fn grows(api: &Api, victim: &mut Victim<'_>, watcher: &mut Watcher) {
    watcher.allow(500, 0);
    let scale = format!("{}/scale", web(NS));
    let mut asked = api.read(&scale).await;
    asked["spec"]["replicas"] = json!(500);
    api.put(&scale, &asked).await;
    for count in [100, 250, 400] {
        victim
            .dies_when(api, &format!("{count} pods"), |pods| pods.len() >= count)
            .await;
    }
    let set = settled(api, NS, LONG).await;
    assert_eq!(set["status"]["currentRevision"], set["status"]["updateRevision"]);
    watcher.ends_with(500, "0 to 500").await;
    assert_eq!(
        api.list(&claims(NS)).await.len(),
        500,
        "each pod has its claim, and no other is left"
    );
}

/// To a hundred, with three pods named in the spec and five marked by label.
async fn shrinks(api: &Api, victim: &mut Victim<'_>, watcher: &mut Watcher) {
    watcher.allow(500, 90);
    victim.kill();
    let names: Vec<String> = api.list(&pods(NS)).await.into_keys().collect();
    let (named, marked) = (&names[..3], &names[495..]);
    let mark = json!({"metadata": {"labels": {"apps.kruise.io/specified-delete": "true"}}});
    for name in marked {
        api.patch(&format!("{}/{name}", pods(NS)), &mark).await;
    }
    let change = json!({"spec": {"replicas": 100, "scaleStrategy": {"podsToDelete": named}}});
    api.patch(&web(NS), &change).await;
    victim.start();
    victim
        .dies_when(api, "200 pods less", |pods| count_of(pods).active <= 300)
        .await;
    let is_forgotten = |sets: &Objects| sets["web"]["spec"]["scaleStrategy"]["podsToDelete"] == json!([]);
    api.until(
        &sets(NS),
        LONG,
        "names of pods that are gone are forgotten",
        is_forgotten,
    )
    .await;
    settled(api, NS, LONG).await;
    watcher.ends_with(100, "500 to 100").await;
    let left = api.list(&pods(NS)).await;
    let spared: Vec<&String> = named
        .iter()
        .chain(marked)
        .filter(|name| left.contains_key(*name))
        .collect();
    assert!(spared.is_empty(), "asked for and still there: {spared:?}");
    api.until(&claims(NS), LONG, "claims go with their pods", |claims| {
        claims.len() == 100
    })
    .await;
}

/// How many pods, not going, were made with an image.
fn with_image(pods: &Objects, image: &str) -> usize {
    let of = |pod: &&Value| !is_terminating(pod) && text(pod, "/spec/containers/0/image") == image;
    pods.values().filter(of).count()
}

/// Another image for seventy of them, then for more, and back in the middle of that.
async fn is_updated_and_taken_back(api: &Api, victim: &mut Victim<'_>, watcher: &mut Watcher) {
    watcher.allow(110, 90);
    let partition = |partition: Value| json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": partition}}}});
    api.patch(&web(NS), &partition(json!("30%"))).await;
    set_image(api, &web(NS), "app:v2").await;
    for count in [10, 35] {
        victim
            .dies_when(api, &format!("{count} updated"), |pods| {
                with_image(pods, "app:v2") >= count
            })
            .await;
    }
    let set = settled(api, NS, LONG).await;
    assert_eq!(set["status"]["expectedUpdatedReplicas"], 70);
    assert_eq!(set["status"]["updatedReplicas"], 70, "the partition keeps thirty");
    assert_ne!(set["status"]["currentRevision"], set["status"]["updateRevision"]);
    watcher.ends_with(100, "70 % updated").await;

    watcher.allow(110, 90);
    api.patch(&web(NS), &partition(json!(0))).await;
    api.until(&pods(NS), LONG, "85 updated", |pods| with_image(pods, "app:v2") >= 85)
        .await;
    set_image(api, &web(NS), "app:v1").await;
    victim
        .dies_when(api, "60 taken back", |pods| with_image(pods, "app:v1") >= 60)
        .await;
    let set = settled(api, NS, LONG).await;
    assert_eq!(set["status"]["updatedReplicas"], 100);
    watcher.ends_with(100, "taken back").await;
    let left = api.list(&pods(NS)).await;
    assert_eq!(with_image(&left, "app:v1"), 100);
}

/// Pods that somebody deletes come back under their names, with their claims.
async fn uses_claims_again(api: &Api, victim: &mut Victim<'_>, watcher: &mut Watcher) {
    watcher.allow(100, 97);
    let held = api
        .until(&claims(NS), LONG, "a claim for each pod", |claims| {
            claims.len() == 100 && !claims.values().any(is_terminating)
        })
        .await;
    victim.kill();
    let before = uids(&api.list(&pods(NS)).await);
    for name in before.keys().take(3) {
        api.delete(&format!("{}/{name}", pods(NS)), false).await;
    }
    // Some may be on their way out still: their replacements wait for them.
    victim.start();
    let after = api
        .until(&pods(NS), LONG, "a hundred again", |pods| {
            let now = count_of(pods);
            now.available == 100 && pods.len() == 100 && before.keys().take(3).all(|name| pods.contains_key(name))
        })
        .await;
    let after = uids(&after);
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    let renewed = after.iter().filter(|(name, uid)| before[*name] != **uid).count();
    assert_eq!(renewed, 3, "and no other pod was touched");
    assert_eq!(uids(&api.list(&claims(NS)).await), uids(&held), "the same claims");
    watcher.ends_with(100, "claims used again").await;
}

/// All stay what they are, and run another image; surge is not needed for that.
async fn is_updated_in_place(api: &Api, victim: &mut Victim<'_>, watcher: &mut Watcher) {
    watcher.allow(100, 90);
    let policy = json!({"spec": {"updateStrategy": {"rollingUpdate": {"podUpdatePolicy": "InPlaceIfPossible"}}}});
    api.patch(&web(NS), &policy).await;
    let before = uids(&api.list(&pods(NS)).await);
    set_image(api, &web(NS), "app:v3").await;
    victim
        .dies_when(api, "50 changed", |pods| with_image(pods, "app:v3") >= 50)
        .await;
    let set = settled(api, NS, LONG).await;
    assert_eq!(set["status"]["updatedAvailableReplicas"], 100);
    watcher.ends_with(100, "updated in place").await;
    assert_eq!(uids(&api.list(&pods(NS)).await), before, "no pod was made again");
    api.delete(&web(NS), false).await;
    api.until(&pods(NS), LONG, "pods go with their set", Objects::is_empty)
        .await;
    api.until(&claims(NS), LONG, "and claims", Objects::is_empty).await;
}
