//! What was typed. One source for parsing, `--help` and completions.

mod agent;
mod gates;
mod installing;
mod openkruise;

pub use agent::AgentArgs;
pub use gates::GateArgs;
pub use installing::{InstallArgs, MigrateArgs, MigrateTo, PullPolicy, UninstallArgs};
pub use openkruise::OpenKruiseFlags;

use crate::target::Target;
use clap::{Parser, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Controllers for stateful workloads on Kubernetes: native StatefulSets and OpenKruise's Advanced StatefulSets.
#[derive(Debug, Parser)]
#[command(name = "flotilla", version, propagate_version = true, arg_required_else_help = true, after_help = EXIT_CODES)]
pub struct Args {
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Documented once, shown by every command.
const EXIT_CODES: &str = "\
Exit codes:
  0  done; for `why`: nothing is waited for; for `rollout status`: the rollout is complete; for `plan`: no pod is disrupted
  1  it failed, or the command line could not be understood; the message says what was attempted and what to do next;
     `plan`: a change would be refused, or cannot be carried out and disrupts nothing; something that could touch pods is not known, or
     something that new pods need is missing: it is named
  2  `plan`: pods would be disrupted (deleted, replaced or updated), or claims removed with their data
  3  `why`: something is waited for; `rollout status`: not complete (with --watch=false, or when --timeout-seconds has passed)";

/// What a plan knows, and what it takes for granted.
const PLAN: &str = "\
What is looked at:
  The sets, pods, claims and revisions of the namespaces; quotas, and what limit ranges fill in and bound; which nodes are silent, and the labels,
  taints and size of all, and what other pods take of them; from where volumes of claims are reached; whether service accounts, priority, storage and runtime classes, claims, config maps and secrets exist that new pods refer to. What may not be read is
  named, and taken to be as it should be.
What is taken for granted:
  New pods start and become ready, in a fixed time each; what happens if they do not is told beside it. Claims find volumes
  of the size that they ask for, and config maps and secrets have the keys that are read.
  Images that fail nowhere now can be pulled. No webhook or policy of somebody else refuses or changes new pods, unless
  the set says that it does already. Nobody else changes anything meanwhile, and a manager runs.";

/// What to expect of a playground.
const PLAYGROUND: &str = "\
What is there:
  Sets of both kinds with their pods, claims and revisions; Services, ConfigMaps, Secrets, ServiceAccounts, Events, Leases, Nodes,
  Namespaces, StorageClasses (standard grows, fixed does not), PersistentVolumes, ResourceQuotas, LimitRanges, PriorityClasses,
  PodDisruptionBudgets, and whatever a CustomResourceDefinition adds. Scheduler, kubelets, volume binder, garbage collector and
  disruption controller are simulated. Other kinds (Deployments, Jobs, Ingresses, roles, webhooks, ...) are refused by name.
  Everybody may do everything; nothing listens behind a Service.

Pods run no containers, so that logs, exec and port-forward have nothing to show. They behave as their annotations say:
  sim.flotilla.rs/start: 5s         ready this long after the start
  sim.flotilla.rs/stop: 5s          gone this long after the deletion
  sim.flotilla.rs/crash: \"true\"     never gets up: CrashLoopBackOff
  sim.flotilla.rs/unready: \"true\"   runs, and is not ready
  sim.flotilla.rs/fail: REASON      ends as Failed; succeed: ends as Succeeded
An image with the tag `broken` cannot be pulled.

Try:
  flotilla playground --demo
  flotilla playground --speed 10 --fail node-2 --at 30s
  flotilla playground --save mine.json          and later: --load mine.json";

/// Longer than the API server itself takes for a request: whoever waits on waits for nobody.
pub const REQUEST_TIMEOUT_SECONDS: u64 = 65;

/// How to reach the cluster. Without any of these: the service account inside a pod, or else the current kubeconfig.
#[derive(Clone, Debug, clap::Args)]
pub struct ClusterArgs {
    /// Kubeconfig to use instead of $KUBECONFIG or ~/.kube/config.
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// Namespace of the object; for the manager: the only namespace to work in (default: all); for install and uninstall: where the
    /// managers are (default: flotilla-system).
    #[arg(long, short, global = true, value_name = "NAME")]
    pub namespace: Option<String>,
    /// How long to wait for an answer of the API server, in seconds; the API server itself gives a request up after 60. Manager and agent
    /// have times of their own.
    #[arg(long, global = true, default_value_t = REQUEST_TIMEOUT_SECONDS, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub request_timeout_seconds: u64,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the controllers.
    Manager(Box<ManagerArgs>),
    /// Run the agent of a node: it lets updates in place change the environment that containers take from labels and annotations.
    #[command(after_long_help = agent::AGENT)]
    Agent(AgentArgs),
    /// Print the custom resource definitions, for `kubectl create -f -`. What is there already, `flotilla install --only-crds` brings up to
    /// date.
    Crds(CrdsArgs),
    /// Install Flotilla into a cluster, or bring an installation up to date.
    #[command(after_long_help = installing::INSTALL)]
    Install(InstallArgs),
    /// Take Flotilla out of a cluster.
    #[command(after_long_help = installing::UNINSTALL)]
    Uninstall(UninstallArgs),
    /// Turn a native StatefulSet into an Advanced one, or back, without restarting a pod.
    #[command(after_long_help = installing::MIGRATE)]
    Migrate(MigrateArgs),
    /// Explain what a set is waiting for, since when, by which rule, and what you can do.
    ///
    /// Computed from the cluster with the functions that the manager uses, also when no manager runs. Nothing is changed; requests
    /// that would come next are tried as dry runs, to tell whether the API server would refuse them. Fields of the set that cannot be
    /// read, and that the set or its namespace is being deleted, count as waited for. What whoever asks may not look at,
    /// beside the set, its pods, claims and revisions, is left out, with a note.
    Why(WhyArgs),
    /// Tell what a change would do before it is made: which pods, in which order and waves, what stays, what blocks.
    ///
    /// Reads the cluster with list requests only, and lets the manager's own code act on a simulated copy of it; nothing is ever
    /// written, not even as a dry run. Pods that the change makes are taken to start, unless their image fails in the cluster now; what
    /// happens if they do not become ready is told as well. With -o json: summary, disrupts, sets (each with waves, stays,
    /// lowestAvailable, availableAtEnd, revisionsMade, claims, claimsLeft, claimTemplatesChanged, blocked, isCarriedOut, ifNewPodsAreNotReady), refused, notLookedAt, unknowns, missing, isCutShort,
    /// warnings; these names are kept.
    #[command(after_long_help = PLAN)]
    Plan(PlanArgs),
    /// Try Flotilla without a cluster: a simulated control plane with nodes, and the manager, in this process.
    ///
    /// Prints the path of a kubeconfig; any kubectl can then be used. Ends with Ctrl-C.
    #[command(after_long_help = PLAYGROUND)]
    Playground(PlaygroundArgs),
    /// Follow, pause, resume, undo or restart a rollout, or list its history.
    #[command(subcommand)]
    Rollout(RolloutCommand),
}

/// Settings of the manager.
#[derive(Clone, Debug, clap::Args)]
pub struct ManagerArgs {
    /// Also control native StatefulSets (apps/v1).
    ///
    /// The cluster's kube-controller-manager must then run without its own controller:
    /// `--controllers=*,-statefulset-controller`. For the first 15 s Flotilla only watches whether somebody else writes.
    #[arg(long)]
    pub native_statefulset: bool,
    /// Write only while holding a lease, so that several managers can run and one acts.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub leader_elect: bool,
    /// Namespace of the lease. It must exist.
    #[arg(long, env = "POD_NAMESPACE", default_value = "flotilla-system", value_name = "NAME")]
    pub lease_namespace: String,
    /// Name of the lease.
    #[arg(long, default_value = "flotilla-manager", value_name = "NAME")]
    pub lease_name: String,
    /// This process in the lease; must differ between managers. Default: host name and process id.
    #[arg(long, env = "POD_NAME", value_name = "TEXT")]
    pub identity: Option<String>,
    /// Sets of one kind that are worked on at the same time.
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: u16,
    /// Most writes in flight. The manager starts lower, and backs off when the API server asks for it.
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub max_writes_in_flight: u16,
    /// Address of /metrics, /healthz and /readyz; `none` for no server.
    #[arg(long, default_value = ":8080", value_name = "ADDRESS", value_parser = address)]
    pub http_address: HttpAddress,
    /// Address of /healthz and /readyz alone, for probes of kubelets: whoever holds the connections of --http-address does not come
    /// between. `none` for no such server.
    #[arg(long, default_value = "none", value_name = "ADDRESS", value_parser = address)]
    pub health_address: HttpAddress,
    /// Where to serve admission and conversion for the API server over HTTPS; `none` for nowhere. Default: :9443 inside a pod,
    /// none outside of one.
    ///
    /// Whoever holds the lease makes the certificates and tells the API server where webhooks are served. What was registered once
    /// stays: a manager without webhooks takes nothing away.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub webhook_address: Option<HttpAddress>,
    /// Service by which the API server finds the webhooks. Default: flotilla-webhook in the lease's namespace.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = service)]
    pub webhook_service: Option<ServiceName>,
    /// Address by which the API server finds the webhooks without a service, for a manager outside of the cluster.
    #[arg(long, value_name = "https://HOST:PORT", value_parser = webhook_url, conflicts_with = "webhook_service")]
    pub webhook_url: Option<WebhookUrl>,
    /// How many seconds longer than the controllers the webhooks are served when the manager is asked to end: the API server goes on asking
    /// until it hears that another replica is the one to ask. A second signal ends it at once. Default: 5 where a service leads here, 0
    /// where the API server knows the address by --webhook-url.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=300))]
    pub webhook_linger_seconds: Option<u64>,
    /// Directory with tls.crt, tls.key and ca.crt for the webhooks, read again when they change. Without it they are made, and kept in
    /// the Secret flotilla-webhook-certificates of the lease's namespace.
    #[arg(long, value_name = "DIR")]
    pub tls_dir: Option<PathBuf>,
    /// How long serving certificates live, for tests.
    #[arg(long, value_name = "SECONDS", hide = true, value_parser = clap::value_parser!(u64).range(6..))]
    pub certificate_seconds: Option<u64>,
    /// How long to watch for other controllers before the first write to a native set, in seconds.
    #[arg(long, default_value_t = 15, value_name = "SECONDS")]
    pub observation_seconds: u64,
    /// Feature gates of OpenKruise, as NAME=BOOL,…: accepted so that existing command lines go on working.
    ///
    /// These switch something, and so do AllAlpha and AllBeta, which stand for those of a stage; of each other that is named, the log says
    /// why it is ignored. CloneSetShortHash=true labels new pods of CloneSets with the hash of their revision instead of its name.
    /// CloneSetPartitionRollback=true and RecreatePodWhenChangeVCTInCloneSetGate=true act as if each CloneSet had the annotation
    /// flotilla.rs/partition-rollback or flotilla.rs/recreate-on-claim-change. PreparingUpdateAsUpdate=true counts pods of a CloneSet that
    /// wait for their update as updated when others are made. PreDownloadImageForInPlaceUpdate=true has nodes pull the images of an update in place ahead of it, by
    /// ImagePullJobs, for CloneSets and Advanced StatefulSets. Their definition and who carries them out come from OpenKruise; with
    /// KruiseDaemon=false it stays off.
    #[arg(long, value_name = "GATES", value_delimiter = ',')]
    pub feature_gates: Vec<String>,
    /// As if each CloneSet had `scaleStrategy.excludePreparingDelete`: pods that wait for their preDelete hook do not count as replicas.
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", value_name = "BOOL")]
    pub cloneset_scaling_exclude_preparing_delete: bool,
    /// Flags of OpenKruise's manager that change nothing here.
    #[command(flatten)]
    pub openkruise: OpenKruiseFlags,
    /// What to log: a level, or directives such as `info,flotilla_engine=debug`.
    #[arg(long, env = "FLOTILLA_LOG", default_value = "info", value_name = "FILTER")]
    pub log: String,
    /// How to log.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

/// Where the manager serves HTTP, if at all.
#[derive(Clone, Copy, Debug)]
pub struct HttpAddress(pub Option<SocketAddr>);

fn address(text: &str) -> Result<HttpAddress, String> {
    if text == "none" {
        return Ok(HttpAddress(None));
    }
    // Only a port, as Go's programs take it: all addresses of either family.
    let (all, port) = ("[::]", text.strip_prefix(':'));
    match port.map_or_else(|| text.parse(), |port| format!("{all}:{port}").parse()) {
        Ok(address) => Ok(HttpAddress(Some(address))),
        Err(_) => Err(
            "must be an IP address with a port, such as 127.0.0.1:8080, a port alone, such as :8080, or none"
                .to_owned(),
        ),
    }
}

/// A service, as NAMESPACE/NAME.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

fn service(text: &str) -> Result<ServiceName, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(ServiceName {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            })
        }
        _ => Err("must be NAMESPACE/NAME, such as flotilla-system/flotilla-webhook".to_owned()),
    }
}

/// Where webhooks are found without a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookUrl {
    /// Host name or IP address.
    pub host: String,
    /// Port.
    pub port: u16,
}

fn webhook_url(text: &str) -> Result<WebhookUrl, String> {
    let parse = || {
        let url: http::Uri = text.parse().ok()?;
        let is_bare = url.path() == "/" && url.query().is_none() && url.scheme_str() == Some("https");
        let host = url.host()?.trim_start_matches('[').trim_end_matches(']');
        (is_bare && !host.is_empty()).then(|| WebhookUrl {
            host: host.to_owned(),
            port: url.port_u16().unwrap_or(443),
        })
    };
    parse().ok_or_else(|| "must be https://HOST:PORT without a path: the API server speaks nothing else".to_owned())
}

/// Form of log lines.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Form of output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// How to print the definitions.
#[derive(Clone, Debug, clap::Args)]
pub struct CrdsArgs {
    /// Form of the output: text is YAML, json a list.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Output,
}

/// What to explain.
#[derive(Clone, Debug, clap::Args)]
pub struct WhyArgs {
    /// What the manager decides for all CloneSets.
    #[command(flatten)]
    pub gates: GateArgs,
    /// The set: statefulset/NAME, or statefulset.apps/NAME or statefulset.apps.kruise.io/NAME (asts/NAME) if both kinds have it, or
    /// cloneset/NAME.
    #[arg(value_name = "KIND/NAME")]
    pub target: Target,
    /// Form of the output.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Output,
    /// Who does it.
    #[command(flatten)]
    pub lease: LeaseArgs,
}

/// Where to look which manager leads.
#[derive(Clone, Debug, clap::Args)]
pub struct LeaseArgs {
    /// Namespace of the manager's lease, to tell whether a manager runs.
    #[arg(long, default_value = "flotilla-system", value_name = "NAME")]
    pub lease_namespace: String,
    /// Name of the manager's lease.
    #[arg(long, default_value = "flotilla-manager", value_name = "NAME")]
    pub lease_name: String,
}

/// What to plan.
#[derive(Clone, Debug, clap::Args)]
pub struct PlanArgs {
    /// What the manager decides for all CloneSets.
    #[command(flatten)]
    pub gates: GateArgs,
    /// The set to change: statefulset/NAME, statefulset.apps/NAME, statefulset.apps.kruise.io/NAME (asts/NAME) or cloneset/NAME.
    #[arg(value_name = "KIND/NAME", conflicts_with = "filename")]
    pub target: Option<Target>,
    /// Manifests to apply, as `kubectl apply` does, in YAML or JSON; - reads standard input.
    #[arg(long, short, value_name = "FILE")]
    pub filename: Vec<PathBuf>,
    /// Another image: CONTAINER=IMAGE, or image=IMAGE for the only container.
    #[arg(long, value_name = "CONTAINER=IMAGE", conflicts_with = "filename", value_parser = image)]
    pub set: Vec<(String, String)>,
    /// Another number of pods.
    #[arg(long, value_name = "N", conflicts_with = "filename", value_parser = clap::value_parser!(i64).range(0..=i64::from(i32::MAX)))]
    pub replicas: Option<i64>,
    /// Another partition.
    #[arg(long, value_name = "N", conflicts_with = "filename", value_parser = clap::value_parser!(i64).range(0..=i64::from(i32::MAX)))]
    pub partition: Option<i64>,
    /// Delete the set, and with it what it owns.
    #[arg(long, conflicts_with_all = ["filename", "set", "replicas", "partition"])]
    pub delete: bool,
    /// Follow the change to its end, however many pods there are.
    ///
    /// Without it a plan answers within seconds: of a change to many thousand pods it tells the beginning, says that the rest is left
    /// out, and ends with exit code 1.
    #[arg(long)]
    pub to_the_end: bool,
    /// Look at what `flotilla playground --save` wrote instead of a cluster.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kubeconfig", "context"])]
    pub from: Option<PathBuf>,
    /// Who does it.
    #[command(flatten)]
    pub lease: LeaseArgs,
    /// Form of the output.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Output,
}

fn image(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((container, image)) if !container.is_empty() && !image.is_empty() => {
            Ok((container.to_owned(), image.to_owned()))
        }
        _ => Err("must be CONTAINER=IMAGE, or image=IMAGE for the only container".to_owned()),
    }
}

/// What to play with.
#[derive(Clone, Debug, clap::Args)]
pub struct PlaygroundArgs {
    /// How many nodes there are.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub nodes: u16,
    /// Port of 127.0.0.1 to serve on; 0 takes a free one.
    #[arg(long, default_value_t = 0, value_name = "PORT")]
    pub port: u16,
    /// Nodes take so many times less time for what they do.
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR", value_parser = speed)]
    pub speed: f64,
    /// Roll an example out, tell what happens, and end.
    #[arg(long)]
    pub demo: bool,
    /// Something that is to fail: node-2 (for a minute), or pod/web-1. Needs an --at of its own.
    #[arg(long, value_name = "WHAT")]
    pub fail: Vec<flotilla_playground::Trouble>,
    /// When it is to fail, counted from the start, such as 30s.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub at: Vec<std::time::Duration>,
    /// Write everything into this file at the end.
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Go on with what was saved.
    #[arg(long, value_name = "FILE", conflicts_with = "nodes")]
    pub load: Option<PathBuf>,
    /// Where to write the kubeconfig. Default: a file for this process in the directory for temporary files.
    #[arg(long, value_name = "FILE")]
    pub write_kubeconfig: Option<PathBuf>,
}

fn speed(text: &str) -> Result<f64, String> {
    let factor: f64 = text.parse().map_err(|_| "must be a number such as 10".to_owned())?;
    if (0.01..=1000.0).contains(&factor) {
        Ok(factor)
    } else {
        Err("must be between 0.01 and 1000".to_owned())
    }
}

fn moment(text: &str) -> Result<std::time::Duration, String> {
    let wrong = || "must be a time such as 30s or 2m".to_owned();
    let (number, unit) = text.split_at(text.len() - text.chars().last().map_or(0, char::len_utf8));
    let number: u64 = number.parse().map_err(|_| wrong())?;
    match unit {
        "s" => Ok(std::time::Duration::from_secs(number)),
        "m" => Ok(std::time::Duration::from_secs(60 * number)),
        _ => Err(wrong()),
    }
}

/// Verbs about rollouts.
#[derive(Debug, Subcommand)]
pub enum RolloutCommand {
    /// Show how far a rollout is, until it is complete.
    Status(RolloutStatusArgs),
    /// Stop replacing pods.
    Pause(RolloutTarget),
    /// Go on replacing pods.
    Resume(RolloutTarget),
    /// Go back to an earlier revision.
    Undo(RolloutUndoArgs),
    /// Replace all pods with the same template, as the update strategy does it. Refused, with what to do instead, where it replaces none: under
    /// OnDelete, and where pods are changed in place.
    Restart(RolloutTarget),
    /// List the revisions.
    History(RolloutTarget),
}

/// The set that a verb is about.
#[derive(Clone, Debug, clap::Args)]
pub struct RolloutTarget {
    /// The set: statefulset/NAME, statefulset.apps/NAME, statefulset.apps.kruise.io/NAME (asts/NAME) or cloneset/NAME.
    #[arg(value_name = "KIND/NAME")]
    pub target: Target,
    /// Form of the output.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Output,
}

/// Arguments of `rollout status`.
#[derive(Clone, Debug, clap::Args)]
pub struct RolloutStatusArgs {
    /// The set.
    #[command(flatten)]
    pub of: RolloutTarget,
    /// Keep watching until it is complete.
    #[arg(long, short, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub watch: bool,
    /// Give up after this many seconds; 0 waits for ever.
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    pub timeout_seconds: u64,
}

/// Arguments of `rollout undo`.
#[derive(Clone, Debug, clap::Args)]
pub struct RolloutUndoArgs {
    /// The set.
    #[command(flatten)]
    pub of: RolloutTarget,
    /// The revision's number, as `rollout history` lists it; 0 is the one before the present.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub to_revision: i64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn addresses_parse_or_say_why() {
        assert!(address("127.0.0.1:80").unwrap().0.is_some());
        assert!(address("none").unwrap().0.is_none());
        assert!(address("localhost").unwrap_err().contains("127.0.0.1:8080"));
    }

    #[test]
    fn places_of_webhooks_parse_or_say_why() {
        let parsed = |text: &str| webhook_url(text).map(|url| (url.host, url.port));
        assert_eq!(parsed("https://127.0.0.1:9443"), Ok(("127.0.0.1".to_owned(), 9443)));
        assert_eq!(parsed("https://[::1]:9443/"), Ok(("::1".to_owned(), 9443)));
        assert_eq!(
            parsed("https://hooks.example.test"),
            Ok(("hooks.example.test".to_owned(), 443))
        );
        for wrong in [
            "http://127.0.0.1:9443",
            "127.0.0.1:9443",
            "https://a/path",
            "https://a?b",
            "https://",
            "",
        ] {
            assert!(parsed(wrong).unwrap_err().contains("https://HOST:PORT"), "{wrong}");
        }
        assert_eq!(service("a/b").unwrap().name, "b");
        for wrong in ["a", "/b", "a/", "a/b/c", ""] {
            assert!(service(wrong).unwrap_err().contains("NAMESPACE/NAME"), "{wrong}");
        }
    }
}
