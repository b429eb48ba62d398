//! A schedule in words.

use super::{Item, Schedule, SetPlan, What};
use crate::asks::Asks;
use crate::environment::Environment;
use std::fmt;

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.at_ms / 1000, self.at_ms % 1000);
        match &self.what {
            What::User(act) => write!(f, "{seconds:4}.{millis:03} s  user {act:?}"),
            What::Fault(fault) => write!(f, "{seconds:4}.{millis:03} s  fault {fault:?}"),
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SetPlan {
            kind,
            replicas,
            start,
            ordered,
            on_delete,
            max_unavailable,
            partition,
            min_ready_s,
            claims,
            retention: (with_set, with_pod),
            in_place,
            more_containers,
            storage,
            asks,
            room,
            environment,
            clones,
        } = &self.set;
        let order = if *ordered { "OrderedReady" } else { "Parallel" };
        write!(f, "{kind:?} set of {replicas} pods from {start} on, {order}, ")?;
        match max_unavailable {
            _ if *on_delete => write!(f, "OnDelete")?,
            Some(max) => write!(f, "maxUnavailable {max}, partition {partition}")?,
            None => write!(f, "no budget named, partition {partition}")?,
        }
        write!(f, ", minReadySeconds {min_ready_s}")?;
        if *claims {
            write!(f, ", claims that go with the set: {with_set}, with the pod: {with_pod}")?;
        }
        if let Some(in_place) = in_place {
            write!(f, ", {in_place:?}")?;
        }
        if *more_containers > 0 {
            write!(f, ", {} containers", more_containers + 1)?;
        }
        if let Some(storage) = storage {
            write!(f, ", {storage:?} growth")?;
        }
        if *asks != Asks::default() {
            write!(f, ", {asks:?}")?;
        }
        if let Some(room) = room {
            write!(f, ", room for {room} pods")?;
        }
        if *environment != Environment::default() {
            write!(f, ", {environment:?}")?;
        }
        if let Some(clones) = clones {
            write!(f, ", {clones:?}")?;
        }
        if self.has_webhook {
            write!(f, ", with webhooks")?;
        }
        let skews = &self.skews_ms[..self.managers];
        writeln!(f, "; {} managers, clocks ahead by {skews:?} ms", self.managers)?;
        self.items.iter().try_for_each(|item| writeln!(f, "{item}"))
    }
}
