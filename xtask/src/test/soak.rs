//! `cargo xtask soak`: runs the suites against a real control plane again and again, and tells how often which of them failed. What fails
//! once in twenty runs stops one change in two that has nothing to do with it.

use super::executables::{Executable, list_command, listed};
use super::programs::{Console, Programs};
use super::schedule::clock;
use super::{CLUSTERS, SUITES, build_part, build_release, now};
use crate::sim;
use anyhow::{Context, Result, bail, ensure};
use flotilla_localcluster::{end_abandoned, real_node_unavailable, workspace};
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// How often each suite is run.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    times: u32,
    /// Only this suite, by the name of its file in e2e/tests; may be repeated.
    #[arg(long = "suite", value_name = "NAME")]
    suites: Vec<String>,
    /// How many suites run at once; no suite runs beside itself.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    at_once: u32,
    /// Keep all processors busy meanwhile: with schedules of the simulator of faults, one thread a processor.
    #[arg(long)]
    beside_load: bool,
}

/// One run of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    suite: &'static str,
    number: u32,
}

/// How it ended.
#[derive(Clone, Debug)]
struct Ended {
    turn: Turn,
    took: Duration,
    failure: Option<String>,
}

/// Turns that have not begun, and the suites that run.
#[derive(Debug)]
struct Queue {
    state: Mutex<(VecDeque<Turn>, Vec<&'static str>)>,
    /// A suite has ended.
    freed: Condvar,
}

impl Queue {
    /// Each suite once, then each a second time, and so on.
    fn new(suites: &[&'static str], times: u32) -> Self {
        let rounds = (1..=times).flat_map(|number| suites.iter().map(move |suite| Turn { suite, number }));
        Queue {
            state: Mutex::new((rounds.collect(), Vec::new())),
            freed: Condvar::new(),
        }
    }

    /// The next turn of a suite that is not running; waits for one if all that are left are. None once there is nothing left.
    fn next(&self) -> Option<Turn> {
        let mut state = self.state();
        loop {
            let (waiting, running) = &mut *state;
            if waiting.is_empty() {
                return None;
            }
            if let Some(index) = waiting.iter().position(|turn| !running.contains(&turn.suite)) {
                let turn = waiting.remove(index)?;
                running.push(turn.suite);
                return Some(turn);
            }
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn done(&self, turn: Turn) {
        self.state().1.retain(|suite| *suite != turn.suite);
        self.freed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, (VecDeque<Turn>, Vec<&'static str>)> {
        // What it holds is right after each statement that changes it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let suites = chosen(&args.suites)?;
    let folder = workspace::root().join("target/xtask-soak");
    fs::create_dir_all(&folder).with_context(|| format!("failed to create {}", folder.display()))?;
    let programs = Arc::new(Programs::default());
    let interrupted = programs.clone();
    ctrlc::set_handler(move || interrupted.end()).context("failed to listen for Ctrl-C")?;
    let log = folder.join("build.log");
    println!("building; see {}", log.display());
    let (tests, binary) = build(&mut console(&programs, &log)?, &suites)
        .with_context(|| format!("failed to build what the suites need; see {}", log.display()))?;
    let runner = Runner {
        programs: &programs,
        folder: &folder,
        tests: &tests,
        binary: &binary,
        begun: now(),
    };
    let queue = Queue::new(&suites, args.times);
    let ended = std::thread::scope(|scope| -> Result<Vec<Ended>> {
        if args.beside_load {
            let log = folder.join("load.log");
            let load = console(&programs, &log)?;
            scope.spawn(move || keep_busy(&load, runner.programs));
        }
        let at_once = (0..args.at_once).map(|_| scope.spawn(|| runner.take_turns(&queue)));
        let at_once: Vec<_> = at_once.collect();
        let done = at_once.into_iter().map(|thread| match thread.join() {
            Ok(done) => done,
            Err(_) => bail!("a thread that runs suites has panicked"),
        });
        let done: Result<Vec<Vec<Ended>>> = done.collect();
        // The load goes on until it is ended.
        programs.end();
        Ok(done?.concat())
    });
    CLUSTERS.iter().try_for_each(|prefix| end_abandoned(prefix))?;
    let ended = ended?;
    print!("\n{}", table(&suites, &ended));
    let is_complete = ended.len() == suites.len() * args.times as usize;
    ensure!(is_complete, "ended early");
    Ok(if ended.iter().all(|end| end.failure.is_none()) {
        ExitCode::SUCCESS
    } else {
        println!("the output of runs that failed is in {}", folder.display());
        ExitCode::FAILURE
    })
}

/// The suites of these names, or all.
fn chosen(names: &[String]) -> Result<Vec<&'static str>> {
    let all: Vec<&'static str> = SUITES.iter().map(|(_, suite, ..)| *suite).collect();
    if let Some(unknown) = names.iter().find(|name| !all.contains(&name.as_str())) {
        bail!("there is no suite {unknown:?}; there are {}", all.join(", "));
    }
    let is_wanted = |suite: &&str| names.is_empty() || names.iter().any(|name| name == suite);
    Ok(all.into_iter().filter(is_wanted).collect())
}

/// Builds the suites, the binary that they test, and what their clusters run.
fn build(console: &mut Console, suites: &[&str]) -> Result<(Vec<Executable>, PathBuf)> {
    let mut tests = listed(&console.read(list_command())?)?;
    tests.retain(|test| test.package == "flotilla-e2e" && suites.contains(&test.target.as_str()));
    let binary = build_release(console)?;
    build_part(console, "control-plane")?;
    let needs = |part| {
        SUITES
            .iter()
            .any(|(_, suite, _, needs)| suites.contains(suite) && needs.contains(&part))
    };
    if needs(super::NODE) && real_node_unavailable().is_none() {
        build_part(console, "real-node")?;
    }
    if needs(super::HELM) {
        build_part(console, "helm")?;
    }
    console.run(sim::build_command())?;
    Ok((tests, binary))
}

fn console<'a>(programs: &'a Programs, log: &Path) -> Result<Console<'a>> {
    let file = File::create(log).with_context(|| format!("failed to write {}", log.display()))?;
    Ok(Console::new(programs, file))
}

/// Fresh schedules until all programs are ended. One that breaks a rule is in the log, with its seed, and others follow.
fn keep_busy(console: &Console, programs: &Programs) {
    while !programs.is_over() {
        // Its end is what it was started for.
        let _ended = console.run(sim::command(&["--minutes", "60"]));
    }
}

/// Runs suites.
#[derive(Clone, Copy)]
struct Runner<'a> {
    programs: &'a Programs,
    folder: &'a Path,
    tests: &'a [Executable],
    binary: &'a Path,
    begun: Instant,
}

impl Runner<'_> {
    /// Runs what is next until nothing is left, or all is ended early.
    fn take_turns(&self, queue: &Queue) -> Result<Vec<Ended>> {
        let mut done = Vec::new();
        while let Some(turn) = queue.next() {
            let ended = self.run(turn);
            queue.done(turn);
            if self.programs.is_over() {
                break;
            }
            let ended = ended?;
            let how = ended.failure.as_deref().unwrap_or("passed");
            let (at, Turn { suite, number }) = (clock(self.begun.elapsed()), turn);
            // Whoever closes the output still wants the suites run.
            let _told = writeln!(
                std::io::stdout(),
                "{at}  {suite} {number}: {how}, {:.0} s",
                ended.took.as_secs_f32()
            );
            done.push(ended);
        }
        Ok(done)
    }

    fn run(&self, turn: Turn) -> Result<Ended> {
        let Turn { suite, number } = turn;
        let test = self.tests.iter().find(|test| test.target == suite);
        let test = test.with_context(|| format!("cargo has built no suite {suite}"))?;
        let log = self.folder.join(format!("{suite}-{number}.log"));
        let console = console(self.programs, &log)?;
        let mut command = test.command();
        command.env("FLOTILLA_BINARY", self.binary).arg("--nocapture");
        let begun = now();
        let result = console.run(command);
        let took = begun.elapsed();
        if result.is_ok() {
            fs::remove_file(&log).with_context(|| format!("failed to remove {}", log.display()))?;
        }
        let failure = result.err().map(|error| format!("{error:#}"));
        Ok(Ended { turn, took, failure })
    }
}

/// How often each suite ran and failed, and how long it took in seconds.
fn table(suites: &[&str], ended: &[Ended]) -> String {
    let heading = format!(
        "{:<12} {:>5} {:>7} {:>8} {:>8}\n",
        "suite", "runs", "failed", "median", "longest"
    );
    let row = |suite: &&str| {
        let own = || ended.iter().filter(|end| end.turn.suite == *suite);
        let mut times: Vec<f32> = own().map(|end| end.took.as_secs_f32()).collect();
        times.sort_by(f32::total_cmp);
        let failed = own().filter(|end| end.failure.is_some()).count();
        let seconds = |time: Option<&f32>| time.map_or_else(String::new, |time| format!("{time:.0} s"));
        let (runs, median, longest) = (times.len(), seconds(times.get(times.len() / 2)), seconds(times.last()));
        format!("{suite:<12} {runs:>5} {failed:>7} {median:>8} {longest:>8}\n")
    };
    std::iter::once(heading).chain(suites.iter().map(row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_are_chosen_by_name() {
        assert_eq!(chosen(&[]).unwrap().len(), SUITES.len());
        assert_eq!(
            chosen(&["plan".to_owned(), "faults".to_owned()]).unwrap(),
            ["faults", "plan"]
        );
        let error = chosen(&["all".to_owned()]).unwrap_err().to_string();
        assert!(
            error.starts_with("there is no suite \"all\"; there are install, "),
            "{error}"
        );
    }

    #[test]
    fn no_suite_runs_beside_itself_and_each_has_all_its_turns() {
        let queue = Queue::new(&["a", "b"], 2);
        let (first, second) = (queue.next().unwrap(), queue.next().unwrap());
        assert_eq!((first.suite, second.suite), ("a", "b"));
        std::thread::scope(|scope| {
            let third = scope.spawn(|| queue.next());
            queue.done(second);
            assert_eq!(third.join().unwrap(), Some(Turn { suite: "b", number: 2 }));
            let fourth = scope.spawn(|| queue.next());
            queue.done(first);
            assert_eq!(fourth.join().unwrap(), Some(Turn { suite: "a", number: 2 }));
        });
        assert_eq!(queue.next(), None);
    }

    #[test]
    fn the_table_counts_failures() {
        let end = |number: u64, failure: Option<&str>| Ended {
            turn: Turn {
                suite: "plan",
                number: 1,
            },
            took: Duration::from_secs(number),
            failure: failure.map(str::to_owned),
        };
        let text = table(&["plan", "room"], &[end(30, None), end(10, Some("no")), end(20, None)]);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .skip(1)
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            lines,
            [vec!["plan", "3", "1", "20", "s", "30", "s"], vec!["room", "0", "0"]]
        );
    }
}
