//! The table of CS-13.13, row by row.

use super::{Done, done, pods};
use crate::testing::{Cluster, clones};
use flotilla_api::names;
use serde_json::{Value, json};

/// A number, a percentage, or `-` for nothing.
fn share(text: &str) -> Value {
    match text.parse::<i32>() {
        Ok(number) => json!(number),
        Err(_) if text == "-" => Value::Null,
        Err(_) => json!(text),
    }
}

/// A set as a row describes it: `R P S U C`.
fn asked(row: &str) -> Cluster {
    let words: Vec<&str> = row.split_whitespace().collect();
    let rolling = json!({"partition": share(words[1]), "maxSurge": share(words[2]), "maxUnavailable": share(words[3])});
    let replicas = words[0].parse().expect("replicas");
    clones(replicas)
        .spec("/minReadySeconds", json!(10))
        .spec("/updateStrategy/rollingUpdate", rolling)
        .spec("/scaleStrategy/maxUnavailable", share(words[4]))
        .spec("/lifecycle/preDelete", json!({"labelsHandler": {"hold": "yes"}}))
}

/// What is asked for, which pods there are, what is done, and what else the set says.
struct Row {
    asked: &'static str,
    pods: &'static str,
    done: Done,
    more: &'static str,
}

fn row(asked: &'static str, pods: &'static str, done: Done, more: &'static str) -> Row {
    Row {
        asked,
        pods,
        done,
        more,
    }
}

fn nothing() -> Done {
    Done::default()
}
fn updates(updated: usize) -> Done {
    Done { updated, ..nothing() }
}
fn creates(created: usize, created_old: usize) -> Done {
    Done {
        created,
        created_old,
        ..nothing()
    }
}
fn deletes(surplus: usize, surplus_old: usize) -> Done {
    Done {
        surplus,
        surplus_old,
        ..nothing()
    }
}
fn obeys(specified: usize) -> Done {
    Done { specified, ..nothing() }
}

fn check(rows: Vec<Row>) {
    for row in rows {
        let mut cluster = asked(row.asked);
        for word in row.more.split_whitespace() {
            cluster = match word {
                "back" => cluster.annotation(names::PARTITION_ROLLBACK, "true"),
                "surge-in-place" => cluster.annotation(names::SURGE_IN_PLACE, "true"),
                "excluded" => cluster.spec("/scaleStrategy/excludePreparingDelete", json!(true)),
                "on-delete" => cluster.spec("/updateStrategy/type", json!("OnDelete")),
                "bare-on-delete" => cluster.spec("/updateStrategy", json!({"type": "OnDelete"})),
                "paused" => cluster.spec("/updateStrategy/rollingUpdate/paused", json!(true)),
                "marks" => cluster.spec("/lifecycle/preDelete/markPodNotReady", json!(true)),
                "in-place" => cluster.spec(
                    "/updateStrategy/rollingUpdate/podUpdatePolicy",
                    json!("InPlaceIfPossible"),
                ),
                other => panic!("{other}"),
            };
        }
        let cluster = pods(cluster, row.pods);
        let decision = cluster.decide();
        let found = done(&cluster, &decision);
        assert_eq!(
            found, row.done,
            "{} | {} | {}: {:?}",
            row.asked, row.pods, row.more, decision.waits
        );
    }
}

#[test]
fn cs_13_13_updates_and_surge() {
    check(vec![
        row("5 3 0 2 -", "5o", updates(2), ""),
        row("5 4 0 1 -", "2o 3n", nothing(), ""),
        row(
            "5 4 0 1 -",
            "2o 3n",
            Done {
                went_back: 1,
                ..nothing()
            },
            "back",
        ),
        row("8 0 3 0 -", "8o", creates(3, 0), ""),
        row("8 0 3 0 -", "8o 3nx", nothing(), ""),
        row("8 0 3 0 -", "8o 3n", updates(3), ""),
        row("8 0 3 0 -", "5o 3o! 3n", obeys(3), ""),
        row("8 0 3 0 -", "5o 3n", creates(3, 0), ""),
        row("8 0 3 0 -", "2o 6n", creates(2, 0), ""),
        row("4 0 1 20% -", "4o", creates(1, 0), ""),
        row("4 0 0 20% -", "4o", updates(1), ""),
        row("5 0 0 2 -", "2ox 3o", updates(2), ""),
        row("5 0 0 2 -", "2nx 3o", nothing(), ""),
        row("5 0 0 1 0", "4ox", updates(1), ""),
        row("5 2 0 1 -", "1o 3n", creates(1, 1), ""),
        row("10 33.3% 0 12.5% -", "10o", updates(2), ""),
        row("10 0 3 0 -", "6o 4n", nothing(), "paused"),
    ]);
}

#[test]
fn defects_1741_1442_286_and_1666_surge_does_not_slow_down_nor_stay() {
    check(vec![
        row("10 0 3 0 -", "4o 9n", updates(1), ""),
        row("10 0 3 0 -", "4o 7n 2nx", updates(1), ""),
        row("10 0 3 0 -", "3o 9n", creates(1, 0), ""),
        row("10 0 3 0 -", "3o 8n 2nx", deletes(1, 1), ""),
        row("5 4 2 0 -", "5o", creates(1, 0), ""),
        row("5 4 2 0 -", "5o 1n", deletes(1, 1), ""),
        row("8 0 0 1 -", "8o 3n", deletes(3, 3), ""),
        row("8 0 4 0 -", "5o 3n", creates(4, 0), ""),
    ]);
}

#[test]
fn defects_2369_and_263_surge_is_for_pods_that_cannot_go_in_place() {
    check(vec![
        row("5 0 2 1 -", "5oi", updates(1), "in-place"),
        row("5 0 1 0 -", "5oi", creates(1, 0), "in-place"),
        row("5 0 2 1 -", "5oi", creates(2, 0), "in-place surge-in-place"),
    ]);
}

#[test]
fn defects_1478_and_376_scale_in_ends_and_broken_pods_go_first() {
    check(vec![
        row("3 0 0 1 -", "5n", deletes(2, 0), ""),
        row("3 0 0 1 -", "5ny", deletes(2, 0), ""),
        row("3 2 0 1 -", "3o 2n", deletes(2, 1), ""),
        row("5 3 0 1 -", "1ox 5n", deletes(1, 1), ""),
    ]);
}

#[test]
fn cs_13_9_pods_that_wait_for_their_hook_delay_nothing_else() {
    check(vec![
        row("3 0 0 1 -", "4n 1dn", deletes(1, 0), ""),
        row("5 0 0 1 -", "4n 1dn", nothing(), "marks"),
        row("5 0 0 1 -", "4n 1dn", creates(1, 0), "excluded marks"),
    ]);
}

#[test]
fn cs_13_10_the_budget_of_deletions() {
    check(vec![
        row("5 0 1 1 -", "3n 1nx 1n!", creates(1, 0), ""),
        row("5 0 0 1 -", "3n 1n! 1nx!", obeys(1), ""),
        row("5 0 0 1 -", "3ny 2ny!", obeys(1), ""),
        row("5 0 0 1 1", "2n 1nx", nothing(), ""),
        row("5 0 0 1 0", "2n 1n! 1nx!", obeys(1), ""),
        row("4 0 - - -", "3n 1n!", obeys(1), "bare-on-delete"),
        row("4 0 2 1 -", "3o 1n", nothing(), "on-delete"),
    ]);
}
