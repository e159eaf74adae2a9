// SPDX-License-Identifier: MIT OR Apache-2.0
//! The experiment: what is built and booted, in which order, and what came of it.

mod boots;
pub mod event;
pub mod folder;
pub mod host;
pub mod job;
pub mod journal;
pub mod leftovers;
pub mod phases;
pub mod pipeline;
pub(crate) mod program;
pub mod result;
pub mod robust;
pub mod selection;
mod unchecked;
