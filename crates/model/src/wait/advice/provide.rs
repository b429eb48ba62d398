//! What a pod lacks, by the words of its kubelet, and making it.

use super::Whom;
use crate::lines::in_command;
use serde_json::Value;

/// An object that a pod is said to lack. Whoever may write events, or a pod's status, says what they like: it counts as lacking only if the pod
/// refers to it ([`Lack::is_of`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lack<'m> {
    kind: Kind,
    name: &'m str,
    /// It is there, and a key of it is not.
    is_of_a_key: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Secret,
    ConfigMap,
}

impl<'m> Lack<'m> {
    /// What these words say is lacking: `KIND "NAME" not found`, or `couldn't find key KEY in KIND NAMESPACE/NAME`.
    pub fn of(said: &'m str) -> Option<Lack<'m>> {
        let missing = |kind: Kind, word: &str| {
            let (_, rest) = said.split_once(word)?;
            let (name, rest) = rest.split_once('"')?;
            let is_missing = rest.trim_start().starts_with("not found");
            is_missing.then_some(Lack {
                kind,
                name,
                is_of_a_key: false,
            })
        };
        let whole = missing(Kind::Secret, "secret \"").or_else(|| missing(Kind::ConfigMap, "configmap \""));
        if whole.is_some() {
            return whole;
        }
        let (_, rest) = said.split_once("couldn't find key ")?;
        let (_, holder) = rest.split_once(" in ")?;
        let (kind, rest) = holder.split_once(' ')?;
        let kind = match kind {
            "Secret" => Kind::Secret,
            "ConfigMap" => Kind::ConfigMap,
            _ => return None,
        };
        let (_, name) = rest.split_once('/')?;
        let name = name.split_whitespace().next()?;
        Some(Lack {
            kind,
            name,
            is_of_a_key: true,
        })
    }

    /// Whether a pod refers to it.
    pub fn is_of(&self, pod: &Value) -> bool {
        self.is_in(&pod["spec"])
    }

    /// Whether a value refers to it, by the names of fields: `secretKeyRef`, `envFrom[].configMapRef`, `volumes[].secret.secretName` and so on.
    fn is_in(&self, value: &Value) -> bool {
        match value {
            Value::Array(all) => all.iter().any(|value| self.is_in(value)),
            Value::Object(all) => all.iter().any(|(field, value)| {
                let is_named = match value {
                    Value::String(name) => self.kind == Kind::Secret && field == "secretName" && name == self.name,
                    Value::Array(all) if field == "imagePullSecrets" => {
                        self.kind == Kind::Secret && all.iter().any(|secret| secret["name"] == self.name)
                    }
                    value => self.kind.is_named_in(field) && value["name"] == self.name,
                };
                is_named || self.is_in(value)
            }),
            Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }
}

impl Kind {
    /// Whether a field of this name names such an object.
    fn is_named_in(self, field: &str) -> bool {
        match self {
            Kind::Secret => field == "secret" || field == "secretKeyRef" || field.ends_with("ecretRef"),
            Kind::ConfigMap => matches!(field, "configMap" | "configMapKeyRef" | "configMapRef"),
        }
    }
}

impl Whom<'_> {
    /// Making what a pod misses, by the words of its kubelet, if the pod refers to it.
    pub(super) fn provide(&self, said: &str) -> Option<String> {
        let lack = Lack::of(said).filter(|lack| self.pod.is_none_or(|pod| lack.is_of(pod)))?;
        let (name, namespace) = (in_command(lack.name), self.namespace());
        let (kind, create) = match lack.kind {
            Kind::Secret => ("secret", "secret generic"),
            Kind::ConfigMap => ("configmap", "configmap"),
        };
        Some(if lack.is_of_a_key {
            format!("add that key: kubectl edit {kind} {name} -n {namespace}")
        } else {
            format!("create it, with what the pod takes from it: kubectl create {create} {name} -n {namespace}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Who may write events, or the status of a pod, must not lead whoever may edit secrets to one of another pod.
    #[test]
    fn what_a_pod_does_not_refer_to_nobody_is_told_to_make_or_to_edit() {
        let pod = json!({"spec": {
            "imagePullSecrets": [{"name": "pull"}],
            "containers": [{
                "name": "main", "image": "payroll-secret",
                "env": [
                    {"name": "A", "valueFrom": {"secretKeyRef": {"name": "login", "key": "a"}}},
                    {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "b"}}},
                    {"name": "secretName", "value": "payroll-secret"},
                ],
                "envFrom": [{"secretRef": {"name": "all"}}, {"configMapRef": {"name": "every"}}],
            }],
            "volumes": [
                {"name": "payroll-secret", "secret": {"secretName": "cert"}},
                {"name": "c", "configMap": {"name": "files"}},
                {"name": "p", "projected": {"sources": [{"secret": {"name": "part"}}, {"configMap": {"name": "piece"}}]}},
                {"name": "d", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "publish"}}},
            ],
        }});
        let whom = Whom {
            pod: Some(&pod),
            ..Whom::of("statefulset.apps/web", "s3")
        };
        let key = |kind: &str, name: &str| whom.provide(&format!("couldn't find key admin in {kind} s3/{name}"));
        let whole = |kind: &str, name: &str| whom.provide(&format!("{kind} \"{name}\" not found"));
        for name in ["pull", "login", "all", "cert", "part", "publish"] {
            let edit = format!("add that key: kubectl edit secret {name} -n s3");
            assert_eq!(key("Secret", name), Some(edit));
            assert!(
                whole("secret", name)
                    .is_some_and(|advice| advice.ends_with(&format!("create secret generic {name} -n s3")))
            );
            assert_eq!(
                (key("ConfigMap", name), whole("configmap", name)),
                (None, None),
                "{name}"
            );
        }
        for name in ["conf", "every", "files", "piece"] {
            let edit = format!("add that key: kubectl edit configmap {name} -n s3");
            assert_eq!(key("ConfigMap", name), Some(edit));
            assert!(
                whole("configmap", name)
                    .is_some_and(|advice| advice.ends_with(&format!("create configmap {name} -n s3")))
            );
            assert_eq!((key("Secret", name), whole("secret", name)), (None, None), "{name}");
        }
        for kind in ["Secret", "ConfigMap"] {
            assert_eq!(key(kind, "payroll-secret"), None);
        }
        // Where the pod is not known, its kubelet is believed.
        let whom = Whom { pod: None, ..whom };
        assert!(
            whom.provide("couldn't find key admin in Secret s3/payroll-secret")
                .is_some()
        );
    }
}
