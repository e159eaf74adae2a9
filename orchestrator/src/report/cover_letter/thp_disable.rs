// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table with which khugepaged's skip of disabled address spaces was posted: a
//! row for each number of VMAs.

use kvet_records::Value;

use super::Section;
use super::figure::{Marks, find, median, of, phases, values};
use super::text::{Letter, Table};
use crate::plan::manifest::VariantName::{self, Base, Patched};
use crate::report::number::plain;

/// The table and what it is; `false` where the test measured something else.
pub(super) fn write(letter: &mut Letter, section: &Section) -> bool {
    let test = section.test;
    let counts = values(test, "pass", "vmas");
    if counts.is_empty() {
        return false;
    }
    let passes = test
        .metrics
        .iter()
        .flat_map(|metric| metric.figures.values())
        .find_map(|figures| figures.beside.get("passes"))
        .map_or(String::new(), |range| format!(" of {}", range.1));
    letter.paragraph(&format!(
        "Instructions of khugepaged, by its own CPU clock, for a pass over one process that was \
         listed and then disabled by prctl(PR_SET_THP_DISABLE), the cheapest{passes}: pass is the \
         whole pass, 0 VMAs the empty one without that process, and walk a pass less the empty \
         pass of the same kernel.",
    ));
    let mut marks = Marks::default();
    let heads =
        ["VMAs", "pass before", "after", "reduction%", "walk before", "after", "reduction%"];
    let mut table = Table::new(&heads);
    for count in &counts {
        let pass = find(test, "pass", &[("vmas", count)]);
        let walk = find(test, "walk", &[("vmas", count)]);
        table.row([
            count.to_string(),
            median(pass, Base),
            median(pass, Patched),
            marks.reduction(pass),
            median(walk, Base),
            median(walk, Patched),
            marks.reduction(walk),
        ]);
    }
    letter.table(&table);
    for line in marks.legend() {
        letter.paragraph(line);
    }
    ranges(letter, section, &counts);
    slope(letter, section, &counts);
    let walks = test.metrics.iter().filter(|metric| metric.name == "walk");
    let less: f64 = walks.filter_map(|metric| metric.delta).map(|delta| -delta).sum();
    let errs = if less > 0.0 {
        ", of which there are fewer with the series: the true gain is larger than counted"
    } else if less < 0.0 {
        ", of which there are more with the series: the true cost is larger than counted"
    } else {
        ""
    };
    letter.paragraph(&format!("A count leaves out the cache misses of walking the VMAs{errs}."));
    true
}

/// The figures that are not the same at every phase.
fn ranges(letter: &mut Letter, section: &Section, counts: &[&Value]) {
    let mut apart = Vec::new();
    for count in counts {
        let pass = find(section.test, "pass", &[("vmas", count)]);
        for (variant, word) in [(Base, "before"), (Patched, "after")] {
            match of(pass, variant) {
                Some(found) if found.least() < found.most() => apart.push(format!(
                    "{count} VMAs {word}: {} to {}",
                    plain(found.least()),
                    plain(found.most())
                )),
                _ => {}
            }
        }
    }
    let phases = phases(section.test);
    letter.paragraph(&match apart.is_empty() {
        true => format!("Each pass is the same at all {phases} phases: the range is 0."),
        false => format!(
            "Range: each pass is the same at all {phases} phases, but for {}.",
            apart.join("; ")
        ),
    });
}

/// What one VMA more costs.
fn slope(letter: &mut Letter, section: &Section, counts: &[&Value]) {
    let points = |variant: VariantName| -> Option<f64> {
        let point = |count: &&Value| {
            let Value::Integer(vmas) = count else { return None };
            let pass = find(section.test, "pass", &[("vmas", count)]);
            #[expect(clippy::cast_precision_loss, reason = "at most 10000 VMAs")]
            let found = (*vmas > 0).then_some(*vmas as f64)?;
            Some((found, of(pass, variant)?.median))
        };
        let points: Vec<(f64, f64)> = counts.iter().filter_map(point).collect();
        let (first, last) = (points.first()?, points.last()?);
        (last.0 > first.0).then(|| (last.1 - first.1) / (last.0 - first.0))
    };
    if let (Some(before), Some(after)) = (points(Base), points(Patched)) {
        letter.paragraph(&format!(
            "From the fewest to the most VMAs, each costs {before:.1} instructions before and \
             {after:.1} after.",
        ));
    }
}
