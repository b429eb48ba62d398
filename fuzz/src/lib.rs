//! Targets: functions that take any bytes and panic where a promise is broken.
//!
//! A target for another crate (records decoded from protobuf, the annotation with the state of an update in place) is a function here, a
//! row in [`TARGETS`], a folder in `corpus`, and a file in `fuzz_targets`.

mod mutate;

pub use mutate::{Random, changed};

use flotilla_admission::{
    Nothing, Operation, Reply, Request, Verdict, apply, convert, mutate, mutate_pod, protect, validate,
};
use serde_json::Value;

/// A target's name, which is that of its folder in `corpus`, and the function.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[("admission", admission), ("conversion", conversion)];

const GROUP: &str = "apps.kruise.io";

/// Whatever an object looks like: admission gives an answer, its patch fits, and asking again about the result changes nothing.
///
/// The input is an object, or a list of an object and the one stored before.
pub fn admission(input: &[u8]) {
    let Some((new, old)) = objects(input) else { return };
    for version in ["v1beta1", "v1alpha1"] {
        for old in [None, old.as_ref()] {
            let set = request((GROUP, version, "StatefulSet"), Some(&new), old);
            let after = settled(&set, &new, |request| mutate(request, &Nothing));
            judged(&validate(&set, &Nothing));
            let set = request((GROUP, version, "StatefulSet"), Some(&after), old);
            judged(&validate(&set, &Nothing));
        }
    }
    let pod = request(("", "v1", "Pod"), Some(&new), None);
    settled(&pod, &new, |request| mutate_pod(request, &Nothing));
    for kind in [
        ("", "v1", "Namespace"),
        ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        ("apps", "v1", "StatefulSet"),
        ("apps", "v1", "DaemonSet"),
    ] {
        judged(&protect(&request(kind, None, Some(&new)), &Nothing));
    }
}

/// Conversion down and up again loses nothing of the spec, and is stable from then on.
pub fn conversion(input: &[u8]) {
    let Some((mut set, _)) = objects(input) else { return };
    if !set.is_object() {
        assert!(
            convert(&[set], "apps.kruise.io/v1beta1").is_err(),
            "no object is converted"
        );
        return;
    }
    // What no API server sends, since it has read the metadata itself.
    for pointer in ["/metadata", "/metadata/annotations"] {
        if let Some(place) = set.pointer_mut(pointer).filter(|place| !place.is_object()) {
            *place = serde_json::json!({});
        }
    }
    set["kind"] = "StatefulSet".into();
    for (from, to) in [("v1beta1", "v1alpha1"), ("v1alpha1", "v1beta1")] {
        set["apiVersion"] = format!("{GROUP}/{from}").into();
        let there = one(&set, to);
        let back = one(&there, from);
        if from == "v1beta1" {
            assert_eq!(back.get("spec"), set.get("spec"), "the spec survives");
        }
        assert_eq!(
            one(&back, to).get("spec"),
            there.get("spec"),
            "what was converted once converts to the same"
        );
    }
}

fn one(object: &Value, version: &str) -> Value {
    let converted = convert(std::slice::from_ref(object), &format!("{GROUP}/{version}"));
    let mut converted = converted.expect("a StatefulSet can be converted");
    converted.pop().expect("as many come back as went in")
}

fn objects(input: &[u8]) -> Option<(Value, Option<Value>)> {
    match serde_json::from_slice(input).ok()? {
        Value::Array(mut list) => {
            list.truncate(2);
            let old = (list.len() == 2).then(|| list.pop()).flatten();
            Some((list.pop()?, old))
        }
        object => Some((object, None)),
    }
}

fn request<'a>(kind: (&'a str, &'a str, &'a str), new: Option<&'a Value>, old: Option<&'a Value>) -> Request<'a> {
    let any = new.or(old);
    let text = |pointer| {
        any.and_then(|o| o.pointer(pointer))
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    Request {
        uid: "fuzz",
        operation: match (new, old) {
            (Some(_), None) => Operation::Create,
            (Some(_), Some(_)) => Operation::Update,
            (None, _) => Operation::Delete,
        },
        group: kind.0,
        version: kind.1,
        kind: kind.2,
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name"),
        object: new,
        old_object: old,
        dry_run: false,
    }
}

/// The object after the reply's patch, which has to fit, and after which there is nothing to change.
fn settled(request: &Request<'_>, object: &Value, ask: impl Fn(&Request<'_>) -> Reply) -> Value {
    let reply = ask(request);
    judged(&reply);
    let Verdict::Mutate(operations) = &reply.verdict else {
        return object.clone();
    };
    assert!(!operations.is_empty(), "a patch that changes nothing");
    let after = apply(object, operations).expect("the patch fits");
    let text = |pointer| after.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let again = ask(&Request {
        object: Some(&after),
        name: text("/metadata/name"),
        ..*request
    });
    assert_eq!(again.verdict, Verdict::Allow, "asked again, it changes nothing");
    after
}

fn judged(reply: &Reply) {
    if let Verdict::Deny(refusal) = &reply.verdict {
        assert!(!refusal.message.is_empty(), "a refusal says why");
        assert!(
            matches!(refusal.code, 403 | 409 | 422),
            "an unknown code {}",
            refusal.code
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Every input that is kept, and a few thousand beside each target's.
    #[test]
    fn the_kept_inputs_break_nothing() {
        for (name, target) in TARGETS {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
            let files = std::fs::read_dir(&folder).expect("each target has a corpus");
            let mut inputs: Vec<_> = files
                .map(|f| std::fs::read(f.expect("a file").path()).expect("readable"))
                .collect();
            inputs.sort();
            assert!(!inputs.is_empty(), "{name}");
            for input in &inputs {
                target(input);
            }
            let mut random = Random::new(7);
            for _ in 0..2000 {
                target(&changed(&inputs, &mut random));
            }
        }
    }
}
