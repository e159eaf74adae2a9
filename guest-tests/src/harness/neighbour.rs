// SPDX-License-Identifier: MIT OR Apache-2.0
//! A thread on another CPU that reads and writes the test's memory at once when
//! it is told to.
//!
//! It shares the test's address space and never sleeps: a CPU that goes idle or
//! switches to another task forgets translations by itself, and then shows
//! nothing about whether it was told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::mapping::PAGE;
use super::{Mapping, Stop, TestResult, Why, cpu};

/// Longest wait for a neighbour. An emulated CPU may wait long for a real one.
const DEADLINE: Duration = Duration::from_secs(20);

/// What a neighbour is told to do with the first word of each page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Count those that hold another value.
    Count(u64),
    /// Write the value.
    Write(u64),
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// Number of orders given; the fields below belong to the last one.
    given: AtomicU64,
    writes: AtomicBool,
    value: AtomicU64,
    address: AtomicUsize,
    pages: AtomicUsize,
    /// Number of orders carried out; the field below belongs to the last one.
    done: AtomicU64,
    counted: AtomicUsize,
    /// It runs where it should; false until then.
    there: AtomicBool,
}

/// A thread that spins on one CPU. Dropping it ends the thread.
#[derive(Debug)]
pub struct Neighbour {
    cpu: usize,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<TestResult>>,
}

impl Neighbour {
    /// Starts a thread on `cpu`, which must not be that of the caller.
    ///
    /// # Errors
    /// There is no such CPU.
    pub fn start(cpu: usize) -> TestResult<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(format!("neighbour-{cpu}"))
            .spawn(move || {
                cpu::pin(cpu)?;
                theirs.there.store(true, Ordering::Release);
                serve(&theirs);
                Ok(())
            })
            .why(format_args!("start a thread for CPU {cpu}"))?;
        let mut this = Self { cpu, shared, thread: Some(thread) };
        let start = Instant::now();
        while !this.shared.there.load(Ordering::Acquire) {
            if this.thread.as_ref().is_none_or(JoinHandle::is_finished)
                && !this.shared.there.load(Ordering::Acquire)
            {
                let ended = this.thread.take().map(JoinHandle::join);
                return match ended {
                    Some(Ok(Err(stop))) => Err(stop),
                    _ => Err(Stop::fail(format!("the thread for CPU {cpu} is gone"))),
                };
            }
            if start.elapsed() > DEADLINE {
                return Err(Stop::fail(format!("no thread on CPU {cpu} after {DEADLINE:?}")));
            }
            std::thread::yield_now();
        }
        Ok(this)
    }

    /// The CPU.
    #[must_use]
    pub fn cpu(&self) -> usize {
        self.cpu
    }

    /// Has an order carried out on the first `pages` pages of `mapping`, and
    /// returns how many of them held another value than [`Order::Count`] names.
    /// Spins meanwhile.
    ///
    /// # Errors
    /// There is no answer in time.
    ///
    /// # Panics
    /// The mapping has less pages.
    pub fn order(&mut self, order: Order, mapping: &Mapping, pages: usize) -> TestResult<usize> {
        assert!(pages * PAGE <= mapping.len(), "{pages} pages leave a mapping");
        let shared = &self.shared;
        let (writes, value) = match order {
            Order::Count(value) => (false, value),
            Order::Write(value) => (true, value),
        };
        shared.writes.store(writes, Ordering::Relaxed);
        shared.value.store(value, Ordering::Relaxed);
        shared.address.store(mapping.address(), Ordering::Relaxed);
        shared.pages.store(pages, Ordering::Relaxed);
        let number = shared.given.load(Ordering::Relaxed) + 1;
        shared.given.store(number, Ordering::Release);
        let start = Instant::now();
        while shared.done.load(Ordering::Acquire) != number {
            std::hint::spin_loop();
            if start.elapsed() > DEADLINE {
                // It must not come to the order when the mapping is gone.
                self.end();
                let cpu = self.cpu;
                return Err(Stop::fail(format!("no answer from CPU {cpu} after {DEADLINE:?}")));
            }
        }
        Ok(shared.counted.load(Ordering::Relaxed))
    }

    /// Ends the thread, and waits for that.
    fn end(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // It cannot panic, and its result came at the start.
            let _ = thread.join();
        }
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.end();
    }
}

/// Carries out orders until there are no more.
fn serve(shared: &Shared) {
    let mut done = 0;
    while !shared.stop.load(Ordering::Acquire) {
        if shared.given.load(Ordering::Acquire) == done {
            std::hint::spin_loop();
            continue;
        }
        let value = shared.value.load(Ordering::Relaxed);
        let address = shared.address.load(Ordering::Relaxed);
        let mut counted = 0;
        for page in 0..shared.pages.load(Ordering::Relaxed) {
            let word = std::ptr::with_exposed_provenance_mut::<u64>(address + page * PAGE);
            #[expect(unsafe_code, reason = "memory that belongs to another thread's mapping")]
            // SAFETY: `order` has checked that the page lies in a mapping, which
            // it borrows until this order is done, and which is readable and
            // writable. The thread that owns it waits, so nobody else accesses it.
            unsafe {
                if shared.writes.load(Ordering::Relaxed) {
                    word.write_volatile(value);
                } else if word.read_volatile() != value {
                    counted += 1;
                }
            }
        }
        done += 1;
        shared.counted.store(counted, Ordering::Relaxed);
        shared.done.store(done, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_reads_and_writes_what_it_is_told() {
        let mapping = Mapping::anonymous(4 * PAGE).unwrap();
        let mut neighbour = Neighbour::start(0).unwrap();
        assert_eq!(neighbour.order(Order::Count(0), &mapping, 4).unwrap(), 0);
        neighbour.order(Order::Write(7), &mapping, 3).unwrap();
        assert_eq!(neighbour.order(Order::Count(7), &mapping, 4).unwrap(), 1);
        assert_eq!(mapping.word(2 * PAGE), 7);
        assert_eq!(mapping.word(3 * PAGE), 0);
    }

    #[test]
    fn a_cpu_that_is_not_there_is_a_failure() {
        assert!(Neighbour::start(1 << 20).is_err());
    }
}
