//! Reading a list of pods: protobuf into records, and JSON into typed objects.

use crate::corpus::{Corpus, Pods};
use crate::figure::{Bar, Figure, Unit, median};
use crate::heap::growth;
use crate::memory::decode_typed;
use flotilla_e2e::clock;
use flotilla_engine::wire::{self, Encoding, Object, split_list};
use flotilla_model::{Interner, Resource};
use std::hint::black_box;

/// Times each side decodes the list.
const REPEATS: usize = 31;

/// Decodes the same pods both ways, in turn.
pub(crate) fn measure(corpus: &Corpus) -> Vec<Figure> {
    let pods = &corpus.many;
    let (ours, theirs): (Vec<f64>, Vec<f64>) = (0..REPEATS)
        .map(|_| (time(|| decode(pods)), time(|| decode_typed(pods))))
        .unzip();
    let (records, our_heap) = growth(|| decode(pods));
    let (typed, their_heap) = growth(|| decode_typed(pods));
    assert_eq!(records.1.len(), typed.items.len(), "both hold the same pods");
    let what = format!("decoding a list of {} pods", typed.items.len());
    let figure = |what: String, unit, ours, theirs| Figure {
        what,
        unit,
        ours,
        peer: ("JSON into typed Pods", theirs),
        bar: Bar::None,
    };
    #[allow(clippy::cast_precision_loss)] // Megabytes.
    let sizes = (pods.protobuf.len() as f64 / MB, pods.json.len() as f64 / MB);
    vec![
        figure(
            format!("{what}: time, median"),
            Unit::Milliseconds,
            median(ours),
            median(theirs),
        ),
        figure(
            format!("{what}: peak of the heap"),
            Unit::Megabytes,
            our_heap.peak / MB,
            their_heap.peak / MB,
        ),
        figure(format!("{what}: bytes on the wire"), Unit::Megabytes, sizes.0, sizes.1),
    ]
}

const MB: f64 = 1e6;

/// The records of a list, and what they share.
fn decode(pods: &Pods) -> (Interner, Vec<Object>) {
    let mut interner = Interner::new();
    let list = split_list(Encoding::Protobuf, &pods.protobuf).expect("the server's list can be split");
    let items = list.items.iter();
    let decoded =
        items.map(|item| wire::decode(Resource::Pods, Encoding::Protobuf, item, &mut interner).expect("a pod"));
    let records = decoded.collect();
    (interner, records)
}

/// How long making something takes, in milliseconds; dropping it is not counted.
fn time<T>(make: impl FnOnce() -> T) -> f64 {
    let begun = clock::now();
    let result = black_box(make());
    let taken = begun.elapsed();
    drop(result);
    taken.as_secs_f64() * 1e3
}
