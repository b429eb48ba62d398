//! Custom resource definitions: the schemas that the types give, with the rules that reach beyond one field.

use crate::{cloneset, rules, statefulset};
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

impl Rule {
    /// Whether it looks at one of these fields of spec.
    fn mentions(&self, fields: &[String]) -> bool {
        let (Check::Always(text) | Check::Ratcheting(text) | Check::OnCreate(text) | Check::OnUpdate(text)) =
            self.check;
        let names = |text: &str, field: &String| {
            let words = text.split(|c: char| !c.is_ascii_alphanumeric());
            words.into_iter().any(|word| word == field)
        };
        let own = self.path.strip_prefix("spec.").unwrap_or_default();
        let own = own.split(['.', '[']).next().unwrap_or_default();
        fields
            .iter()
            .any(|field| own == field || (self.path == "spec" && names(text, field)))
    }
}

/// Where the API server finds Flotilla to have objects converted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Converter {
    /// How it is reached.
    pub address: Address,
    /// Certificates of the authority that signed the server's, as base64 of PEM.
    pub ca_bundle: String,
}

/// How a webhook is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Through a Service in the cluster.
    Service {
        /// The Service's namespace.
        namespace: String,
        /// The Service's name.
        name: String,
        /// The Service's port.
        port: u16,
    },
    /// At `https://host:port`, without a path.
    Url(String),
}

/// The path of conversions.
pub const CONVERT_PATH: &str = "/convert";

/// All definitions, as objects for the API server, for a cluster without webhooks.
///
/// Without conversion the API server would only rewrite `apiVersion`: what an old version lacks would vanish when somebody writes
/// through it. So only the stored version is served; the others are listed, so that objects stored in them can be read.
///
/// # Panics
/// Never, unless a rule names a path that the types do not have; the tests of this crate build them all.
pub fn crds() -> Vec<Value> {
    let json = |crd| serde_json::to_value(crd).expect("a definition is JSON");
    let sets = [statefulset::rules::NAME, rules::SHARED, statefulset::rules::RULES].concat();
    let clones = [rules::SHARED, cloneset::rules::BOTH].concat();
    vec![
        definition(
            &json(statefulset::StatefulSet::crd()),
            &json(statefulset::v1alpha1::StatefulSet::crd()),
            &sets,
            &[],
        ),
        definition(
            &json(cloneset::CloneSet::crd()),
            &json(cloneset::v1alpha1::CloneSet::crd()),
            &[&clones, cloneset::rules::HUB].concat(),
            &[&clones, cloneset::rules::ALPHA].concat(),
        ),
    ]
}

/// All definitions for a cluster in which Flotilla converts: all versions are served.
pub fn crds_with_conversion(converter: &Converter) -> Vec<Value> {
    let mut crds = crds();
    for crd in &mut crds {
        set_conversion(crd, Some(converter));
    }
    crds
}

/// Writes into a definition whether and by whom its objects are converted, and accordingly which versions are served. Definitions with
/// one version are left as they are.
pub fn set_conversion(crd: &mut Value, converter: Option<&Converter>) {
    let versions = crd.pointer_mut("/spec/versions").and_then(Value::as_array_mut);
    let Some(versions) = versions.filter(|versions| versions.len() > 1) else {
        return;
    };
    for version in versions {
        version["served"] = json!(converter.is_some() || version["storage"] == true);
    }
    crd["spec"]["conversion"] = match converter {
        None => json!({"strategy": "None"}),
        Some(converter) => json!({"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1", "v1beta1"],
            "clientConfig": client_config(converter),
        }}),
    };
}

fn client_config(converter: &Converter) -> Value {
    match &converter.address {
        Address::Service { namespace, name, port } => json!({
            "service": {"namespace": namespace, "name": name, "port": port, "path": CONVERT_PATH},
            "caBundle": converter.ca_bundle,
        }),
        Address::Url(url) => json!({
            "url": format!("{}{CONVERT_PATH}", url.trim_end_matches('/')),
            "caBundle": converter.ca_bundle,
        }),
    }
}

/// The definition of a kind with an older version beside the one that is stored. An older version without rules of its own has those of
/// the stored one that are about fields which it has.
fn definition(hub: &Value, older: &Value, rules: &[Rule], older_rules: &[Rule]) -> Value {
    let mut crd = hub.clone();
    let stored = &mut crd["spec"]["versions"][0];
    let mut old = stored.clone();
    for part in ["name", "schema"] {
        old[part] = older["spec"]["versions"][0][part].clone();
    }
    old["storage"] = json!(false);
    let of = |version: &Value| -> Vec<String> {
        let spec = version.pointer("/schema/openAPIV3Schema/properties/spec/properties");
        let fields = spec.and_then(Value::as_object).into_iter().flatten();
        fields.map(|(field, _)| field.clone()).collect()
    };
    let known = of(&old);
    let lacking: Vec<_> = of(stored).into_iter().filter(|field| !known.contains(field)).collect();
    complete(stored, rules.iter());
    if older_rules.is_empty() {
        complete(&mut old, rules.iter().filter(|rule| !rule.mentions(&lacking)));
    } else {
        complete(&mut old, older_rules.iter());
    }
    if let Some(versions) = crd["spec"]["versions"].as_array_mut() {
        versions.push(old);
    }
    set_conversion(&mut crd, None);
    crd
}

/// Adds rules to the schema of a version, and puts it in order.
fn complete<'r>(version: &mut Value, rules: impl Iterator<Item = &'r Rule>) {
    let schema = version
        .pointer_mut("/schema/openAPIV3Schema")
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
        for version in crds()
            .iter()
            .flat_map(|crd| crd["spec"]["versions"].as_array().unwrap())
        {
            let schema = &version["schema"]["openAPIV3Schema"];
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
    fn cs_2_columns_scale_and_names_of_cloneset_are_those_of_openkruise() {
        let crd = &crds()[1];
        assert_eq!(crd["metadata"]["name"], "clonesets.apps.kruise.io");
        assert_eq!(crd["spec"]["names"]["shortNames"], json!(["clone"]));
        for version in crd["spec"]["versions"].as_array().unwrap() {
            let columns = version["additionalPrinterColumns"].as_array().unwrap().iter();
            let columns: Vec<_> = columns
                .map(|c| (c["name"].as_str().unwrap(), c["jsonPath"].as_str().unwrap()))
                .collect();
            assert_eq!(
                columns,
                [
                    ("DESIRED", ".spec.replicas"),
                    ("UPDATED", ".status.updatedReplicas"),
                    ("UPDATED_READY", ".status.updatedReadyReplicas"),
                    ("UPDATED_AVAILABLE", ".status.updatedAvailableReplicas"),
                    ("READY", ".status.readyReplicas"),
                    ("TOTAL", ".status.replicas"),
                    ("AGE", ".metadata.creationTimestamp"),
                    ("CONTAINERS", ".spec.template.spec.containers[*].name"),
                    ("IMAGES", ".spec.template.spec.containers[*].image"),
                    ("SELECTOR", ".status.labelSelector"),
                ]
            );
            let schema = &version["schema"]["openAPIV3Schema"]["properties"];
            assert_eq!(schema["spec"]["required"], json!(["selector", "template"]));
            let scale = &version["subresources"]["scale"];
            assert_eq!(scale["labelSelectorPath"], ".status.labelSelector");
        }
        let versions = &crd["spec"]["versions"];
        assert_eq!(
            (&versions[0]["name"], &versions[1]["name"]),
            (&json!("v1beta1"), &json!("v1alpha1"))
        );
        let default =
            "/schema/openAPIV3Schema/properties/spec/properties/scaleStrategy/properties/enablePVCReuse/default";
        assert_eq!(versions[0].pointer(default), Some(&json!(false)));
    }

    #[test]
    fn cs_6_both_versions_of_cloneset_check_their_strategy() {
        use crate::messages as m;
        let crd = &crds()[1];
        let (hub, old) = (
            rules_of(&crd["spec"]["versions"][0]),
            rules_of(&crd["spec"]["versions"][1]),
        );
        let only =
            |a: &[String], b: &[String]| -> Vec<String> { a.iter().filter(|m| !b.contains(m)).cloned().collect() };
        assert_eq!(only(&hub, &old), [m::POD_UPDATE_POLICY, m::UPDATE_TYPE]);
        assert_eq!(only(&old, &hub), [m::PROGRESS_DEADLINE, m::CLONE_UPDATE_TYPE]);
    }

    #[test]
    fn schemas_have_no_defaults_of_ours() {
        for version in crds()
            .iter()
            .flat_map(|crd| crd["spec"]["versions"].as_array().unwrap())
        {
            let schema = &version["schema"]["openAPIV3Schema"]["properties"]["spec"];
            every_schema(schema, "", &mut |path, schema| {
                // The one that OpenKruise has.
                let is_theirs = path == ".scaleStrategy.enablePVCReuse";
                assert!(is_theirs || schema.get("default").is_none(), "{path}");
            });
        }
    }

    fn rules_of(version: &Value) -> Vec<String> {
        let mut messages = Vec::new();
        every_schema(&version["schema"]["openAPIV3Schema"], "", &mut |_, schema| {
            let rules = schema.get("x-kubernetes-validations").and_then(Value::as_array);
            for rule in rules.into_iter().flatten() {
                messages.push(rule["message"].as_str().unwrap().to_owned());
            }
        });
        messages.sort();
        messages.dedup();
        messages
    }

    #[test]
    fn sts_3_3_the_older_version_has_its_fields_and_their_rules() {
        let crd = &crds()[0];
        let (hub, old) = (&crd["spec"]["versions"][0], &crd["spec"]["versions"][1]);
        assert_eq!(
            (hub["name"].as_str(), old["name"].as_str()),
            (Some("v1beta1"), Some("v1alpha1"))
        );
        let fields = |version: &Value| -> Vec<String> {
            let spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].as_object();
            spec.unwrap().keys().cloned().collect()
        };
        let mut listed: Vec<_> = statefulset::v1alpha1::SPEC_FIELDS.to_vec();
        listed.sort_unstable();
        assert_eq!(fields(old), listed);
        let lacking: Vec<_> = fields(hub)
            .into_iter()
            .filter(|f| !listed.contains(&f.as_str()))
            .collect();
        assert_eq!(
            lacking,
            [
                "lifecycle",
                "ordinals",
                "persistentVolumeClaimRetentionPolicy",
                "reserveOrdinals",
                "scaleStrategy",
                "specialPodsSelectors",
                "volumeClaimUpdateStrategy",
            ]
        );
        let old_rules = rules_of(old);
        let left_out: Vec<_> = rules_of(hub).into_iter().filter(|m| !old_rules.contains(m)).collect();
        let words = [
            "lifecycle",
            "labelsHandler",
            "finalizersHandler",
            "persistentVolumeClaim",
            "reserveOrdinals",
            "scaleStrategy",
            "specialPods",
            "volumeClaimUpdateStrategy",
        ];
        for message in &left_out {
            assert!(words.iter().any(|word| message.contains(word)), "{message} is left out");
        }
        assert!(
            left_out.len() > 8 && old_rules.len() > 15,
            "{} {}",
            left_out.len(),
            old_rules.len()
        );
        let shared = ["additionalPrinterColumns", "subresources"];
        for part in shared {
            assert_eq!(hub[part], old[part]);
        }
    }

    #[test]
    fn sts_3_3_older_versions_are_served_only_where_somebody_converts() {
        let served = |crd: &Value| -> Vec<(bool, bool)> {
            let versions = crd["spec"]["versions"].as_array().unwrap();
            versions
                .iter()
                .map(|v| (v["served"] == true, v["storage"] == true))
                .collect()
        };
        let without = &crds()[0];
        assert_eq!(without["spec"]["conversion"], json!({"strategy": "None"}));
        assert_eq!(served(without), [(true, true), (false, false)]);
        let mut converter = Converter {
            address: Address::Service {
                namespace: "flotilla-system".into(),
                name: "flotilla".into(),
                port: 443,
            },
            ca_bundle: "Y2E=".into(),
        };
        let with = &crds_with_conversion(&converter)[0];
        assert_eq!(served(with), [(true, true), (true, false)]);
        assert_eq!(
            with["spec"]["conversion"],
            json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1", "v1beta1"], "clientConfig": {
                "service": {"namespace": "flotilla-system", "name": "flotilla", "port": 443, "path": "/convert"},
                "caBundle": "Y2E=",
            }}})
        );
        converter.address = Address::Url("https://127.0.0.1:9443/".into());
        let mut by_url = with.clone();
        set_conversion(&mut by_url, Some(&converter));
        assert_eq!(
            by_url["spec"]["conversion"]["webhook"]["clientConfig"],
            json!({"url": "https://127.0.0.1:9443/convert", "caBundle": "Y2E="})
        );
        set_conversion(&mut by_url, None);
        assert_eq!(&by_url, without);
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
