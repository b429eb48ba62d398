//! What would be a false all-clear: changes that look as if all went well, and do not.

use super::lab::{self, Lab, key, manifest};
use super::{IMAGE, ROLLING, one, waves, with};
use crate::{Change, Edit, Plan};
use flotilla_model::SetKind::{self, Advanced, Clone, Native};
use serde_json::{Value, json};
use std::time::Duration;

fn node(name: &str, is_ready: bool) -> Value {
    let status = if is_ready { "True" } else { "Unknown" };
    let taints = json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]);
    json!({
        "metadata": {"name": name, "labels": {"disk": "ssd"}},
        "spec": {"taints": if is_ready { json!([]) } else { taints }},
        "status": {"conditions": [{"type": "Ready", "status": status}], "allocatable": {"cpu": "4", "pods": "110"}},
    })
}

pub(super) fn three_of(kind: SetKind) -> Value {
    let mut set = with(manifest(kind, "web"), &[("replicas", json!(3))]);
    if kind == Clone {
        set["spec"].as_object_mut().expect("a spec").remove("serviceName");
    }
    set
}

fn scaled(kind: SetKind, replicas: i64) -> Change {
    Change::Edit(kind, key("web"), vec![Edit::Replicas(replicas)])
}

/// Pods on a node that is lost do not end, however young they are, and the rollout goes no further.
#[test]
fn a_pod_on_a_lost_node_never_ends() {
    for (kind, age) in [(Native, 300), (Advanced, 300), (Native, 0), (Advanced, 0)] {
        let mut lab = Lab::with(&[three_of(kind)]);
        if age == 0 {
            lab.make_young("web-1");
        }
        let on = lab.node_of("web-1");
        lab.lose("web-1", Duration::from_secs(age));
        for name in ["node-0", "node-1", "node-2"] {
            lab.add("", "nodes", node(name, name != on));
        }
        let image = Change::Edit(kind, key("web"), vec![Edit::Image(None, "app:v2".to_owned())]);
        let plan = lab.plan(&[image]);
        let set = one(&plan);
        assert!(!waves(set).concat().contains("web-0"), "{kind:?}: {}", plan.text());
        assert_eq!(set.available_at_end, 2, "{kind:?}: {}", plan.text());
        let blocked = set.blocked.iter().find(|b| b.subject == "web-1");
        let advice = blocked.and_then(|blocked| blocked.advice.clone()).unwrap_or_default();
        let ends = format!(
            "bring it back; or, only if it is off for good, let all of its pods go, also those of others: kubectl delete node {on}"
        );
        assert!(advice.contains(&ends), "{advice}");
        let words = format!("pod web-1 is on node {on}, which is silent");
        assert!(
            plan.warnings.iter().any(|w| w.starts_with(&words)),
            "{:?}",
            plan.warnings
        );
    }
}

#[test]
fn a_pod_that_fits_no_node_is_not_expected_to_come_up() {
    let cases: [(&str, Value); 3] = [
        ("template/spec/nodeSelector", json!({"disk": "hdd"})),
        (
            "template/spec/containers/0/resources",
            json!({"requests": {"cpu": "5"}}),
        ),
        ("template/spec/nodeName", json!("gone")),
    ];
    for (field, value) in cases {
        for kind in [Native, Advanced] {
            let mut lab = Lab::with(&[three_of(kind)]);
            for name in ["node-0", "node-1", "node-2"] {
                lab.add("", "nodes", node(name, true));
            }
            let plan = lab.plan(&[Change::Apply(with(three_of(kind), &[(field, value.clone())]))]);
            let set = one(&plan);
            assert_eq!(waves(set), ["~web-2"], "{field}: {}", plan.text());
            assert_eq!(set.available_at_end, 2, "{field}: {}", plan.text());
            let words = "no node that there is now takes a new pod: 0/3 nodes are available: 3 node(s)";
            assert!(
                plan.missing.iter().any(|m| m.contains(words)),
                "{field}: {:?}",
                plan.missing
            );
        }
    }
    // Where nodes cannot be read, nobody knows.
    let lab = Lab::with(&[three_of(Advanced)]);
    let elsewhere = with(
        three_of(Advanced),
        &[("template/spec/nodeSelector", json!({"disk": "hdd"}))],
    );
    let plan = lab.plan(&[Change::Apply(elsewhere)]);
    assert_eq!((waves(one(&plan)).len(), plan.missing), (3, Vec::<String>::new()));
}

/// Pods that never were available have no lowest number of their own.
#[test]
fn a_wave_in_which_nobody_was_available_has_none_available() {
    let waits = with(three_of(Advanced), &[("podManagementPolicy", json!("Parallel"))]);
    let mut lab = Lab::with(&[]);
    lab.cluster.nodes.broken_images = vec!["app:v1".to_owned()];
    lab.make(&Change::Apply(waits));
    let plan = lab.plan(&[scaled(Advanced, 1)]);
    let lowest: Vec<usize> = one(&plan).waves.iter().map(|wave| wave.lowest_available).collect();
    assert_eq!(lowest, [0], "{}", plan.text());
}

#[test]
fn a_misspelt_field_of_a_template_is_no_all_clear() {
    let told = |kind, field: &str, value: Value| -> Plan {
        let lab = Lab::with(&[three_of(kind)]);
        lab.plan(&[Change::Apply(with(three_of(kind), &[(field, value)]))])
    };
    for kind in [Advanced, Clone] {
        let plan = told(kind, "template/spec/terminationGracePeriodSecond", json!(5));
        let words =
            "spec.template.spec.terminationGracePeriodSecond is a field that pods of Kubernetes 1.36 do not have";
        assert!(
            plan.unknowns.iter().any(|u| u.contains(words)),
            "{kind:?}: {:?}",
            plan.unknowns
        );
        let probe = told(kind, "template/spec/containers/0/readinessProb", json!({}));
        let words = "spec.template.spec.containers[0].readinessProb is";
        assert!(
            probe.unknowns.iter().any(|u| u.contains(words)),
            "{kind:?}: {:?}",
            probe.unknowns
        );
        let right = told(kind, "template/spec/terminationGracePeriodSeconds", json!(5));
        assert_eq!(right.unknowns, Vec::<String>::new(), "{kind:?}");
    }
}

#[test]
fn what_is_being_deleted_is_no_all_clear() {
    let mut lab = Lab::with(&[]);
    let held = json!(["example.com/hold"]);
    let mut set = three_of(Advanced);
    set["metadata"]["finalizers"] = held;
    lab.make(&Change::Apply(set));
    lab.edit_only(&Change::Delete(Advanced, key("web")));
    let plan = lab.plan(&[lab::image("app:v2")]);
    assert!(
        plan.unknowns
            .iter()
            .any(|u| u.contains("is being deleted: its pods go with it")),
        "{:?}",
        plan.unknowns
    );

    let mut lab = Lab::with(&[three_of(Advanced)]);
    lab.namespace_ends();
    let plan = lab.plan(&[scaled(Advanced, 4)]);
    assert!(
        plan.unknowns
            .iter()
            .any(|u| u.starts_with("namespace ns is being deleted")),
        "{:?}",
        plan.unknowns
    );
}

/// Nothing restarts where only labels and annotations change: a pod that crashes goes on with that.
#[test]
fn an_update_of_metadata_alone_is_one_in_place_and_heals_nothing() {
    let set = with(
        three_of(Advanced),
        &[
            ("podManagementPolicy", json!("Parallel")),
            (
                "template/spec/readinessGates",
                json!([{"conditionType": "InPlaceUpdateReady"}]),
            ),
            (
                ROLLING,
                json!({"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 3}),
            ),
        ],
    );
    let mut lab = Lab::with(std::slice::from_ref(&set));
    lab.crash("web-1");
    let labelled = with(set.clone(), &[("template/metadata/labels/round", json!("two"))]);
    let plan = lab.plan(&[Change::Apply(labelled)]);
    let told = one(&plan);
    assert!(waves(told).concat().contains("=web-1"), "{}", plan.text());
    assert!(plan.summary.contains("3 pods are updated in place"), "{}", plan.summary);
    assert_eq!(told.available_at_end, 2, "{}", plan.text());
    // Another image begins anew.
    let plan = lab.plan(&[Change::Apply(with(set, &[(IMAGE, json!("app:v2"))]))]);
    assert_eq!(one(&plan).available_at_end, 3, "{}", plan.text());
}

/// What a quota says, of which set, how many pods come up, and words of the refusal.
type Row<'r> = (&'r str, Value, Vec<(&'r str, Value)>, usize, &'r str);

/// A quota may count more than pods.
#[test]
fn quotas_count_claims_and_what_containers_ask_for() {
    let claims = json!([{"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "standard", "resources": {"requests": {"storage": "1Gi"}}}}]);
    let cpu = |cpu: &str| {
        (
            "template/spec/containers/0/resources",
            json!({"requests": {"cpu": cpu}}),
        )
    };
    let parallel = ("podManagementPolicy", json!("Parallel"));
    let whole = ("template/spec/resources", json!({"requests": {"cpu": "1"}}));
    let two_huge = json!([
        {"name": "main", "image": "app:v1", "resources": {"requests": {"cpu": "100000000000E"}}},
        {"name": "side", "image": "app:v1", "resources": {"requests": {"cpu": "100000000000E"}}},
    ]);
    let rows: [Row<'_>; 12] = [
        (
            "what need not be said",
            json!({"hard": {"requests.ephemeral-storage": "100Gi"}}),
            vec![],
            3,
            "",
        ),
        (
            "said by the pod as a whole",
            json!({"hard": {"requests.cpu": "2"}}),
            vec![whole],
            2,
            "exceeded quota",
        ),
        (
            "more than there is",
            json!({"hard": {"requests.cpu": "2"}}),
            vec![("template/spec/containers", two_huge)],
            0,
            "exceeded quota",
        ),
        (
            "claims",
            json!({"hard": {"persistentvolumeclaims": "1"}}),
            vec![("volumeClaimTemplates", claims.clone())],
            1,
            "persistentvolumeclaims=1",
        ),
        (
            "storage",
            json!({"hard": {"requests.storage": "2Gi"}}),
            vec![("volumeClaimTemplates", claims.clone())],
            2,
            "requests.storage",
        ),
        (
            "storage of another class",
            json!({"hard": {"gold.storageclass.storage.k8s.io/requests.storage": "0"}}),
            vec![("volumeClaimTemplates", claims)],
            3,
            "",
        ),
        (
            "cpu",
            json!({"hard": {"requests.cpu": "2"}}),
            vec![cpu("1")],
            2,
            "requested: requests.cpu=1, used: requests.cpu=2",
        ),
        (
            "cpu by its short name",
            json!({"hard": {"cpu": "250m"}}),
            vec![cpu("100m")],
            2,
            "cpu=100m",
        ),
        (
            "nothing said of it",
            json!({"hard": {"limits.memory": "1Gi"}}),
            vec![cpu("1")],
            0,
            "must specify limits.memory for: main",
        ),
        (
            "pods of another scope",
            json!({"hard": {"pods": "0"}, "scopes": ["NotBestEffort"]}),
            vec![],
            3,
            "",
        ),
        (
            "pods of its scope",
            json!({"hard": {"pods": "0"}, "scopes": ["BestEffort"]}),
            vec![],
            0,
            "exceeded quota",
        ),
        (
            "pods of a class",
            json!({"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}}),
            vec![],
            3,
            "",
        ),
    ];
    for (name, quota, fields, made, words) in rows {
        let mut lab = Lab::with(&[]);
        lab.add(
            "",
            "resourcequotas",
            json!({"metadata": {"name": "small", "namespace": "ns", "uid": "q"}, "spec": quota}),
        );
        let set = with(three_of(Advanced), &[fields, vec![parallel.clone()]].concat());
        let plan = lab.plan(&[Change::Apply(set)]);
        let told = one(&plan);
        assert_eq!(told.available_at_end, made, "{name}: {}", plan.text());
        let messages: Vec<&str> = told.blocked.iter().map(|b| b.message.as_str()).collect();
        assert!(
            made == 3 || messages.iter().any(|m| m.contains(words)),
            "{name}: {messages:?}"
        );
    }
    // Claims that name no class are of the default one.
    let mut lab = Lab::with(&[]);
    let hard = json!({"hard": {"usual.storageclass.storage.k8s.io/persistentvolumeclaims": "1"}});
    lab.add(
        "",
        "resourcequotas",
        json!({"metadata": {"name": "small", "namespace": "ns", "uid": "q"}, "spec": hard}),
    );
    lab.add(
        "storage.k8s.io",
        "storageclasses",
        json!({"metadata": {"name": "usual", "uid": "d",
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "p"}),
    );
    let unnamed = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
    let set = with(
        three_of(Advanced),
        &[("volumeClaimTemplates", unnamed), parallel.clone()],
    );
    let plan = lab.plan(&[Change::Apply(set)]);
    assert_eq!(one(&plan).available_at_end, 1, "{}", plan.text());

    // A limit range says what containers do not; what they are limited to, they ask for.
    let mut lab = Lab::with(&[]);
    lab.add(
        "",
        "resourcequotas",
        json!({"metadata": {"name": "small", "namespace": "ns", "uid": "q"}, "spec": {"hard": {"requests.cpu": "4"}}}),
    );
    let limits = json!({"limits": [{"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "100m"}}]});
    lab.add(
        "",
        "limitranges",
        json!({"metadata": {"name": "usual", "namespace": "ns", "uid": "l"}, "spec": limits}),
    );
    let limited = ("template/spec/containers/0/resources", json!({"limits": {"cpu": "2"}}));
    let plan = lab.plan(&[Change::Apply(with(three_of(Advanced), &[limited, parallel.clone()]))]);
    assert_eq!(one(&plan).available_at_end, 2, "{}", plan.text());
    let mut lab = Lab::with(&[]);
    let hard = json!({"hard": {"limits.memory": "2Gi", "requests.memory": "1Gi"}});
    lab.add(
        "",
        "resourcequotas",
        json!({"metadata": {"name": "small", "namespace": "ns", "uid": "q"}, "spec": hard}),
    );
    let limits =
        json!({"limits": [{"type": "Container", "default": {"memory": "1Gi"}, "defaultRequest": {"memory": "256Mi"}}]});
    lab.add(
        "",
        "limitranges",
        json!({"metadata": {"name": "usual", "namespace": "ns", "uid": "l"}, "spec": limits}),
    );
    let plan = lab.plan(&[Change::Apply(with(three_of(Advanced), std::slice::from_ref(&parallel)))]);
    assert_eq!(one(&plan).available_at_end, 2, "{}", plan.text());

    let mut lab = Lab::with(&[]);
    let hard = json!({"hard": {"count/statefulsets.apps": "0"}});
    lab.add(
        "",
        "resourcequotas",
        json!({"metadata": {"name": "none", "namespace": "ns", "uid": "q"}, "spec": hard}),
    );
    let plan = lab.plan(&[Change::Apply(three_of(Native))]);
    assert!(
        plan.refused[0].message.contains("exceeded quota: none"),
        "{:?}",
        plan.refused
    );
    let plan = lab.plan(&[Change::Apply(three_of(Advanced))]);
    assert_eq!(plan.refused, [], "those of another group are not counted");
}

/// What a webhook or a policy refuses now, a plan cannot see: the set says it.
#[test]
fn a_set_whose_pods_are_refused_now_is_no_all_clear() {
    let mut lab = Lab::with(&[three_of(Advanced)]);
    let says = |reason: &str, status: &str| json!({"status": {"conditions": [{"type": "FailedCreatePod", "status": status, "reason": reason, "message": "web-2: no such tag"}]}});
    for (reason, status, is_told) in [
        ("AdmissionDenied", "True", true),
        ("AdmissionDenied", "False", false),
        ("QuotaExceeded", "True", false),
    ] {
        lab.set_says("web", &says(reason, status));
        let plan = lab.plan(&[scaled(Advanced, 4)]);
        let words = "the API server refuses its pods now";
        let told = plan
            .unknowns
            .iter()
            .any(|u| u.contains(words) && u.contains("web-2: no such tag"));
        assert_eq!(told, is_told, "{reason} {status}: {:?}", plan.unknowns);
    }
}

/// A pod of a revision that the set has left must go; whoever went back would go back to that revision.
#[test]
fn the_advice_for_a_pod_of_a_former_revision_is_to_delete_it() {
    let mut lab = Lab::with(&[three_of(Advanced)]);
    lab.cluster.nodes.broken_images = vec!["app:broken".to_owned()];
    lab.make(&lab::image("app:broken"));
    let plan = lab.plan(&[lab::image("app:v2")]);
    let blocked = one(&plan)
        .blocked
        .iter()
        .find(|b| b.subject == "web-2")
        .expect("it holds up the others");
    let advice = blocked.advice.as_deref().unwrap_or_default();
    assert!(
        advice.contains("kubectl delete pod web-2") && !advice.contains("undo"),
        "{advice}"
    );
}

/// Claims are looked at like pods: what the API server refuses is not planned as made.
#[test]
fn claims_that_the_api_server_refuses_are_not_made() {
    for (spec, why) in [
        (
            json!({"resources": {"requests": {"storage": "1Gi"}}}),
            "spec.accessModes: Required value",
        ),
        (
            json!({"accessModes": ["ReadWriteOnc"], "resources": {"requests": {"storage": "1Gi"}}}),
            "Unsupported value: \"ReadWriteOnc\"",
        ),
    ] {
        for kind in [Native, Advanced, Clone] {
            let lab = Lab::with(&[]);
            let templates = json!([{"metadata": {"name": "data"}, "spec": spec}]);
            let set = with(three_of(kind), &[("volumeClaimTemplates", templates)]);
            let plan = lab.plan(&[Change::Apply(set)]);
            assert_eq!(one(&plan).steps().count(), 0, "{kind:?}: {}", plan.text());
            assert!(
                plan.is_stopped() && plan.text().contains(why),
                "{kind:?}: {}",
                plan.text()
            );
        }
    }
}

/// Nothing is disrupted, and nothing comes of it either.
#[test]
fn what_cannot_be_carried_out_is_told_apart_from_what_is_done() {
    let lab = Lab::with(&[three_of(Advanced)]);
    let mount = (
        "template/spec/containers/0/volumeMounts",
        json!([{"name": "data", "mountPath": "/data"}]),
    );
    let plan = lab.plan(&[Change::Apply(with(three_of(Advanced), &[mount]))]);
    assert!(!plan.disrupts && plan.is_stopped(), "{}", plan.text());
    let plan = lab.plan(&[scaled(Advanced, 4)]);
    assert!(!plan.disrupts && !plan.is_stopped(), "{}", plan.text());
    // A wait alone stops it, too: what comes after a pod that never comes up.
    let in_order = with(three_of(Advanced), &[("podManagementPolicy", json!("OrderedReady"))]);
    let mut lab = Lab::with(&[in_order]);
    lab.crash("web-1");
    let plan = lab.plan(&[scaled(Advanced, 4)]);
    assert!(!plan.disrupts && plan.is_stopped(), "{}", plan.text());
    // What was in trouble before, and is asked for nothing, is not stopped.
    let plan = lab.plan(&[scaled(Advanced, 3)]);
    assert!(!plan.disrupts && !plan.is_stopped(), "{}", plan.text());
}

/// What a container needs to start and does not find.
/// A container that starts again, in a pod that stays, is given its environment anew.
#[test]
fn what_the_environment_is_made_of_is_looked_up_for_updates_in_place() {
    let from = (
        "template/spec/containers/0/envFrom",
        json!([{"configMapRef": {"name": "settings"}}]),
    );
    let policy = (
        "updateStrategy",
        json!({"rollingUpdate": {"podUpdatePolicy": "InPlaceIfPossible"}}),
    );
    let gate = (
        "template/spec/readinessGates",
        json!([{"conditionType": "InPlaceUpdateReady"}]),
    );
    let set = with(three_of(Advanced), &[from, policy, gate]);
    let mut lab = Lab::with(&[set]);
    let plan = lab.plan(&[lab::image("app:v2")]);
    assert!(
        one(&plan).steps().all(|step| step.action == crate::Action::Update) && one(&plan).steps().count() == 3,
        "{}",
        plan.text()
    );
    assert!(
        plan.missing
            .iter()
            .any(|m| m.ends_with("config map settings was not found")),
        "{}",
        plan.text()
    );
    lab.add(
        "",
        "configmaps",
        json!({"metadata": {"name": "settings", "namespace": "ns"}}),
    );
    let plan = lab.plan(&[lab::image("app:v2")]);
    assert!(plan.missing.is_empty(), "{}", plan.text());
}

#[test]
fn config_maps_secrets_and_runtime_classes_are_looked_up() {
    let rows: [(&str, Value, &str); 7] = [
        (
            "template/spec/volumes",
            json!([{"name": "v", "configMap": {"name": "web"}}]),
            "config map web",
        ),
        (
            "template/spec/volumes",
            json!([{"name": "v", "secret": {"secretName": "web"}}]),
            "secret web",
        ),
        (
            "template/spec/volumes",
            json!([{"name": "v", "projected": {"sources": [{"secret": {"name": "web"}}]}}]),
            "secret web",
        ),
        (
            "template/spec/containers/0/envFrom",
            json!([{"configMapRef": {"name": "web"}}]),
            "config map web",
        ),
        (
            "template/spec/containers/0/env",
            json!([{"name": "E", "valueFrom": {"secretKeyRef": {"name": "web", "key": "k"}}}]),
            "secret web",
        ),
        (
            "template/spec/runtimeClassName",
            json!("gvisor"),
            "runtime class gvisor",
        ),
        (
            "template/spec/volumes",
            json!([{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "gold", "resources": {"requests": {"storage": "1Gi"}}}}}}]),
            "storage class gold",
        ),
    ];
    for (field, value, words) in rows {
        let mut lab = Lab::with(&[three_of(Advanced)]);
        let change = Change::Apply(with(three_of(Advanced), &[(field, value)]));
        let plan = lab.plan(std::slice::from_ref(&change));
        let told = format!("{words} was not found");
        assert!(
            plan.missing.iter().any(|m| m.ends_with(&told)),
            "{words}: {:?}",
            plan.missing
        );
        for (group, resource, name) in [
            ("", "configmaps", "web"),
            ("", "secrets", "web"),
            ("node.k8s.io", "runtimeclasses", "gvisor"),
            ("storage.k8s.io", "storageclasses", "gold"),
        ] {
            lab.add(
                group,
                resource,
                json!({"metadata": {"name": name, "namespace": "ns", "uid": name}}),
            );
        }
        assert_eq!(lab.plan(&[change]).missing, Vec::<String>::new(), "{words}");
    }
    let lab = Lab::with(&[three_of(Advanced)]);
    let optional = json!([{"configMapRef": {"name": "web", "optional": true}}]);
    let change = Change::Apply(with(
        three_of(Advanced),
        &[("template/spec/containers/0/envFrom", optional)],
    ));
    assert_eq!(lab.plan(&[change]).missing, Vec::<String>::new());
}

/// A switch with a value that nobody can read counts as absent, and whoever wrote it thinks that it is there.
#[test]
fn a_switch_that_cannot_be_read_is_no_all_clear() {
    for kind in [Native, Advanced] {
        let lab = Lab::with(&[three_of(kind)]);
        let mut set = three_of(kind);
        set["metadata"]["annotations"] = json!({"flotilla.rs/ordered-max-unavailable": "many"});
        let plan = lab.plan(&[Change::Apply(set)]);
        let words = "ordered-max-unavailable";
        let told = |u: &String| u.contains(words) && u.contains("many") && u.ends_with("it counts as not there");
        assert!(
            plan.unknowns.iter().any(told),
            "{kind:?}: {:?} {:?}",
            plan.unknowns,
            plan.refused
        );
    }
}

/// The API server quotes the whole object of a patch that it refuses; people want to know which field it was.
#[test]
fn a_misspelt_field_of_a_native_set_is_told_without_the_object() {
    for lab in [Lab::with(&[]), Lab::with(&[three_of(Native)])] {
        let misspelt = with(
            three_of(Native),
            &[("template/spec/terminationGracePeriodSecond", json!(5))],
        );
        let plan = lab.plan(&[Change::Apply(misspelt)]);
        let [refusal] = plan.refused.as_slice() else {
            panic!("{}", plan.text())
        };
        let fields: Vec<&str> = refusal.fields.iter().map(|field| field.field.as_str()).collect();
        assert_eq!(
            fields,
            ["spec.template.spec.terminationGracePeriodSecond"],
            "{refusal:?}"
        );
        assert!(
            refusal.message.starts_with("strict decoding error") || refusal.message.len() < 200,
            "{refusal:?}"
        );
    }
}

/// Whoever put it there has to take it away: time does not help.
#[test]
fn a_pod_that_a_finalizer_holds_is_told_with_it() {
    let mut lab = Lab::with(&[three_of(Advanced)]);
    lab.is_held("web-2", "example.com/keep");
    let plan = lab.plan(&[lab::image("app:v2")]);
    let blocked = one(&plan).blocked.iter().find(|blocked| blocked.subject == "web-2");
    let advice = blocked.and_then(|blocked| blocked.advice.clone()).unwrap_or_default();
    assert!(advice.contains("example.com/keep"), "{}", plan.text());
}
