//! What an API server refuses in the spec of a new pod, in its words, beside what it takes that is nearly the same. The bad ones are also
//! asked of a real one: `pods: what is not valid, one by one` in the scripts of `flotilla-conformance`.

use flotilla_apimachinery::field::join;
use flotilla_apimachinery::pod::{self, Subject};
use serde_json::{Value, json};

/// What is said of a pod of one container with these fields.
fn said(fields: &Value) -> String {
    let mut spec = json!({"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Always"});
    merge(&mut spec, fields);
    let mut errors = Vec::new();
    pod::check_all(&spec, "spec", std::iter::empty(), Subject::Pod, &mut errors);
    pod::check_new(&spec, "spec", &mut errors);
    if errors.is_empty() {
        String::new()
    } else {
        join(&errors)
    }
}

/// Lists are merged by place.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(from)) => {
            for (into, from) in into.iter_mut().zip(from) {
                merge(into, from);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// Bad fields, what is said of them, and good ones.
fn check(rows: &[(Value, &str, Value)]) {
    for (bad, words, good) in rows {
        assert_eq!(said(bad), *words, "{bad}");
        assert_eq!(said(good), "", "{good}");
    }
}

fn container(fields: Value) -> Value {
    json!({"containers": [fields]})
}

fn init(fields: &Value) -> Value {
    let mut init = json!({"name": "init", "image": "i"});
    merge(&mut init, fields);
    json!({"initContainers": [init]})
}

#[test]
fn variables_hold_fields_of_pods_that_there_are() {
    let field = |path: &str| container(json!({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": path}}}]}));
    let at = "spec.containers[0].env[0].valueFrom.fieldRef";
    check(&[
        (
            field("metadata.nam"),
            &format!(
                "{at}.fieldPath: Invalid value: \"metadata.nam\": error converting fieldPath: field label not supported: metadata.nam"
            ),
            field("metadata.name"),
        ),
        (
            field("metadata.labels"),
            &format!(
                "{at}.fieldPath: Unsupported value: \"metadata.labels\": supported values: \"metadata.name\", \"metadata.namespace\", \"metadata.uid\", \"spec.nodeName\", \"spec.serviceAccountName\", \"status.hostIP\", \"status.hostIPs\", \"status.podIP\", \"status.podIPs\""
            ),
            field("metadata.labels['app.kubernetes.io/name']"),
        ),
        (
            field("metadata.name['x']"),
            &format!(
                "{at}.fieldPath: Invalid value: \"metadata.name['x']\": error converting fieldPath: field label does not support subscript: metadata.name['x']"
            ),
            field("metadata.annotations['Example.com/X']"),
        ),
        (
            field(""),
            &format!("{at}.fieldPath: Required value"),
            field("spec.host"),
        ),
    ]);
}

#[test]
fn tolerations_say_what_they_tolerate() {
    let toleration = |fields: Value| json!({"tolerations": [fields]});
    let at = "spec.tolerations[0]";
    check(&[
        (
            toleration(json!({"key": "a", "operator": "Has"})),
            &format!("{at}.operator: Unsupported value: \"Has\": supported values: \"Equal\", \"Exists\""),
            toleration(json!({"key": "a", "operator": "Gt", "value": "1"})),
        ),
        (
            toleration(json!({"key": "a", "operator": "Exists", "value": "b"})),
            &format!("{at}.operator: Invalid value: \"b\": value must be empty when `operator` is 'Exists'"),
            toleration(json!({"key": "a", "value": "b"})),
        ),
        (
            toleration(json!({"effect": "NoSchedule"})),
            &format!(
                "{at}.operator: Invalid value: \"\": operator must be Exists when `key` is empty, which means \"match all values and all keys\""
            ),
            toleration(json!({"operator": "Exists"})),
        ),
        (
            toleration(json!({"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5})),
            &format!(
                "{at}.effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute' when `tolerationSeconds` is set"
            ),
            toleration(json!({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5})),
        ),
        (
            toleration(json!({"key": "a", "operator": "Exists", "effect": "Never"})),
            &format!(
                "{at}.effect: Unsupported value: \"Never\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\""
            ),
            toleration(json!({"key": "a", "operator": "Exists", "effect": "PreferNoSchedule"})),
        ),
    ]);
}

#[test]
fn affinity_and_spreading_are_about_a_topology() {
    let required = |kind: &str, term: Value| json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}});
    let preferred = |weight: i64, term: Value| {
        let term = json!({"weight": weight, "podAffinityTerm": term});
        json!({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}})
    };
    let zone = json!({"topologyKey": "zone"});
    let unnamed = "name part must be non-empty, ";
    let key_words = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let missing = |at: &str| {
        format!(
            "[{at}: Required value: can not be empty, {at}: Invalid value: \"\": {unnamed}{at}: Invalid value: \"\": {key_words}]"
        )
    };
    let anti = missing("spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey");
    let soft = missing(
        "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.topologyKey",
    );
    let spread = |fields: Value| {
        let mut constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"});
        merge(&mut constraint, &fields);
        json!({"topologySpreadConstraints": [constraint]})
    };
    let at = "spec.topologySpreadConstraints[0]";
    check(&[
        (
            required("podAntiAffinity", json!({})),
            &anti,
            required("podAntiAffinity", zone.clone()),
        ),
        (preferred(1, json!({})), &soft, preferred(1, zone.clone())),
        (
            preferred(0, zone.clone()),
            "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 0: must be in the range 1-100",
            preferred(100, zone.clone()),
        ),
        (
            spread(json!({"maxSkew": 0})),
            &format!("{at}.maxSkew: Invalid value: 0: must be greater than zero"),
            spread(json!({})),
        ),
        (
            spread(json!({"topologyKey": ""})),
            &format!("{at}.topologyKey: Required value: can not be empty"),
            spread(json!({"maxSkew": 5})),
        ),
        (
            spread(json!({"whenUnsatisfiable": "Never"})),
            &format!(
                "{at}.whenUnsatisfiable: Unsupported value: \"Never\": supported values: \"DoNotSchedule\", \"ScheduleAnyway\""
            ),
            spread(json!({"whenUnsatisfiable": "DoNotSchedule"})),
        ),
        (
            json!({"topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
                {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
            ]}),
            &format!("{at}.{{topologyKey, whenUnsatisfiable}}: Duplicate value: \"{{zone, DoNotSchedule}}\""),
            json!({"topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
                {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"},
            ]}),
        ),
        (
            json!({"schedulingGates": [{"name": "a.b/c"}, {"name": "a.b/c"}]}),
            "spec.schedulingGates[1]: Duplicate value: \"a.b/c\"",
            json!({"schedulingGates": [{"name": "a.b/c"}, {"name": "a.b/d"}]}),
        ),
    ]);
}

#[test]
fn names_and_addresses_are_well_formed() {
    const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    const ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
    let alias = |address: &str| json!({"hostAliases": [{"ip": address, "hostnames": ["a.example.com"]}]});
    check(&[
        (
            json!({"hostname": "Web"}),
            &format!("spec.hostname: Invalid value: \"Web\": {LABEL}"),
            json!({"hostname": "web"}),
        ),
        (
            json!({"subdomain": "a.b"}),
            "spec.subdomain: Invalid value: \"a.b\": must not contain dots",
            json!({"subdomain": "a-b"}),
        ),
        (
            alias("10.0.0"),
            &format!("spec.hostAliases[0].ip: Invalid value: \"10.0.0\": {ADDRESS}"),
            alias("10.0.0.01"),
        ),
        (
            json!({"dnsPolicy": "Sometimes"}),
            "spec.dnsPolicy: Unsupported value: \"Sometimes\": supported values: \"ClusterFirstWithHostNet\", \"ClusterFirst\", \"Default\", \"None\"",
            json!({"dnsPolicy": "Default"}),
        ),
        (
            json!({"dnsPolicy": "None"}),
            "spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None",
            json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["10.0.0.1"]}}),
        ),
        (
            json!({"dnsPolicy": "None", "dnsConfig": {"searches": ["a.b"]}}),
            "spec.dnsConfig.nameservers: Required value: must provide at least one DNS nameserver when `dnsPolicy` is None",
            json!({"dnsConfig": {"searches": ["a.b"]}}),
        ),
        (
            json!({"dnsConfig": {"nameservers": ["dns.example.com"]}}),
            &format!("spec.dnsConfig.nameservers[0]: Invalid value: \"dns.example.com\": {ADDRESS}"),
            json!({"dnsConfig": {"nameservers": ["2001:db8::1"]}}),
        ),
    ]);
}

#[test]
fn paths_of_nodes_are_named_and_lead_nowhere_else() {
    let path = |fields: Value| json!({"volumes": [{"name": "v", "hostPath": fields}]});
    let at = "spec.volumes[0].hostPath";
    check(&[
        (
            path(json!({})),
            &format!("{at}.path: Required value"),
            path(json!({"path": "/tmp"})),
        ),
        (
            path(json!({"path": "/tmp/../etc"})),
            &format!("{at}.path: Invalid value: \"/tmp/../etc\": must not contain '..'"),
            path(json!({"path": "/tmp/..etc", "type": ""})),
        ),
        (
            path(json!({"path": "/tmp", "type": "Folder"})),
            &format!(
                "{at}.type: Unsupported value: \"Folder\": supported values: \"\", \"BlockDevice\", \"CharDevice\", \"Directory\", \"DirectoryOrCreate\", \"File\", \"FileOrCreate\", \"Socket\""
            ),
            path(json!({"path": "/tmp", "type": "Directory"})),
        ),
    ]);
}

#[test]
fn security_contexts_do_not_contradict_themselves() {
    let context = |fields: Value| container(json!({"securityContext": fields}));
    let seccomp = |fields: Value| json!({"securityContext": {"seccompProfile": fields}});
    let at = "spec.securityContext.seccompProfile";
    let shown = |changed: &str| {
        format!(
            "spec.containers[0].securityContext: Invalid value: {{{changed},\"SELinuxOptions\":null,\"WindowsOptions\":null,\"RunAsUser\":null,\"RunAsGroup\":null,\"RunAsNonRoot\":null,\"ReadOnlyRootFilesystem\":null,\"AllowPrivilegeEscalation\":false,\"ProcMount\":null,\"SeccompProfile\":null,\"AppArmorProfile\":null}}"
        )
    };
    check(&[
        (
            context(json!({"privileged": true, "allowPrivilegeEscalation": false})),
            &format!(
                "{}: cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
                shown("\"Capabilities\":null,\"Privileged\":true")
            ),
            context(json!({"privileged": true, "allowPrivilegeEscalation": true})),
        ),
        (
            seccomp(json!({"type": "Localhost"})),
            &format!("{at}.localhostProfile: Required value: must be set when seccomp type is Localhost"),
            seccomp(json!({"type": "Localhost", "localhostProfile": "profiles/audit.json"})),
        ),
        (
            seccomp(json!({"type": "RuntimeDefault", "localhostProfile": "audit.json"})),
            &format!(
                "{at}.localhostProfile: Invalid value: {{\"Type\":\"RuntimeDefault\",\"LocalhostProfile\":\"audit.json\"}}: can only be set when seccomp type is Localhost"
            ),
            seccomp(json!({"type": "RuntimeDefault"})),
        ),
        (
            seccomp(json!({"type": "Localhost", "localhostProfile": "/audit.json"})),
            &format!("{at}.localhostProfile: Invalid value: \"/audit.json\": must be a relative path"),
            seccomp(json!({"type": "Unconfined"})),
        ),
        (
            seccomp(json!({})),
            &format!("{at}.type: Required value: type is required when seccompProfile is set"),
            json!({"securityContext": {}}),
        ),
        (
            seccomp(json!({"type": "Default"})),
            &format!(
                "{at}.type: Unsupported value: \"Default\": supported values: \"Localhost\", \"RuntimeDefault\", \"Unconfined\""
            ),
            seccomp(json!({"type": "RuntimeDefault"})),
        ),
    ]);
}

#[test]
fn pods_for_windows_have_nothing_of_linux() {
    let windows = |fields: Value| {
        let mut pod = json!({"os": {"name": "windows"}});
        merge(&mut pod, &fields);
        pod
    };
    let words = "Forbidden: cannot be set for a windows pod";
    check(&[
        (
            windows(json!({"hostPID": true})),
            &format!("spec.hostPID: {words}"),
            windows(json!({"hostPID": false})),
        ),
        (
            windows(json!({"hostIPC": true})),
            &format!("spec.hostIPC: {words}"),
            windows(json!({"hostNetwork": true})),
        ),
        (
            windows(json!({"securityContext": {"runAsUser": 1}})),
            &format!("spec.securityContext.runAsUser: {words}"),
            json!({"os": {"name": "linux"}, "securityContext": {"runAsUser": 1}}),
        ),
        (
            windows(container(json!({"securityContext": {"privileged": false}}))),
            &format!("spec.containers[0].securityContext.privileged: {words}"),
            windows(container(
                json!({"securityContext": {"windowsOptions": {"runAsUserName": "me"}}}),
            )),
        ),
        (
            json!({"os": {"name": "linux"}, "securityContext": {"windowsOptions": {"runAsUserName": "me"}}}),
            "spec.securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod",
            json!({"securityContext": {"windowsOptions": {"runAsUserName": "me"}}}),
        ),
        (
            json!({"os": {"name": "plan9"}}),
            "spec.os: Unsupported value: \"plan9\": supported values: \"linux\", \"windows\"",
            json!({"os": {"name": "linux"}}),
        ),
    ]);
}

#[test]
fn containers_say_when_they_are_restarted() {
    let resize = |policies: Value| container(json!({"resizePolicy": policies}));
    let one = |resource: &str, policy: &str| json!([{"resourceName": resource, "restartPolicy": policy}]);
    let at = "spec.containers[0].resizePolicy";
    let rules = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [3]}}]);
    let policies = "supported values: \"Always\", \"Never\", \"OnFailure\"";
    check(&[
        (
            init(&json!({"restartPolicy": "Sometimes"})),
            &format!("spec.initContainers[0].restartPolicy: Unsupported value: \"Sometimes\": {policies}"),
            init(&json!({"restartPolicy": "OnFailure"})),
        ),
        (
            container(json!({"restartPolicy": "Sometimes"})),
            &format!("spec.containers[0].restartPolicy: Unsupported value: \"Sometimes\": {policies}"),
            container(json!({"restartPolicy": "Never"})),
        ),
        (
            container(json!({"restartPolicyRules": rules})),
            "spec.containers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used",
            container(json!({"restartPolicyRules": rules, "restartPolicy": "Never"})),
        ),
        (
            init(&json!({"readinessProbe": {"exec": {"command": ["true"]}}})),
            "spec.initContainers[0].readinessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
            init(&json!({"restartPolicy": "Always", "readinessProbe": {"exec": {"command": ["true"]}}})),
        ),
        (
            resize(one("gpu", "NotRequired")),
            &format!("{at}: Unsupported value: \"gpu\": supported values: \"cpu\", \"memory\""),
            resize(one("memory", "RestartContainer")),
        ),
        (
            resize(one("cpu", "Never")),
            &format!("{at}: Unsupported value: \"Never\": supported values: \"NotRequired\", \"RestartContainer\""),
            resize(one("cpu", "NotRequired")),
        ),
        (
            resize(
                json!([{"resourceName": "cpu", "restartPolicy": "NotRequired"}, {"resourceName": "cpu", "restartPolicy": "NotRequired"}]),
            ),
            &format!("{at}[1]: Duplicate value: \"cpu\""),
            resize(
                json!([{"resourceName": "cpu", "restartPolicy": "NotRequired"}, {"resourceName": "memory", "restartPolicy": "NotRequired"}]),
            ),
        ),
        (
            init(&json!({"resizePolicy": one("cpu", "RestartContainer")})),
            "spec.initContainers[0].resizePolicy[0].restartPolicy: Invalid value: \"RestartContainer\": must not be set to 'RestartContainer' for non-sidecar initContainers",
            init(&json!({"restartPolicy": "Always", "resizePolicy": one("cpu", "RestartContainer")})),
        ),
    ]);
}

#[test]
fn new_pods_have_no_ephemeral_containers() {
    check(&[
        (
            json!({"ephemeralContainers": [{"name": "debug", "image": "i"}]}),
            "spec.ephemeralContainers: Forbidden: cannot be set on create",
            json!({"ephemeralContainers": []}),
        ),
        (
            json!({"nodeName": "n", "schedulingGates": [{"name": "a.b/c"}]}),
            "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
            json!({"nodeName": "n"}),
        ),
    ]);
}
