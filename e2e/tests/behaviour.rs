//! How sets behave on a real control plane: one cluster, one manager, a namespace for each scenario.

#[path = "behaviour/conformance.rs"]
mod conformance;
#[path = "behaviour/crd.rs"]
mod crd;
#[path = "behaviour/hooks.rs"]
mod hooks;
#[path = "behaviour/in_place.rs"]
mod in_place;
#[path = "behaviour/refused.rs"]
mod refused;
#[path = "behaviour/stuck.rs"]
mod stuck;
#[path = "behaviour/tenants.rs"]
mod tenants;
#[path = "behaviour/why.rs"]
mod why;

use flotilla_e2e::{Api, Manager, suite};
use flotilla_localcluster::Cluster;
use libtest_mimic::Arguments;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// What all scenarios share.
#[derive(Clone)]
struct Lab {
    kubeconfig: Arc<PathBuf>,
    kubectl: Arc<PathBuf>,
}

impl Lab {
    /// A namespace of its own for a scenario.
    async fn enter(&self, namespace: &str) -> Api {
        suite::enter(&self.kubeconfig, namespace).await
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    if arguments.list {
        return libtest_mimic::run(
            &arguments,
            trials(&Lab {
                kubeconfig: Arc::default(),
                kubectl: Arc::default(),
            }),
        )
        .exit_code();
    }
    // Scenarios mostly wait for pods; six of them keep two cores busy.
    arguments.test_threads.get_or_insert(6);
    let cluster = suite::start(Cluster::disposable("e2e-behaviour").nodes(3), async |api| {
        suite::install_crds(api, suite::without_rules).await;
        crd::store_bad_sets(api).await;
        suite::install_crds(api, std::convert::identity).await;
    });
    let kubeconfig = cluster.kubeconfig_path().to_owned();
    let manager = Manager::alone(&kubeconfig);
    let lab = Lab {
        kubeconfig: Arc::new(kubeconfig),
        kubectl: Arc::new(cluster.kubectl_path()),
    };
    let conclusion = libtest_mimic::run(&arguments, trials(&lab));
    if conclusion.has_failed() {
        suite::print_last_words(&manager, 60);
    }
    drop(manager);
    drop(cluster);
    conclusion.exit_code()
}

fn trials(lab: &Lab) -> Vec<libtest_mimic::Trial> {
    // It has the scenarios that take longest.
    let mut trials = stuck::trials(lab);
    trials.extend(conformance::trials(lab));
    trials.extend(crd::trials(lab));
    trials.extend(hooks::trials(lab));
    trials.extend(in_place::trials(lab));
    trials.extend(refused::trials(lab));
    trials.extend(tenants::trials(lab));
    trials.extend(why::trials(lab));
    trials
}
