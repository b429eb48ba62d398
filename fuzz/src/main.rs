//! Runs the targets on changed inputs for a while: `flotilla-fuzz [--seconds N] [--seed N] [TARGET…]`.
//!
//! An input that breaks a promise is kept in `artifacts/TARGET`; move it to `corpus/TARGET` with the mend.

use flotilla_fuzz::{Random, TARGETS, Target, changed};
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

struct Args {
    seconds: u64,
    seed: u64,
    targets: Vec<&'static Target>,
}

fn main() -> ExitCode {
    let outcome = parse(std::env::args().skip(1)).and_then(|args| {
        let share = Duration::from_secs(args.seconds) / u32::try_from(args.targets.len()).unwrap_or(1);
        args.targets.iter().try_for_each(|target| run(target, share, args.seed))
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
            name => {
                let target = TARGETS.iter().find(|(known, _)| *known == name);
                let known: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
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

// How long to go on is a matter of the clock.
#[allow(clippy::disallowed_methods)]
fn run((name, target): &Target, time: Duration, seed: u64) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let inputs = corpus(&root.join("corpus").join(name))?;
    let mut random = Random::new(seed);
    let begin = Instant::now();
    let mut tried = 0_u64;
    let mut next = inputs.iter().cloned();
    while tried < inputs.len() as u64 || begin.elapsed() < time {
        let input = next.next().unwrap_or_else(|| changed(&inputs, &mut random));
        if catch_unwind(|| target(&input)).is_err() {
            let path = keep(&root.join("artifacts").join(name), seed, tried, &input)?;
            return Err(format!(
                "{name}: input {tried} with seed {seed} breaks a promise; kept as {}",
                path.display()
            ));
        }
        tried += 1;
    }
    println!(
        "{name}: {tried} inputs in {:.1} s, nothing broken",
        begin.elapsed().as_secs_f32()
    );
    Ok(())
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
    let path = folder.join(format!("{seed}-{number}.json"));
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&path, input))
        .map_err(|error| format!("failed to keep an input as {}: {error}", path.display()))?;
    Ok(path)
}
