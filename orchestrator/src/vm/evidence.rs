// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a hung guest stands: each vCPU's registers and stack, read through QMP
//! while QEMU still runs, with the kernel's function names.
//!
//! The stack is searched for return addresses rather than unwound: a hung kernel
//! may have a stack that no unwinder gets through, and a name too many costs a
//! reader less than one too few.

use std::fmt::Write as _;
use std::path::Path;

use object::{Object, ObjectSymbol, SymbolKind};

use super::qmp::{Qmp, QmpError};
use crate::arch::x86_64::{self, Registers};

/// Words of stack that are read: 1.5 KiB, the innermost dozen or so of frames.
const STACK_WORDS: usize = 192;
/// Most functions of one stack that the short form names.
const SHORT_FRAMES: usize = 8;
/// Most vCPUs that are looked at.
const MAX_CPUS: u32 = 8;

/// The kernel's functions by address.
#[derive(Debug, Default)]
pub struct Symbols {
    /// Address, size in bytes, name; sorted by address.
    functions: Vec<(u64, u64, String)>,
}

impl Symbols {
    /// Reads the symbol table of a vmlinux. Empty when it cannot be read: a hang
    /// is then shown with addresses.
    #[must_use]
    pub fn load(vmlinux: &Path) -> Self {
        let Ok(bytes) = std::fs::read(vmlinux) else { return Self::default() };
        let Ok(file) = object::File::parse(bytes.as_slice()) else { return Self::default() };
        let mut functions: Vec<(u64, u64, String)> = file
            .symbols()
            .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.address() != 0)
            .filter_map(|symbol| {
                Some((symbol.address(), symbol.size(), symbol.name().ok()?.to_owned()))
            })
            .collect();
        functions.sort();
        Self { functions }
    }

    /// `function+0xoffset` of an address inside a function.
    #[must_use]
    pub fn name(&self, address: u64) -> Option<String> {
        let after = self.functions.partition_point(|&(start, ..)| start <= address);
        let (start, size, name) = self.functions[..after].last()?;
        // Symbols of assembly code have no size; one page is more than any has.
        let size = if *size == 0 { 4096 } else { *size };
        (address - start < size).then(|| format!("{name}+{:#x}", address - start))
    }
}

/// What was found of a hung guest.
#[derive(Debug, Default)]
pub struct Evidence {
    /// One line for each vCPU.
    pub short: Vec<String>,
    /// Registers and stacks in full.
    pub full: String,
}

/// Reads every vCPU. Takes a few milliseconds while QEMU answers; the caller
/// sets the time limit.
///
/// # Errors
/// When QEMU is gone or refuses.
pub async fn collect(qmp: &mut Qmp, vcpus: u32, symbols: &Symbols) -> Result<Evidence, QmpError> {
    let mut evidence = Evidence::default();
    for cpu in 0..vcpus.min(MAX_CPUS) {
        let text = monitor(qmp, cpu, "info registers".to_owned()).await?;
        let _ = writeln!(evidence.full, "== vCPU {cpu}\n{}", text.trim_end());
        let Some(registers) = x86_64::registers(&text) else { continue };
        let dump = format!("x/{STACK_WORDS}gx {:#x}", registers.stack_pointer);
        // User space, or a stack that is not mapped, has nothing to say.
        let stack = monitor(qmp, cpu, dump).await.unwrap_or_default();
        let frames: Vec<String> = words(&stack).filter_map(|word| symbols.name(word)).collect();
        let _ = writeln!(evidence.full, "-- return addresses on its stack");
        for frame in &frames {
            let _ = writeln!(evidence.full, " {frame}");
        }
        evidence.short.push(short(cpu, &registers, symbols, &frames));
    }
    Ok(evidence)
}

async fn monitor(qmp: &mut Qmp, cpu: u32, command_line: String) -> Result<String, QmpError> {
    let command =
        qapi::qmp::human_monitor_command { command_line, cpu_index: Some(i64::from(cpu)) };
    qmp.execute(&command).await
}

/// The words of `x/Ngx`: each line is an address, a colon, and words.
fn words(dump: &str) -> impl Iterator<Item = u64> {
    dump.lines()
        .filter_map(|line| line.split_once(':'))
        .flat_map(|(_, words)| words.split_whitespace())
        .filter_map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok())
}

fn short(cpu: u32, registers: &Registers, symbols: &Symbols, frames: &[String]) -> String {
    let at = match symbols.name(registers.program_counter) {
        Some(name) => name,
        None if registers.user => format!("user space ({:#x})", registers.program_counter),
        None => format!("{:#x}", registers.program_counter),
    };
    let mut state = vec![if registers.interrupts { "interrupts on" } else { "interrupts off" }];
    if registers.halted {
        state.push("halted");
    }
    let mut line = format!("vCPU {cpu} is at {at} ({})", state.join(", "));
    if !frames.is_empty() {
        let names: Vec<&str> =
            frames.iter().filter_map(|frame| frame.split('+').next()).take(SHORT_FRAMES).collect();
        let _ = write!(line, ", called from {}", names.join(" < "));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_get_the_name_of_the_function_around_them() {
        let symbols = Symbols {
            functions: vec![(0x100, 0x10, "first".into()), (0x200, 0, "assembly".into())],
        };
        assert_eq!(symbols.name(0x104).as_deref(), Some("first+0x4"));
        assert_eq!(symbols.name(0x110), None);
        assert_eq!(symbols.name(0x210).as_deref(), Some("assembly+0x10"));
        assert_eq!(symbols.name(0x50), None);
        let registers = Registers {
            program_counter: 0x104,
            stack_pointer: 0,
            interrupts: false,
            halted: false,
            user: false,
        };
        let frames: Vec<String> = words("ffff: 0x204 0x0\nfff0: 0x10f zz\n")
            .filter_map(|word| symbols.name(word))
            .collect();
        assert_eq!(
            short(0, &registers, &symbols, &frames),
            "vCPU 0 is at first+0x4 (interrupts off), called from assembly < first"
        );
    }
}
