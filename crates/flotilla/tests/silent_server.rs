//! A server that takes connections and says nothing: every command ends, and says so.

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;
use tokio::process::Command;

/// Longer than any command may take here, and shorter than anybody waits.
const PATIENCE: Duration = Duration::from_secs(20);

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
    async fn run(&self, words: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flotilla"));
        command
            .args(words)
            .env("KUBECONFIG", &self.kubeconfig)
            .kill_on_drop(true);
        let output = tokio::time::timeout(PATIENCE, command.output()).await;
        let output = output.unwrap_or_else(|_elapsed| panic!("{words:?} does not end"));
        let output = output.expect("the binary runs");
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (output.status.code(), text.concat())
    }
}

#[tokio::test]
async fn the_time_of_rollout_status_includes_the_first_look() {
    let silent = Silent::new("status");
    let (code, said) = silent
        .run(&["rollout", "status", "sts/web", "--timeout-seconds", "1"])
        .await;
    assert!(
        said.contains("failed to read") && said.contains("did not answer within 1 s"),
        "{said}"
    );
    assert_eq!(code, Some(1), "it has answered nothing: {said}");
}

#[tokio::test]
async fn every_command_ends_with_a_sentence() {
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
        let (code, said) = silent.run(&[words, &["--request-timeout-seconds", "1"]].concat()).await;
        assert!(said.starts_with("flotilla: failed to "), "{words:?}: {said}");
        let end = "did not answer within 1 s; is the API server of this kubeconfig running?\n";
        assert!(said.ends_with(end), "{words:?}: {said}");
        assert_eq!(code, Some(1), "{words:?}");
    }
}
