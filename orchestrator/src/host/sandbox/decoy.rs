// SPDX-License-Identifier: MIT OR Apache-2.0
//! A home folder that is nobody's, with what a thief would look for. A build has
//! no business there; what it does is noted.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use crate::fault::Fault;

/// Files that hold secrets in a real home.
const BAIT: [(&str, &[&str]); 4] = [
    (".ssh", &["config", "id_ecdsa", "id_ed25519", "id_rsa"]),
    (".gnupg", &["pubring.kbx", "secring.gpg"]),
    (".aws", &["credentials"]),
    ("", &[".bashrc", ".git-credentials", ".gitconfig", ".netrc", ".profile"]),
];
/// Most lines that are told.
const MAX_LINES: usize = 20;

/// A watched folder.
#[derive(Debug)]
pub(super) struct Decoy {
    inotify: Option<OwnedFd>,
    /// Names of the watched folders by inotify's number.
    folders: BTreeMap<i32, &'static str>,
    wrote: Vec<String>,
    read: Vec<String>,
}

impl Decoy {
    /// Makes the folder and watches it.
    ///
    /// # Errors
    /// An `infra` fault when it cannot be made. A host that has no watch left only
    /// loses the telling.
    pub(super) fn new(home: &Path) -> Result<Self, Fault> {
        let mut decoy = Self {
            inotify: inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok(),
            folders: BTreeMap::new(),
            wrote: Vec::new(),
            read: Vec::new(),
        };
        let failed = |error| Fault::io("make a home folder for a build", &error);
        std::fs::create_dir(home).map_err(failed)?;
        for (folder, files) in BAIT {
            let path = home.join(folder);
            if !folder.is_empty() {
                std::fs::create_dir(&path).map_err(failed)?;
            }
            for file in files {
                std::fs::write(path.join(file), "a decoy\n").map_err(failed)?;
            }
        }
        for (folder, _) in BAIT {
            let flags = WatchFlags::OPEN
                | WatchFlags::MODIFY
                | WatchFlags::CREATE
                | WatchFlags::DELETE
                | WatchFlags::MOVED_TO
                | WatchFlags::MOVED_FROM
                | WatchFlags::ONLYDIR;
            if let Some(inotify) = &decoy.inotify
                && let Ok(number) = inotify::add_watch(inotify, home.join(folder), flags)
            {
                decoy.folders.insert(number, folder);
            }
        }
        Ok(decoy)
    }

    /// What was done there so far, each once.
    pub(super) fn seen(&mut self) -> Vec<String> {
        self.drain();
        let wrote = self.wrote.iter().map(|name| format!("wrote to the home folder: {name}"));
        let read = self.read.iter().filter(|name| !self.wrote.contains(name));
        let read = read.map(|name| format!("read from the home folder: {name} (a decoy)"));
        // What somebody may have read matters more than what went nowhere.
        let mut lines: Vec<String> = read.chain(wrote).collect();
        if lines.len() > MAX_LINES {
            let more = lines.split_off(MAX_LINES).len();
            lines.push(format!("did {more} more things in the home folder"));
        }
        lines
    }

    fn drain(&mut self) {
        let Some(inotify) = &self.inotify else {
            return;
        };
        let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
        let mut reader = inotify::Reader::new(inotify, &mut buffer);
        while let Ok(event) = reader.next() {
            let folder = self.folders.get(&event.wd()).copied().unwrap_or_default();
            let name = event.file_name().map(|name| name.to_string_lossy().into_owned());
            let parts = ["~", folder, name.as_deref().unwrap_or_default()];
            let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            let list = match event.events() {
                // What the build made itself may be opened.
                events if events.intersects(ReadFlags::OPEN) => {
                    let bait = BAIT.iter().find(|(of, _)| *of == folder).map(|(_, files)| *files);
                    if name.as_deref().is_some_and(|name| !bait.unwrap_or_default().contains(&name))
                    {
                        continue;
                    }
                    &mut self.read
                }
                events if events.intersects(ReadFlags::QUEUE_OVERFLOW | ReadFlags::IGNORED) => {
                    continue;
                }
                _ => &mut self.wrote,
            };
            let shown = parts.join("/");
            if list.len() < MAX_LINES && !list.contains(&shown) {
                list.push(shown);
            }
        }
    }
}
