//! What the API server refuses, for whoever writes logs: one line when an object is first refused something for a reason, and further
//! ones with the count while that goes on.
//!
//! Whatever a cluster refuses, the log stays readable: so many objects are remembered, so many lines are said in a minute, and what was left
//! out is said as a number. Both are shared between namespaces, so that what one of them is refused without end hides nothing of another.

use super::QueueKey;
use flotilla_model::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How often it is said that refusals go on.
const REPEAT_EVERY: Duration = Duration::from_secs(300);
/// What has not been refused for so long is news again.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);
/// Objects and reasons remembered at most.
const REMEMBERED_MAX: usize = 1024;
/// Lines in a [`WINDOW`] at most, so many of one namespace,
const LINES_MAX: u32 = 30;
const LINES_OF_NAMESPACE_MAX: u32 = 10;
/// and the last of them, one each, for namespaces of which nothing was said for [`REPEAT_EVERY`].
const LINES_FOR_NEW_NAMESPACES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(60);
/// Refusals can quote whole objects.
const MESSAGE_BYTES_MAX: usize = 1024;

/// What was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tried {
    /// A change that a controller asked for.
    Write,
    /// The status of its object.
    Status,
    /// To read an object that the next decision rests on.
    Read,
}

/// A line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The object for which something was tried.
    pub key: QueueKey,
    /// What was tried.
    pub tried: Tried,
    /// What it was tried on: a pod, or the object itself.
    pub subject: String,
    /// A word for programs.
    pub reason: String,
    /// What the API server said last.
    pub message: String,
    /// How many requests of this kind for this object have been refused for this reason, this one included.
    pub count: u64,
    /// When the first of these was.
    pub since: Timestamp,
    /// Refusals of which nothing was said since the last line, since there were too many.
    pub left_out: u64,
}

type Id = (QueueKey, Tried, String);

#[derive(Debug)]
struct Series {
    count: u64,
    since: Timestamp,
    last: Timestamp,
    told_at: Option<Timestamp>,
}

/// What a namespace has of what is there for all.
#[derive(Debug, Default)]
struct Share {
    remembered: usize,
    told_at: Option<Timestamp>,
    lines_in_window: u32,
}

/// Counts refusals, and hands out the lines.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    series: BTreeMap<Id, Series>,
    /// Those of which something is remembered.
    namespaces: BTreeMap<Arc<str>, Share>,
    lines: Vec<Refusal>,
    window_began: Timestamp,
    lines_in_window: u32,
    left_out: u64,
}

impl Refusals {
    /// A request was refused: what it was about, as [`Refusal`] has it.
    pub(super) fn note(
        &mut self,
        key: &QueueKey,
        tried: Tried,
        subject: &str,
        (reason, message): (&str, &str),
        now: Timestamp,
    ) {
        let id = (key.clone(), tried, reason.to_owned());
        if !self.remember(&id, now) {
            self.left_out += 1;
            return;
        }
        let Some(series) = self.series.get_mut(&id) else { return };
        if now >= series.last + FORGOTTEN_AFTER {
            (series.count, series.since, series.told_at) = (0, now, None);
        }
        series.count += 1;
        series.last = now;
        let (count, since) = (series.count, series.since);
        if series.told_at.is_some_and(|told_at| now < told_at + REPEAT_EVERY) {
            return;
        }
        if !self.takes_line(&key.key.namespace, now) {
            self.left_out += 1;
            return;
        }
        if let Some(series) = self.series.get_mut(&id) {
            series.told_at = Some(now);
        }
        self.lines.push(Refusal {
            key: key.clone(),
            tried,
            subject: subject.to_owned(),
            reason: reason.to_owned(),
            message: shortened(message),
            count,
            since,
            left_out: std::mem::take(&mut self.left_out),
        });
    }

    /// Whether this is remembered, or there is room for it.
    fn remember(&mut self, id: &Id, now: Timestamp) -> bool {
        if self.series.contains_key(id) {
            return true;
        }
        let namespace = &id.0.key.namespace;
        if self.series.len() >= REMEMBERED_MAX {
            self.keep(|_, series| now < series.last + FORGOTTEN_AFTER);
        }
        if self.series.len() >= REMEMBERED_MAX && !self.make_room(namespace) {
            return false;
        }
        let fresh = Series {
            count: 0,
            since: now,
            last: now,
            told_at: None,
        };
        self.series.insert(id.clone(), fresh);
        self.namespaces.entry(namespace.clone()).or_default().remembered += 1;
        true
    }

    /// The namespace of which most is remembered makes room for one of which less is. What has just been told of it goes: that is known.
    fn make_room(&mut self, newcomer: &Arc<str>) -> bool {
        let own = self.namespaces.get(newcomer).map_or(0, |share| share.remembered);
        let most = self.namespaces.iter().max_by_key(|(_, share)| share.remembered);
        let Some((namespace, _)) = most.filter(|(_, share)| share.remembered > own + 1) else {
            return false;
        };
        let of_it = self.series.iter().filter(|(id, _)| id.0.key.namespace == *namespace);
        let Some(id) = of_it.max_by_key(|(_, series)| series.told_at).map(|(id, _)| id.clone()) else {
            return false;
        };
        self.keep(|other, _| *other != id);
        true
    }

    fn keep(&mut self, keeps: impl Fn(&Id, &Series) -> bool) {
        let namespaces = &mut self.namespaces;
        self.series.retain(|id, series| {
            let stays = keeps(id, series);
            if let Some(share) = namespaces.get_mut(&id.0.key.namespace).filter(|_| !stays) {
                share.remembered -= 1;
            }
            stays
        });
        namespaces.retain(|_, share| share.remembered > 0);
    }

    /// Whether something may be said of this namespace now; then it counts.
    fn takes_line(&mut self, namespace: &Arc<str>, now: Timestamp) -> bool {
        if now >= self.window_began + WINDOW {
            (self.window_began, self.lines_in_window) = (now, 0);
            for share in self.namespaces.values_mut() {
                share.lines_in_window = 0;
            }
        }
        let share = self.namespaces.entry(namespace.clone()).or_default();
        let is_new = share.told_at.is_none_or(|told_at| now >= told_at + REPEAT_EVERY);
        let room = if is_new {
            LINES_MAX
        } else {
            LINES_MAX - LINES_FOR_NEW_NAMESPACES
        };
        if self.lines_in_window >= room || share.lines_in_window >= LINES_OF_NAMESPACE_MAX {
            return false;
        }
        self.lines_in_window += 1;
        share.lines_in_window += 1;
        share.told_at = Some(now);
        true
    }

    /// The object is gone, and nothing is refused it any more.
    pub(super) fn forget(&mut self, key: &QueueKey) {
        self.keep(|(of, ..), _| of != key);
    }

    /// What is to be logged since this was asked.
    pub(super) fn take(&mut self) -> Vec<Refusal> {
        std::mem::take(&mut self.lines)
    }
}

fn shortened(message: &str) -> String {
    if message.len() <= MESSAGE_BYTES_MAX {
        return message.to_owned();
    }
    let end = (0..=MESSAGE_BYTES_MAX)
        .rev()
        .find(|end| message.is_char_boundary(*end))
        .unwrap_or(0);
    format!("{}…", &message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use flotilla_model::ObjectKey;

    fn key(name: &str) -> QueueKey {
        key_in("shop", name)
    }

    fn key_in(namespace: &str, name: &str) -> QueueKey {
        QueueKey {
            controller: 0,
            key: ObjectKey::new(namespace, name),
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(1_000_000 + seconds)
    }

    impl Refusals {
        fn refused(&mut self, key: &QueueKey, reason: &str, seconds: i64) {
            self.note(key, Tried::Write, "it", (reason, "no"), at(seconds));
        }

        fn counts(&mut self) -> Vec<(String, u64)> {
            let lines = self.take();
            lines.into_iter().map(|line| (line.reason, line.count)).collect()
        }

        /// Objects of this namespace that a line was about.
        fn told_of(&mut self, namespace: &str) -> Vec<String> {
            let lines = self.take();
            let of_it = lines.into_iter().filter(|line| &*line.key.key.namespace == namespace);
            of_it.map(|line| line.key.key.name.to_string()).collect()
        }
    }

    #[test]
    fn each_object_and_reason_is_told_once_and_then_with_its_count() {
        let mut refusals = Refusals::default();
        // Forty minutes, one refusal in ten seconds.
        let mut told = Vec::new();
        for second in (0..2400).step_by(10) {
            refusals.refused(&key("web"), "QuotaExceeded", second);
            told.extend(refusals.counts());
        }
        let expected: Vec<_> = (0..8).map(|n| ("QuotaExceeded".to_owned(), 30 * n + 1)).collect();
        assert_eq!(told, expected);
        refusals.refused(&key("web"), "Forbidden", 2400);
        refusals.refused(&key("db"), "QuotaExceeded", 2400);
        assert_eq!(
            refusals.counts(),
            [("Forbidden".to_owned(), 1), ("QuotaExceeded".to_owned(), 1)]
        );
        // News again after an hour without, and for an object that was made anew.
        refusals.refused(&key("web"), "QuotaExceeded", 6001);
        assert_eq!(refusals.counts(), [("QuotaExceeded".to_owned(), 1)]);
        refusals.forget(&key("web"));
        refusals.refused(&key("web"), "QuotaExceeded", 6002);
        assert_eq!(refusals.counts(), [("QuotaExceeded".to_owned(), 1)]);
    }

    #[test]
    fn what_an_object_is_refused_does_not_hide_that_its_status_is() {
        let mut refusals = Refusals::default();
        for tried in [Tried::Write, Tried::Status, Tried::Read, Tried::Status] {
            refusals.note(&key("web"), tried, "it", ("Forbidden", "no"), at(0));
        }
        let told: Vec<_> = refusals.take().into_iter().map(|line| line.tried).collect();
        assert_eq!(told, [Tried::Write, Tried::Status, Tried::Read]);
    }

    #[test]
    fn lines_and_memory_are_bounded_and_what_is_left_out_is_told() {
        let mut refusals = Refusals::default();
        for n in 0..5000 {
            let key = key_in(&format!("shop-{}", n % 4), &format!("web-{n}"));
            let message = "é".repeat(4000);
            refusals.note(&key, Tried::Write, "it", ("Forbidden", &message), at(0));
        }
        assert_eq!(refusals.series.len(), REMEMBERED_MAX);
        let remembered = refusals
            .namespaces
            .values()
            .map(|share| share.remembered)
            .sum::<usize>();
        assert_eq!(remembered, REMEMBERED_MAX);
        let lines = refusals.take();
        let told = u32::try_from(lines.len()).unwrap();
        assert!((20..=LINES_MAX).contains(&told), "{told}");
        assert!(lines.iter().all(|line| line.message.len() < MESSAGE_BYTES_MAX + 8));
        refusals.refused(&key_in("shop-0", "web-900"), "Forbidden", 60);
        let lines = refusals.take();
        assert_eq!(
            (lines.len(), lines[0].count),
            (1, 2),
            "it is told as soon as there is room"
        );
        assert_eq!(lines[0].left_out, 5000 - u64::from(told));
        for n in 0..5000 {
            refusals.forget(&key_in(&format!("shop-{}", n % 4), &format!("web-{n}")));
        }
        assert!(refusals.series.is_empty() && refusals.namespaces.is_empty());
    }

    #[test]
    fn what_one_namespace_is_refused_without_end_hides_nothing_of_another() {
        let mut refusals = Refusals::default();
        // A used-up quota: two thousand sets, each refused every ten seconds.
        let noise = |refusals: &mut Refusals, second| {
            for n in 0..2000 {
                refusals.refused(&key_in("crowd", &format!("web-{n}")), "QuotaExceeded", second);
            }
        };
        for second in (0..600).step_by(10) {
            noise(&mut refusals, second);
        }
        refusals.take();
        for (n, second) in (600..660).step_by(10).enumerate() {
            noise(&mut refusals, second);
            refusals.take();
            let name = format!("db-{n}");
            refusals.refused(&key("first"), "Forbidden", second);
            refusals.refused(&key(&name), "Forbidden", second);
            let expected = if n == 0 {
                vec!["first".to_owned(), name]
            } else {
                vec![name]
            };
            assert_eq!(refusals.told_of("shop"), expected, "at {second}");
        }
        assert_eq!(refusals.series.len(), REMEMBERED_MAX);
    }

    #[test]
    fn what_makes_room_is_not_told_again() {
        let mut refusals = Refusals::default();
        let mut told = BTreeMap::new();
        for second in (0..300).step_by(10) {
            for n in 0..REMEMBERED_MAX {
                refusals.refused(&key_in("crowd", &format!("web-{n}")), "QuotaExceeded", second);
            }
            for n in 0..20 {
                refusals.refused(&key(&format!("db-{n}")), "Forbidden", second);
            }
            for line in refusals.take() {
                *told.entry(line.key).or_insert(0) += 1;
            }
        }
        assert!(told.len() > 50);
        assert!(told.values().all(|times| *times == 1), "each once in five minutes");
    }

    #[test]
    fn of_many_namespaces_each_is_heard() {
        let mut refusals = Refusals::default();
        let mut heard = std::collections::BTreeSet::new();
        let mut lines_in = BTreeMap::new();
        for second in (0..300).step_by(10) {
            for n in 0..40 * 20 {
                let key = key_in(&format!("team-{:02}", n / 20), &format!("web-{n}"));
                refusals.refused(&key, "QuotaExceeded", second);
            }
            for line in refusals.take() {
                heard.insert(line.key.key.namespace);
                *lines_in.entry(second / 60).or_insert(0) += 1;
            }
        }
        assert_eq!(heard.len(), 40, "{heard:?}");
        assert!(lines_in.values().all(|lines| *lines <= LINES_MAX), "{lines_in:?}");
    }
}
