//! Making a change in the simulated cluster, by the rules of the API server.

use crate::apply;
use crate::report::{Refusal, UnknownField, Verb};
use crate::state::list;
use bytes::Bytes;
use flotilla_api::names;
use flotilla_apimachinery::names::dns_label;
use flotilla_apimachinery::openapi::Builtin;
use flotilla_apimachinery::schema::{Types, drop_unknown};
use flotilla_model::{ObjectKey, SetKind};
use flotilla_sim::server::{Reply, Server, handle};
use http::{Method, Request};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// The types of Kubernetes itself, unpacked once. If they could not be read, lists would be replaced as they are.
static BUILT_IN: LazyLock<Types> = LazyLock::new(|| Builtin::load().types().unwrap_or_default());

/// How the API server begins to say that a value is of another type than its field.
const WRONG_TYPE: &str = "json: cannot unmarshal";

/// What somebody intends to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Apply a manifest of a set, as `kubectl apply` does.
    Apply(Value),
    /// Change fields of a set.
    Edit(SetKind, ObjectKey, Vec<Edit>),
    /// Delete a set, and with it what it owns.
    Delete(SetKind, ObjectKey),
}

/// A change of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Another image for a container; without its name, for the only one.
    Image(Option<String>, String),
    /// Another number of pods.
    Replicas(i64),
    /// Another partition.
    Partition(i64),
}

impl Change {
    /// Why there can be no namespace of the name that it gives its own, if so.
    pub fn why_nowhere(&self) -> Option<String> {
        let (_, key) = self.target();
        dns_label(&key.namespace).into_iter().next()
    }

    /// The set that it is about.
    pub fn target(&self) -> (SetKind, ObjectKey) {
        match self {
            Change::Edit(kind, key, _) | Change::Delete(kind, key) => (*kind, key.clone()),
            Change::Apply(manifest) => {
                let text = |field: &str| manifest["metadata"][field].as_str().unwrap_or_default();
                let version = manifest["apiVersion"].as_str().unwrap_or_default();
                let kind = match version.starts_with("apps.kruise.io/") {
                    true if manifest["kind"] == SetKind::Clone.resource().kind() => SetKind::Clone,
                    true => SetKind::Advanced,
                    false => SetKind::Native,
                };
                (kind, ObjectKey::new(text("namespace"), text("name")))
            }
        }
    }
}

/// What came of a change.
pub(crate) struct Made {
    pub(crate) verb: Verb,
    /// What the server has to say about it.
    pub(crate) warnings: Vec<String>,
    /// Why it may come to something else than what the simulated server makes of it, in sentences.
    pub(crate) unknowns: Vec<String>,
}

/// The set's name in the words of kubectl.
pub(crate) fn kind_name(kind: SetKind, name: &str) -> String {
    kind.describe(name)
}

/// Sets that are being deleted already.
pub(crate) type Going = BTreeSet<(SetKind, ObjectKey)>;

/// Makes a change.
pub(crate) fn make(server: &mut Server, change: &Change, going: &Going) -> Result<Made, Box<Refusal>> {
    let (kind, key) = change.target();
    let asking = Asking {
        object: kind_name(kind, &key.name),
        namespace: key.namespace.to_string(),
        is_manifest: matches!(change, Change::Apply(_)),
    };
    let live = server
        .get(kind.resource(), &key)
        .map(flotilla_sim::server::Stored::to_value);
    let before = generation(server, kind, &key);
    let path = kind.resource().object_path(&key, None);
    let unknowns = asking.unknowns(server, change, live.as_ref());
    let is_gone = live.is_none();
    let mut made = match (change, live) {
        // It had gone before the change was made here, and who knows when it does in the cluster.
        _ if is_gone && going.contains(&(kind, key.clone())) => {
            let why = format!(
                "{} is being deleted, and what it owns with it: make the change when it is gone",
                asking.object
            );
            return Err(asking.refusal("Conflict", &why));
        }
        (Change::Apply(manifest), live) => {
            let made = asking.apply(server, (kind, &key), manifest, live.as_ref())?;
            return Ok(Made { unknowns, ..made });
        }
        (_, None) => return Err(asking.refusal("NotFound", &format!("{} does not exist", asking.object))),
        (Change::Delete(..), Some(_)) => {
            let options = json!({"propagationPolicy": "Background"});
            asking.ask(server, (&Method::DELETE, &path), "application/json", &options)?
        }
        (Change::Edit(_, _, edits), Some(live)) => {
            let patch = asking.edits(&live, edits)?;
            asking.ask(server, (&Method::PATCH, &path), "application/json-patch+json", &patch)?
        }
    };
    if made.verb == Verb::Changed && generation(server, kind, &key) == before {
        made.verb = Verb::Unchanged;
    }
    Ok(Made { unknowns, ..made })
}

/// Fields of a manifest's templates that no pod, or no claim, has. Of native sets the API server refuses them; of others it stores them, and drops them
/// from what it makes without a word.
pub(crate) fn misspelt(change: &Change) -> Vec<UnknownField> {
    let (kind, key) = change.target();
    let (Change::Apply(manifest), false) = (change, kind == SetKind::Native) else {
        return Vec::new();
    };
    let spec = &manifest["spec"];
    let pods = BUILT_IN
        .kind("", "v1", "PodTemplate")
        .and_then(|kind| kind.field("template"));
    let of_pods = (spec["template"].clone(), "template".to_owned(), "pods", pods);
    let claims = list(&spec["volumeClaimTemplates"]).enumerate().map(|(at, template)| {
        let schema = BUILT_IN.kind("", "v1", "PersistentVolumeClaim");
        (
            template.clone(),
            format!("volumeClaimTemplates[{at}]"),
            "claims",
            schema,
        )
    });
    let mut paths = Vec::new();
    for (mut template, place, what, schema) in claims.chain([of_pods]) {
        let dropped = schema
            .map(|schema| drop_unknown(&mut template, schema))
            .unwrap_or_default();
        paths.extend(dropped.into_iter().map(|path| (format!("spec.{place}.{path}"), what)));
    }
    let (object, namespace) = (kind_name(kind, &key.name), key.namespace.to_string());
    let unknown = |(field, what): (String, &str)| UnknownField {
        sentence: format!(
            "{object} in namespace {namespace}: {field} is a field that {what} of Kubernetes 1.36 do not have: the API server stores it, and leaves it out of {what}"
        ),
        object: object.clone(),
        namespace: namespace.clone(),
        field,
    };
    paths.into_iter().map(unknown).collect()
}

fn generation(server: &Server, kind: SetKind, key: &ObjectKey) -> Option<Value> {
    let stored = server.get(kind.resource(), key)?;
    Some(stored.value()["metadata"]["generation"].clone())
}

/// Whom a refusal is about.
struct Asking {
    object: String,
    namespace: String,
    /// Whether the change is written down in a manifest.
    is_manifest: bool,
}

impl Asking {
    /// What nobody can tell of a change although the API server accepts it: the set or its namespace goes.
    fn unknowns(&self, server: &Server, change: &Change, live: Option<&Value>) -> Vec<String> {
        let mut unknowns = Vec::new();
        let is_going = |object: &Value| !object["metadata"]["deletionTimestamp"].is_null();
        if live.is_some_and(is_going) && !matches!(change, Change::Delete(..)) {
            unknowns.push(format!(
                "{} in namespace {} is being deleted: its pods go with it, unless whoever deletes it leaves them behind",
                self.object, self.namespace
            ));
        }
        if let (Change::Delete(..), Some(live)) = (change, live) {
            unknowns.extend(protection(live).map(|value| {
                format!(
                    "{} in namespace {}: whether its deletion is refused is not looked at: its label {}={value} has a webhook refuse it, where one \
                     of Flotilla or OpenKruise is installed",
                    self.object, self.namespace, names::DELETE_PROTECTION_LABEL
                )
            }));
        }
        let namespaces = server.types.store_of_kind("", "Namespace");
        let namespace = namespaces.and_then(|all| server.get(all, &ObjectKey::new("", self.namespace.as_str())));
        let namespace = namespace.map(flotilla_sim::server::Stored::to_value);
        if namespace.is_some_and(|object| is_going(&object) || object["status"]["phase"] == "Terminating") {
            unknowns.push(format!(
                "namespace {} is being deleted: all that is in it goes, and nothing is made there any more",
                self.namespace
            ));
        }
        unknowns
    }

    fn apply(
        &self,
        server: &mut Server,
        (kind, key): (SetKind, &ObjectKey),
        manifest: &Value,
        live: Option<&Value>,
    ) -> Result<Made, Box<Refusal>> {
        let version = manifest["apiVersion"].as_str().unwrap_or_default();
        let (group, short) = version.split_once('/').unwrap_or(("", version));
        if server.types.find(group, short, kind.resource().plural()).is_none() {
            let advice = "install it with `flotilla install --only-crds --yes`";
            let served = kind.resource().api_version();
            let (_, newest) = served.split_once('/').unwrap_or(("", served));
            let is_served = server.types.find(group, newest, kind.resource().plural()).is_some();
            let advice = if is_served || kind == SetKind::Native {
                format!("use {served}")
            } else {
                advice.to_owned()
            };
            return Err(self.refusal("NotFound", &format!("the cluster does not serve {version}; {advice}")));
        }
        let collection = format!(
            "/apis/{version}/namespaces/{}/{}",
            key.namespace,
            kind.resource().plural()
        );
        let Some(live) = live else {
            return self.ask(server, (&Method::POST, &collection), "application/json", manifest);
        };
        let before = generation(server, kind, key);
        let path = format!("{collection}/{}", key.name);
        let (content_type, patch) = match kind {
            SetKind::Native => {
                let patch = apply::patch(live, manifest, BUILT_IN.kind("apps", "v1", "StatefulSet"));
                ("application/strategic-merge-patch+json", patch)
            }
            SetKind::Advanced | SetKind::Clone => ("application/merge-patch+json", apply::patch(live, manifest, None)),
        };
        let mut made = self.ask(server, (&Method::PATCH, &path), content_type, &patch)?;
        if generation(server, kind, key) == before {
            made.verb = Verb::Unchanged;
        }
        Ok(made)
    }

    /// Edits as a JSON patch.
    fn edits(&self, live: &Value, edits: &[Edit]) -> Result<Value, Box<Refusal>> {
        let mut patch = Vec::new();
        for edit in edits {
            match edit {
                Edit::Replicas(count) => patch.push(json!({"op": "add", "path": "/spec/replicas", "value": count})),
                Edit::Partition(partition) => patch.extend(partition_patch(live, *partition)),
                Edit::Image(container, image) => {
                    let index = self.container(live, container.as_deref())?;
                    let path = format!("/spec/template/spec/containers/{index}/image");
                    patch.push(json!({"op": "add", "path": path, "value": image}));
                }
            }
        }
        Ok(Value::Array(patch))
    }

    /// The place of a container in the template.
    fn container(&self, live: &Value, wanted: Option<&str>) -> Result<usize, Box<Refusal>> {
        let containers = &live["spec"]["template"]["spec"]["containers"];
        let names: Vec<&str> = list(containers)
            .map(|c| c["name"].as_str().unwrap_or_default())
            .collect();
        let all = names.join(", ");
        match wanted {
            None if names.len() == 1 => Ok(0),
            // The word for the only container may also be the name of one among several.
            None if names.contains(&"image") => self.container(live, Some("image")),
            None => {
                let why = format!(
                    "{} has several containers ({all}); say which, as NAME=IMAGE",
                    self.object
                );
                Err(self.refusal("Ambiguous", &why))
            }
            Some(wanted) => names.iter().position(|name| *name == wanted).ok_or_else(|| {
                let why = format!("{} has no container {wanted}; it has {all}", self.object);
                self.refusal("NotFound", &why)
            }),
        }
    }

    /// Sends a request to the simulated server.
    fn ask(
        &self,
        server: &mut Server,
        (method, path): (&Method, &str),
        content_type: &str,
        body: &Value,
    ) -> Result<Made, Box<Refusal>> {
        // As kubectl does: of a misspelt field in a manifest it makes a refusal. What is stored may have been stored by others.
        let validation = if self.is_manifest { "Strict" } else { "Ignore" };
        let request = Request::builder()
            .method(method)
            .uri(format!("{path}?fieldManager=plan&fieldValidation={validation}"))
            .header("Content-Type", content_type)
            .body(Bytes::from(body.to_string()))
            .map_err(|why| self.refusal("Invalid", &why.to_string()))?;
        let Reply::Answer(answer) = handle(server, &request) else {
            return Err(self.refusal("Invalid", "the answer is a watch"));
        };
        let said: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
        if !answer.status().is_success() {
            return Err(self.said(&said));
        }
        let warnings = answer.headers().get_all("Warning").iter();
        let warnings = warnings.filter_map(|w| w.to_str().ok()).map(warning_text);
        Ok(Made {
            verb: match *method {
                Method::POST => Verb::Created,
                Method::DELETE => Verb::Deleted,
                _ => Verb::Changed,
            },
            warnings: warnings.collect(),
            unknowns: Vec::new(),
        })
    }

    fn refusal(&self, reason: &str, message: &str) -> Box<Refusal> {
        Box::new(Refusal {
            object: self.object.clone(),
            namespace: self.namespace.clone(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            place: None,
            fields: Vec::new(),
        })
    }

    /// What the server said.
    fn said(&self, status: &Value) -> Box<Refusal> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let causes = list(&status["details"]["causes"]);
        let mut fields: Vec<crate::report::Field> = causes
            .map(|cause| crate::report::Field {
                field: text(&cause["field"]),
                place: None,
                rule: text(&cause["reason"]),
                message: text(&cause["message"]),
            })
            .collect();
        // The real server looks twice at some fields, and says so; once is enough for people.
        fields.dedup();
        let mut message = text(&status["message"]);
        // Of a patch whose result has a value of the wrong type the API server quotes all of it first.
        if let Some(begin) = message
            .rfind(WRONG_TYPE)
            .filter(|_| !fields.is_empty() || message.starts_with("\"\""))
        {
            message.drain(..begin);
            fields = wrong_type(&message).into_iter().collect();
        }
        let unknown = unknown_fields(&message);
        if !unknown.is_empty() {
            fields = unknown;
            // Of a patch the API server quotes the whole object first.
            if let Some(begin) = message.find("strict decoding error") {
                message.drain(..begin);
            }
        }
        let mut refusal = self.refusal(&text(&status["reason"]), &message);
        refusal.fields = fields;
        refusal
    }
}

/// What protects a set from deletion, if anything does (STS-7.5).
fn protection(set: &Value) -> Option<&str> {
    let value = set["metadata"]["labels"][names::DELETE_PROTECTION_LABEL].as_str()?;
    let has_pods = set["spec"]["replicas"] != 0;
    let goes_already = !set["metadata"]["deletionTimestamp"].is_null();
    let protects = value == "Always" || value == "Cascading" && has_pods;
    (protects && !goes_already).then_some(value)
}

/// The sentence of a `Warning` header, which is quoted there.
fn warning_text(header: &str) -> String {
    let quoted = header.trim_start_matches("299 - ");
    let text = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    text.unwrap_or(quoted).replace("\\\"", "\"").replace("\\\\", "\\")
}

/// The field of which the server says that its value is of another type: `... into Go struct field EnvVar.spec.template.spec.containers.env.value of type
/// string`. It does not say which of the items of a list it is in.
fn wrong_type(message: &str) -> Option<crate::report::Field> {
    let (_, rest) = message.split_once(" into ")?;
    let (path, kind) = rest.split_once(" of type ")?;
    let path = match path.strip_prefix("Go struct field ") {
        // The name of the struct comes first.
        Some(path) => path.split_once('.')?.1,
        None => path.strip_prefix("field ")?,
    };
    Some(crate::report::Field {
        field: path.to_owned(),
        place: None,
        rule: "FieldValueTypeInvalid".to_owned(),
        message: format!("has to be of type {kind}"),
    })
}

/// The fields that the server names in a sentence only, since it does not know them.
fn unknown_fields(message: &str) -> Vec<crate::report::Field> {
    let named = message.split("unknown field \"").skip(1);
    named
        .filter_map(|rest| rest.split_once('"'))
        .map(|(path, _)| crate::report::Field {
            field: path.to_owned(),
            place: None,
            rule: "FieldValueUnknown".to_owned(),
            message: "unknown field".to_owned(),
        })
        .collect()
}

/// Sets the partition, with what leads to it.
fn partition_patch(live: &Value, partition: i64) -> Vec<Value> {
    let strategy = &live["spec"]["updateStrategy"];
    let mut patch = Vec::new();
    if !strategy.is_object() {
        patch.push(json!({"op": "add", "path": "/spec/updateStrategy", "value": {"type": "RollingUpdate"}}));
    }
    if !strategy["rollingUpdate"].is_object() {
        patch.push(json!({"op": "add", "path": "/spec/updateStrategy/rollingUpdate", "value": {}}));
    }
    let path = "/spec/updateStrategy/rollingUpdate/partition";
    patch.push(json!({"op": "add", "path": path, "value": partition}));
    patch
}
