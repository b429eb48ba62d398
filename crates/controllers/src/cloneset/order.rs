//! In which order pods are updated (CS-17).

use super::plan::Member;
use super::rank::{progress, restarts};
use crate::shared::lifecycle::State;
use crate::shared::ordering;
use flotilla_model::set::CloneSpec;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Puts candidates into order; `all` are the pods of the set.
pub(super) fn sort(clones: &CloneSpec, all: &[Member], candidates: &mut Vec<usize>) {
    candidates.sort_by_cached_key(|&index| by_default(&all[index]));
    if clones.priority.is_some() {
        candidates.sort_by_cached_key(|&index| ordering::rank(clones.priority.as_ref(), all[index].pod()));
    }
    for term in terms(clones, all, candidates) {
        let matches: Vec<bool> = candidates.iter().map(|i| carries(&all[*i], term.label)).collect();
        let places = scatter(&matches, term.total, all.len() - term.total);
        *candidates = places.into_iter().map(|place| candidates[place]).collect();
    }
    // What was begun is ended.
    candidates.sort_by_cached_key(|&index| State::of(all[index].pod()) != State::PreparingUpdate);
}

fn carries(member: &Member, (key, value): (&str, &str)) -> bool {
    member.pod().label(key) == Some(value)
}

/// How many pods match a term of the scatter strategy.
struct Term<'a> {
    label: (&'a str, &'a str),
    /// Where it stands in the strategy.
    place: usize,
    /// Of the candidates.
    matching: usize,
    /// Of the pods of the set.
    total: usize,
}

/// The terms that change the order, each once, those that match more candidates first. Users may list any number of them, most of which match
/// nobody: labels of pods are looked up among the terms, and not the other way round.
fn terms<'a>(clones: &'a CloneSpec, all: &[Member], candidates: &[usize]) -> Vec<Term<'a>> {
    let mut counts: BTreeMap<(&str, &str), Term<'a>> = BTreeMap::new();
    for (place, (key, value)) in clones.scatter.iter().enumerate() {
        let label = (key.as_str(), value.as_str());
        counts.entry(label).or_insert(Term {
            label,
            place,
            matching: 0,
            total: 0,
        });
    }
    if counts.is_empty() {
        return Vec::new();
    }
    let mut count = |index: usize, add: fn(&mut Term<'a>)| {
        for label in all[index].pod().meta.labels.iter() {
            counts.get_mut(&label).into_iter().for_each(add);
        }
    };
    for index in 0..all.len() {
        count(index, |term| term.total += 1);
    }
    for &index in candidates {
        count(index, |term| term.matching += 1);
    }
    let is_mixed = |term: &Term<'_>| term.matching >= 2 && candidates.len() - term.matching >= 2;
    let mut terms: Vec<Term<'a>> = counts.into_values().filter(is_mixed).collect();
    terms.sort_by_key(|term| (Reverse(term.matching), term.place));
    terms
}

/// Unscheduled, then pending, then not ready pods; of ready ones those that became so most recently.
fn by_default(member: &Member) -> impl Ord + '_ {
    let pod = member.pod();
    let is_ready = member.is_ready();
    let since = pod.ready.since.filter(|_| is_ready);
    (
        progress(pod),
        is_ready,
        Reverse(since),
        Reverse(restarts(pod)),
        Reverse(pod.meta.created),
        pod.name(),
    )
}

/// How matching and other pods take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turns {
    groups: usize,
    matching: usize,
    others: usize,
}

impl Turns {
    fn of(matching: usize, others: usize) -> Self {
        let groups = matching.min(others).max(1);
        Turns {
            groups,
            matching: rounded(matching, groups),
            others: rounded(others, groups),
        }
    }
}

/// `a / b`, rounded half up.
fn rounded(a: usize, b: usize) -> usize {
    (2 * a + b) / (2 * b)
}

/// The places of candidates, some of which match a term, in an order in which these are far from one another. The last of them is kept for
/// the very end. `total` and `total_others` count all pods of the set that match and that do not.
fn scatter(matches: &[bool], total: usize, total_others: usize) -> Vec<usize> {
    let all: Vec<usize> = (0..matches.len()).collect();
    let (mut matching, others): (Vec<usize>, Vec<usize>) = all.iter().partition(|place| matches[**place]);
    if matching.len() < 2 || others.len() < 2 {
        return all;
    }
    let last = matching.pop();
    let total = total.saturating_sub(1).max(1);
    let own = Turns::of(matching.len(), others.len());
    // Others are relatively over-represented among the candidates: then the groups are those of the whole set, and what is left of them
    // goes first.
    let is_skewed = total_others * matching.len() < others.len() * total;
    let (turns, ahead) = if is_skewed {
        let whole = Turns::of(total, total_others);
        let groups = (matching.len() / whole.matching.max(1)).min(others.len() / whole.others.max(1));
        (Turns { groups, ..whole }, others.len() - groups * whole.others)
    } else {
        (own, 0)
    };
    let mut order = others[..ahead].to_vec();
    let (mut matching, mut others) = (matching.as_slice(), &others[ahead..]);
    for _ in 0..turns.groups {
        let (head, rest) = matching.split_at(turns.matching.min(matching.len()));
        order.extend(head);
        matching = rest;
        let (head, rest) = others.split_at(turns.others.min(others.len()));
        order.extend(head);
        others = rest;
    }
    order.extend(matching.iter().chain(others).copied().chain(last));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cs_17_3_matching_pods_are_scattered_and_the_last_comes_at_the_very_end() {
        let places = |matching: usize, others: usize, total: (usize, usize)| -> Vec<usize> {
            let matches: Vec<bool> = (0..matching + others).map(|i| i < matching).collect();
            let order = scatter(&matches, total.0, total.1);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..matching + others).collect::<Vec<_>>(), "each once");
            order
                .iter()
                .enumerate()
                .filter(|(_, i)| **i < matching)
                .map(|(place, _)| place + 1)
                .collect()
        };
        assert_eq!(places(3, 7, (3, 7)), [1, 6, 10], "the example of the rule");
        assert_eq!(places(1, 7, (1, 7)), [1], "too few");
        assert_eq!(places(3, 1, (3, 1)), [1, 2, 3], "too few others");
        // Five of ten match; two of these are left among six candidates, so others are over-represented and go ahead.
        assert_eq!(places(2, 4, (5, 5)), [4, 6]);
    }
}
