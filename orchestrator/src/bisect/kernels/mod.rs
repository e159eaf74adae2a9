// SPDX-License-Identifier: MIT OR Apache-2.0
//! Searches with real kernels: what is called bad, what one build and boot come to,
//! and the trials that a search asks for.
//!
//! `predicate` is what is called bad, `facts` what building and booting one kernel came
//! to, `judge` holds one against the other, `lab` builds and boots, `trial` and
//! `config_trial` are what the two searches drive, `range` reads a clone's commits,
//! `record` is the search's own account.

mod config_trial;
mod facts;
mod judge;
mod lab;
mod predicate;
pub mod range;
pub mod record;
mod trial;

pub use config_trial::{ConfigKernels, Resolve, read as read_config};
pub use facts::{Booted, Facts, SplatSeen};
pub use judge::{Ends, judge};
pub use lab::{Aside, Lab, Work};
pub use predicate::Predicate;
pub use trial::{Kernels, Origin, Prefixes};
