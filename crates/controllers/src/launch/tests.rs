//! Launch priority (ADM-3.4 and ADM-3.5): which keys a barrier gets, and when.

use super::LaunchController;
use crate::testing::{NS, advanced, at, pod};
use flotilla_api::names;
use flotilla_model::decision::{Command, Scope};
use flotilla_model::records::{ContainerSpec, ContainerStatus, DetailSpec, PodDetail};
use flotilla_model::{
    Change, ConfigMapRecord, Controller, Failure, Hints, Labels, Meta, ObjectKey, OwnerRef, PassContext, PodRecord,
    Report, Resource, Uid,
};
use serde_json::{Value, json};
use std::sync::Arc;

/// A container: its priority, whether it has been started, whether it is ready, whether it has a probe.
struct Container(Option<i64>, bool, bool, bool);

const WAITING: (bool, bool) = (false, false);
const RUNNING: (bool, bool) = (true, false);
const READY: (bool, bool) = (true, true);

fn with(priority: i64, (started, ready): (bool, bool)) -> Container {
    Container(Some(priority), started, ready, true)
}

fn pod_of(containers: &[Container], annotations: &[(&str, &str)]) -> PodRecord {
    let spec = |(index, c): (usize, &Container)| ContainerSpec {
        name: format!("c{index}").into(),
        priority: c.0,
        has_readiness_probe: c.3,
        ..ContainerSpec::default()
    };
    let status = |c: &Container| ContainerStatus {
        image: "".into(),
        image_id: "".into(),
        container_id: if c.1 { "containerd://x".into() } else { "".into() },
        restart_count: 0,
        started_at: None,
        is_ready: c.2,
        is_started: c.1,
        resources: None,
    };
    let detail = PodDetail {
        spec: Arc::new(DetailSpec {
            containers: containers.iter().enumerate().map(spec).collect(),
            ..DetailSpec::default()
        }),
        finalizers: Arc::new([]),
        annotations: annotations.iter().copied().collect(),
        is_annotated: !annotations.is_empty(),
        statuses: containers.iter().map(|c| Some(status(c))).collect(),
        observed_generation: 1,
        generation: 1,
        containers_ready: false,
        in_place_ready: None,
        kruise_ready: None,
        resize_pending: None,
        resize_in_progress: None,
        plainly_done: flotilla_model::Memo::default(),
        spec_bytes: flotilla_model::Memo::default(),
    };
    let mut record = pod("web-0").build("web");
    record.detail = Some(Arc::new(detail));
    record
}

fn barrier(keys: &[&str], owner: Option<&str>, watched: bool) -> ConfigMapRecord {
    let owner = owner.map(|uid| OwnerRef {
        api_version: "v1".into(),
        kind: "Pod".into(),
        name: "web-0".into(),
        uid: Uid::new(uid),
        controller: true,
        block_owner_deletion: false,
    });
    let labels = [(names::LAUNCH_BARRIER_LABEL, "true")];
    ConfigMapRecord {
        meta: Meta {
            key: ObjectKey::new(NS, "web-0-barrier"),
            uid: Uid::new("uid-of-barrier"),
            resource_version: 7,
            created: at(0),
            deleted: None,
            labels: if watched {
                labels.into_iter().collect()
            } else {
                Labels::default()
            },
            owners: owner.map(|owner| Arc::new(vec![owner])),
        },
        keys: keys.iter().map(|key| Arc::from(*key)).collect(),
    }
}

fn decide_with(pod: &PodRecord, map: Option<ConfigMapRecord>, hints: &Hints) -> flotilla_model::Decision {
    let mut cluster = advanced(1);
    cluster.pods.insert("web-0".to_owned(), Arc::new(pod.clone()));
    if let Some(map) = map {
        cluster.config_maps.insert("web-0-barrier".to_owned(), Arc::new(map));
    }
    let context = PassContext {
        now: at(1000),
        observing_since: at(0),
        entropy: 0,
        hints,
    };
    LaunchController
        .reconcile(&cluster, &pod.meta.key, context)
        .expect("the pod is there")
}

/// What is sent, in short.
fn told(pod: &PodRecord, map: Option<ConfigMapRecord>) -> Vec<String> {
    let keys = |body: &Value| body["data"].as_object().map_or(0, serde_json::Map::len);
    let names = |body: &Value| {
        let data = body["data"].as_object().expect("data").keys().cloned();
        data.collect::<Vec<_>>().join(" ")
    };
    let line = |command: &Command| match command {
        Command::Create { body, .. } => format!("+{} {}", keys(&body.render()), names(&body.render())),
        Command::Patch { body, .. } => format!("~{}", names(body)),
        Command::Delete { uid, .. } => format!("-{uid}"),
        Command::Read { key, .. } => format!("?{}", key.name),
        Command::Try { pod } => format!("({})", pod.key.name),
    };
    let decision = decide_with(pod, map, &Hints::default());
    decision.commands().map(|c| line(&c.command)).collect()
}

fn own(pod: &PodRecord, keys: &[&str]) -> ConfigMapRecord {
    barrier(keys, Some(&pod.meta.uid.to_string()), true)
}

#[test]
fn adm_3_4_a_barrier_begins_with_the_highest_priority() {
    let pod = pod_of(&[with(0, WAITING), with(10, WAITING), with(-1, WAITING)], &[]);
    assert_eq!(told(&pod, None), ["+1 p_10", "?web-0-barrier"]);
    let decision = decide_with(&pod, None, &Hints::default());
    let Some(Command::Create {
        body, exists_is_fine, ..
    }) = decision.commands().map(|c| &c.command).next()
    else {
        panic!("{decision:?}");
    };
    assert!(*exists_is_fine);
    let body = body.render();
    assert_eq!(
        body["metadata"]["ownerReferences"][0]["uid"],
        json!(pod.meta.uid.to_string())
    );
    assert_eq!(body["metadata"]["labels"][names::LAUNCH_BARRIER_LABEL], json!("true"));
}

#[test]
fn adm_3_4_the_next_key_comes_when_all_containers_of_higher_ones_are_ready() {
    type Row<'a> = (&'a str, [(bool, bool); 3], &'a [&'a str], &'a [&'a str]);
    let rows: &[Row<'_>] = &[
        ("nothing has started", [WAITING, WAITING, WAITING], &["p_2"], &[]),
        ("started is not ready", [RUNNING, WAITING, WAITING], &["p_2"], &[]),
        ("ready", [READY, WAITING, WAITING], &["p_2"], &["~p_1"]),
        ("one group at a time", [READY, RUNNING, WAITING], &["p_1", "p_2"], &[]),
        ("the last", [READY, READY, WAITING], &["p_1", "p_2"], &["~p_0"]),
        ("nothing is left", [READY, READY, READY], &["p_0", "p_1", "p_2"], &[]),
        (
            "a key stays when a container restarts",
            [RUNNING, READY, WAITING],
            &["p_1", "p_2"],
            &[],
        ),
    ];
    for (name, states, present, expected) in rows {
        let [first, second, third] = *states;
        let pod = pod_of(&[with(2, first), with(1, second), with(0, third)], &[]);
        assert_eq!(told(&pod, Some(own(&pod, present))), *expected, "{name}");
    }
}

#[test]
fn adm_3_4_containers_of_one_priority_wait_for_each_other_and_others_for_none() {
    let unmarked = Container(None, false, false, true);
    let pod = pod_of(&[with(1, READY), with(1, RUNNING), with(0, WAITING), unmarked], &[]);
    assert!(told(&pod, Some(own(&pod, &["p_1"]))).is_empty());
}

#[test]
fn adm_3_4_started_is_enough_for_containers_without_a_probe_if_the_pod_asks_for_it() {
    let asked: &[(&str, &str)] = &[(names::LAUNCH_ON, "started")];
    for (name, probe, annotations, expected) in [
        ("not asked for", false, &[][..], &[][..]),
        ("a probe decides", true, asked, &[]),
        ("no probe", false, asked, &["~p_0"]),
    ] {
        let pod = pod_of(&[Container(Some(1), true, false, probe), with(0, WAITING)], annotations);
        assert_eq!(told(&pod, Some(own(&pod, &["p_1"]))), expected, "{name}");
    }
}

#[test]
fn adm_3_5_a_lost_barrier_is_made_anew_with_what_the_pod_warrants() {
    let pod = pod_of(&[with(2, RUNNING), with(1, RUNNING), with(0, WAITING)], &[]);
    assert_eq!(told(&pod, None), ["+2 p_1 p_2", "?web-0-barrier"]);
}

#[test]
fn adm_3_5_a_barrier_of_openkruise_is_labelled_and_that_of_a_former_pod_goes() {
    let pod = pod_of(&[with(1, WAITING), with(0, WAITING)], &[]);
    let of_openkruise = barrier(&["p_1"], Some(&pod.meta.uid.to_string()), false);
    assert_eq!(told(&pod, Some(of_openkruise)), ["~"], "the label alone");
    let of_former = barrier(&["p_0", "p_1"], Some("uid-of-another-web-0"), true);
    assert_eq!(told(&pod, Some(of_former)), ["-uid-of-barrier"]);
}

#[test]
fn adm_3_5_a_strangers_config_map_is_left_alone_and_told_of_once() {
    let pod = pod_of(&[with(1, WAITING), with(0, WAITING)], &[]);
    let first = decide_with(&pod, Some(barrier(&[], None, true)), &Hints::default());
    assert_eq!((first.commands().count(), first.events.len()), (0, 1));
    let again = decide_with(
        &pod,
        Some(barrier(&[], None, true)),
        &first.hints.expect("it is remembered"),
    );
    assert!(again.events.is_empty());
}

#[test]
fn a_refused_barrier_waits_for_its_next_try() {
    let pod = pod_of(&[with(1, WAITING)], &[]);
    let mut hints = Hints::default();
    let failure = Failure {
        attempt: Report::Silent,
        reason: "Forbidden".into(),
        message: "exceeded quota".into(),
        count: 1,
        since: at(999),
        retry_at: at(1002),
    };
    hints.failures.insert(Scope::Object, failure);
    let decision = decide_with(&pod, None, &hints);
    assert_eq!(decision.commands().count(), 0);
    assert_eq!(decision.wake_after, Some(std::time::Duration::from_secs(2)));
    let [event] = &decision.events[..] else {
        panic!("its pod hangs, and nothing says why: {:?}", decision.events);
    };
    assert_eq!((event.warning, event.reason), (true, "FailedBarrier"));
    for words in ["web-0-barrier", "Forbidden: exceeded quota"] {
        assert!(event.message.contains(words), "{}", event.message);
    }
    let again = decide_with(&pod, None, &decision.hints.expect("it is remembered"));
    assert!(again.events.is_empty(), "{:?}", again.events);
}

#[test]
fn pods_without_a_barrier_and_those_that_are_going_are_left_alone() {
    let mut cluster = advanced(1);
    let key = ObjectKey::new(NS, "web-0");
    let plain = pod_of(&[Container(None, false, false, true)], &[]);
    cluster.pods.insert("web-0".to_owned(), Arc::new(plain));
    let hints = Hints::default();
    let context = PassContext {
        now: at(1000),
        observing_since: at(0),
        entropy: 0,
        hints: &hints,
    };
    assert!(LaunchController.reconcile(&cluster, &key, context).is_none());
    let mut going = pod_of(&[with(1, WAITING)], &[]);
    going.meta.deleted = Some(at(990));
    assert!(told(&going, None).is_empty());
}

#[test]
fn a_change_of_a_barrier_concerns_its_pod() {
    let mut cluster = advanced(1);
    let pod = pod_of(&[with(1, WAITING)], &[]);
    cluster.pods.insert("web-0".to_owned(), Arc::new(pod.clone()));
    let routed = |change: &Change| {
        let mut keys = Vec::new();
        LaunchController.route(change, &cluster, &mut keys);
        keys
    };
    let map = Some(Arc::new(own(&pod, &["p_1"])));
    let key = std::slice::from_ref(&pod.meta.key);
    assert_eq!(routed(&Change::ConfigMap(map, None)), key);
    assert_eq!(routed(&Change::Pod(None, Some(Arc::new(pod.clone())))), key);
    assert_eq!(LaunchController.resource(), Resource::Pods);
}

/// Pods of CloneSets have names that never come again: what is remembered of each would be kept for ever.
#[test]
fn adm_3_what_is_remembered_of_a_pod_is_forgotten_with_it() {
    let gone = Arc::new(pod_of(&[with(1, WAITING)], &[]));
    let plain = Arc::new(pod_of(&[Container(None, false, false, false)], &[]));
    let cluster = advanced(1);
    let routed = |change: Change| {
        let mut keys = Vec::new();
        LaunchController.route(&change, &cluster, &mut keys);
        keys
    };
    assert_eq!(
        routed(Change::Pod(Some(gone.clone()), None)),
        std::slice::from_ref(&gone.meta.key)
    );
    assert!(routed(Change::Pod(Some(plain), None)).is_empty());
}
