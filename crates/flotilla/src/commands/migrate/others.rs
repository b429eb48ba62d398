//! What else in the namespace is about the set: autoscalers name its kind, disruption budgets and Services select its pods.

use super::convert::other;
use crate::cluster::{Cluster, describe};
use crate::error::Error;
use flotilla_model::SetKind;
use http::Method;
use serde_json::{Value, json};

const MERGE: &str = "application/merge-patch+json";

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Others {
    /// Names of HorizontalPodAutoscalers that name the old kind.
    pub(super) autoscalers: Vec<String>,
    /// Names of PodDisruptionBudgets that select its pods.
    pub(super) budgets: Vec<String>,
    /// Names of Services that select its pods, or that it names.
    pub(super) services: Vec<String>,
}

impl Others {
    /// Looks.
    pub(super) async fn look(cluster: &Cluster, from: SetKind, set: &Value) -> Result<Self, Error> {
        let namespace = set["metadata"]["namespace"].as_str().unwrap_or_default();
        let list = async |group: &str, resource: &str| {
            let path = format!("{group}/namespaces/{namespace}/{resource}");
            cluster.list_at(&path, &format!("list {resource}")).await
        };
        let autoscalers = list("/apis/autoscaling/v2", "horizontalpodautoscalers").await?;
        let budgets = list("/apis/policy/v1", "poddisruptionbudgets").await?;
        let services = list("/api/v1", "services").await?;
        Ok(Others {
            autoscalers: names(&autoscalers, |scaler| {
                names_set(&scaler["spec"]["scaleTargetRef"], from, set)
            }),
            budgets: names(&budgets, |budget| {
                selects(&budget["spec"]["selector"]["matchLabels"], set)
            }),
            services: names(&services, |service| {
                selects(&service["spec"]["selector"], set) || service["metadata"]["name"] == set["spec"]["serviceName"]
            }),
        })
    }

    /// What whoever migrates should know.
    pub(super) fn notes(&self, from: SetKind, retarget: bool) -> Vec<String> {
        let mut notes = Vec::new();
        for name in &self.autoscalers {
            notes.push(if retarget {
                format!("horizontalpodautoscaler.autoscaling/{name} follows the set")
            } else {
                format!(
                    "horizontalpodautoscaler.autoscaling/{name} names {} and stops scaling; --retarget lets it follow",
                    from.resource().api_version()
                )
            });
        }
        let stay = |names: &[String], kind: &str| {
            (!names.is_empty()).then(|| format!("{kind}{} goes on as it is", names.join(", ")))
        };
        notes.extend(stay(&self.budgets, "poddisruptionbudget.policy/"));
        notes.extend(stay(&self.services, "service/"));
        notes
    }

    /// Lets autoscalers follow the set.
    pub(super) async fn retarget(&self, cluster: &Cluster, namespace: &str, from: SetKind) -> Result<(), Error> {
        let body = json!({"spec": {"scaleTargetRef": {"apiVersion": other(from).resource().api_version()}}});
        for name in &self.autoscalers {
            let path = format!(
                "/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers/{name}?fieldManager=flotilla-cli"
            );
            let sent = cluster.send(Method::PATCH, &path, Some((MERGE, &body))).await;
            sent.map_err(|e| describe(format!("change horizontalpodautoscaler.autoscaling/{name}"), &e))?;
        }
        Ok(())
    }
}

fn names(objects: &[Value], is_about: impl Fn(&Value) -> bool) -> Vec<String> {
    let found = objects.iter().filter(|object| is_about(object));
    found
        .filter_map(|o| o["metadata"]["name"].as_str().map(str::to_owned))
        .collect()
}

/// Whether a reference names the set, whatever version of its group it was written with.
fn names_set(reference: &Value, kind: SetKind, set: &Value) -> bool {
    let group = |version: &str| version.split_once('/').map(|(group, _)| group.to_owned());
    let version = reference["apiVersion"].as_str().unwrap_or_default();
    reference["kind"] == "StatefulSet"
        && reference["name"] == set["metadata"]["name"]
        && group(version) == group(kind.resource().api_version())
}

/// Whether these labels, of which there is at least one, are among those of the set's pods.
fn selects(labels: &Value, set: &Value) -> bool {
    let of_pods = &set["spec"]["template"]["metadata"]["labels"];
    labels
        .as_object()
        .is_some_and(|labels| !labels.is_empty() && labels.iter().all(|(k, v)| of_pods[k] == *v))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_told_by_group() {
        let set = json!({"metadata": {"name": "web"}});
        let names = |version: &str, kind| {
            names_set(
                &json!({"apiVersion": version, "kind": "StatefulSet", "name": "web"}),
                kind,
                &set,
            )
        };
        assert!(names("apps/v1", SetKind::Native) && !names("apps/v1", SetKind::Advanced));
        assert!(
            names("apps.kruise.io/v1alpha1", SetKind::Advanced) && !names("apps.kruise.io/v1beta1", SetKind::Native)
        );
    }

    #[test]
    fn selectors_select_by_all_of_their_labels() {
        let set = json!({"spec": {"template": {"metadata": {"labels": {"app": "web", "tier": "1"}}}}});
        assert!(selects(&json!({"app": "web"}), &set));
        assert!(!selects(&json!({"app": "web", "tier": "2"}), &set));
        assert!(!selects(&json!({}), &set) && !selects(&Value::Null, &set));
    }
}
