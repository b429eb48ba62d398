//! `cargo xtask sim`: builds the simulator of faults as fast code, and runs it.

use crate::workspace::cargo;
use anyhow::{Context, Result, ensure};
use std::ffi::OsStr;
use std::process::Command;
use std::process::ExitCode;

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

/// Runs it, and fails if it finds something.
pub(crate) fn hold(options: &[&str]) -> Result<()> {
    let status = command(options).status().context("failed to run cargo")?;
    ensure!(status.success(), "the simulator of faults found something; see above");
    Ok(())
}

fn command(options: &[impl AsRef<OsStr>]) -> Command {
    let mut command = cargo();
    command.args([
        "run",
        "--quiet",
        "--profile",
        "sim",
        "--locked",
        "-p",
        "flotilla-faultsim",
        "--",
    ]);
    command.args(options);
    command
}
