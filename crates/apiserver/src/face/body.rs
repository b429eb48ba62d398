//! Bodies of requests.

use super::Asked;
use crate::types::TypeInfo;
use flotilla_apimachinery::status::Status;
use http::header::CONTENT_TYPE;
use serde_json::Value;

/// The content type of the body, without parameters; JSON unless it is said.
pub(super) fn content_type(asked: &Asked<'_>) -> String {
    let header = asked
        .headers
        .get(CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    let media = header.split(';').next().unwrap_or_default().trim();
    if media.is_empty() {
        "application/json".to_owned()
    } else {
        media.to_owned()
    }
}

/// The body as JSON, if it is written in a language that the server reads.
pub(super) fn read(asked: &Asked<'_>) -> Result<Value, Status> {
    match content_type(asked).as_str() {
        "application/json" => from_json(asked.body),
        "application/yaml" => from_yaml(asked.body),
        "application/vnd.kubernetes.protobuf" => super::protobuf::read(asked.body),
        other => Err(unsupported(
            other,
            &[
                "application/json",
                "application/yaml",
                "application/vnd.kubernetes.protobuf",
            ],
        )),
    }
}

pub(super) fn from_json(body: &[u8]) -> Result<Value, Status> {
    serde_json::from_slice(body)
        .map_err(|e| Status::bad_request(format!("couldn't get version/kind; json parse error: {e}")))
}

pub(super) fn from_yaml(body: &[u8]) -> Result<Value, Status> {
    let text = std::str::from_utf8(body).map_err(|e| Status::bad_request(format!("error decoding YAML: {e}")))?;
    serde_saphyr::from_str(text).map_err(|e| Status::bad_request(format!("error decoding YAML: {e}")))
}

/// 415: no such language.
pub(super) fn unsupported(_given: &str, accepted: &[&str]) -> Status {
    let message = format!(
        "the body of the request was in an unknown format - accepted media types include: {}",
        accepted.join(", ")
    );
    Status::new(415, "UnsupportedMediaType", message)
}

/// Whether an object is one of this kind. A body that does not say what it is counts as one.
pub(super) fn check_kind(info: &TypeInfo, object: &mut Value) -> Result<(), Status> {
    if !object.is_object() {
        let kind = &info.kind;
        let why = format!(
            "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error"
        );
        return Err(Status::bad_request(why));
    }
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if (!kind.is_empty() && kind != info.kind) || (!version.is_empty() && version != info.api_version()) {
        let version = if version.is_empty() {
            info.api_version()
        } else {
            version
        };
        let kind = if kind.is_empty() { info.kind.clone() } else { kind };
        let short = version.rsplit('/').next().unwrap_or_default().to_owned();
        let group = info.group.split('.').next().filter(|g| !g.is_empty()).unwrap_or("core");
        let why = if version == info.api_version() {
            format!(
                "converting ({short}.{kind}) to ({group}.{}): unknown conversion",
                info.kind
            )
        } else {
            format!(
                "no kind \"{kind}\" is registered for version \"{version}\" in scheme \"pkg/runtime/scheme.go:111\""
            )
        };
        return Err(Status::bad_request(format!(
            "{kind} in version \"{short}\" cannot be handled as a {}: {why}",
            info.kind
        )));
    }
    super::set_type(info, object);
    Ok(())
}

/// Names of fields that a body has twice, as paths: a parser keeps only one of them.
pub(super) fn doubled_fields(body: &[u8]) -> Vec<String> {
    let mut found = doubles::Found::default();
    let mut reader = serde_json::Deserializer::from_slice(body);
    // What cannot be read is refused elsewhere.
    let _ = serde::de::DeserializeSeed::deserialize(
        doubles::Place {
            path: String::new(),
            found: &mut found,
        },
        &mut reader,
    );
    found.paths
}

mod doubles {
    use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
    use std::collections::BTreeSet;
    use std::fmt;

    #[derive(Default)]
    pub(super) struct Found {
        pub(super) paths: Vec<String>,
    }

    pub(super) struct Place<'f> {
        pub(super) path: String,
        pub(super) found: &'f mut Found,
    }

    impl<'de> DeserializeSeed<'de> for Place<'_> {
        type Value = ();
        fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
            deserializer.deserialize_any(self)
        }
    }

    impl<'de> Visitor<'de> for Place<'_> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("JSON")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            let mut seen = BTreeSet::new();
            while let Some(key) = map.next_key::<String>()? {
                let path = if self.path.is_empty() {
                    key.clone()
                } else {
                    format!("{}.{key}", self.path)
                };
                if !seen.insert(key) {
                    self.found.paths.push(path.clone());
                }
                map.next_value_seed(Place {
                    path,
                    found: self.found,
                })?;
            }
            Ok(())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
            let mut index = 0;
            while items
                .next_element_seed(Place {
                    path: format!("{}[{index}]", self.path),
                    found: self.found,
                })?
                .is_some()
            {
                index += 1;
            }
            Ok(())
        }

        fn visit_bool<E>(self, _: bool) -> Result<(), E> {
            Ok(())
        }
        fn visit_i64<E>(self, _: i64) -> Result<(), E> {
            Ok(())
        }
        fn visit_u64<E>(self, _: u64) -> Result<(), E> {
            Ok(())
        }
        fn visit_f64<E>(self, _: f64) -> Result<(), E> {
            Ok(())
        }
        fn visit_str<E>(self, _: &str) -> Result<(), E> {
            Ok(())
        }
        fn visit_unit<E>(self) -> Result<(), E> {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubled_fields_are_named_by_their_paths() {
        let body = br#"{"a": 1, "b": {"c": [{"d": 1, "d": 2}]}, "a": null}"#;
        assert_eq!(doubled_fields(body), ["b.c[0].d", "a"]);
    }
}
