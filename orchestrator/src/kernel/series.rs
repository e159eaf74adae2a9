// SPDX-License-Identifier: MIT OR Apache-2.0
//! Applies patches to a source, exactly and in order, inside the object store of
//! its repository: no work tree is touched, and nothing is half applied.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::source::Source;
use super::{git, patch};
use crate::fault::Fault;
use crate::host::process::{capture, check};
use crate::plan::manifest::{Direction, VariantName};
use crate::plan::{PatchFile, Series};
use crate::store::{Store, key, write_atomically};

/// Changes to how trees are made from patches change this.
const RECIPE: &str = "apply/1";

/// A variant's tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// Commit that holds it.
    pub commit: String,
    /// Its id: equal trees have equal ids, whatever led to them.
    pub tree: String,
}

/// The trees of a series' variants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trees {
    /// One for each variant.
    pub variants: BTreeMap<VariantName, Tree>,
}

/// Makes the trees of a series' variants.
///
/// # Errors
/// A `series` fault with file, hunk and reason where a patch does not apply; a
/// `plan` fault where a prerequisite does not.
pub async fn apply(source: &Source, series: &Series, store: &Store) -> Result<Trees, Fault> {
    let direction = format!("{:?}", series.direction);
    let mut parts: Vec<&[u8]> =
        vec![RECIPE.as_bytes(), source.commit.as_bytes(), direction.as_bytes()];
    for set in &series.prerequisites {
        parts.push(b"prerequisites");
        parts.extend(set.patches.iter().map(|patch| patch.bytes.as_slice()));
    }
    parts.push(b"series");
    parts.extend(series.patches.iter().map(|patch| patch.bytes.as_slice()));
    let file = store.path("applied", &format!("{}.json", key(parts)));
    if let Some(trees) = read(&file, source).await {
        return Ok(trees);
    }
    let trees = apply_now(source, series, store).await?;
    write_atomically(&file, &crate::report::json::pretty(&trees))?;
    Ok(trees)
}

async fn read(file: &Path, source: &Source) -> Option<Trees> {
    let trees: Trees = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    for tree in trees.variants.values() {
        if !git::has_object(&source.git_dir, &tree.commit).await {
            return None;
        }
    }
    Some(trees)
}

async fn apply_now(source: &Source, series: &Series, store: &Store) -> Result<Trees, Fault> {
    let scratch = store.scratch()?;
    let index = Index { git_dir: &source.git_dir, file: &scratch.path().join("index") };
    index.read(&source.commit).await?;
    let mut base = Tree { commit: source.commit.clone(), tree: source.tree.clone() };
    for set in &series.prerequisites {
        for patch in &set.patches {
            index.apply(patch, false).await.map_err(|problem| {
                let what = format!("prerequisite {}: {}", set.name, problem.what(source));
                problem.into_fault(Fault::plan(what).at(patch.path.display()))
            })?;
        }
        base = index.commit(&base.commit, &format!("prerequisite {}", set.name)).await?;
    }
    let reverse = series.direction == Direction::Reverse;
    match index.apply_all(&series.patches, reverse).await {
        Ok(()) => {}
        Err((patch, problem)) => {
            index.read(&base.commit).await?;
            if index.apply_all(&series.patches, !reverse).await.is_ok() {
                return Err(nothing_to_do(source, series));
            }
            let what = problem.what(source);
            return Err(problem.into_fault(Fault::series(what).at(patch.path.display())));
        }
    }
    let changed = index.commit(&base.commit, &format!("series {}", series.name)).await?;
    let (base, patched) = if reverse { (changed, base) } else { (base, changed) };
    Ok(Trees { variants: [(VariantName::Base, base), (VariantName::Patched, patched)].into() })
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

/// A private index on the source's repository.
struct Index<'a> {
    git_dir: &'a Path,
    file: &'a Path,
}

impl Index<'_> {
    fn git(&self) -> tokio::process::Command {
        let mut git = git::git(self.git_dir);
        git.env("GIT_INDEX_FILE", self.file);
        git
    }

    async fn read(&self, commit: &str) -> Result<(), Fault> {
        check(self.git().args(["read-tree", commit]), b"").await.map(drop)
    }

    /// Applies all patches, in reverse order where they are taken out; the
    /// first that does not apply ends it.
    async fn apply_all<'a>(
        &self,
        patches: &'a [PatchFile],
        reverse: bool,
    ) -> Result<(), (&'a PatchFile, Problem)> {
        let mut order: Vec<&PatchFile> = patches.iter().collect();
        if reverse {
            order.reverse();
        }
        for patch in order {
            self.apply(patch, reverse).await.map_err(|problem| (patch, problem))?;
        }
        Ok(())
    }

    async fn apply(&self, patch: &PatchFile, reverse: bool) -> Result<(), Problem> {
        match patch::check(&patch.bytes) {
            Ok(true) => {}
            // `git am --allow-empty` takes such a mail too; equal trees show in the verdict.
            Ok(false) => return Ok(()),
            Err(damage) => return Err(Problem::Damaged(damage)),
        }
        let mut git = self.git();
        git.args(["apply", "--cached", "--verbose", "--whitespace=nowarn"]);
        if reverse {
            git.arg("--reverse");
        }
        let output = capture(git.arg("-"), &patch.bytes).await.map_err(Problem::Host)?;
        if !output.status.success() {
            let mut refusal = Refusal::parse(&output.stderr);
            refusal.found = self.found(&refusal).await;
            return Err(Problem::Refused(Box::new(refusal)));
        }
        Ok(())
    }

    /// The lines of the tree where a hunk was to apply.
    async fn found(&self, refusal: &Refusal) -> Vec<String> {
        let (Some(file), Some(line)) = (&refusal.file, refusal.line) else {
            return Vec::new();
        };
        let output = capture(self.git().args(["show", &format!(":{file}")]), b"").await;
        let Ok(output) = output else {
            return Vec::new();
        };
        let text = String::from_utf8_lossy(&output.stdout);
        let count = refusal.searched.len().clamp(1, MAX_SHOWN_LINES);
        text.lines().skip(line.saturating_sub(1)).take(count).map(str::to_owned).collect()
    }

    async fn commit(&self, parent: &str, message: &str) -> Result<Tree, Fault> {
        let tree = check(self.git().arg("write-tree"), b"").await?.text();
        let mut git = self.git();
        git.args(["commit-tree", "-p", parent, "-m", message, &tree]);
        Ok(Tree { commit: check(&mut git, b"").await?.text(), tree })
    }
}

/// Most lines of a hunk that a message shows.
const MAX_SHOWN_LINES: usize = 12;

enum Problem {
    Host(Fault),
    Refused(Box<Refusal>),
    Damaged(patch::Damage),
}

impl Problem {
    fn what(&self, source: &Source) -> String {
        match self {
            Self::Host(fault) => fault.what.clone(),
            Self::Damaged(damage) => format!("line {}: {}", damage.line, damage.what),
            Self::Refused(refusal) => {
                format!("does not apply to {}: {}", source.origin, refusal.what())
            }
        }
    }

    fn into_fault(self, fault: Fault) -> Fault {
        match self {
            Self::Host(fault) => fault,
            Self::Damaged(damage) => fault.help(damage.help),
            Self::Refused(refusal) => fault
                .evidence(&refusal.evidence())
                .help("rebase the series on this source; the kernel's version may have moved"),
        }
    }
}

/// Why `git apply --verbose` refused a patch.
#[derive(Debug, Default, PartialEq, Eq)]
struct Refusal {
    /// The first file that it refused.
    file: Option<String>,
    /// The line at which the refused hunk starts in the file before the patch.
    line: Option<usize>,
    /// The lines that the hunk looks for.
    searched: Vec<String>,
    /// The lines that are there instead.
    found: Vec<String>,
    /// git's own words, without `error: `.
    reason: String,
}

impl Refusal {
    fn parse(stderr: &str) -> Self {
        let mut refusal = Self::default();
        let mut lines = stderr.lines().peekable();
        while let Some(line) = lines.next() {
            let Some(error) = line.strip_prefix("error: ") else {
                continue;
            };
            if error == "while searching for:" {
                refusal.searched.clear();
                while let Some(next) = lines.next_if(|next| !next.starts_with("error: ")) {
                    refusal.searched.push(next.to_owned());
                }
                if refusal.searched.last().is_some_and(String::is_empty) {
                    refusal.searched.pop();
                }
            } else if let Some(place) = error.strip_prefix("patch failed: ") {
                if let Some((file, line)) = place.rsplit_once(':') {
                    refusal.file = Some(file.to_owned());
                    refusal.line = line.parse().ok();
                }
            } else {
                refusal.reason = error.to_owned();
                if refusal.file.is_none() {
                    refusal.file = error.split_once(": ").map(|(file, _)| file.to_owned());
                }
                break;
            }
        }
        refusal
    }

    fn what(&self) -> String {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => format!("the hunk at {file}:{line} does not match"),
            _ if self.reason.is_empty() => "git gave no reason".to_owned(),
            _ => self.reason.clone(),
        }
    }

    fn evidence(&self) -> String {
        let mut out = String::new();
        let mut block = |title: &str, lines: &[String]| {
            if lines.is_empty() {
                return;
            }
            let _ = writeln!(out, "{title}");
            for line in lines.iter().take(MAX_SHOWN_LINES) {
                let _ = writeln!(out, "  | {line}");
            }
            if lines.len() > MAX_SHOWN_LINES {
                let _ = writeln!(out, "  | ... {} lines more", lines.len() - MAX_SHOWN_LINES);
            }
        };
        block("the hunk expects:", &self.searched);
        block("the source has there:", &self.found);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_refused_hunk_is_read_from_gits_words() {
        let stderr = "Checking patch mm/madvise.c...\nerror: while searching for:\n\ttlb_finish_mmu(&tlb);\n\n\treturn 0;\n\nerror: patch failed: mm/madvise.c:608\nerror: mm/madvise.c: patch does not apply\n";
        let refusal = Refusal::parse(stderr);
        assert_eq!(refusal.file.as_deref(), Some("mm/madvise.c"));
        assert_eq!(refusal.line, Some(608));
        assert_eq!(refusal.searched, ["\ttlb_finish_mmu(&tlb);", "", "\treturn 0;"]);
        assert_eq!(refusal.what(), "the hunk at mm/madvise.c:608 does not match");
    }

    #[test]
    fn a_missing_file_and_a_damaged_patch_are_told_in_gits_words() {
        let missing = Refusal::parse("error: mm/none.c: does not exist in index\n");
        assert_eq!(missing.file.as_deref(), Some("mm/none.c"));
        assert_eq!(missing.what(), "mm/none.c: does not exist in index");
        let damaged = Refusal::parse("error: corrupt patch at line 12\n");
        assert_eq!(damaged.what(), "corrupt patch at line 12");
    }

    proptest! {
        #[test]
        fn no_answer_of_git_makes_the_reader_panic(text in "(error: |while searching for:|patch failed: |[a-z:0-9\n]){0,20}") {
            let refusal = Refusal::parse(&text);
            let _ = (refusal.what(), refusal.evidence());
        }
    }
}
