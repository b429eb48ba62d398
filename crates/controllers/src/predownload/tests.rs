//! Tables: given an update like this, expect these jobs and this note. The known defects of the implementation that this one replaces
//! stand with the rules that mend them: decided once and for all at three replicas or under `ReCreate` (STS-5.3), never again after a rollback
//! (#1419), failures noted as success (STS-5.4), jobs of overtaken revisions left behind (STS-5.5), cached revisions that are written into (#1299:
//! here a note is a patch of one label, and what is seen cannot be written to).

use super::PreDownloadController;
use crate::testing::{self, Cluster, NOW, advanced, at, brief, clones, set_uid, template};
use flotilla_api::names;
use flotilla_model::decision::{Command, Report, Scope};
use flotilla_model::{Change, Controller, Decision, Failure, ObjectKey, PassContext, SetKind, Uid, WaitCause};
use serde_json::{Value, json};
use std::sync::Arc;

const CREATED: &str = names::PRE_DOWNLOAD_CREATED_LABEL;
const IGNORED: &str = names::PRE_DOWNLOAD_IGNORED_LABEL;

/// One pass of the controller of the set's kind.
fn ahead(cluster: &Cluster) -> Decision {
    let mut cluster = cluster.clone();
    cluster.record = Some(cluster.record());
    let context = PassContext {
        now: cluster.now,
        observing_since: cluster.observing_since,
        entropy: 0,
        hints: &cluster.hints,
    };
    let controller = PreDownloadController::new(cluster.kind).with(cluster.defaults);
    let decision = controller.reconcile(&cluster, &ObjectKey::new(testing::NS, "web"), context);
    decision.expect("the set is there")
}

/// What a pass does, in short: labels of revisions by their names.
fn said(cluster: &Cluster) -> Vec<String> {
    let decision = ahead(cluster);
    assert_eq!(decision.status, None, "the status is another controller's");
    assert!(
        decision.stages.iter().all(|stage| !stage.all_or_stop),
        "nothing rests on a job"
    );
    let commands = decision.commands().map(|c| &c.command).zip(brief(&decision));
    commands
        .map(|(command, line)| match command {
            Command::Patch { body, .. } => {
                let labels = body["metadata"]["labels"].as_object().expect("labels");
                assert!(labels.values().all(|v| v == "true"));
                format!("{line} {}", labels.keys().cloned().collect::<String>())
            }
            _ => line,
        })
        .collect()
}

/// A CloneSet of ten pods that are updated in place, all old, and the kind of the jobs is known.
fn updating() -> Cluster {
    let mut cluster = clones(10).spec(
        "/updateStrategy/rollingUpdate/podUpdatePolicy",
        json!("InPlaceIfPossible"),
    );
    cluster.jobs = Some(Vec::new());
    cluster
}

fn strategy(cluster: Cluster, field: &str, value: Value) -> Cluster {
    cluster.spec(&format!("/updateStrategy/rollingUpdate/{field}"), value)
}

/// From the template with image `v1` to this one.
fn to(mut cluster: Cluster, template: &Value) -> Cluster {
    cluster = cluster.no_revisions();
    cluster.set["spec"]["template"] = template.clone();
    cluster.revision("web-old", 1, "v1").revision_of("web-new", 2, template)
}

fn refused(mut cluster: Cluster, job: &str, retry_at: i64) -> Cluster {
    let mut failure = Failure::follow(
        None,
        Report::PullImage,
        "Invalid".into(),
        "no such image".into(),
        at(NOW - 1),
    );
    failure.retry_at = at(retry_at);
    cluster.hints.failures.insert(Scope::Named(job.to_owned()), failure);
    cluster
}

#[test]
fn sts_5_4_what_a_job_says() {
    let template = json!({
        "metadata": {"labels": {"app": "web", "tier": "front"}, "annotations": {"team": "a"}},
        "spec": {"containers": [{"name": "main", "image": "v2"}], "imagePullSecrets": [{"name": "one"}, {}, {"name": "two"}]},
    });
    let mut old = template.clone();
    old["spec"]["containers"][0]["image"] = json!("v1");
    let mut cluster = updating().no_revisions();
    cluster.set["spec"]["template"] = template.clone();
    cluster.set["spec"]["selector"]["matchExpressions"] = json!([{"key": "tier", "operator": "Exists"}]);
    cluster = cluster
        .revision_of("web-old", 1, &old)
        .revision_of("web-new", 2, &template);
    for revision in &mut cluster.own_revisions {
        Arc::make_mut(revision).meta.labels = [("app", "web"), ("tier", "front")].into_iter().collect();
    }
    let decision = ahead(&cluster);
    let commands: Vec<_> = decision.commands().map(|c| &c.command).collect();
    let [
        Command::Create {
            key,
            body,
            report: Report::PullImage,
            exists_is_fine: true,
            ..
        },
    ] = commands[..]
    else {
        panic!("{commands:?}");
    };
    assert_eq!(key, &ObjectKey::new(testing::NS, "web-new-main"));
    let labels = json!({"app": "web", "tier": "front", "controller.kubernetes.io/hash": "new"});
    assert_eq!(
        body.render(),
        json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
            "metadata": {
                "name": "web-new-main", "namespace": "ns", "labels": labels,
                "ownerReferences": [{
                    "apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "name": "web", "uid": set_uid("web").to_string(),
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": {
                "image": "v2",
                "pullSecrets": ["one", "two"],
                "podSelector": {"matchLabels": {"app": "web"}, "matchExpressions": [
                    {"key": "tier", "operator": "Exists"},
                    {"key": "controller-revision-hash", "operator": "NotIn", "values": ["web-new", "new"]},
                ]},
                "parallelism": 1,
                "pullPolicy": {"timeoutSeconds": 300, "backoffLimit": 1},
                "completionPolicy": {"type": "Always", "ttlSecondsAfterFinished": 600},
                "sandboxConfig": {"labels": labels, "annotations": {"team": "a"}},
            },
        })
    );
}

#[test]
fn sts_5_2_and_5_4_settings_reach_the_job_and_percentages_become_numbers() {
    for (parallelism, expected) in [
        (json!(4), 4),
        (json!("3"), 3),
        (json!("25%"), 3),
        (json!("1%"), 1),
        (json!(0), 0),
    ] {
        let mut cluster = strategy(
            updating(),
            "inPlaceUpdateStrategy/imagePreDownloadParallelism",
            parallelism,
        );
        cluster = strategy(
            cluster,
            "inPlaceUpdateStrategy/imagePreDownloadTimeoutSeconds",
            json!(90),
        );
        let decision = ahead(&cluster);
        let Some(Command::Create { body, .. }) = decision.commands().map(|c| &c.command).next() else {
            panic!("{decision:?}");
        };
        let spec = body.render()["spec"].take();
        assert_eq!(
            (&spec["parallelism"], &spec["pullPolicy"]["timeoutSeconds"]),
            (&json!(expected), &json!(90))
        );
    }
}

#[test]
fn sts_5_2_and_5_3_when_images_are_pulled_ahead() {
    let pull = &["+job web-new-main"][..];
    let ignored = format!("~revision web-new {IGNORED}");
    let never = &[ignored.as_str()][..];
    let mut other_env = template("v2");
    other_env["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": "b"}]);
    let mut only_label = template("v1");
    only_label["metadata"]["labels"]["tier"] = json!("x");
    let sized = |replicas: i32| updating().spec("/replicas", json!(replicas));
    let with = |field: &str, value: Value| strategy(updating(), field, value);
    let least = |n: i32| with("inPlaceUpdateStrategy/imagePreDownloadMinUpdatedReadyPods", json!(n));
    let ready = |cluster: Cluster, n: i32| cluster.status("/updatedReadyReplicas", json!(n));
    let annotated = updating().annotation(names::PRE_DOWNLOAD_MIN_UPDATED_READY, "15%");
    let recreate = |cluster: Cluster| cluster.annotation(names::PRE_DOWNLOAD_RECREATE, "true");
    for (what, cluster, expected) in [
        ("an update in place", updating(), pull),
        ("three pods: looked at again when there are more", sized(3), &[]),
        ("four pods", sized(4), pull),
        (
            "pods are made anew: looked at again when that changes",
            with("podUpdatePolicy", json!("ReCreate")),
            &[],
        ),
        (
            "made anew, opted in",
            recreate(with("podUpdatePolicy", json!("ReCreate"))),
            pull,
        ),
        (
            "OnDelete",
            updating().spec("/updateStrategy/type", json!("OnDelete")),
            &[],
        ),
        ("an unreadable policy", with("podUpdatePolicy", json!("Perhaps")), &[]),
        ("one batch", with("maxUnavailable", json!("100%")), &[]),
        ("all but one", with("maxUnavailable", json!("99%")), pull),
        ("one batch but for the partition", with("partition", json!("10%")), pull),
        ("all are kept for now", with("partition", json!("100%")), pull),
        ("paused", with("paused", json!(true)), pull),
        ("cannot be done in place", to(updating(), &other_env), never),
        (
            "cannot be done in place, opted in",
            recreate(to(updating(), &other_env)),
            pull,
        ),
        ("no image changes", to(updating(), &only_label), never),
        ("too few are updated", ready(least(3), 2), &[]),
        ("enough are updated", ready(least(3), 3), pull),
        (
            "so many, of another revision",
            ready(least(3), 9).status("/updateRevision", json!("web-old")),
            &[],
        ),
        ("a part, rounded up: too few", ready(annotated.clone(), 1), &[]),
        ("a part, rounded up: enough", ready(annotated, 2), pull),
        ("decided: not", updating().labelled("web-new", IGNORED), &[]),
        (
            "decided: they were made, and are gone",
            updating().labelled("web-new", CREATED),
            &[],
        ),
        ("deleted", updating().deleted(), &[]),
    ] {
        assert_eq!(said(&cluster), expected, "{what}");
    }
}

#[test]
fn sts_5_1_nothing_is_done_where_nobody_knows_jobs() {
    let mut cluster = updating().job("web-former-main", "former");
    assert_eq!(said(&cluster).len(), 2);
    cluster.jobs = None;
    assert_eq!(said(&cluster), [""; 0]);
    let routed = |cluster: &Cluster| {
        let mut cluster = cluster.clone();
        cluster.record = Some(cluster.record());
        let (mut keys, set) = (Vec::new(), cluster.record());
        let controller = PreDownloadController::new(SetKind::Clone);
        controller.route(&Change::Set(None, Some(set)), &cluster, &mut keys);
        let revision = cluster.own_revisions[0].clone();
        controller.route(&Change::Revision(Some(revision), None), &cluster, &mut keys);
        for job in cluster.jobs.iter().flatten() {
            controller.route(&Change::ImagePullJob(Some(job.clone()), None), &cluster, &mut keys);
        }
        keys.len()
    };
    assert_eq!(
        (routed(&cluster), routed(&updating().job("web-new-main", "new"))),
        (0, 3)
    );
}

#[test]
fn cs_15_6_an_update_that_makes_pods_anew_for_their_claims_pulls_nothing() {
    let mut cluster = updating();
    for (revision, hash) in cluster.own_revisions.iter_mut().zip(["a", "b"]) {
        Arc::make_mut(revision).claim_hash = Some(hash.into());
    }
    assert_eq!(said(&cluster), ["+job web-new-main"]);
    let mut gate = cluster.clone();
    gate.defaults.recreate_on_claim_change = true;
    assert_eq!(
        said(&gate),
        [""; 0],
        "as the gate of that name asks for all sets (R-33)"
    );
    let cluster = cluster.annotation(names::RECREATE_ON_CLAIM_CHANGE, "true");
    assert_eq!(said(&cluster), [""; 0]);
    let only = strategy(cluster, "podUpdatePolicy", json!("InPlaceOnly"));
    assert_eq!(said(&only), ["+job web-new-main"]);
}

#[test]
fn sts_5_4_noted_once_each_job_is_there_or_was_refused() {
    let mut template = template("v2");
    template["spec"]["containers"] = json!([{"name": "main", "image": "v2"}, {"name": "side", "image": "s:2"}]);
    let mut old = template.clone();
    old["spec"]["containers"] = json!([{"name": "main", "image": "v1"}, {"name": "side", "image": "s:1"}]);
    let mut two = updating().no_revisions();
    two.set["spec"]["template"] = template.clone();
    let two = two.revision_of("web-old", 1, &old).revision_of("web-new", 2, &template);
    let (main, side) = ("web-new-main", "web-new-side");
    let noted = format!("~revision web-new {CREATED}");
    let (later, due) = (NOW + 30, NOW);
    let leaving = |cluster: Cluster| cluster.job_meta(side, "new", |meta| meta.deleted = Some(at(NOW)));
    let strangers = |cluster: Cluster| cluster.job_meta(side, "x", |meta| meta.owners = None);
    let marked = |cluster: Cluster| cluster.labelled("web-new", CREATED);
    let one = || two.clone().job(main, "new");
    for (what, cluster, expected) in [
        (
            "both are missing",
            two.clone(),
            vec!["+job web-new-main", "+job web-new-side"],
        ),
        ("one is missing", one(), vec!["+job web-new-side"]),
        ("both are there", one().job(side, "new"), vec![&*noted]),
        (
            "one is there, the other was refused",
            refused(one(), side, later),
            vec![&*noted],
        ),
        (
            "and is tried again",
            refused(one(), side, due),
            vec!["+job web-new-side", &*noted],
        ),
        (
            "also when that was noted",
            refused(marked(one()), side, due),
            vec!["+job web-new-side"],
        ),
        (
            "what ended and went is not made again",
            refused(marked(two.clone()), side, due),
            vec!["+job web-new-side"],
        ),
        (
            "both were refused",
            refused(refused(two.clone(), main, later), side, later),
            vec![],
        ),
        ("a former one is on its way out", leaving(one()), vec![]),
    ] {
        assert_eq!(said(&cluster), expected, "{what}");
    }
    // Somebody else's of that name is as good, and is not taken away.
    let foreign = strangers(one());
    assert_eq!(said(&foreign), [&*noted]);
}

#[test]
fn sts_1_7_a_refused_job_backs_off_in_its_own_scope_and_is_forgotten_with_its_cause() {
    let cluster = refused(updating(), "web-new-main", NOW + 30);
    let decision = ahead(&cluster);
    assert_eq!(brief(&decision), [""; 0]);
    assert_eq!(decision.wake_after, Some(std::time::Duration::from_secs(30)));
    assert!(
        matches!(&decision.waits[..], [w] if w.subject == "web-new-main" && matches!(w.cause, WaitCause::Refused { .. }))
    );
    assert_eq!(decision.hints, None);
    let over = cluster.status("/currentRevision", json!("web-new"));
    assert!(ahead(&over).hints.is_some_and(|hints| hints.failures.is_empty()));
}

#[test]
fn sts_5_5_jobs_go_when_the_update_is_done_or_overtaken() {
    let jobs = |cluster: Cluster| cluster.job("web-new-main", "new").job("web-former-main", "former");
    let between = jobs(updating().labelled("web-new", CREATED));
    assert_eq!(said(&between), ["-job web-former-main"]);
    let over = between.clone().status("/currentRevision", json!("web-new"));
    assert_eq!(said(&over), ["-job web-new-main", "-job web-former-main"]);
    let going = updating().job_meta("web-former-main", "former", |meta| meta.deleted = Some(at(NOW)));
    assert_eq!(said(&going.status("/currentRevision", json!("web-new"))), [""; 0]);
    let stopped = between.spec("/template", json!("nonsense"));
    assert_eq!(said(&stopped), [""; 0], "of a set that cannot be read nothing is done");
}

#[test]
fn sts_5_5_issue_1419_what_was_noted_on_a_revision_goes_when_it_is_raised_again() {
    let mut back = updating().labelled("web-old", CREATED).labelled("web-old", IGNORED);
    back.set["spec"]["template"] = template("v1");
    back = back.status("/currentRevision", json!("web-new"));
    assert_eq!(said(&back), [""; 0], "it has to be raised first");
    let raised = back.decide();
    let patch = raised.commands().find_map(|c| match &c.command {
        Command::Patch { key, body, .. } if key.name == "web-old" => Some(body.clone()),
        _ => None,
    });
    assert_eq!(
        patch,
        Some(json!({"revision": 3, "metadata": {"labels": {CREATED: null, IGNORED: null}}}))
    );
    let mut after = updating().no_revisions();
    after.set["spec"]["template"] = template("v1");
    after = after.revision("web-new", 2, "v2").revision("web-old", 3, "v1");
    after = after.status("/currentRevision", json!("web-new"));
    assert_eq!(said(&after), ["+job web-old-main"]);
    let mut plain = updating();
    plain.set["spec"]["template"] = template("v1");
    let bodies: Vec<Value> = plain
        .decide()
        .commands()
        .filter_map(|c| match &c.command {
            Command::Patch { key, body, .. } if key.name == "web-old" => Some(body.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(bodies, [json!({"revision": 3})], "nothing is written that is not there");
}

#[test]
fn sts_5_4_names_that_are_too_long_or_taken_end_in_a_hash() {
    let name = |entry: usize| "c".repeat(entry);
    let containers = |image: &str| {
        json!([
            {"name": name(60), "image": image}, {"name": "volume-x", "image": image},
        ])
    };
    let whole = |image: &str| {
        let mut whole = template(image);
        whole["spec"]["containers"] = containers(image);
        whole["spec"]["initContainers"] = json!([
            {"name": "once", "image": image}, {"name": "beside", "image": image, "restartPolicy": "Always"}, {"name": "same", "image": "s"},
        ]);
        whole["spec"]["volumes"] = json!([
            {"name": "x", "image": {"reference": image}}, {"name": "y", "emptyDir": {}}, {"name": "z", "image": {"reference": image}},
        ]);
        whole
    };
    let long = format!("{}-new", "r".repeat(230));
    let mut cluster = updating()
        .no_revisions()
        .annotation(names::PRE_DOWNLOAD_RECREATE, "true");
    cluster.set["spec"]["template"] = whole("v2");
    let cluster = cluster
        .revision_of("web-old", 1, &whole("v1"))
        .revision_of(&long, 2, &whole("v2"));
    let made: Vec<String> = said(&cluster);
    assert!(made.iter().all(|name| name.len() <= 253 + "+job ".len()), "{made:?}");
    let entries: Vec<&str> = made
        .iter()
        .map(|name| name.split_once("-new-").expect("the revision").1)
        .collect();
    let [long, "volume-x", "once", "beside", taken, "volume-z"] = entries[..] else {
        panic!("{entries:?}");
    };
    assert!(long.starts_with("ccc") && long.contains('-'), "{long}");
    assert!(taken.starts_with("volume-") && taken != "volume-x", "{taken}");
}

/// A value that no label can have makes the whole selector unreadable, and no image would be pulled.
#[test]
fn sts_1_1_9_a_job_selects_by_what_fits_into_a_label() {
    for (set, values) in [(52, 2), (53, 1), (200, 1)] {
        let long = format!("{}-9876543210", "r".repeat(set));
        let mut cluster = updating().no_revisions();
        cluster.set["spec"]["template"] = template("v2");
        let cluster = cluster.revision("web-old", 1, "v1").revision(&long, 2, "v2");
        let decision = ahead(&cluster);
        let Some(Command::Create { body, .. }) = decision.commands().map(|c| &c.command).next() else {
            panic!("{decision:?}");
        };
        let expression = &body.render()["spec"]["podSelector"]["matchExpressions"][0];
        let found: Vec<&str> = expression["values"]
            .as_array()
            .expect("values")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        assert!(found.iter().all(|value| value.len() <= 63), "{found:?}");
        assert!(found.contains(&"9876543210") && found.len() == values, "{found:?}");
    }
}

#[test]
fn sts_5_holds_for_statefulsets_with_whole_numbers() {
    let ten = |unavailable: Value| {
        let mut cluster =
            advanced(10).rolling(json!({"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": unavailable}));
        cluster.jobs = Some(Vec::new());
        cluster
    };
    for (what, cluster, expected) in [
        ("one after the other", ten(json!(1)), &["+job new-main"][..]),
        ("one batch", ten(json!("100%")), &[]),
        (
            "one batch but for the partition",
            strategy(ten(json!(10)), "partition", json!(1)),
            &["+job new-main"],
        ),
        ("three pods", ten(json!(1)).spec("/replicas", json!(3)), &[]),
        (
            "OnDelete",
            ten(json!(1)).spec("/updateStrategy/type", json!("OnDelete")),
            &[],
        ),
        ("ordered", ten(json!(1)).ordered(), &["+job new-main"]),
    ] {
        assert_eq!(said(&cluster), expected, "{what}");
    }
}

#[test]
fn a_set_of_another_incarnation_has_no_say() {
    let mut cluster = updating().job("web-new-main", "new");
    let job = Arc::make_mut(&mut cluster.jobs.as_mut().expect("jobs")[0]);
    let owners = Arc::make_mut(job.meta.owners.as_mut().expect("an owner"));
    owners[0].uid = Uid::new("former");
    let job = cluster.jobs.as_ref().expect("jobs")[0].clone();
    cluster.record = Some(cluster.record());
    let mut keys = Vec::new();
    PreDownloadController::new(SetKind::Clone).route(&Change::ImagePullJob(None, Some(job)), &cluster, &mut keys);
    assert_eq!(keys, []);
}

/// A revision that cannot be raised any further is as new as it gets.
#[test]
fn sts_5_5_a_revision_of_the_highest_number_is_pulled_for_though_another_has_it_too() {
    let set = updating().no_revisions();
    let equal = set
        .revision("web-new", i64::MAX, "v2")
        .revision("web-old", i64::MAX, "v1");
    assert_eq!(said(&equal), said(&updating()));
    assert!(!said(&equal).is_empty());
    let below = updating().no_revisions();
    let below = below.revision("web-new", 1, "v2").revision("web-old", i64::MAX, "v1");
    assert_eq!(said(&below), [] as [&str; 0], "it is raised first");
}
