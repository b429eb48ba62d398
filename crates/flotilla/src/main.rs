//! `flotilla`: the manager, and the words to ask it things.
//!
//! Parse, resolve, run: [`args`] holds what was typed, each command resolves it against the cluster, performs it, and returns an
//! [`Exit`].

mod args;
mod clock;
mod cluster;
mod commands;
mod error;
mod follow;
mod gates;
mod leader;
mod logging;
mod patience;
mod target;

use args::{Args, Command};
use clap::Parser;
use error::Exit;
use flotilla_model::lines::one_line;
use mimalloc::MiMalloc;
use std::process::ExitCode;

/// Controllers and webhooks make and drop many small things for each event; that of glibc took a fifth of their time, and gave memory
/// back to the system again and again.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// What shells say of a program that ended because nobody read on (128 + SIGPIPE): whoever did not hear the answer has none.
const CLOSED_PIPE: u8 = 141;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Help goes to the reader who asked for it; there is nobody to tell if even that fails.
            let _ = error.print();
            // Not clap's own 2: a pipeline must be able to tell a misspelt `plan` from one that disrupts pods.
            return if error.use_stderr() { Exit::Failed } else { Exit::Done }.into();
        }
    };
    // One thread: the decisions have one owner anyway, and handing each event and answer to another thread costs more than reading it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(run(args)),
        Err(error) => Err(error::Error::Runtime(error)),
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(error::Error::ClosedPipe) => ExitCode::from(CLOSED_PIPE),
        Err(error) => {
            // In it may stand what others have written. Our own lines go on below the first.
            let text = error.to_string();
            let lines: Vec<String> = text.lines().map(one_line).collect();
            eprintln!("flotilla: {}", lines.join("\n  "));
            Exit::Failed.into()
        }
    }
}

async fn run(args: Args) -> Result<Exit, error::Error> {
    match args.command {
        Command::Manager(manager) => commands::manager::run(&args.cluster, *manager).await,
        Command::Agent(agent) => commands::agent::run(&args.cluster, agent).await,
        Command::Crds(args) => commands::crds::run(&args),
        Command::Install(install) => commands::install::run(&args.cluster, install).await,
        Command::Uninstall(uninstall) => commands::uninstall::run(&args.cluster, uninstall).await,
        Command::Migrate(migrate) => commands::migrate::run(&args.cluster, migrate).await,
        Command::Plan(plan) => commands::plan::run(&args.cluster, plan).await,
        Command::Why(why) => commands::why::run(&args.cluster, why).await,
        Command::Playground(playground) => commands::playground::run(playground).await,
        Command::Rollout(rollout) => commands::rollout::run(&args.cluster, rollout).await,
    }
}
