//! The state to plan from: of a cluster, by list requests and nothing else, or of a saved playground.

use crate::clock;
use crate::cluster::{Cluster, describe};
use crate::error::Error;
use flotilla_api::names;
use flotilla_apiserver::Foreign;
use flotilla_controllers::cloneset::Defaults;
use flotilla_model::Resource;
use flotilla_model::template::Amounts;
use flotilla_plan::{State, Unread, taken_by};
use flotilla_playground::Saved;
use http::Method;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Without these there is no plan.
const NEEDED: [Resource; 5] = [
    Resource::NativeSets,
    Resource::AdvancedSets,
    Resource::Pods,
    Resource::Claims,
    Resource::Revisions,
];
/// Where the definitions of our kinds are.
const DEFINITIONS: [&str; 2] = [
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?fieldSelector=metadata.name%3Dstatefulsets.apps.kruise.io",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?fieldSelector=metadata.name%3Dclonesets.apps.kruise.io",
];

/// So many volumes are looked at, at most: a plan is to be there within seconds.
const VOLUMES_MAX: usize = 20_000;
/// So many nodes are looked at, at most: several times what Kubernetes is made for.
/// <https://kubernetes.io/docs/setup/best-practices/cluster-large/>
const NODES_MAX: usize = 50_000;
/// Volumes of storage, as plural.
const VOLUMES: &str = "persistentvolumes";
/// How many nodes, volumes, or pods of others, are read at once.
const PAGE: usize = 500;
/// So many pods are read to count what those of other namespaces take of their nodes, at most, whether they take any or not: a plan is to be there
/// within seconds.
const OTHERS_MAX: usize = 20_000;

/// What is to be read.
#[derive(Clone, Debug, Default)]
pub(in crate::commands) struct Wanted {
    /// These namespaces.
    pub(in crate::commands) namespaces: BTreeSet<String>,
    /// The first place in files that names each of them.
    pub(in crate::commands) places: BTreeMap<String, String>,
    /// Those of them that need not be there yet.
    pub(in crate::commands) brought: BTreeSet<String>,
    /// CloneSets are what it is about: without them there is no plan.
    pub(in crate::commands) clones: bool,
    /// Sets that are about to be applied.
    pub(in crate::commands) sets: Vec<Value>,
}

impl Wanted {
    /// What is wrong with a namespace, with where files name it.
    fn named(&self, namespace: &str, error: Error) -> Error {
        match self.places.get(namespace) {
            Some(place) => Error::Named {
                error: Box::new(error),
                place: place.clone(),
            },
            None => error,
        }
    }
}

/// A list that was asked for.
struct Asked<'a> {
    group: &'a str,
    resource: &'a str,
    namespace: Option<&'a str>,
    path: String,
}

/// Reads a cluster. Returns with it what could not be read and is not strictly needed.
pub(in crate::commands) async fn read(cluster: &Cluster, wanted: &Wanted) -> Result<(State, Vec<String>), Error> {
    let mut reading = Reading {
        cluster,
        objects: Vec::new(),
        unread: Vec::new(),
        warnings: Vec::new(),
    };
    for namespace in &wanted.namespaces {
        reading
            .sets_and_what_bounds_them(namespace, wanted)
            .await
            .map_err(|error| wanted.named(namespace, error))?;
    }
    let classes = Resource::StorageClasses.collection_path(None);
    let without = "claims are taken not to grow";
    reading
        .try_list(("storage.k8s.io", "storageclasses"), None, classes, without)
        .await?;
    if reading.has_claims(&wanted.sets) {
        reading.volumes(&wanted.namespaces).await?;
    }
    let priorities = "/apis/scheduling.k8s.io/v1/priorityclasses".to_owned();
    let without = "priority classes are not looked at";
    reading
        .try_list(("scheduling.k8s.io", "priorityclasses"), None, priorities, without)
        .await?;
    let runtimes = "/apis/node.k8s.io/v1/runtimeclasses".to_owned();
    reading
        .look_up(("node.k8s.io", "runtimeclasses"), None, runtimes)
        .await?;
    reading.definition().await?;
    let nodes = reading.nodes().await?;
    let taken_by_others = match nodes {
        Some(1..) => reading.taken_by_others(&wanted.namespaces).await?,
        _ => BTreeMap::new(),
    };
    let state = State {
        taken_by_others,
        now: clock::now(),
        nodes,
        objects: reading.objects,
        clones: Defaults::default(),
        unread: reading.unread,
        brought: Vec::new(),
    };
    Ok((state, reading.warnings))
}

/// A cluster that is being read.
struct Reading<'c> {
    cluster: &'c Cluster,
    objects: Vec<Foreign>,
    unread: Vec<Unread>,
    warnings: Vec<String>,
}

impl Reading<'_> {
    /// Lists; a kind that is not served has no objects.
    async fn ask(&self, asked: &Asked<'_>) -> Result<Value, Error> {
        // Of these, names are all that a plan wants to know.
        let only_names = matches!(asked.resource, "secrets" | "configmaps");
        let list = if only_names {
            self.cluster.list_metadata(&asked.path).await
        } else {
            self.cluster.send(Method::GET, &asked.path, None).await
        };
        match list {
            Ok(list) => Ok(list),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Value::Null),
            Err(kube::Error::Api(status)) if status.code == 403 => Err(asked.forbidden()),
            Err(error) => Err(describe(format!("list {}{}", asked.name(), asked.place()), &error)),
        }
    }

    /// The sets of a namespace, what is theirs, and what bounds new pods there.
    async fn sets_and_what_bounds_them(&mut self, namespace: &str, wanted: &Wanted) -> Result<(), Error> {
        for resource in NEEDED {
            let version = resource.api_version();
            let asked = Asked {
                group: version.split_once('/').map_or("", |(group, _)| group),
                resource: resource.plural(),
                namespace: Some(namespace),
                path: resource.collection_path(Some(namespace)),
            };
            self.list(&asked).await?;
        }
        let quotas = format!("/api/v1/namespaces/{namespace}/resourcequotas");
        let without = "quotas are not looked at";
        self.try_list(("", "resourcequotas"), Some(namespace), quotas, without)
            .await?;
        let ranges = format!("/api/v1/namespaces/{namespace}/limitranges");
        let without = "limit ranges are not looked at";
        self.try_list(("", "limitranges"), Some(namespace), ranges, without)
            .await?;
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        let without = "service accounts are not looked at";
        self.try_list(("", "serviceaccounts"), Some(namespace), accounts, without)
            .await?;
        self.clones(namespace, wanted.clones).await?;
        if !wanted.brought.contains(namespace) {
            self.namespace(namespace).await?;
        }
        self.what_containers_read(namespace, &wanted.sets).await?;
        Ok(())
    }

    fn keep(&mut self, asked: &Asked<'_>, mut list: Value) -> usize {
        let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) else {
            return 0;
        };
        let count = items.len();
        self.objects.extend(items.into_iter().map(|object| Foreign {
            group: asked.group.to_owned(),
            resource: asked.resource.to_owned(),
            object,
        }));
        count
    }

    async fn list(&mut self, asked: &Asked<'_>) -> Result<(), Error> {
        let list = self.ask(asked).await?;
        self.keep(asked, list);
        Ok(())
    }

    /// Lists what is not strictly needed. Returns how many there are, if we may know.
    async fn try_list(
        &mut self,
        (group, resource): (&str, &str),
        namespace: Option<&str>,
        path: String,
        without: &str,
    ) -> Result<Option<usize>, Error> {
        let asked = Asked {
            group,
            resource,
            namespace,
            path,
        };
        match self.ask(&asked).await {
            Ok(list) => Ok(Some(self.keep(&asked, list))),
            Err(error @ Error::Forbidden { .. }) => {
                self.warnings.push(format!("{without}: {error}"));
                self.unread.push(Unread {
                    group: asked.group.to_owned(),
                    resource: asked.resource.to_owned(),
                    namespace: asked.namespace.map(str::to_owned),
                });
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Lists what is told of only where a pod refers to it.
    async fn look_up(&mut self, kind: (&str, &str), namespace: Option<&str>, path: String) -> Result<(), Error> {
        let before = self.warnings.len();
        self.try_list(kind, namespace, path, "").await?;
        self.warnings.truncate(before);
        Ok(())
    }

    /// Whether there are claims, or whoever asks for some.
    fn has_claims(&self, brought: &[Value]) -> bool {
        let has_some = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
        let asks_for_some = |set: &Value| {
            let volumes = set["spec"]["template"]["spec"]["volumes"].as_array();
            let is_claim =
                |volume: &Value| !volume["ephemeral"].is_null() || !volume["persistentVolumeClaim"].is_null();
            has_some(&set["spec"]["volumeClaimTemplates"]) || volumes.into_iter().flatten().any(is_claim)
        };
        let mut known = self.objects.iter();
        known.any(|object| object.resource == "persistentvolumeclaims" || asks_for_some(&object.object))
            || brought.iter().any(asks_for_some)
    }

    /// Volumes that are free, or belong to claims of these namespaces, page by page: from which nodes they are reached, and of which class they are.
    /// What cannot be read to the end is told only where pods need a volume.
    async fn volumes(&mut self, namespaces: &BTreeSet<String>) -> Result<(), Error> {
        let (before, warnings) = (self.objects.len(), self.warnings.len());
        let (mut count, mut token) = (0, Some(String::new()));
        while let Some(page) = token {
            let asked = Asked::page(VOLUMES, &page);
            // Why it could not be read is told like a right that is missing: what rests on it is named, and not taken for granted.
            let list = self.ask_for_page(&asked, "").await.unwrap_or_default();
            let Some(mut list) = list.filter(|_| count < VOLUMES_MAX) else {
                self.warnings.truncate(warnings);
                self.objects.truncate(before);
                self.unread.push(Unread {
                    group: String::new(),
                    resource: VOLUMES.to_owned(),
                    namespace: None,
                });
                return Ok(());
            };
            token = next_page(&list);
            if let Some(items) = list["items"].as_array_mut() {
                count += items.len();
                items.retain(|volume| {
                    let namespace = volume["spec"]["claimRef"]["namespace"].as_str();
                    namespace.is_none_or(|namespace| namespaces.contains(namespace))
                });
                for volume in items {
                    *volume = what_binds(volume);
                }
            }
            self.keep(&asked, list);
        }
        Ok(())
    }

    /// Names of config maps and secrets, if sets of the namespace read any: of what is in them, nothing is asked.
    async fn what_containers_read(&mut self, namespace: &str, brought: &[Value]) -> Result<(), Error> {
        let is_here = |set: &&Value| set["metadata"]["namespace"] == namespace;
        let known = self
            .objects
            .iter()
            .map(|object| &object.object)
            .chain(brought)
            .filter(is_here);
        let read: BTreeSet<bool> = known
            .map(|set| &set["spec"]["template"]["spec"])
            .flat_map(|pod| {
                let read = flotilla_plan::read_by(pod).into_iter().map(|(is_secret, _)| is_secret);
                read.chain(flotilla_plan::pulls_with(pod).map(|_| true))
            })
            .collect();
        for is_secret in read {
            let resource = if is_secret { "secrets" } else { "configmaps" };
            let path = format!("/api/v1/namespaces/{namespace}/{resource}");
            let before = self.objects.len();
            self.look_up(("", resource), Some(namespace), path).await?;
            for known in &mut self.objects[before..] {
                // Metadata may repeat what was applied, secrets included.
                let meta = &known.object["metadata"];
                known.object = json!({"metadata": {"name": meta["name"], "namespace": meta["namespace"]}});
            }
        }
        Ok(())
    }

    async fn clones(&mut self, namespace: &str, are_needed: bool) -> Result<(), Error> {
        let asked = Asked {
            group: "apps.kruise.io",
            resource: "clonesets",
            namespace: Some(namespace),
            path: Resource::CloneSets.collection_path(Some(namespace)),
        };
        if are_needed {
            return self.list(&asked).await;
        }
        let without = "CloneSets are not looked at";
        self.try_list((asked.group, asked.resource), asked.namespace, asked.path, without)
            .await?;
        Ok(())
    }

    /// A namespace that is not there, if we may know, is refused by the simulated server as by the real one.
    async fn namespace(&mut self, namespace: &str) -> Result<(), Error> {
        let path = format!("/api/v1/namespaces?fieldSelector=metadata.name%3D{namespace}");
        let without = format!("namespace {namespace} is taken to be there");
        match self.try_list(("", "namespaces"), None, path, &without).await? {
            Some(0) => Err(Error::NotPossible(format!("namespace {namespace} does not exist"))),
            Some(_) => Ok(()),
            None => {
                self.objects.push(Foreign {
                    group: String::new(),
                    resource: "namespaces".to_owned(),
                    object: json!({"metadata": {"name": namespace}}),
                });
                Ok(())
            }
        }
    }

    async fn definition(&mut self) -> Result<(), Error> {
        let without = "the definitions of our kinds are taken to be those of this version of Flotilla";
        let kind = ("apiextensions.k8s.io", "customresourcedefinitions");
        for definition in DEFINITIONS {
            let known = self.try_list(kind, None, definition.to_owned(), without).await?;
            if known.is_none() {
                let object = |object| Foreign {
                    group: kind.0.to_owned(),
                    resource: kind.1.to_owned(),
                    object,
                };
                self.objects.extend(flotilla_api::crds().into_iter().map(object));
                break;
            }
        }
        Ok(())
    }

    /// The nodes, as far as they decide where pods run and which pods nobody can end, page by page: each has much more to say.
    async fn nodes(&mut self) -> Result<Option<usize>, Error> {
        let before = self.objects.len();
        let (mut count, mut token) = (0, Some(String::new()));
        while let Some(page) = token {
            let asked = Asked::page("nodes", &page);
            let without = "nodes are not looked at, and pods are taken to find room on one that is up";
            let Some(mut list) = self.ask_for_page(&asked, without).await? else {
                // Some of them would say that there is no room, and others have it.
                self.objects.truncate(before);
                return Ok(None);
            };
            if count >= NODES_MAX {
                self.objects.truncate(before);
                self.warnings
                    .push(format!("{without}: there are more than {NODES_MAX}"));
                return Ok(None);
            }
            token = next_page(&list);
            for node in list["items"].as_array_mut().into_iter().flatten() {
                *node = what_decides(node);
            }
            count += self.keep(&asked, list);
        }
        Ok(Some(count))
    }

    /// What pods in other namespaces than these take of each node, page by page: nothing else of them is kept.
    async fn taken_by_others(&mut self, namespaces: &BTreeSet<String>) -> Result<BTreeMap<String, Amounts>, Error> {
        let (mut read, mut taken) = (0, BTreeMap::<String, Amounts>::new());
        let mut token = Some(String::new());
        while let Some(page) = token {
            let without = "what pods of other namespaces take of nodes is not counted";
            let list = match self.ask_for_page(&Asked::page("pods", &page), without).await {
                Ok(Some(list)) => list,
                // So much is taken, at least.
                Ok(None) => return Ok(taken),
                Err(error) if !page.is_empty() => {
                    self.warnings.push(format!(
                        "of what pods of other namespaces take of nodes a part is not counted: {error}"
                    ));
                    return Ok(taken);
                }
                Err(error) => return Err(error),
            };
            token = next_page(&list);
            read += list["items"].as_array().map_or(0, Vec::len);
            let pods = list["items"].as_array().into_iter().flatten();
            let is_other = |pod: &&Value| {
                !pod["metadata"]["namespace"]
                    .as_str()
                    .is_some_and(|ns| namespaces.contains(ns))
            };
            for pod in pods.filter(is_other) {
                let has_ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
                if let (Some(node), false) = (pod["spec"]["nodeName"].as_str(), has_ended) {
                    add(taken.entry(node.to_owned()).or_default(), taken_by(pod));
                }
            }
            if read > OTHERS_MAX && token.is_some() {
                self.warnings.push(format!(
                    "what pods of other namespaces take of nodes is counted among the first {read} pods of the cluster only"
                ));
                return Ok(taken);
            }
        }
        Ok(taken)
    }

    /// A page of a list that is not strictly needed; none if we may not read it.
    async fn ask_for_page(&mut self, asked: &Asked<'_>, without: &str) -> Result<Option<Value>, Error> {
        match self.ask(asked).await {
            // What is served at first is served to the end.
            Ok(Value::Null) if asked.path.contains("&continue=") => Err(Error::NotPossible(format!(
                "the list of {} broke off; try again",
                asked.name()
            ))),
            Ok(list) => Ok(Some(list)),
            Err(error @ Error::Forbidden { .. }) => {
                self.warnings.push(format!("{without}: {error}"));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Where a list goes on, as a part of a query.
fn next_page(list: &Value) -> Option<String> {
    // A page without items leads nowhere.
    let has_items = list["items"].as_array().is_some_and(|items| !items.is_empty());
    let token = list["metadata"]["continue"].as_str();
    let token = token.filter(|token| has_items && !token.is_empty())?;
    // A token is base64.
    let token = token.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    Some(format!("&continue={token}"))
}

fn add(all: &mut Amounts, more: Amounts) {
    for (name, amount) in more {
        let sum = all.entry(name).or_default();
        *sum = sum.saturating_add(amount);
    }
}

/// What of a volume decides which claims and pods it is for.
fn what_binds(volume: &Value) -> Value {
    let meta = &volume["metadata"];
    let labels = meta["labels"].as_object().into_iter().flatten();
    let labels: Map<String, Value> = labels
        .filter(|(name, _)| flotilla_plan::ZONES.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    json!({
        "metadata": {
            "name": meta["name"], "labels": labels,
            "annotations": {names::STORAGE_CLASS: meta["annotations"][names::STORAGE_CLASS]},
        },
        "spec": {
            "storageClassName": volume["spec"]["storageClassName"], "claimRef": volume["spec"]["claimRef"],
            "nodeAffinity": volume["spec"]["nodeAffinity"],
        },
        "status": {"phase": volume["status"]["phase"]},
    })
}

/// What of a node decides which pods it takes.
fn what_decides(node: &Value) -> Value {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.filter(|c| c["type"] == "Ready");
    json!({
        "metadata": {"name": node["metadata"]["name"], "labels": node["metadata"]["labels"]},
        "spec": {"taints": node["spec"]["taints"], "unschedulable": node["spec"]["unschedulable"]},
        "status": {"conditions": ready.collect::<Vec<_>>(), "allocatable": node["status"]["allocatable"]},
    })
}

impl<'a> Asked<'a> {
    /// A part of all objects of a kind of the core group, from some place on.
    fn page(resource: &'a str, page: &str) -> Self {
        Asked {
            group: "",
            resource,
            namespace: None,
            path: format!("/api/v1/{resource}?limit={PAGE}{page}"),
        }
    }
}

impl Asked<'_> {
    /// The resource as kubectl names it.
    fn name(&self) -> String {
        if self.group.is_empty() {
            self.resource.to_owned()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }

    fn place(&self) -> String {
        self.namespace
            .map_or_else(|| " in the cluster".to_owned(), |ns| format!(" in namespace {ns}"))
    }

    fn forbidden(&self) -> Error {
        Error::Forbidden {
            verb: "list",
            resource: self.name(),
            place: self.place(),
            option: self
                .namespace
                .map_or_else(String::new, |ns| format!(" --namespace {ns}")),
        }
    }
}

/// The state of a saved playground.
pub(super) fn saved(file: &Path) -> Result<State, Error> {
    let wrong = |why: &dyn std::fmt::Display| Error::NotPossible(format!("failed to read {}: {why}", file.display()));
    let text = std::fs::read(file).map_err(|why| wrong(&why))?;
    let value: Value = serde_json::from_slice(&text).map_err(|why| wrong(&why))?;
    let saved = Saved::read(&value).map_err(|why| wrong(&why))?;
    Ok(State {
        now: saved.now,
        nodes: Some(saved.nodes),
        taken_by_others: BTreeMap::new(),
        objects: saved.objects,
        clones: Defaults::default(),
        unread: Vec::new(),
        brought: Vec::new(),
    })
}
