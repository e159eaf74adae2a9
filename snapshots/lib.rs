// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accepted behaviour of the plans, one folder for each plan, in insta's
//! `.snap` format. There is no code here: this file makes the folder part of a
//! Cargo package, which is what `cargo insta review` looks for.
