// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel sources: fetched, verified, unpacked once, and kept as a git
//! repository in the store, where patches are applied without a work tree.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::git;
use crate::fault::Fault;
use crate::host::process::{capture, check, command, last_lines, require_program};
use crate::plan::Kernel;
use crate::run::event::{Events, RunEvent};
use crate::store::{Store, write_atomically};

/// A kernel source in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Key in the store.
    pub key: String,
    /// Name and version of what it came from.
    pub origin: String,
    /// SHA-256 of the package, hexadecimal.
    pub sha256: String,
    /// The kernel's version by its Makefile, such as `6.12.117`.
    pub version: String,
    /// Commit that holds the tree.
    pub commit: String,
    /// Id of the tree.
    pub tree: String,
    /// The repository.
    #[serde(skip)]
    pub git_dir: PathBuf,
}

/// What apt knows of a package's newest version.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Package {
    name: String,
    version: String,
    sha256: String,
}

/// Makes a kernel source ready in the store.
///
/// # Errors
/// An `infra` fault when it cannot be fetched, verified or imported.
pub async fn prepare(kernel: &Kernel, store: &Store, events: &Events) -> Result<Source, Fault> {
    let name = &kernel.debian.package;
    let package = match newest(name).await {
        Ok(package) => package,
        Err(fault) => return stored_instead(name, store, events).ok_or(fault),
    };
    let key = source_key(&package);
    if let Some(source) = read(store, &key) {
        return Ok(source);
    }
    let _lock = store.lock("sources", &key, events).await?;
    if let Some(source) = read(store, &key) {
        return Ok(source);
    }
    let step = |step: String| {
        events.send(&RunEvent::Source { kernel: kernel.name.clone(), step });
    };
    let scratch = store.scratch()?;
    step(format!("download {name} {}", package.version));
    let file = download(&package, scratch.path()).await?;
    step("verify and unpack".to_owned());
    let tree = unpack(&package, &file, scratch.path()).await?;
    step("import into git".to_owned());
    let entry = scratch.path().join("entry");
    let git_dir = entry.join("git");
    std::fs::create_dir_all(&git_dir)
        .map_err(|error| Fault::io(format!("make {}", git_dir.display()), &error))?;
    let (commit, tree_id) = import(&tree, &git_dir).await?;
    let source = Source {
        key: key.clone(),
        origin: format!("{name} {}", package.version),
        sha256: package.sha256.clone(),
        version: makefile_version(&tree)?,
        commit,
        tree: tree_id,
        git_dir: PathBuf::new(),
    };
    write_atomically(&entry.join("source.json"), &crate::report::json::pretty(&source))?;
    let place = store.publish(&entry, "sources", &key)?;
    step("ready".to_owned());
    Ok(Source { git_dir: place.join("git"), ..source })
}

fn source_key(package: &Package) -> String {
    format!("debian-{}_{}-{}", package.name, package.version, &package.sha256[..12])
        .replace(|c: char| !(c.is_ascii_alphanumeric() || "-_.+~".contains(c)), "_")
}

fn read(store: &Store, key: &str) -> Option<Source> {
    let place = store.path("sources", key);
    let text = std::fs::read(place.join("source.json")).ok()?;
    let source: Source = serde_json::from_slice(&text).ok()?;
    Some(Source { git_dir: place.join("git"), ..source })
}

/// Without apt's word on the newest version, the newest that was imported
/// serves, and the user is told.
fn stored_instead(package: &str, store: &Store, events: &Events) -> Option<Source> {
    let prefix = format!("debian-{package}_");
    let newest = std::fs::read_dir(store.path("sources", ""))
        .ok()?
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .max_by_key(|entry| entry.metadata().and_then(|data| data.modified()).ok())?;
    let source = read(store, &newest.file_name().to_string_lossy())?;
    events
        .note(format!("apt does not know {package} here; using {} from the cache", source.origin));
    Some(source)
}

async fn newest(package: &str) -> Result<Package, Fault> {
    require_program("apt-cache", "apt")?;
    let output =
        capture(command("apt-cache").args(["show", "--no-all-versions", package]), b"").await?;
    parse_show(package, &output.text()).ok_or_else(|| {
        Fault::infra(format!("apt does not know the package {package}"))
            .evidence(&last_lines(&output.stderr, 4))
            .help("run `sudo apt-get update`; `apt-cache search linux-source` lists what this release has")
    })
}

fn parse_show(name: &str, text: &str) -> Option<Package> {
    let field = |wanted: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(wanted)?.strip_prefix(": "))
            .map(str::to_owned)
    };
    let (version, sha256) = (field("Version")?, field("SHA256")?);
    let hexadecimal = sha256.len() == 64 && sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
    (field("Package")? == name && hexadecimal).then(|| Package {
        name: name.to_owned(),
        version,
        sha256,
    })
}

async fn download(package: &Package, folder: &Path) -> Result<PathBuf, Fault> {
    let mut apt = command("apt-get");
    if rustix::process::geteuid().is_root() {
        // apt would drop to its own user, who cannot write to kvet's folder.
        apt.args(["-o", "APT::Sandbox::User=root"]);
    }
    apt.args(["-q", "download", &format!("{}={}", package.name, package.version)]);
    check(apt.current_dir(folder), b"").await.map_err(|fault| {
        fault.help("check the network; `sudo apt-get update` if apt's lists are old")
    })?;
    let file = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"));
    file.ok_or_else(|| Fault::infra("apt-get download left no package"))
}

async fn unpack(package: &Package, file: &Path, scratch: &Path) -> Result<PathBuf, Fault> {
    let found = sha256_of(file).await?;
    if found != package.sha256 {
        return Err(Fault::infra(format!(
            "{} {} has SHA-256 {found}, but apt's lists say {}",
            package.name, package.version, package.sha256
        ))
        .help("run `sudo apt-get update` and try again"));
    }
    let deb = scratch.join("deb");
    check(command("dpkg-deb").arg("--extract").arg(file).arg(&deb), b"").await?;
    let tarball = deb.join("usr/src").join(format!("{}.tar.xz", package.name));
    let tree = scratch.join("tree");
    std::fs::create_dir(&tree)
        .map_err(|error| Fault::io("make a folder for the source", &error))?;
    let mut tar = command("tar");
    tar.args(["--extract", "--xz", "--strip-components=1", "--no-same-owner", "--file"]);
    check(tar.arg(&tarball).arg("--directory").arg(&tree), b"").await?;
    // Space that the build needs soon.
    let _ = std::fs::remove_dir_all(&deb);
    let _ = std::fs::remove_file(file);
    Ok(tree)
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

async fn import(tree: &Path, git_dir: &Path) -> Result<(String, String), Fault> {
    git::run(git_dir, ["init", "--quiet", "--bare"]).await?;
    for (name, value) in [("gc.auto", "0"), ("core.compression", "1"), ("core.bare", "false")] {
        git::run(git_dir, ["config", name, value]).await?;
    }
    let mut add = git::git(git_dir);
    // Blobs "too big" are streamed into one pack instead of 86,000 loose files.
    add.args(["-c", "core.bigFileThreshold=1", "--work-tree"]).arg(tree);
    check(add.args(["add", "--all", "--force", "."]).current_dir(tree), b"").await?;
    let tree_id = git::run(git_dir, ["write-tree"]).await?;
    let commit = git::run(git_dir, ["commit-tree", "-m", "source", &tree_id]).await?;
    git::run(git_dir, ["update-ref", "refs/heads/source", &commit]).await?;
    Ok((commit, tree_id))
}

fn makefile_version(tree: &Path) -> Result<String, Fault> {
    let text = std::fs::read_to_string(tree.join("Makefile"))
        .map_err(|error| Fault::io("read the kernel's Makefile", &error))?;
    parse_makefile_version(&text)
        .ok_or_else(|| Fault::infra("the source's Makefile has no VERSION and PATCHLEVEL"))
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
    fn apt_caches_answer_is_read() {
        let hash = "ab".repeat(32);
        let text = format!(
            "Package: linux-source-6.12\nSource: linux\nVersion: 6.12.1-1~x\nSHA256: {hash}\n"
        );
        let package = parse_show("linux-source-6.12", &text).unwrap();
        assert_eq!(package.version, "6.12.1-1~x");
        assert_eq!(source_key(&package), "debian-linux-source-6.12_6.12.1-1~x-abababababab");
        assert_eq!(parse_show("other", &text), None);
        assert_eq!(parse_show("linux-source-6.12", "Package: linux-source-6.12\n"), None);
    }

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
