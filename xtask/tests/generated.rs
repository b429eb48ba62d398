//! Files that are made and checked in are those that would be made now.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn the_chart_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the workspace");
    let chart = root.join("deploy/chart/flotilla");
    let made: BTreeMap<String, String> = flotilla_install::chart()
        .into_iter()
        .map(|file| (file.path, file.text))
        .collect();
    for (path, text) in &made {
        let there = fs::read_to_string(chart.join(path)).unwrap_or_default();
        assert!(
            there == *text,
            "deploy/chart/flotilla/{path} is not up to date: cargo xtask generate chart"
        );
    }
    let listed = Command::new("git")
        .args(["ls-files", "."])
        .current_dir(&chart)
        .output()
        .expect("git runs");
    let listed = String::from_utf8(listed.stdout).expect("names are UTF-8");
    let stale: Vec<&str> = listed.lines().filter(|name| !made.contains_key(*name)).collect();
    assert!(stale.is_empty(), "left over in the chart: {stale:?}");
}
