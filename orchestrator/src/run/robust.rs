// SPDX-License-Identifier: MIT OR Apache-2.0
//! What of counted figures holds on every kernel and CPU that was tried: only what keeps
//! its sign everywhere is claimed.

use kvet_records::Parameters;
use serde::{Deserialize, Serialize};

use super::result::CellResult;
use crate::compare::metrics::{MetricResult, MetricVerdict};

/// A metric with one set of parameters, over a cell and its variations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Robust {
    /// The cell, by its id.
    pub cell: String,
    /// Name of the test.
    pub test: String,
    /// Name of the metric.
    pub metric: String,
    /// Its parameters.
    #[serde(default, skip_serializing_if = "Parameters::is_empty")]
    pub parameters: Parameters,
    /// The verdict, where the cell and all of its variations agree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<MetricVerdict>,
    /// The least and the largest difference in percent, and where.
    pub least: Place,
    /// See `least`.
    pub most: Place,
    /// Number of places where it was measured.
    pub measured: usize,
    /// Number of places: the cell itself and its variations.
    pub places: usize,
}

/// A difference somewhere.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// Patched less base in percent of base.
    pub delta_percent: f64,
    /// Config and guest.
    pub place: String,
}

/// Summarises every metric of the cells that have variations.
#[must_use]
pub fn summarise(cells: &[CellResult]) -> Vec<Robust> {
    let mut out = Vec::new();
    for cell in cells.iter().filter(|cell| cell.variation_of.is_none()) {
        let id = format!("{}.{}.{}.{}", cell.series, cell.kernel, cell.config, cell.guest);
        let variations: Vec<&CellResult> =
            cells.iter().filter(|other| other.variation_of.as_ref() == Some(&id)).collect();
        if variations.is_empty() {
            continue;
        }
        for test in &cell.tests {
            for metric in &test.metrics {
                let everywhere: Vec<(&CellResult, Option<&MetricResult>)> = std::iter::once(&cell)
                    .chain(&variations)
                    .map(|place| (*place, same(place, &test.name, metric)))
                    .collect();
                out.extend(robust(&id, &test.name, metric, &everywhere));
            }
        }
    }
    out
}

/// The same metric in another cell.
fn same<'a>(cell: &'a CellResult, test: &str, metric: &MetricResult) -> Option<&'a MetricResult> {
    let test = cell.tests.iter().find(|found| found.name == test)?;
    test.metrics
        .iter()
        .find(|found| found.name == metric.name && found.parameters == metric.parameters)
}

fn robust(
    id: &str,
    test: &str,
    metric: &MetricResult,
    everywhere: &[(&CellResult, Option<&MetricResult>)],
) -> Option<Robust> {
    let mut places: Vec<Place> = everywhere
        .iter()
        .filter_map(|(cell, found)| {
            let delta_percent = (*found)?.delta_percent?;
            Some(Place { delta_percent, place: format!("{}/{}", cell.config, cell.guest) })
        })
        .collect();
    places.sort_by(|one, other| one.delta_percent.total_cmp(&other.delta_percent));
    let measured = places.len();
    let verdicts: Vec<Option<MetricVerdict>> =
        everywhere.iter().map(|(_, found)| found.and_then(|found| found.verdict)).collect();
    let first = verdicts.first().copied().flatten();
    let claim = first.filter(|_| verdicts.iter().all(|&verdict| verdict == first));
    Some(Robust {
        cell: id.to_owned(),
        test: test.to_owned(),
        metric: metric.name.clone(),
        parameters: metric.parameters.clone(),
        claim: claim.filter(|&claim| claim != MetricVerdict::Inconclusive),
        least: places.first()?.clone(),
        most: places.last()?.clone(),
        measured,
        places: everywhere.len(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kvet_records::Better;

    use super::*;
    use crate::compare::metrics::Figures;
    use crate::plan::manifest::{Measure, VariantName};
    use crate::run::result::TestResult;

    fn cell(guest: &str, of: Option<&str>, delta: f64, verdict: MetricVerdict) -> CellResult {
        let metric = MetricResult {
            name: "latency".to_owned(),
            unit: "instructions".to_owned(),
            better: Better::Lower,
            parameters: Parameters::new(),
            measure: Measure::Instructions,
            figures: BTreeMap::from([(VariantName::Base, Figures::default())]),
            delta: Some(delta),
            delta_percent: Some(delta),
            allowance: 0.0,
            verdict: Some(verdict),
            gate: false,
        };
        let test: TestResult = serde_json::from_str(r#"{"name": "t", "faults": []}"#).unwrap();
        let text = format!(
            r#"{{"series": "s", "kernel": "k", "config": "c", "guest": "{guest}", "variants": {{}}, "splats": [], "faults": [], "tests": []}}"#
        );
        let cell: CellResult = serde_json::from_str(&text).unwrap();
        CellResult {
            variation_of: of.map(str::to_owned),
            tests: vec![TestResult { metrics: vec![metric], ..test }],
            ..cell
        }
    }

    #[test]
    fn only_what_holds_everywhere_is_claimed() {
        use MetricVerdict::{Improved, Unchanged};
        let own = || cell("up", None, -20.0, Improved);
        let other = |delta, verdict| cell("up.amd", Some("s.k.c.up"), delta, verdict);
        let alike = summarise(&[own(), other(-8.0, Improved)]);
        assert_eq!(alike.len(), 1);
        assert_eq!(alike[0].claim, Some(Improved));
        assert_eq!((alike[0].least.delta_percent, alike[0].most.delta_percent), (-20.0, -8.0));
        assert_eq!(alike[0].most.place, "c/up.amd");
        let unlike = summarise(&[own(), other(0.0, Unchanged)]);
        assert_eq!(unlike[0].claim, None);
        // A place without a result is no support.
        let gone = CellResult { tests: Vec::new(), ..other(0.0, Improved) };
        let missing = summarise(&[own(), gone]);
        assert_eq!((missing[0].claim, missing[0].measured, missing[0].places), (None, 1, 2));
        assert!(summarise(&[own()]).is_empty(), "nothing without variations");
    }
}
