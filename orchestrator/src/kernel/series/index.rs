// SPDX-License-Identifier: MIT OR Apache-2.0
//! A private index on a source's repository, and patches applied to it.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::refusal::Refusal;
use super::{MovedHunk, Tree};
use crate::fault::Fault;
use crate::host::clone::UserClone;
use crate::host::process::{capture, check};
use crate::kernel::{git, patch};
use crate::plan::PatchFile;

/// A private index on a source's repository.
pub(super) struct Index {
    git_dir: PathBuf,
    file: PathBuf,
    lender: Option<UserClone>,
}

/// Why a patch was not applied.
pub(super) enum Problem {
    Host(Fault),
    Refused(Box<Refusal>),
    Damaged(patch::Damage),
    /// git took fewer changes than the patch holds.
    Partial(String),
}

impl Problem {
    pub(super) fn what(&self, origin: &str) -> String {
        match self {
            Self::Host(fault) => fault.what.clone(),
            Self::Damaged(damage) => format!("line {}: {}", damage.line, damage.what),
            Self::Partial(what) => what.clone(),
            Self::Refused(refusal) => {
                format!("does not apply to {origin}: {}", refusal.what())
            }
        }
    }

    pub(super) fn into_fault(self, fault: Fault) -> Fault {
        match self {
            Self::Host(fault) => fault,
            Self::Damaged(damage) => fault.help(damage.help),
            Self::Partial(_) => fault.help("take the patch from its source again"),
            Self::Refused(refusal) => fault.evidence(&refusal.evidence()).help(refusal.help()),
        }
    }
}

impl Index {
    pub(super) fn new(git_dir: &Path, file: &Path) -> Self {
        Self { git_dir: git_dir.to_owned(), file: file.to_owned(), lender: None }
    }

    /// An index that sees a clone's objects, too.
    pub(super) fn borrowing(git_dir: &Path, file: &Path, clone: &UserClone) -> Self {
        Self { lender: Some(clone.clone()), ..Self::new(git_dir, file) }
    }

    pub(super) fn git(&self) -> Command {
        let mut git = git::git(&self.git_dir);
        git.env("GIT_INDEX_FILE", &self.file);
        if let Some(clone) = &self.lender {
            clone.lend_objects(&mut git);
        }
        git
    }

    pub(super) async fn read(&self, commit: &str) -> Result<(), Fault> {
        check(self.git().args(["read-tree", commit]), b"").await.map(drop)
    }

    /// Applies a patch, or takes it out; the hunks that applied elsewhere.
    pub(super) async fn apply(
        &self,
        patch: &PatchFile,
        reverse: bool,
    ) -> Result<Vec<MovedHunk>, Problem> {
        let content = match patch::check(&patch.bytes) {
            Ok(Some(content)) => content,
            // `git am --allow-empty` takes such a mail too; equal trees show in the verdict.
            Ok(None) => return Ok(Vec::new()),
            Err(damage) => return Err(Problem::Damaged(damage)),
        };
        self.check_whole(patch, content).await?;
        let output = self.git_apply(patch, reverse, &["--cached"]).await?;
        let mut moved = moved_hunks(&output, &patch.name);
        if !moved.is_empty() {
            // What a hunk looks for is gone where it applied; another place is left.
            let ambiguous = self.git_apply(patch, reverse, &["--cached", "--check"]).await.is_ok();
            moved.iter_mut().for_each(|hunk| hunk.ambiguous = ambiguous);
        }
        Ok(moved)
    }

    /// Whether the patch would apply.
    pub(super) async fn fits(&self, patch: &PatchFile, reverse: bool) -> bool {
        match patch::check(&patch.bytes) {
            Ok(Some(_)) => self.git_apply(patch, reverse, &["--cached", "--check"]).await.is_ok(),
            Ok(None) => true,
            Err(_) => false,
        }
    }

    async fn git_apply(
        &self,
        patch: &PatchFile,
        reverse: bool,
        how: &[&str],
    ) -> Result<String, Problem> {
        let mut git = self.git();
        git.args(["apply", "--verbose", "--whitespace=nowarn", &strip(patch)]).args(how);
        if reverse {
            git.arg("--reverse");
        }
        let output = capture(git.arg("-"), &patch.bytes).await.map_err(Problem::Host)?;
        if output.status.success() {
            return Ok(output.stderr);
        }
        let mut refusal = Refusal::parse(&output.stderr);
        if let (Some(file), Some(_)) = (&refusal.file, refusal.line) {
            let show = capture(self.git().args(["show", &format!(":{file}")]), b"").await;
            let show = show.map_err(Problem::Host)?;
            refusal.compare(&String::from_utf8_lossy(&show.stdout));
        }
        Err(Problem::Refused(Box::new(refusal)))
    }

    /// git passes over what it does not take for a part of a diff: what it would
    /// change has to be what the patch says.
    async fn check_whole(&self, patch: &PatchFile, content: patch::Content) -> Result<(), Problem> {
        let mut git = self.git();
        let output =
            capture(git.args(["apply", "--numstat", "-z", &strip(patch), "-"]), &patch.bytes)
                .await
                .map_err(Problem::Host)?;
        if !output.status.success() {
            return Err(Problem::Refused(Box::new(Refusal::parse(&output.stderr))));
        }
        let (mut files, mut added, mut removed) = (0, 0, 0);
        // ADDED TAB REMOVED TAB PATH; `-` for both of a binary file.
        for entry in output.stdout.split(|&byte| byte == 0).filter(|entry| !entry.is_empty()) {
            let entry = String::from_utf8_lossy(entry);
            let mut fields = entry.splitn(3, '\t');
            let mut count =
                || fields.next().and_then(|field| field.parse::<usize>().ok()).unwrap_or(0);
            files += 1;
            added += count();
            removed += count();
        }
        if (files, added, removed) == (content.files, content.added, content.removed) {
            return Ok(());
        }
        Err(Problem::Partial(format!(
            "git takes only a part of the patch: {files} file(s), {added} lines added and {removed} \
             removed of {}, {} and {}",
            content.files, content.added, content.removed
        )))
    }

    pub(super) async fn commit(&self, parent: &str, message: &str) -> Result<Tree, Fault> {
        let tree = check(self.git().arg("write-tree"), b"").await?.text();
        let mut git = self.git();
        git.args(["commit-tree", "-p", parent, "-m", message, &tree]);
        Ok(Tree { commit: check(&mut git, b"").await?.text(), tree })
    }
}

fn strip(patch: &PatchFile) -> String {
    format!("-p{}", patch.strip)
}

/// Reads `Hunk #2 succeeded at 40 (offset -3 lines).` below `Checking patch
/// mm/a.c...` (git's apply.c).
fn moved_hunks(stderr: &str, patch: &str) -> Vec<MovedHunk> {
    let mut moved: Vec<MovedHunk> = Vec::new();
    let mut file = "";
    for line in stderr.lines() {
        if let Some(name) = line.strip_prefix("Checking patch ") {
            // `old => new` for a renamed file.
            let name = name.trim_end_matches("...");
            file = name.rsplit_once(" => ").map_or(name, |(_, new)| new);
        }
        let hunk = || {
            let (hunk, rest) = line.strip_prefix("Hunk #")?.split_once(" succeeded at ")?;
            let (line, offset) = rest.split_once(" (offset ")?;
            let offset = offset.split(' ').next()?;
            Some((hunk.parse().ok()?, line.parse().ok()?, offset.parse().ok()?))
        };
        if let Some((hunk, line, offset)) = hunk() {
            let (patch, file) = (patch.to_owned(), file.to_owned());
            moved.push(MovedHunk { patch, file, hunk, line, offset, ambiguous: false });
        }
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hunks_that_applied_elsewhere_are_read_from_gits_words() {
        let stderr = "Checking patch mm/a.c...\nHunk #1 succeeded at 12 (offset 3 lines).\nHunk #3 succeeded at 40 (offset -1 line).\nApplied patch mm/a.c cleanly.\n";
        let moved = moved_hunks(stderr, "p");
        let found: Vec<_> = moved.iter().map(|hunk| (hunk.hunk, hunk.line, hunk.offset)).collect();
        assert_eq!(found, [(1, 12, 3), (3, 40, -1)]);
        assert!(moved.iter().all(|hunk| hunk.file == "mm/a.c"));
    }

    proptest! {
        #[test]
        fn no_words_make_the_reader_panic(text in "(Checking patch |Hunk #| succeeded at |[(]offset |[0-9-]{1,12}|\n){0,20}") {
            let _ = moved_hunks(&text, "p");
        }
    }
}
