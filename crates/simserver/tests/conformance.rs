//! Whether the simulated API server answers as the real one did when its answers were recorded.

use flotilla_apiserver::Server;
use flotilla_conformance::{ALLOWED, Difference, compare, install_crds, recorded, run, scripts};
use flotilla_simserver::{Bare, Clock, Service, Shared};
use kube::Client;

#[tokio::test]
async fn the_simulated_api_server_answers_as_the_real_one() {
    let mut server = Server::new();
    server.shows_end = true;
    let shared = Shared::new(Bare::new(server), Clock::new(1.0));
    let client = Client::new(Service::new(shared), "default");
    install_crds(&client).await.expect("definitions");
    let recorded = recorded().expect("recorded answers");
    let wanted = std::env::var("FLOTILLA_SCRIPTS").unwrap_or_default();
    let (mut found, mut failures, mut requests) = (Vec::new(), Vec::new(), 0);
    let scripts: Vec<_> = scripts().into_iter().filter(|s| s.name.contains(&wanted)).collect();
    for (number, script) in scripts.iter().enumerate() {
        requests += script.steps.len();
        match (
            run(&client, script, &format!("conformance-{number}")).await,
            recorded.get(&script.name),
        ) {
            (Ok(heard), Some(real)) => found.extend(compare(real, &heard)),
            (Ok(_), None) => failures.push(format!("{}: never recorded", script.name)),
            (Err(failure), _) => failures.push(failure.to_string()),
        }
    }
    let (meant, unexpected): (Vec<_>, Vec<_>) = found.into_iter().partition(Difference::is_allowed);
    println!(
        "{} scripts, {requests} requests: {} differences, of which {} are meant:",
        scripts.len(),
        meant.len() + unexpected.len(),
        meant.len()
    );
    for allowed in ALLOWED {
        let times = meant.iter().filter(|d| allowed.allows(d)).count();
        println!(
            "  {times:2}  {} at {}: {}",
            allowed.script, allowed.place, allowed.reason
        );
        // What was once different and is no more needs no excuse.
        if times == 0 && wanted.is_empty() {
            failures.push(format!(
                "{} at {}: nothing differs there",
                allowed.script, allowed.place
            ));
        }
    }
    failures.extend(unexpected.iter().map(ToString::to_string));
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n")
    );
}
