// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of a folder in which somebody else's programs have run: a name there may
//! by now be a link to a file of the user's, or a pipe that never ends. Nothing
//! here follows a link or reads what is no regular file.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, unlinkat};

/// Opens a regular file for reading. `name` is relative to `folder`.
///
/// # Errors
/// What the system says; `InvalidInput` for a name that leads out of the folder and
/// for what is no regular file.
pub fn open(folder: &Path, name: impl AsRef<Path>) -> io::Result<File> {
    let (parent, last) = parent(folder, name.as_ref())?;
    // A pipe without a writer is not waited for.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(&parent, &last, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(file)
}

/// Reads a file of at most `most` bytes.
///
/// # Errors
/// As [`open`]; `FileTooLarge` for a larger one.
pub fn read(folder: &Path, name: impl AsRef<Path>, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(folder, name)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// Copies a file to `to`, which is outside.
///
/// # Errors
/// As [`open`], and what writing reports.
pub fn copy(folder: &Path, name: impl AsRef<Path>, to: &Path) -> io::Result<()> {
    let mut from = open(folder, name)?;
    let mode = from.metadata()?.permissions();
    let mut file = File::create(to)?;
    io::copy(&mut from, &mut file)?;
    file.set_permissions(mode)
}

/// Puts a new file in the place of whatever has the name, which must not be a
/// folder.
///
/// # Errors
/// What the system says.
pub fn write(folder: &Path, name: impl AsRef<Path>, bytes: &[u8]) -> io::Result<()> {
    let (parent, last) = parent(folder, name.as_ref())?;
    match unlinkat(&parent, &last, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    File::from(openat(&parent, &last, flags, Mode::from(0o666))?).write_all(bytes)
}

/// The folder that holds `name`, reached without links, and the last part of it.
fn parent(folder: &Path, name: &Path) -> io::Result<(OwnedFd, std::ffi::OsString)> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidInput, "not a name below the folder");
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = openat(CWD, folder, flags, Mode::empty())?;
    let mut parts = name.components().peekable();
    while let Some(part) = parts.next() {
        let Component::Normal(part) = part else {
            return Err(wrong());
        };
        if parts.peek().is_none() {
            return Ok((at, part.to_owned()));
        }
        at = openat(&at, part, flags | OFlags::NOFOLLOW, Mode::empty())?;
    }
    Err(wrong())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_are_read_copied_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("a")).unwrap();
        write(folder.path(), "a/b", b"one").unwrap();
        write(folder.path(), "a/b", b"two").unwrap();
        assert_eq!(read(folder.path(), "a/b", 3).unwrap(), b"two");
        assert!(read(folder.path(), "a/b", 2).is_err());
        copy(folder.path(), "a/b", &folder.path().join("c")).unwrap();
        assert_eq!(std::fs::read(folder.path().join("c")).unwrap(), b"two");
    }

    #[test]
    fn links_pipes_and_ways_out_are_refused() {
        let outside = tempfile::tempdir().unwrap();
        let secret = outside.path().join("secret");
        std::fs::write(&secret, "s").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        symlink(&secret, here.join("link")).unwrap();
        symlink(outside.path(), here.join("folder")).unwrap();
        rustix::fs::mknodat(CWD, here.join("pipe"), rustix::fs::FileType::Fifo, Mode::RUSR, 0)
            .unwrap();
        let up = format!("../{}/secret", outside.path().file_name().unwrap().display());
        for name in ["link", "folder/secret", "pipe", &up, "/etc/passwd", "", "none"] {
            assert!(open(here, name).is_err(), "{name}");
        }
        write(here, "link", b"mine").unwrap();
        assert!(write(here, "folder/secret", b"mine").is_err());
        assert_eq!(std::fs::read(&secret).unwrap(), b"s");
        assert_eq!(read(here, "link", 10).unwrap(), b"mine");
    }
}
