//! `cargo xtask test`: everything that CI runs. What fails fastest comes first; what mostly waits runs beside what is compiled.

mod executables;
mod programs;
mod schedule;
pub(crate) mod soak;

use crate::sim;
use anyhow::{Context, Result, bail, ensure};
use executables::{Executable, list_command, listed};
use flotilla_localcluster::{end_abandoned, real_node_unavailable, workspace};
use programs::{Console, Programs};
use rustix::fs::statvfs;
use schedule::{Load, Ran, Step, clock, step};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Leave out what needs a control plane.
    #[arg(long)]
    without_cluster: bool,
}

/// Steps that others rest on.
const FORMAT: &str = "format";
const LINTS: &str = "lints";
const TESTS: &str = "build of all tests";
const BINARY: &str = "release build";
const CONTROL_PLANE: &str = "control plane build";
const NODE: &str = "real node build";
const HELM: &str = "Helm build";
const SIMULATOR: &str = "build of the simulator of faults";
const FAULTS: &str = "faults from seeds of this commit";

/// How many schedules are run of StatefulSets, and of CloneSets: some two minutes, and one.
const SCHEDULES: (u64, u64) = (80_000, 20_000);

/// Suites against a real control plane: what each is about, and its name in `e2e/tests`; then what it does to the machine, and what it
/// needs beside the control plane. Long ones first.
const SUITES: &[(&str, &str, Load, &[&str])] = &[
    (
        "installing, rights, migrating, and the chart",
        "install",
        Load::Waiting,
        &[HELM],
    ),
    ("faults on a real control plane", "faults", Load::Waiting, &[]),
    ("CloneSets on a real control plane", "cloneset", Load::Busy, &[]),
    ("behaviour on a real control plane", "behaviour", Load::Busy, &[]),
    ("pods on a real node", "real_node", Load::Waiting, &[NODE]),
    (
        "admission and conversion on a real control plane",
        "webhook",
        Load::Waiting,
        &[],
    ),
    ("sets that a Go manager left half done", "handover", Load::Waiting, &[]),
    (
        "plans, and what then happens on a real control plane",
        "plan",
        Load::Busy,
        &[],
    ),
    (
        "kubectl against the playground and a real control plane",
        "playground",
        Load::Busy,
        &[],
    ),
    (
        "the simulated API server answers as the real one does",
        "apiserver",
        Load::Waiting,
        &[],
    ),
    ("the playground as a process", "process", Load::Waiting, &[]),
    ("memory and time of the playground", "room", Load::Busy, &[]),
];

/// What the names of clusters begin with that tests start.
const CLUSTERS: [&str; 2] = ["e2e-", "it-"];

/// What a first run writes, in gigabytes.
const FIRST_RUN_GB: u32 = 10;

/// How large the binary may be, in bytes.
const BINARY_SIZE_MAX: u64 = 20_000_000;

/// What some steps make and others use.
#[derive(Default)]
struct Made {
    tests: OnceLock<Vec<Executable>>,
    binary: OnceLock<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let programs = Arc::new(Programs::default());
    let interrupted = programs.clone();
    ctrlc::set_handler(move || interrupted.end()).context("failed to listen for Ctrl-C")?;
    let made = Made::default();
    let steps = if args.without_cluster {
        without_cluster(&made)
    } else {
        all(&made)
    };
    let folder = workspace::root().join("target/xtask-test");
    println!(
        "what a step writes is shown when it has ended; until then it is in {}",
        folder.display()
    );
    println!("{}", room_for(&folder)?);
    let begun = now();
    let result = schedule::run(steps, &programs, &folder, &mut std::io::stdout());
    if programs.is_over() {
        // Suites that were ended have left theirs.
        CLUSTERS.iter().try_for_each(|prefix| end_abandoned(prefix))?;
    }
    let mut ran = result?;
    ran.sort_by_key(|ran| ran.begun);
    println!("\nall passed\n  begun    took");
    for Ran { name, begun, took } in ran {
        println!("{} {}  {name}", clock(begun), clock(took));
    }
    println!("       {}  from begin to end", clock(begun.elapsed()));
    Ok(ExitCode::SUCCESS)
}

/// What is left of the disk, and what a first run takes: a disk that is full fails in many words, and in others each time.
fn room_for(folder: &Path) -> Result<String> {
    std::fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
    let disk = statvfs(folder).with_context(|| format!("failed to ask what is free in {}", folder.display()))?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize) / 1_000_000_000;
    Ok(format!("{free} GB of disk are free; a first run takes {FIRST_RUN_GB}"))
}

/// This moment.
// A tool may tell how long something took; it decides nothing by it.
#[allow(clippy::disallowed_methods)]
fn now() -> Instant {
    Instant::now()
}

/// All steps. How soon a cluster is ready is measured once nothing else runs.
fn all(made: &Made) -> Vec<Step<'_>> {
    let mut steps = without_cluster(made);
    steps.extend(with_cluster(made));
    let before: Vec<&str> = steps.iter().map(|step| step.name).collect();
    steps.push(step(
        "the control plane itself",
        Load::Waiting,
        &before,
        move |console| run_tests(console, made, |test| test.package == "flotilla-localcluster"),
    ));
    steps
}

/// Steps that need no control plane.
fn without_cluster(made: &Made) -> Vec<Step<'_>> {
    vec![
        step(FORMAT, Load::Busy, &[], |console| {
            console.run(cargo(&["fmt", "--all", "--check"]))
        }),
        step(LINTS, Load::Busy, &[FORMAT], |console| {
            let arguments = [
                "clippy",
                "--workspace",
                "--all-targets",
                "--locked",
                "--",
                "-D",
                "warnings",
            ];
            console.run(cargo(&arguments))
        }),
        // All at once, so that all are built from the same libraries.
        step(TESTS, Load::Busy, &[LINTS], move |console| {
            let tests = listed(&console.read(list_command())?)?;
            check_suites(&tests)?;
            console.say(&format!("{} test executables", tests.len()))?;
            made.tests.get_or_init(|| tests);
            Ok(())
        }),
        step(
            "unit, table and property tests, tidiness",
            Load::Busy,
            &[TESTS],
            move |console| {
                let others = ["flotilla-e2e", "flotilla-localcluster", "flotilla-fuzz"];
                run_tests(console, made, |test| !others.contains(&test.package.as_str()))
            },
        ),
        step(
            "arbitrary input for admission, conversion, protobuf and annotations",
            Load::Busy,
            &[TESTS],
            move |console| run_tests(console, made, |test| test.package == "flotilla-fuzz"),
        ),
        step("documentation", Load::Busy, &[TESTS], |console| {
            let mut command = cargo(&["doc", "--workspace", "--no-deps", "--locked"]);
            // Links that lead nowhere are defects of the documentation.
            command.env("RUSTDOCFLAGS", "-D warnings");
            console.run(command)
        }),
        step(SIMULATOR, Load::Busy, &[LINTS], |console| {
            console.run(sim::build_command())
        }),
        step(FAULTS, Load::Busy, &[SIMULATOR], |console| {
            run_schedules(console, SCHEDULES.0, &[])
        }),
        step("faults for CloneSets, the same way", Load::Busy, &[FAULTS], |console| {
            run_schedules(console, SCHEDULES.1, &["--kind", "clone"])
        }),
    ]
}

/// Steps that build and use a control plane.
fn with_cluster(made: &Made) -> Vec<Step<'_>> {
    let mut steps = vec![
        step(CONTROL_PLANE, Load::Busy, &[FORMAT], |console| {
            build_part(console, "control-plane")
        }),
        step(BINARY, Load::Busy, &[LINTS], move |console| {
            let binary = build_release(console)?;
            made.binary.get_or_init(|| binary);
            Ok(())
        }),
        step(
            NODE,
            Load::Busy,
            &[CONTROL_PLANE],
            |console| match real_node_unavailable() {
                Some(reason) => console.say(&format!("left out: {reason}")),
                None => build_part(console, "real-node"),
            },
        ),
        step(HELM, Load::Busy, &[CONTROL_PLANE], |console| {
            build_part(console, "helm")
        }),
    ];
    steps.extend(SUITES.iter().map(|(name, suite, load, needs)| {
        let mut after = vec![TESTS, BINARY, CONTROL_PLANE];
        after.extend(*needs);
        step(name, *load, &after, move |console| {
            run_tests(console, made, |test| {
                test.package == "flotilla-e2e" && test.target == *suite
            })
        })
    }));
    steps
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = workspace::cargo();
    command.args(arguments);
    command
}

/// Runs so many schedules of faults.
fn run_schedules(console: &mut Console, count: u64, options: &[&str]) -> Result<()> {
    let seeds = sim::seeds_of_source(count)?;
    let seeds = format!("{}..{}", seeds.start, seeds.end);
    let mut all = vec!["--seeds", &seeds];
    all.extend(options);
    console.run(sim::command(&all))
}

/// Runs the test executables that are wanted, one after the other.
fn run_tests(console: &mut Console, made: &Made, is_wanted: impl Fn(&Executable) -> bool) -> Result<()> {
    let all = made.tests.get().context("the tests are not built")?;
    let mut wanted = all.iter().filter(|test| is_wanted(test)).peekable();
    ensure!(wanted.peek().is_some(), "there is no such test");
    for test in wanted {
        console.say(&format!("\n-- {} {}", test.package, test.target))?;
        let mut command = test.command();
        if let Some(binary) = made.binary.get() {
            command.env("FLOTILLA_BINARY", binary);
        }
        // Suites print figures.
        if test.package == "flotilla-e2e" {
            command.arg("--nocapture");
        }
        console.run(command)?;
    }
    Ok(())
}

/// No suite is left out.
fn check_suites(tests: &[Executable]) -> Result<()> {
    let is_run = |name: &str| SUITES.iter().any(|(_, suite, ..)| *suite == name);
    let suites = tests
        .iter()
        .filter(|test| test.package == "flotilla-e2e" && test.is_integration);
    let idle: Vec<&str> = suites.map(|t| t.target.as_str()).filter(|name| !is_run(name)).collect();
    ensure!(idle.is_empty(), "no step runs the suites {idle:?}");
    Ok(())
}

/// Builds the binary that users run; it is to stay small.
fn build_release(console: &mut Console) -> Result<PathBuf> {
    let told = console.read(workspace::build_command(&["--release", "--locked"]))?;
    let path = workspace::binary_in(&told).context("cargo did not say where it put flotilla")?;
    let metadata = path
        .metadata()
        .with_context(|| format!("failed to look at {}", path.display()))?;
    console.say(&format!("{}: {} kB", path.display(), metadata.len() / 1000))?;
    if metadata.len() > BINARY_SIZE_MAX {
        bail!(
            "the binary has {} bytes, more than the {BINARY_SIZE_MAX} that it may have",
            metadata.len()
        );
    }
    Ok(path)
}

/// Builds what clusters run. In a process of its own, which can be ended with what it has started.
fn build_part(console: &mut Console, part: &str) -> Result<()> {
    let own = std::env::current_exe().context("failed to find our own executable")?;
    let mut command = Command::new(where_it_is_now(&own));
    command.args(["cluster", "build", part]);
    console.run(command)
}

/// Where the executable is that was started from `path`: cargo replaces it when it links it anew, as it does for tests that are built with
/// other features of libraries, and Linux then says of the one that runs that it is deleted.
fn where_it_is_now(path: &Path) -> PathBuf {
    let text = path.to_string_lossy();
    text.strip_suffix(" (deleted)")
        .map_or_else(|| path.to_owned(), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn steps_rest_on_steps_before_them() {
        let made = Made::default();
        let mut before = BTreeSet::new();
        for step in all(&made) {
            assert!(step.after.iter().all(|name| before.contains(name)), "{}", step.name);
            assert!(before.insert(step.name), "{}", step.name);
        }
        assert!(before.len() > 20);
    }

    #[test]
    fn an_executable_that_was_linked_anew_is_found() {
        let found = |path: &str| where_it_is_now(Path::new(path)).to_string_lossy().into_owned();
        assert_eq!(found("/a/target/debug/xtask"), "/a/target/debug/xtask");
        assert_eq!(found("/a/target/debug/xtask (deleted)"), "/a/target/debug/xtask");
    }

    #[test]
    fn a_suite_without_a_step_is_named() {
        let suite = |target: &str| Executable {
            package: "flotilla-e2e".to_owned(),
            target: target.to_owned(),
            is_integration: true,
            ..Executable::default()
        };
        check_suites(&[suite("faults")]).unwrap();
        let error = check_suites(&[suite("faults"), suite("new")]).unwrap_err();
        assert_eq!(error.to_string(), "no step runs the suites [\"new\"]");
    }
}
