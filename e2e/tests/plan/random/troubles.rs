//! What a set has to live with, done to it on the real control plane.

use super::draw::{Case, POOL, Scarce, Trouble};
use crate::changes::Story;
use flotilla_e2e::Api;
use flotilla_e2e::api::{Objects, is_ready, name, number, text};
use flotilla_e2e::clock;
use flotilla_e2e::sets::{SOON, pods, shape};
use flotilla_e2e::suite;
use http::Method;
use serde_json::{Value, json};

const NODES: &str = "/api/v1/nodes";
/// So many cores has a node that a set has for itself.
const CORES: usize = 64;
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
/// What the policy says.
const NO_MORE: &str = "no more pods here";
/// The taint by which the control plane keeps pods away from a node that is silent.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

impl Case {
    /// Makes the nodes that the set has for itself.
    pub(super) async fn prepare(&self, api: &Api) {
        let count = match self.trouble {
            Trouble::NodeLost(count) => count,
            Trouble::RoomTaken(_) => 1,
            _ => return,
        };
        for number in 0..count {
            api.create(NODES, &self.node(number, true)).await;
        }
    }

    /// One of the nodes that the set has for itself; simulated, or silent and played by nobody.
    fn node(&self, number: u32, is_up: bool) -> Value {
        let name = format!("pool-{}-{number}", self.seed);
        let room = json!({"cpu": CORES.to_string(), "memory": "256Gi", "pods": "100"});
        let mut node = json!({
            "metadata": {"name": name, "labels": {POOL: self.seed.to_string(), "kubernetes.io/hostname": name}},
            "spec": {"taints": [{"key": POOL, "effect": "NoSchedule"}]},
            "status": {"allocatable": room, "capacity": room},
        });
        if is_up {
            node["metadata"]["annotations"] = json!({"kwok.x-k8s.io/node": "fake"});
        } else {
            node["status"]["conditions"] = json!([{
                "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."
            }]);
        }
        node
    }

    /// The trouble comes, and the set knows of it.
    pub(super) async fn befall(&self, story: &Story, all: &Objects) {
        let (name, pod) = all.iter().nth(self.troubled % all.len()).expect("it has pods");
        let of_cpu = |most: &str| json!({"type": "Container", "max": {"cpu": most}, "default": {"cpu": most}, "defaultRequest": {"cpu": "100m"}});
        match self.trouble {
            Trouble::None => {}
            Trouble::PodCrashes => {
                shape(&story.api, &story.ns, name, "crash", Some("true")).await;
                self.knows_of(story, 1).await;
            }
            Trouble::PodHeld => {
                let held = json!({"metadata": {"finalizers": ["example.com/held"]}});
                story.api.patch(&format!("{}/{name}", pods(&story.ns)), &held).await;
            }
            Trouble::NodeLost(_) => self.lose(story, all, text(pod, "/spec/nodeName")).await,
            Trouble::RoomTaken(more) => self.take_room(story, all, more).await,
            Trouble::Quota(scarce, more) => quota(story, scarce, all.len(), more).await,
            Trouble::CpuGiven(more) => {
                limit(story, &of_cpu("1")).await;
                let asks = self.spec.pointer("/template/spec/containers/0/resources").is_some();
                quota(story, Scarce::Cpu, if asks { all.len() } else { 0 }, more).await;
            }
            Trouble::CpuLimited => limit(story, &of_cpu("200m")).await,
            Trouble::StorageLimited => {
                limit(
                    story,
                    &json!({"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}),
                )
                .await;
            }
            Trouble::Denied => {
                deny(story).await;
                story.api.delete(&format!("{}/{name}", pods(&story.ns)), false).await;
                let is_told = |sets: &Objects| sets["web"]["status"]["conditions"].to_string().contains(NO_MORE);
                let what = "the set says that its pods are refused";
                story.api.until(&self.sets(&story.ns), SOON, what, is_told).await;
            }
        }
    }

    /// A pod of another namespace takes all of the set's node but what so many more pods ask for.
    async fn take_room(&self, story: &Story, all: &Objects, more: usize) {
        let ns = format!("{}-others", story.ns);
        let api = suite::enter(&story.lab.admin, &ns).await;
        let left = 100 * (all.len() + more);
        let asks = json!({"requests": {"cpu": format!("{}m", 1000 * CORES - left)}});
        let other = json!({"metadata": {"name": "large"}, "spec": {
            "nodeName": format!("pool-{}-0", self.seed),
            "containers": [{"name": "main", "image": "app:v1", "resources": asks}],
        }});
        api.create(&pods(&ns), &other).await;
        api.until(&pods(&ns), SOON, "the other pod runs", |pods| is_ready(&pods["large"]))
            .await;
    }

    /// A node falls silent, and the control plane has noticed.
    ///
    /// Its object is made anew as one that kwok does not play, so that what is asked of its pods from now on is done by nobody. Its pods stay
    /// bound to it by its name; those that have no node are left alone for longer than this takes.
    async fn lose(&self, story: &Story, all: &Objects, lost: &str) {
        let number = lost
            .rsplit('-')
            .next()
            .and_then(|n| n.parse().ok())
            .expect("one of ours");
        let api = &story.api;
        let path = format!("{NODES}/{lost}");
        api.delete(&path, false).await;
        api.until(NODES, SOON, "the node is gone", |nodes| !nodes.contains_key(lost))
            .await;
        api.create(NODES, &self.node(number, false)).await;
        let is_shunned = |nodes: &Objects| nodes[lost]["spec"]["taints"].to_string().contains(UNREACHABLE);
        api.until(NODES, SOON, "pods are kept away from the node", is_shunned)
            .await;
        let mut count = 0;
        for pod in all.values().filter(|pod| text(pod, "/spec/nodeName") == lost) {
            // As the controller of nodes does where it sees one fall silent.
            let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
            let path = format!("{}/{}/status", pods(&story.ns), name(pod));
            let sent = api
                .send(
                    Method::PATCH,
                    &path,
                    Some(("application/strategic-merge-patch+json", &unready)),
                )
                .await;
            let pod = sent.unwrap_or_else(|e| panic!("PATCH {path}: {e}"));
            assert!(!is_ready(&pod), "{pod}");
            count += 1;
        }
        self.knows_of(story, count).await;
    }

    /// Waits until the set says that so many of its pods are not ready.
    async fn knows_of(&self, story: &Story, unready: i64) {
        let is_told = |sets: &Objects| number(&sets["web"], "/status/readyReplicas") == self.replicas - unready;
        let what = "the set knows of pods that are not ready";
        story.api.until(&self.sets(&story.ns), SOON, what, is_told).await;
    }
}

/// A policy of the cluster's owner refuses all new pods of the namespace from now on.
async fn deny(story: &Story) {
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": story.ns},
        "spec": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": story.ns}},
                "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            },
            "validations": [{"expression": "false", "message": NO_MORE}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": story.ns},
        "spec": {"policyName": story.ns, "validationActions": ["Deny"]},
    });
    story.api.create(POLICIES, &policy).await;
    story
        .api
        .create(&POLICIES.replace("policies", "policybindings"), &binding)
        .await;
    let probe = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"},
        "spec": {"containers": [{"name": "main", "image": "app:v1"}]},
    });
    let path = format!("{}?dryRun=All", pods(&story.ns));
    let is_denied = async || {
        let sent = story.api.send(Method::POST, &path, Some(("application/json", &probe)));
        sent.await.is_err()
    };
    let begun = clock::now();
    // The API server reads policies by a watch, and nobody can see when.
    while !is_denied().await {
        assert!(begun.elapsed() < SOON, "the policy is not in force");
        tokio::task::yield_now().await;
    }
}

/// A quota with room for what so many more pods use than use it now.
async fn quota(story: &Story, scarce: Scarce, pods: usize, more: usize) {
    let hard = json!({scarce.name(): scarce.of(pods + more)});
    let quotas = format!("/api/v1/namespaces/{}/resourcequotas", story.ns);
    let quota = json!({"metadata": {"name": "small"}, "spec": {"hard": hard}});
    story.api.create(&quotas, &quota).await;
    let used = scarce.of(pods);
    let is_counted = |quotas: &Objects| quotas["small"]["status"]["used"][scarce.name()] == used;
    story.api.until(&quotas, SOON, "the quota counts", is_counted).await;
}

/// A limit range. The API server learns of it by a watch, and nobody can see when.
async fn limit(story: &Story, rule: &Value) {
    let ranges = format!("/api/v1/namespaces/{}/limitranges", story.ns);
    let range = json!({"metadata": {"name": "usual"}, "spec": {"limits": [rule]}});
    story.api.create(&ranges, &range).await;
}
