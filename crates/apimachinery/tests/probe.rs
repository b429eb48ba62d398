//! A definition with every kind of bound and rule, against the verdicts of kube-apiserver 1.36: `data/probe.json` holds the version that
//! it serves, and for each case the stored and the new spec, the refusal, and what is stored.

use flotilla_apimachinery::schema::{Schema, Types, drop_nulls, drop_unknown, fill_defaults, validate};
use flotilla_apimachinery::status::{Qualified, Status};
use serde_json::{Value, json};

const GROUP: &str = "am.example.com";

fn probe(name: &str, spec: &Value, schema: Schema<'_>) -> Value {
    let mut probe =
        json!({"apiVersion": "am.example.com/v1", "kind": "Probe", "metadata": {"name": name}, "spec": spec});
    drop_unknown(&mut probe, schema);
    drop_nulls(&mut probe, Some(schema));
    fill_defaults(&mut probe, schema);
    probe
}

/// The errors of a message, in an order of their own: the API server looks at fields in any order.
fn parts(message: &str) -> Vec<String> {
    let inner = message
        .split_once(" is invalid: ")
        .map_or(message, |(_, errors)| errors);
    let mut parts: Vec<_> = inner
        .trim_start_matches('[')
        .trim_end_matches(']')
        .split(", ")
        .map(str::to_owned)
        .collect();
    parts.sort();
    parts
}

#[test]
fn bounds_and_rules_are_judged_as_by_the_api_server() {
    let record: Value = serde_json::from_str(include_str!("data/probe.json")).expect("the record is JSON");
    let mut types = Types::default();
    types
        .add_custom(GROUP, "Probe", &record["version"])
        .expect("a structural schema");
    let schema = types.kind(GROUP, "v1", "Probe").expect("it was read");
    let cases = record["cases"].as_array().expect("cases");
    let mut wrong = Vec::new();
    for case in cases {
        let name = case["name"].as_str().unwrap_or("p");
        let old = Some(&case["old"])
            .filter(|old| old.is_object())
            .map(|old| probe(name, old, schema));
        let new = probe(name, &case["new"], schema);
        let errors = validate(&new, old.as_ref(), schema);
        let got = (!errors.is_empty()).then(|| Status::invalid(&Qualified::new(GROUP, "Probe"), name, &errors).message);
        let expected = case["message"].as_str().map(str::to_owned);
        if got.as_deref().map(parts) != expected.as_deref().map(parts) {
            wrong.push(format!(
                "{} -> {}\n  expected {expected:?}\n  got      {got:?}",
                case["old"], case["new"]
            ));
        }
        if let Some(stored) = case.get("stored").filter(|stored| **stored != new["spec"]) {
            wrong.push(format!(
                "{}\n  is stored as {stored}\n  and not as   {}",
                case["new"], new["spec"]
            ));
        }
    }
    assert!(cases.len() > 70, "the record is complete");
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
}
