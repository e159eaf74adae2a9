// SPDX-License-Identifier: MIT OR Apache-2.0
//! What runs inside a guest of kvet: [`init`] is process 1, [`harness`] is what
//! tests are written with, [`tests`] are the tests themselves.

pub mod harness;
pub mod init;
pub mod tests;
