//! The changes.

use crate::Lab;
use crate::watcher::Watcher;
use flotilla_e2e::api::{Objects, Seen, name, text};
use flotilla_e2e::manager::binary;
use flotilla_e2e::sets::{SOON, claims, pods, ready, rolled_out, set_image};
use flotilla_e2e::suite::{self, trial};
use flotilla_e2e::{Api, Kind};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// When nothing has happened to pods for so long, nothing will: they take a second each to start and to end.
pub(crate) const QUIET: Duration = Duration::from_secs(8);

pub(crate) fn trials(lab: &Lab) -> Vec<Trial> {
    let mut trials = Vec::new();
    macro_rules! story {
        ($name:ident) => {
            let lab = lab.clone();
            let namespace = format!("plan-{}", stringify!($name).replace('_', "-"));
            trials.push(trial(
                format!("plan::{}", stringify!($name)),
                move || async move {
                    let api = suite::enter(&lab.admin, &namespace).await;
                    let story = Story {
                        api,
                        lab,
                        ns: namespace,
                        name: stringify!($name),
                    };
                    $name(story).await;
                },
            ));
        };
    }
    story!(scale_out);
    story!(scale_in);
    story!(image_with_partition);
    story!(budget_of_three);
    story!(unordered_with_priorities);
    story!(reserve_an_ordinal);
    story!(rollback);
    story!(broken_image_that_blocks);
    story!(claim_template);
    story!(paused);
    story!(deletion);
    story!(bad_input);
    trials
}

/// A namespace in which changes are planned, and made.
pub(crate) struct Story {
    pub(crate) api: Api,
    pub(crate) lab: Lab,
    pub(crate) ns: String,
    pub(crate) name: &'static str,
}

/// Runs `flotilla plan` as a user, with a namespace if one is given.
fn plan(kubeconfig: &Path, ns: Option<&str>, args: &[&str], input: &str) -> Output {
    let mut child = Command::new(binary())
        .arg("plan")
        .args(args)
        .args(["--kubeconfig".as_ref(), kubeconfig.as_os_str()])
        .args(ns.into_iter().flat_map(|ns| ["--namespace", ns]))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("flotilla runs");
    let mut stdin = child.stdin.take().expect("its input is a pipe");
    // It may end without having read what it does not need.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

/// More events than any of these changes makes.
const EVENTS_MAX: usize = 10_000;

/// Waves of a plan, in the words of the watcher.
pub(crate) fn waves(set: &Value) -> Vec<BTreeSet<String>> {
    let step = |step: &Value| format!("{} {}", text(step, "/action"), text(step, "/pod"));
    let steps = |wave: &Value| wave["steps"].as_array().into_iter().flatten().map(step).collect();
    set["waves"].as_array().into_iter().flatten().map(steps).collect()
}

/// A set whose pods take a second each to start and to end.
fn manifest(kind: Kind, replicas: i64, change: impl FnOnce(&mut Value)) -> Value {
    let mut set = kind.manifest("web", replicas);
    set["spec"]["template"]["metadata"]["annotations"] =
        json!({"sim.flotilla.rs/start": "1s", "sim.flotilla.rs/stop": "1s"});
    change(&mut set["spec"]);
    set
}

impl Story {
    async fn create(&self, kind: Kind, set: &Value) {
        self.api.create(&kind.sets(&self.ns), set).await;
        let count = set["spec"]["replicas"].as_u64().unwrap_or(1);
        ready(&self.api, &self.ns, usize::try_from(count).expect("a few")).await;
        rolled_out(&self.api, kind, &self.ns, "web").await;
    }

    /// Plans as somebody who may do everything, for programs and for people; returns the plan, and how the command ended.
    pub(crate) fn planned(&self, args: &[&str], input: &str) -> (Value, Option<i32>) {
        let (planner, ns) = (&self.lab.planner, Some(self.ns.as_str()));
        let output = plan(planner, ns, &[args, &["-o", "json"]].concat(), input);
        let said = String::from_utf8_lossy(&output.stdout);
        let failed = String::from_utf8_lossy(&output.stderr);
        let answer: Value = serde_json::from_str(&said).unwrap_or_else(|why| panic!("{why}: {said}{failed}"));
        let people = plan(planner, ns, args, input);
        println!("[{}]\n{}", self.name, String::from_utf8_lossy(&people.stdout));
        (answer, output.status.code())
    }

    /// The plan of one set, of which everything is known.
    fn plan(&self, args: &[&str], input: &str) -> Value {
        let (answer, code) = self.planned(args, input);
        let expected = if answer["disrupts"] == true { 2 } else { 0 };
        assert_eq!(code, Some(expected), "{answer:#}");
        answer
    }

    /// Makes a change while looking on, until nothing happens any more: what was seen, and the pods that are there then.
    pub(crate) async fn watched(&self, quiet: Duration, make: impl Future<Output = ()>) -> (Watcher, Objects) {
        let collection = format!("{}?labelSelector=app%3Dweb", pods(&self.ns));
        let (tell, mut told) = tokio::sync::mpsc::channel::<(Objects, Option<Seen>)>(EVENTS_MAX);
        let api = self.api.clone();
        let looking = tokio::spawn(async move {
            let send =
                |objects: &Objects, seen: Option<&Seen>| tell.try_send((objects.clone(), seen.cloned())).is_err();
            api.follow(&collection, send).await;
        });
        let (mut last, _) = told.recv().await.expect("the watch begins with a list");
        let mut watcher = Watcher::new(&last);
        make.await;
        while let Ok(Some((objects, seen))) = tokio::time::timeout(quiet, told.recv()).await {
            let seen = seen.expect("the watch has not begun again");
            watcher.see(&seen, &objects);
            last = objects;
        }
        looking.abort();
        (watcher, last)
    }

    /// Makes the change while looking on, and holds what is seen against the plan.
    async fn holds(&self, plan: &Value, make: impl Future<Output = ()>) {
        let set = &plan["sets"][0];
        let (watcher, _) = self.watched(QUIET, make).await;
        println!(
            "[{}] planned: {:?}, lowest {}; seen: {:?}, lowest {}",
            self.name,
            waves(set),
            set["lowestAvailable"]["pods"],
            watcher.waves(),
            watcher.lowest()
        );
        assert_eq!(watcher.waves(), waves(set), "waves, planned on the right");
        assert_eq!(
            json!(watcher.lowest()),
            set["lowestAvailable"]["pods"],
            "lowest availability"
        );
        assert_eq!(
            json!(watcher.available()),
            set["availableAtEnd"],
            "availability at the end"
        );
    }

    async fn image(&self, kind: Kind, image: &str) {
        set_image(&self.api, &kind.set(&self.ns, "web"), image).await;
    }

    async fn patch(&self, kind: Kind, body: &Value) {
        self.api.patch(&kind.set(&self.ns, "web"), body).await;
    }

    /// Blocks of a plan: what is waited for at the end.
    fn blocked(plan: &Value) -> Vec<(String, String)> {
        let blocked = plan["sets"][0]["blocked"].as_array().cloned().unwrap_or_default();
        let pair = |b: &Value| (text(b, "/subject").to_owned(), text(b, "/cause").to_owned());
        blocked.iter().map(pair).collect()
    }
}

async fn scale_out(s: Story) {
    s.create(Kind::Native, &manifest(Kind::Native, 2, |_| {})).await;
    let plan = s.plan(&["sts/web", "--replicas", "5"], "");
    assert_eq!(plan["disrupts"], false);
    s.holds(&plan, s.patch(Kind::Native, &json!({"spec": {"replicas": 5}})))
        .await;
}

async fn scale_in(s: Story) {
    s.create(Kind::Native, &manifest(Kind::Native, 4, |_| {})).await;
    let plan = s.plan(&["sts/web", "--replicas", "1"], "");
    s.holds(&plan, s.patch(Kind::Native, &json!({"spec": {"replicas": 1}})))
        .await;
}

async fn image_with_partition(s: Story) {
    let partition = |spec: &mut Value| spec["updateStrategy"] = json!({"rollingUpdate": {"partition": 2}});
    s.create(Kind::Native, &manifest(Kind::Native, 4, partition)).await;
    let plan = s.plan(&["sts/web", "--set", "image=app:v2"], "");
    assert_eq!(plan["sets"][0]["stays"][0]["pods"], json!(["web-0", "web-1"]));
    s.holds(&plan, s.image(Kind::Native, "app:v2")).await;
}

async fn budget_of_three(s: Story) {
    let three = |spec: &mut Value| {
        spec["podManagementPolicy"] = json!("Parallel");
        spec["updateStrategy"] = json!({"rollingUpdate": {"maxUnavailable": 3}});
    };
    s.create(Kind::Advanced, &manifest(Kind::Advanced, 8, three)).await;
    let plan = s.plan(&["asts/web", "--set", "main=app:v2"], "");
    assert_eq!(plan["sets"][0]["waves"].as_array().map(Vec::len), Some(3));
    s.holds(&plan, s.image(Kind::Advanced, "app:v2")).await;
}

async fn unordered_with_priorities(s: Story) {
    let by_index = |index: &str| json!({"matchLabels": {"apps.kubernetes.io/pod-index": index}});
    let priorities = |spec: &mut Value| {
        spec["podManagementPolicy"] = json!("Parallel");
        spec["updateStrategy"] = json!({"rollingUpdate": {"unorderedUpdate": {"priorityStrategy": {"weightPriority": [
            {"weight": 50, "matchSelector": by_index("1")},
            {"weight": 20, "matchSelector": by_index("3")},
        ]}}}});
    };
    s.create(Kind::Advanced, &manifest(Kind::Advanced, 5, priorities)).await;
    let plan = s.plan(&["asts/web", "--set", "image=app:v2"], "");
    assert_eq!(plan["sets"][0]["waves"][0]["steps"][0]["pod"], "web-1");
    s.holds(&plan, s.image(Kind::Advanced, "app:v2")).await;
}

async fn reserve_an_ordinal(s: Story) {
    let set = manifest(Kind::Advanced, 3, |_| {});
    s.create(Kind::Advanced, &set).await;
    let reserving = manifest(Kind::Advanced, 3, |spec| spec["reserveOrdinals"] = json!([1]));
    let plan = s.plan(&["-f", "-"], &reserving.to_string());
    s.holds(&plan, s.patch(Kind::Advanced, &reserving)).await;
}

async fn rollback(s: Story) {
    s.create(Kind::Native, &manifest(Kind::Native, 3, |_| {})).await;
    s.image(Kind::Native, "app:v2").await;
    rolled_out(&s.api, Kind::Native, &s.ns, "web").await;
    let plan = s.plan(&["sts/web", "--set", "image=app:v1"], "");
    assert_eq!(
        plan["sets"][0]["revisionsMade"],
        json!([]),
        "the revision is there still"
    );
    s.holds(&plan, s.image(Kind::Native, "app:v1")).await;
}

async fn broken_image_that_blocks(s: Story) {
    // Somebody has tried the image before.
    let tried = json!({
        "metadata": {"name": "tried"},
        "spec": {"containers": [{"name": "main", "image": "app:broken"}]},
    });
    s.create(Kind::Native, &manifest(Kind::Native, 3, |_| {})).await;
    s.api.create(&pods(&s.ns), &tried).await;
    let backs_off = |all: &Objects| all["tried"].to_string().contains("ImagePullBackOff");
    s.api
        .until(&pods(&s.ns), SOON, "the image is known to be broken", backs_off)
        .await;
    let plan = s.plan(&["sts/web", "--set", "image=app:broken"], "");
    let blocked = Story::blocked(&plan);
    assert!(
        blocked.contains(&("web-2".into(), "ContainerCannotStart".into())),
        "{blocked:?}"
    );
    s.holds(&plan, s.image(Kind::Native, "app:broken")).await;
}

async fn claim_template(s: Story) {
    let with_claims = |size: &'static str, image: &'static str| {
        move |spec: &mut Value| {
            spec["volumeClaimUpdateStrategy"] = json!({"type": "OnPodRollingUpdate"});
            spec["volumeClaimTemplates"] = json!([{
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "standard", "resources": {"requests": {"storage": size}}},
            }]);
            spec["template"]["spec"]["containers"][0]["image"] = json!(image);
        }
    };
    s.create(
        Kind::Advanced,
        &manifest(Kind::Advanced, 3, with_claims("1Gi", "app:v1")),
    )
    .await;
    let bigger = manifest(Kind::Advanced, 3, with_claims("2Gi", "app:v2"));
    let plan = s.plan(&["-f", "-"], &bigger.to_string());
    s.holds(&plan, s.patch(Kind::Advanced, &bigger)).await;
    let expanded = plan["sets"][0]["claims"].as_array().cloned().unwrap_or_default();
    let planned: BTreeSet<String> = expanded
        .iter()
        .map(|c| format!("{} {}", text(c, "/action"), text(c, "/claim")))
        .collect();
    let is_bigger = |claim: &&Value| text(claim, "/spec/resources/requests/storage") == "2Gi";
    let all = s.api.list(&claims(&s.ns)).await;
    let seen: BTreeSet<String> = all
        .values()
        .filter(is_bigger)
        .map(|c| format!("expand {}", name(c)))
        .collect();
    assert_eq!(seen, planned);
    assert_eq!(seen.len(), 3);
}

async fn paused(s: Story) {
    let paused = |spec: &mut Value| spec["updateStrategy"] = json!({"rollingUpdate": {"paused": true}});
    s.create(Kind::Advanced, &manifest(Kind::Advanced, 2, paused)).await;
    let plan = s.plan(&["asts/web", "--set", "image=app:v2"], "");
    assert_eq!(plan["disrupts"], false);
    assert_eq!(
        plan["sets"][0]["stays"][0]["rule"],
        "updateStrategy.rollingUpdate.paused"
    );
    s.holds(&plan, s.image(Kind::Advanced, "app:v2")).await;
}

async fn deletion(s: Story) {
    s.create(Kind::Native, &manifest(Kind::Native, 3, |_| {})).await;
    let plan = s.plan(&["sts/web", "--delete"], "");
    let set = Kind::Native.set(&s.ns, "web");
    s.holds(&plan, s.api.delete(&set, false)).await;
}

/// One sentence each, exit code 1, and nothing on standard output.
async fn bad_input(s: Story) {
    s.create(Kind::Native, &manifest(Kind::Native, 1, |_| {})).await;
    let refuses = |kubeconfig: &Path, ns: Option<&str>, args: &[&str], input: &str, words: &[&str]| {
        let output = plan(kubeconfig, ns, args, input);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        println!("[bad_input] {args:?}: {}", said.lines().next().unwrap_or_default());
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(output.stdout.is_empty(), "{args:?}: {said}");
        for word in words {
            assert!(said.contains(word), "{args:?}: {word:?} is not in: {said}");
        }
    };
    let says = |kubeconfig: &Path, args: &[&str], input: &str, words: &[&str]| {
        refuses(kubeconfig, Some(s.ns.as_str()), args, input, words);
    };
    let (planner, nobody) = (&s.lab.planner, &s.lab.nobody);
    says(planner, &["-f", "-"], "kind: [", &["standard input, line 1, column"]);
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n";
    let named = ["Deployment web (apps/v1)", "standard input, line 1"];
    says(planner, &["-f", "-"], deployment, &named);
    let mut elsewhere = manifest(Kind::Native, 2, |_| {});
    elsewhere["metadata"]["namespace"] = json!("nowhere");
    let named = "namespace nowhere does not exist; it is named in standard input, line 1";
    // Without --namespace, which a manifest of another one contradicts.
    refuses(planner, None, &["-f", "-"], &elsewhere.to_string(), &[named]);
    says(
        planner,
        &["sts/none", "--replicas", "2"],
        "",
        &["statefulset/none was not found in namespace"],
    );
    says(planner, &["sts/web"], "", &["nothing to plan"]);
    says(
        planner,
        &["sts/web", "--delete", "--replicas", "2"],
        "",
        &["cannot be used with"],
    );
    says(
        planner,
        &["-f", "/nowhere.yaml"],
        "",
        &["/nowhere.yaml", "No such file"],
    );
    let check = format!("kubectl auth can-i list statefulsets.apps --namespace {}", s.ns);
    let missing = ["not allowed to list statefulsets.apps in namespace", &check];
    says(nobody, &["sts/web", "--replicas", "2"], "", &missing);
    let input = manifest(Kind::Native, 2, |_| {}).to_string();
    let named = [missing[0], missing[1], "; it is named in standard input, line 1"];
    says(nobody, &["-f", "-"], &input, &named);
}
