//! Rules about CloneSets that the API server checks beside those that kinds share (CS-3 and CS-6). What CEL cannot
//! express is listed in ARCHITECTURE.md.

use crate::crd::Rule;
use crate::messages;
use crate::rules::{NOT_EMPTY, WELL_FORMED, across, always};

/// A number of pods, or a percentage of replicas, which may have decimals.
const SHARE: &str = "type(self) == int ? self >= 0 : self.matches('^[0-9]{1,6}([.][0-9]{1,6})?%$')";

/// What both versions have in the same place.
pub(crate) const BOTH: &[Rule] = &[always(
    "spec.scaleStrategy.maxUnavailable",
    SHARE,
    messages::CLONE_SCALE_BUDGET,
)];

/// Of `v1beta1`.
pub(crate) const HUB: &[Rule] = &[
    always(
        "spec.updateStrategy",
        "self.?type.orValue('') in ['', 'RollingUpdate', 'OnDelete']",
        messages::UPDATE_TYPE,
    ),
    always(
        "spec.updateStrategy.rollingUpdate.podUpdatePolicy",
        "self in ['', 'ReCreate', 'InPlaceIfPossible', 'InPlaceOnly']",
        messages::POD_UPDATE_POLICY,
    ),
    always(
        "spec.updateStrategy.rollingUpdate.partition",
        SHARE,
        messages::PARTITION,
    ),
    always(
        "spec.updateStrategy.rollingUpdate.maxUnavailable",
        SHARE,
        messages::MAX_UNAVAILABLE,
    ),
    always("spec.updateStrategy.rollingUpdate.maxSurge", SHARE, messages::MAX_SURGE),
    across(
        ".updateStrategy.rollingUpdate.maxSurge",
        "$.?updateStrategy.?rollingUpdate.?podUpdatePolicy.orValue('') != 'InPlaceOnly' \
         || ($.?updateStrategy.?rollingUpdate.?maxSurge.orValue(0) == 0 \
         || $.?updateStrategy.?rollingUpdate.?maxSurge.orValue(0) == '0%')",
        messages::SURGE_IN_PLACE_ONLY,
    ),
    across(
        ".updateStrategy.rollingUpdate",
        "$.?replicas.orValue(1) == 0 \
         || !(($.?updateStrategy.?rollingUpdate.?maxUnavailable.orValue('20%') == 0 \
         || $.?updateStrategy.?rollingUpdate.?maxUnavailable.orValue('20%') == '0%') \
         && ($.?updateStrategy.?rollingUpdate.?maxSurge.orValue(0) == 0 \
         || $.?updateStrategy.?rollingUpdate.?maxSurge.orValue(0) == '0%'))",
        messages::NOTHING_MOVES,
    ),
    always(
        "spec.updateStrategy.rollingUpdate.priorityStrategy",
        "size(self.?orderPriority.orValue([])) == 0 || size(self.?weightPriority.orValue([])) == 0",
        messages::PRIORITY_ONE_OF,
    ),
    always(
        "spec.updateStrategy.rollingUpdate.priorityStrategy.orderPriority[]",
        "self.orderedKey != ''",
        messages::ORDERED_KEY,
    ),
    always(
        "spec.updateStrategy.rollingUpdate.priorityStrategy.weightPriority[]",
        "self.weight >= 0 && self.weight <= 100",
        messages::WEIGHT,
    ),
    always(
        "spec.updateStrategy.rollingUpdate.priorityStrategy.weightPriority[].matchSelector",
        NOT_EMPTY,
        messages::MATCH_SELECTOR_EMPTY,
    ),
    always(
        "spec.updateStrategy.rollingUpdate.priorityStrategy.weightPriority[].matchSelector",
        WELL_FORMED,
        messages::OPERATORS,
    ),
    always(
        "spec.updateStrategy.rollingUpdate.scatterStrategy",
        "self.all(a, a.key != '' && self.exists_one(b, b.key == a.key && b.value == a.value))",
        messages::SCATTER,
    ),
    always(
        "spec.updateStrategy.rollingUpdate.inPlaceUpdateStrategy.imagePreDownloadParallelism",
        "type(self) == int ? self >= 0 : self.matches('^[0-9]+%?$')",
        messages::CLONE_PRE_DOWNLOAD,
    ),
];

/// Of `v1alpha1`.
pub(crate) const ALPHA: &[Rule] = &[
    always(
        "spec.updateStrategy",
        "self.?type.orValue('') in ['', 'ReCreate', 'InPlaceIfPossible', 'InPlaceOnly', 'OnDelete']",
        messages::CLONE_UPDATE_TYPE,
    ),
    always("spec.updateStrategy.partition", SHARE, messages::PARTITION),
    always("spec.updateStrategy.maxUnavailable", SHARE, messages::MAX_UNAVAILABLE),
    always("spec.updateStrategy.maxSurge", SHARE, messages::MAX_SURGE),
    across(
        ".updateStrategy.maxSurge",
        "$.?updateStrategy.?type.orValue('') != 'InPlaceOnly' \
         || ($.?updateStrategy.?maxSurge.orValue(0) == 0 || $.?updateStrategy.?maxSurge.orValue(0) == '0%')",
        messages::SURGE_IN_PLACE_ONLY,
    ),
    across(
        ".updateStrategy",
        "$.?replicas.orValue(1) == 0 \
         || !(($.?updateStrategy.?maxUnavailable.orValue('20%') == 0 || $.?updateStrategy.?maxUnavailable.orValue('20%') == '0%') \
         && ($.?updateStrategy.?maxSurge.orValue(0) == 0 || $.?updateStrategy.?maxSurge.orValue(0) == '0%'))",
        messages::NOTHING_MOVES,
    ),
    always(
        "spec.updateStrategy.priorityStrategy",
        "size(self.?orderPriority.orValue([])) == 0 || size(self.?weightPriority.orValue([])) == 0",
        messages::PRIORITY_ONE_OF,
    ),
    always(
        "spec.updateStrategy.priorityStrategy.orderPriority[]",
        "self.orderedKey != ''",
        messages::ORDERED_KEY,
    ),
    always(
        "spec.updateStrategy.priorityStrategy.weightPriority[]",
        "self.weight >= 0 && self.weight <= 100",
        messages::WEIGHT,
    ),
    always(
        "spec.updateStrategy.priorityStrategy.weightPriority[].matchSelector",
        NOT_EMPTY,
        messages::MATCH_SELECTOR_EMPTY,
    ),
    always(
        "spec.updateStrategy.priorityStrategy.weightPriority[].matchSelector",
        WELL_FORMED,
        messages::OPERATORS,
    ),
    always(
        "spec.updateStrategy.scatterStrategy",
        "self.all(a, a.key != '' && self.exists_one(b, b.key == a.key && b.value == a.value))",
        messages::SCATTER,
    ),
    always(
        "spec.updateStrategy.inPlaceUpdateStrategy.imagePreDownloadParallelism",
        "type(self) == int ? self >= 0 : self.matches('^[0-9]+%?$')",
        messages::CLONE_PRE_DOWNLOAD,
    ),
    across(
        ".progressDeadlineSeconds",
        "$.?progressDeadlineSeconds.orValue(2147483647) == 2147483647 || $.?minReadySeconds.orValue(0) == 2147483647 \
         || $.?progressDeadlineSeconds.orValue(2147483647) > $.?minReadySeconds.orValue(0)",
        messages::PROGRESS_DEADLINE,
    ),
];
