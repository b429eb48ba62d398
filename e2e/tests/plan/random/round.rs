//! What comes by turns and not by chance, so that few seeds hold all that matters: the kind, the trouble, and the first change.
//!
//! Each has a round of its own. Their lengths have no divisor in common, so that with time each kind meets each trouble and each change. Every
//! other seed changes to a template that cannot come up, and no round is longer than 25: 50 seeds in a row go through all of them.

use super::draw::{Case, Change, Kind, Scarce, Trouble};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::ops::Range;

/// Every kind.
const KINDS: [Kind; 3] = [Kind::Native, Kind::Advanced, Kind::Clone];
/// Templates that can come up; images most, as people change these most.
const CAN: [Change; 13] = [
    Change::Image,
    Change::Label,
    Change::Cpu,
    Change::Image,
    Change::Misspelt,
    Change::Scale(0),
    Change::Image,
    Change::Storage,
    Change::Partition(0),
    Change::Image,
    Change::Scale(0),
    Change::Delete,
    Change::Image,
];
/// Templates that cannot.
pub(super) const CANNOT: [Change; 14] = [
    Change::BrokenImage,
    Change::NoPriority,
    Change::NoRoom,
    Change::NeverReady,
    Change::NoClaim,
    Change::NoNode,
    Change::NoStorageClass,
    Change::BrokenImage,
    Change::NoAccount,
    Change::NoRuntime,
    Change::NeverReady,
    Change::NoVolume,
    Change::NoConfigMap,
    Change::NoSecret,
];
/// Troubles; quotas and lost nodes most, since most of what a plan has to know is about these.
const TROUBLES: [Trouble; 23] = [
    Trouble::None,
    Trouble::NodeLost(0),
    Trouble::Quota(Scarce::Cpu, 0),
    Trouble::PodCrashes,
    Trouble::NodeLost(0),
    Trouble::Quota(Scarce::Storage, 0),
    Trouble::CpuLimited,
    Trouble::PodHeld,
    Trouble::NodeLost(0),
    Trouble::Quota(Scarce::Pods, 0),
    Trouble::Denied,
    Trouble::PodCrashes,
    Trouble::Quota(Scarce::Cpu, 0),
    Trouble::NodeLost(0),
    Trouble::StorageLimited,
    Trouble::PodHeld,
    Trouble::RoomTaken(0),
    Trouble::Quota(Scarce::Claims, 0),
    Trouble::NodeLost(0),
    Trouble::CpuGiven(0),
    Trouble::PodCrashes,
    Trouble::Quota(Scarce::Storage, 0),
    Trouble::None,
];

/// Whose turn it is with a seed. The numbers in it are left to chance.
pub(super) struct Turn {
    pub(super) kind: Kind,
    pub(super) trouble: Trouble,
    pub(super) change: Change,
}

impl Turn {
    pub(super) fn of(seed: u64) -> Self {
        let half = seed / 2;
        let trouble = in_turn(&TROUBLES, seed);
        let change = if seed.is_multiple_of(2) {
            in_turn(&CAN, half)
        } else {
            in_turn(&CANNOT, half)
        };
        // Else what is scarce would rarely be what the change asks for more of. Images come often enough without these.
        let change = match change {
            Change::Image if is_about_cpu(trouble) => Change::Cpu,
            Change::Image if is_about_storage(trouble) => Change::Storage,
            change => change,
        };
        let kind = match (change, in_turn(&KINDS, seed)) {
            // Other kinds cannot change what claims ask for.
            (Change::Storage, _) => Kind::Advanced,
            // The API server refuses it of native sets where it is asked to be strict, and else leaves it out.
            (Change::Misspelt, Kind::Native) => in_turn(&[Kind::Clone, Kind::Advanced], half),
            (_, kind) => kind,
        };
        Turn { kind, trouble, change }
    }
}

fn in_turn<T: Copy>(all: &[T], turn: u64) -> T {
    let turn = usize::try_from(turn).expect("seeds are small");
    all[turn % all.len()]
}

/// Whether pods that ask for more cpu may meet it.
fn is_about_cpu(trouble: Trouble) -> bool {
    matches!(
        trouble,
        Trouble::CpuLimited | Trouble::CpuGiven(_) | Trouble::Quota(Scarce::Cpu, _)
    )
}

/// Whether claims that ask for more storage may meet it.
fn is_about_storage(trouble: Trouble) -> bool {
    matches!(trouble, Trouble::StorageLimited | Trouble::Quota(Scarce::Storage, _))
}

/// All that seeds in a row are to hold, in words that stand for nothing else.
const ALL: [&str; 36] = [
    "Native",
    "Advanced",
    "Clone",
    "Image",
    "BrokenImage",
    "Label",
    "Cpu",
    "Storage",
    "NoRoom",
    "NoNode",
    "NoAccount",
    "NoClaim",
    "NoStorageClass",
    "NoPriority",
    "NoRuntime",
    "NoVolume",
    "NoConfigMap",
    "NoSecret",
    "NeverReady",
    "Scale",
    "Partition",
    "Misspelt",
    "Delete",
    "None",
    "PodCrashes",
    "PodHeld",
    "NodeLost",
    "RoomTaken",
    "Quota(Pods",
    "Quota(Claims",
    "Quota(Storage",
    "Quota(Cpu",
    "CpuGiven",
    "CpuLimited",
    "StorageLimited",
    "Denied",
];

/// The name of what was drawn, without its number.
fn word(drawn: &impl Debug) -> String {
    let words = format!("{drawn:?}");
    words.trim_end_matches(|c: char| !c.is_alphabetic()).to_owned()
}

/// Seeds in a row hold all that matters, and of each kind only what is possible for it.
pub(super) fn hold_all(seeds: &Range<u64>) {
    let cases: Vec<Case> = seeds.clone().map(Case::draw).collect();
    let words = |case: &Case| [word(&case.kind), word(&case.trouble), word(&case.changes[0])];
    let met: BTreeSet<String> = cases.iter().flat_map(words).collect();
    let all: BTreeSet<String> = ALL.map(str::to_owned).into();
    assert_eq!(met, all, "what the seeds {seeds:?} draw, and all that there is");
    let cannot = cases.iter().filter(|case| !case.can_come_up()).count();
    assert_eq!(2 * cannot, cases.len(), "half of {seeds:?} cannot come up");
    for case in &cases {
        match case.changes[0] {
            Change::Storage => assert_eq!(case.kind, Kind::Advanced, "{case:?}"),
            Change::Misspelt => assert_ne!(case.kind, Kind::Native, "{case:?}"),
            _ => {}
        }
        assert!(case.trouble != Trouble::PodCrashes || case.replicas > 1, "{case:?}");
    }
}

/// Seeds in a row hold changes that ask for more of what is scarce, and the misspelt field on each kind that stores it.
pub(super) fn hold_pairs(seeds: &Range<u64>) {
    let cases: Vec<Case> = seeds.clone().map(Case::draw).collect();
    let is_drawn = |is_it: &dyn Fn(&Case) -> bool| cases.iter().any(is_it);
    let asks_for_cpu = |case: &Case| case.changes[0] == Change::Cpu && is_about_cpu(case.trouble);
    assert!(is_drawn(&asks_for_cpu), "{seeds:?}");
    let asks_for_storage = |case: &Case| case.changes[0] == Change::Storage && is_about_storage(case.trouble);
    assert!(is_drawn(&asks_for_storage), "{seeds:?}");
    for kind in [Kind::Advanced, Kind::Clone] {
        let is_misspelt = |case: &Case| case.changes[0] == Change::Misspelt && case.kind == kind;
        assert!(is_drawn(&is_misspelt), "{kind:?} in {seeds:?}");
    }
}
