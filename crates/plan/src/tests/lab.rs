//! A simulated cluster in which sets are rolled out, to plan from.

use crate::change::make;
use crate::manager::Manager;
use crate::{Change, Edit, Plan, Reach, State, plan};
use flotilla_controllers::cloneset::Defaults;
use flotilla_model::{ObjectKey, Resource, SetKind, Timestamp};
use flotilla_sim::Cluster;
use flotilla_sim::server::{Actor, DeleteOptions, Foreign};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub(super) fn key(name: &str) -> ObjectKey {
    ObjectKey::new("ns", name)
}

/// A set of one pod with image `app:v1`.
pub(super) fn manifest(kind: SetKind, name: &str) -> Value {
    let version = match kind {
        SetKind::Native => "apps/v1",
        SetKind::Advanced | SetKind::Clone => "apps.kruise.io/v1beta1",
    };
    json!({
        "apiVersion": version,
        "kind": kind.resource().kind(),
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {
            "replicas": 1,
            "serviceName": name,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "app:v1"}]},
            },
        },
    })
}

pub(super) fn image(image: &str) -> Change {
    Change::Edit(SetKind::Advanced, key("web"), vec![Edit::Image(None, image.to_owned())])
}

pub(super) fn native_image(image: &str) -> Change {
    Change::Edit(SetKind::Native, key("web"), vec![Edit::Image(None, image.to_owned())])
}

/// The cluster.
pub(super) struct Lab {
    pub(super) cluster: Cluster,
    manager: Manager,
    more: Vec<Foreign>,
}

fn foreign(group: &str, resource: &str, object: Value) -> Foreign {
    Foreign {
        group: group.to_owned(),
        resource: resource.to_owned(),
        object,
    }
}

impl Lab {
    /// A cluster in which these sets are rolled out.
    pub(super) fn with(sets: &[Value]) -> Self {
        let class =
            json!({"metadata": {"name": "standard", "uid": "c"}, "provisioner": "p", "allowVolumeExpansion": true});
        let mut objects = vec![
            foreign("", "namespaces", json!({"metadata": {"name": "ns", "uid": "n"}})),
            foreign("storage.k8s.io", "storageclasses", class),
        ];
        let crds = flotilla_api::crds().into_iter();
        objects.extend(crds.map(|crd| foreign("apiextensions.k8s.io", "customresourcedefinitions", crd)));
        let state = State {
            now: Timestamp::from_seconds(1_800_000_000),
            nodes: Some(3),
            objects,
            clones: Defaults::default(),
            taken_by_others: BTreeMap::new(),
            unread: Vec::new(),
            brought: Vec::new(),
        };
        let cluster = state.load().expect("a state that is written here");
        let mut lab = Lab {
            manager: Manager::new(cluster.now(), Defaults::default()),
            cluster,
            more: Vec::new(),
        };
        for set in sets {
            lab.make(&Change::Apply(set.clone()));
        }
        lab
    }

    /// Makes a change without letting the manager see it.
    pub(super) fn edit_only(&mut self, change: &Change) {
        if let Err(refusal) = make(&mut self.cluster.server, change, &BTreeSet::new()) {
            panic!("refused: {refusal:?}");
        }
    }

    /// Makes a change, and lets all follow from it.
    pub(super) fn make(&mut self, change: &Change) {
        self.edit_only(change);
        self.cluster.react();
        let end = self.cluster.now() + Duration::from_secs(1000);
        self.follow_until(end);
    }

    fn follow_until(&mut self, end: Timestamp) {
        while self.cluster.now() < end {
            self.manager.drive(&mut self.cluster);
            let now = self.cluster.now();
            let due = [self.cluster.next_due(), self.manager.next_wake(now)];
            let next = due.into_iter().flatten().min().unwrap_or(end);
            self.cluster.advance(next.max(now + Duration::from_millis(1)).min(end));
        }
    }

    /// Lets a pod be made anew, and start, within the last minute.
    pub(super) fn make_young(&mut self, pod: &str) {
        let deleted = self
            .cluster
            .server
            .delete(Actor::System, Resource::Pods, &key(pod), &DeleteOptions::default());
        assert!(deleted.is_ok(), "{deleted:?}");
        self.cluster.react();
        self.follow_until(self.cluster.now() + Duration::from_secs(10));
    }

    /// The node of a pod.
    pub(super) fn node_of(&self, pod: &str) -> String {
        self.pod(pod)["spec"]["nodeName"]
            .as_str()
            .expect("it runs somewhere")
            .to_owned()
    }

    fn pod(&self, pod: &str) -> Value {
        let stored = self.cluster.server.get(Resource::Pods, &key(pod));
        stored.expect("it is there").to_value()
    }

    fn set_status(&mut self, pod: &str, status: &Value, age: Duration) {
        let patch = json!({"status": status});
        let patched = self
            .cluster
            .server
            .patch_status(Actor::System, Resource::Pods, &key(pod), &patch);
        assert!(patched.is_ok(), "{patched:?}");
        let now = self.cluster.now();
        self.cluster.advance(now + age);
    }

    /// What the set's controller says of it.
    pub(super) fn set_says(&mut self, set: &str, status: &Value) {
        let patched = self
            .cluster
            .server
            .patch_status(Actor::System, Resource::AdvancedSets, &key(set), status);
        assert!(patched.is_ok(), "{patched:?}");
    }

    /// A pod is not ready, as its node is silent, for so long.
    pub(super) fn lose(&mut self, pod: &str, age: Duration) {
        let status = json!({"conditions": [{"type": "Ready", "status": "Unknown"}]});
        self.set_status(pod, &status, age);
    }

    /// The container of a pod has ended, and is not started for now.
    pub(super) fn crash(&mut self, pod: &str) {
        self.is_held_up(pod, "CrashLoopBackOff", "back-off 5m0s");
    }

    /// The container of a pod cannot be created.
    pub(super) fn cannot_be_created(&mut self, pod: &str, why: &str) {
        self.is_held_up(pod, "CreateContainerConfigError", why);
    }

    /// A set is being deleted in the foreground, and the garbage collector may have come to its pods already.
    pub(super) fn goes_after_its_pods(&mut self, set: &str, pods_go: bool) {
        let stored = self.cluster.server.get(Resource::AdvancedSets, &key(set));
        let mut object = stored.expect("it is there").to_value();
        object["metadata"]["deletionTimestamp"] = json!(self.cluster.now().to_string());
        object["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
        self.more.push(foreign("apps.kruise.io", "statefulsets", object));
        let pods: Vec<String> = crate::state::pods(&self.cluster)
            .map(|pod| pod.name().to_owned())
            .collect();
        for pod in pods.iter().filter(|_| pods_go) {
            let mut object = self.pod(pod);
            object["metadata"]["deletionTimestamp"] = json!(self.cluster.now().to_string());
            object["metadata"]["deletionGracePeriodSeconds"] = json!(30);
            self.more.push(foreign("", "pods", object));
        }
    }

    /// A finalizer of somebody's is on a pod.
    pub(super) fn is_held(&mut self, pod: &str, finalizer: &str) {
        let mut object = self.pod(pod);
        object["metadata"]["finalizers"] = json!([finalizer]);
        self.more.push(foreign("", "pods", object));
    }

    /// Somebody owns a set.
    pub(super) fn is_owned(&mut self, set: &str, owners: Value) {
        let stored = self.cluster.server.get(Resource::AdvancedSets, &key(set));
        let mut object = stored.expect("it is there").to_value();
        object["metadata"]["ownerReferences"] = owners;
        self.more.push(foreign("apps.kruise.io", "statefulsets", object));
    }

    /// A claim is being deleted, and stays as long as a pod mounts it.
    pub(super) fn claim_goes(&mut self, claim: &str) {
        let stored = self.cluster.server.get(Resource::Claims, &key(claim));
        let mut object = stored.expect("it is there").to_value();
        object["metadata"]["deletionTimestamp"] = json!(self.cluster.now().to_string());
        object["metadata"]["finalizers"] = json!(["kubernetes.io/pvc-protection"]);
        self.more.push(foreign("", "persistentvolumeclaims", object));
    }

    fn is_held_up(&mut self, pod: &str, reason: &str, message: &str) {
        let mut status = self.pod(pod)["status"].clone();
        let container = &mut status["containerStatuses"][0];
        container["ready"] = json!(false);
        container["state"] = json!({"waiting": {"reason": reason, "message": message}});
        for condition in status["conditions"].as_array_mut().into_iter().flatten() {
            if condition["type"] == "Ready" || condition["type"] == "ContainersReady" {
                condition["status"] = json!("False");
            }
        }
        // Minutes later nobody takes it for one that starts.
        self.set_status(pod, &status, Duration::from_secs(300));
    }

    /// The deletion of the namespace has begun.
    pub(super) fn namespace_ends(&mut self) {
        self.more.push(foreign(
            "",
            "namespaces",
            json!({"metadata": {"name": "ns", "uid": "n", "deletionTimestamp": "2027-01-15T08:00:00Z"}, "status": {"phase": "Terminating"}}),
        ));
    }

    /// Adds something that controllers do not look at.
    pub(super) fn add(&mut self, group: &str, resource: &str, object: Value) {
        self.more.push(foreign(group, resource, object));
    }

    /// The live state.
    pub(super) fn state(&self) -> State {
        let exported = self.cluster.server.export();
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let objects = exported["objects"].as_array().expect("a list").iter();
        let mut objects: Vec<Foreign> = objects
            .map(|o| foreign(&text(&o["group"]), &text(&o["resource"]), o["object"].clone()))
            .collect();
        let place = |o: &Foreign| {
            (
                o.group.clone(),
                o.resource.clone(),
                o.object["metadata"]["name"].clone(),
            )
        };
        objects.retain(|known| !self.more.iter().any(|more| place(more) == place(known)));
        objects.extend(self.more.clone());
        State {
            now: self.cluster.now(),
            nodes: Some(3),
            objects,
            clones: Defaults::default(),
            taken_by_others: BTreeMap::new(),
            unread: Vec::new(),
            brought: Vec::new(),
        }
    }

    pub(super) fn plan_within(&self, changes: &[Change], reach: Reach) -> Plan {
        plan(&self.state(), changes, reach).expect("the state can be loaded")
    }

    pub(super) fn plan(&self, changes: &[Change]) -> Plan {
        self.plan_within(changes, Reach::SECONDS)
    }
}
