//! What there is of an installation, and in which order it goes.

use crate::cluster::Cluster;
use crate::error::Error;
use flotilla_install::{NAME, PART_OF, PART_OF_LABEL, Place, WEBHOOK_SERVICE, made_by_the_manager, place, superset};
use serde_json::Value;
use std::fmt;

/// Sets of our kinds, in all namespaces; with what one is called.
pub(super) const SETS: [(&str, &str); 2] = [
    ("/apis/apps.kruise.io/v1beta1/statefulsets", "statefulset"),
    ("/apis/apps.kruise.io/v1beta1/clonesets", "cloneset"),
];
/// Kinds of registrations.
const REGISTRATIONS: [(&str, &str); 2] = [
    ("mutatingwebhookconfiguration", "mutatingwebhookconfigurations"),
    ("validatingwebhookconfiguration", "validatingwebhookconfigurations"),
];

/// The path of a set of a kind.
pub(super) fn set_path(kind: &str, namespace: &str, name: &str) -> String {
    format!("/apis/apps.kruise.io/v1beta1/namespaces/{namespace}/{kind}s/{name}")
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Deletes an object.
    Delete { name: String, path: String },
    /// Ends conversion through our Service. Versions that are not the stored one are then not served either, here by place and name: without
    /// conversion the API server only rewrites `apiVersion`, and what is read and written through them lacks fields.
    StopConverting {
        name: String,
        path: String,
        unserved: Vec<(usize, String)>,
    },
    /// Deletes the Deployment and waits until its pods have ended.
    EndManagers { namespace: String, path: String },
    /// Deletes all sets with their pods.
    DeleteSets { count: usize },
    /// Deletes a definition.
    DeleteDefinition { name: String, path: String },
}

impl Action {
    /// What was done, for people.
    pub(super) fn done(&self) -> String {
        match self {
            Action::Delete { name, .. } => format!("{name} deleted"),
            Action::StopConverting { name, unserved, .. } => {
                let versions: Vec<&str> = unserved.iter().map(|(_, version)| version.as_str()).collect();
                let rest = if versions.is_empty() {
                    String::new()
                } else {
                    format!(
                        ", and {} is not served until a manager converts again",
                        versions.join(", ")
                    )
                };
                format!("{name} is no longer converted by Flotilla{rest}")
            }
            Action::EndManagers { .. } => format!("deployment.apps/{NAME} deleted, and its pods have ended"),
            Action::DeleteSets { count } => {
                format!("{count} Advanced StatefulSets and CloneSets deleted with their pods")
            }
            Action::DeleteDefinition { name, .. } => {
                format!("customresourcedefinition.apiextensions.k8s.io/{name} deleted")
            }
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Delete { name, .. } => write!(f, "delete {name}"),
            Action::StopConverting { name, .. } => write!(f, "stop converting {name}"),
            Action::EndManagers { .. } => write!(f, "delete deployment.apps/{NAME} and wait until its pods have ended"),
            Action::DeleteSets { count } => {
                write!(f, "delete {count} Advanced StatefulSets and CloneSets with their pods")
            }
            Action::DeleteDefinition { name, .. } => {
                write!(f, "delete customresourcedefinition.apiextensions.k8s.io/{name}")
            }
        }
    }
}

/// A definition that is converted through our Service.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Converted {
    name: String,
    path: String,
    /// Versions that are served and not stored, by their places.
    unstored: Vec<(usize, String)>,
}

impl Converted {
    /// Reads a definition, if it is one.
    fn of(live: &Value, place: &Place, namespace: &str) -> Option<Self> {
        if !converts_through_us(live, namespace) {
            return None;
        }
        let versions = live.pointer("/spec/versions").and_then(Value::as_array);
        let versions = versions.into_iter().flatten().enumerate();
        let unstored = versions.filter(|(_, version)| version["served"] == true && version["storage"] != true);
        Some(Converted {
            name: place.name.clone(),
            path: place.path.clone(),
            unstored: unstored
                .filter_map(|(index, version)| Some((index, version["name"].as_str()?.to_owned())))
                .collect(),
        })
    }
}

/// What there is.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    namespace: String,
    /// Namespace and name of each Advanced StatefulSet and CloneSet.
    pub(super) sets: Vec<String>,
    /// Registrations whose webhooks are all behind our Service.
    registrations: Vec<(String, String)>,
    /// Definitions that are converted through our Service.
    converted: Vec<Converted>,
    /// Our definitions.
    definitions: Vec<(String, String)>,
    has_deployment: bool,
    /// Everything else, in the order in which it was applied.
    others: Vec<(String, String)>,
}

impl Found {
    /// Looks.
    pub(super) async fn look(cluster: &Cluster, namespace: &str) -> Result<Self, Error> {
        let mut found = Found {
            namespace: namespace.to_owned(),
            ..Found::default()
        };
        for (kind, resource) in REGISTRATIONS {
            let collection = format!("/apis/admissionregistration.k8s.io/v1/{resource}");
            let objects = cluster.list_at(&collection, &format!("list {resource}")).await?;
            for object in objects.iter().filter(|object| is_ours(object, namespace)) {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let full = format!("{kind}.admissionregistration.k8s.io/{name}");
                found.registrations.push((full, format!("{collection}/{name}")));
            }
        }
        for place in superset(namespace).iter().map(place) {
            let Some(live) = cluster.get_at(&place.path, &format!("read {}", place.name)).await? else {
                continue;
            };
            let entry = (place.name.clone(), place.path.clone());
            match place.kind {
                "Namespace" => {}
                "CustomResourceDefinition" => {
                    let name = live["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                    found.converted.extend(Converted::of(&live, &place, namespace));
                    found.definitions.push((name, place.path));
                }
                "Deployment" => found.has_deployment = true,
                // Also while nothing is registered in it.
                "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
                    let is_new =
                        live["metadata"]["labels"][PART_OF_LABEL] == PART_OF && !found.registrations.contains(&entry);
                    found.registrations.extend(is_new.then_some(entry));
                }
                _ if live["metadata"]["labels"][PART_OF_LABEL] == PART_OF => found.others.push(entry),
                _ => {}
            }
        }
        for (resource, name) in made_by_the_manager() {
            let root = if resource == "leases" {
                "/apis/coordination.k8s.io/v1"
            } else {
                "/api/v1"
            };
            let path = format!("{root}/namespaces/{namespace}/{resource}/{name}");
            let shown = format!("{}/{name}", resource.trim_end_matches('s'));
            if cluster.get_at(&path, &format!("read {shown}")).await?.is_some() {
                found.others.insert(0, (shown, path));
            }
        }
        for (collection, kind) in SETS {
            let sets = cluster.list_at(collection, &format!("list {kind}s")).await?;
            found.sets.extend(sets.iter().map(full_name));
        }
        Ok(found)
    }

    /// Looks for definitions that are converted through our Service, and for nothing else: whoever asks for that may read little more.
    ///
    /// # Errors
    /// While managers are there, who would put it back.
    pub(super) async fn conversions(cluster: &Cluster, namespace: &str) -> Result<Self, Error> {
        let mut found = Found {
            namespace: namespace.to_owned(),
            ..Found::default()
        };
        let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{NAME}");
        let live = cluster.get_at(&path, &format!("read deployment.apps/{NAME}")).await?;
        let stays = |live: &Value| live["metadata"]["deletionTimestamp"].is_null() && live["spec"]["replicas"] != 0;
        if live.as_ref().is_some_and(stays) {
            return Err(Error::NotPossible(format!(
                "deployment.apps/{NAME} in namespace {namespace} runs managers, who convert versions and would go on with it; nothing was \
                 changed. To remove Flotilla as a whole, uninstall it"
            )));
        }
        let places = superset(namespace);
        for place in places
            .iter()
            .map(place)
            .filter(|place| place.kind == "CustomResourceDefinition")
        {
            let live = cluster.get_at(&place.path, &format!("read {}", place.name)).await?;
            found
                .converted
                .extend(live.and_then(|live| Converted::of(&live, &place, namespace)));
        }
        Ok(found)
    }

    /// Whether there are definitions of ours.
    pub(super) fn has_definitions(&self) -> bool {
        !self.definitions.is_empty()
    }

    /// What has to go so that nobody is held up.
    ///
    /// Where definitions go as well, all of their versions are served to the end: by them sets are found and deleted.
    pub(super) fn unblocking(&self, and_definitions: bool) -> Vec<Action> {
        let deleted = self.registrations.iter().map(|(name, path)| Action::Delete {
            name: name.clone(),
            path: path.clone(),
        });
        let freed = self.converted.iter().map(|converted| Action::StopConverting {
            name: converted.name.clone(),
            path: converted.path.clone(),
            unserved: if and_definitions {
                Vec::new()
            } else {
                converted.unstored.clone()
            },
        });
        deleted.chain(freed).collect()
    }

    /// Everything, in order.
    pub(super) fn actions(&self, and_delete_objects: bool) -> Vec<Action> {
        let mut actions = self.unblocking(and_delete_objects);
        if self.has_deployment {
            actions.push(Action::EndManagers {
                namespace: self.namespace.clone(),
                path: format!("/apis/apps/v1/namespaces/{}/deployments/{NAME}", self.namespace),
            });
        }
        // What was applied last goes first; rights go when nobody uses them any more.
        actions.extend(self.others.iter().rev().map(|(name, path)| Action::Delete {
            name: name.clone(),
            path: path.clone(),
        }));
        if and_delete_objects {
            if !self.sets.is_empty() {
                actions.push(Action::DeleteSets { count: self.sets.len() });
            }
            actions.extend(self.definitions.iter().map(|(name, path)| Action::DeleteDefinition {
                name: name.clone(),
                path: path.clone(),
            }));
        }
        actions
    }
}

fn full_name(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}

/// Whether all webhooks of a registration are behind our Service.
fn is_ours(registration: &Value, namespace: &str) -> bool {
    let webhooks = registration["webhooks"].as_array();
    let mut services = webhooks
        .into_iter()
        .flatten()
        .map(|w| &w["clientConfig"]["service"])
        .peekable();
    services.peek().is_some() && services.all(|service| is_our_service(service, namespace))
}

fn converts_through_us(definition: &Value, namespace: &str) -> bool {
    let service = definition.pointer("/spec/conversion/webhook/clientConfig/service");
    service.is_some_and(|service| is_our_service(service, namespace))
}

fn is_our_service(service: &Value, namespace: &str) -> bool {
    service["name"] == WEBHOOK_SERVICE && service["namespace"] == namespace
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pair(name: &str) -> (String, String) {
        (name.to_owned(), format!("/{name}"))
    }

    fn found() -> Found {
        Found {
            namespace: "here".to_owned(),
            sets: vec!["a/b".to_owned()],
            registrations: vec![pair("registration")],
            converted: vec![Converted {
                name: "converted".to_owned(),
                path: "/converted".to_owned(),
                unstored: vec![(1, "v1alpha1".to_owned())],
            }],
            definitions: vec![pair("definition")],
            has_deployment: true,
            others: vec![pair("lease"), pair("role"), pair("service")],
        }
    }

    #[test]
    fn what_blocks_others_goes_first_and_definitions_last() {
        let told = |delete: bool| {
            found()
                .actions(delete)
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        let mut wanted = vec![
            "delete registration",
            "stop converting converted",
            "delete deployment.apps/flotilla-manager and wait until its pods have ended",
            "delete service",
            "delete role",
            "delete lease",
        ];
        assert_eq!(told(false), wanted);
        wanted.extend([
            "delete 1 Advanced StatefulSets and CloneSets with their pods",
            "delete customresourcedefinition.apiextensions.k8s.io/definition",
        ]);
        assert_eq!(told(true), wanted);
    }

    /// Without conversion the API server only rewrites `apiVersion`.
    #[test]
    fn what_is_not_converted_any_more_is_not_served() {
        let definition = json!({"spec": {
            "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"service": {"name": WEBHOOK_SERVICE, "namespace": "here"}}}},
            "versions": [
                {"name": "v1beta1", "served": true, "storage": false}, {"name": "v1alpha1", "served": true, "storage": true},
                {"name": "v1", "served": false, "storage": false},
            ],
        }});
        let place = place(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}));
        let converted = Converted::of(&definition, &place, "here").expect("it is");
        assert_eq!(converted.unstored, [(0, "v1beta1".to_owned())]);
        assert_eq!(Converted::of(&definition, &place, "elsewhere"), None);
        let unserved = |and_definitions| {
            let actions = found().unblocking(and_definitions);
            let all = actions.into_iter().filter_map(|action| match action {
                Action::StopConverting { unserved, .. } => Some(unserved),
                _ => None,
            });
            all.flatten().collect::<Vec<_>>()
        };
        assert_eq!(unserved(false), [(1, "v1alpha1".to_owned())]);
        assert_eq!(unserved(true), [], "by them sets are found and deleted");
    }

    #[test]
    fn only_registrations_behind_our_service_are_ours() {
        let registration = |services: &[(&str, &str)]| {
            let webhooks: Vec<Value> = services
                .iter()
                .map(|(namespace, name)| json!({"clientConfig": {"service": {"namespace": namespace, "name": name}}}))
                .collect();
            json!({"webhooks": webhooks})
        };
        assert!(is_ours(&registration(&[("here", "flotilla-webhook")]), "here"));
        assert!(!is_ours(&registration(&[("there", "flotilla-webhook")]), "here"));
        assert!(!is_ours(
            &registration(&[("here", "flotilla-webhook"), ("x", "y")]),
            "here"
        ));
        assert!(!is_ours(&registration(&[]), "here"));
        assert!(!is_ours(
            &json!({"webhooks": [{"clientConfig": {"url": "https://x"}}]}),
            "here"
        ));
    }
}
