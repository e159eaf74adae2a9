// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kconfig: what a config asks for ([`Request`]), whether the kernel granted it,
//! and, from the tree's Kconfig files, why it did not.

mod base;
mod explain;
mod expression;
mod line;
mod lines;
mod parser;
mod reader;
mod request;
mod tree;

pub use base::read_base;
pub use expression::{Expression, Tristate, Values};
pub use line::{Symbols, symbols};
pub use request::{Asked, Override, Request};
pub use tree::{Definition, Kind, Settled, Tree};
