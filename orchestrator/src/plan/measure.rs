// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a plan says of measures: which test takes which, and how they are judged.

use std::ops::RangeInclusive;

use kvet_records::TestInfo;

use super::manifest::{Measure, TestEntry};
use super::resolve::Resolver;
use super::{Guest, Instructions, Test};
use crate::fault::Fault;

/// Fewer phases do not show how a figure depends on them; more take hours.
const PHASES: RangeInclusive<u16> = 2..=256;

impl Resolver<'_> {
    /// How instructions are counted and judged.
    pub(super) fn instructions(&mut self) -> Instructions {
        let entry = self.document.value.measures.instructions.clone();
        let default = Instructions::default();
        let phases = entry.phases.unwrap_or(default.phases);
        if !PHASES.contains(&phases) {
            let what =
                format!("{phases} phases; {} to {} are possible", PHASES.start(), PHASES.end());
            self.report("measures.instructions.phases", what);
        }
        Instructions {
            phases,
            threshold_percent: entry.threshold.unwrap_or(default.threshold_percent),
            gate: entry.gate,
            robustness: entry.robustness,
        }
    }

    /// What one of kvet's own tests is to measure.
    pub(super) fn measure(
        &mut self,
        path: &str,
        entry: &TestEntry,
        info: &TestInfo,
    ) -> Option<Measure> {
        let place = format!("{path}.measure");
        if let [_, second, ..] = entry.measure[..] {
            let what = format!("one measure for each entry; {} is a second", second.name());
            let fault = self.document.fault(&place, what);
            self.faults.push(fault.help("make two entries of it"));
        }
        let measure = *entry.measure.first()?;
        if measure == Measure::Wallclock {
            let fault = self.document.fault(
                &place,
                "wall-clock time is not measured: under TCG it is the emulator's and says nothing \
                 of the kernel, and for KVM guests kvet does not measure it yet",
            );
            self.faults.push(
                fault.help("use `measure: [instructions]`, which counts and is exact without KVM"),
            );
            return None;
        }
        if info.measured.is_none() {
            let what = format!("test {:?} measures nothing", info.name);
            let names: Vec<&str> = self
                .tests
                .values()
                .filter(|info| info.measured.is_some())
                .map(|info| info.name.as_str())
                .collect();
            let fault = self.document.fault(&place, what);
            self.faults.push(fault.help(format!("these do: {}", names.join(", "))));
        }
        Some(measure)
    }

    /// Why a guest cannot take what a test measures.
    pub(super) fn cannot_measure(
        &self,
        path: &str,
        test: &Test,
        guest: Option<&Guest>,
    ) -> Option<Fault> {
        let guest = guest.filter(|guest| guest.vcpus > 1)?;
        test.measure?;
        let what = format!(
            "instructions are counted on one vCPU, and guest {:?} has {}",
            guest.name, guest.vcpus
        );
        let fault = self.document.fault(path, what);
        Some(fault.help("name a guest with `vcpus: 1` in the test's `guests:`"))
    }
}
