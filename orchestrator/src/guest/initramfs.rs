// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes an initramfs in the kernel's "newc" cpio format
//! (Documentation/driver-api/early-userspace/buffer-format.rst): no root, no
//! mount, and the same bytes for the same content.

use std::io::Write;
use std::path::PathBuf;

use cpio::newc::{Builder, ModeFileType, trailer};

use super::GUEST_BINARY;
use crate::fault::Fault;
use crate::store::{Store, key, write_atomically};

/// Folders that init mounts on.
const FOLDERS: [&str; 6] = ["dev", "proc", "run", "sys", "tmp", "var"];
/// The kernel opens /dev/console for init before anything is mounted.
const CONSOLE: (u32, u32) = (5, 1);

/// The initramfs with kvet's init and tests, in the store.
///
/// # Errors
/// An `infra` fault when it cannot be written.
pub fn prepare(store: &Store) -> Result<PathBuf, Fault> {
    let bytes = archive().map_err(|error| Fault::io("write the initramfs", &error))?;
    let path = store.path("initramfs", &format!("{}.cpio", key([bytes.as_slice()])));
    if !std::fs::metadata(&path).is_ok_and(|data| data.len() == bytes.len() as u64) {
        write_atomically(&path, &bytes)?;
    }
    Ok(path)
}

fn archive() -> std::io::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(GUEST_BINARY.len() + 4096);
    let mut inode = 0;
    let mut entry = |name: &str, kind: ModeFileType, mode: u32| {
        inode += 1;
        Builder::new(name).ino(inode).mode(mode).set_mode_file_type(kind).mtime(0).nlink(1)
    };
    for folder in FOLDERS {
        entry(folder, ModeFileType::Directory, 0o755).write(&mut out, 0).finish()?;
    }
    let (major, minor) = CONSOLE;
    let console = entry("dev/console", ModeFileType::Char, 0o600);
    console.rdev_major(major).rdev_minor(minor).write(&mut out, 0).finish()?;
    let size = u32::try_from(GUEST_BINARY.len()).map_err(std::io::Error::other)?;
    let mut init = entry("init", ModeFileType::Regular, 0o755).write(&mut out, size);
    init.write_all(GUEST_BINARY)?;
    init.finish()?;
    trailer(&mut out)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpio::newc::Reader;

    #[test]
    fn the_archive_holds_init_and_a_console_and_is_always_the_same() {
        let bytes = archive().unwrap();
        assert_eq!(bytes, archive().unwrap());
        let mut rest: &[u8] = &bytes;
        let mut seen = Vec::new();
        loop {
            let reader = Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            seen.push((reader.entry().name().to_owned(), reader.entry().mode()));
            rest = reader.finish().unwrap();
        }
        assert!(seen.contains(&("init".to_owned(), 0o100_755)), "{seen:?}");
        assert!(seen.contains(&("dev/console".to_owned(), 0o020_600)), "{seen:?}");
        assert!(seen.contains(&("proc".to_owned(), 0o040_755)), "{seen:?}");
    }
}
