//! Tables: given pods like these, expect these commands and these waits; and properties over random sets. Tests carry the ids of the
//! rules that they show (`docs/spec`). The known defects of the implementation that this one replaces stand with the rules that mend them:
//!
//! | module | rules | defects |
//! |---|---|---|
//! | [`in_place`] | CS-12.6, CS-16.7, CS-19.3; STS-4.1, STS-4.3, STS-4.6, STS-4.8 | |
//! | [`needs`] | R-27 | #892, pods that wait for a manager to get ready |
//! | [`vectors`] | CS-13.2 to CS-13.13 | #1478, #1741, #1442, #286, #1666, #2369, #263, #376, #412, #410, #261, OnDelete's budget and surge, budgets of broken pods, stalled brakes |
//! | [`races`] | CS-9, CS-10, STS-4.3, STS-4.6 | #1765, #2473, #2528, #418, #463, #2274, #2276 |
//! | [`scaling`] | CS-11, CS-14, CS-15, CS-18 | #1099, #1433, #313, #1872, #925, #947, #892, repeated events |
//! | [`updating`] | CS-12.3, CS-16, CS-17, CS-19 | #1536, #1485, #1156, #676, #2177, #632, repeated marks |
//! | [`status`] | CS-12, CS-21 | #1545, #1549, #1153, deadlines that begin in the past, conditions and collisions that are not stored |
//! | [`births`] | CS-14.1, CS-14.3; STS-8.5 | pods that are made and deleted, or end, without end |
//! | [`copies`] | CS-14.7, CS-15.4, CS-15.5 | copies of pods, labels that were taken off |
//! | [`marks`] | CS-12.6; STS-1.4.2 | pods that are made again for a label that a webhook changed |
//! | [`surge`] | CS-13.5, CS-13.6, CS-13.9, CS-13.11, CS-15.5 | claims that a surge costs, broken pods that are kept, young pods that go without a budget |
//! | [`histories`] | CS-13.8, CS-13.9, CS-13.12, CS-15.5 | what pods have stored that goes for the empty claims of a surge |
//! | [`properties`] | CS-13.12 | |

mod births;
mod claims;
mod copies;
mod gates;
mod histories;
mod in_place;
mod marks;
mod needs;
mod properties;
mod races;
mod scaling;
mod status;
mod surge;
mod updating;
mod vectors;

use crate::testing::{Cluster, NOW, PodFixture, container_status, pod};
use flotilla_api::names;
use flotilla_model::decision::{Command, Report};
use flotilla_model::{Decision, Resource};
use std::sync::Arc;

/// The `n`th pod of a set: `web-b0000`.
fn name(n: usize) -> String {
    format!("web-b{n:04}")
}

/// Pods in the words of the table of CS-13.13: `3o 2nx 1d!`. Old or new; `y` ready but young, `x` not ready, `!` asked for, `d` waiting
/// for its hook, `i` can go in place.
fn pods(mut cluster: Cluster, words: &str) -> Cluster {
    let mut n = cluster.own_pods.len();
    for word in words.split_whitespace() {
        let digits = word.len() - word.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let count: usize = word[..digits].parse().expect("a number of pods");
        for _ in 0..count {
            cluster = cluster.pod(one(&name(n), &word[digits..]));
            n += 1;
        }
    }
    cluster
}

fn one(name: &str, marks: &str) -> PodFixture {
    let revision = if marks.contains('n') { "web-new" } else { "web-old" };
    let id = name.rsplit_once('-').expect("an id").1.to_owned();
    let mut fixture = pod(name)
        .revision(revision)
        .label(names::INSTANCE_ID_LABEL, &id)
        .label(names::TEMPLATE_HASH_LABEL, &revision["web-".len()..])
        .detailed(|d| {
            let image = if marks.contains('n') { "v2" } else { "v1" };
            Arc::make_mut(&mut d.spec).containers[0].image = image.into();
            d.statuses = Box::new([Some(container_status(image))]);
        });
    for mark in marks.chars() {
        fixture = match mark {
            'x' => fixture.unready_since(NOW - 3600),
            'y' => fixture.ready_since(NOW - 1),
            '!' => fixture.label(names::SPECIFIED_DELETE_LABEL, "1"),
            'd' => fixture
                .label(names::LIFECYCLE_STATE_LABEL, "PreparingDelete")
                .label("hold", "yes"),
            _ => fixture,
        };
    }
    fixture
}

/// What a decision does to pods, as numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Done {
    created: usize,
    created_old: usize,
    specified: usize,
    surplus: usize,
    surplus_old: usize,
    updated: usize,
    went_back: usize,
}

fn done(cluster: &Cluster, decision: &Decision) -> Done {
    let mut done = Done::default();
    for command in decision.commands().map(|c| &c.command) {
        let pod = cluster.pods.get(command.key().name.as_str());
        match command {
            Command::Create {
                resource: Resource::Pods,
                body,
                ..
            } => {
                done.created += 1;
                let body = body.render();
                done.created_old += usize::from(body["metadata"]["labels"][names::REVISION_LABEL] == "web-old");
            }
            Command::Delete {
                resource: Resource::Pods,
                ..
            } => {
                let pod = pod.expect("a pod that is there");
                if pod.label(names::SPECIFIED_DELETE_LABEL).is_some() {
                    done.specified += 1;
                } else {
                    done.surplus += 1;
                    done.surplus_old += usize::from(pod.revision() == Some("web-old"));
                }
            }
            Command::Patch {
                resource: Resource::Pods,
                report: Report::ReCreate | Report::InPlace,
                ..
            } => {
                let is_new = pod.is_some_and(|pod| pod.revision() == Some("web-new"));
                done.updated += usize::from(!is_new);
                done.went_back += usize::from(is_new);
            }
            _ => {}
        }
    }
    done
}

/// Commands in short form, with the stage in which they are.
fn said(decision: &Decision) -> Vec<String> {
    let stages = decision.stages.iter();
    let all = stages.flat_map(|stage| stage.commands.iter().map(move |c| (stage.name, &c.command)));
    let word = |(stage, command): (&str, &Command)| {
        let (kind, name) = (command.resource().kind(), &command.key().name);
        let sign = match command {
            Command::Create { .. } => '+',
            Command::Patch { .. } => '~',
            Command::Delete { .. } => '-',
            Command::Read { .. } => '?',
            Command::Try { .. } => '!',
        };
        format!("{stage}: {sign}{kind} {name}")
    };
    all.map(word).collect()
}
