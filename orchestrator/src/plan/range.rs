// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the commits of a git range as patches, with git's plumbing, in a
//! repository of kvet's that only borrows the clone's objects: neither the
//! clone's configuration nor its attributes can change what a diff says.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::PatchFile;
use super::input::Taken;
use super::kernel_file::check_revision;
use super::patch_files::MAX_PATCH_BYTES;
use crate::fault::Fault;
use crate::host::clone::{PLAIN_ATTRIBUTES, UserClone, git, run};
use crate::host::process::last_lines;
use crate::host::temporary::Temporary;

/// Most commits of a range. The longest series on the kernel's lists stay below
/// a tenth of it; a range with more is a slip of the pen.
const MAX_COMMITS: usize = 1000;

/// The commits of `range` as patches, oldest first.
///
/// # Errors
/// A `plan` fault when the range cannot be read; when a commit of it is a merge,
/// which has no patch.
pub(super) fn read(repository: &Path, range: &str) -> Result<Taken, Fault> {
    let clone = UserClone::open(repository)?;
    let place = || format!("{range} in {}", clone.path().display());
    let (from, to) = ends(range).map_err(|what| Fault::plan(what).at(place()))?;
    let (from, to) = (clone.commit(from)?, clone.commit(to)?);
    let scratch = Temporary::new().map_err(|error| Fault::io("make a folder", &error))?;
    let format = format!("--object-format={}", clone.object_format()?);
    let reader = Reader { clone: &clone, git_dir: scratch.path().join("git") };
    reader.git(&["init", "--quiet", "--bare", "--template=", &format], true)?;
    // Where a shallow clone ends, so that the walk ends there, too.
    let _ = std::fs::copy(clone.common_dir().join("shallow"), reader.git_dir.join("shallow"));

    let count = format!("--max-count={}", MAX_COMMITS + 1);
    let list = ["rev-list", "--topo-order", "--parents", &count, &to, &format!("^{from}")];
    let list = String::from_utf8_lossy(&reader.git(&list, false)?).into_owned();
    let mut commits: Vec<Vec<&str>> = list.lines().map(|line| line.split(' ').collect()).collect();
    commits.reverse();
    if commits.is_empty() {
        return Err(Fault::plan("the range holds no commit").at(place()).help(
            "A..B are the commits of B that A does not have; are the sides the wrong way round?",
        ));
    }
    if commits.len() > MAX_COMMITS {
        return Err(Fault::plan(format!("the range holds more than {MAX_COMMITS} commits"))
            .at(place())
            .help("check the range's first side"));
    }
    let mut taken = Taken::default();
    for (index, commit) in commits.iter().enumerate() {
        let id = commit[0];
        let subject = reader.subject(id)?;
        let short = &id[..12.min(id.len())];
        if commit.len() != 2 {
            let what = match commit.len() {
                1 => format!("{short} ({subject}) has no parent, so it is no patch"),
                _ => format!("{short} ({subject}) is a merge, which has no patch"),
            };
            return Err(Fault::plan(what)
                .at(place())
                .help("name a range without merges, or rebase it: `git rebase A B`"));
        }
        let bytes = reader.patch(id)?;
        let name = format!("{:04}-{short}", index + 1);
        if bytes.is_empty() {
            taken.passed_over.push(format!("{short} ({subject}): an empty commit"));
            continue;
        }
        if bytes.len() as u64 > MAX_PATCH_BYTES {
            let what = format!("{short}: {} bytes are too many for a patch", bytes.len());
            return Err(Fault::plan(what).at(place()));
        }
        let path = PathBuf::from(format!("{} commit {short}", clone.path().display()));
        taken.patches.push(PatchFile { name, subject: Some(subject), path, strip: 1, bytes });
    }
    taken.passed_over.extend(reader.uncommitted(&to)?);
    Ok(taken)
}

/// The sides of `A..B`.
fn ends(range: &str) -> Result<(&str, &str), String> {
    let wrong = || format!("{range:?} is not a range A..B");
    let (from, to) = range.split_once("..").ok_or_else(wrong)?;
    if to.starts_with('.') {
        return Err(format!("{range:?} is what one of two has, not a series; write A..B"));
    }
    let (from, to) = match (from, to) {
        ("", "") => return Err(wrong()),
        ("", to) => ("HEAD", to),
        (from, "") => (from, "HEAD"),
        sides => sides,
    };
    check_revision(from)?;
    check_revision(to)?;
    Ok((from, to))
}

struct Reader<'a> {
    clone: &'a UserClone,
    git_dir: PathBuf,
}

impl Reader<'_> {
    fn git(&self, arguments: &[&str], first: bool) -> Result<Vec<u8>, Fault> {
        let mut git: Command = git(&self.git_dir);
        if !first {
            self.clone.lend_objects(&mut git);
        }
        let output = run(git.args(arguments))?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        Err(Fault::plan(format!("git {} cannot read the commits", arguments[0]))
            .at(self.clone.path().display())
            .evidence(&last_lines(&String::from_utf8_lossy(&output.stderr), 4))
            .help("does `git log` in that repository show them?"))
    }

    /// Words about changes on top of the range's end, where that is checked out:
    /// they are not a part of the series, though its author may think so.
    fn uncommitted(&self, end: &str) -> Result<Option<String>, Fault> {
        let Some(work_tree) = self.clone.work_tree() else {
            return Ok(None);
        };
        if self.clone.commit("HEAD").ok().as_deref() != Some(end) {
            return Ok(None);
        }
        let index = self.git_dir.join("index");
        if std::fs::copy(self.clone.index(), &index).is_err() {
            return Ok(None);
        }
        let attributes = self.git_dir.join("info");
        std::fs::create_dir_all(&attributes)
            .and_then(|()| std::fs::write(attributes.join("attributes"), PLAIN_ATTRIBUTES))
            .map_err(|error| Fault::io("write git's attributes", &error))?;
        let git = |arguments: &[&str]| {
            let mut git: Command = git(&self.git_dir);
            self.clone.lend_objects(&mut git);
            git.args(["-c", "core.bare=false", "--work-tree"]).arg(work_tree);
            git.env("GIT_INDEX_FILE", &index).current_dir(work_tree).args(arguments);
            run(&mut git)
        };
        // Files whose time stamp alone is new are no changes.
        git(&["update-index", "-q", "--ignore-submodules", "--refresh"])?;
        let output = git(&["diff-index", "--name-only", "--ignore-submodules=all", end])?;
        let text = String::from_utf8_lossy(&output.stdout);
        let names: Vec<&str> = text.lines().collect();
        let Some(first) = names.first() else {
            return Ok(None);
        };
        let more = if names.len() > 1 { ", ..." } else { "" };
        Ok(Some(format!(
            "uncommitted changes in {} file(s) of the work tree ({first}{more})",
            names.len()
        )))
    }

    fn subject(&self, id: &str) -> Result<String, Fault> {
        let text = self.git(&["log", "--no-walk", "--format=%s", id], false)?;
        Ok(String::from_utf8_lossy(&text).trim().chars().take(200).collect())
    }

    /// What `git format-patch --no-renames --binary` has below the message.
    fn patch(&self, id: &str) -> Result<Vec<u8>, Fault> {
        let diff = [
            "diff-tree",
            "--patch",
            "--no-commit-id",
            "--binary",
            "--full-index",
            "--no-renames",
            "--no-ext-diff",
            "--no-textconv",
            "--no-color",
            "--src-prefix=a/",
            "--dst-prefix=b/",
            "--unified=3",
            id,
        ];
        self.git(&diff, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_two_sides_and_only_plain_ones() {
        assert_eq!(ends("v1..topic"), Ok(("v1", "topic")));
        assert_eq!(ends("v1.."), Ok(("v1", "HEAD")));
        assert_eq!(ends("..topic"), Ok(("HEAD", "topic")));
        for wrong in ["v1", "..", "a...b", "--output=x..b", "a..-b", "a..b..c", "a ..b", "a..b\n"] {
            assert!(ends(wrong).is_err(), "{wrong}");
        }
    }
}
