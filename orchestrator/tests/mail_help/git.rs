// SPDX-License-Identifier: MIT OR Apache-2.0
//! git for the tests.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// git in a folder, apart from the user's configuration.
pub fn git(folder: &Path, arguments: &[&str], input: &[u8]) -> Output {
    use std::io::Write as _;
    let mut child = Command::new("git")
        .current_dir(folder)
        .args(["-c", "core.fsync=none", "-c", "gc.auto=0", "-c", "core.autocrlf=false"])
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .envs([("HOME", "/nonexistent"), ("GIT_CONFIG_NOSYSTEM", "1"), ("LC_ALL", "C")])
        .envs([("GIT_AUTHOR_NAME", "Ada Example"), ("GIT_AUTHOR_EMAIL", "ada@example.org")])
        .envs([("GIT_COMMITTER_NAME", "Ada Example"), ("GIT_COMMITTER_EMAIL", "ada@example.org")])
        .envs([("GIT_AUTHOR_DATE", "1767607200 +0000"), ("GIT_COMMITTER_DATE", "1767607200 +0000")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("git is installed");
    // git may end before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// What git prints; fails where git does.
pub fn must(folder: &Path, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let output = git(folder, arguments, input);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}
