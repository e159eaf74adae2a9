// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest's serial console: kept on disk up to a bound, read for splats as it
//! comes, and for how far the boot has got.

use std::collections::VecDeque;
use std::io::Write;

use serde::{Deserialize, Serialize};

use super::splat::{Evidence, Findings, Scanner};
use crate::fault::escape;
use crate::host::lines::LineSplitter;

/// Most bytes of a console that are kept. A kernel under lockdep with a stack
/// for every task stays below; a guest that floods its console gains nothing.
const MAX_LOG_BYTES: u64 = 64 * 1024 * 1024;
/// Last lines that a fault shows.
const TAIL_LINES: usize = 20;
/// Longest line that the tail shows.
const TAIL_LINE_BYTES: usize = 200;

/// How far a boot has got, by what the console shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BootPhase {
    /// Nothing yet: firmware, or a kernel without a working console.
    Firmware,
    /// The image's own loader speaks.
    Decompression,
    /// The kernel speaks, by its early console.
    EarlyConsole,
    /// The kernel has its real console: past most of start_kernel().
    Kernel,
    /// The kernel has started its init.
    Init,
}

impl std::fmt::Display for BootPhase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Firmware => "firmware",
            Self::Decompression => "decompression",
            Self::EarlyConsole => "early console",
            Self::Kernel => "kernel",
            Self::Init => "init",
        })
    }
}

/// The console of one boot.
pub struct Console<W> {
    log: W,
    written: u64,
    scanner: Scanner,
    splitter: LineSplitter,
    tail: VecDeque<String>,
    phase: BootPhase,
    /// The first evidence that the kernel cannot go on.
    fatal: Option<Evidence>,
}

impl<W: Write> Console<W> {
    /// A console that is written to `log`.
    pub fn new(log: W) -> Self {
        Self {
            log,
            written: 0,
            scanner: Scanner::new(),
            splitter: LineSplitter::new(TAIL_LINE_BYTES),
            tail: VecDeque::new(),
            phase: BootPhase::Firmware,
            fatal: None,
        }
    }

    /// Takes bytes from the guest.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn push(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        for evidence in self.scanner.feed(bytes) {
            if evidence.fatal && self.fatal.is_none() {
                self.fatal = Some(evidence);
            }
        }
        let (tail, phase) = (&mut self.tail, &mut self.phase);
        self.splitter.push(bytes, |line| {
            let text = escape(&String::from_utf8_lossy(&line.bytes));
            *phase = (*phase).max(phase_of(&text));
            if tail.len() == TAIL_LINES {
                tail.pop_front();
            }
            tail.push_back(text);
        });
        if self.written < MAX_LOG_BYTES {
            self.log.write_all(bytes)?;
            self.written += bytes.len() as u64;
            if self.written >= MAX_LOG_BYTES {
                self.log.write_all(b"\n[kvet: the console was cut here]\n")?;
            }
        }
        Ok(())
    }

    /// How far the boot has got.
    #[must_use]
    pub fn phase(&self) -> BootPhase {
        self.phase
    }

    /// The first evidence that the kernel cannot go on.
    #[must_use]
    pub fn fatal(&self) -> Option<&Evidence> {
        self.fatal.as_ref()
    }

    /// Ends the console: its last lines, escaped, and what was found in all of it.
    pub fn finish(mut self) -> (Vec<String>, Findings) {
        let _ = self.log.flush();
        if let Some(line) = self.splitter.finish() {
            self.tail.push_back(escape(&String::from_utf8_lossy(&line.bytes)));
        }
        (self.tail.into(), self.scanner.finish())
    }
}

/// The phase that a line shows to have begun.
fn phase_of(line: &str) -> BootPhase {
    // init/main.c prints the banner and, before it executes init, its name;
    // arch/x86/boot/compressed/misc.c speaks before the kernel does.
    if line.contains("Run /init as init process") || line.contains("Freeing unused kernel image") {
        BootPhase::Init
    } else if line.contains("console [")
        && line.contains("] enabled")
        && !line.contains("bootconsole")
    {
        // kernel/printk/printk.c, register_console(); 6.10 added "legacy".
        BootPhase::Kernel
    } else if line.contains("Linux version ") {
        BootPhase::EarlyConsole
    } else if line.contains("Decompressing Linux") || line.contains("KASLR disabled") {
        BootPhase::Decompression
    } else {
        BootPhase::Firmware
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_only_go_forward_and_the_tail_is_bounded() {
        let mut console = Console::new(Vec::new());
        console.push(b"Decompressing Linux...\n").unwrap();
        assert_eq!(console.phase(), BootPhase::Decompression);
        console.push(b"[    0.000000] Linux version 6.12.1\r\n").unwrap();
        console.push(b"[    0.000000] printk: legacy bootconsole [earlyser0] enabled\n").unwrap();
        assert_eq!(console.phase(), BootPhase::EarlyConsole);
        console.push(b"[    0.100000] printk: legacy console [ttyS0] enabled\n").unwrap();
        for number in 0..50 {
            console.push(format!("line {number}\n").as_bytes()).unwrap();
        }
        assert_eq!(console.phase(), BootPhase::Kernel);
        let (tail, findings) = console.finish();
        assert_eq!((tail.len(), tail[19].as_str()), (TAIL_LINES, "line 49"));
        assert!(findings.splats.is_empty());
    }

    #[test]
    fn a_panic_is_evidence_as_soon_as_its_line_is_there() {
        let mut console = Console::new(Vec::new());
        console
            .push(b"[    1.0] Kernel panic - not syncing: VFS: Unable to mount root fs")
            .unwrap();
        assert!(console.fatal().is_none());
        console.push(b" on unknown-block(0,0)\n").unwrap();
        assert!(console.fatal().is_some());
    }
}
