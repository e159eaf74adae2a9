// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for something to become true, but not for ever.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{Stop, TestResult};

/// Time between two looks. Long enough to leave one CPU to the kernel thread
/// that is waited for, even if it runs at the lowest priority.
const INTERVAL: Duration = Duration::from_millis(1);

/// Looks again and again until `look` finds something.
///
/// # Errors
/// A failure that names `what` after `deadline`, or the error of `look`.
pub fn wait_until<T>(
    what: &str,
    deadline: Duration,
    mut look: impl FnMut() -> TestResult<Option<T>>,
) -> TestResult<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if start.elapsed() >= deadline {
            return Err(Stop::fail(format!("waited {} s for {what}", deadline.as_secs_f64())));
        }
        sleep(INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_at_its_deadline_and_names_what_was_missing() {
        let stop = wait_until::<()>("rain", Duration::from_millis(5), || Ok(None)).unwrap_err();
        assert_eq!(stop, Stop::fail("waited 0.005 s for rain"));
    }

    #[test]
    fn a_wait_ends_when_the_thing_is_there() {
        let mut looks = 0;
        let found = wait_until("three", Duration::from_secs(60), || {
            looks += 1;
            Ok((looks == 3).then_some(looks))
        });
        assert_eq!(found, Ok(3));
    }
}
