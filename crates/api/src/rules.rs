//! Rules that the API server checks of every kind that owns pods by a selector and a template (STS-1.1.9, STS-7.3 and STS-7.4), and
//! words to write such rules with.

use crate::crd::{Check, Rule};
use crate::messages;

/// A rule that holds on every write that changes the value.
pub(crate) const fn always(path: &'static str, rule: &'static str, message: &'static str) -> Rule {
    Rule {
        path,
        check: Check::Always(rule),
        message,
        field: None,
    }
}

/// A rule about several fields of spec.
pub(crate) const fn across(field: &'static str, rule: &'static str, message: &'static str) -> Rule {
    Rule {
        path: "spec",
        check: Check::Ratcheting(rule),
        message,
        field: Some(field),
    }
}

/// A rule about a change of spec.
pub(crate) const fn on_update(field: &'static str, rule: &'static str, message: &'static str) -> Rule {
    Rule {
        path: "spec",
        check: Check::OnUpdate(rule),
        message,
        field: Some(field),
    }
}

/// Of a selector.
pub(crate) const NOT_EMPTY: &str = "(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)";
/// Of a selector.
pub(crate) const WELL_FORMED: &str = "!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] \
    ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || size(e.values) == 0))";

/// What kinds share, in the order of the specification.
pub(crate) const SHARED: &[Rule] = &[
    always("spec.selector", NOT_EMPTY, messages::SELECTOR_EMPTY),
    always("spec.selector", WELL_FORMED, messages::OPERATORS),
    across(
        ".selector",
        "(!has($.selector.matchLabels) || $.selector.matchLabels.all(k, has($.template.metadata) && has($.template.metadata.labels) \
         && k in $.template.metadata.labels && $.template.metadata.labels[k] == $.selector.matchLabels[k])) \
         && (!has($.selector.matchExpressions) || $.selector.matchExpressions.all(e, \
         has($.template.metadata) && has($.template.metadata.labels) && e.key in $.template.metadata.labels \
         ? (e.operator == 'In' ? has(e.values) && $.template.metadata.labels[e.key] in e.values \
            : e.operator == 'NotIn' ? !has(e.values) || !($.template.metadata.labels[e.key] in e.values) : e.operator == 'Exists') \
         : e.operator in ['NotIn', 'DoesNotExist']))",
        messages::SELECTOR_MATCHES,
    ),
    always(
        "spec.template.metadata.labels",
        "self.all(k, !format.qualifiedName().validate(k).hasValue())",
        messages::TEMPLATE_LABELS,
    ),
    always(
        "spec.template.metadata.annotations",
        "self.all(k, !format.qualifiedName().validate(k.lowerAscii()).hasValue())",
        messages::TEMPLATE_ANNOTATIONS,
    ),
    always(
        "spec.template.spec",
        "self.?restartPolicy.orValue('') in ['', 'Always']",
        messages::RESTART_POLICY,
    ),
    always(
        "spec.template.spec",
        "!has(self.activeDeadlineSeconds)",
        messages::ACTIVE_DEADLINE,
    ),
    always(
        "spec.template.spec",
        "size(self.?containers.orValue([])) > 0",
        messages::CONTAINERS,
    ),
    always(
        "spec.volumeClaimTemplates",
        "self.all(t, has(t.metadata) && has(t.metadata.name) && t.metadata.name != '' \
         && self.exists_one(u, has(u.metadata) && has(u.metadata.name) && u.metadata.name == t.metadata.name))",
        messages::CLAIM_NAMES,
    ),
    across(
        ".volumeClaimTemplates",
        "!has($.volumeClaimTemplates) || $.volumeClaimTemplates.all(t, !has(t.metadata) || !has(t.metadata.name) \
         || t.metadata.name == '' || !format.dns1123Label().validate(t.metadata.name).hasValue())",
        messages::CLAIM_NAME_LABEL,
    ),
    on_update(
        ".selector",
        "self.selector == oldSelf.selector",
        messages::SELECTOR_FIXED,
    ),
];
