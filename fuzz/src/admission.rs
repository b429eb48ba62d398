//! Target `admission`: whatever is to be stored, there is an answer.

use crate::reached::Reached;
use crate::{GROUP, objects};
use flotilla_admission::{Nothing, Operation, Reply, Request, Verdict, apply, mutate, mutate_pod, protect, validate};
use serde_json::Value;

/// Whatever an object looks like: admission gives an answer, its patch fits, and asking again about the result changes nothing.
///
/// The input is an object, or a list of an object and the one stored before.
pub fn run(input: &[u8]) -> Reached {
    let mut reached = Reached::default();
    let Some((new, old)) = objects(input) else {
        return reached;
    };
    for version in ["v1beta1", "v1alpha1"] {
        for old in [None, old.as_ref()] {
            let set = request((GROUP, version, "StatefulSet"), Some(&new), old);
            let after = settled(&mut reached, &set, &new, |request| mutate(request, &Nothing));
            judged(&mut reached, &validate(&set, &Nothing));
            let set = request((GROUP, version, "StatefulSet"), Some(&after), old);
            judged(&mut reached, &validate(&set, &Nothing));
        }
    }
    let pod = request(("", "v1", "Pod"), Some(&new), None);
    settled(&mut reached, &pod, &new, |request| mutate_pod(request, &Nothing));
    for kind in [
        ("", "v1", "Namespace"),
        ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        ("apps", "v1", "StatefulSet"),
        ("apps", "v1", "DaemonSet"),
    ] {
        judged(&mut reached, &protect(&request(kind, None, Some(&new)), &Nothing));
    }
    reached
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
fn settled(reached: &mut Reached, request: &Request<'_>, object: &Value, ask: impl Fn(&Request<'_>) -> Reply) -> Value {
    let reply = ask(request);
    judged(reached, &reply);
    let Verdict::Mutate(operations) = &reply.verdict else {
        return object.clone();
    };
    for operation in operations {
        // Not as far as names that users chose.
        let path = operation["path"].as_str().unwrap_or_default();
        reached.note(&path.split('/').take(3).collect::<Vec<_>>().join("/"));
    }
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

fn judged(reached: &mut Reached, reply: &Reply) {
    for warning in &reply.warnings {
        reached.note(warning);
    }
    if let Verdict::Deny(refusal) = &reply.verdict {
        reached.note(&refusal.message);
        assert!(!refusal.message.is_empty(), "a refusal says why");
        assert!(
            matches!(refusal.code, 403 | 409 | 422),
            "an unknown code {}",
            refusal.code
        );
    }
}
