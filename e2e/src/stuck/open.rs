//! Stories as tests, and those of them that do not end well yet.

use crate::suite::trial;
use libtest_mimic::Trial;
use std::future::Future;

/// A story in which `why`, or what it advises, is wrong.
struct Open {
    suite: &'static str,
    story: &'static str,
    /// What is wrong, for whoever mends it and takes the story off.
    reason: &'static str,
}

/// They are left out; `--include-ignored` runs them, too.
const OPEN: &[Open] = &[
    Open {
        suite: "behaviour",
        story: "stuck::forged::webhook_like_a_class_native",
        reason: FORGED_CLASS,
    },
    Open {
        suite: "behaviour",
        story: "stuck::forged::webhook_like_a_class_clone",
        reason: FORGED_CLASS,
    },
    Open {
        suite: "behaviour",
        story: "stuck::forged::webhook_like_a_policy_native",
        reason: FORGED_POLICY,
    },
    Open {
        suite: "behaviour",
        story: "stuck::forged::webhook_like_a_policy_clone",
        reason: FORGED_POLICY,
    },
    Open {
        suite: "behaviour",
        story: "stuck::forged::webhook_like_the_api_server_native",
        reason: FORGED_VOLUME,
    },
    Open {
        suite: "behaviour",
        story: "stuck::forged::webhook_like_the_api_server_clone",
        reason: FORGED_VOLUME,
    },
    Open {
        suite: "behaviour",
        story: "stuck::forged::event_of_a_volume_native",
        reason: FORGED_EVENT,
    },
    Open {
        suite: "behaviour",
        story: "stuck::forged::event_of_a_volume_clone",
        reason: FORGED_EVENT,
    },
    Open {
        suite: "behaviour",
        story: "stuck::twofold::finalizer_and_on_delete_in_order_native",
        reason: HIDDEN_OLD_PODS,
    },
    Open {
        suite: "behaviour",
        story: "stuck::twofold::finalizer_and_on_delete_in_order_advanced",
        reason: HIDDEN_OLD_PODS,
    },
    Open {
        suite: "behaviour",
        story: "stuck::twofold::budget_before_quota_advanced",
        reason: TRIAL_WITHOUT_ADVICE,
    },
    Open {
        suite: "real_node",
        story: "stuck::port_taken_advanced",
        reason: CRASH_FORGOTTEN,
    },
    Open {
        suite: "real_node",
        story: "stuck::secret_and_config_map_clone",
        reason: ONE_CONTAINER,
    },
];

const FORGED_CLASS: &str = "of a webhook that denies in the words of a missing class, it advises to create that class";
const FORGED_POLICY: &str =
    "of a webhook that denies in the words of a policy, it advises to look at that policy, and names no webhook";
const FORGED_VOLUME: &str = "of a webhook that denies as invalid, it says that the API server does not accept the pod, and advises to edit the set";
const FORGED_EVENT: &str =
    "a warning that anybody has made of a pod is believed: it advises to create a Secret that the pod does not name";
const HIDDEN_OLD_PODS: &str =
    "with OnDelete and in order, old pods that users may delete are not told while another pod does not go";
const TRIAL_WITHOUT_ADVICE: &str = "the quota is told twice, first as a trial that was refused, without advice, and of a pod that is not replaced at all";
const CRASH_FORGOTTEN: &str = "while a container that crashes again and again runs, for a moment, it tells of the probe, and advises nothing that helps";
const ONE_CONTAINER: &str = "of two containers that cannot start, for different reasons, one is told";

/// The stories of a suite.
pub struct Stories {
    suite: &'static str,
    trials: Vec<Trial>,
}

impl Stories {
    /// None yet.
    pub const fn of(suite: &'static str) -> Self {
        Stories {
            suite,
            trials: Vec::new(),
        }
    }

    /// Adds one.
    pub fn add<F, Fut>(&mut self, name: &str, scenario: F)
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = ()>,
    {
        let open = self.open().find(|open| open.story == name);
        let named = name.to_owned();
        let told = move || async move {
            if let Some(open) = open {
                println!("{named} is open: {}", open.reason);
            }
            scenario().await;
        };
        self.trials.push(trial(name, told).with_ignored_flag(open.is_some()));
    }

    fn open(&self) -> impl Iterator<Item = &'static Open> + use<'_> {
        OPEN.iter().filter(|open| open.suite == self.suite)
    }

    /// All of them, as tests.
    ///
    /// # Panics
    /// When one that is open is none of them.
    pub fn into_trials(self) -> Vec<Trial> {
        for open in self.open() {
            let is_there = self.trials.iter().any(|trial| trial.name() == open.story);
            assert!(is_there, "{} is open, and no story", open.story);
        }
        self.trials
    }
}
