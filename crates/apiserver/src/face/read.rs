//! GET of objects and of collections.

use super::negotiate::Form;
use super::query::Query;
use super::route::Target;
use super::{Asked, Good, shown, shown_value, table};
use crate::store::{Server, Stored};
use crate::types::TypeInfo;
use flotilla_apimachinery::selector::{FieldSelector, LabelSelector};
use flotilla_apimachinery::status::Status;
use flotilla_model::ObjectKey;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Which objects of a collection are meant.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Filter {
    pub(crate) fn parse(info: &TypeInfo, query: &Query) -> Result<Self, Status> {
        let labels = LabelSelector::parse(query.get("labelSelector").unwrap_or_default());
        let fields = FieldSelector::parse(query.get("fieldSelector").unwrap_or_default());
        let filter = Filter {
            labels: labels.map_err(Status::bad_request)?,
            fields: fields.map_err(Status::bad_request)?,
        };
        let more: Vec<&str> = info
            .custom
            .iter()
            .flat_map(|d| &d.selectable_fields)
            .map(String::as_str)
            .collect();
        filter
            .fields
            .check(&info.group, &info.kind, info.custom.is_some(), &more)?;
        Ok(filter)
    }

    /// Only this object, of a namespace.
    pub(crate) fn name(&self) -> Option<&str> {
        self.fields.required("metadata.name")
    }

    pub(crate) fn is_open(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, info: &TypeInfo, stored: &Stored) -> bool {
        if self.is_open() {
            return true;
        }
        let value = if super::events::is_view(info) {
            std::sync::Arc::new(super::events::to_view(&stored.value()))
        } else {
            stored.value()
        };
        self.labels.matches(value.pointer("/metadata/labels")) && self.fields.matches(&value)
    }
}

pub(super) fn get(server: &Server, asked: &Asked<'_>, target: &Target) -> Result<Good, Status> {
    let stored = server.require(target.info.store, &target.key())?;
    Ok(Good::json(200, render(server, asked, &target.info, stored)?))
}

/// One object in the form that was asked for.
pub(crate) fn render(server: &Server, asked: &Asked<'_>, info: &TypeInfo, stored: &Stored) -> Result<String, Status> {
    Ok(match asked.form {
        Form::Table => table::Rows::of(server, asked, info)?
            .table(server, &shown_value(info, stored), true)
            .to_string(),
        Form::Metadata => metadata_only(&shown_value(info, stored)).to_string(),
        Form::Plain | Form::Discovery => shown(info, stored),
    })
}

/// An object without anything but its metadata.
pub(crate) fn metadata_only(value: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value["metadata"]})
}

/// A page of a list.
struct Page<'s> {
    items: Vec<&'s Stored>,
    version: u64,
    /// The last key of the page, if there are more, and how many there are if that is known.
    next: Option<(ObjectKey, Option<usize>)>,
}

pub(super) fn list(server: &Server, asked: &Asked<'_>, target: &Target) -> Result<Good, Status> {
    let info = &target.info;
    let filter = Filter::parse(info, &asked.query)?;
    let moment = moment_of(server, asked)?;
    let past = Past::of(server, info, moment.version)?;
    let page = page(server, asked, target, &filter, &moment, &past)?;
    let mut metadata = json!({"resourceVersion": page.version.to_string()});
    if info.custom.is_some() && asked.form == Form::Plain {
        metadata["continue"] = json!("");
    }
    if let Some((key, left)) = &page.next {
        metadata["continue"] = json!(token(page.version, key));
        if let Some(left) = left {
            metadata["remainingItemCount"] = json!(left);
        }
    }
    let body = match asked.form {
        Form::Table => {
            let items: Vec<Value> = page.items.iter().map(|s| shown_value(info, s)).collect();
            let list = json!({"metadata": metadata, "items": items});
            table::Rows::of(server, asked, info)?
                .table(server, &list, true)
                .to_string()
        }
        Form::Metadata => {
            let items: Vec<Value> = page
                .items
                .iter()
                .map(|s| metadata_only(&shown_value(info, s)))
                .collect();
            json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items})
                .to_string()
        }
        Form::Plain | Form::Discovery => spliced(info, &page.items, &metadata),
    };
    Ok(Good::json(200, body))
}

/// A list made of the texts of its objects. In lists of built-in kinds, objects do not repeat their kind.
fn spliced(info: &TypeInfo, items: &[&Stored], metadata: &Value) -> String {
    let mut body = format!(
        r#"{{"kind":"{}","apiVersion":"{}","metadata":{metadata},"items":["#,
        info.list_kind,
        info.api_version()
    );
    for (index, stored) in items.iter().enumerate() {
        if index > 0 {
            body.push(',');
        }
        if info.custom.is_some() {
            body.push_str(&shown(info, stored));
        } else if super::events::is_view(info) {
            body.push_str(&super::events::to_view(&stored.value()).to_string());
        } else {
            body.push_str(&stored.text());
        }
    }
    body.push_str("]}");
    body
}

/// What a list is to show: the state at a version, after a key.
struct Moment {
    version: u64,
    after: Option<ObjectKey>,
}

fn moment_of(server: &Server, asked: &Asked<'_>) -> Result<Moment, Status> {
    let query = &asked.query;
    if query.has("sendInitialEvents") {
        let mut errors = Vec::new();
        if query.get("resourceVersion").is_none() && query.get("resourceVersionMatch").is_some() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            errors.push(forbidden("resourceVersionMatch", why));
        }
        errors.push(forbidden(
            "sendInitialEvents",
            "sendInitialEvents is forbidden for list",
        ));
        return Err(Status::invalid(&list_options_kind(), "", &errors));
    }
    let version = query.get("resourceVersion");
    let wanted = match version {
        None => None,
        Some(text) => Some(text.parse::<u64>().map_err(|_| {
            Status::bad_request(format!(
                "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
            ))
        })?),
    };
    let matching = query.get("resourceVersionMatch");
    match (matching, wanted) {
        (Some(_), None) => {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            return Err(list_options("resourceVersionMatch", why));
        }
        (Some("Exact"), Some(0)) => {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            return Err(list_options("resourceVersionMatch", why));
        }
        (Some(other), _) if !matches!(other, "Exact" | "NotOlderThan") => {
            let error = flotilla_apimachinery::field::Error::not_supported(
                "resourceVersionMatch",
                other.into(),
                ["Exact", "NotOlderThan", ""],
            );
            return Err(Status::invalid(&list_options_kind(), "", &[error]));
        }
        _ => {}
    }
    if let Some(token) = query.get("continue") {
        if version.is_some_and(|version| version != "0") {
            let why = "specifying resource version is not allowed when using continue";
            return Err(Status::bad_request(why));
        }
        let (version, key) = read_token(token)
            .ok_or_else(|| Status::bad_request("continue key is not valid: encoded continue token is invalid"))?;
        return Ok(Moment {
            version,
            after: Some(key),
        });
    }
    if let Some(wanted) = wanted.filter(|wanted| *wanted > server.version()) {
        return Err(too_new(wanted, server.version()));
    }
    let version = match (matching, wanted) {
        (Some("Exact"), Some(wanted)) => wanted,
        _ => server.version(),
    };
    Ok(Moment { version, after: None })
}

pub(crate) fn list_options_kind() -> flotilla_apimachinery::status::Qualified {
    flotilla_apimachinery::status::Qualified::new("meta.k8s.io", "ListOptions")
}

pub(crate) fn list_options(field: &str, why: &str) -> Status {
    Status::invalid(&list_options_kind(), "", &[forbidden(field, why)])
}

pub(crate) fn forbidden(field: &str, why: &str) -> flotilla_apimachinery::field::Error {
    let fault = flotilla_apimachinery::field::Fault::Forbidden;
    flotilla_apimachinery::field::Error::without_value(fault, field, why)
}

fn too_new(wanted: u64, newest: u64) -> Status {
    let message = format!("Too large resource version: {wanted}, current: {newest}");
    let mut status = Status::new(504, "Timeout", message);
    let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
    status
        .details
        .get_or_insert_default()
        .insert("causes".into(), json!([cause]));
    status
        .details
        .get_or_insert_default()
        .insert("retryAfterSeconds".into(), json!(1));
    status
}

/// 410: the version is too old.
pub(crate) fn expired(message: &str) -> Status {
    Status::new(410, "Expired", message)
}

/// What was different at an earlier version: for each key that changed since, the object as it was.
struct Past(BTreeMap<ObjectKey, Option<Stored>>);

impl Past {
    fn of(server: &Server, info: &TypeInfo, version: u64) -> Result<Self, Status> {
        if version >= server.version() {
            return Ok(Past(BTreeMap::new()));
        }
        let changes = server.watch(info.store, version).map_err(|_| {
            expired("The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.")
        })?;
        let mut past = BTreeMap::new();
        for change in changes {
            past.entry(change.key.clone()).or_insert_with(|| change.before.clone());
        }
        Ok(Past(past))
    }
}

fn page<'s>(
    server: &'s Server,
    asked: &Asked<'_>,
    target: &'s Target,
    filter: &Filter,
    moment: &Moment,
    past: &'s Past,
) -> Result<Page<'s>, Status> {
    let (info, namespace) = (&target.info, target.namespace.as_deref());
    let limit = match asked.query.number("limit")? {
        Some(limit) if limit > 0 => limit as usize,
        _ => usize::MAX,
    };
    let is_meant = |key: &ObjectKey| {
        namespace.is_none_or(|ns| *key.namespace == *ns) && moment.after.as_ref().is_none_or(|after| key > after)
    };
    let mut all: BTreeMap<&ObjectKey, &Stored> = match (filter.name(), namespace) {
        (Some(name), Some(ns)) => {
            let found = server
                .after(info.store, namespace, None)
                .find(|(k, _)| *k.name == *name && *k.namespace == *ns);
            found.into_iter().filter(|(key, _)| is_meant(key)).collect()
        }
        _ => server.after(info.store, namespace, moment.after.clone()).collect(),
    };
    for (key, before) in past.0.iter().filter(|(key, _)| is_meant(key)) {
        match before {
            Some(stored) => drop(all.insert(key, stored)),
            None => drop(all.remove(key)),
        }
    }
    let mut page = Page {
        items: Vec::new(),
        version: moment.version,
        next: None,
    };
    let total = all.len();
    let mut last = None;
    for (seen, (key, stored)) in all.into_iter().enumerate() {
        if page.items.len() == limit {
            let left = filter.is_open().then(|| total - seen);
            page.next = last.map(|key: &ObjectKey| (key.clone(), left));
            break;
        }
        if filter.matches(info, stored) {
            page.items.push(stored);
        }
        last = Some(key);
    }
    Ok(page)
}

/// Continue tokens are opaque to clients, and need no escaping in a query.
fn token(version: u64, key: &ObjectKey) -> String {
    let text = format!("{version}/{}/{}", key.namespace, key.name);
    text.bytes()
        .fold(String::new(), |token, byte| token + &format!("{byte:02x}"))
}

fn read_token(token: &str) -> Option<(u64, ObjectKey)> {
    let byte = |index: usize| {
        token
            .get(index..index + 2)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok())
    };
    let bytes: Option<Vec<u8>> = (0..token.len()).step_by(2).map(byte).collect();
    let text = String::from_utf8(bytes?).ok()?;
    let mut parts = text.splitn(3, '/');
    let version = parts.next()?.parse().ok()?;
    Some((version, ObjectKey::new(parts.next()?, parts.next()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_lead_back() {
        let key = ObjectKey::new("ns", "a");
        assert_eq!(read_token(&token(7, &key)), Some((7, key)));
        assert_eq!(read_token("nonsense"), None);
        assert_eq!(read_token(""), None);
    }
}
