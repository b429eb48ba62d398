//! What is said of a manager to those who decide in its place.

use crate::error::Error;
use crate::gates::{Gates, Remark};
use flotilla_controllers::cloneset::Defaults;

/// What only the manager's command line says of how it decides.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct GateArgs {
    /// Feature gates that the manager runs with, NAME=true or NAME=false, separated by commas: nothing in the cluster tells them. Those of
    /// CloneSets matter here.
    #[arg(long, value_name = "GATES", value_delimiter = ',')]
    pub feature_gates: Vec<String>,
    /// The manager runs with this flag: pods that wait for their preDelete hook do not count as replicas of a CloneSet.
    #[arg(long)]
    pub cloneset_scaling_exclude_preparing_delete: bool,
}

impl GateArgs {
    /// What the manager decides for all CloneSets.
    ///
    /// # Errors
    /// If a gate is not written as one, or is not known: a gate that is misspelt would go for one that is off.
    pub fn clones(&self) -> Result<Defaults, Error> {
        let (mut gates, remarks) = Gates::read(&self.feature_gates)?;
        let unknown = remarks.iter().find_map(|remark| match remark {
            Remark::Unknown(gate) => Some(gate),
            Remark::Ignored(..) => None,
        });
        if let Some(gate) = unknown {
            return Err(Error::NotPossible(format!(
                "--feature-gates: there is no gate {gate}; give those that the manager is given"
            )));
        }
        gates.clones.exclude_preparing_delete = self.cloneset_scaling_exclude_preparing_delete;
        Ok(gates.clones)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser;

    fn clones(words: &[&str]) -> Result<Defaults, Error> {
        let all = ["flotilla", "why", "cloneset/web"].iter().chain(words);
        match Args::try_parse_from(all).unwrap().command {
            Command::Why(args) => args.gates.clones(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn r_33_gates_of_the_manager_are_those_of_who_decides_in_its_place() {
        assert_eq!(clones(&[]).unwrap(), Defaults::default());
        let asked = ["--feature-gates=CloneSetPartitionRollback=true,SidecarTerminator=true"];
        assert!(clones(&asked).unwrap().partition_rollback);
        let asked = clones(&["--cloneset-scaling-exclude-preparing-delete"]).unwrap();
        assert!(asked.exclude_preparing_delete && !asked.partition_rollback);
        let error = clones(&["--feature-gates=CloneSetPartitionRolback=true"])
            .unwrap_err()
            .to_string();
        assert!(error.contains("there is no gate CloneSetPartitionRolback"), "{error}");
    }
}
