//! What is asked of the API server: a handful of objects by name, no list and no watch.

use crate::certificates::Stored;
use crate::registrations::NAME;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flotilla_engine::io::fence::Fence;
use http::{Method, Request};
use serde_json::{Value, json};

/// The Secret that holds the certificates.
const SECRET: &str = "flotilla-webhook-certificates";
/// By this label we know what is ours.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "flotilla");

pub(super) fn definition_path(name: &str) -> String {
    format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
}

pub(super) fn configuration_path(configuration: &Value) -> String {
    let plural = match configuration["kind"].as_str() {
        Some("MutatingWebhookConfiguration") => "mutatingwebhookconfigurations",
        _ => "validatingwebhookconfigurations",
    };
    format!("/apis/admissionregistration.k8s.io/v1/{plural}/{NAME}")
}

fn secret_path(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/secrets/{SECRET}")
}

/// The connection, and the right to write.
pub(super) struct Calls {
    client: kube::Client,
    fence: Fence,
}

impl Calls {
    pub(super) fn new(client: kube::Client, fence: Fence) -> Self {
        Calls { client, fence }
    }

    async fn send(&self, method: Method, path: &str, content_type: &str, body: Vec<u8>) -> Result<Value, kube::Error> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("Content-Type", content_type)
            .body(body)
            .map_err(kube::Error::HttpError)?;
        self.client.request(request).await
    }

    /// An object, if it is there.
    pub(super) async fn get(&self, path: &str) -> Result<Option<Value>, String> {
        match self.send(Method::GET, path, "application/json", Vec::new()).await {
            Ok(object) => Ok(Some(object)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(why) => Err(format!("failed to read {path}: {why}")),
        }
    }

    async fn patch(&self, path: &str, content_type: &str, body: &Value) -> Result<(), String> {
        if !self.fence.may_write() {
            return Err(format!("did not write {path}: somebody else holds the lease now"));
        }
        let uri = format!("{path}?fieldManager={NAME}");
        let uri = if content_type == APPLY {
            format!("{uri}&force=true")
        } else {
            uri
        };
        match self
            .send(Method::PATCH, &uri, content_type, body.to_string().into_bytes())
            .await
        {
            Ok(_) => Ok(()),
            Err(why) => Err(format!("failed to write {path}: {why}")),
        }
    }

    /// Writes an object of ours, or our part of one, by server-side apply.
    pub(super) async fn apply(&self, path: &str, object: &Value) -> Result<(), String> {
        self.patch(path, APPLY, object).await
    }

    /// The certificates and the version of their Secret.
    pub(super) async fn read_secret(&self, namespace: &str) -> Result<(Option<Stored>, Option<String>), String> {
        let Some(secret) = self.get(&secret_path(namespace)).await? else {
            return Ok((None, None));
        };
        // What is not base64 of text is no PEM either, and is decided upon as such.
        let text = |name: &str| {
            let bytes = secret["data"][name]
                .as_str()
                .and_then(|text| STANDARD.decode(text).ok());
            bytes
                .and_then(|bytes| String::from_utf8(bytes).ok())
                .unwrap_or_default()
        };
        let stored = Stored {
            authorities: text("ca.crt"),
            authority_key: text("ca.key"),
            serving: text("tls.crt"),
            serving_key: text("tls.key"),
            is_ours: secret["metadata"]["labels"][MANAGED_BY.0] == MANAGED_BY.1,
        };
        let version = secret.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        Ok((Some(stored), version.map(str::to_owned)))
    }

    /// Writes the certificates, if the Secret is still the one that was read.
    pub(super) async fn write_secret(
        &self,
        namespace: &str,
        stored: &Stored,
        version: Option<&str>,
    ) -> Result<(), String> {
        let mut secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": SECRET, "namespace": namespace, "labels": {MANAGED_BY.0: MANAGED_BY.1}},
            "data": {
                "ca.crt": STANDARD.encode(&stored.authorities),
                "ca.key": STANDARD.encode(&stored.authority_key),
                "tls.crt": STANDARD.encode(&stored.serving),
                "tls.key": STANDARD.encode(&stored.serving_key),
            },
        });
        if let Some(version) = version {
            secret["metadata"]["resourceVersion"] = json!(version);
        }
        self.apply(&secret_path(namespace), &secret).await
    }

    /// Has the versions at these places of the definition served.
    pub(super) async fn serve_versions(&self, definition: &str, unserved: &[(usize, String)]) -> Result<(), String> {
        let mut operations = Vec::new();
        for (index, name) in unserved {
            // Only if it is still the version that was read there.
            operations.push(json!({"op": "test", "path": format!("/spec/versions/{index}/name"), "value": name}));
            operations.push(json!({"op": "replace", "path": format!("/spec/versions/{index}/served"), "value": true}));
        }
        self.patch(definition, "application/json-patch+json", &Value::Array(operations))
            .await
    }
}

const APPLY: &str = "application/apply-patch+yaml";
