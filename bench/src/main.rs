//! Figures of merit, each as a ratio against a peer that is measured in the same run. See `bench/README.md`.

mod audit;
mod bare;
mod corpus;
mod create;
mod decode;
mod figure;
mod heap;
mod memory;
mod meter;
mod noop;
mod observer;
mod scale;
mod update;
mod webhook;
mod workload;

use clap::{Parser, ValueEnum};
use figure::Table;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use workload::Measured;

/// Measures Flotilla against its peers, in one run, on this machine.
///
/// Starts real control planes of its own (built on first use) and ends them. Progress goes to standard error, the table of figures to
/// standard output. For figures that mean something, let nothing else run, and build with --release.
#[derive(Debug, Parser)]
#[command(
    name = "flotilla-bench",
    after_help = "Exit codes:\n  0  every bar is met\n  1  a bar is missed\n  2  the command line could not be understood\n  101  it could not be measured; the message says why"
)]
struct Args {
    /// What to measure.
    #[arg(value_enum, default_value_t = What::All)]
    what: What,
    /// Of which kind the set is that `create` makes and `update` updates.
    #[arg(long, value_enum, default_value_t)]
    kind: Measured,
    /// Replicas of the set that `create` makes and `update` updates.
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(i64).range(1..=4000))]
    replicas: i64,
    /// Rounds of `create` and `update`; the figures are medians.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=20))]
    rounds: u8,
    /// Requests that the bare client of `create` keeps in flight; unless given, several numbers are tried and the fastest is taken.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    concurrency: Option<u16>,
    /// Pods of the control plane of `scale`, all sets together.
    #[arg(long, default_value_t = 50_000, value_name = "N", value_parser = clap::value_parser!(u32).range(200..=200_000))]
    pods: u32,
    /// Sets of the control plane of `scale`.
    #[arg(long, default_value_t = 2000, value_name = "N", value_parser = clap::value_parser!(u32).range(40..=20_000))]
    sets: u32,
    /// For how long pods change in `scale`, in seconds.
    #[arg(long, default_value_t = 300, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(10..=3600))]
    churn_seconds: u16,
    /// Be the client that only lists and watches, beside which `scale` measures.
    #[arg(long, value_name = "KUBECONFIG", hide = true)]
    bare_client: Option<PathBuf>,
}

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// Bytes per cached pod, beside typed pods.
    Memory,
    /// Decoding a list of pods, beside JSON into typed pods.
    Decode,
    /// Pods created per second, and what that costs, beside a bare client and the built-in controller.
    Create,
    /// A pass over a settled set of 5,000 pods, beside the built-in controller's.
    Noop,
    /// Pods of one set updated in place, and what that costs, beside a bare client that sends the same patches.
    Update,
    /// What the pod webhook adds to the creation of pods while its certificate changes, beside pods that it is not asked about.
    Webhook,
    /// A manager of 50,000 pods in 2,000 sets: memory, time to list, takeovers, and work while pods change and are lost.
    Scale,
    /// All of these.
    All,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(kubeconfig) = &args.bare_client {
        scale::be_bare_client(kubeconfig).await;
        return ExitCode::SUCCESS;
    }
    let wanted = |what| args.what == what || args.what == What::All;
    let mut table = Table::default();
    if !matches!(args.what, What::Create | What::Update | What::Webhook | What::Scale) {
        let corpus = corpus::gather().await;
        if wanted(What::Memory) {
            table.0.extend(memory::measure(&corpus));
        }
        if wanted(What::Decode) {
            table.0.extend(decode::measure(&corpus));
        }
        if wanted(What::Noop) {
            table.0.extend(noop::measure(&corpus));
        }
    }
    if wanted(What::Create) {
        table.0.extend(
            create::measure(
                args.kind,
                args.replicas,
                usize::from(args.rounds),
                args.concurrency.map(usize::from),
            )
            .await,
        );
    }
    if wanted(What::Update) {
        table
            .0
            .extend(update::measure(args.kind, args.replicas, usize::from(args.rounds)).await);
    }
    if wanted(What::Webhook) {
        table.0.extend(webhook::measure().await);
    }
    if wanted(What::Scale) {
        let size = scale::Size {
            pods: args.pods as usize,
            sets: args.sets as usize,
            churn: Duration::from_secs(args.churn_seconds.into()),
        };
        table.0.extend(scale::measure(size).await);
    }
    print!("{table}");
    if table.passes() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }
}
