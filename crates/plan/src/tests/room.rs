//! Room that others take of nodes, and volumes that nobody makes: pods and claims that look as if they came up.

use super::lab::{Lab, key, manifest};
use super::{IMAGE, ROLLING, one, waves, with};
use crate::{Change, Edit, Plan, Reach, Unread, plan};
use flotilla_model::SetKind::{self, Advanced, Clone, Native};
use flotilla_sim::room::{asked_for, taken_by};
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
        let words =
            "no node has room for web-2, unless pods of lower priority go: 0/3 nodes are available: 3 Insufficient cpu";
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
            "no node has room for web-10 and 1 more, unless pods of lower priority go: 0/3 nodes are available: 3 Insufficient cpu",
        ),
        // Others take one of the five places.
        (
            Native,
            &five_pods,
            "1",
            13,
            12,
            "no node has room for web-12, unless pods of lower priority go: 0/3 nodes are available: 3 Too many pods",
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
        let words = "no node has room for web-3, unless pods of lower priority go: 0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules";
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
    for (class, has_default, missing) in [
        (json!(null), "", true),
        (json!(null), "storageclass.kubernetes.io/is-default-class", false),
        (json!(null), "storageclass.beta.kubernetes.io/is-default-class", false),
        (json!("standard"), "", false),
    ] {
        for (field, value) in [of_template(&class), of_pod(&class)] {
            let mut lab = Lab::with(&[]);
            if !has_default.is_empty() {
                let annotations = json!({has_default: "true"});
                let class =
                    json!({"metadata": {"name": "usual", "uid": "u", "annotations": annotations}, "provisioner": "p"});
                lab.add("storage.k8s.io", "storageclasses", class);
            }
            let plan = lab.plan(&[Change::Apply(with(manifest(Advanced, "web"), &[(field, value)]))]);
            let is_missing = plan.missing.iter().any(|line| line.contains("name no storage class"));
            assert_eq!(is_missing, missing, "{field} {class} {has_default}: {}", plan.text());
            assert_eq!(plan.warnings, [] as [&str; 0], "{}", plan.text());
        }
    }
}

/// What the scheduler goes by, too, and nobody here looks at, is named.
#[test]
fn rules_that_are_not_looked_at_are_named() {
    let zone = json!({"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"app": "web"}}});
    let required = |kind: &str| json!({kind: {"requiredDuringSchedulingIgnoredDuringExecution": [zone]}});
    let spread =
        |rule: &str| json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": rule, "labelSelector": {}}]);
    for (field, value, words) in [
        (
            "affinity",
            required("podAntiAffinity"),
            "pod anti-affinity beyond nodes",
        ),
        ("affinity", required("podAffinity"), "pod affinity"),
        (
            "topologySpreadConstraints",
            spread("DoNotSchedule"),
            "topology spread constraints",
        ),
        ("topologySpreadConstraints", spread("ScheduleAnyway"), ""),
        (
            "schedulingGates",
            json!([{"name": "example.com/gate"}]),
            "scheduling gates",
        ),
        (
            "containers/0/ports",
            json!([{"containerPort": 80, "hostPort": 80}]),
            "ports of the host",
        ),
        ("containers/0/ports", json!([{"containerPort": 80}]), ""),
    ] {
        let set = set_of(Advanced, 1, "1");
        let after = with(set.clone(), &[(&format!("template/spec/{field}"), value)]);
        let plan = plan_beside(&set, &four_cores(), "0", Change::Apply(after));
        let said: Vec<_> = plan
            .warnings
            .iter()
            .filter(|w| w.contains("what is not looked at"))
            .collect();
        assert_eq!(said.len(), usize::from(!words.is_empty()), "{field}: {said:?}");
        assert!(said.iter().all(|said| said.contains(words)), "{said:?}");
    }
}

/// The scheduler keeps a pod away also from those that keep away from it.
#[test]
fn a_pod_that_others_keep_away_from_is_kept_away() {
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}});
    let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    let set = with(set_of(Advanced, 3, "1"), &[("template/spec/affinity", affinity)]);
    // The new pods share their nodes with anybody, and the old ones do not.
    let after = with(
        set.clone(),
        &[
            ("template/spec/affinity", json!({})),
            ("replicas", json!(4)),
            (ROLLING, json!({"partition": 3})),
        ],
    );
    let plan = plan_beside(&set, &four_cores(), "0", Change::Apply(after));
    assert!(
        plan.missing.iter().any(|m| m.contains("anti-affinity")),
        "{}",
        plan.text()
    );
}

#[test]
fn what_is_too_large_to_be_counted_is_too_much() {
    for cpu in ["1e22", "100000000000000000000000000000"] {
        let set = set_of(Advanced, 1, "1");
        let after = with(set.clone(), &[(RESOURCES, json!({"requests": {"cpu": cpu}}))]);
        let plan = plan_beside(&set, &four_cores(), "0", Change::Apply(after));
        assert!(
            !plan.missing.is_empty() || !plan.refused.is_empty(),
            "{cpu}: {}",
            plan.text()
        );
    }
}

/// A node keeps free what it has allocated, until it has resized.
#[test]
fn a_resize_that_is_under_way_takes_the_larger_amount() {
    let pod = |asked: &str, allocated: &str, reason: &str| {
        let condition = json!({"type": "PodResizePending", "status": "True", "reason": reason});
        json!({
            "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": asked}}}]},
            "status": {"conditions": [condition], "containerStatuses": [{"name": "main", "allocatedResources": {"cpu": allocated}}]},
        })
    };
    let cpu = |pod: &Value| taken_by(pod)["cpu"] / 1_000_000;
    assert_eq!(cpu(&pod("1", "1", "")), 1_000);
    assert_eq!(cpu(&pod("2", "1", "Deferred")), 2_000);
    assert_eq!(cpu(&pod("1", "2", "Deferred")), 2_000);
    assert_eq!(cpu(&pod("1000000", "10m", "Infeasible")), 10);
    for odd in [json!(null), json!({}), json!("1"), json!({"requests": "1"})] {
        let mut pod = pod("1", "2", "");
        pod["spec"]["containers"][0]["resources"] = odd.clone();
        let has_room_for_what_is_given = odd.is_null() || odd == json!({});
        assert_eq!(taken_by(&pod).contains_key("cpu"), has_room_for_what_is_given, "{odd}");
    }
}

/// A volume that somebody provides is taken by claims of its class, or of none.
#[test]
fn volumes_that_are_provided_may_do() {
    let old = json!({"volume.beta.kubernetes.io/storage-class": "by-hand"});
    let claims = |class: Value, annotations: Value| {
        let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        if class.is_string() {
            spec["storageClassName"] = class;
        }
        json!([{"metadata": {"name": "data", "annotations": annotations}, "spec": spec}])
    };
    let rows = [
        // What claims name, the class and the phase of the volume, and whether it is missing, provided, or nobody has to see to it.
        (json!(null), json!({}), json!(null), "Available", "provided"),
        (json!(null), json!({}), json!(null), "Bound", "missing"),
        (json!(""), json!({}), json!(null), "Available", "provided"),
        (json!(""), json!({}), json!("by-hand"), "Available", "missing"),
        (json!("by-hand"), json!({}), json!("by-hand"), "Available", "provided"),
        (json!("by-hand"), json!({}), json!("by-hand"), "Released", "missing"),
        (json!("by-hand"), json!({}), json!(null), "Available", "missing"),
        (json!("standard"), json!({}), json!(null), "Bound", "neither"),
        (
            json!("standard"),
            old.clone(),
            json!("by-hand"),
            "Available",
            "provided",
        ),
        (json!("standard"), old, json!(null), "Available", "missing"),
    ];
    for (class, annotations, of_volume, phase, expected) in rows {
        let mut lab = Lab::with(&[]);
        lab.add(
            "storage.k8s.io",
            "storageclasses",
            json!({"metadata": {"name": "by-hand", "uid": "h"}, "provisioner": "kubernetes.io/no-provisioner"}),
        );
        let volume = json!({"metadata": {"name": "pv", "uid": "v"}, "spec": {"storageClassName": of_volume}, "status": {"phase": phase}});
        lab.add("", "persistentvolumes", volume);
        let templates = ("volumeClaimTemplates", claims(class.clone(), annotations));
        let plan = lab.plan(&[Change::Apply(with(manifest(Advanced, "web"), &[templates]))]);
        let is_provided = plan.warnings.iter().any(|w| w.contains("somebody provides"));
        let told = match (plan.missing.is_empty(), is_provided) {
            (false, false) => "missing",
            (true, true) => "provided",
            (true, false) => "neither",
            (false, true) => "both",
        };
        assert_eq!(told, expected, "{class} {of_volume} {phase}: {}", plan.text());
    }
}

/// A pod whose volume is in one zone finds no place in another.
#[test]
fn a_pod_goes_where_its_volume_is() {
    let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "standard", "resources": {"requests": {"storage": "1Gi"}}});
    let claims = (
        "volumeClaimTemplates",
        json!([{"metadata": {"name": "data"}, "spec": spec}]),
    );
    let before = with(set_of(Advanced, 2, "100m"), &[claims, (ROLLING, json!({}))]);
    let after = with(before.clone(), &[(IMAGE, json!("app:v2"))]);
    let by_affinity = |zone: &str| {
        let rule = json!({"key": "zone", "operator": "In", "values": [zone]});
        json!({"metadata": {"name": "pv"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}}}})
    };
    let by_label =
        |zones: &str| json!({"metadata": {"name": "pv", "labels": {"topology.kubernetes.io/zone": zones}}, "spec": {}});
    for (volume, is_unread, expected) in [
        (by_affinity("here"), false, ""),
        (by_affinity("gone"), false, "affinity"),
        (by_label("there__here"), false, ""),
        (by_label("there__gone"), false, "affinity"),
        (by_affinity("gone"), true, "could not be looked up"),
    ] {
        let mut lab = Lab::with(std::slice::from_ref(&before));
        let labels = json!({"zone": "here", "topology.kubernetes.io/zone": "here"});
        lab.add(
            "",
            "nodes",
            json!({"metadata": {"name": "node-0", "labels": labels}, "spec": {}, "status": {"allocatable": four_cores()}}),
        );
        // What was reserved for a former claim of this name says nothing of this one.
        let mut former = by_affinity(if expected.is_empty() { "gone" } else { "here" });
        former["metadata"]["name"] = json!("released");
        if !is_unread {
            for (mut volume, phase) in [(volume, "Bound"), (former, "Released")] {
                volume["spec"]["claimRef"] = json!({"namespace": "ns", "name": "data-web-1"});
                volume["status"]["phase"] = json!(phase);
                lab.add("", "persistentvolumes", volume);
            }
        }
        let mut state = lab.state();
        let claims = state.objects.iter_mut().map(|object| &mut object.object);
        for claim in claims.filter(|object| object["metadata"]["name"] == "data-web-1") {
            claim["spec"]["volumeName"] = json!("pv");
        }
        if is_unread {
            state.unread.push(Unread {
                group: String::new(),
                resource: "persistentvolumes".to_owned(),
                namespace: None,
            });
        }
        let plan = plan(&state, &[Change::Apply(after.clone())], Reach::SECONDS).expect("the state can be loaded");
        let text = plan.text();
        let comes_up = expected != "affinity";
        assert_eq!(one(&plan).available_at_end, 1 + usize::from(comes_up), "{text}");
        assert_eq!(plan.missing.is_empty(), comes_up, "{text}");
        let words = "no node has room for web-1, unless pods of lower priority go: 0/1 nodes are available: \
                     1 node(s) didn't match PersistentVolume's node affinity";
        assert_eq!(text.contains(words), !comes_up, "{text}");
        assert_eq!(
            text.contains("what is not looked at: volumes that could not be looked up"),
            is_unread,
            "{text}"
        );
    }
}

/// What decides where pods go, and is not looked at, is named.
#[test]
fn what_else_decides_about_nodes_is_named() {
    for (field, value, runtime, expected) in [
        (
            "resourceClaims",
            json!([{"name": "gpu"}]),
            json!({}),
            Some("resource claims"),
        ),
        ("runtimeClassName", json!("kata"), json!({}), None),
        (
            "runtimeClassName",
            json!("kata"),
            json!({"overhead": {"podFixed": {"cpu": "1"}}}),
            Some("what its runtime class adds"),
        ),
        (
            "runtimeClassName",
            json!("kata"),
            json!({"scheduling": {"nodeSelector": {"a": "b"}}}),
            Some("what its runtime class adds"),
        ),
    ] {
        let mut lab = Lab::with(&[]);
        lab.add(
            "",
            "nodes",
            json!({"metadata": {"name": "node-0"}, "spec": {}, "status": {"allocatable": four_cores()}}),
        );
        let mut class = json!({"metadata": {"name": "kata", "uid": "r"}, "handler": "kata"});
        for (name, value) in runtime.as_object().expect("an object") {
            class[name] = value.clone();
        }
        lab.add("node.k8s.io", "runtimeclasses", class);
        let field = format!("template/spec/{field}");
        let plan = lab.plan(&[Change::Apply(with(
            manifest(Advanced, "web"),
            &[(field.as_str(), value)],
        ))]);
        let named = plan
            .warnings
            .iter()
            .find(|warning| warning.contains("what is not looked at"));
        assert_eq!(named.is_some(), expected.is_some(), "{}", plan.text());
        assert!(
            named
                .zip(expected)
                .is_none_or(|(named, expected)| named.contains(expected)),
            "{named:?}"
        );
    }
}

/// What the template names, and is not there, by every name that fields have for it; and what is there is not missing.
#[test]
fn whatever_new_pods_need_is_looked_up() {
    let map = |name: &str| json!({"metadata": {"name": name, "namespace": "ns"}});
    let reads = json!([{"name": "main", "image": "app:v1", "env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}}}]}]);
    let volume = |source: Value| json!([{"name": "data", "csi": source}]);
    for (field, value, missing) in [
        ("serviceAccount", json!("nobody"), "service account nobody"),
        ("serviceAccountName", json!("nobody"), "service account nobody"),
        (
            "priorityClassName",
            json!("system-cluster-critcal"),
            "priority class system-cluster-critcal",
        ),
        ("priorityClassName", json!("system-cluster-critical"), ""),
        (
            "volumes",
            volume(json!({"driver": "d", "nodePublishSecretRef": {"name": "token"}})),
            "secret token",
        ),
        // Its keys are taken to be there: they are not read.
        ("containers", reads, ""),
    ] {
        let mut lab = Lab::with(&[]);
        lab.add("", "configmaps", map("settings"));
        let field = format!("template/spec/{field}");
        let plan = lab.plan(&[Change::Apply(with(
            manifest(Advanced, "web"),
            &[(field.as_str(), value)],
        ))]);
        let told = plan.missing.first().map_or("", String::as_str);
        assert!(
            told.contains(missing) && told.is_empty() == missing.is_empty(),
            "{missing}: {}",
            plan.text()
        );
        let made = usize::from(missing.is_empty());
        assert!(one(&plan).available_at_end >= made, "{}", plan.text());
    }
}

/// A claim that is there and waits for a volume is looked at like one that is to be made.
#[test]
fn claims_that_wait_for_a_volume_are_told() {
    let spec = |class: &str| json!({"accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": {"requests": {"storage": "1Gi"}}});
    for (class, phase, missing) in [
        ("gone", "Pending", "storage class gone was not found"),
        ("standard", "Lost", "have lost their volumes"),
        ("standard", "Bound", ""),
    ] {
        let set = with(
            manifest(Advanced, "web"),
            &[(
                "volumeClaimTemplates",
                json!([{"metadata": {"name": "data"}, "spec": spec(class)}]),
            )],
        );
        let mut lab = Lab::with(&[]);
        lab.add(
            "",
            "persistentvolumeclaims",
            json!({"metadata": {"name": "data-web-0", "namespace": "ns", "uid": "d"}, "spec": spec(class), "status": {"phase": phase}}),
        );
        let plan = lab.plan(&[Change::Apply(set)]);
        let told = plan.missing.first().map_or("", String::as_str);
        assert!(
            told.contains(missing) && told.is_empty() == missing.is_empty(),
            "{class} {phase}: {}",
            plan.text()
        );
    }
}
