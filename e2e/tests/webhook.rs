//! Admission and conversion on a real control plane: one cluster, one scenario after the other, each with a manager of its own.

#[path = "webhook/away.rs"]
mod away;
#[path = "webhook/certificates.rs"]
mod certificates;
#[path = "webhook/requests.rs"]
mod requests;
#[path = "webhook/restart.rs"]
mod restart;

use flotilla_e2e::{Api, suite};
use flotilla_localcluster::Cluster;
use libtest_mimic::{Arguments, Trial};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// What all scenarios share.
#[derive(Clone)]
struct Lab {
    kubeconfig: Arc<PathBuf>,
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
            }),
        )
        .exit_code();
    }
    // Registrations are the cluster's: one scenario at a time.
    arguments.test_threads = Some(1);
    let cluster = suite::start(Cluster::disposable("e2e-webhook").nodes(3), async |api| {
        suite::install_crds(api, std::convert::identity).await;
        suite::make_namespace(api, "flotilla-system").await;
    });
    let kubeconfig = cluster.kubeconfig_path().to_owned();
    let lab = Lab {
        kubeconfig: Arc::new(kubeconfig),
    };
    let conclusion = libtest_mimic::run(&arguments, trials(&lab));
    drop(cluster);
    conclusion.exit_code()
}

fn trials(lab: &Lab) -> Vec<Trial> {
    let mut trials = Vec::new();
    macro_rules! scenarios {
        ($($module:ident::$name:ident),* $(,)?) => {$(
            let own = lab.clone();
            trials.push(suite::trial(
                concat!(stringify!($module), "::", stringify!($name)),
                move || async move { $module::$name(&own).await },
            ));
        )*};
    }
    scenarios!(
        requests::are_refused_with_the_rule_or_filled_in,
        requests::convert_a_hundred_sets_there_and_back,
        requests::old_clients_lose_nothing_that_they_have_never_heard_of,
        requests::leave_pods_of_others_alone,
        requests::protect_what_is_labelled,
        requests::protect_definitions_while_there_are_objects_of_them,
        away::pods_are_made_and_rules_hold_while_nobody_is_there,
        certificates::change_ten_times_without_a_failed_request,
        certificates::registrations_are_put_back,
        certificates::two_managers_serve_and_one_writes,
        certificates::can_come_from_a_directory,
        restart::of_both_replicas_fails_no_admission,
    );
    trials
}
