//! Names of pods that carry an ordinal (rule 1.3).

/// What a pod's name says to a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// `<set>-<ordinal>`, written canonically.
    Member(i64),
    /// The set's prefix and digits that are no usable ordinal (too large): counted, never acted upon.
    Unusable,
    /// Not a name of this set; or one with leading zeros, which would usurp the slot of the canonical name (rule 1.3.4).
    Stranger,
}

/// Reads a pod's name as one of `set`. The last dash separates.
pub fn membership(set: &str, pod: &str) -> Membership {
    let Some((prefix, digits)) = pod.rsplit_once('-') else {
        return Membership::Stranger;
    };
    if prefix != set || digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Membership::Stranger;
    }
    if digits.len() > 1 && digits.starts_with('0') {
        return Membership::Stranger;
    }
    match digits.parse::<i32>() {
        Ok(ordinal) => Membership::Member(i64::from(ordinal)),
        Err(_) => Membership::Unusable,
    }
}

/// The name of the pod of a slot.
pub fn pod_name(set: &str, ordinal: i64) -> String {
    format!("{set}-{ordinal}")
}

/// The number at the end of a text, 0 if there is none (rule 3.2, orderPriority).
pub fn trailing_number(text: &str) -> i64 {
    let digits = text.len() - text.bytes().rev().take_while(u8::is_ascii_digit).count();
    text[digits..].parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_1_3_3_canonical_names_only() {
        for (pod, expected) in [
            ("web-0", Membership::Member(0)),
            ("web-17", Membership::Member(17)),
            ("web-007", Membership::Stranger),
            ("web-99999999999", Membership::Unusable),
            ("web-", Membership::Stranger),
            ("web-a", Membership::Stranger),
            ("web-1-2", Membership::Stranger),
            ("other-1", Membership::Stranger),
            ("web", Membership::Stranger),
        ] {
            assert_eq!(membership("web", pod), expected, "{pod}");
        }
        assert_eq!(membership("web-1", "web-1-2"), Membership::Member(2));
    }

    #[test]
    fn numbers_at_the_end() {
        for (text, expected) in [("shard-12", 12), ("12", 12), ("x", 0), ("", 0), ("a1b", 0)] {
            assert_eq!(trailing_number(text), expected, "{text}");
        }
    }
}
