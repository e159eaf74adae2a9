// SPDX-License-Identifier: MIT OR Apache-2.0
//! A plan's `tests:`: kvet's own by name, and programs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kvet_records::{Format, ParameterInfo, Parameters, Value, name_part, valid_name};

use super::manifest::{ParameterEntry, TestEntry};
use super::resolve::Resolver;
use super::{Guest, Program, ProgramSource, Test};

/// Most bytes of a program's arguments and environment together: they travel in
/// one line of the guest protocol, where JSON may write six bytes for one.
const MAX_ARGUMENT_BYTES: usize = 8 * 1024;

impl Resolver<'_> {
    /// The tests of each guest.
    pub(super) fn tests(
        &mut self,
        guests: &BTreeMap<String, Guest>,
    ) -> BTreeMap<String, Vec<Test>> {
        let guest_names: Vec<String> = guests.keys().cloned().collect();
        let mut chosen: BTreeMap<String, Vec<Test>> = BTreeMap::new();
        for index in 0..self.document.value.tests.len() {
            let entry = self.document.value.tests[index].clone();
            let path = format!("tests.{index}");
            let Some(test) = self.test(&path, &entry) else { continue };
            let on = entry.guests.as_ref();
            if on.is_some_and(Vec::is_empty) {
                self.report(&format!("{path}.guests"), "the test runs in no guest".to_owned());
            }
            for (position, guest) in on.unwrap_or(&guest_names).iter().enumerate() {
                if let Some(place) = self.cannot_measure(&path, &test, guests.get(guest)) {
                    self.faults.push(place);
                    continue;
                }
                if !guests.contains_key(guest) {
                    let place = format!("{path}.guests.{position}");
                    self.report_unknown(&place, "guest", guest, &guest_names);
                    continue;
                }
                let tests = chosen.entry(guest.clone()).or_default();
                if tests.iter().any(|other| other.id() == test.id()) {
                    let what = format!("test {:?} is listed twice for guest {guest:?}", test.id());
                    let fault = self.document.fault(&path, what);
                    self.faults.push(match test.program {
                        Some(_) => fault.help("give each a `name:` of its own"),
                        None => fault,
                    });
                }
                tests.push(test.clone());
            }
        }
        if self.document.value.tests.is_empty() {
            self.report("tests", "the plan has no tests".to_owned());
        }
        chosen
    }

    fn test(&mut self, path: &str, entry: &TestEntry) -> Option<Test> {
        let programs = [
            ("exec", entry.exec.as_ref()),
            ("script", entry.script.as_ref()),
            ("kselftest", entry.kselftest.as_ref()),
        ];
        let given: Vec<(&str, &String)> =
            programs.iter().filter_map(|&(key, value)| Some((key, value?))).collect();
        match given[..] {
            [] => self.own(path, entry),
            [(key, value)] => self.program(path, entry, key, value),
            [(first, _), (second, _), ..] => {
                let fault = self
                    .document
                    .fault(path, format!("a test is either `{first}:` or `{second}:`, not both"));
                self.faults.push(fault.help("make two entries of it"));
                None
            }
        }
    }

    /// One of kvet's own tests.
    fn own(&mut self, path: &str, entry: &TestEntry) -> Option<Test> {
        let Some(name) = entry.name.clone() else {
            let fault = self.document.fault(path, "the entry names no test");
            let help = "give it a `name:` of kvet's tests, or `exec:`, `script:` or `kselftest:`";
            self.faults.push(fault.help(help));
            return None;
        };
        let only = [
            ("args", !entry.args.is_empty()),
            ("format", entry.format.is_some()),
            ("environment", !entry.environment.is_empty()),
            ("files", !entry.files.is_empty()),
        ];
        for (key, given) in only {
            if given {
                let fault = self
                    .document
                    .fault(&format!("{path}.{key}"), format!("`{key}:` is for programs"));
                self.faults
                    .push(fault.help("kvet's own tests take `parameters:`; a program is named by `exec:`, `script:` or `kselftest:`"));
            }
        }
        let Some(info) = self.tests.get(&name) else {
            let names: Vec<String> = self.tests.keys().cloned().collect();
            self.report_unknown(&format!("{path}.name"), "guest test", &name, &names);
            return None;
        };
        let measure = self.measure(path, entry, info);
        let known = match (measure, &info.measured) {
            (Some(_), Some(measured)) => measured,
            _ => &info.parameters,
        };
        let mut parameters = Parameters::new();
        for (parameter, value) in &entry.parameters {
            let place = format!("{path}.parameters.{parameter}");
            if let Some(value) = self.parameter(&place, &info.name, known, parameter, value) {
                parameters.insert(parameter.clone(), value);
            }
        }
        Some(Test { name, parameters, program: None, measure })
    }

    fn program(&mut self, path: &str, entry: &TestEntry, key: &str, value: &str) -> Option<Test> {
        let before = self.faults.len();
        let place = format!("{path}.{key}");
        let (source, format) = match key {
            "exec" => (ProgramSource::Exec(self.host_file(&place, value)), Format::Exit),
            "script" => (ProgramSource::Script(self.host_file(&place, value)), Format::Exit),
            _ => {
                self.check_kselftest(&place, value);
                (ProgramSource::Kselftest(value.to_owned()), Format::Ktap)
            }
        };
        if !entry.measure.is_empty() {
            let fault =
                self.document.fault(&format!("{path}.measure"), "a program measures nothing");
            self.faults.push(fault.help("`measure:` is for kvet's own tests"));
        }
        if !entry.parameters.is_empty() {
            let fault =
                self.document.fault(&format!("{path}.parameters"), "a program has no parameters");
            self.faults.push(fault.help("give it `args:` and `environment:`"));
        }
        let name = entry.name.clone().or_else(|| default_name(&source)).unwrap_or_default();
        self.check_program_name(path, entry, &name);
        let files: Vec<PathBuf> = entry
            .files
            .iter()
            .enumerate()
            .map(|(index, file)| self.host_file(&format!("{path}.files.{index}"), file))
            .collect();
        let arguments: Vec<String> = entry.args.iter().map(Value::to_string).collect();
        let environment: BTreeMap<String, String> = entry
            .environment
            .iter()
            .map(|(name, value)| (name.clone(), value.to_string()))
            .collect();
        self.check_words(path, &arguments, &environment);
        let place = self.document.place(&place);
        let format = entry.format.unwrap_or(format);
        let program = Program { source, arguments, environment, format, files, place };
        (self.faults.len() == before).then(|| Test {
            name,
            parameters: Parameters::new(),
            program: Some(program),
            measure: None,
        })
    }

    /// The absolute path of a file of the host; relative ones start at the plan's
    /// folder.
    fn host_file(&mut self, place: &str, value: &str) -> PathBuf {
        let folder = self.document.file().parent().unwrap_or(Path::new("")).to_owned();
        let path = folder.join(value);
        if let Ok(folder) = std::fs::canonicalize(folder) {
            let path = normal(&folder.join(value));
            if path.is_file() {
                return path;
            }
        }
        let what = format!("no file {:?}", path.display().to_string());
        let fault = self.document.fault(place, what);
        self.faults
            .push(fault.help("paths are absolute, or relative to the folder that the plan is in"));
        path
    }

    fn check_kselftest(&mut self, place: &str, value: &str) {
        let parts: Vec<&str> = value.split('/').collect();
        let valid = |part: &&str| {
            part.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.+".contains(&b))
        };
        if parts.len() < 2 || value.len() > 100 || !parts.iter().all(valid) {
            let what = format!("{value:?} is not a test below tools/testing/selftests");
            let fault = self.document.fault(place, what);
            self.faults.push(fault.help("write folder and program, as in mm/cow"));
        } else if value.ends_with(".sh") || value.ends_with(".py") {
            let fault = self.document.fault(place, format!("{value} is a script"));
            self.faults.push(fault.help("only compiled selftests are built from the tree; a shell script can be run by `script:`"));
        }
    }

    fn check_program_name(&mut self, path: &str, entry: &TestEntry, name: &str) {
        let place = format!("{path}.name");
        if !valid_name(name) {
            let what = match &entry.name {
                Some(name) => format!("{name:?} cannot name a test"),
                None => "the program's file name cannot name a test".to_owned(),
            };
            let fault = self.document.fault(&place, what);
            self.faults.push(
                fault.help("give it a `name:` of small letters, digits and '_', a letter first"),
            );
        } else if self.tests.contains_key(name) {
            let fault = self.document.fault(&place, format!("{name:?} is one of kvet's own tests"));
            self.faults.push(fault.help("give the program another `name:`"));
        }
    }

    /// What the system calls take: no NUL, no `=` in a variable's name.
    fn check_words(
        &mut self,
        path: &str,
        arguments: &[String],
        environment: &BTreeMap<String, String>,
    ) {
        for (index, argument) in arguments.iter().enumerate() {
            if argument.contains('\0') {
                self.report(&format!("{path}.args.{index}"), "a NUL in an argument".to_owned());
            }
        }
        for (name, value) in environment {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                let place = format!("{path}.environment.{name}");
                self.report(&place, format!("{name:?} cannot be a variable"));
            }
        }
        let arguments = arguments.iter().map(String::len);
        let variables = environment.iter().map(|(name, value)| name.len() + value.len());
        let bytes: usize = arguments.chain(variables).sum();
        if bytes > MAX_ARGUMENT_BYTES {
            let what = format!(
                "{bytes} bytes of arguments and environment; {MAX_ARGUMENT_BYTES} are possible"
            );
            self.report(&format!("{path}.args"), what);
        }
    }

    /// The value of a parameter as its test takes it. A list is written with commas,
    /// also one of a single number.
    fn parameter(
        &mut self,
        path: &str,
        test: &str,
        known: &[ParameterInfo],
        name: &str,
        entry: &ParameterEntry,
    ) -> Option<Value> {
        let Some(known) = known.iter().find(|known| known.name == name) else {
            let names: Vec<String> = known.iter().map(|known| known.name.clone()).collect();
            self.report_unknown(path, &format!("parameter of {test}"), name, &names);
            return None;
        };
        let text = matches!(known.default, Value::Text(_));
        let value = match entry {
            ParameterEntry::List(values) if text => {
                let words: Vec<String> = values.iter().map(Value::to_string).collect();
                Value::Text(words.join(","))
            }
            ParameterEntry::One(number @ Value::Integer(_)) if text => {
                Value::Text(number.to_string())
            }
            ParameterEntry::One(value) => value.clone(),
            ParameterEntry::List(_) => {
                let what = format!("parameter {name:?} is like {}, not a list", known.default);
                let fault = self.document.fault(path, what);
                self.faults.push(fault.help(known.summary.clone()));
                return None;
            }
        };
        if std::mem::discriminant(&known.default) != std::mem::discriminant(&value) {
            let what = format!("parameter {name:?} is like {}, not like {value:?}", known.default);
            let fault = self.document.fault(path, what);
            self.faults.push(fault.help(known.summary.clone()));
            return None;
        }
        Some(value)
    }
}

/// `stress_ng` for /usr/bin/stress-ng, `mm.khugepaged` for mm/khugepaged.
fn default_name(source: &ProgramSource) -> Option<String> {
    match source {
        ProgramSource::Exec(path) => name_part(&path.file_name()?.to_string_lossy()),
        ProgramSource::Script(path) => name_part(&path.file_stem()?.to_string_lossy()),
        ProgramSource::Kselftest(target) => {
            let parts: Option<Vec<String>> = target.split('/').map(name_part).collect();
            Some(parts?.join("."))
        }
    }
}

/// The path without `.` and `..`, as far as these stand in it literally.
fn normal(path: &Path) -> PathBuf {
    use std::path::Component;
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod checks {
    use super::*;

    #[test]
    fn programs_are_called_as_their_files_are() {
        let name = |source: &ProgramSource| default_name(source).unwrap();
        assert_eq!(name(&ProgramSource::Exec("/usr/bin/stress-ng".into())), "stress_ng");
        assert_eq!(name(&ProgramSource::Script("/x/First Touch.sh".into())), "first_touch");
        assert_eq!(
            name(&ProgramSource::Kselftest("mm/transhuge-stress".into())),
            "mm.transhuge_stress"
        );
    }

    #[test]
    fn dots_are_taken_out_of_a_path() {
        assert_eq!(normal(Path::new("/a/./b/../c")), Path::new("/a/c"));
        assert_eq!(normal(Path::new("/../a")), Path::new("/a"));
    }
}
