//! What users see of a set: columns, the scale subresource, conditions, and the older version.

use crate::rules::creations;
use crate::{Lab, cases};
use flotilla_e2e::api::{Api, Objects, text};
use flotilla_e2e::clones::{manifest, old_sets, sets, settled, web};
use flotilla_e2e::sets::{SOON, pods, ready, set_image};
use flotilla_e2e::{Manager, clock, webhooks};
use http::{Method, Request};
use serde_json::{Value, json};
use std::time::Duration;

/// A collection as kubectl asks for it.
async fn table(api: &Api, collection: &str) -> Value {
    let request = Request::get(collection)
        .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())
        .expect("the path is valid");
    let answer = api.client().request::<Value>(request).await;
    answer.unwrap_or_else(|e| panic!("GET {collection}: {e}"))
}

/// CS-2: the columns of the definition, and the scale subresource.
pub(crate) async fn columns_and_scale(lab: &Lab) {
    let ns = "face-columns";
    let api = lab.enter(ns).await;
    let _manager = Manager::alone(&lab.kubeconfig);
    api.create(&sets(ns), &manifest(3)).await;
    settled(&api, ns, SOON).await;
    let table = table(&api, &sets(ns)).await;
    let columns: Vec<(&str, i64)> = table["columnDefinitions"]
        .as_array()
        .expect("columns")
        .iter()
        .map(|column| (text(column, "/name"), column["priority"].as_i64().expect("a priority")))
        .collect();
    let expected = [
        ("Name", 0),
        ("DESIRED", 0),
        ("UPDATED", 0),
        ("UPDATED_READY", 0),
        ("UPDATED_AVAILABLE", 0),
        ("READY", 0),
        ("TOTAL", 0),
        ("AGE", 0),
        ("CONTAINERS", 1),
        ("IMAGES", 1),
        ("SELECTOR", 1),
    ];
    assert_eq!(columns, expected);
    let cells = table["rows"][0]["cells"].as_array().expect("cells");
    assert_eq!(
        cells[..7],
        [json!("web"), json!(3), json!(3), json!(3), json!(3), json!(3), json!(3)]
    );
    assert_eq!(cells[8..], [json!("main"), json!("app:v1"), json!("app=web")]);

    let path = format!("{}/scale", web(ns));
    let mut scale = api.read(&path).await;
    assert_eq!(
        (&scale["spec"], &scale["status"]),
        (&json!({"replicas": 3}), &json!({"replicas": 3, "selector": "app=web"}))
    );
    scale["spec"]["replicas"] = json!(1);
    api.put(&path, &scale).await;
    ready(&api, ns, 1).await;
    let set = settled(&api, ns, SOON).await;
    assert_eq!(set["status"]["labelSelector"], "app=web");
    api.delete(&web(ns), false).await;
    api.until(&pods(ns), SOON, "pods go with their set", Objects::is_empty)
        .await;
}

fn condition<'s>(set: &'s Value, kind: &str) -> Option<&'s Value> {
    let conditions = set["status"]["conditions"].as_array()?;
    conditions.iter().find(|c| c["type"] == kind)
}

fn is(set: &Value, kind: &str, status: &str, reason: &str) -> bool {
    condition(set, kind).is_some_and(|c| c["status"] == status && c["reason"] == reason)
}

async fn until_condition(api: &Api, ns: &str, kind: &str, status: &str, reason: &str) -> Value {
    let what = format!("condition {kind} {status}, {reason}");
    let mut found = api
        .until(&sets(ns), SOON, &what, |sets| is(&sets["web"], kind, status, reason))
        .await;
    found.remove("web").expect("it was there a moment ago")
}

/// Whoever reads the log of the process learns which pod of which set is refused and why, and is not told again with each try.
async fn refusals_are_logged_once(api: &Api, manager: &Manager, ns: &str) {
    let events = format!("/apis/events.k8s.io/v1/namespaces/{ns}/events");
    let is_repeated = |event: &Value| event["series"]["count"].as_i64().is_some_and(|count| count > 1);
    api.until(&events, 2 * SOON, "the pod is refused again", |events| {
        events.values().any(is_repeated)
    })
    .await;
    let log = manager.log();
    let key = format!(" key={ns}/web ");
    let lines: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("the API server refuses") && line.contains(&key))
        .collect();
    let [line] = lines[..] else {
        panic!("not one line about {key}, but: {lines:#?}");
    };
    for words in [
        " WARN ",
        "refuses a write; it is tried again at growing intervals",
        " subject=\"web-",
        " reason=\"QuotaExceeded\"",
        " why=\"pods ",
        "exceeded quota: few",
        " count=1 ",
    ] {
        assert!(line.contains(words), "{words:?} is not in: {line}");
    }
}

/// CS-4 and CS-21: a quota that refuses pods, and a rollout that does not get on.
pub(crate) async fn conditions_come_and_go(lab: &Lab) {
    let ns = "face-conditions";
    let api = lab.enter(ns).await;
    let manager = Manager::alone(&lab.kubeconfig);
    let quotas = format!("/api/v1/namespaces/{ns}/resourcequotas");
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}});
    api.create(&quotas, &quota).await;
    api.until(&quotas, SOON, "the quota is counted", |all| {
        all["few"]["status"]["hard"]["pods"] == "2"
    })
    .await;
    let mut set = manifest(3);
    set["spec"]["progressDeadlineSeconds"] = json!(3);
    set["spec"]["updateStrategy"] = json!({"rollingUpdate": {"maxUnavailable": 1}});
    api.create(&sets(ns), &set).await;
    let set = until_condition(&api, ns, "FailedScale", "True", "QuotaExceeded").await;
    let message = text(condition(&set, "FailedScale").expect("it was there"), "/message");
    assert!(message.contains("exceeded quota"), "{message}");
    refusals_are_logged_once(&api, &manager, ns).await;
    api.delete(&format!("{quotas}/few"), false).await;
    until_condition(&api, ns, "FailedScale", "False", "Recovered").await;
    until_condition(&api, ns, "Progressing", "True", "CloneSetAvailable").await;

    set_image(&api, &web(ns), "app:broken").await;
    until_condition(&api, ns, "Progressing", "True", "CloneSetUpdated").await;
    until_condition(&api, ns, "Progressing", "False", "ProgressDeadlineExceeded").await;
    api.patch(
        &web(ns),
        &json!({"spec": {"updateStrategy": {"rollingUpdate": {"paused": true}}}}),
    )
    .await;
    until_condition(&api, ns, "Progressing", "True", "CloneSetPaused").await;
    let back = json!({"spec": {"updateStrategy": {"rollingUpdate": {"paused": false}}}});
    api.patch(&web(ns), &back).await;
    set_image(&api, &web(ns), "app:v1").await;
    until_condition(&api, ns, "Progressing", "True", "CloneSetAvailable").await;
    api.patch(&web(ns), &json!({"spec": {"progressDeadlineSeconds": null}}))
        .await;
    api.until(
        &sets(ns),
        SOON,
        "without a deadline there is no such condition",
        |sets| condition(&sets["web"], "Progressing").is_none(),
    )
    .await;
    api.delete(&web(ns), false).await;
}

/// Waits until the API server has objects of the older version converted: nothing can be watched for that.
async fn old_version_is_served(api: &Api, ns: &str) {
    let begun = clock::now();
    while api.send(Method::GET, &old_sets(ns), None).await.is_err() {
        assert!(begun.elapsed() < SOON, "{} is not served", old_sets(ns));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn refused(api: &Api, path: &str, change: &Value, words: &str) {
    let sent = api
        .send(Method::PATCH, path, Some(("application/merge-patch+json", change)))
        .await;
    let Err(kube::Error::Api(status)) = sent else {
        panic!("{change} was not refused: {sent:?}");
    };
    assert_eq!(status.code, 422, "{}", status.message);
    assert!(status.message.contains(words), "{}", status.message);
}

/// CS-7 and CS-8, through the API server.
pub(crate) async fn versions_are_converted(lab: &Lab) {
    let ns = "face-versions";
    let api = lab.enter(ns).await;
    let (_manager, _) = webhooks::start(&api, &lab.kubeconfig, "clone-versions", &[]).await;
    old_version_is_served(&api, ns).await;
    let wrong = creations(
        &api,
        &format!("{}?dryRun=All", old_sets(ns)),
        "v1alpha1",
        cases::alpha(),
    )
    .await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let old_web = format!("{}/web", old_sets(ns));
    let mut old = manifest(2);
    old["apiVersion"] = json!("apps.kruise.io/v1alpha1");
    old["metadata"]["labels"] = json!({"apps.kruise.io/cloneset-scaling-exclude-preparing-delete": "true"});
    old["metadata"]["annotations"] = json!({"apps.kruise.io/image-predownload-parallelism": "25%"});
    old["spec"]["scaleStrategy"] = json!({"disablePVCReuse": true});
    old["spec"]["updateStrategy"] =
        json!({"type": "InPlaceIfPossible", "partition": "50%", "inPlaceUpdateStrategy": {"gracePeriodSeconds": 5}});
    api.create(&old_sets(ns), &old).await;
    let new = settled(&api, ns, SOON).await;
    assert_eq!(
        new["spec"]["scaleStrategy"],
        json!({"enablePVCReuse": false, "excludePreparingDelete": true})
    );
    let strategy = &new["spec"]["updateStrategy"];
    assert_eq!(strategy["type"], "RollingUpdate");
    let rolling = &strategy["rollingUpdate"];
    assert_eq!(
        (&rolling["podUpdatePolicy"], &rolling["partition"]),
        (&json!("InPlaceIfPossible"), &json!("50%"))
    );
    assert_eq!(rolling["maxUnavailable"], "20%", "defaulted");
    assert_eq!(rolling["inPlaceUpdateStrategy"]["gracePeriodSeconds"], 5);
    assert_eq!(rolling["inPlaceUpdateStrategy"]["imagePreDownloadParallelism"], "25%");
    assert_eq!(
        new["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"],
        "Always"
    );

    // What only the new version can say survives a round trip through the old one.
    let change =
        json!({"spec": {"updateStrategy": {"type": "OnDelete"}, "scaleStrategy": {"excludePreparingDelete": false}}});
    api.patch(&web(ns), &change).await;
    let old = api.read(&old_web).await;
    assert_eq!(old["spec"]["updateStrategy"]["type"], "OnDelete");
    assert!(old["metadata"]["labels"]["apps.kruise.io/cloneset-scaling-exclude-preparing-delete"].is_null());
    api.patch(&old_web, &json!({"spec": {"minReadySeconds": 1}})).await;
    let new = api.read(&web(ns)).await;
    assert_eq!(new["spec"]["updateStrategy"]["type"], "OnDelete");
    assert_eq!(
        new["spec"]["updateStrategy"]["rollingUpdate"]["podUpdatePolicy"],
        "InPlaceIfPossible"
    );
    assert_eq!(new["spec"]["minReadySeconds"], 1);

    // CS-6: what only one version's webhook refused is refused there, and warned of in the other.
    let late = json!({"spec": {"progressDeadlineSeconds": 1, "minReadySeconds": 5}});
    refused(&api, &old_web, &late, "progressDeadlineSeconds").await;
    api.patch(&web(ns), &late).await;
    // A name that nobody remembers is looked up.
    let named = |name: &str| json!({"spec": {"scaleStrategy": {"podsToDelete": [name]}}});
    refused(&api, &old_web, &named("web-never"), "must name pods that exist").await;
    api.create(&pods(ns), &webhooks::pod("stranger", None)).await;
    refused(&api, &old_web, &named("stranger"), "must name pods of this set").await;
    api.patch(&web(ns), &named("web-never")).await;
    let is_forgotten = |sets: &Objects| sets["web"]["spec"]["scaleStrategy"]["podsToDelete"] == json!([]);
    api.until(&sets(ns), SOON, "names of no pods are forgotten", is_forgotten)
        .await;
    let wide = table(&api, &old_sets(ns)).await;
    assert_eq!(wide["rows"][0]["cells"].as_array().map(Vec::len), Some(11));
    api.delete(&web(ns), false).await;
}
