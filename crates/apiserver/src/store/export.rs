//! All objects as JSON, and back.

use super::{Actor, Server, StoreId, Stored, key_of};
use flotilla_apimachinery::status::Status;
use flotilla_model::{ObjectKey, Resource};
use serde_json::{Value, json};

/// An object as another API server has it.
#[derive(Clone, Debug)]
pub struct Foreign {
    /// The API group; empty for the core.
    pub group: String,
    /// The name of the resource in URLs.
    pub resource: String,
    /// The object.
    pub object: Value,
}

/// Definitions come first: the objects of their kinds need them.
const DEFINITIONS: &str = "customresourcedefinitions";

impl Server {
    /// Everything that is stored.
    pub fn export(&self) -> Value {
        let mut objects = Vec::new();
        for store in self.collections.keys() {
            let name = self.qualified(*store);
            for stored in self.all(*store) {
                objects.push(json!({"group": name.group, "resource": name.name, "object": *stored.value()}));
            }
        }
        objects.sort_by_key(|o| o["resource"] != DEFINITIONS);
        json!({"version": self.version, "uids": self.uids_made, "objects": objects})
    }

    /// Stores what was exported. Objects keep their UIDs; their versions are new.
    pub fn import(&mut self, exported: &Value) -> Result<(), String> {
        self.uids_made = exported["uids"].as_u64().ok_or("there is no count of UIDs")?;
        self.version = exported["version"].as_u64().unwrap_or(0);
        let objects = exported["objects"].as_array().ok_or("there are no objects")?;
        for entry in objects {
            let (group, resource) = (entry["group"].as_str(), entry["resource"].as_str());
            let (Some(group), Some(resource)) = (group, resource) else {
                return Err("an object has no group and resource".to_owned());
            };
            let foreign = Foreign {
                group: group.to_owned(),
                resource: resource.to_owned(),
                object: entry["object"].clone(),
            };
            self.take((Actor::System, "create"), foreign)?;
        }
        // Of the time before, nothing is known.
        let version = self.version;
        for collection in self.collections.values_mut() {
            collection.history.compact(version);
        }
        Ok(())
    }

    /// Stores an object as it stands; a definition brings its kind with it.
    fn take(&mut self, by: (Actor, &'static str), foreign: Foreign) -> Result<(), String> {
        let Foreign {
            group,
            resource,
            object,
        } = foreign;
        let mut types = self.types.all().iter();
        let found = types.find(|t| t.group == group && t.plural == resource);
        let store = found
            .map(|t| t.store)
            .ok_or_else(|| format!("the kind {resource}.{group} is not known"))?;
        let key = key_of(&object);
        let definition = (resource == DEFINITIONS).then(|| object.clone());
        self.put(by, store, &key, object)
            .map_err(|status| format!("{resource} {key}: {status}"))?;
        if let Some(definition) = definition {
            self.define(&definition);
        }
        Ok(())
    }

    /// Stores objects of another API server as they are there: with their UIDs, versions, times and statuses. Nothing follows from it:
    /// neither admission nor the journal hears of it. Owners that are not stored, nor [noted](Server::note_elsewhere), count as gone.
    pub fn restore(&mut self, objects: Vec<Foreign>) -> Result<(), String> {
        // No server has counted further; whatever a file says, there has to be room to count on.
        const LAST: u64 = u64::MAX / 2;
        let number = |object: &Value| {
            let version = object["metadata"]["resourceVersion"].as_str()?.parse::<u64>().ok()?;
            Some(version.min(LAST))
        };
        let mut objects = objects;
        // The objects of a kind need its definition; and one server counts the versions of all its objects in one row.
        objects.sort_by_key(|o| (o.resource != DEFINITIONS, number(&o.object)));
        for foreign in objects {
            let version = number(&foreign.object).filter(|version| *version > self.version);
            self.version = version.map_or(self.version, |version| version - 1);
            self.mind_uid(&foreign.object);
            self.take((Actor::System, "create"), foreign)?;
        }
        self.journal.clear();
        Ok(())
    }

    /// Stores an object that somebody applies, as it is there then, in the place of one that is there. Admission does not hear of it; whoever
    /// follows what changes does.
    pub fn bring(&mut self, foreign: Foreign) -> Result<(), String> {
        let key = key_of(&foreign.object);
        let mut types = self.types.all().iter();
        let found = types.find(|t| t.group == foreign.group && t.plural == foreign.resource);
        let is_there = found.is_some_and(|t| self.get(t.store, &key).is_some());
        self.take((Actor::User, if is_there { "update" } else { "create" }), foreign)
    }

    /// UIDs of a simulated server are not given again.
    fn mind_uid(&mut self, object: &Value) {
        let number = super::uid_of(object).strip_prefix(super::UID_HEAD);
        if let Some(number) = number.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
            self.uids_made = self.uids_made.max(number);
        }
    }

    /// Replaces the status of an object, as the components of the control plane do.
    pub fn replace_status(
        &mut self,
        resource: impl Into<StoreId>,
        key: &ObjectKey,
        status: Value,
    ) -> Result<Stored, Status> {
        self.amend(resource.into(), key, |object| object["status"] = status)
    }

    /// Says which volume a claim is bound to.
    pub fn name_volume(&mut self, key: &ObjectKey, volume: &str) {
        // It is there; a claim that has gone needs no volume.
        let _ = self.amend(Resource::Claims.into(), key, |claim| {
            claim["spec"]["volumeName"] = json!(volume);
        });
    }

    /// Takes out objects of a kind that are older than all others, without their finalizers being asked.
    pub fn drop_oldest(&mut self, resource: impl Into<StoreId>, count: usize) {
        let resource = resource.into();
        let mut known: Vec<(u64, ObjectKey)> = self
            .after(resource, None, None)
            .map(|(key, stored)| (stored.version, key.clone()))
            .collect();
        known.sort_unstable();
        for (_, key) in known.into_iter().take(count) {
            self.remove(Actor::System, resource, &key);
        }
    }
}
