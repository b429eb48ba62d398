//! Who leads, as the lease says.

use crate::args::LeaseArgs;
use crate::cluster::Cluster;
use crate::error::Error;
use flotilla_model::{ObjectKey, Resource, Timestamp};
use flotilla_why::Leader;

/// Reads the lease. Whoever may read a set need not be allowed to read it, and gets an answer all the same.
pub(crate) async fn leader(cluster: &Cluster, args: &LeaseArgs, now: Timestamp) -> Result<Leader, Error> {
    let key = ObjectKey::new(args.lease_namespace.as_str(), args.lease_name.as_str());
    match cluster.get(Resource::Leases, &key).await {
        Ok(lease) => Ok(lease.map_or_else(Leader::default, |lease| Leader::of(&lease, now))),
        Err(Error::Refused { .. }) => Ok(Leader {
            holder: Some("unknown: no permission to read the lease".to_owned()),
            ..Leader::default()
        }),
        Err(error) => Err(error),
    }
}
