//! The Helm chart.

use super::{said, says};
use flotilla_e2e::Api;
use flotilla_e2e::webhooks::{MUTATING, NAME, VALIDATING};
use flotilla_install::{Condition, Options, SETTINGS, objects};
use flotilla_localcluster::{Cluster, helm};
use http::Method;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

const NAMESPACE: &str = "flotilla-system";

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/chart/flotilla")
}

fn run_helm(args: &[&str]) -> super::Said {
    let mut command = Command::new(helm().expect("Helm"));
    command.args(args);
    said(command)
}

/// What the chart renders with these values, by kind and name.
fn rendered(values: &[String]) -> Vec<Value> {
    let chart = chart().display().to_string();
    let mut args = vec!["template", "flotilla", &chart, "--namespace", NAMESPACE];
    for value in values {
        args.extend(["--set", value]);
    }
    let text = run_helm(&args).done();
    let documents = text
        .split("\n---")
        .map(|d| d.trim_start_matches("---"))
        .filter(|d| d.contains("kind:"));
    documents
        .map(|d| serde_saphyr::from_str(d).unwrap_or_else(|e| panic!("{e}: {d}")))
        .collect()
}

/// Every choice gives the same objects by `helm template` as by `flotilla install`, save the namespace, which is Helm's own business.
pub(crate) async fn is_what_install_applies() {
    run_helm(&["lint", "--strict", &chart().display().to_string()]).done();
    let mut compared = 0;
    for condition in [None].into_iter().chain(Condition::ALL.map(Some)) {
        let mut options = Options::default();
        let mut values = Vec::new();
        if let Some(condition) = condition {
            let flipped = !options.holds(condition);
            options = options.with(condition, flipped);
            values.push(format!("{}={flipped}", condition.name()));
        }
        let options = Options {
            image: "registry/\"odd\":v1".to_owned(),
            log: "info,a=debug".to_owned(),
            replicas: 3,
            ..options
        };
        values.extend([
            "image=registry/\"odd\":v1".to_owned(),
            "log=info\\,a=debug".to_owned(),
            "replicas=3".to_owned(),
        ]);
        let key = |o: &Value| format!("{} {}", o["kind"], o["metadata"]["name"]);
        let sorted = |mut objects: Vec<Value>| {
            objects.sort_by_key(key);
            objects
        };
        let wanted: Vec<Value> = objects(&options)
            .into_iter()
            .filter(|o| o["kind"] != "Namespace")
            .collect();
        let (wanted, got) = (sorted(wanted), sorted(rendered(&values)));
        assert_eq!(
            got.iter().map(key).collect::<Vec<_>>(),
            wanted.iter().map(key).collect::<Vec<_>>()
        );
        for (got, wanted) in got.iter().zip(&wanted) {
            assert_eq!(got, wanted, "{condition:?}");
            compared += 1;
        }
    }
    println!("{compared} objects of the chart equal those of the installation");
    wrong_values_are_refused();
}

/// Values are checked before anything is rendered.
fn wrong_values_are_refused() {
    let chart = chart().display().to_string();
    for (value, word) in [
        ("replicas=0", "minimum"),
        ("imagePullPolicy=Sometimes", "imagePullPolicy"),
        ("webhook=true", "webhook"),
        ("webhooks=maybe", "boolean"),
        ("extraArguments={verbose}", "extraArguments"),
    ] {
        let said = run_helm(&["template", "flotilla", &chart, "--set", value]);
        assert_ne!(said.code, 0, "{value}: {}", said.out);
        says(&said.err, &[word]);
    }
    let arguments = rendered(&["extraArguments={--workers=2,--identity=x}".to_owned()]);
    let deployment = arguments
        .iter()
        .find(|o| o["kind"] == "Deployment")
        .expect("a Deployment");
    let of_manager = deployment
        .pointer("/spec/template/spec/containers/0/args")
        .and_then(Value::as_array)
        .expect("arguments");
    assert!(
        of_manager.contains(&json!("--workers=2")) && of_manager.contains(&json!("--identity=x")),
        "{of_manager:?}"
    );
    assert!(SETTINGS.len() > 10);
}

/// What a manager writes: simulated nodes run none.
async fn register(api: &Api) {
    let registration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": NAME},
        "webhooks": [{
            "name": "protect.flotilla.rs", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "clientConfig": {"service": {"namespace": NAMESPACE, "name": "flotilla-webhook"}},
            "rules": [{"apiGroups": ["apps.kruise.io"], "apiVersions": ["*"], "resources": ["statefulsets"], "operations": ["DELETE"]}],
        }],
    });
    let path = format!("{VALIDATING}/{NAME}?fieldManager={NAME}&force=true");
    let sent = api
        .send(
            Method::PATCH,
            &path,
            Some(("application/apply-patch+yaml", &registration)),
        )
        .await;
    sent.unwrap_or_else(|e| panic!("apply {path}: {e}"));
}

/// Helm installs it on a real API server, upgrades it, and takes it away; the definitions stay.
pub(crate) async fn installs_and_goes() {
    let cluster = Cluster::disposable("e2e-chart").nodes(2).start().expect("a cluster");
    let api = Api::connect(cluster.kubeconfig_path()).await;
    let (chart, kubeconfig) = (
        chart().display().to_string(),
        cluster.kubeconfig_path().display().to_string(),
    );
    let common = ["--kubeconfig", &kubeconfig, "--namespace", NAMESPACE];
    let with = |args: &[&str]| run_helm(&[args, &common].concat());
    with(&[
        "install",
        "flotilla",
        &chart,
        "--create-namespace",
        "--wait",
        "--timeout",
        "120s",
    ])
    .done();
    let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/flotilla-manager");
    let deployment = api.read(&path).await;
    assert_eq!(deployment["status"]["availableReplicas"], 2);
    register(&api).await;
    with(&[
        "upgrade",
        "flotilla",
        &chart,
        "--set",
        "replicas=1",
        "--wait",
        "--timeout",
        "120s",
    ])
    .done();
    assert_eq!(api.read(&path).await["spec"]["replicas"], 1);
    let registration = format!("{VALIDATING}/{NAME}");
    let registered = api.read(&registration).await;
    assert_eq!(
        registered["webhooks"][0]["name"], "protect.flotilla.rs",
        "an upgrade leaves what the managers wrote: {registered}"
    );
    with(&["uninstall", "flotilla", "--wait", "--timeout", "120s"]).done();
    assert!(api.get(&path).await.is_none());
    for registration in [registration, format!("{MUTATING}/{NAME}")] {
        assert!(
            api.get(&registration).await.is_none(),
            "nothing is refused by a webhook that is not there any more"
        );
    }
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/statefulsets.apps.kruise.io";
    assert!(
        api.get(definition).await.is_some(),
        "definitions stay, and with them everybody's sets"
    );
}
