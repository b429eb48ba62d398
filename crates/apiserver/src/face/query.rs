//! The query of a URL.

use flotilla_apimachinery::status::Status;
use std::collections::BTreeMap;

/// Names and values; of a repeated name the values in order.
#[derive(Debug, Default)]
pub(crate) struct Query {
    values: BTreeMap<String, Vec<String>>,
}

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            values.entry(decode(name)).or_default().push(decode(value));
        }
        Query { values }
    }

    /// The first value of this name; `None` also if it is empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let value = self.values.get(name)?.first()?;
        (!value.is_empty()).then_some(value.as_str())
    }

    /// All values of this name.
    pub(crate) fn all(&self, name: &str) -> &[String] {
        self.values.get(name).map_or(&[], Vec::as_slice)
    }

    /// `true`, `1`, or merely there.
    pub(crate) fn is_true(&self, name: &str) -> bool {
        let value = self.values.get(name).and_then(|v| v.first());
        value.is_some_and(|value| !matches!(value.as_str(), "false" | "0"))
    }

    /// Whether something is said about it.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// A number.
    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>, Status> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let number = text
            .parse()
            .map_err(|_| Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))?;
        Ok(Some(number))
    }

    /// Whether the write is only to be tried.
    pub(crate) fn is_dry_run(&self) -> Result<bool, Status> {
        let values = self.all("dryRun");
        match values.iter().find(|v| *v != "All") {
            None => Ok(!values.is_empty()),
            Some(_) => Err(invalid_option("dryRun", serde_json::json!(values), &["All"])),
        }
    }
}

/// An option whose value is none of those that there are.
pub(crate) fn invalid_option(name: &str, value: serde_json::Value, allowed: &[&str]) -> Status {
    let error = flotilla_apimachinery::field::Error::not_supported(name, value, allowed.iter().copied());
    let kind = flotilla_apimachinery::status::Qualified::new("meta.k8s.io", "CreateOptions");
    Status::invalid(&kind, "", &[error])
}

fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let hex = text
            .get(index + 1..index + 3)
            .and_then(|h| u8::from_str_radix(h, 16).ok());
        match (bytes[index], hex) {
            (b'%', Some(byte)) => {
                decoded.push(byte);
                index += 3;
                continue;
            }
            (b'+', _) => decoded.push(b' '),
            (byte, _) => decoded.push(byte),
        }
        index += 1;
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded() {
        let query = Query::parse("labelSelector=app%3Dweb%2Cx+in+(a)&watch&limit=x&dryRun=All");
        assert_eq!(query.get("labelSelector"), Some("app=web,x in (a)"));
        assert!(query.is_true("watch"));
        assert!(query.number("limit").is_err());
        assert_eq!(query.number("none"), Ok(None));
        assert_eq!(query.is_dry_run(), Ok(true));
    }
}
