//! DELETE of objects and of collections.

use super::read::{self, Filter};
use super::route::Target;
use super::write::BY;
use super::{Asked, Good, body, shown};
use crate::store::{DeleteOptions, Deleted, Propagation, Server, Stored, uid_of};
use crate::types::TypeInfo;
use flotilla_apimachinery::field;
use flotilla_apimachinery::status::{Qualified, Status};
use flotilla_model::ObjectKey;
use serde_json::{Value, json};

/// Kinds of which a deletion answers the object and not a Status.
const ANSWER_OBJECT: &[&str] = &[
    "services",
    "serviceaccounts",
    "persistentvolumeclaims",
    "persistentvolumes",
    "resourcequotas",
    "limitranges",
    "podtemplates",
    "endpoints",
];
/// Namespaces that are there for good.
const IMMORTAL: &[&str] = &["default", "kube-system", "kube-public"];

/// What is asked along with a deletion.
struct Wish {
    options: DeleteOptions,
    is_dry_run: bool,
    /// Said in the old way that dependents are to go.
    has_old_cascade: bool,
}

pub(super) fn one(server: &mut Server, asked: &Asked<'_>, target: &Target) -> Result<Good, Status> {
    let options = options(asked)?;
    let info = &target.info;
    let name = target.name.as_deref().unwrap_or_default();
    if info.plural == "namespaces" && IMMORTAL.contains(&name) {
        return Err(Status::forbidden(
            &info.resource(),
            name,
            "this namespace may not be deleted",
        ));
    }
    let key = target.key();
    let before = server.require(info.store, &key)?.clone();
    let uid = uid_of(&before.value()).to_owned();
    match server.delete_by((BY, options.is_dry_run), info.store, &key, &options.options)? {
        Deleted::Gone(last) if info.plural == "pods" => Ok(Good::json(200, read::render(server, asked, info, &last)?)),
        Deleted::Gone(_) if ANSWER_OBJECT.contains(&info.plural.as_str()) => {
            Ok(Good::json(200, read::render(server, asked, info, &before)?))
        }
        Deleted::Gone(_) => Ok(Good::json(200, success(info, name, &uid).to_string())),
        Deleted::Going(left) => {
            after(server, info, &key, options.is_dry_run);
            let left = server
                .get(info.store, &key)
                .filter(|_| !options.is_dry_run)
                .cloned()
                .unwrap_or(left);
            let code = if options.has_old_cascade { 202 } else { 200 };
            Ok(Good::json(code, read::render(server, asked, info, &left)?))
        }
    }
}

/// What deletion means for kinds that are more than storage.
fn after(server: &mut Server, info: &TypeInfo, key: &ObjectKey, is_dry_run: bool) {
    if is_dry_run {
        return;
    }
    if info.plural == "namespaces" {
        // It is there.
        let _ = server.amend(info.store, key, |namespace| {
            namespace["status"]["phase"] = json!("Terminating");
        });
    }
}

fn success(info: &TypeInfo, name: &str, uid: &str) -> Value {
    let mut details = json!({"name": name, "kind": info.plural, "uid": uid});
    if !info.group.is_empty() {
        details["group"] = json!(info.group);
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

pub(super) fn collection(server: &mut Server, asked: &Asked<'_>, target: &Target) -> Result<Good, Status> {
    let options = options(asked)?;
    let info = &target.info;
    let filter = Filter::parse(info, &asked.query)?;
    let meant: Vec<(ObjectKey, Stored)> = server
        .after(info.store, target.namespace.as_deref(), None)
        .filter(|(_, stored)| filter.matches(info, stored))
        .map(|(key, stored)| (key.clone(), stored.clone()))
        .collect();
    let version = server.version();
    let mut items = Vec::new();
    for (key, stored) in meant {
        // One that has gone in the meantime is what was asked for.
        if server
            .delete_by((BY, options.is_dry_run), info.store, &key, &options.options)
            .is_ok()
        {
            // In lists of built-in kinds, objects do not repeat their kind.
            items.push(if info.custom.is_some() {
                shown(info, &stored)
            } else {
                stored.text().into_owned()
            });
        }
    }
    let body = format!(
        r#"{{"kind":"{}","apiVersion":"{}","metadata":{{"resourceVersion":"{}"}},"items":[{}]}}"#,
        info.list_kind,
        info.api_version(),
        version,
        items.join(",")
    );
    Ok(Good::json(200, body))
}

/// Options come in the body or in the query.
fn options(asked: &Asked<'_>) -> Result<Wish, Status> {
    let mut given = if asked.body.is_empty() {
        json!({})
    } else {
        body::read(asked)?
    };
    for name in ["propagationPolicy", "gracePeriodSeconds", "orphanDependents"] {
        if let Some(text) = asked.query.get(name) {
            given[name] = serde_json::from_str(text).unwrap_or_else(|_| json!(text));
        }
    }
    if !asked.query.all("dryRun").is_empty() {
        given["dryRun"] = json!(asked.query.all("dryRun"));
    }
    read_options(&given)
}

fn read_options(given: &Value) -> Result<Wish, Status> {
    let kind = Qualified::new("meta.k8s.io", "DeleteOptions");
    let policy = &given["propagationPolicy"];
    let orphan = given["orphanDependents"].as_bool();
    let mut errors = Vec::new();
    if orphan.is_some() && !policy.is_null() {
        let why = "orphanDependents and deletionPropagation cannot be both set";
        errors.push(field::Error::invalid("propagationPolicy", policy.clone(), why));
    }
    let propagation = match (policy.as_str(), orphan) {
        (Some("Foreground"), _) => Some(Propagation::Foreground),
        (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
        (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
        (Some(_), _) => {
            let allowed = ["Foreground", "Background", "Orphan", "nil"];
            errors.push(field::Error::not_supported(
                "propagationPolicy",
                policy.clone(),
                allowed,
            ));
            None
        }
        (None, None) => None,
    };
    if !errors.is_empty() {
        return Err(Status::invalid(&kind, "", &errors));
    }
    let text = |pointer: &str| given.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let is_dry_run = given["dryRun"].as_array().is_some_and(|d| !d.is_empty());
    Ok(Wish {
        options: DeleteOptions {
            uid: text("/preconditions/uid"),
            resource_version: text("/preconditions/resourceVersion"),
            // A negative grace period means one second.
            grace_seconds: given["gracePeriodSeconds"].as_i64().map(|g| if g < 0 { 1 } else { g }),
            propagation,
        },
        is_dry_run,
        has_old_cascade: orphan == Some(false),
    })
}

/// Evicts a pod: deletes it with the options of the eviction.
pub(super) fn evict(server: &mut Server, target: &Target, eviction: &Value, is_dry_run: bool) -> Result<(), Status> {
    let mut given = eviction["deleteOptions"].clone();
    if !given.is_object() {
        given = json!({});
    }
    let mut options = read_options(&given)?;
    options.is_dry_run |= is_dry_run;
    server.delete_by(
        (BY, options.is_dry_run),
        target.info.store,
        &target.key(),
        &options.options,
    )?;
    Ok(())
}
