//! Sets of every shape: all fields of the types, sometimes absent, sometimes null, with unknown ones between.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Fields, each there most of the time.
fn object(fields: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    let fields: Vec<_> = fields
        .into_iter()
        .map(|(name, value)| {
            let value = prop_oneof![6 => value.prop_map(Some), 1 => Just(Some(Value::Null)), 2 => Just(None)];
            value.prop_map(move |value| value.map(|value| (name.to_owned(), value)))
        })
        .collect();
    let unknown = prop::option::weighted(0.2, ("future[A-Z][a-z]{0,4}", any_json()));
    (fields, unknown)
        .prop_map(|(known, unknown)| Value::Object(known.into_iter().chain([unknown]).flatten().collect::<Map<_, _>>()))
        .boxed()
}

fn any_json() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(".{0,3}", inner, 0..3).prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
    .boxed()
}

fn list(item: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    prop::collection::vec(item, 0..3).prop_map(Value::from).boxed()
}

fn one_of(words: &'static [&'static str]) -> BoxedStrategy<Value> {
    prop::sample::select(words).prop_map(Value::from).boxed()
}

fn number() -> BoxedStrategy<Value> {
    prop_oneof![0..20_i64, any::<i32>().prop_map(i64::from)]
        .prop_map(Value::from)
        .boxed()
}

fn flag() -> BoxedStrategy<Value> {
    any::<bool>().prop_map(Value::from).boxed()
}

fn budget() -> BoxedStrategy<Value> {
    prop_oneof![
        number(),
        (0..120).prop_map(|n| json!(format!("{n}%"))),
        one_of(&["3", "%", "many"])
    ]
    .boxed()
}

fn text_map() -> BoxedStrategy<Value> {
    prop::collection::btree_map("[a-c]{1,2}", "[a-c ]{0,2}", 0..3)
        .prop_map(|m| json!(m))
        .boxed()
}

fn selector() -> BoxedStrategy<Value> {
    let expression = object(vec![
        ("key", one_of(&["a", "app", "bad key!"])),
        ("operator", one_of(&["In", "NotIn", "Exists", "DoesNotExist", "Near"])),
        ("values", list(one_of(&["a", "web"]))),
    ]);
    object(vec![
        ("matchLabels", text_map()),
        ("matchExpressions", list(expression)),
    ])
}

fn container() -> BoxedStrategy<Value> {
    let env = object(vec![
        (
            "name",
            one_of(&["A", "KRUISE_CONTAINER_PRIORITY", "KRUISE_CONTAINER_BARRIER"]),
        ),
        ("value", one_of(&["", "a", "5", "-1"])),
        (
            "valueFrom",
            object(vec![(
                "fieldRef",
                object(vec![("fieldPath", one_of(&["metadata.name"]))]),
            )]),
        ),
    ]);
    let get = object(vec![(
        "httpGet",
        object(vec![("port", number()), ("path", one_of(&["", "/x"]))]),
    )]);
    let quantities = object(vec![("cpu", one_of(&["1", "500m"])), ("memory", one_of(&["1Gi"]))]);
    object(vec![
        ("name", one_of(&["main", "side", "Bad"])),
        ("image", one_of(&["web:1", "web"])),
        ("imagePullPolicy", one_of(&["Always", "IfNotPresent"])),
        ("env", list(env)),
        ("ports", list(object(vec![("containerPort", number())]))),
        (
            "readinessProbe",
            object(vec![
                ("timeoutSeconds", number()),
                ("httpGet", object(vec![("port", number())])),
            ]),
        ),
        ("lifecycle", object(vec![("preStop", get)])),
        (
            "resources",
            object(vec![("requests", quantities.clone()), ("limits", quantities)]),
        ),
    ])
}

/// The spec of a pod.
pub(crate) fn pod_spec() -> BoxedStrategy<Value> {
    let volume = object(vec![
        ("name", one_of(&["data", "tmp"])),
        ("secret", object(vec![("secretName", one_of(&["s"]))])),
    ]);
    object(vec![
        ("restartPolicy", one_of(&["", "Always", "Never", "OnFailure"])),
        ("activeDeadlineSeconds", number()),
        ("containers", list(container())),
        ("initContainers", list(container())),
        ("volumes", list(volume)),
        (
            "readinessGates",
            list(object(vec![(
                "conditionType",
                one_of(&["InPlaceUpdateReady", "KruisePodReady", "x"]),
            )])),
        ),
        ("securityContext", object(vec![])),
    ])
}

fn template() -> BoxedStrategy<Value> {
    let metadata = object(vec![
        ("labels", text_map()),
        ("annotations", text_map()),
        ("creationTimestamp", Just(Value::Null).boxed()),
    ]);
    object(vec![("metadata", metadata), ("spec", pod_spec())])
}

fn claim() -> BoxedStrategy<Value> {
    let storage = object(vec![("storage", one_of(&["1Gi", "2Gi", "500Mi", "lots"]))]);
    object(vec![
        (
            "metadata",
            object(vec![("name", one_of(&["data", "logs"])), ("labels", text_map())]),
        ),
        (
            "spec",
            object(vec![
                ("storageClassName", one_of(&["", "fast"])),
                ("accessModes", list(one_of(&["ReadWriteOnce"]))),
                (
                    "resources",
                    object(vec![("requests", storage.clone()), ("limits", storage)]),
                ),
            ]),
        ),
    ])
}

fn update_strategy() -> BoxedStrategy<Value> {
    let order = object(vec![("orderedKey", one_of(&["", "rank"]))]);
    let weight = object(vec![("weight", number()), ("matchSelector", selector())]);
    let priority = object(vec![("orderPriority", list(order)), ("weightPriority", list(weight))]);
    let in_place = object(vec![
        ("gracePeriodSeconds", number()),
        ("imagePreDownloadParallelism", budget()),
        ("imagePreDownloadTimeoutSeconds", number()),
        ("imagePreDownloadMinUpdatedReadyPods", number()),
    ]);
    let rolling = object(vec![
        ("partition", number()),
        ("maxUnavailable", budget()),
        (
            "podUpdatePolicy",
            one_of(&["", "ReCreate", "InPlaceIfPossible", "InPlaceOnly", "Recreate"]),
        ),
        ("paused", flag()),
        ("unorderedUpdate", object(vec![("priorityStrategy", priority)])),
        ("inPlaceUpdateStrategy", in_place),
        ("minReadySeconds", number()),
    ]);
    object(vec![
        ("type", one_of(&["", "RollingUpdate", "OnDelete", "Never"])),
        ("rollingUpdate", rolling),
    ])
}

fn spec() -> BoxedStrategy<Value> {
    let hook = object(vec![
        ("labelsHandler", text_map()),
        ("finalizersHandler", list(one_of(&["example.com/a", "plain"]))),
        ("markPodNotReady", flag()),
    ]);
    let keep = one_of(&["", "Retain", "Delete", "Drop"]);
    object(vec![
        ("replicas", number()),
        ("selector", selector()),
        ("template", template()),
        ("volumeClaimTemplates", list(claim())),
        (
            "volumeClaimUpdateStrategy",
            object(vec![("type", one_of(&["", "OnDelete", "OnPodRollingUpdate"]))]),
        ),
        ("serviceName", one_of(&["", "web"])),
        (
            "podManagementPolicy",
            one_of(&["", "OrderedReady", "Parallel", "Sometimes"]),
        ),
        ("updateStrategy", update_strategy()),
        ("revisionHistoryLimit", number()),
        (
            "persistentVolumeClaimRetentionPolicy",
            object(vec![("whenDeleted", keep.clone()), ("whenScaled", keep)]),
        ),
        ("ordinals", object(vec![("start", number())])),
        (
            "reserveOrdinals",
            list(prop_oneof![number(), one_of(&["3-5", "5-3", "x"])].boxed()),
        ),
        (
            "lifecycle",
            object(vec![
                ("preDelete", hook.clone()),
                ("inPlaceUpdate", hook.clone()),
                ("preNormal", hook),
            ]),
        ),
        ("scaleStrategy", object(vec![("maxUnavailable", budget())])),
        ("specialPodsSelectors", list(selector())),
    ])
}

/// A set of `v1beta1`, often one that breaks rules.
pub(crate) fn set() -> BoxedStrategy<Value> {
    let annotation = prop::option::of(one_of(&["{", "{}", r#"{"reserveOrdinals":[9],"replicas":4}"#]));
    (spec(), annotation, prop::option::of(any_json()))
        .prop_map(|(spec, annotation, status)| {
            let mut set = json!({"apiVersion": "apps.kruise.io/v1beta1", "kind": "StatefulSet",
                "metadata": {"name": "web", "namespace": "shop"}, "spec": spec});
            if let Some(text) = annotation {
                set["metadata"]["annotations"]["flotilla.rs/hub-fields"] = text;
            }
            if let Some(status) = status {
                set["status"] = status;
            }
            set
        })
        .boxed()
}

/// A pod under one of our kinds, often with marks of launch priority.
pub(crate) fn pod() -> BoxedStrategy<Value> {
    let owner = object(vec![
        ("apiVersion", one_of(&["apps.kruise.io/v1beta1", "apps/v1"])),
        ("kind", one_of(&["StatefulSet", "CloneSet"])),
        ("controller", flag()),
    ]);
    let annotations = object(vec![
        ("apps.kruise.io/container-launch-priority", one_of(&["Ordered", "x"])),
        ("flotilla.rs/launch-on", one_of(&["started"])),
    ]);
    let metadata = object(vec![
        ("name", one_of(&["web-0"])),
        ("generateName", one_of(&["web-"])),
        ("ownerReferences", list(owner)),
        ("annotations", annotations),
    ]);
    (metadata, pod_spec())
        .prop_map(|(metadata, spec)| json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
        .boxed()
}
