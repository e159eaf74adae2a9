// SPDX-License-Identifier: MIT OR Apache-2.0
//! What guests start from.

mod elf;
pub mod initramfs;
mod libraries;
mod pack;
pub mod payload;

use crate::plan::Tests;

/// The guest binary for this architecture, built with kvet.
pub const GUEST_BINARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kvet-guest"));

/// The tests that the guest binary offers, as it said itself when it was built.
///
/// # Panics
/// When the guest binary's answer is not what the records crate defines, which
/// no build that passes the tests can have.
#[must_use]
pub fn tests() -> Tests {
    let list = include_str!(concat!(env!("OUT_DIR"), "/tests.json"));
    let list: Vec<kvet_records::TestInfo> = serde_json::from_str(list)
        .expect("the guest binary lists its tests as the records crate defines");
    list.into_iter().map(|info| (info.name.clone(), info)).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_guest_binary_offers_the_demos_test() {
        assert!(super::tests().contains_key("khugepaged_cold"));
    }
}
