//! What new pods rest on beside names that are looked up.

use super::lab::{self, Lab, key};
use super::truths::three_of;
use super::{one, with};
use crate::Change;
use flotilla_model::SetKind::Advanced;
use serde_json::{Value, json};

/// No kubelet gets as far as to ask for it.
#[test]
fn an_image_that_no_runtime_can_read_is_not_expected_to_start() {
    let lab = Lab::with(&[three_of(Advanced)]);
    let plan = lab.plan(&[lab::image("App:v2")]);
    let text = plan.text();
    assert!(
        text.contains("InvalidImageName") && text.contains("repository name must be lowercase"),
        "{text}"
    );
    assert!(plan.is_stopped() && plan.disrupts, "{text}");
}

/// The image is not at fault, and will not be when it is pulled anew.
#[test]
fn what_keeps_containers_from_being_created_now_keeps_new_ones_from_it() {
    let three = || with(three_of(Advanced), &[("podManagementPolicy", json!("Parallel"))]);
    let mut lab = Lab::with(&[three()]);
    lab.cannot_be_created("web-1", "configmap \"settings\" does not have key mode");
    let told =
        "container main of its pods cannot be created now, and is the same in new ones: CreateContainerConfigError: ";
    let is_told = |plan: &crate::Plan| plan.missing.iter().any(|line| line.contains(told));
    // A label of the template, and nothing of its containers.
    let label = |set: Value| with(set, &[("template/metadata/labels/tier", json!("gold"))]);
    let plan = lab.plan(&[Change::Apply(label(three()))]);
    assert!(is_told(&plan), "{}", plan.text());
    let env = json!([{"name": "MODE", "value": "fast"}]);
    let keys = json!([{"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "others", "key": "mode"}}}]);
    for (change, still) in [
        (("template/spec/containers/0/image", json!("app:v2")), true),
        (("template/spec/containers/0/command", json!(["/app"])), true),
        (("template/spec/containers/0/env", keys), false),
        (("template/spec/containers/0/env", env), true),
    ] {
        let set = with(three(), std::slice::from_ref(&change));
        let plan = lab.plan(&[Change::Apply(set)]);
        assert_eq!(is_told(&plan), still, "{change:?}: {:?}", plan.missing);
    }
    // What it lacks comes with the change, if it comes to where it is.
    for (namespace, still) in [("other", true), ("ns", false)] {
        let mut state = lab.state();
        state.bring([crate::Foreign {
            group: String::new(),
            resource: "configmaps".to_owned(),
            object: json!({"metadata": {"name": "settings", "namespace": namespace}}),
        }]);
        let plan = crate::plan(&state, &[Change::Apply(label(three()))], crate::Reach::SECONDS);
        assert_eq!(is_told(&plan.expect("a plan")), still, "{namespace}");
    }
}

#[test]
fn sources_of_claims_classes_of_volumes_and_certificates_are_told() {
    let claims = |source: Value| {
        let mut spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "standard", "resources": {"requests": {"storage": "1Gi"}}});
        for (name, value) in source.as_object().into_iter().flatten() {
            spec[name] = value.clone();
        }
        (
            "volumeClaimTemplates",
            json!([{"metadata": {"name": "data"}, "spec": spec}]),
        )
    };
    let volume = |source: Value| {
        (
            "template/spec/volumes",
            json!([{"name": "v", "projected": {"sources": [source]}}]),
        )
    };
    let snapshot = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "monday"});
    let golden = json!({"kind": "PersistentVolumeClaim", "name": "golden"});
    for (change, words) in [
        (
            claims(json!({"dataSource": snapshot})),
            "are filled from VolumeSnapshot monday, which is not looked at; ",
        ),
        (
            claims(json!({"dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "golden", "namespace": "other"}})),
            "are filled from PersistentVolumeClaim golden, which is not looked at; ",
        ),
        (claims(json!({"dataSource": golden})), "claim golden was not found"),
        (
            claims(json!({"volumeAttributesClassName": "fast"})),
            "name the volume attributes class fast, which is not looked at; ",
        ),
        (
            volume(json!({"clusterTrustBundle": {"name": "roots", "path": "roots.pem"}})),
            "volume v takes clusterTrustBundle, which is not looked at; ",
        ),
        (
            ("template/spec/imagePullSecrets", json!([{"name": "registry"}])),
            "secret registry, with which its images are pulled, was not found; ",
        ),
        (
            (
                "template/spec/volumes",
                json!([{"name": "v", "iscsi": {"targetPortal": "10.0.0.1", "iqn": "iqn.2001-04.com.example:disk", "lun": 0,
                "chapAuthSession": true, "secretRef": {"name": "chap"}}}]),
            ),
            "secret chap was not found",
        ),
    ] {
        let lab = Lab::with(&[]);
        let plan = lab.plan(&[Change::Apply(with(three_of(Advanced), std::slice::from_ref(&change)))]);
        assert!(plan.refused.is_empty(), "{:?}", plan.refused);
        let told = plan
            .missing
            .iter()
            .chain(&plan.warnings)
            .filter(|line| line.contains(words));
        assert_eq!(told.count(), 1, "{words}: {:?} {:?}", plan.missing, plan.warnings);
    }
    let optional = volume(json!({"clusterTrustBundle": {"name": "roots", "path": "roots.pem", "optional": true}}));
    let plan = Lab::with(&[]).plan(&[Change::Apply(with(three_of(Advanced), &[optional]))]);
    assert!(plan.warnings.is_empty(), "{:?}", plan.warnings);
}

/// Nobody can make a change there that lasts; a set of the same name that is made anew would get what is still to go.
#[test]
fn a_set_that_goes_with_its_pods_is_not_changed_and_not_taken_for_absent() {
    for pods_go in [false, true] {
        let mut lab = Lab::with(&[three_of(Advanced)]);
        lab.goes_after_its_pods("web", pods_go);
        for change in [lab::image("app:v2"), Change::Apply(three_of(Advanced))] {
            let plan = lab.plan(std::slice::from_ref(&change));
            let refused = plan.refused.iter().map(|refusal| &refusal.message);
            let told = refused
                .chain(&plan.unknowns)
                .any(|words| words.contains("is being deleted"));
            assert!(told, "{change:?}: {}", plan.text());
        }
        let plan = lab.plan(&[Change::Delete(Advanced, key("web"))]);
        let is_refused = plan
            .refused
            .iter()
            .any(|refusal| refusal.message.contains("is being deleted"));
        assert_eq!(is_refused, pods_go, "{}", plan.text());
    }
}

#[test]
fn sts_7_5_whether_a_protected_set_may_go_is_not_known() {
    for (value, replicas, is_told) in [
        ("Always", 0, true),
        ("Cascading", 3, true),
        ("Cascading", 0, false),
        ("Never", 3, false),
    ] {
        let mut set = with(three_of(Advanced), &[("replicas", json!(replicas))]);
        set["metadata"]["labels"] = json!({"policy.kruise.io/delete-protection": value});
        let plan = Lab::with(&[set]).plan(&[Change::Delete(Advanced, key("web"))]);
        let told = plan
            .unknowns
            .iter()
            .any(|line| line.contains("whether its deletion is refused is not looked at"));
        assert_eq!(told, is_told, "{value} {replicas}: {:?}", plan.unknowns);
    }
    let plan = Lab::with(&[three_of(Advanced)]).plan(&[Change::Delete(Advanced, key("web"))]);
    assert!(
        plan.unknowns.is_empty() && one(&plan).steps().count() == 3,
        "{:?}",
        plan.unknowns
    );
}
