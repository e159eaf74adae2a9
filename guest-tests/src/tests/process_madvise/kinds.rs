// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of other kinds than private and anonymous.
//!
//! Each kind stands between two ordinary pages in one vector, so that both the
//! kind and its place in the vector are seen: `KIND.ADVICE.returns` is one page,
//! the first, if the kind is refused. `KIND.ADVICE.inside` is what the kind
//! holds afterwards, `KIND.ADVICE.after` what the last page holds.
//!
//! - `locked`: only `MADV_DONTNEED_LOCKED` takes locked memory.
//! - `tmpfs_private`: `MADV_DONTNEED` brings the file's contents back;
//!   `MADV_FREE` is for anonymous memory only.
//! - `tmpfs_shared`, `shared`: the contents stay, the file has them.
//! - `hugetlb`: reserved huge pages are given back to the pool, which the test
//!   sees before it touches them again (`pool`). A kernel that batches has to
//!   end the batch there: three flushes without batching, two with
//!   (`flushes.dontneed.around_hugetlb`).

use std::fs::{self, File};
use std::io::Write;

use rustix::fs::{MemfdFlags, memfd_create};

use super::{Caller, NEW, OLD, contents, contents_of, number, outcome};
use crate::harness::mapping::{ALIGNMENT, PAGE};
use crate::harness::process_madvise::Vector;
use crate::harness::{Advice, Context, Mapping, TestResult, Why};

pub(super) fn observe(context: &mut Context, caller: &mut Caller) -> TestResult {
    for advice in [Advice::DontNeed, Advice::Free, Advice::DontNeedLocked] {
        let locked = Mapping::anonymous(PAGE)?;
        locked.fill(0..PAGE, OLD);
        locked.lock(&(0..PAGE))?;
        between(context, caller, "locked", advice, &locked)?;
    }
    for advice in [Advice::DontNeed, Advice::Free] {
        let file = file_of(NEW)?;
        let private = Mapping::file(&file, PAGE, false)?;
        private.fill(0..PAGE, OLD);
        between(context, caller, "tmpfs_private", advice, &private)?;
        let shared = Mapping::file(&file, PAGE, true)?;
        shared.fill(0..PAGE, OLD);
        between(context, caller, "tmpfs_shared", advice, &shared)?;
        let shared = Mapping::shared(PAGE)?;
        shared.fill(0..PAGE, OLD);
        between(context, caller, "shared", advice, &shared)?;
    }
    hugetlb(context, caller)
}

/// A file of one page in tmpfs that holds `value`.
fn file_of(value: u8) -> TestResult<File> {
    let mut file: File = memfd_create("kvet", MemfdFlags::CLOEXEC).why("make a file")?.into();
    file.write_all(&[value; PAGE]).why("write a file")?;
    Ok(file)
}

/// Name of what a page holds, where the new value is that of the file.
fn page_name(mapping: &Mapping) -> &'static str {
    match mapping.page_value(0) {
        Some(NEW) => "file",
        _ => contents(mapping, [0]).name(),
    }
}

fn between(
    context: &mut Context,
    caller: &Caller,
    kind: &str,
    advice: Advice,
    middle: &Mapping,
) -> TestResult {
    let (first, last) = (old_page()?, old_page()?);
    let vector =
        [&first, middle, &last].map(|mapping| (mapping.address(), PAGE)).into_iter().collect();
    let result = caller.advise(&vector, advice);
    let (before, after) = (contents(&first, [0]), contents(&last, [0]));
    let inside = page_name(middle);
    let name = format!("{kind}.{}", advice.name());
    context.observe(&format!("{name}.returns"), outcome(result)?)?;
    context.observe(&format!("{name}.inside"), inside)?;
    context.observe(&format!("{name}.before"), contents_of(advice, before))?;
    context.observe(&format!("{name}.after"), after.name())
}

/// A page with old contents.
pub(super) fn old_page() -> TestResult<Mapping> {
    let mapping = Mapping::anonymous(PAGE)?;
    mapping.fill(0..PAGE, OLD);
    Ok(mapping)
}

fn hugetlb(context: &mut Context, caller: &mut Caller) -> TestResult {
    const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
    // A kernel without the pool has nothing reserved either.
    let free = || -> TestResult<u64> {
        match fs::read_to_string(POOL) {
            Ok(text) => text.trim().parse().why(format_args!("{POOL} is {text:?}")),
            Err(_) => Ok(0),
        }
    };
    let reserved = free()?;
    if reserved < 2 {
        return context.skip_part(format!(
            "hugetlb: {reserved} huge pages of 2 MiB are free, two are needed (hugepages=2)"
        ));
    }

    let huge = Mapping::hugetlb(2 * ALIGNMENT)?;
    let (first, last) = (old_page()?, old_page()?);
    let around = |start: usize, len: usize| -> Vector {
        let huge = (huge.address() + start, len);
        [(first.address(), PAGE), huge, (last.address(), PAGE)].into_iter().collect()
    };
    let pages_per_huge = ALIGNMENT / PAGE;
    let both = 0..2 * pages_per_huge;

    // Refused: any advice but this, and a start within a huge page.
    huge.fill(0..huge.len(), OLD);
    let result = caller.advise(&around(0, ALIGNMENT), Advice::Free);
    context.observe("hugetlb.free.returns", outcome(result)?)?;
    let result = caller.advise(&around(PAGE, ALIGNMENT), Advice::DontNeed);
    context.observe("hugetlb.unaligned_start.returns", outcome(result)?)?;
    // Rounded down to nothing.
    let result = caller.advise(&around(0, PAGE), Advice::DontNeed);
    context.observe("hugetlb.short.returns", outcome(result)?)?;
    context.observe("hugetlb.refused.inside", contents(&huge, both.clone()).name())?;

    // One of the two pages, then both. Touching the page again takes another one
    // from the pool, so that has to be looked at first.
    first.fill(0..PAGE, OLD);
    last.fill(0..PAGE, OLD);
    let vector = around(ALIGNMENT, ALIGNMENT);
    let watched = caller.advise_watched(&vector, Advice::DontNeed, &first, [0])?;
    let pool = number(free()?)? - number(reserved)?;
    let given = contents(&huge, pages_per_huge..2 * pages_per_huge);
    let beside = contents(&huge, 0..pages_per_huge);
    let ordinary = watched.contents(0..1).and(contents(&last, [0]));
    context.observe("flushes.dontneed.around_hugetlb", watched.flushes)?;
    context.observe("hugetlb.one.returns", watched.result.clone())?;
    context.observe("hugetlb.one.pool", pool)?;
    context.observe("hugetlb.one.inside", given.name())?;
    context.observe("hugetlb.one.beside", beside.name())?;
    context.observe("hugetlb.one.ordinary", ordinary.name())?;

    huge.fill(0..huge.len(), OLD);
    let result = caller.advise(&around(0, 2 * ALIGNMENT), Advice::DontNeed);
    let pool = number(free()?)? - number(reserved)?;
    let given = contents(&huge, both);
    context.observe("hugetlb.two.returns", outcome(result)?)?;
    context.observe("hugetlb.two.pool", pool)?;
    context.observe("hugetlb.two.inside", given.name())
}
