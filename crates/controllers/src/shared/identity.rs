//! Names of pods that carry an ordinal (STS-1.3), or an id (CS-15.1).

use flotilla_model::Uid;

/// What a pod's name says to a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// `<set>-<ordinal>`, written canonically.
    Member(i64),
    /// The set's prefix and digits that are no usable ordinal (too large): counted, never acted upon.
    Unusable,
    /// Not a name of this set; or one with leading zeros, which would usurp the slot of the canonical name (STS-1.3.4).
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

/// How many letters tell the pods of a CloneSet apart.
pub const ID_LENGTH: usize = 5;
/// Letters and digits that make no words and are not mistaken for one another.
const ID_LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The `n`th of the ids that a pass may give to new pods (CS-15.1): the same for the same set and number of the pass.
pub fn instance_id(owner: &Uid, entropy: u64, n: u64) -> String {
    let seed = owner.to_string().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    // The finaliser of SplitMix64, which turns neighbours into strangers.
    let mut bits = seed ^ entropy.wrapping_add(n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    let letter = |bits: &mut u64| {
        let letter = ID_LETTERS[(*bits % 27) as usize];
        *bits /= 27;
        char::from(letter)
    };
    (0..ID_LENGTH).map(|_| letter(&mut bits)).collect()
}

/// The number at the end of a text, 0 if there is none (STS-3.2, orderPriority).
pub fn trailing_number(text: &str) -> i64 {
    let digits = text.len() - text.bytes().rev().take_while(u8::is_ascii_digit).count();
    text[digits..].parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sts_1_3_4_canonical_names_only() {
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
