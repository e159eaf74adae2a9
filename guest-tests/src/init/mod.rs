// SPDX-License-Identifier: MIT OR Apache-2.0
//! Process 1 of a guest: reads a job, runs its test, relays what the test
//! reports, says how it ended, and ends the machine.
//!
//! The test runs as a child, so whatever happens to it, init lives to tell.
//! Init itself must not end: the kernel would panic, and the host would take
//! that for the kernel's fault. Every error goes to the console, and the machine
//! is restarted, which is what the host takes for its end.

mod console;
mod job;
mod mounts;
mod output;
mod ports;
mod relay;
mod start;

use std::io::Write;
use std::panic::catch_unwind;
use std::thread::sleep;
use std::time::Duration;

use kvet_records::{Outcome, PROTOCOL_VERSION, Record};
use rustix::system::{RebootCommand, reboot, uname};

use ports::{Heart, Ports, Wait};

/// Time for the last record to leave the machine, unless `kvet.drain_ms=` on the
/// kernel's command line says otherwise. Under TCG a port has taken a write when the
/// write returns; under KVM the host's thread takes it later.
const DRAIN: Duration = Duration::from_millis(100);

fn drain(command_line: &str) -> Duration {
    let words = command_line.split_whitespace();
    let mut milliseconds =
        words.filter_map(|word| word.strip_prefix("kvet.drain_ms=")?.parse().ok());
    milliseconds.next_back().map_or(DRAIN, Duration::from_millis)
}

/// Runs the guest. Never returns, and never panics.
pub fn main() -> ! {
    match catch_unwind(run) {
        Ok(Ok(())) => {}
        Ok(Err(why)) => console::say(&why),
        // The panic's message is on standard error, which is the console.
        Err(_) => console::say("init panicked"),
    }
    rustix::fs::sync();
    // What was said on the console leaves with interrupts, one buffer after another.
    let _ = rustix::termios::tcdrain(std::io::stderr());
    loop {
        if let Err(error) = reboot(RebootCommand::Restart) {
            console::say(&format!("restart the machine: {error}"));
        }
        sleep(Duration::from_secs(1));
    }
}

fn run() -> Result<(), String> {
    mounts::mount_all()?;
    console::show_warnings();
    let command_line = std::fs::read_to_string("/proc/cmdline")
        .map_err(|error| format!("read /proc/cmdline: {error}"))?;
    let heart = Heart::from_command_line(&command_line);
    let mut ports = Ports::open(heart, Wait::from_command_line(&command_line))?;
    ports.send(&Record::Hello {
        protocol: PROTOCOL_VERSION,
        release: uname().release().to_string_lossy().into_owned(),
        command_line: command_line.trim_end().to_owned(),
    })?;
    let line = ports.wait_for_job()?;
    let ready = job::parse(&line).and_then(|job| match start::wait(job.start_at_ms) {
        Ok(()) => Ok(job),
        Err(reason) => Err((job.id, reason)),
    });
    let (id, records, outcome) = match ready {
        Ok(job) => {
            ports.send(&Record::Start { job: job.id.clone(), test: job.test.clone() })?;
            let (records, outcome) = job::run(&mut ports, &job, &line);
            (job.id, records, outcome)
        }
        Err((id, reason)) => {
            console::say(&reason);
            (id, 0, Outcome::Failed { reason })
        }
    };
    ports.send(&Record::End { job: id, records, outcome })?;
    ports.records.flush().map_err(|error| format!("send the last record: {error}"))?;
    sleep(drain(&command_line));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_says_how_long_the_last_record_takes() {
        assert_eq!(drain("console=ttyS0"), DRAIN);
        assert_eq!(drain("a kvet.drain_ms=0"), Duration::ZERO);
        assert_eq!(drain("kvet.drain_ms=x"), DRAIN);
    }
}
