//! Target `annotations`: what is noted on pods about updates in place (STS-4.6, STS-4.7, STS-4.8 and STS-8.19).
//!
//! An input is a small cluster, `{"set", "revisions", "pods"}`, where annotations and messages of conditions may stand as JSON instead of
//! text. What can be read is written back and read as the same; what cannot be read is as good as absent, and restarts nothing.

use crate::reached::Reached;
use flotilla_api::names;
use flotilla_controllers::shared::inplace::grace::Grace;
use flotilla_controllers::shared::inplace::progress::Progress;
use flotilla_controllers::shared::inplace::state::{State, whole_seconds};
use flotilla_controllers::shared::readiness;
use flotilla_controllers::statefulset::StatefulSetController;
use flotilla_engine::core::cache::Cache;
use flotilla_engine::core::store::Source;
use flotilla_engine::wire;
use flotilla_model::{
    Command, Controller, Decision, Hints, Interner, ObjectKey, PassContext, Resource, SetKind, Timestamp,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

const STATES: [&str; 2] = [names::IN_PLACE_STATE, names::IN_PLACE_STATE_LEGACY];
const GRACES: [&str; 2] = [names::IN_PLACE_GRACE, names::IN_PLACE_GRACE_LEGACY];
/// More pods take more time, and show nothing new.
const REPLICAS_MAX: i64 = 8;
/// A field that nobody knows.
const UNKNOWN: &str = "ofAnotherRelease";
/// The moment of the pass, in seconds.
const NOW: i64 = 1_782_900_000;

/// Tries one input.
pub fn run(input: &[u8]) -> Reached {
    let mut reached = Reached::default();
    let Ok(mut world) = serde_json::from_slice::<Value>(input) else {
        return reached;
    };
    if let Some(replicas) = world.pointer_mut("/set/spec/replicas") {
        *replicas = replicas.as_i64().map_or(Value::Null, |n| n.min(REPLICAS_MAX).into());
    }
    for pod in list_mut(&mut world, "pods") {
        as_texts(pod);
        texts_of(pod, &mut reached);
    }
    stages(&world, &mut reached);
    let Some(found) = decide(&world, &Hints::default()) else {
        return reached;
    };
    reached.note_value(&found.waits.iter().map(|wait| &wait.cause).collect::<Vec<_>>());
    for command in found.commands() {
        reached.note(&shape(&command.command));
    }
    told_once(&world, &found);
    absent(&world, &found);
    reached
}

/// Where each pod stands in its update.
fn stages(world: &Value, reached: &mut Reached) {
    for pod in world["pods"].as_array().into_iter().flatten() {
        let Ok(wire::Object::Pod(pod)) = wire::read(Resource::Pods, pod, &mut Interner::new()) else {
            continue;
        };
        let progress = pod
            .detail
            .as_ref()
            .and_then(|detail| Progress::of(&pod, detail, Timestamp::default()));
        reached.note_value(&progress);
    }
}

/// Annotations and messages that stand as JSON become texts.
fn as_texts(pod: &mut Value) {
    if let Some(grace) = pod
        .pointer_mut("/metadata/annotations")
        .and_then(|all| all.get_mut(names::IN_PLACE_GRACE))
        && let Some(patch) = grace.get_mut("metaDataPatch").filter(|patch| patch.is_object())
    {
        *patch = base64(patch.to_string().as_bytes()).into();
    }
    let as_text = |value: &mut Value| {
        if !value.is_string() {
            *value = value.to_string().into();
        }
    };
    let annotations = pod.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    annotations.into_iter().flat_map(Map::values_mut).for_each(as_text);
    let conditions = pod.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    let messages = conditions.into_iter().flatten().filter_map(|c| c.get_mut("message"));
    messages.for_each(as_text);
}

/// What can be read is written back, and read as the same.
fn texts_of(pod: &Value, reached: &mut Reached) {
    for text in STATES.iter().filter_map(|key| annotation(pod, key)) {
        match State::parse(text) {
            Ok(state) => states(text, state),
            Err(error) => reached.note(&error),
        }
    }
    for text in GRACES.iter().filter_map(|key| annotation(pod, key)) {
        match Grace::parse(text) {
            Ok(grace) => graces(text, grace),
            Err(error) => reached.note(&error),
        }
    }
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    let messages = conditions.into_iter().flatten().filter_map(|c| c["message"].as_str());
    for message in messages {
        let keys = readiness::keys(message);
        let written = readiness::message(&keys);
        assert_eq!(readiness::keys(&written), keys, "STS-4.7: the keys survive");
        assert_eq!(keys.is_empty(), written.is_empty());
    }
    if let Some(text) = annotation(pod, names::LIFECYCLE_TIMESTAMP)
        && let Ok(time) = text.parse::<Timestamp>()
    {
        let written = whole_seconds(time);
        let again = written.parse::<Timestamp>().map(whole_seconds);
        assert_eq!(again.ok(), Some(written), "STS-4.7: {text} survives");
    }
}

fn states(text: &str, mut state: State) {
    state.others.insert(UNKNOWN.to_owned(), unknown());
    assert_eq!(
        State::parse(&with_unknown(text)),
        Ok(state.clone()),
        "fields of others do not matter, and are kept"
    );
    // Times are written as Kubernetes writes them.
    let whole = |at: Timestamp| Timestamp::from_seconds(at.as_millis().div_euclid(1000));
    state.updated_at = whole(state.updated_at);
    state.batches.iter_mut().for_each(|(at, _)| *at = whole(*at));
    assert_eq!(
        State::parse(&state.to_text()),
        Ok(state.clone()),
        "STS-4.7: the state survives"
    );
    let kept = field(text, "nextContainerResources");
    for (name, change) in &state.next.resources {
        assert_eq!(
            kept.get(name),
            Some(change),
            "resources survive with what we do not know of"
        );
    }
}

fn graces(text: &str, mut grace: Grace) {
    grace.others.insert(UNKNOWN.to_owned(), unknown());
    assert_eq!(
        Grace::parse(&with_unknown(text)),
        Ok(grace.clone()),
        "fields of others do not matter, and are kept"
    );
    assert_eq!(
        Grace::parse(&grace.to_text()),
        Ok(grace.clone()),
        "STS-4.7: the update survives"
    );
    let kept = field(text, "containerResources");
    for (name, change) in &grace.spec.changes.resources {
        assert_eq!(
            kept.get(name),
            Some(change),
            "resources survive with what we do not know of"
        );
    }
}

fn field(text: &str, name: &str) -> Value {
    let json: Value = serde_json::from_str(text).unwrap_or_default();
    json.get(name).cloned().unwrap_or_default()
}

fn unknown() -> Value {
    json!({"revision": [null]})
}

/// The same object with a field that nobody knows.
fn with_unknown(text: &str) -> String {
    let mut json: Value = serde_json::from_str(text).unwrap_or_default();
    if let Some(fields) = json.as_object_mut() {
        fields.insert(UNKNOWN.to_owned(), unknown());
    }
    json.to_string()
}

/// STS-8.19: what cannot be read is told, and once.
fn told_once(world: &Value, first: &Decision) {
    let is_told = |decision: &Decision| {
        let about =
            |note: &&flotilla_model::EventNote| note.message.contains("its record of an update in place is not used");
        decision.events.iter().filter(about).count()
    };
    let told = is_told(first);
    let pods = world["pods"].as_array().map_or(0, Vec::len);
    assert!(told <= pods, "STS-8.19: once for each pod");
    let hints = first.hints.clone().unwrap_or_default();
    if told > 0
        && let Some(again) = decide(world, &hints)
    {
        assert_eq!(is_told(&again), 0, "STS-8.19: told once");
    }
}

/// STS-8.19: a state that cannot be read is as good as none, and so is whatever else is noted.
fn absent(world: &Value, found: &Decision) {
    let is_state = |pod: &Value, key: &str, text: &str| {
        let has_grace = GRACES.iter().any(|key| annotation(pod, key).is_some());
        STATES.contains(&key) && !has_grace && State::parse(text).is_err()
    };
    let is_other = |_: &Value, key: &str, text: &str| match key {
        names::RUNTIME_CONTAINERS_META => serde_json::from_str::<Value>(text).is_err(),
        names::LIFECYCLE_TIMESTAMP => text.parse::<Timestamp>().is_err(),
        _ => false,
    };
    if let Some(other) = without(world, is_state) {
        let other = decide(&other, &Hints::default()).expect("the set is still there");
        assert_eq!(
            restarts(found),
            restarts(&other),
            "STS-8.19: what cannot be read restarts nothing"
        );
    }
    if let Some(other) = without(world, is_other) {
        let other = decide(&other, &Hints::default()).expect("the set is still there");
        let commands = |decision: &Decision| decision.commands().cloned().collect::<Vec<_>>();
        assert_eq!(commands(found), commands(&other), "what cannot be read says nothing");
    }
}

/// The world without some annotations of pods; `None` if there are none of these.
fn without(world: &Value, which: impl Fn(&Value, &str, &str) -> bool) -> Option<Value> {
    let mut changed = world.clone();
    let mut is_changed = false;
    for pod in list_mut(&mut changed, "pods") {
        let before = pod.clone();
        if let Some(all) = pod.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
            all.retain(|key, text| !which(&before, key, text.as_str().unwrap_or_default()));
        }
        is_changed |= *pod != before;
    }
    is_changed.then_some(changed)
}

/// What ends or changes containers: deletions of pods, and what patches write of a pod's spec.
fn restarts(decision: &Decision) -> Vec<Value> {
    let restart = |command: &Command| match command {
        Command::Delete { resource, key, .. } if *resource == Resource::Pods => {
            Some(json!({"delete": key.to_string()}))
        }
        Command::Patch { key, .. } => {
            let written: Vec<&Value> = written(command)
                .filter(|(path, _)| path[0] == "spec")
                .map(|(_, o)| o)
                .collect();
            (!written.is_empty()).then(|| json!({"patch": key.to_string(), "with": written}))
        }
        Command::Delete { .. } | Command::Create { .. } | Command::Try { .. } | Command::Read { .. } => None,
    };
    decision
        .commands()
        .filter_map(|scoped| restart(&scoped.command))
        .collect()
}

/// What a JSON patch of a pod writes, with the first two names of each path. Its tests write nothing.
fn written(command: &Command) -> impl Iterator<Item = ([&str; 2], &Value)> {
    let operations = match command {
        Command::Patch { resource, body, .. } if *resource == Resource::Pods => body.as_array(),
        _ => None,
    };
    let written = operations
        .into_iter()
        .flatten()
        .filter(|operation| operation["op"] != "test");
    written.map(|operation| {
        let mut names = operation["path"].as_str().unwrap_or_default().split('/').skip(1);
        (
            [names.next().unwrap_or_default(), names.next().unwrap_or_default()],
            operation,
        )
    })
}

/// What the controller decides in this world; `None` if there is no set that it can read.
fn decide(world: &Value, hints: &Hints) -> Option<Decision> {
    let mut cache = Cache::default();
    let set = wire::read(Resource::AdvancedSets, &world["set"], &mut cache.interner).ok()?;
    let key: ObjectKey = set.meta().key.clone();
    cache.apply(set, Source::Watch);
    for (list, resource) in [("revisions", Resource::Revisions), ("pods", Resource::Pods)] {
        for object in world[list].as_array().into_iter().flatten() {
            if let Ok(object) = wire::read(resource, object, &mut cache.interner) {
                cache.apply(object, Source::Watch);
            }
        }
    }
    let now = Timestamp::from_seconds(NOW);
    let context = PassContext {
        now,
        observing_since: now - Duration::from_hours(1),
        entropy: 0,
        hints,
    };
    StatefulSetController::new(SetKind::Advanced).reconcile(&cache, &key, context)
}

/// A command as far as the program chose it.
fn shape(command: &Command) -> String {
    match command {
        Command::Create { resource, .. } => format!("create {resource}"),
        Command::Delete { resource, .. } => format!("delete {resource}"),
        Command::Try { .. } => "try a pod".to_owned(),
        Command::Read { resource, .. } => format!("read {resource}"),
        Command::Patch {
            resource, subresource, ..
        } => {
            let parts: BTreeSet<_> = written(command).map(|(path, _)| path.join("/")).collect();
            format!("patch {resource} {subresource:?} {parts:?}")
        }
    }
}

fn annotation<'p>(pod: &'p Value, key: &str) -> Option<&'p str> {
    pod.pointer("/metadata/annotations")?.get(key)?.as_str()
}

fn list_mut<'w>(world: &'w mut Value, name: &str) -> impl Iterator<Item = &'w mut Value> {
    let list = world.get_mut(name).and_then(Value::as_array_mut);
    list.into_iter().flatten()
}

/// Base64 with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = (0..3).fold(0_u32, |bits, i| {
            bits << 8 | u32::from(chunk.get(i).copied().unwrap_or(0))
        });
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}
