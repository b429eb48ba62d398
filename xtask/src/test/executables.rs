//! The test executables of the workspace, as cargo builds and names them.

use anyhow::{Context, Result, ensure};
use flotilla_localcluster::workspace;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A test executable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Executable {
    /// The package that it tests.
    pub(crate) package: String,
    /// Of a library or binary its name, of other tests that of their file.
    pub(crate) target: String,
    /// Whether it is one of the latter.
    pub(crate) is_integration: bool,
    /// The executable.
    pub(crate) path: PathBuf,
    /// That of the package's manifest.
    pub(crate) directory: PathBuf,
}

impl Executable {
    /// Runs it as cargo does.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command
            .current_dir(&self.directory)
            .env("CARGO_MANIFEST_DIR", &self.directory);
        command
    }
}

/// The command that builds all tests and tells, in JSON, where they are.
pub(crate) fn list_command() -> Command {
    let mut command = workspace::cargo();
    command
        .args(["test", "--workspace", "--locked", "--no-run"])
        .args(["--message-format", "json-render-diagnostics"]);
    command
}

/// What [`list_command`] has told.
pub(crate) fn listed(told: &str) -> Result<Vec<Executable>> {
    let mut found = Vec::new();
    for line in told.lines() {
        let message: Value = serde_json::from_str(line).with_context(|| format!("cargo said {line:?}"))?;
        if message["reason"] == "compiler-artifact" && message["profile"]["test"] == true {
            found.extend(executable(&message)?);
        }
    }
    ensure!(!found.is_empty(), "cargo has named no test");
    Ok(found)
}

fn executable(message: &Value) -> Result<Option<Executable>> {
    let Some(path) = message["executable"].as_str() else {
        return Ok(None);
    };
    let text = |value: &Value| {
        let text = value
            .as_str()
            .with_context(|| format!("cargo left something out: {message}"));
        text.map(str::to_owned)
    };
    let manifest = text(&message["manifest_path"])?;
    let kinds = message["target"]["kind"].as_array().into_iter().flatten();
    Ok(Some(Executable {
        package: package(&text(&message["package_id"])?),
        target: text(&message["target"]["name"])?,
        is_integration: kinds.into_iter().any(|kind| kind == "test"),
        path: path.into(),
        directory: Path::new(&manifest)
            .parent()
            .context("a manifest lies in a directory")?
            .to_owned(),
    }))
}

/// The name in an id such as `path+file:///flotilla/crates/api#flotilla-api@0.1.0`; where a directory is called as its package, the id
/// leaves the name out.
fn package(id: &str) -> String {
    let (place, version) = id.rsplit_once('#').unwrap_or((id, ""));
    match version.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => place.rsplit('/').next().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_told_from_other_artifacts() {
        let told = concat!(
            r#"{"reason":"compiler-artifact","package_id":"path+file:///f/crates/api#flotilla-api@0.1.0","manifest_path":"/f/crates/api/Cargo.toml","target":{"kind":["lib"],"name":"flotilla_api"},"profile":{"test":false},"executable":null}"#,
            "\n",
            r#"{"reason":"compiler-artifact","package_id":"path+file:///f/crates/flotilla#0.1.0","manifest_path":"/f/crates/flotilla/Cargo.toml","target":{"kind":["bin"],"name":"flotilla"},"profile":{"test":true},"executable":"/t/flotilla-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","package_id":"path+file:///f/e2e#flotilla-e2e@0.1.0","manifest_path":"/f/e2e/Cargo.toml","target":{"kind":["test"],"name":"faults"},"profile":{"test":true},"executable":"/t/faults-1"}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        let found = listed(told).unwrap();
        let names: Vec<_> = found
            .iter()
            .map(|e| (e.package.as_str(), e.target.as_str(), e.is_integration))
            .collect();
        assert_eq!(
            names,
            [("flotilla", "flotilla", false), ("flotilla-e2e", "faults", true)]
        );
        let command = found[1].command();
        assert_eq!(command.get_program(), "/t/faults-1");
        assert_eq!(command.get_current_dir(), Some(Path::new("/f/e2e")));
        assert!(listed("").is_err());
    }
}
