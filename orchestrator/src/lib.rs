// SPDX-License-Identifier: MIT OR Apache-2.0
//! kvet vets a Linux kernel patch series in virtual machines: it builds the
//! kernel without and with the series, boots both in QEMU, runs guest tests, and
//! says what the series changed.
//!
//! Data flows down this list of modules, never up; ARCHITECTURE.md says more.

pub mod cli;
pub mod fault;
pub mod plan;

pub mod host;
pub mod store;

pub mod arch;
pub mod kernel;
pub mod ktap;

pub mod guest;
pub mod transport;
pub mod vm;

pub mod compare;
pub mod report;
pub mod run;

pub mod bisect;
pub mod inspect;
pub mod mutants;
pub mod scaffold;
pub mod selftest;
pub mod validate;
