// SPDX-License-Identifier: MIT OR Apache-2.0
//! Everything that knows an architecture, one file for each.

pub mod x86_64;
