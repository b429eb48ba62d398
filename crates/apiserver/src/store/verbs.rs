//! What can be asked of the API server.
//!
//! Each verb exists once: simulations call it as it is, the HTTP face gives it a last word on the object before it is stored
//! (defaults, validation, field managers).

use super::delete::is_finished;
use super::{Actor, RevisionLabel, Server, StoreId, Stored, Volumes, patch, strip_type};
use crate::face::builtin_schemas;
use crate::rules::{
    check_claim, check_own_priority, check_room, check_types, fill_limits, pod_changed, pod_resized, resize_pod,
};
use flotilla_apimachinery::field;
use flotilla_apimachinery::pod::{self, Subject};
use flotilla_apimachinery::status::{Qualified, Status};
use flotilla_model::{ObjectKey, PatchKind, Resource, Subresource};
use serde_json::{Map, Value, json};

/// What an update may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything but the status.
    Main,
    /// The status, and metadata where the kind is a built-in one.
    Status,
    /// Cpu and memory of a pod's containers.
    Resize,
    /// Whatever the server itself changes.
    All,
}

/// The last word on an object that is to be stored, given the one before it.
pub(crate) type Finish<'f> = &'f mut dyn FnMut(&Server, Option<&Value>, &mut Value) -> Result<(), Status>;

/// What the server appends to `generateName`: no vowels, so that no words come out.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

impl Server {
    /// Creates an object.
    pub fn create(&mut self, actor: Actor, resource: impl Into<StoreId>, value: Value) -> Result<Stored, Status> {
        self.create_or_try((actor, false), resource.into(), value)
    }

    /// Says what would come of creating a pod.
    pub fn try_pod(&mut self, actor: Actor, value: Value) -> Result<Stored, Status> {
        self.create_or_try((actor, true), Resource::Pods.into(), value)
    }

    /// Says what would come of creating an object, and leaves nothing behind: not even a UID is used up.
    pub fn would_create(&mut self, actor: Actor, resource: Resource, value: Value) -> Result<Stored, Status> {
        let uids_made = self.uids_made;
        let answer = self.create_or_try((actor, true), resource.into(), value);
        self.uids_made = uids_made;
        answer
    }

    fn create_or_try(&mut self, by: (Actor, bool), resource: StoreId, mut value: Value) -> Result<Stored, Status> {
        self.check_types(resource, &value)?;
        match resource.watched() {
            Some(Resource::NativeSets | Resource::AdvancedSets | Resource::CloneSets) => {
                value["status"] = json!({"replicas": 0});
            }
            Some(Resource::Claims) => {
                value["metadata"]["finalizers"] = json!(["kubernetes.io/pvc-protection"]);
                value["status"] = json!({"phase": "Pending"});
            }
            Some(Resource::Pods) => value["status"] = json!({"phase": "Pending"}),
            _ => {}
        }
        self.create_by(by, resource, value, &mut |server, _, value| {
            if resource == Resource::Pods {
                // What is filled in is looked at like what was written.
                fill_limits(server, value);
                server.admit_pod(value)?;
            } else if resource == Resource::Claims {
                check_claim(server, value)?;
            }
            server.check_room(resource, (None, value), Part::Main)?;
            require_one_controller(value)
        })
    }

    /// Whether an object can be read as one of its kind. Those who come over HTTP were asked as their body was read.
    fn check_types(&self, resource: StoreId, value: &Value) -> Result<(), Status> {
        let Some(info) = self.types.of_store(resource).filter(|info| info.custom.is_none()) else {
            return Ok(());
        };
        let schema = builtin_schemas().kind(&info.group, &info.version, &info.kind);
        schema.map_or(Ok(()), |schema| check_types(info, value, schema))
    }

    /// Whether limit ranges and quotas have room for what is made, or for what grows.
    fn check_room(&self, resource: StoreId, change: (Option<&Value>, &Value), part: Part) -> Result<(), Status> {
        match resource.watched() {
            Some(Resource::Pods) => check_room(self, (resource, "", "pods"), change, part),
            Some(Resource::Claims) => check_room(self, (resource, "", "persistentvolumeclaims"), change, part),
            // Other kinds only take room by being there.
            _ if change.0.is_none() => {
                let kind = self.qualified(resource);
                check_room(self, (resource, &kind.group, &kind.name), change, part)
            }
            _ => Ok(()),
        }
    }

    /// Creates an object, or only says what would come of it.
    pub(crate) fn create_by(
        &mut self,
        (actor, is_dry_run): (Actor, bool),
        resource: StoreId,
        mut value: Value,
        finish: Finish<'_>,
    ) -> Result<Stored, Status> {
        let uid = self.next_uid();
        let time = self.time();
        if !value["metadata"].is_object() {
            value["metadata"] = json!({});
        }
        let metadata = &mut value["metadata"];
        if metadata["name"].as_str().unwrap_or_default().is_empty() {
            if let Some(prefix) = metadata["generateName"].as_str().filter(|p| !p.is_empty()) {
                metadata["name"] = json!(format!("{prefix}{}", self.suffix()));
            } else {
                metadata.as_object_mut().map(|m| m.remove("name"));
            }
        }
        metadata["uid"] = json!(uid);
        metadata["creationTimestamp"] = time;
        for field in [
            "resourceVersion",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
        ] {
            metadata.as_object_mut().map(|m| m.remove(field));
        }
        if self.has_generation(resource) {
            metadata["generation"] = json!(1);
        }
        drop_empty(&mut value["metadata"]);
        finish(self, None, &mut value)?;
        strip_type(&mut value);
        let key = key_of(&value);
        if self.get(resource, &key).is_some() {
            return Err(Status::already_exists(&self.qualified(resource), &key.name));
        }
        if is_dry_run {
            return Ok(Stored::new(value, None, 0, false));
        }
        self.put((actor, "create"), resource, &key, value)
    }

    /// Five characters that no name has had yet.
    pub(crate) fn suffix(&self) -> String {
        let mut left = self.uids_made.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24;
        let mut letter = || {
            let letter = ALPHABET[(left % 27) as usize];
            left /= 27;
            char::from(letter)
        };
        std::iter::repeat_with(&mut letter).take(5).collect()
    }

    /// Validates a pod, and asks admission about it. The name is looked at last.
    fn admit_pod(&self, pod: &mut Value) -> Result<(), Status> {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let mut errors = Vec::new();
        pod::check_all(&pod["spec"], "spec", std::iter::empty(), Subject::Pod, &mut errors);
        pod::check_new(&pod["spec"], "spec", &mut errors);
        if !errors.is_empty() {
            return Err(Status::invalid(&Qualified::new("", "Pod"), &name, &errors));
        }
        let forbidden = |why: &str| Status::forbidden(&self.qualified(Resource::Pods.into()), &name, why);
        if self.admission.refuses_pods {
            let message = "admission webhook \"policy.example.com\" denied the request: not now";
            return Err(Status::new(403, "Forbidden", message));
        }
        if let Some(why) = self.admission.absent.iter().find_map(|absent| absent.refuses(pod)) {
            return Err(forbidden(&why));
        }
        check_own_priority(self, &pod["spec"]).map_err(|why| forbidden(&why))?;
        if let Some(variable) = self.admission.forbidden_variable.filter(|name| has_variable(pod, name)) {
            return Err(forbidden(&format!(
                "policy \"variables\" denied request: {variable} may not be set"
            )));
        }
        if let Some(most) = self.admission.pods_max {
            let used = self.count(Resource::Pods, None);
            if used >= most {
                return Err(forbidden(&format!(
                    "exceeded quota: small, requested: pods=1, used: pods={used}, limited: pods={most}"
                )));
            }
        }
        if self.admission.changes_pods {
            pod["metadata"]["labels"]["injected.example.com/by"] = json!("webhook");
            let volume = json!({"name": "injected", "emptyDir": {}});
            match pod["spec"]["volumes"].as_array_mut() {
                Some(volumes) => volumes.insert(0, volume),
                None => pod["spec"]["volumes"] = json!([volume]),
            }
        }
        change_claims(pod, &name, self.admission.volumes);
        change_label(pod, self.admission.revision_label);
        Ok(())
    }

    /// Replaces an object, except its status.
    pub fn update(&mut self, actor: Actor, resource: impl Into<StoreId>, value: Value) -> Result<Stored, Status> {
        let key = key_of(&value);
        let resource = resource.into();
        self.change((actor, "update"), resource, &key, Part::Main, |_| Ok(value))
    }

    /// Patches an object, except its status.
    pub fn patch(
        &mut self,
        actor: Actor,
        resource: impl Into<StoreId>,
        key: &ObjectKey,
        (kind, body): (PatchKind, &Value),
    ) -> Result<Stored, Status> {
        let resource = resource.into();
        self.change((actor, "patch"), resource, key, Part::Main, |old| {
            patch::apply(kind, old, body)
        })
    }

    /// Patches the status of an object, and nothing else of it.
    pub fn patch_status(
        &mut self,
        actor: Actor,
        resource: impl Into<StoreId>,
        key: &ObjectKey,
        body: &Value,
    ) -> Result<Stored, Status> {
        let patch = (PatchKind::Merge, body);
        self.patch_subresource(actor, (resource.into(), key), Subresource::Status, patch)
    }

    /// Patches a part of an object.
    pub fn patch_subresource(
        &mut self,
        actor: Actor,
        (resource, key): (StoreId, &ObjectKey),
        subresource: Subresource,
        (kind, body): (PatchKind, &Value),
    ) -> Result<Stored, Status> {
        let (verb, part) = match subresource {
            Subresource::Status => ("status", Part::Status),
            Subresource::Resize if resource == Resource::Pods => ("resize", Part::Resize),
            Subresource::Resize => return Err(Status::not_found(&self.qualified(resource), &key.name)),
        };
        self.change((actor, verb), resource, key, part, |old| patch::apply(kind, old, body))
    }

    /// Puts a pod on a node.
    pub fn bind(&mut self, key: &ObjectKey, node: &str) -> Result<Stored, Status> {
        let time = self.time();
        self.change((Actor::System, "bind"), Resource::Pods.into(), key, Part::All, |old| {
            let mut pod = old.clone();
            pod["spec"]["nodeName"] = json!(node);
            let scheduled =
                json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": time});
            match pod["status"]["conditions"].as_array_mut() {
                Some(conditions) => {
                    conditions.retain(|c| c["type"] != "PodScheduled");
                    conditions.push(scheduled);
                }
                None => pod["status"]["conditions"] = json!([scheduled]),
            }
            Ok(pod)
        })
    }

    /// Changes an object by the server's own will, whatever its version.
    pub(crate) fn amend(
        &mut self,
        resource: StoreId,
        key: &ObjectKey,
        change: impl FnOnce(&mut Value),
    ) -> Result<Stored, Status> {
        self.change((Actor::System, "update"), resource, key, Part::All, |old| {
            let mut value = old.clone();
            change(&mut value);
            Ok(value)
        })
    }

    fn change(
        &mut self,
        by: (Actor, &'static str),
        resource: StoreId,
        key: &ObjectKey,
        part: Part,
        make: impl FnOnce(&Value) -> Result<Value, Status>,
    ) -> Result<Stored, Status> {
        let mut make = Some(make);
        let mut make = |_: &Server, old: &Value| make.take().map_or_else(|| Ok(old.clone()), |make| make(old));
        self.change_by(
            (by, false),
            (resource, key),
            part,
            &mut make,
            &mut |server, old, new| {
                if let Some(old) = old.filter(|old| resource == Resource::Pods && old["spec"] != new["spec"]) {
                    let mut errors = Vec::new();
                    match part {
                        Part::Main => pod_changed(&old["spec"], &new["spec"], &mut errors),
                        Part::Resize => pod_resized(old, new, &mut errors),
                        Part::Status | Part::All => {}
                    }
                    if !errors.is_empty() {
                        return Err(Status::invalid(&server.qualified_kind(resource), &key.name, &errors));
                    }
                }
                server.check_room(resource, (old, new), part)?;
                require_one_controller(new)
            },
        )
    }

    /// Changes an object, or only says what would come of it. `make` says what it becomes.
    pub(crate) fn change_by(
        &mut self,
        (by, is_dry_run): ((Actor, &'static str), bool),
        (resource, key): (StoreId, &ObjectKey),
        part: Part,
        make: &mut dyn FnMut(&Server, &Value) -> Result<Value, Status>,
        finish: Finish<'_>,
    ) -> Result<Stored, Status> {
        let stored = self.require(resource, key)?.clone();
        let old = stored.value();
        let mut new = make(self, &old)?;
        self.require_same_incarnation(by.1, (resource, key), &old, &new)?;
        keep_metadata(&old, &mut new);
        self.keep_other_parts(resource, part, &old, &mut new);
        finish(self, Some(&old), &mut new)?;
        strip_type(&mut new);
        if new == *old {
            return Ok(stored);
        }
        if part != Part::All && self.has_generation(resource) && differs_beyond_status(&old, &new) {
            new["metadata"]["generation"] = json!(new["metadata"]["generation"].as_i64().unwrap_or(0) + 1);
        }
        if is_dry_run {
            return Ok(Stored::new(new, None, stored.version, false));
        }
        if is_finished(resource, &new) {
            // What held the deletion up is gone: nobody sees the object without it.
            self.remove(by.0, resource, key);
            return Ok(Stored::new(new, stored.object, stored.version, false));
        }
        self.put(by, resource, key, new)
    }

    fn keep_other_parts(&self, resource: StoreId, part: Part, old: &Value, new: &mut Value) {
        match part {
            Part::Main if self.has_status(resource) => keep(old, new, "status"),
            Part::All | Part::Main => {}
            Part::Resize => {
                resize_pod(old, new);
                // As when it is made: what it says nothing of, it is given.
                fill_limits(self, new);
            }
            Part::Status => {
                let is_custom = self.types.of_store(resource).is_some_and(|info| info.custom.is_some());
                let mut kept = old.clone();
                match new.get_mut("status").map(Value::take) {
                    Some(status) => kept["status"] = status,
                    None => drop(kept.as_object_mut().map(|fields| fields.remove("status"))),
                }
                if is_custom {
                    keep(&new["metadata"], &mut kept["metadata"], "managedFields");
                } else {
                    kept["metadata"] = new["metadata"].take();
                    if resource == Resource::Pods {
                        keep(&old["metadata"], &mut kept["metadata"], "ownerReferences");
                    }
                }
                *new = kept;
            }
        }
    }

    pub(crate) fn require(&self, resource: StoreId, key: &ObjectKey) -> Result<&Stored, Status> {
        let missing = || Status::not_found(&self.qualified(resource), &key.name);
        self.get(resource, key).ok_or_else(missing)
    }

    /// A patch or update that names a UID or a version is about that one.
    fn require_same_incarnation(
        &self,
        verb: &'static str,
        (resource, key): (StoreId, &ObjectKey),
        old: &Value,
        new: &Value,
    ) -> Result<(), Status> {
        let (old, new) = (&old["metadata"], &new["metadata"]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = self.qualified(resource);
        if !text(&new["resourceVersion"]).is_empty() && old["resourceVersion"] != new["resourceVersion"] {
            let why = "the object has been modified; please apply your changes to the latest version and try again";
            return Err(Status::conflict(&name, &key.name, why));
        }
        if text(&new["uid"]).is_empty() || old["uid"] == new["uid"] {
            return Ok(());
        }
        if verb != "update" {
            // Only a replacement takes the UID for a precondition; a patch of it is a change of a field that cannot change.
            let error = field::Error::invalid("metadata.uid", new["uid"].clone(), "field is immutable");
            // The real server looks twice, and says so.
            let is_custom = self.types.of_store(resource).is_some_and(|info| info.custom.is_some());
            let errors = if is_custom {
                vec![error]
            } else {
                vec![error.clone(), error]
            };
            return Err(Status::invalid(&self.qualified_kind(resource), &key.name, &errors));
        }
        let (group, slash) = if name.group.is_empty() {
            ("", "")
        } else {
            (name.group.as_str(), "/")
        };
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{group}{slash}{}/{}/{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {}, UID in object meta: {}",
            name.name,
            key.namespace,
            key.name,
            text(&new["uid"]),
            text(&old["uid"])
        );
        Err(Status::conflict(&name, &key.name, &why))
    }

    fn has_generation(&self, resource: StoreId) -> bool {
        match resource.watched() {
            Some(Resource::NativeSets | Resource::AdvancedSets | Resource::CloneSets | Resource::Pods) => true,
            Some(Resource::ImagePullJobs) | None => {
                self.types.of_store(resource).is_some_and(|info| info.has_generation)
            }
            Some(_) => false,
        }
    }

    fn has_status(&self, resource: StoreId) -> bool {
        match resource.watched() {
            Some(
                Resource::NativeSets
                | Resource::AdvancedSets
                | Resource::CloneSets
                | Resource::Nodes
                | Resource::Pods
                | Resource::Claims,
            ) => true,
            Some(Resource::ImagePullJobs) | None => self.types.of_store(resource).is_some_and(|info| info.has_status),
            Some(_) => false,
        }
    }
}

/// Namespace and name, as the object has them.
pub(crate) fn key_of(value: &Value) -> ObjectKey {
    let text = |field: &str| value["metadata"][field].as_str().unwrap_or_default().to_owned();
    ObjectKey::new(text("namespace"), text("name"))
}

/// Whether a container of a pod has a variable of this name.
fn has_variable(pod: &Value, name: &str) -> bool {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let mut variables = containers.flat_map(|c| c["env"].as_array().into_iter().flatten());
    variables.any(|variable| variable["name"] == name)
}

/// What nobody may change of an object's metadata.
fn keep_metadata(old: &Value, new: &mut Value) {
    const KEPT: [&str; 7] = [
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "uid",
        "resourceVersion",
        "generateName",
    ];
    if !new["metadata"].is_object() {
        new["metadata"] = Value::Object(Map::new());
    }
    for field in KEPT {
        keep(&old["metadata"], &mut new["metadata"], field);
    }
    new["metadata"].as_object_mut().map(|m| m.remove("selfLink"));
    drop_empty(&mut new["metadata"]);
}

/// Lists and maps without entries are as good as none.
fn drop_empty(metadata: &mut Value) {
    let is_empty = |value: &Value| match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        other => other.is_null(),
    };
    if let Some(fields) = metadata.as_object_mut() {
        for name in ["finalizers", "ownerReferences", "labels", "annotations"] {
            if fields.get(name).is_some_and(is_empty) {
                fields.remove(name);
            }
        }
    }
}

fn keep(old: &Value, new: &mut Value, field: &str) {
    match old.get(field) {
        Some(value) => new[field] = value.clone(),
        None => drop(new.as_object_mut().map(|fields| fields.remove(field))),
    }
}

/// Whether anything differs that counts for the generation.
fn differs_beyond_status(old: &Value, new: &Value) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else {
        return false;
    };
    let counts = |field: &&String| !matches!(field.as_str(), "metadata" | "status");
    let keys = |fields: &Map<String, Value>| fields.keys().filter(counts).count();
    keys(old) != keys(new) || old.keys().filter(counts).any(|field| old.get(field) != new.get(field))
}

fn require_one_controller(value: &Value) -> Result<(), Status> {
    let owners = value.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let controllers = owners.into_iter().flatten().filter(|o| o["controller"] == true).count();
    if controllers > 1 {
        let message = "metadata.ownerReferences: Invalid value: Only one reference can have Controller set to true";
        return Err(Status::new(422, "Invalid", message));
    }
    Ok(())
}

/// The label of a pod that names its revision.
const REVISION: &str = "controller-revision-hash";

/// Changes the label of a new pod that names its revision, if it has one.
fn change_label(pod: &mut Value, how: RevisionLabel) {
    let labels = pod.pointer_mut("/metadata/labels").and_then(Value::as_object_mut);
    let Some(labels) = labels.filter(|labels| labels.contains_key(REVISION)) else {
        return;
    };
    match how {
        RevisionLabel::AsAsked => {}
        RevisionLabel::Swapped => {
            labels.insert(REVISION.to_owned(), json!("web-theirs"));
        }
        RevisionLabel::Stripped => {
            labels.remove(REVISION);
        }
    }
}

/// Changes which claims a new pod mounts.
fn change_claims(pod: &mut Value, name: &str, how: Volumes) {
    let Some(volumes) = pod.pointer_mut("/spec/volumes").and_then(Value::as_array_mut) else {
        return;
    };
    match how {
        Volumes::AsAsked => {}
        Volumes::OneMore => {
            volumes.push(json!({"name": "logs", "persistentVolumeClaim": {"claimName": format!("logs-{name}")}}));
        }
        Volumes::Swapped => {
            for volume in volumes.iter_mut().filter(|v| v["persistentVolumeClaim"].is_object()) {
                volume["persistentVolumeClaim"]["claimName"] = json!("swapped");
            }
        }
    }
}
