//! Certificates given from outside.

use crate::certificates::Stored;
use std::path::Path;

/// Reads `tls.crt`, `tls.key` and `ca.crt` anew. While somebody replaces them they may not belong together; the next look sees that
/// they do.
pub(super) async fn read(directory: &Path) -> Result<Stored, String> {
    let text = async |name: &str| {
        let path = directory.join(name);
        tokio::fs::read_to_string(&path)
            .await
            .map_err(|why| format!("failed to read {} of --tls-dir: {why}", path.display()))
    };
    Ok(Stored {
        authorities: text("ca.crt").await?,
        serving: text("tls.crt").await?,
        serving_key: text("tls.key").await?,
        ..Stored::default()
    })
}
