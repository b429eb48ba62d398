//! Claim templates that change while pods run: what is made before a pod goes, and what pods of old revisions had (STS-8.6, R-11 and R-31).

use super::refused;
use crate::statefulset::StatefulSetController;
use crate::testing::{Cluster, PodFixture, advanced, brief, claim, pod};
use flotilla_model::decision::{Command, Scope};
use flotilla_model::records::Phase;
use flotilla_model::{Change, Controller, Decision, RecordedClaims, Report, Resource, SetKind, WaitCause};
use serde_json::{Value, json};
use std::sync::Arc;

const NOTHING: [&str; 0] = [];

/// A pod that was made with the claim of `data`.
fn with_data(name: &str, revision: &str) -> PodFixture {
    pod(name).revision(revision).mounts(&["data"])
}

/// Two pods with `data` and its claims, of a set that has `logs`, too.
fn with_logs(set: Cluster, revision: &str) -> Cluster {
    let set = set
        .claim_templates(&["data", "logs"])
        .status("/currentRevision", json!("new"))
        .pod(with_data("web-0", revision))
        .pod(with_data("web-1", revision));
    set.claim(claim("data-web-0")).claim(claim("data-web-1"))
}

/// The set with this pod instead of that of its name.
fn replacing(mut set: Cluster, pod: PodFixture) -> Cluster {
    let record = pod.build("web");
    set.own_pods.retain(|p| p.name() != record.name());
    set.pod_record(record)
}

#[test]
fn sts_8_6_a_pod_goes_only_when_the_claims_of_its_successor_are_there() {
    for (what, set) in [
        ("only a claim template", with_logs(advanced(2), "new")),
        ("a revision, too", with_logs(advanced(2), "old")),
        ("in order", with_logs(advanced(2).ordered(), "new")),
        (
            "unavailable",
            replacing(with_logs(advanced(2), "new"), with_data("web-1", "new").unready()),
        ),
    ] {
        assert_eq!(brief(&set.decide()), ["+claim logs-web-1"], "{what}");
        let there = set.clone().claim(claim("logs-web-1"));
        assert_eq!(brief(&there.decide()), ["-web-1"], "{what}");
        let goes = set.clone().claim(claim("logs-web-1").terminating());
        assert_eq!(
            brief(&goes.decide()),
            ["-web-1"],
            "{what}: it may be the pod that keeps it"
        );
        let bad = refused(set, Scope::Slot(1), Report::Create, "Forbidden").decide();
        assert!(
            brief(&bad).iter().all(|c| !c.starts_with("-web")),
            "{what}: {:?}",
            brief(&bad)
        );
        let is_said = |cause: &WaitCause| matches!(cause, WaitCause::Refused { reason, .. } if reason == "Forbidden");
        assert!(
            bad.waits.iter().any(|w| w.subject == "web-1" && is_said(&w.cause)),
            "{what}"
        );
    }
}

#[test]
fn sts_8_6_where_all_pods_go_at_once_all_claims_are_made_first() {
    let recreated = || with_logs(advanced(2).annotation("flotilla.rs/update-type", "Recreate"), "old");
    assert_eq!(brief(&recreated().decide()), ["+claim logs-web-0", "+claim logs-web-1"]);
    assert_eq!(
        brief(&refused(recreated(), Scope::Slot(1), Report::Create, "Forbidden").decide()),
        ["+claim logs-web-0"]
    );
    let there = recreated().claim(claim("logs-web-0")).claim(claim("logs-web-1"));
    assert_eq!(brief(&there.decide()), ["-web-1", "-web-0"]);
}

#[test]
fn sts_8_6_claims_that_are_made_first_are_owned_as_the_policy_says() {
    let set = with_logs(advanced(2), "new");
    let set = set.spec("/persistentVolumeClaimRetentionPolicy/whenDeleted", json!("Delete"));
    let owners = set.decide().commands().find_map(|c| match &c.command {
        Command::Create { key, body, .. } if *key.name == *"logs-web-1" => {
            Some(body.render()["metadata"]["ownerReferences"][0]["kind"].clone())
        }
        _ => None,
    });
    assert_eq!(owners, Some(json!("StatefulSet")));
}

/// What the record of claim templates is patched to.
fn record_written(decision: &Decision) -> Option<Value> {
    decision.commands().find_map(|c| match &c.command {
        Command::Patch {
            resource: Resource::Revisions,
            body,
            ..
        } => {
            let text = body.pointer("/metadata/annotations/flotilla.rs~1claim-templates")?;
            serde_json::from_str(text.as_str()?).ok()
        }
        _ => None,
    })
}

#[test]
fn r_11_the_record_says_which_claim_templates_there_are_while_a_revision_is_the_update() {
    let set = |today: &[&str], recorded: &[&str]| {
        let mut set = advanced(1).claim_templates(today).no_revisions();
        set = set.revision("new", 1, "v2").recording_claims(recorded);
        let set = set
            .status("/currentRevision", json!("new"))
            .pod(pod("web-0").revision("new").mounts(today));
        today.iter().fold(set, |set, t| set.claim(claim(&format!("{t}-web-0"))))
    };
    let names = |decision: &Decision| {
        let record = record_written(decision)?;
        let list = record.as_array()?.iter();
        let name = |t: &Value| {
            let is_former = !t["metadata"]["annotations"]["flotilla.rs/former"].is_null();
            format!(
                "{}{}",
                if is_former { "former " } else { "" },
                t["metadata"]["name"].as_str().unwrap_or_default()
            )
        };
        Some(list.map(name).collect::<Vec<_>>())
    };
    for (today, recorded, expected) in [
        (&["data"][..], &["data"][..], None),
        (&["logs", "data"], &["data", "logs"], None),
        (&["data", "logs"], &["data"], Some(vec!["data", "logs"])),
        (&["data"], &["data", "logs"], Some(vec!["data", "former logs"])),
        (&["logs"], &["data"], Some(vec!["logs", "former data"])),
    ] {
        let decision = set(today, recorded).decide();
        let expected = expected.map(|names| names.into_iter().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(names(&decision), expected, "{today:?}, recorded {recorded:?}");
    }
    // What was written once is not written again, and what is back is so.
    let written = |today: &[&str], record: &Value| {
        let mut set = set(today, &[]);
        let last = set.own_revisions.last_mut().expect("a revision");
        Arc::make_mut(last).claim_templates = Some(Arc::new(RecordedClaims::new(record)));
        set
    };
    let record = record_written(&set(&["data"], &["data", "logs"]).decide()).expect("a record");
    assert_eq!(brief(&written(&["data"], &record).decide()), NOTHING);
    let back = written(&["data", "logs"], &record).decide();
    assert_eq!(names(&back), Some(vec!["data".to_owned(), "logs".to_owned()]));
    let none = advanced(1)
        .claim_templates(&["data"])
        .status("/currentRevision", json!("new"));
    let none = none.pod(with_data("web-0", "new")).claim(claim("data-web-0"));
    assert_eq!(
        brief(&none.decide()),
        NOTHING,
        "a revision without a record is left as its author made it"
    );
}

/// A template of these names with this class and size.
fn template(name: &str, class: &str, size: u64) -> Value {
    let spec = json!({"storageClassName": class, "resources": {"requests": {"storage": size.to_string()}}});
    json!({"metadata": {"name": name}, "spec": spec})
}

/// What is recorded on the latest revision.
fn recording(mut set: Cluster, record: Value) -> Cluster {
    let last = set.own_revisions.last_mut().expect("a revision");
    Arc::make_mut(last).claim_templates = Some(Arc::new(RecordedClaims::new(&record)));
    set
}

/// The same of sizes.
fn sizes_written(decision: &Decision) -> Option<Value> {
    decision.commands().find_map(|c| match &c.command {
        Command::Patch { body, .. } => {
            let text = body.pointer("/metadata/annotations/flotilla.rs~1claim-sizes")?;
            serde_json::from_str(text.as_str()?).ok()
        }
        _ => None,
    })
}

#[test]
fn r_11_the_record_of_a_template_follows_while_its_revision_is_the_update() {
    let set = |today: Value, recorded: Value| {
        let set = advanced(1).no_revisions().revision("new", 1, "v2");
        let set = recording(set.spec("/volumeClaimTemplates", today), recorded);
        let set = set.status("/currentRevision", json!("new"));
        set.pod(with_data("web-0", "new"))
            .claim(claim("data-web-0").class("slow"))
    };
    let data = |class: &str, size: u64| json!([template("data", class, size)]);
    let was_there = json!({"metadata": {"name": "data", "annotations": {"flotilla.rs/former": "true"}},
        "spec": template("data", "slow", 5)["spec"]});
    for (today, recorded, sizes) in [
        (data("fast", 10), data("slow", 10), None),
        (data("slow", 20), data("slow", 10), Some(json!({"data": [10]}))),
        (data("fast", 20), data("slow", 30), Some(json!({"data": [30]}))),
        // What it had when it went is what it may go back to.
        (data("fast", 20), json!([was_there]), Some(json!({"data": [5]}))),
        (data("fast", 20), json!([{"metadata": {"name": "data"}}]), None),
    ] {
        let decision = set(today.clone(), recorded.clone()).decide();
        assert_eq!(record_written(&decision), Some(today.clone()), "{recorded}");
        assert_eq!(sizes_written(&decision), sizes, "{recorded}");
        let settled = set(today.clone(), today.clone()).decide();
        assert_eq!(brief(&settled), NOTHING, "{today} is on record");
    }
    // Sizes that are noted stay so, the newest if there are many.
    let many: Vec<u64> = (100..116).collect();
    for (noted, expected) in [
        (&[5, 10][..], None),
        (&[5], Some([5, 10].to_vec())),
        (&many, Some((101..116).chain([10]).collect())),
    ] {
        let decision = set(data("slow", 20), data("slow", 10)).recording_sizes(noted).decide();
        assert_eq!(sizes_written(&decision), expected.map(|sizes| json!({"data": sizes})));
    }
}

/// Users deleted its claim to have it made again in the new class: the class of before may be gone.
#[test]
fn r_11_a_pod_that_the_partition_keeps_gets_the_templates_of_the_end_of_its_revision() {
    let set = advanced(1).no_revisions().revision("old", 1, "v1");
    let set = recording(set, json!([template("data", "fast", 10)])).revision("new", 2, "v2");
    let set = recording(set, json!([template("data", "faster", 10)]));
    let set = set
        .spec("/volumeClaimTemplates", json!([template("data", "faster", 10)]))
        .rolling(json!({"partition": 1}))
        .status("/currentRevision", json!("old"));
    let decision = set.decide();
    let made = decision.commands().find_map(|c| match &c.command {
        Command::Create {
            resource: Resource::Claims,
            body,
            ..
        } => Some(body.render()["spec"]["storageClassName"].clone()),
        _ => None,
    });
    assert_eq!(made, Some(json!("fast")), "{:?}", brief(&decision));
    assert_eq!(record_written(&decision), None);
}

/// Where claims follow their templates, what the record told of is noted before it goes, with what claims ask for.
#[test]
fn r_35_a_size_that_the_record_tells_no_more_is_noted_whatever_else_is() {
    let set = |noted: &[u64]| {
        let set = advanced(2).no_revisions().revision("new", 1, "v2");
        let set = recording(set, json!([template("data", "fast", 10)])).recording_sizes(noted);
        let set = set
            .spec("/volumeClaimTemplates", json!([template("data", "fast", 20)]))
            .spec("/volumeClaimUpdateStrategy/type", json!("OnPodRollingUpdate"))
            .class("fast", true)
            .status("/currentRevision", json!("new"));
        let set = set.pod(with_data("web-0", "new")).pod(with_data("web-1", "new"));
        set.claim(claim("data-web-0").class("fast").size(15))
            .claim(claim("data-web-1").class("fast").size(20))
    };
    let every_write = |decision: &Decision| {
        let patches = decision.commands().filter_map(|c| match &c.command {
            Command::Patch { body, .. } => body.pointer("/metadata/annotations/flotilla.rs~1claim-sizes"),
            _ => None,
        });
        let lists = patches.filter_map(|text| serde_json::from_str::<Value>(text.as_str()?).ok());
        lists.map(|sizes| sizes["data"].clone()).collect::<Vec<_>>()
    };
    // The last write holds whatever the ones before it said.
    assert_eq!(every_write(&set(&[]).decide()), [json!([10]), json!([10, 15, 20])]);
    let grows = set(&[15, 20]).decide();
    assert_eq!(every_write(&grows), [json!([15, 20, 10])]);
    assert!(grows.commands().any(|c| c.command.resource() == Resource::Claims));
}

/// What a removed template had is still known, and new pods of the revision do not get it.
#[test]
fn r_11_what_a_record_names_as_former_is_not_made_again() {
    let former = json!([
        {"metadata": {"name": "data"}},
        {"metadata": {"name": "logs", "annotations": {"flotilla.rs/former": "true"}}},
    ]);
    let mut set = advanced(2).claim_templates(&["data"]).no_revisions();
    set = set.revision("old", 1, "v1").recording_claims(&["data"]);
    let last = set.own_revisions.last_mut().expect("a revision");
    Arc::make_mut(last).claim_templates = Some(Arc::new(RecordedClaims::new(&former)));
    let set = set.revision("new", 2, "v2").recording_claims(&["data"]);
    let set = set
        .rolling(json!({"partition": 2}))
        .pod(with_data("web-1", "old"))
        .claim(claim("data-web-0"))
        .claim(claim("data-web-1"))
        .claim(claim("logs-web-1"));
    let decision = set.decide();
    assert_eq!(brief(&decision), ["+web-0@old"]);
    let status = decision.status.expect("a status").desired;
    assert_eq!(status["unusedVolumeClaims"], json!(["logs-web-1"]));
}

#[test]
fn sts_8_6_a_pod_that_has_to_be_made_again_is_not_changed_before() {
    let set = |policy: &str, partition: i32| {
        let strategy = json!({"podUpdatePolicy": policy, "partition": partition});
        let set = with_logs(advanced(2).rolling(strategy), "old");
        let set = set.claim(claim("logs-web-0")).claim(claim("logs-web-1"));
        let old = |name: &str| with_data(name, "old").detailed(|_| {});
        replacing(replacing(set, old("web-0")), old("web-1"))
    };
    assert_eq!(brief(&set("InPlaceIfPossible", 0).decide()), ["-web-1"]);
    assert_eq!(brief(&set("InPlaceIfPossible", 2).decide()), NOTHING);
    let barred = set("InPlaceOnly", 0).decide();
    assert_eq!(brief(&barred), NOTHING);
    let is_barred = |cause: &WaitCause| matches!(cause, WaitCause::InPlaceNotPossible { .. });
    assert!(barred.waits.iter().any(|w| w.subject == "web-1" && is_barred(&w.cause)));
    // With the volumes of today's templates nothing stands in the way.
    let alike = |name: &str| pod(name).revision("old").mounts(&["data", "logs"]).detailed(|_| {});
    let changed = replacing(replacing(set("InPlaceIfPossible", 0), alike("web-0")), alike("web-1"));
    assert_eq!(brief(&changed.decide()), ["~pod web-1", "~pod web-1"]);
}

fn two_revisions() -> Cluster {
    let set = advanced(1).claim_templates(&["data"]).no_revisions();
    let set = set.revision("old", 1, "v1").recording_claims(&["data", "logs"]);
    set.revision("new", 2, "v2")
        .recording_claims(&["data"])
        .rolling(json!({"partition": 1}))
        .claim(claim("data-web-0"))
}

#[test]
fn sts_1_4_3_a_pending_pod_gets_the_claims_of_its_own_revision() {
    for (phase, expected) in [(Phase::Pending, &["+claim logs-web-0"][..]), (Phase::Running, &NOTHING)] {
        let pod = pod("web-0").revision("old").mounts(&["data", "logs"]);
        assert_eq!(
            brief(&two_revisions().pod(pod.phase(phase).never_ready()).decide()),
            expected
        );
    }
}

#[test]
fn sts_8_10_the_end_of_a_claim_of_an_old_revision_is_noticed() {
    let routed = |name: &str| {
        let gone = Change::Claim(Some(Arc::new(claim(name).build())), None);
        let mut keys = Vec::new();
        let mut cluster = two_revisions();
        cluster.record = Some(cluster.record());
        StatefulSetController::new(SetKind::Advanced).route(&gone, &cluster, &mut keys);
        keys.len()
    };
    for (claim, expected) in [
        ("data-web-0", 1),
        ("logs-web-0", 1),
        ("cache-web-0", 0),
        ("logs-other-0", 0),
        ("logs-web-x", 0),
    ] {
        assert_eq!(routed(claim), expected, "{claim}");
    }
}
