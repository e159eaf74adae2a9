// SPDX-License-Identifier: MIT OR Apache-2.0
//! What tests are written with.
//!
//! A test is a [`Test`]: a name, the parameters it takes and a function that
//! gets a [`Context`]. The function observes exact facts, takes samples, and
//! ends with `Ok`, with a reason to skip or with a reason why it failed:
//!
//! ```
//! use kvet_guest_tests::harness::{Context, Mapping, Test, TestResult, Why, vmstat};
//!
//! /// Counts the page faults of touching memory for the first time.
//! pub const TEST: Test = Test {
//!     name: "first_touch",
//!     summary: "page faults of a first touch",
//!     parameters: &[],
//!     run,
//! };
//!
//! fn run(context: &mut Context) -> TestResult {
//!     let memory = Mapping::anonymous(2 << 20)?;
//!     let before = vmstat("pgfault")?;
//!     memory.touch(0..memory.len());
//!     let faults = vmstat("pgfault")?.checked_sub(before).why("pgfault went backwards")?;
//!     context.observe("at_least_one_fault", faults > 0)
//! }
//! ```
//!
//! Every wait has a deadline: a test that cannot go on fails with a reason.

pub mod activity;
mod context;
pub mod counted;
pub mod cpu;
pub mod cpu_clock;
pub mod environment;
pub mod failing;
mod faults;
pub mod khugepaged;
pub mod mapping;
pub mod needs;
pub mod neighbour;
pub mod proc;
pub mod process_madvise;
pub mod quiet;
mod result;
mod run;
pub mod swap;
pub mod task;
pub mod thp;
mod tracefs;
mod tunable;
pub mod userfault;
mod vmstat;
mod wait;

pub use context::Context;
pub use counted::{Counted, Window};
pub use faults::PageFaults;
pub use mapping::{Advice, Mapping};
pub use neighbour::Neighbour;
pub use proc::vmstat;
pub use result::{Stop, TestResult, Why};
pub use run::{TEST_ARGUMENT, run_job};
pub use task::{EXECUTED_ARGUMENT, TASK_ARGUMENT, Task};
pub use tracefs::EventCounter;
pub use tunable::Tunables;
pub use vmstat::VmCounter;
pub use wait::wait_until;

use kvet_records::Value;

/// A test that a job can name.
#[derive(Debug)]
pub struct Test {
    /// Name; see [`kvet_records::valid_name`].
    pub name: &'static str,
    /// One line for people.
    pub summary: &'static str,
    /// The parameters that a job may set.
    pub parameters: &'static [Parameter],
    /// Runs the test.
    pub run: fn(&mut Context) -> TestResult,
}

/// What a test measures, where it does: it then runs in this way instead.
#[derive(Debug)]
pub struct Measured {
    /// Name of the test.
    pub test: &'static str,
    /// The parameters that a job may set.
    pub parameters: &'static [Parameter],
    /// Takes the samples.
    pub run: fn(&mut Context, &mut Counted) -> TestResult,
}

/// A parameter of a [`Test`].
#[derive(Debug)]
pub struct Parameter {
    /// Name; see [`kvet_records::valid_name`].
    pub name: &'static str,
    /// One line for people, with the unit.
    pub summary: &'static str,
    /// Value when the job gives none; a job's value must be of the same kind.
    pub default: Default,
}

/// Default value of a [`Parameter`], which also fixes its kind.
#[derive(Debug, Clone, Copy)]
pub enum Default {
    /// A yes or no.
    Bool(bool),
    /// A number.
    Integer(i64),
    /// A word.
    Text(&'static str),
}

impl Default {
    /// The default as a parameter's value.
    #[must_use]
    pub fn to_value(self) -> Value {
        match self {
            Self::Bool(value) => Value::Bool(value),
            Self::Integer(value) => Value::Integer(value),
            Self::Text(value) => Value::Text(value.to_owned()),
        }
    }
}
