//! A right that no installation grants and that users may add: to list objects of others' definitions, so that these can be counted (R-38).

use super::{kubectl, said, says};
use flotilla_e2e::api::Objects;
use flotilla_e2e::sets::SOON;
use flotilla_e2e::{Api, clock};
use http::Method;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// As the page names it.
const NAME: &str = "things.example.com";
const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";

/// Until somebody does what SECURITY.md says, a protected definition stays; from then on its objects count. The manager has registered.
pub(crate) async fn by_what_the_page_says(api: &Api, admin: &Path) {
    api.create(DEFINITIONS, &definition()).await;
    let is_established = |definitions: &Objects| {
        let conditions = definitions[NAME]["status"]["conditions"].as_array();
        let is_established = |c: &Value| c["type"] == "Established" && c["status"] == "True";
        conditions.is_some_and(|conditions| conditions.iter().any(is_established))
    };
    api.until(DEFINITIONS, SOON, "the definition is established", is_established)
        .await;
    let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "one"}});
    // Served a moment after it was established.
    let begun = clock::now();
    while let Err(why) = api.send(Method::POST, THINGS, Some(("application/json", &thing))).await {
        pause(begun, &format!("things are not served: {why}")).await;
    }
    let refusal = refused_with(api, "objects that cannot be counted").await;
    says(
        &refusal,
        &[
            &format!("lacks the right to list {NAME}"),
            "ServiceAccount flotilla-manager",
            "SECURITY.md",
        ],
    );
    commands_of_the_page(admin);
    refused_with(api, "active CRs 1>0").await;
    api.delete(&format!("{THINGS}/one"), false).await;
    api.delete(&format!("{DEFINITIONS}/{NAME}"), false).await;
}

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME, "labels": {"policy.kruise.io/delete-protection": "Cascading"}},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

/// Deletes until it is refused for this: the API server goes on for a moment with the roles that it knew. The manager's requests go through this
/// process, so that nothing may block it meanwhile, as a kubectl would.
async fn refused_with(api: &Api, way: &str) -> String {
    let words = format!("delete-protection=Cascading and {way}");
    let path = format!("{DEFINITIONS}/{NAME}");
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
    let begun = clock::now();
    loop {
        let sent = api.send(Method::DELETE, &path, Some(("application/json", &options)));
        match sent.await {
            Err(kube::Error::Api(status)) if status.message.contains(&words) => {
                assert_eq!(status.code, 403, "{status:?}");
                return status.message.clone();
            }
            Err(why) => pause(begun, &why.to_string()).await,
            Ok(_) => panic!("it is deleted, and not refused with {words:?}"),
        }
    }
}

/// What the page tells users to enter, as it stands there.
fn commands_of_the_page(admin: &Path) {
    let page = include_str!("../../../SECURITY.md");
    let below = page
        .split_once("### A right that you may add\n")
        .expect("the heading")
        .1;
    let shell = below.split_once("```sh\n").expect("the commands").1;
    let shell = shell.split_once("```").expect("their end").0;
    let (kubectl, path) = (kubectl(), std::env::var_os("PATH").unwrap_or_default());
    let own = kubectl.parent().expect("its directory").to_owned();
    let path = std::env::join_paths([own].into_iter().chain(std::env::split_paths(&path))).expect("a path");
    let mut command = Command::new("sh");
    command.args(["-ec", shell]).env("KUBECONFIG", admin).env("PATH", path);
    let printed = said(command).done();
    says(&printed, &["clusterrole.rbac", "clusterrolebinding.rbac"]);
}

async fn pause(begun: Instant, why: &str) {
    assert!(begun.elapsed() < SOON, "{why}");
    tokio::time::sleep(Duration::from_millis(100)).await;
}
