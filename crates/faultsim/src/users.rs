//! What users do to the set and its pods, at any moment.

use crate::environment::{drop_variable, set_variable};
use crate::event::Event;
use crate::run::World;
use crate::schedule::{Orphaning, Refusal, UserAct};
use crate::storage::Storage;
use crate::tenants;
use flotilla_engine::wire::Object;
use flotilla_model::{ObjectKey, PatchKind, PodRecord, Resource, SetKind};
use flotilla_sim::server::{Actor, DeleteOptions, Propagation};
use serde_json::{Value, json};
use std::sync::Arc;

/// A volume that no template has.
const NO_VOLUME: &str = "nowhere";
/// A variable that the policy of the cluster forbids.
pub(crate) const FORBIDDEN_VARIABLE: &str = "PRIVILEGED";

/// Gives a container what is refused, or takes it away.
fn spoil(container: &mut Value, refusal: Refusal) {
    match refusal {
        Refusal::Mount => container["volumeMounts"] = json!([{"name": NO_VOLUME, "mountPath": "/nowhere"}]),
        Refusal::Policy => set_variable(container, FORBIDDEN_VARIABLE, "yes"),
        Refusal::Mended => {
            if let Some(fields) = container.as_object_mut() {
                fields.remove("volumeMounts");
            }
            drop_variable(container, FORBIDDEN_VARIABLE);
        }
    }
}

impl World {
    /// Where the set is.
    pub(crate) fn set_key() -> ObjectKey {
        ObjectKey::new("ns", "web")
    }

    pub(crate) fn edit(&mut self, resource: Resource, key: &ObjectKey, body: &Value) {
        if self.schedule.has_webhook && resource == self.schedule.set.kind.resource() {
            return self.edit_set(body);
        }
        // An edit of what is not there, or is refused, is an edit less.
        let _ = self
            .cluster
            .server
            .patch(Actor::User, resource, key, (PatchKind::Merge, body));
    }

    /// A user acts.
    pub(crate) fn act(&mut self, act: &UserAct) {
        let set = self.schedule.set.kind.resource();
        let pod = |ordinal: &i64| self.pod_key(*ordinal);
        match act {
            UserAct::Image(number, good) => {
                let image = match (good, number) {
                    // A new tag of the content of v2.
                    (true, 4) => "app:v2-same".to_owned(),
                    (good, number) => format!("{}:v{number}", if *good { "app" } else { "bad" }),
                };
                self.change_template(|container| container["image"] = json!(image));
            }
            UserAct::Cpu(millis) => {
                let cpu = format!("{millis}m");
                self.change_template(|container| container["resources"] = json!({"requests": {"cpu": cpu}}));
            }
            UserAct::Template(refusal) => self.change_template(|container| spoil(container, *refusal)),
            UserAct::MindHooks => self.users_mind_hooks(),
            UserAct::Scale(replicas) => {
                self.edit(set, &Self::set_key(), &json!({"spec": {"replicas": replicas}}));
            }
            UserAct::Partition(partition) if !self.schedule.set.on_delete => {
                let strategy = json!({"rollingUpdate": {"partition": partition}});
                self.edit(set, &Self::set_key(), &json!({"spec": {"updateStrategy": strategy}}));
            }
            UserAct::Partition(_) => {}
            UserAct::DeletePod(ordinal, by_force) => {
                let options = DeleteOptions {
                    grace_seconds: by_force.then_some(0),
                    ..DeleteOptions::default()
                };
                // Deleting what is not there changes nothing.
                let _ = self
                    .cluster
                    .server
                    .delete(Actor::User, Resource::Pods, &pod(ordinal), &options);
            }
            UserAct::Relabel(ordinal, away) => {
                let app = if *away { "stray" } else { "web" };
                self.edit(
                    Resource::Pods,
                    &pod(ordinal),
                    &json!({"metadata": {"labels": {"app": app}}}),
                );
            }
            UserAct::Disown(ordinal) => {
                self.edit(
                    Resource::Pods,
                    &pod(ordinal),
                    &json!({"metadata": {"ownerReferences": null}}),
                );
            }
            UserAct::ClaimLabels(act) => self.label_claim_templates(*act),
            UserAct::Environment(act) => self.change_environment(*act),
            UserAct::Claim(act) => self.act_on_claims(*act),
            UserAct::Huge(act) => self.write_huge(*act),
            UserAct::Containers(edits) => self.edit_containers(edits),
            UserAct::ClaimTemplate(act) => self.change_claim_templates(*act),
            UserAct::Storage(gi) => self.ask_for_storage(*gi),
            UserAct::ForgetClaims => self.forget_claims(),
            UserAct::MarkClaim(ordinal) => self.mark_claim(*ordinal),
            UserAct::Ask(act) => self.ask(act),
            UserAct::Clone(act) => self.act_on_clones(act),
            UserAct::DeleteSet(orphaning) => self.delete_set(*orphaning),
            UserAct::NameOwner(ordinal) => self.name_owner(*ordinal),
            UserAct::Touch(resource, ordinal) => self.touch(*resource, *ordinal),
        }
    }

    /// Whether Flotilla's webhooks have to refuse the set that a user stores: it is about to get a template of which no API server accepts a
    /// pod.
    pub(crate) fn breaks_template(old: Option<&Value>, new: &Value) -> bool {
        let mounts = |set: &Value| set.pointer("/spec/template/spec/containers/0/volumeMounts").cloned();
        mounts(new).is_some_and(|mounts| mounts[0]["name"] == NO_VOLUME) && old.and_then(mounts) != mounts(new)
    }

    pub(crate) fn change_template(&mut self, change: impl Fn(&mut Value)) {
        let containers = self.changed_containers(change);
        self.store_containers(&containers);
    }

    fn delete_set(&mut self, orphaning: Orphaning) {
        let propagation = match orphaning {
            Orphaning::Background => Propagation::Background,
            Orphaning::Foreground => Propagation::Foreground,
            Orphaning::Orphan => Propagation::Orphan,
        };
        let options = DeleteOptions {
            propagation: Some(propagation),
            ..DeleteOptions::default()
        };
        let set = self.schedule.set.kind.resource();
        // Deleting what is not there changes nothing.
        let _ = self.cluster.server.delete(Actor::User, set, &Self::set_key(), &options);
        let delay_ms = self.rng.u64(50..8_000);
        self.plan(delay_ms, Event::CreateSet);
    }

    /// Creates the set; once more later, if the old one is still there.
    pub(crate) fn create_set(&mut self) {
        let set = self.schedule.set.kind.resource();
        if let Some(old) = self.cluster.server.get(set, &Self::set_key()) {
            let is_going = old.object.as_ref().is_some_and(|o| o.meta().deleted.is_some());
            if is_going {
                self.plan(500, Event::CreateSet);
            }
            return;
        }
        self.store_set(None, self.schedule.set.manifest());
    }

    /// Changes nothing but the version of an object.
    fn touch(&mut self, resource: Resource, ordinal: i64) {
        let index = usize::try_from(ordinal).unwrap_or(0);
        let all: Vec<ObjectKey> = tenants::all(&self.cluster.server, resource)
            .filter_map(|s| s.object.as_ref().map(|o| o.meta().key.clone()))
            .collect();
        let Some(key) = all.get(index % all.len().max(1)) else {
            return;
        };
        let stamp = self.now_ms.to_string();
        self.edit(resource, key, &json!({"metadata": {"annotations": {"touched": stamp}}}));
    }

    /// At the end users put right what they have put wrong: the set exists, asks for an image that there is, and no pod is kept out.
    pub(crate) fn users_calm_down(&mut self) {
        self.create_set();
        if !self.schedule.mends_as_told {
            self.users_mend_images();
        }
        self.users_take_growth_back();
        self.users_mend_what_they_ask();
        self.users_take_huge_numbers_back();
        if !self.schedule.mends_as_told {
            self.users_mend_what_is_refused();
        }
        if self.schedule.set.kind == SetKind::Clone {
            self.users_of_clones_calm_down();
        }
        for (key, _) in self.pods_where(|pod| pod.label("app") != Some("web")) {
            self.edit(Resource::Pods, &key, &json!({"metadata": {"labels": {"app": "web"}}}));
        }
    }

    /// Users ask for images that can be pulled.
    pub(crate) fn users_mend_images(&mut self) {
        if self.schedule.has_bad_images() {
            self.change_template(|container| container["image"] = json!("app:v9"));
            self.users_mend_containers();
            self.act(&UserAct::Partition(0));
        }
    }

    /// Users ask for pods that the API server accepts.
    pub(crate) fn users_mend_what_is_refused(&mut self) {
        if self.schedule.has_refused_templates() {
            self.change_template(|container| spoil(container, Refusal::Mended));
            // What the partition keeps may be the revision that is refused.
            self.act(&UserAct::Partition(0));
        }
    }

    /// Under InPlaceOnly a pod that was adopted without its revision, which went with a set of former times, can neither be changed nor
    /// made again (STS-4.1 and STS-4.2): users are told to delete it. They believe no other reason.
    pub(crate) fn users_make_anew_what_cannot_change(&mut self) {
        self.users_restart_what_waits_for_it();
        if !self.schedule.set.in_place.is_some_and(|in_place| in_place.only) {
            return;
        }
        let told = self.what_cannot_change();
        let revision_is_gone = |pod: &PodRecord| {
            let revision = pod.revision().map(|name| pod.meta.key.sibling(name));
            revision.is_none_or(|key| self.cluster.server.get(Resource::Revisions, &key).is_none())
        };
        let is_told = |pod: &PodRecord| told.contains(&format!("{}: ", pod.name()));
        let has_to_go = |pod: &PodRecord| revision_is_gone(pod) || self.waits_for_restart(pod);
        let lost = self.pods_where(|pod| has_to_go(pod) && is_told(pod) && !pod.is_terminating());
        for (key, _) in lost {
            // It was there a moment ago.
            let _ = self
                .cluster
                .server
                .delete(Actor::User, Resource::Pods, &key, &DeleteOptions::default());
        }
    }

    /// Who is told that a pod will be made again for its file system in some minutes may do it at once; who is told that a claim goes with its
    /// pod, and does not grow any more, has to.
    fn users_restart_what_waits_for_it(&mut self) {
        let is_offline = self.schedule.set.storage == Some(Storage::Offline);
        let set = self
            .cluster
            .server
            .get(self.schedule.set.kind.resource(), &Self::set_key());
        let conditions = set.and_then(|s| s.value().pointer("/status/conditions").cloned());
        let mut conditions = conditions.iter().filter_map(Value::as_array).flatten();
        let told = conditions.find(|c| c["type"] == "Progressing" && c["reason"] == "RolloutBlocked");
        let told = told.and_then(|c| c["message"].as_str()).unwrap_or_default().to_owned();
        let is_told = |pod: &PodRecord, what: &str| told.contains(&format!("data-{}: {what}", pod.name()));
        let waiting = self.pods_where(|pod| {
            let waits = is_offline && is_told(pod, "its volume has grown") && self.waits_for_restart(pod);
            (waits || is_told(pod, "the claim is being deleted")) && !pod.is_terminating()
        });
        for (key, _) in waiting {
            // It was there a moment ago.
            let _ = self
                .cluster
                .server
                .delete(Actor::User, Resource::Pods, &key, &DeleteOptions::default());
        }
    }

    /// What the set says of pods that it cannot change.
    fn what_cannot_change(&self) -> String {
        let set = self
            .cluster
            .server
            .get(self.schedule.set.kind.resource(), &Self::set_key());
        let conditions = set.and_then(|s| s.value().pointer("/status/conditions").cloned());
        let conditions = conditions.iter().filter_map(Value::as_array).flatten();
        let kind = match self.schedule.set.kind {
            SetKind::Clone => "FailedUpdate",
            SetKind::Native | SetKind::Advanced => "FailedUpdatePod",
        };
        let says_so = |c: &&Value| c["type"] == kind && c["status"] == "True" && c["reason"] == "InPlaceNotPossible";
        let messages = conditions.filter(says_so).filter_map(|c| c["message"].as_str());
        messages.collect()
    }

    fn pods_where(&self, fits: impl Fn(&PodRecord) -> bool) -> Vec<(ObjectKey, Arc<PodRecord>)> {
        let pods = tenants::all(&self.cluster.server, Resource::Pods).filter_map(|s| match &s.object {
            Some(Object::Pod(pod)) if fits(pod) => Some((pod.meta.key.clone(), pod.clone())),
            _ => None,
        });
        pods.collect()
    }
}
