//! Whether the answers that are recorded of the real API server are still what it says, script by script.
//!
//! The simulated API server is held to the recorded answers where no control plane is needed, in the tests of `flotilla-simserver`.
//! `FLOTILLA_RECORD=1` records them anew.

use flotilla_conformance::{Script, Transcript, compare, install_crds, record, recorded, run, scripts};
use flotilla_e2e::Api;
use flotilla_localcluster::Cluster;
use std::collections::BTreeMap;

#[tokio::test]
async fn the_real_api_server_answers_as_recorded() {
    let cluster = Cluster::disposable("e2e-apiserver")
        .nodes(0)
        .without_statefulset_controller()
        .start()
        .expect("a cluster");
    let client = Api::connect(cluster.kubeconfig_path()).await.client().clone();
    install_crds(&client).await.expect("definitions");
    let chosen = chosen();
    let mut heard = Vec::new();
    for (number, script) in chosen.iter().enumerate() {
        let transcript = run(&client, script, &format!("conformance-{number}")).await;
        heard.push(transcript.unwrap_or_else(|failure| panic!("{failure}")));
    }
    let requests: usize = chosen.iter().map(|script| script.steps.len()).sum();
    if std::env::var_os("FLOTILLA_RECORD").is_some() {
        keep(heard);
        println!("{} scripts, {requests} requests recorded", chosen.len());
        return;
    }
    let differences = differences(&heard, &recorded().expect("recorded answers"));
    println!(
        "{} scripts, {requests} requests: {} answers of the real API server are not as recorded",
        chosen.len(),
        differences.len()
    );
    assert!(
        differences.is_empty(),
        "what is recorded (called simulated here) is out of date; run with FLOTILLA_RECORD=1:\n{}",
        differences.join("\n")
    );
}

/// All scripts, or those that `FLOTILLA_SCRIPTS` names by a part of their names.
fn chosen() -> Vec<Script> {
    let wanted = std::env::var("FLOTILLA_SCRIPTS").unwrap_or_default();
    scripts().into_iter().filter(|s| s.name.contains(&wanted)).collect()
}

/// Records what was heard, and forgets scripts that are no more.
fn keep(heard: Vec<Transcript>) {
    let mut all = recorded().expect("recorded answers");
    all.retain(|name, _| scripts().iter().any(|script| script.name == *name));
    all.extend(heard.into_iter().map(|t| (t.script.clone(), t)));
    let all: Vec<Transcript> = all.into_values().collect();
    record(&all).expect("answers can be recorded");
}

fn differences(heard: &[Transcript], recorded: &BTreeMap<String, Transcript>) -> Vec<String> {
    let mut differences = Vec::new();
    for transcript in heard {
        match recorded.get(&transcript.script) {
            Some(known) => differences.extend(compare(transcript, known).iter().map(ToString::to_string)),
            None => differences.push(format!("{}: never recorded", transcript.script)),
        }
    }
    differences
}
