//! What new pods refer to, and was not found in the cluster: they would not come up, however well the rest goes.

use crate::Change;
use crate::report::{Action, ClaimAction, SetPlan, Step};
use crate::state::{State, VOLUMES, is_default_class, list};
use crate::trace::Traced;
use flotilla_api::names::NO_PROVISIONER;
use flotilla_controllers::{failed_creation, failed_update};
use flotilla_model::records::storage_class_of;
use flotilla_model::{Failure, PodRecord};
use flotilla_sim::server::{Absent, AbsentKind};
use flotilla_sim::{placement, room};
use serde_json::Value;
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
            served.api_version().split_once('/').is_some_and(|(of, _)| of == group)
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
    for change in changes {
        let (_, key) = change.target();
        if let Change::Apply(manifest) = change {
            let needed = essentials(&manifest["spec"]["template"]["spec"]).into_iter();
            asked_for.extend(needed.filter_map(|(kind, name)| missing(state, kind, &key.namespace, name)));
        }
    }
    absent.difference(&asked_for).cloned().collect()
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

/// Claims that are there, and that new pods of the set get.
fn own_claims<'s>(state: &'s State, set: &SetPlan, spec: &Value) -> impl Iterator<Item = &'s Value> {
    let templates: Vec<&str> = list(&spec["volumeClaimTemplates"])
        .filter_map(|template| template["metadata"]["name"].as_str())
        .collect();
    let made = set
        .steps()
        .filter(|step| matches!(step.action, Action::Create | Action::Replace));
    let mut names: BTreeSet<String> = made
        .flat_map(|step| templates.iter().map(move |template| format!("{template}-{}", step.pod)))
        .collect();
    let by_name = list(&spec["template"]["spec"]["volumes"])
        .filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str());
    names.extend(by_name.map(str::to_owned));
    let namespace = set.namespace.clone();
    state.all(CLAIM.group, CLAIM.resource).filter(move |claim| {
        let meta = &claim["metadata"];
        meta["namespace"] == namespace.as_str() && meta["name"].as_str().is_some_and(|name| names.contains(name))
    })
}

/// What is said of claims for whose volumes somebody has to see to: those of no class, and of classes that make none.
fn without_class(state: &State, set: &SetPlan, spec: &Value, found: &mut Found) {
    let is_unread = |kind: (&str, &str)| state.is_unread(kind, None);
    let classes = || state.all(STORAGE.group, STORAGE.resource);
    let has_default = classes().any(is_default_class);
    let makes_none =
        |name: &str| classes().any(|class| class["metadata"]["name"] == name && class["provisioner"] == NO_PROVISIONER);
    for (whose, claim) in claims_to_come(state, set, spec) {
        let of = |what: &str| format!("{} in namespace {}: {whose} {what}", set.set, set.namespace);
        let class = storage_class_of(claim);
        if claim["status"]["phase"] == "Lost" {
            found.missing.push(of("have lost their volumes"));
            continue;
        }
        let volume = claim["spec"]["volumeName"].as_str().filter(|volume| !volume.is_empty());
        if let Some(volume) = volume {
            let is_there = state.all("", VOLUMES).any(|known| known["metadata"]["name"] == volume);
            if is_unread(("", VOLUMES)) {
                found.unread.push(of(&format!(
                    "name volume {volume}, which could not be looked up; without it new pods do not come up"
                )));
            } else if !is_there {
                found
                    .missing
                    .push(of(&format!("name volume {volume}, which was not found")));
            }
            continue;
        }
        if class.is_none() && has_default {
            continue;
        }
        if class.is_none() && is_unread((STORAGE.group, STORAGE.resource)) {
            found.unread.push(of(
                "name no storage class, and whether there is a default one could not be looked up; without it new pods do not come up",
            ));
            continue;
        }
        let words = match class {
            None => "name no storage class, and a default one was not found".to_owned(),
            Some("") => "name the class \"\"".to_owned(),
            Some(name) if makes_none(name) => format!("are of storage class {name}, which makes none"),
            Some(_) => continue,
        };
        let is_free = |volume: &Value| {
            let is_of_class = storage_class_of(volume).unwrap_or_default() == class.unwrap_or_default();
            // One that is reserved for a claim is for no other.
            let is_reserved = volume["spec"]["claimRef"].is_object();
            volume["status"]["phase"] == "Available" && !is_reserved && is_of_class
        };
        let words = |what: &str| of(&format!("{words}, so that they {what}"));
        if is_unread(("", VOLUMES)) {
            found.unread.push(words(
                "take volumes which somebody provides, and these could not be looked up; without them new pods do not come up",
            ));
        } else if state.all("", VOLUMES).any(is_free) {
            // There may be a volume for each of them.
            found.unread.push(words(
                "take volumes which somebody provides, and whether these fit is not looked at",
            ));
        } else {
            found.missing.push(words("wait for volumes which somebody provides"));
        }
    }
}

/// Claims that are still to get their volumes, or templates of them, and whose they are.
fn claims_to_come<'s>(state: &'s State, set: &SetPlan, spec: &'s Value) -> Vec<(String, &'s Value)> {
    let pod = &spec["template"]["spec"];
    let mut to_come = Vec::new();
    if set.claims.iter().any(|claim| claim.action == ClaimAction::Create) {
        let templates = list(&spec["volumeClaimTemplates"]);
        to_come
            .extend(templates.map(|template| (named("claims of template", &template["metadata"]["name"]), template)));
    }
    if makes_pods(set) {
        for volume in list(&pod["volumes"]) {
            let claim = &volume["ephemeral"]["volumeClaimTemplate"];
            if claim["spec"].is_object() {
                to_come.push((named("claims of volume", &volume["name"]), claim));
            }
        }
        let unbound = own_claims(state, set, spec).filter(|claim| claim["status"]["phase"] != "Bound");
        to_come.extend(unbound.map(|claim| (named("claims such as", &claim["metadata"]["name"]), claim)));
    }
    to_come
}

fn named(what: &str, name: &Value) -> String {
    format!("{what} {}", name.as_str().unwrap_or_default())
}

/// The config maps and secrets (`true`) without which containers of a pod do not start, by its `spec`.
pub fn read_by(pod: &Value) -> Vec<(bool, &str)> {
    let mut found: Vec<(bool, &Value, &str)> = environment(pod);
    for volume in list(&pod["volumes"]) {
        found.push((true, &volume["csi"]["nodePublishSecretRef"], "name"));
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

/// What the API server refuses the set's pods now, by the set's own word. Nobody here knows what refuses them (a webhook, a policy), and so
/// they are taken to be made.
pub(crate) fn refused_now(state: &State, set: &SetPlan, traced: &Traced) -> Vec<String> {
    let (kind, key) = (traced.kind, &traced.key);
    let live: BTreeSet<&str> = state
        .all("", "pods")
        .filter_map(|pod| pod["metadata"]["uid"].as_str())
        .collect();
    // Those that are missing anyway are taken to be made before the change.
    let changes_pods = set.steps().any(|step| matches!(step.action, Action::Update));
    if !makes_pods(set)
        && !changes_pods
        && traced
            .began_with
            .iter()
            .all(|uid| live.contains(uid.to_string().as_str()))
    {
        return Vec::new();
    }
    let (group, _) = kind.resource().api_version().split_once('/').unwrap_or_default();
    let live = state.all(group, kind.resource().plural()).find(|object| {
        let meta = &object["metadata"];
        meta["name"] == key.name.as_str() && meta["namespace"] == key.namespace.as_ref()
    });
    let conditions = list(&live.unwrap_or(&Value::Null)["status"]["conditions"]);
    // What a quota refuses, the simulated API server refuses, too; what is no refusal, others see.
    let of_others = [
        Failure::FORBIDDEN,
        Failure::DENIED,
        "AdmissionUnavailable",
        "APIServerRefused",
    ];
    // What is wrong with the template goes with it.
    let of_the_template = [Failure::INVALID, "BadRequest", "TooLarge"];
    let stays_the_same = set.revisions_made.is_empty();
    let told = conditions.filter(|c| {
        let is_of_pods = [failed_creation(kind), failed_update(kind)]
            .iter()
            .any(|name| c["type"] == *name);
        let is_one_of = |reasons: &[&str]| reasons.iter().any(|reason| c["reason"] == *reason);
        // Policies refuse with the code of what is invalid, unless they say another; whether they would refuse other templates, nobody knows.
        let goes_on = || stays_the_same || is_denial(c["message"].as_str().unwrap_or_default());
        is_of_pods && c["status"] == "True" && (is_one_of(&of_others) || is_one_of(&of_the_template) && goes_on())
    });
    let sentence = |c: &Value| {
        format!(
            "{} in namespace {}: the API server refuses its pods now, and what refuses them is not looked at: {}: {}",
            set.set,
            set.namespace,
            c["reason"].as_str().unwrap_or_default(),
            c["message"].as_str().unwrap_or_default()
        )
    };
    told.map(sentence).collect()
}

/// Whether a webhook or a policy refused it, in the words that the API server puts around theirs.
fn is_denial(message: &str) -> bool {
    let by_policy = message.contains("ValidatingAdmissionPolicy '") && message.contains(" denied request: ");
    let by_webhook = message.contains("admission webhook \"") && message.contains(" denied the request");
    by_policy || by_webhook
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
        let own_claims = list(&pod["volumes"]).map(|volume| &volume["ephemeral"]["volumeClaimTemplate"]);
        let classes = own_claims.filter_map(storage_class_of);
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
        let templates = list(&spec["volumeClaimTemplates"]);
        let classes = templates.filter_map(storage_class_of);
        needed.extend(classes.filter(|class| !class.is_empty()).map(|class| (&STORAGE, class)));
    }
    needed
}
