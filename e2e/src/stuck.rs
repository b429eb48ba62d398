//! Sets that are stuck, and users who take `flotilla why` at its word: they type what it advises, as it stands there.

use crate::api::{Api, Objects, number, text};
use crate::clones;
use crate::manager::binary;
use crate::sets::{Kind, SOON, claims, is_rolled_out, pods};
use crate::why::flotilla;
use futures::future::{LocalBoxFuture, select_all};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

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

/// What `why` names as a cause.
#[derive(Clone, Debug)]
pub struct Cause {
    /// Of what it is; of several that are alike, all.
    pub subject: String,
    /// What is the matter.
    pub message: String,
    /// What can be done.
    pub advice: String,
    /// What waits for it.
    pub holds_up: Vec<String>,
    /// The command of the advice that is to be typed; none yet in what was not asked for.
    pub command: String,
}

impl Cause {
    fn of(json: &Value) -> Self {
        let held = json["holdsUp"].as_array().into_iter().flatten();
        Cause {
            subject: text(json, "/subject").to_owned(),
            message: text(json, "/message").to_owned(),
            advice: text(json, "/advice").to_owned(),
            holds_up: held.filter_map(|held| held.as_str().map(str::to_owned)).collect(),
            command: String::new(),
        }
    }

    /// Whether it is of this subject, or of any if that is empty.
    fn is_of(&self, subject: &str) -> bool {
        subject.is_empty() || self.subject == subject || self.subject.split(", ").any(|one| one == subject)
    }
}

/// The commands in an advice, with comments that go with them: each follows a colon or a bracket, and ends with its clause.
fn commands(advice: &str) -> Vec<&str> {
    let starts = ["kubectl ", "flotilla "].into_iter();
    let mut starts: Vec<usize> = starts
        .flat_map(|program| advice.match_indices(program).map(|(at, _)| at))
        .filter(|at| *at == 0 || advice[..*at].ends_with(": ") || advice[..*at].ends_with('('))
        .collect();
    starts.sort_unstable();
    let of = |at: usize| {
        let rest = &advice[at..];
        let end = [rest.find("; "), rest.find(')')].into_iter().flatten().min();
        &rest[..end.unwrap_or(rest.len())]
    };
    starts.into_iter().map(of).collect()
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

    /// Follows what the set, its pods and its claims say, and what is said of them, until `is_so` holds of what `why` says then.
    async fn until(&self, what: &str, within: Duration, is_so: impl Fn(Option<i32>, &[Cause]) -> bool) -> Vec<Cause> {
        let told = RefCell::new(Vec::new());
        let target = self.sort.target(&self.name);
        let ask = || {
            let output = flotilla(&self.kubeconfig, &self.ns, &["why", &target, "-o", "json"]);
            let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let causes: Vec<Cause> = answer["causes"]
                .as_array()
                .into_iter()
                .flatten()
                .map(Cause::of)
                .collect();
            let is_over = is_so(output.status.code(), &causes);
            told.replace(causes);
            is_over
        };
        let watched = [
            pods(&self.ns),
            self.sort.sets(&self.ns),
            claims(&self.ns),
            self.core("events"),
            "/api/v1/nodes".to_owned(),
            format!("/api/v1/namespaces?fieldSelector=metadata.name%3D{}", self.ns),
        ];
        let follow = |path: &'_ String| -> LocalBoxFuture<'_, ()> {
            let (api, path) = (&self.api, path.clone());
            Box::pin(async move { api.follow(&path, |_, _| ask()).await })
        };
        let first = select_all(watched.iter().map(follow));
        let ended = tokio::time::timeout(within, first).await.is_ok();
        assert!(ended, "{}: why did not say {what}, but {:#?}", self.ns, told.borrow());
        told.into_inner()
    }

    /// Waits until what `why` puts first is of this subject, has these words, and comes with a command that begins so. An empty subject is
    /// any.
    pub async fn first(&self, subject: &str, words: &[&str], command: &str) -> Cause {
        let command_of = |cause: &Cause| {
            let all = commands(&cause.advice);
            all.into_iter().find(|own| own.starts_with(command)).map(str::to_owned)
        };
        let is_it = |cause: &Cause| {
            cause.is_of(subject) && words.iter().all(|word| cause.message.contains(word)) && command_of(cause).is_some()
        };
        let what = format!("first that {subject} has {words:?}, with `{command}`");
        let is_first = |_: Option<i32>, causes: &[Cause]| causes.first().is_some_and(is_it);
        let mut first = self.until(&what, SOON, is_first).await.swap_remove(0);
        first.command = command_of(&first).expect("it was there a moment ago");
        println!(
            "{}\n  {}: {}\n    you can: {}\n    typed: {}",
            self.ns, first.subject, first.message, first.advice, first.command
        );
        first
    }

    /// Types the command that was found, and returns what it prints.
    ///
    /// # Panics
    /// When it fails.
    pub fn type_in(&self, cause: &Cause) -> String {
        // Whoever is not to edit anything ends without having done so.
        self.run(&cause.command, "false")
    }

    /// Types the `kubectl edit` that was found, and edits by this script of sed what comes up.
    ///
    /// # Panics
    /// When the edit is not accepted, or changes nothing.
    pub fn edit(&self, cause: &Cause, script: &str) {
        let said = self.run(&cause.command, &format!("sed -i -E -e '{script}'"));
        assert!(said.contains(" edited"), "{}: {said}", self.ns);
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
        let is_silent = |code: Option<i32>, _: &[Cause]| code == Some(0);
        self.until("that all is well", within, is_silent).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_taken_as_they_stand() {
        for (advice, expected) in [
            (
                "roll back: flotilla rollout undo statefulset.apps/web -n shop",
                &["flotilla rollout undo statefulset.apps/web -n shop"][..],
            ),
            (
                "delete it: the set wants another revision: kubectl delete pod web-2 -n shop  # its claims go with it, and the data in them",
                &["kubectl delete pod web-2 -n shop  # its claims go with it, and the data in them"],
            ),
            (
                "create it: kubectl create priorityclass high --value=0; or name another (kubectl get priorityclass): kubectl edit cloneset/web -n shop",
                &[
                    "kubectl create priorityclass high --value=0",
                    "kubectl get priorityclass",
                    "kubectl edit cloneset/web -n shop",
                ],
            ),
            ("wait, or ask whoever runs flotilla there", &[]),
        ] {
            assert_eq!(commands(advice), expected);
        }
    }
}
