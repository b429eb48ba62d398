//! Requests and changes in words, for traces.

use flotilla_engine::core::request::Call;
use flotilla_engine::wire::Object;
use flotilla_model::{Command, Decision, Resource, SetRecord, StatusWrite};
use flotilla_sim::server::{Actor, Entry};
use std::fmt::Write as _;

/// A request.
pub(crate) fn call(call: &Call) -> String {
    match call {
        Call::Write(Command::Patch {
            resource,
            key,
            subresource,
            body,
            ..
        }) => {
            let part = subresource.map_or_else(String::new, |part| format!("/{}", part.name()));
            format!("patch {resource}{part} {} {body}", key.name)
        }
        Call::Write(Command::Delete {
            resource,
            key,
            uid,
            resource_version,
            ..
        }) => {
            let version = resource_version.map_or_else(String::new, |v| format!(" at {v}"));
            format!(
                "delete {resource} {} (uid {}{version})",
                key.name,
                short(&uid.to_string())
            )
        }
        Call::Write(Command::Try { pod }) => format!("try pods {}", pod.key.name),
        Call::Write(command) => format!("{} {} {}", call.verb(), command.resource(), command.key().name),
        Call::Status(patch) => format!(
            "status of {} at {}: {}",
            patch.key.name, patch.resource_version, patch.status
        ),
        Call::Get { resource, key } => format!("get {resource} {}", key.name),
        Call::Lease(lease) => format!("lease {lease:?}"),
        Call::Event(_) => "an event".into(),
    }
}

/// A decision, with what it was made from.
pub(crate) fn decision(set: &SetRecord, decision: &Decision) -> String {
    let mut text = format!(
        "sees set v{} generation {} and decides",
        set.meta.resource_version, set.generation
    );
    for stage in &decision.stages {
        let commands = stage.commands.iter().map(|c| match &c.command {
            Command::Create { key, .. } => format!("+{}", key.name),
            Command::Patch { key, .. } => format!("~{}", key.name),
            Command::Delete { key, .. } => format!("-{}", key.name),
            Command::Read { key, .. } => format!("?{}", key.name),
            Command::Try { pod } => format!("({})", pod.key.name),
        });
        // Writing into a string does not fail.
        let _ = write!(text, " [{}: {}]", stage.name, commands.collect::<Vec<_>>().join(" "));
    }
    if let Some(diff) = decision.status.as_ref().and_then(StatusWrite::diff) {
        let _ = write!(text, " [status {diff}]");
    }
    for wait in &decision.waits {
        let _ = write!(text, "\n             waits: {}: {}", wait.subject, wait.cause);
    }
    if decision.stages.is_empty() && decision.waits.is_empty() {
        text.push_str(" nothing");
    }
    text
}

/// A change.
pub(crate) fn entry(entry: &Entry) -> String {
    let who = match entry.actor {
        Actor::User => "user".to_owned(),
        Actor::System => "cluster".to_owned(),
        Actor::Manager(index) => format!("manager {index}"),
    };
    let now = entry.after.as_ref().map_or_else(
        || "gone".to_owned(),
        |stored| {
            format!(
                "v{} {}",
                stored.version,
                stored.object.as_ref().map_or_else(String::new, object)
            )
        },
    );
    format!(
        "    {} {}: {} by {who} -> {now}",
        entry.resource, entry.key.name, entry.verb
    )
}

/// An object, in what matters.
fn object(object: &Object) -> String {
    let meta = object.meta();
    let deleted = if meta.deleted.is_some() { " terminating" } else { "" };
    let what = match object {
        Object::Pod(pod) => format!(
            "{:?}{} rev {}",
            pod.phase,
            if pod.ready.is_true { " ready" } else { "" },
            pod.revision().unwrap_or("none")
        ),
        Object::Set(set) => format!(
            "generation {} replicas {} partition {} status {}",
            set.generation,
            set.spec.replicas,
            set.spec.partition(),
            set.status
        ),
        Object::Revision(revision) => format!("number {}", revision.number),
        Object::ConfigMap(map) => format!("keys {}", map.keys.join(" ")),
        Object::Claim(_) | Object::StorageClass(_) | Object::Node(_) | Object::ImagePullJob(_) => String::new(),
    };
    let owner = meta
        .controller()
        .map_or_else(String::new, |o| format!(" of {}", short(&o.uid.to_string())));
    format!("uid {}{owner} {what}{deleted}", short(&meta.uid.to_string()))
}

/// The end of a UID, which is where ours differ.
fn short(uid: &str) -> &str {
    &uid[uid.len().saturating_sub(4)..]
}

/// Whether traces tell of changes of this resource.
pub(crate) fn is_told(resource: Resource) -> bool {
    !matches!(resource, Resource::Leases | Resource::Events)
}
