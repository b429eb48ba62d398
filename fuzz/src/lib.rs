//! Targets: functions that take any bytes and panic where a promise is broken.
//!
//! A target for something else is a module with a function `run`, a row in [`TARGETS`], a folder in `corpus`, and a file in
//! `libfuzzer/fuzz_targets`.

pub mod admission;
pub mod annotations;
pub mod conversion;
mod mutate;
pub mod protobuf;
mod reached;

pub use mutate::{Random, changed};
pub use reached::Reached;

use serde_json::Value;

/// A target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, which is that of its folder in `corpus`.
    pub name: &'static str,
    /// Tries one input.
    pub run: fn(&[u8]) -> Reached,
    /// Makes an input of those that there are.
    pub change: fn(&[Vec<u8>], &mut Random) -> Vec<u8>,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "admission",
        run: admission::run,
        change: changed,
    },
    Target {
        name: "conversion",
        run: conversion::run,
        change: changed,
    },
    Target {
        name: "protobuf",
        run: protobuf::run,
        change: protobuf::changed,
    },
    Target {
        name: "annotations",
        run: annotations::run,
        change: changed,
    },
];

const GROUP: &str = "apps.kruise.io";

/// An object, or a list of an object and the one stored before.
fn objects(input: &[u8]) -> Option<(Value, Option<Value>)> {
    match serde_json::from_slice(input).ok()? {
        Value::Array(mut list) => {
            list.truncate(2);
            let old = (list.len() == 2).then(|| list.pop()).flatten();
            Some((list.pop()?, old))
        }
        object => Some((object, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Every input that is kept, and a few thousand beside each target's.
    #[test]
    fn the_kept_inputs_break_nothing() {
        for Target { name, run, change } in TARGETS {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
            let files = std::fs::read_dir(&folder).expect("each target has a corpus");
            let mut inputs: Vec<_> = files
                .map(|f| std::fs::read(f.expect("a file").path()).expect("readable"))
                .collect();
            inputs.sort();
            assert!(!inputs.is_empty(), "{name}");
            for input in &inputs {
                run(input);
            }
            let mut random = Random::new(7);
            for _ in 0..2000 {
                run(&change(&inputs, &mut random));
            }
        }
    }
}
