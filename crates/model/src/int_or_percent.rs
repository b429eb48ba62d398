//! A count or a percentage, as budgets and partitions are written.

use crate::set::MOST_PODS;
use serde_json::Value;
use std::fmt;

/// `5` or `"25%"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntOrPercent {
    /// An absolute number.
    Int(i32),
    /// Hundredths of some total.
    Percent(i32),
}

impl IntOrPercent {
    /// Reads a JSON number, or a string that ends in `%`. A numeric string without `%` is refused: Kubernetes would take it
    /// for a percentage in some places and for an error in others (OpenKruise #2111).
    pub fn from_json(value: &Value) -> Option<Self> {
        match value {
            Value::Number(n) => i32::try_from(n.as_i64()?).ok().map(IntOrPercent::Int),
            Value::String(s) => s.strip_suffix('%')?.parse().ok().map(IntOrPercent::Percent),
            _ => None,
        }
    }

    /// The number that `total` gives, rounded down; never more pods than a set may have.
    pub fn floor_of(self, total: i32) -> i32 {
        match self {
            IntOrPercent::Int(n) => clamp(i64::from(n)),
            IntOrPercent::Percent(p) => clamp(i64::from(p) * i64::from(total) / 100),
        }
    }

    /// The number that `total` gives, rounded up; never more pods than a set may have.
    pub fn ceil_of(self, total: i32) -> i32 {
        match self {
            IntOrPercent::Int(n) => clamp(i64::from(n)),
            IntOrPercent::Percent(p) => clamp((i64::from(p) * i64::from(total) + 99).div_euclid(100)),
        }
    }
}

/// `5` or `"12.5%"`: as [`IntOrPercent`], with decimals (CS-13.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// An absolute number.
    Int(i32),
    /// Millionths of a hundredth of some total, at most 10,000 %.
    Percent(i64),
}

/// One hundredth, in the unit of [`Share::Percent`].
const PERCENT: i64 = 1_000_000;
/// Digits behind the point that count.
const DECIMALS: usize = 6;

impl Share {
    /// Reads a JSON number of at least 0, or a string that ends in `%`.
    pub fn from_json(value: &Value) -> Option<Self> {
        match value {
            Value::Number(n) => i32::try_from(n.as_i64()?).ok().filter(|n| *n >= 0).map(Share::Int),
            Value::String(text) => percent(text.strip_suffix('%')?).map(Share::Percent),
            _ => None,
        }
    }

    /// The number that `total` gives, rounded down; never more pods than a set may have.
    pub fn floor_of(self, total: i32) -> i32 {
        match self {
            Share::Int(n) => clamp(i64::from(n)),
            Share::Percent(p) => clamp(p * i64::from(total) / (100 * PERCENT)),
        }
    }

    /// The number that `total` gives, rounded up; never more pods than a set may have.
    pub fn ceil_of(self, total: i32) -> i32 {
        match self {
            Share::Int(n) => clamp(i64::from(n)),
            Share::Percent(p) => clamp((p * i64::from(total) + 100 * PERCENT - 1).div_euclid(100 * PERCENT)),
        }
    }

    /// Whether it is nothing of any total.
    pub fn is_zero(self) -> bool {
        matches!(self, Share::Int(0) | Share::Percent(0))
    }

    /// How many of `total` a partition keeps: rounded up, but a percentage below 100 leaves at least one to be updated.
    pub fn kept_of(self, total: i32) -> i32 {
        let kept = self.ceil_of(total).clamp(0, total.max(0));
        match self {
            Share::Percent(p) if p < 100 * PERCENT && total > 1 => kept.min(total - 1),
            Share::Int(_) | Share::Percent(_) => kept,
        }
    }
}

/// A decimal number of percents.
fn percent(text: &str) -> Option<i64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(decimals) {
        return None;
    }
    let whole: i64 = whole.parse().ok().filter(|n| *n <= 10_000)?;
    let decimals: i64 = format!("{decimals:0<DECIMALS$}")[..DECIMALS].parse().ok()?;
    Some(whole * PERCENT + decimals)
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Share::Int(n) => write!(f, "{n}"),
            Share::Percent(p) if p % PERCENT == 0 => write!(f, "{}%", p / PERCENT),
            Share::Percent(p) => {
                let decimals = format!("{:06}", p % PERCENT);
                write!(f, "{}.{}%", p / PERCENT, decimals.trim_end_matches('0'))
            }
        }
    }
}

/// More pods than a set may have are as many as it may have, so that sums of such numbers never overflow.
fn clamp(n: i64) -> i32 {
    let most = i64::from(MOST_PODS);
    i32::try_from(n.clamp(-most, most)).unwrap_or_default()
}

impl fmt::Display for IntOrPercent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IntOrPercent::Int(n) => write!(f, "{n}"),
            IntOrPercent::Percent(p) => write!(f, "{p}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cs_13_2_shares_round_and_a_partition_leaves_one() {
        let share = |text: &str| Share::from_json(&json!(text)).expect(text);
        for (text, total, kept) in [
            ("99%", 5, 4),
            ("1%", 5, 1),
            ("100%", 5, 5),
            ("99%", 1, 1),
            ("99.9%", 1000, 999),
            ("33.3%", 3, 1),
            ("33.3%", 10, 4),
            ("0%", 10, 0),
            ("150%", 10, 10),
        ] {
            assert_eq!(share(text).kept_of(total), kept, "{text} of {total}");
        }
        assert_eq!((Share::Int(7).kept_of(5), Share::Int(5).kept_of(5)), (5, 5));
        assert_eq!((share("12.5%").floor_of(10), share("12.5%").ceil_of(10)), (1, 2));
        assert_eq!((share("20%").floor_of(4), share("20%").ceil_of(4)), (0, 1));
        for bad in [
            json!("5"),
            json!("-1%"),
            json!(".5%"),
            json!("5.%"),
            json!("a%"),
            json!(-1),
            json!(1.5),
            json!(null),
        ] {
            assert_eq!(Share::from_json(&bad), None, "{bad}");
        }
        for text in ["12.5%", "100%", "0.000001%"] {
            assert_eq!(share(text).to_string(), text);
        }
    }

    #[test]
    fn sts_3_7_reads_and_rounds() {
        let cases = [
            (json!(3), Some((3, 3))),
            (json!("25%"), Some((2, 3))),
            (json!("0%"), Some((0, 0))),
            (json!("100%"), Some((10, 10))),
            (json!("3"), None),
            (json!("a%"), None),
            (json!(1.5), None),
            (json!(null), None),
        ];
        for (input, expected) in cases {
            let got = IntOrPercent::from_json(&input).map(|v| (v.floor_of(10), v.ceil_of(10)));
            assert_eq!(got, expected, "{input}");
        }
    }
}
