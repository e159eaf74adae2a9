// SPDX-License-Identifier: MIT OR Apache-2.0
//! Windows in which a guest's instructions are counted.
//!
//! Under QEMU's `-icount shift=0` the time-stamp counter goes up by one with every
//! instruction that the guest executes, the kernel's included, so two readings of it
//! are a count. What a window counts depends a little on where it lies relative to
//! the timer ticks, so each starts at a moment of the guest's own clock that is the
//! same in every kernel, shifted by the job's phase ([`kvet_records::Job::offset_ns`]).
//! Nothing reaches the host before the last window has ended: [`Context`] keeps what
//! is reported.
//!
//! [`Context`]: super::Context

use std::arch::x86_64::_rdtsc;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::activity::Activity;
use super::{Context, Stop, TestResult, Tunables, Why, environment, quiet};

/// Guest time between the starts of two windows. What comes before a window and the
/// window itself take some tens of milliseconds; the rest is idle, which costs nothing.
pub const SLOT: Duration = Duration::from_secs(2);

/// Iterations of the loop that a timer tick is measured with: about 100 ms, 25 ticks
/// at 250 Hz.
const TICK_LOOP: u64 = 25_000_000;

/// The time-stamp counter.
#[must_use]
#[expect(unsafe_code, reason = "an instruction")]
pub fn tsc() -> u64 {
    // SAFETY: the instruction reads a counter and touches no memory.
    unsafe { _rdtsc() }
}

/// What one window came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Instructions that the guest executed, whoever's they were.
    pub instructions: u64,
    /// What else happened in it, by name.
    pub beside: BTreeMap<String, i64>,
}

/// A machine that has come to rest, and its windows.
#[derive(Debug)]
pub struct Counted {
    phase: Duration,
    slots: u32,
    start: Duration,
    _settings: Tunables,
}

impl Counted {
    /// Brings the machine to rest, logs its settings and measures what a timer tick
    /// costs.
    ///
    /// # Errors
    /// A setting cannot be made, or the time-stamp counter does not count.
    pub fn start(context: &mut Context, offset_ns: u64) -> TestResult<Self> {
        let mut settings = Tunables::default();
        quiet::quiet(&mut settings)?;
        environment::log_quiet(context)?;
        let start = now();
        let mut counted = Self {
            phase: Duration::from_nanos(offset_ns),
            slots: 0,
            // The next whole second but one, the same for every kernel that got here
            // within a second.
            start: Duration::from_secs(start.as_secs() + 2),
            _settings: settings,
        };
        let tick = counted.tick()?;
        context.log(format!("a timer tick takes {tick:.1} instructions"))?;
        context.tick_cost(tick)?;
        Ok(counted)
    }

    /// Counts the instructions of `work`, from the start of the next slot on.
    ///
    /// # Errors
    /// What came before took longer than a slot, or /proc cannot be read.
    pub fn window<T>(&mut self, work: impl FnOnce() -> T) -> TestResult<(T, Window)> {
        self.wait()?;
        let before = Activity::read()?;
        let from = tsc();
        let value = work();
        let to = tsc();
        let beside = Activity::read()?.since(&before)?;
        let instructions = to.checked_sub(from).why("the time-stamp counter went backwards")?;
        Ok((value, Window { instructions, beside }))
    }

    /// Sleeps until the next slot and this job's phase in it.
    ///
    /// # Errors
    /// That moment is past.
    pub fn wait(&mut self) -> TestResult {
        let at = self.start + SLOT * self.slots + self.phase;
        self.slots += 1;
        let late = now().saturating_sub(at);
        if !late.is_zero() {
            return Err(Stop::fail(format!(
                "window {} begins {late:?} late: what comes before a window must end within {SLOT:?}",
                self.slots
            )));
        }
        sleep_until(at)
    }

    /// Lets `slots` more slots go by before the next window, for work that takes longer.
    pub fn skip(&mut self, slots: u32) {
        self.slots += slots;
    }

    /// Instructions of a timer tick: what a loop that runs across many of them takes
    /// longer than its own instructions.
    fn tick(&mut self) -> TestResult<f64> {
        // Short enough to lie between two ticks now and then.
        let short = (0..16).map(|_| spin(1000)).min().unwrap_or_default();
        let shorter = (0..16).map(|_| spin(500)).min().unwrap_or_default();
        let each = short.checked_sub(shorter).filter(|&count| count > 0);
        let each = each.why("the time-stamp counter does not count")?;
        let (total, window) = self.window(|| spin(TICK_LOOP))?;
        let own = each * (TICK_LOOP / 500);
        let ticks = window.beside.get("interrupts").copied().unwrap_or_default();
        let ticks = u32::try_from(ticks).ok().filter(|&count| count > 0);
        let ticks = ticks.why("no timer interrupt in a long loop")?;
        let over = total.saturating_sub(own);
        #[expect(clippy::cast_precision_loss, reason = "a count far below 2^52")]
        Ok(over as f64 / f64::from(ticks))
    }
}

/// Instructions of a loop.
fn spin(iterations: u64) -> u64 {
    let from = tsc();
    for iteration in 0..iterations {
        black_box(iteration);
    }
    tsc() - from
}

/// Guest time since its boot.
#[must_use]
pub fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

/// Sleeps until that much time has passed since the boot.
///
/// # Errors
/// There is no such moment.
pub fn sleep_until(at: Duration) -> TestResult {
    let at = Timespec::try_from(at).why("a moment that is too late")?;
    loop {
        match clock_nanosleep_absolute(ClockId::Boottime, &at) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error).why("wait for the next window"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_loop_takes_longer() {
        let least = |iterations| (0..50).map(|_| spin(iterations)).min().unwrap();
        assert!(least(100_000) > least(1000));
    }

    #[test]
    fn windows_wait_for_their_slot_and_a_late_one_fails() {
        let start = now() + Duration::from_millis(30);
        let mut counted = Counted {
            phase: Duration::from_millis(5),
            slots: 0,
            start,
            _settings: Tunables::default(),
        };
        let (value, window) = counted.window(|| 7).unwrap();
        assert!(now() >= start + Duration::from_millis(5));
        assert_eq!(value, 7);
        assert!(window.instructions > 0);
        assert!(window.beside.contains_key("interrupts"), "{window:?}");
        let mut late = Counted { start: Duration::ZERO, slots: 0, ..counted };
        assert!(matches!(late.window(|| ()), Err(Stop::Fail(why)) if why.contains("late")));
    }
}
