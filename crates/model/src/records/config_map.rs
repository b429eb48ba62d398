//! What is kept of a config map: of those that hold back containers until their turn has come.

use crate::meta::Meta;
use std::sync::Arc;

/// One ConfigMap, as decisions see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMapRecord {
    /// Who it is.
    pub meta: Meta,
    /// Keys of `data` that containers may wait for, sorted; values are not kept.
    pub keys: Arc<[Arc<str>]>,
}

impl ConfigMapRecord {
    /// Whether `data` has this key.
    pub fn has_key(&self, key: &str) -> bool {
        self.keys.binary_search_by(|k| (**k).cmp(key)).is_ok()
    }
}
