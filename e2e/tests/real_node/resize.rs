//! Updates in place that change resources together with something else, or are refused them, for both kinds.

use crate::Lab;
use crate::agent::field;
use crate::sets::assert_same_pods;
use flotilla_e2e::api::{Objects, is_ready, is_terminating, number, text};
use flotilla_e2e::clones::{self, uids};
use flotilla_e2e::real::{advanced_set, condition, container, environment, incarnation, version};
use flotilla_e2e::sets::{SOON, is_rolled_out, pods, ready};
use flotilla_e2e::suite::trial;
use flotilla_e2e::why::waits_of_until;
use flotilla_e2e::{Api, Kind, audit};
use http::Method;
use libtest_mimic::Trial;
use serde_json::{Value, json};
use std::time::Duration;

pub(crate) fn trials(lab: &Lab) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (sort, word) in [(Sort::Advanced, "advanced"), (Sort::Clone, "clone")] {
        macro_rules! stories {
            ($($name:ident),* $(,)?) => {$({
                let own = lab.clone();
                let title = format!("resize::{}_{word}", stringify!($name));
                trials.push(trial(title, move || async move {
                    let ns = format!("resize-{}-{word}", stringify!($name).replace('_', "-"));
                    let api = own.enter(&ns).await;
                    let web = Web { api: api.clone(), ns, sort };
                    let set = format!("{}/web", web.collection());
                    $name(&own, web).await;
                    // The node has room for 50 pods, and other scenarios keep theirs.
                    api.delete(&set, false).await;
                }));
            })*};
        }
        stories!(
            refused_where_pods_may_be_made_again,
            refused_where_pods_stay,
            less_memory_with_an_image,
            less_memory_after_a_restart,
            limits_with_image_and_environment,
        );
    }
    trials
}

/// Which kind of set a scenario runs with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    Advanced,
    Clone,
}

/// Set `web` of a scenario.
struct Web {
    api: Api,
    ns: String,
    sort: Sort,
}

/// Resources of `main`: half of what it may have at most is its own.
fn sized(cpu: &str, memory: &str) -> Value {
    json!({"requests": {"cpu": "20m", "memory": "16Mi"}, "limits": {"cpu": cpu, "memory": memory}})
}

impl Web {
    fn collection(&self) -> String {
        match self.sort {
            Sort::Advanced => Kind::Advanced.sets(&self.ns),
            Sort::Clone => clones::sets(&self.ns),
        }
    }

    /// As command lines name it.
    fn word(&self) -> &'static str {
        match self.sort {
            Sort::Advanced => "statefulset/web",
            Sort::Clone => "cloneset/web",
        }
    }

    /// The condition that tells what was refused.
    fn refusal(&self) -> &'static str {
        match self.sort {
            Sort::Advanced => "FailedUpdatePod",
            Sort::Clone => "FailedUpdate",
        }
    }

    fn is_done(&self, set: &Value) -> bool {
        match self.sort {
            Sort::Advanced => is_rolled_out(set),
            Sort::Clone => clones::is_settled(set),
        }
    }

    /// Runs it with this policy, one of its pods being changed at a time, and returns its pods.
    async fn start(&self, replicas: usize, policy: &str, resources: Value, change: impl FnOnce(&mut Value)) -> Objects {
        let count = i64::try_from(replicas).expect("small");
        let mut set = advanced_set("web", count, "app:v1");
        if self.sort == Sort::Clone {
            let template = set["spec"]["template"].take();
            set = clones::manifest(count);
            set["spec"]["template"] = template;
        }
        set["spec"]["updateStrategy"] = json!({
            "type": "RollingUpdate", "rollingUpdate": {"podUpdatePolicy": policy, "maxUnavailable": 1},
        });
        set["spec"]["template"]["spec"]["containers"][0]["resources"] = resources;
        change(&mut set["spec"]["template"]);
        self.api.create(&self.collection(), &set).await;
        self.done(replicas).await
    }

    /// Replaces parts of its template.
    async fn change(&self, parts: &[(&str, Value)]) {
        let replace = |(path, value): &(&str, Value)| json!({"op": "replace", "path": format!("/spec/template/{path}"), "value": value});
        let body = Value::Array(parts.iter().map(replace).collect());
        let path = format!("{}/web", self.collection());
        let content = Some(("application/json-patch+json", &body));
        let sent = self.api.send(Method::PATCH, &path, content).await;
        sent.unwrap_or_else(|e| panic!("PATCH {body}: {e}"));
    }

    /// Waits until the set says that all its pods are updated and available, and returns them.
    async fn done(&self, replicas: usize) -> Objects {
        let done = |sets: &Objects| sets.get("web").is_some_and(|set| self.is_done(set));
        self.api.until(&self.collection(), SOON, "web at rest", done).await;
        ready(&self.api, &self.ns, replicas).await
    }

    /// Waits until the set tells that pods cannot have their resources; returns what it says.
    async fn told_of_refusal(&self) -> String {
        let of = |sets: &Objects| condition(sets.get("web").unwrap_or(&Value::Null), self.refusal()).clone();
        let is_told = |sets: &Objects| of(sets)["status"] == "True" && of(sets)["reason"] == "ResizeInfeasible";
        let sets = self
            .api
            .until(&self.collection(), SOON, "the refusal is told", is_told)
            .await;
        text(&of(&sets), "/message").to_owned()
    }

    /// How often events with this reason have been told, and what they said.
    async fn events(&self, reason: &str) -> (i64, Vec<String>) {
        let path = format!("/apis/events.k8s.io/v1/namespaces/{}/events", self.ns);
        let mut events = self.api.list(&path).await;
        events.retain(|_, event| event["reason"] == reason);
        let count = events.values().map(|event| number(event, "/series/count").max(1)).sum();
        (
            count,
            events.values().map(|event| text(event, "/note").to_owned()).collect(),
        )
    }
}

/// More than any node has, with another image.
fn too_much() -> [(&'static str, Value); 2] {
    let resources = json!({"requests": {"cpu": "1000", "memory": "100Ti"}});
    [
        ("spec/containers/0/image", json!("app:v2")),
        ("spec/containers/0/resources", resources),
    ]
}

fn as_before() -> [(&'static str, Value); 2] {
    [
        ("spec/containers/0/image", json!("app:v1")),
        ("spec/containers/0/resources", little()),
    ]
}

fn little() -> Value {
    json!({"requests": {"cpu": "20m", "memory": "16Mi"}})
}

/// What the API server says of a node that is too small.
const TOO_SMALL: &str = "enough allocatable";

/// STS-4.1 and STS-4.6: one pod is made again, for which no node has room either, and no other one goes.
async fn refused_where_pods_may_be_made_again(lab: &Lab, web: Web) {
    let before = web.start(2, "InPlaceIfPossible", little(), |_| ()).await;
    let old = uids(&before);
    web.change(&too_much()).await;
    let is_new = |pod: &Value| !old.values().any(|uid| *uid == text(pod, "/metadata/uid"));
    let has_no_node = |pod: &Value| condition(pod, "PodScheduled")["reason"] == "Unschedulable";
    let mut during = web
        .api
        .until(&pods(&web.ns), SOON, "one is made again", |pods| {
            let serving = pods
                .values()
                .filter(|pod| is_ready(pod) && !is_terminating(pod))
                .count();
            assert!(serving >= 1, "the budget is one pod");
            pods.len() == 2 && pods.values().any(|pod| is_new(pod) && has_no_node(pod))
        })
        .await;
    let new = during
        .values()
        .find(|pod| is_new(pod))
        .expect("it was there a moment ago");
    let new = text(new, "/metadata/name").to_owned();
    during.remove(&new);
    let (kept, _) = during.pop_first().expect("the other one");
    let names_it = |wait: &Value| wait["subject"] == new && text(wait, "/message").contains("Unschedulable");
    let kubeconfig = &lab.kubeconfig;
    waits_of_until(
        &web.api,
        kubeconfig,
        &web.ns,
        web.word(),
        "the pod without a node",
        names_it,
    )
    .await;
    // What is asked for again and again is asked for within that time.
    let stays = |pods: &Objects| is_ready(&pods[&kept]) && incarnation(&pods[&kept], "main").0 == 0;
    let time = Duration::from_secs(3);
    web.api
        .throughout(&pods(&web.ns), time, "the other one stays", stays)
        .await;
    assert_refused_once(lab, &web, 0).await;
    web.change(&as_before()).await;
    let after = web.done(2).await;
    assert_eq!(uids(&after)[&kept], old[&kept], "{kept}");
    assert_eq!(incarnation(&after[&kept], "main"), incarnation(&before[&kept], "main"));
    for (name, pod) in &after {
        assert_eq!(version(&web.api, &web.ns, name).await.as_deref(), Some("v1"), "{name}");
        assert_eq!(container(pod, "main")["resources"], little(), "{name}");
    }
    // What has no node yet can have other resources without being made again.
    assert_refused_once(lab, &web, 1).await;
}

/// That one resize was asked for, refused, and told with the API server's words; and so many others, that it took.
async fn assert_refused_once(lab: &Lab, web: &Web, others: usize) {
    let asked = audit::answers(&lab.audit_log, &web.ns, "pods", "resize");
    let refused = asked.iter().filter(|code| **code == 403).count();
    assert!(refused == 1 && asked.len() == 1 + others, "{}: {asked:?}", web.ns);
    let (count, said) = web.events("SuccessfulUpdatePodInPlace").await;
    assert!(count <= 2, "at most one for each pod: {said:?}");
    let (_, said) = web.events("FailedUpdatePodInPlace").await;
    assert!(said.iter().any(|note| note.contains(TOO_SMALL)), "{said:?}");
}

/// STS-4.2: it keeps what it has, image included.
async fn refused_where_pods_stay(lab: &Lab, web: Web) {
    let before = web.start(2, "InPlaceOnly", little(), |_| ()).await;
    web.change(&too_much()).await;
    let told = web.told_of_refusal().await;
    assert!(told.contains(TOO_SMALL), "{told}");
    let is_it = |wait: &Value| {
        let message = text(wait, "/message");
        wait["cause"] == "ResizeInfeasible" && message.contains(TOO_SMALL)
    };
    let kubeconfig = &lab.kubeconfig;
    waits_of_until(
        &web.api,
        kubeconfig,
        &web.ns,
        web.word(),
        "a resize that was refused",
        is_it,
    )
    .await;
    let serves = |pods: &Objects| pods.len() == 2 && pods.values().all(is_ready);
    let time = Duration::from_secs(3);
    web.api.throughout(&pods(&web.ns), time, "all serve", serves).await;
    let set = web.api.read(&format!("{}/web", web.collection())).await;
    assert!(!web.is_done(&set), "{set}");
    assert_refused_once(lab, &web, 0).await;
    web.change(&as_before()).await;
    let after = web.done(2).await;
    assert_same_pods(&before, &after);
    for (name, pod) in &after {
        assert_eq!(incarnation(pod, "main"), incarnation(&before[name], "main"), "{name}");
        assert_eq!(pod["spec"]["containers"], before[name]["spec"]["containers"], "{name}");
    }
    let recovered = |sets: &Objects| condition(&sets["web"], web.refusal())["status"] != "True";
    web.api
        .until(&web.collection(), SOON, "the refusal is over", recovered)
        .await;
    // It is asked for once more, since something else is: for what it has.
    assert_refused_once(lab, &web, 1).await;
}

/// That each pod runs this image and has these limits, restarted so often, once nothing is left to its kubelet: a change of resources alone
/// is not waited for by its set.
async fn assert_in_force(web: &Web, image: &str, limits: &Value, restarts: i64) {
    let left = ["PodResizePending", "PodResizeInProgress"];
    let is_done = |pod: &Value| left.iter().all(|kind| condition(pod, kind).is_null());
    let done = |pods: &Objects| pods.values().all(is_done);
    let what = "nothing is left to the kubelet";
    let pods = web.api.until(&pods(&web.ns), SOON, what, done).await;
    for (name, pod) in &pods {
        let main = container(pod, "main");
        assert_eq!(main["resources"]["limits"], *limits, "{name}");
        assert_eq!(main["restartCount"], restarts, "{name}");
        assert_eq!(version(&web.api, &web.ns, name).await.as_deref(), Some(image), "{name}");
    }
}

/// A kubelet does not lower the memory of a container that is just restarting.
async fn less_memory_with_an_image(_: &Lab, web: Web) {
    let before = web.start(2, "InPlaceIfPossible", sized("100m", "128Mi"), |_| ()).await;
    let less = sized("100m", "64Mi");
    web.change(&[
        ("spec/containers/0/image", json!("app:v2")),
        ("spec/containers/0/resources", less.clone()),
    ])
    .await;
    let after = web.done(2).await;
    assert_same_pods(&before, &after);
    assert_in_force(&web, "v2", &less["limits"], 1).await;
}

/// A runtime that lists former containers without figures keeps a kubelet from lowering the memory of what has been restarted. Such a pod
/// serves on with what it has, says why, and goes on when that is no longer asked of it.
async fn less_memory_after_a_restart(lab: &Lab, web: Web) {
    let (much, less) = (sized("100m", "128Mi"), sized("100m", "64Mi"));
    let before = web.start(2, "InPlaceIfPossible", much.clone(), |_| ()).await;
    web.change(&[("spec/containers/0/image", json!("app:v2"))]).await;
    web.done(2).await;
    web.change(&[
        ("spec/containers/0/image", json!("app:v3")),
        ("spec/containers/0/resources", less),
    ])
    .await;
    let refuses = "cannot decrease memory limits";
    let is_it = |wait: &Value| wait["cause"] == "InPlaceResize" && text(wait, "/message").contains(refuses);
    let (api, ns) = (&web.api, &web.ns);
    waits_of_until(api, &lab.kubeconfig, ns, web.word(), "the kubelet's words", is_it).await;
    let serves = |pod: &Value| is_ready(pod) && incarnation(pod, "main").0 == 1;
    let time = Duration::from_secs(3);
    api.throughout(&pods(ns), time, "all serve", |pods| {
        pods.len() == 2 && pods.values().all(serves)
    })
    .await;
    let asked = audit::answers(&lab.audit_log, ns, "pods", "resize");
    assert_eq!(asked, [200], "of the first, and once");
    web.change(&[
        ("spec/containers/0/image", json!("app:v2")),
        ("spec/containers/0/resources", much.clone()),
    ])
    .await;
    let after = web.done(2).await;
    assert_same_pods(&before, &after);
    assert_in_force(&web, "v2", &much["limits"], 1).await;
}

/// Down, up, and down again, but for the memory of a container that was restarted before; AGT-8.5 is for the environment.
async fn limits_with_image_and_environment(lab: &Lab, web: Web) {
    let agent = lab.with_agent().await;
    let before = web
        .start(2, "InPlaceIfPossible", sized("200m", "128Mi"), |template| {
            template["metadata"]["annotations"] = json!({"colour": "green"});
            template["spec"]["containers"][0]["env"] = json!([field("COLOUR", "metadata.annotations['colour']")]);
        })
        .await;
    for (restarts, image, colour, resources) in [
        (1, "v2", "red", sized("100m", "64Mi")),
        (2, "v3", "blue", sized("200m", "96Mi")),
        (3, "v1", "green", sized("100m", "96Mi")),
    ] {
        web.change(&[
            ("spec/containers/0/image", json!(format!("app:{image}"))),
            ("spec/containers/0/resources", resources.clone()),
            ("metadata/annotations/colour", json!(colour)),
        ])
        .await;
        let after = web.done(2).await;
        assert_same_pods(&before, &after);
        assert_in_force(&web, image, &resources["limits"], restarts).await;
        for name in after.keys() {
            assert_eq!(environment(&web.api, &web.ns, name).await["COLOUR"], colour, "{name}");
        }
    }
    drop(agent);
}
