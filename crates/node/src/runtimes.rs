//! The runtimes of the node: where they may be, which are there, and whether they answer (AGT-2.1 and AGT-2.2).
//!
//! A runtime that is missing or ill is no reason to end: it may be about to be installed, or to be started again.

use crate::cri::{Runtime, Version};
use crate::metrics::Metrics;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Directories below which sockets are looked for: where the chart mounts the node's directory, and the node's own.
const ROOTS: [&str; 2] = ["/run/host-cri", "/run"];
/// Sockets of known runtimes below such a directory, in the order in which they are preferred. Where only one runtime's own directory is
/// mounted, its socket lies right in it.
const SOCKETS: [&str; 10] = [
    "containerd/containerd.sock",
    "containerd.sock",
    "crio/crio.sock",
    "crio.sock",
    "cri-dockerd.sock",
    "cri-dockerd/cri-dockerd.sock",
    "k3s/containerd/containerd.sock",
    "k3s/containerd.sock",
    "k0s/containerd.sock",
    "snap/microk8s/common/run/containerd.sock",
];
/// How often a runtime that answers is asked whether it still does.
const HEALTH_EVERY: Duration = Duration::from_secs(30);
/// After how long one that does not is asked again, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// What is known of the runtimes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// One answers; asked again, it still does.
    Up {
        /// Where.
        endpoint: String,
        /// Who.
        version: Version,
    },
    /// None answers.
    Down(Cause),
}

/// Why there is no runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    /// In a word, by which events are counted.
    pub(crate) word: &'static str,
    /// In a sentence.
    pub(crate) sentence: String,
}

/// The addresses at which runtimes are looked for: those that were named, or else a socket of this name below the mounted directory, or
/// else those of known runtimes.
pub fn endpoints(named: &[String], socket_file: Option<&str>) -> Vec<String> {
    if !named.is_empty() {
        return named.to_vec();
    }
    let address = |root: &str, socket: &str| format!("unix://{}", Path::new(root).join(socket).display());
    if let Some(file) = socket_file {
        return vec![address(ROOTS[0], file)];
    }
    let below = |root: &'static str| SOCKETS.iter().map(move |socket| address(root, socket));
    ROOTS.iter().flat_map(|root| below(root)).collect()
}

/// Looks after the runtimes.
pub(crate) struct Keeper {
    /// Where they may be.
    pub(crate) endpoints: Vec<String>,
    pub(crate) metrics: Arc<Metrics>,
    /// Whom to tell.
    pub(crate) news: mpsc::Sender<(News, Option<Runtime>)>,
}

/// One that has answered.
struct Known {
    runtime: Runtime,
    version: Version,
}

impl Keeper {
    /// Runs until nobody listens.
    pub(crate) async fn run(self) {
        let mut known: Vec<Known> = Vec::new();
        let mut delay = RETRY.0;
        loop {
            let causes = self.round(&mut known).await;
            let wait = if known.is_empty() {
                let cause = worst(causes, &self.endpoints);
                tracing::warn!(why = cause.sentence, "no runtime can be asked");
                if self.news.send((News::Down(cause), None)).await.is_err() {
                    return;
                }
                let longer = (delay * 2).min(RETRY.1);
                std::mem::replace(&mut delay, longer)
            } else {
                delay = RETRY.0;
                HEALTH_EVERY
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.news.closed() => return,
            }
        }
    }

    /// Asks all. Two addresses may lead to one runtime; the first of them counts.
    async fn round(&self, known: &mut Vec<Known>) -> Vec<Cause> {
        let mut causes = Vec::new();
        let mut still = Vec::new();
        for endpoint in &self.endpoints {
            let before = known.iter().position(|k| k.runtime.endpoint() == endpoint);
            if before.is_none() && !is_there(endpoint) {
                continue;
            }
            let before = before.map(|index| known.swap_remove(index));
            let asked = self.ask(endpoint, before.as_ref()).await;
            let is_another = |known: &Known| asked.as_ref().map_or(true, |(_, version)| *version != known.version);
            if let Some(Known { version, .. }) = before.filter(is_another) {
                self.metrics.runtime(&version.name, &version.version, false);
            }
            match asked {
                Ok((runtime, version)) => {
                    if still.iter().any(|k: &Known| k.version.name == version.name) {
                        continue;
                    }
                    self.metrics.runtime(&version.name, &version.version, true);
                    let news = News::Up {
                        endpoint: endpoint.clone(),
                        version: version.clone(),
                    };
                    if self.news.send((news, Some(runtime.clone()))).await.is_err() {
                        return causes;
                    }
                    still.push(Known { runtime, version });
                }
                Err(cause) => {
                    tracing::warn!(endpoint, why = cause.sentence, "a runtime cannot be asked");
                    causes.push(cause);
                }
            }
        }
        *known = still;
        causes
    }

    /// Asks one who it is; anew after each time that it did not answer, since it may have become another.
    async fn ask(&self, endpoint: &str, before: Option<&Known>) -> Result<(Runtime, Version), Cause> {
        let cause = |word, sentence: String| Cause { word, sentence };
        let runtime = match before {
            Some(known) => known.runtime.clone(),
            None => Runtime::at(endpoint, self.metrics.clone()).map_err(|why| cause("BadEndpoint", why))?,
        };
        let version = runtime.version().await.map_err(|error| {
            let word = if error.is_unimplemented() {
                "NoCriV1"
            } else {
                "Unreachable"
            };
            cause(word, error.to_string())
        })?;
        if version.api != "v1" && !version.api.starts_with("v1.") {
            let sentence = format!("{endpoint} speaks version {:?} of the interface, not v1", version.api);
            return Err(cause("NoCriV1", sentence));
        }
        if before.is_none() {
            match runtime.not_ready().await {
                Ok(None) => tracing::info!(
                    endpoint,
                    name = version.name,
                    version = version.version,
                    "found a runtime"
                ),
                // It can be asked all the same.
                Ok(Some(why)) => tracing::warn!(endpoint, why, "the runtime says that it is not ready"),
                Err(error) => return Err(cause("Unreachable", error.to_string())),
            }
        }
        Ok((runtime, version))
    }
}

/// Whether there is something at an address. One that is not that of a file is asked.
fn is_there(endpoint: &str) -> bool {
    endpoint
        .strip_prefix("unix://")
        .is_none_or(|path| Path::new(path).exists())
}

/// The cause to tell: of those that answered wrongly, else that there is nothing.
fn worst(mut causes: Vec<Cause>, endpoints: &[String]) -> Cause {
    if causes.is_empty() {
        let sentence = format!("there is no socket of a runtime at {}", endpoints.join(", "));
        return Cause {
            word: "NoSocket",
            sentence,
        };
    }
    causes.swap_remove(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agt_2_1_named_endpoints_and_socket_files_disable_detection() {
        let named = ["unix:///x.sock".to_owned()];
        assert_eq!(endpoints(&named, Some("y.sock")), named);
        assert_eq!(endpoints(&[], Some("y.sock")), ["unix:///run/host-cri/y.sock"]);
        let all = endpoints(&[], None);
        assert_eq!(all[0], "unix:///run/host-cri/containerd/containerd.sock");
        assert!(all.contains(&"unix:///run/crio/crio.sock".to_owned()));
    }
}
