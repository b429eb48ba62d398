//! What is looked at before anything is applied.

use crate::cluster::{Cluster, describe};
use crate::error::Error;
use http::Method;
use serde_json::Value;

/// The oldest minor version of Kubernetes 1 that is supported.
const OLDEST_MINOR: u32 = 33;
/// OpenKruise's manager: it controls the same kinds.
const OPENKRUISE: &str = "/apis/apps/v1/namespaces/kruise-system/deployments/kruise-controller-manager";

/// Refuses a server that is too old.
pub(super) async fn server_is_new_enough(cluster: &Cluster) -> Result<(), Error> {
    let sent = cluster.send(Method::GET, "/version", None).await;
    let version = sent.map_err(|e| describe("read the version of the API server".to_owned(), &e))?;
    match minor(&version) {
        Some(minor) if minor < OLDEST_MINOR => Err(Error::NotPossible(format!(
            "this cluster runs Kubernetes 1.{minor}; Flotilla needs 1.{OLDEST_MINOR} or newer"
        ))),
        // A version that we cannot read is no reason to refuse.
        _ => Ok(()),
    }
}

/// Vendors write versions such as "33+".
fn minor(version: &Value) -> Option<u32> {
    let digits = version["minor"]
        .as_str()?
        .trim_end_matches(|c: char| !c.is_ascii_digit());
    digits.parse().ok()
}

/// Two managers on the same sets would work against each other.
pub(super) async fn nobody_else_controls_our_kinds(cluster: &Cluster) -> Result<(), Error> {
    let found = cluster.get_at(OPENKRUISE, "look whether OpenKruise runs").await?;
    let wanted = found.map_or(0, |deployment| deployment["spec"]["replicas"].as_i64().unwrap_or(1));
    if wanted == 0 {
        return Ok(());
    }
    let why = "OpenKruise's manager runs in this cluster and controls the same sets; two would work against each other. Stop it first: \
               kubectl -n kruise-system scale deployment/kruise-controller-manager --replicas=0";
    Err(Error::NotPossible(why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn versions_of_vendors_are_read() {
        assert_eq!(minor(&json!({"minor": "36"})), Some(36));
        assert_eq!(minor(&json!({"minor": "33+"})), Some(33));
        assert_eq!(minor(&json!({"minor": ""})), None);
    }
}
