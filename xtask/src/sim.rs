//! `cargo xtask sim`: builds the simulator of faults as fast code, and runs it.

use anyhow::{Context, Result};
use flotilla_localcluster::workspace::cargo;
use std::ffi::OsStr;
use std::process::Command;
use std::process::ExitCode;

/// What is built, and how.
const PACKAGE: [&str; 5] = ["--profile", "sim", "--locked", "-p", "flotilla-faultsim"];

/// What the simulator is told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Options of the simulator.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let status = command(&args.options).status().context("failed to run cargo")?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Cargo, which builds the simulator if it is not built, and runs it with these options.
pub(crate) fn command(options: &[impl AsRef<OsStr>]) -> Command {
    let mut command = cargo();
    command.args(["run", "--quiet"]).args(PACKAGE).arg("--").args(options);
    command
}

/// Cargo, which builds the simulator.
pub(crate) fn build_command() -> Command {
    let mut command = cargo();
    command.arg("build").args(PACKAGE);
    command
}
