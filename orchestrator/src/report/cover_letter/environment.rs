// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the figures depend on.

use std::collections::BTreeSet;

use super::machine::{Machine, Machines};
use super::text::Letter;
use crate::run::result::{CellResult, RunResult};
use crate::vm::spec::Accelerator;

/// Digits of an image's hash that are shown.
const DIGITS: usize = 12;

/// One line for each thing.
pub(super) fn write(
    letter: &mut Letter,
    result: &RunResult,
    group: &[&CellResult],
    machines: &Machines,
) {
    let cell = group[0];
    if let Some(input) = &cell.input {
        letter.field("series", &format!("from {input}"));
    }
    let releases: BTreeSet<&str> =
        cell.variants.values().map(|built| built.release.as_str()).collect();
    let releases: Vec<&str> = releases.into_iter().collect();
    let source = cell.source.as_ref().map_or(String::new(), |source| format!(" ({source})"));
    letter.field("kernel", &format!("linux {}{source}", releases.join(" and ")));
    let compilers: BTreeSet<&str> =
        cell.variants.values().map(|built| built.build.compiler.as_str()).collect();
    let compilers: Vec<&str> = compilers.into_iter().collect();
    letter.field("config", &format!("{}, {}", cell.config, compilers.join(" and ")));
    let images = cell.variants.iter().map(|(variant, built)| {
        let digits: String = built.image_sha256.chars().take(DIGITS).collect();
        format!("{variant} {digits}")
    });
    let same = if cell.identical { "; identical: the series changes nothing here" } else { "" };
    let images: Vec<String> = images.collect();
    letter.field("images", &format!("{}{same}", images.join(", ")));
    let measured = super::measured(group);
    let qemu = result.environment.qemu.trim_start_matches("QEMU emulator version ");
    let observed = result.environment.accelerator.as_ref().map(|chosen| chosen.accelerator);
    let how = match (observed, measured.is_empty()) {
        (Some(Accelerator::Kvm), false) => ", KVM; measured: TCG, -icount shift=0",
        (Some(Accelerator::Kvm), true) => ", KVM",
        (_, false) => ", TCG, measured with -icount shift=0",
        (Some(Accelerator::Tcg), true) => ", TCG",
        (None, true) => "",
    };
    letter.field("QEMU", &format!("{qemu}{how}"));
    if measured.is_empty() {
        let guests: Vec<&str> = group.iter().map(|cell| cell.guest.as_str()).collect();
        letter.field("guest", &guests.join(", "));
    }
    let mut lines: Vec<(String, String)> = Vec::new();
    for (cell, test) in measured {
        let machine = machines.get(cell, test);
        let line = (cell.guest.clone(), machine.map_or(String::new(), guest));
        if !lines.contains(&line) {
            letter.field("guest", &format!("{}{}", line.0, line.1));
            let cpu = machine.map_or("not recorded", |machine| machine.cpu.as_str());
            letter.field("CPU", cpu);
            lines.push(line);
        }
    }
    letter.field("kvet", &result.environment.kvet);
    letter.blank();
}

fn guest(Machine { machine, memory, vcpus, .. }: &Machine) -> String {
    let cpus = if *vcpus == 1 { "vCPU" } else { "vCPUs" };
    format!(": {machine}, {vcpus} {cpus}, {memory}")
}
