//! What an API server refuses in the spec of a pod, as far as people get it wrong: names, also of service accounts, images, mounts without
//! volumes, ports, variables, resources, probes and hooks. One list of rules for pods and for templates of pods, in the words of Kubernetes.
//!
//! A field that nobody here has heard of is left alone, and so is what defaults fill in. What another field decides, or the cluster, is
//! not looked at.

mod container;
mod network;
mod placement;
mod probe;
mod quantity;
mod security;

use crate::field::{Error, Fault};
use crate::names;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What the spec belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A pod that is to be stored.
    Pod,
    /// A template: admission may still add what a pod needs, such as an image.
    Template,
}

/// Both lists of containers, in the order in which they are looked at.
const LISTS: [&str; 2] = ["containers", "initContainers"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
/// What a path of a node may be; nothing is asked of it if this is empty.
const HOST_PATHS: [&str; 8] = [
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];
const PORT: &str = "must be between 1 and 65535, inclusive";

/// Checks a spec. `volumes` are those that pods get besides the ones that it names, such as claims.
pub fn check<'v>(
    spec: &'v Value,
    path: &str,
    volumes: impl Iterator<Item = &'v str>,
    subject: Subject,
    errors: &mut Vec<Error>,
) {
    let mut mountable: BTreeSet<&str> = volumes.collect();
    let mut seen = BTreeSet::new();
    for (index, volume) in each(spec, "volumes").enumerate() {
        let path = format!("{path}.volumes[{index}]");
        named(&path, volume, &mut seen, errors);
        one_source(volume, &path, errors);
    }
    mountable.extend(seen);
    if each(spec, "containers").next().is_none() {
        errors.push(Error::required(format!("{path}.containers"), ""));
    }
    let mut seen = BTreeSet::new();
    for list in LISTS {
        for (index, container) in each(spec, list).enumerate() {
            let path = format!("{path}.{list}[{index}]");
            named(&path, container, &mut seen, errors);
            image(container, &path, subject, errors);
            quantity::check(container, &path, errors);
            mounts(container, &path, &mountable, errors);
            devices(container, &path, &mountable, errors);
            ports(container, &path, errors);
            variables(container, &path, errors);
            probe::check(container, &path, errors);
        }
    }
    account(spec, path, errors);
    if let Some(seconds) = spec["terminationGracePeriodSeconds"].as_i64().filter(|s| *s < 0) {
        let path = format!("{path}.terminationGracePeriodSeconds");
        errors.push(Error::invalid(
            path,
            json!(seconds),
            "must be greater than or equal to 0",
        ));
    }
}

/// Checks a spec as the API server does, as far as people get it wrong: besides what [`check`] looks at, that which webhooks for templates
/// leave to the server, such as security contexts, tolerations and what is inside of volumes.
pub fn check_all<'v>(
    spec: &'v Value,
    path: &str,
    volumes: impl Iterator<Item = &'v str>,
    subject: Subject,
    errors: &mut Vec<Error>,
) {
    check(spec, path, volumes, subject, errors);
    for (index, volume) in each(spec, "volumes").enumerate() {
        host_path(
            &volume["hostPath"],
            &format!("{path}.volumes[{index}].hostPath"),
            errors,
        );
    }
    let policy = text(spec, "restartPolicy");
    for list in LISTS {
        for (index, one) in each(spec, list).enumerate() {
            let place = format!("{path}.{list}[{index}]");
            container::check(one, (&place, list == "initContainers"), policy, errors);
        }
    }
    security::check(spec, path, errors);
    placement::check(spec, path, errors);
    network::check(spec, path, errors);
    if subject == Subject::Template && each(spec, "ephemeralContainers").next().is_some() {
        let why = "ephemeral containers not allowed in pod template";
        errors.push(Error::without_value(
            Fault::Forbidden,
            format!("{path}.ephemeralContainers"),
            why,
        ));
    }
}

/// Checks what only a pod cannot have that is new.
pub fn check_new(spec: &Value, path: &str, errors: &mut Vec<Error>) {
    let has = |field: &str| each(spec, field).next().is_some();
    let node = text(spec, "nodeName");
    for (is_set, field, why) in [
        (
            has("ephemeralContainers"),
            "ephemeralContainers",
            "cannot be set on create",
        ),
        (
            !node.is_empty() && has("schedulingGates"),
            "nodeName",
            "cannot be set until all schedulingGates have been cleared",
        ),
    ] {
        if is_set {
            errors.push(Error::without_value(Fault::Forbidden, format!("{path}.{field}"), why));
        }
    }
}

/// A name that must be there, a DNS label, and used once.
fn named<'v>(path: &str, item: &'v Value, seen: &mut BTreeSet<&'v str>, errors: &mut Vec<Error>) {
    let (path, name) = (format!("{path}.name"), text(item, "name"));
    if name.is_empty() {
        errors.push(Error::required(path, ""));
        return;
    }
    let wrong = names::dns_label(name).into_iter();
    errors.extend(wrong.map(|why| Error::invalid(path.as_str(), json!(name), why)));
    if !seen.insert(name) {
        errors.push(Error::new(Fault::Duplicate, path, json!(name), ""));
    }
}

/// One without a source is an empty directory; of two, nobody knows which is meant.
fn one_source(volume: &Value, path: &str, errors: &mut Vec<Error>) {
    let fields = volume.as_object().into_iter().flatten();
    let mut sources = fields.filter(|(key, source)| *key != "name" && source.is_object());
    if let Some((second, _)) = sources.nth(1) {
        let why = "may not specify more than 1 volume type";
        errors.push(Error::without_value(Fault::Forbidden, format!("{path}.{second}"), why));
    }
}

/// What of a node's own files is mounted.
fn host_path(host: &Value, path: &str, errors: &mut Vec<Error>) {
    if !host.is_object() {
        return;
    }
    let file = text(host, "path");
    if file.is_empty() {
        errors.push(Error::required(format!("{path}.path"), ""));
        return;
    }
    errors.extend(backsteps(file, &format!("{path}.path")));
    let kind = text(host, "type");
    if !HOST_PATHS.contains(&kind) {
        errors.push(Error::not_supported(format!("{path}.type"), json!(kind), HOST_PATHS));
    }
}

/// A path that leads out of where it starts.
fn backsteps(file: &str, path: &str) -> Option<Error> {
    let leads_out = file.split('/').any(|part| part == "..");
    leads_out.then(|| Error::invalid(path, json!(file), "must not contain '..'"))
}

/// The service account, also under its former name.
fn account(spec: &Value, path: &str, errors: &mut Vec<Error>) {
    let name = ["serviceAccountName", "serviceAccount"].map(|field| text(spec, field));
    if let Some(name) = name.into_iter().find(|name| !name.is_empty()) {
        let wrong = names::dns_subdomain(name).into_iter();
        errors.extend(wrong.map(|why| Error::invalid(format!("{path}.serviceAccountName"), json!(name), why)));
    }
}

fn image(container: &Value, path: &str, subject: Subject, errors: &mut Vec<Error>) {
    let (image, policy) = (text(container, "image"), text(container, "imagePullPolicy"));
    if let Some(other) = container
        .get("image")
        .filter(|image| !(image.is_null() || image.is_string()))
    {
        errors.push(Error::invalid(
            format!("{path}.image"),
            other.clone(),
            "must be a string",
        ));
    } else if image.is_empty() && subject == Subject::Pod {
        errors.push(Error::required(format!("{path}.image"), ""));
    }
    if image.trim() != image {
        let why = "must not have leading or trailing whitespace";
        errors.push(Error::invalid(format!("{path}.image"), json!(image), why));
    }
    one_of(policy, &PULL_POLICIES, || format!("{path}.imagePullPolicy"), errors);
}

/// A text that is one of these, or left out.
fn one_of(text: &str, allowed: &[&str], path: impl Fn() -> String, errors: &mut Vec<Error>) {
    if !text.is_empty() && !allowed.contains(&text) {
        errors.push(Error::not_supported(path(), json!(text), allowed.iter().copied()));
    }
}

fn mounts(container: &Value, path: &str, volumes: &BTreeSet<&str>, errors: &mut Vec<Error>) {
    let mut seen = BTreeSet::new();
    for (index, mount) in each(container, "volumeMounts").enumerate() {
        let path = format!("{path}.volumeMounts[{index}]");
        let (volume, place) = (text(mount, "name"), text(mount, "mountPath"));
        if volume.is_empty() {
            errors.push(Error::required(format!("{path}.name"), ""));
        } else if !volumes.contains(volume) {
            errors.push(Error::new(Fault::NotFound, format!("{path}.name"), json!(volume), ""));
        }
        if place.is_empty() {
            errors.push(Error::required(format!("{path}.mountPath"), ""));
        } else if !seen.insert(place) {
            errors.push(Error::invalid(
                format!("{path}.mountPath"),
                json!(place),
                "must be unique",
            ));
        }
    }
}

fn devices(container: &Value, path: &str, volumes: &BTreeSet<&str>, errors: &mut Vec<Error>) {
    let (mut named, mut places) = (BTreeSet::new(), BTreeSet::new());
    for (index, device) in each(container, "volumeDevices").enumerate() {
        let path = format!("{path}.volumeDevices[{index}]");
        let (volume, place) = (text(device, "name"), text(device, "devicePath"));
        let twice =
            |field: &str, value: &str| Error::invalid(format!("{path}.{field}"), json!(value), "must be unique");
        if volume.is_empty() {
            errors.push(Error::required(format!("{path}.name"), ""));
        } else if !named.insert(volume) {
            errors.push(twice("name", volume));
        } else if !volumes.contains(volume) {
            errors.push(Error::new(Fault::NotFound, format!("{path}.name"), json!(volume), ""));
        }
        if place.is_empty() {
            errors.push(Error::required(format!("{path}.devicePath"), ""));
        } else if !places.insert(place) {
            errors.push(twice("devicePath", place));
        }
    }
}

fn ports(container: &Value, path: &str, errors: &mut Vec<Error>) {
    let mut seen = BTreeSet::new();
    for (index, port) in each(container, "ports").enumerate() {
        let path = format!("{path}.ports[{index}]");
        let name = text(port, "name");
        if !name.is_empty() {
            let wrong = port_name(name).into_iter();
            errors.extend(wrong.map(|why| Error::invalid(format!("{path}.name"), json!(name), why)));
            if !seen.insert(name) {
                errors.push(Error::new(Fault::Duplicate, format!("{path}.name"), json!(name), ""));
            }
        }
        match port["containerPort"].as_i64().unwrap_or(0) {
            0 => errors.push(Error::required(format!("{path}.containerPort"), "")),
            number => in_range(number, || format!("{path}.containerPort"), errors),
        }
        if let Some(number) = port["hostPort"].as_i64().filter(|n| *n != 0) {
            in_range(number, || format!("{path}.hostPort"), errors);
        }
        one_of(
            text(port, "protocol"),
            &PROTOCOLS,
            || format!("{path}.protocol"),
            errors,
        );
    }
}

fn in_range(number: i64, path: impl Fn() -> String, errors: &mut Vec<Error>) {
    if !(1..=65535).contains(&number) {
        errors.push(Error::invalid(path(), json!(number), PORT));
    }
}

/// What is wrong with the name of a port.
fn port_name(name: &str) -> Option<&'static str> {
    let is_letter = |c: char| c.is_ascii_lowercase();
    if name.len() > 15 {
        Some("must be no more than 15 characters")
    } else if !name.chars().all(|c| is_letter(c) || c.is_ascii_digit() || c == '-') {
        Some("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    } else if !name.contains(is_letter) {
        Some("must contain at least one letter (a-z)")
    } else if name.contains("--") {
        Some("must not contain consecutive hyphens")
    } else if name.starts_with('-') || name.ends_with('-') {
        Some("must not begin or end with a hyphen")
    } else {
        None
    }
}

fn variables(container: &Value, path: &str, errors: &mut Vec<Error>) {
    for (index, variable) in each(container, "env").enumerate() {
        let path = format!("{path}.env[{index}]");
        let name = text(variable, "name");
        if name.is_empty() {
            errors.push(Error::required(format!("{path}.name"), ""));
        } else if !name.chars().all(|c| (' '..='~').contains(&c) && c != '=') {
            let why =
                "a valid environment variable name must consist only of printable ASCII characters other than '='";
            errors.push(Error::invalid(format!("{path}.name"), json!(name), why));
        }
        let Some(sources) = variable["valueFrom"].as_object() else {
            continue;
        };
        let count = sources.values().filter(|source| source.is_object()).count();
        let why = if !text(variable, "value").is_empty() {
            "may not be specified when `value` is not empty"
        } else if count == 0 {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        } else if count > 1 {
            "may not have more than one field specified at a time"
        } else {
            continue;
        };
        errors.push(Error::invalid(format!("{path}.valueFrom"), json!(""), why));
    }
}

/// The items of a list.
fn each<'v>(object: &'v Value, field: &str) -> impl Iterator<Item = &'v Value> {
    object.get(field).and_then(Value::as_array).into_iter().flatten()
}

/// A text, empty if it is absent.
fn text<'v>(object: &'v Value, field: &str) -> &'v str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}
