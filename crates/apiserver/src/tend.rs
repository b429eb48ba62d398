//! What controllers of the control plane do close to the API server: every namespace gets its service account, namespaces under deletion
//! are emptied, claims that nobody uses any more are let go, quotas and disruption budgets are counted.

use crate::rules::{established, recount_budgets, recount_quotas};
use crate::store::{Actor, DeleteOptions, Entry, Server, StoreId, Stored, key_of};
use flotilla_engine::wire::Object;
use flotilla_model::{ObjectKey, Resource};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Keeps a claim while a pod uses it.
const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";

/// Follows changes, and remembers what is not finished.
#[derive(Debug, Default)]
pub struct Caretaker {
    /// Namespaces under deletion.
    leaving: BTreeSet<String>,
    /// Claims under deletion.
    leaving_claims: BTreeSet<ObjectKey>,
}

impl Caretaker {
    /// Does what follows from these changes. What it does is to be read from the journal again.
    pub fn tend(&mut self, server: &mut Server, news: &[Entry]) {
        let namespaces = server.types.builtin("", "namespaces");
        let quotas = server.types.builtin("", "resourcequotas");
        let budgets = server.types.builtin("policy", "poddisruptionbudgets");
        let definitions = server
            .types
            .builtin("apiextensions.k8s.io", "customresourcedefinitions");
        for entry in news {
            let is_going = entry.after.as_ref().is_some_and(is_under_deletion);
            if entry.resource == namespaces {
                match (&entry.before, &entry.after) {
                    (_, Some(_)) if is_going => drop(self.leaving.insert(entry.key.name.to_string())),
                    (None, Some(_)) => furnish(server, &entry.key.name),
                    (_, None) => drop(self.leaving.remove(entry.key.name.as_str())),
                    _ => {}
                }
            }
            if entry.resource == definitions {
                tend_definition(server, &entry.key);
            }
            if entry.resource == Resource::Claims && is_going {
                self.leaving_claims.insert(entry.key.clone());
            }
        }
        self.release_claims(server);
        for namespace in self.leaving.clone() {
            empty(server, &namespace);
        }
        if !news.is_empty() && server.count(quotas, None) > 0 {
            recount_quotas(server);
        }
        if !news.is_empty() && server.count(budgets, None) > 0 {
            recount_budgets(server);
        }
    }

    fn release_claims(&mut self, server: &mut Server) {
        for key in self.leaving_claims.clone() {
            let is_used = server
                .after(Resource::Pods, Some(&key.namespace), None)
                .any(|(_, pod)| uses(pod, &key.name));
            if !is_used {
                self.leaving_claims.remove(&key);
                if server.get(Resource::Claims, &key).is_some() {
                    server.drop_finalizer(Resource::Claims, &key, CLAIM_PROTECTION);
                }
            }
        }
    }
}

fn is_under_deletion(stored: &Stored) -> bool {
    match &stored.object {
        Some(object) => object.meta().deleted.is_some(),
        None => stored.value()["metadata"].get("deletionTimestamp").is_some(),
    }
}

/// Whether a pod that has not ended uses a claim.
fn uses(pod: &Stored, claim: &str) -> bool {
    match &pod.object {
        Some(Object::Pod(pod)) => !pod.is_terminal() && pod.claims().any(|(_, name)| name == claim),
        _ => false,
    }
}

/// What every namespace has.
fn furnish(server: &mut Server, namespace: &str) {
    let accounts = server.types.builtin("", "serviceaccounts");
    let configs = server.types.builtin("", "configmaps");
    for (store, name, more) in [
        (accounts, "default", json!({})),
        (configs, "kube-root-ca.crt", json!({"data": {"ca.crt": ""}})),
    ] {
        let mut object = more;
        object["metadata"] = json!({"name": name, "namespace": namespace});
        // A namespace that comes back may have it still.
        let _ = server.create(Actor::System, store, object);
    }
}

/// Deletes what is in a namespace; when nothing is left, the namespace goes.
fn empty(server: &mut Server, namespace: &str) {
    let namespaces = server.types.builtin("", "namespaces");
    let stores: BTreeSet<StoreId> = server
        .types
        .all()
        .iter()
        .filter(|t| t.is_namespaced && t.is_stored())
        .map(|t| t.store)
        .collect();
    let mut is_empty = true;
    for store in stores {
        let keys: Vec<ObjectKey> = server
            .after(store, Some(namespace), None)
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            if !server.get(store, &key).is_some_and(is_under_deletion) {
                // It is there, and there are no preconditions.
                let _ = server.delete(Actor::System, store, &key, &DeleteOptions::default());
            }
            is_empty &= server.get(store, &key).is_none();
        }
    }
    if is_empty {
        let key = ObjectKey::new("", namespace);
        // It is there.
        let _ = server.amend(namespaces, &key, |object| {
            object["spec"].as_object_mut().map(|spec| spec.remove("finalizers"));
        });
    }
}

/// Keeps a definition until no object of its kind is left.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Serves a definition that is new, and clears away one that goes.
fn tend_definition(server: &mut Server, key: &ObjectKey) {
    let definitions = server
        .types
        .builtin("apiextensions.k8s.io", "customresourcedefinitions");
    let Some(crd) = server.get(definitions, key).map(Stored::value) else {
        return;
    };
    if crd["metadata"].get("deletionTimestamp").is_some() {
        clear_definition(server, &crd);
        return server.drop_finalizer(definitions, key, CLEANUP);
    }
    if crd["status"]["conditions"].is_null() {
        let status = established(&crd, &server.time());
        // It is there.
        let _ = server.amend(definitions, key, |crd| {
            crd["status"] = status;
            crd["metadata"]["finalizers"] = json!([CLEANUP]);
        });
        server.define(&crd);
    }
}

/// A definition goes, and with it all objects of its kind.
fn clear_definition(server: &mut Server, crd: &Value) {
    let text = |pointer: &str| crd.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (group, kind) = (text("/spec/group"), text("/spec/names/kind"));
    if let Some(store) = server.types.store_of_kind(group, kind) {
        let keys: Vec<ObjectKey> = server.all(store).map(|s| key_of(&s.value())).collect();
        for key in keys {
            // It is there, and there are no preconditions.
            let _ = server.delete(Actor::System, store, &key, &DeleteOptions::default());
        }
    }
    server.undefine(crd);
}
