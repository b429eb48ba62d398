//! The definition of Advanced StatefulSet as this crate reads it, against the verdicts of kube-apiserver 1.36.
//!
//! The cases are those that the end-to-end suite tries on a real API server; `data/refusals.json` holds the messages it gave, in the
//! same order, and null where it accepted.

#[path = "../../../e2e/tests/behaviour/cases.rs"]
mod cases;

use cases::{Change, creations, put, updates};
use flotilla_apimachinery::openapi::Builtin;
use flotilla_apimachinery::schema::{Schema, Types, drop_nulls, fill_defaults, validate};
use flotilla_apimachinery::status::{Qualified, Status};
use serde_json::{Value, json};

const GROUP: &str = "apps.kruise.io";

fn types() -> Types {
    let mut types = Builtin::load().types().expect("the built-in types can be read");
    for definition in flotilla_api::crds() {
        let version = &definition["spec"]["versions"][0];
        types
            .add_custom(
                GROUP,
                definition["spec"]["names"]["kind"].as_str().expect("a kind"),
                version,
            )
            .expect("a structural schema");
    }
    types
}

fn changed(name: &str, changes: &[Change]) -> Value {
    let mut set = json!({
        "apiVersion": "apps.kruise.io/v1beta1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "serviceName": "web",
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "app:v1"}]},
            },
        },
    });
    for (pointer, value) in changes {
        put(&mut set["spec"], pointer, value.clone());
    }
    set
}

/// What the API server does before it validates.
fn admitted(mut set: Value, schema: Schema<'_>) -> Value {
    drop_nulls(&mut set, Some(schema));
    fill_defaults(&mut set, schema);
    set
}

fn refusal(set: &Value, old: Option<&Value>, schema: Schema<'_>) -> Option<String> {
    let errors = validate(set, old, schema);
    let name = set["metadata"]["name"].as_str().unwrap_or_default();
    (!errors.is_empty()).then(|| Status::invalid(&Qualified::new(GROUP, "StatefulSet"), name, &errors).message)
}

/// All cases: the stored set, the new one, and words of the refusal.
fn all() -> Vec<(Option<Value>, Value, &'static [&'static str])> {
    let mut all: Vec<(Option<Value>, Value, &'static [&'static str])> = Vec::new();
    all.extend(
        creations()
            .into_iter()
            .map(|(changes, words)| (None, changed("web", &changes), words)),
    );
    for (length, words) in [(52, &[][..]), (53, &["52 characters"][..])] {
        all.push((None, changed(&"n".repeat(length), &[]), words));
    }
    for (before, after, words) in updates() {
        all.push((Some(changed("web", &before)), changed("web", &after), words));
    }
    all
}

#[test]
fn verdicts_are_those_of_the_api_server() {
    let types = types();
    let schema = types
        .kind(GROUP, "v1beta1", "StatefulSet")
        .expect("the definition was read");
    let recorded: Vec<Option<String>> =
        serde_json::from_str(include_str!("data/refusals.json")).expect("the records are JSON");
    let cases = all();
    assert_eq!(cases.len(), recorded.len(), "a case that was not recorded");
    let mut wrong = Vec::new();
    for ((old, new, words), recorded) in cases.into_iter().zip(recorded) {
        let old = old.map(|old| admitted(old, schema));
        let got = refusal(&admitted(new.clone(), schema), old.as_ref(), schema);
        let is_told = words
            .iter()
            .all(|word| got.as_deref().is_some_and(|got| got.contains(word)));
        if got != recorded || !is_told || words.is_empty() != got.is_none() {
            wrong.push(format!("{}\n  expected {recorded:?}\n  got      {got:?}", new["spec"]));
        }
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}

/// Admission decides, which knows whether labels hold the hash of a revision alone (CS-6). Where it was not asked, pods of a set
/// whose name is too long get that as label anyway.
#[test]
fn cs_6_the_definition_leaves_it_to_admission_how_long_the_name_of_a_cloneset_may_be() {
    let types = types();
    let schema = types
        .kind(GROUP, "v1beta1", "CloneSet")
        .expect("the definition was read");
    for length in [52, 53, 57, 63, 200] {
        let mut set = changed(&"n".repeat(length), &[]);
        set["kind"] = json!("CloneSet");
        set["spec"].as_object_mut().expect("a map").remove("serviceName");
        let errors = validate(&admitted(set, schema), None, schema);
        assert!(errors.is_empty(), "{length}: {errors:?}");
    }
}

/// Pods could not have volumes of such names. What was stored before the rule can be edited elsewhere.
#[test]
fn r_31_the_definitions_refuse_names_of_claim_templates_that_no_volume_can_have() {
    let types = types();
    let long = "x".repeat(64);
    for kind in ["StatefulSet", "CloneSet"] {
        let schema = types.kind(GROUP, "v1beta1", kind).expect("the definition was read");
        let with = |names: &[&str], replicas: i64| {
            let templates: Value = names
                .iter()
                .map(|name| json!({"metadata": {"name": name}, "spec": {}}))
                .collect();
            let mut set = changed(
                "web",
                &[("volumeClaimTemplates", templates), ("replicas", json!(replicas))],
            );
            set["kind"] = json!(kind);
            if kind == "CloneSet" {
                set["spec"].as_object_mut().expect("a map").remove("serviceName");
            }
            admitted(set, schema)
        };
        let plain = with(&["data"], 1);
        for bad in ["logs.v1", "Logs", "-logs", &long] {
            let after = with(&["data", bad], 1);
            for old in [None, Some(&plain)] {
                let told = refusal(&after, old, schema).unwrap_or_default();
                let is_told = ["spec.volumeClaimTemplates", "a name that a volume can have"]
                    .iter()
                    .all(|w| told.contains(w));
                assert!(is_told, "{kind} {bad}: {told:?}");
            }
            assert_eq!(
                refusal(&with(&["data", bad], 2), Some(&after), schema),
                None,
                "{kind} {bad}"
            );
        }
        assert_eq!(refusal(&with(&["data", &long[1..]], 1), Some(&plain), schema), None);
    }
}
