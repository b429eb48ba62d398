//! What is to be told of a set as a whole, and a pass of the manager does not wait for.

use super::facts::{refused, time};
use crate::cluster::{Cluster, describe};
use crate::error::Error;
use crate::target::Found;
use flotilla_model::lines::in_command;
use flotilla_model::{SetRecord, Wait, WaitCause};
use http::Method;
use serde_json::Value;

/// That the set is being deleted, and fields that cannot be read: those stop nothing that the manager does, but do not do what was asked.
pub(super) fn waits(found: &Found, set: Option<&SetRecord>, known: &[Wait]) -> Vec<Wait> {
    let wait = |cause: WaitCause| Wait {
        subject: found.key.name.to_string(),
        cause,
        since: None,
    };
    let metadata = &found.object["metadata"];
    let deleted = time(&metadata["deletionTimestamp"]).map(|at| Wait {
        since: Some(at),
        ..wait(WaitCause::SetTerminating {
            finalizers: finalizers(metadata),
        })
    });
    let problems = set.into_iter().flat_map(|set| &set.spec.problems).map(|problem| {
        wait(WaitCause::FieldUnreadable {
            path: problem.path.clone(),
            found: problem.found.clone(),
            rule: problem.rule.to_owned(),
        })
    });
    let is_known = |wait: &Wait| known.iter().any(|other| other.cause == wait.cause);
    deleted
        .into_iter()
        .chain(problems)
        .filter(|wait| !is_known(wait))
        .collect()
}

/// The finalizers of an object.
pub(super) fn finalizers(metadata: &Value) -> Vec<String> {
    let list = metadata["finalizers"].as_array().into_iter().flatten();
    list.filter_map(|finalizer| finalizer.as_str().map(str::to_owned))
        .collect()
}

/// That the namespace is being deleted. Who may not look at it is told so.
pub(super) async fn of_namespace(cluster: &Cluster, unread: &mut Vec<String>) -> Result<Option<Wait>, Error> {
    let name = &cluster.namespace;
    let path = format!("/api/v1/namespaces/{}", in_command(name));
    match cluster.send(Method::GET, &path, None).await {
        Ok(namespace) => Ok(terminating(name, &namespace)),
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

fn terminating(name: &str, namespace: &Value) -> Option<Wait> {
    let since = time(&namespace["metadata"]["deletionTimestamp"])?;
    let conditions = namespace["status"]["conditions"].as_array().into_iter().flatten();
    let in_the_way = conditions.filter(|condition| condition["status"] == "True");
    let messages: Vec<&str> = in_the_way
        .filter_map(|condition| condition["message"].as_str())
        .collect();
    Some(Wait {
        subject: format!("namespace {name}"),
        cause: WaitCause::NamespaceTerminating {
            message: messages.join("; "),
        },
        since: Some(since),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_namespace_that_is_being_deleted_says_what_is_in_its_way() {
        let deleted = |conditions: Value| {
            let metadata = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
            let wait = terminating(
                "shop",
                &json!({"metadata": metadata, "status": {"conditions": conditions}}),
            );
            let wait = wait.expect("a wait");
            format!("{}: {}", wait.subject, wait.cause)
        };
        let remaining = json!([
            {"type": "NamespaceContentRemaining", "status": "True", "message": "Some resources are remaining"},
            {"type": "NamespaceDeletionContentFailure", "status": "False", "message": "All content successfully deleted"},
        ]);
        assert_eq!(
            deleted(remaining),
            "namespace shop: is being deleted: Some resources are remaining"
        );
        assert_eq!(deleted(Value::Null), "namespace shop: is being deleted");
        assert_eq!(terminating("shop", &json!({"metadata": {}})), None);
    }
}
