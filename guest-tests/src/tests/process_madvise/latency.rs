// SPDX-License-Identifier: MIT OR Apache-2.0
//! What does it cost to advise memory with vectors of a length?
//!
//! As in the table with which the batching was posted: `memory` of touched small
//! pages is advised away, one page for each range of a vector, with vectors of `vlen`
//! ranges, and the calls are counted together, filling the vectors included. Memory is
//! touched afresh before each window, outside of it; one word of each page, since the
//! rest of its contents is nothing to the call.
//!
//! - `latency`: instructions for all of the memory.
//! - `call`: instructions of the cheapest call with a full vector. No timer tick falls
//!   into that one, so that it shows what a patch adds to a call to the instruction.
//! - `flushes` and `locks`, events per call: `tlb:tlb_flush` of the caller's own
//!   address space, and `mmap_lock:mmap_lock_acquire_returned`, counted in calls
//!   afterwards, which are not measured.

use std::collections::BTreeMap;

use kvet_records::{Better, Parameters, Value};

use super::{Caller, FREE_MEMORY, prepare};
use crate::harness::counted::tsc;
use crate::harness::mapping::PAGE;
use crate::harness::process_madvise::{MAX_VLEN, Vector};
use crate::harness::{
    Advice, Context, Counted, Default, EventCounter, Mapping, Measured, Parameter, Stop,
    TestResult, Why, needs,
};

/// What the test measures.
pub const MEASURED: Measured = Measured {
    test: "process_madvise",
    parameters: &[
        Parameter {
            name: "memory",
            summary: "size of the memory, such as 256MiB",
            default: Default::Text("32MiB"),
        },
        Parameter {
            name: "vlen",
            summary: "lengths of the vectors",
            default: Default::Text("1,2,4,8,16,32,64,128,256,512,1024"),
        },
        Parameter {
            name: "advice",
            summary: "dontneed and free, or one of them",
            default: Default::Text("dontneed,free"),
        },
    ],
    run,
};

/// Calls whose events are counted.
const COUNTED_CALLS: usize = 4;

fn run(context: &mut Context, counted: &mut Counted) -> TestResult {
    let memory = context.bytes("memory")?;
    let vlens: Vec<usize> = context.integers("vlen")?;
    let longest = vlens.iter().copied().max().unwrap_or_default();
    if vlens.contains(&0) || longest > MAX_VLEN || longest * COUNTED_CALLS * PAGE > memory {
        return Err(Stop::fail(format!(
            "parameter vlen: vectors are 1 to {MAX_VLEN} long, and {COUNTED_CALLS} must fit into the memory"
        )));
    }
    let advices: Vec<Advice> = context
        .words("advice")?
        .iter()
        .map(|name| match Advice::from_name(name) {
            Some(advice @ (Advice::DontNeed | Advice::Free)) => Ok(advice),
            _ => Err(Stop::fail(format!("parameter advice cannot hold {name:?}"))),
        })
        .collect::<TestResult<_>>()?;
    needs::memory(memory as u64 + FREE_MEMORY)?;
    let _tunables = prepare(context)?;
    let latency = Latency { mapping: Mapping::anonymous(memory)?, caller: Caller::new()? };
    for &advice in &advices {
        for &vlen in &vlens {
            latency.measure(context, counted, advice, vlen)?;
        }
    }
    // Afterwards, since a trace event costs instructions of its own.
    let mut latency = latency;
    let mut locks = locks()?;
    for &advice in &advices {
        for &vlen in &vlens {
            latency.count(context, &mut locks, advice, vlen)?;
        }
    }
    Ok(())
}

/// Counts how often the caller gets an mmap_lock; none where the kernel does not tell.
fn locks() -> TestResult<Option<EventCounter>> {
    let filter = format!("common_pid == {}", std::process::id());
    match EventCounter::new("mmap_lock", "mmap_lock_acquire_returned", &filter) {
        Ok(counter) => Ok(Some(counter)),
        Err(Stop::Skip(_)) => Ok(None),
        Err(stop) => Err(stop),
    }
}

fn parameters(advice: Advice, vlen: usize) -> TestResult<Parameters> {
    let vlen = i64::try_from(vlen).why("a vector's length")?;
    Ok(Parameters::from([
        ("advice".to_owned(), Value::from(advice.name())),
        ("vlen".to_owned(), Value::from(vlen)),
    ]))
}

struct Latency {
    mapping: Mapping,
    caller: Caller,
}

impl Latency {
    /// The same small pages, touched, whatever was advised before.
    fn fresh(&self) -> TestResult {
        self.mapping.advise(Advice::DontNeed, 0..self.mapping.len())?;
        self.mapping.touch(0..self.mapping.len());
        Ok(())
    }

    fn measure(
        &self,
        context: &mut Context,
        counted: &mut Counted,
        advice: Advice,
        vlen: usize,
    ) -> TestResult {
        self.fresh()?;
        let pages = self.mapping.len() / PAGE;
        let mut vector = Vector::with_capacity(vlen);
        let start = self.mapping.address();
        let (done, window) = counted.window(|| {
            let mut least = u64::MAX;
            let mut first = 0;
            while first < pages {
                let next = pages.min(first + vlen);
                let from = tsc();
                vector.refill((first..next).map(|page| (start + page * PAGE, PAGE)));
                let result = self.caller.advise(&vector, advice);
                let took = tsc() - from;
                if result != Ok((next - first) * PAGE) {
                    return Err(result);
                }
                if next - first == vlen {
                    least = least.min(took);
                }
                first = next;
            }
            Ok(least)
        })?;
        let least = done.map_err(|result| {
            Stop::fail(format!("process_madvise with {vlen} ranges returned {result:?}"))
        })?;
        let parameters = parameters(advice, vlen)?;
        let unit = "instructions";
        let whole = window.instructions as f64;
        context.sample_beside(
            "latency",
            whole,
            unit,
            Better::Lower,
            &parameters,
            &window.beside,
        )?;
        let calls = i64::try_from(pages.div_ceil(vlen)).why("calls")?;
        let beside = BTreeMap::from([("calls".to_owned(), calls)]);
        context.sample_beside("call", least as f64, unit, Better::Lower, &parameters, &beside)
    }

    fn count(
        &mut self,
        context: &mut Context,
        locks: &mut Option<EventCounter>,
        advice: Advice,
        vlen: usize,
    ) -> TestResult {
        self.fresh()?;
        let start = self.mapping.address();
        let vectors: Vec<Vector> = (0..COUNTED_CALLS)
            .map(|call| (0..vlen).map(move |range| call * vlen + range))
            .map(|pages| pages.map(|page| (start + page * PAGE, PAGE)).collect())
            .collect();
        let Caller { own, flushes } = &mut self.caller;
        let calls = || {
            vectors.iter().try_for_each(|vector| {
                #[expect(unsafe_code, reason = "advice may change the contents of memory")]
                // SAFETY: the ranges lie in the mapping, to which there are no references.
                let result = unsafe {
                    crate::harness::process_madvise::process_madvise(
                        own,
                        vector,
                        advice.number(),
                        0,
                    )
                };
                result.map(drop)
            })
        };
        let (result, flushed) = flushes.count(calls)?;
        result.why("process_madvise")?;
        let per_call = |events: u64| events as f64 / COUNTED_CALLS as f64;
        let parameters = parameters(advice, vlen)?;
        let unit = "events/call";
        context.sample("flushes", per_call(flushed), unit, Better::Lower, &parameters)?;
        if let Some(locks) = locks {
            let (result, locked) = locks.count(calls)?;
            result.why("process_madvise")?;
            context.sample("locks", per_call(locked), unit, Better::Lower, &parameters)?;
        }
        Ok(())
    }
}
