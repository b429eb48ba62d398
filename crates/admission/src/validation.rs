//! Validation; the rules follow.
use crate::*;
pub(crate) fn statefulset(_request: &Request<'_>, _memory: &dyn Memory) -> Reply {
    Reply::allow()
}
