// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which patch brought what the ends show: prefixes are built and booted in the config
//! and guest that showed it, as few as it takes.

use super::Driver;
use super::checkpatch::Checkpatch;
use super::judge::Symptom;
use super::prefix::first_bad;
use super::result::Finding;
use crate::fault::{ExitCode, Fault};
use crate::plan::Plan;
use crate::plan::manifest::VariantName;
use crate::run::pipeline::{Boot, Build, Selection};
use crate::run::result::RunResult;

/// Symptoms that are looked for in the prefixes; one bug often has several, and the
/// boots of one find most of the others, too.
const MAX_SOUGHT: usize = 3;
/// Symptoms that are named.
const MAX_NAMED: usize = 8;

impl<B: Build, V: Boot, C: Checkpatch> Driver<'_, B, V, C> {
    /// The finding of symptoms, the first with its patch. `symptoms` has one or more.
    pub(super) async fn attribute(
        &self,
        folder: &str,
        plan: &Plan,
        symptoms: &[Symptom],
        runs: &mut Vec<String>,
    ) -> Result<Finding, Fault> {
        let subjects = self.subjects();
        let mut found: Vec<(Option<usize>, String)> = Vec::new();
        for symptom in symptoms.iter().take(MAX_SOUGHT) {
            let culprit = first_bad(subjects.len(), async |at| {
                let probe = self.probe(folder, plan, symptom, at, runs).await?;
                Ok(symptom.is_in(&probe))
            });
            let culprit = culprit.await?;
            let words = format!(
                "{}, guest {}, {}",
                symptom.words(),
                symptom.guest(),
                culprit.words(&subjects)
            );
            found.push((culprit.patch(), words));
        }
        let beyond = symptoms.iter().skip(MAX_SOUGHT).take(MAX_NAMED - MAX_SOUGHT);
        found.extend(beyond.map(|one| (None, format!("{}, guest {}", one.words(), one.guest()))));
        let code = ExitCode::worst(symptoms.iter().map(Symptom::exit_code));
        let (patch, words) = found.remove(0);
        let more = symptoms.len() - 1;
        let and = if more > 0 { format!(", and {more} more") } else { String::new() };
        Ok(Finding::failed(code, words + &and)
            .with(found.into_iter().map(|(_, words)| words))
            .at_patch(patch))
    }

    /// A run of one prefix in the symptom's guest, made once.
    async fn probe(
        &self,
        folder: &str,
        plan: &Plan,
        symptom: &Symptom,
        at: usize,
        runs: &mut Vec<String>,
    ) -> Result<RunResult, Fault> {
        let total = self.validation.cell.series.patches.len();
        let variant = VariantName::prefix(at, total);
        let guest = symptom.guest();
        let mut plan = plan.clone();
        plan.cells.retain(|cell| cell.guest.name == guest);
        let mut name = format!("{folder}-{guest}-{variant}");
        if let Symptom::Metric { test, .. } = symptom {
            name = format!("{folder}-{guest}-{test}-{variant}");
            // A count has no noise, and the first phase's is compared with the ends'.
            plan.instructions.phases = 1;
            for cell in &mut plan.cells {
                cell.tests.retain(|found| found.id() == *test);
            }
        }
        for cell in &mut plan.cells {
            cell.variants = vec![variant];
        }
        if let Some(known) = self.probes.borrow().get(&name) {
            return Ok(known.clone());
        }
        let result = self.sub(&name, &plan, &Selection::default(), runs).await?;
        self.probes.borrow_mut().insert(name, result.clone());
        Ok(result)
    }
}
