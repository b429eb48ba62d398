//! The simulator itself: that it repeats what it did, holds what it held, and finds what was planted.

use clap::ValueEnum as _;
use flotilla_faultsim::clones::defect::CloneDefect;
use flotilla_faultsim::defect::Defect;
use flotilla_faultsim::schedule::FaultKind;
use flotilla_faultsim::search::{Found, Search, verdict};
use flotilla_faultsim::{Options, Schedule, Wanted, run};
use flotilla_model::SetKind;
use std::collections::BTreeSet;

/// Seeds tried here; `cargo xtask sim` tries as many as it is asked to.
const SEEDS: u64 = 150;

fn schedule(seed: u64) -> Schedule {
    Schedule::of_seed(seed, &Wanted::default())
}

#[test]
fn the_same_seed_gives_the_same_run_to_the_letter() {
    let options = Options {
        trace: true,
        ..Options::default()
    };
    for seed in 0..8 {
        let first = run(&schedule(seed), options);
        assert!(first.trace.len() > 50, "seed {seed}: {} lines", first.trace.len());
        assert_eq!(first.trace, run(&schedule(seed), options).trace, "seed {seed}");
    }
}

#[test]
fn the_first_seeds_hold() {
    for seed in 0..SEEDS {
        let (violation, writes) = verdict(&schedule(seed), Options::default());
        assert_eq!(violation, None, "cargo xtask sim --seed {seed}");
        assert!(writes > 3, "seed {seed}: something has happened");
    }
}

#[test]
fn every_kind_of_fault_comes_and_holds_alone() {
    for kind in FaultKind::ALL.iter().chain(&[FaultKind::None]) {
        let wanted = Wanted {
            faults: vec![*kind],
            ..Wanted::default()
        };
        for seed in 0..10 {
            let schedule = Schedule::of_seed(seed, &wanted);
            assert_eq!(schedule.items.len() > 1, *kind != FaultKind::None, "{kind:?}");
            assert_eq!(
                verdict(&schedule, Options::default()).0,
                None,
                "--fault {kind:?} --seed {seed}"
            );
        }
    }
}

#[test]
fn updates_in_place_hold_alone_and_do_happen() {
    let wanted = Wanted {
        faults: vec![FaultKind::InPlace],
        ..Wanted::default()
    };
    let options = Options {
        trace: true,
        ..Options::default()
    };
    let mut patches = 0;
    for seed in 0..10 {
        let outcome = run(&Schedule::of_seed(seed, &wanted), options);
        assert_eq!(outcome.violation, None, "--fault in-place --seed {seed}");
        patches += outcome
            .trace
            .iter()
            .filter(|line| line.contains("containers/0/image"))
            .count();
    }
    assert!(patches > 10, "{patches} patches of images");
}

/// Rows of a table of README.md, as their cells.
fn table(heading: &str) -> Vec<Vec<String>> {
    let text = include_str!("../README.md");
    let part = text.split(heading).nth(1).unwrap_or_default();
    let lines = part
        .lines()
        .skip_while(|l| !l.starts_with('|'))
        .take_while(|l| l.starts_with('|'));
    lines
        .skip(2)
        .map(|line| {
            line.trim_matches('|')
                .split(" | ")
                .map(|cell| cell.trim().to_owned())
                .collect()
        })
        .collect()
}

#[test]
fn the_table_of_planted_defects_is_true() {
    let rows = table("## Does it find bugs?");
    let mut named = BTreeSet::new();
    for row in &rows {
        let name = row[0].trim_matches('`');
        let defect = Defect::from_str(name, false).expect("a defect of this name");
        let seed: u64 = row[2].parse().expect("a seed");
        let options = Options {
            defect: Some(defect),
            ..Options::default()
        };
        let (violation, _) = verdict(&schedule(seed), options);
        let violation = violation.unwrap_or_else(|| panic!("{name}: seed {seed} finds nothing"));
        assert!(row[4].contains(violation.rule), "{name}: {violation}");
        assert_eq!(
            verdict(&schedule(seed), Options::default()).0,
            None,
            "{name}: seed {seed} without it"
        );
        named.insert(name.to_owned());
    }
    assert_eq!(named.len(), Defect::ALL.len(), "every defect has its row");
}

#[test]
fn a_violation_shrinks_to_what_it_needs() {
    let search = Search {
        options: Options {
            defect: Some(Defect::PromoteEarly),
            ..Options::default()
        },
        ..Search::default()
    };
    let found: Vec<Found> = search.run(0..200, &flotilla_faultsim::search::Progress::default());
    let shrunk = search.shrink(&found[0]);
    let whole = schedule(found[0].seed);
    // The rollout.
    assert_eq!(shrunk.items.len(), 1, "{shrunk:?} of {}", whole.items.len());
    let smaller = whole.with_items(&shrunk.items);
    assert_eq!(
        verdict(&smaller, search.options).0.map(|v| v.rule),
        Some(found[0].violation.rule)
    );
}

#[test]
fn what_was_found_stays_mended() {
    let rows = table("## What it found");
    assert!(rows.len() > 15, "{} rows", rows.len());
    for row in rows {
        let (seed, faults) = row[0].split_once(' ').unwrap_or((&row[0], ""));
        let named = |kind: &&FaultKind| {
            let name = kind.to_possible_value().expect("a name");
            faults.contains(&format!("--fault {}", name.get_name()))
        };
        let wanted = Wanted {
            faults: FaultKind::ALL.iter().filter(named).copied().collect(),
            ..Wanted::default()
        };
        let schedule = Schedule::of_seed(seed.parse().expect("a seed"), &wanted);
        let (violation, _) = verdict(&schedule, Options::default());
        assert_eq!(violation, None, "cargo xtask sim --seed {}", row[0]);
    }
}

/// Seeds of CloneSets within which each planted defect is found, but those that need more.
const SEEDS_OF_CLONES: u64 = 60;
/// Defects that need more, with a seed of these faults, or of all, that finds them.
const RARE: [(CloneDefect, u64, &[FaultKind]); 2] = [
    (CloneDefect::SilentWait, 742, &[]),
    (
        CloneDefect::DeleteUntested,
        147,
        &[FaultKind::Lost, FaultKind::Nodes, FaultKind::Lag],
    ),
];

/// Seeds of CloneSets that once showed what was wrong, and not in the judge.
#[test]
fn what_was_found_with_clone_sets_stays_mended() {
    for seed in [324, 705] {
        let (violation, _) = verdict(&Schedule::of_seed(seed, &clones()), Options::default());
        assert_eq!(violation, None, "cargo xtask sim --kind clone --seed {seed}");
    }
}

#[test]
fn defects_of_the_shell_are_found_with_clone_sets() {
    for (defect, seed, rule) in [(Defect::NoOverlay, 2, "15.4 claims"), (Defect::NoFence, 35, "lease")] {
        let options = Options {
            defect: Some(defect),
            ..Options::default()
        };
        let (violation, _) = verdict(&Schedule::of_seed(seed, &clones()), options);
        assert_eq!(violation.map(|v| v.rule), Some(rule), "{defect:?}");
    }
}

fn clones() -> Wanted {
    Wanted {
        kind: Some(SetKind::Clone),
        ..Wanted::default()
    }
}

#[test]
fn clone_sets_hold() {
    for seed in 0..SEEDS_OF_CLONES {
        let (violation, writes) = verdict(&Schedule::of_seed(seed, &clones()), Options::default());
        assert_eq!(violation, None, "cargo xtask sim --kind clone --seed {seed}");
        assert!(writes > 3, "seed {seed}: something has happened");
    }
}

#[test]
fn each_planted_defect_of_clone_sets_is_found() {
    let finds = |defect, seed, faults: &[FaultKind]| {
        let options = Options {
            clone_defect: Some(defect),
            ..Options::default()
        };
        let wanted = Wanted {
            faults: faults.to_vec(),
            ..clones()
        };
        let schedule = Schedule::of_seed(seed, &wanted);
        let violation = verdict(&schedule, options).0?;
        assert_eq!(
            verdict(&schedule, Options::default()).0,
            None,
            "{defect:?}: seed {seed} without it"
        );
        Some((seed, violation))
    };
    for defect in CloneDefect::ALL {
        let rare = RARE.iter().find(|(rare, ..)| *rare == defect);
        let found = match rare {
            Some((_, seed, faults)) => finds(defect, *seed, faults),
            None => (0..SEEDS_OF_CLONES).find_map(|seed| finds(defect, seed, &[])),
        };
        let (seed, violation) = found.unwrap_or_else(|| panic!("{defect:?} is not found"));
        println!("{defect:?}: seed {seed}: {violation}");
    }
}
