// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which patch of a series it is, by trying as few prefixes as can be.

use crate::fault::Fault;

/// Who is to blame: one patch, or several where the prefixes between could not be tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Culprit {
    /// The first that it may be, from 1.
    pub first: usize,
    /// The last that it may be.
    pub last: usize,
}

impl Culprit {
    /// The patch, where it is one.
    #[must_use]
    pub fn patch(self) -> Option<usize> {
        (self.first == self.last).then_some(self.first)
    }

    /// `at patch 2 of 3 (subject)`, or the range that is left.
    #[must_use]
    pub fn words(self, subjects: &[String]) -> String {
        match self.patch() {
            Some(patch) => at_patch(patch, subjects),
            None => format!(
                "at one of the patches {} to {} of {}: those between could not be tried",
                self.first,
                self.last,
                subjects.len()
            ),
        }
    }
}

/// `at patch 2 of 3 (subject)`.
#[must_use]
pub fn at_patch(patch: usize, subjects: &[String]) -> String {
    let subject = patch.checked_sub(1).and_then(|at| subjects.get(at));
    let subject = subject.map_or(String::new(), |subject| format!(" ({subject})"));
    format!("at patch {patch} of {}{subject}", subjects.len())
}

/// Finds the patch with which `bad` begins: it does not hold without the series, and
/// holds with all of its `total` patches. A prefix of which it says `None` cannot be
/// tried, and its neighbours are.
///
/// # Errors
/// What `bad` fails with.
pub async fn first_bad(
    total: usize,
    mut bad: impl AsyncFnMut(usize) -> Result<Option<bool>, Fault>,
) -> Result<Culprit, Fault> {
    let (mut low, mut high) = (0, total.max(1));
    let mut untried: Vec<usize> = Vec::new();
    loop {
        let middle = usize::midpoint(low, high);
        let candidates = (low + 1..high).filter(|at| !untried.contains(at));
        let Some(next) = candidates.min_by_key(|at| at.abs_diff(middle)) else {
            return Ok(Culprit { first: low + 1, last: high });
        };
        match bad(next).await? {
            Some(true) => high = next,
            Some(false) => low = next,
            None => untried.push(next),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn find(total: usize, first: usize, broken: &[usize]) -> (Culprit, usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut tried = 0;
        let found = runtime.block_on(first_bad(total, async |at| {
            tried += 1;
            Ok((!broken.contains(&at)).then_some(at >= first))
        }));
        (found.unwrap(), tried)
    }

    #[test]
    fn one_patch_needs_no_try() {
        assert_eq!(find(1, 1, &[]), (Culprit { first: 1, last: 1 }, 0));
        assert_eq!(find(2, 2, &[]), (Culprit { first: 2, last: 2 }, 1));
    }

    #[test]
    fn what_cannot_be_tried_is_not_blamed_alone() {
        let (found, _) = find(4, 3, &[2, 3]);
        assert_eq!(found, Culprit { first: 2, last: 4 });
        assert_eq!(found.patch(), None);
        let subjects: Vec<String> = ["a", "b", "c", "d"].map(str::to_owned).into();
        assert!(found.words(&subjects).contains("patches 2 to 4 of 4"));
        assert_eq!(find(4, 3, &[1]).0.words(&subjects), "at patch 3 of 4 (c)");
    }

    proptest! {
        #[test]
        fn the_patch_is_found_in_few_tries(total in 1usize..200, part in 0.0f64..1.0) {
            let first = 1 + (part * total as f64) as usize;
            let (found, tried) = find(total, first, &[]);
            prop_assert_eq!(found, Culprit { first, last: first });
            prop_assert!(tried as f64 <= (total as f64).log2().ceil(), "{} tries", tried);
        }

        #[test]
        fn the_patch_is_always_in_the_range(total in 1usize..40, part in 0.0f64..1.0, broken: Vec<u8>) {
            let first = 1 + (part * total as f64) as usize;
            let broken: Vec<usize> = broken.into_iter().map(usize::from).collect();
            let (found, _) = find(total, first, &broken);
            prop_assert!(found.first <= first && first <= found.last);
        }
    }
}
