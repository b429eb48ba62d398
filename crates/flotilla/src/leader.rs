//! Who leads, as the lease says.

use crate::args::LeaseArgs;
use crate::cluster::Cluster;
use crate::error::Error;
use flotilla_model::{ObjectKey, Resource, Timestamp};
use flotilla_why::Leader;

/// Reads the lease. Whoever may read a set need not be allowed to read it, and an answer is worth more than none: whatever keeps the lease from being
/// read is said in it.
pub(crate) async fn leader(cluster: &Cluster, args: &LeaseArgs, now: Timestamp) -> Leader {
    let key = ObjectKey::new(args.lease_namespace.as_str(), args.lease_name.as_str());
    match cluster.get(Resource::Leases, &key).await {
        Ok(lease) => lease.map_or_else(Leader::default, |lease| Leader::of(&lease, now)),
        Err(error) => Leader::unread(&unread(&error)),
    }
}

/// Why the lease could not be read. What is no lack of a right may be over when somebody asks again.
fn unread(error: &Error) -> String {
    match error {
        Error::Refused { code: 403, message, .. } => message.clone(),
        Error::Refused { message, .. } => format!("{message}; ask again"),
        other => format!("{other}; ask again"),
    }
}
