// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where mails come from: bytes, a file, a folder of files, a maildir, standard input.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::fault::Fault;

/// Most files of a folder that are read.
const MAX_FILES: usize = 100_000;

/// One input, which can be read twice: first from start to end, then the pieces
/// that turned out to matter.
#[derive(Debug)]
pub struct Input<'a> {
    /// The name in messages: a path, or `-`.
    pub name: String,
    data: Data<'a>,
}

#[derive(Debug)]
enum Data<'a> {
    Memory(&'a [u8]),
    /// Opened anew each time: a maildir has more files than a process may hold open.
    Path(PathBuf),
    /// Standard input or a pipe, kept in a file without a name.
    Spooled(File),
}

impl<'a> Input<'a> {
    /// Bytes under a name.
    #[must_use]
    pub fn bytes(name: impl Into<String>, bytes: &'a [u8]) -> Self {
        Self { name: name.into(), data: Data::Memory(bytes) }
    }

    /// Everything that can be read from a reader.
    ///
    /// # Errors
    /// Those of the reader and of the temporary file.
    pub fn spool(name: impl Into<String>, mut reader: impl Read) -> io::Result<Self> {
        let mut file = tempfile::tempfile()?;
        io::copy(&mut reader, &mut file)?;
        Ok(Self { name: name.into(), data: Data::Spooled(file) })
    }

    /// The input from its start.
    ///
    /// # Errors
    /// Where it cannot be opened.
    pub fn reader(&self) -> io::Result<Box<dyn BufRead + '_>> {
        Ok(match &self.data {
            Data::Memory(bytes) => Box::new(*bytes),
            Data::Path(path) => Box::new(BufReader::with_capacity(1 << 16, File::open(path)?)),
            Data::Spooled(file) => {
                let mut file = file;
                file.rewind()?;
                Box::new(BufReader::with_capacity(1 << 16, file))
            }
        })
    }

    /// A piece of the input.
    ///
    /// # Errors
    /// Where it cannot be read again, or has become shorter.
    pub fn piece(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        match &self.data {
            Data::Memory(all) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let piece = start.checked_add(length).and_then(|end| all.get(start..end));
                bytes.copy_from_slice(piece.ok_or(io::ErrorKind::UnexpectedEof)?);
            }
            Data::Path(path) => File::open(path)?.read_exact_at(&mut bytes, offset)?,
            Data::Spooled(file) => file.read_exact_at(&mut bytes, offset)?,
        }
        Ok(bytes)
    }
}

/// Opens a file, a folder, a maildir, or standard input (`-`).
///
/// # Errors
/// A `plan` fault where nothing can be read there.
pub fn open(path: &Path) -> Result<Vec<Input<'static>>, Fault> {
    let wrong = |path: &Path, error: &io::Error| {
        Fault::plan(format!("cannot be read: {error}")).at(path.display()).help("check the path")
    };
    if path == Path::new("-") {
        let input = Input::spool("-", io::stdin().lock());
        return Ok(vec![input.map_err(|error| Fault::io("read standard input", &error))?]);
    }
    let kind = std::fs::metadata(path).map_err(|error| wrong(path, &error))?;
    if !kind.is_dir() {
        let file = File::open(path).map_err(|error| wrong(path, &error))?;
        if kind.is_file() {
            return Ok(vec![of_path(path)]);
        }
        let input = Input::spool(path.display().to_string(), file);
        return Ok(vec![input.map_err(|error| wrong(path, &error))?]);
    }
    let is_maildir = path.join("cur").is_dir() || path.join("new").is_dir();
    let folders =
        if is_maildir { vec![path.join("cur"), path.join("new")] } else { vec![path.into()] };
    let mut files = Vec::new();
    for folder in folders.iter().filter(|folder| folder.is_dir()) {
        for entry in std::fs::read_dir(folder).map_err(|error| wrong(folder, &error))? {
            let file = entry.map_err(|error| wrong(folder, &error))?.path();
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let ours = name.starts_with('.') || name.ends_with('~') || name == "series.yaml";
            if !ours && file.is_file() {
                files.push((name, file));
            }
        }
    }
    if files.len() > MAX_FILES {
        return Err(Fault::plan(format!("{} files, more than {MAX_FILES}", files.len()))
            .at(path.display())
            .help("give the mails of one series only"));
    }
    if files.is_empty() {
        return Err(Fault::plan("there is no file in this folder").at(path.display()));
    }
    files.sort();
    Ok(files.iter().map(|(_, file)| of_path(file)).collect())
}

fn of_path(path: &Path) -> Input<'static> {
    Input { name: path.display().to_string(), data: Data::Path(path.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_every_kind_of_input_are_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.patch");
        std::fs::write(&file, b"0123456789").unwrap();
        for input in [
            Input::bytes("x", b"0123456789"),
            Input::spool("-", &b"0123456789"[..]).unwrap(),
            open(&file).unwrap().remove(0),
        ] {
            let mut all = String::new();
            input.reader().unwrap().read_to_string(&mut all).unwrap();
            assert_eq!(all, "0123456789");
            assert_eq!(input.piece(3, 4).unwrap(), b"3456");
            assert!(input.piece(8, 4).is_err() && input.piece(u64::MAX, 4).is_err());
        }
    }

    #[test]
    fn a_maildir_gives_its_mails_by_name_and_a_folder_its_files() {
        let folder = tempfile::tempdir().unwrap();
        for (name, path) in [("cur", "2:2,S"), ("new", "1"), ("tmp", "0")] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
            std::fs::write(folder.path().join(name).join(path), b"x").unwrap();
        }
        let names: Vec<String> =
            open(folder.path()).unwrap().into_iter().map(|input| input.name).collect();
        assert_eq!(names.len(), 2);
        assert!(names[0].ends_with("new/1") && names[1].ends_with("cur/2:2,S"));
        assert!(open(&folder.path().join("none")).is_err());
        assert_eq!(open(&folder.path().join("cur")).unwrap().len(), 1);
    }
}
