//! Flags of OpenKruise's manager that existing command lines have: taken, so that these go on working, and said in the log with what became
//! of them.

use clap::{Arg, ArgMatches, Command, Error};

const WORKERS: &str = "--workers says it, for each kind";
const NO_KIND: &str = "there is no controller of that kind here";
const NO_EXPECTATIONS: &str = "nothing is expected: what was written is known at once";

/// The flags that change nothing, with the reason.
const IGNORED: &[(&str, &str)] = &[
    ("cloneset-workers", WORKERS),
    ("statefulset-workers", WORKERS),
    ("containerlauchpriority-workers", WORKERS),
    ("daemonset-workers", NO_KIND),
    ("broadcastjob-workers", NO_KIND),
    ("advancedcronjob-workers", NO_KIND),
    ("sidecarset-workers", NO_KIND),
    ("uniteddeployment-workers", NO_KIND),
    ("workloadspread-workers", NO_KIND),
    ("imagepulljob-workers", NO_KIND),
    ("imagelistpulljob-workers", NO_KIND),
    ("nodeimage-workers", NO_KIND),
    ("containerrecreaterequest-workers", NO_KIND),
    ("ephemeraljob-workers", NO_KIND),
    ("persistentpodstate-workers", NO_KIND),
    ("podprobemarker-workers", NO_KIND),
    ("nodepodprobe-workers", NO_KIND),
    ("podunavailablebudget-workers", NO_KIND),
    ("resourcedistribution-workers", NO_KIND),
    ("sidecarterminator-workers", NO_KIND),
    ("expectation-timeout", NO_EXPECTATIONS),
];

/// Those of them that were given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenKruiseFlags {
    /// Name and reason.
    pub ignored: Vec<(&'static str, &'static str)>,
}

impl clap::Args for OpenKruiseFlags {
    fn augment_args(command: Command) -> Command {
        IGNORED.iter().fold(command, |command, (name, _)| {
            command.arg(Arg::new(*name).long(*name).hide(true).value_name("VALUE"))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for OpenKruiseFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = |(name, _): &&(&'static str, &'static str)| matches.contains_id(name);
        Ok(OpenKruiseFlags {
            ignored: IGNORED.iter().filter(given).copied().collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
