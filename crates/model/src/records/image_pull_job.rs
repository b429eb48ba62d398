//! What is kept of an `ImagePullJob`.

use crate::meta::Meta;

/// One `ImagePullJob`, as decisions see it: whose it is, and, by its labels, for which revision. What became of it nobody here asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagePullJobRecord {
    /// Who it is.
    pub meta: Meta,
}
