// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs one job's test or program as a child process.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use kvet_records::{Job, MAX_LINE_BYTES, Outcome, PROTOCOL_VERSION, Program};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, kill_process_group, pidfd_open, wait,
};

use super::console;
use super::output::Output;
use super::ports::Ports;
use super::relay::{Ended, Listener, Relay, Stream};
use crate::harness::TEST_ARGUMENT;

/// Most bytes that are taken from a pipe before anything else is looked at: more
/// than a pipe holds, so that what an ended process left is taken in one go.
const MAX_DRAINED_BYTES: usize = 256 * 1024;

/// Reads the host's line. An error holds the job's id, if it could be read, and
/// the reason.
pub fn parse(line: &[u8]) -> Result<Job, (String, String)> {
    if line.len() > MAX_LINE_BYTES {
        return Err((String::new(), format!("the job is longer than {MAX_LINE_BYTES} bytes")));
    }
    let job: Job = serde_json::from_slice(line)
        .map_err(|error| (id_of(line), format!("cannot read the job: {error}")))?;
    if job.protocol != PROTOCOL_VERSION {
        let reason = format!(
            "the job is of protocol {}, this guest speaks {PROTOCOL_VERSION}",
            job.protocol
        );
        return Err((job.id, reason));
    }
    Ok(job)
}

/// The id in a job that cannot be read otherwise, or nothing.
fn id_of(line: &[u8]) -> String {
    serde_json::from_slice(line)
        .ok()
        .and_then(|job: serde_json::Value| Some(job.get("id")?.as_str()?.to_owned()))
        .unwrap_or_default()
}

/// Runs the job, whose text is `line`, and returns the number of records and
/// how it ended. Nothing of the test is left running.
pub fn run(ports: &mut Ports, job: &Job, line: &[u8]) -> (u64, Outcome) {
    match &job.program {
        Some(program) => attend(ports, job, start_program(program), Output::new(program.format)),
        None => attend(ports, job, start_test(line), Relay::default()),
    }
}

/// A process of the job's, and what it writes to.
struct Started {
    pid: Pid,
    pipes: Vec<(Stream, File)>,
}

fn attend(
    ports: &mut Ports,
    job: &Job,
    started: Result<Started, String>,
    mut listener: impl Listener,
) -> (u64, Outcome) {
    let (ended, violation) = match started {
        Ok(Started { pid, pipes }) => {
            let violation = follow(ports, job, pid, pipes, &mut listener).err();
            if let Some(reason) = &violation {
                console::say(reason);
            }
            // A signal to group 1 goes to every process but init: also to those
            // that have left the test's group.
            if let Err(error) = kill_process_group(Pid::INIT, Signal::KILL)
                && error != Errno::SRCH
            {
                console::say(&format!("kill what is left of the test: {error}"));
            }
            (reap(pid), violation)
        }
        Err(reason) => (Ended::Status(0), Some(reason)),
    };
    listener.finish(ended, violation, &mut ports.records)
}

/// Starts this binary again as the test; its standard output is the pipe.
fn start_test(line: &[u8]) -> Result<Started, String> {
    let line = std::str::from_utf8(line).map_err(|error| format!("read the job: {error}"))?;
    let (output, input) = pipe()?;
    let mut command = Command::new("/proc/self/exe");
    command.args([TEST_ARGUMENT, line]).env_clear().env("PATH", "/bin:/sbin:/usr/bin:/usr/sbin");
    let pid = spawn(command.stdout(input)).map_err(|error| format!("start the test: {error}"))?;
    Ok(Started { pid, pipes: vec![(Stream::Out, output)] })
}

/// Starts a program in /tmp, where it may write.
fn start_program(program: &Program) -> Result<Started, String> {
    // Init's own folder, since `posix_spawn` has no other way to set a child's.
    std::env::set_current_dir("/tmp").map_err(|error| format!("go to /tmp: {error}"))?;
    let (output, output_end) = pipe()?;
    let (errors, errors_end) = pipe()?;
    let mut command = Command::new(&program.path);
    command.args(&program.arguments).env_clear().envs(&program.environment);
    let pid = spawn(command.stdout(output_end).stderr(errors_end))
        .map_err(|error| format!("start {}: {error}", program.path))?;
    Ok(Started { pid, pipes: vec![(Stream::Out, output), (Stream::Err, errors)] })
}

/// A pipe whose reading end does not block.
fn pipe() -> Result<(File, OwnedFd), String> {
    let (output, input) =
        pipe_with(PipeFlags::CLOEXEC).map_err(|error| format!("make a pipe: {error}"))?;
    ioctl_fionbio(&output, true).map_err(|error| format!("set up a pipe: {error}"))?;
    Ok((File::from(output), input))
}

/// Asks of [`Command`] only what it does through `posix_spawn`, since its other
/// way needs Unix sockets in the kernel.
fn spawn(command: &mut Command) -> std::io::Result<Pid> {
    let child = command.stdin(Stdio::null()).process_group(0).spawn()?;
    Ok(Pid::from_child(&child))
}

/// Relays what the job's process says until it has ended. An error is the reason
/// why it must be ended.
fn follow(
    ports: &mut Ports,
    job: &Job,
    pid: Pid,
    mut pipes: Vec<(Stream, File)>,
    listener: &mut impl Listener,
) -> Result<(), String> {
    let process: OwnedFd =
        pidfd_open(pid, PidfdFlags::empty()).map_err(|error| format!("watch the test: {error}"))?;
    loop {
        // A measuring test has the machine for itself: no heartbeat, no timer.
        let timeout = if job.measure.is_none() { ports.until_beat() } else { None };
        let mut ready = vec![PollFd::new(&process, PollFlags::IN)];
        ready.extend(pipes.iter().map(|(_, pipe)| PollFd::new(pipe, PollFlags::IN)));
        match poll(&mut ready, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(format!("wait for the test: {error}")),
        }
        let ended = !ready[0].revents().is_empty();
        drop(ready);
        let mut open = Vec::with_capacity(pipes.len());
        for (stream, mut pipe) in pipes {
            // After a pipe's end there is nothing left to wait for in it.
            if drain(ports, stream, &mut pipe, listener)? {
                open.push((stream, pipe));
            }
        }
        pipes = open;
        if ended {
            return Ok(());
        }
        if job.measure.is_none() {
            ports.beat_if_due()?;
        }
    }
}

/// Relays what is in the pipe by now; false at its end. Returns after some time
/// also when a program writes without end, so that the heart goes on beating.
fn drain(
    ports: &mut Ports,
    stream: Stream,
    pipe: &mut File,
    listener: &mut impl Listener,
) -> Result<bool, String> {
    let mut buffer = [0; 4096];
    let mut taken = 0;
    while taken < MAX_DRAINED_BYTES {
        match pipe.read(&mut buffer) {
            Ok(0) => return Ok(false),
            Ok(count) => {
                taken += count;
                listener.push(stream, &buffer[..count], &mut ports.records)?;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("read what the test says: {error}")),
        }
    }
    Ok(true)
}

/// Waits for all children, which are killed or have ended, and returns how
/// `pid` ended.
fn reap(pid: Pid) -> Ended {
    let mut ended = None;
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((other, status))) if other == pid => ended = Some(how(status)),
            Ok(_) | Err(Errno::INTR) => {}
            // No children left.
            Err(_) => return ended.unwrap_or(Ended::Signal(Signal::KILL.as_raw())),
        }
    }
}

fn how(status: WaitStatus) -> Ended {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(status), _) => Ended::Status(status),
        (None, Some(signal)) => Ended::Signal(signal),
        // `wait` reports nothing else unless asked to.
        (None, None) => Ended::Signal(Signal::KILL.as_raw()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_cannot_be_read_says_whose_it_is_if_it_can() {
        let reason = |line: &[u8]| parse(line).unwrap_err();
        assert_eq!(reason(b"{").0, "");
        assert_eq!(reason(br#"{"id":"j"}"#).0, "j");
        assert_eq!(reason(br#"{"protocol":1,"id":"j","test":"t","colour":1}"#).0, "j");
        let (id, why) = reason(br#"{"protocol":2,"id":"j","test":"t"}"#);
        assert_eq!(id, "j");
        assert!(why.contains("protocol 2"), "{why}");
        assert!(reason(&vec![b' '; MAX_LINE_BYTES + 1]).1.contains("longer"));
    }

    #[test]
    fn a_good_job_is_read() {
        let job = parse(br#"{"protocol":1,"id":"j","test":"t","parameters":{"n":1}}"#).unwrap();
        assert_eq!((job.id.as_str(), job.test.as_str()), ("j", "t"));
    }
}
