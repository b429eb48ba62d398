//! What the tool prints.

use clap::ValueEnum as _;
use flotilla_faultsim::search::{Found, Progress, Search};
use flotilla_faultsim::{Options, Schedule, Violation, run};
use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Lines of a trace that are shown unasked.
const LINES_SHOWN: usize = 120;
/// How often the clock of processor time ticks in a second. Linux has told programs nothing else for decades.
const TICKS_PER_S: f64 = 100.0;

/// Runs one schedule, says what it is, and prints the last lines of what happened, if any are wanted.
pub(crate) fn run_once(search: &Search, seed: u64, items: Option<&[usize]>, lines: Option<usize>) -> Option<Violation> {
    let whole = Schedule::of_seed(seed, &search.wanted);
    let schedule = items.map_or_else(|| whole.clone(), |items| whole.with_items(items));
    let Some(lines) = lines else {
        return flotilla_faultsim::search::verdict(&schedule, search.options).0;
    };
    print!("{schedule}");
    let options = Options {
        trace: true,
        ..search.options
    };
    let outcome = run(&schedule, options);
    let skipped = outcome.trace.len().saturating_sub(lines);
    if skipped > 0 {
        println!("  ... {skipped} lines before");
    }
    for line in &outcome.trace[skipped..] {
        println!("{line}");
    }
    println!(
        "{} writes in {:.0} s; as it should be {:.0} s after the last fault",
        outcome.writes,
        outcome.lasted.as_secs_f32(),
        outcome.settled_after.as_secs_f32()
    );
    outcome.violation
}

/// Says what a seed has found, with what of its schedule is needed.
pub(crate) fn found(search: &Search, found: &Found) {
    println!("\nseed {} violates {}", found.seed, found.violation);
    let shrunk = search.shrink(found);
    let whole = Schedule::of_seed(found.seed, &search.wanted);
    println!(
        "needed are {} of {} items, as {} further runs show:\n",
        shrunk.items.len(),
        whole.items.len(),
        shrunk.runs
    );
    run_once(search, found.seed, Some(&shrunk.items), Some(LINES_SHOWN));
    let items: Vec<String> = shrunk.items.iter().map(ToString::to_string).collect();
    let items = if items.is_empty() {
        "none".to_owned()
    } else {
        items.join(",")
    };
    println!(
        "\nall of it:  cargo xtask sim --seed {} --items {items} --trace{}",
        found.seed,
        flags(search)
    );
}

/// The flags that choose the same schedules again.
fn flags(search: &Search) -> String {
    let name = |value: Option<clap::builder::PossibleValue>| value.map(|v| v.get_name().to_owned()).unwrap_or_default();
    let mut text = String::new();
    for fault in &search.wanted.faults {
        text.push_str(" --fault ");
        text.push_str(&name(fault.to_possible_value()));
    }
    if let Some(kind) = search.wanted.kind {
        text += match kind {
            flotilla_model::SetKind::Native => " --kind native",
            flotilla_model::SetKind::Advanced => " --kind advanced",
            flotilla_model::SetKind::Clone => " --kind clone",
        };
    }
    if let Some(pods) = search.wanted.pods {
        text.push_str(" --pods ");
        text.push_str(&pods.to_string());
    }
    if let Some(defect) = search.options.defect {
        text.push_str(" --defect ");
        text.push_str(&name(defect.to_possible_value()));
    }
    if let Some(defect) = search.options.clone_defect {
        text.push_str(" --clone-defect ");
        text.push_str(&name(defect.to_possible_value()));
    }
    text
}

/// A row of the table of planted defects.
pub(crate) fn row(options: Options, found: Option<&Found>) -> String {
    let of_clones = options.clone_defect.and_then(|defect| defect.to_possible_value());
    let value = options
        .defect
        .and_then(|defect| defect.to_possible_value())
        .or(of_clones);
    let name = value.as_ref().map(|v| v.get_name().to_owned()).unwrap_or_default();
    let help = value
        .and_then(|v| v.get_help().map(ToString::to_string))
        .unwrap_or_default();
    match found {
        Some(found) => format!(
            "| `{name}` | {help} | {} | {} | {} |",
            found.seed,
            found.seed + 1,
            found.violation.to_string().replace('|', "\\|")
        ),
        None => format!("| `{name}` | {help} | none | | not found |"),
    }
}

/// Tells how a search goes on.
pub(crate) struct Watch {
    begun: Instant,
}

impl Watch {
    // How fast it is has no influence on what is found.
    #[allow(clippy::disallowed_methods)]
    pub(crate) fn begin() -> Self {
        Watch { begun: Instant::now() }
    }

    /// Keeps a line up to date on a terminal, and ends the search when its time is over.
    pub(crate) fn tell(&self, progress: &Progress, total: Option<u64>, limit: Option<Duration>) {
        while !progress.is_over.load(Ordering::Relaxed) {
            std::thread::park_timeout(Duration::from_millis(200));
            let elapsed = self.begun.elapsed();
            if limit.is_some_and(|limit| elapsed >= limit) {
                progress.is_over.store(true, Ordering::Relaxed);
            }
            if !std::io::stderr().is_terminal() {
                continue;
            }
            let done = progress.done.load(Ordering::Relaxed);
            let of = total.map_or_else(String::new, |total| format!(" of {total}"));
            eprint!("\r{done}{of} schedules in {:.0} s ", elapsed.as_secs_f32());
            // A line that does not come is missed by nobody.
            let _ = std::io::stderr().flush();
        }
        if std::io::stderr().is_terminal() {
            eprintln!();
        }
    }

    /// Says what was done, and how fast.
    pub(crate) fn conclude(&self, progress: &Progress, begin: u64, threads: usize) {
        let done = progress.done.load(Ordering::Relaxed);
        let writes = progress.writes.load(Ordering::Relaxed);
        let wall_s = self.begun.elapsed().as_secs_f64();
        println!("{done} schedules from seed {begin} on, {writes} writes, in {wall_s:.1} s on {threads} threads");
        let core_s = processor_s().unwrap_or(wall_s * number(threads));
        println!(
            "{:.0} schedules per minute of one core ({core_s:.1} s of processor time)",
            number(done) * 60.0 / core_s.max(0.001)
        );
    }
}

/// A count that is small enough to be reckoned with.
fn number(count: impl TryInto<u32>) -> f64 {
    count.try_into().map_or(f64::from(u32::MAX), f64::from)
}

/// Processor time of this process: other processes on the same cores do not count.
fn processor_s() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the program's name in parentheses and may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS_PER_S)
}
