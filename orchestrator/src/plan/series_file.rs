// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads what a plan calls a series: its `series.yaml` and its patches.

use std::path::{Path, PathBuf};

use super::manifest::{SERIES_SCHEMA, SeriesFile};
use super::resolve::{Resolver, files_in, folders_in, is_component, known, wrong_schema};
use super::yaml::{Document, load};
use super::{PatchFile, PatchSet, Series};
use crate::fault::Fault;

/// Largest patch that is read; the largest mails on the kernel's lists are far below.
const MAX_PATCH_BYTES: u64 = 64 * 1024 * 1024;

impl Resolver<'_> {
    pub(super) fn series_file(
        &mut self,
        path: &str,
        name: &str,
    ) -> Option<(PathBuf, Document<SeriesFile>)> {
        let patches = self.root.join("patches");
        let folder = if name.contains('/') { self.root.join(name) } else { patches.join(name) };
        if !folder.is_dir() {
            self.report_unknown(path, "series", name, &folders_in(&patches));
            return None;
        }
        match load::<SeriesFile>(&folder.join("series.yaml")) {
            Ok(document) if document.value.schema != SERIES_SCHEMA => {
                self.faults.push(wrong_schema(&document, &document.value.schema, SERIES_SCHEMA));
                None
            }
            Ok(document) => Some((folder, document)),
            Err(fault) => {
                self.faults.push(fault);
                None
            }
        }
    }

    pub(super) fn series(
        &mut self,
        folder: &Path,
        document: &Document<SeriesFile>,
        kernel: &str,
    ) -> Option<Series> {
        let faults = self.faults.len();
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !is_component(&name) {
            self.faults.push(document.fault("", format!("{name:?} cannot name a series")));
        }
        let file = &document.value;
        for (index, expectation) in file.expect.iter().enumerate() {
            let same = |other: &&super::manifest::Expectation| {
                other.test == expectation.test && other.observation == expectation.observation
            };
            if file.expect[..index].iter().any(|other| same(&other)) {
                let what = format!("{} is declared twice", expectation.observation);
                self.push_once(document.fault(&format!("expect.{index}.observation"), what));
            }
            if !self.tests.contains_key(&expectation.test) {
                let names: Vec<String> = self.tests.keys().cloned().collect();
                let fault = document.fault(
                    &format!("expect.{index}.test"),
                    format!("no guest test {:?}", expectation.test),
                );
                self.push_once(fault.help(known(&expectation.test, &names)));
            }
        }
        let entry = &file.kernels[kernel];
        let mut prerequisites = Vec::new();
        for (index, wanted) in entry.prerequisites.iter().enumerate() {
            let all = self.root.join("patches/prerequisites");
            let folder = all.join(wanted);
            if !is_component(wanted) || !folder.is_dir() {
                let place = format!("kernels.{kernel}.prerequisites.{index}");
                let fault = document.fault(&place, format!("no prerequisite {wanted:?}"));
                self.push_once(fault.help(known(wanted, &folders_in(&all))));
                continue;
            }
            match patches_in(&folder) {
                Ok(patches) => prerequisites.push(PatchSet { name: wanted.clone(), patches }),
                Err(fault) => self.push_once(fault),
            }
        }
        let patches = match patches_in(folder) {
            Ok(patches) => patches,
            Err(fault) => {
                self.push_once(fault);
                Vec::new()
            }
        };
        (self.faults.len() == faults).then(|| Series {
            name,
            title: file.title.clone(),
            link: file.link.clone(),
            direction: entry.direction,
            prerequisites,
            patches,
            expect: file.expect.clone(),
        })
    }

    /// A series is read once for each kernel, but its errors are shown once.
    fn push_once(&mut self, fault: Fault) {
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }
}

/// The `*.patch` files of a folder in the order of their names.
fn patches_in(folder: &Path) -> Result<Vec<PatchFile>, Fault> {
    // What looks like a patch but is not called one would be left out without a word.
    for extension in ["diff", "eml", "mbox", "txt"] {
        if let Some(name) = files_in(folder, extension).first() {
            return Err(Fault::plan("a file that looks like a patch is not called *.patch")
                .at(folder.join(name).display())
                .help("rename it, or move it out of the series' folder"));
        }
    }
    let mut patches = Vec::new();
    for name in files_in(folder, "patch") {
        let path = folder.join(&name);
        let read = |error: std::io::Error| {
            Fault::plan(format!("cannot be read: {error}")).at(path.display())
        };
        let size = std::fs::metadata(&path).map_err(read)?.len();
        if size > MAX_PATCH_BYTES {
            return Err(
                Fault::plan(format!("{size} bytes are too many for a patch")).at(path.display())
            );
        }
        let bytes = std::fs::read(&path).map_err(read)?;
        patches.push(PatchFile { name, path, bytes });
    }
    if patches.is_empty() {
        return Err(Fault::plan("no *.patch file in the folder")
            .at(folder.display())
            .help("put the series there as `git format-patch` writes it"));
    }
    Ok(patches)
}
