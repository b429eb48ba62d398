//! Feature gates of OpenKruise: which of them switch something here, and what is said of the others.

use crate::error::Error;
use flotilla_controllers::cloneset::Defaults;

/// Gates of a stage, all together; one that is named by itself decides for itself, wherever it stands.
const ALL_ALPHA: &str = "AllAlpha";
const ALL_BETA: &str = "AllBeta";

const ALWAYS_ON: &str = "what it switches is always on";
const API_SERVER: &str = "the API server does that for pods";
const NO_EXPECTATIONS: &str = "nothing is expected: what was written is known at once";
const NOT_HERE: &str = "there is nothing here that it could switch";

/// Gates that change nothing, with the reason.
const IGNORED: &[(&str, &str)] = &[
    ("StatefulSetAutoDeletePVC", ALWAYS_ON),
    ("StatefulSetStartOrdinal", ALWAYS_ON),
    ("StatefulSetAutoResizePVCGate", ALWAYS_ON),
    ("InPlaceUpdateEnvFromMetadata", ALWAYS_ON),
    ("InPlaceWorkloadVerticalScaling", ALWAYS_ON),
    ("ResourcesDeletionProtection", ALWAYS_ON),
    ("PodIndexLabel", ALWAYS_ON),
    (
        "DeletionProtectionForCRDCascadingGate",
        "definitions are protected; whose objects are counted, the right to list them decides",
    ),
    ("PodWebhook", "--webhook-address says whether webhooks are served"),
    (
        "EnableExternalCerts",
        "--tls-dir says whether certificates come from outside",
    ),
    ("KruisePodReadinessGate", "only pods of our kinds get a readiness gate"),
    (
        "TemplateNoDefaults",
        "defaults are filled into new templates and those that change; a template that was stored without them and is changed gets them with that",
    ),
    ("DefaultHostNetworkHostPortsInPodTemplates", API_SERVER),
    ("CloneSetEventHandlerOptimization", "passes keep a distance anyway"),
    ("ForceDeleteTimeoutExpectationGate", NO_EXPECTATIONS),
    ("DaemonWatchingPod", NOT_HERE),
    ("EnablePodProbeMarkerOnServerless", NOT_HERE),
    ("EnableSortSidecarContainerByName", NOT_HERE),
    ("EnhancedLivenessProbe", NOT_HERE),
    ("ImagePullJobGate", NOT_HERE),
    ("PodProbeMarkerGate", NOT_HERE),
    ("PodUnavailableBudgetDeleteGate", NOT_HERE),
    ("PodUnavailableBudgetUpdateGate", NOT_HERE),
    ("PreDownloadImageForDaemonSetUpdate", NOT_HERE),
    ("ResourceDistributionGate", NOT_HERE),
    ("SidecarSetPatchPodMetadataDefaultsAllowed", NOT_HERE),
    ("SidecarTerminator", NOT_HERE),
    ("WorkloadSpread", NOT_HERE),
];

/// Stage of a gate, which says what it is by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Alpha,
    Beta,
}

/// A gate that switches something here: its name, its stage, and what it switches.
type Switch = (&'static str, Stage, fn(&mut Gates) -> &mut bool);

const SWITCHES: &[Switch] = &[
    ("PreDownloadImageForInPlaceUpdate", Stage::Alpha, |g| {
        &mut g.pre_download
    }),
    ("KruiseDaemon", Stage::Beta, |g| &mut g.daemon),
    ("CloneSetShortHash", Stage::Alpha, |g| &mut g.clones.short_hash),
    ("CloneSetPartitionRollback", Stage::Alpha, |g| {
        &mut g.clones.partition_rollback
    }),
    ("RecreatePodWhenChangeVCTInCloneSetGate", Stage::Alpha, |g| {
        &mut g.clones.recreate_on_claim_change
    }),
    ("PreparingUpdateAsUpdate", Stage::Alpha, |g| {
        &mut g.clones.preparing_as_updated
    }),
];

/// What feature gates turn on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gates {
    /// Images are pulled ahead of updates in place.
    pub pre_download: bool,
    /// There is somebody on the nodes who pulls images.
    daemon: bool,
    /// What holds for all CloneSets.
    pub clones: Defaults,
}

impl Default for Gates {
    fn default() -> Self {
        Gates {
            pre_download: false,
            daemon: true,
            clones: Defaults::default(),
        }
    }
}

/// What is said of a gate that was named and changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remark {
    /// It is known, and ignored for this reason.
    Ignored(String, &'static str),
    /// Nobody has heard of it.
    Unknown(String),
}

impl Gates {
    /// Reads `--feature-gates`; nonsense is refused.
    ///
    /// # Errors
    /// If an entry is not `NAME=true` or `NAME=false`.
    pub fn read(gates: &[String]) -> Result<(Self, Vec<Remark>), Error> {
        let mut named = Vec::new();
        for gate in gates.iter().map(|gate| gate.trim()).filter(|gate| !gate.is_empty()) {
            match gate.split_once('=') {
                Some((name, value @ ("true" | "false"))) => named.push((name, value == "true")),
                _ => {
                    return Err(Error::NotPossible(format!(
                        "failed to read --feature-gates: {gate:?} must be NAME=true or NAME=false"
                    )));
                }
            }
        }
        let (mut read, mut remarks) = (Gates::default(), Vec::new());
        for (stage, group) in [(Stage::Alpha, ALL_ALPHA), (Stage::Beta, ALL_BETA)] {
            if let Some((_, value)) = named.iter().rev().find(|(name, _)| *name == group) {
                let of_stage = SWITCHES.iter().filter(|(_, of, _)| *of == stage);
                of_stage.for_each(|(_, _, field)| *field(&mut read) = *value);
            }
        }
        for (name, value) in named {
            if let Some((_, _, field)) = SWITCHES.iter().find(|(of, ..)| *of == name) {
                *field(&mut read) = value;
            } else if let Some((_, reason)) = IGNORED.iter().find(|(of, _)| *of == name) {
                remarks.push(Remark::Ignored(name.to_owned(), reason));
            } else if name != ALL_ALPHA && name != ALL_BETA {
                remarks.push(Remark::Unknown(name.to_owned()));
            }
        }
        if read.pre_download && !read.daemon {
            read.pre_download = false;
            let reason = "it has no effect while KruiseDaemon is off";
            remarks.push(Remark::Ignored("PreDownloadImageForInPlaceUpdate".to_owned(), reason));
        }
        Ok((read, remarks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Gates, Vec<Remark>) {
        let gates: Vec<String> = text.split(',').map(str::to_owned).collect();
        Gates::read(&gates).expect("well written")
    }

    #[test]
    fn gates_are_read_or_refused() {
        for (text, is_fine) in [
            ("", true),
            ("PodWebhook=true,Nonsense=false", true),
            ("PodWebhook", false),
            ("PodWebhook=yes", false),
            ("PreDownloadImageForInPlaceUpdate=yes", false),
        ] {
            let gates: Vec<String> = text.split(',').map(str::to_owned).collect();
            assert_eq!(Gates::read(&gates).is_ok(), is_fine, "{text}");
        }
    }

    #[test]
    fn r_33_gates_that_switch_behaviour_are_honoured() {
        let clones = |text| read(text).0.clones;
        let none = Defaults::default();
        let rollback = Defaults {
            partition_rollback: true,
            ..none
        };
        let all = Defaults {
            short_hash: true,
            partition_rollback: true,
            recreate_on_claim_change: true,
            preparing_as_updated: true,
            exclude_preparing_delete: false,
        };
        for (text, expected) in [
            ("", none),
            (
                "CloneSetShortHash=true",
                Defaults {
                    short_hash: true,
                    ..none
                },
            ),
            ("CloneSetPartitionRollback=true", rollback),
            (
                "RecreatePodWhenChangeVCTInCloneSetGate=true",
                Defaults {
                    recreate_on_claim_change: true,
                    ..none
                },
            ),
            (
                "PreparingUpdateAsUpdate=true",
                Defaults {
                    preparing_as_updated: true,
                    ..none
                },
            ),
            ("CloneSetPartitionRollback=true,CloneSetPartitionRollback=false", none),
            ("AllAlpha=true", all),
            ("AllAlpha=false,CloneSetPartitionRollback=true", rollback),
            (
                "CloneSetShortHash=false,AllAlpha=true",
                Defaults {
                    short_hash: false,
                    ..all
                },
            ),
            ("AllBeta=true", none),
        ] {
            assert_eq!(clones(text), expected, "{text}");
        }
    }

    #[test]
    fn sts_5_1_images_are_pulled_ahead_only_where_that_is_asked_for() {
        for (text, is_on) in [
            ("", false),
            ("PreDownloadImageForInPlaceUpdate=true", true),
            ("KruiseDaemon=true,PreDownloadImageForInPlaceUpdate=true", true),
            ("PreDownloadImageForInPlaceUpdate=true,KruiseDaemon=false", false),
            ("PreDownloadImageForInPlaceUpdate=false", false),
            ("AllAlpha=true", true),
            ("AllAlpha=true,AllBeta=false", false),
            ("AllAlpha=true,AllBeta=false,KruiseDaemon=true", true),
        ] {
            assert_eq!(read(text).0.pre_download, is_on, "{text}");
        }
    }

    #[test]
    fn r_33_what_changes_nothing_is_named() {
        let ignored = |name: &str, reason| Remark::Ignored(name.to_owned(), reason);
        assert_eq!(
            read("TemplateNoDefaults=true,Nonsense=true,DefaultHostNetworkHostPortsInPodTemplates=false,AllBeta=true")
                .1,
            [
                ignored(
                    "TemplateNoDefaults",
                    "defaults are filled into new templates and those that change; a template that was stored without them and is changed gets them with that"
                ),
                Remark::Unknown("Nonsense".to_owned()),
                ignored("DefaultHostNetworkHostPortsInPodTemplates", API_SERVER),
            ]
        );
        assert_eq!(read("AllAlpha=true,AllBeta=false").1.len(), 1, "no agent pulls images");
        let both = IGNORED
            .iter()
            .filter(|(name, _)| SWITCHES.iter().any(|(of, ..)| of == name));
        assert_eq!(both.count(), 0);
    }
}
