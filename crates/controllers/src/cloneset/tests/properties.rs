//! CS-13.12 over random sets: one step never takes more than it may, and steps end where the spec wants it.

use super::{name, one};
use crate::testing::{Cluster, NOW, at, clones, folded, pod};
use flotilla_api::names;
use flotilla_model::decision::{Command, Report};
use flotilla_model::{Decision, Labels, PodRecord, Resource};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const MIN_READY: i64 = 10;
/// More steps than any rollout of these sizes takes.
const STEPS_MAX: usize = 400;

#[derive(Clone, Debug)]
struct Settings {
    replicas: i32,
    partition: Value,
    surge: Value,
    unavailable: Value,
    creation: Option<i32>,
    policy: &'static str,
    excludes_leaving: bool,
    goes_back: bool,
}

impl Settings {
    fn cluster(&self) -> Cluster {
        let rolling = json!({
            "partition": self.partition, "maxSurge": self.surge, "maxUnavailable": self.unavailable, "podUpdatePolicy": self.policy,
        });
        let scale = json!({"excludePreparingDelete": self.excludes_leaving, "maxUnavailable": self.creation});
        let cluster = clones(self.replicas)
            .spec("/minReadySeconds", json!(MIN_READY))
            .spec("/updateStrategy/rollingUpdate", rolling)
            .spec("/scaleStrategy", scale)
            .spec("/lifecycle/preDelete", json!({"labelsHandler": {"hold": "yes"}}));
        if self.goes_back {
            cluster.annotation(names::PARTITION_ROLLBACK, "true")
        } else {
            cluster
        }
    }
}

fn share() -> impl Strategy<Value = Value> {
    prop_oneof![
        (0..4_i32).prop_map(|n| json!(n)),
        (0..101_i32).prop_map(|p| json!(format!("{p}%"))),
        Just(json!("33.3%")),
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    let policy = prop_oneof![Just("ReCreate"), Just("InPlaceIfPossible")];
    let rest = (prop::option::of(1..3_i32), policy, any::<bool>(), any::<bool>());
    (0..9_i32, share(), share(), share(), rest).prop_map(
        |(replicas, partition, surge, unavailable, (creation, policy, excludes_leaving, goes_back))| Settings {
            replicas,
            partition,
            surge,
            unavailable,
            creation,
            policy,
            excludes_leaving,
            goes_back,
        },
    )
}

/// Marks of pods, as the tables have them.
fn marks() -> impl Strategy<Value = Vec<&'static str>> {
    let mark = prop_oneof![
        4 => Just("o"), 4 => Just("n"), 1 => Just("ox"), 1 => Just("nx"), 1 => Just("oy"), 1 => Just("ny"),
        1 => Just("o!"), 1 => Just("n!"), 1 => Just("ox!"), 1 => Just("od"), 1 => Just("nd"),
    ];
    prop::collection::vec(mark, 0..14)
}

fn with_pods(mut cluster: Cluster, marks: &[&str]) -> Cluster {
    for (n, marks) in marks.iter().enumerate() {
        cluster = cluster.pod(one(&name(n), marks));
    }
    cluster
}

fn is_leaving(pod: &PodRecord) -> bool {
    pod.label(names::LIFECYCLE_STATE_LABEL) == Some("PreparingDelete")
}

/// By the rule, and not by our own code (CS-13.3).
fn is_available(pod: &PodRecord, cluster: &Cluster) -> bool {
    let is_normal = pod
        .label(names::LIFECYCLE_STATE_LABEL)
        .is_none_or(|state| state == "Normal");
    is_normal && pod.is_available(Duration::from_secs(MIN_READY.unsigned_abs()), cluster.now)
}

fn number(value: &Value, replicas: i32, rounds_up: bool) -> i32 {
    match value.as_i64() {
        Some(n) => i32::try_from(n).expect("small"),
        None => {
            let percent: f64 = value
                .as_str()
                .and_then(|t| t.strip_suffix('%'))
                .expect("a percentage")
                .parse()
                .expect("a number");
            let exact = percent * f64::from(replicas) / 100.0;
            #[allow(clippy::cast_possible_truncation)]
            let rounded = if rounds_up { exact.ceil() } else { exact.floor() } as i32;
            rounded
        }
    }
}

/// Surge and the number of pods that have to stay available, by the words of CS-13.2.
fn bounds(settings: &Settings) -> (i32, i32) {
    let surge = number(&settings.surge, settings.replicas, true);
    let unavailable = number(&settings.unavailable, settings.replicas, surge == 0);
    (surge, (settings.replicas - unavailable).max(0))
}

/// Names of pods that a decision makes unavailable.
fn disrupted(decision: &Decision) -> Vec<String> {
    let hits = |command: &&Command| match command {
        Command::Delete { resource, .. } => *resource == Resource::Pods,
        Command::Patch {
            resource: Resource::Pods,
            body,
            report,
            ..
        } => {
            let folded = folded(body);
            let state = folded
                .pointer("/metadata/labels")
                .and_then(|l| l.get(names::LIFECYCLE_STATE_LABEL));
            *report == Report::InPlace || state.is_some_and(|s| s != "Normal")
        }
        _ => false,
    };
    let mut names: Vec<String> = decision
        .commands()
        .map(|c| &c.command)
        .filter(hits)
        .map(|c| c.key().name.to_string())
        .collect();
    names.sort();
    names.dedup();
    names
}

fn check_step(settings: &Settings, cluster: &Cluster, decision: &Decision) -> Result<(), TestCaseError> {
    let (surge, keep) = bounds(settings);
    let count =
        |of: &dyn Fn(&PodRecord) -> bool| i32::try_from(cluster.pods.values().filter(|p| of(p)).count()).expect("few");
    let available = count(&|p| is_available(p, cluster));
    let taken = disrupted(decision);
    let lost = taken
        .iter()
        .filter(|name| is_available(&cluster.pods[*name], cluster))
        .count();
    let left = available - i32::try_from(lost).expect("few");
    prop_assert!(
        left >= keep.min(available),
        "{} of {} available left, {} to keep: {:?}",
        left,
        available,
        keep,
        taken
    );

    // A pod that serves is no fewer for being young.
    let serves = |p: &PodRecord| p.label(names::LIFECYCLE_STATE_LABEL).is_none_or(|s| s == "Normal") && p.is_healthy();
    let ready = count(&serves);
    let lost = taken.iter().filter(|name| serves(&cluster.pods[*name])).count();
    let left = ready - i32::try_from(lost).expect("few");
    prop_assert!(
        left >= keep.min(ready),
        "{} of {} ready left, {} to keep: {:?}",
        left,
        ready,
        keep,
        taken
    );

    let counted = |p: &PodRecord| !(settings.excludes_leaving && is_leaving(p));
    let all = count(&counted);
    let made = decision.commands().filter(|c| {
        matches!(
            c.command,
            Command::Create {
                resource: Resource::Pods,
                ..
            }
        )
    });
    let made = i32::try_from(made.count()).expect("few");
    prop_assert!(
        made == 0 || all + made <= settings.replicas + surge,
        "{} and {} made, of {}+{}",
        all,
        made,
        settings.replicas,
        surge
    );

    let mut seen = std::collections::BTreeSet::new();
    for command in decision.commands().map(|c| &c.command) {
        let what = (
            command.key().name.to_string(),
            command.resource(),
            format!("{:?}", std::mem::discriminant(command)),
        );
        let is_status = matches!(
            command,
            Command::Patch {
                subresource: Some(_),
                ..
            }
        );
        let is_new = is_status || command.resource() != Resource::Pods || seen.insert(what.clone());
        prop_assert!(is_new, "twice: {:?}", what);
    }
    Ok(())
}

/// Carries out what was decided, and lets time pass.
fn step(cluster: &mut Cluster, decision: &Decision, chance: &mut impl FnMut() -> bool) {
    for command in decision.commands().map(|c| &c.command) {
        match command {
            Command::Create {
                resource: Resource::Pods,
                body,
                ..
            } => {
                let body = body.render();
                let name = body["metadata"]["name"].as_str().expect("a name").to_owned();
                assert!(!cluster.pods.contains_key(&name), "{name} exists");
                let mut fixture = pod(&name)
                    .never_ready()
                    .created(cluster.now.as_millis() / 1000)
                    .detailed(|_| {});
                for (key, value) in body["metadata"]["labels"].as_object().expect("labels") {
                    fixture = fixture.label(key, value.as_str().expect("text"));
                }
                cluster.put(Arc::new(fixture.build("web")));
            }
            Command::Delete {
                resource: Resource::Pods,
                key,
                ..
            } => {
                cluster.pods.remove(key.name.as_str()).expect("it is there");
            }
            Command::Patch {
                resource: Resource::Pods,
                key,
                body,
                ..
            } => {
                let pod = cluster.pods.get_mut(key.name.as_str()).expect("it is there");
                patch(Arc::make_mut(pod), &folded(body));
            }
            Command::Patch { .. }
            | Command::Delete { .. }
            | Command::Create { .. }
            | Command::Try { .. }
            | Command::Read { .. } => {}
        }
    }
    if let Some(diff) = decision.status.as_ref().and_then(flotilla_model::StatusWrite::diff) {
        for (field, value) in diff.as_object().into_iter().flatten() {
            cluster.set["status"][field] = value.clone();
        }
    }
    if let Some(hints) = &decision.hints {
        cluster.hints = hints.clone();
    }
    cluster.now = cluster.now + Duration::from_secs(4);
    for pod in cluster.pods.values_mut() {
        if !pod.ready.is_true && chance() {
            let pod = Arc::make_mut(pod);
            pod.phase = flotilla_model::records::Phase::Running;
            pod.ready.is_true = true;
            pod.ready.since = Some(cluster.now);
        }
        // Whoever holds pods lets them go at last.
        if is_leaving(pod) && pod.label("hold").is_some() && chance() {
            relabel(Arc::make_mut(pod), &[("hold".to_owned(), None)]);
        }
    }
    cluster.own_pods = cluster.pods.values().cloned().collect();
}

fn patch(pod: &mut PodRecord, body: &Value) {
    let labels = body
        .pointer("/metadata/labels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let changes: Vec<_> = labels
        .map(|(k, v)| (k.clone(), v.as_str().map(str::to_owned)))
        .collect();
    relabel(pod, &changes);
}

fn relabel(pod: &mut PodRecord, changes: &[(String, Option<String>)]) {
    let mut labels: BTreeMap<String, String> = pod
        .meta
        .labels
        .iter()
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect();
    for (key, value) in changes {
        match value {
            Some(value) => drop(labels.insert(key.clone(), value.clone())),
            None => drop(labels.remove(key)),
        }
    }
    pod.meta.labels = labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect::<Labels>();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn cs_13_12_one_step_never_takes_more_than_it_may(settings in settings(), marks in marks()) {
        let cluster = with_pods(settings.cluster(), &marks);
        let decision = cluster.decide();
        check_step(&settings, &cluster, &decision)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn cs_13_12_steps_end_where_the_spec_wants_it(settings in settings(), marks in marks(), seed in any::<u64>()) {
        let settings = Settings { policy: "ReCreate", ..settings };
        let (surge, _) = bounds(&settings);
        let unavailable = number(&settings.unavailable, settings.replicas, surge == 0);
        prop_assume!(surge + unavailable > 0 && settings.creation.is_none_or(|c| c > 0));
        let mut cluster = with_pods(settings.cluster(), &marks);
        cluster.now = at(NOW);
        let mut bits = seed | 1;
        let mut chance = || {
            bits ^= bits << 13;
            bits ^= bits >> 7;
            bits ^= bits << 17;
            bits % 3 != 0
        };
        let mut quiet = 0;
        for _ in 0..STEPS_MAX {
            let decision = cluster.decide();
            check_step(&settings, &cluster, &decision)?;
            let is_at_rest = decision.commands().next().is_none()
                && cluster.pods.values().all(|p| is_available(p, &cluster));
            quiet = if is_at_rest { quiet + 1 } else { 0 };
            if quiet > 3 {
                break;
            }
            step(&mut cluster, &decision, &mut chance);
        }
        let old = cluster.pods.values().filter(|p| p.revision() == Some("web-old")).count();
        let asked = cluster.pods.values().filter(|p| p.label(names::SPECIFIED_DELETE_LABEL).is_some()).count();
        let kept = super::super::diff::Asked::of(&cluster.record().spec, cluster.record().spec.clones.as_ref().expect("a CloneSet"), true).partition;
        prop_assert_eq!(cluster.pods.len(), usize::try_from(settings.replicas).expect("not negative"), "{:?}", settings);
        prop_assert!(old <= usize::try_from(kept).expect("not negative"), "{} old, {} kept", old, kept);
        prop_assert_eq!(asked, 0);
        prop_assert!(quiet > 3, "it never comes to rest: {:?}", cluster.decide().commands().collect::<Vec<_>>());
    }
}
