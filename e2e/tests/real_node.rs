//! What in-place updates rest on, on a node that runs containers. One cluster, one manager, a namespace for each scenario.
//!
//! Where the machine cannot run a real node, every scenario is skipped, and says so.

#[path = "real_node/pods.rs"]
mod pods;
#[path = "real_node/sets.rs"]
mod sets;

use flotilla_e2e::{Api, Manager, suite};
use flotilla_localcluster::{Cluster, real_node_unavailable};
use libtest_mimic::{Arguments, Trial};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// What all scenarios share.
#[derive(Clone, Default)]
pub(crate) struct Lab {
    kubeconfig: Arc<PathBuf>,
}

impl Lab {
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
    let cluster = suite::start(Cluster::disposable("e2e-real-node").nodes(0).real_node(), async |api| {
        suite::install_crds(api, std::convert::identity).await;
    });
    let kubeconfig = cluster.kubeconfig_path().to_owned();
    let manager = Manager::alone(&kubeconfig);
    let lab = Lab {
        kubeconfig: Arc::new(kubeconfig),
    };
    let conclusion = libtest_mimic::run(&arguments, trials(&lab));
    drop(manager);
    cluster.down().expect("it goes, and nothing of the node stays");
    conclusion.exit_code()
}

fn trials(lab: &Lab) -> Vec<Trial> {
    let mut trials = pods::trials(lab);
    trials.extend(sets::trials(lab));
    trials
}
