//! Opt-in switches: annotations that turn something on for one workload. Absent means off; a value that does not parse is refused.

use crate::json::{at, text};
use crate::validation::{Problems, Reach};
use flotilla_api::names;
use flotilla_apimachinery::field::Fault;
use flotilla_apimachinery::names as syntax;
use flotilla_model::IntOrPercent;
use serde_json::Value;
use std::collections::BTreeSet;

/// What a switch may hold.
#[derive(Clone, Copy, Debug)]
enum Holds {
    /// One of these words.
    Word(&'static [&'static str]),
    /// A number of at least this.
    Number(u32),
    /// A number of pods of at least 1, or a percentage.
    Budget,
    /// Names of containers, separated by commas.
    Containers,
    /// The name of a cluster-scoped object.
    Name,
}

/// Switches of both kinds of StatefulSet.
const STATEFULSET: &[(&str, Holds)] = &[
    (names::UNBLOCK, Holds::Word(&["broken-first"])),
    (names::UNBLOCK_AFTER_SECONDS, Holds::Number(0)),
    (names::ORDERED_MAX_UNAVAILABLE, Holds::Budget),
    (names::SKIP_UNREACHABLE, Holds::Word(&["true"])),
    (names::PAUSED_KEEPS_REVISION, Holds::Word(&["true"])),
    (names::UPDATE_TYPE, Holds::Word(&["Recreate"])),
    (names::SCALE_DOWN, Holds::Word(&["ignore-unhealthy"])),
    (names::IN_PLACE_DEADLINE_SECONDS, Holds::Number(1)),
    (names::IN_PLACE_DEADLINE_ACTION, Holds::Word(&["report", "recreate"])),
    (names::KEEP_READY_CONTAINERS, Holds::Containers),
    (names::RESIZE_WAIT_SECONDS, Holds::Number(0)),
    (names::PRE_DOWNLOAD_RECREATE, Holds::Word(&["true"])),
    (names::NODE_FAILURE_POLICY, Holds::Name),
    (names::CLAIM_LABELS, Holds::Word(&["propagate"])),
];

/// Switches of CloneSets.
const CLONESET: &[(&str, Holds)] = &[
    (names::PARTITION_ROLLBACK, Holds::Word(&["true"])),
    (names::SURGE_IN_PLACE, Holds::Word(&["true"])),
    (names::RECREATE_ON_CLAIM_CHANGE, Holds::Word(&["true"])),
    (names::KEEP_CLAIMS_ON_RECREATE, Holds::Word(&["true"])),
    (names::ADOPT_ORPHANS, Holds::Word(&["true"])),
    (names::FINISHED_PODS, Holds::Word(&["keep", "delete"])),
    (names::PRE_DOWNLOAD_RECREATE, Holds::Word(&["true"])),
    (names::IN_PLACE_DEADLINE_SECONDS, Holds::Number(1)),
    (names::IN_PLACE_DEADLINE_ACTION, Holds::Word(&["report", "recreate"])),
    (names::KEEP_READY_CONTAINERS, Holds::Containers),
    (names::RESIZE_WAIT_SECONDS, Holds::Number(0)),
];

impl Holds {
    fn allows(self, value: &str) -> bool {
        match self {
            Holds::Word(words) => words.contains(&value),
            Holds::Number(least) => value.parse::<u32>().is_ok_and(|n| n >= least),
            Holds::Budget => {
                let number = value.parse::<i32>().map_or_else(|_| Value::from(value), Value::from);
                matches!(
                    IntOrPercent::from_json(&number),
                    Some(IntOrPercent::Int(1..) | IntOrPercent::Percent(0..=100))
                )
            }
            Holds::Containers => value.split(',').all(|name| syntax::dns_label(name.trim()).is_empty()),
            Holds::Name => syntax::dns_subdomain(value).is_empty(),
        }
    }

    fn rule(self) -> String {
        match self {
            Holds::Word([word]) => format!("must be {word}; without the annotation it is off"),
            Holds::Word(words) => format!("must be {}", words.join(" or ")),
            Holds::Number(least) => format!("must be a number of seconds, {least} or more"),
            Holds::Budget => "must be a number of at least 1 or a percentage up to 100%".to_owned(),
            Holds::Containers => "must be names of containers, separated by commas".to_owned(),
            Holds::Name => "must be the name of an object".to_owned(),
        }
    }
}

/// Finds switches of a StatefulSet that cannot be read.
pub(crate) fn check_statefulset(set: &Value, problems: &mut Problems) {
    check(STATEFULSET, set, problems);
}

/// Finds switches of a CloneSet that cannot be read.
pub(crate) fn check_cloneset(set: &Value, problems: &mut Problems) {
    check(CLONESET, set, problems);
}

fn check(table: &[(&str, Holds)], object: &Value, problems: &mut Problems) {
    let Some(annotations) = at(object, &["metadata", "annotations"]) else {
        return;
    };
    for (key, holds) in table {
        let Some(value) = at(annotations, &[key]) else { continue };
        if !value.as_str().is_some_and(|value| holds.allows(value)) {
            let path = format!("metadata.annotations[{key}]");
            problems.add(Reach::Field, Fault::Invalid, path, value, holds.rule());
        }
    }
}

/// Containers that [`names::KEEP_READY_CONTAINERS`] names and that the template does not have.
pub(crate) fn unknown_containers(set: &Value) -> Vec<String> {
    let named = crate::json::annotation(set, names::KEEP_READY_CONTAINERS).unwrap_or_default();
    let containers = crate::json::list(set, &["spec", "template", "spec", "containers"]);
    // A set: as many names as containers, and whoever sends reviews chooses how many, would cost their product.
    let known: BTreeSet<&str> = containers.iter().map(|c| text(c, &["name"])).collect();
    let named = named.split(',').map(str::trim);
    let unknown: BTreeSet<&str> = named.filter(|name| !name.is_empty() && !known.contains(name)).collect();
    unknown.into_iter().map(str::to_owned).collect()
}
