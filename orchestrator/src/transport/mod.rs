// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ways to talk to a guest, one file for each.

pub mod virtio;
