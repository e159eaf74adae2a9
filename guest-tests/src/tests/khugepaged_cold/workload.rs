// SPDX-License-Identifier: MIT OR Apache-2.0
//! How soon does a busy task get its huge pages behind one that was told to be cold?
//!
//! The workload of the mail with which the change was posted, scaled to what a counted
//! guest can afford: *hot1*, *cold* and *hot2*, each with `memory` of touched small
//! pages, come onto khugepaged's list two seconds apart; *cold* gives the advice; then
//! khugepaged is let go, one PMD range every 10 ms, while the hot tasks read at random
//! places, `reads` each, in bursts 10 ms apart.
//!
//! - `access.total` and `access.each`: instructions of all reads of *hot2*, and of one.
//!   `access.rate`: its reads per second of its own time. A count of instructions
//!   hardly sees what huge pages are for, which is the misses.
//! - `huge.hot1` and `huge.hot2`: guest time from then until the task is fully huge.
//! - `khugepaged.cpu`: instructions of khugepaged until both are.
//! - `scans.vain`: PMD ranges that khugepaged scanned without a collapse until then.
//!
//! How many passes it takes until *hot2* has its first huge page is an exact fact, which
//! the test without a measure observes (`kicks.ADVICE`).

use std::collections::BTreeMap;
use std::time::Duration;

use kvet_records::{Better, Parameters, Value};

use crate::harness::counted::{SLOT, now, sleep_until};
use crate::harness::khugepaged::{Khugepaged, listed_task};
use crate::harness::mapping::PAGE;
use crate::harness::{
    Advice, Context, Counted, Default, EventCounter, Measured, Parameter, Stop, Task, TestResult,
    Why, needs, thp,
};

/// What the test measures.
pub const MEASURED: Measured = Measured {
    test: "khugepaged_cold",
    parameters: &[
        Parameter {
            name: "memory",
            summary: "size of each task, such as 128MiB",
            default: Default::Text("64MiB"),
        },
        Parameter {
            name: "reads",
            summary: "random reads of each hot task",
            default: Default::Integer(3_276_800),
        },
        Parameter {
            name: "advice",
            summary: "cold and free, or one of them",
            default: Default::Text("cold,free"),
        },
    ],
    run,
};

/// Reads of a burst; the mail's inner loop.
const BURST: u64 = 32_768;

/// Time from one burst to the next, and from one pass of khugepaged to the next.
const STEP: Duration = Duration::from_millis(10);

/// Time between two looks at what khugepaged has done.
const LOOK: Duration = Duration::from_millis(1);

/// Longest time until all is huge: many times what one PMD range per step takes.
const LIMIT: Duration = Duration::from_secs(60);

/// Slots that a window of that length takes.
const SLOTS: u32 = LIMIT.as_secs().div_ceil(SLOT.as_secs()) as u32;

/// `SCAN_SUCCEED` of `enum scan_result` in mm/khugepaged.c.
const SCAN_SUCCEED: u32 = 1;

fn run(context: &mut Context, counted: &mut Counted) -> TestResult {
    let memory = context.bytes("memory")?;
    let reads: u64 = context.integer("reads")?;
    let huge_page = thp::huge_page_size()?;
    if memory < huge_page || !memory.is_multiple_of(huge_page) {
        return Err(Stop::fail(format!("parameter memory: whole huge pages of {huge_page} bytes")));
    }
    if reads < BURST || !reads.is_multiple_of(BURST) {
        return Err(Stop::fail(format!("parameter reads: a multiple of {BURST}")));
    }
    needs::root()?;
    // Small and huge pages of three tasks at once, and as much again to spare.
    needs::memory(8 * memory as u64)?;
    for name in context.words("advice")? {
        let advice = match Advice::from_name(&name) {
            Some(advice @ (Advice::Cold | Advice::Free)) => advice,
            _ => return Err(Stop::fail(format!("parameter advice cannot hold {name:?}"))),
        };
        Workload { memory, bursts: reads / BURST, advice, huge_page }.run(context, counted)?;
    }
    Ok(())
}

struct Workload {
    memory: usize,
    bursts: u64,
    advice: Advice,
    huge_page: usize,
}

/// What has happened until some moment of the workload.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    hot1: Option<Duration>,
    hot2: Option<Duration>,
    cpu: u64,
}

impl Workload {
    fn run(&self, context: &mut Context, counted: &mut Counted) -> TestResult {
        let pages = self.huge_page / PAGE;
        let khugepaged = Khugepaged::stop(pages)?;
        khugepaged.settle()?;
        let mut hot1 = self.task(counted, "hot1")?;
        let mut cold = self.task(counted, "cold")?;
        let mut hot2 = self.task(counted, "hot2")?;
        cold.advise(self.advice, 0..self.memory)?;
        let mut vain = EventCounter::new(
            "huge_memory",
            "mm_khugepaged_scan_pmd",
            &format!("status != {SCAN_SUCCEED}"),
        )?;
        let (counting, window) =
            counted.window(|| vain.count(|| self.work(&khugepaged, &mut hot1, &mut hot2)))?;
        let (result, scans) = counting?;
        let (seen, total) = result?;
        // Longer than one slot: the next window comes later, in every kernel.
        counted.skip(SLOTS);
        let parameters = Parameters::from([("advice".to_owned(), Value::from(self.advice.name()))]);
        let mut sample = |metric: &str, value: f64, unit: &str, better: Better| {
            let whole = metric == "access.total";
            let none = BTreeMap::new();
            let beside = if whole { &window.beside } else { &none };
            context.sample_beside(metric, value, unit, better, &parameters, beside)
        };
        let reads = (self.bursts * BURST) as f64;
        sample("access.total", total as f64, "instructions", Better::Lower)?;
        sample("access.each", total as f64 / reads, "instructions", Better::Lower)?;
        sample("access.rate", reads / (total as f64 / 1e9) / 1e6, "M/s", Better::Higher)?;
        let nanoseconds = |time: Option<Duration>| {
            time.map(|time| time.as_nanos() as f64).why("a hot task is not huge in the end")
        };
        sample("huge.hot1", nanoseconds(seen.hot1)?, "ns", Better::Lower)?;
        sample("huge.hot2", nanoseconds(seen.hot2)?, "ns", Better::Lower)?;
        sample("khugepaged.cpu", seen.cpu as f64, "instructions", Better::Lower)?;
        sample("scans.vain", scans as f64, "events", Better::Lower)
    }

    fn task(&self, counted: &mut Counted, name: &str) -> TestResult<Task> {
        let task = listed_task(name, self.memory)?;
        counted.wait()?;
        Ok(task)
    }

    /// Lets khugepaged go and reads until the reads are done and both hot tasks are
    /// huge. Returns when, and the instructions of hot2's reads.
    fn work(
        &self,
        khugepaged: &Khugepaged,
        hot1: &mut Task,
        hot2: &mut Task,
    ) -> TestResult<(Seen, u64)> {
        let clock = khugepaged.cpu_clock()?;
        let cpu = clock.read()?;
        let all = 2 * (self.memory / self.huge_page) as u64;
        let before = khugepaged.collapsed()?;
        let start = now();
        let _free = khugepaged.run_freely(STEP)?;
        let mut seen = Seen::default();
        let (mut bursts, mut total) = (0, 0);
        while bursts < self.bursts || seen.hot2.is_none() {
            if bursts < self.bursts {
                hot1.read(BURST, bursts)?;
                total += hot2.read(BURST, bursts)?;
                bursts += 1;
            }
            let passed = (now() - start).as_nanos() / STEP.as_nanos();
            let next = start + STEP * u32::try_from(passed + 1).why("steps")?;
            while now() < next {
                let collapsed = khugepaged.collapsed()?.saturating_sub(before);
                if seen.hot1.is_none() && collapsed >= all / 2 {
                    seen.hot1 = Some(now() - start);
                }
                if seen.hot2.is_none() && collapsed >= all {
                    seen.hot2 = Some(now() - start);
                    seen.cpu = clock.read()?.saturating_sub(cpu);
                }
                sleep_until(now() + LOOK)?;
            }
            if now() - start > LIMIT {
                return Err(Stop::fail(format!("not all huge in {LIMIT:?} of guest time")));
            }
        }
        let whole = self.memory as u64;
        if hot1.huge_bytes()? != whole || hot2.huge_bytes()? != whole {
            return Err(Stop::fail(
                "khugepaged collapsed as much as the hot tasks have, but not theirs",
            ));
        }
        Ok((seen, total))
    }
}
