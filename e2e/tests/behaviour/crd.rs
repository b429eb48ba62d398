//! The definition of Advanced StatefulSet on a real API server: what it refuses, with which words, and what it lets pass.

use crate::Lab;
use flotilla_e2e::api::{Objects, is_terminating, number, text};
use flotilla_e2e::sets::{SOON, all_ready, pods};
use flotilla_e2e::suite::{self, trial};
use flotilla_e2e::{Api, Kind, clock};
use http::Method;
use libtest_mimic::Trial;
use serde_json::{Value, json};
use std::time::Duration;

/// Where the sets live that were stored before the rules.
pub(crate) const STORED: &str = "stored-before-the-rules";
/// One of them, with a reserved ordinal that cannot be read; another scenario asks why it waits.
pub(crate) const UNREADABLE: &str = "unreadable";

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

/// The path below `spec` that a case sets, and to what; `null` takes it away.
type Change = (&'static str, Value);

fn changed(changes: &[Change]) -> Value {
    let mut set = Kind::Advanced.manifest("web", 1);
    for (pointer, value) in changes {
        put(&mut set["spec"], pointer, value.clone());
    }
    set
}

fn put(mut place: &mut Value, pointer: &str, value: Value) {
    for step in pointer.split('/') {
        place = match step.parse::<usize>() {
            Ok(index) => &mut place[index],
            Err(_) => &mut place[step],
        };
    }
    *place = value;
}

fn parallel() -> Change {
    ("podManagementPolicy", json!("Parallel"))
}

fn claim(name: &str, storage: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}}})
}

/// Each row of 7.3 that CEL can express: changes to a good manifest, and words of the refusal; no words means that it is accepted.
fn creations() -> Vec<(Vec<Change>, &'static [&'static str])> {
    const BUDGET: &str = "updateStrategy/rollingUpdate/maxUnavailable";
    const POLICY: &str = "updateStrategy/rollingUpdate/podUpdatePolicy";
    const UNORDERED: &str = "updateStrategy/rollingUpdate/unorderedUpdate";
    const HOOK: &str = "lifecycle/preDelete";
    let gate = || {
        (
            "template/spec/readinessGates",
            json!([{"conditionType": "InPlaceUpdateReady"}]),
        )
    };
    let selector = |expressions: Value| ("selector/matchExpressions", expressions);
    vec![
        (vec![], &[]),
        (
            vec![("podManagementPolicy", json!("Sometimes"))],
            &["spec.podManagementPolicy", "OrderedReady or Parallel"],
        ),
        (vec![("podManagementPolicy", json!(""))], &[]),
        (vec![("reserveOrdinals", json!([1, "3-5", 0]))], &[]),
        (
            vec![("reserveOrdinals", json!([1, -1]))],
            &["spec.reserveOrdinals[1]", "0 or more"],
        ),
        (
            vec![("reserveOrdinals", json!(["5-3"]))],
            &["spec.reserveOrdinals[0]", "range"],
        ),
        (vec![("reserveOrdinals", json!(["7"]))], &["spec.reserveOrdinals[0]"]),
        (
            vec![("reserveOrdinals", json!(["0-1000000"]))],
            &["spec.reserveOrdinals[0]", "1000000"],
        ),
        (
            vec![("reserveOrdinals", json!(["1-99999999999999999999"]))],
            &["spec.reserveOrdinals[0]"],
        ),
        (
            vec![parallel(), ("scaleStrategy/maxUnavailable", json!(0))],
            &["scaleStrategy.maxUnavailable", "at least 1"],
        ),
        (vec![parallel(), ("scaleStrategy/maxUnavailable", json!("25%"))], &[]),
        (
            vec![("scaleStrategy/maxUnavailable", json!(2))],
            &["scaleStrategy.maxUnavailable", "Parallel"],
        ),
        (vec![("scaleStrategy/maxUnavailable", json!(1))], &[]),
        (
            vec![("updateStrategy/type", json!("Sometimes"))],
            &["updateStrategy.type", "RollingUpdate or OnDelete"],
        ),
        (vec![("updateStrategy/type", json!("OnDelete"))], &[]),
        (
            vec![(
                "updateStrategy",
                json!({"type": "OnDelete", "rollingUpdate": {"partition": 1}}),
            )],
            &["updateStrategy.rollingUpdate", "OnDelete"],
        ),
        (
            vec![("updateStrategy/rollingUpdate/partition", json!(-1))],
            &["partition", "greater than or equal to 0"],
        ),
        (
            vec![("updateStrategy/rollingUpdate/minReadySeconds", json!(301))],
            &["minReadySeconds", "300"],
        ),
        (
            vec![parallel(), (BUDGET, json!("0%"))],
            &["rollingUpdate.maxUnavailable", "percentage"],
        ),
        (
            vec![parallel(), (BUDGET, json!("101%"))],
            &["rollingUpdate.maxUnavailable", "percentage"],
        ),
        (
            vec![parallel(), (BUDGET, json!("3"))],
            &["rollingUpdate.maxUnavailable", "percentage"],
        ),
        (vec![parallel(), (BUDGET, json!(3))], &[]),
        (vec![parallel(), (BUDGET, json!("100%"))], &[]),
        (vec![(BUDGET, json!(3))], &["rollingUpdate.maxUnavailable", "Parallel"]),
        (
            vec![(BUDGET, json!("10%"))],
            &["rollingUpdate.maxUnavailable", "Parallel"],
        ),
        (vec![(POLICY, json!("Recreate"))], &["podUpdatePolicy", "ReCreate"]),
        (
            vec![(POLICY, json!("InPlaceIfPossible"))],
            &["podUpdatePolicy", "InPlaceUpdateReady", "readinessGates"],
        ),
        (vec![(POLICY, json!("InPlaceOnly")), gate()], &[]),
        (vec![(UNORDERED, json!({}))], &["unorderedUpdate", "Parallel"]),
        (vec![parallel(), (UNORDERED, json!({}))], &[]),
        (
            vec![
                parallel(),
                (
                    UNORDERED,
                    json!({"priorityStrategy": {
                        "orderPriority": [{"orderedKey": "a"}], "weightPriority": [{"weight": 1, "matchSelector": {"matchLabels": {"a": "b"}}}],
                    }}),
                ),
            ],
            &["priorityStrategy", "not both"],
        ),
        (
            vec![
                parallel(),
                (
                    UNORDERED,
                    json!({"priorityStrategy": {"orderPriority": [{"orderedKey": ""}]}}),
                ),
            ],
            &["orderPriority[0]", "must not be empty"],
        ),
        (
            vec![
                parallel(),
                (
                    UNORDERED,
                    json!({"priorityStrategy": {"weightPriority": [{"weight": 101, "matchSelector": {"matchLabels": {"a": "b"}}}]}}),
                ),
            ],
            &["weightPriority[0]", "0 to 100"],
        ),
        (
            vec![
                parallel(),
                (
                    UNORDERED,
                    json!({"priorityStrategy": {"weightPriority": [{"weight": 0, "matchSelector": {}}]}}),
                ),
            ],
            &["matchSelector", "must not be empty"],
        ),
        (
            vec![
                parallel(),
                (
                    UNORDERED,
                    json!({"priorityStrategy": {"weightPriority": [{"weight": 0, "matchSelector": {"matchLabels": {"a": "b"}}}]}}),
                ),
            ],
            &[],
        ),
        (
            vec![("persistentVolumeClaimRetentionPolicy/whenScaled", json!("Drop"))],
            &["whenScaled", "Retain or Delete"],
        ),
        (
            vec![("persistentVolumeClaimRetentionPolicy/whenDeleted", json!("Drop"))],
            &["whenDeleted", "Retain or Delete"],
        ),
        (
            vec![("persistentVolumeClaimRetentionPolicy", json!({"whenDeleted": "Delete"}))],
            &[],
        ),
        (
            vec![("replicas", json!(-1))],
            &["spec.replicas", "greater than or equal to 0"],
        ),
        (vec![("selector", Value::Null)], &["spec.selector"]),
        (vec![("selector", json!({}))], &["spec.selector", "must not be empty"]),
        (
            vec![("selector", json!({"matchLabels": {"app": "other"}}))],
            &["spec.selector", "template.metadata.labels"],
        ),
        (
            vec![selector(
                json!([{"key": "app", "operator": "In", "values": ["web", "x"]}]),
            )],
            &[],
        ),
        (
            vec![selector(
                json!([{"key": "app", "operator": "NotIn", "values": ["web"]}]),
            )],
            &["template.metadata.labels"],
        ),
        (
            vec![selector(json!([{"key": "tier", "operator": "DoesNotExist"}]))],
            &[],
        ),
        (
            vec![selector(json!([{"key": "tier", "operator": "Exists"}]))],
            &["template.metadata.labels"],
        ),
        (
            vec![selector(json!([{"key": "app", "operator": "Near", "values": ["web"]}]))],
            &["spec.selector", "In and NotIn"],
        ),
        (
            vec![selector(json!([{"key": "app", "operator": "In"}]))],
            &["spec.selector", "with values"],
        ),
        (vec![("template", Value::Null)], &["spec.template"]),
        (
            vec![("template/metadata/labels", json!({"app": "web", "bad key!": "x"}))],
            &["labels", "valid label keys"],
        ),
        (
            vec![("template/metadata/labels", json!({"app": "web", "tier": "not valid"}))],
            &["labels"],
        ),
        (
            vec![("template/metadata/annotations", json!({"bad key!": "x"}))],
            &["annotations", "valid keys"],
        ),
        (
            vec![(
                "template/metadata/annotations",
                json!({"Example.com/Key": "any text, any length"}),
            )],
            &[],
        ),
        (vec![("template/metadata/creationTimestamp", Value::Null)], &[]),
        (
            vec![("template/spec/restartPolicy", json!("Never"))],
            &["restartPolicy", "Always"],
        ),
        (vec![("template/spec/restartPolicy", json!("Always"))], &[]),
        (
            vec![("template/spec/activeDeadlineSeconds", json!(5))],
            &["activeDeadlineSeconds"],
        ),
        (
            vec![("template/spec/containers", json!([]))],
            &["containers", "at least one"],
        ),
        (vec![("template/spec/fieldOfTheFuture", json!({"a": 1}))], &[]),
        (
            vec![(HOOK, json!({}))],
            &["preDelete", "labelsHandler or finalizersHandler"],
        ),
        (
            vec![(HOOK, json!({"labelsHandler": {"bad key!": "x"}}))],
            &["preDelete", "label keys"],
        ),
        (
            vec![(HOOK, json!({"labelsHandler": {"key": "not valid"}}))],
            &["labelsHandler"],
        ),
        (
            vec![(HOOK, json!({"finalizersHandler": ["unqualified"]}))],
            &["preDelete", "qualified"],
        ),
        (
            vec![(HOOK, json!({"labelsHandler": {"app": "web"}}))],
            &["lifecycle", "selector"],
        ),
        (
            vec![(
                HOOK,
                json!({"labelsHandler": {"hook": "yes"}, "finalizersHandler": ["example.com/a"]}),
            )],
            &[],
        ),
        (vec![("revisionHistoryLimit", json!(-1))], &["revisionHistoryLimit"]),
        (vec![("ordinals/start", json!(-1))], &["ordinals.start"]),
        (
            vec![(
                "updateStrategy/rollingUpdate/inPlaceUpdateStrategy/gracePeriodSeconds",
                json!(-1),
            )],
            &["gracePeriodSeconds"],
        ),
        (
            vec![(
                "updateStrategy/rollingUpdate/inPlaceUpdateStrategy/imagePreDownloadParallelism",
                json!(0),
            )],
            &["imagePreDownloadParallelism"],
        ),
        (
            vec![("volumeClaimUpdateStrategy/type", json!("Now"))],
            &["volumeClaimUpdateStrategy.type", "OnPodRollingUpdate"],
        ),
        (
            vec![("volumeClaimTemplates", json!([claim("a", "1Gi"), claim("b", "1Gi")]))],
            &[],
        ),
        (
            vec![("volumeClaimTemplates", json!([claim("a", "1Gi"), claim("a", "1Gi")]))],
            &["volumeClaimTemplates", "no other"],
        ),
        (
            vec![("volumeClaimTemplates", json!([{"spec": {}}]))],
            &["volumeClaimTemplates", "metadata.name"],
        ),
        (
            vec![("specialPodsSelectors", json!([{}]))],
            &["specialPodsSelectors[0]", "must not be empty"],
        ),
        (
            vec![(
                "specialPodsSelectors",
                json!([{"matchExpressions": [{"key": "a", "operator": "?"}]}]),
            )],
            &["specialPodsSelectors[0]"],
        ),
    ]
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
    // 1.1.9: a name whose revisions would not fit into a label.
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

/// 7.4: from a set with these changes to one with those; words as above.
async fn forbidden_changes_are_refused(api: &Api, ns: &str) {
    let rolling = || ("volumeClaimUpdateStrategy/type", json!("OnPodRollingUpdate"));
    let claims = |claims: Value| ("volumeClaimTemplates", claims);
    let two = || claims(json!([claim("a", "2Gi"), claim("b", "2Gi")]));
    let cases: Vec<(Vec<Change>, Vec<Change>, &[&str])> = vec![
        (
            vec![],
            vec![
                ("replicas", json!(5)),
                ("ordinals/start", json!(2)),
                ("reserveOrdinals", json!([3])),
            ],
            &[],
        ),
        (
            vec![],
            vec![
                ("template/spec/containers/0/image", json!("app:v9")),
                ("revisionHistoryLimit", json!(1)),
            ],
            &[],
        ),
        (
            vec![parallel()],
            vec![parallel(), ("scaleStrategy/maxUnavailable", json!(3))],
            &[],
        ),
        (
            vec![],
            vec![("persistentVolumeClaimRetentionPolicy/whenScaled", json!("Delete"))],
            &[],
        ),
        (
            vec![],
            vec![("serviceName", json!("other"))],
            &["spec.serviceName", "cannot be changed"],
        ),
        (
            vec![],
            vec![parallel()],
            &["spec.podManagementPolicy", "cannot be changed"],
        ),
        (vec![], vec![("podManagementPolicy", json!("OrderedReady"))], &[]),
        (
            vec![],
            vec![
                ("selector", json!({"matchLabels": {"app": "web", "b": "c"}})),
                ("template/metadata/labels/b", json!("c")),
            ],
            &["spec.selector", "cannot be changed"],
        ),
        (vec![two()], vec![claims(json!([claim("a", "1Gi")]))], &[]),
        (
            vec![two(), rolling()],
            vec![claims(json!([claim("a", "3Gi"), claim("b", "2048Mi")])), rolling()],
            &[],
        ),
        (
            vec![two(), rolling()],
            vec![claims(json!([claim("b", "2Gi"), claim("a", "2Gi")])), rolling()],
            &[],
        ),
        (
            vec![two(), rolling()],
            vec![claims(json!([claim("a", "2Gi")])), rolling()],
            &["volumeClaimTemplates", "only the requested storage"],
        ),
        (
            vec![two(), rolling()],
            vec![claims(json!([claim("a", "2Gi"), claim("c", "2Gi")])), rolling()],
            &["volumeClaimTemplates", "only the requested storage"],
        ),
        (
            vec![two(), rolling()],
            vec![claims(json!([claim("a", "2Gi"), claim("b", "2047Mi")])), rolling()],
            &["volumeClaimTemplates", "smaller"],
        ),
        // `[F]`: the new strategy counts, so that switching it together with the templates is no way around the rule.
        (
            vec![two()],
            vec![claims(json!([claim("a", "1Gi"), claim("b", "2Gi")])), rolling()],
            &["volumeClaimTemplates", "smaller"],
        ),
        (vec![two(), rolling()], vec![claims(json!([claim("a", "1Gi")]))], &[]),
    ];
    let mut wrong = Vec::new();
    for (index, (before, after, words)) in cases.into_iter().enumerate() {
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
    // The API server publishes discovery and schemas some seconds after it serves a definition, and has no watch for that.
    let begun = clock::now();
    loop {
        let output = explain(lab, "asts.spec.reserveOrdinals");
        let told = String::from_utf8_lossy(&output.stdout);
        if told.contains("Ordinals that no pod may have") {
            return;
        }
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(begun.elapsed() < SOON, "{told}{error}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
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
        "3.4: only the bad entry is ignored"
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
    // 3.4: nothing is condemned while an entry cannot be read.
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
