//! Who an object is: its key, its UID, its owner, its labels.

use crate::time::Timestamp;
use smol_str::SmolStr;
use std::fmt;
use std::sync::Arc;

/// Namespace and name: where an object is found. Another incarnation of an object has the same key and another [`Uid`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    /// The object's name.
    pub name: SmolStr,
}

impl ObjectKey {
    /// A key from its two parts.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<SmolStr>) -> Self {
        ObjectKey {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// Another name in the same namespace.
    pub fn sibling(&self, name: impl Into<SmolStr>) -> Self {
        ObjectKey {
            namespace: self.namespace.clone(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{}", self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The UID that the API server gave an object. In practice an RFC 4122 UUID, which fits sixteen bytes; anything else is kept
/// as text, because deletes must send back exactly what was received.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(Repr);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Repr {
    Uuid([u8; 16]),
    Text(Arc<str>),
}

impl Uid {
    /// From its text form.
    pub fn new(text: &str) -> Self {
        match parse_uuid(text) {
            Some(bytes) => Uid(Repr::Uuid(bytes)),
            None => Uid(Repr::Text(text.into())),
        }
    }
}

/// Sixteen bytes if `text` is a UUID in lower case with dashes in the usual places: only then does printing give it back.
fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let bytes = text.as_bytes();
    if bytes.len() != 36 {
        return None;
    }
    let mut out = [0_u8; 16];
    let mut nibble = 0;
    for (i, b) in bytes.iter().enumerate() {
        if matches!(i, 8 | 13 | 18 | 23) {
            if *b != b'-' {
                return None;
            }
            continue;
        }
        let digit = match b {
            b'0'..=b'9' => b - b'0',
            b'a'..=b'f' => b - b'a' + 10,
            _ => return None,
        };
        out[nibble / 2] |= if nibble % 2 == 0 { digit << 4 } else { digit };
        nibble += 1;
    }
    Some(out)
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Text(text) => f.write_str(text),
            Repr::Uuid(bytes) => {
                for (i, b) in bytes.iter().enumerate() {
                    if matches!(i, 4 | 6 | 8 | 10) {
                        f.write_str("-")?;
                    }
                    write!(f, "{b:02x}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        Uid::new(text)
    }
}

/// One entry of `metadata.ownerReferences`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnerRef {
    /// Group and version, as `apps/v1`.
    pub api_version: Arc<str>,
    /// Kind of the owner.
    pub kind: Arc<str>,
    /// Name of the owner, in the namespace of the owned object.
    pub name: Arc<str>,
    /// UID of the owner; the name alone does not identify it.
    pub uid: Uid,
    /// Whether this owner manages the object. At most one does.
    pub controller: bool,
    /// Whether foreground deletion of the owner waits for this object.
    pub block_owner_deletion: bool,
}

/// An object as the references of what it owns name it. UIDs are text that anybody may write anywhere: what lies in another namespace, or
/// names another kind or name, is not its (Kubernetes, "Owners and Dependents").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner<'a> {
    /// Its namespace, which is that of all it owns.
    pub namespace: &'a str,
    /// Its kind, as `CloneSet`.
    pub kind: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Which incarnation of that name.
    pub uid: &'a Uid,
}

/// An immutable, shared, sorted set of labels.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Labels(Option<Arc<LabelList>>);

/// The entries of [`Labels`], sorted by key. A type of its own, so that a handle on it is one word.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct LabelList(Box<[(Arc<str>, Arc<str>)]>);

impl Labels {
    /// From pairs in any order; of a repeated key the last one wins.
    pub fn new(pairs: impl IntoIterator<Item = (Arc<str>, Arc<str>)>) -> Self {
        let mut pairs: Vec<_> = pairs.into_iter().collect();
        if pairs.is_empty() {
            return Labels(None);
        }
        // Stable: of equal keys, the last one stays behind the others.
        pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
        pairs.dedup_by(|later, earlier| {
            let is_repeated = later.0 == earlier.0;
            if is_repeated {
                std::mem::swap(&mut later.1, &mut earlier.1);
            }
            is_repeated
        });
        Labels(Some(Arc::new(LabelList(pairs.into()))))
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        let list = &self.0.as_ref()?.0;
        list.binary_search_by(|(k, _)| (**k).cmp(key)).ok().map(|i| &*list[i].1)
    }

    /// All pairs, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().flat_map(|list| list.0.iter().map(|(k, v)| (&**k, &**v)))
    }

    /// Whether both are the same shared set. Equal sets from one [`crate::Interner`] are.
    pub fn is_same(&self, other: &Labels) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        }
    }

    /// Whether nobody but the holder of this handle shares the set.
    pub(crate) fn is_unshared(&self) -> bool {
        self.0.as_ref().is_none_or(|list| Arc::strong_count(list) == 1)
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Labels {
    fn from_iter<T: IntoIterator<Item = (&'a str, &'a str)>>(pairs: T) -> Self {
        Labels::new(pairs.into_iter().map(|(k, v)| (k.into(), v.into())))
    }
}

/// The part of `metadata` that decisions read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Which incarnation of that name.
    pub uid: Uid,
    /// Version of this copy. Kubernetes documents these as increasing integers that may be compared within one kind.
    pub resource_version: u64,
    /// When the API server stored it first.
    pub created: Timestamp,
    /// When its deletion was asked for, grace period included, if it was.
    pub deleted: Option<Timestamp>,
    /// Labels. For a pod, those that merely repeat its name are kept elsewhere: ask [`crate::PodRecord::label`].
    pub labels: Labels,
    /// All owners, or none; shared between siblings.
    pub owners: Option<Arc<Vec<OwnerRef>>>,
}

impl Meta {
    /// The owner that manages this object.
    pub fn controller(&self) -> Option<&OwnerRef> {
        self.owners().iter().find(|o| o.controller)
    }

    /// All owners.
    pub fn owners(&self) -> &[OwnerRef] {
        self.owners.as_deref().map_or(&[], Vec::as_slice)
    }

    /// This object, which is of kind `kind`, as an owner.
    pub fn as_owner<'a>(&'a self, kind: &'a str) -> Owner<'a> {
        Owner {
            namespace: &self.key.namespace,
            kind,
            name: &self.key.name,
            uid: &self.uid,
        }
    }

    /// Whether the managing owner is the object with this UID, given that it is in the same namespace.
    pub fn is_controlled_by(&self, uid: &Uid) -> bool {
        self.controller().is_some_and(|o| o.uid == *uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uid_prints_what_it_read() {
        for text in [
            "0c9d7f6a-1111-4222-8333-abcdefabcdef",
            "uid-1",
            "0C9D7F6A-1111-4222-8333-ABCDEFABCDEF",
            "",
        ] {
            assert_eq!(Uid::new(text).to_string(), text);
        }
        assert_eq!(std::mem::size_of::<Uid>(), 24);
    }

    #[test]
    fn labels_are_found_by_key() {
        let labels: Labels = [("b", "2"), ("a", "1")].into_iter().collect();
        assert_eq!(labels.get("a"), Some("1"));
        assert_eq!(labels.get("c"), None);
        assert_eq!(labels.iter().collect::<Vec<_>>(), [("a", "1"), ("b", "2")]);
        let labels: Labels = [("b", "2"), ("a", "1"), ("b", "3"), ("a", "0"), ("b", "4")]
            .into_iter()
            .collect();
        assert_eq!(labels.iter().collect::<Vec<_>>(), [("a", "0"), ("b", "4")]);
    }
}
