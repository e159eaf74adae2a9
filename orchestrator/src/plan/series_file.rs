// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads what a plan calls a series: its `series.yaml` and its patches.

use std::path::{Path, PathBuf};

use super::input::{Input, Taken};
use super::manifest::{Expectation, SERIES_SCHEMA, SeriesEntry, SeriesFile, SeriesKernel};
use super::resolve::{Resolver, files_in, folders_in, is_component, known, wrong_schema};
use super::yaml::{Document, load};
use super::{PatchSet, Series, patch_files};
use crate::fault::Fault;

/// A series whose patches and `series.yaml` were read.
pub(super) struct Opened {
    pub(super) name: String,
    input: Option<String>,
    taken: Taken,
    /// None where nothing is declared.
    document: Option<Document<SeriesFile>>,
}

impl Opened {
    pub(super) fn is_for(&self, kernel: &str) -> bool {
        self.document.as_ref().is_none_or(|file| file.value.kernels.contains_key(kernel))
    }

    /// The kernels that its `series.yaml` lists.
    pub(super) fn kernels(&self) -> Vec<&str> {
        let file = self.document.as_ref();
        file.map(|file| file.value.kernels.keys().map(String::as_str).collect()).unwrap_or_default()
    }

    pub(super) fn series_yaml(&self) -> &Path {
        self.document.as_ref().map_or(Path::new("series.yaml"), |file| file.file())
    }
}

/// A file is one patch, or mails: what is not called a patch may hold any number.
fn file(path: PathBuf) -> Input {
    let is_patch =
        path.extension().is_some_and(|extension| extension == "patch" || extension == "diff");
    if is_patch && !patch_files::holds_mails(&path) {
        Input::Files(vec![path])
    } else {
        Input::Mail(path)
    }
}

impl Resolver<'_> {
    /// Reads a series; `None` after an error was reported.
    pub(super) fn open_series(&mut self, index: usize, entry: &SeriesEntry) -> Option<Opened> {
        let (input, name, declared) = match entry {
            SeriesEntry::Named(name) => {
                let Some(place) = self.place(name) else {
                    let fault = self.series_fault(index, format!("no series {name:?}"));
                    let names = folders_in(&self.root.join("patches"));
                    let help = match Path::new(name).exists() {
                        true => format!("`{name}` is a name in patches/; the path is `./{name}`"),
                        false => known(name, &names),
                    };
                    self.faults.push(fault.help(help));
                    return None;
                };
                if place.is_file() {
                    (file(place), None, None)
                } else if !place.join("series.yaml").exists()
                    && files_in(&place, "patch").is_empty()
                    && name.contains('/')
                {
                    (Input::Mail(place), None, None)
                } else {
                    // In patches/ a series says what it is for; a folder of patches
                    // elsewhere need not.
                    let bare = name.contains('/') && !place.join("series.yaml").exists();
                    (Input::Folder(place.clone()), None, (!bare).then_some(place))
                }
            }
            SeriesEntry::Given { input, name, series_yaml } => {
                let declared = match series_yaml.as_deref().map(|name| (name, self.place(name))) {
                    None => None,
                    Some((_, Some(folder))) => Some(folder),
                    Some((wanted, None)) => {
                        let what = format!("no series {wanted:?} with a series.yaml");
                        let fault = self.series_fault(index, what);
                        let names = folders_in(&self.root.join("patches"));
                        self.faults.push(fault.help(known(wanted, &names)));
                        return None;
                    }
                };
                (input.clone().below(&self.root), name.clone(), declared)
            }
        };
        let name = name.unwrap_or_else(|| input.name());
        if !is_component(&name) {
            let fault = self.series_fault(index, format!("{name:?} cannot name a series"));
            self.faults
                .push(fault.help("use letters, digits, '-', '_' and '.', a letter or digit first"));
            return None;
        }
        let faults = self.faults.len();
        let taken = input.read().unwrap_or_else(|fault| {
            self.faults.push(fault);
            Taken::default()
        });
        let document = declared.as_ref().and_then(|folder| self.series_file(folder));
        let own = matches!(&input, Input::Folder(folder) if declared.as_ref() == Some(folder));
        let input = (!own).then(|| input.to_string());
        // A wrong series.yaml is looked through even when the patches are wrong.
        let whole = document.is_some() == declared.is_some();
        (whole || self.faults.len() == faults).then_some(Opened { name, input, taken, document })
    }

    /// The folder or file that a name means.
    fn place(&self, name: &str) -> Option<PathBuf> {
        let place = match name.contains('/') {
            true => self.root.join(super::kernel_file::expand_home(Path::new(name))),
            false => self.root.join("patches").join(name),
        };
        (place.is_dir() || (name.contains('/') && place.is_file())).then_some(place)
    }

    fn series_file(&mut self, folder: &Path) -> Option<Document<SeriesFile>> {
        match load::<SeriesFile>(&folder.join("series.yaml")) {
            Ok(document) if document.value.schema != SERIES_SCHEMA => {
                self.faults.push(wrong_schema(&document, &document.value.schema, SERIES_SCHEMA));
                None
            }
            Ok(document) => Some(document),
            Err(fault) => {
                self.faults.push(fault);
                None
            }
        }
    }

    pub(super) fn series(&mut self, opened: &Opened, kernel: &str) -> Option<Series> {
        let faults = self.faults.len();
        let (mut prerequisites, mut entry) = (Vec::new(), SeriesKernel::default());
        let (mut title, mut link, mut expect) = (None, None, Vec::new());
        let mut checkpatch = Vec::new();
        if let Some(document) = &opened.document {
            self.check_expectations(document);
            let file = &document.value;
            entry = file.kernels.get(kernel).cloned().unwrap_or_default();
            prerequisites = self.prerequisites(document, kernel, &entry);
            title = Some(file.title.clone());
            link.clone_from(&file.link);
            expect.clone_from(&file.expect);
            checkpatch.clone_from(&file.checkpatch);
        }
        let patches = &opened.taken.patches;
        let title = title
            .or_else(|| opened.taken.title.clone())
            .or_else(|| patches.first().and_then(|patch| patch.subject.clone()))
            .unwrap_or_else(|| opened.name.clone());
        (self.faults.len() == faults).then(|| Series {
            name: opened.name.clone(),
            input: opened.input.clone(),
            title,
            link,
            direction: entry.direction,
            prerequisites,
            patches: patches.clone(),
            passed_over: opened.taken.passed_over.clone(),
            expect,
            checkpatch,
        })
    }

    fn check_expectations(&mut self, document: &Document<SeriesFile>) {
        let expect = &document.value.expect;
        for (index, expectation) in expect.iter().enumerate() {
            let same = |other: &&Expectation| {
                other.test == expectation.test && other.observation == expectation.observation
            };
            if expect[..index].iter().any(|other| same(&other)) {
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
    }

    fn prerequisites(
        &mut self,
        document: &Document<SeriesFile>,
        kernel: &str,
        entry: &SeriesKernel,
    ) -> Vec<PatchSet> {
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
            match patch_files::folder(&folder) {
                Ok(taken) => {
                    prerequisites.push(PatchSet { name: wanted.clone(), patches: taken.patches });
                }
                Err(fault) => self.push_once(fault),
            }
        }
        prerequisites
    }

    /// A series is read once for each kernel, but its errors are shown once.
    fn push_once(&mut self, fault: Fault) {
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }
}
