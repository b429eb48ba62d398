//! What was typed: installing, uninstalling, migrating.

use crate::target::Target;
use clap::ValueEnum;

/// What installing does.
pub const INSTALL: &str = "\
What it does:
  Applies the definitions, a namespace, an account with the least rights that work, a queue of its own at the API server, and the
  managers, in this order, under the field manager flotilla-install; with --agent also the agents, and before them what limits them.
  Waits until all of them are ready, or says what is in the way.
  What is there already is brought up to date; doing it twice changes nothing. Sets, and versions that a definition has and this one
  does not, are left as they are.

Try:
  flotilla install --dry-run                      what would be applied, with the reason for every right, for review or for Git
  flotilla install --yes
  flotilla install --yes --native-statefulset     native StatefulSets too
With Helm: the chart in deploy/chart/flotilla holds the same.";

/// What uninstalling does.
pub const UNINSTALL: &str = "\
In this order, so that nothing can block:
  registrations of webhooks, the managers, whatever the managers have put back meanwhile, services, rules and rights, the Secret and
  the lease; with --and-delete-objects then the sets, and the definitions last. The namespace stays: it may hold what is not ours.

Sets without a manager keep their pods, and nothing makes them anew. So it refuses while there are Advanced StatefulSets, unless told
what is to become of them: --keep-objects leaves them, and their definition, for another controller; --and-delete-objects deletes them
with their pods.";

/// What migrating does.
pub const MIGRATE: &str = "\
What it does:
  Looks whether the other kind can express the set, and, by what `flotilla plan` knows, whether any pod would be touched: then it
  refuses. Else the old object is deleted with its pods, revisions and claims left, and the new one is made with the same selector,
  template and claim templates. The controller of the new kind adopts what was left. No pod is restarted.

  How far it has come stands on the set's newest revision. Should it be interrupted, run it again: it goes on where it was.

Try:
  flotilla migrate statefulset/web --dry-run
  flotilla migrate statefulset/web                    native to Advanced, or Advanced to native
  flotilla migrate statefulset/web --retarget         and let HorizontalPodAutoscalers follow";

// Each flag is a choice of its own.
#[allow(clippy::struct_excessive_bools)]
/// What to install. The place is --namespace, flotilla-system unless told.
#[derive(Clone, Debug, clap::Args)]
pub struct InstallArgs {
    /// Print what would be applied, as YAML, and ask nothing of any cluster.
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
    /// Do it. Without this or --dry-run nothing is done.
    #[arg(long, short)]
    pub yes: bool,
    /// Image of the manager. Default: the one of this version.
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// When nodes pull the image.
    #[arg(long, value_enum, default_value_t)]
    pub image_pull_policy: PullPolicy,
    /// Secret in the namespace of the installation to pull the image with.
    #[arg(long, value_name = "SECRET")]
    pub image_pull_secret: Vec<String>,
    /// How many managers. One acts; the others stand by and take over within seconds.
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=20))]
    pub replicas: u16,
    /// Control native StatefulSets (apps/v1) too.
    ///
    /// The cluster's kube-controller-manager must then run without its own controller:
    /// `--controllers=*,-statefulset-controller`. Where it does not, Flotilla notices, and leaves the sets alone.
    #[arg(long)]
    pub native_statefulset: bool,
    /// Have nodes pull the images of an update in place ahead of it, by ImagePullJobs.
    ///
    /// Their definition, and who carries them out, come from OpenKruise; without them nothing is done.
    #[arg(long)]
    pub pre_download: bool,
    /// No admission webhooks, and none of the rights that go with them.
    #[arg(long)]
    pub without_webhooks: bool,
    /// No NetworkPolicy around managers and agents.
    #[arg(long)]
    pub without_network_policy: bool,
    /// Leave the custom resource definitions as they are.
    #[arg(long)]
    pub without_crds: bool,
    /// Nothing but the custom resource definitions: brings those up to date that are there, whoever installed the rest.
    ///
    /// Conversion, and which versions are served and stored, stay as they are; `flotilla crds` printed over them would conflict with what
    /// managers have written there.
    #[arg(long, conflicts_with_all = ["dry_run", "without_crds", "agent"])]
    pub only_crds: bool,
    /// An agent on every node, so that updates in place can change the environment that containers take from labels and annotations.
    ///
    /// It asks the container runtime through a directory of the node, /run, for which the namespace is made to allow privileged pods; the
    /// chart can name the runtime's own directory.
    #[arg(long)]
    pub agent: bool,
    /// Have the Prometheus operator collect metrics. Its definitions must be there.
    #[arg(long)]
    pub service_monitor: bool,
    /// What the managers log: a level, or directives such as `info,flotilla_engine=debug`.
    #[arg(long, default_value = "info", value_name = "FILTER")]
    pub log: String,
    /// Take over fields that belong to other field managers, such as Helm, instead of refusing.
    #[arg(long)]
    pub force_conflicts: bool,
    /// How long to wait until managers and agents are ready, in seconds; 0 does not wait.
    #[arg(long, default_value_t = 180, value_name = "SECONDS")]
    pub timeout_seconds: u64,
}

/// When nodes pull an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum PullPolicy {
    /// At every start.
    Always,
    /// Unless they have it.
    #[default]
    IfNotPresent,
    /// Never.
    Never,
}

// Which of them go together is clap's to check.
#[allow(clippy::struct_excessive_bools)]
/// What to take away. The place is --namespace, flotilla-system unless told.
#[derive(Clone, Debug, clap::Args)]
pub struct UninstallArgs {
    /// Print what would be done, and do nothing.
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
    /// Do it. Without this or --dry-run nothing is done.
    #[arg(long, short)]
    pub yes: bool,
    /// Delete all Advanced StatefulSets, with their pods, and then their definition.
    #[arg(long, conflicts_with = "keep_objects")]
    pub and_delete_objects: bool,
    /// Leave Advanced StatefulSets and their definition, although nothing will control them.
    #[arg(long)]
    pub keep_objects: bool,
    /// End the conversion of versions behind the Service of this installation, and nothing else: the Helm chart does so when a release is gone.
    #[arg(long, conflicts_with_all = ["and_delete_objects", "keep_objects"])]
    pub only_conversions: bool,
    /// How long to wait for what goes, in seconds.
    #[arg(long, default_value_t = 180, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout_seconds: u64,
}

/// A kind of set to migrate to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MigrateTo {
    /// apps/v1.
    Native,
    /// apps.kruise.io/v1beta1.
    Advanced,
}

/// What to migrate.
#[derive(Clone, Debug, clap::Args)]
pub struct MigrateArgs {
    /// The set: statefulset/NAME, statefulset.apps/NAME or statefulset.apps.kruise.io/NAME (asts/NAME).
    #[arg(value_name = "KIND/NAME")]
    pub target: Target,
    /// The kind it is to have. Default: the other one.
    #[arg(long, value_enum, value_name = "KIND")]
    pub to: Option<MigrateTo>,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Let HorizontalPodAutoscalers that name the set follow it.
    #[arg(long)]
    pub retarget: bool,
    /// How long to wait for the old object to go, in seconds.
    #[arg(long, default_value_t = 120, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout_seconds: u64,
}
