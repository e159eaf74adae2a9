// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs one job's test as a child process.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use kvet_records::{Job, MAX_LINE_BYTES, Outcome, PROTOCOL_VERSION};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, kill_process_group, pidfd_open, wait,
};

use super::console;
use super::ports::Ports;
use super::relay::{Ended, Relay};
use crate::harness::TEST_ARGUMENT;

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
    let mut relay = Relay::default();
    let (ended, violation) = match start(line) {
        Ok((pid, output)) => {
            let violation = follow(ports, job, pid, output, &mut relay).err();
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
    relay.finish(ended, violation)
}

/// Starts this binary again as the test; its standard output is the pipe. Asks
/// of [`Command`] only what it does through `posix_spawn`, since its other way
/// needs Unix sockets in the kernel.
fn start(line: &[u8]) -> Result<(Pid, File), String> {
    let line = std::str::from_utf8(line).map_err(|error| format!("read the job: {error}"))?;
    let (output, input) =
        pipe_with(PipeFlags::CLOEXEC).map_err(|error| format!("make a pipe: {error}"))?;
    ioctl_fionbio(&output, true).map_err(|error| format!("set up a pipe: {error}"))?;
    let child = Command::new("/proc/self/exe")
        .args([TEST_ARGUMENT, line])
        .env_clear()
        .env("PATH", "/bin:/sbin:/usr/bin:/usr/sbin")
        .stdin(Stdio::null())
        .stdout(input)
        .process_group(0)
        .spawn()
        .map_err(|error| format!("start the test: {error}"))?;
    let pid = Pid::from_child(&child);
    Ok((pid, File::from(output)))
}

/// Relays what the test says until its process has ended. An error is the
/// reason why it must be ended.
fn follow(
    ports: &mut Ports,
    job: &Job,
    pid: Pid,
    mut output: File,
    relay: &mut Relay,
) -> Result<(), String> {
    let process: OwnedFd =
        pidfd_open(pid, PidfdFlags::empty()).map_err(|error| format!("watch the test: {error}"))?;
    let mut open = true;
    loop {
        // A measuring test has the machine for itself: no heartbeat, no timer.
        let timeout = if job.measure.is_none() { ports.until_beat() } else { None };
        let mut ready = [PollFd::new(&process, PollFlags::IN), PollFd::new(&output, PollFlags::IN)];
        // After the pipe's end only the process is left to wait for.
        let watched = if open { &mut ready[..] } else { &mut ready[..1] };
        match poll(watched, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(format!("wait for the test: {error}")),
        }
        let ended = !ready[0].revents().is_empty();
        if open {
            open = drain(ports, &mut output, relay)?;
        }
        if ended {
            return Ok(());
        }
        if job.measure.is_none() {
            ports.beat_if_due()?;
        }
    }
}

/// Relays what is in the pipe by now; false at its end.
fn drain(ports: &mut Ports, output: &mut File, relay: &mut Relay) -> Result<bool, String> {
    let mut buffer = [0; 4096];
    loop {
        match output.read(&mut buffer) {
            Ok(0) => return Ok(false),
            Ok(count) => relay.push(&buffer[..count], &mut ports.records)?,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("read what the test says: {error}")),
        }
    }
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
