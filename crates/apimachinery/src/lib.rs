//! The rules of the Kubernetes API that concern JSON objects alone.
//!
//! What an API server says about an object without looking at anything else: whether a selector matches it, what a patch makes of it,
//! which of its fields are unknown or wrong, who manages which field, and how it looks as a row of a table. Objects are
//! [`serde_json::Value`]s; types are read from OpenAPI documents and from custom resource definitions.
//!
//! Nothing here stores, waits, logs or tells the time: a caller who needs a timestamp gives it. Refusals are [`status::Status`]es in the
//! words of the real API server (Kubernetes 1.36), so that clients which look at them behave alike.

pub mod apply;
pub mod field;
pub mod names;
pub mod openapi;
pub mod patch;
pub mod pod;
pub mod schema;
pub mod selector;
pub mod status;
pub mod table;
