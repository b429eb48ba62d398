//! Where two transcripts differ, and which differences are meant.

use crate::Transcript;
use serde_json::Value;
use std::fmt;

/// One difference.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// In which script.
    pub script: String,
    /// At which step, counted from 1, and what was asked there.
    pub step: String,
    /// Where in the answer: `code`, `type`, `warnings`, or a JSON pointer into the body.
    pub place: String,
    /// What the real server said.
    pub real: Value,
    /// What the simulated one said.
    pub simulated: Value,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference {
            script,
            step,
            place,
            real,
            simulated,
        } = self;
        write!(
            f,
            "{script}\n  {step}\n  {place}\n    real:      {real}\n    simulated: {simulated}"
        )
    }
}

/// A difference that is meant.
#[derive(Clone, Copy, Debug)]
pub struct Allowed {
    /// In scripts whose names begin so.
    pub script: &'static str,
    /// At places that contain this.
    pub place: &'static str,
    /// Why.
    pub reason: &'static str,
}

/// All differences that are meant.
pub const ALLOWED: &[Allowed] = &[
    Allowed {
        script: "create: owner references",
        place: "message",
        reason: "a quoted object shows its fields in the order of Go's struct, which JSON does not keep",
    },
    Allowed {
        script: "patch: a patch that makes the object invalid",
        place: "message",
        reason: "the words are those of Go's JSON decoder, with the names of Go's types",
    },
    Allowed {
        script: "patch: a patch that makes the object invalid",
        place: "/details",
        reason: "as above, and the details repeat them",
    },
    Allowed {
        script: "patch: patches of the wrong type",
        place: "/message",
        reason: "the words are those of Go's JSON decoder",
    },
    Allowed {
        script: "update: unknown and doubled fields",
        place: "message",
        reason: "the refused object is quoted with its fields in the order of Go's struct",
    },
    Allowed {
        script: "create: leases and events",
        place: "managedFields/0/fieldsV1",
        reason: "an event is stored once, as v1; its managers are those of v1 also where it came as events.k8s.io/v1",
    },
    Allowed {
        script: "list: pages",
        place: "/message",
        reason: "what is wrong with a continue token is said in words of its encoding, which is private to the server",
    },
    Allowed {
        script: "protobuf: custom resources are never in protobuf",
        place: "type",
        reason: "answers are in JSON also where only protobuf was asked for, refusals among them",
    },
    Allowed {
        script: "protobuf: answers",
        place: "type",
        reason: "answers are always in JSON; every client that asks for protobuf accepts it",
    },
    Allowed {
        script: "protobuf: answers",
        place: "/kind",
        reason: "as above: what is not JSON has no fields that a script could look at",
    },
    Allowed {
        script: "protobuf: bodies of other kinds",
        place: "",
        reason: "in protobuf, only the kinds are read that kubectl sends so; others are refused by name, with 501",
    },
];

/// Puts the managers of a body in an order of their own, wherever in it they are: in an object, in one of a list or of an event, or where a
/// script looks at them alone. The server puts those first whose latest change is older, by the second: which that is depends on where a
/// second ends.
fn order_managers(body: &mut Value) {
    let word = |manager: &Value, field: &str| manager[field].as_str().unwrap_or_default().to_owned();
    match body {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(managers) = value.as_array_mut().filter(|_| name.ends_with("managedFields")) {
                    managers.sort_by_key(|manager| {
                        ["manager", "operation", "apiVersion", "subresource"].map(|field| word(manager, field))
                    });
                }
                order_managers(value);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(order_managers),
        _ => {}
    }
}

fn without_order(body: &Value) -> Value {
    let mut body = body.clone();
    order_managers(&mut body);
    body
}

/// Where `simulated` differs from `real`.
pub fn compare(real: &Transcript, simulated: &Transcript) -> Vec<Difference> {
    let mut found = Vec::new();
    for (number, (a, b)) in real.answers.iter().zip(&simulated.answers).enumerate() {
        let mut places = Vec::new();
        differ("code", &a.code.into(), &b.code.into(), &mut places);
        differ(
            "type",
            &a.content_type.as_str().into(),
            &b.content_type.as_str().into(),
            &mut places,
        );
        differ(
            "warnings",
            &a.warnings.clone().into(),
            &b.warnings.clone().into(),
            &mut places,
        );
        differ("", &without_order(&a.body), &without_order(&b.body), &mut places);
        found.extend(places.into_iter().map(|(place, real_says, simulated_says)| Difference {
            script: real.script.clone(),
            step: format!("{}. {}", number + 1, a.request),
            place,
            real: real_says,
            simulated: simulated_says,
        }));
    }
    if real.answers.len() != simulated.answers.len() {
        found.push(Difference {
            script: real.script.clone(),
            step: "all".into(),
            place: "number of answers".into(),
            real: real.answers.len().into(),
            simulated: simulated.answers.len().into(),
        });
    }
    found
}

impl Difference {
    /// Whether it is meant, as [`ALLOWED`] says.
    pub fn is_allowed(&self) -> bool {
        ALLOWED.iter().any(|allowed| allowed.allows(self))
    }
}

impl Allowed {
    /// Whether it allows this.
    pub fn allows(&self, difference: &Difference) -> bool {
        difference.script.starts_with(self.script) && difference.place.contains(self.place)
    }
}

/// Notes the innermost places at which two values differ.
fn differ(place: &str, real: &Value, simulated: &Value, found: &mut Vec<(String, Value, Value)>) {
    match (real, simulated) {
        _ if real == simulated => {}
        (Value::Object(a), Value::Object(b)) => {
            let added = b.keys().filter(|key| !a.contains_key(*key));
            for key in a.keys().chain(added) {
                let (a, b) = (a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null));
                differ(&format!("{place}/{key}"), a, b, found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                differ(&format!("{place}/{index}"), a, b, found);
            }
        }
        _ => found.push((place.to_owned(), real.clone(), simulated.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Answer;
    use serde_json::json;

    fn transcript(body: Value) -> Transcript {
        let answer = Answer {
            request: "GET /x".into(),
            code: 200,
            content_type: String::new(),
            warnings: Vec::new(),
            body,
        };
        Transcript {
            script: "read: x".into(),
            answers: vec![answer],
        }
    }

    #[test]
    fn differences_are_named_by_their_innermost_place_unless_they_are_meant() {
        let real = transcript(json!({"a": [{"b": 1, "c": 2}], "d": 3}));
        let simulated = transcript(json!({"a": [{"b": 1, "c": 4}]}));
        let found = compare(&real, &simulated);
        let places: Vec<_> = found.iter().map(|d| d.place.as_str()).collect();
        assert_eq!(places, ["/a/0/c", "/d"]);
        let allowed = Allowed {
            script: "read",
            place: "/a/0",
            reason: "an example",
        };
        let meant: Vec<_> = found.iter().map(|difference| allowed.allows(difference)).collect();
        assert_eq!(meant, [true, false]);
        assert!(compare(&real, &real).is_empty());
    }
    #[test]
    fn the_order_of_managers_depends_on_the_clock_and_is_not_compared() {
        let status = json!({"manager": "one", "operation": "Apply", "subresource": "status"});
        let body = |managers: Value| transcript(json!({"metadata": {"managedFields": managers}}));
        let one = json!({"manager": "one", "operation": "Apply"});
        let two = json!({"manager": "two", "operation": "Apply"});
        let first = body(json!([one, two, status]));
        assert!(compare(&first, &body(json!([status, one, two]))).is_empty());
        assert!(!compare(&first, &body(json!([status, one]))).is_empty());
        for place in ["/metadata/managedFields", "/object/metadata/managedFields"] {
            let body = |managers: Value| transcript(json!({place: managers}));
            let first = body(json!([one, two]));
            assert!(compare(&first, &body(json!([two, one]))).is_empty(), "{place}");
        }
        let list = |managers: Value| transcript(json!({"items": [{"metadata": {"managedFields": managers}}]}));
        assert!(compare(&list(json!([one, two])), &list(json!([two, one]))).is_empty());
    }
}
