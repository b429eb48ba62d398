//! `cargo xtask sim`: builds the simulator of faults as fast code, and runs it.

use crate::workspace::cargo;
use anyhow::{Context, Result};
use std::process::ExitCode;

/// What the simulator is told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Options of the simulator.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
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
    let status = command.args(&args.options).status().context("failed to run cargo")?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
