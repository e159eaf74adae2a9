// SPDX-License-Identifier: MIT OR Apache-2.0
//! JSON for programs.

use serde::Serialize;

/// A value as indented JSON with a final line end.
///
/// # Panics
/// Never for kvet's own types: their keys are strings.
#[must_use]
pub fn pretty<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).expect("kvet's types serialise to JSON");
    bytes.push(b'\n');
    bytes
}
