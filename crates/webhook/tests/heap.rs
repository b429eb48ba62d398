//! What hostile bodies cost in memory, counted by the allocator: at most ten times the largest body, whatever they hold.

use flotilla_admission::Nothing;
use flotilla_webhook::review::{Hook, answer};
use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const BODY_BYTES: usize = 8 << 20;

/// A review whose largest body is to this part pieces, and one long text for the rest.
fn review(kind: &str, before: &str, piece: &str, after: &str, part: f64) -> Vec<u8> {
    let head = format!(
        r#"{{"apiVersion":"{kind}","kind":"{}","request":{{"uid":"u","#,
        kind_of(kind)
    );
    let rest = format!("{after}}}}}");
    let room = BODY_BYTES - head.len() - before.len() - rest.len() - 3;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss
    )] // A part of some millions.
    let pieces = ((room as f64 * part) as usize) / (piece.len() + 1);
    let text = "x".repeat(room - pieces * (piece.len() + 1));
    let body = format!("{head}{before}{}\"{text}\"{rest}", format!("{piece},").repeat(pieces));
    assert_eq!(body.len(), BODY_BYTES - 1);
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
        "{}",
        &long,
        r#"{"name":"A","value":"b"}"#,
        set,
    ];
    let mut answered = 0;
    for piece in pieces {
        for part in [1.0, 0.5, 0.2, 0.1, 0.05] {
            let pod = review("admission.k8s.io/v1", pod, piece, "]}", part);
            let sets = review("apiextensions.k8s.io/v1", sets, piece, "]", part);
            for (hook, body) in [(Hook::MutatePods, pod), (Hook::Convert, sets)] {
                let (bytes, is_answered) = cost(hook, &body);
                let piece = &piece[..piece.len().min(40)];
                println!(
                    "{part} of {hook:?} is {piece}: {} MiB, answered: {is_answered}",
                    bytes >> 20
                );
                assert!(bytes <= 10 * BODY_BYTES, "{part} of {hook:?} is {piece}: {bytes} bytes");
                answered += usize::from(is_answered);
            }
        }
    }
    assert!(
        answered > 20,
        "{answered}: what is not answered costs nothing, and shows nothing"
    );
}
