//! Ages as `kubectl get` shows them (`k8s.io/apimachinery/pkg/util/duration`).

use jiff::Timestamp;
use serde_json::Value;

/// How long ago a timestamp (RFC 3339) was.
pub fn age(timestamp: Option<&str>, now: Timestamp) -> String {
    let Some(then) = timestamp.and_then(|t| t.parse::<Timestamp>().ok()) else {
        return "<unknown>".to_owned();
    };
    let passed = now.duration_since(then).as_millis();
    // Whole seconds towards zero, as Go divides.
    human(i64::try_from(passed / 1000).unwrap_or(i64::MAX))
}

/// The age of an object.
pub(super) fn of_object(object: &Value, now: Timestamp) -> Value {
    age(object["metadata"]["creationTimestamp"].as_str(), now).into()
}

fn human(seconds: i64) -> String {
    let pair = |large: i64, large_unit: char, small: i64, small_unit: char| {
        if small == 0 {
            format!("{large}{large_unit}")
        } else {
            format!("{large}{large_unit}{small}{small_unit}")
        }
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    match seconds {
        i64::MIN..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        _ if seconds < 120 => format!("{seconds}s"),
        _ if minutes < 10 => pair(minutes, 'm', seconds % 60, 's'),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => pair(hours, 'h', minutes % 60, 'm'),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 24 * 8 => pair(days, 'd', hours % 24, 'h'),
        _ if days < 365 * 2 => format!("{days}d"),
        _ if days < 365 * 8 => pair(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_as_long_as_they_need_be() {
        const HOUR: i64 = 3600;
        const DAY: i64 = 24 * HOUR;
        for (seconds, text) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (599, "9m59s"),
            (600, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (8 * HOUR - 1, "7h59m"),
            (47 * HOUR, "47h"),
            (2 * DAY, "2d"),
            (8 * DAY - 1, "7d23h"),
            (729 * DAY, "729d"),
            (730 * DAY, "2y"),
            (731 * DAY, "2y1d"),
            (2920 * DAY, "8y"),
        ] {
            assert_eq!(human(seconds), text, "{seconds}");
        }
        assert_eq!(age(None, Timestamp::UNIX_EPOCH), "<unknown>");
    }
}
