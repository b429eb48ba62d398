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
/// Seeds tried to find one that would do in place of a row that is not true any more.
const SEEDS_TRIED: u64 = 1_500;

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
            // Who waits for advice does nothing.
            let comes = !matches!(kind, FaultKind::Told | FaultKind::None);
            assert_eq!(schedule.items.len() > 1, comes, "{kind:?}");
            assert_eq!(
                verdict(&schedule, Options::default()).0,
                None,
                "--fault {kind:?} --seed {seed}"
            );
        }
    }
}

/// Users who mend nothing but what `why` tells them of come to the end, and do not where it says nothing or what does not help (STS-I12).
#[test]
fn whoever_does_what_is_advised_comes_to_the_end() {
    for kind in [SetKind::Native, SetKind::Advanced, SetKind::Clone] {
        let wanted = Wanted {
            faults: vec![
                FaultKind::Told,
                FaultKind::Users,
                FaultKind::Nodes,
                FaultKind::Admission,
                FaultKind::Template,
            ],
            kind: Some(kind),
            ..Wanted::default()
        };
        let of = |seed, defect| {
            let options = Options {
                defect,
                ..Options::default()
            };
            verdict(&Schedule::of_seed(seed, &wanted), options).0
        };
        for seed in 0..60 {
            assert_eq!(of(seed, None), None, "{kind:?}, seed {seed}");
        }
        for defect in [Defect::SilentWhy, Defect::StaleAdvice] {
            let is_found = (0..60).any(|seed| of(seed, Some(defect)).is_some());
            assert!(is_found, "{kind:?}: {defect:?}");
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

/// The schedule that a cell names: a seed, and flags of faults if it needs any.
fn named_in(cell: &str, kind: Option<SetKind>) -> Schedule {
    let (seed, faults) = cell.split_once(' ').unwrap_or((cell, ""));
    let is_named = |kind: &&FaultKind| {
        let name = kind.to_possible_value().expect("a name");
        faults.split(' ').any(|word| word.trim_matches('`') == name.get_name())
    };
    let wanted = Wanted {
        faults: FaultKind::ALL.iter().filter(is_named).copied().collect(),
        kind,
        ..Wanted::default()
    };
    Schedule::of_seed(seed.parse().expect("a seed"), &wanted)
}

/// Why a row of a table of planted defects is not true, if it is not, and which seed would do.
fn complaint(row: &[String], kind: Option<SetKind>, options: Options) -> Option<String> {
    let is_as_told = |schedule: &Schedule| {
        let violation = verdict(schedule, options).0.ok_or("nothing is found")?;
        if !row[4].contains(violation.rule) {
            return Err("another rule is found");
        }
        let without = verdict(schedule, Options::default()).0;
        without.map_or(Ok(()), |_| Err("something is found without it, too"))
    };
    let why = is_as_told(&named_in(&row[2], kind)).err()?;
    let faults = row[2].split_once(' ').map_or("", |(_, faults)| faults);
    let others = (0..SEEDS_TRIED).map(|seed| format!("{seed} {faults}"));
    let found = others
        .into_iter()
        .find(|cell| is_as_told(&named_in(cell, kind)).is_ok());
    Some(match found {
        Some(cell) => format!("{}: {why} with seed {}; seed {} would do", row[0], row[2], cell.trim()),
        None => format!(
            "{}: {why} with seed {}, nor with seeds up to {SEEDS_TRIED}",
            row[0], row[2]
        ),
    })
}

/// Replays each row of a table of planted defects; all that are not true are told at once, as a change of what the controllers do
/// moves several. The names of the rows.
fn replay(heading: &str, kind: Option<SetKind>, plant: impl Fn(&str) -> Options) -> BTreeSet<String> {
    let rows = table(heading);
    let name_of = |row: &Vec<String>| row[0].trim_matches('`').to_owned();
    let complaints: Vec<_> = rows
        .iter()
        .filter_map(|row| complaint(row, kind, plant(&name_of(row))))
        .collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    rows.iter().map(name_of).collect()
}

#[test]
fn the_table_of_planted_defects_is_true() {
    let named = replay("## Does it find bugs?", None, |name| Options {
        defect: Some(Defect::from_str(name, false).expect("a defect of this name")),
        ..Options::default()
    });
    assert_eq!(named.len(), Defect::ALL.len(), "every defect has its row");
}

#[test]
fn the_table_of_defects_planted_in_clone_sets_is_true() {
    let named = replay("### In CloneSets", Some(SetKind::Clone), |name| {
        let clone_defect = CloneDefect::from_str(name, false).ok();
        let shared = || Defect::from_str(name, false).expect("a defect of this name");
        Options {
            defect: clone_defect.is_none().then(shared),
            clone_defect,
            ..Options::default()
        }
    });
    let all = CloneDefect::ALL.len() + Defect::OF_CLONES.len();
    assert_eq!(named.len(), all, "every defect has its row");
}

#[test]
fn what_repeats_requests_is_contained_by_the_core() {
    for (kind, defect) in [SetKind::Advanced, SetKind::Clone]
        .into_iter()
        .flat_map(|kind| [Defect::RepeatAtOnce, Defect::UndoEachOther].map(|defect| (kind, defect)))
    {
        let wanted = Wanted {
            kind: Some(kind),
            ..Wanted::default()
        };
        let options = Options {
            defect: Some(defect),
            keeps_guard: true,
            ..Options::default()
        };
        for seed in 0..40 {
            let violation = verdict(&Schedule::of_seed(seed, &wanted), options).0;
            let rule = violation.as_ref().map(|violation| violation.rule);
            assert_ne!(
                rule,
                Some("STS-1.7 repetition"),
                "{defect:?} {kind:?} {seed}: {violation:?}"
            );
        }
    }
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
        let (violation, _) = verdict(&named_in(&row[0], None), Options::default());
        assert_eq!(violation, None, "cargo xtask sim --seed {}", row[0]);
    }
}

/// Seeds of CloneSets tried here.
const SEEDS_OF_CLONES: u64 = 60;

/// Seeds of CloneSets that once showed what was wrong, and not in the judge.
#[test]
fn what_was_found_with_clone_sets_stays_mended() {
    for seed in ["324", "705", "32 --fault in-place --fault users"] {
        let (violation, _) = verdict(&named_in(seed, Some(SetKind::Clone)), Options::default());
        assert_eq!(violation, None, "cargo xtask sim --kind clone --seed {seed}");
    }
}

/// A pod that its hook held while its volume had grown was taken out of service and put back in turn, for ever (STS-3.9).
#[test]
fn what_was_found_with_advanced_sets_alone_stays_mended() {
    let (violation, _) = verdict(&named_in("31170", Some(SetKind::Advanced)), Options::default());
    assert_eq!(violation, None, "cargo xtask sim --kind advanced --seed 31170");
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
fn updates_in_place_of_clone_sets_hold_alone_and_do_happen() {
    let wanted = Wanted {
        faults: vec![FaultKind::InPlace],
        ..clones()
    };
    let options = Options {
        trace: true,
        ..Options::default()
    };
    let (mut images, mut held, mut new) = (0, 0, 0);
    for seed in 0..40 {
        let outcome = run(&Schedule::of_seed(seed, &wanted), options);
        let command = format!("cargo xtask sim --kind clone --fault in-place --seed {seed}");
        assert_eq!(outcome.violation, None, "{command}");
        let count = |text: &str| outcome.trace.iter().filter(|line| line.contains(text)).count();
        images += count("containers/0/image");
        held += count(r#""PreparingDelete"}"#) + count(r#""PreparingUpdate"}"#);
        new += count("preNormal waits");
    }
    assert!(images > 20, "{images} patches of images");
    assert!(held > 20, "{held} pods held by hooks");
    assert!(new > 0, "hooks of new pods");
}
