//! `cargo xtask sim`: builds the simulator of faults as fast code, and runs it.

use anyhow::{Context, Result, ensure};
use flotilla_localcluster::workspace::{self, cargo};
use std::ffi::OsStr;
use std::ops::Range;
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

/// So many seeds that follow from the source that is committed: others for each change, and the same whenever the same is tested, so
/// that a test which failed fails again, and one that passed does not fail by chance.
pub(crate) fn seeds_of_source(count: u64) -> Result<Range<u64>> {
    let mut git = Command::new("git");
    git.args(["rev-parse", "HEAD^{tree}"]).current_dir(workspace::root());
    let output = git.output().context("failed to run git")?;
    let told = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "git did not tell the tree that is committed; seeds follow from it: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    range_of(told.trim(), count)
}

/// The first 60 bits of a tree's name are where they begin.
fn range_of(tree: &str, count: u64) -> Result<Range<u64>> {
    let digits = tree.get(..15).with_context(|| format!("{tree:?} names no tree"))?;
    let begin = u64::from_str_radix(digits, 16).with_context(|| format!("{tree:?} names no tree"))?;
    Ok(begin..begin + count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_follow_from_the_tree() {
        let range = range_of("00000000000000f42cd8", 3).unwrap();
        assert_eq!(range, 15..18);
        assert_eq!(range_of(&"f".repeat(40), 1).unwrap().start, (1 << 60) - 1);
        assert!(range_of("none", 1).is_err() && range_of("this-is-no-tree-at-all", 1).is_err());
        assert_eq!(seeds_of_source(7).unwrap(), seeds_of_source(7).unwrap());
    }
}
