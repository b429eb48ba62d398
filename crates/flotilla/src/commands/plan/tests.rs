use super::*;
use crate::args::{Args, Command};
use clap::Parser;
use flotilla_apiserver::Foreign;
use serde_json::json;
use std::collections::BTreeMap;

fn args(words: &[&str]) -> Result<PlanArgs, String> {
    let all = ["flotilla", "plan"].iter().chain(words);
    match Args::try_parse_from(all).map_err(|error| error.to_string())?.command {
        Command::Plan(args) => Ok(args),
        other => panic!("{other:?}"),
    }
}

#[test]
fn contradictory_options_are_refused_with_a_sentence() {
    for (words, said) in [
        (&["sts/web", "-f", "web.yaml"][..], "cannot be used with"),
        (
            &["sts/web", "--delete", "--replicas", "2"],
            "'--delete' cannot be used with",
        ),
        (&["sts/web", "--set", "image"], "must be CONTAINER=IMAGE"),
        (&["sts/web", "--replicas=-1"], "'--replicas <N>'"),
        (&["-f", "web.yaml", "--partition", "1"], "cannot be used with"),
        (&["pod/web", "--replicas", "1"], "unknown kind"),
        (
            &["sts/web", "--replicas", "1", "--from", "f", "--kubeconfig", "k"],
            "cannot be used with",
        ),
    ] {
        let error = args(words).expect_err("refused");
        assert!(error.contains(said), "{words:?}: {error}");
    }
    let error = edits(&args(&["sts/web", "--set", "a=1", "--set", "a=2"]).unwrap()).unwrap_err();
    assert!(error.to_string().contains("names a twice"));
    let error = edits(&args(&[]).unwrap()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("name a set, as statefulset/NAME, or give manifests with -f")
    );
    let error = edits(&args(&["sts/web"]).unwrap()).unwrap_err();
    assert!(error.to_string().contains("nothing to plan"));
}

#[test]
fn options_become_edits() {
    let args = args(&[
        "sts/web",
        "--set",
        "image=app:v2",
        "--set",
        "side=car:v3",
        "--replicas",
        "4",
        "--partition",
        "1",
    ])
    .unwrap();
    assert_eq!(
        edits(&args).unwrap(),
        [
            Edit::Image(None, "app:v2".into()),
            Edit::Image(Some("side".into()), "car:v3".into()),
            Edit::Replicas(4),
            Edit::Partition(1),
        ]
    );
}

fn state(groups: &[&str]) -> State {
    let set = |group: &&str| Foreign {
        group: (*group).to_owned(),
        resource: "statefulsets".to_owned(),
        object: json!({"metadata": {"name": "web", "namespace": "ns"}}),
    };
    let definition = Foreign {
        group: "apiextensions.k8s.io".to_owned(),
        resource: "customresourcedefinitions".to_owned(),
        object: json!({"metadata": {"name": "statefulsets.apps.kruise.io"}}),
    };
    State {
        now: flotilla_model::Timestamp::from_seconds(0),
        nodes: None,
        objects: groups.iter().map(set).chain([definition]).collect(),
        clones: flotilla_controllers::cloneset::Defaults::default(),
        taken_by_others: BTreeMap::new(),
        unread: Vec::new(),
        brought: Vec::new(),
    }
}

#[test]
fn the_set_that_is_meant_must_be_there_and_be_one() {
    let target = |text: &str| -> Target { text.parse().unwrap() };
    let find = |groups: &[&str], text: &str| change(&state(groups), "ns", &target(text), vec![], true);
    assert!(matches!(
        find(&["apps"], "sts/web"),
        Ok(Change::Delete(SetKind::Native, _))
    ));
    assert!(matches!(
        find(&["apps", "apps.kruise.io"], "asts/web"),
        Ok(Change::Delete(SetKind::Advanced, _))
    ));
    let error = find(&["apps"], "asts/web").unwrap_err().to_string();
    assert_eq!(
        error,
        "statefulset.apps.kruise.io/web was not found in namespace ns; name another with --namespace"
    );
    let error = find(&["apps"], "cloneset/web").unwrap_err().to_string();
    assert!(
        error.contains("the cluster has no definition clonesets.apps.kruise.io"),
        "{error}"
    );
    let error = find(&[], "sts/web").unwrap_err().to_string();
    assert!(error.starts_with("statefulset/web was not found"), "{error}");
    let error = find(&["apps", "apps.kruise.io"], "sts/web").unwrap_err().to_string();
    assert!(error.contains("is a native and an Advanced StatefulSet"), "{error}");
}

#[test]
fn files_that_make_no_sense_are_told_by_line_and_column() {
    let mut manifests = Manifests::default();
    for (text, said) in [
        ("kind: StatefulSet\nmetadata: [", "failed to parse web.yaml, line"),
        ("a: b\n  c: d\n", "failed to parse web.yaml, line 2, column"),
        (
            "{\"kind\": \"StatefulSet\",, }",
            "failed to parse web.yaml, line 1, column",
        ),
        ("just words", "web.yaml: document 1 of web.yaml is no manifest"),
        (
            "---\napiVersion: apps/v1\nkind: StatefulSet\n",
            "web.yaml, line 2: document 1 of web.yaml (StatefulSet) has no metadata.name",
        ),
        (
            "apiVersion: apps/v1\nkind: StatefulSet\nmetadata:\n  name: 8080\n",
            "web.yaml, line 4: document 1 of web.yaml (StatefulSet) has no metadata.name that is a text: YAML reads 8080 there, unless it is quoted",
        ),
        (
            "kind: ConfigMap\nitems: {a: b}",
            "web.yaml, line 2 (document 1 of web.yaml): items is no list, and kubectl takes whatever has items for a list",
        ),
        (
            "kind: List\nitems: [{apiVersion: v1}]",
            "item 1 of document 1 of web.yaml is no manifest: it has no apiVersion and kind",
        ),
    ] {
        let error = manifests.add("web.yaml", text).expect_err(text).to_string();
        assert!(error.contains(said), "{text:?}: {error}");
        assert_eq!(error.lines().count(), 1, "one sentence: {error}");
    }
}

#[test]
fn manifests_are_told_apart() {
    let mut manifests = Manifests::default();
    let text = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n---\n---\napiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: web}\n---\n\
        apiVersion: apps.kruise.io/v1beta1\nkind: StatefulSet\nmetadata: {name: db, namespace: data}\n";
    manifests.add("all.yaml", text).unwrap();
    assert_eq!(manifests.others, ["Service web (v1), in all.yaml, line 1"]);
    manifests.enter("shop", None).unwrap();
    let targets: Vec<_> = manifests
        .changes
        .iter()
        .map(|c| (c.target().0, c.target().1.to_string()))
        .collect();
    assert_eq!(
        targets,
        [
            (SetKind::Native, "shop/web".to_owned()),
            (SetKind::Advanced, "data/db".to_owned())
        ]
    );
    let error = manifests.enter("shop", Some("shop")).unwrap_err().to_string();
    assert_eq!(
        error,
        "all.yaml, line 12: the manifest of db is for namespace data, and --namespace says shop"
    );
}

/// kubectl applies what stands in items, whatever the kind of what holds them.
#[test]
fn whatever_has_items_is_a_list() {
    let set = "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: web}, spec: {replicas: 0}}";
    for text in [
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: settings}}\nitems: [{set}]"),
        format!("kind: List\nitems:\n- kind: List\n  items: [{set}]"),
    ] {
        let mut manifests = Manifests::default();
        manifests.add("all.yaml", &text).expect("a list");
        assert_eq!((manifests.changes.len(), manifests.others.len()), (1, 0), "{text}");
    }
}

/// What owns nothing now goes as soon as it is applied.
#[test]
fn what_names_owners_may_go_with_them() {
    let mut manifests = Manifests::default();
    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata:\n  name: data-web-0\n  ownerReferences:\n  - {apiVersion: v1, kind: ConfigMap, name: c, uid: u}\n";
    manifests.add("all.yaml", claim).expect("a manifest");
    assert_eq!(
        manifests.unknowns,
        [
            "all.yaml, line 5: PersistentVolumeClaim data-web-0 names owners, and goes when they are gone; whether they are there is not looked at"
        ]
    );
}

#[test]
fn kinds_that_are_not_known_are_named() {
    let file = std::env::temp_dir().join(format!("flotilla-plan-{}.yaml", std::process::id()));
    std::fs::write(&file, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n").unwrap();
    let error = Manifests::read(std::slice::from_ref(&file)).unwrap_err().to_string();
    assert!(error.contains("does not know: Deployment web (apps/v1)"), "{error}");
    std::fs::remove_file(&file).unwrap();
    let error = Manifests::read(&[file]).unwrap_err().to_string();
    assert!(error.contains("No such file"), "{error}");
}

#[test]
fn a_missing_permission_is_named() {
    let error = Error::Forbidden {
        verb: "list",
        resource: "pods".into(),
        place: " in namespace shop".into(),
        option: " --namespace shop".into(),
    };
    assert_eq!(
        error.to_string(),
        "not allowed to list pods in namespace shop: to see it, run `kubectl auth can-i list pods --namespace shop`"
    );
}

/// What was not followed to its end may disrupt pods.
#[test]
fn a_plan_that_is_cut_short_does_not_end_well() {
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 9, "selector": {"matchLabels": {"app": "web"}}, "serviceName": "web",
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "app:1"}]}}},
    });
    let namespace = Foreign {
        group: String::new(),
        resource: "namespaces".to_owned(),
        object: json!({"metadata": {"name": "default"}}),
    };
    let state = State {
        now: crate::clock::now(),
        nodes: None,
        objects: vec![namespace],
        clones: flotilla_controllers::cloneset::Defaults::default(),
        unread: Vec::new(),
        brought: Vec::new(),
        taken_by_others: BTreeMap::new(),
    };
    for (reach, code) in [(Reach(500), Exit::Failed), (Reach::THE_END, Exit::Done)] {
        let plan = plan(&state, &[Change::Apply(set.clone())], reach).expect("a plan");
        assert_eq!(exit(&plan), code, "{}", plan.text());
    }
}
