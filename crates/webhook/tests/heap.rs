//! What hostile bodies cost in memory, counted by the allocator: at most ten times the largest body, whatever they hold.

use flotilla_admission::Nothing;
use flotilla_webhook::review::{Hook, answer};
use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const BODY_BYTES: usize = 8 << 20;

/// A review of this size, so many percent of which are pieces, and one long text the rest.
fn review(kind: &str, before: &str, piece: &str, after: &str, bytes: usize, percent: usize) -> Vec<u8> {
    let head = format!(
        r#"{{"apiVersion":"{kind}","kind":"{}","request":{{"uid":"u","#,
        kind_of(kind)
    );
    let rest = format!("{after}}}}}");
    let room = bytes - head.len() - before.len() - rest.len() - 2;
    let pieces = room * percent / 100 / (piece.len() + 1);
    let text = "x".repeat(room - pieces * (piece.len() + 1));
    let body = format!("{head}{before}{}\"{text}\"{rest}", format!("{piece},").repeat(pieces));
    assert_eq!(body.len(), bytes);
    body.into_bytes()
}

fn kind_of(api_version: &str) -> &'static str {
    if api_version.starts_with("admission") {
        "AdmissionReview"
    } else {
        "ConversionReview"
    }
}

/// Most memory held while a body is answered, and whether it was.
fn cost(hook: Hook, body: &[u8]) -> (usize, bool) {
    let before = HEAP.current_usage();
    HEAP.reset_peak_usage();
    let is_answered = answer(hook, body, &Nothing).is_ok();
    (HEAP.peak_usage() - before, is_answered)
}

#[test]
fn no_body_takes_more_than_ten_times_the_largest() {
    let pod = r#""kind":{"version":"v1","kind":"Pod"},"operation":"CREATE","namespace":"ns","name":"n","object":{"kind":"Pod","spec":["#;
    let sets = r#""desiredAPIVersion":"apps.kruise.io/v1beta1","objects":["#;
    let set = r#"{"apiVersion":"apps.kruise.io/v1alpha1","kind":"StatefulSet","metadata":{"name":"web"},"spec":{}}"#;
    let long = format!(r#""{}""#, "x".repeat(10_000));
    let pieces = [
        r#"{"":0}"#,
        "0",
        "[[0]]",
        r#""""#,
        r#"{"a":{"b":{"c":{}}}}"#,
        r#"{"":{"":{"":{"":{"":{"":{"":{"":0}}}}}}}}"#,
        "{}",
        &long,
        r#"{"name":"A","value":"b"}"#,
        set,
    ];
    // Large ones, and those that are just not large enough to be weighed.
    let whole = [100, 50, 20, 10, 5].map(|percent| (BODY_BYTES, percent));
    let small = [600, 650, 700, 800, 900].map(|kilobytes| (kilobytes * 1000, 100));
    let mut answered = 0;
    for piece in pieces {
        for (size, percent) in whole.into_iter().chain(small) {
            let pod = review("admission.k8s.io/v1", pod, piece, "]}", size, percent);
            let sets = review("apiextensions.k8s.io/v1", sets, piece, "]", size, percent);
            for (hook, body) in [(Hook::MutatePods, pod), (Hook::Convert, sets)] {
                let (bytes, is_answered) = cost(hook, &body);
                let piece = &piece[..piece.len().min(40)];
                let what = format!("{percent} % of {size} bytes for {hook:?} are {piece}");
                println!("{what}: {} MiB, answered: {is_answered}", bytes >> 20);
                assert!(bytes <= 10 * BODY_BYTES, "{what}: {bytes} bytes");
                answered += usize::from(is_answered);
            }
        }
    }
    assert!(
        answered > 100,
        "{answered}: what is not answered costs nothing, and shows nothing"
    );
}
