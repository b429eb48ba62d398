//! Reading a CloneSet (CS-3 and CS-5).

use super::Reader;
use crate::int_or_percent::Share;
use crate::set::IntervalSet;
use crate::set::clone::{CloneSpec, CloneSwitches};
use crate::set::spec::{Area, PodManagement, Retention, RollingUpdate, SetSpec, Switches, UpdateKind};
use flotilla_api::names;
use serde_json::Value;
use std::time::Duration;

/// `maxUnavailable` of a set that does not say: 20%.
const DEFAULT_MAX_UNAVAILABLE: Share = Share::Percent(20_000_000);
const PRIORITY: (&str, &str) = (
    "spec.updateStrategy.rollingUpdate.priorityStrategy",
    "/updateStrategy/rollingUpdate/priorityStrategy",
);

/// How many keys of `topologySpreadConstraints` count. Kubernetes knows three well-known ones, and clusters a few of their own.
const MOST_SPREAD_KEYS: usize = 16;

impl Reader<'_> {
    pub(super) fn clone_set(mut self) -> SetSpec {
        self.check_template();
        let update = self.clone_update_kind();
        let rolling = RollingUpdate {
            partition: 0,
            max_unavailable: None,
            paused: self.flag("/updateStrategy/rollingUpdate/paused"),
            unordered: None,
            pod_update_policy: self.pod_update_policy(),
            in_place_grace: self.in_place_grace(),
        };
        SetSpec {
            replicas: self.replicas(),
            start: 0,
            reserved: IntervalSet::default(),
            selector: self.selector(),
            service_name: "".into(),
            pod_management: PodManagement::Parallel,
            update,
            rolling: Some(rolling),
            min_ready: self.min_ready(),
            history_limit: self.history_limit(),
            retention: Retention::default(),
            scale_max_unavailable: None,
            expand_claims: false,
            claim_templates: self.claim_templates(),
            lifecycle: self.lifecycle(),
            special_pods: Vec::new(),
            clones: Some(Box::new(self.clones())),
            pre_download: self.pre_download(),
            template_digest: self.parts.template.digest(),
            template_digest_without_resources: self.parts.template.digest_without_resources(),
            template: self.parts.template.clone(),
            switches: Switches {
                in_place_deadline: self.in_place_deadline(),
                deadline_recreates: self.deadline_recreates(),
                keep_ready: self.keep_ready(),
                resize_wait: self.resize_wait(),
                ..Switches::default()
            },
            problems: self.problems,
        }
    }

    fn clones(&mut self) -> CloneSpec {
        CloneSpec {
            partition: self
                .share("updateStrategy.rollingUpdate.partition", Area::Update)
                .unwrap_or(Share::Int(0)),
            max_unavailable: self
                .share("updateStrategy.rollingUpdate.maxUnavailable", Area::Update)
                .unwrap_or(DEFAULT_MAX_UNAVAILABLE),
            max_surge: self
                .share("updateStrategy.rollingUpdate.maxSurge", Area::Nothing)
                .unwrap_or(Share::Int(0)),
            priority: self.priority(PRIORITY.0, PRIORITY.1),
            scatter: self.scatter(),
            scale_max_unavailable: self.share("scaleStrategy.maxUnavailable", Area::Nothing),
            pods_to_delete: self.pods_to_delete(),
            reuses_claims: self.flag("/scaleStrategy/enablePVCReuse"),
            excludes_preparing_delete: self.flag("/scaleStrategy/excludePreparingDelete"),
            progress_deadline: self.progress_deadline(),
            spread_over: self.spread_over(),
            switches: self.clone_switches(),
        }
    }

    fn flag(&self, pointer: &str) -> bool {
        self.at(pointer).and_then(Value::as_bool).unwrap_or(false)
    }

    /// A number of pods, or a percentage of the replicas.
    fn share(&mut self, field: &str, stops: Area) -> Option<Share> {
        let value = self.at(&format!("/{}", field.replace('.', "/")))?;
        let parsed = Share::from_json(value);
        if parsed.is_none() {
            let path = format!("spec.{field}");
            self.problem(path, value, "must be a number, 0 or more, or a percentage", stops);
        }
        parsed
    }

    fn clone_update_kind(&mut self) -> UpdateKind {
        match self.at("/updateStrategy/type").map(|value| (value, value.as_str())) {
            None | Some((_, Some("RollingUpdate" | ""))) => UpdateKind::RollingUpdate,
            Some((_, Some("OnDelete"))) => UpdateKind::OnDelete,
            Some((value, _)) => {
                let path = "spec.updateStrategy.type";
                self.problem(path, value, "must be RollingUpdate or OnDelete", Area::Update);
                UpdateKind::OnDelete
            }
        }
    }

    fn scatter(&mut self) -> Vec<(String, String)> {
        let list = self
            .at("/updateStrategy/rollingUpdate/scatterStrategy")
            .and_then(Value::as_array);
        let mut terms = Vec::new();
        for (index, value) in list.into_iter().flatten().enumerate() {
            let text = |field: &str| value.get(field).and_then(Value::as_str).map(str::to_owned);
            match text("key").filter(|key| !key.is_empty()) {
                Some(key) => terms.push((key, text("value").unwrap_or_default())),
                None => self.problem(
                    format!("spec.updateStrategy.rollingUpdate.scatterStrategy[{index}]"),
                    value,
                    "must have a key",
                    Area::Nothing,
                ),
            }
        }
        terms
    }

    fn pods_to_delete(&mut self) -> Vec<String> {
        let list = self.at("/scaleStrategy/podsToDelete").and_then(Value::as_array);
        list.into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    }

    /// The largest number means never, as no number does.
    fn progress_deadline(&mut self) -> Option<Duration> {
        let seconds = self.count(
            "spec.progressDeadlineSeconds",
            "/progressDeadlineSeconds",
            i32::MAX,
            Area::Nothing,
        );
        (seconds != i32::MAX).then(|| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
    }

    /// The keys of the template's spread constraints, each once: what they say beside the key decides nothing here. A pass ranks all pods by
    /// each of them, so that further ones do not count, and that is told.
    fn spread_over(&mut self) -> Vec<String> {
        let constraints = self.parts.tree.pointer("/spec/topologySpreadConstraints");
        let constraints = constraints.and_then(Value::as_array).into_iter().flatten();
        let named = constraints.filter_map(|c| c.get("topologyKey")?.as_str());
        let mut keys: Vec<String> = Vec::new();
        let mut is_more = false;
        for key in named.filter(|key| !key.is_empty()) {
            if keys.iter().any(|known| known == key) {
                continue;
            }
            if keys.len() == MOST_SPREAD_KEYS {
                is_more = true;
                break;
            }
            keys.push(key.to_owned());
        }
        if is_more {
            let path = "spec.template.spec.topologySpreadConstraints";
            let rule = "must name at most 16 keys; the first 16 decide which pods go first";
            self.problem(path, &Value::from("more keys"), rule, Area::Nothing);
        }
        keys
    }

    fn clone_switches(&mut self) -> CloneSwitches {
        // Whoever has misspelt it has asked for claims to be kept: nothing is deleted on the strength of what cannot be read.
        let may_ask_to_keep = self
            .annotation(names::KEEP_CLAIMS_ON_RECREATE)
            .is_some_and(|value| value != "false");
        let mut on = |key| self.word(key, "true", "must be true");
        CloneSwitches {
            partition_rollback: on(names::PARTITION_ROLLBACK),
            surge_in_place: on(names::SURGE_IN_PLACE),
            recreate_on_claim_change: on(names::RECREATE_ON_CLAIM_CHANGE),
            keep_claims_on_recreate: on(names::KEEP_CLAIMS_ON_RECREATE) || may_ask_to_keep,
            adopt_orphans: on(names::ADOPT_ORPHANS),
            delete_finished: self.annotation(names::FINISHED_PODS) != Some("keep")
                && self.word(names::FINISHED_PODS, "delete", "must be keep or delete"),
        }
    }
}
