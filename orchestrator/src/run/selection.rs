// SPDX-License-Identifier: MIT OR Apache-2.0
//! What of a plan is run.

use std::num::NonZeroU16;

use serde::Serialize;

use crate::fault::Fault;
use crate::plan::manifest::VariantName;
use crate::plan::{Cell, Plan};

/// What of a plan is run.
#[derive(Debug, Clone, Serialize)]
pub struct Selection {
    /// Only tests of this name.
    pub test: Option<String>,
    /// Only these variants; all of the plan's when empty.
    pub variants: Vec<VariantName>,
    /// Images only.
    pub build_only: bool,
    /// A splat that both variants have is not acceptable either.
    pub strict: bool,
    /// Boots of each variant for each test; all must observe the same.
    pub boots: NonZeroU16,
    /// Every boot from power-on, none from a saved machine.
    pub cold: bool,
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            test: None,
            variants: Vec::new(),
            build_only: false,
            strict: false,
            boots: NonZeroU16::MIN,
            cold: false,
        }
    }
}

impl Selection {
    /// The variants of a cell that are chosen.
    #[must_use]
    pub fn variants_of(&self, cell: &Cell) -> Vec<VariantName> {
        let total = cell.series.patches.len();
        // The last prefix goes by the name of the whole.
        let same = |one: VariantName, other: VariantName| {
            one == other || (total > 0 && one.patches(total) == other.patches(total))
        };
        let wanted = |variant: &VariantName| {
            self.variants.is_empty() || self.variants.iter().any(|&chosen| same(chosen, *variant))
        };
        cell.variants.iter().copied().filter(wanted).collect()
    }

    /// Whether the plan has what is chosen.
    ///
    /// # Errors
    /// A `plan` fault that lists what it has.
    pub fn check(&self, plan: &Plan) -> Result<(), Fault> {
        if let Some(cell) = plan.cells.iter().find(|cell| self.variants_of(cell).is_empty()) {
            let names: Vec<String> = cell.variants.iter().map(ToString::to_string).collect();
            let what = format!("{} has none of the variants that --variant names", cell.id());
            return Err(Fault::plan(what).help(format!("its variants are: {}", names.join(", "))));
        }
        let Some(test) = &self.test else {
            return Ok(());
        };
        let mut names: Vec<&str> =
            plan.cells.iter().flat_map(|cell| &cell.tests).map(|test| test.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        if names.contains(&test.as_str()) {
            return Ok(());
        }
        Err(Fault::plan(format!("the plan {} has no test {test:?}", plan.name))
            .help(format!("its tests are: {}", names.join(", "))))
    }
}
