//! Installing, doing so again, changing one's mind, and uninstalling.

use super::{arguments, deployed, flotilla, says};
use flotilla_e2e::api::{Objects, text};
use flotilla_e2e::sets::{SOON, pods, ready};
use flotilla_e2e::webhooks::{self, Ports};
use flotilla_e2e::{Api, Kind, Manager, clock, suite};
use flotilla_localcluster::Cluster;
use http::Method;
use serde_json::{Value, json};

const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/statefulsets.apps.kruise.io";
const SYSTEM: &str = "flotilla-system";

/// A definition as OpenKruise has it: two versions, the older one with fewer fields, objects stored in both over time, applied by Helm.
async fn install_openkruise_like(api: &Api) {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}},
        })
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "statefulsets.apps.kruise.io"},
        "spec": {
            "group": "apps.kruise.io", "scope": "Namespaced",
            "names": {"kind": "StatefulSet", "listKind": "StatefulSetList", "plural": "statefulsets", "singular": "statefulset"},
            "versions": [version("v1alpha1", false), version("v1beta1", true)],
        },
    });
    let path = format!("{DEFINITION}?fieldManager=helm");
    let sent = api
        .send(
            Method::PATCH,
            &path,
            Some(("application/apply-patch+yaml", &definition)),
        )
        .await;
    sent.unwrap_or_else(|e| panic!("apply {path}: {e}"));
    let collection = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let is_served = |crds: &Objects| {
        let conditions = crds
            .values()
            .next()
            .and_then(|crd| crd["status"]["conditions"].as_array());
        conditions.is_some_and(|list| list.iter().any(|c| c["type"] == "Established" && c["status"] == "True"))
    };
    api.until(collection, SOON, "the definition is served", is_served).await;
}

/// Over OpenKruise's definition: whose fields would be taken is told first; then objects, stored versions and the storage version stay.
pub(crate) async fn over_an_older_definition() {
    let cluster = Cluster::disposable("e2e-install-over")
        .nodes(2)
        .start()
        .expect("a cluster");
    let kubeconfig = cluster.kubeconfig_path();
    let api = suite::enter(kubeconfig, "old").await;
    install_openkruise_like(&api).await;
    let set = api
        .create(&Kind::Advanced.sets("old"), &Kind::Advanced.manifest("web", 2))
        .await;
    let stored = api.read(DEFINITION).await["status"]["storedVersions"].clone();

    let refused = flotilla(kubeconfig, &["install", "--yes"]).refused();
    says(
        &refused,
        &[
            "statefulsets.apps.kruise.io",
            ".spec.versions",
            "belongs to helm",
            "--force-conflicts",
            "nothing was changed",
        ],
    );
    assert!(
        api.get(&format!("/api/v1/namespaces/{SYSTEM}")).await.is_none(),
        "nothing was changed"
    );

    let told = flotilla(kubeconfig, &["install", "--yes", "--force-conflicts"]).done();
    says(
        &told,
        &["statefulsets.apps.kruise.io changed", "the managers are ready"],
    );
    let definition = api.read(DEFINITION).await;
    assert_eq!(definition["status"]["storedVersions"], stored);
    let versions: Vec<(&str, bool)> = definition["spec"]["versions"]
        .as_array()
        .expect("versions")
        .iter()
        .map(|v| (text(v, "/name"), v["storage"] == true))
        .collect();
    assert_eq!(versions, [("v1beta1", true), ("v1alpha1", false)]);
    let after = api.read(&Kind::Advanced.set("old", "web")).await;
    assert_eq!(
        (&after["metadata"]["uid"], &after["spec"]),
        (&set["metadata"]["uid"], &set["spec"])
    );
    let alpha = api
        .read("/apis/apps.kruise.io/v1alpha1/namespaces/old/statefulsets/web")
        .await;
    assert_eq!(
        alpha["metadata"]["uid"], set["metadata"]["uid"],
        "the older version is still served"
    );
    let again = flotilla(kubeconfig, &["install", "--yes"]).done();
    assert!(
        !again.contains("changed") || again.matches(" unchanged").count() == again.matches("changed").count(),
        "{again}"
    );
}

/// Applies a definition as this field manager, whatever belongs to others.
async fn apply_definition(api: &Api, manager: &str, definition: &Value) {
    let path = format!("{DEFINITION}?fieldManager={manager}&force=true");
    let content = Some(("application/apply-patch+yaml", definition));
    let sent = api.send(Method::PATCH, &path, content).await;
    sent.unwrap_or_else(|e| panic!("apply {path}: {e}"));
}

/// Another schema over an installation whose managers have written to the definition: their part stays and stops nobody. What belongs to
/// anybody else as well does.
pub(crate) async fn over_what_our_managers_wrote() {
    const DESCRIPTION: &str = "/spec/versions/0/schema/openAPIV3Schema/description";
    let cluster = Cluster::disposable("e2e-install-newer")
        .nodes(2)
        .without_statefulset_controller()
        .start()
        .expect("a cluster");
    let kubeconfig = cluster.kubeconfig_path();
    let api = Api::connect(kubeconfig).await;
    flotilla(kubeconfig, &["install", "--yes", "--timeout-seconds=0"]).done();
    let current = api.read(DEFINITION).await.pointer(DESCRIPTION).cloned();
    let mut older = flotilla_install::superset(SYSTEM)
        .into_iter()
        .find(|object| object["kind"] == "CustomResourceDefinition")
        .expect("it is installed");
    *older.pointer_mut(DESCRIPTION).expect("a description") = json!("As it was in an older release.");
    apply_definition(&api, "flotilla-install", &older).await;

    let (manager, _) = webhooks::start(&api, kubeconfig, "owner", &[]).await;
    drop(manager);
    let before = api.read(DEFINITION).await;
    let owners = before["metadata"]["managedFields"].to_string();
    says(&owners, &["flotilla-webhooks", "f:caBundle", "f:versions"]);

    let told = flotilla(kubeconfig, &["install", "--yes", "--timeout-seconds=0"]).done();
    says(&told, &["statefulsets.apps.kruise.io changed"]);
    let after = api.read(DEFINITION).await;
    assert_eq!(after.pointer(DESCRIPTION).cloned(), current, "the new schema");
    assert_eq!(
        after["spec"]["conversion"], before["spec"]["conversion"],
        "certificates included"
    );
    let served = |definition: &Value| {
        let versions = definition["spec"]["versions"].as_array().expect("versions").clone();
        versions.iter().filter(|v| v["served"] == true).count()
    };
    assert_eq!((served(&before), served(&after)), (2, 2));

    // What `flotilla crds` prints conflicts with that, and taking it over would end conversion.
    let printed = flotilla_install::superset(SYSTEM)
        .into_iter()
        .find(|object| object["metadata"]["name"] == "statefulsets.apps.kruise.io")
        .expect("it is printed");
    let path = format!("{DEFINITION}?fieldManager=kubectl");
    let content = Some(("application/apply-patch+yaml", &printed));
    match api.send(Method::PATCH, &path, content).await {
        Err(kube::Error::Api(status)) => says(&status.message, &["flotilla-webhooks", ".spec.conversion"]),
        other => panic!("conversion was written over: {other:?}"),
    }
    // The definitions alone can be brought up to date.
    flotilla(kubeconfig, &["install", "--only-crds", "--yes"]).done();
    let again = api.read(DEFINITION).await;
    assert_eq!((&again["spec"], served(&again)), (&after["spec"], 2));

    older["spec"]["versions"] = after["spec"]["versions"].clone();
    *older.pointer_mut(DESCRIPTION).expect("a description") = json!("As somebody else wants it.");
    older["spec"]["conversion"] = after["spec"]["conversion"].clone();
    apply_definition(&api, "helm", &older).await;
    let refused = flotilla(kubeconfig, &["install", "--yes", "--timeout-seconds=0"]).refused();
    says(&refused, &[".spec.versions", "belongs to helm", "nothing was changed"]);
    assert_eq!(
        api.read(DEFINITION).await.pointer(DESCRIPTION),
        Some(&json!("As somebody else wants it."))
    );
}

/// What is installed, in full.
async fn all(api: &Api) -> Vec<Value> {
    let mut found = Vec::new();
    for object in flotilla_install::superset(SYSTEM)
        .iter()
        .filter(|o| o["kind"] != "ServiceMonitor")
    {
        // What controllers write of their own accord is not ours.
        if let Some(mut live) = api.get(&flotilla_install::place(object).path).await {
            live.as_object_mut().expect("an object").remove("status");
            live["metadata"]["managedFields"] = json!(null);
            let with_status = ["Deployment", "PodDisruptionBudget", "ValidatingAdmissionPolicy"];
            if with_status.iter().any(|kind| object["kind"] == *kind) {
                live["metadata"]["resourceVersion"] = json!(null);
            }
            found.push(live);
        }
    }
    found
}

/// Install, again, other options, uninstall.
pub(crate) async fn there_and_gone_again() {
    let cluster = Cluster::disposable("e2e-install")
        .nodes(2)
        .without_statefulset_controller()
        .start()
        .expect("a cluster");
    let kubeconfig = cluster.kubeconfig_path();
    let api = Api::connect(kubeconfig).await;

    says(&flotilla(kubeconfig, &["install"]).refused(), &["--dry-run", "--yes"]);
    let shown = flotilla(kubeconfig, &["install", "--dry-run"]).done();
    says(
        &shown,
        &[
            "kind: ClusterRole\n",
            "# Taking and renewing the lease.",
            "kind: CustomResourceDefinition",
        ],
    );
    assert!(api.get(DEFINITION).await.is_none(), "a dry run does nothing");

    let told = flotilla(kubeconfig, &["install", "--yes"]).done();
    says(
        &told,
        &["deployment.apps/flotilla-manager created", "the managers are ready"],
    );
    let first = all(&api).await;
    let again = flotilla(kubeconfig, &["install", "--yes"]).done();
    assert!(!again.contains("created") && !again.contains(" changed"), "{again}");
    assert_eq!(all(&api).await, first, "twice is as good as once");

    let other = flotilla(kubeconfig, &["install", "--yes", "--without-webhooks", "--replicas=1"]).done();
    says(
        &other,
        &[
            "deployment.apps/flotilla-manager changed",
            "service/flotilla-webhook deleted",
        ],
    );
    let role = api
        .read(&format!(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/{SYSTEM}/roles/flotilla-manager"
        ))
        .await;
    assert!(
        !role.to_string().contains("secrets"),
        "without webhooks no right to any Secret is left"
    );
    serves_no_webhooks(&api, kubeconfig).await;
    what_is_in_the_way_is_told(kubeconfig);
    missing_definitions_of_others_are_told(kubeconfig);
    uninstall(&cluster, &api).await;
}

/// A manager with the arguments of the Deployment gets ready, and nothing is asked of it.
async fn serves_no_webhooks(api: &Api, kubeconfig: &std::path::Path) {
    let container = deployed(api).await;
    let ports = Ports::free();
    let args = arguments(&container, &format!("127.0.0.1:{}", ports.http));
    assert!(args.iter().any(|arg| arg == "--webhook-address=none"), "{args:?}");
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    // As in a pod, where webhooks are served unless told otherwise.
    let variables = [("POD_NAMESPACE", SYSTEM), ("KUBERNETES_SERVICE_HOST", "127.0.0.1")];
    let manager = Manager::run(kubeconfig, "without", &args, &variables);
    let begun = clock::now();
    while ports.http("/readyz").0 != 200 {
        assert!(begun.elapsed() < SOON, "not ready: {}", manager.log());
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert!(!ports.http("/metrics").1.contains("flotilla_webhook"));
    for registrations in [webhooks::MUTATING, webhooks::VALIDATING] {
        assert!(!api.list(registrations).await.contains_key(webhooks::NAME));
    }
}

fn what_is_in_the_way_is_told(kubeconfig: &std::path::Path) {
    // The simulated nodes cannot pull an image of this tag.
    let args = ["install", "--yes", "--image=flotilla:broken", "--timeout-seconds=20"];
    let told = flotilla(kubeconfig, &args).refused();
    says(
        &told,
        &["not ready after 20 s", "flotilla-manager-", "what was applied stays"],
    );
    flotilla(kubeconfig, &["install", "--yes"]).done();
}

fn missing_definitions_of_others_are_told(kubeconfig: &std::path::Path) {
    let told = flotilla(kubeconfig, &["install", "--yes", "--service-monitor"]).refused();
    says(&told, &["Prometheus operator", "--service-monitor"]);
}

async fn uninstall(cluster: &Cluster, api: &Api) {
    let kubeconfig = cluster.kubeconfig_path();
    suite::make_namespace(api, "mine").await;
    let manager = Manager::alone(kubeconfig);
    api.create(&Kind::Advanced.sets("mine"), &Kind::Advanced.manifest("web", 2))
        .await;
    ready(api, "mine", 2).await;
    drop(manager);

    says(&flotilla(kubeconfig, &["uninstall"]).refused(), &["--dry-run", "--yes"]);
    let refused = flotilla(kubeconfig, &["uninstall", "--yes"]).refused();
    says(
        &refused,
        &[
            "1 Advanced StatefulSets and CloneSets (mine/web)",
            "--keep-objects",
            "--and-delete-objects",
            "flotilla migrate",
        ],
    );
    register_something(api).await;
    let planned = flotilla(kubeconfig, &["uninstall", "--dry-run", "--keep-objects"]).done();
    let place = |word: &str| {
        planned
            .find(word)
            .unwrap_or_else(|| panic!("{word} is not in: {planned}"))
    };
    assert!(
        place("delete validatingwebhookconfiguration") < place("delete deployment.apps/flotilla-manager"),
        "{planned}"
    );
    assert!(
        place("delete deployment.apps/flotilla-manager") < place("delete serviceaccount/flotilla-manager"),
        "{planned}"
    );
    assert!(!planned.contains("customresourcedefinition"), "{planned}");

    flotilla(kubeconfig, &["uninstall", "--yes", "--keep-objects"]).done();
    assert_eq!(api.list(&pods("mine")).await.len(), 2, "the pods go on running");
    assert!(api.get(DEFINITION).await.is_some());
    let left: Vec<Value> = all(api).await.into_iter().map(|o| o["kind"].clone()).collect();
    assert_eq!(
        left,
        ["Namespace", "CustomResourceDefinition", "CustomResourceDefinition"]
    );
    let rest = flotilla(kubeconfig, &["uninstall", "--yes", "--and-delete-objects"]).done();
    says(
        &rest,
        &[
            "1 Advanced StatefulSets and CloneSets deleted",
            "customresourcedefinition.apiextensions.k8s.io/statefulsets.apps.kruise.io deleted",
        ],
    );
    assert!(api.get(DEFINITION).await.is_none());
    api.until(&pods("mine"), SOON, "the pods go with their set", Objects::is_empty)
        .await;
    says(
        &flotilla(kubeconfig, &["uninstall", "--yes"]).done(),
        &["nothing of Flotilla is installed"],
    );
}

/// A registration behind our Service, which nobody serves: it would refuse everything that it matches.
async fn register_something(api: &Api) {
    let registration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "flotilla-webhook"},
        "webhooks": [{
            "name": "test.flotilla.rs", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "clientConfig": {"service": {"namespace": SYSTEM, "name": "flotilla-webhook"}},
            "rules": [{"apiGroups": ["apps.kruise.io"], "apiVersions": ["*"], "resources": ["statefulsets"], "operations": ["*"]}],
        }],
    });
    api.create(
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
        &registration,
    )
    .await;
}
