//! `cargo xtask generate`: files of the repository that are made, not written.

use anyhow::{Context, Result, ensure};
use clap::Subcommand;
use flate2::{Compression, write::GzEncoder};
use flotilla_localcluster::{Cluster, workspace};
use serde_json::{Map, Value, json};
use std::io::Write;
use std::process::{Command, ExitCode};

/// Verbs about generated files.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// The OpenAPI documents, discovery and version of the pinned API server, for crates/apimachinery. Starts a cluster for it.
    Openapi,
    /// The Helm chart in deploy/chart/flotilla, from crates/install.
    Chart,
    /// The recordings of CloneSets in e2e/recordings: what the Go manager of OpenKruise, killed half-way, has left. Builds it for that.
    Recordings,
}

/// The Go manager that recordings are made with.
const OPENKRUISE: &str = "github.com/openkruise/kruise@v1.8.0";

/// Where the chart is.
const CHART: &str = "deploy/chart/flotilla";

const OPENAPI_FILE: &str = "crates/apimachinery/src/openapi/builtin.json.gz";

/// Groups that Flotilla and its playground know.
const GROUPS: &[&str] = &[
    "apps",
    "events.k8s.io",
    "authorization.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
];

pub(crate) fn run(verb: &Verb) -> Result<ExitCode> {
    match verb {
        Verb::Openapi => openapi(),
        Verb::Chart => chart(),
        Verb::Recordings => recordings(),
    }
}

/// Writes the chart anew; files that it no longer has go.
fn chart() -> Result<ExitCode> {
    let root = workspace::root().join(CHART);
    if root.exists() {
        std::fs::remove_dir_all(&root).with_context(|| format!("failed to remove {CHART}"))?;
    }
    for file in flotilla_install::chart() {
        let path = root.join(&file.path);
        let directory = path.parent().context("files of the chart lie in a directory")?;
        std::fs::create_dir_all(directory).with_context(|| format!("failed to create {}", directory.display()))?;
        std::fs::write(&path, &file.text).with_context(|| format!("failed to write {}", path.display()))?;
        println!("{CHART}/{}: {} bytes", file.path, file.text.len());
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds the Go manager from its module, into `target`, and has the suite that restores recordings make them.
fn recordings() -> Result<ExitCode> {
    let target = workspace::root().join("target/openkruise");
    std::fs::create_dir_all(&target).with_context(|| format!("failed to create {}", target.display()))?;
    let told = Command::new("go")
        .args(["mod", "download", "-json", OPENKRUISE])
        .current_dir(&target)
        .output()
        .context("failed to run go")?;
    let told: Value = serde_json::from_slice(&told.stdout).context("go mod download -json prints JSON")?;
    let source = told["Dir"]
        .as_str()
        .with_context(|| format!("failed to download {OPENKRUISE}: {}", told["Error"]))?;
    let manager = target.join("manager");
    let built = Command::new("go")
        .args(["build", "-buildvcs=false", "-o"])
        .arg(&manager)
        .arg(".")
        .current_dir(source)
        .status()
        .context("failed to run go")?;
    ensure!(built.success(), "failed to build {OPENKRUISE}; go says why above");
    let recorded = workspace::cargo()
        .args(["test", "-p", "flotilla-e2e", "--test", "handover"])
        .env("FLOTILLA_RECORD", source)
        .env("FLOTILLA_GO_MANAGER", &manager)
        .status()
        .context("failed to run cargo")?;
    ensure!(recorded.success(), "failed to record; the suite says why above");
    Ok(ExitCode::SUCCESS)
}

fn openapi() -> Result<ExitCode> {
    let cluster = Cluster::builder("generate").nodes(0).start()?;
    let collected = collect(&cluster)?;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&serde_json::to_vec(&collected)?)?;
    let bytes = encoder.finish()?;
    std::fs::write(workspace::root().join(OPENAPI_FILE), &bytes)
        .with_context(|| format!("failed to write {OPENAPI_FILE}"))?;
    println!("{OPENAPI_FILE}: {} bytes", bytes.len());
    Ok(ExitCode::SUCCESS)
}

fn collect(cluster: &Cluster) -> Result<Value> {
    let (mut components, mut documents) = (Map::new(), Map::new());
    let paths = GROUPS.iter().map(|group| format!("apis/{group}/v1"));
    for path in std::iter::once("api/v1".to_owned()).chain(paths) {
        let document = get(cluster, &format!("/openapi/v3/{path}"))?;
        let schemas = document["components"]["schemas"]
            .as_object()
            .context("a document without schemas")?;
        let names: Vec<_> = schemas.keys().cloned().collect();
        for (name, schema) in schemas {
            // Options of requests list all kinds of the document's group that take them; nobody asks for that list.
            let mut schema = schema.clone();
            if name.ends_with(".DeleteOptions") || name.ends_with(".WatchEvent") {
                schema
                    .as_object_mut()
                    .context("a schema is an object")?
                    .remove("x-kubernetes-group-version-kind");
            }
            components.insert(name.clone(), schema);
        }
        documents.insert(
            path,
            json!({"paths": trimmed_paths(&document["paths"]), "components": names}),
        );
    }
    Ok(json!({
        "components": components,
        "documents": documents,
        "discovery": discovery(cluster)?,
        "version": get(cluster, "/version")?,
    }))
}

/// The core group and ours of the others, each with its version v1 only, in the aggregated form. kubectl cannot ask for that form, so
/// it is made from the older one, which says the same.
fn discovery(cluster: &Cluster) -> Result<Vec<Value>> {
    let mut groups = vec![json!({"metadata": {}, "versions": [discovered_version(cluster, "/api/v1")?]})];
    let list = get(cluster, "/apis")?;
    let names = list["groups"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|g| g["name"].as_str());
    for name in names.filter(|name| GROUPS.contains(name)) {
        let version = discovered_version(cluster, &format!("/apis/{name}/v1"))?;
        groups.push(json!({"metadata": {"name": name}, "versions": [version]}));
    }
    Ok(groups)
}

fn discovered_version(cluster: &Cluster, path: &str) -> Result<Value> {
    let list = get(cluster, path)?;
    let entries = list["resources"]
        .as_array()
        .with_context(|| format!("{path} has no resources"))?;
    let mut resources: Vec<Value> = Vec::new();
    for entry in entries {
        let name = entry["name"].as_str().unwrap_or_default();
        let (resource, subresource) = name.split_once('/').map_or((name, None), |(r, s)| (r, Some(s)));
        let of = |field: &str| entry[field].as_str().unwrap_or_default();
        let mut found = json!({
            "responseKind": {"group": of("group"), "version": of("version"), "kind": of("kind")},
            "verbs": entry["verbs"],
        });
        for field in ["shortNames", "categories"] {
            if let Some(value) = entry.get(field) {
                found[field] = value.clone();
            }
        }
        let Some(subresource) = subresource else {
            found["resource"] = json!(resource);
            found["scope"] = json!(if entry["namespaced"] == true {
                "Namespaced"
            } else {
                "Cluster"
            });
            found["singularResource"] = entry["singularName"].clone();
            resources.push(found);
            continue;
        };
        found["subresource"] = json!(subresource);
        // A subresource without its resource does not occur in these groups.
        if let Some(parent) = resources.iter_mut().find(|r| r["resource"] == resource) {
            match parent.get_mut("subresources").and_then(Value::as_array_mut) {
                Some(list) => list.push(found),
                None => parent["subresources"] = json!([found]),
            }
        }
    }
    Ok(json!({"version": "v1", "resources": resources, "freshness": "Current"}))
}

/// Of paths, only what clients look at.
fn trimmed_paths(paths: &Value) -> Value {
    let named = |parameters: &Value| -> Value {
        let parameters = parameters.as_array().into_iter().flatten();
        parameters.map(|p| json!({"name": p["name"], "in": p["in"]})).collect()
    };
    let trimmed_operation = |operation: &Value| {
        let mut kept = Map::new();
        for (key, value) in operation.as_object().into_iter().flatten() {
            let value = match key.as_str() {
                "x-kubernetes-action" | "x-kubernetes-group-version-kind" => value.clone(),
                "parameters" => named(value),
                "requestBody" => {
                    let types = value["content"].as_object().into_iter().flatten();
                    json!({"content": types.map(|(name, _)| (name.clone(), json!({}))).collect::<Map<_, _>>()})
                }
                _ => continue,
            };
            kept.insert(key.clone(), value);
        }
        Value::Object(kept)
    };
    let trimmed = |(path, item): (&String, &Value)| {
        let parts = item.as_object().into_iter().flatten().map(|(method, part)| {
            let part = if method == "parameters" {
                named(part)
            } else {
                trimmed_operation(part)
            };
            (method.clone(), part)
        });
        (path.clone(), Value::Object(parts.collect()))
    };
    let paths = paths
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(path, _)| !path.contains("/watch/"));
    Value::Object(paths.map(trimmed).collect())
}

fn get(cluster: &Cluster, path: &str) -> Result<Value> {
    let output = cluster
        .kubectl_command(&["get", "--raw", path])
        .output()
        .context("failed to run kubectl")?;
    ensure!(
        output.status.success(),
        "kubectl get --raw {path}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).with_context(|| format!("{path} is not JSON"))
}
