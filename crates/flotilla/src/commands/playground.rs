//! `flotilla playground`: a simulated control plane over HTTPS on loopback, and the manager against it through its normal client.

mod demo;

use crate::args::{
    ClusterArgs, HttpAddress, LogFormat, ManagerArgs, OpenKruiseFlags, PlaygroundArgs, REQUEST_TIMEOUT_SECONDS,
};
use crate::clock;
use crate::cluster;
use crate::commands::manager;
use crate::error::{Error, Exit};
use crate::gates::Gates;
use flotilla_engine::io::fence::Fence;
use flotilla_engine::io::manager::{ManagerOptions, run as run_manager};
use flotilla_playground::World;
use flotilla_simserver::{Clock, Service, Shared, serve};
use kube::Client;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing_subscriber::EnvFilter;

/// Serves until it is told to stop, or until the demo has ended.
pub async fn run(args: PlaygroundArgs) -> Result<Exit, Error> {
    start_logging()?;
    let shared = Shared::new(world(&args)?, Clock::new(1.0));
    let endpoint = serve(Service::new(shared.clone()), args.port)
        .await
        .map_err(|why| Error::NotPossible(why.to_string()))?;
    let time = tokio::spawn(shared.clone().run());
    let path = args.write_kubeconfig.clone().unwrap_or_else(default_kubeconfig);
    check_ours(&path)?;
    write_private(&path, &endpoint.kubeconfig(CONTEXT, "default"))?;
    say("a simulated control plane, its nodes and the manager run in this process; use it with");
    say(&format!("  export KUBECONFIG={}", path.display()));
    say("  kubectl get nodes");
    let cluster = ClusterArgs {
        kubeconfig: Some(path.clone()),
        context: None,
        namespace: None,
        request_timeout_seconds: REQUEST_TIMEOUT_SECONDS,
    };
    let managing = async {
        let ended = tokio::spawn(manage(cluster.clone())).await;
        ended.unwrap_or_else(|why| Err(Error::Manager(why.to_string())))
    };
    let outcome = if args.demo {
        tokio::select! {
            outcome = demo::run(&cluster) => outcome,
            // It hears of Ctrl-C.
            ended = managing => ended.and(Err(Error::NotPossible("the demo was interrupted".to_owned()))),
        }
    } else {
        say("Ctrl-C ends it");
        managing.await.map(|()| Exit::Done)
    };
    time.abort();
    // It is of no use any more; if somebody else has removed it, so much the better.
    let _ = std::fs::remove_file(&path);
    if let Some(file) = &args.save {
        save(&shared, file)?;
    }
    outcome
}

/// The context, cluster and user of the kubeconfig.
const CONTEXT: &str = "flotilla-playground";

/// Prints a line. A playground goes on when nobody reads what it prints any more.
fn say(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// A kubeconfig of somebody else is not written over, since it would be gone at the end.
fn check_ours(path: &Path) -> Result<(), Error> {
    match std::fs::read_to_string(path) {
        Ok(text) if !text.is_empty() && !text.contains(CONTEXT) => {
            let why = format!(
                "{} is there and was not written by a playground; name another file",
                path.display()
            );
            Err(Error::NotPossible(why))
        }
        _ => Ok(()),
    }
}

/// The world that was asked for, with the trouble that is to come.
fn world(args: &PlaygroundArgs) -> Result<World, Error> {
    let now = clock::now();
    let mut world = match &args.load {
        None => World::new(usize::from(args.nodes), args.speed, now),
        Some(file) => {
            let wrong = |why: String| Error::NotPossible(format!("failed to load {}: {why}", file.display()));
            let text = std::fs::read(file).map_err(|why| wrong(why.to_string()))?;
            let saved = serde_json::from_slice(&text).map_err(|why| wrong(why.to_string()))?;
            World::load(&saved, args.speed, now).map_err(|why| wrong(why.to_string()))?
        }
    };
    if args.fail.len() != args.at.len() {
        let (fails, ats) = (args.fail.len(), args.at.len());
        let why = format!("each --fail needs an --at of its own: there are {fails} of --fail and {ats} of --at");
        return Err(Error::NotPossible(why));
    }
    for (trouble, at) in args.fail.iter().zip(&args.at) {
        world.can_befall(trouble).map_err(Error::NotPossible)?;
        world.plan_trouble(*at, trouble.clone());
    }
    Ok(world)
}

/// The manager, as `flotilla manager` runs it.
async fn manage(cluster: ClusterArgs) -> Result<(), Error> {
    let args = ManagerArgs {
        native_statefulset: true,
        leader_elect: true,
        lease_namespace: "flotilla-system".into(),
        lease_name: "flotilla-manager".into(),
        identity: None,
        workers: 8,
        max_writes_in_flight: 64,
        http_address: HttpAddress(None),
        health_address: HttpAddress(None),
        webhook_address: None,
        webhook_service: None,
        webhook_url: None,
        webhook_linger_seconds: None,
        tls_dir: None,
        certificate_seconds: None,
        // There is nobody else.
        observation_seconds: 0,
        feature_gates: Vec::new(),
        cloneset_scaling_exclude_preparing_delete: false,
        openkruise: OpenKruiseFlags::default(),
        log: String::new(),
        log_format: LogFormat::Text,
    };
    let config = cluster::config(&cluster).await?;
    let client = Client::try_from(config).map_err(|e| Error::Config(e.to_string()))?;
    let options = ManagerOptions {
        core: manager::core_options(&args, Gates::default()),
        namespace: None,
        http_address: None,
        health_address: None,
        fence: Fence::default(),
        beside: None,
    };
    run_manager(options, manager::controllers(&args, Gates::default()), client)
        .await
        .map_err(|e| Error::Manager(e.to_string()))
}

fn start_logging() -> Result<(), Error> {
    let filter = EnvFilter::try_from_env("FLOTILLA_LOG").unwrap_or_else(|_| EnvFilter::new("error"));
    let done = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .try_init();
    done.map_err(|e| Error::NotPossible(format!("failed to start logging: {e}")))
}

fn default_kubeconfig() -> PathBuf {
    std::env::temp_dir().join(format!("flotilla-playground-{}.kubeconfig", std::process::id()))
}

/// Writes a file that only its owner may read.
fn write_private(path: &Path, text: &str) -> Result<(), Error> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let failed = |why: std::io::Error| Error::NotPossible(format!("failed to write {}: {why}", path.display()));
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(failed)
}

fn save(shared: &Arc<Shared<World>>, file: &Path) -> Result<(), Error> {
    let saved = shared.with(|world| world.save());
    write_private(file, &saved.to_string())?;
    let file = file.display();
    say(&format!(
        "saved to {file}; go on with: flotilla playground --load {file}"
    ));
    Ok(())
}
