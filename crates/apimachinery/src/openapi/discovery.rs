//! Discovery: which groups, versions and resources there are.
//!
//! The form that everything is kept in is `apidiscovery.k8s.io/v2` (one `APIGroupDiscovery` a group), which holds all that the older
//! forms say.

use serde_json::{Map, Value, json};

/// A resource that a custom resource definition gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Its name in paths.
    pub plural: String,
    /// Whether its objects live in namespaces.
    pub is_namespaced: bool,
    /// Whether the status is a subresource.
    pub has_status: bool,
    /// Whether it can be scaled.
    pub has_scale: bool,
}

/// The resource of a version of a definition.
pub fn resources_of(definition: &Value, version: &str) -> Option<Resource> {
    let spec = &definition["spec"];
    let version = spec["versions"].as_array()?.iter().find(|v| v["name"] == version)?;
    Some(Resource {
        plural: spec["names"]["plural"].as_str()?.to_owned(),
        is_namespaced: spec["scope"] == "Namespaced",
        has_status: version["subresources"]["status"].is_object(),
        has_scale: version["subresources"]["scale"].is_object(),
    })
}

const CUSTOM_VERBS: [&str; 8] = [
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];
const SUBRESOURCE_VERBS: [&str; 3] = ["get", "patch", "update"];

/// The `APIGroupDiscovery` of a group from the definitions in it; `None` if none of them serves a version.
pub fn custom_group<'d>(group: &str, definitions: impl IntoIterator<Item = &'d Value>) -> Option<Value> {
    let mut versions: Vec<(String, Vec<Value>)> = Vec::new();
    for definition in definitions.into_iter().filter(|d| d["spec"]["group"] == group) {
        let served = definition["spec"]["versions"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|v| v["served"] == true);
        for version in served.filter_map(|v| v["name"].as_str()) {
            let Some(resource) = custom_resource(definition, version) else {
                continue;
            };
            match versions.iter_mut().find(|(name, _)| name == version) {
                Some((_, resources)) => resources.push(resource),
                None => versions.push((version.to_owned(), vec![resource])),
            }
        }
    }
    versions.sort_by_key(|(name, _)| std::cmp::Reverse(priority(name)));
    let versions: Vec<_> = versions
        .into_iter()
        .map(|(version, resources)| json!({"version": version, "resources": resources, "freshness": "Current"}))
        .collect();
    (!versions.is_empty()).then(|| json!({"metadata": {"name": group}, "versions": versions}))
}

fn custom_resource(definition: &Value, version: &str) -> Option<Value> {
    let (spec, resource) = (&definition["spec"], resources_of(definition, version)?);
    let names = &spec["names"];
    let kind = names["kind"].as_str()?;
    let own = json!({"group": spec["group"], "version": version, "kind": kind});
    let singular = names["singular"]
        .as_str()
        .map_or_else(|| kind.to_lowercase(), str::to_owned);
    let mut entry = json!({
        "resource": resource.plural, "responseKind": own, "scope": spec["scope"], "singularResource": singular, "verbs": CUSTOM_VERBS,
    });
    for name in ["shortNames", "categories"] {
        if names[name].as_array().is_some_and(|list| !list.is_empty()) {
            entry[name] = names[name].clone();
        }
    }
    let mut subresources = Vec::new();
    if resource.has_status {
        subresources.push(json!({"subresource": "status", "responseKind": own, "verbs": SUBRESOURCE_VERBS}));
    }
    if resource.has_scale {
        let scale = json!({"group": "autoscaling", "version": "v1", "kind": "Scale"});
        subresources.push(json!({"subresource": "scale", "responseKind": scale, "verbs": SUBRESOURCE_VERBS}));
    }
    if !subresources.is_empty() {
        entry["subresources"] = Value::Array(subresources);
    }
    Some(entry)
}

/// Versions in the order of `k8s.io/apimachinery/pkg/version`: released ones, then beta, then alpha, newer ones first.
fn priority(version: &str) -> (u8, u64, u64, String) {
    let number = |text: &str| text.parse::<u64>().ok();
    let parsed = version.strip_prefix('v').and_then(|rest| {
        for (rank, word) in [(2, "beta"), (1, "alpha")] {
            if let Some((major, minor)) = rest.split_once(word) {
                return Some((rank, number(major)?, number(minor)?, String::new()));
            }
        }
        Some((3, number(rest)?, 0, String::new()))
    });
    parsed.unwrap_or_else(|| (0, 0, 0, version.to_owned()))
}

/// Aggregated discovery: the answer to `/api` (the core group) or `/apis` (the others) for `as=APIGroupDiscoveryList`.
pub fn groups_discovery(groups: &[Value]) -> Value {
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": groups})
}

/// The older answer to `/api`.
pub fn api_versions(server_address: &str) -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    })
}

/// The older answer to `/apis`.
pub fn group_list(groups: &[Value]) -> Value {
    let groups: Vec<_> = groups.iter().map(plain_group).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// The answer to `/apis/{group}`.
pub fn group(group: &Value) -> Value {
    let mut answer = plain_group(group);
    answer["kind"] = json!("APIGroup");
    answer["apiVersion"] = json!("v1");
    answer
}

fn plain_group(group: &Value) -> Value {
    let name = group["metadata"]["name"].as_str().unwrap_or_default();
    let versions = group["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|v| v["version"].as_str());
    let versions: Vec<_> = versions
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions.first()})
}

/// The older answer to `/api/v1` and `/apis/{group}/{version}`; `None` if the group has no such version.
pub fn resource_list(group: &Value, version: &str) -> Option<Value> {
    let name = group["metadata"]["name"].as_str().unwrap_or_default();
    let found = group["versions"].as_array()?.iter().find(|v| v["version"] == version)?;
    let group_version = if name.is_empty() {
        version.to_owned()
    } else {
        format!("{name}/{version}")
    };
    let mut resources = Vec::new();
    for resource in found["resources"].as_array().into_iter().flatten() {
        let plural = resource["resource"].as_str().unwrap_or_default();
        let is_namespaced = resource["scope"] == "Namespaced";
        let mut entry = plain_resource(plural.to_owned(), resource, is_namespaced, (name, version));
        entry.insert("singularName".to_owned(), resource["singularResource"].clone());
        resources.push(Value::Object(entry));
        for subresource in resource["subresources"].as_array().into_iter().flatten() {
            let path = format!("{plural}/{}", subresource["subresource"].as_str().unwrap_or_default());
            let entry = plain_resource(path, subresource, is_namespaced, (name, version));
            resources.push(Value::Object(entry));
        }
    }
    Some(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}))
}

fn plain_resource(name: String, resource: &Value, is_namespaced: bool, own: (&str, &str)) -> Map<String, Value> {
    let kind = &resource["responseKind"];
    let mut entry = Map::new();
    entry.insert("name".to_owned(), json!(name));
    entry.insert("singularName".to_owned(), json!(""));
    entry.insert("namespaced".to_owned(), json!(is_namespaced));
    let of = |field: &str| kind[field].as_str().unwrap_or_default();
    // Said only where it differs from the list's own; nothing stands for the same.
    if !of("version").is_empty() && (of("group"), of("version")) != own {
        entry.insert("group".to_owned(), json!(of("group")));
        entry.insert("version".to_owned(), json!(of("version")));
    }
    entry.insert("kind".to_owned(), kind["kind"].clone());
    for field in ["verbs", "shortNames", "categories"] {
        if let Some(value) = resource.get(field) {
            entry.insert(field.to_owned(), value.clone());
        }
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_preferred_as_kubernetes_does() {
        let mut versions = ["foo10", "v1", "v1alpha2", "v10", "v2", "v1beta1", "v1alpha1", "v2beta1"];
        versions.sort_by_key(|v| std::cmp::Reverse(priority(v)));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v2beta1", "v1beta1", "v1alpha2", "v1alpha1", "foo10"]
        );
    }

    /// Recorded from kube-apiserver 1.36 with Flotilla's definition of Advanced StatefulSet.
    #[test]
    fn a_definition_is_discovered_as_on_the_api_server() {
        let definition = json!({"spec": {
            "group": "apps.kruise.io", "scope": "Namespaced",
            "names": {"kind": "StatefulSet", "plural": "statefulsets", "singular": "statefulset", "shortNames": ["sts", "asts"]},
            "versions": [{"name": "v1beta1", "served": true, "subresources": {"status": {}, "scale": {}}}],
        }});
        let found = custom_group("apps.kruise.io", [&definition]).unwrap();
        let own = json!({"group": "apps.kruise.io", "version": "v1beta1", "kind": "StatefulSet"});
        assert_eq!(
            found,
            json!({"metadata": {"name": "apps.kruise.io"}, "versions": [{"version": "v1beta1", "freshness": "Current", "resources": [{
                "resource": "statefulsets", "responseKind": own, "scope": "Namespaced", "singularResource": "statefulset",
                "verbs": ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"],
                "shortNames": ["sts", "asts"],
                "subresources": [
                    {"subresource": "status", "responseKind": own, "verbs": ["get", "patch", "update"]},
                    {"subresource": "scale", "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
                     "verbs": ["get", "patch", "update"]},
                ],
            }]}]})
        );
        assert_eq!(
            group(&found),
            json!({
                "kind": "APIGroup", "apiVersion": "v1", "name": "apps.kruise.io",
                "versions": [{"groupVersion": "apps.kruise.io/v1beta1", "version": "v1beta1"}],
                "preferredVersion": {"groupVersion": "apps.kruise.io/v1beta1", "version": "v1beta1"},
            })
        );
        assert_eq!(
            resource_list(&found, "v1beta1").unwrap(),
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "apps.kruise.io/v1beta1", "resources": [
                {"name": "statefulsets", "singularName": "statefulset", "namespaced": true, "kind": "StatefulSet",
                 "verbs": ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"],
                 "shortNames": ["sts", "asts"]},
                {"name": "statefulsets/status", "singularName": "", "namespaced": true, "kind": "StatefulSet",
                 "verbs": ["get", "patch", "update"]},
                {"name": "statefulsets/scale", "singularName": "", "namespaced": true, "group": "autoscaling", "version": "v1",
                 "kind": "Scale", "verbs": ["get", "patch", "update"]},
            ]})
        );
    }
}
