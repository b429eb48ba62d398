//! The demo: an example is rolled out, changed, broken and mended.

use crate::args::{
    ClusterArgs, GateArgs, LeaseArgs, Output, PlanArgs, RolloutCommand, RolloutStatusArgs, RolloutTarget,
    RolloutUndoArgs, WhyArgs,
};
use crate::cluster::{Cluster, describe};
use crate::commands::{plan, rollout, why};
use crate::error::{Error, Exit};
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;

/// What is rolled out.
const EXAMPLE: &str = include_str!("../../../../../examples/web.yaml");
const SETS: &str = "/apis/apps.kruise.io/v1beta1/namespaces/default/statefulsets";
/// How long a step may take.
const STEP_MAX: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);

pub(super) async fn run(args: &ClusterArgs) -> Result<Exit, Error> {
    let cluster = Cluster::connect(args).await?;
    heading("three pods with claims: one after the other, each when the one before it is available");
    apply(&cluster).await?;
    status(args).await?;

    heading("what a new image with partition 2 would do, before anything is changed");
    foretell(args).await?;

    heading("a new image with partition 2: two pods stay at the old revision");
    patch(
        &cluster,
        json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 2}}}}),
    )
    .await?;
    set_image(&cluster, "web:2.0").await?;
    until(&cluster, &format!("{SETS}/web"), |set| {
        set["status"]["updatedReadyReplicas"] == 1
    })
    .await?;
    explain(args).await?;

    heading("an image that does not exist reaches one pod, and no further");
    set_image(&cluster, "web:broken").await?;
    let waits = |pod: &Value| pod.to_string().contains("ImagePullBackOff");
    until(&cluster, "/api/v1/namespaces/default/pods/web-2", waits).await?;
    explain(args).await?;
    println!("$ flotilla rollout undo asts/web");
    let undo = RolloutUndoArgs {
        of: target(),
        to_revision: 0,
    };
    rollout::run(args, RolloutCommand::Undo(undo)).await?;

    heading("the broken pod is replaced although the order would wait for it; without the partition the rest follows");
    patch(
        &cluster,
        json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}}),
    )
    .await?;
    status(args).await?;
    println!("$ flotilla rollout history asts/web");
    rollout::run(args, RolloutCommand::History(target())).await?;
    explain(args).await?;
    Ok(Exit::Done)
}

fn heading(text: &str) {
    println!("\n== {text}");
}

fn target() -> RolloutTarget {
    RolloutTarget {
        target: "asts/web".parse().expect("a target that is written here"),
        output: Output::Text,
    }
}

/// Applies the example, as `kubectl apply --server-side` does.
async fn apply(cluster: &Cluster) -> Result<(), Error> {
    println!("$ kubectl apply --server-side -f examples/web.yaml");
    let documents: Vec<Value> = serde_saphyr::from_multiple(EXAMPLE)
        .map_err(|why| Error::NotPossible(format!("failed to read the example: {why}")))?;
    for object in documents {
        let path = match object["kind"].as_str() {
            Some("Service") => "/api/v1/namespaces/default/services/web".to_owned(),
            _ => format!("{SETS}/web"),
        };
        let path = format!("{path}?fieldManager=kubectl");
        cluster
            .send(Method::PATCH, &path, Some(("application/apply-patch+yaml", &object)))
            .await
            .map_err(|why| describe("apply the example".to_owned(), &why))?;
    }
    Ok(())
}

async fn patch(cluster: &Cluster, body: Value) -> Result<(), Error> {
    println!("$ kubectl patch asts web --type merge -p '{body}'");
    let path = format!("{SETS}/web");
    let sent = cluster
        .send(Method::PATCH, &path, Some(("application/merge-patch+json", &body)))
        .await;
    sent.map(drop)
        .map_err(|why| describe("patch asts/web".to_owned(), &why))
}

async fn set_image(cluster: &Cluster, image: &str) -> Result<(), Error> {
    let body = json!([{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": image}]);
    println!("$ kubectl patch asts web --type json -p '{body}'");
    let path = format!("{SETS}/web");
    let sent = cluster
        .send(Method::PATCH, &path, Some(("application/json-patch+json", &body)))
        .await;
    sent.map(drop)
        .map_err(|why| describe("patch asts/web".to_owned(), &why))
}

async fn status(args: &ClusterArgs) -> Result<(), Error> {
    println!("$ flotilla rollout status asts/web");
    let status = RolloutStatusArgs {
        of: target(),
        watch: true,
        timeout_seconds: STEP_MAX.as_secs(),
    };
    match rollout::run(args, RolloutCommand::Status(status)).await? {
        Exit::Done => Ok(()),
        _ => Err(Error::NotPossible(
            "the demo's rollout did not complete; please report this".to_owned(),
        )),
    }
}

async fn foretell(args: &ClusterArgs) -> Result<(), Error> {
    println!("$ flotilla plan asts/web --partition 2 --set image=web:2.0");
    let change = PlanArgs {
        gates: GateArgs::default(),
        to_the_end: false,
        target: Some(target().target),
        filename: Vec::new(),
        set: vec![("image".to_owned(), "web:2.0".to_owned())],
        replicas: None,
        partition: Some(2),
        delete: false,
        from: None,
        lease: lease(),
        output: Output::Text,
    };
    plan::run(args, change).await.map(drop)
}

/// Where the manager of a playground says that it leads.
fn lease() -> LeaseArgs {
    LeaseArgs {
        lease_namespace: "flotilla-system".into(),
        lease_name: "flotilla-manager".into(),
    }
}

async fn explain(args: &ClusterArgs) -> Result<(), Error> {
    println!("$ flotilla why asts/web");
    let why = WhyArgs {
        gates: GateArgs::default(),
        target: "asts/web".parse().expect("a target that is written here"),
        output: Output::Text,
        lease: lease(),
    };
    why::run(args, why).await.map(drop)
}

/// Waits until an object is as it should be.
async fn until(cluster: &Cluster, path: &str, is_reached: impl Fn(&Value) -> bool) -> Result<(), Error> {
    let look = async {
        loop {
            // One that is being replaced is not there for a moment.
            if cluster
                .send(Method::GET, path, None)
                .await
                .is_ok_and(|object| is_reached(&object))
            {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    let reached = tokio::time::timeout(STEP_MAX, look).await;
    reached.map_err(|_| Error::NotPossible(format!("{path} did not become as the demo expects; please report this")))
}
