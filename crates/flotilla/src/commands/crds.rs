//! `flotilla crds`: the custom resource definitions.

use crate::args::{CrdsArgs, Output};
use crate::error::{Error, Exit};
use serde_json::json;
use std::io::Write;

/// Prints all definitions: YAML documents for people, a list in JSON for programs.
pub fn run(args: &CrdsArgs) -> Result<Exit, Error> {
    let mut out = std::io::stdout().lock();
    let crds = flotilla_api::crds();
    match args.output {
        Output::Text => {
            for crd in crds {
                let text = serde_saphyr::to_string(&crd)
                    .map_err(|e| Error::NotPossible(format!("failed to write a CRD as YAML: {e}")))?;
                write!(out, "---\n{text}")?;
            }
        }
        Output::Json => writeln!(out, "{:#}", json!({"apiVersion": "v1", "kind": "List", "items": crds}))?,
    }
    Ok(Exit::Done)
}
