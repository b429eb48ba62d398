//! Processes that outlive us: started in a session of their own, found again by process id *and* start time.

use crate::clock;
use crate::error::Error;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Clock ticks a second in /proc; fixed by the kernel's interface.
const TICKS_PER_SECOND: f64 = 100.0;

/// Where a process keeps its files.
pub(crate) struct Process {
    /// Name, for messages.
    pub(crate) name: &'static str,
    /// Holds "pid start-time".
    pub(crate) pid_file: PathBuf,
    /// Its standard output and error.
    pub(crate) log: PathBuf,
}

impl Process {
    /// Starts it, unless it is running.
    pub(crate) fn start(&self, mut command: Command) -> Result<(), Error> {
        if self.pid().is_some() {
            return Ok(());
        }
        let log = File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .map_err(|e| Error::io("write", &self.log, e))?;
        let errors = log.try_clone().map_err(|e| Error::io("write", &self.log, e))?;
        command.stdin(Stdio::null()).stdout(log).stderr(errors).process_group(0);
        let child = command.spawn().map_err(|e| Error::Io {
            what: format!("start {}", self.name),
            source: e,
        })?;
        let pid = child.id();
        let start_time = stat(pid).map(|s| s.start_time).unwrap_or_default();
        fs::write(&self.pid_file, format!("{pid} {start_time}")).map_err(|e| Error::io("write", &self.pid_file, e))?;
        // Whoever started it reaps it; without this an ended component would stay a zombie of a long test.
        std::thread::spawn(move || {
            let mut child = child;
            child.wait()
        });
        Ok(())
    }

    /// Its process id, if the process that we started is alive.
    pub(crate) fn pid(&self) -> Option<u32> {
        let text = fs::read_to_string(&self.pid_file).ok()?;
        let (pid, start_time) = text.split_once(' ')?;
        let pid: u32 = pid.parse().ok()?;
        let start_time: u64 = start_time.trim().parse().ok()?;
        let now = stat(pid)?;
        (now.start_time == start_time && now.state != 'Z').then_some(pid)
    }

    /// Asks it to end, and ends it if it does not within `patience`.
    pub(crate) fn stop(&self, patience: Duration) {
        if self.signal(Signal::TERM) && !clock::poll(patience, || self.pid().is_none()) {
            self.kill();
        }
        // The file may be gone already; what matters is that it is not there.
        let _gone = fs::remove_file(&self.pid_file);
    }

    /// Ends it without warning.
    pub(crate) fn kill(&self) {
        if self.signal(Signal::KILL) {
            clock::poll(Duration::from_secs(5), || self.pid().is_none());
        }
    }

    fn signal(&self, signal: Signal) -> bool {
        let pid = self
            .pid()
            .and_then(|pid| i32::try_from(pid).ok())
            .and_then(Pid::from_raw);
        pid.is_some_and(|pid| kill_process(pid, signal).is_ok())
    }

    /// The end of its log.
    pub(crate) fn log_tail(&self) -> String {
        crate::build::last_lines(&fs::read_to_string(&self.log).unwrap_or_default(), 15)
    }
}

struct Stat {
    state: char,
    ticks: u64,
    start_time: u64,
}

/// Fields of `/proc/<pid>/stat`; the name in parentheses may hold anything, so they count from the last parenthesis.
fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index).and_then(|f| f.parse::<u64>().ok());
    Some(Stat {
        state: fields.first()?.chars().next()?,
        ticks: number(11)? + number(12)?,
        start_time: number(19)?,
    })
}

/// Whether there is a process of this id that has not ended.
pub(crate) fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|s| s.state != 'Z')
}

/// Processor time that a process has used, in seconds.
pub fn cpu_seconds_of(pid: u32) -> Option<f64> {
    #[allow(clippy::cast_precision_loss)] // Ticks of a process fit 52 bits for millions of years.
    stat(pid).map(|s| s.ticks as f64 / TICKS_PER_SECOND)
}

/// Processor time that the threads of this name in a process have used, in seconds.
pub fn thread_cpu_seconds_of(pid: u32, name: &str) -> Option<f64> {
    let threads = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task")).ok()?;
    let has_name = |thread: &PathBuf| fs::read_to_string(thread.join("comm")).is_ok_and(|comm| comm.trim() == name);
    // Nanoseconds on a processor, then two other numbers.
    let spent = |thread: PathBuf| {
        let text = fs::read_to_string(thread.join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    let named = threads.flatten().map(|entry| entry.path()).filter(has_name);
    let nanoseconds: u64 = named.map(spent).sum::<Option<u64>>()?;
    #[allow(clippy::cast_precision_loss)] // Nanoseconds fit 52 bits for weeks.
    (nanoseconds > 0).then(|| nanoseconds as f64 / 1e9)
}

/// The most memory that a process has held at once, in bytes.
pub fn peak_rss_bytes_of(pid: u32) -> Option<u64> {
    memory_of(pid, "VmHWM:")
}

/// The memory that a process holds, in bytes.
pub fn rss_bytes_of(pid: u32) -> Option<u64> {
    memory_of(pid, "VmRSS:")
}

/// Of the memory that a process holds, what is no page of a file: its heap and stacks, without its code.
pub fn anonymous_rss_bytes_of(pid: u32) -> Option<u64> {
    memory_of(pid, "RssAnon:")
}

/// A line of `/proc/<pid>/status` that counts KiB, in bytes.
fn memory_of(pid: u32, line: &str) -> Option<u64> {
    let text = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status")).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix(line))?;
    line.trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()
        .map(|kib| kib * 1024)
}
