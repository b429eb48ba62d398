//! Certificates that change, and registrations that others touch.

use crate::Lab;
use flotilla_e2e::api::{name, text};
use flotilla_e2e::sets::SOON;
use flotilla_e2e::webhooks::{MUTATING, NAME, Ports, SECRET, VALIDATING};
use flotilla_e2e::{Kind, Manager, clock, webhooks};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// Path of the Secrets in our namespace.
const SECRETS: &str = "/api/v1/namespaces/flotilla-system/secrets";

/// ADM-4: the certificate changes ten times, and the authority with it, while sets are made and deleted: no request fails.
pub(crate) async fn change_ten_times_without_a_failed_request(lab: &Lab) {
    const NS: &str = "rotation";
    const CHANGES: usize = 10;
    let api = lab.enter(NS).await;
    // What earlier scenarios made lives for weeks.
    if api.get(SECRET).await.is_some() {
        api.delete(SECRET, false).await;
    }
    let (_manager, ports) = webhooks::start(&api, &lab.kubeconfig, "rotation", &["--certificate-seconds=6"]).await;
    let (sets, mut made) = (Kind::Advanced.sets(NS), 0);
    let mut seen = BTreeSet::new();
    let begun = clock::now();
    let authorities = || ports.metric("flotilla_webhook_certificate_changes_total{step=\"forget\"}");
    while seen.len() <= CHANGES || authorities() < 1.0 {
        assert!(begun.elapsed() < SOON * 3, "{} changes, {made} sets", seen.len());
        let batch: Vec<_> = (0..8)
            .map(|n| Kind::Advanced.manifest(&format!("web-{}", made + n), 0))
            .collect();
        let mut creating: FuturesUnordered<_> = batch.iter().map(|set| api.create(&sets, set)).collect();
        while let Some(set) = creating.next().await {
            assert_eq!(set["spec"]["podManagementPolicy"], "OrderedReady");
            made += 1;
        }
        // Each by itself, and at once: an API server gives up a request after a minute, and to delete thousands together takes longer on a
        // busy machine. And whoever reads sets in the older version next would wait until each of them had been converted.
        let paths: Vec<_> = batch.iter().map(|set| format!("{sets}/{}", name(set))).collect();
        let deleting: FuturesUnordered<_> = paths.iter().map(|path| api.delete(path, false)).collect();
        deleting.collect::<()>().await;
        seen.insert(text(&api.read(SECRET).await, "/data/tls.crt").to_owned());
    }
    println!(
        "{made} sets while the certificate changed {} times, and the authority, in {:.0?}",
        seen.len() - 1,
        begun.elapsed()
    );
}

/// ADM-1: what somebody deletes or changes is put right within a minute; what is as it should be is not written.
pub(crate) async fn registrations_are_put_back(lab: &Lab) {
    let api = lab.enter("put-back").await;
    let (_manager, ports) = webhooks::start(&api, &lab.kubeconfig, "put-back", &[]).await;
    let begun = clock::now();
    api.delete(&format!("{MUTATING}/{NAME}"), false).await;
    let path = format!("{VALIDATING}/{NAME}");
    let change = json!([{"op": "replace", "path": "/webhooks/1/failurePolicy", "value": "Ignore"}]);
    let changed = api
        .send(
            http::Method::PATCH,
            &path,
            Some(("application/json-patch+json", &change)),
        )
        .await;
    changed.expect("somebody changes the configuration");
    webhooks::registered(&api, ports.webhooks).await;
    let put_right = |all: &flotilla_e2e::api::Objects| all[NAME]["webhooks"][1]["failurePolicy"] == "Fail";
    api.until(VALIDATING, SOON, "the failure policy is put right", put_right)
        .await;
    assert!(begun.elapsed() < Duration::from_secs(60));

    // The Secret, too: somebody's own, without our label, is replaced.
    let before = api.read(SECRET).await;
    api.patch(
        SECRET,
        &json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "somebody"}}}),
    )
    .await;
    api.until(SECRETS, SOON, "the Secret is replaced", |all| {
        let secret = &all["flotilla-webhook-certificates"];
        text(secret, "/metadata/labels/app.kubernetes.io~1managed-by") == "flotilla"
            && secret["data"]["ca.crt"] != before["data"]["ca.crt"]
    })
    .await;
    webhooks::registered(&api, ports.webhooks).await;
}

/// ADM-4: both replicas serve what the Secret says; only the one with the lease writes, and when it is gone the other one does.
pub(crate) async fn two_managers_serve_and_one_writes(lab: &Lab) {
    let api = lab.enter("two").await;
    let ports = [Ports::free(), Ports::free()];
    let start = |index: usize, name: &str| {
        let arguments = ports[index].arguments(ports[0].webhooks);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Manager::start(&lab.kubeconfig, name, &arguments)
    };
    let mut first = start(0, "first");
    webhooks::registered(&api, ports[0].webhooks).await;
    let _second = start(1, "second");
    ports[1].ready().await;
    let authority = text(&api.read(SECRET).await, "/data/ca.crt").to_owned();
    let [one, other] = ports.map(|ports| ports.metric("flotilla_webhook_certificate_ends_seconds"));
    assert!(
        one > 0.0 && (one - other).abs() < f64::EPSILON,
        "both show the same: {one}, {other}"
    );
    let made = |ports: Ports| ports.metric("flotilla_webhook_certificate_changes_total{step=\"replace\"}");
    assert!(made(ports[1]) < 1.0, "a standby makes none");
    assert_eq!(text(&api.read(SECRET).await, "/data/ca.crt"), authority);

    first.kill();
    api.delete(SECRET, false).await;
    let found = api
        .until(SECRETS, SOON, "the second one makes certificates", |all| {
            all.contains_key("flotilla-webhook-certificates")
        })
        .await;
    assert_ne!(text(&found["flotilla-webhook-certificates"], "/data/ca.crt"), authority);
    // It counts what it made when it has the answer, which may be after the watch told us.
    comes_true("it has counted that", || made(ports[1]) >= 1.0).await;
}

/// Waits for what a manager's own pages say, which nobody can watch.
async fn comes_true(what: &str, is_so: impl Fn() -> bool) {
    let begun = clock::now();
    while !is_so() {
        assert!(begun.elapsed() < SOON, "not within {SOON:?}: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// ADM-4: certificates given from outside are served as they are, and read again when they change.
pub(crate) async fn can_come_from_a_directory(lab: &Lab) {
    let api = lab.enter("directory").await;
    // Whatever made them: here, a manager did.
    let (mut maker, _) = webhooks::start(&api, &lab.kubeconfig, "maker", &[]).await;
    let directory = lab.kubeconfig.with_file_name("tls");
    write(&api.read(SECRET).await, &directory);
    maker.kill();
    api.delete(SECRET, false).await;
    let option = format!("--tls-dir={}", directory.display());
    let (_manager, ports) = webhooks::start(&api, &lab.kubeconfig, "directory", &[&option]).await;
    assert!(api.get(SECRET).await.is_none(), "nothing is made");
    assert!(ports.metric("flotilla_webhook_certificate_ends_seconds") > 0.0);
}

fn write(secret: &Value, directory: &std::path::Path) {
    std::fs::create_dir_all(directory).expect("a directory");
    for name in ["tls.crt", "tls.key", "ca.crt"] {
        let encoded = text(secret, &format!("/data/{name}"));
        let bytes = k8s_openapi::serde_json::from_value::<k8s_openapi::ByteString>(json!(encoded)).expect("base64");
        std::fs::write(directory.join(name), bytes.0).expect("it can be written");
    }
}
