//! The pods of the node, what is remembered of each, and which of them are to be looked at.

use crate::wire;
use bytes::Bytes;
use flotilla_agent::{Memory, Pod, Seen, is_relevant};
use flotilla_engine::io::watch::Feed;
use flotilla_engine::wire::watch::Frame;
use flotilla_engine::wire::{Encoding, identity};
use flotilla_model::{ObjectKey, Timestamp, Uid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A pod is looked at this long after a change (AGT-8.2): changes come in flocks.
const SETTLE: Duration = Duration::from_secs(1);

/// A pod.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) pod: Arc<Pod>,
    pub(super) memory: Memory,
    /// Containers that are being stopped, by their IDs.
    pub(super) stopping: BTreeSet<String>,
    /// Looks that failed, one after the other.
    pub(super) failures: u32,
    /// In the first list without a note, and unchanged since.
    left_alone: bool,
    /// When to look at it.
    due: Option<Timestamp>,
    /// It is being looked at.
    is_busy: bool,
}

impl Entry {
    /// Looks at it not later than at this moment.
    pub(super) fn wake(&mut self, at: Timestamp) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// Takes a newer copy of the same pod.
    pub(super) fn update(&mut self, pod: Pod) {
        if pod.uid == self.pod.uid && pod.version > self.pod.version {
            self.pod = Arc::new(pod);
        }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Pods {
    all: BTreeMap<ObjectKey, Entry>,
    /// Keys of the list that is coming in.
    listed: Option<BTreeSet<ObjectKey>>,
    is_synced: bool,
}

impl Pods {
    /// Whether they have been listed once.
    pub(super) fn is_synced(&self) -> bool {
        self.is_synced
    }

    pub(super) fn get_mut(&mut self, key: &ObjectKey) -> Option<&mut Entry> {
        self.all.get_mut(key)
    }

    /// Takes what the watch brings, and says how many pods could not be read.
    pub(super) fn take(&mut self, feed: Feed, now: Timestamp) -> u64 {
        match feed {
            Feed::Began(_) => self.listed = Some(BTreeSet::new()),
            Feed::Page(encoding, items) => {
                return items.iter().map(|item| self.read(encoding, item, now)).sum();
            }
            Feed::Ended(_) => {
                if let Some(listed) = self.listed.take() {
                    self.all.retain(|key, _| listed.contains(key));
                }
                self.is_synced = true;
            }
            Feed::Frames(encoding, frames) => {
                let mut unreadable = 0;
                for frame in frames {
                    match frame {
                        Frame::Upsert(object) => unreadable += self.read(encoding, &object, now),
                        Frame::Delete(object) => self.delete(encoding, &object),
                        Frame::Bookmark(_) | Frame::Error(_) => {}
                    }
                }
                return unreadable;
            }
            Feed::Missing => tracing::warn!("the API server knows no pods"),
            Feed::Failing(why) => tracing::warn!(why, "the pods of the node cannot be watched; it is tried again"),
        }
        0
    }

    fn read(&mut self, encoding: Encoding, object: &Bytes, now: Timestamp) -> u64 {
        match wire::pod(encoding, object) {
            Ok(pod) => {
                if let Some(listed) = &mut self.listed {
                    listed.insert(pod.key.clone());
                }
                self.upsert(pod, now);
                0
            }
            Err(why) => {
                tracing::warn!(why, "a pod cannot be read and is left alone");
                1
            }
        }
    }

    fn upsert(&mut self, pod: Pod, now: Timestamp) {
        let before = self.all.get_mut(&pod.key).filter(|entry| entry.pod.uid == pod.uid);
        let Some(entry) = before else {
            let is_first = !self.is_synced;
            let is_relevant = is_relevant(&pod, if is_first { Seen::First } else { Seen::New });
            let entry = Entry {
                memory: Memory::default(),
                stopping: BTreeSet::new(),
                failures: 0,
                left_alone: is_first && pod.noted.is_none() && !is_relevant,
                due: is_relevant.then_some(now + SETTLE),
                is_busy: false,
                pod: Arc::new(pod),
            };
            self.all.insert(entry.pod.key.clone(), entry);
            return;
        };
        // The answer to our own write may have come first.
        if pod.version < entry.pod.version {
            return;
        }
        let seen = Seen::Again {
            before: &entry.pod,
            left_alone: entry.left_alone,
        };
        if is_relevant(&pod, seen) {
            entry.left_alone = false;
            entry.wake(now + SETTLE);
        }
        entry.update(pod);
    }

    fn delete(&mut self, encoding: Encoding, object: &Bytes) {
        let Some((key, uid, _)) = identity(encoding, object) else {
            return;
        };
        if self.all.get(&key).is_some_and(|entry| entry.pod.uid == uid) {
            self.all.remove(&key);
        }
    }

    /// When the next one is due.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let waiting = self.all.values().filter(|entry| !entry.is_busy);
        waiting.filter_map(|entry| entry.due).min()
    }

    /// One that is due, from now on being looked at, with a copy of what is remembered of it.
    pub(super) fn begin(&mut self, now: Timestamp) -> Option<(Arc<Pod>, Memory)> {
        let is_due = |entry: &&mut Entry| !entry.is_busy && entry.due.is_some_and(|due| due <= now);
        let entry = self.all.values_mut().find(is_due)?;
        entry.due = None;
        entry.is_busy = true;
        Some((entry.pod.clone(), entry.memory.clone()))
    }

    /// It is not being looked at any more. `None` if that pod is gone.
    pub(super) fn ended(&mut self, key: &ObjectKey, uid: &Uid) -> Option<&mut Entry> {
        let entry = self.all.get_mut(key).filter(|entry| entry.pod.uid == *uid)?;
        entry.is_busy = false;
        Some(entry)
    }

    /// It cannot be looked at now.
    pub(super) fn put_off(&mut self, key: &ObjectKey, until: Option<Timestamp>) {
        if let Some(entry) = self.all.get_mut(key) {
            entry.is_busy = false;
            entry.due = until;
        }
    }

    /// A runtime has appeared: what could not be looked at now can.
    pub(super) fn look_at_all(&mut self, now: Timestamp) {
        for entry in self.all.values_mut().filter(|entry| !entry.left_alone) {
            if is_relevant(&entry.pod, Seen::New) {
                entry.wake(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(1000 + seconds)
    }

    fn pod(uid: &str, version: u64, id: &str) -> Value {
        json!({
            "metadata": {"name": "web-0", "namespace": "ns", "uid": uid, "resourceVersion": version.to_string(),
                "ownerReferences": [{"apiVersion": "apps.kruise.io/v1beta1", "controller": true}]},
            "spec": {"restartPolicy": "Always", "containers": [{"name": "main", "image": "app:v1"}]},
            "status": {"phase": "Running", "containerStatuses": [{"name": "main", "containerID": id}]},
        })
    }

    fn bytes(pod: &Value) -> Bytes {
        Bytes::from(pod.to_string())
    }

    fn list(pods: &mut Pods, items: &[Value], now: Timestamp) {
        pods.take(Feed::Began(now), now);
        pods.take(Feed::Page(Encoding::Json, items.iter().map(bytes).collect()), now);
        pods.take(Feed::Ended(9), now);
    }

    fn frame(pods: &mut Pods, frame: Frame, now: Timestamp) -> u64 {
        pods.take(Feed::Frames(Encoding::Json, vec![frame]), now)
    }

    #[test]
    fn agt_8_2_the_first_list_starts_nothing_and_a_change_does_after_a_second() {
        let mut pods = Pods::default();
        list(&mut pods, &[pod("u", 1, "containerd://1")], at(0));
        assert!(pods.is_synced() && pods.next_due().is_none());
        frame(&mut pods, Frame::Upsert(bytes(&pod("u", 2, "containerd://1"))), at(5));
        assert_eq!(pods.next_due(), None, "nothing that is noted changed");
        frame(&mut pods, Frame::Upsert(bytes(&pod("u", 3, "containerd://2"))), at(6));
        assert_eq!(pods.next_due(), Some(at(7)));
        assert!(pods.begin(at(6)).is_none());
        let (looked, _) = pods.begin(at(7)).expect("due");
        assert!(
            pods.begin(at(9)).is_none() && pods.next_due().is_none(),
            "one look at a time"
        );
        frame(&mut pods, Frame::Upsert(bytes(&pod("u", 4, "containerd://3"))), at(8));
        assert!(pods.begin(at(20)).is_none(), "one look at a time");
        pods.ended(&looked.key, &looked.uid).expect("there");
        assert!(pods.begin(at(20)).is_some(), "what changed meanwhile is looked at");
    }

    #[test]
    fn agt_3_a_relist_is_compared_and_forgets_what_is_gone() {
        let mut pods = Pods::default();
        list(&mut pods, &[pod("u", 1, "containerd://1")], at(0));
        list(&mut pods, &[pod("u", 1, "containerd://1")], at(1));
        assert_eq!(pods.next_due(), None);
        list(&mut pods, &[pod("v", 2, "containerd://1")], at(2));
        assert_eq!(pods.next_due(), Some(at(3)), "another pod of that name");
        list(&mut pods, &[], at(4));
        assert!(pods.all.is_empty());
    }

    #[test]
    fn what_is_older_than_our_own_write_is_not_taken() {
        let mut pods = Pods::default();
        list(&mut pods, &[pod("u", 1, "containerd://1")], at(0));
        let key = ObjectKey::new("ns", "web-0");
        let newer = wire::pod(Encoding::Json, &bytes(&pod("u", 5, "containerd://5"))).expect("a pod");
        pods.get_mut(&key).expect("there").update(newer);
        frame(&mut pods, Frame::Upsert(bytes(&pod("u", 4, "containerd://4"))), at(1));
        assert_eq!(pods.all[&key].pod.version, 5);
        frame(&mut pods, Frame::Delete(bytes(&pod("other", 6, ""))), at(1));
        assert!(pods.all.contains_key(&key), "it was another one that went");
        frame(&mut pods, Frame::Delete(bytes(&pod("u", 6, ""))), at(1));
        assert!(pods.all.is_empty());
    }

    #[test]
    fn a_pod_that_cannot_be_read_hides_no_other() {
        let mut pods = Pods::default();
        let broken = json!({"metadata": {"name": "x"}});
        pods.take(Feed::Began(at(0)), at(0));
        let page = [bytes(&broken), bytes(&pod("u", 1, ""))].into();
        assert_eq!(pods.take(Feed::Page(Encoding::Json, page), at(0)), 1);
        assert_eq!(pods.all.len(), 1);
    }
}
