//! What this process takes, as Linux tells it; elsewhere it counts as nothing.

use std::fs::read_to_string;

/// Seconds that this thread has had of a processor: on a busy machine far fewer than have passed.
pub(crate) fn processor_seconds() -> f64 {
    let text = read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|field| field.parse::<u64>().ok());
    std::time::Duration::from_nanos(nanoseconds.unwrap_or(0)).as_secs_f64()
}

/// The most memory that this process has ever had, in kB.
pub(crate) fn memory_kb_max() -> u64 {
    let text = read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
    number.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn something_is_taken() {
        let mut sum = 0_u64;
        while processor_seconds() < 0.001 {
            sum = (0..100_000).fold(sum, u64::wrapping_add);
        }
        assert!(memory_kb_max() > 100 && sum > 0);
    }
}
