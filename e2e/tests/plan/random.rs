//! Random changes of random sets: what the plan said, and what then happened.
//!
//! A change holds if waves, lowest availability and the end are those of the plan. Where pods do not come up, which no plan can know, they
//! are those that it gives for that; and where it named something that it does not know, or that is missing, it made no promise.

use crate::Lab;
use crate::changes::{QUIET, Story, waves};
use crate::watcher::Watcher;
use fastrand::Rng;
use flotilla_e2e::api::{Objects, is_ready, is_terminating, number, text};
use flotilla_e2e::sets::{SOON, pods, ready, shape};
use flotilla_e2e::suite::{self, trial};
use http::Method;
use libtest_mimic::Trial;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::env;

/// How many changes, unless `FLOTILLA_PLAN_CHANGES` says another number.
const CHANGES: u64 = 16;
/// The first seed, unless `FLOTILLA_PLAN_SEED` says another one.
const SEED: u64 = 20_260_000;

pub(crate) fn trials(lab: &Lab) -> Vec<Trial> {
    let number = |name: &str, default| env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let first = number("FLOTILLA_PLAN_SEED", SEED);
    let seeds = first..first + number("FLOTILLA_PLAN_CHANGES", CHANGES);
    seeds
        .map(|seed| {
            let lab = lab.clone();
            trial(format!("plan::random::{seed}"), move || async move {
                let ns = format!("plan-random-{seed}");
                let api = suite::enter(&lab.admin, &ns).await;
                let story = Story {
                    api,
                    lab,
                    ns,
                    name: "random",
                };
                Case::draw(seed).holds(&story).await;
            })
        })
        .collect()
}

/// Which kind of set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Native,
    Advanced,
    Clone,
}

impl Kind {
    fn api_version(self) -> &'static str {
        match self {
            Kind::Native => "apps/v1",
            Kind::Advanced | Kind::Clone => "apps.kruise.io/v1beta1",
        }
    }

    fn plural(self) -> &'static str {
        match self {
            Kind::Native | Kind::Advanced => "statefulsets",
            Kind::Clone => "clonesets",
        }
    }

    fn short(self) -> &'static str {
        match self {
            Kind::Native => "sts",
            Kind::Advanced => "asts",
            Kind::Clone => "clone",
        }
    }
}

/// What is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// An image that starts.
    Image,
    /// One that cannot be pulled.
    BrokenImage,
    /// A label of the template.
    Label,
    /// More memory than any node has.
    NoRoom,
    /// A node that is not there.
    NoNode,
    /// A service account that is not there.
    NoAccount,
    /// A claim that is not there, as a volume.
    NoClaim,
    /// A volume that the template does not have.
    NoVolume,
    /// Pods that never become ready.
    NeverReady,
    Scale(i64),
    Partition(i64),
    Delete,
}

/// What the set has to live with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    None,
    /// One of its pods crashes.
    PodCrashes,
    /// A quota has room for so many more pods.
    Quota(usize),
    /// One of its pods cannot go, since somebody else holds it.
    PodHeld,
}

#[derive(Debug)]
struct Case {
    seed: u64,
    kind: Kind,
    replicas: i64,
    /// Of the set, before the change.
    spec: Value,
    trouble: Trouble,
    /// Which pod has it, in the order of their names.
    troubled: usize,
    changes: Vec<Change>,
}

fn one_of<T: Copy>(rng: &mut Rng, all: &[T]) -> T {
    all[rng.usize(0..all.len())]
}

impl Case {
    fn draw(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let rng = &mut rng;
        let kind = one_of(rng, &[Kind::Native, Kind::Advanced, Kind::Clone]);
        let replicas = rng.i64(1..7);
        let spec = spec(rng, kind, replicas);
        let trouble = match rng.u8(0..8) {
            // An image that runs nowhere and crashes is expected to go on with that.
            0 | 1 if replicas > 1 => Trouble::PodCrashes,
            2 => Trouble::Quota(rng.usize(0..3)),
            3 => Trouble::PodHeld,
            _ => Trouble::None,
        };
        let mut changes = vec![match rng.u8(0..20) {
            0..=6 => Change::Image,
            7 | 8 => Change::BrokenImage,
            9 => Change::Label,
            10 => Change::NoRoom,
            11 => Change::NoNode,
            12 => Change::NoAccount,
            13 => Change::NoClaim,
            14 => Change::NoVolume,
            15 | 16 => Change::NeverReady,
            17 => Change::Partition(rng.i64(0..=replicas)),
            18 => Change::Scale(rng.i64(0..7)),
            _ => Change::Delete,
        }];
        if changes[0] != Change::Delete && rng.u8(0..4) == 0 {
            changes.push(Change::Scale(rng.i64(0..7)));
        }
        Case {
            seed,
            kind,
            replicas,
            spec,
            trouble,
            troubled: rng.usize(0..6),
            changes,
        }
    }

    fn sets(&self, ns: &str) -> String {
        format!(
            "/apis/{}/namespaces/{ns}/{}",
            self.kind.api_version(),
            self.kind.plural()
        )
    }

    fn manifest(&self, changed: bool) -> Value {
        let mut spec = self.spec.clone();
        if changed {
            for change in &self.changes {
                change.make(&mut spec);
            }
        }
        let kind = if self.kind == Kind::Clone {
            "CloneSet"
        } else {
            "StatefulSet"
        };
        json!({"apiVersion": self.kind.api_version(), "kind": kind, "metadata": {"name": "web"}, "spec": spec})
    }

    async fn holds(&self, story: &Story) {
        println!("[{}] {self:?}", self.seed);
        let set = format!("{}/web", self.sets(&story.ns));
        story.api.create(&self.sets(&story.ns), &self.manifest(false)).await;
        let count = usize::try_from(self.replicas).expect("a few");
        let all = ready(&story.api, &story.ns, count).await;
        let is_told = |sets: &Objects| {
            let set = &sets["web"];
            number(set, "/status/observedGeneration") == number(set, "/metadata/generation")
                && number(set, "/status/readyReplicas") == self.replicas
        };
        story
            .api
            .until(&self.sets(&story.ns), SOON, "the set knows of its pods", is_told)
            .await;
        self.befall(story, &all).await;

        let (args, input) = match self.changes.as_slice() {
            [Change::Delete] => (
                vec![format!("{}/web", self.kind.short()), "--delete".to_owned()],
                String::new(),
            ),
            _ => (vec!["-f".to_owned(), "-".to_owned()], self.manifest(true).to_string()),
        };
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let (plan, code) = story.planned(&args, &input);
        if plan["refused"].as_array().is_some_and(|refused| !refused.is_empty()) {
            assert_eq!(code, Some(1), "[{}] {plan:#}", self.seed);
            let body = self.manifest(true);
            let sent = story
                .api
                .send(Method::PATCH, &set, Some(("application/merge-patch+json", &body)))
                .await;
            let refused = sent.expect_err("the plan says that the API server refuses it");
            println!("[{}] refused, as planned: {refused}", self.seed);
            return;
        }
        let change = async {
            if self.changes == [Change::Delete] {
                story.api.delete(&set, false).await;
            } else {
                story.api.patch(&set, &self.manifest(true)).await;
            }
        };
        // The garbage collector learns of custom kinds every half a minute.
        let quiet = match self.changes.as_slice() {
            [Change::Delete] => 5 * QUIET,
            _ => QUIET,
        };
        let (watcher, at_end) = story.watched(quiet, change).await;
        self.compare(&plan, &watcher, &at_end);
    }

    /// The trouble comes, and the set knows of it.
    async fn befall(&self, story: &Story, all: &Objects) {
        let pod = all.keys().nth(self.troubled % all.len()).expect("it has pods");
        match self.trouble {
            Trouble::None => {}
            Trouble::PodCrashes => {
                shape(&story.api, &story.ns, pod, "crash", Some("true")).await;
                let is_told = |sets: &Objects| number(&sets["web"], "/status/readyReplicas") == self.replicas - 1;
                let what = "the set knows of the pod that crashes";
                story.api.until(&self.sets(&story.ns), SOON, what, is_told).await;
            }
            Trouble::Quota(more) => {
                let quota =
                    json!({"metadata": {"name": "pods"}, "spec": {"hard": {"pods": (all.len() + more).to_string()}}});
                let quotas = format!("/api/v1/namespaces/{}/resourcequotas", story.ns);
                story.api.create(&quotas, &quota).await;
                let is_counted = |quotas: &Objects| text(&quotas["pods"], "/status/used/pods") == all.len().to_string();
                story.api.until(&quotas, SOON, "the quota counts", is_counted).await;
            }
            Trouble::PodHeld => {
                let held = json!({"metadata": {"finalizers": ["example.com/held"]}});
                story.api.patch(&format!("{}/{pod}", pods(&story.ns)), &held).await;
            }
        }
    }

    fn compare(&self, plan: &Value, watcher: &Watcher, at_end: &Objects) {
        let set = &plan["sets"][0];
        let is_clone = self.kind == Kind::Clone;
        let known: BTreeSet<String> = watcher.known().clone();
        let is_going = |pod: &str| at_end.get(pod).is_some_and(is_terminating);
        // Names of new clones are drawn, and of what has not gone yet nobody can see whether it comes back.
        let nameless = |waves: Vec<BTreeSet<String>>| -> Vec<Vec<String>> {
            let step = |step: &String| match step.split_once(' ') {
                Some((action, pod)) if is_clone && !known.contains(pod) => format!("{action} *"),
                Some((_, pod)) if is_going(pod) => format!("end {pod}"),
                _ => step.clone(),
            };
            let sorted = |wave: &BTreeSet<String>| {
                let mut steps: Vec<String> = wave.iter().map(step).collect();
                steps.sort();
                steps
            };
            waves.iter().map(sorted).collect()
        };
        let (planned, seen) = (nameless(waves(set)), nameless(watcher.waves()));
        let lowest = set["lowestAvailable"]["pods"].as_u64();
        let end = set["availableAtEnd"].as_u64();
        let count = |n: usize| u64::try_from(n).ok();
        println!("[{}] planned {planned:?}, lowest {lowest:?}, end {end:?}", self.seed);
        println!(
            "[{}] seen {seen:?}, lowest {}, end {}",
            self.seed,
            watcher.lowest(),
            watcher.available()
        );
        let as_planned = planned == seen && lowest == count(watcher.lowest()) && end == count(watcher.available());
        if as_planned {
            return;
        }
        let is_named = |list: &str| plan[list].as_array().is_some_and(|all| !all.is_empty());
        if is_named("unknowns") || is_named("missing") || plan["isCutShort"] == true {
            println!(
                "[{}] the plan made no promise: {} {}",
                self.seed, plan["unknowns"], plan["missing"]
            );
            return;
        }
        let does_not_come_up = at_end
            .iter()
            .any(|(pod, object)| !is_ready(object) && watcher.has_touched(pod))
            || watcher.has_touched_nothing();
        assert!(
            does_not_come_up,
            "[{}] planned {planned:?}, seen {seen:?}: {plan:#}",
            self.seed
        );
        let doubt = &set["ifNewPodsAreNotReady"];
        let pods = doubt["pods"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let touched: BTreeSet<String> = watcher.waves().into_iter().flatten().collect();
        let touched = nameless(vec![touched]);
        let touched: BTreeSet<&str> = touched
            .iter()
            .flatten()
            .filter_map(|step| Some(step.split_once(' ')?.1))
            .collect();
        let doubtful: BTreeSet<&str> = pods
            .map(|pod| if is_clone && !known.contains(pod) { "*" } else { pod })
            .collect();
        assert_eq!(
            touched, doubtful,
            "[{}] of pods that do not come up: {plan:#}",
            self.seed
        );
        assert_eq!(
            count(watcher.available()),
            doubt["available"].as_u64(),
            "[{}] available where pods do not come up: {plan:#}",
            self.seed
        );
    }
}

/// A set whose pods take a second each to start and to end.
fn spec(rng: &mut Rng, kind: Kind, replicas: i64) -> Value {
    let mut spec = json!({
        "replicas": replicas,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {
                "labels": {"app": "web"},
                "annotations": {"sim.flotilla.rs/start": "1s", "sim.flotilla.rs/stop": "1s", "sim.flotilla.rs/restart": "1s"},
            },
            "spec": {"containers": [{"name": "main", "image": "app:v1"}], "terminationGracePeriodSeconds": 5},
        },
    });
    let budget = |rng: &mut Rng| match rng.u8(0..4) {
        0 => json!("50%"),
        _ => json!(rng.i64(1..4)),
    };
    match kind {
        Kind::Native | Kind::Advanced => {
            spec["serviceName"] = json!("web");
            let is_parallel = rng.bool();
            if is_parallel {
                spec["podManagementPolicy"] = json!("Parallel");
            }
            let mut rolling = json!({});
            if rng.u8(0..4) == 0 {
                rolling["partition"] = json!(rng.i64(0..=replicas));
            }
            if kind == Kind::Advanced {
                if is_parallel && rng.bool() {
                    rolling["maxUnavailable"] = budget(rng);
                }
                if rng.bool() {
                    rolling["podUpdatePolicy"] = json!("InPlaceIfPossible");
                    spec["template"]["spec"]["readinessGates"] = json!([{"conditionType": "InPlaceUpdateReady"}]);
                }
            }
            spec["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
            if rng.u8(0..10) == 0 {
                spec["updateStrategy"] = json!({"type": "OnDelete"});
            }
        }
        Kind::Clone => {
            let mut rolling = json!({"podUpdatePolicy": one_of(rng, &["ReCreate", "InPlaceIfPossible"])});
            if rng.bool() {
                rolling["maxUnavailable"] = budget(rng);
            }
            if rng.u8(0..3) == 0 {
                rolling["maxSurge"] = json!(rng.i64(1..3));
            }
            if rng.u8(0..4) == 0 {
                rolling["partition"] = json!(rng.i64(0..=replicas));
            }
            spec["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
        }
    }
    spec
}

impl Change {
    fn make(self, spec: &mut Value) {
        let pod = &mut spec["template"]["spec"];
        match self {
            Change::Image => pod["containers"][0]["image"] = json!("app:v2"),
            Change::BrokenImage => pod["containers"][0]["image"] = json!("app:broken"),
            Change::Label => spec["template"]["metadata"]["labels"]["round"] = json!("two"),
            Change::NoRoom => pod["containers"][0]["resources"] = json!({"requests": {"memory": "100Ti"}}),
            Change::NoNode => pod["nodeSelector"] = json!({"example.com/zone": "nowhere"}),
            Change::NoAccount => pod["serviceAccountName"] = json!("nobody-here"),
            Change::NoClaim => {
                pod["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "not-here"}}]);
            }
            Change::NoVolume => pod["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]),
            Change::NeverReady => {
                // Else pods that are updated in place are changed without a restart.
                pod["containers"][0]["image"] = json!("app:v2");
                spec["template"]["metadata"]["annotations"]["sim.flotilla.rs/never-ready"] = json!("true");
            }
            Change::Scale(replicas) => spec["replicas"] = json!(replicas),
            Change::Partition(partition) => {
                spec["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": partition}});
                spec["template"]["spec"]["containers"][0]["image"] = json!("app:v2");
            }
            Change::Delete => {}
        }
    }
}
