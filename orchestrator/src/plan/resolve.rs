// SPDX-License-Identifier: MIT OR Apache-2.0
//! Manifests to [`Plan`]: every error of a plan is reported together, each with
//! its place.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytesize::ByteSize;

use super::kernel_file::expand_home;
use super::manifest::{
    BaseEntry, GuestEntry, PLAN_SCHEMA, PlanFile, SeriesEntry, VariantName, Variants,
};
use super::yaml::{Document, closest, load};
use super::{Base, Cell, Config, Deadlines, Fragment, Guest, Kernel, Plan, Test, Tests};
use crate::fault::Fault;
use crate::kernel::kconfig::{Request, read_base};

/// The smallest guest in which the kernel and an initramfs have room.
const MIN_MEMORY: ByteSize = ByteSize::mib(64);
/// Most vCPUs that QEMU's microvm takes under TCG.
const MAX_VCPUS: u32 = 255;
/// Nothing boots in less than a second, and nobody waits for longer than a day.
const DEADLINES: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(24 * 60 * 60);

/// Finds the plan that a user names: a path, or a name in `configs/plans/` of
/// the folder that kvet runs in or of one above.
///
/// # Errors
/// A `plan` fault that lists the plans there are.
pub fn find_plan(argument: &Path) -> Result<PathBuf, Fault> {
    if argument.is_file() {
        return Ok(argument.to_owned());
    }
    let missing = || Fault::plan(format!("no plan {:?}", argument.display().to_string()));
    // A name may hold dots, such as those of a kernel's version.
    let is_file_name = argument.extension().is_some_and(|found| found == "yaml");
    if argument.components().count() > 1 || is_file_name {
        return Err(missing().help("check the path"));
    }
    let here =
        std::env::current_dir().map_err(|error| Fault::io("find the current folder", &error))?;
    let Some(folder) = here.ancestors().map(|up| up.join("configs/plans")).find(|up| up.is_dir())
    else {
        return Err(
            missing().help("name a plan's file, or run kvet in a folder with configs/plans/")
        );
    };
    let file = with_suffix(folder.join(argument), "yaml");
    if file.is_file() {
        return Ok(file);
    }
    let names = names_in(&folder, "yaml");
    Err(missing().at(folder.display()).help(known(&argument.to_string_lossy(), &names)))
}

/// What the command line has to say about a plan.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// Series in the place of the plan's; none for the plan's own.
    pub series: Vec<SeriesEntry>,
    /// Take the uncommitted changes of a git source, too.
    pub dirty: bool,
}

/// Reads a plan and everything that it names.
///
/// # Errors
/// Every error that was found, each a `plan` fault with its place.
pub fn resolve(file: &Path, tests: &Tests) -> Result<Plan, Vec<Fault>> {
    resolve_with(file, tests, &Overrides::default())
}

/// [`resolve`], with what the command line says instead.
///
/// # Errors
/// As [`resolve`].
pub fn resolve_with(file: &Path, tests: &Tests, overrides: &Overrides) -> Result<Plan, Vec<Fault>> {
    let mut document: Document<PlanFile> = load(file).map_err(|fault| vec![fault])?;
    let given = !overrides.series.is_empty();
    if given {
        document.value.series.clone_from(&overrides.series);
    }
    let mut resolver = Resolver {
        root: root_of(file),
        document,
        tests,
        dirty: overrides.dirty,
        series_given: given,
        faults: Vec::new(),
    };
    let plan = resolver.plan();
    if resolver.faults.is_empty() { Ok(plan) } else { Err(resolver.faults) }
}

/// The folder above the plan that holds `kernels/` and `patches/`; the plan's
/// own folder where there is none.
fn root_of(file: &Path) -> PathBuf {
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    folder
        .ancestors()
        .find(|up| up.join("kernels").is_dir() || up.join("patches").is_dir())
        .unwrap_or(&folder)
        .to_owned()
}

pub(super) struct Resolver<'a> {
    pub(super) root: PathBuf,
    pub(super) document: Document<PlanFile>,
    pub(super) tests: &'a Tests,
    pub(super) dirty: bool,
    /// The series are the command line's, not the plan's.
    series_given: bool,
    pub(super) faults: Vec<Fault>,
}

impl Resolver<'_> {
    fn plan(&mut self) -> Plan {
        let schema = self.document.value.schema.clone();
        self.check_schema(&schema, PLAN_SCHEMA);
        let name =
            self.document.file().file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if !is_component(&name) {
            self.report("", format!("the plan's file name {name:?} cannot name a folder"));
        }
        let deadlines = self.document.value.deadlines;
        let kernels = self.kernels();
        let configs = self.configs();
        let guests = self.guests();
        let tests = self.tests(&guests);
        let (cells, skipped) = self.cells(&kernels, &configs, &guests, &tests);
        let cells = self.with_variations(cells);
        let mut ids = BTreeSet::new();
        if let Some(twice) = cells.iter().find(|cell| !ids.insert(cell.id())) {
            self.report("", format!("the plan spans the cell {} twice", twice.id()));
        }
        for (name, limit) in [("boot", deadlines.boot), ("test", deadlines.test)] {
            if limit.is_some_and(|limit| !DEADLINES.contains(&limit)) {
                self.report(
                    &format!("deadlines.{name}"),
                    "a deadline is between one second and a day".to_owned(),
                );
            }
        }
        if cells.is_empty() && self.faults.is_empty() {
            let fault = self.document.fault("series", "the plan has no cell to run");
            self.faults.push(fault.evidence(&skipped.join("\n")));
        }
        let instructions = self.instructions();
        let value = &self.document.value;
        Plan {
            name,
            file: self.document.file().to_owned(),
            root: self.root.clone(),
            cells,
            skipped,
            deadlines: Deadlines { boot: deadlines.boot, test: deadlines.test },
            instructions,
            allow: value.splats.allow.clone(),
            allow_identical: value.allow_identical,
        }
    }

    pub(super) fn report(&mut self, path: &str, what: String) {
        let fault = self.document.fault(path, what);
        self.faults.push(fault);
    }

    pub(super) fn report_unknown(&mut self, path: &str, kind: &str, name: &str, names: &[String]) {
        let fault = self.document.fault(path, format!("no {kind} {name:?}"));
        self.faults.push(fault.help(known(name, names)));
    }

    fn check_schema(&mut self, found: &str, expected: &str) {
        if found != expected {
            let fault =
                self.document.fault("schema", format!("schema {found:?} is not known here"));
            self.faults.push(fault.help(format!("this kvet reads {expected}")));
        }
    }

    fn kernels(&mut self) -> Vec<Kernel> {
        let names = self.document.value.kernels.clone();
        let kernel =
            |(index, name): (usize, String)| self.kernel(&format!("kernels.{index}"), &name);
        names.into_iter().enumerate().filter_map(kernel).collect()
    }

    fn configs(&mut self) -> Vec<Config> {
        let folder = self.root.join("configs/kconfig");
        let mut configs = Vec::new();
        let names: Vec<String> = self.document.value.configs.keys().cloned().collect();
        for name in names {
            self.check_component(&format!("configs.{name}"), "config", &name);
            let entry = &self.document.value.configs[&name];
            let (base, compiler, wanted) =
                (entry.base.clone(), entry.compiler, entry.fragments.clone());
            let base = self.base(&format!("configs.{name}.base"), base);
            let mut fragments = Vec::new();
            for (index, fragment) in wanted.into_iter().enumerate() {
                let path = format!("configs.{name}.fragments.{index}");
                let file = if fragment.contains('/') {
                    self.root.join(&fragment)
                } else {
                    with_suffix(folder.join(&fragment), "config")
                };
                match std::fs::read_to_string(&file) {
                    Ok(text) => fragments.push(Fragment { name: fragment, path: file, text }),
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                        let names = names_in(&folder, "config");
                        self.report_unknown(&path, "kconfig fragment", &fragment, &names);
                    }
                    Err(error) => self.report(&path, format!("read {}: {error}", file.display())),
                }
            }
            let mut config = Config { name, base, compiler, fragments, overrides: Vec::new() };
            match Request::read(&config) {
                Ok(request) => config.overrides = request.overrides().to_vec(),
                // Several configs may have the same fragment.
                Err(faults) => {
                    let new = |fault: &Fault| !self.faults.contains(fault);
                    let faults: Vec<Fault> = faults.into_iter().filter(new).collect();
                    self.faults.extend(faults);
                }
            }
            configs.push(config);
        }
        configs
    }

    /// The base of a config; a path is relative to the plan's folder.
    fn base(&mut self, place: &str, entry: BaseEntry) -> Base {
        let path = match entry {
            BaseEntry::Made(base) => return base.into(),
            BaseEntry::Path(path) => expand_home(&path),
        };
        let folder = self.document.file().parent().unwrap_or(Path::new("")).to_owned();
        let path = folder.join(path);
        let path = std::path::absolute(&path).unwrap_or(path);
        let text = read_base(&path).unwrap_or_else(|fault| {
            let fault = match fault.place {
                Some(_) => fault,
                None => Fault { help: fault.help, ..self.document.fault(place, fault.what) },
            };
            self.faults.push(fault);
            String::new()
        });
        Base::Given { path, text }
    }

    fn guests(&mut self) -> BTreeMap<String, Guest> {
        let entries = self.document.value.guests.clone();
        let mut guests = BTreeMap::new();
        for name in entries.keys() {
            let path = format!("guests.{name}");
            self.check_component(&path, "guest", name);
            let mut chain = vec![&entries[name]];
            let mut seen = BTreeSet::from([name.clone()]);
            while let Some(parent) = &chain[chain.len() - 1].extends {
                let place = format!("{path}.extends");
                match entries.get(parent) {
                    None => {
                        let names: Vec<String> = entries.keys().cloned().collect();
                        self.report_unknown(&place, "guest", parent, &names);
                        break;
                    }
                    Some(_) if !seen.insert(parent.clone()) => {
                        self.report(&place, format!("guest {name:?} extends itself"));
                        break;
                    }
                    Some(entry) => chain.push(entry),
                }
            }
            let guest = merge(name, &chain);
            if guest.vcpus == 0 || guest.vcpus > MAX_VCPUS {
                self.report(
                    &format!("{path}.vcpus"),
                    format!("{} vCPUs; between 1 and {MAX_VCPUS} are possible", guest.vcpus),
                );
            }
            if guest.memory < MIN_MEMORY {
                self.report(
                    &format!("{path}.memory"),
                    format!("{} of memory; a guest needs at least {MIN_MEMORY}", guest.memory),
                );
            }
            if let Some(cpu) = guest.cpu.as_ref().filter(|cpu| !is_cpu_model(cpu)) {
                let fault = self
                    .document
                    .fault(&format!("{path}.cpu"), format!("{cpu:?} is not a CPU model of QEMU's"));
                self.faults
                    .push(fault.help("write it as after QEMU's -cpu, such as `EPYC-v1,-erms`"));
            }
            if let Some(word) = guest.append.iter().find(|word| !is_command_line_word(word)) {
                self.report(
                    &format!("{path}.append"),
                    format!("{word:?} is not one word of a kernel command line"),
                );
            }
            guests.insert(name.clone(), guest);
        }
        guests
    }

    fn cells(
        &mut self,
        kernels: &[Kernel],
        configs: &[Config],
        guests: &BTreeMap<String, Guest>,
        tests: &BTreeMap<String, Vec<Test>>,
    ) -> (Vec<Cell>, Vec<String>) {
        let (mut cells, mut skipped) = (Vec::new(), Vec::new());
        let plain = Variants::List(vec![VariantName::Base, VariantName::Patched]);
        let wanted = self.document.value.variants.clone().unwrap_or(plain);
        if wanted == Variants::List(Vec::new()) {
            self.report("variants", "no variant to build".to_owned());
        }
        for index in 0..self.document.value.series.len() {
            let entry = self.document.value.series[index].clone();
            let Some(opened) = self.open_series(index, &entry) else {
                continue;
            };
            let before = cells.len();
            for kernel in kernels {
                if !opened.is_for(&kernel.name) {
                    skipped.push(format!(
                        "series {}: {} does not list kernel {}",
                        opened.name,
                        opened.series_yaml().display(),
                        kernel.name
                    ));
                    continue;
                }
                let Some(series) = self.series(&opened, &kernel.name) else {
                    continue;
                };
                let variants = match wanted.of(series.patches.len()) {
                    Ok(variants) => variants,
                    Err(name) => {
                        let what = format!(
                            "no variant {name}: the series {} has {} patches",
                            series.name,
                            series.patches.len()
                        );
                        self.report("variants", what);
                        continue;
                    }
                };
                for config in configs {
                    for (guest_name, guest) in guests {
                        let Some(tests) = tests.get(guest_name) else {
                            continue;
                        };
                        cells.push(Cell {
                            series: series.clone(),
                            kernel: kernel.clone(),
                            config: config.clone(),
                            guest: guest.clone(),
                            tests: tests.clone(),
                            variants: variants.clone(),
                            variation_of: None,
                        });
                    }
                }
            }
            if cells.len() == before && self.faults.is_empty() && !kernels.is_empty() {
                let what = format!("series {:?} is for none of the plan's kernels", opened.name);
                let fault = self.series_fault(index, what);
                let names = opened.kernels().join(", ");
                self.faults.push(fault.help(format!("its series.yaml lists: {names}")));
            }
        }
        (cells, skipped)
    }

    /// A fault of an entry of `series:`, or of `--series`.
    pub(super) fn series_fault(&self, index: usize, what: impl Into<String>) -> Fault {
        match self.series_given {
            true => Fault::plan(what).at("--series"),
            false => self.document.fault(&format!("series.{index}"), what),
        }
    }

    fn check_component(&mut self, path: &str, kind: &str, name: &str) {
        if !is_component(name) {
            let fault = self.document.fault(path, format!("{name:?} cannot name a {kind}"));
            self.faults
                .push(fault.help("use letters, digits, '-', '_' and '.', a letter or digit first"));
        }
    }
}

/// Adds an extension; `debian-6.12` keeps its `.12`, which `with_extension` would replace.
pub(super) fn with_suffix(path: PathBuf, extension: &str) -> PathBuf {
    let mut name = path.into_os_string();
    name.push(format!(".{extension}"));
    name.into()
}

pub(super) fn wrong_schema<T>(document: &Document<T>, found: &str, expected: &str) -> Fault {
    document
        .fault("schema", format!("schema {found:?} is not known here"))
        .help(format!("this kvet reads {expected}"))
}

/// `chain` runs from the guest itself to its furthest ancestor.
fn merge(name: &str, chain: &[&GuestEntry]) -> Guest {
    Guest {
        name: name.to_owned(),
        machine: chain.iter().find_map(|entry| entry.machine).unwrap_or_default(),
        vcpus: chain.iter().find_map(|entry| entry.vcpus).unwrap_or(1),
        memory: chain.iter().find_map(|entry| entry.memory).unwrap_or(ByteSize::gib(1)),
        cpu: chain.iter().find_map(|entry| entry.cpu.clone()),
        root: chain.iter().find_map(|entry| entry.root).unwrap_or_default(),
        network: chain.iter().find_map(|entry| entry.network).unwrap_or_default(),
        append: chain.iter().rev().flat_map(|entry| entry.append.iter().cloned()).collect(),
    }
}

/// Whether a name may become one component of a path.
pub(super) fn is_component(name: &str) -> bool {
    name.len() <= 100
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// Whether QEMU could take it after `-cpu`: a name, and switches behind commas.
fn is_cpu_model(cpu: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+=".contains(&byte);
    cpu.split(',').all(|part| !part.is_empty() && part.bytes().all(plain))
        && cpu.starts_with(|first: char| first.is_ascii_alphanumeric())
}

fn is_command_line_word(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_graphic())
}

pub(super) fn files_in(folder: &Path, extension: &str) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| Path::new(name).extension().is_some_and(|found| found == extension))
        .collect();
    names.sort();
    names
}

pub(super) fn names_in(folder: &Path, extension: &str) -> Vec<String> {
    let suffix = format!(".{extension}");
    files_in(folder, extension)
        .iter()
        .map(|name| name.trim_end_matches(&suffix).to_owned())
        .collect()
}

pub(super) fn folders_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().join("series.yaml").is_file() || entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name != "prerequisites")
        .collect();
    names.sort();
    names
}

pub(super) fn known(wrong: &str, names: &[String]) -> String {
    match closest(wrong, names.iter().map(String::as_str)) {
        Some(right) => format!("did you mean `{right}`?"),
        None if names.is_empty() => "there are none".to_owned(),
        None => format!("there are: {}", names.join(", ")),
    }
}
