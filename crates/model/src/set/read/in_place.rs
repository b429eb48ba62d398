//! Reading what concerns updates in place and lifecycle hooks.

use super::Reader;
use crate::selector::Selector;
use crate::set::spec::{Area, Hook, Lifecycle, PodUpdatePolicy};
use flotilla_api::{messages, names};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

/// How long a deferred change of resources waits by default before it is reported.
const DEFAULT_RESIZE_WAIT: Duration = Duration::from_secs(300);

/// What is wrong with a key in `labelsHandler`, if anything is: the selector names it, or it is written for pods.
pub fn unfit_for_hooks(selector: &Selector, key: &str) -> Option<&'static str> {
    if selector.mentions(key) {
        return Some(messages::HOOK_SELECTOR);
    }
    let is_reserved = names::POD_LABELS.contains(&key) || key.starts_with(names::DOMAIN);
    is_reserved.then_some(messages::HOOK_RESERVED)
}

impl Reader<'_> {
    pub(super) fn pod_update_policy(&mut self) -> PodUpdatePolicy {
        let Some(value) = self.at("/updateStrategy/rollingUpdate/podUpdatePolicy") else {
            return PodUpdatePolicy::ReCreate;
        };
        match value.as_str() {
            Some("ReCreate" | "") => PodUpdatePolicy::ReCreate,
            Some("InPlaceIfPossible") => PodUpdatePolicy::InPlaceIfPossible,
            Some("InPlaceOnly") => PodUpdatePolicy::InPlaceOnly,
            _ => {
                // A pod that is made again for want of a readable word would be a pod lost for nothing.
                let path = "spec.updateStrategy.rollingUpdate.podUpdatePolicy";
                self.problem(
                    path,
                    value,
                    "must be ReCreate, InPlaceIfPossible or InPlaceOnly",
                    Area::Update,
                );
                PodUpdatePolicy::ReCreate
            }
        }
    }

    pub(super) fn in_place_grace(&mut self) -> Duration {
        let seconds = self.count(
            "spec.updateStrategy.rollingUpdate.inPlaceUpdateStrategy.gracePeriodSeconds",
            "/updateStrategy/rollingUpdate/inPlaceUpdateStrategy/gracePeriodSeconds",
            0,
            Area::Nothing,
        );
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }

    pub(super) fn lifecycle(&mut self) -> Lifecycle {
        if self.kind == crate::set::SetKind::Native {
            return Lifecycle::default();
        }
        Lifecycle {
            pre_delete: self.hook("preDelete"),
            in_place_update: self.hook("inPlaceUpdate"),
            pre_normal: self.hook("preNormal"),
        }
    }

    /// A hook. What of it cannot be read stops updates and scaling down: a pod might be taken away that somebody still holds.
    fn hook(&mut self, name: &str) -> Option<Hook> {
        let value = self.at(&format!("/lifecycle/{name}"))?;
        let path = format!("spec.lifecycle.{name}");
        if !value.is_object() {
            self.problem(path, value, "must be a hook", Area::Scale);
            return None;
        }
        let field = |field: &str| value.get(field).filter(|v| !v.is_null());
        let mut hook = Hook {
            mark_not_ready: field("markPodNotReady").and_then(Value::as_bool).unwrap_or(false),
            ..Hook::default()
        };
        if let Some(labels) = field("labelsHandler") {
            let pair = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
            match labels.as_object().and_then(|map| map.iter().map(pair).collect()) {
                Some(pairs) => hook.labels = self.fit_for_hooks(&path, pairs),
                None => self.problem(
                    format!("{path}.labelsHandler"),
                    labels,
                    "must be labels and their values",
                    Area::Scale,
                ),
            }
        }
        if let Some(finalizers) = field("finalizersHandler") {
            let text = |v: &Value| v.as_str().map(str::to_owned);
            match finalizers.as_array().and_then(|list| list.iter().map(text).collect()) {
                Some(list) => hook.finalizers = list,
                None => self.problem(
                    format!("{path}.finalizersHandler"),
                    finalizers,
                    "must be a list of finalizers",
                    Area::Scale,
                ),
            }
        }
        Some(hook)
    }

    /// Those of a hook's labels that it may have. Of others what admission says is said here, too, where it was not asked: such a
    /// pod would leave its set, or be taken for what it is not.
    fn fit_for_hooks(&mut self, path: &str, labels: Vec<(String, String)>) -> Vec<(String, String)> {
        let selector = self.at("/selector").and_then(Selector::from_json).unwrap_or_default();
        let mut fit = Vec::with_capacity(labels.len());
        for (key, value) in labels {
            match unfit_for_hooks(&selector, &key) {
                None => fit.push((key, value)),
                Some(rule) => self.problem(format!("{path}.labelsHandler"), &Value::from(key), rule, Area::Removal),
            }
        }
        fit
    }

    pub(super) fn in_place_deadline(&mut self) -> Option<Duration> {
        let deadline = self.seconds(names::IN_PLACE_DEADLINE_SECONDS)?;
        if deadline.is_zero() {
            self.switch_problem(names::IN_PLACE_DEADLINE_SECONDS, "0", "must be a number above 0");
            return None;
        }
        Some(deadline)
    }

    pub(super) fn deadline_recreates(&mut self) -> bool {
        match self.annotation(names::IN_PLACE_DEADLINE_ACTION) {
            None | Some("report") => false,
            Some("recreate") => true,
            Some(other) => {
                self.switch_problem(names::IN_PLACE_DEADLINE_ACTION, other, "must be report or recreate");
                false
            }
        }
    }

    pub(super) fn keep_ready(&mut self) -> BTreeSet<String> {
        let Some(text) = self.annotation(names::KEEP_READY_CONTAINERS) else {
            return BTreeSet::new();
        };
        let named = || text.split(',').map(str::trim);
        if !named().all(may_be_a_container) {
            let rule = "must be names of containers, separated by commas";
            self.switch_problem(names::KEEP_READY_CONTAINERS, text, rule);
            return BTreeSet::new();
        }
        named().map(str::to_owned).collect()
    }

    pub(super) fn resize_wait(&mut self) -> Duration {
        self.seconds(names::RESIZE_WAIT_SECONDS).unwrap_or(DEFAULT_RESIZE_WAIT)
    }
}

/// Whether a container may be called so: a DNS label.
fn may_be_a_container(name: &str) -> bool {
    let is_inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_plain = name.bytes().all(|b| is_inner(b) || b == b'-');
    let has_ends = [name.bytes().next(), name.bytes().next_back()]
        .into_iter()
        .all(|b| b.is_some_and(is_inner));
    is_plain && has_ends && name.len() <= 63
}
