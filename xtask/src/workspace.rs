//! Where the workspace is, and how its binaries are built.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the workspace")
        .to_owned()
}

/// Cargo, as it runs us, in the workspace.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Builds the binary `flotilla` and says where it is. `options` are cargo's, such as `--release`.
pub(crate) fn build_flotilla(options: &[&str]) -> Result<PathBuf> {
    let mut command = cargo();
    command
        .args([
            "build",
            "-p",
            "flotilla",
            "--bin",
            "flotilla",
            "--message-format",
            "json-render-diagnostics",
        ])
        .args(options);
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("failed to run cargo")?;
    ensure!(
        output.status.success(),
        "failed to build flotilla; cargo says why above"
    );
    let text = String::from_utf8_lossy(&output.stdout);
    let mut messages = text
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let binary = messages.find_map(|m| m["executable"].as_str().map(PathBuf::from));
    binary.context("cargo did not say where it put flotilla")
}
