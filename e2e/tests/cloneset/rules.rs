//! The definition of CloneSets on a real API server: what it refuses, with which words, and what it lets pass. No manager runs.

use crate::Lab;
use crate::cases::{self, Case};
use flotilla_e2e::Api;
use flotilla_e2e::clones::{manifest, sets, web};
use http::Method;
use serde_json::{Value, json};

fn changed(changes: &[cases::Change]) -> Value {
    let mut set = manifest(1);
    for (pointer, value) in changes {
        cases::put(&mut set["spec"], pointer, value.clone());
    }
    set
}

/// How an answer is not what was expected.
fn unlike(answer: Result<Value, kube::Error>, words: &[&str]) -> Option<String> {
    match answer {
        Ok(_) if words.is_empty() => None,
        Ok(_) => Some(format!("was accepted, but should be refused with {words:?}")),
        Err(kube::Error::Api(status)) => {
            let is_told = !words.is_empty() && words.iter().all(|word| status.message.contains(word));
            (!is_told).then(|| format!("expected {words:?}, got: {}", status.message))
        }
        Err(error) => Some(error.to_string()),
    }
}

pub(crate) async fn creations(api: &Api, collection: &str, version: &str, cases: Vec<Case>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (changes, words) in cases {
        let mut set = changed(&changes);
        set["apiVersion"] = json!(format!("apps.kruise.io/{version}"));
        let answer = api
            .send(Method::POST, collection, Some(("application/json", &set)))
            .await;
        wrong.extend(unlike(answer, words).map(|why| format!("{version} {changes:?}: {why}")));
    }
    wrong
}

/// CS-3 and CS-6, where no webhook runs.
pub(crate) async fn refuse_by_field_and_word(lab: &Lab) {
    let ns = "rules";
    let api = lab.enter(ns).await;
    let mut wrong = creations(&api, &format!("{}?dryRun=All", sets(ns)), "v1beta1", cases::hub()).await;
    // A gate of the manager decides how long a name may be, so admission does (CS-6).
    for (length, words) in [(52, &[][..]), (53, &[]), (63, &[])] {
        let mut set = changed(&[]);
        set["metadata"]["name"] = json!("n".repeat(length));
        let path = format!("{}?dryRun=All", sets(ns));
        let answer = api.send(Method::POST, &path, Some(("application/json", &set))).await;
        wrong.extend(unlike(answer, words).map(|why| format!("a name of {length}: {why}")));
    }
    let stored = api.create(&sets(ns), &changed(&[])).await;
    for (changes, words) in cases::updates() {
        let mut set = changed(&changes);
        set["metadata"] = stored["metadata"].clone();
        let path = format!("{}?dryRun=All", web(ns));
        let answer = api.send(Method::PUT, &path, Some(("application/json", &set))).await;
        wrong.extend(unlike(answer, words).map(|why| format!("to {changes:?}: {why}")));
    }
    api.delete(&web(ns), false).await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
