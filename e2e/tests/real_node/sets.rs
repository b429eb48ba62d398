//! Sets whose pods run.

use crate::Lab;
use flotilla_e2e::real::{advanced_set, environment, incarnation, service, serving, slices, version};
use flotilla_e2e::sets::{SOON, ready};
use flotilla_e2e::{Api, Kind};
use libtest_mimic::Trial;
use serde_json::json;

pub(crate) fn trials(lab: &Lab) -> Vec<Trial> {
    crate::scenarios!(lab, "sets", [an_advanced_set_runs_and_serves])
}

async fn an_advanced_set_runs_and_serves(api: &Api, ns: &str) {
    api.create(&format!("/api/v1/namespaces/{ns}/services"), &service("web"))
        .await;
    let mut set = advanced_set("web", 2, "app:v1");
    // Without the gate, which is its controller's to set.
    set["spec"]["template"]["spec"]["readinessGates"] = json!([]);
    set["spec"]["updateStrategy"] = json!({"type": "RollingUpdate"});
    set["spec"]["template"]["spec"]["containers"][0]["env"] = json!([{"name": "COLOUR", "value": "green"}]);
    api.create(&Kind::Advanced.sets(ns), &set).await;
    let pods = ready(api, ns, 2).await;
    for (name, pod) in &pods {
        assert_eq!(pod["spec"]["nodeName"], "real-0", "{name}");
        let (restarts, id) = incarnation(pod, "main");
        assert_eq!(restarts, 0, "{name}");
        assert!(id.starts_with("containerd://"), "{name}: {id}");
        assert_eq!(version(api, ns, name).await.as_deref(), Some("v1"), "{name}");
        assert_eq!(
            environment(api, ns, name).await.get("COLOUR").map(String::as_str),
            Some("green"),
            "{name}"
        );
    }
    let both = |slices: &_| serving(slices).values().filter(|serves| **serves).count() == 2;
    api.until(&slices(ns, "web"), SOON, "both serve", both).await;
}
