// SPDX-License-Identifier: MIT OR Apache-2.0
//! Says what a series changed, from what its variants reported.

pub mod behaviour;
pub mod metrics;
pub mod snapshot;
pub mod splats;
pub mod warnings;
