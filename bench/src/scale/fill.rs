//! A simulated control plane filled with settled sets and their pods, straight into its memory.

use super::settle::{Settled, Wanted, settle};
use super::stage::NAMESPACES;
use crate::workload::look;
use flotilla_apiserver::Foreign;
use flotilla_engine::core::cache::Cache;
use flotilla_engine::core::store::Source;
use flotilla_engine::io::clock::Clock;
use flotilla_engine::wire;
use flotilla_model::{Interner, ObjectKey, Resource, SetKind, StatusWrite};
use flotilla_playground::World;
use flotilla_simserver::Host as _;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Sets that are updated together in one simulation.
const BATCH: usize = 50;
/// How long ago the sets were made: all that is measured in minutes is over.
const AGE: Duration = Duration::from_secs(86_400);
/// How UIDs of the simulated server begin; behind it each batch counts anew.
const UID_HEAD: &str = "5eed0000-0000-4000-8000-";
/// Changes of a kind that the server keeps, so that a watch survives a burst.
const CHANGES_KEPT: usize = 20_000;

/// Of which kinds the sets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kinds {
    /// Advanced sets and CloneSets in turns.
    Both,
    /// Of one kind.
    Only(SetKind),
}

/// What a control plane holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fill {
    pub(super) kinds: Kinds,
    pub(super) sets: usize,
    pub(super) revisions: usize,
    /// Of all sets together.
    pub(super) pods: usize,
    pub(super) template_bytes: usize,
}

/// A set that was filled in.
#[derive(Clone, Debug)]
pub(super) struct Filled {
    pub(super) key: ObjectKey,
    pub(super) pods: Vec<ObjectKey>,
}

impl Fill {
    fn kind(&self, number: usize) -> SetKind {
        match self.kinds {
            Kinds::Both if number.is_multiple_of(2) => SetKind::Advanced,
            Kinds::Both => SetKind::Clone,
            Kinds::Only(kind) => kind,
        }
    }

    /// Pods of the set of this number.
    fn pods_of(&self, number: usize) -> usize {
        self.pods / self.sets + usize::from(number < self.pods % self.sets)
    }

    fn wanted(&self, number: usize) -> Wanted {
        let kind = self.kind(number);
        let head = if kind == SetKind::Clone { "clone" } else { "adv" };
        Wanted {
            kind,
            key: ObjectKey::new(
                NAMESPACES[number % NAMESPACES.len()],
                format!("{head}-{number:05}").as_str(),
            ),
            number,
            pods: self.pods_of(number).min(1),
            template_bytes: self.template_bytes,
        }
    }

    /// Fills a control plane with this.
    ///
    /// # Panics
    /// When a set is not at rest, or is refused.
    pub(super) fn pour(&self, world: &mut World, nodes: usize) -> Vec<Filled> {
        world.server().keep_changes(CHANGES_KEPT);
        let clock = Clock::new();
        let made_at = clock.now() - AGE;
        let mut filled = Vec::new();
        let mut pods_made = 0;
        for first in (0..self.sets).step_by(BATCH) {
            let numbers: Vec<usize> = (first..self.sets.min(first + BATCH)).collect();
            let wanted: Vec<Wanted> = numbers.iter().map(|number| self.wanted(*number)).collect();
            let settled = settle(&wanted, self.revisions, made_at);
            for (number, settled) in numbers.into_iter().zip(settled) {
                let mut set = settled.with_uids_of(first / BATCH + 1);
                set.multiply(self.pods_of(number), &mut pods_made, nodes);
                set.come_to_rest(&clock);
                filled.push(set.store(world));
            }
        }
        assert_eq!(pods_made, self.pods, "pods that were filled in");
        filled
    }
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

impl Settled {
    /// The same with UIDs that no other batch has.
    fn with_uids_of(self, batch: usize) -> Self {
        let head = format!("5eed0000-{batch:04x}-4000-8000-");
        let renamed = |value: &Value| -> Value {
            let text = value.to_string().replace(UID_HEAD, &head);
            serde_json::from_str(&text).expect("it was JSON before")
        };
        Settled {
            set: renamed(&self.set),
            revisions: self.revisions.iter().map(renamed).collect(),
            pods: self.pods.iter().map(renamed).collect(),
            ..self
        }
    }

    /// Gives the set as many pods as these, each like the one that it has.
    fn multiply(&mut self, pods: usize, made: &mut usize, nodes: usize) {
        let Some(first) = self.pods.pop() else {
            assert_eq!(pods, 0, "{} has no pod that could be multiplied", self.key);
            return;
        };
        let text = first.to_string();
        let uid = first["metadata"]["uid"].as_str().unwrap_or_default();
        for index in 0..pods {
            *made += 1;
            let text = text.replace(uid, &format!("5eed0001-0000-4000-9000-{made:012x}"));
            let mut pod: Value = serde_json::from_str(&text).expect("it was JSON before");
            self.name(&mut pod, index);
            place(&mut pod, *made, nodes);
            self.pods.push(pod);
        }
        self.set["spec"]["replicas"] = json!(pods);
    }

    /// Gives a pod the name of the pod at this index, wherever it stands.
    fn name(&self, pod: &mut Value, index: usize) {
        let set = &self.key.name;
        if self.kind == SetKind::Clone {
            let id = clone_id(index);
            pod["metadata"]["name"] = json!(format!("{set}-{id}"));
            pod["metadata"]["labels"]["apps.kruise.io/cloneset-instance-id"] = json!(id);
            return;
        }
        let name = json!(format!("{set}-{index}"));
        pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = name.clone();
        if pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"].is_string() {
            pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] = json!(index.to_string());
        }
        pod["spec"]["hostname"] = name.clone();
        pod["metadata"]["name"] = name;
    }

    /// Lets the set's status say what its controller would say, and makes sure that this was all that was left to do.
    fn come_to_rest(&mut self, clock: &Clock) {
        if let Some(diff) = self.left_to_say(clock) {
            for (field, value) in diff {
                self.set["status"][field] = value;
            }
        }
        let left = self.left_to_say(clock);
        assert!(left.is_none(), "the status of {} is not at rest: {left:?}", self.key);
    }

    /// What the controller would write to the set's status now.
    fn left_to_say(&self, clock: &Clock) -> Option<Map<String, Value>> {
        let (mut cache, mut interner) = (Cache::default(), Interner::new());
        let sets = std::iter::once((self.kind.resource(), &self.set));
        let revisions = self.revisions.iter().map(|revision| (Resource::Revisions, revision));
        let pods = self.pods.iter().map(|pod| (Resource::Pods, pod));
        for (resource, object) in sets.chain(revisions).chain(pods) {
            let mut object = object.clone();
            object["metadata"]["resourceVersion"] = json!("1");
            let read = wire::read(resource, &object, &mut interner);
            let read = read.unwrap_or_else(|why| panic!("reading {} of {}: {why}", name_of(&object), self.key));
            cache.apply(read, Source::List);
        }
        let decision = look(self.kind, &cache, &self.key, clock);
        let command = decision.commands().next();
        assert!(
            command.is_none(),
            "{} is not at rest: its controller wants {command:?}",
            self.key
        );
        match decision.status.as_ref().and_then(StatusWrite::diff) {
            Some(Value::Object(diff)) => Some(diff),
            _ => None,
        }
    }

    /// Stores all of it.
    fn store(self, world: &mut World) -> Filled {
        let pods = self.pods.iter();
        let pods = pods.map(|pod| ObjectKey::new(self.key.namespace.clone(), name_of(pod)));
        let filled = Filled {
            key: self.key.clone(),
            pods: pods.collect(),
        };
        let foreign = |resource: Resource, mut object: Value| {
            // The server's own versions.
            object["metadata"].as_object_mut().map(|m| m.remove("resourceVersion"));
            Foreign {
                group: resource
                    .api_version()
                    .split_once('/')
                    .map_or("", |(group, _)| group)
                    .into(),
                resource: resource.plural().into(),
                object,
            }
        };
        let mut all = vec![foreign(self.kind.resource(), self.set)];
        all.extend(self.revisions.into_iter().map(|r| foreign(Resource::Revisions, r)));
        all.extend(self.pods.into_iter().map(|pod| foreign(Resource::Pods, pod)));
        let stored = world.server().restore(all);
        stored.unwrap_or_else(|why| panic!("filling in {}: {why}", self.key));
        filled
    }
}

/// Five characters, as they stand in names of pods of CloneSets.
fn clone_id(index: usize) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut left = index + 1_000_003;
    let mut id = String::new();
    for _ in 0..5 {
        id.push(char::from(ALPHABET[left % 27]));
        left /= 27;
    }
    id
}

/// Puts a pod on a node, with an address of its own.
fn place(pod: &mut Value, number: usize, nodes: usize) {
    let address = format!("10.{}.{}.{}", 64 + (number >> 16), (number >> 8) & 255, number & 255);
    pod["spec"]["nodeName"] = json!(format!("node-{}", number % nodes));
    pod["status"]["podIP"] = json!(address);
    pod["status"]["podIPs"] = json!([{"ip": address}]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_spread_over_the_sets_and_none_is_left_out() {
        let fill = Fill {
            kinds: Kinds::Both,
            sets: 7,
            revisions: 1,
            pods: 24,
            template_bytes: 6_000,
        };
        assert_eq!((0..7).map(|number| fill.pods_of(number)).sum::<usize>(), 24);
        assert_eq!((fill.pods_of(0), fill.pods_of(6)), (4, 3));
    }

    #[test]
    fn filled_sets_are_at_rest() {
        let fill = Fill {
            kinds: Kinds::Both,
            sets: 4,
            revisions: 3,
            pods: 12,
            template_bytes: 6_000,
        };
        let mut world = super::super::stage::world(3);
        // It panics unless they are.
        let filled = fill.pour(&mut world, 3);
        assert_eq!(filled.iter().map(|set| set.pods.len()).sum::<usize>(), 12);
        assert_eq!(world.server().count(Resource::Revisions, None), 12);
        assert_eq!(world.server().count(Resource::Pods, None), 12);
    }
}
