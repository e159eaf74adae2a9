// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts a job at a moment of the guest's own clock.
//!
//! A saved machine goes on from the moment of its save, and its job comes when the
//! host gets to it. What a test executes depends a little on when it starts, such as
//! on where the next timer tick falls; at an absolute guest time it starts alike
//! whenever the machine was saved.

use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Waits until the guest has been up for `at_ms` milliseconds, without a heartbeat:
/// nothing but this one timer runs. Returns at once when there is no such moment.
///
/// # Errors
/// The moment is past, or cannot be waited for.
pub fn wait(at_ms: Option<u64>) -> Result<(), String> {
    let Some(at_ms) = at_ms else { return Ok(()) };
    let at = Timespec::try_from(Duration::from_millis(at_ms))
        .map_err(|error| format!("start the job at {at_ms} ms: {error}"))?;
    let now = clock_gettime(ClockId::Boottime);
    if now >= at {
        let now_ms = now.tv_sec * 1000 + now.tv_nsec / 1_000_000;
        return Err(format!(
            "the job is to start {at_ms} ms after the boot, but the guest is up for {now_ms} ms"
        ));
    }
    loop {
        match clock_nanosleep_absolute(ClockId::Boottime, &at) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(format!("wait for {at_ms} ms after the boot: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uptime_ms() -> u64 {
        let now = clock_gettime(ClockId::Boottime);
        u64::try_from(now.tv_sec * 1000 + now.tv_nsec / 1_000_000).unwrap()
    }

    #[test]
    fn a_moment_to_come_is_waited_for() {
        let at_ms = uptime_ms() + 30;
        wait(Some(at_ms)).unwrap();
        assert!(uptime_ms() >= at_ms);
    }

    #[test]
    fn a_moment_that_is_past_is_an_error_and_none_is_no_wait() {
        let why = wait(Some(1)).unwrap_err();
        assert!(why.starts_with("the job is to start 1 ms after the boot"), "{why}");
        wait(None).unwrap();
    }
}
