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
    (
        "arbitrary input for admission, conversion, protobuf and annotations",
        &["test", "--manifest-path", "fuzz/Cargo.toml", "--locked"],
    ),
    ("documentation", &["doc", "--workspace", "--no-deps", "--locked"]),
];

/// Suites against a real control plane: what each is about, and its name in `e2e/tests`.
const SUITES: &[(&str, &str)] = &[
    ("behaviour on a real control plane", "behaviour"),
    ("CloneSets on a real control plane", "cloneset"),
    ("the simulated API server answers as the real one does", "apiserver"),
    ("kubectl against the playground and a real control plane", "playground"),
    ("the playground as a process", "process"),
    ("memory and time of the playground", "room"),
    ("plans, and what then happens on a real control plane", "plan"),
    ("admission and conversion on a real control plane", "webhook"),
    ("installing, rights, migrating, and the chart", "install"),
    ("sets that a Go manager left half done", "handover"),
    ("faults on a real control plane", "faults"),
    ("pods on a real node", "real_node"),
];

/// How large the binary may be, in bytes.
const BINARY_SIZE_MAX: u64 = 20_000_000;

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut times = Vec::new();
    for (name, arguments) in STATIC {
        times.push((*name, timed(name, || cargo_step(arguments))?));
    }
    let name = "two minutes of faults from fresh seeds";
    times.push((name, timed(name, || sim::hold(&["--minutes", "2"]))?));
    let name = "a minute of faults for CloneSets";
    times.push((name, timed(name, || sim::hold(&["--minutes", "1", "--kind", "clone"]))?));
    if !args.without_cluster {
        let name = "release build";
        times.push((name, timed(name, build_release)?));
        let name = "control plane build";
        times.push((name, timed(name, || Ok(build().map(drop)?))?));
        let name = "the control plane itself";
        let arguments = ["test", "-p", "flotilla-localcluster", "--locked"];
        times.push((name, timed(name, || cargo_step(&arguments))?));
        for (name, suite) in SUITES {
            let arguments = [
                "test",
                "-p",
                "flotilla-e2e",
                "--locked",
                "--test",
                suite,
                "--",
                "--nocapture",
            ];
            times.push((*name, timed(name, || cargo_step(&arguments))?));
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

/// Builds the binary that users run; it is to stay small.
fn build_release() -> Result<()> {
    let path = build_flotilla(&["--release", "--locked"])?;
    let metadata = path
        .metadata()
        .with_context(|| format!("failed to look at {}", path.display()))?;
    println!("{}: {} kB", path.display(), metadata.len() / 1000);
    ensure!(
        metadata.len() <= BINARY_SIZE_MAX,
        "the binary has {} bytes, more than the {BINARY_SIZE_MAX} that it may have",
        metadata.len()
    );
    Ok(())
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
