//! Plans of changes to sets that the simulated cluster has rolled out before.

mod clones;
mod doubts;
mod growth;
mod lab;
mod owners;
mod rests;
mod room;
mod text;
mod truths;

use crate::report::{Action, ClaimAction, Plan, SetPlan, Verb};
use crate::{Change, Edit, Reach};
use flotilla_model::SetKind::{self, Advanced, Native};
use lab::{Lab, key, manifest};
use serde_json::{Value, json};

/// Waves as text: `-web-1` deleted, `~web-1` replaced, `+web-1` created, `=web-1` updated, `!web-1` made not ready.
fn waves(set: &SetPlan) -> Vec<String> {
    words(&set.waves)
}

fn words(waves: &[crate::Wave]) -> Vec<String> {
    let step = |step: &crate::Step| {
        let sign = match step.action {
            Action::Create => "+",
            Action::Update => "=",
            Action::MakeUnready => "!",
            Action::Replace => "~",
            Action::Delete => "-",
        };
        format!("{sign}{}", step.pod)
    };
    waves
        .iter()
        .map(|wave| wave.steps.iter().map(step).collect::<Vec<_>>().join(" "))
        .collect()
}

fn one(plan: &Plan) -> &SetPlan {
    assert_eq!(plan.refused, [], "nothing is refused");
    assert_eq!(plan.sets.len(), 1);
    &plan.sets[0]
}

/// Sets fields of `spec`, each at a JSON pointer.
fn with(mut set: Value, fields: &[(&str, Value)]) -> Value {
    for (pointer, value) in fields {
        let mut place = &mut set["spec"];
        for step in pointer.split('/') {
            place = match step.parse::<usize>() {
                Ok(index) => &mut place[index],
                Err(_) => &mut place[step],
            };
        }
        *place = value.clone();
    }
    set
}

const IMAGE: &str = "template/spec/containers/0/image";
const ROLLING: &str = "updateStrategy/rollingUpdate";

/// One row: a set of a kind with these fields is live; then these change; the waves, the fewest available pods.
struct Row {
    name: &'static str,
    kind: SetKind,
    live: &'static [(&'static str, &'static str)],
    change: &'static [(&'static str, &'static str)],
    waves: &'static [&'static str],
    lowest: usize,
    stays: &'static [&'static str],
}

const ROWS: &[Row] = &[
    Row {
        name: "scale out, in order",
        kind: Native,
        live: &[("replicas", "2")],
        change: &[("replicas", "4")],
        waves: &["+web-2", "+web-3"],
        lowest: 2,
        stays: &[],
    },
    Row {
        name: "scale out, parallel",
        kind: Native,
        live: &[("replicas", "1"), ("podManagementPolicy", "\"Parallel\"")],
        change: &[("replicas", "4")],
        waves: &["+web-1 +web-2 +web-3"],
        lowest: 1,
        stays: &[],
    },
    Row {
        name: "scale in, in order",
        kind: Native,
        live: &[("replicas", "4")],
        change: &[("replicas", "2")],
        waves: &["-web-3", "-web-2"],
        lowest: 2,
        stays: &[],
    },
    Row {
        name: "another image with a partition",
        kind: Native,
        live: &[("replicas", "4"), (ROLLING, "{\"partition\": 2}")],
        change: &[(IMAGE, "\"app:v2\"")],
        waves: &["~web-3", "~web-2"],
        lowest: 3,
        stays: &["web-0", "web-1"],
    },
    Row {
        name: "three at a time",
        kind: Advanced,
        live: &[
            ("replicas", "7"),
            ("podManagementPolicy", "\"Parallel\""),
            (ROLLING, "{\"maxUnavailable\": 3}"),
        ],
        change: &[(IMAGE, "\"app:v2\"")],
        waves: &["~web-6 ~web-5 ~web-4", "~web-3 ~web-2 ~web-1", "~web-0"],
        lowest: 4,
        stays: &[],
    },
    Row {
        name: "an ordinal is reserved",
        kind: Advanced,
        live: &[("replicas", "3")],
        change: &[("reserveOrdinals", "[1]")],
        waves: &["+web-3", "-web-1"],
        lowest: 3,
        stays: &[],
    },
    Row {
        name: "paused",
        kind: Advanced,
        live: &[("replicas", "2"), (ROLLING, "{\"paused\": true}")],
        change: &[(IMAGE, "\"app:v2\"")],
        waves: &[],
        lowest: 2,
        stays: &["web-0", "web-1"],
    },
    Row {
        name: "on delete",
        kind: Native,
        live: &[("replicas", "2"), ("updateStrategy", "{\"type\": \"OnDelete\"}")],
        change: &[(IMAGE, "\"app:v2\"")],
        waves: &[],
        lowest: 2,
        stays: &["web-0", "web-1"],
    },
    Row {
        name: "nothing that matters",
        kind: Native,
        live: &[("replicas", "2")],
        change: &[("revisionHistoryLimit", "3")],
        waves: &[],
        lowest: 2,
        stays: &[],
    },
    Row {
        name: "each must have been ready for a while",
        kind: Native,
        live: &[("replicas", "2"), ("minReadySeconds", "300")],
        change: &[(IMAGE, "\"app:v2\"")],
        waves: &["~web-1", "~web-0"],
        lowest: 1,
        stays: &[],
    },
];

fn fields(row: &[(&'static str, &'static str)]) -> Vec<(&'static str, Value)> {
    let read = |text: &str| serde_json::from_str(text).expect("JSON in a row of this table");
    row.iter().map(|(pointer, text)| (*pointer, read(text))).collect()
}

#[test]
fn changes_come_in_waves() {
    for row in ROWS {
        let set = with(manifest(row.kind, "web"), &fields(row.live));
        let lab = Lab::with(std::slice::from_ref(&set));
        let plan = lab.plan(&[Change::Apply(with(set, &fields(row.change)))]);
        let planned = one(&plan);
        assert_eq!(waves(planned), row.waves, "{}: {}", row.name, plan.text());
        assert_eq!(planned.lowest_available.pods, row.lowest, "{}", row.name);
        let stays: Vec<String> = planned.stays.iter().flat_map(|s| s.pods.clone()).collect();
        assert_eq!(stays, row.stays, "{}", row.name);
        assert_eq!(planned.blocked, [], "{}", row.name);
        let disrupts = row
            .waves
            .iter()
            .any(|wave| wave.contains('~') || wave.contains('-') && !wave.contains('+'));
        let deletes = row.waves.iter().any(|wave| wave.starts_with('-'));
        assert_eq!(plan.disrupts, disrupts || deletes, "{}", row.name);
    }
}

#[test]
fn the_same_change_gives_the_same_plan() {
    let set = with(
        manifest(Advanced, "web"),
        &[("replicas", json!(5)), ("podManagementPolicy", json!("Parallel"))],
    );
    let lab = Lab::with(std::slice::from_ref(&set));
    let change = [Change::Apply(with(set, &[(IMAGE, json!("app:v2"))]))];
    assert_eq!(lab.plan(&change), lab.plan(&change));
}

#[test]
fn planning_makes_no_difference_to_the_state() {
    let lab = Lab::with(&[manifest(Native, "web")]);
    let before = lab.state();
    lab.plan(&[Change::Delete(Native, key("web"))]);
    assert_eq!(format!("{before:?}"), format!("{:?}", lab.state()));
}

#[test]
fn priorities_decide_the_order() {
    let strategy = json!({"maxUnavailable": 1, "unorderedUpdate": {"priorityStrategy": {"weightPriority": [
        {"weight": 50, "matchSelector": {"matchLabels": {"apps.kubernetes.io/pod-index": "1"}}},
    ]}}});
    let set = with(
        manifest(Advanced, "web"),
        &[
            ("replicas", json!(3)),
            ("podManagementPolicy", json!("Parallel")),
            (ROLLING, strategy),
        ],
    );
    let lab = Lab::with(&[set]);
    let plan = lab.plan(&[lab::image("app:v2")]);
    assert_eq!(waves(one(&plan)), ["~web-1", "~web-2", "~web-0"]);
}

#[test]
fn a_rollback_uses_the_revision_that_is_there() {
    let set = with(manifest(Native, "web"), &[("replicas", json!(2))]);
    let mut lab = Lab::with(&[set]);
    lab.make(&lab::native_image("app:v2"));
    let plan = lab.plan(&[lab::native_image("app:v1")]);
    assert_eq!(waves(one(&plan)), ["~web-1", "~web-0"]);
    assert_eq!(one(&plan).revisions_made, [""; 0]);
    let steps: Vec<_> = one(&plan).steps().collect();
    assert_ne!(steps[0].from_revision, steps[0].to_revision);
    let plan = lab.plan(&[lab::native_image("app:v3")]);
    assert_eq!(one(&plan).revisions_made.len(), 1, "a new template is a new revision");
}

#[test]
fn an_image_that_fails_now_blocks() {
    let set = with(manifest(Native, "web"), &[("replicas", json!(3))]);
    let mut lab = Lab::with(&[set]);
    lab.cluster.nodes.broken_images.push("app:broken".to_owned());
    lab.make(&lab::native_image("app:broken"));
    // Another set that has nothing to do with it uses the same image.
    let other = with(manifest(Native, "other"), &[(IMAGE, json!("app:broken"))]);
    let plan = lab.plan(&[Change::Apply(other)]);
    let planned = one(&plan);
    assert_eq!((planned.change, planned.available_at_end), (Verb::Created, 0));
    assert_eq!(planned.blocked[0].cause, "ContainerCannotStart", "{}", plan.text());
    let advice = planned.blocked[0].advice.as_deref().unwrap_or_default();
    assert!(
        !advice.contains("undo"),
        "a new set has nothing to go back to: {advice}"
    );
    assert!(
        plan.warnings.iter().any(|w| w.contains("app:broken")),
        "{:?}",
        plan.warnings
    );
    assert!(
        plan.warnings.iter().any(|w| w.contains("web-2 is not ready")),
        "{:?}",
        plan.warnings
    );
}

#[test]
fn a_broken_pod_is_replaced_only_where_the_rollout_comes_to_it() {
    let mut lab = Lab::with(&[with(manifest(Native, "web"), &[("replicas", json!(3))])]);
    lab.cluster.nodes.broken_images.push("app:broken".to_owned());
    lab.make(&lab::native_image("app:broken"));
    let plan = lab.plan(&[lab::native_image("app:v3")]);
    // Under OrderedReady the broken pod holds up its own replacement: the known trouble of these sets.
    assert_eq!(waves(one(&plan)), [""; 0], "{}", plan.text());
    assert_eq!(one(&plan).blocked[0].subject, "web-2");
    assert_eq!(one(&plan).available_at_end, 2);
}

#[test]
fn what_if_the_new_pods_do_not_become_ready() {
    let lab = Lab::with(&[with(manifest(Native, "web"), &[("replicas", json!(3))])]);
    let plan = lab.plan(&[lab::native_image("app:v2")]);
    let planned = one(&plan);
    assert_eq!((planned.available_at_end, planned.blocked.len()), (3, 0));
    let doubt = planned.if_new_pods_are_not_ready.as_ref().expect("pods are made");
    assert_eq!(doubt.pods, ["web-2"]);
    assert_eq!(doubt.available, 2);
    assert!(doubt.blocked.iter().any(|b| b.subject == "web-2"), "{doubt:?}");
}

#[test]
fn claims_are_made_with_pods_and_removed_with_them() {
    let templates = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
    let policy = json!({"whenScaled": "Delete", "whenDeleted": "Retain"});
    let set = with(
        manifest(Native, "web"),
        &[
            ("replicas", json!(2)),
            ("volumeClaimTemplates", templates),
            ("persistentVolumeClaimRetentionPolicy", policy),
        ],
    );
    let lab = Lab::with(&[set]);
    let claims = |plan: &Plan| -> Vec<(String, ClaimAction)> {
        one(plan).claims.iter().map(|c| (c.claim.clone(), c.action)).collect()
    };
    let out = lab.plan(&[Change::Edit(Native, key("web"), vec![Edit::Replicas(3)])]);
    assert_eq!(claims(&out), [("data-web-2".to_owned(), ClaimAction::Create)]);
    let down = lab.plan(&[Change::Edit(Native, key("web"), vec![Edit::Replicas(1)])]);
    assert_eq!(claims(&down), [("data-web-1".to_owned(), ClaimAction::Delete)]);
    let gone = lab.plan(&[Change::Delete(Native, key("web"))]);
    assert_eq!(
        (waves(one(&gone)), claims(&gone)),
        (vec!["-web-0 -web-1".to_owned()], vec![]),
        "whenDeleted keeps them"
    );
    assert_eq!(one(&gone).change, Verb::Deleted);
    assert_eq!(one(&gone).lowest_available.pods, 0);
}

#[test]
fn it_is_told_that_claims_stay_on_deletion_and_do_not_follow_their_template() {
    let templates = |size: &str| json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "standard", "resources": {"requests": {"storage": size}}}}]);
    let set = with(
        manifest(Advanced, "web"),
        &[("replicas", json!(2)), ("volumeClaimTemplates", templates("1Gi"))],
    );
    let lab = Lab::with(std::slice::from_ref(&set));
    let gone = lab.plan(&[Change::Delete(Advanced, key("web"))]);
    assert_eq!(one(&gone).claims_left, ["data-web-0", "data-web-1"]);
    let text = gone.text();
    assert!(
        text.contains("claims stay, with their data: data-web-0 data-web-1 (kubectl delete pvc data-web-0 data-web-1 -n ns removes them)"),
        "{text}"
    );
    let bigger = with(set.clone(), &[("volumeClaimTemplates", templates("2Gi"))]);
    let text = lab.plan(&[Change::Apply(bigger)]).text();
    assert!(
        text.contains("claim templates change: data; the claims that are there stay as they are"),
        "{text}"
    );
    let policy = json!({"whenScaled": "Retain", "whenDeleted": "Delete"});
    let lab = Lab::with(&[with(set, &[("persistentVolumeClaimRetentionPolicy", policy)])]);
    let gone = lab.plan(&[Change::Delete(Advanced, key("web"))]);
    assert_eq!(one(&gone).claims_left, [""; 0]);
    let text = gone.text();
    assert!(text.contains("claims removed: data-web-0 data-web-1"), "{text}");
    assert!(
        gone.summary.contains("2 claims are removed with their data"),
        "{}",
        gone.summary
    );
}

#[test]
fn claims_grow_before_their_pods_are_replaced() {
    let templates = |size: &str| json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "standard", "resources": {"requests": {"storage": size}}}}]);
    let set = with(
        manifest(Advanced, "web"),
        &[
            ("replicas", json!(2)),
            ("volumeClaimUpdateStrategy", json!({"type": "OnPodRollingUpdate"})),
            ("volumeClaimTemplates", templates("1Gi")),
        ],
    );
    let lab = Lab::with(std::slice::from_ref(&set));
    let bigger = with(
        set,
        &[("volumeClaimTemplates", templates("2Gi")), (IMAGE, json!("app:v2"))],
    );
    let plan = lab.plan(&[Change::Apply(bigger)]);
    let claims: Vec<&str> = one(&plan).claims.iter().map(|c| c.claim.as_str()).collect();
    assert_eq!(claims, ["data-web-1", "data-web-0"], "{}", plan.text());
    assert_eq!(waves(one(&plan)), ["~web-1", "~web-0"]);
}

#[test]
fn what_the_server_refuses_is_told_with_field_and_rule() {
    let set = with(manifest(Advanced, "web"), &[("replicas", json!(2))]);
    let lab = Lab::with(&[set.clone(), manifest(Native, "db")]);
    let bad = with(set, &[(ROLLING, json!({"maxUnavailable": 3}))]);
    let moved = with(manifest(Native, "db"), &[("serviceName", json!("elsewhere"))]);
    let plan = lab.plan(&[Change::Apply(bad), Change::Apply(moved)]);
    assert_eq!(plan.sets, []);
    let [cel, immutable] = plan.refused.as_slice() else {
        panic!("two refusals: {:?}", plan.refused)
    };
    assert!(cel.fields[0].field.ends_with("rollingUpdate.maxUnavailable"), "{cel:?}");
    assert!(cel.message.contains("Parallel"), "{}", cel.message);
    assert_eq!(immutable.fields[0].field, "spec");
    assert!(immutable.message.contains("are forbidden"), "{}", immutable.message);
    assert!(!plan.disrupts);
}

#[test]
fn what_cannot_be_edited_is_said() {
    let mut two = manifest(Native, "two");
    two["spec"]["template"]["spec"]["containers"] =
        json!([{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}]);
    let lab = Lab::with(&[two]);
    let edit = |name: &str, edit: Edit| Change::Edit(Native, key(name), vec![edit]);
    for (change, words) in [
        (edit("none", Edit::Replicas(1)), "does not exist"),
        (
            edit("two", Edit::Image(None, "c:1".into())),
            "several containers (a, b)",
        ),
        (
            edit("two", Edit::Image(Some("c".into()), "c:1".into())),
            "no container c; it has a, b",
        ),
        (edit("two", Edit::Replicas(-1)), "greater than or equal to 0"),
        (
            Change::Apply(
                json!({"apiVersion": "apps/v9", "kind": "StatefulSet", "metadata": {"name": "x", "namespace": "ns"}}),
            ),
            "does not serve apps/v9",
        ),
    ] {
        let plan = lab.plan(&[change]);
        assert!(plan.refused[0].message.contains(words), "{:?}", plan.refused);
    }
    let plan = lab.plan(&[edit("two", Edit::Image(Some("b".into()), "b:2".into()))]);
    assert_eq!(waves(one(&plan)), ["~two-0"]);
}

#[test]
fn a_quota_blocks() {
    let mut lab = Lab::with(&[with(manifest(Native, "web"), &[("replicas", json!(2))])]);
    lab.add(
        "",
        "resourcequotas",
        json!({"metadata": {"name": "small", "namespace": "ns", "uid": "q"}, "spec": {"hard": {"pods": "3"}}}),
    );
    let plan = lab.plan(&[Change::Edit(Native, key("web"), vec![Edit::Replicas(5)])]);
    assert_eq!(waves(one(&plan)), ["+web-2"], "{}", plan.text());
    let refused = one(&plan)
        .blocked
        .iter()
        .find(|b| b.cause == "Refused")
        .expect("a refusal");
    assert!(refused.message.contains("QuotaExceeded"), "{refused:?}");
}

#[test]
fn several_manifests_are_one_plan() {
    let lab = Lab::with(&[manifest(Native, "a"), manifest(Advanced, "b")]);
    let a = with(manifest(Native, "a"), &[(IMAGE, json!("app:v2"))]);
    let b = with(manifest(Advanced, "b"), &[("replicas", json!(2))]);
    let plan = lab.plan(&[Change::Apply(a), Change::Apply(b)]);
    let all: Vec<_> = plan.sets.iter().map(waves).collect();
    assert_eq!(all, [["~a-0"], ["+b-1"]]);
}

#[test]
fn what_is_under_way_already_is_told_apart() {
    let mut lab = Lab::with(&[with(manifest(Native, "web"), &[("replicas", json!(3))])]);
    // Somebody has scaled, and the manager has not come to it yet.
    lab.edit_only(&Change::Edit(Native, key("web"), vec![Edit::Replicas(2)]));
    let plan = lab.plan(&[lab::native_image("app:v2")]);
    assert!(
        plan.warnings
            .iter()
            .any(|w| w.contains("under way") && w.contains("web-2")),
        "{:?}",
        plan.warnings
    );
    assert_eq!(waves(one(&plan)), ["~web-1", "~web-0"]);
}

#[test]
fn a_change_that_is_too_large_is_told_as_far_as_it_was_followed() {
    let lab = Lab::with(&[with(manifest(Native, "web"), &[("replicas", json!(30))])]);
    let change = [lab::native_image("app:v2")];
    let whole = lab.plan(&change);
    assert!(!whole.is_cut_short, "{}", whole.text());
    let cut = lab.plan_within(&change, Reach(8_000));
    assert!(cut.is_cut_short, "{}", cut.text());
    assert!(
        cut.summary.ends_with("; that is not all, what comes later is left out"),
        "{}",
        cut.summary
    );
    assert!(cut.text().contains("--to-the-end"), "{}", cut.text());
    let (set, all) = (one(&cut), waves(one(&whole)));
    assert!((1..30).contains(&set.waves.len()), "{:?}", waves(set));
    assert_eq!(waves(set), all[..set.waves.len()], "the beginning of the whole");
    // All of this would be taken for what is so at the end.
    assert_eq!((&set.stays, &set.blocked), (&vec![], &vec![]));
    // Broken pods stop it at the first, and that is the whole of it.
    assert_eq!(set.if_new_pods_are_not_ready, one(&whole).if_new_pods_are_not_ready);
}

/// Nobody is told to delete what others use.
#[test]
fn claims_of_others_are_not_said_to_be_left() {
    let templates = |name: &str| json!([{"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "standard", "resources": {"requests": {"storage": "1Gi"}}}}]);
    let set = |kind, name: &str, template: &str, replicas: i32| {
        let mut set = with(
            manifest(kind, name),
            &[
                ("volumeClaimTemplates", templates(template)),
                ("replicas", json!(replicas)),
            ],
        );
        set["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] =
            json!([{"name": template, "mountPath": "/d"}]);
        set
    };
    let delete = |kind, name: &str| Change::Delete(kind, key(name));
    // data-x-web-0 and data-x-web-1 may be of either.
    let lab = Lab::with(&[set(Advanced, "web", "data-x", 1), set(Advanced, "x-web", "data", 2)]);
    let plan = lab.plan(&[delete(Advanced, "web")]);
    assert_eq!(one(&plan).claims_left, [""; 0], "{}", plan.text());
    // A set without pods is left behind by one of the other group that has taken them over.
    let lab = Lab::with(&[set(Native, "db", "data", 0), set(Advanced, "db", "data", 2)]);
    let plan = lab.plan(&[delete(Native, "db")]);
    assert_eq!(one(&plan).claims_left, [""; 0], "{}", plan.text());
    // Somebody reads what a set has stored.
    let mut reader = with(manifest(Native, "reader"), &[("replicas", json!(1))]);
    reader["spec"]["template"]["spec"]["volumes"] =
        json!([{"name": "read", "persistentVolumeClaim": {"claimName": "data-sh-0"}}]);
    let lab = Lab::with(&[set(Advanced, "sh", "data", 2), reader]);
    let plan = lab.plan(&[delete(Advanced, "sh")]);
    assert_eq!(one(&plan).claims_left, ["data-sh-1"], "{}", plan.text());
}

/// Half a doubt would tell of fewer pods than come down: whoever is told none is told so.
#[test]
fn a_doubt_that_could_not_be_followed_to_its_end_is_left_out_and_said_so() {
    let set = with(
        manifest(Native, "web"),
        &[("replicas", json!(30)), ("podManagementPolicy", json!("Parallel"))],
    );
    let lab = Lab::with(&[set]);
    let change = [lab::native_image("app:v2")];
    for (reach, is_told) in [(Reach(5_000), false), (Reach::SECONDS, true)] {
        let plan = lab.plan_within(&change, reach);
        assert_eq!(
            one(&plan).if_new_pods_are_not_ready.is_some(),
            is_told,
            "{}",
            plan.text()
        );
        let is_left_out = plan
            .warnings
            .iter()
            .any(|w| w.contains("become ready takes long to find out, and is left out"));
        assert_eq!(is_left_out, !is_told, "{:?}", plan.warnings);
    }
}

#[test]
fn what_a_file_brings_again_keeps_what_the_cluster_filled_in() {
    let claim = |spec: Value| crate::Foreign {
        group: String::new(),
        resource: "persistentvolumeclaims".to_owned(),
        object: json!({"metadata": {"name": "shared", "namespace": "ns"}, "spec": spec}),
    };
    let mut state = Lab::with(&[]).state();
    let size = |size: &str| json!({"requests": {"storage": size}});
    let mut live = claim(json!({"volumeName": "pv-1", "resources": size("1Gi")}));
    live.object["metadata"]["uid"] = json!("u-1");
    live.object["status"] = json!({"phase": "Bound"});
    state.objects.push(live);
    state.bring([claim(json!({"resources": size("2Gi")}))]);
    let claims: Vec<&Value> = state.all("", "persistentvolumeclaims").collect();
    let [claim] = claims.as_slice() else {
        panic!("one claim: {claims:?}")
    };
    assert_eq!(claim["spec"], json!({"volumeName": "pv-1", "resources": size("2Gi")}));
    assert_eq!(
        (&claim["metadata"]["uid"], &claim["status"]["phase"]),
        (&json!("u-1"), &json!("Bound"))
    );
}

#[test]
fn a_field_that_cannot_be_read_is_no_all_clear() {
    for kind in [Advanced, SetKind::Clone] {
        let mut set = with(manifest(kind, "web"), &[("replicas", json!(3))]);
        if kind == SetKind::Clone {
            set["spec"].as_object_mut().unwrap().remove("serviceName");
        }
        let lab = Lab::with(std::slice::from_ref(&set));
        let plan = lab.plan(&[Change::Apply(with(set, &[("replicas", json!(1.0))]))]);
        let unknown = plan.unknowns.iter().find(|words| words.contains("spec.replicas"));
        assert!(unknown.is_some(), "{kind:?}: {}", plan.text());
        assert!(
            plan.summary.contains("not all that could touch pods is known"),
            "{}",
            plan.summary
        );
    }
}

#[test]
fn what_could_not_be_read_is_not_said_to_be_missing() {
    let lab = Lab::with(&[]);
    let refers = [
        ("template/spec/priorityClassName", json!("high")),
        ("template/spec/serviceAccountName", json!("robot")),
    ];
    let change = [Change::Apply(with(manifest(Native, "web"), &refers))];
    let mut state = lab.state();
    let plan = |state: &crate::State| crate::plan(state, &change, Reach::SECONDS).expect("the state can be loaded");
    assert_eq!(plan(&state).missing.len(), 2, "{}", plan(&state).text());
    for (group, resource, namespace) in [
        ("scheduling.k8s.io", "priorityclasses", None),
        ("", "serviceaccounts", Some("elsewhere")),
    ] {
        state.unread.push(crate::Unread {
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.map(str::to_owned),
        });
    }
    let plan = plan(&state);
    assert_eq!(
        plan.missing,
        ["statefulset.apps/web in namespace ns: service account robot was not found"]
    );
    let noted = |words: &String| words.contains("priority class high could not be looked up");
    assert!(plan.warnings.iter().any(noted), "{:?}", plan.warnings);
}

#[test]
fn a_pod_that_the_manager_takes_out_of_service_is_touched() {
    let gates = json!([{"conditionType": "InPlaceUpdateReady"}]);
    let hook = json!({"labelsHandler": {"hold": "true"}, "markPodNotReady": true});
    let set = |hooks: &str| {
        let set = with(
            manifest(Advanced, "web"),
            &[
                ("replicas", json!(3)),
                ("lifecycle", json!({hooks: hook})),
                ("template/metadata/labels/hold", json!("true")),
                ("template/spec/readinessGates", gates.clone()),
                (ROLLING, json!({"podUpdatePolicy": "InPlaceIfPossible"})),
            ],
        );
        Lab::with(&[set])
    };
    let scaled = Change::Edit(Advanced, key("web"), vec![Edit::Replicas(2)]);
    for (hooks, change) in [("inPlaceUpdate", lab::image("app:v2")), ("preDelete", scaled)] {
        let plan = set(hooks).plan(&[change]);
        assert_eq!(waves(one(&plan)), ["!web-2"], "{hooks}: {}", plan.text());
        assert!(plan.disrupts, "{hooks}");
        assert_eq!(one(&plan).lowest_available.pods, 2, "{hooks}");
        assert!(plan.summary.contains("1 pod is made not ready"), "{}", plan.summary);
        assert!(plan.text().contains("make not ready web-2"), "{}", plan.text());
    }
}

#[test]
fn a_pod_that_is_updated_in_two_steps_is_told_once() {
    let gates = json!([{"conditionType": "InPlaceUpdateReady"}]);
    let resources = |cpu: &str| json!({"requests": {"cpu": cpu}, "limits": {"cpu": cpu}});
    let place = "template/spec/containers/0/resources";
    let set = with(
        manifest(Advanced, "web"),
        &[
            ("replicas", json!(3)),
            ("podManagementPolicy", json!("Parallel")),
            (place, resources("1")),
            ("template/spec/readinessGates", gates),
            (
                ROLLING,
                json!({"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 3}),
            ),
        ],
    );
    let lab = Lab::with(std::slice::from_ref(&set));
    let change = with(set, &[(place, resources("2")), (IMAGE, json!("app:v2"))]);
    let plan = lab.plan(&[Change::Apply(change)]);
    assert_eq!(waves(one(&plan)), ["=web-2 =web-1 =web-0"], "{}", plan.text());
    assert!(plan.summary.contains("3 pods are updated in place"), "{}", plan.summary);
}

fn claim_template(size: &str) -> Value {
    json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "standard", "resources": {"requests": {"storage": size}}}}])
}

/// A pod that is made again is a new one, whatever its revision.
#[test]
fn a_pod_made_again_at_its_own_revision_is_as_much_in_doubt_as_any() {
    let set = with(manifest(Advanced, "web"), &[("replicas", json!(3))]);
    let lab = Lab::with(std::slice::from_ref(&set));
    let plan = lab.plan(&[Change::Delete(Advanced, key("web")), Change::Apply(set)]);
    let set = one(&plan);
    assert_eq!(set.available_at_end, 3, "{}", plan.text());
    let same = |step: &crate::Step| {
        step.to_revision.is_none() || step.from_revision.is_none() || step.from_revision == step.to_revision
    };
    assert!(set.steps().all(same), "{set:?}");
    let doubt = set.if_new_pods_are_not_ready.as_ref().expect("pods are made");
    assert_eq!(doubt.available, 0, "{doubt:?}");
}

/// Such a claim gets its volume when the first pod that mounts it is scheduled.
#[test]
fn a_claim_that_waits_for_its_first_pod_does_not_stop_the_plan() {
    let set = with(
        manifest(Native, "web"),
        &[("replicas", json!(1)), ("volumeClaimTemplates", claim_template("1Gi"))],
    );
    let lab = Lab::with(&[set]);
    let change = [Change::Edit(Native, key("web"), vec![Edit::Replicas(2)])];
    let plan = |mode: &str, class: Option<&str>, pods: &[Value]| {
        let mut state = lab.state();
        let foreign = |resource: &str, object: Value| crate::Foreign {
            group: String::new(),
            resource: resource.to_owned(),
            object,
        };
        for object in &mut state.objects {
            if object.resource == "storageclasses" {
                object.object["volumeBindingMode"] = json!(mode);
                object.object["metadata"]["annotations"] =
                    json!({"storageclass.kubernetes.io/is-default-class": "true"});
            }
        }
        let mut claim = json!({"metadata": {"name": "data-web-1", "namespace": "ns", "uid": "d1", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}, "status": {"phase": "Pending"}});
        if let Some(class) = class {
            claim["spec"]["storageClassName"] = json!(class);
        }
        state.objects.push(foreign("persistentvolumeclaims", claim));
        state
            .objects
            .extend(pods.iter().map(|pod| foreign("pods", pod.clone())));
        crate::plan(&state, &change, Reach::SECONDS).expect("the state can be loaded")
    };
    for class in [Some("standard"), None] {
        let late = plan("WaitForFirstConsumer", class, &[]);
        assert_eq!(waves(one(&late)), ["+web-1"]);
        assert_eq!(
            (one(&late).available_at_end, &one(&late).blocked),
            (2, &vec![]),
            "{}",
            late.text()
        );
    }
    // One that should have its volume, and has none, is left as it is; so is one whose pod waits in vain.
    let stuck = plan("Immediate", Some("standard"), &[]);
    assert_eq!(one(&stuck).available_at_end, 1, "{}", stuck.text());
    let unknown = plan("WaitForFirstConsumer", Some("gone"), &[]);
    assert_eq!(one(&unknown).available_at_end, 1, "{}", unknown.text());
    let waits_in_vain = json!({"metadata": {"name": "job", "namespace": "ns", "uid": "j", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": [{"name": "main", "image": "app:v1"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-1"}}]},
        "status": {"phase": "Pending"}});
    let in_vain = plan("WaitForFirstConsumer", Some("standard"), &[waits_in_vain]);
    assert_eq!(one(&in_vain).available_at_end, 1, "{}", in_vain.text());
}

#[test]
fn a_claim_that_a_file_brings_needs_its_storage_class() {
    let volume = json!([{"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}}]);
    let change = [Change::Apply(with(
        manifest(Native, "web"),
        &[("template/spec/volumes", volume)],
    ))];
    let plan = |class: &str, change_state: &dyn Fn(&mut crate::State)| {
        let mut state = Lab::with(&[]).state();
        change_state(&mut state);
        state.bring([crate::Foreign {
            group: String::new(),
            resource: "persistentvolumeclaims".to_owned(),
            object: json!({"metadata": {"name": "shared", "namespace": "ns"}, "spec": {"storageClassName": class,
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
        }]);
        crate::plan(&state, &change, Reach::SECONDS).expect("the state can be loaded")
    };
    let nothing = |_: &mut crate::State| {};
    let gone = plan("gone", &nothing);
    assert_eq!(
        gone.missing,
        ["statefulset.apps/web in namespace ns: storage class gone was not found"]
    );
    assert_eq!(waves(one(&gone)), ["+web-0"]);
    assert_eq!(plan("standard", &nothing).missing, [""; 0]);
    // One that was bound before its class was deleted keeps its volume.
    let bound = |state: &mut crate::State| {
        state.objects.push(crate::Foreign {
            group: String::new(),
            resource: "persistentvolumeclaims".to_owned(),
            object: json!({"metadata": {"name": "shared", "namespace": "ns", "uid": "s"}, "spec": {"volumeName": "pv-1", "storageClassName": "gone",
                "resources": {"requests": {"storage": "1Gi"}}}, "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}),
        });
    };
    assert_eq!(plan("gone", &bound).missing, [""; 0]);
}
