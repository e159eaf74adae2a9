// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which splats a series brought, which it took away, and which do not count.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::plan::manifest::{SplatAllowance, VariantName};
use crate::vm::splat::Splat;

/// What a splat means for the series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SplatVerdict {
    /// Only kernels with the series, or a part of it, have it.
    New,
    /// Only the base kernel has it.
    Gone,
    /// Both have it.
    Both,
    /// Only one variant was run, and it has it.
    Seen,
}

impl std::fmt::Display for SplatVerdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::New => "new",
            Self::Gone => "gone",
            Self::Both => "both",
            Self::Seen => "seen",
        })
    }
}

/// A splat over all boots of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplatRow {
    /// What it means for the series.
    pub verdict: SplatVerdict,
    /// Why it does not count, where the plan says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<String>,
    /// The variants that have it, where more than two were run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<VariantName>,
    /// The splat as the first boot had it.
    pub splat: Splat,
}

/// Compares the splats of `ran` variants by fingerprint, in the order of their
/// first appearance. With one variant only nothing is new or gone.
#[must_use]
pub fn compare(
    splats: &[(VariantName, Splat)],
    allow: &[SplatAllowance],
    ran: usize,
) -> Vec<SplatRow> {
    let mut seen: BTreeMap<&str, (usize, BTreeSet<VariantName>)> = BTreeMap::new();
    for (position, (variant, splat)) in splats.iter().enumerate() {
        let entry = seen.entry(&splat.fingerprint).or_insert((position, BTreeSet::new()));
        entry.1.insert(*variant);
    }
    let mut rows: Vec<(usize, BTreeSet<VariantName>)> = seen.into_values().collect();
    rows.sort();
    rows.into_iter()
        .map(|(position, variants)| {
            // A splat of a prefix alone came with the series, too.
            let with_series = variants.iter().any(|&variant| variant != VariantName::Base);
            let verdict = match (variants.contains(&VariantName::Base), with_series) {
                _ if ran < 2 => SplatVerdict::Seen,
                (true, true) => SplatVerdict::Both,
                (true, false) => SplatVerdict::Gone,
                (false, _) => SplatVerdict::New,
            };
            let splat = splats[position].1.clone();
            let allowed = allow
                .iter()
                .find(|entry| {
                    entry.pattern == splat.fingerprint || matches(&entry.pattern, &splat.title)
                })
                .map(|entry| entry.reason.clone());
            let variants = if ran > 2 { variants.into_iter().collect() } else { Vec::new() };
            SplatRow { verdict, allowed, variants, splat }
        })
        .collect()
}

/// Whether a pattern, in which `*` stands for any text, covers all of `text`.
#[must_use]
pub fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut text) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match text.find(part) {
            Some(at) => text = &text[at + part.len()..],
            None => return false,
        }
    }
    text.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::splat::scan;

    fn splat(function: &str) -> Splat {
        let log = format!(
            "------------[ cut here ]------------\nWARNING: CPU: 0 PID: 1 at mm/a.c:1 {function}+0x1/0x2\nRIP: 0010:{function}+0x1/0x2\nCall Trace:\n <TASK>\n {function}+0x1/0x2\n </TASK>\n---[ end trace 0000000000000000 ]---\n"
        );
        scan(log.as_bytes()).remove(0)
    }

    #[test]
    fn splats_are_new_gone_or_both() {
        let (base, patched) = (VariantName::Base, VariantName::Patched);
        let all =
            [(base, splat("f")), (base, splat("g")), (patched, splat("g")), (patched, splat("h"))];
        let allow = [SplatAllowance { pattern: "WARNING in h*".into(), reason: "known".into() }];
        let rows = compare(&all, &allow, 2);
        let verdicts: Vec<_> =
            rows.iter().map(|row| (row.verdict, row.allowed.is_some())).collect();
        assert_eq!(
            verdicts,
            [(SplatVerdict::Gone, false), (SplatVerdict::Both, false), (SplatVerdict::New, true)]
        );
    }

    #[test]
    fn a_splat_between_two_patches_is_new() {
        let all = [(VariantName::Patch(2), splat("f"))];
        let rows = compare(&all, &[], 4);
        assert_eq!(rows[0].verdict, SplatVerdict::New);
        assert_eq!(rows[0].variants, [VariantName::Patch(2)]);
    }

    #[test]
    fn stars_stand_for_any_text() {
        assert!(matches("WARNING in *", "WARNING in f"));
        assert!(matches("*deadlock*f", "possible deadlock in f"));
        assert!(!matches("WARNING in f", "WARNING in fg"));
        assert!(!matches("a*b*c", "abd"));
        assert!(matches("*", ""));
    }
}
