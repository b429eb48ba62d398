//! Resource quantities: `1000m` is `1`, `1Gi` is `1073741824`.

/// A quantity as a number of billionths (the smallest unit that Kubernetes keeps), or `None` if it does not parse or overflows.
///
/// Format: <https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>.
pub fn quantity_in_billionths(text: &str) -> Option<i128> {
    let text = text.trim();
    let split = text
        .find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-'))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let scale: i128 = match suffix {
        "n" => 1,
        "u" => 1_000,
        "m" => 1_000_000,
        "" => 1_000_000_000,
        "k" => 10_i128.pow(12),
        "M" => 10_i128.pow(15),
        "G" => 10_i128.pow(18),
        "T" => 10_i128.pow(21),
        "P" => 10_i128.pow(24),
        "E" => 10_i128.pow(27),
        "Ki" => (1 << 10) * 1_000_000_000,
        "Mi" => (1 << 20) * 1_000_000_000,
        "Gi" => (1 << 30) * 1_000_000_000,
        "Ti" => (1 << 40) * 1_000_000_000,
        "Pi" => (1 << 50) * 1_000_000_000,
        "Ei" => (1 << 60) * 1_000_000_000,
        exponent => {
            let power: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            let scale = power.checked_add(9)?;
            if !(0..=30).contains(&scale) {
                return None;
            }
            10_i128.pow(scale.unsigned_abs())
        }
    };
    decimal(number, scale)
}

/// `number` times `scale`, rounded up as Kubernetes rounds what is finer than it can keep.
fn decimal(number: &str, scale: i128) -> Option<i128> {
    let (sign, digits) = match number.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let parse = |s: &str| {
        if s.is_empty() {
            Some(0)
        } else {
            s.parse::<u64>().ok().map(i128::from)
        }
    };
    let fraction = fraction.trim_end_matches('0');
    let divisor = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let whole = parse(whole)?.checked_mul(scale)?;
    let numerator = parse(fraction)?.checked_mul(scale)?;
    let part = numerator / divisor + i128::from(numerator % divisor != 0);
    Some(sign * whole.checked_add(part)?)
}

/// A storage quantity in bytes, rounded up; `None` if it does not parse or is negative.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let nano = quantity_in_billionths(text).filter(|nano| *nano >= 0)?;
    u64::try_from(nano.saturating_add(999_999_999) / 1_000_000_000).ok()
}

/// A quantity of cpu in thousandths of a core, rounded up; `None` if it does not parse or is negative.
pub fn parse_millis(text: &str) -> Option<u64> {
    let nano = quantity_in_billionths(text).filter(|nano| *nano >= 0)?;
    u64::try_from(nano.saturating_add(999_999) / 1_000_000).ok()
}

/// The shortest spelling that Kubernetes has for a quantity, in the same kind of units; `None` if it does not parse.
///
/// Format: <https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>, "canonical form".
pub fn canonical_quantity(text: &str) -> Option<String> {
    const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    const ONE: i128 = 1_000_000_000;
    let nano = quantity_in_billionths(text)?;
    let text = text.trim();
    let exponent = text.contains(['e', 'E']) && !text.ends_with('E') && !text.ends_with("Ei");
    if exponent {
        // Kept: Kubernetes shortens these too, but nobody writes them, and any spelling of them means the same.
        return Some(text.to_owned());
    }
    if text.ends_with('i') && nano.abs() >= 1024 * ONE {
        let mut whole = (nano + nano.signum() * (ONE - 1)) / ONE;
        let mut unit = 0;
        while whole % 1024 == 0 && unit + 1 < BINARY.len() {
            whole /= 1024;
            unit += 1;
        }
        return Some(format!("{whole}{}", BINARY[unit]));
    }
    if nano == 0 {
        return Some("0".to_owned());
    }
    let mut number = nano;
    let mut unit = 0;
    while number % 1000 == 0 && unit + 1 < DECIMAL.len() {
        number /= 1000;
        unit += 1;
    }
    Some(format!("{number}{}", DECIMAL[unit]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_quantity_are_equal() {
        for (a, b) in [
            ("1", "1000m"),
            ("1Gi", "1073741824"),
            ("0.5", "500m"),
            ("1e3", "1k"),
            ("1.5Gi", "1536Mi"),
            ("+2", "2.0"),
        ] {
            assert_eq!(quantity_in_billionths(a), quantity_in_billionths(b), "{a} {b}");
            assert!(quantity_in_billionths(a).is_some());
        }
        for bad in ["", "abc", "1x", "1e99", "1e2147483647", "--1", "1.2.3"] {
            assert_eq!(quantity_in_billionths(bad), None, "{bad}");
        }
        assert_eq!(parse_bytes("10Mi"), Some(10 << 20));
        assert_eq!(parse_bytes("-1"), None);
        for (text, millis) in [("1", 1000), ("250m", 250), ("0.1", 100), ("100u", 1)] {
            assert_eq!(parse_millis(text), Some(millis), "{text}");
        }
        assert_eq!(parse_millis("-1"), None);
    }

    #[test]
    fn sts_1_1_2_quantities_have_one_shortest_spelling() {
        for (written, shortest) in [
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1500m", "1500m"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("512Ki", "512Ki"),
            ("0.5Ki", "512"),
            ("1073741824", "1073741824"),
            ("1000k", "1M"),
            ("100", "100"),
            ("2000", "2k"),
            ("0", "0"),
            ("0Mi", "0"),
            ("-1000m", "-1"),
            ("2000M", "2G"),
            ("1000Ki", "1000Ki"),
            ("1e3", "1e3"),
        ] {
            assert_eq!(canonical_quantity(written).as_deref(), Some(shortest), "{written}");
        }
        assert_eq!(canonical_quantity("much"), None);
    }
}
