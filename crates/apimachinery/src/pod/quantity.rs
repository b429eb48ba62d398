//! Resources of containers: quantities that can be read, are not negative, and ask for no more than is allowed.

use crate::field::Error;
use serde_json::{Value, json};

const FORM: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

pub(super) fn check(container: &Value, path: &str, errors: &mut Vec<Error>) {
    let resources = &container["resources"];
    for list in ["limits", "requests"] {
        for (name, quantity) in resources[list].as_object().into_iter().flatten() {
            let path = format!("{path}.resources.{list}[{name}]");
            match amount(quantity) {
                None => errors.push(Error::invalid(path, quantity.clone(), FORM)),
                Some(amount) if amount < 0 => {
                    let why = "must be greater than or equal to 0";
                    errors.push(Error::invalid(path, json!(spelled(quantity)), why));
                }
                Some(_) => {}
            }
        }
    }
    for (name, request) in resources["requests"].as_object().into_iter().flatten() {
        let limit = &resources["limits"][name];
        if let (Some(asked), Some(most)) = (amount(request), amount(limit))
            && asked > most
        {
            let why = format!("must be less than or equal to {name} limit of {}", spelled(limit));
            let path = format!("{path}.resources.requests");
            errors.push(Error::invalid(path, json!(spelled(request)), why));
        }
    }
}

/// A quantity may stand as a bare number.
fn spelled(quantity: &Value) -> String {
    quantity.as_str().map_or_else(|| quantity.to_string(), str::to_owned)
}

/// A quantity in thousand-millionths, as far as they can be told apart; `None` if it is none, or beyond what any machine has.
fn amount(quantity: &Value) -> Option<i128> {
    let text = match quantity {
        Value::String(text) => text.as_str().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-')));
    let (number, suffix) = text.split_at(end.unwrap_or(text.len()));
    let (sign, digits) = match number.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.len() + part.len() == 0 || !is_number(whole) || !is_number(part) {
        return None;
    }
    let (factor, divisor) = scale(suffix)?;
    let part: String = part.chars().take(9).collect();
    let nano = |digits: &str| {
        if digits.is_empty() {
            Some(0)
        } else {
            digits.parse::<i128>().ok()
        }
    };
    let places = u32::try_from(part.len()).ok()?;
    let value = nano(whole)?.checked_mul(1_000_000_000)? + nano(&part)? * 10_i128.pow(9 - places);
    Some(sign * value.checked_mul(factor)? / divisor)
}

/// What a suffix multiplies by, and divides by.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    const DECIMAL: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let power = |base: i128, at: usize| u32::try_from(at).ok().and_then(|at| base.checked_pow(at));
    if let Some(at) = DECIMAL.iter().position(|s| *s == suffix) {
        return power(1_000, at).map(|factor| (factor, 1));
    }
    if let Some(at) = BINARY.iter().position(|s| *s == suffix) {
        return power(1_024, at).map(|factor| (factor, 1));
    }
    match suffix {
        "m" => return Some((1, 1_000)),
        "u" => return Some((1, 1_000_000)),
        "n" => return Some((1, 1_000_000_000)),
        _ => {}
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let factor = 10_i128.checked_pow(exponent.unsigned_abs())?;
    Some(if exponent < 0 { (1, factor) } else { (factor, 1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_in_all_their_forms() {
        for (text, expected) in [
            (json!("1"), Some(1_000_000_000)),
            (json!(2), Some(2_000_000_000)),
            (json!(0.5), Some(500_000_000)),
            (json!("100m"), Some(100_000_000)),
            (json!("1.5Ki"), Some(1_536_000_000_000)),
            (json!("1e3"), Some(1_000_000_000_000)),
            (json!("1E"), Some(1_000_000_000_000_000_000_000_000_000)),
            (json!("12E-1"), Some(1_200_000_000)),
            (json!("-1"), Some(-1_000_000_000)),
            (json!("+.5"), Some(500_000_000)),
            (json!("1."), Some(1_000_000_000)),
            (json!("1 Gi"), None),
            (json!("lots"), None),
            (json!("."), None),
            (json!(""), None),
            (json!(true), None),
        ] {
            assert_eq!(amount(&text), expected, "{text}");
        }
    }
}
