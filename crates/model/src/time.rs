//! A moment, as the number of milliseconds since the Unix epoch.
//!
//! Eight bytes instead of sixteen, with or without an `Option` around it, because every cached pod carries several. Whoever needs
//! "now" gets it as an argument.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::{Add, Sub};
use std::str::FromStr;
use std::time::Duration;

const SIGN_BIT: u64 = 1 << 63;

/// Milliseconds since 1970-01-01T00:00:00Z; negative before.
///
/// Inside, the number's sign bit is flipped, which keeps the order and leaves zero unused, for `None`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(NonZeroU64);

impl Timestamp {
    /// The furthest moment that can be written as RFC 3339 (year 9999); delays are clamped to it.
    pub const MAX: Timestamp = Timestamp::from_millis(253_402_207_200_000);

    /// From milliseconds since the epoch. The least of all numbers counts as the one after it.
    pub const fn from_millis(millis: i64) -> Self {
        match NonZeroU64::new(millis.cast_unsigned() ^ SIGN_BIT) {
            Some(bits) => Timestamp(bits),
            None => Timestamp(NonZeroU64::MIN),
        }
    }

    /// From whole seconds since the epoch.
    pub const fn from_seconds(seconds: i64) -> Self {
        Timestamp::from_millis(seconds.saturating_mul(1000))
    }

    /// Milliseconds since the epoch.
    pub const fn as_millis(self) -> i64 {
        (self.0.get() ^ SIGN_BIT).cast_signed()
    }

    /// How long after `earlier` this is; zero if it is not after.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(u64::try_from(self.as_millis().saturating_sub(earlier.as_millis())).unwrap_or(0))
    }
}

impl Default for Timestamp {
    /// The epoch, which is also how Kubernetes' own types write "never".
    fn default() -> Self {
        Timestamp::from_millis(0)
    }
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;
    /// Saturates at [`Timestamp::MAX`], so that a far-future wake-up cannot overflow.
    fn add(self, rhs: Duration) -> Timestamp {
        let millis = i64::try_from(rhs.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(self.as_millis().saturating_add(millis)).min(Timestamp::MAX)
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Timestamp;
    fn sub(self, rhs: Duration) -> Timestamp {
        let millis = i64::try_from(rhs.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(self.as_millis().saturating_sub(millis))
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC; whole seconds without a fraction, as Kubernetes writes `metav1.Time`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.as_millis()) {
            Ok(t) => write!(f, "{t}"),
            Err(_) => write!(f, "{}ms", self.as_millis()),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Timestamp {
    type Err = jiff::Error;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        s.parse::<jiff::Timestamp>()
            .map(|t| Timestamp::from_millis(t.as_millisecond()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_kubernetes_does() {
        let t: Timestamp = "2026-11-21T04:00:00Z".parse().unwrap();
        assert_eq!(t.to_string(), "2026-11-21T04:00:00Z");
    }

    #[test]
    fn moments_keep_their_order_and_cost_no_more_when_optional() {
        let numbers = [i64::MIN + 1, -1, 0, 1, 1_700_000_000_000, i64::MAX];
        for pair in numbers.windows(2) {
            let [a, b] = [Timestamp::from_millis(pair[0]), Timestamp::from_millis(pair[1])];
            assert!(a < b, "{pair:?}");
            assert_eq!((a.as_millis(), b.as_millis()), (pair[0], pair[1]));
        }
        assert_eq!(Timestamp::from_millis(i64::MIN), Timestamp::from_millis(i64::MIN + 1));
        assert_eq!(size_of::<Option<Timestamp>>(), 8);
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Timestamp::from_seconds(10) + Duration::MAX, Timestamp::MAX);
        assert_eq!(
            Timestamp::from_seconds(1).since(Timestamp::from_seconds(5)),
            Duration::ZERO
        );
        assert_eq!(
            Timestamp::from_seconds(5).since(Timestamp::from_seconds(1)),
            Duration::from_secs(4)
        );
    }
}
