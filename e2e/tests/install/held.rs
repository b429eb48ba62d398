//! What roles cannot say, policies do: the manager's account writes no config map but barriers, and registers for nothing but what is ours.

use super::{Said, kubectl, said};
use flotilla_e2e::api::text;
use flotilla_e2e::webhooks::{MUTATING, NAME, VALIDATING};
use flotilla_e2e::{Api, clock};
use flotilla_install::{MANAGER_CONFIG_MAP_POLICY, MANAGER_WEBHOOK_POLICY};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// How long the API server may take to take in a policy, of which nothing tells.
const POLICIES_SPREAD_WITHIN: Duration = Duration::from_secs(30);
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Whoever has taken over a manager, and tries what its account could do.
struct Intruder<'a> {
    admin: &'a Path,
    user: &'a str,
}

impl Intruder<'_> {
    /// Tries it, without effect: on trial, as kubectl has it.
    fn tries(&self, args: &[&str]) -> Said {
        let mut command = std::process::Command::new(kubectl());
        command.args(["--kubeconfig".as_ref(), self.admin.as_os_str()]);
        command.args(["--as", self.user]).args(args).arg("--dry-run=server");
        said(command)
    }

    fn creates(&self, object: &Value) -> Said {
        let file = self.admin.with_file_name("tried.json");
        std::fs::write(&file, object.to_string()).expect("it can be written");
        self.tries(&["create", "-f", &file.display().to_string()])
    }

    fn patches(&self, kind: &str, name: &str, operations: &Value) -> Said {
        self.tries(&["patch", kind, name, "--type=json", "-p", &operations.to_string()])
    }
}

/// The manager's account is held to what the manager does. The manager has registered.
pub(crate) async fn to_what_is_its_own(api: &Api, admin: &Path, user: &str) {
    let intruder = Intruder { admin, user };
    config_maps(api, &intruder).await;
    registrations(api, &intruder).await;
}

fn config_map(name: &str, labels: &Value, owner: Option<&str>) -> Value {
    let mut map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "labels": labels}, "data": {"p_1": "true"}});
    // Of a group that there is not: the garbage collector cannot tell whether its owner has gone.
    if let Some(kind) = owner {
        map["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "example.com/v1", "kind": kind, "name": "web-0", "uid": "none"}]);
    }
    map
}

async fn config_maps(api: &Api, intruder: &Intruder<'_>) {
    let refuses = |said: Said, why: &str| super::says(&said.refused(), &[MANAGER_CONFIG_MAP_POLICY, why]);
    let label = json!({"flotilla.rs/launch-barrier": "true"});
    let begun = clock::now();
    while intruder.creates(&config_map("settings", &label, None)).code == 0 {
        assert!(begun.elapsed() < POLICIES_SPREAD_WITHIN, "any config map can be made");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    refuses(
        intruder.creates(&config_map("settings", &label, Some("Pod"))),
        "end with -barrier",
    );
    let without = config_map("web-0-barrier", &json!({}), Some("Pod"));
    refuses(intruder.creates(&without), "with its label only");
    intruder
        .creates(&config_map("web-0-barrier", &label, Some("Pod")))
        .done();

    // Nobody is told by a name alone: the manager leaves them to whoever made them.
    for (name, owner) in [
        ("settings", Some("Pod")),
        ("mine-barrier", None),
        ("its-barrier", Some("Deployment")),
    ] {
        api.create(CONFIG_MAPS, &config_map(name, &label, owner)).await;
        let why = if name == "settings" {
            "end with -barrier"
        } else {
            "belong to a pod"
        };
        refuses(intruder.tries(&["delete", "configmap", name]), why);
        let change = json!([{"op": "add", "path": "/data/p_2", "value": "true"}]);
        refuses(intruder.patches("configmap", name, &change), why);
    }
}

async fn registrations(api: &Api, intruder: &Intruder<'_>) {
    let refuses = |said: Said, why: &str| super::says(&said.refused(), &[MANAGER_WEBHOOK_POLICY, why]);
    for (kind, path) in [
        ("mutatingwebhookconfiguration", MUTATING),
        ("validatingwebhookconfiguration", VALIDATING),
    ] {
        let registered = api.read(&format!("{path}/{NAME}")).await;
        let mut another = json!({"apiVersion": registered["apiVersion"], "kind": registered["kind"],
            "metadata": {"name": "another"}, "webhooks": registered["webhooks"]});
        super::says(&intruder.creates(&another).refused(), &["forbidden"]);
        another["metadata"]["name"] = json!(NAME);
        super::says(&intruder.tries(&["delete", kind, NAME]).refused(), &["forbidden"]);

        let of_secrets = json!([{"op": "add", "path": "/webhooks/0/rules/-", "value": {"apiGroups": [""],
            "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["secrets"], "scope": "*"}}]);
        refuses(intruder.patches(kind, NAME, &of_secrets), "nothing");
        let all = json!([{"op": "replace", "path": "/webhooks/0/rules/0/apiGroups", "value": ["*"]}]);
        refuses(intruder.patches(kind, NAME, &all), "nothing");
        let alien = json!([{"op": "replace", "path": "/webhooks/0/name", "value": "mine.example.com"}]);
        refuses(intruder.patches(kind, NAME, &alien), "webhooks of others");
        // What the manager itself does: another certificate.
        let bundle = json!([{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": registered["webhooks"][1]["clientConfig"]["caBundle"]}]);
        intruder.patches(kind, NAME, &bundle).done();
    }
    let mutating = api.read(&format!("{MUTATING}/{NAME}")).await;
    let webhooks = mutating["webhooks"].as_array().expect("webhooks");
    let of_pods = webhooks
        .iter()
        .position(|w| text(w, "/name") == "mutate-pods.flotilla.rs")
        .expect("that of pods");
    let path = format!("/webhooks/{of_pods}/matchConditions");
    for wider in [
        json!([{"op": "remove", "path": path}]),
        json!([{"op": "replace", "path": format!("{path}/0/expression"), "value": "true"}]),
        json!([{"op": "add", "path": format!("/webhooks/{of_pods}/rules/0/operations/-"), "value": "UPDATE"}]),
        json!([{"op": "add", "path": format!("/webhooks/{of_pods}/rules/0/resources/-"), "value": "pods/exec"}]),
    ] {
        refuses(
            intruder.patches("mutatingwebhookconfiguration", NAME, &wider),
            "pods of ours",
        );
    }
}
