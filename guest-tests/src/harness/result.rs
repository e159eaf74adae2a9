// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a test ends early.

use std::fmt::Display;

/// Why a test does not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// What the test needs is not here.
    Skip(String),
    /// The test failed.
    Fail(String),
}

impl Stop {
    /// A skip with its reason.
    pub fn skip(reason: impl Into<String>) -> Self {
        Self::Skip(reason.into())
    }

    /// A failure with its reason.
    pub fn fail(reason: impl Into<String>) -> Self {
        Self::Fail(reason.into())
    }
}

/// Result of a test or of a step of one.
pub type TestResult<T = ()> = Result<T, Stop>;

/// Turns an error into a failure that says what was being done.
pub trait Why<T> {
    /// Fails with `what: error`.
    ///
    /// # Errors
    /// [`Stop::Fail`] if there is no value.
    fn why(self, what: impl Display) -> TestResult<T>;
}

impl<T, E: Display> Why<T> for Result<T, E> {
    fn why(self, what: impl Display) -> TestResult<T> {
        self.map_err(|error| Stop::Fail(format!("{what}: {error}")))
    }
}

impl<T> Why<T> for Option<T> {
    fn why(self, what: impl Display) -> TestResult<T> {
        self.ok_or_else(|| Stop::Fail(what.to_string()))
    }
}
