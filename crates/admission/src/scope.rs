//! Which requests admission has nothing to do with, whatever the registrations say.

use crate::Request;
use crate::json;
use flotilla_api::names;

/// Namespaces in which nothing waits for Flotilla: the cluster's own, and Flotilla's.
const EXEMPT: &[&str] = &["kube-system", "flotilla-system"];

/// Whether a request is to be let through unread.
pub(crate) fn is_exempt(request: &Request<'_>) -> bool {
    // The stored label decides if there is one: nobody slips past a rule by a label in the change that the rule is about.
    let object = request.old_object.or(request.object);
    EXEMPT.contains(&request.namespace)
        || object.is_some_and(|object| json::label(object, names::WEBHOOKS_LABEL) == Some("ignore"))
}
