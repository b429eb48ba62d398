//! Rules about Advanced StatefulSets that the API server checks beside those that kinds share (STS-7.3 and STS-7.4). What CEL
//! cannot express is listed in ARCHITECTURE.md.

use crate::crd::{Check, Rule};
use crate::messages;
use crate::rules::{NOT_EMPTY, WELL_FORMED, across, always, on_update};

const POSITIVE: &str = "type(self) == int ? self >= 1 : self.matches('^0*(100|[1-9][0-9]?)%$')";
const HOOK_HAS_MARKS: &str = "(has(self.labelsHandler) && size(self.labelsHandler) > 0) \
    || (has(self.finalizersHandler) && size(self.finalizersHandler) > 0)";
const HOOK_LABELS: &str =
    "!has(self.labelsHandler) || self.labelsHandler.all(k, !format.qualifiedName().validate(k).hasValue())";
const HOOK_FINALIZERS: &str =
    "!has(self.finalizersHandler) || self.finalizersHandler.all(f, f.matches('^[^/]+/[^/]+$'))";
const RETENTION: &str = "self in ['', 'Retain', 'Delete']";

/// Of the name. Not of a CloneSet: whether the labels of its pods hold its name, a gate of the manager decides, which admission knows; and
/// where that was not asked, pods of a set whose name is too long are labelled with the hash of their revision alone.
pub(crate) const NAME: &[Rule] = &[Rule {
    path: "",
    check: Check::OnCreate("size(self.metadata.name) <= 52"),
    message: messages::NAME_LENGTH,
    field: None,
}];

/// In the order of the specification.
pub(crate) const RULES: &[Rule] = &[
    always(
        "spec.podManagementPolicy",
        "self in ['', 'OrderedReady', 'Parallel']",
        messages::POD_MANAGEMENT_POLICY,
    ),
    always(
        "spec.reserveOrdinals[]",
        "type(self) == int ? self >= 0 : self.matches('^[0-9]{1,10}-[0-9]{1,10}$') \
         && int(self.split('-')[0]) <= int(self.split('-')[1]) && int(self.split('-')[1]) - int(self.split('-')[0]) < 1000000",
        messages::RESERVED_ORDINAL,
    ),
    always("spec.scaleStrategy.maxUnavailable", POSITIVE, messages::SCALE_BUDGET),
    across(
        ".scaleStrategy.maxUnavailable",
        "$.?podManagementPolicy.orValue('') == 'Parallel' || $.?scaleStrategy.?maxUnavailable.orValue(1) == 1",
        messages::SCALE_BUDGET_PARALLEL,
    ),
    always(
        "spec.updateStrategy",
        "self.?type.orValue('') in ['', 'RollingUpdate', 'OnDelete']",
        messages::UPDATE_TYPE,
    ),
    always(
        "spec.updateStrategy",
        "self.?type.orValue('') != 'OnDelete' || !has(self.rollingUpdate)",
        messages::ROLLING_WITH_ON_DELETE,
    ),
    always(
        "spec.updateStrategy.rollingUpdate.maxUnavailable",
        POSITIVE,
        messages::UPDATE_BUDGET,
    ),
    across(
        ".updateStrategy.rollingUpdate.maxUnavailable",
        "$.?podManagementPolicy.orValue('') == 'Parallel' || $.?updateStrategy.?rollingUpdate.?maxUnavailable.orValue(1) == 1",
        messages::UPDATE_BUDGET_PARALLEL,
    ),
    always(
        "spec.updateStrategy.rollingUpdate.podUpdatePolicy",
        "self in ['', 'ReCreate', 'InPlaceIfPossible', 'InPlaceOnly']",
        messages::POD_UPDATE_POLICY,
    ),
    across(
        ".updateStrategy.rollingUpdate.podUpdatePolicy",
        "!($.?updateStrategy.?rollingUpdate.?podUpdatePolicy.orValue('') in ['InPlaceIfPossible', 'InPlaceOnly']) \
         || (has($.template.spec) && has($.template.spec.readinessGates) \
         && $.template.spec.readinessGates.exists(g, has(g.conditionType) && g.conditionType == 'InPlaceUpdateReady'))",
        messages::IN_PLACE_GATE,
    ),
    across(
        ".updateStrategy.rollingUpdate.unorderedUpdate",
        "$.?podManagementPolicy.orValue('') == 'Parallel' || !$.?updateStrategy.?rollingUpdate.?unorderedUpdate.hasValue()",
        messages::UNORDERED_PARALLEL,
    ),
    always(
        "spec.updateStrategy.rollingUpdate.unorderedUpdate.priorityStrategy",
        "size(self.?orderPriority.orValue([])) == 0 || size(self.?weightPriority.orValue([])) == 0",
        messages::PRIORITY_ONE_OF,
    ),
    always(
        "spec.updateStrategy.rollingUpdate.unorderedUpdate.priorityStrategy.orderPriority[]",
        "self.orderedKey != ''",
        messages::ORDERED_KEY,
    ),
    always(
        "spec.updateStrategy.rollingUpdate.unorderedUpdate.priorityStrategy.weightPriority[]",
        "self.weight >= 0 && self.weight <= 100",
        messages::WEIGHT,
    ),
    always(
        "spec.updateStrategy.rollingUpdate.unorderedUpdate.priorityStrategy.weightPriority[].matchSelector",
        NOT_EMPTY,
        messages::MATCH_SELECTOR_EMPTY,
    ),
    always(
        "spec.updateStrategy.rollingUpdate.unorderedUpdate.priorityStrategy.weightPriority[].matchSelector",
        WELL_FORMED,
        messages::OPERATORS,
    ),
    always(
        "spec.updateStrategy.rollingUpdate.inPlaceUpdateStrategy.imagePreDownloadParallelism",
        POSITIVE,
        messages::PRE_DOWNLOAD_PARALLELISM,
    ),
    always(
        "spec.persistentVolumeClaimRetentionPolicy.whenDeleted",
        RETENTION,
        messages::WHEN_DELETED,
    ),
    always(
        "spec.persistentVolumeClaimRetentionPolicy.whenScaled",
        RETENTION,
        messages::WHEN_SCALED,
    ),
    always("spec.lifecycle.preDelete", HOOK_HAS_MARKS, messages::HOOK_MARKS),
    always("spec.lifecycle.preDelete", HOOK_LABELS, messages::HOOK_LABELS),
    always("spec.lifecycle.preDelete", HOOK_FINALIZERS, messages::HOOK_FINALIZERS),
    always("spec.lifecycle.inPlaceUpdate", HOOK_HAS_MARKS, messages::HOOK_MARKS),
    always("spec.lifecycle.inPlaceUpdate", HOOK_LABELS, messages::HOOK_LABELS),
    always(
        "spec.lifecycle.inPlaceUpdate",
        HOOK_FINALIZERS,
        messages::HOOK_FINALIZERS,
    ),
    always("spec.lifecycle.preNormal", HOOK_HAS_MARKS, messages::HOOK_MARKS),
    always("spec.lifecycle.preNormal", HOOK_LABELS, messages::HOOK_LABELS),
    always("spec.lifecycle.preNormal", HOOK_FINALIZERS, messages::HOOK_FINALIZERS),
    across(
        ".lifecycle",
        "!has($.lifecycle) || !has($.selector.matchLabels) || $.selector.matchLabels.all(k, \
         !(has($.lifecycle.preDelete) && has($.lifecycle.preDelete.labelsHandler) && k in $.lifecycle.preDelete.labelsHandler) \
         && !(has($.lifecycle.inPlaceUpdate) && has($.lifecycle.inPlaceUpdate.labelsHandler) && k in $.lifecycle.inPlaceUpdate.labelsHandler) \
         && !(has($.lifecycle.preNormal) && has($.lifecycle.preNormal.labelsHandler) && k in $.lifecycle.preNormal.labelsHandler))",
        messages::HOOK_SELECTOR,
    ),
    always(
        "spec.volumeClaimUpdateStrategy",
        "self.?type.orValue('') in ['', 'OnDelete', 'OnPodRollingUpdate']",
        messages::CLAIM_UPDATE_TYPE,
    ),
    always(
        "spec.specialPodsSelectors[]",
        NOT_EMPTY,
        messages::SPECIAL_SELECTOR_EMPTY,
    ),
    always("spec.specialPodsSelectors[]", WELL_FORMED, messages::OPERATORS),
    on_update(
        ".serviceName",
        "(has(self.serviceName) ? self.serviceName : '') == (has(oldSelf.serviceName) ? oldSelf.serviceName : '')",
        messages::SERVICE_NAME_FIXED,
    ),
    on_update(
        ".podManagementPolicy",
        "(self.?podManagementPolicy.orValue('') == 'Parallel') == (oldSelf.?podManagementPolicy.orValue('') == 'Parallel')",
        messages::POD_MANAGEMENT_FIXED,
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
        messages::CLAIMS_ONLY_STORAGE,
    ),
];
