//! Runs the targets on changed inputs for a while: `flotilla-fuzz [--seconds N] [--seed N] [--folder DIRECTORY] [TARGET…]`.
//!
//! The folder is the one that holds `corpus` and `artifacts`; where it is not named, it is that of this crate. An input that breaks a promise is kept in `artifacts/TARGET`; move it to `corpus/TARGET` with the mend.

mod meter;

use flotilla_fuzz::{Random, TARGETS, Target};
use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
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
    seconds: u64,
    seed: u64,
    folder: PathBuf,
    targets: Vec<&'static Target>,
}

fn main() -> ExitCode {
    let outcome = parse(std::env::args().skip(1)).and_then(|args| {
        let share = Duration::from_secs(args.seconds) / u32::try_from(args.targets.len()).unwrap_or(1);
        args.targets
            .iter()
            .try_for_each(|target| run(target, share, args.seed, &args.folder))
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
        folder: env!("CARGO_MANIFEST_DIR").into(),
        targets: Vec::new(),
    };
    let number = |text: Option<String>| {
        let text = text.unwrap_or_default();
        text.parse().map_err(|_| format!("expected a number, found {text:?}"))
    };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--seconds" => parsed.seconds = number(args.next())?,
            "--seed" => parsed.seed = number(args.next())?,
            "--folder" => parsed.folder = args.next().ok_or("--folder names no directory")?.into(),
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
    inputs: Vec<Vec<u8>>,
    kept: usize,
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
fn run(target: &Target, time: Duration, seed: u64, root: &Path) -> Result<(), String> {
    let name = target.name;
    let kept = corpus(&root.join("corpus").join(name))?;
    let mut pool = Pool {
        kept: kept.len(),
        inputs: kept.clone(),
        next: 0,
        reached: BTreeSet::new(),
    };
    let mut random = Random::new(seed);
    let (begin, processor) = (Instant::now(), meter::processor_seconds());
    let mut tried = 0_u64;
    let mut first = kept.into_iter();
    while first.len() > 0 || begin.elapsed() < time {
        let input = first
            .next()
            .unwrap_or_else(|| (target.change)(&pool.inputs, &mut random));
        let broken = |what: &str| {
            let path = keep(&root.join("artifacts").join(name), seed, tried, &input)?;
            Err(format!(
                "{name}: input {tried} with seed {seed} {what}; kept as {}",
                path.display()
            ))
        };
        let before = Instant::now();
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
    Ok(())
}

/// What an input takes of a processor.
fn cost(target: &Target, input: &[u8]) -> f64 {
    let before = meter::processor_seconds();
    drop((target.run)(input));
    meter::processor_seconds() - before
}

fn corpus(folder: &Path) -> Result<Vec<Vec<u8>>, String> {
    let failed = |error: std::io::Error| format!("failed to read the corpus {}: {error}", folder.display());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        paths.push(entry.map_err(failed)?.path());
    }
    // As the seed, the order must be the same everywhere.
    paths.sort();
    let inputs: Result<Vec<_>, _> = paths.iter().map(std::fs::read).collect();
    match inputs {
        Ok(inputs) if inputs.is_empty() => Err(format!("the corpus {} is empty", folder.display())),
        other => other.map_err(failed),
    }
}

fn keep(folder: &Path, seed: u64, number: u64, input: &[u8]) -> Result<PathBuf, String> {
    let ending = match input.first() {
        Some(b'{' | b'[') => "json",
        _ => "bin",
    };
    let path = folder.join(format!("{seed}-{number}.{ending}"));
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&path, input))
        .map_err(|error| format!("failed to keep an input as {}: {error}", path.display()))?;
    Ok(path)
}
