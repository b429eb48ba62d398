//! Requests of the API server as they come over the wire, and their answers. Pure: bytes in, bytes out.
//!
//! Objects stay the JSON that they are, and whatever their depth, nothing here goes down further than a bound. What cannot be read is
//! answered with 400 and a sentence, which the API server treats as a webhook that failed: what happens then is the registration's failure
//! policy, and no pod is refused for it.

mod conversion;
mod object;

use crate::weight;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flotilla_admission::{Memory, Operation, Refusal, Reply, Request, Verdict};
use object::Object;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::borrow::Cow;

/// The only version of each review that is spoken, by the API server of every supported version.
const ADMISSION: &str = "admission.k8s.io/v1";
const CONVERSION: &str = "apiextensions.k8s.io/v1";

/// What a path is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hook {
    /// Defaults of Advanced StatefulSets.
    MutateSets,
    /// Rules of Advanced StatefulSets.
    ValidateSets,
    /// Rules of native StatefulSets.
    ValidateNativeSets,
    /// What is added to pods.
    MutatePods,
    /// Protection from deletion.
    Protect,
    /// Between versions of our kinds.
    Convert,
}

impl Hook {
    /// All of them.
    pub const ALL: [Hook; 6] = [
        Hook::MutateSets,
        Hook::ValidateSets,
        Hook::ValidateNativeSets,
        Hook::MutatePods,
        Hook::Protect,
        Hook::Convert,
    ];

    /// Where it is served.
    pub const fn path(self) -> &'static str {
        match self {
            Hook::MutateSets => "/mutate-apps-kruise-io-statefulset",
            Hook::ValidateSets => "/validate-apps-kruise-io-statefulset",
            Hook::ValidateNativeSets => "/validate-apps-statefulset",
            Hook::MutatePods => "/mutate-pods",
            Hook::Protect => "/protect",
            Hook::Convert => "/convert",
        }
    }

    /// Its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Hook::MutateSets => "mutate-statefulsets",
            Hook::ValidateSets => "validate-statefulsets",
            Hook::ValidateNativeSets => "validate-native-statefulsets",
            Hook::MutatePods => "mutate-pods",
            Hook::Protect => "protect",
            Hook::Convert => "convert",
        }
    }

    /// The one that is served at a path.
    pub fn at(path: &str) -> Option<Hook> {
        Hook::ALL.into_iter().find(|hook| hook.path() == path)
    }
}

/// An answer: the body, and the word under which it is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What is sent.
    pub body: Vec<u8>,
    /// allowed, mutated, denied, converted or unconverted.
    pub verdict: &'static str,
}

/// A body that is no question of the API server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(String);

/// Answers one body.
pub fn answer(hook: Hook, body: &[u8], memory: &dyn Memory) -> Result<Answer, Unreadable> {
    match hook {
        Hook::Convert => conversion::convert(body),
        Hook::MutateSets => admit(body, |request| flotilla_admission::mutate(request, memory)),
        Hook::ValidateSets | Hook::ValidateNativeSets => {
            admit(body, |request| flotilla_admission::validate(request, memory))
        }
        Hook::MutatePods => admit(body, |request| flotilla_admission::mutate_pod(request, memory)),
        Hook::Protect => admit(body, |request| flotilla_admission::protect(request, memory)),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a, R> {
    #[serde(borrow, default)]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    request: Option<R>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Question<'a> {
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(borrow)]
    kind: Kind<'a>,
    #[serde(borrow)]
    operation: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    object: Option<&'a RawValue>,
    #[serde(borrow, default)]
    old_object: Option<&'a RawValue>,
    #[serde(default)]
    dry_run: Option<bool>,
}

#[derive(Deserialize)]
struct Kind<'a> {
    #[serde(borrow, default)]
    group: Cow<'a, str>,
    #[serde(borrow)]
    version: Cow<'a, str>,
    #[serde(borrow, rename = "kind")]
    name: Cow<'a, str>,
}

/// The request of a review of the expected kind.
fn read<'a, R: Deserialize<'a>>(body: &'a [u8], api_version: &str, kind: &str) -> Result<R, Unreadable> {
    let review: Review<'a, R> = serde_json::from_slice(body).map_err(|why| unreadable(kind, &why))?;
    if (review.api_version.as_ref(), review.kind.as_ref()) != (api_version, kind) {
        return Err(Unreadable(format!(
            "a {kind} of {api_version} is answered here, and not a {:?} of {:?}",
            review.kind, review.api_version
        )));
    }
    review
        .request
        .ok_or_else(|| Unreadable(format!("the {kind} holds no request")))
}

fn unreadable(kind: &str, why: &serde_json::Error) -> Unreadable {
    Unreadable(format!(
        "the body is no {kind} that can be read: {why}; the API server asks here"
    ))
}

fn tree(raw: Option<&RawValue>) -> Result<Option<Object<'_>>, Unreadable> {
    raw.map(Object::read)
        .transpose()
        .map_err(|why| unreadable("AdmissionReview", &why))
}

fn admit(body: &[u8], decide: impl FnOnce(&Request<'_>) -> Reply) -> Result<Answer, Unreadable> {
    if weight::is_too_heavy(body) {
        return Err(Unreadable(format!(
            "the AdmissionReview may take more than {} MiB of memory once it is read, and is not: it holds too many values",
            weight::HEAP_BYTES_MAX >> 20
        )));
    }
    let question: Question<'_> = read(body, ADMISSION, "AdmissionReview")?;
    let operation = match question.operation.as_ref() {
        "CREATE" => Operation::Create,
        "UPDATE" => Operation::Update,
        "DELETE" => Operation::Delete,
        other => {
            return Err(Unreadable(format!(
                "the operation {other:?} is not looked at here: CREATE, UPDATE and DELETE are"
            )));
        }
    };
    let (object, old_object) = (tree(question.object)?, tree(question.old_object)?);
    let is_complete = match operation {
        Operation::Create => object.is_some(),
        Operation::Update => object.is_some() && old_object.is_some(),
        Operation::Delete => true,
    };
    if !is_complete {
        return Err(Unreadable(format!(
            "the request to {} holds no object",
            question.operation
        )));
    }
    // What is too deep to be looked at is refused: a 400 would let it through where the registration says Ignore.
    if let Some(path) = object.as_ref().and_then(|object| object.too_deep(old_object.as_ref())) {
        let refusal = Verdict::deny(422, object::too_deep(path));
        return Ok(admission_answer(&question.uid, refusal.into()));
    }
    let reply = decide(&Request {
        uid: &question.uid,
        operation,
        group: &question.kind.group,
        version: &question.kind.version,
        kind: &question.kind.name,
        namespace: &question.namespace,
        name: &question.name,
        object: object.as_ref().map(|object| &object.tree),
        old_object: old_object.as_ref().map(|object| &object.tree),
        dry_run: question.dry_run.unwrap_or(false),
    });
    Ok(admission_answer(&question.uid, reply))
}

fn admission_answer(uid: &str, reply: Reply) -> Answer {
    let mut response = json!({"uid": uid, "allowed": true});
    if !reply.warnings.is_empty() {
        response["warnings"] = json!(reply.warnings);
    }
    let verdict = match reply.verdict {
        Verdict::Allow => "allowed",
        Verdict::Deny(refusal) => {
            response["allowed"] = json!(false);
            response["status"] = status(&refusal);
            "denied"
        }
        Verdict::Mutate(patch) => {
            response["patchType"] = json!("JSONPatch");
            response["patch"] = json!(STANDARD.encode(Value::Array(patch).to_string()));
            "mutated"
        }
    };
    let review = json!({"apiVersion": ADMISSION, "kind": "AdmissionReview", "response": response});
    Answer {
        body: review.to_string().into_bytes(),
        verdict,
    }
}

fn status(refusal: &Refusal) -> Value {
    let reason = match refusal.code {
        403 => "Forbidden",
        409 => "Conflict",
        422 => "Invalid",
        429 => "TooManyRequests",
        _ => "BadRequest",
    };
    let mut status = json!({"status": "Failure", "message": refusal.message, "reason": reason, "code": refusal.code});
    // kubectl and client-go wait so long and try again.
    if matches!(refusal.code, 409 | 429) {
        status["details"] = json!({"retryAfterSeconds": 1});
    }
    status
}

/// A question that every endpoint of ours answers with the same uid, without an object: to find out whether it is there.
pub fn probe(uid: &str) -> Vec<u8> {
    let request = json!({"uid": uid, "desiredAPIVersion": "apps.kruise.io/v1beta1", "objects": []});
    json!({"apiVersion": CONVERSION, "kind": "ConversionReview", "request": request})
        .to_string()
        .into_bytes()
}

/// Whether this is what one of our endpoints answers to [`probe`].
pub fn is_answer_to_probe(uid: &str, body: &[u8]) -> bool {
    let review: Value = serde_json::from_slice(body).unwrap_or_default();
    review["response"]["uid"] == uid && review["response"]["result"]["status"] == "Success"
}

/// How long the API server waits, by the `timeout` of its query, such as `5s` or `1m30s`. `None` if it does not say.
pub fn timeout(query: &str) -> Option<std::time::Duration> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix("timeout="))?;
    let mut millis = 0_u64;
    let mut rest = value;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        let unit_end = rest[digits..]
            .find(|c: char| c.is_ascii_digit())
            .map_or(rest.len(), |end| digits + end);
        let unit = match &rest[digits..unit_end] {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            _ => return None,
        };
        millis = millis.checked_add(number.checked_mul(unit)?)?;
        rest = &rest[unit_end..];
    }
    (millis > 0).then(|| std::time::Duration::from_millis(millis))
}

#[cfg(test)]
mod tests;
