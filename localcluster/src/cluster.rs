//! A named cluster: starting, asking, breaking and ending it.

mod real;

use crate::build::{Binaries, build, build_node, cache_directory};
use crate::clock;
use crate::component::{Component, Context};
use crate::error::Error;
use crate::manifest;
use crate::node::{NodeState, real_node_unavailable};
use crate::pki::{Pki, write_private};
use crate::port::is_free;
use crate::process::{Process, cpu_seconds_of, is_alive, peak_rss_bytes_of};
use crate::state::{Ports, State};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// How long a component may take to become ready.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How long a component may take to end when asked.
const END_WITHIN: Duration = Duration::from_secs(4);

/// What is recorded of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Audit {
    #[default]
    Nothing,
    Writes,
    Everything,
}

/// What a cluster is to be like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) nodes: u32,
    pub(crate) statefulset_controller: bool,
    /// What the audit log holds.
    #[serde(default)]
    pub(crate) audit: Audit,
    /// Admission plugins beyond those that every cluster has.
    #[serde(default)]
    pub(crate) admission_plugins: Vec<String>,
    pub(crate) stock_limits: bool,
}

/// Says what a cluster is to be like, and starts it.
#[derive(Clone, Debug)]
pub struct Builder {
    name: String,
    settings: Settings,
    real_node: bool,
    /// What the clusters of earlier runs are called, up to the process id, if this one is to be a run's own.
    disposable: Option<String>,
}

impl Builder {
    /// How many simulated nodes it has; 5 unless told.
    pub fn nodes(mut self, count: u32) -> Self {
        self.settings.nodes = count;
        self
    }

    /// Runs the controller-manager without its StatefulSet controller.
    pub fn without_statefulset_controller(mut self) -> Self {
        self.settings.statefulset_controller = false;
        self
    }

    /// Records every write: see [`Cluster::audit_log_path`].
    pub fn audit_log(mut self) -> Self {
        self.settings.audit = Audit::Writes;
        self
    }

    /// Records reads and watches too.
    pub fn audit_reads(mut self) -> Self {
        self.settings.audit = Audit::Everything;
        self
    }

    /// Switches an admission plugin of the API server on that is off by default.
    pub fn admission_plugin(mut self, name: &str) -> Self {
        self.settings.admission_plugins.push(name.to_owned());
        self
    }

    /// Keeps the client limits and the API server's fairness of a stock cluster, instead of lifting them.
    pub fn stock_limits(mut self) -> Self {
        self.settings.stock_limits = true;
        self
    }

    /// Adds a real node, `real-0`, with the label `type=real`: a kubelet that runs containers of a few test images. It needs root and
    /// more: see [`real_node_unavailable`].
    pub fn real_node(mut self) -> Self {
        self.real_node = true;
        self
    }

    /// Starts the cluster; it ends when the value is dropped, unless [`Cluster::keep`] is called. A cluster of this name that is there
    /// already is completed: whatever is not running is started.
    pub fn start(self) -> Result<Cluster, Error> {
        check_name(&self.name)?;
        if let Some(prefix) = &self.disposable {
            sweep(prefix)?;
        }
        if let Some(reason) = real_node_unavailable().filter(|_| self.real_node) {
            return Err(Error::NoRealNode(reason));
        }
        let binaries = build()?;
        let directory = directory(&self.name);
        fs::create_dir_all(directory.join("log")).map_err(|e| Error::io("create", &directory, e))?;
        let state = match State::read(&directory) {
            Some(known) => State {
                ports: known.ports,
                settings: self.settings,
                node: known.node.or_else(|| self.real_node.then(NodeState::default)),
            },
            None => State {
                ports: Ports::free()?,
                settings: self.settings,
                node: self.real_node.then(NodeState::default),
            },
        };
        let node_binaries = state.node.is_some().then(build_node).transpose()?;
        state.write(&directory)?;
        let pki = Pki::open(directory.join("pki"))?;
        let mut cluster = Cluster::new(self.name, directory, state, pki, (binaries, node_binaries));
        // What was started before a failure is taken down by dropping the value.
        cluster.bring_up()?;
        Ok(cluster)
    }
}

/// A running cluster.
pub struct Cluster {
    name: String,
    directory: PathBuf,
    state: State,
    pki: Pki,
    binaries: Binaries,
    /// Of the real node, if it has one.
    node_binaries: Option<Binaries>,
    kubeconfig: PathBuf,
    audit_log: PathBuf,
    is_kept: bool,
}

impl Cluster {
    /// A cluster of this name, with five nodes.
    pub fn builder(name: &str) -> Builder {
        let settings = Settings {
            nodes: 5,
            statefulset_controller: true,
            audit: Audit::Nothing,
            admission_plugins: Vec::new(),
            stock_limits: false,
        };
        Builder {
            name: name.to_owned(),
            settings,
            real_node: false,
            disposable: None,
        }
    }

    /// A cluster of one run of a test or a bench. Its name ends with our process id, so that runs side by side do not meet, and it begins
    /// empty: what a killed run has left of this name is taken down first.
    pub fn disposable(name: &str) -> Builder {
        let mut builder = Cluster::builder(&format!("{name}-{}", std::process::id()));
        builder.disposable = Some(format!("{name}-"));
        builder
    }

    /// A cluster that was started before and kept.
    pub fn open(name: &str) -> Result<Self, Error> {
        check_name(name)?;
        let directory = directory(name);
        let state = State::read(&directory).ok_or_else(|| Error::NoSuchCluster(name.to_owned()))?;
        let pki = Pki::open(directory.join("pki"))?;
        let node_binaries = state.node.is_some().then(build_node).transpose()?;
        let mut cluster = Cluster::new(name.to_owned(), directory, state, pki, (build()?, node_binaries));
        cluster.keep();
        Ok(cluster)
    }

    fn new(name: String, directory: PathBuf, state: State, pki: Pki, binaries: (Binaries, Option<Binaries>)) -> Self {
        let (binaries, node_binaries) = binaries;
        let (kubeconfig, audit_log) = (pki.path("admin.kubeconfig"), directory.join("audit.log"));
        Cluster {
            name,
            directory,
            state,
            pki,
            binaries,
            node_binaries,
            kubeconfig,
            audit_log,
            is_kept: false,
        }
    }

    /// Leaves it running when the value is dropped.
    pub fn keep(&mut self) {
        self.is_kept = true;
    }

    fn bring_up(&mut self) -> Result<(), Error> {
        let port = self.state.ports.apiserver;
        for user in ["admin", "controller-manager", "scheduler", "kwok", "provisioner"] {
            self.pki.kubeconfig(user, port)?;
        }
        let scheduler = manifest::scheduler(
            &self.pki.path("scheduler.kubeconfig").display().to_string(),
            self.state.settings.stock_limits,
        );
        write_private(&self.directory.join("scheduler.json"), &scheduler.to_string())?;
        write_private(
            &self.directory.join("audit-policy.json"),
            &manifest::audit_policy(self.state.settings.audit).to_string(),
        )?;
        self.launch(Component::Etcd)?;
        self.launch(Component::Apiserver)?;
        self.wait_ready(Component::Apiserver)?;
        self.launch(Component::ControllerManager)?;
        self.launch(Component::Scheduler)?;
        self.apply(&manifest::storage_classes())?;
        self.launch(Component::Provisioner)?;
        if self.state.settings.nodes > 0 {
            self.apply(&manifest::nodes(self.state.settings.nodes))?;
            self.launch(Component::Kwok)?;
        }
        self.wait_usable()?;
        if self.state.node.is_some() {
            self.bring_up_node()?;
        }
        Ok(())
    }

    /// The default service account, through which every pod is made, and all nodes.
    fn wait_usable(&self) -> Result<(), Error> {
        let has_account = || {
            self.kubectl(&["-n", "default", "get", "serviceaccount", "default"])
                .is_ok_and(|o| o.status.success())
        };
        if !clock::poll(READY_WITHIN, has_account) {
            return Err(self.not_ready(Component::ControllerManager));
        }
        if self.state.settings.nodes == 0 {
            return Ok(());
        }
        let arguments = [
            "wait",
            "--for=condition=Ready",
            "node",
            "-l",
            "type=kwok",
            "--timeout=60s",
        ];
        let output = self.kubectl(&arguments)?;
        if output.status.success() {
            Ok(())
        } else {
            Err(self.not_ready(Component::Kwok))
        }
    }

    fn launch(&self, component: Component) -> Result<(), Error> {
        let process = self.process(component);
        if process.pid().is_some() {
            return Ok(());
        }
        let ports = &self.state.ports;
        let port = match component {
            Component::Etcd => Some(ports.etcd),
            Component::Apiserver => Some(ports.apiserver),
            Component::ControllerManager => Some(ports.controller_manager),
            Component::Scheduler => Some(ports.scheduler),
            Component::Kwok => Some(ports.kwok),
            // What a real node runs serves at an address of its own.
            Component::Provisioner | Component::Registry | Component::Containerd | Component::Kubelet => None,
        };
        // A component that was just killed may take a moment to give its port back.
        if let Some(port) = port.filter(|port| !clock::poll(Duration::from_secs(5), || is_free(*port))) {
            return Err(Error::PortBusy {
                component: component.name().to_owned(),
                port,
                cluster: self.name.clone(),
            });
        }
        let context = Context {
            binaries: &self.binaries,
            pki: &self.pki,
            ports,
            settings: &self.state.settings,
            directory: &self.directory,
            node: self.node(),
        };
        process.start(context.command(component))
    }

    fn process(&self, component: Component) -> Process {
        let name = component.name();
        Process {
            name,
            pid_file: self.directory.join(format!("{name}.pid")),
            log: self.directory.join("log").join(format!("{name}.log")),
        }
    }

    fn wait_ready(&self, component: Component) -> Result<(), Error> {
        let answers = || {
            self.kubectl(&["get", "--raw=/readyz"])
                .is_ok_and(|o| o.status.success())
        };
        let ended = || self.process(component).pid().is_none() || self.process(Component::Etcd).pid().is_none();
        if clock::poll(READY_WITHIN, || answers() || ended()) && answers() {
            return Ok(());
        }
        let culprit = if self.process(Component::Etcd).pid().is_none() {
            Component::Etcd
        } else {
            component
        };
        Err(self.not_ready(culprit))
    }

    fn not_ready(&self, component: Component) -> Error {
        let log = self.process(component).log_tail();
        Error::NotReady {
            component: component.name().to_owned(),
            seconds: READY_WITHIN.as_secs(),
            log,
        }
    }

    /// Creates or updates objects.
    fn apply(&self, objects: &serde_json::Value) -> Result<(), Error> {
        let mut command = self.kubectl_command(&["apply", "--server-side", "--force-conflicts", "-f", "-"]);
        let failed = |e| Error::Io {
            what: "run kubectl apply".to_owned(),
            source: e,
        };
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(objects.to_string().as_bytes()).map_err(failed)?;
        }
        let output = child.wait_with_output().map_err(failed)?;
        if output.status.success() {
            return Ok(());
        }
        Err(Error::Kubectl {
            what: "apply objects".to_owned(),
            output: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// The kubeconfig of an administrator.
    pub fn kubeconfig_path(&self) -> &Path {
        &self.kubeconfig
    }

    /// The audit log, if it was asked for: one JSON object a line.
    pub fn audit_log_path(&self) -> &Path {
        &self.audit_log
    }

    /// The socket of the real node's container runtime, if there is a real node.
    pub fn runtime_socket(&self) -> Option<PathBuf> {
        self.node().map(|node| node.socket())
    }

    /// A kubeconfig for a user of this name in these groups.
    pub fn user_kubeconfig(&self, user: &str, groups: &[&str]) -> Result<PathBuf, Error> {
        self.pki.sign(user, user, groups, &[])?;
        self.pki.kubeconfig(user, self.state.ports.apiserver)
    }

    /// Runs the pinned kubectl as the administrator.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<Output, Error> {
        self.kubectl_command(arguments).output().map_err(|e| Error::Io {
            what: "run kubectl".to_owned(),
            source: e,
        })
    }

    /// Where the pinned kubectl is.
    pub fn kubectl_path(&self) -> PathBuf {
        self.binaries.path("kubectl")
    }

    /// The pinned kubectl as the administrator, to be run by the caller.
    pub fn kubectl_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.binaries.path("kubectl"));
        command.arg("--kubeconfig").arg(self.kubeconfig_path());
        // What kubectl remembers of a server is filed by address and port; the next cluster on this port is another one.
        command
            .arg("--cache-dir")
            .arg(self.kubeconfig_path().with_file_name("discovery"));
        command.args(arguments);
        command
    }

    /// The process id of a component that runs.
    pub fn pid(&self, component: Component) -> Option<u32> {
        self.process(component).pid()
    }

    /// Processor time that a component has used since it was started, in seconds.
    pub fn cpu_seconds(&self, component: Component) -> Option<f64> {
        self.pid(component).and_then(cpu_seconds_of)
    }

    /// The most memory that a component has held at once, in bytes.
    pub fn peak_rss_bytes(&self, component: Component) -> Option<u64> {
        self.pid(component).and_then(peak_rss_bytes_of)
    }

    /// The port of the API server.
    pub fn apiserver_port(&self) -> u16 {
        self.state.ports.apiserver
    }

    /// The port on which the controller-manager serves its metrics, to those who may read them.
    pub fn controller_manager_port(&self) -> u16 {
        self.state.ports.controller_manager
    }

    /// Ends a component without warning.
    pub fn kill(&self, component: Component) -> Result<(), Error> {
        self.process(component).kill();
        Ok(())
    }

    /// Starts a component that has ended, with the data and port that it had. Waits for the API server to serve.
    pub fn start(&self, component: Component) -> Result<(), Error> {
        self.launch(component)?;
        match component {
            Component::Etcd | Component::Apiserver => self.wait_ready(component),
            _ => Ok(()),
        }
    }

    /// Restarts the controller-manager with or without its StatefulSet controller.
    pub fn set_statefulset_controller(&mut self, runs: bool) -> Result<(), Error> {
        self.state.settings.statefulset_controller = runs;
        self.state.write(&self.directory)?;
        self.process(Component::ControllerManager).stop(END_WITHIN);
        self.launch(Component::ControllerManager)
    }

    /// One line a component: its name, process id and port.
    pub fn status(&self) -> Vec<String> {
        let line = |component: Component| match self.pid(component) {
            Some(pid) => format!("{:<24} running, pid {pid}", component.name()),
            None => format!("{:<24} not running", component.name()),
        };
        let has = |component: &Component| self.state.node.is_some() || !Component::REAL.contains(component);
        Component::ALL.into_iter().filter(has).map(line).collect()
    }

    /// Ends every process and removes everything that the cluster has written.
    pub fn down(mut self) -> Result<(), Error> {
        self.is_kept = true;
        self.end()
    }

    fn end(&self) -> Result<(), Error> {
        let node_ended = self.end_node();
        // The API server waits for open watches before it ends; its clients go first.
        for component in Component::ALL.into_iter().rev() {
            self.process(component).stop(END_WITHIN);
        }
        // The directory tells what there was, so it stays while something of the node does.
        node_ended?;
        fs::remove_dir_all(&self.directory).map_err(|e| Error::io("remove", &self.directory, e))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        if let Err(error) = self.end() {
            eprintln!("failed to take the cluster {} down: {error}", self.name);
        }
    }
}

/// Names of the clusters that are there.
pub fn names() -> Vec<String> {
    let entries = fs::read_dir(cache_directory().join("clusters"))
        .into_iter()
        .flatten()
        .flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| entry.path().join("state.json").exists())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Takes down the disposable clusters of this prefix whose run has ended without doing so.
fn sweep(prefix: &str) -> Result<(), Error> {
    for name in names() {
        let run = name.strip_prefix(prefix).and_then(|pid| pid.parse::<u32>().ok());
        // Our own process id was somebody else's if there is a cluster of it before we have made one.
        let is_left = run.is_some_and(|pid| pid == std::process::id() || !is_alive(pid));
        if is_left {
            Cluster::open(&name)?.down()?;
        }
    }
    Ok(())
}

/// Takes down the disposable clusters whose names begin with this and whose runs have ended without doing so.
pub fn end_abandoned(prefix: &str) -> Result<(), Error> {
    for name in names().into_iter().filter(|name| name.starts_with(prefix)) {
        let run = name.rsplit_once('-').and_then(|(_, pid)| pid.parse::<u32>().ok());
        if run.is_some_and(|pid| !is_alive(pid)) {
            Cluster::open(&name)?.down()?;
        }
    }
    Ok(())
}

fn directory(name: &str) -> PathBuf {
    cache_directory().join("clusters").join(name)
}

fn check_name(name: &str) -> Result<(), Error> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > 40 || !name.chars().all(fits) {
        return Err(Error::BadName(name.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_the_directory() {
        for bad in ["", "..", "a/b", "A", "x y"] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
        assert!(check_name("e2e-1").is_ok());
    }
}
