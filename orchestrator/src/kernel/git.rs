// SPDX-License-Identifier: MIT OR Apache-2.0
//! git on kvet's own repositories: no user or system configuration, fixed
//! identity and dates, so that equal trees get equal commit ids everywhere.

use std::path::Path;

use tokio::process::Command;

use crate::fault::Fault;
use crate::host::clone;
use crate::host::process::check;

/// All of kvet's commits are of this moment (2026-01-01 00:00:00 UTC).
const DATE: &str = "1767225600 +0000";

/// A git command on a repository.
pub fn git(git_dir: &Path) -> Command {
    let mut command = clone::git(git_dir);
    // As many as there are CPUs unpack and write a kernel's 86,000 files.
    command.args(["-c", "checkout.workers=0"]);
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "kvet");
        command.env(format!("GIT_{role}_EMAIL"), "kvet@localhost");
        command.env(format!("GIT_{role}_DATE"), DATE);
    }
    command
}

/// Makes a repository for a source. Whatever the source's `.gitattributes` say,
/// bytes go in and come out as they are. `format` is `sha1` or `sha256`.
///
/// # Errors
/// An `infra` fault with git's words.
pub async fn init(git_dir: &Path, format: &str) -> Result<(), Fault> {
    let failed = |error| Fault::io(format!("make {}", git_dir.display()), &error);
    std::fs::create_dir_all(git_dir.join("info")).map_err(failed)?;
    let format = format!("--object-format={format}");
    run(git_dir, ["init", "--quiet", "--bare", "--template=", &format]).await?;
    for (name, value) in [("gc.auto", "0"), ("core.compression", "1"), ("core.bare", "false")] {
        run(git_dir, ["config", name, value]).await?;
    }
    std::fs::write(git_dir.join("info/attributes"), clone::PLAIN_ATTRIBUTES).map_err(failed)
}

/// Removes lock files that a killed git left. Whoever calls holds the store's lock
/// of what they lock, so that nobody is at work there.
pub fn remove_stale_locks<'a>(files: impl IntoIterator<Item = &'a Path>) {
    for file in files {
        let mut lock = file.as_os_str().to_owned();
        lock.push(".lock");
        let _ = std::fs::remove_file(lock);
    }
}

/// Makes a worktree of a commit in a folder that does not exist. The caller holds the
/// lock of the repository's worktrees.
///
/// # Errors
/// An `infra` fault with git's words.
pub async fn add_worktree(git_dir: &Path, folder: &Path, commit: &str) -> Result<(), Fault> {
    add(git_dir, folder, commit, "--checkout").await
}

/// Likewise, but without any file of the commit.
///
/// # Errors
/// An `infra` fault with git's words.
pub async fn add_empty_worktree(git_dir: &Path, folder: &Path, commit: &str) -> Result<(), Fault> {
    add(git_dir, folder, commit, "--no-checkout").await
}

async fn add(git_dir: &Path, folder: &Path, commit: &str, how: &str) -> Result<(), Fault> {
    // git locks a worktree while it makes it, and nobody else locks ours: what is
    // locked now was left by a git that was killed, with files that may be empty.
    for entry in std::fs::read_dir(git_dir.join("worktrees")).into_iter().flatten().flatten() {
        if entry.path().join("locked").exists() {
            crate::store::remove(&entry.path())?;
        }
    }
    run(git_dir, ["worktree", "prune"]).await?;
    let folder = folder.to_string_lossy();
    run(git_dir, ["worktree", "add", "--quiet", "--force", "--detach", how, &folder, commit])
        .await
        .map(drop)
}

/// A commit without a parent that holds a tree: equal trees get equal ones. The
/// caller holds the lock of the source.
///
/// # Errors
/// An `infra` fault with git's words.
pub async fn commit_alone(git_dir: &Path, tree: &str) -> Result<String, Fault> {
    let commit = run(git_dir, ["commit-tree", "-m", "source", tree]).await?;
    let name = format!("refs/heads/source-{tree}");
    remove_stale_locks([git_dir.join(&name).as_path()]);
    run(git_dir, ["update-ref", &name, &commit]).await?;
    Ok(commit)
}

/// Runs a git command that must succeed; its standard output, trimmed.
///
/// # Errors
/// An `infra` fault with git's words.
pub async fn run<'a>(
    git_dir: &Path,
    arguments: impl IntoIterator<Item = &'a str>,
) -> Result<String, Fault> {
    Ok(check(git(git_dir).args(arguments), b"").await?.text())
}

/// Whether the repository holds an object.
pub async fn has_object(git_dir: &Path, object: &str) -> bool {
    run(git_dir, ["cat-file", "-e", object]).await.is_ok()
}
