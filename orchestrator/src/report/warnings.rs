// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the compiler warns of, variant for variant, as lines of the report.

use crate::compare::warnings::WarningChange;
use crate::fault::escape;
use crate::kernel::warning::Warning;
use crate::run::result::CellResult;

/// Most warnings that are shown of a kind; result.json has more.
const MAX_SHOWN: usize = 10;

/// The lines; none where nothing differs.
pub(super) fn lines(cell: &CellResult) -> Vec<String> {
    let mut out = Vec::new();
    let unknown: Vec<String> = cell
        .variants
        .iter()
        .filter(|(_, built)| built.build.warnings.is_none())
        .map(|(name, _)| name.to_string())
        .collect();
    if !unknown.is_empty() && unknown.len() < cell.variants.len() {
        out.push(format!(
            "  compiler warnings not compared: those of {} were not kept",
            unknown.join(", ")
        ));
    }
    for change in cell.warnings.iter().filter(|change| !change.is_none()) {
        lines_of(change, &mut out);
    }
    out
}

fn lines_of(change: &WarningChange, out: &mut Vec<String>) {
    let WarningChange { from, to, introduced, fixed, moved, left_out, .. } = change;
    let mut counts = Vec::new();
    for (count, what) in
        [(introduced.len(), "introduced"), (fixed.len(), "fixed"), (moved.len(), "moved")]
    {
        if count > 0 {
            counts.push(format!("{count} {what}"));
        }
    }
    if *left_out > 0 {
        counts.push(format!("{left_out} more"));
    }
    out.push(format!("  compiler warnings, {from} to {to}: {}", counts.join(", ")));
    list("+", introduced, out);
    list("-", fixed, out);
    for pair in moved.iter().take(MAX_SHOWN) {
        let line = format!("    ~ {} is now {}", pair.from, pair.to.identity.file);
        let function = pair.to.identity.function.as_deref();
        let place = function.map_or(String::new(), |function| format!(": {function}"));
        out.push(escape(&format!("{line}{place}")));
    }
}

fn list(sign: &str, warnings: &[Warning], out: &mut Vec<String>) {
    for warning in warnings.iter().take(MAX_SHOWN) {
        out.push(format!("    {sign} {}", escape(&warning.to_string())));
    }
    if warnings.len() > MAX_SHOWN {
        out.push(format!("    {sign} ... {} more", warnings.len() - MAX_SHOWN));
    }
}
