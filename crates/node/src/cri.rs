//! What may be asked of a container runtime (AGT-2.3): six calls of the Container Runtime Interface, over gRPC on a unix socket.
//!
//! Whoever can ask a runtime for anything is root on its node. So there is no client for all of the interface here, but one function for
//! each call that is needed, and `Method` is the whole list. Messages are declared by hand, with the fields that are used: what is not
//! declared is skipped.
//!
//! There are no keep-alive pings: servers made with grpc-go, as the runtimes are, end a connection that is asked for a sign of life more
//! often than every five minutes. Each call has a deadline instead, and a runtime that has gone closes its socket.

mod messages;

use crate::metrics::Metrics;
use flotilla_agent::{State, Told};
use http::uri::PathAndQuery;
use messages as m;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

/// For calls that answer from what the runtime knows.
const QUICKLY: Duration = Duration::from_secs(5);
/// An answer may not be larger.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Label of the pod that a container belongs to.
const POD_UID: &str = "io.kubernetes.pod.uid";
/// Label of a container's name in its pod.
const CONTAINER_NAME: &str = "io.kubernetes.container.name";

/// A call that can be made. There are no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Version,
    Status,
    ListContainers,
    ContainerStatus,
    ExecSync,
    StopContainer,
}

impl Method {
    const fn name(self) -> &'static str {
        match self {
            Method::Version => "Version",
            Method::Status => "Status",
            Method::ListContainers => "ListContainers",
            Method::ContainerStatus => "ContainerStatus",
            Method::ExecSync => "ExecSync",
            Method::StopContainer => "StopContainer",
        }
    }

    const fn path(self) -> &'static str {
        match self {
            Method::Version => "/runtime.v1.RuntimeService/Version",
            Method::Status => "/runtime.v1.RuntimeService/Status",
            Method::ListContainers => "/runtime.v1.RuntimeService/ListContainers",
            Method::ContainerStatus => "/runtime.v1.RuntimeService/ContainerStatus",
            Method::ExecSync => "/runtime.v1.RuntimeService/ExecSync",
            Method::StopContainer => "/runtime.v1.RuntimeService/StopContainer",
        }
    }
}

/// A call that failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{call} of the runtime at {endpoint} failed: {message}")]
pub struct CallError {
    call: &'static str,
    endpoint: Arc<str>,
    code: Code,
    message: String,
}

impl CallError {
    /// The runtime does not know the call.
    pub fn is_unimplemented(&self) -> bool {
        self.code == Code::Unimplemented
    }

    /// What was asked about is not there.
    pub fn is_not_found(&self) -> bool {
        self.code == Code::NotFound
    }
}

/// Who the runtime is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its name, which stands before the IDs of its containers.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The version of the interface that it speaks.
    pub api: String,
}

/// What a command in a container printed, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// What it printed.
    pub stdout: Vec<u8>,
    /// What it complained of.
    pub stderr: Vec<u8>,
    /// Its exit code.
    pub code: i32,
}

/// A runtime behind a socket. The connection is made with the first call, and again after it was lost.
#[derive(Clone)]
pub struct Runtime {
    endpoint: Arc<str>,
    channel: Channel,
    metrics: Arc<Metrics>,
}

impl Runtime {
    /// A runtime at `unix:///path`.
    ///
    /// # Errors
    /// Says why that is no such address.
    pub(crate) fn at(endpoint: &str, metrics: Arc<Metrics>) -> Result<Self, String> {
        let address = Endpoint::from_shared(endpoint.to_owned()).map_err(|e| format!("{endpoint}: {e}"))?;
        Ok(Runtime {
            endpoint: endpoint.into(),
            channel: address.connect_timeout(QUICKLY).connect_lazy(),
            metrics,
        })
    }

    /// Where it is.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Who it is.
    pub async fn version(&self) -> Result<Version, CallError> {
        let request = m::VersionRequest {
            version: "v1".to_owned(),
        };
        let answer: m::VersionResponse = self.call(Method::Version, request, QUICKLY).await?;
        Ok(Version {
            name: answer.name,
            version: answer.version,
            api: answer.api,
        })
    }

    /// What keeps it from running containers; `None` if nothing does.
    pub async fn not_ready(&self) -> Result<Option<String>, CallError> {
        let answer: m::StatusResponse = self
            .call(Method::Status, m::StatusRequest { verbose: false }, QUICKLY)
            .await?;
        let conditions = answer.status.unwrap_or_default().conditions;
        let ready = conditions.into_iter().find(|c| c.type_ == "RuntimeReady");
        Ok(ready
            .filter(|c| !c.status)
            .map(|c| format!("{}: {}", c.reason, c.message)))
    }

    /// The containers of a pod, those that have ended included.
    pub async fn containers(&self, runtime: &str, pod_uid: &str) -> Result<Vec<Told>, CallError> {
        let filter = m::ContainerFilter {
            label_selector: [(POD_UID.to_owned(), pod_uid.to_owned())].into(),
        };
        let request = m::ListContainersRequest { filter: Some(filter) };
        let answer: m::ListContainersResponse = self.call(Method::ListContainers, request, QUICKLY).await?;
        // A runtime that does not know the filter would answer with all that it has.
        let of_pod = answer
            .containers
            .into_iter()
            .filter(|c| c.labels.get(POD_UID).is_some_and(|uid| uid == pod_uid));
        Ok(of_pod.map(|container| told(runtime, container)).collect())
    }

    /// What the runtime says of a container when it is asked to be verbose: a document of its own making, if it makes one.
    pub async fn verbose(&self, id: &str) -> Result<Option<String>, CallError> {
        let request = m::ContainerStatusRequest {
            container_id: bare(id).to_owned(),
            verbose: true,
        };
        let mut answer: m::ContainerStatusResponse = self.call(Method::ContainerStatus, request, QUICKLY).await?;
        Ok(answer.info.remove("info"))
    }

    /// Runs a command in a container and waits for its end.
    pub async fn exec(&self, id: &str, command: &[&str], within: Duration) -> Result<Output, CallError> {
        let request = m::ExecSyncRequest {
            container_id: bare(id).to_owned(),
            cmd: command.iter().map(|part| (*part).to_owned()).collect(),
            timeout: seconds(within),
        };
        let answer: m::ExecSyncResponse = self.call(Method::ExecSync, request, within + QUICKLY).await?;
        Ok(Output {
            stdout: answer.stdout,
            stderr: answer.stderr,
            code: answer.exit_code,
        })
    }

    /// Asks a container to end, and ends it when it has not within its grace.
    pub async fn stop(&self, id: &str, grace: Duration) -> Result<(), CallError> {
        let request = m::StopContainerRequest {
            container_id: bare(id).to_owned(),
            timeout: seconds(grace),
        };
        let _: m::StopContainerResponse = self.call(Method::StopContainer, request, grace + QUICKLY).await?;
        Ok(())
    }

    async fn call<Q, A>(&self, method: Method, request: Q, within: Duration) -> Result<A, CallError>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX);
        let mut request = Request::new(request);
        request.set_timeout(within);
        let begun = Instant::now();
        let asking = async {
            let ready = grpc.ready().await;
            ready.map_err(|e| (Code::Unavailable, chain(&e)))?;
            let path = PathAndQuery::from_static(method.path());
            let answer = grpc.unary(request, path, ProstCodec::<Q, A>::default()).await;
            answer.map_err(|status| (status.code(), chain(&status)))
        };
        let answer = match tokio::time::timeout(within, asking).await {
            Ok(answer) => answer,
            Err(_) => Err((
                Code::DeadlineExceeded,
                format!("no answer within {} s", within.as_secs()),
            )),
        };
        let code = answer.as_ref().err().map(|(code, _)| *code);
        self.metrics.called(method.name(), begun.elapsed(), code);
        let answer = answer.map_err(|(code, message)| CallError {
            call: method.name(),
            endpoint: self.endpoint.clone(),
            code,
            message,
        })?;
        Ok(answer.into_inner())
    }
}

/// An error with what caused it: the outermost one often says nothing but that there was one.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// The ID as the runtime knows it.
fn bare(id: &str) -> &str {
    id.split_once("://").map_or(id, |(_, id)| id)
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

fn told(runtime: &str, container: m::Container) -> Told {
    let name = container.labels.get(CONTAINER_NAME).cloned();
    Told {
        name: name.unwrap_or_else(|| container.metadata.unwrap_or_default().name),
        id: format!("{runtime}://{}", container.id),
        created_at: container.created_at,
        state: match container.state {
            0 => State::Created,
            1 => State::Running,
            2 => State::Exited,
            _ => State::Unknown,
        },
        annotations: container.annotations,
    }
}

#[cfg(test)]
mod tests;
