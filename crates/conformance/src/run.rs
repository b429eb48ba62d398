//! Sends a script to a server, and writes down what it answers.

use crate::normal::Symbols;
use crate::script::{Script, Step, Until};
use crate::{Answer, Transcript};
use http::header::{ACCEPT, CONTENT_TYPE, WARNING};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long an answer, or the next event of a watch, may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// How long something may take to become as a step waits for.
const ATTEMPTS: usize = 150;
const PAUSE: Duration = Duration::from_millis(100);

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Why a script could not be run to its end.
#[derive(Debug, thiserror::Error)]
#[error("{script}: {step}: {why}")]
pub struct Failure {
    script: String,
    step: String,
    why: String,
}

/// What came back, before it is normalised.
struct Came {
    code: u16,
    content_type: String,
    warnings: Vec<String>,
    body: Value,
}

/// Runs a script in a namespace of its own, which is made before and deleted after it.
pub async fn run(client: &Client, script: &Script, namespace: &str) -> Result<Transcript, Failure> {
    let failed = |step: &str, why: String| Failure {
        script: script.name.clone(),
        step: step.to_owned(),
        why,
    };
    enter(client, namespace).await.map_err(|why| failed("namespace", why))?;
    let mut symbols = Symbols::new(namespace);
    let mut kept = BTreeMap::from([("ns".to_owned(), namespace.to_owned())]);
    let mut answers = Vec::new();
    for step in &script.steps {
        let came = ask_until(client, step, &kept)
            .await
            .map_err(|why| failed(&step.request, why))?;
        for (name, pointer) in &step.keep {
            let found = came.body.pointer(pointer).and_then(Value::as_str);
            let found = found.ok_or_else(|| failed(&step.request, format!("nothing at {pointer}: {}", came.body)))?;
            kept.insert(name.clone(), found.to_owned());
        }
        let body = if step.only.is_empty() {
            came.body
        } else {
            let part = |p: &String| (p.clone(), came.body.pointer(p).cloned().unwrap_or_default());
            Value::Object(step.only.iter().map(part).collect())
        };
        answers.push(Answer {
            request: step.request.clone(),
            code: came.code,
            content_type: came.content_type,
            warnings: came.warnings.iter().map(|w| symbols.text(w)).collect(),
            body: symbols.normalise(body),
        });
    }
    let leave = format!("/api/v1/namespaces/{namespace}");
    // Some scripts delete it themselves.
    let _ = exchange(client, Method::DELETE, &leave, &Step::plain(), None).await;
    Ok(Transcript {
        script: script.name.clone(),
        answers,
    })
}

/// Makes the namespace, and waits until what every namespace gets is there, so that it does not show up in the middle of a script.
async fn enter(client: &Client, namespace: &str) -> Result<(), String> {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    let made = exchange(
        client,
        Method::POST,
        "/api/v1/namespaces",
        &Step::plain(),
        Some(object.to_string()),
    )
    .await?;
    if made.code != 201 {
        return Err(format!("{}: {}", made.code, made.body));
    }
    let account = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
    let config = format!("/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt");
    for path in [account, config] {
        let mut attempts = 0;
        while exchange(client, Method::GET, &path, &Step::plain(), None).await?.code != 200 {
            attempts += 1;
            if attempts > ATTEMPTS {
                return Err(format!("{path} does not appear"));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}

/// Installs what scripts rely on: a default storage class, and Flotilla's definitions, which are served afterwards.
pub async fn install_crds(client: &Client) -> Result<(), String> {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "example.com/none",
        "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    });
    // A real cluster has one already.
    let classes = "/apis/storage.k8s.io/v1/storageclasses";
    exchange(client, Method::POST, classes, &Step::plain(), Some(class.to_string())).await?;
    for crd in flotilla_api::crds() {
        let name = crd["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let made = exchange(client, Method::POST, CRDS, &Step::plain(), Some(crd.to_string())).await?;
        if made.code != 201 && made.code != 409 {
            return Err(format!("{name}: {}: {}", made.code, made.body));
        }
        let spec = &crd["spec"];
        let (group, plural) = (spec["group"].as_str(), spec["names"]["plural"].as_str());
        let version = spec["versions"][0]["name"].as_str();
        let (Some(group), Some(plural), Some(version)) = (group, plural, version) else {
            return Err(format!("{name}: incomplete"));
        };
        let path = format!("/apis/{group}/{version}/{plural}");
        let mut attempts = 0;
        while exchange(client, Method::GET, &path, &Step::plain(), None).await?.code != 200 {
            attempts += 1;
            if attempts > ATTEMPTS {
                return Err(format!("{path} is not served"));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}

impl Step {
    fn plain() -> Step {
        Step {
            request: String::new(),
            body: None,
            text: None,
            content_type: None,
            accept: None,
            keep: BTreeMap::new(),
            until: None,
            events: None,
            only: Vec::new(),
        }
    }
}

async fn ask_until(client: &Client, step: &Step, kept: &BTreeMap<String, String>) -> Result<Came, String> {
    let (method, path) = step.request.split_once(' ').ok_or("no method and path")?;
    let method: Method = method.parse().map_err(|_| format!("{method} is no method"))?;
    let path = fill(path, kept).replace(' ', "%20");
    let text = match (&step.body, &step.text) {
        (Some(body), _) => Some(fill(&body.to_string(), kept)),
        (None, text) => text.as_ref().map(|text| fill(text, kept)),
    };
    for _ in 0..ATTEMPTS {
        let came = exchange(client, method.clone(), &path, step, text.clone()).await?;
        let is_reached = match &step.until {
            None => true,
            Some(Until::Code(code)) => came.code == *code,
            Some(Until::Values(values)) => values
                .iter()
                .all(|(pointer, value)| came.body.pointer(pointer).unwrap_or(&Value::Null) == value),
        };
        if is_reached {
            return Ok(came);
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err("did not become as it was waited for".into())
}

/// Longer names first, so that `$uid2` is not taken for `$uid`.
fn fill(text: &str, kept: &BTreeMap<String, String>) -> String {
    kept.iter().rev().fold(text.to_owned(), |text, (name, value)| {
        text.replace(&format!("${name}"), value)
    })
}

async fn exchange(
    client: &Client,
    method: Method,
    path: &str,
    step: &Step,
    text: Option<String>,
) -> Result<Came, String> {
    let accept = step.accept.as_deref().unwrap_or("application/json");
    let mut request = Request::builder().method(method).uri(path).header(ACCEPT, accept);
    if text.is_some() {
        request = request.header(CONTENT_TYPE, step.content_type.as_deref().unwrap_or("application/json"));
    }
    let body = text.map_or_else(Body::empty, |text| Body::from(text.into_bytes()));
    let request = request.body(body).map_err(|e| e.to_string())?;
    let sent = tokio::time::timeout(ANSWER_WITHIN, client.send(request)).await;
    let response = sent.map_err(|_| "no answer")?.map_err(|e| e.to_string())?;
    let header = |name: http::HeaderName| {
        response
            .headers()
            .get(name)
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default()
    };
    let content_type = header(CONTENT_TYPE).split(';').next().unwrap_or_default().to_owned();
    let warnings = response.headers().get_all(WARNING).iter();
    let warnings = warnings.filter_map(|w| w.to_str().ok()).map(str::to_owned).collect();
    let code = response.status().as_u16();
    let body = match step.events.filter(|_| code == 200) {
        Some(count) => read_events(response, count).await?,
        None => {
            let bytes = response.into_body().collect_bytes().await.map_err(|e| e.to_string())?;
            serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes)))
        }
    };
    Ok(Came {
        code,
        content_type,
        warnings,
        body,
    })
}

/// The first events of a watch; fewer if it ends, or stays silent for long.
async fn read_events(response: Response<Body>, count: usize) -> Result<Value, String> {
    let (mut body, mut buffer, mut events) = (response.into_body(), Vec::new(), Vec::new());
    while events.len() < count {
        let piece = match tokio::time::timeout(ANSWER_WITHIN, body.frame()).await {
            Ok(Some(piece)) => piece.map_err(|e| e.to_string())?,
            Ok(None) | Err(_) => break,
        };
        buffer.extend_from_slice(piece.data_ref().map_or(&[][..], |data| data));
        while let Some(end) = buffer.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            events.push(serde_json::from_slice(&line).map_err(|e| format!("a watch brought {line:?}: {e}"))?);
        }
    }
    events.truncate(count);
    Ok(Value::Array(events))
}
