//! Room that others take of nodes, and volumes that nobody makes: pods and claims that look as if they came up.

use super::lab::{Lab, key, manifest};
use super::{IMAGE, ROLLING, one, waves, with};
use crate::{Change, Edit, Plan, Reach, plan};
use flotilla_model::SetKind::{self, Advanced, Clone, Native};
use flotilla_sim::room::asked_for;
use serde_json::{Value, json};

const NODES: [&str; 3] = ["node-0", "node-1", "node-2"];
const RESOURCES: &str = "template/spec/containers/0/resources";

fn set_of(kind: SetKind, replicas: i64, cpu: &str) -> Value {
    let mut set = with(manifest(kind, "web"), &[("replicas", json!(replicas))]);
    if kind == Clone {
        set["spec"].as_object_mut().expect("a spec").remove("serviceName");
    }
    with(set, &[(RESOURCES, json!({"requests": {"cpu": cpu}}))])
}

fn scaled(kind: SetKind, replicas: i64) -> Change {
    Change::Edit(kind, key("web"), vec![Edit::Replicas(replicas)])
}

/// Plans on three nodes of this size, over which the set's pods are spread, and of each of which pods of other namespaces take so much cpu.
fn plan_beside(set: &Value, allocatable: &Value, others: &str, change: Change) -> Plan {
    let mut lab = Lab::with(std::slice::from_ref(set));
    for name in NODES {
        lab.add(
            "",
            "nodes",
            json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "spec": {},
                "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": allocatable}}),
        );
    }
    let mut state = lab.state();
    let pods = state.objects.iter_mut().filter(|object| object.resource == "pods");
    for (pod, node) in pods.zip(NODES.iter().cycle()) {
        pod.object["spec"]["nodeName"] = json!(node);
    }
    let other = asked_for(&json!({"containers": [{"resources": {"requests": {"cpu": others}}}]}));
    state.taken_by_others = NODES.iter().map(|name| ((*name).to_owned(), other.clone())).collect();
    plan(&state, &[change], Reach::SECONDS).expect("the state can be loaded")
}

fn four_cores() -> Value {
    json!({"cpu": "4", "pods": "110"})
}

#[test]
fn a_pod_that_finds_no_room_beside_others_is_not_expected_to_come_up() {
    for kind in [Native, Advanced] {
        let before = with(set_of(kind, 3, "100m"), &[(ROLLING, json!({}))]);
        let after = with(before.clone(), &[(RESOURCES, json!({"requests": {"cpu": "1"}}))]);
        let plan = plan_beside(&before, &four_cores(), "3200m", Change::Apply(after));
        assert_eq!(waves(one(&plan)), ["~web-2"], "{kind:?}: {}", plan.text());
        assert_eq!(one(&plan).available_at_end, 2, "{kind:?}: {}", plan.text());
        let words = "no node has room for web-2: 0/3 nodes are available: 3 Insufficient cpu";
        assert!(
            plan.missing.iter().any(|m| m.ends_with(words)),
            "{kind:?}: {:?}",
            plan.missing
        );
        assert!(plan.text().contains(words), "{}", plan.text());
    }
}

/// What a pod that goes takes is free for the one that comes.
#[test]
fn the_room_of_a_pod_that_is_replaced_is_free_again() {
    for kind in [Native, Advanced, Clone] {
        let set = set_of(kind, 3, "2");
        let image = Change::Edit(kind, key("web"), vec![Edit::Image(None, "app:v2".to_owned())]);
        let plan = plan_beside(&set, &four_cores(), "1500m", image);
        assert_eq!(one(&plan).available_at_end, 3, "{kind:?}: {}", plan.text());
        assert_eq!(plan.missing, Vec::<String>::new(), "{kind:?}");
    }
}

#[test]
fn as_many_come_up_as_find_room() {
    let (five_pods, four_cores) = (json!({"cpu": "64", "pods": "5"}), four_cores());
    for (kind, allocatable, others, wanted, available, words) in [
        (
            Advanced,
            &four_cores,
            "1",
            11,
            9,
            "no node has room for web-10 and 1 more: 0/3 nodes are available: 3 Insufficient cpu",
        ),
        // Others take one of the five places.
        (
            Native,
            &five_pods,
            "1",
            13,
            12,
            "no node has room for web-12: 0/3 nodes are available: 3 Too many pods",
        ),
        (Clone, &four_cores, "0", 12, 12, ""),
    ] {
        let parallel = ("podManagementPolicy", json!("Parallel"));
        let set = with(
            set_of(kind, 3, "1"),
            if kind == Clone {
                &[]
            } else {
                std::slice::from_ref(&parallel)
            },
        );
        let plan = plan_beside(&set, allocatable, others, scaled(kind, wanted));
        assert_eq!(one(&plan).available_at_end, available, "{kind:?}: {}", plan.text());
        let is_told = plan.missing.iter().any(|m| m.ends_with(words));
        assert_eq!(
            (is_told, plan.missing.is_empty()),
            (!words.is_empty(), words.is_empty()),
            "{:?}",
            plan.missing
        );
    }
}

/// A pod more than wanted is made first, and finds no room: nothing is taken down.
#[test]
fn a_surge_without_room_is_stuck() {
    let rolling = (ROLLING, json!({"maxSurge": 1, "maxUnavailable": 0}));
    let set = with(set_of(Clone, 3, "3"), &[rolling]);
    let after = with(set.clone(), &[(IMAGE, json!("app:v2"))]);
    let plan = plan_beside(&set, &four_cores(), "500m", Change::Apply(after));
    assert_eq!(one(&plan).available_at_end, 3, "{}", plan.text());
    assert!(!one(&plan).disrupts(), "{}", plan.text());
    assert!(
        plan.missing[0].contains("no node has room for web-"),
        "{:?}",
        plan.missing
    );
}

#[test]
fn pods_that_keep_away_from_each_other_need_a_node_each() {
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}});
    let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    for (wanted, available) in [(3, 3), (4, 3)] {
        let set = with(
            set_of(Advanced, 1, "1"),
            &[("template/spec/affinity", affinity.clone())],
        );
        let plan = plan_beside(&set, &four_cores(), "0", scaled(Advanced, wanted));
        assert_eq!(one(&plan).available_at_end, available, "{}", plan.text());
        let words =
            "no node has room for web-3: 0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules";
        assert_eq!(
            plan.missing.iter().any(|m| m.ends_with(words)),
            wanted > 3,
            "{:?}",
            plan.missing
        );
    }
}

/// What others take is known only if all of it could be read; then nothing is said of it.
#[test]
fn nobody_takes_room_where_no_node_is_known() {
    let lab = Lab::with(&[set_of(Advanced, 1, "100")]);
    let plan = lab.plan(&[scaled(Advanced, 3)]);
    assert_eq!((one(&plan).available_at_end, plan.missing), (3, Vec::<String>::new()));
}

#[test]
fn claims_without_a_class_need_a_default_one() {
    let claims = |class: &Value| {
        let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        if !class.is_null() {
            spec["storageClassName"] = class.clone();
        }
        spec
    };
    let of_template = |class: &Value| {
        (
            "volumeClaimTemplates",
            json!([{"metadata": {"name": "data"}, "spec": claims(class)}]),
        )
    };
    let of_pod = |class: &Value| {
        let volume = json!([{"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": claims(class)}}}]);
        ("template/spec/volumes", volume)
    };
    for (class, has_default, missing, warned) in [
        (json!(null), false, true, false),
        (json!(null), true, false, false),
        (json!(""), false, false, true),
        (json!("standard"), false, false, false),
    ] {
        for (field, value) in [of_template(&class), of_pod(&class)] {
            let mut lab = Lab::with(&[]);
            if has_default {
                let annotations = json!({"storageclass.kubernetes.io/is-default-class": "true"});
                let class =
                    json!({"metadata": {"name": "usual", "uid": "u", "annotations": annotations}, "provisioner": "p"});
                lab.add("storage.k8s.io", "storageclasses", class);
            }
            let plan = lab.plan(&[Change::Apply(with(manifest(Advanced, "web"), &[(field, value)]))]);
            let of = |told: &[String], words: &str| told.iter().any(|line| line.contains(words));
            assert_eq!(
                (
                    of(&plan.missing, "name no storage class"),
                    of(&plan.warnings, "somebody provides")
                ),
                (missing, warned),
                "{field} {class} {has_default}: {}",
                plan.text()
            );
        }
    }
}
