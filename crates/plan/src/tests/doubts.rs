//! What is told of new pods that do not become ready, and of changes that go on for ever.

use super::lab::{Lab, manifest};
use super::{IMAGE, ROLLING, one, waves, with, words};
use crate::{Change, Doubt, Plan, Reach, State, plan};
use flotilla_model::SetKind::{self, Advanced, Clone, Native};
use serde_json::{Value, json};
use std::time::Duration;

fn doubt(plan: &Plan) -> &Doubt {
    let doubt = one(plan).if_new_pods_are_not_ready.as_ref();
    doubt.expect("pods are made")
}

fn set_of(kind: SetKind, replicas: i64, fields: &[(&str, Value)]) -> Value {
    let mut set = with(manifest(kind, "web"), &[("replicas", json!(replicas))]);
    if kind == Clone {
        set["spec"].as_object_mut().expect("a spec").remove("serviceName");
    }
    with(set, fields)
}

fn small(spec: Value) -> Value {
    json!({"metadata": {"name": "small", "namespace": "ns", "uid": "small"}, "spec": spec})
}

/// The template of the pods below the partition is the one that serves already.
#[test]
fn new_pods_of_a_revision_that_serves_are_not_in_doubt() {
    let rolling = (ROLLING, json!({"partition": 3}));
    let set = set_of(Native, 2, std::slice::from_ref(&rolling));
    let lab = Lab::with(std::slice::from_ref(&set));
    let grown = with(set.clone(), &[("replicas", json!(5)), (IMAGE, json!("app:v2"))]);
    let plan = lab.plan(&[Change::Apply(grown)]);
    assert_eq!(waves(one(&plan)), ["+web-2", "+web-3", "+web-4"], "{}", plan.text());
    let doubt = doubt(&plan);
    assert_eq!(words(&doubt.waves), ["+web-2", "+web-3"], "{}", plan.text());
    assert_eq!(
        (doubt.lowest_available.pods, doubt.available),
        (2, 3),
        "{}",
        plan.text()
    );
    // Where no template changes, nothing else could be meant.
    let plan = lab.plan(&[Change::Apply(with(set, &[("replicas", json!(3))]))]);
    assert_eq!(self::doubt(&plan).available, 2, "{}", plan.text());
}

/// Pods that name what admission looks up are not even made, and so none that serves is taken down for them.
#[test]
fn without_what_admission_looks_up_no_pod_is_touched() {
    let rows = [
        (
            "serviceAccountName",
            "error looking up service account ns/gone: serviceaccount \"gone\" not found",
        ),
        ("priorityClassName", "no PriorityClass with name gone was found"),
        ("runtimeClassName", "pod rejected: RuntimeClass \"gone\" not found"),
    ];
    for kind in [Native, Advanced, Clone] {
        for (field, why) in rows {
            let set = set_of(kind, 3, &[]);
            let lab = Lab::with(std::slice::from_ref(&set));
            let field = format!("template/spec/{field}");
            let plan = lab.plan(&[Change::Apply(with(set, &[(&field, json!("gone"))]))]);
            assert_eq!(plan.missing.len(), 1, "{kind:?} {field}: {:?}", plan.missing);
            let doubt = doubt(&plan);
            assert_eq!(
                (doubt.pods.len(), doubt.available),
                (0, 3),
                "{kind:?} {field}: {doubt:?}"
            );
            assert!(
                doubt.blocked.iter().any(|b| b.message.contains(why)),
                "{kind:?} {field}: {:?}",
                doubt.blocked
            );
        }
    }
}

/// What is held up for lack of something goes on when a file brings that, whichever set the file is about; without it, it does not.
#[test]
fn what_a_file_brings_lets_those_go_on_that_waited_for_it() {
    let absent = |name: &str| flotilla_sim::server::Absent {
        kind: flotilla_sim::server::AbsentKind::ServiceAccount,
        namespace: "ns".to_owned(),
        name: name.to_owned(),
    };
    let account = crate::Foreign {
        group: String::new(),
        resource: "serviceaccounts".to_owned(),
        object: json!({"metadata": {"name": "ghost", "namespace": "ns"}}),
    };
    for kind in [Native, Advanced, Clone] {
        let held = with(
            set_of(kind, 3, &[]),
            &[("template/spec/serviceAccountName", json!("ghost"))],
        );
        let other = with(manifest(Native, "other"), &[("replicas", json!(1))]);
        let mut lab = Lab::with(&[set_of(kind, 3, &[]), other.clone()]);
        lab.cluster.server.admission.absent = vec![absent("ghost")];
        lab.make(&Change::Apply(held.clone()));
        let without = lab.state();
        let mut brought = without.clone();
        brought.bring([account.clone()]);
        let plan_of = |state: &State, set: &Value| {
            plan(state, &[Change::Apply(set.clone())], Reach::SECONDS).expect("the state can be loaded")
        };
        // Nothing that is held up is under way.
        let nothing = plan_of(&without, &other);
        assert!(
            !nothing.disrupts && nothing.unknowns.is_empty(),
            "{kind:?}: {}",
            nothing.text()
        );
        assert!(nothing.warnings.is_empty(), "{kind:?}: {:?}", nothing.warnings);
        let of_itself = plan_of(&brought, &held);
        assert!(of_itself.disrupts, "{kind:?}: {}", of_itself.text());
        assert_eq!(one(&of_itself).waves.len(), 3, "{kind:?}: {}", of_itself.text());
        let of_another = plan_of(&brought, &other);
        let words = format!(
            "{} in namespace ns is not what is changed, and goes on by it",
            kind.describe("web")
        );
        assert!(
            of_another.unknowns.iter().any(|unknown| unknown.starts_with(&words)),
            "{kind:?}: {}",
            of_another.text()
        );
    }
}

/// Not even one that would never end.
#[test]
fn without_what_admission_looks_up_no_pod_on_a_lost_node_is_touched() {
    let parallel = ("podManagementPolicy", json!("Parallel"));
    let set = set_of(Advanced, 2, &[parallel, (ROLLING, json!({"partition": 1}))]);
    let mut lab = Lab::with(std::slice::from_ref(&set));
    let on = lab.node_of("web-1");
    lab.lose("web-1", Duration::from_secs(300));
    for name in ["node-0", "node-1", "node-2"] {
        let status = if name == on { "Unknown" } else { "True" };
        let taint = json!({"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"});
        let node = json!({
            "metadata": {"name": name},
            "spec": {"taints": if name == on { json!([taint]) } else { json!([]) }},
            "status": {"conditions": [{"type": "Ready", "status": status}], "allocatable": {"cpu": "4", "pods": "110"}},
        });
        lab.add("", "nodes", node);
    }
    let gone = ("template/spec/runtimeClassName", json!("gone"));
    let plan = lab.plan(&[Change::Apply(with(set, &[gone]))]);
    assert_eq!(waves(one(&plan)), ["~web-1"], "{}", plan.text());
    assert_eq!(doubt(&plan).pods, Vec::<String>::new(), "{}", plan.text());
}

/// A claim that was made before a limit range and is too large for it cannot be changed at all.
#[test]
fn limit_ranges_are_asked_about_claims_whatever_changes() {
    let claims = json!([{"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "standard", "resources": {"requests": {"storage": "2Gi"}}}}]);
    let set = set_of(Advanced, 2, &[("volumeClaimTemplates", claims)]);
    let goes = json!({"whenDeleted": "Delete", "whenScaled": "Retain"});
    let change = Change::Apply(with(set.clone(), &[("persistentVolumeClaimRetentionPolicy", goes)]));
    for (most, is_refused) in [("2Gi", false), ("1Gi", true)] {
        let mut lab = Lab::with(std::slice::from_ref(&set));
        let rule = json!({"type": "PersistentVolumeClaim", "max": {"storage": most}});
        lab.add("", "limitranges", small(json!({"limits": [rule]})));
        let plan = lab.plan(std::slice::from_ref(&change));
        let why = "maximum storage usage per PersistentVolumeClaim is 1Gi";
        let told = one(&plan).blocked.iter().any(|b| b.message.contains(why));
        assert_eq!(told, is_refused, "{most}: {:?}", one(&plan).blocked);
    }
}

/// The successor is refused again and again, and each time the claim made for it goes again: that is no end that is far away.
#[test]
fn a_successor_that_is_refused_for_ever_ends_the_plan() {
    let asks = |cpu: &str| {
        (
            "template/spec/containers/0/resources",
            json!({"requests": {"cpu": cpu}}),
        )
    };
    let claims = json!([{"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "standard", "resources": {"requests": {"storage": "1Gi"}}}}]);
    let fields = [
        asks("100m"),
        ("volumeClaimTemplates", claims),
        (ROLLING, json!({"maxUnavailable": 3})),
    ];
    let set = set_of(Clone, 5, &fields);
    let mut lab = Lab::with(std::slice::from_ref(&set));
    lab.add("", "resourcequotas", small(json!({"hard": {"requests.cpu": "600m"}})));
    let plan = lab.plan(&[Change::Apply(with(set, &[asks("300m")]))]);
    assert!(!plan.is_cut_short, "{}", plan.text());
    assert_eq!(one(&plan).available_at_end, 4, "{}", plan.text());
    assert!(
        one(&plan)
            .blocked
            .iter()
            .any(|b| b.message.contains("exceeded quota: small")),
        "{}",
        plan.text()
    );
}

/// A policy refuses with the code of what is invalid, and other templates as well; and a pod that is missing already does not come back.
#[test]
fn what_a_policy_refuses_is_not_known_whatever_changes() {
    let by_policy = "web-1: Invalid: pods \"web-1\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no more";
    let invalid = "web-1: Invalid: Pod \"web-1\" is invalid: spec.containers: Required value";
    let set = set_of(Advanced, 3, &[]);
    let image = Change::Apply(with(set.clone(), &[(IMAGE, json!("app:v2"))]));
    let fewer = Change::Apply(with(set.clone(), &[("replicas", json!(2))]));
    for (message, change, is_gone, is_told) in [
        (by_policy, &image, false, true),
        (invalid, &image, false, false),
        (by_policy, &fewer, false, false),
        (by_policy, &fewer, true, true),
    ] {
        let mut lab = Lab::with(std::slice::from_ref(&set));
        let condition = json!({"type": "FailedCreatePod", "status": "True", "reason": "Invalid", "message": message});
        lab.set_says("web", &json!({"status": {"conditions": [condition]}}));
        let mut state = lab.state();
        if is_gone {
            state.objects.retain(|o| o.object["metadata"]["name"] != "web-1");
        }
        let plan = crate::plan(&state, std::slice::from_ref(change), Reach::SECONDS).expect("the state can be loaded");
        let told = plan
            .unknowns
            .iter()
            .any(|u| u.contains("the API server refuses its pods now"));
        assert_eq!(told, is_told, "{message} {is_gone}: {:?}", plan.unknowns);
    }
}
