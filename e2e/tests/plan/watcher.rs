//! What a watcher sees of the pods of a namespace: in which order and waves they are taken down, made and available.
//!
//! The definition of waves is that of `flotilla plan`, and written down here once more from what it says: whatever begins after
//! something has ended since the last beginning had to wait for that, and belongs to the wave after it.

use flotilla_e2e::api::{Objects, Seen, is_ready, is_terminating, name, revision, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// One pod that something happened to.
// Each may have happened without the others.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Default)]
struct Touched {
    pod: String,
    is_down: bool,
    is_made: bool,
    is_updated: bool,
    /// It was ready, and is not any more.
    is_unready: bool,
}

#[derive(Clone, Copy, Debug)]
enum Moment {
    Began(usize),
    Gone(usize),
    Available(usize),
}

/// What was seen so far.
#[derive(Debug, Default)]
pub(crate) struct Watcher {
    touched: Vec<Touched>,
    open: BTreeMap<String, usize>,
    going: BTreeSet<String>,
    available: BTreeSet<String>,
    moments: Vec<Moment>,
    lowest: usize,
    /// Pods that were there before.
    known: BTreeSet<String>,
    /// Their UIDs.
    before: BTreeSet<String>,
    /// Each pod as it was seen last.
    last: Objects,
}

fn available(pods: &Objects) -> BTreeSet<String> {
    let serves = |pod: &&Value| is_ready(pod) && !is_terminating(pod);
    pods.values().filter(serves).map(name).collect()
}

/// Whether a pod was changed where it runs, to another revision: its containers, or nothing but labels and annotations.
fn is_updated(before: &Value, after: &Value) -> bool {
    let containers = |pod: &Value| pod["spec"]["containers"].clone();
    let is_another = containers(before) != containers(after) || revision(before) != revision(after);
    before["spec"]["nodeName"] != Value::Null && is_another
}

impl Watcher {
    /// Begins with the pods that are there.
    pub(crate) fn new(pods: &Objects) -> Self {
        let available = available(pods);
        Watcher {
            lowest: available.len(),
            available,
            known: pods.keys().cloned().collect(),
            before: pods.values().map(|pod| text(pod, "/metadata/uid").to_owned()).collect(),
            last: pods.clone(),
            ..Watcher::default()
        }
    }

    /// Something happened; `pods` are those that are there now.
    pub(crate) fn see(&mut self, seen: &Seen, pods: &Objects) {
        let pod = name(&seen.object);
        match seen.event {
            "ADDED" => self.made(&pod),
            "DELETED" => {
                self.taken_down(&pod);
                self.going.remove(&pod);
                self.moments.push(Moment::Gone(self.open[&pod]));
            }
            _ if is_terminating(&seen.object) => self.taken_down(&pod),
            _ => {
                let before = self.last.get(&pod).cloned().unwrap_or_default();
                if is_updated(&before, &seen.object) {
                    self.updated(&pod);
                } else if is_ready(&before) && !is_ready(&seen.object) && !self.open.contains_key(&pod) {
                    self.begin(&pod, |touched| touched.is_unready = true);
                }
            }
        }
        self.last.clone_from(pods);
        let now = available(pods);
        for pod in now.difference(&self.available) {
            if let Some(item) = self.open.remove(pod) {
                self.moments.push(Moment::Available(item));
            }
        }
        self.lowest = self.lowest.min(now.len());
        self.available = now;
    }

    fn begin(&mut self, pod: &str, how: impl FnOnce(&mut Touched)) {
        let item = self.touched.len();
        let mut touched = Touched {
            pod: pod.to_owned(),
            ..Touched::default()
        };
        how(&mut touched);
        self.touched.push(touched);
        self.open.insert(pod.to_owned(), item);
        self.moments.push(Moment::Began(item));
    }

    /// Goes on with a pod that was taken out of service first, or begins.
    fn go_on(&mut self, pod: &str, how: impl FnOnce(&mut Touched)) {
        let goes_on = |touched: &Touched| !touched.is_down && !touched.is_made;
        match self.open.get(pod).copied().filter(|item| goes_on(&self.touched[*item])) {
            Some(item) => how(&mut self.touched[item]),
            None => self.begin(pod, how),
        }
    }

    fn updated(&mut self, pod: &str) {
        self.go_on(pod, |touched| touched.is_updated = true);
    }

    fn taken_down(&mut self, pod: &str) {
        if self.going.insert(pod.to_owned()) {
            let is_updated = |item: &usize| self.touched[*item].is_updated;
            if self.open.get(pod).is_some_and(is_updated) {
                self.begin(pod, |touched| touched.is_down = true);
            } else {
                self.go_on(pod, |touched| touched.is_down = true);
            }
        }
    }

    fn made(&mut self, pod: &str) {
        match self.open.get(pod).copied().filter(|item| self.touched[*item].is_down) {
            Some(item) => self.touched[item].is_made = true,
            None => self.begin(pod, |touched| touched.is_made = true),
        }
    }

    /// Waves, each with what was done to which pods.
    pub(crate) fn waves(&self) -> Vec<BTreeSet<String>> {
        let is_for_good = |item: usize| self.touched[item].is_down && !self.touched[item].is_made;
        let mut wave_of = vec![0_usize; self.touched.len()];
        let (mut under_way, mut ended) = (0, None);
        for moment in &self.moments {
            match *moment {
                Moment::Began(item) => {
                    under_way = ended.take().map_or(under_way, |wave| wave + 1);
                    wave_of[item] = under_way;
                }
                Moment::Gone(item) if is_for_good(item) => ended = ended.max(Some(wave_of[item])),
                Moment::Gone(_) => {}
                Moment::Available(item) => ended = ended.max(Some(wave_of[item])),
            }
        }
        let mut waves = vec![BTreeSet::new(); wave_of.iter().max().map_or(0, |last| last + 1)];
        for (touched, wave) in self.touched.iter().zip(wave_of) {
            let action = match (touched.is_down, touched.is_made) {
                (true, true) => "replace",
                (true, false) => "delete",
                (false, true) => "create",
                (false, false) if touched.is_updated => "update",
                (false, false) => "makeUnready",
            };
            waves[wave].insert(format!("{action} {}", touched.pod));
        }
        waves
    }

    /// The fewest available pods.
    pub(crate) fn lowest(&self) -> usize {
        self.lowest
    }

    /// Available pods now.
    pub(crate) fn available(&self) -> usize {
        self.available.len()
    }

    /// Pods that were there before.
    pub(crate) fn known(&self) -> &BTreeSet<String> {
        &self.known
    }

    /// Whether this very pod was there before, and not only one of its name.
    pub(crate) fn had(&self, pod: &Value) -> bool {
        self.before.contains(text(pod, "/metadata/uid"))
    }
}
