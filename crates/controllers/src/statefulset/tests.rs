//! Tables: given a cluster like this, expect these commands and these waits; and properties over random clusters. Tests carry the
//! ids of the rules that they show (`docs/spec`); these are the corrections of upstream's behaviour and the known problems, by module:
//!
//! | module | corrections | known problems |
//! |---|---|---|
//! | [`revisions`] | STS-1.1.2, STS-1.1.5 (collisions), STS-1.1.6, STS-1.1.7, STS-1.1.8 | STS-8.6 (records of claims), STS-8.19 (history limit) |
//! | [`claiming`] | STS-1.2.4, STS-1.3.4, STS-1.6, STS-1.8 (no second deletion) | STS-8.10 (claims that go) |
//! | [`storage`] | STS-1.4.1, STS-1.4.4, STS-2.3 step 8, STS-3.9 | STS-8.6, STS-8.10, STS-8.14 (owners) |
//! | [`retention`] | STS-1.4.4 (claims of old templates, claims without a pod) | |
//! | [`growth`] | STS-3.9 (file systems, by policy; growth taken back) | |
//! | [`claim_changes`] | R-11 | STS-8.6 (claims before pods, records) |
//! | [`changed_by_others`] | STS-1.4.2 (what webhooks change) | STS-8.6 |
//! | [`replica_phase`] | STS-1.5, STS-1.7 (exact wake-ups), STS-3.4, STS-3.5, STS-3.6 | STS-8.14, STS-8.19 (ranges) |
//! | [`update_phase`] | STS-3.2 (priorities), STS-3.6, STS-3.7, STS-3.8, special pods | STS-8.2, STS-8.19 (weights) |
//! | [`status`] | STS-3.2 (status defects), STS-3.10 | STS-8.7, STS-8.15, STS-8.16, STS-8.17 |
//! | [`switches`] | STS-3.6 (paused), every opt-in annotation | STS-8.1, STS-8.3, STS-8.4 |
//! | [`known_problems`] | STS-7.2 (defaults on reading) | STS-8.1, STS-8.2, STS-8.5, STS-8.8, STS-8.9, STS-8.10, STS-8.14, STS-8.19 |
//! | [`trial`] | R-31 | |
//! | [`sizes`] | R-26 | |
//! | [`waits`] | every cause that `flotilla why` answers | |
//! | [`in_place`] | STS-4.1 to STS-4.7 | STS-8.12, STS-8.18, STS-8.19 |
//! | [`lifecycle`] | STS-3.5, STS-3.8, STS-4.2, STS-4.8 | STS-8.4, STS-8.13 |
//! | [`in_place_properties`] | STS-I2, STS-I4, STS-I8 and STS-I9 | |
//! | [`properties`] | STS-I1 to STS-I5, STS-I8, STS-I12 | |
//! | [`template_properties`] | STS-I6, STS-I7, STS-I11 | |
//! | [`edits`] | STS-I2, STS-I8, STS-I12, R-31: edits in the midst of each other | |
//!
//! Rules that concern one function stand with it: spelling and hashes (STS-1.1.2, STS-1.1.3, STS-1.1.6), ordinals (STS-3.4, STS-I5), reading with
//! defaults (STS-7.2) and back-off (STS-1.7, STS-8.5) in the model; names (STS-1.3), owners of claims (STS-1.4.4), order of priorities (STS-3.2)
//! and budgets (STS-3.7) in `shared`; name lengths (STS-1.1.9, STS-8.16) with the rules of the resource definition.

mod cases;
mod changed_by_others;
mod claim_changes;
mod claiming;
mod edits;
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
