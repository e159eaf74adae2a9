// SPDX-License-Identifier: MIT OR Apache-2.0
//! A test without a table of its own: all that it measured.

use super::Section;
use super::figure::{Marks, median, spread};
use super::text::{Letter, Table};
use crate::plan::manifest::VariantName::{Base, Patched};
use crate::report::metrics::groups;

/// A table for each metric.
pub(super) fn write(letter: &mut Letter, section: &Section) {
    let mut marks = Marks::default();
    for group in groups(&section.test.metrics) {
        letter.paragraph(&format!("{} ({}):", group[0].name, group[0].unit));
        let mut table = Table::new(&["", "before", "range%", "after", "range%", "delta"]);
        for metric in group {
            let words: Vec<String> =
                metric.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let metric = Some(metric);
            table.row([
                words.join(" "),
                median(metric, Base),
                spread(metric, Base),
                median(metric, Patched),
                spread(metric, Patched),
                marks.delta(metric),
            ]);
        }
        letter.table(&table);
    }
    for line in marks.legend() {
        letter.paragraph(line);
    }
    letter.paragraph(
        "A count leaves out what an instruction costs: misses of caches and TLBs, what the \
         hardware does for it, waiting for other CPUs.",
    );
}
