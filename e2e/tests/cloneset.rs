//! How CloneSets behave on a real control plane: one cluster, one scenario after the other, each with a manager of its own.

#[path = "cloneset/ahead.rs"]
mod ahead;
#[path = "cloneset/autoscaler.rs"]
mod autoscaler;
#[path = "cloneset/cases.rs"]
mod cases;
#[path = "cloneset/claims.rs"]
mod claims;
#[path = "cloneset/ends.rs"]
mod ends;
#[path = "cloneset/face.rs"]
mod face;
#[path = "cloneset/life.rs"]
mod life;
#[path = "cloneset/neighbours.rs"]
mod neighbours;
#[path = "cloneset/pace.rs"]
mod pace;
#[path = "cloneset/place.rs"]
mod place;
#[path = "cloneset/rules.rs"]
mod rules;
#[path = "cloneset/shrink.rs"]
mod shrink;
#[path = "cloneset/tools.rs"]
mod tools;

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
    /// The pinned kubectl.
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
    // Managers are killed, and work on all namespaces: one scenario at a time.
    arguments.test_threads = Some(1);
    let cluster = suite::start(Cluster::disposable("e2e-cloneset").nodes(3), async |api| {
        suite::install_crds(api, std::convert::identity).await;
        suite::make_namespace(api, "flotilla-system").await;
    });
    let lab = Lab {
        kubeconfig: Arc::new(cluster.kubeconfig_path().to_owned()),
        kubectl: Arc::new(cluster.kubectl_path()),
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
        rules::refuse_by_field_and_word,
        life::with_ten_kills,
        shrink::with_ten_ends,
        face::columns_and_scale,
        face::conditions_come_and_go,
        face::versions_are_converted,
        claims::are_used_again_or_go,
        place::images_change_and_pods_stay,
        place::hooks_hold_and_let_go,
        ahead::jobs_are_made_for_an_update_and_go_with_it,
        autoscaler::goes_up_and_down,
        ends::in_foreground_and_background,
        ends::orphans_stay_and_are_taken_again,
        neighbours::with_one_selector_keep_to_their_pods,
        tools::kubectl_scales_lists_and_waits,
        tools::rollout_undoes_and_tells_history,
        pace::does_not_slacken,
    );
    trials
}
