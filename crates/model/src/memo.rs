//! Answers that a record keeps, so that they are worked out once and not in every pass.

use std::fmt;
use std::sync::OnceLock;

/// What follows from the rest of a record, once somebody has asked for it. It is no part of the record: two that say the same are equal
/// whoever was asked, and a copy, which may be changed, knows nothing yet.
pub struct Memo<T>(OnceLock<T>);

impl<T> Memo<T> {
    /// The answer; `work_out` may rest on nothing but the record.
    pub fn get(&self, work_out: impl FnOnce() -> T) -> &T {
        self.0.get_or_init(work_out)
    }

    /// The answer, if somebody has asked.
    pub fn known(&self) -> Option<&T> {
        self.0.get()
    }
}

impl<T> From<T> for Memo<T> {
    fn from(answer: T) -> Self {
        Memo(OnceLock::from(answer))
    }
}

impl<T> Default for Memo<T> {
    fn default() -> Self {
        Memo(OnceLock::new())
    }
}

impl<T> Clone for Memo<T> {
    fn clone(&self) -> Self {
        Memo::default()
    }
}

impl<T> PartialEq for Memo<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for Memo<T> {}

impl<T> fmt::Debug for Memo<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memo")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_worked_out_once_and_forgotten_in_a_copy() {
        let memo = Memo::default();
        assert_eq!((*memo.get(|| 1), *memo.get(|| 2)), (1, 1));
        assert_eq!((memo.known(), Memo::from(4).known()), (Some(&1), Some(&4)));
        let copy = memo.clone();
        assert_eq!(copy.known(), None);
        assert_eq!(*copy.get(|| 3), 3);
        assert_eq!(memo, copy, "no part of what is compared");
    }
}
