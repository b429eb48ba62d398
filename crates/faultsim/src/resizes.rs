//! Kubelets that give one container of several no other resources, for good or for the time being, while the others get theirs.
//!
//! By luck of its own: everything else of a seed is the same with and without it.

use crate::asks::comes;
use crate::containers::{self, Edit};
use crate::in_place::{is_in_grace, state};
use crate::judge::view::Sight;
use crate::judge::{Verdict, ordinal_in, place_of, require};
use crate::run::World;
use crate::schedule::{BUSY_MS, Fault, FaultKind, Item, SetPlan, UserAct, Wanted, What};
use fastrand::Rng;
use flotilla_model::records::Resources;
use flotilla_model::template::{parse_bytes, parse_millis};
use flotilla_model::{Command, Decision, ObjectKey, PodRecord, Resource, SetKind, Subresource, WaitCause};
use serde_json::{Value, json};

/// The annotation by which a simulated kubelet is told.
pub(crate) const WISH: &str = "sim.flotilla.rs/resize";

/// When that is, if pods have several containers, and what users ask for then.
pub(crate) fn by_chance(seed: u64, wanted: &Wanted, has_webhook: bool, set: &SetPlan) -> Vec<Item> {
    let mut rng = Rng::with_seed(seed ^ 0x5e51_2e0b);
    let is_plain = set.in_place.is_none() || set.more_containers == 0;
    // Seldom in the mix: half of the pods that could have them would have nothing else. `--fault resizes` brings them each time.
    if !comes(&mut rng, wanted, FaultKind::Resizes, 16) || is_plain {
        return Vec::new();
    }
    // See there.
    let may_be_unlike = has_webhook && set.in_place.is_some_and(|in_place| in_place.only);
    let mut items = Vec::new();
    for _ in 0..rng.usize(1..4) {
        let at_ms = rng.u64(3_000..BUSY_MS);
        let (container, is_infeasible) = (rng.usize(0..=set.more_containers), rng.bool());
        let for_ms = [5_000, 20_000, 40_000][rng.usize(0..3)];
        for _ in 0..rng.usize(1..4) {
            let fault = Fault::Resizes(rng.i64(0..6), container, is_infeasible, for_ms);
            let what = What::Fault(fault);
            items.push(Item { at_ms, what, seed: 0 });
        }
        let mut edits = vec![(container, Edit::Cpu(100 * rng.u32(1..5)))];
        if rng.bool() {
            edits.push(containers::edit_by_chance(&mut rng, set.more_containers));
        }
        let at_ms = at_ms + rng.u64(0..for_ms / 2);
        let what = What::User(UserAct::Containers(edits));
        if !may_be_unlike {
            items.push(Item { at_ms, what, seed: 0 });
        }
    }
    items
}

/// Whether the kubelet has said that a pod will never get the resources for which its update in place has asked (STS-4.6).
pub(crate) fn is_infeasible(pod: &PodRecord) -> bool {
    let pending = pod.detail.as_ref().and_then(|detail| detail.resize_pending.as_ref());
    pending.is_some_and(|pending| pending.is_infeasible) && crate::in_place::has_note(pod)
}

impl World {
    /// The kubelet of a pod gives a container no other resources, or does so again.
    pub(crate) fn refuse_resizes(&mut self, key: &ObjectKey, refusal: Option<(usize, bool)>) {
        let wish = refusal.map(|(container, is_infeasible)| {
            let reason = if is_infeasible { "infeasible" } else { "deferred" };
            format!("{reason} {}", containers::name_of(container))
        });
        self.edit(Resource::Pods, key, &json!({"metadata": {"annotations": {WISH: wish}}}));
    }
}

impl Sight<'_> {
    /// What a kubelet does not give is told for as long as it is so, unless the pod goes for it: for good, it is made again where the policy lets
    /// it be; put off, it is waited for (STS-4.6 and STS-I12). And nothing is asked for twice.
    pub(crate) fn heeds_refused_resizes(&self, decision: &Decision) -> Verdict {
        let set = self.set;
        for scoped in decision.commands() {
            let Command::Patch {
                resource: Resource::Pods,
                key,
                subresource: Some(Subresource::Resize),
                body,
                ..
            } = &scoped.command
            else {
                continue;
            };
            let seen = self.reader.pod(key).and_then(|pod| pod.detail.clone());
            let resources = seen.iter().flat_map(|detail| detail.spec.containers.iter());
            let has: Vec<Resources> = resources.map(|container| container.resources).collect();
            let is_refused = seen.as_ref().is_some_and(|detail| detail.resize_pending.is_some());
            // What was last asked for may be on its way still, whatever is seen.
            let is_other = self.reader.pod(key).is_some_and(|pod| asks_for_other(body, pod));
            require(!is_refused || is_other || asks_for_more(body, &has), "R-37", || {
                format!(
                    "{} is asked again for resources that its node does not give it",
                    key.name
                )
            })?;
        }
        let knows_template = self.reader.revisions_of(set.as_owner()).iter();
        let knows_template = knows_template.into_iter().any(|r| r.digest == set.spec.template_digest);
        if set.is_deleted() || !knows_template || !set.spec.problems.is_empty() {
            return Ok(());
        }
        for pod in self.reader.pods_of(set.as_owner()) {
            // One that is scaled away, or waits for its hook to be deleted, goes anyway.
            let is_wanted = set.kind == SetKind::Clone
                || ordinal_in(pod.name(), set.name())
                    .and_then(|o| place_of(o, set))
                    .is_some();
            let stays = is_wanted && state(pod) != "PreparingDelete";
            let fits = stays && set.spec.selector.matches(|label| pod.label(label));
            // What comes after the grace period of the next update is another matter.
            // So is what the API server has not taken yet: what the kubelet says is about what was asked for before.
            let is_another = is_in_grace(pod) || !has_what_it_asks_for(pod);
            if !fits || !is_infeasible(pod) || is_another || pod.is_terminating() || pod.is_terminal() {
                continue;
            }
            let is_it = |cause: &WaitCause| matches!(cause, WaitCause::ResizeInfeasible { .. });
            let is_told = decision
                .waits
                .iter()
                .any(|w| w.subject == pod.name() && is_it(&w.cause));
            let goes = decision.commands().any(|c| *c.command.key() == pod.meta.key);
            require(is_told || goes, "STS-4.6 infeasible", || {
                format!(
                    "the node of {} cannot give it its resources, and nobody says so",
                    pod.name()
                )
            })?;
        }
        Ok(())
    }
}

/// Whether a JSON patch asks for other resources than the note of the pod says were asked for: that request may not have been answered.
fn asks_for_other(body: &Value, pod: &PodRecord) -> bool {
    let (note, detail) = (crate::in_place::note_of(pod), pod.detail.as_ref());
    let operations = body.as_array().into_iter().flatten();
    let mut asked = operations.filter(|op| op["op"] != "test" && op["op"] != "remove");
    asked.any(|op| {
        let place = op["path"]
            .as_str()
            .and_then(|path| path.strip_prefix("/spec/containers/"));
        let Some((place, field)) = place.and_then(|place| place.split_once("/resources")) else {
            return false;
        };
        let container = place.parse().ok().and_then(|i: usize| detail?.spec.containers.get(i));
        let former = container.and_then(|c| note.pointer(&format!("/askedResources/{}{field}", c.name)));
        former.is_some_and(|former| *former != op["value"])
    })
}

/// Whether the spec of a pod says what its note says was asked for.
fn has_what_it_asks_for(pod: &PodRecord) -> bool {
    let note = crate::in_place::note_of(pod);
    let containers = pod.detail.iter().flat_map(|detail| detail.spec.containers.iter());
    let mut containers = containers.map(|container| (&note["askedResources"][&*container.name], container.resources));
    let is_so = |asked: &Value, has: Option<i64>, parse: fn(&str) -> Option<u64>| {
        let wanted = asked
            .as_str()
            .and_then(parse)
            .and_then(|amount| i64::try_from(amount).ok());
        wanted.is_none() || wanted == has
    };
    containers.all(|(asked, has)| {
        is_so(&asked["requests"]["cpu"], has.cpu_request_millis, parse_millis)
            && is_so(&asked["limits"]["cpu"], has.cpu_limit_millis, parse_millis)
            && is_so(&asked["requests"]["memory"], has.memory_request_bytes, parse_bytes)
            && is_so(&asked["limits"]["memory"], has.memory_limit_bytes, parse_bytes)
    })
}

/// Whether a JSON patch asks for resources that containers have not got in their spec.
fn asks_for_more(body: &Value, has: &[Resources]) -> bool {
    let operations = body.as_array().into_iter().flatten();
    let mut asked = operations.filter(|op| op["op"] != "test" && op["op"] != "remove");
    asked.any(|op| {
        let path = op["path"].as_str().unwrap_or_default();
        let Some(rest) = path.strip_prefix("/spec/containers/") else {
            return false;
        };
        let Some((place, field)) = rest.split_once("/resources") else {
            return false;
        };
        let (Some(has), Some(text)) = (place.parse().ok().and_then(|i: usize| has.get(i)), op["value"].as_str()) else {
            return true;
        };
        let wanted = |amount: Option<u64>| amount.and_then(|amount| i64::try_from(amount).ok());
        match field {
            "/requests/cpu" => has.cpu_request_millis != wanted(parse_millis(text)),
            "/limits/cpu" => has.cpu_limit_millis != wanted(parse_millis(text)),
            "/requests/memory" => has.memory_request_bytes != wanted(parse_bytes(text)),
            "/limits/memory" => has.memory_limit_bytes != wanted(parse_bytes(text)),
            _ => true,
        }
    })
}
