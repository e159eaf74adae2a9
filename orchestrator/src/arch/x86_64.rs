// SPDX-License-Identifier: MIT OR Apache-2.0
//! x86-64: QEMU's binary, the machine's console, and kbuild's image.

/// QEMU's program.
pub const QEMU: &str = "qemu-system-x86_64";
/// The Debian package that brings it.
pub const QEMU_PACKAGE: &str = "qemu-system-x86";
/// kbuild's target for the bootable image.
pub const MAKE_TARGET: &str = "bzImage";
/// Where kbuild leaves it.
pub const IMAGE_PATH: &str = "arch/x86/boot/bzImage";
/// The console on the first serial port.
pub const CONSOLE: &str = "ttyS0";
