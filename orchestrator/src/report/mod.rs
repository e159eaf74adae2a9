// SPDX-License-Identifier: MIT OR Apache-2.0
//! What people and programs read of a run, always from its result.

pub mod bisect;
pub mod console;
pub mod json;
pub mod ktap;
pub mod progress;
pub mod reading;
pub mod terminal;
mod warnings;
