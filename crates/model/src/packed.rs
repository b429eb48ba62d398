//! JSON documents that are kept for long and read seldom.
//!
//! A tree of `serde_json` takes some thirteen times the memory of its text, and manifests are texts that repeat themselves. So what a record
//! keeps of a template is its text, deflated; whoever reads it gets a tree, and the trees that were read last are remembered, by each
//! thread for itself, since a pass asks for the same one again and again. Nothing but time depends on what is remembered.

use crate::weight::{DEEPEST, weight};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use serde_json::Value;
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// Shorter texts are kept as they are: deflated they would hardly be shorter, and take as many blocks.
const DEFLATED_FROM: usize = 512;
/// Longer ones are no help to others: deflating looks back no farther.
const HELPFUL_UP_TO: usize = 32 << 10;
/// How much memory the remembered trees of a thread may take, the last few apart.
const REMEMBERED_BYTES: usize = 1 << 20;
/// What a remembered tree takes besides: its entry, and the blocks of what is shared.
const ENTRY_BYTES: usize = 512;
/// As many trees are remembered however large they are: those that one pass reads.
const ALWAYS_REMEMBERED: usize = 3;

/// A JSON document as text. Copies share it.
#[derive(Clone)]
pub struct Packed(Arc<Text>);

enum Text {
    Plain(Box<[u8]>),
    Deflated {
        /// What must be inflated first.
        after: Option<Packed>,
        bytes: Box<[u8]>,
        length: usize,
    },
}

impl Packed {
    /// The same document, to be kept.
    pub fn new(value: &Value) -> Self {
        Packed::of_text(text_of(value).as_bytes(), None)
    }

    /// Of the text of a [`Value`]. What it has in common with a document that is like it, it takes from there.
    pub(crate) fn of_text(text: &[u8], like: Option<&Packed>) -> Self {
        let after = like.filter(|like| like.is_helpful());
        Packed(Arc::new(
            deflated(text, after).unwrap_or_else(|| Text::Plain(text.into())),
        ))
    }

    /// Whether others may be deflated after it: one that is deflated after another itself is not.
    fn is_helpful(&self) -> bool {
        matches!(&*self.0, Text::Deflated { after: None, length, .. } if *length <= HELPFUL_UP_TO)
    }

    /// The document. It was made from one, so there is nothing in it that could not be read.
    pub fn tree(&self) -> Arc<Value> {
        if let Some(tree) = TREES.with_borrow_mut(|trees| trees.find(self)) {
            return tree;
        }
        let text = self.0.text();
        let tree: Arc<Value> = Arc::new(serde_json::from_slice(&text).expect("the text of a value"));
        self.remember(&tree, &text);
        tree
    }

    /// Remembers the tree of this text, which somebody has at hand and will soon ask for.
    pub(crate) fn remember(&self, tree: &Arc<Value>, text: &[u8]) {
        let weight = weight(text, DEEPEST);
        TREES.with_borrow_mut(|trees| trees.add(self.clone(), tree.clone(), weight));
    }

    /// How many bytes it takes, and how many its text has.
    pub fn sizes(&self) -> (usize, usize) {
        match &*self.0 {
            Text::Plain(bytes) => (bytes.len(), bytes.len()),
            Text::Deflated { bytes, length, .. } => (bytes.len(), *length),
        }
    }
}

/// The text of a value, keys sorted.
pub(crate) fn text_of(value: &Value) -> String {
    // Twice as fast as `Display`, and as infallible: a `Value` has no keys but strings.
    serde_json::to_string(value).unwrap_or_else(|_| value.to_string())
}

/// The text deflated, if it is worth it.
fn deflated(text: &[u8], after: Option<&Packed>) -> Option<Text> {
    if text.len() < DEFLATED_FROM {
        return None;
    }
    let mut compress = Compress::new(Compression::fast(), false);
    if let Some(after) = after {
        // The same stream as its own, so that what follows there can refer to it.
        let before = after.0.text();
        let mut own = vec![0; before.len() + FLUSH_BYTES];
        deflate(&mut compress, &before, &mut own)?;
    }
    let mut bytes = vec![0; text.len()];
    let length = deflate(&mut compress, text, &mut bytes)?;
    Some(Text::Deflated {
        after: after.cloned(),
        bytes: bytes[..length].into(),
        length: text.len(),
    })
}

/// What ends a part of a stream takes besides, at most.
const FLUSH_BYTES: usize = 64;

/// How many bytes the next part of a stream takes; `None` if it does not fit. A part ends with whole bytes, and others may follow.
fn deflate(compress: &mut Compress, text: &[u8], bytes: &mut [u8]) -> Option<usize> {
    let (read, written) = (compress.total_in(), compress.total_out());
    compress.compress(text, bytes, FlushCompress::Sync).ok()?;
    let is_whole = usize::try_from(compress.total_in() - read) == Ok(text.len());
    let length = usize::try_from(compress.total_out() - written).ok()?;
    // Where the room is used up, something may not have been written.
    (is_whole && length < bytes.len()).then_some(length)
}

/// The next part of a stream, which has so many bytes.
fn inflate(decompress: &mut Decompress, bytes: &[u8], length: usize) -> Vec<u8> {
    let mut text = vec![0; length];
    let written = decompress.total_out();
    let outcome = decompress.decompress(bytes, &mut text, FlushDecompress::Sync);
    let is_whole = usize::try_from(decompress.total_out() - written) == Ok(length);
    assert!(outcome.is_ok() && is_whole, "what was deflated can be inflated");
    text
}

impl Text {
    fn text(&self) -> Cow<'_, [u8]> {
        match self {
            Text::Plain(bytes) => (&**bytes).into(),
            Text::Deflated { after, bytes, length } => {
                let mut decompress = Decompress::new(false);
                if let Some(Text::Deflated { bytes, length, .. }) = after.as_ref().map(|after| &*after.0) {
                    inflate(&mut decompress, bytes, *length);
                }
                inflate(&mut decompress, bytes, *length).into()
            }
        }
    }
}

impl PartialEq for Text {
    /// What they say, whatever that was deflated after.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Text::Plain(a), Text::Plain(b)) => a == b,
            (Text::Deflated { length: a, .. }, Text::Deflated { length: b, .. }) if a != b => false,
            _ => self.text() == other.text(),
        }
    }
}

impl PartialEq for Packed {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.tree(), f)
    }
}

thread_local! {
    static TREES: RefCell<Trees> = RefCell::default();
}

/// The trees that were asked for last, the latest first.
#[derive(Default)]
struct Trees {
    known: VecDeque<(Packed, Arc<Value>, usize)>,
    weight: usize,
}

impl Trees {
    fn find(&mut self, packed: &Packed) -> Option<Arc<Value>> {
        let place = self.known.iter().position(|(of, ..)| Arc::ptr_eq(&of.0, &packed.0))?;
        let entry = self.known.remove(place)?;
        let tree = entry.1.clone();
        self.known.push_front(entry);
        Some(tree)
    }

    fn add(&mut self, packed: Packed, tree: Arc<Value>, weight: usize) {
        let weight = weight + ENTRY_BYTES;
        self.weight += weight;
        self.known.push_front((packed, tree, weight));
        while self.known.len() > ALWAYS_REMEMBERED && self.weight > REMEMBERED_BYTES {
            if let Some((.., weight)) = self.known.pop_back() {
                self.weight -= weight;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document(name: usize, entries: usize) -> Value {
        let env = |n: usize| json!({"name": format!("VARIABLE_{n}"), "value": format!("value {n} of {name}")});
        json!({"spec": {"number": 0.1, "containers": [{"env": (0..entries).map(env).collect::<Vec<_>>()}]}})
    }

    #[test]
    fn a_document_is_read_as_it_was_kept() {
        for entries in [0, 3, 20, 5000] {
            let value = document(1, entries);
            let packed = Packed::new(&value);
            assert_eq!(*packed.tree(), value, "{entries}");
            let (kept, text) = packed.sizes();
            assert!(entries < 20 || kept * 3 < text, "{kept} of {text}");
            assert_eq!(packed, Packed::new(&value));
            assert_ne!(packed, Packed::new(&document(2, entries + 1)));
        }
    }

    #[test]
    fn what_is_like_another_takes_little_besides() {
        let first = Packed::new(&document(1, 40));
        for (entries, like) in [(41, &first), (400, &first), (39, &Packed::new(&json!("short")))] {
            let value = document(1, entries);
            let text = text_of(&value);
            let packed = Packed::of_text(text.as_bytes(), Some(like));
            assert_eq!(*packed.tree(), value, "{entries}");
            assert_eq!(packed, Packed::new(&value), "whatever it was deflated after");
            let third = Packed::of_text(text_of(&document(1, 42)).as_bytes(), Some(&packed));
            assert_eq!(*third.tree(), document(1, 42));
        }
        let text = text_of(&document(1, 41));
        let (kept, _) = Packed::of_text(text.as_bytes(), Some(&first)).sizes();
        assert!(kept < 150, "{kept} bytes for one entry more");
    }

    #[test]
    fn what_cannot_be_deflated_is_kept_as_it_is() {
        let noise: String = (0..4000_u32)
            .filter_map(|n| char::from_u32(n.wrapping_mul(2_654_435_761) >> 11))
            .collect();
        let value = json!(noise);
        assert_eq!(*Packed::new(&value).tree(), value);
    }

    #[test]
    fn only_so_many_trees_are_remembered_and_the_last_ones_always() {
        let all: Vec<Packed> = (0..100).map(|name| Packed::new(&document(name, 200))).collect();
        let first = all[0].tree();
        assert!(Arc::ptr_eq(&first, &all[0].tree()), "remembered");
        for packed in &all[1..] {
            packed.tree();
        }
        assert!(!Arc::ptr_eq(&first, &all[0].tree()), "forgotten");
        let weight = TREES.with_borrow(|trees| trees.weight);
        assert!(weight <= REMEMBERED_BYTES, "{weight}");
        let large: Vec<Packed> = (0..ALWAYS_REMEMBERED)
            .map(|name| Packed::new(&document(name, 20_000)))
            .collect();
        let trees: Vec<_> = large.iter().map(Packed::tree).collect();
        for (packed, tree) in large.iter().zip(&trees) {
            assert!(Arc::ptr_eq(tree, &packed.tree()));
        }
        all[1].tree();
        let weight = TREES.with_borrow(|trees| trees.known.len());
        assert_eq!(weight, ALWAYS_REMEMBERED, "room is made at once");
    }

    #[test]
    fn small_trees_are_not_remembered_without_end() {
        for _ in 0..2 * REMEMBERED_BYTES / ENTRY_BYTES {
            Packed::new(&json!({})).tree();
        }
        let known = TREES.with_borrow(|trees| trees.known.len());
        assert!(known <= REMEMBERED_BYTES / ENTRY_BYTES, "{known}");
    }
}
