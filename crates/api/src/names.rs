//! Well-known labels, annotations and condition types: strings that users, tools or other controllers match.

/// Label of a pod: the full name of the ControllerRevision it was made from.
pub const REVISION_LABEL: &str = "controller-revision-hash";
/// Label of a ControllerRevision: the hash part of its name.
pub const REVISION_HASH_LABEL: &str = "controller.kubernetes.io/hash";
/// Label of a pod of a StatefulSet: its own name, so that a Service can select one pod.
pub const POD_NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
/// Label of a pod of a StatefulSet: its ordinal.
pub const POD_INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";
/// Label of a pod: whoever sets it (any value) asks for the pod to be recreated under the same ordinal.
pub const SPECIFIED_DELETE_LABEL: &str = "apps.kruise.io/specified-delete";
/// Label of a pod: its place in the lifecycle. Absent counts as `Normal`.
pub const LIFECYCLE_STATE_LABEL: &str = "lifecycle.apps.kruise.io/state";
/// Annotation of a claim: the Advanced StatefulSet that expands it.
pub const CLAIM_EXPANDED_BY: &str = "apps.kruise.io/owned-by-asts";
/// Annotation that marks the default StorageClass.
pub const DEFAULT_STORAGE_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// Annotation of a ControllerRevision: the claim templates of that time, as JSON.
pub const CLAIM_TEMPLATES: &str = "flotilla.rs/claim-templates";

/// Opt-in on a set: `broken-first` lets an old, unavailable pod be replaced although the order would wait.
pub const UNBLOCK: &str = "flotilla.rs/unblock";
/// Opt-in on a set: for how many seconds a pod must have been bad before [`UNBLOCK`] applies to it.
pub const UNBLOCK_AFTER_SECONDS: &str = "flotilla.rs/unblock-after-seconds";
/// Opt-in on a set: budget above 1 under OrderedReady.
pub const ORDERED_MAX_UNAVAILABLE: &str = "flotilla.rs/ordered-max-unavailable";
/// Opt-in on a set: while paused, a recreated pod keeps the revision it had.
pub const PAUSED_KEEPS_REVISION: &str = "flotilla.rs/paused-keeps-revision";
/// Opt-in on a set: `Recreate` deletes all old pods before new ones are made.
pub const UPDATE_TYPE: &str = "flotilla.rs/update-type";
/// Opt-in on a set: `ignore-unhealthy` lets a scale-down go on although other pods are unhealthy.
pub const SCALE_DOWN: &str = "flotilla.rs/scale-down";
/// Opt-in on a set: `propagate` carries labels and annotations of claim templates to existing claims.
pub const CLAIM_LABELS: &str = "flotilla.rs/claim-labels";

/// Pod condition that gates readiness during in-place updates.
pub const IN_PLACE_UPDATE_READY: &str = "InPlaceUpdateReady";
