//! CloneSets: conversion loses nothing (CS-8), defaults (CS-7) and verdicts (CS-6) are those of the rule book.

use crate::clone_cases;
use crate::world::{World, refusal, request, with};
use flotilla_admission::{NamedPod, Reply, Verdict, apply, convert, mutate, validate};
use flotilla_api::{messages, names};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

pub(crate) const ALPHA: &str = "apps.kruise.io/v1alpha1";
const BETA: &str = "apps.kruise.io/v1beta1";

pub(crate) fn clones() -> Value {
    json!({
        "apiVersion": BETA,
        "kind": "CloneSet",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "web:1"}]}},
        },
    })
}

fn to(object: &Value, version: &str) -> Value {
    convert(vec![object.clone()], version).expect("a CloneSet").remove(0)
}

fn spec(object: &Value) -> &Value {
    &object["spec"]
}

#[test]
fn cs_8_each_row_of_the_table() {
    // Fields of v1beta1, and what v1alpha1 has for them.
    let rolling = |more: Value| {
        let mut rolling = json!({"podUpdatePolicy": "ReCreate"});
        for (field, value) in more.as_object().expect("fields") {
            rolling[field] = value.clone();
        }
        json!({"type": "RollingUpdate", "rollingUpdate": rolling})
    };
    for (beta, alpha) in [
        (
            json!({"type": "RollingUpdate", "rollingUpdate": {"podUpdatePolicy": "InPlaceOnly"}}),
            json!({"type": "InPlaceOnly"}),
        ),
        (rolling(json!({})), json!({"type": "ReCreate"})),
        (
            rolling(json!({"partition": "20%", "maxUnavailable": 2, "maxSurge": 1, "paused": true})),
            json!({"type": "ReCreate", "partition": "20%", "maxUnavailable": 2, "maxSurge": 1, "paused": true}),
        ),
        (
            rolling(
                json!({"scatterStrategy": [{"key": "a", "value": "b"}], "priorityStrategy": {"orderPriority": [{"orderedKey": "k"}]}}),
            ),
            json!({"type": "ReCreate", "scatterStrategy": [{"key": "a", "value": "b"}],
                "priorityStrategy": {"orderPriority": [{"orderedKey": "k"}]}}),
        ),
        (
            rolling(json!({"inPlaceUpdateStrategy": {"gracePeriodSeconds": 5}})),
            json!({"type": "ReCreate", "inPlaceUpdateStrategy": {"gracePeriodSeconds": 5}}),
        ),
        (json!({"type": "OnDelete"}), json!({"type": "OnDelete"})),
        (
            json!({"type": "OnDelete", "rollingUpdate": {"maxSurge": 1}}),
            json!({"type": "OnDelete", "maxSurge": 1}),
        ),
    ] {
        let hub = with(clones(), &[("/spec/updateStrategy", beta.clone())]);
        let down = to(&hub, ALPHA);
        assert_eq!(spec(&down)["updateStrategy"], alpha);
        assert_eq!(spec(&to(&down, BETA))["updateStrategy"], beta);
    }
    for (alpha, policy) in [(json!({}), "ReCreate"), (json!({"type": "Unheard"}), "ReCreate")] {
        let old = with(
            clones(),
            &[("/apiVersion", json!(ALPHA)), ("/spec/updateStrategy", alpha)],
        );
        assert_eq!(
            spec(&to(&old, BETA))["updateStrategy"]["rollingUpdate"]["podUpdatePolicy"],
            policy
        );
    }
}

#[test]
fn cs_8_reuse_of_claims_has_opposite_defaults() {
    let old = with(clones(), &[("/apiVersion", json!(ALPHA))]);
    assert_eq!(spec(&to(&old, BETA))["scaleStrategy"]["enablePVCReuse"], true);
    assert_eq!(
        to(&to(&old, BETA), ALPHA),
        old,
        "what the older version leaves out stays out"
    );
    assert_eq!(spec(&to(&clones(), ALPHA))["scaleStrategy"]["disablePVCReuse"], true);
    let hub = with(clones(), &[("/spec/scaleStrategy", json!({"enablePVCReuse": true}))]);
    assert_eq!(to(&hub, ALPHA)["spec"].get("scaleStrategy"), None);
}

#[test]
fn cs_8_labels_and_annotations_stand_for_fields() {
    let scale = json!({"enablePVCReuse": true, "excludePreparingDelete": true});
    let hub = with(clones(), &[("/spec/scaleStrategy", scale)]);
    let down = to(&hub, ALPHA);
    assert_eq!(down["metadata"]["labels"][names::EXCLUDE_PREPARING_DELETE], "true");
    assert_eq!(to(&down, BETA), hub);
    let off = json!({names::EXCLUDE_PREPARING_DELETE: "true", "kept": "yes"});
    let off = with(clones(), &[("/metadata/labels", off)]);
    assert_eq!(
        to(&off, ALPHA)["metadata"]["labels"],
        json!({"kept": "yes"}),
        "false removes it"
    );

    let annotations = json!({
        names::PRE_DOWNLOAD_PARALLELISM: "20%", names::PRE_DOWNLOAD_TIMEOUT: "60", names::PRE_DOWNLOAD_MIN_UPDATED_READY: "10%",
    });
    let leftover = json!({"imagePreDownloadTimeoutSeconds": 1, "imagePreDownloadMinUpdatedReadyPods": 7});
    let old = with(
        clones(),
        &[
            ("/apiVersion", json!(ALPHA)),
            ("/metadata/annotations", annotations),
            (
                "/spec/updateStrategy",
                json!({"type": "InPlaceOnly", "inPlaceUpdateStrategy": leftover}),
            ),
        ],
    );
    let up = to(&old, BETA);
    assert_eq!(
        spec(&up)["updateStrategy"]["rollingUpdate"]["inPlaceUpdateStrategy"],
        json!({"imagePreDownloadParallelism": "20%", "imagePreDownloadTimeoutSeconds": 60, "imagePreDownloadMinUpdatedReadyPods": 7}),
        "the annotation decides; what is only a leftover is taken"
    );
    assert_eq!(
        up["metadata"]["annotations"],
        json!({names::PRE_DOWNLOAD_MIN_UPDATED_READY: "10%"}),
        "what cannot be a field stays"
    );
    let down = to(&up, ALPHA);
    assert_eq!(down["metadata"]["annotations"][names::PRE_DOWNLOAD_TIMEOUT], "60");
    assert_eq!(down["metadata"]["annotations"][names::PRE_DOWNLOAD_PARALLELISM], "20%");
}

#[test]
fn r_13_the_policy_under_on_delete_travels_in_the_annotation() {
    let strategy = json!({"type": "OnDelete", "rollingUpdate": {"podUpdatePolicy": "InPlaceOnly", "maxSurge": 1}});
    let hub = with(
        clones(),
        &[
            ("/spec/updateStrategy", strategy),
            ("/spec/scaleStrategy", json!({"enablePVCReuse": true})),
        ],
    );
    let down = to(&hub, ALPHA);
    let kept = down["metadata"]["annotations"][names::HUB_FIELDS]
        .as_str()
        .expect("it is kept");
    assert_eq!(
        serde_json::from_str::<Value>(kept).expect("JSON"),
        json!({"updateStrategy": {"rollingUpdate": {"podUpdatePolicy": "InPlaceOnly"}}})
    );
    assert_eq!(to(&down, BETA), hub);
    let changed = with(down, &[("/spec/updateStrategy/type", json!("ReCreate"))]);
    assert_eq!(
        spec(&to(&changed, BETA))["updateStrategy"]["rollingUpdate"]["podUpdatePolicy"],
        "ReCreate",
        "its value wins"
    );
}

fn share() -> impl Strategy<Value = Value> {
    prop_oneof![
        (0..9_i32).prop_map(|n| json!(n)),
        (0..100_i32).prop_map(|p| json!(format!("{p}%")))
    ]
}

fn some(fields: Vec<(&'static str, Option<Value>)>) -> Value {
    let there = fields
        .into_iter()
        .filter_map(|(field, value)| Some((field.to_owned(), value?)));
    Value::Object(there.collect::<Map<_, _>>())
}

/// A hub object with everything that has no default spelled out, as the API server stores one.
fn hub() -> impl Strategy<Value = Value> {
    use prop::option::of;
    let policy = prop_oneof![Just("ReCreate"), Just("InPlaceIfPossible"), Just("InPlaceOnly")];
    let in_place =
        (of(0..9_i32), of(share()), of(0..9_i32), of(0..9_i32)).prop_map(|(grace, parallel, seconds, pods)| {
            some(vec![
                ("gracePeriodSeconds", grace.map(Value::from)),
                ("imagePreDownloadParallelism", parallel),
                ("imagePreDownloadTimeoutSeconds", seconds.map(Value::from)),
                ("imagePreDownloadMinUpdatedReadyPods", pods.map(Value::from)),
            ])
        });
    let rolling = (
        of(share()),
        of(share()),
        of(share()),
        of(any::<bool>()),
        policy,
        of(in_place),
    )
        .prop_map(|(partition, unavailable, surge, paused, policy, in_place)| {
            some(vec![
                ("partition", partition),
                ("maxUnavailable", unavailable),
                ("maxSurge", surge),
                ("paused", paused.map(Value::from)),
                ("podUpdatePolicy", Some(json!(policy))),
                ("inPlaceUpdateStrategy", in_place),
            ])
        });
    let kind = prop_oneof![Just("RollingUpdate"), Just("OnDelete")];
    let scale = (any::<bool>(), any::<bool>(), of(share()));
    (of((kind, rolling)), scale, of(0..9_i32)).prop_map(|(strategy, (reuses, excludes, budget), replicas)| {
        let mut set = clones();
        if let Some((kind, rolling)) = strategy {
            set["spec"]["updateStrategy"] = json!({"type": kind, "rollingUpdate": rolling});
        }
        set["spec"]["scaleStrategy"] = some(vec![
            ("enablePVCReuse", Some(json!(reuses))),
            ("excludePreparingDelete", excludes.then_some(json!(true))),
            ("maxUnavailable", budget),
        ]);
        if let Some(replicas) = replicas {
            set["spec"]["replicas"] = json!(replicas);
        }
        set["status"] = json!({"replicas": 3, "conditions": []});
        set
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn cs_8_hub_to_alpha_and_back_is_the_identity(hub in hub()) {
        let before = hub.clone();
        let down = to(&hub, ALPHA);
        prop_assert_eq!(&hub, &before, "conversion never changes its input");
        let again = to(&down, BETA);
        prop_assert_eq!(&again, &hub);
        prop_assert_eq!(to(&again, ALPHA), down, "and the other way round");
    }
}

fn judged(reply: Reply) -> Result<Vec<String>, String> {
    match reply.verdict {
        Verdict::Deny(refusal) => Err(refusal.message),
        Verdict::Allow | Verdict::Mutate(_) => Ok(reply.warnings),
    }
}

fn verdict(object: &Value, old: Option<&Value>) -> Result<Vec<String>, String> {
    verdict_of(object, old, &World::default())
}

fn verdict_of(object: &Value, old: Option<&Value>, world: &World) -> Result<Vec<String>, String> {
    judged(validate(&request(Some(object), old), world))
}

#[test]
fn switches_hold_what_the_table_says() {
    for (key, good, bad) in [
        (names::PARTITION_ROLLBACK, &["true"][..], &["yes", "false"][..]),
        (names::SURGE_IN_PLACE, &["true"], &["1"]),
        (names::RECREATE_ON_CLAIM_CHANGE, &["true"], &[""]),
        (names::KEEP_CLAIMS_ON_RECREATE, &["true"], &["True"]),
        (names::ADOPT_ORPHANS, &["true"], &["all"]),
        (names::FINISHED_PODS, &["keep", "delete"], &["true"]),
        (names::PRE_DOWNLOAD_RECREATE, &["true"], &["on"]),
        (names::IN_PLACE_DEADLINE_SECONDS, &["1"], &["0"]),
        (names::IN_PLACE_DEADLINE_ACTION, &["report", "recreate"], &["restart"]),
        (names::KEEP_READY_CONTAINERS, &["main"], &["Main"]),
        (names::RESIZE_WAIT_SECONDS, &["0"], &["5m"]),
    ] {
        let with_value = |value: &&str| {
            let path = format!("/metadata/annotations/{}", key.replace('/', "~1"));
            verdict(&with(clones(), &[(&path, json!(value))]), None)
        };
        for value in good {
            assert!(with_value(value).is_ok(), "{key}={value}: {:?}", with_value(value));
        }
        for value in bad {
            let message = with_value(value).expect_err(key);
            assert!(message.contains(key) && message.contains("must be"), "{message}");
        }
    }
}

#[test]
fn cs_6_what_is_refused_and_what_is_not() {
    let rolling = |field: &str, value: Value| {
        with(
            clones(),
            &[(&format!("/spec/updateStrategy/rollingUpdate/{field}"), value)],
        )
    };
    let at = |path: &str, value: Value| with(clones(), &[(path, value)]);
    for (set, refusal) in [
        (rolling("partition", json!("33.3%")), None),
        (rolling("partition", json!("5")), Some(messages::PARTITION)),
        (rolling("maxUnavailable", json!("-1%")), Some(messages::MAX_UNAVAILABLE)),
        (rolling("maxSurge", json!("much")), Some(messages::MAX_SURGE)),
        (rolling("maxUnavailable", json!(0)), Some(messages::NOTHING_MOVES)),
        (
            with(rolling("maxUnavailable", json!("0%")), &[("/spec/replicas", json!(0))]),
            None,
        ),
        (
            with(
                rolling("maxUnavailable", json!(0)),
                &[("/spec/updateStrategy/rollingUpdate/maxSurge", json!(1))],
            ),
            None,
        ),
        (
            with(
                rolling("podUpdatePolicy", json!("InPlaceOnly")),
                &[("/spec/updateStrategy/rollingUpdate/maxSurge", json!(1))],
            ),
            Some(messages::SURGE_IN_PLACE_ONLY),
        ),
        (
            rolling("podUpdatePolicy", json!("Never")),
            Some(messages::POD_UPDATE_POLICY),
        ),
        (
            rolling(
                "scatterStrategy",
                json!([{"key": "a", "value": "b"}, {"key": "a", "value": "b"}]),
            ),
            Some(messages::SCATTER),
        ),
        (
            rolling("scatterStrategy", json!([{"key": "", "value": "b"}])),
            Some(messages::SCATTER),
        ),
        (
            rolling(
                "scatterStrategy",
                json!([{"key": "a", "value": "b"}, {"key": "a", "value": "c"}]),
            ),
            None,
        ),
        (
            rolling("inPlaceUpdateStrategy", json!({"imagePreDownloadParallelism": "5"})),
            None,
        ),
        (
            rolling("inPlaceUpdateStrategy", json!({"imagePreDownloadParallelism": "10%"})),
            None,
        ),
        (
            rolling("inPlaceUpdateStrategy", json!({"imagePreDownloadParallelism": "x"})),
            Some(messages::CLONE_PRE_DOWNLOAD),
        ),
        (
            rolling(
                "priorityStrategy",
                json!({"orderPriority": [{"orderedKey": "a"}], "weightPriority": [{"weight": 1, "matchSelector": {"matchLabels": {"a": "b"}}}]}),
            ),
            Some(messages::PRIORITY_ONE_OF),
        ),
        (
            rolling(
                "priorityStrategy",
                json!({"weightPriority": [{"weight": 101, "matchSelector": {"matchLabels": {"a": "b"}}}]}),
            ),
            Some(messages::WEIGHT),
        ),
        (
            at("/spec/updateStrategy/type", json!("Recreate")),
            Some(messages::UPDATE_TYPE),
        ),
        (
            at("/spec/scaleStrategy/maxUnavailable", json!("x")),
            Some(messages::CLONE_SCALE_BUDGET),
        ),
        (at("/spec/scaleStrategy/maxUnavailable", json!(0)), None),
        (
            at("/spec/scaleStrategy/podsToDelete", json!(["a", "a"])),
            Some(messages::PODS_TO_DELETE_ONCE),
        ),
        (
            at("/spec/selector", json!({"matchLabels": {"app": "other"}})),
            Some(messages::SELECTOR_MATCHES),
        ),
        (
            at("/spec/template/spec/restartPolicy", json!("Never")),
            Some(messages::RESTART_POLICY),
        ),
        (at("/spec/lifecycle/preDelete", json!({})), None),
        (
            at("/metadata/annotations/flotilla.rs~1partition-rollback", json!("yes")),
            Some("must be true"),
        ),
        (at("/metadata/name", json!("x".repeat(53))), Some(messages::NAME_LENGTH)),
    ] {
        let found = verdict(&set, None);
        match refusal {
            None => assert!(found.is_ok(), "{found:?} {set}"),
            Some(rule) => assert!(
                found.as_ref().is_err_and(|text| text.contains(rule)),
                "{found:?} {rule}"
            ),
        }
    }
}

/// What only one version's path refused is refused in that version and warned of in the other.
#[test]
fn cs_6_gaps_between_the_versions() {
    let late = with(
        clones(),
        &[
            ("/spec/progressDeadlineSeconds", json!(5)),
            ("/spec/minReadySeconds", json!(5)),
        ],
    );
    assert!(verdict(&late, None).is_ok_and(|w| w.iter().any(|w| w.contains(messages::PROGRESS_DEADLINE))));
    let old = with(late, &[("/apiVersion", json!(ALPHA))]);
    assert!(verdict(&old, None).is_err_and(|text| text.contains(messages::PROGRESS_DEADLINE)));

    let policy = (
        "/spec/updateStrategy/rollingUpdate/podUpdatePolicy",
        json!("InPlaceOnly"),
    );
    let before = with(clones(), &[policy]);
    let after = with(before.clone(), &[("/spec/template/spec/hostNetwork", json!(true))]);
    assert!(verdict(&after, Some(&before)).is_ok_and(|w| w.iter().any(|w| w.contains(messages::IN_PLACE_ONLY))));
    let (before, after) = (to(&before, ALPHA), to(&after, ALPHA));
    assert!(verdict(&after, Some(&before)).is_err_and(|text| text.contains(messages::IN_PLACE_ONLY)));
    let on_delete = with(
        clones(),
        &[
            ("/apiVersion", json!(ALPHA)),
            ("/spec/updateStrategy/type", json!("OnDelete")),
        ],
    );
    assert!(verdict(&on_delete, None).is_ok(), "upstream refused it by mistake");
}

/// Only the largest number says never: the one before it is compared like any other, and the one after it is none.
#[test]
fn r_36_the_largest_number_is_never() {
    /// What is written as `progressDeadlineSeconds` and as `minReadySeconds`.
    type Seconds = (Option<i64>, Option<i64>);
    const NEVER: i64 = 2_147_483_647;
    let accepted: &[Seconds] = &[
        (None, Some(NEVER)),
        (Some(NEVER), None),
        (Some(NEVER), Some(600)),
        (Some(600), Some(NEVER)),
        (Some(NEVER), Some(NEVER)),
        (Some(NEVER - 1), Some(600)),
    ];
    let late: &[Seconds] = &[(Some(600), Some(NEVER - 1)), (Some(NEVER - 1), Some(NEVER - 1))];
    let refused: &[Seconds] = &[
        (None, Some(NEVER + 1)),
        (None, Some(-1)),
        (Some(NEVER + 1), None),
        (Some(-1), None),
        (Some(NEVER + 1), Some(NEVER)),
        (Some(NEVER), Some(NEVER + 1)),
        (Some(-1), Some(NEVER)),
        (Some(NEVER), Some(-1)),
    ];
    for version in [BETA, ALPHA] {
        let good = with(clones(), &[("/apiVersion", json!(version))]);
        let told = |(deadline, ready): Seconds, old| {
            let mut set = good.clone();
            for (field, value) in [("progressDeadlineSeconds", deadline), ("minReadySeconds", ready)] {
                if let Some(seconds) = value {
                    set["spec"][field] = json!(seconds);
                }
            }
            verdict(&set, old)
        };
        for old in [None, Some(&good)] {
            for seconds in accepted {
                assert_eq!(told(*seconds, old), Ok(Vec::new()), "{version} {seconds:?}");
            }
            for seconds in late {
                // A refusal in one version, a warning in the other (CS-6).
                let words = match told(*seconds, old) {
                    Ok(warnings) if version == BETA => warnings.join(""),
                    Err(message) if version == ALPHA => message,
                    other => panic!("{version} {seconds:?}: {other:?}"),
                };
                assert!(
                    words.contains(messages::PROGRESS_DEADLINE),
                    "{version} {seconds:?}: {words}"
                );
            }
            for seconds in refused {
                let is_out = |n: &i64| !(0..=NEVER).contains(n);
                let field = if seconds.0.as_ref().is_some_and(is_out) {
                    "progressDeadlineSeconds"
                } else {
                    "minReadySeconds"
                };
                let found = told(*seconds, old);
                let words = format!("spec.{field}: Invalid value");
                assert!(
                    found.as_ref().is_err_and(|text| text.contains(&words)),
                    "{version} {seconds:?}: {found:?}"
                );
            }
        }
    }
}

#[test]
fn cs_6_everything_but_the_selector_may_change() {
    let after = with(
        clones(),
        &[
            ("/spec/volumeClaimTemplates", json!([{"metadata": {"name": "data"}}])),
            ("/spec/replicas", json!(7)),
            ("/spec/template/spec/hostNetwork", json!(true)),
        ],
    );
    assert_eq!(verdict(&after, Some(&clones())), Ok(Vec::new()));
    let selector = json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]});
    let other = with(clones(), &[("/spec/selector", selector)]);
    assert!(verdict(&other, Some(&clones())).is_err_and(|text| text.contains(messages::SELECTOR_FIXED)));
    let long = with(clones(), &[("/metadata/name", json!("x".repeat(60)))]);
    assert!(verdict(&long, Some(&long)).is_ok_and(|w| w.iter().any(|w| w.contains("hash of their revision alone"))));
}

/// The label is then the hash of the revision alone; what is left to be said is that host names are cut.
#[test]
fn cs_6_with_short_hashes_names_may_have_more_than_52_characters() {
    const HASH_ALONE: &str = "hash of their revision alone";
    const CUT: &str = "host names of its pods";
    /// What is warned of, or the rule that it is refused by.
    type Expected = Result<&'static [&'static str], &'static str>;
    let cases: &[(bool, bool, usize, Expected)] = &[
        (false, false, 52, Ok(&[])),
        (false, false, 53, Err(messages::NAME_LENGTH)),
        (false, false, 58, Err(messages::NAME_LENGTH)),
        (false, true, 53, Ok(&[HASH_ALONE])),
        (true, false, 52, Ok(&[])),
        (true, false, 53, Ok(&[])),
        (true, false, 57, Ok(&[])),
        (true, false, 58, Ok(&[CUT])),
        (true, false, 247, Ok(&[CUT])),
        (true, true, 57, Ok(&[])),
        (true, true, 58, Ok(&[CUT])),
    ];
    for &(labels_with_hashes, is_stored, length, expected) in cases {
        let memory = World {
            labels_with_hashes,
            ..World::default()
        };
        let set = with(clones(), &[("/metadata/name", json!("x".repeat(length)))]);
        for set in [to(&set, ALPHA), set] {
            let reply = validate(&request(Some(&set), is_stored.then_some(&set)), &memory);
            let case = format!("{labels_with_hashes} {is_stored} {length}: {reply:?}");
            match expected {
                Err(rule) => assert!(refusal(&reply).is_some_and(|(_, text)| text.contains(rule)), "{case}"),
                Ok(words) => {
                    assert_eq!(reply.verdict, Verdict::Allow, "{case}");
                    assert_eq!(reply.warnings.len(), words.len(), "{case}");
                    let told = |word: &&str| reply.warnings.iter().any(|warning| warning.contains(word));
                    assert!(words.iter().all(told), "{case}");
                }
            }
        }
    }
    let memory = World {
        labels_with_hashes: true,
        ..World::default()
    };
    let named_by_the_server = json!({"generateName": "x".repeat(60), "namespace": "shop"});
    let set = with(clones(), &[("/metadata", named_by_the_server)]);
    let reply = validate(&request(Some(&set), None), &memory);
    assert!(
        reply.warnings.iter().any(|w| w.contains(CUT)),
        "63 characters in the end: {reply:?}"
    );
    let set = with(crate::world::set(), &[("/metadata/name", json!("x".repeat(53)))]);
    let reply = validate(&request(Some(&set), None), &memory);
    assert!(
        refusal(&reply).is_some(),
        "pods of a StatefulSet have the whole name: {reply:?}"
    );
}

fn defaulted(object: &Value, old: Option<&Value>) -> Value {
    match mutate(&request(Some(object), old), &World::default()).verdict {
        Verdict::Mutate(operations) => apply(object, &operations).expect("it fits"),
        _ => object.clone(),
    }
}

#[test]
fn cs_7_what_is_filled_in() {
    let filled = defaulted(&clones(), None);
    assert_eq!(
        filled["spec"]["updateStrategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0, "maxUnavailable": "20%", "maxSurge": 0, "podUpdatePolicy": "ReCreate"}})
    );
    for (field, value) in [("replicas", 1), ("revisionHistoryLimit", 10), ("minReadySeconds", 0)] {
        assert_eq!(filled["spec"][field], value, "{field}");
    }
    assert_eq!(
        filled["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"], "Always",
        "also with a tag"
    );
    assert_eq!(
        defaulted(&filled, Some(&clones())),
        filled,
        "a second time changes nothing"
    );
    let in_place = with(
        clones(),
        &[(
            "/spec/updateStrategy/rollingUpdate/podUpdatePolicy",
            json!("InPlaceOnly"),
        )],
    );
    assert_eq!(
        defaulted(&in_place, None)["spec"]["updateStrategy"]["rollingUpdate"]["inPlaceUpdateStrategy"],
        json!({})
    );
    let init = json!([{"name": "a", "image": "a:1"}, {"name": "b", "image": "b"}]);
    let init = defaulted(&with(clones(), &[("/spec/template/spec/initContainers", init)]), None);
    let policy = |i: usize| init["spec"]["template"]["spec"]["initContainers"][i]["imagePullPolicy"].clone();
    assert_eq!((policy(0), policy(1)), (json!("IfNotPresent"), json!("Always")));
    let on_delete = defaulted(
        &with(clones(), &[("/spec/updateStrategy/type", json!("OnDelete"))]),
        None,
    );
    assert_eq!(on_delete["spec"]["updateStrategy"], json!({"type": "OnDelete"}));
}

/// A newer release's defaults start no rollout.
#[test]
fn cs_7_an_untouched_template_is_left_as_it_is() {
    let edited = with(clones(), &[("/spec/replicas", json!(5))]);
    assert_eq!(
        defaulted(&edited, Some(&clones()))["spec"]["template"],
        clones()["spec"]["template"]
    );
}

/// Names that are new must be those of pods of the set that stay: refused in v1alpha1, warned of in v1beta1.
#[test]
fn cs_6_names_of_pods_to_delete() {
    let world = World {
        named: [
            ("web-ours", NamedPod::Managed),
            ("web-going", NamedPod::Terminating),
            ("theirs", NamedPod::Foreign),
        ]
        .into_iter()
        .collect(),
        ..World::default()
    };
    let naming = |names: &[&str]| with(clones(), &[("/spec/scaleStrategy/podsToDelete", json!(names))]);
    let old = naming(&["gone"]);
    for (names, rule) in [
        (&["gone", "web-ours"][..], None),
        (&["web-going"][..], Some(messages::POD_TO_DELETE_GOING)),
        (&["web-ours", "theirs"][..], Some(messages::POD_TO_DELETE_FOREIGN)),
        (&["other"][..], Some(messages::POD_TO_DELETE_MISSING)),
    ] {
        let new = naming(names);
        let told = verdict_of(&new, Some(&old), &world).expect("v1beta1 accepts it");
        assert_eq!(told.is_empty(), rule.is_none(), "{names:?}: {told:?}");
        if let Some(rule) = rule {
            assert!(told[0].contains(rule), "{told:?}");
        }
        let as_alpha = |set: &Value| with(set.clone(), &[("/apiVersion", json!(ALPHA))]);
        let told = verdict_of(&as_alpha(&new), Some(&as_alpha(&old)), &world);
        match rule {
            None => assert!(told.is_ok(), "{told:?}"),
            Some(rule) => assert!(told.as_ref().is_err_and(|text| text.contains(rule)), "{told:?}"),
        }
    }
    // A set that is only being created has no pods yet.
    let first = naming(&["web-ours"]);
    let told = verdict_of(&first, None, &world).expect("v1beta1 accepts it");
    assert!(told[0].contains(messages::POD_TO_DELETE_FOREIGN), "{told:?}");
    let told = verdict_of(&with(first, &[("/apiVersion", json!(ALPHA))]), None, &world);
    assert!(
        told.as_ref()
            .is_err_and(|text| text.contains(messages::POD_TO_DELETE_FOREIGN)),
        "{told:?}"
    );
    // What nobody knows is accepted, and said.
    let new = with(naming(&["young"]), &[("/apiVersion", json!(ALPHA))]);
    let old = with(old, &[("/apiVersion", json!(ALPHA))]);
    let told = verdict_of(&new, Some(&old), &world).expect("it is accepted");
    assert!(told.iter().any(|text| text.contains("not known")), "{told:?}");
}

/// CS-8 reads an unknown type as ReCreate; what a user wrote is not written over, so that it is refused (CS-6).
#[test]
fn cs_7_an_unknown_type_is_left_to_be_refused() {
    let mut old = clones();
    old["apiVersion"] = json!(ALPHA);
    old["spec"]["updateStrategy"] = json!({"type": "RollingUpdate"});
    let Verdict::Mutate(patch) = mutate(&request(Some(&old), None), &World::default()).verdict else {
        panic!("defaults are missing");
    };
    let filled = apply(&old, &patch).expect("it fits");
    assert_eq!(filled["spec"]["updateStrategy"]["type"], "RollingUpdate");
    assert_eq!(filled["spec"]["updateStrategy"]["maxUnavailable"], "20%");
}

/// Every row that the definition checks is refused here too, with the same words, and nothing else is.
#[test]
fn cs_6_admission_and_definition_agree() {
    let changed = |version: &str, changes: &[clone_cases::Change]| {
        let mut set = clones();
        set["apiVersion"] = json!(version);
        set["spec"]["replicas"] = json!(1);
        for (pointer, value) in changes {
            clone_cases::put(&mut set["spec"], pointer, value.clone());
        }
        set
    };
    let unlike = |answer: Result<Vec<String>, String>, words: &[&str]| match answer {
        Ok(_) if words.is_empty() => None,
        Ok(_) => Some(format!("was accepted, but should be refused with {words:?}")),
        Err(text) => {
            let is_told = !words.is_empty() && words.iter().all(|word| text.contains(word));
            (!is_told).then(|| format!("expected {words:?}, got: {text}"))
        }
    };
    let mut wrong = Vec::new();
    for (version, cases) in [(BETA, clone_cases::hub()), (ALPHA, clone_cases::alpha())] {
        for (changes, words) in cases {
            let told = unlike(verdict(&changed(version, &changes), None), words);
            wrong.extend(told.map(|why| format!("{version} {changes:?}: {why}")));
        }
    }
    for (changes, words) in clone_cases::updates() {
        let told = unlike(verdict(&changed(BETA, &changes), Some(&changed(BETA, &[]))), words);
        wrong.extend(told.map(|why| format!("to {changes:?}: {why}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Controllers leave out the same keys, where nobody checked: they stand in one list.
#[test]
fn sts_7_3_hooks_of_both_kinds_have_no_label_of_the_selector_and_none_that_is_written_for_pods() {
    let expression = json!([{"key": "tier", "operator": "NotIn", "values": ["x"]}]);
    let kinds = [(clones(), BETA), (clones(), ALPHA), (crate::world::set(), BETA)];
    for (plain, version) in kinds {
        let plain = with(plain, &[("/spec/selector/matchExpressions", expression.clone())]);
        let reserved = names::POD_LABELS.into_iter().chain(["flotilla.rs/any"]);
        let rows = reserved.map(|key| (key, Some(messages::HOOK_RESERVED)));
        let selected = ["app", "tier"].map(|key| (key, Some(messages::HOOK_SELECTOR)));
        for (key, rule) in rows.chain(selected).chain([("example.com/hold", None)]) {
            for hook in ["preDelete", "inPlaceUpdate", "preNormal"] {
                let what = format!("{} {version} {hook} {key}", plain["kind"]);
                let marked = |labels: Value| {
                    let lifecycle = json!({hook: {"labelsHandler": labels}});
                    to(&with(plain.clone(), &[("/spec/lifecycle", lifecycle)]), version)
                };
                let (before, after) = (to(&plain, version), marked(json!({key: "held"})));
                for old in [None, Some(&before)] {
                    let found = verdict(&after, old);
                    match rule {
                        None => assert!(found.is_ok(), "{what}: {found:?}"),
                        Some(rule) => assert!(
                            found.as_ref().is_err_and(|text| text.contains(rule)),
                            "{what}: {found:?}"
                        ),
                    }
                }
                // What was stored unchecked does not keep anybody from editing something else, and is no excuse for more of the kind.
                let grown = with(after.clone(), &[("/spec/replicas", json!(7))]);
                assert!(verdict(&grown, Some(&after)).is_ok(), "{what}: elsewhere");
                let more = marked(json!({key: "held", names::REVISION_LABEL: "held"}));
                let is_more = key != names::REVISION_LABEL;
                assert_eq!(verdict(&more, Some(&after)).is_err(), is_more, "{what}: another");
            }
        }
    }
}

/// A pod that is made would not be known by such a label, and be let go of: one more for ever.
#[test]
fn sts_7_3_selectors_of_both_kinds_name_no_label_that_is_written_on_single_pods() {
    for (plain, version, written, others) in [
        (
            clones(),
            BETA,
            names::WRITTEN_ON_PODS_OF_A_CLONESET,
            [names::POD_NAME_LABEL, names::POD_INDEX_LABEL],
        ),
        (
            clones(),
            ALPHA,
            names::WRITTEN_ON_PODS_OF_A_CLONESET,
            [names::POD_NAME_LABEL, names::POD_INDEX_LABEL],
        ),
        (
            crate::world::set(),
            BETA,
            names::WRITTEN_ON_PODS_OF_A_STATEFULSET,
            [names::INSTANCE_ID_LABEL, names::TEMPLATE_HASH_LABEL],
        ),
    ] {
        let keys = written
            .map(|key| (key, true))
            .into_iter()
            .chain(others.map(|key| (key, false)));
        for (key, is_written) in keys {
            let labels = json!({"app": "web", key: "x"});
            let by_value = [
                ("/spec/selector/matchLabels", labels.clone()),
                ("/spec/template/metadata/labels", labels),
            ];
            let absent = json!([{"key": key, "operator": "DoesNotExist"}]);
            let by_absence = [("/spec/selector/matchExpressions", absent)];
            for changes in [&by_value[..], &by_absence] {
                let what = format!("{} {version} {changes:?}", plain["kind"]);
                let set = to(&with(plain.clone(), changes), version);
                let found = verdict(&set, None);
                let is_told = |text: &String| text.contains(&format!("label {key} is written on each pod"));
                if is_written {
                    assert!(found.as_ref().is_err_and(is_told), "{what}: {found:?}");
                } else {
                    assert!(found.is_ok(), "{what}: {found:?}");
                }
                // The selector of what is stored cannot change.
                let grown = with(set.clone(), &[("/spec/replicas", json!(7))]);
                assert!(verdict(&grown, Some(&set)).is_ok(), "{what}: elsewhere");
            }
        }
    }
}
