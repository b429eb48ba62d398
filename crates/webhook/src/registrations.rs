//! What the API server is told about the endpoint. Pure: from where it is, whom to trust and what exists follow the objects to apply.
//!
//! Never in scope are `kube-system`, our own namespace, and objects that a label takes out; objects that are being deleted are
//! validated by nobody, so that an endpoint that is away holds up no deletion.
//!
//! While the endpoint is away nothing waits for it: what is asked about pods and about our own kinds is `Ignore`. A set that breaks a rule
//! of its definition is refused all the same; one that breaks a rule beyond those is stored, and the controllers refuse it when they read
//! it, as they fill in what was left out. Only deletion protection is `Fail`, for it is asked about labelled objects and nothing else.

use crate::review::Hook;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flotilla_api::names::{DELETE_PROTECTION_LABEL, WEBHOOKS_LABEL};
pub use flotilla_api::registration::NAME;
use flotilla_api::registration::{SUFFIX, condition_of_pods};
use flotilla_api::statefulset::v1alpha1;
use flotilla_api::{Address, Converter, set_conversion};
use serde_json::{Map, Value, json};

/// The definition of Advanced StatefulSets.
pub const SETS: &str = "statefulsets.apps.kruise.io";
/// The definitions of our kinds.
pub const DEFINITIONS: [&str; 2] = [SETS, "clonesets.apps.kruise.io"];

/// Where the API server finds the endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Behind a service of the cluster.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// Outside of it.
    Url {
        /// Host name or IP address.
        host: String,
        /// Port.
        port: u16,
    },
}

/// The port of the service.
const SERVICE_PORT: u16 = 443;

impl Place {
    /// The name under which clients look for it, and that its certificate must cover.
    pub fn host(&self) -> String {
        match self {
            Place::Service { namespace, name } => format!("{name}.{namespace}.svc"),
            Place::Url { host, .. } => host.clone(),
        }
    }

    /// The port at which clients look for it.
    pub fn port(&self) -> u16 {
        match self {
            Place::Service { .. } => SERVICE_PORT,
            Place::Url { port, .. } => *port,
        }
    }

    fn url(&self) -> String {
        let host = self.host();
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        format!("https://{host}:{}", self.port())
    }

    fn client_config(&self, hook: Hook, bundle: &str) -> Value {
        let bundle = STANDARD.encode(bundle);
        match self {
            Place::Service { namespace, name } => json!({
                "caBundle": bundle,
                "service": {"namespace": namespace, "name": name, "path": hook.path(), "port": SERVICE_PORT},
            }),
            Place::Url { .. } => json!({"caBundle": bundle, "url": format!("{}{}", self.url(), hook.path())}),
        }
    }
}

/// What the registrations follow from.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// Where the endpoint is.
    pub place: &'a Place,
    /// The authorities to trust, in PEM.
    pub bundle: &'a str,
    /// Our own namespace.
    pub namespace: &'a str,
    /// The only namespace that the manager works in; all if `None`.
    pub only_namespace: Option<&'a str>,
    /// Whether the definition of any of our kinds is installed.
    pub has_sets: bool,
}

/// The two configurations.
pub fn configurations(facts: &Facts<'_>) -> [Value; 2] {
    let mut mutating = vec![facts.pods()];
    let mut validating = vec![facts.protection()];
    if facts.has_sets {
        mutating.insert(0, facts.sets("mutate-statefulsets.flotilla.rs", Hook::MutateSets));
        validating.insert(0, facts.sets("validate-statefulsets.flotilla.rs", Hook::ValidateSets));
    }
    for webhook in &mut mutating {
        // Pods may be changed by others after us; what we add then is still added.
        let is_pods = webhook["clientConfig"] == facts.place.client_config(Hook::MutatePods, facts.bundle);
        webhook["reinvocationPolicy"] = json!(if is_pods { "IfNeeded" } else { "Never" });
    }
    [
        configuration("MutatingWebhookConfiguration", mutating),
        configuration("ValidatingWebhookConfiguration", validating),
    ]
}

fn configuration(kind: &str, webhooks: Vec<Value>) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": NAME, "labels": {"app.kubernetes.io/managed-by": "flotilla"}},
        "webhooks": webhooks,
    })
}

fn rule(groups: &[&str], versions: &[&str], resources: &[&str], operations: &[&str], scope: &str) -> Value {
    json!({"apiGroups": groups, "apiVersions": versions, "resources": resources, "operations": operations, "scope": scope})
}

impl Facts<'_> {
    /// Every field is written, those with defaults too, so that what is stored can be compared with it.
    fn webhook(&self, name: &str, hook: Hook, failure_policy: &str, seconds: u32, rules: Value) -> Value {
        let mut namespaces = vec![json!({"key": "kubernetes.io/metadata.name", "operator": "NotIn",
            "values": ["kube-system", self.namespace]})];
        if let Some(only) = self.only_namespace {
            namespaces.push(json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": [only]}));
        }
        json!({
            "name": name,
            "clientConfig": self.place.client_config(hook, self.bundle),
            "rules": rules,
            "failurePolicy": failure_policy,
            "matchPolicy": "Equivalent",
            "namespaceSelector": {"matchExpressions": namespaces},
            "objectSelector": {"matchExpressions": [{"key": WEBHOOKS_LABEL, "operator": "NotIn", "values": ["ignore"]}]},
            "sideEffects": "None",
            "timeoutSeconds": seconds,
            "admissionReviewVersions": ["v1"],
        })
    }

    fn sets(&self, name: &str, hook: Hook) -> Value {
        let rule = |versions: &[&str], plural| {
            rule(
                &["apps.kruise.io"],
                versions,
                &[plural],
                &["CREATE", "UPDATE"],
                "Namespaced",
            )
        };
        let versions = [v1alpha1::VERSION, v1alpha1::HUB];
        let rules = json!([rule(&versions, "statefulsets"), rule(&versions, "clonesets")]);
        let mut webhook = self.webhook(name, hook, "Ignore", 5, rules);
        // Each version as it was written. Of an equivalent rule the API server would convert the object before it asks, and a client
        // that left the annotation of conversion out could not be told from one that cleared the fields in it. Some of what
        // a CloneSet must be depends on the version, too.
        webhook["matchPolicy"] = json!("Exact");
        webhook["matchConditions"] =
            json!([{"name": "stays", "expression": "!has(object.metadata.deletionTimestamp)"}]);
        webhook
    }

    fn pods(&self) -> Value {
        let rules = rule(&[""], &["v1"], &["pods"], &["CREATE"], "Namespaced");
        let mut webhook = self.webhook("mutate-pods.flotilla.rs", Hook::MutatePods, "Ignore", 2, json!([rules]));
        webhook["matchConditions"] = json!([{"name": "ours", "expression": condition_of_pods()}]);
        webhook
    }

    fn protection(&self) -> Value {
        let delete = ["DELETE"];
        let rules = json!([
            rule(&[""], &["v1"], &["namespaces"], &delete, "*"),
            rule(
                &["apiextensions.k8s.io"],
                &["v1"],
                &["customresourcedefinitions"],
                &delete,
                "*"
            ),
            rule(&[""], &["v1"], &["services"], &delete, "*"),
            rule(&["networking.k8s.io"], &["v1"], &["ingresses"], &delete, "*"),
            rule(
                &["apps"],
                &["v1"],
                &["statefulsets", "deployments", "replicasets", "daemonsets"],
                &delete,
                "*"
            ),
            rule(
                &["apps.kruise.io"],
                &["*"],
                &["statefulsets", "clonesets", "daemonsets", "uniteddeployments"],
                &delete,
                "*"
            ),
        ]);
        let mut webhook = self.webhook("protect.flotilla.rs", Hook::Protect, "Fail", 3, rules);
        if let Some(Value::Array(selector)) = webhook.pointer_mut("/objectSelector/matchExpressions") {
            selector.push(json!({"key": DELETE_PROTECTION_LABEL, "operator": "Exists"}));
        }
        webhook
    }
}

/// What a definition with several versions is to say about conversion; `None` for one with a single version.
pub fn conversion(definition: &Value, place: &Place, bundle: &str) -> Option<Value> {
    let mut converted = definition.clone();
    let address = match place {
        Place::Service { namespace, name } => Address::Service {
            namespace: namespace.clone(),
            name: name.clone(),
            port: SERVICE_PORT,
        },
        Place::Url { .. } => Address::Url(place.url()),
    };
    let converter = Converter {
        address,
        ca_bundle: STANDARD.encode(bundle),
    };
    if definition.pointer("/spec/versions")?.as_array()?.len() < 2 {
        return None;
    }
    set_conversion(&mut converted, Some(&converter));
    Some(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": definition.pointer("/metadata/name")?},
        "spec": {"conversion": converted["spec"]["conversion"]},
    }))
}

/// Versions of a definition that are not served, by place and name, and could be: those that we convert. Others are somebody else's.
pub fn unserved(definition: &Value) -> Vec<(usize, String)> {
    let versions = definition
        .pointer("/spec/versions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let is_ours = |version: &Value| {
        [v1alpha1::VERSION, v1alpha1::HUB]
            .iter()
            .any(|ours| version["name"] == *ours)
    };
    let unserved = versions
        .enumerate()
        .filter(|(_, version)| version["served"] == false && is_ours(version));
    unserved
        .filter_map(|(index, version)| Some((index, version["name"].as_str()?.to_owned())))
        .collect()
}

/// Whether `stored` says all that `wanted` says, and registers nothing of ours besides.
pub fn is_as_wanted(stored: &Value, wanted: &Value) -> bool {
    let ours = |object: &Value| -> Vec<String> {
        let webhooks = object["webhooks"].as_array().into_iter().flatten();
        let mut names: Vec<_> = webhooks
            .filter_map(|webhook| webhook["name"].as_str())
            .map(str::to_owned)
            .collect();
        names.retain(|name| name.ends_with(SUFFIX));
        names.sort();
        names
    };
    ours(stored) == ours(wanted) && covers(stored, wanted)
}

fn covers(stored: &Value, wanted: &Value) -> bool {
    match (stored, wanted) {
        (Value::Object(stored), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, value)| stored.get(key).is_some_and(|stored| covers(stored, value))),
        // Lists by name are told apart by it, and others may have entries in them; all other lists are one value.
        (Value::Array(stored), Value::Array(wanted)) if wanted.iter().all(is_named) => wanted.iter().all(|entry| {
            let same = |other: &&Value| other["name"] == entry["name"];
            stored.iter().find(same).is_some_and(|stored| covers(stored, entry))
        }),
        (stored, wanted) => stored == wanted,
    }
}

fn is_named(entry: &Value) -> bool {
    entry
        .as_object()
        .and_then(|entry: &Map<_, _>| entry.get("name"))
        .is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service() -> Place {
        Place::Service {
            namespace: "flotilla-system".to_owned(),
            name: "flotilla-webhook".to_owned(),
        }
    }

    fn facts(place: &Place) -> Facts<'_> {
        Facts {
            place,
            bundle: "PEM",
            namespace: "flotilla-system",
            only_namespace: None,
            has_sets: true,
        }
    }

    fn webhooks(place: &Place) -> Vec<Value> {
        let all = configurations(&facts(place));
        all.iter()
            .flat_map(|c| c["webhooks"].as_array().unwrap().clone())
            .collect()
    }

    /// ADM-1: the table of registrations.
    #[test]
    fn each_webhook_has_its_policy_and_its_time() {
        let place = service();
        let table: Vec<_> = webhooks(&place)
            .iter()
            .map(|w| {
                let text = |pointer: &str| w.pointer(pointer).and_then(Value::as_str).unwrap_or("-").to_owned();
                format!(
                    "{} {} {} {}s {} {}",
                    text("/name"),
                    text("/clientConfig/service/path"),
                    text("/failurePolicy"),
                    w["timeoutSeconds"],
                    text("/reinvocationPolicy"),
                    w["rules"][0]["operations"],
                )
            })
            .collect();
        assert_eq!(
            table,
            [
                "mutate-statefulsets.flotilla.rs /mutate-apps-kruise-io-statefulset Ignore 5s Never [\"CREATE\",\"UPDATE\"]",
                "mutate-pods.flotilla.rs /mutate-pods Ignore 2s IfNeeded [\"CREATE\"]",
                "validate-statefulsets.flotilla.rs /validate-apps-kruise-io-statefulset Ignore 5s - [\"CREATE\",\"UPDATE\"]",
                "protect.flotilla.rs /protect Fail 3s - [\"DELETE\"]",
            ]
        );
        for webhook in webhooks(&place) {
            assert_eq!(webhook["sideEffects"], "None");
            assert_eq!(webhook["clientConfig"]["caBundle"], "UEVN");
        }
    }

    /// ADM-1 and R-13: a rule that names one version only has the API server convert objects of the others before it asks, and what their
    /// authors left out is lost by then.
    #[test]
    fn each_version_of_our_kinds_is_asked_about_as_it_was_written() {
        let place = service();
        let asked = webhooks(&place);
        let of_sets = |w: &&Value| {
            w["name"]
                .as_str()
                .is_some_and(|name| name.ends_with("statefulsets.flotilla.rs"))
        };
        let of_sets: Vec<_> = asked.iter().filter(of_sets).collect();
        assert_eq!(of_sets.len(), 2);
        for webhook in of_sets {
            assert_eq!(webhook["matchPolicy"], "Exact", "{}", webhook["name"]);
            for definition in flotilla_api::crds() {
                let plural = &definition["spec"]["names"]["plural"];
                for version in definition["spec"]["versions"].as_array().unwrap() {
                    let has = |list: &Value, wanted: &Value| list.as_array().unwrap().contains(wanted);
                    let is_asked =
                        |rule: &Value| has(&rule["resources"], plural) && has(&rule["apiVersions"], &version["name"]);
                    assert!(
                        webhook["rules"].as_array().unwrap().iter().any(is_asked),
                        "{} is not asked about {plural} of {}",
                        webhook["name"],
                        version["name"]
                    );
                }
            }
        }
        let others = asked.iter().filter(|w| w["matchPolicy"] == "Equivalent").count();
        assert_eq!(others, 2, "pods, and what is protected");
    }

    /// ADM-1: never in scope: kube-system, our namespace, and what the label takes out.
    #[test]
    fn nothing_concerns_the_namespaces_that_we_stand_on() {
        for webhook in webhooks(&service()) {
            assert_eq!(
                webhook["namespaceSelector"]["matchExpressions"],
                json!([{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "flotilla-system"]}])
            );
            assert_eq!(
                webhook["objectSelector"]["matchExpressions"][0],
                json!({"key": "flotilla.rs/webhooks", "operator": "NotIn", "values": ["ignore"]})
            );
        }
        let place = service();
        let protection = facts(&place).protection();
        assert_eq!(
            protection["objectSelector"]["matchExpressions"][1]["operator"],
            "Exists"
        );
    }

    /// ADM-1: a manager of one namespace is asked about that one; kinds that are not installed are not registered.
    #[test]
    fn registrations_follow_what_there_is() {
        let place = service();
        let narrow = Facts {
            only_namespace: Some("shop"),
            has_sets: false,
            ..facts(&place)
        };
        let [mutating, validating] = configurations(&narrow);
        for configuration in [mutating, validating] {
            let webhooks = configuration["webhooks"].as_array().unwrap();
            assert_eq!(webhooks.len(), 1, "{configuration}");
            assert_eq!(
                webhooks[0]["namespaceSelector"]["matchExpressions"][1]["values"],
                json!(["shop"])
            );
        }
    }

    #[test]
    fn outside_of_the_cluster_there_is_an_address() {
        let url = |host: &str| {
            let place = Place::Url {
                host: host.to_owned(),
                port: 9443,
            };
            facts(&place).pods()["clientConfig"]["url"].as_str().unwrap().to_owned()
        };
        assert_eq!(url("127.0.0.1"), "https://127.0.0.1:9443/mutate-pods");
        assert_eq!(url("::1"), "https://[::1]:9443/mutate-pods");
    }

    /// ADM-1: only what differs is written: fields that the server adds, and webhooks of others, are no difference.
    #[test]
    fn what_is_stored_is_compared_with_what_is_wanted() {
        let place = service();
        let [wanted, _] = configurations(&facts(&place));
        let stored = |change: &dyn Fn(&mut Value)| {
            let mut stored = wanted.clone();
            stored["metadata"]["uid"] = json!("u");
            stored["webhooks"][0]["newer"] = json!("field");
            change(&mut stored);
            is_as_wanted(&stored, &wanted)
        };
        assert!(stored(&|_| {}));
        assert!(stored(&|s| s["webhooks"]
            .as_array_mut()
            .unwrap()
            .push(json!({"name": "other.example.test"}))));
        assert!(stored(&|s| s["webhooks"].as_array_mut().unwrap().reverse()));
        assert!(!stored(&|s| s["webhooks"]
            .as_array_mut()
            .unwrap()
            .push(json!({"name": "old.flotilla.rs"}))));
        assert!(!stored(&|s| drop(s["webhooks"].as_array_mut().unwrap().pop())));
        assert!(!stored(&|s| s["webhooks"][0]["failurePolicy"] = json!("Fail")));
        assert!(!stored(&|s| s["webhooks"][1]["clientConfig"]["caBundle"] = json!("")));
        assert!(!stored(
            &|s| s["webhooks"][1]["rules"][0]["operations"] = json!(["CREATE", "UPDATE"])
        ));
    }

    /// ADM-1: only a definition with two versions needs conversion.
    #[test]
    fn definitions_with_two_versions_are_converted() {
        let definition = |versions: &[&str]| {
            let versions: Vec<_> = versions
                .iter()
                .map(|name| json!({"name": name, "storage": *name == "v1beta1", "served": *name == "v1beta1"}))
                .collect();
            json!({"metadata": {"name": SETS}, "spec": {"versions": versions}})
        };
        assert_eq!(conversion(&definition(&["v1beta1"]), &service(), "PEM"), None);
        let wanted = conversion(&definition(&["v1alpha1", "v1beta1"]), &service(), "PEM").unwrap();
        assert_eq!(
            wanted["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["path"],
            "/convert"
        );
        let mut stored = wanted.clone();
        assert!(is_as_wanted(&stored, &wanted));
        assert_eq!(
            unserved(&definition(&["v1beta1", "v1alpha1"])),
            [(1, "v1alpha1".to_owned())]
        );
        assert_eq!(
            unserved(&definition(&["v1beta1", "v1alpha0"])),
            [],
            "nobody converts it"
        );
        stored["spec"]["conversion"] = json!({"strategy": "None"});
        assert!(!is_as_wanted(&stored, &wanted));
    }
}
