use super::*;
use crate::core::testing::{Pod, key, pod};
use proptest::prelude::*;

type Pods = Store<PodRecord>;

fn watch(store: &mut Pods, pod: Pod) -> Option<Changed<PodRecord>> {
    store.apply(pod.record(), Source::Watch)
}

fn answer(store: &mut Pods, pod: Pod) -> Option<Changed<PodRecord>> {
    store.apply(pod.record(), Source::Answer)
}

fn version(store: &Pods, name: &str) -> Option<u64> {
    store.get(&key(name)).map(|p| p.meta.resource_version)
}

#[test]
fn older_news_never_replaces_newer() {
    let mut store = Pods::default();
    assert!(answer(&mut store, pod("a", 5)).is_some());
    assert!(watch(&mut store, pod("a", 4)).is_none());
    assert_eq!(version(&store, "a"), Some(5));
    assert_eq!(store.overlay_len(), 1);
    assert!(
        watch(&mut store, pod("a", 5)).is_none(),
        "our own write comes by: nobody is woken"
    );
    assert_eq!(store.overlay_len(), 0, "the watch has caught up");
}

#[test]
fn a_change_that_nobody_reads_is_kept_but_wakes_nobody() {
    let mut store = Pods::default();
    watch(&mut store, pod("a", 1));
    assert!(watch(&mut store, pod("a", 2)).is_none());
    assert_eq!(version(&store, "a"), Some(2), "preconditions need the version");
    assert!(watch(&mut store, pod("a", 3).running()).is_some());
}

#[test]
fn pods_are_found_by_the_claims_that_they_mount() {
    let mut store = Pods::default();
    let mounting = |store: &Pods, claim: &str| {
        let found = store.mounting(&key(claim)).into_iter();
        found
            .map(|pod| (pod.name().to_owned(), pod.meta.resource_version))
            .collect::<Vec<_>>()
    };
    watch(&mut store, pod("b", 1).owned_by("x").mounting(&["one", "two", "two"]));
    watch(&mut store, pod("a", 2).mounting(&["two"]));
    assert_eq!(mounting(&store, "one"), [("b".to_owned(), 1)]);
    assert_eq!(mounting(&store, "two"), [("a".to_owned(), 2), ("b".to_owned(), 1)]);
    watch(&mut store, pod("a", 3).mounting(&["two"]));
    assert_eq!(
        mounting(&store, "two")[0],
        ("a".to_owned(), 3),
        "also where nothing else has changed"
    );
    store.apply_deleted(&key("b"), &Uid::new("b"), 4);
    watch(&mut store, pod("a", 5).uid("another").mounting(&["one"]));
    assert_eq!(mounting(&store, "one"), [("a".to_owned(), 5)]);
    assert_eq!(mounting(&store, "two"), []);
    store.begin_list();
    store.end_list(9);
    assert_eq!((mounting(&store, "one"), store.mounts.len()), (vec![], 0));
}

#[test]
fn an_answer_that_comes_after_the_deletion_does_not_resurrect() {
    let mut store = Pods::default();
    watch(&mut store, pod("a", 1));
    assert!(store.apply_deleted(&key("a"), &Uid::new("a"), 9).is_some());
    assert!(answer(&mut store, pod("a", 5)).is_none());
    assert_eq!(version(&store, "a"), None);
    watch(&mut store, pod("a", 12).uid("a2"));
    assert_eq!(version(&store, "a"), Some(12), "a new incarnation is welcome");
}

#[test]
fn an_event_that_is_delivered_again_does_not_resurrect() {
    let mut store = Pods::default();
    watch(&mut store, pod("a", 4));
    store.apply_deleted(&key("a"), &Uid::new("a"), 5);
    assert!(watch(&mut store, pod("a", 4)).is_none());
    assert!(store.is_empty(), "a pod that is gone would count as available");
    assert!(watch(&mut store, pod("a", 6).uid("a2")).is_some());
}

#[test]
fn a_created_object_that_was_deleted_before_its_answer_does_not_appear() {
    let mut store = Pods::default();
    watch(&mut store, pod("a", 3));
    store.apply_deleted(&key("a"), &Uid::new("a"), 4);
    assert!(answer(&mut store, pod("a", 3)).is_none());
    assert!(store.is_empty());
}

#[test]
fn the_deletion_of_a_former_incarnation_leaves_the_new_one() {
    let mut store = Pods::default();
    watch(&mut store, pod("a", 3).uid("old"));
    store.apply_gone(&key("a"), &Uid::new("old"));
    answer(&mut store, pod("a", 8).uid("new"));
    assert!(store.apply_deleted(&key("a"), &Uid::new("old"), 5).is_none());
    assert_eq!(version(&store, "a"), Some(8));
    assert_eq!(store.tombstones_len(), 0);
}

#[test]
fn a_deletion_that_we_know_first_holds_against_older_news() {
    let mut store = Pods::default();
    watch(&mut store, pod("a", 3));
    assert!(store.apply_gone(&key("a"), &Uid::new("a")).is_some());
    assert!(
        watch(&mut store, pod("a", 4).running()).is_none(),
        "from before the deletion"
    );
    assert_eq!(version(&store, "a"), None);
    store.apply_deleted(&key("a"), &Uid::new("a"), 5);
    assert_eq!(store.tombstones_len(), 0, "the watch has said it");
    assert!(store.apply_gone(&key("a"), &Uid::new("a")).is_none());
    assert_eq!(store.tombstones_len(), 0, "known already, nothing to keep out");
}

#[test]
fn a_list_removes_what_it_does_not_name() {
    let mut store = Pods::default();
    for (name, version) in [("gone", 1), ("kept", 2), ("stale", 3)] {
        watch(&mut store, pod(name, version));
    }
    answer(&mut store, pod("ours", 20));
    answer(&mut store, pod("kept", 9).running());
    store.begin_list();
    assert!(
        store.apply(pod("kept", 2).record(), Source::List).is_none(),
        "our answer is newer"
    );
    assert!(store.apply(pod("stale", 8).running().record(), Source::List).is_some());
    let gone: Vec<_> = store
        .end_list(10)
        .into_iter()
        .map(|c| c.old.unwrap().meta.key.name.clone())
        .collect();
    assert_eq!(gone, ["gone"]);
    assert_eq!(
        (
            version(&store, "kept"),
            version(&store, "stale"),
            version(&store, "ours")
        ),
        (Some(9), Some(8), Some(20))
    );
    assert_eq!(store.overlay_len(), 1, "only what the list cannot know");
}

#[test]
fn an_unfinished_list_removes_nothing() {
    let mut store = Pods::default();
    watch(&mut store, pod("a", 1));
    store.begin_list();
    store.begin_list();
    store.apply(pod("a", 1).record(), Source::List);
    assert!(store.end_list(5).is_empty());
    assert_eq!(store.len(), 1);
}

#[test]
fn a_list_from_before_a_deletion_does_not_bring_it_back() {
    let mut store = Pods::default();
    watch(&mut store, pod("a", 3));
    store.begin_list();
    store.apply_gone(&key("a"), &Uid::new("a"));
    assert!(store.apply(pod("a", 4).record(), Source::List).is_none());
    store.end_list(4);
    assert!(watch(&mut store, pod("a", 5)).is_none(), "still from before");
    assert_eq!(store.tombstones_len(), 1);
    store.begin_list();
    store.end_list(9);
    assert_eq!(store.tombstones_len(), 0, "a list begun later is the proof");
}

#[test]
fn an_answer_during_a_list_does_not_bring_back_what_the_list_missed() {
    let mut store = Pods::default();
    watch(&mut store, pod("a", 1));
    store.begin_list();
    store.end_list(9);
    assert!(answer(&mut store, pod("a", 5)).is_none());
    assert!(store.is_empty());
}

#[test]
fn tombstones_are_bounded() {
    let mut store = Pods::default();
    for i in 0..TOMBSTONES_MAX as u64 + 10 {
        let name = format!("p-{i}");
        watch(&mut store, pod(&name, i + 1));
        store.apply_gone(&key(&name), &Uid::new(&name));
    }
    assert_eq!(store.tombstones_len(), TOMBSTONES_MAX);
}

/// Whom [`Pod::owned_by`] names.
fn set(uid: &Uid) -> Owner<'_> {
    Owner {
        namespace: "ns",
        kind: "StatefulSet",
        name: "web",
        uid,
    }
}

#[test]
fn who_names_an_owner_wrongly_is_not_among_its_rows() {
    let mut store = Pods::default();
    for (version, name) in (1..).zip(["web-1", "web-0"]) {
        watch(&mut store, pod(name, version).owned_by("set"));
    }
    let uid = Uid::new("set");
    let own = set(&uid);
    for (version, (namespace, kind, name)) in (3..).zip([
        ("a", own.kind, own.name),
        ("z", own.kind, own.name),
        ("ns", "Job", own.name),
        ("ns", own.kind, "db"),
    ]) {
        let mut stranger = (*pod(&format!("web-{version}"), version).owned_by("set").record()).clone();
        let mut owner = stranger.meta.owners()[0].clone();
        (owner.kind, owner.name) = (kind.into(), name.into());
        stranger.meta.owners = Some(Arc::new(vec![owner]));
        stranger.meta.key.namespace = namespace.into();
        store.apply(Arc::new(stranger), Source::Watch);
    }
    let names = |rows: &[Arc<PodRecord>]| rows.iter().map(|p| p.name().to_owned()).collect::<Vec<_>>();
    assert_eq!(names(store.of_owner(own)), ["web-0", "web-1"]);
    assert_eq!(names(store.of_owner(Owner { kind: "Job", ..own })), ["web-5"]);
    assert_eq!(names(store.of_owner(Owner { namespace: "z", ..own })), ["web-4"]);
    assert_eq!(names(store.of_owner(Owner { namespace: "b", ..own })), [] as [&str; 0]);
}

#[test]
fn rows_are_found_by_owner_and_orphans_by_namespace() {
    let mut store = Pods::default();
    for (version, name) in (1..).zip(["web-1", "web-0", "web-10"]) {
        watch(&mut store, pod(name, version).owned_by("set"));
    }
    watch(&mut store, pod("alone", 4));
    let names = |rows: &[Arc<PodRecord>]| rows.iter().map(|p| p.name().to_owned()).collect::<Vec<_>>();
    assert_eq!(
        names(store.of_owner(set(&Uid::new("set")))),
        ["web-0", "web-1", "web-10"]
    );
    assert_eq!(names(store.in_namespace("ns")), ["alone"]);
    watch(&mut store, pod("web-1", 5));
    assert_eq!(names(store.of_owner(set(&Uid::new("set")))), ["web-0", "web-10"]);
    assert_eq!(names(store.in_namespace("ns")), ["alone", "web-1"]);
}

#[derive(Clone, Debug)]
enum Step {
    Upsert { name: u8, running: bool, owned: bool },
    Delete { name: u8 },
    DeliverWatch,
    DeliverAnswer,
    Relist,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..4_u8, any::<bool>(), any::<bool>()).prop_map(|(name, running, owned)| Step::Upsert { name, running, owned }),
        2 => (0..4_u8).prop_map(|name| Step::Delete { name }),
        5 => Just(Step::DeliverWatch),
        4 => Just(Step::DeliverAnswer),
        1 => Just(Step::Relist),
    ];
    proptest::collection::vec(step, 0..150)
}

/// The truth, the watch's backlog of it, and the answers that are on their way back to us.
#[derive(Default)]
struct World {
    truth: std::collections::BTreeMap<String, Arc<PodRecord>>,
    version: u64,
    watch: VecDeque<(bool, Arc<PodRecord>)>,
    answers: VecDeque<(bool, Arc<PodRecord>)>,
}

impl World {
    fn upsert(&mut self, name: u8, running: bool, owned: bool) {
        self.version += 1;
        let name = format!("p-{name}");
        let uid = self
            .truth
            .get(&name)
            .map_or(format!("{name}-{}", self.version), |p| p.meta.uid.to_string());
        let mut made = pod(&name, self.version).uid(&uid);
        made = if running { made.running() } else { made };
        let record = if owned { made.owned_by("set") } else { made }.record();
        self.truth.insert(name, record.clone());
        self.watch.push_back((true, record.clone()));
        self.answers.push_back((true, record));
    }

    fn delete(&mut self, name: u8) {
        let Some(record) = self.truth.remove(&format!("p-{name}")) else {
            return;
        };
        self.version += 1;
        let mut last = (*record).clone();
        last.meta.resource_version = self.version;
        let last = Arc::new(last);
        self.watch.push_back((false, last.clone()));
        self.answers.push_back((false, last));
    }

    fn deliver_watch(&mut self, store: &mut Pods) {
        match self.watch.pop_front() {
            Some((true, record)) => drop(store.apply(record, Source::Watch)),
            Some((false, last)) => {
                drop(store.apply_deleted(&last.meta.key, &last.meta.uid, last.meta.resource_version));
            }
            None => {}
        }
    }

    fn deliver_answer(&mut self, store: &mut Pods) {
        let Some((exists, record)) = self.answers.pop_front() else {
            return;
        };
        let key = record.meta.key.clone();
        if exists {
            store.apply(record, Source::Answer);
        } else {
            store.apply_gone(&key, &record.meta.uid);
        }
    }

    fn relist(&mut self, store: &mut Pods) {
        self.watch.clear();
        store.begin_list();
        for record in self.truth.values() {
            store.apply(record.clone(), Source::List);
        }
        store.end_list(self.version);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn once_everything_is_delivered_the_store_is_the_truth(steps in steps()) {
        let (mut store, mut world) = (Pods::default(), World::default());
        for step in steps {
            match step {
                Step::Upsert { name, running, owned } => world.upsert(name, running, owned),
                Step::Delete { name } => world.delete(name),
                Step::DeliverWatch => world.deliver_watch(&mut store),
                Step::DeliverAnswer => world.deliver_answer(&mut store),
                Step::Relist => world.relist(&mut store),
            }
        }
        while !world.watch.is_empty() || !world.answers.is_empty() {
            world.deliver_answer(&mut store);
            world.deliver_watch(&mut store);
        }
        let mut stored: Vec<_> = store.iter().cloned().collect();
        stored.sort_by(|a, b| a.meta.key.cmp(&b.meta.key));
        prop_assert_eq!(stored, world.truth.values().cloned().collect::<Vec<_>>());
        prop_assert_eq!(store.overlay_len(), 0);
        prop_assert_eq!(store.of_owner(set(&Uid::new("set"))).len() + store.in_namespace("ns").len(), store.len());
    }
}
