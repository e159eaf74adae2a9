// SPDX-License-Identifier: MIT OR Apache-2.0
//! A small file system that only a test's own processes see.

use std::path::Path;
use std::process::{Command, Stdio};

/// Whether this host lets a user mount a tmpfs of his own; says so if not.
pub fn can_mount() -> bool {
    let mut probe = unshare("true", Path::new("/tmp"), "1m");
    let can = probe.output().is_ok_and(|output| output.status.success());
    if !can {
        eprintln!("skipped: this host does not allow a mount namespace (unshare --mount)");
    }
    can
}

/// A shell in which `folder` is a tmpfs of that size.
pub fn unshare(script: &str, folder: &Path, size: &str) -> Command {
    let mut command = Command::new("unshare");
    let script = format!("mount -t tmpfs -o size={size} none \"$0\" && {script}");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-ec", &script]);
    command.arg(folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}
