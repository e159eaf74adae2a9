// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian's source packages: fetched with apt, verified by its lists.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Source, Steps, import, publish, read, sha256_of};
use crate::fault::Fault;
use crate::host::process::{capture, check, command, last_lines, require_program};
use crate::report::json::pretty;
use crate::store::{Store, key, write_atomically};

/// What apt knows of a package's newest version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    let package = match newest_by_stamp(name, store).await {
        Ok(package) => package,
        Err(fault) => return stored_instead(name, store, steps).ok_or(fault),
    };
    let entry_name = source_key(&package);
    let key = entry_name.as_str();
    if let Some(source) = read(store, key) {
        return Ok(source);
    }
    let _lock = store.lock("sources", key, steps.events).await?;
    if let Some(source) = read(store, key) {
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
    let source = imported.source(key, origin, Some(package.sha256.clone()));
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

/// apt's answer, which takes it a second, as long as nothing that it rests on has
/// changed.
async fn newest_by_stamp(name: &str, store: &Store) -> Result<Package, Fault> {
    #[derive(Serialize, Deserialize)]
    struct Kept {
        stamp: String,
        package: Package,
    }
    let stamp = apt_stamp(Path::new("/"));
    let file = store.path("probes", &format!("apt-{}.json", key([name.as_bytes()])));
    let kept: Option<Kept> =
        std::fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok());
    if let Some(kept) = kept
        && kept.stamp == stamp
    {
        return Ok(kept.package);
    }
    let package = newest(name).await?;
    let kept = Kept { stamp, package: package.clone() };
    // What cannot be kept is asked again.
    let _ = write_atomically(&file, &pretty(&kept));
    Ok(package)
}

/// A hash of the names, sizes and times of apt's lists and settings.
fn apt_stamp(root: &Path) -> String {
    let mut seen = Vec::new();
    let folders = ["var/lib/apt/lists", "etc/apt", "etc/apt/sources.list.d"];
    let more = ["etc/apt/preferences.d", "etc/apt/apt.conf.d"];
    for folder in folders.into_iter().chain(more) {
        for entry in std::fs::read_dir(root.join(folder)).into_iter().flatten().flatten() {
            let Ok(data) = std::fs::metadata(entry.path()) else { continue };
            let size = if data.is_file() { data.len() } else { 0 };
            seen.push(format!("{} {size} {:?}", entry.path().display(), data.modified().ok()));
        }
    }
    seen.sort();
    key([seen.join("\n").as_bytes()])
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
    fn the_stamp_changes_with_apts_lists_and_settings() {
        let root = tempfile::tempdir().unwrap();
        let stamp = || apt_stamp(root.path());
        let empty = stamp();
        for folder in ["var/lib/apt/lists", "etc/apt/sources.list.d"] {
            std::fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        std::fs::write(root.path().join("var/lib/apt/lists/a"), "1").unwrap();
        let listed = stamp();
        assert_ne!(listed, empty);
        assert_eq!(stamp(), listed);
        std::fs::write(root.path().join("var/lib/apt/lists/a"), "12").unwrap();
        let updated = stamp();
        assert_ne!(updated, listed);
        std::fs::write(root.path().join("etc/apt/sources.list.d/b"), "").unwrap();
        assert_ne!(stamp(), updated);
    }

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
