// SPDX-License-Identifier: MIT OR Apache-2.0
//! Of the behaviour at every prefix: what changes, where, and what is broken in between.

use std::collections::BTreeMap;

use kvet_records::Value;

use super::{
    MAX_LINES, faults, has_whole_base, new_splats, of_variant, skipped_words, skips, unfinished,
};
use crate::compare::behaviour::{Row, Verdict};
use crate::fault::{ExitCode, escape};
use crate::plan::manifest::VariantName;
use crate::run::result::{CellResult, RunResult};
use crate::validate::prefix::at_patch;
use crate::validate::result::Finding;

/// Of the behaviour at every prefix.
#[must_use]
pub fn behaviour(result: &RunResult, subjects: &[String]) -> Finding {
    let total = subjects.len();
    if let Some(finding) =
        faults(result.faults.iter().chain(result.cells.iter().flat_map(|cell| &cell.faults)))
    {
        return finding;
    }
    if result.cells.iter().all(|cell| cell.identical) {
        return Finding::inconclusive("without and with the series it is the same kernel");
    }
    let mut wrong: Vec<(usize, String)> = Vec::new();
    let mut good: BTreeMap<usize, usize> = BTreeMap::new();
    for cell in &result.cells {
        let seen = if has_whole_base(cell) { new_splats(cell) } else { Vec::new() };
        for row in seen {
            let first = row.variants.iter().map(|name| name.patches(total)).min().unwrap_or(total);
            wrong.push((
                first,
                format!("new splat {}: {}", at_patch(first, subjects), escape(&row.splat.title)),
            ));
        }
        for test in &cell.tests {
            let broken = test.faults.iter().filter_map(|fault| {
                let name: VariantName = fault.what.split(' ').next()?.parse().ok()?;
                Some((name.patches(total), fault))
            });
            if of_variant(test, VariantName::Base).is_none() {
                wrong.extend(broken.map(|(at, fault)| {
                    (at, format!("{}: {}", at_patch(at, subjects), fault.what))
                }));
            }
            let Some(found) = &test.behaviour else { continue };
            for row in &found.rows {
                let path = Path::of(
                    row,
                    found
                        .observations
                        .iter()
                        .map(|(name, all)| (name.patches(total), all.get(&row.name))),
                    total,
                );
                match row.verdict {
                    Verdict::Same => {}
                    Verdict::Expected => *good.entry(path.first).or_default() += 1,
                    Verdict::Unexpected | Verdict::Missing => {
                        wrong.push((
                            path.first,
                            format!("{} {}", test.name, path.words(row, subjects)),
                        ));
                    }
                }
            }
        }
    }
    let code = ExitCode::worst(result.cells.iter().map(CellResult::exit_code));
    if !wrong.is_empty() {
        // What is of no prefix comes last.
        wrong.sort_by_key(|(at, _)| at.checked_sub(1).unwrap_or(usize::MAX));
        let (first, words) = wrong[0].clone();
        let more = wrong.len() - 1;
        let and = if more > 0 { format!(", and {more} more") } else { String::new() };
        let code = if code == ExitCode::Acceptable { ExitCode::Behaviour } else { code };
        let patch = (first > 0).then_some(first);
        let lines = wrong.into_iter().skip(1).map(|(_, line)| line).take(MAX_LINES);
        return Finding::failed(code, words + &and).with(lines.collect::<Vec<_>>()).at_patch(patch);
    }
    let tests = || result.cells.iter().flat_map(|cell| &cell.tests);
    if tests().any(|test| !test.faults.is_empty()) {
        return unfinished(result);
    }
    if !result.unchecked.is_empty() {
        return Finding::inconclusive(format!("not checked: {}", result.unchecked[0]))
            .with(result.unchecked.iter().skip(1).take(MAX_LINES).cloned());
    }
    let kernels = total + 1;
    let words = match good.len() {
        0 => format!("unchanged in {kernels} kernels"),
        _ => {
            let at = good.iter().map(|(at, count)| {
                let change = if *count == 1 { "change" } else { "changes" };
                format!("{count} declared {change} from patch {at} of {total} on")
            });
            format!("{}, nothing else", at.collect::<Vec<_>>().join(", "))
        }
    };
    Finding::ok(words + &skipped_words(result)).with(skips(result))
}

/// How an observation goes from prefix to prefix.
struct Path {
    /// The first prefix with another value than base; 0 where there is none.
    first: usize,
    /// Likewise, the last one that differs from both ends, where these agree.
    strays: Vec<(usize, String)>,
    /// The first prefix from which on it has the value of the end.
    settled: usize,
}

impl Path {
    fn of<'a>(
        row: &Row,
        values: impl Iterator<Item = (usize, Option<&'a Value>)>,
        total: usize,
    ) -> Self {
        let values: BTreeMap<usize, Option<&Value>> = values.collect();
        let is = |value: Option<&Value>, other: &Option<Value>| value == other.as_ref();
        let prefixes = || values.iter().filter(|(at, _)| **at > 0);
        let first = prefixes().find(|(_, value)| !is(**value, &row.base)).map_or(0, |(at, _)| *at);
        let strays = prefixes()
            .filter(|(_, value)| row.base == row.patched && !is(**value, &row.base))
            .map(|(at, value)| (*at, shown(*value)))
            .collect();
        let settled = prefixes()
            .rev()
            .take_while(|(_, value)| is(**value, &row.patched))
            .last()
            .map_or(total, |(at, _)| *at);
        Self { first, strays, settled }
    }

    fn words(&self, row: &Row, subjects: &[String]) -> String {
        let (base, patched) = (shown(row.base.as_ref()), shown(row.patched.as_ref()));
        if let Some((at, value)) = self.strays.first() {
            return format!(
                "{} broken {}: {value} instead of {base}; fixed at {} of {}",
                row.name,
                at_patch(*at, subjects),
                self.settled,
                subjects.len()
            );
        }
        match &row.declared {
            Some((_, wanted)) if row.base == row.patched => {
                format!("{} stays {base}, declared to become {}", row.name, shown(Some(wanted)))
            }
            Some((from, to)) => format!(
                "{} {base} -> {patched} {}, declared {} -> {}",
                row.name,
                at_patch(self.first, subjects),
                shown(Some(from)),
                shown(Some(to))
            ),
            None => format!(
                "{} {base} -> {patched} {}, not declared",
                row.name,
                at_patch(self.first, subjects)
            ),
        }
    }
}

fn shown(value: Option<&Value>) -> String {
    value.map_or("nothing".to_owned(), |value| escape(&value.to_string()))
}
