//! Security contexts of pods and of their containers, and what only one operating system has.

use super::{LISTS, each, text};
use crate::field::{Error, Fault};
use serde_json::{Value, json};

const PROFILES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
const NOT_ON_WINDOWS: &str = "cannot be set for a windows pod";
const NOT_ON_LINUX: &str = "windows options cannot be set for a linux pod";

/// Fields of a pod that a pod for Windows cannot have.
const POD_OF_LINUX: [&str; 4] = ["hostUsers", "hostPID", "hostIPC", "shareProcessNamespace"];
/// Fields of a pod's security context that a pod for Windows cannot have.
const OF_LINUX: [&str; 11] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
];
/// The same of a container.
const CONTAINER_OF_LINUX: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];
/// The fields of a container's security context, in the order in which the server shows them.
const SHOWN: [&str; 12] = [
    "capabilities",
    "privileged",
    "seLinuxOptions",
    "windowsOptions",
    "runAsUser",
    "runAsGroup",
    "runAsNonRoot",
    "readOnlyRootFilesystem",
    "allowPrivilegeEscalation",
    "procMount",
    "seccompProfile",
    "appArmorProfile",
];

pub(super) fn check(spec: &Value, path: &str, errors: &mut Vec<Error>) {
    for list in LISTS {
        for (index, container) in each(spec, list).enumerate() {
            let path = format!("{path}.{list}[{index}].securityContext");
            of_container(&container["securityContext"], &path, errors);
        }
    }
    let context = &spec["securityContext"];
    profile(
        &context["seccompProfile"],
        &format!("{path}.securityContext.seccompProfile"),
        errors,
    );
    system(spec, path, errors);
}

fn of_container(context: &Value, path: &str, errors: &mut Vec<Error>) {
    profile(&context["seccompProfile"], &format!("{path}.seccompProfile"), errors);
    if context["allowPrivilegeEscalation"] != false {
        return;
    }
    let mut refuse = |why: &str| errors.push(shown(path, context, &SHOWN, why));
    if context["privileged"] == true {
        refuse("cannot set `allowPrivilegeEscalation` to false and `privileged` to true");
    }
    for _ in each(&context["capabilities"], "add").filter(|added| *added == "CAP_SYS_ADMIN") {
        refuse("cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN");
    }
}

fn profile(profile: &Value, path: &str, errors: &mut Vec<Error>) {
    if !profile.is_object() {
        return;
    }
    let (kind, file) = (text(profile, "type"), &profile["localhostProfile"]);
    if kind.is_empty() {
        let why = "type is required when seccompProfile is set";
        errors.push(Error::required(format!("{path}.type"), why));
    } else if !PROFILES.contains(&kind) {
        errors.push(Error::not_supported(format!("{path}.type"), json!(kind), PROFILES));
    }
    let place = format!("{path}.localhostProfile");
    match (kind, file.as_str()) {
        ("Localhost", None) => {
            let why = "must be set when seccomp type is Localhost";
            errors.push(Error::required(place, why));
        }
        ("Localhost", Some(file)) => {
            if file.starts_with('/') {
                errors.push(Error::invalid(place.as_str(), json!(file), "must be a relative path"));
            }
            errors.extend(super::backsteps(file, &place));
        }
        (_, Some(_)) => {
            let why = "can only be set when seccomp type is Localhost";
            errors.push(shown(&place, profile, &["type", "localhostProfile"], why));
        }
        (_, None) => {}
    }
}

/// An error that shows an object as the server does: with all fields of its struct, in their order there.
fn shown(path: &str, object: &Value, fields: &[&str], why: &str) -> Error {
    let text = structure(object, fields);
    Error::without_value(Fault::Invalid, path, format!("{text}: {why}"))
}

fn structure(object: &Value, fields: &[&str]) -> String {
    let fields = fields.iter().map(|field| {
        let value = object.get(*field).unwrap_or(&Value::Null);
        let text = match *field {
            _ if value.is_null() => "null".to_owned(),
            "capabilities" => structure(value, &["add", "drop"]),
            "seLinuxOptions" => structure(value, &["user", "role", "type", "level"]),
            "seccompProfile" | "appArmorProfile" => structure(value, &["type", "localhostProfile"]),
            _ => value.to_string(),
        };
        let name = match *field {
            "seLinuxOptions" => "SELinuxOptions".to_owned(),
            field => field[..1].to_uppercase() + &field[1..],
        };
        format!("\"{name}\":{text}")
    });
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

fn system(spec: &Value, path: &str, errors: &mut Vec<Error>) {
    if !spec["os"].is_object() {
        return;
    }
    match text(&spec["os"], "name") {
        "" => errors.push(Error::required(format!("{path}.os.name"), "")),
        "linux" => {
            let mut refuse = |context: &Value, path: &str| {
                if !context["windowsOptions"].is_null() {
                    let path = format!("{path}.securityContext.windowsOptions");
                    errors.push(Error::without_value(Fault::Forbidden, path, NOT_ON_LINUX));
                }
            };
            refuse(&spec["securityContext"], path);
            for (path, container) in containers(spec, path) {
                refuse(&container["securityContext"], &path);
            }
        }
        "windows" => {
            let mut refuse = |object: &Value, fields: &[&str], path: &str| {
                for field in fields.iter().filter(|field| is_set(object, field)) {
                    let path = format!("{path}.{field}");
                    errors.push(Error::without_value(Fault::Forbidden, path, NOT_ON_WINDOWS));
                }
            };
            refuse(spec, &POD_OF_LINUX, path);
            refuse(&spec["securityContext"], &OF_LINUX, &format!("{path}.securityContext"));
            for (path, container) in containers(spec, path) {
                let path = format!("{path}.securityContext");
                refuse(&container["securityContext"], &CONTAINER_OF_LINUX, &path);
            }
        }
        other => errors.push(Error::not_supported(
            format!("{path}.os"),
            json!(other),
            ["linux", "windows"],
        )),
    }
}

/// Some fields say nothing when they are false, or empty.
fn is_set(object: &Value, field: &str) -> bool {
    match (field, &object[field]) {
        (_, Value::Null) => false,
        ("hostPID" | "hostIPC", value) => *value == true,
        ("sysctls", value) => value.as_array().is_some_and(|all| !all.is_empty()),
        _ => true,
    }
}

fn containers<'s>(spec: &'s Value, path: &str) -> impl Iterator<Item = (String, &'s Value)> {
    let of = move |list: &'static str| {
        let all = each(spec, list).enumerate();
        all.map(move |(index, container)| (format!("{path}.{list}[{index}]"), container))
            .collect::<Vec<_>>()
    };
    // Those that start first are looked at first here.
    ["initContainers", "containers"].map(of).into_iter().flatten()
}
