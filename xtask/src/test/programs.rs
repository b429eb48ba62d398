//! Programs that steps run: where their output goes, and how all of them are ended at once.

use anyhow::{Context, Result, bail, ensure};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a program that is asked to end may take.
const END_WITHIN: Duration = Duration::from_secs(10);

/// The programs that are running, each the first of a process group that holds whatever it starts.
#[derive(Debug, Default)]
pub(crate) struct Programs(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    groups: BTreeSet<i32>,
    is_over: bool,
}

impl Programs {
    /// Ends all of them; none is started any more.
    pub(crate) fn end(&self) {
        let groups = {
            let mut state = self.state();
            state.is_over = true;
            signal(&state.groups, Signal::TERM);
            state.groups.clone()
        };
        if !groups.is_empty() {
            let begun = super::now();
            while !self.state().groups.is_empty() && begun.elapsed() < END_WITHIN {
                std::thread::park_timeout(Duration::from_millis(50));
            }
            // Those that heed no request, and what programs that have ended left in their groups.
            signal(&groups, Signal::KILL);
        }
    }

    /// Whether all of them were ended.
    pub(crate) fn is_over(&self) -> bool {
        self.state().is_over
    }

    /// Starts one; it is to be waited for by [`Self::wait`].
    fn start(&self, command: &mut Command) -> Result<Child> {
        // A line for each library would hide what went wrong.
        command.env("CARGO_TERM_QUIET", "true");
        // Under the lock, so that none starts that is not ended.
        let mut state = self.state();
        ensure!(!state.is_over, "ended early");
        let child = command
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .with_context(|| format!("failed to run {}", words(command)))?;
        state.groups.insert(child.id().cast_signed());
        Ok(child)
    }

    fn wait(&self, mut child: Child) -> Result<ExitStatus> {
        let id = child.id().cast_signed();
        let options = WaitIdOptions::EXITED.union(WaitIdOptions::NOWAIT);
        if let Some(pid) = Pid::from_raw(id) {
            // Its number is not given to another process before it is off the list.
            while matches!(waitid(WaitId::Pid(pid), options), Err(Errno::INTR)) {}
        }
        self.state().groups.remove(&id);
        child.wait().context("failed to wait for a program")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What it holds is right after each statement that changes it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn signal(groups: &BTreeSet<i32>, signal: Signal) {
    for pid in groups.iter().filter_map(|group| Pid::from_raw(*group)) {
        // It may have ended by itself.
        let _sent = kill_process_group(pid, signal);
    }
}

/// What a step writes to, and runs programs by.
pub(crate) struct Console<'a> {
    programs: &'a Programs,
    output: File,
}

impl<'a> Console<'a> {
    pub(crate) fn new(programs: &'a Programs, output: File) -> Self {
        Console { programs, output }
    }

    /// Adds a line to the output of the step.
    pub(crate) fn say(&mut self, line: &str) -> Result<()> {
        writeln!(self.output, "{line}").context("failed to write the output of a step")
    }

    /// Runs a program, and fails if it does.
    pub(crate) fn run(&self, mut command: Command) -> Result<()> {
        command.stdout(self.share()?).stderr(self.share()?);
        let child = self.programs.start(&mut command)?;
        self.conclude(&command, child)
    }

    /// The same, and returns what it writes to standard output.
    pub(crate) fn read(&self, mut command: Command) -> Result<String> {
        command.stdout(Stdio::piped()).stderr(self.share()?);
        let mut child = self.programs.start(&mut command)?;
        let mut text = String::new();
        if let Some(mut out) = child.stdout.take() {
            out.read_to_string(&mut text)
                .with_context(|| format!("failed to read what {} says", words(&command)))?;
        }
        self.conclude(&command, child)?;
        Ok(text)
    }

    fn conclude(&self, command: &Command, child: Child) -> Result<()> {
        let status = self.programs.wait(child)?;
        if self.programs.is_over() {
            bail!("ended early");
        }
        ensure!(status.success(), "`{}` failed: {status}", words(command));
        Ok(())
    }

    fn share(&self) -> Result<File> {
        self.output.try_clone().context("failed to share the output of a step")
    }
}

/// A command as a user would type it, without the directories of the program.
fn words(command: &Command) -> String {
    let program = command.get_program().to_string_lossy();
    let name = program.rsplit('/').next().unwrap_or_default().to_owned();
    let arguments = command.get_args().map(|a| a.to_string_lossy().into_owned());
    std::iter::once(name).chain(arguments).collect::<Vec<_>>().join(" ")
}
