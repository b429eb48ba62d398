//! Installing on a real control plane: what is applied, what the manager may do, uninstalling, migrating, and the Helm chart.
//!
//! Nodes are simulated and run no process, so that the manager is started here, as the account and with the arguments of the installed
//! Deployment.

#[path = "install/added.rs"]
mod added;
#[path = "install/agents.rs"]
mod agents;
#[path = "install/chart.rs"]
mod chart;
#[path = "install/held.rs"]
mod held;
#[path = "install/lifecycle.rs"]
mod lifecycle;
#[path = "install/migrate.rs"]
mod migrate;
#[path = "install/rights.rs"]
mod rights;

use flotilla_e2e::Api;
use flotilla_e2e::suite::trial;
use libtest_mimic::Arguments;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// What a command said.
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs the binary against a cluster.
pub(crate) fn flotilla(kubeconfig: &Path, args: &[&str]) -> Said {
    let mut command = Command::new(flotilla_e2e::manager::binary());
    command.arg("--kubeconfig").arg(kubeconfig).args(args);
    said(command)
}

pub(crate) fn kubectl() -> PathBuf {
    flotilla_localcluster::build()
        .expect("the binaries are built")
        .path("kubectl")
}

pub(crate) fn said(mut command: Command) -> Said {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    Said {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Said {
    /// What it printed, if it did what was asked.
    pub(crate) fn done(self) -> String {
        assert_eq!(self.code, 0, "{}{}", self.out, self.err);
        self.out
    }

    /// Why it refused.
    pub(crate) fn refused(self) -> String {
        assert_eq!(self.code, 1, "{}{}", self.out, self.err);
        self.err
    }
}

/// That a text holds all of these.
pub(crate) fn says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
}

/// The container of the installed Deployment.
pub(crate) async fn deployed(api: &Api) -> Value {
    let path = "/apis/apps/v1/namespaces/flotilla-system/deployments/flotilla-manager";
    api.read(path).await["spec"]["template"]["spec"]["containers"][0].take()
}

/// Its arguments, but for the port: other suites' managers may have it.
pub(crate) fn arguments(container: &Value, http_address: &str) -> Vec<String> {
    let given = container["args"].as_array().expect("arguments").iter();
    let given = given.filter_map(Value::as_str).map(|arg| {
        if arg.starts_with("--http-address=") {
            format!("--http-address={http_address}")
        } else if arg.starts_with("--health-address=") {
            "--health-address=none".to_owned()
        } else {
            arg.to_owned()
        }
    });
    given.collect()
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Each scenario has a cluster of its own.
    arguments.test_threads.get_or_insert(1);
    let trials = vec![
        trial(
            "agents::are_waited_for_and_held_to_their_node",
            agents::are_waited_for_and_held_to_their_node,
        ),
        trial("chart::is_what_install_applies", chart::is_what_install_applies),
        trial("chart::installs_and_goes", chart::installs_and_goes),
        trial(
            "lifecycle::over_an_older_definition",
            lifecycle::over_an_older_definition,
        ),
        trial(
            "lifecycle::over_what_our_managers_wrote",
            lifecycle::over_what_our_managers_wrote,
        ),
        trial("lifecycle::there_and_gone_again", lifecycle::there_and_gone_again),
        trial(
            "rights::each_is_used_and_none_is_missing",
            rights::each_is_used_and_none_is_missing,
        ),
        trial("migrate::there_and_back", migrate::there_and_back),
        trial(
            "migrate::goes_on_after_an_interruption",
            migrate::goes_on_after_an_interruption,
        ),
        trial("migrate::refuses", migrate::refuses),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}
