//! What holds for any object.

use crate::generate;
use crate::world::{World, patched, refusal, request};
use flotilla_admission::{Reply, Verdict, difference, mutate, mutate_pod, validate};
use flotilla_model::template::normal_form;
use proptest::prelude::*;
use serde_json::{Value, json};

fn mutated(object: &Value, old: Option<&Value>) -> Value {
    patched(object, &mutate(&request(Some(object), old), &World::default()))
}

/// Everything in `before` is in `after` as it was, save nulls, empty texts, zeros of probes, and the status.
fn keeps(before: &Value, after: &Value, path: &str) -> Result<(), String> {
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            for (field, value) in old {
                let path = format!("{path}/{field}");
                let says_nothing = value.is_null() || value == "" || (path.contains("Probe/") && value == &json!(0));
                match new.get(field) {
                    _ if says_nothing || path == "/status" => {}
                    Some(kept) => keeps(value, kept, &path)?,
                    None => return Err(format!("{path} is gone")),
                }
            }
            Ok(())
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            old.iter().zip(new).try_for_each(|(old, new)| keeps(old, new, path))
        }
        (old, new) if old == new || old.is_null() => Ok(()),
        (old, new) => Err(format!("{path}: {old} became {new}")),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn sts_7_2_filling_in_twice_is_filling_in_once(object in generate::set()) {
        let once = mutated(&object, None);
        prop_assert_eq!(mutate(&request(Some(&once), None), &World::default()).verdict, Verdict::Allow);
        prop_assert_eq!(mutated(&once, Some(&once)), once);
    }

    #[test]
    fn sts_7_2_nothing_that_was_said_is_changed(object in generate::set()) {
        let after = mutated(&object, None);
        prop_assert_eq!(keeps(&object, &after, ""), Ok(()));
    }

    /// What is filled in are the defaults that the controllers read into absent fields, save the pull policy.
    #[test]
    fn sts_7_2_templates_make_the_same_pods(object in generate::set()) {
        let mut before = object["spec"]["template"].clone();
        for list in ["/spec/containers", "/spec/initContainers"] {
            for container in before.pointer_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                if container.is_object() && matches!(container["imagePullPolicy"].as_str(), None | Some("")) {
                    container["imagePullPolicy"] = json!("Always");
                }
            }
        }
        let after = mutated(&object, None);
        prop_assert_eq!(normal_form(&before), normal_form(&after["spec"]["template"]));
    }

    /// Filling in makes no good set bad, and no verdict depends on who asks first.
    #[test]
    fn sts_7_3_filling_in_does_not_add_problems(object in generate::set()) {
        let of = |object: &Value| -> Vec<String> {
            let reply = validate(&request(Some(object), None), &World::default());
            refusal(&reply).map(|(_, m)| m.lines().map(str::to_owned).collect()).unwrap_or_default()
        };
        // Messages may show a value with its defaults filled in; which fields they name stays.
        let field = |line: &String| line.split(": ").next().unwrap_or_default().to_owned();
        let before: Vec<_> = of(&object).iter().map(field).collect();
        for line in of(&mutated(&object, None)) {
            prop_assert!(before.contains(&field(&line)), "{}", line);
        }
    }

    #[test]
    fn sts_7_4_what_is_stored_can_be_stored_again(object in generate::set()) {
        let reply = validate(&request(Some(&object), Some(&object)), &World::default());
        prop_assert_eq!(refusal(&reply), None);
    }

    #[test]
    fn adm_2_asking_again_changes_nothing(pod in generate::pod()) {
        let reply = mutate_pod(&request(Some(&pod), None), &World::default());
        if refusal(&reply).is_none() {
            let once = patched(&pod, &reply);
            let again = mutate_pod(&request(Some(&once), None), &World::default());
            prop_assert_eq!(again, Reply { verdict: Verdict::Allow, warnings: reply.warnings });
            for operation in difference(&pod, &once) {
                let path = operation["path"].as_str().unwrap();
                let is_ours = path == "/metadata/name" || path.starts_with("/spec/readinessGates") || path.contains("/env");
                prop_assert!(is_ours, "{}", operation);
            }
        }
    }
}
