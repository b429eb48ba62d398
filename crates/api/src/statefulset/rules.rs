//! Rules about Advanced StatefulSets that the API server checks (specification 1.1.9, 7.3 and 7.4). What CEL cannot express is listed
//! in ARCHITECTURE.md.

use crate::crd::{Check, Rule};

const fn always(path: &'static str, rule: &'static str, message: &'static str) -> Rule {
    Rule {
        path,
        check: Check::Always(rule),
        message,
        field: None,
    }
}

const fn across(field: &'static str, rule: &'static str, message: &'static str) -> Rule {
    Rule {
        path: "spec",
        check: Check::Ratcheting(rule),
        message,
        field: Some(field),
    }
}

const fn on_update(field: &'static str, rule: &'static str, message: &'static str) -> Rule {
    Rule {
        path: "spec",
        check: Check::OnUpdate(rule),
        message,
        field: Some(field),
    }
}

const POSITIVE: &str = "type(self) == int ? self >= 1 : self.matches('^0*(100|[1-9][0-9]?)%$')";
const NOT_EMPTY: &str = "(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)";
const WELL_FORMED: &str = "!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] \
    ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || size(e.values) == 0))";
const OPERATORS: &str = "operators are In and NotIn, with values, and Exists and DoesNotExist, without";
const HOOK_HAS_MARKS: &str = "(has(self.labelsHandler) && size(self.labelsHandler) > 0) \
    || (has(self.finalizersHandler) && size(self.finalizersHandler) > 0)";
const HOOK_LABELS: &str =
    "!has(self.labelsHandler) || self.labelsHandler.all(k, !format.qualifiedName().validate(k).hasValue())";
const HOOK_FINALIZERS: &str =
    "!has(self.finalizersHandler) || self.finalizersHandler.all(f, f.matches('^[^/]+/[^/]+$'))";
const HOOK_MARKS_MESSAGE: &str = "a lifecycle hook needs labelsHandler or finalizersHandler";
const HOOK_LABELS_MESSAGE: &str = "labelsHandler must have valid label keys";
const HOOK_FINALIZERS_MESSAGE: &str = "finalizersHandler must have qualified names, such as example.com/backup";
const RETENTION: &str = "self in ['', 'Retain', 'Delete']";

/// In the order of the specification.
pub(crate) const RULES: &[Rule] = &[
    Rule {
        path: "",
        check: Check::OnCreate("size(self.metadata.name) <= 52"),
        message: "the name of a set may have at most 52 characters, because the names of its revisions must fit into a label (63)",
        field: None,
    },
    always(
        "spec.podManagementPolicy",
        "self in ['', 'OrderedReady', 'Parallel']",
        "podManagementPolicy must be OrderedReady or Parallel",
    ),
    always(
        "spec.reserveOrdinals[]",
        "type(self) == int ? self >= 0 : self.matches('^[0-9]{1,10}-[0-9]{1,10}$') \
         && int(self.split('-')[0]) <= int(self.split('-')[1]) && int(self.split('-')[1]) - int(self.split('-')[0]) < 1000000",
        "an entry of reserveOrdinals must be a number, 0 or more, or a range such as \"3-5\" of at most 1000000 ordinals",
    ),
    always(
        "spec.scaleStrategy.maxUnavailable",
        POSITIVE,
        "scaleStrategy.maxUnavailable must be a number of at least 1 or a percentage from 1% to 100%",
    ),
    across(
        ".scaleStrategy.maxUnavailable",
        "$.?podManagementPolicy.orValue('') == 'Parallel' || $.?scaleStrategy.?maxUnavailable.orValue(1) == 1",
        "scaleStrategy.maxUnavailable can only be 1 unless podManagementPolicy is Parallel",
    ),
    always(
        "spec.updateStrategy",
        "self.?type.orValue('') in ['', 'RollingUpdate', 'OnDelete']",
        "updateStrategy.type must be RollingUpdate or OnDelete",
    ),
    always(
        "spec.updateStrategy",
        "self.?type.orValue('') != 'OnDelete' || !has(self.rollingUpdate)",
        "updateStrategy.rollingUpdate cannot be used when updateStrategy.type is OnDelete",
    ),
    always(
        "spec.updateStrategy.rollingUpdate.maxUnavailable",
        POSITIVE,
        "rollingUpdate.maxUnavailable must be a number of at least 1 or a percentage from 1% to 100%",
    ),
    across(
        ".updateStrategy.rollingUpdate.maxUnavailable",
        "$.?podManagementPolicy.orValue('') == 'Parallel' || $.?updateStrategy.?rollingUpdate.?maxUnavailable.orValue(1) == 1",
        "rollingUpdate.maxUnavailable can only be 1 unless podManagementPolicy is Parallel",
    ),
    always(
        "spec.updateStrategy.rollingUpdate.podUpdatePolicy",
        "self in ['', 'ReCreate', 'InPlaceIfPossible', 'InPlaceOnly']",
        "podUpdatePolicy must be ReCreate, InPlaceIfPossible or InPlaceOnly",
    ),
    across(
        ".updateStrategy.rollingUpdate.podUpdatePolicy",
        "!($.?updateStrategy.?rollingUpdate.?podUpdatePolicy.orValue('') in ['InPlaceIfPossible', 'InPlaceOnly']) \
         || (has($.template.spec) && has($.template.spec.readinessGates) \
         && $.template.spec.readinessGates.exists(g, has(g.conditionType) && g.conditionType == 'InPlaceUpdateReady'))",
        "podUpdatePolicy InPlaceIfPossible and InPlaceOnly need the condition InPlaceUpdateReady in template.spec.readinessGates",
    ),
    across(
        ".updateStrategy.rollingUpdate.unorderedUpdate",
        "$.?podManagementPolicy.orValue('') == 'Parallel' || !$.?updateStrategy.?rollingUpdate.?unorderedUpdate.hasValue()",
        "unorderedUpdate can only be used when podManagementPolicy is Parallel",
    ),
    always(
        "spec.updateStrategy.rollingUpdate.unorderedUpdate.priorityStrategy",
        "size(self.?orderPriority.orValue([])) == 0 || size(self.?weightPriority.orValue([])) == 0",
        "priorityStrategy must have orderPriority or weightPriority, not both",
    ),
    always(
        "spec.updateStrategy.rollingUpdate.unorderedUpdate.priorityStrategy.orderPriority[]",
        "self.orderedKey != ''",
        "orderedKey must not be empty",
    ),
    always(
        "spec.updateStrategy.rollingUpdate.unorderedUpdate.priorityStrategy.weightPriority[]",
        "self.weight >= 0 && self.weight <= 100",
        "weight must be 0 to 100",
    ),
    always(
        "spec.updateStrategy.rollingUpdate.unorderedUpdate.priorityStrategy.weightPriority[].matchSelector",
        NOT_EMPTY,
        "matchSelector must not be empty",
    ),
    always(
        "spec.updateStrategy.rollingUpdate.unorderedUpdate.priorityStrategy.weightPriority[].matchSelector",
        WELL_FORMED,
        OPERATORS,
    ),
    always(
        "spec.updateStrategy.rollingUpdate.inPlaceUpdateStrategy.imagePreDownloadParallelism",
        POSITIVE,
        "imagePreDownloadParallelism must be a number of at least 1 or a percentage from 1% to 100%",
    ),
    always(
        "spec.persistentVolumeClaimRetentionPolicy.whenDeleted",
        RETENTION,
        "persistentVolumeClaimRetentionPolicy.whenDeleted must be Retain or Delete",
    ),
    always(
        "spec.persistentVolumeClaimRetentionPolicy.whenScaled",
        RETENTION,
        "persistentVolumeClaimRetentionPolicy.whenScaled must be Retain or Delete",
    ),
    always("spec.selector", NOT_EMPTY, "selector must not be empty"),
    always("spec.selector", WELL_FORMED, OPERATORS),
    across(
        ".selector",
        "(!has($.selector.matchLabels) || $.selector.matchLabels.all(k, has($.template.metadata) && has($.template.metadata.labels) \
         && k in $.template.metadata.labels && $.template.metadata.labels[k] == $.selector.matchLabels[k])) \
         && (!has($.selector.matchExpressions) || $.selector.matchExpressions.all(e, \
         has($.template.metadata) && has($.template.metadata.labels) && e.key in $.template.metadata.labels \
         ? (e.operator == 'In' ? has(e.values) && $.template.metadata.labels[e.key] in e.values \
            : e.operator == 'NotIn' ? !has(e.values) || !($.template.metadata.labels[e.key] in e.values) : e.operator == 'Exists') \
         : e.operator in ['NotIn', 'DoesNotExist']))",
        "selector must match template.metadata.labels",
    ),
    always(
        "spec.template.metadata.labels",
        "self.all(k, !format.qualifiedName().validate(k).hasValue())",
        "template.metadata.labels must have valid label keys",
    ),
    always(
        "spec.template.metadata.annotations",
        "self.all(k, !format.qualifiedName().validate(k.lowerAscii()).hasValue())",
        "template.metadata.annotations must have valid keys",
    ),
    always(
        "spec.template.spec",
        "self.?restartPolicy.orValue('') in ['', 'Always']",
        "template.spec.restartPolicy must be Always",
    ),
    always(
        "spec.template.spec",
        "!has(self.activeDeadlineSeconds)",
        "template.spec.activeDeadlineSeconds cannot be used in a set",
    ),
    always(
        "spec.template.spec",
        "size(self.?containers.orValue([])) > 0",
        "template.spec.containers must have at least one container",
    ),
    always("spec.lifecycle.preDelete", HOOK_HAS_MARKS, HOOK_MARKS_MESSAGE),
    always("spec.lifecycle.preDelete", HOOK_LABELS, HOOK_LABELS_MESSAGE),
    always("spec.lifecycle.preDelete", HOOK_FINALIZERS, HOOK_FINALIZERS_MESSAGE),
    always("spec.lifecycle.inPlaceUpdate", HOOK_HAS_MARKS, HOOK_MARKS_MESSAGE),
    always("spec.lifecycle.inPlaceUpdate", HOOK_LABELS, HOOK_LABELS_MESSAGE),
    always("spec.lifecycle.inPlaceUpdate", HOOK_FINALIZERS, HOOK_FINALIZERS_MESSAGE),
    always("spec.lifecycle.preNormal", HOOK_HAS_MARKS, HOOK_MARKS_MESSAGE),
    always("spec.lifecycle.preNormal", HOOK_LABELS, HOOK_LABELS_MESSAGE),
    always("spec.lifecycle.preNormal", HOOK_FINALIZERS, HOOK_FINALIZERS_MESSAGE),
    across(
        ".lifecycle",
        "!has($.lifecycle) || !has($.selector.matchLabels) || $.selector.matchLabels.all(k, \
         !(has($.lifecycle.preDelete) && has($.lifecycle.preDelete.labelsHandler) && k in $.lifecycle.preDelete.labelsHandler) \
         && !(has($.lifecycle.inPlaceUpdate) && has($.lifecycle.inPlaceUpdate.labelsHandler) && k in $.lifecycle.inPlaceUpdate.labelsHandler) \
         && !(has($.lifecycle.preNormal) && has($.lifecycle.preNormal.labelsHandler) && k in $.lifecycle.preNormal.labelsHandler))",
        "labels of lifecycle hooks must not be labels of the selector",
    ),
    always(
        "spec.volumeClaimUpdateStrategy",
        "self.?type.orValue('') in ['', 'OnDelete', 'OnPodRollingUpdate']",
        "volumeClaimUpdateStrategy.type must be OnDelete or OnPodRollingUpdate",
    ),
    always(
        "spec.volumeClaimTemplates",
        "self.all(t, has(t.metadata) && has(t.metadata.name) && t.metadata.name != '' \
         && self.exists_one(u, has(u.metadata) && has(u.metadata.name) && u.metadata.name == t.metadata.name))",
        "each of volumeClaimTemplates must have a metadata.name that no other has",
    ),
    always(
        "spec.specialPodsSelectors[]",
        NOT_EMPTY,
        "an entry of specialPodsSelectors must not be empty",
    ),
    always("spec.specialPodsSelectors[]", WELL_FORMED, OPERATORS),
    on_update(
        ".selector",
        "self.selector == oldSelf.selector",
        "selector cannot be changed",
    ),
    on_update(
        ".serviceName",
        "(has(self.serviceName) ? self.serviceName : '') == (has(oldSelf.serviceName) ? oldSelf.serviceName : '')",
        "serviceName cannot be changed",
    ),
    on_update(
        ".podManagementPolicy",
        "(self.?podManagementPolicy.orValue('') == 'Parallel') == (oldSelf.?podManagementPolicy.orValue('') == 'Parallel')",
        "podManagementPolicy cannot be changed",
    ),
    on_update(
        ".volumeClaimTemplates",
        "self.?volumeClaimUpdateStrategy.?type.orValue('') != 'OnPodRollingUpdate' \
         || (!has(self.volumeClaimTemplates) && !has(oldSelf.volumeClaimTemplates)) \
         || (has(self.volumeClaimTemplates) && has(oldSelf.volumeClaimTemplates) \
             && size(self.volumeClaimTemplates) == size(oldSelf.volumeClaimTemplates) \
             && self.volumeClaimTemplates.all(t, has(t.metadata) && has(t.metadata.name) && has(t.spec) \
             && oldSelf.volumeClaimTemplates.exists(o, has(o.metadata) && has(o.metadata.name) && has(o.spec) \
                && t.metadata.name == o.metadata.name \
                && (has(t.spec.storageClassName) ? t.spec.storageClassName : '') == (has(o.spec.storageClassName) ? o.spec.storageClassName : '') \
                && (has(t.spec.volumeMode) ? t.spec.volumeMode : '') == (has(o.spec.volumeMode) ? o.spec.volumeMode : '') \
                && has(t.spec.accessModes) == has(o.spec.accessModes) \
                && (!has(t.spec.accessModes) || t.spec.accessModes == o.spec.accessModes))))",
        "with volumeClaimUpdateStrategy.type OnPodRollingUpdate only the requested storage of volumeClaimTemplates can be changed",
    ),
    on_update(
        ".volumeClaimTemplates",
        "self.?volumeClaimUpdateStrategy.?type.orValue('') != 'OnPodRollingUpdate' \
         || !has(self.volumeClaimTemplates) || !has(oldSelf.volumeClaimTemplates) \
         || self.volumeClaimTemplates.all(t, oldSelf.volumeClaimTemplates.all(o, \
            !has(t.metadata) || !has(t.metadata.name) || !has(o.metadata) || !has(o.metadata.name) || t.metadata.name != o.metadata.name \
            || !has(o.spec) || !has(o.spec.resources) || !has(o.spec.resources.requests) || !('storage' in o.spec.resources.requests) \
            || (has(t.spec) && has(t.spec.resources) && has(t.spec.resources.requests) && 'storage' in t.spec.resources.requests \
               && quantity(string(t.spec.resources.requests['storage'])) \
                  .compareTo(quantity(string(o.spec.resources.requests['storage']))) >= 0)))",
        "with volumeClaimUpdateStrategy.type OnPodRollingUpdate the requested storage of volumeClaimTemplates cannot be made smaller",
    ),
];
