use super::*;
use flotilla_admission::Nothing;
use proptest::prelude::*;

const HUB: &str = "apps.kruise.io/v1beta1";
const OLD: &str = "apps.kruise.io/v1alpha1";

/// The answer to a review of these texts of objects, with little stack: nothing may go down with the depth.
fn ask(objects: &[String], desired: &str) -> (String, &'static str) {
    let body = format!(
        r#"{{"apiVersion":"{CONVERSION}","kind":"ConversionReview","request":{{"uid":"u","desiredAPIVersion":"{desired}","objects":[{}]}}}}"#,
        objects.join(",")
    );
    let small = std::thread::Builder::new().stack_size(512 << 10);
    let answered =
        small.spawn(move || super::super::answer(super::super::Hook::Convert, body.as_bytes(), &Nothing).unwrap());
    let answer = answered.unwrap().join().unwrap();
    (String::from_utf8(answer.body).unwrap(), answer.verdict)
}

/// The texts of the objects in an answer.
fn converted(objects: &[String], desired: &str) -> Vec<String> {
    let (body, verdict) = ask(objects, desired);
    assert_eq!(verdict, "converted", "{}", &body[..body.len().min(500)]);
    let review: BTreeMap<&str, &RawValue> = serde_json::from_str(&body).unwrap();
    let response: BTreeMap<&str, &RawValue> = serde_json::from_str(review["response"].get()).unwrap();
    let objects: Vec<&RawValue> = serde_json::from_str(response["convertedObjects"].get()).unwrap();
    objects.into_iter().map(|raw| raw.get().to_owned()).collect()
}

fn deep(levels: usize) -> String {
    format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels))
}

fn innocent(version: &str) -> String {
    json!({"apiVersion": version, "kind": "StatefulSet", "metadata": {"name": "innocent", "namespace": "n", "uid": "u-1"},
        "spec": {"replicas": 3, "template": {"spec": {"containers": []}}}, "status": {"replicas": 3}})
    .to_string()
}

/// An object with this metadata (more of it), spec (more of it) and status.
fn object(version: &str, kind: &str, metadata: &str, spec: &str, status: &str) -> String {
    format!(
        r#"{{"apiVersion":"{version}","kind":"{kind}","metadata":{{"name":"evil","namespace":"m"{metadata}}},"spec":{{"replicas":1{spec}}},"status":{status}}}"#
    )
}

/// R-13, ADM-5.8: however deep a template, a claim, a status or the managed fields are, they are copied byte for byte.
#[test]
fn what_is_not_looked_at_is_copied_whatever_its_depth() {
    for levels in [1, 90, 110, 125, 140, 10_000, 100_000] {
        let deep = deep(levels);
        for (from, to) in [(HUB, OLD), (OLD, HUB)] {
            for kind in ["StatefulSet", "CloneSet"] {
                let evil = object(
                    from,
                    kind,
                    &format!(r#","managedFields":[{deep}],"finalizers":["f/x"]"#),
                    &format!(r#","template": {{ "x" : {deep}, "y": 1.50, "y": 1e3}},"volumeClaimTemplates":[{deep}]"#),
                    &deep,
                );
                let got = converted(&[innocent(from), evil, innocent(from)], to);
                assert_eq!(got[0], converted(&[innocent(from)], to)[0], "{levels} {kind}");
                assert_eq!(got[2], got[0]);
                for part in [
                    format!(r#""managedFields":[{deep}]"#),
                    r#""finalizers":["f/x"]"#.to_owned(),
                    format!(r#""template":{{ "x" : {deep}, "y": 1.50, "y": 1e3}}"#),
                    format!(r#""volumeClaimTemplates":[{deep}]"#),
                    format!(r#""status":{deep}"#),
                    format!(r#""apiVersion":"{to}""#),
                ] {
                    assert!(
                        got[1].contains(&part),
                        "{levels} {kind} to {to}: {}",
                        &part[..part.len().min(60)]
                    );
                }
            }
        }
    }
}

/// R-13: fields that do not fit into annotations fail nobody's list, and the API server finds no object with too many annotations.
#[test]
fn fields_that_do_not_fit_fail_nobody() {
    let evil = object(
        HUB,
        "StatefulSet",
        &format!(r#","annotations":{{"note":"{}"}}"#, "x".repeat(262_000)),
        &format!(r#","reserveOrdinals":{:?}"#, (100..200).collect::<Vec<_>>()),
        "{}",
    );
    let got = converted(&[innocent(HUB), evil], OLD);
    assert_eq!(got[0], converted(&[innocent(HUB)], OLD)[0]);
    let evil: Value = serde_json::from_str(&got[1]).unwrap();
    assert_eq!(evil["metadata"]["labels"]["flotilla.rs/hub-fields"], "left-out");
    // A write converts one object, and is told.
    let (answer, verdict) = ask(&[got[1].clone()], HUB);
    assert_eq!(verdict, "unconverted");
    assert!(
        answer.contains("StatefulSet m/evil cannot be written as v1alpha1"),
        "{answer}"
    );
}

/// What a tenant may send, and more than an API server lets through.
fn any_part() -> impl Strategy<Value = String> {
    prop_oneof![
        (0_usize..300).prop_map(deep),
        Just(deep(5000)),
        Just(format!("[{}]", "[[0]],".repeat(20_000) + "0")),
        Just(r#""\ud800""#.to_owned()),
        Just(format!("{:?}", "x".repeat(262_120))),
        Just(format!("{:?}", "x".repeat(700_000))),
        "[0-9]|null|true|\"[a-z{\\[]{0,9}\"|\\[\\]|\\{\\}",
    ]
}

fn any_object(version: &'static str) -> impl Strategy<Value = String> {
    let kind = prop_oneof![Just("StatefulSet"), Just("CloneSet")];
    let metadata = prop::sample::select(vec!["annotations", "labels", "managedFields", "ownerReferences"]);
    let spec = prop::sample::select(vec![
        "template",
        "volumeClaimTemplates",
        "specialPodsSelectors",
        "reserveOrdinals",
        "updateStrategy",
        "scaleStrategy",
        "unknown",
    ]);
    (kind, metadata, any_part(), spec, any_part(), any_part(), any::<bool>()).prop_map(
        move |(kind, in_metadata, one, in_spec, two, status, is_map)| {
            let one = if is_map { format!(r#"{{"note":{one}}}"#) } else { one };
            object(
                version,
                kind,
                &format!(r#","{in_metadata}":{one}"#),
                &format!(r#","{in_spec}":{two}"#),
                &status,
            )
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// R-13: whatever an object holds, its neighbours are converted as if it were not there, both ways; nor do its annotations become too
    /// many for the API server where they were not.
    #[test]
    fn r_13_no_object_changes_the_conversion_of_its_neighbours(down in any_object(HUB), up in any_object(OLD)) {
        for (evil, from, to) in [(down, HUB, OLD), (up, OLD, HUB)] {
            let alone = converted(&[innocent(from)], to);
            let got = converted(&[innocent(from), evil.clone(), innocent(from)], to);
            prop_assert_eq!(got.len(), 3);
            prop_assert_eq!(&got[0], &alone[0]);
            prop_assert_eq!(&got[2], &alone[0]);
            prop_assert!(!got[1].is_empty());
            let bytes = |text: &str| {
                let object: BTreeMap<String, &RawValue> = serde_json::from_str(text).unwrap();
                let metadata: BTreeMap<String, &RawValue> = serde_json::from_str(object["metadata"].get()).unwrap();
                let annotations = metadata.get("annotations").map(|raw| serde_json::from_str::<BTreeMap<String, String>>(raw.get()));
                let annotations = annotations.unwrap_or_else(|| Ok(BTreeMap::new()));
                annotations.map(|all| all.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>())
            };
            if let Ok(before) = bytes(&evil) && before <= 262_144 {
                prop_assert!(bytes(&got[1]).unwrap() <= 262_144);
            }
        }
    }
}
