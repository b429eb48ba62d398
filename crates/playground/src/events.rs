//! Events, by which scheduler and kubelets tell what they do.

use crate::world::World;
use flotilla_apiserver::Actor;
use flotilla_model::{PodRecord, Resource, Timestamp};
use serde_json::json;

/// Events that are kept; the oldest go, as they do in a real cluster after an hour.
const EVENTS_MAX: usize = 2000;

impl World {
    /// Tells of a pod.
    pub(crate) fn tell(&mut self, pod: &PodRecord, (kind, reason): (&str, &str), message: &str, source: &str) {
        self.events_made += 1;
        let key = &pod.meta.key;
        let time = Timestamp::from_seconds(self.server.now.as_millis().div_euclid(1000)).to_string();
        let event = json!({
            "metadata": {"name": format!("{}.{:016x}", key.name, self.events_made), "namespace": *key.namespace},
            "involvedObject": {
                "apiVersion": "v1", "kind": "Pod", "name": key.name.as_str(), "namespace": *key.namespace,
                "uid": pod.meta.uid.to_string(),
            },
            "type": kind, "reason": reason, "message": message, "source": {"component": source},
            "firstTimestamp": time, "lastTimestamp": time, "eventTime": null, "count": 1,
            "reportingComponent": source, "reportingInstance": "",
        });
        // The namespace may be going.
        let _ = self.server.create(Actor::System, Resource::Events, event);
        if self.server.count(Resource::Events, None) > EVENTS_MAX {
            self.server.drop_oldest(Resource::Events, EVENTS_MAX / 10);
        }
    }
}
