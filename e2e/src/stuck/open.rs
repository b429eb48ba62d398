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
const OPEN: &[Open] = &[];

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
