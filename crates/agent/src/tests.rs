//! Tables: pods and what the runtime tells of them, and what is done.

mod deciding;
mod hooks;
mod relevance;

use crate::{Container, Pod, State, Told};
use flotilla_model::containers_meta::{self, ContainerMeta};
use flotilla_model::{ObjectKey, Timestamp, Uid};

/// A moment.
fn at(seconds: i64) -> Timestamp {
    Timestamp::from_seconds(1_000 + seconds)
}

/// A pod out of service with container `main`, which has one variable `ROLE` that ought to be `role`.
fn pod(role: &str) -> Pod {
    Pod {
        key: ObjectKey::new("ns", "web-0"),
        uid: Uid::new("u"),
        version: 7,
        is_concerned: true,
        is_out_of_service: true,
        revision: "new".to_owned(),
        ip: "10.0.0.9".to_owned(),
        noted: None,
        containers: vec![Container {
            name: "main".to_owned(),
            image: "app:v1".to_owned(),
            environment: vec![("ROLE".to_owned(), role.to_owned())],
            always_restarts: true,
            id: "containerd://1".to_owned(),
        }],
    }
}

/// The container `main` of [`pod`], made from this image.
fn told(id: &str, image: &str) -> Told {
    let hash = format!("{:x}", containers_meta::plain_hash("main", image));
    let notes = [
        ("io.kubernetes.container.hash", hash.as_str()),
        ("io.kubernetes.container.restartCount", "2"),
    ];
    Told {
        name: "main".to_owned(),
        id: id.to_owned(),
        created_at: 5,
        state: State::Running,
        annotations: notes.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
    }
}

/// What is noted of container `main`.
fn entry(id: &str, role: Option<&str>) -> ContainerMeta {
    ContainerMeta {
        name: "main".to_owned(),
        container_id: id.to_owned(),
        restart_count: 2,
        plain_hash: Some(containers_meta::plain_hash("main", "app:v1")),
        env_hash: role.map(|role| containers_meta::env_hash([("ROLE", role)])),
    }
}

/// A pod on which this is noted.
fn noted(mut pod: Pod, entries: &[ContainerMeta]) -> Pod {
    pod.noted = Some(containers_meta::to_text(entries));
    pod
}
