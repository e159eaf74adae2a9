// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stops the machine, for the host to let it go on.
//!
//! Whoever counts instructions must not let the host's time into the guest. A guest
//! that waits until the host saves it executes more or less meanwhile; one that stops
//! itself, by writing to a port on which QEMU stops at that very instruction, is saved
//! in the same state every time.
//!
//! Nearly so: while QEMU is about to stop it may find the machine idle and let its clock
//! jump to the next timer, or not. So the guest goes on only at a moment that it chose
//! before, some ticks later, at which both look alike. Its job comes meanwhile.

use std::arch::asm;
use std::io;

use super::console;
use crate::harness::counted::tsc;

/// A tick of 250 Hz, in instructions.
const TICK: u64 = 4_000_000;
/// Ticks until it goes on: more than the clock was seen to jump, and time enough for the
/// host to bring the job.
const TICKS: u64 = 4;

/// The word on the kernel's command line that names the port.
const WORD: &str = "kvet.pause_port=";

/// Stops the machine where the kernel's command line asks for it; whether it did.
///
/// # Errors
/// Ports cannot be used: the kernel lacks `CONFIG_X86_IOPL_IOPERM`.
pub fn pause(command_line: &str) -> Result<bool, String> {
    match port(command_line) {
        Some(port) => {
            let until = (tsc() / TICK + TICKS) * TICK;
            write(port).map_err(|error| {
                format!("stop the machine by port {port:#x}: {error} (CONFIG_X86_IOPL_IOPERM)")
            })?;
            if tsc() > until {
                console::say("the machine's clock ran away while it stood");
            }
            while tsc() < until {}
            Ok(true)
        }
        None => Ok(false),
    }
}

fn port(command_line: &str) -> Option<u16> {
    let words = command_line.split_whitespace();
    words.filter_map(|word| word.strip_prefix(WORD)?.parse().ok()).next_back()
}

#[expect(unsafe_code, reason = "an instruction and a system call that rustix does not have")]
fn write(port: u16) -> io::Result<()> {
    /// The device's event "the guest panicked" (docs/specs/pvpanic.txt of QEMU).
    const EVENT: u8 = 1;
    // SAFETY: the call gives this process access to one port and touches no memory.
    if unsafe { libc::ioperm(port.into(), 1, 1) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the port is one that QEMU has for this purpose; nothing in memory changes.
    unsafe {
        asm!("out dx, al", in("dx") port, in("al") EVENT, options(nomem, nostack, preserves_flags));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_names_the_port() {
        assert_eq!(port("console=ttyS0"), None);
        assert_eq!(port("a kvet.pause_port=1285\n"), Some(0x505));
        assert_eq!(port("kvet.pause_port=x"), None);
        assert_eq!(pause("console=ttyS0"), Ok(false));
    }
}
