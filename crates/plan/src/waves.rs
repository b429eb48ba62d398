//! Waves: what is done together before the next has to wait.
//!
//! They are told apart by what waits for what, not by time. Whatever begins after something has ended since the last beginning had to
//! wait for that, and belongs to the wave after it; whatever begins with nothing ended in between belongs to the wave that is under way.
//! So three pods at a time are waves of three, also where they do not end in the same moment.

/// Something that happened to the item of this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// It was taken down, created or updated.
    Began(usize),
    /// It is available; or gone, if it is not to come back.
    Ended(usize),
}

/// The wave of each item, counted from 1. Items that never began have none (0).
pub(crate) fn waves(marks: &[Mark], items: usize) -> Vec<usize> {
    let mut waves = vec![0; items];
    let mut under_way = 1;
    let mut ended = None;
    for mark in marks {
        match *mark {
            Mark::Began(item) => {
                if let Some(wave) = ended.take() {
                    under_way = wave + 1;
                }
                waves[item] = under_way;
            }
            Mark::Ended(item) => ended = ended.max(Some(waves[item])),
        }
    }
    waves
}

#[cfg(test)]
mod tests {
    use super::*;
    use Mark::{Began as B, Ended as E};

    #[test]
    fn waves_follow_from_what_waits_for_what() {
        let rows: [(&str, &[Mark], &[usize]); 5] = [
            ("all at once", &[B(0), B(1), E(0), E(1)], &[1, 1]),
            ("one after the other", &[B(0), E(0), B(1), E(1), B(2)], &[1, 2, 3]),
            (
                "two at a time, ending together",
                &[B(0), B(1), E(0), E(1), B(2), B(3), E(2), E(3)],
                &[1, 1, 2, 2],
            ),
            (
                "two at a time, each making room for one",
                &[B(0), B(1), E(0), B(2), E(1), B(3), E(2), B(4)],
                &[1, 1, 2, 2, 3],
            ),
            ("nothing ends", &[B(0)], &[1, 0]),
        ];
        for (name, marks, expected) in rows {
            assert_eq!(waves(marks, expected.len()), expected, "{name}");
        }
    }
}
