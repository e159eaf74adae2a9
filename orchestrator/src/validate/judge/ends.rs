// SPDX-License-Identifier: MIT OR Apache-2.0
//! Of a series' ends the patched one comes first: where nothing is wrong with it, nothing
//! is new, whatever base may say. Base is asked only what it would excuse.

use crate::compare::splats::{SplatRow, SplatVerdict};
use crate::run::result::{CellResult, RunResult};

/// Whether a run of one kernel shows nothing that another could excuse: no fault, and no
/// splat that is not allowed.
#[must_use]
pub fn is_clean(result: &RunResult) -> bool {
    let tests = || result.cells.iter().flat_map(|cell| &cell.tests);
    let splats = || result.cells.iter().flat_map(|cell| &cell.splats);
    result.faults.is_empty()
        && result.cells.iter().all(|cell| cell.faults.is_empty())
        && tests().all(|test| test.faults.is_empty())
        && splats().all(|row| row.allowed.is_some())
}

/// Whether its compiler had nothing to warn about.
#[must_use]
pub fn is_silent(result: &RunResult) -> bool {
    let mut variants = result.cells.iter().flat_map(|cell| cell.variants.values());
    variants.all(|one| one.build.warnings == Some(0))
}

/// A run of patched and one of base as one of both. Not of what they observed: that is
/// for runs of both.
#[must_use]
pub fn beside_base(mut patched: RunResult, base: RunResult) -> RunResult {
    patched.faults.extend(base.faults);
    for cell in base.cells {
        let same = |other: &&mut CellResult| other.guest == cell.guest;
        if let Some(found) = patched.cells.iter_mut().find(same) {
            join(found, cell);
        }
    }
    patched
}

fn join(patched: &mut CellResult, base: CellResult) {
    patched.variants.extend(base.variants);
    if !base.faults.is_empty() {
        // Nothing is known of base: what patched has is neither new nor old.
        patched.faults.extend(base.faults);
        patched.splats.clear();
        patched.tests.clear();
        return;
    }
    let mut images = patched.variants.values().map(|one| &one.image_sha256);
    // The same bytes: what only one of them shows, the other can show, too.
    patched.identical =
        images.next().is_some_and(|first| images.len() > 0 && images.all(|image| image == first));
    let mut of_base = base.splats;
    for row in &mut patched.splats {
        let before = of_base.len();
        of_base.retain(|other| other.splat.fingerprint != row.splat.fingerprint);
        let both = of_base.len() < before;
        row.verdict = if both { SplatVerdict::Both } else { SplatVerdict::New };
    }
    let gone = |row: SplatRow| SplatRow { verdict: SplatVerdict::Gone, ..row };
    patched.splats.extend(of_base.into_iter().map(gone));
    for test in base.tests {
        if let Some(found) = patched.tests.iter_mut().find(|found| found.name == test.name) {
            found.faults.extend(test.faults);
            found.skips.extend(test.skips);
        }
    }
}
