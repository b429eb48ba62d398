//! What limit ranges and quotas say of pods and claims that there are already and are to grow.

use super::lab::{Lab, manifest};
use super::{ROLLING, one, waves, with};
use crate::Change;
use flotilla_model::SetKind::{Advanced, Native};
use serde_json::{Value, json};

/// What a limit range and a quota say, how the set is changed, whether it is done in place, and words of the refusal.
type Growth<'r> = (&'r str, [Value; 2], (&'r str, Value), bool, &'r str);

/// Limit ranges refuse what is too large; quotas count what grows.
#[test]
fn limit_ranges_and_quotas_bound_what_grows() {
    let asks = |cpu: &str| {
        (
            "template/spec/containers/0/resources",
            json!({"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}),
        )
    };
    let most = |about: &str, most: Value| json!({"limits": [{"type": about, "max": most}]});
    let none = || json!({});
    let cpu = || json!({"cpu": "500m"});
    let bigger = ("volumeClaimTemplates/0/spec/resources/requests/storage", json!("2Gi"));
    let rows: [Growth<'_>; 8] = [
        (
            "room",
            [most("Container", json!({"cpu": "2"})), none()],
            asks("1"),
            false,
            "",
        ),
        (
            "a container",
            [most("Container", cpu()), none()],
            asks("1"),
            false,
            "maximum cpu usage per Container is 500m, but limit is 1",
        ),
        (
            "resized",
            [most("Container", cpu()), none()],
            asks("1"),
            true,
            "maximum cpu usage per Container is 500m",
        ),
        (
            "a pod",
            [most("Pod", cpu()), none()],
            asks("1"),
            false,
            "maximum cpu usage per Pod is 500m",
        ),
        (
            "too little",
            [json!({"limits": [{"type": "Container", "min": cpu()}]}), none()],
            asks("100m"),
            false,
            "minimum cpu usage per Container is 500m, but request is 100m",
        ),
        (
            "a claim",
            [most("PersistentVolumeClaim", json!({"storage": "1Gi"})), none()],
            bigger.clone(),
            false,
            "maximum storage usage per PersistentVolumeClaim is 1Gi",
        ),
        (
            "a quota of cpu",
            [none(), json!({"requests.cpu": "500m"})],
            asks("1"),
            true,
            "exceeded quota: small",
        ),
        (
            "a quota of storage",
            [none(), json!({"requests.storage": "1Gi"})],
            bigger,
            false,
            "exceeded quota: small, requested: requests.storage",
        ),
    ];
    for (name, [limits, hard], change, in_place, words) in rows {
        let claims = json!([{"metadata": {"name": "data"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "standard", "resources": {"requests": {"storage": "1Gi"}}}}]);
        let mut fields = vec![
            asks("200m"),
            ("volumeClaimTemplates", claims),
            ("volumeClaimUpdateStrategy", json!({"type": "OnPodRollingUpdate"})),
        ];
        if in_place {
            fields.push((
                "template/spec/readinessGates",
                json!([{"conditionType": "InPlaceUpdateReady"}]),
            ));
            fields.push((ROLLING, json!({"podUpdatePolicy": "InPlaceIfPossible"})));
        }
        let set = with(manifest(Advanced, "web"), &fields);
        let mut lab = Lab::with(std::slice::from_ref(&set));
        for (resource, spec) in [("limitranges", limits), ("resourcequotas", json!({"hard": hard}))] {
            lab.add(
                "",
                resource,
                json!({"metadata": {"name": "small", "namespace": "ns", "uid": resource}, "spec": spec}),
            );
        }
        let plan = lab.plan(&[Change::Apply(with(set, &[change]))]);
        let messages: Vec<&str> = one(&plan).blocked.iter().map(|b| b.message.as_str()).collect();
        let is_refused = messages.iter().any(|m| m.contains(words));
        assert!(
            if words.is_empty() {
                messages.is_empty()
            } else {
                is_refused
            },
            "{name}: {messages:?}: {}",
            plan.text()
        );
    }
}

/// A pod that was made before the limit range is given by it what it says nothing of, as soon as it is resized.
#[test]
fn limit_ranges_fill_in_what_is_resized() {
    let asks = |cpu: &str| {
        (
            "template/spec/containers/0/resources",
            json!({"requests": {"cpu": cpu}}),
        )
    };
    let fields = [
        asks("100m"),
        (
            "template/spec/readinessGates",
            json!([{"conditionType": "InPlaceUpdateReady"}]),
        ),
        (ROLLING, json!({"podUpdatePolicy": "InPlaceIfPossible"})),
    ];
    let set = with(manifest(Advanced, "web"), &fields);
    let mut lab = Lab::with(std::slice::from_ref(&set));
    let rule = json!({"type": "Container", "max": {"cpu": "1"}, "default": {"cpu": "1"}});
    let range = json!({"metadata": {"name": "usual", "namespace": "ns", "uid": "l"}, "spec": {"limits": [rule]}});
    lab.add("", "limitranges", range);
    let plan = lab.plan(&[Change::Apply(with(set, &[asks("300m")]))]);
    assert_eq!(waves(one(&plan)), ["=web-0"], "{}", plan.text());
    assert_eq!(one(&plan).blocked, [], "{}", plan.text());
}

/// Beside the others there is no room for its successor: it is gone, and not replaced.
#[test]
fn a_pod_whose_successor_has_no_room_is_deleted() {
    let asks = |cpu: &str| {
        (
            "template/spec/containers/0/resources",
            json!({"requests": {"cpu": cpu}}),
        )
    };
    for kind in [Native, Advanced] {
        let set = with(manifest(kind, "web"), &[asks("100m"), ("replicas", json!(3))]);
        let mut lab = Lab::with(std::slice::from_ref(&set));
        let quota = json!({"metadata": {"name": "small", "namespace": "ns", "uid": "q"}, "spec": {"hard": {"requests.cpu": "300m"}}});
        lab.add("", "resourcequotas", quota);
        let plan = lab.plan(&[Change::Apply(with(set, &[asks("300m")]))]);
        assert_eq!(waves(one(&plan)), ["-web-2"], "{kind:?}: {}", plan.text());
        assert!(plan.summary.contains("1 pod is deleted"), "{kind:?}: {}", plan.summary);
    }
}

/// What nobody can read as a container is refused, and ends no plan.
#[test]
fn what_is_no_container_meets_limit_ranges_in_peace() {
    for resources in [json!("lots"), json!([]), json!({"limits": "all"})] {
        let mut lab = Lab::with(&[]);
        let rule =
            json!({"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}, "max": {"cpu": "2"}});
        let range = json!({"metadata": {"name": "l", "namespace": "ns", "uid": "l"}, "spec": {"limits": [rule]}});
        lab.add("", "limitranges", range);
        let set = with(
            manifest(Advanced, "web"),
            &[("template/spec/containers/0/resources", resources.clone())],
        );
        let plan = lab.plan(&[Change::Apply(set)]);
        assert!(
            !plan.summary.contains("pods are created"),
            "{resources}: {}",
            plan.summary
        );
    }
}
