//! `flotilla agent`: what runs on every node.

use crate::args::{AgentArgs, ClusterArgs};
use crate::cluster;
use crate::error::{Error, Exit};
use crate::logging;
use flotilla_engine::io::connection;
use flotilla_node::{Options, endpoints, run as run_agent};

/// Runs until SIGTERM.
pub async fn run(cluster_args: &ClusterArgs, args: AgentArgs) -> Result<Exit, Error> {
    logging::start(&args.log, args.log_format)?;
    if args.node_name.is_empty() {
        return Err(Error::NotPossible(
            "failed to start the agent: NODE_NAME is empty; in a pod set it from the field spec.nodeName".to_owned(),
        ));
    }
    let client = connection::connect(cluster::config(cluster_args).await?).map_err(Error::Config)?;
    let options = Options {
        endpoints: endpoints(
            &args.runtime_endpoint,
            args.socket_file.as_deref().filter(|f| !f.is_empty()),
        ),
        node: args.node_name,
        address: args.addr.0,
        workers: usize::from(args.containermeta_workers),
        restart_workers: usize::from(args.containermeta_restart_workers),
    };
    let ended = run_agent(options, client).await;
    ended.map_err(|e| Error::Manager(e.to_string()))?;
    Ok(Exit::Done)
}
