// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all boots of one test in one variant came to together.

use std::collections::BTreeSet;

use kvet_records::{Outcome, Value};

use crate::compare::behaviour::Observations;
use crate::compare::metrics::{self, Phases};
use crate::fault::Fault;
use crate::plan::manifest::VariantName;
use crate::transport::virtio::Sample;
use crate::vm::halt::BootReport;
use crate::vm::splat::Splat;

/// What the boots of one test in one variant came to.
#[derive(Debug)]
pub(super) struct Chain {
    pub(super) variant: VariantName,
    /// At least one was started.
    pub(super) begun: bool,
    /// What all of them observed; none before the first is done.
    pub(super) observed: Option<Observations>,
    /// They cannot run the test.
    pub(super) skipped: bool,
    /// Reasons for that, or why a part was not run.
    pub(super) skips: Vec<String>,
    pub(super) splats: Vec<Splat>,
    /// What each phase of a measured test sampled, in their order.
    pub(super) phases: Phases,
    /// Why there is no result.
    pub(super) fault: Option<Fault>,
}

impl Default for Chain {
    fn default() -> Self {
        Self {
            variant: VariantName::Base,
            begun: false,
            observed: None,
            skipped: false,
            skips: Vec::new(),
            splats: Vec::new(),
            phases: Phases::new(),
            fault: None,
        }
    }
}

impl Chain {
    /// Takes the report of boot `number`; a fault when it is not what the first
    /// one reported.
    pub(super) fn take(&mut self, task: &str, number: u16, report: BootReport) -> Option<Fault> {
        let report = report.report;
        let skipped = report.outcome == Some(Outcome::Skipped);
        // What a test saw before it found that it cannot run is no result.
        let now = if skipped { Observations::new() } else { report.observations };
        let Some(first) = &self.observed else {
            (self.observed, self.skipped, self.skips) = (Some(now), skipped, report.skips);
            return None;
        };
        if skipped == self.skipped && now == *first {
            return None;
        }
        let what = format!("{task}: boot {number} did not observe what boot 1 did");
        Some(Fault::test(what).evidence(&unsteady(first, &now)).help(
            "an observation must be the same in every boot of a variant; \
             what is not belongs in a log or a sample",
        ))
    }
}

impl Chain {
    /// Takes the samples of a boot at phase number `phase`, which come in order; a fault
    /// when an earlier boot at that phase sampled something else.
    pub(super) fn take_samples(
        &mut self,
        task: &str,
        phase: u16,
        samples: Vec<Sample>,
    ) -> Option<Fault> {
        let Some(first) = self.phases.get(usize::from(phase)) else {
            self.phases.push(samples);
            return None;
        };
        let lines = metrics::differences(first, &samples);
        if lines.is_empty() {
            return None;
        }
        let what = format!("{task}: two counts of the same thing differ");
        Some(Fault::infra(what).evidence(&lines.join("\n")).help(
            "counts must be exact; something outside of the guest took part in one of them, so \
             none of these can be relied upon: try --cold, or another version of QEMU",
        ))
    }
}

/// What two boots of a variant did not observe alike, one line each.
fn unsteady(first: &Observations, later: &Observations) -> String {
    let shown =
        |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), ToString::to_string);
    let names: BTreeSet<&String> = first.keys().chain(later.keys()).collect();
    let lines: Vec<String> = names
        .into_iter()
        .filter(|name| first.get(*name) != later.get(*name))
        .map(|name| format!("{name}: {}, then {}", shown(first.get(name)), shown(later.get(name))))
        .collect();
    lines.join("\n")
}
