//! The Helm chart.

use super::{flotilla, said, says};
use flotilla_e2e::Api;
use flotilla_e2e::suite::kubeconfig_with;
use flotilla_e2e::webhooks::{MUTATING, NAME, VALIDATING};
use flotilla_install::{Condition, Options, SETTINGS, objects, place};
use flotilla_localcluster::{Cluster, helm};
use http::Method;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

const NAMESPACE: &str = "flotilla-system";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// As whom the managers write.
const MANAGERS: &str = "flotilla-webhooks";
const DEFINITIONS: [&str; 2] = ["statefulsets.apps.kruise.io", "clonesets.apps.kruise.io"];

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

/// Every choice gives the same objects by `helm template` as by `flotilla install`, save the namespace, which is Helm's own business, and
/// the definitions, which are no part of a release.
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
            .filter(|o| o["kind"] != "Namespace" && o["kind"] != "CustomResourceDefinition")
            .collect();
        let mut got = rendered(&values);
        got.retain(|object| !is_hook(object));
        let (wanted, got) = (sorted(wanted), sorted(got));
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

/// Whether Helm applies it before an upgrade, or when the rest of the release is gone.
fn is_hook(object: &Value) -> bool {
    object["metadata"]["annotations"].get("helm.sh/hook").is_some()
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
    let service = json!({"namespace": NAMESPACE, "name": "flotilla-webhook", "path": "/convert"});
    let webhook = json!({"conversionReviewVersions": ["v1"], "clientConfig": {"service": service}});
    let conversion = json!({"spec": {"conversion": {"strategy": "Webhook", "webhook": webhook}}});
    for definition in DEFINITIONS {
        let path = format!("{CRDS}/{definition}?fieldManager={MANAGERS}");
        let sent = api
            .send(
                Method::PATCH,
                &path,
                Some(("application/merge-patch+json", &conversion)),
            )
            .await;
        sent.unwrap_or_else(|e| panic!("patch {path}: {e}"));
    }
}

/// What runs under the account of the hooks, which has no other rights, as one of their Jobs does: simulated nodes run nothing.
struct Hooks {
    kubeconfig: PathBuf,
    jobs: Vec<Value>,
}

impl Hooks {
    async fn apply(api: &Api, kubeconfig: &Path) -> Self {
        let hooks: Vec<Value> = rendered(&[]).into_iter().filter(is_hook).collect();
        let (jobs, others): (Vec<Value>, Vec<Value>) = hooks.into_iter().partition(|hook| hook["kind"] == "Job");
        assert_eq!((jobs.len(), others.len()), (2, 4), "{jobs:?}, {others:?}");
        for object in others {
            let path = format!("{}?fieldManager=e2e&force=true", place(&object).path);
            let sent = api
                .send(Method::PATCH, &path, Some(("application/apply-patch+yaml", &object)))
                .await;
            sent.unwrap_or_else(|e| panic!("apply {path}: {e}"));
        }
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600},
        });
        let account = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/flotilla-definitions/token");
        let token = api.create(&account, &request).await["status"]["token"].take();
        let kubeconfig = kubeconfig_with(kubeconfig, "definitions", &token, None);
        Hooks { kubeconfig, jobs }
    }

    /// Runs what the Job of a moment runs.
    fn run(&self, moment: &str) -> String {
        self.outcome(moment).done()
    }

    /// The same, which is refused.
    fn refused(&self, moment: &str) -> String {
        self.outcome(moment).refused()
    }

    fn outcome(&self, moment: &str) -> super::Said {
        let is_then = |job: &&Value| {
            let moments = job["metadata"]["annotations"]["helm.sh/hook"].as_str();
            moments.is_some_and(|moments| moments.split(',').any(|m| m == moment))
        };
        let job = self.jobs.iter().find(is_then).expect("a Job");
        let container = &job["spec"]["template"]["spec"]["containers"][0];
        let args: Vec<&str> = container["args"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        flotilla(&self.kubeconfig, &args)
    }
}

/// Before a release is installed, definitions are made; before an upgrade, they are brought up to date, and keep what the managers have written into them.
async fn brings_definitions_up_to_date(api: &Api, hooks: &Hooks) {
    let path = format!("{CRDS}/{}", DEFINITIONS[0]);
    let before = api.read(&path).await;
    let older = json!([
        {"op": "remove", "path": "/spec/versions/0/additionalPrinterColumns"},
        {"op": "replace", "path": "/spec/versions/1/served", "value": true},
    ]);
    let written = format!("{path}?fieldManager={MANAGERS}");
    let sent = api
        .send(Method::PATCH, &written, Some(("application/json-patch+json", &older)))
        .await;
    sent.unwrap_or_else(|e| panic!("patch {path}: {e}"));
    says(&hooks.run("pre-upgrade"), &DEFINITIONS);
    let after = api.read(&path).await;
    let columns = |definition: &Value| definition["spec"]["versions"][0]["additionalPrinterColumns"].clone();
    assert_eq!(columns(&after), columns(&before));
    assert!(columns(&after).is_array(), "{after}");
    assert_eq!(
        after["spec"]["conversion"]["strategy"], "Webhook",
        "as the managers have it"
    );
    assert_eq!(after["spec"]["versions"][1]["served"], true, "as the managers have it");
}

/// When the release is gone, versions are not converted by it.
async fn leaves_no_conversion(api: &Api, hooks: &Hooks) {
    says(&hooks.run("post-delete"), &DEFINITIONS);
    for definition in DEFINITIONS {
        let strategy = api.read(&format!("{CRDS}/{definition}")).await["spec"]["conversion"]["strategy"].take();
        assert_eq!(strategy, "None", "{definition}");
        let versions = api.read(&format!("{CRDS}/{definition}")).await["spec"]["versions"].take();
        for version in versions.as_array().into_iter().flatten() {
            assert_eq!(
                version["served"], version["storage"],
                "{definition}: fields would be lost"
            );
        }
    }
    says(&hooks.run("post-delete"), &["no version is converted"]);
    says(
        &flotilla(&hooks.kubeconfig, &["uninstall", "--yes"]).refused(),
        &["cannot"],
    );
}

/// Helm installs it on a real API server, upgrades it, also over what the managers have written, takes it away and installs it again; the
/// definitions stay.
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
    let hooks = Hooks::apply(&api, cluster.kubeconfig_path()).await;
    says(&hooks.run("pre-install"), &DEFINITIONS);
    register(&api).await;
    brings_definitions_up_to_date(&api, &hooks).await;
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
    // Helm has taken those of the upgrade away.
    let hooks = Hooks::apply(&api, cluster.kubeconfig_path()).await;
    says(&hooks.refused("post-delete"), &["runs managers", "nothing was changed"]);
    with(&["uninstall", "flotilla", "--wait", "--timeout", "120s"]).done();
    let hooks = Hooks::apply(&api, cluster.kubeconfig_path()).await;
    leaves_no_conversion(&api, &hooks).await;
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
    with(&["install", "flotilla", &chart, "--wait", "--timeout", "120s"]).done();
    let hooks = Hooks::apply(&api, cluster.kubeconfig_path()).await;
    says(&hooks.run("pre-install"), &["unchanged"]);
}
