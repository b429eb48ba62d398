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
/// Annotations either of which marks the default StorageClass where it says `true`: Kubernetes goes by the former name of it, too.
pub const DEFAULT_STORAGE_CLASS: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];

/// Annotation of a claim or volume that names its StorageClass; it comes before the field.
pub const STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// The provisioner of storage classes whose volumes people make.
pub const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// Annotation of a ControllerRevision: the claim templates of that time, as JSON.
pub const CLAIM_TEMPLATES: &str = "flotilla.rs/claim-templates";
/// Annotation of a ControllerRevision of an Advanced StatefulSet: what each claim template asked for of storage while this was the update
/// revision, as far as the record of templates does not tell it, in bytes, oldest first, as JSON.
pub const CLAIM_SIZES: &str = "flotilla.rs/claim-sizes";
/// Annotation in that record, on a template that the set has no more.
pub const FORMER_CLAIM_TEMPLATE: &str = "flotilla.rs/former";
/// Label on pods: from which revision and with which claim templates their set made them. Webhooks of others change pods on
/// the way; what they do to one is not held against it.
pub const MADE_AS_LABEL: &str = "flotilla.rs/made-as";

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
/// Pod condition that gates readiness for lifecycle hooks; its message lists who holds it down.
pub const KRUISE_POD_READY: &str = "KruisePodReady";

/// Annotation of a pod: how far its update in place has come, as JSON.
pub const IN_PLACE_STATE: &str = "apps.kruise.io/inplace-update-state";
/// What [`IN_PLACE_STATE`] was called once: read, and removed on the next write.
pub const IN_PLACE_STATE_LEGACY: &str = "inplace-update-state";
/// Annotation of a pod: an update in place that begins when its grace period has ended, as JSON.
pub const IN_PLACE_GRACE: &str = "apps.kruise.io/inplace-update-grace";
/// What [`IN_PLACE_GRACE`] was called once: read, and removed on the next write.
pub const IN_PLACE_GRACE_LEGACY: &str = "inplace-update-grace";
/// Annotation of a pod: what the node agent found its containers to have been started from, as JSON.
pub const RUNTIME_CONTAINERS_META: &str = "apps.kruise.io/runtime-containers-meta";
/// Annotation of a pod: when [`LIFECYCLE_STATE_LABEL`] changed last.
pub const LIFECYCLE_TIMESTAMP: &str = "lifecycle.apps.kruise.io/timestamp";

/// Annotation of a pod: `Ordered` starts its containers in the order of the list.
pub const LAUNCH_PRIORITY: &str = "apps.kruise.io/container-launch-priority";
/// Environment entry of a container: its launch priority, an integer; higher starts first.
pub const LAUNCH_PRIORITY_ENV: &str = "KRUISE_CONTAINER_PRIORITY";
/// Environment entry of a container: the key of the barrier's config map without which the kubelet does not start it.
pub const LAUNCH_BARRIER_ENV: &str = "KRUISE_CONTAINER_BARRIER";
/// Label of a config map: it holds back containers of the pod that owns it until their turn has come.
pub const LAUNCH_BARRIER_LABEL: &str = "flotilla.rs/launch-barrier";
/// What the keys of that config map begin with; the priority follows.
pub const LAUNCH_BARRIER_KEY_PREFIX: &str = "p_";

/// The key for containers of this launch priority.
pub fn launch_barrier_key(priority: i64) -> String {
    format!("{LAUNCH_BARRIER_KEY_PREFIX}{priority}")
}

/// Opt-in on a pod: `started` takes containers without a readiness probe for ready once they have been started.
pub const LAUNCH_ON: &str = "flotilla.rs/launch-on";

/// Opt-in on a set: seconds after which an update in place that is not complete is reported.
pub const IN_PLACE_DEADLINE_SECONDS: &str = "flotilla.rs/in-place-deadline-seconds";
/// Opt-in on a set: `report` or `recreate`, what is done after [`IN_PLACE_DEADLINE_SECONDS`].
pub const IN_PLACE_DEADLINE_ACTION: &str = "flotilla.rs/in-place-deadline-action";
/// Opt-in on a set: containers, separated by commas, whose update alone leaves readiness as it is.
pub const KEEP_READY_CONTAINERS: &str = "flotilla.rs/keep-ready-containers";
/// Opt-in on a set: how long a deferred change of resources may wait before it is reported.
pub const RESIZE_WAIT_SECONDS: &str = "flotilla.rs/resize-wait-seconds";

/// Label of an object: `Always` or `Cascading` protects it from deletion.
pub const DELETE_PROTECTION_LABEL: &str = "policy.kruise.io/delete-protection";
/// Label of an object: `ignore` keeps webhooks of Flotilla away from it.
pub const WEBHOOKS_LABEL: &str = "flotilla.rs/webhooks";
/// Annotation of the managers' lease while nobody holds it: up to which version of each kind the writes of its last holder went.
pub const LAST_WRITES: &str = "flotilla.rs/last-writes";
/// Annotation of the managers' lease: the kinds of sets that its holder looks after, such as `3;clonesets.apps.kruise.io,statefulsets.apps`. The
/// number is `leaseTransitions`: with another it is of a former holder.
pub const LOOKS_AFTER: &str = "flotilla.rs/looks-after";
/// Annotation of an object read through an older version: fields that this version lacks, as JSON.
pub const HUB_FIELDS: &str = "flotilla.rs/hub-fields";

/// Opt-in on a set: `true` lets a pod on an unreachable node occupy its place without holding up others.
pub const SKIP_UNREACHABLE: &str = "flotilla.rs/skip-unreachable";
/// What [`UPDATE_TYPE`] does with a type that takes no pod away: nothing.
pub static WITH_ON_DELETE: (&str, &str) = (
    UPDATE_TYPE,
    "does nothing with updateStrategy.type OnDelete: a pod is updated when somebody deletes it",
);
/// Switches that are accepted and do nothing yet, each with what happens instead.
pub static NOT_YET: [(&str, &str); 2] = [
    (
        SKIP_UNREACHABLE,
        "does nothing yet: pods on unreachable nodes hold up others as they do without it",
    ),
    (
        NODE_FAILURE_POLICY,
        "does nothing yet: pods on failed nodes stay until somebody deletes them",
    ),
];
/// Opt-in on a set: `true` pulls images ahead also of updates that make pods anew.
pub const PRE_DOWNLOAD_RECREATE: &str = "flotilla.rs/pre-download-recreate";
/// Opt-in on a set: the NodeFailurePolicy by which its pods are recovered from failed nodes.
pub const NODE_FAILURE_POLICY: &str = "flotilla.rs/node-failure-policy";
/// Variables that injected sidecars get: they refer to metadata and never make a container restart.
pub const ENV_NOT_COUNTED: [&str; 2] = ["SIDECARSET_VERSION", "SIDECARSET_VERSION_ALT"];

/// Label of a pod of a CloneSet and of its claims: the five letters at the end of the pod's name.
pub const INSTANCE_ID_LABEL: &str = "apps.kruise.io/cloneset-instance-id";
/// Label of a pod of a CloneSet: the hash at the end of the name of the revision it was made from.
pub const TEMPLATE_HASH_LABEL: &str = "pod-template-hash";
/// Annotation of a pod: pods with a lower number are deleted first.
pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// Annotation of a ControllerRevision of a CloneSet: the hash of the claim templates of that time.
pub const CLAIM_TEMPLATES_HASH: &str = "kruise.io/cloneset-volumeclaimtemplate-hash";
/// Label of a CloneSet of v1alpha1, where v1beta1 has `scaleStrategy.excludePreparingDelete`.
pub const EXCLUDE_PREPARING_DELETE: &str = "apps.kruise.io/cloneset-scaling-exclude-preparing-delete";
/// Annotation of a set, where newer versions have a field: on how many nodes images are pulled at once ahead of an update.
pub const PRE_DOWNLOAD_PARALLELISM: &str = "apps.kruise.io/image-predownload-parallelism";
/// Annotation of a set, where newer versions have a field: how many seconds a pull may take.
pub const PRE_DOWNLOAD_TIMEOUT: &str = "apps.kruise.io/image-predownload-timeout-seconds";
/// Annotation of a set, where newer versions have a field: how many pods must be updated and ready before images are pulled.
pub const PRE_DOWNLOAD_MIN_UPDATED_READY: &str = "apps.kruise.io/image-predownload-min-updated-ready-pods";
/// Label of a ControllerRevision: its images have been asked for ahead of the update to it.
pub const PRE_DOWNLOAD_CREATED_LABEL: &str = "apps.kruise.io/pre-predownload-created";
/// Label of a ControllerRevision: its images are not pulled ahead of the update to it.
pub const PRE_DOWNLOAD_IGNORED_LABEL: &str = "apps.kruise.io/image-predownload-ignored";

/// Where labels and annotations of our own are.
pub const DOMAIN: &str = "flotilla.rs/";
/// Labels by which sets and programs know pods, and that are written for them: nobody's lifecycle hook may use them, nor any in
/// [`DOMAIN`].
pub const POD_LABELS: [&str; 7] = [
    REVISION_LABEL,
    TEMPLATE_HASH_LABEL,
    POD_NAME_LABEL,
    POD_INDEX_LABEL,
    INSTANCE_ID_LABEL,
    SPECIFIED_DELETE_LABEL,
    LIFECYCLE_STATE_LABEL,
];

/// Opt-in on a CloneSet: `true` lets a raised partition move new pods back to the current revision.
pub const PARTITION_ROLLBACK: &str = "flotilla.rs/partition-rollback";
/// Opt-in on a CloneSet: `true` uses `maxSurge` also for updates that can be made in place.
pub const SURGE_IN_PLACE: &str = "flotilla.rs/surge-in-place";
/// Opt-in on a CloneSet: `true` makes pods anew when the claim templates changed with the template.
pub const RECREATE_ON_CLAIM_CHANGE: &str = "flotilla.rs/recreate-on-claim-change";
/// Opt-in on a CloneSet: `true` hands id and claims of a pod that is made anew to its replacement.
pub const KEEP_CLAIMS_ON_RECREATE: &str = "flotilla.rs/keep-claims-on-recreate";
/// Opt-in on a CloneSet: `true` takes pods that match the selector and that nobody manages.
pub const ADOPT_ORPHANS: &str = "flotilla.rs/adopt-orphans";
/// Opt-in on a CloneSet: `delete` deletes pods that have ended once there are enough others; `keep` leaves them.
pub const FINISHED_PODS: &str = "flotilla.rs/finished-pods";
/// Annotation of a claim: its version when a new pod of a CloneSet took it. What was to become of it before does not happen any more.
pub const CLAIM_TAKEN_AT: &str = "flotilla.rs/taken-at-version";
/// Annotation of a claim: the UID of the pod that an update makes again, for whose replacement the claim is kept.
pub const KEPT_FROM: &str = "flotilla.rs/kept-from";
/// Annotation of a pod: the update, and nobody else, asked for it to be deleted.
pub const REPLACED_BY_UPDATE: &str = "flotilla.rs/replaced-by-update";
/// Annotation of a pod of a CloneSet, and of its claims: the pod's name, where an update made it beyond the replicas (CS-13.8).
pub const MADE_AS_SURGE: &str = "flotilla.rs/made-as-surge";

/// Labels and annotations of a pod by which one pod is asked for something, or its own course is noted: no template gives them to all.
pub const OF_ONE_POD: [&str; 11] = [
    REVISION_LABEL,
    RUNTIME_CONTAINERS_META,
    SPECIFIED_DELETE_LABEL,
    LIFECYCLE_STATE_LABEL,
    LIFECYCLE_TIMESTAMP,
    REPLACED_BY_UPDATE,
    MADE_AS_SURGE,
    IN_PLACE_STATE,
    IN_PLACE_STATE_LEGACY,
    IN_PLACE_GRACE,
    IN_PLACE_GRACE_LEGACY,
];
/// What pods of StatefulSets are known by, beside. To a CloneSet these are labels as any.
pub const OF_ONE_POD_OF_A_STATEFULSET: [&str; 3] = [POD_NAME_LABEL, POD_INDEX_LABEL, MADE_AS_LABEL];
/// What pods of CloneSets are known by, beside. To a StatefulSet these are labels as any.
pub const OF_ONE_POD_OF_A_CLONESET: [&str; 2] = [INSTANCE_ID_LABEL, TEMPLATE_HASH_LABEL];
/// Labels that are written on pods of a StatefulSet one by one, some as soon as they are made: no selector can name them, as pods would come
/// and go from the set by them.
pub const WRITTEN_ON_PODS_OF_A_STATEFULSET: [&str; 6] = [
    REVISION_LABEL,
    MADE_AS_LABEL,
    SPECIFIED_DELETE_LABEL,
    LIFECYCLE_STATE_LABEL,
    POD_NAME_LABEL,
    POD_INDEX_LABEL,
];
/// The same of a CloneSet.
pub const WRITTEN_ON_PODS_OF_A_CLONESET: [&str; 6] = [
    REVISION_LABEL,
    MADE_AS_LABEL,
    SPECIFIED_DELETE_LABEL,
    LIFECYCLE_STATE_LABEL,
    INSTANCE_ID_LABEL,
    TEMPLATE_HASH_LABEL,
];
/// Annotation of a native set that is paused: the partition that it goes back to.
pub const PARTITION_BEFORE_PAUSE: &str = "flotilla.rs/partition-before-pause";

/// Annotations that somebody may set on a set, or that tools of OpenKruise leave there. Any other under our own name does nothing.
pub const ANNOTATIONS: [&str; 25] = [
    UNBLOCK,
    UNBLOCK_AFTER_SECONDS,
    ORDERED_MAX_UNAVAILABLE,
    PAUSED_KEEPS_REVISION,
    UPDATE_TYPE,
    SCALE_DOWN,
    CLAIM_LABELS,
    IN_PLACE_DEADLINE_SECONDS,
    IN_PLACE_DEADLINE_ACTION,
    KEEP_READY_CONTAINERS,
    RESIZE_WAIT_SECONDS,
    HUB_FIELDS,
    SKIP_UNREACHABLE,
    PRE_DOWNLOAD_RECREATE,
    NODE_FAILURE_POLICY,
    PRE_DOWNLOAD_PARALLELISM,
    PRE_DOWNLOAD_TIMEOUT,
    PRE_DOWNLOAD_MIN_UPDATED_READY,
    PARTITION_ROLLBACK,
    SURGE_IN_PLACE,
    RECREATE_ON_CLAIM_CHANGE,
    KEEP_CLAIMS_ON_RECREATE,
    ADOPT_ORPHANS,
    FINISHED_PODS,
    PARTITION_BEFORE_PAUSE,
];
