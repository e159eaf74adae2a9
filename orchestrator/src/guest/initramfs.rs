// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes an initramfs in the kernel's "newc" cpio format
//! (Documentation/driver-api/early-userspace/buffer-format.rst): no root, no
//! mount, and the same bytes for the same content.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use cpio::newc::{Builder, ModeFileType, trailer};

use super::GUEST_BINARY;
use super::pack::{Item, Items};
use crate::fault::Fault;
use crate::store::{Store, key, touch, write_atomically};

/// Folders that init mounts on.
const FOLDERS: [&str; 6] = ["dev", "proc", "run", "sys", "tmp", "var"];
/// The kernel opens /dev/console for init before anything is mounted.
const CONSOLE: (u32, u32) = (5, 1);
/// S_IFLNK, for which the cpio crate has no name.
const LINK_MODE: u32 = 0o120_777;

/// The initramfs with kvet's init and tests, in the store.
///
/// # Errors
/// An `infra` fault when it cannot be written.
pub fn prepare(store: &Store) -> Result<PathBuf, Fault> {
    prepare_with(store, &Items::new())
}

/// The initramfs with kvet's init and tests and the files of programs.
///
/// # Errors
/// An `infra` fault when it cannot be written.
pub fn prepare_with(store: &Store, items: &Items) -> Result<PathBuf, Fault> {
    let bytes = archive(items).map_err(|error| Fault::io("write the initramfs", &error))?;
    let path = store.path("initramfs", &format!("{}.cpio", key([bytes.as_slice()])));
    if std::fs::read(&path).is_ok_and(|found| found == bytes) {
        touch(&path);
    } else {
        write_atomically(&path, &bytes)?;
    }
    Ok(path)
}

fn archive(items: &Items) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(GUEST_BINARY.len() + 4096);
    let mut inode = 0;
    let mut entry = |name: &str, mode: u32| {
        inode += 1;
        Builder::new(name).ino(inode).mode(mode).mtime(0).nlink(1)
    };
    let of_kind = |builder: Builder, kind| builder.set_mode_file_type(kind);
    for folder in folders(items) {
        of_kind(entry(&folder, 0o755), ModeFileType::Directory).write(&mut out, 0).finish()?;
    }
    let (major, minor) = CONSOLE;
    let console = of_kind(entry("dev/console", 0o600), ModeFileType::Char);
    console.rdev_major(major).rdev_minor(minor).write(&mut out, 0).finish()?;
    let file = |out: &mut Vec<u8>, builder: Builder, bytes: &[u8]| -> std::io::Result<()> {
        let size = u32::try_from(bytes.len()).map_err(std::io::Error::other)?;
        let mut writer = builder.write(out, size);
        writer.write_all(bytes)?;
        writer.finish().map(drop)
    };
    let init = of_kind(entry("init", 0o755), ModeFileType::Regular);
    file(&mut out, init, GUEST_BINARY)?;
    for (path, item) in items {
        let name = path.trim_start_matches('/');
        match item {
            Item::File(bytes) => {
                let builder = of_kind(entry(name, 0o755), ModeFileType::Regular);
                file(&mut out, builder, bytes)?;
            }
            Item::Link(target) => file(&mut out, entry(name, LINK_MODE), target.as_bytes())?,
        }
    }
    trailer(&mut out)?;
    Ok(out)
}

/// Every folder that something stands in, parents first.
fn folders(items: &Items) -> BTreeSet<String> {
    let mut folders: BTreeSet<String> = FOLDERS.iter().map(|&folder| folder.to_owned()).collect();
    for path in items.keys() {
        let inside = Path::new(path.trim_start_matches('/'));
        for folder in inside.ancestors().skip(1).filter(|folder| *folder != Path::new("")) {
            folders.insert(folder.display().to_string());
        }
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpio::newc::Reader;

    fn entries(bytes: &[u8]) -> Vec<(String, u32)> {
        let mut rest = bytes;
        let mut seen = Vec::new();
        loop {
            let reader = Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                return seen;
            }
            seen.push((reader.entry().name().to_owned(), reader.entry().mode()));
            rest = reader.finish().unwrap();
        }
    }

    #[test]
    fn the_archive_holds_init_and_a_console_and_is_always_the_same() {
        let bytes = archive(&Items::new()).unwrap();
        assert_eq!(bytes, archive(&Items::new()).unwrap());
        let seen = entries(&bytes);
        assert!(seen.contains(&("init".to_owned(), 0o100_755)), "{seen:?}");
        assert!(seen.contains(&("dev/console".to_owned(), 0o020_600)), "{seen:?}");
        assert!(seen.contains(&("proc".to_owned(), 0o040_755)), "{seen:?}");
    }

    #[test]
    fn files_and_links_follow_their_folders() {
        let items = Items::from([
            ("/usr/lib/a".to_owned(), Item::File(b"x".to_vec())),
            ("/bin/sh".to_owned(), Item::Link("busybox".to_owned())),
        ]);
        let seen = entries(&archive(&items).unwrap());
        let at = |name: &str, mode: u32| {
            seen.iter().position(|entry| *entry == (name.to_owned(), mode)).unwrap()
        };
        assert!(at("usr", 0o040_755) < at("usr/lib", 0o040_755));
        assert!(at("usr/lib", 0o040_755) < at("usr/lib/a", 0o100_755));
        assert!(at("bin", 0o040_755) < at("bin/sh", 0o120_777));
    }
}
