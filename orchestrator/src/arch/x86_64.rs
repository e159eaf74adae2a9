// SPDX-License-Identifier: MIT OR Apache-2.0
//! x86-64: QEMU's binary, the machine's console, and kbuild's image.

/// QEMU's program.
pub const QEMU: &str = "qemu-system-x86_64";
/// The Debian package that brings it.
pub const QEMU_PACKAGE: &str = "qemu-system-x86";
/// Its folder in the kernel's `arch/`.
pub const SRCARCH: &str = "x86";
/// kbuild's target for the bootable image.
pub const MAKE_TARGET: &str = "bzImage";
/// Where kbuild leaves it.
pub const IMAGE_PATH: &str = "arch/x86/boot/bzImage";
/// Folder in which kbuild compresses the kernel for the image, as files of this stem
/// with the compressor's name behind it (arch/x86/boot/compressed/Makefile).
pub const COMPRESSED: (&str, &str) = ("arch/x86/boot/compressed", "vmlinux.bin.");
/// The console on the first serial port.
pub const CONSOLE: &str = "ttyS0";

/// What matters of a vCPU's registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registers {
    /// RIP.
    pub program_counter: u64,
    /// RSP.
    pub stack_pointer: u64,
    /// RFLAGS.IF.
    pub interrupts: bool,
    /// The vCPU executed HLT and waits for an interrupt.
    pub halted: bool,
    /// It is in user mode.
    pub user: bool,
}

/// Reads QEMU's `info registers` (target/i386/cpu-dump.c, x86_cpu_dump_state).
#[must_use]
pub fn registers(text: &str) -> Option<Registers> {
    let field = |name: &str| {
        text.split_whitespace()
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
            .and_then(|word| u64::from_str_radix(word, 16).ok())
    };
    /// Interrupt enable flag, Intel SDM volume 1, 3.4.3.3.
    const IF: u64 = 1 << 9;
    Some(Registers {
        program_counter: field("RIP")?,
        stack_pointer: field("RSP")?,
        interrupts: field("RFL")? & IF != 0,
        halted: field("HLT") == Some(1),
        user: field("CPL") == Some(3),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_read_from_qemus_words() {
        let text = "RAX=0000000000000000 RBX=ffffffff82014940 RCX=0000000000000000 RDX=0000000000000001\r\nRSI=1 RDI=2 RBP=0000000000000000 RSP=ffffffff82003ea8\r\nR8 =0 R9 =1\r\nRIP=ffffffff81a0b2bf RFL=00000246 [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT=1\r\n";
        let registers = registers(text).unwrap();
        assert_eq!(registers.program_counter, 0xffff_ffff_81a0_b2bf);
        assert_eq!(registers.stack_pointer, 0xffff_ffff_8200_3ea8);
        assert!(registers.interrupts && registers.halted && !registers.user);
        assert_eq!(super::registers("nothing"), None);
    }
}
