//! What an input reached: the nearest thing to coverage that needs no instrumented build.
//!
//! A target notes what it was told: refusals, warnings, records, decisions. Numbers and what users wrote do not count, so that what is
//! left is about as many as there are ways through the code.

use serde_json::Value;
use std::fmt::{Debug, Write};

/// Things that one input reached, as hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reached(Vec<u64>);

impl Reached {
    /// The things.
    pub fn things(&self) -> &[u64] {
        &self.0
    }

    /// Notes a text of the program, in which names and numbers may stand.
    pub fn note(&mut self, text: &str) {
        let mut hash = Fnv::default();
        let (mut quoted, mut is_escaped) = (None, false);
        let mut last = ' ';
        for c in text.chars() {
            match quoted {
                Some(_) if is_escaped => is_escaped = false,
                Some(_) if c == '\\' => is_escaped = true,
                Some(end) if c != end => {}
                Some(_) => quoted = None,
                None if c == '"' || c == '`' => quoted = Some(c),
                // A row of digits counts once.
                None if c.is_ascii_digit() => {
                    if !last.is_ascii_digit() {
                        hash.write(b'0');
                    }
                }
                None => c.encode_utf8(&mut [0; 4]).bytes().for_each(|b| hash.write(b)),
            }
            last = c;
        }
        self.0.push(hash.0);
    }

    /// Notes each line of a value as Rust prints it, apart.
    pub fn note_value(&mut self, value: &impl Debug) {
        let mut text = String::new();
        // Writing into a text cannot fail.
        let _ = write!(text, "{value:#?}");
        // Names of objects are printed without quotes.
        let is_name = |line: &&str| line.starts_with("key:") || line.starts_with("uid:");
        for line in text.lines().map(str::trim).filter(|line| !is_name(line)) {
            self.note(line);
        }
    }

    /// Notes which fields one object has and the other has not.
    pub fn note_difference(&mut self, before: &Value, after: &Value) {
        let (Some(before), Some(after)) = (before.as_object(), after.as_object()) else {
            return;
        };
        for (field, value) in before {
            match after.get(field) {
                Some(other) => self.note_difference(value, other),
                None => self.note(&format!("without {field}")),
            }
        }
        for field in after.keys().filter(|field| !before.contains_key(*field)) {
            self.note(&format!("with {field}"));
        }
    }
}

/// FNV-1a.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn write(&mut self, byte: u8) {
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(text: &str) -> Reached {
        let mut reached = Reached::default();
        reached.note(text);
        reached
    }

    #[test]
    fn names_and_numbers_do_not_count() {
        assert_eq!(noted(r#"pod "a\\" after 1 s"#), noted(r#"pod "b" after 7 s"#));
        assert_eq!(noted(r#"pod "web-0" after 10 s"#), noted(r#"pod "a\"b" after 7 s"#));
        assert_ne!(noted("too large"), noted("too small"));
    }
}
