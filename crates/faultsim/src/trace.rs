//! What a run tells when it is replayed: what was seen, decided and written, and what really was. One line per happening.

use std::fmt::Write as _;

/// Lines with their moment. A trace that is off costs nothing.
#[derive(Debug, Default)]
pub struct Trace {
    lines: Option<Vec<String>>,
}

impl Trace {
    /// One that keeps its lines if `on`.
    pub fn new(on: bool) -> Self {
        Trace {
            lines: on.then(Vec::new),
        }
    }

    /// Whether lines are kept.
    pub fn is_on(&self) -> bool {
        self.lines.is_some()
    }

    /// Notes what `text` says, at this many milliseconds since the start.
    pub fn say(&mut self, now_ms: u64, text: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            let mut line = format!("{:4}.{:03} ", now_ms / 1000, now_ms % 1000);
            // Writing into a string does not fail.
            let _ = write!(line, "{}", text());
            lines.push(line);
        }
    }

    /// All lines.
    pub fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}
