//! What happens when things break: each scenario with a cluster of its own, one after the other.

#[path = "faults/hanging.rs"]
mod hanging;
#[path = "faults/idle.rs"]
mod idle;
#[path = "faults/in_place.rs"]
mod in_place;
#[path = "faults/leaders.rs"]
mod leaders;
#[path = "faults/outages.rs"]
mod outages;
#[path = "faults/takeover.rs"]
mod takeover;

use flotilla_e2e::suite::trial;
use libtest_mimic::Arguments;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Processor time is measured and processes are killed: one at a time.
    arguments.test_threads = Some(1);
    let trials = vec![
        trial(
            "takeover_from_the_built_in_controller",
            takeover::takeover_from_the_built_in_controller,
        ),
        trial(
            "killed_twenty_times_during_a_rollout",
            outages::killed_twenty_times_during_a_rollout,
        ),
        trial(
            "killed_during_an_update_in_place",
            in_place::killed_during_an_update_in_place,
        ),
        trial(
            "api_server_and_etcd_restart_during_a_scale_out",
            outages::api_server_and_etcd_restart_during_a_scale_out,
        ),
        trial("only_the_lease_holder_writes", leaders::only_the_lease_holder_writes),
        trial(
            "a_webhook_of_a_tenant_that_hangs",
            hanging::a_webhook_of_a_tenant_that_hangs,
        ),
        trial("a_settled_cluster_gets_no_write", idle::a_settled_cluster_gets_no_write),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}
