// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `process_madvise` costs the other CPUs, and that none of them goes on
//! reading memory that is gone.
//!
//! **What it proves.** The mm has threads on all CPUs, so every flush is an
//! interrupt that each of them answers, and the caller waits. A kernel sends one
//! for each range of a vector; with the series `madvise-batch-tlb` it sends one
//! for a whole call. When the call has returned, no CPU may use a translation
//! from before it: not for reading, where `MADV_DONTNEED` has taken the page,
//! and not for writing, where `MADV_FREE` has to notice the write.
//!
//! **How.** A [`Neighbour`] spins on each other CPU.
//! - `shootdowns.ADVICE.vlen_N`: flushes of other CPUs that one call asks for
//!   (`tlb:tlb_flush` with reason 4, in the caller).
//! - `received.ADVICE.vlen_16`: flushes that each other CPU does for it (reason 1,
//!   by CPU). A CPU that has just run a kernel thread flushes later instead, so
//!   this is the most of some calls; `uneven` if CPUs differ.
//! - `locks.ADVICE.vlen_N`: times that the call takes the mmap_lock
//!   (`mmap_lock:mmap_lock_acquire_returned`).
//! - `stale.dontneed`: round after round, a call takes a vector's pages, which the
//!   neighbour has just read; this CPU writes something new, but in every fourth
//!   round; and the neighbour reads again, at once. Counts the pages of all rounds
//!   in which it finds anything else than the new value or zeros.
//! - `lost.free`: the neighbour writes to a vector's pages; the call marks them;
//!   the neighbour writes again, and then the kernel is told to take what was not
//!   written (`MADV_PAGEOUT`). Counts what is not there any more. A CPU that was
//!   not told of the flush thinks that it has already said that it writes.
//!
//! **Controls.**
//! - `shootdowns.ADVICE.single_calls_16`: 16 calls of `madvise` ask 16 times in
//!   every kernel; the test fails if not.
//! - `shootdowns.cold.vlen_16`: `MADV_COLD` is not batched by the series.
//! - `dropped.free`: the kernel takes the pages that nobody wrote to again; if it
//!   did not, none could be lost.
//! - That the loops find what they look for is shown by a kernel that leaves out
//!   the other CPUs (`other_cpus_forgotten` in `patches/mutants`).

use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::{Caller, SINGLES, number, own_advice, pages, prepare};
use crate::harness::mapping::PAGE;
use crate::harness::neighbour::{Neighbour, Order};
use crate::harness::process_madvise::Vector;
use crate::harness::{
    Advice, Context, Default, EventCounter, Mapping, Parameter, Stop, Test, TestResult, cpu, needs,
};

/// The test.
pub const TEST: Test = Test {
    name: "process_madvise_smp",
    summary: "interrupts, locks and stale translations of process_madvise on several CPUs",
    parameters: &[Parameter {
        name: "rounds",
        summary: "most rounds of each search for stale translations",
        default: Default::Integer(4000),
    }],
    run,
};

/// The lengths of the vectors whose interrupts and locks are counted.
const VLENS: [usize; 3] = [1, 16, 64];

/// The lengths in the search for stale translations: mostly short, since a kernel
/// without the series interrupts for each range, and several times the same, since
/// a page that was not looked at in the round before may have no translation. Up
/// to 33 pages are flushed one by one, more of them all at once.
const SEARCHED: [usize; 20] = [1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 1, 1, 1, 2, 2, 2, 4, 4, 34, 34];

/// The longest of these.
const LONGEST: usize = 34;

/// Longest search in time of the guest. A host that gives the CPUs their turns
/// only one after the other makes every round slow.
const SEARCH: Duration = Duration::from_millis(1500);

/// Rounds without which a search has shown nothing.
const MIN_ROUNDS: u64 = 100;

/// The length for which the interrupts of each CPU are counted.
const ANSWERED: usize = 16;

/// Calls of which the most interrupts are taken.
const ATTEMPTS: usize = 2;

/// Number of calls that are compared with a vector. An interrupt takes long where
/// emulated CPUs wait for real ones.
const SINGLE_CALLS: usize = 16;

/// `TLB_REMOTE_SHOOTDOWN` of include/linux/mm_types.h.
const RECEIVED: u32 = 1;

/// `TLB_REMOTE_SEND_IPI` of the same.
const SENT: u32 = 4;

fn run(context: &mut Context) -> TestResult {
    let rounds: u64 = context.integer("rounds")?;
    if rounds < MIN_ROUNDS {
        return Err(Stop::fail(format!("parameter rounds is {rounds}, less than {MIN_ROUNDS}")));
    }
    let cpus = cpu::online()?;
    needs::cpus(2)?;
    let _tunables = prepare(context)?;
    let caller = Caller::new()?;
    if !own_advice(context, &caller)? {
        return Ok(());
    }
    locks(context, &caller)?;
    // First of all that looks at other CPUs: a kernel with a stale translation may
    // not live long.
    stale(context, &caller, &mut Neighbour::start(cpus - 1)?, rounds)?;
    interrupts(context, &caller, cpus)?;
    lost(context, &caller, &mut Neighbour::start(cpus - 1)?, rounds)
}

/// Counts how often calls take the mmap_lock.
fn locks(context: &mut Context, caller: &Caller) -> TestResult {
    let filter = format!("common_pid == {}", std::process::id());
    let mut counter = EventCounter::new("mmap_lock", "mmap_lock_acquire_returned", &filter)?;
    let mut calls: Vec<(Advice, usize)> = vec![(Advice::Cold, SINGLES)];
    for advice in [Advice::DontNeed, Advice::Free] {
        calls.extend(VLENS.map(|vlen| (advice, vlen)));
    }
    for (advice, vlen) in calls {
        let (_mapping, vector) = fresh(vlen)?;
        let (result, count) = counter.count(|| caller.advise(&vector, advice))?;
        complete(result, vlen)?;
        context.observe(&format!("locks.{}.vlen_{vlen}", advice.name()), number(count)?)?;
    }
    Ok(())
}

/// Counts how often calls interrupt other CPUs.
fn interrupts(context: &mut Context, caller: &Caller, cpus: usize) -> TestResult {
    let _neighbours: Vec<Neighbour> = (1..cpus).map(Neighbour::start).collect::<TestResult<_>>()?;
    let filter = format!("reason == {SENT} && common_pid == {}", std::process::id());
    let mut sent = EventCounter::new("tlb", "tlb_flush", &filter)?;
    let mut received = EventCounter::new("tlb", "tlb_flush", &format!("reason == {RECEIVED}"))?;
    for advice in [Advice::DontNeed, Advice::Free] {
        single_calls(context, &mut sent, advice)?;
        for vlen in VLENS {
            asked(context, caller, &mut sent, advice, vlen)?;
        }
        answered(context, caller, &mut received, advice, cpus)?;
    }
    asked(context, caller, &mut sent, Advice::Cold, ANSWERED)
}

/// Control: `madvise` page by page.
fn single_calls(context: &mut Context, sent: &mut EventCounter, advice: Advice) -> TestResult {
    let (mapping, _) = fresh(SINGLE_CALLS)?;
    let (result, count) = sent.count(|| {
        (0..SINGLE_CALLS)
            .try_for_each(|page| mapping.advise(advice, page * PAGE..(page + 1) * PAGE))
    })?;
    result?;
    let name = advice.name();
    context.observe(&format!("shootdowns.{name}.single_calls_{SINGLE_CALLS}"), number(count)?)?;
    if count == SINGLE_CALLS as u64 {
        return Ok(());
    }
    Err(Stop::fail(format!(
        "{SINGLE_CALLS} calls of madvise() with {name} show {count} shootdowns by tlb:tlb_flush"
    )))
}

/// Some touched pages, and a vector with a range for each.
fn fresh(count: usize) -> TestResult<(Mapping, Vector)> {
    let mapping = Mapping::anonymous(count * PAGE)?;
    mapping.touch(0..mapping.len());
    let vector = pages(&mapping, 0..count);
    Ok((mapping, vector))
}

fn asked(
    context: &mut Context,
    caller: &Caller,
    sent: &mut EventCounter,
    advice: Advice,
    vlen: usize,
) -> TestResult {
    let (_mapping, vector) = fresh(vlen)?;
    let (result, count) = sent.count(|| caller.advise(&vector, advice))?;
    complete(result, vlen)?;
    context.observe(&format!("shootdowns.{}.vlen_{vlen}", advice.name()), number(count)?)
}

fn answered(
    context: &mut Context,
    caller: &Caller,
    received: &mut EventCounter,
    advice: Advice,
    cpus: usize,
) -> TestResult {
    let mut most = vec![0; cpus];
    for _ in 0..ATTEMPTS {
        let (_mapping, vector) = fresh(ANSWERED)?;
        let (result, by_cpu) = received.count_by_cpu(|| caller.advise(&vector, advice))?;
        complete(result, ANSWERED)?;
        for (cpu, count) in by_cpu {
            if let Some(most) = most.get_mut(cpu) {
                *most = count.max(*most);
            }
        }
    }
    let others = &most[1..];
    let name = format!("received.{}.vlen_{ANSWERED}", advice.name());
    if others.iter().all(|count| *count == others[0]) {
        return context.observe(&name, number(others[0])?);
    }
    context.log(format!("{name}: {others:?} by CPU"))?;
    context.observe(&name, "uneven")
}

/// Fails unless a call has advised `vlen` pages.
fn complete(result: Result<usize, Errno>, vlen: usize) -> TestResult {
    match result {
        Ok(bytes) if bytes == vlen * PAGE => Ok(()),
        other => Err(Stop::fail(format!("process_madvise() of {vlen} pages: {other:?}"))),
    }
}

/// A search for something that must not be, round after round.
struct Search {
    mapping: Mapping,
    /// A length and a vector of so many pages, and `beside` more.
    vectors: Vec<(usize, Vector)>,
    rounds: u64,
    start: Instant,
}

impl Search {
    fn new(rounds: u64, beside: usize) -> TestResult<Self> {
        let mapping = Mapping::anonymous((LONGEST + beside) * PAGE)?;
        let vectors = SEARCHED.map(|vlen| (vlen, pages(&mapping, 0..vlen + beside))).into();
        Ok(Self { mapping, vectors, rounds, start: Instant::now() })
    }

    /// Runs rounds until there have been enough, or until time is up. Each gets
    /// the mapping, a length and its vector, and what the pages hold before and
    /// after the call, no value twice. Returns how many there were.
    fn run(
        &self,
        context: &mut Context,
        mut round: impl FnMut(&Mapping, usize, &Vector, u64, u64) -> TestResult,
    ) -> TestResult<u64> {
        let mut done = 0;
        for (vlen, vector) in self.vectors.iter().cycle() {
            let enough = self.start.elapsed() > SEARCH && done >= MIN_ROUNDS;
            if done == self.rounds || enough {
                break;
            }
            round(&self.mapping, *vlen, vector, 2 * done + 1, 2 * done + 2)?;
            done += 1;
        }
        let seconds = self.start.elapsed().as_secs_f64();
        context.log(format!("{done} of {} rounds took {seconds:.1} s", self.rounds))?;
        Ok(done)
    }
}

fn stale(
    context: &mut Context,
    caller: &Caller,
    neighbour: &mut Neighbour,
    rounds: u64,
) -> TestResult {
    let mut stale = 0;
    Search::new(rounds, 0)?.run(context, |mapping, vlen, vector, _, value| {
        // What the pages hold, and the neighbour has seen, is of the round before.
        complete(caller.advise(vector, Advice::DontNeed), vlen)?;
        let expected = if value.is_multiple_of(8) { 0 } else { value };
        if expected != 0 {
            mapping.mark(0..vlen * PAGE, expected);
        }
        stale += neighbour.order(Order::Count(expected), mapping, vlen)?;
        Ok(())
    })?;
    context.observe("stale.dontneed", number(stale)?)
}

fn lost(
    context: &mut Context,
    caller: &Caller,
    neighbour: &mut Neighbour,
    rounds: u64,
) -> TestResult {
    let (mut lost, mut dropped) = (0, 0);
    // One page more than is written again. A round takes longer here.
    let rounds = Search::new((rounds / 4).max(MIN_ROUNDS), 1)?.run(
        context,
        |mapping, vlen, vector, old, new| {
            let all = 0..(vlen + 1) * PAGE;
            // By this CPU first, so that what the kernel keeps of new pages for a
            // while is on this one, where advice makes it finish.
            mapping.mark(all.clone(), old);
            neighbour.order(Order::Write(old), mapping, vlen + 1)?;
            complete(caller.advise(vector, Advice::Free), vlen + 1)?;
            neighbour.order(Order::Write(new), mapping, vlen)?;
            mapping.advise(Advice::PageOut, all)?;
            lost += (0..vlen).filter(|page| mapping.word(page * PAGE) != new).count();
            dropped += u64::from(mapping.word(vlen * PAGE) == 0);
            Ok(())
        },
    )?;
    context.observe("lost.free", number(lost)?)?;
    context.observe("dropped.free", dropped == rounds)
}
