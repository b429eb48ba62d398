//! `flotilla-faultsim`, better known as `cargo xtask sim`.

mod report;

use clap::Parser;
use flotilla_faultsim::clones::defect::CloneDefect;
use flotilla_faultsim::defect::Defect;
use flotilla_faultsim::schedule::FaultKind;
use flotilla_faultsim::search::{Found, Progress, Search};
use flotilla_faultsim::{Options, Wanted};
use flotilla_model::SetKind;
use mimalloc::MiMalloc;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The same as the manager's; glibc's took 30 % of the time of a sweep.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// How many seeds a planted defect has in order to be found.
const SEEDS_FOR_A_DEFECT: u64 = 20_000;

/// Runs the manager's code against a simulated cluster under faults, one schedule per seed.
#[derive(Debug, Parser)]
#[command(name = "sim")]
// Four ways to use one tool, each a flag.
#[allow(clippy::struct_excessive_bools)]
struct Args {
    /// Run these seeds: `A..B`, without B.
    #[arg(long, value_parser = parse_range, default_value = "0..20000")]
    seeds: Range<u64>,
    /// Run this seed only, and tell what happened if something was wrong.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// With --seed: tell what happened in any case, all of it.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// With --seed: only these items of its schedule, as in `1,4,7`; `none` for none.
    #[arg(long, requires = "seed", value_parser = parse_items)]
    items: Option<Items>,
    /// Run fresh seeds for so many minutes.
    #[arg(long, conflicts_with_all = ["seeds", "seed"])]
    minutes: Option<f32>,
    /// Only faults of this kind; may be repeated. `none` for a rollout without any.
    #[arg(long = "fault", value_enum)]
    faults: Vec<FaultKind>,
    /// Only sets of this kind.
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// Only sets of so many pods.
    #[arg(long)]
    pods: Option<i64>,
    /// Plant this defect.
    #[arg(long, value_enum)]
    defect: Option<Defect>,
    /// Plant this defect of CloneSets.
    #[arg(long, value_enum, conflicts_with = "defect")]
    clone_defect: Option<CloneDefect>,
    /// With a defect that repeats requests: let the core hold them back.
    #[arg(long)]
    keep_guard: bool,
    /// Plant each defect in turn, and say which seed finds it.
    #[arg(long, conflicts_with_all = ["seeds", "seed", "minutes", "defect"])]
    defects: bool,
    /// Go on after a violation, and tell of one seed for each rule.
    #[arg(long)]
    all: bool,
    /// On so many threads instead of one per core.
    #[arg(long)]
    threads: Option<usize>,
}

/// Kinds of sets by name.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Kind {
    Native,
    Advanced,
    Clone,
}

/// Places of items in a schedule.
#[derive(Clone, Debug)]
struct Items(Vec<usize>);

fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("expected A..B")?;
    let number = |text: &str| text.parse::<u64>().map_err(|e| format!("{text:?}: {e}"));
    let range = number(from)?..number(to)?;
    if range.is_empty() {
        return Err(format!("{text} holds no seed"));
    }
    Ok(range)
}

fn parse_items(text: &str) -> Result<Items, String> {
    if text == "none" {
        return Ok(Items(Vec::new()));
    }
    let number = |text: &str| text.trim().parse().map_err(|e| format!("{text:?}: {e}"));
    Ok(Items(text.split(',').map(number).collect::<Result<_, _>>()?))
}

fn main() -> ExitCode {
    let args = Args::parse();
    let search = Search {
        wanted: Wanted {
            faults: args.faults.clone(),
            kind: args.kind.map(|kind| match kind {
                Kind::Native => SetKind::Native,
                Kind::Advanced => SetKind::Advanced,
                Kind::Clone => SetKind::Clone,
            }),
            pods: args.pods,
        },
        options: Options {
            defect: args.defect,
            clone_defect: args.clone_defect,
            keeps_guard: args.keep_guard,
            trace: false,
        },
        all: args.all,
        threads: args
            .threads
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get)),
    };
    let is_right = if args.defects {
        defects(&search)
    } else if let Some(seed) = args.seed {
        one(&search, seed, args.items.map(|items| items.0), args.trace)
    } else if let Some(minutes) = args.minutes {
        fresh(&search, minutes)
    } else {
        sweep(&search, args.seeds, None)
    };
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs one seed.
fn one(search: &Search, seed: u64, items: Option<Vec<usize>>, trace: bool) -> bool {
    let violation = report::run_once(search, seed, items.as_deref(), trace.then_some(usize::MAX));
    match violation {
        Some(violation) if !trace && items.is_none() => {
            report::found(search, &Found { seed, violation });
            false
        }
        Some(violation) => {
            println!("seed {seed} violates {violation}");
            false
        }
        None => {
            println!("seed {seed}: nothing wrong");
            true
        }
    }
}

/// Runs seeds that nobody has chosen, for some minutes.
fn fresh(search: &Search, minutes: f32) -> bool {
    let base = fastrand::u64(..u64::MAX / 2);
    println!("fresh seeds from {base} for {minutes} minutes");
    sweep(search, base..u64::MAX, Some(Duration::from_secs_f32(minutes * 60.0)))
}

/// Runs a range of seeds, says how far it is, and at the end how fast it was.
fn sweep(search: &Search, seeds: Range<u64>, limit: Option<Duration>) -> bool {
    let progress = Progress::default();
    let watch = report::Watch::begin();
    let begin = seeds.start;
    let total = (limit.is_none()).then(|| seeds.end - seeds.start);
    let found = std::thread::scope(|scope| {
        scope.spawn(|| watch.tell(&progress, total, limit));
        let found = search.run(seeds, &progress);
        progress.is_over.store(true, Ordering::Relaxed);
        found
    });
    watch.conclude(&progress, begin, search.threads);
    for found in &found {
        report::found(search, found);
    }
    found.is_empty()
}

/// Plants each defect and says which seed finds it: those of StatefulSets and of the shell, and those of CloneSets, unless one kind is asked
/// for.
fn defects(search: &Search) -> bool {
    println!("| defect | what is wrong | seed | seeds needed | what the simulator says |");
    println!("|---|---|---|---|---|");
    let kind = search.wanted.kind;
    let mut all = true;
    let plant = |defect| Options {
        defect: Some(defect),
        ..search.options
    };
    if kind != Some(SetKind::Clone) {
        for defect in Defect::ALL {
            all &= shows(search, kind, plant(defect));
        }
    }
    if kind.is_none_or(|kind| kind == SetKind::Clone) {
        for defect in CloneDefect::ALL {
            let clone_defect = Some(defect);
            let options = Options {
                clone_defect,
                ..search.options
            };
            all &= shows(search, Some(SetKind::Clone), options);
        }
        for defect in Defect::OF_CLONES {
            all &= shows(search, Some(SetKind::Clone), plant(defect));
        }
    }
    all
}

/// Prints the row of a planted defect, and says whether it was found.
fn shows(search: &Search, kind: Option<SetKind>, options: Options) -> bool {
    let wanted = Wanted {
        kind,
        ..search.wanted.clone()
    };
    let search = Search {
        wanted,
        options,
        ..search.clone()
    };
    let found = search.run(0..SEEDS_FOR_A_DEFECT, &Progress::default());
    println!("{}", report::row(options, found.first()));
    !found.is_empty()
}
