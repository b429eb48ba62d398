//! Pods that webhooks of others change on the way are not made again for that, time after time (STS-1.3, STS-1.4.2 and STS-8.6).

use crate::testing::{Cluster, advanced, brief, claim, native, pod};
use flotilla_api::names;
use flotilla_model::records::{Phase, ReadyCondition, VolumeClaim};
use flotilla_model::{Body, Command, PodDraft, PodRecord};
use serde_json::json;
use std::sync::Arc;

const NOTHING: [&str; 0] = [];

type Change = fn(&mut PodRecord);

/// The pod that a set makes, as it comes out of the API server.
fn made(set: &Cluster, change: Change) -> PodRecord {
    let decision = set.decide();
    let mut drafts = decision.commands().filter_map(|c| match &c.command {
        Command::Create {
            body: Body::Pod(draft), ..
        } => Some(draft),
        _ => None,
    });
    let draft: &PodDraft = drafts.next().expect("a pod is made");
    let mut record = pod("web-0").build("web");
    let own = |key: &&'static str| ![names::POD_NAME_LABEL, names::POD_INDEX_LABEL].contains(key);
    let labels = draft
        .labels
        .iter()
        .filter(|(key, _)| own(key))
        .map(|(k, v)| (*k, v.as_str()));
    record.meta.labels = labels.chain([("app", "web")]).collect();
    let volume = |(volume, _): &(Arc<str>, String)| VolumeClaim {
        volume: volume.clone(),
        claim: None,
    };
    record.volumes = Some(Arc::new(draft.claims.iter().map(volume).collect()));
    record.phase = Phase::Running;
    record.ready = ReadyCondition {
        is_true: true,
        since: Some(set.now),
    };
    change(&mut record);
    record
}

fn volumes(record: &mut PodRecord, change: impl FnOnce(&mut Vec<VolumeClaim>)) {
    let mut list = record.volumes.as_deref().cloned().unwrap_or_default();
    change(&mut list);
    record.volumes = Some(Arc::new(list));
}

fn relabel(record: &mut PodRecord, key: &str, value: Option<&str>) {
    let kept: Vec<(String, String)> = record
        .meta
        .labels
        .iter()
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect();
    let others = kept
        .iter()
        .filter(|(k, _)| k != key)
        .map(|(k, v)| (k.as_str(), v.as_str()));
    record.meta.labels = others.chain(value.map(|value| (key, value))).collect();
}

/// What a webhook does, and words about what differs, where something that was asked for does.
const CHANGES: [(&str, Change, Option<&str>); 6] = [
    ("nothing", |_| {}, None),
    (
        "adds a claim that is named as one of a template would be",
        |pod| {
            volumes(pod, |list| {
                list.push(VolumeClaim {
                    volume: "logs".into(),
                    claim: None,
                });
            });
        },
        None,
    ),
    (
        "swaps the claim",
        |pod| volumes(pod, |list| list[0].claim = Some("other".into())),
        Some("volume data does not mount claim data-web-0"),
    ),
    (
        "takes the volume out",
        |pod| volumes(pod, Vec::clear),
        Some("volume data does not mount claim data-web-0"),
    ),
    (
        "swaps the label of the revision",
        |pod| relabel(pod, names::REVISION_LABEL, Some("theirs")),
        Some("label controller-revision-hash is \"theirs\""),
    ),
    (
        "takes the label of the revision away",
        |pod| relabel(pod, names::REVISION_LABEL, None),
        Some("label controller-revision-hash is missing"),
    ),
];

fn with_data(set: Cluster) -> Cluster {
    set.claim_templates(&["data"]).status("/currentRevision", json!("new"))
}

#[test]
fn sts_1_4_2_what_webhooks_make_of_a_new_pod_is_left_so_and_told() {
    for set in [
        with_data(advanced(1)),
        with_data(native(1)),
        with_data(advanced(1)).ordered(),
    ] {
        for (what, change, differs) in CHANGES {
            let set = set.clone().pod_record(made(&set, change)).claim(claim("data-web-0"));
            let decision = set.decide();
            assert_eq!(brief(&decision), NOTHING, "{what}: {:?}", set.kind);
            let waits: Vec<String> = decision.waits.iter().map(|w| w.cause.to_string()).collect();
            assert_eq!(waits.len(), usize::from(differs.is_some()), "{what}: {waits:?}");
            assert!(
                waits.iter().zip(differs).all(|(wait, words)| wait.ends_with(words)),
                "{what}: {waits:?}"
            );
            assert_eq!(decision.events.len(), waits.len(), "{what}: {:?}", decision.events);
            let status = decision.status.expect("a status").desired;
            assert_eq!(status["updatedReplicas"], 1, "{what}");
        }
    }
}

#[test]
fn sts_8_6_a_change_of_the_templates_still_makes_pods_again_once() {
    let old = with_data(advanced(1));
    for (what, change, _) in CHANGES {
        for templates in [vec!["data", "logs"], vec![]] {
            let pod = made(&old, change);
            let set = advanced(1)
                .claim_templates(&templates)
                .status("/currentRevision", json!("new"));
            let changed = set.clone().pod_record(pod).claim(claim("data-web-0"));
            let changed = changed.claim(claim("logs-web-0"));
            assert_eq!(brief(&changed.decide()), ["-web-0"], "{what}, to {templates:?}");
            let again = set.clone().pod_record(made(&set, |_| {}));
            assert_eq!(brief(&again.decide()), NOTHING, "{what}, to {templates:?}");
        }
    }
}

#[test]
fn sts_2_5_a_pod_whose_label_was_changed_is_updated_like_others() {
    let before = with_data(advanced(1));
    let pod = made(&before, |pod| relabel(pod, names::REVISION_LABEL, None));
    let mut set = before
        .no_revisions()
        .revision("new", 1, "v1")
        .revision("newer", 2, "v2");
    set.hints.accepted.insert("newer_data".to_owned());
    assert_eq!(
        brief(&set.pod_record(pod).claim(claim("data-web-0")).decide()),
        ["-web-0"]
    );
}
