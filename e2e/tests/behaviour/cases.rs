//! Sets that the definition of Advanced StatefulSet refuses or lets pass, as changes to a good one. Plain data: crates/apimachinery
//! tries them on its own reading of the definition.

use serde_json::{Value, json};

/// The path below `spec` that a case sets, and to what; `null` takes it away.
pub(crate) type Change = (&'static str, Value);

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

fn parallel() -> Change {
    ("podManagementPolicy", json!("Parallel"))
}

fn claim(name: &str, storage: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}}})
}

/// Each row of STS-7.3 that CEL can express: changes to a good manifest, and words of the refusal; no words means that it is accepted.
pub(crate) fn creations() -> Vec<(Vec<Change>, &'static [&'static str])> {
    const BUDGET: &str = "updateStrategy/rollingUpdate/maxUnavailable";
    const POLICY: &str = "updateStrategy/rollingUpdate/podUpdatePolicy";
    const UNORDERED: &str = "updateStrategy/rollingUpdate/unorderedUpdate";
    const HOOK: &str = "lifecycle/preDelete";
    let gate = || {
        (
            "template/spec/readinessGates",
            json!([{"conditionType": "InPlaceUpdateReady"}]),
        )
    };
    let selector = |expressions: Value| ("selector/matchExpressions", expressions);
    vec![
        (vec![], &[]),
        (
            vec![("podManagementPolicy", json!("Sometimes"))],
            &["spec.podManagementPolicy", "OrderedReady or Parallel"],
        ),
        (vec![("podManagementPolicy", json!(""))], &[]),
        (vec![("reserveOrdinals", json!([1, "3-5", 0]))], &[]),
        (
            vec![("reserveOrdinals", json!([1, -1]))],
            &["spec.reserveOrdinals[1]", "0 or more"],
        ),
        (
            vec![("reserveOrdinals", json!(["5-3"]))],
            &["spec.reserveOrdinals[0]", "range"],
        ),
        (vec![("reserveOrdinals", json!(["7"]))], &["spec.reserveOrdinals[0]"]),
        (
            vec![("reserveOrdinals", json!(["0-1000000"]))],
            &["spec.reserveOrdinals[0]", "1000000"],
        ),
        (
            vec![("reserveOrdinals", json!(["1-99999999999999999999"]))],
            &["spec.reserveOrdinals[0]"],
        ),
        (
            vec![parallel(), ("scaleStrategy/maxUnavailable", json!(0))],
            &["scaleStrategy.maxUnavailable", "at least 1"],
        ),
        (vec![parallel(), ("scaleStrategy/maxUnavailable", json!("25%"))], &[]),
        (
            vec![("scaleStrategy/maxUnavailable", json!(2))],
            &["scaleStrategy.maxUnavailable", "Parallel"],
        ),
        (vec![("scaleStrategy/maxUnavailable", json!(1))], &[]),
        (
            vec![("updateStrategy/type", json!("Sometimes"))],
            &["updateStrategy.type", "RollingUpdate or OnDelete"],
        ),
        (vec![("updateStrategy/type", json!("OnDelete"))], &[]),
        (
            vec![(
                "updateStrategy",
                json!({"type": "OnDelete", "rollingUpdate": {"partition": 1}}),
            )],
            &["updateStrategy.rollingUpdate", "OnDelete"],
        ),
        (
            vec![("updateStrategy/rollingUpdate/partition", json!(-1))],
            &["partition", "greater than or equal to 0"],
        ),
        (
            vec![("updateStrategy/rollingUpdate/minReadySeconds", json!(301))],
            &["minReadySeconds", "300"],
        ),
        (
            vec![parallel(), (BUDGET, json!("0%"))],
            &["rollingUpdate.maxUnavailable", "percentage"],
        ),
        (
            vec![parallel(), (BUDGET, json!("101%"))],
            &["rollingUpdate.maxUnavailable", "percentage"],
        ),
        (
            vec![parallel(), (BUDGET, json!("3"))],
            &["rollingUpdate.maxUnavailable", "percentage"],
        ),
        (vec![parallel(), (BUDGET, json!(3))], &[]),
        (vec![parallel(), (BUDGET, json!("100%"))], &[]),
        (vec![(BUDGET, json!(3))], &["rollingUpdate.maxUnavailable", "Parallel"]),
        (
            vec![(BUDGET, json!("10%"))],
            &["rollingUpdate.maxUnavailable", "Parallel"],
        ),
        (vec![(POLICY, json!("Recreate"))], &["podUpdatePolicy", "ReCreate"]),
        (
            vec![(POLICY, json!("InPlaceIfPossible"))],
            &["podUpdatePolicy", "InPlaceUpdateReady", "readinessGates"],
        ),
        (vec![(POLICY, json!("InPlaceOnly")), gate()], &[]),
        (vec![(UNORDERED, json!({}))], &["unorderedUpdate", "Parallel"]),
        (vec![parallel(), (UNORDERED, json!({}))], &[]),
        (
            vec![
                parallel(),
                (
                    UNORDERED,
                    json!({"priorityStrategy": {
                        "orderPriority": [{"orderedKey": "a"}], "weightPriority": [{"weight": 1, "matchSelector": {"matchLabels": {"a": "b"}}}],
                    }}),
                ),
            ],
            &["priorityStrategy", "not both"],
        ),
        (
            vec![
                parallel(),
                (
                    UNORDERED,
                    json!({"priorityStrategy": {"orderPriority": [{"orderedKey": ""}]}}),
                ),
            ],
            &["orderPriority[0]", "must not be empty"],
        ),
        (
            vec![
                parallel(),
                (
                    UNORDERED,
                    json!({"priorityStrategy": {"weightPriority": [{"weight": 101, "matchSelector": {"matchLabels": {"a": "b"}}}]}}),
                ),
            ],
            &["weightPriority[0]", "0 to 100"],
        ),
        (
            vec![
                parallel(),
                (
                    UNORDERED,
                    json!({"priorityStrategy": {"weightPriority": [{"weight": 0, "matchSelector": {}}]}}),
                ),
            ],
            &["matchSelector", "must not be empty"],
        ),
        (
            vec![
                parallel(),
                (
                    UNORDERED,
                    json!({"priorityStrategy": {"weightPriority": [{"weight": 0, "matchSelector": {"matchLabels": {"a": "b"}}}]}}),
                ),
            ],
            &[],
        ),
        (
            vec![("persistentVolumeClaimRetentionPolicy/whenScaled", json!("Drop"))],
            &["whenScaled", "Retain or Delete"],
        ),
        (
            vec![("persistentVolumeClaimRetentionPolicy/whenDeleted", json!("Drop"))],
            &["whenDeleted", "Retain or Delete"],
        ),
        (
            vec![("persistentVolumeClaimRetentionPolicy", json!({"whenDeleted": "Delete"}))],
            &[],
        ),
        (
            vec![("replicas", json!(-1))],
            &["spec.replicas", "greater than or equal to 0"],
        ),
        (vec![("selector", Value::Null)], &["spec.selector"]),
        (vec![("selector", json!({}))], &["spec.selector", "must not be empty"]),
        (
            vec![("selector", json!({"matchLabels": {"app": "other"}}))],
            &["spec.selector", "template.metadata.labels"],
        ),
        (
            vec![selector(
                json!([{"key": "app", "operator": "In", "values": ["web", "x"]}]),
            )],
            &[],
        ),
        (
            vec![selector(
                json!([{"key": "app", "operator": "NotIn", "values": ["web"]}]),
            )],
            &["template.metadata.labels"],
        ),
        (
            vec![selector(json!([{"key": "tier", "operator": "DoesNotExist"}]))],
            &[],
        ),
        (
            vec![selector(json!([{"key": "tier", "operator": "Exists"}]))],
            &["template.metadata.labels"],
        ),
        (
            vec![selector(json!([{"key": "app", "operator": "Near", "values": ["web"]}]))],
            &["spec.selector", "In and NotIn"],
        ),
        (
            vec![selector(json!([{"key": "app", "operator": "In"}]))],
            &["spec.selector", "with values"],
        ),
        (vec![("template", Value::Null)], &["spec.template"]),
        (
            vec![("template/metadata/labels", json!({"app": "web", "bad key!": "x"}))],
            &["labels", "valid label keys"],
        ),
        (
            vec![("template/metadata/labels", json!({"app": "web", "tier": "not valid"}))],
            &["labels"],
        ),
        (
            vec![("template/metadata/annotations", json!({"bad key!": "x"}))],
            &["annotations", "valid keys"],
        ),
        (
            vec![(
                "template/metadata/annotations",
                json!({"Example.com/Key": "any text, any length"}),
            )],
            &[],
        ),
        (vec![("template/metadata/creationTimestamp", Value::Null)], &[]),
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
        (
            vec![(HOOK, json!({}))],
            &["preDelete", "labelsHandler or finalizersHandler"],
        ),
        (
            vec![(HOOK, json!({"labelsHandler": {"bad key!": "x"}}))],
            &["preDelete", "label keys"],
        ),
        (
            vec![(HOOK, json!({"labelsHandler": {"key": "not valid"}}))],
            &["labelsHandler"],
        ),
        (
            vec![(HOOK, json!({"finalizersHandler": ["unqualified"]}))],
            &["preDelete", "qualified"],
        ),
        (
            vec![(HOOK, json!({"labelsHandler": {"app": "web"}}))],
            &["lifecycle", "selector"],
        ),
        (
            vec![(
                HOOK,
                json!({"labelsHandler": {"hook": "yes"}, "finalizersHandler": ["example.com/a"]}),
            )],
            &[],
        ),
        (vec![("revisionHistoryLimit", json!(-1))], &["revisionHistoryLimit"]),
        (vec![("ordinals/start", json!(-1))], &["ordinals.start"]),
        (
            vec![(
                "updateStrategy/rollingUpdate/inPlaceUpdateStrategy/gracePeriodSeconds",
                json!(-1),
            )],
            &["gracePeriodSeconds"],
        ),
        (
            vec![(
                "updateStrategy/rollingUpdate/inPlaceUpdateStrategy/imagePreDownloadParallelism",
                json!(0),
            )],
            &["imagePreDownloadParallelism"],
        ),
        (
            vec![("volumeClaimUpdateStrategy/type", json!("Now"))],
            &["volumeClaimUpdateStrategy.type", "OnPodRollingUpdate"],
        ),
        (
            vec![("volumeClaimTemplates", json!([claim("a", "1Gi"), claim("b", "1Gi")]))],
            &[],
        ),
        (
            vec![("volumeClaimTemplates", json!([claim("a", "1Gi"), claim("a", "1Gi")]))],
            &["volumeClaimTemplates", "no other"],
        ),
        (
            vec![("volumeClaimTemplates", json!([{"spec": {}}]))],
            &["volumeClaimTemplates", "metadata.name"],
        ),
        (
            vec![("specialPodsSelectors", json!([{}]))],
            &["specialPodsSelectors[0]", "must not be empty"],
        ),
        (
            vec![(
                "specialPodsSelectors",
                json!([{"matchExpressions": [{"key": "a", "operator": "?"}]}]),
            )],
            &["specialPodsSelectors[0]"],
        ),
    ]
}

/// STS-7.4: from a set with these changes to one with those; words as above.
pub(crate) fn updates() -> Vec<(Vec<Change>, Vec<Change>, &'static [&'static str])> {
    let rolling = || ("volumeClaimUpdateStrategy/type", json!("OnPodRollingUpdate"));
    let claims = |claims: Value| ("volumeClaimTemplates", claims);
    let two = || claims(json!([claim("a", "2Gi"), claim("b", "2Gi")]));
    vec![
        (
            vec![],
            vec![
                ("replicas", json!(5)),
                ("ordinals/start", json!(2)),
                ("reserveOrdinals", json!([3])),
            ],
            &[],
        ),
        (
            vec![],
            vec![
                ("template/spec/containers/0/image", json!("app:v9")),
                ("revisionHistoryLimit", json!(1)),
            ],
            &[],
        ),
        (
            vec![parallel()],
            vec![parallel(), ("scaleStrategy/maxUnavailable", json!(3))],
            &[],
        ),
        (
            vec![],
            vec![("persistentVolumeClaimRetentionPolicy/whenScaled", json!("Delete"))],
            &[],
        ),
        (
            vec![],
            vec![("serviceName", json!("other"))],
            &["spec.serviceName", "cannot be changed"],
        ),
        (
            vec![],
            vec![parallel()],
            &["spec.podManagementPolicy", "cannot be changed"],
        ),
        (vec![], vec![("podManagementPolicy", json!("OrderedReady"))], &[]),
        (
            vec![],
            vec![
                ("selector", json!({"matchLabels": {"app": "web", "b": "c"}})),
                ("template/metadata/labels/b", json!("c")),
            ],
            &["spec.selector", "cannot be changed"],
        ),
        (vec![two()], vec![claims(json!([claim("a", "1Gi")]))], &[]),
        (
            vec![two(), rolling()],
            vec![claims(json!([claim("a", "3Gi"), claim("b", "2048Mi")])), rolling()],
            &[],
        ),
        (
            vec![two(), rolling()],
            vec![claims(json!([claim("b", "2Gi"), claim("a", "2Gi")])), rolling()],
            &[],
        ),
        (
            vec![two(), rolling()],
            vec![claims(json!([claim("a", "2Gi")])), rolling()],
            &["volumeClaimTemplates", "only the requested storage"],
        ),
        (
            vec![two(), rolling()],
            vec![claims(json!([claim("a", "2Gi"), claim("c", "2Gi")])), rolling()],
            &["volumeClaimTemplates", "only the requested storage"],
        ),
        // Whether that is a way back other objects say: the definition lets it pass, and admission looks.
        (
            vec![two(), rolling()],
            vec![claims(json!([claim("a", "2Gi"), claim("b", "2047Mi")])), rolling()],
            &[],
        ),
        // `[F]`: the new strategy counts, so that switching it together with the templates is no way around the rule.
        (
            vec![two()],
            vec![claims(json!([claim("a", "2Gi"), claim("c", "2Gi")])), rolling()],
            &["volumeClaimTemplates", "only the requested storage"],
        ),
        (vec![two(), rolling()], vec![claims(json!([claim("a", "1Gi")]))], &[]),
    ]
}
