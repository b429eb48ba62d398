//! The certificates that the endpoint shows: an authority of its own, and a serving certificate signed by it.
//!
//! [`decide`] is pure: from what is stored, the time and the names that must be covered follows what is to be done, with the reason.
//! [`renew`] does it, as a new text of what is stored. Which certificate is valid when and for what is asked of the library that
//! verifies connections, so that both always agree.
//!
//! A new authority goes three ways, each after the one before had time to reach everybody: it is added to the bundle; the serving
//! certificate is signed by it; the old one leaves the bundle. So whoever trusts either bundle can connect at any moment.

mod decide;
mod make;
mod read;

pub use decide::{Decision, Reason, decide};
pub use make::renew;
pub use read::{Unusable, serving_ends, serving_key};

use std::fmt;
use std::time::Duration;

/// How far clocks may differ: certificates begin so long before they are made, and one that begins so far ahead is believed.
pub const CLOCKS_DIFFER_MAX: Duration = Duration::from_secs(3600);

/// What is stored: texts in PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Stored {
    /// The authorities to trust; the first one signs.
    pub authorities: String,
    /// The key of the first authority.
    pub authority_key: String,
    /// The certificate to show.
    pub serving: String,
    /// Its key.
    pub serving_key: String,
    /// Whether it carries our label.
    pub is_ours: bool,
}

/// Without the keys.
impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored")
            .field("authorities", &self.authorities)
            .field("serving", &self.serving)
            .field("is_ours", &self.is_ours)
            .finish_non_exhaustive()
    }
}

/// How long certificates live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// An authority.
    pub authority: Duration,
    /// A serving certificate.
    pub serving: Duration,
    /// What is written reaches everybody within this time: replicas that read it, API servers that are told.
    pub settling: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        Lifetimes {
            authority: DAY * 365,
            serving: DAY * 30,
            settling: Duration::from_secs(120),
        }
    }
}

impl Lifetimes {
    /// In the usual proportion to a serving certificate of so many seconds, for tests.
    pub fn short(seconds: u64) -> Self {
        let serving = Duration::from_secs(seconds);
        Lifetimes {
            authority: serving * 12,
            serving,
            settling: serving / 3,
        }
    }

    /// How often to look whether something is due, or has been written by others.
    pub fn look_every(&self) -> Duration {
        (self.serving / 20).clamp(Duration::from_millis(250), Duration::from_secs(15))
    }
}

#[cfg(test)]
mod tests;
