//! Probes and hooks of containers: what they do, and how often.

use super::{PORT, in_range, one_of, port_name, text};
use crate::field::{Error, Fault};
use serde_json::{Value, json};

const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];
const HOOKS: [&str; 2] = ["postStart", "preStop"];
/// Ways to ask a container that are known here; newer ones are left alone.
const HANDLERS: [&str; 5] = ["exec", "httpGet", "tcpSocket", "grpc", "sleep"];
/// Numbers of a probe that may not be negative. Zero stands for the default.
const BOUNDS: [&str; 5] = [
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
];

pub(super) fn check(container: &Value, path: &str, errors: &mut Vec<Error>) {
    for name in PROBES {
        let probe = &container[name];
        if probe.is_object() {
            let path = format!("{path}.{name}");
            handlers(probe, &path, errors);
            bounds(probe, name, &path, errors);
        }
    }
    for name in HOOKS {
        let hook = &container["lifecycle"][name];
        if hook.is_object() {
            handlers(hook, &format!("{path}.lifecycle.{name}"), errors);
        }
    }
}

/// Exactly one thing to do. What is newer than this is told by being an object.
fn handlers(probe: &Value, path: &str, errors: &mut Vec<Error>) {
    if !probe
        .as_object()
        .is_some_and(|fields| fields.values().any(Value::is_object))
    {
        errors.push(Error::required(path, "must specify a handler type"));
    }
    let mut given = HANDLERS.into_iter().filter(|name| probe[*name].is_object());
    let first = given.next();
    for second in given {
        let why = "may not specify more than 1 handler type";
        errors.push(Error::without_value(Fault::Forbidden, format!("{path}.{second}"), why));
    }
    match first {
        Some("exec") if probe["exec"]["command"].as_array().is_none_or(Vec::is_empty) => {
            errors.push(Error::required(format!("{path}.exec.command"), ""));
        }
        Some("httpGet") => {
            port(&probe["httpGet"]["port"], &format!("{path}.httpGet.port"), errors);
            let scheme = text(&probe["httpGet"], "scheme");
            one_of(scheme, &["HTTP", "HTTPS"], || format!("{path}.httpGet.scheme"), errors);
        }
        Some("tcpSocket") => port(&probe["tcpSocket"]["port"], &format!("{path}.tcpSocket.port"), errors),
        Some("grpc") => {
            let number = probe["grpc"]["port"].as_i64().unwrap_or(0);
            in_range(number, || format!("{path}.grpc.port"), errors);
        }
        _ => {}
    }
}

/// A number, or the name of a port.
fn port(port: &Value, path: &str, errors: &mut Vec<Error>) {
    match port {
        Value::String(name) => {
            errors.extend(port_name(name).map(|why| Error::invalid(path, json!(name), why)));
        }
        Value::Null => errors.push(Error::invalid(path, json!(0), PORT)),
        number => in_range(number.as_i64().unwrap_or(0), || path.to_owned(), errors),
    }
}

fn bounds(probe: &Value, name: &str, path: &str, errors: &mut Vec<Error>) {
    for field in BOUNDS {
        if let Some(number) = probe[field].as_i64().filter(|n| *n < 0) {
            let why = "must be greater than or equal to 0";
            errors.push(Error::invalid(format!("{path}.{field}"), json!(number), why));
        }
    }
    let is_readiness = name == "readinessProbe";
    if let Some(number) = probe["successThreshold"].as_i64().filter(|n| !is_readiness && *n > 1) {
        errors.push(Error::invalid(
            format!("{path}.successThreshold"),
            json!(number),
            "must be 1",
        ));
    }
    let grace = format!("{path}.terminationGracePeriodSeconds");
    match probe["terminationGracePeriodSeconds"].as_i64() {
        Some(number) if is_readiness => {
            errors.push(Error::invalid(
                grace,
                json!(number),
                "must not be set for readinessProbes",
            ));
        }
        Some(number) if number <= 0 => errors.push(Error::invalid(grace, json!(number), "must be greater than 0")),
        _ => {}
    }
}
