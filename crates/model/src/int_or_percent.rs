//! A count or a percentage, as budgets and partitions are written.

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

    /// The number that `total` gives, rounded down.
    pub fn floor_of(self, total: i32) -> i32 {
        match self {
            IntOrPercent::Int(n) => n,
            IntOrPercent::Percent(p) => clamp(i64::from(p) * i64::from(total) / 100),
        }
    }

    /// The number that `total` gives, rounded up.
    pub fn ceil_of(self, total: i32) -> i32 {
        match self {
            IntOrPercent::Int(n) => n,
            IntOrPercent::Percent(p) => clamp((i64::from(p) * i64::from(total) + 99).div_euclid(100)),
        }
    }
}

fn clamp(n: i64) -> i32 {
    i32::try_from(n).unwrap_or(if n < 0 { i32::MIN } else { i32::MAX })
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
    fn rule_3_7_reads_and_rounds() {
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
