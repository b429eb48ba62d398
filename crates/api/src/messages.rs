//! What is said of a set that breaks a rule: by the API server, which checks the rules in CEL, and by admission.

/// On `metadata.name` (STS-1.1.9).
pub const NAME_LENGTH: &str =
    "the name of a set may have at most 52 characters, because the names of its revisions must fit into a label (63)";
/// On `podManagementPolicy`.
pub const POD_MANAGEMENT_POLICY: &str = "podManagementPolicy must be OrderedReady or Parallel";
/// On `reserveOrdinals`.
pub const RESERVED_ORDINAL: &str =
    "an entry of reserveOrdinals must be a number, 0 or more, or a range such as \"3-5\" of at most 1000000 ordinals";
/// On `scaleStrategy.maxUnavailable`.
pub const SCALE_BUDGET: &str =
    "scaleStrategy.maxUnavailable must be a number of at least 1 or a percentage from 1% to 100%";
/// On `scaleStrategy.maxUnavailable`.
pub const SCALE_BUDGET_PARALLEL: &str =
    "scaleStrategy.maxUnavailable can only be 1 unless podManagementPolicy is Parallel";
/// On `updateStrategy.type`.
pub const UPDATE_TYPE: &str = "updateStrategy.type must be RollingUpdate or OnDelete";
/// On `updateStrategy`.
pub const ROLLING_WITH_ON_DELETE: &str =
    "updateStrategy.rollingUpdate cannot be used when updateStrategy.type is OnDelete";
/// On `rollingUpdate.maxUnavailable`.
pub const UPDATE_BUDGET: &str =
    "rollingUpdate.maxUnavailable must be a number of at least 1 or a percentage from 1% to 100%";
/// On `rollingUpdate.maxUnavailable`.
pub const UPDATE_BUDGET_PARALLEL: &str =
    "rollingUpdate.maxUnavailable can only be 1 unless podManagementPolicy is Parallel";
/// On `podUpdatePolicy`.
pub const POD_UPDATE_POLICY: &str = "podUpdatePolicy must be ReCreate, InPlaceIfPossible or InPlaceOnly";
/// On `podUpdatePolicy`.
pub const IN_PLACE_GATE: &str = "podUpdatePolicy InPlaceIfPossible and InPlaceOnly need the condition InPlaceUpdateReady in template.spec.readinessGates";
/// On `unorderedUpdate`.
pub const UNORDERED_PARALLEL: &str = "unorderedUpdate can only be used when podManagementPolicy is Parallel";
/// On `priorityStrategy`.
pub const PRIORITY_ONE_OF: &str = "priorityStrategy must have orderPriority or weightPriority, not both";
/// On `orderPriority`.
pub const ORDERED_KEY: &str = "orderedKey must not be empty";
/// On `weightPriority`.
pub const WEIGHT: &str = "weight must be 0 to 100";
/// On `weightPriority`.
pub const MATCH_SELECTOR_EMPTY: &str = "matchSelector must not be empty";
/// On `imagePreDownloadParallelism`.
pub const PRE_DOWNLOAD_PARALLELISM: &str =
    "imagePreDownloadParallelism must be a number of at least 1 or a percentage from 1% to 100%";
/// On `persistentVolumeClaimRetentionPolicy`.
pub const WHEN_DELETED: &str = "persistentVolumeClaimRetentionPolicy.whenDeleted must be Retain or Delete";
/// On `persistentVolumeClaimRetentionPolicy`.
pub const WHEN_SCALED: &str = "persistentVolumeClaimRetentionPolicy.whenScaled must be Retain or Delete";
/// On `selector`.
pub const SELECTOR_EMPTY: &str = "selector must not be empty";
/// On `selector`.
pub const SELECTOR_MATCHES: &str = "selector must match template.metadata.labels";
/// On `selector`, after the label; not in CEL.
pub const SELECTOR_WRITTEN: &str = "is written on each pod with a value of its own, so that the set would not know its pods by it; selector must not name it";
/// On `template.metadata.labels`.
pub const TEMPLATE_LABELS: &str = "template.metadata.labels must have valid label keys";
/// On `template.metadata.annotations`.
pub const TEMPLATE_ANNOTATIONS: &str = "template.metadata.annotations must have valid keys";
/// On `template.spec.restartPolicy`.
pub const RESTART_POLICY: &str = "template.spec.restartPolicy must be Always";
/// On `template.spec.activeDeadlineSeconds`.
pub const ACTIVE_DEADLINE: &str = "template.spec.activeDeadlineSeconds cannot be used in a set";
/// On `template.spec.containers`.
pub const CONTAINERS: &str = "template.spec.containers must have at least one container";
/// On `lifecycle` and `selector`.
pub const HOOK_SELECTOR: &str = "labels of lifecycle hooks must not be labels of the selector";
/// On `labelsHandler`; not in CEL.
pub const HOOK_RESERVED: &str =
    "labels of lifecycle hooks must not be those that Kubernetes, OpenKruise or Flotilla write for pods";
/// On `volumeClaimUpdateStrategy.type`.
pub const CLAIM_UPDATE_TYPE: &str = "volumeClaimUpdateStrategy.type must be OnDelete or OnPodRollingUpdate";
/// On `volumeClaimTemplates`.
pub const CLAIM_NAMES: &str = "each of volumeClaimTemplates must have a metadata.name that no other has";
/// On `volumeClaimTemplates`: volumes of pods are named after them.
pub const CLAIM_NAME_LABEL: &str = "metadata.name of each of volumeClaimTemplates must be a name that a volume can have: a DNS label, of at most 63 lower-case \
    letters, digits and dashes";
/// On `specialPodsSelectors`.
pub const SPECIAL_SELECTOR_EMPTY: &str = "an entry of specialPodsSelectors must not be empty";
/// On changes of `selector`.
pub const SELECTOR_FIXED: &str = "selector cannot be changed";
/// On changes of `serviceName`.
pub const SERVICE_NAME_FIXED: &str = "serviceName cannot be changed";
/// On changes of `podManagementPolicy`.
pub const POD_MANAGEMENT_FIXED: &str = "podManagementPolicy cannot be changed";
/// On changes of `volumeClaimTemplates`.
pub const CLAIMS_ONLY_STORAGE: &str = "with volumeClaimUpdateStrategy.type OnPodRollingUpdate only the requested storage of volumeClaimTemplates can be changed";
/// On changes of `volumeClaimTemplates`; not in CEL, since it is other objects that say what was asked for before.
pub const CLAIMS_SMALLER: &str = "with volumeClaimUpdateStrategy.type OnPodRollingUpdate the requested storage of volumeClaimTemplates cannot be made smaller, \
    except back to what a recorded revision or the smallest existing claim asks for";
/// On the expressions of selectors.
pub const OPERATORS: &str = "operators are In and NotIn, with values, and Exists and DoesNotExist, without";
/// On each hook of `lifecycle`.
pub const HOOK_MARKS: &str = "a lifecycle hook needs labelsHandler or finalizersHandler";
/// On `labelsHandler`.
pub const HOOK_LABELS: &str = "labelsHandler must have valid label keys";
/// On `finalizersHandler`.
pub const HOOK_FINALIZERS: &str = "finalizersHandler must have qualified names, such as example.com/backup";
/// On changes of `template` with `InPlaceOnly`; not in CEL, since templates are open to unknown fields.
pub const IN_PLACE_ONLY: &str = "with podUpdatePolicy InPlaceOnly only images of containers, and quantities of cpu and memory that they \
    have already, can be changed in template.spec; for other changes use InPlaceIfPossible or ReCreate";
/// On `scaleStrategy.maxUnavailable` of a CloneSet.
pub const CLONE_SCALE_BUDGET: &str =
    "scaleStrategy.maxUnavailable must be a number, 0 or more, or a percentage such as 20% or 12.5%";
/// On `partition` of a CloneSet.
pub const PARTITION: &str = "partition must be a number, 0 or more, or a percentage such as 20% or 12.5%";
/// On `maxUnavailable` of a CloneSet.
pub const MAX_UNAVAILABLE: &str = "maxUnavailable must be a number, 0 or more, or a percentage such as 20% or 12.5%";
/// On `maxSurge`.
pub const MAX_SURGE: &str = "maxSurge must be a number, 0 or more, or a percentage such as 20% or 12.5%";
/// On `maxSurge`.
pub const SURGE_IN_PLACE_ONLY: &str = "maxSurge must be 0 with InPlaceOnly, since no pod is made anew";
/// On `maxUnavailable` and `maxSurge`.
pub const NOTHING_MOVES: &str = "maxUnavailable and maxSurge cannot both be 0, since nothing could be updated then";
/// On `scatterStrategy`.
pub const SCATTER: &str = "scatterStrategy must have keys that are not empty, and each pair of key and value once";
/// On `imagePreDownloadParallelism` of a CloneSet.
pub const CLONE_PRE_DOWNLOAD: &str = "imagePreDownloadParallelism must be a number, 0 or more, or a percentage";
/// On `updateStrategy.type` of a CloneSet of v1alpha1.
pub const CLONE_UPDATE_TYPE: &str = "updateStrategy.type must be ReCreate, InPlaceIfPossible, InPlaceOnly or OnDelete";
/// On `progressDeadlineSeconds`.
pub const PROGRESS_DEADLINE: &str = "progressDeadlineSeconds must be greater than minReadySeconds";
/// On `podsToDelete`; not in CEL, since the list has no bound.
pub const PODS_TO_DELETE_ONCE: &str = "podsToDelete must name each pod once";
/// On a name in `podsToDelete`; not in CEL, since it is about another object.
pub const POD_TO_DELETE_MISSING: &str = "podsToDelete must name pods that exist";
/// The same.
pub const POD_TO_DELETE_GOING: &str = "podsToDelete must name pods that are not being deleted already";
/// The same.
pub const POD_TO_DELETE_FOREIGN: &str = "podsToDelete must name pods of this set";
