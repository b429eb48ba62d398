//! Lifecycle hooks: who is held, what releases it, and what is said while nobody does. Each by labels and by finalizers (STS-4.8).

use crate::Lab;
use crate::in_place::{in_place_set, lives, runs, start, web};
use crate::why::Story;
use flotilla_e2e::api::{Objects, is_ready, text};
use flotilla_e2e::real::{condition, container, incarnation, pod_until};
use flotilla_e2e::sets::{SOON, pods, ready, rolled_out, set_image};
use flotilla_e2e::suite::trial;
use flotilla_e2e::{Api, Kind};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use std::time::Duration;

/// For how long something must not happen.
const A_WHILE: Duration = Duration::from_secs(2);
const HOLD: &str = "example.com/hold";

pub(crate) fn trials(lab: &Lab) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (marker, word) in [(Marker::Label, "label"), (Marker::Finalizer, "finalizer")] {
        macro_rules! story {
            ($name:ident) => {
                story!($name as stringify!($name);)
            };
            ($name:ident as $title:expr; $($more:expr),*) => {{
                let own = lab.clone();
                let title = $title.to_owned();
                let namespace = format!("hooks-{word}-{}", title.replace('_', "-"));
                trials.push(trial(format!("hooks::{word}::{title}"), move || async move {
                    $name(Story::enter(&own, namespace).await, marker $(, $more)*).await;
                }));
            }};
        }
        story!(pre_normal_waits_for_its_markers);
        story!(pre_delete_holds_a_scale_down);
        story!(a_held_pod_is_wanted_again);
        story!(pre_delete_holds_a_specified_delete);
        story!(in_place_update_holds_and_lets_go);
        story!(a_hook_takes_its_pod_out_of_service);
        for (at, when) in Moment::ALL {
            for (image, what) in [("app:v1", "rolled_back"), ("app:v3", "changed_again")] {
                let title = format!("{what}_{when}");
                story!(another_image_comes as title; at, image);
            }
        }
    }
    trials
}

/// What a hook looks at.
#[derive(Clone, Copy)]
enum Marker {
    Label,
    Finalizer,
}

/// States of STS-4.8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    PreparingNormal,
    Normal,
    PreparingUpdate,
    Updating,
    Updated,
    PreparingDelete,
}

/// When the template changes once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Preparing,
    Grace,
    Updating,
    Updated,
}

impl Moment {
    /// All, each with words for names.
    const ALL: [(Moment, &'static str); 4] = [
        (Moment::Preparing, "while_preparing"),
        (Moment::Grace, "in_the_grace_period"),
        (Moment::Updating, "while_updating"),
        (Moment::Updated, "when_updated"),
    ];
}

impl Marker {
    /// The hook that looks for it.
    fn hook(self, mark_not_ready: bool) -> Value {
        match self {
            Marker::Label => json!({"labelsHandler": {HOLD: "yes"}, "markPodNotReady": mark_not_ready}),
            Marker::Finalizer => json!({"finalizersHandler": [HOLD], "markPodNotReady": mark_not_ready}),
        }
    }

    /// As it is named to users.
    fn told(self) -> String {
        match self {
            Marker::Label => format!("label {HOLD}=yes"),
            Marker::Finalizer => format!("finalizer {HOLD}"),
        }
    }

    fn put_on_template(self, set: &mut Value) {
        let metadata = &mut set["spec"]["template"]["metadata"];
        match self {
            Marker::Label => metadata["labels"][HOLD] = json!("yes"),
            Marker::Finalizer => metadata["finalizers"] = json!([HOLD]),
        }
    }

    fn is_on(self, pod: &Value) -> bool {
        match self {
            Marker::Label => pod["metadata"]["labels"][HOLD] == "yes",
            Marker::Finalizer => pod["metadata"]["finalizers"]
                .as_array()
                .is_some_and(|all| all.contains(&json!(HOLD))),
        }
    }

    /// Puts it on a pod, or takes it away, as the owner of the hook does.
    async fn set(self, api: &Api, ns: &str, pod: &str, on: bool) {
        let metadata = match (self, on) {
            (Marker::Label, true) => json!({"labels": {HOLD: "yes"}}),
            (Marker::Label, false) => json!({"labels": {HOLD: null}}),
            // No one else's finalizers are on these pods.
            (Marker::Finalizer, true) => json!({"finalizers": [HOLD]}),
            (Marker::Finalizer, false) => json!({"finalizers": null}),
        };
        api.patch(&format!("{}/{pod}", pods(ns)), &json!({"metadata": metadata}))
            .await;
    }
}

/// Whether a pod is in a state; without a label it is Normal.
fn is_in(pod: &Value, state: State) -> bool {
    let label = text(pod, "/metadata/labels/lifecycle.apps.kruise.io~1state");
    label == format!("{state:?}") || label.is_empty() && state == State::Normal
}

async fn until_in(s: &Story, pod: &str, state: State) -> Value {
    pod_until(&s.api, &s.ns, pod, &format!("{state:?}"), |pod| is_in(pod, state)).await
}

/// A set with this hook, whose template carries its marker.
fn hooked(marker: Marker, hook: &str, replicas: i64, mark_not_ready: bool) -> Value {
    let mut set = in_place_set(replicas);
    set["spec"]["lifecycle"] = json!({hook: marker.hook(mark_not_ready)});
    marker.put_on_template(&mut set);
    if mark_not_ready {
        set["spec"]["template"]["spec"]["readinessGates"] =
            json!([{"conditionType": "InPlaceUpdateReady"}, {"conditionType": "KruisePodReady"}]);
    }
    set
}

/// The wait of a pod, which has to name the marker.
async fn waits_for(s: &Story, cause: &str, hook: &str, pod: &str, marker: Marker) {
    let wait = s.eventually(cause, pod).await;
    assert_eq!(wait["hook"], hook, "{wait}");
    assert_eq!(wait["markers"], json!([marker.told()]), "{wait}");
    for said in ["/message", "/advice"] {
        assert!(text(&wait, said).contains(&marker.told()), "{said} of {wait}");
    }
}

async fn scale(s: &Story, replicas: i64) {
    let body = json!({"spec": {"replicas": replicas}});
    s.api.patch(&web(&s.ns), &body).await;
}

async fn pre_normal_waits_for_its_markers(s: Story, marker: Marker) {
    let mut set = in_place_set(1);
    set["spec"]["lifecycle"] = json!({"preNormal": marker.hook(false)});
    s.api.create(&Kind::Advanced.sets(&s.ns), &set).await;
    pod_until(&s.api, &s.ns, "web-0", "ready, and held", |pod| {
        is_ready(pod) && is_in(pod, State::PreparingNormal)
    })
    .await;
    waits_for(&s, "HookLacks", "preNormal", "web-0", marker).await;
    let sets = Kind::Advanced.sets(&s.ns);
    let available = |sets: &Objects| sets["web"]["status"]["availableReplicas"].as_i64();
    assert_eq!(available(&s.api.list(&sets).await).unwrap_or(0), 0);
    marker.set(&s.api, &s.ns, "web-0", true).await;
    until_in(&s, "web-0", State::Normal).await;
    s.api
        .until(&sets, SOON, "available", |sets| available(sets) == Some(1))
        .await;
}

async fn pre_delete_holds_a_scale_down(s: Story, marker: Marker) {
    let before = start(&s.api, &s.ns, &hooked(marker, "preDelete", 3, false)).await;
    scale(&s, 1).await;
    for pod in ["web-1", "web-2"] {
        let held = until_in(&s, pod, State::PreparingDelete).await;
        assert!(is_ready(&held), "it serves on");
        waits_for(&s, "HookHolds", "preDelete", pod, marker).await;
    }
    let all_there =
        |pods: &Objects| pods.len() == 3 && pods.values().all(|p| p["metadata"]["deletionTimestamp"].is_null());
    s.api
        .throughout(&pods(&s.ns), A_WHILE, "nobody is deleted", all_there)
        .await;
    for pod in ["web-1", "web-2"] {
        marker.set(&s.api, &s.ns, pod, false).await;
    }
    let gone = |pods: &Objects| pods.len() == 1;
    let left = s.api.until(&pods(&s.ns), SOON, "only web-0", gone).await;
    assert_eq!(lives(&left)["web-0"], lives(&before)["web-0"]);
}

/// STS-3.5: a pod that a hook held back from deletion is wanted again.
async fn a_held_pod_is_wanted_again(s: Story, marker: Marker) {
    let before = start(&s.api, &s.ns, &hooked(marker, "preDelete", 2, true)).await;
    scale(&s, 1).await;
    let held = pod_until(&s.api, &s.ns, "web-1", "held out of service", |pod| {
        is_in(pod, State::PreparingDelete) && !is_ready(pod)
    })
    .await;
    let why = text(condition(&held, "KruisePodReady"), "/message");
    assert!(why.contains("preDeleteHook"), "{why}");
    scale(&s, 2).await;
    until_in(&s, "web-1", State::Normal).await;
    assert_eq!(
        lives(&ready(&s.api, &s.ns, 2).await),
        lives(&before),
        "in service again"
    );
}

/// STS-3.8.
async fn pre_delete_holds_a_specified_delete(s: Story, marker: Marker) {
    let before = start(&s.api, &s.ns, &hooked(marker, "preDelete", 2, false)).await;
    let body = json!({"metadata": {"labels": {"apps.kruise.io/specified-delete": "true"}}});
    s.api.patch(&format!("{}/web-0", pods(&s.ns)), &body).await;
    until_in(&s, "web-0", State::PreparingDelete).await;
    waits_for(&s, "HookHolds", "preDelete", "web-0", marker).await;
    marker.set(&s.api, &s.ns, "web-0", false).await;
    let (before, old) = (lives(&before), lives(&before)["web-0"].0.clone());
    let is_new = |pod: &Value| text(pod, "/metadata/uid") != old && is_ready(pod) && is_in(pod, State::Normal);
    pod_until(&s.api, &s.ns, "web-0", "made again", is_new).await;
    assert_eq!(lives(&ready(&s.api, &s.ns, 2).await)["web-1"], before["web-1"]);
}

async fn in_place_update_holds_and_lets_go(s: Story, marker: Marker) {
    let (api, ns) = (&s.api, s.ns.as_str());
    let before = lives(&start(api, ns, &hooked(marker, "inPlaceUpdate", 2, false)).await);
    set_image(api, &web(ns), "app:v2").await;
    for (pod, other) in [("web-1", "web-0"), ("web-0", "web-1")] {
        let held = until_in(&s, pod, State::PreparingUpdate).await;
        assert!(runs(&held) == "app:v1" && is_ready(&held), "untouched");
        waits_for(&s, "HookHolds", "inPlaceUpdate", pod, marker).await;
        let one_by_one =
            |pods: &Objects| is_in(&pods[pod], State::PreparingUpdate) && is_in(&pods[other], State::Normal);
        api.throughout(&pods(ns), A_WHILE / 4, "the other waits", one_by_one)
            .await;
        marker.set(api, ns, pod, false).await;
        let updated = until_in(&s, pod, State::Updated).await;
        assert_eq!(runs(&updated), "app:v2");
        waits_for(&s, "HookLacks", "inPlaceUpdate", pod, marker).await;
        marker.set(api, ns, pod, true).await;
    }
    rolled_out(api, Kind::Advanced, ns, "web").await;
    let after = ready(api, ns, 2).await;
    assert!(after.values().all(|pod| is_in(pod, State::Normal) && marker.is_on(pod)));
    for (name, (uid, restarts)) in lives(&after) {
        assert_eq!((&uid, restarts), (&before[&name].0, 1), "{name}");
    }
}

async fn a_hook_takes_its_pod_out_of_service(s: Story, marker: Marker) {
    let (api, ns) = (&s.api, s.ns.as_str());
    start(api, ns, &hooked(marker, "inPlaceUpdate", 1, true)).await;
    set_image(api, &web(ns), "app:v2").await;
    let held = pod_until(api, ns, "web-0", "held out of service", |pod| {
        is_in(pod, State::PreparingUpdate) && !is_ready(pod)
    })
    .await;
    let gate = condition(&held, "KruisePodReady");
    assert_eq!(gate["status"], "False");
    assert!(text(gate, "/message").contains("preUpdateHook"), "{gate}");
    assert_eq!(condition(&held, "InPlaceUpdateReady")["status"], "True");
    assert_eq!((runs(&held), incarnation(&held, "main").0), ("app:v1", 0));
    marker.set(api, ns, "web-0", false).await;
    // Updated, it serves again, before its markers are back.
    pod_until(api, ns, "web-0", "updated and in service", |pod| {
        is_in(pod, State::Updated) && is_ready(pod) && condition(pod, "KruisePodReady")["status"] == "True"
    })
    .await;
    marker.set(api, ns, "web-0", true).await;
    rolled_out(api, Kind::Advanced, ns, "web").await;
}

/// The template changes while a pod is in a state of an update: back to what it was, or on.
async fn another_image_comes(s: Story, marker: Marker, at: Moment, image: &str) {
    let (api, ns) = (&s.api, s.ns.as_str());
    let mut set = hooked(marker, "inPlaceUpdate", 1, false);
    if at == Moment::Grace {
        // Long enough for the other image to come within it, also on a busy machine.
        set["spec"]["updateStrategy"]["rollingUpdate"]["inPlaceUpdateStrategy"] = json!({"gracePeriodSeconds": 8});
    }
    let before = lives(&start(api, ns, &set).await);
    bring_to(&s, marker, at).await;
    set_image(api, &web(ns), image).await;
    if at == Moment::Updated {
        // Its owner is asked once more: the markers come back first.
        let asked = until_in(&s, "web-0", State::PreparingUpdate).await;
        assert!(marker.is_on(&asked) && runs(&asked) == "app:v2");
    }
    let is_wanted = at != Moment::Preparing || image != "app:v1";
    if is_wanted {
        if matches!(at, Moment::Preparing | Moment::Updated) {
            waits_for(&s, "HookHolds", "inPlaceUpdate", "web-0", marker).await;
            marker.set(api, ns, "web-0", false).await;
        }
        pod_until(api, ns, "web-0", "updated to the last image", |pod| {
            is_in(pod, State::Updated) && runs(pod) == image && is_ready(pod)
        })
        .await;
        marker.set(api, ns, "web-0", true).await;
    }
    until_in(&s, "web-0", State::Normal).await;
    rolled_out(api, Kind::Advanced, ns, "web").await;
    let after = ready(api, ns, 1).await;
    assert_eq!(runs(&after["web-0"]), image);
    let restarts = match (at, image) {
        (Moment::Preparing | Moment::Grace, "app:v1") => 0,
        (Moment::Updated, _) => 2,
        // What could not be pulled never ran.
        _ => 1,
    };
    assert_eq!(lives(&after)["web-0"], (before["web-0"].0.clone(), restarts));
}

/// Begins an update and brings it to a moment of its life.
async fn bring_to(s: &Story, marker: Marker, at: Moment) {
    // An update to an image that cannot be pulled stays under way.
    let image = if at == Moment::Updating { "app:broken" } else { "app:v2" };
    set_image(&s.api, &web(&s.ns), image).await;
    until_in(s, "web-0", State::PreparingUpdate).await;
    if at == Moment::Preparing {
        return;
    }
    marker.set(&s.api, &s.ns, "web-0", false).await;
    pod_until(&s.api, &s.ns, "web-0", &format!("{at:?}"), |pod| match at {
        Moment::Preparing => false,
        Moment::Grace => is_in(pod, State::Updating) && !is_ready(pod),
        Moment::Updating => is_in(pod, State::Updating) && !container(pod, "main")["state"]["waiting"].is_null(),
        Moment::Updated => is_in(pod, State::Updated) && runs(pod) == "app:v2",
    })
    .await;
}
