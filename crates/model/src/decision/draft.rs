//! A pod to be created: the template it shares with its siblings, and the few things that are its own.

use super::{Body, Command, Report};
use crate::meta::{ObjectKey, OwnerRef};
use crate::resource::Resource;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// What a new pod is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct PodDraft {
    /// Namespace and name.
    pub key: ObjectKey,
    /// `metadata.generateName`.
    pub generate_name: Arc<str>,
    /// The pod template, whole: what we do not know of it reaches the pod all the same.
    pub template: Arc<Value>,
    /// Labels and annotations of the template that the pod does not get.
    pub withheld: Vec<&'static str>,
    /// Labels beyond the template's; these win.
    pub labels: Vec<(&'static str, String)>,
    /// Annotations beyond the template's; these win.
    pub annotations: Vec<(&'static str, String)>,
    /// Readiness gates beyond the template's.
    pub gates: &'static [&'static str],
    /// The managing owner.
    pub owner: Arc<OwnerRef>,
    /// `spec.hostname` and `spec.subdomain`.
    pub host: Option<(String, Arc<str>)>,
    /// Volumes that mount claims, as (volume, claim), in template order. They replace template volumes of the same name.
    pub claims: Vec<(Arc<str>, String)>,
}

impl PodDraft {
    /// The command that makes the pod.
    pub fn into_command(self) -> Command {
        Command::Create {
            resource: Resource::Pods,
            key: self.key.clone(),
            body: Body::Pod(Box::new(self)),
            exists_is_fine: false,
            guard: None,
            report: Report::Create,
        }
    }

    /// The pod as a JSON document. Claim volumes come first, other volumes follow in template order (STS-1.4.1).
    pub fn render(&self) -> Value {
        let mut spec = self.template.get("spec").cloned().unwrap_or_else(|| json!({}));
        if let Some(spec) = spec.as_object_mut() {
            if let Some((hostname, subdomain)) = &self.host {
                spec.insert("hostname".to_owned(), json!(hostname));
                // As native sets do: a subdomain of the template is never the governing service.
                if subdomain.is_empty() {
                    spec.remove("subdomain");
                } else {
                    spec.insert("subdomain".to_owned(), json!(&**subdomain));
                }
            }
            self.mount_claims(spec);
            self.add_gates(spec);
        }
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": self.metadata(), "spec": spec})
    }

    fn metadata(&self) -> Value {
        let from_template = |field: &str| {
            let found = self.template.pointer(&format!("/metadata/{field}"));
            let mut found = found.filter(|v| !v.is_null()).cloned()?;
            if let Some(entries) = found.as_object_mut() {
                entries.retain(|key, _| !self.withheld.contains(&key.as_str()));
            }
            Some(found)
        };
        let mut labels = from_template("labels").unwrap_or_else(|| json!({}));
        for (key, value) in &self.labels {
            labels[*key] = json!(value);
        }
        let mut metadata = json!({
            "name": self.key.name.as_str(),
            "namespace": &*self.key.namespace,
            "generateName": &*self.generate_name,
            "labels": labels,
            "ownerReferences": [owner_json(&self.owner)],
        });
        for field in ["annotations", "finalizers"] {
            if let Some(value) = from_template(field) {
                metadata[field] = value;
            }
        }
        for (key, value) in &self.annotations {
            metadata["annotations"][*key] = json!(value);
        }
        metadata
    }

    fn add_gates(&self, spec: &mut Map<String, Value>) {
        for gate in self.gates {
            let gates = spec.entry("readinessGates").or_insert_with(|| json!([]));
            if gates.is_null() {
                *gates = json!([]);
            }
            let Some(list) = gates.as_array_mut() else { return };
            if list
                .iter()
                .all(|g| g.get("conditionType").and_then(Value::as_str) != Some(gate))
            {
                list.push(json!({"conditionType": gate}));
            }
        }
    }

    fn mount_claims(&self, spec: &mut Map<String, Value>) {
        if self.claims.is_empty() {
            return;
        }
        let mounted = |name: &Value| self.claims.iter().any(|(volume, _)| name.as_str() == Some(volume));
        let mut volumes: Vec<Value> = self
            .claims
            .iter()
            .map(|(volume, claim)| json!({"name": &**volume, "persistentVolumeClaim": {"claimName": claim}}))
            .collect();
        if let Some(Value::Array(others)) = spec.remove("volumes") {
            volumes.extend(others.into_iter().filter(|v| !v.get("name").is_some_and(mounted)));
        }
        spec.insert("volumes".to_owned(), Value::Array(volumes));
    }
}

/// An owner reference as JSON. The two flags are written only when set, as Kubernetes does.
pub(crate) fn owner_json(owner: &OwnerRef) -> Value {
    let mut json = json!({
        "apiVersion": &*owner.api_version,
        "kind": &*owner.kind,
        "name": &*owner.name,
        "uid": owner.uid.to_string(),
    });
    if owner.controller {
        json["controller"] = json!(true);
    }
    if owner.block_owner_deletion {
        json["blockOwnerDeletion"] = json!(true);
    }
    json
}

impl OwnerRef {
    /// This reference as it stands in `metadata.ownerReferences`.
    pub fn to_json(&self) -> Value {
        owner_json(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::Uid;

    fn draft() -> PodDraft {
        PodDraft {
            key: ObjectKey::new("ns", "web-1"),
            generate_name: "web-".into(),
            withheld: Vec::new(),
            template: Arc::new(json!({
                "metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}, "creationTimestamp": null},
                "spec": {"newField": {"x": 1}, "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "data", "emptyDir": {}}]},
            })),
            labels: vec![("controller-revision-hash", "web-1234".to_owned())],
            annotations: vec![("mine", "too".to_owned())],
            gates: &["KruisePodReady"],
            owner: Arc::new(OwnerRef {
                api_version: "apps/v1".into(),
                kind: "StatefulSet".into(),
                name: "web".into(),
                uid: Uid::new("u"),
                controller: true,
                block_owner_deletion: true,
            }),
            host: Some(("web-1".to_owned(), "svc".into())),
            claims: vec![("data".into(), "data-web-1".to_owned())],
        }
    }

    #[test]
    fn sts_1_4_1_claim_volumes_come_first_and_replace_their_namesakes() {
        let pod = draft().render();
        assert_eq!(
            pod["spec"],
            json!({
                "newField": {"x": 1}, "hostname": "web-1", "subdomain": "svc",
                "readinessGates": [{"conditionType": "KruisePodReady"}],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-1"}}, {"name": "tmp", "emptyDir": {}}],
            }),
            "a field newer than our types reaches the pod"
        );
        assert_eq!(
            pod["metadata"]["labels"],
            json!({"app": "web", "controller-revision-hash": "web-1234"})
        );
        assert_eq!(pod["metadata"]["annotations"], json!({"a": "b", "mine": "too"}));
        assert_eq!(pod["metadata"]["ownerReferences"][0]["controller"], json!(true));
    }

    /// STS-1.3: the identity is the set's, also where it names no service.
    #[test]
    fn sts_1_3_a_subdomain_of_the_template_does_not_survive() {
        let mut draft = draft();
        let template = Arc::make_mut(&mut draft.template);
        template["spec"]["subdomain"] = json!("of-the-template");
        assert_eq!(draft.render()["spec"]["subdomain"], "svc");
        draft.host = Some(("web-1".to_owned(), "".into()));
        assert_eq!(draft.render()["spec"].get("subdomain"), None);
        draft.host = None;
        assert_eq!(
            draft.render()["spec"]["subdomain"],
            "of-the-template",
            "a CloneSet has none of its own"
        );
    }
}
