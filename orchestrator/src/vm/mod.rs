// SPDX-License-Identifier: MIT OR Apache-2.0
//! One VM: what it is, how QEMU is told, how it is watched, and why it ended.

pub mod accel;
pub mod command_line;
pub mod console;
pub mod control;
pub mod deadline;
pub mod evidence;
pub mod halt;
pub mod machine;
pub mod probe_rom;
pub mod qmp;
pub mod spec;
pub mod splat;
pub mod state;
mod watch;
