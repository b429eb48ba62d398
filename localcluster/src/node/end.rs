//! Taking a node down, whatever is left of it.
//!
//! Nothing is asked of containerd, which may be gone: the processes of pods are found by their cgroup, those that watch over them by the
//! socket that they were started with, mounts by where they are.

use super::{Node, machine};
use crate::clock;
use crate::error::Error;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long killed processes may take to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(10);
/// Where the kubelet leaves links to logs, whatever it is told.
const LOG_LINKS: &str = "/var/log/containers";
/// Where the kubelet listens for plugins for devices, whatever it is told.
const DEVICES_SOCKET: &str = "/var/lib/kubelet/device-plugins/kubelet.sock";
/// Directories outside the cluster's own, inner ones first.
const LEFT: &[&str] = &[
    LOG_LINKS,
    "/var/lib/kubelet/device-plugins",
    "/var/lib/kubelet",
    "/run/containerd/s",
    "/run/containerd",
];

impl Node<'_> {
    /// Ends everything that runs in pods. The kubelet must have ended, or it would start them anew.
    pub(crate) fn end_pods(&self) -> Result<(), Error> {
        let cgroups = machine::cgroup_paths(&self.cgroup());
        let left = || {
            cgroups
                .iter()
                .flat_map(|path| processes_below(path))
                .collect::<Vec<u32>>()
        };
        let all_gone = clock::poll(GONE_WITHIN, || {
            let left = left();
            left.iter().copied().for_each(kill);
            left.is_empty()
        });
        if all_gone {
            return Ok(());
        }
        Err(Error::RealNode(format!("processes of pods do not end: {:?}", left())))
    }

    /// Ends the shims, which outlive containerd by design, and removes their sockets. containerd must have ended.
    pub(crate) fn end_shims(&self, sockets: Vec<PathBuf>) -> Result<(), Error> {
        let all_gone = clock::poll(GONE_WITHIN, || {
            let left = self.shims();
            left.iter().copied().for_each(kill);
            left.is_empty()
        });
        if !all_gone {
            return Err(Error::RealNode(format!("shims do not end: {:?}", self.shims())));
        }
        for socket in sockets {
            // It may be gone with its shim.
            let _gone = fs::remove_file(socket);
        }
        Ok(())
    }

    /// Takes away what the kernel keeps of the node. No process of it may be left.
    pub(crate) fn clear(&self) -> Result<(), Error> {
        for path in mounts_below(&self.directory()) {
            unmount(&path, UnmountFlags::DETACH).map_err(|e| Error::io("unmount", &path, e.into()))?;
        }
        self.run_bridge(&["remove", &self.bridge()])?;
        for path in machine::cgroup_paths(&self.cgroup()) {
            remove_cgroup(&path)?;
        }
        self.remove_log_links();
        if !machine::has_other_nodes() {
            tidy();
        }
        machine::restore(&self.state.settings)
    }

    fn shims(&self) -> Vec<u32> {
        let (program, socket) = (
            self.binaries.path("containerd-shim-runc-v2").display().to_string(),
            self.socket().display().to_string(),
        );
        let is_ours = |pid: &u32| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let mut words = line.split('\0');
            words.next() == Some(program.as_str()) && words.any(|word| word == socket)
        };
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(is_ours).collect()
    }

    /// Sockets of the shims, which lie outside the directory; each bundle tells its own. To be asked before pods end: containerd removes
    /// their bundles first, and may be gone before it removes the sockets.
    pub(crate) fn shim_sockets(&self) -> Vec<PathBuf> {
        let bundles = self.path("containerd/state/io.containerd.runtime.v2.task/k8s.io");
        let entries = fs::read_dir(bundles).into_iter().flatten().flatten();
        let socket = |bundle: fs::DirEntry| {
            let text = fs::read_to_string(bundle.path().join("bootstrap.json")).ok()?;
            let told: serde_json::Value = serde_json::from_str(&text).ok()?;
            Some(PathBuf::from(told["address"].as_str()?.strip_prefix("unix://")?))
        };
        entries.filter_map(socket).collect()
    }

    fn remove_log_links(&self) {
        let entries = fs::read_dir(LOG_LINKS).into_iter().flatten().flatten();
        let ours = entries.filter(|entry| fs::read_link(entry.path()).is_ok_and(|to| to.starts_with(self.directory())));
        for link in ours {
            // Whoever tidies up logs may have been here first.
            let _gone = fs::remove_file(link.path());
        }
    }
}

/// Takes away the directories that kubelet and containerd make wherever they are told to keep their files, once the last node has gone
/// and if nobody else uses them.
fn tidy() {
    let is_dead = UnixStream::connect(DEVICES_SOCKET).is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused);
    if is_dead {
        // A kubelet that has just been started may have made it anew, and notices.
        let _gone = fs::remove_file(DEVICES_SOCKET);
    }
    for directory in LEFT {
        // One that is not empty is somebody's, and one that is not there is as it should be.
        let _kept = fs::remove_dir(directory);
    }
}

fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // It may have ended since it was found.
    let _ended = pid.map(|pid| kill_process(pid, Signal::KILL));
}

/// Processes in a cgroup and all below it.
fn processes_below(cgroup: &Path) -> Vec<u32> {
    let own = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    let mut pids: Vec<u32> = own.lines().filter_map(|line| line.parse().ok()).collect();
    pids.extend(children(cgroup).iter().flat_map(|child| processes_below(child)));
    pids
}

fn children(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// Removes a cgroup and all below it. One whose last process has just ended is busy for a moment.
fn remove_cgroup(cgroup: &Path) -> Result<(), Error> {
    for child in children(cgroup) {
        remove_cgroup(&child)?;
    }
    clock::poll(GONE_WITHIN, || fs::remove_dir(cgroup).is_ok() || !cgroup.exists());
    if cgroup.exists() {
        return Err(Error::RealNode(format!(
            "the cgroup {} cannot be removed",
            cgroup.display()
        )));
    }
    Ok(())
}

/// Mount points below a directory, the innermost first.
fn mounts_below(directory: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = text
        .lines()
        .filter_map(|line| line.split_whitespace().nth(4))
        .map(unescape);
    let mut below: Vec<PathBuf> = points.filter(|path| path.starts_with(directory)).collect();
    below.reverse();
    below
}

/// A path as the kernel writes it: blanks and backslashes as three octal digits.
fn unescape(path: &str) -> PathBuf {
    let plain = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    let path = plain
        .iter()
        .fold(path.to_owned(), |path, (code, letter)| path.replace(code, letter));
    PathBuf::from(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_mounts_are_read_as_they_are() {
        assert_eq!(unescape("/a\\040b/c"), Path::new("/a b/c"));
        assert!(mounts_below(Path::new("/proc")).contains(&PathBuf::from("/proc")));
    }
}
