//! What can go wrong with a cluster: one sentence each, with what to do.

use std::io;
use std::path::{Path, PathBuf};

/// Why a cluster cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No Go on this machine.
    #[error(
        "failed to build the control plane: Go was not found; install Go {needed} or newer from https://go.dev/dl and put it on PATH"
    )]
    GoMissing {
        /// The version that the modules ask for.
        needed: String,
    },
    /// The Go that is there is too old.
    #[error(
        "failed to build the control plane: Go {found} is too old; install Go {needed} or newer from https://go.dev/dl"
    )]
    GoTooOld {
        /// The version that was found.
        found: String,
        /// The version that the modules ask for.
        needed: String,
    },
    /// `go build` failed.
    #[error("failed to build {what}: {output}")]
    Build {
        /// Which binary.
        what: String,
        /// The last lines that Go printed.
        output: String,
    },
    /// Not enough room.
    #[error("failed to {what}: the disk of {} is full (needs about {needed_mib} MiB); free some space, or set FLOTILLA_CACHE_DIR to another disk", path.display())]
    DiskFull {
        /// What was attempted.
        what: String,
        /// A path on that disk.
        path: PathBuf,
        /// How much is needed, in MiB.
        needed_mib: u64,
    },
    /// A port that the cluster had is taken by somebody else.
    #[error(
        "failed to start {component}: port {port} of 127.0.0.1 is in use by another program; end it, or remove the cluster with `cargo xtask cluster down --name {cluster}`"
    )]
    PortBusy {
        /// What wanted the port.
        component: String,
        /// The port.
        port: u16,
        /// The cluster.
        cluster: String,
    },
    /// A component did not come up.
    #[error("failed to start {component} within {seconds} s; the end of its log:\n{log}")]
    NotReady {
        /// Which.
        component: String,
        /// How long it was waited for.
        seconds: u64,
        /// The last lines of its log.
        log: String,
    },
    /// This machine cannot run a real node.
    #[error("failed to start a real node: {0}")]
    NoRealNode(String),
    /// Something went wrong with a real node.
    #[error("failed to run the real node: {0}")]
    RealNode(String),
    /// There is no cluster of this name.
    #[error("no cluster named {0} is there; start it with `cargo xtask cluster up --name {0}`")]
    NoSuchCluster(String),
    /// The name cannot be a directory.
    #[error("{0:?} cannot name a cluster; use lower-case letters, digits and dashes")]
    BadName(String),
    /// kubectl failed.
    #[error("failed to {what}: {output}")]
    Kubectl {
        /// What was attempted.
        what: String,
        /// What it printed.
        output: String,
    },
    /// A certificate could not be made.
    #[error("failed to make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// A file or process operation failed.
    #[error("failed to {what}: {source}")]
    Io {
        /// What was attempted, on which path.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
}

impl Error {
    /// An I/O error, told apart from a full disk.
    pub(crate) fn io(what: impl Into<String>, path: &Path, source: io::Error) -> Self {
        let what = format!("{} {}", what.into(), path.display());
        if source.kind() == io::ErrorKind::StorageFull {
            return Error::DiskFull {
                what,
                path: path.to_owned(),
                needed_mib: 200,
            };
        }
        Error::Io { what, source }
    }
}
