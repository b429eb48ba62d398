//! Bringing a definition up to date that is there already, ours of an older version or OpenKruise's.
//!
//! Objects may be stored in a version that ours does not have; a definition that loses a stored version is refused, and one that changes
//! its storage version leaves objects behind in the old one. So versions that are there stay, and so does the version of storage. What is
//! served goes on being served, and converted as it is: that is for the managers to change, who know when they can convert. Until then no
//! further version is served: without conversion the API server only rewrites `apiVersion`, and a CloneSet of v1alpha1 that is read as
//! v1beta1 is not paused, has no partition, is recreated instead of updated in place, and does not use claims again.

use serde_json::Value;

/// Our definition for a cluster that has `live` already.
pub fn over(ours: &Value, live: &Value) -> Value {
    let mut merged = ours.clone();
    let name = |version: &Value| version["name"].as_str().unwrap_or_default().to_owned();
    let of_live: Vec<Value> = versions(live).to_vec();
    let storage = of_live.iter().find(|v| v["storage"] == true).map(name);
    if let Some(conversion) = live.pointer("/spec/conversion") {
        merged["spec"]["conversion"] = conversion.clone();
    }
    let Some(Value::Array(list)) = merged.pointer_mut("/spec/versions") else {
        return merged;
    };
    for version in of_live {
        match list.iter_mut().find(|ours| name(ours) == name(&version)) {
            Some(ours) if version["served"] == true => ours["served"] = Value::Bool(true),
            Some(_) => {}
            None => list.push(version),
        }
    }
    if let Some(storage) = storage {
        for version in list.iter_mut() {
            version["storage"] = Value::Bool(name(version) == storage);
        }
    }
    let is_converted = live
        .pointer("/spec/conversion/strategy")
        .is_some_and(|s| s == "Webhook");
    if !is_converted {
        let served: Vec<String> = versions(live)
            .iter()
            .filter(|v| v["served"] == true)
            .map(name)
            .collect();
        for version in list.iter_mut().filter(|version| version["storage"] != true) {
            version["served"] = Value::Bool(served.contains(&name(version)));
        }
    }
    merged
}

/// Versions of a definition that are there and that ours does not have.
pub fn kept(ours: &Value, live: &Value) -> Vec<String> {
    let has = |name: &Value| versions(ours).iter().any(|v| v["name"] == *name);
    let others = versions(live).iter().filter(|v| !has(&v["name"]));
    others.filter_map(|v| v["name"].as_str().map(str::to_owned)).collect()
}

fn versions(definition: &Value) -> &[Value] {
    definition
        .pointer("/spec/versions")
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn versions_and_storage_that_are_there_stay() {
        let ours = json!({"spec": {"versions": [{"name": "v1beta1", "storage": true, "served": true, "new": true}]}});
        let live = json!({"spec": {"versions": [
            {"name": "v1beta1", "storage": false, "served": true}, {"name": "v1alpha1", "storage": true, "schema": 1},
        ]}});
        assert_eq!(
            over(&ours, &live),
            json!({"spec": {"versions": [
                {"name": "v1beta1", "storage": false, "served": true, "new": true},
                {"name": "v1alpha1", "storage": true, "schema": 1},
            ]}})
        );
        assert_eq!(kept(&ours, &live), ["v1alpha1"]);
        let again = over(&ours, &over(&ours, &live));
        assert_eq!(again, over(&ours, &live), "once is as good as twice");
    }

    #[test]
    fn what_is_served_and_how_it_is_converted_stays() {
        let definition = |strategy: &str, served: bool| {
            let versions = json!([
                {"name": "v1beta1", "storage": true, "served": true}, {"name": "v1alpha1", "storage": false, "served": served},
            ]);
            json!({"spec": {"conversion": {"strategy": strategy}, "versions": versions}})
        };
        let (ours, live) = (definition("None", false), definition("Webhook", true));
        assert_eq!(over(&ours, &live), live);
        assert_eq!(over(&live, &ours), ours, "nothing is served that nobody converts");
    }

    #[test]
    fn a_version_that_nobody_converts_to_is_not_served_until_a_manager_does() {
        // OpenKruise 1.9 stores CloneSets in v1alpha1 and knows no other version.
        let live = json!({"spec": {"conversion": {"strategy": "None"}, "versions": [
            {"name": "v1alpha1", "storage": true, "served": true},
        ]}});
        let ours = flotilla_api::crds()
            .into_iter()
            .find(|crd| crd["metadata"]["name"] == "clonesets.apps.kruise.io");
        let merged = over(&ours.expect("our definition"), &live);
        let flags = |name: &str| {
            let version = versions(&merged)
                .iter()
                .find(|v| v["name"] == name)
                .expect("it is there");
            (version["served"].as_bool(), version["storage"].as_bool())
        };
        assert_eq!(flags("v1alpha1"), (Some(true), Some(true)));
        assert_eq!(flags("v1beta1"), (Some(false), Some(false)));
    }

    #[test]
    fn a_definition_of_the_same_versions_is_ours() {
        let ours = &flotilla_api::crds()[0];
        assert_eq!(over(ours, ours), *ours);
        assert_eq!(kept(ours, ours), Vec::<String>::new());
    }
}
