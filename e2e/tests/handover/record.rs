//! Records what a Go manager of OpenKruise has made of CloneSets when it is killed half-way: `cargo xtask generate recordings`.
//!
//! Everything is real but the nodes. The manager runs outside of the cluster, as a user of its own, with its own webhooks. A policy of the
//! API server refuses it, namespace by namespace, the write that would come after the state that is wanted: so the state stays, however
//! quick the manager is.

use super::TOLD;
use super::scenes::{self, Act, Of, Scene};
use flotilla_e2e::api::{Api, Objects, number, text};
use flotilla_e2e::clones::is_settled;
use flotilla_e2e::sets::{SOON, claims, pods, revisions};
use flotilla_e2e::webhooks::{MUTATING, Ports, VALIDATING};
use flotilla_e2e::{clock, suite};
use flotilla_localcluster::{Cluster, Component};
use futures::future::join_all;
use http::Method;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Who the Go manager is to the API server.
const USER: &str = "go-manager";
/// The annotation of a namespace in which the Go manager is refused what it lists.
const REFUSED: &str = "example.com/refused";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
/// How long a step may take while all scenes of a folder are played at once.
const LONG: Duration = Duration::from_secs(120);

/// Makes all recordings of CloneSets anew. `source` is the module of OpenKruise, `manager` its manager.
pub fn record(source: &Path, manager: &Path) {
    let cluster = Cluster::disposable("e2e-record").nodes(2).start().expect("a cluster");
    let definitions = source.join("config/crd/bases");
    let arguments = ["apply", "--server-side", "-f", definitions.to_str().expect("UTF-8")];
    let applied = cluster.kubectl(&arguments).expect("kubectl runs");
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    let user = cluster.user_kubeconfig(USER, &["system:masters"]).expect("a user");
    suite::wait_for(async {
        let api = Api::connect(cluster.kubeconfig_path()).await;
        api.create(POLICIES, &policy()).await;
        api.create(
            BINDINGS,
            &json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
                "metadata": {"name": "half-way"}, "spec": {"policyName": "half-way", "validationActions": ["Deny"]}}),
        )
        .await;
        for (folder, gates, scenes) in scenes::all() {
            let stage = Stage {
                api: &api,
                user: Api::connect(&user).await,
                cluster: &cluster,
                folder,
            };
            stage.play(manager, &user, gates, &scenes).await;
        }
    });
}

fn policy() -> Value {
    let write = "request.operation + ' ' + request.resource.resource + \
        (has(request.subResource) && request.subResource != '' ? '/' + request.subResource : '')";
    let listed = format!("namespaceObject.metadata.annotations['{REFUSED}'].split(',')");
    let has =
        format!("has(namespaceObject.metadata.annotations) && '{REFUSED}' in namespaceObject.metadata.annotations");
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "half-way"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{"apiGroups": ["", "apps.kruise.io"], "apiVersions": ["*"],
                "operations": ["CREATE", "UPDATE", "DELETE"], "resources": ["*/*"], "scope": "Namespaced"}]},
            "matchConditions": [{"name": "the-manager", "expression": format!("request.userInfo.username == '{USER}'")}],
            "validations": [{"expression": format!("!({has}) || !{listed}.exists(r, r == {write})"), "message": "not yet"}],
        },
    })
}

/// Where scenes of one folder are played.
struct Stage<'a> {
    api: &'a Api,
    /// The Go manager's eyes.
    user: Api,
    cluster: &'a Cluster,
    folder: &'a str,
}

impl Stage<'_> {
    /// Plays scenes under one manager, which is killed when each has come to its state.
    async fn play(&self, manager: &Path, user: &Path, gates: &str, scenes: &[Scene]) {
        let ports = Ports::free();
        self.register(true).await;
        let child = start(manager, user, gates, ports.webhooks);
        self.served(ports.webhooks).await;
        let namespaces: Vec<String> = scenes
            .iter()
            .map(|scene| format!("{}-{}", self.folder, scene.name))
            .collect();
        let with = || scenes.iter().zip(&namespaces);
        join_all(with().map(|(scene, namespace)| self.begin(scene, namespace))).await;
        self.cluster.kill(Component::Kwok).expect("the kubelets can be ended");
        join_all(with().map(|(scene, namespace)| self.act(&scene.away, namespace))).await;
        drop(child);
        self.register(false).await;
        for (scene, namespace) in with().filter(|(scene, _)| scene.back.is_empty()) {
            self.write(scene, namespace).await;
        }
        super::start_kubelets(self.cluster, self.api).await;
        for (scene, namespace) in with().filter(|(scene, _)| !scene.back.is_empty()) {
            self.tell(namespace, &json!("true")).await;
            self.act(&scene.back, namespace).await;
            self.tell(namespace, &Value::Null).await;
            self.write(scene, namespace).await;
        }
        for namespace in &namespaces {
            self.api.delete(&format!("/api/v1/namespaces/{namespace}"), false).await;
        }
    }

    /// Registers the webhooks that concern pods and CloneSets, without saying where they are, which the manager does; or takes them away.
    async fn register(&self, there: bool) {
        let rule = |path: &str, name: &str, group: &str, resource: &str, operations: Value| {
            json!({"name": name, "admissionReviewVersions": ["v1", "v1beta1"], "sideEffects": "None", "failurePolicy": "Fail",
                "clientConfig": {"service": {"name": "webhook-service", "namespace": "kruise-system", "path": path}},
                "rules": [{"apiGroups": [group], "apiVersions": [if group.is_empty() { "v1" } else { "v1alpha1" }],
                    "operations": operations, "resources": [resource]}]})
        };
        let clones = |verb: &str, operations| {
            let path = format!("/{verb}-apps-kruise-io-v1alpha1-cloneset");
            rule(
                &path,
                &format!("{}cloneset.kb.io", &verb[..1]),
                "apps.kruise.io",
                "clonesets",
                operations,
            )
        };
        let mutating = [
            rule("/mutate-pod", "mpod.kb.io", "", "pods", json!(["CREATE"])),
            clones("mutate", json!(["CREATE", "UPDATE"])),
        ];
        let validating = [clones("validate", json!(["CREATE", "UPDATE", "DELETE"]))];
        for (collection, kind, word, webhooks) in [
            (MUTATING, "MutatingWebhookConfiguration", "mutating", &mutating[..]),
            (
                VALIDATING,
                "ValidatingWebhookConfiguration",
                "validating",
                &validating[..],
            ),
        ] {
            let name = format!("kruise-{word}-webhook-configuration");
            if there {
                let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name},
                    "webhooks": webhooks});
                self.api.create(collection, &object).await;
            } else {
                self.api.delete(&format!("{collection}/{name}"), false).await;
            }
        }
    }

    /// Waits until the API server asks the manager's webhooks: nothing can be watched for that.
    async fn served(&self, port: u16) {
        let here = format!("https://127.0.0.1:{port}/");
        self.api
            .until(MUTATING, LONG, "webhooks registered", |all| {
                let found = all.get("kruise-mutating-webhook-configuration");
                found.is_some_and(|all| text(all, "/webhooks/0/clientConfig/url").starts_with(&here))
            })
            .await;
        let probe = scenes::manifest(1);
        let path = sets("default") + "?dryRun=All";
        let begun = clock::now();
        loop {
            let sent = self
                .api
                .send(Method::POST, &path, Some(("application/json", &probe)))
                .await;
            if sent.is_ok_and(|set| set["spec"]["revisionHistoryLimit"] == 10) {
                break;
            }
            assert!(
                begun.elapsed() < LONG,
                "the API server does not ask the Go manager at {here}"
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn begin(&self, scene: &Scene, namespace: &str) {
        suite::make_namespace(self.api, namespace).await;
        self.api.create(&sets(namespace), &scene.set).await;
        self.act(&scene.acts, namespace).await;
    }

    async fn act(&self, acts: &[Act], namespace: &str) {
        let mut first = String::new();
        for act in acts {
            match act {
                Act::Settle => self.settle(namespace).await,
                Act::Refuse(writes) => self.refuse(namespace, writes).await,
                Act::Set(change) => {
                    self.api.patch(&web(namespace), change).await;
                }
                Act::Pods(change) => {
                    for pod in self.api.list(&pods(namespace)).await.keys() {
                        self.api.patch(&format!("{}/{pod}", pods(namespace)), change).await;
                    }
                }
                Act::DeleteFirst => {
                    first = self.first(namespace).await;
                    self.api.delete(&format!("{}/{first}", pods(namespace)), false).await;
                }
                Act::NameFirst(change) => {
                    let mut change = change.clone();
                    first = self.first(namespace).await;
                    change["spec"]["scaleStrategy"]["podsToDelete"] = json!([first]);
                    self.api.patch(&web(namespace), &change).await;
                }
                Act::Until(of, what, holds) => {
                    let collection = match of {
                        Of::Pods => pods(namespace),
                        Of::Claims => claims(namespace),
                        Of::Revisions => revisions(namespace),
                        Of::Sets => sets(namespace),
                    };
                    let what = format!("{namespace}: {what}");
                    self.api.until(&collection, LONG, &what, |all| holds(all, &first)).await;
                }
            }
        }
    }

    /// Tells the kubelets of each pod, in a note that is taken back with null.
    async fn tell(&self, namespace: &str, note: &Value) {
        let told = json!({"metadata": {"annotations": {TOLD: note}}});
        self.act(&[Act::Pods(told)], namespace).await;
    }

    async fn first(&self, namespace: &str) -> String {
        let all = self.api.list(&pods(namespace)).await;
        all.into_keys().next().expect("there are pods")
    }

    async fn settle(&self, namespace: &str) {
        let settled = |sets: &Objects| sets.get("web").is_some_and(is_settled);
        let what = format!("{namespace}: at rest");
        self.api.until(&sets(namespace), LONG, &what, settled).await;
    }

    /// Refuses the manager some writes from now on: it is only from now on when a write of its on trial has been refused too.
    async fn refuse(&self, namespace: &str, writes: &str) {
        let annotation = json!({"metadata": {"annotations": {REFUSED: format!("{writes},CREATE configmaps")}}});
        self.api
            .patch(&format!("/api/v1/namespaces/{namespace}"), &annotation)
            .await;
        let probe = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe"}});
        let path = format!("/api/v1/namespaces/{namespace}/configmaps?dryRun=All");
        let begun = clock::now();
        while self
            .user
            .send(Method::POST, &path, Some(("application/json", &probe)))
            .await
            .is_ok()
        {
            assert!(begun.elapsed() < SOON, "{namespace}: nothing is refused");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Writes what there is now into a file: one object a line.
    async fn write(&self, scene: &Scene, namespace: &str) {
        let set = self.api.read(&web(namespace)).await;
        let mut text = format!("{{\n \"set\": {}", bare(set));
        for (key, collection, api_version, kind) in [
            ("revisions", revisions(namespace), "apps/v1", "ControllerRevision"),
            ("pods", pods(namespace), "v1", "Pod"),
            ("claims", claims(namespace), "v1", "PersistentVolumeClaim"),
        ] {
            let mut objects: Vec<Value> = self.api.list(&collection).await.into_values().map(bare).collect();
            objects.sort_by_key(|object| number(object, "/revision"));
            for object in &mut objects {
                object["apiVersion"] = json!(api_version);
                object["kind"] = json!(kind);
            }
            let lines: Vec<String> = objects.iter().map(|object| format!("  {object}")).collect();
            if !lines.is_empty() {
                write!(text, ",\n \"{key}\": [\n{}\n ]", lines.join(",\n")).expect("a string can be written to");
            }
        }
        text.push_str("\n}\n");
        let folder = super::clones::recordings(self.folder);
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        std::fs::write(folder.join(format!("{}.json", scene.name)), text).expect("it can be written");
        println!("{}/{}", self.folder, scene.name);
    }
}

/// Path of the sets as that version of OpenKruise serves them.
fn sets(namespace: &str) -> String {
    flotilla_e2e::clones::old_sets(namespace)
}

fn web(namespace: &str) -> String {
    format!("{}/web", sets(namespace))
}

fn bare(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}

/// A process that ends, without warning, when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().expect("it can be killed");
        self.0.wait().expect("it has ended");
    }
}

fn start(manager: &Path, user: &Path, gates: &str, port: u16) -> Running {
    let beside = |name: &str| -> PathBuf { user.with_file_name(name) };
    let log = beside("go-manager.log");
    let out = File::options()
        .create(true)
        .append(true)
        .open(&log)
        .expect("the log can be written");
    let mut command = Command::new(manager);
    command
        .args([
            "--enable-leader-election=false",
            "--enable-pprof=false",
            "--metrics-addr=0",
            "--health-probe-addr=0",
        ])
        .args(["--rest-config-qps=5000", "--rest-config-burst=10000", "-v=4"])
        .arg(format!("--feature-gates={gates}"))
        .env("KUBECONFIG", user)
        .env("POD_NAMESPACE", "kruise-system")
        .env("WEBHOOK_HOST", "127.0.0.1")
        .env("WEBHOOK_PORT", port.to_string())
        .env("WEBHOOK_CERT_DIR", beside("go-certificates"))
        .stdin(Stdio::null())
        .stdout(out.try_clone().expect("the log can be shared"))
        .stderr(out);
    Running(command.spawn().expect("the Go manager starts"))
}
