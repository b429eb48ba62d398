//! Resources that a kubelet puts off for longer than users want to wait without being told (STS-4.6).
//!
//! By luck of its own: everything else of a seed is the same with and without it.

use crate::asks;
use crate::containers::{self, Edit};
use crate::in_place::{is_in_grace, lacks_resources, note_of};
use crate::judge::view::Sight;
use crate::judge::{Verdict, require};
use crate::schedule::{BUSY_MS, Fault, FaultKind, Item, SetPlan, UserAct, Wanted, What};
use crate::switches::Switch;
use fastrand::Rng;
use flotilla_model::{Decision, PodRecord, SetKind, SetRecord, Timestamp};
use serde_json::Value;
use std::time::Duration;

const RULE: &str = "STS-4.6 deferred resizes";
const TOLD: &str = "InPlaceUpdateStuck";
const REASON: &str = "ResizeDeferred";
/// How long one may be put off if users say nothing.
const PATIENCE: Duration = Duration::from_secs(300);

/// What of a seed sets and users ask for of this, where pods are updated in place, and kubelets that put resources off.
pub(crate) fn by_chance(seed: u64, wanted: &Wanted, has_webhook: bool, set: &mut SetPlan) -> Vec<Item> {
    let mut rng = Rng::with_seed(seed ^ 0x0def_e44a);
    let comes = wanted.faults.contains(&FaultKind::Deferrals);
    // Made anew with webhooks or without, it may be another by what they fill in, and resources are not filled in alike.
    let may_be_unlike = has_webhook && set.in_place.is_some_and(|in_place| in_place.only);
    if !comes || set.kind == SetKind::Native || set.in_place.is_none() || may_be_unlike {
        return Vec::new();
    }
    let mut items = asks::with_switch(&mut rng, Switch::ResizeWait, 4, set);
    for _ in 0..rng.usize(1..4) {
        let at_ms = rng.u64(3_000..BUSY_MS);
        let container = rng.usize(0..=set.more_containers);
        let for_ms = [15_000, 40_000][rng.usize(0..2)];
        let item = |at_ms, what| Item { at_ms, what, seed: 0 };
        for _ in 0..rng.usize(1..4) {
            let fault = Fault::Resizes(rng.i64(0..6), container, false, for_ms);
            items.push(item(at_ms, What::Fault(fault)));
        }
        let edits: containers::Act = vec![(container, Edit::Cpu(100 * rng.u32(1..6)))];
        let asks = What::User(UserAct::Containers(edits));
        items.push(item(at_ms + rng.u64(0..for_ms / 2), asks));
    }
    items
}

/// How long a set lets resources be put off without being told.
fn patience(set: &SetRecord) -> Duration {
    let seconds = Switch::ResizeWait.value(set).and_then(|text| text.parse().ok());
    seconds.map_or(PATIENCE, Duration::from_secs)
}

/// Since when the kubelet of a pod has put off what its update in place has asked for.
fn put_off_since(pod: &PodRecord) -> Option<Timestamp> {
    let detail = pod.detail.as_ref()?;
    let pending = detail
        .resize_pending
        .as_ref()
        .filter(|pending| !pending.is_infeasible)?;
    let is_asked_for = note_of(pod)["updateResources"] == true;
    // What the API server has not taken yet nobody has put off: what the kubelet says is about what was asked for before.
    pending
        .since
        .filter(|_| is_asked_for && !is_in_grace(pod) && !lacks_resources(pod))
}

/// The condition, if it says that something is put off.
pub(crate) fn tells_of_deferral(condition: &Value) -> bool {
    condition["type"] == TOLD && condition["status"] == "True" && condition["reason"] == REASON
}

impl Sight<'_> {
    /// Who has been put off for longer than users want to wait is named by the condition, as far as its manager has watched; and
    /// nobody before.
    pub(crate) fn tells_of_deferrals(&self, decision: &Decision) -> Verdict {
        let set = self.set;
        let own = self.reader.revisions_of(set.as_owner()).iter();
        let mut own = own.filter(|revision| revision.digest == set.spec.template_digest);
        if set.is_deleted() || own.next().is_none() {
            return Ok(());
        }
        let said = decision.status.as_ref().and_then(|s| s.desired.get("conditions"));
        let all = said.or_else(|| set.status.get("conditions")).and_then(Value::as_array);
        let told = all
            .into_iter()
            .flatten()
            .find(|c| c["type"] == TOLD && c["status"] == "True");
        let pods = self.reader.pods_of(set.as_owner()).iter();
        let put_off = pods
            .filter(|pod| self.is_there_to_stay(pod))
            .filter_map(|pod| Some((pod, put_off_since(pod)?)));
        let put_off: Vec<_> = put_off.collect();
        let patience = patience(set);
        let late = |since: Timestamp| self.now.since(since) >= patience;
        for (pod, since) in &put_off {
            let message = told.and_then(|c| c["message"].as_str()).unwrap_or_default();
            let is_named = message.contains(pod.name()) || message.ends_with("and others");
            let is_due = late((*since).max(self.observing_since));
            require(!is_due || is_named, RULE, || {
                format!(
                    "the resources of {} are put off for longer than {patience:?}, and {TOLD} says {message:?}",
                    pod.name()
                )
            })?;
        }
        let is_early = said.is_some() && told.is_some_and(tells_of_deferral);
        let is_any_late = put_off.iter().any(|(_, since)| late(*since));
        require(!is_early || is_any_late, RULE, || {
            format!("{TOLD} says that resources are put off, and none are for as long as {patience:?}")
        })
    }
}
