// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a series does not apply, as far as the source can tell: because it is in
//! already, in whole or in part; because it is for something else; or because
//! the source has moved.

use std::collections::BTreeSet;

use super::index::{Index, Problem};
use super::nearby::Nearby;
use super::{Tree, nearby, order, which};
use crate::fault::Fault;
use crate::host::process::check;
use crate::kernel::patch;
use crate::kernel::source::Source;
use crate::plan::manifest::Direction;
use crate::plan::{PatchFile, Series};

/// A series of which a patch was refused.
pub(super) struct Refused<'a> {
    pub(super) source: &'a Source,
    pub(super) series: &'a Series,
    pub(super) index: &'a Index,
    /// What the series was applied to.
    pub(super) base: &'a Tree,
    /// The patch.
    pub(super) at: usize,
}

impl Refused<'_> {
    pub(super) async fn fault(&self, problem: Problem) -> Fault {
        let patch = &self.series.patches[self.at];
        if let Problem::Refused(_) = &problem {
            if let Some(earlier) = self.repeats() {
                let (patches, at) = (&self.series.patches, self.at);
                let what =
                    format!("patch {} of {} repeats patch {}", at + 1, patches.len(), earlier + 1);
                return Fault::series(what)
                    .at(patch.path.display())
                    .evidence(&[named(earlier, patches), named(at, patches)].join("\n"))
                    .help("take one of them out of the series");
            }
            match self.already().await {
                Ok(found) if found.len() == self.series.patches.len() => {
                    return nothing_to_do(self.source, self.series);
                }
                Ok(found) if !found.is_empty() => return self.partly(&found),
                Ok(_) => {}
                Err(fault) => return fault,
            }
        }
        let stale = matches!(&problem, Problem::Refused(refusal) if refusal.is_stale());
        let mut what = problem.what(&self.source.origin);
        if matches!(problem, Problem::Refused(_)) {
            what = format!("{} {what}", which(self.at, &self.series.patches));
        }
        let fault = problem.into_fault(Fault::series(what).at(patch.path.display()));
        if !stale {
            return fault;
        }
        if let Some(foreign) = foreign(self.source, self.series, self.index, self.base).await {
            return fault.evidence(&foreign).help("is the series for another project?");
        }
        match nearby::search(self.source, self.series).await {
            Nearby::Unknown => fault,
            Nearby::Nowhere(words) => fault.evidence(&words),
            Nearby::At(words) => fault
                .evidence(&words)
                .help("rebase the series, or name that tag as the revision in the kernel's file"),
        }
    }

    /// The earlier patch with the same diff.
    fn repeats(&self) -> Option<usize> {
        let diff = |patch: &PatchFile| {
            let text = &patch.bytes;
            let begins = |mark: &[u8]| memchr::memmem::find(text, mark);
            let from = begins(b"\ndiff --git ").or_else(|| begins(b"\n--- a/"))?;
            // Without the signature, which names the version of git.
            let to = memchr::memmem::rfind(text, b"\n-- \n").unwrap_or(text.len());
            (from < to).then(|| text[from..to].to_vec())
        };
        let own = diff(&self.series.patches[self.at])?;
        self.series.patches[..self.at].iter().position(|patch| diff(patch).as_ref() == Some(&own))
    }

    /// The patches whose change the source holds (or, in reverse, lacks) already.
    async fn already(&self) -> Result<Vec<usize>, Fault> {
        let patches = &self.series.patches;
        let reverse = self.series.direction == Direction::Reverse;
        let order = order(patches.len(), reverse);
        // The longest run of first patches that can be undone together: patches
        // that build on each other cannot be undone one by one.
        for count in (1..=order.len()).rev() {
            self.index.read(&self.base.commit).await?;
            if self.undoes(&order[..count], !reverse).await? {
                // Beyond it, whatever can be undone alone.
                let mut found = order[..count].to_vec();
                self.index.read(&self.base.commit).await?;
                for &at in &order[count..] {
                    match self.index.apply(&patches[at], reverse).await {
                        Ok(_) => {}
                        Err(_) if self.index.fits(&patches[at], !reverse).await => found.push(at),
                        Err(_) => break,
                    }
                }
                return Ok(found);
            }
        }
        let mut found = Vec::new();
        self.index.read(&self.base.commit).await?;
        for &at in &order {
            match self.index.apply(&patches[at], reverse).await {
                Ok(_) => {}
                Err(_) if self.index.fits(&patches[at], !reverse).await => found.push(at),
                Err(_) => break,
            }
        }
        Ok(found)
    }

    async fn undoes(&self, order: &[usize], reverse: bool) -> Result<bool, Fault> {
        for &at in order.iter().rev() {
            match self.index.apply(&self.series.patches[at], reverse).await {
                Ok(_) => {}
                Err(Problem::Host(fault)) => return Err(fault),
                Err(_) => return Ok(false),
            }
        }
        Ok(true)
    }

    fn partly(&self, found: &[usize]) -> Fault {
        let (patches, origin) = (&self.series.patches, &self.source.origin);
        let count = match (found.len(), patches.len()) {
            (1, total) => format!("1 of {total} patches is"),
            (count, total) => format!("{count} of {total} patches are"),
        };
        let lines: Vec<String> = found.iter().map(|&at| named(at, patches)).collect();
        let (what, help) = match self.series.direction {
            Direction::Forward => (
                format!("{count} in {origin} already"),
                "take them out of the series, or vet it on a source without them",
            ),
            Direction::Reverse => (
                format!("{count} not in {origin}, so the series cannot be taken out"),
                "leave them out of the series, or vet it on a source that has all of it",
            ),
        };
        let place = patches[found[0]].path.display();
        Fault::series(what).at(place).evidence(&lines.join("\n")).help(help)
    }
}

fn named(at: usize, patches: &[PatchFile]) -> String {
    let patch = &patches[at];
    let subject = patch.subject.as_ref().map_or(String::new(), |subject| format!(" ({subject})"));
    format!("{} of {}: {}{subject}", at + 1, patches.len(), patch.name)
}

fn nothing_to_do(source: &Source, series: &Series) -> Fault {
    let (what, help) = match series.direction {
        Direction::Forward => (
            format!("{} already holds the series {}", source.origin, series.name),
            "set `direction: reverse` for this kernel in series.yaml to vet it by taking it out",
        ),
        Direction::Reverse => (
            format!(
                "{} does not hold the series {}, so it cannot be taken out",
                source.origin, series.name
            ),
            "set `direction: forward` for this kernel in series.yaml",
        ),
    };
    Fault::series(what).help(help).nothing_to_do()
}

/// Refuses a series that changes nothing under the kernel's tree although it
/// applies: all that it does is to make files elsewhere.
pub(super) async fn check_belongs(
    source: &Source,
    series: &Series,
    index: &Index,
    base: &Tree,
) -> Result<(), Fault> {
    match foreign(source, series, index, base).await {
        Some(evidence) => Err(Fault::series(format!(
            "the series {} changes nothing under the kernel's tree",
            series.name
        ))
        .evidence(&evidence)
        .help("is the series for another project?")),
        None => Ok(()),
    }
}

/// Words about a series none of whose files is in a folder that the source has.
async fn foreign(source: &Source, series: &Series, index: &Index, base: &Tree) -> Option<String> {
    let tops = check(index.git().args(["ls-tree", "--name-only", &base.commit]), b"").await.ok()?;
    let tops = tops.text();
    let known: BTreeSet<&str> = tops.lines().collect();
    let files: BTreeSet<String> =
        series.patches.iter().flat_map(|patch| patch::files(&patch.bytes, patch.strip)).collect();
    let inside = |file: &String| known.contains(file.split('/').next().unwrap_or(file));
    if files.is_empty() || files.iter().any(inside) {
        return None;
    }
    let shown: Vec<&str> = files.iter().take(6).map(String::as_str).collect();
    Some(format!(
        "it touches {}{}, of which {} has nothing",
        shown.join(", "),
        if files.len() > shown.len() { ", ..." } else { "" },
        source.origin
    ))
}
