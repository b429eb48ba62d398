//! New pods that do not last (rules 8.5 of StatefulSets, 14.1 and 14.3): they are not made at the speed at which they end.

use super::scaling::created;
use super::{name, one, said};
use crate::testing::{Cluster, clones, template};
use flotilla_api::names;
use flotilla_model::Resource;
use flotilla_model::decision::Command;
use serde_json::json;

/// A set whose template has a label and an annotation that users and controllers put on single pods.
fn marked() -> Cluster {
    let mut template = template("v2");
    template["metadata"]["labels"][names::SPECIFIED_DELETE_LABEL] = json!("true");
    template["metadata"]["labels"][names::LIFECYCLE_STATE_LABEL] = json!("PreparingDelete");
    template["metadata"]["annotations"] = json!({names::REPLACED_BY_UPDATE: "true", "note": "x"});
    let set = clones(2).spec("/template", template.clone());
    set.revision_of("web-marked", 3, &template)
}

/// Each pod would be deleted as soon as it is there, and another made under another name.
#[test]
fn rule_14_1_no_pod_is_born_to_be_deleted() {
    let decision = marked().decide();
    let made = created(&decision);
    assert_eq!(made.len(), 2);
    for pod in made {
        let metadata = &pod["metadata"];
        assert_eq!(metadata["labels"][names::SPECIFIED_DELETE_LABEL], json!(null));
        assert_eq!(metadata["labels"][names::LIFECYCLE_STATE_LABEL], json!("Normal"));
        assert_eq!(metadata["annotations"][names::REPLACED_BY_UPDATE], json!(null));
        assert_eq!(metadata["annotations"]["note"], json!("x"));
    }
    let told = |decision: &flotilla_model::Decision| {
        let events = decision.events.iter();
        let told = events.filter(|e| e.warning && e.reason == "TemplateKeyIgnored");
        told.map(|e| e.message.clone()).collect::<Vec<_>>()
    };
    assert_eq!(told(&decision).len(), 3);
    assert!(
        told(&decision)[0].contains(names::SPECIFIED_DELETE_LABEL),
        "{:?}",
        told(&decision)
    );
    let mut again = marked();
    again.hints = decision.hints.expect("what was told");
    assert_eq!(told(&again.decide()), [] as [&str; 0], "once");
}

/// Nor does an update in place hand it to all pods at once.
#[test]
fn rule_14_1_no_update_in_place_asks_for_the_deletion_of_pods() {
    let set = (0..2).fold(marked(), |set, n| set.pod(one(&name(n), "n")));
    let decision = set
        .spec(
            "/updateStrategy/rollingUpdate/podUpdatePolicy",
            json!("InPlaceIfPossible"),
        )
        .decide();
    let patches = decision.commands().filter_map(|c| match &c.command {
        Command::Patch {
            resource: Resource::Pods,
            body,
            ..
        } => Some(body.to_string()),
        _ => None,
    });
    let patches: Vec<String> = patches.collect();
    assert!(!patches.is_empty(), "{:?}", said(&decision));
    for patch in patches {
        // Slashes are escaped in paths of a patch.
        for (_, asks) in
            [names::SPECIFIED_DELETE_LABEL, names::REPLACED_BY_UPDATE].map(|key| key.split_once('/').expect("a prefix"))
        {
            assert!(!patch.contains(asks), "{patch}");
        }
        assert!(!patch.contains("PreparingDelete"), "{patch}");
    }
}
