//! Replacing old pods: order, budget, partition, deletion on request (STS-2.5, STS-2.6, STS-3.7, STS-3.8).

use crate::testing::{Cluster, NOW, advanced, brief, native, pod};
use flotilla_model::WaitCause;
use flotilla_model::records::Phase;
use serde_json::{Value, json};

const NOTHING: [&str; 0] = [];

fn old(name: &str) -> crate::testing::PodFixture {
    pod(name).revision("old")
}

fn asked(name: &str) -> crate::testing::PodFixture {
    pod(name).revision("new").label("apps.kruise.io/specified-delete", "")
}

#[test]
fn sts_2_5_the_classic_walk_takes_one_from_the_top_and_ends_at_what_is_down() {
    let set = || native(4);
    assert_eq!(brief(&set().pods(0..4, "old").decide()), ["-web-3"]);
    assert_eq!(
        brief(
            &set()
                .pods(0..3, "old")
                .pod(pod("web-3").revision("new").unready())
                .decide()
        ),
        NOTHING
    );
    assert_eq!(
        brief(&set().pods(0..3, "old").pod(old("web-3").terminating()).decide()),
        NOTHING
    );
    assert_eq!(
        brief(&set().pods(0..3, "old").pod(old("web-3").unready()).decide()),
        ["-web-3"],
        "an old one that is down"
    );
    let broken_below = set().pod(old("web-0").unready()).pods([1, 2], "old").pods([3], "new");
    assert_eq!(
        brief(&broken_below.decide()),
        ["-web-2"],
        "broken ones below do not hold it up"
    );
    let part = set()
        .rolling(json!({"partition": 3}))
        .pods(0..3, "old")
        .pods([3], "new");
    assert_eq!(brief(&part.decide()), NOTHING);
}

#[test]
fn sts_2_5_and_8_2_parallel_within_a_budget_takes_broken_ones_first_and_free() {
    for set in [
        advanced(5).rolling(json!({"maxUnavailable": 2})),
        native(5).rolling(json!({"maxUnavailable": 2})),
    ] {
        assert_eq!(brief(&set.clone().pods(0..5, "old").decide()), ["-web-4", "-web-3"]);
        let broken = set
            .clone()
            .pods([2, 3, 4], "old")
            .pod(old("web-0").unready())
            .pod(old("web-1").never_ready());
        assert_eq!(
            brief(&broken.decide()),
            ["-web-1", "-web-0"],
            "they have the budget already"
        );
        let one = set.clone().pods([1, 2, 3, 4], "old").pod(old("web-0").unready());
        assert_eq!(brief(&one.decide()), ["-web-0", "-web-4"]);
        let updated = set
            .pods([0, 1, 2], "old")
            .pod(pod("web-3").revision("new").unready())
            .pods([4], "new");
        assert_eq!(
            brief(&updated.decide()),
            ["-web-2"],
            "a starting pod uses budget and is left alone"
        );
    }
}

#[test]
fn sts_8_2_broken_pods_below_the_partition_use_the_budget_and_stay() {
    let set = advanced(4)
        .rolling(json!({"partition": 2}))
        .pods([1, 2, 3], "old")
        .pod(old("web-0").unready());
    assert_eq!(brief(&set.decide()), NOTHING);
    assert_eq!(
        brief(
            &set.clone()
                .rolling(json!({"partition": 2, "maxUnavailable": 2}))
                .decide()
        ),
        ["-web-3"]
    );
}

#[test]
fn sts_3_7_budgets_round_down_and_are_at_least_one() {
    for (budget, expected) in [
        (json!("50%"), 2),
        (json!("49%"), 1),
        (json!("1%"), 1),
        (json!("0%"), 1),
        (json!("100%"), 4),
        (json!(9), 4),
    ] {
        let set = advanced(4).rolling(json!({"maxUnavailable": budget})).pods(0..4, "old");
        assert_eq!(brief(&set.decide()).len(), expected, "{budget}");
    }
    let ordered = advanced(4)
        .ordered()
        .rolling(json!({"maxUnavailable": 3}))
        .pods(0..4, "old");
    assert_eq!(
        brief(&ordered.decide()),
        ["-web-3"],
        "OrderedReady: one, whatever is stored"
    );
}

#[test]
fn sts_3_7_those_on_their_way_out_are_counted_and_not_deleted_again() {
    let set = advanced(4)
        .rolling(json!({"maxUnavailable": 2}))
        .pods([0, 1, 2], "old")
        .pod(old("web-3").terminating());
    assert_eq!(brief(&set.decide()), ["-web-2"]);
}

#[test]
fn sts_3_7_a_new_target_is_taken_up_at_once() {
    let mut set = advanced(3)
        .revision("newer", 3, "v3")
        .spec("/template", crate::testing::template("v3"));
    set.hints.accepted.insert("newer".to_owned());
    let set = set.pods([0, 1], "old").pod(pod("web-2").revision("new").never_ready());
    assert_eq!(
        brief(&set.decide()),
        ["-web-2"],
        "a pod of an older target does not hold the budget"
    );
}

#[test]
fn sts_3_6_and_3_7_unordered_keeps_as_many_as_the_partition_says_whatever_is_on_its_way() {
    let set = |partition: i32, budget: i32| {
        advanced(4).rolling(json!({"partition": partition, "maxUnavailable": budget, "unorderedUpdate": {}}))
    };
    assert_eq!(brief(&set(2, 4).pods(0..4, "old").decide()), ["-web-3", "-web-2"]);
    let gone = set(2, 4).pods([0, 1], "old");
    assert_eq!(
        brief(&gone.decide()),
        ["+web-2@new", "+web-3@new"],
        "two are being replaced, two stay"
    );
    let leaving = set(2, 4)
        .pods([0, 1], "old")
        .pod(old("web-2").terminating())
        .pod(old("web-3").terminating());
    assert_eq!(brief(&leaving.decide()), NOTHING);
    let ended = set(1, 4)
        .pods([0], "old")
        .pod(old("web-1").phase(Phase::Failed))
        .pods([2, 3], "new");
    assert_eq!(
        brief(&ended.decide()),
        ["-web-1"],
        "one that has ended goes by itself, and the other stays"
    );
    let updated_low = set(2, 1).pods([0, 1], "new").pods([2, 3], "old");
    assert_eq!(brief(&updated_low.decide()), NOTHING, "those that are updated count");
    let ordered = set(2, 1).ordered().pods(0..4, "old");
    assert_eq!(brief(&ordered.decide()), ["-web-3"], "only with Parallel");
}

#[test]
fn sts_3_7_unordered_takes_the_unavailable_first_inside_one_rank() {
    let by_weight = json!({"weightPriority": [{"weight": 10, "matchSelector": {"matchLabels": {"tier": "a"}}}]});
    let set = |strategy: Value| {
        advanced(4).rolling(json!({"partition": 3, "maxUnavailable": 4, "unorderedUpdate": strategy}))
    };
    let pods = |set: Cluster| set.pods([1, 2, 3], "old").pod(old("web-0").unready());
    assert_eq!(brief(&pods(set(json!({}))).decide()), ["-web-0"]);
    let weighted = set(json!({"priorityStrategy": by_weight}))
        .pod(old("web-0").unready())
        .pods([1, 3], "old");
    let weighted = weighted.pod(old("web-2").label("tier", "a"));
    assert_eq!(brief(&weighted.decide()), ["-web-2"], "rank comes first");
}

#[test]
fn sts_3_2_and_8_19_priority_strategies_order_the_walk_and_a_bad_one_is_told() {
    let set = |strategy: Value| {
        let rolling = json!({"maxUnavailable": 2, "unorderedUpdate": {"priorityStrategy": strategy}});
        advanced(4)
            .rolling(rolling)
            .pods([3], "old")
            .pod(old("web-0").label("shard", "s-1"))
            .pod(old("web-1").label("shard", "s-9"))
            .pods([2], "old")
    };
    let keys = json!({"orderPriority": [{"orderedKey": "shard"}]});
    assert_eq!(
        brief(&set(keys).decide()),
        ["-web-1", "-web-0"],
        "the highest number first; those without the key last"
    );
    let zero = json!({"weightPriority": [{"weight": 0, "matchSelector": {"matchLabels": {"shard": "s-1"}}}]});
    assert_eq!(set(zero).decide().events, [], "weight 0 is accepted");
    for bad in [
        json!({"weightPriority": [{"weight": 101, "matchSelector": {"matchLabels": {"a": "b"}}}]}),
        json!({"weightPriority": [{"weight": 1, "matchSelector": {}}]}),
        json!({"orderPriority": [{"orderedKey": ""}]}),
        json!({"orderPriority": [{"orderedKey": "a"}], "weightPriority": [{"weight": 1, "matchSelector": {"matchLabels": {"a": "b"}}}]}),
    ] {
        let decision = set(bad.clone()).decide();
        assert_eq!(brief(&decision), ["-web-3", "-web-2"], "{bad}: as if there were none");
        assert_eq!(decision.events.len(), 1, "{bad}");
    }
}

#[test]
fn sts_3_8_deletion_on_request_in_every_strategy_also_paused_and_held_up() {
    let rows: Vec<(&str, Cluster, Vec<&str>)> = vec![
        (
            "rolling",
            advanced(2).pods([0], "new").pod(asked("web-1")),
            vec!["-web-1"],
        ),
        (
            "paused",
            advanced(2)
                .rolling(json!({"paused": true}))
                .pods([0], "old")
                .pod(asked("web-1")),
            vec!["-web-1"],
        ),
        (
            "OnDelete",
            advanced(2)
                .spec("/updateStrategy/type", json!("OnDelete"))
                .pods([0], "old")
                .pod(asked("web-1")),
            vec!["-web-1"],
        ),
        (
            "below the partition",
            advanced(2)
                .rolling(json!({"partition": 2}))
                .pods([1], "old")
                .pod(asked("web-0")),
            vec!["-web-0"],
        ),
        (
            "the very pod that holds up the order",
            advanced(2).ordered().pod(asked("web-0").unready()).pods([1], "new"),
            vec!["-web-0"],
        ),
        (
            "another while the order is held up",
            advanced(2)
                .ordered()
                .pod(pod("web-0").revision("new").unready())
                .pod(asked("web-1")),
            vec![],
        ),
        (
            "beyond the budget",
            advanced(3).pods([0], "new").pod(asked("web-1")).pod(asked("web-2")),
            vec!["-web-2"],
        ),
        (
            "skips, does not stop",
            advanced(3)
                .pods([0], "new")
                .pod(asked("web-1").unready())
                .pod(asked("web-2")),
            vec!["-web-1"],
        ),
        (
            "unavailable: free",
            advanced(2).pod(asked("web-0").unready()).pod(asked("web-1").unready()),
            vec!["-web-1", "-web-0"],
        ),
        (
            "not wanted: scaled down",
            advanced(0).pod(asked("web-0")),
            vec!["-web-0"],
        ),
        (
            "a native set knows no such label",
            native(1).pod(asked("web-0")),
            vec![],
        ),
    ];
    for (what, cluster, expected) in rows {
        assert_eq!(
            brief(&cluster.status("/currentRevision", json!("new")).decide()),
            expected,
            "{what}"
        );
    }
}

#[test]
fn sts_3_8_deletion_on_request_and_the_update_share_one_budget() {
    let set = advanced(3)
        .rolling(json!({"maxUnavailable": 1}))
        .pods([1, 2], "old")
        .pod(asked("web-0"));
    let decision = set.decide();
    assert_eq!(brief(&decision), ["-web-0"]);
    assert!(decision.waits.iter().any(|w| w.cause
        == WaitCause::UpdateBudget {
            budget: 1,
            used_by: vec!["web-0".into()]
        }));
}

#[test]
fn sts_3_2_paused_stops_the_update_and_nothing_else() {
    let set = advanced(3).rolling(json!({"paused": true})).pods([0, 7], "old");
    assert_eq!(brief(&set.decide()), ["+web-1@new", "+web-2@new", "-web-7"]);
    let decision = advanced(2).rolling(json!({"paused": true})).pods(0..2, "old").decide();
    assert_eq!(brief(&decision), NOTHING);
}

#[test]
fn sts_1_5_a_pod_in_a_lifecycle_state_other_than_normal_is_not_available_in_an_advanced_set() {
    let state = |set: Cluster, state: &str| {
        let label = "lifecycle.apps.kruise.io/state";
        set.rolling(json!({"maxUnavailable": 1}))
            .pods([0], "old")
            .pod(pod("web-1").revision("new").label(label, state))
    };
    assert_eq!(brief(&state(advanced(2), "PreparingNormal").decide()), NOTHING);
    assert_eq!(brief(&state(advanced(2), "Normal").decide()), ["-web-0"]);
    assert_eq!(brief(&state(native(2), "PreparingNormal").decide()), ["-web-0"]);
}

#[test]
fn r_18_a_special_pod_that_differs_in_resources_only_counts_as_updated() {
    let with = |image: &str, cpu: &str| {
        let mut template = crate::testing::template(image);
        template["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": cpu}});
        template
    };
    let set = |selectors: Value| {
        let set = advanced(3)
            .no_revisions()
            .revision_of("old", 1, &with("v2", "1"))
            .revision_of("older", 0, &with("v1", "1"));
        let set = set
            .revision_of("new", 2, &with("v2", "2"))
            .spec("/template", with("v2", "2"))
            .spec("/specialPodsSelectors", selectors);
        let special = |name: &str, revision: &str| pod(name).revision(revision).label("size", "large");
        set.rolling(json!({"maxUnavailable": 3}))
            .pod(special("web-0", "old"))
            .pod(special("web-1", "older"))
            .pods([2], "old")
    };
    let selectors = json!([{"matchLabels": {"size": "large"}}]);
    assert_eq!(
        brief(&set(selectors.clone()).decide()),
        ["-web-2", "-web-1"],
        "web-1 differs in its image too"
    );
    assert_eq!(
        set(selectors).decide().status.expect("a status").desired["updatedReplicas"],
        json!(1)
    );
    let unreadable = set(json!([{"matchLabels": {"size": 7}}, {}])).decide();
    assert_eq!(
        brief(&unreadable),
        ["-web-2", "-web-1", "-web-0"],
        "an unreadable selector matches nothing"
    );
    assert_eq!(unreadable.events.len(), 2);
}

/// Seen: minReadySeconds was raised together with the template, and all pods, ready and serving, went at once.
#[test]
fn sts_3_7_of_pods_that_are_ready_and_not_available_yet_no_more_go_than_the_budget_allows() {
    let young = |name: usize| old(&format!("web-{name}")).ready_since(NOW - 20);
    let set = |policy: Value| {
        let set = advanced(4)
            .rolling(json!({"maxUnavailable": 2, "minReadySeconds": 60}))
            .rolling(policy);
        set.pod(young(0)).pod(young(1)).pod(young(2))
    };
    let plain = || json!({"maxUnavailable": 2, "minReadySeconds": 60});
    for (what, cluster, expected) in [
        ("all serve", set(plain()).pod(young(3)), &["-web-3", "-web-2"][..]),
        (
            "one serves nobody, and goes for nothing",
            set(plain()).pod(old("web-3").unready()),
            &["-web-3", "-web-2"],
        ),
        (
            "the budget is used up",
            set(json!({"maxUnavailable": 1, "minReadySeconds": 60})).pod(old("web-3").terminating()),
            &NOTHING,
        ),
    ] {
        assert_eq!(brief(&cluster.decide()), expected, "{what}");
    }
    let specified = |name: usize| asked(&format!("web-{name}")).ready_since(NOW - 20);
    let kept = json!({"maxUnavailable": 1, "minReadySeconds": 60, "partition": 3});
    let cluster = advanced(3)
        .rolling(kept)
        .pod(specified(0))
        .pod(specified(1))
        .pod(specified(2));
    assert_eq!(brief(&cluster.decide()), ["-web-2"], "asked for by label");
}

/// Seen: a claim's owner was refused of each pod, and the lowest, whose turn to be tried came first, went before those above it.
#[test]
fn r_2_where_pods_go_in_order_those_below_wait_for_one_that_was_refused() {
    let set = native(3).rolling(json!({"maxUnavailable": 3})).pods(0..3, "old");
    let refused = |set: Cluster| {
        let scope = flotilla_model::Scope::Slot(2);
        super::refused(set, scope, flotilla_model::Report::Silent, "Forbidden")
    };
    let in_order = set.clone().spec("/podManagementPolicy", json!("OrderedReady"));
    assert_eq!(brief(&refused(in_order).decide()), NOTHING);
    let parallel = set.spec("/podManagementPolicy", json!("Parallel"));
    assert_eq!(brief(&refused(parallel).decide()), ["-web-1", "-web-0"]);
}
