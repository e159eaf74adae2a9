// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes files of a tree by replacing text, inside the object store of its
//! repository as [`super::series`] does: for changes that are no patches.

use std::path::PathBuf;

use serde::Deserialize;

use super::git;
use super::series::Tree;
use super::source::Source;
use crate::fault::Fault;
use crate::host::process::check;
use crate::store::Store;

/// Text in a file to be replaced by other text.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// Path in the tree.
    pub file: PathBuf,
    /// What stands there, whole lines or less; it must occur once.
    pub old: String,
    /// What is to stand there.
    pub new: String,
}

impl Edit {
    /// Replaces the text in what the file holds.
    ///
    /// # Errors
    /// How often the old text occurs, if not once.
    pub fn apply(&self, text: &str) -> Result<String, usize> {
        match text.matches(&self.old).count() {
            1 if !self.old.is_empty() => Ok(text.replacen(&self.old, &self.new, 1)),
            count => Err(count),
        }
    }
}

/// The tree that `edits` make of `tree`, in their order.
///
/// # Errors
/// A `plan` fault that names the file if an edit's old text does not occur there
/// exactly once.
pub async fn edit(
    source: &Source,
    tree: &Tree,
    edits: &[Edit],
    name: &str,
    store: &Store,
) -> Result<Tree, Fault> {
    let scratch = store.scratch()?;
    let index = scratch.path().join("index");
    let git = || {
        let mut git = git::git(&source.git_dir);
        git.env("GIT_INDEX_FILE", &index);
        git
    };
    check(git().args(["read-tree", &tree.commit]), b"").await?;
    for edit in edits {
        let file = edit.file.display();
        let listed = check(git().args(["ls-files", "--stage", "--"]).arg(&edit.file), b"").await?;
        let entry = listed.text();
        // Mode, object, stage and path of one file; a folder has many.
        let mut words = entry.lines().next().unwrap_or_default().split_whitespace();
        let (Some(mode), Some(object), true) =
            (words.next(), words.next(), entry.lines().count() == 1)
        else {
            return Err(Fault::plan(format!("{name}: {} has no file {file}", source.origin)));
        };
        let old = check(git().args(["cat-file", "blob", object]), b"").await?.stdout;
        let old = String::from_utf8(old)
            .map_err(|_| Fault::plan(format!("{name}: {file} is not UTF-8")))?;
        let new = edit.apply(&old).map_err(|count| {
            Fault::plan(format!("{name}: the old text occurs {count} times in {file}"))
                .evidence(&edit.old)
                .help("give lines around it, so that it occurs once")
        })?;
        let blob =
            check(git().args(["hash-object", "-w", "--stdin"]), new.as_bytes()).await?.text();
        let cache = format!("{mode},{blob},{file}");
        check(git().args(["update-index", "--cacheinfo", &cache]), b"").await?;
    }
    let id = check(git().arg("write-tree"), b"").await?.text();
    let message = format!("edit {name}");
    let mut git = git();
    git.args(["commit-tree", "-p", &tree.commit, "-m", &message, &id]);
    Ok(Tree { commit: check(&mut git, b"").await?.text(), tree: id })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(old: &str) -> Edit {
        Edit { file: "f".into(), old: old.into(), new: "x".into() }
    }

    #[test]
    fn text_that_occurs_once_is_replaced() {
        assert_eq!(edit("b\n").apply("a\nb\nc\n"), Ok("a\nxc\n".into()));
    }

    #[test]
    fn text_that_occurs_otherwise_is_refused() {
        assert_eq!(edit("b").apply("a b b"), Err(2));
        assert_eq!(edit("d").apply("a b b"), Err(0));
        assert!(edit("").apply("a b b").is_err());
    }
}
