//! Logging of the verbs that run for long.

use crate::args::LogFormat;
use crate::error::Error;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Begins to log to standard error what `filter` lets through.
pub fn start(filter: &str, format: LogFormat) -> Result<(), Error> {
    let directives = EnvFilter::try_new(filter).map_err(|e| {
        Error::NotPossible(format!(
            "failed to read --log {filter:?}: {e}; use a level such as info"
        ))
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(directives)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let done = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    done.map_err(|e| Error::NotPossible(format!("failed to start logging: {e}")))
}
