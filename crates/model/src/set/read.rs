//! Reading a set from JSON: every field on its own, defaults where there is nothing, a problem where there is nonsense.

mod clone;
mod in_place;
mod metadata;
mod pre_download;
mod text;
mod update;

pub use in_place::unfit_for_hooks;
pub(crate) use metadata::read_meta;
use metadata::status_writers;
pub use text::{TEMPLATE_BYTES_MAX, read_set_text};

use super::ordinals::{IntervalSet, Ordinals, parse_reserved};
use super::spec::PARTITION;
use super::spec::{
    Area, ClaimTemplate, FieldProblem, MOST_PODS, PodManagement, PriorityStrategy, PriorityTerm, Retention,
    RollingUpdate, SetSpec, Switches, UpdateKind,
};
use super::{SetKind, SetRecord};
use crate::int_or_percent::IntOrPercent;
use crate::intern::Interner;
use crate::meta::ObjectKey;
use crate::packed::Packed;
use crate::selector::Selector;
use crate::template::Template;
use flotilla_api::names;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// How long a pod must have been bad by default before an opted-in set replaces it out of order.
const DEFAULT_UNBLOCK_AFTER: Duration = Duration::from_secs(60);
/// Revisions kept by default.
const DEFAULT_HISTORY_LIMIT: usize = 10;
/// Where templates stand.
const TEMPLATE: &str = "spec.template";
/// How much of a bad value a message repeats, in characters.
const LONGEST_QUOTE: usize = 60;

/// Reads a set of the given kind. `None` only if the metadata has no name, UID or version, which no API server sends.
pub fn read_set(kind: SetKind, object: &Value, interner: &mut Interner) -> Option<SetRecord> {
    let spec = object.get("spec").cloned().unwrap_or(Value::Null);
    let template = spec.get("template").cloned().unwrap_or(Value::Null);
    let metadata = object.get("metadata")?;
    let owner = key_of(|field| metadata.get(field).and_then(Value::as_str));
    let entries = metadata.get("managedFields").and_then(Value::as_array);
    let parts = Parts {
        template: interner.template(&owner, &template),
        tree: Arc::new(template),
        spec,
        writers: status_writers(entries.into_iter().flatten(), interner),
        metadata: metadata.clone(),
        status: object.get("status").cloned().unwrap_or(Value::Null),
        problems: Vec::new(),
    };
    parts.into_record(kind, interner)
}

/// Namespace and name.
fn key_of<'a>(text: impl Fn(&str) -> Option<&'a str>) -> ObjectKey {
    ObjectKey::new(text("namespace").unwrap_or_default(), text("name").unwrap_or_default())
}

/// What is read of a set, part by part.
struct Parts {
    metadata: Value,
    writers: Arc<[Arc<str>]>,
    /// Whether or not its template stands there, too.
    spec: Value,
    template: Template,
    tree: Arc<Value>,
    status: Value,
    /// What of it is not read.
    problems: Vec<FieldProblem>,
}

impl Parts {
    fn into_record(mut self, kind: SetKind, interner: &mut Interner) -> Option<SetRecord> {
        let meta = read_meta(&self.metadata, interner)?;
        let mut taken = |field: &str| self.metadata.get_mut(field).map_or(Value::Null, Value::take);
        let (generation, annotations) = (taken("generation"), taken("annotations"));
        let annotations = if annotations.is_null() {
            Value::Object(Map::new())
        } else {
            annotations
        };
        let status = self.status.take();
        let writers = self.writers.clone();
        let reader = Reader::new(kind, &self, &annotations);
        let spec = match kind {
            SetKind::Clone => reader.clone_set(),
            SetKind::Native | SetKind::Advanced => reader.spec(),
        };
        Some(SetRecord {
            meta,
            generation: generation.as_i64().unwrap_or(0),
            kind,
            spec: Arc::new(spec),
            status: Arc::new(if status.is_object() {
                status
            } else {
                Value::Object(Map::new())
            }),
            annotations: Packed::new(&annotations),
            status_writers: writers,
        })
    }
}

/// Reads one spec, collecting problems on the way.
struct Reader<'a> {
    kind: SetKind,
    parts: &'a Parts,
    annotations: &'a Value,
    problems: Vec<FieldProblem>,
}

impl<'a> Reader<'a> {
    fn new(kind: SetKind, parts: &'a Parts, annotations: &'a Value) -> Self {
        Reader {
            kind,
            parts,
            annotations,
            problems: parts.problems.clone(),
        }
    }

    fn spec(mut self) -> SetSpec {
        self.check_template();
        let switches = self.switches();
        let update = self.update_kind();
        let (replicas, start, reserved) = self.ordinals();
        SetSpec {
            replicas,
            start,
            reserved,
            selector: self.selector(),
            service_name: self
                .at("/serviceName")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .into(),
            pod_management: self.pod_management(),
            // Recreate by annotation stands on a rolling update, whose `paused` holds it up as well.
            rolling: (update != UpdateKind::OnDelete).then(|| self.rolling()).flatten(),
            update,
            min_ready: self.min_ready(),
            history_limit: self.history_limit(),
            retention: self.retention(),
            scale_max_unavailable: self.budget(
                "spec.scaleStrategy.maxUnavailable",
                "/scaleStrategy/maxUnavailable",
                Area::Nothing,
            ),
            expand_claims: self.at("/volumeClaimUpdateStrategy/type").and_then(Value::as_str)
                == Some("OnPodRollingUpdate"),
            claim_templates: self.claim_templates(),
            lifecycle: self.lifecycle(),
            special_pods: self.special_pods(),
            clones: None,
            pre_download: self.pre_download(),
            template_digest: self.parts.template.digest(),
            template_digest_without_resources: self.parts.template.digest_without_resources(),
            template: self.parts.template.clone(),
            switches,
            problems: self.problems,
        }
    }

    /// Whether a part was left out since it is too large. That is told already, and what it says nobody knows.
    fn is_left_out(&self, path: &str) -> bool {
        let mut left_out = self.parts.problems.iter().map(|p| &*p.path);
        left_out.any(|left| left == path || left == "spec")
    }

    fn check_template(&mut self) {
        let template = &self.parts.tree;
        if !self.is_left_out(TEMPLATE) && !template.get("spec").is_some_and(Value::is_object) {
            self.problem(TEMPLATE, template, "must be a pod template", Area::Everything);
        }
    }

    /// The value at a JSON pointer below `spec`; null counts as absent.
    fn at(&self, pointer: &str) -> Option<&'a Value> {
        self.parts.spec.pointer(pointer).filter(|v| !v.is_null())
    }

    fn annotation(&self, key: &str) -> Option<&'a str> {
        self.annotations.get(key).and_then(Value::as_str)
    }

    fn problem(&mut self, path: impl Into<String>, found: &Value, rule: &'static str, stops: Area) {
        let mut quote: String = found.to_string().chars().take(LONGEST_QUOTE + 1).collect();
        if quote.chars().count() > LONGEST_QUOTE {
            quote.pop();
            quote.push('…');
        }
        self.problems.push(FieldProblem {
            path: path.into(),
            found: quote,
            rule,
            stops,
        });
    }

    /// How many pods are wanted, from which ordinal on, and without which. That there are not as many ordinals is told.
    fn ordinals(&mut self) -> (i32, i64, IntervalSet) {
        let replicas = self.replicas();
        let start = i64::from(self.count("spec.ordinals.start", "/ordinals/start", 0, Area::Scale));
        let reserved = self.reserved();
        if Ordinals::new(start, replicas, &reserved).count() < i64::from(replicas) {
            let rule = "must leave ordinals for all replicas, of which the highest is 2147483647";
            self.problem("spec.ordinals.start", &Value::from(start), rule, Area::Nothing);
        }
        (replicas, start, reserved)
    }

    /// How many pods are wanted. More than a set may have counts as that, and is told.
    fn replicas(&mut self) -> i32 {
        let wanted = self.count("spec.replicas", "/replicas", 1, Area::Scale);
        if wanted > MOST_PODS {
            let rule = "must be at most 1000000, and counts as that";
            self.problem("spec.replicas", &Value::from(wanted), rule, Area::Nothing);
        }
        wanted.min(MOST_PODS)
    }

    /// A number that is not negative.
    fn count(&mut self, path: &str, pointer: &str, default: i32, stops: Area) -> i32 {
        let Some(value) = self.at(pointer) else { return default };
        match value.as_i64().and_then(|n| i32::try_from(n).ok()).filter(|n| *n >= 0) {
            Some(n) => n,
            None => {
                self.problem(path, value, "must be a number, 0 or more", stops);
                default
            }
        }
    }

    /// A count or percentage of at least 1; one that rounds to nothing counts as 1 when it is used.
    fn budget(&mut self, path: &str, pointer: &str, stops: Area) -> Option<IntOrPercent> {
        let value = self.at(pointer)?;
        let parsed = IntOrPercent::from_json(value).filter(|b| match b {
            IntOrPercent::Int(n) => *n >= 1,
            IntOrPercent::Percent(p) => *p >= 0,
        });
        if parsed.is_none() {
            self.problem(path, value, "must be a positive number or a percentage", stops);
        }
        parsed
    }

    fn reserved(&mut self) -> IntervalSet {
        let Some(value) = self.at("/reserveOrdinals") else {
            return IntervalSet::default();
        };
        let Some(entries) = value.as_array() else {
            self.problem("spec.reserveOrdinals", value, "must be a list", Area::ScaleDown);
            return IntervalSet::default();
        };
        let mut intervals = Vec::with_capacity(entries.len());
        for (index, entry) in entries.iter().enumerate() {
            match parse_reserved(entry) {
                Some(interval) => intervals.push(interval),
                None => self.problem(
                    format!("spec.reserveOrdinals[{index}]"),
                    entry,
                    "must be a number, 0 or more, or a range \"low-high\" of at most 1000000 ordinals",
                    Area::ScaleDown,
                ),
            }
        }
        IntervalSet::new(intervals)
    }

    fn selector(&mut self) -> Selector {
        let value = self.at("/selector").unwrap_or(&Value::Null);
        match Selector::from_json(value).filter(|s| !s.is_empty()) {
            Some(selector) => {
                let labels = self.parts.tree.pointer("/metadata/labels");
                let label = |key: &str| labels.and_then(|l| l.get(key)).and_then(Value::as_str);
                let rule = if self.is_left_out(TEMPLATE) {
                    None
                } else if !selector.matches(label) {
                    Some("must match spec.template.metadata.labels")
                } else if !selector.matches(|key| written(self.kind, key).or_else(|| label(key))) {
                    Some(
                        "must not name labels that are written on each pod: the set would not know the pods that it makes",
                    )
                } else {
                    None
                };
                if let Some(rule) = rule {
                    self.problem("spec.selector", value, rule, Area::Everything);
                }
                selector
            }
            None if self.is_left_out("spec.selector") => Selector::default(),
            None => {
                self.problem(
                    "spec.selector",
                    value,
                    "must be a label selector that is not empty",
                    Area::Everything,
                );
                Selector::default()
            }
        }
    }

    fn pod_management(&mut self) -> PodManagement {
        match self.at("/podManagementPolicy") {
            None => PodManagement::OrderedReady,
            Some(value) => match value.as_str() {
                Some("Parallel") => PodManagement::Parallel,
                Some("OrderedReady" | "") => PodManagement::OrderedReady,
                _ => {
                    // OrderedReady is the careful reading of a word that we do not know.
                    self.problem(
                        "spec.podManagementPolicy",
                        value,
                        "must be OrderedReady or Parallel",
                        Area::Nothing,
                    );
                    PodManagement::OrderedReady
                }
            },
        }
    }

    fn rolling(&mut self) -> Option<RollingUpdate> {
        let block = self.at("/updateStrategy/rollingUpdate");
        if block.is_none() && self.kind == SetKind::Native {
            return None;
        }
        let advanced = self.kind == SetKind::Advanced;
        let named = self.budget(
            "spec.updateStrategy.rollingUpdate.maxUnavailable",
            "/updateStrategy/rollingUpdate/maxUnavailable",
            Area::Update,
        );
        Some(RollingUpdate {
            partition: self.count(PARTITION, "/updateStrategy/rollingUpdate/partition", 0, Area::Update),
            max_unavailable: named.or(advanced.then_some(IntOrPercent::Int(1))),
            paused: self
                .at("/updateStrategy/rollingUpdate/paused")
                .and_then(Value::as_bool)
                .unwrap_or(false),
            unordered: self.at("/updateStrategy/rollingUpdate/unorderedUpdate").map(|_| {
                let at = "updateStrategy.rollingUpdate.unorderedUpdate.priorityStrategy";
                self.priority(&format!("spec.{at}"), &format!("/{}", at.replace('.', "/")))
            }),
            pod_update_policy: self.pod_update_policy(),
            in_place_grace: self.in_place_grace(),
        })
    }

    fn priority(&mut self, path: &str, pointer: &str) -> Option<PriorityStrategy> {
        let strategy = self.at(pointer)?;
        let list = |field: &str| strategy.get(field).and_then(Value::as_array).filter(|l| !l.is_empty());
        let parsed = match (list("orderPriority"), list("weightPriority")) {
            (None, None) => return None,
            (Some(keys), None) => {
                let key = |t: &Value| {
                    t.get("orderedKey")?
                        .as_str()
                        .filter(|k| !k.is_empty())
                        .map(|k| PriorityTerm::Key(k.to_owned()))
                };
                keys.iter()
                    .map(key)
                    .collect::<Option<Vec<_>>>()
                    .map(PriorityStrategy::Order)
            }
            (None, Some(weights)) => weights
                .iter()
                .map(weight_term)
                .collect::<Option<Vec<_>>>()
                .map(PriorityStrategy::Weight),
            (Some(_), Some(_)) => None,
        };
        if parsed.is_none() {
            self.problem(
                path,
                strategy,
                "must be orderPriority or weightPriority, with keys, or weights 0..100 and selectors",
                Area::Nothing,
            );
        }
        parsed
    }

    fn min_ready(&mut self) -> Duration {
        let seconds = match self.kind {
            SetKind::Native | SetKind::Clone => self.count("spec.minReadySeconds", "/minReadySeconds", 0, Area::Update),
            SetKind::Advanced => self.count(
                "spec.updateStrategy.rollingUpdate.minReadySeconds",
                "/updateStrategy/rollingUpdate/minReadySeconds",
                0,
                Area::Update,
            ),
        };
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }

    fn history_limit(&mut self) -> Option<usize> {
        match self.at("/revisionHistoryLimit") {
            None => Some(DEFAULT_HISTORY_LIMIT),
            Some(value) => match value.as_i64() {
                Some(n) if n >= 0 => usize::try_from(n).ok(),
                _ => {
                    self.problem(
                        "spec.revisionHistoryLimit",
                        value,
                        "must be a number, 0 or more; all revisions are kept",
                        Area::Nothing,
                    );
                    None
                }
            },
        }
    }

    fn retention(&mut self) -> Retention {
        let mut policy = |field: &str| match self.at(&format!("/persistentVolumeClaimRetentionPolicy/{field}")) {
            None => false,
            Some(value) => match value.as_str() {
                Some("Delete") => true,
                Some("Retain" | "") => false,
                _ => {
                    let path = format!("spec.persistentVolumeClaimRetentionPolicy.{field}");
                    self.problem(
                        path,
                        value,
                        "must be Retain or Delete; claims are retained",
                        Area::Nothing,
                    );
                    false
                }
            },
        };
        Retention {
            delete_with_set: policy("whenDeleted"),
            delete_with_pod: policy("whenScaled"),
        }
    }

    fn claim_templates(&mut self) -> Vec<ClaimTemplate> {
        let templates = self
            .at("/volumeClaimTemplates")
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice);
        let mut read: Vec<ClaimTemplate> = Vec::with_capacity(templates.len());
        for (index, template) in templates.iter().enumerate() {
            match ClaimTemplate::from_json(template) {
                Some(claim) if read.iter().all(|c| c.name != claim.name) => read.push(claim),
                _ => self.problem(
                    format!("spec.volumeClaimTemplates[{index}]"),
                    template.pointer("/metadata/name").unwrap_or(&Value::Null),
                    "must have a metadata.name that no other claim template has",
                    Area::Everything,
                ),
            }
        }
        read
    }

    /// A selector that cannot be read matches nothing (the pod is then an ordinary one).
    fn special_pods(&mut self) -> Vec<Selector> {
        let list = self
            .at("/specialPodsSelectors")
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice);
        let mut selectors = Vec::with_capacity(list.len());
        for (index, value) in list.iter().enumerate() {
            match Selector::from_json(value).filter(|s| !s.is_empty()) {
                Some(selector) => selectors.push(selector),
                None => self.problem(
                    format!("spec.specialPodsSelectors[{index}]"),
                    value,
                    "must be a label selector that is not empty",
                    Area::Nothing,
                ),
            }
        }
        selectors
    }

    fn switches(&mut self) -> Switches {
        let unblock = self.word(names::UNBLOCK, "broken-first", "must be broken-first");
        let after = self
            .seconds(names::UNBLOCK_AFTER_SECONDS)
            .unwrap_or(DEFAULT_UNBLOCK_AFTER);
        Switches {
            unblock_after: unblock.then_some(after),
            ordered_max_unavailable: self.annotated_budget(),
            paused_keeps_revision: self.word(names::PAUSED_KEEPS_REVISION, "true", "must be true"),
            scale_down_ignores_unhealthy: self.word(names::SCALE_DOWN, "ignore-unhealthy", "must be ignore-unhealthy"),
            propagate_claim_labels: self.word(names::CLAIM_LABELS, "propagate", "must be propagate"),
            in_place_deadline: self.in_place_deadline(),
            deadline_recreates: self.deadline_recreates(),
            keep_ready: self.keep_ready(),
            resize_wait: self.resize_wait(),
            idle: self.idle(),
        }
    }

    /// A switch that holds seconds.
    fn seconds(&mut self, key: &'static str) -> Option<Duration> {
        let text = self.annotation(key)?;
        let seconds = text.parse::<u64>();
        if seconds.is_err() {
            self.switch_problem(key, text, "must be a number, 0 or more");
        }
        seconds.ok().map(Duration::from_secs)
    }

    /// Whether a switch holds the one word it may hold.
    fn word(&mut self, key: &'static str, word: &str, rule: &'static str) -> bool {
        match self.annotation(key) {
            None => false,
            Some(value) if value == word => true,
            Some(value) => {
                self.switch_problem(key, value, rule);
                false
            }
        }
    }

    fn annotated_budget(&mut self) -> Option<IntOrPercent> {
        let text = self.annotation(names::ORDERED_MAX_UNAVAILABLE)?;
        let value = text.parse::<i32>().map_or_else(|_| Value::from(text), Value::from);
        let budget = IntOrPercent::from_json(&value)
            .filter(|b| matches!(b, IntOrPercent::Int(1..) | IntOrPercent::Percent(0..)));
        if budget.is_none() {
            self.switch_problem(
                names::ORDERED_MAX_UNAVAILABLE,
                text,
                "must be a positive number or a percentage",
            );
        }
        budget
    }

    fn switch_problem(&mut self, key: &str, value: &str, rule: &'static str) {
        self.problem(
            format!("metadata.annotations[{key}]"),
            &Value::from(value),
            rule,
            Area::Nothing,
        );
    }
}

/// What a label holds that is written on each new pod: the state of one that serves, and else what nobody knows before. A StatefulSet of one
/// pod may know it by its name.
fn written(kind: SetKind, key: &str) -> Option<&'static str> {
    const UNKNOWN: Option<&str> = Some("\0");
    match (kind, key) {
        (_, names::REVISION_LABEL | names::MADE_AS_LABEL)
        | (SetKind::Clone, names::INSTANCE_ID_LABEL | names::TEMPLATE_HASH_LABEL) => UNKNOWN,
        (SetKind::Clone, names::LIFECYCLE_STATE_LABEL) => Some("Normal"),
        _ => None,
    }
}

fn weight_term(term: &Value) -> Option<PriorityTerm> {
    let weight = term.get("weight")?.as_i64().filter(|w| (0..=100).contains(w))?;
    let selector = Selector::from_json(term.get("matchSelector")?).filter(|s| !s.is_empty())?;
    Some(PriorityTerm::Match(weight, selector))
}

#[cfg(test)]
mod tests;
