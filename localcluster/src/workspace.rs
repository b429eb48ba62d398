//! The workspace, for its tools and suites: where it is, and cargo as it is started from one of its own programs.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crate lies in the workspace")
        .to_owned()
}

/// Cargo in the workspace, without what the cargo that runs us has told us about our own package: build scripts that look at it (that of
/// `ring`) would run again, and all that uses TLS would be compiled again.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_about_a_package)) {
        command.env_remove(name);
    }
    command
}

/// Whether cargo sets this variable to say which package it is that runs.
fn is_about_a_package(variable: &str) -> bool {
    variable.starts_with("CARGO_PKG_") || variable.starts_with("CARGO_MANIFEST_")
}

/// The command that builds the binary `flotilla` and tells on standard output, in JSON, where it is. `options` are cargo's, such as
/// `--release`.
pub fn build_command(options: &[&str]) -> Command {
    let mut command = cargo();
    command
        .args(["build", "-p", "flotilla", "--bin", "flotilla"])
        .args(["--message-format", "json-render-diagnostics"])
        .args(options);
    command
}

/// Where the binary is, by what [`build_command`] has told.
pub fn binary_in(told: &str) -> Option<PathBuf> {
    let mut messages = told
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    messages.find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

/// Builds the binary `flotilla` and says where it is; what cargo has to say goes to standard error.
pub fn build_flotilla(options: &[&str]) -> Result<PathBuf, String> {
    let output = build_command(options)
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|e| format!("failed to run cargo: {e}"))?;
    if !output.status.success() {
        return Err("failed to build flotilla; cargo says why above".to_owned());
    }
    binary_in(&String::from_utf8_lossy(&output.stdout))
        .ok_or_else(|| "cargo did not say where it put flotilla".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn cargo_is_not_told_about_our_package() {
        // Cargo, which runs this test, says which package it is.
        assert!(std::env::var_os("CARGO_PKG_NAME").is_some() || std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let command = cargo();
        let kept = |name: &str| {
            std::env::var_os(name).is_some() && !command.get_envs().any(|(n, v)| n == OsStr::new(name) && v.is_none())
        };
        let told: Vec<String> = std::env::vars()
            .map(|(name, _)| name)
            .filter(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
            .filter(|name| kept(name))
            .collect();
        assert!(told.is_empty(), "{told:?}");
        assert!(!kept("CARGO_MANIFEST_DIR") && std::env::var_os("PATH").is_some() == kept("PATH"));
    }

    #[test]
    fn the_binary_is_what_cargo_names() {
        let told = "{\"reason\":\"build-script-executed\"}\nnot JSON\n\
                    {\"reason\":\"compiler-artifact\",\"executable\":null}\n\
                    {\"reason\":\"compiler-artifact\",\"executable\":\"/t/release/flotilla\"}\n";
        assert_eq!(binary_in(told), Some(PathBuf::from("/t/release/flotilla")));
        assert_eq!(binary_in(""), None);
    }
}
