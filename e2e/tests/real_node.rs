//! What in-place updates rest on, on a node that runs containers. One cluster, one manager with webhooks, the node's agent beside it, and
//! a namespace for each scenario.
//!
//! Where the machine cannot run a real node, every scenario is skipped, and says so.

#[path = "real_node/agent.rs"]
mod agent;
#[path = "real_node/order.rs"]
mod order;
#[path = "real_node/pods.rs"]
mod pods;
#[path = "real_node/resize.rs"]
mod resize;
#[path = "real_node/rights.rs"]
mod rights;
#[path = "real_node/sets.rs"]
mod sets;
#[path = "real_node/stuck.rs"]
mod stuck;

use flotilla_e2e::{Api, Manager, suite, webhooks};
use flotilla_localcluster::{Cluster, real_node_unavailable};
use libtest_mimic::{Arguments, Trial};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// What all scenarios share.
#[derive(Clone, Default)]
pub(crate) struct Lab {
    kubeconfig: Arc<PathBuf>,
    /// The pinned kubectl.
    kubectl: Arc<PathBuf>,
    /// The same for the account of the node's agent.
    agents_kubeconfig: Arc<PathBuf>,
    /// The API server's audit log.
    audit_log: Arc<PathBuf>,
    /// The socket of the node's runtime.
    socket: Arc<PathBuf>,
    /// The node's agent, which runs unless a scenario has asked for a node without one.
    agent: Arc<RwLock<Option<Manager>>>,
}

impl Lab {
    /// The node has an agent as long as this is kept.
    async fn with_agent(&self) -> RwLockReadGuard<'_, Option<Manager>> {
        self.agent.read().await
    }

    /// The node has the agent that is put here, and now none, as long as this is kept.
    async fn without_agent(&self) -> RwLockWriteGuard<'_, Option<Manager>> {
        let mut agent = self.agent.write().await;
        *agent = None;
        agent
    }

    /// Starts the node's agent.
    fn start_agent(&self) -> Manager {
        Manager::agent(
            &self.agents_kubeconfig,
            "agent",
            "real-0",
            &self.socket,
            &["--addr=none"],
        )
    }

    /// A namespace of its own for a scenario.
    async fn enter(&self, namespace: &str) -> Api {
        suite::enter(&self.kubeconfig, namespace).await
    }
}

/// A scenario in a namespace that is named for it.
#[macro_export]
macro_rules! scenarios {
    ($lab:expr, $group:literal, [$($name:ident),* $(,)?]) => {
        vec![$({
            let own = $lab.clone();
            let namespace = format!("{}-{}", $group, stringify!($name).replace('_', "-"));
            flotilla_e2e::suite::trial(format!("{}::{}", $group, stringify!($name)), move || async move {
                $name(&own.enter(&namespace).await, &namespace).await;
            })
        }),*]
    };
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    if arguments.list {
        return libtest_mimic::run(&arguments, trials(&Lab::default())).exit_code();
    }
    if let Some(reason) = real_node_unavailable() {
        println!("SKIPPED the whole suite real_node: {reason}");
        let skipped = trials(&Lab::default())
            .into_iter()
            .map(|trial| trial.with_ignored_flag(true));
        return libtest_mimic::run(&arguments, skipped.collect()).exit_code();
    }
    arguments.test_threads.get_or_insert(4);
    let cluster = suite::start(
        Cluster::disposable("e2e-real-node").nodes(0).real_node().audit_reads(),
        async |api| {
            suite::install_crds(api, std::convert::identity).await;
            // Where the certificates of the webhooks are kept.
            suite::make_namespace(api, "flotilla-system").await;
        },
    );
    let kubeconfig = cluster.kubeconfig_path().to_owned();
    let socket = cluster.runtime_socket().expect("a real node has a runtime");
    let (manager, agents_kubeconfig) = suite::wait_for(async {
        let api = Api::connect(&kubeconfig).await;
        let (manager, _) = webhooks::start(&api, &kubeconfig, "alone", &[]).await;
        (manager, rights::account(&api, &kubeconfig).await)
    });
    let lab = Lab {
        agents_kubeconfig: Arc::new(agents_kubeconfig),
        audit_log: Arc::new(cluster.audit_log_path().to_owned()),
        kubeconfig: Arc::new(kubeconfig),
        kubectl: Arc::new(cluster.kubectl_path()),
        socket: Arc::new(socket),
        agent: Arc::default(),
    };
    *lab.agent.blocking_write() = Some(lab.start_agent());
    let conclusion = libtest_mimic::run(&arguments, trials(&lab));
    drop((lab.agent.blocking_write().take(), manager));
    cluster.down().expect("it goes, and nothing of the node stays");
    conclusion.exit_code()
}

fn trials(lab: &Lab) -> Vec<Trial> {
    let mut trials = pods::trials(lab);
    trials.extend(sets::trials(lab));
    trials.extend(order::trials(lab));
    trials.extend(agent::trials(lab));
    trials.extend(resize::trials(lab));
    trials.extend(rights::trials(lab));
    trials.extend(stuck::trials(lab));
    trials
}
