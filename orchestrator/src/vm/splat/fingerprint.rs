// SPDX-License-Identifier: MIT OR Apache-2.0
//! A name for a splat that is the same in every boot and, as far as can be, in every build.
//!
//! It is taken over the kind, the title and the guilty function, and nothing else. Deeper frames
//! are left out on purpose: `new`, `gone` and `both` compare *two builds* of a kernel, and between
//! two builds the compiler inlines differently, so that callers appear and vanish from a stack that
//! shows the same fault. The guilty function is where the fault is noticed and is the most stable
//! frame; line numbers move with every patch. The price is that two faults of one kind in one
//! function are one fingerprint; their texts are both at hand in the log.

use super::kind::SplatKind;

/// Sixteen hexadecimal digits.
#[must_use]
pub fn of(kind: SplatKind, title: &str, function: Option<&str>) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in [&format!("{kind:?}"), title, function.unwrap_or("")] {
        hasher.update(part.as_bytes());
        hasher.update(&[0]);
    }
    hasher.finalize().to_hex()[..16].to_owned()
}
