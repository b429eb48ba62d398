//! How often a set is looked at while much happens to it.

mod support;

use flotilla_controllers::statefulset::StatefulSetController;
use flotilla_engine::core::Core;
use flotilla_model::SetKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::{Overheard, World, at, key, options};

struct Bench {
    world: World,
    core: Core,
    looks: Arc<AtomicUsize>,
}

impl Bench {
    /// A set of so many pods, all ready, and a manager without a lease that has nothing left to do.
    fn settled(replicas: i32) -> Self {
        let looks = Arc::new(AtomicUsize::new(0));
        let options = options("a");
        let (counted, inner) = (looks.clone(), StatefulSetController::new(SetKind::Native));
        let controller = Overheard(Box::new(inner), move |_, _: Option<&_>| {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let mut bench = Bench {
            world: World::quick(),
            core: Core::new(options, vec![Box::new(controller)], at(0)),
            looks,
        };
        bench.world.put_set("web", replicas, "app:v1");
        bench.run_for(30_000);
        assert_eq!(bench.world.pods.len(), usize::try_from(replicas).expect("positive"));
        bench
    }

    fn run_for(&mut self, millis: i64) {
        self.world.run_for(&mut self.core, millis);
    }

    fn ready_replicas(&self) -> i64 {
        let status = &self.world.sets[&key("web")]["status"];
        status["readyReplicas"].as_i64().unwrap_or(0)
    }

    /// Passes that have ended so far, and looks so far.
    fn effort(&self) -> (u64, usize) {
        (
            self.core.metrics().pass_duration.count(),
            self.looks.load(Ordering::Relaxed),
        )
    }
}

#[test]
fn passes_over_a_large_set_keep_their_distance_even_if_each_of_them_writes() {
    let mut bench = Bench::settled(100);
    bench.world.put_set("web", 1000, "app:v1");
    let (before, _) = bench.effort();
    bench.run_for(200);
    let passes = bench.effort().0 - before;
    // One pod a pass, in order; a hundred pods ask for ten milliseconds.
    assert!((10..=21).contains(&passes), "{passes} passes");
}

/// Four hundred pods ask for 60 ms between two passes; what happens now and then is seen to at once.
#[test]
fn a_large_set_that_was_at_rest_gets_a_few_passes_at_once() {
    let mut bench = Bench::settled(400);
    for pod in ["web-100", "web-200", "web-300"] {
        bench.world.finish_deletion(pod);
        bench.run_for(25);
        assert!(bench.world.pods.contains_key(&key(pod)), "{pod} is made again");
    }
    let (before, _) = bench.effort();
    for millis in 0..300 {
        bench
            .world
            .change_pod("web-7", |pod| pod.has_been_ready = millis % 2 == 0);
        bench.run_for(10);
    }
    let passes = bench.effort().0 - before;
    assert!(
        (45..=55).contains(&passes),
        "{passes} passes in three seconds that were busy"
    );
}

#[test]
fn passes_over_a_small_set_follow_each_other_at_once() {
    let mut bench = Bench::settled(1);
    bench.world.put_set("web", 10, "app:v1");
    bench.run_for(20);
    assert_eq!(bench.world.pods.len(), 10);
}

#[test]
fn what_a_pass_wrote_is_looked_at_by_the_next_one_and_the_status_still_comes() {
    let mut bench = Bench::settled(100);
    bench.world.put_set("web", 200, "app:v1");
    let before = bench.effort();
    bench.run_for(500);
    let (passes, looks) = bench.effort();
    let (passes, looks) = (passes - before.0, looks - before.1);
    assert!(passes > 20, "{passes} passes");
    // Beside the one that begins a pass, a look for each status, four times a second.
    assert!(
        looks <= usize::try_from(passes).expect("few") + 4,
        "{looks} looks in {passes} passes"
    );
    assert!(bench.ready_replicas() > 105, "{} are told of", bench.ready_replicas());
    bench.run_for(10_000);
    assert_eq!(bench.ready_replicas(), 200, "the last word is right");
}
