use super::*;
use crate::{AGENT, AGENT_EVENT_POLICY, AGENT_POD_POLICY, MANAGER_CONFIG_MAP_POLICY, MANAGER_WEBHOOK_POLICY};

fn find<'o>(objects: &'o [Value], kind: &str, name: &str) -> Option<&'o Value> {
    objects
        .iter()
        .find(|o| o["kind"] == kind && o["metadata"]["name"] == name)
}

/// The place of an object in the order in which all are applied.
fn position(objects: &[Value], kind: &str, name: &str) -> usize {
    let found = objects
        .iter()
        .position(|o| o["kind"] == kind && o["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("{kind} {name}"))
}

/// Every choice, one at a time.
fn choices() -> Vec<Options> {
    let other = |condition| {
        let default = Options::default();
        let holds = default.holds(condition);
        default.with(condition, !holds)
    };
    std::iter::once(Options::default())
        .chain(Condition::ALL.map(other))
        .collect()
}

#[test]
fn objects_are_whole_whatever_is_chosen() {
    let superset = superset("flotilla-system");
    for options in choices() {
        let objects = objects(&options);
        for object in &objects {
            let (kind, name) = (
                object["kind"].as_str().unwrap(),
                object["metadata"]["name"].as_str().unwrap(),
            );
            let text = object.to_string();
            assert!(
                !text.contains("${") && !text.contains("\"$"),
                "{kind} {name}: a mark is left"
            );
            assert_eq!(object["metadata"]["labels"][PART_OF_LABEL], PART_OF, "{kind} {name}");
            assert!(
                find(&superset, kind, name).is_some(),
                "{kind} {name} is not in the superset"
            );
        }
        let text = manifests(&options);
        assert_eq!(text.matches("\n---\n").count() + 1, objects.len());
        let documents: Vec<Value> = text
            .split("---\n")
            .skip(1)
            .map(|document| serde_saphyr::from_str(document).unwrap())
            .collect();
        assert_eq!(documents, objects, "what is shown is what is applied");
    }
}

#[test]
fn choices_decide_what_there_is() {
    let default = objects(&Options::default());
    let webhooks = |objects: &[Value]| {
        let role = find(objects, "Role", NAME).unwrap().to_string();
        (
            find(objects, "Service", WEBHOOK_SERVICE).is_some(),
            role.contains("secrets"),
        )
    };
    assert_eq!(webhooks(&default), (true, true));
    let without = objects(&Options::default().with(Condition::Webhooks, false));
    assert_eq!(webhooks(&without), (false, false));
    assert!(!without.iter().any(|o| o.to_string().contains("webhookconfigurations")));

    let native = |objects: &[Value]| {
        let rules = find(objects, "ClusterRole", NAME).unwrap()["rules"].as_array().unwrap();
        let role = rules
            .iter()
            .any(|r| r["apiGroups"][0] == "apps" && r["resources"][0] == "statefulsets");
        let arguments =
            &find(objects, "Deployment", NAME).unwrap()["spec"]["template"]["spec"]["containers"][0]["args"];
        (role, arguments.to_string().contains("--native-statefulset"))
    };
    assert_eq!(native(&default), (false, false));
    let with = objects(&Options::default().with(Condition::NativeStatefulSet, true));
    assert_eq!(native(&with), (true, true));
    assert!(find(&default, "ServiceMonitor", NAME).is_none());
}

#[test]
fn sts_5_1_images_are_pulled_ahead_only_by_choice_and_only_then_with_the_rights() {
    for is_chosen in [false, true] {
        let objects = objects(&Options::default().with(Condition::PreDownload, is_chosen));
        let rules = find(&objects, "ClusterRole", NAME).unwrap()["rules"]
            .as_array()
            .unwrap();
        assert_eq!(rules.iter().any(|r| r["resources"][0] == "imagepulljobs"), is_chosen);
        let deployment = find(&objects, "Deployment", NAME).unwrap();
        let arguments = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
        let gate = "--feature-gates=PreDownloadImageForInPlaceUpdate=true";
        assert_eq!(arguments.as_array().unwrap().iter().any(|a| a == gate), is_chosen);
    }
}

#[test]
fn pods_hold_to_the_restricted_standard() {
    let objects = objects(&Options::default());
    let pod = &find(&objects, "Deployment", NAME).unwrap()["spec"]["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    for container in pod["containers"].as_array().unwrap() {
        let context = &container["securityContext"];
        assert_eq!(context["allowPrivilegeEscalation"], false);
        assert_eq!(context["readOnlyRootFilesystem"], true);
        assert_eq!(context["capabilities"], json!({"drop": ["ALL"]}));
        assert!(container["resources"]["limits"]["memory"].is_string());
        assert!(container["livenessProbe"].is_object() && container["readinessProbe"].is_object());
    }
    let namespace = find(&objects, "Namespace", "flotilla-system").unwrap();
    assert_eq!(
        namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"],
        "restricted"
    );
}

#[test]
fn what_is_selected_is_what_is_labelled() {
    let objects = superset("elsewhere");
    let deployment = find(&objects, "Deployment", NAME).unwrap();
    let pod_labels = &deployment["spec"]["template"]["metadata"]["labels"];
    let mut selectors = vec![deployment["spec"]["selector"]["matchLabels"].clone()];
    selectors.push(find(&objects, "Service", WEBHOOK_SERVICE).unwrap()["spec"]["selector"].clone());
    selectors.push(find(&objects, "PodDisruptionBudget", NAME).unwrap()["spec"]["selector"]["matchLabels"].clone());
    selectors.push(find(&objects, "NetworkPolicy", NAME).unwrap()["spec"]["podSelector"]["matchLabels"].clone());
    for selector in selectors {
        for (key, value) in selector.as_object().unwrap() {
            assert_eq!(pod_labels[key], *value);
        }
    }
    for object in &objects {
        let namespace = &object["metadata"]["namespace"];
        assert!(namespace.is_null() || namespace == "elsewhere", "{object}");
    }
}

#[test]
fn agt_1_agents_have_the_sockets_directory_and_little_else() {
    let without = objects(&Options::default());
    assert!(find(&without, "DaemonSet", AGENT).is_none());
    let objects = objects(&Options::default().with(Condition::Agent, true));
    let pod = &find(&objects, "DaemonSet", AGENT).unwrap()["spec"]["template"]["spec"];
    assert_eq!((&pod["hostNetwork"], &pod["hostPID"]), (&json!(false), &json!(false)));
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    assert_eq!(
        pod["volumes"],
        json!([{"name": "runtime", "hostPath": {"path": "/run", "type": "Directory"}}])
    );
    let container = &pod["containers"][0];
    assert_eq!(container["volumeMounts"][0]["readOnly"], true);
    assert_eq!(container["securityContext"]["capabilities"], json!({"drop": ["ALL"]}));
    assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
    assert_eq!(container["resources"]["limits"], json!({"memory": "64Mi"}));
    // What selects managers must not select agents.
    let labels = &find(&objects, "DaemonSet", AGENT).unwrap()["spec"]["template"]["metadata"]["labels"];
    assert_ne!(labels["app.kubernetes.io/name"], NAME);
    let enforced = |objects: &[Value]| {
        find(objects, "Namespace", "flotilla-system").unwrap()["metadata"]["labels"]["pod-security.kubernetes.io/enforce"].clone()
    };
    assert_eq!(
        (enforced(&without), enforced(&objects)),
        (json!("restricted"), json!("privileged"))
    );
}

#[test]
fn agt_11_1_policies_come_before_the_rights_of_agents_and_name_their_account() {
    let options = Options {
        namespace: "elsewhere".to_owned(),
        ..Options::default().with(Condition::Agent, true)
    };
    let objects = objects(&options);
    let position = |kind: &str, name: &str| position(&objects, kind, name);
    let rights = position("ClusterRole", AGENT);
    assert!(rights < position("ClusterRoleBinding", AGENT) && rights < position("DaemonSet", AGENT));
    let what = |policy: &Value| policy["spec"]["matchConstraints"]["resourceRules"][0]["resources"][0].clone();
    for (name, resource) in [(AGENT_POD_POLICY, "pods/status"), (AGENT_EVENT_POLICY, "events")] {
        assert!(position("ValidatingAdmissionPolicyBinding", name) < rights, "{name}");
        let policy = find(&objects, "ValidatingAdmissionPolicy", name).unwrap();
        assert_eq!(what(policy), resource);
        let condition = policy["spec"]["matchConditions"][0]["expression"].as_str().unwrap();
        assert!(
            condition.contains("'system:serviceaccount:elsewhere:flotilla-agent'"),
            "{condition}"
        );
    }
    // Whatever an agent may write has a policy.
    let limited: Vec<Value> = objects
        .iter()
        .filter(|o| {
            o["kind"] == "ValidatingAdmissionPolicy"
                && o["metadata"]["name"].as_str().is_some_and(|n| n.starts_with(AGENT))
        })
        .map(what)
        .collect();
    let reads = ["get", "list", "watch"];
    for permission in crate::AGENT_PERMISSIONS {
        let only_reads = permission.verbs.iter().all(|verb| reads.contains(verb));
        assert!(
            only_reads || limited.contains(&json!(permission.resource)),
            "{permission:?}"
        );
    }
}

/// Rights that no role can narrow to what the manager needs have a policy, which is there before them.
#[test]
fn policies_come_before_the_rights_of_the_manager() {
    let options = Options {
        namespace: "elsewhere".to_owned(),
        ..Options::default()
    };
    let objects = objects(&options);
    let position = |kind: &str, name: &str| position(&objects, kind, name);
    for name in [MANAGER_CONFIG_MAP_POLICY, MANAGER_WEBHOOK_POLICY] {
        let rights = position("ClusterRole", NAME);
        assert!(position("ValidatingAdmissionPolicyBinding", name) < rights, "{name}");
        let policy = find(&objects, "ValidatingAdmissionPolicy", name).unwrap();
        let condition = policy["spec"]["matchConditions"][0]["expression"].as_str().unwrap();
        assert!(
            condition.contains("'system:serviceaccount:elsewhere:flotilla-manager'"),
            "{condition}"
        );
    }
    // What would be as good as all rights is made by whoever installs.
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let registration = find(&objects, kind, "flotilla-webhooks").unwrap();
        assert!(registration["webhooks"].is_null(), "the manager's part");
    }
    let creates = crate::PERMISSIONS
        .iter()
        .filter(|p| p.resource.ends_with("webhookconfigurations"));
    assert!(creates.clone().count() == 2 && creates.clone().all(|p| !p.verbs.contains(&"create")));
}

#[test]
fn agents_are_reached_at_one_port() {
    let with = |network_policy: bool| {
        let options = Options::default()
            .with(Condition::Agent, true)
            .with(Condition::NetworkPolicy, network_policy);
        objects(&options)
    };
    assert!(find(&with(false), "NetworkPolicy", AGENT).is_none());
    assert!(
        find(&objects(&Options::default()), "NetworkPolicy", AGENT).is_none(),
        "there are none"
    );
    let objects = with(true);
    let policy = &find(&objects, "NetworkPolicy", AGENT).unwrap()["spec"];
    let template = &find(&objects, "DaemonSet", AGENT).unwrap()["spec"]["template"];
    for (key, value) in policy["podSelector"]["matchLabels"].as_object().unwrap() {
        assert_eq!(template["metadata"]["labels"][key], *value);
    }
    let port = &template["spec"]["containers"][0]["ports"][0]["containerPort"];
    assert_eq!(
        policy["ingress"],
        json!([{"ports": [{"port": port, "protocol": "TCP"}]}])
    );
    assert_eq!(policy["policyTypes"], json!(["Ingress"]));
}
