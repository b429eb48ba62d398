//! `flotilla crds`: the custom resource definitions as YAML.

use crate::error::{Error, Exit};
use std::io::Write;

/// Prints all definitions.
pub fn run() -> Result<Exit, Error> {
    let mut out = std::io::stdout().lock();
    for crd in flotilla_api::crds() {
        let text = serde_saphyr::to_string(&crd).map_err(|e| Error::NotPossible(format!("failed to write a CRD as YAML: {e}")))?;
        write!(out, "---\n{text}")?;
    }
    Ok(Exit::Done)
}
