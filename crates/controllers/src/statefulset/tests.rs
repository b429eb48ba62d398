//! Tables: given a cluster like this, expect these commands and these waits; and properties over random clusters. Tests carry the
//! numbers of the rules that they show; these are the corrections of upstream's behaviour and the known problems, by module:
//!
//! | module | corrections | known problems |
//! |---|---|---|
//! | [`revisions`] | 1.1.2, 1.1.5 (collisions), 1.1.6, 1.1.7, 1.1.8 | 8.6 (record of claim templates), 8.19 (history limit) |
//! | [`claiming`] | 1.2.4, 1.3.4, 1.6, 1.8 (no second deletion) | 8.10 (claims that go) |
//! | [`storage`] | 1.4.1, 1.4.4, 2.3 step 8, 3.9 | 8.6, 8.10, 8.14 (owners) |
//! | [`retention`] | 1.4.4 (claims of old templates, claims without a pod) | |
//! | [`growth`] | 3.9 (file systems, by policy; growth taken back) | |
//! | [`claim_changes`] | ruling 11 | 8.6 (claims before pods, records) |
//! | [`changed_by_others`] | 1.4.2 (what webhooks change) | 8.6 |
//! | [`replica_phase`] | 1.5, 1.7 (exact wake-ups), 3.4, 3.5, 3.6 | 8.14, 8.19 (ranges) |
//! | [`update_phase`] | 3.2 (priorities), 3.6, 3.7, 3.8, special pods | 8.2, 8.19 (weights) |
//! | [`status`] | 3.2 (status defects), 3.10 | 8.7, 8.15, 8.16, 8.17 |
//! | [`switches`] | 3.6 (paused), every opt-in annotation | 8.1, 8.3, 8.4 |
//! | [`known_problems`] | 7.2 (defaults on reading) | 8.1, 8.2, 8.5, 8.8, 8.9, 8.10, 8.14, 8.19 |
//! | [`trial`] | ruling 31 | |
//! | [`sizes`] | ruling 26 | |
//! | [`waits`] | every cause that `flotilla why` answers | |
//! | [`in_place`] | 4.1 to 4.7 | 8.12, 8.18, 8.19 |
//! | [`lifecycle`] | 3.5, 3.8, 4.2, 4.8 | 8.4, 8.13 |
//! | [`in_place_properties`] | invariants 2, 4, 8 and 9 of updates in place | |
//! | [`properties`] | invariants 1 to 5, 8, 12 | |
//! | [`template_properties`] | invariants 6, 7, 11 | |
//!
//! Rules that concern one function stand with it: spelling and hashes (1.1.2, 1.1.3, 1.1.6), ordinals (3.4, invariant 5), reading with
//! defaults (7.2) and back-off (1.7, 8.5) in the model; names (1.3), owners of claims (1.4.4), order of priorities (3.2) and budgets
//! (3.7) in `shared`; name lengths (1.1.9, 8.16) with the rules of the resource definition.

mod cases;
mod changed_by_others;
mod claim_changes;
mod claiming;
mod growth;
mod in_place;
mod in_place_properties;
mod known_problems;
mod kubelet;
mod lifecycle;
mod odd;
mod properties;
mod replica_phase;
mod retention;
mod revisions;
mod sizes;
mod status;
mod storage;
mod switches;
mod template_properties;
mod trial;
mod update_phase;
mod waits;
mod world;

use crate::testing::{Cluster, NOW, at};
use flotilla_model::{Failure, Report, Scope};

/// The cluster, after the API server refused a command of this scope a moment ago.
fn refused(mut cluster: Cluster, scope: Scope, attempt: Report, reason: &str) -> Cluster {
    let failure = Failure::follow(None, attempt, reason.to_owned(), "it says why".to_owned(), at(NOW));
    cluster.hints.failures.insert(scope, failure);
    cluster
}
