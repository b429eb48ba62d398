//! What is asked of the API server for an answer: dry runs of what comes next, the objects that tell of causes, namespace and lease.

use crate::cluster::{Cluster, describe};
use crate::error::Error;
use flotilla_engine::wire::status::Status;
use flotilla_model::lines::in_command;
use flotilla_model::{Decision, ObjectKey, Resource, Wait};
use flotilla_why::{Facts, Question, ROUNDS, Trial, Tried, terminating_namespace, trials};
use http::Method;
use serde_json::Value;

/// Sends the first creations and trials as dry runs. Returns what a manager would decide that knows what came of them; `None` if there is no such set.
pub(super) async fn try_next(
    cluster: &Cluster,
    question: &Question<'_>,
    tried: &mut Tried,
) -> Result<Option<Decision>, Error> {
    let mut decision = question.decide(tried);
    for _ in 0..ROUNDS {
        for trial in decision.iter().flat_map(trials) {
            if tried.begin(&trial) {
                try_one(cluster, question, tried, &trial).await?;
            }
        }
        decision = question.decide(tried);
    }
    Ok(decision)
}

async fn try_one(
    cluster: &Cluster,
    question: &Question<'_>,
    tried: &mut Tried,
    trial: &Trial<'_>,
) -> Result<(), Error> {
    let path = format!(
        "{}?dryRun=All&fieldManager=flotilla-why",
        trial.resource().collection_path(Some(trial.namespace()))
    );
    let body = ("application/json", &trial.body);
    match cluster.send(Method::POST, &path, Some(body)).await {
        Ok(_) => tried.accept(trial, question.set),
        Err(kube::Error::Api(refusal)) => {
            let status = Status {
                code: i32::from(refusal.code),
                reason: refusal.reason,
                message: refusal.message,
                ..Status::default()
            };
            tried.refuse(trial, question.set, status);
        }
        Err(error) => {
            let key = ObjectKey::new(trial.namespace(), trial.name());
            let what = format!("try to create {} {key}", trial.resource());
            return Err(describe(what, &error));
        }
    }
    Ok(())
}

/// Reads what tells of causes; classes not where it is known already that whoever asks may not.
pub(super) async fn facts(cluster: &Cluster, may_read_classes: bool) -> Result<Facts, Error> {
    let namespace = &cluster.namespace;
    let events = |about: &str| format!("/api/v1/namespaces/{namespace}/events?fieldSelector={about}");
    let of_claims = events("involvedObject.kind%3DPersistentVolumeClaim");
    let of_pods = events("involvedObject.kind%3DPod,type%3DWarning");
    let pods = Resource::Pods.collection_path(Some(namespace));
    let claims = Resource::Claims.collection_path(Some(namespace));
    let classes = Resource::StorageClasses.collection_path(None);
    let mut facts = Facts::default();
    facts.pods = list(&mut facts, cluster, "pods", &pods).await?;
    facts.nodes = list(&mut facts, cluster, "nodes", "/api/v1/nodes").await?;
    facts.claims = list(&mut facts, cluster, "claims", &claims).await?;
    if may_read_classes {
        facts.classes = list(&mut facts, cluster, "storage classes", &classes).await?;
    }
    facts.events = list(&mut facts, cluster, "events of claims", &of_claims).await?;
    facts.pod_events = list(&mut facts, cluster, "events of pods", &of_pods).await?;
    Ok(facts)
}

async fn list(facts: &mut Facts, cluster: &Cluster, what: &str, path: &str) -> Result<Option<Vec<Value>>, Error> {
    match cluster.send(Method::GET, path, None).await {
        Ok(mut list) => match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => Ok(Some(items)),
            _ => Ok(Some(Vec::new())),
        },
        Err(error) => {
            let said = refused(&error).ok_or_else(|| describe(format!("list {what}"), &error))?;
            facts.unread.push(format!(
                "{what} could not be looked at, and causes that they would show are not told: {said}"
            ));
            Ok(None)
        }
    }
}

/// That the namespace is being deleted. Who may not look at it is told so.
pub(super) async fn namespace(cluster: &Cluster, unread: &mut Vec<String>) -> Result<Option<Wait>, Error> {
    let name = &cluster.namespace;
    let path = format!("/api/v1/namespaces/{}", in_command(name));
    match cluster.send(Method::GET, &path, None).await {
        Ok(namespace) => Ok(terminating_namespace(name, &namespace)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => {
            let said = refused(&error).ok_or_else(|| describe(format!("read namespace {name}"), &error))?;
            let missing = "whether it is being deleted is not told";
            unread.push(format!(
                "namespace {name} could not be looked at, and {missing}: {said}"
            ));
            Ok(None)
        }
    }
}

/// What the API server said, if it does not let whoever asks look, or has nothing of that kind.
fn refused(error: &kube::Error) -> Option<&str> {
    match error {
        kube::Error::Api(status) if matches!(status.code, 403 | 404) => Some(&status.message),
        _ => None,
    }
}
