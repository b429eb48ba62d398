//! The agent of a node.

use super::{HttpAddress, LogFormat};

/// What it does, and what it does not.
pub const AGENT: &str = "\
The kubelet starts a container with the labels and annotations that the pod has then, and never looks at them again. The agent finds out
which environment the containers of its node really have, notes that on their pods (apps.kruise.io/runtime-containers-meta), and restarts
containers whose environment is not what their pod says, while the pod is out of service for an update in place. It asks the container
runtime for a few things and cannot ask for others; without a runtime it keeps running and is not ready.

It pulls no images ahead (NodeImage, ImagePullJob) and carries out no ContainerRecreateRequest: leave OpenKruise's agent where these are
needed, and do not run both on one node.";

/// Settings of the agent. Those of OpenKruise's are accepted under their names.
#[derive(Clone, Debug, clap::Args)]
pub struct AgentArgs {
    /// The node that it runs on.
    #[arg(long, env = "NODE_NAME", default_value = "", value_name = "NAME")]
    pub node_name: String,
    /// Address of /metrics, /healthz and /readyz; `none` for no server.
    #[arg(long, default_value = ":10221", value_name = "ADDRESS", value_parser = super::address)]
    pub addr: HttpAddress,
    /// Where a container runtime listens, as unix:///PATH; may be repeated. Without it, sockets of known runtimes are looked for below
    /// /run/host-cri and /run.
    #[arg(long, value_name = "unix:///PATH", value_parser = endpoint)]
    pub runtime_endpoint: Vec<String>,
    /// Name of the runtime's socket below /run/host-cri.
    #[arg(long, value_name = "FILE")]
    pub socket_file: Option<String>,
    /// Pods that are looked at at the same time.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    pub containermeta_workers: u16,
    /// Containers that are stopped at the same time.
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    pub containermeta_restart_workers: u16,
    /// What to log: a level, or directives such as `info,flotilla_node=debug`.
    #[arg(long, env = "FLOTILLA_LOG", default_value = "info", value_name = "FILTER")]
    pub log: String,
    /// How to log.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

fn endpoint(text: &str) -> Result<String, String> {
    let path = text.strip_prefix("unix://").filter(|path| path.starts_with('/'));
    path.map(|_| text.to_owned())
        .ok_or_else(|| "must be unix:///PATH with an absolute path".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser;

    fn parsed(words: &[&str]) -> Result<AgentArgs, clap::Error> {
        let all = ["flotilla", "agent", "--node-name=n"].iter().chain(words);
        Args::try_parse_from(all).map(|args| match args.command {
            Command::Agent(args) => args,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn flags_of_the_former_agent_are_taken() {
        let args = parsed(&["--addr=:7", "--socket-file=c.sock", "--containermeta-workers=2"]).unwrap();
        assert_eq!(args.addr.0.unwrap().to_string(), "[::]:7");
        assert_eq!(
            (args.socket_file.as_deref(), args.containermeta_workers),
            (Some("c.sock"), 2)
        );
        assert_eq!(parsed(&[]).unwrap().addr.0.unwrap().port(), 10221);
        assert!(parsed(&["--addr=none"]).unwrap().addr.0.is_none());
        assert!(parsed(&["--runtime-endpoint=/run/c.sock"]).is_err());
        assert!(parsed(&["--runtime-endpoint=unix:///run/c.sock"]).is_ok());
    }
}
