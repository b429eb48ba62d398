//! The built-in kinds that are served: what kubectl and the manager need.

use super::TypeInfo;
use crate::store::StoreId;

/// One built-in kind.
pub(super) struct Row {
    group: &'static str,
    version: &'static str,
    pub(super) plural: &'static str,
    kind: &'static str,
    is_namespaced: bool,
    /// Short names and, after a bar, categories.
    names: &'static str,
    /// Which of `status`, `scale` and `generation` it has.
    has: &'static str,
    /// Nothing is stored: it is asked, and answers.
    pub(super) is_review: bool,
}

const fn row(
    path: (&'static str, &'static str, &'static str),
    kind: &'static str,
    names: &'static str,
    has: &'static str,
) -> Row {
    Row {
        group: path.0,
        version: path.1,
        plural: path.2,
        kind,
        is_namespaced: true,
        names,
        has,
        is_review: false,
    }
}

const fn cluster(row: Row) -> Row {
    Row {
        is_namespaced: false,
        ..row
    }
}

const fn review(row: Row) -> Row {
    Row {
        is_review: true,
        ..cluster(row)
    }
}

const CORE: &str = "";
const V1: &str = "v1";
const AUTHORIZATION: &str = "authorization.k8s.io";
const AUTHENTICATION: &str = "authentication.k8s.io";

pub(super) const TABLE: &[Row] = &[
    row((CORE, V1, "configmaps"), "ConfigMap", "cm", ""),
    row((CORE, V1, "endpoints"), "Endpoints", "ep", ""),
    row((CORE, V1, "events"), "Event", "ev", ""),
    row((CORE, V1, "limitranges"), "LimitRange", "limits", ""),
    cluster(row((CORE, V1, "namespaces"), "Namespace", "ns", "status")),
    cluster(row((CORE, V1, "nodes"), "Node", "no", "status")),
    row(
        (CORE, V1, "persistentvolumeclaims"),
        "PersistentVolumeClaim",
        "pvc",
        "status",
    ),
    cluster(row((CORE, V1, "persistentvolumes"), "PersistentVolume", "pv", "status")),
    row((CORE, V1, "pods"), "Pod", "po|all", "status generation"),
    row((CORE, V1, "resourcequotas"), "ResourceQuota", "quota", "status"),
    row((CORE, V1, "secrets"), "Secret", "", ""),
    row((CORE, V1, "serviceaccounts"), "ServiceAccount", "sa", ""),
    row((CORE, V1, "services"), "Service", "svc|all", "status"),
    row(("apps", V1, "controllerrevisions"), "ControllerRevision", "", ""),
    row(
        ("apps", V1, "statefulsets"),
        "StatefulSet",
        "sts|all",
        "status scale generation",
    ),
    row(("events.k8s.io", V1, "events"), "Event", "ev", ""),
    review(row(
        (AUTHENTICATION, V1, "selfsubjectreviews"),
        "SelfSubjectReview",
        "",
        "",
    )),
    review(row(
        (AUTHORIZATION, V1, "selfsubjectaccessreviews"),
        "SelfSubjectAccessReview",
        "",
        "",
    )),
    review(row(
        (AUTHORIZATION, V1, "selfsubjectrulesreviews"),
        "SelfSubjectRulesReview",
        "",
        "",
    )),
    row(
        ("policy", V1, "poddisruptionbudgets"),
        "PodDisruptionBudget",
        "pdb",
        "status generation",
    ),
    cluster(row(("storage.k8s.io", V1, "storageclasses"), "StorageClass", "sc", "")),
    cluster(row(
        ("apiextensions.k8s.io", V1, "customresourcedefinitions"),
        "CustomResourceDefinition",
        "crd,crds|api-extensions",
        "status generation",
    )),
    cluster(row(
        ("scheduling.k8s.io", V1, "priorityclasses"),
        "PriorityClass",
        "pc",
        "generation",
    )),
    row(("coordination.k8s.io", V1, "leases"), "Lease", "", ""),
];

impl Row {
    /// The group under whose name objects are stored.
    pub(super) fn storage_group(&self) -> &'static str {
        if self.plural == "events" { CORE } else { self.group }
    }

    pub(super) fn info(&self, store: StoreId) -> TypeInfo {
        let (short_names, categories) = self.names.split_once('|').unwrap_or((self.names, ""));
        let list = |text: &str| text.split(',').filter(|t| !t.is_empty()).map(str::to_owned).collect();
        TypeInfo {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            plural: self.plural.to_owned(),
            singular: self.kind.to_lowercase(),
            kind: self.kind.to_owned(),
            list_kind: format!("{}List", self.kind),
            is_namespaced: self.is_namespaced,
            short_names: list(short_names),
            categories: list(categories),
            has_status: self.has.contains("status"),
            has_scale: self.has.contains("scale"),
            has_generation: self.has.contains("generation"),
            store,
            custom: None,
        }
    }
}
