//! Pod templates as JSON: the bytes that Go would write, the revision hash, and a normal form in which templates that make the
//! same pods are equal.
//!
//! Templates are never read into typed structures and written back: that would drop every field newer than our types. The
//! normal form therefore works on JSON and removes what Kubernetes would fill in or ignore (STS-1.1.6); fields it has never
//! heard of stay and count.

mod amounts;
mod encoded;
pub mod in_place;
mod kept;
mod normal;
mod quantity;

pub use amounts::{Amounts, amount, amounts_of_container, amounts_of_pod};
pub use encoded::encoded;
pub(crate) use kept::Remembered;
pub use kept::Template;
pub use normal::{normal_form, without_resources};
pub use quantity::{canonical_quantity, parse_bytes, parse_millis, quantity_in_billionths};

use crate::packed::text_of;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::fmt;

/// 128 bits of SHA-256, over a canonical JSON text unless something else is said.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 16]);

impl Digest {
    /// Of a JSON value, in canonical form.
    pub fn of(value: &Value) -> Self {
        Digest::of_bytes(canonical(value).as_bytes())
    }

    /// Of bytes as they are.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let full = Sha256::digest(bytes);
        let mut half = [0; 16];
        half.copy_from_slice(&full[..16]);
        Digest(half)
    }
}

impl fmt::LowerHex for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(4).try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// The text that Go's encoder gives for a decoded document: keys sorted, no white space, `<`, `>`, `&`, U+2028 and U+2029
/// escaped (STS-1.1.2). `serde_json` sorts keys already, as its maps are ordered.
pub fn canonical(value: &Value) -> String {
    let plain = text_of(value);
    // U+2028 and U+2029 begin with the byte 0xe2.
    if !plain.bytes().any(|byte| matches!(byte, b'<' | b'>' | b'&' | 0xe2)) {
        return plain;
    }
    let mut escaped = String::with_capacity(plain.len() + 16);
    for c in plain.chars() {
        // Outside of strings none of these occurs in JSON, so replacing everywhere is right.
        match c {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// The `data` of a revision for this template: a strategic-merge patch that replaces the whole template (STS-1.1.1).
pub fn payload(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(object) = template.as_object_mut() {
        object.insert("$patch".to_owned(), json!("replace"));
    }
    json!({"spec": {"template": template}})
}

/// The hash in a revision's name: FNV-1 over the payload and the collision count, in an alphabet without vowels (STS-1.1.3).
pub fn revision_hash(payload: &str, collision_count: i32) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let probe = collision_count.to_string();
    let sum = payload
        .bytes()
        .chain(probe.bytes())
        .fold(0x811c_9dc5_u32, |hash, byte| {
            hash.wrapping_mul(0x0100_0193) ^ u32::from(byte)
        });
    sum.to_string()
        .bytes()
        .map(|digit| char::from(ALPHABET[usize::from(digit) % ALPHABET.len()]))
        .collect()
}

/// A revision's name: the set's, cut to what leaves room for the hash, a dash, and the hash (STS-1.1.3).
pub fn revision_name(set: &str, hash: &str) -> String {
    const LONGEST_PREFIX: usize = 223;
    let mut end = set.len().min(LONGEST_PREFIX);
    while !set.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}-{hash}", &set[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sts_1_1_3_hash_vector() {
        let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "web:1"}]}});
        let text = canonical(&payload(&template));
        assert_eq!(
            text,
            r#"{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"image":"web:1","name":"main"}]}}}}"#
        );
        assert_eq!(revision_hash(&text, 0), "6d8bbfd8c6");
        assert_ne!(revision_hash(&text, 1), "6d8bbfd8c6");
    }

    #[test]
    fn sts_1_1_2_escapes_as_go_does() {
        let value = json!({"args": ["a<b>&c\u{2028}"]});
        assert_eq!(canonical(&value), r#"{"args":["a\u003cb\u003e\u0026c\u2028"]}"#);
    }

    #[test]
    fn sts_1_1_3_long_names_are_cut() {
        let name = revision_name(&"x".repeat(300), "abc");
        assert_eq!(name.len(), 223 + 4);
    }
}
