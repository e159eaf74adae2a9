// SPDX-License-Identifier: MIT OR Apache-2.0
//! `robustness: true`: the same counted comparison on other kernels and CPUs, so that
//! nothing is claimed that only one of them shows.

use super::resolve::Resolver;
use super::{Cell, Fragment, Guest};

/// kconfig fragment with what distributions switch on.
const DISTRIBUTION: &str = "distribution";

/// CPU models of QEMU's: one with the hardware bug that page table isolation is for, so
/// that a kernel with mitigations isolates, and one without.
const MODELS: [(&str, &str); 2] = [("intel", "Skylake-Client-v1"), ("amd", "EPYC-v1")];

impl Resolver<'_> {
    /// The variations of cells that measure, behind them. Page tables of five levels are
    /// tried where the config has them, which is the distribution-like one.
    pub(super) fn with_variations(&mut self, cells: Vec<Cell>) -> Vec<Cell> {
        if !self.document.value.measures.instructions.robustness {
            return cells;
        }
        let path = self.root.join("configs/kconfig").join(format!("{DISTRIBUTION}.config"));
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => {
                let fault = self.document.fault(
                    "measures.instructions.robustness",
                    format!("read {}: {error}", path.display()),
                );
                let help = "robustness needs this kconfig fragment; copy kvet's own";
                self.faults.push(fault.help(help));
                return cells;
            }
        };
        let fragment = Fragment { name: DISTRIBUTION.to_owned(), path, text };
        let measuring = cells.iter().filter(|cell| cell.tests.iter().any(|t| t.measure.is_some()));
        let variations: Vec<Cell> =
            measuring.flat_map(|cell| variations(cell, &fragment)).collect();
        cells.into_iter().chain(variations).collect()
    }
}

fn variations(cell: &Cell, fragment: &Fragment) -> Vec<Cell> {
    let mut out = Vec::new();
    for distribution in [false, true] {
        let mut config = cell.config.clone();
        if distribution {
            config.name = format!("{}.{DISTRIBUTION}", config.name);
            config.fragments.push(fragment.clone());
        }
        for (vendor, model) in MODELS {
            for erms in [false, true] {
                for five in [false, true] {
                    if five && !distribution {
                        continue;
                    }
                    let word =
                        |on: bool, name: &str| if on { format!(".{name}") } else { String::new() };
                    let name = format!("{vendor}{}{}", word(erms, "erms"), word(five, "la57"));
                    let sign = |on: bool| if on { '+' } else { '-' };
                    let cpu = format!("{model},{}erms,{}la57", sign(erms), sign(five));
                    let guest = Guest {
                        name: format!("{}.{name}", cell.guest.name),
                        cpu: Some(cpu),
                        ..cell.guest.clone()
                    };
                    let measured = cell.tests.iter().filter(|test| test.measure.is_some());
                    out.push(Cell {
                        config: config.clone(),
                        guest,
                        tests: measured.cloned().collect(),
                        variation_of: Some(cell.id()),
                        ..cell.clone()
                    });
                }
            }
        }
    }
    out
}
