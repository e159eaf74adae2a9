// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the libraries of a program are, as ld.so(8) searches for them:
//! `DT_RPATH` of the file and of what loads it, unless it has a `DT_RUNPATH`;
//! `DT_RUNPATH` of the file; the folders of /etc/ld.so.conf; the default folders.
//! `LD_LIBRARY_PATH` is not looked at, since guests do not get it.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use super::elf::{Needs, needs};
use crate::fault::Fault;

/// Folders that every build of ld.so searches, Debian's first.
const DEFAULTS: [&str; 6] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];
/// Largest file that goes into a guest.
pub(super) const MAX_FILE_BYTES: u64 = 512 * 1024 * 1024;
/// Most files that one program may bring along.
const MAX_LIBRARIES: usize = 2000;
/// `include` in an ld.so.conf is followed this deep.
const MAX_INCLUDES: usize = 4;

/// A library that was found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Library {
    /// Where it is on the host.
    pub path: PathBuf,
    /// The name by which the loader looks for it in its own folders; none for the
    /// loader itself and for what an absolute path or a run path names.
    pub by_name: Option<String>,
}

/// Finds all that a program needs: its loader and its libraries, theirs too.
///
/// # Errors
/// A `plan` fault that names the file and what it lacks.
pub fn closure(program: &Path) -> Result<BTreeSet<Library>, Fault> {
    closure_in(program, &system_folders(Path::new("/etc/ld.so.conf")))
}

fn closure_in(program: &Path, system: &[PathBuf]) -> Result<BTreeSet<Library>, Fault> {
    let mut found = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut queue = VecDeque::new();
    let first = read_needs(program)?;
    if let Some(interpreter) = &first.interpreter {
        let path = PathBuf::from(interpreter);
        if !path.is_absolute() || !path.is_file() {
            return Err(lacks(program, interpreter, "its loader, which is not there"));
        }
        seen.insert(file_name(&path));
        found.insert(Library { path, by_name: None });
    }
    queue.push_back((program.to_owned(), first, Vec::<PathBuf>::new()));
    while let Some((file, needs, inherited)) = queue.pop_front() {
        let origin = file.parent().unwrap_or(Path::new("/")).to_owned();
        let own: Vec<PathBuf> = needs.rpath.iter().map(|path| expand(path, &origin)).collect();
        let inherited: Vec<PathBuf> = own.into_iter().chain(inherited).collect();
        let run: Vec<PathBuf> = needs.runpath.iter().map(|path| expand(path, &origin)).collect();
        for name in &needs.libraries {
            // A library is loaded once; who asks first decides which.
            if !seen.insert(name.clone()) {
                continue;
            }
            let before = if needs.runpath.is_empty() { &inherited } else { &run };
            let library = find(name, before, system).ok_or_else(|| {
                lacks(&file, name, "a library that is in none of the folders that ld.so searches")
            })?;
            let inner = read_needs(&library.path)?;
            queue.push_back((library.path.clone(), inner, inherited.clone()));
            found.insert(library);
            if found.len() > MAX_LIBRARIES {
                return Err(lacks(program, name, "one library too many"));
            }
        }
    }
    Ok(found)
}

fn find(name: &str, first: &[PathBuf], system: &[PathBuf]) -> Option<Library> {
    if name.contains('/') {
        let path = PathBuf::from(name);
        return (path.is_absolute() && fits(&path)).then_some(Library { path, by_name: None });
    }
    let look = |folders: &[PathBuf]| {
        folders.iter().map(|folder| folder.join(name)).find(|path| fits(path))
    };
    if let Some(path) = look(first) {
        return Some(Library { path, by_name: None });
    }
    let path = look(system)?;
    Some(Library { path, by_name: Some(name.to_owned()) })
}

/// ld.so passes over files of another machine.
fn fits(path: &Path) -> bool {
    read(path).is_ok_and(|bytes| needs(&bytes).is_ok())
}

fn read_needs(path: &Path) -> Result<Needs, Fault> {
    let bytes = read(path)
        .map_err(|error| Fault::plan(format!("{} cannot be read: {error}", path.display())))?;
    needs(&bytes).map_err(|why| Fault::plan(format!("{}: {why}", path.display())))
}

/// A file that is not too large for a guest.
pub(super) fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let file = std::fs::File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("not a file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(std::io::Error::other(format!("more than {MAX_FILE_BYTES} bytes")));
    }
    Ok(bytes)
}

fn lacks(file: &Path, name: &str, what: &str) -> Fault {
    Fault::plan(format!("{} needs {name}, {what}", file.display()))
        .help("install the package that brings it (`apt-file search` finds it), or link the program statically")
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// `$ORIGIN` is the folder of the file; `$LIB` and `$PLATFORM` are Debian's.
fn expand(path: &str, origin: &Path) -> PathBuf {
    let origin = origin.to_string_lossy();
    let mut out = path.to_owned();
    for (name, value) in
        [("ORIGIN", origin.as_ref()), ("LIB", "lib/x86_64-linux-gnu"), ("PLATFORM", "x86_64")]
    {
        out = out.replace(&format!("${{{name}}}"), value).replace(&format!("${name}"), value);
    }
    PathBuf::from(out)
}

/// The folders of an ld.so.conf, then the default ones.
fn system_folders(conf: &Path) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    read_conf(conf, MAX_INCLUDES, &mut folders);
    folders.extend(DEFAULTS.iter().map(PathBuf::from));
    folders
}

/// The format is that of ldconfig(8): a folder a line, `include PATTERN`, `#`.
fn read_conf(conf: &Path, depth: usize, folders: &mut Vec<PathBuf>) {
    let Ok(text) = std::fs::read_to_string(conf) else { return };
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(pattern) = line.strip_prefix("include ") {
            let parent = conf.parent().unwrap_or(Path::new("/"));
            if depth > 0 {
                for file in matching(&parent.join(pattern.trim())) {
                    read_conf(&file, depth - 1, folders);
                }
            }
        } else if line.starts_with('/') {
            folders.push(PathBuf::from(line));
        }
    }
}

/// Files that match a pattern with one `*` in its last part, sorted.
fn matching(pattern: &Path) -> Vec<PathBuf> {
    let name = file_name(pattern);
    let Some((start, end)) = name.split_once('*') else { return vec![pattern.to_owned()] };
    let folder = pattern.parent().unwrap_or(Path::new("/"));
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let name = file_name(path);
            name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
        })
        .collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_program_brings_its_loader_and_all_libraries() {
        let found = closure(&std::env::current_exe().unwrap()).unwrap();
        let names: Vec<String> = found.iter().map(|library| file_name(&library.path)).collect();
        assert!(names.iter().any(|name| name.starts_with("ld-linux")), "{names:?}");
        assert!(names.contains(&"libc.so.6".to_owned()), "{names:?}");
    }

    /// What the dynamic loader itself finds is the control.
    #[test]
    fn the_same_is_found_as_by_the_loader_itself() {
        let program = std::env::current_exe().unwrap();
        let output = std::process::Command::new("ldd").arg(&program).output();
        let Ok(output) = output else {
            println!("not run: there is no ldd here to compare with");
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let theirs: BTreeSet<PathBuf> = text
            .split_whitespace()
            .filter(|word| word.starts_with('/'))
            .map(|path| std::fs::canonicalize(path).unwrap())
            .collect();
        let ours: BTreeSet<PathBuf> = closure(&program)
            .unwrap()
            .iter()
            .map(|library| std::fs::canonicalize(&library.path).unwrap())
            .collect();
        assert_eq!(ours, theirs);
    }

    #[test]
    fn a_library_that_is_nowhere_is_named_with_who_needs_it() {
        let program = std::env::current_exe().unwrap();
        let fault = closure_in(&program, &[]).unwrap_err();
        assert!(fault.what.contains("needs lib"), "{fault}");
        assert!(closure(Path::new("/etc/passwd")).unwrap_err().what.contains("not an ELF file"));
    }

    #[test]
    fn conf_files_include_others_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        std::fs::create_dir(folder.path().join("d")).unwrap();
        write("d/b.conf", "/b # comment\n");
        write("d/a.conf", "# none\n/a\ninclude d/*.conf\n");
        write("d/c.txt", "/c\n");
        write("ld.so.conf", "include d/*.conf\n/last\nrelative\n");
        let folders = system_folders(&folder.path().join("ld.so.conf"));
        let shown: Vec<&str> = folders.iter().map(|path| path.to_str().unwrap()).take(3).collect();
        assert_eq!(shown, ["/a", "/b", "/last"]);
    }

    #[test]
    fn run_paths_are_expanded() {
        assert_eq!(expand("$ORIGIN/../lib", Path::new("/opt/x")), Path::new("/opt/x/../lib"));
        assert_eq!(expand("${ORIGIN}/a", Path::new("/o")), Path::new("/o/a"));
    }
}
