// SPDX-License-Identifier: MIT OR Apache-2.0
//! What kvet asks of the host: programs, processes, and whether they are there.

pub mod beneath;
pub mod budget;
pub mod children;
pub mod clone;
pub mod doctor;
pub mod guardian;
pub mod lines;
pub mod process;
pub mod sandbox;
pub mod temporary;
