//! How a container is stopped (AGT-9.6): its hook, its grace, and what is left of that behind the hook.
//!
//! All of it is read from what the kubelet noted on the container when it made it, which is what the kubelet itself would do to it.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// The pod's termination grace period in seconds.
const GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
/// The hook, as JSON.
const HOOK: &str = "io.kubernetes.container.preStopHandler";
/// The container's ports, as JSON.
const PORTS: &str = "io.kubernetes.container.ports";
/// Used where the pod does not say.
const GRACE_DEFAULT: Duration = Duration::from_secs(30);
/// A container is given at least so long.
const GRACE_MIN: Duration = Duration::from_secs(2);

/// How a container is to be stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopping {
    /// What runs first, or why nothing can.
    pub hook: Result<Option<Hook>, String>,
    /// How long all of it may take.
    pub grace: Duration,
}

/// What runs before a container is asked to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hook {
    /// A command in the container.
    Exec(Vec<String>),
    /// A request.
    Http(HttpHook),
    /// Waiting.
    Sleep(Duration),
}

/// A request that precedes the end of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpHook {
    /// Whether over TLS; then the certificate is not looked at.
    pub over_tls: bool,
    /// Where.
    pub host: String,
    /// Which port.
    pub port: u16,
    /// Path and query, beginning with a slash.
    pub path: String,
    /// Headers.
    pub headers: Vec<(String, String)>,
}

impl Stopping {
    /// How long the hook may run; `None` if it is left out because there is no grace.
    pub fn hook_within(&self) -> Option<Duration> {
        (!self.grace.is_zero()).then_some(self.grace)
    }

    /// What the container is given to end by itself when the hook has taken this long.
    pub fn grace_behind(&self, hook_took: Duration) -> Duration {
        self.grace.saturating_sub(hook_took).max(GRACE_MIN)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Handler {
    exec: Option<Exec>,
    http_get: Option<HttpGet>,
    tcp_socket: Option<Value>,
    sleep: Option<Sleep>,
}

#[derive(Deserialize)]
struct Exec {
    #[serde(default)]
    command: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HttpGet {
    #[serde(default)]
    path: String,
    port: Value,
    #[serde(default)]
    host: String,
    #[serde(default)]
    scheme: String,
    #[serde(default)]
    http_headers: Vec<Header>,
}

#[derive(Deserialize)]
struct Header {
    name: String,
    #[serde(default)]
    value: String,
}

#[derive(Deserialize)]
struct Sleep {
    #[serde(default)]
    seconds: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Port {
    #[serde(default)]
    name: String,
    container_port: u16,
}

/// How a container with these notes of the kubelet is to be stopped, in a pod with this address.
pub fn stopping(notes: &BTreeMap<String, String>, pod_ip: &str) -> Stopping {
    let grace = notes.get(GRACE).and_then(|seconds| seconds.parse().ok());
    Stopping {
        hook: notes.get(HOOK).map(|text| hook(text, notes, pod_ip)).transpose(),
        grace: grace.map_or(GRACE_DEFAULT, Duration::from_secs),
    }
}

fn hook(text: &str, notes: &BTreeMap<String, String>, pod_ip: &str) -> Result<Hook, String> {
    let handler: Handler = serde_json::from_str(text).map_err(|e| format!("the hook cannot be read: {e}"))?;
    match handler {
        Handler { exec: Some(exec), .. } => Ok(Hook::Exec(exec.command)),
        Handler {
            http_get: Some(get), ..
        } => get.hook(notes, pod_ip).map(Hook::Http),
        Handler { sleep: Some(sleep), .. } => Ok(Hook::Sleep(Duration::from_secs(sleep.seconds))),
        // As in Kubernetes, where it is a field that nothing carries out.
        Handler {
            tcp_socket: Some(_), ..
        } => Err("tcpSocket is no hook that can be carried out".to_owned()),
        _ => Err("the hook is of a kind that is not known here".to_owned()),
    }
}

impl HttpGet {
    fn hook(self, notes: &BTreeMap<String, String>, pod_ip: &str) -> Result<HttpHook, String> {
        let host = if self.host.is_empty() {
            pod_ip.to_owned()
        } else {
            self.host
        };
        if host.is_empty() {
            return Err("the pod has no address".to_owned());
        }
        let slash = if self.path.starts_with('/') { "" } else { "/" };
        let headers = self.http_headers.into_iter().map(|header| (header.name, header.value));
        Ok(HttpHook {
            over_tls: self.scheme.eq_ignore_ascii_case("https"),
            port: port(&self.port, notes)?,
            path: format!("{slash}{}", self.path),
            headers: headers.collect(),
            host,
        })
    }
}

/// A port by its number, or by its name among those of the container.
fn port(port: &Value, notes: &BTreeMap<String, String>) -> Result<u16, String> {
    if let Some(number) = port.as_u64() {
        return u16::try_from(number).map_err(|_| format!("{number} is no port"));
    }
    let name = port.as_str().unwrap_or_default();
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let ports = notes.get(PORTS).map_or("[]", String::as_str);
    let ports: Vec<Port> = serde_json::from_str(ports).map_err(|e| format!("the ports cannot be read: {e}"))?;
    let found = ports.iter().find(|port| port.name == *name);
    found
        .map(|port| port.container_port)
        .ok_or_else(|| format!("the container has no port {name:?}"))
}
