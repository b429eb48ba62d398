//! Claims that have no volume, are not there, or do not go.

use super::pods::{HOLD, parallel};
use flotilla_e2e::api::{Objects, is_terminating, text};
use flotilla_e2e::sets::{SOON, claims, pods};
use flotilla_e2e::stuck::{Stuck, container, template};
use serde_json::{Value, json};

/// The storage classes of the cluster.
pub(super) const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";

/// What plays the storage system, and a name of which nobody has heard.
pub(super) const PROVISIONERS: [&str; 2] = ["volumes.sim.flotilla.rs", "nobody.example.com"];

/// Gives a set a template of claims of this class.
pub(super) fn with_claims(set: &mut Value, class: Option<&str>) {
    let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    if let Some(class) = class {
        spec["storageClassName"] = json!(class);
    }
    set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": spec}]);
    container(set)["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
}

/// A class that nobody but this scenario uses.
pub(super) fn class(s: &Stuck, provisioner: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": s.ns},
        "provisioner": provisioner, "volumeBindingMode": "Immediate",
    })
}

/// The one claim of the set.
pub(super) async fn claim(s: &Stuck) -> String {
    let claims = s
        .api
        .until(&claims(&s.ns), SOON, "a claim", |claims| !claims.is_empty())
        .await;
    claims.into_keys().next().expect("it was there a moment ago")
}

/// Makes a volume for a claim, as whoever looks after storage does.
pub(super) async fn provide(s: &Stuck, claim: &str, class: &str) {
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("{}-{claim}", s.ns)},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/nowhere"},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": s.ns, "name": claim},
        },
    });
    s.api.create("/api/v1/persistentvolumes", &volume).await;
}

/// The class is one that nobody has made yet.
pub(super) async fn class_missing(s: Stuck) {
    s.create(1, |set| with_claims(set, Some(&s.ns))).await;
    let claim = claim(&s).await;
    let words = ["storage class", &s.ns, "does not exist"];
    let first = s
        .first(&format!("claim {claim}"), &words, "kubectl get storageclass")
        .await;
    let said = s.type_in(&first);
    assert!(said.contains("standard") && said.contains(PROVISIONERS[0]), "{said}");
    s.api.create(CLASSES, &class(&s, PROVISIONERS[1])).await;
    provide(&s, &claim, &s.ns).await;
    s.mended().await;
}

/// The class is of a provisioner that does not run.
pub(super) async fn nobody_provisions(s: Stuck) {
    s.api.create(CLASSES, &class(&s, PROVISIONERS[1])).await;
    s.create(1, |set| with_claims(set, Some(&s.ns))).await;
    let words = [PROVISIONERS[1], "has made no volume for it yet"];
    let first = s
        .first("claim data-web-0", &words, "kubectl describe pvc data-web-0 ")
        .await;
    let said = s.type_in(&first);
    assert!(said.contains(PROVISIONERS[1]), "{said}");
    provide(&s, "data-web-0", &s.ns).await;
    s.mended().await;
}

/// The class is one whose volumes people make, and nobody has.
pub(super) async fn nobody_made_a_volume(s: Stuck) {
    s.api.create(CLASSES, &class(&s, "kubernetes.io/no-provisioner")).await;
    s.create(1, |set| with_claims(set, Some(&s.ns))).await;
    let claim = claim(&s).await;
    let words = ["by hand, and none that is free fits it"];
    let first = s.first(&format!("claim {claim}"), &words, "kubectl get pv").await;
    s.type_in(&first);
    provide(&s, &claim, &s.ns).await;
    s.mended().await;
}

/// The claim asks for no class at all, so that somebody has to make the volume.
pub(super) async fn no_class(s: Stuck) {
    s.create(1, |set| with_claims(set, Some(""))).await;
    let claim = claim(&s).await;
    let words = ["no storage class, and none fits it"];
    let first = s.first(&format!("claim {claim}"), &words, "kubectl get pv").await;
    // No default class is for such a claim.
    assert!(!first.advice.contains("default"), "{first:?}");
    s.type_in(&first);
    provide(&s, &claim, "").await;
    s.mended().await;
}

/// The template names a claim that is to be made by hand.
pub(super) async fn claim_missing(s: Stuck) {
    s.create(1, |set| {
        let volume = json!({"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}});
        template(set)["spec"]["volumes"] = json!([volume]);
    })
    .await;
    let first = s.first("claim shared", &["does not exist"], "kubectl get pvc ").await;
    s.type_in(&first);
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "shared"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    s.api.create(&claims(&s.ns), &claim).await;
    s.mended().await;
}

/// A claim that goes, but for a finalizer: a pod that mounted it would never start.
pub(super) async fn claim_terminating(s: Stuck) {
    s.start(1, |set| with_claims(set, None)).await;
    let claim = format!("{}/data-web-0", claims(&s.ns));
    s.api.patch(&claim, &json!({"metadata": {"finalizers": [HOLD]}})).await;
    s.api.delete(&claim, false).await;
    s.change(|set| set["spec"]["replicas"] = json!(0)).await;
    s.api.until(&pods(&s.ns), SOON, "no pods", Objects::is_empty).await;
    s.change(|set| set["spec"]["replicas"] = json!(1)).await;
    let words = ["is being deleted, and held by finalizer", HOLD];
    let first = s.first("data-web-0", &words, "kubectl edit pvc data-web-0 ").await;
    s.edit(&first, HOLD, &format!("\\|^  - {HOLD}$|d"));
    s.mended().await;
}

/// A claim that goes, but for a pod of somebody else who uses it.
pub(super) async fn claim_in_use_terminating(s: Stuck) {
    s.start(2, |set| {
        parallel(&s, set);
        with_claims(set, None);
    })
    .await;
    let other = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "backup"},
        "spec": {
            "containers": [{"name": "main", "image": "app:v1"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-1"}}],
        },
    });
    s.api.create(&pods(&s.ns), &other).await;
    let runs = |pods: &Objects| text(&pods["backup"], "/status/phase") == "Running";
    s.api.until(&pods(&s.ns), SOON, "the backup runs", runs).await;
    s.api.delete(&format!("{}/data-web-1", claims(&s.ns)), false).await;
    let is_going = |claims: &Objects| claims.get("data-web-1").is_some_and(is_terminating);
    s.api
        .until(&claims(&s.ns), SOON, "the claim is on its way", is_going)
        .await;
    s.api.delete(&s.pod("web-1"), false).await;
    let words = ["is being deleted, and used by pod backup"];
    let first = s.first("data-web-1", &words, "kubectl delete pod backup ").await;
    s.type_in(&first);
    s.mended().await;
}
