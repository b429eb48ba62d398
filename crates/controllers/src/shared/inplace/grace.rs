//! The annotation that keeps an update until its grace period has ended (STS-4.3 and STS-4.7).

use super::{Changes, UpdateSpec, other_fields, ref_metadata_json, ref_metadata_of, texts, values};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// The fields that are read.
const FIELDS: [&str; 7] = [
    "revision",
    "containerImages",
    "containerRefMetadata",
    "containerResources",
    "metaDataPatch",
    "updateEnvFromMetadata",
    "graceSeconds",
];

/// An update that is decided and not begun.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grace {
    /// The revision it goes to.
    pub revision: String,
    /// What it will do.
    pub spec: UpdateSpec,
    /// How long the pod is out of service before.
    pub period: Duration,
    /// Fields that we do not need, kept as they are: the templates that Go notes, and what another release may write.
    pub others: BTreeMap<String, Value>,
}

impl Grace {
    /// Reads the annotation.
    pub fn parse(text: &str) -> Result<Grace, String> {
        let json: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let revision = json
            .get("revision")
            .and_then(Value::as_str)
            .ok_or("it names no revision")?;
        let seconds = json.get("graceSeconds").and_then(Value::as_i64).unwrap_or(0);
        let metadata = match json
            .get("metaDataPatch")
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
        {
            None => Value::Null,
            Some(encoded) => {
                let bytes = decode(encoded).ok_or("its patch of metadata is not base64")?;
                let patch: Value = serde_json::from_slice(&bytes).map_err(|e| e.to_string())?;
                patch.get("metadata").cloned().unwrap_or(Value::Null)
            }
        };
        Ok(Grace {
            revision: revision.to_owned(),
            spec: UpdateSpec {
                changes: Changes {
                    images: texts(json.get("containerImages")),
                    ref_metadata: ref_metadata_of(json.get("containerRefMetadata")),
                    resources: values(json.get("containerResources")),
                },
                metadata,
                env_from_metadata: json
                    .get("updateEnvFromMetadata")
                    .and_then(Value::as_bool)
                    .unwrap_or(false),
            },
            period: Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
            others: other_fields(&json, &FIELDS),
        })
    }

    /// The annotation's text.
    pub fn to_text(&self) -> String {
        let mut json = Map::new();
        let mut put = |field: &str, value: Value, is_there: bool| {
            if is_there {
                json.insert(field.to_owned(), value);
            }
        };
        let changes = &self.spec.changes;
        put("revision", json!(self.revision), true);
        put("containerImages", json!(changes.images), !changes.images.is_empty());
        let refs = ref_metadata_json(&changes.ref_metadata);
        put("containerRefMetadata", refs, !changes.ref_metadata.is_empty());
        put(
            "containerResources",
            json!(changes.resources),
            !changes.resources.is_empty(),
        );
        let patch = json!({"metadata": self.spec.metadata}).to_string();
        put(
            "metaDataPatch",
            json!(encode(patch.as_bytes())),
            !self.spec.metadata.is_null(),
        );
        put("updateEnvFromMetadata", json!(true), self.spec.env_from_metadata);
        put("graceSeconds", json!(self.period.as_secs()), !self.period.is_zero());
        json.extend(self.others.clone());
        Value::Object(json).to_string()
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Base64 with padding, as Go writes bytes into JSON.
fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            if place <= chunk.len() {
                let index = (bits >> (18 - 6 * place)) & 63;
                text.push(char::from(ALPHABET[index as usize]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    let (mut bits, mut count) = (0_u32, 0);
    for digit in digits.bytes() {
        let value = ALPHABET.iter().position(|known| *known == digit)?;
        bits = bits << 6 | value as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_there_and_back() {
        for (plain, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ] {
            assert_eq!(encode(plain.as_bytes()), encoded);
            assert_eq!(decode(encoded).as_deref(), Some(plain.as_bytes()));
        }
        assert_eq!(decode("a?"), None);
    }

    #[test]
    fn sts_4_7_what_the_go_manager_wrote_is_read() {
        // {"metadata":{"labels":{"tier":"b"}}}
        let text = r#"{"revision":"web-5f","containerImages":{"main":"web:2"},"metaDataPatch":"eyJtZXRhZGF0YSI6eyJsYWJlbHMiOnsidGllciI6ImIifX19",
            "graceSeconds":30,"oldTemplate":{"spec":{}},"newTemplate":{"spec":{}}}"#;
        let grace = Grace::parse(text).expect("it is well written");
        assert_eq!(
            (grace.revision.as_str(), grace.period),
            ("web-5f", Duration::from_secs(30))
        );
        assert_eq!(grace.spec.changes.images["main"], "web:2");
        assert_eq!(grace.spec.metadata, json!({"labels": {"tier": "b"}}));
        assert_eq!(
            grace.others["oldTemplate"],
            json!({"spec": {}}),
            "which a Go manager may need"
        );
        assert_eq!(Grace::parse(&grace.to_text()), Ok(grace), "written and read again");
    }

    #[test]
    fn sts_8_19_nonsense_is_an_error() {
        for bad in [
            "",
            "{}",
            r#"{"revision":"r","metaDataPatch":"?"}"#,
            r#"{"revision":"r","metaDataPatch":"Zg=="}"#,
        ] {
            assert!(Grace::parse(bad).is_err(), "{bad}");
        }
    }
}
