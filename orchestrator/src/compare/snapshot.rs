// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accepted behaviour on disk, in insta's file format, so that `kvet review`
//! and `cargo insta review` both work on it. A difference is written beside the
//! accepted file as `.snap.new`; nothing is accepted without a person.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::behaviour::Observations;
use crate::fault::Fault;
use crate::store::write_atomically;

/// How a variant's behaviour relates to what was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SnapshotState {
    /// It is what was accepted.
    Matches,
    /// Nothing was accepted yet.
    Pending,
    /// It is not what was accepted.
    Differs,
}

impl std::fmt::Display for SnapshotState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Matches => "matches",
            Self::Pending => "pending",
            Self::Differs => "differs",
        })
    }
}

/// Compares observations with the accepted snapshot `folder/name.snap`, and
/// leaves `folder/name.snap.new` when they differ or nothing was accepted.
///
/// # Errors
/// An `infra` fault when the folder cannot be read or written.
pub fn check(
    folder: &Path,
    name: &str,
    source: &str,
    observations: &Observations,
) -> Result<SnapshotState, Fault> {
    let accepted = folder.join(format!("{name}.snap"));
    let pending = folder.join(format!("{name}.snap.new"));
    let body = body(observations);
    let state = match std::fs::read_to_string(&accepted) {
        Ok(text) if content(&text) == body => SnapshotState::Matches,
        Ok(_) => SnapshotState::Differs,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => SnapshotState::Pending,
        Err(error) => return Err(Fault::io(format!("read {}", accepted.display()), &error)),
    };
    if state == SnapshotState::Matches {
        // What was pending is no longer what happens.
        let _ = std::fs::remove_file(&pending);
        return Ok(state);
    }
    std::fs::create_dir_all(folder)
        .map_err(|error| Fault::io(format!("make {}", folder.display()), &error))?;
    let text = format!("---\nsource: {source}\nexpression: observations\n---\n{body}");
    write_atomically(&pending, text.as_bytes())?;
    Ok(state)
}

/// `name = value` lines, sorted by name; text in JSON's quotes, so that 5 and
/// "5" differ and no text can end a line.
fn body(observations: &Observations) -> String {
    let mut body = String::new();
    for (name, value) in observations {
        let value = serde_json::to_string(value).unwrap_or_default();
        let _ = writeln!(body, "{name} = {value}");
    }
    body
}

/// The part of a snapshot file below its header.
fn content(text: &str) -> String {
    let rest = text.strip_prefix("---\n").and_then(|rest| rest.split_once("\n---\n"));
    let body = rest.map_or(text, |(_, body)| body);
    // insta does not care about line ends at the end, and neither do editors.
    let body = body.trim_end();
    if body.is_empty() { String::new() } else { format!("{body}\n") }
}

/// The pending snapshots below a folder.
#[must_use]
pub fn pending(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(pending(&path));
        } else if path.to_string_lossy().ends_with(".snap.new") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// A unified diff from what was accepted to what is pending.
#[must_use]
pub fn difference(pending: &Path) -> String {
    let read =
        |path: &Path| std::fs::read_to_string(path).map(|text| content(&text)).unwrap_or_default();
    let (old, new) = (read(&accepted_path(pending)), read(pending));
    similar::TextDiff::from_lines(&old, &new)
        .unified_diff()
        .header("accepted", "pending")
        .to_string()
}

/// Makes a pending snapshot the accepted one.
///
/// # Errors
/// An `infra` fault when it cannot be renamed.
pub fn accept(pending: &Path) -> Result<PathBuf, Fault> {
    let accepted = accepted_path(pending);
    std::fs::rename(pending, &accepted)
        .map_err(|error| Fault::io(format!("accept {}", pending.display()), &error))?;
    Ok(accepted)
}

/// Throws a pending snapshot away.
///
/// # Errors
/// An `infra` fault when it cannot be removed.
pub fn reject(pending: &Path) -> Result<(), Fault> {
    std::fs::remove_file(pending)
        .map_err(|error| Fault::io(format!("reject {}", pending.display()), &error))
}

fn accepted_path(pending: &Path) -> PathBuf {
    pending.with_extension("")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observations(cold: i64) -> Observations {
        [("kicks.cold".to_owned(), cold.into()), ("semantics".to_owned(), "unaware".into())].into()
    }

    #[test]
    fn behaviour_is_pending_then_matches_then_differs() {
        let folder = tempfile::tempdir().unwrap();
        let check =
            |cold| check(folder.path(), "cell.base", "plan.yaml", &observations(cold)).unwrap();
        assert_eq!(check(9), SnapshotState::Pending);
        let waiting = pending(folder.path());
        accept(&waiting[0]).unwrap();
        assert_eq!(check(9), SnapshotState::Matches);
        assert_eq!(check(5), SnapshotState::Differs);
        let waiting = pending(folder.path());
        assert!(difference(&waiting[0]).contains("-kicks.cold = 9\n+kicks.cold = 5\n"));
        assert_eq!(check(9), SnapshotState::Matches);
        assert!(pending(folder.path()).is_empty());
    }

    #[test]
    fn insta_reads_what_kvet_writes() {
        let folder = tempfile::tempdir().unwrap();
        check(folder.path(), "cell.base", "plan.yaml", &observations(9)).unwrap();
        accept(&pending(folder.path())[0]).unwrap();
        let mut settings = insta::Settings::new();
        settings.set_snapshot_path(folder.path());
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.bind(|| {
            insta::assert_snapshot!("cell.base", "kicks.cold = 9\nsemantics = \"unaware\"\n");
        });
    }
}
