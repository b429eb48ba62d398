//! What people and programs read.

use super::lab::{self, Lab, manifest};
use super::{ROLLING, with};
use crate::Change;
use flotilla_model::SetKind::{Advanced, Native};
use serde_json::json;

#[test]
fn people_read_waves_and_what_stays() {
    let set = with(
        manifest(Advanced, "web"),
        &[
            ("replicas", json!(5)),
            ("podManagementPolicy", json!("Parallel")),
            (ROLLING, json!({"partition": 1, "maxUnavailable": 2})),
        ],
    );
    let text = Lab::with(&[set]).plan(&[lab::image("app:v2")]).text();
    let lines: Vec<&str> = text.lines().filter(|line| !line.contains(" -> ")).collect();
    assert_eq!(
        lines,
        [
            "statefulset.apps.kruise.io/web: 4 pods are replaced in 2 waves, never fewer than 3 available; 1 pod stays on the old revision",
            "",
            "statefulset.apps.kruise.io/web in namespace ns",
            "  wave  1  replace web-4 web-3  ███░░ 3/5 available",
            "  wave  2  replace web-2 web-1  ███░░ 3/5 available",
            "  stays (updateStrategy.rollingUpdate.partition): the partition keeps 1 on the old revision: web-0",
            "  if the new pods do not become ready: it stops with 3 available after web-4 web-3",
        ]
    );
}

#[test]
fn many_waves_are_drawn_as_a_few() {
    let set = with(manifest(Native, "web"), &[("replicas", json!(40))]);
    let text = Lab::with(&[set]).plan(&[lab::native_image("app:v2")]).text();
    assert!(
        text.contains("  … 29 waves more (-o json lists all)\n  wave 40  replace web-0"),
        "{text}"
    );
    assert!(text.lines().count() < 20, "{text}");
}

#[test]
fn programs_read_fields_that_stay() {
    let lab = Lab::with(&[with(manifest(Native, "web"), &[("replicas", json!(2))])]);
    let json = serde_json::to_value(lab.plan(&[lab::native_image("app:v2")])).unwrap();
    let fields = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        fields(&json),
        [
            "disrupts",
            "isCutShort",
            "missing",
            "notLookedAt",
            "refused",
            "sets",
            "summary",
            "unknowns",
            "warnings"
        ]
    );
    assert_eq!(
        fields(&json["sets"][0]),
        [
            "availableAtEnd",
            "blocked",
            "change",
            "claimTemplatesChanged",
            "claims",
            "claimsLeft",
            "currentRevision",
            "ifNewPodsAreNotReady",
            "isCarriedOut",
            "kind",
            "lowestAvailable",
            "namespace",
            "replicas",
            "replicasBefore",
            "revisionsMade",
            "set",
            "stays",
            "updateRevision",
            "waves",
        ]
    );
    assert_eq!(json["sets"][0]["waves"][0]["steps"][0]["action"], "replace");
    assert_eq!(json["sets"][0]["lowestAvailable"], json!({"pods": 1, "wave": 1}));
}

/// What is refused, missing or not known is told in words of files and servers.
#[test]
fn nobody_forges_a_line_by_a_name_of_theirs() {
    let lab = Lab::with(&[with(manifest(Native, "web"), &[("replicas", json!(2))])]);
    let mut plan = lab.plan(&[lab::native_image("app:v2")]);
    let forged = "x\nweb: no pod is touched\u{1b}[1A";
    plan.warnings.push(forged.to_owned());
    plan.missing.push(forged.to_owned());
    plan.leave_out(vec![forged.to_owned()], vec![forged.to_owned()]);
    let set = &mut plan.sets[0];
    set.waves[0].steps[0].pod = forged.to_owned();
    set.stays = vec![crate::Stays {
        pods: vec![forged.to_owned()],
        rule: "partition",
        message: forged.to_owned(),
    }];
    set.blocked = vec![crate::Blocked {
        subject: "web-1".to_owned(),
        cause: "HookHolds".to_owned(),
        message: forged.to_owned(),
        rule: "lifecycle.preDelete",
        advice: Some(forged.to_owned()),
    }];
    plan.refused = vec![crate::Refusal {
        object: "web".to_owned(),
        namespace: "ns".to_owned(),
        reason: "Invalid".to_owned(),
        message: forged.to_owned(),
        place: Some(forged.to_owned()),
        fields: vec![],
    }];
    let text = plan.text();
    assert!(!text.contains("\nweb: no pod"), "{text}");
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    assert!(
        text.matches("x\\nweb: no pod is touched\\u{1b}[1A").count() >= 9,
        "{text}"
    );
}

/// Of a patch that is of the wrong type the API server quotes all of the object: the field is what people need.
#[test]
fn a_value_of_the_wrong_type_is_told_without_the_object() {
    let lab = Lab::with(&[with(manifest(Native, "web"), &[])]);
    let env = json!([{"name": "A", "value": 1}]);
    let plan = lab.plan(&[Change::Apply(with(
        manifest(Native, "web"),
        &[("template/spec/containers/0/env", env)],
    ))]);
    let [refused] = plan.refused.as_slice() else {
        panic!("{}", plan.text())
    };
    assert!(
        refused.message.starts_with("json: cannot unmarshal"),
        "{}",
        refused.message
    );
    let fields: Vec<_> = refused.fields.iter().map(|field| field.field.as_str()).collect();
    assert_eq!(fields, ["spec.template.spec.containers.env.value"]);
}
