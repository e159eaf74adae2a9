// SPDX-License-Identifier: MIT OR Apache-2.0
//! Revisions of the user's clones. The objects of a revision are copied into a
//! repository of the store, so that nothing of the clone is needed later and
//! nothing in it is ever written.

use std::path::{Path, PathBuf};

use super::{Imported, Source, Steps};
use crate::fault::Fault;
use crate::host::clone::UserClone;
use crate::host::process::check;
use crate::kernel::git;
use crate::plan::manifest::GitEntry;
use crate::store::{Store, key};

/// Most changed files that a message names.
const MAX_NAMED: usize = 8;

/// What is done with changes of the work tree on top of the revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkTree {
    /// They are a mistake.
    Refuse,
    /// They are taken, too.
    Take,
    /// They are not looked at.
    Leave,
}

/// A revision's tree, with the changes of the work tree when these are to be taken.
///
/// # Errors
/// A `plan` fault when there is no such revision, or when the work tree holds
/// changes on top of it that are refused; an `infra` fault when git fails.
pub(super) async fn prepare(
    entry: &GitEntry,
    work_tree: WorkTree,
    store: &Store,
    steps: &Steps<'_>,
) -> Result<Source, Fault> {
    let clone = UserClone::open(&entry.repository)?;
    let revision = clone.commit(&entry.revision)?;
    let format = clone.object_format()?;
    let key = format!("git-{}", key([clone.common_dir().as_os_str().as_encoded_bytes()]));
    let _lock = store.lock("sources", &key, steps.events).await?;
    let place = store.path("sources", &key);
    if !place.exists() {
        let scratch = store.scratch()?;
        let entry = scratch.path().join("entry");
        git::init(&entry.join("git"), &format).await?;
        store.publish(&entry, "sources", &key)?;
    }
    let mirror = Mirror { clone: &clone, git_dir: place.join("git") };
    let mut tree = mirror.tree_of(&revision).await?;
    let mut origin = format!("{} {}", clone.name(), entry.revision);
    let short = &revision[..12.min(revision.len())];
    if !entry.revision.starts_with(short) {
        origin.push_str(&format!(" ({short})"));
    }
    mirror.copy(&tree, steps).await?;
    let dirty = work_tree == WorkTree::Take;
    let changes = match work_tree {
        WorkTree::Leave => None,
        _ => mirror.changes(&revision, &tree, dirty, store).await?,
    };
    if let Some(changes) = changes {
        if !dirty {
            return Err(changes.refusal(&clone, entry));
        }
        tree = changes.tree;
        origin.push_str(&format!(" with {} changed file(s) of its work tree", changes.files.len()));
        if changes.untracked > 0 {
            origin.push_str(&format!(
                ", without {} file(s) that git does not track",
                changes.untracked
            ));
        }
        mirror.copy(&tree, steps).await?;
    }
    let at = |fault: Fault| fault.at(format!("{} {}", clone.path().display(), entry.revision));
    let imported = Imported::read(&mirror.git_dir, tree).await.map_err(at)?;
    let source = imported.source(&key, origin, None);
    Ok(Source { clone: Some(clone), ..source })
}

/// Uncommitted changes on top of a revision.
struct Changes {
    tree: String,
    files: Vec<String>,
    /// Number of files that git neither tracks nor ignores, which are left out.
    untracked: usize,
}

impl Changes {
    fn refusal(&self, clone: &UserClone, entry: &GitEntry) -> Fault {
        let count = self.files.len();
        let mut names: Vec<&str> = self.files.iter().take(MAX_NAMED).map(String::as_str).collect();
        let more = format!("... {} more", count.saturating_sub(MAX_NAMED));
        if count > MAX_NAMED {
            names.push(&more);
        }
        Fault::plan(format!(
            "the work tree is at {} and has uncommitted changes in {count} file(s)",
            entry.revision
        ))
        .at(clone.path().display())
        .evidence(&names.join("\n"))
        .help("commit or stash them; --dirty takes them into the source and says so, without files that git does not track")
    }
}

/// The repository of the store that gets a clone's objects.
struct Mirror<'a> {
    clone: &'a UserClone,
    git_dir: PathBuf,
}

impl Mirror<'_> {
    /// git on the mirror, which sees the clone's objects, too.
    fn git(&self) -> tokio::process::Command {
        let mut git = git::git(&self.git_dir);
        self.clone.lend_objects(&mut git);
        git
    }

    async fn tree_of(&self, commit: &str) -> Result<String, Fault> {
        let mut git = self.git();
        git.args(["rev-parse", "--verify", &format!("{commit}^{{tree}}")]);
        Ok(check(&mut git, b"").await?.text())
    }

    /// Copies a tree and all below it, unless it was copied before.
    async fn copy(&self, tree: &str, steps: &Steps<'_>) -> Result<(), Fault> {
        let done = format!("refs/heads/source-{tree}");
        if git::run(&self.git_dir, ["rev-parse", "--verify", "--quiet", &done]).await.is_ok() {
            return Ok(());
        }
        steps.say("copy from the clone");
        let known = git::run(&self.git_dir, ["for-each-ref", "--format=%(tree)"]).await?;
        let packs = self.git_dir.join("objects/pack");
        for entry in std::fs::read_dir(&packs).into_iter().flatten().flatten() {
            // A killed git leaves these; the lock says that nobody else is at work.
            if entry.file_name().to_string_lossy().starts_with("tmp_") {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        let mut pack = self.git();
        // Searching for deltas costs more time than it saves space here.
        pack.args(["pack-objects", "--quiet", "--window=0"]);
        let help = "`git fsck` in the clone says what it lacks; a partial clone cannot be used";
        let wanted = match known.lines().next() {
            Some(known) => self.lacking(known, tree).await.map_err(|fault| fault.help(help))?,
            None => {
                pack.arg("--revs");
                format!("{tree}\n")
            }
        };
        if !wanted.is_empty() {
            let packed = check(pack.arg(packs.join("pack")), wanted.as_bytes()).await;
            packed.map_err(|fault| fault.help(help))?;
        }
        git::commit_alone(&self.git_dir, tree).await?;
        steps.say("ready");
        Ok(())
    }

    /// The objects of `tree` that the mirror lacks, one id a line; it has all of `known`.
    /// Between two revisions this looks at what differs, where git would walk all of both.
    async fn lacking(&self, known: &str, tree: &str) -> Result<String, Fault> {
        let mut diff = self.git();
        diff.args(["diff-tree", "-r", "-t", "--raw", "--no-abbrev", "--no-renames", "-z"]);
        let output = check(diff.args([known, tree]), b"").await?;
        let mut ids = format!("{tree}\n");
        // `:MODE MODE ID ID STATUS`, then the name.
        for pair in output.stdout.split(|&byte| byte == 0).collect::<Vec<_>>().chunks_exact(2) {
            let words = String::from_utf8_lossy(pair[0]).into_owned();
            let words: Vec<&str> = words.split(' ').collect();
            let [_, mode, _, id, _] = words[..] else { continue };
            // Neither what is gone nor the commit of a submodule.
            if mode != "160000" && id.bytes().any(|byte| byte != b'0') {
                ids.push_str(id);
                ids.push('\n');
            }
        }
        // Of the mirror alone, without what the clone lends.
        let mut have = git::git(&self.git_dir);
        have.args(["cat-file", "--batch-check=%(objectname)"]);
        let have = check(&mut have, ids.as_bytes()).await?.text();
        let missing = have.lines().filter_map(|line| line.strip_suffix(" missing"));
        Ok(missing.map(|id| format!("{id}\n")).collect())
    }

    /// What the clone's work tree changes on top of `revision`, where its `HEAD`
    /// is that revision. Files that git does not track do not count.
    async fn changes(
        &self,
        revision: &str,
        tree: &str,
        dirty: bool,
        store: &Store,
    ) -> Result<Option<Changes>, Fault> {
        let Some(work_tree) = self.clone.work_tree() else {
            return Ok(None);
        };
        if self.clone.commit("HEAD").ok().as_deref() != Some(revision) {
            return Ok(None);
        }
        let scratch = store.scratch()?;
        let index = scratch.path().join("index");
        // With the time stamps of the clone's own index only what changed is read.
        let copied = std::fs::copy(self.clone.index(), &index).is_ok();
        let git = |arguments: &[&str], index: &Path| {
            let mut git = self.git();
            git.args(["-c", "submodule.recurse=false", "-c", "diff.ignoreSubmodules=all"]);
            git.arg("--work-tree").arg(work_tree).current_dir(work_tree);
            git.env("GIT_INDEX_FILE", index).args(arguments);
            git
        };
        let readable =
            copied && check(&mut git(&["ls-files", "--", "Makefile"], &index), b"").await.is_ok();
        if !readable {
            // A split index has a part that is not copied; what it adds would be missed.
            if copied && dirty {
                return Err(Fault::plan("the work tree's index cannot be read alone")
                    .at(self.clone.path().display())
                    .help("join it: `git update-index --no-split-index`"));
            }
            let _ = std::fs::remove_file(&index);
            check(&mut git(&["read-tree", tree], &index), b"").await?;
        }
        let staged = check(&mut git(&["ls-files", "--stage"], &index), b"").await?.text();
        if let Some(inner) = staged.lines().find(|line| line.starts_with("160000 ")) {
            let inner = inner.split_once('\t').map_or(inner, |(_, path)| path);
            return Err(Fault::plan(format!("{inner} is a submodule, which no kernel has"))
                .at(self.clone.path().display())
                .help("name a revision of a kernel's repository"));
        }
        check(&mut git(&["add", "--update", "."], &index), b"").await?;
        let changed = check(&mut git(&["write-tree"], &index), b"").await?.text();
        if changed == tree {
            return Ok(None);
        }
        let mut names = self.git();
        names.args(["diff-tree", "-r", "--name-only", "--no-renames", tree, &changed]);
        let files = check(&mut names, b"").await?.text().lines().map(str::to_owned).collect();
        let others = ["ls-files", "--others", "--exclude-standard", "-z"];
        let others = check(&mut git(&others, &index), b"").await?.text();
        let untracked = others.split('\0').filter(|name| !name.is_empty()).count();
        Ok(Some(Changes { tree: changed, files, untracked }))
    }
}
