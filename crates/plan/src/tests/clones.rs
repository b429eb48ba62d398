//! CloneSets, by the real core and controller in the simulated cluster. Their pods have other names each time, so numbers are told.

use super::lab::{Lab, key, manifest};
use super::{IMAGE, ROLLING, one, with};
use crate::{Action, Change, ClaimAction, Edit, Reach, SetPlan, plan};
use flotilla_engine::wire::Object;
use flotilla_model::SetKind;
use flotilla_model::SetKind::Clone;
use flotilla_model::{PatchKind, Resource};
use flotilla_sim::server::Actor;
use serde_json::{Value, json};

fn clones(replicas: i32, fields: &[(&str, Value)]) -> Value {
    let mut set = with(manifest(Clone, "web"), &[("replicas", json!(replicas))]);
    set["spec"].as_object_mut().expect("a spec").remove("serviceName");
    with(set, fields)
}

fn count(set: &SetPlan, action: Action) -> usize {
    set.steps().filter(|step| step.action == action).count()
}

fn image() -> Change {
    Change::Edit(Clone, key("web"), vec![Edit::Image(None, "app:v2".to_owned())])
}

#[test]
fn another_image_makes_pods_anew_within_the_budget() {
    let lab = Lab::with(&[clones(5, &[(ROLLING, json!({"maxUnavailable": 2}))])]);
    let plan = lab.plan(&[image()]);
    let set = one(&plan);
    assert_eq!(
        (count(set, Action::Delete), count(set, Action::Create)),
        (5, 5),
        "{}",
        plan.text()
    );
    assert_eq!(
        (set.lowest_available.pods, set.available_at_end),
        (3, 5),
        "{}",
        plan.text()
    );
    assert_eq!(set.blocked, []);
}

#[test]
fn with_a_surge_no_pod_is_missing() {
    let rolling = json!({"maxUnavailable": 0, "maxSurge": 2});
    let lab = Lab::with(&[clones(5, &[(ROLLING, rolling)])]);
    let plan = lab.plan(&[image()]);
    let set = one(&plan);
    assert_eq!(
        (set.lowest_available.pods, set.available_at_end),
        (5, 5),
        "{}",
        plan.text()
    );
}

#[test]
fn another_image_changes_pods_in_place() {
    let rolling = json!({"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 1});
    let lab = Lab::with(&[clones(3, &[(ROLLING, rolling)])]);
    let plan = lab.plan(&[image()]);
    let set = one(&plan);
    assert_eq!(count(set, Action::Update), 3, "{}", plan.text());
    assert_eq!(
        (count(set, Action::Delete), count(set, Action::Create)),
        (0, 0),
        "{}",
        plan.text()
    );
    assert_eq!(
        (set.lowest_available.pods, set.available_at_end),
        (2, 3),
        "{}",
        plan.text()
    );
}

#[test]
fn a_partition_keeps_pods_and_scaling_takes_claims_along() {
    let set = clones(
        4,
        &[
            ("volumeClaimTemplates", claim_template("data")),
            (ROLLING, json!({"partition": "50%"})),
        ],
    );
    let lab = Lab::with(std::slice::from_ref(&set));
    let plan = lab.plan(&[image()]);
    assert_eq!(count(one(&plan), Action::Create), 2, "{}", plan.text());
    let fewer = Change::Apply(with(set.clone(), &[("replicas", json!(1))]));
    let plan = lab.plan(&[fewer]);
    assert_eq!(
        (count(one(&plan), Action::Delete), one(&plan).claims.len()),
        (3, 3),
        "{}",
        plan.text()
    );
    let lower = Change::Apply(with(set, &[(IMAGE, json!("app:v1"))]));
    assert_eq!(
        lab.plan(&[lower]).sets.iter().map(|s| s.steps().count()).sum::<usize>(),
        0,
        "nothing changes"
    );
}

fn claim_template(name: &str) -> Value {
    let size = json!({"requests": {"storage": "1Gi"}});
    let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "standard", "resources": size});
    json!([{"metadata": {"name": name}, "spec": spec}])
}

/// Pods that a partition keeps mount claims of templates that the set has no more: these hold data, too.
#[test]
fn claims_of_former_templates_go_with_their_pods_and_that_is_told() {
    let set = |name: &str, image: &str| {
        let rolling = json!({"partition": 3});
        let fields = [
            ("volumeClaimTemplates", claim_template(name)),
            (ROLLING, rolling),
            (IMAGE, json!(image)),
        ];
        clones(3, &fields)
    };
    let mut lab = Lab::with(&[set("data", "app:v1")]);
    lab.make(&Change::Apply(set("logs", "app:v2")));
    let removed = |change: Change| {
        let plan = lab.plan(&[change]);
        let claims = one(&plan).claims.iter().filter(|c| c.action == ClaimAction::Delete);
        claims.filter(|c| c.claim.starts_with("data-web-")).count()
    };
    assert_eq!(removed(Change::Edit(Clone, key("web"), vec![Edit::Partition(0)])), 3);
    assert_eq!(removed(Change::Edit(Clone, key("web"), vec![Edit::Replicas(1)])), 2);
    assert_eq!(removed(Change::Delete(Clone, key("web"))), 3);
}

/// What a surge stores is nothing that anybody had before.
#[test]
fn claims_that_come_and_go_with_a_surge_are_not_told_as_removed() {
    let rolling = json!({"maxUnavailable": 0, "maxSurge": 1, "podUpdatePolicy": "InPlaceIfPossible"});
    let lab = Lab::with(&[clones(
        2,
        &[("volumeClaimTemplates", claim_template("data")), (ROLLING, rolling)],
    )]);
    let plan = lab.plan(&[image()]);
    assert!(count(one(&plan), Action::Create) > 0, "{}", plan.text());
    assert!(one(&plan).claims.is_empty(), "{}", plan.text());
    assert!(!plan.text().contains("removed with"), "{}", plan.text());
}

/// As OpenKruise labels them with its gate `CloneSetShortHash`.
#[test]
fn cs_12_6_pods_that_carry_the_hash_alone_are_of_that_revision() {
    let mut lab = Lab::with(&[clones(2, &[(ROLLING, json!({"partition": 1}))])]);
    lab.make(&image());
    let pods: Vec<_> = lab
        .cluster
        .server
        .all(Resource::Pods)
        .filter_map(|s| match &s.object {
            Some(Object::Pod(pod)) => Some(pod.clone()),
            _ => None,
        })
        .collect();
    for pod in &pods {
        let hash = pod
            .revision()
            .and_then(|name| name.rsplit_once('-'))
            .map(|(_, hash)| hash);
        let patch = json!({"metadata": {"labels": {"controller-revision-hash": hash}}});
        let patch = (PatchKind::Merge, &patch);
        let done = lab
            .cluster
            .server
            .patch(Actor::User, Resource::Pods, &pod.meta.key, patch);
        assert!(done.is_ok(), "{done:?}");
    }
    let plan = lab.plan(&[Change::Edit(Clone, key("web"), vec![Edit::Replicas(3)])]);
    let set = one(&plan);
    assert_eq!(
        (count(set, Action::Create), set.steps().count()),
        (1, 1),
        "{}",
        plan.text()
    );
    let kept: Vec<usize> = set.stays.iter().map(|stays| stays.pods.len()).collect();
    assert_eq!(kept, [1], "{}", plan.text());
}

#[test]
fn updates_in_place_that_do_not_become_ready_are_unavailable() {
    let rolling = || {
        (
            ROLLING,
            json!({"maxUnavailable": 2, "podUpdatePolicy": "InPlaceIfPossible"}),
        )
    };
    let parallel = [
        ("replicas", json!(5)),
        ("podManagementPolicy", json!("Parallel")),
        (
            "template/spec/readinessGates",
            json!([{"conditionType": "InPlaceUpdateReady"}]),
        ),
        rolling(),
    ];
    for set in [
        clones(5, &[rolling()]),
        with(manifest(SetKind::Advanced, "web"), &parallel),
    ] {
        let lab = Lab::with(std::slice::from_ref(&set));
        let plan = lab.plan(&[Change::Apply(with(set, &[(IMAGE, json!("app:v2"))]))]);
        let planned = one(&plan);
        assert_eq!(count(planned, Action::Update), 5, "{}", plan.text());
        let doubt = planned.if_new_pods_are_not_ready.as_ref().expect("pods are changed");
        assert_eq!((doubt.pods.len(), doubt.available), (2, 3), "{}", plan.text());
    }
}

/// Nothing that is stored tells what a manager was started with.
#[test]
fn r_33_what_the_manager_decides_for_all_clone_sets_is_asked_for() {
    let mut lab = Lab::with(&[clones(2, &[(ROLLING, json!({"partition": 1}))])]);
    lab.make(&image());
    let back = [Change::Edit(Clone, key("web"), vec![Edit::Partition(2)])];
    let plan_with = |partition_rollback: bool| {
        let mut state = lab.state();
        state.clones.partition_rollback = partition_rollback;
        plan(&state, &back, Reach::SECONDS).expect("the state can be loaded")
    };
    assert!(!plan_with(false).disrupts, "the partition keeps what is there");
    let goes_back = plan_with(true);
    assert!(goes_back.disrupts, "{}", goes_back.text());
    assert_eq!(count(one(&goes_back), Action::Delete), 1, "{}", goes_back.text());
}
