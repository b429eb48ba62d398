//! What a watcher sees of the pods of a namespace: in which order and waves they are taken down, made and available.
//!
//! The definition of waves is that of `flotilla plan`, and written down here once more from what it says: whatever begins after
//! something has ended since the last beginning had to wait for that, and belongs to the wave after it.

use flotilla_e2e::api::{Objects, Seen, is_ready, is_terminating, name};
use std::collections::{BTreeMap, BTreeSet};

/// One pod that something happened to.
#[derive(Debug)]
struct Touched {
    pod: String,
    is_down: bool,
    is_made: bool,
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
}

fn available(pods: &Objects) -> BTreeSet<String> {
    let serves = |pod: &&serde_json::Value| is_ready(pod) && !is_terminating(pod);
    pods.values().filter(serves).map(name).collect()
}

impl Watcher {
    /// Begins with the pods that are there.
    pub(crate) fn new(pods: &Objects) -> Self {
        let available = available(pods);
        Watcher {
            lowest: available.len(),
            available,
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
            _ => {}
        }
        let now = available(pods);
        for pod in now.difference(&self.available) {
            if let Some(item) = self.open.remove(pod) {
                self.moments.push(Moment::Available(item));
            }
        }
        self.lowest = self.lowest.min(now.len());
        self.available = now;
    }

    fn begin(&mut self, pod: &str, is_down: bool) {
        let item = self.touched.len();
        self.touched.push(Touched {
            pod: pod.to_owned(),
            is_down,
            is_made: !is_down,
        });
        self.open.insert(pod.to_owned(), item);
        self.moments.push(Moment::Began(item));
    }

    fn taken_down(&mut self, pod: &str) {
        if self.going.insert(pod.to_owned()) {
            self.begin(pod, true);
        }
    }

    fn made(&mut self, pod: &str) {
        match self.open.get(pod).copied().filter(|item| self.touched[*item].is_down) {
            Some(item) => self.touched[item].is_made = true,
            None => self.begin(pod, false),
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
                (false, _) => "create",
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
}
