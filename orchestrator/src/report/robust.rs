// SPDX-License-Identifier: MIT OR Apache-2.0
//! What of the counted figures holds everywhere, as rows of the reports.

use super::number::change;
use crate::compare::metrics::MetricVerdict;
use crate::run::robust::{Place, Robust};

/// The rows of one test in one cell.
pub(super) struct Group<'a> {
    /// The cell's id.
    pub(super) cell: &'a str,
    /// Name of the test.
    pub(super) test: &'a str,
    /// Its metrics, but for those that are unchanged everywhere.
    pub(super) rows: Vec<&'a Robust>,
    /// How many those are.
    pub(super) unchanged: usize,
    /// Number of places: the cell itself and its variations.
    pub(super) places: usize,
}

/// The rows by cell and test, in their order.
pub(super) fn groups(all: &[Robust]) -> Vec<Group<'_>> {
    let mut out: Vec<Group> = Vec::new();
    for row in all {
        let (cell, test) = (row.cell.as_str(), row.test.as_str());
        let index = match out.iter().position(|group| (group.cell, group.test) == (cell, test)) {
            Some(index) => index,
            None => {
                out.push(Group { cell, test, rows: Vec::new(), unchanged: 0, places: row.places });
                out.len() - 1
            }
        };
        match row.claim {
            Some(MetricVerdict::Unchanged) => out[index].unchanged += 1,
            _ => out[index].rows.push(row),
        }
    }
    out
}

/// A metric's name and parameters.
pub(super) fn title(row: &Robust) -> String {
    let parameters = row.parameters.iter().map(|(name, value)| format!(" {name}={value}"));
    row.metric.clone() + &parameters.collect::<String>()
}

/// What may be claimed, or where it was not even measured.
pub(super) fn claim(row: &Robust) -> String {
    match row.claim {
        _ if row.measured < row.places => {
            format!("no claim: measured in {} of {}", row.measured, row.places)
        }
        Some(verdict) => verdict.to_string(),
        None => "no claim".to_owned(),
    }
}

/// The lines for people.
pub(super) fn lines(all: &[Robust]) -> Vec<String> {
    let mut out = Vec::new();
    for group in groups(all) {
        out.push(format!(
            "{} in {}: what holds in all {} places",
            group.test, group.cell, group.places
        ));
        let width = group.rows.iter().map(|row| title(row).len()).max().unwrap_or(0);
        let end = |place: &Place| format!("{}% ({})", change(place.delta_percent), place.place);
        for row in &group.rows {
            out.push(format!(
                "  {:<width$}  {:<9}  {} to {}",
                title(row),
                claim(row),
                end(&row.least),
                end(&row.most)
            ));
        }
        if group.unchanged > 0 {
            out.push(format!("  unchanged in all of them: {} more", group.unchanged));
        }
    }
    out
}

#[cfg(test)]
pub(super) fn sample(metric: &str, claim: Option<MetricVerdict>, measured: usize) -> Robust {
    let place = |delta_percent, place: &str| Place { delta_percent, place: place.to_owned() };
    Robust {
        cell: "s.k.microvm.up".to_owned(),
        test: "t.instructions".to_owned(),
        metric: metric.to_owned(),
        parameters: [("vlen".to_owned(), 2_i64.into())].into(),
        claim,
        least: place(-26.5, "microvm/up"),
        most: place(-8.25, "distribution/up-amd"),
        measured,
        places: 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_holds_everywhere_is_claimed() {
        let all = [
            sample("latency", Some(MetricVerdict::Improved), 3),
            sample("call", None, 3),
            sample("walk", Some(MetricVerdict::Improved), 2),
            sample("locks", Some(MetricVerdict::Unchanged), 3),
        ];
        insta::assert_snapshot!(lines(&all).join("\n"));
    }
}
