//! Steps that rest on each other, run beside each other as far as the machine allows.

use super::programs::{Console, Programs};
use anyhow::{Context, Error, Result, anyhow};
use std::any::Any;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::Scope;
use std::time::{Duration, Instant};

/// What a step does to the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// It keeps processors busy.
    Busy,
    /// It mostly waits.
    Waiting,
}

/// How many steps of a load run at once. Two busy ones, since each has stretches with one thread, such as linking; two of those that
/// wait, since each has a control plane, which takes memory.
const MOST_AT_ONCE: usize = 2;

/// What a step does.
pub(crate) type Work<'a> = Box<dyn FnOnce(&mut Console) -> Result<()> + Send + 'a>;

/// A step.
pub(crate) struct Step<'a> {
    pub(crate) name: &'static str,
    pub(crate) load: Load,
    /// Names of the steps that have to be done before.
    pub(crate) after: Vec<&'static str>,
    pub(crate) work: Work<'a>,
}

/// A step that runs `work` once the steps named in `after` are done.
pub(crate) fn step<'a>(
    name: &'static str,
    load: Load,
    after: &[&'static str],
    work: impl FnOnce(&mut Console) -> Result<()> + Send + 'a,
) -> Step<'a> {
    Step {
        name,
        load,
        after: after.to_vec(),
        work: Box::new(work),
    }
}

/// When a step ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) name: &'static str,
    /// Since the first step began.
    pub(crate) begun: Duration,
    pub(crate) took: Duration,
}

/// How a step ended.
struct Ended {
    ran: Ran,
    output: PathBuf,
    result: Result<()>,
}

/// Runs the steps, earlier ones first where there is a choice. What each writes goes to a file in `folder`, and to `out` once it has
/// ended. The first that fails ends the others; its output comes last.
pub(crate) fn run(steps: Vec<Step>, programs: &Programs, folder: &Path, out: &mut impl Write) -> Result<Vec<Ran>> {
    check_order(&steps)?;
    fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
    let mut plan = Plan {
        waiting: steps.into_iter().map(Some).collect(),
        running: Vec::new(),
        done: Vec::new(),
    };
    let begun = super::now();
    let (ends, ended) = mpsc::sync_channel::<Ended>(plan.waiting.len());
    let mut failed: Option<Ended> = None;
    std::thread::scope(|scope| -> Result<()> {
        loop {
            while failed.is_none()
                && let Some(step) = plan.next()
            {
                writeln!(out, "{}  begins: {}", clock(begun.elapsed()), step.name)?;
                let output = folder.join(file_name(step.name));
                spawn(scope, step, programs, output, begun, ends.clone())?;
            }
            if plan.running.is_empty() {
                return Ok(());
            }
            let end = ended.recv().context("a step has ended without a word")?;
            plan.running.retain(|(name, _)| *name != end.ran.name);
            if end.result.is_ok() {
                show(&end, "==", out)?;
                plan.done.push(end.ran);
            } else if failed.is_none() {
                // Whoever ended them all at once is not told which one that was.
                let first = !programs.is_over();
                programs.end();
                failed = Some(end);
                writeln!(
                    out,
                    "{}",
                    if first {
                        "a step failed; ending the others"
                    } else {
                        "interrupted"
                    }
                )?;
            }
        }
    })?;
    let Some(failed) = failed else {
        return Ok(plan.done);
    };
    show(&failed, "== failed:", out)?;
    let name = failed.ran.name;
    Err(failed
        .result
        .err()
        .unwrap_or_else(|| anyhow!("it failed"))
        .context(format!("step failed: {name}")))
}

/// Steps that have not begun, in order, those that run, and those that are done.
struct Plan<'a> {
    waiting: Vec<Option<Step<'a>>>,
    running: Vec<(&'static str, Load)>,
    done: Vec<Ran>,
}

impl<'a> Plan<'a> {
    /// The first step that can begin now; it counts as running.
    fn next(&mut self) -> Option<Step<'a>> {
        let is_done = |name: &&str| self.done.iter().any(|ran| ran.name == *name);
        let has_room = |load: Load| self.running.iter().filter(|(_, l)| *l == load).count() < MOST_AT_ONCE;
        let can_begin = |step: &Step| step.after.iter().all(is_done) && has_room(step.load);
        let step = self
            .waiting
            .iter_mut()
            .find(|step| step.as_ref().is_some_and(can_begin))?
            .take()?;
        self.running.push((step.name, step.load));
        Some(step)
    }
}

/// Each step is named once, and rests on steps that come before it.
fn check_order(steps: &[Step]) -> Result<()> {
    let mut before = BTreeSet::new();
    for step in steps {
        if let Some(unknown) = step.after.iter().find(|name| !before.contains(*name)) {
            return Err(anyhow!(
                "{:?} comes after {unknown:?}, which does not stand before it",
                step.name
            ));
        }
        if !before.insert(step.name) {
            return Err(anyhow!("{:?} is listed twice", step.name));
        }
    }
    Ok(())
}

fn spawn<'scope>(
    scope: &'scope Scope<'scope, '_>,
    step: Step<'scope>,
    programs: &'scope Programs,
    output: PathBuf,
    origin: Instant,
    ends: mpsc::SyncSender<Ended>,
) -> Result<()> {
    let file = File::create(&output).with_context(|| format!("failed to write {}", output.display()))?;
    let begun = origin.elapsed();
    scope.spawn(move || {
        let mut console = Console::new(programs, file);
        let work = step.work;
        let result = catch_unwind(AssertUnwindSafe(|| work(&mut console))).unwrap_or_else(|panic| Err(told(&*panic)));
        let ran = Ran {
            name: step.name,
            begun,
            took: origin.elapsed().saturating_sub(begun),
        };
        // There is room for an end of each step, and somebody listens until all have ended.
        let _sent = ends.send(Ended { ran, output, result });
    });
    Ok(())
}

fn told(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    anyhow!("panicked: {}", text.unwrap_or_default())
}

/// Writes what a step that has ended has written.
fn show(end: &Ended, heading: &str, out: &mut impl Write) -> Result<()> {
    let output = fs::read(&end.output).with_context(|| format!("failed to read {}", end.output.display()))?;
    writeln!(out, "\n{heading} {}, {:.0} s", end.ran.name, end.ran.took.as_secs_f32())?;
    out.write_all(&output)?;
    if output.last().is_some_and(|byte| *byte != b'\n') {
        writeln!(out)?;
    }
    out.flush()?;
    Ok(())
}

/// Minutes and seconds.
pub(crate) fn clock(time: Duration) -> String {
    format!("{:>3}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

fn file_name(step: &str) -> String {
    let fits = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    let name: String = step.chars().map(fits).collect();
    format!("{name}.log")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::sync::{Barrier, Mutex};

    fn run_in(name: &str, steps: Vec<Step>) -> (Result<Vec<Ran>>, String) {
        let folder = std::env::temp_dir().join(format!("flotilla-steps-{name}-{}", std::process::id()));
        let mut out = Vec::new();
        let result = run(steps, &Programs::default(), &folder, &mut out);
        let _gone = fs::remove_dir_all(&folder);
        (result, String::from_utf8(out).unwrap())
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_a_step_rests_on_is_done_before() {
        let order = Mutex::new(Vec::new());
        let note = |name| {
            let order = &order;
            move |_: &mut Console| {
                order.lock().unwrap().push(name);
                Ok(())
            }
        };
        let steps = vec![
            step("c", Load::Busy, &[], note("c")),
            step("b", Load::Waiting, &["c"], note("b")),
            step("a", Load::Busy, &["b", "c"], note("a")),
        ];
        let (result, out) = run_in("order", steps);
        assert_eq!(result.unwrap().len(), 3);
        assert_eq!(*order.lock().unwrap(), ["c", "b", "a"]);
        assert!(out.contains("  0:00  begins: c"), "{out}");
    }

    #[test]
    fn a_step_that_rests_on_nothing_that_is_there_is_refused() {
        let idle = |_: &mut Console| Ok(());
        let (result, _) = run_in(
            "unknown",
            vec![step("a", Load::Busy, &["b"], idle), step("b", Load::Busy, &[], idle)],
        );
        assert!(result.unwrap_err().to_string().contains("\"a\" comes after \"b\""));
        let (result, _) = run_in(
            "twice",
            vec![step("a", Load::Busy, &[], idle), step("a", Load::Busy, &[], idle)],
        );
        assert!(result.unwrap_err().to_string().contains("twice"));
    }

    #[test]
    fn steps_that_wait_run_beside_busy_ones_and_each_other() {
        // None of them ends before all four have begun.
        let together = Barrier::new(4);
        let meet = |_: &mut Console| {
            together.wait();
            Ok(())
        };
        let steps = vec![
            step("a", Load::Busy, &[], meet),
            step("b", Load::Busy, &[], meet),
            step("c", Load::Waiting, &[], meet),
            step("d", Load::Waiting, &[], meet),
        ];
        assert_eq!(run_in("beside", steps).0.unwrap().len(), 4);
    }

    #[test]
    fn no_more_than_two_of_a_load_run_at_once() {
        let counts = Mutex::new((0, 0));
        let count = |_: &mut Console| {
            {
                let mut counts = counts.lock().unwrap();
                counts.0 += 1;
                counts.1 = counts.1.max(counts.0);
            }
            std::thread::park_timeout(Duration::from_millis(20));
            counts.lock().unwrap().0 -= 1;
            Ok(())
        };
        let steps = ["a", "b", "c", "d", "e"].map(|name| step(name, Load::Busy, &[], count));
        assert_eq!(run_in("limit", steps.into()).0.unwrap().len(), 5);
        assert_eq!(counts.lock().unwrap().1, 2);
    }

    #[test]
    fn output_is_kept_together_and_shown_when_a_step_has_ended() {
        let (begun, go_on) = (Barrier::new(2), Barrier::new(2));
        let steps = vec![
            step("slow", Load::Busy, &[], |console| {
                console.run(shell("echo slow one; echo slow two >&2"))?;
                begun.wait();
                go_on.wait();
                console.say("slow three")
            }),
            step("quick", Load::Busy, &[], |console| {
                begun.wait();
                assert_eq!(console.read(shell("echo heard; echo quick >&2"))?, "heard\n");
                Ok(())
            }),
            step("last", Load::Waiting, &["quick"], |_| {
                go_on.wait();
                Ok(())
            }),
        ];
        let (result, out) = run_in("output", steps);
        result.unwrap();
        let at = |text: &str| out.find(text).unwrap_or_else(|| panic!("{text:?} is not in {out}"));
        assert!(out.contains("== slow, 0 s\nslow one\nslow two\nslow three\n"), "{out}");
        assert!(out.contains("== quick, 0 s\nquick\n"), "{out}");
        assert!(at("== quick") < at("== slow"));
    }

    #[test]
    fn the_first_failure_ends_the_others_and_comes_last() {
        let begun = Barrier::new(2);
        let steps = vec![
            step("long", Load::Waiting, &[], |console| {
                begun.wait();
                // What it has started goes with it.
                console.run(shell("sleep 600 & wait"))
            }),
            step("wrong", Load::Busy, &[], |console| {
                begun.wait();
                console.run(shell("echo the reason; exit 3"))
            }),
            step("never", Load::Busy, &["wrong"], |_| panic!("it rests on what failed")),
        ];
        let (result, out) = run_in("failure", steps);
        let error = format!("{:#}", result.unwrap_err());
        assert!(error.starts_with("step failed: wrong: `sh -c"), "{error}");
        assert!(out.ends_with("== failed: wrong, 0 s\nthe reason\n"), "{out}");
        assert!(!out.contains("begins: never"), "{out}");
    }

    #[test]
    fn a_panic_is_a_failure() {
        let (result, _) = run_in("panic", vec![step("a", Load::Busy, &[], |_| panic!("no {}", "way"))]);
        let error = format!("{:#}", result.unwrap_err());
        assert_eq!(error, "step failed: a: panicked: no way");
    }

    #[test]
    fn whoever_ends_the_programs_ends_the_run() {
        let programs = Programs::default();
        let folder = std::env::temp_dir().join(format!("flotilla-steps-end-{}", std::process::id()));
        let begun = Barrier::new(2);
        let mut out = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                begun.wait();
                programs.end();
            });
            let steps = vec![step("long", Load::Busy, &[], |console| {
                begun.wait();
                console.run(shell("sleep 600"))
            })];
            let error = run(steps, &programs, &folder, &mut out).unwrap_err();
            assert_eq!(format!("{error:#}"), "step failed: long: ended early");
        });
        let _gone = fs::remove_dir_all(&folder);
    }
}
