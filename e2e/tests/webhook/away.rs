//! What holds while no process of Flotilla runs.

use crate::Lab;
use flotilla_e2e::api::{Objects, is_ready};
use flotilla_e2e::sets::{SOON, pods};
use flotilla_e2e::{Kind, webhooks};
use http::Method;
use serde_json::json;

/// ADM-1: with every process killed pods are made as before, those under our kinds too, and sets as well, their scale, status and deletion;
/// a set that breaks a rule of the definition is refused, and one that breaks none is accepted, and picked up later.
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

    let mut invalid = Kind::Advanced.manifest("invalid", 1);
    invalid["spec"]["selector"] = json!({"matchLabels": {"app": "other"}});
    let message = api.create_refused(&sets, &invalid).await;
    assert!(
        message.contains("is invalid") && message.contains("selector"),
        "{message}"
    );
    let stored = api.create(&sets, &Kind::Advanced.manifest("valid", 1)).await;
    assert!(
        stored["spec"]["podManagementPolicy"].is_null(),
        "nobody is there to fill it in: {stored}"
    );

    let (_manager, _) = webhooks::start(&api, &lab.kubeconfig, "back", &[]).await;
    let are_ready = |pods: &Objects| {
        let is_there = |name: &&str| pods.get(*name).is_some_and(is_ready);
        ["before-0", "before-1", "valid-0"].iter().all(is_there)
    };
    api.until(&pods(NS), SOON, "what was accepted is picked up", are_ready)
        .await;
    for (name, replicas) in [("before", 2), ("valid", 1)] {
        let is_counted = |sets: &Objects| sets[name]["status"]["readyReplicas"] == replicas;
        api.until(&sets, SOON, "the set counts its pods", is_counted).await;
    }
}
