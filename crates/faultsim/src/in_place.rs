//! Sets whose pods are updated in place, and users who mind their hooks.

use crate::judge::{Verdict, require};
use crate::run::World;
use fastrand::Rng;
use flotilla_engine::wire::Object;
use flotilla_model::{PatchKind, PodRecord, Resource};
use flotilla_sim::server::{Actor, Server};
use serde_json::{Value, json};

const STATE: &str = "lifecycle.apps.kruise.io/state";
const GATE: &str = "InPlaceUpdateReady";
const HOOK_GATE: &str = "KruisePodReady";
/// What users hold a pod by: a label with its value, or a finalizer.
const LABEL: (&str, &str) = ("hook.example.com/serves", "true");
const FINALIZER: &str = "hook.example.com/serves";

/// How pods are updated in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InPlace {
    /// Never by recreation.
    pub only: bool,
    /// Seconds between leaving service and the change.
    pub grace_s: i64,
    /// What holds pods up, if anything.
    pub hook: Option<Hook>,
}

/// What holds a pod up before it is updated or deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Independent draws, not a state.
#[allow(clippy::struct_excessive_bools)]
pub struct Hook {
    /// A finalizer; otherwise a label.
    pub is_finalizer: bool,
    /// Before deletions.
    pub before_delete: bool,
    /// Before updates.
    pub before_update: bool,
    /// The pod leaves service while it is held up.
    pub leaves_service: bool,
}

impl InPlace {
    pub(crate) fn by_chance(rng: &mut Rng) -> Self {
        let hook = Hook {
            is_finalizer: rng.u8(0..3) == 0,
            before_delete: rng.bool(),
            before_update: rng.bool(),
            leaves_service: rng.bool(),
        };
        InPlace {
            only: rng.u8(0..3) == 0,
            grace_s: if rng.u8(0..3) == 0 { 5 } else { 0 },
            hook: (rng.bool() && (hook.before_delete || hook.before_update)).then_some(hook),
        }
    }

    /// What a manifest says of it.
    pub(crate) fn complete(self, set: &mut Value) {
        let rolling = &mut set["spec"]["updateStrategy"]["rollingUpdate"];
        rolling["podUpdatePolicy"] = json!(if self.only { "InPlaceOnly" } else { "InPlaceIfPossible" });
        if self.grace_s > 0 {
            rolling["inPlaceUpdateStrategy"] = json!({"gracePeriodSeconds": self.grace_s});
        }
        let template = &mut set["spec"]["template"];
        template["spec"]["readinessGates"] = json!([{"conditionType": GATE}]);
        template["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
        if let Some(hook) = self.hook {
            template["spec"]["readinessGates"] = json!([{"conditionType": GATE}, {"conditionType": HOOK_GATE}]);
            hook.complete(set);
        }
    }
}

impl Hook {
    fn complete(self, set: &mut Value) {
        let mut handler = json!({"markPodNotReady": self.leaves_service});
        let metadata = &mut set["spec"]["template"]["metadata"];
        if self.is_finalizer {
            handler["finalizersHandler"] = json!([FINALIZER]);
            metadata["finalizers"] = json!([FINALIZER]);
        } else {
            handler["labelsHandler"] = json!({LABEL.0: LABEL.1});
            metadata["labels"][LABEL.0] = json!(LABEL.1);
        }
        for (field, is_set) in [("preDelete", self.before_delete), ("inPlaceUpdate", self.before_update)] {
            if is_set {
                set["spec"]["lifecycle"][field] = handler.clone();
            }
        }
    }

    /// Whether it holds a pod up.
    fn holds(self, pod: &PodRecord) -> bool {
        if self.is_finalizer {
            let detail = pod.detail.as_ref();
            detail.is_some_and(|d| d.finalizers.iter().any(|f| **f == *FINALIZER))
        } else {
            pod.label(LABEL.0) == Some(LABEL.1)
        }
    }

    /// The JSON patch by which a user lets a pod go, or holds it again.
    fn patch(self, pod: &PodRecord, holds: bool) -> Value {
        if !self.is_finalizer {
            let value = holds.then_some(LABEL.1);
            return json!({"metadata": {"labels": {LABEL.0: value}}});
        }
        let known = pod.detail.iter().flat_map(|d| d.finalizers.iter());
        let mut all: Vec<String> = known.map(ToString::to_string).filter(|f| f != FINALIZER).collect();
        if holds {
            all.push(FINALIZER.to_owned());
        }
        json!({"metadata": {"finalizers": all}})
    }
}

/// A pod's place in its lifecycle.
fn state(pod: &PodRecord) -> &str {
    pod.label(STATE).unwrap_or("Normal")
}

impl World {
    /// Users look at pods that are held up: they let go those that are to be changed or deleted, and take back those that are done.
    pub(crate) fn users_mind_hooks(&mut self) {
        let Some(hook) = self.schedule.set.in_place.and_then(|in_place| in_place.hook) else {
            return;
        };
        let all = self.cluster.server.all(Resource::Pods).filter_map(|s| match &s.object {
            Some(Object::Pod(pod)) => Some(pod.clone()),
            _ => None,
        });
        let pods: Vec<_> = all.collect();
        for pod in pods {
            let (holds, wanted) = match state(&pod) {
                _ if pod.is_terminating() => (hook.holds(&pod), false),
                "PreparingUpdate" | "PreparingDelete" => (hook.holds(&pod), false),
                "Updated" | "PreparingNormal" => (hook.holds(&pod), true),
                _ => continue,
            };
            if holds != wanted {
                let patch = hook.patch(&pod, wanted);
                // It was there a moment ago.
                let _ =
                    self.cluster
                        .server
                        .patch(Actor::User, Resource::Pods, &pod.meta.key, (PatchKind::Merge, &patch));
            }
        }
    }

    /// The pods' only container with another image, or other resources, and everything else as it is.
    pub(crate) fn changed_container(&self, change: impl Fn(&mut Value)) -> Value {
        let set = self
            .cluster
            .server
            .get(self.schedule.set.kind.resource(), &Self::set_key());
        let known = set.and_then(|s| s.value().pointer("/spec/template/spec/containers/0").cloned());
        let mut container = known.unwrap_or_else(|| json!({"name": "main", "image": "app:v1"}));
        change(&mut container);
        container
    }
}

/// Whether a patch of a pod changes what its containers are made from, or takes it out of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// An image is another.
    pub(crate) image: bool,
    /// The gate of updates goes down.
    pub(crate) leaves_service: bool,
    /// The revision is another.
    pub(crate) revision: bool,
}

impl Change {
    pub(crate) fn of(before: &PodRecord, after: &PodRecord) -> Self {
        let images = |pod: &PodRecord| -> Vec<String> {
            let containers = pod.detail.iter().flat_map(|d| &d.spec.containers);
            containers.map(|c| c.image.to_string()).collect()
        };
        let is_in_service = |pod: &PodRecord| {
            let gate = pod.detail.as_ref().and_then(|d| d.in_place_ready.as_ref());
            gate.is_some_and(|gate| gate.is_true)
        };
        // Of a pod that is adopted or let go, only one of them says what its containers are.
        let is_known = before.detail.is_some() && after.detail.is_some();
        Change {
            image: is_known && images(before) != images(after),
            leaves_service: is_known && is_in_service(before) && !is_in_service(after),
            revision: before.revision() != after.revision(),
        }
    }
}

/// A pod that is held up is neither deleted nor changed (rules 3.8 and 4.2).
pub(crate) fn unheld(in_place: Option<InPlace>, pod: &PodRecord, is_delete: bool) -> Verdict {
    let Some(hook) = in_place.and_then(|in_place| in_place.hook) else {
        return Ok(());
    };
    let minds = if is_delete {
        hook.before_delete
    } else {
        hook.before_update
    };
    let is_under_way = !is_delete && state(pod) == "Updating";
    let rule = if is_delete { "3.8 hooks" } else { "4.2 hooks" };
    require(!minds || is_under_way || !hook.holds(pod), rule, || {
        let what = if is_delete { "deleted" } else { "updated" };
        format!(
            "{} is {what} while its users hold it, in state {}",
            pod.name(),
            state(pod)
        )
    })
}

/// At the end no pod is left on the way (invariant 9).
pub(crate) fn at_rest(server: &Server) -> Result<(), String> {
    for stored in server.all(Resource::Pods) {
        let Some(Object::Pod(pod)) = &stored.object else {
            continue;
        };
        let Some(detail) = &pod.detail else { continue };
        let name = pod.name();
        if state(pod) != "Normal" {
            return Err(format!("{name} is in state {}", state(pod)));
        }
        if detail.annotations.get("apps.kruise.io/inplace-update-grace").is_some() {
            return Err(format!("{name} has a grace period that never ends"));
        }
        for (gate, condition) in [(GATE, &detail.in_place_ready), (HOOK_GATE, &detail.kruise_ready)] {
            if detail.spec.has_gate(gate) && !condition.as_ref().is_some_and(|c| c.is_true) {
                return Err(format!("{name} is kept out of service by {gate}"));
            }
        }
    }
    Ok(())
}
