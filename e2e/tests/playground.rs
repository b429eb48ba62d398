//! What kubectl prints against `flotilla playground`, compared with what it prints against a real control plane.

#[path = "playground/normal.rs"]
mod normal;

use flotilla_e2e::{Api, Manager, Playground, suite};
use flotilla_localcluster::Cluster;
use normal::{changes, normal, sorted};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Two documents in one file: a native set, whose pods are ready after a moment, and its service.
const NATIVE: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: native}
spec: {clusterIP: None, selector: {app: native}, ports: [{name: http, port: 80}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: native, labels: {app: native}}
spec:
  replicas: 2
  serviceName: native
  selector: {matchLabels: {app: native}}
  template:
    metadata: {labels: {app: native}, annotations: {sim.flotilla.rs/start: 1s}}
    spec:
      automountServiceAccountToken: false
      containers: [{name: web, image: "web:1.0"}]
"#;

/// Something that only clusters with more controllers have.
const DEPLOYMENT: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: {name: other}
spec: {selector: {matchLabels: {app: other}}, template: {metadata: {labels: {app: other}}, spec: {containers: [{name: c, image: i}]}}}
";

/// The commands as a new user would type them. `FILE` and `EXAMPLE` are replaced by files; a command that ends with `&` watches while
/// the next one runs.
const COMMANDS: &[&str] = &[
    "api-resources --api-group=apps.kruise.io",
    "explain asts.spec.replicas",
    "explain sts.spec.updateStrategy",
    "explain pod.spec.readinessGates",
    "auth can-i create statefulsets",
    "get sts",
    "apply -f FILE --dry-run=server",
    "apply -f FILE",
    "rollout status sts/native --timeout=60s",
    "wait pod/native-1 --for=condition=Ready --timeout=60s",
    "get sts,pods -l app=native",
    "get pods -l app=native -o wide",
    "get pods -l app=native -o name",
    "get all -l app=native",
    "get sts native -o yaml",
    "get svc native -o json",
    "get sts native -o jsonpath={.spec.replicas}/{.status.readyReplicas}/{.status.currentRevision}",
    "get pods -o custom-columns=NAME:.metadata.name,PHASE:.status.phase --sort-by=.metadata.name",
    "get pods --field-selector=status.phase=Running -o name",
    "diff -f FILE",
    "edit sts native",
    "rollout status sts/native --timeout=60s",
    "get sts native -w --request-timeout=60s -o custom-columns=NAME:.metadata.name,WANTED:.spec.replicas,READY:.status.readyReplicas &",
    "scale sts native --replicas=4",
    "rollout status sts/native --timeout=60s",
    "scale sts native --replicas=2 --current-replicas=7",
    "set image sts/native web=web:2.0",
    "rollout status sts/native --timeout=60s",
    "rollout history sts/native",
    "rollout undo sts/native",
    "rollout status sts/native --timeout=60s",
    "get controllerrevisions -o custom-columns=NAME:.metadata.name,REVISION:.revision",
    "apply --server-side -f EXAMPLE",
    "wait asts/web --for=jsonpath={.status.readyReplicas}=3 --timeout=60s",
    "get asts,pvc",
    "get asts web -o yaml",
    "patch asts web --type=merge -p {\"spec\":{\"template\":{\"spec\":{\"terminationGracePeriodSeconds\":5}}}}",
    "patch asts web --type=merge -p {\"spec\":{\"replicas\":-1}}",
    "patch asts web --type=json -p [{\"op\":\"replace\",\"path\":\"/spec/replicas\",\"value\":2}]",
    "patch sts native -p {\"spec\":{\"template\":{\"spec\":{\"terminationGracePeriodSeconds\":7}}}}",
    "rollout status sts/native --timeout=60s",
    "scale sts native --replicas=1",
    "rollout status sts/native --timeout=60s",
    "wait sts/native --for=jsonpath={.status.replicas}=1 --timeout=60s",
    "describe sts native",
    "events --for statefulset/native",
    "get events --field-selector=involvedObject.name=native,reason=SuccessfulCreate -o custom-columns=TYPE:.type,MESSAGE:.message",
    "label pod native-0 tier=front",
    "annotate sts native note=hello",
    "get pod native-0 -L tier,app,controller-revision-hash --no-headers",
    "create configmap conf --from-literal=k=v",
    "get cm conf -o yaml",
    "create secret generic word --from-literal=p=w",
    "describe secret word",
    "create namespace team",
    "get ns team",
    "delete ns team",
    "delete pod native-0",
    "wait pod/native-0 --for=condition=Ready --timeout=60s",
    "delete -f FILE",
    "get sts native",
    "delete asts web --wait=false",
];

/// What prints lines in any order; events of one second are among them.
const UNORDERED: &[&str] = &["describe sts ", "events ", "get events ", "get controllerrevisions "];

/// What a simulation cannot do, and words of the sentence that says so.
const REFUSED: &[(&str, &str)] = &[
    ("logs lone", "run no containers"),
    ("exec lone -- true", "run no containers"),
    ("attach lone", "run no containers"),
    ("port-forward lone 8080:80", "listen on no ports"),
    (
        "apply -f DEPLOYMENT",
        "no matches for kind \"Deployment\" in version \"apps/v1\"",
    ),
    ("get deployments", "doesn't have a resource type \"deployments\""),
    (
        "get --raw /apis/apps/v1/namespaces/default/deployments",
        "does not serve deployments",
    ),
];

/// A control plane, and kubectl for it.
struct Side<'s> {
    kubectl: &'s Path,
    kubeconfig: &'s Path,
    files: &'s [(&'s str, PathBuf)],
}

impl Side<'_> {
    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(self.kubectl);
        let arguments = line.split(' ').map(|argument| {
            let file = self.files.iter().find(|(name, _)| *name == argument);
            file.map_or_else(|| argument.to_owned(), |(_, path)| path.display().to_string())
        });
        command
            .arg("--kubeconfig")
            .arg(self.kubeconfig)
            .args(arguments)
            // What `edit` opens: an editor that changes the number of replicas and leaves.
            .env("KUBE_EDITOR", "sed -i -e 0,/replicas:.2/{/replicas:.2/s/2/3/}")
            // `diff` prints names of temporary files; which lines differ is what counts.
            .env("KUBECTL_EXTERNAL_DIFF", "diff -N")
            .stdin(Stdio::null());
        command
    }

    /// Runs a command, and says what it printed and how it ended.
    fn run(&self, line: &str) -> String {
        let output = self.command(line).output().expect("kubectl runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let code = output.status.code().unwrap_or(-1);
        let said = normal(&format!("{}{}[{code}]", text(&output.stdout), text(&output.stderr)));
        if UNORDERED.iter().any(|start| line.starts_with(start)) {
            sorted(&said)
        } else {
            said
        }
    }

    /// Starts a command that watches; the first line that it prints says that it does.
    fn watch(&self, line: &str) -> Watch {
        let mut child = self.command(line).stdout(Stdio::piped()).spawn().expect("kubectl runs");
        let out = BufReader::new(child.stdout.take().expect("its output is read"));
        let mut watch = Watch {
            child,
            out,
            printed: String::new(),
        };
        watch.read_line();
        watch
    }
}

/// A command that watches.
struct Watch {
    child: Child,
    out: BufReader<ChildStdout>,
    printed: String,
}

impl Watch {
    /// Reads a line, and says how long it is; 0 at the end.
    fn read_line(&mut self) -> usize {
        self.out.read_line(&mut self.printed).expect("it can be read")
    }

    /// Reads on until it has printed this, or has ended by itself, and says what changed.
    fn end(mut self, last: &str) -> String {
        while !normal(&self.printed).ends_with(last) && self.read_line() > 0 {}
        // It may have ended by itself.
        let _ = self.child.kill();
        self.child.wait().expect("it has ended");
        changes(&normal(&self.printed))
    }
}

/// Runs the commands of one side in their order; what the watches saw comes after all others.
fn play(side: &Side<'_>) -> Vec<(&'static str, String)> {
    let mut heard = Vec::new();
    let mut watch = None;
    for line in COMMANDS {
        if let Some(watching) = line.strip_suffix(" &") {
            watch = Some((*line, side.watch(watching)));
            continue;
        }
        println!("$ kubectl {line}");
        heard.push((*line, side.run(line)));
        if line.starts_with("rollout status")
            && let Some((line, watch)) = watch.take()
        {
            heard.push((line, watch.end("native 4 4")));
        }
    }
    heard
}

fn write(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, text).expect("a manifest can be written");
    path
}

#[tokio::test]
async fn kubectl_prints_the_same_against_the_playground() {
    let cluster = Cluster::disposable("e2e-playground")
        .nodes(3)
        .without_statefulset_controller()
        .start()
        .expect("a cluster");
    let api = Api::connect(cluster.kubeconfig_path()).await;
    suite::install_crds(&api, std::convert::identity).await;
    suite::schemas_published(&api).await;
    let manager = Manager::alone(cluster.kubeconfig_path());
    let directory = cluster.kubeconfig_path().parent().expect("a directory").to_owned();
    let files = [
        ("FILE", write(&directory, "native.yaml", NATIVE)),
        ("DEPLOYMENT", write(&directory, "deployment.yaml", DEPLOYMENT)),
        (
            "EXAMPLE",
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/web.yaml"),
        ),
    ];
    let playground = Playground::start(&directory, &[]);
    let kubectl = cluster.kubectl_path();
    let side = |kubeconfig| Side {
        kubectl: &kubectl,
        kubeconfig,
        files: &files,
    };
    let (real, simulated) = (side(cluster.kubeconfig_path()), side(playground.kubeconfig()));
    let mut differences = Vec::new();
    for ((line, real), (_, simulated)) in play(&real).into_iter().zip(play(&simulated)) {
        if real != simulated {
            differences.push(format!(
                "$ kubectl {line}\n--- real\n{real}\n--- playground\n{simulated}"
            ));
        }
    }
    simulated.run("run lone --image=web:1.0 --restart=Never");
    simulated.run("wait pod/lone --for=condition=Ready --timeout=60s");
    for (line, words) in REFUSED {
        let said = simulated.run(line);
        if !said.contains(words) || said.ends_with("[0]") {
            differences.push(format!("$ kubectl {line}\n{said}"));
        }
    }
    drop(manager);
    println!(
        "{} commands, {} with differences; {} refused by name",
        COMMANDS.len(),
        differences.len(),
        REFUSED.len()
    );
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
}
