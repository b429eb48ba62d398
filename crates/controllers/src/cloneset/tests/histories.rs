//! Whole updates of pods with claims, pass after pass, in a small world: what pods have stored stays with the set whatever is edited, refused or
//! lost meanwhile (CS-13.8, CS-13.9, CS-15.5), enough pods serve (CS-13.12), and it comes to an end.

use super::surge::{surging, with_data};
use super::{name, said};
use crate::testing::{Cluster, claim, container_status, folded, owner, pod, set_uid, template};
use flotilla_api::names;
use flotilla_model::decision::{Command, Report, Scope};
use flotilla_model::{Decision, Failure, Labels, OwnerRef, PodRecord, Resource, Uid};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

/// Edits come within so many passes; then all is undone that holds an update up.
const BUSY: usize = 40;
/// By then it has come to an end.
const END: usize = 110;
/// What a pass is apart from the next one.
const STEP: Duration = Duration::from_secs(20);

/// By this label the preDelete hook holds pods.
const HOLD: &str = "hold";
/// By this one the inPlaceUpdate hook does.
const DRAIN: &str = "drain";

/// What somebody does before a pass.
#[derive(Clone, Debug)]
enum Act {
    Field(&'static str, Value),
    Image(&'static str),
    /// In place, or made again.
    InPlace(bool),
    /// Claims of pods that are made again are kept.
    Keep(bool),
    Scale(i32),
    /// Pods are not made for so many passes.
    Refuse(u32),
    /// A pod is deleted, not by the manager.
    Lose(usize),
    /// The manager forgets what it knew.
    Restart,
    /// Users want a pod deleted.
    Want(usize),
    /// Users have changed their minds about all of these that are still there.
    Unwant,
    /// A pod ends, and is collected some time later.
    End(usize),
    /// No pod is made while so many are unavailable (`scaleStrategy.maxUnavailable`).
    Limit(i32),
    /// Pods that wait for their deletion count as replicas no more (`scaleStrategy.excludePreparingDelete`).
    Exclude(bool),
}

/// The set at first.
#[derive(Clone, Debug)]
// Independent switches, not a state.
#[allow(clippy::struct_excessive_bools)]
struct Settings {
    replicas: i32,
    surge: i32,
    unavailable: i32,
    /// In place, or made again.
    in_place: bool,
    /// With their claims.
    keeps: bool,
    reuse: bool,
    goes_back: bool,
    hooks: Hooks,
}

/// Which hooks hold pods.
#[derive(Clone, Copy, Debug)]
struct Hooks {
    pre_delete: bool,
    in_place_update: bool,
}

fn settings() -> impl Strategy<Value = Settings> {
    let numbers = (1..6_i32, 0..5_i32, 0..2_i32);
    let switches = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let hooks = (any::<bool>(), any::<bool>()).prop_map(|(pre_delete, in_place_update)| Hooks {
        pre_delete,
        in_place_update,
    });
    (numbers, switches, hooks).prop_map(
        |((replicas, surge, unavailable), (in_place, keeps, reuse, goes_back), hooks)| Settings {
            replicas,
            surge,
            unavailable,
            in_place,
            keeps,
            reuse,
            goes_back,
            hooks,
        },
    )
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        1 => Just(Act::Field("paused", json!(true))),
        2 => Just(Act::Field("paused", json!(false))),
        2 => (0..5_i32).prop_map(|n| Act::Field("partition", json!(n))),
        1 => (0..6_i32).prop_map(|n| Act::Field("maxSurge", json!(n))),
        1 => (0..4_i32).prop_map(|n| Act::Field("maxUnavailable", json!(n))),
        2 => prop_oneof![Just("v1"), Just("v2")].prop_map(Act::Image),
        1 => any::<bool>().prop_map(Act::InPlace),
        1 => any::<bool>().prop_map(Act::Keep),
        1 => (1..8_i32).prop_map(Act::Scale),
        1 => (1..6_u32).prop_map(Act::Refuse),
        1 => (0..6_usize).prop_map(Act::Lose),
        1 => Just(Act::Restart),
        1 => (0..6_usize).prop_map(Act::Want),
        1 => Just(Act::Unwant),
        1 => (0..6_usize).prop_map(Act::End),
        1 => (0..4_i32).prop_map(Act::Limit),
        1 => any::<bool>().prop_map(Act::Exclude),
    ]
}

fn acts() -> impl Strategy<Value = Vec<(usize, Act)>> {
    prop::collection::vec((0..BUSY, act()), 0..12)
}

/// A set, and what becomes of it.
struct World {
    set: Cluster,
    /// Passes until pods that are terminating are gone.
    going: BTreeMap<String, u32>,
    /// Passes until they serve, of pods that have begun.
    starting: BTreeMap<String, u32>,
    refuses: u32,
    /// Pods that an update has taken with their claims, as users had not asked for the contrary.
    taken: BTreeSet<String>,
    luck: u64,
    log: String,
    /// Passes until its hook lets a pod go.
    holding: BTreeMap<String, u32>,
    hooks: Hooks,
    /// For so many passes nothing has been done nor said, although something is left to do.
    silent: u32,
}

impl World {
    fn new(set: Cluster, hooks: Hooks, luck: u64) -> Self {
        World {
            set,
            going: BTreeMap::new(),
            starting: BTreeMap::new(),
            refuses: 0,
            taken: BTreeSet::new(),
            luck,
            log: String::new(),
            holding: BTreeMap::new(),
            hooks,
            silent: 0,
        }
    }

    fn of(settings: &Settings, luck: u64) -> Self {
        let policy = if settings.in_place {
            "InPlaceIfPossible"
        } else {
            "ReCreate"
        };
        let rolling = json!({
            "podUpdatePolicy": policy, "maxSurge": settings.surge, "maxUnavailable": settings.unavailable,
        });
        let words = vec!["o"; usize::try_from(settings.replicas).expect("few")].join(" ");
        let mut set = with_data(surging(settings.replicas, &rolling), &words);
        set = set.spec("/scaleStrategy/enablePVCReuse", json!(settings.reuse));
        if settings.keeps {
            set = set.annotation(names::KEEP_CLAIMS_ON_RECREATE, "true");
        }
        if settings.goes_back {
            set = set.annotation(names::PARTITION_ROLLBACK, "true");
        }
        let hooks = settings.hooks;
        for (holds, hook, label) in [
            (hooks.pre_delete, "preDelete", HOLD),
            (hooks.in_place_update, "inPlaceUpdate", DRAIN),
        ] {
            if !holds {
                continue;
            }
            set = set.spec(&format!("/lifecycle/{hook}"), json!({"labelsHandler": {label: "yes"}}));
            for pod in set.pods.values_mut() {
                relabel(pod, &json!({label: "yes"}));
            }
        }
        World::new(set, hooks, luck)
    }

    /// One to three, by luck.
    fn some(&mut self) -> u32 {
        self.luck = self.luck.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        1 + u32::try_from(self.luck >> 33).unwrap_or(0) % 3
    }

    fn field(&mut self, field: &str, value: Value) {
        let pointer = format!("/updateStrategy/rollingUpdate/{field}");
        self.set = self.set.clone().spec(&pointer, value);
    }

    fn number(&self, field: &str) -> i32 {
        let value = &self.set.set["spec"]["updateStrategy"]["rollingUpdate"][field];
        value.as_i64().and_then(|n| i32::try_from(n).ok()).unwrap_or(0)
    }

    fn replicas(&self) -> i32 {
        let value = self.set.set["spec"]["replicas"].as_i64().expect("a number");
        i32::try_from(value).expect("few")
    }

    fn act(&mut self, act: &Act) {
        let _ = writeln!(self.log, "   {act:?}");
        match act {
            Act::Field(field, value) => self.field(field, value.clone()),
            Act::Image(image) => self.set = self.set.clone().spec("/template", template(image)),
            Act::InPlace(true) => self.field("podUpdatePolicy", json!("InPlaceIfPossible")),
            Act::InPlace(false) => self.field("podUpdatePolicy", json!("ReCreate")),
            Act::Keep(keeps) => {
                if !keeps {
                    self.give_up_what_was_kept();
                }
                let keeps = if *keeps { "true" } else { "false" };
                self.set = self.set.clone().annotation(names::KEEP_CLAIMS_ON_RECREATE, keeps);
            }
            Act::Scale(replicas) => self.set = self.set.clone().spec("/replicas", json!(replicas)),
            Act::Refuse(passes) => self.refuses = *passes,
            Act::Lose(n) => {
                let there: Vec<String> = self.set.pods.keys().cloned().collect();
                if let Some(name) = there.get(n % there.len().max(1)) {
                    self.delete(name);
                }
            }
            Act::Want(n) => {
                let there: Vec<String> = self.set.pods.keys().cloned().collect();
                if let Some(name) = there.get(n % there.len().max(1)) {
                    let pod = self.set.pods.get_mut(name).expect("there");
                    relabel(pod, &json!({names::SPECIFIED_DELETE_LABEL: "1"}));
                    self.taken.insert(name.clone());
                }
            }
            Act::Unwant => {
                for (name, pod) in &mut self.set.pods {
                    if pod.label(names::SPECIFIED_DELETE_LABEL) != Some("1") || pod.is_terminating() {
                        continue;
                    }
                    relabel(pod, &json!({names::SPECIFIED_DELETE_LABEL: null}));
                    // Who waits for its hook is taken back only where it is missing.
                    if pod.label(names::LIFECYCLE_STATE_LABEL) != Some("PreparingDelete") {
                        self.taken.remove(name);
                    }
                }
            }
            Act::End(n) => {
                let there: Vec<String> = self.set.pods.keys().cloned().collect();
                if let Some(name) = there.get(n % there.len().max(1)) {
                    let name = name.clone();
                    let pod = Arc::make_mut(self.set.pods.get_mut(&name).expect("there"));
                    pod.phase = flotilla_model::records::Phase::Failed;
                    pod.ready.is_true = false;
                    let lasts = self.some();
                    self.starting.remove(&name);
                    self.going.entry(name).or_insert(lasts + 2);
                }
            }
            Act::Limit(n) => self.set = self.set.clone().spec("/scaleStrategy/maxUnavailable", json!(n)),
            Act::Exclude(x) => self.set = self.set.clone().spec("/scaleStrategy/excludePreparingDelete", json!(x)),
            Act::Restart => {
                // Whether pods of a revision are accepted it asks again, which is not what is looked at here.
                let accepted = std::mem::take(&mut self.set.hints.accepted);
                self.set.hints = flotilla_model::Hints {
                    accepted,
                    ..Default::default()
                };
            }
        }
    }

    fn delete(&mut self, name: &str) {
        let lasts = self.some();
        let pod = self.set.pods.get_mut(name).expect("it is there");
        Arc::make_mut(pod).meta.deleted = Some(self.set.now);
        self.going.entry(name.to_owned()).or_insert(lasts);
    }

    /// One pass: what is decided, and what becomes of it.
    fn pass(&mut self) -> Decision {
        let decision = self.set.decide();
        let _ = writeln!(self.log, "{}\n      -> {:?}", self.picture(), said(&decision));
        if let Some(hints) = &decision.hints {
            let accepted = std::mem::take(&mut self.set.hints.accepted);
            self.set.hints = hints.clone();
            self.set.hints.accepted.extend(accepted);
        }
        for scoped in decision.commands() {
            self.carry_out(&scoped.scope, &scoped.command);
        }
        if let Some(diff) = decision.status.as_ref().and_then(flotilla_model::StatusWrite::diff) {
            for (field, value) in diff.as_object().into_iter().flatten() {
                self.set.set["status"][field] = value.clone();
            }
        }
        self.tick();
        decision
    }

    fn carry_out(&mut self, scope: &Scope, command: &Command) {
        let key = command.key().name.to_string();
        match command {
            Command::Create {
                resource: Resource::Pods,
                ..
            } if self.refuses > 0 => {
                let before = self.set.hints.failures.get(scope);
                let mut failure =
                    Failure::follow(before, Report::Create, "Forbidden".into(), "no".into(), self.set.now);
                failure.retry_at = self.set.now + STEP;
                self.set.hints.failures.insert(scope.clone(), failure);
            }
            Command::Create {
                resource: Resource::Pods,
                body,
                ..
            } => self.make(&key, &body.render()),
            Command::Create {
                resource: Resource::Claims,
                body,
                ..
            } => {
                let id = key.rsplit_once('-').expect("an id").1.to_owned();
                let mut record = claim(&key).of_clone(&id).build();
                record.annotations = changed(&Labels::default(), body.render().pointer("/metadata/annotations"));
                let before = self.set.claims.insert(key.clone(), Arc::new(record));
                assert!(before.is_none(), "{key} exists\n{}", self.log);
            }
            Command::Delete {
                resource: Resource::Pods,
                ..
            } => self.delete(&key),
            Command::Delete {
                resource: Resource::Claims,
                ..
            } => drop(self.set.claims.remove(&key)),
            Command::Patch {
                resource: Resource::Pods,
                body,
                report,
                subresource: None,
                ..
            } => {
                if *report == Report::ReCreate && !self.keeps_claims() {
                    self.taken.insert(key.clone());
                }
                self.change(&key, &folded(body), *report);
            }
            Command::Patch {
                resource: Resource::Claims,
                body,
                ..
            } => {
                let claim = Arc::make_mut(self.set.claims.get_mut(&key).expect("it is there"));
                claim.annotations = changed(&claim.annotations, body.pointer("/metadata/annotations"));
                if let Some(new) = body.pointer("/metadata/ownerReferences/0") {
                    let text = |field: &str| new[field].as_str().unwrap_or_default().to_owned();
                    let reference = owner(&text("apiVersion"), &text("kind"), &text("name"), &text("uid"));
                    claim.meta.owners = Some(Arc::new(vec![OwnerRef {
                        controller: true,
                        ..reference
                    }]));
                }
                claim.meta.resource_version += 1;
            }
            Command::Patch {
                resource: Resource::Revisions,
                body,
                ..
            } => self.raise(&key, body.get("revision").and_then(Value::as_i64)),
            _ => {}
        }
    }

    fn make(&mut self, name: &str, body: &Value) {
        assert!(!self.set.pods.contains_key(name), "{name} exists\n{}", self.log);
        let image = body["spec"]["containers"][0]["image"]
            .as_str()
            .expect("an image")
            .to_owned();
        let mut fixture = pod(name)
            .created(self.set.now.as_millis() / 1000)
            .mounts(&["data"])
            .never_ready()
            .detailed(|detail| {
                Arc::make_mut(&mut detail.spec).containers[0].image = image.as_str().into();
                detail.statuses = Box::new([Some(container_status(&image))]);
            });
        for (key, value) in body["metadata"]["labels"].as_object().expect("labels") {
            fixture = fixture.label(key, value.as_str().expect("text"));
        }
        for (key, value) in body["metadata"]["annotations"].as_object().into_iter().flatten() {
            fixture = fixture.annotated(key, value.as_str().expect("text"));
        }
        if self.hooks.pre_delete {
            fixture = fixture.label(HOLD, "yes");
        }
        if self.hooks.in_place_update {
            fixture = fixture.label(DRAIN, "yes");
        }
        let mut record = fixture.build("web");
        record.meta.uid = Uid::new(&format!("uid-{name}-{}", self.set.now.as_millis()));
        let lasts = self.some();
        self.starting.insert(name.to_owned(), lasts);
        self.set.hints.failures.remove(&Scope::Named(name.into()));
        self.set.pods.insert(name.to_owned(), Arc::new(record));
    }

    fn change(&mut self, name: &str, body: &Value, report: Report) {
        let lasts = self.some();
        let pod = Arc::make_mut(self.set.pods.get_mut(name).expect("it is there"));
        pod.meta.labels = changed(&pod.meta.labels, body.pointer("/metadata/labels"));
        let detail = Arc::make_mut(pod.detail.as_mut().expect("its detail"));
        if report == Report::InPlace {
            let is_new = pod.meta.labels.get(names::REVISION_LABEL) == Some("web-new");
            let image = if is_new { "v2" } else { "v1" };
            Arc::make_mut(&mut detail.spec).containers[0].image = image.into();
            detail.statuses = Box::new([Some(container_status(image))]);
            pod.ready.is_true = false;
            self.starting.insert(name.to_owned(), lasts);
        } else {
            detail.annotations = changed(&detail.annotations, body.pointer("/metadata/annotations"));
            detail.is_annotated = true;
        }
    }

    fn raise(&mut self, name: &str, number: Option<i64>) {
        let mut own = self.set.own_revisions.iter_mut();
        if let (Some(number), Some(revision)) = (number, own.find(|r| r.name() == name)) {
            Arc::make_mut(revision).number = number;
            self.set.revisions.insert(name.to_owned(), revision.clone());
        }
    }

    /// That pods lack, or are not what they should be, is said, or something is done about it.
    fn says_what_is_left(&mut self, decision: &Decision) -> Result<(), String> {
        let update = self.set.set["status"]["updateRevision"].as_str().unwrap_or_default();
        let mut active = self.set.pods.values().filter(|pod| !pod.is_terminal());
        let is_going = self.set.pods.values().any(|pod| pod.is_terminating());
        let is_done = |pod: &Arc<PodRecord>| pod.revision() == Some(update) && !noted(pod) && pod.ready.is_true;
        let is_left = number(active.clone().count()) != self.replicas() || !active.all(is_done);
        let is_silent = decision.commands().next().is_none() && decision.waits.is_empty();
        // What the decision was made of has changed since.
        self.silent = if is_silent && is_left && !is_going {
            self.silent + 1
        } else {
            0
        };
        if self.silent > 3 {
            return Err("nothing is done, and nothing is said".to_owned());
        }
        Ok(())
    }

    /// Users let pods go that hooks hold, some time later.
    fn tend_hooks(&mut self) {
        let mut held = BTreeMap::new();
        for (name, pod) in &self.set.pods {
            let state = pod.label(names::LIFECYCLE_STATE_LABEL).unwrap_or_default();
            let (holds, drains) = (pod.label(HOLD).is_some(), pod.label(DRAIN).is_some());
            match state {
                "PreparingDelete" if holds => held.insert(name.clone(), json!({HOLD: null})),
                "PreparingUpdate" if drains => held.insert(name.clone(), json!({DRAIN: null})),
                "Updated" if !drains => held.insert(name.clone(), json!({DRAIN: "yes"})),
                _ => None,
            };
        }
        self.holding.retain(|name, _| held.contains_key(name));
        for (name, change) in held {
            let lasts = self.some();
            let left = self.holding.entry(name.clone()).or_insert(lasts);
            *left -= 1;
            if *left == 0 {
                self.holding.remove(&name);
                relabel(self.set.pods.get_mut(&name).expect("it is there"), &change);
            }
        }
    }

    /// Time passes: pods come up and go, and hooks let them.
    fn tick(&mut self) {
        self.set.now = self.set.now + STEP;
        self.refuses = self.refuses.saturating_sub(1);
        let over = |all: &mut BTreeMap<String, u32>| {
            for left in all.values_mut() {
                *left -= 1;
            }
            let over: Vec<String> = all
                .iter()
                .filter(|(_, left)| **left == 0)
                .map(|(n, _)| n.clone())
                .collect();
            all.retain(|_, left| *left > 0);
            over
        };
        self.tend_hooks();
        for name in over(&mut self.going) {
            self.set.pods.remove(&name);
            self.starting.remove(&name);
        }
        for name in over(&mut self.starting) {
            if let Some(pod) = self.set.pods.get_mut(&name) {
                let pod = Arc::make_mut(pod);
                pod.phase = flotilla_model::records::Phase::Running;
                pod.ready.is_true = true;
                pod.ready.since = Some(self.set.now);
            }
        }
        self.index();
    }

    /// What the caches hold by other keys; and the garbage collector.
    fn index(&mut self) {
        let pods: Vec<Arc<PodRecord>> = self.set.pods.values().cloned().collect();
        self.set.own_pods.clone_from(&pods);
        self.set.pods.clear();
        self.set.pods_by_claim.clear();
        let uids: BTreeSet<Uid> = pods.iter().map(|p| p.meta.uid.clone()).collect();
        for pod in pods {
            self.set.put(pod);
        }
        let owner = |claim: &flotilla_model::ClaimRecord| claim.meta.controller().expect("an owner").uid.clone();
        self.set
            .claims
            .retain(|_, claim| owner(claim) == set_uid("web") || uids.contains(&owner(claim)));
        self.set.claims_by_owner.clear();
        for claim in self.set.claims.values() {
            let of_owner = self.set.claims_by_owner.entry(owner(claim)).or_default();
            of_owner.push(claim.clone());
        }
    }

    /// Pods that serve.
    fn serving(&self) -> BTreeSet<String> {
        let serves = |pod: &&Arc<PodRecord>| {
            pod.ready.is_true
                && pod.meta.deleted.is_none()
                && matches!(pod.label(names::LIFECYCLE_STATE_LABEL), None | Some("" | "Normal"))
        };
        self.set
            .pods
            .values()
            .filter(serves)
            .map(|pod| pod.name().to_owned())
            .collect()
    }

    fn keeps_claims(&self) -> bool {
        self.set.set["metadata"]["annotations"][names::KEEP_CLAIMS_ON_RECREATE] == "true"
    }

    /// Whether what this pod has stored is there, if nobody was free to delete it.
    fn has_data(&self, n: usize) -> bool {
        self.taken.contains(&name(n)) || self.set.claims.contains_key(&format!("data-{}", name(n)))
    }

    /// Pods that an update has begun to make again, and such as have gone for it: users do not want their claims to be kept any more.
    fn give_up_what_was_kept(&mut self) {
        let is_going = |pod: &PodRecord| pod.label(names::SPECIFIED_DELETE_LABEL).is_some() || pod.is_terminating();
        let pods = self.set.pods.values().filter(|pod| is_going(pod));
        let gone = self.claims_without_pod().into_iter().map(str::to_owned);
        let given_up: Vec<String> = pods.map(|pod| pod.name().to_owned()).chain(gone).collect();
        self.taken.extend(given_up);
    }

    /// Claims that no pod of that name has.
    fn claims_without_pod(&self) -> Vec<&str> {
        let names = self.set.claims.keys().map(|claim| &claim["data-".len()..]);
        names.filter(|name| !self.set.pods.contains_key(*name)).collect()
    }

    fn picture(&self) -> String {
        let word = |pod: &Arc<PodRecord>| {
            let is_noted = noted(pod);
            let marks = [
                (pod.revision() == Some("web-new"), "n", "o"),
                (is_noted, "*", ""),
                (pod.label(names::SPECIFIED_DELETE_LABEL).is_some(), "!", ""),
                (pod.meta.deleted.is_some(), "T", ""),
                (pod.is_terminal(), "F", ""),
                (
                    pod.label(names::LIFECYCLE_STATE_LABEL) == Some("PreparingDelete"),
                    "d",
                    "",
                ),
                (
                    pod.label(names::LIFECYCLE_STATE_LABEL) == Some("PreparingUpdate"),
                    "p",
                    "",
                ),
                (pod.label(names::LIFECYCLE_STATE_LABEL) == Some("Updated"), "u", ""),
                (pod.ready.is_true, "", "x"),
            ];
            let marks = marks.map(|(holds, yes, no)| if holds { yes } else { no }).concat();
            format!("{}:{marks}", &pod.name()["web-".len()..])
        };
        let pods: Vec<String> = self.set.pods.values().map(word).collect();
        format!("{} | without a pod: {:?}", pods.join(" "), self.claims_without_pod())
    }

    /// Nothing is left to be done: as many pods as asked for, all new, none made as surge, each with its claim.
    fn is_at_rest(&mut self) -> Result<(), String> {
        let update = self.set.set["status"]["updateRevision"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let pods = self.set.pods.values();
        let is_wrong = |pod: &&Arc<PodRecord>| pod.revision() != Some(&*update) || noted(pod) || !pod.ready.is_true;
        let count = number(pods.clone().count());
        if count != self.replicas() || pods.clone().any(|pod| is_wrong(&pod)) {
            return Err(format!("no rest at {update}: {}", self.picture()));
        }
        match self.set.decide().commands().next() {
            Some(scoped) => Err(format!("no rest: {:?}", scoped.command)),
            None => Ok(()),
        }
    }
}

fn number(n: usize) -> i32 {
    i32::try_from(n).expect("few")
}

fn noted(pod: &PodRecord) -> bool {
    let annotations = pod.detail.as_ref().map(|detail| &detail.annotations);
    annotations.is_some_and(|a| a.get(names::MADE_AS_SURGE).is_some())
}

fn relabel(pod: &mut Arc<PodRecord>, changes: &Value) {
    let pod = Arc::make_mut(pod);
    pod.meta.labels = changed(&pod.meta.labels, Some(changes));
}

fn changed(labels: &Labels, changes: Option<&Value>) -> Labels {
    let mut all: BTreeMap<&str, &str> = labels.iter().collect();
    for (key, value) in changes.and_then(Value::as_object).into_iter().flatten() {
        match value.as_str() {
            Some(value) => all.insert(key, value),
            None => all.remove(key.as_str()),
        };
    }
    all.into_iter().collect()
}

/// Whether a command takes a pod out of service, or lets its hook do that.
fn takes(command: &Command) -> bool {
    match command {
        Command::Delete { resource, .. } => *resource == Resource::Pods,
        Command::Patch {
            report: Report::InPlace,
            ..
        } => true,
        Command::Patch {
            resource: Resource::Pods,
            body,
            ..
        } => {
            let body = folded(body);
            let state = &body["metadata"]["labels"][names::LIFECYCLE_STATE_LABEL];
            matches!(state.as_str(), Some("PreparingDelete" | "PreparingUpdate"))
        }
        _ => false,
    }
}

/// A whole history. `looks` is asked after each pass whether all is well.
fn history(
    world: &mut World,
    acts: &[(usize, Act)],
    looks: impl Fn(&World) -> Result<(), String>,
) -> Result<(), String> {
    for step in 0..END {
        for (_, act) in acts.iter().filter(|(at, _)| *at == step) {
            world.act(act);
        }
        if step == BUSY {
            for (field, value) in [
                ("paused", json!(false)),
                ("partition", json!(0)),
                ("maxSurge", json!(1)),
            ] {
                world.field(field, value);
            }
            world.set = world.set.clone().spec("/scaleStrategy/maxUnavailable", Value::Null);
        }
        world.index();
        let serving = world.serving();
        let keep = (world.replicas() - world.number("maxUnavailable")).max(0);
        let decision = world.pass();
        world.says_what_is_left(&decision)?;
        let taken = decision.commands().filter(|c| takes(&c.command));
        let taken: BTreeSet<&str> = taken.map(|c| c.command.key().name.as_str()).collect();
        let taken = taken.into_iter().filter(|name| serving.contains(*name)).count();
        if taken > 0 && number(serving.len() - taken) < keep {
            return Err(format!(
                "{taken} of {} that serve are taken, and {keep} are to stay",
                serving.len()
            ));
        }
        looks(world)?;
    }
    world.is_at_rest()
}

/// Whatever is edited, refused or lost, no replica loses what it has stored; the set is not scaled in, and what others delete costs its claims only
/// without reuse.
fn keeps_data(settings: &Settings, acts: &[(usize, Act)], luck: u64) -> Result<(), String> {
    let allowed = |act: &Act| match act {
        Act::Scale(replicas) => *replicas >= settings.replicas,
        Act::Lose(_) | Act::End(_) => settings.reuse,
        _ => true,
    };
    let mut acts: Vec<(usize, Act)> = acts.iter().filter(|(_, act)| allowed(act)).cloned().collect();
    acts.sort_by_key(|(step, _)| *step);
    // And it does not shrink to what it was.
    let mut most = settings.replicas;
    for (_, act) in &mut acts {
        if let Act::Scale(replicas) = act {
            most = most.max(*replicas);
            *replicas = most;
        }
    }
    let mut world = World::of(settings, luck);
    let result = history(&mut world, &acts, |world| {
        let lost = (0..usize::try_from(settings.replicas).expect("few")).find(|n| !world.has_data(*n));
        lost.map_or(Ok(()), |n| Err(format!("what {} has stored is gone", name(n))))
    });
    // Whom users want deleted, and who has ended, may leave something.
    let may_leave = acts.iter().any(|(_, act)| matches!(act, Act::End(_) | Act::Want(_)));
    let result = result.and_then(|()| match world.claims_without_pod() {
        _ if may_leave => Ok(()),
        left if left.is_empty() => Ok(()),
        left => Err(format!("no pod has {left:?}")),
    });
    result.map_err(|why| format!("{why}\n{}", world.log))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn cs_13_9_and_15_5_no_update_costs_what_replicas_have_stored(settings in settings(), acts in acts(), luck in any::<u64>()) {
        if let Err(why) = keeps_data(&settings, &acts, luck) {
            prop_assert!(false, "{}", why);
        }
    }

    #[test]
    fn cs_13_12_whatever_is_edited_enough_pods_serve_and_it_ends(settings in settings(), acts in acts(), luck in any::<u64>()) {
        let mut world = World::of(&settings, luck);
        if let Err(why) = history(&mut world, &acts, |_| Ok(())) {
            prop_assert!(false, "{}\n{}", why, world.log);
        }
    }
}
