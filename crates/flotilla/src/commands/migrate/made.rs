//! Making the new object, and seeing that it is there: until then the record is the only copy of the set's spec.

use super::record::{MIGRATION, Record};
use super::{Migration, collection};
use crate::cluster::describe;
use crate::error::Error;
use crate::target::kind_name;
use flotilla_model::Selector;
use flotilla_model::lines::one_line;
use flotilla_model::template::{Digest, normal_form};
use http::Method;
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

/// So long after a conflict it is tried again.
const PAUSE: Duration = Duration::from_secs(1);

impl Migration<'_> {
    /// Makes the new object, unless it was made before an interruption.
    ///
    /// # Errors
    /// Unless it is there: whoever goes on takes the record away.
    pub(super) async fn make(&self, record: &Record) -> Result<(), Error> {
        let path = format!("{}?fieldManager=flotilla-cli", collection(record.to, &self.key));
        let until = Instant::now() + self.within();
        loop {
            let sent = self
                .cluster
                .send(Method::POST, &path, Some(("application/json", &record.new)));
            let conflict = match sent.await {
                Ok(_) => None,
                Err(kube::Error::Api(status)) if status.code == 409 => Some(status),
                Err(error) => return Err(describe(self.left_to_do(record), &error)),
            };
            // Other conflicts are those of a quota that is being counted, or of a webhook. These may also borrow the word: a look tells.
            if conflict.as_ref().is_none_or(|status| status.reason == "AlreadyExists")
                && let Some(found) = self.cluster.get(record.to.resource(), &self.key).await?
            {
                return conflict.map_or(Ok(()), |_| self.is_ours(record, &found));
            }
            if conflict.is_none() || Instant::now() + PAUSE >= until {
                let code = if conflict.is_some() { 409 } else { 200 };
                let said = conflict.map(|status| one_line(&status.message));
                return Err(Error::Refused {
                    what: self.left_to_do(record),
                    code,
                    message: said.unwrap_or_else(|| "the API server took it, and does not show it".to_owned()),
                    advice: format!(
                        "; how to go on stays noted on controllerrevision.apps/{}",
                        record.revision.name
                    ),
                });
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn left_to_do(&self, record: &Record) -> String {
        format!(
            "make {}; its pods have no controller until it is there: run it again",
            kind_name(record.to, &self.key.name)
        )
    }

    /// Whether what is there already was made from the record: its selector, and what its pods are made of, say so.
    fn is_ours(&self, record: &Record, found: &Value) -> Result<(), Error> {
        let selector = |set: &Value| set.pointer("/spec/selector").and_then(Selector::from_json);
        let digest = |set: &Value| Digest::of(&normal_form(&set["spec"]["template"]));
        let what = match (
            selector(found) == selector(&record.new),
            digest(found) == digest(&record.new),
        ) {
            (true, true) => return Ok(()),
            (true, false) => "template",
            (false, _) => "selector",
        };
        let (set, namespace, revision) = (
            kind_name(record.to, &self.key.name),
            &self.key.namespace,
            &record.revision.name,
        );
        Err(Error::NotPossible(format!(
            "failed to go on with the migration of {}: there is a {set}, and its {what} is not that of the set that was migrated: somebody \
             else made it, or has changed it since. If it is what you want, say that the migration is over: kubectl annotate \
             controllerrevision {revision} -n {namespace} {MIGRATION}-. If not, delete it, leave its pods, and run this again: kubectl delete \
             {set} -n {namespace} --cascade=orphan",
            self.key
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::MigrateArgs;
    use crate::cluster::Cluster;
    use flotilla_model::{ObjectKey, SetKind};
    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    const BUSY: &str = "Operation cannot be fulfilled on resourcequotas \"objects\": the object has been modified";

    fn set(selector: &str, image: &str) -> Value {
        json!({
            "metadata": {"name": "web", "namespace": "n"},
            "spec": {
                "selector": {"matchLabels": {"app": selector}},
                "template": {"metadata": {"labels": {"app": selector}}, "spec": {"containers": [{"name": "main", "image": image}]}},
            },
        })
    }

    /// What becomes of making the set where the server answers so to each POST, and has this set; and how many POSTs there were.
    async fn make(answers: &[Option<&str>], stored: Option<Value>, seconds: u64) -> (Result<(), Error>, usize) {
        let failure = |code: u16, reason: &str| {
            let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": reason, "message": BUSY});
            (code, status)
        };
        let posts: Vec<_> = answers
            .iter()
            .map(|reason| reason.map_or((201, set("a", "v1")), |reason| failure(409, reason)))
            .collect();
        let shown = stored.map_or(failure(404, "NotFound"), |stored| (200, stored));
        let (posts, count) = (Mutex::new(posts.into_iter()), Arc::new(AtomicUsize::new(0)));
        let counted = count.clone();
        let answer = move |request: Request<Body>| {
            let (code, body) = if request.method() == Method::POST {
                counted.fetch_add(1, Ordering::Relaxed);
                posts.lock().unwrap().next().expect("no further POST")
            } else {
                shown.clone()
            };
            let answer = Response::builder()
                .status(code)
                .body(Body::from(body.to_string().into_bytes()));
            std::future::ready(Ok::<_, Infallible>(answer.unwrap()))
        };
        let cluster = Cluster {
            client: Client::new(tower::service_fn(answer), "n"),
            namespace: "n".to_owned(),
        };
        let args = MigrateArgs {
            target: "statefulset/web".parse().unwrap(),
            to: None,
            dry_run: false,
            retarget: false,
            timeout_seconds: seconds,
        };
        let migration = Migration {
            key: ObjectKey::new("n", "web"),
            cluster: &cluster,
            args: &args,
        };
        let record = Record {
            to: SetKind::Advanced,
            old: "gone".to_owned(),
            new: set("a", "v1"),
            current_revision: "web-1".to_owned(),
            revision: ObjectKey::new("n", "web-1"),
        };
        (migration.make(&record).await, count.load(Ordering::Relaxed))
    }

    // Nobody waits: the clock goes on when all do.
    #[tokio::test(start_paused = true)]
    async fn tko_3_the_new_object_is_made_only_if_it_is_seen_and_is_what_was_to_be_made() {
        let (ours, taken, busy) = (Some(set("a", "v1")), Some("AlreadyExists"), Some("Conflict"));
        for (what, answers, stored, seconds, posts, refusal) in [
            ("made", vec![None], ours.clone(), 1, 1, None),
            ("made before", vec![taken], ours.clone(), 1, 1, None),
            ("made, and gone", vec![None], None, 1, 1, Some("does not show it")),
            ("a quota at work", vec![busy, None], ours.clone(), 3, 2, None),
            ("a quota that stays so", vec![busy, busy], None, 2, 2, Some(BUSY)),
            ("a conflict, whatever is there", vec![busy], ours, 1, 1, Some(BUSY)),
            ("a webhook that borrows the word", vec![taken], None, 1, 1, Some(BUSY)),
            (
                "another template",
                vec![taken],
                Some(set("a", "v2")),
                1,
                1,
                Some("its template is not"),
            ),
            (
                "another selector",
                vec![taken],
                Some(set("b", "v1")),
                1,
                1,
                Some("its selector is not"),
            ),
        ] {
            let (made, sent) = make(&answers, stored, seconds).await;
            assert_eq!(sent, posts, "{what}");
            match (made, refusal) {
                (Ok(()), None) => {}
                (Err(error), Some(words)) => assert!(error.to_string().contains(words), "{what}: {error}"),
                (made, _) => panic!("{what}: {made:?}"),
            }
        }
    }
}
