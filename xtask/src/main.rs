//! Developer verbs. `cargo xtask --help` lists them.

mod cluster;
mod demo;
mod generate;
mod sim;
mod test;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Developer verbs of Flotilla.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
enum Verb {
    /// A real Kubernetes control plane with simulated nodes, on this machine.
    #[command(subcommand)]
    Cluster(cluster::Verb),
    /// See Flotilla work: a cluster, the manager, a set with claims, a rollout with a partition.
    Demo,
    /// Make the generated files of the repository anew.
    #[command(subcommand)]
    Generate(generate::Verb),
    /// The seeded simulator of faults; `cargo xtask sim --help` lists its options.
    #[command(disable_help_flag = true)]
    Sim(sim::Args),
    /// The suites against a real control plane, again and again: which of them fails how often.
    Soak(test::soak::Args),
    /// Everything that CI runs.
    Test(test::Args),
}

fn main() -> ExitCode {
    let done = match Args::parse().verb {
        Verb::Cluster(verb) => cluster::run(verb),
        Verb::Demo => demo::run(),
        Verb::Generate(verb) => generate::run(&verb),
        Verb::Sim(args) => sim::run(&args),
        Verb::Soak(args) => test::soak::run(&args),
        Verb::Test(args) => test::run(&args),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
