// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads what a plan calls a kernel: a file in `kernels/`.

use std::path::{Path, PathBuf};

use super::manifest::{GitEntry, KERNEL_SCHEMA, KernelFile, TarballEntry};
use super::resolve::{Resolver, is_component, known, names_in, with_suffix, wrong_schema};
use super::yaml::{Document, load};
use super::{Kernel, KernelSource};
use crate::fault::Fault;

impl Resolver<'_> {
    pub(super) fn kernel(&mut self, path: &str, name: &str) -> Option<Kernel> {
        let folder = self.root.join("kernels");
        let file = with_suffix(folder.join(name), "yaml");
        if !is_component(name) || !file.is_file() {
            self.report_unknown(path, "kernel", name, &names_in(&folder, "yaml"));
            return None;
        }
        let source = load::<KernelFile>(&file).and_then(|document| {
            if document.value.schema == KERNEL_SCHEMA {
                source(&document, &self.root, self.dirty)
            } else {
                Err(wrong_schema(&document, &document.value.schema, KERNEL_SCHEMA))
            }
        });
        match source {
            Ok(source) => Some(Kernel { name: name.to_owned(), file, source }),
            Err(fault) => {
                self.faults.push(fault);
                None
            }
        }
    }
}

/// Reads `--kernel`: the path of a git repository, `PATH@REV` for another revision than
/// its `HEAD`; none where it is a name in `kernels/`.
///
/// # Errors
/// A `plan` fault when it is neither.
pub fn given(argument: &str, root: &Path) -> Result<Option<Kernel>, Fault> {
    let folder = root.join("kernels");
    if is_component(argument) && with_suffix(folder.join(argument), "yaml").is_file() {
        return Ok(None);
    }
    let whole = |path: &str| {
        let path = expand_home(Path::new(path));
        std::path::absolute(&path).unwrap_or(path)
    };
    let is_repository = |path: &Path| path.join(".git").exists() || path.join("HEAD").is_file();
    let (path, revision) = match argument.rsplit_once('@') {
        Some((path, revision)) if !is_repository(&whole(argument)) => (whole(path), revision),
        _ => (whole(argument), "HEAD"),
    };
    if !is_repository(&path) {
        let names = names_in(&folder, "yaml");
        let what = format!("{argument:?} is neither a kernel in kernels/ nor a git repository");
        return Err(Fault::plan(what).at("--kernel").help(known(argument, &names)));
    }
    check_revision(revision).map_err(|what| Fault::plan(what).at("--kernel"))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let name = if is_component(&name) { name } else { "tree".to_owned() };
    let entry = GitEntry { repository: path, revision: revision.to_owned() };
    let source = KernelSource::Git { entry, dirty: false };
    Ok(Some(Kernel { name, file: PathBuf::new(), source }))
}

fn source(
    document: &Document<KernelFile>,
    root: &Path,
    dirty: bool,
) -> Result<KernelSource, Fault> {
    let file = &document.value;
    let mut sources = Vec::new();
    if let Some(entry) = &file.debian {
        if !is_package(&entry.package) {
            let what = format!("{:?} is not the name of a Debian package", entry.package);
            return Err(document.fault("debian.package", what));
        }
        sources.push(KernelSource::Debian(entry.clone()));
    }
    if let Some(entry) = &file.git {
        let repository = existing(document, "git.repository", root, &entry.repository)?;
        if let Err(what) = check_revision(&entry.revision) {
            return Err(document.fault("git.revision", what));
        }
        let entry = GitEntry { repository, revision: entry.revision.clone() };
        sources.push(KernelSource::Git { entry, dirty });
    }
    if let Some(entry) = &file.tarball {
        let path = existing(document, "tarball.path", root, &entry.path)?;
        let sha256 = entry.sha256.to_ascii_lowercase();
        if sha256.len() != 64 || !sha256.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            let what = "a SHA-256 has 64 hexadecimal digits";
            return Err(document
                .fault("tarball.sha256", what)
                .help(format!("`sha256sum {}` prints it", path.display())));
        }
        sources.push(KernelSource::Tarball(TarballEntry { path, sha256 }));
    }
    if let Some(path) = &file.directory {
        let path = existing(document, "directory", root, path)?;
        if !path.is_dir() {
            return Err(document.fault("directory", "not a folder"));
        }
        sources.push(KernelSource::Directory(path));
    }
    let count = sources.len();
    match (sources.pop(), count) {
        (Some(source), 1) => Ok(source),
        (_, 0) => Err(document
            .fault("schema", "the file names no source")
            .help("give one of debian, git, tarball and directory")),
        _ => Err(document
            .fault("schema", format!("the file names {count} sources"))
            .help("give one of debian, git, tarball and directory")),
    }
}

/// A path of a manifest: relative to the folder of `kernels/`, or `~/`.
fn existing(
    document: &Document<KernelFile>,
    place: &str,
    root: &Path,
    path: &Path,
) -> Result<PathBuf, Fault> {
    let path = root.join(expand_home(path));
    match std::fs::metadata(&path) {
        Ok(_) => Ok(path),
        Err(error) => Err(document
            .fault(place, format!("{}: {error}", path.display()))
            .help("check the path; a relative one starts in the folder that holds kernels/")),
    }
}

/// `~/x` as a shell reads it.
pub(super) fn expand_home(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), std::env::var_os("HOME")) {
        (Ok(rest), Some(home)) => Path::new(&home).join(rest),
        _ => path.to_owned(),
    }
}

/// Whether git may be given this as a revision: never an option, never a range.
pub(super) fn check_revision(revision: &str) -> Result<(), String> {
    let odd = |c: char| c.is_whitespace() || c.is_control();
    if revision.is_empty() || revision.starts_with('-') || revision.contains(odd) {
        return Err(format!("{revision:?} is not a revision"));
    }
    if revision.contains("..") {
        return Err(format!("{revision:?} is a range, not a revision"));
    }
    Ok(())
}

/// Debian policy, section 5.6.1: what a package's name is made of.
fn is_package(name: &str) -> bool {
    name.len() >= 2
        && name.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit())
        && name.bytes().all(|b| {
            b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.')
        })
}
