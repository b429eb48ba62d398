//! Which pods are deleted first (CS-18).

use super::plan::Member;
use super::view::View;
use flotilla_api::names;
use flotilla_model::PodRecord;
use flotilla_model::records::Phase;
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

/// The label that names a node.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// How far a pod has come: one that nobody waits for goes first.
pub(super) fn progress(pod: &PodRecord) -> (bool, u8) {
    let phase = match pod.phase {
        Phase::None | Phase::Pending => 0,
        Phase::Unknown => 1,
        Phase::Running | Phase::Succeeded | Phase::Failed => 2,
    };
    (pod.node.is_some(), phase)
}

/// The highest number of restarts among its containers.
pub(super) fn restarts(pod: &PodRecord) -> i32 {
    let statuses = pod.detail.iter().flat_map(|d| &d.statuses).flatten();
    statuses.map(|status| status.restart_count).max().unwrap_or(0)
}

/// What a pod's deletion costs; a number that is not written plainly does not count.
fn cost(pod: &PodRecord) -> i32 {
    let text = pod
        .detail
        .as_ref()
        .and_then(|d| d.annotations.get(names::DELETION_COST));
    let plain = |text: &&str| {
        let digits = text.strip_prefix('-').unwrap_or(text);
        *text == "0" || !digits.starts_with(['0', '+'])
    };
    text.filter(plain).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// What of a pod decides before and after its rank.
type Before = ((bool, u8), bool, bool, i32);
type After<'p> = (
    Reverse<Option<flotilla_model::Timestamp>>,
    Reverse<i32>,
    Reverse<flotilla_model::Timestamp>,
    &'p str,
);

fn before(member: &Member, counts_availability: bool) -> Before {
    let pod = member.pod();
    let is_available = counts_availability && member.is_available();
    (progress(pod), is_available, member.is_ready(), cost(pod))
}

fn after(member: &Member) -> After<'_> {
    let pod = member.pod();
    let since = pod.ready.since.filter(|_| member.is_ready());
    (
        Reverse(since),
        Reverse(restarts(pod)),
        Reverse(pod.meta.created),
        pod.name(),
    )
}

/// A rank, in the order of numbers.
struct Rank(f64);

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Rank {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Rank {}

/// Puts pods into the order in which they are deleted, if not all of them are to be.
pub(super) fn sort(view: &View<'_>, members: &[Member], group: &mut [usize]) {
    if group.len() < 2 {
        return;
    }
    let ranks = ranks(view, members, group);
    let rank = |index: usize| Rank(ranks.get(&index).copied().unwrap_or(0.0));
    group.sort_by_cached_key(|&index| {
        let member = &members[index];
        (before(member, true), Reverse(rank(index)), after(member))
    });
}

/// Higher for pods that stand where many others stand: on one node, or, if the template spreads pods, in one part of the topology.
fn ranks(view: &View<'_>, members: &[Member], group: &[usize]) -> BTreeMap<usize, f64> {
    let on_node = by_place(members, group, |m| m.pod().node.as_deref().map(str::to_owned), |_| 0.0);
    let keys = &view.clones.spread_over;
    if keys.is_empty() {
        return on_node.0;
    }
    let mut total: BTreeMap<usize, f64> = BTreeMap::new();
    for key in keys {
        let place = |m: &Member| {
            let node = view.node_of(m.pod())?;
            node.meta.labels.get(key).map(str::to_owned)
        };
        let within = |index: usize| match key.as_str() {
            HOSTNAME => 0.0,
            _ => on_node.0.get(&index).copied().unwrap_or(0.0),
        };
        let (ranks, places) = by_place(members, group, place, within);
        for (index, rank) in ranks {
            // Such as Kubernetes weighs spread: the more places there are, the more one counts.
            *total.entry(index).or_insert(0.0) += (rank + 1.0) * (places + 2.0).ln();
        }
    }
    total
}

/// Groups pods by where they stand and counts down within each group, in the order in which they would be deleted: the first of n gets
/// n - 1, the last 0. With how many places there are.
fn by_place(
    members: &[Member],
    group: &[usize],
    place: impl Fn(&Member) -> Option<String>,
    within: impl Fn(usize) -> f64,
) -> (BTreeMap<usize, f64>, f64) {
    let mut places: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for &index in group {
        if let Some(place) = place(&members[index]) {
            places.entry(place).or_default().push(index);
        }
    }
    let count = places.values().fold(0.0, |n, _| n + 1.0);
    let mut ranks = BTreeMap::new();
    for mut together in places.into_values() {
        together.sort_by_cached_key(|&index| {
            let member = &members[index];
            (before(member, false), Reverse(Rank(within(index))), after(member))
        });
        let mut rank = 0.0;
        for index in together.into_iter().rev() {
            ranks.insert(index, rank);
            rank += 1.0;
        }
    }
    (ranks, count)
}
