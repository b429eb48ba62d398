//! What the heap holds, counted by the allocator.

use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// What making something did to the heap, in bytes as they were asked for: without what the allocator adds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Growth {
    /// What it holds now.
    pub(crate) kept: f64,
    /// What was held at the worst moment on the way.
    pub(crate) peak: f64,
}

/// Makes something, and says how the heap grew. Nothing else may allocate meanwhile.
#[allow(clippy::cast_precision_loss)] // Bytes of a heap fit 52 bits.
pub(crate) fn growth<T>(make: impl FnOnce() -> T) -> (T, Growth) {
    HEAP.reset_peak_usage();
    let before = HEAP.current_usage();
    let result = make();
    let (after, peak) = (HEAP.current_usage(), HEAP.peak_usage());
    let above = |level: usize| level.saturating_sub(before) as f64;
    (
        result,
        Growth {
            kept: above(after),
            peak: above(peak),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The count is the whole process's, and other tests take and give back memory meanwhile: so it is taken in a process of its own.
    #[test]
    fn what_is_kept_and_what_is_dropped_is_told_apart() {
        let own = std::env::current_exe().expect("the tests have a program");
        let alone = std::process::Command::new(own)
            .args([
                "--exact",
                "heap::tests::alone_in_its_process",
                "--ignored",
                "--test-threads=1",
            ])
            .output()
            .expect("it starts again");
        let told = String::from_utf8_lossy(&alone.stdout);
        assert!(alone.status.success() && told.contains("1 passed"), "{told}");
    }

    #[test]
    #[ignore = "run by the test above, alone in a process"]
    fn alone_in_its_process() {
        const KEPT: usize = 1 << 20;
        let (made, growth) = growth(|| {
            drop(std::hint::black_box(vec![1_u8; 4 * KEPT]));
            vec![1_u8; KEPT]
        });
        assert_eq!(made.len(), KEPT);
        assert!((1.0..1.1).contains(&(growth.kept / 1_048_576.0)), "{growth:?}");
        assert!((4.0..4.1).contains(&(growth.peak / 1_048_576.0)), "{growth:?}");
    }
}
