//! `cargo xtask test`: everything that CI runs, in the order in which it fails fastest.

use crate::sim;
use crate::workspace::{build_flotilla, cargo};
use anyhow::{Context, Result, ensure};
use flotilla_localcluster::build;
use std::process::ExitCode;
use std::time::Instant;

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Leave out what needs a control plane.
    #[arg(long)]
    without_cluster: bool,
}

/// A step: its name, and the arguments of cargo.
type Step = (&'static str, &'static [&'static str]);

const STATIC: &[Step] = &[
    ("format", &["fmt", "--all", "--check"]),
    (
        "lints",
        &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ],
    ),
    (
        "unit, table and property tests, tidiness",
        &[
            "test",
            "--workspace",
            "--locked",
            "--exclude",
            "flotilla-e2e",
            "--exclude",
            "flotilla-localcluster",
        ],
    ),
    ("documentation", &["doc", "--workspace", "--no-deps", "--locked"]),
];

const REAL: &[Step] = &[
    (
        "the control plane itself",
        &["test", "-p", "flotilla-localcluster", "--locked"],
    ),
    (
        "behaviour on a real control plane",
        &["test", "-p", "flotilla-e2e", "--locked", "--test", "behaviour"],
    ),
    (
        "faults on a real control plane",
        &[
            "test",
            "-p",
            "flotilla-e2e",
            "--locked",
            "--test",
            "faults",
            "--",
            "--nocapture",
        ],
    ),
];

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut times = Vec::new();
    for (name, arguments) in STATIC {
        times.push((*name, timed(name, || cargo_step(arguments))?));
    }
    let name = "two minutes of faults from fresh seeds";
    times.push((name, timed(name, || sim::hold(&["--minutes", "2"]))?));
    if !args.without_cluster {
        times.push((
            "release build",
            timed("release build", || build_flotilla(&["--release", "--locked"]).map(drop))?,
        ));
        times.push((
            "control plane build",
            timed("control plane build", || Ok(build().map(drop)?))?,
        ));
        for (name, arguments) in REAL {
            times.push((*name, timed(name, || cargo_step(arguments))?));
        }
    }
    println!("\nall passed");
    let total: f32 = times.iter().map(|(_, seconds)| seconds).sum();
    for (name, seconds) in times {
        println!("{seconds:>7.0} s  {name}");
    }
    println!("{total:>7.0} s  together");
    Ok(ExitCode::SUCCESS)
}

/// Does one step and returns how long it took, in seconds.
// A tool may tell how long it took; it decides nothing by it.
#[allow(clippy::disallowed_methods)]
fn timed(name: &str, step: impl FnOnce() -> Result<()>) -> Result<f32> {
    println!("\n== {name}");
    let begun = Instant::now();
    step().with_context(|| format!("step failed: {name}"))?;
    Ok(begun.elapsed().as_secs_f32())
}

fn cargo_step(arguments: &[&str]) -> Result<()> {
    let mut command = cargo();
    // Links that lead nowhere are defects of the documentation.
    command.args(arguments).env("RUSTDOCFLAGS", "-D warnings");
    let status = command.status().context("failed to run cargo")?;
    ensure!(status.success(), "`cargo {}` failed; see above", arguments.join(" "));
    Ok(())
}
