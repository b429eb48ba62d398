//! What a pod costs in memory: as a record in the engine's cache, and as a typed object, which is what controllers usually keep.

use crate::corpus::{Corpus, Pods};
use crate::figure::{Bar, Figure, Unit};
use crate::heap::growth;
use flotilla_engine::core::cache::Cache;
use flotilla_engine::core::store::Source;
use flotilla_engine::wire::{self, Encoding, split_list};
use flotilla_model::Resource;
use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;

/// Most bytes that a cached pod may take.
const BAR_BYTES: f64 = 300.0;

/// Fills a cache, and a list of typed pods, from the same list.
pub(crate) fn measure(corpus: &Corpus) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (what, pods) in [
        ("pods in 50 sets, with claims", &corpus.many),
        ("pods in one set", &corpus.one),
    ] {
        let (cache, ours) = growth(|| fill(pods));
        let count = cache.sizes(Resource::Pods).0;
        let (typed, whole) = growth(|| decode_typed(pods));
        let (_, lean) = growth(|| decode_lean(pods));
        assert_eq!(count, typed.items.len(), "both hold the same pods");
        #[allow(clippy::cast_precision_loss)] // Thousands.
        let each = |bytes: f64| bytes / count as f64;
        let figure = |peer, bar| Figure {
            what: format!("bytes per cached pod, {count} {what}"),
            unit: Unit::Bytes,
            ours: each(ours.kept),
            peer,
            bar,
        };
        figures.push(figure(("typed Pod", each(whole.kept)), Bar::Below(BAR_BYTES)));
        figures.push(figure(("typed Pod, managedFields dropped", each(lean.kept)), Bar::None));
    }
    figures
}

/// The cache after this list, as the manager fills it.
fn fill(pods: &Pods) -> Cache {
    let list = split_list(Encoding::Protobuf, &pods.protobuf).expect("the server's list can be split");
    let mut cache = Cache::default();
    cache.begin_list(Resource::Pods);
    for item in &list.items {
        let pod = wire::decode(Resource::Pods, Encoding::Protobuf, item, &mut cache.interner).expect("a pod");
        cache.apply(pod, Source::List);
    }
    let gone = cache.end_list(Resource::Pods, list.resource_version);
    assert!(gone.is_empty(), "a list names what it holds");
    cache
}

/// The same list as typed pods.
pub(crate) fn decode_typed(pods: &Pods) -> List<Pod> {
    serde_json::from_slice(&pods.json).expect("the server's list fits the types")
}

/// Typed pods without what some controllers drop on arrival.
fn decode_lean(pods: &Pods) -> List<Pod> {
    let mut list = decode_typed(pods);
    for pod in &mut list.items {
        pod.metadata.managed_fields = None;
    }
    list
}
