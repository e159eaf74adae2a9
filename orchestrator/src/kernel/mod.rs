// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels: where a tree comes from, what is applied to it, how it is
//! configured and built.

pub mod build;
pub mod edit;
pub mod git;
pub mod kconfig;
pub mod kselftest;
pub mod mail;
pub mod make;
pub mod olddefconfig;
pub mod patch;
pub mod series;
pub mod source;
pub mod warning;
