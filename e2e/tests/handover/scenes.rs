//! What is recorded of CloneSets: the set, what its users do, and when the Go manager is half-way.

use flotilla_e2e::api::{Objects, is_ready, number, text};
use serde_json::{Value, json};

/// A step of a scene.
#[derive(Clone)]
pub enum Act {
    /// Waits until the set is at rest.
    Settle,
    /// Refuses the Go manager these writes of this scene, each as OPERATION RESOURCE.
    Refuse(&'static str),
    /// Changes the set.
    Set(Value),
    /// Changes each pod.
    Pods(Value),
    /// Deletes the first pod.
    DeleteFirst,
    /// Names the first pod for deletion, and changes the set so.
    NameFirst(Value),
    /// Waits for the state that is wanted; the name is that of the first pod.
    Until(Of, &'static str, fn(&Objects, &str) -> bool),
}

/// Of which objects.
#[derive(Clone, Copy)]
pub enum Of {
    Pods,
    Claims,
    Revisions,
    Sets,
}

/// What is recorded into one file.
#[derive(Clone)]
pub struct Scene {
    pub name: &'static str,
    pub set: Value,
    /// While all run.
    pub acts: Vec<Act>,
    /// While no kubelet looks.
    pub away: Vec<Act>,
    /// When the kubelets are back, and the manager is not.
    pub back: Vec<Act>,
}

/// Folder, feature gates of the Go manager, scenes.
pub fn all() -> Vec<(&'static str, &'static str, Vec<Scene>)> {
    let (full, short) = (stock(), stock());
    vec![
        ("full", "", full),
        ("short", "CloneSetShortHash=true", short),
        ("rollback", "CloneSetPartitionRollback=true", rollback()),
        (
            "preparing",
            "PreparingUpdateAsUpdate=true",
            vec![scaled_while_preparing()],
        ),
        (
            "claims",
            "RecreatePodWhenChangeVCTInCloneSetGate=true",
            claim_templates(),
        ),
        (
            "environment",
            "InPlaceUpdateEnvFromMetadata=false",
            vec![environment("environment-not-followed", vec![Act::Settle])],
        ),
    ]
}

const STATE: &str = "/metadata/labels/lifecycle.apps.kruise.io~1state";
const GRACE: &str = "/metadata/annotations/apps.kruise.io~1inplace-update-grace";
const SPECIFIED: &str = "/metadata/labels/apps.kruise.io~1specified-delete";

/// The set `web` with this many pods, which change in place.
pub fn manifest(replicas: i64) -> Value {
    json!({
        "apiVersion": "apps.kruise.io/v1alpha1",
        "kind": "CloneSet",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "updateStrategy": {"type": "InPlaceIfPossible", "maxUnavailable": 1},
            "template": {
                "metadata": {"labels": {"app": "web", "tier": "a"}},
                "spec": {
                    "nodeSelector": {"type": "kwok"},
                    "automountServiceAccountToken": false,
                    "terminationGracePeriodSeconds": 1,
                    "containers": [container("main", "app:v1")],
                },
            },
        },
    })
}

fn container(name: &str, image: &str) -> Value {
    json!({"name": name, "image": image,
        "resources": {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"}}})
}

fn with(mut set: Value, spec: &Value) -> Value {
    merge(&mut set["spec"], spec);
    set
}

/// Puts in what is named, as a merge patch does.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

fn with_claims(set: Value) -> Value {
    let mut set = with(set, &json!({"volumeClaimTemplates": [claim_template("1Gi")]}));
    set["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    set
}

fn claim_template(size: &str) -> Value {
    json!({"metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}})
}

fn again(set: Value) -> Value {
    with(set, &json!({"updateStrategy": {"type": "ReCreate"}}))
}

/// A hook around updates in place, and the label that holds pods by it.
fn hooked(replicas: i64, hook: &Value) -> Value {
    let set = with(
        manifest(replicas),
        &json!({"lifecycle": {"inPlaceUpdate": {"labelsHandler": {"hold": "yes"}}}}),
    );
    let set = with(set, &json!({"lifecycle": {"inPlaceUpdate": hook}}));
    with(set, &json!({"template": {"metadata": {"labels": {"hold": "yes"}}}}))
}

/// The set's pods are to have this image.
fn image(image: &str) -> Act {
    Act::Set(json!({"spec": {"template": {"spec": {"containers": [container("main", image)]}}}}))
}

/// The same of a set whose container mounts a claim.
fn image_with_claim(image: &str) -> Value {
    let mut main = container("main", image);
    main["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    json!({"spec": {"template": {"spec": {"containers": [main]}}}})
}

fn replicas(count: i64) -> Act {
    Act::Set(json!({"spec": {"replicas": count}}))
}

/// Containers that restart are not ready for as long as anybody looks.
fn stays_unready() -> Act {
    Act::Pods(json!({"metadata": {"annotations": {"sim.flotilla.rs/restart": "900s"}}}))
}

fn released() -> Act {
    Act::Pods(json!({"metadata": {"labels": {"hold": null}}}))
}

fn until(what: &'static str, holds: fn(&Objects, &str) -> bool) -> Act {
    Act::Until(Of::Pods, what, holds)
}

fn any(pods: &Objects, holds: impl Fn(&Value) -> bool) -> bool {
    pods.values().any(holds)
}

fn in_state(pods: &Objects, state: &str) -> bool {
    any(pods, |pod| text(pod, STATE) == state)
}

fn condition<'o>(pod: &'o Value, wanted: &str) -> &'o str {
    let conditions = pod["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|c| c["type"] == wanted);
    found.map_or("", |condition| text(condition, "/status"))
}

fn runs(pod: &Value, image: &str) -> bool {
    text(pod, "/spec/containers/0/image") == image
}

fn has_restarted(pod: &Value, times: i64) -> bool {
    number(pod, "/status/containerStatuses/0/restartCount") == times
}

fn is_open(pod: &Value) -> bool {
    condition(pod, "InPlaceUpdateReady") == "True"
}

fn are_changed(pods: &Objects, _: &str) -> bool {
    any(pods, |pod| runs(pod, "app:v2"))
}

fn scene(name: &'static str, set: Value, acts: Vec<Act>) -> Scene {
    Scene {
        name,
        set,
        acts,
        away: Vec::new(),
        back: Vec::new(),
    }
}

/// What is recorded with full labels and with short ones.
fn stock() -> Vec<Scene> {
    let mut scenes = in_place();
    scenes.extend(hooks());
    scenes.extend(renewed());
    scenes.extend(claims());
    scenes.extend(others());
    scenes
}

fn in_place() -> Vec<Scene> {
    let graceful = || {
        with(
            manifest(2),
            &json!({"updateStrategy": {"inPlaceUpdateStrategy": {"gracePeriodSeconds": 900}}}),
        )
    };
    let in_grace = || {
        until("in its grace period", |pods, _| {
            any(pods, |pod| !text(pod, GRACE).is_empty())
        })
    };
    let v2 = || image("app:v2");
    let restarted = until("changed and restarted", |pods, _| {
        any(pods, |pod| runs(pod, "app:v2") && has_restarted(pod, 1))
    });
    let mut ordered = manifest(2);
    ordered["spec"]["template"]["metadata"]["annotations"] =
        json!({"apps.kruise.io/container-launch-priority": "Ordered"});
    ordered["spec"]["template"]["spec"]["containers"] =
        json!([container("main", "app:v1"), container("side", "app:v1")]);
    let both = json!([container("main", "app:v2"), container("side", "app:v2")]);
    let both = Act::Set(json!({"spec": {"template": {"spec": {"containers": both}}}}));
    let away = |name, back: Vec<Act>| Scene {
        away: vec![v2(), until("changed", are_changed)],
        back,
        ..scene(name, manifest(2), vec![Act::Settle])
    };
    let back = until("restarted", |pods, _| {
        any(pods, |pod| has_restarted(pod, 1) && is_ready_but_for_gates(pod))
    });
    vec![
        scene("settled", manifest(2), vec![Act::Settle]),
        scene(
            "settled-after-an-image",
            manifest(2),
            vec![Act::Settle, v2(), Act::Settle],
        ),
        scene(
            "metadata-only",
            manifest(2),
            vec![Act::Settle, label("tier", "b"), Act::Settle],
        ),
        scene(
            "out-of-service-not-changed",
            manifest(2),
            vec![
                Act::Settle,
                Act::Refuse("UPDATE pods"),
                v2(),
                until("out of service", |pods, _| any(pods, |pod| !is_open(pod))),
            ],
        ),
        scene("grace-period", graceful(), vec![Act::Settle, v2(), in_grace()]),
        scene(
            "overtaken-in-the-grace-period",
            graceful(),
            vec![
                Act::Settle,
                v2(),
                in_grace(),
                image("app:v3"),
                Act::Until(Of::Sets, "seen", |sets, _| {
                    number(&sets["web"], "/status/observedGeneration") == 3
                }),
            ],
        ),
        away("changed-not-restarted", Vec::new()),
        away("restarted-not-told", vec![back]),
        scene(
            "restarted-not-ready",
            manifest(2),
            vec![
                Act::Settle,
                stays_unready(),
                v2(),
                until("open again", |pods, _| {
                    any(pods, |pod| runs(pod, "app:v2") && has_restarted(pod, 1) && is_open(pod))
                }),
            ],
        ),
        scene(
            "image-not-pulled",
            manifest(2),
            vec![
                Act::Settle,
                image("app:broken"),
                until("not pulled", |pods, _| {
                    any(pods, |pod| {
                        text(pod, "/status/containerStatuses/0/state/waiting/reason") == "ImagePullBackOff"
                    })
                }),
            ],
        ),
        scene(
            "same-image-id",
            manifest(2),
            vec![
                Act::Settle,
                image("app:v1-same"),
                until("restarted", |pods, _| {
                    any(pods, |pod| has_restarted(pod, 1) && is_ready_but_for_gates(pod))
                }),
            ],
        ),
        scene(
            "overtaken",
            manifest(2),
            vec![
                Act::Settle,
                stays_unready(),
                v2(),
                restarted,
                image("app:v3"),
                until("changed again", |pods, _| {
                    any(pods, |pod| runs(pod, "app:v3") && has_restarted(pod, 2))
                }),
            ],
        ),
        scene(
            "batches",
            ordered,
            vec![
                Act::Settle,
                stays_unready(),
                both,
                until("the first has restarted", |pods, _| {
                    any(pods, |pod| has_restarted(pod, 1))
                }),
            ],
        ),
        environment(
            "environment-awaits-the-agent",
            vec![until("out of service", |pods, _| {
                any(pods, |pod| {
                    !is_open(pod) && text(pod, "/metadata/labels/role") == "leader"
                })
            })],
        ),
    ]
}

fn is_ready_but_for_gates(pod: &Value) -> bool {
    condition(pod, "ContainersReady") == "True"
}

fn label(key: &str, value: &str) -> Act {
    Act::Set(json!({"spec": {"template": {"metadata": {"labels": {key: value}}}}}))
}

fn environment(name: &'static str, then: Vec<Act>) -> Scene {
    let mut set = manifest(2);
    set["spec"]["template"]["metadata"]["labels"]["role"] = json!("follower");
    set["spec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "ROLE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['role']"}}}]);
    let mut acts = vec![Act::Settle, label("role", "leader")];
    acts.extend(then);
    scene(name, set, acts)
}

fn hooks() -> Vec<Scene> {
    let plain = || hooked(2, &json!({}));
    let v2 = || image("app:v2");
    let preparing = || until("prepared", |pods, _| in_state(pods, "PreparingUpdate"));
    let updating = || {
        until("updated", |pods, _| {
            any(pods, |pod| text(pod, STATE) == "Updating" && runs(pod, "app:v2"))
        })
    };
    let away = |name, back: Vec<Act>| Scene {
        away: vec![released(), updating()],
        back,
        ..scene(name, plain(), vec![Act::Settle, v2(), preparing()])
    };
    let back = until("restarted", |pods, _| {
        any(pods, |pod| has_restarted(pod, 1) && is_ready_but_for_gates(pod))
    });
    let leaving = |set: Value| {
        let set = with(
            set,
            &json!({"lifecycle": {"preDelete": {"labelsHandler": {"hold": "yes"}}}}),
        );
        with(set, &json!({"template": {"metadata": {"labels": {"hold": "yes"}}}}))
    };
    let prepared = |name, count| {
        let acts = vec![Act::Settle, v2(), preparing(), replicas(3)];
        let mut scene = scene(
            name,
            with(hooked(2, &json!({})), &json!({"updateStrategy": {"partition": 1}})),
            acts,
        );
        scene.acts.push(count);
        scene
    };
    let three = until("there are three", |pods, _| {
        pods.len() == 3 && pods.values().filter(|pod| is_ready(pod)).count() == 3
    });
    vec![
        scene("preparing-update", plain(), vec![Act::Settle, v2(), preparing()]),
        scene(
            "preparing-update-out-of-service",
            hooked(2, &json!({"markPodNotReady": true})),
            vec![
                Act::Settle,
                v2(),
                until("out of service", |pods, _| {
                    any(pods, |pod| {
                        text(pod, STATE) == "PreparingUpdate" && condition(pod, "KruisePodReady") == "False"
                    })
                }),
            ],
        ),
        prepared("preparing-update-while-scaled", three),
        away("updating-under-a-hook", Vec::new()),
        away("updating-restarted-not-told", vec![back]),
        scene(
            "updated-awaits-markers",
            plain(),
            vec![
                Act::Settle,
                v2(),
                preparing(),
                released(),
                until("awaits markers", |pods, _| in_state(pods, "Updated")),
            ],
        ),
        scene(
            "preparing-delete",
            leaving(manifest(3)),
            vec![
                Act::Settle,
                replicas(2),
                until("leaves", |pods, _| in_state(pods, "PreparingDelete")),
            ],
        ),
        scene(
            "preparing-delete-for-an-update",
            leaving(again(manifest(2))),
            vec![
                Act::Settle,
                v2(),
                until("leaves", |pods, _| in_state(pods, "PreparingDelete")),
            ],
        ),
        scene(
            "preparing-normal",
            with(
                manifest(2),
                &json!({"lifecycle": {"preNormal": {"labelsHandler": {"registered": "yes"}}}}),
            ),
            vec![until("both run", |pods, _| {
                pods.len() == 2
                    && pods
                        .values()
                        .all(|pod| is_ready(pod) && text(pod, STATE) == "PreparingNormal")
            })],
        ),
    ]
}

fn scaled_while_preparing() -> Scene {
    let found = hooks()
        .into_iter()
        .find(|scene| scene.name == "preparing-update-while-scaled");
    found.expect("it is one of them")
}

fn renewed() -> Vec<Scene> {
    let v2 = || image("app:v2");
    let marked = |pods: &Objects, _: &str| any(pods, |pod| text(pod, SPECIFIED) == "true");
    let surging = || {
        with(
            again(manifest(2)),
            &json!({"updateStrategy": {"maxSurge": 1, "maxUnavailable": 0}}),
        )
    };
    vec![
        scene(
            "recreate-not-deleted",
            again(manifest(2)),
            vec![Act::Settle, Act::Refuse("DELETE pods"), v2(), until("marked", marked)],
        ),
        scene(
            "surge-old-pod-not-deleted",
            surging(),
            vec![
                Act::Settle,
                Act::Refuse("DELETE pods"),
                v2(),
                until("marked", |pods, _| {
                    let ready = pods
                        .values()
                        .filter(|pod| is_ready(pod) && text(pod, STATE) == "Normal")
                        .count();
                    ready == 3 && any(pods, |pod| text(pod, SPECIFIED) == "true")
                }),
            ],
        ),
        scene(
            "surge-pod-not-in-service",
            surging(),
            vec![
                Act::Settle,
                Act::Refuse("UPDATE pods"),
                v2(),
                until("one more", |pods, _| pods.len() == 3 && pods.values().all(is_ready)),
            ],
        ),
    ]
}

fn claims() -> Vec<Scene> {
    let bound = || with_claims(manifest(2));
    vec![
        scene(
            "scale-down-claim-left",
            with_claims(manifest(3)),
            vec![
                Act::Settle,
                Act::Refuse("DELETE persistentvolumeclaims"),
                replicas(2),
                until("one is gone", |pods, _| pods.len() == 2),
            ],
        ),
        scene(
            "scale-up-claim-without-pod",
            bound(),
            vec![
                Act::Settle,
                Act::Refuse("CREATE pods"),
                replicas(3),
                Act::Until(Of::Claims, "one more", |claims, _| claims.len() == 3),
            ],
        ),
        scene(
            "recreate-claim-left",
            with_claims(again(manifest(2))),
            vec![
                Act::Settle,
                Act::Refuse("DELETE persistentvolumeclaims,CREATE pods"),
                Act::Set(image_with_claim("app:v2")),
                until("one is gone", |pods, _| pods.len() == 1),
            ],
        ),
        scene(
            "recreate-claim-gone",
            with_claims(again(manifest(2))),
            vec![
                Act::Settle,
                Act::Refuse("CREATE pods"),
                Act::Set(image_with_claim("app:v2")),
                until("one is gone", |pods, _| pods.len() == 1),
                Act::Until(Of::Claims, "its claim too, and there is a new one", |claims, _| {
                    claims.len() == 2
                        && claims
                            .values()
                            .all(|claim| claim["metadata"]["deletionTimestamp"].is_null())
                }),
            ],
        ),
        scene(
            "lost-pod-not-replaced",
            bound(),
            vec![
                Act::Settle,
                Act::Refuse("CREATE pods"),
                Act::DeleteFirst,
                until("it is gone", |pods, first| pods.len() == 1 && !pods.contains_key(first)),
            ],
        ),
        scene(
            "named-not-deleted",
            with_claims(manifest(3)),
            vec![
                Act::Settle,
                Act::Refuse("DELETE pods"),
                Act::NameFirst(json!({"spec": {"replicas": 2}})),
                Act::Until(Of::Sets, "seen", |sets, _| {
                    number(&sets["web"], "/status/observedGeneration") == 2
                }),
            ],
        ),
        scene(
            "named-gone-claim-left",
            with_claims(manifest(3)),
            vec![
                Act::Settle,
                Act::Refuse("DELETE persistentvolumeclaims,UPDATE clonesets"),
                Act::NameFirst(json!({"spec": {"replicas": 2}})),
                until("it is gone", |pods, first| !pods.contains_key(first)),
            ],
        ),
        scene(
            "named-replaced-name-left",
            bound(),
            vec![
                Act::Settle,
                Act::Refuse("UPDATE clonesets"),
                Act::NameFirst(json!({"spec": {}})),
                until("replaced", |pods, first| {
                    pods.len() == 2 && !pods.contains_key(first) && pods.values().all(is_ready)
                }),
            ],
        ),
        scene(
            "claim-templates-and-image",
            bound(),
            vec![
                Act::Settle,
                Act::Set({
                    let mut change = image_with_claim("app:v2");
                    change["spec"]["volumeClaimTemplates"] = json!([claim_template("2Gi")]);
                    change
                }),
                Act::Settle,
            ],
        ),
    ]
}

fn others() -> Vec<Scene> {
    vec![
        scene(
            "partition",
            with(manifest(3), &json!({"updateStrategy": {"partition": 1}})),
            vec![Act::Settle, image("app:v2"), Act::Settle],
        ),
        scene(
            "partition-half-way",
            with(manifest(3), &json!({"updateStrategy": {"partition": 1}})),
            vec![
                Act::Settle,
                stays_unready(),
                image("app:v2"),
                until("the first has restarted", |pods, _| {
                    any(pods, |pod| has_restarted(pod, 1) && is_open(pod))
                }),
            ],
        ),
        scene(
            "revision-not-in-the-status",
            manifest(2),
            vec![
                Act::Settle,
                Act::Refuse("UPDATE clonesets/status,UPDATE pods,UPDATE pods/status"),
                image("app:v2"),
                Act::Until(Of::Revisions, "a second one", |revisions, _| revisions.len() == 2),
            ],
        ),
    ]
}

/// Pods go back, since the partition was raised.
fn rollback() -> Vec<Scene> {
    let halves = || with(manifest(3), &json!({"updateStrategy": {"partition": 1}}));
    let raised = || Act::Set(json!({"spec": {"updateStrategy": {"partition": 2}}}));
    let done = || vec![Act::Settle, image("app:v2"), Act::Settle];
    let scene_of = |name, then: Vec<Act>| {
        let mut acts = done();
        acts.extend(then);
        scene(name, halves(), acts)
    };
    vec![
        scene_of(
            "rollback-not-changed",
            vec![
                Act::Refuse("UPDATE pods"),
                raised(),
                until("out of service", |pods, _| any(pods, |pod| !is_open(pod))),
            ],
        ),
        scene_of(
            "rollback-not-ready",
            vec![
                stays_unready(),
                raised(),
                until("it went back", |pods, _| {
                    any(pods, |pod| runs(pod, "app:v1") && has_restarted(pod, 2) && is_open(pod))
                }),
            ],
        ),
        scene_of(
            "rolled-back",
            vec![
                raised(),
                until("it went back", |pods, _| {
                    pods.values().all(|pod| is_ready(pod) && text(pod, STATE) == "Normal")
                        && any(pods, |pod| runs(pod, "app:v1") && has_restarted(pod, 2))
                }),
            ],
        ),
    ]
}

/// Pods are made again, since the templates of claims changed.
fn claim_templates() -> Vec<Scene> {
    let change = || {
        let mut change = image_with_claim("app:v2");
        change["spec"]["volumeClaimTemplates"] = json!([claim_template("2Gi")]);
        Act::Set(change)
    };
    let bound = || with_claims(manifest(2));
    vec![
        scene(
            "claim-templates-not-deleted",
            bound(),
            vec![
                Act::Settle,
                Act::Refuse("DELETE pods"),
                change(),
                until("marked", |pods, _| any(pods, |pod| text(pod, SPECIFIED) == "true")),
            ],
        ),
        scene(
            "claim-templates-changed",
            bound(),
            vec![Act::Settle, change(), Act::Settle],
        ),
    ]
}
