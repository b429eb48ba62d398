//! Writes that the API server refuses, for whoever writes logs: one line when an object is first refused something for a reason, and further
//! ones with the count while that goes on.
//!
//! Whatever a cluster refuses, the log stays readable: so many objects are remembered, so many lines are said in a minute, and what was left
//! out is said as a number.

use super::QueueKey;
use flotilla_model::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often it is said that refusals go on.
const REPEAT_EVERY: Duration = Duration::from_secs(300);
/// What has not been refused for so long is news again.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);
/// Objects and reasons remembered at most.
const REMEMBERED_MAX: usize = 1024;
/// Lines in a [`WINDOW`] at most.
const LINES_MAX: u32 = 30;
const WINDOW: Duration = Duration::from_secs(60);
/// Refusals can quote whole objects.
const MESSAGE_BYTES_MAX: usize = 1024;

/// A line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The object for which something was tried.
    pub key: QueueKey,
    /// What it was tried on: a pod, or the object itself.
    pub subject: String,
    /// A word for programs.
    pub reason: String,
    /// What the API server said last.
    pub message: String,
    /// How many writes for this object have been refused for this reason, this one included.
    pub count: u64,
    /// When the first of these was.
    pub since: Timestamp,
    /// Refusals of which nothing was said since the last line, since there were too many.
    pub left_out: u64,
}

#[derive(Debug)]
struct Series {
    count: u64,
    since: Timestamp,
    last: Timestamp,
    told_at: Option<Timestamp>,
}

/// Counts refusals, and hands out the lines.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    series: BTreeMap<(QueueKey, String), Series>,
    lines: Vec<Refusal>,
    window_began: Timestamp,
    lines_in_window: u32,
    left_out: u64,
}

impl Refusals {
    /// A write was refused.
    pub(super) fn note(&mut self, key: &QueueKey, subject: &str, reason: &str, message: &str, now: Timestamp) {
        let id = (key.clone(), reason.to_owned());
        if !self.series.contains_key(&id) && self.series.len() >= REMEMBERED_MAX {
            self.series.retain(|_, series| now < series.last + FORGOTTEN_AFTER);
            if self.series.len() >= REMEMBERED_MAX {
                self.left_out += 1;
                return;
            }
        }
        let fresh = Series {
            count: 0,
            since: now,
            last: now,
            told_at: None,
        };
        let series = self.series.entry(id).or_insert(fresh);
        if now >= series.last + FORGOTTEN_AFTER {
            (series.count, series.since, series.told_at) = (0, now, None);
        }
        series.count += 1;
        series.last = now;
        if series.told_at.is_some_and(|told_at| now < told_at + REPEAT_EVERY) {
            return;
        }
        if now >= self.window_began + WINDOW {
            (self.window_began, self.lines_in_window) = (now, 0);
        }
        if self.lines_in_window >= LINES_MAX {
            self.left_out += 1;
            return;
        }
        self.lines_in_window += 1;
        series.told_at = Some(now);
        self.lines.push(Refusal {
            key: key.clone(),
            subject: subject.to_owned(),
            reason: reason.to_owned(),
            message: shortened(message),
            count: series.count,
            since: series.since,
            left_out: std::mem::take(&mut self.left_out),
        });
    }

    /// The object is gone, and nothing is refused it any more.
    pub(super) fn forget(&mut self, key: &QueueKey) {
        self.series.retain(|(of, _), _| of != key);
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
        QueueKey {
            controller: 0,
            key: ObjectKey::new("shop", name),
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(1_000_000 + seconds)
    }

    fn counts(refusals: &mut Refusals) -> Vec<(String, u64)> {
        let lines = refusals.take();
        lines.into_iter().map(|line| (line.reason, line.count)).collect()
    }

    #[test]
    fn each_object_and_reason_is_told_once_and_then_with_its_count() {
        let mut refusals = Refusals::default();
        // Forty minutes, one refusal in ten seconds.
        let mut told = Vec::new();
        for second in (0..2400).step_by(10) {
            refusals.note(&key("web"), "web-0", "QuotaExceeded", "no", at(second));
            told.extend(counts(&mut refusals));
        }
        let expected: Vec<_> = (0..8).map(|n| ("QuotaExceeded".to_owned(), 30 * n + 1)).collect();
        assert_eq!(told, expected);
        refusals.note(&key("web"), "web-0", "Forbidden", "no", at(2400));
        refusals.note(&key("db"), "db-0", "QuotaExceeded", "no", at(2400));
        assert_eq!(
            counts(&mut refusals),
            [("Forbidden".to_owned(), 1), ("QuotaExceeded".to_owned(), 1)]
        );
        // News again after an hour without, and for an object that was made anew.
        refusals.note(&key("web"), "web-0", "QuotaExceeded", "no", at(6001));
        assert_eq!(counts(&mut refusals), [("QuotaExceeded".to_owned(), 1)]);
        refusals.forget(&key("web"));
        refusals.note(&key("web"), "web-0", "QuotaExceeded", "no", at(6002));
        assert_eq!(counts(&mut refusals), [("QuotaExceeded".to_owned(), 1)]);
    }

    #[test]
    fn lines_and_memory_are_bounded_and_what_is_left_out_is_told() {
        let mut refusals = Refusals::default();
        for n in 0..5000 {
            refusals.note(&key(&format!("web-{n}")), "it", "Forbidden", &"é".repeat(4000), at(0));
        }
        assert_eq!(refusals.series.len(), REMEMBERED_MAX);
        let lines = refusals.take();
        assert_eq!(lines.len(), LINES_MAX as usize);
        assert!(lines.iter().all(|line| line.message.len() < MESSAGE_BYTES_MAX + 8));
        refusals.note(&key("web-900"), "it", "Forbidden", "no", at(60));
        let lines = refusals.take();
        assert_eq!(
            (lines.len(), lines[0].count),
            (1, 2),
            "it is told as soon as there is room"
        );
        assert_eq!(lines[0].left_out, 5000 - u64::from(LINES_MAX));
    }
}
