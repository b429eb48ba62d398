//! What `flotilla plan` says against what then happens: each change is planned with the binary, then made, while a watcher looks on.
//! The user who plans writes nothing: the audit log of the API server knows.

#[path = "plan/changes.rs"]
mod changes;
#[path = "plan/random.rs"]
mod random;
#[path = "plan/watcher.rs"]
mod watcher;

use flotilla_e2e::api::text;
use flotilla_e2e::{Api, Manager, suite};
use flotilla_localcluster::Cluster;
use libtest_mimic::{Arguments, Trial};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Who plans.
const PLANNER: &str = "planner";

/// What all scenarios share.
#[derive(Clone, Default)]
struct Lab {
    admin: Arc<PathBuf>,
    planner: Arc<PathBuf>,
    nobody: Arc<PathBuf>,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    if arguments.list {
        return libtest_mimic::run(&arguments, trials(&Lab::default())).exit_code();
    }
    // Times are compared with nothing, but a busy machine is to keep the order of what takes equally long.
    arguments.test_threads.get_or_insert(5);
    let cluster = suite::start(Cluster::disposable("e2e-plan").nodes(3).audit_log(), async |api| {
        suite::install_crds(api, std::convert::identity).await;
    });
    let user = |name: &str, groups: &[&str]| Arc::new(cluster.user_kubeconfig(name, groups).expect("a kubeconfig"));
    let lab = Lab {
        admin: Arc::new(cluster.kubeconfig_path().to_owned()),
        planner: user(PLANNER, &["system:masters"]),
        nobody: user("nobody", &["nobodies"]),
    };
    let manager = Manager::alone(&lab.admin);
    let conclusion = libtest_mimic::run(&arguments, trials(&lab));
    if conclusion.has_failed() {
        suite::print_last_words(&manager, 40);
    }
    // Last, since it looks at everything that was done.
    let audit = Trial::test("plan::nothing_was_written", {
        let (lab, log) = (lab.clone(), cluster.audit_log_path().to_owned());
        move || {
            suite::wait_for(nothing_was_written(&lab, &log));
            Ok(())
        }
    });
    let audited = libtest_mimic::run(&Arguments::default(), vec![audit]);
    drop(manager);
    drop(cluster);
    if conclusion.has_failed() {
        conclusion.exit_code()
    } else {
        audited.exit_code()
    }
}

fn trials(lab: &Lab) -> Vec<Trial> {
    let mut trials = changes::trials(lab);
    trials.extend(random::trials(lab));
    trials
}

/// The planner's only write is the one that is made here, to see that the log knows of such things.
async fn nothing_was_written(lab: &Lab, log: &Path) {
    let api = Api::connect(&lab.planner).await;
    let probe = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe"}});
    api.create("/api/v1/namespaces/default/configmaps", &probe).await;
    let text_of_log = std::fs::read_to_string(log).expect("the audit log is there");
    let entries = text_of_log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_write = |e: &Value| ["create", "update", "patch", "delete", "deletecollection"].contains(&text(e, "/verb"));
    let writes: Vec<Value> = entries.filter(is_write).collect();
    let own: Vec<String> = writes
        .iter()
        .filter(|e| text(e, "/user/username") == PLANNER && e["stage"] == "ResponseComplete")
        .map(|e| format!("{} {}", text(e, "/verb"), text(e, "/requestURI")))
        .collect();
    println!(
        "{} writes in the audit log, of the user who planned: {own:?}",
        writes.len()
    );
    assert_eq!(own, ["create /api/v1/namespaces/default/configmaps"]);
}
