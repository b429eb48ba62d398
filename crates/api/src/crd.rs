//! Custom resource definitions: the schemas that the types give, with the rules that reach beyond one field.

use crate::statefulset;
use kube::CustomResourceExt;
use serde_json::{Map, Value, json};

/// A rule in CEL that the API server checks, also while Flotilla is down.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Where it applies: a path below the object, with `[]` for the entries of a list or map; empty for the object itself.
    pub path: &'static str,
    /// How it is evaluated.
    pub check: Check,
    /// What is said when it is broken: names the field and the rule.
    pub message: &'static str,
    /// The field to name in the error if it is not the one at `path`: a path below it.
    pub field: Option<&'static str>,
}

/// How a rule is evaluated.
#[derive(Clone, Copy, Debug)]
pub enum Check {
    /// On every write that changes the value at the path.
    Always(&'static str),
    /// The same, for rules about several fields: an object that broke the rule when it was stored can still be edited. `$` stands for
    /// the value at the path.
    Ratcheting(&'static str),
    /// On creation only.
    OnCreate(&'static str),
    /// On update only, with `oldSelf`.
    OnUpdate(&'static str),
}

impl Rule {
    fn validations(&self) -> Vec<Value> {
        match self.check {
            Check::Always(text) | Check::OnUpdate(text) => vec![self.validation(text, false)],
            Check::OnCreate(text) => vec![self.validation(&on_create(text), true)],
            // Two validations and not one, since the API server reckons with the worst for what is behind an optional `oldSelf`.
            Check::Ratcheting(text) => {
                let (new, old) = (text.replace('$', "self"), text.replace('$', "oldSelf"));
                vec![
                    self.validation(&on_create(&new), true),
                    self.validation(&format!("({new}) || !({old})"), false),
                ]
            }
        }
    }

    fn validation(&self, text: &str, optional_old: bool) -> Value {
        let mut validation = json!({"rule": text, "message": self.message});
        if optional_old {
            validation["optionalOldSelf"] = json!(true);
        }
        if let Some(field) = self.field {
            validation["fieldPath"] = json!(field);
        }
        validation
    }
}

fn on_create(text: &str) -> String {
    format!("oldSelf.hasValue() || ({text})")
}

/// All definitions, as objects for the API server.
///
/// # Panics
/// Never, unless a rule names a path that the types do not have; the tests of this crate build them all.
pub fn crds() -> Vec<Value> {
    vec![definition(
        &serde_json::to_value(statefulset::StatefulSet::crd()).expect("a definition is JSON"),
        statefulset::rules::RULES,
    )]
}

fn definition(crd: &Value, rules: &[Rule]) -> Value {
    let mut crd = crd.clone();
    let schema = crd
        .pointer_mut("/spec/versions/0/schema/openAPIV3Schema")
        .expect("kube writes a schema");
    unwrap_descriptions(schema);
    // An absent field and null are the same to the API server; declaring them nullable would store the nulls and confuse `has()`.
    for part in ["spec", "status"] {
        forbid_null(&mut schema["properties"][part]);
    }
    for rule in rules {
        let place = locate(schema, rule.path);
        let list = place
            .entry("x-kubernetes-validations")
            .or_insert_with(|| Value::Array(Vec::new()));
        list.as_array_mut().expect("a list").extend(rule.validations());
    }
    crd
}

/// Joins the lines of comments, which are wrapped for the source text, so that `kubectl explain` can wrap them for the terminal.
fn unwrap_descriptions(schema: &mut Value) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        let paragraphs: Vec<_> = text.split("\n\n").map(|p| p.replace('\n', " ")).collect();
        *text = paragraphs.join("\n\n");
    }
    match schema {
        Value::Object(fields) => fields.values_mut().for_each(unwrap_descriptions),
        Value::Array(items) => items.iter_mut().for_each(unwrap_descriptions),
        _ => {}
    }
}

fn forbid_null(schema: &mut Value) {
    // What is left open towards unknown fields keeps its nulls: Go clients write `creationTimestamp: null` into templates.
    if schema.get("x-kubernetes-preserve-unknown-fields").is_some() {
        return;
    }
    match schema {
        Value::Object(fields) => {
            if fields.get("type").is_some_and(Value::is_string) {
                fields.remove("nullable");
            }
            fields.values_mut().for_each(forbid_null);
        }
        Value::Array(items) => items.iter_mut().for_each(forbid_null),
        _ => {}
    }
}

/// The schema at a path of a rule.
fn locate<'s>(mut schema: &'s mut Value, path: &str) -> &'s mut Map<String, Value> {
    for step in path.split('.').filter(|s| !s.is_empty()) {
        let name = step.trim_end_matches("[]");
        schema = &mut schema["properties"][name];
        if step.ends_with("[]") {
            schema = &mut schema["items"];
        }
        assert!(schema.is_object(), "no field {step} on the way to {path}");
    }
    schema.as_object_mut().expect("a schema is an object")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_schema(schema: &Value, path: &str, look: &mut impl FnMut(&str, &Value)) {
        look(path, schema);
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            for (name, property) in properties {
                every_schema(property, &format!("{path}.{name}"), look);
            }
        }
        for (key, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
            if let Some(inner) = schema.get(key).filter(|s| s.is_object()) {
                every_schema(inner, &format!("{path}{mark}"), look);
            }
        }
    }

    #[test]
    fn every_field_is_documented_for_kubectl_explain() {
        for crd in crds() {
            let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            let mut missing = Vec::new();
            let mut inside_template = false;
            every_schema(schema, "", &mut |path, schema| {
                inside_template = path.contains(".template.") || path.contains(".volumeClaimTemplates[]");
                let is_field = !path.ends_with("[]") && !path.ends_with("{}") && !path.is_empty();
                let is_meta = matches!(path, ".metadata" | ".apiVersion" | ".kind");
                if is_field && !is_meta && !inside_template && schema.get("description").is_none() {
                    missing.push(path.to_owned());
                }
            });
            assert_eq!(missing, Vec::<String>::new());
        }
    }

    #[test]
    fn columns_scale_and_names_are_those_of_openkruise() {
        let crd = &crds()[0];
        assert_eq!(crd["metadata"]["name"], "statefulsets.apps.kruise.io");
        assert_eq!(crd["spec"]["names"]["shortNames"], json!(["sts", "asts"]));
        let version = &crd["spec"]["versions"][0];
        let columns: Vec<_> = version["additionalPrinterColumns"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["name"].as_str().unwrap())
            .collect();
        assert_eq!(
            columns,
            ["DESIRED", "CURRENT", "UPDATED", "READY", "AGE", "CONTAINERS", "IMAGES"]
        );
        assert_eq!(
            version["subresources"]["scale"]["labelSelectorPath"],
            ".status.labelSelector"
        );
        assert_eq!(version["subresources"]["status"], json!({}));
    }

    #[test]
    fn schemas_have_no_defaults_of_ours() {
        for crd in crds() {
            let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
            every_schema(schema, "", &mut |path, schema| {
                assert!(schema.get("default").is_none(), "{path}");
            });
        }
    }

    #[test]
    fn ratcheting_lets_old_mistakes_be() {
        let rule = Rule {
            path: "",
            check: Check::Ratcheting("$.a > 0"),
            message: "a",
            field: None,
        };
        let texts: Vec<_> = rule
            .validations()
            .iter()
            .map(|v| v["rule"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(
            texts,
            ["oldSelf.hasValue() || (self.a > 0)", "(self.a > 0) || !(oldSelf.a > 0)"]
        );
    }
}
