//! What is drawn: a set, what it has to live with, and what is changed.
//!
//! A kubelet does not start a container that reads a config map or secret which is not there. The simulated ones look at no other object,
//! so an annotation, of which a plan knows nothing, has them do what a kubelet does.

use super::round::{CANNOT, Turn};
use fastrand::Rng;
use serde_json::{Value, json};

/// A name of which nothing is there, whatever the kind.
const NOT_HERE: &str = "not-here";
/// Label of the nodes that a set has for itself, and key of the taint that keeps others away.
pub(super) const POOL: &str = "example.com/pool";

/// Which kind of set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Native,
    Advanced,
    Clone,
}

impl Kind {
    fn api_version(self) -> &'static str {
        match self {
            Kind::Native => "apps/v1",
            Kind::Advanced | Kind::Clone => "apps.kruise.io/v1beta1",
        }
    }

    fn plural(self) -> &'static str {
        match self {
            Kind::Native | Kind::Advanced => "statefulsets",
            Kind::Clone => "clonesets",
        }
    }

    pub(super) fn short(self) -> &'static str {
        match self {
            Kind::Native => "sts",
            Kind::Advanced => "asts",
            Kind::Clone => "clone",
        }
    }
}

/// What is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// An image that starts.
    Image,
    /// One that cannot be pulled.
    BrokenImage,
    /// A label of the template.
    Label,
    /// Three times as much cpu as pods with requests ask for otherwise.
    Cpu,
    /// Twice as much storage as claims ask for otherwise, and an image that starts.
    Storage,
    /// More memory than any node has.
    NoRoom,
    /// A node that is not there.
    NoNode,
    /// A service account that is not there.
    NoAccount,
    /// A claim that is not there, as a volume.
    NoClaim,
    /// A storage class that is not there, of a claim that each pod has made for itself.
    NoStorageClass,
    /// A priority class that is not there.
    NoPriority,
    /// A runtime class that is not there.
    NoRuntime,
    /// A volume that the template does not have.
    NoVolume,
    /// A config map that is not there, as a volume.
    NoConfigMap,
    /// A secret that is not there, as a variable.
    NoSecret,
    /// Pods that never become ready.
    NeverReady,
    Scale(i64),
    Partition(i64),
    /// A field that no pod has, which of custom kinds is stored all the same, and an image that starts.
    Misspelt,
    Delete,
}

/// What a quota counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scarce {
    Pods,
    Claims,
    Storage,
    Cpu,
}

impl Scarce {
    /// Its name in quotas.
    pub(super) fn name(self) -> &'static str {
        match self {
            Scarce::Pods => "pods",
            Scarce::Claims => "persistentvolumeclaims",
            Scarce::Storage => "requests.storage",
            Scarce::Cpu => "requests.cpu",
        }
    }

    /// What so many pods use of it, as the API server writes it.
    pub(super) fn of(self, pods: usize) -> String {
        match self {
            Scarce::Pods | Scarce::Claims => pods.to_string(),
            Scarce::Storage => format!("{pods}Gi"),
            Scarce::Cpu if pods.is_multiple_of(10) => (pods / 10).to_string(),
            Scarce::Cpu => format!("{}m", pods * 100),
        }
    }
}

/// What the set has to live with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    None,
    /// One of its pods crashes.
    PodCrashes,
    /// One of its pods cannot go, since somebody else holds it.
    PodHeld,
    /// It has so many nodes for itself, and one of them is lost with the pods on it.
    NodeLost(u32),
    /// It has a node for itself, on which pods of another namespace leave room for so many more.
    RoomTaken(usize),
    /// A quota has room for what so many more pods use.
    Quota(Scarce, usize),
    /// A limit range gives pods that ask for no cpu some, and a quota has room for so many of them.
    CpuGiven(usize),
    /// A limit range allows less cpu than [`Change::Cpu`] asks for.
    CpuLimited,
    /// A limit range allows smaller claims only than [`Change::Storage`] asks for.
    StorageLimited,
    /// A policy that no plan looks at refuses all pods, and one of the set's has gone.
    Denied,
}

impl Trouble {
    /// Leaves of a set what can be compared, and puts its pods where they are to be lost.
    fn suit(self, spec: &mut Value, seed: u64) {
        match self {
            Trouble::Quota(Scarce::Claims | Scarce::Storage, _) => {
                // Claims of clones that have gone wait for the garbage collector, and then for the quota to count again. How soon that is, no
                // plan knows: it decides whether a clone beyond the wanted ones is refused at first, and what comes before it then.
                let rolling = spec["updateStrategy"]["rollingUpdate"].as_object_mut();
                rolling.map(|rolling| rolling.remove("maxSurge"));
            }
            Trouble::NodeLost(_) | Trouble::RoomTaken(_) => {
                let pod = &mut spec["template"]["spec"];
                pod["nodeSelector"] = json!({POOL: seed.to_string()});
                pod["tolerations"] = json!([{"key": POOL, "operator": "Exists"}]);
            }
            _ => {}
        }
    }
}

#[derive(Debug)]
pub(super) struct Case {
    pub(super) seed: u64,
    pub(super) kind: Kind,
    pub(super) replicas: i64,
    /// Of the set, before the change.
    pub(super) spec: Value,
    pub(super) trouble: Trouble,
    /// Which pod has it, in the order of their names.
    pub(super) troubled: usize,
    pub(super) changes: Vec<Change>,
}

fn one_of<T: Copy>(rng: &mut Rng, all: &[T]) -> T {
    all[rng.usize(0..all.len())]
}

impl Case {
    pub(super) fn draw(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let rng = &mut rng;
        let Turn { kind, trouble, change } = Turn::of(seed);
        // An image that runs nowhere and crashes is expected to go on with that.
        let least = if trouble == Trouble::PodCrashes { 2 } else { 1 };
        let replicas = rng.i64(least..7);
        let trouble = numbered(rng, trouble);
        let changes = changes(rng, change, replicas);
        let mut spec = spec(rng, kind, replicas);
        // An annotation makes a pod crash, and stays on it: its containers would go on crashing where they restart, whatever their image.
        if trouble == Trouble::PodCrashes && changes[0] != Change::Label {
            never_in_place(&mut spec);
        }
        let counts = |all: &[Scarce]| matches!(trouble, Trouble::Quota(scarce, _) if all.contains(&scarce));
        let is_about_claims = changes[0] == Change::Storage || trouble == Trouble::StorageLimited;
        if is_about_claims || counts(&[Scarce::Claims, Scarce::Storage]) || rng.u8(0..8) == 0 {
            spec["volumeClaimTemplates"] = claims("1Gi");
            if kind == Kind::Advanced {
                spec["volumeClaimUpdateStrategy"] = json!({"type": "OnPodRollingUpdate"});
            }
        }
        let asks_for_cpu = counts(&[Scarce::Cpu]) || matches!(trouble, Trouble::RoomTaken(_));
        if asks_for_cpu || rng.u8(0..4) == 0 {
            spec["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
        }
        trouble.suit(&mut spec, seed);
        Case {
            seed,
            kind,
            replicas,
            spec,
            trouble,
            troubled: rng.usize(0..6),
            changes,
        }
    }

    /// Path of the sets of its kind.
    pub(super) fn sets(&self, ns: &str) -> String {
        format!(
            "/apis/{}/namespaces/{ns}/{}",
            self.kind.api_version(),
            self.kind.plural()
        )
    }

    /// The set, before the change or after it.
    pub(super) fn manifest(&self, changed: bool) -> Value {
        let mut spec = self.spec.clone();
        if changed {
            for change in &self.changes {
                change.make(&mut spec);
            }
        }
        let kind = if self.kind == Kind::Clone {
            "CloneSet"
        } else {
            "StatefulSet"
        };
        json!({"apiVersion": self.kind.api_version(), "kind": kind, "metadata": {"name": "web"}, "spec": spec})
    }

    /// What the plan may say that it does not know, in some of its words. Everything else is there to be read.
    pub(super) fn unknowns(&self) -> Vec<&'static str> {
        let denied = (self.trouble == Trouble::Denied).then_some(DENIED);
        let misspelt = self.changes.contains(&Change::Misspelt).then_some(MISSPELT);
        denied.into_iter().chain(misspelt).collect()
    }

    /// Whether pods of the new template come up where there is room for them.
    pub(super) fn can_come_up(&self) -> bool {
        !self.changes.iter().any(|change| CANNOT.contains(change))
    }
}

/// What a plan says of pods that are refused now.
pub(super) const DENIED: &str = "the API server refuses its pods now, and what refuses them is not looked at";
/// What a plan says of the field that no pod has.
pub(super) const MISSPELT: &str = "spec.template.spec.terminationGracePeriodSecond is a field that pods";

/// A trouble with its number drawn.
fn numbered(rng: &mut Rng, trouble: Trouble) -> Trouble {
    match trouble {
        Trouble::NodeLost(_) => Trouble::NodeLost(rng.u32(1..4)),
        Trouble::RoomTaken(_) => Trouble::RoomTaken(rng.usize(0..3)),
        Trouble::Quota(scarce, _) => Trouble::Quota(scarce, rng.usize(0..3)),
        Trouble::CpuGiven(_) => Trouble::CpuGiven(rng.usize(0..4)),
        trouble => trouble,
    }
}

/// One change with its number drawn, or two.
fn changes(rng: &mut Rng, first: Change, replicas: i64) -> Vec<Change> {
    let first = match first {
        Change::Partition(_) => Change::Partition(rng.i64(0..=replicas)),
        Change::Scale(_) => Change::Scale(rng.i64(0..7)),
        change => change,
    };
    let mut changes = vec![first];
    if first != Change::Delete && rng.u8(0..4) == 0 {
        changes.push(Change::Scale(rng.i64(0..7)));
    }
    changes
}

/// Pods are made anew where the set would have updated them in place.
fn never_in_place(spec: &mut Value) {
    if !spec.to_string().contains("InPlaceIfPossible") {
        return;
    }
    spec["updateStrategy"]["rollingUpdate"]["podUpdatePolicy"] = json!("ReCreate");
    if let Some(pod) = spec["template"]["spec"].as_object_mut() {
        pod.remove("readinessGates");
    }
}

fn never_ready(template: &mut Value) {
    template["metadata"]["annotations"]["sim.flotilla.rs/never-ready"] = json!("true");
}

fn claims(storage: &str) -> Value {
    json!([{
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "standard", "resources": {"requests": {"storage": storage}}},
    }])
}

/// A set whose pods take a second each to start and to end.
fn spec(rng: &mut Rng, kind: Kind, replicas: i64) -> Value {
    let mut spec = json!({
        "replicas": replicas,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {
                "labels": {"app": "web"},
                "annotations": {"sim.flotilla.rs/start": "1s", "sim.flotilla.rs/stop": "1s", "sim.flotilla.rs/restart": "1s"},
            },
            "spec": {"containers": [{"name": "main", "image": "app:v1"}], "terminationGracePeriodSeconds": 5},
        },
    });
    let budget = |rng: &mut Rng| match rng.u8(0..4) {
        0 => json!("50%"),
        _ => json!(rng.i64(1..4)),
    };
    match kind {
        Kind::Native | Kind::Advanced => {
            spec["serviceName"] = json!("web");
            let is_parallel = rng.bool();
            if is_parallel {
                spec["podManagementPolicy"] = json!("Parallel");
            }
            let mut rolling = json!({});
            if rng.u8(0..4) == 0 {
                rolling["partition"] = json!(rng.i64(0..=replicas));
            }
            if kind == Kind::Advanced {
                if is_parallel && rng.bool() {
                    rolling["maxUnavailable"] = budget(rng);
                }
                if rng.bool() {
                    rolling["podUpdatePolicy"] = json!("InPlaceIfPossible");
                    spec["template"]["spec"]["readinessGates"] = json!([{"conditionType": "InPlaceUpdateReady"}]);
                }
            }
            spec["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
            if rng.u8(0..10) == 0 {
                spec["updateStrategy"] = json!({"type": "OnDelete"});
            }
        }
        Kind::Clone => {
            let mut rolling = json!({"podUpdatePolicy": one_of(rng, &["ReCreate", "InPlaceIfPossible"])});
            if rng.bool() {
                rolling["maxUnavailable"] = budget(rng);
            }
            if rng.u8(0..3) == 0 {
                rolling["maxSurge"] = json!(rng.i64(1..3));
            }
            if rng.u8(0..4) == 0 {
                rolling["partition"] = json!(rng.i64(0..=replicas));
            }
            spec["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
        }
    }
    spec
}

impl Change {
    /// What the plan of a change that makes pods of the new template says is missing.
    pub(super) fn misses(self) -> Option<String> {
        let kind = match self {
            Change::NoRoom | Change::NoNode => return Some("no node that there is now takes a new pod".to_owned()),
            Change::NoAccount => "service account",
            Change::NoClaim => "claim",
            Change::NoStorageClass => "storage class",
            Change::NoPriority => "priority class",
            Change::NoRuntime => "runtime class",
            Change::NoConfigMap => "config map",
            Change::NoSecret => "secret",
            _ => return None,
        };
        Some(format!("{kind} {NOT_HERE} was not found"))
    }

    fn make(self, spec: &mut Value) {
        let pod = &mut spec["template"]["spec"];
        match self {
            Change::Image => pod["containers"][0]["image"] = json!("app:v2"),
            Change::BrokenImage => pod["containers"][0]["image"] = json!("app:broken"),
            Change::Label => spec["template"]["metadata"]["labels"]["round"] = json!("two"),
            Change::Cpu => pod["containers"][0]["resources"] = json!({"requests": {"cpu": "300m"}}),
            Change::Storage => {
                pod["containers"][0]["image"] = json!("app:v2");
                spec["volumeClaimTemplates"] = claims("2Gi");
            }
            Change::NoRoom => pod["containers"][0]["resources"] = json!({"requests": {"memory": "100Ti"}}),
            Change::NoNode => pod["nodeSelector"] = json!({"example.com/zone": "nowhere"}),
            Change::NoAccount => pod["serviceAccountName"] = json!(NOT_HERE),
            Change::NoClaim => {
                pod["volumes"] = json!([{"name": "more", "persistentVolumeClaim": {"claimName": NOT_HERE}}]);
            }
            Change::NoStorageClass => {
                let mut claim = claims("1Gi")[0]["spec"].take();
                claim["storageClassName"] = json!(NOT_HERE);
                pod["volumes"] = json!([{"name": "more", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}]);
            }
            Change::NoPriority => pod["priorityClassName"] = json!(NOT_HERE),
            Change::NoRuntime => pod["runtimeClassName"] = json!(NOT_HERE),
            Change::NoVolume => pod["containers"][0]["volumeMounts"] = json!([{"name": "more", "mountPath": "/more"}]),
            Change::NoConfigMap => {
                pod["volumes"] = json!([{"name": "more", "configMap": {"name": NOT_HERE}}]);
                never_ready(&mut spec["template"]);
            }
            Change::NoSecret => {
                let key = json!({"secretKeyRef": {"name": NOT_HERE, "key": "more"}});
                pod["containers"][0]["env"] = json!([{"name": "MORE", "valueFrom": key}]);
                never_ready(&mut spec["template"]);
            }
            Change::NeverReady => {
                // Else pods that are updated in place are changed without a restart.
                pod["containers"][0]["image"] = json!("app:v2");
                never_ready(&mut spec["template"]);
            }
            Change::Misspelt => {
                pod["containers"][0]["image"] = json!("app:v2");
                pod["terminationGracePeriodSecond"] = json!(5);
            }
            Change::Scale(replicas) => spec["replicas"] = json!(replicas),
            Change::Partition(partition) => {
                spec["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": partition}});
                spec["template"]["spec"]["containers"][0]["image"] = json!("app:v2");
            }
            Change::Delete => {}
        }
    }
}
