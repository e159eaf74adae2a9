// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest that needs no kernel: a firmware image that goes from the reset
//! vector through protected to long mode with paging, as every x86-64 kernel
//! does, counts to a million, and leaves through isa-debug-exit.
//!
//! A host whose KVM aborts QEMU or hangs every guest shows it here within
//! seconds, before anything was built. One that only fails later, in a kernel,
//! is found by the probe boot of a run.

#![expect(unsafe_code, reason = "the ROM is written in assembly, and read between its symbols")]

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::host::process::{Group, command, ending};
use crate::vm::spec::Accelerator;

/// What QEMU exits with when the ROM ran to its end: isa-debug-exit gives
/// (value << 1) | 1, and the ROM writes 0x10.
const SUCCESS: i32 = 33;
/// The ROM needs milliseconds under KVM and 0.2 s under TCG.
const DEADLINE: Duration = Duration::from_secs(4);
/// Size of the ROM: the top 64 KiB below 4 GiB.
const SIZE: usize = 0x1_0000;
/// Where the code stands in it: linear 0xfffff000, and F000 in the segment that
/// the CPU starts in.
const CODE: usize = 0xf000;
/// The first instruction's address, Intel SDM volume 3, 11.1.4.
const RESET_VECTOR: usize = 0xfff0;

core::arch::global_asm!(
    r#"
    .section .rodata.kvet_probe_rom, "a"
    .balign 16
    .globl kvet_probe_rom_start
    .globl kvet_probe_rom_end
kvet_probe_rom_start:
    .code16
    cli
    lgdtl %cs:(2f - kvet_probe_rom_start + 0xf000)
    movl %cr0, %eax
    orl $1, %eax
    movl %eax, %cr0
    ljmpl $0x08, $(3f - kvet_probe_rom_start + 0xfffff000)

    .balign 8
1:  /* null, 32-bit code, data, 64-bit code */
    .quad 0
    .quad 0x00cf9a000000ffff
    .quad 0x00cf92000000ffff
    .quad 0x00af9a000000ffff
2:  .word 31
    .long 1b - kvet_probe_rom_start + 0xfffff000

    .code32
3:  movw $0x10, %ax
    movw %ax, %ds
    /* four GiB, identity-mapped with 2 MiB pages: tables from 0x10000 on */
    movl $0x11003, 0x10000
    movl $0, 0x10004
    movl $0x12003, %eax
    movl $0x11000, %edi
    movl $4, %ecx
4:  movl %eax, (%edi)
    movl $0, 4(%edi)
    addl $0x1000, %eax
    addl $8, %edi
    decl %ecx
    jnz 4b
    movl $0x83, %eax
    movl $0x12000, %edi
    movl $2048, %ecx
5:  movl %eax, (%edi)
    movl $0, 4(%edi)
    addl $0x200000, %eax
    addl $8, %edi
    decl %ecx
    jnz 5b
    movl %cr4, %eax
    orl $0x20, %eax
    movl %eax, %cr4
    movl $0x10000, %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx
    rdmsr
    orl $0x100, %eax
    wrmsr
    movl %cr0, %eax
    orl $0x80000000, %eax
    movl %eax, %cr0
    ljmpl $0x18, $(6f - kvet_probe_rom_start + 0xfffff000)

    .code64
6:  movl $1000000, %ecx
7:  decl %ecx
    jnz 7b
    xorl %eax, %eax
    cpuid
    rdtsc
    movw $0xf4, %dx
    movl $0x10, %eax
    outl %eax, %dx
8:  hlt
    jmp 8b
kvet_probe_rom_end:
    .text
"#,
    options(att_syntax)
);

fn code() -> &'static [u8] {
    unsafe extern "C" {
        static kvet_probe_rom_start: u8;
        static kvet_probe_rom_end: u8;
    }
    let (start, end) = (&raw const kvet_probe_rom_start, &raw const kvet_probe_rom_end);
    // SAFETY: both symbols stand in one read-only section, in this order, with
    // nothing but the ROM's initialised bytes between them.
    unsafe { std::slice::from_raw_parts(start, end.offset_from_unsigned(start)) }
}

/// The firmware image.
fn image() -> Vec<u8> {
    const HLT: u8 = 0xf4;
    let mut rom = vec![HLT; SIZE];
    let code = code();
    rom[CODE..CODE + code.len()].copy_from_slice(code);
    // jmp rel16 from the reset vector to the code.
    let distance = (CODE as i32 - (RESET_VECTOR as i32 + 3)) as i16;
    rom[RESET_VECTOR] = 0xe9;
    rom[RESET_VECTOR + 1..RESET_VECTOR + 3].copy_from_slice(&distance.to_le_bytes());
    rom
}

/// Runs the ROM. `folder` is for its file.
///
/// # Errors
/// One line: why this accelerator does not work here.
pub async fn run(qemu: &Path, accelerator: Accelerator, folder: &Path) -> Result<(), String> {
    let file = folder.join("probe.rom");
    std::fs::write(&file, image()).map_err(|error| format!("write {}: {error}", file.display()))?;
    let cpu = if accelerator == Accelerator::Kvm { "host" } else { "max" };
    let mut command = command(qemu);
    command.args(["-machine", "microvm,acpi=off", "-accel", &accelerator.to_string(), "-cpu", cpu]);
    command.args(["-m", "64M", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
    command.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=0x04", "-bios"]).arg(&file);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut group = Group::spawn(&mut command).map_err(|error| format!("start QEMU: {error}"))?;
    let stderr = group.child().stderr.take();
    let mut words = String::new();
    let waiting = async {
        if let Some(mut stderr) = stderr {
            let _ = tokio::io::AsyncReadExt::read_to_string(&mut stderr, &mut words).await;
        }
        group.wait().await
    };
    match tokio::time::timeout(DEADLINE, waiting).await {
        Ok(Ok(status)) if status.code() == Some(SUCCESS) => Ok(()),
        Ok(Ok(status)) => {
            let reason = words.lines().find(|line| !line.contains("warning:"));
            let reason = reason.unwrap_or("it says nothing");
            Err(format!("QEMU ends at once ({}): {reason}", ending(status)))
        }
        Ok(Err(error)) => Err(format!("wait for QEMU: {error}")),
        Err(_) => {
            let seconds = DEADLINE.as_secs();
            Err(format!("a guest of a hundred instructions was not done after {seconds} s"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::process::find_program;

    #[test]
    fn the_rom_begins_at_the_reset_vector() {
        let rom = image();
        assert_eq!(rom.len(), SIZE);
        assert_eq!(&rom[RESET_VECTOR..RESET_VECTOR + 3], [0xe9, 0x0d, 0xf0]);
        assert_eq!(rom[CODE], 0xfa);
        assert!(code().len() < RESET_VECTOR - CODE);
    }

    #[tokio::test]
    async fn the_rom_runs_under_the_translator() {
        let qemu = find_program(crate::arch::x86_64::QEMU).expect("./setup installs QEMU");
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(run(&qemu, Accelerator::Tcg, folder.path()).await, Ok(()));
    }

    #[tokio::test]
    async fn a_qemu_that_hangs_or_aborts_is_found_out() {
        let folder = tempfile::tempdir().unwrap();
        let fake = |name: &str, body: &str| {
            use std::os::unix::fs::PermissionsExt;
            let path = folder.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let aborts = fake("aborts", "echo 'failed to set MSR 0x10a' >&2; kill -ABRT $$");
        let why = run(&aborts, Accelerator::Kvm, folder.path()).await.unwrap_err();
        assert_eq!(
            why,
            "QEMU ends at once (killed by signal 6 (SIGABRT)): failed to set MSR 0x10a"
        );
        let hangs = fake("hangs", "sleep 1000");
        let why = run(&hangs, Accelerator::Kvm, folder.path()).await.unwrap_err();
        assert!(why.contains("was not done after 4 s"), "{why}");
    }
}
