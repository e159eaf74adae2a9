// SPDX-License-Identifier: MIT OR Apache-2.0
//! Somebody's git clone, which is read and never written: no command that runs in
//! it takes a lock, refreshes its index, fetches, or runs what its configuration
//! names. Objects are read from outside, through a repository of kvet's.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Output;

use tokio::process::Command;

use super::process::{command, last_lines, require_program};
use crate::fault::Fault;

/// `info/attributes` of a repository in which bytes go in and come out as they are,
/// whatever a tree's `.gitattributes` say.
pub const PLAIN_ATTRIBUTES: &str = "* -text -eol -filter -ident -working-tree-encoding\n";

/// A git command that knows no configuration but its repository's own, runs no
/// hook, and sees objects as they are.
#[must_use]
pub fn git(git_dir: &Path) -> Command {
    let mut git = command("git");
    git.arg("--no-optional-locks").arg("--git-dir").arg(git_dir);
    // A clone's configuration may name programs for these; none is to run.
    for setting in ["core.fsmonitor=false", "core.hooksPath=/dev/null", "core.pager=cat"] {
        git.args(["-c", setting]);
    }
    // Of the file below, in front of what is to be said.
    git.args(["-c", "advice.graftFileDeprecated=false"]);
    git.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    git.env("GIT_OPTIONAL_LOCKS", "0").env("GIT_NO_REPLACE_OBJECTS", "1");
    git.env("GIT_GRAFT_FILE", "/dev/null").env("GIT_ATTR_NOSYSTEM", "1");
    // A partial clone would fetch what it lacks. git before 2.45 knows only the second.
    git.env("GIT_NO_LAZY_FETCH", "1").env("GIT_ALLOW_PROTOCOL", "").env("GIT_TERMINAL_PROMPT", "0");
    git
}

/// A clone of somebody's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserClone {
    path: PathBuf,
    git_dir: PathBuf,
    common_dir: PathBuf,
    work_tree: Option<PathBuf>,
}

impl UserClone {
    /// Finds the repository of a work tree (also a linked one), or a bare one.
    ///
    /// # Errors
    /// A `plan` fault when there is none at `path`.
    pub fn open(path: &Path) -> Result<Self, Fault> {
        require_program("git", "git")?;
        let none = || {
            Fault::plan("no git repository")
                .at(path.display())
                .help("name the top of a work tree, or a bare repository")
        };
        let path = std::fs::canonicalize(path).map_err(|_| none())?;
        let dot_git = path.join(".git");
        let (git_dir, work_tree) = if dot_git.is_dir() {
            (dot_git, Some(path.clone()))
        } else if let Ok(text) = std::fs::read(&dot_git) {
            let target = text.strip_prefix(b"gitdir: ").ok_or_else(none)?.trim_ascii_end();
            (path.join(OsStr::from_bytes(target)), Some(path.clone()))
        } else {
            (path.clone(), None)
        };
        let common_dir = match std::fs::read(git_dir.join("commondir")) {
            Ok(text) => git_dir.join(OsStr::from_bytes(text.trim_ascii_end())),
            Err(_) => git_dir.clone(),
        };
        let common_dir = std::fs::canonicalize(common_dir).map_err(|_| none())?;
        if !common_dir.join("objects").is_dir() || !git_dir.join("HEAD").is_file() {
            return Err(none());
        }
        Ok(Self { path, git_dir, common_dir, work_tree })
    }

    /// Its place, without links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A name for people: its folder's.
    #[must_use]
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        name.trim_end_matches(".git").to_owned()
    }

    /// The top of its work tree, where it has one.
    #[must_use]
    pub fn work_tree(&self) -> Option<&Path> {
        self.work_tree.as_deref()
    }

    /// The index of its work tree; it may not exist.
    #[must_use]
    pub fn index(&self) -> PathBuf {
        self.git_dir.join("index")
    }

    /// What all its linked work trees share.
    #[must_use]
    pub fn common_dir(&self) -> &Path {
        &self.common_dir
    }

    /// Lets a git command on another repository read this one's objects.
    pub fn lend_objects(&self, git: &mut Command) {
        git.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted(&self.common_dir.join("objects")));
    }

    /// The commit that a revision names.
    ///
    /// # Errors
    /// A `plan` fault when there is none; git's words say why.
    pub fn commit(&self, revision: &str) -> Result<String, Fault> {
        let wanted = format!("{revision}^{{commit}}");
        let output = run(git(&self.git_dir).args(["rev-parse", "--verify", &wanted]))?;
        let id = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if output.status.success() && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(id);
        }
        let words = String::from_utf8_lossy(&output.stderr);
        Err(Fault::plan(format!("no commit {revision:?}"))
            .at(self.path.display())
            .evidence(&last_lines(&words, 3))
            .help("`git rev-parse REVISION` in that repository says what it knows"))
    }

    /// What `git rev-list` says.
    ///
    /// # Errors
    /// A `plan` fault with git's words when it cannot read the commits.
    pub fn rev_list(&self, arguments: &[String]) -> Result<String, Fault> {
        let output = run(git(&self.git_dir).arg("rev-list").args(arguments))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(Fault::plan("git rev-list cannot read the commits")
            .at(self.path.display())
            .evidence(&last_lines(&String::from_utf8_lossy(&output.stderr), 4))
            .help("does `git log` in that repository show them?"))
    }

    /// The best common ancestors of two commits; none for those of two histories.
    ///
    /// # Errors
    /// An `infra` fault when git cannot be started.
    pub fn merge_bases(&self, one: &str, other: &str) -> Result<Vec<String>, Fault> {
        let output = run(git(&self.git_dir).args(["merge-base", "--all", one, other]))?;
        Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
    }

    /// `sha1` or `sha256`.
    ///
    /// # Errors
    /// An `infra` fault when git does not say.
    pub fn object_format(&self) -> Result<String, Fault> {
        let output = run(git(&self.git_dir).args(["rev-parse", "--show-object-format"]))?;
        let format = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        match format.as_str() {
            "sha1" | "sha256" => Ok(format),
            _ => Err(Fault::infra("git does not say what a repository's ids are")
                .at(self.path.display())
                .evidence(&String::from_utf8_lossy(&output.stderr))),
        }
    }

    /// The newest tags, newest first, each with its commit.
    ///
    /// # Errors
    /// An `infra` fault when git cannot be started.
    pub fn newest_tags(&self, count: usize) -> Result<Vec<(String, String)>, Fault> {
        let mut tags = git(&self.git_dir);
        tags.args(["for-each-ref", "--sort=-creatordate", &format!("--count={count}")]);
        // `*` is what a tag object points to; a light tag points to its commit itself.
        tags.args(["--format=%(refname:short) %(objectname) %(*objectname)", "refs/tags"]);
        let output = run(&mut tags)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let tag = |line: &str| {
            let mut words = line.split(' ');
            let (name, own) = (words.next()?, words.next()?);
            let peeled = words.next().filter(|id| !id.is_empty()).unwrap_or(own);
            Some((name.to_owned(), peeled.to_owned()))
        };
        Ok(text.lines().filter_map(tag).collect())
    }
}

/// Runs a short command to its end.
///
/// # Errors
/// An `infra` fault when it cannot be started.
pub fn run(command: &mut Command) -> Result<Output, Fault> {
    command.as_std_mut().output().map_err(|error| Fault::io("run git", &error))
}

/// A path for git's variable, which takes `:` for the end of one.
fn quoted(path: &Path) -> OsString {
    let bytes = path.as_os_str().as_bytes();
    let mut out = vec![b'"'];
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', byte]),
            b'\n' => out.extend(b"\\n"),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
    OsString::from_vec(out)
}
