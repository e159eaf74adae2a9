// SPDX-License-Identifier: MIT OR Apache-2.0
//! What people and programs read of a run, always from its result.

pub mod bisect;
pub mod console;
pub mod cover_letter;
mod foreign;
pub mod json;
pub mod ktap;
mod metrics;
pub(crate) mod number;
pub mod progress;
pub mod reading;
mod robust;
#[cfg(test)]
mod sample;
pub mod terminal;
mod warnings;
