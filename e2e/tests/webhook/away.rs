//! What holds while no process of Flotilla runs.

use crate::Lab;
use flotilla_e2e::sets::{SOON, pods};
use flotilla_e2e::{Kind, Manager, webhooks};
use http::Method;
use serde_json::json;

/// 1: with every process killed pods are made as before, those under our kinds too; sets wait, and their scale, status and deletion do
/// not; what reaches storage has met the definition's rules; what was taken out of the webhooks' scope is accepted and picked up later.
pub(crate) async fn pods_are_made_and_rules_hold_while_nobody_is_there(lab: &Lab) {
    const NS: &str = "away";
    let api = lab.enter(NS).await;
    let (mut manager, _) = webhooks::start(&api, &lab.kubeconfig, "away", &[]).await;
    let sets = Kind::Advanced.sets(NS);
    let mut before = Kind::Advanced.manifest("before", 1);
    before["spec"]["podManagementPolicy"] = json!("Parallel");
    api.create(&sets, &before).await;
    api.create(&sets, &Kind::Advanced.manifest("leaving", 0)).await;
    api.until(&pods(NS), SOON, "a pod of the set", |pods| {
        pods.contains_key("before-0")
    })
    .await;
    manager.kill();

    for (name, owner) in [
        ("alone", None),
        ("native", Some("apps/v1")),
        ("ours", Some("apps.kruise.io/v1beta1")),
    ] {
        api.create(&pods(NS), &webhooks::pod(name, owner)).await;
        api.create(&pods("kube-system"), &webhooks::pod(&format!("away-{name}"), owner))
            .await;
    }

    let message = api.create_refused(&sets, &Kind::Advanced.manifest("waits", 1)).await;
    assert!(message.contains("failed calling webhook"), "{message}");
    let scale = format!("{}/scale", Kind::Advanced.set(NS, "before"));
    api.patch(&scale, &json!({"spec": {"replicas": 2}})).await;
    let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground"});
    let path = Kind::Advanced.set(NS, "leaving");
    let deleted = api.send(Method::DELETE, &path, Some(("application/json", &body))).await;
    deleted.expect("a deletion is held up by nobody");
    api.until(&sets, SOON, "the deleted set is gone", |sets| {
        !sets.contains_key("leaving")
    })
    .await;

    let out = |name: &str| {
        let mut set = Kind::Advanced.manifest(name, 1);
        set["metadata"]["labels"] = json!({"flotilla.rs/webhooks": "ignore"});
        set
    };
    let mut invalid = out("invalid");
    invalid["spec"]["selector"] = json!({"matchLabels": {"app": "other"}});
    let message = api.create_refused(&sets, &invalid).await;
    assert!(
        message.contains("is invalid") && message.contains("selector"),
        "{message}"
    );
    api.create(&sets, &out("valid")).await;

    let arguments = ["--leader-elect=false", "--observation-seconds=0", "--http-address=none"];
    let _without_webhooks = Manager::start(&lab.kubeconfig, "back", &arguments);
    let all = api
        .until(&pods(NS), SOON, "what was accepted is picked up", |pods| {
            ["before-0", "before-1", "valid-0"]
                .iter()
                .all(|name| pods.contains_key(*name))
        })
        .await;
    assert!(!all.contains_key("waits-0"));
}
