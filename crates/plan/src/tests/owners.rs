//! What is there and is not looked at keeps what it owns; what goes already goes on.

use super::lab::{self, Lab, key};
use super::truths::three_of;
use super::{one, with};
use crate::{Action, Change, ClaimAction, Edit, Plan};
use flotilla_model::SetKind::{self, Advanced, Clone};
use serde_json::{Value, json};

fn scaled(kind: SetKind, replicas: i64) -> Change {
    Change::Edit(kind, key("web"), vec![Edit::Replicas(replicas)])
}

/// Owners of a kind that plans do not look at.
fn operator() -> Value {
    json!([{"apiVersion": "example.com/v1", "kind": "Database", "name": "db", "uid": "operator", "controller": true}])
}

fn with_claims(kind: SetKind) -> Value {
    let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "standard", "resources": {"requests": {"storage": "1Gi"}}});
    with(
        three_of(kind),
        &[(
            "volumeClaimTemplates",
            json!([{"metadata": {"name": "data"}, "spec": spec}]),
        )],
    )
}

fn deletions(plan: &Plan) -> usize {
    one(plan).steps().filter(|step| step.action == Action::Delete).count()
}

/// Whoever owns the set is there, as far as anybody knows.
#[test]
fn what_others_own_is_not_collected() {
    let mut lab = Lab::with(&[with_claims(Advanced)]);
    lab.is_owned("web", operator());
    let plan = lab.plan(&[scaled(Advanced, 4)]);
    assert_eq!(
        (deletions(&plan), one(&plan).steps().count()),
        (0, 1),
        "{}",
        plan.text()
    );
    assert!(one(&plan).claims_left.is_empty(), "{}", plan.text());
}

/// They take their part of a quota, and of the names.
#[test]
fn pods_of_others_stay_whatever_owns_them() {
    let pod = |name: &str| {
        json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name, "ownerReferences": operator()},
            "spec": {"containers": [{"name": "main", "image": "app:v1"}], "nodeName": "node-0"},
            "status": {"phase": "Running"},
        })
    };
    let mut lab = Lab::with(&[three_of(Advanced)]);
    for name in ["one", "two"] {
        lab.add("", "pods", pod(name));
    }
    let quota = json!({"metadata": {"name": "small", "namespace": "ns"}, "spec": {"hard": {"pods": "5"}}, "status": {"hard": {"pods": "5"}, "used": {"pods": "5"}}});
    lab.add("", "resourcequotas", quota);
    let plan = lab.plan(&[scaled(Advanced, 4)]);
    assert!(
        plan.text().contains("exceeded quota") && plan.is_stopped(),
        "{}",
        plan.text()
    );

    let mut lab = Lab::with(&[three_of(Advanced)]);
    lab.add("", "pods", pod("web-3"));
    let plan = lab.plan(&[scaled(Advanced, 4)]);
    assert!(plan.is_stopped() && one(&plan).steps().count() == 0, "{}", plan.text());
}

/// Many references of one object cost little more than one. Looked at one by one, they took minutes.
#[test]
// That it ends soon is what is shown.
#[allow(clippy::disallowed_methods)]
fn owners_without_number_are_looked_at_once() {
    let gone =
        |index: usize| json!({"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": format!("gone-{index}")});
    let elsewhere =
        |index: usize| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": format!("c-{index}")});
    let owners: Vec<Value> = (0..20_000).map(gone).chain((0..20_000).map(elsewhere)).collect();
    let mut lab = Lab::with(&[three_of(Advanced)]);
    lab.add(
        "",
        "persistentvolumeclaims",
        json!({"metadata": {"name": "c", "namespace": "ns", "uid": "c", "ownerReferences": owners}, "spec": {}}),
    );
    let begun = std::time::Instant::now();
    let plan = lab.plan(&[scaled(Advanced, 4)]);
    assert_eq!(one(&plan).steps().count(), 1, "{}", plan.text());
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

/// Names are anybody's: only what carries the labels of the set's selector is named to be removed.
#[test]
fn claims_that_only_sound_like_those_of_the_set_are_left_alone() {
    for kind in [Advanced, Clone] {
        let mut lab = Lab::with(&[with_claims(kind)]);
        let claim = json!({"metadata": {"name": "data-web-2024", "namespace": "ns", "uid": "c"}, "spec": {}, "status": {"phase": "Bound"}});
        lab.add("", "persistentvolumeclaims", claim);
        let plan = lab.plan(&[Change::Delete(kind, key("web"))]);
        let left = &one(&plan).claims_left;
        assert!(!left.contains(&"data-web-2024".to_owned()), "{left:?}");
    }
}

/// Its pod holds it, until the pod is made anew; then the data are gone.
#[test]
fn a_claim_that_is_being_deleted_goes_with_its_pod() {
    let mut lab = Lab::with(&[with_claims(Advanced)]);
    lab.claim_goes("data-web-0");
    let plan = lab.plan(&[lab::image("app:v2")]);
    let actions: Vec<_> = one(&plan)
        .claims
        .iter()
        .filter(|claim| claim.claim == "data-web-0")
        .map(|claim| claim.action)
        .collect();
    assert_eq!(actions, [ClaimAction::Delete, ClaimAction::Create], "{}", plan.text());
    assert_eq!(one(&plan).available_at_end, 3, "{}", plan.text());
}

#[test]
fn the_loss_of_claims_is_a_disruption_also_where_no_pod_is() {
    let policy = |when: &str| json!({"whenDeleted": when, "whenScaled": "Retain"});
    let set = with(
        with_claims(Advanced),
        &[("persistentVolumeClaimRetentionPolicy", policy("Delete"))],
    );
    let mut lab = Lab::with(&[set]);
    lab.make(&scaled(Advanced, 0));
    let plan = lab.plan(&[Change::Delete(Advanced, key("web"))]);
    assert!(one(&plan).steps().count() == 0 && plan.disrupts, "{}", plan.text());

    let lab = Lab::with(&[with_claims(Advanced)]);
    let set = with(
        with_claims(Advanced),
        &[("persistentVolumeClaimRetentionPolicy", policy("Delete"))],
    );
    let plan = lab.plan(&[Change::Apply(set)]);
    let told = "from this change on claims, and the data in them, go with the set";
    assert!(
        plan.warnings.iter().any(|line| line.ends_with(told)),
        "{:?}",
        plan.warnings
    );
}

/// Too many are not carried out either.
#[test]
fn a_scale_down_that_is_held_up_is_not_carried_out() {
    let hook = ("lifecycle", json!({"preDelete": {"labelsHandler": {"hold": "true"}}}));
    let labels = ("template/metadata/labels", json!({"app": "web", "hold": "true"}));
    for kind in [Advanced, Clone] {
        let lab = Lab::with(&[with(three_of(kind), &[hook.clone(), labels.clone()])]);
        let plan = lab.plan(&[scaled(kind, 1)]);
        assert!(
            !one(&plan).is_carried_out && plan.is_stopped(),
            "{kind:?} {}",
            plan.text()
        );
    }
    let mut lab = Lab::with(&[three_of(Advanced)]);
    lab.crash("web-0");
    let plan = lab.plan(&[scaled(Advanced, 1)]);
    assert!(plan.disrupts || plan.is_stopped(), "{}", plan.text());
}

/// As many pods as are wanted are there, and do not come up.
#[test]
fn pods_that_are_made_and_do_not_come_up_are_no_success() {
    let image = ("template/spec/containers/0/image", json!("App:v1"));
    let parallel = ("podManagementPolicy", json!("Parallel"));
    for (kind, fields) in [(Advanced, vec![image.clone(), parallel]), (Clone, vec![image])] {
        let plan = Lab::with(&[]).plan(&[Change::Apply(with(three_of(kind), &fields))]);
        assert!(!plan.disrupts && plan.is_stopped(), "{kind:?} {}", plan.text());
    }
}

/// A partition keeps new pods at the former template, and what that needs is what counts.
#[test]
fn pods_of_a_former_revision_need_what_that_names() {
    let account = |name: &str| ("template/spec/serviceAccountName", json!(name));
    let partition = (
        "updateStrategy",
        json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 10}}),
    );
    for (kind, old, new, is_missing) in [
        (Advanced, "ghost", "default", true),
        (Clone, "ghost", "default", true),
        (Advanced, "default", "ghost", false),
    ] {
        let mut lab = Lab::with(&[with(three_of(kind), &[account(old), partition.clone()])]);
        lab.make(&Change::Apply(with(three_of(kind), &[account(new), partition.clone()])));
        let plan = lab.plan(&[scaled(kind, 5)]);
        let told = plan
            .missing
            .iter()
            .any(|line| line.contains("service account ghost was not found"));
        assert_eq!(told, is_missing, "{kind:?} {old} {new}: {}", plan.text());
    }
}
