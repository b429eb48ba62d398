//! From a URL path to what is meant.

use crate::store::Server;
use crate::types::TypeInfo;
use flotilla_apimachinery::status::Status;
use std::sync::Arc;

/// What a path leads to.
#[derive(Clone, Debug)]
pub(crate) enum Route {
    /// Something that is not a resource: discovery, health, version.
    Plain(String),
    /// A collection, an object, or a subresource.
    Resource(Target),
}

/// A collection, an object, or a subresource.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) info: Arc<TypeInfo>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
    /// The path begins with `watch`, as it was done long ago.
    pub(crate) is_watch: bool,
}

impl Target {
    /// Objects are created in one namespace.
    pub(crate) fn can_create(&self) -> bool {
        !self.info.is_namespaced || self.namespace.is_some()
    }

    pub(crate) fn can_delete_collection(&self) -> bool {
        self.can_create() && !matches!(self.info.plural.as_str(), "namespaces")
    }

    /// Namespace and name of the object.
    pub(crate) fn key(&self) -> flotilla_model::ObjectKey {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        flotilla_model::ObjectKey::new(namespace, self.name.as_deref().unwrap_or_default())
    }
}

/// Kinds that every real cluster has and this one has not, so that whoever asks for them is told so by name.
const ELSEWHERE: &[(&str, &[&str])] = &[
    ("", &["podtemplates", "replicationcontrollers"]),
    ("apps", &["daemonsets", "deployments", "replicasets"]),
    ("autoscaling", &["horizontalpodautoscalers"]),
    ("batch", &["cronjobs", "jobs"]),
    ("discovery.k8s.io", &["endpointslices"]),
    ("networking.k8s.io", &["ingressclasses", "ingresses", "networkpolicies"]),
    (
        "rbac.authorization.k8s.io",
        &["clusterrolebindings", "clusterroles", "rolebindings", "roles"],
    ),
    (
        "admissionregistration.k8s.io",
        &[
            "mutatingwebhookconfigurations",
            "validatingadmissionpolicies",
            "validatingwebhookconfigurations",
        ],
    ),
    ("storage.k8s.io", &["csidrivers", "csinodes", "volumeattachments"]),
];

/// 404 for a path that leads nowhere.
pub(crate) fn no_such_path() -> Status {
    Status {
        details: Some(serde_json::Map::new()),
        ..Status::new(404, "NotFound", "the server could not find the requested resource")
    }
}

/// 404 for a path of which not even the group is known; it is answered as a plain text.
pub(crate) fn no_such_group() -> Status {
    Status::new(404, "", "404 page not found\n")
}

pub(crate) fn parse(server: &Server, path: &str) -> Result<Route, Status> {
    let segments: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
    let (group, version, rest) = match segments.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => return Ok(Route::Plain(format!("/{}", segments.join("/")))),
    };
    let (is_watch, rest) = match rest {
        ["watch", rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let (namespace, rest) = match rest {
        // The namespace itself, and its subresources.
        ["namespaces"] | ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => (None, rest),
        ["namespaces", namespace, rest @ ..] => (Some((*namespace).to_owned()), rest),
        rest => (None, rest),
    };
    let [plural, rest @ ..] = rest else {
        return Err(no_such_path());
    };
    let is_served = server
        .types
        .all()
        .iter()
        .any(|t| t.group == group && t.plural == *plural);
    if !is_served
        && ELSEWHERE
            .iter()
            .any(|(known, plurals)| *known == group && plurals.contains(plural))
    {
        let dot = if group.is_empty() { "" } else { "." };
        let message =
            format!("the simulated API server does not serve {plural}{dot}{group}: nothing here would act on them");
        return Err(Status::new(501, "NotImplemented", message));
    }
    if !server.types.all().iter().any(|t| t.group == group) {
        return Err(no_such_group());
    }
    let info = server.types.find(group, version, plural).ok_or_else(no_such_path)?;
    if info.is_namespaced != (namespace.is_some() || rest.is_empty()) && (namespace.is_some() || !rest.is_empty()) {
        return Err(no_such_path());
    }
    if rest.len() > 2 {
        return Err(no_such_path());
    }
    Ok(Route::Resource(Target {
        info: info.clone(),
        namespace,
        name: rest.first().map(|name| (*name).to_owned()),
        subresource: rest.get(1).map(|sub| (*sub).to_owned()),
        is_watch,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str) -> Option<String> {
        let Route::Resource(target) = parse(&Server::default(), path).ok()? else {
            return Some("plain".into());
        };
        let part = |part: &Option<String>| part.clone().unwrap_or_else(|| "-".into());
        Some(format!(
            "{} {} {} {}",
            target.info.plural,
            part(&target.namespace),
            part(&target.name),
            part(&target.subresource)
        ))
    }

    #[test]
    fn paths_lead_to_resources() {
        let rows = [
            ("/api/v1/pods", Some("pods - - -")),
            ("/api/v1/namespaces/a/pods/p", Some("pods a p -")),
            ("/api/v1/namespaces/a/pods/p/binding", Some("pods a p binding")),
            ("/api/v1/namespaces/a", Some("namespaces - a -")),
            ("/api/v1/namespaces/a/finalize", Some("namespaces - a finalize")),
            (
                "/apis/apps/v1/namespaces/a/statefulsets/s/scale",
                Some("statefulsets a s scale"),
            ),
            ("/api/v1/nodes/n", Some("nodes - n -")),
            ("/api/v1/pods/p", None),
            ("/api/v1/namespaces/a/nodes/n", None),
            ("/api/v1/nonsense", None),
            ("/apis/apps/v9/statefulsets", None),
            ("/api/v1", Some("plain")),
            ("/version", Some("plain")),
        ];
        for (path, expected) in rows {
            assert_eq!(target(path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn what_other_clusters_have_is_refused_by_name() {
        let server = Server::default();
        for (path, code, words) in [
            (
                "/apis/apps/v1/namespaces/a/deployments/d",
                501,
                "does not serve deployments.apps",
            ),
            ("/apis/batch/v1/jobs", 501, "does not serve jobs.batch"),
            ("/apis/apps/v1/nonsense", 404, "could not find"),
        ] {
            let status = parse(&server, path).unwrap_err();
            assert!(
                status.code == code && status.message.contains(words),
                "{path}: {status:?}"
            );
        }
    }
}
