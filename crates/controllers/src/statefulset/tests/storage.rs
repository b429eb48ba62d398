//! Claims: what they are made of, who owns them, when a pod waits for them, and how they grow (STS-1.4, STS-3.9, STS-8.6, STS-8.10, STS-8.14).

use super::claiming::told;
use super::refused;
use crate::shared::adoption::controller_ref;
use crate::testing::{Cluster, NOW, advanced, brief, claim, native, owner, pod, set_uid};
use flotilla_api::names;
use flotilla_model::decision::{Command, Scope};
use flotilla_model::records::Phase;
use flotilla_model::{
    Change, Decision, OwnerRef, RecordedClaims, Report, Resource, SetKind, StorageClassRecord, Uid, WaitCause,
};
use serde_json::{Value, json};
use std::sync::Arc;

const NOTHING: [&str; 0] = [];

pub(super) fn with_claims(replicas: i32) -> Cluster {
    advanced(replicas)
        .claim_templates(&["data"])
        .status("/currentRevision", json!("new"))
}

pub(super) fn mounted(name: &str, revision: &str) -> crate::testing::PodFixture {
    pod(name).revision(revision).mounts(&["data"])
}

/// The body of the only command on claims.
pub(super) fn on_claim(decision: &Decision) -> Option<Value> {
    decision.commands().find_map(|c| match &c.command {
        Command::Create {
            resource: Resource::Claims,
            body,
            ..
        } => Some(body.render()),
        Command::Patch {
            resource: Resource::Claims,
            body,
            ..
        } => Some(body.clone()),
        _ => None,
    })
}

fn causes(decision: &Decision) -> Vec<&WaitCause> {
    decision.waits.iter().map(|w| &w.cause).collect()
}

#[test]
fn sts_1_4_1_labels_of_the_selector_win_and_volumes_keep_the_order_of_the_templates() {
    let templates = json!([
        {
            "metadata": {
                "name": "z", "labels": {"app": "other", "tier": "db"}, "annotations": {"a": "b"}, "finalizers": ["example.com/keep"],
            },
            "spec": {"x": 1},
        },
        {"metadata": {"name": "a"}, "spec": {}},
        {"metadata": {"name": "m"}, "spec": {}},
    ]);
    let set = advanced(1)
        .spec("/volumeClaimTemplates", templates)
        .status("/currentRevision", json!("new"));
    let decision = set.decide();
    assert_eq!(
        brief(&decision),
        ["+claim z-web-0", "+claim a-web-0", "+claim m-web-0", "+web-0@new"]
    );
    let body = on_claim(&decision).expect("a claim");
    assert_eq!(body["metadata"]["labels"], json!({"app": "web", "tier": "db"}));
    assert_eq!(body["metadata"]["annotations"], json!({"a": "b"}));
    assert_eq!(body["metadata"]["finalizers"], json!(["example.com/keep"]));
    assert_eq!(body["spec"], json!({"x": 1}));
    let Some(Command::Create { body, .. }) = decision.commands().last().map(|c| &c.command) else {
        panic!("a pod")
    };
    let pod = body.render();
    let volumes = pod["spec"]["volumes"].as_array().expect("volumes");
    assert_eq!(
        volumes
            .iter()
            .map(|v| v["name"].as_str().expect("a name"))
            .collect::<Vec<_>>(),
        ["z", "a", "m"]
    );
}

#[test]
fn sts_1_4_3_and_8_10_a_pod_waits_for_a_claim_on_its_way_out() {
    let decision = with_claims(2).claim(claim("data-web-0").terminating()).decide();
    assert_eq!(
        brief(&decision),
        ["+claim data-web-1", "+web-1@new"],
        "the others go on"
    );
    assert_eq!(causes(&decision)[0], &WaitCause::CLAIM_TERMINATING);
    assert_eq!(decision.waits[0].subject, "data-web-0");
}

#[test]
fn sts_1_4_3_a_pending_pod_gets_a_lost_claim_again_and_a_running_one_does_not() {
    let lost = |phase| brief(&with_claims(1).pod(mounted("web-0", "new").phase(phase)).decide());
    assert_eq!(lost(Phase::Pending), ["+claim data-web-0"]);
    assert_eq!(lost(Phase::Running), NOTHING);
    let existing = with_claims(1).claim(claim("data-web-0").size(1)).decide();
    assert_eq!(brief(&existing), ["+web-0@new"], "an existing claim is used as it is");
}

#[test]
fn sts_1_4_4_the_set_is_named_when_the_claim_is_made() {
    for (kind, api_version) in [
        (SetKind::Advanced, "apps.kruise.io/v1beta1"),
        (SetKind::Native, "apps/v1"),
    ] {
        let set = if kind == SetKind::Advanced {
            advanced(1)
        } else {
            native(1)
        };
        let set = set
            .claim_templates(&["data"])
            .spec("/persistentVolumeClaimRetentionPolicy/whenDeleted", json!("Delete"));
        let body = on_claim(&set.decide()).expect("a claim");
        let owner = &body["metadata"]["ownerReferences"][0];
        assert_eq!(
            (&owner["apiVersion"], &owner["controller"]),
            (&json!(api_version), &json!(true))
        );
    }
    let retained = on_claim(&with_claims(1).decide()).expect("a claim");
    assert_eq!(retained["metadata"].get("ownerReferences"), None);
}

/// Claims of a wanted and of an unwanted pod under each policy, as table STS-1.4.4 has them; with reserved ordinals, STS-8.14.
#[test]
fn sts_1_4_4_and_8_14_owners_follow_the_policy_and_the_reserved_ordinals() {
    let set_owner = || controller_ref(Resource::AdvancedSets, "web", &set_uid("web"));
    let pod_owner = || controller_ref(Resource::Pods, "web-1", &Uid::new("uid-of-web-1"));
    for (scaled, deleted, wanted, condemned) in [
        ("Retain", "Retain", vec![], vec![]),
        ("Retain", "Delete", vec![set_owner()], vec![set_owner()]),
        ("Delete", "Retain", vec![], vec![pod_owner()]),
        ("Delete", "Delete", vec![set_owner()], vec![pod_owner()]),
    ] {
        let policy = json!({"whenScaled": scaled, "whenDeleted": deleted});
        let set = with_claims(2)
            .spec("/reserveOrdinals", json!([1]))
            .spec("/persistentVolumeClaimRetentionPolicy", policy);
        // web-2 is wanted, as 1 is reserved; web-1 is not.
        for (name, expected) in [("web-2", &wanted), ("web-1", &condemned)] {
            for before in [vec![], vec![set_owner()]] {
                let set = set.clone().pod(mounted("web-0", "new")).pod(mounted(name, "new"));
                let set = set.claim(claim(&format!("data-{name}")).owners(before.clone()));
                let decision = if name == "web-2" {
                    set.decide()
                } else {
                    set.pod(mounted("web-2", "new")).decide()
                };
                let patched = on_claim(&decision).map(|b| b["metadata"]["ownerReferences"].clone());
                let want = json!(expected.iter().map(OwnerRef::to_json).collect::<Vec<_>>());
                let needed = (before != *expected).then_some(want);
                assert_eq!(patched, needed, "{scaled}/{deleted} {name} with {before:?}");
            }
        }
    }
}

/// What others delete before its turn has come leaves its claims: the set may be scaled up again. Native sets and Advanced ones alike.
#[test]
fn sts_1_4_4_only_a_pod_that_scaling_down_takes_away_takes_its_claims_along() {
    let condemned = |set: Cluster, web_2: crate::testing::PodFixture, owned: bool| {
        let owner = controller_ref(Resource::Pods, "web-2", &Uid::new("uid-of-web-2"));
        let owners = if owned { vec![owner] } else { Vec::new() };
        set.claim_templates(&["data"])
            .status("/currentRevision", json!("new"))
            .spec("/persistentVolumeClaimRetentionPolicy/whenScaled", json!("Delete"))
            .pod(mounted("web-1", "new"))
            .claim(claim("data-web-1"))
            .pod(web_2)
            .claim(claim("data-web-2").owners(owners))
    };
    let web_2 = || mounted("web-2", "new");
    for set in [advanced(1).ordered(), native(1).ordered()] {
        let blocked = |owned| condemned(set.clone().pod(mounted("web-0", "new").unready()), web_2(), owned);
        assert_eq!(
            brief(&blocked(false).decide()),
            NOTHING,
            "it may be long until its turn"
        );
        assert_eq!(
            brief(&blocked(true).decide()),
            ["~claim data-web-2"],
            "it is taken back"
        );
        let going = condemned(
            set.clone().pod(mounted("web-0", "new").unready()),
            web_2().terminating(),
            false,
        );
        assert_eq!(brief(&going.decide()), NOTHING, "others delete it");
        let goes_on = |web_2, owned| condemned(set.clone().pod(mounted("web-0", "new")), web_2, owned).decide();
        assert_eq!(brief(&goes_on(web_2(), false)), ["~claim data-web-2", "-web-2"]);
        assert_eq!(brief(&goes_on(web_2(), true)), ["-web-2"], "what was begun goes on");
        assert_eq!(
            brief(&goes_on(web_2().terminating(), false)),
            ["~claim data-web-2"],
            "it would have been the next"
        );
    }
    // The turn of web-2 has come, which its hook holds, or which hangs on its node; that of web-1, which others delete, has not.
    let hooked = |set: Cluster| set.spec("/lifecycle/preDelete", json!({"labelsHandler": {"hold": "yes"}}));
    let held = || {
        web_2()
            .label("hold", "yes")
            .detailed(|_| {})
            .label(names::LIFECYCLE_STATE_LABEL, "PreparingDelete")
    };
    let drained = |web_2| {
        let set = hooked(advanced(1).ordered())
            .status("/currentRevision", json!("new"))
            .spec("/persistentVolumeClaimRetentionPolicy", json!({"whenScaled": "Delete"}));
        let pods = set
            .pod(mounted("web-0", "new"))
            .pod(mounted("web-1", "new").detailed(|_| {}).terminating());
        pods.pod(web_2)
            .claim_templates(&["data"])
            .claim(claim("data-web-1"))
            .claim(claim("data-web-2"))
            .decide()
    };
    for (what, web_2) in [
        ("held", held()),
        ("on its way out", web_2().detailed(|_| {}).terminating()),
    ] {
        let commands = brief(&drained(web_2));
        assert!(
            !commands.contains(&"~claim data-web-1".to_owned()),
            "web-2 is {what}: {commands:?}"
        );
    }
    // Nor has that of one that its own hook holds, whatever the order.
    for set in [advanced(1), advanced(1).ordered()] {
        let both = condemned(hooked(set).pod(mounted("web-0", "new")), held().terminating(), false).decide();
        assert!(
            !brief(&both).contains(&"~claim data-web-2".to_owned()),
            "{:?}",
            brief(&both)
        );
    }
    // Wanted again, before it went.
    let wanted = condemned(advanced(3).ordered().pod(mounted("web-0", "new")), web_2(), true);
    assert_eq!(brief(&wanted.decide()), ["~claim data-web-2"]);
    // What was refused is its deletion, which nobody wants any more.
    for (attempt, expected) in [(Report::Delete, &["~claim data-web-2"][..]), (Report::Update, &NOTHING)] {
        let refused = refused(wanted.clone(), Scope::Slot(2), attempt, "Forbidden");
        assert_eq!(brief(&refused.decide()), expected, "{attempt:?}");
    }
}

/// A pod that its hook still holds may be wanted again.
#[test]
fn sts_1_4_4_a_condemned_pod_gets_its_claims_when_its_hook_lets_it_go() {
    let set = |pod: crate::testing::PodFixture| {
        with_claims(0)
            .spec("/persistentVolumeClaimRetentionPolicy/whenScaled", json!("Delete"))
            .spec("/lifecycle/preDelete", json!({"labelsHandler": {"hold": "yes"}}))
            .pod(pod)
            .claim(claim("data-web-0"))
    };
    let held = set(mounted("web-0", "new").label("hold", "yes").detailed(|_| {})).decide();
    assert!(brief(&held).iter().all(|c| !c.contains("claim")), "{:?}", brief(&held));
    let let_go = set(mounted("web-0", "new").detailed(|_| {})).decide();
    assert_eq!(brief(&let_go), ["~claim data-web-0", "-web-0"]);
}

#[test]
fn sts_1_4_4_a_claim_of_the_pod_scaled_away_is_left_to_the_garbage_collector() {
    let former = controller_ref(Resource::Pods, "web-0", &Uid::new("the former web-0"));
    let set = with_claims(1).claim(claim("data-web-0").owners(vec![former]));
    let decision = set
        .clone()
        .spec("/persistentVolumeClaimRetentionPolicy/whenScaled", json!("Delete"))
        .decide();
    assert_eq!(brief(&decision), NOTHING);
    assert!(
        matches!(causes(&decision)[..], [WaitCause::ClaimStale { .. }]),
        "{:?}",
        decision.waits
    );
    assert_eq!(
        brief(&set.decide()),
        ["~claim data-web-0"],
        "under Retain it is kept first"
    );
}

#[test]
fn sts_1_4_4_a_foreign_controller_keeps_the_claim() {
    let backup = OwnerRef {
        controller: true,
        ..owner("velero.io/v1", "Backup", "b", "b-uid")
    };
    let set = with_claims(1).spec("/persistentVolumeClaimRetentionPolicy/whenDeleted", json!("Delete"));
    let set = set
        .pod(mounted("web-0", "new"))
        .claim(claim("data-web-0").owners(vec![backup]));
    assert_eq!(brief(&set.decide()), NOTHING);
}

#[test]
fn sts_8_6_a_running_pod_whose_volumes_differ_is_made_again_within_the_budget_never_patched() {
    let added = advanced(3)
        .claim_templates(&["data", "logs"])
        .status("/currentRevision", json!("new"));
    let all = (0..3).fold(added, |set, i| {
        let pod = mounted(&format!("web-{i}"), "new");
        set.pod(pod).claim(claim(&format!("data-web-{i}")))
    });
    assert_eq!(
        brief(&all.decide()),
        ["+claim logs-web-2"],
        "what it would lack is made first"
    );
    let made = all.clone().claim(claim("logs-web-2"));
    assert_eq!(brief(&made.decide()), ["-web-2"]);
    assert_eq!(
        brief(&all.clone().rolling(json!({"partition": 3})).decide()),
        NOTHING,
        "the partition holds"
    );
    assert_eq!(
        brief(&all.clone().rolling(json!({"paused": true})).decide()),
        NOTHING,
        "paused holds"
    );
    assert_eq!(
        brief(&made.ordered().decide()),
        ["-web-2"],
        "and OrderedReady is not stuck"
    );
    let removed = advanced(1)
        .recording_claims(&["data"])
        .status("/currentRevision", json!("new"))
        .pod(mounted("web-0", "new"));
    assert_eq!(
        brief(&removed.decide()),
        ["~revision new", "-web-0"],
        "a removed template likewise"
    );
}

#[test]
fn sts_8_6_a_claim_that_the_pod_template_itself_mounts_excuses_only_its_own_volume() {
    let own = json!([{"name": "cache", "persistentVolumeClaim": {"claimName": "shared"}}]);
    let set = advanced(1).spec("/template/spec/volumes", own.clone());
    let mut template = crate::testing::template("v2");
    template["spec"]["volumes"] = own;
    let set = set
        .no_revisions()
        .revision_of("new", 1, &template)
        .recording_claims(&["data"])
        .status("/currentRevision", json!("new"));
    let mut record = pod("web-0").revision("new").mounts(&["data"]).build("web");
    let mut volumes = (**record.volumes.as_ref().expect("volumes")).clone();
    volumes.push(flotilla_model::records::VolumeClaim {
        volume: "cache".into(),
        claim: Some("shared".into()),
    });
    record.volumes = Some(std::sync::Arc::new(volumes.clone()));
    assert_eq!(
        brief(&set.clone().pod_record(record.clone()).decide()),
        ["~revision new", "-web-0"],
        "`data` is left over"
    );
    volumes.remove(0);
    record.volumes = Some(std::sync::Arc::new(volumes));
    assert_eq!(brief(&set.pod_record(record).decide()), ["~revision new"]);
}

/// What is known of the claims of an old revision is our record. Where there is none, as after a takeover, its pods get those of today, as
/// they always did (STS-1.1.1): what their containers mount says nothing, since a volume may be there for those who come later.
#[test]
fn r_11_a_new_pod_of_an_old_revision_gets_the_claims_of_our_record_or_else_of_today() {
    let mounting = |volumes: &[&str]| {
        let mut template = crate::testing::template("v1");
        let mounts = volumes
            .iter()
            .map(|name| json!({"name": name, "mountPath": format!("/{name}")}));
        template["spec"]["containers"][0]["volumeMounts"] = mounts.collect();
        template
    };
    for (what, mounted, recorded, expected) in [
        ("no record", &["data"][..], None, &["data", "logs"][..]),
        ("no record, and nothing is mounted", &[], None, &["data", "logs"]),
        ("a record", &["data"], Some(&["data"][..]), &["data"]),
        ("a record, and nothing is mounted", &[], Some(&["data"]), &["data"]),
    ] {
        let set = advanced(2).no_revisions().revision_of("old", 1, &mounting(mounted));
        let set = match recorded {
            Some(names) => set.recording_claims(names),
            None => set,
        };
        let set = set.revision("new", 2, "v2").claim_templates(&["data", "logs"]);
        let set = set
            .rolling(json!({"partition": 1}))
            .pod(pod("web-1").revision("new").mounts(&["data", "logs"]));
        let set = set.claim(claim("data-web-1")).claim(claim("logs-web-1"));
        let claims = expected.iter().map(|name| format!("+claim {name}-web-0"));
        let all: Vec<String> = claims.chain(["+web-0@old".to_owned()]).collect();
        assert_eq!(brief(&set.decide()), all, "{what}");
    }
}

#[test]
fn sts_8_6_claims_of_a_removed_template_are_kept_and_named() {
    let set = advanced(2)
        .no_revisions()
        .revision("old", 1, "v1")
        .recording_claims(&["data", "logs"])
        .revision("new", 2, "v2");
    let set = set
        .claim_templates(&["data"])
        .claim(claim("data-web-0"))
        .claim(claim("data-web-1"));
    let set = set
        .claim(claim("logs-web-0"))
        .claim(claim("logs-web-1"))
        .claim(claim("logs-other-0"));
    let set = set
        .pod(mounted("web-0", "new"))
        .pod(pod("web-1").revision("old").mounts(&["data", "logs"]));
    let decision = set.decide();
    assert_eq!(
        brief(&decision),
        ["-web-1"],
        "the pod that still mounts it is made again"
    );
    let status = decision.status.unwrap().diff().unwrap();
    assert_eq!(
        status["unusedVolumeClaims"],
        json!(["logs-web-0"]),
        "logs-web-1 is still in use"
    );
}

/// A set whose claims should grow to 20, two pods at the update revision, claims as given.
pub(super) fn growing(claims: [crate::testing::ClaimFixture; 2]) -> Cluster {
    let template = json!([{"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "20"}, "limits": {"storage": "99"}}}}]);
    let set = with_claims(2).spec("/volumeClaimTemplates", template);
    let set = set
        .spec("/volumeClaimUpdateStrategy/type", json!("OnPodRollingUpdate"))
        .class("fast", true)
        .class("slow", false);
    let set = set.pod(mounted("web-0", "new")).pod(mounted("web-1", "new"));
    claims.into_iter().fold(set, Cluster::claim).recording_sizes(&[10, 20])
}

/// What is recorded of sizes, of the template `data`.
fn sizes_written(decision: &Decision) -> Option<Value> {
    decision.commands().find_map(|c| match &c.command {
        Command::Patch {
            resource: Resource::Revisions,
            key,
            body,
            ..
        } => {
            assert_eq!(key.name.as_str(), "new");
            let text = body
                .pointer("/metadata/annotations/flotilla.rs~1claim-sizes")?
                .as_str()?;
            serde_json::from_str::<Value>(text).ok()?.get("data").cloned()
        }
        _ => None,
    })
}

/// Claims that have grown do not tell any more what users may go back to.
#[test]
fn r_35_what_claims_ask_for_is_on_record_before_they_grow() {
    let small = |name: &str| claim(name).class("fast");
    let grown = |name: &str| claim(name).class("fast").size(20);
    let set = |recorded: &[u64]| growing([small("data-web-0"), grown("data-web-1")]).recording_sizes(recorded);
    for (recorded, written, grows) in [
        // As after a takeover.
        (&[][..], Some(json!([10, 20])), false),
        (&[10], Some(json!([10, 20])), false),
        (&[15, 20], Some(json!([15, 20, 10])), false),
        (&[20, 10], None, true),
    ] {
        let decision = set(recorded).decide();
        assert_eq!(sizes_written(&decision), written, "{recorded:?}");
        assert_eq!(on_claim(&decision).is_some(), grows, "{recorded:?}");
    }
    // What the record of templates says need not be said again.
    let mut recorded = set(&[20]);
    let template = json!([{"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "10"}}}}]);
    let last = recorded.own_revisions.last_mut().expect("a revision");
    Arc::make_mut(last).claim_templates = Some(Arc::new(RecordedClaims::new(&template)));
    assert!(on_claim(&recorded.decide()).is_some());
    // Nor is anything said where claims do not follow.
    let stays = set(&[]).spec("/volumeClaimUpdateStrategy/type", json!("OnPVCDelete"));
    assert_eq!(sizes_written(&stays.decide()), None);
    // While the record cannot be written nothing grows, and it is told why.
    let held = refused(set(&[]), Scope::Named("new".to_owned()), Report::Update, "Forbidden");
    let decision = held.decide();
    assert_eq!((sizes_written(&decision), on_claim(&decision)), (None, None));
    assert!(
        decision.waits.iter().any(|w| w.subject == "new"),
        "{:?}",
        decision.waits
    );
}

/// Of many sizes the newest stay, and those that claims still have.
#[test]
fn r_35_the_record_of_sizes_is_bounded() {
    let many: Vec<u64> = (100..116).collect();
    let set = growing([
        claim("data-web-0").class("fast"),
        claim("data-web-1").class("fast").size(20),
    ]);
    let written = sizes_written(&set.recording_sizes(&many).decide()).expect("a record");
    let expected: Vec<u64> = (102..116).chain([10, 20]).collect();
    assert_eq!(written, json!(expected));
}

#[test]
fn sts_3_9_growth_touches_nothing_but_the_storage_request_and_keeps_order_and_budget() {
    let small = |name: &str| claim(name).class("fast");
    let decision = growing([small("data-web-0"), small("data-web-1")]).decide();
    assert_eq!(brief(&decision), ["~claim data-web-1"], "one at a time, from the top");
    assert_eq!(
        on_claim(&decision),
        Some(json!({
            "metadata": {"annotations": {"apps.kruise.io/owned-by-asts": "web"}},
            "spec": {"resources": {"requests": {"storage": "20"}}},
        }))
    );
    let grown = |name: &str| claim(name).class("fast").size(20);
    let under_way = growing([small("data-web-0"), grown("data-web-1").capacity(10)]).decide();
    assert_eq!(brief(&under_way), NOTHING);
    assert!(
        causes(&under_way).contains(&&WaitCause::ClaimExpanding),
        "{:?}",
        under_way.waits
    );
    let next = growing([small("data-web-0"), grown("data-web-1")]).decide();
    assert_eq!(brief(&next), ["~claim data-web-0"]);
    let larger = growing([claim("data-web-0").class("fast").size(50), grown("data-web-1")]).decide();
    assert_eq!(brief(&larger), NOTHING, "never lowered");
    assert_eq!(
        brief(
            &growing([small("data-web-0"), small("data-web-1")])
                .rolling(json!({"partition": 2}))
                .decide()
        ),
        NOTHING
    );
}

#[test]
fn sts_3_9_an_expanding_claim_is_named_while_an_old_pod_waits_for_it() {
    let set = growing([
        claim("data-web-0").size(20),
        claim("data-web-1").class("fast").size(20).capacity(10),
    ]);
    let old = set
        .pod(mounted("web-2", "old"))
        .spec("/replicas", json!(3))
        .claim(claim("data-web-2").class("fast").size(20).capacity(10));
    let decision = old.decide();
    assert_eq!(brief(&decision), NOTHING);
    let named: Vec<_> = decision
        .waits
        .iter()
        .filter(|w| w.cause == WaitCause::ClaimExpanding)
        .map(|w| &*w.subject)
        .collect();
    assert_eq!(named, ["data-web-2", "data-web-1"]);
}

#[test]
fn sts_3_9_an_unavailable_old_pod_grows_once_and_uses_no_budget() {
    let set = growing([
        claim("data-web-0").class("fast").size(20),
        claim("data-web-1").class("fast"),
    ]);
    let mut set = set
        .spec("/replicas", json!(3))
        .pod(mounted("web-2", "old").unready())
        .claim(claim("data-web-2").class("fast"));
    assert_eq!(
        brief(&set.decide()),
        ["~claim data-web-2"],
        "the unavailable pod has the budget; its claim is asked to grow once"
    );
    set = set.rolling(json!({"maxUnavailable": 2}));
    assert_eq!(brief(&set.decide()), ["~claim data-web-2", "~claim data-web-1"]);
}

/// Nothing else happens to a set whose claim waits for its class to be mended.
#[test]
fn sts_3_9_a_class_that_allows_more_than_before_wakes_the_sets_that_follow_their_templates() {
    let class = |allows_expansion| {
        Some(Arc::new(StorageClassRecord {
            meta: pod("slow").build("web").meta,
            allows_expansion,
            is_default: false,
        }))
    };
    let follows = growing([claim("data-web-0").class("slow"), claim("data-web-1").class("slow")]);
    let stays = with_claims(2);
    for (what, set, old, new, expected) in [
        ("mended", &follows, class(false), class(true), &["web"][..]),
        ("it is there now", &follows, None, class(true), &["web"]),
        ("anything else changed", &follows, class(false), class(false), &NOTHING),
        ("nobody follows", &stays, class(false), class(true), &NOTHING),
    ] {
        assert_eq!(told(set, &Change::StorageClass(old, new)), expected, "{what}");
    }
    let mended = follows.class("slow", true).decide();
    assert_eq!(brief(&mended), ["~claim data-web-1"]);
}

#[test]
fn sts_3_9_a_class_must_say_that_it_allows_expansion() {
    for (what, class) in [
        ("says no", Some("slow")),
        ("is not there", Some("gone")),
        ("none", None),
    ] {
        let small = |name: &str| class.map_or_else(|| claim(name), |class| claim(name).class(class));
        let decision = growing([small("data-web-0"), small("data-web-1")]).decide();
        assert_eq!(brief(&decision), NOTHING, "{what}");
        assert!(
            causes(&decision)
                .iter()
                .all(|c| matches!(c, WaitCause::ClaimIncompatible { .. })),
            "{what}"
        );
        assert!(
            decision
                .events
                .iter()
                .all(|e| e.warning && e.reason == "FailedUpdatePVC"),
            "{what}"
        );
        assert_eq!(decision.events.len(), 2, "{what}: one claim's error hides no other's");
    }
}

#[test]
fn sts_3_9_a_pod_older_than_its_grown_volume_is_restarted_within_the_budget() {
    let pending = |name: &str| {
        claim(name)
            .class("fast")
            .size(20)
            .capacity(10)
            .resize_pending_since(NOW - 60)
    };
    assert_eq!(
        brief(&growing([pending("data-web-0"), pending("data-web-1")]).decide()),
        ["-web-1"]
    );
    let restarted = growing([pending("data-web-0"), pending("data-web-1")]).spec("/replicas", json!(3));
    let restarted = restarted.pod(mounted("web-2", "new").created(NOW - 10));
    let decision = restarted
        .claim(
            claim("data-web-2")
                .class("fast")
                .size(20)
                .capacity(10)
                .resize_pending_since(NOW - 60),
        )
        .decide();
    assert_eq!(brief(&decision), ["-web-1"], "web-2 has been restarted since");
}

#[test]
fn sts_3_9_the_counts_of_one_template_do_not_end_at_a_bad_claim() {
    let bad = claim("data-web-0").class("fast").modes("ReadOnlyMany").size(1);
    let good = claim("data-web-1").class("fast").size(20);
    let status = growing([bad, good]).decide().status.expect("a status").desired;
    assert_eq!(
        status["volumeClaims"],
        json!([{"volumeClaimName": "data", "compatibleReplicas": 1, "compatibleReadyReplicas": 1}])
    );
}
