//! Claims of new pods, and what these rest on.

use super::{CLAIM, Found, STORAGE, makes_pods};
use crate::report::{Action, ClaimAction, SetPlan};
use crate::state::{State, VOLUMES, is_default_class, list};
use flotilla_api::names::NO_PROVISIONER;
use flotilla_model::records::storage_class_of;
use serde_json::Value;
use std::collections::BTreeSet;

/// Whether a claim is filled from another of its namespace.
pub(super) fn is_claim_here(source: &Value) -> bool {
    source["kind"] == "PersistentVolumeClaim" && source["namespace"].as_str().is_none_or(str::is_empty)
}

/// Claims from which claims that are made are filled.
pub(super) fn sources_of<'s>(claims: impl Iterator<Item = &'s Value>) -> impl Iterator<Item = &'s str> {
    let sources = claims.flat_map(|claim| [&claim["spec"]["dataSourceRef"], &claim["spec"]["dataSource"]]);
    sources
        .filter(|source| is_claim_here(source))
        .filter_map(|source| source["name"].as_str())
}

/// Claims that are there, and that new pods of the set get.
pub(super) fn own_claims<'s>(state: &'s State, set: &SetPlan, spec: &Value) -> impl Iterator<Item = &'s Value> {
    let templates: Vec<&str> = list(&spec["volumeClaimTemplates"])
        .filter_map(|template| template["metadata"]["name"].as_str())
        .collect();
    let made = set
        .steps()
        .filter(|step| matches!(step.action, Action::Create | Action::Replace));
    let mut names: BTreeSet<String> = made
        .flat_map(|step| templates.iter().map(move |template| format!("{template}-{}", step.pod)))
        .collect();
    let by_name = list(&spec["template"]["spec"]["volumes"])
        .filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str());
    names.extend(by_name.map(str::to_owned));
    let namespace = set.namespace.clone();
    state.all(CLAIM.group, CLAIM.resource).filter(move |claim| {
        let meta = &claim["metadata"];
        meta["namespace"] == namespace.as_str() && meta["name"].as_str().is_some_and(|name| names.contains(name))
    })
}

/// What is said of claims for whose volumes somebody has to see to: those of no class, and of classes that make none.
pub(super) fn without_class(state: &State, set: &SetPlan, spec: &Value, found: &mut Found) {
    let is_unread = |kind: (&str, &str)| state.is_unread(kind, None);
    let classes = || state.all(STORAGE.group, STORAGE.resource);
    let has_default = classes().any(is_default_class);
    let makes_none =
        |name: &str| classes().any(|class| class["metadata"]["name"] == name && class["provisioner"] == NO_PROVISIONER);
    for (whose, claim) in claims_to_come(state, set, spec) {
        let of = |what: &str| format!("{} in namespace {}: {whose} {what}", set.set, set.namespace);
        let class = storage_class_of(claim);
        if claim["status"]["phase"] == "Lost" {
            found.missing.push(of("have lost their volumes"));
            continue;
        }
        let volume = claim["spec"]["volumeName"].as_str().filter(|volume| !volume.is_empty());
        if let Some(volume) = volume {
            let is_there = state.all("", VOLUMES).any(|known| known["metadata"]["name"] == volume);
            if is_unread(("", VOLUMES)) {
                found.unread.push(of(&format!(
                    "name volume {volume}, which could not be looked up; without it new pods do not come up"
                )));
            } else if !is_there {
                found
                    .missing
                    .push(of(&format!("name volume {volume}, which was not found")));
            }
            continue;
        }
        if class.is_none() && has_default {
            continue;
        }
        if class.is_none() && is_unread((STORAGE.group, STORAGE.resource)) {
            found.unread.push(of(
                "name no storage class, and whether there is a default one could not be looked up; without it new pods do not come up",
            ));
            continue;
        }
        let words = match class {
            None => "name no storage class, and a default one was not found".to_owned(),
            Some("") => "name the class \"\"".to_owned(),
            Some(name) if makes_none(name) => format!("are of storage class {name}, which makes none"),
            Some(_) => continue,
        };
        let is_free = |volume: &Value| {
            let is_of_class = storage_class_of(volume).unwrap_or_default() == class.unwrap_or_default();
            // One that is reserved for a claim is for no other.
            let is_reserved = volume["spec"]["claimRef"].is_object();
            volume["status"]["phase"] == "Available" && !is_reserved && is_of_class
        };
        let words = |what: &str| of(&format!("{words}, so that they {what}"));
        if is_unread(("", VOLUMES)) {
            found.unread.push(words(
                "take volumes which somebody provides, and these could not be looked up; without them new pods do not come up",
            ));
        } else if state.all("", VOLUMES).any(is_free) {
            // There may be a volume for each of them.
            found.unread.push(words(
                "take volumes which somebody provides, and whether these fit is not looked at",
            ));
        } else {
            found.missing.push(words("wait for volumes which somebody provides"));
        }
    }
}

/// Claims that are still to get their volumes, or templates of them, and whose they are.
pub(super) fn claims_to_come<'s>(state: &'s State, set: &SetPlan, spec: &'s Value) -> Vec<(String, &'s Value)> {
    let pod = &spec["template"]["spec"];
    let mut to_come = Vec::new();
    if set.claims.iter().any(|claim| claim.action == ClaimAction::Create) {
        let templates = list(&spec["volumeClaimTemplates"]);
        to_come
            .extend(templates.map(|template| (named("claims of template", &template["metadata"]["name"]), template)));
    }
    if makes_pods(set) {
        for volume in list(&pod["volumes"]) {
            let claim = &volume["ephemeral"]["volumeClaimTemplate"];
            if claim["spec"].is_object() {
                to_come.push((named("claims of volume", &volume["name"]), claim));
            }
        }
        let unbound = own_claims(state, set, spec).filter(|claim| claim["status"]["phase"] != "Bound");
        to_come.extend(unbound.map(|claim| (named("claims such as", &claim["metadata"]["name"]), claim)));
    }
    to_come
}

pub(super) fn named(what: &str, name: &Value) -> String {
    format!("{what} {}", name.as_str().unwrap_or_default())
}
