// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which change makes the difference: a search over commits, the patches of a series,
//! or the symbols of two kernel configs. Nothing here builds or boots: that is behind
//! [`drive::Trial`] and [`config::ConfigTrial`].
//!
//! `history` is what is searched, `rates` how often a trial lies, `beliefs` what
//! trials say, `choice` what to try next, `search` one search, `outcome` its end,
//! `step` and `log` what is written down, `git_log` the same for git, `drive` the
//! loop, `exit` the codes of `git bisect run`, `config` the search over configs.

mod beliefs;
mod choice;
pub mod config;
pub mod drive;
pub mod exit;
pub mod git_log;
pub mod history;
pub mod kernels;
pub mod log;
pub mod outcome;
pub mod rates;
pub mod search;
pub mod step;
