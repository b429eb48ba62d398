//! Whose claims are, of templates that are no more and where there is no pod (table STS-1.4.4, STS-I6).

use super::refused;
use super::storage::{mounted, on_claim, with_claims};
use crate::shared::adoption::controller_ref;
use crate::testing::{Cluster, advanced, brief, claim, native, owner, pod, set_uid};
use flotilla_model::decision::{Command, Scope};
use flotilla_model::{Decision, OwnerRef, Report, Resource, Uid, WaitCause};
use serde_json::{Value, json};

const NOTHING: [&str; 0] = [];

/// Claims that only pods of an old revision mount: the set has the template no more. So long as such a pod is there, they are its claims.
#[test]
fn sts_1_4_4_claims_of_templates_that_are_no_more_follow_the_policy_too() {
    let set_owner = || controller_ref(Resource::AdvancedSets, "web", &set_uid("web"));
    let pod_owner = || controller_ref(Resource::Pods, "web-1", &Uid::new("uid-of-web-1"));
    for (what, replicas, templates) in [
        ("one is left", 2, &["data"][..]),
        ("none is left", 2, &[]),
        ("condemned", 1, &["data"]),
    ] {
        let set = |policy: Value, before: &[OwnerRef]| {
            let old = |name: &str| pod(name).revision("old").mounts(&["data", "logs"]);
            let set = advanced(replicas)
                .claim_templates(templates)
                .rolling(json!({"partition": 2}))
                .spec("/persistentVolumeClaimRetentionPolicy", policy)
                .no_revisions()
                .revision("old", 1, "v1")
                .recording_claims(&["data", "logs"])
                .revision("new", 2, "v2")
                .recording_claims(templates)
                .pod(old("web-0"))
                .pod(old("web-1"));
            let claims = ["data-web-0", "logs-web-0", "data-web-1", "logs-web-1"];
            claims
                .into_iter()
                .fold(set, |set, name| set.claim(claim(name).owners(before.to_vec())))
        };
        let owners = |decision: &Decision, name: &str| {
            let mut commands = decision.commands();
            commands.find_map(|c| match &c.command {
                Command::Patch { key, body, .. } if *key.name == *name => {
                    Some(body["metadata"]["ownerReferences"].clone())
                }
                _ => None,
            })
        };
        let retain = set(json!({}), &[set_owner()]).decide();
        let delete = set(json!({"whenDeleted": "Delete"}), &[]).decide();
        let scaled = set(json!({"whenScaled": "Delete"}), &[]).decide();
        for name in ["data-web-0", "logs-web-0", "data-web-1", "logs-web-1"] {
            assert_eq!(
                owners(&retain, name),
                Some(json!([])),
                "{what}: {name} stays: {:?}",
                brief(&retain)
            );
            assert_eq!(
                owners(&delete, name),
                Some(json!([set_owner().to_json()])),
                "{what}: {name} goes with the set"
            );
            let goes = what == "condemned" && name.ends_with("-1");
            let expected = goes.then(|| json!([pod_owner().to_json()]));
            assert_eq!(
                owners(&scaled, name),
                expected,
                "{what}: {name} goes with a pod that is scaled away"
            );
        }
    }
}

/// A volume of the pod template itself, and a claim that nobody mounts any more, are not given to anybody.
#[test]
fn sts_1_4_4_what_no_template_gave_a_pod_is_not_given_to_the_set() {
    let policy = json!({"whenDeleted": "Delete"});
    let set = |mounts: &[&str]| {
        advanced(1)
            .claim_templates(&["data"])
            .rolling(json!({"partition": 1}))
            .spec("/persistentVolumeClaimRetentionPolicy", policy.clone())
            .no_revisions()
            .revision("old", 1, "v1")
            .recording_claims(&["data", "logs"])
            .revision("new", 2, "v2")
            .recording_claims(&["data"])
            .pod(pod("web-0").revision("old").mounts(mounts))
            .claim(claim("data-web-0"))
            .claim(claim("logs-web-0"))
    };
    assert_eq!(
        brief(&set(&["data", "logs"]).decide()),
        ["~claim data-web-0", "~claim logs-web-0"]
    );
    assert_eq!(
        brief(&set(&["data"]).decide()),
        ["~claim data-web-0"],
        "nobody mounts it"
    );
    let volumes = json!([{"name": "logs", "persistentVolumeClaim": {"claimName": "logs-web-0"}}]);
    let own = set(&["data", "logs"]).spec("/template/spec/volumes", volumes);
    assert!(
        !brief(&own.decide()).contains(&"~claim logs-web-0".to_owned()),
        "it is the user's"
    );
}

/// Under Retain no claim goes with the set, whether or not its pod is there: the set may be deleted at any time, and data with it.
#[test]
fn sts_1_4_4_under_retain_claims_without_a_pod_leave_the_set_too() {
    let set_owner = || controller_ref(Resource::AdvancedSets, "web", &set_uid("web"));
    let set = |set: Cluster, policy: Value| {
        set.spec("/persistentVolumeClaimRetentionPolicy", policy)
            .status("/currentRevision", json!("new"))
            .pod(mounted("web-0", "new"))
            .claim(claim("data-web-0"))
    };
    let owned = |name: &str| claim(name).owners(vec![set_owner()]);
    let behind = |set: Cluster| {
        let mut set = set.ordered();
        set.own_pods.clear();
        set.pod(mounted("web-0", "new").unready())
    };
    let recorded = |set: Cluster| {
        let set = set.no_revisions().revision("old", 1, "v1");
        let set = set.recording_claims(&["data", "logs"]).revision("new", 2, "v2");
        set.recording_claims(&["data"])
    };
    for policy in [json!({}), json!({"whenScaled": "Delete"})] {
        let with = |replicas, name: &str| set(with_claims(replicas), policy.clone()).claim(owned(name));
        for (what, set, expected) in [
            ("scaled away", with(1, "data-web-7"), vec!["~claim data-web-7"]),
            (
                "its pod is yet to come",
                behind(with(2, "data-web-1")),
                vec!["~claim data-web-1"],
            ),
            (
                "its template is no more",
                recorded(with(1, "logs-web-7")),
                vec!["~claim logs-web-7"],
            ),
            (
                "nobody mounts it any more",
                recorded(with(1, "logs-web-0")),
                vec!["~claim logs-web-0"],
            ),
            ("another set's", with(1, "data-other-7"), vec![]),
            ("no ordinal", with(1, "data-web-07"), vec![]),
            (
                "its template is forgotten, as the history was cut",
                with(1, "cache-web-7"),
                vec!["~claim cache-web-7"],
            ),
            ("no pod's", with(1, "cache"), vec![]),
            ("no template's", with(1, "-web-7"), vec![]),
        ] {
            assert_eq!(brief(&set.decide()), expected, "{what}");
        }
        let backs_off = refused(with(1, "data-web-7"), Scope::Slot(7), Report::Update, "Forbidden").decide();
        assert_eq!(brief(&backs_off), NOTHING);
        assert!(backs_off.wake_after.is_some(), "it is tried again");
        let both = owned("data-web-7").owners(vec![owner("v1", "ConfigMap", "mine", "m-uid"), set_owner()]);
        let both = set(with_claims(1), policy.clone()).claim(both).decide();
        let left = on_claim(&both).map(|b| b["metadata"]["ownerReferences"][0]["name"].clone());
        assert_eq!(left, Some(json!("mine")), "what others put there stays");
    }
    let goes = set(with_claims(1), json!({"whenDeleted": "Delete"})).claim(owned("data-web-7"));
    assert_eq!(
        brief(&goes.decide()),
        ["~claim data-web-0"],
        "under Delete it goes with the set"
    );
    let gone = set(with_claims(1), json!({})).claim(owned("data-web-7").terminating());
    assert_eq!(brief(&gone.decide()), NOTHING, "nobody keeps what is under deletion");
}

/// The garbage collector takes a claim away whose owners are all gone, however late it is: no pod is made on it as it is. Where the policy of
/// now wants no such owner it is taken off first, as the claim was seen; where it wants one, the claim goes, and is waited for.
#[test]
fn sts_1_4_4_no_pod_is_made_on_a_claim_that_goes_with_a_former_pod_or_set() {
    let pod_before = || controller_ref(Resource::Pods, "web-1", &Uid::new("the former web-1"));
    let set_before = || controller_ref(Resource::AdvancedSets, "web", &Uid::new("the former web"));
    let set_now = || controller_ref(Resource::AdvancedSets, "web", &set_uid("web")).to_json();
    let note = || owner("v1", "ConfigMap", "mine", "m-uid");
    let foreign = || owner("example.com/v1", "Pod", "web-1", "another kind");
    let retain = json!({});
    let scaled = json!({"whenScaled": "Delete"});
    let deleted = json!({"whenDeleted": "Delete"});
    let both = json!({"whenScaled": "Delete", "whenDeleted": "Delete"});
    // The policy, who owns the claim, and what is written: none where the claim is waited for.
    let rows: Vec<(&str, &Value, Vec<OwnerRef>, Option<Value>)> = vec![
        ("a pod, Retain", &retain, vec![pod_before()], Some(json!([]))),
        (
            "a pod, with the set",
            &deleted,
            vec![pod_before()],
            Some(json!([set_now()])),
        ),
        ("a pod, scaled", &scaled, vec![pod_before()], None),
        ("a pod, both", &both, vec![pod_before()], None),
        ("a set, Retain", &retain, vec![set_before()], Some(json!([]))),
        ("a set, scaled", &scaled, vec![set_before()], Some(json!([]))),
        ("a set, with the set", &deleted, vec![set_before()], None),
        (
            "a pod and a set",
            &retain,
            vec![pod_before(), set_before()],
            Some(json!([])),
        ),
        (
            "a pod and a set, one of which takes it",
            &deleted,
            vec![pod_before(), set_before()],
            None,
        ),
        (
            "what others own stays",
            &retain,
            vec![note(), pod_before()],
            Some(json!([note().to_json()])),
        ),
    ];
    for (what, policy, owners, written) in rows {
        let set = |set: Cluster| {
            set.spec("/persistentVolumeClaimRetentionPolicy", policy.clone())
                .pod(mounted("web-0", "new"))
        };
        let stale = claim("data-web-1").owners(owners);
        let decision = set(with_claims(2)).claim(stale.clone()).decide();
        let on_stale = decision.commands().find(|c| *c.command.key().name == *"data-web-1");
        let waits = decision.waits.iter().filter(|w| w.subject == "data-web-1");
        let goes: Vec<bool> = waits
            .filter_map(|w| match w.cause {
                WaitCause::ClaimStale { stays, .. } => Some(!stays),
                _ => None,
            })
            .collect();
        assert_eq!(goes, [written.is_none()], "{what}: it is told: {:?}", decision.waits);
        assert!(
            !brief(&decision).iter().any(|c| c == "+web-1@new"),
            "{what}: {:?}",
            brief(&decision)
        );
        let Some(written) = written else {
            assert!(
                on_stale.is_none(),
                "{what}: what goes is left alone: {:?}",
                brief(&decision)
            );
            continue;
        };
        match on_stale.map(|c| &c.command) {
            Some(Command::Patch {
                body, resource_version, ..
            }) => {
                assert_eq!(body["metadata"]["ownerReferences"], written, "{what}");
                assert!(resource_version.is_some(), "{what}: as it was seen, or not at all");
            }
            other => panic!("{what}: {other:?}"),
        }
        // The collector may have been faster.
        let lost = set(with_claims(2)).claim(stale.terminating()).decide();
        assert!(
            !brief(&lost)
                .iter()
                .any(|c| c.ends_with("web-1") || c.contains("+web-1")),
            "{what}: {:?}",
            brief(&lost)
        );
    }
    let left = with_claims(2)
        .pod(mounted("web-0", "new"))
        .claim(claim("data-web-1").owners(vec![foreign()]));
    assert!(
        brief(&left.decide()).contains(&"+web-1@new".to_owned()),
        "an object of another group is no pod of ours"
    );
}

/// A pod that runs on such a claim, since somebody else made it, keeps its data where the policy wants no owner.
#[test]
fn sts_1_4_4_a_claim_of_a_pod_that_is_there_is_taken_from_a_former_pod_or_set_too() {
    let pod_before = || controller_ref(Resource::Pods, "web-0", &Uid::new("the former web-0"));
    let set_before = || controller_ref(Resource::NativeSets, "web", &Uid::new("the former web"));
    for (policy, former, expected) in [
        (json!({}), pod_before(), &["~claim data-web-0"][..]),
        (json!({"whenScaled": "Delete"}), pod_before(), &NOTHING),
        (json!({}), set_before(), &["~claim data-web-0"]),
        (json!({"whenDeleted": "Delete"}), set_before(), &NOTHING),
    ] {
        let set = native(1)
            .claim_templates(&["data"])
            .status("/currentRevision", json!("new"))
            .spec("/persistentVolumeClaimRetentionPolicy", policy.clone())
            .pod(mounted("web-0", "new"))
            .claim(claim("data-web-0").owners(vec![former.clone()]));
        assert_eq!(brief(&set.decide()), expected, "{policy} {former:?}");
    }
}

/// OpenKruise's managers make the set a plain owner. That of a claim without a pod is taken off as any other.
#[test]
fn sts_1_4_4_claims_without_a_pod_leave_a_set_that_owns_them_by_a_plain_reference() {
    for controller in [true, false] {
        let set_owner = OwnerRef {
            uid: set_uid("web"),
            controller,
            ..owner("apps.kruise.io/v1beta1", "StatefulSet", "web", "")
        };
        let owned = |name: &str| claim(name).owners(vec![set_owner.clone()]);
        let set = advanced(1)
            .claim_templates(&["data"])
            .pod(pod("web-0").revision("new").mounts(&["data"]));
        let decision = set.claim(owned("data-web-0")).claim(owned("data-web-1")).decide();
        let mut done = brief(&decision);
        done.sort();
        assert_eq!(
            done,
            ["~claim data-web-0", "~claim data-web-1"],
            "controller: {controller}"
        );
    }
}
