//! A manager that serves webhooks on loopback.

use crate::api::{Api, text};
use crate::manager::Manager;
use crate::sets::SOON;
use crate::{clock, sets};
use http::Method;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;

/// Path of the configurations that change objects.
pub const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
/// Path of the configurations that refuse requests.
pub const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
/// Their name, both of them.
pub const NAME: &str = "flotilla-webhooks";
/// The Secret with the certificates.
pub const SECRET: &str = "/api/v1/namespaces/flotilla-system/secrets/flotilla-webhook-certificates";
/// The definition of Advanced StatefulSets.
pub const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/statefulsets.apps.kruise.io";

/// Where a manager serves.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    /// Webhooks.
    pub webhooks: u16,
    /// Metrics and health.
    pub http: u16,
}

impl Ports {
    /// Two that nobody has.
    pub fn free() -> Self {
        let free = || flotilla_localcluster::free_port().expect("there is a free port");
        Ports {
            webhooks: free(),
            http: free(),
        }
    }

    /// The arguments for a manager that serves here, registered as being at `registered`.
    pub fn arguments(self, registered: u16) -> Vec<String> {
        vec![
            format!("--webhook-address=127.0.0.1:{}", self.webhooks),
            format!("--webhook-url=https://127.0.0.1:{registered}"),
            format!("--http-address=127.0.0.1:{}", self.http),
            "--observation-seconds=0".to_owned(),
        ]
    }

    /// What the manager serves at a path of its HTTP side.
    pub fn http(self, path: &str) -> (u16, String) {
        let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.http)) else {
            return (0, String::new());
        };
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it can be asked");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
        (code.expect("a status"), answer)
    }

    /// Waits until the manager says that it is ready: it knows the cluster, and could go on from another at once.
    ///
    /// # Panics
    /// When it is not within the time of a scenario.
    pub async fn ready(self) {
        let begun = clock::now();
        while self.http("/readyz").0 != 200 {
            assert!(begun.elapsed() < SOON, "not ready within {SOON:?}");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }

    /// One number of the manager's metrics; 0 if it is not there.
    pub fn metric(self, line: &str) -> f64 {
        let (_, page) = self.http("/metrics");
        let found = page.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(' '));
        found.map_or(0.0, |number| number.parse().expect("a number"))
    }
}

/// Starts the one manager of a scenario with webhooks, and waits until the API server asks it.
pub async fn start(api: &Api, kubeconfig: &Path, name: &str, more: &[&str]) -> (Manager, Ports) {
    let ports = Ports::free();
    let mut arguments = ports.arguments(ports.webhooks);
    arguments.push("--leader-elect=false".to_owned());
    let all: Vec<&str> = arguments
        .iter()
        .map(String::as_str)
        .chain(more.iter().copied())
        .collect();
    let manager = Manager::start(kubeconfig, name, &all);
    registered(api, ports.webhooks).await;
    (manager, ports)
}

/// Waits until the endpoint at this port is registered, and the API server has taken that in: nothing can be watched for the latter.
///
/// # Panics
/// When that takes longer than a scenario may.
pub async fn registered(api: &Api, port: u16) {
    let here = format!("https://127.0.0.1:{port}/");
    let leads_here = |webhook: &Value| text(webhook, "/clientConfig/url").starts_with(&here);
    for collection in [MUTATING, VALIDATING] {
        api.until(collection, SOON, "webhooks registered", |all| {
            let webhooks = all.get(NAME).and_then(|c| c["webhooks"].as_array());
            webhooks.is_some_and(|webhooks| webhooks.iter().all(leads_here))
        })
        .await;
    }
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    api.until(definitions, SOON, "conversion registered", |all| {
        let set = &all["statefulsets.apps.kruise.io"];
        text(set, "/spec/conversion/webhook/clientConfig/url").starts_with(&here)
            && set["spec"]["versions"]
                .as_array()
                .is_some_and(|versions| versions.iter().all(|version| version["served"] == true))
    })
    .await;
    let begun = clock::now();
    while let Err(why) = serves(api).await {
        assert!(
            begun.elapsed() < SOON,
            "the API server does not ask the webhooks at {here}: {why}"
        );
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

/// Whether a pod under our kind would get its gate, and a set its defaults.
pub async fn asks(api: &Api) -> bool {
    admits(api).await.is_ok()
}

async fn admits(api: &Api) -> Result<(), String> {
    let pod = pod("probe", Some("apps.kruise.io/v1beta1"));
    let dry = |collection: String| format!("{collection}?dryRun=All");
    let create = async |path: String, object: &Value| {
        let sent = api.send(Method::POST, &path, Some(("application/json", object))).await;
        sent.map_err(|why| format!("POST {path}: {why}"))
    };
    let pod = create(dry(sets::pods("default")), &pod).await?;
    if !has_gate(&pod) {
        return Err("a pod under our kind gets no readiness gate".to_owned());
    }
    let set = crate::Kind::Advanced.manifest("probe", 1);
    let set = create(dry(crate::Kind::Advanced.sets("default")), &set).await?;
    if set["spec"]["podManagementPolicy"] != "OrderedReady" {
        return Err(format!("a set gets no defaults: {set}"));
    }
    Ok(())
}

/// The same, and that sets are converted; or what is not so.
async fn serves(api: &Api) -> Result<(), String> {
    admits(api).await?;
    let path = old_sets("default");
    let listed = api.send(Method::GET, &path, None).await;
    listed.map(drop).map_err(|why| format!("GET {path}: {why}"))
}

/// Path of sets in the older version.
pub fn old_sets(namespace: &str) -> String {
    format!("/apis/apps.kruise.io/v1alpha1/namespaces/{namespace}/statefulsets")
}

/// A pod by hand; `owner` is the version of a StatefulSet that controls it, and that there need not be.
pub fn pod(name: &str, owner: Option<&str>) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "app:v1"}], "serviceAccountName": "default",
            "automountServiceAccountToken": false}});
    if let Some(owner) = owner {
        pod["metadata"]["ownerReferences"] =
            json!([{"apiVersion": owner, "kind": "StatefulSet", "name": "none", "uid": "none", "controller": true}]);
    }
    pod
}

/// Whether a pod has the gate that the pod webhook adds.
pub fn has_gate(pod: &Value) -> bool {
    let gates = pod["spec"]["readinessGates"].as_array();
    gates.is_some_and(|gates| gates.iter().any(|gate| gate["conditionType"] == "KruisePodReady"))
}
