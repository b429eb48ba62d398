//! Runs the targets on changed inputs for a while: `flotilla-fuzz [--seconds N] [--seed N] [--keep N] [--folder DIRECTORY] [TARGET…]`.
//!
//! The folder is the one that holds `corpus` and `artifacts`; where it is not named, it is that of this crate. An input that breaks a promise
//! is kept in `artifacts/TARGET`; move it to `corpus/TARGET` with the mend. With `--keep`, as many inputs that reached most of what is
//! new go to `corpus/TARGET`, so that the next run begins where this one ended.

mod corpus;
mod meter;

use flotilla_fuzz::{Random, TARGETS, Target};
use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Inputs that reached something new are changed further, as many of them; later ones take the place of earlier ones.
const FOUND_MAX: usize = 4000;
/// Longer ones do not get in: they would grow for ever.
const FOUND_BYTES_MAX: usize = 16 << 10;
/// What one input may take of a processor, in seconds.
const INPUT_SECONDS_MAX: f64 = 2.0;
/// What the process may take of memory.
const MEMORY_KB_MAX: u64 = 1 << 20;
/// Memory is looked at after so many inputs.
const MEMORY_EVERY: u64 = 1024;

struct Args {
    /// For all targets together.
    seconds: u64,
    seed: u64,
    /// Inputs to add to each corpus in the end, at most.
    keep: usize,
    /// Holds `corpus` and `artifacts`.
    folder: PathBuf,
    targets: Vec<&'static Target>,
}

/// This moment.
// How long a run lasts is asked of the clock; no input depends on it.
#[allow(clippy::disallowed_methods)]
fn now() -> Instant {
    Instant::now()
}

fn main() -> ExitCode {
    let outcome = parse(std::env::args().skip(1)).and_then(|args| {
        let share = Duration::from_secs(args.seconds) / u32::try_from(args.targets.len()).unwrap_or(1);
        args.targets.iter().try_for_each(|target| run(target, share, &args))
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut parsed = Args {
        seconds: 10,
        seed: 1,
        keep: 0,
        folder: env!("CARGO_MANIFEST_DIR").into(),
        targets: Vec::new(),
    };
    let number = |option: &str, text: Option<String>| {
        let text = text.unwrap_or_default();
        text.parse()
            .map_err(|_| format!("{option} expects a number, found {text:?}"))
    };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--seconds" => parsed.seconds = number(&arg, args.next())?,
            "--seed" => parsed.seed = number(&arg, args.next())?,
            "--keep" => {
                parsed.keep =
                    usize::try_from(number(&arg, args.next())?).map_err(|_| "--keep is too large".to_owned())?;
            }
            "--folder" => parsed.folder = args.next().ok_or("--folder names no directory")?.into(),
            option if option.starts_with('-') => {
                return Err(format!(
                    "no option {option}; there are --seconds, --seed, --keep and --folder"
                ));
            }
            name => {
                let target = TARGETS.iter().find(|known| known.name == name);
                let known: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
                parsed
                    .targets
                    .push(target.ok_or_else(|| format!("no target {name}; there are {}", known.join(", ")))?);
            }
        }
    }
    if parsed.targets.is_empty() {
        parsed.targets = TARGETS.iter().collect();
    }
    Ok(parsed)
}

/// Inputs to change, and what they reached.
struct Pool {
    /// Those of the corpus, and behind them those that were found.
    inputs: Vec<Vec<u8>>,
    /// How many are of the corpus: these stay.
    kept: usize,
    /// Which of those that were found goes next, when there are too many.
    next: usize,
    reached: BTreeSet<u64>,
}

impl Pool {
    /// Takes in what an input reached, and the input, if that is new.
    fn note(&mut self, input: Vec<u8>, things: &[u64]) {
        let known = self.reached.len();
        self.reached.extend(things);
        if self.reached.len() == known || input.len() > FOUND_BYTES_MAX {
            return;
        }
        if self.inputs.len() < self.kept + FOUND_MAX {
            self.inputs.push(input);
        } else {
            self.inputs[self.kept + self.next] = input;
            self.next = (self.next + 1) % FOUND_MAX;
        }
    }
}

// How long to go on is a matter of the clock.
#[allow(clippy::disallowed_methods)]
fn run(target: &Target, time: Duration, args: &Args) -> Result<(), String> {
    let (name, seed) = (target.name, args.seed);
    let folder = args.folder.join("corpus").join(name);
    let kept = corpus::read(&folder)?;
    let mut pool = Pool {
        kept: kept.len(),
        inputs: kept.clone(),
        next: 0,
        reached: BTreeSet::new(),
    };
    let mut random = Random::new(seed);
    let (begin, processor) = (now(), meter::processor_seconds());
    let mut tried = 0_u64;
    let mut first = kept.into_iter();
    while first.len() > 0 || begin.elapsed() < time {
        let input = first
            .next()
            .unwrap_or_else(|| (target.change)(&pool.inputs, &mut random));
        let broken = |what: &str| {
            let folder = args.folder.join("artifacts").join(name);
            let path = corpus::write(&folder, &format!("{seed}-{tried}"), &input)?;
            Err(format!(
                "{name}: input {tried} with seed {seed} {what}; kept as {}",
                path.display()
            ))
        };
        let before = now();
        let Ok(reached) = catch_unwind(|| (target.run)(&input)) else {
            return broken("breaks a promise");
        };
        // The clock also counts what others did meanwhile, so it is only a reason to look.
        if before.elapsed().as_secs_f64() > INPUT_SECONDS_MAX && cost(target, &input) > INPUT_SECONDS_MAX {
            return broken("takes too long");
        }
        if tried.is_multiple_of(MEMORY_EVERY) && meter::memory_kb_max() > MEMORY_KB_MAX {
            return broken(&format!("or one of the {MEMORY_EVERY} before takes too much memory"));
        }
        pool.note(input, reached.things());
        tried += 1;
    }
    println!(
        "{name}: seed {seed}: {tried} inputs in {:.1} s ({:.1} s of a processor), {} things reached, nothing broken",
        begin.elapsed().as_secs_f64(),
        meter::processor_seconds() - processor,
        pool.reached.len(),
    );
    let (kept, found) = pool.inputs.split_at(pool.kept);
    let chosen = corpus::choose(target, kept, found, args.keep);
    chosen.iter().enumerate().try_for_each(|(place, input)| {
        let path = corpus::write(&folder, &format!("found-{seed}-{place}"), input)?;
        println!("{name}: kept {}", path.display());
        Ok(())
    })
}

/// What an input takes of a processor.
fn cost(target: &Target, input: &[u8]) -> f64 {
    let before = meter::processor_seconds();
    drop((target.run)(input));
    meter::processor_seconds() - before
}
