// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's log, which the host reads on the serial line.

use std::fs;

/// Says one line on the console, among the kernel's own, as an error.
pub fn say(line: &str) {
    let line = line.replace('\n', " ");
    if fs::write("/dev/kmsg", format!("<3>kvet-init: {line}\n")).is_err() {
        // Standard error may be the console too; there is nowhere else to go.
        eprintln!("kvet-init: {line}");
    }
}

/// Lets warnings and everything worse reach the console, also under `quiet`: a
/// WARN that nobody sees is a test that passed wrongly.
pub fn show_warnings() {
    // 7 shows everything but debug messages.
    if let Err(error) = fs::write("/proc/sys/kernel/printk", "7") {
        say(&format!("set the console's log level: {error}"));
    }
}
