//! The manager, or the agent of a node, as a process.

use crate::{clock, suite};
use flotilla_localcluster::workspace;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

/// A running manager or agent. Dropping it kills it.
pub struct Manager {
    name: String,
    child: Child,
    log: PathBuf,
}

/// The binary: built once, or the one that `FLOTILLA_BINARY` names.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("FLOTILLA_BINARY") {
        Some(path) => path.into(),
        None => build(),
    })
}

fn build() -> PathBuf {
    // The release binary is what users run; its figures are the ones that count.
    workspace::build_flotilla(&["--release", "--quiet"]).unwrap_or_else(|e| panic!("{e}"))
}

impl Manager {
    /// Starts a manager for both kinds, without leader election and at once, unless `args` say otherwise. Its log goes beside the
    /// kubeconfig.
    pub fn start(kubeconfig: &Path, name: &str, args: &[&str]) -> Self {
        let mut all = vec!["manager", "--native-statefulset", "--identity", name];
        all.extend(args);
        Self::run(kubeconfig, name, &all, &[])
    }

    /// Runs the binary with these arguments and variables, and nothing else but the kubeconfig.
    pub fn run(kubeconfig: &Path, name: &str, args: &[&str], variables: &[(&str, &str)]) -> Self {
        let log = kubeconfig.with_file_name(format!("manager-{name}.log"));
        let out = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .expect("the log can be written");
        let child = Command::new(binary())
            .args(args)
            .args(["--kubeconfig".as_ref(), kubeconfig.as_os_str()])
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(out.try_clone().expect("the log can be shared"))
            .stderr(out)
            .spawn()
            .expect("the manager starts");
        let name = name.to_owned();
        Manager { name, child, log }
    }

    /// Starts the one manager of a scenario: no election, no observation period, no HTTP.
    pub fn alone(kubeconfig: &Path) -> Self {
        Self::start(
            kubeconfig,
            "alone",
            &["--leader-elect=false", "--observation-seconds=0", "--http-address=none"],
        )
    }

    /// Starts the agent of a node, with the socket of its runtime.
    pub fn agent(kubeconfig: &Path, name: &str, node: &str, socket: &Path, args: &[&str]) -> Self {
        let (node, endpoint) = (
            format!("--node-name={node}"),
            format!("--runtime-endpoint=unix://{}", socket.display()),
        );
        let mut all = vec!["agent", node.as_str(), endpoint.as_str()];
        all.extend(args);
        Self::run(kubeconfig, name, &all, &[])
    }

    /// What the scenario calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name, such as TERM or KILL.
    pub fn signal(&self, signal: &str) {
        let status = Command::new("kill")
            .args([&format!("-{signal}"), &self.pid().to_string()])
            .status()
            .expect("kill runs");
        assert!(status.success(), "failed to send {signal} to the manager");
    }

    /// Ends it without warning.
    pub fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it has ended");
    }

    /// Waits until it has ended by itself.
    ///
    /// # Panics
    /// When it has not within the time.
    pub async fn ended(&mut self, within: Duration) -> ExitStatus {
        let begun = clock::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("its state can be asked") {
                return status;
            }
            assert!(begun.elapsed() < within, "the manager did not end within {within:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Whether it is still running.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("its state can be asked").is_none()
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A scenario fails with it: why, its log may say, which goes with the cluster.
            suite::print_last_words(self, 30);
        }
        if self.is_running() {
            self.kill();
        }
    }
}
