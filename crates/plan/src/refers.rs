//! What new pods refer to, and was not found in the cluster: they would not come up, however well the rest goes.

mod claims;
mod now;

pub(crate) use self::now::{not_created_now, refused_now};

use self::claims::{claims_to_come, is_claim_here, named, own_claims, sources_of, without_class};
use crate::Change;
use crate::report::{Action, ClaimAction, SetPlan, Step};
use crate::state::{State, VOLUMES, list};
use crate::trace::Traced;
use flotilla_model::records::storage_class_of;
use flotilla_model::{PodRecord, SetKind};
use flotilla_sim::server::{Absent, AbsentKind};
use flotilla_sim::{placement, room};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What came of looking for what new pods of a set refer to, in sentences.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// What is not there.
    pub(crate) missing: Vec<String>,
    /// What of it is so essential that the API server makes no pod without it.
    pub(crate) absent: Vec<Absent>,
    /// What may be there: its kind could not be read.
    pub(crate) unread: Vec<String>,
}

/// A kind that is referred to.
struct Kind {
    words: &'static str,
    group: &'static str,
    resource: &'static str,
    is_namespaced: bool,
}

const fn kind(words: &'static str, group: &'static str, resource: &'static str, is_namespaced: bool) -> Kind {
    Kind {
        words,
        group,
        resource,
        is_namespaced,
    }
}

const ACCOUNT: Kind = kind("service account", "", "serviceaccounts", true);
const CONFIG_MAP: Kind = kind("config map", "", "configmaps", true);
const SECRET: Kind = kind("secret", "", "secrets", true);
const RUNTIME: Kind = kind("runtime class", "node.k8s.io", "runtimeclasses", false);
const CLAIM: Kind = kind("claim", "", "persistentvolumeclaims", true);
const PRIORITY: Kind = kind("priority class", "scheduling.k8s.io", "priorityclasses", false);
/// Under this name stand the rules of affinity that a scheduler has to keep.
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
/// Priority classes that are there in every cluster.
const BUILT_IN_PRIORITIES: [&str; 2] = ["system-cluster-critical", "system-node-critical"];
const STORAGE: Kind = kind("storage class", "storage.k8s.io", "storageclasses", false);
/// What volumes are projected from, and is looked up, or is always there.
const PROJECTED: [&str; 4] = ["configMap", "downwardAPI", "secret", "serviceAccountToken"];
/// What admission looks up before a pod is made.
const ESSENTIAL: [(Kind, AbsentKind); 3] = [
    (ACCOUNT, AbsentKind::ServiceAccount),
    (PRIORITY, AbsentKind::PriorityClass),
    (RUNTIME, AbsentKind::RuntimeClass),
];

/// What is not there, and without which admission refuses pods of sets that name it; but for what these changes ask for.
pub(crate) fn absent(state: &State, changes: &[Change]) -> Vec<Absent> {
    let targets: Vec<_> = changes.iter().map(Change::target).collect();
    let is_changed = |group: &str, resource: &str, meta: &Value| {
        targets.iter().any(|(kind, key)| {
            let served = kind.resource();
            served.group() == group
                && served.plural() == resource
                && meta["name"] == key.name.as_str()
                && meta["namespace"] == key.namespace.as_ref()
        })
    };
    let mut absent = BTreeSet::new();
    let mut asked_for = BTreeSet::new();
    for object in &state.objects {
        let meta = &object.object["metadata"];
        let needed = essentials(&object.object["spec"]["template"]["spec"]);
        let namespace = meta["namespace"].as_str().unwrap_or_default();
        let missing = needed
            .into_iter()
            .filter_map(|(kind, name)| missing(state, kind, namespace, name));
        if is_changed(&object.group, &object.resource, meta) {
            asked_for.extend(missing);
        } else if is_set(&object.group, &object.resource) {
            absent.extend(missing);
        }
    }
    // Pods that a partition keeps are made of former templates.
    for revision in state.all("apps", "controllerrevisions") {
        let Some((owner, group, resource)) = set_of_revision(revision) else {
            continue;
        };
        let namespace = revision["metadata"]["namespace"].as_str().unwrap_or_default();
        let needed = essentials(&revision["data"]["spec"]["template"]["spec"]).into_iter();
        let missing = needed.filter_map(|(kind, name)| missing(state, kind, namespace, name));
        if is_changed(group, resource, &json!({"name": owner, "namespace": namespace})) {
            asked_for.extend(missing);
        } else {
            absent.extend(missing);
        }
    }
    for change in changes {
        let (_, key) = change.target();
        if let Change::Apply(manifest) = change {
            let needed = essentials(&manifest["spec"]["template"]["spec"]).into_iter();
            asked_for.extend(needed.filter_map(|(kind, name)| missing(state, kind, &key.namespace, name)));
        }
    }
    absent.difference(&asked_for).cloned().collect()
}

/// The set of a revision: its name, and its kind as group and plural.
fn set_of_revision(revision: &Value) -> Option<(&str, &'static str, &'static str)> {
    let owner = list(&revision["metadata"]["ownerReferences"]).find(|owner| owner["controller"] == true)?;
    let (group, _) = owner["apiVersion"].as_str()?.split_once('/')?;
    let kinds = [SetKind::Native, SetKind::Advanced, SetKind::Clone].into_iter();
    let mut resources = kinds.map(SetKind::resource);
    let resource = resources.find(|resource| resource.group() == group && owner["kind"] == resource.kind())?;
    Some((owner["name"].as_str()?, resource.group(), resource.plural()))
}

/// Whether objects of these are sets.
fn is_set(group: &str, resource: &str) -> bool {
    matches!(
        (group, resource),
        ("apps" | "apps.kruise.io", "statefulsets") | ("apps.kruise.io", "clonesets")
    )
}

/// What admission looks up for a pod, by its `spec`: the account, and classes.
fn essentials(pod: &Value) -> Vec<(&'static Kind, &str)> {
    // The former name of the field still does, where the other is not set. Every namespace is given the account `default`.
    let mut names = [&pod["serviceAccountName"], &pod["serviceAccount"]]
        .into_iter()
        .filter_map(Value::as_str);
    let account = names.find(|name| !name.is_empty()).filter(|name| *name != "default");
    let class = pod["priorityClassName"].as_str();
    let class = class.filter(|class| !class.is_empty() && !BUILT_IN_PRIORITIES.contains(class));
    let runtime = pod["runtimeClassName"].as_str();
    let found = [(&ACCOUNT, account), (&PRIORITY, class), (&RUNTIME, runtime)];
    found
        .into_iter()
        .filter_map(|(kind, name)| Some((kind, name?)))
        .collect()
}

/// What admission looks up and does not find, if it is known that it is not there.
fn missing(state: &State, kind: &Kind, namespace: &str, name: &str) -> Option<Absent> {
    let namespace = kind.is_namespaced.then_some(namespace);
    let mut all = state.all(kind.group, kind.resource).map(|object| &object["metadata"]);
    let is_there =
        all.any(|meta| meta["name"] == name && namespace.is_none_or(|namespace| meta["namespace"] == namespace));
    let (_, absent) = ESSENTIAL.iter().find(|(essential, _)| essential.words == kind.words)?;
    let is_known = !is_there && !state.is_unread((kind.group, kind.resource), namespace);
    is_known.then(|| Absent {
        kind: *absent,
        namespace: namespace.unwrap_or_default().to_owned(),
        name: name.to_owned(),
    })
}

/// Looks for what new pods of the set need. `spec` is that of the set.
pub(crate) fn look(state: &State, set: &SetPlan, spec: &Value) -> Found {
    let mut needed = needed(set, spec);
    // One that has a volume needs no class any more.
    let unbound = own_claims(state, set, spec).filter(|claim| makes_pods(set) && claim["status"]["phase"] != "Bound");
    let classes: Vec<_> = unbound
        .filter_map(storage_class_of)
        .filter(|class| !class.is_empty())
        .collect();
    needed.extend(classes.into_iter().map(|class| (&STORAGE, class)));
    needed.sort_by_key(|(kind, name)| (kind.words, *name));
    needed.dedup_by_key(|(kind, name)| (kind.words, *name));
    let mut found = Found::default();
    without_class(state, set, spec, &mut found);
    not_looked_at(state, set, spec, &mut found);
    found.unread.extend(pod_security(state, set));
    not_placed_by(state, set, spec, &mut found);
    let pod = &spec["template"]["spec"];
    let nowhere = makes_pods(set)
        .then(|| placement::why_nowhere(pod, state.nodes()))
        .flatten();
    found.missing.extend(nowhere.map(|why| {
        format!(
            "{} in namespace {}: no node that there is now takes a new pod: {why}",
            set.set, set.namespace
        )
    }));
    for (kind, name) in needed {
        let namespace = kind.is_namespaced.then_some(set.namespace.as_str());
        let mut all = state.all(kind.group, kind.resource).map(|object| &object["metadata"]);
        if all.any(|meta| meta["name"] == name && namespace.is_none_or(|namespace| meta["namespace"] == namespace)) {
            continue;
        }
        let is_unread = state.is_unread((kind.group, kind.resource), namespace);
        let of = |what: &str| {
            format!(
                "{} in namespace {}: {} {name} {what}",
                set.set, set.namespace, kind.words
            )
        };
        if is_unread {
            found
                .unread
                .push(of("could not be looked up; without it new pods do not come up"));
        } else {
            found.missing.push(of("was not found"));
            found.absent.extend(missing(state, kind, &set.namespace, name));
        }
    }
    found
}

/// That the namespace holds pods to a level of pod security, by which it may refuse new ones.
fn pod_security(state: &State, set: &SetPlan) -> Option<String> {
    let mut namespaces = state.all("", "namespaces").map(|object| &object["metadata"]);
    let namespace = namespaces.find(|meta| meta["name"] == set.namespace.as_str())?;
    let level = namespace["labels"]["pod-security.kubernetes.io/enforce"].as_str()?;
    (makes_pods(set) && level != "privileged").then(|| {
        format!(
            "{} in namespace {}: the namespace enforces pod security {level}, and whether new pods hold to that is not looked at",
            set.set, set.namespace
        )
    })
}

/// Why new pods stay without a node at the end, though there are nodes that take such pods.
pub(crate) fn without_room(state: &State, set: &SetPlan, traced: &Traced) -> Option<String> {
    if state.nodes().next().is_none()
        || placement::why_nowhere(&traced.spec["template"]["spec"], state.nodes()).is_some()
    {
        return None;
    }
    let is_new = |name: &str| {
        let is_made = |step: &Step| matches!(step.action, Action::Create | Action::Replace) && step.pod == name;
        set.steps().any(is_made)
    };
    let trouble = |pod: &PodRecord| {
        pod.trouble
            .clone()
            .filter(|t| t.reason == "Unschedulable" && pod.node.is_none())
    };
    let pods = traced.pods.iter().filter(|pod| is_new(pod.name()));
    let without: Vec<_> = pods.filter_map(|pod| Some((pod.name(), trouble(pod)?))).collect();
    let (first, why) = without.first()?;
    let others = match without.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "{} in namespace {}: no node has room for {first}{others}, unless pods of lower priority go: {}",
        set.set, set.namespace, why.message
    ))
}

/// Names what decides where pods find their places, and is not looked at.
fn not_placed_by(state: &State, set: &SetPlan, spec: &Value, found: &mut Found) {
    let pod = &spec["template"]["spec"];
    if !makes_pods(set) || state.nodes().next().is_none() {
        return;
    }
    let mut containers = list(&pod["containers"]).chain(list(&pod["initContainers"]));
    let is_more_than_a_handler = |class: &Value| {
        class["metadata"]["name"] == pod["runtimeClassName"]
            && (class["overhead"].is_object() || class["scheduling"].is_object())
    };
    let fields = [
        (
            "pod affinity",
            list(&pod["affinity"]["podAffinity"][REQUIRED]).next().is_some(),
        ),
        (
            "pod anti-affinity beyond nodes, or beyond the namespace",
            list(&pod["affinity"]["podAntiAffinity"][REQUIRED]).any(|term| !room::is_plain(term)),
        ),
        (
            "topology spread constraints",
            list(&pod["topologySpreadConstraints"]).any(|rule| rule["whenUnsatisfiable"] != "ScheduleAnyway"),
        ),
        ("scheduling gates", list(&pod["schedulingGates"]).next().is_some()),
        ("a scheduler of its own", !placement::is_placed_by_default(pod)),
        ("resource claims", list(&pod["resourceClaims"]).next().is_some()),
        (
            "what its runtime class adds",
            state.all(RUNTIME.group, RUNTIME.resource).any(is_more_than_a_handler),
        ),
        (
            "volumes that could not be looked up",
            state.is_unread(("", VOLUMES), None)
                && own_claims(state, set, spec).any(|claim| claim["status"]["phase"] == "Bound"),
        ),
        (
            "ports of the host",
            pod["hostNetwork"] == true
                || containers
                    .any(|container| list(&container["ports"]).any(|port| port["hostPort"].as_i64() > Some(0))),
        ),
    ];
    let names: Vec<&str> = fields
        .iter()
        .filter(|(_, is_set)| *is_set)
        .map(|(name, _)| *name)
        .collect();
    if !names.is_empty() {
        found.unread.push(format!(
            "{} in namespace {}: which nodes take its pods is also decided by what is not looked at: {}",
            set.set,
            set.namespace,
            names.join(", ")
        ));
    }
}

/// Names what volumes and images of new pods rest on, and is not looked at, or may be missed.
fn not_looked_at(state: &State, set: &SetPlan, spec: &Value, found: &mut Found) {
    let of = |what: String| format!("{} in namespace {}: {what}", set.set, set.namespace);
    for (whose, claim) in claims_to_come(state, set, spec) {
        let claim = &claim["spec"];
        let source = [&claim["dataSourceRef"], &claim["dataSource"]];
        if let Some(source) = source
            .into_iter()
            .find(|source| source.is_object() && !is_claim_here(source))
        {
            let text = |field: &str| source[field].as_str().unwrap_or_default();
            found.unread.push(of(format!(
                "{whose} are filled from {} {}, which is not looked at; without it new pods do not come up",
                text("kind"),
                text("name")
            )));
        }
        let class = claim["volumeAttributesClassName"]
            .as_str()
            .filter(|class| !class.is_empty());
        found.unread.extend(class.map(|class| {
            of(format!(
                "{whose} name the volume attributes class {class}, which is not looked at; without it new pods do not come up"
            ))
        }));
    }
    if !makes_pods(set) {
        return;
    }
    let pod = &spec["template"]["spec"];
    for volume in list(&pod["volumes"]) {
        let sources = list(&volume["projected"]["sources"]).filter_map(Value::as_object);
        let unknown = sources.flat_map(|source| {
            source
                .iter()
                .filter(|(kind, what)| !PROJECTED.contains(&kind.as_str()) && what["optional"] != true)
        });
        found.unread.extend(unknown.map(|(kind, _)| {
            let volume = named("volume", &volume["name"]);
            of(format!(
                "{volume} takes {kind}, which is not looked at; without it new pods do not come up"
            ))
        }));
    }
    let is_there = |name: &str| {
        let mut secrets = state
            .all(SECRET.group, SECRET.resource)
            .map(|secret| &secret["metadata"]);
        secrets.any(|meta| meta["name"] == name && meta["namespace"] == set.namespace.as_str())
    };
    let is_unread = state.is_unread((SECRET.group, SECRET.resource), Some(&set.namespace));
    for name in pulls_with(pod).filter(|name| !is_there(name)) {
        let what = if is_unread {
            "could not be looked up"
        } else {
            "was not found"
        };
        found.unread.push(of(format!(
            "secret {name}, with which its images are pulled, {what}; what needs it is not pulled"
        )));
    }
}

/// Sources of volumes, and the field in which each names a secret of the pod's namespace.
const SECRETS_OF_VOLUMES: [(&str, &str); 7] = [
    ("cephfs", "secretRef"),
    ("csi", "nodePublishSecretRef"),
    ("flexVolume", "secretRef"),
    ("iscsi", "secretRef"),
    ("rbd", "secretRef"),
    ("scaleIO", "secretRef"),
    ("storageos", "secretRef"),
];

/// The secrets with which images of a pod are pulled, by its `spec`.
pub fn pulls_with(pod: &Value) -> impl Iterator<Item = &str> {
    list(&pod["imagePullSecrets"]).filter_map(|secret| secret["name"].as_str())
}

/// The config maps and secrets (`true`) without which containers of a pod do not start, by its `spec`.
pub fn read_by(pod: &Value) -> Vec<(bool, &str)> {
    let mut found: Vec<(bool, &Value, &str)> = environment(pod);
    for volume in list(&pod["volumes"]) {
        let secrets = SECRETS_OF_VOLUMES.iter();
        found.extend(secrets.map(|(source, field)| (true, &volume[*source][*field], "name")));
        found.push((true, &volume["azureFile"], "secretName"));
        let sources = list(&volume["projected"]["sources"]);
        for source in sources.chain([volume]) {
            found.push((false, &source["configMap"], "name"));
            found.push((
                true,
                &source["secret"],
                if source["secret"]["secretName"].is_string() {
                    "secretName"
                } else {
                    "name"
                },
            ));
        }
    }
    named_by(found)
}

/// What the environment of containers is made of. It is looked at whenever a container starts, in pods that are there, too.
fn environment(pod: &Value) -> Vec<(bool, &Value, &'static str)> {
    let mut found = Vec::new();
    for container in list(&pod["initContainers"]).chain(list(&pod["containers"])) {
        for source in list(&container["envFrom"]) {
            found.push((false, &source["configMapRef"], "name"));
            found.push((true, &source["secretRef"], "name"));
        }
        for variable in list(&container["env"]) {
            found.push((false, &variable["valueFrom"]["configMapKeyRef"], "name"));
            found.push((true, &variable["valueFrom"]["secretKeyRef"], "name"));
        }
    }
    found
}

/// The names in these references, but for those that may lead nowhere.
fn named_by<'v>(references: Vec<(bool, &'v Value, &str)>) -> Vec<(bool, &'v str)> {
    let needed = references
        .into_iter()
        .filter(|(_, source, _)| source["optional"] != true);
    needed
        .filter_map(|(is_secret, source, field)| Some((is_secret, source[field].as_str()?)))
        .collect()
}

/// Whether pods are made, or were to be.
pub(crate) fn makes_pods(set: &SetPlan) -> bool {
    set.steps()
        .any(|step| matches!(step.action, Action::Create | Action::Replace))
}

/// What new pods and claims of the set refer to.
fn needed<'s>(set: &SetPlan, spec: &'s Value) -> Vec<(&'static Kind, &'s str)> {
    let pod = &spec["template"]["spec"];
    let mut needed = Vec::new();
    if makes_pods(set) {
        needed.extend(essentials(pod));
        let templates: Vec<&Value> = list(&spec["volumeClaimTemplates"])
            .map(|template| &template["metadata"]["name"])
            .collect();
        let volumes = list(&pod["volumes"]).filter(|volume| !templates.contains(&&volume["name"]));
        let claims = volumes.filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str());
        needed.extend(claims.map(|claim| (&CLAIM, claim)));
        let own_claims = || list(&pod["volumes"]).map(|volume| &volume["ephemeral"]["volumeClaimTemplate"]);
        needed.extend(sources_of(own_claims()).map(|claim| (&CLAIM, claim)));
        let classes = own_claims().filter_map(storage_class_of);
        needed.extend(classes.filter(|class| !class.is_empty()).map(|class| (&STORAGE, class)));
    }
    let files = if makes_pods(set) {
        read_by(pod)
    } else if set.steps().any(|step| step.action == Action::Update) {
        named_by(environment(pod))
    } else {
        Vec::new()
    };
    needed.extend(
        files
            .into_iter()
            .map(|(is_secret, name)| (if is_secret { &SECRET } else { &CONFIG_MAP }, name)),
    );
    if set.claims.iter().any(|claim| claim.action == ClaimAction::Create) {
        let templates = || list(&spec["volumeClaimTemplates"]);
        needed.extend(sources_of(templates()).map(|claim| (&CLAIM, claim)));
        let classes = templates().filter_map(storage_class_of);
        needed.extend(classes.filter(|class| !class.is_empty()).map(|class| (&STORAGE, class)));
    }
    needed
}
