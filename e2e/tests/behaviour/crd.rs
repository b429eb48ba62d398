//! The definition of Advanced StatefulSet on a real API server: what it refuses, with which words, and what it lets pass.

mod cases;

use crate::Lab;
use cases::{Change, creations, put, updates};
use flotilla_e2e::api::{Objects, is_terminating, number, text};
use flotilla_e2e::sets::{SOON, all_ready, pods};
use flotilla_e2e::suite::{self, trial};
use flotilla_e2e::{Api, Kind};
use http::Method;
use libtest_mimic::Trial;
use serde_json::{Value, json};
use std::time::Duration;

/// Where the sets live that were stored before the rules.
pub(crate) const STORED: &str = "stored-before-the-rules";
/// One of them, with a reserved ordinal that cannot be read; another scenario asks why it waits.
pub(crate) const UNREADABLE: &str = "unreadable";
/// One with a range of them that runs backwards, which another scenario mends.
pub(crate) const BACKWARDS: &str = "backwards";

pub(crate) fn trials(lab: &Lab) -> Vec<Trial> {
    let (refusals, updates, documents, stored) = (lab.clone(), lab.clone(), lab.clone(), lab.clone());
    vec![
        trial("crd::bad_input_is_refused_by_field_and_rule", move || async move {
            bad_input_is_refused(&refusals.enter("crd-create").await, "crd-create").await;
        }),
        trial("crd::forbidden_changes_are_refused", move || async move {
            forbidden_changes_are_refused(&updates.enter("crd-update").await, "crd-update").await;
        }),
        trial("crd::kubectl_explains_every_field", move || async move {
            kubectl_explains(&documents).await;
        }),
        trial(
            "crd::what_was_stored_before_the_rules_is_worked_on",
            move || async move {
                stored_before(&Api::connect(&stored.kubeconfig).await).await;
            },
        ),
    ]
}

fn changed(changes: &[Change]) -> Value {
    let mut set = Kind::Advanced.manifest("web", 1);
    for (pointer, value) in changes {
        put(&mut set["spec"], pointer, value.clone());
    }
    set
}

async fn bad_input_is_refused(api: &Api, ns: &str) {
    let collection = format!("{}?dryRun=All", Kind::Advanced.sets(ns));
    let mut wrong = Vec::new();
    for (changes, words) in creations() {
        let answer = api
            .send(
                Method::POST,
                &collection,
                Some(("application/json", &changed(&changes))),
            )
            .await;
        wrong.extend(unlike(answer, words).map(|why| format!("{changes:?}: {why}")));
    }
    // STS-1.1.9: a name whose revisions would not fit into a label.
    for (length, words) in [(52, &[][..]), (53, &["52 characters"][..])] {
        let mut set = changed(&[]);
        set["metadata"]["name"] = json!("n".repeat(length));
        let answer = api
            .send(Method::POST, &collection, Some(("application/json", &set)))
            .await;
        wrong.extend(unlike(answer, words).map(|why| format!("a name of {length}: {why}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
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

async fn forbidden_changes_are_refused(api: &Api, ns: &str) {
    let mut wrong = Vec::new();
    for (index, (before, after, words)) in updates().into_iter().enumerate() {
        let name = format!("set-{index}");
        let named = |changes: &[Change]| {
            let mut set = changed(changes);
            set["metadata"]["name"] = json!(name);
            set["spec"]["replicas"] = changes
                .iter()
                .find(|(p, _)| *p == "replicas")
                .map_or(json!(0), |(_, v)| v.clone());
            set
        };
        let created = api.create(&Kind::Advanced.sets(ns), &named(&before)).await;
        let mut update = named(&after);
        update["metadata"]["uid"] = created["metadata"]["uid"].clone();
        let path = format!("{}?dryRun=All", Kind::Advanced.set(ns, &name));
        // The manager writes the status meanwhile, which changes the version.
        let answer = loop {
            let now = api.read(&Kind::Advanced.set(ns, &name)).await;
            update["metadata"]["resourceVersion"] = now["metadata"]["resourceVersion"].clone();
            match api.send(Method::PUT, &path, Some(("application/json", &update))).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                answer => break answer,
            }
        };
        wrong.extend(unlike(answer, words).map(|why| format!("{before:?} -> {after:?}: {why}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

async fn kubectl_explains(lab: &Lab) {
    suite::schemas_published(&Api::connect(&lab.kubeconfig).await).await;
    let output = explain(lab, "asts.spec.reserveOrdinals");
    let told = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("Ordinals that no pod may have"), "{told}{error}");
}

/// `kubectl explain`, which remembers nothing from one call to the next.
fn explain(lab: &Lab, field: &str) -> std::process::Output {
    let cache = lab.kubeconfig.with_file_name("discovery");
    if let Err(error) = std::fs::remove_dir_all(&cache) {
        assert_eq!(
            error.kind(),
            std::io::ErrorKind::NotFound,
            "{}: {error}",
            cache.display()
        );
    }
    std::process::Command::new(&*lab.kubectl)
        .args(["--kubeconfig".as_ref(), lab.kubeconfig.as_os_str()])
        .args(["--cache-dir".as_ref(), cache.as_os_str()])
        .args(["explain", field])
        .output()
        .expect("kubectl runs")
}

/// Stores sets that the rules refuse, before there are rules.
pub(crate) async fn store_bad_sets(api: &Api) {
    suite::make_namespace(api, STORED).await;
    for (name, changes) in [
        (
            "reserved",
            vec![("reserveOrdinals", json!(["nonsense", 0])), ("replicas", json!(2))],
        ),
        (
            UNREADABLE,
            vec![("reserveOrdinals", json!(["nonsense"])), ("replicas", json!(2))],
        ),
        (
            BACKWARDS,
            vec![("reserveOrdinals", json!(["3-1"])), ("replicas", json!(2))],
        ),
        (
            "budget",
            vec![
                ("updateStrategy/rollingUpdate/maxUnavailable", json!(3)),
                ("replicas", json!(2)),
            ],
        ),
        (
            "words",
            vec![
                ("updateStrategy/rollingUpdate/maxUnavailable", json!("many")),
                ("replicas", json!(1)),
            ],
        ),
        (
            "history",
            vec![("revisionHistoryLimit", json!(-3)), ("replicas", json!(1))],
        ),
        (
            "policy",
            vec![("podManagementPolicy", json!("Sometimes")), ("replicas", json!(1))],
        ),
    ] {
        let text = changed(&changes).to_string().replace("\"web\"", &format!("\"{name}\""));
        let set: Value = serde_json::from_str(&text).expect("still JSON");
        api.create(&Kind::Advanced.sets(STORED), &set).await;
    }
}

/// The controller works on what it can, says what it could not read, and deletes no pod on the strength of it.
async fn stored_before(api: &Api) {
    let of = |pods: &Objects, set: &str| -> Objects {
        pods.iter()
            .filter(|(name, _)| name.starts_with(&format!("{set}-")))
            .map(|(n, p)| (n.clone(), p.clone()))
            .collect()
    };
    let all = |p: &Objects| {
        [
            ("reserved", 2),
            ("budget", 2),
            ("words", 1),
            ("history", 1),
            ("policy", 1),
        ]
        .iter()
        .all(|(set, n)| all_ready(&of(p, set), *n))
    };
    let made = api.until(&pods(STORED), SOON, "pods of all sets", all).await;
    assert_eq!(
        of(&made, "reserved").keys().collect::<Vec<_>>(),
        ["reserved-1", "reserved-2"],
        "STS-3.4: only the bad entry is ignored"
    );
    for (set, path) in [
        ("reserved", "reserveOrdinals[0]"),
        ("words", "maxUnavailable"),
        ("history", "revisionHistoryLimit"),
        ("policy", "podManagementPolicy"),
    ] {
        let told = |sets: &Objects| {
            let conditions = sets[set]
                .pointer("/status/conditions")
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            conditions
                .into_iter()
                .any(|c| c["type"] == "InvalidSpec" && c["status"] == "True" && text(c, "/message").contains(path))
        };
        api.until(
            &Kind::Advanced.sets(STORED),
            SOON,
            &format!("{set} says that {path} cannot be read"),
            told,
        )
        .await;
    }
    // STS-3.4: nothing is condemned while an entry cannot be read.
    api.patch(
        &Kind::Advanced.set(STORED, "reserved"),
        &json!({"spec": {"replicas": 1}}),
    )
    .await;
    let stays = |p: &Objects| of(p, "reserved").len() == 2 && of(p, "reserved").values().all(|p| !is_terminating(p));
    api.throughout(&pods(STORED), Duration::from_secs(3), "nothing is scaled away", stays)
        .await;
    // Ratcheting: a set with an old mistake can be edited elsewhere, and once mended the scale-down goes on.
    let scaled = api
        .patch(&Kind::Advanced.set(STORED, "budget"), &json!({"spec": {"replicas": 1}}))
        .await;
    assert_eq!(number(&scaled, "/spec/replicas"), 1);
    api.patch(
        &Kind::Advanced.set(STORED, "reserved"),
        &json!({"spec": {"reserveOrdinals": [0]}}),
    )
    .await;
    api.until(&pods(STORED), SOON, "scaled down", |p| {
        of(p, "reserved").len() == 1 && of(p, "budget").len() == 1
    })
    .await;
}
