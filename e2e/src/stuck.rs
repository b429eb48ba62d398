//! Sets that are stuck, and users who take `flotilla why` at its word: they type what it advises, as it stands there.

mod open;
mod told;

pub use open::Stories;
pub use told::{Cause, Expected, cause};

use crate::api::{Api, Objects, Seen, number};
use crate::clones;
use crate::manager::binary;
use crate::sets::{Kind, SOON, claims, is_rolled_out, pods};
use crate::why::flotilla;
use futures::future::{LocalBoxFuture, select, select_all};
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Command;
use std::time::Duration;
use tokio::sync::Notify;
use told::Typed;

/// How long nothing changes of a set that is stuck.
const AT_REST: Duration = Duration::from_secs(3);
/// How long nothing happens before it is asked again.
const BETWEEN: Duration = Duration::from_secs(1);
/// How often it is asked.
const TIMES_ASKED: u32 = 3;
/// How often at most, until it says the same twice.
const ASKED_AT_MOST: u32 = 5;

/// The kinds of sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// StatefulSet of apps/v1.
    Native,
    /// StatefulSet of apps.kruise.io.
    Advanced,
    /// CloneSet.
    Clone,
}

impl Sort {
    /// A word for names.
    pub fn word(self) -> &'static str {
        match self {
            Sort::Native => "native",
            Sort::Advanced => "advanced",
            Sort::Clone => "clone",
        }
    }

    /// Path of the collection in a namespace.
    pub fn sets(self, ns: &str) -> String {
        match self {
            Sort::Native => Kind::Native.sets(ns),
            Sort::Advanced => Kind::Advanced.sets(ns),
            Sort::Clone => clones::sets(ns),
        }
    }

    /// A set of this name, as users name it.
    fn target(self, name: &str) -> String {
        let kind = match self {
            Sort::Native => "statefulset.apps",
            Sort::Advanced => "statefulset.apps.kruise.io",
            Sort::Clone => "cloneset.apps.kruise.io",
        };
        format!("{kind}/{name}")
    }

    /// The set `web` with this many pods of image `app:v1`.
    pub fn manifest(self, replicas: i64) -> Value {
        match self {
            Sort::Native => Kind::Native.manifest("web", replicas),
            Sort::Advanced => Kind::Advanced.manifest("web", replicas),
            Sort::Clone => clones::manifest(replicas),
        }
    }

    fn is_done(self, set: &Value) -> bool {
        match self {
            // Whoever deletes pods by hand is never told that an update is over.
            Sort::Native | Sort::Advanced if set["spec"]["updateStrategy"]["type"] == "OnDelete" => {
                number(set, "/status/readyReplicas") == number(set, "/spec/replicas")
                    && number(set, "/status/updatedReplicas") == number(set, "/spec/replicas")
            }
            Sort::Native | Sort::Advanced => is_rolled_out(set),
            Sort::Clone => clones::is_settled(set),
        }
    }
}

/// The template of a set.
pub fn template(set: &mut Value) -> &mut Value {
    &mut set["spec"]["template"]
}

/// The first container of its pods.
pub fn container(set: &mut Value) -> &mut Value {
    &mut set["spec"]["template"]["spec"]["containers"][0]
}

/// A set that is to be stuck, in a namespace of its own, with whoever looks after it.
pub struct Stuck {
    /// The API server.
    pub api: Api,
    /// The namespace.
    pub ns: String,
    /// Of which kind the set is.
    pub sort: Sort,
    /// The set's name.
    pub name: String,
    kubeconfig: PathBuf,
    tools: PathBuf,
}

impl Stuck {
    /// Set `web` in this namespace, for users who have this kubectl.
    ///
    /// # Panics
    /// When their tools cannot be laid out.
    pub fn new(api: Api, ns: String, sort: Sort, kubeconfig: &Path, kubectl: &Path) -> Self {
        let tools = kubeconfig.with_file_name("tools");
        std::fs::create_dir_all(&tools).expect("the cluster's directory can be written");
        let binary = binary().canonicalize().expect("the binary is there");
        for (program, name) in [(kubectl, "kubectl"), (&*binary, "flotilla")] {
            match symlink(program, tools.join(name)) {
                // Other scenarios use them, too.
                Err(error) if error.kind() != ErrorKind::AlreadyExists => panic!("link {name}: {error}"),
                _ => {}
            }
        }
        Stuck {
            api,
            ns,
            sort,
            name: "web".to_owned(),
            kubeconfig: kubeconfig.to_owned(),
            tools,
        }
    }

    /// Path of the set.
    pub fn set(&self) -> String {
        format!("{}/{}", self.sort.sets(&self.ns), self.name)
    }

    /// Path of one of its pods.
    pub fn pod(&self, name: &str) -> String {
        format!("{}/{name}", pods(&self.ns))
    }

    /// Path of a collection of the core group in its namespace.
    pub fn core(&self, resource: &str) -> String {
        format!("/api/v1/namespaces/{}/{resource}", self.ns)
    }

    /// Makes the set, changed so.
    pub async fn create(&self, replicas: i64, change: impl FnOnce(&mut Value)) {
        let mut set = self.sort.manifest(replicas);
        change(&mut set);
        self.api.create(&self.sort.sets(&self.ns), &set).await;
    }

    /// Makes it, and waits until it is as it should be.
    pub async fn start(&self, replicas: i64, change: impl FnOnce(&mut Value)) {
        self.create(replicas, change).await;
        self.done(SOON).await;
    }

    /// Changes it as users do who apply another manifest.
    pub async fn change(&self, change: impl Fn(&mut Value)) {
        loop {
            let mut set = self.api.read(&self.set()).await;
            change(&mut set);
            let body = Some(("application/json", &set));
            match self.api.send(http::Method::PUT, &self.set(), body).await {
                // The manager has written the status meanwhile.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                sent => break drop(sent.unwrap_or_else(|e| panic!("PUT {}: {e}", self.set()))),
            }
        }
    }

    /// Changes the image of its template.
    pub async fn set_image(&self, image: &str) {
        self.change(|set| container(set)["image"] = json!(image)).await;
    }

    /// Asks something of the command line tool about the set.
    ///
    /// # Panics
    /// When it fails.
    pub fn flotilla(&self, words: &[&str]) {
        let target = self.sort.target(&self.name);
        let output = flotilla(&self.kubeconfig, &self.ns, &[words, &[&target]].concat());
        assert!(output.status.success(), "{}: {words:?}: {output:?}", self.ns);
    }

    /// What `why` says now: how it ends, for programs, and for people.
    ///
    /// # Panics
    /// When the two answers differ, or no two in a row are alike.
    fn ask(&self) -> (Option<i32>, Vec<Cause>) {
        let target = self.sort.target(&self.name);
        let mut before = self.ask_for_programs(&target);
        for _ in 0..ASKED_AT_MOST {
            let lines = flotilla(&self.kubeconfig, &self.ns, &["why", &target]);
            let after = self.ask_for_programs(&target);
            // Other scenarios bring nodes, of which schedulers tell: what people were told meanwhile may be of before or after that.
            if before.0 == after.0 && told::are_alike(&before.1, &after.1) {
                let (code, causes) = &after;
                let text = String::from_utf8_lossy(&lines.stdout);
                assert!(
                    told::are_the_same(&text, causes) && lines.status.code() == *code,
                    "{}: {causes:#?}, but people are told:\n{text}",
                    self.ns
                );
                return after;
            }
            before = after;
        }
        panic!("{}: why says something else each time, at last {before:#?}", self.ns);
    }

    fn ask_for_programs(&self, target: &str) -> (Option<i32>, Vec<Cause>) {
        let output = flotilla(&self.kubeconfig, &self.ns, &["why", target, "-o", "json"]);
        let answer = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (output.status.code(), told::causes(&answer))
    }

    /// Waits until nothing of the set, of its pods and its claims has changed for this long.
    async fn at_rest(&self, time: Duration) {
        let watched = [
            pods(&self.ns),
            self.sort.sets(&self.ns),
            claims(&self.ns),
            format!("/api/v1/namespaces?fieldSelector=metadata.name%3D{}", self.ns),
        ];
        let changed = Notify::new();
        let follow = |path: &'_ String| -> LocalBoxFuture<'_, ()> {
            let (path, changed) = (path.clone(), &changed);
            let look = |_: &Objects, _: Option<&Seen>| {
                changed.notify_one();
                false
            };
            Box::pin(async move { self.api.follow(&path, look).await })
        };
        let follow_all = select_all(watched.iter().map(follow));
        let silence = async { while tokio::time::timeout(time, changed.notified()).await.is_ok() {} };
        let silence = pin!(silence);
        let ended = tokio::time::timeout(SOON, select(follow_all, silence)).await.is_ok();
        assert!(ended, "{}: something changed again and again", self.ns);
    }

    /// Waits until the set is stuck, or as it should be, and returns what this finds in the answer of `why`: then, and whenever it is asked
    /// again while nothing happens.
    async fn always<T>(&self, what: &str, is_so: impl Fn(Option<i32>, &[Cause]) -> Option<T>) -> T {
        self.at_rest(AT_REST).await;
        let mut last = None;
        for asked in 1..=TIMES_ASKED {
            let (code, causes) = self.ask();
            self.assert_harmless(&causes).await;
            let found = is_so(code, &causes);
            assert!(
                found.is_some(),
                "{}: asked {asked} times, why does not say {what}, but ends with {code:?}: {causes:#?}",
                self.ns
            );
            last = found;
            if asked < TIMES_ASKED {
                self.at_rest(BETWEEN).await;
            }
        }
        last.expect("it was asked")
    }

    /// Waits until the set is stuck. Then `why` names these causes and no others, the first of these first, and always; they are returned in
    /// the order in which they are expected.
    pub async fn told(&self, expected: &[Expected<'_>]) -> Vec<Cause> {
        let is_first = |found: &[usize]| found[0] == 0;
        self.told_in_order(expected, is_first).await
    }

    /// The same of causes of which none is the root of another.
    pub async fn told_beside(&self, expected: &[Expected<'_>]) -> Vec<Cause> {
        self.told_in_order(expected, |_| true).await
    }

    async fn told_in_order(&self, expected: &[Expected<'_>], is_right: impl Fn(&[usize]) -> bool) -> Vec<Cause> {
        let find = |_: Option<i32>, causes: &[Cause]| {
            let (places, found): (Vec<_>, Vec<_>) = told::found(expected, causes)?.into_iter().unzip();
            is_right(&places).then_some(found)
        };
        let all = self.always(&format!("{expected:#?}"), find).await;
        for cause in &all {
            println!(
                "{}\n  {}: {}\n    you can: {}\n    typed: {}",
                self.ns, cause.subject, cause.message, cause.advice, cause.command
            );
        }
        all
    }

    /// The same of one cause: of this subject, with these words in its message, and a command that begins so in its advice.
    pub async fn first(&self, subject: &str, words: &[&str], command: &str) -> Cause {
        let expected = Expected {
            subject,
            words,
            command,
        };
        self.told(&[expected]).await.swap_remove(0)
    }

    /// Whatever others have written, no command of an advice touches what is not the set's own, nor makes what the set does not ask for.
    async fn assert_harmless(&self, causes: &[Cause]) {
        let set = self.api.get(&self.set()).await.unwrap_or_default();
        let pods = self.api.list(&pods(&self.ns)).await;
        let all: Vec<&Value> = pods.values().chain([&set]).collect();
        for command in causes.iter().flat_map(|cause| told::commands(&cause.advice)) {
            let typed = Typed::of(command);
            let is_near = typed.namespace.is_none_or(|namespace| namespace == self.ns);
            let name = typed.name.unwrap_or_default();
            let is_named = || all.iter().any(|object| mentions(&object["spec"], name));
            let is_own = match (typed.verb, typed.kind) {
                _ if typed.only_looks() => true,
                ("delete" | "edit" | "label", "pod") => pods.contains_key(name),
                // Those of claim templates are named for them.
                ("edit", "pvc") => name.contains(&self.name) || is_named(),
                ("edit", "secret" | "configmap") | ("create" | "delete", _) => is_named(),
                ("edit" | "undo" | "resume", _) => name == self.name,
                _ => false,
            };
            assert!(
                is_near && is_own,
                "{}: `{command}` is none of its business: {causes:#?}",
                self.ns
            );
        }
    }

    /// Types the command that was found, and returns what it prints.
    ///
    /// # Panics
    /// When it fails.
    pub fn type_in(&self, cause: &Cause) -> String {
        // Whoever is not to edit anything ends without having done so.
        self.run(&cause.command, "false")
    }

    /// Types the `kubectl edit` that was found, and edits by this script of sed what comes up. What the user looks for there is a word of the
    /// message or of the advice.
    ///
    /// # Panics
    /// When the edit is not accepted, changes nothing, or is of something that `why` does not speak of.
    pub fn edit(&self, cause: &Cause, word: &str, script: &str) {
        let speaks = cause.message.contains(word) || cause.advice.contains(word);
        assert!(
            speaks && script.contains(word),
            "{}: nobody speaks of {word}: {cause:?}",
            self.ns
        );
        let typed = Typed::of(&cause.command);
        let name = typed.name.unwrap_or_default();
        assert_eq!(
            (typed.verb, typed.namespace),
            ("edit", Some(&*self.ns)),
            "{}",
            cause.command
        );
        let said = self.run(&cause.command, &format!("sed -i -E -e '{script}'"));
        assert!(said.contains(&format!("{name} edited")), "{}: {said}", self.ns);
    }

    fn run(&self, command: &str, editor: &str) -> String {
        let path = std::env::var("PATH").unwrap_or_default();
        let output = Command::new("sh")
            .args(["-c", command])
            .env("PATH", format!("{}:{path}", self.tools.display()))
            .env("KUBECONFIG", &self.kubeconfig)
            .env("KUBE_EDITOR", editor)
            // Another cluster may have been at this port.
            .env("KUBECACHEDIR", self.tools.join("cache"))
            .output()
            .expect("a shell");
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success(), "{}: `{command}`: {out}{err}", self.ns);
        format!("{out}{err}")
    }

    /// Waits until the set says that it is as it should be.
    async fn done(&self, within: Duration) {
        let done = |sets: &Objects| sets.get(&self.name).is_some_and(|set| self.sort.is_done(set));
        let what = format!("{} at rest", self.ns);
        self.api.until(&self.sort.sets(&self.ns), within, &what, done).await;
    }

    /// Waits until the set is as it should be, and `why` knows of nothing more.
    pub async fn mended(&self) {
        self.mended_within(SOON).await;
    }

    /// The same with a time of its own.
    pub async fn mended_within(&self, within: Duration) {
        self.done(within).await;
        let is_silent = |code: Option<i32>, causes: &[Cause]| (code == Some(0) && causes.is_empty()).then_some(());
        self.always("that all is well", is_silent).await;
    }
}

/// Whether this is a text somewhere in a value.
fn mentions(value: &Value, word: &str) -> bool {
    match value {
        Value::String(text) => text == word,
        Value::Array(items) => items.iter().any(|item| mentions(item, word)),
        Value::Object(fields) => fields.values().any(|field| mentions(field, word)),
        _ => false,
    }
}
