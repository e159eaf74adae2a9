// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that do what a test tells them, one step at a time.
//!
//! A [`Task`] is a fresh process with an address space of its own. It does
//! nothing by itself: each method sends one request and returns when the task
//! has carried it out, so a test of several tasks reads as one script and is
//! always in the same order.

use std::io::{self, BufRead, Read, Write};
use std::ops::Range;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Advice, Mapping, Stop, TestResult, Why, proc};

/// Argument that makes the guest binary [`serve`] as a task.
pub const TASK_ARGUMENT: &str = "task";

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
    child: Child,
    requests: ChildStdin,
    replies: ChildStdout,
    memory: Range<usize>,
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
        let requests = child.stdin.take().why("task has no stdin")?;
        let replies = child.stdout.take().why("task has no stdout")?;
        let mut task = Self { name: name.to_owned(), child, requests, replies, memory: 0..0 };
        let reply = task.request(&format!("map {len}"))?;
        let start: usize = reply.parse().why(format_args!("task {name}: map: {reply:?}"))?;
        task.memory = start..start + len;
        Ok(task)
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
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

    /// Unmaps the memory.
    ///
    /// # Errors
    /// The task is gone or does not answer.
    pub fn unmap(&mut self) -> TestResult {
        self.request("unmap")?;
        self.memory = 0..0;
        Ok(())
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
        let name = &self.name;
        writeln!(self.requests, "{line}").why(format_args!("task {name}: {line}"))?;
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
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads one line, with its end removed, that must be there by `deadline`.
fn read_line(from: &mut ChildStdout, deadline: Duration) -> io::Result<String> {
    let start = Instant::now();
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        let left = deadline.saturating_sub(start.elapsed());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        if poll(&mut [PollFd::new(from, PollFlags::IN)], Some(&timeout))? == 0 {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time"));
        }
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

/// The task's side: carries out requests until there are no more.
#[must_use]
pub fn serve() -> ExitCode {
    let mut memory = None;
    for request in io::stdin().lock().lines() {
        let Ok(request) = request else {
            return ExitCode::FAILURE;
        };
        let reply = match answer(&request, &mut memory) {
            Ok(value) => format!("ok {value}\n"),
            Err(Stop::Fail(why) | Stop::Skip(why)) => format!("{request}: {why}\n"),
        };
        if io::stdout().lock().write_all(reply.as_bytes()).is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Carries out one request and returns the value of its reply.
fn answer(request: &str, memory: &mut Option<Mapping>) -> TestResult<String> {
    let words: Vec<&str> = request.split(' ').collect();
    let number = |word: &str| word.parse::<usize>().why(format_args!("{word:?} is no number"));
    match words[..] {
        ["map", len] => {
            let mapping = memory.insert(Mapping::anonymous(number(len)?)?);
            return Ok(mapping.address().to_string());
        }
        ["unmap"] => drop(memory.take().why("nothing is mapped")?),
        ["touch", start, end] => {
            let mapping = memory.as_ref().why("nothing is mapped")?;
            mapping.touch(within(mapping, number(start)?..number(end)?)?);
        }
        ["advise", start, end, name] => {
            let mapping = memory.as_ref().why("nothing is mapped")?;
            let advice = Advice::from_name(name).why("no such advice")?;
            mapping.advise(advice, within(mapping, number(start)?..number(end)?)?)?;
        }
        _ => return Err(Stop::fail("no such request")),
    }
    Ok(String::new())
}

/// `range`, unless it leaves the mapping.
fn within(mapping: &Mapping, range: Range<usize>) -> TestResult<Range<usize>> {
    (range.start <= range.end && range.end <= mapping.len())
        .then_some(range)
        .why("the range leaves the mapping")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_carries_out_its_requests() {
        let mut memory = None;
        let mut ask = |request: &str| answer(request, &mut memory);
        assert!(ask("touch 0 1").is_err());
        assert!(ask("map 8192").unwrap().parse::<usize>().is_ok());
        assert_eq!(ask("touch 0 8192").unwrap(), "");
        assert_eq!(ask("advise 0 4096 dontneed").unwrap(), "");
        assert_eq!(ask("unmap").unwrap(), "");
        assert!(ask("unmap").is_err());
    }

    #[test]
    fn a_request_that_makes_no_sense_is_an_error() {
        let mut memory = Some(Mapping::anonymous(4096).unwrap());
        for request in
            ["", "map", "map x", "map 1", "touch 0 8192", "touch 2 1", "advise 0 1 warm", "fly"]
        {
            assert!(answer(request, &mut memory).is_err(), "{request:?}");
        }
    }
}
