// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that do what a test tells them, one step at a time.
//!
//! A [`Task`] is a process with an address space of its own. It does nothing by
//! itself: each method sends one request and returns when the task has carried
//! it out, so a test of several tasks reads as one script and is always in the
//! same order. The task's own side is [`serve`].

mod serve;

use std::fs::File;
use std::io::{self, Read, Write, pipe};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, pidfd_send_signal};

use super::process_madvise::pidfd;
use super::{Advice, Stop, TestResult, Why, proc};

pub use serve::{EXECUTED_ARGUMENT, TASK_ARGUMENT, serve};

/// Longest wait for a step of a task. Touching some hundred MiB takes seconds
/// on an emulated CPU.
const DEADLINE: Duration = Duration::from_secs(60);

/// Longest reply in bytes.
const MAX_REPLY_BYTES: usize = 4096;

/// A process that carries out one step after another. Dropping it ends the
/// process and waits for its end, after which its memory is gone.
#[derive(Debug)]
pub struct Task {
    name: String,
    process: Process,
    requests: File,
    replies: File,
    memory: Range<usize>,
}

/// Whose child the task is.
#[derive(Debug)]
enum Process {
    /// The test's.
    Ours(Child),
    /// That of the task which forked it.
    Forked { pid: u32, pidfd: OwnedFd },
}

impl Task {
    /// Starts a task that will have `len` bytes of private anonymous memory, a
    /// multiple of the page size, not yet touched. `name` is for messages.
    ///
    /// # Errors
    /// The process cannot be started or the memory not be mapped.
    pub fn start(name: &str, len: usize) -> TestResult<Self> {
        let mut child = Command::new("/proc/self/exe")
            .arg(TASK_ARGUMENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .why(format_args!("start task {name}"))?;
        let requests = OwnedFd::from(child.stdin.take().why("task has no stdin")?);
        let replies = OwnedFd::from(child.stdout.take().why("task has no stdout")?);
        let mut task = Self {
            name: name.to_owned(),
            process: Process::Ours(child),
            requests: requests.into(),
            replies: replies.into(),
            memory: 0..0,
        };
        task.map(len)?;
        Ok(task)
    }

    /// Forks the task. The new one, `name`, shares the memory, copy-on-write.
    ///
    /// # Errors
    /// The task cannot fork, or is gone or does not answer.
    pub fn fork(&mut self, name: &str) -> TestResult<Self> {
        let (requests_end, requests) = pipe().why("make a pipe")?;
        let (replies, replies_end) = pipe().why("make a pipe")?;
        let ends = (requests_end.as_raw_fd(), replies_end.as_raw_fd());
        let reply = self.request(&format!("fork {} {} {}", std::process::id(), ends.0, ends.1))?;
        let pid: u32 = reply.parse().why(format_args!("task {name}: fork: {reply:?}"))?;
        let mut task = Self {
            name: name.to_owned(),
            process: Process::Forked { pid, pidfd: pidfd(pid)? },
            requests: OwnedFd::from(requests).into(),
            replies: OwnedFd::from(replies).into(),
            memory: self.memory.clone(),
        };
        task.receive("fork")?;
        Ok(task)
    }

    /// Executes the same program again in the task's process, which then has
    /// `len` bytes of new memory, as in [`Task::start`], instead of the old.
    ///
    /// # Errors
    /// The task cannot execute it, or is gone or does not answer.
    pub fn execute(&mut self, len: usize) -> TestResult {
        self.request("execute")?;
        self.map(len)
    }

    fn map(&mut self, len: usize) -> TestResult {
        let reply = self.request(&format!("map {len}"))?;
        let start: usize = reply.parse().why(format_args!("task {}: map: {reply:?}", self.name))?;
        self.memory = start..start + len;
        Ok(())
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        match &self.process {
            Process::Ours(child) => child.id(),
            Process::Forked { pid, .. } => *pid,
        }
    }

    /// Address, in the task, of the first byte of its memory.
    #[must_use]
    pub fn address(&self) -> usize {
        self.memory.start
    }

    /// Length of the task's memory in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether the memory has been unmapped.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// Writes to every page that starts in `range` of the memory.
    ///
    /// # Errors
    /// The task is gone or does not answer.
    pub fn touch(&mut self, range: Range<usize>) -> TestResult {
        self.request(&format!("touch {} {}", range.start, range.end)).map(drop)
    }

    /// Gives `advice` on `range` of the memory.
    ///
    /// # Errors
    /// The kernel refuses, or the task is gone or does not answer.
    pub fn advise(&mut self, advice: Advice, range: Range<usize>) -> TestResult {
        self.request(&format!("advise {} {} {}", range.start, range.end, advice.name())).map(drop)
    }

    /// Reads `count` words of the memory at places that look random and depend on
    /// `seed` alone. Returns what the time-stamp counter says that it took.
    ///
    /// # Errors
    /// The task is gone or does not answer.
    pub fn read(&mut self, count: u64, seed: u64) -> TestResult<u64> {
        let reply = self.request(&format!("read {count} {seed}"))?;
        reply.parse().why(format_args!("task {}: read: {reply:?}", self.name))
    }

    /// Unmaps the memory.
    ///
    /// # Errors
    /// The task is gone or does not answer.
    pub fn unmap(&mut self) -> TestResult {
        self.request("unmap")?;
        self.memory = 0..0;
        Ok(())
    }

    /// Maps `count` areas (VMAs) of one page each, beside the memory, that cannot
    /// be merged. They stay until the task ends.
    ///
    /// # Errors
    /// The kernel made another number of areas; the task is gone or does not
    /// answer.
    pub fn add_areas(&mut self, count: usize) -> TestResult {
        self.request(&format!("areas {count}")).map(drop)
    }

    /// Disables huge pages in the task, or enables them again, with
    /// `PR_SET_THP_DISABLE`.
    ///
    /// # Errors
    /// The kernel refuses, or the task is gone or does not answer.
    pub fn disable_thp(&mut self, disable: bool) -> TestResult {
        self.request(&format!("disable_thp {disable}")).map(drop)
    }

    /// Whether huge pages are disabled in the task, by `PR_GET_THP_DISABLE`.
    ///
    /// # Errors
    /// The kernel refuses, or the task is gone or does not answer.
    pub fn thp_disabled(&mut self) -> TestResult<bool> {
        let reply = self.request("thp_disabled")?;
        reply.parse().why(format_args!("task {}: thp_disabled: {reply:?}", self.name))
    }

    /// Bytes of the memory that are mapped with huge pages.
    ///
    /// # Errors
    /// The task is gone, or the kernel does not say.
    pub fn huge_bytes(&self) -> TestResult<u64> {
        proc::huge_bytes(self.pid(), self.memory.clone())
    }

    /// Sends one line and returns what the task answers.
    fn request(&mut self, line: &str) -> TestResult<String> {
        writeln!(self.requests, "{line}").why(format_args!("task {}: {line}", self.name))?;
        self.receive(line)
    }

    /// What the task answers to `line`.
    fn receive(&mut self, line: &str) -> TestResult<String> {
        let name = &self.name;
        let reply =
            read_line(&mut self.replies, DEADLINE).why(format_args!("task {name}: {line}"))?;
        match reply.split_once(' ') {
            Some(("ok", value)) => Ok(value.to_owned()),
            _ => Err(Stop::fail(format!("task {name}: {reply}"))),
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        // It can only have ended before; then there is nothing to end.
        match &mut self.process {
            Process::Ours(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
            Process::Forked { pidfd, .. } => {
                let _ = pidfd_send_signal(&*pidfd, Signal::KILL);
                let _ = wait_for_input(pidfd, DEADLINE);
            }
        }
    }
}

/// Reads one line, with its end removed, that must be there by `deadline`.
fn read_line(from: &mut File, deadline: Duration) -> io::Result<String> {
    let start = Instant::now();
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        wait_for_input(&*from, deadline.saturating_sub(start.elapsed()))?;
        let mut buffer = [0; 256];
        let count = from.read(&mut buffer)?;
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the task is gone"));
        }
        line.extend_from_slice(&buffer[..count]);
        if line.len() > MAX_REPLY_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is too long"));
        }
    }
    line.pop();
    String::from_utf8(line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Waits until `file` has something to read or, if it is a pidfd, its process
/// has ended.
fn wait_for_input(file: impl AsFd, deadline: Duration) -> io::Result<()> {
    let timeout = Timespec::try_from(deadline).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&timeout))? {
        0 => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")),
        _ => Ok(()),
    }
}
