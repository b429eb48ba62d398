//! The cluster, as commands talk to it: JSON in, JSON out, errors in words.

use crate::args::ClusterArgs;
use crate::error::Error;
use crate::patience;
use flotilla_engine::io::connection;
use flotilla_model::lines::one_line;
use flotilla_model::{ObjectKey, Resource};
use http::{Method, Request};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;
use std::time::Duration;

/// A connection, and the namespace that commands are about.
pub struct Cluster {
    /// The connection.
    pub client: Client,
    /// The namespace of the command line, or of the kubeconfig's context.
    pub namespace: String,
}

/// The configuration that the command line asks for.
pub async fn config(args: &ClusterArgs) -> Result<Config, Error> {
    let words = |error: &dyn std::fmt::Display| Error::Config(error.to_string());
    let options = KubeConfigOptions {
        context: args.context.clone(),
        ..KubeConfigOptions::default()
    };
    let mut config = match (&args.kubeconfig, &args.context) {
        (Some(file), _) => {
            let kubeconfig = Kubeconfig::read_from(file).map_err(|e| words(&e))?;
            Config::from_custom_kubeconfig(kubeconfig, &options)
                .await
                .map_err(|e| words(&e))?
        }
        (None, Some(_)) => Config::from_kubeconfig(&options).await.map_err(|e| words(&e))?,
        (None, None) => Config::infer().await.map_err(|e| words(&e))?,
    };
    // Refusals are ours to see and to act upon; the client's own retries would hide them for minutes.
    config.default_retry = false;
    Ok(config)
}

impl Cluster {
    /// Connects as the command line asks.
    pub async fn connect(args: &ClusterArgs) -> Result<Self, Error> {
        let config = config(args).await?;
        let namespace = args
            .namespace
            .clone()
            .unwrap_or_else(|| config.default_namespace.clone());
        let client = connection::connect(config).map_err(Error::Config)?;
        let client = patience::bounded(client, Duration::from_secs(args.request_timeout_seconds));
        Ok(Cluster { client, namespace })
    }

    /// One object, or `None` if it does not exist (or its kind is not served).
    pub async fn get(&self, resource: Resource, key: &ObjectKey) -> Result<Option<Value>, Error> {
        let what = format!("read {resource} {key}");
        match self.send(Method::GET, &resource.object_path(key, None), None).await {
            Ok(object) => Ok(Some(object)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(describe(what, &error)),
        }
    }

    /// All objects of a resource in the namespace.
    pub async fn list(&self, resource: Resource) -> Result<Vec<Value>, Error> {
        let what = format!("list {resource} in namespace {}", self.namespace);
        let path = resource.collection_path(Some(&self.namespace));
        let mut list = self
            .send(Method::GET, &path, None)
            .await
            .map_err(|e| describe(what, &e))?;
        match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => Ok(items),
            _ => Ok(Vec::new()),
        }
    }

    /// Patches an object and returns it as it is then. `content_type` says how `body` is read.
    pub async fn patch(
        &self,
        resource: Resource,
        key: &ObjectKey,
        content_type: &str,
        body: &Value,
    ) -> Result<Value, Error> {
        let what = format!("change {resource} {key}");
        let path = format!("{}?fieldManager=flotilla-cli", resource.object_path(key, None));
        self.send(Method::PATCH, &path, Some((content_type, body)))
            .await
            .map_err(|e| describe(what, &e))
    }

    /// One object by its path, or `None` if it does not exist or its kind is not served. `what` is for the error: "read …".
    pub async fn get_at(&self, path: &str, what: &str) -> Result<Option<Value>, Error> {
        match self.send(Method::GET, path, None).await {
            Ok(object) => Ok(Some(object)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(describe(what.to_owned(), &error)),
        }
    }

    /// All objects of a collection by its path; none if its kind is not served.
    pub async fn list_at(&self, path: &str, what: &str) -> Result<Vec<Value>, Error> {
        let list = self.get_at(path, what).await?;
        match list.and_then(|mut list| list.get_mut("items").map(Value::take)) {
            Some(Value::Array(items)) => Ok(items),
            _ => Ok(Vec::new()),
        }
    }

    /// Deletes an object by its path. False if it was not there.
    pub async fn delete_at(&self, path: &str, options: &Value, what: &str) -> Result<bool, Error> {
        match self
            .send(Method::DELETE, path, Some(("application/json", options)))
            .await
        {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
            Err(error) => Err(describe(what.to_owned(), &error)),
        }
    }

    /// Sends one request; for callers that read refusals themselves.
    pub async fn send(&self, method: Method, path: &str, body: Option<(&str, &Value)>) -> Result<Value, kube::Error> {
        let mut request = Request::builder().method(method).uri(path);
        let bytes = match body {
            Some((content_type, body)) => {
                request = request.header("Content-Type", content_type);
                body.to_string().into_bytes()
            }
            None => Vec::new(),
        };
        let request = request.body(bytes).map_err(kube::Error::HttpError)?;
        self.client.request(request).await
    }

    /// Lists a collection by its path, of each object its metadata alone; for callers that read refusals themselves.
    pub async fn list_metadata(&self, path: &str) -> Result<Value, kube::Error> {
        let request = Request::get(path).header("Accept", METADATA).body(Vec::new());
        self.client.request(request.map_err(kube::Error::HttpError)?).await
    }
}

/// Asks for the metadata of each object of a list alone.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// An error of the client in words: what was attempted, what came back, what to do.
pub fn describe(what: String, error: &kube::Error) -> Error {
    match error {
        kube::Error::Api(status) => {
            let advice = match status.code {
                401 => "; log in again, or use another kubeconfig",
                403 => "; ask for the permission that the message names",
                409 => "; somebody else changed it at the same time: try again",
                _ => "",
            };
            Error::Refused {
                what,
                code: status.code,
                message: one_line(&status.message),
                advice: advice.to_owned(),
            }
        }
        kube::Error::Service(cause) => Error::Unreachable {
            what,
            cause: cause.to_string(),
        },
        other => Error::Unreachable {
            what,
            cause: other.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    #[test]
    fn what_a_server_says_adds_no_lines_to_an_error() {
        let status = Status {
            message: "denied\nflotilla: all is well\u{1b}[2K".to_owned(),
            code: 400,
            ..Status::default()
        };
        let error = describe("read x".to_owned(), &kube::Error::Api(Box::new(status)));
        assert_eq!(
            error.to_string(),
            "failed to read x: denied\\nflotilla: all is well\\u{1b}[2K"
        );
    }
}
