//! A server that takes connections and says nothing: every command ends, and says so.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Longer than any command may take here, and shorter than anybody waits.
const LOOKS_MAX: u32 = 3000;
/// A process ends when it does: nothing tells a test that has no signal handler.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// The listener, and a kubeconfig that leads to it.
struct Silent {
    _listener: TcpListener,
    kubeconfig: PathBuf,
}

impl Drop for Silent {
    fn drop(&mut self) {
        // Whether it can be removed tells nothing about commands.
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

impl Silent {
    fn new(name: &str) -> Self {
        // The system takes connections into the queue, and nobody ever reads from them.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let kubeconfig = std::env::temp_dir().join(format!("flotilla-silent-{name}-{}.yaml", std::process::id()));
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]\n\
             users: [{{name: c, user: {{}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: c}}}}]\n"
        );
        std::fs::write(&kubeconfig, text).expect("a file of our own");
        Silent {
            _listener: listener,
            kubeconfig,
        }
    }

    /// The exit code of a command, and what it said.
    fn run(&self, words: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flotilla"));
        command.args(words).env("KUBECONFIG", &self.kubeconfig);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the binary runs");
        let in_time = ends(&mut child);
        let output = child.wait_with_output().expect("it has ended");
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(in_time, "{words:?} did not end; it said: {}", text.concat());
        (output.status.code(), text.concat())
    }
}

/// Whether it ends by itself. It has ended afterwards in any case.
fn ends(child: &mut Child) -> bool {
    for _ in 0..LOOKS_MAX {
        if child.try_wait().expect("its state").is_some() {
            return true;
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    child.kill().expect("our own process");
    false
}

#[test]
fn the_time_of_rollout_status_includes_the_first_look() {
    let silent = Silent::new("status");
    let (code, said) = silent.run(&["rollout", "status", "sts/web", "--timeout-seconds", "1"]);
    assert!(
        said.contains("failed to read") && said.contains("did not answer within 1 s"),
        "{said}"
    );
    assert_eq!(code, Some(1), "it has answered nothing: {said}");
}

#[test]
fn every_command_ends_with_a_sentence() {
    let silent = Silent::new("all");
    for words in [
        &["why", "sts/web"][..],
        &["plan", "sts/web", "--replicas", "1"],
        &["rollout", "status", "sts/web"],
        &["rollout", "restart", "sts/web"],
        &["rollout", "history", "sts/web"],
        &["migrate", "sts/web"],
        &["install", "--yes"],
        &["uninstall", "--dry-run"],
    ] {
        let (code, said) = silent.run(&[words, &["--request-timeout-seconds", "1"]].concat());
        assert!(said.starts_with("flotilla: failed to "), "{words:?}: {said}");
        let end = "did not answer within 1 s; is the API server of this kubeconfig running?\n";
        assert!(said.ends_with(end), "{words:?}: {said}");
        assert_eq!(code, Some(1), "{words:?}");
    }
}
