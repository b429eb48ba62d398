//! Which of many revisions the label of a pod names, looked up: pods with labels of their own, and revisions that cannot go, are as many as
//! somebody makes of them.

use super::{fits_into_a_label, short};
use flotilla_model::RevisionRecord;
use flotilla_model::template::revision_name;
use std::sync::Arc;

/// The revisions of a set.
pub(crate) type RevisionIndex = Index<Arc<RevisionRecord>>;

/// What has the name of a revision: itself, or a pod's label.
pub(crate) trait Named {
    /// The name.
    fn name(&self) -> &str;
}

impl Named for Arc<RevisionRecord> {
    fn name(&self) -> &str {
        RevisionRecord::name(self)
    }
}

impl Named for &str {
    fn name(&self) -> &str {
        self
    }
}

/// Revisions, or labels of pods, in an order that decides which of several is found. Found is what [`super::names_it`] says names the same;
/// that holds in both directions, but for a name that is empty, which names nothing.
#[derive(Clone, Debug)]
pub(crate) struct Index<T> {
    all: Vec<T>,
    /// Their places by their names, of one name in their order.
    by_name: Vec<usize>,
    /// Places of full names by their hashes, of one hash in their order.
    by_hash: Vec<usize>,
    /// Of these, places of names that do not fit into a label.
    long_by_hash: Vec<usize>,
}

impl<T: Named> Index<T> {
    /// Of all these, in their order.
    pub(crate) fn of(all: impl IntoIterator<Item = T>) -> Self {
        let all: Vec<T> = all.into_iter().collect();
        let name = |place: &usize| all[*place].name();
        let mut by_name: Vec<usize> = (0..all.len()).filter(|place| !name(place).is_empty()).collect();
        by_name.sort_by(|a, b| name(a).cmp(name(b)));
        let mut by_hash: Vec<usize> = (0..all.len()).filter(|place| is_full(name(place))).collect();
        by_hash.sort_by(|a, b| short(name(a)).cmp(short(name(b))));
        let is_long = |place: &usize| !fits_into_a_label(name(place));
        let long_by_hash = by_hash.iter().copied().filter(is_long).collect();
        Index {
            all,
            by_name,
            by_hash,
            long_by_hash,
        }
    }

    /// The first of exactly this name.
    pub(crate) fn exactly(&self, name: &str) -> Option<&T> {
        self.first_with_name(name).map(|place| &self.all[place])
    }

    /// The first that names the same as `name`, for pods of the set of this name.
    pub(crate) fn named(&self, set: &str, name: &str) -> Option<&T> {
        self.place_of(set, name).map(|place| &self.all[place])
    }

    /// The first whose name has this hash, or consists of it.
    pub(crate) fn with_hash(&self, hash: &str) -> Option<&T> {
        let alone = self.first_with_name(hash).filter(|_| !is_full(hash));
        let found = [alone, self.first_with_hash(&self.by_hash, hash)];
        found.into_iter().flatten().min().map(|place| &self.all[place])
    }

    /// The cases of [`super::names_it`], each as a look-up.
    fn place_of(&self, set: &str, name: &str) -> Option<usize> {
        let hash = short(name);
        let (by_hash, alone) = if !is_full(name) {
            let of_set = self.first_with_name(&revision_name(set, name));
            (self.first_with_hash(&self.long_by_hash, name), of_set)
        } else if name == revision_name(set, hash) || !fits_into_a_label(name) {
            (self.first_with_hash(&self.by_hash, hash), self.first_with_name(hash))
        } else {
            (self.first_with_hash(&self.by_hash, hash), None)
        };
        let found = [self.first_with_name(name), by_hash, alone];
        found.into_iter().flatten().min().filter(|_| !name.is_empty())
    }

    fn first_with_name(&self, name: &str) -> Option<usize> {
        let at = self.by_name.partition_point(|place| self.all[*place].name() < name);
        let found = self.by_name.get(at).copied()?;
        (self.all[found].name() == name).then_some(found)
    }

    fn first_with_hash(&self, places: &[usize], hash: &str) -> Option<usize> {
        let of = |place: usize| short(self.all[place].name());
        let at = places.partition_point(|place| of(*place) < hash);
        let found = places.get(at).copied()?;
        (of(found) == hash).then_some(found)
    }
}

/// Whether a name is more than a hash.
fn is_full(name: &str) -> bool {
    name.contains('-')
}

#[cfg(test)]
mod tests {
    use super::super::names_it;
    use super::*;

    /// Names of every kind: hashes, full names of two sets, such as are too long for a label, and what somebody else wrote.
    fn names(set: &str) -> Vec<String> {
        let long = "l".repeat(60);
        let mut names: Vec<String> = [
            "", "a", "b", "web", "-", "-a", "a-", "web-", "other-a", "web-x-a", "x-web-b", "web-c",
        ]
        .map(str::to_owned)
        .into();
        for hash in ["a", "b", "c", "web", ""] {
            names.push(revision_name(set, hash));
            names.push(format!("{long}-{hash}"));
            names.push(format!("x{long}-{hash}"));
        }
        names
    }

    #[test]
    fn sts_3_6_and_cs_12_6_what_is_looked_up_is_what_names_it_finds_first() {
        for set in ["web", "x-web", &"s".repeat(230)] {
            let names = names(set);
            for shift in 0..names.len() {
                let mut all: Vec<&str> = names.iter().map(String::as_str).collect();
                all.rotate_left(shift);
                let index = Index::of(all.iter().copied());
                for name in &names {
                    let first = |is_it: &dyn Fn(&str) -> bool| {
                        let mut known = all.iter().copied();
                        known.find(|known| !known.is_empty() && is_it(known))
                    };
                    let as_label = first(&|revision| names_it(set, revision, name));
                    assert_eq!(index.named(set, name).copied(), as_label, "{name} of {set} in {all:?}");
                    let as_revision = first(&|label| names_it(set, name, label)).filter(|_| !name.is_empty());
                    assert_eq!(
                        index.named(set, name).copied(),
                        as_revision,
                        "{name} of {set} in {all:?}"
                    );
                    let with_hash = first(&|revision| short(revision) == name);
                    assert_eq!(index.with_hash(name).copied(), with_hash, "{name} in {all:?}");
                    assert_eq!(
                        index.exactly(name).copied(),
                        first(&|known| known == name),
                        "{name} in {all:?}"
                    );
                }
            }
        }
    }
}
