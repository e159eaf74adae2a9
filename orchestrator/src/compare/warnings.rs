// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which compiler warnings one kernel has and another has not: by what they are,
//! not by how many there are or in which line they stand.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::kernel::warning::{Identity, Warning};
use crate::plan::manifest::VariantName;

/// Most warnings of a kind that a result keeps.
const MAX_KEPT: usize = 500;

/// How the warnings of two variants differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarningChange {
    /// The variant before.
    pub from: VariantName,
    /// The variant after.
    pub to: VariantName,
    /// Warnings of `to` that `from` does not have.
    pub introduced: Vec<Warning>,
    /// Warnings of `from` that `to` does not have.
    pub fixed: Vec<Warning>,
    /// Warnings that went to another function of their file, or with their
    /// function to another file.
    pub moved: Vec<MovedWarning>,
    /// Warnings that both have, wherever their lines are now.
    pub same: usize,
    /// Warnings that were left out above because there are too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: usize,
}

/// A warning that is elsewhere now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedWarning {
    /// Where it was.
    pub from: Warning,
    /// Where it is.
    pub to: Warning,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl WarningChange {
    /// Whether the variants have the same warnings in the same functions.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.introduced.is_empty() && self.fixed.is_empty() && self.moved.is_empty()
    }
}

/// Compares the warnings of two variants.
#[must_use]
pub fn compare(
    (from, before): (VariantName, &[Warning]),
    (to, after): (VariantName, &[Warning]),
) -> WarningChange {
    let (old, new) = (by_identity(before), by_identity(after));
    let mut same = 0;
    let mut fixed = Vec::new();
    for (identity, warnings) in &old {
        let kept = new.get(identity).map_or(0, Vec::len).min(warnings.len());
        same += kept;
        fixed.extend(beyond(warnings, new.get(identity), kept));
    }
    let mut introduced = Vec::new();
    for (identity, warnings) in &new {
        let kept = old.get(identity).map_or(0, Vec::len).min(warnings.len());
        introduced.extend(beyond(warnings, old.get(identity), kept));
    }
    let mut moved = Vec::new();
    introduced.retain(|warning: &Warning| {
        let Some(at) =
            fixed.iter().position(|gone: &Warning| elsewhere(&gone.identity, &warning.identity))
        else {
            return true;
        };
        moved.push(MovedWarning { from: fixed.remove(at), to: warning.clone() });
        false
    });
    let mut change = WarningChange { from, to, introduced, fixed, moved, same, left_out: 0 };
    let lengths = [change.introduced.len(), change.fixed.len(), change.moved.len()];
    change.left_out = lengths.iter().map(|length| length.saturating_sub(MAX_KEPT)).sum();
    change.introduced.truncate(MAX_KEPT);
    change.fixed.truncate(MAX_KEPT);
    change.moved.truncate(MAX_KEPT);
    change
}

fn by_identity(warnings: &[Warning]) -> BTreeMap<&Identity, Vec<&Warning>> {
    let mut map: BTreeMap<&Identity, Vec<&Warning>> = BTreeMap::new();
    for warning in warnings {
        map.entry(&warning.identity).or_default().push(warning);
    }
    map
}

/// The warnings of one identity beyond the `kept` that both sides have; those in
/// lines that the other side has, too, are kept first.
fn beyond(warnings: &[&Warning], other: Option<&Vec<&Warning>>, kept: usize) -> Vec<Warning> {
    let stays = |warning: &Warning| {
        other.is_some_and(|other| other.iter().any(|there| there.line == warning.line))
    };
    let mut sorted: Vec<&Warning> = warnings.to_vec();
    sorted.sort_by_key(|warning| !stays(warning));
    sorted.into_iter().skip(kept).cloned().collect()
}

/// One warning in two places: the message is the same, and either the file or
/// the function is.
fn elsewhere(one: &Identity, other: &Identity) -> bool {
    let same_function = one.function.is_some() && one.function == other.function;
    one.kind == other.kind && one.text == other.text && (one.file == other.file || same_function)
}

#[cfg(test)]
mod tests {
    use super::*;
    use VariantName::{Base, Patched};
    use proptest::prelude::*;

    fn warning(file: &str, function: &str, text: &str, line: u32) -> Warning {
        let identity = Identity {
            file: file.into(),
            function: Some(function.into()),
            kind: "-Wx".into(),
            text: text.into(),
        };
        Warning { identity, line, column: 1 }
    }

    fn counts(before: &[Warning], after: &[Warning]) -> (usize, usize, usize, usize) {
        let change = compare((Base, before), (Patched, after));
        (change.introduced.len(), change.fixed.len(), change.moved.len(), change.same)
    }

    #[test]
    fn one_warning_for_another_is_one_introduced_and_one_fixed() {
        let before = [warning("a.c", "f", "unused x", 3)];
        let after = [warning("a.c", "f", "unused y", 3)];
        assert_eq!(counts(&before, &after), (1, 1, 0, 0));
    }

    #[test]
    fn a_line_is_no_part_of_a_warning_but_a_second_one_is_a_second_one() {
        let before = [warning("a.c", "f", "x", 3)];
        assert_eq!(counts(&before, &[warning("a.c", "f", "x", 30)]), (0, 0, 0, 1));
        let two = [warning("a.c", "f", "x", 2), warning("a.c", "f", "x", 3)];
        let change = compare((Base, &before), (Patched, &two));
        assert_eq!((change.introduced[0].line, change.same), (2, 1));
    }

    #[test]
    fn a_warning_moves_with_its_function_or_within_its_file() {
        let before = [warning("a.c", "f", "x", 3)];
        assert_eq!(counts(&before, &[warning("b.c", "f", "x", 3)]), (0, 0, 1, 0));
        assert_eq!(counts(&before, &[warning("a.c", "g", "x", 3)]), (0, 0, 1, 0));
        assert_eq!(counts(&before, &[warning("b.c", "g", "x", 3)]), (1, 1, 0, 0));
    }

    fn any_warnings() -> impl Strategy<Value = Vec<Warning>> {
        let one = ("[ab]", "[fg]", "[xy]", 1u32..4);
        proptest::collection::vec(one, 0..8).prop_map(|all| {
            all.iter()
                .map(|(file, function, text, line)| warning(file, function, text, *line))
                .collect()
        })
    }

    proptest! {
        #[test]
        fn every_warning_is_accounted_for_once(before in any_warnings(), after in any_warnings()) {
            let (introduced, fixed, moved, same) = counts(&before, &after);
            prop_assert_eq!(same + fixed + moved, before.len());
            prop_assert_eq!(same + introduced + moved, after.len());
            let (back_introduced, back_fixed, back_moved, back_same) = counts(&after, &before);
            prop_assert_eq!((back_introduced + back_moved, back_fixed + back_moved, back_same), (fixed + moved, introduced + moved, same));
            prop_assert_eq!(counts(&before, &before), (0, 0, 0, before.len()));
        }
    }
}
