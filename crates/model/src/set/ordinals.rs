//! Which ordinals a set wants: from a start, skipping reserved ones, until there are enough (STS-3.4).

use serde_json::Value;

/// Widest range of reserved ordinals that is accepted, in entries.
const WIDEST_RANGE: i64 = 1_000_000;

/// The highest ordinal that is used: the highest that whoever reads the name of a pod takes for one (STS-1.3.4).
const HIGHEST: i64 = i32::MAX as i64;

/// A set of ordinals as sorted, disjoint, inclusive intervals; never expanded, whatever a user writes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct IntervalSet(Vec<(i64, i64)>);

impl IntervalSet {
    /// From inclusive intervals in any order; empty ones are dropped, touching ones merged.
    pub fn new(intervals: impl IntoIterator<Item = (i64, i64)>) -> Self {
        let mut sorted: Vec<_> = intervals.into_iter().filter(|(low, high)| low <= high).collect();
        sorted.sort_unstable();
        let mut merged: Vec<(i64, i64)> = Vec::with_capacity(sorted.len());
        for (low, high) in sorted {
            match merged.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
                _ => merged.push((low, high)),
            }
        }
        IntervalSet(merged)
    }

    /// Whether `ordinal` is a member.
    pub fn contains(&self, ordinal: i64) -> bool {
        self.0
            .binary_search_by(|(low, high)| {
                if *high < ordinal {
                    std::cmp::Ordering::Less
                } else if *low > ordinal {
                    std::cmp::Ordering::Greater
                } else {
                    std::cmp::Ordering::Equal
                }
            })
            .is_ok()
    }

    /// Whether it has no member.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The intervals, ascending.
    pub fn intervals(&self) -> &[(i64, i64)] {
        &self.0
    }
}

impl FromIterator<i64> for IntervalSet {
    fn from_iter<T: IntoIterator<Item = i64>>(ordinals: T) -> Self {
        IntervalSet::new(ordinals.into_iter().map(|o| (o, o)))
    }
}

/// One entry of `reserveOrdinals`: a number, or an inclusive range such as `"3-5"`. `None` if it is neither, runs backwards, is
/// negative, or spans more than a million ordinals.
pub fn parse_reserved(entry: &Value) -> Option<(i64, i64)> {
    match entry {
        Value::Number(n) => n.as_i64().filter(|n| *n >= 0).map(|n| (n, n)),
        Value::String(text) => {
            let number =
                |s: &str| (!s.is_empty() && s.bytes().all(|b| b.is_ascii_digit())).then(|| s.parse::<i64>().ok())?;
            let (low, high) = match text.split_once('-') {
                Some((low, high)) => (number(low)?, number(high)?),
                None => (number(text)?, number(text)?),
            };
            (low <= high && high - low < WIDEST_RANGE).then_some((low, high))
        }
        _ => None,
    }
}

/// The ordinals that a set wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ordinals {
    /// Lowest ordinal that may be used.
    pub start: i64,
    /// First ordinal behind the last wanted one.
    pub end: i64,
    reserved: IntervalSet,
}

impl Ordinals {
    /// Walks upward from `start`, over what is reserved, until `count` ordinals are collected, or there are no more.
    pub fn new(start: i64, count: i32, reserved: &IntervalSet) -> Self {
        let mut left = i64::from(count.max(0));
        let mut next = start;
        for &(low, high) in reserved.intervals() {
            if left == 0 || high < next {
                continue;
            }
            let free = (low - next).max(0);
            if free >= left {
                break;
            }
            left -= free;
            next = high.saturating_add(1);
        }
        let end = next.saturating_add(left).min(HIGHEST + 1).max(start);
        Ordinals {
            start,
            end: if count <= 0 { start } else { end },
            reserved: reserved.clone(),
        }
    }

    /// Whether `ordinal` is wanted.
    pub fn contains(&self, ordinal: i64) -> bool {
        (self.start..self.end).contains(&ordinal) && !self.reserved.contains(ordinal)
    }

    /// How many ordinals are wanted: fewer than were asked for where there are no more.
    pub fn count(&self) -> i64 {
        self.rank(self.end)
    }

    /// How many wanted ordinals are below this one.
    pub fn rank(&self, ordinal: i64) -> i64 {
        let end = ordinal.clamp(self.start, self.end);
        let reserved = self.reserved.intervals().iter().map(|(low, high)| {
            let (low, high) = ((*low).max(self.start), high.saturating_add(1).min(end));
            (high - low).max(0)
        });
        end - self.start - reserved.sum::<i64>()
    }

    /// All wanted ordinals, ascending.
    pub fn iter(&self) -> impl Iterator<Item = i64> + '_ {
        let mut gaps = self.reserved.intervals().iter().copied().peekable();
        let mut next = self.start;
        std::iter::from_fn(move || {
            while let Some(&(low, high)) = gaps.peek() {
                if next < low {
                    break;
                }
                next = next.max(high.saturating_add(1));
                gaps.next();
            }
            (next < self.end).then(|| {
                next += 1;
                next - 1
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn ordinals(start: i64, count: i32, reserved: &[(i64, i64)]) -> Vec<i64> {
        Ordinals::new(start, count, &IntervalSet::new(reserved.iter().copied()))
            .iter()
            .collect()
    }

    #[test]
    fn sts_3_4_examples() {
        assert_eq!(ordinals(2, 4, &[(1, 1), (3, 3)]), [2, 4, 5, 6]);
        assert_eq!(ordinals(0, 3, &[]), [0, 1, 2]);
        assert_eq!(ordinals(0, 3, &[(0, 1)]), [2, 3, 4]);
        assert_eq!(ordinals(0, 2, &[(5, 9)]), [0, 1], "beyond the end: no effect");
        assert_eq!(ordinals(0, 0, &[(0, 3)]), [] as [i64; 0]);
        assert_eq!(ordinals(0, 3, &[(3, 3)]), [0, 1, 2], "the ordinal right behind the end");
    }

    #[test]
    fn sts_1_3_4_no_ordinal_is_wanted_that_no_name_can_tell() {
        let last = i64::from(i32::MAX);
        assert_eq!(ordinals(last - 1, 5, &[]), [last - 1, last]);
        assert_eq!(ordinals(last - 2, 5, &[(last - 1, last - 1)]), [last - 2, last]);
        assert_eq!(ordinals(last, 3, &[(last, i64::MAX)]), [] as [i64; 0]);
        let wanted = Ordinals::new(last - 1, 5, &IntervalSet::default());
        assert_eq!(
            (wanted.count(), wanted.contains(last), wanted.contains(last + 1)),
            (2, true, false)
        );
        assert_eq!(Ordinals::new(0, 1_000_000, &IntervalSet::default()).count(), 1_000_000);
    }

    #[test]
    fn sts_3_4_entries_that_do_not_parse() {
        for bad in [
            json!("5-3"),
            json!("a"),
            json!("1-2-3"),
            json!("-1"),
            json!(-1),
            json!(1.5),
            json!("0-5000000"),
            json!(null),
            json!("1-"),
        ] {
            assert_eq!(parse_reserved(&bad), None, "{bad}");
        }
        assert_eq!(parse_reserved(&json!("3-5")), Some((3, 5)));
        assert_eq!(parse_reserved(&json!(7)), Some((7, 7)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]
        /// STS-I5: as many ordinals as replicas; none reserved; none below the start.
        #[test]
        fn sts_i5_as_many_ordinals_as_replicas(start in 0_i64..50, count in 0_i32..60, raw in prop::collection::vec((0_i64..120, 0_i64..8), 0..8)) {
            let reserved = IntervalSet::new(raw.iter().map(|(low, width)| (*low, low + width)));
            let wanted = Ordinals::new(start, count, &reserved);
            let listed: Vec<i64> = wanted.iter().collect();
            prop_assert_eq!(listed.len(), count as usize);
            prop_assert!(listed.iter().all(|o| *o >= start && !reserved.contains(*o) && wanted.contains(*o)));
            prop_assert!(listed.windows(2).all(|w| w[0] < w[1]));
            prop_assert_eq!((0..400).filter(|o| wanted.contains(*o)).count(), listed.len());
            for (rank, ordinal) in listed.iter().enumerate() {
                prop_assert_eq!(wanted.rank(*ordinal), rank as i64);
            }
        }
    }
}
