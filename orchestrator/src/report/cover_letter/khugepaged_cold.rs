// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table with which moving cold address spaces to the tail of khugepaged's list
//! was posted: what the task behind the cold one has of it.

use kvet_records::Value;

use super::Section;
use super::figure::{Marks, NOTHING, find, median, of, phases, values};
use super::text::{Letter, Table};
use crate::compare::metrics::{Figures, MetricResult};
use crate::plan::manifest::VariantName::{self, Base, Patched};

/// The tables and what they are; `false` where the test measured something else.
pub(super) fn write(letter: &mut Letter, section: &Section) -> bool {
    let test = section.test;
    let advices = values(test, "huge.hot2", "advice");
    if advices.is_empty() {
        return false;
    }
    letter.paragraph(
        "Tasks hot1, cold and hot2 come onto khugepaged's list in that order with touched small \
         pages; cold gives the advice; then khugepaged scans one PMD range every 10 ms while the \
         hot tasks read at random. Seconds are guest time: one for each billion instructions, \
         plus idle time.",
    );
    let mut marks = Marks::default();
    for advice in advices {
        letter.table(&table(section, advice, &mut marks));
    }
    for line in marks.legend() {
        letter.paragraph(line);
    }
    letter.paragraph(&format!(
        "range: least and most of {} phases. Kicks are passes until hot2 has its first huge page, \
         an exact fact of the test without a measure. dTLB-load-misses: a counted guest has no \
         such counter, so that this measure cannot give them.",
        phases(test)
    ));
    letter.paragraph(
        "A count leaves out TLB misses, which is where huge pages gain: reads take as many \
         instructions from small pages as from huge ones, so that accesses hardly change here \
         and say nothing against the change. What a count can tell is how soon hot2 is fully \
         huge. There is one CPU, on which khugepaged and the tasks take turns, and who runs when \
         is decided by counted time.",
    );
    true
}

fn table(section: &Section, advice: &Value, marks: &mut Marks) -> Table {
    let metric = |name| find(section.test, name, &[("advice", advice)]);
    let head = format!("task hot2, MADV_{}", advice.to_string().to_ascii_uppercase());
    let mut table = Table::new(&[&head, "without", "with", "delta"]);
    let mut row = |words: &str, metric: Option<&MetricResult>, shown: fn(&Figures) -> String| {
        let cell = |variant| of(metric, variant).map_or(NOTHING.to_owned(), shown);
        table.row([words.to_owned(), cell(Base), cell(Patched), marks.delta(metric)]);
    };
    row("total access, instructions", metric("access.total"), |f| format!("{:.0}", f.median));
    row("instructions per access", metric("access.each"), |f| format!("{:.2}", f.median));
    row("throughput, M reads/s", metric("access.rate"), |f| format!("{:.2}", f.median));
    row("dTLB-load-misses", None, |_| String::new());
    row("fully huge after", metric("huge.hot2"), |f| seconds(f.median));
    let range =
        |variant: VariantName| of(metric("huge.hot2"), variant).map_or(NOTHING.to_owned(), ends);
    table.row(["  range".to_owned(), range(Base), range(Patched), " ".to_owned()]);
    let mut row = |words: &str, metric: Option<&MetricResult>| {
        let (without, with) = (median(metric, Base), median(metric, Patched));
        table.row([words.to_owned(), without, with, marks.delta(metric)]);
    };
    row("khugepaged, instructions", metric("khugepaged.cpu"));
    row("PMDs scanned in vain", metric("scans.vain"));
    let kicks = |variant| kicks(section, advice, variant);
    let (without, with) = (kicks(Base), kicks(Patched));
    let delta = match (without, with) {
        (Some(without), Some(with)) => format!("{:+} ", with.saturating_sub(without)),
        _ => format!("{NOTHING} "),
    };
    let shown = |kicks: Option<i64>| kicks.map_or(NOTHING.to_owned(), |kicks| kicks.to_string());
    table.row(["kicks to first huge page".to_owned(), shown(without), shown(with), delta]);
    table
}

fn seconds(nanoseconds: f64) -> String {
    format!("{:.3} s", nanoseconds / 1e9)
}

fn ends(figures: &Figures) -> String {
    format!("{:.3}-{:.3} s", figures.least() / 1e9, figures.most() / 1e9)
}

/// What the test without a measure observed in this run, if it was run.
fn kicks(section: &Section, advice: &Value, variant: VariantName) -> Option<i64> {
    let name = format!("kicks.{advice}");
    let tests = section.group.iter().flat_map(|cell| &cell.tests);
    let mut found =
        tests.filter(|test| test.name == "khugepaged_cold").filter_map(|test| {
            match test.behaviour.as_ref()?.observations.get(&variant)?.get(&name)? {
                Value::Integer(kicks) => Some(*kicks),
                _ => None,
            }
        });
    found.next()
}
