//! `cargo xtask cluster`: starting and ending named clusters.

use anyhow::{Context, Result};
use clap::Subcommand;
use flotilla_localcluster::{Cluster, build, build_node, helm, names};
use std::process::ExitCode;

/// Verbs about clusters.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Start a cluster, or complete one. Built on first use, which takes about ten minutes on two cores.
    Up {
        /// Which.
        #[arg(long, default_value = "flotilla")]
        name: String,
        /// How many simulated nodes.
        #[arg(long, default_value_t = 5)]
        nodes: u32,
        /// Leave the built-in StatefulSet controller out, so that Flotilla can take its place.
        #[arg(long)]
        without_statefulset_controller: bool,
        /// Record every write in an audit log.
        #[arg(long)]
        audit: bool,
        /// Add a real node, which runs containers. Needs root; built on first use, which takes about three minutes more.
        #[arg(long)]
        real_node: bool,
        /// Keep the stock request limits instead of lifting them.
        #[arg(long)]
        stock_limits: bool,
    },
    /// Build what clusters run, and start none.
    Build {
        /// Which part.
        #[arg(value_enum, default_value_t)]
        part: Part,
    },
    /// End a cluster and remove everything it has written.
    Down {
        /// Which.
        #[arg(long, default_value = "flotilla")]
        name: String,
    },
    /// Show the processes of a cluster.
    Status {
        /// Which.
        #[arg(long, default_value = "flotilla")]
        name: String,
    },
    /// List the clusters that are there.
    List,
    /// Run the pinned kubectl against a cluster.
    Kubectl {
        /// Which.
        #[arg(long, default_value = "flotilla")]
        name: String,
        /// What kubectl is to do.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

/// What is built apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// The control plane and the simulated nodes.
    #[default]
    ControlPlane,
    /// What a real node runs.
    RealNode,
    /// Helm, for tests of the chart.
    Helm,
}

pub(crate) fn run(verb: Verb) -> Result<ExitCode> {
    match verb {
        Verb::Up {
            name,
            nodes,
            without_statefulset_controller,
            audit,
            real_node,
            stock_limits,
        } => {
            let mut builder = Cluster::builder(&name).nodes(nodes);
            if without_statefulset_controller {
                builder = builder.without_statefulset_controller();
            }
            if audit {
                builder = builder.audit_log();
            }
            if real_node {
                builder = builder.real_node();
            }
            if stock_limits {
                builder = builder.stock_limits();
            }
            let mut cluster = builder.start()?;
            cluster.keep();
            println!("cluster {name} is ready; use it with");
            println!("  export KUBECONFIG={}", cluster.kubeconfig_path().display());
            println!("  cargo xtask cluster kubectl --name {name} get nodes");
        }
        Verb::Build { part } => match part {
            Part::ControlPlane => drop(build()?),
            Part::RealNode => drop(build_node()?),
            Part::Helm => drop(helm()?),
        },
        Verb::Down { name } => {
            Cluster::open(&name)?.down()?;
            println!("cluster {name} is gone");
        }
        Verb::Status { name } => {
            let cluster = Cluster::open(&name)?;
            cluster.status().iter().for_each(|line| println!("{line}"));
            println!("{:<24} https://127.0.0.1:{}", "address", cluster.apiserver_port());
            println!("{:<24} {}", "kubeconfig", cluster.kubeconfig_path().display());
        }
        Verb::List => names().iter().for_each(|name| println!("{name}")),
        Verb::Kubectl { name, arguments } => return kubectl(&name, &arguments),
    }
    Ok(ExitCode::SUCCESS)
}

fn kubectl(name: &str, arguments: &[String]) -> Result<ExitCode> {
    let cluster = Cluster::open(name)?;
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let status = cluster
        .kubectl_command(&arguments)
        .status()
        .context("failed to run kubectl")?;
    Ok(ExitCode::from(
        status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1),
    ))
}
