//! CloneSets that the definition refuses or lets pass, as changes to a good one (CS-3 and CS-6). Plain data:
//! admission and the simulated API server are held to the same.

use serde_json::{Value, json};

/// The path below `spec` that a case sets, and to what; `null` takes it away.
pub(crate) type Change = (&'static str, Value);
/// Changes to a good set, and words of the refusal; no words means that it is accepted.
pub(crate) type Case = (Vec<Change>, &'static [&'static str]);

/// Sets a path below `spec`.
pub(crate) fn put(mut place: &mut Value, pointer: &str, value: Value) {
    for step in pointer.split('/') {
        place = match step.parse::<usize>() {
            Ok(index) => &mut place[index],
            Err(_) => &mut place[step],
        };
    }
    *place = value;
}

fn claim(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
}

fn term(weight: i64) -> Value {
    json!({"weightPriority": [{"weight": weight, "matchSelector": {"matchLabels": {"a": "b"}}}]})
}

/// What both versions check in the same place.
fn shared() -> Vec<Case> {
    vec![
        (vec![], &[]),
        (
            vec![("replicas", json!(-1))],
            &["spec.replicas", "greater than or equal to 0"],
        ),
        (vec![("replicas", json!(0))], &[]),
        (vec![("revisionHistoryLimit", json!(-1))], &["revisionHistoryLimit"]),
        (vec![("minReadySeconds", json!(-1))], &["minReadySeconds"]),
        (
            vec![("progressDeadlineSeconds", json!(-1))],
            &["progressDeadlineSeconds"],
        ),
        (vec![("progressDeadlineSeconds", json!(600))], &[]),
        // As `never` is written, and what is beyond it.
        (vec![("minReadySeconds", json!(2_147_483_647))], &[]),
        (vec![("progressDeadlineSeconds", json!(2_147_483_647))], &[]),
        (
            vec![("minReadySeconds", json!(2_147_483_648_i64))],
            &["minReadySeconds"],
        ),
        (
            vec![("progressDeadlineSeconds", json!(2_147_483_648_i64))],
            &["progressDeadlineSeconds"],
        ),
        (vec![("selector", Value::Null)], &["spec.selector"]),
        (vec![("selector", json!({}))], &["spec.selector", "must not be empty"]),
        (
            vec![("selector", json!({"matchLabels": {"app": "other"}}))],
            &["spec.selector", "template.metadata.labels"],
        ),
        (
            vec![(
                "selector/matchExpressions",
                json!([{"key": "app", "operator": "Near", "values": ["web"]}]),
            )],
            &["spec.selector", "In and NotIn"],
        ),
        (vec![("template", Value::Null)], &["spec.template"]),
        (
            vec![("template/metadata/labels", json!({"app": "web", "bad key!": "x"}))],
            &["labels", "valid label keys"],
        ),
        (
            vec![("template/metadata/annotations", json!({"bad key!": "x"}))],
            &["annotations", "valid keys"],
        ),
        (
            vec![("template/spec/restartPolicy", json!("Never"))],
            &["restartPolicy", "Always"],
        ),
        (vec![("template/spec/restartPolicy", json!("Always"))], &[]),
        (
            vec![("template/spec/activeDeadlineSeconds", json!(5))],
            &["activeDeadlineSeconds"],
        ),
        (
            vec![("template/spec/containers", json!([]))],
            &["containers", "at least one"],
        ),
        (vec![("template/spec/fieldOfTheFuture", json!({"a": 1}))], &[]),
        (vec![("volumeClaimTemplates", json!([claim("a"), claim("b")]))], &[]),
        (
            vec![("volumeClaimTemplates", json!([claim("a"), claim("a")]))],
            &["volumeClaimTemplates", "no other"],
        ),
        (
            vec![("volumeClaimTemplates", json!([{"spec": {}}]))],
            &["volumeClaimTemplates", "metadata.name"],
        ),
        (
            vec![("volumeClaimTemplates", json!([claim("logs.v1")]))],
            &["volumeClaimTemplates", "a name that a volume can have"],
        ),
        (
            vec![("volumeClaimTemplates", json!([claim("Logs")]))],
            &["volumeClaimTemplates", "a name that a volume can have"],
        ),
        (
            vec![("volumeClaimTemplates", json!([claim(&"x".repeat(64))]))],
            &["volumeClaimTemplates", "a name that a volume can have"],
        ),
        (vec![("volumeClaimTemplates", json!([claim(&"x".repeat(63))]))], &[]),
        (vec![("scaleStrategy/maxUnavailable", json!(0))], &[]),
        (vec![("scaleStrategy/maxUnavailable", json!("12.5%"))], &[]),
        (
            vec![("scaleStrategy/maxUnavailable", json!(-1))],
            &["scaleStrategy.maxUnavailable"],
        ),
        (
            vec![("scaleStrategy/maxUnavailable", json!("5"))],
            &["scaleStrategy.maxUnavailable"],
        ),
        (
            vec![("lifecycle/preDelete", json!({"labelsHandler": {"hold": "yes"}}))],
            &[],
        ),
        (vec![("lifecycle/preNormal", json!({}))], &[]),
    ]
}

/// What is below `rollingUpdate` in `v1beta1` and below `updateStrategy` in `v1alpha1`: the field, its value, and words.
fn strategy() -> Vec<(&'static str, Value, &'static [&'static str])> {
    vec![
        ("partition", json!(3), &[]),
        ("partition", json!("99.9%"), &[]),
        ("partition", json!(-1), &["partition"]),
        ("partition", json!("7"), &["partition"]),
        ("maxUnavailable", json!("12.5%"), &[]),
        ("maxUnavailable", json!("5"), &["maxUnavailable"]),
        ("maxUnavailable", json!(0), &["maxSurge"]),
        ("maxUnavailable", json!("0%"), &["maxSurge"]),
        ("maxSurge", json!("30%"), &[]),
        ("maxSurge", json!("many"), &["maxSurge"]),
        ("paused", json!(true), &[]),
        ("priorityStrategy", term(100), &[]),
        ("priorityStrategy", term(101), &["weightPriority", "0 to 100"]),
        (
            "priorityStrategy",
            json!({"weightPriority": [{"weight": 1, "matchSelector": {}}]}),
            &["matchSelector", "must not be empty"],
        ),
        (
            "priorityStrategy",
            json!({"orderPriority": [{"orderedKey": ""}]}),
            &["orderPriority", "must not be empty"],
        ),
        (
            "priorityStrategy",
            json!({"orderPriority": [{"orderedKey": "a"}], "weightPriority": [{"weight": 1, "matchSelector": {"matchLabels": {"a": "b"}}}]}),
            &["priorityStrategy", "not both"],
        ),
        (
            "scatterStrategy",
            json!([{"key": "a", "value": "b"}, {"key": "a", "value": "c"}]),
            &[],
        ),
        (
            "scatterStrategy",
            json!([{"key": "a", "value": "b"}, {"key": "a", "value": "b"}]),
            &["scatterStrategy"],
        ),
        (
            "scatterStrategy",
            json!([{"key": "", "value": "b"}]),
            &["scatterStrategy"],
        ),
        ("inPlaceUpdateStrategy", json!({"gracePeriodSeconds": 5}), &[]),
        (
            "inPlaceUpdateStrategy",
            json!({"gracePeriodSeconds": -1}),
            &["gracePeriodSeconds"],
        ),
    ]
}

/// Each row for `v1beta1`.
pub(crate) fn hub() -> Vec<Case> {
    const ROLLING: &str = "updateStrategy/rollingUpdate";
    let mut all = shared();
    let below = |(field, value, words): (&str, Value, &'static [&'static str])| -> Case {
        let mut rolling = json!({});
        rolling[field] = value;
        (vec![(ROLLING, rolling)], words)
    };
    all.extend(strategy().into_iter().map(below));
    let rolling = |value: Value| vec![(ROLLING, value)];
    all.extend([
        (vec![("updateStrategy/type", json!("OnDelete"))], &[][..]),
        (
            vec![("updateStrategy/type", json!("ReCreate"))],
            &["updateStrategy", "RollingUpdate or OnDelete"][..],
        ),
        (rolling(json!({"podUpdatePolicy": "InPlaceOnly"})), &[]),
        (
            rolling(json!({"podUpdatePolicy": "Recreate"})),
            &["podUpdatePolicy", "ReCreate"],
        ),
        (
            rolling(json!({"podUpdatePolicy": "InPlaceOnly", "maxSurge": 1})),
            &["maxSurge", "InPlaceOnly"],
        ),
        (rolling(json!({"maxUnavailable": 0, "maxSurge": 1})), &[]),
        (
            vec![("replicas", json!(0)), (ROLLING, json!({"maxUnavailable": 0}))],
            &[],
        ),
        (
            rolling(json!({"inPlaceUpdateStrategy": {"imagePreDownloadParallelism": "25%"}})),
            &[],
        ),
        (
            rolling(json!({"inPlaceUpdateStrategy": {"imagePreDownloadParallelism": "few"}})),
            &["imagePreDownloadParallelism"],
        ),
        (
            rolling(json!({"inPlaceUpdateStrategy": {"imagePreDownloadTimeoutSeconds": -1}})),
            &["imagePreDownloadTimeoutSeconds"],
        ),
        // Warned of by admission.
        (
            vec![("progressDeadlineSeconds", json!(5)), ("minReadySeconds", json!(5))],
            &[],
        ),
        (vec![("scaleStrategy/enablePVCReuse", json!(true))], &[]),
        // Warned of as well, for a set that is only being created.
        (
            vec![("scaleStrategy/podsToDelete", json!(["web-aaaaa", "web-bbbbb"]))],
            &[],
        ),
    ]);
    all
}

/// Each row for `v1alpha1`.
pub(crate) fn alpha() -> Vec<Case> {
    const STRATEGY: &str = "updateStrategy";
    let mut all = shared();
    let below = |(field, value, words): (&str, Value, &'static [&'static str])| -> Case {
        let mut strategy = json!({});
        strategy[field] = value;
        (vec![(STRATEGY, strategy)], words)
    };
    all.extend(strategy().into_iter().map(below));
    let strategy = |value: Value| vec![(STRATEGY, value)];
    all.extend([
        (strategy(json!({"type": "OnDelete"})), &[][..]),
        (strategy(json!({"type": "InPlaceIfPossible"})), &[][..]),
        (
            strategy(json!({"type": "RollingUpdate"})),
            &["updateStrategy", "OnDelete"][..],
        ),
        (
            strategy(json!({"type": "InPlaceOnly", "maxSurge": 1})),
            &["maxSurge", "InPlaceOnly"],
        ),
        (strategy(json!({"maxUnavailable": 0, "maxSurge": 1})), &[]),
        (
            vec![("progressDeadlineSeconds", json!(5)), ("minReadySeconds", json!(5))],
            &["progressDeadlineSeconds", "minReadySeconds"],
        ),
        // Never is compared with nothing.
        (
            vec![
                ("progressDeadlineSeconds", json!(2_147_483_647)),
                ("minReadySeconds", json!(2_147_483_647)),
            ],
            &[],
        ),
        (
            vec![
                ("progressDeadlineSeconds", json!(600)),
                ("minReadySeconds", json!(2_147_483_647)),
            ],
            &[],
        ),
        (vec![("scaleStrategy/disablePVCReuse", json!(true))], &[]),
    ]);
    all
}

/// From a good set to one with these changes; words as above.
pub(crate) fn updates() -> Vec<Case> {
    vec![
        (
            vec![
                ("replicas", json!(5)),
                ("template/spec/containers/0/image", json!("app:v9")),
            ],
            &[],
        ),
        (vec![("volumeClaimTemplates", json!([claim("a")]))], &[]),
        (
            vec![
                ("selector", json!({"matchLabels": {"app": "web", "b": "c"}})),
                ("template/metadata/labels/b", json!("c")),
            ],
            &["spec.selector", "cannot be changed"],
        ),
    ]
}
