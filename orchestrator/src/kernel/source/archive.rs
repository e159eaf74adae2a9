// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tarballs: verified by the hash that the user gives.

use std::path::{Path, PathBuf};

use super::{Source, Steps, import, publish, read, sha256_of};
use crate::fault::Fault;
use crate::host::process::{check, command};
use crate::plan::manifest::TarballEntry;
use crate::store::Store;

/// A tarball's tree.
///
/// # Errors
/// A `plan` fault when the tarball is not the one that the plan means; an
/// `infra` fault when it cannot be unpacked or imported.
pub(super) async fn prepare(
    entry: &TarballEntry,
    store: &Store,
    steps: &Steps<'_>,
) -> Result<Source, Fault> {
    let key = format!("tarball-{}", &entry.sha256[..32]);
    if let Some(source) = read(store, &key) {
        return Ok(source);
    }
    let _lock = store.lock("sources", &key, steps.events).await?;
    if let Some(source) = read(store, &key) {
        return Ok(source);
    }
    steps.say("verify and unpack");
    let found = sha256_of(&entry.path).await?;
    if found != entry.sha256 {
        return Err(Fault::plan(format!("SHA-256 is {found}, not {}", entry.sha256))
            .at(entry.path.display())
            .help("take the tarball from its source again, or mend its entry in kernels/"));
    }
    let scratch = store.scratch()?;
    let tree = unpack(&entry.path, &scratch.path().join("tree")).await?;
    steps.say("import into git");
    let entry_folder = scratch.path().join("entry");
    let imported = import(&tree, &entry_folder.join("git")).await.map_err(|fault| {
        if fault.place.is_none() { fault.at(entry.path.display()) } else { fault }
    })?;
    let name = entry.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let source = imported.source(&key, name, Some(found));
    let source = publish(store, &entry_folder, source)?;
    steps.say("ready");
    Ok(source)
}

/// Unpacks a tarball below the new folder `to`; the folder that holds the tree,
/// which most tarballs have inside.
pub(super) async fn unpack(tarball: &Path, to: &Path) -> Result<PathBuf, Fault> {
    std::fs::create_dir(to).map_err(|error| Fault::io("make a folder for the source", &error))?;
    let mut tar = command("tar");
    tar.args(["--extract", "--no-same-owner", "--no-same-permissions", "--file"]);
    check(tar.arg(tarball).arg("--directory").arg(to), b"").await.map_err(|fault| {
        let full = fault.help.as_deref().is_some_and(|help| help.contains("space"));
        if full {
            return fault;
        }
        let mut wrong = Fault::plan("tar cannot unpack it whole").at(tarball.display());
        wrong.evidence = fault.evidence;
        wrong.help("take the tarball from its source again; it is damaged, or no tarball")
    })?;
    let entries = std::fs::read_dir(to).into_iter().flatten().flatten();
    let entries: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    Ok(match &entries[..] {
        [only] if only.is_dir() && !only.is_symlink() => only.clone(),
        _ => to.to_owned(),
    })
}
