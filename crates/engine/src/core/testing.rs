//! Fixtures: records that say only what a test is about.

use flotilla_model::records::{Phase, ReadyCondition, VolumeClaim};
use flotilla_model::{Meta, ObjectKey, OwnerRef, PodRecord, Timestamp, Uid};
use std::sync::Arc;

/// A pod in namespace "ns"; its UID is its name unless told otherwise.
#[derive(Clone)]
pub(crate) struct Pod(PodRecord);

pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey::new("ns", name)
}

pub(crate) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

pub(crate) fn owner(uid: &str) -> OwnerRef {
    OwnerRef {
        api_version: "apps/v1".into(),
        kind: "StatefulSet".into(),
        name: "web".into(),
        uid: Uid::new(uid),
        controller: true,
        block_owner_deletion: true,
    }
}

pub(crate) fn meta(name: &str, version: u64) -> Meta {
    Meta {
        key: key(name),
        uid: Uid::new(name),
        resource_version: version,
        created: Timestamp::default(),
        deleted: None,
        labels: flotilla_model::Labels::default(),
        owners: None,
    }
}

pub(crate) fn pod(name: &str, version: u64) -> Pod {
    Pod(PodRecord {
        meta: meta(name, version),
        phase: Phase::Pending,
        ready: ReadyCondition::default(),
        has_been_ready: false,
        has_name_label: true,
        has_index_label: true,
        has_instance_label: false,
        node: None,
        volumes: None,
        trouble: None,
        detail: None,
    })
}

impl Pod {
    pub(crate) fn uid(mut self, uid: &str) -> Self {
        self.0.meta.uid = Uid::new(uid);
        self
    }

    pub(crate) fn owned_by(mut self, uid: &str) -> Self {
        self.0.meta.owners = Some(Arc::new(vec![owner(uid)]));
        self
    }

    pub(crate) fn mounting(mut self, claims: &[&str]) -> Self {
        let volume = |claim: &&str| VolumeClaim {
            volume: "data".into(),
            claim: Some((*claim).into()),
        };
        self.0.volumes = Some(Arc::new(claims.iter().map(volume).collect()));
        self
    }

    pub(crate) fn running(mut self) -> Self {
        self.0.phase = Phase::Running;
        self
    }

    pub(crate) fn record(self) -> Arc<PodRecord> {
        Arc::new(self.0)
    }
}
