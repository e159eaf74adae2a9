// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian's source packages: fetched with apt, verified by its lists.

use std::path::{Path, PathBuf};

use super::{Source, Steps, import, publish, read, sha256_of};
use crate::fault::Fault;
use crate::host::process::{capture, check, command, last_lines, require_program};
use crate::store::Store;

/// What apt knows of a package's newest version.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Package {
    name: String,
    version: String,
    sha256: String,
}

/// The newest version of a package that apt knows.
///
/// # Errors
/// An `infra` fault when it cannot be fetched, verified or imported.
pub(super) async fn prepare(name: &str, store: &Store, steps: &Steps<'_>) -> Result<Source, Fault> {
    let package = match newest(name).await {
        Ok(package) => package,
        Err(fault) => return stored_instead(name, store, steps).ok_or(fault),
    };
    let key = source_key(&package);
    if let Some(source) = read(store, &key) {
        return Ok(source);
    }
    let _lock = store.lock("sources", &key, steps.events).await?;
    if let Some(source) = read(store, &key) {
        return Ok(source);
    }
    let scratch = store.scratch()?;
    steps.say(&format!("download {name} {}", package.version));
    let file = download(&package, scratch.path()).await?;
    steps.say("verify and unpack");
    let tree = unpack(&package, &file, scratch.path()).await?;
    steps.say("import into git");
    let entry = scratch.path().join("entry");
    let imported = import(&tree, &entry.join("git")).await?;
    let origin = format!("{name} {}", package.version);
    let source = imported.source(&key, origin, Some(package.sha256.clone()));
    let source = publish(store, &entry, source)?;
    steps.say("ready");
    Ok(source)
}

fn source_key(package: &Package) -> String {
    format!("debian-{}_{}-{}", package.name, package.version, &package.sha256[..12])
        .replace(|c: char| !(c.is_ascii_alphanumeric() || "-_.+~".contains(c)), "_")
}

/// Without apt's word on the newest version, the newest that was imported
/// serves, and the user is told.
fn stored_instead(package: &str, store: &Store, steps: &Steps<'_>) -> Option<Source> {
    let prefix = format!("debian-{package}_");
    let newest = std::fs::read_dir(store.path("sources", ""))
        .ok()?
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .max_by_key(|entry| entry.metadata().and_then(|data| data.modified()).ok())?;
    let source = read(store, &newest.file_name().to_string_lossy())?;
    steps
        .events
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
    let tree = super::archive::unpack(&tarball, &scratch.join("tree")).await?;
    // Space that the build needs soon.
    let _ = std::fs::remove_dir_all(&deb);
    let _ = std::fs::remove_file(file);
    Ok(tree)
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
}
