//! `flotilla plan -f` as a user types it: what it says of files, and with which code it ends.

use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;

/// What the command printed, and how it ended.
struct Said {
    code: Option<i32>,
    text: String,
}

/// Files of one test, which go with it.
struct Room(PathBuf);

impl Drop for Room {
    fn drop(&mut self) {
        // Whether it can be removed tells nothing about plans.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Room {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("flotilla-answers-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory for temporary files");
        let room = Room(dir);
        room.save(&[]);
        room
    }

    /// An empty cluster with our definitions, and these objects.
    fn save(&self, more: &[(&str, &str, Value)]) {
        let mut objects =
            vec![json!({"group": "", "resource": "namespaces", "object": {"metadata": {"name": "default"}}})];
        let crd = |object| json!({"group": "apiextensions.k8s.io", "resource": "customresourcedefinitions", "object": object});
        objects.extend(flotilla_api::crds().into_iter().map(crd));
        objects.extend(
            more.iter()
                .map(|(group, resource, object)| json!({"group": group, "resource": resource, "object": object})),
        );
        let world = json!({"flotillaPlayground": 1, "nodes": 3, "now": 1_800_000_000_000_i64, "server": {"version": 1, "uids": 0, "objects": objects}});
        std::fs::write(self.0.join("world.json"), world.to_string()).expect("a file of our own");
    }

    /// `flotilla plan -f app.yaml` with this text.
    fn plan(&self, text: &str) -> Said {
        std::fs::write(self.0.join("app.yaml"), text).expect("a file of our own");
        self.run(&["-f", "app.yaml"])
    }

    fn run(&self, words: &[&str]) -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flotilla"));
        command
            .current_dir(&self.0)
            .args(["plan", "--from", "world.json"])
            .args(words);
        let output = command.output().expect("the binary runs");
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        Said {
            code: output.status.code(),
            text: text.concat(),
        }
    }
}

impl Said {
    #[track_caller]
    fn ends(&self, code: i32, words: &[&str]) {
        for words in words {
            assert!(self.text.contains(words), "{words:?} is missing in:\n{}", self.text);
        }
        assert_eq!(self.code, Some(code), "{}", self.text);
    }
}

const SET: &str = "apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: db
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      containers:
        - name: main
          image: nginx:1
";

#[test]
fn a_cloneset_in_a_file_is_planned_like_any_set() {
    let room = Room::new("clone");
    let clones = SET
        .replace("apps/v1", "apps.kruise.io/v1beta1")
        .replace("StatefulSet", "CloneSet")
        .replace("  serviceName: db\n", "");
    room.plan(&clones)
        .ends(0, &["cloneset.apps.kruise.io/db is created: 2 pods are created"]);
}

#[test]
fn what_is_not_looked_at_and_could_touch_pods_is_named_and_ends_with_1() {
    let room = Room::new("others");
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: api}\n---\n";
    room.plan(&format!("{deployment}{SET}")).ends(
        1,
        &[
            "not looked at: Deployment api (apps/v1), in app.yaml, line 1",
            "could touch pods",
        ],
    );
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: db}\n---\n";
    let said = room.plan(&format!("{service}{SET}"));
    said.ends(0, &["not looked at: Service db (v1), in app.yaml, line 1"]);
    assert!(!said.text.contains("could touch pods"), "{}", said.text);
}

#[test]
fn a_misspelt_field_is_refused_with_file_and_line() {
    let room = Room::new("field");
    let text = SET.replace("  replicas: 2\n", "  replicas: 2\n  replcias: 3\n");
    room.plan(&text)
        .ends(1, &["app.yaml, line 7: spec.replcias: unknown field", "refused"]);
    let text = format!("{SET}          imagePullPolcy: Always\n");
    room.plan(&text).ends(
        1,
        &["app.yaml, line 15: spec.template.spec.containers[0].imagePullPolcy: unknown field"],
    );
    let text = SET.replace("apps/v1", "apps.kruise.io/v1beta1");
    room.plan(&format!("{SET}---\n{text}  replcias: 3\n").replace("name: db\nspec", "name: db2\nspec"))
        .ends(1, &["app.yaml, line 30: spec.replcias: unknown field"]);
    // What the API server stores all the same, and drops from each pod.
    room.plan(&format!("{text}          imagePullPolcy: Always\n")).ends(
        1,
        &[
            "app.yaml, line 15: statefulset.apps.kruise.io/db in namespace default: \
           spec.template.spec.containers[0].imagePullPolcy is a field that pods",
        ],
    );
    let claims = "  volumeClaimTemplates:\n  - metadata: {name: data}\n    spec:\n      storageClasName: fast\n";
    room.plan(&format!("{text}{claims}")).ends(
        1,
        &[
            "app.yaml, line 18: statefulset.apps.kruise.io/db in namespace default: \
           spec.volumeClaimTemplates[0].spec.storageClasName is a field that claims",
        ],
    );
    // What is there and cannot be read.
    let text = text.replace(
        "  name: db\n",
        "  name: db\n  annotations: {flotilla.rs/unblock: sometimes}\n",
    );
    room.plan(&text).ends(
        1,
        &["app.yaml, line 5: statefulset.apps.kruise.io/db in namespace default: "],
    );
}

#[test]
fn a_misspelt_switch_is_named_with_file_and_line() {
    let room = Room::new("switch");
    for key in ["flotilla.rs/unblok", "flotila.rs/unblock"] {
        let text = SET.replace(
            "  name: db\n",
            &format!("  name: db\n  annotations:\n    {key}: broken-first\n"),
        );
        room.plan(&text).ends(
            1,
            &[&format!(
                "app.yaml, line 6: nobody knows the annotation {key}; is flotilla.rs/unblock meant?"
            )],
        );
    }
    let of_pods = "labels: {app: db}, annotations: {apps.kruise.io/container-launch-priorty: Ordered}";
    room.plan(&SET.replace("labels: {app: db}", of_pods))
        .ends(1, &["is apps.kruise.io/container-launch-priority meant?"]);
    let text = SET.replace(
        "  name: db\n",
        "  name: db\n  annotations: {flotilla.rs/unblock: broken-first, team: \"7\"}\n",
    );
    room.plan(&text).ends(0, &["2 pods are created"]);
}

#[test]
fn one_file_for_several_namespaces_is_told_apart() {
    let room = Room::new("namespace");
    let text = SET.replace("  name: db\n", "  name: db\n  namespace: nowhere\n");
    room.plan(&text).ends(1, &["namespace nowhere", "app.yaml, line 1"]);
    for forged in ["default/services/foo/proxy/x?y=", "a b", "../../nodes"] {
        let text = SET.replace("  name: db\n", &format!("  name: db\n  namespace: \"{forged}\"\n"));
        room.plan(&text)
            .ends(1, &["app.yaml, line 5: metadata.namespace is no name of a namespace"]);
    }
    // The file brings it along.
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: nowhere}\n---\n";
    room.plan(&format!("{namespace}{text}"))
        .ends(0, &["2 pods are created"]);
}

/// What others have written shows as it is, in errors, too.
#[test]
fn an_error_moves_no_cursor() {
    let room = Room::new("escapes");
    let forged =
        "apiVersion: v1\nkind: \"\\e[2J\\e[Hstatefulset.apps/web: no pod is touched\\n\"\nmetadata: {name: x}\n";
    let said = room.plan(forged);
    assert!(!said.text.contains('\u{1b}'), "{:?}", said.text);
    said.ends(1, &["2J"]);
}

#[test]
fn the_same_key_twice_is_refused() {
    let room = Room::new("twice");
    room.plan(&format!("{SET}          image: nginx:2\n"))
        .ends(1, &["app.yaml, line 15", "image"]);
}

#[test]
fn what_a_pod_refers_to_and_is_not_there_stops_the_plan() {
    let room = Room::new("refers");
    let account = SET.replace(
        "      containers:",
        "      serviceAccountName: robot\n      containers:",
    );
    let said = room.plan(&account);
    said.ends(1, &["service account robot was not found"]);
    let robot = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: robot}\n---\n";
    let said = room.plan(&format!("{robot}{account}"));
    said.ends(0, &["2 pods are created"]);
    assert!(!said.text.contains("stops:"), "{}", said.text);
    let claim = SET.replace(
        "      containers:",
        "      volumes: [{name: data, persistentVolumeClaim: {claimName: shared}}]\n      containers:",
    );
    room.plan(&claim).ends(1, &["claim shared was not found"]);
    let class = format!(
        "{SET}  volumeClaimTemplates:\n    - metadata: {{name: data}}\n      spec: {{storageClassName: fast, accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}\n"
    );
    room.plan(&class).ends(1, &["storage class fast was not found"]);
    let volume = format!("{SET}          volumeMounts: [{{name: nowhere, mountPath: /d}}]\n");
    room.plan(&volume).ends(1, &["nowhere"]);
}

#[test]
fn a_claim_that_the_file_brings_is_there_for_the_pods() {
    let room = Room::new("claim");
    let usual = json!({"metadata": {"name": "usual", "uid": "u", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "p"});
    room.save(&[("storage.k8s.io", "storageclasses", usual)]);
    let claim = "apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: shared}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
";
    let set = SET.replace(
        "      containers:",
        "      volumes: [{name: data, persistentVolumeClaim: {claimName: shared}}]\n      containers:",
    );
    let said = room.plan(&format!("{claim}{set}"));
    said.ends(0, &["2 pods are created"]);
    assert!(!said.text.contains("missing"), "{}", said.text);
    // Without a default class nobody makes its volume.
    let said = Room::new("claim-without-class").plan(&format!("{claim}{set}"));
    said.ends(1, &["claims such as shared name no storage class"]);
}

#[test]
fn numbers_are_what_kubectl_makes_of_them() {
    let room = Room::new("numbers");
    for kind in ["apps/v1", "apps.kruise.io/v1beta1"] {
        for (written, count) in [
            ("3.0", 3),
            ("3e0", 3),
            ("1.2e1", 12),
            ("010", 8),
            ("0o10", 8),
            ("08", 8),
            ("0x10", 16),
        ] {
            let text = SET.replace("replicas: 2", &format!("replicas: {written}"));
            room.plan(&text.replace("apps/v1", kind))
                .ends(0, &[&format!("{count} pods are created")]);
        }
        let text = SET.replace("replicas: 2", "replicas: 2.5").replace("apps/v1", kind);
        room.plan(&text).ends(1, &["spec.replicas"]);
    }
}

/// Nothing is disrupted, and nothing can come of it: that is no success.
#[test]
fn what_is_refused_in_each_pod_does_not_end_with_0() {
    let room = Room::new("stopped");
    let quota = |pods: &str| json!({"metadata": {"name": "small", "namespace": "default", "uid": "q"}, "spec": {"hard": {"pods": pods}}});
    room.save(&[("", "resourcequotas", quota("0"))]);
    room.plan(SET).ends(1, &["exceeded quota: small"]);
    room.save(&[("", "resourcequotas", quota("2"))]);
    room.plan(SET).ends(0, &["2 pods are created"]);
}
