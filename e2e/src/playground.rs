//! The playground as a process.

use crate::manager::binary;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long it may take to serve, or to end, on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// A running playground. Dropping it kills it.
pub struct Playground {
    child: Child,
    kubeconfig: PathBuf,
}

/// `flotilla playground` in a directory, in which it also finds its place for temporary files.
pub fn command(directory: &Path) -> Command {
    let mut command = Command::new(binary());
    command
        .arg("playground")
        .env("TMPDIR", directory)
        .stdin(Stdio::null())
        .current_dir(directory);
    command
}

impl Playground {
    /// Starts one whose kubeconfig is written into `directory`, and waits until it serves.
    ///
    /// # Panics
    /// If it ends before that.
    pub fn start(directory: &Path, args: &[&str]) -> Self {
        let kubeconfig = directory.join("playground.kubeconfig");
        let mut child = command(directory)
            .args(["--write-kubeconfig", "playground.kubeconfig"])
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the playground starts");
        let out = child.stdout.take().expect("its output is read");
        let (sender, lines) = mpsc::channel();
        // All of it is read, or the process would fail to write.
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                // Nobody listens any more once it serves.
                let _ = sender.send(line);
            }
        });
        let serves = |line: &String| line.contains("kubectl get nodes");
        let mut told = Vec::new();
        while !told.last().is_some_and(serves) {
            let line = lines.recv_timeout(SOON);
            told.push(line.unwrap_or_else(|_| panic!("the playground does not serve; it said {told:?}")));
        }
        Playground { child, kubeconfig }
    }

    /// Its kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as Ctrl-C does.
    pub fn interrupt(mut self) -> ExitStatus {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-INT", &id]).status().expect("kill runs");
        assert!(sent.success());
        self.child.wait().expect("it ends")
    }
}

impl Drop for Playground {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
