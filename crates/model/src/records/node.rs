//! What is kept of a node.

use crate::meta::Meta;

/// One Node, as decisions see it: where it stands, which its labels say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRecord {
    /// Who it is.
    pub meta: Meta,
}
