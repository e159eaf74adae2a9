// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a cell's guests start from: one initramfs with the programs of all of its
//! tests, for every test and every variant, so that only the kernel can differ.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytesize::ByteSize;
use kvet_records::Program;

use super::initramfs;
use super::pack::{self, Item, Items};
use crate::fault::Fault;
use crate::plan::{Cell, Plan, ProgramSource};
use crate::store::Store;

/// The environment of every program, which the plan may add to.
const ENVIRONMENT: [(&str, &str); 4] = [
    ("HOME", "/tmp"),
    ("LC_ALL", "C"),
    ("PATH", "/bin:/sbin:/usr/bin:/usr/sbin"),
    ("TMPDIR", "/tmp"),
];
/// What the kernel and the test need beside the files, which are in memory twice
/// while the initramfs is unpacked.
const MEMORY_FOR_THE_REST: u64 = 48 * 1024 * 1024;

/// What a cell's guests start from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Payload {
    /// The initramfs.
    pub initramfs: PathBuf,
    /// Programs by [`crate::plan::Test::id`].
    pub programs: BTreeMap<String, Program>,
}

impl Payload {
    /// Hash of the initramfs, by which the store knows it.
    #[must_use]
    pub fn hash(&self) -> Option<String> {
        self.initramfs.file_stem().map(|stem| stem.to_string_lossy().into_owned())
    }
}

/// Looks for everything that a plan's programs take along from the host.
///
/// # Errors
/// Each a `plan` fault at its place.
pub fn check(plan: &Plan) -> Result<(), Vec<Fault>> {
    let mut faults: Vec<Fault> = Vec::new();
    for cell in &plan.cells {
        for test in &cell.tests {
            let Some(program) = &test.program else { continue };
            if let Err(fault) = pack::add(&mut Items::new(), &test.name, program, None)
                && !faults.contains(&fault)
            {
                faults.push(fault);
            }
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// Makes a cell's payload. `kselftests` are built files by target.
///
/// # Errors
/// A `plan` fault when a program cannot be taken along or the guest's memory is
/// too small for it, an `infra` fault when the initramfs cannot be written.
pub fn prepare(
    store: &Store,
    cell: &Cell,
    kselftests: &BTreeMap<String, PathBuf>,
) -> Result<Payload, Fault> {
    let mut items = Items::new();
    let mut programs = BTreeMap::new();
    for test in &cell.tests {
        let Some(program) = &test.program else { continue };
        let built = match &program.source {
            ProgramSource::Kselftest(target) => kselftests.get(target).map(PathBuf::as_path),
            _ => None,
        };
        let mut words = pack::add(&mut items, &test.name, program, built)?;
        words.extend(program.arguments.iter().cloned());
        let path = words.remove(0);
        let mut environment: BTreeMap<String, String> =
            ENVIRONMENT.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        environment.extend(program.environment.clone());
        let format = program.format;
        programs.insert(test.id(), Program { path, arguments: words, environment, format });
    }
    check_memory(cell, &items)?;
    Ok(Payload { initramfs: initramfs::prepare_with(store, &items)?, programs })
}

fn check_memory(cell: &Cell, items: &Items) -> Result<(), Fault> {
    let size = |item: &Item| match item {
        Item::File(bytes) => bytes.len() as u64,
        Item::Link(target) => target.len() as u64,
    };
    let files: u64 = items.values().map(size).sum();
    let needed = ByteSize::b(2 * files + MEMORY_FOR_THE_REST);
    if files == 0 || needed <= cell.guest.memory {
        return Ok(());
    }
    let largest = items.iter().max_by_key(|(_, item)| size(item)).map(|(path, _)| path.as_str());
    Err(Fault::plan(format!(
        "guest {} has {} of memory, but the programs of its tests need {needed}",
        cell.guest.name, cell.guest.memory
    ))
    .evidence(&format!("the largest file is {}", largest.unwrap_or_default()))
    .help("give the guest more `memory:`"))
}
