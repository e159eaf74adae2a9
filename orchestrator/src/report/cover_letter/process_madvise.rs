// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table with which batching the TLB flushes of process_madvise() was posted:
//! a row for each length of the vector.
//!
//! Link: https://lkml.kernel.org/r/20250410000022.1901-1-sj@kernel.org

use bytesize::ByteSize;
use kvet_records::Value;

use super::Section;
use super::figure::{Marks, NOTHING, find, median, of, spread, values};
use super::text::{Letter, Table};
use crate::compare::metrics::MetricResult;
use crate::plan::manifest::VariantName::{Base, Patched};
use crate::report::number::plain;

/// Bytes that one range of a vector advises.
const PAGE: u64 = 4096;

/// The tables and what they are; `false` where the test measured something else.
pub(super) fn write(letter: &mut Letter, section: &Section) -> bool {
    let test = section.test;
    let advices = values(test, "latency", "advice");
    if advices.is_empty() {
        return false;
    }
    let memory = memory(section).map_or("memory".to_owned(), |bytes| {
        format!("{} of memory", ByteSize::b(bytes).display().iec())
    });
    letter.paragraph(&format!(
        "Instructions to advise {memory} in ranges of 4 KiB, all touched, with process_madvise() \
         calls for vlen ranges each, filling the vectors included. flushes: tlb_flush events of \
         the caller's address space per call, before and after.",
    ));
    let mut marks = Marks::default();
    for advice in advices {
        letter.paragraph(&format!("MADV_{}:", advice.to_string().to_ascii_uppercase()));
        let mut table =
            Table::new(&["vlen", "before", "range%", "after", "range%", "reduction%", "flushes"]);
        for vlen in values(test, "latency", "vlen") {
            let parameters = [("advice", advice), ("vlen", vlen)];
            let Some(latency) = find(test, "latency", &parameters) else { continue };
            let flushes = find(test, "flushes", &parameters);
            table.row([
                vlen.to_string(),
                median(Some(latency), Base),
                spread(Some(latency), Base),
                median(Some(latency), Patched),
                spread(Some(latency), Patched),
                marks.reduction(Some(latency)),
                format!("{} -> {}", median(flushes, Base), median(flushes, Patched)),
            ]);
        }
        letter.table(&table);
        calls(letter, section, advice);
    }
    for line in marks.legend() {
        letter.paragraph(line);
    }
    locks(letter, section);
    direction(letter, section);
    true
}

/// What the count leaves out, and which way that errs: it comes with each flush.
fn direction(letter: &mut Letter, section: &Section) {
    let flushes = section.test.metrics.iter().filter(|metric| metric.name == "flushes");
    let saved: f64 = flushes.filter_map(|metric| metric.delta).map(|delta| -delta).sum();
    let errs = if saved > 0.0 {
        "All of these come with every flush that the series saves, so that the true gain is larger \
         than counted, as long as the misses of later accesses do not grow: a batch of many pages \
         may flush the whole TLB where single flushes would not, and that is not counted either."
    } else if saved < 0.0 {
        "All of these come with every flush that the series adds, so that the true cost is larger \
         than counted."
    } else {
        "The number of flushes is not known to differ here, so that none of these need to."
    };
    letter.paragraph(&format!(
        "A count leaves out what each flush costs the hardware: the flush itself, the misses that \
         refill the TLB after it, with more CPUs the interrupts (IPIs) and the wait for them, and \
         contention for locks. {errs}"
    ));
}

/// Bytes that are advised: what the calls with full vectors come to.
fn memory(section: &Section) -> Option<u64> {
    let bytes = |metric: &MetricResult| {
        let Some(Value::Integer(vlen)) = metric.parameters.get("vlen") else { return None };
        let calls = metric.figures.values().next()?.beside.get("calls")?.1;
        u64::try_from(*vlen).ok()?.checked_mul(u64::try_from(calls).ok()?)?.checked_mul(PAGE)
    };
    // A last vector that is not full makes it more.
    section.test.metrics.iter().filter(|metric| metric.name == "call").filter_map(bytes).min()
}

/// The cheapest call with the shortest and with the longest vector.
fn calls(letter: &mut Letter, section: &Section, advice: &Value) {
    let vlens = values(section.test, "call", "vlen");
    let mut ends: Vec<&Value> = vlens.first().into_iter().chain(vlens.last()).copied().collect();
    ends.dedup();
    let words: Vec<String> = ends
        .iter()
        .filter_map(|vlen| {
            let metric = find(section.test, "call", &[("advice", advice), ("vlen", vlen)])?;
            let delta = metric.delta?;
            let sign = if delta > 0.0 { "+" } else { "" };
            Some(format!(
                "{} -> {} ({sign}{}) with vlen {vlen}",
                median(Some(metric), Base),
                median(Some(metric), Patched),
                plain(delta)
            ))
        })
        .collect();
    if !words.is_empty() {
        letter.paragraph(&format!(
            "Instructions of the cheapest call, without a timer tick: {}.",
            words.join(", ")
        ));
    }
}

/// Whether the lock was batched, too, which would be another saving.
fn locks(letter: &mut Letter, section: &Section) {
    let locks: Vec<&MetricResult> =
        section.test.metrics.iter().filter(|metric| metric.name == "locks").collect();
    let both = |metric: &&&MetricResult| metric.delta.is_some();
    if locks.is_empty() || !locks.iter().all(|metric| both(&metric)) {
        return;
    }
    let same = locks.iter().all(|metric| metric.delta == Some(0.0));
    let most = |variant| {
        let medians = locks.iter().filter_map(|metric| of(Some(metric), variant));
        let most = medians.map(|figures| figures.median).fold(0.0, f64::max);
        if most > 0.0 { plain(most) } else { NOTHING.to_owned() }
    };
    letter.paragraph(&match same {
        true => format!(
            "The mmap_lock is acquired as often before as after (at most {} per call): the \
             reduction is none of locking.",
            most(Base)
        ),
        false => format!(
            "The mmap_lock is acquired at most {} per call before and {} after: a part of the \
             difference is locking.",
            most(Base),
            most(Patched)
        ),
    });
}
