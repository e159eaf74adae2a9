// SPDX-License-Identifier: MIT OR Apache-2.0
//! git on kvet's own repositories: no user or system configuration, fixed
//! identity and dates, so that equal trees get equal commit ids everywhere.

use std::path::Path;

use tokio::process::Command;

use crate::fault::Fault;
use crate::host::process::{check, command};

/// All of kvet's commits are of this moment (2026-01-01 00:00:00 UTC).
const DATE: &str = "1767225600 +0000";

/// A git command on a repository.
pub fn git(git_dir: &Path) -> Command {
    let mut command = command("git");
    command.arg("--git-dir").arg(git_dir);
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "kvet");
        command.env(format!("GIT_{role}_EMAIL"), "kvet@localhost");
        command.env(format!("GIT_{role}_DATE"), DATE);
    }
    command
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
