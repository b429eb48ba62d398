//! In which version a kind is served that not every API server has in ours.
//!
//! The watch finds out: a version that the server does not know is tried in the other spelling before the kind counts as missing, again
//! and again, as definitions come and go. Requests that write use what the watch has found.

use flotilla_model::{Body, Command, Resource};
use http::{Request, Uri};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What was found; shared by watches and requests.
#[derive(Clone, Debug, Default)]
pub struct Versions {
    /// Optional kinds are there in their older version.
    is_older: Arc<AtomicBool>,
}

impl Versions {
    /// The version of `resource` to write where ours stands; `None` if it is ours.
    fn other(&self, resource: Resource) -> Option<&'static str> {
        resource
            .older_version()
            .filter(|_| self.is_older.load(Ordering::Relaxed))
    }

    /// Goes on to the other version of `resource`; whether there is one.
    pub(super) fn turn(&self, resource: Resource) -> bool {
        let has_other = resource.older_version().is_some();
        if has_other {
            self.is_older.fetch_xor(true, Ordering::Relaxed);
        }
        has_other
    }

    /// A path of `resource`, as the server has it.
    pub(super) fn path(&self, resource: Resource, path: String) -> String {
        match self.other(resource) {
            Some(other) => path.replacen(resource.api_version(), other, 1),
            None => path,
        }
    }

    /// A command whose object names the version that the server has.
    pub(super) fn command(&self, mut command: Command) -> Command {
        if let Command::Create { resource, body, .. } = &mut command
            && let Some(other) = self.other(*resource)
        {
            let mut object = body.render();
            object["apiVersion"] = Value::from(other);
            *body = Body::Json(Arc::new(object));
        }
        command
    }

    /// A request for an object of `resource`, sent to where the server has it.
    pub(super) fn request<B>(&self, resource: Resource, mut request: Request<B>) -> Result<Request<B>, String> {
        if self.other(resource).is_some() {
            let path = self.path(resource, request.uri().to_string());
            *request.uri_mut() = path.parse::<Uri>().map_err(|e| e.to_string())?;
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flotilla_model::{ObjectKey, Report};
    use serde_json::json;

    fn create(resource: Resource) -> Command {
        Command::Create {
            resource,
            key: ObjectKey::new("ns", "job"),
            body: Body::Json(Arc::new(json!({"apiVersion": resource.api_version()}))),
            exists_is_fine: true,
            guard: None,
            report: Report::Silent,
        }
    }

    #[test]
    fn sts_5_1_jobs_are_written_in_the_version_that_is_served() {
        let versions = Versions::default();
        for (resource, older) in [(Resource::ImagePullJobs, "v1alpha1"), (Resource::CloneSets, "v1beta1")] {
            for turned in [false, true] {
                let version = if turned { older } else { "v1beta1" };
                let path = resource.collection_path(Some("ns"));
                let expected = path.replace("v1beta1", version);
                assert_eq!(versions.path(resource, path.clone()), expected);
                let sent = versions
                    .request(resource, Request::post(path).body(()).unwrap())
                    .unwrap();
                assert_eq!(sent.uri().to_string(), expected);
                let Command::Create { body, .. } = versions.command(create(resource)) else {
                    panic!("a creation");
                };
                assert_eq!(body.render()["apiVersion"], format!("apps.kruise.io/{version}"));
                assert!(
                    !turned || resource == Resource::CloneSets || versions.turn(resource),
                    "and back"
                );
                if !turned {
                    versions.turn(Resource::ImagePullJobs);
                }
            }
            assert!(!versions.turn(Resource::CloneSets));
        }
    }
}
