//! Strategic merge patches and what kube-apiserver 1.36 made of them: `data/strategic.json` holds its answers, without fields that the
//! API server fills in.

use flotilla_apimachinery::openapi::Builtin;
use flotilla_apimachinery::patch::strategic_merge_patch;
use flotilla_apimachinery::schema::{drop_empty, drop_unknown};
use serde_json::Value;

#[test]
fn strategic_merge_patches_give_what_the_api_server_gives() {
    let types = Builtin::load().types().expect("the built-in types can be read");
    let rows: Vec<Value> = serde_json::from_str(include_str!("data/strategic.json")).expect("the records are JSON");
    let mut wrong = Vec::new();
    for row in &rows {
        let object = &row["object"];
        let (group, version) = object["apiVersion"]
            .as_str()
            .and_then(|v| v.split_once('/'))
            .unwrap_or(("", "v1"));
        let kind = object["kind"].as_str().unwrap_or_default();
        let schema = types.kind(group, version, kind).expect("a built-in kind");
        let (expected, got) = match strategic_merge_patch(object, &row["patch"], schema) {
            Ok(mut patched) => {
                drop_unknown(&mut patched, schema);
                drop_empty(&mut patched, schema);
                (row["result"].clone(), patched)
            }
            Err(refusal) => {
                let body = refusal.to_json();
                let said = row["refusal"]
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(k, _)| (k.clone(), body[k].clone()));
                (row["refusal"].clone(), Value::Object(said.collect()))
            }
        };
        if expected != got {
            wrong.push(format!("{}:\n  expected {expected}\n  got      {got}", row["name"]));
        }
    }
    assert!(rows.len() > 30, "the records are complete");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
