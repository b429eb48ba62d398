//! Sets that are stuck, each in its own way: `flotilla why` puts the root cause first, and what it advises helps, typed as it stands.
//!
//! Where the advice only shows something, its output has the words by which the user knows what to do, and the scenario does that.

#[path = "stuck/forged.rs"]
mod forged;
#[path = "stuck/held.rs"]
mod held;
#[path = "stuck/nodes.rs"]
mod nodes;
#[path = "stuck/pods.rs"]
mod pods;
#[path = "stuck/refused.rs"]
mod refused;
#[path = "stuck/twofold.rs"]
mod twofold;
#[path = "stuck/volumes.rs"]
mod volumes;

use crate::Lab;
use flotilla_e2e::stuck::{Sort, Stories, Stuck};
use libtest_mimic::Trial;

pub(crate) fn trials(lab: &Lab) -> Vec<Trial> {
    let mut trials = Stories::of("behaviour");
    macro_rules! stories {
        ($($module:ident::$name:ident: $($sort:ident),+;)*) => {$($({
            let own = lab.clone();
            let word = Sort::$sort.word();
            trials.add(&format!("stuck::{}::{}_{word}", stringify!($module), stringify!($name)), move || async move {
                let ns = format!("stuck-{}-{word}", stringify!($name).replace('_', "-"));
                let api = own.enter(&ns).await;
                $module::$name(Stuck::new(api, ns, Sort::$sort, &own.kubeconfig, &own.kubectl)).await;
            });
        })+)*};
    }
    stories! {
        // Those that take long begin first.
        nodes::lost: Native;
        nodes::gone: Advanced;
        nodes::too_small: Clone;
        pods::image_cannot_be_pulled: Advanced, Clone;
        pods::rolled_back: Native;
        pods::first_image_cannot_be_pulled: Native, Clone;
        pods::crash_loop: Advanced, Clone;
        pods::budget_used_up: Advanced, Clone;
        pods::gate_closed: Native, Clone;
        pods::name_taken: Native, Advanced;
        pods::held_by_a_finalizer: Native, Advanced, Clone;
        pods::state_of_its_lifecycle: Advanced;
        pods::resize_infeasible: Advanced, Clone;
        refused::account_missing: Native, Clone;
        refused::quota_full: Advanced, Clone;
        // The API server itself looks at what native sets mount.
        refused::template_invalid: Advanced, Clone;
        refused::denied_by_policy: Advanced, Clone;
        refused::priority_class_missing: Native, Clone;
        refused::runtime_class_missing: Advanced;
        refused::field_unreadable: Advanced;
        volumes::class_missing: Advanced, Clone;
        volumes::nobody_provisions: Native;
        volumes::nobody_made_a_volume: Native;
        volumes::no_class: Native, Clone;
        volumes::claim_missing: Clone;
        volumes::claim_terminating: Native, Advanced;
        volumes::claim_in_use_terminating: Native;
        held::paused: Native, Advanced, Clone;
        held::partition: Native, Clone;
        held::on_delete: Native, Advanced;
        held::pre_delete: Advanced, Clone;
        held::pre_normal: Advanced, Clone;
        held::in_place_only: Advanced, Clone;
        held::set_terminating: Native, Clone;
        held::set_terminating_in_foreground: Native;
        held::namespace_terminating: Advanced;
        twofold::quota_and_image: Advanced, Clone;
        twofold::claim_and_pause: Native, Advanced;
        twofold::gone_node_and_image: Advanced;
        twofold::two_pods: Advanced;
        twofold::finalizer_and_on_delete: Native, Advanced;
        twofold::finalizer_and_on_delete_in_order: Native, Advanced;
        twofold::hook_and_partition: Clone;
        twofold::quota_and_partition: Native, Advanced;
        twofold::quota_then_partition: Native;
        twofold::taken_and_priority: Advanced;
        twofold::account_then_quota: Native, Clone;
        twofold::class_then_image: Native;
        twofold::pause_then_in_place_only: Advanced, Clone;
        twofold::gate_and_image: Advanced;
        twofold::budget_and_quota: Advanced, Clone;
        twofold::budget_before_quota: Advanced, Clone;
        forged::webhook_like_a_quota: Native, Clone;
        forged::webhook_like_an_account: Native, Clone;
        forged::webhook_like_a_class: Native, Clone;
        forged::webhook_like_a_policy: Native, Clone;
        forged::webhook_like_the_api_server: Native, Clone;
        forged::webhook_like_a_quota_in_an_update: Advanced, Clone;
        forged::policy_like_another: Native, Clone;
        forged::policy_like_a_quota: Native, Clone;
        forged::policy_like_a_volume: Native, Clone;
        forged::event_of_a_volume: Native, Clone;
        forged::event_of_a_claim: Native, Advanced;
        forged::condition_of_a_gate: Native, Clone;
    }
    trials.into_trials()
}
