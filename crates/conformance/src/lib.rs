//! Whether the simulated API server answers as the real one does.
//!
//! A [`Script`] is a list of HTTP requests, written in `scripts/*.yaml`. [`run`] sends one to whatever a client is connected to, in a
//! namespace of its own, and writes down what came back, with everything replaced by symbols that differs from run to run (UIDs,
//! versions, times, generated names). Two such transcripts are [`compare`]d; differences that are meant are listed in [`ALLOWED`],
//! each with its reason.
//!
//! The answers of the real API server are kept in `recorded/`, so that the simulated one is held to them without a control plane.

mod compare;
mod normal;
mod recorded;
mod run;
mod script;

pub use compare::{ALLOWED, Allowed, Difference, compare};
pub use recorded::{read as recorded, write as record};
pub use run::{Failure, install_crds, run};
pub use script::{Script, Step, scripts};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a server answered to one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The request, as the script has it.
    pub request: String,
    /// The HTTP status code.
    pub code: u16,
    /// The content type, without parameters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub content_type: String,
    /// Headers `Warning`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The body, normalised; for a watch the events.
    pub body: Value,
}

/// What a server answered to a script.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transcript {
    /// The name of the script.
    pub script: String,
    /// Step by step.
    pub answers: Vec<Answer>,
}
