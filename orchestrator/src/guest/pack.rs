// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files that programs take along into a guest.
//!
//! A file of the host stands in the guest where it stands on the host, so that
//! run paths and absolute names hold. Only below a folder that the guest's init
//! mounts something on, it would be out of sight: such a path goes below
//! [`MOVED`]. Links are followed: the guest gets contents.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::libraries::{closure, read};
use crate::fault::Fault;
use crate::host::process::find_program;
use crate::plan::{Program, ProgramSource};

/// Where paths go that the guest mounts over.
const MOVED: &str = "/kvet/host";
/// Folders that init mounts on, and files that the initramfs has of its own.
const TAKEN: [&str; 7] = ["/dev", "/proc", "/run", "/sys", "/tmp", "/kvet", "/init"];
/// The shell of scripts.
const SHELL: &str = "/bin/sh";

/// What a script may call when the shell is busybox; a name that this busybox was
/// built without says so itself ("applet not found").
const APPLETS: &str = "[ [[ ash awk basename cat chgrp chmod chown cmp comm cp cut date dd df diff \
    dirname dmesg du echo egrep env expr false fgrep find fold free getopt grep groups gunzip gzip \
    head hexdump hostname id ionice kill killall less ln ls md5sum mkdir mkfifo mknod mktemp more \
    mount mv nice nohup nproc od paste patch pgrep pidof pkill printenv printf ps pwd readlink \
    realpath renice rev rm rmdir sed seq setsid sha256sum sleep sort split stat strings swapoff \
    swapon sync sysctl tac tail tar taskset tee test time timeout top touch tr true truncate tty \
    umount uname uniq unxz uptime usleep vi watch wc which whoami xargs xxd yes zcat";

/// What stands at a path in the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// An executable file with these contents.
    File(Vec<u8>),
    /// A symbolic link.
    Link(String),
}

/// Files by absolute path in the guest.
pub type Items = BTreeMap<String, Item>;

/// Adds what a program takes along; gives the words that start it in the guest.
/// `built` is the file of a kselftest.
///
/// # Errors
/// A `plan` fault at the program's place that names the file and what is wrong.
pub fn add(
    items: &mut Items,
    name: &str,
    program: &Program,
    built: Option<&Path>,
) -> Result<Vec<String>, Fault> {
    let placed = |fault: Fault| fault.at(&program.place);
    for file in &program.files {
        add_file(items, file).map_err(placed)?;
    }
    match &program.source {
        ProgramSource::Exec(path) => {
            add_elf(items, path).map_err(|fault| placed(explain(path, fault)))?;
            Ok(vec![guest_path(path)])
        }
        ProgramSource::Script(path) => {
            add_shell(items).map_err(placed)?;
            let text = read(path).map_err(|error| placed(unreadable(path, &error)))?;
            let place = format!("/kvet/scripts/{name}");
            items.insert(place.clone(), Item::File(text));
            Ok(vec![SHELL.to_owned(), place])
        }
        ProgramSource::Kselftest(target) => {
            let place = format!("/kvet/kselftest/{target}");
            if let Some(path) = built {
                let bytes = read(path).map_err(|error| placed(unreadable(path, &error)))?;
                items.insert(place.clone(), Item::File(bytes));
                for library in closure(path).map_err(placed)? {
                    add_library(items, &library.path, library.by_name.as_deref())?;
                }
            }
            Ok(vec![place])
        }
    }
}

/// A program that is a script is a common slip.
fn explain(path: &Path, fault: Fault) -> Fault {
    let script = read(path).is_ok_and(|bytes| bytes.starts_with(b"#!"));
    match script {
        true => fault.help("a shell script is a `script:`; for another language take its interpreter as `exec:` and the file in `files:` and `args:`"),
        false if fault.help.is_some() => fault,
        false => fault.help("`exec:` takes executables for x86-64"),
    }
}

/// A file that is needed beside a program; an executable brings its libraries.
fn add_file(items: &mut Items, path: &Path) -> Result<(), Fault> {
    let bytes = read(path).map_err(|error| unreadable(path, &error))?;
    if bytes.starts_with(b"\x7fELF") {
        return add_elf(items, path);
    }
    items.insert(guest_path(path), Item::File(bytes));
    Ok(())
}

fn add_elf(items: &mut Items, path: &Path) -> Result<(), Fault> {
    for library in closure(path)? {
        add_library(items, &library.path, library.by_name.as_deref())?;
    }
    add_library(items, path, None)
}

/// `by_name` is set for a library that the guest's loader has to find by itself.
/// It knows only the folders that are built into it, of which /lib64 and
/// /usr/lib64 or Debian's are always among them; a library from another folder
/// gets a link in each.
fn add_library(items: &mut Items, path: &Path, by_name: Option<&str>) -> Result<(), Fault> {
    let place = guest_path(path);
    if !items.contains_key(&place) {
        let bytes = read(path).map_err(|error| unreadable(path, &error))?;
        items.insert(place.clone(), Item::File(bytes));
    }
    let Some(name) = by_name else { return Ok(()) };
    let folders = ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64"];
    let folder = Path::new(&place).parent().unwrap_or(Path::new("/"));
    if !folders.iter().any(|known| Path::new(known) == folder) {
        for folder in ["/usr/lib/x86_64-linux-gnu", "/usr/lib64"] {
            let link = format!("{folder}/{name}");
            items.entry(link).or_insert_with(|| Item::Link(place.clone()));
        }
    }
    Ok(())
}

/// busybox with its commands if the host has it, or else the host's own shell,
/// which has only what is built into it and what `files:` adds.
fn add_shell(items: &mut Items) -> Result<(), Fault> {
    if let Some(busybox) = find_program("busybox") {
        let bytes = read(&busybox).map_err(|error| unreadable(&busybox, &error))?;
        for library in closure(&busybox)? {
            add_library(items, &library.path, library.by_name.as_deref())?;
        }
        items.insert("/bin/busybox".to_owned(), Item::File(bytes));
        for name in APPLETS.split_whitespace().chain(["sh"]) {
            let link = format!("/bin/{name}");
            items.entry(link).or_insert_with(|| Item::Link("busybox".to_owned()));
        }
        return Ok(());
    }
    let shell = Path::new(SHELL);
    if !shell.is_file() {
        return Err(Fault::infra(
            "a script needs a shell, and there is neither busybox nor /bin/sh",
        )
        .help("run ./setup, or: sudo apt-get install busybox-static"));
    }
    add_elf(items, shell)
}

fn unreadable(path: &Path, error: &std::io::Error) -> Fault {
    Fault::plan(format!("{} cannot be read: {error}", path.display())).help("check the path")
}

/// Where a file of the host stands in the guest.
#[must_use]
pub fn guest_path(path: &Path) -> String {
    // A run path may have led here through `..`.
    let mut normal = PathBuf::from("/");
    for component in path.components() {
        match component {
            std::path::Component::ParentDir => drop(normal.pop()),
            std::path::Component::Normal(part) => normal.push(part),
            _ => {}
        }
    }
    let taken = TAKEN.iter().any(|folder| normal.starts_with(folder));
    format!("{}{}", if taken { MOVED } else { "" }, normal.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvet_records::Format;

    fn program(source: ProgramSource) -> Program {
        Program {
            source,
            arguments: Vec::new(),
            environment: BTreeMap::new(),
            format: Format::Exit,
            files: Vec::new(),
            place: "plan.yaml:9:5".into(),
        }
    }

    #[test]
    fn paths_stay_unless_the_guest_mounts_over_them() {
        assert_eq!(guest_path(Path::new("/usr/bin/a")), "/usr/bin/a");
        assert_eq!(guest_path(Path::new("/tmp/a")), "/kvet/host/tmp/a");
        assert_eq!(guest_path(Path::new("/tmpfile")), "/tmpfile");
        assert_eq!(guest_path(Path::new("/opt/a/../../run/b")), "/kvet/host/run/b");
        assert_eq!(guest_path(Path::new("/init")), "/kvet/host/init");
    }

    #[test]
    fn a_dynamic_program_comes_with_its_loader_in_its_place() {
        let mut items = Items::new();
        let path = std::env::current_exe().unwrap();
        let words = add(&mut items, "t", &program(ProgramSource::Exec(path)), None).unwrap();
        assert!(items.contains_key(&words[0]));
        assert!(items.contains_key("/lib64/ld-linux-x86-64.so.2"));
    }

    #[test]
    fn a_library_from_an_unusual_folder_is_linked_where_the_loader_looks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libx.so.1");
        std::fs::write(&path, b"x").unwrap();
        let mut items = Items::new();
        add_library(&mut items, &path, Some("libx.so.1")).unwrap();
        let place = guest_path(&path);
        assert_eq!(items["/usr/lib64/libx.so.1"], Item::Link(place.clone()));
        assert_eq!(items[&place], Item::File(b"x".to_vec()));
    }

    #[test]
    fn a_script_is_started_by_a_shell_that_comes_along() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.sh");
        std::fs::write(&path, "echo hi\n").unwrap();
        let mut items = Items::new();
        let words =
            add(&mut items, "t", &program(ProgramSource::Script(path.clone())), None).unwrap();
        assert_eq!(words, ["/bin/sh", "/kvet/scripts/t"]);
        assert!(words.iter().all(|word| items.contains_key(word)), "{:?}", items.keys());

        let fault = add(&mut items, "t", &program(ProgramSource::Exec(path)), None).unwrap_err();
        assert_eq!(fault.place.as_deref(), Some("plan.yaml:9:5"));
        std::fs::write(folder.path().join("s"), "#!/bin/sh\n").unwrap();
        let script = ProgramSource::Exec(folder.path().join("s"));
        let fault = add(&mut items, "t", &program(script), None).unwrap_err();
        assert!(fault.help.unwrap().contains("`script:`"));
    }
}
