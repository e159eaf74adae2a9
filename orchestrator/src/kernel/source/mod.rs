// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel sources: each becomes a tree in a git repository of the store, where
//! patches are applied without a work tree. Where it came from is only read.

mod archive;
mod clone;
mod debian;
mod directory;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::git;
use crate::fault::Fault;
use crate::host::clone::UserClone;
use crate::host::process::check;
use crate::plan::manifest::GitEntry;
use crate::plan::{Kernel, KernelSource};
use crate::run::event::{Events, RunEvent};
use crate::store::{Store, touch, write_atomically};
use clone::WorkTree;

/// A kernel source in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Key in the store.
    pub key: String,
    /// Name and version of what it came from.
    pub origin: String,
    /// SHA-256 of the package or tarball, hexadecimal.
    #[serde(default)]
    pub sha256: Option<String>,
    /// The kernel's version by its Makefile, such as `6.12.117`.
    pub version: String,
    /// Commit that holds the tree.
    pub commit: String,
    /// Id of the tree.
    pub tree: String,
    /// The repository.
    #[serde(skip)]
    pub git_dir: PathBuf,
    /// The clone that it came from, where other revisions are.
    #[serde(skip)]
    pub clone: Option<UserClone>,
    /// What is built in one tree.
    #[serde(skip)]
    pub sharing: Sharing,
}

/// What of a source is built in one tree, one after another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sharing {
    /// The variants of series on top of it, in each config.
    #[default]
    Variants,
    /// Any revisions of its own history, in each config. They are trusted as the source
    /// itself is, and one that does not build is to blame for that.
    Revisions,
    /// Any configs of it; one that does not build is to blame for that.
    Configs,
}

/// Tells how the making of one source goes on.
struct Steps<'a> {
    kernel: &'a str,
    events: &'a Events,
}

impl Steps<'_> {
    fn say(&self, step: &str) {
        let (kernel, step) = (self.kernel.to_owned(), step.to_owned());
        self.events.send(&RunEvent::Source { kernel, step });
    }
}

/// Makes a kernel source ready in the store.
///
/// # Errors
/// An `infra` fault when it cannot be fetched, verified or imported; a `plan`
/// fault when the user's file, folder or revision is not what the plan says.
pub async fn prepare(kernel: &Kernel, store: &Store, events: &Events) -> Result<Source, Fault> {
    let steps = Steps { kernel: &kernel.name, events };
    match &kernel.source {
        KernelSource::Debian(entry) => debian::prepare(&entry.package, store, &steps).await,
        KernelSource::Git { entry, dirty } => {
            let work_tree = if *dirty { WorkTree::Take } else { WorkTree::Refuse };
            clone::prepare(entry, work_tree, store, &steps).await
        }
        KernelSource::Tarball(entry) => archive::prepare(entry, store, &steps).await,
        KernelSource::Directory(folder) => directory::prepare(folder, store, &steps).await,
    }
}

/// Makes one revision of a clone ready, to be built in the one tree of the clone's
/// revisions. Changes of its work tree are left out, or taken in where `dirty` says so
/// and its `HEAD` is that revision. `kernel` is what progress calls it.
///
/// # Errors
/// As [`prepare`].
pub async fn prepare_revision(
    entry: &GitEntry,
    dirty: bool,
    kernel: &str,
    store: &Store,
    events: &Events,
) -> Result<Source, Fault> {
    let work_tree = if dirty { WorkTree::Take } else { WorkTree::Leave };
    let source = clone::prepare(entry, work_tree, store, &Steps { kernel, events }).await?;
    Ok(Source { sharing: Sharing::Revisions, ..source })
}

fn read(store: &Store, key: &str) -> Option<Source> {
    let place = store.path("sources", key);
    let text = std::fs::read(place.join("source.json")).ok()?;
    let source: Source = serde_json::from_slice(&text).ok()?;
    touch(&place);
    Some(Source { git_dir: place.join("git"), ..source })
}

/// Moves a finished entry, whose repository is `entry/git`, into the store.
fn publish(store: &Store, entry: &Path, source: Source) -> Result<Source, Fault> {
    write_atomically(&entry.join("source.json"), &crate::report::json::pretty(&source))?;
    let place = store.publish(entry, "sources", &source.key)?;
    Ok(Source { git_dir: place.join("git"), ..source })
}

/// A tree in a repository of the store.
struct Imported {
    version: String,
    commit: String,
    tree: String,
    git_dir: PathBuf,
}

impl Imported {
    /// Reads what a source is of a tree that the repository holds.
    async fn read(git_dir: &Path, tree: String) -> Result<Self, Fault> {
        let commit = git::commit_alone(git_dir, &tree).await?;
        let version = makefile_version(git_dir, &tree).await?;
        Ok(Self { version, commit, tree, git_dir: git_dir.to_owned() })
    }

    fn source(self, key: &str, origin: String, sha256: Option<String>) -> Source {
        Source {
            key: key.to_owned(),
            origin,
            sha256,
            version: self.version,
            commit: self.commit,
            tree: self.tree,
            git_dir: self.git_dir,
            clone: None,
            sharing: Sharing::default(),
        }
    }
}

/// Imports a folder, all of it, into a new repository.
async fn import(folder: &Path, git_dir: &Path) -> Result<Imported, Fault> {
    git::init(git_dir, "sha1").await?;
    let tree = add_all(folder, git_dir, &git_dir.join("index")).await?;
    Imported::read(git_dir, tree).await
}

/// Adds a folder to a repository with an index of its own; the tree.
async fn add_all(folder: &Path, git_dir: &Path, index: &Path) -> Result<String, Fault> {
    let mut add = git::git(git_dir);
    // Blobs "too big" are streamed into one pack instead of 86,000 loose files.
    add.args(["-c", "core.bigFileThreshold=1", "--work-tree"]).arg(folder);
    add.env("GIT_INDEX_FILE", index);
    check(add.args(["add", "--all", "--force", "."]).current_dir(folder), b"").await?;
    let mut write = git::git(git_dir);
    let write = write.env("GIT_INDEX_FILE", index).arg("write-tree");
    Ok(check(write, b"").await?.text())
}

/// SHA-256 of a file, hexadecimal.
///
/// # Errors
/// An `infra` fault when it cannot be read.
pub async fn sha256_of(file: &Path) -> Result<String, Fault> {
    let path = file.to_owned();
    let hash = tokio::task::spawn_blocking(move || -> std::io::Result<String> {
        let mut hasher = Sha256::new();
        let mut reader = std::fs::File::open(&path)?;
        std::io::copy(&mut reader, &mut HashWriter(&mut hasher))?;
        Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    });
    hash.await
        .unwrap_or_else(|error| Err(std::io::Error::other(error)))
        .map_err(|error| Fault::io(format!("read {}", file.display()), &error))
}

struct HashWriter<'a>(&'a mut Sha256);

impl std::io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn makefile_version(git_dir: &Path, tree: &str) -> Result<String, Fault> {
    let none = "the source's Makefile has no VERSION and PATCHLEVEL";
    let help = "name a kernel's source tree";
    let text = git::run(git_dir, ["cat-file", "blob", &format!("{tree}:Makefile")])
        .await
        .map_err(|_| Fault::plan("the source has no Makefile").help(help))?;
    parse_makefile_version(&text).ok_or_else(|| Fault::plan(none).help(help))
}

fn parse_makefile_version(text: &str) -> Option<String> {
    let field = |name: &str| {
        text.lines().take(20).find_map(|line| {
            Some(line.strip_prefix(name)?.trim_start().strip_prefix('=')?.trim().to_owned())
        })
    };
    let (major, minor) = (field("VERSION")?, field("PATCHLEVEL")?);
    let sub = field("SUBLEVEL")
        .filter(|sub| !sub.is_empty())
        .map_or(String::new(), |sub| format!(".{sub}"));
    Some(format!("{major}.{minor}{sub}{}", field("EXTRAVERSION").unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_version_is_read_from_its_makefile() {
        let text =
            "# SPDX\nVERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 117\nEXTRAVERSION =\nNAME = x\n";
        assert_eq!(parse_makefile_version(text).as_deref(), Some("6.12.117"));
        assert_eq!(
            parse_makefile_version(
                "VERSION = 7\nPATCHLEVEL = 3\nSUBLEVEL =\nEXTRAVERSION = -rc1\n"
            )
            .as_deref(),
            Some("7.3-rc1")
        );
        assert_eq!(parse_makefile_version("all:\n"), None);
    }
}
