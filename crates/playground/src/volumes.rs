//! The volume binder: claims of the two storage classes are bound, and grow where their class lets them.

use crate::world::{Event, World};
use flotilla_model::{ObjectKey, Resource};
use serde_json::{Value, json};
use std::time::Duration;

impl World {
    /// A class is there, or is another: whoever waits for it is looked at again.
    pub(crate) fn claims_of_class(&mut self, class: &str) {
        let all = self.server.all(Resource::Claims);
        let waiting = all.filter(|claim| claim.value()["spec"]["storageClassName"] == class);
        let keys: Vec<ObjectKey> = waiting
            .map(|claim| {
                let meta = &claim.value()["metadata"];
                let text = |field: &str| meta[field].as_str().unwrap_or_default();
                ObjectKey::new(text("namespace"), text("name"))
            })
            .collect();
        for key in keys {
            self.plan(Duration::from_millis(100), Event::Claim(key));
        }
    }

    /// Looks at a claim. Those under deletion are the control plane's business.
    pub(crate) fn tend_claim(&mut self, key: &ObjectKey) {
        let Some(claim) = self
            .server
            .get(Resource::Claims, key)
            .map(flotilla_apiserver::Stored::value)
        else {
            return;
        };
        let class = claim["spec"]["storageClassName"].as_str().unwrap_or_default();
        let is_ours = self
            .server
            .get(Resource::StorageClasses, &ObjectKey::new("", class))
            .is_some();
        let wanted = &claim["spec"]["resources"]["requests"]["storage"];
        let has_all = claim["status"]["phase"] == "Bound" && claim["status"]["capacity"]["storage"] == *wanted;
        let is_held = claim["metadata"]["annotations"]["sim.flotilla.rs/resize"].is_string()
            && claim["status"]["phase"] == "Bound";
        if !is_ours || has_all || is_held || claim["metadata"].get("deletionTimestamp").is_some() {
            return;
        }
        if claim["spec"]["volumeName"].is_null() {
            let uid = claim["metadata"]["uid"].as_str().unwrap_or_default();
            let volume = format!("pvc-{uid}");
            self.server.name_volume(key, &volume);
        }
        let status: Value = json!({
            "phase": "Bound", "accessModes": claim["spec"]["accessModes"], "capacity": {"storage": wanted},
        });
        // It is there, and there are no preconditions.
        let _ = self.server.replace_status(Resource::Claims, key, status);
    }
}
