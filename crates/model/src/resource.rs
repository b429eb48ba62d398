//! The API resources that Flotilla reads or writes: a closed set.

use crate::meta::ObjectKey;
use std::fmt;

/// One resource of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// core/v1 Pod.
    Pods,
    /// core/v1 PersistentVolumeClaim.
    Claims,
    /// core/v1 ConfigMap; of these only the barriers of launch priorities are watched, see [`Resource::selector`].
    ConfigMaps,
    /// apps/v1 ControllerRevision.
    Revisions,
    /// apps/v1 StatefulSet.
    NativeSets,
    /// apps.kruise.io/v1beta1 StatefulSet.
    AdvancedSets,
    /// apps.kruise.io/v1beta1 CloneSet.
    CloneSets,
    /// core/v1 Node, for its labels alone.
    Nodes,
    /// storage.k8s.io/v1 StorageClass.
    StorageClasses,
    /// apps.kruise.io ImagePullJob, of which metadata alone is kept; see [`Resource::is_optional`].
    ImagePullJobs,
    /// coordination.k8s.io/v1 Lease.
    Leases,
    /// events.k8s.io/v1 Event.
    Events,
}

impl Resource {
    /// All of them.
    pub const ALL: [Resource; 12] = [
        Resource::Pods,
        Resource::Claims,
        Resource::ConfigMaps,
        Resource::Revisions,
        Resource::NativeSets,
        Resource::AdvancedSets,
        Resource::CloneSets,
        Resource::Nodes,
        Resource::StorageClasses,
        Resource::ImagePullJobs,
        Resource::Leases,
        Resource::Events,
    ];

    /// Group and version, as written in manifests.
    pub const fn api_version(self) -> &'static str {
        match self {
            Resource::Pods | Resource::Claims | Resource::ConfigMaps | Resource::Nodes => "v1",
            Resource::Revisions | Resource::NativeSets => "apps/v1",
            Resource::AdvancedSets | Resource::CloneSets | Resource::ImagePullJobs => "apps.kruise.io/v1beta1",
            Resource::StorageClasses => "storage.k8s.io/v1",
            Resource::Leases => "coordination.k8s.io/v1",
            Resource::Events => "events.k8s.io/v1",
        }
    }

    /// The kind, as written in manifests.
    pub const fn kind(self) -> &'static str {
        match self {
            Resource::Pods => "Pod",
            Resource::Claims => "PersistentVolumeClaim",
            Resource::ConfigMaps => "ConfigMap",
            Resource::Revisions => "ControllerRevision",
            Resource::NativeSets | Resource::AdvancedSets => "StatefulSet",
            Resource::CloneSets => "CloneSet",
            Resource::Nodes => "Node",
            Resource::StorageClasses => "StorageClass",
            Resource::ImagePullJobs => "ImagePullJob",
            Resource::Leases => "Lease",
            Resource::Events => "Event",
        }
    }

    /// The resource's name in URLs.
    pub const fn plural(self) -> &'static str {
        match self {
            Resource::Pods => "pods",
            Resource::Claims => "persistentvolumeclaims",
            Resource::ConfigMaps => "configmaps",
            Resource::Revisions => "controllerrevisions",
            Resource::NativeSets | Resource::AdvancedSets => "statefulsets",
            Resource::CloneSets => "clonesets",
            Resource::Nodes => "nodes",
            Resource::StorageClasses => "storageclasses",
            Resource::ImagePullJobs => "imagepulljobs",
            Resource::Leases => "leases",
            Resource::Events => "events",
        }
    }

    /// The label that objects must have to be watched; `None` if all are.
    pub const fn selector(self) -> Option<&'static str> {
        match self {
            Resource::ConfigMaps => Some(flotilla_api::names::LAUNCH_BARRIER_LABEL),
            _ => None,
        }
    }

    /// A version in which an API server may serve it that does not serve [`Resource::api_version`]. What we write of it is the same in
    /// both.
    pub const fn older_version(self) -> Option<&'static str> {
        match self {
            Resource::ImagePullJobs => Some("apps.kruise.io/v1alpha1"),
            _ => None,
        }
    }

    /// Whether the manager does its work without it: others define it, and may not have, and nothing waits for what is told of it.
    pub const fn is_optional(self) -> bool {
        matches!(self, Resource::ImagePullJobs)
    }

    /// Whether a custom resource definition makes it known: where there is none, there are no objects of it either. A built-in kind is always
    /// there, whatever stands between us and the API server answers.
    pub const fn is_custom(self) -> bool {
        matches!(
            self,
            Resource::AdvancedSets | Resource::CloneSets | Resource::ImagePullJobs
        )
    }

    /// Whether nothing but metadata is asked for when it is listed and watched.
    pub const fn is_metadata_only(self) -> bool {
        matches!(self, Resource::ImagePullJobs)
    }

    /// Whether objects live in namespaces.
    pub const fn is_namespaced(self) -> bool {
        !matches!(self, Resource::StorageClasses | Resource::Nodes)
    }

    /// Whether the server speaks protobuf for it (built-in kinds), and we read so little of it that this pays.
    pub const fn is_protobuf(self) -> bool {
        matches!(
            self,
            Resource::Pods | Resource::Claims | Resource::Revisions | Resource::ConfigMaps | Resource::Nodes
        )
    }

    /// URL path of the collection in one namespace, or in all.
    pub fn collection_path(self, namespace: Option<&str>) -> String {
        let version = self.api_version();
        let root = if version == "v1" { "api" } else { "apis" };
        match namespace.filter(|_| self.is_namespaced()) {
            Some(ns) => format!("/{root}/{version}/namespaces/{ns}/{}", self.plural()),
            None => format!("/{root}/{version}/{}", self.plural()),
        }
    }

    /// Its API group; empty for the core.
    pub fn group(self) -> &'static str {
        self.api_version().split_once('/').map_or("", |(group, _)| group)
    }

    /// URL path of one object.
    pub fn object_path(self, key: &ObjectKey, subresource: Option<&str>) -> String {
        let mut path = format!("{}/{}", self.collection_path(Some(&key.namespace)), key.name);
        if let Some(sub) = subresource {
            path.push('/');
            path.push_str(sub);
        }
        path
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = self.group();
        if group.is_empty() {
            f.write_str(self.plural())
        } else {
            write!(f, "{}.{group}", self.plural())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_api() {
        let key = ObjectKey::new("prod", "web-0");
        assert_eq!(
            Resource::Pods.object_path(&key, Some("status")),
            "/api/v1/namespaces/prod/pods/web-0/status"
        );
        assert_eq!(
            Resource::AdvancedSets.collection_path(Some("prod")),
            "/apis/apps.kruise.io/v1beta1/namespaces/prod/statefulsets"
        );
        assert_eq!(
            Resource::StorageClasses.collection_path(Some("x")),
            "/apis/storage.k8s.io/v1/storageclasses"
        );
        assert_eq!(Resource::AdvancedSets.to_string(), "statefulsets.apps.kruise.io");
    }
}
