//! In which order pods of an unordered update are taken (STS-3.2, priorityStrategy).

use crate::shared::identity::trailing_number;
use flotilla_model::PodRecord;
use flotilla_model::set::{PriorityStrategy, PriorityTerm};
use std::cmp::Reverse;

/// Rank of a pod: lower comes first. Sort stably: equal pods keep the order they had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Position of the first listed key that the pod carries; those without any come last, as the API documents.
    key_position: usize,
    /// The number at the end of that label's value, highest first; or the sum of matching weights, highest first.
    number: Reverse<i64>,
}

/// The rank that a strategy gives a pod.
pub fn rank(strategy: Option<&PriorityStrategy>, pod: &PodRecord) -> Rank {
    match strategy {
        None => Rank {
            key_position: 0,
            number: Reverse(0),
        },
        Some(PriorityStrategy::Order(terms)) => by_key(terms, pod),
        Some(PriorityStrategy::Weight(terms)) => Rank {
            key_position: 0,
            number: Reverse(weight(terms, pod)),
        },
    }
}

fn by_key(terms: &[PriorityTerm], pod: &PodRecord) -> Rank {
    let found = terms.iter().enumerate().find_map(|(position, term)| match term {
        PriorityTerm::Key(key) => pod.label(key).map(|value| (position, trailing_number(value))),
        PriorityTerm::Match(..) => None,
    });
    match found {
        Some((key_position, number)) => Rank {
            key_position,
            number: Reverse(number),
        },
        None => Rank {
            key_position: terms.len(),
            number: Reverse(0),
        },
    }
}

fn weight(terms: &[PriorityTerm], pod: &PodRecord) -> i64 {
    let matching = terms.iter().filter_map(|term| match term {
        PriorityTerm::Match(weight, selector) => selector.matches(|key| pod.label(key)).then_some(*weight),
        PriorityTerm::Key(_) => None,
    });
    matching.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;
    use flotilla_model::Selector;
    use serde_json::json;

    #[test]
    fn sts_3_2_order_priority_by_position_then_number_unkeyed_last() {
        let strategy = PriorityStrategy::Order(vec![PriorityTerm::Key("a".into()), PriorityTerm::Key("b".into())]);
        let pods = [
            pod("web-0").label("b", "x-9"),
            pod("web-1"),
            pod("web-2").label("a", "x-1"),
            pod("web-3").label("a", "x-7").label("b", "1"),
        ];
        let mut sorted: Vec<_> = pods.iter().map(|p| p.clone().build("web")).collect();
        sorted.sort_by_key(|p| rank(Some(&strategy), p));
        assert_eq!(
            sorted.iter().map(flotilla_model::PodRecord::name).collect::<Vec<_>>(),
            ["web-3", "web-2", "web-0", "web-1"]
        );
    }

    #[test]
    fn sts_3_2_weights_add_up() {
        let selector = |key: &str| Selector::from_json(&json!({"matchLabels": {key: "1"}})).unwrap();
        let strategy = PriorityStrategy::Weight(vec![
            PriorityTerm::Match(30, selector("a")),
            PriorityTerm::Match(40, selector("b")),
        ]);
        let both = pod("web-0").label("a", "1").label("b", "1").build("web");
        let one = pod("web-1").label("b", "1").build("web");
        assert!(rank(Some(&strategy), &both) < rank(Some(&strategy), &one));
        assert!(rank(Some(&strategy), &one) < rank(Some(&strategy), &pod("web-2").build("web")));
    }
}
