//! `cargo xtask demo`: Flotilla at work, from nothing to nothing, in about a minute.

use anyhow::{Context, Error, Result, bail, ensure};
use flotilla_localcluster::{Cluster, build, workspace};
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const NAME: &str = "demo";

/// Shows the whole story; the cluster is gone afterwards, also when something fails.
pub(crate) fn run() -> Result<ExitCode> {
    heading("building flotilla and, once, the control plane");
    let flotilla = workspace::build_flotilla(&[]).map_err(Error::msg)?;
    build()?;
    // The clock of a tool that tells how long something took.
    #[allow(clippy::disallowed_methods)]
    let begun = Instant::now();
    // A first Ctrl-C ends the child that runs in the foreground; what was started is then taken down below.
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = interrupted.clone();
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed)).context("failed to listen for Ctrl-C")?;

    heading("starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler and three simulated nodes");
    let cluster = Cluster::builder(NAME)
        .nodes(3)
        .without_statefulset_controller()
        .start()?;
    println!("ready after {:.1} s", begun.elapsed().as_secs_f32());
    let stage = Stage {
        flotilla,
        cluster,
        interrupted,
    };
    let done = stage.play();
    heading("cleaning up");
    drop(stage);
    done?;
    println!(
        "nothing is left of cluster {NAME}; the demo took {:.0} s",
        begun.elapsed().as_secs_f32()
    );
    println!("your own: cargo xtask cluster up --without-statefulset-controller");
    Ok(ExitCode::SUCCESS)
}

struct Stage {
    flotilla: PathBuf,
    cluster: Cluster,
    interrupted: Arc<AtomicBool>,
}

impl Stage {
    fn play(&self) -> Result<()> {
        heading("running the manager");
        self.flotilla(&["install", "--only-crds", "--yes"], &[0])?;
        self.kubectl(&["create", "namespace", "flotilla-system"])?;
        let manager = self.start_manager()?;

        heading("three pods with claims: one after the other, each when the one before it is available");
        let manifest = workspace::root().join("examples/web.yaml");
        self.kubectl(&["apply", "-f", &manifest.to_string_lossy()])?;
        {
            let _pods = self.watch_pods()?;
            self.flotilla(&["rollout", "status", "asts/web", "--timeout-seconds", "60"], &[0])?;
        }
        self.kubectl(&["get", "asts,pods,pvc"])?;

        heading("a new image with partition 2: two pods stay at the old revision");
        self.patch(r#"{"spec":{"updateStrategy":{"rollingUpdate":{"partition":2}}}}"#)?;
        self.set_image("web:2.0")?;
        {
            let _pods = self.watch_pods()?;
            self.kubectl(&[
                "wait",
                "asts/web",
                "--for=jsonpath={.status.updatedReadyReplicas}=1",
                "--timeout=60s",
            ])?;
        }
        self.flotilla(&["rollout", "status", "asts/web", "--watch=false"], &[0])?;
        self.flotilla(&["why", "asts/web"], &[3])?;

        heading("an image that does not exist reaches one pod, and no further");
        self.set_image("web:broken")?;
        self.kubectl(&[
            "wait",
            "pod/web-2",
            "--for=jsonpath={.status.containerStatuses[0].state.waiting.reason}=ImagePullBackOff",
            "--timeout=60s",
        ])?;
        self.flotilla(&["why", "asts/web"], &[3])?;
        self.flotilla(&["rollout", "undo", "asts/web"], &[0])?;

        heading(
            "the broken pod is replaced although the order would wait for it; without the partition the rest follows",
        );
        self.patch(r#"{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}"#)?;
        {
            let _pods = self.watch_pods()?;
            self.flotilla(&["rollout", "status", "asts/web", "--timeout-seconds", "60"], &[0])?;
        }
        self.flotilla(&["rollout", "history", "asts/web"], &[0])?;
        self.flotilla(&["why", "asts/web"], &[0])?;
        drop(manager);
        Ok(())
    }

    fn start_manager(&self) -> Result<Running> {
        println!("$ flotilla manager --http-address=none &");
        let log = self.cluster.kubeconfig_path().with_file_name("manager.log");
        let out = File::create(&log).with_context(|| format!("failed to write {}", log.display()))?;
        let child = Command::new(&self.flotilla)
            .args(["manager", "--http-address=none", "--kubeconfig"])
            .arg(self.cluster.kubeconfig_path())
            .stdin(Stdio::null())
            .stderr(out)
            .spawn()
            .context("failed to start the manager")?;
        Ok(Running(child))
    }

    /// Prints pods as they change, until it is dropped.
    fn watch_pods(&self) -> Result<Running> {
        const COLUMNS: &str = "custom-columns=POD:.metadata.name,PHASE:.status.phase,READY:.status.conditions[?(@.type=='Ready')].status,\
            IMAGE:.spec.containers[0].image,DELETED:.metadata.deletionTimestamp";
        let arguments = ["get", "pods", "--watch", "--no-headers", "-o", COLUMNS];
        let child = self
            .cluster
            .kubectl_command(&arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Ok(Running(child.context("failed to run kubectl")?))
    }

    fn patch(&self, patch: &str) -> Result<()> {
        self.kubectl(&["patch", "asts", "web", "--type", "merge", "-p", patch])
    }

    fn set_image(&self, image: &str) -> Result<()> {
        let patch =
            format!(r#"[{{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"{image}"}}]"#);
        self.kubectl(&["patch", "asts", "web", "--type", "json", "-p", &patch])
    }

    fn kubectl(&self, arguments: &[&str]) -> Result<()> {
        self.shell(
            &format!("kubectl {}", shown(arguments)),
            self.cluster.kubectl_command(arguments),
        )
    }

    fn flotilla(&self, arguments: &[&str], codes: &[i32]) -> Result<()> {
        let line = format!("flotilla {}", shown(arguments));
        println!("$ {line}");
        let mut command = Command::new(&self.flotilla);
        command
            .args(arguments)
            .arg("--kubeconfig")
            .arg(self.cluster.kubeconfig_path());
        let code = command
            .status()
            .with_context(|| format!("failed to run {line}"))?
            .code();
        self.go_on()?;
        ensure!(
            code.is_some_and(|code| codes.contains(&code)),
            "`{line}` ended with {code:?}, expected one of {codes:?}"
        );
        Ok(())
    }

    fn shell(&self, line: &str, mut command: Command) -> Result<()> {
        println!("$ {line}");
        let status = command.status().with_context(|| format!("failed to run {line}"))?;
        self.go_on()?;
        ensure!(status.success(), "`{line}` ended with {status}");
        Ok(())
    }

    fn go_on(&self) -> Result<()> {
        if self.interrupted.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Ok(())
    }
}

/// A child that ends with the scene it belongs to.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing left to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn heading(text: &str) {
    println!("\n== {text}");
}

/// Arguments as one would type them.
fn shown(arguments: &[&str]) -> String {
    let quoted = |argument: &&str| {
        let plain = argument
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_./=,:".contains(c));
        if plain {
            (*argument).to_owned()
        } else {
            format!("'{argument}'")
        }
    };
    let here = workspace::root().to_string_lossy().into_owned() + "/";
    arguments
        .iter()
        .map(quoted)
        .collect::<Vec<_>>()
        .join(" ")
        .replace(&here, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_can_be_typed_again() {
        assert_eq!(shown(&["get", "pods", "-p", r#"{"a":1}"#]), r#"get pods -p '{"a":1}'"#);
        let file = workspace::root().join("examples/web.yaml");
        assert!(file.exists());
        assert_eq!(shown(&["-f", &file.to_string_lossy()]), "-f examples/web.yaml");
    }
}
